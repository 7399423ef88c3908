"""Which hardware register gives each range of the whole kernel its value, and the launch.

Any number of axes: up to three stand on .x, .y, .z as they are; where there are more, or one is too
long for its component, all are folded onto .x and taken apart by // and %.  The blocks of a cluster
come first: they are neighbours along x (cluster rank = blockIdx.x % blocks).  So are LANE, WARP and
WARPGROUP ranges, in this order from the fastest, after the LOCAL ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.errors import SpecError, TargetError
from uopc.kernel import Axis, Dims, Launch
from uopc.target import Target
from uopc.uop.node import UOp, is_rank, prod, toposort, where_from
from uopc.uop.ops import AxisType, LaunchArg, Ops

_OF_WARPS = (AxisType.LANE, AxisType.WARP, AxisType.WARPGROUP)
ANY_GPU = Target("any GPU")  # grid and block limits are the same on all of them


def hardware_ranges(root: UOp, kind: AxisType) -> tuple[UOp, ...]:
    """Ranges of one kind, that of .x first: those that the SINK names, then the last axis first.

    The SINK names GLOBAL and LOCAL ranges; those of warps go by their axes alone.
    """
    ranges = {u for u in toposort(root) if u.op is Ops.RANGE and u.arg.kind is kind}
    arg = root.arg or LaunchArg()
    named = {AxisType.LOCAL: arg.lanes, AxisType.GLOBAL: arg.grid}.get(kind, ())
    place = {axis: n for n, axis in enumerate(named)}
    return tuple(
        sorted(
            ranges,
            key=lambda r: (
                not is_rank(r),
                place.get(r.arg.axis, len(place)),
                -r.arg.axis,
                r.arg.digit,  # the lanes of an axis before its warps
            ),
        )
    )


def bind(root: UOp) -> Launch:
    """The launch of a kernel.  Raises TargetError where no GPU can launch its grid or block."""
    blocks, lanes = hardware_ranges(root, AxisType.GLOBAL), hardware_ranges(root, AxisType.LOCAL)
    warps = [r for kind in _OF_WARPS for r in hardware_ranges(root, kind)]
    threads = prod(r.arg.size for r in (*lanes, *warps))
    if threads > ANY_GPU.max_threads_per_block:
        raise TargetError(
            f"a block of {threads} threads; the limit is {ANY_GPU.max_threads_per_block}. "
            "Lower Opts.local."
        )
    grid, grid_axes = _place(blocks, ANY_GPU.max_grid)
    block, block_axes = _place((*lanes, *warps), ANY_GPU.max_block, fold=bool(warps))
    if grid[0] > ANY_GPU.max_grid[0]:
        raise TargetError(
            f"a grid of {grid[0]} blocks; the limit is {ANY_GPU.max_grid[0]}. "
            "Raise Opts.local, upcast, vector or loop."
        )
    arg = root.arg or LaunchArg()
    cluster = prod(r.arg.size for r in blocks if is_rank(r))
    return Launch(grid, block, grid_axes, block_axes, arg.blocks_per_sm, cluster)


def _place(
    ranges: Sequence[UOp], limits: Dims, fold: bool = False
) -> tuple[Dims, tuple[Axis, ...]]:
    for r in ranges:
        if (r.arg.start, r.arg.step) != (0, 1):
            raise SpecError(
                f"{r.arg.kind} range of axis {r.arg.axis} ({where_from(r)}) counts from "
                f"{r.arg.start} by {r.arg.step}; hardware counts from 0 by 1. "
                "Put it into the index."
            )
    sizes = [r.arg.size for r in ranges]
    if not fold and len(ranges) <= 3 and all(n <= m for n, m in zip(sizes, limits, strict=False)):
        dims = (*sizes, 1, 1, 1)[:3]
        return (dims[0], dims[1], dims[2]), tuple(Axis(r, d, 1, True) for d, r in enumerate(ranges))
    axes, stride = [], 1
    for r in ranges:
        axes.append(Axis(r, 0, stride, False))
        stride *= r.arg.size
    return (stride, 1, 1), tuple(axes)

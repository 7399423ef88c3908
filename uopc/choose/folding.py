"""Opts under which the blocks of a split reduction fold their own parts.

The first half is chosen for as a whole; what folds its parts in the same launch
(`passes/last_block.py`) has the same threads, and so no choice but this one.
"""

from __future__ import annotations

from uopc.choose.facts import KernelFacts, tiles
from uopc.opts import AxisSizes, Opts
from uopc.passes.in_place import may_write_in_place
from uopc.passes.share import axes_of, is_report, output_axes, reduced_axes
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import Ops


def folding_opts(first: UOp, opts: Opts, second: UOp) -> Opts | None:
    """Opts for the second half of `split_grid`; None where the first one's blocks cannot do it.

    opts: of the first half.  The second must store along the axes that parts are stored along and
    reduce over the parts alone; then what one of its blocks does is what a group of the first's
    blocks leaves.
    """
    stored = output_axes(first)
    *kept, _ = sorted(stored)
    if any({r.arg.axis for r in e.src[1:]} != stored for e in first.src if not is_report(e)):
        return None  # a group would read parts that another one stores
    walked, inner = sorted(reduced_axes(second)), sorted(reduced_axes(first))
    if len(walked) != 1 or len(inner) != 1 or any(is_report(e) for e in second.src):
        return None
    sizes = {r.arg.axis: r.arg.size for r in axes_of(first)}
    others = {r.arg.axis: r.arg.size for r in axes_of(second)}
    if sorted(output_axes(second)) != kept or any(others[a] != sizes[a] for a in kept):
        return None
    if kept and not _memories(first, Ops.LOAD).isdisjoint(_memories(second, Ops.STORE)):
        return None  # another group may still read what this one writes
    number = {**{a: a for a in kept}, inner[0]: walked[0]}
    lanes = dict(opts.local).get(inner[0], 1)

    def of_kept(digits: AxisSizes) -> dict[int, int]:
        return {a: n for a, n in digits if a in kept}

    copies = {a: dict(opts.upcast).get(a, 1) * dict(opts.vector).get(a, 1) for a in kept}
    chains = tiles(KernelFacts.of_indexed(second), {walked[0]: lanes}, copies)
    folding = Opts(
        gpu=True,
        local={number[a]: n for a, n in opts.local if a in number},
        upcast=of_kept(opts.upcast),
        vector=of_kept(opts.vector),
        tile={**of_kept(opts.tile), **chains},
        loop=of_kept(opts.loop),
        blocks=of_kept(opts.blocks),
        lanes=tuple([number[a] for a in opts.lanes if a in number]),
        grid=tuple([a for a in opts.grid if a in kept]),
        blocks_per_sm=opts.blocks_per_sm,
    )
    return folding if may_write_in_place(second, folding) else None


def _memories(root: UOp, op: Ops) -> set[UOp]:
    """Parameters that LOADs read, or STOREs write."""
    return {memory(u.src[0]) for u in toposort(root) if u.op is op}

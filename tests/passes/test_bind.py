"""Every block and thread has its own place: the launch reaches each element once."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.kernels import axpy, outputs, param
from uopc.dtype import dtypes
from uopc.errors import SpecError, TargetError
from uopc.kernel import Axis, Dims, Launch
from uopc.opts import Opts
from uopc.passes.bind import bind, hardware_ranges
from uopc.pipeline import gpu_lower, render_cuda
from uopc.uop.node import UOp, buffer, prod, range_, sink
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, LaunchArg, Ops
from uopc.uop.spec import Stage, check

MOST = 65535


def kernel(blocks: list[int], threads: list[int], arg: LaunchArg | None = None) -> UOp:
    """A kernel that stores once for every value of its hardware ranges."""
    ranges = [range_(n, a, AxisType.GLOBAL) for a, n in enumerate(blocks)]
    ranges += [range_(n, 100 + a, AxisType.LOCAL) for a, n in enumerate(threads)]
    position = UOp.const(0, dtypes.index)
    for r in ranges:
        position = position * r.arg.size + r
    out = buffer(0, dtypes.f32, (prod(r.arg.size for r in ranges),))
    return sink(out.index(position).store(1.0), launch=arg)


def codes(dims: Dims, axes: tuple[Axis, ...]) -> Array:
    """The row-major position of the ranges' values at every place of a grid or block, sorted."""
    place = np.indices(dims).reshape(3, -1)
    code = np.zeros(place.shape[1], np.int64)
    for a in sorted(axes, key=lambda a: a.range.arg.axis):
        here = place[a.dim] if a.whole else place[a.dim] // a.stride % a.range.arg.size
        assert here.max(initial=0) < a.range.arg.size
        code = code * a.range.arg.size + here
    return np.sort(code)


def assert_bijection(launch: Launch, blocks: list[int], threads: list[int]) -> None:
    for dims, axes, sizes in (
        (launch.grid, launch.grid_axes, blocks),
        (launch.block, launch.block_axes, threads),
    ):
        assert prod(dims) == prod(sizes)
        assert np.array_equal(codes(dims, axes), np.arange(prod(sizes)))


@pytest.mark.parametrize("blocks", [[], [7], [3, 5], [2, 3, 4], [2, 3, 4, 5], [3, 2, 2, 2, 3, 2]])
@pytest.mark.parametrize(
    "threads", [[], [32], [4, 8], [2, 4, 4], [2, 2, 2, 2, 2], [2, 2, 128], [3, 1, 5, 7]]
)
def test_every_index_is_reached_once(blocks: list[int], threads: list[int]) -> None:
    assert_bijection(bind(kernel(blocks, threads)), blocks, threads)


@pytest.mark.parametrize("blocks", [[MOST + 1, 3], [70000, 2, 2], [2, MOST + 1, 3]])
def test_an_axis_too_long_for_y_or_z_is_folded_onto_x(blocks: list[int]) -> None:
    launch = bind(kernel(blocks, []))
    assert launch.grid == (prod(blocks), 1, 1)
    assert_bijection(launch, blocks, [])


def test_an_axis_too_long_for_y_may_stand_on_x() -> None:
    launch = bind(kernel([3, MOST + 1], []))
    assert launch.grid == (MOST + 1, 3, 1) and all(a.whole for a in launch.grid_axes)


def test_a_block_of_more_than_64_on_z_is_folded() -> None:
    launch = bind(kernel([], [128, 2, 2]))
    assert launch.block == (512, 1, 1)
    assert_bijection(launch, [], [128, 2, 2])


def test_the_last_axis_is_on_x_unless_lanes_say() -> None:
    assert bind(kernel([], [4, 8, 2])).block == (2, 8, 4)
    assert bind(kernel([], [4, 8, 2], LaunchArg(lanes=(101,)))).block == (8, 2, 4)
    assert bind(kernel([5, 6], [], LaunchArg(grid=(0,)))).grid == (5, 6, 1)


def test_ranges_come_in_the_order_of_x_y_z() -> None:
    root = kernel([5, 6], [4, 8], LaunchArg(lanes=(100, 101)))
    assert [r.arg.size for r in hardware_ranges(root, AxisType.LOCAL)] == [4, 8]
    assert [r.arg.size for r in hardware_ranges(root, AxisType.GLOBAL)] == [6, 5]


def test_blocks_per_sm_reach_the_launch() -> None:
    assert bind(kernel([2], [32], LaunchArg(blocks_per_sm=3))).blocks_per_sm == 3


def test_too_many_threads() -> None:
    with pytest.raises(
        TargetError, match=r"a block of 2048 threads; the limit is 1024. Lower Opts.local"
    ):
        bind(kernel([], [64, 32]))


def test_too_many_blocks() -> None:
    body = param(0, 1 << 20, 1 << 12)
    with pytest.raises(
        TargetError, match=r"a grid of 4294967296 blocks; the limit is 2147483647. Raise Opts.local"
    ):
        bind(gpu_lower(body, outputs([body])[0], Opts(gpu=True)))


def test_the_rendered_text_takes_folded_axes_apart() -> None:
    """The divisions in the text give each block its own indices."""
    body = axpy(2, 3, 2, 3, 2)
    opts = Opts(gpu=True)
    text = render_cuda(gpu_lower(body, outputs([body])[0], opts), "k")
    assert text.launch.grid == (72, 1, 1)
    found = dict(re.findall(r"const int (gidx\d) = (.*);", text))
    assert len(found) == 5
    names = sorted(found)
    seen = {tuple(_at(found[n], x) for n in names) for x in range(72)}
    assert seen == set(itertools.product(range(2), range(3), range(2), range(3), range(2)))


def _at(text: str, x: int) -> int:
    """One of our index expressions at blockIdx.x = x."""
    python = (
        text.replace("(int)blockIdx.x", str(x)).replace("blockIdx.x", str(x)).replace("/", "//")
    )
    assert re.fullmatch(r"[\d %/()]+", python), python
    return int(eval(python))


def test_nothing_to_bind() -> None:
    launch = bind(kernel([], []))
    assert (launch.grid, launch.block) == ((1, 1, 1), (1, 1, 1))
    assert all(u.op is not Ops.RANGE for u in kernel([], []).toposort())


@pytest.mark.parametrize("kind", [AxisType.GLOBAL, AxisType.LOCAL])
def test_hardware_counts_from_zero_by_one(kind: AxisType) -> None:
    x, r = buffer(0, dtypes.f32, (16,)), range_(4, 0, kind, start=2)
    odd = sink(x.index(r).store(1.0))
    with pytest.raises(SpecError, match=r"axis 0 \(test_bind\.py:\d+\) counts from 2 by 1"):
        bind(odd)
    with pytest.raises(SpecError, match="hardware counts from 0 by 1, not from 2 by 1"):
        check(odd, Stage.LOOPS)


# ---- ranges of warps
def test_lanes_warps_and_warpgroups_are_digits_of_the_thread() -> None:
    kinds = ((3, AxisType.GLOBAL), (2, AxisType.WARPGROUP), (4, AxisType.WARP), (32, AxisType.LANE))
    ranges = [range_(n, axis, kind) for axis, (n, kind) in enumerate(kinds)]
    position = UOp.const(0, dtypes.index)
    for r in ranges:
        position = position * r.arg.size + r
    launch = bind(sink(buffer(0, dtypes.f32, (768,)).index(position).store(1.0)))
    assert (launch.grid, launch.block, launch.threads) == ((3, 1, 1), (256, 1, 1), 256)
    assert [(a.range.arg.kind, a.dim, a.stride, a.whole) for a in launch.block_axes] == [
        (AxisType.LANE, 0, 1, False),
        (AxisType.WARP, 0, 32, False),
        (AxisType.WARPGROUP, 0, 128, False),
    ]


@pytest.mark.parametrize("arg", [LaunchArg(), LaunchArg(grid=(0,)), LaunchArg(lanes=(0,))])
def test_the_sink_does_not_reorder_warps(arg: LaunchArg) -> None:
    first, second = range_(2, 0, AxisType.WARP), range_(2, 1, AxisType.WARP)
    lane = range_(32, 2, AxisType.LANE)
    out = buffer(0, dtypes.f32, (128,)).index((first * 2 + second) * 32 + lane)
    root = sink(out.store(1.0), launch=arg)
    assert hardware_ranges(root, AxisType.WARP) == (second, first)
    assert [a.stride for a in bind(root).block_axes] == [1, 32, 64]


def test_local_ranges_are_faster_than_warps() -> None:
    warp, local = range_(4, 0, AxisType.WARP), range_(32, 1, AxisType.LOCAL)
    root = sink(buffer(0, dtypes.f32, (128,)).index(warp * 32 + local).store(1.0))
    assert [(a.range, a.stride) for a in bind(root).block_axes] == [(local, 1), (warp, 32)]

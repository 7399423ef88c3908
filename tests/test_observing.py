"""What the emulator saw of a kernel's accesses, warp by warp."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.helpers import alloc
from tests.kernels import param
from tests.random_kernels import random_case
from tests.three_ways import random_opts
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.inspect.access import listing
from uopc.inspect.sites import sites
from uopc.inspect.warps import Counts
from uopc.launches import random_arrays
from uopc.observing import observed, spread_arrays
from uopc.opts import Opts
from uopc.pipeline import compile, finish
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, Ops


def by_op(found: dict[UOp, Counts]) -> dict[str, Counts]:
    return {u.op.name: c for u, c in found.items()}


def test_a_copy_of_rows() -> None:
    x = np.zeros((64, 33), np.float32)
    kernel = compile(param(0, 64, 33) * 2.0, Opts(gpu=True, local={1: 32}), "sm_80")
    (found,) = observed(kernel, x)
    load = by_op(found)["LOAD"]
    assert (load.requests, load.threads, load.exact) == (128, 64 * 33, True)
    rows = [{(row * 33 + lane) // 8 for lane in range(32)} for row in range(64)]
    assert load.sectors == sum(map(len, rows)) + 64


def test_the_callers_arrays_are_not_written() -> None:
    y = np.full(64, 7.0, np.float32)
    t = range_(64, 0, AxisType.LOCAL)
    c = Cursor()
    c.store(buffer(0, dtypes.f32, (64,)).index(t), 1.0)
    observed(c.sink(), y)
    assert (y == 7.0).all()


def test_a_part_of_the_blocks_stands_for_all() -> None:
    """An eighth of the blocks, evenly; what is told is of the whole grid."""
    kernel = compile(param(0, 1 << 16) * 2.0, Opts(gpu=True, local={0: 128}), "sm_80")
    arrays = random_arrays(kernel, 0)
    (whole,) = observed(kernel, *arrays, most_threads=1 << 16)
    (part,) = observed(kernel, *arrays, most_threads=1 << 13)
    for op in ("LOAD", "STORE"):
        all_of_it, some = by_op(whole)[op], by_op(part)[op]
        assert all_of_it.exact and not some.exact
        assert (
            (some.requests, some.sectors)
            == (all_of_it.requests, all_of_it.sectors)
            == (*(2048, 8192),)
        )


def test_one_whole_block_at_least() -> None:
    kernel = compile(param(0, 4096) * 2.0, Opts(gpu=True, local={0: 512}), "sm_80")
    with pytest.raises(
        UsageError, match=r"a block has 512 threads, and most_threads=256 are traced"
    ):
        observed(kernel, *random_arrays(kernel, 0), most_threads=256)


def test_arrays_that_do_not_fit() -> None:
    kernel = compile(param(0, 64) * 2.0, target="sm_80")
    with pytest.raises(UsageError):
        observed(kernel, np.zeros(63, np.float32))


def test_each_launch_has_its_counts() -> None:
    kernel = compile(
        param(0, 600, 5).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1), Opts(gpu=True), "sm_80"
    )
    found = observed(kernel, *random_arrays(kernel, 0))
    assert len(found) == len(kernel.steps)
    for step, of_launch in zip(kernel.steps, found, strict=True):
        assert set(of_launch) == {s.node for s in sites(step.program)}


def test_turns_of_deep_loops_do_not_mix() -> None:
    """An event tells of so many loops; turns of those beyond are still requests of their own."""
    loops = [range_(2, n) for n in range(1, 11)]
    t = range_(32, 0, AxisType.LOCAL)
    place = t
    for r in loops:
        place = place * 2 + r
    c = Cursor()
    with c.loop(*loops):
        c.store(buffer(0, dtypes.f32, (32 << 10,)).index(place), 1.0)
    (found,) = observed(c.sink(), np.zeros(32 << 10, np.float32))
    assert by_op(found)["STORE"].requests == 1 << 10


def test_a_node_at_two_places_is_told_once_for_each() -> None:
    """Wide reads of a row and of the next one share a text: their counts are told together."""
    rng = random.Random(10619)
    case = random_case(rng, 300)
    opts = random_opts(rng, case.bodies, True)
    kernel = compile(list(case.bodies), opts, "sm_90a")
    (step,) = kernel.steps
    (found,) = observed(kernel, *[case.arrays[s] for s in sorted(case.arrays)])
    every = sites(step.program)
    assert len({s.node for s in every}) < len(every)
    said = listing(step.program, step.source.name, step.source.target).accesses
    for a, site in zip(said, every, strict=True):
        assert found[site.node].requests == a.requests, a


def test_shared_memory_too() -> None:
    tile = alloc(AddrSpace.SHARED, dtypes.f32, 1024)
    t, y = range_(32, 0, AxisType.LOCAL), buffer(0, dtypes.f32, (32,))
    c = Cursor()
    c.store(tile.index(t * 32), 1.0)
    c.barrier()
    c.store(y.index(t), c.load(tile.index(t * 32)))
    program = finish(c.sink())
    (found,) = observed(c.sink(), np.zeros(32, np.float32))
    store, load, _ = (found[s.node] for s in sites(program))
    assert (store.wavefronts, load.wavefronts) == (32, 32) and load.least_wavefronts == 1


# ---- arrays for it
def test_random_indices_go_everywhere() -> None:
    """Rows of a table: of 1,000, though the table has 4,000 elements; other arrays stay small."""
    table, index = param(0, 1000, 4), param(1, 300, dtype=dtypes.i32)
    body = table.gather((~0, 1), index.reshape((300, 1)).expand((300, 4)))
    counts = param(2, 300, 1, dtype=dtypes.i32).expand((300, 4)).cast(dtypes.f32)
    kernel = compile(body * counts, target="sm_80")
    values, places, small = spread_arrays(kernel, 0)
    assert values.shape == (4000,) and small.max() < 8
    assert 900 < places.max() < 1000 and len(set(places.tolist())) > 200
    again = spread_arrays(kernel, 0)
    assert all((a == b).all() for a, b in zip(again, (values, places, small), strict=True))
    assert (spread_arrays(kernel, 1)[1] != places).any()


def test_narrow_indices_and_loop_ir() -> None:
    t = range_(64, 0, AxisType.LOCAL)
    index, x, y = (
        buffer(slot, dtype, (n,))
        for slot, dtype, n in ((0, dtypes.u8, 64), (1, dtypes.f32, 4096), (2, dtypes.f32, 64))
    )
    c = Cursor()
    c.store(y.index(t), x.index(index.index(t).load().cast(dtypes.index)).load())
    places, values, written = spread_arrays(c.sink(), 0)
    assert places.dtype == np.uint8 and places.max() > 200
    assert values.shape == (4096,) and not written.any()

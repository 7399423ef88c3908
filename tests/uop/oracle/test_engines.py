"""Asynchronous copies, mbarriers and roles: what arrives where, who waits for whom."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.helpers import alloc, assert_same
from uopc import layouts
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import SpecError
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Engine, Fence, Ops
from uopc.uop.oracle import OutOfBoundsError, run
from uopc.uop.spec import Stage, check

F32, F16, U64 = dtypes.f32, dtypes.f16, dtypes.u64
LANE, WARP = range_(32, 1, AxisType.LANE), range_(4, 0, AxisType.WARP)
BLOCK = range_(3, 2, AxisType.GLOBAL)


def idx(n: int) -> UOp:
    return UOp.const(n, dtypes.index)


def mbarriers(n: int, slot: int = 0) -> UOp:
    return alloc(AddrSpace.MBARRIER, U64, n, slot)


def init(c: Cursor, *counts: tuple[UOp, int]) -> None:
    """mbarriers with their counts, by one thread; then all threads may use them."""
    with c.when((LANE < 1) & (WARP < 1)):
        for m, count in counts:
            for n in range(m.arg.shape[0]):
                c.init(m.index(n), count)
        c.fence(Fence.MBAR_INIT)
    c.barrier()


def result(c: Cursor, arrays: dict[int, Array]) -> dict[int, Array]:
    kernel = c.sink()
    check(kernel, Stage.LOOPS, gpu=True)
    return run(kernel, arrays)


# ---- cp.async
@pytest.mark.parametrize("width", [1, 2, 4])
def test_cp_async_copies_and_fills_with_zeros(width: int) -> None:
    n = 32 * width
    x, y = buffer(1, F32, (n,)), buffer(0, F32, (n,))
    tile, lane = alloc(AddrSpace.SHARED, F32, n), range_(32, 0, AxisType.LANE)
    c = Cursor()
    c.copy_async(tile.index(lane * width), x.index(lane * width), width, lane < 20)
    c.commit(Engine.CP_ASYNC)
    c.wait_group(Engine.CP_ASYNC)
    c.barrier()
    with c.loop(range_(width, 3)) as k:
        c.store(y.index(lane * width + k), c.load(tile.index(lane * width + k)))
    data = np.arange(1, n + 1, dtype=np.float32)
    want = np.where(np.arange(n) < 20 * width, data, 0).astype(np.float32)
    assert_same(result(c, {1: data})[0], want)


def test_cp_async_where_only_some_lanes_ask() -> None:
    x, y = buffer(1, F32, (8,)), buffer(0, F32, (32,))
    tile, lane = alloc(AddrSpace.SHARED, F32, 32), range_(32, 0, AxisType.LANE)
    c = Cursor()
    c.store(tile.index(lane), -1.0)
    c.barrier()
    with c.when(lane < 8):
        c.copy_async(tile.index(lane), x.index(lane))
    c.commit(Engine.CP_ASYNC)
    c.wait_group(Engine.CP_ASYNC)
    c.barrier()
    c.store(y.index(lane), c.load(tile.index(lane)))
    assert result(c, {1: np.arange(8, dtype=np.float32)})[0].tolist() == [*range(8), *[-1] * 24]


# ---- bulk copies
def boxes(shape: tuple[int, ...], box: tuple[int, ...], corner: tuple[int, ...]) -> Array:
    """The box at a corner of 1, 2, 3 ... in row-major order; zeros outside."""
    whole = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    out = np.zeros(box, np.float32)
    for at in itertools.product(*map(range, box)):
        there = tuple(a + b for a, b in zip(at, corner, strict=True))
        if all(0 <= t < n for t, n in zip(there, shape, strict=True)):
            out[at] = whole[there]
    return out


@pytest.mark.parametrize(
    ("shape", "box", "corner"),
    [
        ((64,), (16,), (8,)),
        ((20, 32), (8, 16), (4, 16)),
        ((20, 32), (8, 16), (16, 28)),
        ((20, 32), (8, 16), (-3, -4)),
        ((3, 5, 8), (2, 4, 8), (2, -1, 0)),
        ((2, 3, 4, 8), (1, 2, 2, 8), (1, 2, 3, 4)),
        ((20, 32), (8, 16), (40, 0)),
    ],
)
def test_a_box_is_loaded_and_stored(
    shape: tuple[int, ...], box: tuple[int, ...], corner: tuple[int, ...]
) -> None:
    size = int(np.prod(box))
    x, y, z = buffer(1, F32, shape), buffer(0, F32, (size,)), buffer(2, F32, shape)
    tile, full = alloc(AddrSpace.SHARED, F32, size), mbarriers(1)
    start = [idx(n) for n in corner]
    c = Cursor()
    init(c, (full, 1))
    with c.when((LANE < 1) & (WARP < 1)):
        c.arrive(full.index(0), size * 4)
        c.bulk_load(tile.index(0), tensor_map(x, box), full.index(0), *start)
    c.wait(full.index(0), 0)
    with c.loop(range_(-(-size // 128), 3)) as k:
        element = k * 128 + WARP * 32 + LANE
        with c.when(element < size):
            c.store(y.index(element), c.load(tile.index(element)))
    with c.when((LANE < 1) & (WARP < 1)):
        c.bulk_store(tensor_map(z, box), tile.index(0), *start)
        c.commit(Engine.BULK)
        c.wait_group(Engine.BULK)
    data = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    got = result(c, {1: data, 2: np.full(shape, -1, np.float32)})
    want = boxes(shape, box, corner)
    assert_same(got[0].reshape(box), want)
    back = np.full(shape, -1, np.float32)
    for place in itertools.product(*map(range, box)):
        there = tuple(a + b for a, b in zip(place, corner, strict=True))
        if all(0 <= t < n for t, n in zip(there, shape, strict=True)):
            back[there] = want[place]
    assert_same(got[2], back)


def test_strides_of_a_map_skip_elements() -> None:
    x, y = buffer(1, F32, (64,)), buffer(0, F32, (8,))
    tile, full = alloc(AddrSpace.SHARED, F32, 8), mbarriers(1)
    c = Cursor()
    init(c, (full, 1))
    with c.when((LANE < 1) & (WARP < 1)):
        c.arrive(full.index(0), 32)
        view = tensor_map(x, (2, 4), 0, (3, 8), (16,))
        c.bulk_load(tile.index(0), view, full.index(0), idx(1), idx(4))
    c.wait(full.index(0), 0)
    with c.when((WARP < 1) & (LANE < 8)):
        c.store(y.index(LANE), c.load(tile.index(LANE)))
    got = result(c, {1: np.arange(64, dtype=np.float32)})[0]
    assert got.tolist() == [20, 21, 22, 23, 36, 37, 38, 39]


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzled_tile_is_read_through_the_same_pattern(swizzle: int) -> None:
    rows, columns = 16, swizzle // 2
    x, y = buffer(1, F16, (rows, columns)), buffer(0, F16, (rows, columns))
    pad = alloc(AddrSpace.SHARED, F16, 100, 3)  # the tile does not begin at address 0
    tile, full = alloc(AddrSpace.SHARED, F16, rows * columns), mbarriers(1)
    shared = layouts.SharedTile(rows, columns, 2, swizzle)
    c = Cursor()
    c.store(pad.index(LANE), 1.0)
    init(c, (full, 1))
    with c.when((LANE < 1) & (WARP < 1)):
        c.arrive(full.index(0), rows * columns * 2)
        view = tensor_map(x, (rows, columns), swizzle)
        c.bulk_load(tile.index(0), view, full.index(0), idx(0), idx(0))
    c.wait(full.index(0), 0)
    thread = WARP * 32 + LANE
    with c.loop(range_(rows * columns // 128, 3)) as k:
        row, column = (k * 128 + thread) // columns, (k * 128 + thread) % columns
        c.store(y.index(row, column), c.load(tile.index(shared.index(row, column))))
    data = np.arange(rows * columns, dtype=np.float16).reshape(rows, columns)
    assert_same(result(c, {1: data})[0], data)
    moved = shared.index(np.arange(rows)[:, None], np.arange(columns)[None, :])
    assert (moved != np.arange(rows * columns).reshape(rows, columns)).any()


def test_what_bulk_copies_refuse() -> None:
    x, y = buffer(1, F32, (8, 32)), buffer(0, F32, (128,))
    tile, full = alloc(AddrSpace.SHARED, F32, 300), mbarriers(1)
    view = tensor_map(x, (8, 32))
    for guard, at, why in (
        (LANE < 2, 0, "2 lanes of warp 0 ask for one bulk copy"),
        (LANE < 1, 4, "begins 16 bytes into its memory; bulk copies want a multiple of 128"),
        (LANE < 1, 64, r"index 300 is outside s0\[.*f32 memory of 300"),
    ):
        c = Cursor()
        init(c, (full, 1))
        c.store(y.index(WARP * 32 + LANE), 0.0)
        with c.when(guard & (WARP < 1)):
            c.arrive(full.index(0), 1024)
            c.bulk_load(tile.index(WARP + at), view, full.index(0), idx(0), idx(0))
        with pytest.raises((SpecError, OutOfBoundsError), match=f"COPY at .*{why}"):
            run(c.sink(), {1: np.zeros((8, 32), np.float32)})


# ---- mbarriers
def test_phases_of_an_mbarrier() -> None:
    y, full = buffer(0, F32, (128,)), mbarriers(2)
    c = Cursor()
    init(c, (full, 32))
    c.wait(full.index(1), 1)  # before any arrival: the phase before the first has ended
    with c.loop(range_(3, 3)) as k:
        with c.when(WARP.eq(2)):
            c.arrive(full.index(0))
        c.wait(full.index(0), k % 2)
    c.store(y.index(WARP * 32 + LANE), 1.0)
    assert result(c, {})[0].tolist() == [1.0] * 128


def test_a_wait_that_never_ends() -> None:
    y, full = buffer(0, F32, (128,)), mbarriers(1)
    c = Cursor()
    init(c, (full, 33))
    c.store(y.index(WARP * 32 + LANE), 1.0)
    with c.when(WARP < 1):
        c.arrive(full.index(0))
    c.wait(full.index(0), 0)
    why = r"the kernel waits at the WAIT at test_engines\.py:\d+, and nothing else can go on"
    with pytest.raises(SpecError, match=why):
        result(c, {})


def test_an_mbarrier_that_this_block_did_not_initialise() -> None:
    full = mbarriers(1)
    c = Cursor()
    with c.when((LANE < 1) & BLOCK.eq(0)):
        c.init(full.index(0), 1)
    c.wait(full.index(0), 1)
    with pytest.raises(SpecError, match=r"WAIT at .*b0\[0\] was not initialised"):
        run(c.sink(), {})


# ---- roles
def ring(steps: int, stages: int, swap: bool) -> UOp:
    """A producer fills a ring of stages, consumers sum them: full and empty mbarriers."""
    x, y = buffer(1, F32, (3, steps, 32)), buffer(0, F32, (3, 96))
    tile = alloc(AddrSpace.SHARED, F32, stages * 32)
    full, empty = mbarriers(stages), mbarriers(stages, 1)
    acc = alloc(AddrSpace.REG)
    c = Cursor()
    init(c, (full, 1), (empty, 96))

    def produce() -> None:
        with c.role("producer", 0, 1), c.when(LANE < 1), c.loop(range_(steps, 5)) as k:
            stage = k % stages
            c.wait(empty.index(stage), 1 - k // stages % 2)
            c.arrive(full.index(stage), 128)
            c.bulk_load(
                tile.index(stage * 32), tensor_map(x, (1, 1, 32)), full.index(stage),
                BLOCK, k, idx(0),
            )  # fmt: skip

    def consume() -> None:
        with c.role("consumer", 1, 3):
            c.store(acc.index(0), 0.0)
            with c.loop(range_(steps, 6)) as k:
                stage = k % stages
                c.wait(full.index(stage), k // stages % 2)
                value = c.load(tile.index(stage * 32 + LANE))
                c.store(acc.index(0), c.load(acc.index(0)) + value)
                c.arrive(empty.index(stage))
            c.store(y.index(BLOCK, (WARP - 1) * 32 + LANE), c.load(acc.index(0)))

    for role in (consume, produce) if swap else (produce, consume):
        role()
    return c.sink()


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(("steps", "stages"), [(1, 1), (2, 2), (7, 2), (9, 3)])
def test_roles_take_turns(steps: int, stages: int, swap: bool) -> None:
    kernel = ring(steps, stages, swap)
    check(kernel, Stage.LOOPS, gpu=True)
    data = np.arange(3 * steps * 32, dtype=np.float32).reshape(3, steps, 32)
    want = np.tile(data.sum(1), (1, 3)).astype(np.float32)
    assert_same(run(kernel, {1: data})[0], want)


def test_roles_that_wait_for_each_other() -> None:
    y, one, two = buffer(0, F32, (128,)), mbarriers(1), mbarriers(1, 1)
    c = Cursor()
    init(c, (one, 32), (two, 32))
    c.store(y.index(WARP * 32 + LANE), 0.0)
    for name, first, mine, other in (("a", 0, one, two), ("b", 1, two, one)):
        with c.role(name, first, 1):
            c.wait(other.index(0), 0)
            c.arrive(mine.index(0))
    why = r"the role a waits at the WAIT at .*, the role b waits .*emulate it"
    with pytest.raises(SpecError, match=why):
        result(c, {})


def test_roles_meet_at_named_barriers() -> None:
    y, tile = buffer(0, F32, (32,)), alloc(AddrSpace.SHARED, F32, 32)
    c = Cursor()
    c.store(tile.index(LANE), 0.0)
    c.barrier()
    with c.role("reader", 3, 1):
        c.named_barrier(idx(1), 64)
        c.store(y.index(LANE), c.load(tile.index(LANE)))
    with c.role("writer", 1, 1):
        c.store(tile.index(LANE), LANE.cast(F32))
        c.named_barrier(idx(1), 64)
    assert WARP not in c.sink().toposort()
    c.store(buffer(2, F32, (128,)).index(WARP * 32 + LANE), 1.0)
    assert result(c, {})[0].tolist() == list(range(32))


def test_what_follows_roles_waits_for_them() -> None:
    y, tile = buffer(0, F32, (128,)), alloc(AddrSpace.SHARED, F32, 32)
    c = Cursor()
    c.store(tile.index(LANE), 0.0)
    c.barrier()
    for name, first in (("a", 0), ("b", 2)):
        with c.role(name, first, 1), c.loop(range_(4, 5 + first)) as k:
            c.store(tile.index(first * 4 + k), 1.0 + first)
    c.barrier()
    c.store(y.index(WARP * 32 + LANE), c.load(tile.index(LANE)))
    got = result(c, {})[0].reshape(4, 32)[3]
    assert got.tolist() == [1] * 4 + [0] * 4 + [3] * 4 + [0] * 20


def test_roles_with_common_warps_go_one_after_another() -> None:
    y, acc = buffer(0, F32, (128,)), alloc(AddrSpace.REG)
    c = Cursor()
    c.store(acc.index(0), 1.0)
    for name, first, warps in (("a", 0, 3), ("b", 2, 2)):
        with c.role(name, first, warps):
            c.store(acc.index(0), c.load(acc.index(0)) * 3.0 + first)
    c.barrier()
    c.store(y.index(WARP * 32 + LANE), c.load(acc.index(0)))
    kernel = c.sink()
    assert {u.op for u in kernel.src} == {Ops.END, Ops.STORE}
    assert run(kernel, {})[0].reshape(4, 32)[:, 0].tolist() == [3, 3, 11, 5]

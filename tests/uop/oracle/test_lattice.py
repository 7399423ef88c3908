"""INDEXED and MAPPED kernels: loads, stores, closers, memories of STAGEs, lanes of SHUFFLEs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.helpers import assert_same, random_array, reduce_over
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.uop.node import UOp, alu, buffer, range_, sink
from uopc.uop.ops import (
    AxisType,
    Combine,
    LaunchArg,
    Ops,
    RangeArg,
    ReduceArg,
    ShuffleArg,
    StageArg,
)
from uopc.uop.oracle import ConflictError, OutOfBoundsError, evaluate, run
from uopc.uop.spec import Stage, check

F32, I32 = dtypes.f32, dtypes.i32
YES = UOp.const(True)
ZERO = UOp.const(0, dtypes.index)


def digit(axis: int, size: int, name: str, kind: AxisType) -> UOp:
    return UOp(Ops.RANGE, (), RangeArg(axis, size, kind, name))


def local(axis: int, size: int) -> UOp:
    return digit(axis, size, "l", AxisType.LOCAL)


def upcast(axis: int, size: int) -> UOp:
    return digit(axis, size, "u", AxisType.UPCAST)


def stage(value: UOp, write: UOp, read: UOp, *ranges: UOp, space: AddrSpace, size: int) -> UOp:
    arg = StageArg(space, size, exchange=space is AddrSpace.SHARED)
    return UOp(Ops.STAGE, (value, write, read, YES, *ranges), arg)


# ---- INDEXED
def test_softmax_equals_the_body_bit_for_bit(rng: np.random.Generator) -> None:
    n, m = 5, 33
    x, out, i, j = buffer(1, F32, (n, m)), buffer(0, F32, (n, m)), range_(n, 0), range_(m, 1)
    v = x.index(i, j).load()
    e = (v - reduce_over(v, j, combine=Combine.MAX)).exp()
    kernel = sink(out.index(i, j).store(e / reduce_over(e, j)).end(i, j))
    check(kernel, Stage.INDEXED)
    e2 = (x - x.reduce(Ops.MAX).reshape((n, 1)).expand((n, m))).exp()
    body = e2 / e2.reduce(Ops.ADD).reshape((n, 1)).expand((n, m))
    a = rng.standard_normal((n, m)).astype(np.float32)
    assert_same(run(kernel, {1: a})[0], evaluate(body, {1: a}))


def test_product_of_integers(rng: np.random.Generator) -> None:
    a, b = random_array(rng, I32, (3, 4)), random_array(rng, I32, (4, 5))
    (i, j), k = (range_(3, 0), range_(5, 1)), range_(4, 2, AxisType.REDUCE)
    value = buffer(1, I32, (3, 4)).index(i, k).load() * buffer(2, I32, (4, 5)).index(k, j).load()
    kernel = sink(buffer(0, I32, (3, 5)).index(i, j).store(reduce_over(value, k)).end(i, j))
    assert_same(run(kernel, {1: a, 2: b})[0], a @ b)


def test_argmax_reduces_a_tuple() -> None:
    x = np.array([[3, 7, 7], [math.nan, 1, math.nan]], np.float32)
    i, j = range_(2, 0), range_(3, 1, AxisType.REDUCE)
    both = UOp(Ops.TUPLE, (buffer(1, F32, (2, 3)).index(i, j).load(), j.cast(I32)))
    best = reduce_over(both, j, combine=Combine.ARGMAX)
    kernel = sink(
        buffer(0, I32, (2,)).index(i).store(best.item(1)).end(i),
        buffer(2, F32, (2,)).index(i).store(best.item(0)).end(i),
    )
    got = run(kernel, {1: x})
    assert got[0].tolist() == [1, 0]
    assert got[2][0] == 7 and math.isnan(got[2][1])


def test_a_reduction_counts_ranges_that_its_value_does_not_mention() -> None:
    i, j = range_(3, 0), range_(5, 1, AxisType.REDUCE)
    kernel = sink(buffer(0, I32, (3,)).index(i).store(reduce_over(i.cast(I32), j)).end(i))
    assert run(kernel, {})[0].tolist() == [0, 5, 10]


def test_ranges_start_and_step() -> None:
    i = range_(3, 0, start=5, step=-2)
    kernel = sink(buffer(0, I32, (3,)).index((i - 1) // 2).store(i.cast(I32)).end(i))
    assert run(kernel, {})[0].tolist() == [1, 3, 5]


def test_gates_touch_nothing() -> None:
    i = range_(6, 0)
    x, out = buffer(1, F32, (4,)), buffer(0, F32, (4,))
    inside = i < 4
    kernel = sink(out.index(i).store(x.index(i).load(inside, 9.0), inside).end(i))
    assert run(kernel, {1: np.arange(4, dtype=np.float32)})[0].tolist() == [0, 1, 2, 3]
    padded = sink(buffer(0, F32, (6,)).index(i).store(x.index(i).load(inside, 9.0)).end(i))
    assert run(padded, {1: np.zeros(4, np.float32)})[0].tolist() == [0, 0, 0, 0, 9, 9]


def test_out_of_bounds_names_memory_index_and_iteration() -> None:
    i, j = range_(3, 0), range_(4, 1)
    x, out = buffer(1, F32, (11,)), buffer(0, F32, (12,))
    kernel = sink(out.index(i * 4 + j).store(x.index(i * 4 + j).load()).end(i, j))
    with pytest.raises(
        OutOfBoundsError, match=r"^LOAD at test_lattice.py:\d+: index 11 is outside"
    ) as e:
        run(kernel, {1: np.zeros(11, np.float32)})
    assert isinstance(e.value, IndexError)
    assert "p1[r0*4 + r1], f32 memory of 11 elements (at r0 = 2, r1 = 3)" in str(e.value)
    with pytest.raises(OutOfBoundsError, match=r"STORE .* index -1 is outside p0"):
        run(sink(out.index(i - 1).store(1.0).end(i)), {})


def test_two_writers_of_one_element() -> None:
    i = range_(4, 0)
    out = buffer(0, I32, (2,))
    with pytest.raises(ConflictError, match="two writers give different values to element 0"):
        run(sink(out.index(i // 2).store(i.cast(I32)).end(i)), {})
    same = sink(out.index(i // 2).store((i // 2).cast(I32)).end(i))
    assert run(same, {})[0].tolist() == [0, 1]
    nan = sink(buffer(0, F32, (1,)).index(0).store(float("nan")).end(i))
    assert math.isnan(run(nan, {})[0][0])


def test_arrays_are_copied_and_loads_come_before_stores() -> None:
    i = range_(4, 0)
    x = buffer(0, I32, (4,))
    kernel = sink(x.index(3 - i).store(x.index(i).load()).end(i))
    given = np.arange(4, dtype=np.int32).reshape(2, 2)
    got = run(kernel, {0: given}, Stage.INDEXED)
    assert got[0].tolist() == [[3, 2], [1, 0]] and given.tolist() == [[0, 1], [2, 3]]


def test_what_nobody_stores_is_garbage() -> None:
    i = range_(2, 0)
    assert np.isnan(run(sink(buffer(0, F32, (3,)).index(i).store(1.0).end(i)), {})[0][2])
    ints = run(sink(buffer(0, dtypes.u8, (3,)).index(i).store(1).end(i)), {})[0]
    assert ints.tolist() == [1, 1, 255]


def test_scalars_are_parameters() -> None:
    i = range_(2, 0)
    kernel = sink(buffer(0, F32, (2,)).index(i).store(buffer(1, F32, ()) * 2.0).end(i))
    assert run(kernel, {1: np.float32(4)})[0].tolist() == [8, 8]
    with pytest.raises(UsageError, match=r"slot 1 .* is read"):
        run(kernel, {})


# ---- MAPPED
def test_shared_tile_exchanges_digits() -> None:
    """Thread (l0, l1) fills row-major and reads column-major; blocks have tiles of their own."""
    g, a, b = digit(0, 2, "g", AxisType.GLOBAL), local(0, 3), local(1, 4)
    x, out = buffer(1, I32, (2, 3, 4)), buffer(0, I32, (2, 12))
    value = x.index(g, a, b).load()
    tile = stage(value, a * 4 + b, b * 3 + a, space=AddrSpace.SHARED, size=12)
    kernel = sink(out.index(g * 12 + a * 4 + b).store(tile))
    check(kernel, Stage.MAPPED)
    data = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    linear = data.reshape(2, 12)
    want = [[linear[h, j * 3 + i] for i in range(3) for j in range(4)] for h in range(2)]
    assert run(kernel, {1: data})[0].tolist() == want


def test_register_stage_keeps_what_a_thread_loaded() -> None:
    thread, u, w = local(0, 4), upcast(1, 3), upcast(2, 3)
    x = buffer(1, I32, (4, 3))
    kept = stage(x.index(thread, u).load(), u, 2 - w, u, space=AddrSpace.REG, size=3)
    kernel = sink(buffer(0, I32, (4, 3)).index(thread, w).store(kept).end(w))
    check(kernel, Stage.MAPPED)
    data = np.arange(12, dtype=np.int32).reshape(4, 3)
    assert run(kernel, {1: data})[0].tolist() == data[:, ::-1].tolist()


def test_stage_of_several_values() -> None:
    u = upcast(0, 3)
    both = UOp(Ops.TUPLE, (u.cast(F32) * 0.5, u.cast(I32)))
    kept = stage(both, u, ZERO + 2, u, space=AddrSpace.REG, size=3)
    out = sink(
        buffer(0, F32, (1,)).index(0).store(kept.item(0)),
        buffer(1, I32, (1,)).index(0).store(kept.item(1)),
    )
    got = run(out, {})
    assert got[0].tolist() == [1.0] and got[1].tolist() == [2]


def test_a_stage_is_garbage_where_nothing_was_written_and_checks_addresses() -> None:
    thread = local(0, 4)
    out = buffer(0, F32, (4,))

    def kernel(write: UOp, size: int, gate: UOp = YES) -> UOp:
        arg = StageArg(AddrSpace.SHARED, size, exchange=True)
        value = UOp(Ops.STAGE, (thread.cast(F32), write, thread, gate), arg)
        return sink(out.index(thread).store(value))

    got = run(kernel(thread, 4, thread < 2), {})[0]
    assert got[:2].tolist() == [0, 1] and np.isnan(got[2:]).all()
    with pytest.raises(OutOfBoundsError, match=r"STAGE .* index 3 is outside"):
        run(kernel(thread, 3), {})
    with pytest.raises(ConflictError, match="two writers"):
        run(kernel(ZERO, 4), {})


@pytest.mark.parametrize("lanes", [(), (0,), (1, 0)])
def test_shuffle_follows_the_order_of_threads(lanes: tuple[int, ...]) -> None:
    a, b = local(0, 4), local(1, 8)
    x, out = buffer(1, I32, (4, 8)), buffer(0, I32, (4, 8))
    value = UOp(Ops.SHUFFLE, (x.index(a, b).load(),), ShuffleArg(5))
    kernel = sink(out.index(a, b).store(value), launch=LaunchArg(lanes))
    check(kernel, Stage.MAPPED)
    data = np.arange(32, dtype=np.int32).reshape(4, 8)
    first_axis_fastest = lanes == (0,)
    flat = (data.T if first_axis_fastest else data).reshape(-1)
    moved = flat[np.arange(32) ^ 5]
    want = moved.reshape(8, 4).T if first_axis_fastest else moved.reshape(4, 8)
    assert_same(run(kernel, {1: data})[0], np.ascontiguousarray(want))


def test_butterflies_sum_a_warp_and_stay_inside_it() -> None:
    thread = local(0, 64)
    value = buffer(1, I32, (64,)).index(thread).load()
    for mask in (16, 8, 4, 2, 1):
        value = value + UOp(Ops.SHUFFLE, (value,), ShuffleArg(mask))
    kernel = sink(buffer(0, I32, (64,)).index(thread).store(value))
    data = np.arange(64, dtype=np.int32)
    want = np.repeat(data.reshape(2, 32).sum(1), 32)
    assert_same(run(kernel, {1: data})[0], want.astype(np.int32))


def test_shuffle_from_a_lane_that_is_not_there() -> None:
    thread = local(0, 40)
    value = UOp(Ops.SHUFFLE, (thread.cast(I32),), ShuffleArg(16))
    kernel = sink(buffer(0, I32, (40,)).index(thread).store(value))
    with pytest.raises(
        OutOfBoundsError, match=r"thread 32 reads lane 0 \^ 16, the block has 40 threads"
    ):
        run(kernel, {})


def test_reductions_over_threads_before_they_cooperate() -> None:
    k, u, thread = digit(0, 3, "k", AxisType.REDUCE), upcast(0, 2), local(0, 4)
    x = buffer(1, F32, (24,))
    at = (k * 2 + u) * 4 + thread
    safe = (at < 23).where(x.index(at).load(at < 23), 0.0)
    total = UOp(Ops.REDUCE, (safe, k, u, thread), ReduceArg(Combine.ADD))
    gate = thread.eq(0)
    kernel = sink(buffer(0, F32, (1,)).index(0).store(total, gate))
    check(kernel, Stage.MAPPED)
    data = np.arange(24, dtype=np.float32)
    assert run(kernel, {1: data})[0].tolist() == [float(data[:23].sum())]


def test_a_value_that_repeats_along_many_ranges() -> None:
    ranges = [range_(2, n) for n in range(12)]
    at = ZERO
    for r in ranges:
        at = at * 2 + r
    total = reduce_over(alu(Ops.ADD, at.cast(I32), 1), *ranges)
    kernel = sink(buffer(0, I32, (1,)).index(0).store(total))
    assert run(kernel, {})[0].tolist() == [4096 * 4097 // 2]

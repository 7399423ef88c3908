"""IFs, lanes that work together, atomics and barriers, against plain numpy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import alloc, assert_same
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.numbers import Array
from uopc.uop.ops import ALL_LANES, Atomic, AxisType, Combine, Fence, ShuffleMode, Vote
from uopc.uop.oracle import AssertedError, OutOfBoundsError, WarpError, run
from uopc.uop.spec import Stage, check

F32, I32, U32 = dtypes.f32, dtypes.i32, dtypes.u32
BLOCK, WARP, LANE = (
    range_(2, 2, AxisType.GLOBAL),
    range_(2, 1, AxisType.WARP),
    range_(32, 0, AxisType.LANE),
)
THREAD = (BLOCK * 2 + WARP) * 32 + LANE
N = 128


def data(seed: int = 0, dtype: DType = I32) -> Array:
    return np.random.default_rng(seed).integers(0, 100, N).astype(dtype.numpy)


def of_value(make: Callable[[UOp], UOp], x: Array, dtype: DType = I32) -> Array:
    """What each thread gets: make(x[thread])."""
    source = buffer(1, dtype, (N,))
    value = make(source.index(THREAD).load())
    c = Cursor()
    c.store(buffer(0, value.dtype, (N,)).index(THREAD), value)
    kernel = c.sink()
    check(kernel, Stage.LOOPS, gpu=True)
    got: Array = run(kernel, {1: x})[0]
    return got


def by_lane(x: Array, givers: list[int]) -> Array:
    return x.reshape(-1, 32)[:, givers].reshape(-1)


# ---- shuffles, votes, reductions
@pytest.mark.parametrize("by", [1, 5, 16, 31])
def test_shuffles(by: int) -> None:
    x = data()
    lanes = range(32)
    for mode, givers in (
        (ShuffleMode.XOR, [n ^ by for n in lanes]),
        (ShuffleMode.UP, [n - by if n >= by else n for n in lanes]),
        (ShuffleMode.DOWN, [n + by if n + by < 32 else n for n in lanes]),
    ):
        got = of_value(partial(UOp.shuffle, by=by, mode=mode), x)
        assert_same(got, by_lane(x, givers))


def test_shuffle_by_index_takes_it_modulo_32() -> None:
    x = data()
    got = of_value(lambda v: v.shuffle(0, ShuffleMode.INDEX, LANE * 3 + 5), x)
    assert_same(got, by_lane(x, [(n * 3 + 5) % 32 for n in range(32)]))


def votes_of(v: UOp, vote: Vote) -> UOp:
    return (v > 50).vote(vote)


def test_votes() -> None:
    x = data()
    x[32:64] = 200
    rows = (x > 50).reshape(-1, 32)
    for vote, want in (
        (Vote.ANY, rows.any(1)),
        (Vote.ALL, rows.all(1)),
        (Vote.BALLOT, (rows << np.arange(32, dtype=np.uint64)).sum(1).astype(np.uint32)),
    ):
        got = of_value(partial(votes_of, vote=vote), x)
        assert_same(got, np.repeat(want, 32))


@pytest.mark.parametrize(
    ("dtype", "combine"),
    [
        *((d, c) for d in (I32, U32) for c in (Combine.ADD, Combine.MIN, Combine.MAX)),
        *((U32, c) for c in (Combine.AND, Combine.OR, Combine.XOR)),
    ],
)
def test_warp_reductions_wrap(dtype: DType, combine: Combine) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(dtype.min, dtype.max, N, dtype=dtype.numpy, endpoint=True)
    two: Callable[[int, int], int] = {
        Combine.ADD: operator.add,
        Combine.MIN: lambda a, b: min(a, b),
        Combine.MAX: lambda a, b: max(a, b),
        Combine.AND: operator.and_,
        Combine.OR: operator.or_,
        Combine.XOR: operator.xor,
    }[combine]
    totals = [dtype.wrap(reduce(two, map(int, row))) for row in x.reshape(-1, 32)]
    got = of_value(partial(UOp.warp_reduce, combine=combine), x, dtype)
    assert_same(got, np.repeat(np.array(totals, dtype.numpy), 32))


# ---- conditions
def test_only_lanes_whose_condition_holds_store_and_load() -> None:
    x, y = buffer(1, I32, (40,)), buffer(0, I32, (N,))
    c = Cursor()
    c.store(y.index(THREAD), -1)
    with c.when(THREAD < 40):
        c.store(y.index(THREAD), c.load(x.index(THREAD)) * 2)  # out of bounds for the others
        with c.when(LANE < 3):
            c.store(y.index(THREAD), 7)
    kernel = c.sink()
    check(kernel, Stage.LOOPS, gpu=True)
    given_ = np.arange(40, dtype=np.int32)
    want = np.full(N, -1, np.int32)
    want[:40] = given_ * 2
    want[[0, 1, 2, 32, 33, 34]] = 7
    assert_same(run(kernel, {1: given_})[0], want)


def test_a_condition_inside_a_loop_and_a_loop_inside_a_condition() -> None:
    y = buffer(0, I32, (N,))
    acc = alloc(AddrSpace.REG, I32)
    c = Cursor()
    c.store(acc.index(0), 0)
    with c.loop(range_(5, 3)) as i, c.when(i < LANE), c.loop(range_(3, 4)) as k:
        c.store(acc.index(0), c.load(acc.index(0)) + (i * 10 + k).cast(I32))
    c.store(y.index(THREAD), c.load(acc.index(0)))
    want = [sum(i * 10 + k for i in range(min(5, n)) for k in range(3)) for n in range(32)]
    assert run(c.sink(), {})[0].tolist() == want * 4


def test_gates_and_conditions_together() -> None:
    x, y = buffer(1, I32, (8,)), buffer(0, I32, (N,))
    c = Cursor()
    c.store(y.index(THREAD), 0)
    with c.when(BLOCK.eq(1)):
        value = c.load(x.index(LANE), LANE < 8, 5)
        c.store(y.index(THREAD), value, LANE < 16)
    got = run(c.sink(), {1: np.arange(8, dtype=np.int32)})[0].reshape(4, 32)
    row = [*range(8), *[5] * 8, *[0] * 16]
    assert got.tolist() == [[0] * 32, [0] * 32, row, row]


def test_lanes_of_a_condition_shuffle_among_themselves() -> None:
    y = buffer(0, I32, (N,))
    c = Cursor()
    c.store(y.index(THREAD), -1)
    with c.when(LANE < 16):
        c.store(y.index(THREAD), c.now(LANE.cast(I32)).shuffle(8, members=0xFFFF))
    kernel = c.sink()
    row = [*(n ^ 8 for n in range(16)), *[-1] * 16]
    assert run(kernel, {})[0].tolist() == row * 4


@pytest.mark.parametrize(
    ("members", "by", "why"),
    [
        (ALL_LANES, 1, r"lane 16 of warp 0 of block 0 is a member and not here"),
        (0xFF, 1, r"lane 8 of warp 0 of block 0 is here and no member"),
        (0xFFFF, 16, r"lane 0 of warp 0 of block 0 reads lane 16, which takes no part"),
    ],
)
def test_lanes_that_do_not_meet(members: int, by: int, why: str) -> None:
    c = Cursor()
    with c.when(LANE < 16):
        moved = c.now(LANE.cast(I32)).shuffle(by, members=members)
        c.store(buffer(0, I32, (N,)).index(THREAD), moved)
    with pytest.raises(WarpError, match=rf"SHUFFLE at test_warps.py:\d+: {why}"):
        run(c.sink(), {})


def test_warps_need_not_be_whole() -> None:
    t = range_(48, 0, AxisType.LOCAL)
    y = buffer(0, I32, (48,))
    c = Cursor()
    c.store(y.index(t), t.cast(I32).shuffle(8))
    got = run(c.sink(), {}, Stage.LOOPS)[0]
    assert got.tolist() == [n ^ 8 for n in range(48)]
    c = Cursor()
    c.store(y.index(t), t.cast(I32).shuffle(16))
    with pytest.raises(OutOfBoundsError, match="thread 32 reads lane 16, the block has 48 threads"):
        run(c.sink(), {}, Stage.LOOPS)
    c = Cursor()
    c.store(y.index(t), (t < 40).vote(Vote.ALL).where(1, 0))
    assert run(c.sink(), {})[0].tolist() == [1] * 32 + [0] * 16


# ---- atomics
INTS = (I32, U32, dtypes.i64, dtypes.u64)


@given(st.data())
def test_integer_atomics_are_exact_and_wrap(data_: st.DataObject) -> None:
    dtype = data_.draw(st.sampled_from(INTS))
    how = data_.draw(st.sampled_from(list(Atomic)))
    if how is Atomic.ADD and dtype is dtypes.i64:
        return
    rng = np.random.default_rng(data_.draw(st.integers(0, 1000)))
    low, high = dtype.min, dtype.max
    x = rng.integers(low, high, N, dtype=dtype.numpy, endpoint=True)
    place = rng.integers(0, 5, N).astype(np.int64)
    start = rng.integers(low, high, 5, dtype=dtype.numpy, endpoint=True)
    if how is Atomic.CAS:
        start[:] = x[:5]
    kernel = atomic_kernel(how, dtype)
    got = run(kernel, {0: start.copy(), 1: x, 2: place, 3: x[::-1].copy()})
    want, old = start.copy(), np.zeros(N, dtype.numpy)
    for n in range(N):
        p = place[n]
        old[n] = want[p]
        want[p] = change(how, dtype, int(want[p]), int(x[n]), int(x[N - 1 - n]))
    assert_same(got[0], want)
    assert_same(got[4], old)


def atomic_kernel(how: Atomic, dtype: DType) -> UOp:
    memory, x, place = (
        buffer(0, dtype, (5,)),
        buffer(1, dtype, (N,)),
        buffer(2, dtypes.i64, (N,)),
    )
    compare = buffer(3, dtype, (N,)).index(THREAD).load() if how is Atomic.CAS else None
    c = Cursor()
    at = place.index(THREAD).load().cast(dtypes.index)
    old = c.atomic(how, memory.index(at), x.index(THREAD).load(), compare)
    c.store(buffer(4, dtype, (N,)).index(THREAD), old)
    kernel = c.sink()
    check(kernel, Stage.LOOPS, gpu=True)
    return kernel


def change(how: Atomic, dtype: DType, old: int, x: int, compare: int) -> int:
    return {
        Atomic.ADD: lambda: dtype.wrap(old + x),
        Atomic.MIN: lambda: min(old, x),
        Atomic.MAX: lambda: max(old, x),
        Atomic.AND: lambda: old & x,
        Atomic.OR: lambda: old | x,
        Atomic.XOR: lambda: old ^ x,
        Atomic.EXCHANGE: lambda: x,
        Atomic.CAS: lambda: x if old == compare else old,
    }[how]()


def test_float_atomics_add_in_the_order_of_lanes() -> None:
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(N) * 10.0 ** rng.integers(-4, 4, N)).astype(np.float32)
    c = Cursor()
    c.atomic(Atomic.ADD, buffer(0, F32, (1,)).index(0), buffer(1, F32, (N,)).index(THREAD).load())
    want = np.float32(0)
    for v in x:
        want += v
    assert run(c.sink(), {0: np.zeros(1, np.float32), 1: x})[0][0] == want


def test_compare_and_swap_compares_bits() -> None:
    start = np.array([0.0, -0.0, np.nan], np.float32)
    c = Cursor()
    lane = range_(3, 0, AxisType.LOCAL)
    m = buffer(0, F32, (3,))
    c.atomic(Atomic.CAS, m.index(lane), 5.0, buffer(1, F32, (3,)).index(lane).load())
    got = run(c.sink(), {0: start, 1: np.array([-0.0, -0.0, np.nan], np.float32)})[0]
    assert_same(got, np.array([0.0, 5.0, 5.0], np.float32))


def test_only_active_lanes_do_atomics() -> None:
    c = Cursor()
    count = alloc(AddrSpace.SHARED, I32)
    with c.when(LANE.eq(0) & WARP.eq(0)):
        c.store(count.index(0), 0)
    c.barrier()
    with c.when((LANE % 3).eq(0)):
        c.atomic(Atomic.ADD, count.index(0), 1)
    c.barrier()
    c.store(buffer(0, I32, (N,)).index(THREAD), c.load(count.index(0)))
    assert run(c.sink(), {})[0].tolist() == [22] * N


def test_atomics_are_checked() -> None:
    c = Cursor()
    c.atomic(Atomic.ADD, buffer(0, I32, (5,)).index(LANE), 1)
    with pytest.raises(OutOfBoundsError, match=r"ATOMIC at .*index 5 is outside p0\[.*r0 = 5"):
        run(c.sink(), {0: np.zeros(5, np.int32)})


# ---- barriers
@pytest.mark.parametrize("named", [False, True])
def test_barriers_that_not_all_threads_reach(named: bool) -> None:
    c = Cursor()
    c.store(buffer(0, I32, (N,)).index(THREAD), 1)
    with c.when(WARP.eq(0)):
        if named:
            c.named_barrier(UOp.const(2, dtypes.index), 64)
        else:
            c.barrier()
    why = r"the kernel waits at the BARRIER at test_warps.py:\d+, and nothing else can go on"
    with pytest.raises(SpecError, match=why):
        run(c.sink(), {})


def test_named_barriers_of_some_warps() -> None:
    y = buffer(0, I32, (N,))
    c = Cursor()
    c.store(y.index(THREAD), 1)
    c.named_barrier(WARP + 1, 32)
    with c.when(WARP.eq(1)):
        c.named_barrier(UOp.const(3, dtypes.index), 32)
        c.syncwarp()
    c.barrier()
    c.fence(Fence.BLOCK)
    assert run(c.sink(), {})[0].tolist() == [1] * N


def test_too_many_threads_at_a_named_barrier() -> None:
    c = Cursor()
    c.named_barrier(UOp.const(1, dtypes.index), 32)
    c.store(buffer(0, I32, (N,)).index(THREAD), 1)
    with pytest.raises(SpecError, match="more threads arrive than the 32 it waits for"):
        run(c.sink(), {})


def test_a_warp_that_is_not_whole_at_syncwarp() -> None:
    c = Cursor()
    c.store(buffer(0, I32, (N,)).index(THREAD), 1)
    with c.when(LANE < 31):
        c.syncwarp()
    with pytest.raises(WarpError, match=r"BARRIER at .*lane 31 of warp 0 .*a member and not here"):
        run(c.sink(), {})


# ---- for people
def test_asserts_and_prints() -> None:
    y = buffer(0, I32, (N,))
    c = Cursor()
    c.store(y.index(THREAD), 1)
    c.printf("{} of {}", LANE, THREAD)
    with c.when(LANE < 8):
        c.check(LANE < 8, "inside")
    assert run(c.sink(), {})[0].tolist() == [1] * N
    with c.loop(range_(3, 5)) as k:
        c.check(k + LANE < 33, "too far")
    with pytest.raises(
        AssertedError, match=r"ASSERT at test_warps.py:\d+: too far \(at r5 = 2, r0 = 31"
    ):
        run(c.sink(), {})


# ---- the hardware's ranges
@pytest.mark.parametrize("stage", [None, Stage.LOOPS])
def test_warpgroups_warps_and_lanes_are_digits_of_the_thread(stage: Stage | None) -> None:
    group, warp, lane = (
        range_(n, a, k)
        for n, a, k in (
            (2, 0, AxisType.WARPGROUP),
            (4, 1, AxisType.WARP),
            (32, 2, AxisType.LANE),
        )
    )
    y = buffer(0, I32, (256,))
    c = Cursor()
    c.store(y.index((group * 4 + warp) * 32 + lane), (group * 100 + warp).cast(I32).shuffle(1))
    c.barrier()
    want = [g * 100 + w for g in range(2) for w in range(4) for _ in range(32)]
    assert run(c.sink(), {}, stage)[0].tolist() == want

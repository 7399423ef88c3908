"""Threads of a block and blocks of a grid: barriers by number, mbarriers, branches, atomics, and
what a kernel says to people."""

from __future__ import annotations

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.examples.parts import (
    BLOCK,
    WARP,
    Array,
    Example,
    blocks,
    index,
    lanes,
    loop,
    mbarriers,
    registers,
    shared,
    unwritten,
    warps,
    whole,
)
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import Atomic, AxisType, Combine, Fence

EMPTY = -1  # what a free place holds


def _threads(size: int) -> UOp:
    return range_(size, BLOCK + 1, AxisType.LOCAL)


def named_barriers(groups: int = 3, steps: int = 2) -> UOp:
    """Groups of two warps turn their 64 elements round, each with a barrier of its own number.

    Number 0 is __syncthreads; no group waits for another.  x, y (steps, groups * 64) f32.
    """
    size = 2 * WARP
    x, y = (buffer(slot, dtypes.f32, (steps, groups * size)) for slot in range(2))
    warp, lane = warps(2 * groups), lanes()
    group, thread = warp // 2, warp % 2 * WARP + lane
    tile = shared(dtypes.f32, groups * size)
    c = Cursor()
    with c.loop(loop(steps)) as step:
        c.store(tile.index(group * size + thread), c.load(x.index(step, group * size + thread)))
        c.named_barrier(group + 1, size)
        other = c.load(tile.index(group * size + (size - 1 - thread)))
        c.store(y.index(step, group * size + thread), other)
        c.named_barrier(group + 1, size)
    return c.sink()


def divergent(threads: int = 64, steps: int = 8) -> UOp:
    """How often each element can be halved, at most `steps` times: lanes go ways of their own.

    x (threads,) i32; odd (threads,) i32: what is left; count (threads,) i32.
    """
    x, odd, count = (buffer(slot, dtypes.i32, (threads,)) for slot in range(3))
    thread = _threads(threads)
    value, halved = registers(dtypes.i32, 1, 0, "value"), registers(dtypes.i32, 1, 1, "halved")
    c = Cursor()
    c.store(value.index(0), c.load(x.index(thread)))
    c.store(halved.index(0), 0)
    with c.loop(loop(steps)):
        now = c.load(value.index(0))
        with c.when((now & 1).eq(0) & now.ne(0)):
            c.store(halved.index(0), c.load(halved.index(0)) + 1)
            c.store(value.index(0), c.load(value.index(0)) >> 1)
    c.store(odd.index(thread), c.load(value.index(0)))
    c.store(count.index(thread), c.load(halved.index(0)))
    return c.sink()


def histogram(grid: int = 2, each: int = 4, bins: int = 16) -> UOp:
    """How often each value occurs: a block counts in SHARED memory, then adds to the grid's counts.

    x (grid * each * 128,) i32 of 0 to bins - 1; counts (bins,) i32, zero at first.
    """
    threads = 128
    x = buffer(0, dtypes.i32, (grid * each * threads,))
    counts, mine = buffer(1, dtypes.i32, (bins,)), shared(dtypes.i32, bins, name="counts")
    block, thread = blocks(grid), _threads(threads)
    c = Cursor()
    c.store(mine.index(thread), 0, thread < bins)
    c.barrier()
    with c.loop(loop(each)) as k:
        value = c.load(x.index((block * each + k) * threads + thread))
        c.atomic(Atomic.ADD, mine.index(value.cast(dtypes.index)), 1)
    c.barrier()
    with c.when(thread < bins):
        c.atomic(Atomic.ADD, counts.index(thread), c.load(mine.index(thread)))
    return c.sink()


def atomic_sum(grid: int = 4, dtype: DType = dtypes.f32) -> UOp:
    """Every thread adds its element to one sum, in whatever order: of floats, the last bits differ
    from run to run.

    x (grid * 64,), total (1,) that starts from something.
    """
    x, total = buffer(0, dtype, (grid * 64,)), buffer(1, dtype, (1,))
    block, thread = blocks(grid), _threads(64)
    c = Cursor()
    c.atomic(Atomic.ADD, total.index(0), c.load(x.index(block * 64 + thread)))
    return c.sink()


INTEGERS = (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)


def atomic_extremes(grid: int = 2) -> UOp:
    """The least and the largest element of four arrays, one of each integer dtype.

    i32, u32, i64, u64 in slots 0 to 3 (grid * 64,); in slots 4 to 7 (2,): where they start from.
    """
    c = Cursor()
    at = blocks(grid) * 64 + _threads(64)
    for n, d in enumerate(INTEGERS):
        value = c.load(buffer(n, d, (grid * 64,)).index(at))
        ends = buffer(4 + n, d, (2,))
        c.atomic(Atomic.MIN, ends.index(0), value)
        c.atomic(Atomic.MAX, ends.index(1), value)
    return c.sink()


def atomic_bits(grid: int = 2) -> UOp:
    """And, or, exclusive or of all elements of four arrays; wrapping sums of three of them.

    i32, u32, i64, u64 in slots 0 to 3 (grid * 64,); in slots 4 to 7 (4,): where they start from.
    """
    c = Cursor()
    at = blocks(grid) * 64 + _threads(64)
    for n, d in enumerate(INTEGERS):
        value = c.load(buffer(n, d, (grid * 64,)).index(at))
        results = buffer(4 + n, d, (4,))
        for place, atomic in enumerate((Atomic.AND, Atomic.OR, Atomic.XOR)):
            c.atomic(atomic, results.index(place), value)
        if d is not dtypes.i64:
            c.atomic(Atomic.ADD, results.index(3), value)
    return c.sink()


def exchange_and_swap(dtype: DType, threads: int = 64) -> UOp:
    """Each thread puts its element into two places of its own, and keeps what was there.

    Into the first whatever is there, into the second only where it equals `expected`.
    x, expected (threads,), first, second (threads,), was, was_second (threads,).
    """
    x, expected, first, second, was, was_second = (
        buffer(slot, dtype, (threads,)) for slot in range(6)
    )
    thread = _threads(threads)
    c = Cursor()
    value, wanted = c.load(x.index(thread)), c.load(expected.index(thread))
    c.store(was.index(thread), c.atomic(Atomic.EXCHANGE, first.index(thread), value))
    old = c.atomic(Atomic.CAS, second.index(thread), value, wanted)
    c.store(was_second.index(thread), old)
    return c.sink()


def claim(grid: int = 2, places: int = 8) -> UOp:
    """Threads claim the place that their key names; of each place's threads exactly one succeeds.

    keys (grid * 64,) i32 of 0 to places - 1; owner (places,) i32, EMPTY at first: whose it is in
    the end is a matter of luck; winners (places,) i32, zero at first.
    """
    keys = buffer(0, dtypes.i32, (grid * 64,))
    owner, winners = (buffer(slot, dtypes.i32, (places,)) for slot in (1, 2))
    me = blocks(grid) * 64 + _threads(64)
    c = Cursor()
    key = c.load(keys.index(me)).cast(dtypes.index)
    found = c.atomic(Atomic.CAS, owner.index(key), me.cast(dtypes.i32), EMPTY)
    with c.when(found.eq(EMPTY)):
        c.atomic(Atomic.ADD, winners.index(key), 1)
    return c.sink()


def last_block(grid: int = 6) -> UOp:
    """A sum over the grid in one launch: the block that finishes last adds up what all have left.

    A block stores its partial sum, fences, and draws a ticket; who draws the last one fences, and
    after that loads them all: fences on both sides of an atomic order blocks.
    x (grid * 32,) i32; partial (grid,) i32; tickets (1,) i32, zero at first; total (1,) i32.
    """
    x, partial = buffer(0, dtypes.i32, (grid * WARP,)), buffer(1, dtypes.i32, (grid,))
    tickets, total = (buffer(slot, dtypes.i32, (1,)) for slot in (2, 3))
    block, lane = blocks(grid), lanes()
    result = registers(dtypes.i32, 1, name="sum")
    c = Cursor()
    mine = c.load(x.index(block * WARP + lane)).warp_reduce(Combine.ADD)
    with c.when(lane < 1):
        c.store(partial.index(block), mine)
        c.fence(Fence.DEVICE)
        ticket = c.atomic(Atomic.ADD, tickets.index(0), 1)
        with c.when(ticket.eq(grid - 1)):
            c.fence(Fence.DEVICE)
            c.store(result.index(0), 0)
            with c.loop(loop(grid)) as k:
                c.store(result.index(0), c.load(result.index(0)) + c.load(partial.index(k)))
            c.store(total.index(0), c.load(result.index(0)))
    return c.sink()


def mbarrier_handover(steps: int = 5, depth: int = 2) -> UOp:
    """One warp fills tiles of a ring, another takes them: mbarriers instead of barriers.

    `full` of a stage counts the 32 lanes that have written it, `empty` the 32 that have read it.
    Stage and parity follow from the step; a fresh mbarrier lets a wait for parity 1 pass.
    x, y (steps, 32) i32: y is x times 3 from the lane opposite.
    """
    x, y = (buffer(slot, dtypes.i32, (steps, WARP)) for slot in range(2))
    tile = shared(dtypes.i32, depth * WARP)
    full, empty = mbarriers(depth, 0, "full"), mbarriers(depth, 1, "empty")
    warp, lane = warps(2), lanes()
    c = Cursor()
    with c.when((warp < 1) & (lane < 1)):
        for n in range(depth):
            c.init(full.index(n), WARP)
            c.init(empty.index(n), WARP)
    c.barrier()
    with c.role("producer", 0, 1), c.loop(loop(steps, 0)) as k:
        stage, parity = k % depth, k // depth % 2
        c.wait(empty.index(stage), index(1) - parity)
        c.store(tile.index(stage * WARP + lane), c.load(x.index(k, lane)) * 3)
        c.arrive(full.index(stage))
    with c.role("consumer", 1, 1), c.loop(loop(steps, 1)) as k:
        stage, parity = k % depth, k // depth % 2
        c.wait(full.index(stage), parity)
        c.store(y.index(k, lane), c.load(tile.index(stage * WARP + (WARP - 1 - lane))))
        c.arrive(empty.index(stage))
    return c.sink()


def print_lanes(grid: int = 2, threads: int = 2) -> UOp:
    """Each thread prints a line with values of several dtypes."""
    block, thread = blocks(grid), _threads(threads)
    small = thread.cast(dtypes.f32) * 0.5
    big = thread.cast(dtypes.i64) * -(10**12)
    c = Cursor()
    values = (block, thread, small, small.cast(dtypes.bf16), big, thread < 1)
    c.printf("block {} thread {}: {} {} {} 100% {}", *values)
    return c.sink()


def _printed(grid: int = 2, threads: int = 2) -> tuple[str, ...]:
    lines = [
        f"block {b} thread {t}: {t / 2:g} {t / 2:g} {-t * 10**12} 100% {int(t < 1)}"
        for b in range(grid)
        for t in range(threads)
    ]
    return tuple(lines)


def checked_square(threads: int = 64) -> UOp:
    """The square of each element, with a word about those that should not come.

    x, y (threads,) i32; x must not be negative.
    """
    x, y = (buffer(slot, dtypes.i32, (threads,)) for slot in range(2))
    thread = _threads(threads)
    c = Cursor()
    value = c.load(x.index(thread))
    c.check(value >= 0, "x must not be negative")
    c.store(y.index(thread), value * value)
    return c.sink()


# ---- what they give
def _turned_round(x: Array, y: Array) -> dict[int, Array]:
    steps = len(x)
    return {1: x.reshape(steps, -1, 2 * WARP)[:, :, ::-1].reshape(steps, -1)}


def _halved(x: Array, *outputs: Array) -> dict[int, Array]:
    odd, count = x.copy(), np.zeros_like(x)
    for _ in range(8):
        even = (odd % 2 == 0) & (odd != 0)
        odd[even] >>= 1
        count += even
    return {1: odd, 2: count}


def _extremes(*arrays: Array) -> dict[int, Array]:
    found = {}
    for n, (x, ends) in enumerate(zip(arrays[:4], arrays[4:], strict=True)):
        found[4 + n] = np.array([min(x.min(), ends[0]), max(x.max(), ends[1])], x.dtype)
    return found


def _bits(*arrays: Array) -> dict[int, Array]:
    found = {}
    for n, (x, start) in enumerate(zip(arrays[:4], arrays[4:], strict=True)):
        every = [
            ufunc.reduce(np.append(x, start[place]), dtype=x.dtype)
            for place, ufunc in enumerate((np.bitwise_and, np.bitwise_or, np.bitwise_xor))
        ]
        total = start[3] if x.dtype == np.int64 else np.append(x, start[3]).sum(dtype=x.dtype)
        found[4 + n] = np.array([*every, total], x.dtype)
    return found


def _exchanged(
    x: Array, expected: Array, first: Array, second: Array, *outputs: Array
) -> dict[int, Array]:
    return {2: x, 3: np.where(second == expected, x, second), 4: first, 5: second}


def _handed_over(x: Array, y: Array) -> dict[int, Array]:
    return {1: x[:, ::-1] * 3}


def _any_integer(rng: np.random.Generator, dtype: DType, size: int) -> Array:
    return rng.integers(dtype.min, dtype.max, size, dtype.numpy, endpoint=True)


def _four(rng: np.random.Generator, results: int) -> list[Array]:
    return [
        _any_integer(rng, d, size) for size, d in ((s, d) for s in (128, results) for d in INTEGERS)
    ]


def _exchange(rng: np.random.Generator, dtype: DType) -> tuple[Array, ...]:
    x, expected, first, second = (whole(rng, 64, dtype.numpy) for _ in range(4))
    return x, expected, first, second, unwritten(64, dtype.numpy), unwritten(64, dtype.numpy)


def _exchange_of(dtype: DType) -> Example:
    return Example(
        lambda: exchange_and_swap(dtype),
        "sm_75",
        lambda rng: _exchange(rng, dtype),
        _exchanged,
        sass=("ATOMG",),
    )


EXAMPLES: dict[str, Example] = {
    "named_barriers": Example(
        named_barriers,
        "sm_75",
        lambda rng: (whole(rng, (2, 192), np.float32, 99), unwritten((2, 192), np.float32)),
        _turned_round,
        sass=("BAR.SYNC",),
    ),
    "divergent": Example(
        divergent,
        "sm_75",
        lambda rng: (
            whole(rng, 64, np.int32, 3) << rng.integers(0, 11, 64, np.int32),
            *(unwritten(64, np.int32), unwritten(64, np.int32)),
        ),
        _halved,
    ),
    "histogram": Example(
        histogram,
        "sm_75",
        lambda rng: (rng.integers(0, 16, 1024, np.int32), np.zeros(16, np.int32)),
        lambda x, counts: {1: np.bincount(x, minlength=16).astype(np.int32)},
        sass=("ATOMS", "RED"),
    ),
    "atomic_sum": Example(
        atomic_sum,
        "sm_75",
        lambda rng: (rng.standard_normal(256).astype(np.float32), np.ones(1, np.float32)),
        lambda x, total: {1: (total + x.sum(dtype=np.float64)).astype(np.float32)},
        sass=("RED",),
        order_dependent=True,
    ),
    "atomic_sum_f64": Example(
        lambda: atomic_sum(dtype=dtypes.f64),
        "sm_75",
        lambda rng: (whole(rng, 256, np.float64, 99), np.ones(1, np.float64)),
        lambda x, total: {1: total + x.sum()},
        sass=("RED",),
    ),
    "atomic_extremes": Example(
        atomic_extremes, "sm_75", lambda rng: _four(rng, 2), _extremes, sass=("RED",)
    ),
    "atomic_bits": Example(atomic_bits, "sm_75", lambda rng: _four(rng, 4), _bits, sass=("RED",)),
    "exchange_i32": _exchange_of(dtypes.i32),
    "exchange_i64": _exchange_of(dtypes.i64),
    "exchange_f32": _exchange_of(dtypes.f32),
    "exchange_f64": _exchange_of(dtypes.f64),
    "claim": Example(
        claim,
        "sm_75",
        lambda rng: (
            rng.integers(0, 6, 128, np.int32),
            *(np.full(8, EMPTY, np.int32), np.zeros(8, np.int32)),
        ),
        lambda keys, owner, winners: {2: np.isin(np.arange(8), keys).astype(np.int32)},
        sass=("ATOMG",),
    ),
    "last_block": Example(
        last_block,
        "sm_75",
        lambda rng: (
            whole(rng, 192, np.int32, 999),
            *(unwritten(6, np.int32), np.zeros(1, np.int32), unwritten(1, np.int32)),
        ),
        lambda x, partial, tickets, total: {
            1: x.reshape(6, WARP).sum(axis=1, dtype=np.int32),
            2: np.array([6], np.int32),
            3: x.sum(dtype=np.int32, keepdims=True),
        },
        sass=("ATOMG", "MEMBAR"),
    ),
    "mbarrier_handover": Example(
        mbarrier_handover,
        "sm_80",
        lambda rng: (whole(rng, (5, WARP), np.int32, 99), unwritten((5, WARP), np.int32)),
        _handed_over,
    ),
    "print_lanes": Example(print_lanes, "sm_75", lambda rng: (), lambda: {}, printed=_printed()),
    "checked_square": Example(
        checked_square,
        "sm_75",
        lambda rng: (abs(whole(rng, 64, np.int32, 99)), unwritten(64, np.int32)),
        lambda x, y: {1: x * x},
        sass=("BPT.TRAP",),
    ),
}

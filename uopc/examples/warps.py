"""Lanes of a warp together: shuffles, votes, reductions, and an exchange through memory."""

from __future__ import annotations

import numpy as np

from uopc.dtype import dtypes
from uopc.examples.parts import (
    WARP,
    Array,
    Example,
    blocks,
    lanes,
    loop,
    shared,
    unwritten,
    warps,
    whole,
)
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Combine, ShuffleMode, Vote

HALF = 0xFFFF  # the members of the lower half of a warp


def butterfly_sum(grid: int = 2, count: int = 3) -> UOp:
    """The sum of each warp's 32 elements: five exchanges with the lane that differs in one bit.

    x (grid * count * 32,) f32, y (grid * count,) f32; count warps a block.
    """
    x, y = buffer(0, dtypes.f32, (grid * count * WARP,)), buffer(1, dtypes.f32, (grid * count,))
    block, warp, lane = blocks(grid), warps(count), lanes()
    row = block * count + warp
    c = Cursor()
    total = c.load(x.index(row * WARP + lane))
    for by in (16, 8, 4, 2, 1):
        total = total + total.shuffle(by)
    c.store(y.index(row), total, lane < 1)
    return c.sink()


def half_butterfly(count: int = 2) -> UOp:
    """The sum of the lower 16 lanes of each warp; the other lanes are not there to take part.

    x (count * 32,) i32, y (count * 16,) i32: the sum, for each lane that took part.
    """
    x, y = buffer(0, dtypes.i32, (count * WARP,)), buffer(1, dtypes.i32, (count * 16,))
    warp, lane = warps(count), lanes()
    c = Cursor()
    with c.when(lane < 16):
        total = c.load(x.index(warp * WARP + lane))
        for by in (8, 4, 2, 1):
            total = total + total.shuffle(by, members=HALF)
        c.store(y.index(warp * 16 + lane), total)
    return c.sink()


def inclusive_scan(grid: int = 2, count: int = 2) -> UOp:
    """Running sums of each warp's elements: each lane adds what the lane 1, 2, 4 ... below has.

    x, y (grid * count * 32,) i32.
    """
    n = grid * count * WARP
    x, y = buffer(0, dtypes.i32, (n,)), buffer(1, dtypes.i32, (n,))
    block, warp, lane = blocks(grid), warps(count), lanes()
    at = (block * count + warp) * WARP + lane
    c = Cursor()
    total = c.load(x.index(at))
    for by in (1, 2, 4, 8, 16):
        below = total.shuffle(by, ShuffleMode.UP)
        total = (lane < by).where(total, total + below)
    c.store(y.index(at), total)
    return c.sink()


def differences(count: int = 2) -> UOp:
    """The next element minus this one; the last lane of a warp gets its own back, and so 0.

    x, y (count * 32,) f64.
    """
    x, y = (buffer(slot, dtypes.f64, (count * WARP,)) for slot in range(2))
    at = warps(count) * WARP + lanes()
    c = Cursor()
    value = c.load(x.index(at))
    c.store(y.index(at), value.shuffle(1, ShuffleMode.DOWN) - value)
    return c.sink()


def gather_lanes(count: int = 2) -> UOp:
    """Each lane takes the element of the lane that `which` names.

    x (count * 32,) bf16, which (count * 32,) i32 of 0 to 31, y like x.
    """
    n = count * WARP
    x, which = buffer(0, dtypes.bf16, (n,)), buffer(1, dtypes.i32, (n,))
    y = buffer(2, dtypes.bf16, (n,))
    at = warps(count) * WARP + lanes()
    c = Cursor()
    lane = c.load(which.index(at))
    c.store(y.index(at), c.load(x.index(at)).shuffle(0, ShuffleMode.INDEX, lane))
    return c.sink()


def votes(count: int = 4) -> UOp:
    """Is some, is every element of a warp positive; and the bits of the lanes where it is.

    x (count * 32,) i32; some, every (count,) bool; ballot (count,) u32.
    """
    x = buffer(0, dtypes.i32, (count * WARP,))
    some, every = (buffer(slot, dtypes.bool, (count,)) for slot in (1, 2))
    ballot = buffer(3, dtypes.u32, (count,))
    warp, lane = warps(count), lanes()
    c = Cursor()
    positive = c.load(x.index(warp * WARP + lane)) > 0
    for memory, vote in ((some, Vote.ANY), (every, Vote.ALL), (ballot, Vote.BALLOT)):
        c.store(memory.index(warp), positive.vote(vote), lane < 1)
    return c.sink()


def population(bits: UOp) -> UOp:
    """How many bits of a u32 are set: sums of 2, 4, then 8 bits side by side, then of the bytes."""
    pairs = bits - ((bits >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    return (((fours + (fours >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24


def compact(count: int = 3) -> UOp:
    """The positive elements of each warp move to the front of its 32 places, the others behind.

    A lane's place is the number of lanes of its kind below it; both kinds stay in order.
    x, y (count * 32,) i32; kept (count,) u32: how many are positive.
    """
    n = count * WARP
    x, y = buffer(0, dtypes.i32, (n,)), buffer(1, dtypes.i32, (n,))
    kept = buffer(2, dtypes.u32, (count,))
    warp, lane = warps(count), lanes()
    c = Cursor()
    value = c.load(x.index(warp * WARP + lane))
    positive = value > 0
    ballot = positive.vote(Vote.BALLOT)
    below = population(ballot & ((UOp.const(1, dtypes.u32) << lane.cast(dtypes.u32)) - 1))
    behind = population(ballot) + (lane.cast(dtypes.u32) - below)
    place = positive.where(below, behind).cast(dtypes.index)
    c.store(y.index(warp * WARP + place), value)
    c.store(kept.index(warp), population(ballot), lane < 1)
    return c.sink()


SIGNED = (Combine.ADD, Combine.MIN, Combine.MAX)
UNSIGNED = (*SIGNED, Combine.AND, Combine.OR, Combine.XOR)


def warp_reductions(count: int = 2) -> UOp:
    """Every reduction of a warp that is one instruction.

    x (count * 32,) i32, u (count * 32,) u32; of_x (count, 3) i32: sum, least, largest; of_u
    (count, 6) u32: those, and, or, exclusive or.
    """
    x, u = buffer(0, dtypes.i32, (count * WARP,)), buffer(1, dtypes.u32, (count * WARP,))
    of_x, of_u = buffer(2, dtypes.i32, (count, 3)), buffer(3, dtypes.u32, (count, 6))
    warp, lane = warps(count), lanes()
    c = Cursor()
    for values, results, combines in ((x, of_x, SIGNED), (u, of_u, UNSIGNED)):
        value = c.load(values.index(warp * WARP + lane))
        for n, combine in enumerate(combines):
            c.store(results.index(warp, n), value.warp_reduce(combine), lane < 1)
    return c.sink()


def warp_transpose(count: int = 2, steps: int = 3) -> UOp:
    """Each warp turns 8 x 4 elements into 4 x 8 through its part of SHARED memory.

    Lanes are not in step: __syncwarp stands between writing and reading, and between reading and
    the next step's writing.  x, y (steps, count * 32) i32.
    """
    x, y = (buffer(slot, dtypes.i32, (steps, count * WARP)) for slot in range(2))
    warp, lane = warps(count), lanes()
    tile, at = shared(dtypes.i32, count * WARP), warp * WARP + lane
    c = Cursor()
    with c.loop(loop(steps)) as step:
        c.store(tile.index(at), c.load(x.index(step, at)))
        c.syncwarp()
        turned = warp * WARP + lane % 8 * 4 + lane // 8
        c.store(y.index(step, at), c.load(tile.index(turned)))
        c.syncwarp()
    return c.sink()


# ---- what they give
def _rows(x: Array) -> Array:
    return x.reshape(-1, WARP)


def _scan(x: Array, y: Array) -> dict[int, Array]:
    return {1: np.cumsum(_rows(x), axis=1, dtype=x.dtype).ravel()}


def _differences(x: Array, y: Array) -> dict[int, Array]:
    rows = _rows(x)
    return {1: np.diff(rows, axis=1, append=rows[:, -1:]).ravel()}


def _gather(x: Array, which: Array, y: Array) -> dict[int, Array]:
    return {2: np.take_along_axis(_rows(x), _rows(which), axis=1).ravel()}


def _votes(x: Array, *outputs: Array) -> dict[int, Array]:
    positive = _rows(x) > 0
    bits = (positive << np.arange(WARP, dtype=np.int64)).sum(axis=1).astype(np.uint32)
    return {1: positive.any(axis=1), 2: positive.all(axis=1), 3: bits}


def _compact(x: Array, y: Array, kept: Array) -> dict[int, Array]:
    for row, out in zip(_rows(x), _rows(y), strict=True):
        out[...] = np.concatenate((row[row > 0], row[row <= 0]))
    return {1: y, 2: (_rows(x) > 0).sum(axis=1).astype(np.uint32)}


_UFUNC = {
    Combine.ADD: np.add,
    Combine.MIN: np.minimum,
    Combine.MAX: np.maximum,
    Combine.AND: np.bitwise_and,
    Combine.OR: np.bitwise_or,
    Combine.XOR: np.bitwise_xor,
}


def _reductions(x: Array, u: Array, *outputs: Array) -> dict[int, Array]:
    def each(values: Array, combines: tuple[Combine, ...]) -> Array:
        columns = [_UFUNC[k].reduce(_rows(values), axis=1, dtype=values.dtype) for k in combines]
        return np.stack(columns, axis=1)

    return {2: each(x, SIGNED), 3: each(u, UNSIGNED)}


def _transposed(x: Array, y: Array) -> dict[int, Array]:
    steps = len(x)
    return {1: x.reshape(steps, -1, 8, 4).transpose(0, 1, 3, 2).reshape(steps, -1)}


def _mixed(rng: np.random.Generator, count: int) -> Array:
    """Rows of a warp: none positive, all positive, some."""
    x = whole(rng, (count, WARP), np.int32, 9)
    x[0], x[1] = -abs(x[0]), abs(x[1]) + 1
    return x.ravel()


EXAMPLES: dict[str, Example] = {
    "butterfly_sum": Example(
        butterfly_sum,
        "sm_75",
        lambda rng: (whole(rng, 192, np.float32, 99), unwritten(6, np.float32)),
        lambda x, y: {1: _rows(x).sum(axis=1)},
        sass=("SHFL.BFLY",),
    ),
    "half_butterfly": Example(
        half_butterfly,
        "sm_75",
        lambda rng: (whole(rng, 64, np.int32, 99), unwritten(32, np.int32)),
        lambda x, y: {1: np.repeat(_rows(x)[:, :16].sum(axis=1, dtype=np.int32), 16)},
        sass=("SHFL.BFLY",),
    ),
    "inclusive_scan": Example(
        inclusive_scan,
        "sm_75",
        lambda rng: (rng.integers(-(2**30), 2**30, 128, np.int32), unwritten(128, np.int32)),
        _scan,
        sass=("SHFL.UP",),
    ),
    "differences": Example(
        differences,
        "sm_75",
        lambda rng: (whole(rng, 64, np.float64, 99), unwritten(64, np.float64)),
        _differences,
        sass=("SHFL.DOWN",),
    ),
    "gather_lanes": Example(
        gather_lanes,
        "sm_75",
        lambda rng: (
            whole(rng, 64, dtypes.bf16.numpy, 99),
            rng.integers(0, WARP, 64, np.int32),
            unwritten(64, dtypes.bf16.numpy),
        ),
        _gather,
        sass=("SHFL.IDX",),
    ),
    "votes": Example(
        votes,
        "sm_75",
        lambda rng: (
            _mixed(rng, 4),
            *(unwritten(4, np.bool_), unwritten(4, np.bool_), unwritten(4, np.uint32)),
        ),
        _votes,
        sass=("VOTE",),
    ),
    "compact": Example(
        compact,
        "sm_75",
        lambda rng: (_mixed(rng, 3), unwritten(96, np.int32), unwritten(3, np.uint32)),
        _compact,
        sass=("VOTE",),
    ),
    "warp_reductions": Example(
        warp_reductions,
        "sm_75",
        lambda rng: (
            rng.integers(-(2**31), 2**31, 64, np.int64).astype(np.int32),
            rng.integers(0, 2**32, 64, np.int64).astype(np.uint32),
            *(unwritten((2, 3), np.int32), unwritten((2, 6), np.uint32)),
        ),
        _reductions,
    ),
    "warp_transpose": Example(
        warp_transpose,
        "sm_75",
        lambda rng: (whole(rng, (3, 64), np.int32, 99), unwritten((3, 64), np.int32)),
        _transposed,
    ),
}

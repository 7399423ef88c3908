"""Matrix products on ordinary arithmetic, through SHARED memory: one element a thread, or 4 x 4."""

from __future__ import annotations

import numpy as np

from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.examples.parts import (
    Array,
    Example,
    blocks,
    loop,
    registers,
    shared,
    unrolled,
    unwritten,
    whole,
)
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import AccessArg, AxisType, Ops, ParamArg

MAX_THREADS = 1024  # of a block, on every CUDA target (Programming Guide, compute capabilities)


def smem_gemm_ir(N: int, T: int) -> UOp:  # noqa: N803  (the letters of the chapter)
    """C = A @ B through shared memory: one block a T x T tile of C, one thread an element.

    Alone, a thread would read N values of A and N of B from global memory.  Here the block walks
    along k in steps of T, copies a T x T tile of A and of B into SHARED memory, one element of each
    a thread, and every thread reads the operands of T products from there: T times less traffic.

    1. Ranges.  `gidx0, gidx1` (GLOBAL) choose the block's tile of C, `lidx0, lidx1` (LOCAL) the
       thread's element of it.  Axis 1 is the last one, so it is .x: neighbouring threads touch
       neighbouring columns, in A, B and C.
    2. `acc` (REG) starts at 0: `acc.after(zeroed)` is the memory once it is zero.
    3. The loop over `step`.  `a_tile.after(step)` is the tile of this step; each thread stores one
       element of A and one of B.
    4. BARRIER 1, `filled`: no thread reads a tile before all have written it.
    5. The loop over `k` adds T products, from `a_tile.after(filled)`.  `.after(step, k)` on the
       accumulator says that each iteration sees what the one before it left.
    6. BARRIER 2, `used`, closes the step: no thread overwrites a tile that another still reads.
    7. `acc.after(all_steps)` is the sum; one STORE an element of C.

    Parameters
    ----------
    N: rows and columns of the matrices, a multiple of T.
    T: rows and columns of a tile; T * T threads a block, at most 1024.

    Returns
    -------
    SINK in stage LOOPS: A (N, N) f32 in slot 0, B (N, N) f32 in slot 1, C (N, N) f32 in slot 2.

    Raises
    ------
    UsageError: T does not divide N, or T * T is more threads than a block has.
    """
    if T < 1 or N < 1 or N % T:
        raise UsageError(
            f"smem_gemm_ir: N={N} is not a multiple of T={T}. Choose a T that divides N."
        )
    if T * T > MAX_THREADS:
        raise UsageError(
            f"smem_gemm_ir: T={T} makes {T * T} threads a block, the limit is {MAX_THREADS}. "
            "Lower T."
        )
    a, b, c = (buffer(slot, dtypes.f32, (N, N)) for slot in range(3))
    a_tile = _alloc(AddrSpace.SHARED, 0, (T, T), "a_tile")
    b_tile = _alloc(AddrSpace.SHARED, 1, (T, T), "b_tile")
    acc = _alloc(AddrSpace.REG, 0, (1,), "acc")
    block_row, block_column = (range_(N // T, axis, AxisType.GLOBAL) for axis in range(2))
    row, column = (range_(T, axis, AxisType.LOCAL) for axis in range(2))
    step, k = range_(N // T, 2, AxisType.REDUCE), range_(T, 3, AxisType.REDUCE)
    c_row, c_column = block_row * T + row, block_column * T + column

    zeroed = acc.index(0).store(0.0)

    a_value = a.index(c_row, step * T + column).load()
    b_value = b.index(step * T + row, c_column).load()
    a_filled = a_tile.after(step).index(row, column).store(a_value)
    b_filled = b_tile.after(step).index(row, column).store(b_value)
    filled = a_filled.barrier(b_filled)

    running = acc.after(zeroed, step, k).index(0)
    x = a_tile.after(filled).index(row, k).load()
    y = b_tile.after(filled).index(k, column).load()
    added = running.store(x.fma(y, running.load()))
    used = added.end(k).barrier()
    all_steps = used.end(step)

    total = acc.after(all_steps).index(0).load()
    return sink(c.index(c_row, c_column).store(total))


def _alloc(space: AddrSpace, slot: int, shape: tuple[int, ...], name: str) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtypes.f32, shape, space, name))


SIDE = 16  # threads of a block along each axis of its tile
EACH = 4  # rows and columns of a thread


def register_product(m: int = 256, n: int = 256, k: int = 256, block_k: int = 16) -> UOp:
    """C = A @ B with 256 threads a block and 4 x 4 elements of C in the registers of each.

    What a thread reads from SHARED memory for one k, 4 elements of A and 4 of B, serves 16 products
    instead of one.  The block brings 64 x 16 of A and 16 x 64 of B into SHARED memory, 16 bytes a
    thread and access.

    Parameters
    ----------
    m, n: rows of A and columns of B, multiples of 64.
    k: a multiple of block_k.
    block_k: elements along k of one tile; 16 gives each of 256 threads one access of 16 bytes.

    Returns
    -------
    SINK in stage LOOPS: A (m, k) f32 in slot 0, B (k, n) f32 in slot 1, C (m, n) f32 in slot 2.

    Raises
    ------
    UsageError: a size is no multiple of its tile's, or a tile is not one access a thread.
    """
    block_m = block_n = SIDE * EACH
    if m % block_m or n % block_n or k % block_k or block_m * block_k != EACH * SIDE * SIDE:
        raise UsageError(
            f"register_product: {m} x {n} x {k} with block_k={block_k}: m and n are multiples of "
            f"{block_m}, k of block_k, and block_k is {EACH * SIDE * SIDE // block_m}."
        )
    a, b, c = (buffer(s, dtypes.f32, size) for s, size in enumerate(((m, k), (k, n), (m, n))))
    a_tile = shared(dtypes.f32, block_m * block_k, 0, "a_tile")
    b_tile = shared(dtypes.f32, block_k * block_n, 1, "b_tile")
    sums = registers(dtypes.f32, EACH * EACH, 0, "sum")
    a_part, b_part = (registers(dtypes.f32, EACH, s, f"{'ab'[s - 1]}_part") for s in (1, 2))
    block_row, block_column = blocks(m // block_m, 0), blocks(n // block_n, 1)
    row, column = (range_(SIDE, axis, AxisType.LOCAL) for axis in (0, 1))
    thread = row * SIDE + column
    wide = AccessArg(EACH)

    def copy(to: UOp, source: UOp) -> None:
        """Four neighbours at once."""
        value = UOp(Ops.LOAD, (cursor._now(source),), wide)
        cursor.do(Ops.STORE, to, value, arg=wide)

    cursor = Cursor()
    with cursor.loop(unrolled(EACH * EACH, 0)) as r:
        cursor.store(sums.index(r), 0.0)
    with cursor.loop(loop(k // block_k, 1)) as step:
        per_row = block_k // EACH
        a_row, a_column = thread // per_row, thread % per_row * EACH
        copy(
            a_tile.index(a_row * block_k + a_column),
            a.index(block_row * block_m + a_row, step * block_k + a_column),
        )
        b_row, b_column = thread // SIDE, thread % SIDE * EACH
        copy(
            b_tile.index(b_row * block_n + b_column),
            b.index(step * block_k + b_row, block_column * block_n + b_column),
        )
        cursor.barrier()
        with cursor.loop(loop(block_k, 2)) as kk:
            with cursor.loop(unrolled(EACH, 3)) as i:
                part = a_tile.index((row * EACH + i) * block_k + kk)
                cursor.store(a_part.index(i), cursor.load(part))
            copy(b_part.index(0), b_tile.index(kk * block_n + column * EACH))
            i, j = unrolled(EACH, 4), unrolled(EACH, 5)
            with cursor.loop(i, j):
                place = sums.index(i * EACH + j)
                x, y = cursor.load(a_part.index(i)), cursor.load(b_part.index(j))
                cursor.store(place, x.fma(y, cursor.load(place)))
        cursor.barrier()
    with cursor.loop(unrolled(EACH, 6)) as i:
        c_row, c_column = block_row * block_m + row * EACH + i, block_column * block_n
        copy(c.index(c_row, c_column + column * EACH), sums.index(i * EACH))
    return cursor.sink()


def _product(a: Array, b: Array, c: Array) -> dict[int, Array]:
    return {2: (a.astype(np.float64) @ b).astype(np.float32).reshape(c.shape)}


def _square(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    return (*(whole(rng, (n, n), np.float32) for _ in range(2)), unwritten((n, n), np.float32))


EXAMPLES: dict[str, Example] = {
    "smem_product": Example(
        lambda: smem_gemm_ir(48, 16),
        "sm_75",
        lambda rng: _square(48, rng),
        _product,
        sass=("FFMA",),
    ),
    "register_product": Example(
        register_product,
        "sm_75",
        lambda rng: _square(256, rng),
        _product,
        sass=("FFMA", "LDS.128", "LDG.E.128", "STG.E.128"),
    ),
}

"""Kernels written by hand in the loop IR (stage LOOPS), to read and to start from."""

from __future__ import annotations

from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import AxisType, Ops, ParamArg

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

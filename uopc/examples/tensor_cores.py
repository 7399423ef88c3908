"""mma.sync: one warp multiplies one tile, for each family of types; then a whole product.

Which lane holds which element is data (`uopc.layouts`): the same Fragment gives the addresses here,
the emulator's arithmetic and the tests' tables.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from uopc import layouts
from uopc.dtype import DType, dtypes
from uopc.examples.parts import (
    WARP,
    Array,
    Example,
    blocks,
    index,
    lanes,
    loop,
    registers,
    shared,
    unrolled,
    unwritten,
    warps,
    whole,
)
from uopc.layouts import Atom, Fragment, Operand, SharedTile
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Engine

#: unsigned dtypes by size, for values that travel as bits
BITS = {1: dtypes.u8, 2: dtypes.u16, 4: dtypes.u32}


def mma_tile(name: str) -> UOp:
    """One warp, one atom: D = A B of a single tile.

    Operands of 16 bits go through SHARED memory, from where ldmatrix gives every lane its fragment;
    the others are packed element by element.
    a (m, k), b (n, k): B is stored with k contiguous, as the "col" of the instruction's name says;
    d (m, n).
    """
    atom = layouts.atom_named(name)
    a, b = buffer(0, atom.a.dtype, (atom.m, atom.k)), buffer(1, atom.b.dtype, (atom.n, atom.k))
    d = buffer(2, atom.accumulator.dtype, (atom.m, atom.n))
    lane = lanes()
    c = Cursor()
    held_a, held_b = (
        fragment(c, memory, operand, lane, slot)
        for slot, (memory, operand) in enumerate(((a, atom.a), (b, atom.b)))
    )
    sums = registers(held_type(atom.accumulator), atom.accumulator.registers, 2, "sum")
    for n in range(atom.accumulator.registers):
        c.store(sums.index(n), 0)
    c.mma(name, sums.index(0), held_a.index(0), held_b.index(0))
    held = atom.accumulator.fragment
    assert held is not None
    for n in range(held.registers):
        c.store(d.index(*held(lane, n)), element(c, sums, atom.accumulator, n))
    return c.sink()


def held_type(operand: Operand) -> DType:
    """The dtype of the registers that hold an operand: several small elements are packed in u32."""
    packed = operand.packing > 1 or operand.type == "tf32"
    return dtypes.u32 if packed else operand.dtype


def fragment(c: Cursor, memory: UOp, operand: Operand, lane: UOp, slot: int) -> UOp:
    """Registers with a lane's part of a whole operand: A (m, k), or B (n, k)."""
    held = operand.fragment
    assert held is not None
    to = registers(held_type(operand), operand.registers, slot, "ab"[slot])
    if operand.element_bytes == 2:
        through_shared(c, memory, held, slot == 1, lane, to, slot)
        return to
    for n in range(operand.registers):
        value = packed(c, memory, operand, held, slot == 1, lane, n * operand.packing)
        c.store(to.index(n), value)
    return to


def packed(
    c: Cursor, memory: UOp, operand: Operand, held: Fragment, turned: bool, lane: UOp, first: int
) -> UOp:
    """Elements first ... of a lane in one register, the first one lowest.

    turned: the fragment counts (k, n), memory (n, k).
    """
    total: UOp | None = None
    for e in range(operand.packing):
        row, column = held(lane, first + e)
        value = c.load(memory.index(*((column, row) if turned else (row, column))))
        if held_type(operand) is not dtypes.u32:
            return value
        bits = value.bitcast(BITS[operand.element_bytes]).cast(dtypes.u32)
        bits = bits << 8 * operand.element_bytes * e if e else bits
        total = bits if total is None else total | bits
    assert total is not None
    return total


def through_shared(
    c: Cursor, memory: UOp, held: Fragment, turned: bool, lane: UOp, to: UOp, slot: int
) -> None:
    """An operand of 16-bit elements into SHARED memory, and from there by ldmatrix."""
    rows, columns = memory.arg.shape
    tile = shared(memory.dtype, rows * columns, slot)
    c_rows = rows * columns // WARP
    with c.loop(unrolled(c_rows, slot)) as i:
        c.store(tile.index(i * WARP + lane), c.load(memory.index(i * WARP + lane)))
    c.syncwarp()
    access = layouts.matrix_access(held, 2, "row" if turned else "column")
    assert access is not None
    for group in range(access.groups):
        row, column = access.rows(lane, group)
        at = column * columns + row if turned else row * columns + column
        c.ldmatrix(
            to.index(group * access.move.tiles),
            tile.index(at),
            access.move.tiles,
            access.move.transposed,
        )


def element(c: Cursor, memory: UOp, operand: Operand, n: int) -> UOp:
    """Element n of a lane's accumulator; of 16 bits, two lie in one register."""
    if operand.packing == 1:
        return c.load(memory.index(n))
    both = c.load(memory.index(n // 2))
    half = both >> 16 if n % 2 else both & 0xFFFF
    return half.cast(dtypes.u16).bitcast(operand.dtype)


# ---- a product of many tiles
PRODUCT_ATOM = "mma.m16n8k16.bf16"
BLOCK_M = BLOCK_N = 64
BLOCK_K = 32
WARP_M = WARP_N = 32  # of the tile, each of 2 x 2 warps
ATOMS_M, ATOMS_N = WARP_M // 16, WARP_N // 8
CHUNK = 8  # elements of one 16-byte cp.async


def mma_product(m: int = 128, n: int = 128, k: int = 128, depth: int = 3) -> UOp:
    """D = A B^T with tensor cores, for any GPU since sm_80: cp.async ring, ldmatrix, mma.sync.

    A block of 128 threads makes 64 x 64 of D, each of its four warps 32 x 32: 2 x 4 atoms.  Tiles
    of A and B are 64 rows of 32 elements, 64 bytes: 16-byte chunks of a row stand where the 64-byte
    swizzle puts them, so that neither cp.async nor ldmatrix meets a bank twice.

    a (m, k), b (n, k) bf16; d (m, n) f32; m, n multiples of 64, k of 32.
    """
    atom, tiles = layouts.atom_named(PRODUCT_ATOM), k // BLOCK_K
    a, b = buffer(0, dtypes.bf16, (m, k)), buffer(1, dtypes.bf16, (n, k))
    d = buffer(2, dtypes.f32, (m, n))
    block_m, block_n = blocks(m // BLOCK_M, 0), blocks(n // BLOCK_N, 1)
    warp, lane = warps(4), lanes()
    thread, at_m, at_n = warp * WARP + lane, warp // 2 * WARP_M, warp % 2 * WARP_N
    layout = SharedTile(BLOCK_M, BLOCK_K, 2, swizzle=64)
    rings = [shared(dtypes.bf16, depth * layout.size, s, "ab"[s]) for s in range(2)]
    sums = registers(dtypes.f32, 4 * ATOMS_M * ATOMS_N, 0, "sum")
    held_a = registers(dtypes.u32, 4 * ATOMS_M, 1, "fragment_a")
    held_b = registers(dtypes.u32, 2 * ATOMS_N, 2, "fragment_b")
    assert atom.a.fragment and atom.b.fragment and atom.accumulator.fragment
    access_a = layouts.matrix_access(atom.a.fragment.repeat(rows=ATOMS_M), 2, "column")
    access_b = layouts.matrix_access(atom.b.fragment.repeat(columns=ATOMS_N), 2, "row")
    assert access_a is not None and access_b is not None
    c = Cursor()

    def fill(step: UOp) -> None:
        """Each thread copies two chunks of each tile; four chunks are a row."""
        for ring, memory, first in ((rings[0], a, block_m), (rings[1], b, block_n)):
            for number in (thread, thread + 128):
                row, column = number // 4, number % 4 * CHUNK
                to = step % depth * layout.size + layout.index(row, column)
                source = memory.index(first * BLOCK_M + row, step * BLOCK_K + column)
                c.copy_async(ring.index(to), source, CHUNK)

    with c.loop(unrolled(4 * ATOMS_M * ATOMS_N, 5)) as r:
        c.store(sums.index(r), 0.0)
    for early in range(min(depth - 1, tiles)):
        fill(index(early))
        c.commit(Engine.CP_ASYNC)
    with c.loop(loop(tiles, 0)) as step:
        c.wait_group(Engine.CP_ASYNC, depth - 2)
        c.barrier()
        following = step + (depth - 1)
        with c.when(following < tiles):
            fill(following)
        c.commit(Engine.CP_ASYNC)
        stage = step % depth * layout.size
        with c.loop(unrolled(BLOCK_K // atom.k, 1)) as ks:
            for group in range(access_a.groups):
                row, column = access_a.rows(lane, group)
                at = stage + layout.index(at_m + row, ks * atom.k + column)
                c.ldmatrix(held_a.index(4 * group), rings[0].index(at))
            for group in range(access_b.groups):
                row, column = access_b.rows(lane, group)  # (k, n)
                at = stage + layout.index(at_n + column, ks * atom.k + row)
                c.ldmatrix(held_b.index(4 * group), rings[1].index(at))
            i, j = unrolled(ATOMS_M, 2), unrolled(ATOMS_N, 3)
            with c.loop(i, j):
                accumulator = sums.index((i * ATOMS_N + j) * 4)
                c.mma(PRODUCT_ATOM, accumulator, held_a.index(i * 4), held_b.index(j * 2))
    of_warp = atom.accumulator.fragment.repeat(ATOMS_M, ATOMS_N)
    with c.loop(unrolled(of_warp.registers, 4)) as r:
        row, column = of_warp(lane, r)
        place = d.index(block_m * BLOCK_M + at_m + row, block_n * BLOCK_N + at_n + column)
        c.store(place, c.load(sums.index(r)))
    return c.sink()


# ---- what they give
def _make(rng: np.random.Generator, atom: Atom) -> tuple[Array, ...]:
    return (
        whole(rng, (atom.m, atom.k), atom.a.dtype.numpy),
        whole(rng, (atom.n, atom.k), atom.b.dtype.numpy),
        unwritten((atom.m, atom.n), atom.accumulator.dtype.numpy),
    )


def product_of(a: Array, b: Array, d: Array, *more: Any) -> dict[int, Array]:
    """A B^T, exact on small whole numbers."""
    return {2: (a.astype(np.float64) @ b.astype(np.float64).T).astype(d.dtype)}


def _tile_of(name: str, target: str, sass: str) -> Example:
    atom = layouts.atom_named(name)
    mnemonics = (sass, "LDSM") if atom.a.element_bytes == 2 else (sass,)
    return Example(
        partial(mma_tile, name), target, lambda rng: _make(rng, atom), product_of, sass=mnemonics
    )


EXAMPLES: dict[str, Example] = {
    "mma_f16_k8": _tile_of("mma.m16n8k8.f16", "sm_75", "HMMA.1688.F32"),
    "mma_f16": _tile_of("mma.m16n8k16.f16", "sm_80", "HMMA.16816.F32"),
    "mma_f16_f16": _tile_of("mma.m16n8k16.f16.f16", "sm_80", "HMMA.16816.F16"),
    "mma_bf16": _tile_of("mma.m16n8k16.bf16", "sm_80", "HMMA.16816.F32.BF16"),
    "mma_tf32": _tile_of("mma.m16n8k8.tf32", "sm_80", "HMMA.1688.F32.TF32"),
    "mma_i8": _tile_of("mma.m16n8k32.i8", "sm_80", "IMMA.16832.S8.S8"),
    "mma_i8_u8": _tile_of("mma.m16n8k32.i8xu8", "sm_80", "IMMA.16832.S8.U8"),
    "mma_f8": _tile_of("mma.m16n8k32.f8e4m3xf8e5m2", "sm_89", "MMA"),
    "mma_f64": _tile_of("mma.m8n8k4.f64", "sm_80", "DMMA"),
    "mma_product": Example(
        mma_product,
        "sm_80",
        lambda rng: (
            whole(rng, (128, 128), dtypes.bf16.numpy),
            whole(rng, (128, 128), dtypes.bf16.numpy),
            unwritten((128, 128), np.float32),
        ),
        product_of,
        sass=("HMMA.16816.F32.BF16", "LDSM", "LDGSTS"),
    ),
}

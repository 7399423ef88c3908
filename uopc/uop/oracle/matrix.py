"""LDMATRIX, STMATRIX and MMA through the tables of `uopc.layouts`.

Products are summed in f64, or int64, and rounded once to the accumulator's type: what a tensor core
gives wherever all sums are exact, as those of small whole numbers are.
"""

from __future__ import annotations

import numpy as np

from uopc import layouts
from uopc.dtype import DType, dtypes
from uopc.errors import SpecError
from uopc.uop.infer import described
from uopc.uop.node import UOp, memory, where_from
from uopc.uop.numbers import Array
from uopc.uop.ops import MatrixArg, Ops
from uopc.uop.oracle.machine import WARP, Machine, bits_of

ROW = 8  # elements of a row of a tile, and rows of a tile


# ---- ldmatrix and stmatrix
def move(m: Machine, u: UOp) -> None:
    a: MatrixArg = u.arg
    loads = u.op is Ops.LDMATRIX
    registers, tile = u.src if loads else u.src[::-1]
    table = (layouts.LDMATRIX if loads else layouts.STMATRIX)[a.tiles, a.transposed]
    firsts = m.whole(u, WARP)
    lanes = (firsts[:, None] + np.arange(WARP)).reshape(-1)
    held, where = m.registers(u, registers, a.tiles, lanes)
    where = where.reshape(-1, WARP, a.tiles)
    shared, rows = _rows(m, u, tile, a.tiles, firsts)
    row, column = (table.fragment.table()[..., n] for n in (0, 1))
    at = rows[:, row] + column  # (warps, 32, 2 * tiles): where each half of a register lies
    if loads:
        halves = bits_of(shared, tile.dtype)[at].astype(np.uint32)
        held[where] = halves[..., 0::2] | halves[..., 1::2] << np.uint32(16)
    else:
        packed = held[where]
        halves = np.stack((packed & np.uint32(0xFFFF), packed >> np.uint32(16)), axis=-1)
        values = halves.astype(np.uint16).reshape(*at.shape).view(shared.dtype)
        shared[at] = values


def _rows(m: Machine, u: UOp, tile: UOp, tiles: int, firsts: Array) -> tuple[Array, Array]:
    """Elements, and where each row of the tiles begins: (warps, 8 * tiles).  Lane l gives row l."""
    lanes = firsts[:, None] + np.arange(ROW * tiles)
    gate = np.zeros(m.lanes, bool)
    gate[lanes] = True
    elements, where = m.places(u, tile, ROW, gate)
    begins = np.broadcast_to(where, (m.lanes, ROW))[lanes][..., 0]
    offset = np.broadcast_to(m.values[tile], m.lanes)[lanes]
    if (odd := offset[offset % ROW != 0]).size:
        raise SpecError(
            f"{u.op} at {where_from(u)}: a row begins at element {odd[0]} of its memory; "
            "rows of 16 bytes begin at multiples of 8"
        )
    return elements, begins


# ---- MMA
def mma(m: Machine, u: UOp) -> None:
    atom = layouts.ATOMS[u.arg]
    keep = m.full(u.src[3]) if len(u.src) == 4 else np.ones(m.lanes, bool)
    for first in m.whole(u, atom.threads):
        lanes = first + np.arange(atom.threads)
        a = _operand(m, u, u.src[1], atom.a, lanes, (atom.m, atom.k), False)
        b = _operand(m, u, u.src[2], atom.b, lanes, (atom.k, atom.n), True)
        of = atom.accumulator
        assert of.fragment is not None
        held, where = m.registers(u, u.src[0], of.registers, lanes)
        before = of.fragment.put(_unpacked(held[where], of))
        wide = np.int64 if of.type == "i32" else np.float64
        total = a.astype(wide) @ b.astype(wide)
        if keep[first]:
            total = total + before.astype(wide)
        held[where] = _packed(of.fragment.take(total.astype(of.dtype.numpy)), held.dtype)


def _operand(
    m: Machine,
    u: UOp,
    at: UOp,
    operand: layouts.Operand,
    lanes: Array,
    shape: tuple[int, int],
    is_b: bool,
) -> Array:
    """The matrix (m, k) or (k, n) of one warp or warpgroup, in a type that holds its values."""
    if operand.fragment is not None:
        held, where = m.registers(u, at, operand.registers, lanes)
        values = operand.fragment.put(_unpacked(held[where], operand))
    else:
        values = _described(m, u, at, operand.dtype, lanes, shape[::-1] if is_b else shape)
        values = values.T if is_b else values
    if operand.type == "tf32":
        bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(layouts.TF32_MASK)
        values = bits.view(np.float32)
    exact = np.int64 if operand.dtype.is_int else np.float64
    return np.asarray(values.astype(exact))


def _unpacked(registers: Array, operand: layouts.Operand) -> Array:
    """(threads, registers) as (threads, elements): the first element in the lowest bits."""
    return np.ascontiguousarray(registers).view(operand.dtype.numpy)


def _packed(elements: Array, registers: np.dtype[np.generic]) -> Array:
    return np.ascontiguousarray(elements).view(registers)


def _described(
    m: Machine, u: UOp, at: UOp, dtype: DType, lanes: Array, shape: tuple[int, int]
) -> Array:
    """(m or n, k): what a descriptor of SHARED memory shows."""
    source = described(at)
    assert source is not None and dtype is not dtypes.void
    bits = m.full(at)[lanes]
    if (bits != bits[0]).any():
        raise SpecError(f"MMA at {where_from(u)}: the threads give different descriptors")
    shows = layouts.Descriptor.decode(int(bits[0]))
    major = layouts.MN_MAJOR if source.arg.transposed else layouts.K_MAJOR
    rows, k = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    address = np.asarray(shows.address(rows, k, dtype.itemsize, major))
    tile = memory(source.src[0])
    elements, size, begin = m.memories[tile]
    offset = (address - m.addresses[tile]) // dtype.itemsize
    if offset.min() < 0 or offset.max() >= size:
        raise SpecError(
            f"MMA at {where_from(u)}: the descriptor made at {where_from(source)} shows elements "
            f"{offset.min()} to {offset.max()}, the memory has {size}"
        )
    return np.asarray(elements[int(begin[lanes[0]]) + offset])


def describe(m: Machine, u: UOp) -> None:
    """The bits of a DESCRIPTOR."""
    a, tile = u.arg, memory(u.src[0])
    start = m.addresses[tile] + m.full(u.src[0]) * tile.dtype.itemsize
    known = {
        int(s): layouts.Descriptor(int(s), a.leading, a.stride, a.swizzle).encode()
        for s in np.unique(start)
    }
    m.values[u] = np.array([known[int(s)] for s in start], np.uint64)

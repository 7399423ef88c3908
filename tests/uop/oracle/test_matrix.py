"""Tensor cores: products of small whole numbers, exact whatever the order of their sums."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import alloc, assert_same
from uopc import layouts
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, prod, range_
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, DescriptorArg, Engine, Fence
from uopc.uop.oracle import run
from uopc.uop.spec import Stage, check

F32, BF16, U32 = dtypes.f32, dtypes.bf16, dtypes.u32
REG, SHARED = AddrSpace.REG, AddrSpace.SHARED
LANE = range_(32, 0, AxisType.LANE)
WARP = range_(4, 1, AxisType.WARP)


def upcast(c: Cursor, n: int, axis: int) -> UOp:
    return range_(n, axis, AxisType.UPCAST)


def whole(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    low = 0 if dtype in (dtypes.u8, U32) else -4
    return rng.integers(low, 5, shape).astype(dtype.numpy)


def result(c: Cursor, arrays: dict[int, Array]) -> dict[int, Array]:
    kernel = c.sink()
    check(kernel, Stage.LOOPS, gpu=True)
    return run(kernel, arrays)


def exact(a: Array, b: Array) -> Array:
    wide = np.int64 if a.dtype.kind in "iu" else np.float64
    return np.asarray(a.astype(wide) @ b.astype(wide))


# ---- ldmatrix, mma.sync, stmatrix: addresses and places as the PTX manual writes them
def test_a_product_by_ldmatrix_and_mma(rng: np.random.Generator) -> None:
    x, w, y = (buffer(s, d, (16, n)) for s, d, n in ((1, BF16, 16), (2, BF16, 8), (0, F32, 8)))
    a, b = alloc(SHARED, BF16, 256), alloc(SHARED, BF16, 128, 1)
    acc, ra, rb = alloc(REG, F32, 4), alloc(REG, U32, 4, 1), alloc(REG, U32, 2, 2)
    c = Cursor()
    with c.loop(range_(8, 3)) as k:
        c.store(a.index(k * 32 + LANE), x.index(k * 32 + LANE).load())
    with c.loop(range_(4, 4)) as k:
        c.store(b.index(k * 32 + LANE), w.index(k * 32 + LANE).load())
    with c.loop(upcast(c, 4, 5)) as u:
        c.store(acc.index(u), 1.0)
    c.syncwarp()
    c.ldmatrix(ra.index(0), a.index(LANE % 16 * 16 + LANE // 16 * 8))
    c.ldmatrix(rb.index(0), b.index(LANE % 16 * 8), tiles=2, transposed=True)  # B is (k, n)
    c.mma("mma.m16n8k16.bf16", acc.index(0), ra.index(0), rb.index(0))
    with c.loop(upcast(c, 4, 6)) as u:
        row, column = LANE // 4 + u // 2 * 8, LANE % 4 * 2 + u % 2
        c.store(y.index(row, column), c.load(acc.index(u)))
    given = {1: whole(rng, BF16, (16, 16)), 2: whole(rng, BF16, (16, 8))}
    got = result(c, given)[0]
    assert_same(got, (exact(given[1], given[2]) + 1).astype(np.float32))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_stmatrix_undoes_ldmatrix(tiles: int, transposed: bool) -> None:
    u16 = dtypes.u16
    x, y = buffer(1, u16, (8 * tiles, 8)), buffer(0, u16, (8 * tiles, 8))
    a, b, r = alloc(SHARED, u16, 64 * tiles), alloc(SHARED, u16, 64 * tiles, 1), alloc(REG, U32, 4)
    rows = LANE % (8 * tiles) * 8
    c = Cursor()
    with c.loop(range_(2 * tiles, 3)) as k:
        c.store(a.index(k * 32 + LANE), x.index(k * 32 + LANE).load())
    c.syncwarp()
    c.ldmatrix(r.index(0), a.index(rows), tiles, transposed)
    c.stmatrix(b.index(rows), r.index(0), tiles)
    c.syncwarp()
    with c.loop(range_(2 * tiles, 4)) as k:
        c.store(y.index(k * 32 + LANE), c.load(b.index(k * 32 + LANE)))
    data = np.arange(64 * tiles, dtype=np.uint16).reshape(-1, 8)
    stacked = data.reshape(tiles, 8, 8)
    want = stacked.transpose(0, 2, 1) if transposed else stacked
    assert_same(result(c, {1: data})[0], np.ascontiguousarray(want).reshape(-1, 8))


def test_what_ldmatrix_refuses() -> None:
    a, r = alloc(SHARED, BF16, 300), alloc(REG, U32, 4)
    c = Cursor()
    c.ldmatrix(r.index(0), a.index(LANE * 8 + 1))
    with pytest.raises(SpecError, match=r"LDMATRIX at .*a row begins at element 1 of its memory"):
        run(c.sink(), {})
    c = Cursor()
    with c.when(LANE < 16):
        c.ldmatrix(r.index(0), a.index(LANE * 8), 2)
    with pytest.raises(SpecError, match=r"32 threads do it together; .* only 16 are here"):
        run(c.sink(), {})


# ---- every atom of warps, with fragments that the host packs
MMA_SYNC = [name for name, atom in layouts.ATOMS.items() if atom.engine == "mma.sync"]


def packed(operand: layouts.Operand, matrix: Array) -> Array:
    """(threads, registers) as the instruction takes them."""
    assert operand.fragment is not None
    held = np.ascontiguousarray(operand.fragment.take(matrix))
    return held if operand.type in ("f64", "f32", "i32") else held.view(np.uint32)


def register_type(operand: layouts.Operand) -> DType:
    return dtypes.f64 if operand.type == "f64" else U32


@pytest.mark.parametrize("name", MMA_SYNC)
def test_every_atom_of_a_warp(name: str, rng: np.random.Generator) -> None:
    atom = layouts.ATOMS[name]
    a, b, start = (
        whole(rng, operand.dtype, shape)
        for operand, shape in (
            (atom.a, (atom.m, atom.k)),
            (atom.b, (atom.k, atom.n)),
            (atom.accumulator, (atom.m, atom.n)),
        )
    )
    held = [packed(o, x) for o, x in ((atom.a, a), (atom.b, b), (atom.accumulator, start))]
    held[0] = held[0].view(register_type(atom.a).numpy)
    held[1] = held[1].view(register_type(atom.b).numpy)
    kinds = [register_type(atom.a), register_type(atom.b), atom.accumulator.dtype]
    if atom.accumulator.packing > 1:
        kinds[2] = U32
    c = Cursor()
    memories = []
    for n, (x, dtype) in enumerate(zip(held, kinds, strict=True)):
        size = x.shape[1]
        memories.append(alloc(REG, dtype, size, n))
        with c.loop(upcast(c, size, 10 + n)) as u:
            c.store(memories[n].index(u), buffer(1 + n, dtype, (32, size)).index(LANE, u).load())
    c.mma(name, memories[2].index(0), memories[0].index(0), memories[1].index(0))
    size = held[2].shape[1]
    with c.loop(upcast(c, size, 20)) as u:
        y = buffer(0, kinds[2], (32, size))
        c.store(y.index(LANE, u), c.load(memories[2].index(u)))
    got = result(c, {1 + n: x for n, x in enumerate(held)})[0]
    want = (exact(a, b) + start.astype(exact(a, b).dtype)).astype(atom.accumulator.dtype.numpy)
    assert_same(got, packed(atom.accumulator, want))


def test_tf32_drops_the_low_bits() -> None:
    name = "mma.m16n8k8.tf32"
    atom = layouts.ATOMS[name]
    fine = np.float32(1 + 2**-12)
    a, b = np.full((16, 8), fine, np.float32), np.eye(8, dtype=np.float32)
    ra, rb, acc = alloc(REG, U32, 4, 1), alloc(REG, U32, 2, 2), alloc(REG, F32, 4)
    c = Cursor()
    for m, slot, n in ((ra, 1, 4), (rb, 2, 2)):
        with c.loop(upcast(c, n, slot)) as u:
            c.store(m.index(u), buffer(slot, U32, (32, n)).index(LANE, u).load())
    with c.loop(upcast(c, 4, 7)) as u:
        c.store(acc.index(u), 0.0)
    c.mma(name, acc.index(0), ra.index(0), rb.index(0))
    with c.loop(upcast(c, 4, 8)) as u:
        c.store(buffer(0, F32, (32, 4)).index(LANE, u), c.load(acc.index(u)))
    given = {1: packed(atom.a, a).view(np.uint32), 2: packed(atom.b, b).view(np.uint32)}
    assert (result(c, given)[0] == 1.0).all()


# ---- wgmma
def wgmma_kernel(
    name: str, a_tile: layouts.SharedTile, b_tile: layouts.SharedTile, a_major: str, b_major: str
) -> UOp:
    """Two k steps of an atom, the first without the accumulator; A in SHARED memory."""
    atom = layouts.ATOMS[name]
    d = atom.a.dtype
    thread = WARP * 32 + LANE
    c = Cursor()
    places = []
    for slot, tile in ((1, a_tile), (2, b_tile)):
        memory = alloc(SHARED, d, tile.size, slot)
        x = buffer(slot, d, (tile.rows, tile.columns))
        steps = -(-tile.rows * tile.columns // 128)
        with c.loop(range_(steps, 10 + slot)) as k:
            at = k * 128 + thread
            row, column = at // tile.columns, at % tile.columns
            inside = at < tile.rows * tile.columns
            c.store(memory.index(tile.index(row, column)), x.index(at).load(inside), inside)
        places.append(memory)
    acc = alloc(REG, F32, atom.n // 2)
    with c.loop(upcast(c, atom.n // 2, 20)) as u:
        c.store(acc.index(u), 100.0)
    c.fence(Fence.PROXY_ASYNC)
    c.barrier()
    c.fence(Fence.WGMMA, acc)
    for step in range(2):
        operands = []
        for memory, tile, major in zip(places, (a_tile, b_tile), (a_major, b_major), strict=True):
            shown = layouts.operand_descriptor(tile, major)
            arg = DescriptorArg(shown.leading, shown.stride, shown.swizzle, major == "MN")
            corner = (0, step * atom.k) if major == "K" else (step * atom.k, 0)
            more = int(tile.linear(*corner)) * d.itemsize >> 4
            operands.append(c.descriptor(memory.index(0), arg) + more)
        c.mma(name, acc.index(0), operands[0], operands[1], UOp.const(step > 0))
    c.commit(Engine.WGMMA)
    c.wait_group(Engine.WGMMA, 0, acc)
    with c.loop(upcast(c, atom.n // 2, 21)) as u:
        row = WARP * 16 + LANE // 4 + u // 2 % 2 * 8
        column = u // 4 * 8 + LANE % 4 * 2 + u % 2
        c.store(buffer(0, F32, (64, atom.n)).index(row, column), c.load(acc.index(u)))
    return c.sink()


def operand_tile(rows: int, k: int, size: int, swizzle: int, major: str) -> layouts.SharedTile:
    """(mn, k) for K-major, (k, mn) for MN-major."""
    shape = (rows, k) if major == "K" else (k, rows)
    slab = 0 if swizzle else 16 // size
    return layouts.SharedTile(*shape, size, swizzle, slab=slab)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("a_major", "b_major"), [("K", "K"), ("MN", "K"), ("K", "MN")])
def test_wgmma_of_bf16(swizzle: int, a_major: str, b_major: str, rng: np.random.Generator) -> None:
    n, k = 64, 64
    a_tile = operand_tile(64, k, 2, swizzle, a_major)
    b_tile = operand_tile(n, k, 2, swizzle, b_major)
    kernel = wgmma_kernel("wgmma.m64n64k16.bf16", a_tile, b_tile, a_major, b_major)
    check(kernel, Stage.LOOPS, gpu=True)
    a, b = whole(rng, BF16, (64, k)), whole(rng, BF16, (n, k))
    given = {1: a if a_major == "K" else a.T.copy(), 2: b if b_major == "K" else b.T.copy()}
    want = exact(a[:, :32], b[:, :32].T).astype(np.float32)
    assert_same(run(kernel, given)[0], want)


@pytest.mark.parametrize(
    "name", ["wgmma.m64n8k16.f16", "wgmma.m64n16k8.tf32", "wgmma.m64n24k32.f8e4m3"]
)
def test_wgmma_of_other_types(name: str, rng: np.random.Generator) -> None:
    atom = layouts.ATOMS[name]
    size = atom.a.element_bytes
    k = 128 // size
    a_tile, b_tile = (operand_tile(rows, k, size, 128, "K") for rows in (64, atom.n))
    a, b = whole(rng, atom.a.dtype, (64, k)), whole(rng, atom.a.dtype, (atom.n, k))
    kernel = wgmma_kernel(name, a_tile, b_tile, "K", "K")
    check(kernel, Stage.LOOPS, gpu=True)
    want = exact(a[:, : 2 * atom.k], b[:, : 2 * atom.k].T).astype(np.float32)
    assert_same(run(kernel, {1: a, 2: b})[0], want)


def test_wgmma_with_a_from_registers(rng: np.random.Generator) -> None:
    name = "wgmma.m64n16k16.bf16.registers"
    atom = layouts.ATOMS[name]
    tile = layouts.SharedTile(16, 64, 2, 128)
    memory, ra, acc = alloc(SHARED, BF16, tile.size), alloc(REG, U32, 4, 1), alloc(REG, F32, 8)
    thread = WARP * 32 + LANE
    c = Cursor()
    with c.loop(range_(8, 10)) as k:
        at = k * 128 + thread
        c.store(
            memory.index(tile.index(at // 64, at % 64)), buffer(2, BF16, (1024,)).index(at).load()
        )
    with c.loop(upcast(c, 4, 11)) as u:
        c.store(ra.index(u), buffer(1, U32, (128, 4)).index(thread, u).load())
    c.fence(Fence.PROXY_ASYNC)
    c.barrier()
    c.fence(Fence.WGMMA, acc, ra)
    b = c.descriptor(memory.index(0), DescriptorArg(16, 1024, 128))
    c.mma(name, acc.index(0), ra.index(0), b, UOp.const(False))
    c.commit(Engine.WGMMA)
    c.wait_group(Engine.WGMMA, 0, acc)
    with c.loop(upcast(c, 8, 12)) as u:
        c.store(buffer(0, F32, (128, 8)).index(thread, u), c.load(acc.index(u)))
    x, w = whole(rng, BF16, (64, 16)), whole(rng, BF16, (16, 64))
    got = result(c, {1: packed(atom.a, x).view(np.uint32), 2: w})[0]
    want = exact(x, w[:, :16].T).astype(np.float32)
    assert atom.accumulator.fragment is not None
    assert_same(got, atom.accumulator.fragment.take(want))


def test_a_descriptor_that_shows_too_much() -> None:
    a_tile, b_tile = operand_tile(64, 64, 2, 128, "K"), operand_tile(32, 64, 2, 128, "K")
    kernel = wgmma_kernel("wgmma.m64n64k16.bf16", a_tile, b_tile, "K", "K")
    given = {s: np.zeros((prod((n, 64)),), BF16.numpy) for s, n in ((1, 64), (2, 32))}
    why = r"MMA at .*the descriptor made at test_matrix.py:\d+ shows .* the memory has 2048"
    with pytest.raises(SpecError, match=why):
        run(kernel, given)

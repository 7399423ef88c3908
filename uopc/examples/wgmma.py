"""wgmma: four warps and their tensor cores, with operands that lie in SHARED memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from uopc import layouts
from uopc.dtype import dtypes
from uopc.examples.parts import (
    GROUP,
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
    unrolled,
    unwritten,
    warps,
    whole,
)
from uopc.examples.tensor_cores import element, held_type, packed, product_of
from uopc.layouts import SharedTile
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, DescriptorArg, Engine, Fence, LaunchArg

SWIZZLE = 128  # bytes of a tile's rows
STEPS = 4  # MMAs of 32 bytes of k each that a tile of 128 bytes holds


def _tile(operand: layouts.Operand, side: int, major: str) -> SharedTile:
    """A tile with 128 bytes of k in rows of m or n, or with so many rows of k of 128 bytes."""
    k = SWIZZLE // operand.element_bytes
    rows, columns = (side, k) if major == "K" else (k, side)
    return SharedTile(rows, columns, operand.element_bytes, SWIZZLE)


def descriptor(c: Cursor, memory: UOp, tile: SharedTile, major: str, start: UOp | int = 0) -> UOp:
    """The descriptor of an operand at the beginning of a tile that lies at `start`."""
    form = layouts.operand_descriptor(tile, major)
    arg = DescriptorArg(form.leading, form.stride, form.swizzle, major == "MN")
    return c.descriptor(memory.index(start), arg)


def advanced(base: UOp, tile: SharedTile, major: str, k: UOp) -> UOp:
    """The same operand from element k of the tile on: its address counts units of 16 bytes."""
    at = tile.linear(0, k) if major == "K" else tile.linear(k, 0)
    units: UOp = at * tile.element_bytes // 16
    return base + units.cast(dtypes.u64)


def wgmma_tile(name: str, major_a: str = "K", major_b: str = "K") -> UOp:
    """One warpgroup: D (64, n) = A B^T over 128 bytes of k, four MMAs in flight at once.

    Bulk copies bring both tiles.  The first MMA starts the accumulator, so it needs no zeros; the
    fence says that its registers are the tensor cores' from here on, the wait that they are ours
    again.
    a (64, k) where A is K-major, (k, 64) where it is MN-major; b (n, k), (k, n); d (64, n).
    """
    atom = layouts.atom_named(name)
    tiles = _tile(atom.a, atom.m, major_a), _tile(atom.b, atom.n, major_b)
    a, b = (
        buffer(slot, operand.dtype, (tile.rows, tile.columns))
        for slot, (operand, tile) in enumerate(zip((atom.a, atom.b), tiles, strict=True))
    )
    d = buffer(2, atom.accumulator.dtype, (atom.m, atom.n))
    memories = [shared(m.dtype, tiles[s].size, s, "ab"[s]) for s, m in enumerate((a, b))]
    full = mbarriers(1, 0, "full")
    warp, lane = warps(4), lanes()
    thread = warp * WARP + lane
    sums = registers(held_type(atom.accumulator), atom.accumulator.registers, 0, "sum")
    c = Cursor()
    with c.when(thread < 1):
        c.init(full.index(0), 1)
        c.fence(Fence.MBAR_INIT)
        c.arrive(full.index(0), sum(t.size_bytes for t in tiles))
        for source, memory, tile in zip((a, b), memories, tiles, strict=True):
            box = tensor_map(source, (tile.rows, tile.columns), SWIZZLE)
            c.bulk_load(memory.index(0), box, full.index(0), index(0), index(0))
    c.barrier()
    c.wait(full.index(0), 0)
    starts = [
        descriptor(c, memory, tile, major)
        for memory, tile, major in zip(memories, tiles, (major_a, major_b), strict=True)
    ]
    c.fence(Fence.WGMMA, sums)
    with c.loop(unrolled(STEPS)) as step:
        at_a, at_b = (
            advanced(start, tile, major, step * atom.k)
            for start, tile, major in zip(starts, tiles, (major_a, major_b), strict=True)
        )
        c.mma(name, sums.index(0), at_a, at_b, keep=step.ne(0))
    c.commit(Engine.WGMMA)
    c.wait_group(Engine.WGMMA, 0, sums)
    store_sums(c, atom, sums, d, thread)
    return c.sink()


def store_sums(c: Cursor, atom: layouts.Atom, sums: UOp, d: UOp, thread: UOp) -> None:
    """A warpgroup's accumulator to memory."""
    held = atom.accumulator.fragment
    assert held is not None
    if atom.accumulator.packing == 1:
        with c.loop(unrolled(held.registers, 9)) as r:
            c.store(d.index(*held(thread, r)), c.load(sums.index(r)))
        return
    for n in range(held.registers):
        c.store(d.index(*held(thread, n)), element(c, sums, atom.accumulator, n))


def wgmma_from_registers(name: str = "wgmma.m64n64k16.bf16.registers") -> UOp:
    """One MMA whose A comes from registers: what attention does with what it has just computed.

    Ordinary code has written these registers, so the fence covers them too.
    a (64, k), b (n, k) K-major, d (64, n), where k is 32 bytes.
    """
    atom = layouts.atom_named(name)
    a, b = buffer(0, atom.a.dtype, (atom.m, atom.k)), buffer(1, atom.b.dtype, (atom.n, atom.k))
    d = buffer(2, atom.accumulator.dtype, (atom.m, atom.n))
    tile = SharedTile(atom.n, atom.k, atom.b.element_bytes, swizzle=32)
    memory, full = shared(b.dtype, tile.size, 0, "b"), mbarriers(1, 0, "full")
    warp, lane = warps(4), lanes()
    thread = warp * WARP + lane
    sums = registers(held_type(atom.accumulator), atom.accumulator.registers, 0, "sum")
    held = registers(dtypes.u32, atom.a.registers, 1, "a")
    assert atom.a.fragment is not None
    c = Cursor()
    with c.when(thread < 1):
        c.init(full.index(0), 1)
        c.fence(Fence.MBAR_INIT)
        c.arrive(full.index(0), tile.size_bytes)
        box = tensor_map(b, (tile.rows, tile.columns), tile.swizzle)
        c.bulk_load(memory.index(0), box, full.index(0), index(0), index(0))
    for n in range(atom.a.registers):
        first = n * atom.a.packing
        c.store(held.index(n), packed(c, a, atom.a, atom.a.fragment, False, thread, first))
    c.barrier()
    c.wait(full.index(0), 0)
    start = descriptor(c, memory, tile, "K")
    c.fence(Fence.WGMMA, sums, held)
    c.mma(name, sums.index(0), held.index(0), start, keep=UOp.const(False))
    c.commit(Engine.WGMMA)
    c.wait_group(Engine.WGMMA, 0, sums, held)
    store_sums(c, atom, sums, d, thread)
    return c.sink()


# ---- the whole protocol
ATOM = "wgmma.m64n128k16.bf16"
CONSUMERS = 2  # warpgroups with 64 rows of the tile each
BLOCK_M, BLOCK_N, BLOCK_K = 64 * CONSUMERS, 128, 64
SLAB = 64  # columns of D that 128 bytes hold


def specialised_product(m: int = 256, n: int = 128, k: int = 384, depth: int = 4) -> UOp:
    """D = A B^T the way Hopper wants it: warps with roles, a ring that the copy engine fills.

    One warpgroup has nearly all its registers taken away; one lane of it keeps the ring full.  Two
    others get these registers and do nothing but multiply: wait for a stage, issue four MMAs, wait
    for them, give the stage back.  Their sums are rounded to bf16, go by stmatrix into a swizzled
    tile, and leave by bulk store.

    a (m, k), b (n, k), d (m, n) bf16; m, n multiples of 128, k of 64.
    """
    atom = layouts.atom_named(ATOM)
    a, b, d = (buffer(s, dtypes.bf16, shape) for s, shape in enumerate(((m, k), (n, k), (m, n))))
    block_m, block_n = blocks(m // BLOCK_M, 0), blocks(n // BLOCK_N, 9)
    group, warp, lane = range_(CONSUMERS + 1, GROUP, AxisType.WARPGROUP), warps(4), lanes()
    tile_a, tile_b = (SharedTile(rows, BLOCK_K, 2, SWIZZLE) for rows in (BLOCK_M, BLOCK_N))
    tile_d = SharedTile(64, BLOCK_N, 2, SWIZZLE)
    ring_a = shared(dtypes.bf16, depth * tile_a.size, 0, "ring_a")
    ring_b = shared(dtypes.bf16, depth * tile_b.size, 1, "ring_b")
    out = shared(dtypes.bf16, CONSUMERS * tile_d.size, 2, "out")
    full, empty = mbarriers(depth, 0, "full"), mbarriers(depth, 1, "empty")
    thread, steps = warp * WARP + lane, k // BLOCK_K
    sums = registers(dtypes.f32, atom.accumulator.registers, 0, "sum")
    c = Cursor()
    with c.when((group < 1) & (thread < 1)):
        for n in range(depth):
            c.init(full.index(n), 1)
            c.init(empty.index(n), CONSUMERS)
        c.fence(Fence.MBAR_INIT)
    c.barrier()
    with c.role("consumers", 0, 4 * CONSUMERS, registers=232, grow=True):
        with c.loop(loop(steps, 0)) as step:
            stage, parity = step % depth, step // depth % 2
            c.wait(full.index(stage), parity)
            my_rows = stage * tile_a.size + group * (64 * BLOCK_K)
            start_a = descriptor(c, ring_a, tile_a, "K", my_rows)
            start_b = descriptor(c, ring_b, tile_b, "K", stage * tile_b.size)
            c.fence(Fence.WGMMA, sums)
            with c.loop(unrolled(BLOCK_K // atom.k, 1)) as ks:
                at_a = advanced(start_a, tile_a, "K", ks * atom.k)
                at_b = advanced(start_b, tile_b, "K", ks * atom.k)
                c.mma(ATOM, sums.index(0), at_a, at_b, keep=(step + ks).ne(0))
            c.commit(Engine.WGMMA)
            c.wait_group(Engine.WGMMA, 0, sums)
            with c.when(thread < 1):
                c.arrive(empty.index(stage))
        pairs = registers(dtypes.u32, atom.accumulator.registers // 2, 1, "pairs")
        with c.loop(unrolled(atom.accumulator.registers // 2, 2)) as r:
            low, high = (
                c.load(sums.index(2 * r + half)).cast(dtypes.bf16).bitcast(dtypes.u16)
                for half in range(2)
            )
            c.store(pairs.index(r), low.cast(dtypes.u32) | (high.cast(dtypes.u32) << 16))
        assert atom.accumulator.fragment is not None
        access = layouts.matrix_access(atom.accumulator.fragment, 2, "column", store=True)
        assert access is not None
        with c.loop(unrolled(access.groups, 3)) as g:
            place = group * tile_d.size + tile_d.index(*access.rows(thread, g))
            c.stmatrix(out.index(place), pairs.index(g * access.move.tiles))
        c.fence(Fence.PROXY_ASYNC)
        c.named_barrier(group + 1, 128)
        with c.when(thread < 1):
            for slab in range(tile_d.slabs):
                source = out.index(group * tile_d.size + slab * (64 * SLAB))
                where = (block_m * BLOCK_M + group * 64, block_n * BLOCK_N + slab * SLAB)
                c.bulk_store(tensor_map(d, (64, SLAB), SWIZZLE), source, *where)
            c.commit(Engine.BULK)
            c.wait_group(Engine.BULK)
    with (
        c.role("producer", 4 * CONSUMERS, 4, registers=40),
        c.when(thread < 1),
        c.loop(loop(steps, 4)) as step,
    ):
        stage, parity = step % depth, step // depth % 2
        c.wait(empty.index(stage), index(1) - parity)
        c.arrive(full.index(stage), tile_a.size_bytes + tile_b.size_bytes)
        for source, ring, tile, first in (
            (a, ring_a, tile_a, block_m * BLOCK_M),
            (b, ring_b, tile_b, block_n * BLOCK_N),
        ):
            box = tensor_map(source, (tile.rows, BLOCK_K), SWIZZLE)
            c.bulk_load(
                ring.index(stage * tile.size), box, full.index(stage), first, step * BLOCK_K
            )
    return c.sink(LaunchArg(blocks_per_sm=1))


# ---- what they give
def _make(name: str, major_a: str, major_b: str) -> Example:
    atom = layouts.atom_named(name)
    k = SWIZZLE // atom.a.element_bytes

    def arrays(rng: np.random.Generator) -> tuple[Array, ...]:
        shapes = (
            (atom.m, k) if major_a == "K" else (k, atom.m),
            (atom.n, k) if major_b == "K" else (k, atom.n),
        )
        operands = zip(shapes, (atom.a, atom.b), strict=True)
        inputs = [whole(rng, shape, o.dtype.numpy) for shape, o in operands]
        return *inputs, unwritten((atom.m, atom.n), atom.accumulator.dtype.numpy)

    def reference(a: Array, b: Array, d: Array) -> dict[int, Array]:
        return product_of(a if major_a == "K" else a.T, b if major_b == "K" else b.T, d)

    mnemonic = {"i8": "IGMMA", "f8e4m3": "QGMMA", "f8e5m2": "QGMMA"}.get(atom.a.type, "HGMMA")
    return Example(
        partial(wgmma_tile, name, major_a, major_b),
        *("sm_90a", arrays, reference),
        sass=(mnemonic, "UTMALDG.2D", "WARPGROUP.ARRIVE"),
    )


EXAMPLES: dict[str, Example] = {
    "wgmma_k": _make("wgmma.m64n64k16.bf16", "K", "K"),
    "wgmma_mn": _make("wgmma.m64n64k16.bf16", "MN", "MN"),
    "wgmma_k_mn": _make("wgmma.m64n64k16.f16", "K", "MN"),
    "wgmma_f16_f16": _make("wgmma.m64n32k16.f16.f16", "K", "K"),
    "wgmma_tf32": _make("wgmma.m64n32k8.tf32", "K", "K"),
    "wgmma_i8": _make("wgmma.m64n32k32.i8", "K", "K"),
    "wgmma_f8": _make("wgmma.m64n32k32.f8e4m3", "K", "K"),
    "wgmma_registers": Example(
        wgmma_from_registers,
        "sm_90a",
        lambda rng: (
            whole(rng, (64, 16), dtypes.bf16.numpy),
            whole(rng, (64, 16), dtypes.bf16.numpy),
            unwritten((64, 64), np.float32),
        ),
        product_of,
        sass=("HGMMA",),
    ),
    "specialised_product": Example(
        specialised_product,
        "sm_90a",
        lambda rng: (
            whole(rng, (256, 384), dtypes.bf16.numpy),
            whole(rng, (128, 384), dtypes.bf16.numpy),
            unwritten((256, 128), dtypes.bf16.numpy),
        ),
        product_of,
        sass=("HGMMA.64x128x16", "UTMALDG.2D", "UTMASTG.2D", "USETMAXREG", "STSM", "SYNCS"),
    ),
}

"""Bulk copies: the tensor memory accelerator moves a box of a tensor to or from SHARED memory.

It works on its own.  What it has written is there once an mbarrier has counted the bytes; what it
shall read must be fenced from the ordinary world to its own (the *proxy* fence) and waited for.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from uopc import layouts
from uopc.dtype import dtypes
from uopc.examples.parts import (
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
from uopc.layouts import SharedTile
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Engine, Fence

ROWS = 8  # of a box
BEFORE = 4  # rows and columns that the first box lies outside


def bulk_tile(swizzle: int, rows: int = 18, columns: int = 40) -> UOp:
    """A tensor copied box by box, into a tile whose chunks stand where the swizzle puts them.

    Boxes begin 4 rows and columns before the tensor and go beyond its end: what lies outside is
    filled with zeros, and counted like all other bytes.
    x (rows, columns) f32; y: x with 4 rows and columns of zeros before it, and behind it as many as
    make whole boxes of 8 rows and `swizzle` bytes (16 elements where there is no swizzle).
    """
    width = swizzle // 4 or 16
    tall, wide = bulk_tile_shape(swizzle, rows, columns)
    x, y = buffer(0, dtypes.f32, (rows, columns)), buffer(1, dtypes.f32, (tall, wide))
    layout = SharedTile(ROWS, width, 4, swizzle)
    tile, full = shared(dtypes.f32, layout.size), mbarriers(1, 0, "full")
    down, right, lane = blocks(tall // ROWS, 0), blocks(wide // width, 1), lanes()
    c = Cursor()
    with c.when(lane < 1):
        c.init(full.index(0), 1)
        c.fence(Fence.MBAR_INIT)
        c.arrive(full.index(0), layout.size_bytes)
        where = (down * ROWS - BEFORE, right * width - BEFORE)
        box = tensor_map(x, (ROWS, width), swizzle)
        c.bulk_load(tile.index(0), box, full.index(0), *where)
    c.barrier()
    c.wait(full.index(0), 0)
    with c.loop(loop(layout.size // WARP)) as k:
        element = k * WARP + lane
        row, column = element // width, element % width
        value = c.load(tile.index(layout.index(row, column)))
        c.store(y.index(down * ROWS + row, right * width + column), value)
    return c.sink()


def bulk_tile_shape(swizzle: int, rows: int = 18, columns: int = 40) -> tuple[int, int]:
    """The shape of y: whole boxes."""
    width = swizzle // 4 or 16
    return -(-(rows + BEFORE) // ROWS) * ROWS, -(-(columns + BEFORE) // width) * width


def bulk_store(rows: int = 40, columns: int = 40) -> UOp:
    """A tensor out of registers: stmatrix into a tile, the proxy fence, one bulk store.

    Each lane has 8 elements of a 16 x 16 tile as tensor cores would leave them; what the tile has
    beyond the tensor is not written.  x, y (rows, columns) bf16.
    """
    size = 16
    x, y = (buffer(slot, dtypes.bf16, (rows, columns)) for slot in range(2))
    layout = SharedTile(size, size, 2, swizzle=32)
    tile, held = shared(dtypes.bf16, layout.size), registers(dtypes.u32, 4, 0, "pairs")
    down, right, lane = blocks(-(-rows // size), 0), blocks(-(-columns // size), 1), lanes()
    fragment = layouts.atom_named("mma.m16n8k16.bf16").a.fragment
    assert fragment is not None
    access = layouts.matrix_access(fragment, 2, "column", store=True)
    assert access is not None
    c = Cursor()
    for n in range(4):
        both = []
        for half in range(2):
            row, column = fragment(lane, 2 * n + half)
            row, column = down * size + row, right * size + column
            inside = (row < rows) & (column < columns)
            value = c.load(x.index(row, column), inside, 0.0)
            both.append(value.bitcast(dtypes.u16).cast(dtypes.u32))
        c.store(held.index(n), both[0] | (both[1] << 16))
    c.stmatrix(tile.index(layout.index(*access.rows(lane, 0))), held.index(0))
    c.fence(Fence.PROXY_ASYNC)
    c.syncwarp()
    with c.when(lane < 1):
        where = (down * size, right * size)
        c.bulk_store(tensor_map(y, (size, size), 32), tile.index(0), *where)
        c.commit(Engine.BULK)
        c.wait_group(Engine.BULK)
    return c.sink()


SIDE = 32  # of a tile of bulk_transpose: rows of 128 bytes


def bulk_transpose(across: int = 4, down: int = 2, depth: int = 2, readers: int = 2) -> UOp:
    """A tensor transposed: one warp has tiles brought into a ring, others write them turned.

    A block takes a row of tiles.  The producer's lane waits until a stage is empty, announces the
    bytes and asks for the box; readers wait for the bytes.  A reader's ordinary loads and the next
    box into the same stage are of different proxies: every lane fences, __syncwarp gathers the
    lanes, then one arrives for its warp.  Reads go down the columns of a tile: the swizzle keeps
    them out of each other's banks.

    x (down * 32, across * 32) f32, y (across * 32, down * 32).
    """
    x = buffer(0, dtypes.f32, (down * SIDE, across * SIDE))
    y = buffer(1, dtypes.f32, (across * SIDE, down * SIDE))
    layout = SharedTile(SIDE, SIDE, 4, swizzle=128)
    ring = shared(dtypes.f32, depth * layout.size, name="ring")
    full, empty = mbarriers(depth, 0, "full"), mbarriers(depth, 1, "empty")
    block, warp, lane = blocks(down), warps(readers + 1), lanes()
    c = Cursor()
    with c.when((warp < 1) & (lane < 1)):
        for n in range(depth):
            c.init(full.index(n), 1)
            c.init(empty.index(n), readers)
        c.fence(Fence.MBAR_INIT)
    c.barrier()
    with c.role("readers", 0, readers), c.loop(loop(across, 0)) as k:
        stage, parity = k % depth, k // depth % 2
        c.wait(full.index(stage), parity)
        with c.loop(loop(SIDE // readers, 1)) as i:
            column = warp * (SIDE // readers) + i
            value = c.load(ring.index(stage * layout.size + layout.index(lane, column)))
            c.store(y.index(k * SIDE + column, block * SIDE + lane), value)
        c.fence(Fence.PROXY_ASYNC)
        c.syncwarp()
        with c.when(lane < 1):
            c.arrive(empty.index(stage))
    with c.role("producer", readers, 1), c.when(lane < 1), c.loop(loop(across, 2)) as k:
        stage, parity = k % depth, k // depth % 2
        c.wait(empty.index(stage), index(1) - parity)
        c.arrive(full.index(stage), layout.size_bytes)
        to, box = ring.index(stage * layout.size), tensor_map(x, (SIDE, SIDE), 128)
        c.bulk_load(to, box, full.index(stage), block * SIDE, k * SIDE)
    return c.sink()


# ---- what they give
def _padded(x: Array, y: Array) -> dict[int, Array]:
    rows, columns = x.shape
    want = np.zeros_like(y)
    want[BEFORE : BEFORE + rows, BEFORE : BEFORE + columns] = x
    return {1: want}


def _bulk_tile(swizzle: int) -> Example:
    return Example(
        partial(bulk_tile, swizzle),
        "sm_90",
        lambda rng: (
            whole(rng, (18, 40), np.float32, 99),
            unwritten(bulk_tile_shape(swizzle), np.float32),
        ),
        _padded,
        sass=("UTMALDG.2D", "SYNCS"),
    )


EXAMPLES: dict[str, Example] = {
    **{f"bulk_tile_{swizzle}": _bulk_tile(swizzle) for swizzle in layouts.SWIZZLES},
    "bulk_store": Example(
        bulk_store,
        "sm_90",
        lambda rng: (
            whole(rng, (40, 40), dtypes.bf16.numpy, 99),
            unwritten((40, 40), dtypes.bf16.numpy),
        ),
        lambda x, y: {1: x},
        sass=("STSM", "UTMASTG.2D"),
    ),
    "bulk_transpose": Example(
        bulk_transpose,
        "sm_90",
        lambda rng: (
            whole(rng, (64, 128), np.float32, 99),
            unwritten((128, 64), np.float32),
        ),
        lambda x, y: {1: x.T.copy()},
        sass=("UTMALDG.2D", "SYNCS"),
    ),
}

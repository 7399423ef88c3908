"""cp.async: a ring of tiles in SHARED memory that fills while older tiles are used."""

from __future__ import annotations

from functools import partial

import numpy as np

from uopc.dtype import dtypes
from uopc.examples.parts import Array, Example, blocks, index, loop, shared, unwritten, whole
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, Engine

THREADS = 64
WIDTH = 4  # elements of 4 bytes that one cp.async copies
TILE = THREADS * WIDTH


def copy_ring(depth: int, tiles: int = 5, grid: int = 2, n: int = 0) -> UOp:
    """Each tile of 256 elements turned round, through a ring of `depth` tiles.

    Step k waits until its tile is there (at most depth - 2 younger groups are pending), meets the
    other threads, whose copies it has not waited for, and asks for tile k + depth - 1.  That one
    goes where step k - 1 has read: the same barrier stands between.  A group is committed in every
    step, also where nothing is left to copy, so that the count of pending groups says the same.

    x (n,) f32, where n is a multiple of 4, all but at most 100 of the elements of the tiles; y
    (grid * tiles * 256,) f32; what lies behind x counts as zeros.
    """
    n = n or grid * tiles * TILE - 100
    x, y = buffer(0, dtypes.f32, (n,)), buffer(1, dtypes.f32, (grid * tiles * TILE,))
    ring = shared(dtypes.f32, depth * TILE, name="ring")
    block, thread = blocks(grid), range_(THREADS, 1, AxisType.LOCAL)
    c = Cursor()

    def fill(k: UOp) -> None:
        at = (block * tiles + k) * TILE + thread * WIDTH
        to = ring.index(k % depth * TILE + thread * WIDTH)
        c.copy_async(to, x.index(at), WIDTH, gate=at < n)

    for early in range(depth - 1):
        fill(index(early))
        c.commit(Engine.CP_ASYNC)
    with c.loop(loop(tiles)) as k:
        c.wait_group(Engine.CP_ASYNC, depth - 2)
        c.barrier()
        following = k + (depth - 1)
        with c.when(following < tiles):
            fill(following)
        c.commit(Engine.CP_ASYNC)
        for i in range(WIDTH):
            element = thread + i * THREADS
            other = c.load(ring.index(k % depth * TILE + (TILE - 1 - element)))
            c.store(y.index((block * tiles + k) * TILE + element), other)
    return c.sink()


def _turned(x: Array, y: Array) -> dict[int, Array]:
    padded = np.append(x, np.zeros(y.size - x.size, x.dtype))
    return {1: padded.reshape(-1, TILE)[:, ::-1].ravel()}


EXAMPLES: dict[str, Example] = {
    f"copy_ring_{depth}": Example(
        partial(copy_ring, depth),
        "sm_80",
        lambda rng: (whole(rng, 2460, np.float32, 99), unwritten(2560, np.float32)),
        _turned,
        sass=("LDGSTS", "LDGDEPBAR", "DEPBAR"),
    )
    for depth in (2, 3)
}

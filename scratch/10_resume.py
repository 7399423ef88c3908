"""A block of two warps in Python: a warp is a generator, and a barrier is a yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

LANES, WARPS = 4, 2
THREADS = LANES * WARPS
Memory = list[float | None]
Warp = Callable[[int, Memory, Memory, Memory], Iterator[str]]


def turn(warp: int, x: Memory, y: Memory, tile: Memory) -> Iterator[str]:
    """y = x backwards, through memory that the block shares."""
    threads = range(LANES * warp, LANES * (warp + 1))
    for t in threads:
        tile[t] = x[t]
    yield "__syncthreads()"
    for t in threads:
        y[t] = tile[THREADS - 1 - t]


def hasty(warp: int, x: Memory, y: Memory, tile: Memory) -> Iterator[str]:
    """The same, but half of the block does not wait."""
    for place in turn(warp, x, y, tile):
        if warp == 0:
            yield place


def run(kernel: Warp, order: Sequence[int]) -> str:
    """Resume every warp up to its next barrier, in this order, until all are done."""
    x: Memory = [float(t) for t in range(THREADS)]
    y: Memory = [None] * THREADS
    tile: Memory = [None] * THREADS  # None is our poison
    warps = {w: kernel(w, x, y, tile) for w in order}
    done: set[int] = set()
    while len(done) < WARPS:
        arrived = 0
        for w in order:
            if w in done:
                continue
            if next(warps[w], None) is None:
                done.add(w)
            else:
                arrived += 1
        if arrived and done:
            return "deadlock: some wait for warps that are gone"
    return str(y)


print("turn, forward: ", run(turn, (0, 1)))
print("turn, backward:", run(turn, (1, 0)))
print("hasty:         ", run(hasty, (0, 1)))

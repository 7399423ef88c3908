"""Sums that several blocks share: the last one to come adds up their parts.

Here because: after `multiply`, when a thread holds sums of a part of k, and before `store`, which
wants those of all of it.
Before: the sums of this part
After:  parts[tile, part, register, thread] = sums; a ticket; IF it is the last one:
        sums = parts[tile, 0] + parts[tile, 1] + ...; what is stored; tickets = 0

A thread of the last block reads what the same thread of the others held, so that the sums are where
they were, and neighbouring lanes always touch neighbouring vectors.  The order of the parts is that
of k, whoever comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from uopc.dtype import AddrSpace, dtypes
from uopc.passes.last_block import is_last
from uopc.passes.pipeline.writer import Writer
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, prod
from uopc.uop.ops import AxisType

WIDEST_BYTES = 16
#: of the parts that a thread has in flight
HELD_BYTES = 256


@contextmanager
def whole_sums(w: Writer, meet: Callable[[], UOp]) -> Iterator[None]:
    """Inside, the thread's sums are those of all of k; where blocks share them, in the last one.

    meet: a barrier of the threads that hold sums.
    """
    if w.part is ix.ZERO:
        yield
        return
    c, blocks = w.c, w.part.arg.size
    tile = ix.flat((r, r.arg.size) for r in w.launched)
    count = prod(r.arg.size for r in w.launched)
    parts = _Parts(w, tile, count)
    tickets = w.parameter(dtypes.u32, count, "tickets").index(tile)
    drawn = w.alloc(AddrSpace.SHARED, dtypes.u32, 1, "drawn")
    leader = ix.below(w.thread, 1)
    parts.store()
    with c.when(is_last(c, tickets, blocks, leader, drawn.index(0), meet)):
        parts.add_up()
        yield
        c.store(tickets, 0, leader)


class _Parts:
    """The sums of all blocks of a tile, in memory: (tile, part, vector of registers, thread)."""

    def __init__(self, w: Writer, tile: UOp, tiles: int) -> None:
        self.w, self.tile, self.blocks = w, tile, w.part.arg.size
        dtype, (held,) = w.total.dtype, w.sums.arg.shape
        self.width = _divisor(held, WIDEST_BYTES // dtype.itemsize)
        self.vectors = held // self.width
        self.most = max(1, HELD_BYTES // (self.width * dtype.itemsize))
        size = tiles * self.blocks * held * w.holders
        self.memory = w.parameter(dtype, size, "parts")

    def _at(self, part: UOp, vector: UOp, e: UOp) -> UOp:
        w = self.w
        place = (
            *((self.tile, 1), (part, self.blocks), (vector, self.vectors)),
            *((w.of_slice, w.holders), (e, self.width)),
        )
        return self.memory.index(ix.flat(place))

    def _sum(self, vector: UOp, e: UOp) -> UOp:
        return self.w.sums.index(ix.add(ix.scale(vector, self.width), e))

    def store(self) -> None:
        """Those of this block."""
        w = self.w
        vector, e = w.range(self.vectors), w.range(self.width, digit="v")
        value = w.c.load(self._sum(vector, e))
        w.store_each(self._at(w.part, vector, e), value, vector, e)

    def add_up(self) -> None:
        """Several vectors of several parts are on their way at once."""
        w, c = self.w, self.w.c
        at_once = _divisor(self.blocks, self.most)
        side_by_side = _divisor(self.vectors, max(1, self.most // at_once))
        held = w.alloc(
            *(AddrSpace.REG, w.total.dtype, at_once * side_by_side * self.width, "part_sums")
        )

        def fresh() -> tuple[UOp, UOp, UOp, UOp]:
            sizes = (at_once, side_by_side, self.width)
            part, vector, e = (w.range(n, digit=d) for n, d in zip(sizes, "uuv", strict=True))
            place = held.index(ix.flat(zip((part, vector, e), sizes, strict=True)))
            return part, vector, e, place

        w.zero_sums()
        outer = w.range(self.vectors // side_by_side)
        batch = w.range(self.blocks // at_once, AxisType.LOOP, "k")
        with w.loops(outer, batch):
            first_part, first = ix.scale(batch, at_once), ix.scale(outer, side_by_side)
            part, vector, e, place = fresh()
            there = self._at(ix.add(first_part, part), ix.add(first, vector), e)
            w.store_each(place, c.load(there), part, vector, e)
            part, vector, e, place = fresh()
            with w.loops(part, vector, e):
                sum_ = self._sum(ix.add(first, vector), e)
                c.store(sum_, c.load(sum_) + c.load(place))


def _divisor(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most`."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)

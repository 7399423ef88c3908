"""Sums by ordinary arithmetic: what the next step multiplies is loaded while this one multiplies.

Before: REDUCE(A * B, t, kk)                 A, B = STAGE(SHARED, ...)
After:  start the ring; part[0] = A, B at k = 0
        LOOP t: ask for a tile
            for kk: part[(kk + 1) % 2] = A, B at kk + 1; sums += a * b of part[kk % 2]
            wait for tile t + 1; part[0] = A, B at its k = 0; sums += a * b of the last step

Steps of a tile are unrolled, up to `Plan.unrolled`.  The last loads of all take the first tile once
more: a branch around them would part them from the multiplications that hide them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from uopc.dtype import AddrSpace
from uopc.passes.effects import FUSED
from uopc.passes.pipeline.writer import Writer, flat, form_of, place_in_tile
from uopc.plan import COLUMNS, PARITIES
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, prod
from uopc.uop.ops import AxisType, Ops

WIDEST_BYTES = 16


class Ring(Protocol):
    """How tiles come to shared memory while others are multiplied."""

    def start(self) -> None:
        """Ask for the first tiles, and wait for the very first."""

    def begin(self, tile: UOp) -> None:
        """Ask for the tile that takes the place of one that all have read."""

    def follow(self, tile: UOp) -> None:
        """This thread has read a tile: wait for the one after it."""


def arithmetic(w: Writer, ring: Ring) -> None:
    """The sums of a thread, over all tiles."""
    a, b = (_Part.of(w, u) for u in w.total.src[0].src)
    steps = w.inner.arg.size if w.inner.op is Ops.RANGE else 1
    unrolled = w.plan.unrolled
    bodies = steps // unrolled

    def load(tile: UOp, step: UOp, buffer: UOp) -> None:
        for part in (a, b):
            part.load(w, ix.mod(tile, w.plan.depth), step, buffer)

    w.start_sums()
    ring.start()
    load(ix.ZERO, ix.ZERO, ix.ZERO)
    with w.loops(w.step):
        ring.begin(w.step)
        body = w.range(bodies, AxisType.LOOP, "k")
        with w.loops(body):
            first = ix.scale(body, unrolled)
            if unrolled > 1:
                step = w.range(unrolled - 1)
                with w.loops(step):
                    after = ix.add(step, ix.ONE)
                    load(w.step, ix.add(first, after), ix.mod(after, 2))
                    _multiply(w, a, b, ix.mod(step, 2))
            if unrolled % 2:  # the next body begins where this one ends
                _multiply(w, a, b, ix.ZERO)
            if w.steps > 1:
                more = ix.below(ix.add(w.step, ix.ONE), w.steps)
                with w.when(ix.conj(ix.at_least(body, bodies - 1), more)):
                    ring.follow(w.step)
            following = ix.add(body, ix.ONE)
            tile = ix.mod(ix.add(w.step, ix.div(following, bodies)), w.steps)
            load(tile, ix.scale(ix.mod(following, bodies), unrolled), ix.ZERO)
            if unrolled % 2 == 0:
                _multiply(w, a, b, ix.ONE)


def _multiply(w: Writer, a: _Part, b: _Part, buffer: UOp) -> None:
    """One step of k: every sum of the thread, line by line.  Of two lines the second goes back, so
    that its first operand is the last one's: operands stay in the register cache."""
    by_rows = w.plan.order != COLUMNS
    line, across = (a.size, b.size) if by_rows else (b.size, a.size)
    lines = w.range(line // 2)
    with w.loops(lines):
        for back in (False, True):
            number = w.range(across)
            with w.loops(number):
                along = ix.add(ix.scale(lines, 2), ix.index(int(back)))
                at = ix.sub(ix.index(across - 1), number) if back else number
                if w.plan.order == PARITIES:  # 0, 2, 4, ... 1, 3, 5, ...
                    half = across // 2
                    at = ix.add(ix.scale(ix.mod(at, half), 2), ix.div(at, half))
                row, column = (along, at) if by_rows else (at, along)
                place = w.sums.index(ix.add(ix.scale(row, b.size), column))
                x, y = a.at(w, buffer, row), b.at(w, buffer, column)
                total = w.c.load(place)
                fused = total.dtype in FUSED
                w.c.store(place, x.fma(y, total) if fused else total + x * y)


@dataclass(frozen=True)
class _Part:
    """What a thread holds of an operand: of one step of k `size` elements, and of another one.

    digits: of a thread's sums, those that number them.
    """

    stage: UOp
    digits: tuple[UOp, ...]
    held: UOp
    size: int

    @classmethod
    def of(cls, w: Writer, stage: UOp) -> _Part:
        digits = tuple(r for r in w.digits if r in free(stage.src[2]))
        size = prod(r.arg.size for r in digits)
        name = f"{stage.arg.name}_part"
        return cls(stage, digits, w.alloc(AddrSpace.REG, stage.dtype, 2 * size, name), size)

    def at(self, w: Writer, buffer: UOp, number: UOp) -> UOp:
        return w.c.load(self.held.index(ix.add(ix.scale(buffer, self.size), number)))

    def load(self, w: Writer, slot: UOp, step: UOp, buffer: UOp) -> None:
        """The elements of a step of the tile in a place of the ring, neighbours at once."""
        stage, form = self.stage, form_of(self.stage)
        now = w.fresh(self.digits)
        *_, last = self.digits
        width = min(last.arg.size, WIDEST_BYTES // stage.dtype.itemsize)
        several, v = w.range(last.arg.size // width), w.range(width, digit="v")
        ranges = [*now.values()][:-1] + [several, v]
        now[last] = ix.add(ix.scale(several, width), v)
        inner = {w.inner: step} if w.inner.op is Ops.RANGE else {}
        row, k = ix.digits(ix.substitute(stage.src[2], {**now, **inner}), (form.rows, form.k))
        place = ix.add(ix.scale(slot, stage.arg.size), place_in_tile(form, row, k))
        element = w.c.load(w.memory[stage.arg.name].index(place))
        to = ix.add(ix.scale(buffer, self.size), flat(self.digits, now))
        w.store_each(self.held.index(to), element, *ranges)

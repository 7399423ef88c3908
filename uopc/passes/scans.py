"""A SCAN over threads: prefixes of lanes, of warps and of chunks, in this order.  MAPPED -> MAPPED.

Here because: after `split` (lanes are known), beside `cooperate`, which does the same for REDUCE.
Before: SCAN(x, 0, s:8 REDUCE, p:8 LOCAL, u:4 UPCAST, l:32 LOCAL, v:4 UPCAST; ADD)
After:  t0 = REDUCE(x, v)                           of the thread's elements that lie together
        t1 = t0 with those of the lanes before it: 5 times t + SHUFFLE(t, UP) where there is such
             a lane; STAGE(REG); t2 = the SHUFFLE of it that the last lane has
        t3 = REDUCE(t2, u); t4 = STAGE(SHARED, 8 values), one of each warp; t5 = REDUCE(t4, w:8)
        b5 = SCAN(t5, 0, s; exclusive)              what earlier steps came to
        b4 = b5 + REDUCE(t4 where w is before p)    and warps before this one
        b2 = SCAN(t2, b4, u; exclusive)             and chunks of this warp
        b1 = b2 + SHUFFLE(t1, UP by 1)              and lanes
        SCAN(x, b1, v)                              the elements, one after the other

So a thread combines each element twice, a step of the loop has one exchange for all its chunks, and
the tree depends on the digits alone.  What is left goes along ranges of one thread: `effects` walks
them with an accumulator.  Backwards all of it is mirrored: lanes look DOWN, warps to those behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.dtype import AddrSpace
from uopc.errors import TargetError
from uopc.kernel import UNASKED, Fired
from uopc.passes.bind import hardware_ranges
from uopc.passes.cooperate import UNROLLED, WARP, upcasts
from uopc.symbolic import index as ix
from uopc.uop.combine import identity, step
from uopc.uop.facts import free
from uopc.uop.node import UOp, inherit, prod, toposort, where_from
from uopc.uop.ops import (
    SERIAL,
    AxisType,
    Combine,
    Ops,
    RangeArg,
    ReduceArg,
    ScanArg,
    ShuffleArg,
    ShuffleMode,
    StageArg,
)


def scans(root: UOp, fired: Fired = UNASKED) -> UOp:
    """MAPPED graph in which every SCAN goes along ranges of one thread.

    Raises TargetError where a loop inside of a scan's steps would have to remember many of them.
    """
    order = toposort(root)
    if not any(u.op is Ops.SCAN for u in order):
        return root
    _check_loops(order)
    lanes = hardware_ranges(root, AxisType.LOCAL)
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else ix.remake(u, src)
        if u.op is Ops.SCAN and any(r.arg.kind is AxisType.LOCAL for r in u.src[2:]):
            new = _Scan(new, lanes).result()
            fired.add("scan-over-lanes")
        memo[u] = new
    return memo[root]


def _check_loops(order: list[UOp]) -> None:
    """A SCAN has one accumulator for each register copy: loops that it varies with stand around its
    steps, not inside of them."""
    for u in order:
        if u.op is not Ops.REDUCE:
            continue
        loops = {r for r in u.src[1:] if r.arg.kind in SERIAL}
        for x in toposort(u.src[0]) if loops else ():
            if x.op is not Ops.SCAN:
                continue
            steps = {r for r in x.src[2:] if r.arg.kind in SERIAL}
            if steps and not steps <= loops and not free(x).isdisjoint(loops):
                raise TargetError(
                    f"SCAN at {where_from(x)} is computed step by step, and REDUCE at "
                    f"{where_from(u)} loops over another axis inside of each step. Compute one of "
                    "them in a kernel of its own (tensors do that by themselves)."
                )


@dataclass(frozen=True)
class _Level:
    """One digit of the way, and what one of its iterations comes to.

    ranges: of the loop's steps, register copies or lanes; read: of lanes that exchange through
    SHARED memory, the range that counts what they wrote.
    """

    ranges: tuple[UOp, ...]
    total: UOp
    read: UOp | None = None


class _Scan:
    """One SCAN that goes along lanes: totals from the innermost digit outwards, then what comes
    before each from the outermost one inwards."""

    def __init__(self, scan: UOp, lanes: tuple[UOp, ...]) -> None:
        self.scan, self.lanes = scan, lanes
        self.arg: ScanArg = scan.arg
        self.value, self.start = scan.src[:2]
        (self.nothing,) = identity(self.arg.combine, (scan.dtype,))
        ranges = scan.src[2:]
        self.inner = tuple([r for r in ranges if r.arg.digit == "v"])
        self.steps = tuple([r for r in ranges if r.arg.kind in SERIAL])
        self.between = [r for r in reversed(ranges) if r not in self.inner + self.steps]
        self.levels: list[_Level] = []
        self.last: list[UOp] = []  # gates: of lanes that all have a total, one has to write it

    def result(self) -> UOp:
        """The elements of a thread, one after the other, from what comes before them on."""
        total = self._of_inner()
        for r in self.between:
            total = self._up(r, total)
        if self.steps:
            self.levels.append(_Level(self.steps, total))
        start = self.start
        for level in reversed(self.levels):
            start = self._down(level, start)
        if self.inner:
            return self._along(self.value, start, self.arg.exclusive, *self.inner)
        return start if self.arg.exclusive else self._step(start, self.value)

    # ---- outwards
    def _of_inner(self) -> UOp:
        """The elements of a thread that lie together, combined."""
        if self.inner:
            return self._fold(self.value, *self.inner)
        signed = self.scan.dtype.is_float and self.arg.combine is Combine.ADD
        return self._step(self.nothing, self.value) if signed else self.value

    def _up(self, r: UOp, total: UOp) -> UOp:
        """What all iterations of a digit come to."""
        if r.arg.kind is AxisType.UPCAST:
            self.levels.append(_Level((r,), total))
            return self._fold(total, r)
        in_warp = self._in_warp(r)
        groups = r.arg.size // in_warp
        if in_warp > 1:
            total = self._staged(self._over_lanes(r, total))
            self.levels.append(_Level((r,), total))
            self.last.append(ix.at_least(self._place(r), in_warp - 1))
            if groups == 1:
                end = ix.index(0 if self.arg.reverse else in_warp - 1)
                return self._staged(self._of_place(r, total, end))
        stage, w = self._exchanged(r, total, in_warp)
        self.levels.append(_Level((r,), stage, w))
        return self._fold(stage, w)

    def _over_lanes(self, r: UOp, value: UOp) -> UOp:
        """The value with those of the lanes before it, of one warp."""
        by = 1
        while by < self._in_warp(r):
            longer = self._step(self._moved(r, value, by), value)
            value = UOp(Ops.WHERE, (ix.at_least(self._place(r), by), longer, value))
            by *= 2
        return value

    def _exchanged(self, r: UOp, total: UOp, in_warp: int) -> tuple[UOp, UOp]:
        """(what every warp has come to, the range that counts them), through SHARED memory."""
        mine, groups = free(total), r.arg.size // in_warp
        folded = [x.ranges[0] for x in self.levels if x.ranges[0].arg.kind is AxisType.LOCAL]
        others = [x for x in reversed(self.lanes) if x is not r and x in mine and x not in folded]
        absent = [ix.below(x, 1) for x in self.lanes if x is not r and x not in mine]
        copies = upcasts(mine)
        kind = AxisType.UPCAST if groups <= UNROLLED else AxisType.REDUCE
        w = UOp(Ops.RANGE, (), RangeArg(r.arg.axis, groups, kind, "w"))
        rest = [(x, x.arg.size) for x in (*others, *copies)]
        write, read = (ix.flat([(g, groups), *rest]) for g in (ix.div(r, in_warp), w))
        gate = ix.conj(*self.last, *absent)
        arg = StageArg(AddrSpace.SHARED, groups * prod(n for _, n in rest), True)
        stage = UOp(Ops.STAGE, (total, write, read, gate, *copies), arg)
        return inherit(stage, self.scan), w

    # ---- inwards
    def _down(self, level: _Level, start: UOp) -> UOp:
        """What comes before an iteration of a digit, given what comes before all of them."""
        r = level.ranges[0]
        if r.arg.kind is not AxisType.LOCAL:
            return self._along(level.total, start, True, *level.ranges)
        if (w := level.read) is not None:
            group = ix.div(r, r.arg.size // w.arg.size)
            first = ix.lt(group, w) if self.arg.reverse else ix.lt(w, group)
            before = self._fold(UOp(Ops.WHERE, (first, level.total, self.nothing)), w)
        else:
            moved = self._moved(r, level.total, 1)
            before = UOp(Ops.WHERE, (ix.at_least(self._place(r), 1), moved, self.nothing))
        return before if start is self.nothing else self._step(start, before)

    # ---- lanes
    def _stride(self, r: UOp) -> int:
        """Threads from one value of a LOCAL range to the next."""
        return prod(x.arg.size for x in self.lanes[: self.lanes.index(r)])

    def _in_warp(self, r: UOp) -> int:
        """How many values of a LOCAL range stand in lanes of one warp, one after the other."""
        n, stride = r.arg.size, self._stride(r)
        reached = _power_of_two(n) and _power_of_two(stride) and stride < WARP
        return min(n, WARP // stride) if reached else 1

    def _place(self, r: UOp) -> UOp:
        """How many lanes of the warp come before this one."""
        in_warp = self._in_warp(r)
        place = ix.mod(r, in_warp)
        return ix.sub(ix.index(in_warp - 1), place) if self.arg.reverse else place

    def _moved(self, r: UOp, value: UOp, by: int) -> UOp:
        """What the lane that comes `by` before this one has; anything where there is none."""
        mode = ShuffleMode.DOWN if self.arg.reverse else ShuffleMode.UP
        if self.arg.reverse and prod(x.arg.size for x in self.lanes) % WARP:
            place = ix.add(r, ix.index(by))  # DOWN would ask threads that are not there
            return self._of_place(r, value, ix.mod(place, self._in_warp(r)))
        return UOp(Ops.SHUFFLE, (value,), ShuffleArg(by * self._stride(r), mode))

    def _of_place(self, r: UOp, value: UOp, place: UOp) -> UOp:
        """What another of the lanes of a warp that work together has."""
        thread = ix.flat((x, x.arg.size) for x in reversed(self.lanes))
        away = ix.sub(place, ix.mod(r, self._in_warp(r)))
        lane = ix.mod(ix.add(thread, ix.scale(away, self._stride(r))), WARP)
        return UOp(Ops.SHUFFLE, (value, lane), ShuffleArg(mode=ShuffleMode.INDEX))

    # ---- what they are made of
    def _step(self, a: UOp, b: UOp) -> UOp:
        return inherit(step(self.arg.combine, (a,), (b,))[0], self.scan)

    def _fold(self, value: UOp, *over: UOp) -> UOp:
        return inherit(UOp(Ops.REDUCE, (value, *over), ReduceArg(self.arg.combine)), self.scan)

    def _along(self, value: UOp, start: UOp, exclusive: bool, *ranges: UOp) -> UOp:
        arg = ScanArg(self.arg.combine, self.arg.reverse, exclusive)
        return inherit(UOp(Ops.SCAN, (value, start, *ranges), arg), self.scan)

    def _staged(self, value: UOp) -> UOp:
        """Kept in registers: several nests read it, and lanes meet for each SHUFFLE."""
        copies = upcasts(free(value))
        if not copies:
            return value
        at = ix.flat((r, r.arg.size) for r in copies)
        arg = StageArg(AddrSpace.REG, prod(r.arg.size for r in copies))
        return inherit(UOp(Ops.STAGE, (value, at, at, ix.TRUE, *copies), arg), self.scan)


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0

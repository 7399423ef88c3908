"""Faults of a run as reports with lanes and loop values, which a second, traced run tells.

A fault's numbers say which thread was at which place, and not in which round of its loops.  The
emulator does the same again every time, so a run that is traced at these threads finds the same
faults; the last event of each of the two accesses before a fault showed is the one meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from uopc.faults.errors import ProxyFenceError, Report
from uopc.faults.explain import WARP, Witness, explain
from uopc.faults.raw import SEVERAL_LANES, FaultKind, RawFault
from uopc.launches import Launch, Launches
from uopc.render.emulate import render_emulated
from uopc.runtime.arrays import HostArray
from uopc.runtime.emulated import Event, RunOptions
from uopc.runtime.program import Program
from uopc.tracing import Reader, Thread
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


def explained(
    x: Launches,
    one: Launch,
    before: Sequence[HostArray],
    faults: Sequence[RawFault],
    options: RunOptions,
) -> list[Report]:
    """One report of each defect; before: the arrays that the run with these faults began with."""
    threads = dict.fromkeys(t for raw in faults for who in _Who.both(raw) for t in who.threads())
    source = render_emulated(one.program, one.name, target=x.target, check=True, trace=True)
    again = Program(source).run([a.copy() for a in before], replace(options, traced=tuple(threads)))
    seen = _Seen(Reader(source), again.events)
    reports: dict[object, Report] = {}
    stuck = None
    for raw in again.faults:
        if raw.kind is FaultKind.DEADLOCK:
            if raw.block == stuck:
                continue  # the first report tells of all warps of its block
            stuck = raw.block
        now, earlier = seen.of(raw)
        report = explain(
            raw, source, one.name, seen=now, seen_before=earlier, together=again.faults
        )
        reports.setdefault(_defect(report), report)
    return list(reports.values())


def _defect(report: Report) -> object:
    """What two reports have in common that are mended together."""
    fence = isinstance(report, ProxyFenceError)  # one fence serves all accesses after it
    nodes = () if fence else tuple(a.node for a in report.accesses)
    return type(report), nodes, report.memory, report.hint


@dataclass(frozen=True)
class _Who:
    """Where a fault's access was made and by whom; lane 32 for several lanes."""

    place: int
    block: int
    warp: int
    lane: int

    @classmethod
    def both(cls, raw: RawFault) -> tuple[_Who, _Who]:
        """Of the access that met the fault, and of the one before it (place -1 for none)."""
        return (
            cls(raw.place, raw.block, raw.warp, raw.lane),
            cls(raw.other_place, raw.other_block, raw.other_warp, raw.other_lane),
        )

    def threads(self) -> Iterable[Thread]:
        """(block, thread) of all that may be meant."""
        if self.place >= 0 and self.warp >= 0:
            lanes = range(WARP) if self.lane == SEVERAL_LANES else (self.lane,)
            yield from ((self.block, WARP * self.warp + n) for n in lanes)


@dataclass(frozen=True)
class _Seen:
    """What chosen threads of a run did."""

    reader: Reader
    events: tuple[Event, ...]

    def of(self, raw: RawFault) -> tuple[Witness, Witness]:
        """The lanes and loops of the two accesses of a fault."""
        at, other = _Who.both(raw)
        # an access is told after it was looked at
        now = self._last(at, raw, raw.moment + 1)
        mine = (at.block, WARP * at.warp + now.lane)
        return now, self._last(other, raw, raw.moment, unlike=mine)

    def _last(self, who: _Who, raw: RawFault, moment: int, unlike: Thread | None = None) -> Witness:
        """The last access that may be meant; of several lanes', not that of the thread `unlike`."""
        meant = set(who.threads())
        if who.lane == SEVERAL_LANES:
            meant.discard(unlike or (-1, -1))
        for e in reversed(self.events[: max(moment, 0)]):
            if e.place == who.place and (e.block, e.thread) in meant:
                node = self.reader.source.places[e.place]
                if _touches(node, e, raw):
                    return Witness(e.thread % WARP, self.reader.loops(node, e.loops))
        return self._beside(who, raw.moment)

    def _beside(self, who: _Who, moment: int) -> Witness:
        """A value inside another one's text is not told: what the thread does next, in the same
        scopes, is in the same round."""
        where, places = self.reader.where, self.reader.source.places
        if who.place < 0 or moment < 0 or places[who.place] not in where:
            return Witness(who.lane)
        here, meant = where[places[who.place]].scopes, set(who.threads())
        for e in self.events[moment:]:
            if (e.block, e.thread) in meant and len(meant) == 1:
                node = places[e.place]
                if node in where and where[node].scopes == here:
                    return Witness(who.lane, self.reader.loops(node, e.loops))
                break
        return Witness(who.lane)


def _touches(node: UOp, e: Event, raw: RawFault) -> bool:
    """Does the access of an event cover the byte of a fault?  Copies of boxes may be anywhere."""
    if node.op not in (Ops.LOAD, Ops.STORE, Ops.ATOMIC):
        return True
    if e.address < 0:
        return False  # the value that was read, not the access
    width = 1 if node.op is Ops.ATOMIC or node.arg is None else node.arg.width
    return e.address <= raw.offset_bytes < e.address + width * node.src[0].dtype.itemsize

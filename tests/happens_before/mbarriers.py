"""mbarriers as objects of single arrivals, and what makes their phases ambiguous.

A wait names a parity, an arrival not even that: which phase they mean is decided by when they come.
It is certain only where happens-before says so:

- a wait that passes after phase p must know that phase p - 1 had ended before, else the same parity
  could have let it pass two phases earlier;
- the next phase must not end before the wait has passed, else it could miss its phase;
- an arrival of a phase must know that the phases before have ended, else it could count for them
  (which nobody sees who waits for later phases only, where no bytes hold a phase open).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.happens_before.history import History, Knowledge
from tests.happens_before.log import Fault
from uopc.uop.node import UOp

#: what the fault of mixed-up phases says: who meets whom depends on the schedule
AMBIGUOUS = ("parity alias", "late wait", "early arrival", "early warp")


@dataclass(frozen=True)
class Use:
    """A wait that passed, or an arrival: ended phases at that time, and who did it where."""

    phase: int
    event: int
    knows: bool  # that the phases before had ended
    place: UOp
    block: int
    thread: int


@dataclass
class MBarrier:
    """One object of a block.  phase: how many phases have ended."""

    memory: UOp
    element: int
    count: int = 0
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    carried: Knowledge = field(default_factory=Knowledge)
    inits: list[Use] = field(default_factory=list)
    users: list[Use] = field(default_factory=list)  # all that must come after the init
    ended: list[int] = field(default_factory=list)  # event of the end of each phase
    needed: list[int] = field(default_factory=list)  # all that took part until the end of each
    snapshots: list[Knowledge] = field(default_factory=list)
    took_part: int = 0
    expects_bytes: bool = False
    waits: list[Use] = field(default_factory=list)
    arrivals: list[Use] = field(default_factory=list)

    def init(self, count: int, event: int, place: UOp, block: int, thread: int) -> None:
        self.inits.append(Use(0, event, True, place, block, thread))
        self.count = self.pending = count
        self.bytes = 0

    def init_events(self) -> list[int]:
        return [use.event for use in self.inits]

    def knows_ends(self, known: int, phases: int) -> bool:
        """Does one who knows these events know that so many phases have ended?

        It knows the end of one of them, or all that took part until then; where only arrivals
        count, enough of them, whichever they were."""
        if phases <= 0:
            return True
        if known >> self.ended[phases - 1] & 1 or not self.needed[phases - 1] & ~known:
            return True
        arrived = sum(known >> use.event & 1 for use in self.arrivals)
        return not self.expects_bytes and arrived >= phases * self.count

    def arrive(self, knowledge: Knowledge, event: int, expected: int) -> bool:
        """One arrival; false where the phase takes none any more."""
        if self.pending == 0:
            return False
        self.carried |= knowledge
        self.took_part |= 1 << event
        self.bytes += expected
        self.expects_bytes |= expected > 0
        self.pending -= 1
        return True

    def complete_bytes(self, knowledge: Knowledge, event: int, size: int) -> None:
        """A bulk copy has written so many bytes."""
        self.carried |= knowledge
        self.took_part |= 1 << event
        self.bytes -= size

    def end_phase(self, history: History) -> bool:
        """End the phase if everybody and everything has come."""
        if not self.inits or self.pending or self.bytes:
            return False
        event = history.add(self.carried.known)
        self.carried |= Knowledge(known=1 << event)
        self.ended.append(event)
        self.needed.append(self.took_part)
        self.snapshots.append(self.carried)
        self.phase += 1
        self.pending = self.count
        return True

    def passes(self, parity: int) -> bool:
        """Has the phase of this parity ended, seen from the current one?"""
        return (self.phase & 1) != (parity & 1)

    def faults(self, history: History) -> Iterator[Fault]:
        """Uses without an init before them, and phases that another schedule could mix up."""
        for again in self.inits[1:]:
            yield self._fault(again, "initialised twice")
        for use in self.users:
            if not any(history.before(e, use.event) for e in self.init_events()):
                yield self._fault(use, "no init is ordered before")
        for wait in self.waits:
            if not wait.knows:
                yield self._fault(wait, f"{AMBIGUOUS[0]}: two phases earlier it would pass too")
            elif wait.phase < self.phase and not history.before(wait.event, self.ended[wait.phase]):
                yield self._fault(wait, f"{AMBIGUOUS[1]}: the next phase may end before it")
        for arrival in self.arrivals:
            seen = self.expects_bytes or any(1 <= w.phase <= arrival.phase for w in self.waits)
            if seen and not arrival.knows:
                yield self._fault(arrival, f"{AMBIGUOUS[2]}: it may count for a phase before")

    def _fault(self, use: Use, detail: str) -> Fault:
        return Fault(
            "MBARRIER",
            use.place,
            self.memory,
            self.element,
            None,
            use.block,
            use.thread,
            detail,
        )

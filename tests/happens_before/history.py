"""What happened before what: every stretch of one agent's work is an event, its past a set of bits.

An agent is a single thread or a single asynchronous operation.  A thread begins a new event at
each release and each acquire, so that what it does inside one event needs no order of its own.
`past` of an event has a bit for each event that is ordered before it, the agent's own earlier ones
included: the graph of happens-before, closed transitively, without clocks and without sharing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knowledge:
    """What a thread knows, as sets of events.

    known: all that is ordered before it; fenced: events whose ordinary accesses were fenced by the
    thread that made them, for asynchronous ones; announced: the same for fresh mbarriers.
    """

    known: int = 0
    fenced: int = 0
    announced: int = 0

    def __or__(self, other: Knowledge) -> Knowledge:
        return Knowledge(
            self.known | other.known,
            self.fenced | other.fenced,
            self.announced | other.announced,
        )


class History:
    """All events of a launch."""

    def __init__(self) -> None:
        self.past: list[int] = []

    def add(self, past: int) -> int:
        """A new event after those in `past`; gives its number."""
        self.past.append(past)
        return len(self.past) - 1

    def before(self, a: int, b: int) -> bool:
        """Is event a before event b, or the same?"""
        return a == b or bool(self.past[b] >> a & 1)

    def ordered(self, a: int, b: int) -> bool:
        """Is one of them before the other?"""
        return self.before(a, b) or self.before(b, a)

"""Why a kernel is as it is: what each pass did, which rule made each choice, why it ends there.

A step is described by its own records, whoever made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from uopc.inspect.records import Boundary, PassReport
from uopc.kernel import Passed
from uopc.schedule.plan import Schedule, Stored
from uopc.uop.text import show


class Lowered(Protocol):
    """One launch of a kernel that remembers how it was lowered (`uopc.compiled.Step`)."""

    @property
    def trace(self) -> tuple[Passed, ...]: ...


def passes(step: Lowered) -> tuple[PassReport, ...]:
    """The graph after each pass, in order, with the rules that fired in it.

    The first one is the graph that the passes began with.
    """
    before = ""
    reports = []
    for p in step.trace:
        text = show(p.graph)
        reports.append(PassReport(p.name, p.why, text, p.rules, p.stage.name, text != before))
        before = text
    return tuple(reports)


def boundaries(plan: Schedule, last: Sequence[int]) -> tuple[Boundary, ...]:
    """What a schedule stores, and why; then what is computed again instead, and what was kept
    apart.

    last: for each kernel of the schedule the number of its last launch, counted from 0: a kernel
    may have several.  Texts count launches from 1.
    """
    found = [
        Boundary(last[n], _crossing(x, last), x.bytes)
        for n, kernel in enumerate(plan.launches)
        for x in kernel.stored
    ]
    found += [Boundary(-1, f"computed again: {reason}") for reason in plan.again]
    apart = plan.refused.most_common()
    return (*found, *(Boundary(-1, f"kept apart, {n} x: {reason}") for reason, n in apart))


def _crossing(x: Stored, last: Sequence[int]) -> str:
    """A stored value with its reason and its bytes."""
    said = f"{x.value}: {x.why}. {x.written} bytes are written"
    readers = [f"{size} by launch {last[n] + 1}" for n, size in x.read]
    if readers:
        said += f", read {' and '.join(readers)}"
    return f"{said}; not in place: {x.apart}" if x.apart else said

"""Why a kernel is as it is: what each pass did, which rule made each choice.

A step is described by its own records, whoever made it.
"""

from __future__ import annotations

from typing import Protocol

from uopc.inspect.records import PassReport
from uopc.kernel import Passed
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

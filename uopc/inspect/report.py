"""All there is to say about a launch, or a program of several, without a GPU.

`Kernel.report()`, `uopc inspect` and `uopc view` come here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

from uopc.inspect.access import listing
from uopc.inspect.advice import advice
from uopc.inspect.explain import passes
from uopc.inspect.gpus import GPU, gpu
from uopc.inspect.records import Boundary, Decision, ProgramReport, Report
from uopc.inspect.resources import resources
from uopc.inspect.roofline import roofline
from uopc.inspect.warps import Counts
from uopc.kernel import Passed, ProgramTree, Source
from uopc.opts import Opts
from uopc.uop.node import UOp
from uopc.uop.stages import Stage


class Launched(Protocol):
    """What is reported on: a step of a compiled kernel (`uopc.compiled.Step`)."""

    @property
    def opts(self) -> Opts:
        """Its choices."""

    @property
    def program(self) -> ProgramTree:
        """Its tree."""

    @property
    def cuda_source(self) -> Source:
        """Its CUDA text.  Raises UsageError where it is for a CPU."""

    @property
    def trace(self) -> tuple[Passed, ...]:
        """The graph after each pass."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Which rule made which choice."""


def report(
    step: Launched, on: str | GPU | None = None, found: Mapping[UOp, Counts] | None = None
) -> Report:
    """One launch.

    on: the GPU that its times are for, by name or as a record; None: a usual one of its target.
    found: counts of accesses of an emulated run, by node, for those that data decides.

    Raises UsageError for a kernel that is for a CPU, or a GPU that is not known.
    """
    source, program = step.cuda_source, step.program
    part = gpu(on, source.target)
    text = listing(program, source.name, source.target, found)
    used = resources(source, program.launch, part.sms)
    walls = roofline(program, text.accesses, used, part)
    return Report(
        name=source.name,
        target=source.target,
        grid=program.launch.grid,
        block=program.launch.block,
        cluster=program.launch.cluster,
        opts=step.opts,
        source=text.lines,
        accesses=text.accesses,
        resources=used,
        roofline=walls,
        decisions=step.decisions,
        passes=passes(step),
        warnings=advice(step.opts, program, text.accesses, used, part, _is_by_hand(step)),
        program=program,
    )


def _is_by_hand(step: Launched) -> bool:
    """Is it loop IR that somebody wrote, instead of a body that choices were made for?"""
    return len(step.trace) == 1 and step.trace[0].stage is Stage.LOOPS


def program_report(
    name: str,
    steps: Sequence[Launched],
    on: str | GPU | None = None,
    boundaries: Sequence[Boundary] = (),
    found: Sequence[Mapping[UOp, Counts]] = (),
    least_bytes: int = 0,
) -> ProgramReport:
    """Launches in order.

    boundaries, least_bytes: of a schedule; without one the fewest bytes are those that the launches
    must move.  found: counts for each launch, or none.
    """
    reports = [report(step, on, counts) for step, counts in itertools.zip_longest(steps, found)]
    moved = sum(r.roofline.must_bytes for r in reports)
    return ProgramReport(name, tuple(reports), tuple(boundaries), moved, least_bytes or moved)

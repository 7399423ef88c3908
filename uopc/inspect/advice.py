"""Warnings about what is clearly wrong with a launch, and the change of Opts that would mend it."""

from __future__ import annotations

from collections.abc import Sequence

from uopc.inspect.gpus import GPU
from uopc.inspect.records import AccessReport, Advice, ResourceReport
from uopc.kernel import ProgramTree
from uopc.opts import Opts

#: an access that moves more than this many times its least is uncoalesced; one that does it in
#: less than this part of all sectors is not worth a word
UNCOALESCED, WORTH_A_WORD = 1.5, 0.1
CONFLICTED = 1.5  # wavefronts for each that would do


def advice(
    opts: Opts,
    program: ProgramTree,
    accesses: Sequence[AccessReport],
    used: ResourceReport,
    gpu: GPU,
) -> tuple[Advice, ...]:
    """What is clearly wrong, the worst first."""
    return ()

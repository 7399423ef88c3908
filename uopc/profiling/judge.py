"""What bounds a kernel on the GPU that it runs on, of the GPUs whose rates are known."""

from __future__ import annotations

import re
from functools import cache
from typing import Protocol

from uopc.compiled import Step
from uopc.inspect.gpus import GPUS
from uopc.inspect.records import Roofline
from uopc.inspect.report import report
from uopc.runtime.cuda import describe
from uopc.runtime.device import ordinal_of


class Judge(Protocol):
    """Says what a launch must do."""

    def roofline(self, step: Step, device: str) -> Roofline:
        """What bounds a step on a device.  Raises UopcError where nothing can be said."""

    def note(self, device: str) -> str:
        """What is not as it seems about all rooflines of a device, "" usually."""


class Rooflines:
    """Those of reports (`uopc.inspect.report`), for the device's own GPU where that is known, else
    for a usual one of its arch."""

    def roofline(self, step: Step, device: str) -> Roofline:
        return report(step, known_gpu(_described(device))).roofline

    def note(self, device: str) -> str:
        described = _described(device)
        if known_gpu(described) is not None:
            return ""
        return (
            f"the rates of {described} are not known: the roofline is that of a usual GPU of its "
            f"arch. Known are {', '.join(GPUS)}."
        )


def known_gpu(described: str) -> str | None:
    """The GPU that a driver describes so ("NVIDIA A100-SXM4-80GB"), by its name in `GPUS`."""
    found = [n for n in GPUS if re.search(rf"\b{re.escape(n)}\b", described, re.IGNORECASE)]
    return max(found, key=len, default=None)


@cache
def _described(device: str) -> str:
    return describe(ordinal_of(device))

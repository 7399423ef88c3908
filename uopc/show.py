"""`uopc show FILE:NAME`: a kernel from a user's file, as text with its launch and resources."""

from __future__ import annotations

import json
from enum import Enum

from rich.console import Console

from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.pipeline import LOWERING, Kernel, Step, compile, finish, render_cuda, render_native
from uopc.pipeline import emulate as render_emulated
from uopc.printing import code, facts, heading, step_facts
from uopc.runtime.cuda import device_target, why_unusable
from uopc.runtime.nvrtc import compile_ptx
from uopc.target import CPU, target as named_target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import show as graph_text
from uopc.userfile import Subject, load

DEFAULT_TARGET = "sm_80"
_WHY = {p.name: p.why for p in LOWERING} | {"index": "the body over ranges, before any choice"}


class View(Enum):
    """Which text of a kernel is shown."""

    SOURCE = "source"
    PTX = "ptx"
    SASS = "sass"
    STEPS = "steps"


def show(out: Console, what: str, target: str | None, opts: str | None, view: View) -> int:
    """Print the kernel that FILE:NAME is.  Returns 0.

    target: None for this machine's GPU, or sm_80 where there is none.  opts: JSON text.

    Raises UsageError for what the caller can change, any other UopcError for what failed.
    """
    name, subject = load(what)
    steps = _steps(name, subject, target, opts)
    wanted = target == "emulated"
    for n, step in enumerate(steps):
        if len(steps) > 1:
            heading(out, f"launch {n + 1} of {len(steps)}")
        _print(out, step, view, wanted)
        if n + 1 < len(steps):
            out.print()
    return 0

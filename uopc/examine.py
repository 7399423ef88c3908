"""`uopc check FILE:NAME` and `uopc trace FILE:NAME`: a user's kernel in the checked emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console

from uopc.checking import check
from uopc.errors import UsageError
from uopc.faults.words import triple
from uopc.kernel import Dims
from uopc.launches import random_arrays
from uopc.pipeline import Kernel, compile
from uopc.printing import code, facts, table
from uopc.tracing import Step, op_named, trace, value_type
from uopc.uop.node import UOp
from uopc.userfile import Lazy, kernel_name, load_with_arrays

FAULTY = 1  # exit code of a check that found a fault


def check_file(out: Console, what: str, every: bool, seed: int) -> int:
    """Check the kernel that FILE:NAME is.  Returns 1 where it has a fault, else 0.

    every: all faults, not only the first.  seed: of the inputs where the file has none.
    """
    name, kernel, arrays, said = _subject(what, seed)
    verdict = check(kernel, *arrays, all_faults=every, name=name)
    code(out, str(verdict), "text")
    out.print()
    for line in verdict.printed:
        out.out(line, highlight=False)
    facts(out, [("inputs", said), *(("compared", order) for order in verdict.orders)])
    return 0 if verdict.ok else FAULTY


def trace_file(
    out: Console, what: str, threads: Sequence[Dims], block: Dims, only: Sequence[str], seed: int
) -> int:
    """Print what some threads of the kernel that FILE:NAME is compute.  Returns 0.

    only: names of ops that are shown, all of them where it is empty.
    """
    nodes = [op_named(name) for name in only] or None
    name, kernel, arrays, said = _subject(what, seed)
    steps = trace(kernel, *arrays, threads=threads, block=block, nodes=nodes, name=name)
    several = len(threads) > 1
    columns = ["place", "does", *(["thread"] if several else []), "value", "element", "loops"]
    rows = [_row(step, several) for step in steps]
    table(out, columns, rows, right=frozenset(("value",)))
    facts(out, [("block", triple(block)), ("threads", _threads(threads)), ("inputs", said)])
    return 0


def _subject(what: str, seed: int) -> tuple[str, UOp | Kernel, Sequence[Any], str]:
    """Name, kernel, arrays, and what there is to say about these."""
    name, subject, arrays = load_with_arrays(what)
    called = kernel_name(name)
    if isinstance(subject, Lazy):
        raise UsageError(
            f"{name} is tensors, of which a schedule makes kernels: one kernel is wanted here, as "
            f"a body, a SINK or a Kernel. `uopc show {what}` shows theirs."
        )
    if not isinstance(subject, UOp | Kernel):
        subject = compile(subject, target="emulated", name=called)
    if arrays is not None:
        return called, subject, arrays, f"{len(arrays)} of the file"
    return called, subject, random_arrays(subject, seed), f"random, --seed {seed}"


def _threads(threads: Sequence[Dims]) -> str:
    return " ".join(map(triple, threads))


def _row(step: Step, several: bool) -> list[str]:
    loops = " ".join(f"{name}={value}" for name, value in step.loops.items())
    who = [triple(step.thread)] if several else []
    return [step.place, step.text, *who, value_text(step), step.element, loops]


def value_text(step: Step) -> str:
    """A value with the digits that its dtype has."""
    dtype = value_type(step.node)
    if step.value is None or dtype is None:
        return ""
    if not dtype.is_float:
        return str(step.value)
    return str(np.asarray(step.value).astype(dtype.numpy)[()])


def parse_triple(text: str) -> Dims:
    """3 or 3,0,0 or 3,1: what is left out is 0.  Raises UsageError for anything else."""
    parts = text.split(",")
    if len(parts) > 3 or not all(p.strip().isdigit() for p in parts):
        raise UsageError(f"{text!r} is no thread or block; write x,y,z such as 3,0,0")
    x, y, z = (*map(int, parts), 0, 0)[:3]
    return x, y, z

"""Run mutants of a kernel in every order and say which were caught.

A mutant is *harmful* if a plain emulated run of it, in any order, ends in a deadlock or with other
bits than the original; it is *flagged* if the checked emulator finds a fault in every order.  One
that is flagged and was not seen to do harm raced without consequence in the orders tried; one that
is neither is *redundant* there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.mutation.mutate import Mutant, access_mutants, synchronisation_mutants
from uopc.faults import Fault
from uopc.faults.raw import FaultKind
from uopc.pipeline import emulate
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.node import UOp, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops

ORDERS = ("forward", "backward", "shuffled(1)")
ENGINES = ("early", "late", "random(1)")
#: a plain run of these would touch what is not its own
LEAVE_MEMORY = (FaultKind.BOUNDS, FaultKind.MISALIGNED, FaultKind.MBARRIER, FaultKind.COPY)
ASYNCHRONOUS = frozenset((Ops.COPY, Ops.WAITG, Ops.WAIT))


@dataclass(frozen=True)
class Subject:
    """A kernel in stage LOOPS with its arrays, in slot order; fresh ones at each call.

    order_dependent: its bits follow the order of the warps although nothing races.
    """

    name: str
    sink: UOp
    arrays: Callable[[], list[Array]]
    target: str = "sm_80"
    order_dependent: bool = False

    @property
    def word(self) -> str:
        """The name as an identifier."""
        return re.sub(r"\W+", "_", self.name)


@dataclass(frozen=True)
class Finding:
    """What became of one mutant.

    harmful: its bits differ, or it hangs, in some order.  kinds: of the first fault in each order,
    None where there was none.
    """

    mutant: str
    place: str
    kind: str
    harmful: bool
    kinds: tuple[FaultKind | None, ...]

    @property
    def flagged(self) -> bool:
        return all(k is not None for k in self.kinds)

    @property
    def unflagged(self) -> bool:
        return all(k is None for k in self.kinds)


@dataclass
class Row:
    """One line of the table."""

    kernel: str
    clean: bool = True
    findings: list[Finding] = field(default_factory=list)

    def missed(self) -> list[Finding]:
        """Harmful, and not flagged in every order."""
        return [f for f in self.findings if f.harmful and not f.flagged]

    def unsteady(self) -> list[Finding]:
        """Flagged in some orders only."""
        return [f for f in self.findings if not f.flagged and not f.unflagged]

    def redundant(self) -> list[Finding]:
        return [f for f in self.findings if f.unflagged and not f.harmful]

    def unharmed(self) -> list[Finding]:
        """Flagged, without harm in the orders tried."""
        return [f for f in self.findings if f.flagged and not f.harmful]


def modes(sink: UOp) -> list[RunOptions]:
    """Every order of warps, times every order of the asynchronous engines or of the lanes."""
    if any(u.op in ASYNCHRONOUS for u in toposort(sink)):
        return [RunOptions(order=o, engine=e) for o in ORDERS for e in ENGINES]
    both = ("forward", "backward")
    return [RunOptions(order=o, lanes=lanes) for o in ORDERS for lanes in both]


class Emulated:
    """A kernel, checked and plain."""

    def __init__(self, name: str, sink: UOp, target: str) -> None:
        self.checked = Program(emulate(sink, name, check=True, target=target))
        self.plain = Program(emulate(sink, name, check=False, target=target))

    def verdict(self, arrays: list[Array], options: RunOptions) -> FaultKind | None:
        """The kind of the first fault, warnings included; None for a clean run."""
        faults = self.checked.run(arrays, options).faults
        return faults[0].kind if faults else None

    def leaves_memory(self, arrays: list[Array]) -> bool:
        """Would a plain run touch what is not its own?"""
        faults = self.checked.run(arrays, RunOptions(all_faults=True)).faults
        return any(f.kind in LEAVE_MEMORY for f in faults)

    def result(self, arrays: list[Array], options: RunOptions) -> list[Array] | None:
        """The arrays afterwards; None where it hangs."""
        try:
            self.plain(*arrays, options=options)
        except Fault:
            return None
        return arrays


def same_bits(a: Sequence[Array] | None, b: Sequence[Array] | None) -> bool:
    """Equal bit for bit, NaNs included."""
    if a is None or b is None:
        return a is b
    return all(
        np.array_equal(x.view(np.uint8), y.view(np.uint8)) for x, y in zip(a, b, strict=True)
    )


def study(subject: Subject, accesses: bool = True) -> Row:
    """Every mutant of a subject, in every order."""
    row = Row(subject.name)
    runs = modes(subject.sink)
    original = Emulated(subject.word, subject.sink, subject.target)
    want = [original.result(subject.arrays(), o) for o in runs]
    row.clean = all(original.verdict(subject.arrays(), o) is None for o in runs)
    if not subject.order_dependent:
        row.clean &= all(same_bits(w, want[0]) for w in want)
    for m in mutants_of(subject.sink, accesses):
        row.findings.append(_judge(subject, m, runs, want))
    return row


def mutants_of(sink: UOp, accesses: bool = True) -> list[Mutant]:
    """Numbered by their place in the list."""
    found = list(synchronisation_mutants(sink))
    return found + list(access_mutants(sink)) if accesses else found


def _judge(
    subject: Subject, mutant: Mutant, runs: list[RunOptions], want: list[list[Array] | None]
) -> Finding:
    kernel = Emulated(subject.word, mutant.sink, subject.target)
    kinds = tuple(kernel.verdict(subject.arrays(), o) for o in runs)
    what, _, place = str(mutant).rpartition(" (")
    harmful = kernel.leaves_memory(subject.arrays())  # then it is not run without checks
    if not harmful:
        got = (kernel.result(subject.arrays(), o) for o in runs)
        harmful = any(not same_bits(g, w) for g, w in zip(got, want, strict=True))
    return Finding(what, place.rstrip(")"), mutant.kind, harmful, kinds)

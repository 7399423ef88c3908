"""Run mutants of a kernel in every order and say which were caught.

A mutant is *harmful* if a plain emulated run of it, in any order, ends in a deadlock or with other
bits than the original; it is *flagged* if the checked emulator finds a fault in every order.  One
that is flagged and was not seen to do harm raced without consequence in the orders tried; one that
is neither is *redundant* there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tests.mutation.mutate import Mutant, access_mutants, synchronisation_mutants
from uopc.faults import Fault
from uopc.faults.raw import FaultKind
from uopc.pipeline import emulate
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.node import UOp, toposort, where_from
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
    """A kernel, checked and plain.  hooks: its synchronisation can be deleted at run time."""

    def __init__(self, name: str, sink: UOp, target: str, hooks: bool = False) -> None:
        texts = [
            emulate(sink, name, check=check, target=target, mutate=hooks) for check in (True, False)
        ]
        self.mutants = texts[0].mutants
        plain = {(node, what): number for number, node, what in texts[1].mutants}
        #: the number that a mutant of the checked text has in the plain one, where it has one
        self.plain_number = {n: plain.get((node, what), 0) for n, node, what in self.mutants}
        self.checked, self.plain = map(Program, texts)

    def verdict(self, arrays: list[Array], options: RunOptions) -> FaultKind | None:
        """The kind of the first fault, warnings included; None for a clean run."""
        faults = self.checked.run(arrays, options).faults
        return faults[0].kind if faults else None

    def leaves_memory(self, arrays: list[Array], mutation: int = 0) -> bool:
        """Would a plain run touch what is not its own?"""
        options = RunOptions(all_faults=True, mutation=mutation)
        faults = self.checked.run(arrays, options).faults
        return any(f.kind in LEAVE_MEMORY for f in faults)

    def result(self, arrays: list[Array], options: RunOptions) -> list[Array] | None:
        """The arrays afterwards; None where it hangs."""
        number = self.plain_number.get(options.mutation, 0)
        try:
            self.plain(*arrays, options=replace(options, mutation=number))
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
    """Every mutant of a subject, in every order, each rendered and compiled."""
    runs = modes(subject.sink)
    row, want = _original(subject, Emulated(subject.word, subject.sink, subject.target), runs)
    for m in mutants_of(subject.sink, accesses):
        kernel = Emulated(subject.word, m.sink, subject.target)
        what, _, place = str(m).rpartition(" (")
        row.findings.append(_judge(subject, kernel, (what, place[:-1], m.kind), runs, want))
    return row


def study_by_hooks(subject: Subject) -> Row:
    """The mutants of its synchronisation, all by one text that can leave each of them out."""
    runs = modes(subject.sink)
    kernel = Emulated(subject.word, subject.sink, subject.target, hooks=True)
    row, want = _original(subject, kernel, runs)
    for number, node, what in kernel.mutants:
        with_it = [replace(o, mutation=number) for o in runs]
        names = (f"{node.op.name} {what}", where_from(node), "delete")
        row.findings.append(_judge(subject, kernel, names, with_it, want, number))
    return row


def _original(
    subject: Subject, kernel: Emulated, runs: list[RunOptions]
) -> tuple[Row, list[list[Array] | None]]:
    """A row that says whether the kernel is clean, and its results in every order."""
    want = [kernel.result(subject.arrays(), o) for o in runs]
    clean = all(kernel.verdict(subject.arrays(), o) is None for o in runs)
    if not subject.order_dependent:
        clean &= all(same_bits(w, want[0]) for w in want)
    return Row(subject.name, clean), want


def mutants_of(sink: UOp, accesses: bool = True) -> list[Mutant]:
    """Numbered by their place in the list."""
    found = list(synchronisation_mutants(sink))
    return found + list(access_mutants(sink)) if accesses else found


def _judge(
    subject: Subject,
    kernel: Emulated,
    names: tuple[str, str, str],
    runs: list[RunOptions],
    want: list[list[Array] | None],
    mutation: int = 0,
) -> Finding:
    kinds = tuple(kernel.verdict(subject.arrays(), o) for o in runs)
    harmful = kernel.leaves_memory(subject.arrays(), mutation)  # then it is not run plainly
    if not harmful:
        got = (kernel.result(subject.arrays(), o) for o in runs)
        harmful = any(not same_bits(g, w) for g, w in zip(got, want, strict=True))
    return Finding(*names, harmful, kinds)

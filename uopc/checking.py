"""`uopc.check`: run a kernel in the checked emulator and say all that is wrong with it.

One checked run finds races, whatever the order of threads; a second one, traced, tells the loops
around the accesses of each fault.  Then, for a kernel without faults, unchecked runs in several
orders compare the bits of its results: where they differ, atomics on floats are to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uopc.faults.errors import (
    Facts,
    Fault,
    Memory,
    OrderError,
    Report,
    SameValueWarning,
    UninitialisedError,
)
from uopc.faults.words import called, count
from uopc.launches import Arrays, Launch, Launches, Subject, has_engines, launches_of
from uopc.runtime.arrays import HostArray
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.node import memory, toposort
from uopc.uop.ops import Ops
from uopc.witnesses import explained

#: orders of warps and lanes in which results are compared
ORDERS = (
    RunOptions(),
    RunOptions(order="backward", lanes="backward"),
    RunOptions(order="backward"),
    RunOptions(lanes="backward"),
    RunOptions(order="shuffled(1)"),
    RunOptions(order="shuffled(2)", lanes="backward"),
)
#: and of asynchronous work, where there is some
ENGINE_ORDERS = (
    RunOptions(engine="late"),
    RunOptions(order="backward", engine="late"),
    RunOptions(order="shuffled(1)", lanes="backward", engine="random(1)"),
)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a check found.

    Attributes
    ----------
    kernel: its name.  ok, and the truth of a Verdict: there is no fault (warnings may be).
    faults: one of each pair of places and kind, in the order in which they showed; where there are
        several, later ones may follow from the first.
    warnings: unordered writes of equal values.
    orders: in which results were compared; empty where faults made that pointless.
    printed: lines of PRINTF.
    outputs: the results, by the checked run.
    """

    kernel: str
    faults: tuple[Fault, ...] = ()
    warnings: tuple[SameValueWarning, ...] = ()
    orders: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    outputs: tuple[HostArray, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        return not self.faults

    def __bool__(self) -> bool:
        return self.ok

    def raise_first(self) -> None:
        """Raise the first fault, if there is one."""
        if self.faults:
            raise self.faults[0]

    def __str__(self) -> str:
        reports: Sequence[Report] = (*self.faults, *self.warnings)
        warned = f", {count(len(self.warnings), 'warning')}" if self.warnings else ""
        found = count(len(self.faults), "fault") if self.faults else "no fault"
        compared = f"; the same bits in {count(len(self.orders), 'order')}" if self.orders else ""
        head = f"kernel {self.kernel}: {found}{warned}{compared}"
        return "\n\n".join([head, *(r.text for r in reports)])


def check(
    kernel: Subject,
    *arrays: Any,
    out: Any = None,
    orders: Sequence[RunOptions] | None = None,
    all_faults: bool = True,
    initialised: Iterable[int] = (),
    name: str = "kernel",
) -> Verdict:
    """Everything that is wrong with a kernel on these inputs.

    Parameters
    ----------
    kernel: hand-written loop IR (a SINK), a compiled Kernel for a GPU target (all its steps), or a
        shaped body or several, which are compiled.
    arrays: in slot order.  Of loop IR, all of its parameters, or all but those that it writes.
    out: an array or a list of them that get the results; nothing else of the caller's is written.
    orders: in which results are compared; () compares none, None takes the usual ones.
    all_faults: False stops at the first.
    initialised: slots that the kernel writes, and whose values (the given ones, else zeros) are
        meant to stay where it does not: elements that it leaves alone are no fault.
    name: what reports call a kernel that has no name of its own.

    Raises UsageError for arrays that do not fit and for kernels of a CPU.
    """
    kept = frozenset(initialised)
    launches = launches_of(kernel, arrays, out, name).with_zeros(kept)
    arrays_now = launches.arrays()
    reports: list[Report] = []
    printed: list[str] = []
    for one, source in zip(launches.launches, launches.sources(check=True), strict=True):
        given = [arrays_now[s] for s in one.slots]
        before = [a.copy() for a in given]
        options = RunOptions(all_faults=all_faults, initialised=_holding(launches, one, kept))
        outcome = Program(source).run(given, options)
        printed += outcome.printed
        if outcome.faults:
            reports += explained(launches, one, before, outcome.faults, options)
        if not outcome.ok:
            break  # what follows would work on wrong numbers
    faults = [r for r in reports if isinstance(r, Fault)]
    if not all_faults:  # the run goes on after a read of nothing: a race may explain it
        faults = sorted(faults, key=lambda f: isinstance(f, UninitialisedError))[:1]
    tried = _orders(launches) if orders is None else tuple(orders)
    if not faults and len(tried) > 1:
        faults += _compared(launches, tried)
    launches.deliver(arrays_now)
    return Verdict(
        launches.name,
        tuple(faults),
        tuple(r for r in reports if isinstance(r, SameValueWarning)),
        () if faults else tuple(map(order_text, tried)),
        tuple(printed),
        tuple(arrays_now[s] for s in launches.outputs),
    )


def _holding(x: Launches, one: Launch, kept: frozenset[int]) -> frozenset[int]:
    """Slots of a launch whose memory holds values before it.

    Those that are not written here; of the others, those that the caller names, and those that he
    gives and the kernel reads.
    """
    read = _read(one)
    return kept | {
        p.slot
        for p in one.program.params
        if not p.written or (p.slot in x.given and p.slot in read)
    }


def _read(one: Launch) -> frozenset[int]:
    """Slots that a launch reads: by LOAD, ATOMIC, or a copy from them."""
    read = set()
    for u in toposort(one.program.sink):
        if u.op in (Ops.LOAD, Ops.ATOMIC):
            read.add(memory(u.src[0]))
        elif u.op is Ops.COPY:
            source = u.src[1]
            read.add(memory(source.src[0] if source.op is Ops.TENSORMAP else source))
    return frozenset(m.arg.slot for m in read if m.op is Ops.BUFFER)


# ---- orders
def order_text(o: RunOptions) -> str:
    """warps backward, lanes forward, engines late"""
    return f"warps {o.order}, lanes {o.lanes}" + (f", engines {o.engine}" * (o.engine != "early"))


def _orders(x: Launches) -> tuple[RunOptions, ...]:
    return ORDERS + ENGINE_ORDERS if has_engines(x) else ORDERS


def _compared(x: Launches, orders: Sequence[RunOptions]) -> list[Fault]:
    """Run in each order; the first result that differs from the first order's, as a fault."""
    # rendered with an order, a kernel without barriers is no plain loop but obeys options
    programs = [Program(source) for source in x.sources(check=False, order="backward")]
    first = _run(x, programs, orders[0])
    for order in orders[1:]:
        now = _run(x, programs, order)
        for slot in x.outputs:
            different = np.flatnonzero(_differ(first[slot], now[slot]))
            if different.size:
                flat = int(different[0])
                values = first[slot].flat[flat], now[slot].flat[flat]
                told = (order_text(orders[0]), order_text(order))
                return [_order_error(x, slot, flat, values, told, different.size)]
    return []


def _run(x: Launches, programs: Sequence[Program], order: RunOptions) -> Arrays:
    arrays = x.arrays()
    for one, program in zip(x.launches, programs, strict=True):
        program.run([arrays[s] for s in one.slots], order)
    return arrays


def _differ(a: HostArray, b: HostArray) -> HostArray:
    """Which elements have other bits; NaNs are all one value."""
    size = a.dtype.itemsize
    bits = [v.reshape(-1).view(np.uint8).reshape(-1, size) for v in (a, b)]
    different: HostArray = (bits[0] != bits[1]).any(axis=1)
    different[((a != a) & (b != b)).reshape(-1)] = False
    return different


def _order_error(
    x: Launches,
    slot: int,
    flat: int,
    values: tuple[Any, Any],
    orders: tuple[str, str],
    differing: int,
) -> OrderError:
    nodes = [u for one in x.launches for u in toposort(one.program.sink)]
    m = next(u for u in nodes if u.op is Ops.BUFFER and u.arg.slot == slot)
    atomics = [called(u) for u in nodes if u.op is Ops.ATOMIC]
    adds = any(u.op is Ops.ATOMIC and u.dtype.is_float for u in nodes)
    where = Memory.of(m)
    width = max(map(len, orders))
    notes = [f"{o.ljust(width)}  {v!s}" for o, v in zip(orders, values, strict=True)]
    notes.append(f"{count(differing, 'element')} of {x.params[slot].size} differ")
    if atomics:
        notes.append(f"atomics of the kernel: {', '.join(dict.fromkeys(atomics))}")
    hint = (
        "a sum of floats depends on its order: sum in a fixed order (REDUCE, or partial sums and "
        "a second kernel), or add integers"
        if adds
        else "the old value of an atomic tells who came first: let no result depend on it"
    )
    why = "its value depends on the order of threads"
    return OrderError(Facts(x.name, where.at(flat), why, where, flat, (), tuple(notes), hint))

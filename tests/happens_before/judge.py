"""All pairs of accesses to one element, held against happens-before; and what was never written."""

from __future__ import annotations

from collections.abc import Iterator

from tests.happens_before.history import History
from tests.happens_before.log import WHOLE_GRID, Access, Does, Fault, Log, Touched
from tests.happens_before.scalars import Value
from uopc.uop.node import UOp

ORDERED, UNFENCED, UNORDERED = range(3)


def judge(
    log: Log, history: History, given: frozenset[UOp], outputs: dict[UOp, int]
) -> list[Fault]:
    """Races, missing proxy fences, uninitialised reads, elements of outputs without a value.

    given: memories that have contents from the start; outputs: those of which every element must be
    written, with their sizes.
    """
    faults = list(log.faults)
    for (memory, _), elements in log.elements.items():
        for element, touched in elements.items():
            faults += _pairs(memory, element, touched, history)
            if memory not in given:
                faults += _unwritten_reads(memory, element, touched, history)
    for memory, size in outputs.items():
        faults += _missing(memory, size, log.elements.get((memory, WHOLE_GRID), {}))
    return list(dict.fromkeys(faults))


def relation(a: Access, b: Access, history: History) -> int:
    """Of two accesses: is one before the other, and seen by it?"""
    if history.before(b.event, a.event):
        a, b = b, a
    elif not history.before(a.event, b.event):
        return ORDERED if _handed(a, b, history) or _handed(b, a, history) else UNORDERED
    if b.fenced is not None and a.fenced is None and not b.fenced >> a.event & 1:
        return UNFENCED
    return ORDERED


def _handed(a: Access, b: Access, history: History) -> bool:
    return any(history.before(event, b.event) for event in a.handed)


def _pairs(
    memory: UOp, element: int, touched: list[tuple[Access, Value | None]], history: History
) -> Iterator[Fault]:
    for i, (a, value) in enumerate(touched):
        for b, other in touched[:i]:
            if a.does is Does.READ and b.does is Does.READ:
                continue
            if a.does is Does.ATOMIC and b.does is Does.ATOMIC:
                continue
            how = relation(a, b, history)
            if how != ORDERED:
                yield Fault(
                    _kind(how, a, b, value, other),
                    a.place,
                    memory,
                    element,
                    b.place,
                    a.block,
                    a.thread,
                )


def _kind(how: int, a: Access, b: Access, value: Value | None, other: Value | None) -> str:
    if how == UNFENCED:
        return "PROXY_FENCE"
    writes = a.does is Does.WRITE and b.does is Does.WRITE
    return "SAME_VALUE" if writes and repr(value) == repr(other) else "RACE"


def _unwritten_reads(
    memory: UOp, element: int, touched: list[tuple[Access, Value | None]], history: History
) -> Iterator[Fault]:
    """A read that no write precedes; where an unordered write might, it is a race instead."""
    for a, _ in touched:
        if a.does is Does.WRITE:
            continue
        writes = [b for b, _ in touched if b is not a and b.does is not Does.READ]
        if any(history.before(b.event, a.event) and _earlier(b, a, touched) for b in writes):
            continue
        race = [b for b in writes if not (a.does is Does.ATOMIC and b.does is Does.ATOMIC)]
        if any(not history.ordered(a.event, b.event) for b in race):
            continue
        yield Fault("UNINITIALISED", a.place, memory, element, None, a.block, a.thread)


def _earlier(b: Access, a: Access, touched: list[tuple[Access, Value | None]]) -> bool:
    """Inside one event the log's order is the thread's own."""
    if a.event != b.event:
        return True
    order = [x for x, _ in touched]
    return order.index(b) < order.index(a)


def _missing(memory: UOp, size: int, touched: Touched) -> Iterator[Fault]:
    for element in range(size):
        if not any(a.does is not Does.READ for a, _ in touched.get(element, ())):
            yield Fault("UNWRITTEN", None, memory, element)
            return

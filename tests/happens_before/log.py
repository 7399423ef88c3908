"""What happened, to be judged afterwards: accesses of memory and of mbarriers, and faults."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.happens_before.scalars import Value
from uopc.uop.node import UOp, where_from

WHOLE_GRID = -1  # the block that GLOBAL memory belongs to


class Does(Enum):
    """What an access does."""

    READ = auto()
    WRITE = auto()
    ATOMIC = auto()


@dataclass(frozen=True, eq=False)
class Access:
    """One access of one thread, or of one asynchronous operation that it asked for.

    event: see history; fenced: None for an ordinary access, else the events of ordinary accesses
    that an asynchronous one may follow; handed: of an atomic, first events after fences that it is
    before (fences.py).
    """

    does: Does
    event: int
    place: UOp
    block: int
    thread: int
    engine: str = "thread"
    fenced: int | None = None
    handed: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    """kind: a name of FaultKind; place, other: nodes of the two sides; block and thread of place;
    element of the memory, -1 where it is about no element."""

    kind: str
    place: UOp | None
    memory: UOp | None = None
    element: int = -1
    other: UOp | None = None
    block: int = 0
    thread: int = -1
    detail: str = ""

    def __str__(self) -> str:
        nodes = [f"{p.op} at {where_from(p)}" for p in (self.place, self.other) if p is not None]
        what = (
            f" of {self.memory.arg.name or self.memory.arg.slot}" if self.memory is not None else ""
        )
        at = f" element {self.element}" if self.element >= 0 else ""
        who = f" (block {self.block}, thread {self.thread})"
        return f"{self.kind}{what}{at}: {' and '.join(nodes)}{who} {self.detail}".rstrip()


Touched = dict[int, list[tuple[Access, Value | None]]]


@dataclass
class Log:
    """elements: (memory, block) -> element -> its accesses, with the value of a write."""

    elements: dict[tuple[UOp, int], Touched] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    faults: list[Fault] = field(default_factory=list)

    def add(
        self, memory: UOp, block: int, element: int, access: Access, value: Value | None = None
    ) -> None:
        self.elements[memory, block][element].append((access, value))

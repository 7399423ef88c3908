"""Faults of a kernel: one class a kind, each with what its message says as attributes.

A fault is the caller's: his kernel does what no GPU promises to do right.  The message is the
product of the checked emulator: what, on which element; who, from which line; what to do.

    RaceError: write-read on shared tile0[3] (element 3) in kernel turn
      write  STORE tile0[lidx0]      turn.py:9   thread (3,0,0) warp 0 lane 3    block (0,0,0)
      read   LOAD tile0[63 - lidx0]  turn.py:10  thread (60,0,0) warp 1 lane 28  block (0,0,0)
      hint: a barrier after the STORE at turn.py:9 and before the LOAD at turn.py:10
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uopc.dtype import AddrSpace, DType
from uopc.errors import UopcError
from uopc.faults.raw import SEVERAL_LANES
from uopc.faults.words import (
    SPACES,
    THREAD,
    coordinates,
    element_text,
    node_text,
    runs_text,
    triple,
)
from uopc.kernel import Dims
from uopc.uop.node import UOp
from uopc.uop.origin import where_from
from uopc.uop.records import memory_name


@dataclass(frozen=True)
class Access:
    """An access, or an effect, as a thread comes to it.

    Attributes
    ----------
    node: the LOAD, STORE, BARRIER, ...
    kind: "read", "write" or "atomic"; of an effect that is none of them, its name.
    engine: what does it: "thread", or "cp.async", "bulk", "wgmma" for a thread that asked.
    block: (x, y, z) of blockIdx.
    warp, lane: of the block, of the warp; lane is 32 where several lanes of the warp did it, warp
    -1 where an engine did it for no warp in particular.
    thread: (x, y, z) of threadIdx, and linear, its number in the block; None for several lanes.
    loops: the value of each loop variable around it, outermost first; empty where not known.
    """

    node: UOp
    kind: str
    block: Dims
    warp: int
    lane: int = SEVERAL_LANES
    thread: Dims | None = None
    linear: int | None = None
    engine: str = THREAD
    loops: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The user's file:line, or "generated"."""
        return where_from(self.node)

    @property
    def who(self) -> str:
        """thread (3,0,0) warp 0 lane 3; or the warp, where several of its lanes did it."""
        if self.warp < 0:
            return "an engine"
        if self.thread is None:
            return _LANES_OF + runs_text("warp", [self.warp])
        return f"thread {triple(self.thread)} warp {self.warp} lane {self.lane}"

    def columns(self) -> tuple[str, ...]:
        """What a line of a report says of it."""
        kind = self.kind if self.engine == THREAD else f"{self.engine} {self.kind}"
        loops = " ".join(f"{name}={value}" for name, value in self.loops.items())
        return (
            kind,
            node_text(self.node),
            self.place,
            self.who,
            f"block {triple(self.block)}",
            loops,
        )


@dataclass(frozen=True)
class Memory:
    """The memory that a fault is about."""

    name: str
    space: AddrSpace
    shape: tuple[int, ...]
    dtype: DType

    @classmethod
    def of(cls, m: UOp) -> Memory:
        """Of a BUFFER or an ALLOC."""
        return cls(memory_name(m.arg), m.arg.addrspace, m.arg.shape, m.dtype)

    def __str__(self) -> str:
        """shared tile0"""
        return f"{SPACES[self.space]} {self.name}"

    def at(self, flat: int) -> str:
        """shared tile0[3][17] (element 209)"""
        return f"{SPACES[self.space]} {element_text(self.name, self.shape, flat)} (element {flat})"


@dataclass(frozen=True)
class Facts:
    """What a report says: what happened, in which kernel, why it is a fault, on what memory and
    element, by whom, what else there is to know, and what to do."""

    kernel: str
    what: str
    why: str = ""
    memory: Memory | None = None
    flat: int | None = None
    accesses: tuple[Access, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        lines = [f"{self.what} in kernel {self.kernel}" + (f": {self.why}" if self.why else "")]
        lines += aligned(_together(self.accesses))
        lines += self.notes
        lines += [f"hint: {self.hint}"] if self.hint else []
        return "\n  ".join(lines)


_LANES_OF = "lanes of "


def _together(accesses: Sequence[Access]) -> list[tuple[str, ...]]:
    """The columns of each access; warps that do the same as a whole share a line."""
    warps: dict[tuple[str, ...], list[int]] = {}
    for a in accesses:
        kind, text, place, who, block, loops = a.columns()
        several = who.startswith(_LANES_OF)
        line = (kind, text, place, _LANES_OF if several else who, block, loops)
        warps.setdefault(line, []).append(a.warp)
    rows: list[tuple[str, ...]] = []
    for (kind, text, place, who, block, loops), numbers in warps.items():
        if who == _LANES_OF:
            who += runs_text("warp", sorted(set(numbers)))
        rows += [(kind, text, place, who, block, loops)]
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words, each column as wide as its longest."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            word.ljust(width) for word, width in zip(row, widths, strict=True) if width
        ).rstrip()
        for row in rows
    ]


class Report(Exception):  # noqa: N818  (a fault or a warning: its subclasses say which)
    """What faults and warnings have in common: the facts, and the text made of them.

    Attributes: facts; kernel, its name; memory (name, space, shape, dtype) or None; flat, the
    element's number, and element, its coordinates in the memory's shape; accesses, the earlier one
    first; notes; hint, what would mend it.
    """

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.facts = facts
        self.kernel, self.memory, self.flat = facts.kernel, facts.memory, facts.flat
        self.accesses, self.notes, self.hint = facts.accesses, facts.notes, facts.hint

    @property
    def element(self) -> tuple[int, ...] | None:
        """None where no element is meant, or it lies outside of the memory."""
        if self.memory is None or self.flat is None:
            return None
        return coordinates(self.memory.shape, self.flat)

    def __str__(self) -> str:
        return str(self.facts)

    @property
    def text(self) -> str:
        """The message under its class: RaceError: write-read on ..."""
        return f"{type(self).__name__}: {self}"


class Fault(Report, UopcError):  # noqa: N818  (the root of the faults below)
    """The caller's kernel does what no GPU promises to do right; subclasses say what."""


class RaceError(Fault):
    """Two accesses of one element, at least one a write, that nothing orders."""


class BoundsError(Fault):
    """An access outside of a memory's elements."""


class MisalignedError(Fault):
    """A wide access at an address that is no multiple of its size."""


class UninitialisedError(Fault):
    """A read of an element that nothing has written."""


class UnwrittenError(Fault):
    """Elements of an output that no thread writes."""


class IndexOverflowError(Fault):
    """An index that the integer type of the CUDA text does not hold."""


class BarrierError(Fault):
    """A barrier under control flow in which the threads that it waits for differ."""


class MembersError(Fault):
    """A warp-wide op whose member lanes do not all come, or that another lane runs."""


class DeadlockError(Fault):
    """All warps that are left wait, and nothing is under way that could wake one."""


class MbarrierError(Fault):
    """An mbarrier that is not initialised, not visible, overrun, or waited for out of phase."""


class AccumulatorError(Fault):
    """An accumulator of wgmma that is touched without its fence, or in flight."""


class ProxyFenceError(Fault):
    """Ordinary and asynchronous accesses of one element with no fence between the two proxies."""


class UnwaitedError(Fault):
    """Asynchronous work that nobody has waited for when the kernel ends."""


class CopyError(Fault):
    """A bulk copy that breaks a rule of the hardware: alignment, coordinates, one thread issues."""


class ClusterError(Fault):
    """A block touches what another one of its cluster holds before that one has started or when it
    may have ended, or misuses the cluster's barrier."""


class AssertionFault(Fault):
    """An ASSERT whose condition does not hold."""


class OrderError(Fault):
    """A result that depends on the order of threads though there is no race: atomics on floats."""


class SameValueWarning(Report, UserWarning):
    """Two unordered writes of one element that write the same value: a race that does no harm."""

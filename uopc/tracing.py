"""What chosen threads of a kernel compute: each value, access and effect as the emulator does it.

A traced rendering tells at each named value, access and effect (place, block, thread, bits,
address, loop values); here they get names, and values their dtype.  `uopc.check` asks the same
events for the loops around the two accesses of a race.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from uopc.dtype import DType, Kind, dtypes, from_bits
from uopc.errors import UsageError
from uopc.faults.explain import spread
from uopc.faults.standing import standings
from uopc.faults.words import element_text, node_text, range_text
from uopc.kernel import Dims, Launch, Source
from uopc.launches import Subject, launches_of
from uopc.runtime.emulated import Event, RunOptions
from uopc.runtime.program import Program
from uopc.uop.node import UOp, memory
from uopc.uop.ops import Ops
from uopc.uop.origin import where_from
from uopc.uop.records import memory_name

Value: TypeAlias = bool | int | float
Thread: TypeAlias = tuple[int, int]  # (block, thread), both linear
INDEX_BITS = 64  # of a traced index, whatever its type in the text


@dataclass(frozen=True)
class Step:
    """One thing that one thread did.

    Attributes
    ----------
    kernel: the launch; node: the value, access or effect; text: the node in one line.
    place: the user's file:line, or "generated".
    block, thread: (x, y, z) of blockIdx and threadIdx.
    value: what it computed, read or wrote, as a Python number; None for an effect without one.
    element: what an access touches, such as tile0[3][17]; "" for none.
    loops: the value of each loop around it, outermost first.
    """

    kernel: str
    node: UOp
    block: Dims
    thread: Dims
    value: Value | None = None
    element: str = ""
    loops: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return node_text(self.node)

    @property
    def place(self) -> str:
        return where_from(self.node)


def trace(
    kernel: Subject,
    *arrays: Any,
    threads: Sequence[Dims | int] = (0,),
    block: Dims | int = 0,
    nodes: Iterable[UOp | Ops | str] | None = None,
    name: str = "kernel",
) -> tuple[Step, ...]:
    """Run a kernel and tell what some of its threads do, in the order in which they do it.

    Parameters
    ----------
    kernel, arrays, name: as `uopc.check` takes them; nothing of the caller's is written.
    threads: of the block, each (x, y, z) of threadIdx, or its number.
    block: (x, y, z) of blockIdx, or its number.
    nodes: nodes, ops or names of ops that are told, such as "LOAD"; None tells all.

    Raises UsageError for threads or blocks that the kernel has not, and the first fault of a
    kernel that cannot go on.
    """
    wanted = _wanted(nodes)
    launches = launches_of(kernel, arrays, name=name)
    whom = [_chosen(one.program.launch, threads, block) for one in launches.launches]
    told: list[Step] = []
    values = launches.arrays()
    sources = launches.sources(check=False, trace=True)
    for one, source, traced in zip(launches.launches, sources, whom, strict=True):
        options = RunOptions(traced=traced, all_faults=True)
        outcome = Program(source).run([values[s] for s in one.slots], options)
        read = Reader(source)
        steps = map(read.step, _once(outcome.events))
        told += [x for x in steps if x is not None and wanted(x.node)]
    return tuple(told)


def _once(events: Sequence[Event]) -> Iterator[Event]:
    """Without the values that an access just before has told already."""
    last: dict[Thread, Event] = {}
    for e in events:
        before = last.get((e.block, e.thread))
        last[e.block, e.thread] = e
        if before is None or (before.what, before.place, e.what) != ("access", e.place, "value"):
            yield e


def _chosen(launch: Launch, threads: Sequence[Dims | int], block: Dims | int) -> tuple[Thread, ...]:
    number = _number(block, launch.grid, "block")
    return tuple((number, _number(t, launch.block, "thread")) for t in threads)


def _number(xyz: Dims | int, dims: Dims, what: str) -> int:
    """The linear number of a block or thread.  Raises UsageError where there is no such one."""
    size = math.prod(dims)
    if isinstance(xyz, int):
        if 0 <= xyz < size:
            return xyz
        raise UsageError(f"there is no {what} {xyz}: the kernel has {size}, 0 to {size - 1}")
    if len(xyz) != 3 or not all(0 <= i < n for i, n in zip(xyz, dims, strict=True)):
        raise UsageError(f"there is no {what} {tuple(xyz)}: the kernel has {dims} of (x, y, z)")
    return xyz[0] + dims[0] * (xyz[1] + dims[1] * xyz[2])


def _wanted(nodes: Iterable[UOp | Ops | str] | None) -> Callable[[UOp], bool]:
    if nodes is None:
        return lambda u: True
    chosen = frozenset(op_named(n) if isinstance(n, str) else n for n in nodes)
    return lambda u: u in chosen or u.op in chosen


def op_named(name: str) -> Ops:
    """The op of this name, in any case.  Raises UsageError for none."""
    if (found := Ops.__members__.get(name.upper())) is None:
        near = difflib.get_close_matches(name.upper(), Ops.__members__, n=1)
        raise UsageError(
            f"no op is called {name!r}" + (f"; did you mean {near[0]}?" if near else "")
        )
    return found


class Reader:
    """Events of one source as Steps: numbers become nodes, bits become values."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.where = standings(source.program)

    def step(self, e: Event) -> Step | None:
        """None for a line of PRINTF, which is printed."""
        if e.what == "print":
            return None
        node, launch = self.source.places[e.place], self.source.launch
        dtype = value_type(node)
        return Step(
            self.source.name,
            node,
            spread(e.block, launch.grid),
            spread(e.thread, launch.block),
            None if dtype is None else value_of(e.bits, dtype),
            self.element(node, e.address),
            self.loops(node, e.loops),
        )

    def element(self, node: UOp, address: int) -> str:
        """tile0[3][17], for a byte offset in the memory of an access; "" for none."""
        at = next((s for s in node.src if s.op is Ops.INDEX), None)
        if at is None or address < 0:
            return ""
        m = memory(at)
        return element_text(memory_name(m.arg), m.arg.shape, address // m.dtype.itemsize)

    def loops(self, node: UOp, values: Sequence[int]) -> dict[str, int]:
        """The loops around a node with their values; {} where the tree is not known."""
        if node not in self.where:
            return {}
        around = [s for s in self.where[node].scopes if s.op is Ops.RANGE]
        return {range_text(r.arg): v for r, v in zip(around, values, strict=False)}


def value_type(u: UOp) -> DType | None:
    """The dtype of what a node computes, reads or writes; None for an effect without a value."""
    if u.op is Ops.STORE:
        return u.src[1].dtype
    return None if u.dtype is dtypes.void else u.dtype


def value_of(bits: int, dtype: DType) -> Value:
    """A Python number from the bits of a dtype, which a trace widens to 64."""
    if dtype.kind is Kind.BOOL:
        return bool(bits & 1)
    size = INDEX_BITS if dtype is dtypes.index else dtype.bits
    bits &= (1 << size) - 1
    if dtype.is_float:
        return from_bits(bits, dtype)
    signed = dtype is dtypes.index or dtype.kind is Kind.INT
    return bits - (1 << size) if signed and bits >> (size - 1) else bits

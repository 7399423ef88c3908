"""What an emulated run is asked and what it answers: options, faults, events.

`Call` holds the records of `emulated_runtime.h` in memory that a kernel reads and writes.  Faults
by numbers are `uopc/faults/raw.py`; `uopc/runtime/program.py` runs kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uopc.dtype import DType, dtypes, from_bits
from uopc.errors import UsageError
from uopc.faults.raw import SEVERAL_LANES as SEVERAL_LANES
from uopc.faults.raw import AccumulatorFault as AccumulatorFault
from uopc.faults.raw import Agent as Agent
from uopc.faults.raw import ClusterFault as ClusterFault
from uopc.faults.raw import CopyFault as CopyFault
from uopc.faults.raw import FaultKind as FaultKind
from uopc.faults.raw import MbarrierFault as MbarrierFault
from uopc.faults.raw import RawFault as RawFault
from uopc.faults.raw import WaitKind as WaitKind
from uopc.kernel import Source
from uopc.render.orders import engine_number, order_number
from uopc.uop.node import UOp

_Records = np.ndarray[Any, np.dtype[np.void]]

# ---- the records of emulated_runtime.h
_POINTER = np.uintp
_REQUEST = np.dtype(
    [
        *((n, np.int32) for n in ("order", "lanes", "engine", "all", "mutation")),
        *((n, np.uint32) for n in ("seed", "engine_seed")),
        *(("traced_count", np.int32), ("traced", _POINTER), ("initialised", _POINTER)),
        *(("fault_count", np.int32), ("fault_room", np.int32), ("faults", _POINTER)),
        *(("event_count", np.int64), ("event_room", np.int64), ("events", _POINTER)),
    ],
    align=True,
)
_MOST_DETAILS = 5
_FAULT = np.dtype(
    [
        *((n, np.int32) for n in ("kind", "place", "memory", "block", "warp", "lane")),
        *((f"other_{n}", np.int32) for n in ("place", "block", "warp", "lane", "agent")),
        *(("details", np.int32), ("detail", np.int32, _MOST_DETAILS)),
        *(("offset", np.int64), ("unexplained", np.int64), ("moment", np.int64)),
    ],
    align=True,
)
_MOST_LOOPS = 8
_EVENT = np.dtype(
    [
        *((n, np.int32) for n in ("what", "place", "block", "thread", "position", "loops")),
        *(("bits", np.uint64), ("address", np.int64), ("values", np.int64, _MOST_LOOPS)),
    ],
    align=True,
)
_WHAT = ("value", "access", "effect", "print")
_PRINT = _WHAT.index("print")


@dataclass(frozen=True)
class Event:
    """What a traced or printing kernel tells: one value, access or effect of one thread.

    what: "value", "access", "effect" or "print"; bits of the value, 0 for none; address: byte
    offset in the memory of an access, -1 for none; loops: the values of the loops around it,
    outermost first, at most 8.  Of a PRINTF comes one event without a value (position -1), then one
    for each value (position counts them).
    """

    what: str
    place: int
    block: int
    thread: int
    bits: int
    address: int
    position: int
    loops: tuple[int, ...]


@dataclass(frozen=True)
class RunOptions:
    """How an emulated kernel runs.  Right kernels give the same bits whatever these are.

    order: in which warps move: "forward", "backward" or "shuffled(N)".  lanes: "forward" or
    "backward".  engine: when asynchronous work is done: "early" (at once), "late" (when no warp
    can move) or "random(N)".  all_faults: go on after a fault.  mutation: which synchronisation is
    deleted or twisted, a number of Source.mutants, 0 for none.  initialised: slots whose memory
    holds values before the run; None: those that the kernel reads.  traced: (block, thread) pairs
    whose values and accesses are told, for sources that were rendered with trace=True.
    """

    order: str = "forward"
    lanes: str = "forward"
    engine: str = "early"
    all_faults: bool = False
    mutation: int = 0
    initialised: frozenset[int] | None = None
    traced: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        order_number(self.order)
        engine_number(self.engine)
        if self.lanes not in ("forward", "backward"):
            raise UsageError(f"lanes is {self.lanes!r}; it is 'forward' or 'backward'")


@dataclass(frozen=True)
class Outcome:
    """What a run found: faults in the order in which they showed, and what was told."""

    faults: tuple[RawFault, ...] = ()
    printed: tuple[str, ...] = ()
    events: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """No fault but warnings."""
        return all(f.kind.is_warning for f in self.faults)


class Call:
    """One call of an emulated kernel: `address` is what the kernel gets after its parameters."""

    def __init__(self, source: Source, options: RunOptions, by_source: bool = False) -> None:
        """by_source: the order of warps is the one that the text was rendered with."""
        self._source = source
        self._request = np.zeros(1, _REQUEST)
        r = self._request[0]
        order, engine = order_number(options.order), engine_number(options.engine)
        r["order"], r["seed"] = source.order if by_source else order
        r["engine"], r["engine_seed"] = engine
        r["lanes"] = options.lanes == "backward"
        r["all"], r["mutation"] = options.all_faults, options.mutation
        self._traced = np.array(options.traced, np.int32).reshape(-1)
        r["traced_count"], r["traced"] = len(options.traced), self._traced.ctypes.data
        if options.initialised is not None:
            holds = [p.slot in options.initialised or not p.written for p in source.params]
            self._initialised = np.array([*holds, False], np.uint8)
            r["initialised"] = self._initialised.ctypes.data

    @property
    def address(self) -> int:
        return int(self._request.ctypes.data)

    def outcome(self) -> Outcome:
        """What the kernel has told; its memory stays the runtime's until `emu_forget`."""
        r = self._request[0]
        faults = _copied(int(r["faults"]), int(r["fault_count"]), _FAULT)
        events = _copied(int(r["events"]), int(r["event_count"]), _EVENT)
        prints = events[events["what"] == _PRINT]
        return Outcome(
            tuple(map(_raw_fault, faults)),
            tuple(_lines(prints, self._source.places)),
            tuple(map(_event, events)),
        )


def _copied(address: int, count: int, dtype: np.dtype[Any]) -> _Records:
    if not count:
        return np.zeros(0, dtype)
    size_bytes = count * dtype.itemsize  # may be more than string_at takes
    memory = (ctypes.c_char * size_bytes).from_address(address)
    return np.frombuffer(memoryview(memory), dtype).copy()


def _raw_fault(r: Any) -> RawFault:
    kind, detail = FaultKind(int(r["kind"])), tuple(int(d) for d in r["detail"][: r["details"]])
    if kind is FaultKind.INDEX_OVERFLOW:  # of the value come four parts, the lowest first
        *low, high, bits = detail
        detail = (sum((d & 0xFFFFFFFF) << 32 * n for n, d in enumerate(low)) + (high << 96), bits)
    return RawFault(
        kind=kind,
        place=int(r["place"]),
        memory=int(r["memory"]),
        offset_bytes=int(r["offset"]),
        block=int(r["block"]),
        warp=int(r["warp"]),
        lane=int(r["lane"]),
        other_place=int(r["other_place"]),
        other_block=int(r["other_block"]),
        other_warp=int(r["other_warp"]),
        other_lane=int(r["other_lane"]),
        other_engine=Agent(int(r["other_agent"])).text,
        detail=detail,
        moment=int(r["moment"]),
    )


def _event(r: Any) -> Event:
    return Event(
        what=_WHAT[r["what"]],
        place=int(r["place"]),
        block=int(r["block"]),
        thread=int(r["thread"]),
        bits=int(r["bits"]),
        address=int(r["address"]),
        position=int(r["position"]),
        loops=tuple(int(v) for v in r["values"][: r["loops"]]),
    )


# ---- lines of PRINTF
def _lines(prints: _Records, places: Sequence[UOp]) -> list[str]:
    """Each line as C's printf writes it: integers in full, floats as %g."""
    found: list[tuple[UOp, list[int]]] = []
    for r in prints:
        if r["position"] < 0:
            found.append((places[int(r["place"])], []))
        else:
            found[-1][1].append(int(r["bits"]))
    return [_line(u, bits) for u, bits in found]


def _line(u: UOp, bits: Sequence[int]) -> str:
    first, *rest = str(u.arg.format).split("{}")
    shown = (_shown(b, x.dtype) for x, b in zip(u.src, bits, strict=False))
    return first + "".join(value + text for value, text in zip(shown, rest, strict=True))


def _shown(bits: int, d: DType) -> str:
    if d.is_float:
        return f"{float(from_bits(bits & ((1 << d.bits) - 1), d)):g}"
    width = 64 if d is dtypes.index else max(d.bits, 1)
    value = bits & ((1 << width) - 1)
    signed = d is dtypes.index or d.min < 0
    return str(value - (1 << width) if signed and value >> (width - 1) else value)

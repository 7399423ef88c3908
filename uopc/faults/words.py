"""How a report calls things: spaces, elements, nodes, what a node does to a memory, lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc.dtype import AddrSpace
from uopc.kernel import Dims
from uopc.uop.node import UOp, memory
from uopc.uop.ops import (
    ELEMENTWISE,
    WHOLE_KERNEL,
    AxisType,
    BarrierArg,
    BarrierScope,
    Engine,
    Ops,
    RangeArg,
)
from uopc.uop.origin import where_from
from uopc.uop.records import arg_text, memory_name
from uopc.uop.text import index_text

SPACES = {
    AddrSpace.GLOBAL: "global",
    AddrSpace.SHARED: "shared",
    AddrSpace.REG: "register",
    AddrSpace.MBARRIER: "mbarrier",
    AddrSpace.CLUSTER: "cluster",
}
ENGINES = {Engine.CP_ASYNC: "cp.async", Engine.BULK: "bulk", Engine.WGMMA: "wgmma"}
ENGINES[Engine.CLUSTER] = "st.async"
THREAD = "thread"  # the engine that is none
LONGEST = 60  # characters of an index in a report
_READERS = frozenset((Ops.LOAD, Ops.LDMATRIX))
_WRITERS = frozenset((Ops.STORE, Ops.STMATRIX))


def coordinates(shape: Sequence[int], flat: int) -> tuple[int, ...] | None:
    """Of element number `flat`; None where it lies outside."""
    found: list[int] = []
    rest = flat
    for size in reversed(shape):
        if size == 0:
            return None
        rest, at = divmod(rest, size)
        found.append(at)
    return None if rest else tuple(reversed(found))


def element_text(name: str, shape: Sequence[int], flat: int) -> str:
    """tile0[3][17]; tile0[flat] where that lies outside."""
    at = coordinates(shape, flat)
    return name + "".join(f"[{i}]" for i in ((flat,) if at is None else at))


def node_text(u: UOp) -> str:
    """An access, effect or scope in one line: STORE tile0[63 - l0], COPY[BULK] tile0[0] from p0."""
    if u.op in _SENTENCES:
        return _SENTENCES[u.op](u)
    if u.op in ELEMENTWISE:
        return f"{u.op} {_short(u)}"
    arg = arg_text(u.op, u.arg, "")
    text = str(u.op) + (f"[{arg}]" if arg else "")
    places = [_place_text(s) for s in u.src if s.op in (Ops.INDEX, Ops.TENSORMAP)]
    sends = u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER
    if u.op in _TWO_PLACES and not sends:
        return f"{text} {places[0]} from {places[1]}"
    return f"{text} {places[0]}" if u.op in _ONE_PLACE or sends else text


_TWO_PLACES = frozenset((Ops.COPY, Ops.LDMATRIX, Ops.STMATRIX))
_ONE_PLACE = frozenset((Ops.LOAD, Ops.STORE, Ops.ATOMIC, Ops.ARRIVE, Ops.MBAR_INIT))
_SENTENCES: dict[Ops, Callable[[UOp], str]] = {
    Ops.RANGE: lambda u: f"loop {_short(u)}",
    Ops.IF: lambda u: f"IF {_short(u.src[0])}",
    Ops.ROLE: lambda u: f"role {u.arg.name}",
    Ops.WAIT: lambda u: f"WAIT {_short(u.src[0])} parity {_short(u.src[1])}",
    Ops.ASSERT: lambda u: f"ASSERT {_short(u.src[0])}",
    Ops.PRINTF: lambda u: f"PRINTF {u.arg.format!r}",
    Ops.MMA: lambda u: f"MMA[{u.arg}] {_short(u.src[0])}",
    Ops.SHUFFLE: lambda u: f"SHUFFLE[{arg_text(u.op, u.arg, '')}]",
}


def _place_text(u: UOp) -> str:
    return memory_name(memory(u.src[0]).arg) if u.op is Ops.TENSORMAP else _short(u)


def _short(u: UOp) -> str:
    return index_text(u, LONGEST, range_text)


_KINDS = {
    AxisType.GLOBAL: "gidx",
    AxisType.LOCAL: "lidx",
    AxisType.LANE: "lane",
    AxisType.WARP: "warp",
    AxisType.WARPGROUP: "group",
    AxisType.REDUCE: "r",
    AxisType.UPCAST: "u",
}


def range_text(a: RangeArg) -> str:
    """A range as the kernel's C and CUDA texts call it: gidx0, lidx1, lane0, r2."""
    if a.kind in WHOLE_KERNEL and a.digit in ("c", "p"):
        return f"{'rank' if a.digit == 'c' else 'pidx'}{a.axis}"
    digit = "" if a.kind in WHOLE_KERNEL else a.digit
    return f"{digit or _KINDS.get(a.kind, 'i')}{a.axis}"


def called(u: UOp) -> str:
    """What a sentence calls a node: the STORE at turn.py:9; its text where no user wrote it."""
    if u.op in (Ops.RANGE, Ops.IF, Ops.ROLE):
        return node_text(u) + (f" at {where_from(u)}" if u.origins else "")
    return f"the {_kind_name(u)} at {where_from(u)}" if u.origins else node_text(u)


def _kind_name(u: UOp) -> str:
    if u.op is Ops.BARRIER and (u.arg or BarrierArg()).scope is BarrierScope.WARP:
        return "__syncwarp"
    return str(u.op)


def is_wgmma(u: UOp) -> bool:
    """An MMA that reads SHARED memory by itself: its b operand is a descriptor."""
    return u.op is Ops.MMA and u.src[2].op is not Ops.INDEX


def engine_of(u: UOp) -> str:
    """What does the access of a node: "thread", "cp.async", "bulk" or "wgmma"."""
    if u.op is Ops.COPY:
        return ENGINES[u.arg.engine]
    return ENGINES[Engine.WGMMA] if is_wgmma(u) else THREAD


def does(u: UOp, m: UOp | None) -> str:
    """What a node does to a memory: "read", "write", "atomic"; else its own name."""
    if u.op in _READERS:
        return "read" if u.op is Ops.LOAD or m is not memory(u.src[0]) else "write"
    if u.op in _WRITERS:
        return "write" if u.op is Ops.STORE or m is memory(u.src[0]) else "read"
    if u.op is Ops.ATOMIC:
        return "atomic"
    if u.op is Ops.COPY:
        to = u.src[0].src[0] if u.src[0].op is Ops.TENSORMAP else u.src[0]
        return "write" if m is memory(to) else "read"
    if u.op is Ops.MMA:
        return "write" if m is memory(u.src[0]) else "read"
    return u.op.name.lower()


def triple(xyz: Dims) -> str:
    """(3,0,0)"""
    return f"({xyz[0]},{xyz[1]},{xyz[2]})"


def lanes_text(mask: int) -> str:
    """A mask of lanes as runs: lanes 0-15, 31; "no lane"."""
    return runs_text("lane", [n for n in range(32) if mask >> n & 1])


def runs_text(thing: str, numbers: Sequence[int]) -> str:
    """Ascending numbers as runs: warp 2; warps 0-3, 7; "no warp"."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    if not runs:
        return f"no {thing}"
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{thing}{'s' * (len(numbers) > 1)} {text}"


def count(n: int, thing: str) -> str:
    """1 element, 2 elements"""
    return f"{n} {thing}{'s' * (n != 1)}"

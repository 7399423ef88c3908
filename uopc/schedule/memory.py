"""Where each stored value lives.

A result that somebody asked for has memory of its own; an update in place has that of the version
that it replaces; every other value lives in one arena, from its kernel to its last reader: first
fit, largest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from uopc.dtype import DType
from uopc.uop.node import UOp, prod
from uopc.uop.ops import Ops

ALIGN = 256  # bytes: what an allocation of a GPU is aligned to (CUDA Programming Guide)


@dataclass(frozen=True)
class Leaf:
    """The memory of leaf `number` of the graph."""

    number: int


@dataclass(frozen=True)
class Result:
    """Memory of its own: result `number` of the schedule."""

    number: int
    dtype: DType
    size: int


@dataclass(frozen=True)
class Temporary:
    """Part of the arena; offset in bytes, size in elements."""

    offset: int
    dtype: DType
    size: int


@dataclass(frozen=True)
class ErrorWord:
    """The device's error word."""


Place: TypeAlias = Leaf | Result | Temporary | ErrorWord


def place(
    order: Sequence[tuple[Sequence[UOp], Sequence[UOp]]],
    own: frozenset[UOp],
    in_place: Mapping[UOp, UOp],
) -> tuple[dict[UOp, Place], int]:
    """({leaf or stored value: its place}, bytes of the arena).

    order: (stored values, values and leaves read) of each launch; own: values with memory of their
    own; in_place: {version: the version whose memory it takes}.
    """
    first = {w: _first(w, in_place) for w in in_place}
    own |= {first[w] for w in own if w in first}
    places: dict[UOp, Place] = {}
    born: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    results = 0
    for k, (stores, reads) in enumerate(order):
        for u in reads:
            if u.op is Ops.BUFFER:
                places[u] = Leaf(u.arg.slot)
            last[u] = k
        for u in stores:
            born[u] = last[u] = k
    temporary: list[UOp] = []
    for u in born:
        if u in in_place:
            continue
        if u in own:
            places[u] = Result(results, u.dtype, prod(u.shape))
            results += 1
        else:
            temporary.append(u)
    for w, old in first.items():  # a chain of versions lives until the last one dies
        if old in last and w in last:
            last[old] = max(last[old], last[w])
    spans: list[tuple[int, int, int, int]] = []  # born, last, offset, bytes
    arena = 0
    for u in sorted(temporary, key=lambda u: -_bytes(u)):
        offset, n = 0, _bytes(u)
        meets = (s for s in spans if not (s[1] < born[u] or s[0] > last[u]))
        for _, _, start, size in sorted(meets, key=lambda s: s[2]):
            if offset + n <= start:
                break
            offset = max(offset, start + size)
        spans.append((born[u], last[u], offset, n))
        places[u] = Temporary(offset, u.dtype, prod(u.shape))
        arena = max(arena, offset + n)
    for w, old in first.items():
        places[w] = Leaf(old.arg.slot) if old.op is Ops.BUFFER else places[old]
    return places, arena


def _first(version: UOp, in_place: Mapping[UOp, UOp]) -> UOp:
    """The version whose memory a chain of updates in place shares."""
    while version in in_place:
        version = in_place[version]
    return version


def _bytes(u: UOp) -> int:
    return -(-prod(u.shape) * u.dtype.itemsize // ALIGN) * ALIGN

"""Who reads what a kernel writes in place, and which of its loops must come first.

For `passes/nests.py` and `effects`, on a MAPPED graph.  The meaning of a kernel is that every LOAD
comes before every STORE.  What a closer reads is no reason where the closer stands outside of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeVar

from uopc.errors import TargetError
from uopc.passes.closers import CLOSERS, around, serials
from uopc.passes.in_place import own_axes
from uopc.uop.facts import free
from uopc.uop.node import UOp, closed_ranges, memory
from uopc.uop.ops import AxisType, Ops
from uopc.uop.records import memory_name

Nest = TypeVar("Nest")


class InPlace:
    """The memories that a kernel both reads and writes, and who reads them.

    writers: {memory: its STORE}.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        stored = {memory(u.src[0]): u for u in order if u.op is Ops.STORE}
        loads = [u for u in order if u.op is Ops.LOAD and memory(u.src[0]) in stored]
        read = {memory(u.src[0]) for u in loads}
        self.writers = {m: store for m, store in stored.items() if m in read}
        self.lanes = [u for u in order if u.op is Ops.RANGE and u.arg.kind is AxisType.LOCAL]
        elements = {m: store.src[0] for m, store in self.writers.items()}
        self._elsewhere = {m for u in loads if u.src[0] is not elements[m := memory(u.src[0])]}
        self._below: dict[UOp, frozenset[UOp]] = {}  # what is read at or below a node
        for u in order if self.writers else ():
            mine = {memory(u.src[0])} if u.op is Ops.LOAD else ()
            below = frozenset(mine) & self.writers.keys()
            self._below[u] = below.union(*(self._below[s] for s in u.src))
        self._closers = [u for u in self._below if u.op in CLOSERS and self._below[u]]
        self._all = frozenset(u for u in order if u.op is Ops.RANGE)
        self._order = order

    def elsewhere(self, m: UOp) -> bool:
        """Is it read at other elements than the one that its STORE writes?"""
        return m in self._elsewhere

    def crosses_threads(self, m: UOp) -> bool:
        """May one thread of a block read what another one writes?"""
        all_store = all(r in free(self.writers[m].src[0]) for r in self.lanes)
        return bool(self.lanes) and (self.elsewhere(m) or not all_store)

    def must_keep(self, stores: Sequence[UOp]) -> bool:
        """Must all values of a nest be there before the first STORE?"""
        for s in stores:
            m = memory(s.src[0])
            if m not in self.writers:
                continue
            if self.elsewhere(m) or self.crosses_threads(m):
                return True
            if any(m in self.read_by([other], self._all) for other in stores if other is not s):
                return True
        return False

    def check_loops(self, effects: Sequence[UOp]) -> None:
        """Raises TargetError where a loop writes in one iteration what a later one reads."""
        if not self.writers:
            return
        loops = {_store(e): serials(e.src[1:]) if e.op is Ops.END else [] for e in effects}
        for store, outer in loops.items():
            for load, depth, over in self._reads(store, outer):
                writer = self.writers[memory(load.src[0])]
                own = own_axes(load.src[0], writer.src[0])
                for r, other in zip(outer[:depth], loops[writer], strict=False):
                    if r is not other:
                        break
                    if r.arg.axis not in own or r in over:
                        raise _read_later(memory(load.src[0]), r)

    def _reads(self, store: UOp, loops: list[UOp]) -> Iterator[tuple[UOp, int, frozenset[UOp]]]:
        """(LOAD of a memory that is written in place, how many of the loops stand around it, the
        ranges that closers between it and the STORE close)."""
        places: dict[UOp, set[tuple[int, frozenset[UOp]]]] = {}
        for s in store.src:
            places.setdefault(s, set()).add((len(loops), frozenset()))
        for u in reversed(self._order):
            if u not in places or not self._below.get(u):
                continue
            here = places[u]
            if u.op in CLOSERS or u.op is Ops.LOAD:
                here = {_place(u, depth, over, loops) for depth, over in here}
            if u.op is Ops.LOAD and memory(u.src[0]) in self.writers:
                for depth, over in here:
                    yield u, depth, over
            own = frozenset(closed_ranges(u)) if u.op in CLOSERS else frozenset()
            inside = {(depth, over | own) for depth, over in here}
            for s in u.src:
                places.setdefault(s, set()).update(inside)

    def closers(self, stores: Sequence[UOp], open_: Set[UOp]) -> list[UOp]:
        """Closers that read what STOREs write in place, and can stand where these are open."""
        mine = self.written_by(stores)
        readers = (u for u in self._closers if mine and not mine.isdisjoint(self._below[u]))
        return [u for u in readers if _stands_in(u, open_)]

    def read_by(self, stores: Iterable[UOp], open_: Set[UOp]) -> set[UOp]:
        """What stores read by themselves, beside what closers do that stand in these ranges."""
        found: set[UOp] = set()
        stack, seen = [*stores], set()
        while stack:
            u = stack.pop()
            if u in seen or not self._below.get(u):
                continue
            seen.add(u)
            if u.op in CLOSERS and _stands_in(u, open_):
                continue
            if u.op is Ops.LOAD and (m := memory(u.src[0])) in self.writers:
                found.add(m)
            stack += u.src
        return found

    def written_by(self, stores: Iterable[UOp]) -> set[UOp]:
        """What STOREs write in place."""
        return {m for s in stores if (m := memory(s.src[0])) in self.writers}

    def ordered(
        self, inside: Mapping[Nest, Sequence[UOp]], open_: Set[UOp]
    ) -> list[tuple[Nest, list[Nest]]]:
        """The nests of a level, each with those before it that read what it writes.

        inside: their STOREs.  Raises TargetError where two read what the other one writes.
        """
        if not self.writers or len(inside) == 1:
            return [(nest, []) for nest in inside]
        reads = {nest: self.read_by(stores, open_) for nest, stores in inside.items()}
        writes = {nest: self.written_by(stores) for nest, stores in inside.items()}
        left = list(inside)
        out: list[tuple[Nest, list[Nest]]] = []
        while left:
            for nest in left:
                if not any(reads[x] & writes[nest] for x in left if x is not nest):
                    break
            else:
                names = sorted(memory_name(m.arg) for nest in left for m in writes[nest])
                raise TargetError(
                    f"{', '.join(names)} are written in place in loops that each read what another "
                    "one writes. Give one of them a memory of its own, or map its axes to threads."
                )
            left.remove(nest)
            out.append((nest, [x for x, _ in out if reads[x] & writes[nest]]))
        return out

    def reads(self, u: UOp) -> bool:
        """Is anything at or below u read that is written in place?"""
        return bool(self._below.get(u))


def _place(
    u: UOp, depth: int, over: frozenset[UOp], loops: list[UOp]
) -> tuple[int, frozenset[UOp]]:
    """Where something is done that is used inside `depth` loops, and loops over `over` in them:
    outside of all that it does not depend on."""
    mine = frozenset(serials(free(u).difference(closed_ranges(u))))
    if mine & over:
        return depth, over
    return max((n + 1 for n, r in enumerate(loops) if r in mine), default=0), frozenset()


def _store(effect: UOp) -> UOp:
    return effect.src[0] if effect.op is Ops.END else effect


def _read_later(m: UOp, r: UOp) -> TargetError:
    return TargetError(
        f"{memory_name(m.arg)} is written in place, and a loop along axis {r.arg.axis} would read "
        f"what it has written before. Map axis {r.arg.axis} to threads of one block, or give the "
        "output a memory of its own."
    )


def _stands_in(closer: UOp, open_: Set[UOp]) -> bool:
    return around(closer) <= open_

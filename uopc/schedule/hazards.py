"""Updates in place, and the order that they ask for.

Here because: after stores are known; before the final order, which gets these edges.  A new version
takes the memory of the old one iff nobody wants the old contents any more, no other version took
it, every other kernel that reads the old contents can be placed before, and its own kernel reads no
element that another block writes.  (Inside a block the passes put every read before the write:
`uopc/passes/in_place.py`.)  Else it gets memory of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container

from uopc.schedule.anchors import Kind
from uopc.schedule.group import NONE, Group
from uopc.schedule.stores import Stores
from uopc.schedule.views import Index
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


class Hazards:
    """in_place: {new version: the version whose memory it takes}; not_in_place: why not; needs:
    {group: groups that stand before it}."""

    def __init__(self, stores: Stores) -> None:
        self.stores, self.known = stores, stores.known
        self.of = stores.grouping.of
        self.in_place: dict[UOp, UOp] = {}
        self.not_in_place: dict[UOp, str] = {}
        self.needs: dict[Group, set[Group]] = {
            g: {self.of[u] for u in stores.loads[g] if u in self.of} for g in stores.groups
        }
        self._in_order = True  # does everything that a group needs stand before it by place?
        self._readers: dict[UOp, set[Group]] = defaultdict(set)
        for g in stores.groups:
            for u in stores.loads[g]:
                self._readers[u].add(g)
        versions = [
            v for v in self.known.sequence if v.op is Ops.ASSIGN and v in self.stores.stored
        ]
        last = {memory_of(v): v for v in versions}
        taken: set[UOp] = set()
        for w in versions:
            old = w.src[0]
            while old.op is Ops.ASSIGN and old not in stores.stored:
                old = old.src[0]
            why = self._why_not(w, old, taken, last)
            if why:
                self.not_in_place[w] = why
                continue
            self.in_place[w] = old
            taken.add(old)
            mine = self.of[w]
            before = self._touching(old) - {mine}
            self.needs[mine] |= before
            self._in_order &= all(g.place < mine.place for g in before)

    def _touching(self, old: UOp) -> set[Group]:
        writer = {self.of[old]} if old in self.of else set()
        return self._readers[old] | writer

    def _why_not(self, w: UOp, old: UOp, taken: set[UOp], last: dict[UOp, UOp]) -> str:
        if w in self.known.asked and last[memory_of(w)] is not w:
            return "superseded, but still asked for"
        if old in self.known.asked:
            return "the old contents are still asked for"
        if old in taken:
            return "another new version took the memory"
        mine = self.of[w]
        for g in self._touching(old):
            if g is mine:
                if self._reads_astray(w, old, mine):
                    return "its kernel reads other elements of what it overwrites"
            elif self._waits(g, mine):
                return "a reader of the old contents needs the new ones"
        return ""

    def _reads_astray(self, w: UOp, old: UOp, g: Group) -> bool:
        """Does g read old contents where another block, or another iteration of w's own nest,
        writes?

        Values without memory are computed in the nests of their readers, so what reads them reads
        old contents too; those of the same nest, and reductions that w waits for, must read each
        element where w writes it.
        """
        nest, before = self._nest(g, w), self._below(w, g)
        elsewhere: set[UOp] = set()  # what may read other elements of the block
        for m in self.stores.needed[g]:  # producers first
            leaves = self.stores.resolved(m)
            reduction = self.known.kind[m] is not Kind.VALUE
            mine = m is w or (m in before if reduction else self._nest(g, m) == nest)
            if not mine or any(u in elsewhere for u, _ in leaves):
                mine = False
                if not reduction:
                    elsewhere.add(m)
            along = None if mine else g.grid
            if any(u is old and not self._same_place(g, m, at, w, along) for u, at in leaves):
                return True
        return False

    def _nest(self, g: Group, m: UOp) -> list[int]:
        return [x for x in g.axes[m][: len(m.shape)] if x != NONE]

    def _same_place(
        self, g: Group, m: UOp, at: Index, w: UOp, along: Container[int] | None
    ) -> bool:
        """Does m read at the place where w writes, along these axes (None: all)?"""
        axes = g.axes[m]
        return all(
            n == 1
            or (along is not None and x not in along)
            or (isinstance(e, int) and e >= 0 and axes[e] == x)
            for e, x, n in zip(at, g.axes[w], w.shape, strict=True)
        )

    def _below(self, w: UOp, g: Group) -> set[UOp]:
        """The members of g that w's value waits for."""
        seen: set[UOp] = set()
        stack = [w]
        while stack:
            m = stack.pop()
            for u, _ in self.stores.resolved(m):
                if self.of.get(u) is g and u not in seen:
                    seen.add(u)
                    stack.append(u)
        return seen

    def _waits(self, late: Group, early: Group) -> bool:
        """Does `late` stand after `early` already?"""
        seen: set[Group] = set()
        stack = [late]
        while stack:
            g = stack.pop()
            if g is early:
                return True
            if g not in seen and (g.place > early.place or not self._in_order):
                seen.add(g)
                stack += self.needs.get(g, ())
        return False


def memory_of(version: UOp) -> UOp:
    """The BUFFER that a chain of versions starts from."""
    while version.op is Ops.ASSIGN:
        version = version.src[0]
    return version

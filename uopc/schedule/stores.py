"""Which values cross from one kernel to another, and whether memory is their cheapest way.

Here because: after grouping, which says who reads across a border.  An elementwise value is
computed again by its readers where that moves clearly fewer bytes; a reduction never is.
"""

from __future__ import annotations

from collections import defaultdict

from uopc.schedule.anchors import MANY, Kind, Leaf
from uopc.schedule.group import Group, Grouping
from uopc.schedule.views import Entry, Index, axes_in
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

CLEARLY = 0.9  # computing again must move at most this part of the bytes of storing; ties store
RIDES = 1.3  # bytes that an operand of a product may read, against its own


class Stores:
    """What is stored and what each group reads and computes.

    stored: anchors with memory; again: those that their readers compute again; needed: the members
    that a group computes, in order; loads: bytes of what it reads; why: reasons by value.
    """

    def __init__(self, grouping: Grouping) -> None:
        self.grouping, self.known = grouping, grouping.anchors
        self.why = dict(self.known.why)
        self.outside = self._readers_outside()
        self.stored: set[UOp] = {
            u for u in self.known.sequence if u in self.known.roots or self.outside[u]
        }
        self.again: set[UOp] = set()
        self._choose()
        self._resolved: dict[UOp, list[Leaf]] = {}
        self.needed = self._reached()
        self.groups = list(self.needed)
        self.loads = {g: self._loaded(g) for g in self.groups}
        for u in self.known.sequence:
            if u in self.stored:
                self.why.setdefault(u, self._reason(u))

    def _reason(self, u: UOp) -> str:
        """Why u has memory, where nothing else was recorded, and the bytes that it costs."""
        if u in self.known.roots:
            return "asked for"
        if u.op is Ops.ASSIGN:
            return "an update"
        apart = self.grouping.apart.get(u, "its reader has another grid")
        readers = len(self.outside[u])
        return f"{apart}: read by {readers}, {self.known.nbytes[u] * (1 + readers)} bytes"

    def _readers_outside(self) -> dict[UOp, set[Group]]:
        out: dict[UOp, set[Group]] = defaultdict(set)
        of = self.grouping.of
        for v in self.known.sequence:
            for u, _ in self.known.leaves(v):
                if u in of and of[u] is not of[v]:
                    out[u].add(of[v])
        return out

    def _choose(self) -> None:
        """Producers first, so that chains of values that are computed again are counted whole."""
        known, of = self.known, self.grouping.of
        reads: dict[Group, set[UOp]] = defaultdict(set)
        for u, groups in self.outside.items():
            for g in groups:
                reads[g].add(u)
        for v in known.sequence:
            reads[of[v]] |= {u for u, _ in known.leaves(v) if u.op is Ops.BUFFER}
        opened: dict[UOp, tuple[set[UOp], int]] = {}
        for u in known.sequence:
            if known.kind[u] is not Kind.VALUE or u.op is Ops.ASSIGN or u in known.roots:
                continue
            need, operations = set(), known.operations(u)
            for leaf, _ in known.leaves(u):
                if leaf in known.kind and leaf not in self.stored and leaf in opened:
                    need |= opened[leaf][0]
                    operations += opened[leaf][1]
                else:
                    need.add(leaf)
            opened[u] = need, operations
            if self.outside[u]:
                self._store_or_redo(u, need, operations, reads)

    def _store_or_redo(
        self, u: UOp, need: set[UOp], operations: int, reads: dict[Group, set[UOp]]
    ) -> None:
        known, of, limits = self.known, self.grouping.of, self.known.limits
        groups = self.outside[u]
        large = sum(known.size[x] * 4 > known.size[u] for x in need)
        if operations > limits.redo or large > limits.redo_leaves:
            many = "many" if operations >= MANY else str(operations)
            self.why[u] = f"stored: {many} operations on {large} large inputs, too long to redo"
            return
        rides = operations <= limits.light and (
            sum(known.nbytes[x] for x in need) <= RIDES * known.nbytes[u]
        )
        if any(g.has_product for g in groups) and not rides:
            self.why[u] = "heavy operand of a product: stored once"
            return
        if any(len(reads[g] | need) > limits.buffers for g in groups):
            self.why[u] = "stored: its readers have too many buffers to redo it"
            return
        store = known.nbytes[u] * (1 + len(groups))
        redo = sum(
            known.nbytes[x]
            for g in groups
            for x in need
            if x not in reads[g] and of.get(x) is not g
        )
        redo += sum(known.nbytes[x] for x in need if x in of and x not in self.stored)
        if redo > CLEARLY * store:
            self.why[u] = f"stored: {store} bytes, {redo} to redo it"
            return
        self.why[u] = f"read by {len(groups)}, {redo} bytes, {store} to store it"
        self.stored.discard(u)
        self.again.add(u)
        for g in groups:
            reads[g].discard(u)
            for x in need:
                if of.get(x) is not g:
                    reads[g].add(x)
                    if x in of:
                        self.outside[x].add(g)
                        self.stored.add(x)
        self.outside[u] = set()

    def _reached(self) -> dict[Group, list[UOp]]:
        """The members that each group computes for what is asked for.  Values that nobody reads,
        now that others are computed again, are not stored."""
        of = self.grouping.of
        stack = [u for u in self.known.sequence if u in self.known.roots]
        used, crossing = set(stack), set(stack)
        while stack:
            m = stack.pop()
            for u, _ in self.resolved(m):
                if u.op is Ops.BUFFER:
                    continue
                if of[u] is not of[m]:
                    crossing.add(u)
                if u not in used:
                    used.add(u)
                    stack.append(u)
        self.stored &= crossing
        needed = {g: [m for m in g.members if m in used] for g in self.grouping.groups}
        return {g: members for g, members in needed.items() if members}

    def _loaded(self, g: Group) -> dict[UOp, int]:
        """Bytes of what a group reads from memory, each element once."""
        loads: dict[UOp, int] = {}
        for m in self.needed[g]:
            domain = self.known.domain(m)
            for u, at in self.resolved(m):
                if self.grouping.of.get(u) is not g:
                    loads[u] = max(loads.get(u, 0), self.known.bytes_read(u, at, domain))
        return loads

    def resolved(self, v: UOp) -> list[Leaf]:
        """The leaves of v, in its group, with values that are computed again opened up."""
        out = self._resolved.get(v)
        if out is not None:
            return out
        out = self._resolved[v] = []
        mine = self.grouping.of[v]
        seen: set[Leaf] = set()
        stack = list(self.known.leaves(v))
        while stack:
            pair = stack.pop()
            if pair in seen:
                continue
            seen.add(pair)
            u, at = pair
            if u.op is Ops.BUFFER or u in self.stored or self.grouping.of[u] is mine:
                out.append(pair)
            else:
                stack += [(x, _through(k, at)) for x, k in self.known.leaves(u)]
        return out


def _through(inner: Index, at: Index) -> Index:
    """An index into a leaf of a value that is itself read at `at`."""

    def entry(e: Entry) -> Entry:
        if isinstance(e, int):
            return at[e] if e >= 0 else e
        return axes_in([at[k] for k in e])

    return tuple([entry(e) for e in inner])

"""Topological orders: one that is made once, and one that survives contraction.

Positions are always topological.  Contracting a and b walks only what lies between them in the
order (Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", ACM
JEA 11, 2006), so a merge costs its window and not the graph.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

N = TypeVar("N")


def after_needs(
    nodes: Sequence[N],
    needs: Mapping[N, AbstractSet[N]],
    is_late: Callable[[N], bool] = lambda node: False,
) -> list[N]:
    """The nodes after what they need; where that leaves a choice, late ones last, else as they
    stand.  Nodes that wait for one another are left out."""
    missing = {v: len(needs[v]) for v in nodes}
    users: dict[N, list[N]] = defaultdict(list)
    for v in nodes:
        for before in needs[v]:
            users[before].append(v)
    rank = {v: n for n, v in enumerate(nodes)}
    ready = [(is_late(v), rank[v]) for v in nodes if not missing[v]]
    heapq.heapify(ready)
    out: list[N] = []
    while ready:
        v = nodes[heapq.heappop(ready)[1]]
        out.append(v)
        for w in users[v]:
            missing[w] -= 1
            if not missing[w]:
                heapq.heappush(ready, (is_late(w), rank[w]))
    return out


@dataclass(eq=False)
class Placed:
    """A node with a place in an order: everything in before stands earlier."""

    before: set[Placed] = field(default_factory=set, init=False, repr=False)
    after: set[Placed] = field(default_factory=set, init=False, repr=False)
    place: int = field(default=-1, init=False)

    def needs(self, other: Placed) -> None:
        """other stands before self."""
        self.before.add(other)
        other.after.add(self)


class Order:
    """Placed nodes in a topological order; slots of contracted ones stay empty."""

    def __init__(self) -> None:
        self.slots: list[Placed | None] = []

    def append(self, node: Placed) -> None:
        """Put a node last: all that it needs is there already."""
        node.place = len(self.slots)
        self.slots.append(node)

    def between(self, a: Placed, b: Placed) -> set[Placed] | None:
        """What must stand after a and is placed before b; None where b needs some of it, so that
        contracting a and b would close a cycle."""
        assert a.place < b.place
        seen: set[Placed] = set()
        stack = [s for s in a.after if s is not b and s.place < b.place]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for s in node.after:
                if s is b:
                    return None
                if s.place < b.place:
                    stack.append(s)
        return seen

    def contract(self, a: Placed, b: Placed, later: set[Placed]) -> None:
        """b becomes part of a.  later: what `between` found; it moves behind them."""
        window = [n for n in self.slots[a.place : b.place + 1] if n not in (None, a, b)]
        new = [n for n in window if n not in later] + [a] + [n for n in window if n in later]
        start, end = a.place, b.place + 1
        self.slots[start:end] = [None] * (end - start)
        for before in b.before:
            before.after.discard(b)
            if before is not a:
                a.needs(before)
        for after in b.after:
            after.before.discard(b)
            if after is not a:
                after.needs(a)
        a.before.discard(b)
        a.after.discard(b)
        for k, node in enumerate(new, end - len(new)):
            assert node is not None
            node.place, self.slots[k] = k, node

    def nodes(self) -> list[Placed]:
        """What is left, in order."""
        return [n for n in self.slots if n is not None]

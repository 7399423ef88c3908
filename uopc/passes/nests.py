"""The loops of a kernel: which closers and STOREs share one.  For `materialise` and `effects`.

On a MAPPED graph.  A loop is one serial range that is opened once; its place is in another loop or
in the kernel itself.  What closes the same range in the same place shares the loop where nothing of
it needs the result of something else in it: what both load is then loaded once an iteration.

    END(STORE(y), r, c), END(STORE(m), r), END(STORE(z), r, c)   ->   r: [c: [y, z], m]
    REDUCE(x, k), REDUCE(x*y, k)                                 ->   k: [x, x*y]

STOREs always share; closers share where they load something in common (else nothing is gained for
the registers), and never with what is written in place.  One loop is joined to another as long as
that makes no circle, those first that load most in common.  Values that threads exchange in
one place share a barrier in the same way.

Top-down.  A loop remakes the closers that depend on it and on no loop inside it; they stand in it,
and open loops of their own there.  Where several loops need a closer, each remakes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from uopc.dtype import AddrSpace
from uopc.passes.closers import CLOSERS, around, serials, within
from uopc.passes.cooperate import upcasts
from uopc.passes.overwrites import InPlace
from uopc.passes.share import is_report
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, closed_ranges, prod, toposort
from uopc.uop.ops import WHOLE_KERNEL, Ops


@dataclass(eq=False)
class Leaf:
    """STOREs that close the same ranges: loops, and copies that are unrolled.

    reports: they say which index was stray.
    """

    loops: tuple[UOp, ...]
    copies: tuple[UOp, ...]
    reports: bool
    stores: list[UOp] = field(default_factory=list)

    @property
    def opened(self) -> frozenset[UOp]:
        """All ranges that they close."""
        return frozenset((*self.loops, *self.copies))


@dataclass(eq=False)
class Meeting:
    """Exchanges that one barrier publishes: all are written before it, and read after it."""

    stages: list[UOp] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """Serial ranges that are opened together, none of the kernel itself; and what is done inside.

    outer: the loop that it stands in.  items: what its END names, in an order in which that may be
    done: STOREs, closers that close its ranges, loops.  fills: the closers that are remade in each
    iteration, and the loops inside that fill them (None: an unrolled nest does).  recycled: those
    that threads exchange and that need a barrier before they are written again.  before: what must
    be done before an item because it reads what that writes in place.
    """

    ranges: tuple[UOp, ...]
    outer: Loop | None
    items: list[Item] = field(default_factory=list)
    fills: dict[UOp, Loop | Meeting | None] = field(default_factory=dict)
    recycled: set[UOp] = field(default_factory=set)
    before: dict[Item, list[Item]] = field(default_factory=dict)

    def chain(self) -> Iterator[Loop]:
        """This loop and those that it stands in, innermost first."""
        loop: Loop | None = self
        while loop is not None:
            yield loop
            loop = loop.outer

    @property
    def meets(self) -> bool:
        """Do threads of a block exchange something in each iteration?"""
        return bool(self.ranges) and any(isinstance(by, Meeting) for by in self.fills.values())

    def home(self, ranges: frozenset[UOp]) -> Loop:
        """The innermost of this loop and those around it that opens one of the ranges."""
        return next(x for x in self.chain() if x.outer is None or not ranges.isdisjoint(x.ranges))

    def outside(self, r: UOp) -> list[UOp]:
        """The ranges around one of this loop or of those that it stands in, outermost first."""
        opened = [x for loop in reversed([*self.chain()]) for x in loop.ranges]
        return opened[: opened.index(r)]

    def inside(self) -> Iterator[Loop]:
        """This loop, and all that stand in it."""
        stack = [self]
        while stack:
            loop = stack.pop()
            yield loop
            loops = (x for x in (*loop.items, *loop.fills.values()) if isinstance(x, Loop))
            stack += dict.fromkeys(loops)


Item: TypeAlias = UOp | Leaf | Loop


def nests(root: UOp, gpu: bool, in_place: InPlace) -> Loop:
    """The kernel as a loop that opens nothing.

    gpu: what is reported has loops of its own, since one thread alone does them.
    """
    return _Planner(root, gpu, in_place).top


def places(top: Loop) -> dict[UOp, list[Loop]]:
    """The loops in which each closer evaluates its value, and each STORE."""
    found: dict[UOp, list[Loop]] = {}
    for loop in top.inside():
        here = [u for u, by in loop.fills.items() if not isinstance(by, Loop)]
        for item in loop.items:
            if isinstance(item, UOp):
                here.append(item)
            elif isinstance(item, Leaf):
                here += item.stores
        for u in here:
            found.setdefault(u, []).append(loop)
    return found


@dataclass(eq=False)
class _Entry:
    """A closer or STOREs on their way in.

    loops: that it opens inside of where it is.  asked: does the END of where it is name it?
    needs: closers of where it is.
    """

    what: UOp | Leaf
    loops: tuple[UOp, ...]
    asked: bool = True
    needs: list[UOp] = field(default_factory=list)

    @property
    def stores(self) -> list[UOp]:
        """The STOREs that it is."""
        return self.what.stores if isinstance(self.what, Leaf) else []


@dataclass(eq=False)
class _Unit:
    """Entries that share a loop.

    needs: units whose results they need.  alone: it shares with no other.
    """

    entries: list[_Entry]
    alone: bool = False
    needs: dict[_Unit, None] = field(default_factory=dict)

    @property
    def loop(self) -> UOp | None:
        """The range that all of them open."""
        return self.entries[0].loops[0] if self.entries[0].loops else None

    @property
    def meets(self) -> bool:
        """Do threads of a block exchange it?"""
        u = self.entries[0].what
        if not isinstance(u, UOp) or u.op is not Ops.STAGE:
            return False
        return bool(u.arg.exchange) and u.arg.space is AddrSpace.SHARED

    @property
    def asked(self) -> bool:
        """Does the END of where it is name it?"""
        return any(e.asked for e in self.entries)

    @property
    def stores(self) -> list[UOp]:
        """All STOREs in it."""
        return [store for e in self.entries for store in e.stores]

    def reaches(self, other: _Unit) -> bool:
        """Does it need the results of another one, directly or through others?"""
        stack, seen = [*self.needs], set()
        while stack:
            unit = stack.pop()
            if unit is other:
                return True
            if unit not in seen:
                seen.add(unit)
                stack += unit.needs
        return False


class _Planner:
    """One graph; `top` is the result."""

    def __init__(self, root: UOp, gpu: bool, in_place: InPlace) -> None:
        self.gpu, self.in_place = gpu, in_place
        order = toposort(root)
        self.position = {u: n for n, u in enumerate(order)}
        self.above: set[UOp] = set()  # nodes with a closer at or below them
        self.readers: dict[UOp, list[UOp]] = {}  # of what threads exchange
        for u in order:
            if u.op in CLOSERS or any(s in self.above for s in u.src):
                self.above.add(u)
            if u.op is Ops.STAGE and u.arg.exchange:
                self.readers[u] = []
            for s in u.src:
                if s in self.readers:
                    self.readers[s].append(u)
        self.top = Loop((), None)
        todo = [(self.top, self._leaves(root))]
        while todo:
            loop, entries = todo.pop()
            todo += self._fill(loop, entries)

    def _leaves(self, root: UOp) -> list[_Entry]:
        leaves: dict[object, Leaf] = {}
        for effect in root.src:
            store, ranges = effect.src[0] if effect.op is Ops.END else effect, closed_ranges(effect)
            loops, copies = tuple(serials(ranges)), tuple(upcasts(frozenset(ranges)))
            assert len(loops) + len(copies) == sum(r.arg.kind not in WHOLE_KERNEL for r in ranges)
            reports = is_report(effect)
            key = effect if reports and self.gpu else (loops, copies, reports)
            leaves.setdefault(key, Leaf(loops, copies, reports)).stores.append(store)
        return [_Entry(leaf, leaf.loops) for leaf in leaves.values()]

    def _fill(self, loop: Loop, entries: list[_Entry]) -> list[tuple[Loop, list[_Entry]]]:
        """Decide what stands in a loop; the loops inside it, with what they shall hold."""
        units, readers = self._readers_first(loop, self._units(loop, entries))
        self._join_loops(units)
        self._join_meetings(units)
        loop.recycled = self._recycled(units) if loop.ranges else set()
        inner = []
        items: dict[_Unit, Item] = {}
        for unit in _in_order(units):
            by: Loop | Meeting | None = None
            if unit.meets:
                by = Meeting([e.what for e in unit.entries if isinstance(e.what, UOp)])
            elif unit.loop is not None:
                ranges = unit.entries[0].loops if unit.alone else (unit.loop,)
                by = Loop(ranges, loop)
                inside = [_Entry(e.what, e.loops[len(ranges) :]) for e in unit.entries]
                inner.append((by, sorted(inside, key=self._place)))
            for e in unit.entries:
                if isinstance(e.what, UOp) and not e.asked:
                    loop.fills[e.what] = by
            if unit.asked:
                items[unit] = by if isinstance(by, Loop) else unit.entries[0].what
        loop.items = list(items.values())
        loop.before = {items[x]: [items[y] for y in first] for x, first in readers.items() if first}
        return inner

    def _place(self, e: _Entry) -> int:
        """Closers in the order of the graph, then STOREs."""
        return self.position[e.what] if isinstance(e.what, UOp) else len(self.position)

    def _units(self, loop: Loop, entries: Sequence[_Entry]) -> list[_Unit]:
        """The entries and all closers that stand in the loop, STOREs of one range together."""
        found: dict[UOp, _Entry] = {}
        everything = list(entries)
        for e in everything:  # which grows
            e.needs = self._needed(e, loop)
            for u in e.needs:
                if u not in found:
                    found[u] = _Entry(u, tuple(serials(closed_ranges(u))), asked=False)
                    everything.append(found[u])
        of: dict[_Entry, _Unit] = {}
        shared: dict[UOp, _Unit] = {}
        for e in everything:
            alone = self.gpu and isinstance(e.what, Leaf) and e.what.reports
            if e.stores and e.loops and not alone:
                of[e] = shared.setdefault(e.loops[0], _Unit([]))
                of[e].entries.append(e)
            else:
                of[e] = _Unit([e], alone)
        for e, unit in of.items():
            unit.needs |= dict.fromkeys(of[found[u]] for u in e.needs)
        return list(dict.fromkeys(of.values()))

    def _readers_first(
        self, loop: Loop, units: list[_Unit]
    ) -> tuple[list[_Unit], dict[_Unit, list[_Unit]]]:
        """(units, those of STOREs first, in an order in which what is read is not yet overwritten;
        those that read what a unit writes)."""
        stores = {unit: unit.stores for unit in units if unit.stores}
        opened = {r for outer in loop.chain() for r in outer.ranges}
        ordered = self.in_place.ordered(stores, opened)
        for unit, readers in ordered:
            unit.needs |= dict.fromkeys(readers)
        return [*(x for x, _ in ordered), *(x for x in units if x not in stores)], dict(ordered)

    def _needed(self, e: _Entry, loop: Loop) -> list[UOp]:
        """The closers that stand in a loop and are needed by an entry, in whatever loops it opens
        there."""
        found: dict[UOp, None] = {}
        todo = [(s, frozenset(e.loops)) for s in self._evaluated(e)]
        seen = set(todo)
        while todo:
            u, opened = todo.pop()
            if u not in self.above or (loop.ranges and free(u).isdisjoint(loop.ranges)):
                continue
            sources: Iterable[UOp] = u.src
            if u.op in CLOSERS:
                outside = around(u)
                if outside.isdisjoint(opened):
                    if not loop.ranges or not outside.isdisjoint(loop.ranges):
                        found[u] = None
                    continue
                opened |= frozenset(serials(closed_ranges(u)))
                sources = within(u)
            for s in sources:
                if (s, opened) not in seen:
                    seen.add((s, opened))
                    todo.append((s, opened))
        return list(found)

    def _evaluated(self, e: _Entry) -> tuple[UOp, ...]:
        """What an entry evaluates; STOREs in place come after all closers that read there."""
        if isinstance(e.what, UOp):
            return within(e.what)
        values = (s for store in e.stores for s in store.src)
        return (*values, *self.in_place.closers(e.stores, e.what.opened))

    def _join_loops(self, units: list[_Unit]) -> None:
        """Units of one range become one, those first that load most bytes in common."""
        by_range: dict[UOp, list[_Unit]] = {}
        for unit in units:
            if unit.loop is not None and not unit.alone:
                by_range.setdefault(unit.loop, []).append(unit)
        for r, same in by_range.items():
            loads = {unit: self._loads(unit, r) for unit in same} if len(same) > 1 else {}
            while pairs := [
                (sum(map(_loaded_bytes, loads[a] & loads[b])), a, b)
                for a, b in itertools.combinations(same, 2)
                if loads[a] & loads[b] and self._may_join(a, b)
            ]:
                _, a, b = max(pairs, key=lambda pair: pair[0])
                _merge(units, a, b)
                loads[a] |= loads.pop(b)
                same.remove(b)

    def _join_meetings(self, units: list[_Unit]) -> None:
        """Exchanges that do not need each other become one."""
        left = [unit for unit in units if unit.meets]
        while pair := next(
            (
                (a, b)
                for a, b in itertools.combinations(left, 2)
                if not a.reaches(b) and not b.reaches(a)
            ),
            None,
        ):
            _merge(units, *pair)
            left.remove(pair[1])

    def _recycled(self, units: Sequence[_Unit]) -> set[UOp]:
        """The exchanges of a loop that no other barrier of the loop keeps apart from themselves in
        the next iteration: one that comes before it, or one that comes after all that read it.
        Those of a cluster always."""
        of = {e.what: unit for unit in units for e in unit.entries}

        def comes_after(needed: Iterable[_Unit], x: _Unit) -> bool:
            return any(unit is x or unit.reaches(x) for unit in needed)

        found = set()
        for u, unit in of.items():
            if not isinstance(u, UOp) or u.op is not Ops.STAGE or not u.arg.exchange:
                continue
            if not unit.meets:
                found.add(u)
                continue
            others = [x for x in units if x.meets and x is not unit]
            mine = next(e for e in unit.entries if e.what is u)
            before = any(comes_after((of[y] for y in mine.needs), x) for x in others)
            reader = of.get(self.readers[u][0]) if len(self.readers[u]) == 1 else None
            after = reader is not None and any(x.reaches(reader) for x in others)
            if not before and not after:
                found.add(u)
        return found

    def _may_join(self, a: _Unit, b: _Unit) -> bool:
        """Neither needs the other, nor writes what is read; a closer that reads what is written in
        place comes before all loops that STORE."""
        for x, y in ((a, b), (b, a)):
            if self.in_place.written_by(x.stores) or x.reaches(y):
                return False
            closers = (e.what for e in y.entries if isinstance(e.what, UOp))
            if x.stores and any(self.in_place.reads(u) for u in closers):
                return False
        return True

    def _loads(self, unit: _Unit, r: UOp) -> set[UOp]:
        """The LOADs of parameters that vary with a range."""
        stack = [s for e in unit.entries for s in self._evaluated(e)]
        seen: set[UOp] = set()
        while stack:
            u = stack.pop()
            if r in free(u) and u not in seen:
                seen.add(u)
                stack += u.src
        return {u for u in seen if u.op is Ops.LOAD and addrspace(u.src[0]) is AddrSpace.GLOBAL}


def _loaded_bytes(load: UOp) -> int:
    """By the whole kernel, each element once."""
    return load.dtype.itemsize * prod(r.arg.size for r in free(load.src[0]))


def _merge(units: list[_Unit], a: _Unit, b: _Unit) -> None:
    """b becomes part of a."""
    a.entries += b.entries
    a.needs |= b.needs
    for unit in units:
        if b in unit.needs:
            del unit.needs[b]
            unit.needs[a] = None
    units.remove(b)


def _in_order(units: Sequence[_Unit]) -> list[_Unit]:
    """Each after what it needs, else as they are."""
    out: dict[_Unit, None] = {}
    stack = [(unit, False) for unit in reversed(units)]
    while stack:
        unit, ready = stack.pop()
        if ready:
            out[unit] = None
        elif unit not in out:
            stack.append((unit, True))
            stack += [(x, False) for x in reversed(unit.needs)]
    return list(out)

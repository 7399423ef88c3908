"""The loops of a choice, and how often what stands in them is done: `passes/nests.py` in small.

Which axes have serial digits decides it, however long they are.  A unit (`choose/work.py`) stands
in the loops of the axes that it varies with; a REDUCE, and the STOREs that close the same axes,
open loops, which they share as the pass lets them.  So a LOAD that two of them use in one loop is
done once, and a REDUCE that two loops need is done in both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from uopc.choose.work import Axes, Unit
from uopc.uop.ops import Ops


@dataclass(eq=False)
class Place:
    """A loop, or the kernel itself.

    axes: of this loop and those around it.  sums: REDUCEs that it adds to.  loads, remade: LOADs
    and REDUCEs that each iteration does anew.  doers: REDUCEs and STOREs that evaluate their values
    in it.
    """

    axes: Axes
    outer: Place | None
    sums: list[Unit] = field(default_factory=list)
    loads: list[Unit] = field(default_factory=list)
    remade: list[Unit] = field(default_factory=list)
    doers: list[Unit] = field(default_factory=list)

    def chain(self) -> Iterator[Place]:
        """It and those around it, innermost first."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.outer


@dataclass
class Turns:
    """times: how many loops do each unit.  places: all of them, outer ones first."""

    times: dict[Unit, int]
    places: list[Place] = field(default_factory=list)


@dataclass(eq=False)
class _Group:
    """Units that share a loop; left: the axes that each opens inside of where it is."""

    members: list[tuple[Unit, Axes]]
    loads: set[Unit]
    needs: set[_Group] = field(default_factory=set)

    def reaches(self, other: _Group) -> bool:
        """Does it need the results of another one?"""
        stack, seen = [*self.needs], set()
        while stack:
            group = stack.pop()
            if group is other:
                return True
            if group not in seen:
                seen.add(group)
                stack += group.needs
        return False


def turns(
    units: Sequence[Unit], outputs: Sequence[Unit], sizes: Sequence[int], loops: Axes
) -> Turns:
    """The loops of a kernel.  sizes: of its axes.  loops: the axes that have serial digits."""
    found = Turns(dict.fromkeys(units, 0))
    found.times |= dict.fromkeys(outputs, 1)
    todo = [(Place(0, None), 0, [(u, u.closed & loops) for u in outputs])]
    while todo:
        place, own, entries = todo.pop()
        found.places.append(place)
        inside = _groups(entries, own, loops, found.times, place, sizes)
        for axis, members in inside:
            inner = Place(place.axes | axis, place)
            inner.sums += (u for u, _ in members if u.op is Ops.REDUCE)
            todo.append((inner, axis, [(u, left & ~axis) for u, left in members]))
    return found


def _groups(
    entries: Sequence[tuple[Unit, Axes]],
    own: Axes,
    loops: Axes,
    times: dict[Unit, int],
    place: Place,
    sizes: Sequence[int],
) -> list[tuple[Axes, list[tuple[Unit, Axes]]]]:
    """What is done in a place; (axis, members) of the loops in it."""
    everything = list(entries)
    known = {u for u, _ in everything}
    needs: dict[Unit, list[Unit]] = {}
    for u, left in everything:  # which grows
        needs[u] = _needed(u, left, own, loops)
        for x in needs[u]:
            if x not in known:
                known.add(x)
                times[x] += 1
                (place.loads if x.op is Ops.LOAD else place.remade).append(x)
                everything.append((x, x.closed & loops))
    of: dict[Unit, _Group] = {}
    stores: dict[Axes, _Group] = {}
    by_axis: dict[Axes, list[_Group]] = {}
    for u, left in everything:
        axis = left & -left
        group = stores.get(axis) if u.op is Ops.STORE and axis else None
        if group is None:
            group = _Group([], set())
            if axis:
                by_axis.setdefault(axis, []).append(group)
                if u.op is Ops.STORE:
                    stores[axis] = group
        group.members.append((u, left))
        group.loads |= _loads(u, axis)
        of[u] = group
        if not axis and u.op is not Ops.LOAD:
            place.doers.append(u)
    for u, below in needs.items():
        of[u].needs.update(of[x] for x in below)
    return [(a, g.members) for a, same in by_axis.items() for g in _joined(same, of, sizes)]


def _joined(groups: list[_Group], of: dict[Unit, _Group], sizes: Sequence[int]) -> list[_Group]:
    """Groups of one axis, joined as long as they load something in common."""
    everyone = set(of.values())
    while pairs := [
        (sum([_loaded_bytes(x, sizes) for x in a.loads & b.loads]), a, b)
        for a, b in itertools.combinations(groups, 2)
        if a.loads & b.loads and not a.reaches(b) and not b.reaches(a)
    ]:
        _, a, b = max(pairs, key=lambda pair: pair[0])
        a.members += b.members
        a.loads |= b.loads
        a.needs |= b.needs
        for group in everyone:
            if b in group.needs:
                group.needs.remove(b)
                group.needs.add(a)
        groups.remove(b)
        everyone.discard(b)
        for u, _ in b.members:
            of[u] = a
    return groups


def _loaded_bytes(load: Unit, sizes: Sequence[int]) -> int:
    """By the whole kernel, each element once."""
    (m,) = load.memories
    return m.itemsize * math.prod([sizes[a] for a in m.strides])


def _needed(u: Unit, left: Axes, own: Axes, loops: Axes) -> list[Unit]:
    """The units that are done in a place for u, which opens the axes `left` there."""
    found: dict[Unit, None] = {}
    todo = [(x, left) for x in u.below]
    seen = set(todo)
    while todo:
        x, opened = todo.pop()
        outside = x.free & loops
        if own and not outside & own:
            continue
        if not outside & opened:
            found[x] = None
            continue
        for y in x.below:
            item = (y, opened | (x.closed & loops))
            if item not in seen:
                seen.add(item)
                todo.append(item)
    return list(found)


def _loads(u: Unit, axis: Axes) -> set[Unit]:
    """The LOADs at or below u that vary with an axis."""
    stack, seen = list(u.below), set()
    while stack and axis:
        x = stack.pop()
        if x.free & axis and x not in seen:
            seen.add(x)
            stack += x.below
    return {x for x in seen if x.op is Ops.LOAD}

"""The scheduler with one of its own rules switched off: what its tests must notice.

A mutant is a change that a `MonkeyPatch` makes; `judged` schedules one graph under it.  Some rules
guard not the numbers but what they cost, as others stand behind them: a wrong merge makes a kernel
compute a reduction again for each of its readers, or an update that needs memory of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.schedule.execute import assert_right, planned
from tests.schedule.graphs import CanonicalCase
from uopc.kernel import KernelBody
from uopc.passes.rangeify import rangeify_kernel
from uopc.schedule import memory
from uopc.schedule.anchors import Anchors
from uopc.schedule.bodies import BodyMaker
from uopc.schedule.group import Group, Grouping
from uopc.schedule.hazards import Hazards
from uopc.schedule.memory import Leaf
from uopc.schedule.order import Order, Placed
from uopc.schedule.stores import Stores
from uopc.schedule.views import Entry
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops

Patch = pytest.MonkeyPatch


def no_cycle_check(patch: Patch) -> None:
    """A merge looks at no path between the two."""

    def between(self: Order, a: Placed, b: Placed) -> set[Placed]:
        seen: set[Placed] = set()
        stack = [s for s in a.after if s is not b and s.place < b.place]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += [s for s in node.after if s is not b and s.place < b.place]
        return seen

    patch.setattr(Order, "between", between)


def positions_stay(patch: Patch) -> None:
    """What stands after the merged pair keeps its place before it."""
    contract = Order.contract
    patch.setattr(Order, "contract", lambda self, a, b, later: contract(self, a, b, set()))


def one_access(patch: Patch) -> None:
    """Axes are paired by one access, not by all."""
    accesses = Grouping._accesses

    def last(self: Grouping, a: Group, b: Group) -> Iterator[Any]:
        yield from list(accesses(self, a, b))[-1:]

    patch.setattr(Grouping, "_accesses", last)


def leaves_of_redone_values_not_stored(patch: Patch) -> None:
    """A value is computed again elsewhere, and what it reads is not there."""
    choose = Stores._store_or_redo

    def changed(self: Stores, u: UOp, *given: Any) -> None:
        stored = set(self.stored)
        choose(self, u, *given)
        self.stored &= stored

    patch.setattr(Stores, "_store_or_redo", changed)


def elements_of_updates_unchecked(patch: Patch) -> None:
    """An update in place whose kernel reads elements that other blocks write."""
    patch.setattr(Hazards, "_reads_astray", lambda *_: False)


def overwriting_merges(patch: Patch) -> None:
    """An update joins the readers of what it overwrites, whatever they read."""
    patch.setattr(Grouping, "_overwrites", lambda *_: "")


def _without(reason: str) -> Callable[[Patch], None]:
    """Hazards that do not know one reason against an update in place."""

    def mutant(patch: Patch) -> None:
        why_not = Hazards._why_not

        def changed(self: Hazards, *given: Any) -> str:
            why = why_not(self, *given)
            return "" if why == reason else why

        patch.setattr(Hazards, "_why_not", changed)

    return mutant


def no_write_after_read(patch: Patch) -> None:
    """Nothing says that readers of the old contents come before an update in place."""
    init = Hazards.__init__

    def changed(self: Hazards, stores: Stores) -> None:
        init(self, stores)
        of = stores.grouping.of
        self.needs = {g: {of[u] for u in stores.loads[g] if u in of} for g in stores.groups}

    patch.setattr(Hazards, "__init__", changed)


def old_readers_anywhere(patch: Patch) -> None:
    """Grouping does not know that readers of the old contents stand before an update."""

    class Nothing(dict[UOp, list[UOp]]):
        def __missing__(self, key: UOp) -> list[UOp]:
            return []

    place = Grouping._place

    def changed(self: Grouping, v: UOp) -> None:
        readers, self._old_readers = self._old_readers, Nothing()
        place(self, v)
        self._old_readers = readers

    patch.setattr(Grouping, "_place", changed)


def updates_anywhere(patch: Patch) -> None:
    """Updates are placed where the graph has them, not as late as they can be."""
    patch.setattr(Anchors, "_updates_last", lambda self, anchors: anchors)


def inlined_by_composed_index(patch: Patch) -> None:
    """Bodies do not know that a value was to be computed again at this access."""
    make = BodyMaker.make

    def changed(self: BodyMaker, g: Group) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Anchors, "is_inlined", lambda *_: False)
            return make(self, g)

    patch.setattr(BodyMaker, "make", changed)


def shared_arena(patch: Patch) -> None:
    """Temporaries do not live until their last reader."""
    place = memory.place

    def changed(order: Any, own: Any, in_place: Any) -> Any:
        return place(
            [(stores, [u for u in reads if u.op is Ops.BUFFER]) for stores, reads in order],
            own,
            in_place,
        )

    patch.setattr("uopc.schedule.plan.place", changed)


def unchecked_indices(patch: Patch) -> None:
    """No kernel checks an index."""
    patch.setattr(BodyMaker, "_unchecked", lambda *_: False)


def off_axes_merges(patch: Patch) -> None:
    """Arithmetic over one axis passes for that axis: a window, a flip, an offset."""
    accesses = Grouping._accesses

    def changed(self: Grouping, a: Group, b: Group) -> Iterator[Any]:
        for x in accesses(self, a, b):
            at = tuple(
                [next(iter(e)) if not isinstance(e, int) and len(e) == 1 else e for e in x.at]
            )
            yield replace(x, at=at)

    patch.setattr(Grouping, "_accesses", changed)


def _first(e: Entry) -> Entry:
    return e if isinstance(e, int) or len(e) != 1 else next(iter(e))


MUTANTS: dict[str, Callable[[Patch], None]] = {
    "no cycle check": no_cycle_check,
    "positions stay": positions_stay,
    "one access": one_access,
    "leaves of redone values not stored": leaves_of_redone_values_not_stored,
    "elements of updates unchecked": elements_of_updates_unchecked,
    "overwriting merges": overwriting_merges,
    "superseded shares": _without("superseded, but still asked for"),
    "asked-for old contents": _without("the old contents are still asked for"),
    "memory taken twice": _without("another new version took the memory"),
    "needed by a reader": _without("a reader of the old contents needs the new ones"),
    "no write after read": no_write_after_read,
    "old readers anywhere": old_readers_anywhere,
    "updates anywhere": updates_anywhere,
    "inlined by composed index": inlined_by_composed_index,
    "shared arena": shared_arena,
    "unchecked indices": unchecked_indices,
    "off-axes merges": off_axes_merges,
}


@dataclass(frozen=True)
class Judged:
    """What is wrong with a schedule; reductions that a kernel computes more than once; updates that
    are not in place."""

    wrong: str
    repeated: int = 0
    moved: int = 0

    def worse(self, other: Judged) -> bool:
        dearer = self.repeated > other.repeated or self.moved > other.moved
        return bool(self.wrong) or dearer


def judged(case: CanonicalCase, way: str, mutant: str | None = None) -> Judged:
    """The schedule of a graph, with a rule switched off."""
    with pytest.MonkeyPatch.context() as patch:
        if mutant is not None:
            MUTANTS[mutant](patch)
        try:
            plan = planned(case, way)
            assert_right(case, plan, random.Random(0))
            repeated = sum(computed_again(k.body) for k in plan.launches)
        except Exception as wrong:
            return Judged(f"{type(wrong).__name__}: {wrong}")
    updates = [p for u, p in zip(case.roots, plan.results, strict=True) if u.op is Ops.ASSIGN]
    return Judged("", repeated, sum(not isinstance(place, Leaf) for place in updates))


def computed_again(body: KernelBody) -> int:
    """How many reductions a kernel has beyond those that its values are made of."""
    values = toposort(*[o.value for o in body.outputs])
    made = [u for u in toposort(rangeify_kernel(body)) if u.op is Ops.REDUCE]
    return max(0, len(made) - sum(u.op in (Ops.REDUCE, Ops.SCATTER) for u in values))

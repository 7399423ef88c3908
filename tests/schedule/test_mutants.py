"""Each rule of the scheduler, switched off, is noticed by some graph of a small fixed set.

Rules that guard costs (`mutants.py`) are noticed by what they cost: with `overwriting merges`, `old
readers anywhere` and `updates anywhere` an update finds that it cannot be in place after all, since
what guards the numbers looks at the groups as they are; with `one access` a reduction is computed
again for each reader of another element.  One rule more, that no two axes of an index are one and
the same, is out of reach: no op makes a diagonal without arithmetic (`test_views.py` asks
`is_plain` itself).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.graphs import CanonicalCase, Case, random_case
from tests.schedule.mutants import MUTANTS, Judged, judged
from uopc.dtype import dtypes
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops

SHAPE = (32, 16)


def _case(*roots: UOp) -> CanonicalCase:
    """Roots over leaves of f64."""
    rng = np.random.default_rng(0)
    arrays = tuple([rng.integers(-9, 10, SHAPE).astype(np.float64) for _ in range(2)])
    return Case(roots, frozenset(), arrays, {}, True).canonical()


def _update_with_a_late_reader() -> CanonicalCase:
    """The update could join the row sums, if nobody who needs these read the old contents."""
    x, y = (buffer(k, dtypes.f64, SHAPE) for k in range(2))
    sums = y.reduce(Ops.ADD, 1).reshape((SHAPE[0], 1)).expand(SHAPE)
    return _case(x.assign(x + sums), x.flip((0,)) + sums)


def _computed_again_before_it_is_stored() -> CanonicalCase:
    """One reader computes the sum again, backwards; a second shares its kernel, which comes later;
    a third reads it from memory."""
    x, y = (buffer(k, dtypes.f64, SHAPE) for k in range(2))
    both = x + y
    return _case(both.flip((0,)) * 2, both.maximum(0), both.reduce(Ops.MAX, 2))


MADE: dict[str, Callable[[], CanonicalCase]] = {
    "update with a late reader": _update_with_a_late_reader,
    "computed again before it is stored": _computed_again_before_it_is_stored,
}

#: mutant -> (a graph by name, or the seed and the steps of a random one; how it is scheduled).
#: Where random graphs change: python scratch/fuzz_schedule.py 250 0 --mutants
NOTICED: dict[str, tuple[str | tuple[int, int], str]] = {
    "no cycle check": ((29, 14), "cpu"),
    "positions stay": ((25, 14), "tight"),
    "one access": ((87, 40), "usual"),
    "leaves of redone values not stored": ((89, 14), "tight"),
    "elements of updates unchecked": ((107, 14), "usual"),
    "overwriting merges": ((77, 14), "usual"),
    "superseded shares": ((113, 14), "usual"),
    "asked-for old contents": ((16, 14), "usual"),
    "memory taken twice": ((60, 40), "tight"),
    "needed by a reader": ((89, 14), "tight"),
    "no write after read": ((26, 14), "usual"),
    "old readers anywhere": ((91, 14), "usual"),
    "updates anywhere": ("update with a late reader", "usual"),
    "inlined by composed index": ("computed again before it is stored", "tight"),
    "shared arena": ((89, 14), "tight"),
    "unchecked indices": ((68, 14), "usual"),
    "off-axes merges": ((29, 14), "usual"),
}


@functools.cache
def graph(name: str | tuple[int, int]) -> CanonicalCase:
    return MADE[name]() if isinstance(name, str) else random_case(*name).canonical()


@functools.cache
def as_it_is(name: str | tuple[int, int], way: str) -> Judged:
    return judged(graph(name), way)


def test_every_mutant_has_its_graph() -> None:
    assert NOTICED.keys() == MUTANTS.keys()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_noticed(mutant: str) -> None:
    name, way = NOTICED[mutant]
    without = as_it_is(name, way)
    assert without.wrong == ""
    assert judged(graph(name), way, mutant).worse(without)

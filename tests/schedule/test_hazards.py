"""Updates in place, or the reason why not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.kernels import along
from tests.schedule.execute import assert_right, planned
from tests.schedule.graphs import Case
from uopc.dtype import dtypes
from uopc.schedule.memory import Leaf
from uopc.schedule.plan import Schedule
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops

X, Y = (buffer(k, dtypes.f64, (6, 6)) for k in range(2))


def plan_of(*roots: UOp, kept: tuple[UOp, ...] = (), way: str = "usual") -> Schedule:
    """The schedule, once it has computed the right numbers."""
    rng = np.random.default_rng(0)
    arrays = tuple([rng.integers(-3, 4, (6, 6)).astype(np.float64) for _ in range(2)])
    case = Case(roots, frozenset(kept), arrays, {}, True).canonical()
    plan = planned(case, way)
    for seed in range(5):
        assert_right(case, plan, random.Random(seed))
    return plan


def set_rows(old: UOp, first: int, last: int, part: UOp) -> UOp:
    """old[first:last] = part."""
    pads = [(first, old.shape[0] - last), (0, 0)]
    inside = UOp.const(True, dtypes.bool).reshape((1, 1)).expand(part.shape).pad(pads, False)
    return old.assign(inside.where(part.pad(pads), old))


def in_place(plan: Schedule) -> list[bool]:
    return [isinstance(place, Leaf) for place in plan.results]


@pytest.mark.parametrize(
    "value",
    [
        X + 1.0,
        X * Y,
        Y,
        X - along(X.reduce(Ops.MAX, 1), X),
        X + along(Y.reduce(Ops.ADD, 1), X),
    ],
    ids=["one operation", "two inputs", "a copy", "its rows' maximum", "another's sums"],
)
def test_each_block_reads_what_it_writes(value: UOp) -> None:
    plan = plan_of(X.assign(value))
    assert in_place(plan) == [True]
    assert plan.arena_bytes == 0


@pytest.mark.parametrize(
    "value",
    [X.permute((1, 0)), X.flip((0,)) + X, X.shrink([(0, 5), (0, 6)]).pad([(1, 0), (0, 0)])],
    ids=["transposed", "mirrored", "shifted"],
)
def test_other_elements_need_another_memory(value: UOp) -> None:
    plan = plan_of(X.assign(value))
    assert in_place(plan) == [False]
    assert "reads other elements of what it overwrites" in plan.explain()


def test_a_shift_by_a_row() -> None:
    """x[1:] = x[:-1]"""
    plan = plan_of(set_rows(X, 1, 6, X.shrink([(0, 5), (0, 6)])))
    assert len(plan.launches) == 1 and in_place(plan) == [False]


def test_a_view_that_was_taken_before_keeps_its_values() -> None:
    """v = x[2:5]; x[3] = y[3]: v is read first, x is written in place."""
    view = X.shrink([(2, 5), (0, 6)])
    plan = plan_of(view, set_rows(X, 3, 4, Y.shrink([(3, 4), (0, 6)])))
    assert in_place(plan) == [False, True]


def test_a_swap_needs_one_more_memory() -> None:
    plan = plan_of(X.assign(Y), Y.assign(X))
    assert sorted(in_place(plan)) in ([False, True], [False, False])
    assert plan.moved_bytes <= 4 * 36 * 8


def test_kept_contents_stay() -> None:
    plan = plan_of(X.assign(X + 1.0), kept=(X,))
    assert in_place(plan) == [False]
    assert "the old contents are still asked for" in plan.explain()


def test_a_version_that_is_asked_for_is_not_overwritten() -> None:
    one = X.assign(X + 1.0)
    plan = plan_of(one, one.assign(one * 2.0))
    assert in_place(plan)[0] is False
    assert "superseded, but still asked for" in plan.explain()


def test_versions_in_a_row_take_one_memory() -> None:
    one = X.assign(X + 1.0)
    plan = plan_of(one.assign(one * 2.0))
    assert in_place(plan) == [True]
    assert len(plan.launches) == 1 and plan.arena_bytes == 0


@pytest.mark.parametrize("way", ["usual", "tight", "cpu"])
def test_readers_of_the_old_contents_come_first(way: str) -> None:
    plan = plan_of(X.assign(X + 1.0), X.flip((0,)) * 2.0, X.reduce(Ops.ADD, 2), way=way)
    assert in_place(plan)[0] is True


def test_a_reader_that_needs_the_new_contents_keeps_the_old_ones() -> None:
    """y = x.T + x', where x' is the new version of x."""
    new = X.assign(X.reduce(Ops.ADD, 2).reshape((1, 1)).expand((6, 6)) + 1.0)
    far = new.flip((0,)).reduce(Ops.ADD, 1)
    plan = plan_of(new, along(far, X) + X.permute((1, 0)), way="tight")
    assert in_place(plan)[0] is False


def test_two_versions_of_one_memory() -> None:
    """Two tensors of the same elements, each updated: one of them may stay."""
    plan = plan_of(X.assign(X + 1.0), X.assign(X * 2.0))
    assert sum(in_place(plan)) <= 1

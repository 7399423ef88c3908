"""Axes in atoms: the same numbers, and only identities left where shapes allow it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import param
from tests.schedule.graphs import evaluated, random_case
from uopc.schedule.refine import refine
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops


def split(*roots: UOp) -> list[UOp]:
    table = refine(roots)
    return [table[r] for r in roots]


def reshapes_of_values(*roots: UOp) -> list[UOp]:
    """RESHAPEs that do more than add or drop axes of one element."""
    return [
        u
        for u in toposort(*roots)
        if u.op is Ops.RESHAPE
        and [n for n in u.shape if n != 1] != [n for n in u.src[0].shape if n != 1]
    ]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_the_numbers_stay(first: int) -> None:
    for seed in range(first, first + 20):
        case = random_case(seed, 20).canonical()
        if not case.roots:
            continue
        roots = split(*case.roots)
        for got, want in zip(evaluated(roots, case.arrays), case.wanted, strict=True):
            assert np.array_equal(got.reshape(-1), want.reshape(-1))


def test_a_flat_view_takes_the_axes_of_what_it_is_added_to() -> None:
    (root,) = split(param(0, 4, 6).reshape((24,)) + param(1, 24))
    assert root.shape == (4, 6)
    assert reshapes_of_values(root) == []


def test_batch_and_time_joined_and_heads_split_are_identities() -> None:
    x = param(0, 2, 8, 12)
    joined = x.reshape((16, 12)) * param(1, 16, 12)
    heads = joined.reshape((2, 8, 3, 4)).permute((0, 2, 1, 3))
    (root,) = split(heads + param(2, 2, 3, 8, 4))
    assert reshapes_of_values(root) == []
    assert root.shape == (2, 3, 8, 4)


def test_the_axes_of_a_reduction_are_counted_in_atoms() -> None:
    x = param(0, 4, 6)
    (root,) = split((x.reshape((24,)) + param(1, 24)).reduce(Ops.ADD, 1) + x.reduce(Ops.ADD, 2))
    reductions = [u for u in toposort(root) if u.op is Ops.REDUCE]
    assert [u.arg.axes for u in reductions] == [2, 2]


def test_sizes_that_do_not_divide_stay_a_quotient() -> None:
    (root,) = split(param(0, 4, 6).reshape((6, 4)) + param(1, 6, 4))
    assert len(reshapes_of_values(root)) == 1


@pytest.mark.parametrize("what", ["window", "flip", "gather", "scatter"])
def test_axes_that_are_addressed_are_not_split(what: str) -> None:
    x = param(0, 24, 3)
    index = UOp.arange(24).reshape((24, 1)).expand((24, 3))
    made = {
        "window": lambda: x.shrink([(1, 24), (0, 3)]).pad([(1, 0), (0, 0)]),
        "flip": lambda: x.flip((0,)),
        "gather": lambda: x.gather((~0, 1), index),
        "scatter": lambda: x.scatter((24, 3), (~0, 1), index),
    }[what]()
    table = refine([made.reshape((4, 6, 3)) + param(1, 4, 6, 3)])
    assert table[x].shape == (24, 3)


def test_an_iota_in_atoms_counts_as_before() -> None:
    (root,) = split(
        UOp.arange(24).reshape((2, 12)).permute((1, 0))
        + UOp.arange(12).reshape((12, 1)).expand((12, 2))
    )
    assert reshapes_of_values(root) == []
    want = np.arange(24).reshape(2, 12).T + np.arange(12)[:, None]
    assert np.array_equal(evaluated([root], [])[0].reshape(12, 2), want)

"""Indices that are only told apart: against the places that views really read."""

from __future__ import annotations

import random

import numpy as np
import pytest

from uopc.dtype import dtypes
from uopc.schedule.views import ZERO, Entry, axes_in, is_plain, own, runs, source
from uopc.uop.node import UOp, buffer, prod
from uopc.uop.numbers import Array
from uopc.uop.oracle.tensor import evaluate


def view(rng: random.Random, x: UOp) -> UOp:
    """A random view of x."""
    kind = rng.choice(("reshape", "permute", "flip", "shrink", "pad", "expand"))
    axes = range(len(x.shape))
    if kind == "reshape":
        n = prod(x.shape)
        cuts = [d for d in (1, 2, 3, 4, 6, 12) if n % d == 0]
        d = rng.choice(cuts)
        return x.reshape(rng.choice([(d, n // d), (n // d, 1, d), (n,)]))
    if kind == "permute":
        return x.permute(rng.sample(axes, len(axes)))
    if kind == "flip":
        return x.flip([a for a in axes if rng.random() < 0.5])
    if kind == "shrink":
        bounds = [(rng.randrange(n), n) if rng.random() < 0.4 else (0, n) for n in x.shape]
        return x.shrink(bounds)
    if kind == "pad":
        return x.pad([(rng.randrange(2), 0) if rng.random() < 0.3 else (0, 0) for _ in axes], -1)
    return x.expand([3 if n == 1 else n for n in x.shape])


@pytest.mark.parametrize("seed", range(60))
def test_entries_are_true_of_every_element(seed: int) -> None:
    """A number is the axis itself, ZERO is the first element, a set holds all it depends on."""
    rng = random.Random(seed)
    x = u = buffer(0, dtypes.i64, rng.choice([(4, 6), (24,), (2, 3, 4), (6, 1, 4), (3, 4, 2)]))
    for _ in range(rng.randint(1, 4)):
        u = view(rng, u)
    at, node = own(u.shape), u
    while node is not x:
        at, node = source(node, at), node.src[0]
    for entry, places in zip(at, np.indices(x.shape), strict=True):
        assert_true_of(entry, evaluate(u, {0: places}))


def assert_true_of(entry: Entry, read: Array) -> None:
    """read: the place along one axis that each element comes from, -1 for padding."""
    inside = read >= 0
    if entry == ZERO:
        assert not np.any(read[inside])
    elif isinstance(entry, int):
        assert np.array_equal(read[inside], np.indices(read.shape)[entry][inside])
    else:
        for axis in set(range(read.ndim)) - entry:
            low = np.where(inside, read, 1000).min(axis)
            high = read.max(axis)
            assert np.all((low == high) | (high < 0))


def test_an_index_by_value_depends_on_all_axes_of_its_result() -> None:
    x, i = buffer(0, dtypes.f32, (5, 6)), buffer(1, dtypes.i64, (4, 6))
    assert source(x.gather((~0, 1), i), own((4, 6))) == (frozenset({0, 1}), 1)
    assert source(buffer(2, dtypes.f32, (1, 6)).gather((~0, 1), i), own((4, 6))) == (ZERO, 1)


def test_plain_is_each_axis_once() -> None:
    assert is_plain((1, 0), (4, 6))
    assert is_plain((ZERO, 0), (1, 6))
    assert is_plain((), ())
    assert not is_plain((0, 0), (4, 4)), "a diagonal"
    assert not is_plain((ZERO, 0), (4, 6)), "one element of an axis"
    assert not is_plain((frozenset({0}), 1), (4, 6))


def test_axes_in() -> None:
    assert axes_in((ZERO, 3, frozenset({1, 2}))) == {1, 2, 3}


def test_runs_pair_axes_of_equal_products() -> None:
    assert runs((4, 6), (24,)) == [(range(2), range(1))]
    assert runs((2, 3, 4), (6, 4)) == [(range(2), range(1)), (range(2, 3), range(1, 2))]
    assert runs((5, 1), (5,)) == [(range(1), range(1)), (range(1, 2), range(1, 1))]
    assert runs((), (1, 1)) == [(range(0), range(1)), (range(0), range(1, 2))]

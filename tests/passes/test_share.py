"""Axes that several reductions walk become one, and axes get their numbers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import pytest

from tests.kernels import (
    along,
    arrays_of,
    assert_same_numbers,
    assert_stores,
    axpy,
    numerator,
    outputs,
    param,
    product,
    softmax,
)
from uopc.passes.rangeify import rangeify
from uopc.passes.share import axes_of, reduced_axes, share
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

X = param(0, 4, 8)


def transposed_twice() -> UOp:
    """max over i of (x[i] + max over j of (x[j] - x[i])): j may not become i."""
    n = 6
    x = param(0, n)
    inner = (x.reshape((1, n)).expand((n, n)) - x.reshape((n, 1)).expand((n, n))).reduce(Ops.MAX, 1)
    return (x + inner).reduce(Ops.MAX, 1)


CASES: dict[str, tuple[UOp, ...]] = {
    "softmax": (softmax(X),),
    "numerator": (numerator(X),),
    "max-and-argmax": (X.reduce(Ops.MAX, 1), X.argmax(1)),
    "last-two-axes": (param(0, 3, 4, 5).reduce(Ops.ADD, 2),),
    "last-two-axes-apart": (
        (param(0, 3, 4, 5) * param(1, 4).reshape((1, 4, 1)).expand((3, 4, 5))).reduce(Ops.ADD, 2),
    ),
    "captured": (transposed_twice(),),
    "nothing-shared": (X.reduce(Ops.MAX, 1) + param(1, 4, 8).reduce(Ops.MAX, 1),),
    "product": (product(4, 6, 5),),
    "elementwise": (axpy(3, 4),),
    "variance": (((X - along(X.reduce(Ops.ADD, 1), X)) * 0.5).reduce(Ops.ADD, 1),),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies = CASES[name]
    before = rangeify(bodies, outputs(bodies))
    after = share(before)
    check(after, Stage.INDEXED)
    arrays = arrays_of(*bodies)
    if any(u.op is Ops.EXP for u in toposort(before)):
        assert_same_numbers(before, after, arrays, (Stage.INDEXED, Stage.INDEXED))
    else:
        assert_stores(after, bodies, arrays, Stage.INDEXED)
    golden(f"share/{name}.txt", show(after))


@pytest.mark.parametrize("name", CASES)
def test_axes_are_numbered_outputs_first(name: str) -> None:
    root = share(rangeify(CASES[name], outputs(CASES[name])))
    axes, reduced = axes_of(root), reduced_axes(root)
    assert [a.arg.axis for a in axes] == list(range(len(axes)))
    kept = [a for a in range(len(axes)) if a not in reduced]
    assert kept == list(range(len(kept)))


def loads(root: UOp) -> int:
    return sum(u.op is Ops.LOAD for u in toposort(root))


def test_a_softmax_loads_its_row_by_one_node() -> None:
    before = rangeify([softmax(X)], outputs([X]))
    assert (loads(before), loads(share(before))) == (3, 1)
    assert len(axes_of(share(before))) == 2


def test_max_and_argmax_walk_one_axis() -> None:
    root = share(rangeify(CASES["max-and-argmax"], outputs(CASES["max-and-argmax"])))
    assert loads(root) == 1 and reduced_axes(root) == {1}


def test_nothing_is_captured() -> None:
    root = share(rangeify([transposed_twice()], outputs([transposed_twice()])))
    assert len(axes_of(root)) == 2


def test_reduced_axes_of_a_contiguous_array_are_one() -> None:
    root = share(rangeify(CASES["last-two-axes"], outputs(CASES["last-two-axes"])))
    assert [a.arg.size for a in axes_of(root)] == [3, 20]


def test_reduced_axes_that_something_tells_apart_are_two() -> None:
    root = share(rangeify(CASES["last-two-axes-apart"], outputs(CASES["last-two-axes-apart"])))
    assert [a.arg.size for a in axes_of(root)] == [3, 4, 5]


def test_axes_of_other_sizes_are_never_shared() -> None:
    a, b = param(0, 4, 6).reduce(Ops.MAX, 1), param(1, 4, 8).reduce(Ops.MAX, 1)
    assert reduced_axes(share(rangeify([a + b], outputs([a])))) == {1, 2}


def test_many_reductions_merge_without_recursion() -> None:
    n, x = 70, param(0, 3, 200)
    total = None
    for k in range(2, n + 2):
        row = x.shrink(((0, 3), (0, 2 * k))).reshape((3, 2, k)).reduce(Ops.MAX, 2)
        total = row if total is None else total + row
    assert total is not None
    before = rangeify([total], outputs([total]))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        after = share(before)
    finally:
        sys.setrecursionlimit(limit)
    assert len(axes_of(before)) == 1 + 2 * n and len(axes_of(after)) == 1 + n

"""Which values share a kernel, and the reason that keeps others apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernels import along, param, softmax
from tests.schedule.execute import CPU, GPU, TIGHT
from tests.schedule.test_anchors import product
from uopc.dtype import dtypes
from uopc.schedule.anchors import Anchors
from uopc.schedule.group import Grouping
from uopc.schedule.limits import Limits, limits_of
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.ops import Ops


def grouped(*roots: UOp, limits: Limits | None = None) -> Grouping:
    return Grouping(Anchors(roots, frozenset(), limits or limits_of(GPU)))


def sizes(grouping: Grouping) -> list[int]:
    return [len(g.members) for g in grouping.groups]


def columns(x: UOp, op: Ops = Ops.ADD) -> UOp:
    return x.permute((1, 0)).reduce(op, 1)


# ---- together
def test_a_softmax_meets_on_its_rows() -> None:
    (g,) = grouped(softmax(param(0, 512, 1024))).groups
    assert list(g.grid.values()) == [512]
    assert len(g.members) == 4


def test_results_of_several_shapes_share_the_rows() -> None:
    x = param(0, 512, 64)
    total = x.reduce(Ops.ADD, 1)
    wide, narrow = (total.reshape((512, 1)).expand((512, n)) for n in (64, 16))
    (g,) = grouped(x * wide, param(1, 512, 16) * narrow).groups
    assert list(g.grid.values()) == [512]


def test_maps_of_one_input_share_its_kernel() -> None:
    x = param(0, 512, 64)
    assert sizes(grouped(x + 1.0, x * 2.0)) == [2]


def test_a_bias_and_an_activation_join_their_product() -> None:
    h = product(param(0, 64, 32), param(1, 32, 48)) + param(2, 48).reshape((1, 48)).expand((64, 48))
    (g,) = grouped(h.maximum(0.0)).groups
    assert g.has_product and g.macs == 64 * 32 * 48
    assert sorted(g.grid.values()) == [48, 64]


def test_rows_of_a_small_product_join_it() -> None:
    h = product(param(0, 64, 32), param(1, 32, 10))
    assert len(grouped(h - along(h.reduce(Ops.MAX, 1), h)).groups) == 1


def test_inner_axes_that_read_one_input_alike_become_one() -> None:
    x = param(0, 512, 1024)
    (g,) = grouped(x.reduce(Ops.ADD, 1), x.reduce(Ops.MAX, 1)).groups
    a, b = (g.axes[m] for m in g.members)
    assert a == b


def test_values_of_one_shape_are_walked_alike() -> None:
    x = param(0, 512, 64)
    (g,) = grouped(softmax(x), x + 1.0).groups
    maps = [g.axes[m] for m in g.members if m.op is not Ops.REDUCE]
    assert all(axes == maps[0] for axes in maps)


# ---- apart
X = param(0, 256, 256)
DEAR = (X + param(1, 256, 256)).exp()
ROWS = X.reduce(Ops.ADD, 1)
KEPT = buffer(0, dtypes.f32, (256, 256))


def _chain() -> list[UOp]:
    """Rows less their maximum, then the sum of everything over columns, on few columns."""
    x = param(0, 4096, 32)
    low = columns(x, Ops.MAX).reshape((1, 32)).expand(x.shape)
    return [columns(x - low)]


def _diamond() -> list[UOp]:
    """A map reads an input beside column sums that stand between the two."""
    low, all_of = columns(DEAR).reshape((1, 256)), DEAR.reduce(Ops.ADD, 2).reshape((1, 1))
    return [X + low.expand(X.shape) * all_of.expand(X.shape), X * 2.0]


APART: dict[str, tuple[Callable[[], list[UOp]], Limits]] = {
    "read off its own axes": (
        lambda: [along(ROWS, X).flip((0,)) + X, ROWS],
        limits_of(GPU),
    ),
    "read along two different axes": (
        lambda: [along(ROWS, X) + ROWS.reshape((1, 256)).expand(X.shape)],
        limits_of(GPU),
    ),
    "the shared input is read along different axes": (
        lambda: [X * 2.0, X.flip((0,)) + 1.0],
        limits_of(GPU),
    ),
    "two products side by side": (
        lambda: [product(X, param(1, 256, 8)), product(X, param(2, 256, 8))],
        limits_of(GPU),
    ),
    "too few blocks": (lambda: [columns(X), X.reduce(Ops.ADD, 1)], TIGHT),
    "chained reductions on few blocks could not be split": (_chain, limits_of(GPU)),
    "too few blocks for a product": (
        lambda: [softmax(product(param(0, 64, 65536), param(1, 65536, 64)))],
        limits_of(GPU),
    ),
    "a product's tile cannot hold the row": (
        lambda: [softmax(product(param(0, 1024, 64), param(1, 64, 1024)))],
        limits_of(GPU),
    ),
    "chained products": (
        lambda: [product(product(param(0, 256, 64), param(1, 64, 64)), param(2, 64, 64))],
        limits_of(GPU),
    ),
    "a native kernel holds no tile of a reduced value": (
        lambda: [columns(X - along(X.reduce(Ops.MAX, 1), X))],
        limits_of(CPU),
    ),
    "would overwrite what another block reads": (
        lambda: [KEPT.flip((0,)) + along(ROWS, X), KEPT.assign(along(ROWS, X))],
        limits_of(GPU),
    ),
    "too many buffers": (
        lambda: [ROWS, *[X + param(k, 256, 256) for k in range(2, 10)]],
        TIGHT,
    ),
    "register pressure": (
        lambda: [DEAR * param(2, 256, 256), DEAR + param(3, 256, 256) * param(4, 256, 256)],
        Limits(live=4),
    ),
    "cycle": (_diamond, TIGHT),
}


@pytest.mark.parametrize("reason", APART)
def test_a_refused_merge_has_its_reason(reason: str) -> None:
    build, limits = APART[reason]
    grouping = grouped(*build(), limits=limits)
    assert reason in grouping.refused, grouping.refused


def test_nothing_is_fused_unless_it_may_be() -> None:
    known = Anchors([softmax(X)], frozenset(), Limits())
    assert sizes(Grouping(known, fuse=False)) == [1, 1, 1, 1]


def test_column_sums_beside_rows_are_noted() -> None:
    x = param(0, 8192, 1024)
    rows = x - along(x.reduce(Ops.MAX, 1), x)
    grouping = grouped(rows, columns(rows))
    assert {u.op for u in grouping.column_sums} == {Ops.REDUCE}
    assert all(u.shape == (1024,) for u in grouping.column_sums)


def test_a_whole_number_is_no_column_sum_that_may_be_cut() -> None:
    """Only sums of floats: their order is what P fixes."""
    x = param(0, 8192, 1024, dtype=dtypes.i32)
    rows = x - along(x.reduce(Ops.MAX, 1), x)
    assert not grouped(rows, columns(rows)).column_sums


def test_groups_stand_in_an_order() -> None:
    grouping = grouped(*APART["too few blocks"][0](), limits=TIGHT)
    for g in grouping.groups:
        for m in g.members:
            assert grouping.of[m] is g
    made = [m for g in grouping.groups for m in g.members]
    assert set(made) == set(grouping.anchors.sequence) and len(made) == len(set(made))
    assert not any(u.op is Ops.BUFFER for u in made)
    assert toposort(*made)

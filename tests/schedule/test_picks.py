"""A pick of computed rows is a comparison, of a memory it stays a pick."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import param, softmax
from tests.schedule.execute import GPU, planned
from tests.schedule.graphs import Case, evaluated, strays
from uopc.dtype import DType, dtypes
from uopc.schedule.picks import picked
from uopc.schedule.plan import schedule
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.ops import Ops


def pick(x: UOp, index: UOp) -> UOp:
    return x.gather((0, ~0), index)


def computed(dtype: DType = dtypes.f32) -> UOp:
    return param(0, 5, 7, dtype=dtype) * 2


def index(dtype: DType = dtypes.i64) -> UOp:
    return buffer(1, dtype, (5,))


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.bf16, dtypes.i32, dtypes.u8])
@pytest.mark.parametrize("of", [dtypes.i32, dtypes.i64])
def test_the_picked_elements_are_the_same_bits(dtype: DType, of: DType) -> None:
    """Negative indices count from the end; infinities and both zeros are picked as they are."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (5, 7)).astype(dtype.numpy)
    if dtype.is_float:
        x[0, 3], x[1, 6] = -np.inf, -0.0
    at = np.array([3, -1, 0, -7, 6], of.numpy)
    plain = pick(computed(dtype), index(of))
    changed = picked(plain)
    assert changed is not plain and changed.shape == plain.shape
    got, want = evaluated([changed, plain], [x, at])
    assert got.tobytes() == want.tobytes()


def test_what_names_nothing_is_still_reported() -> None:
    changed = picked(pick(computed(), index()))
    (inner,) = (u for u in toposort(changed) if u.op is Ops.GATHER)
    for at, out in (([0, 6, -7, 1, 2], False), ([0, 7, 0, 0, 0], True), ([-8, 0, 0, 0, 0], True)):
        assert strays(inner, evaluated(inner.src[1:], [np.zeros((5, 7)), np.array(at)])) is out


def test_columns_are_picked_too() -> None:
    x = param(0, 7, 5) * 2.0
    changed = picked(x.gather((~0, 0), index()))
    at = np.array([6, 0, -1, 3, 3])
    x_elements = np.arange(35, dtype=np.float32).reshape(7, 5)
    (got,) = evaluated([changed], [x_elements, at])
    assert np.array_equal(got, (x_elements * 2)[at, np.arange(5)])


@pytest.mark.parametrize(
    "kept",
    [
        pick(param(0, 5, 7), index()),
        pick(param(0, 7, 5).permute((1, 0)), index()),
        pick(computed(), index()).gather((~0,), buffer(2, dtypes.i64, (3,))),
        computed().gather((~0, 1), buffer(2, dtypes.i64, (3, 7))),
        computed().gather((~0, ~1), index(), index()),
        pick(param(0, 5, 1) * 2, index()),
    ],
    ids=["a memory", "a view of one", "of a pick", "whole rows", "pairs", "one column"],
)
def test_others_stay(kept: UOp) -> None:
    assert picked(kept) is kept


def test_a_loss_joins_its_softmax() -> None:
    x = param(0, 512, 1000)
    case = Case((pick(softmax(x), buffer(1, dtypes.i64, (512,))),), frozenset(), (), {}, True)
    picked_rows = [picked(u) for u in case.roots]
    plan = schedule(picked_rows, GPU)
    assert len(plan.launches) == 1
    assert plan.moved_bytes == plan.least_bytes


def test_embedding_rows_stay_a_pick_of_memory() -> None:
    table = buffer(0, dtypes.f64, (9, 2))
    rows = table.gather((~0, 1), buffer(1, dtypes.i64, (4, 2)))
    arrays = (np.arange(18.0).reshape(9, 2), np.zeros((4, 2), np.int64))
    plan = planned(Case((rows + 1.0,), frozenset(), arrays, {}, True).canonical(), "usual")
    assert plan.launches[0].reads == 4 * 2 * 8 + 4 * 2 * 8

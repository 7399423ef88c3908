"""Column sums that join rows in parts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.kernels import along, param
from tests.schedule.execute import CPU, GPU, TIGHT, assert_right, planned
from tests.schedule.graphs import Case
from tests.schedule.test_group import columns
from uopc.dtype import DType, dtypes
from uopc.schedule.limits import Limits
from uopc.schedule.partial import parts_of, with_partial_sums
from uopc.schedule.plan import schedule
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops


def rows_and_columns(x: UOp) -> tuple[UOp, UOp]:
    rows = x - along(x.reduce(Ops.MAX, 1), x)
    return rows, columns(rows)


def test_parts_fill_the_machine_and_divide_the_rows() -> None:
    assert parts_of(8192, Limits()) == 128, "the fewest: parts are written and read again"
    assert parts_of(8190, Limits()) == 130
    assert parts_of(8191, Limits()) is None, "a prime"
    assert parts_of(256, Limits()) == 128, "more than one row each"
    assert parts_of(100, Limits()) is None


def test_a_sum_in_two_steps() -> None:
    total = columns(param(0, 24, 8))
    (root,), table = with_partial_sums([total], frozenset((total,)), TIGHT)
    reductions = [u for u in toposort(root) if u.op is Ops.REDUCE]
    assert [u.shape for u in reductions] == [(4, 8), (8,)]
    assert table[total] is root


def test_others_stay() -> None:
    total = columns(param(0, 24, 8))
    (root,), _ = with_partial_sums([total], frozenset(), TIGHT)
    assert root is total
    few = columns(param(0, 23, 8))
    (root,), _ = with_partial_sums([few], frozenset((few,)), TIGHT)
    assert root is few


def test_the_rows_kernel_makes_the_parts() -> None:
    plan = schedule(rows_and_columns(param(0, 8192, 1024)), GPU)
    assert len(plan.launches) == 2
    assert plan.moved_bytes <= 1.1 * plan.least_bytes
    first, second = plan.launches
    assert second.reads == 128 * 1024 * 4 and first.writes == 8192 * 1024 * 4 + second.reads


def test_a_native_kernel_takes_no_parts() -> None:
    plan = schedule(rows_and_columns(param(0, 8192, 1024)), CPU)
    assert plan.arena_bytes == 0, "the sums read the rows, which are asked for"


@pytest.mark.parametrize("dtype", [dtypes.f64, dtypes.f32, dtypes.f16, dtypes.bf16])
def test_the_sum_is_rounded_once(dtype: DType) -> None:
    """Sums that no narrow float holds before the last step."""
    x = param(0, 24, 8, dtype=dtype)
    elements = np.random.default_rng(0).integers(-120, 120, (24, 8)).astype(dtype.numpy)
    case = Case(rows_and_columns(x), frozenset(), (elements,), {}, True).canonical()
    plan = planned(case, "tight")
    assert len(plan.launches) == 2
    assert any(o.value.shape == (4, 8) for k in plan.launches for o in k.body.outputs)
    assert_right(case, plan, random.Random(0))

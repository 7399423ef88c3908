"""What crosses from one kernel to another: stored, or computed again, by the bytes."""

from __future__ import annotations

import random

import numpy as np

from tests.kernels import along, param
from tests.schedule.execute import GPU, TIGHT, assert_right, planned
from tests.schedule.graphs import Case, random_case
from tests.schedule.test_anchors import product
from tests.schedule.test_group import columns, grouped
from uopc.dtype import dtypes
from uopc.schedule.limits import Limits
from uopc.schedule.plan import schedule
from uopc.schedule.stores import Stores
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops

N = 4096


def stores_of(*roots: UOp, limits: Limits | None = None) -> Stores:
    return Stores(grouped(*roots, limits=limits))


def two_ways(x: UOp) -> list[UOp]:
    """The largest of rows and of columns: two kernels, whatever x is."""
    return [x.reduce(Ops.MAX, 1), columns(x, Ops.MAX)]


def test_one_read_is_cheaper_than_a_store() -> None:
    """exp(x) for two kernels: reading x twice moves less than storing and reading it back."""
    x = param(0, N, N)
    known = stores_of(*two_ways(x.exp()))
    assert x.exp() not in known.stored and x.exp() in known.again
    plan = schedule(two_ways(x.exp()), GPU)
    assert plan.again == (f"EXP[{N}, {N}]: {known.why[x.exp()]}",)
    assert "computed again:\n   " + plan.again[0] in plan.explain()
    assert len(plan.launches) == 2
    assert plan.moved_bytes == 2 * N * N * 4 + 2 * N * 4


def test_three_reads_are_dearer() -> None:
    total = (param(0, N, N) + param(1, N, N) + param(2, N, N)).exp()
    known = stores_of(*two_ways(total))
    assert total in known.stored
    assert known.why[total].startswith("stored: ")
    plan = schedule(two_ways(total), GPU)
    assert plan.moved_bytes == 5 * N * N * 4 + 2 * N * 4, "three reads, a store, a read"


def test_sums_both_ways_read_their_input_once() -> None:
    """Those of columns are partial sums of the kernel of the rows."""
    x = param(0, N, N)
    both = [x.exp().reduce(Ops.ADD, 1), columns(x.exp())]
    for roots in (both, both[::-1]):
        plan = schedule(roots, GPU)
        assert len(plan.launches) == 2
        assert plan.moved_bytes <= 1.13 * plan.least_bytes


def test_a_tie_is_stored() -> None:
    both = param(0, N, N) + param(1, N, N)
    assert both in stores_of(*two_ways(both)).stored, "2 x 2 reads against 1 + 2"


def test_a_reduction_is_never_computed_again() -> None:
    x = param(0, N, N)
    rows = along(x.reduce(Ops.MAX, 1), x)
    known = stores_of((x - rows).reduce(Ops.ADD, 1), columns(x - rows))
    assert all(
        u in known.stored
        for u in known.known.sequence
        if u.op is Ops.REDUCE and u.arg.combine.name == "MAX"
    )


def test_too_long_an_expression_is_stored() -> None:
    x = param(0, N, N)
    for _ in range(6):
        x = x.exp()
    known = stores_of(*two_ways(x))
    assert "too long to redo" in known.why[x]


def test_a_heavy_operand_of_a_product_is_stored() -> None:
    x = param(0, 256, 256)
    heavy = (x.exp() + 1.0).maximum(0.5)
    known = stores_of(product(heavy, param(1, 256, 256)), heavy.reduce(Ops.ADD, 1))
    assert heavy in known.stored


def test_chains_are_counted_whole() -> None:
    """Each link alone would be computed again; the whole chain reads too much for that."""
    x = param(0, 256, 256)
    first = x.exp()
    for k in range(1, 6):
        first = first + param(k, 256, 256)
    known = stores_of(*two_ways(first), *two_ways(first.exp()))
    assert first in known.stored


def test_what_a_value_that_is_computed_again_reads_is_stored() -> None:
    x = param(0, N, N)
    total = x.reduce(Ops.ADD, 1)
    low = (x - along(total, x)).exp()
    known = stores_of(*two_ways(low))
    assert low not in known.stored and total in known.stored
    assert all(total in known.loads[g] for g in known.groups if known.grouping.of[total] is not g)


def test_nothing_is_stored_that_nobody_reads() -> None:
    """What only a value without memory reads has no memory either, unless its readers' do."""
    for seed in range(40):
        case = random_case(seed, 40).canonical()
        if not case.roots:
            continue
        known = stores_of(*case.roots, limits=TIGHT)
        read = {u for loads in known.loads.values() for u in loads}
        assert known.stored <= read | known.known.roots


def test_loads_count_each_element_once() -> None:
    table, index = param(0, 50_000, 8), buffer(1, dtypes.i64, (16,))
    rows = table.gather((~0, 1), index.reshape((16, 1)).expand((16, 8)))
    (loads,) = stores_of(rows + 1.0).loads.values()
    assert loads == {table: 16 * 8 * 4, index: 16 * 8}


def test_the_numbers_of_both_choices() -> None:
    x, y = (buffer(k, dtypes.f64, (32, 16)) for k in range(2))
    rng = np.random.default_rng(0)
    arrays = tuple([rng.integers(-3, 4, (32, 16)).astype(np.float64) for _ in range(2)])
    for value in (x.maximum(0.0) + 1.0, x * y + y):
        case = Case(tuple(two_ways(value)), frozenset(), arrays, {}, True).canonical()
        assert_right(case, planned(case, "tight"), random.Random(0))

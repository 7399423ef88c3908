"""The whole schedule: results, order, bytes and what explain() says."""

from __future__ import annotations

import random
import re

import pytest

from tests.kernels import along, param, softmax
from tests.schedule.execute import CPU, GPU, WAYS, assert_right, planned
from tests.schedule.graphs import random_case
from tests.schedule.test_anchors import product
from tests.schedule.test_group import columns
from uopc.dtype import DType, dtypes
from uopc.schedule.limits import Limits, limits_of
from uopc.schedule.memory import Leaf, Result
from uopc.schedule.plan import schedule
from uopc.target import target
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops

#: every reason that may keep two groups apart
REFUSALS = {
    "a native kernel holds no tile of a reduced value",
    "a product's tile cannot hold the row",
    "chained products",
    "chained reductions on few blocks could not be split",
    "cycle",
    "read along two different axes",
    "read off its own axes",
    "register pressure",
    "the shared input is read along different axes",
    "too few blocks",
    "too few blocks for a product",
    "too many buffers",
    "two products side by side",
    "would overwrite what another block reads",
}


def test_a_root_that_is_a_leaf_is_its_place() -> None:
    x = buffer(0, dtypes.f32, (8,))
    plan = schedule([x, x + 1.0, x], GPU)
    assert plan.results == (Leaf(0), Result(0, dtypes.f32, 8), Leaf(0))


def test_roots_of_one_value_are_one_result() -> None:
    x = param(0, 8) + 1.0
    plan = schedule([x, x], GPU)
    assert plan.results[0] == plan.results[1]
    assert len(plan.launches) == 1


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i64, dtypes.bool])
def test_a_constant_is_stored_where_it_is_asked_for(dtype: DType) -> None:
    value = UOp.const(1, dtype)
    plan = schedule([value, UOp.arange(5)], GPU)
    assert isinstance(plan.results[0], Result) and plan.results[0].size == 1
    assert isinstance(plan.results[1], Result) and plan.results[1].size == 5


def test_a_result_that_others_read_is_written_once() -> None:
    x = param(0, 512, 64)
    total = x.reduce(Ops.ADD, 1)
    plan = schedule([total, x - along(total, x)], GPU)
    assert len(plan.launches) == 1
    assert plan.moved_bytes == plan.least_bytes


def test_each_kernel_each_store_and_each_refusal_is_explained() -> None:
    x = param(0, 4096, 4096)
    low = x - along(x.reduce(Ops.MAX, 1), x)
    plan = schedule([columns(low.exp(), Ops.MAX), product(low, param(1, 4096, 8))], GPU)
    text = plan.explain()
    head, *lines = text.splitlines()
    assert head == (
        f"{len(plan.launches)} kernels, {plan.moved_bytes} bytes moved, {plan.least_bytes} at "
        f"least, {plan.arena_bytes} of temporaries"
    )
    named = [line for line in lines if re.match(r"\d+: ", line)]
    assert len(named) == len(plan.launches)
    moved = [int(n) for line in named for n in re.findall(r"(?:reads|writes) (\d+)", line)]
    assert len(moved) == 2 * len(named) and sum(moved) == plan.moved_bytes
    apart = lines[lines.index("kept apart:") + 1 :]
    assert len(apart) == len(plan.refused)
    assert sum(int(line.split(" x ")[0]) for line in apart) == plan.refused.total()


def test_one_kernel_is_one_kernel() -> None:
    plan = schedule([softmax(param(0, 512, 64))], GPU)
    assert plan.explain().startswith("1 kernel, ")
    assert "kept apart" not in plan.explain()


def test_every_reason_of_random_graphs_is_a_known_one() -> None:
    """... and every store has one."""
    seen: set[str] = set()
    for seed in range(60):
        case = random_case(seed, 30).canonical()
        for way in WAYS if case.roots else ():
            plan = planned(case, way)
            seen |= set(plan.refused)
            assert all(why.partition(": ")[2] for k in plan.launches for why in k.why)
    assert seen <= REFUSALS
    assert len(seen) >= 9


def test_bytes_are_what_the_kernels_read_and_write() -> None:
    x, y = param(0, 512, 64), param(1, 512, 64)
    plan = schedule([x + y], GPU)
    assert (plan.launches[0].reads, plan.launches[0].writes) == (2 * 512 * 64 * 4, 512 * 64 * 4)
    assert plan.least_bytes == plan.moved_bytes == 3 * 512 * 64 * 4


def test_a_cpu_keeps_what_needs_a_tile_apart() -> None:
    """Column sums of centred rows: a block of a GPU could hold both; a native loop cannot."""
    x = param(0, 16, 16)
    root = columns(x - along(x.reduce(Ops.MAX, 1), x))
    assert len(schedule([root], GPU).launches) == 1
    assert len(schedule([root], CPU).launches) == 2


def test_limits_come_from_the_target() -> None:
    assert limits_of(CPU) == Limits(blocks=1, neighbours=1, tile=False)
    assert limits_of(target("sm_90a")).blocks == 128
    assert limits_of(GPU).tile


def test_the_place_of_an_update_says_that_it_was_in_place() -> None:
    x = buffer(4, dtypes.f32, (8,))
    assert schedule([x.assign(x + 1.0)], GPU).results == (Leaf(4),)
    kept = schedule([x.assign(x + 1.0)], GPU, kept=frozenset((x,)))
    assert kept.results == (Result(0, dtypes.f32, 8),)


def test_a_graph_with_everything() -> None:
    case = random_case(7, 120).canonical()
    for way in WAYS:
        assert_right(case, planned(case, way), random.Random(1))

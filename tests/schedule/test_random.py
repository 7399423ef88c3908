"""Random graphs: what the schedule computes, kernel by kernel, is what the graph is.

`scratch/fuzz_schedule.py` runs thousands; mutants of the scheduler are in `test_mutants.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.schedule.execute import CPU, GPU, TIGHT, WAYS, assert_right, assert_runs, planned
from tests.schedule.graphs import CanonicalCase, random_case
from tests.schedule.mutants import computed_again
from uopc.errors import OutOfRangeError
from uopc.kernel import KernelBody
from uopc.runtime.executor import raise_errors
from uopc.schedule.anchors import Anchors
from uopc.schedule.group import Grouping
from uopc.schedule.memory import Leaf
from uopc.schedule.plan import Schedule, schedule
from uopc.schedule.refine import refine
from uopc.uop.node import prod, toposort
from uopc.uop.ops import Ops

GRAPHS = 240
TOGETHER = 20  # in one test
COMPILED = 8


def cases(first: int, count: int, steps: int) -> list[CanonicalCase]:
    found = [random_case(seed, steps).canonical() for seed in range(first, first + count)]
    return [case for case in found if case.roots]


@pytest.mark.parametrize("first", range(0, GRAPHS, TOGETHER))
def test_schedules_compute_their_graphs(first: int) -> None:
    for case in cases(first, TOGETHER, 40 if first % 60 == 0 else 14):
        for way in WAYS:
            plan = planned(case, way)
            assert_right(case, plan, random.Random(first))
            assert_adds_up(plan)


@pytest.mark.parametrize("first", range(0, GRAPHS // 2, TOGETHER))
def test_without_fusion(first: int) -> None:
    for case in cases(first, TOGETHER, 14):
        alone = schedule(case.roots, GPU, case.kept, fuse=False)
        assert_right(case, alone, random.Random(first))
        assert len(alone.launches) >= len(planned(case, "usual").launches)


@pytest.mark.parametrize("seed", range(COMPILED))
def test_compiled_kernels_on_an_emulated_gpu(seed: int) -> None:
    """Checked: no two threads touch an element unordered, nothing is read before it is written."""
    case = random_case(500 + seed).canonical()
    for limits in (None, TIGHT):
        assert_reports(case, schedule(case.roots, GPU, case.kept, limits=limits), "emulated")


@pytest.mark.parametrize("seed", range(COMPILED))
def test_compiled_kernels_on_the_cpu(seed: int) -> None:
    case = random_case(500 + seed).canonical()
    assert_reports(case, schedule(case.roots, CPU, case.kept), "cpu")


def assert_reports(case: CanonicalCase, plan: Schedule, device: str) -> None:
    try:
        assert_runs(case, plan, device)
        raise_errors(device)
    except OutOfRangeError:
        assert case.reports


def assert_adds_up(plan: Schedule) -> None:
    """Every store has its reason; no byte is missing from the sum, or counted twice."""
    for launch in plan.launches:
        assert launch.writes == sum(
            o.memory.dtype.itemsize * size
            for o in launch.body.outputs
            for size in (launch.sizes if len(launch.places) > 1 else [prod(o.value.shape)])
        )
        assert launch.writes == sum(x.written for x in launch.stored)
        stored = [why for why in launch.why if " is not in place: " not in why]
        assert len(stored) == len(launch.body.outputs) * len(launch.places)
        assert all(why.split(": ", 1)[1] for why in launch.why)
    assert plan.moved_bytes >= plan.least_bytes
    for n, launch in enumerate(plan.launches):
        mine = sum(size for k in plan.launches for x in k.stored for m, size in x.read if m == n)
        assert mine <= launch.reads
        assert all(m > n for x in launch.stored for m, _ in x.read), "read before it is there"


# ---- long graphs
@pytest.mark.parametrize("seed", range(6))
def test_long_graphs_keep_their_order(seed: int) -> None:
    """After all merges every group stands behind what it reads, and behind readers of what it
    overwrites wherever grouping said so."""
    case = random_case(seed, 400).canonical()
    split = refine(case.roots)
    roots = [split[r] for r in case.roots]
    anchors = Anchors(roots, frozenset(split[u] for u in case.kept if u in split), TIGHT)
    grouping = Grouping(anchors)
    for g in grouping.groups:
        assert all(before.place < g.place for before in g.before)
        assert all(after.place > g.place for after in g.after)
    for v in anchors.sequence:
        for u, _ in anchors.leaves(v):
            if u.op is not Ops.BUFFER and grouping.of[u] is not grouping.of[v]:
                assert grouping.of[u].place < grouping.of[v].place
                assert grouping.of[u] in grouping.of[v].before
    assert_right(case, planned(case, "tight"), random.Random(seed))


# ---- what the graphs are good for
def test_random_graphs_reach_what_they_are_for() -> None:
    reached: Counter[str] = Counter()
    for case in cases(0, 150, 30):
        plan = planned(case, "tight")
        ops = {u.op for u in case.values()}
        combines = {str(u.arg.combine) for u in case.values() if u.op is Ops.REDUCE}
        reached.update(
            {
                "a gradient": not case.exact,
                "an index out of range": case.reports,
                "places by value": bool({Ops.GATHER, Ops.SCATTER} & ops),
                "a pair of values": "ARGMAX" in combines,
                "contents that are kept": bool(case.kept),
                "an update in place": any(isinstance(p, Leaf) for p in plan.results),
                "an update beside a reader": any(_beside_a_reader(k.body) for k in plan.launches),
                "an update that is not": "is not in place" in plan.explain(),
                "a batch": any(len(k.places) > 1 for k in plan.launches),
                "memory used again": plan.arena_bytes > 0,
                "something computed again": bool(plan.again),
                "an expression cut as too wide": "too long to redo" in plan.explain(),
                **{f"{r.dtype}": True for r in case.roots},
            }
        )
    assert all(reached.values()), reached
    assert {"f64", "f32", "bf16", "f16", "i32", "i64", "bool"} <= reached.keys()


def _beside_a_reader(body: KernelBody) -> bool:
    """Does one output overwrite what another one reads?"""
    return any(
        o.memory in toposort(other.value)
        for o in body.outputs
        for other in body.outputs
        if other is not o
    )


# ---- what a kernel is
def test_no_kernel_computes_a_reduction_twice() -> None:
    """All accesses to a value that a kernel makes and reads are at one index (but for a SCATTER,
    which visits every value for each of its elements)."""
    for case in cases(0, 60, 14):
        for way in ("usual", "tight"):
            for launch in planned(case, way).launches:
                values = toposort(*[o.value for o in launch.body.outputs])
                if not any(u.op is Ops.SCATTER for u in values):
                    assert computed_again(launch.body) == 0, launch.name


def test_each_index_is_checked_once() -> None:
    for case in cases(0, 100, 14):
        checked = [u for k in planned(case, "tight").launches for u in k.body.checked]
        named = [u for u in case.values() if u.op in (Ops.GATHER, Ops.SCATTER)]
        assert bool(checked) == bool(named)
        assert len(checked) <= len(named)


def test_equal_graphs_have_equal_schedules() -> None:
    """The order of kernels, their bodies and places come from the graph alone."""
    for case in cases(0, 40, 14):
        one, two = planned(case, "tight"), planned(case, "tight")
        assert one.launches == two.launches and one.results == two.results


def test_kept_leaves_cost_a_copy_and_no_more() -> None:
    case = next(c for c in cases(0, 100, 14) if any(u.op is Ops.ASSIGN for u in c.values()))
    leaves = frozenset(u for u in case.values() if u.op is Ops.BUFFER)
    free, kept = (replace(case, kept=k) for k in (frozenset(), leaves))
    assert planned(kept, "usual").moved_bytes >= planned(free, "usual").moved_bytes
    assert_right(kept, planned(kept, "usual"), random.Random(0))

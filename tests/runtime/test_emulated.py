"""Checked emulation finds each kind of fault, the same one in every order, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers import alloc
from tests.runtime.faulty import CASES, Case
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.examples import EXAMPLES
from uopc.faults.raw import Agent, FaultKind, WaitKind
from uopc.kernel import Source
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.render.emulate import render_emulated
from uopc.runtime.emulated import Outcome, RunOptions
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops

MODES = tuple(
    RunOptions(order=order, lanes=lanes, engine=engine)
    for order, lanes in (
        *(("forward", "forward"), ("backward", "backward"), ("forward", "backward")),
        *(("shuffled(1)", "forward"), ("shuffled(2)", "backward")),
    )
    for engine in ("early", "late", "random(3)")
)


def text(root: UOp, check: bool = True, trace: bool = False, mutate: bool = False) -> Source:
    tree = linearize(legalise(root))
    return render_emulated(tree, "kern", check=check, trace=trace, mutate=mutate, target="sm_90a")


def arrays(source: Source) -> list[Array]:
    """0, 1, 2 ... in each parameter."""
    return [np.arange(p.size).astype(p.dtype.numpy) for p in source.params]


def outcomes(case: Case, modes: Sequence[RunOptions] = MODES) -> list[Outcome]:
    source = text(case.kernel())
    run = Program(source)
    options = [replace(m, initialised=case.initialised) for m in modes]
    return [run.run(arrays(source), o) for o in options]


def kinds(outcome: Outcome) -> set[str]:
    return {f.kind.name for f in outcome.faults}


# ---- every fault
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_order_tells_the_same_fault(case: Case) -> None:
    wants = set() if case.wants == "ok" else set(case.wants.split("|"))
    for outcome in outcomes(case):
        found = kinds(outcome) - ({"SAME_VALUE"} - wants)
        assert found <= wants and bool(found) is bool(wants), outcome.faults


def test_every_kind_has_a_kernel() -> None:
    """Of accumulators they are below, of clusters in test_clusters.py."""
    covered = {kind for case in CASES for kind in case.wants.split("|")} - {"ok"}
    assert set(FaultKind.__members__) - covered == {"ACCUMULATOR", "CLUSTER"}


def one(name: str) -> Outcome:
    case = next(c for c in CASES if c.name == name)
    return outcomes(case, [RunOptions()])[0]


def test_a_race_tells_both_accesses() -> None:
    case = next(c for c in CASES if c.name == "exchange without meeting")
    source = text(case.kernel())
    (fault,) = Program(source).run(arrays(source)).faults
    ops = [source.places[p].op for p in (fault.place, fault.other_place)]
    assert sorted(op.name for op in ops) == ["LOAD", "STORE"]
    assert source.memories[fault.memory].arg.addrspace is AddrSpace.SHARED
    assert (fault.block, fault.warp, fault.other_warp, fault.other_engine) == (0, 0, 0, "thread")
    assert fault.offset_bytes == 4 * max(fault.lane, fault.other_lane)


def test_two_blocks_are_named() -> None:
    (fault,) = one("two blocks write it").faults
    assert {fault.block, fault.other_block} == {0, 1} and fault.lane == fault.other_lane == 0


def test_a_deadlock_tells_what_each_warp_waits_for() -> None:
    first, second = one("a named barrier for more").faults
    assert first.detail == second.detail == (WaitKind.NAMED_BARRIER, 3, 2, 3)
    waits = {f.warp: f.detail for f in one("ring that waits for more bytes").faults}
    assert waits[1] == (WaitKind.MBARRIER, 0, 0, 0, 16)


def test_unwaited_work_is_that_of_an_engine() -> None:
    (fault,) = one("never waited for").faults
    assert fault.place == -1 and fault.detail == (Agent.CP_ASYNC,)


def test_all_faults_are_collected_once() -> None:
    """Every lane of the block reads too far; a race and a stray access are two faults."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        c.store(y.index(lane // 2), lane.cast(dtypes.f32))
        c.store(y.index(lane + 32), c.load(x.index(lane + 1)))

    case = Case("", "", build, size=32)
    found = outcomes(case, [RunOptions(all_faults=True)])[0]
    assert [f.kind.name for f in found.faults].count("BOUNDS") == 2
    assert kinds(found) == {"RACE", "BOUNDS", "UNWRITTEN"}
    assert kinds(outcomes(case, [RunOptions()])[0]) == {"BOUNDS"}


def test_a_warning_stops_nothing() -> None:
    found = one("equal values")
    assert found.ok and kinds(found) == {"SAME_VALUE"}


def test_a_stray_store_is_dropped_and_a_stray_load_gives_poison() -> None:
    i = range_(32, 0, AxisType.LOCAL)
    x, y = buffer(0, dtypes.f32, (31,)), buffer(1, dtypes.f32, (31,))
    c = Cursor()
    c.store(y.index(i), x.index(i).load())
    source = text(c.sink())
    values, out = np.ones(31, np.float32), np.zeros(40, np.float32)
    found = Program(source).run([values, out[:31]], RunOptions(all_faults=True))
    assert kinds(found) == {"BOUNDS"} and len(found.faults) == 2
    assert (out[:31] == 1).all() and (out[31:] == 0).all()


# ---- what is right
@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in ("register_product", "compact")])
def test_examples_have_no_faults_in_any_order(name: str) -> None:
    example = EXAMPLES[name]
    source = text(example.build())
    run = Program(source)
    for mode in (MODES[0], MODES[4], MODES[-1]):
        given = example.arrays()
        want = example.expected([a.copy() for a in given])
        assert run.run(given, mode).faults == ()
        slots = [p.slot for p in source.params]
        for slot, values in want.items():
            got = given[slots.index(slot)]
            if not example.order_dependent:
                assert got.tobytes() == values.tobytes()


# ---- mutants
MUTATED = ("mbarrier_handover", "copy_ring_3", "bulk_store", "bulk_transpose", "mma_product")


@pytest.mark.parametrize("name", [*MUTATED, "named_barriers", "wgmma_k", "wgmma_registers"])
def test_no_synchronisation_can_go(name: str) -> None:
    """Each one deleted, and most twisted: every mutant is seen in every order."""
    example = EXAMPLES[name]
    source = text(example.build(), mutate=True)
    run = Program(source)
    assert run.run(example.arrays()).ok
    for number, u, how in source.mutants:
        for mode in (MODES[0], MODES[4], MODES[-1]):
            found = run.run(example.arrays(), replace(mode, mutation=number))
            assert not found.ok, (u.op, u.origins, how, mode)


def test_accumulators_are_watched() -> None:
    source = text(EXAMPLES["wgmma_k"].build(), mutate=True)
    run, found = Program(source), set()
    for number, u, _ in source.mutants:
        if u.op in (Ops.FENCE, Ops.WAITG):
            options = RunOptions(mutation=number, all_faults=True)
            found |= kinds(run.run(EXAMPLES["wgmma_k"].arrays(), options))
    assert "ACCUMULATOR" in found


# ---- what is told
def test_printf_and_assert_in_fast_text_too() -> None:
    i = range_(4, 0, AxisType.LOCAL)
    y = buffer(0, dtypes.i32, (4,))
    c = Cursor()
    c.store(y.index(i), 0)
    c.printf("{} of {}: {}", i, UOp.const(-1, dtypes.i8), i.cast(dtypes.f32) / 4.0)
    c.check(i < 3, "too far")
    for check in (False, True):
        source = text(c.sink(), check)
        found = Program(source).run([np.zeros(4, np.int32)])
        assert found.printed == tuple(f"{n} of -1: {n / 4:g}" for n in range(4))
        (fault,) = found.faults
        assert (fault.kind, fault.lane) == (FaultKind.ASSERTION, 3)
        assert source.places[fault.place].arg == "too far"


def test_a_trace_tells_values_accesses_and_loops() -> None:
    i, k = range_(64, 0, AxisType.LOCAL), range_(3, 1)
    x, y = buffer(0, dtypes.i32, (192,)), buffer(1, dtypes.i32, (192,))
    c = Cursor()
    with c.loop(k):
        c.store(y.index(k * 64 + i), x.index(k * 64 + i).load() * 2)
    source = text(c.sink(), trace=True)
    options = RunOptions(traced=((0, 37),))
    events = Program(source).run(arrays(source), options).events
    stores = [e for e in events if source.places[e.place].op is Ops.STORE]
    assert [e.loops for e in stores] == [(0,), (1,), (2,)]
    assert [e.address for e in stores] == [4 * (64 * n + 37) for n in range(3)]
    assert [e.bits for e in stores] == [2 * (64 * n + 37) for n in range(3)]
    assert {(e.block, e.thread) for e in events} == {(0, 37)}
    loads = [e for e in events if source.places[e.place].op is Ops.LOAD and e.what == "access"]
    assert [e.bits for e in loads] == [64 * n + 37 for n in range(3)]


# ---- how it is asked
@pytest.mark.parametrize("field", ["order", "lanes", "engine"])
def test_options_that_do_not_exist_are_refused(field: str) -> None:
    asked: dict[str, Any] = {field: "sideways"}
    with pytest.raises(UsageError, match=f"{field} is 'sideways'"):
        RunOptions(**asked)


def test_plain_loops_have_one_order() -> None:
    i = range_(32, 0, AxisType.LOCAL)
    c = Cursor()
    c.store(buffer(0, dtypes.f32, (32,)).index(i), 1.0)
    source = text(c.sink(), check=False)
    assert "emulated.h" not in source
    with pytest.raises(UsageError, match="plain loops"):
        Program(source).run([np.zeros(32, np.float32)], RunOptions(order="backward"))


def test_registers_that_are_surely_written_are_not_watched() -> None:
    i, u = range_(32, 0, AxisType.LOCAL), range_(4, 1, AxisType.UPCAST)
    again = range_(4, 2, AxisType.UPCAST)
    r, y = alloc(AddrSpace.REG, size=4), buffer(0, dtypes.f32, (128,))
    for size, watched in ((4, False), (3, True)):
        c = Cursor()
        some = range_(size, 1, AxisType.UPCAST) if size < 4 else u
        with c.loop(some):
            c.store(r.index(some), 1.0)
        with c.loop(again):
            c.store(y.index(i * 4 + again), c.load(r.index(again)))
        source = text(c.sink())
        assert ("emu_register(" in source) is watched
        found = kinds(Program(source).run(arrays(source)))
        assert found == ({"UNINITIALISED"} if watched else set())

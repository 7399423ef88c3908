"""Loads without a check of races: which they are, and that no verdict changes by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.happens_before.agreement import every_check
from tests.helpers import alloc
from tests.mutation.mutate import without
from tests.mutation.study import modes, mutants_of
from tests.mutation.subjects import subjects
from tests.runtime.faulty import CASES
from tests.runtime.test_emulated import MODES, arrays
from uopc.dtype import AddrSpace, dtypes
from uopc.examples import smem_gemm_ir
from uopc.kernel import ProgramTree
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.render.emulate import render_emulated
from uopc.render.intervals import calm_loads
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, memory, range_, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Atomic, AxisType, Engine, Ops

Build = Callable[[Cursor, UOp, UOp, UOp], object]


def calm(build: Build, threads: int = 64) -> list[bool]:
    """Of each LOAD from the tile, in order: is it calm?"""
    t, y = range_(threads, 0, AxisType.LOCAL), buffer(0, dtypes.f32, (64,))
    tile, c = alloc(AddrSpace.SHARED, size=64), Cursor()
    build(c, tile, y, t)
    tree = linearize(c.sink())
    found = calm_loads(tree)
    loads = [u for u in toposort(tree.sink) if u.op is Ops.LOAD]
    return [u in found for u in loads if memory(u.src[0]) is tile]


def fill(c: Cursor, tile: UOp, t: UOp) -> None:
    c.store(tile.index(t), 1.0)


def turn(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
    c.store(y.index(t), c.load(tile.index(63 - t)))


def test_a_barrier_parts_a_store_from_a_load() -> None:
    def build(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        fill(c, tile, t)
        turn(c, tile, y, t)
        c.barrier()
        turn(c, tile, y, t)

    assert calm(build) == [False, True]


def test_a_barrier_of_a_warp_does_not() -> None:
    def build(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        fill(c, tile, t)
        c.syncwarp()
        turn(c, tile, y, t)

    assert calm(build) == [False]


@pytest.mark.parametrize("again", [False, True])
def test_the_end_of_a_loop_joins_its_last_interval_with_its_first(again: bool) -> None:
    def build(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        with c.loop(range_(4, 1)):
            fill(c, tile, t)
            c.barrier()
            turn(c, tile, y, t)
            if again:
                c.barrier()

    assert calm(build) == [again]


def test_what_follows_a_loop_may_come_after_its_last_interval() -> None:
    def build(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        fill(c, tile, t)
        c.barrier()
        with c.loop(range_(4, 1)):
            turn(c, tile, y, t)
        fill(c, tile, t)

    assert calm(build) == [False]


def test_a_value_is_loaded_where_it_gets_its_name() -> None:
    def build(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        fill(c, tile, t)
        c.barrier()
        value = c.load(tile.index(63 - t))
        c.store(y.index(t), value * value)
        c.barrier()
        c.store(tile.index(t), value)

    assert calm(build) == [True]


def test_a_condition_is_text_too() -> None:
    def build(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        fill(c, tile, t)
        with c.when(c.load(tile.index(0)) < 1.0):
            c.store(y.index(t), 1.0)

    assert calm(build) == [False]


def test_no_load_is_calm_where_threads_come_to_other_barriers() -> None:
    def conditional(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        with c.when(t < 64):
            c.barrier()
        turn(c, tile, y, t)

    def named(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        c.named_barrier(UOp.const(1, dtypes.index), 64)
        turn(c, tile, y, t)

    def role(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        with c.role("all", 0, 2):
            turn(c, tile, y, t)

    assert [calm(build) for build in (conditional, named)] == [[False]] * 2
    warp, lane = range_(2, 1, AxisType.WARP), range_(32, 0, AxisType.LANE)
    c, y = Cursor(), buffer(0, dtypes.f32, (64,))
    role(c, alloc(AddrSpace.SHARED, size=64), y, warp * 32 + lane)
    assert not calm_loads(linearize(c.sink()))


def test_memory_of_engines_and_atomics_is_never_calm() -> None:
    def copied(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        c.copy_async(tile.index(t), y.index(t))
        c.commit(Engine.CP_ASYNC)
        c.barrier()
        turn(c, tile, y, t)

    def counted(c: Cursor, tile: UOp, y: UOp, t: UOp) -> None:
        c.atomic(Atomic.ADD, tile.index(0), 1.0)
        c.barrier()
        turn(c, tile, y, t)

    assert [calm(build) for build in (copied, counted)] == [[False]] * 2


def test_the_text_says_so() -> None:
    tree = linearize(smem_gemm_ir(64, 16))
    text = render_emulated(tree, "gemm", check=True)
    assert text.count("emu_calm_read(") == 2 and "emu_read(" not in text
    mutated = render_emulated(tree, "gemm", check=True, mutate=True)
    assert mutated.count("emu_read(") == 2 and "emu_calm_read(" not in mutated


# ---- the same verdicts
def differences(
    tree: ProgramTree, start: Callable[[], list[Array]], on: str, runs: list[RunOptions]
) -> list[RunOptions]:
    """Runs whose faults are others where every check is made."""
    texts = (render_emulated(tree, "kern", check=True, target=on), every_check(tree, "kern", on))
    elided, full = map(Program, texts)
    both = [replace(o, all_faults=every) for o in runs for every in (False, True)]
    return [o for o in both if elided.run(start(), o).faults != full.run(start(), o).faults]


def test_faulty_kernels_have_the_same_faults() -> None:
    trees = [(case, linearize(legalise(case.kernel()))) for case in CASES]
    calm_ones = [(case, tree) for case, tree in trees if calm_loads(tree)]
    assert calm_ones
    for case, tree in calm_ones:
        source = render_emulated(tree, "kern", check=True, target="sm_90a")
        runs = [replace(m, initialised=case.initialised) for m in MODES]
        assert not differences(tree, partial(arrays, source), "sm_90a", runs), case.name


@pytest.mark.parametrize("name", ["smem_product", "row sums"])
def test_mutants_have_the_same_faults(name: str) -> None:
    subject = next(s for s in subjects() if s.name == name)
    kernels = [subject.sink, *(m.sink for m in mutants_of(subject.sink))]
    trees = [linearize(legalise(k)) for k in kernels]
    calm_ones = [tree for tree in trees if calm_loads(tree)]
    assert len(calm_ones) > 4
    runs = modes(subject.sink)
    for tree in calm_ones:
        assert not differences(tree, subject.arrays, subject.target, runs)


def test_without_its_barriers_a_product_has_no_calm_load() -> None:
    root = smem_gemm_ir(32, 8)
    for barrier in [u for u in toposort(root) if u.op is Ops.BARRIER]:
        mutated = without(root, barrier)
        assert mutated is not None and not calm_loads(linearize(mutated))

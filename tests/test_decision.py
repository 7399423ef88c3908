"""Every choice has a reason: whatever field of Opts is set, a function of ours did it."""

from __future__ import annotations

import ast
import importlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache
from itertools import islice

import pytest

import uopc
from tests import matmul_table, memory_table, suite
from tests.commands import environment
from tests.kernels import outputs, param, softmax
from tests.random_bodies import random_body
from uopc.choose import cpu, gpu
from uopc.choose.facts import KernelFacts
from uopc.choose.products import products
from uopc.decision import WHOLE, Decision, Guess, Reason, because, given, kind
from uopc.dtype import dtypes
from uopc.opts import BY_AXIS, Opts
from uopc.passes.in_place import is_in_place
from uopc.pipeline import choices, compile, compile_kernel, index_kernel
from uopc.runtime import winners
from uopc.target import target
from uopc.uop.ops import Ops

GPUS = ("sm_75", "sm_80", "sm_90a")
DEFAULT = Opts()


def unexplained(opts: Opts, decisions: Iterable[Decision]) -> list[str]:
    """Fields, and axes of them, that no decision speaks of."""
    said: dict[str, list[object]] = {}
    for d in decisions:
        if d.field != WHOLE:
            assert d.field in {f.name for f in fields(Opts)}
            value = None if d.field == "plan" else ast.literal_eval(d.value)
            said.setdefault(d.field, []).append(value)
    missing = []
    for f in fields(Opts):
        value = getattr(opts, f.name)
        if value == getattr(DEFAULT, f.name):
            assert f.name not in said, f.name
        elif f.name in BY_AXIS:
            of_axes: dict[int, int] = {}
            for x in said.get(f.name, []):
                assert isinstance(x, dict)
                of_axes |= x
            missing += [f"{f.name} of axis {a}" for a, n in value if of_axes.get(a) != n]
        elif f.name == "plan":
            assert all(d.value == repr(value) for d in decisions if d.field == "plan")
            missing += [] if "plan" in said else ["plan"]
        elif value not in said.get(f.name, []):
            missing.append(f.name)
    return missing


@cache
def is_ours(rule: str) -> bool:
    """Is it a function or method in uopc?"""
    parts = rule.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["uopc", *parts[:n]]))
        except ModuleNotFoundError:
            continue
        for name in parts[n:]:
            found = getattr(found, name)
        return callable(found) or isinstance(found, property)
    return False


def check(guesses: Iterable[Guess]) -> int:
    """How many candidates there were: each says all."""
    every = list(guesses)
    for guess in every:
        decisions = guess.decisions
        assert not unexplained(guess.opts, decisions), (guess.opts, decisions)
        for d in decisions:
            assert is_ours(d.rule), d
            assert d.why and "{" not in d.why and "None" not in d.why, d
    return len(every)


def guesses_of(facts: KernelFacts, tf32: bool = False) -> Iterator[Guess]:
    yield from cpu.each(facts)
    for name in GPUS:
        for split in (True, False):
            yield from gpu.each(facts, gpu.Aim(target(name), split=split, tf32=tf32))


# ---- every candidate of every table
@pytest.mark.parametrize("row", memory_table.ROWS, ids=lambda row: row.name)
def test_rows_of_the_memory_table(row: memory_table.Row) -> None:
    for launch in row.plan("emulated", target("sm_90a")).schedule.launches:
        assert check(
            guesses_of(KernelFacts.of_indexed(index_kernel(launch.body, target("sm_90a"))))
        )


@pytest.mark.parametrize("row", matmul_table.ROWS, ids=lambda row: row.name)
def test_rows_of_the_table_of_products(row: matmul_table.Row) -> None:
    body = row.body()
    facts = KernelFacts.of([body], outputs([body]))
    for on in GPUS:
        each = gpu.each(facts, gpu.Aim(target(on), tf32=True))
        assert check(islice(each, 8))


@pytest.mark.parametrize("name", suite.SUITE | suite.ROUNDED)
def test_bodies_of_the_suite(name: str) -> None:
    bodies = suite.bodies_of((suite.SUITE | suite.ROUNDED)[name]())
    assert check(guesses_of(KernelFacts.of(bodies, outputs(bodies))))


@pytest.mark.parametrize("seed", range(60))
def test_random_bodies(seed: int) -> None:
    body = random_body(random.Random(seed)).body
    assert check(guesses_of(KernelFacts.of_indexed(index_kernel(body, target("sm_80")))))


# ---- what reaches the steps of a kernel
@pytest.mark.parametrize("on", ["emulated", "cpu"])
@pytest.mark.parametrize("seed", range(20))
def test_steps_of_random_bodies(seed: int, on: str) -> None:
    steps = compile_kernel(random_body(random.Random(seed)).body, on).steps
    for step in steps:
        assert not unexplained(step.opts, step.decisions), (step.opts, step.decisions)


def test_steps_of_a_split_reduction() -> None:
    """Its half has axes of its own: sentences say that theirs are the whole kernel's."""
    (step,) = compile(param(0, 1 << 20).reduce(Ops.ADD), target="emulated").steps
    assert not unexplained(step.opts, step.decisions)
    first, *rest = step.decisions
    assert (first.field, first.value) == (WHOLE, "first half")
    assert "reduction of axis 0 over 128 parts" in first.why
    assert any(d.why.endswith("(as the whole kernel numbers its axes)") for d in rest)


def test_writing_in_place_makes_a_loop_of_blocks() -> None:
    found = 0
    for seed in range(200):
        body = random_body(random.Random(seed)).body
        root = index_kernel(body, target("sm_80"))
        if not is_in_place(root):
            continue
        for step in compile_kernel(body, "emulated").steps:
            found += any(d.rule == "passes.in_place.confined" for d in step.decisions)
            assert not unexplained(step.opts, step.decisions)
    assert found


def test_given_opts() -> None:
    opts = Opts(gpu=True, local={0: 8, 1: 32}, blocks_per_sm=2)
    (step,) = compile(softmax(param(0, 64, 256)), opts, "sm_80").steps
    assert [d.rule for d in step.decisions] == ["given"] * 3
    assert not unexplained(step.opts, step.decisions)


def test_what_a_search_found(monkeypatch: pytest.MonkeyPatch) -> None:
    opts = Opts(gpu=True, local={0: 64})
    winner = winners.Winner(opts, 2e-6, 3.5e-6)
    monkeypatch.setattr(winners, "stored", lambda *_: winner)
    with environment(UOPC_SEARCHED="1"):
        (step,) = compile(param(0, 4096) * 2.0, target="sm_80").steps
    assert step.opts == opts and {d.rule for d in step.decisions} == {"search"}
    assert "2.00 us, the automatic choice 3.50 us" in step.decisions[0].why


def test_candidates_that_were_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one spills, says ptxas: the step that is taken tells."""
    body = param(0, 4096, 512) * 2.0
    first, second, *_ = choices(body, "sm_80")[0].ranked()
    monkeypatch.setattr(uopc.pipeline, "_spills", lambda step: step.opts == first)
    (step,) = compile(body, target="sm_80").steps
    assert step.opts == second
    (told,) = [d for d in step.decisions if d.rule == "pipeline._first_that_fits"]
    assert told.value == str(first) and told.why.startswith("passed over: ptxas gives kernel ")


def test_all_candidates_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    body = param(0, 4096, 512) * 2.0
    ranked = [*choices(body, "sm_80")[0].ranked()]
    monkeypatch.setattr(uopc.pipeline, "_spills", lambda step: True)
    (step,) = compile(body, target="sm_80").steps
    told = [d for d in step.decisions if d.rule == "pipeline._first_that_fits"]
    assert step.opts == ranked[0] and len(told) == len(ranked) + 1
    assert told[-1].why.startswith("taken in spite of that")


# ---- the records
def test_figures_are_those_of_the_choice() -> None:
    """A wide access of f32 has four elements, one of f16 eight."""
    for dtype, n in ((dtypes.f32, 4), (dtypes.f16, 8)):
        (step,) = compile(param(0, 1 << 22, dtype=dtype) * 2.0, target="emulated").steps
        (told,) = [d for d in step.decisions if d.field == "vector"]
        assert told.value == repr(dict(step.opts.vector)) == f"{{0: {n}}}"
        assert told.rule == "choose.elementwise._vector"
        assert f"a multiple of {n} elements" in told.why


def test_a_walk_downhill_says_where_it_began_and_what_bounds_it() -> None:
    a = param(0, 100, 33).reshape((100, 1, 33)).expand((100, 140, 33))
    b = param(1, 140, 33).reshape((1, 140, 33)).expand((100, 140, 33))
    (step,) = compile((a * b).reduce(Ops.ADD), target="emulated").steps
    found = {d.rule: d for d in step.decisions if d.field == WHOLE}
    why = found["choose.spread.Climb.down"].why
    assert " cycles, bound by " in why and "found downhill from " in why
    saved = [d for d in step.decisions if d.rule == "choose.spread.Climb.moves_along"]
    assert saved and all("without it" in d.why for d in saved)


def test_a_plan_says_what_comes_next() -> None:
    row = next(r for r in matmul_table.ROWS if r.type == "bf16")
    body = row.body()
    facts = KernelFacts.of([body], outputs([body]))
    best, *_ = products(facts, gpu.Aim(target("sm_90a")))
    first = best.decisions[0]
    assert (first.field, first.value) == (WHOLE, "product")
    assert "clocks, bound by " in first.why and "; next wgmma." in first.why


def test_other_opts_keep_the_reasons_of_fields_that_stay() -> None:
    one = Reason("choose.rows.rows", "one")
    guess = Guess(Opts(gpu=True, local={0: 8}, early=False), (because("local", one, 0),))
    guess = guess.but(Opts(gpu=True, local={0: 8}, blocks={0: 1}), Reason("given", "of {n}"), n=2)
    assert guess.decisions == (
        Decision("blocks", "{0: 1}", "given", "of 2"),
        Decision("local", "{0: 8}", "choose.rows.rows", "one"),
    )


def test_guesses_are_equal_where_opts_are() -> None:
    opts = Opts(gpu=True, local={0: 8})
    alike = {given(opts), Guess(opts), Guess(opts, (kind("x", Reason("given", "")),))}
    assert len(alike) == 1


def test_a_digit_that_was_not_taken_has_no_reason() -> None:
    said = (because("vector", Reason("given", "wide"), 1), because("keep", Reason("given", "kept")))
    assert Guess(Opts(vector={0: 4}), said).decisions == ()
    assert unexplained(Opts(vector={0: 4}), ()) == ["vector of axis 0"]

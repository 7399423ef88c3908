"""What a step says of its passes, with the rules that fired, and a schedule of its kernels."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest

import uopc
from tests.kernels import along, param, softmax
from tests.schedule.test_group import columns
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.inspect.explain import boundaries, passes
from uopc.inspect.records import Boundary, PassReport
from uopc.inspect.report import report
from uopc.opts import Opts
from uopc.schedule.plan import Stored, schedule
from uopc.symbolic import simplify
from uopc.target import target
from uopc.uop.match import Step as Rewriting
from uopc.uop.node import UOp
from uopc.uop.ops import Ops
from uopc.uop.text import show

ROWS = softmax(param(0, 33, 1000))
MAPPED = Opts(gpu=True, local={1: 64}, upcast={1: 4}, vector={1: 4})


def by_name(body: UOp, opts: Opts, target: str = "sm_80") -> dict[str, PassReport]:
    (step,) = uopc.compile(body, opts, target).steps
    return {p.name: p for p in passes(step)}


def test_every_pass_with_its_graph() -> None:
    (step,) = uopc.compile(ROWS, MAPPED, "sm_80").steps
    found = passes(step)
    assert [p.name for p in found] == [p.name for p in step.trace]
    assert all(p.text == show(step.after(p.name)) for p in found)
    assert found[0].name == "index" and found[0].changed and found[0].stage == "INDEXED"
    assert {p.stage for p in found} == {"INDEXED", "MAPPED", "LOOPS"}
    for before, after in itertools.pairwise(found):
        assert after.changed == (after.text != before.text)
        assert after.changed or not after.rules, after.name
    assert all(p.why for p in found)


def test_rules_in_the_order_of_firing() -> None:
    """Those of `simplify` are what rewriting says, counted."""
    x = param(0, 64, 3, dtype=dtypes.i32)
    body = (x * 1 + 0) * 4 // 4 + (x - x)
    root = uopc.compile(body, target="sm_80").steps[0].after("index")
    steps: list[Rewriting] = []
    simplify(root, steps)
    names = [s.rule for s in steps]
    assert len(set(names)) > 2
    want = tuple((name, names.count(name)) for name in dict.fromkeys(names))
    assert by_name(body, Opts(gpu=True))["simplify"].rules == want


def test_what_else_passes_count() -> None:
    """Two reductions of 64 lanes: five butterflies each, then one exchange."""
    found = by_name(ROWS, MAPPED)
    rules = {name: dict(p.rules) for name, p in found.items()}
    assert rules["split"] == {
        **{"cut-axis": 1, "axis-with-rest": 1},
        **{"guard-load": 1, "guard-reduce": 2, "guard-store": 1},
    }
    assert rules["cooperate"] == {
        **{"reduce-in-thread": 2, "butterfly": 10, "exchange-in-shared": 2}
    }
    assert rules["materialise"] == {"dear-value-for-several": 1, "load-before-use": 1}
    assert rules["effects"] == {"alloc-reg": 6, "alloc-shared": 2, "barrier": 2}
    assert rules["vectorise"] == {"widen-load": 1, "widen-store": 1}


@pytest.mark.parametrize(
    ("body", "opts", "name", "rule"),
    [
        (
            param(0, 64, 64).permute((1, 0)) * 2.0,
            Opts(gpu=True, local={0: 16, 1: 16}, vector={1: 4}, upcast={0: 4}, turn={0: 4, 1: 1}),
            *("turn", "turn-load"),
        ),
        (
            softmax(param(0, 4, 40000)),
            Opts(gpu=True, keep="shared", local={1: 256}),
            *("materialise", "row-in-shared"),
        ),
        (param(0, 64, dtype=dtypes.bf16) * 2.0, Opts(gpu=True), "legalise", "narrow-op-in-f32"),
        (param(0, 64) * 2.0, Opts(gpu=True, local={0: 32}), "split", "cut-axis"),
    ],
)
def test_a_rule_of_a_pass(body: UOp, opts: Opts, name: str, rule: str) -> None:
    assert rule in dict(by_name(body, opts)[name].rules)


def test_a_report_has_them() -> None:
    (step,) = uopc.compile(ROWS, target="sm_80").steps
    said = report(step)
    assert said.passes == passes(step) and said.decisions == step.decisions != ()


def test_a_pass_that_a_step_has_not_gone_through() -> None:
    (step,) = uopc.compile(ROWS, MAPPED, "sm_80").steps
    with pytest.raises(UsageError, match=r"no graph after 'pipeline', it has those after index, "):
        step.after("pipeline")


# ---- between kernels
def test_a_stored_value_says_who_reads_it() -> None:
    """Columns of an expression, after its rows: two kernels of one value, and what it costs."""
    x = param(0, 4096, 4096)
    low = x - along(x.reduce(Ops.MAX, 1), x)
    plan = schedule([low, columns(low, Ops.MAX)], target("sm_80"))
    assert len(plan.launches) == 2
    size = 4096 * 4096 * 4
    (stored,) = plan.launches[0].stored
    assert (stored.written, stored.read, stored.bytes) == (size, ((1, size),), 2 * size)
    first, second, *rest = boundaries(plan, last=(2, 3))  # the first kernel has three launches
    assert first == Boundary(
        2,
        f"{stored.value}: {stored.why}. {size} bytes are written, read {size} by launch 4",
        2 * size,
    )
    assert second.kernel == 3 and second.text.endswith(f"{4096 * 4} bytes are written")
    apart = [b.text for b in rest if b.text.startswith("kept apart")]
    assert len(apart) == len(plan.refused) and all(b.kernel == -1 for b in rest)


def test_what_is_computed_again_is_told() -> None:
    e = param(0, 4096, 4096).exp()
    plan = schedule([e.reduce(Ops.MAX, 1), columns(e, Ops.MAX)], target("sm_80"))
    assert plan.again
    told = [b for b in boundaries(plan, range(len(plan.launches))) if "computed again" in b.text]
    assert told == [Boundary(-1, f"computed again: {reason}") for reason in plan.again]


def test_an_update_that_is_not_in_place_says_why() -> None:
    stored = Stored("ASSIGN[8]", "an update", 32, apart="somebody still reads it")
    launch = SimpleNamespace(stored=(stored,))
    plan = SimpleNamespace(launches=[launch], again=(), refused=Counter())
    (told,) = boundaries(plan, [0])  # type: ignore[arg-type]  # as much of a Schedule as is asked
    assert told.text.endswith("32 bytes are written; not in place: somebody still reads it")

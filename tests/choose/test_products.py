"""Plans that are chosen for products: of which types, and that all of them can be built."""

from __future__ import annotations

import pytest

import uopc
from tests.helpers import assert_same
from tests.kernels import param
from tests.passes.test_products import product, times, whole_numbers
from uopc.choose import products as chosen
from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.pipeline import choices
from uopc.plan import FMA, Plan
from uopc.uop.node import UOp
from uopc.uop.oracle import evaluate


@pytest.fixture(autouse=True)
def _small_products_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "LEAST_BY_TENSOR_CORES", 1)
    monkeypatch.setattr(chosen, "LEAST_BY_FMA", 1)
    monkeypatch.setattr(chosen, "MOST", 1000)


def plans(body: UOp, target: str) -> list[Plan]:
    """Of the automatic candidates."""
    (choice,) = choices(body, target)
    return [o.plan for o in choice.ranked() if o.plan is not None]


def of_types(a: DType, b: DType, total: DType, through: DType | None = None) -> UOp:
    x, y = param(0, 72, 48, dtype=a), param(1, 40, 48, dtype=b)
    return times(x, y, total) if through is None else times(x.cast(through), y.cast(through), total)


#: types of a and b, of the sums, a dtype that both are cast to first -> kinds of atoms by target
KINDS: dict[str, tuple[UOp, dict[str, str]]] = {
    "bf16": (of_types(dtypes.bf16, dtypes.bf16, dtypes.f32), {"sm_75": FMA, "sm_100": "bf16"}),
    "whole weights": (of_types(dtypes.bf16, dtypes.i8, dtypes.f32), {"sm_90a": "bf16"}),
    "whole numbers in f32": (
        of_types(dtypes.u8, dtypes.u8, dtypes.f32),
        {"sm_75": "f16", "sm_80": "bf16"},
    ),
    "8 bits": (
        of_types(dtypes.f8e4m3, dtypes.f8e4m3, dtypes.f32),
        {"sm_75": "f16", "sm_80": "bf16", "sm_89": "f8e4m3", "sm_90a": "f8e4m3"},
    ),
    "8 bits beside 16": (of_types(dtypes.f8e5m2, dtypes.f16, dtypes.f32), {"sm_90": "f16"}),
    "neither holds the other": (of_types(dtypes.bf16, dtypes.f16, dtypes.f32), {"sm_90a": FMA}),
    "rounded on the way": (
        of_types(dtypes.f16, dtypes.f16, dtypes.f32, dtypes.bf16),
        {"sm_80": "bf16"},
    ),
    "wrapped on the way": (
        of_types(dtypes.u8, dtypes.u8, dtypes.i32, dtypes.i8),
        {"sm_80": "i8"},
    ),
    "sums in f64": (of_types(dtypes.bf16, dtypes.bf16, dtypes.f64), {"sm_90a": FMA}),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_types_in_which_operands_are_multiplied(name: str) -> None:
    body, wanted = KINDS[name]
    for target, kind in wanted.items():
        first = plans(body, target)[0]
        assert first.atom == FMA if kind == FMA else first.atom.split(".")[2] == kind
        kernel = uopc.compile(body, Opts(gpu=True, plan=first), target)
        arrays = whole_numbers(body)
        assert_same(kernel(*arrays.values()), evaluate(body, arrays))


#: few tiles of k: sums of its slices have no room in so short a ring; two types: of b * a too
BUILT = [
    (product(40, 70, 130, dtypes.i64), "sm_100"),
    (of_types(dtypes.u8, dtypes.i8, dtypes.i32), "sm_90a"),
]


@pytest.mark.parametrize("body, target", BUILT)
def test_every_plan_that_is_offered_can_be_built(body: UOp, target: str) -> None:
    (choice,) = choices(body, target)
    offered = plans(body, target)
    assert {p.swap for p in offered} == ({False, True} if target == "sm_90a" else {False})
    for plan in offered:
        choice.steps(Opts(gpu=True, plan=plan))


def test_a_plan_that_cannot_be_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a choice overlooks, another one is taken."""
    unfit = Opts(gpu=True, plan=Plan("mma.m16n8k16.f16", 64, 64, 32, 2, 2))
    monkeypatch.setattr("uopc.choose.gpu.products", lambda facts, aim: [unfit])
    body = product(20, 30, 40, dtypes.bf16)
    kernel = uopc.compile(body, target="emulated")
    arrays = whole_numbers(body)
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))

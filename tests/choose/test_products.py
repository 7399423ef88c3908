"""Plans that are chosen for products: of which types, and that all of them can be built."""

from __future__ import annotations

import pytest

import uopc
from tests.helpers import assert_same
from tests.kernels import param
from tests.passes.test_products import product, times, whole_numbers
from uopc.choose import products as chosen
from uopc.decision import Guess
from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.pipeline import choices
from uopc.plan import FMA, Plan
from uopc.uop.node import UOp
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate


@pytest.fixture
def every_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small products too, and those that are guessed to be slow."""
    monkeypatch.setattr(chosen, "LEAST_BY_TENSOR_CORES", 1)
    monkeypatch.setattr(chosen, "LEAST_BY_FMA", 1)
    monkeypatch.setattr(chosen, "MOST", 1000)
    monkeypatch.setattr(chosen, "MOST_TIMES_THREADS", 1000)


def batched(z: int, m: int, n: int, k: int, dtype: DType) -> UOp:
    """z products, of f32 sums."""
    a = param(0, z, m, k, dtype=dtype).reshape((z, m, 1, k)).expand((z, m, n, k))
    b = param(1, z, n, k, dtype=dtype).reshape((z, 1, n, k)).expand((z, m, n, k))
    return (a.cast(dtypes.f32) * b.cast(dtypes.f32)).reduce(Ops.ADD, 1)


#: whether tiles are filled, or memory bounds the product anyway
FILLED: dict[str, tuple[UOp, bool]] = {
    "two rows": (product(2, 4096, 4096, dtypes.bf16), True),
    "two rows in f32": (product(2, 16384, 4096, dtypes.f32), True),
    "few k": (product(4096, 4096, 4, dtypes.f32), True),
    "batches of heads": (batched(64, 1024, 64, 1024, dtypes.bf16), True),
    "tiny products": (batched(1 << 20, 4, 4, 4, dtypes.f32), False),
    "tiny products of 16 bits": (batched(1 << 20, 4, 4, 4, dtypes.bf16), False),
    "two rows by four, long k": (product(2, 4, 1 << 22, dtypes.bf16), False),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", FILLED)
def test_tiles_that_would_be_all_but_empty_are_not_chosen(name: str, target: str) -> None:
    body, filled = FILLED[name]
    assert bool(plans(body, target)) == filled


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


@pytest.mark.usefixtures("every_plan")
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


@pytest.mark.usefixtures("every_plan")
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
    monkeypatch.setattr("uopc.choose.gpu.products", lambda facts, aim: [Guess(unfit)])
    body = product(20, 30, 40, dtypes.bf16)
    kernel = uopc.compile(body, target="emulated")
    arrays = whole_numbers(body)
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))

"""f16, bf16 and fp8 in terms of f32: the oracle's bits for every value that is special."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.helpers import assert_same, special
from tests.kernels import OUT, around, param
from uopc.dtype import DATA, FP8, DType, dtypes
from uopc.opts import Opts
from uopc.passes.legalise import NARROW, SMALL, legalise
from uopc.uop.node import UOp, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import COMPARE, ELEMENTWISE, Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

H = param(0, 8, dtype=dtypes.f16)
CASES: dict[str, UOp] = {
    "add": H + param(1, 8, dtype=dtypes.f16),
    "compare": (H < 1.0).where(H, -H),
    "cast-to-bytes": H.cast(dtypes.i8),
    "bf16-to-f16": param(0, 8, dtype=dtypes.bf16).cast(dtypes.f16),
    "fp8": (param(0, 8, dtype=dtypes.f8e4m3).cast(dtypes.f32) * 2.0).cast(dtypes.f8e5m2),
    "fma": H.fma(param(1, 8, dtype=dtypes.f16), 0.1),
    "f32": param(0, 8) * 2.0,
}


@pytest.mark.parametrize("name", CASES)
def test_the_graph(name: str, golden: Callable[[str, str], None]) -> None:
    _, after = around("legalise", Opts(gpu=True, local={0: 8}), CASES[name])
    check(after, Stage.LOOPS, True)
    golden(f"legalise/{name}.txt", show(after))


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Every special value with every other."""
    x = special(dtype)
    return np.repeat(x, len(x)), np.tile(x, len(x))


def check_bits(body: UOp, arrays: dict[int, Array]) -> None:
    before, after = around("legalise", Opts(), body)
    want = evaluate(body, arrays)
    with np.errstate(all="ignore"):
        assert_same(run(after, arrays, Stage.LOOPS)[OUT], want)
        assert_same(run(before, arrays, Stage.LOOPS)[OUT], want)
    assert not narrow_work(after)


def narrow_work(root: UOp) -> list[UOp]:
    """Arithmetic that is left on types that no machine computes with."""
    moves = (Ops.CAST, Ops.BITCAST, Ops.WHERE)
    return [
        u
        for u in toposort(root)
        if u.op in ELEMENTWISE and u.op not in moves and u.src[0].dtype in SMALL
    ]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "op",
    [Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAX, Ops.MIN, *sorted(COMPARE, key=lambda o: o.value)],
)
def test_two_operands(op: Ops, dtype: DType) -> None:
    a, b = pairs(dtype)
    x, y = param(0, len(a), dtype=dtype), param(1, len(a), dtype=dtype)
    check_bits(UOp(op, (x, y)), {0: a, 1: b})


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("op", [Ops.NEG, Ops.SQRT, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.RINT])
def test_one_operand(op: Ops, dtype: DType) -> None:
    a = special(dtype)
    check_bits(UOp(op, (param(0, len(a), dtype=dtype),)), {0: a})


@pytest.mark.parametrize("source", [d for d in DATA if d is not dtypes.bool])
@pytest.mark.parametrize("to", SMALL)
def test_casts_to_small_types(source: DType, to: DType) -> None:
    if source is not to:
        a = special(source)
        check_bits(param(0, len(a), dtype=source).cast(to), {0: a})


@pytest.mark.parametrize("source", SMALL)
@pytest.mark.parametrize("to", DATA)
def test_casts_from_small_types(source: DType, to: DType) -> None:
    if source is not to:
        a = special(source)
        check_bits(param(0, len(a), dtype=source).cast(to), {0: a})


def test_casts_of_small_types_go_through_f32() -> None:
    _, after = around("legalise", Opts(), param(0, 8, dtype=dtypes.f16).cast(dtypes.i64))
    casts = [(u.src[0].dtype, u.dtype) for u in toposort(after) if u.op is Ops.CAST]
    assert casts == [(dtypes.f16, dtypes.f32), (dtypes.f32, dtypes.i64)]


def test_other_graphs_pass_as_they_are() -> None:
    before, after = around("legalise", Opts(), param(0, 8) * 2.0)
    assert before is after and legalise(after) is after


def test_fp8_is_stored_and_never_computed_with() -> None:
    for dtype in FP8:
        _, after = around("legalise", Opts(), CASES["fp8"])
        assert not [u for u in toposort(after) if u.op in (Ops.MUL, Ops.ADD) and u.dtype is dtype]

"""Single ops against Python's exact numbers: all bytes, edge sets of every dtype, all fp8."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import assert_same, special
from uopc.dtype import DATA, FLOATS, FP8, SIGNED, UNSIGNED, DType, dtypes, from_bits, to_bits
from uopc.uop.node import UOp
from uopc.uop.numbers import (
    Array,
    array_of,
    canonical_nan,
    cast,
    elementwise,
    fold_const,
    fold_op,
)
from uopc.uop.ops import BINARY, COMPARE, ELEMENTWISE, UNARY, ConstArg, Ops

INTS = (*SIGNED, *UNSIGNED, dtypes.index)
INF, NAN = math.inf, math.nan


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    x, y = np.meshgrid(a, b, indexing="ij")
    return x.reshape(-1), y.reshape(-1)


# ---- integers
def exact_int(op: Ops, a: int, b: int, dtype: DType) -> int:
    """Python's integers, whose // and % are floor, then wrapped."""
    if op in (Ops.IDIV, Ops.MOD) and b == 0:
        return 0
    table = {
        Ops.ADD: lambda: a + b,
        Ops.SUB: lambda: a - b,
        Ops.MUL: lambda: a * b,
        Ops.IDIV: lambda: a // b,
        Ops.MOD: lambda: a % b,
        Ops.MAX: lambda: max(a, b),
        Ops.MIN: lambda: min(a, b),
        Ops.AND: lambda: a & b,
        Ops.OR: lambda: a | b,
        Ops.XOR: lambda: a ^ b,
        Ops.LT: lambda: int(a < b),
        Ops.EQ: lambda: int(a == b),
        Ops.NE: lambda: int(a != b),
    }
    value = table[op]()
    return value if op in COMPARE else dtype.wrap(value)


INT_OPS = (
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN),
    *(Ops.LT, Ops.EQ, Ops.NE),
)
BIT_OPS = (Ops.AND, Ops.OR, Ops.XOR)


@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.u8], ids=str)
@pytest.mark.parametrize("op", [*INT_OPS, *BIT_OPS], ids=str)
def test_every_pair_of_bytes(op: Ops, dtype: DType) -> None:
    every = np.arange(dtype.min, dtype.max + 1).astype(dtype.numpy)
    a, b = pairs(every, every)
    want = [exact_int(op, x, y, dtype) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert elementwise(op, dtype, [a, b]).tolist() == want


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_edges_of_every_integer(dtype: DType) -> None:
    a, b = pairs(special(dtype), special(dtype))
    for op in INT_OPS if dtype is dtypes.index else (*INT_OPS, *BIT_OPS):
        got = elementwise(op, dtype, [a, b])
        assert got.dtype == (np.bool_ if op in COMPARE else dtype.numpy)
        want = [exact_int(op, x, y, dtype) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert got.tolist() == want, op


@pytest.mark.parametrize("dtype", (*SIGNED, *UNSIGNED), ids=str)
def test_shifts_not_and_neg(dtype: DType) -> None:
    a, n = pairs(special(dtype), np.arange(dtype.bits).astype(dtype.numpy))
    left, right = (elementwise(op, dtype, [a, n]).tolist() for op in (Ops.SHL, Ops.SHR))
    assert left == [dtype.wrap(x << k) for x, k in zip(a.tolist(), n.tolist(), strict=True)]
    assert right == [x >> k for x, k in zip(a.tolist(), n.tolist(), strict=True)]
    x = special(dtype)
    assert elementwise(Ops.NOT, dtype, [x]).tolist() == [dtype.wrap(~v) for v in x.tolist()]
    assert elementwise(Ops.NEG, dtype, [x]).tolist() == [dtype.wrap(-v) for v in x.tolist()]


def test_shifts_beyond_the_width_leave_zeros_or_the_sign() -> None:
    assert fold_op(Ops.SHL, dtypes.u8, [255, 8]) == 0
    assert fold_op(Ops.SHR, dtypes.i8, [-1, 100]) == -1
    assert fold_op(Ops.SHR, dtypes.i32, [5, -1]) == 0


def test_floor_division_rows() -> None:
    a = np.array([-7, 7, -1], np.int32)
    assert elementwise(Ops.IDIV, dtypes.i32, [a, np.array([2, -2, 2], np.int32)]).tolist() == [
        *(-4, -4, -1)
    ]
    b = np.array([-6, 6, -7], np.int32)
    assert elementwise(Ops.MOD, dtypes.i32, [b, np.array([5, -5, 3], np.int32)]).tolist() == [
        *(4, -4, 2)
    ]
    for dtype in SIGNED:
        assert fold_op(Ops.IDIV, dtype, [dtype.min, -1]) == dtype.min
        assert fold_op(Ops.MOD, dtype, [dtype.min, -1]) == 0
        assert fold_op(Ops.IDIV, dtype, [5, 0]) == fold_op(Ops.MOD, dtype, [5, 0]) == 0


def test_narrow_integers_wrap_after_every_op() -> None:
    total = elementwise(Ops.ADD, dtypes.u8, [np.array([128], np.uint8)] * 2)
    assert cast(total, dtypes.u8, dtypes.i16).tolist() == [0]
    six = elementwise(Ops.NEG, dtypes.u8, [np.array([6], np.uint8)])
    assert elementwise(Ops.LT, dtypes.u8, [six, np.array([4], np.uint8)]).tolist() == [False]


def test_index_integers_do_not_wrap() -> None:
    big = 1 << 62
    assert fold_op(Ops.MUL, dtypes.index, [big, big]) == 1 << 124
    assert fold_op(Ops.IDIV, dtypes.index, [-(1 << 124) - 1, big]) == -(1 << 62) - 1
    assert fold_op(Ops.NEG, dtypes.index, [-(1 << 63)]) == 1 << 63
    assert fold_op(Ops.CAST, dtypes.index, [(1 << 64) + 5], dtypes.i32) == 5
    assert fold_op(Ops.CAST, dtypes.index, [1 << 64], dtypes.bool) is True
    assert fold_op(Ops.CAST, dtypes.index, [1 << 80], dtypes.f32) == 2.0**80
    assert fold_op(Ops.LT, dtypes.index, [1 << 70, 1 << 71]) is True


def test_bool() -> None:
    a, b = pairs(special(dtypes.bool), special(dtypes.bool))
    for op, want in {
        Ops.AND: [0, 0, 0, 1],
        Ops.OR: [0, 1, 1, 1],
        Ops.XOR: [0, 1, 1, 0],
        Ops.MAX: [0, 1, 1, 1],
        Ops.MIN: [0, 0, 0, 1],
        Ops.LT: [0, 1, 0, 0],
    }.items():
        assert elementwise(op, dtypes.bool, [a, b]).tolist() == [bool(x) for x in want]
    assert elementwise(Ops.NOT, dtypes.bool, [special(dtypes.bool)]).tolist() == [True, False]


# ---- floats
def rounded(x: Fraction, dtype: DType, zero: float = 0.0) -> float:
    """An exact number rounded once to f32 or f64, ties to even."""
    if x == 0:
        return zero
    digits, lowest, top = (24, -149, 128) if dtype is dtypes.f32 else (53, -1074, 1024)
    exponent = max(math.frexp(float(abs(x)))[1] - digits, lowest)
    n = round(abs(x) / Fraction(2) ** exponent)  # Python rounds half to even
    if n * Fraction(2) ** exponent >= Fraction(2) ** top:
        return math.copysign(INF, x)
    return math.copysign(float(n * Fraction(2) ** exponent), x)


MODERATE = st.floats(min_value=-(2.0**100), max_value=2.0**100, width=32)


@given(MODERATE, MODERATE, MODERATE)
def test_fma_of_f32_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    zero = float(np.float32(a) * np.float32(b) + np.float32(c)) if exact == 0 else 0.0
    got = fold_op(Ops.FMA, dtypes.f32, [a, b, c])
    assert to_bits(got, dtypes.f32) == to_bits(rounded(exact, dtypes.f32, zero), dtypes.f32)


@given(*[st.floats(min_value=-1e150, max_value=1e150)] * 3)
def test_fma_of_f64_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    zero = a * b + c if exact == 0 else 0.0
    got = fold_op(Ops.FMA, dtypes.f64, [a, b, c])
    assert to_bits(got, dtypes.f64) == to_bits(rounded(exact, dtypes.f64, zero), dtypes.f64)


def test_fma_where_two_roundings_would_show() -> None:
    a, tiny = 1 + 2.0**-12, 2.0**-60
    half_way = 2.0**24 + 1  # a tie in f32 when added exactly
    assert fold_op(Ops.FMA, dtypes.f32, [a, a, -1.0]) == 2.0**-11 + 2.0**-24
    assert fold_op(Ops.FMA, dtypes.f32, [half_way - 1, 1.0, 1.0]) == 2.0**24
    assert fold_op(Ops.FMA, dtypes.f32, [2.0**-30, 2.0**-30, 2.0**24]) == 2.0**24
    tie = fold_op(Ops.FMA, dtypes.f32, [1 + 2.0**-23, 1 + 2.0**-23, 2.0**24 + 0.0])
    assert tie == 2.0**24 + 2  # 2^24 + 1 + 2^-22 + 2^-46 lies above the tie
    for dtype in (dtypes.f32, dtypes.f64):
        huge = float(from_bits(to_bits(INF, dtype) - 1, dtype))
        assert fold_op(Ops.FMA, dtype, [huge, huge, -INF]) == -INF
        assert fold_op(Ops.FMA, dtype, [huge, 2.0, 0.0]) == INF
        assert math.isnan(fold_op(Ops.FMA, dtype, [INF, 0.0, 1.0]))
        assert math.isnan(fold_op(Ops.FMA, dtype, [1.0, 1.0, NAN]))
        assert math.copysign(1, fold_op(Ops.FMA, dtype, [-0.0, 1.0, -0.0])) == -1
    assert fold_op(Ops.FMA, dtypes.f16, [tiny, 1.0, 1.0]) == 1.0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_arithmetic_of_every_float(dtype: DType) -> None:
    """numpy and ml_dtypes compute halves in f32 and round, so their own operators are the judge."""
    a, b = pairs(special(dtype), special(dtype))
    with np.errstate(all="ignore"):
        assert_same(elementwise(Ops.ADD, dtype, [a, b]), a + b)
        assert_same(elementwise(Ops.SUB, dtype, [a, b]), a - b)
        assert_same(elementwise(Ops.MUL, dtype, [a, b]), a * b)
        assert_same(elementwise(Ops.DIV, dtype, [a, b]), a / b)
        assert_same(elementwise(Ops.SQRT, dtype, [a]), np.sqrt(a))
        assert_same(elementwise(Ops.TRUNC, dtype, [a]), np.trunc(a))
        assert_same(elementwise(Ops.RINT, dtype, [a]), np.rint(a))
        assert_same(elementwise(Ops.NEG, dtype, [a]), -a)
        for op, want in ((Ops.LT, a < b), (Ops.EQ, a == b), (Ops.NE, a != b)):
            assert_same(elementwise(op, dtype, [a, b]), np.asarray(want, bool))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_and_min_of_floats(dtype: DType) -> None:
    nan = canonical_nan(dtype).reshape(-1).view(f"u{dtype.itemsize}").item()
    zero, minus = to_bits(0.0, dtype), to_bits(-0.0, dtype)
    payload = array_of(ConstArg(dtype, to_bits(INF, dtype) + 1))  # a NaN of other bits
    one = array_of(ConstArg(dtype, to_bits(1.0, dtype)))
    for op, both in ((Ops.MAX, zero), (Ops.MIN, minus)):
        for x, y in ((payload, one), (one, payload), (payload, payload)):
            got = elementwise(op, dtype, [x, y])
            assert got.view(f"u{dtype.itemsize}").item() == nan
        for first, second in ((zero, minus), (minus, zero)):
            consts = [ConstArg(dtype, first), ConstArg(dtype, second)]
            assert fold_const(op, consts).bits == both
    assert fold_op(Ops.MAX, dtype, [1.0, INF]) == INF and fold_op(Ops.MIN, dtype, [1.0, 2.0]) == 1.0
    assert fold_op(Ops.MIN, dtype, [INF, INF]) == INF


def test_what_algebra_must_not_assume() -> None:
    assert math.isnan(fold_op(Ops.DIV, dtypes.f32, [0.0, 0.0]))
    assert math.isnan(fold_op(Ops.MUL, dtypes.f32, [INF, 0.0]))
    assert math.isnan(fold_op(Ops.SUB, dtypes.f32, [INF, INF]))
    assert math.isnan(fold_op(Ops.SIN, dtypes.f32, [INF]))
    assert fold_op(Ops.DIV, dtypes.f32, [1.0, -0.0]) == -INF
    assert fold_op(Ops.ADD, dtypes.f32, [2.0**-149, 0.0]) == 2.0**-149  # denormals are kept
    assert fold_op(Ops.TRUNC, dtypes.f32, [float(np.float32(14.999999)) / 1.0]) == 14.0


def test_transcendentals_are_rounded_from_f64() -> None:
    x = np.linspace(-20, 20, 4001).astype(np.float32)
    for op, f in ((Ops.EXP, np.exp), (Ops.SIN, np.sin), (Ops.TANH, np.tanh), (Ops.EXP2, np.exp2)):
        assert_same(elementwise(op, dtypes.f32, [x]), f(x.astype(np.float64)).astype(np.float32))
    erf = np.array([math.erf(v) for v in x], np.float64).astype(np.float32)
    assert_same(elementwise(Ops.ERF, dtypes.f32, [x]), erf)
    assert fold_op(Ops.EXP2, dtypes.f16, [11.0]) == 2048.0
    assert fold_op(Ops.LOG2, dtypes.bf16, [0.25]) == -2.0
    assert fold_op(Ops.LOG, dtypes.f64, [0.0]) == -INF
    assert fold_op(Ops.ERF, dtypes.f32, [INF]) == 1.0 and fold_op(Ops.COS, dtypes.f32, [0.0]) == 1.0


# ---- casts
@pytest.mark.parametrize("to", (*SIGNED, *UNSIGNED), ids=str)
@pytest.mark.parametrize("source", (*FLOATS, *FP8), ids=str)
def test_float_to_integer_saturates_and_nan_is_zero(source: DType, to: DType) -> None:
    x = special(source)

    def want(v: float) -> int:
        if math.isnan(v):
            return 0
        return to.max if v >= to.max else to.min if v <= to.min else math.trunc(v)

    assert cast(x, source, to).tolist() == [want(v) for v in x.astype(np.float64).tolist()]


@pytest.mark.parametrize("to", (*SIGNED, *UNSIGNED, dtypes.bool), ids=str)
@pytest.mark.parametrize("source", (*SIGNED, *UNSIGNED, dtypes.index), ids=str)
def test_integers_wrap_into_integers(source: DType, to: DType) -> None:
    x = special(source)
    assert cast(x, source, to).tolist() == [to.wrap(v) for v in x.tolist()]


@pytest.mark.parametrize("source", DATA, ids=str)
def test_casts_to_wide_floats_and_bool(source: DType) -> None:
    x = special(source)
    assert_same(cast(x, source, dtypes.f64), x.astype(np.float64))
    with np.errstate(over="ignore"):
        assert_same(cast(x, source, dtypes.f32), x.astype(np.float32))
    assert cast(x, source, dtypes.bool).tolist() == [bool(v != 0) for v in x.tolist()]


def test_float_casts_round_and_overflow() -> None:
    def half(x: float) -> float:
        return float(fold_op(Ops.CAST, dtypes.f32, [x], dtypes.f16))

    assert half(65536.0) == INF and half(65519.0) == 65504.0 and half(2.0**-25) == 0.0
    assert half(2.0**-24 * 1.5) == 2.0**-23  # ties to even among denormals
    assert half(-0.0) == 0.0 and math.copysign(1, half(-0.0)) == -1
    assert fold_op(Ops.CAST, dtypes.i32, [2**24 + 1], dtypes.f32) == 2.0**24
    assert fold_op(Ops.CAST, dtypes.i64, [2**63 - 1], dtypes.f32) == 2.0**63
    assert fold_op(Ops.CAST, dtypes.f32, [1.00390625], dtypes.bf16) == 1.0
    for to in (*FLOATS, *FP8):
        source = dtypes.f64 if to is not dtypes.f64 else dtypes.f32
        payload = ConstArg(source, to_bits(INF, source) + 1)
        got = fold_const(Ops.CAST, [payload], to)
        assert got == ConstArg(to, (1 << (to.bits - 1)) - 1)


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_casts_to_fp8_against_all_256_values(dtype: DType) -> None:
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    finite = sorted(
        (abs(v), n) for n, v in enumerate(every.tolist()) if math.isfinite(v) and n < 128
    )
    top = finite[-1][0]

    def nearest(x: float) -> float:
        if math.isnan(x):
            return NAN
        distance = [(abs(abs(x) - v), n & 1, v) for v, n in finite]
        return math.copysign(top if abs(x) >= top else min(distance)[2], x)

    middles = [(a + b) / 2 for (a, _), (b, _) in pairwise(finite)]
    edges = [top, top + 1, 1e30, INF, 0.0, 2.0**-20]
    xs = [s * v for v in (*middles, *(v for v, _ in finite), *edges) for s in (1.0, -1.0)] + [NAN]
    x = np.array(xs, np.float32)
    got = cast(x, dtypes.f32, dtype)
    assert_same(got, np.array([nearest(float(v)) for v in x]).astype(dtype.numpy))


def test_bitcast() -> None:
    assert fold_op(Ops.BITCAST, dtypes.f32, [1.0], dtypes.i32) == 0x3F800000
    assert fold_op(Ops.BITCAST, dtypes.u16, [0xFFFF], dtypes.i16) == -1
    assert fold_op(Ops.BITCAST, dtypes.u8, [2], dtypes.bool) is True
    x = special(dtypes.bf16)
    bits = elementwise(Ops.BITCAST, dtypes.bf16, [x], dtypes.u16)
    assert_same(elementwise(Ops.BITCAST, dtypes.u16, [bits], dtypes.bf16), x)
    nan = ConstArg(dtypes.f32, 0x7FC00123)
    assert fold_const(Ops.BITCAST, [nan], dtypes.u32).bits == 0x7FC00123
    yes = ConstArg(dtypes.bool, 1)
    assert fold_const(Ops.WHERE, [yes, nan, nan]) == nan  # a choice keeps the bits


# ---- the table is complete
def test_every_op_takes_every_dtype_that_a_node_may_have() -> None:
    counts = {**dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2), Ops.FMA: 3, Ops.WHERE: 3}
    assert set(counts) == ELEMENTWISE
    built = 0
    for op in ELEMENTWISE:
        for dtype in (*DATA, dtypes.index):
            one = UOp.const(1, dtype)
            src = [one] * counts[op]
            if op is Ops.WHERE:
                src[0] = UOp.const(True)
            to = {Ops.CAST: dtypes.f32, Ops.BITCAST: dtype}.get(op)
            try:
                node = UOp(op, tuple(src), to)
            except ValueError:
                continue
            found = fold_const(op, [s.arg for s in src], to)
            assert found.dtype is node.dtype, (op, dtype)
            built += 1
    assert built > 200


def test_bf16_uses_ml_dtypes() -> None:
    assert canonical_nan(dtypes.bf16).dtype == ml_dtypes.bfloat16

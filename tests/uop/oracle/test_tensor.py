"""Bodies against numpy and Python: movement, reductions of every dtype, and what numbers mean."""

from __future__ import annotations

import functools
import math
import operator

import ml_dtypes
import numpy as np
import pytest

from tests.helpers import assert_same, random_array, special
from uopc.dtype import DATA, FLOATS, SIGNED, UNSIGNED, DType, dtypes
from uopc.errors import UsageError
from uopc.uop.node import UOp, alu, buffer
from uopc.uop.numbers import elementwise
from uopc.uop.ops import Combine, Ops
from uopc.uop.oracle import evaluate

F32 = dtypes.f32
X = buffer(0, F32, (4, 6))


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return rng.standard_normal((4, 6)).astype(np.float32)


# ---- movement
@pytest.mark.parametrize(
    ("body", "want"),
    [
        (X.reshape((2, -1, 3)), lambda x: x.reshape(2, 4, 3)),
        (X.permute((1, 0)), lambda x: x.T),
        (X.shrink(((1, 3), (0, 5))), lambda x: x[1:3, :5]),
        (X.shrink(((2, 2), (0, 6))), lambda x: x[2:2]),
        (X.flip((1,)), lambda x: x[:, ::-1]),
        (X.flip((0, 1)), lambda x: x[::-1, ::-1]),
        (
            X.pad(((1, 0), (0, 2)), -1.5),
            lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=-1.5),
        ),
        (X.reshape((4, 1, 6)).expand((4, 3, 6)), lambda x: np.repeat(x[:, None], 3, 1)),
        (X.expand((2, 4, 6)), lambda x: np.stack([x, x])),
        (X.permute((1, 0)).reshape((3, 8)).flip((0,)), lambda x: x.T.reshape(3, 8)[::-1]),
        (UOp.arange(5).cast(F32), lambda x: np.arange(5, dtype=np.float32)),
        (UOp.const(2.5, F32, (2, 2)), lambda x: np.full((2, 2), 2.5, np.float32)),
    ],
)
def test_movement(body: UOp, want, x) -> None:  # type: ignore[no-untyped-def]
    assert_same(evaluate(body, {0: x}), np.ascontiguousarray(want(x)))


def test_scalars_go_with_any_shape(x) -> None:  # type: ignore[no-untyped-def]
    scale = buffer(1, F32, ())
    got = evaluate(scale * X + 1.0, {0: x, 1: np.float32(3)})
    assert_same(got, np.float32(3) * x + np.float32(1))
    assert evaluate(scale + scale, {1: np.float32(3)}).shape == ()
    chosen = alu(Ops.LT, X, scale).where(0.0, X)
    assert_same(evaluate(chosen, {0: x, 1: np.float32(0)}), np.where(x < 0, np.float32(0), x))


def test_several_bodies_share_their_arrays(x) -> None:  # type: ignore[no-untyped-def]
    first, second = evaluate([X + 1.0, X.reduce(Ops.MAX)], {0: x})
    assert_same(first, x + np.float32(1))
    assert_same(second, x.max(1))
    assert_same(evaluate([X], {0: x})[0], x)


# ---- reductions
def folded(combine: Combine, dtype: DType, row: list[float]) -> float:
    """One row by Python: exact, then wrapped or rounded once."""
    if combine in (Combine.ADD, Combine.MUL):
        if dtype.is_float:
            return math.fsum(row) if combine is Combine.ADD else math.prod(row)
        total = sum(row) if combine is Combine.ADD else math.prod(row)
        return dtype.wrap(int(total))
    if combine in (Combine.MAX, Combine.MIN):
        return max(row) if combine is Combine.MAX else min(row)
    bits = {Combine.AND: operator.and_, Combine.OR: operator.or_, Combine.XOR: operator.xor}
    return functools.reduce(bits[combine], [int(v) for v in row])


@pytest.mark.parametrize("dtype", [d for d in DATA if not d.storage], ids=str)
@pytest.mark.parametrize("combine", [c for c in Combine if not c.name.startswith("ARG")], ids=str)
def test_every_reduction_of_every_dtype(
    combine: Combine, dtype: DType, rng: np.random.Generator
) -> None:
    values = random_array(rng, dtype, (3, 2, 7))
    try:
        body = buffer(0, dtype, (3, 2, 7)).reduce(combine, 2)
    except UsageError:
        bits = combine in (Combine.AND, Combine.OR, Combine.XOR)
        assert (dtype is dtypes.bool) if not bits else dtype.is_float
        return
    want = [folded(combine, dtype, row) for row in values.reshape(3, -1).tolist()]
    assert_same(evaluate(body, {0: values}), np.array(want).astype(dtype.numpy))


def test_integer_sums_wrap_in_their_own_width() -> None:
    ones = np.full((300,), 255, np.uint8)
    body = buffer(0, dtypes.u8, (300,)).reduce(Ops.ADD)
    assert evaluate(body, {0: ones}).tolist() == 300 * 255 % 256


def test_half_sums_accumulate_wide_and_round_once() -> None:
    def total(dtype: DType, shape: tuple[int, ...], turned: bool = False) -> float:
        u = buffer(0, dtype, shape)
        u = u.permute((1, 0)) if turned else u
        return float(evaluate(u.reduce(Ops.ADD), {0: np.ones(shape, dtype.numpy)}).reshape(-1)[0])

    assert total(dtypes.f16, (20000,)) == 20000.0
    assert total(dtypes.bf16, (70000,)) == 70144.0
    assert total(dtypes.f16, (1, 6000)) == total(dtypes.f16, (6000, 1), turned=True) == 6000.0
    assert total(dtypes.f16, (70000,)) == math.inf


def test_sums_of_zeros_and_of_nothing() -> None:
    minus = np.full((4,), -0.0, np.float32)
    got = evaluate(buffer(0, F32, (4,)).reduce(Ops.ADD), {0: minus})
    assert got == 0 and not np.signbit(got)
    empty = {0: np.zeros((2, 0), np.float32)}
    assert evaluate(buffer(0, F32, (2, 0)).reduce(Ops.ADD), empty).tolist() == [0.0, 0.0]
    assert evaluate(buffer(0, F32, (2, 0)).reduce(Ops.MUL), empty).tolist() == [1.0, 1.0]
    with pytest.raises(UsageError, match="of no elements has no value"):
        buffer(0, F32, (2, 0)).reduce(Ops.MAX)
    rows = evaluate(buffer(0, F32, (0, 2)).reduce(Ops.MAX), {0: np.zeros((0, 2), np.float32)})
    assert rows.shape == (0,)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", [Ops.MAX, Ops.MIN], ids=str)
def test_extremes_follow_the_elementwise_op(op: Ops, dtype: DType) -> None:
    every = special(dtype)
    rows = np.array([[a, b, c] for a in every for b in every for c in every[:5]], dtype.numpy)
    got = evaluate(buffer(0, dtype, rows.shape).reduce(op), {0: rows})
    pair = elementwise(op, dtype, [rows[:, 2], rows[:, 0]])
    assert_same(got, elementwise(op, dtype, [rows[:, 1], pair]))
    nan = np.isnan(rows.astype(np.float64)).any(1)
    assert np.array_equal(np.isnan(got.astype(np.float64)), nan) and nan.any()


@pytest.mark.parametrize(
    ("row", "largest", "smallest"),
    [
        ([math.nan, 6, 8], 0, 0),
        ([6, math.nan, 8, math.nan], 1, 1),
        ([math.nan] * 3, 0, 0),
        ([math.inf] * 3, 0, 0),
        ([-math.inf] * 3, 0, 0),
        ([-0.0, 0.0, -0.0], 0, 0),
        ([1, 3, 3, 0, 0], 1, 3),
    ],
)
def test_argmax_takes_the_first(row: list[float], largest: int, smallest: int) -> None:
    x = np.array(row, np.float32)
    u = buffer(0, F32, x.shape)
    assert evaluate([u.argmax(), u.argmin()], {0: x}) == [largest, smallest]
    at = evaluate(u.argmax(), {0: x})
    assert at.dtype == np.int32 and at.shape == ()


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, dtypes.bool, *FLOATS], ids=str)
def test_argmax_of_every_dtype_agrees_with_numpy(dtype: DType, rng: np.random.Generator) -> None:
    x = special(dtype)
    if dtype.is_float:
        x = x[~np.isnan(x.astype(np.float64))]
    table = rng.permuted(
        np.tile(x.astype(np.float64 if dtype.is_float else x.dtype), (8, 3)), axis=1
    )
    table = table.astype(dtype.numpy)
    u = buffer(0, dtype, table.shape)
    assert evaluate(u.argmax(), {0: table}).tolist() == table.argmax(1).tolist()
    assert evaluate(u.argmin(), {0: table}).tolist() == table.argmin(1).tolist()
    assert evaluate(u.argmax(2), {0: table}) == table.argmax()


def test_softmax_of_infinity_is_nan() -> None:
    u = buffer(0, F32, (2,))
    top = u.reduce(Ops.MAX).reshape((1,)).expand((2,))
    e = (u - top).exp()
    body = e / e.reduce(Ops.ADD).reshape((1,)).expand((2,))
    got = evaluate(body, {0: np.array([1, np.inf], np.float32)})
    assert np.isnan(got[1])


def test_index_values() -> None:
    i = UOp.arange(4, dtypes.i64).cast(dtypes.index)
    got = evaluate((i * 3 - 4) // 2, {})
    assert got.dtype == np.int64 and got.tolist() == [-2, -1, 1, 2]


def test_storage_dtypes_pass_through() -> None:
    x = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    u = buffer(0, dtypes.f8e4m3, (256,))
    assert_same(evaluate(u.flip((0,)), {0: x}), x[::-1].copy())
    assert_same(evaluate(u.cast(F32).cast(dtypes.f8e4m3), {0: x}), x)


# ---- errors and size
def test_arrays_must_fit() -> None:
    with pytest.raises(UsageError, match=r"slot 0 .* no array is given"):
        evaluate(X, {})
    with pytest.raises(UsageError, match=r"slot 0 is f32 .* the array is float64"):
        evaluate(X, {0: np.zeros((4, 6))})
    with pytest.raises(UsageError, match=r"slot 0 is .*\(4, 6\).*shape \(5, 6\)"):
        evaluate(X, {0: np.zeros((5, 6), np.float32)})
    with pytest.raises(UsageError, match="INDEX is none: use run"):
        evaluate(buffer(0, F32, (4,)).index(0).load(), {0: np.zeros(4, np.float32)})


def test_the_result_is_the_callers_own(x) -> None:  # type: ignore[no-untyped-def]
    got = evaluate(X, {0: x})
    got[0, 0] = 7
    assert x[0, 0] != 7


def test_deep_bodies() -> None:
    u = start = buffer(0, dtypes.i32, (3,))
    for k in range(50_000):
        u = alu(Ops.ADD, u, 1) if k % 2 else alu(Ops.XOR, u, start)
    want = start_values = np.array([1, 2, 3], np.int32)
    for k in range(50_000):
        want = want + 1 if k % 2 else want ^ start_values
    assert_same(evaluate(u, {0: start_values}), want.astype(np.int32))

"""Operators and functions against numpy: dtypes, shapes that broadcast, NaN, infinities, -0.0."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import assert_same, special
from tests.tensor.meaning import COMPUTED, FLOATS, arrays, meaning, tensor, wide
from uopc.dtype import FP8, DType, dtypes, from_numpy
from uopc.errors import UsageError
from uopc.tensor import Tensor, maximum, minimum, result_type, where
from uopc.tensor.promote import promote
from uopc.uop.numbers import Array, cast

INTEGERS = tuple(d for d in COMPUTED if d.is_int)
SIGNED = tuple(d for d in INTEGERS if d.min)
#: u64 with a signed integer has no dtype: one of the two is left out
TOGETHER = tuple(d for d in COMPUTED if d is not dtypes.u64)


@st.composite
def pairs(draw: st.DrawFn, kinds: tuple[DType, ...] = TOGETHER) -> tuple[Array, Array]:
    """Two arrays whose shapes broadcast, of any two of the dtypes."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    out = []
    for _ in range(2):
        mine = [1 if draw(st.integers(0, 3)) == 0 else n for n in shape]
        mine = mine[draw(st.integers(0, len(mine))) :] if draw(st.booleans()) else mine
        out.append(draw(arrays(kinds, st.just(tuple(mine)))))
    return out[0], out[1]


def together(a: Array, b: Array) -> tuple[Array, Array, DType]:
    """Both in their common dtype."""
    dtype = promote(from_numpy(a.dtype), from_numpy(b.dtype))
    x, y = (cast(v, from_numpy(v.dtype), dtype) for v in (a, b))
    return x, y, dtype


def of_floats(f: Callable[..., Any], *xs: Array) -> Array:
    """numpy's function; of narrow floats in f32, rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(f(*map(wide, xs))).astype(xs[0].dtype)


def agree(got: Tensor, want: Any, dtype: DType | None = None) -> None:
    array = np.asarray(want)
    assert_same(meaning(got), array if dtype is None else array.astype(dtype.numpy))


NUMERIC = tuple(d for d in TOGETHER if d is not dtypes.bool)


@given(pairs(NUMERIC))
def test_arithmetic(two: tuple[Array, Array]) -> None:
    a, b = map(tensor, two)
    x, y, dtype = together(*two)
    f = of_floats if dtype.is_float else lambda f, *xs: np.asarray(f(*xs))
    with np.errstate(all="ignore"):
        agree(a + b, f(np.add, x, y))
        agree(a - b, f(np.subtract, x, y))
        agree(a * b, f(np.multiply, x, y))
        if not dtype.is_float:
            agree(a // b, np.floor_divide(x, y))
            agree(a % b, np.remainder(x, y))
            x, y = x.astype(np.float32), y.astype(np.float32)
        agree(a / b, of_floats(np.divide, x, y))


def test_narrow_floats_round_after_every_operation() -> None:
    h = tensor(np.array([2048], np.float16))
    assert meaning(h + 1 - 1).tolist() == [2047]


@given(pairs())
def test_comparison(two: tuple[Array, Array]) -> None:
    a, b = map(tensor, two)
    x, y, _ = together(*two)
    for f in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        agree(f(a, b), f(wide(x), wide(y)))


@given(pairs())
def test_larger_and_smaller(two: tuple[Array, Array]) -> None:
    a, b = map(tensor, two)
    x, y, dtype = together(*two)

    def pick(f: Any) -> Array:
        out = np.asarray(f(wide(x), wide(y)))
        if dtype.is_float:  # of two zeros numpy takes either
            low = (wide(x) == wide(y)) & (out == 0)
            signs = np.signbit(wide(x)), np.signbit(wide(y))
            minus = signs[0] & signs[1] if f is np.maximum else signs[0] | signs[1]
            out = np.where(low, np.where(minus, -0.0, 0.0), out)
        return out.astype(dtype.numpy)

    agree(maximum(a, b), pick(np.maximum))
    agree(minimum(a, b), pick(np.minimum))


@given(pairs())
def test_logic(two: tuple[Array, Array]) -> None:
    a, b = map(tensor, two)
    x, y = np.asarray(wide(two[0]) != 0), np.asarray(wide(two[1]) != 0)
    agree(a.logical_and(b), x & y)
    agree(a.logical_or(b), x | y)
    agree(a.logical_xor(b), x ^ y)
    agree(a.logical_not(), ~x)


@given(pairs(tuple(d for d in TOGETHER if not d.is_float)))
def test_bits(two: tuple[Array, Array]) -> None:
    a, b = map(tensor, two)
    x, y, dtype = together(*two)
    agree(a & b, x & y)
    agree(a | b, x | y)
    agree(a ^ b, x ^ y)
    agree(~a, ~two[0])
    if dtype is not dtypes.bool:
        some = (-9, -1, 0, 1, 7, 8, 31, 32, 63, 64, 100)
        by = np.array([n for n in some if n >= dtype.min], dtype.numpy)
        wanted_left = [[left(int(v), int(n), dtype) for n in by] for v in x.reshape(-1)]
        wanted_right = [[right(int(v), int(n), dtype) for n in by] for v in x.reshape(-1)]
        column = tensor(np.ascontiguousarray(x.reshape(-1, 1)))
        shape = (x.size, by.size)
        agree(column << tensor(by), np.array(wanted_left, dtype.numpy).reshape(shape))
        agree(column >> tensor(by), np.array(wanted_right, dtype.numpy).reshape(shape))


def left(value: int, by: int, dtype: DType) -> int:
    return dtype.wrap(value << by) if 0 <= by < dtype.bits else 0


def right(value: int, by: int, dtype: DType) -> int:
    return value >> by if 0 <= by < dtype.bits else -(value < 0)


@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_one_operand(dtype: DType) -> None:
    x = special(dtype)
    t, w = tensor(x), wide(x)
    with np.errstate(all="ignore"):
        if dtype is not dtypes.bool:
            agree(-t, -x)
            agree(t.square(), of_floats(np.square, x) if dtype.is_float else x * x)
            agree(t.sign(), np.where(w > 0, 1, np.where(w < 0, -1, np.where(w == 0, 0, w))), dtype)
        agree(t.abs(), abs(w), dtype)
        agree(t.relu(), np.where(np.isnan(w), w, np.where(w > 0, w, 0)), dtype)
        agree(t.isnan(), np.isnan(w))
        agree(t.isinf(), np.isinf(w))
        agree(t.isfinite(), np.isfinite(w))
        agree(t.signbit(), np.signbit(w) if dtype.is_float else w < 0)
        for name in ("floor", "ceil", "trunc"):
            agree(getattr(t, name)(), of_floats(getattr(np, name), x) if dtype.is_float else x)
        agree(t.round(), of_floats(np.rint, x) if dtype.is_float else x)
        f = w if dtype.is_float else x.astype(np.float32)
        wanted = dtype if dtype.is_float else dtypes.f32
        agree(t.sqrt(), np.sqrt(f), wanted)
        agree(t.reciprocal(), 1 / f, wanted)


@given(st.data())
def test_numbers_on_either_side(data: st.DataObject) -> None:
    x = data.draw(arrays(NUMERIC))
    dtype = from_numpy(x.dtype)
    n = data.draw(
        st.integers(max(dtype.min, -5), 5) if dtype.is_int else st.floats(-4, 4, width=16)
    )
    t, y = tensor(x), np.asarray(n, x.dtype)
    f = of_floats if dtype.is_float else lambda f, *xs: np.asarray(f(*xs))
    with np.errstate(all="ignore"):
        agree(n + t, f(np.add, y, x))
        agree(n - t, f(np.subtract, y, x))
        agree(t - n, f(np.subtract, x, y))
        agree(n * t, f(np.multiply, y, x))
        agree(n < t, wide(y) < wide(x))
        agree(n >= t, wide(y) >= wide(x))
        if dtype.is_int:
            agree(n // t, np.floor_divide(y, x))
            agree(n % t, np.remainder(y, x))
            q, r = divmod(t, n)
            agree(q, np.floor_divide(x, y))
            agree(r, np.remainder(x, y))
            agree(n & t, y & x)
            agree(n ^ t, y ^ x)
            agree(n | t, y | x)
            few = t & 7
            agree(1 << few, np.asarray(1, x.dtype) << (x & 7))


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_clamp_and_fill(dtype: DType) -> None:
    x = special(dtype)
    t, w = tensor(x), wide(x)
    agree(t.clamp(0, 3), np.where(np.isnan(w), w, np.minimum(np.maximum(w, 0) + 0, 3)), dtype)
    agree(t.clip(max=2), np.where(np.isnan(w), w, np.minimum(w, 2)), dtype)
    agree(t.clamp(5, 1), np.where(np.isnan(w), w, 1), dtype)
    agree(t.masked_fill(t > 1, 1), np.where(w > 1, 1, w), dtype)
    if dtype.is_int:
        assert t.clamp(min=0.5).dtype is dtypes.f32


@given(pairs(), st.data())
def test_where(two: tuple[Array, Array], data: st.DataObject) -> None:
    a, b = map(tensor, two)
    x, y, dtype = together(*two)
    condition = data.draw(arrays([dtypes.bool], st.sampled_from([(), (1,), x.shape, y.shape])))
    c = tensor(condition)
    try:
        want = np.where(condition, x, y)
    except ValueError:
        with pytest.raises(UsageError, match="do not broadcast"):
            where(c, a, b)
        return
    agree(where(c, a, b), want, dtype)
    agree(where(c, a, 1), np.where(condition, two[0], 1), result_type(a, 1))
    assert where(c, 1, 2.0).dtype is dtypes.f32 and where(c, 1, 2).dtype is dtypes.i32


# ---- powers
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_powers_of_integers(dtype: DType) -> None:
    x = special(dtype)
    t = tensor(x)
    for n in (0, 1, 2, 3, 7, 8, 65):
        wanted = [dtype.wrap(int(v) ** n) for v in x]
        assert meaning(t**n).tolist() == wanted
    exponents = np.array([n for n in (-3, -2, -1, 0, 1, 2, 5, 31, 100) if n >= dtype.min], x.dtype)
    got = meaning(tensor(x.reshape(-1, 1)) ** tensor(exponents))
    for v, row in zip(x.tolist(), got.tolist(), strict=True):
        for n, p in zip(exponents.tolist(), row, strict=True):
            inverse = 0 if abs(v) != 1 else v ** (n % 2)
            assert p == (dtype.wrap(v**n) if n >= 0 else inverse), (v, n)
    if dtype.min:
        with pytest.raises(UsageError, match="to the power -1 is no integer"):
            t ** (-1)
    assert meaning(2 ** (t & 3)).tolist() == [dtype.wrap(2 ** (int(v) & 3)) for v in x]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_whole_powers_of_floats(dtype: DType) -> None:
    x = special(dtype)
    for n in (0, 1, 2, 3, 5, 8, -1, -2, -3):
        got = wide(meaning(tensor(x) ** n))
        with np.errstate(all="ignore"):
            want = (np.asarray(wide(x), np.longdouble) ** n).astype(dtype.numpy)
        close(got, wide(want), 4 if dtype.bits >= 32 else 0)
    assert_same(meaning(tensor(x) ** 2.0), meaning(tensor(x) ** 2))


def close(got: Array, want: Array, ulps: float) -> None:
    """Within so many units in the last place; NaN, infinities, zeros and signs as they are."""
    with np.errstate(all="ignore"):
        same = (got == want) & (np.signbit(got) == np.signbit(want)) | (got != got) & (want != want)
        near = np.abs(got - want) <= ulps * np.spacing(np.abs(want))
    wrong = ~(same | near)
    assert not wrong.any(), (got[wrong][:5], want[wrong][:5])


def test_the_root_as_a_power() -> None:
    t = tensor(special(dtypes.f32))
    assert_same(meaning(t**0.5), meaning(t.sqrt()))


def test_powers_that_are_none() -> None:
    with pytest.raises(UsageError, match="bools have no powers"):
        tensor(np.array([True])) ** True


# ---- functions that are more than one op
@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("leaky_relu", lambda x: np.where(x > 0, x, x * 0.01)),
        ("relu6", lambda x: np.clip(x, 0, 6)),
        ("hardtanh", lambda x: np.clip(x, -1, 1)),
        ("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1)),
        ("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
        ("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
        (
            "selu",
            lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        ),
        ("logsigmoid", lambda x: -np.log1p(np.exp(-x))),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("log10", np.log10),
        ("exp2", np.exp2),
        ("log2", np.log2),
        ("tanh", np.tanh),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tan", np.tan),
    ],
)
def test_functions(name: str, want: Callable[[Array], Array]) -> None:
    x = np.linspace(-9, 9, 181)
    with np.errstate(all="ignore"):
        wanted = want(x)
        np.testing.assert_allclose(meaning(getattr(tensor(x), name)()), wanted, 1e-12, 1e-15)
        narrow = meaning(getattr(tensor(x.astype(np.float32)), name)())
        np.testing.assert_allclose(narrow, want(x.astype(np.float32)), 1e-5, 1e-6)
        assert np.array_equal(np.isnan(narrow), np.isnan(wanted))


def test_gelu_and_softplus() -> None:
    x = np.array([-np.inf, -30.0, -5, -1, -0.0, 0.5, 3, 40, 1e30, np.inf, np.nan])
    with np.errstate(all="ignore"):
        share = np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in x])
        plain = np.where(x == -np.inf, -0.0, x * share)
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        by_tanh = np.where(x == -np.inf, -0.0, 0.5 * x * (1 + np.tanh(inner)))
        softplus = np.logaddexp(2 * x, 0) / 2
    t = tensor(x)
    np.testing.assert_allclose(meaning(t.gelu()), plain, 1e-9, 1e-15)
    np.testing.assert_allclose(meaning(t.gelu("tanh")), by_tanh, 1e-9, 1e-15)
    np.testing.assert_allclose(meaning(t.softplus(2.0)), softplus, 1e-13)
    with pytest.raises(UsageError, match="approximate is 'none' or 'tanh', got 'fast'"):
        t.gelu("fast")  # type: ignore[arg-type]  # a user's mistake


def test_lerp() -> None:
    a, b = np.array([0.0, 2.0]), np.array([1.0, 6.0])
    agree(tensor(a).lerp(tensor(b), 0.25), np.array([0.25, 3.0]))


# ---- in place
@pytest.mark.parametrize(
    ("change", "want"),
    [
        (operator.iadd, [10, 11, 12]),
        (operator.isub, [4, 5, 6]),
        (operator.imul, [21, 24, 27]),
        (operator.ifloordiv, [2, 2, 3]),
        (operator.imod, [1, 2, 0]),
        (operator.ipow, [343, 512, 729]),
        (operator.iand, [3, 0, 1]),
        (operator.ior, [7, 11, 11]),
        (operator.ixor, [4, 11, 10]),
        (operator.ilshift, [56, 64, 72]),
        (operator.irshift, [0, 1, 1]),
    ],
)
def test_in_place(change: Callable[[Any, Any], Any], want: list[int]) -> None:
    t = tensor(np.array([7, 8, 9], np.int32))
    before = t
    view = t + 0
    assert change(t, 3) is before
    assert t.numpy().tolist() == want and t.dtype is dtypes.i32
    assert view.numpy().tolist() == [7, 8, 9]


def test_in_place_keeps_dtype_and_shape() -> None:
    t = tensor(np.array([1.0, 2.0], np.float32))
    t /= 4
    assert t.numpy().tolist() == [0.25, 0.5]
    t += tensor(np.array([1.0, 1.0]))  # f64 goes back into f32
    assert t.dtype is dtypes.f32
    with pytest.raises(UsageError, match="f32 does not go into i32"):
        n = tensor(np.array([1, 2], np.int32))
        n /= 2
    with pytest.raises(UsageError, match=r"shape"):
        t += tensor(np.ones((3, 2), np.float32))


# ---- mistakes
def test_shapes_that_do_not_broadcast() -> None:
    a, b = tensor(np.zeros((2, 3))), tensor(np.zeros((4,)))
    with pytest.raises(
        UsageError, match=r"add at test_elementwise.py:\d+: shapes \(2, 3\) and \(4,\)"
    ):
        a + b


def test_dtypes_that_an_operator_has_not() -> None:
    x = tensor(np.array([1.5]))
    with pytest.raises(UsageError, match="not defined for f64"):
        x & x
    with pytest.raises(UsageError, match="integers are shifted, not f64"):
        x << 1
    with pytest.raises(UsageError, match="of bools there is none"):
        (x < 1).sign()
    with pytest.raises(UsageError, match="the condition is a bool Tensor, got f64"):
        where(x, x, x)
    with pytest.raises(UsageError, match=r"one of uopc\.dtypes"):
        x.cast(np.float32)  # type: ignore[arg-type]  # a user's mistake


@pytest.mark.parametrize("source", COMPUTED, ids=str)
def test_casts(source: DType) -> None:
    x = special(source)
    for to in (*COMPUTED, *FP8):
        agree(tensor(x).cast(to), cast(x, source, to))
        agree(tensor(x).astype(to), cast(x, source, to))


def test_bitcast() -> None:
    x = np.array([1.0, -0.0, np.inf], np.float32)
    agree(tensor(x).bitcast(dtypes.u32), x.view(np.uint32))


# ---- the same on devices
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_on_a_device(device: str) -> None:
    """One kernel with most of it: comparisons, curves and integers beside one another."""
    x = np.concatenate((special(dtypes.f32), np.linspace(-4, 4, 47, dtype=np.float32)))
    t = Tensor(x, device=device)
    whole = t.clamp(-100, 100).cast(dtypes.i32)
    parts = [t.relu(), t.abs() % 3, t // 0.75, t**3, t.copysign(-1.0), t.hypot(1.0)]
    parts += [p.cast(dtypes.f32) for p in ((whole // 3) % 5, whole << 3, whole**2 >> 1, t > 1)]
    total = parts[0]
    for p in parts[1:]:
        total = where(p.isfinite(), p, 1.0) + where(total.isfinite(), total, 2.0) * 0.5
    assert_same(total.numpy(), meaning(total))

"""Functions made of ops: how many ulp they are off, their ends, their slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.helpers import assert_same, special
from tests.tensor.differences import check_gradients
from tests.tensor.meaning import meaning, tensor
from uopc.dtype import DType, dtypes
from uopc.tensor import Tensor
from uopc.tensor.curves import CURVES, curve
from uopc.uop.node import UOp
from uopc.uop.numbers import Array

WIDE = np.longdouble
DTYPES = [dtypes.f32, dtypes.f64]


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


#: the method of Tensor, the function in numpy, and the ulp that curves.py promises
ONE: dict[str, Callable[[Any], Any]] = {
    **{"expm1": np.expm1, "log1p": np.log1p, "sinh": np.sinh, "cosh": np.cosh},
    **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
    **{"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sigmoid": sigmoid},
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "silu": lambda x: np.where(x == -np.inf, WIDE(-0.0), x * sigmoid(x)),
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    **{"atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "pow": np.power},
    "logaddexp": np.logaddexp,
}


def values(dtype: DType, seed: int, count: int = 1000) -> Array:
    """The special ones first, then random bits and random numbers of several sizes."""
    rng, d = np.random.default_rng(seed), dtype.numpy
    bits = rng.integers(0, 2 ** (dtype.bits - 1), count, dtype=f"u{dtype.itemsize}").view(d)
    normal, uniform = rng.standard_normal, rng.uniform
    parts = [bits, -bits, normal(count), normal(count) * 30, uniform(-1, 1, count)]
    parts += [
        1 + normal(count) * 1e-3,
        rng.uniform(-100, 100, count),
        rng.uniform(-720, 720, count),
    ]
    return np.concatenate([special(dtype), *(p.astype(d) for p in parts)])


def ulps(got: Array, true: Array) -> Array:
    """How far off, in units in the last place of the rounded true value; inf for the wrong kind."""
    with np.errstate(all="ignore"):
        rounded = true.astype(got.dtype)
        off = np.abs(got.astype(WIDE) - true) / np.spacing(np.abs(rounded)).astype(WIDE)
        same = (got == rounded) | (got != got) & (rounded != rounded)
    return np.where(same, 0.0, np.where(np.isfinite(off), off, np.inf)).astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ONE)
def test_of_one(name: str, dtype: DType) -> None:
    x = values(dtype, 0)
    with np.errstate(all="ignore"):
        got, true = meaning(getattr(tensor(x), name)()), ONE[name](x.astype(WIDE))
    off = ulps(got, true)
    if name == "silu":
        off[x < (-87 if dtype is dtypes.f32 else -708)] = 0
    assert off.max() <= 3, (x[off.argmax()], got[off.argmax()], true[off.argmax()])
    zero = (x == 0) & (true == 0)
    assert (np.signbit(got) == np.signbit(true))[zero].all()


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Every pair of special values, and random ones."""
    some = special(dtype)
    p, q = (m.reshape(-1) for m in np.meshgrid(some, some))
    x, y = values(dtype, 1, 250), values(dtype, 2, 250)
    mixed = np.random.default_rng(3).permutation(y)
    return np.concatenate((p, x, np.abs(x))), np.concatenate((q, mixed, y))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TWO)
def test_of_two(name: str, dtype: DType) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        got = meaning(getattr(tensor(x), name)(tensor(y)))
        true = TWO[name](x.astype(WIDE), y.astype(WIDE))
        off, limit = ulps(got, true), np.asarray(3.0)
        if name == "pow":
            steps = np.abs(y * np.log2(np.abs(x))).astype(np.float64)
            limit = np.where(np.isfinite(steps), 4 + steps / 32, 4.0)
            limit = np.full_like(steps, 1.0) if dtype is dtypes.f32 else limit
        if name == "logaddexp":
            unit = np.spacing(np.abs(true).astype(got.dtype)).astype(WIDE)
            large = np.spacing(np.fmax(np.abs(x), np.abs(y)))
            limit = np.where(np.isfinite(large), np.fmax(3 * large / unit, 3.0), 3.0)
        signs = np.signbit(got) == np.signbit(true.astype(got.dtype))
    wrong = ~(off <= limit)
    assert not wrong.any(), (x[wrong][:3], y[wrong][:3], got[wrong][:3], true[wrong][:3])
    assert signs[~np.isnan(got)].all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_division_that_rounds_down(dtype: DType) -> None:
    x, y = pairs(dtype)
    quotient, rest = meaning(tensor(x) // tensor(y)), meaning(tensor(x) % tensor(y))
    with np.errstate(all="ignore"):
        ratio = np.abs(x.astype(WIDE) / y.astype(WIDE))
        wanted = np.remainder(x, y)
        plain = ~(ratio >= 2.0**53)
        assert_same(rest[plain], wanted[plain])
        far = ~plain & np.isfinite(x)
        assert_same(quotient[far], (x.astype(np.float64) / y).astype(x.dtype)[far])
        below = np.floor_divide(x, y)
    assert (np.signbit(quotient) == np.signbit(below))[plain & ~np.isnan(below)].all()
    finite = plain & np.isfinite(x) & np.isfinite(y) & (y != 0)
    for a, b, q in zip(x[finite][:2000], y[finite][:2000], quotient[finite][:2000], strict=True):
        assert q == x.dtype.type(float(Fraction(float(a)) / Fraction(float(b)) // 1)), (a, b)
    odd = ~finite & ~far
    assert np.array_equal(quotient[odd], below[odd], equal_nan=True)


def test_narrow_floats_are_rounded_once() -> None:
    for dtype in (dtypes.f16, dtypes.bf16):
        x = special(dtype)
        for name in ("sinh", "atan", "silu", "log1p"):
            got = meaning(getattr(tensor(x), name)())
            once = meaning(getattr(tensor(x.astype(np.float32)), name)())
            with np.errstate(all="ignore"):
                assert np.array_equal(got, once.astype(dtype.numpy), equal_nan=True)
        assert_same(meaning(tensor(x).copysign(-1.0)), meaning(-tensor(x).abs()))


# ---- slopes
#: points where each function is smooth
POINTS: dict[str, tuple[list[float], ...]] = {
    **dict.fromkeys(CURVES, ([-0.6, -0.1, 0.2, 0.7],)),
    "acosh": ([1.2, 2.0, 5.0],),
    "power": ([0.3, 1.5, 2.0], [-1.2, 0.7, 3.0]),
    **dict.fromkeys(("log_add", "hypot", "atan2"), ([-0.6, 0.2, 1.3], [0.4, -0.9, 2.0])),
    "copysign": ([-0.6, 0.2, 1.3], [0.4, -0.9, 2.0]),
    "remainder": ([-3.3, 7.4, 2.2], [1.7, -2.3, 0.9]),
}


@pytest.mark.parametrize("name", CURVES)
def test_slopes(name: str) -> None:
    tolerance = 2e-4 if name.startswith("narrow") else 1e-6
    points = map(np.array, POINTS[name])
    check_gradients(lambda *x: curve(name, *x), *points, tolerance=tolerance)


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("sigmoid", [-np.inf, -200.0, 0.0, 200.0, np.inf], [0, 0, 0.25, 0, 0]),
        ("silu", [-np.inf, -200.0, 0.0, 200.0, np.inf], [0, 0, 0.5, 1, 1]),
        ("softplus", [-np.inf, -200.0, 0.0, 200.0, np.inf], [0, 0, 0.5, 1, 1]),
        ("expm1", [-np.inf, -200.0, 0.0, 1e-12], [0, 0, 1, 1]),
        ("log1p", [-1.0, 1e-12, 1e30], [np.inf, 1, 1e-30]),
        ("atan", [-np.inf, 1e200, 0.0], [0, 0, 1]),
        ("sinh", [0.0, 1e-300], [1, 1]),
        ("gelu", [-1e30, -40.0, 0.0, 40.0, 1e30], [0, 0, 0.5, 1, 1]),
        ("relu", [-np.inf, -1.0, 0.0, 2.0, np.inf], [0, 0, 0, 1, 1]),
        ("elu", [-np.inf, -300.0, 1.0, 300.0], [0, 0, 1, 1]),
        ("abs", [-2.0, 0.0, 3.0], [-1, 0, 1]),
        ("square", [-2.0, 0.0], [-4, 0]),
    ],
)
def test_slopes_at_the_ends(name: str, x: list[float], want: list[float]) -> None:
    t = Tensor(np.array(x), device="cpu", requires_grad=True)
    getattr(t, name)().sum().backward()
    assert t.grad is not None
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(meaning(t.grad), want, 1e-9, 1e-12)


def test_powers_have_slopes() -> None:
    x = Tensor(np.array([-2.0, 0.0, 3.0]), device="cpu", requires_grad=True)
    (x**3 + x**2 + x**0).sum().backward()
    assert x.grad is not None and meaning(x.grad).tolist() == [8.0, 0.0, 33.0]
    y = Tensor(np.array([0.0, 2.0, 0.5]), device="cpu", requires_grad=True)
    (Tensor(np.array([3.0, 0.0, 4.0]), device="cpu") ** y).sum().backward()
    assert y.grad is not None
    np.testing.assert_allclose(meaning(y.grad), [np.log(3), 0, 2 * np.log(4)])


def test_rounded_quotients_have_none() -> None:
    x = Tensor(np.array([7.5, 1e300]), device="cpu", requires_grad=True)
    for quotient in (x // 2, 9.0 // x, x.floor(), x.sign(), x.round()):
        (quotient * 1.0 + x * 0.0).sum().backward()
        assert x.grad is not None and meaning(x.grad).tolist() == [0, 0]
    rest = Tensor(np.array([7.5, -7.5]), device="cpu", requires_grad=True)
    (rest % 2.0).sum().backward()
    assert rest.grad is not None and meaning(rest.grad).tolist() == [1, 1]


def test_the_scheduler_sees_the_value_alone() -> None:
    x = UOp.const(0.5, dtypes.f32)
    u = curve("sigmoid", x)
    assert u.arg == "sigmoid" and u.src[1] is x and u.dtype is dtypes.f32


# ---- the same on devices
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_on_a_device(device: str) -> None:
    """Of the device's library within what is promised, in one kernel."""
    x = np.random.default_rng(0).uniform(-0.99, 0.99, 2000).astype(np.float32)
    names = ("expm1", "log1p", "sinh", "atan", "asin", "sigmoid")
    t = Tensor(x, device=device)
    total = sum((getattr(t, n)() for n in names[1:]), start=getattr(t, names[0])()).numpy()
    with np.errstate(all="ignore"):
        true = sum(ONE[n](x.astype(WIDE)) for n in names)
    size = sum(np.abs(ONE[n](x.astype(WIDE))) for n in names)
    assert np.max(np.abs(total - true) / size) < 8 * 2.0**-24


@pytest.mark.parametrize(
    ("dtype", "bits", "lowest"), [(dtypes.bf16, 8, -126), (dtypes.f16, 11, -14)]
)
def test_gelu_of_every_narrow_float(dtype: DType, bits: int, lowest: int) -> None:
    """By a formula of its own: within 0.6 units in the last place, for all of them."""
    x = Tensor(np.arange(1 << 16, dtype=np.uint16)).bitcast(dtype)
    given, got = (t.cast(dtypes.f64).numpy() for t in (x, x.gelu()))
    finite = np.isfinite(given)
    true = np.array([v * 0.5 * math.erfc(-v * math.sqrt(0.5)) for v in given[finite]])
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(true), 2.0**lowest))) - bits + 1)
    assert (np.abs(got[finite] - true) <= 0.6 * unit).all()
    assert got[given == np.inf] == np.inf and got[given == -np.inf] == 0
    assert np.isnan(got[np.isnan(given)]).all()

"""Reductions and running sums: by the oracle over dtypes, shapes and axes, and some of them run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tensor.meaning import (
    COMPUTED,
    DEVICES,
    FLOATS,
    arrays,
    extremes,
    meaning,
    near,
    same_numbers,
    some_axes,
    tensor,
    wide,
)
from uopc.dtype import DType, dtypes, from_numpy
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.uop.numbers import Array, elementwise
from uopc.uop.ops import Ops


def axes_in(axis: Any, x: Array) -> tuple[int, ...]:
    """The axes that an argument names, from 0."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def sum_kind(x: Array) -> DType:
    d = from_numpy(x.dtype)
    return d if d.is_float or d is dtypes.u64 else dtypes.i64


def float_kind(x: Array) -> DType:
    d = from_numpy(x.dtype)
    return d if d.is_float else dtypes.f32


def exact(x: Array) -> Array:
    """Numbers in which small sums and products of the dtype are exact."""
    return x.astype(np.float64 if float_kind(x).name == from_numpy(x.dtype).name else np.int64)


@given(st.data())
def test_sums_and_products(data: st.DataObject) -> None:
    x = data.draw(arrays())
    axis, keep = data.draw(some_axes(x.ndim)), data.draw(st.booleans())
    with np.errstate(all="ignore"):
        total = exact(x).sum(axes_in(axis, x), keepdims=keep)
        product = exact(x).prod(axes_in(axis, x), keepdims=keep)
    t = tensor(x)
    same_numbers(meaning(t.sum(axis, keepdim=keep)), total, sum_kind(x))
    same_numbers(meaning(t.prod(axis, keepdims=keep)), product, sum_kind(x))


def test_sums_are_wide_enough() -> None:
    assert meaning(tensor(np.full(1000, 127, np.int8)).sum()) == 127000
    assert meaning(tensor(np.full(3, True)).sum()) == 3
    large = np.array([2**63, 5], np.uint64)
    assert meaning(tensor(large).sum()) == 2**63 + 5
    assert tensor(np.ones(3, np.int8)).sum(dtype=dtypes.f64).dtype is dtypes.f64
    assert meaning(tensor(np.ones(20000, np.float16)).sum()) == 20000  # not 2048, where f16 stalls
    seventy = tensor(np.ones(70000, dtypes.bf16.numpy)).sum()
    assert meaning(seventy).astype(np.float32) == 70144  # rounded once


@given(st.data())
def test_extremes(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(COMPUTED))
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    x = extremes(dtype, shape, data.draw(st.integers(0, 999)))
    axis, keep = data.draw(some_axes(x.ndim)), data.draw(st.booleans())
    axes = axes_in(axis, x)
    t = tensor(x)
    for op, got in ((Ops.MAX, t.max(axis, keep)), (Ops.MIN, t.min(axis, keep))):
        want = x
        for a in sorted(axes, reverse=True):
            parts = [np.take(want, i, a) for i in range(want.shape[a])]
            want = parts[0]
            for part in parts[1:]:
                want = elementwise(op, dtype, [want, part])
        if keep:
            want = want.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
        found = meaning(got)
        np.testing.assert_array_equal(wide(found), wide(want))
        np.testing.assert_array_equal(np.signbit(wide(found)), np.signbit(wide(want)))


@given(st.data())
def test_truths(data: st.DataObject) -> None:
    x = data.draw(arrays())
    axis, keep = data.draw(some_axes(x.ndim)), data.draw(st.booleans())
    axes, nonzero = axes_in(axis, x), wide(x) != 0
    t = tensor(x)
    same_numbers(meaning(t.any(axis, keep)), nonzero.any(axes, keepdims=keep), dtypes.bool)
    same_numbers(meaning(t.all(axis, keep)), nonzero.all(axes, keepdims=keep), dtypes.bool)


@given(st.data())
def test_positions_of_extremes(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(COMPUTED))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=3)))
    x = extremes(dtype, shape, data.draw(st.integers(0, 999)))
    axes: list[int | None] = [None, *range(-x.ndim, x.ndim)]
    axis, keep = data.draw(st.sampled_from(axes)), data.draw(st.booleans())
    t = tensor(x)
    for got, want in ((t.argmax, np.argmax), (t.argmin, np.argmin)):
        found: Any = want(wide(x), axis=axis, keepdims=keep)
        same_numbers(meaning(got(axis, keep)), found, dtypes.i64)


@given(st.data())
def test_moments(data: st.DataObject) -> None:
    x = data.draw(arrays(wild=False))
    axis, keep = data.draw(some_axes(x.ndim)), data.draw(st.booleans())
    correction = data.draw(st.sampled_from((0, 1, 0.5, 9)))
    axes, kind = axes_in(axis, x), float_kind(x)
    y = x.astype(np.float64)
    count = np.prod([x.shape[a] for a in axes])
    with np.errstate(all="ignore"):
        mean = y.sum(axes, keepdims=keep) / count
        squares = (y - y.sum(axes, keepdims=True) / count) ** 2
        variance = squares.sum(axes, keepdims=keep) / max(count - correction, 0)
    t = tensor(x)
    near(meaning(t.mean(axis, keep)), mean, kind)
    near(meaning(t.var(axis, correction, keep)), variance, kind)
    near(meaning(t.std(axis, correction, keep)), np.sqrt(variance), kind)


def test_moments_of_large_means() -> None:
    x = np.array([1e4, 1e4 + 1, 1e4 + 2], np.float32)
    assert meaning(tensor(x).var()) == np.float32(2 / 3)
    assert meaning(tensor(np.full(100_000, 7, np.float16)).mean()) == 7  # their sum is beyond f16


@given(st.data())
def test_norms(data: st.DataObject) -> None:
    x = data.draw(arrays(wild=False))
    axis, keep = data.draw(some_axes(x.ndim)), data.draw(st.booleans())
    axes, size = axes_in(axis, x), np.abs(x.astype(np.float64))
    t, kind = tensor(x), float_kind(x)
    near(meaning(t.norm(2, axis, keep)), np.sqrt((size**2).sum(axes, keepdims=keep)), kind)
    near(meaning(t.norm(1, axis, keep)), size.sum(axes, keepdims=keep), kind)
    near(meaning(t.norm(0, axis, keep)), (size != 0).sum(axes, keepdims=keep), kind)
    if all(x.shape[a] for a in axes):
        near(meaning(t.norm(np.inf, axis, keep)), size.max(axes, keepdims=keep), kind)
        near(meaning(t.norm(-np.inf, axis, keep)), size.min(axes, keepdims=keep), kind)


@given(st.data())
def test_softmax_and_its_logarithms(data: st.DataObject) -> None:
    x = data.draw(arrays(wild=False))
    axis = data.draw(some_axes(x.ndim))
    axes, kind, y = axes_in(axis, x), float_kind(x), x.astype(np.float64)
    with np.errstate(divide="ignore"):
        e = np.exp(y)
        total = e.sum(axes, keepdims=True)
        logs = np.log(total)
    t = tensor(x)
    near(meaning(t.softmax(axis)), e / total, kind)
    near(meaning(t.log_softmax(axis)), y - logs, kind)
    near(meaning(t.logsumexp(axis, keepdim=True)), logs, kind)


def test_softmax_where_numbers_end() -> None:
    inf, nan = np.inf, np.nan
    rows = np.array([[1, inf], [-inf, -inf], [0, -inf], [1000, 1000], [nan, 0]], np.float32)
    got = meaning(tensor(rows).softmax())
    want = np.array([[nan, nan], [nan, nan], [1, 0], [0.5, 0.5], [nan, nan]], np.float32)
    np.testing.assert_array_equal(got, want)
    sums = meaning(tensor(rows).logsumexp(1))
    np.testing.assert_allclose(sums, [inf, -inf, 0, 1000 + np.log(2), nan], rtol=1e-6)
    half = tensor(np.zeros(65536, np.float16)).logsumexp()
    assert meaning(half) == np.float16(np.log(65536))


@given(st.data())
def test_running_sums(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 2), max_size=2)))
    place = data.draw(st.integers(0, len(shape)))
    shape = (*shape[:place], data.draw(st.integers(0, 200)), *shape[place:])
    x = data.draw(arrays(shape=st.just(shape)))
    axis = place - (len(shape) if data.draw(st.booleans()) else 0)
    with np.errstate(all="ignore"):
        same_numbers(meaning(tensor(x).cumsum(axis)), exact(x).cumsum(axis), sum_kind(x))
        y = np.sign(wide(x)).astype(x.dtype) if x.dtype.kind not in "bu" else x % 2
        same_numbers(meaning(tensor(y).cumprod(axis)), exact(y).cumprod(axis), sum_kind(y))


def test_running_sums_that_one_accumulator_would_lose() -> None:
    x = np.array([1e8] * 32 + [1] * 32, np.float32)
    got = meaning(tensor(x[::-1].copy()).cumsum())
    assert got[31] == 32 and got[0] == 1
    long = np.full(5000, 0.1, np.float16)
    near(meaning(tensor(long).cumsum()), np.cumsum(long.astype(np.float64)), dtypes.f16, 2000)


@pytest.mark.parametrize(
    "call",
    (
        lambda t: t.max(0),
        lambda t: t.min(),
        lambda t: t.argmax(0),
        lambda t: t.argmin(),
        lambda t: t.norm(np.inf),
        lambda t: t.sum(2),
        lambda t: t.sum((0, -2)),
        lambda t: t.sum("a"),
        lambda t: t.cumsum(),
        lambda t: t.norm(3),
    ),
)
def test_what_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UsageError, match=r"test_reduce\.py:\d+"):
        call(tensor(np.zeros((0, 2), np.float32)))


def test_largest_of_nothing_along_a_full_axis() -> None:
    t = tensor(np.zeros((2, 0), np.float32))
    assert meaning(t.max(0)).shape == (0,)
    assert meaning(t.argmax(0, keepdim=True)).shape == (1, 0)
    assert np.isnan(meaning(t.mean())) and meaning(t.mean(1)).shape == (2,)


@pytest.mark.parametrize("device", DEVICES)
def test_on_devices(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5, 70), np.float32)
    x[0, 1, 2], x[1, 1, 1] = np.nan, np.inf
    t = tensor(x, device)
    for got in (
        *(t.sum((0, 2)), t.mean(1), t.var(-1, 1), t.max(1), t.argmax(2), t.softmax(0)),
        *(t.logsumexp(1), t.log_softmax(-1), t.cumsum(2), t.any(0), t.all(), t.norm(2, -1)),
    ):
        want = meaning(got)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", (dtypes.i8, dtypes.bool, dtypes.u64, *FLOATS), ids=str)
def test_dtypes_on_the_cpu(dtype: DType) -> None:
    x = extremes(dtype, (4, 3), 1)
    t = tensor(x, "cpu")
    for got in (t.max(0), t.min(1), t.argmin(0), t.any(1), t.all(0)):
        same_numbers(got.numpy(), meaning(got), got.dtype)
    if not dtype.is_float:
        same_numbers(t.sum(0).numpy(), meaning(t.sum(0)), sum_kind(x))
        same_numbers(t.cumsum(1).numpy(), meaning(t.cumsum(1)), sum_kind(x))

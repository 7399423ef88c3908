"""Running sums, products and extremes of tensors: values, positions, gradients, kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tensor.meaning import DEVICES, arrays, meaning, same_numbers, tensor
from uopc.dtype import dtypes, from_numpy
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.tensor.engine import schedule_of
from uopc.tensor.gradcheck import gradcheck
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops


def records(x: Array, axis: int, larger: bool) -> tuple[Array, Array]:
    """What cummax and cummin give, element by element: the last of equal ones, NaN stays."""
    rows = np.moveaxis(x, axis, -1)
    values, places = rows.copy(), np.zeros(rows.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        best, where = None, 0
        for i, v in enumerate(rows[at]):
            wins = best is None or np.isnan(v) or (v >= best if larger else v <= best)
            if wins and not (np.isnan(best) and not np.isnan(v) if best is not None else False):
                best, where = v, i
            values[(*at, i)], places[(*at, i)] = best, where
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


# ---- values
@given(st.data())
def test_records(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 40)))
    x = data.draw(arrays(shape=st.just(shape)))
    axis = data.draw(st.sampled_from((0, 1, -1)))
    for larger, made in ((True, tensor(x).cummax(axis)), (False, tensor(x).cummin(axis))):
        wide = x.astype(np.float64) if from_numpy(x.dtype).is_float else x
        values, places = records(wide, axis, larger)
        got = [meaning(t) for t in made]
        same_numbers(got[0], values, from_numpy(x.dtype))
        np.testing.assert_array_equal(got[1], places)
        assert made[1].dtype is dtypes.i64


@pytest.mark.parametrize("device", DEVICES)
def test_on_devices(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5, 70)).astype(np.float32)
    x[0, 1, 2], x[1, 1, 1], x[2, 0] = np.nan, np.inf, -0.0
    t = tensor(x, device)
    whole = tensor(rng.integers(-5, 5, (4, 50)), device)
    for axis in (0, 1, 2):
        (top, where), (low, _) = t.cummax(axis), t.cummin(axis)
        for got in (t.cumsum(axis), t.cumprod(axis), top, where, low):
            np.testing.assert_allclose(got.numpy(), meaning(got), rtol=1e-5, atol=1e-5)
    for got in (whole.cumsum(1), whole.cumprod(0), whole.cummax(1)[1]):
        np.testing.assert_array_equal(got.numpy(), meaning(got))
    sums = (t.softmax(2).cumsum(2) * 2.0 - 1.0).numpy()
    np.testing.assert_allclose(sums, meaning(t.softmax(2).cumsum(2) * 2.0 - 1.0), atol=1e-5)


@pytest.mark.parametrize("device", ("cpu", "emulated"))
def test_sums_start_from_plus_zero(device: str) -> None:
    got = tensor(np.array([-0.0, -0.0, 1.0], np.float32), device).cumsum()
    assert not np.signbit(got.numpy()).any() and not np.signbit(meaning(got)).any()


@pytest.mark.parametrize("device", ("cpu", "emulated"))
def test_small_dtypes(device: str) -> None:
    bits = np.array([0, 1, 0, 1, 1] * 30, bool)
    top, where = tensor(bits, device).cummax()
    np.testing.assert_array_equal(top.numpy(), np.maximum.accumulate(bits))
    assert list(where.numpy()[:6]) == [0, 1, 1, 3, 4, 4]
    counts = tensor(bits, device).cumsum()
    assert counts.dtype is dtypes.i64 and list(counts.numpy()[:5]) == [0, 1, 1, 2, 3]
    small = tensor(np.array([1, 2, 0.5], np.float32), device).cast(dtypes.f8e4m3)
    assert list(small.cumsum().cast(dtypes.f32).numpy()) == [1, 3, 3.5]


def test_long_sums_stay_near(rng: np.random.Generator) -> None:
    x = rng.standard_normal(300_000).astype(np.float32)
    got = tensor(x, "cpu").cumsum().numpy()
    assert np.abs(got - np.cumsum(x, dtype=np.float64)).max() < 2e-3
    ones = tensor(np.full(1 << 15, 0.1, np.float16), "cpu").cumsum().numpy()
    np.testing.assert_allclose(ones[-1], (1 << 15) * float(np.float16(0.1)), rtol=1e-3)


@pytest.mark.parametrize("device", ("cpu", "emulated"))
def test_in_place(device: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((7, 130)).astype(np.float32)
    for axis in (0, 1):
        x = tensor(a, device)
        x.assign(x.cumsum(axis) + x)
        np.testing.assert_allclose(x.numpy(), np.cumsum(a, axis) + a, rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    t = tensor(np.zeros((2, 3), np.float32))
    for call in (t.cumsum, t.cumprod, t.cummax, t.cummin):
        with pytest.raises(UsageError, match="along which axis"):
            call()
    with pytest.raises(UsageError, match=r"test_scans\.py:\d+"):
        t.cummax(2)


# ---- kernels
ONE_KERNEL: dict[str, Callable[[Tensor], list[Tensor]]] = {
    "rows": lambda x: [x.cumsum(1)],
    "columns": lambda x: [x.cumsum(0)],
    "products": lambda x: [x.cumprod(-1)],
    "records": lambda x: list(x.cummax(1)),
    "before and after": lambda x: [(x.exp() * 2.0).cumsum(1).log() - 1.0],
    "shares": lambda x: [x.cumsum(1) / x.sum(1, keepdim=True)],
    "of a softmax": lambda x: [x.softmax(1).cumsum(1)],
    "two sums": lambda x: [x.cumsum(1), (x * x).cumsum(1)],
    "of sums": lambda x: [x.cumsum(1).cumsum(1)],
    "and the largest": lambda x: [x.cumsum(1).max(1)],
}


@pytest.mark.parametrize("device", ("emulated", "cpu"))
@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str, device: str) -> None:
    made = schedule_of(*ONE_KERNEL[name](tensor(np.zeros((512, 600), np.float32), device)))
    assert len(made.launches) == 1, made.explain()
    assert made.moved_bytes == made.least_bytes


@pytest.mark.parametrize(
    "build",
    (
        lambda x: x.cumsum(1).cumsum(0),
        lambda x: x.cumsum(0).sum(1),
        lambda x: x.cumsum(1).flip(1),
        lambda x: x.cumsum(1) + x.flip(1).cumsum(1).flip(1),
        lambda x: (x @ x.T).cumsum(1),
        lambda x: x.cumsum(1) - x.cumsum(0),
        lambda x: x.reshape(-1).cumsum().reshape(40, 40) + x,
    ),
)
def test_kernels_of_their_own(build: Callable[[Tensor], Tensor], rng: np.random.Generator) -> None:
    """Axes that do not agree: more kernels, the same numbers."""
    a = rng.standard_normal((40, 40)).astype(np.float32)
    for device in ("cpu", "emulated"):
        got = build(tensor(a, device))
        np.testing.assert_allclose(got.numpy(), meaning(got), rtol=1e-3, atol=1e-3)


# ---- gradients
def test_gradient_of_a_sum_is_the_sum_from_the_other_end() -> None:
    x = tensor(np.zeros((256, 300), np.float32)).requires_grad_()
    (x.cumsum(1) * 3.0).sum().backward()
    assert x.grad is not None
    scans = [u for u in x.grad._u.toposort() if u.op is Ops.SCAN]
    assert [u.arg.reverse for u in scans] == [True]
    assert len(schedule_of(x.grad).launches) == 1
    np.testing.assert_array_equal(meaning(x.grad)[0], 3.0 * np.arange(300, 0, -1))


@pytest.mark.parametrize("n", (1, 5, 40, 100))
def test_gradients_of_products(n: int, rng: np.random.Generator) -> None:
    """Against the definition, zeros among them: the product of all others up to each place."""
    a = rng.uniform(0.5, 1.5, (3, n))
    a[1, n // 3] = 0.0
    a[2, [n // 4, n // 2]] = 0.0
    g = rng.standard_normal((3, n))
    x = tensor(a, "cpu").requires_grad_()
    x.cumprod(1).backward(tensor(g, "cpu"))
    want = np.zeros_like(a)
    for j in range(n):
        others = np.delete(a, j, 1)
        for i in range(j, n):
            want[:, j] += g[:, i] * others[:, :i].prod(1)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n", (1, 6, 70))
def test_gradients_of_records(n: int, rng: np.random.Generator) -> None:
    """To the element that was found, the last of equal ones; an infinity stays where it belongs."""
    a = rng.integers(-3, 4, (4, n)).astype(np.float64)
    g = rng.standard_normal((4, n))
    g[0, n // 2] = np.inf
    for name in ("cummax", "cummin"):
        x = tensor(a, "cpu").requires_grad_()
        values, where = getattr(x, name)(1)
        values.backward(tensor(g, "cpu"))
        want = np.zeros_like(a)
        for at in np.ndindex(a.shape):
            want[at[0], where.numpy()[at]] += g[at]
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-12, atol=1e-12)


def test_gradients_of_gradients(rng: np.random.Generator) -> None:
    x = tensor(rng.uniform(0.5, 1.5, (2, 5)), "cpu").requires_grad_()
    for build in (lambda t: t.cumsum(1) * t, lambda t: t.cumprod(0), lambda t: t.cummax(1)[0] * t):
        assert gradcheck(build, (x,))

"""Products against numpy: small whole numbers, so that every order of adding gives the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tensor.meaning import COMPUTED, DEVICES, arrays, meaning, near, same_numbers, tensor
from uopc.dtype import DType, dtypes, from_numpy
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.uop.numbers import Array

#: sizes that have shown faults of tiled kernels elsewhere: clipped edges, one row, one column
SHAPES = (
    *((1, 1, 1), (4, 4, 4), (5, 3, 9), (8, 16, 7), (33, 20, 65), (64, 1, 64), (1, 64, 1)),
    *((3, 0, 2), (0, 3, 2)),
)


def exact(x: Array) -> Array:
    return x.astype(np.float64 if from_numpy(x.dtype).is_float else np.int64)


@given(st.data())
def test_products_by_numpys_rules(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(COMPUTED))
    m, k, n = data.draw(st.tuples(*[st.integers(0, 3)] * 3))
    batch = data.draw(st.lists(st.integers(0, 2), max_size=2))
    left = [1 if data.draw(st.booleans()) else size for size in batch]
    some = data.draw(st.integers(0, len(batch)))
    a_shape = data.draw(st.sampled_from(((k,), (*left, m, k))))
    b_shape = data.draw(st.sampled_from(((k,), (*batch[some:], k, n))))
    a = data.draw(arrays((dtype,), st.just(a_shape), wild=False))
    b = data.draw(arrays((dtype,), st.just(b_shape), wild=False))
    with np.errstate(all="ignore"):
        want = np.matmul(exact(a), exact(b))
    same_numbers(meaning(tensor(a) @ tensor(b)), want != 0 if a.dtype == bool else want, dtype)


@given(st.data())
def test_other_products(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(COMPUTED))
    flag = dtype is dtypes.bool

    def draw(*shape: int) -> Array:
        return data.draw(arrays((dtype,), st.just(shape), wild=False))

    def agree(got: Tensor, want: Array) -> None:
        same_numbers(meaning(got), want != 0 if flag else want, dtype)

    n, m, k = data.draw(st.tuples(*[st.integers(0, 3)] * 3))
    u, v, w = draw(n), draw(n), draw(m)
    agree(tensor(u).dot(tensor(v)), exact(u) @ exact(v))
    agree(tensor(u).outer(tensor(w)), np.outer(exact(u), exact(w)))
    x, y = draw(m, n, k), draw(n, 1)
    agree(tensor(x).vecdot(tensor(y), -2), np.sum(exact(x) * exact(y), axis=-2))
    z = draw(k, n, 2)
    want = np.tensordot(exact(x), exact(z), ((2, 1), (0, 1)))
    agree(tensor(x).tensordot(tensor(z), ((2, -2), (0, 1))), want)


def test_tensordot_counts_axes() -> None:
    x, y = np.arange(24.0).reshape(2, 3, 4), np.arange(60.0).reshape(3, 4, 5)
    a, b = tensor(x), tensor(y)
    np.testing.assert_array_equal(meaning(a.tensordot(b)), np.tensordot(x, y))
    np.testing.assert_array_equal(meaning(a.tensordot(b[0], 1)), np.tensordot(x, y[0], 1))
    np.testing.assert_array_equal(meaning(a.tensordot(b, 0)), np.tensordot(x, y, 0))


def test_linear() -> None:
    x, w = (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(12, dtype=np.float32).reshape(4, 3),
    )
    c = np.arange(4, dtype=np.float32)
    t = tensor(x)
    np.testing.assert_array_equal(meaning(t.linear(tensor(w), tensor(c))), x @ w.T + c)
    np.testing.assert_array_equal(meaning(t[0].linear(tensor(w))), x[0] @ w.T)


@pytest.mark.parametrize("dtype", (dtypes.f16, dtypes.bf16), ids=str)
def test_narrow_products_are_rounded_once(dtype: DType, rng: np.random.Generator) -> None:
    """The products themselves are no f16: rounded each, 300 of them would be off by some units."""
    a, b = (rng.standard_normal((4, 300)).astype(dtype.numpy) for _ in range(2))
    want = np.einsum("ik,jk->ij", *(x.astype(np.float64) for x in (a, b)))
    for device in ("cpu", "oracle"):
        got = tensor(a) @ tensor(b).T
        assert got.dtype is dtype
        near(meaning(got) if device == "oracle" else got.numpy(), want, dtype, ulps=1)


def test_integers_wrap_in_their_dtype() -> None:
    x = np.full((1, 3), 100, np.int8)
    assert meaning(tensor(x) @ tensor(x).T).tolist() == [[(30000 + 128) % 256 - 128]]


def test_promotion() -> None:
    a, b = tensor(np.ones((2, 2), np.int8)), tensor(np.ones((2, 2), np.float16))
    assert (a @ b).dtype is dtypes.f16
    assert (a @ tensor(np.ones(2, np.int32))).dtype is dtypes.i32


@pytest.mark.parametrize(
    "call",
    (
        lambda t: t @ t,
        lambda t: t @ t.sum(),
        lambda t: t.sum() @ t,
        lambda t: t.reshape(2, 1, 3) @ t.T.expand(3, 3, 2),
        lambda t: t.dot(t),
        lambda t: t[0].dot(t[:, 0]),
        lambda t: t.vecdot(t, 0),
        lambda t: t.vecdot(t.T),
        lambda t: t.outer(t),
        lambda t: t.tensordot(t, 1),
        lambda t: t.tensordot(t, 3),
        lambda t: t.tensordot(t, ((0,), (1,))),
        lambda t: t.linear(t.T),
        lambda t: t.linear(t, t[0]),
        lambda t: t.cast(dtypes.f8e5m2) @ t.T.cast(dtypes.f8e5m2),
    ),
)
def test_what_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UsageError, match=r"test_products\.py:\d+"):
        call(tensor(np.zeros((2, 3), np.float32)))


def test_sizes_that_differ_are_named() -> None:
    a, b = tensor(np.zeros((64, 48))), tensor(np.zeros((50, 48)))
    with pytest.raises(UsageError, match=r"a is \(64, 48\), b is \(50, 48\)\. Transpose b\?"):
        a @ b


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sizes_on_the_cpu(shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    m, k, n = shape
    a = rng.integers(-4, 5, (2, m, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    np.testing.assert_array_equal((tensor(a) @ tensor(b)).numpy(), a @ b)


@pytest.mark.parametrize("device", DEVICES)
def test_on_devices(device: str, rng: np.random.Generator) -> None:
    a = rng.integers(-9, 9, (3, 5, 7))
    b = rng.integers(-9, 9, (7, 4))
    ta, tb = tensor(a, device), tensor(b, device)
    np.testing.assert_array_equal((ta @ tb).numpy(), a @ b)
    np.testing.assert_array_equal((ta[0, 0] @ tb).numpy(), a[0, 0] @ b)
    np.testing.assert_array_equal((ta @ tb[:, 1]).numpy(), a @ b[:, 1])

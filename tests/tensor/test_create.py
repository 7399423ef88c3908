"""Tensors from numbers and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.helpers import assert_same
from tests.tensor.meaning import meaning
from uopc.config import current
from uopc.dtype import DATA, DType, dtypes
from uopc.errors import DeviceError, UsageError
from uopc.tensor import (
    Tensor,
    arange,
    default_device,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    set_default_device,
    zeros,
    zeros_like,
)
from uopc.uop.numbers import cast


@pytest.fixture(autouse=True)
def on_the_cpu() -> Any:
    set_default_device("cpu")
    yield
    set_default_device(None)


# ---- data
@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_numpy_keeps_its_dtype(dtype: DType) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    t = Tensor(array)
    assert (t.dtype, t.shape) == (dtype, (2, 3))
    assert_same(t.numpy(), array)
    array[0, 0] = 5  # a copy was made
    assert t.numpy()[0, 0] == 0


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (True, dtypes.bool),
        (3, dtypes.i32),
        (2**31, dtypes.i64),
        (2**63, dtypes.u64),
        (2.5, dtypes.f32),
        ([], dtypes.f32),
        ([[]], dtypes.f32),
        ([True, False], dtypes.bool),
        ([True, 2], dtypes.i32),
        ([[1, 2], [3, 4]], dtypes.i32),
        ((1, -(2**40)), dtypes.i64),
        ([1, 2.5], dtypes.f32),
        (range(4), dtypes.i32),
        (np.float64(1.5), dtypes.f64),
        ([np.int16(3)], dtypes.i16),
        (np.array(7, np.uint8), dtypes.u8),
    ],
)
def test_numbers_and_lists(data: Any, dtype: DType) -> None:
    t = Tensor(data)
    assert t.dtype is dtype and t.shape == np.shape(data)
    assert t.tolist() == (data if np.ndim(data) == 0 else np.asarray(data).tolist())


def test_views_and_foreign_bytes() -> None:
    a = np.arange(12, dtype=">i4").reshape(3, 4)
    assert Tensor(a.T[::-1]).tolist() == a.T[::-1].tolist()
    assert Tensor(a).dtype is dtypes.i32


def test_a_dtype_casts_arrays_and_checks_numbers() -> None:
    assert Tensor(np.array([1.9, -1.9, 300.0, np.nan]), dtypes.u8).tolist() == [1, 0, 255, 0]
    assert Tensor([1.5, 2.5], dtypes.i32).tolist() == [1, 2]
    assert Tensor([1, 0], dtypes.bool).tolist() == [True, False]
    assert Tensor([0.1], dtypes.f64).tolist() == [0.1]
    assert Tensor([2**53 + 1], dtypes.f64).tolist() == [2.0**53]
    assert Tensor([2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]
    with pytest.raises(UsageError, match="300 does not fit u8"):
        Tensor([1, 300], dtypes.u8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1, 2], [3]], "equal lengths"),
        ("abc", "got str"),
        (np.array([1 + 2j]), "complex128 has no counterpart"),
        ([2**63, -1], "-1 does not fit u64"),
        ([2**64], f"{2**64} does not fit u64"),
        ([None], "got NoneType"),
    ],
)
def test_data_that_is_none(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Tensor(data)


def test_other_mistakes() -> None:
    with pytest.raises(UsageError, match=r"Use \.clone"):
        Tensor(Tensor([1]))
    with pytest.raises(UsageError, match="no device is called"):
        Tensor([1], device="tpu")
    with pytest.raises(UsageError, match="i32 has no gradients"):
        Tensor([1], requires_grad=True)
    with pytest.raises(UsageError, match=r"one of uopc\.dtypes"):
        Tensor([1], dtypes.index)
    with pytest.raises(TypeError, match="no subclasses"):
        type("Mine", (Tensor,), {})


# ---- constants
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_constants(shape: tuple[int, ...]) -> None:
    for dtype in DATA:
        assert_same(zeros(shape, dtype=dtype).numpy(), np.zeros(shape, dtype.numpy))
    assert_same(ones(*shape).numpy(), np.ones(shape, np.float32))
    assert_same(full(shape, -2).numpy(), np.full(shape, -2, np.int32))
    assert_same(meaning(full(shape, 2**40)), np.full(shape, 2**40, np.int64))
    x = full(shape, 2.5, dtypes.f16)
    assert_same(meaning(zeros_like(x)), np.zeros(shape, np.float16))
    assert_same(meaning(ones_like(x, dtypes.i8)), np.ones(shape, np.int8))
    assert_same(meaning(full_like(x, 7)), np.full(shape, 7, np.float16))
    assert empty(*shape).shape == empty_like(x).shape == shape
    assert empty_like(x).dtype is dtypes.f16


def test_constants_that_are_none() -> None:
    with pytest.raises(UsageError, match="300 does not fit i8"):
        full((2,), 300, dtypes.i8)
    with pytest.raises(UsageError, match="negative in shape"):
        zeros(2, -1)
    with pytest.raises(UsageError, match="a shape is integers"):
        ones(2.0)
    with pytest.raises(UsageError, match=r"1\.5 is not a whole number"):
        full(2, 1.5, dtypes.i32)


def test_a_leaf_owns_its_memory() -> None:
    a, b = zeros(3, requires_grad=True), zeros(3, requires_grad=True)
    (a * 2 + b * 3).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == [2, 2, 2] and b.grad.tolist() == [3, 3, 3]


# ---- ranges
@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7))
def test_ranges_of_integers(start: int, stop: int, step: int) -> None:
    assume(step != 0)
    assert meaning(arange(start, stop, step)).tolist() == list(range(start, stop, step))
    if stop >= 0:
        assert meaning(arange(stop)).tolist() == list(range(stop))


@given(st.floats(-9, 9), st.floats(-9, 9), st.sampled_from([0.1, -0.3, 1.0, 2.5]))
def test_ranges_of_floats(start: float, stop: float, step: float) -> None:
    want = np.arange(start, stop, step)
    got = meaning(arange(start, stop, step, dtype=dtypes.f64))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 1e-12, 1e-12)


@pytest.mark.parametrize(
    ("call", "want", "dtype"),
    [
        (lambda: arange(2**31, 2**31 + 2), [2**31, 2**31 + 1], dtypes.i64),
        (lambda: arange(2**63, 2**63 + 2), [2**63, 2**63 + 1], dtypes.u64),
        (lambda: arange(2**53, 2**53 + 3), [2**53, 2**53 + 1, 2**53 + 2], dtypes.i64),
        (lambda: arange(3, 0, -1, dtype=dtypes.u8), [3, 2, 1], dtypes.u8),
        (lambda: arange(3, dtype=dtypes.f16), [0, 1, 2], dtypes.f16),
        (lambda: arange(0, 256, 85, dtype=dtypes.u8), [0, 85, 170, 255], dtypes.u8),
    ],
)
def test_dtypes_of_ranges(call: Any, want: list[int], dtype: DType) -> None:
    t = call()
    assert t.dtype is dtype and meaning(t).tolist() == want


def test_ranges_that_are_none() -> None:
    with pytest.raises(UsageError, match="never ends"):
        arange(0, 5, 0)
    with pytest.raises(UsageError, match="never ends"):
        arange(0, float("inf"))
    with pytest.raises(UsageError, match="256 does not fit u8"):
        arange(257, dtype=dtypes.u8)
    with pytest.raises(UsageError, match="negative"):
        linspace(0, 1, -1)


@given(st.floats(-9, 9), st.floats(-9, 9), st.integers(0, 9), st.booleans())
def test_linspace(start: float, stop: float, num: int, endpoint: bool) -> None:
    want = np.linspace(start, stop, num, endpoint)
    got = meaning(linspace(start, stop, num, dtypes.f64, endpoint=endpoint))
    np.testing.assert_allclose(got, want, 1e-13, 1e-13)
    if num > 1 and endpoint:
        assert got[-1] == stop


@pytest.mark.parametrize(("m", "n", "k"), [(3, 3, 0), (2, 4, 1), (4, 2, -1), (0, 3, 0), (2, 2, 9)])
def test_eye(m: int, n: int, k: int) -> None:
    assert_same(meaning(eye(m, n, k)), np.eye(m, n, k, np.float32))
    assert_same(meaning(eye(m, dtype=dtypes.i16)), np.eye(m, dtype=np.int16))


def test_from_numpy() -> None:
    a = np.array([[1.5, 2.5]])
    t = from_numpy(a, requires_grad=True)
    assert t.requires_grad and t.dtype is dtypes.f64
    assert_same(t.numpy(), a)
    assert_same(meaning(t.cast(dtypes.bf16)), cast(a, dtypes.f64, dtypes.bf16))


# ---- the default device
def test_the_default_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert zeros(1).device == "cpu"
    set_default_device("emulated")
    assert zeros(1).device == Tensor([1]).device == default_device() == "emulated"
    set_default_device(None)
    monkeypatch.setenv("UOPC_DEVICE", "cpu")
    current.cache_clear()
    assert default_device() == "cpu"
    set_default_device(None)
    monkeypatch.setenv("UOPC_DEVICE", "abacus")
    current.cache_clear()
    with pytest.raises((UsageError, DeviceError), match="abacus"):
        default_device()
    monkeypatch.undo()
    current.cache_clear()
    with pytest.raises(UsageError, match="no device is called"):
        set_default_device("abacus")

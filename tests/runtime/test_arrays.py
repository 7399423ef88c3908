"""Every argument that does not fit is refused, with words that help."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.sources import AXPY_PARAMS, copy_params
from uopc.dtype import DATA, DType, dtypes
from uopc.errors import UsageError
from uopc.kernel import Param
from uopc.runtime.arrays import (
    DeviceArray,
    check_arguments,
    device_array,
    is_contiguous,
    is_on_device,
    no_work,
)


def _floats(n: int = 100) -> np.ndarray[Any, Any]:
    return np.zeros(n, np.float32)


def _refused(*arguments: Any, params: tuple[Param, ...] = AXPY_PARAMS) -> str:
    with pytest.raises(UsageError) as error:
        check_arguments("axpy", params, arguments)
    return str(error.value)


def test_what_fits_passes_as_it_is() -> None:
    y, x = _floats(), _floats()
    bound = check_arguments("axpy", AXPY_PARAMS, (y, x.reshape(10, 10), 2.0))
    assert bound[0] is y and isinstance(bound[2], np.ndarray)
    assert bound[2].dtype == np.float32 and bound[2][()] == 2


def test_count() -> None:
    assert _refused(_floats(), _floats()) == (
        "kernel axpy takes 3 arguments (0: f32[100] written, 1: f32[100], 2: f32 scalar), got 2."
    )


def test_dtype() -> None:
    assert _refused(_floats(), np.zeros(100), 1.0) == (
        "kernel axpy, argument 1: expected f32, got float64. Convert it with .astype(np.float32)."
    )
    bf16 = _refused(_floats(4), _floats(4), params=copy_params(dtypes.bf16, 4))
    assert ".astype(ml_dtypes.bfloat16)" in bf16
    assert "got >f4" in _refused(np.zeros(100, ">f4"), _floats(), 1.0)


def test_size() -> None:
    said = _refused(_floats(), np.zeros((10, 11), np.float32), 1.0)
    assert said.startswith(
        "kernel axpy, argument 1: expected 100 elements, got 110 (shape (10, 11)). "
    )


def test_contiguity() -> None:
    said = _refused(_floats(), _floats(200)[::2], 1.0)
    assert "argument 1 is not C-contiguous: shape (100,), strides (8,)" in said
    assert "np.ascontiguousarray" in said and "copy the result back" not in said
    assert "copy the result back" in _refused(_floats(200)[::2], _floats(), 1.0)
    assert "not C-contiguous" in _refused(_floats(), _floats().reshape(10, 10).T, 1.0)


def test_alignment() -> None:
    odd = np.zeros(401, np.uint8)[1:].view(np.float32)
    assert "argument 1 is not aligned to its 4 bytes" in _refused(_floats(), odd, 1.0)


def test_writability() -> None:
    fixed = _floats()
    fixed.flags.writeable = False
    assert "argument 0 is written, but the array is read-only" in _refused(fixed, _floats(), 1.0)
    check_arguments("axpy", AXPY_PARAMS, (_floats(), fixed, 1.0))


def test_overlap_names_both() -> None:
    y = _floats()
    assert _refused(y, y, 1.0) == (
        "kernel axpy: arguments 0 and 1 overlap in memory and argument 0 is written. "
        "Pass a copy of one of them."
    )
    base = _floats(150)
    assert "arguments 0 and 1 overlap" in _refused(base[50:], base[:100], 1.0)
    two = (copy_params(dtypes.f32, 100)[0],) * 2
    assert "both are written" in _refused(y, y, params=two)


def test_neighbours_and_two_readers_are_fine() -> None:
    base = _floats(200)
    check_arguments("axpy", AXPY_PARAMS, (base[:100], base[100:], 1.0))
    x = _floats()
    both = (*copy_params(dtypes.f32, 100), Param(2, dtypes.f32, 100, written=False))
    check_arguments("axpy", both, (_floats(), x, x))


def test_not_an_array() -> None:
    said = _refused(_floats(), [1.0] * 100, 1.0)
    assert said == (
        "kernel axpy, argument 1: expected an array of f32, got list. "
        "Pass np.asarray(x, np.float32)."
    )


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_every_dtype(dtype: DType) -> None:
    a, b = np.zeros(4, dtype.numpy), np.ones(4, dtype.numpy)
    scalar = Param(2, dtype, 1, written=False, scalar=True)
    value = b[:1].reshape(())
    bound = check_arguments("k", (*copy_params(dtype, 4), scalar), (a, b, value))
    assert isinstance(bound[2], np.ndarray) and bound[2].dtype == dtype.numpy
    assert check_arguments("k", (scalar,), (value[()],))[0] == value


def _one(dtype: DType, value: Any) -> Any:
    (bound,) = check_arguments("k", (Param(0, dtype, 1, written=False, scalar=True),), (value,))
    assert isinstance(bound, np.ndarray) and bound.dtype == dtype.numpy and bound.shape == ()
    return bound[()]


def test_python_scalars() -> None:
    assert _one(dtypes.f32, 3) == 3
    assert _one(dtypes.bf16, 1.01) == ml_dtypes.bfloat16(1.01)
    assert np.isinf(_one(dtypes.f16, 1e9))
    assert _one(dtypes.u64, 2**64 - 1) == 2**64 - 1
    assert _one(dtypes.i8, -128) == -128
    assert _one(dtypes.bool, True) == np.True_
    assert _one(dtypes.f8e4m3, -1e9) == -448 and _one(dtypes.f8e5m2, float("inf")) == 57344
    assert np.isnan(_one(dtypes.f8e4m3, float("nan")).astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        (dtypes.u8, 256, "256 does not fit u8 (0 to 255)"),
        (dtypes.i8, -129, "-129 does not fit i8 (-128 to 127)"),
        (dtypes.i32, 1.5, "expected a i32 scalar, got float 1.5"),
        (dtypes.f32, np.float64(1), "expected a f32 scalar, got float64. Convert it with np.float"),
        (dtypes.f32, np.zeros(1, np.float32), "expected a f32 scalar, got shape (1,)"),
        (dtypes.bool, 1, "expected a bool scalar, got int 1"),
        (dtypes.f32, "1", "expected a f32 scalar, got str '1'"),
        (dtypes.f64, 10**400, "does not fit f64"),
    ],
)
def test_scalars_that_do_not_fit(dtype: DType, value: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        _one(dtype, value)
    assert str(error.value).startswith("kernel k, argument 0: ") and said in str(error.value)


def test_dlpack_on_the_host_is_taken_in_place() -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **given: Any) -> Any:
            return self.array.__dlpack__(**given)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    y, x = _floats(), _floats()
    bound = check_arguments("axpy", AXPY_PARAMS, (Foreign(y), Foreign(x), 1.0))
    assert isinstance(bound[0], np.ndarray)
    assert np.shares_memory(bound[0], y) and bound[0].flags.writeable


def _on_gpu(**changes: Any) -> Any:
    interface = dict(shape=(100,), typestr="<f4", data=(4096, False), strides=None, version=3)
    return SimpleNamespace(__cuda_array_interface__=interface | changes)


def test_device_memory_on_the_cpu() -> None:
    said = _refused(_floats(), _on_gpu(), 1.0)
    assert said == (
        "kernel axpy, argument 1 is in GPU memory, the kernel runs on the CPU. "
        "Copy it to the host first."
    )


def test_device_arrays() -> None:
    y, x = _on_gpu(), _on_gpu(data=(8192, True), strides=(4,))
    bound = check_arguments("axpy", AXPY_PARAMS, (y, x, 1.0), on_device=True)
    assert isinstance(bound[1], DeviceArray)
    assert (bound[1].pointer, bound[1].writable, bound[1].size_bytes) == (8192, False, 400)
    assert bound[1].owner is x


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(typestr="<f8"), "argument 0: expected f32, got f64. Convert it first."),
        (dict(shape=(99,)), "argument 0: expected 100 elements, got 99"),
        (dict(strides=(8,)), "argument 0 is not C-contiguous"),
        (dict(data=(4096, True)), "argument 0 is written, but the array is read-only"),
        (dict(typestr="<c8"), "cannot be shared: numpy dtype complex64 has no counterpart"),
        (dict(data=(8192 - 16, False)), "arguments 0 and 1 overlap in memory"),
    ],
)
def test_device_arrays_that_do_not_fit(changes: dict[str, Any], said: str) -> None:
    arguments = (_on_gpu(**changes), _on_gpu(data=(8192, False)), 1.0)
    with pytest.raises(UsageError) as error:
        check_arguments("axpy", AXPY_PARAMS, arguments, on_device=True)
    assert said in str(error.value)


def test_only_wide_accesses_ask_for_aligned_views() -> None:
    views = (_on_gpu(data=(4100, False)), _on_gpu(data=(8196, False)), 1.0)
    scalar = tuple(replace(p, align=p.dtype.itemsize) for p in AXPY_PARAMS)
    assert check_arguments("axpy", scalar, views, on_device=True)
    wide = tuple(replace(p, align=16) for p in AXPY_PARAMS)
    with pytest.raises(
        UsageError, match="argument 0 starts at an address that is no multiple of 16"
    ):
        check_arguments("axpy", wide, views, on_device=True)


def test_a_device_array_describes_itself() -> None:
    made = DeviceArray(4096, (2, 3), dtypes.i16)
    again = device_array(made.__cuda_array_interface__, None)
    assert (again.pointer, again.shape, again.dtype) == (4096, (2, 3), dtypes.i16)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 3), None, True),
        ((2, 3), (12, 4), True),
        ((2, 3), (4, 8), False),
        ((2, 1, 3), (12, 999, 4), True),
        ((1, 3), (999, 4), True),
        ((0, 3), (7, 7), True),
        ((), (), True),
        ((3,), (0,), False),
    ],
)
def test_contiguous(shape: Any, strides: Any, expected: bool) -> None:
    assert is_contiguous(shape, strides, 4) is expected


def test_no_work() -> None:
    empty, full = Param(0, dtypes.f32, 0, written=True), Param(0, dtypes.f32, 4, written=True)
    reads_nothing = Param(1, dtypes.f32, 0, written=False)
    assert no_work((empty,), (1, 1, 1))
    assert no_work((full,), (4, 0, 1))
    assert not no_work((full, reads_nothing), (1, 1, 1))  # an empty sum still writes its zeros
    assert not no_work((empty, full), (1, 1, 1))


def test_what_is_in_gpu_memory() -> None:
    assert is_on_device(DeviceArray(4096, (2,), dtypes.f32)) and is_on_device(_on_gpu())
    assert not any(map(is_on_device, (np.zeros(2), np.float32(1), 1.0, [1.0])))

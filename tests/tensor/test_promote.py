"""The dtype of a result: the array API's table, where it is open our own, and weak numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.tensor.meaning import meaning, tensor
from uopc.dtype import DATA, FLOATS, FP8, SIGNED, UNSIGNED, DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import Tensor, full, result_type
from uopc.tensor.promote import promote

INTEGERS = (*SIGNED, *UNSIGNED)
#: the array API standard, "Type Promotion Rules": signed down, unsigned right
MIXED = {
    dtypes.i8: (dtypes.i16, dtypes.i32, dtypes.i64, None),
    dtypes.i16: (dtypes.i16, dtypes.i32, dtypes.i64, None),
    dtypes.i32: (dtypes.i32, dtypes.i32, dtypes.i64, None),
    dtypes.i64: (dtypes.i64, dtypes.i64, dtypes.i64, None),
}


def want(a: DType, b: DType) -> DType | None:
    """The table, written down another way than the code has it."""
    if a is b:
        return a
    if a in FP8 or b in FP8:
        return None
    if dtypes.bool in (a, b):
        return a if b is dtypes.bool else b
    if {a, b} == {dtypes.f16, dtypes.bf16}:
        return dtypes.f32
    if a in FLOATS and b in FLOATS:
        return max(a, b, key=lambda d: d.bits)
    if a in FLOATS or b in FLOATS:
        return a if a in FLOATS else b
    if (a in SIGNED) == (b in SIGNED):
        return max(a, b, key=lambda d: d.bits)
    signed, unsigned = (a, b) if a in SIGNED else (b, a)
    return MIXED[signed][UNSIGNED.index(unsigned)]


@pytest.mark.parametrize("a", DATA, ids=str)
def test_the_table(a: DType) -> None:
    for b in DATA:
        if (wanted := want(a, b)) is None:
            with pytest.raises(UsageError, match=r"fp8 is storage|no integer dtype holds both"):
                promote(a, b)
        else:
            assert promote(a, b) is promote(b, a) is result_type(a, b) is wanted


def test_numpy_has_the_same_table_of_integers() -> None:
    for a, b in product((dtypes.bool, *INTEGERS), repeat=2):
        if (wanted := want(a, b)) is not None:
            assert np.result_type(a.numpy, b.numpy) == wanted.numpy


@pytest.mark.parametrize("dtype", [d for d in DATA if not d.storage], ids=str)
def test_numbers_are_weak(dtype: DType) -> None:
    t = full((2,), 1, dtype, device="cpu")
    assert result_type(dtype, True) is dtype
    assert result_type(t, 2) is (dtypes.i32 if dtype is dtypes.bool else dtype)
    assert result_type(2.5, t) is (dtype if dtype.is_float else dtypes.f32)
    if dtype is not dtypes.bool:
        assert (t + True).dtype is (t * 2).dtype is (3 - t).dtype is dtype
        assert (t + np.int8(2)).dtype is dtype
    assert (t / 2).dtype is (t / t).dtype is (dtype if dtype.is_float else dtypes.f32)
    assert t.exp().dtype is t.sigmoid().dtype is (dtype if dtype.is_float else dtypes.f32)
    assert (t == 1).dtype is (t < t).dtype is t.isnan().dtype is dtypes.bool


def test_numbers_alone() -> None:
    assert result_type(True) is dtypes.bool
    assert result_type(1, True) is dtypes.i32
    assert result_type(2**31) is result_type(-(2**31) - 1) is dtypes.i64
    assert result_type(1, 2.0) is dtypes.f32
    with pytest.raises(UsageError, match="of what"):
        result_type()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_travel_exactly_or_not_at_all(dtype: DType) -> None:
    t = full((1,), 0, dtype, device="cpu")
    for edge in (dtype.min, dtype.max):
        assert meaning(t + edge).tolist() == [edge]
        assert meaning(t.clamp(max=edge) if edge <= 0 else t.clamp(min=edge)).tolist() == [edge]
    for beyond in (dtype.min - 1, dtype.max + 1):
        with pytest.raises(UsageError, match=f"{beyond} does not fit {dtype}"):
            t + beyond
        with pytest.raises(UsageError, match="does not fit"):
            t == beyond  # noqa: B015  (the comparison is what fails)


def test_a_bound_beyond_2_to_the_53() -> None:
    x = tensor(np.array([2**53, 2**53 + 1, 2**62 + 1], np.int64))
    assert meaning(x >= 2**53 + 1).tolist() == [False, True, True]
    assert meaning(x.minimum(2**53 + 1)).tolist() == [2**53, 2**53 + 1, 2**53 + 1]


def test_operands_that_are_none() -> None:
    t = full((2,), 1.0, device="cpu")
    with pytest.raises(UsageError, match=r"add at test_promote\.py.*got str"):
        t + "1"  # type: ignore[operator]  # a user's mistake
    with pytest.raises(UsageError, match=r"got ndarray. Make it a tensor"):
        np.ones(2) + t
    with pytest.raises(UsageError, match="beyond every float"):
        t + 10**400
    other: object = None
    same: object = t == other
    assert same is False  # as == does with anything else
    with pytest.raises(UsageError, match="cast it first"):
        t + full((2,), 1.0, dtypes.f8e4m3, device="cpu")


def test_two_devices() -> None:
    a, b = Tensor([1.0], device="cpu"), Tensor([1.0], device="emulated")
    with pytest.raises(UsageError, match=r"two devices at test_promote.py.*cpu.*emulated.*\.to\("):
        a + b

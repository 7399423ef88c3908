"""Faults that users of other array libraries met, each as the smallest program on tensors.

Those of single kernels stand in `tests/test_cases.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.meaning import meaning, tensor
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.tensor.movement import stack

INF, NAN = np.inf, np.nan


def full(value: float, *shape: int, dtype: DType = dtypes.f32) -> Tensor:
    return tensor(np.full(shape, value, dtype.numpy))


def of(*values: float, dtype: DType = dtypes.f32) -> Tensor:
    return tensor(np.array(values, dtype.numpy))


#: name: (the program, its dtype, its value)
ROWS: dict[str, tuple[Callable[[], Tensor], DType, Any]] = {
    "any of u8, then arithmetic": (
        lambda: of(0, 3, dtype=dtypes.u8).any().cast(dtypes.u8) * 200 + 100,
        dtypes.u8,
        44,
    ),
    "min of the smallest i32": (
        lambda: of(-(2**31), 5, dtype=dtypes.i32).min(),
        dtypes.i32,
        -(2**31),
    ),
    "argmin of the smallest i32": (
        lambda: of(7, -(2**31), dtype=dtypes.i32).argmin(),
        dtypes.i64,
        1,
    ),
    "max of small u8": (lambda: of(1, 2, dtype=dtypes.u8).max(), dtypes.u8, 2),
    "max of negative i64": (lambda: of(-(2**40), dtype=dtypes.i64).max(), dtypes.i64, -(2**40)),
    "max of a NaN": (lambda: of(1, NAN).max(), dtypes.f32, NAN),
    "min of infinities": (lambda: of(INF, INF).min(), dtypes.f32, INF),
    "argmax of a NaN": (lambda: of(NAN, 6, 8).argmax(), dtypes.i64, 0),
    "a sum of f16 ones": (lambda: full(1, 20000, dtype=dtypes.f16).sum(), dtypes.f16, 20000),
    "along either axis": (
        lambda: full(1, 6000, 2, dtype=dtypes.f16).sum(0),
        dtypes.f16,
        [6000, 6000],
    ),
    "logsumexp of f16 zeros": (
        lambda: full(0, 65536, dtype=dtypes.f16).logsumexp(),
        dtypes.f16,
        np.float16(np.log(65536)),
    ),
    "a mean beyond f16": (lambda: full(3, 70000, dtype=dtypes.f16).mean(), dtypes.f16, 3),
    "variance far from zero": (lambda: (of(0, 1, 2) + 4096.0).var(), dtypes.f32, np.float32(2 / 3)),
    "softmax of infinity": (lambda: of(1, INF).softmax(), dtypes.f32, [NAN, NAN]),
    "softmax beside -infinity": (lambda: of(0, -INF).softmax(), dtypes.f32, [1, 0]),
    "max along an empty kept axis": (lambda: full(0, 2, 0).max(0), dtypes.f32, []),
    "pad of an empty axis": (lambda: full(0, 2, 0).pad([(0, 0), (1, 0)], 5), dtypes.f32, [[5]] * 2),
    "variance of nothing": (lambda: full(0, 2, 0).var(1), dtypes.f32, [NAN, NAN]),
    "sum and product of nothing": (
        lambda: stack([full(0, 0).sum(), full(0, 0).prod()]),
        dtypes.f32,
        [0, 1],
    ),
    "a product with no inner size": (lambda: full(1, 2, 0) @ full(1, 0, 1), dtypes.f32, [[0], [0]]),
    "negative places of a gather": (
        lambda: of(5, 6, 7).take(of(-1, -3, dtype=dtypes.i32)),
        dtypes.f32,
        [7, 5],
    ),
    "negative places of index_add": (
        lambda: of(0, 0, 0).index_add(0, of(-1, 2, dtype=dtypes.i64), of(1, 2)),
        dtypes.f32,
        [0, 0, 3],
    ),
    "a repeated place is added to once": (lambda: _doubled([0, 0]), dtypes.f32, [2, 2]),
    "a running sum from the other end": (
        lambda: of(*[1e8] * 32, *[1] * 32).flip(0).cumsum(0).flip(0)[32],
        dtypes.f32,
        32,
    ),
    "a running sum keeps its order": (lambda: of(NAN, 1).flip(0).cumsum(0), dtypes.f32, [1, NAN]),
}


def _doubled(places: list[int]) -> Tensor:
    t = of(1, 2)
    t[places] += t[places]
    return t


@pytest.mark.parametrize("name", ROWS)
def test_row(name: str) -> None:
    program, dtype, want = ROWS[name]
    for got in (meaning(program()), program().numpy()):
        assert got.dtype == dtype.numpy
        np.testing.assert_array_equal(got, np.asarray(want, dtype.numpy))


@pytest.mark.parametrize("name", ("max", "min", "argmax", "argmin"))
def test_extremes_of_nothing_at_the_call(name: str) -> None:
    with pytest.raises(UsageError, match=r"no elements along axes \(1,\) of shape \(2, 0\)"):
        getattr(full(0, 2, 0), name)(1)


@pytest.mark.parametrize("place", (2, -3))
def test_an_index_out_of_range_is_named(place: int) -> None:
    """In a dimension of 2; a write at such a place changes nothing."""
    t, at = of(1, 2), of(place, dtype=dtypes.i64)
    with pytest.raises(IndexError, match=str(place)):
        t.take(at).numpy()
    with pytest.raises(IndexError, match=str(place)):
        t.index_add(0, at, of(5)).numpy()
    written = of(1, 2)
    written[at] = 9.0
    with pytest.raises(IndexError, match=str(place)):
        written.numpy()
    np.testing.assert_array_equal(written.numpy(), [1, 2])


def test_thousands_of_tensors_are_joined_without_recursion() -> None:
    rows = [full(i, 1) for i in range(6131)]
    np.testing.assert_array_equal(meaning(stack(rows))[:, 0], np.arange(6131))

"""Tensors, what the oracle says that they are, and arrays to make them from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.helpers import random_array, special
from uopc.dtype import DATA, DType, dtypes
from uopc.tensor import storage
from uopc.tensor.core import Tensor
from uopc.uop.node import toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate

#: where tests run; a GPU where they are asked to
DEVICES = ("cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
#: what is computed with
COMPUTED = tuple(d for d in DATA if not d.storage)
FLOATS = tuple(d for d in COMPUTED if d.is_float)


def tensor(array: Any, device: str = "cpu") -> Tensor:
    return Tensor(array, device=device)


def meaning(t: Tensor) -> Array:
    """The elements of a tensor by the oracle, without a kernel."""
    leaves = [u for u in toposort(t._u) if u.op is Ops.BUFFER]
    return evaluate(t._u, {u.arg.slot: storage.memory(u).numpy() for u in leaves})


def wide(x: Array) -> Array:
    """Narrow floats as f32, so that numpy's own functions take them."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind not in "biu" else x


@st.composite
def shapes(draw: st.DrawFn, least: int = 0, most: int = 4, size: int = 3) -> tuple[int, ...]:
    """Up to four axes, of which some are empty and many have one element."""
    return tuple(draw(st.lists(st.integers(0, size), min_size=least, max_size=most)))


@st.composite
def arrays(
    draw: st.DrawFn,
    kinds: Sequence[DType] = COMPUTED,
    shape: st.SearchStrategy[tuple[int, ...]] | None = None,
    wild: bool = True,
) -> Array:
    """An array of small exact numbers; of floats, if wild, some NaN, infinities and both zeros."""
    dtype = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = random_array(rng, dtype, draw(shapes() if shape is None else shape))
    if wild and dtype.is_float and draw(st.booleans()):
        few = [np.nan, np.inf, -np.inf, 0.0, -0.0]
        x = np.where(rng.random(x.shape) < 0.2, rng.choice(few, x.shape).astype(x.dtype), x)
    return np.asarray(x, dtype.numpy)


def extremes(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Any values at all of a dtype, the extreme ones first of all."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.choice(special(dtype), shape), dtype.numpy)


@st.composite
def some_axes(draw: st.DrawFn, rank: int) -> int | tuple[int, ...] | None:
    """All axes, one, or several, from either end."""
    if draw(st.booleans()) or not rank:
        return draw(st.sampled_from((None, ())))
    axes = draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=1))
    mine = tuple(a - rank if draw(st.booleans()) else a for a in axes)
    return mine[0] if len(mine) == 1 and draw(st.booleans()) else mine


def same_numbers(got: Array, want: Any, dtype: DType) -> None:
    """Equal to the rounded numbers, where NaN equals NaN and -0 equals 0."""
    with np.errstate(all="ignore"):
        rounded = np.asarray(want).astype(dtype.numpy)
    assert (got.dtype, got.shape) == (rounded.dtype, rounded.shape), (got.dtype, got.shape, want)
    np.testing.assert_array_equal(wide(got), wide(rounded))


def near(got: Array, want: Any, dtype: DType, ulps: float = 16) -> None:
    """Within some units in the last place of 1, relative and absolute."""
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (dtype.numpy, want.shape), (got.dtype, got.shape, want.shape)
    mantissa = {dtypes.f16: 10, dtypes.bf16: 7, dtypes.f32: 23, dtypes.f64: 52}[dtype]
    limit = ulps * 2.0**-mantissa
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=limit, atol=limit)

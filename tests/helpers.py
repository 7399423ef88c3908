"""Builders of small graphs, values that break things, and comparison bit for bit."""

from __future__ import annotations

import numpy as np

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.uop.node import UOp
from uopc.uop.numbers import Array
from uopc.uop.ops import Combine, Ops, ParamArg, ReduceArg


def special(dtype: DType) -> Array:
    """Zeros, ones, extremes and neighbours; of floats both zeros, infinities, NaN and denormals."""
    if dtype is dtypes.bool:
        return np.array([False, True])
    if dtype is dtypes.index:
        return np.array([0, 1, -1, 2, -3, 7, -7, 10**6, -(10**9)])
    if not dtype.is_float:
        small = [0, 1, 2, 3, 7, 100]
        edges = [dtype.min, dtype.min + 1, dtype.max, dtype.max - 1]
        negative = [-1, -2, -3, -7, -100] if dtype.min else []
        return np.array(sorted({*small, *edges, *negative}), dtype.numpy)
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.0, 300.0, -300.0, 1e-3, 65504.0, 1e9, -1e9]
    with np.errstate(over="ignore"):
        out = np.array([*values, np.inf, -np.inf, np.nan]).astype(dtype.numpy)
    bits = f"u{dtype.itemsize}"
    mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52, "f8e4m3": 3, "f8e5m2": 2}[dtype.name]
    denormal = np.array([1, (1 << mantissa) - 1, 1 << mantissa], bits).view(dtype.numpy)
    return np.concatenate((out, denormal))


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Small whole numbers, of floats quarters, so that sums and products are exact."""
    if dtype is dtypes.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        return (rng.integers(-16, 17, shape) / 4).astype(dtype.numpy)
    return rng.integers(-8 if dtype.min else 0, 9, shape).astype(dtype.numpy)


def assert_same(got: Array, want: Array) -> None:
    """Bit for bit, every NaN counting as one value."""
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.shape)
    same = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
    if got.dtype.kind not in "biu":
        same = same | (np.isnan(got) & np.isnan(want))
    if not np.all(same):
        at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
        first = np.atleast_1d(got)[at], np.atleast_1d(want)[at]
        raise AssertionError(f"first difference at {at}: got {first[0]!r}, want {first[1]!r}")


def alloc(space: AddrSpace, dtype: DType = dtypes.f32, size: int = 1, slot: int = 0) -> UOp:
    """SHARED or REG memory of a kernel."""
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), space))


def reduce_over(x: UOp, *ranges: UOp, combine: Combine = Combine.ADD) -> UOp:
    """A REDUCE that closes ranges."""
    return UOp(Ops.REDUCE, (x, *ranges), ReduceArg(combine))

"""What a REDUCE gives: the last axis of arrays folded by a Combine."""

from __future__ import annotations

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.uop.combine import identity
from uopc.uop.numbers import Array, array_of, canonical, elementwise
from uopc.uop.ops import Combine, Ops

_OPS = {
    **{Combine.ADD: Ops.ADD, Combine.MUL: Ops.MUL, Combine.MAX: Ops.MAX, Combine.MIN: Ops.MIN},
    **{Combine.AND: Ops.AND, Combine.OR: Ops.OR, Combine.XOR: Ops.XOR},
}


def fold(
    combine: Combine, kinds: tuple[DType, ...], values: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Fold the last axis of each value; ARGMAX and ARGMIN take (values, positions).

    Float sums and products are computed in f64 (of f64 in long double) and rounded once; a sum of
    -0.0 is +0.0, of nothing 0; a product of nothing is 1.  All else is exact and so has no order.
    """
    if combine in (Combine.ARGMAX, Combine.ARGMIN):
        return _first(combine, kinds, values[0], values[1])
    (x,), (dtype,) = values, kinds
    if x.shape[-1] == 0:
        (nothing,) = identity(combine, kinds)
        return (np.full(x.shape[:-1], array_of(nothing.arg), dtype.numpy),)
    if dtype.is_float and combine in (Combine.ADD, Combine.MUL):
        wide = x.astype(np.longdouble if dtype is dtypes.f64 else np.float64)
        fold_wide, start = (np.add, 0.0) if combine is Combine.ADD else (np.multiply, 1.0)
        with np.errstate(all="ignore"):
            return (canonical(np.asarray(fold_wide.reduce(wide, axis=-1, initial=start)), dtype),)
    while (n := x.shape[-1]) > 1:
        half = elementwise(_OPS[combine], dtype, [x[..., : n // 2], x[..., n // 2 : n // 2 * 2]])
        x = np.concatenate((half, x[..., n - 1 :]), axis=-1) if n % 2 else half
    return (x[..., 0].copy(),)


def _first(
    combine: Combine, kinds: tuple[DType, ...], x: Array, position: Array
) -> tuple[Array, Array]:
    """The largest (or smallest) value, NaN before all, and the smallest position that has it."""
    wide = x.astype(np.float64) if kinds[0].is_float else x
    best = (
        wide.max(axis=-1, keepdims=True)
        if combine is Combine.ARGMAX
        else wide.min(axis=-1, keepdims=True)
    )
    nan = np.isnan(wide) if kinds[0].is_float else np.zeros(x.shape, bool)
    candidate = np.where(nan.any(axis=-1, keepdims=True), nan, wide == best)
    where = np.where(candidate, position, np.asarray(kinds[1].max, position.dtype))
    at = np.argmin(where, axis=-1)[..., None]
    return np.take_along_axis(x, at, -1)[..., 0], np.take_along_axis(where, at, -1)[..., 0]

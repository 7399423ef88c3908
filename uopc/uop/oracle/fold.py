"""What a REDUCE and a SCAN give: the last axis of arrays folded, or run along, by a Combine."""

from __future__ import annotations

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.uop.combine import identity
from uopc.uop.numbers import Array, array_of, canonical, elementwise
from uopc.uop.ops import Combine, Ops, ScanArg

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


def prefixes(a: ScanArg, dtype: DType, x: Array, start: Array | None = None) -> Array:
    """Each element of the last axis with those before it, from `start` (x's shape without that
    axis) on.

    Float sums and products are computed as in `fold`, so that of -0.0 is +0.0; all else is exact.
    """
    if x.shape[-1] == 0:
        return x.copy()
    (nothing,) = identity(a.combine, (dtype,))
    first = np.broadcast_to(array_of(nothing.arg).astype(dtype.numpy), x.shape[:-1])
    first = (first if start is None else start)[..., None]
    row = np.concatenate((first, x[..., ::-1] if a.reverse else x), axis=-1)
    if dtype.is_float and a.combine in (Combine.ADD, Combine.MUL):
        wide = row.astype(np.longdouble if dtype is dtypes.f64 else np.float64)
        along = np.add if a.combine is Combine.ADD else np.multiply
        with np.errstate(all="ignore"):
            row = canonical(np.asarray(along.accumulate(wide, axis=-1)), dtype)
    else:
        row = row.copy()
        for i in range(1, row.shape[-1]):
            both = [row[..., i - 1], row[..., i]]
            row[..., i] = elementwise(_OPS[a.combine], dtype, both)
    row = row[..., :-1] if a.exclusive else row[..., 1:]
    return row[..., ::-1] if a.reverse else row


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

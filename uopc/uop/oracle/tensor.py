"""Stage TENSOR: bodies as numpy arrays, one numpy expression an op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.uop.node import Shape, UOp, toposort, tuple_of
from uopc.uop.numbers import Array, array_of, canonical, elementwise
from uopc.uop.ops import ELEMENTWISE, Ops
from uopc.uop.oracle.access import Given, bind
from uopc.uop.oracle.fold import fold, prefixes

Values: TypeAlias = tuple[Array, ...]


@overload
def evaluate(bodies: UOp, arrays: Given) -> Array: ...
@overload
def evaluate(bodies: Sequence[UOp], arrays: Given) -> list[Array]: ...
def evaluate(bodies: UOp | Sequence[UOp], arrays: Given) -> Array | list[Array]:
    """The value of a body, or of each of several, as a numpy array of its dtype and shape.

    arrays: slot -> array of the BUFFER's dtype and number of elements.  Raises UsageError for
    arrays that do not fit and for ops that shaped values do not have.
    """
    roots = [bodies] if isinstance(bodies, UOp) else list(bodies)
    order = toposort(*roots)
    flat = bind(order, arrays)
    uses = _uses(order, roots)
    values: dict[UOp, Values] = {}
    for u in order:
        values[u] = _value(u, [values[s] for s in u.src], flat)
        for s in u.src:  # a long chain of large arrays keeps few of them
            uses[s] -= 1
            if uses[s] == 0:
                del values[s]
    out = [np.array(np.broadcast_to(values[r][0], r.shape)) for r in roots]
    return out[0] if isinstance(bodies, UOp) else out


def _uses(order: list[UOp], roots: list[UOp]) -> dict[UOp, int]:
    uses = dict.fromkeys(order, 0)
    for r in roots:
        uses[r] += 1
    for u in order:
        for s in u.src:
            uses[s] += 1
    return uses


def _value(u: UOp, src: list[Values], flat: dict[int, Array]) -> Values:
    op, arg = u.op, u.arg
    if op in ELEMENTWISE:
        dtype = u.src[-1].dtype
        return (elementwise(op, dtype, [s[0] for s in src], arg),)
    if op is Ops.CONST:
        return (array_of(arg).astype(u.dtype.numpy),)
    if op is Ops.BUFFER:
        return (flat[arg.slot].reshape(arg.shape),)
    if op is Ops.IOTA:
        return (np.arange(arg.size).astype(arg.dtype.numpy),)
    if op is Ops.TUPLE:
        return tuple(np.broadcast_to(s[0], u.shape) for s in src)
    if op is Ops.ITEM:
        return (src[0][arg],)
    if op is Ops.REDUCE:
        return _reduced(u, src[0])
    if op is Ops.SCAN:
        return (prefixes(arg, u.dtype, np.broadcast_to(src[0][0], u.shape)),)
    if op is Ops.PAD:
        return (_padded(u, src[0][0], src[1][0]),)
    if op is Ops.GATHER:
        return (_gathered(u, [s[0] for s in src]),)
    if op is Ops.SCATTER:
        return (_scattered(u, [s[0] for s in src]),)
    if op is Ops.ASSIGN:
        return src[1]
    if op in (Ops.DETACH, Ops.CURVE):
        return src[0]
    if op in _MOVE:
        return (_MOVE[op](src[0][0], arg),)
    raise UsageError(
        f"evaluate takes shaped values (stage TENSOR), {op} is none: use run for a SINK"
    )


def _reduced(u: UOp, xs: Values) -> Values:
    (x, *_), n = u.src, u.arg.axes
    kept = x.shape[: len(x.shape) - n]
    rows = tuple(v.reshape(*kept, int(np.prod(x.shape[len(kept) :], dtype=np.int64))) for v in xs)
    both = tuple_of(u)
    kinds = (x.dtype,) if both is None else tuple(s.dtype for s in both.src)
    return fold(u.arg.combine, kinds, rows)


def _padded(u: UOp, x: Array, value: Array) -> Array:
    out = np.empty(u.shape, x.dtype)
    out[...] = value
    out[tuple(slice(before, before + n) for (before, _), n in zip(u.arg, x.shape, strict=True))] = x
    return out


# ---- elements at places that data names
def _gathered(u: UOp, xs: list[Array]) -> Array:
    x, *indices = xs
    if x.size == 0:
        return np.zeros(u.shape, x.dtype)
    read = _places(u.arg.dims, u.shape, x.shape, indices)
    inside = [np.clip(at, 0, size - 1) for at, size in zip(read, x.shape, strict=True)]
    return np.asarray(x[tuple(inside)])


def _scattered(u: UOp, xs: list[Array]) -> Array:
    """`np.add.at` adds one value after the other, in their order."""
    values, *indices = xs
    to = _places(u.arg.dims, values.shape, u.shape, indices)
    inside = np.ones(values.shape, bool)
    for at, size in zip(to, u.shape, strict=True):
        inside &= (at >= 0) & (at < size)
    sums = np.zeros(u.shape, _accumulator(u.dtype))
    with np.errstate(all="ignore"):
        targets = tuple(np.broadcast_to(at, values.shape)[inside] for at in to)
        np.add.at(sums, targets, values[inside].astype(sums.dtype))
    return canonical(sums, u.dtype) if u.dtype.is_float else sums


def _accumulator(dtype: DType) -> np.dtype[Any]:
    """Narrow floats are summed in f32."""
    return dtypes.f32.numpy if dtype.is_float and dtype.bits < 32 else dtype.numpy


def _places(
    dims: tuple[int, ...], walked: Shape, sizes: Shape, indices: list[Array]
) -> list[Array]:
    """For each axis of `sizes` the index along it at every position of `walked`, inside or not."""
    positions = np.indices(walked, sparse=True)
    return [
        positions[j] if j >= 0 else _from_the_end(indices[~j], size)
        for j, size in zip(dims, sizes, strict=True)
    ]


def _from_the_end(index: Array, size: int) -> Array:
    """Indices as i64, negative ones counted from the end; a u64 beyond i64 stays outside."""
    if index.dtype == np.uint64:
        return np.minimum(index, np.uint64(np.iinfo(np.int64).max)).astype(np.int64)
    at = index.astype(np.int64)
    return np.where(at < 0, at + size, at)


_MOVE: dict[Ops, Callable[[Array, Any], Array]] = {
    Ops.RESHAPE: lambda x, shape: x.reshape(shape),
    Ops.EXPAND: lambda x, shape: np.broadcast_to(x, shape),
    Ops.PERMUTE: lambda x, axes: x.transpose(axes),
    Ops.SHRINK: lambda x, bounds: x[tuple(slice(b, e) for b, e in bounds)],
    Ops.FLIP: lambda x, axes: np.flip(x, axes),
}

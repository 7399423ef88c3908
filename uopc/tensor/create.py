"""Tensors from numbers: constants, ranges, the identity.

What has the same value everywhere is a constant, which costs no memory until it is asked for.
Python's numbers become bool, i32 (i64 or u64 where one needs it) or f32.  device: None is the
default.  requires_grad gives the tensor a memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import storage
from uopc.tensor.base import Base, fresh, shape_of
from uopc.tensor.core import Tensor
from uopc.tensor.promote import DEFAULT_FLOAT, Number, check_data, default_of, number_of, scalar
from uopc.uop.node import Shape, UOp, here

#: one size, or one an axis
Sizes: TypeAlias = "int | Iterable[int]"


def _sizes(shape: Sizes, what: str) -> Shape:
    """The shape.  Raises UsageError where a size is negative."""
    sizes = shape_of((shape,), what)
    if any(n < 0 for n in sizes):
        raise UsageError(f"{what} at {here()}: a size is negative in shape {sizes}")
    return sizes


def _made(u: UOp, device: str | None, requires_grad: bool) -> Tensor:
    t = fresh(Tensor, u, storage.device_named(device))
    return t.requires_grad_() if requires_grad else t


def full(
    shape: Sizes,
    fill_value: Number,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """fill_value everywhere.  Raises UsageError where dtype cannot hold it."""
    sizes = _sizes(shape, "full")
    value = number_of(fill_value, "full")
    dtype = _wanted(dtype, default_of(value))
    u = scalar(value, dtype, "full").expand(sizes or (1,))
    if not sizes:  # an array, not the number: what ties with it shares the gradient
        u = u.reshape(())
    return _made(u, device, requires_grad)


def _wanted(dtype: DType | None, otherwise: DType) -> DType:
    if dtype is None:
        return otherwise
    check_data(dtype)
    return dtype


def zeros(
    *shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """0 everywhere; f32 unless dtype says otherwise.  zeros(2, 3) or zeros((2, 3))."""
    sizes = shape_of(shape, "zeros")
    return full(sizes, 0, _wanted(dtype, DEFAULT_FLOAT), device, requires_grad)


def ones(
    *shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """1 everywhere; f32 unless dtype says otherwise.  ones(2, 3) or ones((2, 3))."""
    sizes = shape_of(shape, "ones")
    return full(sizes, 1, _wanted(dtype, DEFAULT_FLOAT), device, requires_grad)


def empty(
    *shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A memory whose elements may be anything: for what is assigned before it is read."""
    sizes = _sizes(shape_of(shape, "empty"), "empty")
    place = storage.device_named(device)
    u = storage.place(place, _wanted(dtype, DEFAULT_FLOAT), sizes)
    return _made(u, place, requires_grad)


def full_like(
    x: Base, fill_value: Number, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """fill_value in the shape, dtype and device of x, unless others are given."""
    return full(x.shape, fill_value, dtype or x.dtype, device or x.device)


def zeros_like(x: Base, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """0 in the shape, dtype and device of x, unless others are given."""
    return full_like(x, 0, dtype, device)


def ones_like(x: Base, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """1 in the shape, dtype and device of x, unless others are given."""
    return full_like(x, 1, dtype, device)


def empty_like(x: Base, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """A memory in the shape, dtype and device of x, unless others are given."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def from_numpy(array: Any, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """A copy of a numpy array, of its dtype and shape."""
    return Tensor(array, device=device, requires_grad=requires_grad)


def arange(
    start: Number,
    stop: Number | None = None,
    step: Number = 1,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """start, start + step, ... before stop; arange(n) counts from 0.  Shape (n,).

    Floats are start + i * step in f64, rounded once.  Integers are exact; those that dtype cannot
    hold raise UsageError, as does a step of 0.
    """
    begin, end = (0, start) if stop is None else (start, stop)
    begin, end, step = (number_of(x, "arange") for x in (begin, end, step))
    if step == 0 or not all(map(math.isfinite, (begin, end, step))):
        raise UsageError(
            f"arange at {here()}: from {begin} to {end} by {step} never ends: finite numbers, and "
            "a step other than 0"
        )
    if any(isinstance(x, float) for x in (begin, end, step)):
        return _arange_of_floats(float(begin), float(end), float(step), dtype, device)
    values = range(int(begin), int(end), int(step))
    work = dtypes.i32
    for value in (values[0], values[-1]) if values else ():
        natural = default_of(value) if value <= dtypes.i64.max else dtypes.u64
        work = natural if natural.bits > work.bits or natural is dtypes.u64 else work
    wanted = _wanted(dtype, work)
    if wanted.is_float:
        return _arange_of_floats(float(begin), float(end), float(step), wanted, device)
    for value in (values[0], values[-1]) if values else ():
        scalar(value, wanted, "arange")
    i = UOp.arange(len(values), work)
    u = i * UOp.const(work.wrap(int(step)), work) + UOp.const(work.wrap(int(begin)), work)
    return _made(u.cast(wanted), device, False)


def _arange_of_floats(
    begin: float, end: float, step: float, dtype: DType | None, device: str | None
) -> Tensor:
    count = max(0, math.ceil((end - begin) / step))
    u = UOp.arange(count, dtypes.i64).cast(dtypes.f64) * step + begin
    return _made(u.cast(_wanted(dtype, DEFAULT_FLOAT)), device, False)


def linspace(
    start: Number,
    stop: Number,
    num: int,
    dtype: DType | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """num numbers at equal distances from start to stop; stop is the last one, or with
    endpoint=False the one behind it.  Shape (num,).  Computed in f64, rounded once.

    Raises UsageError for a negative num.
    """
    sizes = _sizes((num,), "linspace")
    begin, end = float(number_of(start, "linspace")), float(number_of(stop, "linspace"))
    spaces = num - 1 if endpoint else num
    i = UOp.arange(sizes[0], dtypes.i64)
    u = i.cast(dtypes.f64) * ((end - begin) / max(spaces, 1)) + begin
    if endpoint and num > 1:
        u = i.eq(num - 1).where(UOp.const(end, dtypes.f64), u)
    return _made(u.cast(_wanted(dtype, DEFAULT_FLOAT)), device, False)


def eye(
    rows: int,
    columns: int | None = None,
    k: int = 0,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """1 on diagonal k (above the main one where k > 0), else 0.  Shape (rows, columns)."""
    m, n = _sizes((rows, rows if columns is None else columns), "eye")
    i = UOp.arange(m, dtypes.i64).reshape((m, 1)).expand((m, n))
    j = UOp.arange(n, dtypes.i64).reshape((1, n)).expand((m, n))
    u = (i + int(k)).eq(j).cast(_wanted(dtype, DEFAULT_FLOAT))
    return _made(u, device, False)

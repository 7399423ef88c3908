"""Which dtype a result has.

The array API standard's table (2023.12, "Type Promotion Rules"); Python scalars are weak: they take
the tensor's dtype if its kind can hold them.  Where the table leaves it open: the float side wins,
bool becomes the other, two narrow floats that differ meet in f32, and u64 with a signed integer is
an error, since nothing holds both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import DType, Kind, dtypes
from uopc.errors import UsageError
from uopc.tensor.base import Base, Operand
from uopc.uop.node import Shape, UOp, here

Number: TypeAlias = bool | int | float

#: what Python's numbers become where nothing else decides (i64 for integers that i32 cannot hold)
DEFAULT_INT = dtypes.i32
DEFAULT_FLOAT = dtypes.f32


@lru_cache(maxsize=1024)
def _promoted(a: DType, b: DType) -> DType | None:
    """The dtype of both together; None where there is none."""
    if a is b:
        return a
    if a.storage or b.storage:
        return None
    if a.kind is Kind.BOOL or b.kind is Kind.BOOL:
        return b if a.kind is Kind.BOOL else a
    if a.is_float and b.is_float:
        if a.bits == b.bits:  # f16 with bf16
            return dtypes.f32
        return a if a.bits > b.bits else b
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind is b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind is Kind.INT else (b, a)
    if unsigned.bits < signed.bits:
        return signed
    return {8: dtypes.i16, 16: dtypes.i32, 32: dtypes.i64}.get(unsigned.bits)


def promote(a: DType, b: DType, what: str = "promotion") -> DType:
    """The dtype that values of both are computed in.  Raises UsageError where there is none."""
    found = _promoted(a, b)
    if found is not None:
        return found
    if a.storage or b.storage:
        raise UsageError(
            f"{what} at {here()}: {a} with {b}: fp8 is storage; cast it first, as in .cast(f32)"
        )
    raise UsageError(
        f"{what} at {here()}: no integer dtype holds both {a} and {b}; cast one of them"
    )


def result_type(*operands: Base | DType | Number) -> DType:
    """The dtype of an operation on tensors, dtypes and Python scalars.

    Raises UsageError where there is none.
    """
    kinds = [x.dtype if isinstance(x, Base) else x for x in operands]
    strong = [x for x in kinds if isinstance(x, DType)]
    weak = [x for x in kinds if not isinstance(x, DType)]
    if not operands:
        raise UsageError(f"result_type at {here()}: of what? Pass tensors, dtypes or numbers.")
    dtype = strong[0] if strong else default_of(weak[0])
    for other in strong[1:]:
        dtype = promote(dtype, other, "result_type")
    for number in weak:
        dtype = weak_dtype(dtype, number) if strong else promote(dtype, default_of(number))
    return dtype


def default_of(number: Number) -> DType:
    """The dtype of a Python number alone."""
    if isinstance(number, bool):
        return dtypes.bool
    if isinstance(number, int):
        return DEFAULT_INT if DEFAULT_INT.min <= number <= DEFAULT_INT.max else dtypes.i64
    return DEFAULT_FLOAT


def weak_dtype(dtype: DType, number: Number) -> DType:
    """The dtype of an operation on a tensor of `dtype` and a Python number."""
    if isinstance(number, bool) or dtype.is_float:
        return dtype
    if isinstance(number, int):
        return dtype if dtype.is_int else default_of(number)
    return DEFAULT_FLOAT


def scalar(number: Number, dtype: DType, what: str) -> UOp:
    """The constant; an integer that the dtype cannot hold raises UsageError."""
    if not dtype.is_float and isinstance(number, float):
        if not number.is_integer():
            raise UsageError(f"{what} at {here()}: {number!r} is not a whole number, {dtype} is")
        number = int(number)
    if not dtype.is_float and not dtype.min <= number <= dtype.max:
        raise UsageError(
            f"{what} at {here()}: {number!r} does not fit {dtype} ({dtype.min} to {dtype.max}). "
            "Cast the tensor to a wider dtype first."
        )
    try:
        return UOp.const(number, dtype)
    except OverflowError:
        raise UsageError(f"{what} at {here()}: {number!r} is beyond every float") from None


def number_of(x: object, what: str) -> Number:
    """A Python number, from one or from a numpy scalar.  Raises UsageError for anything else."""
    if isinstance(x, np.generic):
        x = x.item() if x.dtype.kind in "biuf" else float(x)
    if isinstance(x, (bool, int, float)):
        return x
    hint = ". Make it a tensor: Tensor(array, device=...)" if isinstance(x, np.ndarray) else ""
    raise UsageError(
        f"{what} at {here()}: an operand is a Tensor or a number, got {type(x).__name__}{hint}"
    )


def tensor_of(x: Any, what: str) -> Base:
    """x, which has to be a tensor.  Raises UsageError for anything else."""
    if isinstance(x, Base):
        return x
    hint = ". Make it one: Tensor(array, device=...)" if isinstance(x, np.ndarray) else ""
    raise UsageError(f"{what} at {here()}: wants a Tensor, got {type(x).__name__}{hint}")


def operands(what: str, *given: Operand, floats: bool = False) -> list[UOp]:
    """The operands in one dtype and one shape; a Python number is a constant without axes.

    floats: integers and bools become floats.  Raises UsageError where dtypes or shapes do not go
    together, or none of them is a tensor.
    """
    parts = [x if isinstance(x, Base) else number_of(x, what) for x in given]
    tensors = [x for x in parts if isinstance(x, Base)]
    if not tensors:
        raise UsageError(f"{what} at {here()}: at least one operand must be a Tensor")
    dtype, shape = tensors[0].dtype, tensors[0].shape
    for t in tensors[1:]:
        if t.dtype is not dtype:
            dtype = promote(dtype, t.dtype, what)
        if t.shape != shape:
            shape = broadcast_shapes(what, shape, t.shape)
    for x in parts:
        if not isinstance(x, Base):
            dtype = weak_dtype(dtype, x)
    if floats and not dtype.is_float:
        dtype = DEFAULT_FLOAT
    return [
        broadcast(x._u.cast(dtype), shape) if isinstance(x, Base) else scalar(x, dtype, what)
        for x in parts
    ]


def broadcast(u: UOp, shape: Shape) -> UOp:
    """u repeated to a shape that it broadcasts to."""
    return u if u.shape == shape else u.expand(shape)


def broadcast_shapes(what: str, *shapes: Shape) -> Shape:
    """The shape that all of these repeat to: axes are matched from the last, 1 goes with any size.

    Raises UsageError that names the shapes.
    """
    ndim = max(map(len, shapes), default=0)
    full = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    sizes: list[int] = []
    for column in zip(*full, strict=True):
        more = {n for n in column if n != 1}
        if len(more) > 1:
            named = " and ".join(map(str, shapes))
            raise UsageError(
                f"{what} at {here()}: shapes {named} do not broadcast: counted from the last, "
                f"axis {len(sizes) - ndim} has sizes {' and '.join(map(str, column))}"
            )
        sizes.append(more.pop() if more else 1)
    return tuple(sizes)


def storable(value: Operand, like: Base, what: str) -> UOp:
    """The value in the dtype of a tensor that it is to be stored in; a number has no axes.

    Raises UsageError where it lives elsewhere, or would need a cast that is not within floats or
    within integers.
    """
    if not isinstance(value, Base):
        return scalar(number_of(value, what), like.dtype, what)
    if value.device != like.device:
        raise UsageError(
            f"{what} at {here()}: the tensor lives on {like.device}, the value on {value.device}. "
            f"Move it: .to({like.device!r})"
        )
    source, dtype = value.dtype, like.dtype
    same_kind = (source.is_float and dtype.is_float) or (source.is_int and dtype.is_int)
    if not same_kind and _promoted(source, dtype) is not dtype:
        raise UsageError(
            f"{what} at {here()}: {source} does not go into {dtype} by itself; cast the value"
        )
    return value._u.cast(dtype)


def fitting(value: Operand, like: Base, what: str) -> UOp:
    """The value in the dtype and shape of a tensor that it is to be stored in.

    Raises UsageError as `storable` does, and where it does not repeat to that shape.
    """
    u = storable(value, like, what)
    if broadcast_shapes(what, u.shape, like.shape) != like.shape:
        raise UsageError(
            f"{what} at {here()}: a value of shape {u.shape} does not fit into shape {like.shape}"
        )
    return broadcast(u, like.shape)


def check_data(dtype: DType) -> None:
    """Raises UsageError where no memory holds a dtype."""
    if not isinstance(dtype, DType) or dtype.kind in (Kind.VOID, Kind.INDEX):
        raise UsageError(
            f"dtype at {here()}: want one of uopc.dtypes that memory holds, got {dtype!r}"
        )


__all__ = [
    "DEFAULT_FLOAT",
    "DEFAULT_INT",
    "Number",
    "broadcast",
    "broadcast_shapes",
    "check_data",
    "default_of",
    "fitting",
    "number_of",
    "operands",
    "promote",
    "result_type",
    "scalar",
    "storable",
    "tensor_of",
    "weak_dtype",
]

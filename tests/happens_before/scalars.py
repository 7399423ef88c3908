"""One elementwise op on Python numbers: what a single thread computes.

Integers, bool and f32/f64 sums and products are written out here; everything else asks
`uopc.uop.numbers`, the meaning of the ops, with arrays of one element.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.uop.node import UOp
from uopc.uop.numbers import array_of, canonical_nan, compute
from uopc.uop.ops import COMPARE, Ops

Value: TypeAlias = bool | int | float
Function: TypeAlias = Callable[..., Value]

_COMPARE: dict[Ops, Function] = {Ops.LT: operator.lt, Ops.EQ: operator.eq, Ops.NE: operator.ne}
_EXACT: dict[Ops, Function] = {
    Ops.ADD: operator.add,
    Ops.SUB: operator.sub,
    Ops.MUL: operator.mul,
    Ops.IDIV: lambda a, b: a // b if b else 0,
    Ops.MOD: lambda a, b: a % b if b else 0,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.NEG: operator.neg,
    Ops.NOT: operator.invert,
}
_BOOL: dict[Ops, Function] = {
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.NOT: operator.not_,
}
_FLOAT = (Ops.ADD, Ops.SUB, Ops.MUL)  # exact in f64 up to one rounding, which f32 then repeats


def constant(u: UOp) -> Value:
    """The value of a CONST; a NaN keeps its bits."""
    return to_python(array_of(u.arg).reshape(()), u.dtype)


def to_python(x: np.ndarray[tuple[int, ...], np.dtype[np.generic]], dtype: DType) -> Value:
    """A 0-d array as a number (bf16 and the like have no Python type of their own)."""
    if dtype.is_float:
        return float(x.astype(np.float64))
    return bool(x) if dtype is dtypes.bool else int(x)


def function(op: Ops, dtype: DType, to: DType | None) -> Function:
    """The op on operands of `dtype`; `to` is what CAST and BITCAST give."""
    if op in COMPARE:
        return _COMPARE[op]
    if op is Ops.WHERE:
        return lambda condition, x, y: x if condition else y
    if dtype is dtypes.bool and op in _BOOL:
        return _BOOL[op]
    if dtype.is_int and op in _EXACT:
        exact, wrap = _EXACT[op], dtype.wrap
        return lambda *xs: wrap(int(exact(*xs)))
    if op in _FLOAT and dtype in (dtypes.f32, dtypes.f64):
        return _float(_EXACT[op], dtype)
    if op is Ops.CAST and to is not None and to.is_int and not dtype.is_float:
        wrap = to.wrap
        return lambda x: wrap(int(x))
    return _general(op, dtype, to)


def _float(exact: Function, dtype: DType) -> Function:
    single = dtype is dtypes.f32
    nan = float(canonical_nan(dtype))

    def apply(a: float, b: float) -> float:
        x = exact(a, b)
        x = float(np.float32(x)) if single else x
        return x if x == x else nan

    return apply


def _general(op: Ops, dtype: DType, to: DType | None) -> Function:
    result = to if to is not None else dtypes.bool if op in COMPARE else dtype

    def apply(*xs: Value) -> Value:
        arrays = [np.asarray(x).astype(dtype.numpy) for x in xs]
        return to_python(np.asarray(compute(op, dtype, arrays, to)).reshape(()), result)

    return apply

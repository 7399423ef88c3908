"""What one elementwise op means, on numpy arrays: the table behind the oracle and constant folding.

Integers wrap to their width; // and % floor, and give 0 by zero; floats follow IEEE 754 with
denormals kept.  f16 and bf16 are computed in f32 and rounded (FMA is rounded twice: to f32, then to
its dtype); casts to f16, bf16 and fp8 go through f32 too.  A float op that gives NaN gives the
canonical one, as PTX does; NEG, WHERE and BITCAST only move bits.  Transcendentals of f32 are
computed in f64 and rounded.

Source of the canonical NaN and of the clamping shifts: PTX ISA, "Floating Point Instructions",
shl and shr.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import DType, Kind, dtypes, to_bits
from uopc.errors import UsageError
from uopc.uop.ops import COMPARE, ConstArg, Ops

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Number: TypeAlias = bool | int | float

_F8_MAX = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def elementwise(op: Ops, dtype: DType, operands: Sequence[Array], to: DType | None = None) -> Array:
    """One elementwise op on arrays that broadcast.

    Parameters
    ----------
    op: any of ELEMENTWISE.
    dtype: of the operands (of the two choices for WHERE).
    operands: arrays of `dtype.numpy` (WHERE: a bool array first).
    to: the dtype that CAST and BITCAST give.

    Returns an array of the result's numpy dtype (bool for comparisons).
    """
    with np.errstate(all="ignore"):
        return compute(op, dtype, [np.asarray(x) for x in operands], to)


def compute(op: Ops, dtype: DType, xs: list[Array], to: DType | None = None) -> Array:
    """`elementwise` for a caller that silences numpy's warnings itself."""
    if op is Ops.WHERE:
        return np.where(xs[0], xs[1], xs[2])
    if op is Ops.CAST:
        assert to is not None
        return cast(xs[0], dtype, to)
    if op is Ops.BITCAST:
        assert to is not None
        return bitcast(xs[0], to)
    if dtype.is_float:
        return _float(op, dtype, xs)
    if op in COMPARE:
        return np.asarray(_COMPARE[op](*xs))
    if dtype is dtypes.bool:
        return np.asarray(_BOOL[op](*xs))
    if op in (Ops.SHL, Ops.SHR):
        return _shift(op, dtype, xs[0], xs[1])
    return np.asarray(_INT[op](*xs))


# ---- floats
def _float(op: Ops, dtype: DType, xs: list[Array]) -> Array:
    if op is Ops.NEG:
        sign = np.asarray(1 << (dtype.bits - 1), f"u{dtype.bits // 8}")
        return np.asarray(xs[0].view(sign.dtype) ^ sign).view(dtype.numpy)
    wide = np.dtype(np.float64) if dtype is dtypes.f64 else np.dtype(np.float32)
    xs = [x.astype(wide, copy=False) for x in xs]
    if op in COMPARE:
        return np.asarray(_COMPARE[op](*xs))
    if op in _LIBRARY:
        return canonical(np.asarray(_LIBRARY[op](xs[0].astype(np.float64))).astype(wide), dtype)
    return canonical(np.asarray(_FLOAT[op](*xs)), dtype)


def canonical(x: Array, dtype: DType) -> Array:
    """A float array rounded to `dtype` with every NaN replaced by the canonical one."""
    nan = np.isnan(x)
    out = x.astype(dtype.numpy)
    if nan.any():
        out = np.where(nan, canonical_nan(dtype), out)
    return np.asarray(out)


def canonical_nan(dtype: DType) -> Array:
    """The NaN that arithmetic, max, min and casts give: sign 0, every other bit 1 (0-d array)."""
    return np.asarray((1 << (dtype.bits - 1)) - 1, f"u{dtype.bits // 8}").view(dtype.numpy)


def _pick(larger: bool) -> Callable[[Array, Array], Array]:
    """max or min where NaN wins and -0 < +0."""

    def choose(a: Array, b: Array) -> Array:
        first = np.where(a == b, np.signbit(a) != larger, (a > b) == larger)
        return np.where(
            np.isnan(a) | np.isnan(b), np.asarray(np.nan, a.dtype), np.where(first, a, b)
        )

    return choose


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a*b + c rounded once."""
    if a.dtype == np.float64:
        return np.asarray(np.frompyfunc(_fma64, 3, 1)(a, b, c)).astype(np.float64)
    # The product of two f32 is exact in f64.  The sum is rounded to odd there, so that the second
    # rounding, to f32, gives what one rounding would (Boldo and Melquiond, "Emulation of FMA and
    # correctly rounded sums: proved algorithms using rounding to odd", 2008).
    x, y = np.broadcast_arrays(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    s = np.asarray(x + y)
    t = s - x
    error = (x - (s - t)) + (y - t)
    even = (s.view(np.int64) & 1) == 0
    odd = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & np.isfinite(error) & even, odd, s).astype(np.float32)


def _fma64(a: float, b: float, c: float) -> float:
    if not math.isfinite(a) or not math.isfinite(b):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    try:
        size = float(abs(exact))
    except OverflowError:
        size = math.inf
    return size if exact > 0 else -size


_FLOAT: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.DIV: np.divide,
    Ops.MAX: _pick(larger=True),
    Ops.MIN: _pick(larger=False),
    Ops.FMA: _fma,
    Ops.SQRT: np.sqrt,
    Ops.TRUNC: np.trunc,
    Ops.FLOOR: np.floor,
    Ops.CEIL: np.ceil,
    Ops.RINT: np.rint,
}
#: computed in f64 whatever the dtype
_LIBRARY: dict[Ops, Callable[[Array], Any]] = {
    Ops.EXP: np.exp,
    Ops.EXP2: np.exp2,
    Ops.LOG: np.log,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.TAN: np.tan,
    Ops.TANH: np.tanh,
    Ops.ERF: np.vectorize(math.erf, otypes=[np.float64]),
}
_COMPARE: dict[Ops, Callable[[Array, Array], Any]] = {
    Ops.LT: np.less,
    Ops.EQ: np.equal,
    Ops.NE: np.not_equal,
}


# ---- integers and bool
def _idiv(a: Array, b: Array) -> Array:
    """Floor quotient; by zero 0; by -1 the wrapped negative, which INT_MIN needs."""
    minus = (b == -1) & (b.dtype.kind != "u")
    usual = np.floor_divide(a, np.where((b == 0) | minus, _full(b, 1), b))
    negative = np.where(minus, _full(a, np.negative(a)), _full(a, usual))
    return np.where(b == 0, _full(a, 0), negative)


def _mod(a: Array, b: Array) -> Array:
    """Floor remainder, of the divisor's sign; by zero 0."""
    none = (b == 0) | ((b == -1) & (b.dtype.kind != "u"))
    return np.where(none, _full(a, 0), _full(a, np.remainder(a, np.where(none, _full(b, 1), b))))


def _full(like: Array, value: Any) -> Array:
    """`value` in the dtype of `like`: a ufunc on one Python integer gives no array."""
    return np.asarray(value, like.dtype)


def _shift(op: Ops, dtype: DType, a: Array, n: Array) -> Array:
    """Shifts by 0 <= n < bits; any other n counts as `bits`, so that zeros or the sign are left."""
    inside = (n >= 0) & (n < dtype.bits)
    places = np.where(inside, n, _full(n, 0))
    if op is Ops.SHL:
        return np.where(inside, np.left_shift(a, places), _full(a, 0))
    sign = np.where(a < 0, _full(a, -1), _full(a, 0)) if dtype.kind is Kind.INT else _full(a, 0)
    return np.where(inside, np.right_shift(a, places), sign)


_INT: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.IDIV: _idiv,
    Ops.MOD: _mod,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.NOT: np.invert,
    Ops.NEG: np.negative,
}
_BOOL: dict[Ops, Callable[..., Any]] = {
    Ops.MAX: np.logical_or,
    Ops.MIN: np.logical_and,
    Ops.AND: np.logical_and,
    Ops.OR: np.logical_or,
    Ops.XOR: np.logical_xor,
    Ops.NOT: np.logical_not,
}


# ---- casts
def cast(x: Array, source: DType, to: DType) -> Array:
    """`x` in another dtype: floats to integers toward zero, saturating, NaN to 0; integers wrap.

    To bool: whether it differs from zero (NaN does).  Floats round to nearest even; what is too
    large becomes Inf in f16, bf16 and f32, and the largest number in fp8.
    """
    with np.errstate(all="ignore"):
        if to is dtypes.bool:
            return np.asarray(
                x.astype(np.float32) != 0 if source.bits < 32 and source.is_float else x != 0, bool
            )
        if x.dtype == object:  # a folded index: its low 64 bits suffice, or its nearest f64
            x = (
                x.astype(np.float64)
                if to.is_float and abs(x) >= 1 << 63
                else np.asarray(dtypes.i64.wrap(int(x)))
            )
        if to.is_float:
            return _to_float(x, to)
        if source.is_float:
            return _float_to_int(x, to)
        return x.astype(to.numpy)


def _to_float(x: Array, to: DType) -> Array:
    if to is dtypes.f64:
        return canonical(x.astype(np.float64), to)
    single = x.astype(np.float32)
    if to.storage:
        single = np.clip(single, -_F8_MAX[to.name], _F8_MAX[to.name])
    return canonical(single, to)


def _float_to_int(x: Array, to: DType) -> Array:
    whole = dtypes.i64 if to is dtypes.index else to
    t = np.trunc(x.astype(np.float64))
    low, above = float(whole.min), float(whole.max + 1)  # powers of two or zero: exact in f64
    inside = (t >= low) & (t < above)
    out = np.where(inside, t, 0.0).astype(to.numpy)
    out = np.where(t < low, np.asarray(whole.min, to.numpy), out)
    return np.where(t >= above, np.asarray(whole.max, to.numpy), out)


def bitcast(x: Array, to: DType) -> Array:
    """The same bits read as another dtype of equal size; a byte that is not 0 is true."""
    if to is dtypes.bool:
        return np.asarray(x.view(np.uint8) != 0)
    return x.view(to.numpy)


# ---- single numbers
def fold_op(op: Ops, dtype: DType, operands: Sequence[Number], to: DType | None = None) -> Number:
    """The Python number that an op gives for Python numbers.

    dtype is that of the operands (of the choices for WHERE); `to` is the arg of CAST and BITCAST.
    Operands are first taken as constants of their dtype; index integers have any size.  A NaN comes
    back as Python's, without its bits: `fold_const` keeps those.
    """
    kinds = [dtypes.bool if op is Ops.WHERE and i == 0 else dtype for i in range(len(operands))]
    consts = [
        ConstArg(d, int(x) if d is dtypes.index else to_bits(x, d))
        for d, x in zip(kinds, operands, strict=True)
    ]
    found = fold_const(op, consts, to)
    value = array_of(found)
    return value.astype(np.float64).item() if found.dtype.is_float else value.item()


def fold_const(op: Ops, operands: Sequence[ConstArg], to: DType | None = None) -> ConstArg:
    """The constant that an op gives for constants, bit for bit what the oracle computes."""
    dtype = operands[-1].dtype
    result = to if to is not None else dtypes.bool if op in COMPARE else dtype
    return const_of(elementwise(op, dtype, [array_of(c) for c in operands], to), result)


def array_of(c: ConstArg) -> Array:
    """A constant as a 0-d array; an index integer that int64 cannot hold as a Python object."""
    d = c.dtype
    if d.is_float:
        return np.asarray(c.bits, f"u{d.bits // 8}").view(d.numpy)
    if d is dtypes.index:
        return np.asarray(c.bits, object)
    return np.asarray(d.wrap(c.bits), d.numpy)


def const_of(x: Array, dtype: DType) -> ConstArg:
    """The constant that a 0-d array of `dtype` holds."""
    if x.shape:
        raise UsageError(f"a constant is one number, got an array of shape {x.shape}")
    if dtype.is_float:
        return ConstArg(dtype, int(x.view(f"u{dtype.bits // 8}")))
    return ConstArg(dtype, int(x))

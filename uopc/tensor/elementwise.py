"""Operators and functions of one element: arithmetic, comparison, logic, bits, rounding, curves.

Operands are promoted and broadcast; Python's numbers are weak (promote.py).  Functions of floats
take integers and bools as f32.  What the numbers mean at the ends: appendix A of the book; where it
is silent, as in numpy.  A function that the IR has no op for stands in curves.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Self, cast

import numpy as np

from uopc.dtype import DType, Kind, dtypes
from uopc.errors import UsageError
from uopc.tensor.base import Base, Operand, T, fresh, wrap
from uopc.tensor.curves import curve, floor_quotient, sign_bit
from uopc.tensor.mode import no_grad
from uopc.tensor.promote import (
    DEFAULT_FLOAT,
    broadcast,
    broadcast_shapes,
    check_data,
    number_of,
    operands,
    result_type,
    scalar,
)
from uopc.uop.node import UOp, alu, here
from uopc.uop.ops import Ops

#: whole exponents up to here are multiplications
_FEW = 8
#: what == compares elements with; anything else is unequal as a whole
_OPERANDS = (Base, bool, int, float, np.number, np.bool_, np.ndarray)


def _result(u: UOp, x: T, *more: Operand) -> T:
    """The tensor of a value of x and further operands, some of which may be numbers."""
    return wrap(u, x, *[t for t in more if isinstance(t, Base)])


def _binary(what: str, op: Ops, x: T, y: Operand, reflected: bool = False) -> T:
    """x op y, or y op x."""
    a, b = operands(what, x, y)
    return _result(alu(op, b, a) if reflected else alu(op, a, b), x, y)


def _floats(u: UOp) -> UOp:
    """u as a float: integers and bools are f32."""
    return u if u.dtype.is_float else u.cast(DEFAULT_FLOAT)


def _unary(x: T, f: Callable[[UOp], UOp]) -> T:
    """A function of floats."""
    return wrap(f(_floats(x._u)), x)


def _named(x: T, name: str) -> T:
    """A function of curves.py."""
    return wrap(curve(name, _floats(x._u)), x)


def _named_of_two(what: str, name: str, x: T, y: Operand, reflected: bool = False) -> T:
    """A function of curves.py of two operands."""
    a, b = operands(what, x, y, floats=True)
    shape = a.shape or b.shape
    a, b = a.expand(shape), b.expand(shape)
    return _result(curve(name, b, a) if reflected else curve(name, a, b), x, y)


def _truth(u: UOp) -> UOp:
    """Whether a value differs from 0, which NaN does."""
    return u if u.dtype is dtypes.bool else u.ne(0)


class Elementwise(Base):
    """Operators and functions of one element.

    Results have the shape that the operands broadcast to.  Shapes that do not, dtypes that do not
    promote, and numbers that do not fit raise UsageError.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # == is elementwise

    def _rebind(self, value: Operand, what: str) -> None:
        """A new version of its value: core.Tensor knows how memories get one."""
        raise NotImplementedError

    # ---- arithmetic
    def __add__(self, other: Operand) -> Self:
        """Sum; integers wrap."""
        return _binary("add", Ops.ADD, self, other)

    def __radd__(self, other: Operand) -> Self:
        return _binary("add", Ops.ADD, self, other, reflected=True)

    def __sub__(self, other: Operand) -> Self:
        """Difference; integers wrap."""
        return _binary("subtract", Ops.SUB, self, other)

    def __rsub__(self, other: Operand) -> Self:
        return _binary("subtract", Ops.SUB, self, other, reflected=True)

    def __mul__(self, other: Operand) -> Self:
        """Product; integers wrap."""
        return _binary("multiply", Ops.MUL, self, other)

    def __rmul__(self, other: Operand) -> Self:
        return _binary("multiply", Ops.MUL, self, other, reflected=True)

    def __truediv__(self, other: Operand) -> Self:
        """Quotient, correctly rounded; of integers and bools in f32."""
        a, b = operands("divide", self, other, floats=True)
        return _result(a / b, self, other)

    def __rtruediv__(self, other: Operand) -> Self:
        a, b = operands("divide", self, other, floats=True)
        return _result(b / a, self, other)

    def __floordiv__(self, other: Operand) -> Self:
        """Quotient rounded down, as in Python; integers by zero give 0, floats see `floor_quotient`
        in curves.py.  No gradient."""
        return _floor_divide(self, other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return _floor_divide(self, other, reflected=True)

    def __mod__(self, other: Operand) -> Self:
        """What // leaves; it has the sign of the divisor, as in Python.  Integers by zero: 0."""
        return _remainder(self, other)

    def __rmod__(self, other: Operand) -> Self:
        return _remainder(self, other, reflected=True)

    def __divmod__(self, other: Operand) -> tuple[Self, Self]:
        return self // other, self % other

    def __rdivmod__(self, other: Operand) -> tuple[Self, Self]:
        return self.__rfloordiv__(other), self.__rmod__(other)

    def __pow__(self, other: Operand) -> Self:
        """Power.  Of integers exact, wrapping, and not to negative numbers (in a tensor of
        exponents those give what is left of 1 / power: 0, 1 or -1); of floats by multiplication for
        whole numbers up to 8, the square root for 0.5, else see `curves.py`, with the ends of C's
        pow."""
        return _power(self, other)

    def __rpow__(self, other: Operand) -> Self:
        return _power_of_number(other, self)

    def pow(self, exponent: Operand) -> Self:
        """self ** exponent."""
        return _power(self, exponent)

    def __neg__(self) -> Self:
        """Its negative; of unsigned ones modulo 2^bits."""
        return wrap(-self._u, self)

    def __pos__(self) -> Self:
        return wrap(self._u, self)

    def neg(self) -> Self:
        """-self."""
        return -self

    def __abs__(self) -> Self:
        return self.abs()

    def abs(self) -> Self:
        """Its size.  The smallest integer has none in its dtype and stays as it is."""
        u = self._u
        if u.dtype.kind in (Kind.UINT, Kind.BOOL):
            return wrap(u, self)
        if u.dtype.is_float:  # as maximum: -0 and NaN lose their sign, and the slope at 0 is 0
            return wrap(u.maximum(-u), self)
        return wrap((u < 0).where(-u, u), self)

    def square(self) -> Self:
        """self * self."""
        return wrap(self._u * self._u, self)

    def reciprocal(self) -> Self:
        """1 / self."""
        return _unary(self, UOp.recip)

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """self + weight * (end - self)."""
        a, b, w = operands("lerp", self, end, weight, floats=True)
        return _result(a + w * (b - a), self, end, weight)

    # ---- in place: a new version, see `assign`.  Nothing else changes a tensor: whatever gives a
    # tensor gives one of its own, also where the value is the same.
    def __iadd__(self, other: Operand) -> Self:
        self._rebind(self + other, "+=")
        return self

    def __isub__(self, other: Operand) -> Self:
        self._rebind(self - other, "-=")
        return self

    def __imul__(self, other: Operand) -> Self:
        self._rebind(self * other, "*=")
        return self

    def __itruediv__(self, other: Operand) -> Self:
        self._rebind(self / other, "/=")
        return self

    def __ifloordiv__(self, other: Operand) -> Self:
        self._rebind(self // other, "//=")
        return self

    def __imod__(self, other: Operand) -> Self:
        self._rebind(self % other, "%=")
        return self

    def __ipow__(self, other: Operand) -> Self:
        self._rebind(self**other, "**=")
        return self

    def __iand__(self, other: Operand) -> Self:
        self._rebind(self & other, "&=")
        return self

    def __ior__(self, other: Operand) -> Self:
        self._rebind(self | other, "|=")
        return self

    def __ixor__(self, other: Operand) -> Self:
        self._rebind(self ^ other, "^=")
        return self

    def __ilshift__(self, other: Operand) -> Self:
        self._rebind(self << other, "<<=")
        return self

    def __irshift__(self, other: Operand) -> Self:
        self._rebind(self >> other, ">>=")
        return self

    # ---- comparison: bool; false with a NaN, except !=
    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return _binary("equal", Ops.EQ, self, cast("Operand", other))

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return _binary("not_equal", Ops.NE, self, cast("Operand", other))

    def __lt__(self, other: Operand) -> Self:
        return _binary("less", Ops.LT, self, other)

    def __gt__(self, other: Operand) -> Self:
        return _binary("greater", Ops.LT, self, other, reflected=True)

    def __le__(self, other: Operand) -> Self:
        a, b = operands("less_equal", self, other)
        return _result(a <= b, self, other)

    def __ge__(self, other: Operand) -> Self:
        a, b = operands("greater_equal", self, other)
        return _result(a >= b, self, other)

    def isnan(self) -> Self:
        """Whether it is NaN; of integers false."""
        return wrap(self._u.ne(self._u), self)

    def isinf(self) -> Self:
        """Whether it is an infinity; of integers false."""
        if not self.dtype.is_float:
            return wrap(self._u.ne(self._u), self)
        return wrap(self._u.eq(math.inf) | self._u.eq(-math.inf), self)

    def isfinite(self) -> Self:
        """Whether it is neither; of integers true."""
        if not self.dtype.is_float:
            return wrap(self._u.eq(self._u), self)
        return wrap((self._u < math.inf) & (self._u > -math.inf), self)

    def signbit(self) -> Self:
        """Whether its sign is minus, as that of -0.0 is."""
        return wrap(sign_bit(self._u) if self.dtype.is_float else _negative(self._u), self)

    # ---- logic: of what differs from 0
    def logical_not(self) -> Self:
        """Whether it is 0."""
        return wrap(~_truth(self._u), self)

    def logical_and(self, other: Operand) -> Self:
        """Whether both differ from 0."""
        return _logical("logical_and", Ops.AND, self, other)

    def logical_or(self, other: Operand) -> Self:
        """Whether one of them differs from 0."""
        return _logical("logical_or", Ops.OR, self, other)

    def logical_xor(self, other: Operand) -> Self:
        """Whether exactly one of them differs from 0."""
        return _logical("logical_xor", Ops.XOR, self, other)

    # ---- bits: of integers and bools
    def __and__(self, other: Operand) -> Self:
        """Bits that both have."""
        return _binary("bitwise_and", Ops.AND, self, other)

    def __rand__(self, other: Operand) -> Self:
        return _binary("bitwise_and", Ops.AND, self, other, reflected=True)

    def __or__(self, other: Operand) -> Self:
        """Bits that one of them has."""
        return _binary("bitwise_or", Ops.OR, self, other)

    def __ror__(self, other: Operand) -> Self:
        return _binary("bitwise_or", Ops.OR, self, other, reflected=True)

    def __xor__(self, other: Operand) -> Self:
        """Bits that exactly one of them has."""
        return _binary("bitwise_xor", Ops.XOR, self, other)

    def __rxor__(self, other: Operand) -> Self:
        return _binary("bitwise_xor", Ops.XOR, self, other, reflected=True)

    def __invert__(self) -> Self:
        """All bits flipped; of bools the other one."""
        return wrap(~self._u, self)

    def __lshift__(self, other: Operand) -> Self:
        """Bits moved up; by less than 0, or all of them: 0."""
        return _shift("bitwise_left_shift", Ops.SHL, self, other)

    def __rlshift__(self, other: Operand) -> Self:
        return _shift("bitwise_left_shift", Ops.SHL, self, other, reflected=True)

    def __rshift__(self, other: Operand) -> Self:
        """Bits moved down, the sign is kept; by less than 0, or all of them: 0, or -1 of negative
        numbers."""
        return _shift("bitwise_right_shift", Ops.SHR, self, other)

    def __rrshift__(self, other: Operand) -> Self:
        return _shift("bitwise_right_shift", Ops.SHR, self, other, reflected=True)

    def bitwise_and(self, other: Operand) -> Self:
        """self & other."""
        return self & other

    def bitwise_or(self, other: Operand) -> Self:
        """self | other."""
        return self | other

    def bitwise_xor(self, other: Operand) -> Self:
        """self ^ other."""
        return self ^ other

    def bitwise_not(self) -> Self:
        """~self."""
        return ~self

    # ---- dtypes
    def cast(self, dtype: DType) -> Self:
        """The values in another dtype: floats to integers toward zero, saturating, NaN to 0; to
        bool whether they differ from 0; integers wrap; to floats to the nearest, ties to even."""
        check_data(dtype)
        return wrap(self._u.cast(dtype), self)

    def astype(self, dtype: DType) -> Self:
        """`cast`, by the array API's name."""
        return self.cast(dtype)

    def bitcast(self, dtype: DType) -> Self:
        """The same bits read as another dtype of equal size; no gradient."""
        check_data(dtype)
        return wrap(self._u.bitcast(dtype), self)

    # ---- rounding: integers stay as they are; no gradient
    def floor(self) -> Self:
        """The next whole number down."""
        return _rounded(self, UOp.floor)

    def ceil(self) -> Self:
        """The next whole number up."""
        return _rounded(self, UOp.ceil)

    def trunc(self) -> Self:
        """The next whole number toward 0."""
        return _rounded(self, UOp.trunc)

    def round(self) -> Self:
        """The nearest whole number, ties to even."""
        return _rounded(self, UOp.rint)

    def sign(self) -> Self:
        """-1, 0 or 1, of its dtype; NaN stays.  Raises UsageError for bools."""
        if self.dtype is dtypes.bool:
            raise UsageError(f"sign at {here()}: of bools there is none; cast first")
        return _flat(self, _sign)

    # ---- larger, smaller
    def maximum(self, other: Operand) -> Self:
        """The larger; NaN wins, and -0 < +0."""
        return _binary("maximum", Ops.MAX, self, other)

    def minimum(self, other: Operand) -> Self:
        """The smaller; NaN wins, and -0 < +0."""
        return _binary("minimum", Ops.MIN, self, other)

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """Not below min, and not above max, which wins where min is larger; NaN stays."""
        out = +self if min is None else self.maximum(min)
        return out if max is None else out.minimum(max)

    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Self:
        """`clamp`, by the array API's name."""
        return self.clamp(min, max)

    def masked_fill(self, mask: Self, value: Operand) -> Self:
        """value where the mask (bool) is true, else self."""
        return where(mask, value, self)

    def copysign(self, other: Operand) -> Self:
        """Its size with the sign of the other, also of zeros and NaN."""
        return _named_of_two("copysign", "copysign", self, other)

    def hypot(self, other: Operand) -> Self:
        """sqrt(self² + other²), without overflow on the way."""
        return _named_of_two("hypot", "hypot", self, other)

    def logaddexp(self, other: Operand) -> Self:
        """ln(exp(self) + exp(other)), without overflow on the way."""
        return _named_of_two("logaddexp", "log_add", self, other)

    # ---- functions of floats
    def sqrt(self) -> Self:
        """Square root, correctly rounded; NaN below 0."""
        return _unary(self, UOp.sqrt)

    def rsqrt(self) -> Self:
        """1 / sqrt(self)."""
        return _unary(self, lambda u: u.sqrt().recip())

    def exp(self) -> Self:
        """e to that power."""
        return _unary(self, UOp.exp)

    def exp2(self) -> Self:
        """2 to that power."""
        return _unary(self, UOp.exp2)

    def expm1(self) -> Self:
        """exp(self) - 1, with all digits near 0."""
        return _named(self, "expm1")

    def log(self) -> Self:
        """Natural logarithm; -inf of 0, NaN below."""
        return _unary(self, UOp.log)

    def log2(self) -> Self:
        """Logarithm to base 2; -inf of 0, NaN below."""
        return _unary(self, UOp.log2)

    def log10(self) -> Self:
        """Logarithm to base 10; -inf of 0, NaN below."""
        return _unary(self, _log10)

    def log1p(self) -> Self:
        """log(1 + self), with all digits near 0."""
        return _named(self, "log1p")

    def sin(self) -> Self:
        """Sine; NaN of infinities."""
        return _unary(self, UOp.sin)

    def cos(self) -> Self:
        """Cosine; NaN of infinities."""
        return _unary(self, UOp.cos)

    def tan(self) -> Self:
        """Tangent; NaN of infinities."""
        return _unary(self, UOp.tan)

    def asin(self) -> Self:
        """Angle with that sine; NaN beyond 1."""
        return _named(self, "asin")

    def acos(self) -> Self:
        """Angle with that cosine, 0 to pi; NaN beyond 1."""
        return _named(self, "acos")

    def atan(self) -> Self:
        """Angle with that tangent."""
        return _named(self, "atan")

    def atan2(self, other: Operand) -> Self:
        """Angle of the point (other, self), -pi to pi, as C's atan2."""
        return _named_of_two("atan2", "atan2", self, other)

    def sinh(self) -> Self:
        """Hyperbolic sine."""
        return _named(self, "sinh")

    def cosh(self) -> Self:
        """Hyperbolic cosine."""
        return _named(self, "cosh")

    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        return _unary(self, UOp.tanh)

    def asinh(self) -> Self:
        """Number with that hyperbolic sine."""
        return _named(self, "asinh")

    def acosh(self) -> Self:
        """Number with that hyperbolic cosine; NaN below 1."""
        return _named(self, "acosh")

    def atanh(self) -> Self:
        """Number with that hyperbolic tangent; NaN beyond 1."""
        return _named(self, "atanh")

    def erf(self) -> Self:
        """Error function."""
        return _unary(self, UOp.erf)

    # ---- activations
    def relu(self) -> Self:
        """max(self, 0): its gradient needs the output alone."""
        return wrap(self._u.maximum(0), self)

    def leaky_relu(self, slope: float = 0.01) -> Self:
        """self where it is positive, else slope * self."""
        return _unary(self, lambda u: (u > 0.0).where(u, u * _constant(slope, u, "leaky_relu")))

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-self))."""
        return _named(self, "sigmoid")

    def logsigmoid(self) -> Self:
        """log(sigmoid(self))."""
        return _unary(self, lambda u: -curve("softplus", -u))

    def silu(self) -> Self:
        """self * sigmoid(self)."""
        return _named(self, "silu")

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta * self)) / beta."""
        if beta == 1.0:
            return _named(self, "softplus")
        return _unary(self, lambda u: curve("softplus", u * beta) / beta)

    def gelu(self, approximate: Literal["none", "tanh"] = "none") -> Self:
        """self times the share of a normal distribution below it; "tanh": a curve close to that.

        Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
        """
        if approximate not in ("none", "tanh"):
            raise UsageError(
                f"gelu at {here()}: approximate is 'none' or 'tanh', got {approximate!r}"
            )
        return _unary(self, _gelu if approximate == "none" else _in_f32(_gelu_by_tanh))

    def elu(self, alpha: float = 1.0) -> Self:
        """self where it is positive, else alpha * (exp(self) - 1)."""
        return _unary(self, lambda u: (u > 0.0).where(u, curve("expm1", u.minimum(0.0)) * alpha))

    def selu(self) -> Self:
        """elu with the constants that keep mean 0 and variance 1.

        Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
        """
        return self.elu(1.6732632423543772) * 1.0507009873554805

    def hardtanh(self, min: float = -1.0, max: float = 1.0) -> Self:
        """Clamped."""
        return self.clamp(min, max)

    def relu6(self) -> Self:
        """Clamped to 0..6."""
        return self.clamp(0, 6)

    def hardsigmoid(self) -> Self:
        """(self + 3) / 6 clamped to 0..1."""
        return _unary(self, lambda u: (u / 6.0 + 0.5).maximum(0.0).minimum(1.0))

    def hardswish(self) -> Self:
        """self * hardsigmoid(self), 0 below -3."""
        return _unary(self, lambda u: u.maximum(-3.0) * (u + 3.0).maximum(0.0).minimum(6.0) / 6.0)


# ---- graphs
def _constant(value: float, u: UOp, what: str) -> UOp:
    """A number in the dtype of u."""
    return scalar(number_of(value, what), u.dtype, what)


def _in_f32(f: Callable[[UOp], UOp]) -> Callable[[UOp], UOp]:
    """Of narrow floats, computed in f32 and rounded once."""
    return lambda u: f(u.cast(dtypes.f32)).cast(u.dtype) if u.dtype.bits < 32 else f(u)


def _log10(u: UOp) -> UOp:
    return _in_f32(lambda x: x.log() * (1 / math.log(10)))(u)


def _gelu(u: UOp) -> UOp:
    """-20 and below are 0, so that -inf is."""
    if u.dtype.is_float and u.dtype.bits < 32:
        return curve("narrow_gelu", u)
    return u.maximum(-20.0) * ((u * math.sqrt(0.5)).erf() + 1.0) * 0.5


def _gelu_by_tanh(u: UOp) -> UOp:
    near = u.maximum(-20.0).minimum(20.0)
    inner = (near * near * near).fma(0.044715, near) * math.sqrt(2 / math.pi)
    return u.maximum(-20.0) * (inner.tanh() + 1.0) * 0.5


def _rounded(x: T, f: Callable[[UOp], UOp]) -> T:
    return _flat(x, lambda u: f(u) if u.dtype.is_float else u)


def _flat(x: T, f: Callable[[UOp], UOp]) -> T:
    """A function whose slope is 0 wherever there is one: no gradient passes."""
    return fresh(type(x), f(x._u.detach() if x.requires_grad else x._u), x.device)


def _sign(u: UOp) -> UOp:
    one, zero = UOp.const(1, u.dtype), UOp.const(0, u.dtype)
    below = zero if u.dtype.kind is Kind.UINT else (u < 0).where(UOp.const(-1, u.dtype), u)
    if u.dtype.is_float:  # of both zeros it is +0, of NaN the NaN
        below = u.eq(0.0).where(zero, below)
    return (u > 0).where(one, below)


def _negative(u: UOp) -> UOp:
    """Whether an integer is below 0."""
    return u < 0 if u.dtype.kind is Kind.INT else u.ne(u)


def _logical(what: str, op: Ops, x: T, y: Operand) -> T:
    a, b = operands(what, x, y)
    return _result(alu(op, _truth(a), _truth(b)), x, y)


def _shift(what: str, op: Ops, x: T, y: Operand, reflected: bool = False) -> T:
    """The IR shifts by 0 to bits - 1; here by anything."""
    a, n = operands(what, x, y)
    if reflected:
        a, n = n, a
    if not a.dtype.is_data_int:
        raise UsageError(f"{what} at {here()}: integers are shifted, not {a.dtype}")
    bits = a.dtype.bits
    inside = n < bits if n.dtype.kind is Kind.UINT else (n < bits) & (n >= 0)
    if op is Ops.SHL:
        shifted = inside.where(a << (n & (bits - 1)), 0)
    else:
        shifted = a >> inside.where(n, bits - 1)
        if a.dtype.kind is Kind.UINT:
            shifted = inside.where(shifted, 0)
    return _result(shifted, x, y)


def _floor_divide(x: T, y: Operand, reflected: bool = False) -> T:
    a, b = operands("floor_divide", x, y)
    if reflected:
        a, b = b, a
    if a.dtype.is_float:
        with no_grad():
            return _result(_in_f32_of_two(lambda p, q: floor_quotient(p, q)[0], a, b), x, y)
    return _result(a // b, x, y)


def _remainder(x: T, y: Operand, reflected: bool = False) -> T:
    if not result_type(x, _weak(y)).is_float:
        return _binary("remainder", Ops.MOD, x, y, reflected)
    return _named_of_two("remainder", "remainder", x, y, reflected)


def _weak(y: Operand) -> Base | bool | int | float:
    return y if isinstance(y, Base) else number_of(y, "operator")


def _in_f32_of_two(f: Callable[[UOp, UOp], UOp], a: UOp, b: UOp) -> UOp:
    if a.dtype.bits < 32:
        return f(a.cast(dtypes.f32), b.cast(dtypes.f32)).cast(a.dtype)
    return f(a, b)


def _power(x: T, y: Operand) -> T:
    if isinstance(y, Base):
        if result_type(x, y).is_float:
            return _named_of_two("pow", "power", x, y)
        a, b = operands("pow", x, y)
        return _result(_integer_power(a, b), x, y)
    n = number_of(y, "pow")
    dtype = result_type(x, n)
    u = x._u.cast(dtype)
    if dtype is dtypes.bool:
        raise UsageError(f"pow at {here()}: bools have no powers; cast first")
    if not dtype.is_float:
        if n < 0:
            raise UsageError(
                f"pow at {here()}: {dtype} to the power {n} is no integer; cast to a float first"
            )
        return wrap(_multiplied(u, int(n)), x)
    if math.isfinite(n) and n == int(n) and abs(n) <= _FEW:
        return wrap(_in_f32(lambda v: _whole_power(v, int(n)))(u), x)
    if n == 0.5:
        return wrap(u.sqrt(), x)
    return wrap(curve("power", u, scalar(n, dtype, "pow")), x)


def _power_of_number(number: Operand, y: T) -> T:
    """number ** y."""
    if not result_type(y, _weak(number)).is_float:
        b, a = operands("pow", y, number)
        return _result(_integer_power(a.expand(b.shape), b), y)
    if number == 2:
        return y.cast(result_type(y, 2.0)).exp2() if isinstance(y, Elementwise) else y
    return _named_of_two("pow", "power", y, number, reflected=True)


def _whole_power(u: UOp, n: int) -> UOp:
    """A float to a small whole power; of a negative one the reciprocal first, which does not
    overflow where the result does not."""
    if n == 0:
        return UOp.const(1.0, u.dtype, u.shape)
    return _multiplied(u if n > 0 else u.recip(), abs(n))


def _multiplied(u: UOp, n: int) -> UOp:
    """u to the power n >= 0 by squares."""
    out: UOp | None = None
    while n:
        if n & 1:
            out = u if out is None else out * u
        n >>= 1
        if n:
            u = u * u
    return UOp.const(1, u.dtype, u.shape) if out is None else out


def _integer_power(a: UOp, n: UOp) -> UOp:
    """Integers to powers that data hold: a square for each bit of the exponent."""
    out, square = UOp.const(1, a.dtype), a
    for bit in range(n.dtype.bits - (n.dtype.kind is Kind.INT)):
        out = ((n >> bit) & 1).ne(0).where(out * square, out)
        square = square * square
    if n.dtype.kind is Kind.UINT:
        return out
    odd = (n & 1).ne(0)
    ones = a.eq(1).where(a, a.eq(-1).where(odd.where(a, -a), 0))
    return (n < 0).where(ones, out)


# ---- functions of several tensors
def where(condition: T, x: Operand, y: Operand) -> T:
    """x where condition (bool) is true, else y; all three broadcast.

    Raises UsageError for a condition that is no bool tensor.
    """
    if not isinstance(condition, Base) or condition.dtype is not dtypes.bool:
        got = condition.dtype if isinstance(condition, Base) else type(condition).__name__
        raise UsageError(f"where at {here()}: the condition is a bool Tensor, got {got}")
    a, b, c = _choices(condition, x, y)
    return _result(c.where(a, b), condition, x, y)


def _choices(condition: Base, x: Operand, y: Operand) -> tuple[UOp, UOp, UOp]:
    """x and y in their dtype, and the condition, all of one shape."""
    dtype = result_type(_weak(x), _weak(y))
    parts = []
    for v in (x, y):
        if isinstance(v, Base):
            parts.append(v._u.cast(dtype))
        else:
            parts.append(scalar(number_of(v, "where"), dtype, "where"))
    shape = broadcast_shapes("where", *[p.shape for p in parts], condition.shape)
    a, b = (broadcast(p, shape) if p.shape else p for p in parts)
    return a, b, broadcast(condition._u, shape)


def maximum(x: T | Operand, y: T | Operand) -> T:
    """The larger of each pair, of which one is a tensor; NaN wins, and -0 < +0."""
    return _of_either("maximum", Ops.MAX, x, y)


def minimum(x: T | Operand, y: T | Operand) -> T:
    """The smaller of each pair, of which one is a tensor; NaN wins, and -0 < +0."""
    return _of_either("minimum", Ops.MIN, x, y)


def _of_either(what: str, op: Ops, x: T | Operand, y: T | Operand) -> T:
    a, b = operands(what, x, y)  # raises where neither is a tensor
    first, *more = [t for t in (x, y) if isinstance(t, Base)]
    return wrap(alu(op, a, b), cast("T", first), *more)

"""Functions that the IR has no op for, from ops that it has: right at both ends, at 0 and for NaN.

Each is computed by arithmetic that a chain rule must not look into: it picks ranges, reads bits, or
meets an infinity on the branch that is not taken.  So its value is a CURVE node, whose name leads
back here, to the derivative that the function has.  The scheduler sees the value alone.

`curve(name, x...)` is the entry.  f16 and bf16 are computed in f32 and rounded once.  Errors, in
units in the last place (ulp) of f32 and f64, were measured over random bits and ranges with a
library whose exp and log are within 1 ulp:

    all but those below    3
    power                  1 in f32; in f64 4 + |y log2 x| / 32
    narrow_gelu            2^-14 of the result, which is then rounded to 16 bits
    silu                   3 where sigmoid is no denormal, from -87 and -708 on
    log_add                3 of the larger of |x|, |y| and the result
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from uopc.dtype import DType, dtypes
from uopc.passes.exact_math import F64, exp2_of_pair, log2_pair
from uopc.uop.node import UOp

Slope: TypeAlias = Callable[..., UOp]  # (y, x...) -> dy/dx


@dataclass(frozen=True)
class Curve:
    """A function of one or two floats of one dtype, f32 or f64.

    value: from the operands; slopes: dy by d of each operand, from the CURVE node of the value (so
    that it can be used) and the operands.  None: no gradient.
    """

    value: Callable[..., UOp]
    slopes: tuple[Slope | None, ...]


def curve(name: str, *x: UOp) -> UOp:
    """The named function of floats of one dtype; a node that has a derivative."""
    dtype = next(u.dtype for u in x)
    wide = [u.cast(dtypes.f32) if dtype.bits < 32 else u for u in x]
    return CURVES[name].value(*wide).curve(name, *wide).cast(dtype)


def slope(u: UOp, operand: int) -> UOp:
    """The derivative of a CURVE node by one of its operands."""
    name: str = u.arg
    made = CURVES[name].slopes[operand]
    return UOp.const(0.0, u.dtype) if made is None else made(u, *u.src[1:])


# ---- numbers
def _const(value: float, like: UOp) -> UOp:
    return UOp.const(value, like.dtype)


def _size(x: UOp) -> UOp:
    """|x|, also of -0 and NaN: the bits without that of the sign."""
    word = _word(x.dtype)
    return (x.bitcast(word) & (_sign(x.dtype) - 1)).bitcast(x.dtype)


def _word(dtype: DType) -> DType:
    """The unsigned integer of a float's size."""
    return {16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}[dtype.bits]


def _sign(dtype: DType) -> int:
    """The bit of a float's sign."""
    return 1 << (dtype.bits - 1)


def with_sign_of(x: UOp, y: UOp) -> UOp:
    """|x| with the sign of y, whatever they are."""
    word, sign = _word(x.dtype), _sign(x.dtype)
    return ((x.bitcast(word) & (sign - 1)) | (y.bitcast(word) & sign)).bitcast(x.dtype)


def sign_bit(x: UOp) -> UOp:
    """Whether the sign of a float is minus, as that of -0 is."""
    return (x.bitcast(_word(x.dtype)) & _sign(x.dtype)).ne(0)


def _polynomial(z: UOp, coefficients: tuple[float, ...]) -> UOp:
    """c0 + c1 z + c2 z² + ... by Horner's rule."""
    total = _const(coefficients[-1], z)
    for c in reversed(coefficients[:-1]):
        total = total.fma(z, c)
    return total


def _is_inf(x: UOp) -> UOp:
    return _size(x).eq(math.inf)


# ---- exponentials and logarithms
def _expm1(x: UOp) -> UOp:
    """exp(x) - 1.  Near 0 exp rounds away what counts; but (u - 1) / ln(u) varies slowly, and u is
    exactly exp of ln(u): so (u - 1) * (x / ln u).  Source: W. Kahan's trick for interest rates."""
    u = x.exp()
    less = u - 1.0
    near = u.eq(1.0).where(x, less * x / u.eq(1.0).where(1.0, u.log()))
    return (_size(x) < 1.0).where(near, less)


def _log1p(x: UOp) -> UOp:
    """ln(1 + x): ln(u) * (x / (u - 1)) with u = 1 + x as rounded."""
    u = x + 1.0
    less = u - 1.0
    near = u.log() * (x / less.eq(0.0).where(1.0, less))
    return less.eq(0.0).where(x, x.eq(math.inf).where(x, near))


def _sigmoid(x: UOp) -> UOp:
    """1 / (1 + exp(-x)), with an exp that is at most 1."""
    e = (-_size(x)).exp()
    return (x < 0.0).where(e, 1.0) / (e + 1.0)


def _softplus(x: UOp) -> UOp:
    """ln(1 + exp(x))."""
    return x.maximum(0.0) + _log1p((-_size(x)).exp())


def _silu(x: UOp) -> UOp:
    """x * sigmoid(x); -0 at -inf."""
    return x.maximum(-_FAR) * _sigmoid(x)


#: where sigmoid is 0 or 1 of every float, and so is its product with this
_FAR = 2000.0


def _near(x: UOp) -> UOp:
    """x, but no further away than that."""
    return x.maximum(-_FAR).minimum(_FAR)


def _log_add(x: UOp, y: UOp) -> UOp:
    """ln(exp(x) + exp(y)); equal ones, infinite too, give x + ln 2."""
    apart = x.eq(y).where(_const(0.0, x), -_size(x - y))
    return x.maximum(y) + _log1p(apart.exp())


# ---- hyperbolic functions
def _overflow(dtype: DType) -> float:
    """From here on exp may be inf, and its half is not yet."""
    return 88.0 if dtype is dtypes.f32 else 709.0


def _half_exp(size: UOp) -> UOp:
    """exp(size) / 2 as (exp(size/2) / 2) * exp(size/2): inf only where the result is."""
    root = (size * 0.5).exp()
    return root * 0.5 * root


def _sinh(x: UOp) -> UOp:
    """With e = exp(|x|) - 1, (e + e / (e + 1)) / 2."""
    size = _size(x)
    e = _expm1(size)
    near = (e + e / (e + 1.0)) * 0.5
    return with_sign_of((size < _overflow(x.dtype)).where(near, _half_exp(size)), x)


def _cosh(x: UOp) -> UOp:
    size = _size(x)
    e = size.exp()
    return (size < _overflow(x.dtype)).where((e + 1.0 / e) * 0.5, _half_exp(size))


def _asinh(x: UOp) -> UOp:
    """ln(x + sqrt(x² + 1)): log1p(x + x² / (1 + sqrt(1 + x²))), ln(2x) where x² is beyond 1."""
    size = _size(x)
    square = size * size
    near = _log1p(size + square / ((square + 1.0).sqrt() + 1.0))
    return with_sign_of((size < _far(x.dtype)).where(near, size.log() + math.log(2)), x)


def _acosh(x: UOp) -> UOp:
    """ln(x + sqrt(x² - 1)), with t = x - 1; NaN below 1."""
    t = (x < 1.0).where(_const(math.nan, x), x - 1.0)
    near = _log1p(t + (t * 2.0 + t * t).sqrt())
    return (x < _far(x.dtype)).where(near, x.log() + math.log(2))


def _far(dtype: DType) -> float:
    """From here on 1 is nothing beside x²."""
    return 2.0**13 if dtype is dtypes.f32 else 2.0**28


def _atanh(x: UOp) -> UOp:
    """ln((1 + x) / (1 - x)) / 2."""
    size = _size(x)
    return with_sign_of(_log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


# ---- the share of a normal distribution
#: -log2(erfc(t / sqrt 2)) / t in t, up to 14, from scratch/12_coefficients.py
GELU = (
    *(1.1509069, 0.4591175, 0.05363715, -0.008525429, 0.000987102),
    *(-7.8995035e-05, 4.0964865e-06, -1.2306943e-07, 1.6197472e-09),
)


def _narrow_gelu(x: UOp) -> UOp:
    """x times the share of a normal distribution below it, for a result of 16 bits: relative to it
    the error is below 2^-14.  One exponential, where erf has two ranges to choose from."""
    t = _size(x).minimum(14.0)
    beyond = (-t.fma(_polynomial(t, GELU), _const(1.0, x))).exp2()  # half of erfc
    return x.maximum(-20.0) * (x > 0.0).where(1.0 - beyond, beyond)


def _gelu_slope(y: UOp, x: UOp) -> UOp:
    """The share below x, and x times its density there."""
    near = x.maximum(-20.0).minimum(20.0)
    share = ((near * math.sqrt(0.5)).erf() + 1.0) * 0.5
    return share + near * (near * near * -0.5).exp() / math.sqrt(2 * math.pi)


# ---- angles
#: (arctan(t) / t - 1) / t² in t², up to tan(pi/8), from scratch/12_coefficients.py
ATAN: dict[DType, tuple[float, ...]] = {
    dtypes.f32: (-0.33333316, 0.19998528, -0.14244391, 0.10599167, -0.060900427),
    dtypes.f64: (
        *(-0.333333333333332, 0.19999999999953677, -0.14285714280200468, 0.11111110783557442),
        *(-0.0909089775979227, 0.07692060256520618, -0.06663104677229284, 0.05847895339217535),
        *(-0.050393392087054074, 0.03806563175270275, -0.01790859804942012),
    ),
}


def _split(value: float, low: float, x: UOp) -> tuple[UOp, float]:
    """A constant in two parts, for the dtype of x: value rounded, and what is missing.

    value + low is the constant to more than the bits of f64.
    """
    high = _const(value, x)
    rounded = high.value
    return high, (value - rounded) + low if x.dtype is dtypes.f32 else low


def _atan_of_size(size: UOp) -> UOp:
    """arctan of what is not negative: of -1/x from tan(3 pi/8) on, of (x - 1) / (x + 1) from
    tan(pi/8) on, and what these turn by in two parts."""
    far, middle = size > math.tan(3 * math.pi / 8), size > math.tan(math.pi / 8)
    over = far.where(_const(-1.0, size), middle.where(size - 1.0, size))
    under = far.where(size, middle.where(size + 1.0, 1.0))
    t = over / under
    z = t * t
    half, half_low = _split(math.pi / 2, 6.123233995736766e-17, size)
    quarter, quarter_low = _split(math.pi / 4, 3.061616997868383e-17, size)
    turn = far.where(half, middle.where(quarter, 0.0))
    low = far.where(_const(half_low, size), middle.where(_const(quarter_low, size), 0.0))
    curved = (t * z).fma(_polynomial(z, ATAN[size.dtype]), low)
    return turn + (t + curved)


def _atan(x: UOp) -> UOp:
    return with_sign_of(_atan_of_size(_size(x)), x)


def _asin(x: UOp) -> UOp:
    """arctan(x / sqrt((1 - x)(1 + x))); NaN beyond 1."""
    size = _size(x)
    return with_sign_of(_atan_of_size(size / ((1.0 - size) * (size + 1.0)).sqrt()), x)


def _acos(x: UOp) -> UOp:
    """2 arctan(sqrt((1 - x) / (1 + x))); NaN beyond 1."""
    return _atan_of_size(((1.0 - x) / (x + 1.0)).sqrt()) * 2.0


def _atan2(y: UOp, x: UOp) -> UOp:
    """The angle of (x, y): of the four quadrants, signed zeros and infinities as C's atan2."""
    up, right = _size(y), _size(x)
    both_inf = up.eq(math.inf) & right.eq(math.inf)
    both_zero = up.eq(0.0) & right.eq(0.0)
    over = both_inf.where(_const(1.0, x), up)
    under = both_inf.where(_const(1.0, x), both_zero.where(_const(1.0, x), right))
    steep = over > under
    angle = _atan_of_size(steep.where(under, over) / steep.where(over, under))
    half, half_low = _split(math.pi / 2, 6.123233995736766e-17, x)
    whole, whole_low = _split(math.pi, 1.2246467991473532e-16, x)
    angle = steep.where(half - (angle - half_low), angle)
    angle = sign_bit(x).where(whole - (angle - whole_low), angle)
    any_nan = x.ne(x) | y.ne(y)
    return any_nan.where(_const(math.nan, x), with_sign_of(angle, y))


def _hypot(x: UOp, y: UOp) -> UOp:
    """sqrt(x² + y²) without overflow on the way; an infinity beats a NaN."""
    a, b = _size(x), _size(y)
    large, small = a.maximum(b), a.minimum(b)
    ratio = small / large.eq(0.0).where(1.0, large)
    value = large * (ratio * ratio + 1.0).sqrt()
    return (a.eq(math.inf) | b.eq(math.inf)).where(_const(math.inf, x), value)


# ---- powers
def _power(x: UOp, y: UOp) -> UOp:
    """x ** y by exp2(y log2 |x|); f32 in f64, f64 with a logarithm in two parts.  Ends as C's pow.

    Of a negative x only whole powers exist, and odd ones are negative; 1 to any power and any to
    the power 0 are 1, NaN too.
    """
    size = _size(x)
    if x.dtype is dtypes.f32:
        d = dtypes.f64
        value = (size.cast(d).log2() * y.cast(d)).exp2().cast(x.dtype)
    else:
        value = _power_of_size(size, y)
    whole = y.rint().eq(y)
    odd = whole & (y * 0.5).trunc().ne(y * 0.5)
    value = (odd & sign_bit(x)).where(-value, value)
    nowhere = (x < 0.0) & x.ne(-math.inf) & ~whole
    value = nowhere.where(_const(math.nan, x), value)
    one = y.eq(0.0) | x.eq(1.0) | (x.eq(-1.0) & _is_inf(y))
    return one.where(_const(1.0, x), value)


def _power_of_size(size: UOp, y: UOp) -> UOp:
    """size ** y in f64: log2 in two parts, their product with y in two parts, exp2 of those."""
    high, low = log2_pair(size, F64)
    product = high * y
    lost = high.fma(y, -product) + low * y
    inside = _size(product) < 2000.0  # beyond it there is nothing to add to
    return exp2_of_pair(product, inside.where(lost, 0.0), F64)


def _power_by_x(u: UOp, x: UOp, y: UOp) -> UOp:
    return y.eq(0.0).where(_const(0.0, x), y * curve("power", x, y - 1.0))


def _power_by_y(u: UOp, x: UOp, y: UOp) -> UOp:
    """u ln(x); 0 where x is 0 and stays it."""
    nothing = x.eq(0.0) & (y >= 0.0)
    return nothing.where(_const(0.0, x), u * nothing.where(1.0, x).log())


# ---- division of floats
def floor_quotient(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    """(x // y, x % y) as Python has them: the remainder has the sign of y.

    f32 in f64.  Exact while |x / y| < 2^53; from there on the quotient is the rounded x / y and the
    remainder 0.  By 0 they are x / y and NaN.
    """
    dtype = x.dtype
    if dtype is not dtypes.f64:
        x, y = x.cast(dtypes.f64), y.cast(dtypes.f64)
    ratio = x / y
    q = ratio.floor()
    endless = _is_inf(y)
    r = endless.where(x, (-q).fma(y, x))  # exact, and one y too low where the ratio rounded up
    q = endless.where(_const(0.0, x), q)
    low = r.ne(0.0) & sign_bit(r).ne(sign_bit(y))
    q, r = low.where(q - 1.0, q), low.where(r + y, r)
    large = _size(ratio) >= 2.0**53
    q, r = large.where(ratio, q), large.where(_const(0.0, x), r)
    q = q.eq(0.0).where(with_sign_of(_const(0.0, x), ratio), q)
    r = r.eq(0.0).where(with_sign_of(_const(0.0, x), y), r)
    nan, zero = x.ne(x) | y.ne(y), y.eq(0.0)
    none = _const(math.nan, x)
    q = (nan | (_is_inf(x) & ~zero)).where(none, q)
    r = (nan | _is_inf(x) | zero).where(none, r)
    return q.cast(dtype), r.cast(dtype)


def _sign_slope(u: UOp, x: UOp, y: UOp) -> UOp:
    return sign_bit(x).eq(sign_bit(y)).where(_const(1.0, x), -1.0)


CURVES: dict[str, Curve] = {
    "expm1": Curve(_expm1, (lambda u, x: u + 1.0,)),
    "log1p": Curve(_log1p, (lambda u, x: 1.0 / (x + 1.0),)),
    "sigmoid": Curve(_sigmoid, (lambda u, x: u * (1.0 - u),)),
    "softplus": Curve(_softplus, (lambda u, x: curve("sigmoid", x),)),
    "silu": Curve(
        _silu,
        (lambda u, x: curve("sigmoid", x) * (_near(x) * curve("sigmoid", -x) + 1.0),),
    ),
    "narrow_gelu": Curve(_narrow_gelu, (_gelu_slope,)),
    "log_add": Curve(
        _log_add,
        (lambda u, x, y: curve("sigmoid", x - y), lambda u, x, y: curve("sigmoid", y - x)),
    ),
    "sinh": Curve(_sinh, (lambda u, x: curve("cosh", x),)),
    "cosh": Curve(_cosh, (lambda u, x: curve("sinh", x),)),
    "asinh": Curve(_asinh, (lambda u, x: 1.0 / (x * x + 1.0).sqrt(),)),
    "acosh": Curve(_acosh, (lambda u, x: 1.0 / ((x - 1.0) * (x + 1.0)).sqrt(),)),
    "atanh": Curve(_atanh, (lambda u, x: 1.0 / ((1.0 - x) * (x + 1.0)),)),
    "atan": Curve(_atan, (lambda u, x: 1.0 / (x * x + 1.0),)),
    "asin": Curve(_asin, (lambda u, x: 1.0 / ((1.0 - x) * (x + 1.0)).sqrt(),)),
    "acos": Curve(_acos, (lambda u, x: -1.0 / ((1.0 - x) * (x + 1.0)).sqrt(),)),
    "atan2": Curve(
        _atan2,
        (lambda u, y, x: x / (x * x + y * y), lambda u, y, x: -y / (x * x + y * y)),
    ),
    "hypot": Curve(_hypot, (lambda u, x, y: x / u, lambda u, x, y: y / u)),
    "power": Curve(_power, (_power_by_x, _power_by_y)),
    "copysign": Curve(with_sign_of, (_sign_slope, None)),
    "remainder": Curve(
        lambda x, y: floor_quotient(x, y)[1],
        (lambda u, x, y: _const(1.0, x), lambda u, x, y: -floor_quotient(x, y)[0]),
    ),
}

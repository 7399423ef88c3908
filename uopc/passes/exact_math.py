"""exp, log, sin and their kin by arithmetic that every device rounds alike.  LOOPS -> LOOPS.

Here because: earlier passes weigh a function as one dear op; `legalise` stays the last one.
Before: EXP2(x)      After: 2^n * (1 + r + r² * polynomial(r)) in FMAs, n = rint(x), r = (x-n) ln 2

Only with Numerics.exact_math.  + - * / SQRT, FMA, casts and integer work are correctly rounded on
every device, so they stay as they are, and what is built from them has the same bits everywhere.
No library is called and no memory is read.  Denormals, infinities, NaN and -0 are those of the
function; every argument is reduced with as many bits of 2/pi as it needs.  f16 and bf16 are
computed in f32 and rounded once.

Source of the coefficients: `scratch/12_coefficients.py` computes them.  The ideas: Cody and Waite,
"Software Manual for the Elementary Functions", 1980 (ranges in two parts); Payne and Hanek,
"Radian reduction for trigonometric functions", SIGNUM 1983; Dekker, "A floating-point technique for
extending the available precision", 1971 (sums and products in two parts).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from uopc.dtype import DType, dtypes
from uopc.kernel import UNASKED, Fired
from uopc.uop.node import UOp, derive, inherit, toposort
from uopc.uop.ops import TRANSCENDENTAL, Ops

Polynomial: TypeAlias = tuple[float, ...]  # coefficients, lowest first
Two: TypeAlias = tuple[float, float]  # a number as the sum of two floats
Pair: TypeAlias = tuple[UOp, UOp]  # a value as a sum, the second much smaller


@dataclass(frozen=True)
class Format:
    """A float dtype: its bits, and the numbers that its functions are computed from.

    word, signed: integers of its size; mantissa: stored bits; bias: of the exponent; ln2: the first
    part has as many zeros at its end as an exponent has bits; per_ln2: 1 / ln 2; half_pi: pi / 2;
    exp_ends: beyond them exp is 0 and inf; tanh_end, erf_end: from there they are 1.
    """

    dtype: DType
    word: DType
    signed: DType
    mantissa: int
    bias: int
    ln2: Two
    per_ln2: Two
    half_pi: Two
    exp_ends: Two
    tanh_end: float
    erf_end: float
    exp: Polynomial  # (e^r - 1 - r) / r^2
    log: Polynomial  # (2 artanh(s) - 2s) / s^3, in s^2
    sin: Polynomial  # (sin r - r) / r^3, in r^2
    cos: Polynomial  # (cos r - 1 + r^2/2) / r^4, in r^2
    erf: Polynomial  # erf(x) / x - 1, in x^2
    log_erfc: Polynomial  # ln(erfc(1 + t))

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.word.bits - 1)


F32 = Format(
    dtypes.f32,
    dtypes.u32,
    dtypes.i32,
    mantissa=23,
    bias=127,
    ln2=(0.693145751953125, 1.4286068e-06),
    per_ln2=(1.442695, 1.925963e-08),
    half_pi=(1.5707964, -4.371139e-08),
    exp_ends=(-105.0, 89.0),
    tanh_end=10.0,
    erf_end=4.0,
    exp=(0.5, 0.16666667, 0.041666493, 0.008333222, 0.0013933191, 0.00019932659),
    log=(0.66666776, 0.39977583, 0.29870796),
    sin=(-0.16666655, 0.008332189, -0.00019518292),
    cos=(0.041666646, -0.001388731, 2.4432327e-05),
    erf=(
        *(0.12837917, -0.37612626, 0.11283579, -0.026853347),
        *(0.005187162, -0.0007997853, 7.806903e-05),
    ),
    log_erfc=(
        *(-1.8496056, -2.6389608, -0.84324, -0.040628783, 0.007027494),
        *(0.0029763973, -0.004036435, 0.001837551, -0.0003101568),
    ),
)
F64 = Format(
    dtypes.f64,
    dtypes.u64,
    dtypes.i64,
    mantissa=52,
    bias=1023,
    ln2=(0.6931471805598903, 5.497923018708371e-14),
    per_ln2=(1.4426950408889634, 2.0355273740931033e-17),
    half_pi=(1.5707963267948966, 6.123233995736766e-17),
    exp_ends=(-746.0, 710.0),
    tanh_end=20.0,
    erf_end=6.0,
    exp=(
        *(0.5, 0.16666666666666677, 0.04166666666666667, 0.00833333333332138),
        *(0.0013888888888878735, 0.00019841269886835443, 2.480158736735977e-05),
        *(2.755724300045243e-06, 2.7557166021836823e-07, 2.5109694414919704e-08),
        2.0978606790477023e-09,
    ),
    log=(
        *(0.6666666666666734, 0.39999999999416663, 0.28571428742022414, 0.22222198605708493),
        *(0.18183562813284126, 0.1531408592719082, 0.14795621358684907),
    ),
    sin=(
        *(-0.1666666666666663, 0.008333333333321842, -0.00019841269829360816),
        *(2.7557313539625236e-06, -2.505073462089342e-08, 1.5895450679794692e-10),
    ),
    cos=(
        *(0.041666666666666595, -0.0013888888888873342, 2.4801587289002032e-05),
        *(-2.7557314217005615e-07, 2.08757053886709e-09, -1.1358748715907037e-11),
    ),
    erf=(
        *(0.1283791670955126, -0.376126389031841, 0.11283791670971109, -0.026866170648035224),
        *(0.00522397765275067, -0.0008548328540137713, 0.00012055386386005112),
        *(-1.4926886871883113e-05, 1.6481157417790952e-06, -1.6558292589082992e-07),
        *(1.6021804096003002e-08, -1.6500648159567231e-09, 1.4408715995484233e-10),
    ),
    log_erfc=(
        *(-1.8496055099332482, -2.638967514234796, -0.8431072563581494, -0.041561098055425266),
        *(0.01003382555578889, -0.0019779040099317307, 0.00023732994516252506),
        *(2.625125918588065e-05, -2.7091132587119623e-05, 9.481125513906868e-06),
        *(-1.8796763457969092e-06, -4.983653532698652e-08, 2.5517332699144637e-07),
        *(-1.5075043138586496e-07, 6.2059693330963e-08, -1.9861004245301545e-08),
        *(4.9043132077840245e-09, -8.957779677776353e-10, 1.1304645379384832e-10),
        *(-8.747302965233852e-12, 3.1136740317864075e-13),
    ),
)

#: 2/pi, cut behind its 1168th bit
TWO_OVER_PI_BITS = 1168
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d192"
    "1cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05"
    "980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f"
    "8d5d085603",
    16,
)


def exact_math(root: UOp, fired: Fired = UNASKED) -> UOp:
    """LOOPS kernel without transcendental ops."""
    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple([memo[s] for s in u.src])
        if u.op in TRANSCENDENTAL:
            memo[u] = inherit(_function(u.op, src[0]), u)
            fired.add(f"arithmetic-for-{u.op.name.lower()}")
        else:
            memo[u] = u if src == u.src else derive(u, src)
    return memo[root]


def _function(op: Ops, x: UOp) -> UOp:
    """The value of a transcendental op, of the dtype of x."""
    of = F64 if x.dtype is dtypes.f64 else F32
    return FUNCTIONS[op](x.cast(of.dtype), of).cast(x.dtype)


# ---- numbers
def _polynomial(x: UOp, coefficients: Polynomial) -> UOp:
    """c0 + c1 x + c2 x² + ... by Horner's rule."""
    total = UOp.const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        total = total.fma(x, c)
    return total


def _product(x: UOp, constant: float) -> Pair:
    """x * constant in two parts: FMA gives what the rounding of a product took."""
    high = x * constant
    return high, x.fma(constant, -high)


def _quotient(over: Pair, under: Pair) -> UOp:
    """over / under of numbers in two parts: a first quotient, and what it leaves."""
    one_under = under[0].recip()
    first = over[0] * one_under
    rest = (-first).fma(under[0], over[0]) + (over[1] - first * under[1])
    return rest.fma(one_under, first)


def _nearest(x: UOp, of: Format) -> Pair:
    """The whole number nearest to x (small), as a float and as an integer.

    1.5 * 2^mantissa + x has no bits behind the point: its last ones are those of the number.
    """
    shift = UOp.const(1.5 * 2.0**of.mantissa, of.dtype)
    moved = x + shift
    return moved - shift, moved.bitcast(of.signed) - shift.arg.bits


def _power(n: UOp, of: Format) -> UOp:
    """2^n as a float, for an n that gives a normal one."""
    return ((n + of.bias) << of.mantissa).bitcast(of.dtype)


def _scaled(x: UOp, n: UOp, of: Format) -> UOp:
    """x * 2^n with one rounding: the first of two steps is exact, the second may be denormal."""
    half = n >> 1
    return x * _power(half, of) * _power(n - half, of)


def _clamp(x: UOp, low: float, high: float) -> UOp:
    """x within low..high; a NaN stays."""
    return (x < low).where(low, (x > high).where(high, x))


def _size_and_sign(x: UOp, of: Format) -> Pair:
    """|x|, and the bit of its sign as a word."""
    bits = x.bitcast(of.word)
    return (bits & (of.sign - 1)).bitcast(of.dtype), bits & of.sign


def _signed(x: UOp, sign: UOp, of: Format) -> UOp:
    """|x| with this bit as its sign."""
    return ((x.bitcast(of.word) & (of.sign - 1)) | sign).bitcast(of.dtype)


# ---- powers
def _reduced(x: UOp, of: Format) -> Pair:
    """(r, n) with x = n ln 2 + r and |r| <= ln 2 / 2."""
    k, n = _nearest(x * of.per_ln2[0], of)
    return k.fma(-of.ln2[1], k.fma(-of.ln2[0], x)), n


def _near_one(r: UOp, of: Format) -> UOp:
    """exp(r) for |r| <= ln 2 / 2."""
    return (r * r).fma(_polynomial(r, of.exp), r) + 1.0


def _exp2(x: UOp, of: Format) -> UOp:
    return exp2_of_pair(x, None, of)


def exp2_of_pair(x: UOp, more: UOp | None, of: Format) -> UOp:
    """2^(x + more) for a `more` of the size of a rounding error of x; 0 and inf beyond the ends."""
    lowest = of.bias + of.mantissa + 2
    x = _clamp(x, -float(lowest), of.bias + 2.0)
    k, n = _nearest(x, of)
    part = x - k
    if more is not None:
        part = part + more
    return _scaled(_near_one(part.fma(of.ln2[0], part * of.ln2[1]), of), n, of)


def _exp(x: UOp, of: Format) -> UOp:
    r, n = _reduced(_clamp(x, *of.exp_ends), of)
    return _scaled(_near_one(r, of), n, of)


def _tanh(x: UOp, of: Format) -> UOp:
    """-t / (2 + t) with t = exp(-2|x|) - 1, which has no digits to lose, in two parts."""
    size, sign = _size_and_sign(x, of)
    ends = -2.0 * of.tanh_end
    twice = size * -2.0
    r, n = _reduced((twice < ends).where(ends, twice), of)
    curve = r * r * _polynomial(r, of.exp)
    bent = r + curve  # exp(r) - 1
    scale = _power(n, of)
    whole, part = scale - 1.0, scale * bent
    t = whole + part
    low = (whole - t) + part + (scale - (whole + 1.0)) + scale * ((r - bent) + curve)
    under = t + 2.0
    return _signed(_quotient((t, low), (under, (2.0 - under) + t + low)), sign, of)


def _erf(x: UOp, of: Format) -> UOp:
    """x + x * polynomial(x²) up to 1, beyond it 1 - exp(ln(erfc))."""
    size, sign = _size_and_sign(x, of)
    near = x.fma(_polynomial(x * x, of.erf), x)
    t = (size > of.erf_end).where(of.erf_end, size) - 1.0
    r, n = _reduced(_polynomial(t, of.log_erfc), of)
    erfc = _near_one(r, of) * _power(n, of)
    return (size < 1.0).where(near, _signed(1.0 - erfc, sign, of))


# ---- logarithms
def _log_parts(x: UOp, of: Format) -> tuple[UOp, UOp, UOp]:
    """(k, high, low) with ln x = k ln 2 + high + low, for x > 0.

    With s = f / (2 + f), ln(1 + f) is 2 artanh(s) = f - f²/2 + s * (f²/2 + s² * polynomial(s²)).
    """
    k, f = _scale_and_rest(x, of)
    half_square = f * 0.5 * f
    s = f / (f + 2.0)
    z = s * s
    high = f - half_square
    low = ((f - high) - half_square) + s * z.fma(_polynomial(z, of.log), half_square)
    return k, high, low


def _scale_and_rest(x: UOp, of: Format) -> Pair:
    """(k, f) with x = 2^k * (1 + f) and 1 + f from sqrt(1/2) to sqrt(2), for x > 0."""
    more = of.mantissa + 1  # bits that make a denormal normal
    denormal = x < 2.0 ** (1 - of.bias)
    bits = denormal.where(x * 2.0**more, x).bitcast(of.signed)
    root = UOp.const(math.sqrt(0.5), of.dtype).arg.bits
    n = (bits - root) >> of.mantissa
    f = (bits - (n << of.mantissa)).bitcast(of.dtype) - 1.0
    return (n - denormal.where(UOp.const(more, of.signed), 0)).cast(of.dtype), f


def _log_ends(x: UOp, log: UOp, of: Format) -> UOp:
    """-inf for zeros, NaN below them and for NaN, inf for inf, else log."""
    not_positive = x.eq(0.0).where(UOp.const(-math.inf, of.dtype), math.nan)
    return (x > 0.0).where((x < math.inf).where(log, x), not_positive)


def _log(x: UOp, of: Format) -> UOp:
    k, high, low = _log_parts(x, of)
    whole = k * of.ln2[0]  # exact
    total = whole + high
    return _log_ends(x, total + ((whole - total) + high + k.fma(of.ln2[1], low)), of)


def _log2(x: UOp, of: Format) -> UOp:
    k, high, low = _log_parts(x, of)
    part, more = _product(high, of.per_ln2[0])
    more = more + high.fma(of.per_ln2[1], low * of.per_ln2[0])
    total = k + part
    return _log_ends(x, total + ((k - total) + part + more), of)


def log2_pair(x: UOp, of: Format) -> Pair:
    """log2(x) to some 8 bits more than a float has: what is added is finite also at the ends.

    As `_log_parts`, but ln(1 + f) is 2s and what is far smaller, with s in two parts.
    """
    k, f = _scale_and_rest(x, of)
    under = f + 2.0
    s = f / under
    lost = (-s).fma(under, f) - s * (f - (under - 2.0))
    z = s * s
    low = (s * z).fma(_polynomial(z, of.log), lost * 2.0 / under)
    part, more = _product(s * 2.0, of.per_ln2[0])
    more = more + (s * 2.0).fma(of.per_ln2[1], low * of.per_ln2[0])
    total = k + part
    rest = (k - total) + part + more
    log = total + rest
    return _log_ends(x, log, of), (total - log) + rest


# ---- angles
def _angle(x: UOp, of: Format) -> tuple[UOp, Pair]:
    """(n, r) with |x| = n pi/2 + r modulo 2 pi: n a word of 0..3, |r| <= pi/4 in two parts."""
    size, _ = _size_and_sign(x, of)
    small = size < math.pi / 4
    high, low = _quarter_turns(size, of)
    n = ((high + (1 << 61)) >> 62).cast(of.word)  # to the nearest: the rest is signed
    rest, scale = high << 2, 2.0**-64
    if low is not None:
        rest, low = rest | (low >> 62), low << 2
    rest = rest.bitcast(dtypes.i64)
    first = rest.cast(of.dtype)
    second = (rest - first.cast(dtypes.i64)).cast(of.dtype)
    if low is not None:
        second = low.cast(of.dtype).fma(scale, second)
    r, more = _product(first, of.half_pi[0] * scale)
    more = more + first.fma(of.half_pi[1] * scale, second * (of.half_pi[0] * scale))
    return small.where(UOp.const(0, of.word), n), (small.where(size, r), small.where(0.0, more))


def _quarter_turns(size: UOp, of: Format) -> tuple[UOp, UOp | None]:
    """size * 2/pi modulo 4 as an integer of 64 or 128 bits, in units of 2^-62 or 2^-126.

    size >= 1/2 is m * 2^(s - mantissa - 1) with s = 0, 1, ...  What the bits of 2/pi in front of
    place s contribute is a multiple of 4; a window of 2 or 3 words behind it is what is needed.
    """
    bits = size.bitcast(of.word)
    hidden = 1 << of.mantissa
    m = ((bits & (hidden - 1)) | hidden).cast(dtypes.u64)
    s = ((bits >> of.mantissa) - (of.bias - 1)).cast(dtypes.u64)
    first = 62 - of.mantissa - 1
    if of is F32:
        high, low = _window(s, first, 2, most=128)
        return m * high + (m * (low >> 32) >> 32), None
    high, middle, low = _window(s, first, 3, most=1024)
    under = m * middle
    below = under + _high_product(m, low)
    return m * high + _high_product(m, middle) + (below < under).cast(dtypes.u64), below


def _window(s: UOp, first: int, count: int, most: int) -> list[UOp]:
    """`count` words of 2/pi; its bit number first + s, 0 <= s <= most, is the last of word 0.

    Constants are chosen by halving: where a bit of s // 64 is set, words move up by that bit.
    """
    words = [_word_of_two_over_pi(first + 64 * i) for i in range(most // 64 + count)]
    step = 1 << (most // 64).bit_length() - 1
    while step:
        moves = (s & (64 * step)).ne(0)
        kept = min(count + step, len(words))  # as far as the steps that follow reach
        words = [
            moves.where(words[i + step], words[i]) if i + step < len(words) else words[i]
            for i in range(kept)
        ]
        step //= 2
    inside = s & 63
    rest = inside ^ 63  # 63 - inside: a shift by 64 has no meaning
    return [(words[i] << inside) | (words[i + 1] >> 1 >> rest) for i in range(count)]


def _word_of_two_over_pi(last: int) -> UOp:
    """64 bits of 2/pi; the last one counts 2^-last."""
    return UOp.const((TWO_OVER_PI >> (TWO_OVER_PI_BITS - last)) % 2**64, dtypes.u64)


def _high_product(m: UOp, w: UOp) -> UOp:
    """The upper word of m * w; m has at most 53 bits."""
    low = 2**32 - 1
    m1, m0, w1, w0 = m >> 32, m & low, w >> 32, w & low
    middle = m1 * w0 + (m0 * w0 >> 32)
    return m1 * w1 + (middle >> 32) + (m0 * w1 + (middle & low) >> 32)


def _sine(r: Pair, of: Format) -> Pair:
    """sin(r) for |r| <= pi/4."""
    x, more = r
    z = x * x
    cubic = z * x * _polynomial(z, of.sin) + z.fma(-0.5 * more, more)
    high = x + cubic
    return high, (x - high) + cubic


def _cosine(r: Pair, of: Format) -> Pair:
    """cos(r) for |r| <= pi/4."""
    x, more = r
    z = x * x
    half = z * 0.5
    top = 1.0 - half
    lost = x.fma(more, x.fma(x, -z) * 0.5)
    rest = ((1.0 - top) - half) + (z * z).fma(_polynomial(z, of.cos), -lost)
    high = top + rest
    return high, (top - high) + rest


def _sin(x: UOp, of: Format) -> UOp:
    n, r = _angle(x, of)
    sign = _size_and_sign(x, of)[1]
    return _flipped(x, _on_circle(n, r, of), sign ^ _lower_half(n, of), of)


def _cos(x: UOp, of: Format) -> UOp:
    n, r = _angle(x, of)
    return _flipped(x, _on_circle(n + 1, r, of), _lower_half(n + 1, of), of)


def _tan(x: UOp, of: Format) -> UOp:
    """sin / cos, or -cos / sin where n is odd."""
    n, r = _angle(x, of)
    odd = (n & 1).ne(0)
    both = list(zip(_sine(r, of), _cosine(r, of), strict=True))
    over = [odd.where(c, s) for s, c in both]
    under = [odd.where(s, c) for s, c in both]
    value = _quotient((over[0], over[1]), (under[0], under[1]))
    return _flipped(x, value, _size_and_sign(x, of)[1] ^ (n << (of.word.bits - 1)), of)


def _on_circle(n: UOp, r: Pair, of: Format) -> UOp:
    """sin(n pi/2 + r) but for its sign."""
    return (n & 1).ne(0).where(_cosine(r, of)[0], _sine(r, of)[0])


def _lower_half(n: UOp, of: Format) -> UOp:
    """The bit of the sign where n quarter turns lead below the axis."""
    return (n & 2) << (of.word.bits - 2)


def _flipped(x: UOp, value: UOp, flip: UOp, of: Format) -> UOp:
    """value with its sign flipped by a bit; NaN where the argument x is infinite or NaN."""
    finite = _size_and_sign(x, of)[0] < math.inf
    return finite.where((value.bitcast(of.word) ^ flip).bitcast(of.dtype), math.nan)


FUNCTIONS: dict[Ops, Callable[[UOp, Format], UOp]] = {
    Ops.EXP2: _exp2,
    Ops.LOG2: _log2,
    Ops.EXP: _exp,
    Ops.LOG: _log,
    Ops.SIN: _sin,
    Ops.COS: _cos,
    Ops.TAN: _tan,
    Ops.TANH: _tanh,
    Ops.ERF: _erf,
}

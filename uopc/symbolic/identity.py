"""Neutral and absorbing operands, and signs.

Integer rules hold with wrap.  Float rules keep every bit of every result, infinities, -0.0 and
rounding included (all NaNs are one value): x + 0.0 would lose -0.0, x * 0.0 and x - x would lose
NaN, so they are not here.
"""

from __future__ import annotations

import math

from uopc.dtype import from_bits
from uopc.symbolic.values import const_like, float_like, zero
from uopc.uop.match import FLOAT, INTS, WRAP, Rule, const, node, var
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

x, y, c = var("x"), var("y"), const("c")


def _by_reciprocal(x: UOp, c: UOp) -> UOp | None:
    """x / c = x * (1/c) where c is a power of two: both round the same real number once."""
    divisor = from_bits(c.arg.bits, c.dtype)
    if not math.isfinite(divisor) or abs(math.frexp(divisor)[0]) != 0.5:
        return None
    reciprocal = float_like(c, 1 / divisor)  # infinite, or rounded, where c is out of the ordinary
    exact = math.isfinite(reciprocal.value) and reciprocal.value * divisor == 1
    return x * reciprocal if exact else None


RULES = [
    # integers
    Rule("add-zero", x + 0, lambda x: x),
    Rule("sub-zero", x - 0, lambda x: x),
    Rule("sub-self", x - x, lambda x: zero(x)),
    Rule("zero-sub", 0 - x, lambda x: -x, WRAP),
    Rule("mul-zero", x * 0, lambda x: zero(x)),
    Rule("mul-one", x * 1, lambda x: x),
    Rule("mul-minus-one", x * -1, lambda x: -x, WRAP),
    Rule("neg-difference", -(x - y), lambda x, y: y - x, WRAP),
    Rule("mul-neg-const", (-x) * c, lambda x, c: x * const_like(c, -c.value), WRAP),
    Rule("shift-left-by-zero", x << 0, lambda x: x, WRAP),
    Rule("shift-right-by-zero", x >> 0, lambda x: x, WRAP),
    Rule("zero-shifted-left", node(Ops.SHL, 0, x), lambda x: zero(x), WRAP),
    Rule("zero-shifted-right", node(Ops.SHR, 0, x), lambda x: zero(x), WRAP),
    # both
    Rule("neg-neg", node(Ops.NEG, -x), lambda x: x, INTS | FLOAT),
    Rule("add-neg", x + (-y), lambda x, y: x - y, WRAP | FLOAT),
    Rule("sub-neg", x - (-y), lambda x, y: x + y, WRAP | FLOAT),
    Rule("mul-neg-neg", (-x) * (-y), lambda x, y: x * y, WRAP | FLOAT),
    # floats
    Rule("add-minus-zero-float", x + -0.0, lambda x: x, FLOAT),
    Rule("sub-zero-float", x - 0.0, lambda x: x, FLOAT),
    Rule("mul-one-float", x * 1.0, lambda x: x, FLOAT),
    Rule("mul-minus-one-float", x * -1.0, lambda x: -x, FLOAT),
    Rule("div-one-float", x / 1.0, lambda x: x, FLOAT),
    Rule("div-power-of-two-float", x / c, _by_reciprocal, FLOAT),
]

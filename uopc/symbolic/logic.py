"""AND, OR, XOR, NOT and shifts: of bits and of truth values."""

from __future__ import annotations

from collections.abc import Callable

from uopc.symbolic.index import FALSE, TRUE, rank
from uopc.symbolic.values import const_like, decided, ones, value, zero
from uopc.uop.facts import bounds, free, key
from uopc.uop.match import BOOL, INTS, WRAP, Rule, const, var
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

x, y, c, d = var("x"), var("y"), const("c"), const("d")
BITS = WRAP | BOOL
#: chains of more operands than this stay in the order in which they stand
LIMIT = 64


def _operands(op: Ops, *roots: UOp) -> list[UOp] | None:
    """The operands of a chain of one op, left to right, or None for more than LIMIT."""
    out: list[UOp] = []
    stack = list(reversed(roots))
    while stack:
        x = stack.pop()
        if x.op is op:
            stack.extend(reversed(x.src))
        else:
            out.append(x)
        if len(stack) + len(out) > LIMIT:
            return None
    return out


def _order(u: UOp) -> tuple[object, ...]:
    """Conditions on outer ranges first, so that their conjunction hoists."""
    return max((rank(r) for r in free(u)), default=(-1, 0, 0, 0)), key(u)


def _chain(op: Ops) -> Callable[[UOp, UOp], UOp | None]:
    """x op y as one chain to the left: each operand once, in one order.

    An operand beside its own NOT decides the whole.
    """

    def build(x: UOp, y: UOp) -> UOp | None:
        parts = _operands(op, x, y)
        if parts is None:
            return None
        unique = dict.fromkeys(parts)
        if any(z.op is Ops.NOT and z.src[0] in unique for z in unique):
            return FALSE if op is Ops.AND else TRUE
        first, *rest = sorted(unique, key=_order)
        for z in rest:
            first = UOp(op, (first, z))
        return first

    return build


def _mask(x: UOp, c: UOp) -> UOp | None:
    """x & c where c has every bit that x can have."""
    (lo, hi), mask = bounds(x), value(c)
    return x if lo >= 0 and mask >= hi and mask & (mask + 1) == 0 else None


def _shift_twice(x: UOp, c: UOp, d: UOp, u: UOp) -> UOp | None:
    """(x << c) << d and (x >> c) >> d as one shift, zeros or the sign where all bits leave."""
    bits = u.dtype.bits
    if not (0 <= value(c) < bits and 0 <= value(d) < bits):
        return None
    total = value(c) + value(d)
    if total < bits:
        return UOp(u.op, (x, const_like(x, total)))
    if u.op is Ops.SHR and u.dtype.min < 0:
        return UOp(u.op, (x, const_like(x, bits - 1)))
    return zero(x)


RULES = [
    # bits
    Rule("and-zero", x & 0, lambda x: zero(x), WRAP),
    Rule("and-ones", x & -1, lambda x: x, WRAP),
    Rule("or-zero", x | 0, lambda x: x, WRAP),
    Rule("or-ones", x | -1, lambda x: ones(x), WRAP),
    Rule("xor-zero", x ^ 0, lambda x: x, INTS),
    Rule("xor-ones", x ^ -1, lambda x: ~x, WRAP),
    Rule("and-self", x & x, lambda x: x, WRAP),
    Rule("or-self", x | x, lambda x: x, WRAP),
    Rule("xor-self", x ^ x, lambda x: zero(x), INTS),
    Rule("and-not-self", x & ~x, lambda x: zero(x), WRAP),
    Rule("or-not-self", x | ~x, lambda x: ones(x), WRAP),
    Rule("xor-not-self", x ^ ~x, lambda x: ones(x), WRAP),
    Rule("and-by-bounds", x & c, _mask, WRAP),
    Rule("shift-right-by-bounds", (x >> c).named("u"), lambda u: decided(u), WRAP),
    Rule("shift-left-twice", ((x << c) << d).named("u"), _shift_twice, WRAP),
    Rule("shift-right-twice", ((x >> c) >> d).named("u"), _shift_twice, WRAP),
    # truth values
    Rule("and-false", x & False, lambda x: FALSE, BOOL),
    Rule("and-true", x & True, lambda x: x, BOOL),
    Rule("or-false", x | False, lambda x: x, BOOL),
    Rule("or-true", x | True, lambda x: TRUE, BOOL),
    Rule("xor-bool", x ^ y, lambda x, y: x.ne(y), BOOL),
    Rule("max-bool", x.maximum(y), lambda x, y: x | y, BOOL),
    Rule("min-bool", x.minimum(y), lambda x, y: x & y, BOOL),
    # both
    Rule("not-not", ~(~x), lambda x: x, BITS),
    Rule("and-absorbs-or", x & (x | y), lambda x: x, BITS),
    Rule("or-absorbs-and", x | (x & y), lambda x: x, BITS),
    Rule("and-chain", x & y, _chain(Ops.AND), BOOL),
    Rule("or-chain", x | y, _chain(Ops.OR), BOOL),
]

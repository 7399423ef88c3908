"""Floor division and remainder.

For index arithmetic everything here is mathematics: a // n == q + r // n whenever a = n*q + r, for
negative a too.  For data integers a rule needs bounds which prove that no operand wraps.  Division
by zero (which gives 0) is left to be seen by a checked run.

The digits of x in base n are x % n and x // n; a middle digit is (x // m) % n, never
(x % (m*n)) // m, so that equal digits are equal nodes and put together give x again.
"""

from __future__ import annotations

from math import gcd

from uopc.dtype import dtypes
from uopc.symbolic import index
from uopc.symbolic.order import few_terms
from uopc.symbolic.values import const_like, excludes_zero, no_wrap, value, zero
from uopc.uop.facts import bounds
from uopc.uop.match import INDEX, INTS, WRAP, Rule, const, var
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

DIVISION = (Ops.IDIV, Ops.MOD)
x, y, c, d, e = var("x"), var("y"), const("c"), const("d"), const("e")


# ---- by bounds
def _same_quotient(x: UOp, y: UOp) -> int | None:
    """The only value that x // y can have, for a y that is never 0.

    An index over a constant is left to `index.div`, which looks at bounds too.
    """
    if not excludes_zero(y) or (x.dtype is dtypes.index and y.op is Ops.CONST):
        return None
    quotients = {a // b for a in bounds(x) for b in bounds(y)}
    return quotients.pop() if len(quotients) == 1 else None


def _quotient_by_bounds(x: UOp, y: UOp) -> UOp | None:
    q = _same_quotient(x, y)
    return None if q is None else const_like(x, q)


def _remainder_by_bounds(x: UOp, y: UOp) -> UOp | None:
    """x % y = x - q*y where only one quotient q is possible."""
    q = _same_quotient(x, y)
    return None if q is None else x if q == 0 else x - y * const_like(y, q)


BOUNDS_RULES = [
    Rule("quotient-by-bounds", x // y, _quotient_by_bounds, INTS),
    Rule("remainder-by-bounds", x % y, _remainder_by_bounds, INTS),
    Rule("quotient-by-one", x // 1, lambda x: x, INTS),
    Rule("remainder-by-one", x % 1, lambda x: zero(x), INTS),
    Rule("quotient-of-zero", 0 // x, lambda x: zero(x), INTS),
    Rule("remainder-of-zero", 0 % x, lambda x: zero(x), INTS),
    Rule(
        "quotient-by-self", x // x, lambda x: const_like(x, 1) if excludes_zero(x) else None, INTS
    ),
    Rule("remainder-by-self", x % x, lambda x: zero(x), INTS),
]


# ---- index arithmetic
def _nothing_to_split(x: UOp, n: int) -> bool:
    """Must x // n (or x % n) stay: is there no common factor, no known quotient in x?

    A quick yes to what `index.div` and `index.mod` would find out at length.
    """
    terms, constant = index.affine(x)
    lo, hi = bounds(x)
    return 0 <= constant < n and lo // n != hi // n and all(gcd(k, n) == 1 for k in terms.values())


def _quotient(x: UOp, c: UOp) -> UOp | None:
    """(n*q + r) // n = q + r // n; (g*q + r) // (g*n) = q // n where 0 <= r < g; (x // m) // n."""
    n = value(c)
    if not n or not few_terms(x) or (x.op is not Ops.IDIV and n > 1 and _nothing_to_split(x, n)):
        return None
    return index.div(x, n)


def _remainder(x: UOp, c: UOp) -> UOp | None:
    """(n*q + r) % n = r % n; (g*q + r) % (g*n) = g*(q % n) + r where 0 <= r < g; (x % m) % n."""
    n = value(c)
    if not n or not few_terms(x) or (x.op is not Ops.MOD and n > 1 and _nothing_to_split(x, n)):
        return None
    return index.mod(x, n)


def _quotient_of_shifted(x: UOp, c: UOp, e: UOp, d: UOp) -> UOp | None:
    """(x // a + k) // b = (x + k*a) // (a*b) for a, b > 0."""
    a, k, b = value(c), value(e), value(d)
    if a <= 0 or b <= 0 or not few_terms(x):
        return None
    return index.div(index.add(x, index.index(k * a)), a * b)


def _quotient_of_remainder(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x % (a*b)) // a = (x // a) % b for a, b > 0."""
    m, a = value(c), value(d)
    if m <= 0 or a <= 0 or m % a or not few_terms(x):
        return None
    return index.mod(index.div(x, a), m // a)


def _divisor(u: UOp, op: Ops) -> int:
    """n > 0 where u is x op n; else 0."""
    return max(value(u.src[1]), 0) if u.op is op and u.src[1].op is Ops.CONST else 0


def _remainder_of_remainders(x: UOp, c: UOp) -> UOp | None:
    """(k * (y % m) + r) % n = (k*y + r) % n where n divides k*m."""
    n = value(c)
    if n <= 0 or not few_terms(x):
        return None
    for t, k in index.affine(x)[0].items():
        m = _divisor(t, Ops.MOD)
        if m and k * m % n == 0 and few_terms(t.src[0]):
            whole = index.sub(t.src[0], t)
            return index.mod(index.add(x, index.scale(whole, k)), n)
    return None


def _join_digits(x: UOp, y: UOp) -> UOp | None:
    """(z // n) * n + z % n = z, and ((z // n) % b) * n + z % n = z % (n*b), times any factor."""
    last = y.src[0] if y.op is Ops.MUL else y
    if last.op not in DIVISION or not few_terms(x, y):
        return None
    terms, constant = index.affine(x + y)
    for t, k in terms.items():
        n = _divisor(t, Ops.MOD)
        for higher in [a for a, m in terms.items() if n and m == k * n and a.op in DIVISION]:
            if (joined := _joined(t, higher)) is not None:
                rest = {a: m for a, m in terms.items() if a is not t and a is not higher}
                return index.add(index.from_affine(rest, constant), index.scale(joined, k))
    return None


def _joined(low: UOp, high: UOp) -> UOp | None:
    """n*high + low as one, where low is z % n and high is z // n or (z // n) % b."""
    z, n = low.src[0], _divisor(low, Ops.MOD)
    q = index.div(z, n)
    if high is q:
        return z
    b = _divisor(high, Ops.MOD)
    return index.mod(z, n * b) if b and high.src[0] is q else None


INDEX_RULES = [
    Rule("join-digits", x + y, _join_digits, INDEX),
    Rule("index-quotient", x // c, _quotient, INDEX),
    Rule("index-remainder", x % c, _remainder, INDEX),
    Rule("quotient-of-index-remainder", (x % c) // d, _quotient_of_remainder, INDEX),
    Rule("quotient-of-shifted-quotient", (x // c + e) // d, _quotient_of_shifted, INDEX),
    Rule("remainder-of-remainders", x % c, _remainder_of_remainders, INDEX),
]


# ---- data integers
def _divide_factor(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x * c) // d where one of c, d divides the other."""
    n, by = value(c), value(d)
    if by and n % by == 0:
        return x * const_like(x, n // by)
    if n and by and by % n == 0 and _fits(x, by // n):
        return x // const_like(x, by // n)
    return None


def _fits(x: UOp, n: int) -> bool:
    return x.dtype.min <= n <= x.dtype.max


def _divides(d: UOp, c: UOp) -> bool:
    return value(d) != 0 and value(c) % value(d) == 0


def _divide_sum(x: UOp, y: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x*c + y) // d = x * (c // d) + y // d where d divides c."""
    return x * const_like(x, value(c) // value(d)) + y // d if _divides(d, c) else None


def _divide_shifted(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x + c) // d = x // d + c // d where d divides c."""
    return x // d + const_like(x, value(c) // value(d)) if _divides(d, c) else None


def _divide_twice(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x // c) // d = x // (c*d) for c, d > 0."""
    n = value(c) * value(d)
    return x // const_like(x, n) if value(c) > 0 and value(d) > 0 and _fits(x, n) else None


def _divide_remainder(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x % c) // d = (x // d) % (c // d) for c, d > 0 where d divides c."""
    if value(c) <= 0 or value(d) <= 0 or not _divides(d, c):
        return None
    return (x // d) % const_like(x, value(c) // value(d))


DATA_RULES = [
    Rule("quotient-by-minus-one", x // c, lambda x, c: -x if value(c) == -1 else None, WRAP),
    Rule("remainder-by-minus-one", x % c, lambda x, c: zero(x) if value(c) == -1 else None, WRAP),
    Rule("quotient-of-multiple", (x * c) // d, _divide_factor, WRAP, no_wrap),
    Rule("quotient-of-sum", (x * c + y) // d, _divide_sum, WRAP, no_wrap),
    Rule("quotient-of-shifted", (x + c) // d, _divide_shifted, WRAP, no_wrap),
    Rule("quotient-twice", (x // c) // d, _divide_twice, WRAP),
    Rule("quotient-of-data-remainder", (x % c) // d, _divide_remainder, WRAP),
    Rule(
        "remainder-of-multiple",
        (x * c) % d,
        lambda x, c, d: zero(x) if _divides(d, c) else None,
        WRAP,
        no_wrap,
    ),
    Rule(
        "remainder-of-sum",
        (x * c + y) % d,
        lambda y, c, d: y % d if _divides(d, c) else None,
        WRAP,
        no_wrap,
    ),
    Rule(
        "remainder-of-shifted",
        (x + c) % d,
        lambda x, c, d: x % d if _divides(d, c) else None,
        WRAP,
        no_wrap,
    ),
    Rule(
        "remainder-twice",
        (x % c) % d,
        lambda x, c, d: x % d if value(c) and _divides(d, c) else None,
        WRAP,
    ),
    Rule("join-data-digits", (x // c) * c + x % c, lambda x, c: x if value(c) else None, WRAP),
]

RULES = [*BOUNDS_RULES, *INDEX_RULES, *DATA_RULES]

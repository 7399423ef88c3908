"""Floor division and remainder.

For index arithmetic everything here is mathematics: a // n == q + r // n whenever a = n*q + r, for
negative a too.  For data integers a rule needs bounds which prove that no operand wraps.  Division
by zero (which gives 0) is left to be seen by a checked run.

The digits of x in base n are x % n and x // n; a middle digit is (x // m) % n, never
(x % (m*n)) // m, so that equal digits are equal nodes and put together give x again.
"""

from __future__ import annotations

from math import gcd

from uopc.symbolic import index
from uopc.symbolic.order import few_terms
from uopc.symbolic.values import const_like, excludes_zero, no_wrap, value, zero
from uopc.uop.facts import bounds
from uopc.uop.match import INDEX, INTS, WRAP, Rule, const, node, var
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

x, y, c, d = var("x"), var("y"), const("c"), const("d")


# ---- by bounds
def _same_quotient(x: UOp, y: UOp) -> int | None:
    """The only value that x // y can have, for a y that is never 0."""
    if not excludes_zero(y):
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
def _quotient(x: UOp, c: UOp) -> UOp | None:
    """(n*q + r) // n = q + r // n; negative n, nested quotients and common factors as well."""
    return index.div(x, value(c)) if value(c) and few_terms(x) else None


def _remainder(x: UOp, c: UOp) -> UOp | None:
    """(n*q + r) % n = r % n; negative n, nested remainders and common factors as well."""
    return index.mod(x, value(c)) if value(c) and few_terms(x) else None


def _split_coefficients(x: UOp, n: int) -> tuple[UOp, UOp] | None:
    """(q, r) with x = n*q + r where every coefficient of r is smaller than n; None where q = 0."""
    terms, constant = index.affine(x)
    q = {t: abs(k) // n * (1 if k > 0 else -1) for t, k in terms.items() if abs(k) >= n}
    if not q:
        return None
    r = {t: k - n * q.get(t, 0) for t, k in terms.items()}
    return index.from_affine(q, 0), index.from_affine({t: k for t, k in r.items() if k}, constant)


def _quotient_of_coefficients(x: UOp, c: UOp) -> UOp | None:
    """(7*a + b) // 4 = a + (3*a + b) // 4."""
    n = value(c)
    if n <= 0 or not few_terms(x) or (parts := _split_coefficients(x, n)) is None:
        return None
    return index.add(parts[0], index.div(parts[1], n))


def _remainder_of_coefficients(x: UOp, c: UOp) -> UOp | None:
    """(7*a + b) % 4 = (3*a + b) % 4."""
    n = value(c)
    if n <= 0 or not few_terms(x) or (parts := _split_coefficients(x, n)) is None:
        return None
    return index.mod(parts[1], n)


def _low_digits(x: UOp, n: int) -> tuple[int, UOp, UOp] | None:
    """(g, q, r) with x = g*q + r, 0 <= r < g, 1 < g < n and g | n, for the largest such g."""
    terms, constant = index.affine(x)
    for g in sorted({gcd(k, n) for k in terms.values()} - {1, n}, reverse=True):
        low = {t: k for t, k in terms.items() if k % g}
        r = index.from_affine(low, constant % g)
        lo, hi = bounds(r)
        if lo // g == hi // g:
            q = index.from_affine({t: k // g for t, k in terms.items() if not k % g}, 0)
            carry = lo // g
            return (
                g,
                index.add(q, index.index(constant // g + carry)),
                index.add(r, index.index(-g * carry)),
            )
    return None


def _quotient_of_digits(x: UOp, c: UOp) -> UOp | None:
    """(g*q + r) // (g*b) = q // b where 0 <= r < g."""
    n = value(c)
    if n <= 0 or not few_terms(x) or (found := _low_digits(x, n)) is None:
        return None
    g, q, _ = found
    return index.div(q, n // g)


def _remainder_of_digits(x: UOp, c: UOp) -> UOp | None:
    """(g*q + r) % (g*b) = g * (q % b) + r where 0 <= r < g."""
    n = value(c)
    if n <= 0 or not few_terms(x) or (found := _low_digits(x, n)) is None:
        return None
    g, q, r = found
    return index.add(index.scale(index.mod(q, n // g), g), r)


def _quotient_of_quotient(x: UOp, c: UOp) -> UOp | None:
    """(y // a + k) // b = (y + k*a) // (a*b) for a, b > 0."""
    terms, constant = index.affine(x) if few_terms(x) else ({}, 0)
    if len(terms) != 1 or value(c) <= 0:
        return None
    ((t, coefficient),) = terms.items()
    a = _constant_divisor(t, Ops.IDIV)
    if not a or coefficient != 1:
        return None
    return index.div(index.add(t.src[0], index.index(constant * a)), a * value(c))


def _constant_divisor(u: UOp, op: Ops) -> int:
    """n > 0 where u is x op n; else 0."""
    return max(value(u.src[1]), 0) if u.op is op and u.src[1].op is Ops.CONST else 0


def _quotient_of_remainder(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x % (a*b)) // a = (x // a) % b for a, b > 0."""
    m, a = value(c), value(d)
    if m <= 0 or a <= 0 or m % a:
        return None
    return index.mod(index.div(x, a), m // a)


def _remainder_of_remainders(x: UOp, c: UOp) -> UOp | None:
    """(k * (y % m) + r) % n = (k*y + r) % n where n divides k*m."""
    n = value(c)
    if n <= 0 or not few_terms(x):
        return None
    terms, _ = index.affine(x)
    for t, k in terms.items():
        m = _constant_divisor(t, Ops.MOD)
        if m and k * m % n == 0:
            whole = index.sub(t.src[0], t)
            return index.mod(index.add(x, index.scale(whole, k)), n)
    return None


def _join_digits(x: UOp, y: UOp) -> UOp | None:
    """(z // n) * n + z % n = z, and ((z // n) % b) * n + z % n = z % (n*b), times any factor."""
    last = y.src[0] if y.op is Ops.MUL else y
    if last.op not in (Ops.MOD, Ops.IDIV) or not few_terms(x, y):
        return None
    terms, _ = index.affine(x + y)
    higher = {t.src[0]: t for t in terms if _constant_divisor(t, Ops.MOD)}
    for t, k in terms.items():
        n = _constant_divisor(t, Ops.MOD)
        if not n:
            continue
        z = t.src[0]
        q = _quotient_of_quotient(z, t.src[1]) or index.div(z, n)
        if terms.get(q) == k * n:
            old, new = q, z
        elif q in higher and terms[higher[q]] == k * n:
            old = higher[q]
            new = index.mod(z, n * value(old.src[1]))
        else:
            continue
        change = index.sub(new, index.add(index.scale(old, n), t))
        return index.add(x + y, index.scale(change, k))
    return None


INDEX_RULES = [
    Rule("join-digits", x + y, _join_digits, INDEX),
    Rule("index-quotient", x // c, _quotient, INDEX),
    Rule("index-remainder", x % c, _remainder, INDEX),
    Rule("quotient-of-remainder", (x % c) // d, _quotient_of_remainder, INDEX),
    Rule("quotient-of-quotient", x // c, _quotient_of_quotient, INDEX),
    Rule("quotient-of-coefficients", x // c, _quotient_of_coefficients, INDEX),
    Rule("quotient-of-digits", x // c, _quotient_of_digits, INDEX),
    Rule("remainder-of-remainders", x % c, _remainder_of_remainders, INDEX),
    Rule("remainder-of-coefficients", x % c, _remainder_of_coefficients, INDEX),
    Rule("remainder-of-digits", x % c, _remainder_of_digits, INDEX),
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

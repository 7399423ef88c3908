"""Comparisons, and the larger and the smaller of two.

Index comparisons are about a difference: common terms cancel, and digits that cannot matter go.
Floats keep their NaN, which makes every `<` and `==` false and `!=` true: NOT turns == into !=,
but never < into >=, and of a float compared with itself only `<` is known.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from uopc.symbolic import index
from uopc.symbolic.index import FALSE, TRUE
from uopc.symbolic.order import few_terms
from uopc.symbolic.values import const_like, decided, no_wrap, room, value, within
from uopc.uop.facts import bounds
from uopc.uop.match import ANY, BOOL, INDEX, INTS, WRAP, Rule, const, node, var
from uopc.uop.node import UOp, alu
from uopc.uop.ops import Ops

x, y, z, w, p = var("x"), var("y"), var("z"), var("w"), var("p")
c, d = const("c"), const("d")
COMPARISONS = (Ops.LT, Ops.EQ, Ops.NE)


# ---- index arithmetic
def _index_less(x: UOp, y: UOp) -> UOp | None:
    """a < b by the terms of a - b."""
    return index.lt(x, y) if few_terms(x, y) and not _as_it_must_be(x, y) else None


def _as_it_must_be(x: UOp, y: UOp) -> bool:
    """A quick yes to what `index.lt` would find out at length: terms < constant, undecided."""
    if y.op is not Ops.CONST:
        return False
    (terms, constant), n, (lo, hi) = index.affine(x), value(y), bounds(x)
    positive = any(k > 0 for k in terms.values())
    digits = any(k not in (1, -1) and n % k == 0 for k in terms.values())
    return positive and not constant and not digits and lo < n <= hi


def _equal(op: Ops, x: UOp, y: UOp) -> UOp | None:
    """a == b (or !=) as terms == constant: the first term positive, no factor common to all."""
    if not few_terms(x, y):
        return None
    never, always = (FALSE, TRUE) if op is Ops.EQ else (TRUE, FALSE)
    terms, constant = index.affine(index.sub(x, y))
    if not terms:
        return never if constant else always
    g = gcd(*terms.values())
    if constant % g:
        return never
    if next(iter(terms.values())) < 0:
        g = -g
    left, right = index.from_affine({t: k // g for t, k in terms.items()}, 0), -constant // g
    lo, hi = bounds(left)
    return UOp(op, (left, index.index(right))) if lo <= right <= hi else never


def _index_at_most(x: UOp, y: UOp, same: UOp) -> UOp | None:
    """(a < b) | (a == b) = a < b + 1."""
    if not few_terms(x, y) or _equal(Ops.EQ, x, y) is not same:
        return None
    return index.lt(x, index.add(y, index.ONE))


INDEX_RULES = [
    Rule("index-less", x < y, _index_less, INDEX),
    Rule("index-equal", x.eq(y), lambda x, y: _equal(Ops.EQ, x, y), INDEX),
    Rule("index-unequal", x.ne(y), lambda x, y: _equal(Ops.NE, x, y), INDEX),
    Rule(
        "index-not-less",
        ~(var("x", INDEX) < y),
        lambda x, y: y < x + 1,
        BOOL,
    ),
    Rule(
        "index-at-most",
        (var("x", INDEX) < y) | var("z", INDEX).eq(w).named("same"),
        _index_at_most,
        BOOL,
    ),
]


# ---- data integers
def _shifted(op: Ops) -> Callable[[UOp, UOp, UOp], UOp | None]:
    """x + c < d as x < d - c, where that fits."""

    def build(x: UOp, c: UOp, d: UOp) -> UOp | None:
        n = value(d) - value(c)
        return alu(op, x, const_like(x, n)) if x.dtype.min <= n <= x.dtype.max else None

    return build


def _more_shifted(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """c < x + d as c - d < x, where that fits."""
    n = value(c) - value(d)
    return const_like(x, n) < x if x.dtype.min <= n <= x.dtype.max else None


DATA_RULES = [
    *(
        Rule(f"{op.name.lower()}-by-bounds", node(op, x, y).named("u"), decided, WRAP)
        for op in COMPARISONS
    ),
    Rule("less-shifted", (x + c) < d, _shifted(Ops.LT), WRAP, no_wrap),
    Rule("more-shifted", c < (x + d), _more_shifted, WRAP, no_wrap),
    Rule("equal-shifted", (x + c).eq(d), lambda x, c, d: x.eq(d - c), WRAP),
    Rule("unequal-shifted", (x + c).ne(d), lambda x, c, d: x.ne(d - c), WRAP),
    Rule("at-most", (var("x", WRAP) < y) | x.eq(y), lambda x, y: ~(y < x), BOOL),
]


# ---- casts under a comparison
def _fits(x: UOp, a: UOp) -> bool:
    """Does the cast from x to a lose nothing?"""
    return a.dtype.is_int and within(bounds(x), room(a.dtype))


def _uncast(op: Ops) -> Rule:
    """Casts of one integer dtype that lose nothing compare as what they were."""

    def build(x: UOp, y: UOp, a: UOp, b: UOp) -> UOp | None:
        return alu(op, x, y) if x.dtype is y.dtype and _fits(x, a) and _fits(y, b) else None

    left, right = var("x", INTS).cast().named("a"), var("y", INTS).cast().named("b")
    return Rule(f"{op.name.lower()}-of-casts", node(op, left, right), build)


def _uncast_constant(name: str, op: Ops, swapped: bool) -> Rule:
    def build(x: UOp, a: UOp, c: UOp) -> UOp | None:
        n = value(c)
        if not _fits(x, a) or not within((n, n), room(x.dtype)):
            return None
        k = const_like(x, n)
        return alu(op, k, x) if swapped else alu(op, x, k)

    a = var("x", INTS).cast().named("a")
    return Rule(name, node(op, c, a) if swapped else node(op, a, c), build)


flag = var("x", BOOL).cast()
CAST_RULES = [
    *(_uncast(op) for op in COMPARISONS),
    _uncast_constant("cast-less-constant", Ops.LT, swapped=False),
    _uncast_constant("constant-less-cast", Ops.LT, swapped=True),
    _uncast_constant("cast-equal-constant", Ops.EQ, swapped=False),
    _uncast_constant("cast-unequal-constant", Ops.NE, swapped=False),
    Rule("flag-is-zero", flag.eq(0), lambda x: ~x),
    Rule("flag-is-one", flag.eq(1), lambda x: x),
    Rule("flag-is-not-zero", flag.ne(0), lambda x: x),
    Rule("flag-is-not-one", flag.ne(1), lambda x: ~x),
    Rule("flag-above-zero", node(Ops.LT, 0, flag), lambda x: x),
    Rule("flag-below-one", flag < 1, lambda x: ~x),
]


# ---- truth values, and what holds for every dtype
BOOL_RULES = [
    Rule("less-than-itself", x < x, lambda x: FALSE, ANY),
    Rule("equal-to-itself", x.eq(x), lambda x: TRUE, INTS | BOOL),
    Rule("unequal-to-itself", x.ne(x), lambda x: FALSE, INTS | BOOL),
    Rule("not-equal", ~(x.eq(y)), lambda x, y: x.ne(y), BOOL),
    Rule("not-unequal", ~(x.ne(y)), lambda x, y: x.eq(y), BOOL),
    Rule("is-true", x.eq(True), lambda x: x, BOOL),
    Rule("is-false", x.eq(False), lambda x: ~x, BOOL),
    Rule("is-not-true", x.ne(True), lambda x: ~x, BOOL),
    Rule("is-not-false", x.ne(False), lambda x: x, BOOL),
    Rule("equal-to-not", x.eq(~y), lambda x, y: x.ne(y), BOOL),
    Rule("unequal-to-not", x.ne(~y), lambda x, y: x.eq(y), BOOL),
    Rule("less-bool", x < y, lambda x, y: ~x & y, BOOL),
]


# ---- two thresholds of one value
def _smaller(c: UOp, d: UOp) -> UOp:
    return c if value(c) < value(d) else d


def _larger(c: UOp, d: UOp) -> UOp:
    return c if value(c) > value(d) else d


i = var("x", INTS)
THRESHOLD_RULES = [
    Rule("below-both", (i < c) & (i < d), lambda x, c, d: x < _smaller(c, d), BOOL),
    Rule("below-either", (i < c) | (i < d), lambda x, c, d: x < _larger(c, d), BOOL),
    Rule("above-both", (i > c) & (i > d), lambda x, c, d: _larger(c, d) < x, BOOL),
    Rule("above-either", (i > c) | (i > d), lambda x, c, d: _smaller(c, d) < x, BOOL),
    Rule(
        "below-both-in-chain",
        (p & (i < c)) & (i < d),
        lambda p, x, c, d: p & (x < _smaller(c, d)),
        BOOL,
    ),
    Rule(
        "above-both-in-chain",
        (p & (i > c)) & (i > d),
        lambda p, x, c, d: p & (_larger(c, d) < x),
        BOOL,
    ),
    Rule(
        "between-nothing",
        (i < c) & (i > d),
        lambda c, d: FALSE if value(c) <= value(d) + 1 else None,
        BOOL,
    ),
    Rule(
        "outside-nothing",
        (i < c) | (i > d),
        lambda c, d: TRUE if value(d) < value(c) else None,
        BOOL,
    ),
]


# ---- the larger and the smaller
def _max_by_bounds(x: UOp, y: UOp) -> UOp | None:
    (a, b), (m, n) = bounds(x), bounds(y)
    return x if a >= n else y if m >= b else None


def _min_by_bounds(x: UOp, y: UOp) -> UOp | None:
    (a, b), (m, n) = bounds(x), bounds(y)
    return x if b <= m else y if n <= a else None


EXTREME_RULES = [
    Rule("max-self", x.maximum(x), lambda x: x),
    Rule("min-self", x.minimum(x), lambda x: x),
    Rule("max-by-bounds", x.maximum(y), _max_by_bounds),
    Rule("min-by-bounds", x.minimum(y), _min_by_bounds),
    Rule("max-absorbs-min", x.maximum(x.minimum(y)), lambda x: x),
    Rule("min-absorbs-max", x.minimum(x.maximum(y)), lambda x: x),
]

RULES = [
    *BOOL_RULES,
    *INDEX_RULES,
    *DATA_RULES,
    *CAST_RULES,
    *THRESHOLD_RULES,
    *EXTREME_RULES,
]

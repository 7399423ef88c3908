"""Every rule, by itself, against the meaning of the ops: a table that lacks no rule.

A case gives expressions.  Whenever the rule applies to one, both sides must be worth the same for
every value of the leaves, and the rule must apply at least once to each kind that it holds for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeAlias

import pytest

from tests.symbolic.evaluate import between, check_same, scalar
from tests.symbolic.instances import SAMPLES, kind_of, leaves, of_pattern
from uopc.dtype import DATA, dtypes
from uopc.symbolic import RULES, simplify
from uopc.uop.match import EFFECT, Holds, Rule, Rules
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import COMPARE, AccessArg, Ops

Case: TypeAlias = Callable[[Rule], Iterator[UOp]]


def pattern(rule: Rule) -> Iterator[UOp]:
    """Instances of the pattern over values of which nothing is known."""
    yield from of_pattern(rule)


def bounds(rule: Rule) -> Iterator[UOp]:
    """Instances of the pattern over values with and without bounds."""
    yield from of_pattern(rule, bounded=True)


def backwards(rule: Rule) -> Iterator[UOp]:
    """Instances whose operands stand in the wrong order."""
    yield from of_pattern(rule, backwards=True)


# ---- index arithmetic: sums of ranges with coefficients of both signs
i, j, k = between(0, -4, 4), between(1, 0, 5), between(2, 0, 2)
COEFFICIENTS = (-6, -4, -1, 1, 2, 3, 4, 8)


def some_sums(count: int, seed: int) -> Iterator[UOp]:
    choose = random.Random(seed)
    for _ in range(count):
        a, b, c = (choose.choice(COEFFICIENTS) for _ in range(3))
        yield choose.choice(
            (i * a + j * b + c, j * a + k * b + c, j * a + b, i, k * a, j * a + i * a + i)
        )


def sums(op: Ops) -> Case:
    """Two sums under one op, or one under a unary op."""

    def case(rule: Rule) -> Iterator[UOp]:
        for a, b in zip(some_sums(200, 0), some_sums(200, 1), strict=True):
            yield UOp(op, (a,) if op is Ops.NEG else (a, b))
            if op in COMPARE:
                yield UOp(op, (simplify(a), UOp.const(5, dtypes.index)))
                yield UOp(op, (UOp.const(-3, dtypes.index), simplify(b)))

    return case


def sum_and_constant(op: Ops) -> Case:
    """A sum and a constant of either sign; quotients of quotients and remainders of remainders."""

    def case(rule: Rule) -> Iterator[UOp]:
        for a, n in product(map(simplify, some_sums(25, 2)), range(-8, 9)):
            c = UOp.const(n, dtypes.index)
            yield UOp(op, (a, c))
            yield UOp(op, (UOp(op, (a, UOp.const(4, dtypes.index))), c))

    return case


def digits(rule: Rule) -> Iterator[UOp]:
    """Two digits of a number put together again, rightly and wrongly."""
    for z, n, b, m in product(
        (i, j, i * 5 + j, simplify(j // 2 + 1)), (2, 3), (2, 3), (2, 3, 6, -4)
    ):
        low = simplify(z % n) * (m // n)
        yield simplify(simplify(z // n) * m + k) + low
        yield simplify(simplify(z // n % b) * m + k) + low
        yield low + simplify(z // n) * m


def remainders(rule: Rule) -> Iterator[UOp]:
    for m, n, c in product((2, 3, 4, 8), (2, 3, 4, 6), (-3, -1, 1, 2, 6)):
        yield (simplify(i % m) * c + j) % n
        yield (j * 4 + simplify((i + k) % m) * c + 1) % n


def at_most(rule: Rule) -> Iterator[UOp]:
    for a, b in zip(some_sums(60, 3), some_sums(60, 4), strict=True):
        for c in (b, UOp.const(3, dtypes.index)):
            yield simplify(a < c) | simplify(a.eq(c))
            yield simplify(a < c) | simplify(b.eq(c))


# ---- truth values
def chains(op: Ops) -> Case:
    def case(rule: Rule) -> Iterator[UOp]:
        p, q, f = scalar(0, dtypes.bool), scalar(1, dtypes.bool), scalar(2, dtypes.f32)
        for a, b, c in product((p, q, ~p, i < 2, f < 1.0), repeat=3):
            yield UOp(op, (UOp(op, (a, b)), c))
            yield UOp(op, (a, UOp(op, (b, c))))

    return case


# ---- casts
def all_casts(rule: Rule) -> Iterator[UOp]:
    """Every pair of casts."""
    every = (*DATA, dtypes.index)
    for source, middle, target in product(every, every, every):
        for x in leaves(0, source, bounded=source is dtypes.index):
            yield UOp(Ops.CAST, (UOp(Ops.CAST, (x,), middle),), target)


def same_dtype(op: Ops) -> Case:
    def case(rule: Rule) -> Iterator[UOp]:
        for d in (*DATA, dtypes.index):
            if op is Ops.CAST or d is not dtypes.index:
                yield UOp(op, (leaves(0, d, bounded=False)[0],), d)

    return case


def all_bitcasts(rule: Rule) -> Iterator[UOp]:
    for a, b, c in product(DATA, DATA, DATA):
        if a.bits == b.bits == c.bits:
            yield UOp(Ops.BITCAST, (UOp(Ops.BITCAST, (scalar(0, a),), b),), c)


# ---- gates
def accesses(rule: Rule) -> Iterator[UOp]:
    for d in (d for ds in SAMPLES.values() for d in ds if d not in (dtypes.void, dtypes.index)):
        at, x = buffer(5, d, (3,)).index(j), scalar(0, d)
        gates = (UOp.const(True), UOp.const(False), scalar(1, dtypes.bool))
        for gate, arg in product(gates, (None, AccessArg(1))):
            store = EFFECT in rule.holds
            op, src = (Ops.STORE, (at, x, gate)) if store else (Ops.LOAD, (at, gate, x))
            yield UOp(op, src, arg)


def _names(text: str, case: Case) -> dict[str, Case]:
    return dict.fromkeys(text.split(), case)


CASES: dict[str, Case] = {
    **{r.name: pattern for r in RULES.rules if r.name.startswith("fold-")},
    **_names(
        """
        add-zero sub-zero sub-self zero-sub mul-zero mul-one mul-minus-one neg-difference
        mul-neg-const shift-left-by-zero shift-right-by-zero zero-shifted-left zero-shifted-right
        neg-neg add-neg sub-neg mul-neg-neg
        add-minus-zero-float sub-zero-float mul-one-float mul-minus-one-float div-one-float
        div-power-of-two-float
        and-zero and-ones or-zero or-ones xor-zero xor-ones and-self or-self xor-self
        and-not-self or-not-self xor-not-self shift-left-twice shift-right-twice
        and-false and-true or-false or-true xor-bool max-bool min-bool
        not-not and-absorbs-or or-absorbs-and
        where-true where-false where-equal where-not where-then-where where-else-where where-both
        where-either where-true-false where-false-true where-or-false where-or-true where-true-or
        where-false-or where-itself where-else-itself where-one-zero where-zero-one
        where-one-zero-float where-zero-one-float where-less-min where-less-max where-equal-other
        where-equal-same
        cast-to-bool
        quotient-by-one remainder-by-one quotient-of-zero remainder-of-zero remainder-by-self
        quotient-by-minus-one remainder-by-minus-one quotient-twice remainder-twice
        quotient-of-data-remainder join-data-digits
        quotient-of-index-remainder quotient-of-shifted-quotient
        less-than-itself equal-to-itself unequal-to-itself not-equal not-unequal is-true is-false
        is-not-true is-not-false equal-to-not unequal-to-not less-bool
        index-not-less equal-shifted unequal-shifted at-most
        flag-is-zero flag-is-one flag-is-not-zero flag-is-not-one flag-above-zero flag-below-one
        below-both below-either above-both above-either below-both-in-chain above-both-in-chain
        between-nothing outside-nothing max-self min-self max-absorbs-min min-absorbs-max
        sub-constant add-constants mul-constants and-constants or-constants xor-constants
        max-constants min-constants clamp-below-first
        constant-sub-add constant-sub-sum constant-sub-difference
        add-constant-last sub-constant-last sub-sum-constant mul-constant-last
        """,
        pattern,
    ),
    **_names(
        """
        and-by-bounds shift-right-by-bounds cast-by-bounds
        quotient-by-bounds remainder-by-bounds quotient-by-self
        quotient-of-multiple quotient-of-sum quotient-of-shifted
        remainder-of-multiple remainder-of-sum remainder-of-shifted
        lt-by-bounds eq-by-bounds ne-by-bounds less-shifted more-shifted
        lt-of-casts eq-of-casts ne-of-casts cast-less-constant constant-less-cast
        cast-equal-constant cast-unequal-constant max-by-bounds min-by-bounds
        add-casts add-cast-constant add-constant-cast sub-casts sub-cast-constant sub-constant-cast
        mul-casts mul-cast-constant mul-constant-cast idiv-casts idiv-cast-constant
        idiv-constant-cast mod-casts mod-cast-constant mod-constant-cast
        """,
        bounds,
    ),
    **_names(
        """
        commute-add commute-mul commute-max commute-min commute-and commute-or commute-xor
        commute-eq commute-ne commute-fma
        """,
        backwards,
    ),
    "index-sum": sums(Ops.ADD),
    "index-difference": sums(Ops.SUB),
    "index-negative": sums(Ops.NEG),
    "index-product": sum_and_constant(Ops.MUL),
    "index-quotient": sum_and_constant(Ops.IDIV),
    "index-remainder": sum_and_constant(Ops.MOD),
    "remainder-of-remainders": remainders,
    "join-digits": digits,
    "index-less": sums(Ops.LT),
    "index-equal": sums(Ops.EQ),
    "index-unequal": sums(Ops.NE),
    "index-at-most": at_most,
    "and-chain": chains(Ops.AND),
    "or-chain": chains(Ops.OR),
    "cast-twice": all_casts,
    "cast-to-itself": same_dtype(Ops.CAST),
    "bitcast-to-itself": same_dtype(Ops.BITCAST),
    "bitcast-twice": all_bitcasts,
    "load-always": accesses,
    "load-never": accesses,
    "store-always": accesses,
}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == {r.name for r in RULES.rules}


def applications(rule: Rule) -> Iterator[tuple[UOp, UOp]]:
    """(before, after) for every expression of the rule's case to which the rule applies."""
    alone = Rules([rule])
    for u in CASES[rule.name](rule):
        if (found := alone.first(u)) is not None:
            yield u, found[1]


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda r: r.name)
def test_rule(rule: Rule) -> None:
    seen = Holds(0)
    for n, (before, after) in enumerate(applications(rule)):
        check_same(before, after, limit=1 << 16 if n < 4 else 1 << 11)
        seen |= kind_of(before.src[0].dtype if before.op in COMPARE else before.dtype)
    assert seen == rule.holds, f"never applied to {rule.holds & ~seen}"

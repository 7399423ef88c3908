"""Integer rules proved for all values: index as unbounded integers, data as bit vectors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.symbolic.evaluate import between, leaves_of
from tests.symbolic.instances import of_pattern, walk
from tests.symbolic.test_proofs import CASES, backwards, pattern
from uopc.dtype import DType, dtypes
from uopc.symbolic import RULES
from uopc.uop.facts import bounds
from uopc.uop.match import BOOL, EFFECT, FLOAT, INDEX, WRAP, Rule, Rules
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import COMPARE, Ops

z3 = pytest.importorskip("z3", reason="z3-solver is not installed (pip install z3-solver)")
Term = Any
WIDE = {WRAP: (dtypes.i16, dtypes.u16), INDEX: (), FLOAT: (), BOOL: (), EFFECT: ()}
_DIVISION = (Ops.IDIV, Ops.MOD)
#: these hold every index that is proved for, so that their XOR is that of the integers
INDEX_BITS = 42


_SAME: dict[Ops, Callable[..., Term]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.NEG: lambda a: -a,
    Ops.WHERE: z3.If,
    Ops.EQ: lambda a, b: a == b,
    Ops.NE: lambda a, b: a != b,
}
_BITS: dict[Ops, Callable[..., Term]] = {
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.NOT: lambda a: ~a,
    Ops.SHL: lambda a, b: a << b,
}
_TRUTH: dict[Ops, Callable[..., Term]] = {
    Ops.AND: z3.And,
    Ops.OR: z3.Or,
    Ops.XOR: z3.Xor,
    Ops.NOT: z3.Not,
}


def less(d: DType, a: Term, b: Term) -> Term:
    if d is dtypes.bool:
        return z3.And(z3.Not(a), b)
    return z3.ULT(a, b) if d.is_data_int and d.min == 0 else a < b


def term(root: UOp, names: dict[UOp, Term], facts: list[Term]) -> Term:
    """The expression as a z3 term.  A quotient by n is a number q with 0 <= a - n*q < n (n < 0:
    n < a - n*q <= 0), said in `facts`: linear arithmetic, which z3 decides."""
    made: dict[UOp, Term] = dict(names)
    for u in toposort(root):
        if u in made:
            continue
        op, d = u.op, u.src[-1].dtype if u.src else u.dtype
        src = [made[s] for s in u.src]
        if op is Ops.CONST:
            made[u] = constant(u)
        elif op in _DIVISION and d is dtypes.index:
            n, q = u.src[1].arg.bits, z3.FreshInt("q")
            rest = src[0] - n * q
            facts += [rest >= 0, rest < n] if n > 0 else [n < rest, rest <= 0]
            made[u] = q if op is Ops.IDIV else rest
        elif op is Ops.LT:
            made[u] = less(d, *src)
        elif op in (Ops.MAX, Ops.MIN):
            first = less(d, src[1], src[0]) if op is Ops.MAX else less(d, src[0], src[1])
            made[u] = z3.If(first, *src)
        elif op is Ops.SHR:
            made[u] = src[0] >> src[1] if d.min < 0 else z3.LShR(*src)
        elif op in _SAME:
            made[u] = _SAME[op](*src)
        elif d is dtypes.bool and op in _TRUTH:
            made[u] = _TRUTH[op](*src)
        elif op is Ops.XOR and d is dtypes.index:
            bits = (z3.Int2BV(s, INDEX_BITS) for s in src)
            made[u] = z3.BV2Int(_BITS[op](*bits), is_signed=True)
        elif d.is_data_int and op in _BITS:
            made[u] = _BITS[op](*src)
        else:
            raise NotImplementedError(op)
    return made[root]


def constant(u: UOp) -> Term:
    if u.dtype is dtypes.bool:
        return z3.BoolVal(bool(u.arg.bits))
    return (
        z3.IntVal(u.arg.bits) if u.dtype is dtypes.index else z3.BitVecVal(u.arg.bits, u.dtype.bits)
    )


def leaf(n: int, d: DType) -> Term:
    if d is dtypes.bool:
        return z3.Bool(f"x{n}")
    return z3.Int(f"x{n}") if d is dtypes.index else z3.BitVec(f"x{n}", d.bits)


def prove(before: UOp, after: UOp) -> None:
    """No values of the leaves tell the two apart."""
    names = {u: leaf(n, u.dtype) for n, u in enumerate(leaves_of(before))}
    solver = z3.Solver()
    solver.set("timeout", 5_000)
    for u, x in names.items():
        if u.dtype is dtypes.index:
            low, high = bounds(u)
            solver.add(low <= x, x <= high)
    facts: list[Term] = []
    solver.add(term(before, names, facts) != term(after, names, facts), *facts)
    assert solver.check() == z3.unsat, f"{before}\nbecame\n{after}\n{solver}"


def applied(rule: Rule, expressions: Iterator[UOp], most: int) -> Iterator[tuple[UOp, UOp]]:
    """(before, after) of the first expressions to which the rule applies, spread over them."""
    alone = Rules([rule])
    found = [(u, f[1]) for u in expressions if (f := alone.first(u)) is not None]
    yield from itertools.islice(found, 0, None, max(1, len(found) // most))


def has(u: UOp, *ops: Ops) -> bool:
    return any(x.op in ops for x in toposort(u))


def linear(u: UOp) -> bool:
    """No cast, and no division but by a constant that is not 0."""
    divisors = [x.src[1] for x in toposort(u) if x.op in _DIVISION]
    return not has(u, Ops.CAST) and all(d.op is Ops.CONST and d.arg.bits for d in divisors)


def is_index(u: UOp) -> bool:
    return (u.src[0] if u.op in COMPARE else u).dtype is dtypes.index


_NOT_FOR_Z3 = (*_DIVISION, Ops.CAST)
#: rules about casts or divisors that are no constants: test_proofs has their values
BY_VALUES = set(
    """
    cast-by-bounds cast-to-itself cast-twice where-one-zero where-zero-one
    lt-of-casts eq-of-casts ne-of-casts cast-less-constant constant-less-cast cast-equal-constant
    cast-unequal-constant flag-is-zero flag-is-one flag-is-not-zero flag-is-not-one flag-above-zero
    flag-below-one quotient-by-bounds remainder-by-bounds quotient-by-self remainder-by-self
    quotient-of-zero remainder-of-zero
    """.split()
)
INDEX_RULES = [r for r in RULES.rules if INDEX in r.holds and not r.name.startswith("fold-")]


@pytest.mark.parametrize("rule", INDEX_RULES, ids=lambda r: r.name)
def test_index_rule_for_all_integers(rule: Rule) -> None:
    """With ranges of 2**40 values where the rule says nothing of bounds."""

    def expressions() -> Iterator[UOp]:
        for u in CASES[rule.name](rule):
            if not is_index(u) or not linear(u):
                continue
            if CASES[rule.name] is pattern:
                ranges = [x for x in leaves_of(u) if x.op is Ops.RANGE]
                u = u.substitute({r: between(r.arg.axis, -(2**40), 2**40) for r in ranges})
            yield u

    pairs = [p for p in applied(rule, expressions(), 8) if linear(p[1])]
    for before, after in pairs:
        prove(before, after)
    assert bool(pairs) is (rule.name not in BY_VALUES)


DATA_RULES = [
    r
    for r in RULES.rules
    if WRAP in r.holds
    and CASES[r.name] in (pattern, backwards)
    and not r.name.startswith("fold-")
    and not any(p.op in _NOT_FOR_Z3 for p in walk(r.pattern))
]


@pytest.mark.parametrize("rule", DATA_RULES, ids=lambda r: r.name)
def test_data_rule_for_all_bits(rule: Rule) -> None:
    """16-bit integers, signed and unsigned; division is proved by all values of 8 bits."""
    wide = Rule(rule.name, rule.pattern, rule.build, WRAP, rule.needs)
    expressions = of_pattern(wide, backwards=CASES[rule.name] is backwards, samples=WIDE)
    pairs = [p for p in applied(rule, expressions, 8) if not has(p[1], *_NOT_FOR_Z3)]
    for before, after in pairs:
        prove(before, after)
    assert bool(pairs) is (rule.name not in BY_VALUES)

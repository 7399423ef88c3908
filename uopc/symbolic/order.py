"""One order of commutative operands, and constants gathered where integers allow it.

Operands stand in the order of their ops (memory first, constants last), then of their structure:
equal values become one node, and text does not change from run to run.  Floats are exchanged, which
changes no bit, but never reassociated.  Sums of index arithmetic have the one form that
`uopc/symbolic/index.py` builds: terms by loop, outer ones first, coefficients and constants merged.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.symbolic import index
from uopc.symbolic.values import const_like, value
from uopc.uop.facts import free, key
from uopc.uop.match import BOOL, FLOAT, INDEX, INTS, WRAP, Holds, Rule, const, node, var
from uopc.uop.node import UOp, alu
from uopc.uop.ops import Ops

x, y, z, c, d = var("x"), var("y"), var("z"), const("c"), const("d")
#: sums of more terms than this stay in the order in which they stand
LIMIT = 64

_POSITION = {op: n for n, op in enumerate(Ops)}
_COMMUTE: dict[Ops, Holds] = {
    Ops.ADD: WRAP | FLOAT,
    Ops.MUL: INTS | FLOAT,
    Ops.MAX: INTS | FLOAT,
    Ops.MIN: INTS | FLOAT,
    Ops.AND: WRAP,
    Ops.OR: WRAP,
    Ops.XOR: INTS,
    Ops.EQ: WRAP | FLOAT | BOOL,
    Ops.NE: WRAP | FLOAT | BOOL,
}


def before(a: UOp, b: UOp) -> bool:
    """Does a stand before b among commutative operands?"""
    if a.op is not b.op:
        return _POSITION[a.op] < _POSITION[b.op]
    return a is not b and key(a) < key(b)


def _commute(op: Ops) -> Callable[[UOp, UOp], UOp | None]:
    return lambda x, y: UOp(op, (y, x)) if before(y, x) else None


# ---- sums of index arithmetic
def few_terms(*roots: UOp) -> bool:
    """Is the sum of these at most LIMIT terms?  Longer ones are not taken apart."""
    stack, count = list(roots), 0
    while stack:
        u = stack.pop()
        op = u.op
        if op is Ops.ADD or op is Ops.SUB:
            stack += u.src
            if len(stack) + count > LIMIT:
                return False
        elif op is Ops.NEG or (op is Ops.MUL and u.src[1].op is Ops.CONST):
            stack.append(u.src[0])
        else:
            count += 1
    return True


def _term(u: UOp) -> tuple[UOp, int]:
    """(atom, coefficient)."""
    if u.op is Ops.MUL and u.src[1].op is Ops.CONST:
        return u.src[0], value(u.src[1])
    return u, 1


def _loop(u: UOp) -> tuple[int, ...]:
    """The place of the innermost loop that u depends on."""
    if u.op is Ops.RANGE:
        return index.rank(u)
    return max((index.rank(r) for r in free(u)), default=(-1,))


def _in_order(x: UOp, y: UOp) -> bool:
    """Is x + y as `index.from_affine` would build it, given that x and y are?"""
    last = x.src[1] if x.op is Ops.ADD else x
    if last.op is Ops.CONST or y.op is Ops.ADD:
        return False
    if y.op is Ops.CONST:
        return value(y) != 0
    (a, m), (b, n) = _term(last), _term(y)
    outer, inner = _loop(a), _loop(b)
    if outer != inner:
        return outer < inner
    if abs(m) < abs(n) or (abs(m) == abs(n) and key(a) > key(b)):
        return False
    for _ in range(LIMIT):  # b may stand among the earlier terms, with another coefficient
        if _term(x.src[1] if x.op is Ops.ADD else x)[0] is b:
            return False
        if x.op is not Ops.ADD:
            break
        x = x.src[0]
    return True


def _index_sum(x: UOp, y: UOp) -> UOp | None:
    return None if _in_order(x, y) or not few_terms(x, y) else index.add(x, y)


def _index_difference(x: UOp, y: UOp) -> UOp:
    return index.sub(x, y) if few_terms(x, y) else x + y * -1


def _index_product(x: UOp, c: UOp) -> UOp:
    return index.scale(x, value(c)) if few_terms(x) else x * c


INDEX_RULES = [
    Rule("index-sum", x + y, _index_sum, INDEX),
    Rule("index-difference", x - y, _index_difference, INDEX),
    Rule("index-negative", -x, lambda x: _index_product(x, index.index(-1)), INDEX),
    Rule("index-product", x * c, _index_product, INDEX),
]


# ---- data integers: constants move to the end of a chain and meet there
def _meet(op: Ops) -> Callable[[UOp, UOp, UOp], UOp]:
    return lambda x, c, d: alu(op, x, alu(op, c, d))


def _below_first(x: UOp, c: UOp, d: UOp) -> UOp | None:
    """min(max(x, d), c) for max(min(x, c), d), where d <= c.

    ptxas of CUDA 13.0 to 13.3 makes `max(min(x, c), 0) == c` for sm_90 one VIMNMX.RELU, and takes
    the predicate of the wrong one for the comparison (note 0011); of the other order it does not.
    """
    return x.maximum(d).minimum(c) if value(d) <= value(c) else None


CONSTANT_RULES = [
    Rule("sub-constant", x - c, lambda x, c: x + const_like(c, -value(c)), WRAP),
    Rule("add-constants", (x + c) + d, _meet(Ops.ADD), WRAP),
    Rule("mul-constants", (x * c) * d, _meet(Ops.MUL), WRAP),
    Rule("and-constants", (x & c) & d, _meet(Ops.AND), WRAP),
    Rule("or-constants", (x | c) | d, _meet(Ops.OR), WRAP),
    Rule("xor-constants", (x ^ c) ^ d, _meet(Ops.XOR), WRAP),
    Rule("max-constants", x.maximum(c).maximum(d), _meet(Ops.MAX), INTS),
    Rule("min-constants", x.minimum(c).minimum(d), _meet(Ops.MIN), INTS),
    Rule("clamp-below-first", x.minimum(c).maximum(d), _below_first, INTS),
    Rule("constant-sub-add", (c - x) + d, lambda x, c, d: (c + d) - x, WRAP),
    Rule("constant-sub-sum", c - (x + d), lambda x, c, d: (c - d) - x, WRAP),
    Rule("constant-sub-difference", c - (d - x), lambda x, c, d: x + (c - d), WRAP),
    Rule("add-constant-last", (x + c) + y, lambda x, y, c: (x + y) + c, WRAP),
    Rule("sub-constant-last", (x + c) - y, lambda x, y, c: (x - y) + c, WRAP),
    Rule("sub-sum-constant", x - (y + c), lambda x, y, c: (x - y) - c, WRAP),
    Rule("mul-constant-last", (x * c) * y, lambda x, y, c: (x * y) * c, INTS),
]

COMMUTE_RULES = [
    *(
        Rule(f"commute-{op.name.lower()}", node(op, x, y), _commute(op), h)
        for op, h in _COMMUTE.items()
    ),
    Rule(
        "commute-fma",
        node(Ops.FMA, x, y, z),
        lambda x, y, z: y.fma(x, z) if before(y, x) else None,
        FLOAT,
    ),
]

RULES = [*INDEX_RULES, *CONSTANT_RULES, *COMMUTE_RULES]

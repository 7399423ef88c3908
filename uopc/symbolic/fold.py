"""Constant folding: an op over constants is the constant that the oracle computes.

Left alone: transcendentals, whose last bits depend on the library of the machine that would fold
them (a kernel's text must not), and division by zero, which a checked run should be able to see.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from uopc.symbolic.values import const_like, value
from uopc.uop.match import ANY, BOOL, FLOAT, INTS, WRAP, Holds, Rule, const, node
from uopc.uop.node import UOp
from uopc.uop.numbers import fold_const
from uopc.uop.ops import UNARY, Ops

a, b, c = const("a"), const("b"), const("c")
#: integer folding that needs no array
QUICK: dict[Ops, Callable[[int, int], int]] = {
    Ops.ADD: operator.add,
    Ops.SUB: operator.sub,
    Ops.MUL: operator.mul,
}


def _fold(u: UOp) -> UOp | None:
    if u.op in QUICK and u.dtype.is_int:
        return const_like(u, QUICK[u.op](value(u.src[0]), value(u.src[1])))
    if u.op in (Ops.IDIV, Ops.MOD) and not u.src[1].arg.bits:
        return None
    to = u.arg if u.op in (Ops.CAST, Ops.BITCAST) else None
    return UOp(Ops.CONST, (), fold_const(u.op, [s.arg for s in u.src], to))


def _rule(op: Ops, holds: Holds) -> Rule:
    count = 1 if op in UNARY else 3 if op in (Ops.WHERE, Ops.FMA) else 2
    return Rule(f"fold-{op.name.lower()}", node(op, *(a, b, c)[:count]).named("u"), _fold, holds)


_OPS: dict[Holds, tuple[Ops, ...]] = {
    INTS | FLOAT: (Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG),
    FLOAT: (Ops.DIV, Ops.FMA, Ops.SQRT, Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.RINT),
    INTS: (Ops.IDIV, Ops.MOD),
    WRAP: (Ops.SHL, Ops.SHR),
    WRAP | BOOL: (Ops.AND, Ops.OR, Ops.NOT),
    INTS | BOOL: (Ops.XOR,),
    WRAP | FLOAT | BOOL: (Ops.BITCAST,),
    ANY: (Ops.MAX, Ops.MIN, Ops.LT, Ops.EQ, Ops.NE, Ops.WHERE, Ops.CAST),
}
RULES = [_rule(op, holds) for holds, ops in _OPS.items() for op in ops]

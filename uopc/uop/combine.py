"""What each Combine means: identity, one step, for one value or a tuple of them.

The same step serves accumulators, butterflies and the folding of partial results, so a reduction
that splits like a sum needs nothing but an entry here.
"""

from __future__ import annotations

import math

from uopc.dtype import DType
from uopc.uop.node import UOp, alu
from uopc.uop.ops import Combine, Ops

_BINARY = {
    Combine.ADD: Ops.ADD,
    Combine.MUL: Ops.MUL,
    Combine.MAX: Ops.MAX,
    Combine.MIN: Ops.MIN,
    Combine.AND: Ops.AND,
    Combine.OR: Ops.OR,
    Combine.XOR: Ops.XOR,
}


def lowest(dtype: DType) -> int | float:
    """What every value of dtype is at least: -inf or the smallest integer."""
    return -math.inf if dtype.is_float else dtype.min


def highest(dtype: DType) -> int | float:
    """What every value of dtype is at most: inf or the largest integer."""
    return math.inf if dtype.is_float else dtype.max


def identity(combine: Combine, dtypes: tuple[DType, ...]) -> tuple[UOp, ...]:
    """The values that change nothing: one constant per value.

    Sums start from +0.0 (so a sum of -0.0 is +0.0); an extreme of all -inf is -inf.
    """
    d = dtypes[0]
    if combine in (Combine.ARGMAX, Combine.ARGMIN):
        worst = lowest(d) if combine is Combine.ARGMAX else highest(d)
        return UOp.const(worst, d), UOp.const(highest(dtypes[1]), dtypes[1])
    start: dict[Combine, int | float] = {
        Combine.ADD: 0,
        Combine.MUL: 1,
        Combine.OR: 0,
        Combine.XOR: 0,
    }
    if combine is Combine.AND:
        return (UOp.const(-1 if d.min < 0 else d.max, d),)
    if combine is Combine.MAX:
        return (UOp.const(lowest(d), d),)
    if combine is Combine.MIN:
        return (UOp.const(highest(d), d),)
    return (UOp.const(start[combine], d),)


def step(combine: Combine, a: tuple[UOp, ...], b: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """a combined with b, in this order.

    ARGMAX takes b where it is larger, or equal (NaN equals NaN) with a smaller index; so the result
    is the first of the largest whatever tree is folded.
    """
    if combine not in (Combine.ARGMAX, Combine.ARGMIN):
        return (alu(_BINARY[combine], a[0], b[0]),)
    (av, ai), (bv, bi) = a, b
    better = alu(Ops.LT, av, bv) if combine is Combine.ARGMAX else alu(Ops.LT, bv, av)
    tie = alu(Ops.EQ, av, bv)
    if av.dtype.is_float:
        a_nan, b_nan = alu(Ops.NE, av, av), alu(Ops.NE, bv, bv)
        better = alu(Ops.OR, better, alu(Ops.AND, b_nan, alu(Ops.NOT, a_nan)))
        tie = alu(Ops.OR, tie, alu(Ops.AND, a_nan, b_nan))
    take = alu(Ops.OR, better, alu(Ops.AND, tie, alu(Ops.LT, bi, ai)))
    return alu(Ops.WHERE, take, bv, av), alu(Ops.WHERE, take, bi, ai)

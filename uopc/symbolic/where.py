"""Choices, and gates that are constant.

Both sides of a choice are pure, so a rule may evaluate a side that is not taken.
"""

from __future__ import annotations

from uopc.uop.match import ANY, BOOL, EFFECT, FLOAT, INTS, WRAP, Rule, node, var
from uopc.uop.node import UOp, derive
from uopc.uop.ops import Ops

p, q, x, y, z = var("p", BOOL), var("q", BOOL), var("x"), var("y"), var("z")
DATA = WRAP | FLOAT | BOOL


def _ungated(u: UOp, count: int) -> UOp:
    """The access without its gate (and without what a LOAD gives where it is false)."""
    return derive(u, u.src[:count])


def _unread(u: UOp, y: UOp) -> UOp | None:
    """A LOAD that never happens is its other value, or zeros if it is wide."""
    return y if u.arg is None or u.arg.width == 1 else None


RULES = [
    Rule("where-true", node(Ops.WHERE, True, x, y), lambda x: x, ANY),
    Rule("where-false", node(Ops.WHERE, False, x, y), lambda y: y, ANY),
    Rule("where-equal", p.where(x, x), lambda x: x, ANY),
    Rule("where-not", (~p).where(x, y), lambda p, x, y: p.where(y, x), ANY),
    # the same condition again
    Rule("where-then-where", p.where(p.where(x, y), z), lambda p, x, z: p.where(x, z), ANY),
    Rule("where-else-where", p.where(x, p.where(y, z)), lambda p, x, z: p.where(x, z), ANY),
    # two conditions and one other value
    Rule("where-both", p.where(q.where(x, y), y), lambda p, q, x, y: (p & q).where(x, y), ANY),
    Rule("where-either", p.where(x, q.where(x, y)), lambda p, q, x, y: (p | q).where(x, y), ANY),
    # truth values
    Rule("where-true-false", p.where(True, False), lambda p: p, BOOL),
    Rule("where-false-true", p.where(False, True), lambda p: ~p, BOOL),
    Rule("where-or-false", p.where(x, False), lambda p, x: p & x, BOOL),
    Rule("where-or-true", p.where(x, True), lambda p, x: ~p | x, BOOL),
    Rule("where-true-or", p.where(True, x), lambda p, x: p | x, BOOL),
    Rule("where-false-or", p.where(False, x), lambda p, x: ~p & x, BOOL),
    Rule("where-itself", p.where(p, x), lambda p, x: p | x, BOOL),
    Rule("where-else-itself", p.where(x, p), lambda p, x: p & x, BOOL),
    # flags as numbers
    Rule("where-one-zero", p.where(1, 0).named("u"), lambda p, u: p.cast(u.dtype), INTS),
    Rule("where-zero-one", p.where(0, 1).named("u"), lambda p, u: (~p).cast(u.dtype), INTS),
    Rule("where-one-zero-float", p.where(1.0, 0.0).named("u"), lambda p, u: p.cast(u.dtype), FLOAT),
    Rule(
        "where-zero-one-float", p.where(0.0, 1.0).named("u"), lambda p, u: (~p).cast(u.dtype), FLOAT
    ),
    # the smaller and the larger (of floats, NaN and -0.0 forbid it)
    Rule("where-less-min", (x < y).where(x, y), lambda x, y: x.minimum(y), INTS),
    Rule("where-less-max", (x < y).where(y, x), lambda x, y: x.maximum(y), INTS),
    Rule("where-equal-other", x.eq(y).where(x, y), lambda y: y, INTS),
    Rule("where-equal-same", x.eq(y).where(y, x), lambda x: x, INTS),
    # gates
    Rule("load-always", node(Ops.LOAD, x, True, y).named("u"), lambda u: _ungated(u, 1), DATA),
    Rule("load-never", node(Ops.LOAD, x, False, y).named("u"), _unread, DATA),
    Rule("store-always", node(Ops.STORE, x, y, True).named("u"), lambda u: _ungated(u, 2), EFFECT),
]

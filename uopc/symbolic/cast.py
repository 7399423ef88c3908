"""Casts: those that lose nothing collapse, and integer arithmetic moves under them.

A cast to a narrow float and back rounds: f32 -> f16 -> f32 stays.  Integer casts wrap and float to
integer saturates, so i16 -> f32 -> i8 is not i16 -> i8.
"""

from __future__ import annotations

from uopc.dtype import DType, Kind, dtypes
from uopc.symbolic.values import const_like, decided, float_like, room, value, within
from uopc.uop.facts import bounds, exact_bounds
from uopc.uop.match import ANY, BOOL, FLOAT, INDEX, INTS, WRAP, Rule, const, node, var
from uopc.uop.node import UOp, alu
from uopc.uop.ops import Ops

x, y, c = var("x"), var("y"), const("c")

#: bits of a float's significand, the hidden one included (IEEE 754; bfloat16; OCP 8-bit floats)
SIGNIFICAND = {
    dtypes.f8e4m3: 4,
    dtypes.f8e5m2: 3,
    dtypes.bf16: 8,
    dtypes.f16: 11,
    dtypes.f32: 24,
    dtypes.f64: 53,
}
#: bits of a float's exponent
EXPONENT = {
    dtypes.f8e4m3: 4,
    dtypes.f8e5m2: 5,
    dtypes.bf16: 8,
    dtypes.f16: 5,
    dtypes.f32: 8,
    dtypes.f64: 11,
}


def keeps_all(a: DType, b: DType) -> bool:
    """Does a cast from a to b give every value of a exactly?"""
    if a is b or a.kind is Kind.BOOL:
        return not _saturates(a, b)
    if a is dtypes.index or b.kind is Kind.BOOL:
        return False
    if a.is_float:
        return b.is_float and SIGNIFICAND[a] <= SIGNIFICAND[b] and EXPONENT[a] <= EXPONENT[b]
    if b.is_float:
        return max(-a.min, a.max) <= 1 << SIGNIFICAND[b] and not b.storage
    return within((a.min, a.max), room(b))


def _cast_twice(x: UOp, a: UOp, u: UOp) -> UOp | None:
    """x -> a -> u as x -> u, where a keeps all of x or u is what is left of both."""
    source, middle, target = x.dtype, a.dtype, u.dtype
    if source.is_int and middle.is_int:
        if within(bounds(x), room(middle)):
            return x.cast(target)
        narrower = target.is_data_int and middle.is_data_int and target.bits <= middle.bits
        return x.cast(target) if narrower else None
    if not keeps_all(source, middle):
        return None
    wraps = source.is_int and middle.is_float and target.is_int and not keeps_all(source, target)
    return None if wraps or _saturates(source, target) else x.cast(target)


def _saturates(source: DType, target: DType) -> bool:
    """Is it a cast of f8e5m2 to itself?  Casts to fp8 saturate, so it takes infinity away."""
    return source is target is dtypes.f8e5m2


def _to_bool(x: UOp) -> UOp | None:
    """Whether x differs from zero (NaN does)."""
    if x.dtype.storage or x.dtype is dtypes.bool:
        return None
    return x.ne(float_like(x, 0.0) if x.dtype.is_float else const_like(x, 0))


# ---- arithmetic on casts of an index is index arithmetic
def _arithmetic(op: Ops) -> tuple[Rule, Rule, Rule]:
    """f(cast(x), cast(y)) = cast(f(x, y)) while nothing wraps; then index rules apply."""

    def build(x: UOp, y: UOp, u: UOp) -> UOp | None:
        whole = room(u.dtype)
        if not within(bounds(x), whole) or not within(bounds(y), whole):
            return None
        result = alu(op, x, y)
        return result.cast(u.dtype) if within(exact_bounds(result), whole) else None

    def with_constant(x: UOp, c: UOp, u: UOp) -> UOp | None:
        return build(x, const_like(x, value(c)), u)

    def of_constant(x: UOp, c: UOp, u: UOp) -> UOp | None:
        return build(const_like(x, value(c)), x, u)

    name, i, j = op.name.lower(), var("x", INDEX).cast(), var("y", INDEX).cast()
    return (
        Rule(f"{name}-casts", node(op, i, j).named("u"), build, WRAP),
        Rule(f"{name}-cast-constant", node(op, i, c).named("u"), with_constant, WRAP),
        Rule(f"{name}-constant-cast", node(op, c, i).named("u"), of_constant, WRAP),
    )


def _itself(x: UOp, u: UOp) -> UOp | None:
    return x if x.dtype is u.dtype and not _saturates(x.dtype, u.dtype) else None


def _bitcast_twice(x: UOp, a: UOp, u: UOp) -> UOp | None:
    """Through bool only the question whether a byte is 0 is left."""
    return None if a.dtype is dtypes.bool else x.bitcast(u.dtype)


DATA = WRAP | FLOAT | BOOL
RULES = [
    Rule("cast-to-itself", x.cast().named("u"), _itself, ANY),
    Rule("cast-by-bounds", var("x", INTS | BOOL).cast().named("u"), decided),
    Rule("cast-twice", x.cast().named("a").cast().named("u"), _cast_twice, ANY),
    Rule("cast-to-bool", x.cast(), _to_bool, BOOL),
    Rule("bitcast-to-itself", x.bitcast().named("u"), _itself, DATA),
    Rule("bitcast-twice", x.bitcast().named("a").bitcast().named("u"), _bitcast_twice, DATA),
    *(r for op in (Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD) for r in _arithmetic(op)),
]

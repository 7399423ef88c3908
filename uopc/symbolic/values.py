"""Constants and conditions that the families of rules share."""

from __future__ import annotations

from uopc.dtype import DType, dtypes, to_bits
from uopc.uop.facts import Bounds, bounds, exact_bounds, of_dtype
from uopc.uop.node import UOp
from uopc.uop.ops import ConstArg, Ops


def const_like(u: UOp, n: int) -> UOp:
    """The integer n as a constant of u's dtype, wrapped to its width."""
    return UOp(Ops.CONST, (), ConstArg(u.dtype, u.dtype.wrap(n)))


def float_like(u: UOp, x: float) -> UOp:
    """x rounded to u's float dtype, as a constant."""
    return UOp(Ops.CONST, (), ConstArg(u.dtype, to_bits(x, u.dtype)))


def zero(u: UOp) -> UOp:
    """0 (false) of u's dtype, which is no float."""
    return const_like(u, 0)


def ones(u: UOp) -> UOp:
    """Every bit set, or true."""
    return const_like(u, 1 if u.dtype is dtypes.bool else -1)


def value(c: UOp) -> int:
    """The integer that a CONST holds."""
    n = c.arg.bits
    assert isinstance(n, int)
    return n


def decided(u: UOp) -> UOp | None:
    """The constant that the bounds of u leave, if they leave one."""
    lo, hi = bounds(u)
    return const_like(u, lo) if lo == hi else None


def within(inner: Bounds, outer: Bounds) -> bool:
    """Does one interval lie inside another?"""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def room(d: DType) -> Bounds:
    """What a variable of an integer dtype can hold; an index is rendered in at most 64 bits."""
    return of_dtype(dtypes.i64 if d is dtypes.index else d)


def no_wrap(*nodes: UOp) -> bool:
    """Do the bounds prove that none of these nodes wraps?  Index arithmetic never does."""
    for u in nodes:
        d = u.dtype
        if d is not dtypes.index and not within(exact_bounds(u), (d.min, d.max)):
            return False
    return True


def excludes_zero(u: UOp) -> bool:
    """Do the bounds prove that u is not 0?"""
    lo, hi = bounds(u)
    return lo > 0 or hi < 0

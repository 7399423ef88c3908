"""Data integers that name elements: what `rangeify` makes of the indices of GATHER and SCATTER.

A negative index counts from the end.  One outside reads the nearest element, hits none, and is
reported by a code in the error word:

    1 << 63  |  size of the axis (31 bits; 0 where it does not fit) << 32  |  index (i32, clipped)
"""

from __future__ import annotations

from uopc.dtype import DType, dtypes
from uopc.symbolic import index as ix
from uopc.uop.facts import bounds, of_dtype
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

_I32 = dtypes.i32.min, dtypes.i32.max
REPORTED = 1 << 63
LARGEST_SIZE = (1 << 31) - 1


def element(value: UOp, size: int) -> UOp:
    """The element of an axis of `size` > 0 that a value names, 0 .. size - 1, as an index."""
    if size == 1:
        return ix.ZERO
    if value.dtype.bits >= 32:  # so that nothing below needs more bits than an offset
        value = _within(value, -size, size - 1)
    i = as_index(value)
    if bounds(i)[0] < 0:
        from_end = UOp(Ops.WHERE, (ix.below(i, 0), ix.index(size), ix.ZERO))
        i = ix.add(i, from_end)
    return _within(i, 0, size - 1)


def hits(value: UOp, at: UOp, size: int) -> UOp:
    """Does a value name the element `at` (an index) of an axis of `size`?"""
    i = as_index(value)
    # in the bits of the value, if it has enough: as an index, at - value could need more
    lowest = -size if bounds(value)[0] < 0 else 0
    plain = i.src == (value,) and _fits(size, value.dtype) and _fits(lowest, value.dtype)

    def named(element: UOp) -> UOp:
        pair = (value, UOp(Ops.CAST, (element,), value.dtype)) if plain else (i, element)
        return UOp(Ops.EQ, pair)

    if bounds(value)[0] >= 0:
        return named(at)
    return UOp(Ops.OR, (named(at), named(ix.sub(at, ix.index(size)))))


def strays(value: UOp, size: int) -> UOp:
    """Does a value name no element of an axis of `size`?"""
    low, high = bounds(value)
    below = value < -size if low < -size else ix.FALSE
    above = size - 1 < value if high > size - 1 else ix.FALSE
    if ix.FALSE in (below, above):
        return above if below is ix.FALSE else below
    return below | above


def report_code(value: UOp, size: int) -> UOp:
    """What is reported of a value that is no index of an axis of `size`."""
    clipped = _within(value, *_I32).cast(dtypes.i32)
    said = size if size <= LARGEST_SIZE else 0
    return clipped.cast(dtypes.u32).cast(dtypes.u64) | (REPORTED | said << 32)


def as_index(value: UOp) -> UOp:
    """An integer as an index; an index that was cast and fitted is itself again."""
    if value.op is Ops.CAST and value.src[0].dtype is dtypes.index:
        low, high = bounds(value.src[0])
        if _fits(low, value.dtype) and _fits(high, value.dtype):
            return value.src[0]
    return UOp(Ops.CAST, (value,), dtypes.index)


def _within(value: UOp, low: int, high: int) -> UOp:
    """The nearest value that is low .. high; a limit that the value cannot reach is left out.

    The lower limit comes first: NVRTC 13.0 to 13.3 (ptxas, sm_90) makes max(min(v, high), 0) ==
    high one VIMNMX.RELU and takes a predicate of it for the comparison that is another's: wrong.
    """
    have = bounds(value)
    if have[0] < low:
        value = UOp(Ops.MAX, (value, _constant(low, value.dtype)))
    if have[1] > high:
        value = UOp(Ops.MIN, (value, _constant(high, value.dtype)))
    return value


def _fits(n: int, dtype: DType) -> bool:
    low, high = of_dtype(dtype)
    return low <= n <= high


def _constant(n: int, dtype: DType) -> UOp:
    return ix.index(n) if dtype is dtypes.index else UOp.const(n, dtype)

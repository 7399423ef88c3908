"""Which results have bits that can be told beforehand, and how far others may be away.

A launch and its emulation agree bit for bit (they run one PROGRAM), but where the device's library
computes a function, where tensor cores sum floats, and where atomics add them: those have an order
of their own.  A sum of products of coarse inputs is exact in any order, and so its bits are known
all the same, also to a kernel of other choices.

Coarse: a float is a whole number of units, of at most so many.

    sum over k of a[m, k] * b[k, n]      K * 8 * 8 units of 1/64: exact in f32 while below 2**24
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc import layouts
from uopc.dtype import DType, Kind, dtypes
from uopc.export.described import Exported
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import MOVEMENT, TRANSCENDENTAL, Atomic, Combine, Ops

#: units of a coarse float: 1/8 and at most 1; in 8 bits 1/2 and at most 1
COARSE_UNITS, NARROW_UNITS = 8, 2
SMALL = 8  # generated whole numbers are below it: they may be indices
#: sums below so many units are exact in f32
_EXACT_UNITS = 1 << 24
#: and on tensor cores of 8-bit floats, which keep 14 bits of a sum on Hopper (DeepSeek-V3 Technical
#: Report, arXiv:2412.19437, section 3.3.2), less one for what they align by
_NARROW_EXACT_UNITS = 1 << 13
#: units in the last place that a result may be away: of the dtype that functions and sums are
#: computed in, and of its own
ULPS_OF_FUNCTIONS, ULPS_OF_RESULT = 64, 2
_MANTISSA = {"f8e4m3": 3, "f8e5m2": 2, "bf16": 7, "f16": 10, "f32": 23, "f64": 52}
_WITHOUT_ORDER = (Combine.MAX, Combine.MIN)


def has_float_product(exported: Exported) -> bool:
    """Do its launches multiply floats on tensor cores?"""
    return any(map(_is_float_product, _nodes(exported)))


def bits_are_known(exported: Exported, bodies: Sequence[UOp], emulated: bool, coarse: bool) -> bool:
    """Has a launch the bits of the results that were computed?

    bodies: what the kernel computes, where that is known.  emulated: results are of the emulation
    of its launches, not of another kernel.  coarse: of coarse inputs.
    """
    nodes = _nodes(exported)
    if any(u.op in TRANSCENDENTAL or _adds_atomically(u) for u in nodes):
        return False
    same_order = emulated and not has_float_product(exported)
    return same_order or (coarse and bool(bodies) and _sums_are_exact(bodies))


def relative_tolerance(exported: Exported, dtype: DType) -> float:
    """How far a float result may be away, as a part of it, where its bits are not known."""
    floats = {u.dtype for u in _nodes(exported) if u.dtype.is_float and u.op is not Ops.LOAD}
    unit = 2.0**-52 if floats == {dtypes.f64} else 2.0**-23
    return max(ULPS_OF_RESULT * 2.0 ** -_MANTISSA[dtype.name], ULPS_OF_FUNCTIONS * unit)


def _nodes(exported: Exported) -> list[UOp]:
    return toposort(*exported.sinks)


def _is_float_product(u: UOp) -> bool:
    return u.op is Ops.MMA and layouts.ATOMS[u.arg].accumulator.dtype.is_float


def _adds_atomically(u: UOp) -> bool:
    return u.op is Ops.ATOMIC and u.arg.atomic is Atomic.ADD and u.src[1].dtype.is_float


def _sums_are_exact(bodies: Sequence[UOp]) -> bool:
    """Is every reduction of floats one whose order does not matter?"""
    return all(
        _is_exact(u)
        for u in toposort(*bodies)
        if u.op in (Ops.REDUCE, Ops.SCAN) and any(s.dtype.is_float for s in u.src)
    )


def _is_exact(u: UOp) -> bool:
    """Is a REDUCE of floats a maximum, or a small enough sum of coarse inputs or of their products?

    u is in stage TENSOR; its last axes are reduced.
    """
    if u.arg.combine in _WITHOUT_ORDER:
        return True
    if u.op is not Ops.REDUCE or u.arg.combine is not Combine.ADD or len(u.src) != 1:
        return False
    value = _moved(u.src[0])
    factors = value.src if value.op is Ops.MUL else (value,)
    inputs = [_moved(f) for f in factors]
    if any(x.op is not Ops.BUFFER for x in inputs):
        return False
    shape = u.src[0].shape
    count = prod(shape[len(shape) - u.arg.axes :])
    narrow = any(x.dtype.itemsize == 1 and x.dtype.is_float for x in inputs)
    most = _NARROW_EXACT_UNITS if narrow else _EXACT_UNITS
    return count * prod(tuple(map(_units, inputs))) < most


def _moved(u: UOp) -> UOp:
    """What u shows, cast: no view and no cast changes a coarse number."""
    while u.op in MOVEMENT or u.op is Ops.CAST:
        if u.op is Ops.PAD and not _is_zero(u.src[1]):
            return u
        u = u.src[0]
    return u


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg.bits == 0


def _units(x: UOp) -> int:
    """The most units that an element of a generated input has."""
    if x.dtype.kind is Kind.BOOL:
        return 1
    if not x.dtype.is_float:
        return SMALL - 1
    return NARROW_UNITS if x.dtype.itemsize == 1 else COARSE_UNITS

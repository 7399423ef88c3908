"""How an operand of a product lies in memory, and what of it is more than a view.

Shared by those that stage operands, write them first, and choose how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.layouts import K_MAJOR, MN_MAJOR, Operand, tma_fault
from uopc.passes.find_products import Product, Ranges, places
from uopc.symbolic import index as ix
from uopc.symbolic.cast import keeps_all
from uopc.uop.facts import free
from uopc.uop.node import UOp, inherit, memory, prod, toposort
from uopc.uop.ops import AxisType, Ops, RangeArg, TensorMapArg


def narrow(operand: UOp, of: Operand | None) -> UOp:
    """The operand in the dtype that an atom takes, for FMA as it is.

    Raises UsageError where that would change it.
    """
    if of is None:
        return padded(operand)
    if (found := as_type(operand, of.dtype)) is not None:
        return found
    raise UsageError(
        f"Opts.plan: the atom multiplies {of.dtype}, an operand is {operand.dtype}. Choose an atom "
        "for that, or cast the operand"
    )


def as_type(operand: UOp, dtype: DType) -> UOp | None:
    """The same values in another dtype: what it is a CAST of, or that as this dtype, where neither
    loses anything; else None."""
    if operand.dtype is dtype:
        return padded(operand)
    source = uncast(operand)
    if source.dtype is dtype:
        return padded(source)
    if source is operand or not keeps_all(source.dtype, dtype):
        return None
    return inherit(UOp(Ops.CAST, (source,), dtype), operand)


def uncast(operand: UOp) -> UOp:
    """The operand, or what it is a CAST of, where that loses nothing."""
    if operand.op is Ops.CAST and keeps_all(operand.src[0].dtype, operand.dtype):
        return uncast(operand.src[0])
    return operand


def padded(value: UOp) -> UOp:
    """A LOAD in place of a choice between it and 0, where its own gate makes that choice too."""
    if value.op is not Ops.WHERE or not is_zero(value.src[2]):
        return value
    gate, load, _ = value.src
    if not is_view(load) or len(load.src) == 1 or not is_zero(load.src[2]):
        return value
    return load if set(ix.conjuncts(gate)) <= set(ix.conjuncts(load.src[1])) else value


def is_view(value: UOp) -> bool:
    """Is it an element of a parameter, as it lies in memory?"""
    return value.op is Ops.LOAD and memory(value.src[0]).op is Ops.BUFFER


def is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and not u.arg.bits


def contiguous_along(value: UOp, r: UOp, c: UOp) -> str:
    """Along which side of its tile an operand lies element by element in memory: a view itself,
    whatever loads its indices."""
    loads = [value] if is_view(value) else [u for u in toposort(value) if u.op is Ops.LOAD]
    offsets = [u.src[0].src[1] for u in loads]
    down, across = (sum(runs(x, side, 2) for x in offsets) for side in (r, c))
    return MN_MAJOR if down > across else K_MAJOR


def neighbours(u: UOp, along: UOp, width: int) -> list[UOp]:
    """What depends on a range, at each element of a vector of `width` of its elements."""
    a: RangeArg = along.arg
    vector = UOp(Ops.RANGE, (), RangeArg(a.axis, -(-a.size // width), a.kind, a.digit))
    first = ix.scale(vector, width)
    return [ix.substitute(u, {along: ix.add(first, ix.index(e))}) for e in range(width)]


def runs(offset: UOp, along: UOp, width: int) -> bool:
    """Are the elements of a vector along a range neighbours in memory?"""
    if along.op is not Ops.RANGE or along not in free(offset):
        return False
    first, *others = neighbours(offset, along, width)
    return all(ix.sub(x, first) is ix.index(e) for e, x in enumerate(others, 1))


@dataclass(frozen=True)
class Lies:
    """How an operand lies in memory.

    strides: elements from one batch, row (of m or n) and k to the next, where it is a view of a
    parameter that walks them so; major: K_MAJOR or MN_MAJOR where it is contiguous along k or its
    rows; even: elements that its place is always a multiple of, one away from the contiguous side.
    """

    strides: tuple[int, int, int] | None
    major: str
    even: int

    def takes(self, copied_bytes: int, itemsize: int) -> bool:
        """Can copies of so many bytes bring it?"""
        return bool(self.major) and self.even * itemsize % copied_bytes == 0


def lies(product: Product, operand: UOp, own: Ranges) -> Lies:
    """Of a or b (or what it is a CAST of), whose rows are m or n."""
    first = 1 + max(r.arg.axis for r in toposort(product.total) if r.op is Ops.RANGE)
    batches, _, _, depth = product.sizes
    sizes = (batches, prod(r.arg.size for r in own), depth)
    z, r, c = (
        UOp(Ops.RANGE, (), RangeArg(first + n, size, AxisType.LOOP)) for n, size in enumerate(sizes)
    )
    operand = padded(operand)
    if not is_view(operand):
        return Lies(None, "", 1)
    table = {**places(product.batch, z), **places(own, r), **places(product.k, c)}
    offset = ix.substitute(operand, table).src[0].src[1]
    major, along = next(
        ((m, x) for m, x in ((K_MAJOR, c), (MN_MAJOR, r)) if runs(offset, x, 2)), ("", c)
    )
    even = next(
        (n for n in (16, 8, 4, 2) if major and ix.divides(n, neighbours(offset, along, n)[0])), 1
    )
    terms, _ = ix.affine(offset)
    plain = len(operand.src) == 1 and set(terms) <= {z, r, c}
    strides = (terms.get(z, 0), terms.get(r, 0), terms.get(c, 0)) if plain else None
    return Lies(strides, major, even)


@dataclass(frozen=True)
class Folded:
    """What tensor copies see of an access: axes of memory, outermost first, along each of which
    ranges, and what origin has for it, add up to a coordinate."""

    map: TensorMapArg
    axes: tuple[Ranges, ...]
    origin: tuple[int, ...]

    def has_in_order(self, ranges: Ranges) -> bool:
        """Do these stand in axes one after the other, of which the last is the innermost, or just
        outside of it?"""
        at = [next((n for n, axis in enumerate(self.axes) if r in axis), -1) for r in ranges]
        last = len(self.axes) - 1
        return at == list(range(at[0], at[0] + len(at))) and at[-1] in (last, last - 1)


def folded_map(access: UOp, cut: Mapping[UOp, int], swizzle: int) -> Folded | None:
    """The view of memory of which boxes, `cut` elements along each range, are what a LOAD or STORE
    touches; its gate has to be that it stays inside of each axis.  None where it is no such view.

    An image under a window: rows y and window ky make one axis of memory, y + ky - 1.
    """
    item = access.src[0].dtype.itemsize
    others = access.src[1:] if access.op is Ops.LOAD else access.src[2:]
    gates = ix.conjuncts(others[0]) if others else []
    terms, constant = ix.affine(access.src[0].src[1])
    if not set(terms) <= set(cut) or not all(map(is_zero, others[1:])):
        return None
    by_stride: dict[int, list[UOp]] = {}
    for r, stride in terms.items():
        by_stride.setdefault(stride, []).append(r)
    strides = sorted(by_stride, reverse=True)
    axes = [tuple(by_stride[s]) for s in strides]
    limits = [_limits_of(axis, [g for g in gates if free(g) <= set(axis)]) for axis in axes]
    counted = sum(free(g) <= set(axis) for g in gates for axis in axes)
    found = [x for x in limits if x is not None]
    if strides[-1] != 1 or counted < len(gates) or len(found) < len(limits):
        return None
    origin, shape = ([x[n] for x in found] for n in (0, 1))
    if sum(x * s for x, s in zip(origin, strides, strict=True)) != constant:
        return None
    if any(sum(cut[r] > 1 for r in axis) > 1 for axis in axes):
        return None
    box = [prod(cut[r] for r in axis) for axis in axes]
    if tma_fault(shape, strides[:-1], box, item, swizzle):
        return None
    sizes = (tuple(shape), tuple(strides[:-1]), tuple(box))
    return Folded(TensorMapArg(*sizes, swizzle), tuple(axes), tuple(origin))


def _limits_of(axis: Ranges, gates: list[UOp]) -> tuple[int, int] | None:
    """(what is added to the sum of an axis' ranges, how many coordinates there are), by gates that
    speak of nothing else."""
    below: list[int] = []
    lowest, whole = 0, dict.fromkeys(axis, 1)
    for g in gates:
        low, high = g.src if g.op is Ops.LT else (g, g)
        at, bound = (high, low) if low.op is Ops.CONST else (low, high)
        terms, constant = ix.affine(at) if bound.op is Ops.CONST else ({}, 0)
        if terms != whole:
            return None
        if at is high:
            lowest = max(lowest, bound.arg.bits + 1 - constant)
        else:
            below.append(bound.arg.bits - constant)
    highest = min(below, default=1 + sum(r.arg.size - 1 for r in axis))
    return -lowest, highest - lowest


def places_along(offset: UOp, strides: Sequence[int]) -> list[UOp]:
    """The coordinates of a place in memory along axes of these strides, outermost first, and a
    contiguous one, where each is below what makes a step of the next outer one."""
    found: list[UOp] = []
    for stride in strides:
        found.append(ix.div(offset, stride))
        offset = ix.mod(offset, stride)
    return [*found, offset]

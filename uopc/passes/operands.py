"""How an operand of a product lies in memory, and what of it is more than a view.

Shared by those that stage operands, write them first, and choose how.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.errors import UsageError
from uopc.layouts import K_MAJOR, MN_MAJOR, Operand
from uopc.passes.find_products import Product, Ranges, places
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import AxisType, Ops, RangeArg


def narrow(operand: UOp, of: Operand | None) -> UOp:
    """The operand in the dtype that an atom takes, for FMA as it is.

    Raises UsageError where that would change it.
    """
    if of is None or operand.dtype is of.dtype:
        return padded(operand)
    if operand.op is Ops.CAST and operand.src[0].dtype is of.dtype:
        return padded(operand.src[0])
    raise UsageError(
        f"Opts.plan: the atom multiplies {of.dtype}, an operand is {operand.dtype}. Choose an atom "
        "for that, or cast the operand"
    )


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
    """Along which side of its tile an operand lies element by element in memory."""
    offsets = [u.src[0].src[1] for u in toposort(value) if u.op is Ops.LOAD]
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
    strides = tuple([terms.get(x, 0) for x in (z, r, c)]) if plain else None
    return Lies(strides, major, even)  # type: ignore[arg-type]  # three of them

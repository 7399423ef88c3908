"""The derivative of each op: one row an op, one entry an operand.

An entry takes a node u and the gradient g of what comes out of it, and gives what that contributes
to the gradient of the operand, in u's shape (an operand of shape () that was repeated is summed by
who asks).  None: no gradient passes.  Everything is built from ops that stand in the table again,
so gradients have gradients.

Where there is a choice, the rule reads u rather than the operands (SQRT, EXP, TANH, MAX against a
constant): u is what a later kernel finds in memory, and a backward pass then reads one array.

The rules are those of calculus where it has an answer.  Elsewhere:
- MAX and MIN of two values share g where they are equal; against a number (relu, clamp) the number
  takes it, so relu has derivative 0 at 0.  An array of equal numbers is an array: whether it is in
  memory yet makes no difference.  Where one of them is NaN both get g.
- REDUCE MAX and MIN share g evenly among all elements that are the extreme.
- SCAN MAX and MIN give what comes to an element to the last extreme up to it, as torch does.
- ITEM 0 of an argmax gives all of g to the element that was taken.
- rounding, comparisons, integers and bits have none.
- WHERE gives 0 to the branch that was not taken; but 0 * inf below that branch is NaN, as IEEE 754
  says: for where(x > 0, log(x), 0) write log(where(x > 0, x, 1)) inside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeAlias

from uopc.dtype import DType, dtypes
from uopc.tensor.curves import slope
from uopc.tensor.recurrence import of_scan
from uopc.uop.node import UOp, prod, tuple_of
from uopc.uop.ops import Combine, Ops

Partial: TypeAlias = Callable[[UOp, UOp], UOp]

_LN2 = math.log(2)
_LOG2E = math.log2(math.e)
_ERF_AT_0 = 2 / math.sqrt(math.pi)
#: elements whose products without one of them are made all at once, in radix² multiplications
_RADIX = 16


def carrier(dtype: DType) -> DType:
    """The dtype of a gradient of values of this float dtype: fp8 is storage, f32 computes."""
    return dtypes.f32 if dtype.storage else dtype


def repeated(u: UOp) -> UOp | None:
    """The CONST of which u is copies, or None.  Not through more views than `UOp.const` makes."""
    for _ in range(3):
        if u.op is Ops.CONST:
            return u
        if u.op not in (Ops.RESHAPE, Ops.EXPAND):
            return None
        u = u.src[0]
    return None


# ---- arithmetic
def _times(g: UOp, x: UOp) -> UOp:
    """g * x; x alone where g is ones, which it is at the top of every backward pass."""
    one = repeated(g)
    return x.expand(g.shape) if one is not None and one.value == 1 else g * x


def _of_divisor(u: UOp, g: UOp) -> UOp:
    """d(a/b)/db = -(a/b) / b.  g / b is what a gets: one division serves both."""
    return -((g / u.src[1]) * u)


def _of_extreme(operand: int, loses: Callable[[UOp, UOp], UOp]) -> Partial:
    """The derivative of MAX or MIN by one operand; loses(x, y): x is not the extreme, y is."""

    def partial(u: UOp, g: UOp) -> UOp:
        x, other = u.src[operand], u.src[1 - operand]
        if other.op is Ops.CONST and not other.shape:
            return u.ne(other).where(g, 0.0)
        return x.eq(other).where(g * 0.5, loses(x, other).where(0.0, g))

    return partial


def _of_erf(u: UOp, g: UOp) -> UOp:
    (x,) = u.src
    return g * (-(x * x)).exp() * _ERF_AT_0


# ---- movement
def sum_over(g: UOp, axes: tuple[int, ...]) -> UOp:
    """The sums of g over these axes, dropped."""
    if not axes:
        return g
    kept = tuple(a for a in range(len(g.shape)) if a not in axes)
    return g.permute(kept + axes).reduce(Ops.ADD, len(axes))


def _of_expand(u: UOp, g: UOp) -> UOp:
    old = u.src[0].shape
    repeats = tuple(a for a, (n, m) in enumerate(zip(old, u.shape, strict=True)) if n != m)
    return sum_over(g, repeats).reshape(old)


def _of_permute(u: UOp, g: UOp) -> UOp:
    return g.permute(tuple(u.arg.index(a) for a in range(len(u.arg))))


def _of_shrink(u: UOp, g: UOp) -> UOp:
    old = u.src[0].shape
    return g.pad(tuple((b, n - e) for (b, e), n in zip(u.arg, old, strict=True)))


def _of_pad(u: UOp, g: UOp) -> UOp:
    old = u.src[0].shape
    return g.shrink(tuple((b, b + n) for (b, _), n in zip(u.arg, old, strict=True)))


def _of_padding(u: UOp, g: UOp) -> UOp:
    """The padding value takes what the border gets."""
    border = UOp.const(False, shape=u.src[0].shape).pad(u.arg, True)
    return border.where(g, 0.0)


# ---- reductions
def _back(v: UOp, x: UOp) -> UOp:
    """A value for each row, repeated over the elements of x that were reduced to it."""
    return v.reshape((*v.shape, *(1,) * (len(x.shape) - len(v.shape)))).expand(x.shape)


def _of_reduce(u: UOp, g: UOp) -> UOp:
    (x, *_) = u.src
    if u.arg.combine is Combine.ADD:
        return _back(g, x)
    if u.arg.combine is Combine.MUL:
        return _times(_back(g, x), _products_of_the_others(x, u.arg.axes))
    hit = x.eq(_back(u, x))
    return hit.where(_back(_shares(hit, u, g), x), 0.0)


def _shares(hit: UOp, u: UOp, g: UOp) -> UOp:
    """g divided by the number of elements that are the extreme; f16 could not hold their count."""
    wide = dtypes.f64 if g.dtype is dtypes.f64 else dtypes.f32
    count = hit.cast(wide).reduce(Ops.ADD, u.arg.axes)
    return (g.cast(wide) / count).cast(g.dtype)


def _products_of_the_others(x: UOp, axes: int) -> UOp:
    """For each element the product of all others in the last axes; right where there are zeros.

    A tree of `_RADIX` branches: an element's others are its siblings, its parent's siblings, and so
    on; n log n multiplications in all.
    """
    kept = x.shape[: len(x.shape) - axes]
    count = prod(x.shape[len(kept) :])
    level, span = x.reshape((*kept, count)), 1  # a node of this level stands for `span` elements
    out: UOp | None = None
    while out is None or level.shape[-1] > 1:
        groups = _grouped(level)
        siblings = _without_one(groups).reshape((*kept, prod(groups.shape[-2:])))
        factor = _each_repeated(siblings, span).shrink((*((0, n) for n in kept), (0, count)))
        out = factor if out is None else out * factor
        level, span = groups.reduce(Ops.MUL), span * groups.shape[-1]
    return out.reshape(x.shape)


def _grouped(level: UOp) -> UOp:
    """The last axis in groups of at most `_RADIX`, filled up with ones: (..., groups, members)."""
    *kept, count = level.shape
    members = min(count, _RADIX)
    missing = -count % max(members, 1)
    filled = level.pad((*((0, 0) for _ in kept), (0, missing)), 1.0)
    groups = (count + missing) // members if members else 1
    return filled.reshape((*kept, groups, members))


def _without_one(groups: UOp) -> UOp:
    """Element i: the product of all but element i of the last axis."""
    *rest, members = groups.shape
    square = (*rest, members, members)
    number = UOp.arange(members)
    left_out = number.reshape((members, 1)).expand(square).eq(number.expand(square))
    return left_out.where(1.0, groups.reshape((*rest, 1, members)).expand(square)).reduce(Ops.MUL)


def _each_repeated(x: UOp, times: int) -> UOp:
    """Each element of the last axis `times` times in a row."""
    *kept, n = x.shape
    return x.reshape((*kept, n, 1)).expand((*kept, n, times)).reshape((*kept, n * times))


def _of_item(u: UOp, g: UOp) -> UOp:
    """Of a TUPLE: its value.  Of an argmax: the value at the position that it found."""
    reduced = u.src[0]
    if reduced.op is Ops.TUPLE:
        return g
    both = tuple_of(reduced)
    assert both is not None  # a REDUCE of one value is no ITEM's source
    found = _back(reduced.item(1), both)
    return both.src[1].eq(found).where(_back(g, both), 0.0)


# ---- places that data names
def _of_gather(u: UOp, g: UOp) -> UOp:
    """SCATTER; but where every axis of the result walks one of x, at most one element of each row
    of x is picked: a comparison with positions, which other elementwise work takes in."""
    x, *indices = u.src
    dims: tuple[int, ...] = u.arg.dims
    walks = tuple(j for j in dims if j >= 0)
    others = tuple(j for j in range(len(u.shape)) if j not in walks)
    if any(u.shape[j] != 1 for j in others):
        return g.scatter(x.shape, dims, *indices)
    rows = tuple(n if j >= 0 else 1 for j, n in zip(dims, x.shape, strict=True))

    def along(v: UOp) -> UOp:
        """v, of u's shape, as an array of x's shape: repeated along the axes that are indexed."""
        return v.permute(walks + others).reshape(rows).expand(x.shape)

    picked = [_is_at(along(indices[~j]), axis) for axis, j in enumerate(dims) if j < 0]
    return functools.reduce(lambda a, b: a & b, picked).where(along(g), 0.0)


def _is_at(index: UOp, axis: int) -> UOp:
    """Does the index say this position of the axis?  A negative one counts from the end."""
    size, dtype = index.shape[axis], index.dtype
    if size > dtype.max:
        dtype = dtypes.i32 if size <= dtypes.i32.max else dtypes.i64
        index = index.cast(dtype)
    if dtype.min < 0:
        index = (index < 0).where(index + size, index)
    row = tuple(size if a == axis else 1 for a in range(len(index.shape)))
    return index.eq(UOp.arange(size, dtype).reshape(row).expand(index.shape))


DERIVATIVES: dict[Ops, tuple[Partial | None, ...]] = {
    Ops.ADD: (lambda u, g: g, lambda u, g: g),
    Ops.SUB: (lambda u, g: g, lambda u, g: -g),
    Ops.MUL: (lambda u, g: _times(g, u.src[1]), lambda u, g: _times(g, u.src[0])),
    Ops.DIV: (lambda u, g: g / u.src[1], _of_divisor),
    Ops.FMA: (
        lambda u, g: _times(g, u.src[1]),
        lambda u, g: _times(g, u.src[0]),
        lambda u, g: g,
    ),
    Ops.NEG: (lambda u, g: -g,),
    Ops.MAX: (_of_extreme(0, lambda x, y: x < y), _of_extreme(1, lambda x, y: x < y)),
    Ops.MIN: (_of_extreme(0, lambda x, y: x > y), _of_extreme(1, lambda x, y: x > y)),
    Ops.WHERE: (
        None,
        lambda u, g: u.src[0].where(g, 0.0),
        lambda u, g: u.src[0].where(0.0, g),
    ),
    Ops.CAST: (lambda u, g: g.cast(carrier(u.src[0].dtype)),),
    Ops.SQRT: (lambda u, g: g * 0.5 / u,),
    Ops.EXP: (lambda u, g: _times(g, u),),
    Ops.EXP2: (lambda u, g: g * u * _LN2,),
    Ops.LOG: (lambda u, g: g / u.src[0],),
    Ops.LOG2: (lambda u, g: g / u.src[0] * _LOG2E,),
    Ops.SIN: (lambda u, g: _times(g, u.src[0].cos()),),
    Ops.COS: (lambda u, g: -_times(g, u.src[0].sin()),),
    Ops.TAN: (lambda u, g: _times(g, 1.0 + u * u),),
    Ops.TANH: (lambda u, g: _times(g, 1.0 - u * u),),
    Ops.ERF: (_of_erf,),
    Ops.RESHAPE: (lambda u, g: g.reshape(u.src[0].shape),),
    Ops.EXPAND: (_of_expand,),
    Ops.PERMUTE: (_of_permute,),
    Ops.SHRINK: (_of_shrink,),
    Ops.PAD: (_of_pad, _of_padding),
    Ops.FLIP: (lambda u, g: g.flip(u.arg),),
    Ops.REDUCE: (_of_reduce,),
    Ops.SCAN: (of_scan,),
    Ops.ITEM: (_of_item,),
    Ops.GATHER: (_of_gather,),
    Ops.SCATTER: (lambda u, g: g.gather(u.arg.dims, *u.src[1:]),),
    Ops.ASSIGN: (None, lambda u, g: g),
    Ops.CURVE: (
        None,
        lambda u, g: _times(g, slope(u, 0)),
        lambda u, g: _times(g, slope(u, 1)),
    ),
    **dict.fromkeys(
        (
            *(Ops.BUFFER, Ops.CONST, Ops.IOTA, Ops.DETACH, Ops.TUPLE, Ops.BITCAST),
            *(Ops.TRUNC, Ops.FLOOR, Ops.CEIL, Ops.RINT, Ops.IDIV, Ops.MOD),
            *(Ops.AND, Ops.OR, Ops.XOR, Ops.NOT, Ops.SHL, Ops.SHR, Ops.LT, Ops.EQ, Ops.NE),
        ),
        (),
    ),
}

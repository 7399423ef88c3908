"""Many elements to one along axes, and running sums.

The functions on UOps are the graphs, `Reductions` the methods of Tensor.  A REDUCE closes the last
axes: the reduced ones are permuted there, and kept ones come back by a reshape.  Narrow floats are
computed in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor.base import Base, axes_of, axis_of, wrap
from uopc.tensor.movement import Axes, insert_axis, move_axes, narrow, pad_axis, positions
from uopc.tensor.promote import DEFAULT_FLOAT
from uopc.uop.combine import identity
from uopc.uop.node import Shape, UOp, alu, here, prod
from uopc.uop.ops import Combine, Ops

#: elements that a running sum adds one by one: longer axes are cut into blocks of so many, whose
#: totals are run over in the same way, but up to MANY of them at once, which saves a kernel
BLOCK, MANY = 64, 512


# ---- graphs
def reduced(u: UOp, op: Ops, axes: Sequence[int], keepdim: bool = False) -> UOp:
    """u reduced over axes by ADD, MUL, MAX, MIN, AND or OR; over no axes it is u."""
    if not axes:
        return u
    return _kept(_last(u, axes).reduce(op, len(axes)), u.shape, axes, keepdim)


def _last(u: UOp, axes: Sequence[int]) -> UOp:
    """These axes last."""
    return u.permute([a for a in range(len(u.shape)) if a not in axes] + list(axes))


def _kept(u: UOp, shape: Shape, axes: Sequence[int], keepdim: bool) -> UOp:
    """The value of a reduction of `shape`, with the reduced axes as size 1 if they are kept."""
    if not keepdim:
        return u
    return u.reshape(tuple(1 if a in axes else n for a, n in enumerate(shape)))


def wide(u: UOp) -> UOp:
    """What is computed with: floats of at least 32 bits; integers and bools as f32."""
    if not u.dtype.is_float:
        return u.cast(DEFAULT_FLOAT)
    return u.cast(dtypes.f32) if u.dtype.bits < 32 else u


def float_like(dtype: DType) -> DType:
    """The dtype of a float result: a float's own, f32 of integers and bools."""
    return dtype if dtype.is_float else DEFAULT_FLOAT


def sum_dtype(dtype: DType) -> DType:
    """The dtype of a sum or product: integers and bools in i64; u64, which i64 cannot hold, and
    floats in their own."""
    return dtypes.i64 if not dtype.is_float and dtype is not dtypes.u64 else dtype


def mean_of(u: UOp, axes: Sequence[int], keepdim: bool = False) -> UOp:
    """Sum divided by count, in f32 or f64; integers are summed exactly first.

    A division is rounded correctly whatever the count; where the count is a power of two the
    compiler makes it a multiplication, which is exact as well.
    """
    exact = wide(u) if u.dtype.is_float else u.cast(sum_dtype(u.dtype))
    return wide(reduced(exact, Ops.ADD, axes, keepdim)) / float(_count(u.shape, axes))


def variance_of(u: UOp, axes: Sequence[int], correction: float, keepdim: bool = False) -> UOp:
    """Squares of distances from the mean, summed and divided by count - correction (0 if less).

    Two passes: the difference of the means of x*x and of x, squared, would lose every digit where
    the mean is large.
    """
    x = wide(u)
    centred = x - mean_of(x, axes, keepdim=True).expand(x.shape)
    total = reduced(centred * centred, Ops.ADD, axes, keepdim)
    return total / max(_count(u.shape, axes) - correction, 0.0)


def root(u: UOp) -> UOp:
    """The square root, with gradient 0 at 0: a distance has no direction there."""
    positive = u.ne(0.0)
    return positive.where(positive.where(u, 1.0).sqrt(), 0.0)


def _count(shape: Shape, axes: Sequence[int]) -> int:
    return prod(shape[a] for a in axes)


def largest(u: UOp, axes: Sequence[int]) -> UOp:
    """The maximum, kept and repeated, through which no gradient passes; 0 for no elements."""
    if _count(u.shape, axes) == 0:
        return UOp.const(0, u.dtype)
    return reduced(u, Ops.MAX, axes, keepdim=True).detach().expand(u.shape)


def logsumexp_of(u: UOp, axes: Sequence[int], keepdim: bool = False) -> UOp:
    """log(sum(exp(x))), in f32 or f64, without overflow: the maximum is taken out first.

    An infinite maximum is not: Inf - Inf is NaN, where the answer is Inf.
    """
    x = wide(u)
    if not axes:
        return x
    if _count(u.shape, axes) == 0:  # the logarithm of no summands
        return reduced(x, Ops.ADD, axes, keepdim) - math.inf
    top = reduced(x, Ops.MAX, axes, keepdim=True).detach()
    top = (top - top).eq(0.0).where(top, 0.0)
    total = reduced((x - top.expand(x.shape)).exp(), Ops.ADD, axes, keepdim)
    return total.log() + (top if keepdim else top.reshape(total.shape))


def softmax_of(u: UOp, axes: Sequence[int]) -> UOp:
    """exp(x) / sum(exp(x)), in f32 or f64, the maximum taken out."""
    x = wide(u)
    e = (x - largest(x, axes)).exp()
    return e / reduced(e, Ops.ADD, axes, keepdim=True).expand(x.shape)


def log_softmax_of(u: UOp, axes: Sequence[int]) -> UOp:
    """x - log(sum(exp(x))), in f32 or f64, the maximum taken out."""
    x = wide(u)
    shifted = x - largest(x, axes)
    return shifted - reduced(shifted.exp(), Ops.ADD, axes, keepdim=True).log().expand(x.shape)


def position_of(u: UOp, axis: int | None, keepdim: bool, largest: bool) -> UOp:
    """Where the first largest or smallest element is, i64."""
    axes = tuple(range(len(u.shape))) if axis is None else (axis,)
    moved = _last(u, axes) if u.shape else u.reshape((1,))
    count = max(len(axes), 1)
    found = moved.argmax(count) if largest else moved.argmin(count)
    return _kept(found.cast(dtypes.i64), u.shape, axes, keepdim)


def running(u: UOp, op: Ops, axis: int) -> UOp:
    """Element i is the ADD or MUL of elements 0 to i along an axis; narrow floats in f32.

    Within blocks of BLOCK elements every element adds up its own predecessors; the totals of the
    blocks are run over in the same way, and each block then adds the total of those before it.  So
    n elements take about BLOCK * n additions in a few levels, and no sum is longer than MANY.
    Later elements are left out by a choice, not by a factor 0: a NaN spoils what comes after it
    and nothing before.
    """
    last = len(u.shape) - 1
    x = move_axes(wide(u) if u.dtype.is_float else u, (axis,), (last,))
    (nothing,) = identity(Combine[op.name], (x.dtype,))
    levels: list[tuple[UOp, int]] = []
    while (n := x.shape[last]) > (MANY if levels else BLOCK):
        blocks = -(-n // BLOCK)
        full = pad_axis(x, last, 0, blocks * BLOCK - n, nothing)
        levels.append((full.reshape((*x.shape[:last], blocks, BLOCK)), n))
        x = levels[-1][0].reduce(op)
    sums = _prefixes(insert_axis(x, last), n, op, nothing)
    for cut, n in reversed(levels):
        before = pad_axis(narrow(sums, last, 0, cut.shape[last] - 1), last, 1, 0, nothing)
        sums = alu(op, _everywhere(before, last, BLOCK, n), _prefixes(cut, n, op, nothing))
    return move_axes(sums.cast(u.dtype), (last,), (axis,))


def _prefixes(blocks: UOp, n: int, op: Ops, nothing: UOp) -> UOp:
    """Each of n elements (..., blocks, size) with those before it in its block, one by one."""
    *lead, _, size = blocks.shape
    axis = len(lead)
    seen = _everywhere(blocks, axis, size, n)
    place = positions(seen.shape, axis) % max(size, 1)
    return (place < positions(seen.shape, axis + 1)).where(nothing, seen).reduce(op)


def _everywhere(blocks: UOp, axis: int, size: int, n: int) -> UOp:
    """The value of each block at all of its `size` elements, of which there are n together."""
    many = insert_axis(blocks, axis + 1, size)
    shape = (*blocks.shape[:axis], blocks.shape[axis] * size, *blocks.shape[axis + 1 :])
    return narrow(many.reshape(shape), axis, 0, n)


# ---- methods
class Reductions(Base):
    """Methods of Tensor that reduce.

    axis: one axis, several, or None for all; negative ones count from the end.  The result has the
    other axes, and where keepdim (or keepdims, the array API's name) is true also the reduced ones,
    with size 1.  An axis that is not there, or there twice, raises UsageError.
    """

    __slots__ = ()

    def sum(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        *,
        keepdims: bool = False,
        dtype: DType | None = None,
    ) -> Self:
        """The sum; of nothing 0.

        dtype: what to add up in and give; None: integers and bools in i64 (u64 in itself), floats
        in themselves (f16 and bf16 in f32, rounded once).
        """
        return self._added("sum", Ops.ADD, axis, keepdim or keepdims, dtype)

    def prod(
        self,
        axis: Axes = None,
        keepdim: bool = False,
        *,
        keepdims: bool = False,
        dtype: DType | None = None,
    ) -> Self:
        """The product; of nothing 1.  dtype: as in `sum`."""
        return self._added("prod", Ops.MUL, axis, keepdim or keepdims, dtype)

    def _added(self, what: str, op: Ops, axis: Axes, keepdim: bool, dtype: DType | None) -> Self:
        u = self._u.cast(dtype or sum_dtype(self.dtype))
        return wrap(reduced(u, op, axes_of(axis, self.ndim, what), keepdim), self)

    def mean(self, axis: Axes = None, keepdim: bool = False, *, keepdims: bool = False) -> Self:
        """The sum divided by the count, rounded correctly; of nothing NaN.

        The dtype of a float tensor; f32 of integers and bools.
        """
        u = mean_of(self._u, axes_of(axis, self.ndim, "mean"), keepdim or keepdims)
        return wrap(u.cast(float_like(self.dtype)), self)

    def var(
        self,
        axis: Axes = None,
        correction: float = 0,
        keepdim: bool = False,
        *,
        keepdims: bool = False,
    ) -> Self:
        """The variance, of centred values: sum((x - mean)**2) / (count - correction).

        correction: 0 for a whole population, as in the array API (torch's default is 1).  NaN where
        nothing is left to divide by.  dtype: as in `mean`.
        """
        u = variance_of(self._u, axes_of(axis, self.ndim, "var"), correction, keepdim or keepdims)
        return wrap(u.cast(float_like(self.dtype)), self)

    def std(
        self,
        axis: Axes = None,
        correction: float = 0,
        keepdim: bool = False,
        *,
        keepdims: bool = False,
    ) -> Self:
        """The square root of `var`; its gradient is 0 where it is 0."""
        u = variance_of(self._u, axes_of(axis, self.ndim, "std"), correction, keepdim or keepdims)
        return wrap(root(u).cast(float_like(self.dtype)), self)

    def norm(
        self,
        ord: float = 2,
        axis: Axes = None,
        keepdim: bool = False,
        *,
        keepdims: bool = False,
    ) -> Self:
        """The length of vectors: the array API's vector_norm, over all axes together.

        ord: 2, sqrt(sum(x*x)), whose gradient at 0 is 0; 1, inf, -inf, the sum, largest and
        smallest of |x|; 0, how many are not 0.  dtype: as in `mean`.  Raises UsageError for another
        ord, and for inf and -inf of nothing.
        """
        axes, keep = axes_of(axis, self.ndim, "norm"), keepdim or keepdims
        x = wide(self._u)
        if ord == 2:
            u = root(reduced(x * x, Ops.ADD, axes, keep))
        elif ord == 0:
            u = reduced(x.ne(0.0).cast(x.dtype), Ops.ADD, axes, keep)
        elif ord in (1, math.inf, -math.inf):
            if ord != 1:
                self._some("norm", axes)
            op = {1: Ops.ADD, math.inf: Ops.MAX, -math.inf: Ops.MIN}[ord]
            u = reduced(x.maximum(-x), op, axes, keep)
        else:
            raise UsageError(f"norm at {here()}: ord is 0, 1, 2, inf or -inf, got {ord!r}")
        return wrap(u.cast(float_like(self.dtype)), self)

    def max(self, axis: Axes = None, keepdim: bool = False, *, keepdims: bool = False) -> Self:
        """The largest element; NaN wins, -0 < +0.  Raises UsageError for the largest of nothing."""
        axes = self._some("max", axes_of(axis, self.ndim, "max"))
        return wrap(reduced(self._u, Ops.MAX, axes, keepdim or keepdims), self)

    def min(self, axis: Axes = None, keepdim: bool = False, *, keepdims: bool = False) -> Self:
        """The smallest element; NaN wins.  Raises UsageError for the smallest of nothing."""
        axes = self._some("min", axes_of(axis, self.ndim, "min"))
        return wrap(reduced(self._u, Ops.MIN, axes, keepdim or keepdims), self)

    def any(self, axis: Axes = None, keepdim: bool = False, *, keepdims: bool = False) -> Self:
        """Whether an element differs from 0 (NaN does), bool; of nothing false."""
        axes = axes_of(axis, self.ndim, "any")
        return wrap(reduced(self._u.cast(dtypes.bool), Ops.OR, axes, keepdim or keepdims), self)

    def all(self, axis: Axes = None, keepdim: bool = False, *, keepdims: bool = False) -> Self:
        """Whether every element differs from 0, bool; of nothing true."""
        axes = axes_of(axis, self.ndim, "all")
        zeros = ~self._u.cast(dtypes.bool)
        return wrap(~reduced(zeros, Ops.OR, axes, keepdim or keepdims), self)

    def argmax(
        self, axis: int | None = None, keepdim: bool = False, *, keepdims: bool = False
    ) -> Self:
        """Where the first of the largest elements is, i64; NaN is the largest, -0 equals +0.

        axis None: its flat position.  Raises UsageError for the largest of nothing.
        """
        return self._found("argmax", axis, keepdim or keepdims, largest=True)

    def argmin(
        self, axis: int | None = None, keepdim: bool = False, *, keepdims: bool = False
    ) -> Self:
        """Where the first of the smallest elements is, i64; NaN is the smallest."""
        return self._found("argmin", axis, keepdim or keepdims, largest=False)

    def _found(self, what: str, axis: int | None, keepdim: bool, largest: bool) -> Self:
        one = None if axis is None else axis_of(axis, self.ndim, what)
        self._some(what, axes_of(one, self.ndim, what))
        return wrap(position_of(self._u, one, keepdim, largest), self)

    def logsumexp(
        self, axis: Axes = None, keepdim: bool = False, *, keepdims: bool = False
    ) -> Self:
        """log(sum(exp(x))) without overflow; of nothing -inf.  dtype: as in `mean`."""
        u = logsumexp_of(self._u, axes_of(axis, self.ndim, "logsumexp"), keepdim or keepdims)
        return wrap(u.cast(float_like(self.dtype)), self)

    def softmax(self, axis: Axes = -1) -> Self:
        """exp(x) / sum(exp(x)), the maximum taken out first.  Shape kept; dtype: as in `mean`.

        A row with +inf, or of -inf alone, is NaN: by the definition Inf - Inf is.
        """
        u = softmax_of(self._u, axes_of(axis, self.ndim, "softmax"))
        return wrap(u.cast(float_like(self.dtype)), self)

    def log_softmax(self, axis: Axes = -1) -> Self:
        """log(softmax(x)), computed without the quotient: x - max - log(sum(exp(x - max)))."""
        u = log_softmax_of(self._u, axes_of(axis, self.ndim, "log_softmax"))
        return wrap(u.cast(float_like(self.dtype)), self)

    def cumsum(self, axis: int | None = None, *, dtype: DType | None = None) -> Self:
        """Element i is the sum of elements 0 to i along an axis.  Shape kept; dtype: as in `sum`.

        axis may be left out for a tensor of one axis.  Raises UsageError where it has to be given.
        """
        return self._running("cumsum", Ops.ADD, axis, dtype)

    def cumprod(self, axis: int | None = None, *, dtype: DType | None = None) -> Self:
        """Element i is the product of elements 0 to i along an axis, as in `cumsum`."""
        return self._running("cumprod", Ops.MUL, axis, dtype)

    def _running(self, what: str, op: Ops, axis: int | None, dtype: DType | None) -> Self:
        if axis is None and self.ndim != 1:
            raise UsageError(f"{what} at {here()}: along which axis of shape {self.shape}?")
        u = self._u.cast(dtype or sum_dtype(self.dtype))
        return wrap(running(u, op, axis_of(axis or 0, self.ndim, what)), self)

    def _some(self, what: str, axes: tuple[int, ...]) -> tuple[int, ...]:
        """axes, along which there is an element.  Raises UsageError where there is none."""
        if _count(self.shape, axes) == 0:
            raise UsageError(
                f"{what} at {here()}: no elements along axes {axes} of shape {self.shape}, "
                f"so there is no {what}"
            )
        return axes

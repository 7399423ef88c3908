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
from uopc.tensor.movement import Axes, move_axes, positions
from uopc.tensor.promote import DEFAULT_FLOAT
from uopc.uop.node import Shape, UOp, here, prod
from uopc.uop.ops import Ops


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
    """exp(x) / sum(exp(x)), in f32 or f64, the maximum taken out.

    Times the reciprocal of the sum: of an f32, that is off by one unit in the last place at most,
    less than exp is, and one quotient a row costs nothing.
    """
    x = wide(u)
    e = (x - largest(x, axes)).exp()
    return e * (1.0 / reduced(e, Ops.ADD, axes, keepdim=True)).expand(x.shape)


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
    """Element i is the ADD, MUL, MAX or MIN of elements 0 to i along an axis; narrow floats are
    added and multiplied in f32."""
    last = len(u.shape) - 1
    x = wide(u) if u.dtype.storage else u
    return move_axes(move_axes(x, (axis,), (last,)).scan(op), (last,), (axis,)).cast(u.dtype)


def record_positions(u: UOp, extremes: UOp, axis: int) -> UOp:
    """Where the last of the extremes so far is, i64; of NaNs, which stay, the last one too."""
    nan = u.ne(u) if u.dtype.is_float else UOp.const(False, shape=u.shape)
    found = (u.eq(extremes) | nan).where(positions(u.shape, axis), 0)
    return running(found, Ops.MAX, axis)


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

    def cummax(self, axis: int | None = None) -> tuple[Self, Self]:
        """(the largest of elements 0 to i along an axis, where the last of them is, i64).

        NaN wins and stays.  Gradients go to the elements that were found.  axis: as in `cumsum`.
        """
        return self._record("cummax", Ops.MAX, axis)

    def cummin(self, axis: int | None = None) -> tuple[Self, Self]:
        """(the smallest of elements 0 to i along an axis, where the last of them is, i64); NaN
        wins and stays."""
        return self._record("cummin", Ops.MIN, axis)

    def _running(self, what: str, op: Ops, axis: int | None, dtype: DType | None) -> Self:
        u = self._u.cast(dtype or sum_dtype(self.dtype))
        return wrap(running(u, op, self._only(what, axis)), self)

    def _record(self, what: str, op: Ops, axis: int | None) -> tuple[Self, Self]:
        along = self._only(what, axis)
        found = running(self._u, op, along)
        where = record_positions(self._u, found, along).cast(dtypes.i64)
        return wrap(found, self), wrap(where, self)

    def _only(self, what: str, axis: int | None) -> int:
        """The axis; the only one where it is left out."""
        if axis is None and self.ndim != 1:
            raise UsageError(f"{what} at {here()}: along which axis of shape {self.shape}?")
        return axis_of(axis or 0, self.ndim, what)

    def _some(self, what: str, axes: tuple[int, ...]) -> tuple[int, ...]:
        """axes, along which there is an element.  Raises UsageError where there is none."""
        if _count(self.shape, axes) == 0:
            raise UsageError(
                f"{what} at {here()}: no elements along axes {axes} of shape {self.shape}, "
                f"so there is no {what}"
            )
        return axes

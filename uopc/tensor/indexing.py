"""Methods of Tensor that read and write elements by position: `x[...]`, `x[...] = v`, take, gather.

What a key means: keys.py.  The graphs that are built from it: elements.py.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor.base import Base, axis_of, fresh, wrap
from uopc.tensor.elements import read_items, signed, write_items
from uopc.tensor.elementwise import Elementwise
from uopc.tensor.keys import check_not_empty, leaf, plain, read_key
from uopc.tensor.movement import insert_axis, positions
from uopc.tensor.promote import broadcast_shapes, scalar, storable, tensor_of
from uopc.tensor.reduce import wide
from uopc.uop.node import Shape, UOp, here, prod
from uopc.uop.numbers import Array


class Indexing(Elementwise):
    """Methods of Tensor that read and write elements by position."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        """Elements by numpy's rules: integers, slices with steps of either sign, ..., None, lists,
        arrays and tensors of integers, several of which broadcast together.

        A list or array of bools counts as the integers where it is true.  Raises OutOfRangeError
        (an IndexError) for an integer outside its axis, here or, from a tensor, at the next read;
        UsageError for what is no key, and for a mask in a tensor, whose result has a shape that is
        not known.
        """
        read = read_key(self, key, "getitem")
        return wrap(read_items(self._u, read, "getitem"), self, *read.tensors)

    def __setitem__(self, key: Any, value: Any) -> None:
        """A new version of this tensor, with value where the key points.

        key: as in reading; also a mask in a tensor, with one value for all of its elements.
        value: a tensor, number, array or list that broadcasts to the elements and goes into the
        dtype (see `assign`).  Tensors made from this one before keep their values.

        Of an element that is named twice the last value stays.  With indices in a tensor every
        element of the indexed axes looks through all of them for that, comparing integers; indices
        that the host has (lists, arrays) are sorted out before.
        """
        read = read_key(self, key, "setitem")
        given = value
        if isinstance(value, (np.ndarray, list, tuple)):
            array = _host_values(value, self.dtype)
            given = fresh(type(self), leaf(array, self.device), self.device)
        new = write_items(self._u, read, storable(given, self, "setitem"), "setitem")
        if new is not None:
            parents = [*read.tensors, given] if isinstance(given, Base) else read.tensors
            self._rebind(wrap(new, self, *parents), "setitem")

    def take(self, indices: Any, axis: int | None = None) -> Self:
        """Elements at integers along an axis, which becomes the axes of indices.

        indices: a tensor, array, list or integer; axis None takes from the flat elements.  Raises
        as x[indices] does.
        """
        if axis is None:
            return wrap(self._u.reshape((self.size,)), self)[_no_mask(indices, "take")]
        key = [slice(None)] * axis_of(axis, self.ndim, "take")
        return self[(*key, _no_mask(indices, "take"))]

    def index_select(self, axis: int, index: Any) -> Self:
        """`take` with torch's order of arguments: (A, B) and (N,) along 0 give (N, B)."""
        return self.take(index, axis)

    def take_along_axis(self, indices: Base, axis: int = -1) -> Self:
        """result[..., i, ...] = x[..., indices[..., i, ...], ...] along an axis.

        indices: integers, as many axes as this tensor; the other axes broadcast.  Raises UsageError
        for other dtypes and shapes.
        """
        a = _same_rank(self, indices, axis, "take_along_axis")
        others = [(*t.shape[:a], 1, *t.shape[a + 1 :]) for t in (self, indices)]
        common = broadcast_shapes("take_along_axis", *others)
        u, index = (
            t._u.expand((*common[:a], t.shape[a], *common[a + 1 :])) for t in (self, indices)
        )
        return wrap(_gathered(u, index, a), self, indices)

    def gather(self, axis: int, index: Base) -> Self:
        """torch's gather: result[i][j] = x[index[i][j]][j] along axis 0, x[i][index[i][j]] along 1.

        index: integers, as many axes as this tensor, no larger along the others.  Shape: that of
        index.  Raises UsageError for other dtypes and shapes.
        """
        a = _same_rank(self, index, axis, "gather")
        _no_larger(index.shape, self.shape, a, "gather")
        sizes = tuple(self.shape[d] if d == a else n for d, n in enumerate(index.shape))
        return wrap(_gathered(self._u.shrink([(0, n) for n in sizes]), index._u, a), self, index)

    def scatter_add(self, axis: int, index: Base, src: Base) -> Self:
        """This tensor plus src at places: result[index[i][j]][j] += src[i][j] along axis 0.

        index: integers, as many axes as this tensor, no larger than src, nor than this tensor along
        other axes.  Places that repeat add up, in a fixed order.  Nothing is written in place; an
        index out of range adds nothing and raises at the next read.  Shape and dtype are those of
        this tensor.  Raises UsageError for other shapes, and dtypes that differ or do not add.
        """
        a = _same_rank(self, index, axis, "scatter_add")
        _no_larger(index.shape, self.shape, a, "scatter_add")
        _same_rank(src, index, axis, "scatter_add")
        _no_larger(index.shape, src.shape, None, "scatter_add")
        values = src._u.shrink([(0, n) for n in index.shape])
        return self._plus(values, index._u, a, "scatter_add", index, src)

    def index_add(self, axis: int, index: Base, src: Base) -> Self:
        """This tensor plus slices of src: result[index[i]] += src[i] along an axis.

        index: integers (N,); src: this tensor's shape with N along the axis.  The rest as in
        `scatter_add`.
        """
        a = axis_of(axis, self.ndim, "index_add")
        want = (*self.shape[:a], *index.shape, *self.shape[a + 1 :])
        if index.ndim != 1 or not index.dtype.is_data_int or src.shape != want:
            raise UsageError(
                f"index_add at {here()}: wants integers (N,) and a source of shape {self.shape} "
                f"with N along axis {a}; got {index.dtype} {index.shape} and {src.shape}"
            )
        after = (1,) * (self.ndim - a - 1)
        places = index._u.reshape((*(1,) * a, *index.shape, *after)).expand(src.shape)
        return self._plus(src._u, places, a, "index_add", index, src)

    def _plus(self, values: UOp, index: UOp, axis: int, what: str, *more: Base) -> Self:
        """self + the sums of values at their places along an axis."""
        if values.dtype is not self.dtype or self.dtype is dtypes.bool or self.dtype.storage:
            raise UsageError(
                f"{what} at {here()}: the source is {values.dtype}, the tensor {self.dtype}; both "
                "must be one dtype that adds. Cast one."
            )
        u = self._u
        check_not_empty(prod(index.shape), self.shape[axis], axis, what)
        sizes = tuple(u.shape[axis] if a == axis else n for a, n in enumerate(index.shape))
        dims = tuple(~0 if a == axis else a for a in range(len(sizes)))
        x, v = (wide(u), wide(values)) if u.dtype.is_float else (u, values)
        # x - (the sum of -v): x - 0.0 is x, where x + 0.0 would lose the sign of -0.0
        sums = (-v).scatter(sizes, dims, index)
        full = sums.pad([(0, n - m) for n, m in zip(u.shape, sizes, strict=True)])
        return wrap((x - full).cast(u.dtype), self, *more)

    def one_hot(self, num_classes: int, dtype: DType = dtypes.i64) -> Self:
        """1 at the place that each integer names along a new last axis of num_classes, 0 elsewhere;
        zeros where there is no such place.  (...,) gives (..., num_classes)."""
        if not self.dtype.is_data_int or num_classes < 0:
            raise UsageError(
                f"one_hot at {here()}: wants integers and num_classes >= 0, got {self.dtype} and "
                f"{num_classes}"
            )
        wanted = insert_axis(signed(self._u), self.ndim, num_classes)
        same = wanted.eq(positions(wanted.shape, self.ndim).cast(dtypes.i64))
        return wrap(same.cast(dtype), self)


def _host_values(value: Any, dtype: DType) -> Array:
    """Values from the host to be stored as dtype.  Integers in lists have no dtype of their own:
    where dtype cannot hold them UsageError is raised."""
    array = np.asarray(value)
    if isinstance(value, np.ndarray):
        return array
    if array.size == 0:
        return array.astype(dtype.numpy)
    if array.dtype.kind in "iu" and dtype.is_int:
        for extreme in (array.min(), array.max()):
            scalar(int(extreme), dtype, "setitem")
    return array


def _gathered(u: UOp, index: UOp, axis: int) -> UOp:
    """u at indices along one axis, walked along the others."""
    check_not_empty(prod(index.shape), u.shape[axis], axis, "gather")
    return u.gather([~0 if a == axis else a for a in range(len(u.shape))], index)


def _same_rank(x: Base, index: Base, axis: int, what: str) -> int:
    """The axis from the front, of integers of as many axes as x."""
    tensor_of(index, what)
    if not index.dtype.is_data_int or index.ndim != x.ndim or not x.ndim:
        raise UsageError(
            f"{what} at {here()}: wants integers of as many axes as shape {x.shape}, at least one; "
            f"got {index.dtype} of shape {index.shape}"
        )
    return axis_of(axis, x.ndim, what)


def _no_larger(index: Shape, shape: Shape, axis: int | None, what: str) -> None:
    if any(n > m for a, (n, m) in enumerate(zip(index, shape, strict=True)) if a != axis):
        beside = "" if axis is None else f" beside axis {axis}"
        raise UsageError(
            f"{what} at {here()}: an index of shape {index} is larger than {shape}{beside}"
        )


def _no_mask(indices: Any, what: str) -> Any:
    """Integers, in whatever form a key takes them."""
    part = plain(indices, what)
    mask = isinstance(part, (Base, np.ndarray)) and part.dtype in (dtypes.bool, np.bool_)
    if mask or not isinstance(part, (Base, np.ndarray, int)):
        raise UsageError(f"{what} at {here()}: indices are integers, got {indices!r}")
    return part

"""What stands between the brackets of `x[...]`, read by numpy's rules.

A key becomes one item an axis of the tensor: a Span (a slice), a Place (an integer), Places
(integers that data hold) or a Mask; None makes a new axis.  What is built from them: elements.py.

An integer that is out of range raises OutOfRangeError (an IndexError) here, also in a list or a
numpy array; in a tensor, whose elements only the device knows, at the next read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import dtypes, from_numpy
from uopc.errors import OutOfRangeError, UsageError
from uopc.runtime.buffer import Buffer
from uopc.tensor import storage, watch
from uopc.tensor.base import Base, memory_of
from uopc.tensor.promote import broadcast_shapes
from uopc.uop.node import Shape, UOp, here
from uopc.uop.numbers import Array


@dataclass(frozen=True)
class Span:
    """Elements begin, begin + step, ... of an axis, `count` of them."""

    begin: int
    step: int
    count: int


@dataclass(frozen=True)
class Place:
    """One element of an axis, which has no axis in the result."""

    index: int


@dataclass(frozen=True)
class Places:
    """Elements of an axis at integers of any shape.  known: those integers, where the host has them
    (then they are in range)."""

    index: UOp
    known: Array | None = None


@dataclass(frozen=True)
class Mask:
    """Elements where a bool tensor over one or more axes holds: how many, only the device knows."""

    holds: UOp


Item: TypeAlias = "Span | Place | Places | Mask | None"


@dataclass(frozen=True)
class Key:
    """A key of one tensor.

    items: what it says, in order; every axis is covered.  spans: for each axis the elements that
    can be meant at all, for Places and a Mask all of them.  tensors: those in the key.  together:
    whether integers and arrays stand next to each other; a `...` between parts them, also where it
    covers no axis.
    """

    items: tuple[Item, ...]
    spans: tuple[Span, ...]
    tensors: tuple[Base, ...]
    device: str
    together: bool

    def has(self, kind: type[Places] | type[Mask]) -> bool:
        return any(isinstance(item, kind) for item in self.items)

    @property
    def axes(self) -> list[tuple[int, Span | Place | Places]]:
        """The first axis of each item and the item, Masks and new axes left out."""
        out: list[tuple[int, Span | Place | Places]] = []
        axis = 0
        for item in self.items:
            if isinstance(item, Mask):
                axis += len(item.holds.shape)
            elif item is not None:
                out.append((axis, item))
                axis += 1
        return out


def read_key(x: Base, key: Any, what: str) -> Key:
    """What a key of x means.  Raises UsageError for what is no key, OutOfRangeError for integers
    outside their axis."""
    given = list(key) if isinstance(key, tuple) else [key]
    parts = [plain(part, what) for part in given]
    if sum(part is Ellipsis for part in parts) > 1:
        raise UsageError(f"{what} at {here()}: more than one ... in a key")
    taken = sum(_axes_taken(part) for part in parts)
    if taken > x.ndim:
        raise UsageError(
            f"{what} at {here()}: {taken} indices for the {x.ndim} axes of shape {x.shape}"
        )
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    items: list[Item] = []
    spans: list[Span] = []
    for part in parts:
        axis = len(spans)
        count = x.ndim - taken if part is Ellipsis else _axes_taken(part)
        sizes = x.shape[axis : axis + count]
        made = _items(part, sizes, axis, x, what)
        items += made
        spans += [_meant(item, n) for item, n in zip(_by_axis(made, count), sizes, strict=True)]
    chosen = [n for n, p in enumerate(parts) if isinstance(p, (int, np.ndarray, Base))]
    together = bool(chosen) and chosen[-1] - chosen[0] == len(chosen) - 1
    tensors = tuple(p for p in parts if isinstance(p, Base))
    return Key(tuple(items), tuple(spans), tensors, x.device, together)


def _by_axis(items: list[Item], count: int) -> list[Item]:
    """The item of each of `count` axes: a Mask is that of several, None of none."""
    return items * count if len(items) == 1 else items


def _meant(item: Item, n: int) -> Span:
    """The elements of an axis that an item can mean."""
    if isinstance(item, Span):
        return item
    return Span(item.index, 1, 1) if isinstance(item, Place) else Span(0, 1, n)


def plain(part: Any, what: str) -> Any:
    """One part of a key: None, ..., a slice, an int, a tensor, or an array of integers or bools."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, (bool, np.bool_)):
        raise UsageError(f"{what} at {here()}: {part} is no index; a mask is an array of bools")
    if isinstance(part, Base):
        if part.dtype.is_data_int or (part.dtype is dtypes.bool and part.ndim):
            return part
        raise UsageError(
            f"{what} at {here()}: a tensor in a key is of integers, or a mask of bools with axes; "
            f"got {part.dtype} of shape {part.shape}"
        )
    if hasattr(part, "__index__") and not isinstance(part, np.ndarray):
        return part.__index__()
    if isinstance(part, (list, range, np.ndarray)):
        array = np.asarray(part)
        if array.size == 0 and not isinstance(part, np.ndarray):
            array = array.astype(np.int64)
        if array.dtype.kind in "iu":
            return array if array.ndim else int(array)
        if array.dtype.kind == "b" and array.ndim:
            return array
    raise UsageError(
        f"{what} at {here()}: an index is an integer, a slice, ..., None, or an array, list or "
        f"tensor of integers or bools; got {part!r}"
    )


def _axes_taken(part: Any) -> int:
    """How many axes of the tensor a part of a key is for."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, np.ndarray) and part.dtype.kind == "b":
        return part.ndim
    if isinstance(part, Base) and part.dtype is dtypes.bool:
        return part.ndim
    return 1


def _items(part: Any, sizes: Shape, axis: int, x: Base, what: str) -> list[Item]:
    """The items of one part, which is for axes of these sizes."""
    if part is None:
        return [None]
    if part is Ellipsis:
        return [Span(0, 1, n) for n in sizes]
    if isinstance(part, slice):
        return [_span(part, sizes[0], what)]
    if isinstance(part, int):
        return [Place(in_range(part, sizes[0], axis, what))]
    if isinstance(part, Base):
        if part.dtype is not dtypes.bool:
            check_not_empty(part.size, sizes[0], axis, what)
            return [Places(part._u)]
        _same_axes(part.shape, sizes, axis, what)
        return [Mask(part._u)]
    arrays = [part]
    if part.dtype.kind == "b":
        _same_axes(part.shape, sizes, axis, what)
        arrays = list(np.nonzero(part))
    return [
        known_places(array, n, axis + k, x.device, what)
        for k, (array, n) in enumerate(zip(arrays, sizes, strict=True))
    ]


def _span(part: slice, n: int, what: str) -> Span:
    try:
        begin, end, step = part.indices(n)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} at {here()}: {part}: {error}") from None
    return Span(begin, step, len(range(begin, end, step)))


def in_range(index: int, n: int, axis: int, what: str) -> int:
    """The index counted from the front.  Raises OutOfRangeError where it names no element."""
    if not -n <= index < n:
        raise OutOfRangeError(
            f"{what} at {here()}: index {index} is out of range for axis {axis} of size {n}"
        )
    return index % n


def check_not_empty(indices: int, n: int, axis: int, what: str) -> None:
    if indices and n == 0:
        raise OutOfRangeError(f"{what} at {here()}: axis {axis} has no elements to index")


def _same_axes(mask: Shape, sizes: Shape, axis: int, what: str) -> None:
    if mask != sizes:
        raise UsageError(
            f"{what} at {here()}: a mask of shape {mask} for axes {axis} to "
            f"{axis + len(sizes) - 1}, whose sizes are {sizes}"
        )


def known_places(array: Array, n: int, axis: int, device: str, what: str) -> Places:
    """Integers of the host, checked, as a tensor's elements."""
    check_not_empty(array.size, n, axis, what)
    if array.size:
        for extreme in (int(array.min()), int(array.max())):
            in_range(extreme, n, axis, what)
    index = np.where(array < 0, array + n, array) if array.dtype.kind == "i" else array
    index = index.astype(np.int32 if n < 2**31 else np.int64)
    return Places(leaf(index, device), index)


def leaf(array: Array, device: str) -> UOp:
    """A new memory with the elements of an array."""
    u = storage.place(device, from_numpy(array.dtype), array.shape)
    held = memory_of(u)
    assert held is not None
    storage.put(held, memory := Buffer.from_numpy(device, array))
    if watch.current is not None:
        watch.current.constant(array, memory)
    return u


# ---- what the result looks like
@dataclass(frozen=True)
class Layout:
    """Where things are in the result of a key.

    shape: of the result.  at, common: the axis at which the indices' common shape stands, and it.
    walks: for each Span the axis of the result that walks it.
    """

    shape: Shape
    at: int
    common: Shape
    walks: tuple[int, ...]


def layout(key: Key, what: str) -> Layout:
    """numpy's rules: the axes of Places come where these stand, if they stand next to each other
    (integers count as such), else in front."""
    kinds = [isinstance(item, (Place, Places, Mask)) for item in key.items]
    arrays = [item.index.shape for item in key.items if isinstance(item, Places)]
    arrays += [(1,) for item in key.items if isinstance(item, Mask)]
    common = broadcast_shapes(what, *arrays)
    shape: list[int] = [] if key.together else list(common)
    at: int | None = None
    walks: list[int] = []
    for i, item in enumerate(key.items):
        if key.together and kinds[i] and at is None:
            at = len(shape)
            shape += common
        if isinstance(item, Span):
            walks.append(len(shape))
        if item is None or isinstance(item, Span):
            shape.append(1 if item is None else item.count)
    return Layout(tuple(shape), at or 0, common, tuple(walks))

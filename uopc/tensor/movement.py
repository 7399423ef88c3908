"""Elements put elsewhere: shapes, orders, borders, tensors joined and taken apart.

The functions on UOps are the graphs, `Movement` are the methods of Tensor, and the functions at the
end take several tensors.  A movement costs nothing by itself: it is index arithmetic in whatever
kernel reads it.  Names follow the array API standard where it has them, else torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeAlias

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.tensor.base import Base, T, axes_of, axis_of, shape_of, wrap
from uopc.tensor.promote import Number, broadcast_shapes, number_of, promote, scalar
from uopc.uop.node import Shape, UOp, here, prod

#: one axis, several, or None for all of them
Axes: TypeAlias = "int | Sequence[int] | None"


# ---- graphs
def insert_axis(u: UOp, axis: int, size: int = 1) -> UOp:
    """u with a new axis there, along which it is repeated `size` times."""
    one = u.reshape((*u.shape[:axis], 1, *u.shape[axis:]))
    return one.expand((*u.shape[:axis], size, *u.shape[axis:]))


def drop_axes(u: UOp, axes: Sequence[int]) -> UOp:
    """u without these axes, which have size 1."""
    return u.reshape(tuple(n for a, n in enumerate(u.shape) if a not in axes))


def narrow(u: UOp, axis: int, begin: int, end: int) -> UOp:
    """Elements begin <= i < end along one axis."""
    return u.shrink(tuple((begin, end) if a == axis else (0, n) for a, n in enumerate(u.shape)))


def pad_axis(u: UOp, axis: int, before: int, after: int, fill: UOp) -> UOp:
    """`fill` put around one axis."""
    if before == after == 0:
        return u
    return u.pad(tuple((before, after) if a == axis else (0, 0) for a in range(len(u.shape))), fill)


def zero(u: UOp) -> UOp:
    """The constant 0 in u's dtype."""
    return UOp.const(0, u.dtype)


def positions(shape: Shape, axis: int) -> UOp:
    """The index along an axis, at every place of `shape`; i32, or i64 where that is too small."""
    n = shape[axis]
    iota = UOp.arange(n, dtypes.i32 if n < 2**31 else dtypes.i64)
    return iota.reshape(tuple(n if a == axis else 1 for a in range(len(shape)))).expand(shape)


def move_axes(u: UOp, axes: Sequence[int], to: Sequence[int]) -> UOp:
    """Axes put at other places, the others in order around them."""
    order = [a for a in range(len(u.shape)) if a not in axes]
    for place, axis in sorted(zip(to, axes, strict=True)):
        order.insert(place, axis)
    return u.permute(order)


def rolled(u: UOp, axis: int, by: int) -> UOp:
    """Element i goes to (i + by) mod n along an axis of n elements."""
    n = u.shape[axis]
    cut = (n - by % n) % n if n else 0
    return joined([narrow(u, axis, cut, n), narrow(u, axis, 0, cut)], axis) if cut else u


def joined(parts: Sequence[UOp], axis: int) -> UOp:
    """Values of one dtype, one after the other along an axis.

    Each part is padded to the whole length, and the position chooses between neighbours: whatever
    the dtype, an element is moved, not computed with, and read once, since a PAD's own gate holds
    only where its part lies.  The choices are a balanced tree, so that hundreds of parts are not a
    chain of hundreds.
    """
    parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
    whole = sum(p.shape[axis] for p in parts)
    pieces: list[tuple[int, UOp]] = []
    start = 0
    for p in parts:
        n = p.shape[axis]
        pieces.append((start, pad_axis(p, axis, start, whole - start - n, zero(p))))
        start += n
    while len(pieces) > 1:
        pairs = [_either(a, b, axis) for a, b in zip(pieces[::2], pieces[1::2], strict=False)]
        pieces = pairs + pieces[len(pieces) // 2 * 2 :]
    return pieces[0][1]


def _either(left: tuple[int, UOp], right: tuple[int, UOp], axis: int) -> tuple[int, UOp]:
    """Two neighbours: the left one before the start of the right one."""
    (start, x), (middle, y) = left, right
    return start, (positions(x.shape, axis) < middle).where(x, y)


def triangle(u: UOp, diagonal: int, lower: bool) -> UOp:
    """Zeros above (lower) or below a diagonal of the last two axes."""
    rank = len(u.shape)
    row, column = (positions(u.shape, a).cast(dtypes.i64) for a in (rank - 2, rank - 1))
    inside = column <= row + diagonal if lower else row + diagonal <= column
    return inside.where(u, zero(u))


def diagonal_of(u: UOp, offset: int) -> UOp:
    """The elements (i, i + offset) of the last two axes.

    Of a square of n rows, padded by one row and read in rows of n + 1, it is the first column.
    """
    *lead, rows, columns = u.shape
    first, begin = max(0, -offset), max(0, offset)
    n = max(0, min(rows - first, columns - begin))
    if n == 0:
        first = begin = 0
    axis = len(lead)
    square = narrow(narrow(u, axis, first, first + n), axis + 1, begin, begin + n)
    flat = square.reshape((*lead, n * n))
    longer = pad_axis(flat, axis, 0, n, zero(u)).reshape((*lead, n, n + 1))
    return drop_axes(narrow(longer, axis + 1, 0, 1), (axis + 1,))


# ---- methods
class Movement(Base):
    """Methods of Tensor that move elements."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The same elements in row-major order in another shape; one -1 is what is left.

        Any shape of as many elements, as reshape(2, 3) or reshape((2, 3)); dtype kept.
        Raises UsageError where the elements do not fit.
        """
        return wrap(self._u.reshape(_sizes(self.shape, shape_of(shape, "reshape"))), self)

    def flatten(self, start: int = 0, end: int = -1) -> Self:
        """Axes start to end (included) as one axis; a tensor without axes becomes (1,)."""
        if not self.ndim:
            return self.reshape(1)
        first = axis_of(start, self.ndim, "flatten")
        last = axis_of(end, self.ndim, "flatten")
        if first > last:
            raise UsageError(f"flatten at {here()}: axis {start} comes after axis {end}")
        middle = prod(self.shape[first : last + 1])
        return wrap(self._u.reshape((*self.shape[:first], middle, *self.shape[last + 1 :])), self)

    def permute(self, *axes: Any) -> Self:
        """Axis i of the result is axis axes[i] of this one: (A, B, C).permute(2, 0, 1): (C, A, B).

        Raises UsageError where axes do not name each axis once.
        """
        order = axes_of(shape_of(axes, "permute"), self.ndim, "permute")
        if len(order) != self.ndim:
            raise UsageError(
                f"permute at {here()}: {order} names {len(order)} of the {self.ndim} axes of "
                f"shape {self.shape}"
            )
        return wrap(self._u.permute(order), self)

    def transpose(self, a: int = -2, b: int = -1) -> Self:
        """Two axes exchanged, the last two unless told otherwise."""
        first, second = (axis_of(x, self.ndim, "transpose") for x in (a, b))
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return wrap(self._u.permute(order), self)

    @property
    def T(self) -> Self:  # noqa: N802  (the array API's name)
        """(M, N) as (N, M).  Raises UsageError for any other rank: use mT or permute."""
        if self.ndim != 2:
            raise UsageError(
                f"T at {here()}: wants a matrix, got shape {self.shape}. Use mT (the last two axes)"
                " or permute."
            )
        return self.transpose()

    @property
    def mT(self) -> Self:  # noqa: N802  (the array API's name)
        """The last two axes exchanged: (..., M, N) as (..., N, M)."""
        if self.ndim < 2:
            raise UsageError(f"mT at {here()}: wants at least 2 axes, got shape {self.shape}")
        return self.transpose()

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Axes of source at the places of destination, the others in order around them."""
        axes = axes_of(source, self.ndim, "movedim")
        to = axes_of(destination, self.ndim, "movedim")
        if len(axes) != len(to):
            raise UsageError(
                f"movedim at {here()}: {len(axes)} axes {source} for {len(to)} places {destination}"
            )
        return wrap(move_axes(self._u, axes, to), self)

    moveaxis = movedim

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated to these sizes; -1 keeps one; new axes may come in front.

        Raises UsageError where an axis of another size would have to change.
        """
        sizes = shape_of(shape, "expand")
        new = len(sizes) - self.ndim
        if new < 0 or any(n == -1 for n in sizes[:new]):
            raise UsageError(
                f"expand at {here()}: {sizes} has no size for some axis; the shape is {self.shape}"
            )
        return self.broadcast_to(
            tuple(self.shape[a - new] if n == -1 else n for a, n in enumerate(sizes))
        )

    def broadcast_to(self, *shape: Any) -> Self:
        """This tensor repeated to a shape, by numpy's rules: axes from the right, 1 goes with any.

        Raises UsageError where it does not broadcast to it.
        """
        to = shape_of(shape, "broadcast_to")
        if any(n < 0 for n in to) or broadcast_shapes("broadcast_to", self.shape, to) != to:
            raise UsageError(f"broadcast_to at {here()}: {self.shape} does not repeat to {to}")
        return wrap(self._u.expand(to), self)

    def squeeze(self, axis: Axes = None) -> Self:
        """Without these axes, which must have size 1; None: without all of size 1."""
        axes = (
            tuple(a for a, n in enumerate(self.shape) if n == 1)
            if axis is None
            else axes_of(axis, self.ndim, "squeeze")
        )
        for a in axes:
            if self.shape[a] != 1:
                raise UsageError(
                    f"squeeze at {here()}: axis {a} has size {self.shape[a]}, not 1 "
                    f"(shape {self.shape})"
                )
        return wrap(drop_axes(self._u, axes), self)

    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of size 1, which has this number in the result."""
        return wrap(insert_axis(self._u, axis_of(axis, self.ndim + 1, "unsqueeze")), self)

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """With new axes of size 1, which have these numbers in the result."""
        given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
        u = self._u
        for a in sorted(axes_of(given, self.ndim + len(given), "expand_dims")):
            u = insert_axis(u, a)
        return wrap(u, self)

    def flip(self, axis: Axes = None) -> Self:
        """Elements in reverse order along these axes; None: along all."""
        return wrap(self._u.flip(axes_of(axis, self.ndim, "flip")), self)

    def roll(self, shift: int | Sequence[int], axis: Axes = None) -> Self:
        """Elements moved on by shift, those beyond the end to the beginning.

        shift: one number for all axes, or one for each.  axis None: the flat elements move.
        """
        shifts = shape_of(tuple(shift) if isinstance(shift, Iterable) else (shift,), "roll")
        if axis is None:
            return wrap(rolled(self._u.reshape((-1,)), 0, sum(shifts)).reshape(self.shape), self)
        given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
        axes = tuple(axis_of(a, self.ndim, "roll") for a in given)  # one may come twice
        if len(shifts) not in (1, len(axes)):
            raise UsageError(f"roll at {here()}: {len(shifts)} shifts for {len(axes)} axes")
        u = self._u
        for a, by in zip(axes, shifts * len(axes) if len(shifts) == 1 else shifts, strict=True):
            u = rolled(u, a, by)
        return wrap(u, self)

    def pad(self, pads: Sequence[tuple[int, int]], value: Number = 0) -> Self:
        """`value` put around: (before, after) for each axis, all >= 0.

        Raises UsageError for other pads, or a value that the dtype cannot hold.
        """
        pairs = _pairs(pads, self.shape, "pad")
        if any(n < 0 for pair in pairs for n in pair):
            raise UsageError(f"pad at {here()}: {pairs} has a negative size; use shrink")
        return wrap(self._u.pad(pairs, scalar(number_of(value, "pad"), self.dtype, "pad")), self)

    def shrink(self, bounds: Sequence[tuple[int, int] | None]) -> Self:
        """Elements begin <= i < end along each axis; None keeps an axis.

        Raises UsageError for bounds outside the shape.
        """
        whole = ((0, n) for n in self.shape)
        given = [w if b is None else b for b, w in zip(bounds, whole, strict=False)]
        pairs = _pairs(given if len(bounds) == self.ndim else bounds, self.shape, "shrink")
        return wrap(self._u.shrink(pairs), self)

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Self, ...]:
        """Pieces of `sizes` elements along an axis (the last may be smaller), or of these sizes.

        Raises UsageError where a size is negative, or they do not add up to the axis's size.
        """
        a = axis_of(axis, self.ndim, "split")
        n = self.shape[a]
        if isinstance(sizes, Iterable):
            each = shape_of((tuple(sizes),), "split")
        else:
            (size,) = shape_of((sizes,), "split")
            if size < 1:
                raise UsageError(f"split at {here()}: pieces of {size} elements never end")
            each = tuple(min(size, n - i) for i in range(0, n, size)) or (0,)
        if sum(each) != n or any(k < 0 for k in each):
            raise UsageError(f"split at {here()}: sizes {each} do not divide the axis of {n}")
        ends = [sum(each[: i + 1]) for i in range(len(each))]
        return tuple(
            wrap(narrow(self._u, a, e - k, e), self) for e, k in zip(ends, each, strict=True)
        )

    def chunk(self, chunks: int, axis: int = 0) -> tuple[Self, ...]:
        """At most `chunks` pieces of equal size along an axis, the last one perhaps smaller."""
        a = axis_of(axis, self.ndim, "chunk")
        (count,) = shape_of((chunks,), "chunk")
        if count < 1:
            raise UsageError(f"chunk at {here()}: {count} pieces")
        return self.split(max(1, -(-self.shape[a] // count)), a)

    def unbind(self, axis: int = 0) -> tuple[Self, ...]:
        """The slices along an axis, without it: (3, N) as three of (N,)."""
        a = axis_of(axis, self.ndim, "unbind")
        return tuple(
            wrap(drop_axes(narrow(self._u, a, i, i + 1), (a,)), self) for i in range(self.shape[a])
        )

    def repeat(self, repeats: int, axis: int | None = None) -> Self:
        """Each element `repeats` times in a row along an axis; None: of the flat elements.

        As the array API's repeat (torch calls it repeat_interleave; its repeat is `tile`).
        """
        (count,) = shape_of((repeats,), "repeat")
        if count < 0:
            raise UsageError(f"repeat at {here()}: {count} times")
        u = self._u.reshape((-1,) if self.size else (0,)) if axis is None else self._u
        a = 0 if axis is None else axis_of(axis, self.ndim, "repeat")
        many = insert_axis(u, a + 1, count)
        return wrap(many.reshape((*u.shape[:a], u.shape[a] * count, *u.shape[a + 1 :])), self)

    def tile(self, *repeats: Any) -> Self:
        """The whole tensor repeats[a] times along axis a; missing axes or repeats count as 1."""
        times = shape_of(repeats, "tile")
        if any(r < 0 for r in times):
            raise UsageError(f"tile at {here()}: {times} has a negative number")
        rank = max(len(times), self.ndim)
        times = (1,) * (rank - len(times)) + times
        shape = (1,) * (rank - self.ndim) + self.shape
        pairs = list(zip(times, shape, strict=True))
        u = self._u.reshape(tuple(x for _, n in pairs for x in (1, n)))
        u = u.expand(tuple(x for pair in pairs for x in pair))
        return wrap(u.reshape(tuple(r * n for r, n in pairs)), self)

    def tril(self, diagonal: int = 0) -> Self:
        """(..., M, N) with zeros above a diagonal (0 the main one, 1 the one above it)."""
        return wrap(triangle(_matrix(self, "tril"), diagonal, lower=True), self)

    def triu(self, diagonal: int = 0) -> Self:
        """(..., M, N) with zeros below a diagonal."""
        return wrap(triangle(_matrix(self, "triu"), diagonal, lower=False), self)

    def diagonal(self, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Self:
        """The elements (i, i + offset) of two axes, as a last axis."""
        _matrix(self, "diagonal")
        axes = tuple(axis_of(a, self.ndim, "diagonal") for a in (axis1, axis2))
        if axes[0] == axes[1]:
            raise UsageError(f"diagonal at {here()}: axes {axis1} and {axis2} are the same")
        u = move_axes(self._u, axes, (self.ndim - 2, self.ndim - 1))
        return wrap(diagonal_of(u, offset), self)


def _sizes(old: Shape, new: Shape) -> Shape:
    """The shape that a reshape asks for, -1 replaced.  Raises UsageError where it does not fit."""
    unknown = new.count(-1)
    known = prod(n for n in new if n != -1)
    if unknown > 1 or any(n < -1 for n in new):
        raise UsageError(f"reshape at {here()}: {new}: one size may be -1, the others are >= 0")
    if unknown and (known == 0 or prod(old) % known):
        why = "any size would do" if known == 0 and prod(old) == 0 else "no size fits"
        raise UsageError(f"reshape at {here()}: shape {old} as {new}: {why} in place of -1")
    full = tuple(prod(old) // known if n == -1 else n for n in new)
    if prod(full) != prod(old):
        raise UsageError(
            f"reshape at {here()}: shape {old} has {prod(old)} elements, {new} has {prod(full)}"
        )
    return full


def _pairs(given: Sequence[Any], shape: Shape, what: str) -> tuple[tuple[int, int], ...]:
    """Two integers for each axis."""
    try:
        pairs = tuple((int(a), int(b)) for a, b in given)
    except (TypeError, ValueError):
        pairs = ()
    if len(pairs) != len(given) or len(pairs) != len(shape):
        raise UsageError(
            f"{what} at {here()}: wants a pair of integers for each of the {len(shape)} axes of "
            f"shape {shape}, got {given!r}"
        )
    return pairs


def _matrix(x: Base, what: str) -> UOp:
    if x.ndim < 2:
        raise UsageError(f"{what} at {here()}: wants at least 2 axes, got shape {x.shape}")
    return x._u


# ---- functions of several tensors
def cat(tensors: Sequence[T], axis: int | None = 0) -> T:
    """Tensors one after the other along an axis: (2, N) and (3, N) give (5, N).

    The dtype is what they promote to; axis None joins the flat elements.  Raises UsageError for no
    tensors, or shapes that differ elsewhere.
    """
    parts = _several(tensors, "cat")
    values = _promoted(parts, "cat")
    if axis is None:
        values = [u.reshape((prod(u.shape),)) for u in values]
    a = axis_of(axis or 0, len(values[0].shape), "cat")
    first = values[0].shape
    for u in values[1:]:
        if len(u.shape) != len(first) or any(
            n != m for i, (n, m) in enumerate(zip(u.shape, first, strict=True)) if i != a
        ):
            raise UsageError(
                f"cat at {here()}: shapes {first} and {u.shape} differ beside axis {a}"
            )
    return wrap(joined(values, a), parts[0], *parts[1:])


concat = cat


def stack(tensors: Sequence[T], axis: int = 0) -> T:
    """Tensors of one shape along a new axis, which has this number in the result.

    Raises UsageError for no tensors, or shapes that differ.
    """
    parts = _several(tensors, "stack")
    a = axis_of(axis, parts[0].ndim + 1, "stack")
    for t in parts[1:]:
        if t.shape != parts[0].shape:
            raise UsageError(f"stack at {here()}: shapes {parts[0].shape} and {t.shape} differ")
    values = [insert_axis(u, a) for u in _promoted(parts, "stack")]
    return wrap(joined(values, a), parts[0], *parts[1:])


def broadcast_tensors(*tensors: T) -> tuple[T, ...]:
    """Each tensor repeated to the shape that all of them broadcast to."""
    shape = broadcast_shapes("broadcast_tensors", *(t.shape for t in tensors))
    return tuple(wrap(t._u.expand(shape), t) for t in tensors)


def _several(tensors: Sequence[T], what: str) -> list[T]:
    parts = list(tensors)
    if not parts or not all(isinstance(t, Base) for t in parts):
        got = ", ".join(type(t).__name__ for t in parts) or "none"
        raise UsageError(f"{what} at {here()}: wants a sequence of tensors, got {got}")
    return parts


def _promoted(parts: Sequence[Base], what: str) -> list[UOp]:
    dtype = parts[0].dtype
    for t in parts[1:]:
        dtype = promote(dtype, t.dtype, what)
    return [t._u.cast(dtype) for t in parts]

"""The graphs of `x[...]` and of a new version of x with `x[...] = v`.

Slices and integers are movements: what is read, and what is left, follows from the shape alone.
Integers that data hold are a GATHER.  A write puts the value where the key points by the opposite
movements, and a choice takes it there and the old elements elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.tensor.keys import Key, Layout, Mask, Place, Places, Span, layout, leaf
from uopc.tensor.movement import (
    drop_axes,
    insert_axis,
    move_axes,
    narrow,
    pad_axis,
    positions,
    zero,
)
from uopc.uop.node import Shape, UOp, here, prod
from uopc.uop.ops import Ops


# ---- slices as movements
def read_spans(u: UOp, spans: Sequence[Span]) -> UOp:
    """The elements of these spans."""
    for axis, span in enumerate(spans):
        u = _read_span(u, axis, span)
    return u


def _read_span(u: UOp, axis: int, span: Span) -> UOp:
    """One axis.  A step s > 1 cuts it into rows of s, of which one column is kept.

    The rows need count * s elements: where the axis has them the column is chosen so that they lie
    inside it, else it is padded (and the compiler sees that nothing is read from there).
    """
    n, count, step = u.shape[axis], span.count, abs(span.step)
    if (span.begin, span.step, count) == (0, 1, n):
        return u
    if count == 0:
        return narrow(u, axis, 0, 0)
    low = span.begin if span.step > 0 else span.begin + (count - 1) * span.step
    if step == 1 or count == 1:
        u = narrow(u, axis, low, low + count)
    else:
        start = max(0, min(low, n - count * step))
        start = start if low - start < step else low
        end = min(n, start + count * step)
        u = pad_axis(narrow(u, axis, start, end), axis, 0, count * step - (end - start), zero(u))
        u = u.reshape((*u.shape[:axis], count, step, *u.shape[axis + 1 :]))
        u = drop_axes(narrow(u, axis + 1, low - start, low - start + 1), (axis + 1,))
    return u.flip((axis,)) if span.step < 0 else u


def put_spans(u: UOp, spans: Sequence[Span], shape: Shape, fill: UOp) -> UOp:
    """A value of `shape` with the elements of u at these spans and `fill` elsewhere."""
    for axis, (span, n) in enumerate(zip(spans, shape, strict=True)):
        u = _put_span(u, axis, span, n, fill)
    return u


def _put_span(u: UOp, axis: int, span: Span, n: int, fill: UOp) -> UOp:
    """The transpose of `_read_span`: rows of s of which the first column is u."""
    count, step = span.count, abs(span.step)
    if (span.begin, span.step, count) == (0, 1, n):
        return u
    low = span.begin if span.step > 0 else span.begin + (count - 1) * span.step
    if span.step < 0:
        u = u.flip((axis,))
    if step > 1 and count > 1:
        rows = pad_axis(insert_axis(u, axis + 1), axis + 1, 0, step - 1, fill)
        flat = rows.reshape((*u.shape[:axis], count * step, *u.shape[axis + 1 :]))
        u = narrow(flat, axis, 0, (count - 1) * step + 1)
    return pad_axis(u, axis, low, n - low - u.shape[axis], fill)


# ---- reading
def read_items(u: UOp, key: Key, what: str) -> UOp:
    """The elements of u that a key names."""
    if key.has(Mask):
        raise UsageError(
            f"{what} at {here()}: how many elements a mask has is known only where it is computed, "
            "and shapes must be known before. Use where(mask, x, y), x.masked_fill(mask, v), or "
            "a mask on the host: x[mask.numpy()]."
        )
    found = layout(key, what)
    u = read_spans(u, key.spans)
    if not key.has(Places):
        return u.reshape(found.shape)
    u = drop_axes(u, [a for a, item in key.axes if isinstance(item, Place)])
    walks = iter(found.walks)
    dims: list[int] = []
    indices: list[UOp] = []
    for _, item in key.axes:
        if isinstance(item, Span):
            dims.append(next(walks))
        elif isinstance(item, Places):
            dims.append(~len(indices))
            indices.append(_spread(item.index, found))
    return u.gather(dims, *indices)


def _spread(index: UOp, to: Layout) -> UOp:
    """An index at every position of the result."""
    after = (1,) * (len(to.shape) - to.at - len(to.common))
    there = (1,) * to.at + to.common + after
    return index.expand(to.common).reshape(there).expand(to.shape)


# ---- writing
def write_items(u: UOp, key: Key, value: UOp, what: str) -> UOp | None:
    """u with elements of `value`, of its dtype, where a key points; None where it points nowhere.

    Where Places name an element twice, the last in row-major order stays, as in numpy.  Raises
    UsageError where the value does not broadcast to the places.
    """
    found = layout(key, what)
    value = _fitted(value, found, key, what)
    region = tuple(span.count for span in key.spans)
    if prod(found.shape) == 0 or prod(region) == 0:
        return None
    inside = UOp.const(True, dtypes.bool).expand(region)
    if key.has(Mask):
        inside, value = _where_masked(key, value, region)
    elif key.has(Places):
        inside, value = _last_written(key, value, found, region)
    placed = value
    if value.shape:
        placed = put_spans(value.reshape(region), key.spans, u.shape, zero(u))
    placed = placed.expand(u.shape)
    if region == u.shape and not (key.has(Mask) or key.has(Places)):
        return placed
    chosen = put_spans(inside, key.spans, u.shape, UOp.const(False, dtypes.bool))
    return chosen.where(placed, u)


def _fitted(value: UOp, found: Layout, key: Key, what: str) -> UOp:
    """The value at every position that the key names; one without axes stays so."""
    if not value.shape:
        return value
    extra = max(0, len(value.shape) - len(found.shape))
    kept = value.shape[extra:]
    full = (1,) * (len(found.shape) - len(kept)) + kept
    if prod(value.shape[:extra]) != 1 or any(
        n not in (1, m) for n, m in zip(full, found.shape, strict=True)
    ):
        shape = str(found.shape)
        hint = ""
        if key.has(Mask):
            shape = str((*found.shape[: found.at], "?", *found.shape[found.at + 1 :]))
            hint = (
                " How many a mask has is known only where it is computed: give one value for all "
                "of them, or use where(mask, values, x)."
            )
        raise UsageError(
            f"{what} at {here()}: a value of shape {value.shape} does not broadcast to the "
            f"elements of the key, shape {shape}.{hint}"
        )
    return value.reshape(kept).expand(found.shape)


def _where_masked(key: Key, value: UOp, region: Shape) -> tuple[UOp, UOp]:
    """Where a mask holds, and one value for all of those elements, both of shape `region`."""
    if key.has(Places) or sum(isinstance(item, Mask) for item in key.items) > 1:
        raise UsageError(
            f"setitem at {here()}: a mask on the device goes with integers and slices only; its "
            "elements would have to be paired with those of other arrays"
        )
    walked = {axis: region[axis] for axis, item in key.axes if isinstance(item, Span)}
    (mask,) = (item.holds for item in key.items if isinstance(item, Mask))
    others = {axis for axis, _ in key.axes}
    shape = tuple(1 if a in others else n for a, n in enumerate(region))
    if value.shape:
        value = value.reshape(tuple(walked.get(a, 1) for a in range(len(region)))).expand(region)
    return mask.reshape(shape).expand(region), value


def _last_written(key: Key, value: UOp, found: Layout, region: Shape) -> tuple[UOp, UOp]:
    """Which elements of the region Places name, and the value that each of them gets."""
    axes = [axis for axis, item in key.axes if isinstance(item, Places)]
    winner = _winners(key, found, tuple(region[a] for a in axes))
    there = tuple(n if a in axes else 1 for a, n in enumerate(region))
    winner = winner.reshape(there).expand(region)
    if value.shape:
        rank = len(found.common)
        first = move_axes(value, range(found.at, found.at + rank), range(rank))
        walks = [axis for axis, item in key.axes if isinstance(item, Span)]
        rows = first.reshape((prod(found.common), *(region[a] for a in walks)))
        sure = winner.maximum(0).minimum(prod(found.common) - 1)  # nothing to check there
        value = rows.gather((~0, *walks), sure)
    return winner.ne(-1), value


def _winners(key: Key, found: Layout, sizes: Shape) -> UOp:
    """For each element of the axes that Places index the number of the last of them that names it,
    -1 where none does.  Shape (prod(sizes),).

    Indices of the host are numbered here.  Of indices that only the device knows every element
    looks through all: that costs prod(sizes) times their number in comparisons, of integers.
    """
    places = [item for item in key.items if isinstance(item, Places)]
    count, n = prod(found.common), prod(sizes)
    dtype = dtypes.i32 if count < 2**31 else dtypes.i64
    if all(item.known is not None for item in places):
        known = [np.broadcast_to(item.known, found.common) for item in places]  # type: ignore[arg-type]
        table = np.full(n, -1, dtype.numpy)
        np.maximum.at(table, np.ravel_multi_index(known, sizes).reshape(-1), np.arange(count))
        return leaf(table, key.device)
    target = _target([item.index.expand(found.common).reshape((count,)) for item in places], sizes)
    shape = (n, count)
    named = insert_axis(target, 0, n).eq(positions(shape, 0).cast(dtypes.i64))
    return named.where(positions(shape, 1).cast(dtype), -1).reduce(Ops.MAX)


def _target(indices: Sequence[UOp], sizes: Shape) -> UOp:
    """The flat position that indices name together, i64; -1 where one of them is out of range.

    The GATHER counts from the end and reports what is out of range, as in every other reading.
    """
    total, valid = UOp.const(0, dtypes.i64), UOp.const(True, dtypes.bool)
    for index, n in zip(indices, sizes, strict=True):
        at = UOp.arange(n, dtypes.i64).gather((~0,), index)
        total = total * n + at
        given = signed(index)
        valid = valid & (given.eq(at) | (given + n).eq(at))
    return valid.where(total, -1)


def signed(index: UOp) -> UOp:
    """Integers as i64; those of u64 beyond it become its largest."""
    return (index.minimum(dtypes.i64.max) if index.dtype is dtypes.u64 else index).cast(dtypes.i64)

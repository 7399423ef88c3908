"""What the stages share: parameters and arrays, garbage, checked accesses, the order of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import DType
from uopc.errors import UopcError, UsageError
from uopc.uop.node import UOp, memory, prod, where_from
from uopc.uop.numbers import Array, canonical_nan
from uopc.uop.ops import AxisType, LaunchArg, Ops, ParamArg, RangeArg, ShuffleMode
from uopc.uop.order import written
from uopc.uop.text import index_text

_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: slot -> array, a numpy scalar for a parameter of shape (), the arrays of a bundle
Given: TypeAlias = Mapping[int, "_Array | np.generic | Sequence[_Array]"]


class OutOfBoundsError(UopcError, IndexError):
    """An access whose gate is true lies outside its memory."""


class ConflictError(UopcError):
    """Two iterations or threads write different values to one element, in no order."""


class WarpError(UopcError):
    """Lanes that do something together are not those that should."""


class AssertedError(UopcError, AssertionError):
    """The condition of an ASSERT is false."""


def bind(
    nodes: Iterable[UOp], arrays: Given, written: frozenset[int] = frozenset()
) -> dict[int, Array]:
    """slot -> flat array of every BUFFER among the nodes; copies of those that are written.

    A bundle is one array: each of its memories padded to their most elements.
    Raises UsageError where an array is missing, or has another dtype or number of elements.
    """
    flat: dict[int, Array] = {}
    for u in nodes:
        if u.op is not Ops.BUFFER:
            continue
        a: ParamArg = u.arg
        if a.bundle:
            flat[a.slot] = _padded(a, arrays.get(a.slot))
            continue
        if a.slot not in arrays:
            if a.slot not in written:
                raise UsageError(
                    f"slot {a.slot} ({a.dtype}, shape {a.shape}) is read, and no array is given"
                )
            flat[a.slot] = garbage(a.dtype, prod(a.shape))
            continue
        x = np.asarray(arrays[a.slot])
        if x.dtype != a.dtype.numpy or x.size != prod(a.shape):
            raise UsageError(
                f"slot {a.slot} is {a.dtype} of shape {a.shape}, "
                f"the array is {x.dtype} of shape {x.shape}"
            )
        flat[a.slot] = x.reshape(-1).copy() if a.slot in written else x.reshape(-1)
    return flat


def _padded(a: ParamArg, given: Any) -> Array:
    """The memories of a bundle as one flat array, garbage where there is nothing."""
    count, length = a.shape
    flat = garbage(a.dtype, count * length)
    for which, x in enumerate(_memories(a, given)):
        if x.dtype != a.dtype.numpy or x.size > length:
            raise UsageError(
                f"memory {which} of bundle {a.slot} is {a.dtype} of up to {length} elements, "
                f"the array is {x.dtype} of {x.size}"
            )
        flat[which * length : which * length + x.size] = x.reshape(-1)
    return flat


def _memories(a: ParamArg, given: Any) -> Sequence[Array]:
    """Raises UsageError unless there are as many arrays as a bundle takes, or fewer."""
    if isinstance(given, (list, tuple)) and len(given) <= a.shape[0]:
        return given
    got = len(given) if isinstance(given, (list, tuple)) else type(given).__name__
    raise UsageError(f"slot {a.slot} is a bundle: a list of up to {a.shape[0]} arrays, got {got}")


def lengths(nodes: Iterable[UOp], arrays: Given) -> dict[int, Array]:
    """slot -> elements of each memory of a bundle; one more, 0, for all that are not there."""
    found: dict[int, Array] = {}
    for u in nodes:
        if u.op is Ops.BUFFER and u.arg.bundle:
            sizes = [x.size for x in _memories(u.arg, arrays.get(u.arg.slot))]
            found[u.arg.slot] = np.array([*sizes, *[0] * (u.shape[0] + 1 - len(sizes))])
    return found


def within(lengths_: Array, which: Array) -> Array:
    """Elements of the memories of a bundle that `which` names."""
    inside = (which >= 0) & (which < lengths_.size - 1)
    return np.asarray(lengths_[np.where(inside, which, -1)])


def stored_slots(nodes: Iterable[UOp]) -> frozenset[int]:
    """The parameters that a kernel writes."""
    targets = [m for u in nodes if (m := written(u)) is not None]
    return frozenset(m.arg.slot for m in targets if m.op is Ops.BUFFER)


def shaped(
    flat: dict[int, Array], arrays: Given, nodes: Iterable[UOp], slots: frozenset[int]
) -> dict[int, Any]:
    """The written slots in the shape of the array given, else of the parameter."""
    args = {u.arg.slot: u.arg for u in nodes if u.op is Ops.BUFFER}
    return {s: _shaped(args[s], flat[s], arrays.get(s)) for s in sorted(slots)}


def _shaped(a: ParamArg, flat: Array, given: Any) -> Any:
    if not a.bundle:
        return flat.reshape(a.shape if given is None else np.shape(given))
    rows = flat.reshape(a.shape)
    return [row[: x.size].reshape(x.shape).copy() for row, x in zip(rows, given, strict=False)]


def garbage(dtype: DType, size: int) -> Array:
    """Memory that nobody has written: NaN, the smallest integer, the largest unsigned one."""
    if dtype.is_float:
        return np.full(size, canonical_nan(dtype))
    return np.full(size, dtype.min or dtype.max, dtype.numpy)


def check_bounds(
    u: UOp,
    offsets: Array,
    gate: Array | None,
    size: int | Array,
    place: Callable[[], Mapping[str, Array]],
    accessed: UOp | None = None,
) -> None:
    """Raises OutOfBoundsError for the first offset with a true gate that is not in 0 .. size - 1.

    size: of the memory; of segments, one for each offset.
    place gives name -> array that broadcasts with the offsets: the iteration, for the message.
    accessed: the INDEX, where it is not the first source of a LOAD or STORE.
    """
    bad = (offsets < 0) | (offsets >= size)
    if gate is not None:
        bad = bad & gate
    if not bad.any():
        return
    where = place()
    shape = np.broadcast_shapes(bad.shape, np.shape(size), *(x.shape for x in where.values()))
    first = np.unravel_index(int(np.argmax(np.broadcast_to(bad, shape))), shape)
    index = int(np.broadcast_to(offsets, shape)[first])
    at = ", ".join(f"{n} = {int(np.broadcast_to(x, shape)[first])}" for n, x in where.items())
    target = accessed
    if target is None:
        target = u.src[0] if u.op in (Ops.LOAD, Ops.STORE) else u
    what = "REG or SHARED of a STAGE" if u.op is Ops.STAGE else f"{memory(target).arg.dtype} memory"
    raise OutOfBoundsError(
        f"{u.op} at {where_from(u)}: index {index} is outside {index_text(target, 100)}, "
        f"{what} of {int(np.broadcast_to(size, shape)[first])} elements"
        + (f" (at {at})" if at else "")
    )


def scatter(u: UOp, flat: Array, where: Array, values: Array) -> None:
    """flat[where] = values; raises ConflictError where one element gets two different values."""
    flat[where] = values
    if where.size <= 1:
        return
    bits = f"u{flat.dtype.itemsize}"
    differs = np.asarray(flat[where]).view(bits) != np.ascontiguousarray(values).view(bits)
    if differs.any():
        element = int(where[np.nonzero(differs)[0][0]])
        raise ConflictError(
            f"{u.op} at {where_from(u)}: two writers give different values to element "
            f"{element} of {index_text(u.src[0], 100)}. Guard it, or index it by every range that "
            "its value depends on."
        )


def thread_order(
    nodes: Iterable[UOp], launch: LaunchArg | None, kind: AxisType = AxisType.LOCAL
) -> list[UOp]:
    """The LOCAL ranges, fastest first: axes in `lanes`, then the others, last axis first."""
    lanes = launch.lanes if launch is not None else ()
    found = {u for u in nodes if u.op is Ops.RANGE and u.arg.kind is kind}

    def place(u: UOp) -> tuple[int, int, str, int]:
        axis = u.arg.axis
        return (
            lanes.index(axis) if axis in lanes else len(lanes),
            -axis,
            u.arg.digit,
            u.arg.instance,
        )

    return sorted(found, key=place)


def range_values(u: UOp) -> Array:
    """start, start + step, ...: what a RANGE runs through."""
    a: RangeArg = u.arg
    return a.start + a.step * np.arange(a.size, dtype=np.int64)


def other_lane(u: UOp, threads: int) -> Array:
    """For each linear thread of a block, the thread whose value a SHUFFLE gives it.

    Raises OutOfBoundsError where that lane does not exist (a block that is no multiple of 32).
    """
    mask: int = u.arg.by
    here: Array = np.arange(threads)
    if u.arg.mode is ShuffleMode.UP:
        return np.where(here % 32 < mask, here, here - mask)
    if u.arg.mode is ShuffleMode.DOWN:
        return np.where((here % 32 + mask >= 32) | (here + mask >= threads), here, here + mask)
    source: Array = here ^ mask
    if (source >= threads).any():
        t = int(np.argmax(source >= threads))
        raise OutOfBoundsError(
            f"SHUFFLE at {where_from(u)}: thread {t} reads lane {t % 32} ^ {mask}, "
            f"the block has {threads} threads only"
        )
    return source

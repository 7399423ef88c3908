"""Stages INDEXED and MAPPED: every range is an axis of numpy arrays, a kernel is one big formula.

A value has an axis for each range that it varies with, and no other.  There is no order: every load
reads the arrays as they were given.  A STAGE fills its memory for all values of the ranges that it
closes (SHARED: of all threads of a block too, CLUSTER: of all blocks of a cluster), one memory for
each value of all other ranges, and reads it at the read address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import AddrSpace
from uopc.errors import UsageError
from uopc.uop.infer import segment
from uopc.uop.node import UOp, is_rank, memory, toposort, tuple_of
from uopc.uop.numbers import Array, array_of, elementwise
from uopc.uop.ops import ELEMENTWISE, Ops, ReportArg
from uopc.uop.oracle.access import (
    Given,
    bind,
    check_bounds,
    garbage,
    lengths,
    other_lane,
    range_values,
    scatter,
    shaped,
    stored_slots,
    thread_order,
    within,
)
from uopc.uop.oracle.fold import fold, prefixes
from uopc.uop.records import range_name

Axes: TypeAlias = tuple[UOp, ...]


@dataclass(frozen=True)
class Varying:
    """A value for every combination of some ranges: data has one axis a range, in `axes`' order."""

    axes: Axes
    data: Array


Values: TypeAlias = tuple[Varying, ...]
_TRUE = Varying((), np.asarray(True))


def run_lattice(sink: UOp, arrays: Given) -> dict[int, Any]:
    """`run` for INDEXED and MAPPED."""
    order = toposort(sink)
    slots = stored_slots(order)
    kernel = _Lattice(order, sink, bind(order, arrays, slots), bind(order, arrays, slots))
    kernel.lengths = lengths(order, arrays)
    for u in order:
        kernel.visit(u)
    return shaped(kernel.outputs, arrays, order, slots)


class _Lattice:
    def __init__(
        self, order: list[UOp], sink: UOp, inputs: dict[int, Array], outputs: dict[int, Array]
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        #: slot of a bundle -> elements of each of its memories
        self.lengths: dict[int, Array] = {}
        self.threads = thread_order(order, sink.arg)
        self.ranks = [u for u in order if is_rank(u)]
        #: one order of the ranges for all values
        self.rank = {r: n for n, r in enumerate(u for u in order if u.op is Ops.RANGE)}
        self.values: dict[UOp, Values] = {}

    def visit(self, u: UOp) -> None:
        if u.op is Ops.STORE:
            self._store(u)
        elif u.op not in (Ops.END, Ops.SINK) and not _is_memory(u):
            self.values[u] = self._value(u)

    def _value(self, u: UOp) -> Values:
        op, arg = u.op, u.arg
        if op in ELEMENTWISE:
            axes, data = self._align([self._one(s) for s in u.src])
            return (Varying(axes, elementwise(op, u.src[-1].dtype, data, arg)),)
        if op is Ops.CONST:
            return (Varying((), array_of(arg).astype(u.dtype.numpy)),)
        if op is Ops.BUFFER:
            return (Varying((), self.inputs[arg.slot].reshape(())),)
        if op is Ops.RANGE:
            return (Varying((u,), range_values(u)),)
        if op is Ops.INDEX:
            return self.values[u.src[1]]
        if op is Ops.LOAD:
            return (self._load(u),)
        if op is Ops.TUPLE:
            return tuple(self._one(s) for s in u.src)
        if op is Ops.ITEM:
            return (self.values[u.src[0]][arg],)
        if op is Ops.REDUCE:
            return self._reduce(u)
        if op is Ops.SCAN:
            return (self._scan(u),)
        if op is Ops.STAGE:
            return tuple(self._stage(u, v) for v in self.values[u.src[0]])
        if op is Ops.SHUFFLE:
            return tuple(self._shuffle(u, v) for v in self.values[u.src[0]])
        raise UsageError(f"{op} belongs to no kernel in stage INDEXED or MAPPED")

    def _one(self, u: UOp) -> Varying:
        return self.values[u][0]

    # ---- axes
    def _sorted(self, ranges: Iterable[UOp]) -> Axes:
        return tuple(sorted(set(ranges), key=self.rank.__getitem__))

    def _align(
        self, values: Sequence[Varying], more: Iterable[UOp] = ()
    ) -> tuple[Axes, list[Array]]:
        """The union of the axes, and the data with axes of size 1 put in: they broadcast."""
        axes = self._sorted([*more, *(r for v in values for r in v.axes)])
        return axes, [_spread(v, axes) for v in values]

    def _full(self, values: Sequence[Varying], last: Sequence[UOp]) -> tuple[Axes, list[Array]]:
        """(outer axes, data of shape (*outer, n)): `last` ranges flattened into one last axis."""
        axes, data = self._align(values, last)
        outer = tuple(r for r in axes if r not in set(last))
        order = [axes.index(r) for r in (*outer, *last)]
        shape = _shape(axes)
        rows = [
            np.broadcast_to(d, shape).transpose(order).reshape(*_shape(outer), -1) for d in data
        ]
        return outer, rows

    # ---- memory
    def _load(self, u: UOp) -> Varying:
        where, gate, *other = (
            [self._one(s) for s in u.src] if len(u.src) == 3 else [self._one(u.src[0]), _TRUE]
        )
        flat = self.inputs[memory(u.src[0]).arg.slot]
        begin, size = self._extent(u.src[0], flat)
        axes, data = self._align([where, gate, *other, begin, size])
        offsets, open_ = data[0], data[1]
        self._check(u, offsets, open_, data[-1], axes)
        if not flat.size:
            return Varying(axes, np.broadcast_arrays(*data[:-2])[-1])
        read = flat[np.where(open_, data[-2] + offsets, 0)]
        return Varying(axes, np.where(open_, read, data[2]) if other else read)

    def _store(self, u: UOp) -> None:
        where, value = self._one(u.src[0]), self._one(u.src[1])
        gate = self._one(u.src[2]) if len(u.src) == 3 else _TRUE
        flat = self.outputs[memory(u.src[0]).arg.slot]
        axes, data = self._align([where, value, gate, *self._extent(u.src[0], flat)])
        self._check(u, data[0], data[2], data[4], axes)
        data = [data[3] + data[0], *data[1:3]]
        offsets, values, open_ = [x.reshape(-1) for x in np.broadcast_arrays(*data)]
        if isinstance(u.arg, ReportArg):
            np.maximum.at(flat, offsets[open_], values[open_])
        else:
            scatter(u, flat, offsets[open_], values[open_])

    def _extent(self, index: UOp, flat: Array) -> tuple[Varying, Varying]:
        """Where the memory of an INDEX begins, and how many elements it has."""
        of = segment(index)
        if of is None:
            return Varying((), np.asarray(0)), Varying((), np.asarray(flat.size))
        which = self._one(of.src[1])
        sizes = within(self.lengths[memory(index).arg.slot], which.data)
        return Varying(which.axes, which.data * of.shape[0]), Varying(which.axes, sizes)

    def _check(self, u: UOp, offsets: Array, gate: Array, size: Array, axes: Axes) -> None:
        check_bounds(
            u,
            offsets,
            gate,
            size,
            lambda: {
                range_name(r.arg): _spread(Varying((r,), range_values(r)), axes) for r in axes
            },
        )

    # ---- closers
    def _reduce(self, u: UOp) -> Values:
        values = self.values[u.src[0]]
        outer, rows = self._full(values, u.src[1:])
        both = tuple_of(u)
        kinds = (u.src[0].dtype,) if both is None else tuple(s.dtype for s in both.src)
        return tuple(Varying(outer, x) for x in fold(u.arg.combine, kinds, tuple(rows)))

    def _scan(self, u: UOp) -> Varying:
        """Along the values of the ranges, in whichever order they run."""
        ranges = u.src[2:]
        outer, (rows, starts) = self._full([self._one(s) for s in u.src[:2]], ranges)
        shape = (*_shape(outer), *_shape(ranges))
        down = tuple([len(outer) + k for k, r in enumerate(ranges) if r.arg.step < 0])
        upwards = np.flip(rows.reshape(shape), down).reshape(rows.shape)
        found = prefixes(u.arg, u.dtype, upwards, starts[..., 0]).reshape(shape)
        found, mixed = np.flip(found, down), (*outer, *ranges)
        axes = self._sorted(mixed)
        return Varying(axes, found.transpose([mixed.index(r) for r in axes]))

    def _stage(self, u: UOp, value: Varying) -> Varying:
        write, read, gate = (self._one(s) for s in u.src[1:4])
        filling = [*u.src[4:]]
        if u.arg.space in (AddrSpace.SHARED, AddrSpace.CLUSTER):
            filling += [r for r in self.threads if r not in u.src[4:]]
        if u.arg.space is AddrSpace.CLUSTER:
            filling += self.ranks
        outer, rows = self._full([value, write, gate], filling)
        values, offsets, open_ = (x.reshape(-1, x.shape[-1]) for x in rows)
        check_bounds(u, offsets, open_, u.arg.size, dict)
        copies = np.broadcast_to(np.arange(values.shape[0])[:, None], values.shape)
        flat = self._garbage(u, value, values.shape[0] * u.arg.size)
        scatter(u, flat, (copies * u.arg.size + offsets)[open_], values[open_])
        base = Varying(outer, np.arange(values.shape[0]).reshape(_shape(outer)) * u.arg.size)
        axes, (begin, at) = self._align([base, read])
        check_bounds(u, at, None, u.arg.size, dict)
        return Varying(axes, flat[begin + at])

    def _garbage(self, u: UOp, value: Varying, size: int) -> Array:
        both = tuple_of(u)
        kinds = [u.dtype] if both is None else [s.dtype for s in both.src]
        return garbage(next(d for d in kinds if d.numpy == value.data.dtype), size)

    def _shuffle(self, u: UOp, value: Varying) -> Varying:
        slowest_first = self.threads[::-1]
        lane = [self._one(s) for s in u.src[1:]]
        outer, (rows, *named) = self._full([value, *lane], slowest_first)
        if named:
            here = np.arange(rows.shape[-1])
            moved = np.take_along_axis(rows, here // 32 * 32 + named[0] % 32, axis=-1)
        else:
            moved = rows[..., other_lane(u, rows.shape[-1])]
        moved = moved.reshape(*_shape(outer), *_shape(slowest_first))
        mixed = (*outer, *slowest_first)
        axes = self._sorted(mixed)
        return Varying(axes, moved.transpose([mixed.index(r) for r in axes]))


def _is_memory(u: UOp) -> bool:
    return u.op is Ops.SEGMENT or (u.op is Ops.BUFFER and u.shape != ())


def _shape(axes: Sequence[UOp]) -> tuple[int, ...]:
    return tuple(r.arg.size for r in axes)


def _spread(v: Varying, axes: Axes) -> Array:
    return v.data.reshape([r.arg.size if r in v.axes else 1 for r in axes])

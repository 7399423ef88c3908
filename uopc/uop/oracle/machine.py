"""All threads of a LOOPS kernel at once: their memories and values as numpy vectors, one lane each.

Lane = block * threads + linear thread of the block; 32 neighbours of a block are a warp, and the
blocks of a cluster are neighbours.  A value
has shape () where it is the same for all threads, else (lanes,).  `active` says which lanes do what
is done now: inside an IF those whose condition holds, inside a ROLE its warps.
"""

from __future__ import annotations

import numpy as np

from uopc.dtype import AddrSpace, DType
from uopc.errors import SpecError
from uopc.uop.infer import segment
from uopc.uop.node import UOp, is_rank, memory, prod, where_from
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops
from uopc.uop.oracle.access import (
    check_bounds,
    garbage,
    range_values,
    scatter,
    thread_order,
    within,
)
from uopc.uop.records import range_name

WARP = 32
#: where SHARED memories begin in a block: whole periods of every swizzle
SHARED_PERIOD = 1024


class Machine:
    """Memories and values of all threads."""

    def __init__(
        self,
        order: list[UOp],
        sink: UOp,
        parameters: dict[int, Array],
        lengths: dict[int, Array],
    ) -> None:
        """lengths: slot of a bundle -> elements of each of its memories."""
        self.parameters, self.lengths = parameters, lengths
        threads = thread_order(order, sink.arg)
        for kind in (AxisType.LANE, AxisType.WARP, AxisType.WARPGROUP):
            threads += thread_order(order, None, kind)
        blocks = [
            r
            for kind in (AxisType.GLOBAL, AxisType.THREAD)
            for r in thread_order(order, None, kind)
        ]
        blocks.sort(key=lambda r: not is_rank(r))
        #: blocks of a cluster
        self.cluster = prod(r.arg.size for r in blocks if is_rank(r))
        self.hardware = (*threads, *blocks)
        self.threads = prod(r.arg.size for r in threads)
        self.blocks = prod(r.arg.size for r in blocks)
        self.lanes = self.threads * self.blocks
        self.lane = np.arange(self.lanes)
        self.block, self.thread = self.lane // self.threads, self.lane % self.threads
        self.active: Array | None = None
        self.open: list[UOp] = []
        self.values: dict[UOp, Array] = {}
        stride = 1
        for r in self.hardware:
            self.values[r] = range_values(r)[self.lane // stride % r.arg.size]
            stride *= r.arg.size
        #: memory -> (flat elements, elements of one copy, where each lane's copy begins)
        self.memories: dict[UOp, tuple[Array, int, Array]] = {}
        #: SHARED memory -> its address in a block, in bytes
        self.addresses: dict[UOp, int] = {}
        at = 0
        for u in order:
            if u.op in (Ops.BUFFER, Ops.ALLOC):
                self.memories[u] = self._memory(u)
                if u.arg.addrspace is AddrSpace.SHARED:
                    self.addresses[u] = at
                    at += -(-prod(u.arg.shape) * u.dtype.itemsize // SHARED_PERIOD) * SHARED_PERIOD

    def _memory(self, u: UOp) -> tuple[Array, int, Array]:
        a, size = u.arg, prod(u.arg.shape)
        if a.addrspace is AddrSpace.GLOBAL:
            return self.parameters[a.slot], size, np.asarray(0)
        copy = self.lane if a.addrspace is AddrSpace.REG else self.block
        if a.addrspace is AddrSpace.CLUSTER:
            copy = self.block // self.cluster
        return garbage(a.dtype, size * (int(copy[-1]) + 1)), size, copy * size

    # ---- lanes
    def full(self, u: UOp) -> Array:
        """A value for every lane: shape (lanes,)."""
        return np.broadcast_to(self.values[u], self.lanes)

    def doing(self, gate: UOp | None = None) -> Array | None:
        """Which lanes do what is done now, those with a true gate only; None for all."""
        if gate is None:
            return self.active
        does = self.values[gate]
        return does if self.active is None else does & self.active

    def doers(self) -> Array:
        """The numbers of the active lanes, in order."""
        return self.lane if self.active is None else np.nonzero(self.active)[0]

    def warps(self, x: Array, fill: Array | int | bool) -> Array:
        """(lanes,) as (warps of all blocks, 32), where `fill` stands for threads that are none."""
        missing = -self.threads % WARP
        rows = np.asarray(x).reshape(self.blocks, self.threads)
        if missing:
            more = np.full((self.blocks, missing), fill, x.dtype)
            rows = np.concatenate((rows, more), axis=1)
        return rows.reshape(-1, WARP)

    def unwarps(self, x: Array) -> Array:
        """The inverse of `warps`."""
        return x.reshape(self.blocks, -1)[:, : self.threads].reshape(-1)

    def place(self) -> dict[str, Array]:
        """The ranges that have a value now, for messages."""
        return {range_name(r.arg): self.values[r] for r in (*self.open, *self.hardware)}

    def whole(self, u: UOp, size: int) -> Array:
        """The first lanes of all groups of `size` threads that are active; none may be partly so.

        Raises SpecError where some threads of a group are missing.
        """
        active = np.ones(self.lanes, bool) if self.active is None else self.active
        if self.threads % size:
            raise SpecError(
                f"{u.op} at {where_from(u)}: {size} threads do it together, "
                f"the block has {self.threads}"
            )
        rows = active.reshape(-1, size)
        part = rows.any(axis=1) & ~rows.all(axis=1)
        if part.any():
            first = int(np.argmax(part)) * size
            raise SpecError(
                f"{u.op} at {where_from(u)}: {size} threads do it together; of those from thread "
                f"{first % self.threads} of block {first // self.threads} on only "
                f"{int(rows[first // size].sum())} are here"
            )
        return np.nonzero(rows[:, 0])[0] * size

    # ---- memory
    def places(
        self, u: UOp, index: UOp, count: int = 1, gate: Array | None = None
    ) -> tuple[Array, Array]:
        """Flat elements, and those that each lane touches from an INDEX on.

        The last has shape () or (lanes,), for a count above 1 with a last axis of its elements.
        Raises OutOfBoundsError where a lane whose gate is true misses the memory.
        """
        elements, size, begin = self._extent(index)
        offset = self.values[index]
        check_bounds(u, offset, gate, size, self.place, index)
        where = begin + offset
        if count == 1:
            return elements, where
        check_bounds(u, offset + (count - 1), gate, size, self.place, index)
        return elements, where[..., None] + np.arange(count)

    def _extent(self, index: UOp) -> tuple[Array, int | Array, Array]:
        """The flat elements that an INDEX is in, of how many of them, and where those begin."""
        elements, size, begin = self.memories[memory(index)]
        of = segment(index)
        if of is None:
            return elements, size, begin
        which = self.values[of.src[1]]
        return elements, within(self.lengths[memory(index).arg.slot], which), which * of.shape[0]

    def read(self, u: UOp, index: UOp, count: int, gate: Array | None, other: Array) -> Array:
        """The elements; `other` where the gate is false."""
        elements, where = self.places(u, index, count, gate)
        if gate is None:
            return np.asarray(elements[where])
        if not elements.size:
            return other
        does = gate if count == 1 else gate[..., None]
        return np.where(does, np.asarray(elements[np.where(does, where, 0)]), other)

    def write(self, u: UOp, index: UOp, value: Array, count: int, gate: Array | None) -> None:
        """Write where the gate is true.  Raises ConflictError for unequal values in one place."""
        elements, where = self.places(u, index, count, gate)
        if gate is None:
            where, value = np.broadcast_arrays(where, value)
        else:
            does = gate if count == 1 else gate[..., None]
            where, value, does = np.broadcast_arrays(where, value, does)
            where, value = where[does], value[does]
        scatter(u, elements, where.reshape(-1), value.reshape(-1))

    def registers(self, u: UOp, index: UOp, count: int, lanes: Array) -> tuple[Array, Array]:
        """Elements of REG memory and (len(lanes), count): consecutive ones of these lanes."""
        gate = np.zeros(self.lanes, bool)
        gate[lanes] = True
        elements, where = self.places(u, index, count, gate)
        where = where if count > 1 else where[..., None]
        return elements, np.broadcast_to(where, (self.lanes, count))[lanes]


def bits_of(x: Array, dtype: DType) -> Array:
    """Elements as unsigned integers of their size."""
    return np.ascontiguousarray(x).view(f"u{dtype.itemsize}")

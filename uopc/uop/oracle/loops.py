"""Stage LOOPS: effects in their order, every thread of the grid as one lane of numpy vectors.

GLOBAL, LOCAL and THREAD ranges are lanes (the iterations of a THREAD loop are independent by
definition); the other ranges are Python loops.  All threads do each step together, so a missing
barrier does not show here: the checked emulator finds those.  A node stands in the innermost loop
among its free ranges and is computed once per iteration of it; nodes of one loop follow in
topological order.  Float work is done op by op in its dtype, as the kernel does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from uopc.dtype import AddrSpace
from uopc.errors import SpecError
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory, prod, toposort, where_from
from uopc.uop.numbers import Array, array_of, compute
from uopc.uop.ops import ELEMENTWISE, AxisType, Ops
from uopc.uop.oracle.access import (
    Given,
    bind,
    check_bounds,
    garbage,
    other_lane,
    range_values,
    scatter,
    shaped,
    stored_slots,
    thread_order,
)
from uopc.uop.records import range_name

_LANES = frozenset((AxisType.GLOBAL, AxisType.LOCAL, AxisType.THREAD))


@dataclass(eq=False)
class Loop:
    """A loop over `range` (None: the kernel itself) around its items, in order."""

    range: UOp | None
    items: list[Item] = field(default_factory=list)


Item: TypeAlias = "UOp | Loop"


def run_loops(sink: UOp, arrays: Given) -> dict[int, Array]:
    """`run` for LOOPS."""
    order = toposort(sink)
    slots = stored_slots(order)
    machine = _Machine(order, sink, bind(order, arrays, slots))
    with np.errstate(all="ignore"):
        machine.run(program(sink))
    return shaped(machine.parameters, arrays, order, slots)


# ---- the order
def program(sink: UOp) -> Loop:
    """The tree of a kernel's loops with the nodes that stand in each, in order.

    END(effect, r0, r1) opens r0 around r1, inside the innermost loop among its free ranges.  Each
    loop has one END and nothing outlives it (spec), so the free ranges of a node are nested: of two
    of them, the END that closes one has the other free.  Raises SpecError where that is not so.
    """
    order = toposort(sink)
    parent: dict[UOp, UOp | None] = {}
    depth: dict[UOp, int] = {}

    def innermost(u: UOp) -> UOp | None:
        return max((r for r in free(u) if r in depth), key=depth.__getitem__, default=None)

    for u in reversed(order):  # outer ENDs come first
        if u.op is Ops.END:
            outer = innermost(u)
            for r in _loops(u):
                if r in depth:
                    raise SpecError(f"END at {where_from(u)}: {range_name(r.arg)} is closed twice")
                parent[r], depth[r] = outer, 0 if outer is None else depth[outer] + 1
                outer = r
    if left := [r for r in free(sink) if r.arg.kind not in _LANES]:
        raise SpecError(
            f"SINK at {where_from(sink)}: {range_name(left[0].arg)} is used outside its END"
        )
    top = Loop(None)
    inside: dict[UOp | None, Loop] = {None: top, **{r: Loop(r) for r in parent}}
    for u in order:
        if u.op is Ops.END:
            for r in _loops(u):
                inside[parent[r]].items.append(inside[r])
        elif u.op in ELEMENTWISE or u.op in _STEPS:
            inside[innermost(u)].items.append(u)
    return top


def _loops(end: UOp) -> list[UOp]:
    return [r for r in end.src[1:] if r.arg.kind not in _LANES]


# ---- the threads
class _Machine:
    """Memories and values of all threads.  Lane = block * threads + linear thread of the block."""

    def __init__(self, order: list[UOp], sink: UOp, parameters: dict[int, Array]) -> None:
        self.parameters = parameters
        threads = thread_order(order, sink.arg)
        blocks = [
            r
            for kind in (AxisType.GLOBAL, AxisType.THREAD)
            for r in thread_order(order, None, kind)
        ]
        self.threads = prod(r.arg.size for r in threads)
        self.lanes = self.threads * prod(r.arg.size for r in blocks)
        self.lane = np.arange(self.lanes)
        self.values: dict[UOp, Array] = {}
        stride = 1
        for r in (*threads, *blocks):
            self.values[r] = range_values(r)[self.lane // stride % r.arg.size]
            stride *= r.arg.size
        self.hardware = (*threads, *blocks)
        self.open: list[UOp] = []
        #: memory -> (flat elements, elements of one copy, where each lane's copy begins)
        self.memories: dict[UOp, tuple[Array, int, Array]] = {}
        for u in order:
            if u.op in (Ops.BUFFER, Ops.ALLOC):
                self.memories[u] = self._memory(u)

    def _memory(self, u: UOp) -> tuple[Array, int, Array]:
        a, size = u.arg, prod(u.arg.shape)
        if a.addrspace is AddrSpace.GLOBAL:
            return self.parameters[a.slot], size, np.asarray(0)
        copy = self.lane if a.addrspace is AddrSpace.REG else self.lane // self.threads
        return garbage(a.dtype, size * (int(copy[-1]) + 1)), size, copy * size

    def run(self, top: Loop) -> None:
        """Run the items of each loop for each of its values, with a stack of our own."""
        stack: list[tuple[Loop, int, int]] = [(top, 0, 0)]  # loop, next item, iteration
        while stack:
            loop, i, k = stack.pop()
            if i == 0 and loop.range is not None:
                self.values[loop.range] = np.asarray(range_values(loop.range)[k])
                if k == 0:
                    self.open.append(loop.range)
            while i < len(loop.items):
                item = loop.items[i]
                i += 1
                if isinstance(item, Loop):
                    stack += [(loop, i, k), (item, 0, 0)]
                    break
                self.step(item)
            else:
                if loop.range is not None and k + 1 < loop.range.arg.size:
                    stack.append((loop, 0, k + 1))
                elif loop.range is not None:
                    self.open.pop()

    def step(self, u: UOp) -> None:
        if u.op in ELEMENTWISE:
            dtype = u.src[-1].dtype
            self.values[u] = compute(u.op, dtype, [self.values[s] for s in u.src], u.arg)
        else:
            _STEPS[u.op](self, u)

    def const(self, u: UOp) -> None:
        self.values[u] = array_of(u.arg).astype(u.dtype.numpy)

    def scalar(self, u: UOp) -> None:
        if u.shape == ():
            self.values[u] = self.parameters[u.arg.slot].reshape(())

    def index(self, u: UOp) -> None:
        self.values[u] = self.values[u.src[1]]

    def after(self, u: UOp) -> None:
        if u.src[0] in self.values:  # a version of a value; those of memories have none
            self.values[u] = self.values[u.src[0]]

    def shuffle(self, u: UOp) -> None:
        x = np.broadcast_to(self.values[u.src[0]], self.lanes)
        self.values[u] = x[
            self.lane // self.threads * self.threads
            + other_lane(u, self.threads)[self.lane % self.threads]
        ]

    def load(self, u: UOp) -> None:
        elements, where, gate = self._access(u, u.src[1] if len(u.src) == 3 else None)
        if gate is None:
            self.values[u] = np.asarray(elements[where])
        elif elements.size:
            read = np.asarray(elements[np.where(gate, where, 0)])
            self.values[u] = np.where(gate, read, self.values[u.src[2]])
        else:
            self.values[u] = self.values[u.src[2]]

    def store(self, u: UOp) -> None:
        elements, where, gate = self._access(u, u.src[2] if len(u.src) == 3 else None)
        value = self.values[u.src[1]]
        if gate is None:
            where, value = np.broadcast_arrays(where, value)
        else:
            where, value, gate = np.broadcast_arrays(where, value, gate)
            where, value = where[gate], value[gate]
        scatter(u, elements, where.reshape(-1), value.reshape(-1))

    def place(self) -> dict[str, Array]:
        """The ranges that have a value now, for messages."""
        return {range_name(r.arg): self.values[r] for r in (*self.open, *self.hardware)}

    def _access(self, u: UOp, gate: UOp | None) -> tuple[Array, Array, Array | None]:
        """Flat elements, those that each lane touches, whether it does.

        The last two have shape () or (lanes,), of a wide access with a last axis of its elements.
        """
        elements, size, begin = self.memories[memory(u.src[0])]
        offset = self.values[u.src[0]]
        does = None if gate is None else self.values[gate]
        check_bounds(u, offset, does, size, self.place)
        where = begin + offset
        if u.arg is None:
            return elements, where, does
        check_bounds(u, offset + (u.arg.width - 1), does, size, self.place)
        one_more = None if does is None else does[..., None]
        return elements, where[..., None] + np.arange(u.arg.width), one_more


_STEPS: dict[Ops, Callable[[_Machine, UOp], None]] = {
    Ops.CONST: _Machine.const,
    Ops.BUFFER: _Machine.scalar,
    Ops.INDEX: _Machine.index,
    Ops.AFTER: _Machine.after,
    Ops.SHUFFLE: _Machine.shuffle,
    Ops.LOAD: _Machine.load,
    Ops.STORE: _Machine.store,
}

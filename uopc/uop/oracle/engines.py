"""Asynchronous copies, done at once, and mbarriers: phases, arrivals and bytes to come.

Groups and fences order nothing here: whether they are right is the checked emulator's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uopc import layouts
from uopc.errors import SpecError
from uopc.uop.node import UOp, memory, prod, where_from
from uopc.uop.numbers import Array
from uopc.uop.ops import CopyArg, Engine, Ops, TensorMapArg
from uopc.uop.oracle.access import check_bounds
from uopc.uop.oracle.machine import Machine
from uopc.uop.text import index_text


# ---- mbarriers
@dataclass
class Mbarrier:
    """One mbarrier: completed phases, arrivals that a phase wants and still wants, bytes to come.

    The phase ends when no arrival and no byte is missing (PTX ISA, mbarrier, phase completion).
    """

    wanted: int
    missing: int
    bytes: int = 0
    phase: int = 0

    def settle(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.phase += 1
            self.missing = self.wanted


class Mbarriers:
    """Those of all blocks, by memory and flat element."""

    def __init__(self) -> None:
        self.all: dict[tuple[UOp, int], Mbarrier] = {}

    def _touched(self, m: Machine, u: UOp, index: UOp) -> list[tuple[int, int]]:
        """(lane, flat element) of each active lane."""
        _, places = m.places(u, index, 1, m.active)
        where = np.broadcast_to(places, m.lanes)
        return [(int(lane), int(where[lane])) for lane in m.doers()]

    def at(self, u: UOp, index: UOp, place: int) -> Mbarrier:
        found = self.all.get((memory(index), place))
        if found is None:
            raise SpecError(
                f"{u.op} at {where_from(u)}: {index_text(index, 60)} was not initialised"
            )
        return found

    def init(self, m: Machine, u: UOp) -> None:
        count = m.full(u.src[1])
        for lane, place in self._touched(m, u, u.src[0]):
            self.all[memory(u.src[0]), place] = Mbarrier(int(count[lane]), int(count[lane]))

    def arrive(self, m: Machine, u: UOp) -> None:
        more = m.full(u.src[1]) if len(u.src) == 2 else np.zeros(m.lanes, np.int64)
        for lane, place in self._touched(m, u, u.src[0]):
            barrier = self.at(u, u.src[0], place)
            barrier.bytes += int(more[lane])
            barrier.missing -= 1
            barrier.settle()

    def waits(self, m: Machine, u: UOp) -> Callable[[], bool]:
        """May every active lane go on?  The phase under way has the parity phase % 2."""
        parity = m.full(u.src[1])
        asked = {
            (place, int(parity[lane])): self.at(u, u.src[0], place)
            for lane, place in self._touched(m, u, u.src[0])
        }
        return lambda: all(b.phase % 2 != wanted for (_, wanted), b in asked.items())


# ---- copies
def copy(m: Machine, u: UOp, mbarriers: Mbarriers) -> None:
    a: CopyArg = u.arg
    if a.engine is Engine.CP_ASYNC:
        _cp_async(m, u, a)
        return
    if a.engine is Engine.CLUSTER:
        _send(m, u, mbarriers)
        return
    loads = u.src[1].op is Ops.TENSORMAP
    tile, tensor_map = (u.src[0], u.src[1]) if loads else (u.src[1], u.src[0])
    coordinates = [m.full(c) for c in u.src[3 if loads else 2 :]]
    lanes = m.doers()
    asked, times = np.unique(m.thread[lanes] // 32 + m.block[lanes] * m.threads, return_counts=True)
    if (times > 1).any():
        raise SpecError(
            f"COPY at {where_from(u)}: {times.max()} lanes of warp "
            f"{int(asked[np.argmax(times)]) % m.threads} ask for one bulk copy. Guard it: one asks"
        )
    for lane in lanes:
        corner = [int(c[lane]) for c in coordinates]
        inside, shared = _tile(m, u, tile, tensor_map, int(lane))
        given, at = _box(m, tensor_map, corner)
        if loads:
            elements = m.memories[memory(tensor_map.src[0])][0]
            inside[shared] = np.where(given, elements[np.where(given, at, 0)], inside.dtype.type(0))
            _, places = m.places(u, u.src[2], 1, m.active)
            barrier = mbarriers.at(u, u.src[2], int(np.broadcast_to(places, m.lanes)[lane]))
            barrier.bytes -= given.size * inside.itemsize
            barrier.settle()
        else:
            m.memories[memory(tensor_map.src[0])][0][at[given]] = inside[shared[given]]


def _send(m: Machine, u: UOp, mbarriers: Mbarriers) -> None:
    """A value to the block that holds the element, whose mbarrier counts its bytes."""
    to, value, counts = u.src[:3]
    gate = m.doing(u.src[3]) if len(u.src) == 4 else m.active
    m.write(u, to, m.values[value], 1, gate)
    part = memory(to).arg.shape[1]
    owners = np.broadcast_to(m.values[to], m.lanes) // part
    own = np.broadcast_to(m.places(u, counts, 1, gate)[1], m.lanes)
    step = prod(memory(counts).arg.shape)
    elsewhere = own + (owners - m.block % m.cluster) * step
    lanes = m.lane if gate is None else np.nonzero(np.broadcast_to(gate, m.lanes))[0]
    for lane in lanes:
        barrier = mbarriers.at(u, counts, int(elsewhere[lane]))
        barrier.bytes -= to.dtype.itemsize
        barrier.settle()


def _cp_async(m: Machine, u: UOp, a: CopyArg) -> None:
    gate = m.doing(u.src[2]) if len(u.src) == 3 else m.active
    zero = np.zeros((), u.src[0].dtype.numpy)
    m.write(u, u.src[0], m.read(u, u.src[1], a.width, gate, zero), a.width, m.active)


def _tile(m: Machine, u: UOp, tile: UOp, tensor_map: UOp, lane: int) -> tuple[Array, Array]:
    """Elements of the SHARED memory, and where the box's elements lie in them, in the box's order.

    The swizzle is of addresses in the block.
    """
    view: TensorMapArg = tensor_map.arg
    elements, size, begin = m.memories[memory(tile)]
    size_bytes = tile.dtype.itemsize
    first = int(m.full(tile)[lane])
    address = m.addresses[memory(tile)] // size_bytes
    if (address + first) * size_bytes % layouts.TMA_SHARED_ALIGNMENT:
        raise SpecError(
            f"COPY at {where_from(u)}: the tile begins {first * size_bytes} bytes into its memory; "
            f"bulk copies want a multiple of {layouts.TMA_SHARED_ALIGNMENT}"
        )
    linear = address + first + np.arange(prod(view.box))
    offsets = np.asarray(layouts.swizzle(linear, view.swizzle, size_bytes)) - address
    check_bounds(u, offsets, None, size, dict, tile)
    return elements, int(begin[lane]) + offsets


def _box(m: Machine, tensor_map: UOp, corner: list[int]) -> tuple[Array, Array]:
    """Which elements of the box lie inside the map, and the flat elements of the parameter."""
    view: TensorMapArg = tensor_map.arg
    inside, at = np.ones((), bool), np.zeros((), np.int64)
    for axis, (start, width, size) in enumerate(zip(corner, view.box, view.shape, strict=True)):
        along = start + np.arange(width)
        along = along.reshape([-1 if n == axis else 1 for n in range(len(view.box))])
        inside = inside & (along >= 0) & (along < size)
        at = at + along * (*view.strides, 1)[axis]
    return np.broadcast_to(inside, view.box).reshape(-1), at.reshape(-1)

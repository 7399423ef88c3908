"""What checks keep of each memory of a kernel, found on its tree before any text exists.

A *granule* is the narrowest access to a memory in the whole kernel: accesses are aligned and
checked, so none crosses one, and one stamp a granule is exact.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from uopc.dtype import AddrSpace
from uopc.kernel import Axis, Declare, ProgramTree
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.numbers import Array, array_of, compute
from uopc.uop.ops import ELEMENTWISE, Engine, Ops

WARP = 32
GROUP = 4  # warps of a warpgroup
WIDEST_GRANULE = 16


@dataclass
class Shadow:
    """What is known of one memory.

    granule in bytes; readers: stamps of readers a granule, of which wgmma's and bulk stores' begin
    at wgmma_reader and bulk_reader; written and read by the kernel; atomic: by ATOMICs.
    """

    memory: UOp
    granule: int = WIDEST_GRANULE
    written: bool = False
    read: bool = False
    atomic: bool = False
    by_lanes: bool = False
    by_wgmma: bool = False
    by_bulk: bool = False

    @property
    def item_bytes(self) -> int:
        return self.memory.dtype.itemsize

    @property
    def size_bytes(self) -> int:
        return prod(self.memory.arg.shape) * self.item_bytes

    @property
    def shift(self) -> int:
        return self.granule.bit_length() - 1

    @property
    def one_by_one(self) -> bool:
        """Are its accesses kept one by one?"""
        if self.memory.arg.addrspace is AddrSpace.GLOBAL:
            return self.written and (self.read or self.atomic)
        return self.atomic

    def touch(self, width_bytes: int, write: bool = False) -> None:
        power = width_bytes & -width_bytes
        self.granule = min(self.granule, power)
        if write:
            self.written = True
        else:
            self.read = True

    def readers(self, warps: int) -> tuple[int, int, int]:
        """(stamps, first of wgmma, first of bulk stores); warps of all blocks that run together."""
        of_blocks = (AddrSpace.SHARED, AddrSpace.CLUSTER)
        if self.one_by_one or self.memory.arg.addrspace not in of_blocks:
            return 0, 0, 0
        lanes = warps if self.by_lanes else 0
        wgmma = -(-warps // GROUP) if self.by_wgmma else 0
        bulk = warps if self.by_bulk else 0
        return lanes + wgmma + bulk, lanes, lanes + wgmma


def shadows(program: ProgramTree, calm: Collection[UOp] = ()) -> dict[UOp, Shadow]:
    """By memory: BUFFERs in slot order, then ALLOCs in the order of their declarations.

    calm: LOADs that leave no stamp.
    """
    order = toposort(program.sink)
    buffers = sorted((u for u in order if u.op is Ops.BUFFER), key=lambda u: u.arg.slot)
    allocs = [item.alloc for item in program.walk() if isinstance(item, Declare)]
    found = {m: Shadow(m) for m in (*buffers, *allocs)}
    for u in order:
        _touch(u, found, u in calm)
    for m, shadow in found.items():
        if m.arg.shape == () or not (shadow.written or shadow.read):
            shadow.granule = min(WIDEST_GRANULE, shadow.item_bytes)
    return found


def _touch(u: UOp, found: dict[UOp, Shadow], is_calm: bool) -> None:
    """Enter the accesses of one node."""
    if u.op is Ops.LOAD:
        at = found[memory(u.src[0])]
        at.touch(_width(u), write=False)
        at.by_lanes |= not is_calm
    elif u.op is Ops.STORE:
        found[memory(u.src[0])].touch(_width(u), write=True)
    elif u.op is Ops.ATOMIC:
        at = found[memory(u.src[0])]
        at.touch(u.src[0].dtype.itemsize, write=True)
        at.read = at.atomic = True
    elif u.op is Ops.COPY and u.arg.engine is Engine.CP_ASYNC:
        width = u.arg.width * u.src[0].dtype.itemsize
        found[memory(u.src[0])].touch(width, write=True)
        found[memory(u.src[1])].touch(width, write=False)
    elif u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER:
        found[memory(u.src[0])].touch(u.src[0].dtype.itemsize, write=True)
    elif u.op is Ops.COPY:
        loads = u.src[1].op is Ops.TENSORMAP
        tensor_map, tile = (u.src[1], u.src[0]) if loads else (u.src[0], u.src[1])
        found[memory(tensor_map.src[0])].touch(tensor_map.dtype.itemsize, write=not loads)
        at = found[memory(tile)]
        at.touch(WIDEST_GRANULE, write=loads)
        at.by_bulk |= not loads
    elif u.op is Ops.LDMATRIX or u.op is Ops.STMATRIX:
        to_registers = u.op is Ops.LDMATRIX
        at = found[memory(u.src[1] if to_registers else u.src[0])]
        at.touch(WIDEST_GRANULE, write=not to_registers)
        at.by_lanes |= to_registers
    elif u.op is Ops.DESCRIPTOR:
        at = found[memory(u.src[0])]
        at.touch(WIDEST_GRANULE, write=False)
        at.by_wgmma = True


def _width(u: UOp) -> int:
    return (1 if u.arg is None else int(u.arg.width)) * u.src[0].dtype.itemsize


# ---- lanes that a condition lets through
def lanes_inside(condition: UOp, axes: Sequence[Axis], threads: int) -> list[set[int]] | None:
    """For each warp, the lanes for which a condition may hold; None where data decides it."""
    thread = np.arange(threads)
    known: dict[UOp, Array] = {a.range: thread // _stride(axes, a) % a.range.arg.size for a in axes}
    for u in toposort(condition):
        if u in known:
            continue
        if u.op is Ops.CONST:
            known[u] = array_of(u.arg)
        elif u.op in ELEMENTWISE and all(s in known for s in u.src):
            known[u] = compute(u.op, u.src[-1].dtype, [known[s] for s in u.src], u.arg)
    if condition not in known:
        return None
    holds = np.broadcast_to(known[condition], (threads,))
    return [
        {int(t) % WARP for t in np.flatnonzero(holds) if t // WARP == w}
        for w in range(-(-threads // WARP))
    ]


def _stride(axes: Sequence[Axis], of: Axis) -> int:
    """Threads from one value of an axis to the next: the first axis is the fastest."""
    stride = 1
    for a in axes:
        if a is of:
            return stride
        stride *= a.range.arg.size
    raise AssertionError(of)


__all__ = ["Shadow", "lanes_inside", "shadows"]

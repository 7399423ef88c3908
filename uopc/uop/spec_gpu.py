"""Rules of the ops that only GPUs have: warps, atomics, asynchronous copies, tensor cores.

One function an op, as in `uopc/uop/spec.py`, which holds graphs against them.  They say what can be
seen at one node; rules for a whole kernel stand in `uopc/uop/spec_kernel.py`; addresses that depend
on data, and the order of threads, are the checked emulator's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from uopc import layouts
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.uop.facts import bounds
from uopc.uop.infer import described
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.numbers import Array, array_of, elementwise
from uopc.uop.ops import (
    ALL_LANES,
    ELEMENTWISE,
    OF_CLUSTERS,
    BarrierArg,
    BarrierScope,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    MatrixArg,
    Ops,
    RangeArg,
    RoleArg,
    ShuffleArg,
    ShuffleMode,
    TensorMapArg,
    WaitArg,
)
from uopc.uop.stages import Part, Stage

if TYPE_CHECKING:
    from uopc.uop.spec import _Graph

WARP = 32
COPY_BYTES = (4, 8, 16)  # of cp.async (PTX ISA, cp.async)
SENT_BYTES = (4, 8)  # of st.async (PTX ISA, st.async)
NAMED_BARRIERS = (1, 15)  # 0 is the block's own (PTX ISA, bar.sync: 16 barriers)
MBARRIER_COUNT = (1, (1 << 20) - 1)  # PTX ISA, mbarrier.init: count
MBARRIER_BYTES = (0, (1 << 20) - 1)  # PTX ISA, mbarrier: valid range of tx-count
REGISTERS = (24, 256)  # PTX ISA, setmaxnreg


def _space(u: UOp) -> AddrSpace:
    space: AddrSpace = memory(u).arg.addrspace
    return space


def _is_index(u: UOp, *spaces: AddrSpace) -> bool:
    return u.op is Ops.INDEX and _space(u) in spaces


def _outside(u: UOp, limits: tuple[int, int]) -> bool:
    """Is a value surely, for some thread and iteration, beyond the limits?"""
    lowest, highest = bounds(u)
    if u.op in (Ops.CONST, Ops.RANGE):
        return lowest < limits[0] or highest > limits[1]
    return lowest > limits[1] or highest < limits[0]


# ---- warps
def _members(mask: int) -> str | None:
    if 0 < mask <= ALL_LANES:
        return None
    return f"members has a bit for each of 32 lanes and at least one, {mask:#x} has not"


def _shuffle(u: UOp, graph: _Graph) -> str | None:
    a: ShuffleArg = u.arg
    if graph.stage is not Stage.LOOPS and a.members != ALL_LANES:
        return f"before LOOPS all lanes exchange; these are {a.members:#x}"
    if a.mode is ShuffleMode.INDEX:
        if a.by:
            return f"INDEX takes its lane from source 1: by is 0, not {a.by}"
    elif not 1 <= a.by < WARP:
        return f"{a.mode} goes 1 to 31 lanes away, not {a.by}"
    return _members(a.members)


def _with_members(u: UOp, graph: _Graph) -> str | None:
    return _members(u.arg.members)


def _barrier(u: UOp, graph: _Graph) -> str | None:
    a: BarrierArg = u.arg or BarrierArg()
    if not u.src and a.scope not in OF_CLUSTERS:
        return "it comes after at least one effect or opened scope; only blocks meet as they start"
    if a.scope is not BarrierScope.NAMED:
        if u.src and graph.part[u.src[0]] is Part.VALUE:
            return f"it comes after effects and opened scopes, source 0 is a value ({u.src[0].op})"
        return _members(a.members) if a.scope is BarrierScope.WARP else None
    number = u.src[0]
    if number.dtype is not dtypes.index:
        return f"a NAMED barrier has its number (index) as source 0, this is {number.op}"
    if _outside(number, NAMED_BARRIERS):
        return f"named barriers are 1 to 15, this is {_range_of(number)}; 0 is the block's"
    if a.threads < WARP or a.threads % WARP:
        return f"a NAMED barrier waits for whole warps, {a.threads} threads are none"
    return None


def _range_of(u: UOp) -> str:
    lowest, highest = bounds(u)
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def _role(u: UOp, graph: _Graph) -> str | None:
    a: RoleArg = u.arg
    if a.first < 0 or a.warps < 1:
        return f"a role has at least one warp, these are {a.warps} from {a.first}"
    if not a.registers:
        return "it grows to no number of registers: give registers too" if a.grow else None
    if a.first % 4 or a.warps % 4:
        return f"setmaxnreg is for whole warpgroups, not for {a.warps} warps from {a.first}"
    if a.registers % 8 or not REGISTERS[0] <= a.registers <= REGISTERS[1]:
        return f"setmaxnreg takes multiples of 8 from 24 to 256 registers, not {a.registers}"
    return None


# ---- memory
def _atomic(u: UOp, graph: _Graph) -> str | None:
    space = _space(u.src[0])
    if space in (AddrSpace.GLOBAL, AddrSpace.SHARED):
        return None
    return f"atomics are for GLOBAL and SHARED memory, not for {space.name}"


def not_memory(u: UOp) -> str | None:
    """LOAD, STORE: mbarriers are objects of their own."""
    if _space(u.src[0]) is AddrSpace.MBARRIER:
        return "an mbarrier is no memory to read or write: use MBAR_INIT, ARRIVE, WAIT"
    return None


def _tensor_map(u: UOp, graph: _Graph) -> str | None:
    a: TensorMapArg = u.arg
    if _space(u.src[0]) is not AddrSpace.GLOBAL:
        return "a tensor map views a parameter (GLOBAL)"
    if len(a.strides) != len(a.shape) - 1 or len(a.box) != len(a.shape):
        return f"shape {a.shape} wants {len(a.shape) - 1} strides and a box of {len(a.shape)} sizes"
    size = u.src[0].dtype.itemsize
    if fault := layouts.tma_fault(a.shape, a.strides, a.box, size, a.swizzle):
        return fault
    last = sum((n - 1) * stride for n, stride in zip(a.shape, (*a.strides, 1), strict=True))
    has = prod(memory(u.src[0]).arg.shape)
    if last >= has:
        return f"its last element is number {last} of the parameter, which has {has}"
    return None


def _copy(u: UOp, graph: _Graph) -> str | None:
    a: CopyArg = u.arg
    if a.engine is Engine.CP_ASYNC:
        return _cp_async(u, a)
    if a.engine is Engine.BULK:
        return _bulk_load(u, a) if u.src[1].op is Ops.TENSORMAP else _bulk_store(u, a)
    if a.engine is Engine.CLUSTER:
        return _send(u, a)
    return f"copies are CP_ASYNC, BULK or CLUSTER, not {a.engine}"


def _send(u: UOp, a: CopyArg) -> str | None:
    """st.async: a value to a block of the cluster."""
    to, value, *rest = u.src
    if not _is_index(to, AddrSpace.CLUSTER) or value.op in (Ops.INDEX, Ops.TENSORMAP):
        return "a CLUSTER copy sends a value into CLUSTER memory"
    if to.dtype is not value.dtype or a.width != 1 or to.dtype.itemsize not in SENT_BYTES:
        return f"it sends one value of 4 or 8 bytes, not {value.dtype} into {to.dtype}"
    if not rest or not _is_index(rest[0], AddrSpace.MBARRIER):
        return "its bytes count at an mbarrier: source 2"
    if len(rest) > 2 or (len(rest) == 2 and rest[1].dtype is not dtypes.bool):
        return "after its mbarrier stands at most a gate (bool)"
    return None


def _cp_async(u: UOp, a: CopyArg) -> str | None:
    to, source, *rest = u.src
    if not (_is_index(to, AddrSpace.SHARED) and _is_index(source, AddrSpace.GLOBAL)):
        return "cp.async copies from GLOBAL to SHARED memory"
    if to.dtype is not source.dtype:
        return f"it copies {source.dtype} into memory of {to.dtype}"
    if a.width * to.dtype.itemsize not in COPY_BYTES:
        return f"{a.width} elements of {to.dtype}: cp.async copies 4, 8 or 16 bytes"
    if len(rest) > 1 or (rest and rest[0].dtype is not dtypes.bool):
        return "after its two places stands at most a gate (bool)"
    return None


def _bulk_load(u: UOp, a: CopyArg) -> str | None:
    tile, tensor_map, *rest = u.src
    if not rest or not _is_index(rest[0], AddrSpace.MBARRIER):
        return "a BULK copy into SHARED memory counts its bytes at an mbarrier: source 2"
    return _bulk(tensor_map, tile, rest[1:], a)


def _bulk_store(u: UOp, a: CopyArg) -> str | None:
    tensor_map, tile, *coordinates = u.src
    return _bulk(tensor_map, tile, coordinates, a)


def _bulk(tensor_map: UOp, tile: UOp, coordinates: list[UOp], a: CopyArg) -> str | None:
    if tensor_map.op is not Ops.TENSORMAP or not _is_index(tile, AddrSpace.SHARED):
        return "a BULK copy is between a TENSORMAP and SHARED memory"
    if a.width != 1:
        return f"a BULK copy moves the box of its map: width is 1, not {a.width}"
    view: TensorMapArg = tensor_map.arg
    if len(coordinates) != len(view.shape) or any(c.dtype is not dtypes.index for c in coordinates):
        return f"it wants {len(view.shape)} coordinates (index), got {len(coordinates)}"
    if tile.dtype is not tensor_map.dtype:
        return f"the tile is {tile.dtype}, the map {tensor_map.dtype}"
    size, inner = tile.dtype.itemsize, coordinates[-1]
    if inner.op is Ops.CONST and inner.arg.bits * size % layouts.TMA_GRANULE:
        return (
            f"the innermost coordinate is {inner.arg.bits * size} bytes into a row; copies start "
            f"at multiples of {layouts.TMA_GRANULE}"
        )
    at, has = bounds(tile.src[1])[0], prod(memory(tile).arg.shape)
    if at + prod(view.box) > has:
        return f"the box has {prod(view.box)} elements, the memory {has}, from {max(at, 0)} on"
    return None


# ---- asynchronous work
def _committed(u: UOp, graph: _Graph) -> str | None:
    return _covers(u, graph, u.arg is Engine.WGMMA)


def _wait_group(u: UOp, graph: _Graph) -> str | None:
    a: WaitArg = u.arg
    if a.pending < 0:
        return f"at most so many groups are pending: 0 or more, not {a.pending}"
    if a.read and a.engine is not Engine.BULK:
        return f"read is for BULK stores, which only have to have read; not for {a.engine}"
    return _covers(u, graph, a.engine is Engine.WGMMA)


def _fence(u: UOp, graph: _Graph) -> str | None:
    return _covers(u, graph, u.arg is Fence.WGMMA)


def _covers(u: UOp, graph: _Graph, registers: bool) -> str | None:
    """Memories as sources: the accumulators of WGMMA."""
    for s in u.src:
        if graph.part[s] is Part.MEMORY and not (registers and _space(s) is AddrSpace.REG):
            return f"it names memory of {_space(s).name}: only what is for WGMMA names accumulators"
    return None


def _mbarrier(u: UOp, graph: _Graph) -> str | None:
    if not _is_index(u.src[0], AddrSpace.MBARRIER):
        return "its first source is the INDEX of an mbarrier (an ALLOC in MBARRIER)"
    what, limits = _MBARRIER[u.op]
    for s in u.src[1:]:
        if not s.dtype.is_int:
            return f"{what} is an integer, got {s.dtype}"
        if _outside(s, limits):
            return f"{what} is {limits[0]} to {limits[1]}, this is {_range_of(s)}"
    return None


_MBARRIER = {
    Ops.MBAR_INIT: ("the count of arrivals", MBARRIER_COUNT),
    Ops.ARRIVE: ("the number of bytes", MBARRIER_BYTES),
    Ops.WAIT: ("the parity", (0, 1)),
}


# ---- tensor cores
def _matrix(u: UOp, graph: _Graph) -> str | None:
    a: MatrixArg = u.arg
    registers, tile = u.src if u.op is Ops.LDMATRIX else u.src[::-1]
    if a.tiles not in (1, 2, 4):
        return f"it moves 1, 2 or 4 tiles, not {a.tiles}"
    if not _is_index(tile, AddrSpace.SHARED) or tile.dtype.itemsize not in (1, 2, 4):
        return "tiles are rows of 16 bytes in SHARED memory, of elements of 8, 16 or 32 bits"
    if a.transposed and tile.dtype.itemsize != 2:
        return f"tiles of {tile.dtype} are not transposed: only 16-bit elements are"
    return _registers(registers, "its fragment", dtypes.u32, a.tiles)


def _registers(u: UOp, what: str, dtype: DType, count: int) -> str | None:
    """`count` consecutive registers of dtype, from an INDEX on."""
    wants = f"{what} is {count} registers of {dtype}"
    if not _is_index(u, AddrSpace.REG):
        return f"{wants}, from an INDEX of REG memory on; got {u.op}"
    if u.dtype is not dtype:
        packed = " (several elements in each)" if dtype is dtypes.u32 else ""
        return f"{wants}{packed}; the memory is {u.dtype}"
    offsets, has = _every_offset(u.src[1]), prod(memory(u).arg.shape)
    if offsets is None or (offsets.min() >= 0 and offsets.max() + count <= has):
        return None
    at = offsets.min() if offsets.min() < 0 else offsets.max()
    return f"{wants}, and from {at} on the memory, of {has}, has not so many"


def _every_offset(offset: UOp, most: int = 1 << 16) -> Array | None:
    """All values of a sum of UPCAST ranges and constants; None where it is something else."""
    order = toposort(offset)
    ranges = [u for u in order if u.op is Ops.RANGE]
    known = ELEMENTWISE | {Ops.RANGE, Ops.CONST}
    if prod(r.arg.size for r in ranges) > most or any(u.op not in known for u in order):
        return None
    values: dict[UOp, Array] = {}
    for u in order:
        if u.op is Ops.CONST:
            values[u] = array_of(u.arg).astype(u.dtype.numpy)
        elif u.op is Ops.RANGE:
            a: RangeArg = u.arg
            place = [-1 if r is u else 1 for r in ranges]
            values[u] = (a.start + a.step * np.arange(a.size)).reshape(place)
        else:
            values[u] = elementwise(u.op, u.src[-1].dtype, [values[s] for s in u.src], u.arg)
    return values[offset]


def _descriptor(u: UOp, graph: _Graph) -> str | None:
    a: DescriptorArg = u.arg
    if not _is_index(u.src[0], AddrSpace.SHARED):
        return "it describes SHARED memory"
    return layouts.Descriptor(0, a.leading, a.stride, a.swizzle).fault() or None


def _mma(u: UOp, graph: _Graph) -> str | None:
    atom = layouts.ATOMS.get(u.arg)
    if atom is None:
        return f"there is no atom {u.arg!r}; they are the keys of uopc.layouts.ATOMS"
    for name, operand, at in (("a", atom.a, u.src[1]), ("b", atom.b, u.src[2])):
        if why := _operand(f"operand {name} of {u.arg}", operand, at):
            return why
    if len(u.src) == 4:
        if not atom.has_predicate:
            return f"{u.arg} always adds to its accumulator: only wgmma takes keep"
        if u.src[3].dtype is not dtypes.bool:
            return f"keep is bool, got {u.src[3].dtype}"
    of = atom.accumulator
    dtype = dtypes.u32 if of.packing > 1 else of.dtype
    return _registers(u.src[0], f"the accumulator of {u.arg}", dtype, of.registers)


def _operand(what: str, operand: layouts.Operand, at: UOp) -> str | None:
    if operand.fragment is not None:
        dtype = dtypes.f64 if operand.type == "f64" else dtypes.u32
        return _registers(at, what, dtype, operand.registers)
    if at.op is Ops.INDEX or at.dtype is not dtypes.u64:
        return f"{what} is a DESCRIPTOR (u64) of SHARED memory, got {at.op} of {at.dtype}"
    descriptor = described(at)
    if descriptor is None:
        return f"{what} is made from one DESCRIPTOR by adding to it, got {at.op}"
    if descriptor.src[0].dtype is not operand.dtype:
        return f"{what} is {operand.dtype}, the memory described {descriptor.src[0].dtype}"
    if descriptor.arg.transposed and layouts.MN_MAJOR not in operand.majors:
        return f"{what}, {operand.type}, cannot be transposed in SHARED memory: 16-bit types can"
    return None


# ---- for people
def _printf(u: UOp, graph: _Graph) -> str | None:
    text: str = u.arg.format
    shown = u.src[: text.count("{}")]
    if "{" in text.replace("{}", "") or "}" in text.replace("{}", ""):
        return f"{text!r} has a brace that is no {{}}: that is all its formats"
    late = next((s for s in u.src[len(shown) :] if graph.part[s] is Part.VALUE), None)
    return None if late is None else f"{text!r} shows {len(shown)} values, {late.op} is one more"


GPU_RULES: dict[Ops, Callable[[UOp, Any], str | None]] = {
    Ops.SHUFFLE: _shuffle,
    Ops.VOTE: _with_members,
    Ops.WARP_REDUCE: _with_members,
    Ops.ATOMIC: _atomic,
    Ops.BARRIER: _barrier,
    Ops.ROLE: _role,
    Ops.TENSORMAP: _tensor_map,
    Ops.COPY: _copy,
    Ops.COMMIT: _committed,
    Ops.WAITG: _wait_group,
    Ops.FENCE: _fence,
    Ops.MBAR_INIT: _mbarrier,
    Ops.ARRIVE: _mbarrier,
    Ops.WAIT: _mbarrier,
    Ops.LDMATRIX: _matrix,
    Ops.STMATRIX: _matrix,
    Ops.DESCRIPTOR: _descriptor,
    Ops.MMA: _mma,
    Ops.PRINTF: _printf,
}

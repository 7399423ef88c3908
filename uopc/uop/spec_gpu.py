"""Rules of the ops that only GPUs have: warps, atomics, asynchronous copies, tensor cores.

One function an op, as in `uopc/uop/spec.py`, which holds graphs against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uopc import layouts
from uopc.dtype import AddrSpace, dtypes
from uopc.uop.node import UOp, memory
from uopc.uop.ops import (
    ALL_LANES,
    BarrierArg,
    BarrierScope,
    CopyArg,
    Engine,
    Fence,
    MatrixArg,
    Ops,
    RoleArg,
    ShuffleArg,
    ShuffleMode,
    TensorMapArg,
    WaitArg,
)

if TYPE_CHECKING:
    from uopc.uop.spec import _Graph

WARP = 32
COPY_BYTES = (4, 8, 16)  # of cp.async (PTX ISA, cp.async)


def _space(u: UOp) -> AddrSpace:
    space: AddrSpace = memory(u).arg.addrspace
    return space


def _is_index(u: UOp, *spaces: AddrSpace) -> bool:
    return u.op is Ops.INDEX and _space(u) in spaces


def _members(mask: int) -> str | None:
    if 0 < mask <= ALL_LANES:
        return None
    return f"members has a bit for each of 32 lanes and at least one, {mask:#x} has not"


def _shuffle(u: UOp, graph: _Graph) -> str | None:
    a: ShuffleArg = u.arg
    lowest = 0 if a.mode is ShuffleMode.INDEX else 1
    if not lowest <= a.by < WARP or (a.mode is ShuffleMode.INDEX and a.by):
        return f"lanes are 0 to 31: {a.mode} by {a.by} is no other lane"
    return _members(a.members)


def _with_members(u: UOp, graph: _Graph) -> str | None:
    return _members(u.arg.members)


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


def _barrier(u: UOp, graph: _Graph) -> str | None:
    a: BarrierArg = u.arg or BarrierArg()
    named = a.scope is BarrierScope.NAMED
    if named != (bool(u.src) and u.src[0].dtype is dtypes.index and not _is_done(u.src[0], a)):
        return "a NAMED barrier has its number (index) as first source, the others have none"
    if named and (a.threads < WARP or a.threads % WARP):
        return f"a NAMED barrier waits for whole warps, {a.threads} threads are none"
    if a.scope is BarrierScope.WARP:
        return _members(a.members)
    return None


def _is_done(u: UOp, a: BarrierArg) -> bool:
    """A RANGE as first source is a scope to be inside of, but for a NAMED barrier, its number."""
    return u.op is Ops.RANGE and a.scope is not BarrierScope.NAMED


def _role(u: UOp, graph: _Graph) -> str | None:
    a: RoleArg = u.arg
    if a.first < 0 or a.warps < 1:
        return f"a role has at least one warp, these are {a.warps} from {a.first}"
    if a.registers and (a.first % 4 or a.warps % 4 or a.registers % 8 or a.registers > 256):
        return (
            f"setmaxnreg is for whole warpgroups and multiples of 8 up to 256: {a.registers} "
            f"registers for {a.warps} warps from {a.first}"
        )
    return None


def _tensor_map(u: UOp, graph: _Graph) -> str | None:
    a: TensorMapArg = u.arg
    if _space(u.src[0]) is not AddrSpace.GLOBAL:
        return "a tensor map views a parameter (GLOBAL)"
    if len(a.strides) != len(a.shape) - 1 or len(a.box) != len(a.shape):
        return f"shape {a.shape} wants {len(a.shape) - 1} strides and a box of {len(a.shape)} sizes"
    size = u.src[0].dtype.itemsize
    strides = tuple(n * size for n in reversed(a.strides))
    fault = layouts.tma_fault(a.box[::-1], size, strides, a.swizzle, a.shape[::-1])
    return fault or None


def _copy(u: UOp, graph: _Graph) -> str | None:
    a: CopyArg = u.arg
    to, source, *rest = u.src
    if a.engine is Engine.CP_ASYNC:
        if not (_is_index(to, AddrSpace.SHARED) and _is_index(source, AddrSpace.GLOBAL)):
            return "cp.async copies from GLOBAL to SHARED memory"
        if to.dtype is not source.dtype:
            return f"it copies {source.dtype} into memory of {to.dtype}"
        if a.width * to.dtype.itemsize not in COPY_BYTES:
            return f"{a.width} elements of {to.dtype}: cp.async copies 4, 8 or 16 bytes"
        if len(rest) > 1 or (rest and rest[0].dtype is not dtypes.bool):
            return "after its two places stands at most a gate (bool)"
        return None
    if a.engine is not Engine.BULK:
        return f"copies are CP_ASYNC or BULK, not {a.engine}"
    loads = source.op is Ops.TENSORMAP
    tensor_map, tile = (source, to) if loads else (to, source)
    if tensor_map.op is not Ops.TENSORMAP or not _is_index(tile, AddrSpace.SHARED):
        return "a BULK copy is between a TENSORMAP and SHARED memory"
    if loads and not (rest and _is_index(rest[0], AddrSpace.MBARRIER)):
        return "a BULK copy into SHARED memory counts its bytes at an mbarrier: source 2"
    coordinates = rest[1:] if loads else rest
    rank = len(tensor_map.arg.shape)
    if len(coordinates) != rank or any(c.dtype is not dtypes.index for c in coordinates):
        return f"it wants {rank} coordinates (index), got {len(coordinates)}"
    if tile.dtype is not tensor_map.dtype:
        return f"the tile is {tile.dtype}, the map {tensor_map.dtype}"
    return None


def _engine(u: UOp, graph: _Graph) -> str | None:
    if u.op is Ops.WAITG:
        a: WaitArg = u.arg
        if a.pending < 0 or (a.read and a.engine is not Engine.BULK):
            return f"it waits until at most {a.pending} groups are pending (read: BULK only)"
    return None


def _fence(u: UOp, graph: _Graph) -> str | None:
    if not isinstance(u.arg, Fence):
        return f"it is one of {', '.join(map(str, Fence))}, got {u.arg!r}"
    return None


def _mbarrier(u: UOp, graph: _Graph) -> str | None:
    if not _is_index(u.src[0], AddrSpace.MBARRIER):
        return "its first source is the INDEX of an mbarrier (an ALLOC in MBARRIER)"
    if any(not s.dtype.is_int for s in u.src[1:]):
        return f"counts, bytes and parities are integers, got {u.src[1].dtype}"
    return None


def _matrix(u: UOp, graph: _Graph) -> str | None:
    a: MatrixArg = u.arg
    registers, tile = u.src if u.op is Ops.LDMATRIX else u.src[::-1]
    if a.tiles not in (1, 2, 4):
        return f"it moves 1, 2 or 4 tiles, not {a.tiles}"
    if not _is_index(tile, AddrSpace.SHARED) or tile.dtype.itemsize != 2:
        return "tiles are 16-bit elements in SHARED memory"
    if not _is_index(registers, AddrSpace.REG) or registers.dtype is not dtypes.u32:
        return "fragments are u32 registers, two elements each"
    return None


def _descriptor(u: UOp, graph: _Graph) -> str | None:
    return None if _is_index(u.src[0], AddrSpace.SHARED) else "it describes SHARED memory"


def _mma(u: UOp, graph: _Graph) -> str | None:
    atom = layouts.ATOMS.get(u.arg)
    if atom is None:
        return f"there is no atom {u.arg!r}; they are the keys of uopc.layouts.ATOMS"
    if not _is_index(u.src[0], AddrSpace.REG):
        return "it accumulates in registers"
    for name, operand in zip("ab", u.src[1:3], strict=True):
        in_registers = _is_index(operand, AddrSpace.REG)
        described = operand.dtype is dtypes.u64 and operand.op is not Ops.INDEX
        wants_b = atom.engine == "wgmma" and name == "b"
        if not (described if wants_b else in_registers or (atom.engine == "wgmma" and described)):
            return f"operand {name} of {u.arg} is a fragment in registers" + (
                " or a DESCRIPTOR" if atom.engine == "wgmma" else ""
            )
    return None


def _printf(u: UOp, graph: _Graph) -> str | None:
    shown = u.src[: u.arg.format.count("{}")]
    late = next((s for s in u.src[len(shown) :] if s.dtype is not dtypes.void), None)
    if late is None or late.op in (Ops.RANGE, Ops.ATOMIC):  # these are done, or opened, before
        return None
    return f"{u.arg.format!r} shows {len(shown)} values, {late.op} is one more"


GPU_RULES: dict[Ops, Callable[[UOp, Any], str | None]] = {
    Ops.SHUFFLE: _shuffle,
    Ops.VOTE: _with_members,
    Ops.WARP_REDUCE: _with_members,
    Ops.ATOMIC: _atomic,
    Ops.BARRIER: _barrier,
    Ops.ROLE: _role,
    Ops.TENSORMAP: _tensor_map,
    Ops.COPY: _copy,
    Ops.COMMIT: _engine,
    Ops.WAITG: _engine,
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

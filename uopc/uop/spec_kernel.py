"""Rules of a LOOPS kernel as a whole: its threads and warps, roles, registers, mbarriers, groups.

Each rule yields (node, why).  `uopc/uop/spec.py` raises the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from uopc import layouts
from uopc.dtype import AddrSpace
from uopc.uop.facts import free
from uopc.uop.node import UOp, is_rank, memory, prod, toposort
from uopc.uop.ops import (
    EFFECTS,
    OF_CLUSTERS,
    AxisType,
    BarrierArg,
    BarrierScope,
    Engine,
    Fence,
    Ops,
)
from uopc.uop.order import written
from uopc.uop.records import memory_name

WARP = 32
WARPGROUP = 4 * WARP
Fault: TypeAlias = tuple[UOp, str]
_MORE_THAN_STORES = (EFFECTS - {Ops.STORE}) | {Ops.ROLE}
_BY_WARPS = (Ops.LDMATRIX, Ops.STMATRIX, Ops.MMA, Ops.ROLE)


def kernel_faults(root: UOp) -> Iterator[Fault]:
    """What is wrong with a kernel whose nodes are right by themselves."""
    order = toposort(root)
    if any(u.op is Ops.RANGE and u.arg.kind in _OF_A_BLOCK for u in order):
        yield from _warps(order)
    if any(u.op in _MORE_THAN_STORES for u in order):
        yield from _whole_warps(order)
        yield from _mbarriers(order)
        yield from _groups(order)
    if any(u.op is Ops.ROLE for u in order):
        yield from _roles(order)
        yield from _registers_of_roles(order)
    yield from _clusters(order)


# ---- clusters of blocks
CLUSTER_SIZES = (2, 4, 8, 16)
#: what blocks of a cluster do not do yet: its order between them is not checked
_NOT_IN_CLUSTERS = (Ops.ROLE, Ops.MMA, Ops.COMMIT, Ops.WAITG)


def is_of_cluster(u: UOp) -> bool:
    """Is this a BARRIER of the cluster's blocks?"""
    return u.op is Ops.BARRIER and u.arg is not None and u.arg.scope in OF_CLUSTERS


def _clusters(order: list[UOp]) -> Iterator[Fault]:
    """Blocks of a cluster: their number, their memory, and what they may do."""
    ranks = [u for u in order if is_rank(u)]
    size = prod(r.arg.size for r in ranks)
    if len(ranks) > 1:
        yield ranks[1], "blocks form clusters along one axis, this is a second one"
    if ranks and size not in CLUSTER_SIZES:
        sizes = ", ".join(map(str, CLUSTER_SIZES))
        yield ranks[0], f"a cluster has {sizes} blocks, not {size} (above 8 where a GPU allows it)"
    for u in order:
        if u.op is Ops.ALLOC and u.arg.addrspace is AddrSpace.CLUSTER and u.arg.shape[0] != size:
            name, parts = memory_name(u.arg), u.arg.shape[0]
            yield u, f"{name} has parts in {parts} blocks, the cluster has {size}"
        if is_of_cluster(u) and not ranks:
            yield u, "no GLOBAL range with digit 'c' says how many blocks form a cluster"
        if ranks and (u.op in _NOT_IN_CLUSTERS or _is_elsewhere(u)):
            yield u, "blocks of a cluster have no roles, tensor cores, other engines and fences yet"


def _is_elsewhere(u: UOp) -> bool:
    """Is this a copy, a barrier or a fence of a kind that clusters have not?"""
    if u.op is Ops.COPY:
        return u.arg.engine is not Engine.CLUSTER
    if u.op is Ops.FENCE:
        return u.arg is not Fence.MBAR_INIT
    a: BarrierArg = (u.arg if u.op is Ops.BARRIER else None) or BarrierArg()
    return a.scope is BarrierScope.NAMED


# ---- threads
_OF_A_BLOCK = (AxisType.LOCAL, AxisType.LANE, AxisType.WARP, AxisType.WARPGROUP)


def _threads(order: list[UOp], *kinds: AxisType) -> int:
    """How many threads of a block the ranges of some kinds count."""
    return prod(u.arg.size for u in order if u.op is Ops.RANGE and u.arg.kind in kinds)


def _first(order: list[UOp], kind: AxisType) -> UOp | None:
    return next((u for u in order if u.op is Ops.RANGE and u.arg.kind is kind), None)


def _warps(order: list[UOp]) -> Iterator[Fault]:
    """LANE, WARP and WARPGROUP ranges count what the hardware calls so.

    A thread's number has LOCAL digits fastest, then LANE, WARP, WARPGROUP (`passes/bind.py`).
    """
    local, lanes = _threads(order, AxisType.LOCAL), _threads(order, AxisType.LANE)
    warps = _threads(order, AxisType.WARP)
    lane, warp, group = (
        _first(order, kind) for kind in (AxisType.LANE, AxisType.WARP, AxisType.WARPGROUP)
    )
    if lane is not None:
        if lanes != WARP:
            yield lane, f"LANE ranges count the {WARP} lanes of a warp, these count {lanes}"
        if local != 1:
            yield (
                lane,
                f"the {local} threads of LOCAL ranges are neighbours, so that a LANE range beside "
                "them does not count lanes. Use LOCAL alone, or LANE and WARP",
            )
    if warp is not None and lanes * local % WARP:
        what = "no LANE range" if lane is None else f"{lanes * local} threads"
        yield warp, f"a WARP range counts warps of {WARP} lanes, the kernel has {what} below it"
    if group is not None:
        if warp is not None and warps != 4:
            yield group, f"a warpgroup has 4 warps, the WARP ranges below it count {warps}"
        if lanes * local * warps % WARPGROUP:
            below = lanes * local * warps
            yield group, f"a WARPGROUP range counts {WARPGROUP} threads each, below it are {below}"


def _whole_warps(order: list[UOp]) -> Iterator[Fault]:
    """What warps do together needs blocks of whole warps, or warpgroups."""
    threads = _threads(order, *_OF_A_BLOCK)
    for u in order:
        if u.op in _BY_WARPS and threads % WARP:
            yield u, f"whole warps do this, the block has {threads} threads"
        if u.op is Ops.MMA and threads % layouts.ATOMS[u.arg].threads:
            yield u, f"{u.arg} is for whole warpgroups, the block has {threads} threads"
        named = u.op is Ops.BARRIER and u.arg is not None and u.arg.scope is BarrierScope.NAMED
        if named and u.arg.threads > threads:
            yield u, f"it waits for {u.arg.threads} threads, the block has {threads}"


# ---- roles
def _role_of(u: UOp) -> UOp | None:
    return next((r for r in free(u) if r.op is Ops.ROLE), None)


def _roles(order: list[UOp]) -> Iterator[Fault]:
    warps = _threads(order, *_OF_A_BLOCK) // WARP
    for u in order:
        if u.op is Ops.ROLE:
            a = u.arg
            if a.first + a.warps > warps:
                last = a.first + a.warps - 1
                yield u, f"{a.name} has warps {a.first} to {last}, the block has {warps}"
            outer = next((r for r in free(u) if r.op is Ops.ROLE and r is not u), None)
            if outer is not None:
                yield u, f"{a.name} is opened inside the role {outer.arg.name}: roles do not nest"
        elif u.op is Ops.MMA and layouts.ATOMS[u.arg].threads == WARPGROUP:
            role = _role_of(u)
            if role is not None and (role.arg.first % 4 or role.arg.warps % 4):
                a = role.arg
                yield (
                    u,
                    f"{u.arg} is for whole warpgroups, the role {a.name} has {a.warps} warps "
                    f"from {a.first}",
                )


def _registers_of_roles(order: list[UOp]) -> Iterator[Fault]:
    """Who reads registers has written them, or all have before: other threads have other ones."""
    writers: dict[UOp, set[UOp | None]] = {}
    readers: dict[UOp, dict[UOp | None, UOp]] = {}
    for u in order:
        for n, s in enumerate(u.src):
            if u.op is Ops.INDEX or s.op is not Ops.INDEX:
                continue
            m = memory(s)
            if m.arg.addrspace is not AddrSpace.REG:
                continue
            if n == 0 and written(u) is m:
                writers.setdefault(m, set()).add(_role_of(u))
            else:
                readers.setdefault(m, {}).setdefault(_role_of(u), u)
    for m, uses in readers.items():
        by = writers.get(m, set())
        for role, u in uses.items():
            if by and role not in by and None not in by:
                owner = ", ".join(sorted(r.arg.name for r in by if r is not None))
                where = "outside of it" if role is None else f"in the role {role.arg.name}"
                yield (
                    u,
                    f"{memory_name(m.arg)} is written in the role {owner} and read {where}: "
                    "each thread has registers of its own. Use SHARED memory",
                )


# ---- asynchronous work
def _mbarriers(order: list[UOp]) -> Iterator[Fault]:
    """Every mbarrier is initialised; one that counts bytes is told how many to expect."""
    started = {memory(u.src[0]) for u in order if u.op is Ops.MBAR_INIT}
    told = {memory(u.src[0]) for u in order if u.op is Ops.ARRIVE and len(u.src) == 2}
    for u in order:
        if u.op in (Ops.ARRIVE, Ops.WAIT):
            m = memory(u.src[0])
        elif u.op is Ops.COPY and u.arg.engine is Engine.BULK and u.src[1].op is Ops.TENSORMAP:
            m = memory(u.src[2])
            if m in started and m not in told:
                name = memory_name(m.arg)
                yield u, f"no ARRIVE tells {name} how many bytes to expect: it would never pass"
        elif u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER:
            m = memory(u.src[2])
        else:
            continue
        if m not in started:
            yield u, f"no MBAR_INIT gives {memory_name(m.arg)} its count of arrivals"


def _groups(order: list[UOp]) -> Iterator[Fault]:
    """Waiting for groups needs groups."""
    committed = {u.arg for u in order if u.op is Ops.COMMIT}
    for u in order:
        if u.op is Ops.WAITG and u.arg.engine not in committed:
            yield u, f"it waits for groups of {u.arg.engine}, and no COMMIT closes one"


__all__ = ["kernel_faults"]

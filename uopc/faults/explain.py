"""What the runtime wrote down of a fault, as the exception that a person reads.

One function a kind makes its `Facts`; `explain` picks it by the table at the end.  A report may be
complete or short: loop values come from a second, traced run (`uopc/checking.py`), and without a
tree there is no place for a missing barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from uopc.dtype import AddrSpace
from uopc.errors import CompilerError
from uopc.faults import errors
from uopc.faults.errors import Access, Facts, Memory, Report
from uopc.faults.hints import Meeting, meet, too_weak, what_orders
from uopc.faults.raw import (
    SEVERAL_LANES,
    AccumulatorFault,
    Agent,
    ClusterFault,
    CopyFault,
    FaultKind,
    MbarrierFault,
    RawFault,
    WaitKind,
)
from uopc.faults.standing import Standing, standings
from uopc.faults.words import (
    called,
    count,
    does,
    engine_of,
    lanes_text,
    node_text,
    runs_text,
    triple,
)
from uopc.kernel import Dims, Source
from uopc.uop.infer import prod
from uopc.uop.node import UOp, memory
from uopc.uop.ops import Fence, Ops
from uopc.uop.records import memory_name

WARP = 32
ALL = 0xFFFFFFFF


@dataclass(frozen=True)
class Witness:
    """What a traced run adds to an access: the lane, and the values of the loops around it."""

    lane: int = SEVERAL_LANES
    loops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One fault with all that is known: the runtime's numbers, the text, what a trace showed."""

    raw: RawFault
    source: Source
    kernel: str
    seen: Witness = Witness()
    seen_before: Witness = Witness()
    together: tuple[RawFault, ...] = ()  # other faults of the same event: warps of a deadlock

    @property
    def node(self) -> UOp:
        """The access or effect; a CompilerError where the fault should have one and has none."""
        if self.raw.place < 0:
            raise CompilerError(f"{self.raw} of kernel {self.kernel} has no place")
        return self.source.places[self.raw.place]

    @property
    def m(self) -> UOp | None:
        """The memory's BUFFER or ALLOC."""
        return self.source.memories[self.raw.memory] if self.raw.memory >= 0 else None

    @cached_property
    def memory(self) -> Memory:
        """Raises CompilerError where the fault should have one and has none."""
        if self.m is None:
            raise CompilerError(f"{self.raw} of kernel {self.kernel} has no memory")
        return Memory.of(self.m)

    @property
    def flat(self) -> int:
        """The element's number."""
        return self.raw.offset_bytes // self.memory.dtype.itemsize

    @cached_property
    def where(self) -> Mapping[UOp, Standing]:
        """Where each node stands in the text."""
        return standings(self.source.program)

    @cached_property
    def now(self) -> Access:
        """The access or effect that met the fault."""
        r = self.raw
        return self.access(self.node, r.block, r.warp, r.lane, self.seen)

    @cached_property
    def before(self) -> Access | None:
        """The access that was there before, if any."""
        r = self.raw
        if r.other_place < 0:
            return None
        node = self.source.places[r.other_place]
        return self.access(node, r.other_block, r.other_warp, r.other_lane, self.seen_before)

    def access(self, node: UOp, block: int, warp: int, lane: int, seen: Witness) -> Access:
        """A node as a thread comes to it."""
        lane = seen.lane if lane == SEVERAL_LANES else lane
        one = lane != SEVERAL_LANES and warp >= 0
        linear = WARP * warp + lane if one else None
        return Access(
            node,
            does(node, self.m),
            spread(block, self.source.launch.grid),
            warp,
            lane,
            None if linear is None else spread(linear, self.source.launch.block),
            linear,
            engine_of(node),
            seen.loops,
        )

    def facts(
        self,
        what: str,
        why: str = "",
        *notes: str,
        hint: str = "",
        who: Sequence[Access] = (),
    ) -> Facts:
        """The usual facts: this access, unless others are named."""
        has_memory = self.m is not None
        who = who or ((self.now,) if self.raw.place >= 0 else ())
        told = tuple(n for n in notes if n)
        of = self.memory if has_memory else None
        flat = self.flat if has_memory else None
        return Facts(self.kernel, what, why, of, flat, tuple(who), told, hint)

    def scopes(self, u: UOp) -> tuple[UOp, ...]:
        """IFs, ROLEs and loops around a node, outermost first."""
        return self.where[u].scopes if u in self.where else ()

    def writers(self) -> str:
        """A note on what writes the memory."""
        found = [u for u in self.source.places if _writes(u, self.m)]
        if not found:
            return f"nothing in the kernel writes {self.memory.name}"
        names = [called(u) for u in dict.fromkeys(found)]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"{self.memory.name} is written by {', '.join(names[:3])}{more}"


def spread(n: int, dims: Dims) -> Dims:
    """(x, y, z) of a linear number, x fastest."""
    return n % dims[0], n // dims[0] % dims[1], n // (dims[0] * dims[1])


def _writes(u: UOp, m: UOp | None) -> bool:
    stores = (Ops.STORE, Ops.ATOMIC, Ops.COPY, Ops.LDMATRIX, Ops.STMATRIX, Ops.MMA)
    if u.op not in stores:
        return False
    to = u.src[0].src[0] if u.src[0].op is Ops.TENSORMAP else u.src[0]
    return memory(to) is m


# ---- memory
def _bounds(c: Case) -> Facts:
    if c.m is None:
        return c.facts(node_text(c.node), f"there is no number {c.raw.offset_bytes}")
    if c.m.arg.bundle and c.raw.detail:
        return _outside_segment(c)
    m, width = c.memory, _width(c.node)
    size = prod(m.shape)
    last = c.flat + width - 1
    which = f"element {c.flat}" if width == 1 else f"elements {c.flat} to {last}"
    has = f"{count(size, 'element')}, shape {m.shape}"
    gate = {
        Ops.LOAD: "index.load(gate, other)",
        Ops.STORE: "a gate of the store",
        Ops.COPY: "a gate of the copy",
    }.get(c.node.op, "an IF around it")
    below = (
        "0 <= index"
        if c.flat < 0
        else f"index < {size}"
        if width == 1
        else f"index + {width} <= {size}"
    )
    hint = f"let only threads with {below} come to it: {gate}"
    return c.facts(f"{c.now.kind} of {which} of {m}", f"it has {has}", hint=hint)


def _outside_segment(c: Case) -> Facts:
    """Of a bundle: which memory, which element of it, and how many it has."""
    which, at, size = c.raw.detail
    name, count_ = c.memory.name, c.memory.shape[0]
    what = f"{c.now.kind} of element {at} of global {name}[{which}]"
    if size < 0:
        why = f"{name} is a bundle, the number of its memories is {count_}"
        return c.facts(what, why, hint=f"let only threads with 0 <= which < {count_} come to it")
    hint = f"let only threads with index < {size}, what this memory has, come to it"
    return c.facts(what, f"it has {count(size, 'element')}", hint=hint)


def _width(u: UOp) -> int:
    if u.op in (Ops.LOAD, Ops.STORE):
        return u.arg.width if u.arg is not None else 1
    if u.op is Ops.COPY:
        return int(u.arg.width)
    return 1


def _misaligned(c: Case) -> Facts:
    m, width = c.memory, _width(c.node)
    size = m.dtype.itemsize * width
    return c.facts(
        f"{size}-byte {c.now.kind} of {m.at(c.flat)}",
        f"byte {c.raw.offset_bytes} is no multiple of {size}",
        hint=f"a width of {width} needs an index that is a multiple of {width}: pad the rows, or "
        f"use a width of 1",
    )


def _uninitialised(c: Case) -> Facts:
    m = c.memory
    hint = {
        AddrSpace.SHARED: "shared memory begins with whatever was there: store the element, then a "
        "barrier, before it is read",
        AddrSpace.CLUSTER: "shared memory begins with whatever was there: store the element, then "
        "a barrier of the cluster, before it is read",
        AddrSpace.REG: "registers begin with whatever was there: store a start value first",
        AddrSpace.GLOBAL: "an output begins with whatever was there: store a start value first, or "
        "pass an array that has it",
    }[m.space]
    what = f"{c.now.kind} of {m.at(c.flat)}"
    return c.facts(what, "nothing has written it", c.writers(), hint=hint)


def _unwritten(c: Case) -> Facts:
    m = c.memory
    n = c.raw.detail[0] if c.raw.detail else 1
    size = prod(m.shape)
    if n == 1:
        what, why = m.at(c.flat), "no thread writes it"
    else:
        what = f"{n} of {count(size, 'element')} of {m}"
        why = f"no thread writes them, the first is {m.at(c.flat)}"
    hint = (
        "do grid, loops and gates reach every element? If only a part is meant to change, say with "
        "initialised= that the caller's values stay"
    )
    return c.facts(what, why, c.writers(), hint=hint)


def _index_overflow(c: Case) -> Facts:
    value, bits = c.raw.detail
    meant = value if abs(value) < 1 << 64 else f"about {float(value):.3g}"
    return c.facts(
        f"index of {c.memory}",
        f"it should be {meant}, and arithmetic in int{bits} gives {c.flat}",
        hint="compute it in dtypes.index, as wide as its bounds ask for: cast to that first",
    )


# ---- order
def _race(c: Case) -> Facts:
    met = _meeting(c)
    first, second = met.first, met.second
    weak = too_weak(met, c.where)
    return c.facts(
        f"{first.kind}-{second.kind} on {c.memory.at(c.flat)}",
        "",
        weak,
        hint=what_orders(met, c.where),
        who=(first, second),
    )


def _meeting(c: Case) -> Meeting:
    if c.before is None:
        raise CompilerError(f"{c.raw} of kernel {c.kernel} has one access, a race has two")
    return meet(c.before, c.now, c.where)


def _same_value(c: Case) -> Facts:
    met = _meeting(c)
    return c.facts(
        f"two writes of the same value to {c.memory.at(c.flat)}",
        hint=f"harmless while the values are equal. To be sure: {what_orders(met, c.where)}",
        who=(met.first, met.second),
    )


def _proxy_fence(c: Case) -> Facts:
    """The access met now is the engine's: what it must see, or must not overtake, came before."""
    if c.before is None:
        raise CompilerError(f"{c.raw} of kernel {c.kernel} has one access, a fence parts two")
    ordinary = called(c.before.node)
    return c.facts(
        f"{c.before.kind}-{c.now.kind} on {c.memory.at(c.flat)}",
        "no proxy fence between the two",
        hint=f"fence({Fence.PROXY_ASYNC}) by the thread that does {ordinary}, after it and before "
        "it meets the others: engines see memory by another way than threads",
        who=(c.before, c.now),
    )


def _accumulator(c: Case) -> Facts:
    now = replace(c.now, kind="write") if c.node.op is Ops.MMA else c.now
    who = (now,) if c.before is None else (c.before, now)
    touched = c.m if c.m is not None else _registers(c.node)
    name = "it" if touched is None else memory_name(touched.arg)
    what = "accumulator" if touched is None else f"accumulator {name}"
    if c.raw.detail[:1] == (AccumulatorFault.IN_FLIGHT,):
        return c.facts(
            what,
            "it is used while an MMA may still write it",
            hint=f"wait_group(WGMMA) before {called(c.node)}, with {name} in what it covers",
            who=who,
        )
    return c.facts(
        what,
        "an MMA takes it, and it was used since the last fence of its registers",
        hint=f"fence({Fence.WGMMA}) after that use and before {called(c.node)}",
        who=who,
    )


def _registers(u: UOp) -> UOp | None:
    """The register array that a node reads or writes."""
    m = memory(u.src[0]) if u.src and u.src[0].op is Ops.INDEX else None
    return m if m is not None and m.arg.addrspace is AddrSpace.REG else None


def _unwaited(c: Case) -> Facts:
    agent = Agent(c.raw.detail[0]) if c.raw.detail else Agent.BULK
    group = agent.name if agent in (Agent.CP_ASYNC, Agent.BULK, Agent.WGMMA) else "BULK"
    work = f"{c.now.engine} work" if c.raw.place >= 0 else f"{agent.text} work"
    block = triple(spread(c.raw.block, c.source.launch.grid))
    return c.facts(
        work,
        f"warp {c.raw.warp} of block {block} ends without waiting for it",
        hint=f"wait_group({group}) before the end: what is under way then may never be done",
    )


# ---- meetings of threads
def _divergent(c: Case) -> Facts:
    came, lanes = _masks(c)
    scopes = [s for s in c.scopes(c.node) if s.op in (Ops.IF, Ops.RANGE)]
    around = [f"around it: {called(s)}" for s in scopes[-1:]]
    inner = scopes[-1] if scopes else None
    hint = "every thread of the block must come to it"
    if inner is not None and inner.op is Ops.IF:
        hint = f"close {called(inner)} before it, and open another one after it"
    elif inner is not None:
        hint = f"give {called(inner)} the same number of rounds in every thread of the block"
    who = together(c.now, "waits")
    if came != lanes:
        missing = lanes & ~came
        away = "do not" if missing.bit_count() > 1 else "does not"
        there = f"{lanes_text(came)} of warp {c.raw.warp} come to it"
        return c.facts(
            "barrier", f"{there}, {lanes_text(missing)} {away}", *around, hint=hint, who=(who,)
        )
    if c.before is not None:
        hint = "every thread of the block must come to the same barrier"
        both = (together(c.before, "waits"), who)
        return c.facts("barriers", "warps of a block wait at two of them", hint=hint, who=both)
    why = f"warp {c.raw.warp} waits at it, other warps of its block have ended"
    return c.facts("barrier", why, *around, hint=hint, who=(who,))


def _members(c: Case) -> Facts:
    members, came = _masks(c)
    op = node_text(c.node)
    strangers, missing = came & ~members, members & ~came
    who = (together(c.now, "comes"),)
    if len(c.raw.detail) > 2:
        return _absent(c, c.raw.detail[2])
    if strangers:
        return c.facts(
            op,
            f"{lanes_text(strangers)} of warp {c.raw.warp} come to it, its members are "
            f"{lanes_text(members)}",
            hint=f"put them into members, or let only {lanes_text(members)} come to it",
            who=who,
        )
    scopes = [s for s in c.scopes(c.node) if s.op is Ops.IF]
    way = f"move it out of {called(scopes[-1])}" if scopes else "let all members come to it"
    return c.facts(
        op,
        f"its members are {lanes_text(members)}, and {lanes_text(missing)} of warp "
        f"{c.raw.warp} do not come",
        hint=f"{way}, or name only {lanes_text(came)} as members",
        who=who,
    )


def _absent(c: Case, giver: int) -> Facts:
    """A shuffle takes the value of a lane that is not there."""
    return c.facts(
        node_text(c.node),
        f"lane {c.raw.lane} of warp {c.raw.warp} takes from lane {giver}, which does not come",
        hint=f"let lane {giver} come to it, or take from a lane that does",
    )


def _masks(c: Case) -> tuple[int, int]:
    """Two masks of lanes, all where they are not told."""
    first, second = (*c.raw.detail, ALL, ALL)[:2]
    return first & ALL, second & ALL


def together(a: Access, kind: str) -> Access:
    """What a warp does as one."""
    return replace(a, kind=kind, lane=SEVERAL_LANES, thread=None, linear=None)


def _deadlock(c: Case) -> Facts:
    waiting = (c.raw, *(r for r in c.together if r is not c.raw))
    cases = [replace(c, raw=r) for r in waiting]
    block = triple(spread(c.raw.block, c.source.launch.grid))
    who = [together(x.now, "waits") for x in cases if x.raw.place >= 0]
    missing: dict[str, list[int]] = {}
    for r in waiting:
        if text := _misses(r.detail):
            missing.setdefault(text, []).append(r.warp)
    notes = [f"{runs_text('warp', sorted(warps))}: {text}" for text, warps in missing.items()]
    kinds = {r.detail[0] for r in waiting if r.detail}
    hint = (
        "count arrivals and bytes of a phase against MBAR_INIT and the arrive that expects them; "
        "the first phase has parity 0"
        if WaitKind.MBARRIER in kinds
        else "every warp that a barrier waits for must come to it"
    )
    why = f"no warp of block {block} can go on"
    return c.facts("deadlock", why, *notes, hint=hint, who=who)


def _misses(detail: tuple[int, ...]) -> str:
    """What a warp waits for in vain, as far as the runtime has told."""
    if detail[:1] == (WaitKind.NAMED_BARRIER,) and len(detail) >= 4:
        return f"{detail[2]} of {count(detail[3], 'warp')} came to barrier {detail[1]}"
    if detail[:1] == (WaitKind.MBARRIER,) and len(detail) >= 5:
        lacks = [count(detail[3], "arrival")] if detail[3] else []
        lacks += [count(detail[4], "byte")] if detail[4] else []
        lack = f", {' and '.join(lacks)} missing" if lacks else ""
        return f"the phase of parity {detail[2]} has not ended{lack}"
    if detail[:1] == (WaitKind.GROUP,) and len(detail) >= 2:
        return f"groups of {Agent(detail[1]).text} work are unfinished"
    return ""


def _mbarrier(c: Case) -> Facts:
    name = node_text(c.node.src[0]) if c.node.src and c.node.src[0].op is Ops.INDEX else "mbarrier"
    which = c.raw.detail[0] if c.raw.detail else MbarrierFault.NOT_INITIALISED
    why, hint = _MBARRIER[MbarrierFault(which)]
    number = c.raw.detail[1] if len(c.raw.detail) > 1 else 0
    name = f"{c.memory.name}[{number}]" if c.m is not None else name
    who = (c.now,) if c.before is None else (c.before, c.now)
    return c.facts(f"mbarrier {name}", why, hint=hint, who=who)


_MBARRIER = {
    MbarrierFault.NOT_INITIALISED: (
        "it is used where its MBAR_INIT need not have been done",
        "one thread initialises, then a barrier of the block, then the others use it",
    ),
    MbarrierFault.TOO_MANY_ARRIVALS: (
        "it gets more arrivals in one phase than it expects",
        "each lane that comes to an ARRIVE counts: let one arrive, or raise the count of MBAR_INIT",
    ),
    MbarrierFault.PARITY_ALIAS: (
        "the wait may pass two phases early: the same parity",
        "a waiter must know of every phase but the last: wait for each phase in turn, or let the "
        "next one begin only after it has been waited for",
    ),
    MbarrierFault.NOT_FENCED: (
        "a bulk copy uses it and may not see its MBAR_INIT",
        f"fence({Fence.MBAR_INIT}) after MBAR_INIT, by the thread that did it",
    ),
    MbarrierFault.INITIALISED_TWICE: (
        "it is initialised again",
        "initialise it once, before all use; its phases follow by themselves",
    ),
    MbarrierFault.LATE_WAIT: (
        "the next phase may end before this wait has come through: then it waits for ever",
        "let the arrivals of the next phase come after all waits for this one",
    ),
    MbarrierFault.EARLY_ARRIVAL: (
        "the arrival may count for the phase before, in place of another one",
        "let it come after a wait for the phase before",
    ),
}


def _copy(c: Case) -> Facts:
    which, came = (*c.raw.detail, 0, 0)[:2]
    if which == CopyFault.SEVERAL_LANES:
        return c.facts(
            "bulk copy",
            f"{lanes_text(came & ALL)} of warp {c.raw.warp} ask for it",
            hint="one thread asks: put the copy into an IF that one lane takes",
        )
    if which == CopyFault.DESTINATION:
        of = f" at {c.memory.at(c.flat)}" if c.m is not None else ""
        return c.facts(
            f"bulk copy{of}",
            f"its place in shared memory is not aligned to {came} bytes",
            hint=f"let every tile begin at a multiple of {came} bytes of shared memory",
        )
    return c.facts(
        "bulk copy",
        f"its innermost coordinate is at byte {came}, no multiple of 16",
        hint="step by boxes whose inner size is a multiple of 16 bytes",
    )


def _cluster(c: Case) -> Facts:
    which, rank = (*c.raw.detail, ClusterFault.NOT_STARTED, 0)[:2]
    why, hint = _CLUSTER[ClusterFault(which)]
    where = c.memory.at(c.flat) if c.m is not None else "the cluster's barrier"
    return c.facts(where, why.format(rank), hint=hint, who=(c.now,))


_CLUSTER = {
    ClusterFault.NOT_STARTED: (
        "block {} of the cluster holds it, and may not have started",
        "let each block say first that it has started (BARRIER CLUSTER_ARRIVE), and wait for all "
        "(CLUSTER_WAIT) before the first access of another one's memory",
    ),
    ClusterFault.ENDED: (
        "block {} of the cluster holds it, and may have ended",
        "let the cluster meet (BARRIER CLUSTER) after the last access of another block's memory",
    ),
    ClusterFault.NOT_ARRIVED: (
        "a warp of block {} waits for the cluster and has not arrived",
        "CLUSTER_ARRIVE comes before CLUSTER_WAIT, once each",
    ),
    ClusterFault.ARRIVED_TWICE: (
        "a warp of block {} arrives again before it has waited",
        "CLUSTER_WAIT comes after CLUSTER_ARRIVE and before any other barrier of the cluster",
    ),
}


def _assertion(c: Case) -> Facts:
    hint = f"uopc trace shows the values that {c.now.who} had"
    who = (replace(c.now, kind="fails"),)
    return c.facts("assertion", f"{c.node.arg}", hint=hint, who=who)


_KINDS: dict[FaultKind, tuple[type[Report], Callable[[Case], Facts]]] = {
    FaultKind.BOUNDS: (errors.BoundsError, _bounds),
    FaultKind.MISALIGNED: (errors.MisalignedError, _misaligned),
    FaultKind.UNINITIALISED: (errors.UninitialisedError, _uninitialised),
    FaultKind.RACE: (errors.RaceError, _race),
    FaultKind.SAME_VALUE: (errors.SameValueWarning, _same_value),
    FaultKind.DIVERGENT_BARRIER: (errors.BarrierError, _divergent),
    FaultKind.MEMBERS: (errors.MembersError, _members),
    FaultKind.DEADLOCK: (errors.DeadlockError, _deadlock),
    FaultKind.MBARRIER: (errors.MbarrierError, _mbarrier),
    FaultKind.ACCUMULATOR: (errors.AccumulatorError, _accumulator),
    FaultKind.PROXY_FENCE: (errors.ProxyFenceError, _proxy_fence),
    FaultKind.UNWAITED: (errors.UnwaitedError, _unwaited),
    FaultKind.UNWRITTEN: (errors.UnwrittenError, _unwritten),
    FaultKind.INDEX_OVERFLOW: (errors.IndexOverflowError, _index_overflow),
    FaultKind.ASSERTION: (errors.AssertionFault, _assertion),
    FaultKind.COPY: (errors.CopyError, _copy),
    FaultKind.CLUSTER: (errors.ClusterError, _cluster),
}


def explain(
    raw: RawFault,
    source: Source,
    kernel_name: str,
    *,
    seen: Witness = Witness(),
    seen_before: Witness = Witness(),
    together: Sequence[RawFault] = (),
) -> Report:
    """The exception for one fault; a SameValueWarning for two equal writes.

    Parameters
    ----------
    source: the checked text that ran: its places, memories, launch and tree give the names.
    seen, seen_before: what a traced run showed of the access and of the one before it.
    together: all faults of the run; a deadlock tells of every warp that waits.
    """
    kind, facts = _KINDS[raw.kind]
    stuck = tuple(r for r in together if r.kind is FaultKind.DEADLOCK and r.block == raw.block)
    return kind(facts(Case(raw, source, kernel_name, seen, seen_before, stuck)))

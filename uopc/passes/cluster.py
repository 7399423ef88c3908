"""How values go from block to block of a cluster, for `effects`: who starts, who sends, who waits.

A block may write into another one's shared memory once that one has started.  Each says so as its
first effect, and waits for the others when the first value that is exchanged is there: by then they
have, and it costs nothing.

An exchange has an mbarrier in each block, which expects one arrival, by the thread that makes it,
and as many bytes as come.  Values are sent: each counts its bytes where it lands, and whoever waits
there sees them all.  There is no barrier and no fence of the cluster, which would wait for all that
the warps have ever written.  A block has received all that is sent to it when it ends, and nothing
is read from others: it may end while they go on.

    IF(thread is 0): MBAR_INIT, FENCE(MBAR_INIT), ARRIVE(bytes) of each exchange
    BARRIER(CLUSTER_ARRIVE)  ...  BARRIER(CLUSTER_WAIT)
    COPY[CLUSTER](part[owner, ...], value, mbarrier)  WAIT(mbarrier, 0)  LOAD(part[rank, ...])

An mbarrier serves once.  An exchange inside a serial loop, and values of 1 or 2 bytes, which cannot
be sent, are stored instead, and the cluster meets (`effects`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from uopc.dtype import AddrSpace, dtypes
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, inherit, toposort, tuple_of
from uopc.uop.ops import (
    IN_THREAD,
    SERIAL,
    BarrierArg,
    BarrierScope,
    CopyArg,
    Engine,
    Fence,
    Ops,
    ParamArg,
    StageArg,
)

ALL_BLOCKS = BarrierArg(BarrierScope.CLUSTER)
SENT_BYTES = (4, 8)  # of st.async (PTX ISA, st.async)


class Cluster:
    """The exchanges of one kernel between the blocks of a cluster.

    exchanges: the STAGEs whose values are sent, and the number of the mbarrier of each.
    """

    def __init__(self, order: Sequence[UOp], lanes: Sequence[UOp], slots: Iterator[int]) -> None:
        sent = [u for u in order if _is_sent(u)]
        self.exchanges = {u: n for n, u in enumerate(sent)}
        self._lanes, self._slots = lanes, slots
        self._barriers: UOp | None = None
        self._started: UOp | None = None

    def all_have_started(self, values: Sequence[UOp], like: UOp) -> UOp:
        """Every block has started.  values: the first that are exchanged."""
        if self._started is None:
            said = UOp(Ops.BARRIER, self._begin(like), BarrierArg(BarrierScope.CLUSTER_ARRIVE))
            ends = (
                x
                for v in toposort(*values)
                if v.op is Ops.AFTER
                for x in v.src[1:]
                if x.op in (Ops.END, Ops.BARRIER, Ops.WAIT) and _is_outermost(x)
            )
            src = (said, *dict.fromkeys(ends))
            waits = UOp(Ops.BARRIER, src, BarrierArg(BarrierScope.CLUSTER_WAIT))
            self._started = inherit(waits, like)
        return self._started

    def _begin(self, like: UOp) -> tuple[UOp, ...]:
        """One thread makes the mbarriers, and says how many bytes come to each."""
        if not self.exchanges:
            return ()
        count = len(self.exchanges)
        arg = ParamArg(next(self._slots), dtypes.u64, (count,), AddrSpace.MBARRIER, "met")
        self._barriers = barriers = inherit(UOp(Ops.ALLOC, (), arg), like)
        first = ix.conj(*(ix.below(x, 1) for x in self._lanes))
        scopes = () if first is ix.TRUE else (UOp(Ops.IF, (first,)),)
        done: tuple[UOp, ...] = scopes

        def element(n: int) -> UOp:
            return UOp(Ops.INDEX, (_after(barriers, done), ix.index(n)))

        for n in self.exchanges.values():
            done = (UOp(Ops.MBAR_INIT, (element(n), ix.index(1))),)
        done = (UOp(Ops.FENCE, done, Fence.MBAR_INIT),)
        for u, n in self.exchanges.items():
            done = (UOp(Ops.ARRIVE, (element(n), ix.index(_bytes(u)))),)
        return (UOp(Ops.END, (*done, *scopes)),) if scopes else done

    def sent(
        self,
        u: UOp,
        memories: Sequence[UOp],
        at: UOp,
        values: Sequence[UOp],
        gate: UOp,
        ranges: tuple[UOp, ...],
    ) -> UOp:
        """Send the values of an exchange; all that come to this block are there."""
        assert self._barriers is not None and self._started is not None
        barriers, number = self._barriers, ix.index(self.exchanges[u])
        counts = UOp(Ops.INDEX, (UOp(Ops.AFTER, (barriers, self._started)), number))
        done: tuple[UOp, ...] = ()
        for m, value in zip(memories, values, strict=True):
            held = () if gate is ix.TRUE else (gate,)
            src = (UOp(Ops.INDEX, (_after(m, done), at)), value, counts, *held)
            done = (inherit(UOp(Ops.COPY, src, CopyArg(Engine.CLUSTER)), u),)
        if ranges:
            done = (UOp(Ops.END, (*done, *ranges)),)
        mine = UOp(Ops.INDEX, (UOp(Ops.AFTER, (barriers, *done)), number))
        return inherit(UOp(Ops.WAIT, (mine, ix.ZERO)), u)


def _is_sent(u: UOp) -> bool:
    """Is this an exchange between blocks, once in the kernel, of values that can be sent?"""
    if u.op is not Ops.STAGE or u.arg.space is not AddrSpace.CLUSTER:
        return False
    once = not any(
        r.op is Ops.RANGE and r.arg.kind in SERIAL for r in free(u) - frozenset(u.src[4:])
    )
    return once and all(size in SENT_BYTES for size in _sizes(u))


def _sizes(u: UOp) -> tuple[int, ...]:
    """Bytes of each value that a STAGE carries."""
    carried = tuple_of(u.src[0])
    values = (u.src[0],) if carried is None else carried.src
    return tuple(v.dtype.itemsize for v in values)


def _bytes(u: UOp) -> int:
    """What comes to one block: every element of its part, once."""
    arg: StageArg = u.arg
    return arg.size // arg.blocks * sum(_sizes(u))


def _is_outermost(u: UOp) -> bool:
    return not any(r.op is not Ops.RANGE or r.arg.kind in IN_THREAD for r in free(u))


def _after(memory: UOp, what: Sequence[UOp]) -> UOp:
    return UOp(Ops.AFTER, (memory, *what)) if what else memory


__all__ = ["ALL_BLOCKS", "Cluster"]

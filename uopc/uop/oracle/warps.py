"""What lanes do together: SHUFFLE, VOTE, WARP_REDUCE, BARRIER, and one after another: ATOMIC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uopc.errors import SpecError
from uopc.uop.facts import flushes
from uopc.uop.node import UOp, where_from
from uopc.uop.numbers import Array, compute
from uopc.uop.ops import (
    OF_CLUSTERS,
    Atomic,
    BarrierArg,
    BarrierScope,
    Combine,
    Ops,
    ShuffleArg,
    ShuffleMode,
    Vote,
)
from uopc.uop.oracle.access import OutOfBoundsError, WarpError
from uopc.uop.oracle.machine import WARP, Machine

#: is what a thread waits for done?
Ready = Callable[[], bool]


def meet(m: Machine, u: UOp, members: int) -> Array:
    """(warps, 32): the lanes that take part.  Warps none of whose lanes are here have none.

    Raises WarpError where the lanes that arrive are not the members (those that exist).
    """
    exists = m.warps(np.ones(m.lanes, bool), False)
    active = exists if m.active is None else m.warps(m.active, False)
    wanted = (members >> np.arange(WARP) & 1).astype(bool) & exists
    wrong = (active != wanted) & active.any(axis=1, keepdims=True)
    if wrong.any():
        warp, lane = (int(n) for n in np.argwhere(wrong)[0])
        why = "is here and no member" if active[warp, lane] else "is a member and not here"
        raise WarpError(
            f"{u.op} at {where_from(u)}: lane {lane} of warp {_warp_text(m, warp)} {why} "
            f"(members {members:#x}). All members must arrive, and only they"
        )
    return active


def _warp_text(m: Machine, warp: int) -> str:
    per_block = -(-m.threads // WARP)
    return f"{warp % per_block} of block {warp // per_block}"


def shuffle(m: Machine, u: UOp) -> None:
    a: ShuffleArg = u.arg
    active = meet(m, u, a.members)
    lane = np.broadcast_to(np.arange(WARP), active.shape)
    if a.mode is ShuffleMode.XOR:
        giver = lane ^ a.by
    elif a.mode is ShuffleMode.UP:
        giver = np.where(lane < a.by, lane, lane - a.by)
    elif a.mode is ShuffleMode.DOWN:
        giver = np.where(lane + a.by >= WARP, lane, lane + a.by)
    else:
        giver = m.warps(m.full(u.src[1]).astype(np.int64), 0) % WARP
    silent = active & ~np.take_along_axis(active, giver, axis=1)
    if silent.any():
        warp, taker = (int(n) for n in np.argwhere(silent)[0])
        raise _silent(m, u, warp, taker, int(giver[warp, taker]))
    x = m.warps(m.full(u.src[0]), 0)
    m.values[u] = m.unwarps(np.take_along_axis(x, giver, axis=1))


def _silent(m: Machine, u: UOp, warp: int, taker: int, giver: int) -> OutOfBoundsError | WarpError:
    per_block = -(-m.threads // WARP)
    thread = warp % per_block * WARP
    if thread + giver >= m.threads:
        return OutOfBoundsError(
            f"SHUFFLE at {where_from(u)}: thread {thread + taker} reads lane {giver}, "
            f"the block has {m.threads} threads only"
        )
    return WarpError(
        f"SHUFFLE at {where_from(u)}: lane {taker} of warp {_warp_text(m, warp)} reads lane "
        f"{giver}, which takes no part"
    )


def vote(m: Machine, u: UOp) -> None:
    active = meet(m, u, u.arg.members)
    yes = m.warps(m.full(u.src[0]), False) & active
    if u.arg.vote is Vote.BALLOT:
        bits = np.where(yes, np.uint32(1) << np.arange(WARP, dtype=np.uint32), np.uint32(0))
        said = np.bitwise_or.reduce(bits, axis=1).astype(np.uint32)
    elif u.arg.vote is Vote.ANY:
        said = yes.any(axis=1)
    else:
        said = (yes | ~active).all(axis=1)
    m.values[u] = m.unwarps(np.repeat(said, WARP))


_REDUCE: dict[Combine, np.ufunc] = {
    Combine.ADD: np.add,
    Combine.MIN: np.minimum,
    Combine.MAX: np.maximum,
    Combine.AND: np.bitwise_and,
    Combine.OR: np.bitwise_or,
    Combine.XOR: np.bitwise_xor,
}


def warp_reduce(m: Machine, u: UOp) -> None:
    active, d = meet(m, u, u.arg.members), u.dtype
    nothing = {Combine.MIN: d.max, Combine.MAX: d.min, Combine.AND: d.max}
    fill = np.asarray(nothing.get(u.arg.combine, 0), d.numpy)
    x = np.where(active, m.warps(m.full(u.src[0]), fill), fill)
    total = _REDUCE[u.arg.combine].reduce(x, axis=1, dtype=d.numpy)
    m.values[u] = m.unwarps(np.repeat(total, WARP))


# ---- one lane after another
_CHANGE = {
    Atomic.ADD: Ops.ADD,
    Atomic.MIN: Ops.MIN,
    Atomic.MAX: Ops.MAX,
    Atomic.AND: Ops.AND,
    Atomic.OR: Ops.OR,
    Atomic.XOR: Ops.XOR,
}


def atomic(m: Machine, u: UOp) -> None:
    """In the order of lanes: those that touch one element go one after another."""
    elements, places = m.places(u, u.src[0], 1, m.active)
    lanes = m.doers()
    where = np.broadcast_to(places, m.lanes)[lanes]
    operands = [m.full(s)[lanes] for s in u.src[1:]]
    old = np.zeros(m.lanes, u.dtype.numpy)
    turn = _turns(where)
    for n in range(int(turn.max(initial=-1)) + 1):
        now = turn == n
        at = where[now]
        before = elements[at].copy()
        old[lanes[now]] = before
        elements[at] = _changed(u, before, [x[now] for x in operands])
    m.values[u] = old


def _turns(where: Array) -> Array:
    """For each lane, how many lanes before it touch the same element."""
    by_place = np.argsort(where, kind="stable")
    sorted_places = where[by_place]
    new = np.ones(where.size, bool)
    new[1:] = sorted_places[1:] != sorted_places[:-1]
    position = np.arange(where.size)
    turn = np.empty(where.size, np.int64)
    turn[by_place] = position - np.maximum.accumulate(np.where(new, position, 0))
    return turn


def _changed(u: UOp, old: Array, operands: list[Array]) -> Array:
    how: Atomic = u.arg.atomic
    if how is Atomic.EXCHANGE:
        return operands[0]
    if how is Atomic.CAS:
        bits = f"u{u.dtype.itemsize}"
        return np.where(old.view(bits) == operands[1].view(bits), operands[0], old)
    if flushes(u):
        return _flushed(compute(_CHANGE[how], u.dtype, [_flushed(old), _flushed(operands[0])]))
    return compute(_CHANGE[how], u.dtype, [old, operands[0]])


def _flushed(x: Array) -> Array:
    """f32 with a zero of their sign for denormals."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


# ---- barriers
class Barriers:
    """Barriers of blocks by number, 0 for __syncthreads: who has arrived, how often all have."""

    def __init__(self, m: Machine) -> None:
        self.arrived = np.zeros((m.blocks, 16), np.int64)
        self.passed = np.zeros((m.blocks, 16), np.int64)

    def arrive(self, m: Machine, u: UOp) -> Ready | None:
        """The active lanes arrive; None where they need not wait."""
        a: BarrierArg = u.arg or BarrierArg()
        if a.scope is BarrierScope.WARP:
            meet(m, u, a.members)
            return None
        if a.scope in OF_CLUSTERS:
            self._all_of_clusters(m, u)
            return None
        named = a.scope is BarrierScope.NAMED
        lanes = m.doers()
        number = m.full(u.src[0])[lanes] if named else np.zeros(lanes.size, np.int64)
        if ((number < 0) | (number > 15)).any():
            raise SpecError(f"BARRIER at {where_from(u)}: there is no barrier {number.max()}")
        at = (m.block[lanes], number)
        before = self.passed[at].copy()
        np.add.at(self.arrived, at, 1)
        threads = a.threads if named else m.threads
        if (self.arrived[at] > threads).any():
            raise SpecError(
                f"BARRIER at {where_from(u)}: more threads arrive than the {threads} it waits for"
            )
        full = self.arrived == threads
        touched = np.zeros_like(full)
        touched[at] = True
        self.passed[full & touched] += 1
        self.arrived[full & touched] = 0
        return lambda: bool((self.passed[at] > before).all())

    def _all_of_clusters(self, m: Machine, u: UOp) -> None:
        """All threads do each step together: those of a cluster are here, or none of them."""
        here = np.ones(m.lanes, bool) if m.active is None else m.active
        clusters = here.reshape(-1, m.cluster * m.threads)
        if (clusters.any(axis=1) != clusters.all(axis=1)).any():
            raise SpecError(
                f"BARRIER at {where_from(u)}: some threads of a cluster do not come to it"
            )

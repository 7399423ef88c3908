"""What would order two accesses that nothing orders, and where it belongs.

The answer follows from who the two are: blocks, roles, warps and lanes meet in different ways, and
work that an engine does has to be waited for.  The place follows from the tree (`standing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from uopc.faults.errors import Access
from uopc.faults.standing import Between, Standing, between
from uopc.faults.words import THREAD, called, range_text
from uopc.uop.node import UOp
from uopc.uop.ops import BarrierArg, BarrierScope, Engine, Fence, Ops

BULK, CP_ASYNC, WGMMA = "bulk", "cp.async", "wgmma"
#: engines whose accesses go by the asynchronous proxy
OTHER_PROXY = frozenset((BULK, WGMMA))


@dataclass(frozen=True)
class Meeting:
    """Two accesses in the order in which the program has them.

    loop: the loop whose end lies between the two, None where they are of one iteration; gap: what
    stands between them in the text, the upper one first, None where the text is not known.
    below: second stands below first in the text.
    """

    first: Access
    second: Access
    loop: UOp | None
    gap: Between | None
    below: bool


def meet(met: Access, now: Access, where: Mapping[UOp, Standing]) -> Meeting:
    """Order two accesses by their loops' values and then by the text.

    Where these values are not known, the order in which the emulator met them tells: the one met
    first can stand below the other only across the end of a loop around both.
    """
    a, b = where.get(met.node), where.get(now.node)
    if a is None or b is None:
        return Meeting(met, now, None, None, True)
    in_text = a.number < b.number
    gap = between(a, b) if in_text else between(b, a)
    loops = [r for r in a.loops if r in b.loops]
    if met.block == now.block:
        for r in loops:
            name = range_text(r.arg)
            mine, its = met.loops.get(name), now.loops.get(name)
            if mine is None or its is None:
                break
            if mine != its:
                step = r.arg.step
                if (mine > its) == (step > 0):
                    return Meeting(now, met, r, gap, not in_text)
                return Meeting(met, now, r, gap, in_text)
        known = all(range_text(r.arg) in met.loops for r in loops)
        if loops and not known and not in_text:
            return Meeting(met, now, loops[-1], gap, False)
    return Meeting(met, now, None, gap, True) if in_text else Meeting(now, met, None, gap, True)


def what_orders(m: Meeting, where: Mapping[UOp, Standing]) -> str:
    """One sentence: what has to stand between the two, and where."""
    first, second = m.first, m.second
    if first.block != second.block:
        return _between_blocks(m, where)
    if first.engine != THREAD or second.engine != THREAD:
        return _asynchronous(m, where)
    if first.node is second.node and m.loop is None:
        return (
            f"several threads do {called(first.node)} on one element: let one of them do it, or "
            "give each an element of its own"
        )
    if "atomic" in (first.kind, second.kind):
        return f"{_meeting_point(m)}; an atomic orders no ordinary access"
    return _meeting_point(m)


def _between_blocks(m: Meeting, where: Mapping[UOp, Standing]) -> str:
    """Fences around an atomic order blocks too, where the kernel has one."""
    first, second = called(m.first.node), called(m.second.node)
    usual = (
        "blocks of one launch run in any order: let one block own the element, use an atomic, "
        "or make two kernels"
    )
    if not any(_is_atomic(u) for u in where):
        return usual
    atomics = _between(m, where, _is_atomic)
    if not atomics:
        return (
            f"{usual}; or hand it over: fence({Fence.DEVICE}) and then an atomic by the block that "
            f"is done, an atomic that finds this and then fence({Fence.DEVICE}) by the next one"
        )
    flag = called(atomics[0])
    fences = [where[u].number for u in _between(m, where, _is_device_fence)]
    missing = []
    if not any(n < where[atomics[-1]].number for n in fences):
        missing.append(f"fence({Fence.DEVICE}) after {first} and before {flag}")
    if not any(n > where[atomics[0]].number for n in fences):
        missing.append(f"fence({Fence.DEVICE}) after {flag} and before {second}")
    if not missing:
        missing.append(f"do {second} only where the value of {flag} shows that it may")
    return f"{usual}; or hand it over: {', and '.join(missing)}"


def _asynchronous(m: Meeting, where: Mapping[UOp, Standing]) -> str:
    """Work of an engine: waited for by what needs it, asked for after what it needs."""
    first, second = m.first, m.second
    if first.engine == THREAD:
        fence = ", and fence(PROXY_ASYNC) before that" if second.engine in OTHER_PROXY else ""
        soon = f"{second.engine} work may begin as soon as it is asked for"
        return f"{_meeting_point(m)}{fence}: {soon}"
    before = f"before {called(second.node)}{_next(m)}"
    own = (first.warp, first.lane) == (second.warp, second.lane)
    if first.engine == CP_ASYNC:
        only = "a thread's wait is for its own copies only"
        waits = _between(m, where, _waits_for_copies)
        met = _between(m, where, _is_barrier)
        if waits and (own or (met and where[met[-1]].number > where[waits[-1]].number)):
            return (
                f"let {called(waits[-1])} cover the copy: a COMMIT between the two, and fewer "
                "groups pending"
            )
        if waits:
            return f"a barrier after {called(waits[-1])} and {before}: {only}"
        then = "" if own else f", then a barrier: {only}"
        return f"wait_group(CP_ASYNC) {before}{then}"
    if first.engine == WGMMA:
        then = "" if first.warp // 4 == second.warp // 4 else ", then a barrier or an arrive"
        return f"wait_group(WGMMA) {before}{then}: until then the tensor cores read the tile"
    if first.kind == "read":
        then = "" if own else ", then a barrier"
        return f"wait_group(BULK, read=True) by the thread that stored, {before}{then}"
    return f"wait for the phase of the copy's mbarrier {before}"


def _between(m: Meeting, where: Mapping[UOp, Standing], wanted: Callable[[UOp], bool]) -> list[UOp]:
    """Nodes of a kind that stand between the two in the text, in its order."""
    a, b = where.get(m.first.node), where.get(m.second.node)
    if a is None or b is None:
        return []
    return [u for u, at in where.items() if a.number < at.number < b.number and wanted(u)]


def _waits_for_copies(u: UOp) -> bool:
    return u.op is Ops.WAITG and u.arg.engine is Engine.CP_ASYNC


def _is_atomic(u: UOp) -> bool:
    return u.op is Ops.ATOMIC


def _is_device_fence(u: UOp) -> bool:
    return u.op is Ops.FENCE and u.arg is Fence.DEVICE


def _is_barrier(u: UOp) -> bool:
    return u.op is Ops.BARRIER and (u.arg or BarrierArg()).scope is not BarrierScope.WARP


def _is_syncwarp(u: UOp) -> bool:
    return u.op is Ops.BARRIER and not _is_barrier(u)


def _next(m: Meeting) -> str:
    return " of the next iteration" if m.loop is not None and not m.below else ""


def _meeting_point(m: Meeting) -> str:
    """A barrier, a __syncwarp or a pair of arrive and wait, and its place."""
    first, second = m.first, m.second
    if _of_two_roles(m):
        return (
            f"roles meet through an mbarrier: an arrive after {called(first.node)} (and after a "
            f"__syncwarp, where one lane arrives for its warp), a wait before {called(second.node)}"
        )
    same_warp = first.warp == second.warp
    what = "a __syncwarp" if same_warp else "a barrier"
    why = " (lanes of a warp are not in lockstep)" if same_warp else ""
    inside = [s for s in (m.gap.around if m.gap else ()) if s.op is Ops.IF]
    if m.gap is not None and m.gap.same and m.loop is None:
        return (
            f"{called(first.node)} reads and writes in one statement: read into a register, then "
            f"{what}{why}, then write"
        )
    if inside and not same_warp:
        why = f", outside of {called(inside[0])}: all threads of the block come to a barrier"
    return f"{what} {_where(m)}{why}"


def _of_two_roles(m: Meeting) -> bool:
    if m.gap is None:
        return False
    return all(any(s.op is Ops.ROLE for s in side) for side in (m.gap.leaves, m.gap.enters))


def _where(m: Meeting) -> str:
    """After what, and before what; or at the end of which loop."""
    first, second = called(m.first.node), called(m.second.node)
    if m.loop is not None and not m.below:
        return (
            f"at the end of {called(m.loop)}, after {first} and before {second} of the next "
            f"iteration"
        )
    left = [s for s in (m.gap.leaves if m.gap else ()) if s.op is Ops.RANGE]
    after = f"after {called(left[0])}" if left else f"after {first}"
    return f"{after} and before {second}"


def too_weak(m: Meeting, where: Mapping[UOp, Standing]) -> str:
    """A note on a __syncwarp that stands between accesses of two warps, and does not help."""
    first, second = m.first, m.second
    if first.warp == second.warp or first.block != second.block or first.engine != THREAD:
        return ""
    found = [] if _of_two_roles(m) else _between(m, where, _is_syncwarp)
    return f"{called(found[0])} between them is for the lanes of one warp" if found else ""

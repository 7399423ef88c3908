"""Both halves of a split reduction in one launch: the block that comes last folds.  LOOPS, LOOPS
-> LOOPS.

Here because: after `split_grid` both halves are kernels, and once they are lowered they are chains
of effects, of which one can follow the other.  A second launch costs more than the fold.
Before: END(STORE(part, ...))            and          END(STORE(out, fold of part))
After:  STORE(part, ...); BARRIER; the first thread: FENCE, ticket = ATOMIC(tickets + 1), FENCE;
        BARRIER; IF the ticket is the last one: STORE(out, fold of part); tickets = 0

Blocks that differ in the part alone are a group and draw from one ticket; the last one of a group
stores what the group has summed.  Fences on both sides of an atomic order blocks: what the others
stored before they drew is there.  Parts are folded by their number, whoever comes last, so the bits
are the same in every run.  Tickets are zero before a launch and after it.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.dtype import AddrSpace, dtypes
from uopc.passes.bind import hardware_ranges
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, derive, prod, toposort
from uopc.uop.ops import IN_THREAD, Atomic, AxisType, Fence, LaunchArg, Ops, ParamArg, RangeArg


def with_last_block(first: UOp, second: UOp, slot: int) -> tuple[UOp, UOp]:
    """(the kernel, the memory of its tickets at `slot`) of two kernels in LOOPS.

    The second has the first's threads, and its blocks but for those of the part.
    """
    groups = hardware_ranges(second, AxisType.GLOBAL)
    (part,) = [r for r in hardware_ranges(first, AxisType.GLOBAL) if r not in groups]
    lanes = hardware_ranges(first, AxisType.LOCAL)
    leader = ix.conj(*(ix.below(r, 1) for r in lanes))
    count = prod(r.arg.size for r in groups)
    tickets = UOp(Ops.BUFFER, (), ParamArg(slot, dtypes.u32, (count,)))
    mine = tickets.index(ix.flat((r, r.arg.size) for r in groups))
    free = 1 + max((u.arg.slot for u in toposort(first) if u.op is Ops.ALLOC), default=-1)
    drawn = UOp(Ops.ALLOC, (), ParamArg(free, dtypes.u32, (1,), AddrSpace.SHARED, "drawn"))
    c = Cursor(*first.src)
    with c.when(is_last(c, mine, part.arg.size, leader, drawn.index(0), c.barrier)):
        c.done = _following(first, second, free + 1, c.done)
        c.store(mine, 0, leader)
    arg: LaunchArg = first.arg
    return derive(first, c.sink(arg).src, arg), tickets


def is_last(
    c: Cursor, tickets: UOp, blocks: int, leader: UOp, drawn: UOp, meet: Callable[[], UOp]
) -> UOp:
    """Is this the last of `blocks` blocks to come here?  Then what the others stored is there.

    tickets: the element that they count in; leader: which thread draws; drawn: the element of
    SHARED memory that tells the others; meet: a barrier of all threads that ask.
    """
    meet()
    with c.when(leader):
        c.fence(Fence.DEVICE)
        ticket = c.atomic(Atomic.ADD, tickets, 1)
        c.fence(Fence.DEVICE)
        c.store(drawn, ticket)
    meet()
    return c.load(drawn).eq(blocks - 1)


def _following(first: UOp, second: UOp, slot: int, done: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The effects of the second kernel after what is done, with loops of their own, in the first
    one's threads.  What is SHARED in both is one memory: a barrier stands between them."""
    nodes = toposort(first)
    instance = 1 + max((u.arg.instance for u in nodes if u.op is Ops.RANGE), default=0)
    lanes, others = (hardware_ranges(x, AxisType.LOCAL) for x in (first, second))
    table = dict(
        zip(
            [r for r in others if r not in lanes],
            [r for r in lanes if r not in others],
            strict=True,
        )
    )
    shared = {
        (u.arg.dtype, u.arg.shape): u
        for u in nodes
        if u.op is Ops.ALLOC and u.arg.addrspace is AddrSpace.SHARED
    }
    for u in toposort(second):
        if u.op is Ops.RANGE and u.arg.kind in IN_THREAD:
            a: RangeArg = u.arg
            moved = RangeArg(
                a.axis, a.size, a.kind, a.digit, a.instance + instance, a.start, a.step
            )
            table[u] = UOp(Ops.RANGE, (), moved)
        elif u.op is Ops.ALLOC:
            m: ParamArg = u.arg
            alloc = ParamArg(m.slot + slot, m.dtype, m.shape, m.addrspace, m.name)
            own = UOp(Ops.ALLOC, (), alloc)
            both = shared.pop((m.dtype, m.shape), own) if m.addrspace is AddrSpace.SHARED else own
            table[u] = UOp(Ops.AFTER, (both, *done))
        elif u.op is Ops.BUFFER:
            table[u] = UOp(Ops.AFTER, (u, *done))
    return replace(second, table).src

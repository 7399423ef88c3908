"""Some warps of a block bring tiles, the others multiply: two roles that hand tiles over.

`full` says that a tile is there, `empty` that it was read: mbarriers, one each for every place of
the ring.  Those that multiply wait on full and arrive on empty, those that copy the other way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace as with_fields

from uopc.dtype import AddrSpace, dtypes
from uopc.layouts import WARP, WARPGROUP
from uopc.passes.pipeline.fill import copy_box, fill
from uopc.passes.pipeline.multiply import multiply
from uopc.passes.pipeline.parts import whole_sums
from uopc.passes.pipeline.store import store, wait_for_stores
from uopc.passes.pipeline.writer import Writer, form_of, place_in_ring
from uopc.passes.walk import replace
from uopc.plan import REGISTERS_OF_SM, Plan
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, derive, toposort
from uopc.uop.ops import AxisType, Engine, Fence, Ops, RangeArg

#: what setmaxnreg may leave a thread (PTX ISA, setmaxnreg)
MOST_REGISTERS, FEW_REGISTERS, FEWEST_REGISTERS = 240, 40, 32

#: the barrier of all that multiply (those of one group have the first numbers)
CONSUMERS = ix.index(15)


def apart(root: UOp, plan: Plan) -> UOp:
    """The kernel in LOOPS."""
    producers = _group_with_producers(root, plan)
    root = replace(root, dict.fromkeys(_of_kind(root, producers.arg.kind), producers))
    w = Writer(root, plan, producers)
    c = w.c
    full, empty = (
        w.alloc(AddrSpace.MBARRIER, dtypes.u64, plan.depth, name) for name in ("full", "empty")
    )
    boxes = [u.arg.name for u in w.stages if u.arg.engine is Engine.BULK]
    others = [u.arg.name for u in w.stages if u.arg.engine is not Engine.BULK]
    with c.when(ix.below(w.thread, 1)):
        for n in range(plan.depth):
            c.init(full.index(n), bool(boxes) + WARPGROUP * bool(others))
            c.init(empty.index(n), plan.consumers // WARP if w.reads_itself else plan.groups)
        if boxes:
            c.fence(Fence.MBAR_INIT)
    c.barrier()
    first, fewer, more = plan.consumers // WARP, *_registers(plan)
    with c.role("consumer", 0, first, more, grow=True):
        with _tiles(w) as mine:
            _consume(mine, full, empty)
        wait_for_stores(w)
    with c.role("producer", first, WARPGROUP // WARP, fewer):
        _produce(w, full, empty, boxes, others)
    launch = with_fields(root.arg, blocks_per_sm=1)
    return derive(root, c.sink(launch).src, launch)


@contextmanager
def _tiles(w: Writer) -> Iterator[Writer]:
    """The kernel at a tile of this block, for each tile."""
    blocks = w.plan.blocks
    whole = next((r for r in w.launched if r.arg.size > blocks > 0), None)
    if whole is None:
        yield w
        return
    a: RangeArg = whole.arg
    turn = w.range(-(-a.size // blocks), AxisType.LOOP, "k")
    block = UOp(Ops.RANGE, (), with_fields(a, size=blocks))
    tile = ix.add(block, ix.scale(turn, blocks))
    with w.loops(turn), ExitStack() as inside:
        if a.size % blocks:
            inside.enter_context(w.c.when(ix.below(tile, a.size)))
        yield w.over({whole: tile}, turn)


def _consume(w: Writer, full: UOp, empty: UOp) -> None:
    """Sums of every tile of k, then what is stored."""
    c = w.c
    w.start_sums()
    with w.loops(w.step):
        slot, parity = _ring(w, w.step)
        c.wait(full.index(slot), parity)
        multiply(w, slot)
        if w.reads_itself:  # an ordinary read, and then a copy over it
            c.fence(Fence.PROXY_ASYNC)
            c.syncwarp()
        with c.when(ix.below(w.lane if w.reads_itself else w.member, 1)):
            c.arrive(empty.index(slot))
    with whole_sums(w, lambda: c.named_barrier(CONSUMERS, w.plan.consumers)):
        store(w)


def _produce(w: Writer, full: UOp, empty: UOp, boxes: list[str], others: list[str]) -> None:
    """One thread asks for boxes; a warpgroup evaluates and stores what no box can bring."""
    c = w.c
    thread = ix.mod(w.thread, WARPGROUP)
    alone = ix.below(thread, 1)
    step = w.fresh([w.step], AxisType.LOOP)[w.step] if w.steps > 1 else ix.ZERO
    with ExitStack() as inside:
        if not others:
            inside.enter_context(c.when(alone))
        mine = inside.enter_context(_tiles(w))
        inside.enter_context(w.loops(step))
        slot, parity = _ring(mine, step)
        stages = {u.arg.name: u for u in mine.stages}
        c.wait(empty.index(slot), ix.sub(ix.index(1), parity))
        for name in others:
            fill(mine, stages[name], slot, step, thread, WARPGROUP)
        if others:
            if w.by_wgmma:
                c.fence(Fence.PROXY_ASYNC)
            c.arrive(full.index(slot))
        if boxes:
            if others:
                inside.enter_context(c.when(alone))
            c.arrive(full.index(slot), sum(form_of(stages[n]).tile.size_bytes for n in boxes))
            for name in boxes:
                copy_box(mine, stages[name], slot, step, full.index(slot))


def _ring(w: Writer, step: UOp) -> tuple[UOp, UOp]:
    """(place in the ring, parity of the round) of a tile of k, counted through all turns."""
    return place_in_ring(ix.add(ix.scale(w.turn, w.steps), step), w.plan.depth)


def _of_kind(root: UOp, kind: AxisType) -> list[UOp]:
    return [u for u in toposort(root) if u.op is Ops.RANGE and u.arg.kind is kind]


def _group_with_producers(root: UOp, plan: Plan) -> UOp:
    """The range of those that multiply together, with a warpgroup more, which copies."""
    kind = AxisType.WARPGROUP if plan.group_threads > WARP else AxisType.WARP
    known = _of_kind(root, kind)
    axes = [u.arg.axis for u in toposort(root) if u.op is Ops.RANGE]
    axis = known[0].arg.axis if known else 1 + max(axes)
    return UOp(Ops.RANGE, (), RangeArg(axis, plan.threads // plan.group_threads, kind, "p"))


def _registers(plan: Plan) -> tuple[int, int]:
    """(registers of a thread that copies, of one that multiplies): what a block has is shared out
    anew, in steps of 8 (PTX ISA, setmaxnreg)."""
    most = min(MOST_REGISTERS, REGISTERS_OF_SM // plan.threads // 8 * 8)
    groups = plan.consumers // WARPGROUP
    fewer = FEWEST_REGISTERS if groups > 2 else FEW_REGISTERS
    more = (most * (groups + 1) - fewer) // groups // 8 * 8
    return fewer, min(MOST_REGISTERS, more)

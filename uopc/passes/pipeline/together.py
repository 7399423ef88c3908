"""All threads of a block bring tiles, and all multiply: a BARRIER, or two, for each tile of k."""

from __future__ import annotations

from uopc.passes.pipeline.fill import fill
from uopc.passes.pipeline.multiply import multiply
from uopc.passes.pipeline.parts import whole_sums
from uopc.passes.pipeline.store import store
from uopc.passes.pipeline.writer import Writer
from uopc.plan import Plan
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, derive
from uopc.uop.ops import Engine, Fence, LaunchArg


def together(root: UOp, plan: Plan) -> UOp:
    """The kernel in LOOPS."""
    w = Writer(root, plan)
    w.start_sums()
    if plan.depth == 1:
        with w.loops(w.step):
            if w.steps > 1:  # what was read is not overwritten before all have read it
                w.c.barrier()
            _fill(w, ix.ZERO, w.step)
            _commit(w)
            _publish(w, 0)
            multiply(w, ix.ZERO)
    else:
        _through_a_ring(w, plan.depth)
    with whole_sums(w, w.c.barrier):
        store(w)
    launch: LaunchArg = root.arg
    return derive(root, w.c.sink(launch).src, launch)


def _through_a_ring(w: Writer, depth: int) -> None:
    """depth - 1 tiles are on their way when the first is multiplied."""
    for early in map(ix.index, range(depth - 1)):
        if early.arg.bits < w.steps:
            _fill(w, early, early)
        _commit(w)
    with w.loops(w.step):
        _publish(w, depth - 2)
        following = ix.add(w.step, ix.index(depth - 1))
        if w.steps >= depth:
            with w.c.when(ix.below(following, w.steps)):
                _fill(w, ix.mod(following, depth), following)
        _commit(w)
        multiply(w, ix.mod(w.step, depth))


def _fill(w: Writer, slot: UOp, step: UOp) -> None:
    """All threads bring the tiles of one step to their places."""
    for stage in w.stages:
        fill(w, stage, slot, step, w.thread, w.plan.threads)


def _commit(w: Writer) -> None:
    if _copies(w):
        w.c.commit(Engine.CP_ASYNC)


def _publish(w: Writer, pending: int) -> None:
    """The oldest tile is there, for all threads."""
    if _copies(w):
        w.c.wait_group(Engine.CP_ASYNC, pending)
    if w.by_wgmma:
        w.c.fence(Fence.PROXY_ASYNC)
    w.c.barrier()


def _copies(w: Writer) -> bool:
    return any(u.arg.engine is Engine.CP_ASYNC for u in w.stages)

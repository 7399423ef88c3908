"""All threads of a block bring tiles, and all multiply: a BARRIER, or two, for each tile of k."""

from __future__ import annotations

from uopc.passes.pipeline.arithmetic import arithmetic
from uopc.passes.pipeline.fill import fill
from uopc.passes.pipeline.multiply import multiply
from uopc.passes.pipeline.parts import whole_sums
from uopc.passes.pipeline.slices import sums_of_slices
from uopc.passes.pipeline.store import store
from uopc.passes.pipeline.writer import Writer
from uopc.plan import Plan
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, derive
from uopc.uop.ops import Engine, Fence, LaunchArg


def together(root: UOp, plan: Plan) -> UOp:
    """The kernel in LOOPS."""
    w = Writer(root, plan)
    ring = _Ring(w)
    if plan.tensor_core is None:
        arithmetic(w, ring)
    else:
        w.start_sums()
        ring.start()
        with w.loops(w.step):
            ring.begin(w.step)
            multiply(w, ix.mod(w.step, plan.depth))
            if w.steps > 1:
                with w.c.when(ix.below(ix.add(w.step, ix.ONE), w.steps)):
                    ring.follow(w.step)
    with sums_of_slices(w) as meet, whole_sums(w, meet):
        store(w)
    launch: LaunchArg = root.arg
    return derive(root, w.c.sink(launch).src, launch)


class _Ring:
    """depth - 1 tiles are on their way when the first is multiplied."""

    def __init__(self, w: Writer) -> None:
        self.w, self.depth = w, w.plan.depth
        self.copies = any(u.arg.engine is Engine.CP_ASYNC for u in w.stages)

    def start(self) -> None:
        """Ask for the first tiles, and wait for the very first."""
        for early in map(ix.index, range(max(1, self.depth - 1))):
            if early.arg.bits < self.w.steps:
                self._fill(early)
            self._commit()
        self._publish()

    def begin(self, tile: UOp) -> None:
        """Ask for the tile that takes the place of the last one, which all have read."""
        if self.depth == 1:
            return
        following = ix.add(tile, ix.index(self.depth - 1))
        if self.w.steps >= self.depth:
            with self.w.c.when(ix.below(following, self.w.steps)):
                self._fill(following)
        self._commit()

    def follow(self, tile: UOp) -> None:
        """This thread has read a tile: wait until all have, and for the one after it."""
        if self.depth == 1:
            self.w.c.barrier()
            self._fill(ix.add(tile, ix.ONE))
            self._commit()
        self._publish()

    def _fill(self, tile: UOp) -> None:
        """All threads bring a tile to its place."""
        for stage in self.w.stages:
            slot = ix.mod(tile, self.depth)
            fill(self.w, stage, slot, tile, self.w.thread, self.w.plan.threads)

    def _commit(self) -> None:
        if self.copies:
            self.w.c.commit(Engine.CP_ASYNC)

    def _publish(self) -> None:
        """The oldest tile is there, for all threads; and all have read the one before it."""
        if self.copies:
            self.w.c.wait_group(Engine.CP_ASYNC, max(0, self.depth - 2))
        if self.w.by_wgmma:
            self.w.c.fence(Fence.PROXY_ASYNC)
        self.w.c.barrier()

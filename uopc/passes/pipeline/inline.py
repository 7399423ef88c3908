"""All threads of a block multiply, and the first also asks for boxes: mbarriers, no BARRIER.

For sums in registers a role costs too much: ptxas gives all threads of a block equally many
registers, and those of a warp that only copies are lost to the others.

`full` says that a tile is there, `empty` that it was read: mbarriers, one each for every place of
the ring.  A tile is asked for depth - 2 tiles ahead, into the place of one that was read a tile
ago, so that no warp waits for the slowest.  An operand that no box can bring is copied or stored by
all threads, and each warp says on the same `full` when its part of a tile is there.  It has then
also read what lies a tile back, whose place the next copies take: there is no `empty`.
"""

from __future__ import annotations

from uopc.dtype import AddrSpace, dtypes
from uopc.layouts import WARP
from uopc.passes.pipeline.arithmetic import arithmetic
from uopc.passes.pipeline.fill import copy_box, fill
from uopc.passes.pipeline.parts import whole_sums
from uopc.passes.pipeline.slices import sums_of_slices
from uopc.passes.pipeline.store import store
from uopc.passes.pipeline.writer import Writer, form_of, place_in_ring
from uopc.plan import Plan
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, derive
from uopc.uop.ops import Engine, Fence


def inline(root: UOp, plan: Plan) -> UOp:
    """The kernel in LOOPS."""
    w = Writer(root, plan)
    arithmetic(w, _Ring(w))
    with sums_of_slices(w) as meet, whole_sums(w, meet):
        store(w)
    return derive(root, w.c.sink(root.arg).src, root.arg)


class _Ring:
    """boxes, others: the operands that TMA brings, and those that all threads bring."""

    def __init__(self, w: Writer) -> None:
        self.w, self.depth, self.ahead = w, w.plan.depth, max(1, w.plan.depth - 2)
        self.full, self.empty = (
            w.alloc(AddrSpace.MBARRIER, dtypes.u64, self.depth, name) for name in ("full", "empty")
        )
        self.warps = w.plan.threads // WARP
        self.boxes = [u for u in w.stages if u.arg.engine is Engine.BULK]
        self.others = [u for u in w.stages if u.arg.engine is not Engine.BULK]
        self.first_thread, self.first_lane = ix.below(w.thread, 1), ix.below(w.member, 1)

    def start(self) -> None:
        """Ask for the first tiles, and wait for the very first."""
        c = self.w.c
        with c.when(self.first_thread):
            for n in range(self.depth):
                c.init(self.full.index(n), bool(self.boxes) + self.warps * bool(self.others))
                if not self.others:
                    c.init(self.empty.index(n), self.warps)
            if self.boxes:
                c.fence(Fence.MBAR_INIT)
        c.barrier()
        for early in map(ix.index, range(self.ahead)):
            if early.arg.bits < self.w.steps:
                self._ask(early)
            self._commit()
        self._publish(ix.ZERO)
        self._wait(ix.ZERO)

    def begin(self, tile: UOp) -> None:
        """Ask for the tile that takes the place of one that all have read."""
        w = self.w
        following = ix.add(tile, ix.index(self.ahead))
        if w.steps > self.ahead:
            with w.when(ix.below(following, w.steps)):
                self._ask(following, again=True)
        self._commit()
        if self.others and self.ahead > 1 and w.steps > 1:
            with w.when(ix.below(ix.add(tile, ix.ONE), w.steps)):
                self._publish(ix.add(tile, ix.ONE))

    def follow(self, tile: UOp) -> None:
        """This warp has read a tile: wait for the one after it."""
        following = ix.add(tile, ix.ONE)
        if self.boxes:  # an ordinary read, and then a copy over it
            self.w.c.fence(Fence.PROXY_ASYNC)
        if not self.others:
            self._arrive(self.empty, tile)
        elif self.ahead == 1:  # only now: what was asked for has had the tile's time to come
            self._publish(following)
        self._wait(following)

    def _ask(self, tile: UOp, again: bool = False) -> None:
        """Bring a tile; again: once those that read its place before have arrived."""
        w, c = self.w, self.w.c
        slot, parity = place_in_ring(tile, self.depth)
        with w.when(ix.TRUE if self.others else self.first_thread):
            if again and not self.others:
                c.wait(self.empty.index(slot), ix.sub(ix.ONE, parity))
            if self.boxes:
                with w.when(self.first_thread if self.others else ix.TRUE):
                    full = self.full.index(slot)
                    c.arrive(full, sum(form_of(u).tile.size_bytes for u in self.boxes))
                    for stage in self.boxes:
                        copy_box(w, stage, slot, tile, full)
            for stage in self.others:
                fill(w, stage, slot, tile, w.thread, w.plan.threads)

    def _commit(self) -> None:
        if self.others:
            self.w.c.commit(Engine.CP_ASYNC)

    def _publish(self, tile: UOp) -> None:
        """This warp's part of what all threads bring of a tile is there."""
        if self.others:
            self.w.c.wait_group(Engine.CP_ASYNC, self.ahead - 1)
            self._arrive(self.full, tile)

    def _arrive(self, mbarriers: UOp, tile: UOp) -> None:
        """All lanes of this warp have come so far."""
        c = self.w.c
        c.syncwarp()
        with c.when(self.first_lane):
            c.arrive(mbarriers.index(place_in_ring(tile, self.depth)[0]))

    def _wait(self, tile: UOp) -> None:
        slot, parity = place_in_ring(tile, self.depth)
        self.w.c.wait(self.full.index(slot), parity)

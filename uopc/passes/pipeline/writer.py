"""What the parts of the pass share: a kernel's threads and memories, and the cursor that writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy

from uopc.dtype import AddrSpace, DType
from uopc.layouts import WARP, WARPGROUP, OperandTile
from uopc.plan import Plan
from uopc.symbolic import index as ix
from uopc.uop.cursor import Cursor
from uopc.uop.node import Scalar, UOp, prod, toposort
from uopc.uop.ops import AxisType, Ops, ParamArg, RangeArg


class Writer:
    """One kernel of a plan.

    root: MAPPED; producers: the range of those that multiply together, where it has more that copy.

    Attributes
    ----------
    launched: its GLOBAL ranges; total: its REDUCE; step, steps: the range of tiles of k and their
    number; inner: the range inside of a tile; part: that of the blocks that share a sum; slice:
    that of the warps that share a tile's k; digits: those of the sums that a thread holds.
    group: of those that multiply together; lane, member, of_slice, thread: of a thread in its warp,
    in that group, among those of its slice, and in the block; members: the ranges that member is
    made of; holders: threads of a slice, each of which holds sums.
    stages: its staged operands; stores: its STOREs; memory: of operands and of results that leave
    by tensor copies, by name; sums: the thread's; part_sums: those of a tile of k, where they are
    added to the others afterwards.
    turn: the tiles of D that this block has made before; c: the cursor.
    """

    def __init__(self, root: UOp, plan: Plan, producers: UOp | None = None) -> None:
        order = toposort(root)
        self.root, self.plan, self.atom = root, plan, plan.tensor_core
        self.total = next(u for u in order if u.op is Ops.REDUCE)
        ranges = [u for u in order if u.op is Ops.RANGE]
        if producers is not None:
            ranges.append(producers)
        self.part, self.slice, self.step, self.inner = self._closed()
        found = {r.arg.kind: r for r in ranges if r is not self.slice}
        self.group, warp, lane = (
            found.get(kind, ix.ZERO) for kind in (AxisType.WARPGROUP, AxisType.WARP, AxisType.LANE)
        )
        self.lane = lane
        self.members = [r for r in (warp, lane) if r.op is Ops.RANGE]
        self.member = lane if plan.group_threads == WARP else ix.add(ix.scale(warp, WARP), lane)
        self.of_slice = ix.add(ix.scale(self.group, WARPGROUP), ix.add(ix.scale(warp, WARP), lane))
        self.holders = plan.consumers // plan.warps_k
        self.thread = ix.add(ix.scale(self.slice, self.holders), self.of_slice)
        self.steps = self.step.arg.size if self.step.op is Ops.RANGE else 1
        self.launched = [r for r in root.src[0].src[1:] if r.arg.kind is AxisType.GLOBAL]
        self.stores = [end.src[0] for end in root.src]
        self.digits = [r for r in root.src[0].src[1:] if r.arg.kind is AxisType.UPCAST]
        self._slots: dict[AddrSpace, Iterator[int]] = {}
        taken = max(u.arg.slot for u in order if u.op is Ops.BUFFER)
        self._parameters = itertools.count(1 + taken)
        self._axes = itertools.count(1 + max(r.arg.axis for r in ranges))
        stages = {u.arg.name: u for u in order if u.op is Ops.STAGE}
        results = {s.src[1].arg.name for s in self.stores if s.src[1].op is Ops.STAGE}
        self.stages = [u for name, u in stages.items() if name not in results]
        self.memory: dict[str, UOp] = {}
        for name, u in stages.items():
            count = u.arg.depth * (plan.groups if name in results else 1)
            self.memory[name] = self.alloc(AddrSpace.SHARED, u.dtype, count * u.arg.size, name)
        size = prod(r.arg.size for r in self.digits)
        self.sums = self.alloc(AddrSpace.REG, self.total.dtype, size, "sum")
        self.part_sums = (
            self.alloc(AddrSpace.REG, self.total.dtype, size, "part") if plan.promote else None
        )
        self.turn = ix.ZERO
        self.c = Cursor()

    def _closed(self) -> tuple[UOp, UOp, UOp, UOp]:
        """The ranges that the sum closes: of parts of k, of slices and of tiles, and inside of a
        tile."""
        found = {r.arg.kind: r for r in self.total.src[1:]}
        part, slice_, step, inner = (
            found.get(kind, ix.ZERO)
            for kind in (AxisType.GLOBAL, AxisType.WARP, AxisType.REDUCE, AxisType.UPCAST)
        )
        return part, slice_, step, inner

    def over(self, table: dict[UOp, UOp], turn: UOp) -> Writer:
        """The same kernel and cursor where ranges are these expressions, in a turn of a block."""
        other = copy(self)
        other.turn = turn
        other.total = ix.substitute(self.total, table)
        other.stages, other.stores = (
            [ix.substitute(u, table) for u in part] for part in (self.stages, self.stores)
        )
        return other

    @property
    def by_wgmma(self) -> bool:
        return self.atom is not None and self.atom.engine == "wgmma"

    @property
    def reads_itself(self) -> bool:
        """Do threads read operands, not tensor cores alone?"""
        return not self.by_wgmma or (self.atom is not None and self.atom.a.fragment is not None)

    def start_sums(self) -> None:
        """Zeros, for those that add to what is there."""
        if not self.by_wgmma or self.plan.promote:  # else tensor cores start from zero themselves
            self.zero_sums()

    def zero_sums(self) -> None:
        r = self.range(self.sums.arg.shape[0])
        self.store_each(self.sums.index(r), 0, r)

    def parameter(self, dtype: DType, size: int, name: str) -> UOp:
        """A memory of the device that only this kernel uses."""
        return UOp(Ops.BUFFER, (), ParamArg(next(self._parameters), dtype, (size,), name=name))

    def alloc(self, space: AddrSpace, dtype: DType, size: int, name: str) -> UOp:
        slot = next(self._slots.setdefault(space, itertools.count()))
        return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), space, name))

    def range(self, size: int, kind: AxisType = AxisType.UPCAST, digit: str = "u") -> UOp:
        axis = next(self._axes)
        return ix.ZERO if size == 1 else UOp(Ops.RANGE, (), RangeArg(axis, size, kind, digit))

    def store_each(self, to: UOp, value: Scalar, *ranges: UOp, gate: UOp = ix.TRUE) -> None:
        """A STORE for every value of those that are ranges."""
        real = [r for r in ranges if r.op is Ops.RANGE]
        self.c.store_each(to, value, real, None if gate is ix.TRUE else gate)

    def loops(self, *ranges: UOp) -> ExitStack:
        """Everything inside, for every value of those that are ranges."""
        stack = ExitStack()
        if real := [r for r in ranges if r.op is Ops.RANGE]:
            stack.enter_context(self.c.loop(*real))
        return stack

    def when(self, condition: UOp) -> ExitStack:
        """Everything inside, where the condition holds."""
        stack = ExitStack()
        if condition is not ix.TRUE:
            stack.enter_context(self.c.when(condition))
        return stack

    def fresh(self, digits: Sequence[UOp], kind: AxisType = AxisType.UPCAST) -> dict[UOp, UOp]:
        """Ranges of the same sizes, for another loop."""
        return {r: self.range(r.arg.size, kind, r.arg.digit) for r in digits}


def form_of(stage: UOp) -> OperandTile:
    form: OperandTile = stage.arg.layout
    return form


def coordinates(stage: UOp) -> tuple[UOp, UOp]:
    """The ranges of rows and of k of a staged tile."""
    form, ranges = form_of(stage), list(stage.src[4:])
    r = ranges.pop(0) if form.rows > 1 else ix.ZERO
    return r, ranges.pop(0) if form.k > 1 else ix.ZERO


def place_in_ring(tile: UOp, depth: int) -> tuple[UOp, UOp]:
    """(place, parity of the round) of a tile."""
    return ix.mod(tile, depth), ix.mod(ix.div(tile, depth), 2)


def flat(digits: Sequence[UOp], now: Mapping[UOp, UOp]) -> UOp:
    """The row-major place of digits as they are now."""
    return ix.flat((now[r], r.arg.size) for r in digits)


def index_of(x: UOp | int) -> UOp:
    return ix.index(x) if isinstance(x, int) else x


def place_in_tile(form: OperandTile, row: UOp, k: UOp) -> UOp:
    """Where an element of an operand lies, in elements from its tile's first."""
    return ix.canonical(index_of(form.index(row, k)))

"""Stage LOOPS: effects in their order, every thread of the grid as one lane of numpy vectors.

GLOBAL, LOCAL, LANE, WARP, WARPGROUP and THREAD ranges are lanes (the iterations of a THREAD loop
are independent by definition); the other ranges are Python loops.  All threads do each step
together, so a missing barrier does not show here: the checked emulator finds those.  A node stands
in the innermost scope among its free ones and is computed once per iteration of it; nodes of one
scope follow in the order of `in_order`.  Float work is done op by op in its dtype, as the kernel
does it.

Roles take turns: each goes on until it waits for an mbarrier or a barrier that is not ready.
Asynchronous copies and MMAs are done at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from uopc.errors import SpecError
from uopc.uop.facts import free
from uopc.uop.node import UOp, toposort, where_from
from uopc.uop.numbers import Array, array_of, compute
from uopc.uop.ops import EFFECTS, ELEMENTWISE, WHOLE_KERNEL, AxisType, Ops
from uopc.uop.oracle import engines, matrix, warps
from uopc.uop.oracle.access import AssertedError, Given, bind, lengths, shaped, stored_slots
from uopc.uop.oracle.machine import WARP, Machine
from uopc.uop.order import in_order
from uopc.uop.text import scope_text

_LANES = WHOLE_KERNEL | {AxisType.THREAD}


@dataclass(eq=False)
class Scope:
    """A loop, an IF or a ROLE (opener None: the kernel itself) around its items, in order."""

    opener: UOp | None
    items: list[Item] = field(default_factory=list)


Item: TypeAlias = "UOp | Scope"


def run_loops(sink: UOp, arrays: Given) -> dict[int, Any]:
    """`run` for LOOPS."""
    order = toposort(sink)
    slots = stored_slots(order)
    machine = Machine(order, sink, bind(order, arrays, slots), lengths(order, arrays))
    with np.errstate(all="ignore"):
        _Run(machine).run(program(sink))
    return shaped(machine.parameters, arrays, order, slots)


# ---- the order
def program(sink: UOp) -> Scope:
    """The tree of a kernel's scopes with the nodes that stand in each, in order.

    END(effect, r0, r1) opens r0 around r1, inside the innermost scope among its free ones.  Each
    scope has one END and nothing outlives it (spec), so the free scopes of a node are nested: of
    two of them, the END that closes one has the other free.  Raises SpecError where that is not so.
    """
    order = in_order(sink)
    parent: dict[UOp, UOp | None] = {}
    depth: dict[UOp, int] = {}

    def innermost(u: UOp) -> UOp | None:
        return max((r for r in free(u) if r in depth), key=depth.__getitem__, default=None)

    for u in reversed(order):  # outer ENDs come first
        if u.op is Ops.END:
            outer = innermost(u)
            for r in _opened(u):
                if r in depth:
                    raise SpecError(f"END at {where_from(u)}: {scope_text(r)} is closed twice")
                parent[r], depth[r] = outer, 0 if outer is None else depth[outer] + 1
                outer = r
    if left := [r for r in free(sink) if not _is_lane(r)]:
        raise SpecError(
            f"SINK at {where_from(sink)}: {scope_text(left[0])} is used outside its END"
        )
    top = Scope(None)
    inside: dict[UOp | None, Scope] = {None: top, **{r: Scope(r) for r in parent}}
    for u in order:
        if u.op is Ops.END:
            for r in _opened(u):
                inside[parent[r]].items.append(inside[r])
        elif u.op in ELEMENTWISE or u.op in _STEPS:
            inside[innermost(u)].items.append(u)
    return top


def _is_lane(scope: UOp) -> bool:
    return scope.op is Ops.RANGE and scope.arg.kind in _LANES


def _opened(end: UOp) -> list[UOp]:
    return [r for r in end.src[1:] if not _is_lane(r)]


# ---- the run
#: what runs until it waits, and gives the node that it waits at
Task: TypeAlias = Generator[UOp, None, None]


@dataclass
class _Frame:
    """A scope under way: its lanes, its next item, its iteration."""

    scope: Scope
    active: Array | None
    next: int = 0
    iteration: int = 0

    @property
    def item(self) -> Item | None:
        """The next item; None at the end of an iteration."""
        return self.scope.items[self.next] if self.next < len(self.scope.items) else None


class _Run:
    """The kernel, and its roles while they are under way, taking turns."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.barriers = warps.Barriers(machine)
        self.mbarriers = engines.Mbarriers()
        self.tasks: dict[UOp | None, Task] = {}  # by ROLE; None: the kernel itself
        self.moves = 0

    def run(self, top: Scope) -> None:
        self.tasks[None] = self._task(top, None, [])
        while self.tasks:
            before, waiting = self.moves, []
            for role, task in list(self.tasks.items()):
                at = next(task, None)
                if at is None:
                    del self.tasks[role]
                    self.moves += 1
                elif at.op is not Ops.ROLE:
                    name = "the kernel" if role is None else scope_text(role)
                    waiting.append(f"{name} waits at the {at.op} at {where_from(at)}")
            if self.moves == before:
                raise SpecError(
                    f"{', '.join(waiting)}, and nothing else can go on. The oracle has no order "
                    "for roles that wait for each other like this: emulate it"
                )

    def _task(self, top: Scope, active: Array | None, opened: list[UOp]) -> Task:
        """Run the items of each scope for each of its values, with a stack of our own."""
        m = self.machine
        frames = [_Frame(top, active)]
        started: list[UOp] = []  # roles
        while frames:
            frame = frames[-1]
            item = frame.item
            while _comes_after(item, started) and any(r in self.tasks for r in started):
                yield started[-1]
            frame.next += 1
            if item is None:
                self._next_iteration(frames, opened)
            elif isinstance(item, Scope):
                self._enter(item, frames, opened, started)
            else:
                m.active, m.open = frame.active, opened
                self.moves += 1
                ready = self._step(item)
                while ready is not None and not ready():
                    yield item

    def _enter(
        self, scope: Scope, frames: list[_Frame], opened: list[UOp], started: list[UOp]
    ) -> None:
        opener, active, m = scope.opener, frames[-1].active, self.machine
        assert opener is not None
        if opener.op is Ops.RANGE:
            frames.append(_Frame(scope, active))
            opened.append(opener)
            m.values[opener] = np.asarray(opener.arg.start)
            return
        if opener.op is Ops.IF:
            inside = m.full(opener.src[0])
        else:
            a, warp = opener.arg, m.thread // WARP
            inside = (warp >= a.first) & (warp < a.first + a.warps)
        inside = inside if active is None else inside & active
        if not inside.any():
            return
        if opener.op is Ops.IF:
            frames.append(_Frame(scope, inside))
        else:
            self.tasks[opener] = self._task(Scope(None, scope.items), inside, list(opened))
            started.append(opener)

    def _next_iteration(self, frames: list[_Frame], opened: list[UOp]) -> None:
        frame, opener = frames[-1], frames[-1].scope.opener
        if opener is None or opener.op is not Ops.RANGE:
            frames.pop()
            return
        frame.iteration += 1
        if frame.iteration == opener.arg.size:
            frames.pop()
            opened.pop()
            return
        frame.next = 0
        self.machine.values[opener] = np.asarray(
            opener.arg.start + opener.arg.step * frame.iteration
        )

    def _step(self, u: UOp) -> warps.Ready | None:
        if u.op in ELEMENTWISE:
            values = self.machine.values
            values[u] = compute(u.op, u.src[-1].dtype, [values[s] for s in u.src], u.arg)
            return None
        return _STEPS[u.op](self, u)


def _comes_after(item: Item | None, started: list[UOp]) -> bool:
    """Does an item wait for roles that were started before it?  Values and other warps do not."""
    if isinstance(item, Scope) and (role := item.opener) is not None and role.op is Ops.ROLE:
        a = role.arg
        return any(
            r.arg.first < a.first + a.warps and a.first < r.arg.first + r.arg.warps for r in started
        )
    return bool(started) and (item is None or isinstance(item, Scope) or item.op in EFFECTS)


# ---- the ops
def _const(m: Machine, u: UOp) -> None:
    m.values[u] = array_of(u.arg).astype(u.dtype.numpy)


def _scalar(m: Machine, u: UOp) -> None:
    if u.shape == ():
        m.values[u] = m.parameters[u.arg.slot].reshape(())


def _index(m: Machine, u: UOp) -> None:
    m.values[u] = m.values[u.src[1]]


def _after(m: Machine, u: UOp) -> None:
    if u.src[0] in m.values:  # a version of a value; those of memories have none
        m.values[u] = m.values[u.src[0]]


def _width(u: UOp) -> int:
    return 1 if u.arg is None else u.arg.width


def _load(m: Machine, u: UOp) -> None:
    gated = len(u.src) == 3
    gate = m.doing(u.src[1] if gated else None)
    other = m.values[u.src[2]] if gated else np.zeros((), u.dtype.numpy)
    m.values[u] = m.read(u, u.src[0], _width(u), gate, other)


def _store(m: Machine, u: UOp) -> None:
    gate = m.doing(u.src[2] if len(u.src) == 3 else None)
    m.write(u, u.src[0], m.values[u.src[1]], _width(u), gate)


def _assert(m: Machine, u: UOp) -> None:
    fails = ~m.full(u.src[0])
    fails = fails if m.active is None else fails & m.active
    if fails.any():
        lane = int(np.argmax(fails))
        at = ", ".join(f"{n} = {np.broadcast_to(x, m.lanes)[lane]}" for n, x in m.place().items())
        raise AssertedError(f"ASSERT at {where_from(u)}: {u.arg} (at {at})")


def _nothing(m: Machine, u: UOp) -> None:
    """Orders what is already done in order, or shows it."""


def _simple(step: Callable[[Machine, UOp], None]) -> Callable[[_Run, UOp], None]:
    return lambda run, u: step(run.machine, u)


_STEPS: dict[Ops, Callable[[_Run, UOp], warps.Ready | None]] = {
    Ops.CONST: _simple(_const),
    Ops.BUFFER: _simple(_scalar),
    Ops.INDEX: _simple(_index),
    Ops.AFTER: _simple(_after),
    Ops.LOAD: _simple(_load),
    Ops.STORE: _simple(_store),
    Ops.SHUFFLE: _simple(warps.shuffle),
    Ops.VOTE: _simple(warps.vote),
    Ops.WARP_REDUCE: _simple(warps.warp_reduce),
    Ops.ATOMIC: _simple(warps.atomic),
    Ops.BARRIER: lambda run, u: run.barriers.arrive(run.machine, u),
    Ops.COPY: lambda run, u: engines.copy(run.machine, u, run.mbarriers),
    Ops.MBAR_INIT: lambda run, u: run.mbarriers.init(run.machine, u),
    Ops.ARRIVE: lambda run, u: run.mbarriers.arrive(run.machine, u),
    Ops.WAIT: lambda run, u: run.mbarriers.waits(run.machine, u),
    Ops.DESCRIPTOR: _simple(matrix.describe),
    Ops.LDMATRIX: _simple(matrix.move),
    Ops.STMATRIX: _simple(matrix.move),
    Ops.MMA: _simple(matrix.mma),
    Ops.ASSERT: _simple(_assert),
    **dict.fromkeys((Ops.COMMIT, Ops.WAITG, Ops.FENCE, Ops.PRINTF), _simple(_nothing)),
}

"""Loads from shared memory that cannot race: nothing stores to that memory between two barriers.

An *interval* is a maximal part of a program without a barrier of the block inside: what barriers
leave when they cut the text, joined again around the ends of loops, where control goes from the
last part of a body back to its first, and on to what follows.

Why such a load needs no check of races, and why no later write needs to know of it.  Barriers of
the block stand in no condition here and loops have the same number of rounds in every thread, so
that all threads of a block come to the same barriers in the same order.  Take a load by one thread,
in interval I, and a store to the same memory by another one.  Between two barriers that follow each
other every thread is in one interval, the same for all, since a way from one barrier to the next
crosses no cut; and I has no such store.  So the two threads were at the load and at the store with
another number of barriers behind them, and each barrier between orders all that came before it
before all that comes after.  A load that finds nothing written is still a fault.

Where the argument does not hold, no load is named: in kernels with roles, named barriers, or
barriers of the block in a condition; and of memories that anything but LOAD and STORE touches:
engines, tensor cores and atomics have an order of their own.  A text whose barriers can be left
out one at a time (`mutate`) has no intervals either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from uopc.dtype import AddrSpace
from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.render.operands import operands
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import BarrierArg, BarrierScope, Ops


def calm_loads(program: ProgramTree) -> frozenset[UOp]:
    """LOADs from SHARED memory with no STORE to it in any interval in which their text stands."""
    if not _in_step(program.items):
        return frozenset()
    intervals = _Intervals(program)
    apart = _touched_by_others(program)
    stored = {(intervals.root(at), m) for at, m in intervals.stores}
    stormy = {u for at, u in intervals.loads if (intervals.root(at), memory(u.src[0])) in stored}
    return frozenset(
        u
        for _, u in intervals.loads
        if u not in stormy and memory(u.src[0]) not in apart and _is_shared(memory(u.src[0]))
    )


def _is_shared(m: UOp) -> bool:
    return bool(m.arg.addrspace is AddrSpace.SHARED)


def _scope(u: UOp) -> BarrierScope:
    return (u.arg or BarrierArg()).scope


def _in_step(items: Iterable[Item]) -> bool:
    """Do all threads of a block come to its barriers in the same order?"""
    stack = [(item, False) for item in items]
    while stack:
        item, conditional = stack.pop()
        if isinstance(item, Scope):
            if item.opener.op is Ops.ROLE:
                return False
            inside = conditional or item.opener.op is Ops.IF
            stack += [(i, inside) for i in item.items]
        elif isinstance(item, Do) and item.effect.op is Ops.BARRIER:
            scope = _scope(item.effect)
            if scope is BarrierScope.NAMED or (scope is BarrierScope.BLOCK and conditional):
                return False
    return True


def _touched_by_others(program: ProgramTree) -> set[UOp]:
    """Memories that something else than LOAD and STORE mentions."""
    found: set[UOp] = set()
    for u in toposort(program.sink):
        mine = u.src[0] if u.op in (Ops.LOAD, Ops.STORE) else None
        found.update(memory(s) for s in u.src if s.op is Ops.INDEX and s is not mine)
    return found


class _Intervals:
    """Numbers of intervals, with the loads and stores that stand in each."""

    def __init__(self, program: ProgramTree) -> None:
        self.joined: list[int] = [0]  # a union-find: the number that each one was joined with
        self.loads: list[tuple[int, UOp]] = []
        self.stores: list[tuple[int, UOp]] = []
        self.named = {item.value for item in program.walk() if isinstance(item, Let)}
        self._walk(program.items)

    def root(self, at: int) -> int:
        while self.joined[at] != at:
            at = self.joined[at]
        return at

    def _walk(self, items: Iterable[Item]) -> None:
        """Every item in order; a loop that ends joins its last interval with the first."""
        now = 0
        stack: list[Iterator[Item]] = [iter(items)]
        entered: list[int] = []  # the intervals before the scopes that are open
        while stack:
            item = next(stack[-1], None)
            if item is None:
                stack.pop()
                if entered:
                    self.joined[self.root(now)] = self.root(entered.pop())
            elif isinstance(item, Scope):
                self._text(now, operands(item.opener))
                entered.append(now)
                stack.append(iter(item.items))
            elif isinstance(item, Do) and _cuts(item.effect):
                now = len(self.joined)
                self.joined.append(now)
            elif not isinstance(item, Declare):
                self._item(now, item)

    def _item(self, now: int, item: Let | Do) -> None:
        u = item.value if isinstance(item, Let) else item.effect
        if u.op is Ops.STORE:
            self.stores.append((now, memory(u.src[0])))
        if u.op is Ops.LOAD:
            self.loads.append((now, u))
        self._text(now, operands(u))

    def _text(self, now: int, roots: Iterable[UOp]) -> None:
        """Loads in the text of these values: down to names."""
        stack, seen = list(roots), set()
        while stack:
            u = stack.pop()
            if u in seen or u in self.named:
                continue
            seen.add(u)
            if u.op is Ops.LOAD:
                self.loads.append((now, u))
            stack.extend(operands(u))


def _cuts(u: UOp) -> bool:
    return u.op is Ops.BARRIER and _scope(u) is BarrierScope.BLOCK


__all__ = ["calm_loads"]

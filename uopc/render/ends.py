"""Loops of which every effect is guarded by i < n: native C runs them to n, without the guard.

A C compiler vectorises the loop that runs to n; the one that asks at each i whether to store it
leaves as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from uopc.kernel import Declare, Do, Item, Let, Scope
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory
from uopc.uop.ops import SERIAL, Ops


def guard_of(scope: Scope) -> UOp | None:
    """The guard LT(i, n) of all that a loop over i does, n the same throughout; None if none is."""
    r = scope.opener
    if r.op is not Ops.RANGE or r.arg.kind not in SERIAL or (r.arg.start, r.arg.step) != (0, 1):
        return None
    mine = {item.alloc for item in _inside(scope) if isinstance(item, Declare)}
    found: list[UOp] | None = None
    for item in _inside(scope):
        if isinstance(item, Let) and item.value.op is Ops.ATOMIC:
            return None
        if not isinstance(item, Do):
            continue
        store = item.effect
        if store.op is not Ops.STORE:
            return None
        if memory(store.src[0]) in mine:  # nobody sees what an iteration leaves in them
            continue
        gates = [g for g in _conjuncts(store.src[2:]) if _ends(g, r)]
        found = gates if found is None else [g for g in found if g in gates]
    return found[0] if found else None


def _inside(scope: Scope) -> Iterator[Item]:
    stack = list(scope.items)
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, Scope):
            stack += item.items


def _conjuncts(gates: tuple[UOp, ...]) -> Iterator[UOp]:
    stack = list(gates)
    while stack:
        g = stack.pop()
        if g.op is Ops.AND:
            stack += g.src
        else:
            yield g


def _ends(gate: UOp, r: UOp) -> bool:
    """Is a gate i < n, true up to some i and false from there on?"""
    if gate.op is not Ops.LT or r in free(gate.src[1]):
        return False
    i = gate.src[0]
    exact = i.op is Ops.CAST and i.dtype.is_int and i.dtype.max >= r.arg.size
    return (i.src[0] if exact else i) is r


__all__ = ["guard_of"]

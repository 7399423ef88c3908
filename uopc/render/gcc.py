"""Float sums of which gcc 12 at -O3 makes wrong code, so that native C can be written otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uopc.dtype import AddrSpace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, memory, toposort
from uopc.uop.ops import WHOLE_KERNEL, Ops


def out_of_order(order: Iterable[UOp]) -> set[UOp]:
    """Loops that must stay loops: they add floats in another order than memory has them.

    A float sum keeps its order.  Of an inner loop that is unrolled, in a loop that goes on adding,
    gcc 12 loads the elements as one vector, and adds some of them twice if they come permuted.
    """
    out: set[UOp] = set()
    for u in order:
        if _accumulates_floats(u):
            loops = _nest(u)
            loads = (x for x in toposort(u.src[1]) if x.op is Ops.LOAD and _global(x))
            if len(loops) > 1 and any(_permuted(x.src[0].src[1], loops) for x in loads):
                out.update(loops)
    return out


def _accumulates_floats(u: UOp) -> bool:
    registers = u.op is Ops.STORE and addrspace(u.src[0]) is AddrSpace.REG
    sums = (Ops.ADD, Ops.MUL, Ops.FMA)
    return registers and u.src[1].op in sums and u.src[1].dtype.is_float


def _nest(store: UOp) -> list[UOp]:
    """The loops around a STORE that its accumulator goes through, outermost first."""
    mine = free(store.src[1]) - free(store.src[0].src[1])
    loops = [r for r in mine if r.arg.kind not in WHOLE_KERNEL]
    return sorted(loops, key=ix.rank)


def _global(load: UOp) -> bool:
    return memory(load.src[0]).op is Ops.BUFFER


def _permuted(offset: UOp, loops: Sequence[UOp]) -> bool:
    """Is memory walked backwards, or with longer steps in an inner loop than in an outer one?"""
    steps = [ix.coefficient(offset, r) for r in loops]
    if None in steps:
        return True
    moves = [s for s in steps if s]
    return any(s < 0 for s in moves) or moves != sorted(moves, reverse=True)

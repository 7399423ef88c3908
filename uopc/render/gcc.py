"""Sums of which gcc 12 at -O3 makes wrong or slow code, so that native C avoids them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uopc.dtype import AddrSpace
from uopc.kernel import Do, Item, Let, ProgramTree, Scope
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


def register_rows(order: Iterable[UOp]) -> set[UOp]:
    """Vector digits along which sums in registers lie side by side.

    They must stay loops until gcc vectorises: it peels short ones first, and then hundreds of
    scalar sums do not fit the registers.
    """
    sums = (u for u in order if _accumulates(u))
    return {r for u in sums for r in free(u.src[0].src[1]) if r.arg.digit == "v"}


def may_vectorise(program: ProgramTree) -> bool:
    """Is no sum of a kernel one that gcc 12's vectoriser makes wrong, whatever its order?

    Those are sums that go on in their innermost loop, and sums of signed integers.  Where each turn
    of the innermost loop adds to another element, as in a register tile, there is nothing to take
    twice.
    """
    stack: list[tuple[Item, UOp | None]] = [(item, None) for item in program.items]
    while stack:
        item, innermost = stack.pop()
        if isinstance(item, Scope):
            inner = item.opener if item.opener.op is Ops.RANGE else innermost
            stack += [(i, inner) for i in item.items]
        elif isinstance(item, Let) and item.value.op is Ops.WARP_REDUCE:
            return False
        elif isinstance(item, Do) and _accumulates(item.effect):
            store = item.effect
            if store.src[1].dtype.is_int or innermost not in free(store.src[0].src[1]):
                return False
    return True


def _accumulates(u: UOp) -> bool:
    """A STORE into registers of what they held, and something."""
    if u.op is not Ops.STORE or addrspace(u.src[0]) is not AddrSpace.REG:
        return False
    m = memory(u.src[0])
    return any(x.op is Ops.LOAD and memory(x.src[0]) is m for x in toposort(u.src[1]))


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

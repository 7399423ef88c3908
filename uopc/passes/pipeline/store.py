"""What becomes of the sums of a thread: the stored value at each of them."""

from __future__ import annotations

from uopc.dtype import AddrSpace
from uopc.passes.pipeline.writer import Writer, flat
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, inherit, prod, toposort
from uopc.uop.ops import Ops


def store(w: Writer, end: UOp) -> None:
    """The stored value, at each sum of the thread; what it loads comes first, neighbours at
    once."""
    now = w.fresh(w.digits)
    *outer, v = now.values() if now else [ix.ZERO]
    with w.loops(*outer):
        total = ix.substitute(w.total, now)
        stored = ix.substitute(end.src[0], now)
        table: dict[UOp, UOp] = {}
        for load in _loads_beside(stored, total):
            along = [v] if v in free(load) else []
            apart = w.fresh(along)
            size = prod(r.arg.size for r in along)
            held = w.alloc(AddrSpace.REG, load.dtype, size, "beside")
            there = replace(ix.substitute(load, apart), table)
            value = inherit(w.c.load(*there.src), there)  # by those alone who store
            w.store_each(held.index(flat(along, apart)), value, *apart.values())
            table[load] = w.c.load(held.index(ix.flat((r, r.arg.size) for r in along)))
        table[total] = w.c.load(w.sums.index(flat(w.digits, now)))
        element, value, *gate = replace(stored, table).src
        w.store_each(element, value, v, gate=gate[0] if gate else ix.TRUE)


def _loads_beside(store: UOp, total: UOp) -> list[UOp]:
    """The LOADs of a stored value that the sum has no part in, those in places of others first."""
    within = set(toposort(total))
    above: set[UOp] = {total}
    found: list[UOp] = []
    for u in toposort(store):
        if not above.isdisjoint(u.src):
            above.add(u)
        elif u.op is Ops.LOAD and u not in within:
            found.append(u)
    return found

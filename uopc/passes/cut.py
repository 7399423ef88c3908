"""A reduction that would be computed again and again is a kernel of its own.  INDEXED -> two.

Here because: on logical axes, before `split`, like `split_grid`.
Before: STORE(out[a1], REDUCE(f(x, REDUCE(x, a2: of row a0)), a0))     a row is reduced per column
After:  STORE(part[a0], REDUCE(x, a2))
        STORE(out[a1], REDUCE(f(x, LOAD(part[a0])), a0))

On a GPU the rows of a block are its threads' own, and a sum over them an exchange.  One thread of a
CPU has loops instead: what depends on the rows is done inside every loop over rows that a column
opens.  Whether that is worse than another kernel, `work` tells.
"""

from __future__ import annotations

from uopc.kernel import ProgramTree, Scope
from uopc.passes.share import share
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, prod, toposort
from uopc.uop.ops import AxisType, Ops, ParamArg, RangeArg


def nested(root: UOp) -> list[UOp]:
    """REDUCEs that stand inside the loops of another one, innermost first."""
    order = toposort(root)
    inside: dict[UOp, set[UOp]] = {}  # REDUCEs at or below a node that some range ties to a loop
    found: dict[UOp, None] = {}
    for u in order:
        below = set().union(*(inside[s] for s in u.src)) if u.src else set()
        if u.op is Ops.REDUCE:
            for x in below:
                if not free(x).isdisjoint(u.src[1:]):
                    found[x] = None
            below = below | {u}
        inside[u] = below
    return [*found]


def cut(root: UOp, reduction: UOp, slot: int) -> tuple[UOp, UOp, tuple[UOp, ...]]:
    """(the kernel that stores a REDUCE, the one that loads it, the partial buffers from `slot`)."""
    kept = sorted(free(reduction), key=lambda r: r.arg.axis)
    sizes = [r.arg.size for r in kept]
    outer = {
        r: UOp(Ops.RANGE, (), RangeArg(n, r.arg.size, AxisType.LOOP)) for n, r in enumerate(kept)
    }
    inner = {
        r: UOp(Ops.RANGE, (), RangeArg(len(kept) + n, r.arg.size, AxisType.REDUCE))
        for n, r in enumerate(sorted(_bound(reduction), key=lambda r: r.arg.axis))
    }
    total = replace(reduction, outer | inner)
    value = reduction.src[0]
    parts = value.src if value.op is Ops.TUPLE else (value,)
    write = ix.flat(zip(outer.values(), sizes, strict=True))
    read = ix.flat(zip(kept, sizes, strict=True))
    effects, loads, buffers = [], [], []
    for k, part in enumerate(parts):
        memory = UOp(Ops.BUFFER, (), ParamArg(slot + k, part.dtype, (prod(sizes),)))
        one = ix.remake(UOp(Ops.ITEM, (total,), k), (total,)) if len(parts) > 1 else total
        store = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (memory, write)), one)), reduction)
        effects.append(UOp(Ops.END, (store, *outer.values())) if outer else store)
        loads.append(UOp(Ops.LOAD, (UOp(Ops.INDEX, (memory, read)),)))
        buffers.append(memory)
    loaded = derive(value, tuple(loads)) if len(parts) > 1 else loads[0]
    second = replace(root, {reduction: loaded})
    return share(UOp(Ops.SINK, tuple(effects))), share(second), tuple(buffers)


def _bound(reduction: UOp) -> set[UOp]:
    """The ranges that a REDUCE and those inside of it close."""
    return {r for u in toposort(reduction) if u.op is Ops.REDUCE for r in u.src[1:]}


def work(tree: ProgramTree) -> int:
    """How many statements one thread executes, all loops counted."""
    total = 0
    stack = [(item, 1) for item in tree.items]
    while stack:
        item, times = stack.pop()
        total += times
        if isinstance(item, Scope):
            size = item.opener.arg.size if item.opener.op is Ops.RANGE else 1
            stack += [(x, times * size) for x in item.items]
    return total

"""What two nests read of a parameter is loaded again for the second one.  LOOPS -> LOOPS.

Here because: after `effects` (nests are final, and what they wait for), before `vectorise`, which
makes each load wide.  Where Opts.keep is "none" alone.
Before: x = END(x[u] = LOAD(p[u]), u); nest of x; BARRIER; nest of x and of what threads exchanged
After:  x and its nest; BARRIER; y = END(y[u] = LOAD(p[u]), u), after it; nest of y and the rest

Between the nests the registers of x are free: more threads fit an SM, and the second LOAD finds its
line in L1.  A nest that waits for nothing that came of x reads x itself.
"""

from __future__ import annotations

from uopc.dtype import AddrSpace
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, inherit, memory, toposort
from uopc.uop.ops import EFFECTS, AxisType, Ops, ParamArg, RangeArg
from uopc.uop.order import written


def reload(root: UOp) -> UOp:
    """LOOPS kernel in which no global load is kept for a later nest."""
    while table := _next(root):
        root = replace(root, table)
    return root


def _next(root: UOp) -> dict[UOp, UOp]:
    """The reads of one nest, and what replaces them; nothing where none is left."""
    order = toposort(root)
    changed = {m for u in order if (m := written(u)) is not None}
    closer = {r: u for u in order if u.op is Ops.END for r in u.src[1:]}
    readers: dict[UOp, dict[UOp, list[UOp]]] = {}
    for u in order:
        if u.op is not Ops.LOAD or not _is_filled(u.src[0].src[0], changed):
            continue
        version, at = u.src[0].src
        nest = next((closer[r] for r in free(at) if r in closer), None)
        if nest is not None:
            readers.setdefault(version, {}).setdefault(nest, []).append(u)
    for version, nests in readers.items():
        for nest, loads in nests.items():
            if waits := _waits(nest, version.src[-1]):
                slot = 1 + max(u.arg.slot for u in order if u.op is Ops.ALLOC)
                number = 1 + max(u.arg.instance for u in order if u.op is Ops.RANGE)
                again = _again(version, waits, slot, number)
                return {
                    u: UOp(Ops.LOAD, (UOp(Ops.INDEX, (again, u.src[0].src[1])),)) for u in loads
                }
    return {}


def _is_filled(version: UOp, changed: set[UOp]) -> bool:
    """Are these registers that one unrolled nest fills from a parameter that is only read?"""
    if version.op is not Ops.AFTER or addrspace(version) is not AddrSpace.REG:
        return False
    end = version.src[-1]
    unrolled = all(r.op is Ops.RANGE and r.arg.kind is AxisType.UPCAST for r in end.src[1:])
    if end.op is not Ops.END or not unrolled or not _loads(end):
        return False
    return memory(end.src[0].src[1].src[0]) not in changed


def _waits(nest: UOp, fill: UOp) -> tuple[UOp, ...]:
    """What a nest comes after that needs what was filled: other nests, and where threads met."""
    found: dict[UOp, None] = {}
    inside = frozenset(nest.src[1:])
    stack, seen = [nest.src[0]], set()
    while stack:
        u = stack.pop()
        if u in seen:
            continue
        seen.add(u)
        if u.op in (*EFFECTS, Ops.END) and inside.isdisjoint(free(u)):
            if u is not fill and fill in toposort(u):
                found[u] = None
        else:
            stack += u.src
    return tuple(found)


def _loads(end: UOp) -> bool:
    """Is it a nest that does nothing but load?"""
    store = end.src[0]
    if end.op is not Ops.END or store.op is not Ops.STORE or store.src[1].op is not Ops.LOAD:
        return False
    return addrspace(store.src[1].src[0]) is AddrSpace.GLOBAL


def _again(version: UOp, waits: tuple[UOp, ...], slot: int, number: int) -> UOp:
    """Other registers, filled alike after what is waited for."""
    end, base = version.src[-1], version.src[0]
    store, *ranges = end.src
    old: ParamArg = memory(base).arg
    arg = ParamArg(slot, old.dtype, old.shape, old.addrspace, old.name)
    outer = base.src[1:] if base.op is Ops.AFTER else ()
    begun = UOp(Ops.AFTER, (inherit(UOp(Ops.ALLOC, (), arg), memory(base)), *outer, *waits))

    def copy(r: RangeArg) -> UOp:
        renamed = RangeArg(r.axis, r.size, r.kind, r.digit, number, r.start, r.step)
        return UOp(Ops.RANGE, (), renamed)

    new = {r: copy(r.arg) for r in ranges}
    into = UOp(Ops.INDEX, (begun, ix.substitute(store.src[0].src[1], new)))
    filled = inherit(UOp(Ops.STORE, (into, ix.substitute(store.src[1], new))), store)
    return UOp(Ops.AFTER, (begun, UOp(Ops.END, (filled, *new.values()))))

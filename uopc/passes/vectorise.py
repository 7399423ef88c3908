"""A vector digit that is contiguous on both sides becomes one wide access.  LOOPS -> LOOPS.

Here because: after `effects` (nests are final), before `legalise`.  NVRTC never merges scalar
accesses: 16-byte loads and stores are ours to make.
Before: END(STORE(x[4*u + v], LOAD(p0[4*i + v])), u, v:4)
After:  END(STORE(x[4*u], LOAD(p0[4*i]; 4); 4), u)

Proved first: the offset is base + v with V dividing every other coefficient, and the pointer is
aligned by contract (Param.align).  Where the guard depends on v, the wide access stands under the
guard of its last element and a scalar nest does the ragged rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from uopc.dtype import AddrSpace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, derive, inherit, memory, toposort
from uopc.uop.ops import AccessArg, AxisType, Ops, ParamArg, RangeArg

WIDEST_BYTES = 16  # LDG.128: the widest access of one thread (PTX ISA, ld)


def vectorise(root: UOp) -> UOp:
    """LOOPS kernel with wide accesses where they are proved."""
    order = toposort(root)
    if not any(u.op is Ops.RANGE and u.arg.digit == "v" for u in order):
        return root
    slots = itertools.count(1 + max((u.arg.slot for u in order if u.op is Ops.ALLOC), default=-1))
    instances = itertools.count(1 + max(u.arg.instance for u in order if u.op is Ops.RANGE))
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else derive(u, src)
        if u.op is Ops.END and u.src[-1].arg.digit == "v" and u.src[0].op is Ops.STORE:
            wide = _widen(new, slots, instances)
            new = new if wide is None else wide
        memo[u] = new
    return memo[root]


def _widen(end: UOp, slots: Iterator[int], instances: Iterator[int]) -> UOp | None:
    store, *rest, v = end.src
    width = v.arg.size
    element, value = store.src[:2]
    if (
        width not in (2, 4, 8, 16)
        or width * value.dtype.itemsize > WIDEST_BYTES
        or store.arg is not None
    ):
        return None
    at = _base(element.src[1], v)
    if at is None or v in free(element.src[0]):
        return None
    gate = store.src[2] if len(store.src) == 3 else ix.TRUE

    def close(effect: UOp) -> UOp:
        return UOp(Ops.END, (effect, *rest)) if rest else effect

    def rerun(make: Callable[[dict[UOp, UOp]], UOp]) -> UOp:
        """A scalar nest over a fresh copy of v."""
        a: RangeArg = v.arg
        w = UOp(Ops.RANGE, (), RangeArg(a.axis, a.size, a.kind, a.digit, next(instances)))
        return UOp(Ops.END, (make({v: w}), w))

    def last(g: UOp) -> UOp:
        return ix.substitute(g, {v: ix.index(width - 1)})

    arg = AccessArg(width)
    space = addrspace(element)
    if space is AddrSpace.REG and gate is ix.TRUE and value.op is Ops.LOAD and value.arg is None:
        if addrspace(value.src[0]) is not AddrSpace.GLOBAL:
            return None
        source = _base(value.src[0].src[1], v)
        if source is None or (len(value.src) == 3 and not _is_zero(value.src[2])):
            return None
        whole = UOp(Ops.INDEX, (value.src[0].src[0], source))
        into = UOp(Ops.INDEX, (element.src[0], at))
        if len(value.src) == 1:
            return close(inherit(UOp(Ops.STORE, (into, UOp(Ops.LOAD, (whole,), arg)), arg), store))
        inside, other = value.src[1:]
        full = inside if v not in free(inside) else last(inside)
        wide = inherit(UOp(Ops.STORE, (into, UOp(Ops.LOAD, (whole, full, other), arg)), arg), store)
        if full is inside:
            return close(wide)

        def ragged(t: dict[UOp, UOp]) -> UOp:
            memory_ = UOp(Ops.AFTER, (element.src[0], wide))
            index = UOp(Ops.INDEX, (memory_, ix.substitute(element.src[1], t)))
            return derive(store, (index, ix.substitute(value, t), UOp(Ops.NOT, (full,))))

        return close(rerun(ragged))
    if space is AddrSpace.GLOBAL:
        outer = tuple(
            r
            for r in rest
            if r.arg.kind in (AxisType.LOOP, AxisType.REDUCE, AxisType.UPCAST, AxisType.THREAD)
        )
        kept = UOp(
            Ops.ALLOC, (), ParamArg(next(slots), value.dtype, (width,), AddrSpace.REG, "out")
        )
        mine = UOp(Ops.AFTER, (kept, *outer)) if outer else kept
        gather = UOp(Ops.END, (derive(store, (UOp(Ops.INDEX, (mine, v)), value)), v))
        packed = UOp(Ops.AFTER, (mine, gather))
        full = gate if v not in free(gate) else last(gate)
        from_register = UOp(Ops.LOAD, (UOp(Ops.INDEX, (packed, ix.ZERO)),), arg)
        into = UOp(Ops.INDEX, (element.src[0], at))
        src = (into, from_register) if full is ix.TRUE else (into, from_register, full)
        wide = inherit(UOp(Ops.STORE, src, arg), store)
        if full is gate:
            return close(wide)

        def tail(t: dict[UOp, UOp]) -> UOp:
            index = UOp(
                Ops.INDEX,
                (UOp(Ops.AFTER, (element.src[0], wide)), ix.substitute(element.src[1], t)),
            )
            one = UOp(Ops.LOAD, (UOp(Ops.INDEX, (packed, t[v])),))
            return derive(
                store, (index, one, ix.conj(UOp(Ops.NOT, (full,)), ix.substitute(gate, t)))
            )

        return close(rerun(tail))
    return None


def _base(offset: UOp, v: UOp) -> UOp | None:
    """The offset without v, where it is base + v and v's size divides base; else None."""
    if ix.coefficient(offset, v) != 1:
        return None
    base = ix.substitute(offset, {v: ix.ZERO})
    return base if ix.divides(v.arg.size, base) else None


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg.bits == 0


def widest(u: UOp) -> int:
    """Bytes of the widest access to a parameter that an access node makes; 0 for other nodes."""
    if u.op in (Ops.LOAD, Ops.STORE) and memory(u.src[0]).op is Ops.BUFFER:
        return (1 if u.arg is None else int(u.arg.width)) * int(u.src[0].dtype.itemsize)
    return 0

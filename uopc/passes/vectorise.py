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
from collections.abc import Iterator, Sequence

from uopc.dtype import AddrSpace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, derive, inherit, memory, toposort
from uopc.uop.ops import IN_THREAD, AccessArg, Ops, ParamArg, RangeArg

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
        if u.op is Ops.END and _is_vector(u.src[-1]) and u.src[0].op is Ops.STORE:
            wide = _widen(new, slots, instances)
            new = new if wide is None else wide
        memo[u] = new
    return memo[root]


def _is_vector(scope: UOp) -> bool:
    return scope.op is Ops.RANGE and scope.arg.digit == "v"


def _widen(end: UOp, slots: Iterator[int], instances: Iterator[int]) -> UOp | None:
    v = end.src[-1]
    if v.arg.size not in (2, 4, 8, 16):
        return None
    space = addrspace(end.src[0].src[0])
    if space is AddrSpace.GLOBAL:
        return _widen_outputs(end, slots, instances)
    return _widen_fill(end, instances) if space is AddrSpace.REG else None


def _widen_fill(end: UOp, instances: Iterator[int]) -> UOp | None:
    """Registers that are filled from consecutive elements."""
    store, *rest, v = end.src
    width = v.arg.size
    element, value = store.src[:2]
    if width * value.dtype.itemsize > WIDEST_BYTES or store.arg is not None:
        return None
    at = _base(element.src[1], v)
    if at is None or v in free(element.src[0]):
        return None

    def close(effect: UOp) -> UOp:
        return UOp(Ops.END, (effect, *rest)) if rest else effect

    arg = AccessArg(width)
    if len(store.src) == 2 and value.op is Ops.LOAD and value.arg is None:
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
        full = _last(inside, v)
        wide = inherit(UOp(Ops.STORE, (into, UOp(Ops.LOAD, (whole, full, other), arg)), arg), store)
        if full is inside:
            return close(wide)

        w = _copy_of(v, instances)
        t = {v: w}
        index = UOp(
            Ops.INDEX, (UOp(Ops.AFTER, (element.src[0], wide)), ix.substitute(element.src[1], t))
        )
        one = derive(store, (index, ix.substitute(value, t), UOp(Ops.NOT, (full,))))
        return close(UOp(Ops.END, (one, w)))
    return None


def _widen_outputs(end: UOp, slots: Iterator[int], instances: Iterator[int]) -> UOp | None:
    """Values of one or several outputs are gathered in registers, and leave them in wide stores.

    One that has no wide place leaves them one by one, where another one has.
    """
    rest, v = end.src[1:-1], end.src[-1]
    chain, width = _chain(end.src[0], v), v.arg.size
    places = [_wide_place(store, v, chain) for store in chain]
    if all(at is None for at in places):
        return None
    outer = tuple(r for r in rest if r.arg.kind in IN_THREAD)
    packed = _gather(chain, v, outer, slots)
    done: tuple[UOp, ...] = ()
    for store, at, m in zip(chain, places, packed, strict=True):
        if at is None:
            continue
        value = UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, ix.ZERO)),), AccessArg(width))
        into, full = UOp(Ops.INDEX, (_version(store, done, chain), at)), _full(store, v)
        src = (into, value) if full is ix.TRUE else (into, value, full)
        done = (inherit(UOp(Ops.STORE, src, AccessArg(width)), store),)
    ragged = [n for n, s in enumerate(chain) if places[n] is None or v in free(_gate(s))]
    if ragged:
        w = _copy_of(v, instances)
        for n in ragged:
            store, t = chain[n], {v: w}
            where = ix.substitute(store.src[0].src[1], t)
            one = UOp(Ops.LOAD, (UOp(Ops.INDEX, (packed[n], w)),))
            gate = ix.substitute(_gate(store), t)
            if places[n] is not None:
                gate = ix.conj(UOp(Ops.NOT, (_full(store, v),)), gate)
            into = UOp(Ops.INDEX, (_version(store, done, chain), where))
            done = (derive(store, (into, one) if gate is ix.TRUE else (into, one, gate)),)
        done = (UOp(Ops.END, (*done, w)),)
    return UOp(Ops.END, (*done, *rest)) if rest else done[0]


def _gather(
    chain: Sequence[UOp], v: UOp, outer: tuple[UOp, ...], slots: Iterator[int]
) -> list[UOp]:
    """Registers that hold the values of the STOREs, for all of v."""
    kept: list[UOp] = []
    done: tuple[UOp, ...] = ()
    for store in chain:
        arg = ParamArg(next(slots), store.src[1].dtype, (v.arg.size,), AddrSpace.REG, "out")
        kept.append(_after(UOp(Ops.ALLOC, (), arg), outer))
        done = (derive(store, (UOp(Ops.INDEX, (_after(kept[-1], done), v)), store.src[1])),)
    gather = UOp(Ops.END, (*done, v))
    return [_after(m, (gather,)) for m in kept]


def _after(m: UOp, what: tuple[UOp, ...]) -> UOp:
    return UOp(Ops.AFTER, (m, *what)) if what else m


def _chain(store: UOp, v: UOp) -> list[UOp]:
    """The STOREs of one nest, in order: the memory of each comes after the one before."""
    chain = [store]
    while (earlier := _earlier(chain[-1], v)) is not None:
        chain.append(earlier)
    return chain[::-1]


def _earlier(store: UOp, v: UOp) -> UOp | None:
    m = store.src[0].src[0]
    before = m.src[1:] if m.op is Ops.AFTER else ()
    return next((s for s in before if s.op is Ops.STORE and v in free(s)), None)


def _version(store: UOp, done: tuple[UOp, ...], chain: Sequence[UOp]) -> UOp:
    """The memory of a STORE after `done`, which stands for the STOREs of its chain."""
    m = store.src[0].src[0]
    first, *what = m.src if m.op is Ops.AFTER else (m,)
    return _after(first, (*(s for s in what if s not in chain), *done))


def _wide_place(store: UOp, v: UOp, chain: Sequence[UOp]) -> UOp | None:
    """Where a wide STORE begins; None where there is none."""
    element, value = store.src[:2]
    is_wide = v.arg.size * value.dtype.itemsize <= WIDEST_BYTES and store.arg is None
    if not is_wide or addrspace(element) is not AddrSpace.GLOBAL:
        return None
    if v in free(_version(store, (), chain)):
        return None
    return _base(element.src[1], v)


def _gate(store: UOp) -> UOp:
    return store.src[2] if len(store.src) == 3 else ix.TRUE


def _full(store: UOp, v: UOp) -> UOp:
    """Where all elements of a vector are stored."""
    return _last(_gate(store), v)


def _last(gate: UOp, v: UOp) -> UOp:
    """A gate for the last element of a vector."""
    return ix.substitute(gate, {v: ix.index(v.arg.size - 1)}) if v in free(gate) else gate


def _copy_of(v: UOp, instances: Iterator[int]) -> UOp:
    a: RangeArg = v.arg
    return UOp(Ops.RANGE, (), RangeArg(a.axis, a.size, a.kind, a.digit, next(instances)))


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

"""A vector digit that is contiguous on both sides becomes one wide access.  LOOPS -> LOOPS.

Here because: after `effects` (nests are final), before `legalise`.  NVRTC never merges scalar
accesses: 16-byte loads and stores are ours to make.
Before: END(STORE(x[4*u + v], LOAD(p0[4*i + v])), u, v:4)
After:  END(STORE(x[4*u], LOAD(p0[4*i]; 4); 4), u)

Proved first: the offset is base + v with V dividing every other coefficient, and the pointer is
aligned by contract (Param.align).  Where the guard depends on v, the wide access stands under the
guard of its last element and a scalar nest does the ragged rest.

A LOAD that is a constant number of elements away from such places is made of the two wide ones
around it, where both are inside of the memory:
Before: END(STORE(x[4*u + v], LOAD(p0[4*i + v + 1])), u, v:4)
After:  END(STORE(near[0], LOAD(p0[4*i]; 4); 4), STORE(near[4], LOAD(p0[4*i + 4]; 4); 4),
            END(STORE(x[4*u + v], LOAD(near[v + 1])), v:4), u)

Where that number differs from copy to copy, as in rows of odd length, there is one such nest for
each copy.  Elements of a row that are not wanted are read with their neighbours, and dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.dtype import AddrSpace, DType
from uopc.kernel import UNASKED, Fired
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.infer import segment
from uopc.uop.node import UOp, addrspace, derive, inherit, memory, prod, toposort
from uopc.uop.ops import IN_THREAD, AccessArg, Ops, ParamArg, RangeArg

WIDEST_BYTES = 16  # LDG.128: the widest access of one thread (PTX ISA, ld)
#: nests that one becomes where each copy is aligned differently
MOST_COPIES = 16


def vectorise(root: UOp, fired: Fired = UNASKED) -> UOp:
    """LOOPS kernel with wide accesses where they are proved."""
    order = toposort(root)
    if not any(u.op is Ops.RANGE and u.arg.digit == "v" for u in order):
        return root
    slots = itertools.count(1 + max((u.arg.slot for u in order if u.op is Ops.ALLOC), default=-1))
    instances = itertools.count(1 + max(u.arg.instance for u in order if u.op is Ops.RANGE))
    new = _New(slots, instances, frozenset(memory(u.src[0]) for u in order if u.op in _WRITES))
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        made = u if src == u.src else derive(u, src)
        if u.op is Ops.END and u.src[0].op is Ops.STORE:
            made = _widest_way(made, new, fired)
        memo[u] = made
    return memo[root]


def _is_vector(scope: UOp) -> bool:
    return scope.op is Ops.RANGE and scope.arg.digit == "v"


_WRITES = frozenset((Ops.STORE, Ops.ATOMIC))


@dataclass(frozen=True)
class _New:
    """Numbers for what is made: slots of memories, instances of ranges.  written: memories that the
    kernel writes."""

    slots: Iterator[int]
    instances: Iterator[int]
    written: frozenset[UOp]

    def registers(self, dtype: DType, size: int, name: str) -> UOp:
        arg = ParamArg(next(self.slots), dtype, (size,), AddrSpace.REG, name)
        return UOp(Ops.ALLOC, (), arg)

    def copy_of(self, v: UOp) -> UOp:
        a: RangeArg = v.arg
        return UOp(Ops.RANGE, (), RangeArg(a.axis, a.size, a.kind, a.digit, next(self.instances)))


def _widest_way(end: UOp, new: _New, fired: Fired) -> UOp:
    """A nest with wide accesses along its last vector digit that has them; else as it is."""
    effect, *scopes = end.src
    for v in filter(_is_vector, reversed(scopes)):
        others = (r for r in scopes if r is not v)
        last = end if v is scopes[-1] else UOp(Ops.END, (effect, *others, v))
        if (wide := _widen(last, new, fired)) is not None:
            return wide
    return end


def _widen(end: UOp, new: _New, fired: Fired) -> UOp | None:
    v = end.src[-1]
    if v.arg.size not in (2, 4, 8, 16):
        return None
    space = addrspace(end.src[0].src[0])
    if space in (AddrSpace.GLOBAL, AddrSpace.SHARED):
        wide = _widen_outputs(end, new)
        fired.add("widen-store", wide is not None)
        return wide
    if space is not AddrSpace.REG:
        return None
    for rule, way in _FILLS.items():
        if (wide := way(end, new)) is not None:
            fired.add(rule)
            return wide
    return None


def _widen_fill(end: UOp, new: _New) -> UOp | None:
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
        if addrspace(value.src[0]) not in (AddrSpace.GLOBAL, AddrSpace.SHARED):
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
        if full is ix.FALSE:
            return None
        wide = inherit(UOp(Ops.STORE, (into, UOp(Ops.LOAD, (whole, full, other), arg)), arg), store)
        if full is inside:
            return close(wide)

        return close(_one_by_one(store, v, wide, UOp(Ops.NOT, (full,)), new))
    return None


def _one_by_one(store: UOp, v: UOp, before: UOp, gate: UOp, new: _New) -> UOp:
    """The nest of a fill once more, under a gate, after what has been done."""
    w = new.copy_of(v)
    element, t = store.src[0], {v: w}
    memory_ = UOp(Ops.AFTER, (element.src[0], before))
    index = UOp(Ops.INDEX, (memory_, ix.substitute(element.src[1], t)))
    value = ix.substitute(store.src[1], t)
    return UOp(Ops.END, (derive(store, (index, value, gate)), w))


def _copy_by_copy(end: UOp, new: _New) -> UOp | None:
    """Registers whose copies are filled from places that are aligned differently, each its way: all
    that is wide first, so that nothing waits in between."""
    store, *copies, v = end.src
    element, value = store.src[:2]
    if value.op is not Ops.LOAD or prod(r.arg.size for r in copies) > MOST_COPIES:
        return None
    steps = [ix.coefficient(value.src[0].src[1], r) for r in copies]
    unlike = any(step is not None and step % v.arg.size for step in steps)
    if not unlike or not free(element.src[0]).isdisjoint(copies):
        return None
    done: tuple[UOp, ...] = ()
    left: list[tuple[UOp, UOp]] = []
    for numbers in itertools.product(*(range(r.arg.size) for r in copies)):
        t = dict(zip(copies, map(ix.index, numbers), strict=True))
        at, mine = (ix.substitute(x, t) for x in (element.src[1], value))
        into = UOp(Ops.INDEX, (_after(element.src[0], done), at))
        filled = _around(derive(store, (into, mine, *store.src[2:])), v, (), new, partly=True)
        if filled is None:
            return None
        effect, whole = filled
        done = (effect,)
        if whole is not ix.TRUE:
            one = derive(store, (UOp(Ops.INDEX, (element.src[0], at)), mine))
            left.append((one, UOp(Ops.NOT, (whole,))))
    for one, gate in left:
        done = (_one_by_one(one, v, done[0], gate, new),)
    return done[0]


def _from_both_sides(end: UOp, new: _New) -> UOp | None:
    """Registers that are filled from consecutive elements, a few away from an aligned place."""
    store, *rest, v = end.src
    filled = _around(store, v, tuple(r for r in rest if r.arg.kind in IN_THREAD), new)
    if filled is None:
        return None
    effect, whole = filled
    if whole is not ix.TRUE:
        effect = _one_by_one(store, v, effect, UOp(Ops.NOT, (whole,)), new)
    return UOp(Ops.END, (effect, *rest)) if rest else effect


#: ways to fill registers by wide LOADs, in the order in which they are tried
_FILLS = {
    "widen-load": _widen_fill,
    "widen-two-around": _from_both_sides,
    "widen-each-copy": _copy_by_copy,
}


def _around(
    store: UOp, v: UOp, outer: tuple[UOp, ...], new: _New, partly: bool = False
) -> tuple[UOp, UOp] | None:
    """(a fill by the aligned wide LOADs that a vector lies in, where it is right), or None.

    partly: also vectors that lie in one, and those of which some elements are not wanted.
    """
    width, (element, value) = v.arg.size, store.src[:2]
    if len(store.src) != 2 or store.arg is not None or v in free(element.src[0]):
        return None
    at, away = ix.coefficient(element.src[1], v) is not None, _away(value, v, new)
    if not at or away is None or not (away[1] or partly):
        return None
    source, (start, shift) = value.src[0].src[0], away
    gate, wanted = value.src[1] if len(value.src) == 3 else ix.TRUE, ix.TRUE
    if partly:
        parts = ix.conjuncts(gate)
        gate, wanted = (
            ix.conj(*(g for g in parts if (v in free(g)) is along)) for along in (False, True)
        )
    read = 2 * width if shift else width
    whole = _inside(gate, v, start, read, source)
    if whole is None or whole is ix.FALSE:
        return None
    arg, dtype = AccessArg(width), value.dtype
    near = _after(new.registers(dtype, read, "near"), (*outer, *_before(element.src[0])))
    done: tuple[UOp, ...] = ()
    for n in range(0, read, width):
        place = UOp(Ops.INDEX, (source, ix.add(start, ix.index(n))))
        more = () if whole is ix.TRUE else (whole, UOp.const(0, dtype))
        into = UOp(Ops.INDEX, (_after(near, done), ix.index(n)))
        wide = UOp(Ops.STORE, (into, UOp(Ops.LOAD, (place, *more), arg)), arg)
        done = (inherit(wide, store),)
    t = {v: new.copy_of(v)}
    taken = UOp(Ops.INDEX, (_after(near, done), ix.add(t[v], ix.index(shift))))
    into = UOp(Ops.INDEX, (element.src[0], ix.substitute(element.src[1], t)))
    found = UOp(Ops.LOAD, (taken,))
    if wanted is not ix.TRUE:
        found = UOp(Ops.WHERE, (ix.substitute(wanted, t), found, UOp.const(0, dtype)))
    return UOp(Ops.END, (derive(store, (into, found)), t[v])), whole


def _away(value: UOp, v: UOp, new: _New) -> tuple[UOp, int] | None:
    """(the last aligned place up to what is loaded for v = 0, elements from there), of a plain LOAD
    of a parameter that nobody writes."""
    width = v.arg.size
    if value.op is not Ops.LOAD or value.arg is not None or width * value.dtype.itemsize > 16:
        return None
    index = value.src[0]
    m = memory(index)
    if m.op is not Ops.BUFFER or m in new.written or segment(index) is not None:
        return None
    if len(value.src) == 3 and not _is_zero(value.src[2]):
        return None
    if ix.coefficient(index.src[1], v) != 1:
        return None
    first = ix.substitute(index.src[1], {v: ix.ZERO})
    shift = ix.affine(first)[1] % width
    start = ix.sub(first, ix.index(shift))
    return (start, shift) if ix.divides(width, start) else None


def _inside(gate: UOp, v: UOp, start: UOp, read: int, source: UOp) -> UOp | None:
    """Where all elements are wanted and none of `read` ones from start lies outside; None where
    that cannot be said: gates that are no comparisons along v may have holes."""
    parts = [g for g in ix.conjuncts(gate) if v in free(g)]
    if not all(g.op is Ops.LT and _is_straight(g, v) for g in parts):
        return None
    ends = (ix.substitute(gate, {v: ix.index(n)}) for n in (0, v.arg.size - 1))
    size = prod(memory(source).arg.shape)
    last = ix.add(start, ix.index(read - 1))
    return ix.conj(*ends, ix.at_least(start, 0), ix.below(last, size))


def _is_straight(comparison: UOp, v: UOp) -> bool:
    return all(ix.coefficient(s, v) is not None for s in comparison.src)


def _widen_outputs(end: UOp, new: _New) -> UOp | None:
    """Values of one or several outputs are gathered in registers, and leave them in wide stores.

    One that has no wide place leaves them one by one, where another one has.
    """
    rest, v = end.src[1:-1], end.src[-1]
    chain, width = _chain(end.src[0], v), v.arg.size
    places = [_wide_place(store, v, chain) for store in chain]
    if all(at is None for at in places):
        return None
    outer = tuple(r for r in rest if r.arg.kind in IN_THREAD)
    packed = _gather(chain, v, outer, new)
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
        w = new.copy_of(v)
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


def _gather(chain: Sequence[UOp], v: UOp, outer: tuple[UOp, ...], new: _New) -> list[UOp]:
    """Registers that hold the values of the STOREs, for all of v."""
    kept: list[UOp] = []
    done: tuple[UOp, ...] = ()
    for store in chain:
        before = () if kept else _before(store.src[0].src[0])
        kept.append(_after(new.registers(store.src[1].dtype, v.arg.size, "out"), (*outer, *before)))
        done = (derive(store, (UOp(Ops.INDEX, (_after(kept[-1], done), v)), store.src[1])),)
    gather = UOp(Ops.END, (*done, v))
    return [_after(m, (gather,)) for m in kept]


def _before(m: UOp) -> tuple[UOp, ...]:
    """What a version of a memory comes after: scopes that are open, and what was done."""
    return m.src[1:] if m.op is Ops.AFTER else ()


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
    if not is_wide or addrspace(element) not in (AddrSpace.GLOBAL, AddrSpace.SHARED):
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

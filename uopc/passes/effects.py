"""Closers get memories, and every effect its place.  MAPPED -> LOOPS.

Here because: what is kept where is decided (`materialise`), and only ordered effects can be
widened, made legal and laid out.
Before: REDUCE(x, k; ADD)
After:  base    = AFTER(ALLOC, outer serial ranges)          set again in every outer iteration
        running = AFTER(base, STORE(base, 0), k)             a read of it cannot leave the loop
        result  = AFTER(base, END(STORE(running, LOAD(running) + x), k))

Top-down, under an environment {range: open instance}.  A closer opens its own copies of its ranges,
so a RANGE is opened once in the kernel.  Its memory is built once per environment of its serial
free ranges; UPCAST ones index it and never multiply it.  In SHARED a barrier stands after the fill,
and before it where a serial loop comes round again.

Outputs share the loops that they have in common (`passes/nests.py`), so that what they share is
computed once.  Where one is written in place, every LOAD of what was there comes first.  The STORE
names the closers and the nests that read; LOADs of its own nest stand before it by themselves
(`uopc/uop/order.py`).  Where other threads read, or other values of its nest, all values of the
nest are kept in registers, the threads meet, and then it stores.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import TypeAlias

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.passes.cooperate import upcasts
from uopc.passes.materialise import serials
from uopc.passes.nests import CLOSERS, InPlace, Nest, nests
from uopc.passes.walk import recurse
from uopc.symbolic import index as ix
from uopc.uop.combine import identity, step
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, prod, toposort, tuple_of
from uopc.uop.ops import (
    Atomic,
    AtomicArg,
    AxisType,
    Combine,
    Ops,
    ParamArg,
    RangeArg,
    ReportArg,
    StageArg,
)

FUSED = (dtypes.f32, dtypes.f64)


class Env:
    """{range: its open instance}, compared by identity."""

    __slots__ = ("table",)

    def __init__(self, table: dict[UOp, UOp]) -> None:
        self.table = table

    def opened(self, ranges: Sequence[UOp]) -> tuple[UOp, ...]:
        return tuple(self.table[r] for r in ranges)


Request: TypeAlias = tuple[UOp, Env]
Built: TypeAlias = tuple[tuple[UOp, ...], UOp]  # versions of memories, and the (unresolved) address
Done: TypeAlias = tuple[UOp, ...]  # what comes before


def effects(root: UOp, gpu: bool = True) -> UOp:
    """LOOPS kernel of a MAPPED one.  gpu: what is reported is reported by atomics.

    Raises TargetError where loops write in place what they read later.
    """
    return _Kernel(root, gpu).run()


class _Kernel:
    """One graph on its way."""

    def __init__(self, root: UOp, gpu: bool) -> None:
        self.root, self.gpu = root, gpu
        order = toposort(root)
        self.above: set[UOp] = set()  # nodes with a closer at or below them need the environment
        for u in order:
            if u.op in CLOSERS or any(s in self.above for s in u.src):
                self.above.add(u)
        self.in_place = InPlace(order)
        self.instance, self.slot = itertools.count(1), itertools.count()
        self.built: dict[tuple[UOp, frozenset[UOp]], Built] = {}
        self.memo: dict[Request, UOp] = {}

    def run(self) -> UOp:
        self.in_place.check_loops(self.root.src)
        top, none = nests(self.root.src, self.gpu), Env({})
        done: dict[Nest, UOp] = {}
        reported: Done = ()  # one after the other: equal IFs would be one
        for nest, readers in self.in_place.ordered(top.inside, frozenset()):
            before = tuple([done[x] for x in readers])
            if self.is_report(nest):
                reported = (self.report(nest, (*before, *reported)),)
                (done[nest],) = reported
            else:
                done[nest] = self.nest(nest, none, before)
        return derive(self.root, tuple(done[nest] for nest in top.inside))

    # ---- memories and ranges
    def reopen(self, ranges: Sequence[UOp]) -> dict[UOp, UOp]:
        n = next(self.instance)

        def copy(a: RangeArg) -> RangeArg:
            return RangeArg(a.axis, a.size, a.kind, a.digit, n, a.start, a.step)

        return {r: UOp(Ops.RANGE, (), copy(r.arg)) for r in ranges}

    def alloc(self, space: AddrSpace, dtype: DType, size: int, name: str, like: UOp) -> UOp:
        arg = ParamArg(next(self.slot), dtype, (size,), space, name)
        return inherit(UOp(Ops.ALLOC, (), arg), like)

    # ---- closers
    def closer(self, u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        """The memories of a closer, built once per environment of its serial free ranges."""
        once = _once(u, env)
        if once not in self.built:
            build = self.reduce if u.op is Ops.REDUCE else self.stage
            self.built[once] = yield from build(u, env)
        return self.built[once]

    def parts(self, value: UOp, like: UOp, env: Env) -> Generator[Request, UOp, tuple[UOp, ...]]:
        """The values that a node carries, under env."""
        if value.op is Ops.TUPLE:
            out = []
            for s in value.src:
                out.append((yield (s, env)))
            return tuple(out)
        if tuple_of(like) is None:
            return ((yield (value, env)),)
        versions, address = yield from self.closer(value, env)
        at = yield (address, env)
        return tuple(UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, at)),)) for m in versions)

    def reduce(self, u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        value, closed, combine = u.src[0], u.src[1:], u.arg.combine
        kinds = _dtypes(value)
        copies = upcasts(free(u))
        outer = serials(free(u))
        inner = [*serials(closed), *copies, *upcasts(frozenset(closed))]
        zero = Env(self.reopen(copies))
        mine = Env({**env.table, **self.reopen(inner)})
        size = prod(r.arg.size for r in copies)
        name = "acc" if combine is Combine.ADD else combine.name.lower()
        bases = [
            _after(self.alloc(AddrSpace.REG, d, size, name, u), env.opened(outer)) for d in kinds
        ]
        address = ix.flat((r, r.arg.size) for r in copies)
        start = ix.substitute(address, zero.table)
        neutral = identity(combine, kinds)
        init = _fill(bases, start, neutral, ix.TRUE, zero.opened(copies), u)
        running = [_after(b, (init, *mine.opened(closed))) for b in bases]
        at = ix.substitute(address, mine.table)
        old = tuple(UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, at)),)) for m in running)
        new = yield from self.parts(value, u, mine)
        end = _fill(running, at, _accumulate(combine, old, new), ix.TRUE, mine.opened(inner), u)
        return tuple(UOp(Ops.AFTER, (b, end)) for b in bases), address

    def stage(self, u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        value, write, address, gate, *ranges = u.src
        arg: StageArg = u.arg
        outer = env.opened(serials(free(u) - frozenset(ranges)))
        copies = [r for r in ranges if r.arg.kind is AxisType.UPCAST]
        inner = [*serials(tuple(ranges)), *copies]
        mine = Env({**env.table, **self.reopen(inner)})
        recycle = (UOp(Ops.BARRIER, outer),) if arg.exchange and outer else outer
        name = "part" if arg.exchange else "row" if arg.space is AddrSpace.SHARED else "x"
        bases = [
            _after(self.alloc(arg.space, d, arg.size, name, u), recycle) for d in _dtypes(value)
        ]
        at = yield (write, mine)
        values = yield from self.parts(value, u, mine)
        ok = yield (gate, mine)
        done = _fill(bases, at, values, ok, mine.opened(inner), u)
        if arg.exchange:
            done = inherit(UOp(Ops.BARRIER, (done,)), u)
        return tuple(UOp(Ops.AFTER, (b, done)) for b in bases), address

    # ---- values
    def visit(self, request: Request) -> Generator[Request, UOp, UOp]:
        u, env = request
        if u not in self.above:
            return ix.substitute(u, env.table)
        if u.op in CLOSERS or u.op is Ops.ITEM:
            of, k = (u.src[0], u.arg) if u.op is Ops.ITEM else (u, 0)
            versions, address = yield from self.closer(of, env)
            at = yield (address, env)
            return inherit(UOp(Ops.LOAD, (UOp(Ops.INDEX, (versions[k], at)),)), u)
        src = []
        for s in u.src:
            src.append((yield (s, env)))
        return u if tuple(src) == u.src else ix.remake(u, tuple(src))

    def value(self, u: UOp, env: Env) -> UOp:
        """u under env."""
        return recurse(self.visit, (u, env), self.memo)

    # ---- outputs
    def nest(self, nest: Nest, outer: Env, before: Done) -> UOp:
        """The effect that ends a nest."""
        keep = bool(nest.stores) and self.in_place.must_keep(nest.stores)
        ranges = serials(nest.ranges) if keep else nest.ranges
        env = Env({**outer.table, **self.reopen(ranges)})
        if keep:
            done = self.kept_and_stored(nest, env, before)
        elif nest.stores:
            done = self.stored(nest.stores, env, before)
        else:
            for inner, _ in self.in_place.ordered(nest.inside, env.table.keys()):
                before = (self.nest(inner, env, before),)
            (done,) = before
        return _end(done, env.opened(ranges))

    def stored(self, stores: Sequence[UOp], env: Env, before: Done) -> UOp:
        """STOREs that close the same ranges: one chain."""
        before = (*before, *self.readers(stores, env))
        for store in stores:
            before = (self.effect(store, env, before),)
        (done,) = before
        return done

    def effect(self, store: UOp, env: Env, before: Done) -> UOp:
        """One STORE after what comes before."""
        element, *rest = [self.value(s, env) for s in store.src]
        into = UOp(Ops.INDEX, (_after(element.src[0], before), element.src[1]))
        return inherit(UOp(Ops.STORE, (into, *rest)), store)

    def is_report(self, nest: Nest) -> bool:
        """Is it a nest of its own that reports?"""
        return self.gpu and any(isinstance(s.arg, ReportArg) for s in nest.stores)

    def report(self, nest: Nest, before: Done) -> UOp:
        """What a GPU reports: the largest code stays.  Loops stand inside of what says, whatever
        they do, that this thread is not the one that reports."""
        (store,) = nest.stores
        env = Env(self.reopen(nest.ranges))
        element, code, *gate = [self.value(s, env) for s in store.src]
        opened = env.opened(nest.ranges)
        parts = ix.conjuncts(gate[0]) if gate else []
        outer = [g for g in parts if free(g).isdisjoint(opened)] if opened else []
        inner = [g for g in parts if g not in outer]
        scopes: Done = ()
        for some, ranges in ((outer, opened), (inner, ())):
            if some:
                before = (UOp(Ops.IF, (ix.conj(*some), *before)),)
                scopes += before
            scopes += ranges
        word = UOp(Ops.INDEX, (_after(element.src[0], before), element.src[1]))
        return _end(inherit(UOp(Ops.ATOMIC, (word, code), AtomicArg(Atomic.MAX)), store), scopes)

    def kept_and_stored(self, nest: Nest, env: Env, before: Done) -> UOp:
        """All values of a nest in registers; then, once the threads have met, the STOREs."""
        copies = [r for r in nest.ranges if r.arg.kind is AxisType.UPCAST]
        size, at = prod(r.arg.size for r in copies), ix.flat((r, r.arg.size) for r in copies)
        filling, storing = (Env({**env.table, **self.reopen(copies)}) for _ in range(2))
        begin = env.opened(serials(frozenset(env.table)))
        bases = [
            _after(self.alloc(AddrSpace.REG, s.src[1].dtype, size, "new", s), begin)
            for s in nest.stores
        ]
        values = [self.value(s.src[1], filling) for s in nest.stores]
        address = ix.substitute(at, filling.table)
        kept = _fill(bases, address, values, ix.TRUE, filling.opened(copies), nest.stores[0])
        before = (*before, *self.readers(nest.stores, env))
        if any(self.in_place.crosses_threads(m) for m in self.in_place.written_by(nest.stores)):
            before = (UOp(Ops.BARRIER, (kept, *before)),)
        else:
            before = (kept, *before)
        address = ix.substitute(at, storing.table)
        for store, base in zip(nest.stores, bases, strict=True):
            value = UOp(Ops.LOAD, (UOp(Ops.INDEX, (UOp(Ops.AFTER, (base, kept)), address)),))
            element, gate = (
                self.value(store.src[0], storing),
                [self.value(g, storing) for g in store.src[2:]],
            )
            into = UOp(Ops.INDEX, (_after(element.src[0], before), element.src[1]))
            before = (inherit(UOp(Ops.STORE, (into, value, *gate)), store),)
        (done,) = before
        return _end(done, storing.opened(copies))

    def readers(self, stores: Sequence[UOp], env: Env) -> Done:
        """The ends of the closers that read what is written in place, of those whose loops are
        open: before STOREs that do it."""
        if not self.in_place.written_by(stores):
            return ()
        found: dict[UOp, None] = {}
        for u in self.in_place.closers(env.table.keys()):
            self.value(u, env)
            versions, _ = self.built[_once(u, env)]
            found |= dict.fromkeys(done for m in versions for done in m.src[1:])
        return tuple(found)


def _once(u: UOp, env: Env) -> tuple[UOp, frozenset[UOp]]:
    own = frozenset(u.src[4:]) if u.op is Ops.STAGE else frozenset()
    return u, frozenset(env.opened(serials(free(u) - own)))


def _fill(
    bases: Sequence[UOp],
    at: UOp,
    values: Sequence[UOp],
    gate: UOp,
    ranges: tuple[UOp, ...],
    like: UOp,
) -> UOp:
    """One nest that stores all values; a chain through AFTER, closed once."""
    before: Done = ()
    for base, value in zip(bases, values, strict=True):
        src = (UOp(Ops.INDEX, (_after(base, before), at)), value)
        before = (inherit(UOp(Ops.STORE, src if gate is ix.TRUE else (*src, gate)), like),)
    (done,) = before
    return _end(done, ranges)


def _accumulate(combine: Combine, old: tuple[UOp, ...], new: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """One step of an accumulator; a product is added with one rounding (fused in the IR alone)."""
    if combine is Combine.ADD and new[0].op is Ops.MUL and new[0].dtype in FUSED:
        return (inherit(UOp(Ops.FMA, (*new[0].src, old[0])), new[0]),)
    return step(combine, old, new)


def _after(memory: UOp, what: Sequence[UOp]) -> UOp:
    return UOp(Ops.AFTER, (memory, *what)) if what else memory


def _end(effect: UOp, scopes: tuple[UOp, ...]) -> UOp:
    return UOp(Ops.END, (effect, *scopes)) if scopes else effect


def _dtypes(value: UOp) -> tuple[DType, ...]:
    """The dtypes of the values that a node carries."""
    carried = tuple_of(value)
    return (value.dtype,) if carried is None else tuple(s.dtype for s in carried.src)

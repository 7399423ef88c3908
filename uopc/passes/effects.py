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
and before it where a serial loop comes round again, unless another one stands between, or two
memories are written in turn.

In CLUSTER memory values are sent to the blocks that read them (`passes/cluster.py`): each block has
an mbarrier an exchange, which counts the bytes that come.  In a serial loop, and for values that
cannot be sent, they are stored, and all blocks of the cluster meet.

Closers and outputs share loops (`passes/nests.py`), so that what they share is computed once.  A
loop ends with one chain of effects: what it adds to each accumulator, and what it stores.  Where
threads meet in a loop, what it loads is loaded an iteration ahead (`LaunchArg.early`).  Where an
output is written in place, every LOAD of what was there comes first.  The STORE
names the closers and the nests that read; LOADs of its own nest stand before it by themselves
(`uopc/uop/order.py`).  Where other threads read, or other values of its nest, all values of the
nest are kept in registers, the threads meet, and then it stores.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.passes.bind import hardware_ranges
from uopc.passes.closers import CLOSERS, around, serials
from uopc.passes.cluster import ALL_BLOCKS, Cluster
from uopc.passes.cooperate import upcasts
from uopc.passes.nests import Item, Leaf, Loop, nests
from uopc.passes.overwrites import InPlace
from uopc.passes.walk import recurse
from uopc.symbolic import index as ix
from uopc.uop.combine import identity, step
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, memory, prod, toposort, tuple_of
from uopc.uop.ops import (
    Atomic,
    AtomicArg,
    AxisType,
    Combine,
    Ops,
    ParamArg,
    RangeArg,
    StageArg,
)

FUSED = (dtypes.f32, dtypes.f64)
#: bytes that threads of a block exchange in a loop, up to which memory for two saves a barrier
TWICE = 2 << 10


class Env:
    """{range: its open instance}, and the innermost loop that is open; compared by identity."""

    __slots__ = ("loop", "table")

    def __init__(self, table: dict[UOp, UOp], loop: Loop) -> None:
        self.table, self.loop = table, loop

    def opened(self, ranges: Iterable[UOp]) -> tuple[UOp, ...]:
        return tuple(self.table[r] for r in ranges)

    def within(self, more: dict[UOp, UOp]) -> Env:
        """The same with unrolled ranges open too."""
        return Env({**self.table, **more}, self.loop)


Request: TypeAlias = tuple[UOp | Item, Env]
Address: TypeAlias = UOp  # in a closer's memory, of its reader: of ranges, not their instances
Built: TypeAlias = tuple[tuple[UOp, ...], Address]  # versions of memories
Done: TypeAlias = tuple[UOp, ...]  # what comes before
Build: TypeAlias = Generator[Request, UOp, UOp]


@dataclass
class Begun:
    """The memories of a closer as they begin.

    address: of who reads.  turn: where this iteration's elements begin.  start: what prepares them.
    """

    bases: list[UOp]
    address: Address
    turn: UOp = ix.ZERO
    start: Done = ()


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
        self.in_place.check_loops(root.src)
        self.top = nests(root, gpu, self.in_place)
        self.instance, self.slot = itertools.count(1), itertools.count()
        self.env: dict[Loop, Env] = {self.top: Env({}, self.top)}  # of loops that are open
        self.begun: dict[tuple[UOp, frozenset[UOp]], Begun] = {}
        self.built: dict[tuple[UOp, frozenset[UOp]], Built] = {}
        self.memo: dict[Request, UOp] = {}
        self.cluster = Cluster(order, hardware_ranges(root, AxisType.LOCAL), self.slot)
        self.before: dict[Item, Done] = {}  # of what a loop holds
        self.number: dict[Item, int] = {}  # of the ranges of a loop that holds nothing else

    def run(self) -> UOp:
        none = self.env[self.top]
        reported: Done = ()  # one after the other: equal IFs would be one
        done: dict[Item, UOp] = {}
        for item in self.top.items:
            before = tuple(done[x] for x in self.top.before.get(item, ()))
            reports = self.reports(item)
            self.before[item] = (*before, *reported) if reports else before
            done[item] = self.value(item, none)
            if reports:
                reported = (done[item],)
        return derive(self.root, tuple(done[item] for item in self.top.items))

    # ---- memories and ranges
    def reopen(
        self, ranges: Sequence[UOp], number: int | None = None, backwards: bool = False
    ) -> dict[UOp, UOp]:
        """New instances of ranges.  number: of those that another one has been given with."""
        n = next(self.instance) if number is None else number

        def copy(a: RangeArg) -> RangeArg:
            start, by = (a.size - 1, -1) if backwards else (a.start, a.step)
            return RangeArg(a.axis, a.size, a.kind, a.digit, n, start, by)

        return {r: UOp(Ops.RANGE, (), copy(r.arg)) for r in ranges}

    def alloc(
        self, space: AddrSpace, dtype: DType, size: int, name: str, like: UOp, blocks: int = 1
    ) -> UOp:
        shape = (blocks, size // blocks) if space is AddrSpace.CLUSTER else (size,)
        arg = ParamArg(next(self.slot), dtype, shape, space, name)
        return inherit(UOp(Ops.ALLOC, (), arg), like)

    # ---- closers
    def closer(self, u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        """The memories of a closer, built once per environment of its serial free ranges."""
        once = _once(u, env)
        if once not in self.built:
            loop = env.loop.home(around(u))
            home, by = self.env[loop], loop.fills[u]
            if isinstance(by, Loop):
                yield (by, home)
            elif u.op is Ops.SCAN:
                self.built[once] = yield from self.scan(u, home)
            else:
                yield from self.fill_here(by.stages if by else [u], home)
        return self.built[once]

    def fill_here(self, closers: Sequence[UOp], env: Env) -> Generator[Request, UOp, None]:
        """Fill closers by unrolled nests; where threads exchange them, all meet once."""
        for u in closers:
            self.begin(u, env)
        done = []
        for u in closers:
            done.append((yield from self.fill(u, env, ())))
        if _by_barrier(closers[0]):
            done = [inherit(UOp(Ops.BARRIER, tuple(done)), closers[0])] * len(closers)
        for u, end in zip(closers, done, strict=True):
            self.finish(u, env, end)

    def begin(self, u: UOp, env: Env) -> None:
        """The memories of a closer, before anything that fills them."""
        self.begun[_once(u, env)] = self.zeros(u, env) if u.op is Ops.REDUCE else self.stage(u, env)

    def fill(self, u: UOp, env: Env, before: Done, number: int | None = None) -> Build:
        """What fills the memories of a closer, where its loops are open."""
        begun = self.begun[_once(u, env)]
        build = self.add if u.op is Ops.REDUCE else self.keep
        return (yield from build(u, env, begun, before, number))

    def finish(self, u: UOp, env: Env, done: UOp) -> None:
        """A closer is filled."""
        begun = self.begun.pop(_once(u, env))
        self.built[_once(u, env)] = tuple(_after(b, (done,)) for b in begun.bases), begun.address

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

    def zeros(self, u: UOp, env: Env) -> Begun:
        """Accumulators of a REDUCE, which begin anew in every iteration around it."""
        kinds, combine, copies = _dtypes(u.src[0]), u.arg.combine, upcasts(free(u))
        zero = Env(self.reopen(copies), env.loop)
        size = prod(r.arg.size for r in copies)
        name = "acc" if combine is Combine.ADD else combine.name.lower()
        outer = env.opened(serials(free(u)))
        bases = [_after(self.alloc(AddrSpace.REG, d, size, name, u), outer) for d in kinds]
        address = ix.flat((r, r.arg.size) for r in copies)
        at = ix.substitute(address, zero.table)
        init = _fill(bases, at, identity(combine, kinds), ix.TRUE, zero.opened(copies), u)
        return Begun(bases, address, start=(init,))

    def add(self, u: UOp, env: Env, begun: Begun, before: Done, number: int | None) -> Build:
        """One more element for the accumulators of a REDUCE."""
        value, *ranges = u.src
        inner = [*upcasts(free(u)), *upcasts(frozenset(ranges))]
        mine = env.within(self.reopen(inner, number))
        running = [_after(b, (*begun.start, *mine.opened(ranges))) for b in begun.bases]
        at = ix.substitute(begun.address, mine.table)
        old = tuple(UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, at)),)) for m in running)
        new = yield from self.parts(value, u, mine)
        total = _accumulate(u.arg.combine, old, new)
        return _fill(running, at, total, ix.TRUE, mine.opened(inner), u, before)

    def scan(self, u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        """An accumulator that each step reads: it lives as long as the loop of the steps, which is
        that of whoever wants the result; steps in register copies are walked here.

        Two loops have two: each turn of the outer one first adds what the inner one has come to, so
        that no chain of additions is as long as the row.
        """
        value, first, *ranges = u.src
        combine, dtype = u.arg.combine, u.dtype
        steps, walked = serials(tuple(ranges)), upcasts(frozenset(ranges))
        others = [r for r in upcasts(free(u)) if r not in walked]
        outer = env.loop.outside(steps[0]) if steps else serials(free(u))
        zero, turns = (env.within(self.reopen(others)) for _ in range(2))
        back = u.arg.reverse
        mine = env.within(self.reopen(others) | self.reopen(walked, backwards=back))
        name = "acc" if combine is Combine.ADD else combine.name.lower()
        size, at = prod(r.arg.size for r in others), ix.flat((r, r.arg.size) for r in others)
        here = ix.substitute(at, mine.table)

        def memory(size: int, scopes: Sequence[UOp], name: str) -> UOp:
            return _after(self.alloc(AddrSpace.REG, dtype, size, name, u), env.opened(scopes))

        def read(m: UOp, address: UOp) -> UOp:
            return UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, address)),))

        def fill(memories: Sequence[UOp], values: Sequence[UOp], env: Env) -> UOp:
            where = ix.substitute(at, env.table)
            return _fill(memories, where, values, ix.TRUE, env.opened(others), u)

        begins = yield (first, zero)
        (nothing,) = identity(combine, (dtype,))
        done: UOp | None = None
        running = memory(size, outer, name)
        if len(steps) < 2:
            running = _after(running, (fill([running], [begins], zero), *env.opened(steps)))
        else:
            turn, _ = env.opened(steps)
            done = memory(size, outer, name)
            init = fill([running, done], [nothing, begins], zero)
            running, done = (_after(m, (init, turn)) for m in (running, done))
            where = ix.substitute(at, turns.table)
            (sum_,) = step(combine, (read(done, where),), (read(running, where),))
            added = fill([done, running], [sum_, nothing], turns)
            done, running = _after(done, (added,)), _after(running, (added, *env.opened(steps[1:])))
        x = yield (value, mine)
        running = _after(running, mine.opened(walked))  # a read of it cannot leave these loops
        old = read(running, here)
        (new,) = step(combine, (old,), (x,))
        kept = old if u.arg.exclusive else new
        if done is not None:
            (kept,) = step(combine, (read(done, here),), (kept,))
        scopes = mine.opened([*others, *walked])
        if kept is new and not walked:
            end = _fill([running], here, [new], ix.TRUE, scopes, u)
            return (UOp(Ops.AFTER, (running, end)),), at
        copies = [*others, *walked]
        address = ix.flat((r, r.arg.size) for r in copies)
        out = memory(prod(r.arg.size for r in copies), (*outer, *steps), "so_far")
        place = ix.substitute(address, mine.table)
        stored = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (out, place)), kept)), u)
        into = UOp(Ops.INDEX, (_after(running, (stored,)), here))
        end = _end(inherit(UOp(Ops.STORE, (into, new)), u), scopes)
        return (UOp(Ops.AFTER, (out, end)),), address

    def stage(self, u: UOp, env: Env) -> Begun:
        """Memories of a STAGE.  In a loop, threads meet before what they exchange is written again,
        unless they have met in between: at another exchange, or at this one where small memories
        are written in turn."""
        arg: StageArg = u.arg
        outer, size, kinds = env.opened(serials(around(u))), arg.size, _dtypes(u.src[0])
        turn = ix.ZERO
        if u in env.loop.recycled:
            if arg.space is AddrSpace.SHARED and size * sum(d.itemsize for d in kinds) <= TWICE:
                turn, size = ix.scale(_parity(env.loop), size), 2 * size
            else:
                meets = ALL_BLOCKS if arg.space is AddrSpace.CLUSTER else None
                outer = (UOp(Ops.BARRIER, outer, meets),)
        name = "part" if arg.exchange else "row" if arg.space is AddrSpace.SHARED else "x"
        memories = [self.alloc(arg.space, d, size, name, u, arg.blocks) for d in kinds]
        return Begun([_after(m, outer) for m in memories], ix.add(u.src[2], turn), turn)

    def keep(self, u: UOp, env: Env, begun: Begun, before: Done, number: int | None) -> Build:
        """The elements of a STAGE are written."""
        value, write, _, gate, *ranges = u.src
        copies = [r for r in ranges if r.arg.kind is AxisType.UPCAST]
        mine = env.within(self.reopen(copies, number))
        at = yield (ix.add(write, begun.turn), mine)
        values = yield from self.parts(value, u, mine)
        ok = yield (gate, mine)
        if u.arg.space is AddrSpace.CLUSTER:
            return self.across_blocks(u, begun, at, values, ok, mine.opened(copies))
        return _fill(begun.bases, at, values, ok, mine.opened(copies), u, before)

    def across_blocks(
        self,
        u: UOp,
        begun: Begun,
        at: UOp,
        values: Sequence[UOp],
        gate: UOp,
        ranges: tuple[UOp, ...],
    ) -> UOp:
        """The elements of a STAGE are in all blocks of the cluster that read them."""
        if not around(u):
            started = self.cluster.all_have_started(values, u)
            begun.bases = [_after(m, (started,)) for m in begun.bases]
        if u in self.cluster.exchanges:
            return self.cluster.sent(u, begun.bases, at, values, gate, ranges)
        done = _fill(begun.bases, at, values, gate, ranges, u)
        return inherit(UOp(Ops.BARRIER, (done,), ALL_BLOCKS), u)

    # ---- loops
    def loop(self, loop: Loop, outer: Env) -> Build:
        """The effect that ends a loop."""
        assert loop.outer is not None
        mine = [u for u, by in loop.outer.fills.items() if by is loop]
        for u in mine:
            self.begin(u, outer)
        number = self.number.get(loop) or next(self.instance)
        env = Env({**outer.table, **self.reopen(loop.ranges, number)}, loop)
        self.env[loop] = env
        before = self.before.get(loop, ())
        for u in filter(self.flies, loop.fills if self.loads_ahead(loop) else ()):
            before = (self.ahead(u, outer, env, before),)
        alone = len(loop.items) == 1
        for item in loop.items:
            if isinstance(item, UOp):
                done = yield from self.fill(item, env, before, number if alone else None)
            else:
                self.before[item] = before
                if alone:
                    self.number[item] = number
                done = yield (item, env)
            before = (done,)
        end = done if self.reports(loop) else _end(done, env.opened(loop.ranges), alone)
        for u in mine:
            self.finish(u, outer, end)
        return end

    def loads_ahead(self, loop: Loop) -> bool:
        """Are its LOADs waited for in the next iteration?  Where threads meet in it, but for scans:
        their turns are short, and wait for each other in any case."""
        early = self.root.arg is None or self.root.arg.early
        forward = all((r.arg.start, r.arg.step) == (0, 1) for r in loop.ranges)
        return early and forward and loop.meets and all(u.op is not Ops.SCAN for u in loop.fills)

    def flies(self, u: UOp) -> bool:
        """Is it a LOAD into registers, of what is not written, from where is known before?"""
        if u.op is not Ops.STAGE or u.arg.space is not AddrSpace.REG:
            return False
        load = u.src[0]
        if load.op is not Ops.LOAD or load in self.above:
            return False
        m = memory(load.src[0])
        return m.op is Ops.BUFFER and m not in self.in_place.writers

    def ahead(self, u: UOp, outer: Env, env: Env, before: Done) -> UOp:
        """A LOAD that is waited for in the next iteration: what loads, in this one.

        Threads meet in the loop, so that no other load of theirs flies while they do.
        """
        load, write, address, _, *copies = u.src
        (r,) = env.loop.ranges
        now, kind = env.table[r], load.dtype
        size = prod(c.arg.size for c in copies)
        begin = outer.opened(serials(around(u) - {r}))
        base = _after(self.alloc(AddrSpace.REG, kind, size, "next", u), begin)
        first = Env({**outer.table, r: ix.ZERO}, outer.loop).within(self.reopen(copies))
        init = self.copied(base, u, ix.substitute(load, first.table), first)
        running = UOp(Ops.AFTER, (base, init, now))
        mine = env.within(self.reopen(copies))
        kept = _after(self.alloc(AddrSpace.REG, kind, size, "x", u), env.opened(serials(around(u))))
        element = UOp(Ops.INDEX, (running, ix.substitute(write, mine.table)))
        done = self.copied(kept, u, UOp(Ops.LOAD, (element,)), mine)
        self.built[_once(u, env)] = (UOp(Ops.AFTER, (kept, done)),), address
        then = Env({**env.table, r: ix.add(now, ix.index(1))}, env.loop).within(self.reopen(copies))
        later = ix.substitute(load, then.table)
        if later.op is Ops.LOAD:  # and not what is outside all along
            index, *gate = later.src
            other = gate[1] if gate else UOp.const(0, kind)
            ok = ix.conj(*gate[:1], ix.below(then.table[r], r.arg.size))
            later = UOp(Ops.LOAD, (index, ok, other))
        return self.copied(UOp(Ops.AFTER, (running, done)), u, later, then, before)

    def copied(self, m: UOp, u: UOp, value: UOp, env: Env, before: Done = ()) -> UOp:
        """A STAGE's memory filled with a value under env."""
        at = ix.substitute(u.src[1], env.table)
        return _fill([m], at, [value], ix.TRUE, env.opened(u.src[4:]), u, before)

    def leaf(self, leaf: Leaf, outer: Env) -> Build:
        """The effect that ends STOREs of one nest."""
        before, number = self.before.get(leaf, ()), self.number.get(leaf)
        if self.in_place.must_keep(leaf.stores):
            return (yield from self.kept_and_stored(leaf, outer, before))
        env = outer.within(self.reopen(leaf.copies, number))
        if self.reports(leaf):
            return (yield from self.report(leaf, env, before))
        done = yield from self.stored(leaf.stores, env, before)
        return _end(done, env.opened(leaf.copies))

    # ---- values
    def visit(self, request: Request) -> Build:
        u, env = request
        if not isinstance(u, UOp):
            return (yield from self.loop(u, env) if isinstance(u, Loop) else self.leaf(u, env))
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

    def value(self, u: UOp | Item, env: Env) -> UOp:
        """u under env; of a loop and of STOREs the effect that ends them."""
        return recurse(self.visit, (u, env), self.memo)

    # ---- outputs
    def stored(self, stores: Sequence[UOp], env: Env, before: Done) -> Build:
        """STOREs that close the same ranges: one chain."""
        before = (*before, *(yield from self.readers(stores, env)))
        for store in stores:
            before = ((yield from self.effect(store, env, before)),)
        (done,) = before
        return done

    def effect(self, store: UOp, env: Env, before: Done) -> Build:
        """One STORE after what comes before."""
        element, *rest = yield from self.all(store.src, env)
        into = UOp(Ops.INDEX, (_after(element.src[0], before), element.src[1]))
        return inherit(UOp(Ops.STORE, (into, *rest)), store)

    def all(self, values: Iterable[UOp], env: Env) -> Generator[Request, UOp, list[UOp]]:
        """Values under env."""
        out = []
        for u in values:
            out.append((yield (u, env)))
        return out

    def reports(self, item: Item) -> bool:
        """Does a GPU report something by it, and does nothing else?"""
        if isinstance(item, Loop) and len(item.items) == 1:
            (item,) = item.items
        return self.gpu and isinstance(item, Leaf) and item.reports

    def report(self, leaf: Leaf, env: Env, before: Done) -> Build:
        """What a GPU reports: the largest code stays.  Loops stand inside of what says, whatever
        they do, that this thread is not the one that reports."""
        (store,) = leaf.stores
        element, code, *gate = yield from self.all(store.src, env)
        opened = env.opened((*leaf.loops, *leaf.copies))
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

    def kept_and_stored(self, leaf: Leaf, env: Env, before: Done) -> Build:
        """All values of a nest in registers; then, once the threads have met, the STOREs."""
        copies, stores = leaf.copies, leaf.stores
        size, at = prod(r.arg.size for r in copies), ix.flat((r, r.arg.size) for r in copies)
        filling, storing = (env.within(self.reopen(copies)) for _ in range(2))
        begin = env.opened(serials(frozenset(env.table)))
        bases = [
            _after(self.alloc(AddrSpace.REG, s.src[1].dtype, size, "new", s), begin) for s in stores
        ]
        values = yield from self.all((s.src[1] for s in stores), filling)
        address = ix.substitute(at, filling.table)
        kept = _fill(bases, address, values, ix.TRUE, filling.opened(copies), stores[0])
        before = (*before, *(yield from self.readers(stores, env)))
        if any(self.in_place.crosses_threads(m) for m in self.in_place.written_by(stores)):
            before = (UOp(Ops.BARRIER, (kept, *before)),)
        else:
            before = (kept, *before)
        address = ix.substitute(at, storing.table)
        for store, base in zip(stores, bases, strict=True):
            value = UOp(Ops.LOAD, (UOp(Ops.INDEX, (UOp(Ops.AFTER, (base, kept)), address)),))
            element, *gate = yield from self.all((store.src[0], *store.src[2:]), storing)
            into = UOp(Ops.INDEX, (_after(element.src[0], before), element.src[1]))
            before = (inherit(UOp(Ops.STORE, (into, value, *gate)), store),)
        (done,) = before
        return _end(done, storing.opened(copies))

    def readers(self, stores: Sequence[UOp], env: Env) -> Generator[Request, UOp, Done]:
        """The ends of the closers that read what is written in place, of those whose loops are
        open: before STOREs that do it."""
        found: dict[UOp, None] = {}
        for u in self.in_place.closers(stores, env.table.keys()):
            versions, _ = yield from self.closer(u, env)
            found |= dict.fromkeys(done for m in versions for done in m.src[1:])
        return tuple(found)


def _once(u: UOp, env: Env) -> tuple[UOp, frozenset[UOp]]:
    return u, frozenset(env.opened(around(u)))


def _parity(loop: Loop) -> UOp:
    """0 and 1 in turn, iteration by iteration."""
    ranges = [r for outer in reversed([*loop.chain()]) for r in outer.ranges]
    return ix.mod(ix.flat((r, r.arg.size) for r in ranges), 2)


def _by_barrier(u: UOp) -> bool:
    """Do threads of a block exchange it?"""
    return u.op is Ops.STAGE and u.arg.exchange and u.arg.space is AddrSpace.SHARED


def _fill(
    bases: Sequence[UOp],
    at: UOp,
    values: Sequence[UOp],
    gate: UOp,
    ranges: tuple[UOp, ...],
    like: UOp,
    before: Done = (),
) -> UOp:
    """One nest that stores all values; a chain through AFTER, closed once."""
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


def _end(effect: UOp, scopes: tuple[UOp, ...], alone: bool = False) -> UOp:
    """alone: nothing else is in these scopes, so that one END closes what the effect closes too."""
    if alone and effect.op is Ops.END:
        effect, scopes = effect.src[0], (*scopes, *effect.src[1:])
    return UOp(Ops.END, (effect, *scopes)) if scopes else effect


def _dtypes(value: UOp) -> tuple[DType, ...]:
    """The dtypes of the values that a node carries."""
    carried = tuple_of(value)
    return (value.dtype,) if carried is None else tuple(s.dtype for s in carried.src)

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
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.passes.cooperate import upcasts
from uopc.passes.materialise import serials
from uopc.passes.walk import recurse
from uopc.symbolic import index as ix
from uopc.uop.combine import identity, step
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, prod, toposort, tuple_of
from uopc.uop.ops import WHOLE_KERNEL, Combine, Ops, ParamArg, RangeArg, StageArg

FUSED = (dtypes.f32, dtypes.f64)
CLOSERS = (Ops.REDUCE, Ops.STAGE)


class Env:
    """{range: its open instance}, compared by identity."""

    __slots__ = ("table",)

    def __init__(self, table: dict[UOp, UOp]) -> None:
        self.table = table

    def opened(self, ranges: Sequence[UOp]) -> tuple[UOp, ...]:
        return tuple(self.table[r] for r in ranges)


Request = tuple[UOp, Env]
Built = tuple[tuple[UOp, ...], UOp]  # versions of the memories, and the (unresolved) read address
Visit = Generator[Request, UOp, UOp]


def effects(root: UOp) -> UOp:
    """LOOPS kernel of a MAPPED one."""
    order = toposort(root)
    above: set[UOp] = set()  # nodes with a closer at or below them: only these need the environment
    for u in order:
        if u.op in CLOSERS or any(s in above for s in u.src):
            above.add(u)
    instance, slot = itertools.count(1), itertools.count()
    built: dict[tuple[UOp, frozenset[UOp]], Built] = {}

    def reopen(ranges: Sequence[UOp]) -> dict[UOp, UOp]:
        n = next(instance)

        def copy(a: RangeArg) -> RangeArg:
            return RangeArg(a.axis, a.size, a.kind, a.digit, n, a.start, a.step)

        return {r: UOp(Ops.RANGE, (), copy(r.arg)) for r in ranges}

    def alloc(space: AddrSpace, dtype: DType, size: int, name: str, like: UOp) -> UOp:
        return inherit(UOp(Ops.ALLOC, (), ParamArg(next(slot), dtype, (size,), space, name)), like)

    def fill(
        bases: Sequence[UOp],
        at: UOp,
        values: Sequence[UOp],
        gate: UOp,
        ranges: tuple[UOp, ...],
        like: UOp,
    ) -> UOp:
        """One nest that stores all values; a chain through AFTER, closed once."""
        done: UOp | None = None
        for base, value in zip(bases, values, strict=True):
            memory = base if done is None else UOp(Ops.AFTER, (base, done))
            src = (UOp(Ops.INDEX, (memory, at)), value)
            done = inherit(UOp(Ops.STORE, src if gate is ix.TRUE else (*src, gate)), like)
        assert done is not None
        return UOp(Ops.END, (done, *ranges)) if ranges else done

    def parts(value: UOp, like: UOp, env: Env) -> Generator[Request, UOp, tuple[UOp, ...]]:
        """The values that a node carries, under env."""
        if value.op is Ops.TUPLE:
            out = []
            for s in value.src:
                out.append((yield (s, env)))
            return tuple(out)
        if tuple_of(like) is None:
            return ((yield (value, env)),)
        versions, address = yield from closer(value, env)
        at = yield (address, env)
        return tuple(UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, at)),)) for m in versions)

    def reduce(u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        value, closed, combine = u.src[0], u.src[1:], u.arg.combine
        kinds = _dtypes(value)
        copies = upcasts(free(u))
        outer = serials(free(u))
        inner = [*serials(closed), *copies, *upcasts(frozenset(closed))]
        zero, mine = Env(reopen(copies)), Env({**env.table, **reopen(inner)})
        size = prod(r.arg.size for r in copies)
        name = "acc" if combine is Combine.ADD else combine.name.lower()
        bases = [_after(alloc(AddrSpace.REG, d, size, name, u), env.opened(outer)) for d in kinds]
        address = ix.flat((r, r.arg.size) for r in copies)
        start = ix.substitute(address, zero.table)
        neutral = identity(combine, kinds)
        init = fill(bases, start, neutral, ix.TRUE, zero.opened(copies), u)
        running = [_after(b, (init, *mine.opened(closed))) for b in bases]
        at = ix.substitute(address, mine.table)
        old = tuple(UOp(Ops.LOAD, (UOp(Ops.INDEX, (m, at)),)) for m in running)
        new = yield from parts(value, u, mine)
        end = fill(running, at, _accumulate(combine, old, new), ix.TRUE, mine.opened(inner), u)
        return tuple(UOp(Ops.AFTER, (b, end)) for b in bases), address

    def stage(u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        value, write, address, gate, *ranges = u.src
        arg: StageArg = u.arg
        outer = env.opened(serials(free(u) - frozenset(ranges)))
        inner = [*serials(tuple(ranges)), *upcasts(frozenset(ranges))]
        mine = Env({**env.table, **reopen(inner)})
        recycle = (UOp(Ops.BARRIER, outer),) if arg.exchange and outer else outer
        name = "part" if arg.exchange else "row" if arg.space is AddrSpace.SHARED else "x"
        bases = [_after(alloc(arg.space, d, arg.size, name, u), recycle) for d in _dtypes(value)]
        at = yield (write, mine)
        values = yield from parts(value, u, mine)
        ok = yield (gate, mine)
        done = fill(bases, at, values, ok, mine.opened(inner), u)
        if arg.exchange:
            done = inherit(UOp(Ops.BARRIER, (done,)), u)
        return tuple(UOp(Ops.AFTER, (b, done)) for b in bases), address

    def closer(u: UOp, env: Env) -> Generator[Request, UOp, Built]:
        """The memories of a closer, built once per environment of its serial free ranges."""
        own = frozenset(u.src[4:]) if u.op is Ops.STAGE else frozenset()
        once = (u, frozenset(env.opened(serials(free(u) - own))))
        if once not in built:
            built[once] = yield from (reduce if u.op is Ops.REDUCE else stage)(u, env)
        return built[once]

    def visit(request: Request) -> Visit:
        u, env = request
        if u not in above:
            return ix.substitute(u, env.table)
        if u.op in CLOSERS:
            versions, address = yield from closer(u, env)
            at = yield (address, env)
            return inherit(UOp(Ops.LOAD, (UOp(Ops.INDEX, (versions[0], at)),)), u)
        if u.op is Ops.ITEM:
            versions, address = yield from closer(u.src[0], env)
            at = yield (address, env)
            return inherit(UOp(Ops.LOAD, (UOp(Ops.INDEX, (versions[u.arg], at)),)), u)
        src = []
        for s in u.src:
            src.append((yield (s, env)))
        return u if tuple(src) == u.src else ix.remake(u, tuple(src))

    memo: dict[Request, UOp] = {}
    done = []
    for effect in root.src:
        store, ranges = (effect.src[0], effect.src[1:]) if effect.op is Ops.END else (effect, ())
        inner = [*serials(ranges), *upcasts(frozenset(ranges))]
        assert len(inner) == sum(r.arg.kind not in WHOLE_KERNEL for r in ranges)
        env = Env(reopen(inner))
        new = recurse(visit, (store, env), memo)
        done.append(UOp(Ops.END, (new, *env.opened(inner))) if inner else new)
    return derive(root, tuple(done))


def _accumulate(combine: Combine, old: tuple[UOp, ...], new: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """One step of an accumulator; a product is added with one rounding (fused in the IR alone)."""
    if combine is Combine.ADD and new[0].op is Ops.MUL and new[0].dtype in FUSED:
        return (inherit(UOp(Ops.FMA, (*new[0].src, old[0])), new[0]),)
    return step(combine, old, new)


def _after(memory: UOp, what: tuple[UOp, ...]) -> UOp:
    return UOp(Ops.AFTER, (memory, *what)) if what else memory


def _dtypes(value: UOp) -> tuple[DType, ...]:
    """The dtypes of the values that a node carries."""
    carried = tuple_of(value)
    return (value.dtype,) if carried is None else tuple(s.dtype for s in carried.src)

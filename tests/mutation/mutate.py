"""Kernels with one fault: an effect deleted or weakened, an index shifted, a gate dropped.

Works on the graph of a kernel in stage LOOPS, so that a mutant can be emulated, rendered as CUDA
and launched like any other kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from uopc.dtype import dtypes
from uopc.errors import UopcError
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, toposort, where_from
from uopc.uop.ops import (
    ALL_LANES,
    SCOPES,
    BarrierArg,
    BarrierScope,
    Ops,
)
from uopc.uop.spec import Stage, check

#: effects that order others; deleting one is a mutant of synchronisation
SYNCHRONISATION = (
    *(Ops.BARRIER, Ops.MBAR_INIT, Ops.ARRIVE, Ops.WAIT, Ops.FENCE, Ops.COMMIT, Ops.WAITG),
)
HALF_OF_THE_LANES = 0x0000FFFF


@dataclass(frozen=True)
class Mutant:
    """One fault.  kind: "delete", "weaken" (synchronisation), "index" or "gate"; what and where it
    was done; the effect or access in the original; the kernel."""

    kind: str
    what: str
    original: UOp
    sink: UOp

    def __str__(self) -> str:
        return f"{self.what} ({where_from(self.original)})"


def synchronisation_mutants(sink: UOp) -> Iterator[Mutant]:
    """Each synchronising effect deleted, and weakened in each way it can be."""
    for u in toposort(sink):
        if u.op in SYNCHRONISATION:
            mutated = without(sink, u)
            if mutated is not None:
                yield Mutant("delete", f"{_name(u)} deleted", u, mutated)
        for what, twisted in _weaker(u):
            yield Mutant("weaken", f"{_name(u)}: {what}", u, sink.substitute({u: twisted}))


def access_mutants(sink: UOp) -> Iterator[Mutant]:
    """Each LOAD and STORE with a shifted offset, a wrong stride, or without its gate."""
    for u in toposort(sink):
        if u.op not in (Ops.LOAD, Ops.STORE):
            continue
        index = u.src[0]
        for what, offset in _wrong_offsets(index.src[1]):
            wrong = derive(u, (derive(index, (index.src[0], offset)), *u.src[1:]))
            yield from _if_legal("index", f"{u.op} {what}", u, sink, wrong)
        if len(u.src) == 3:
            bare = derive(u, u.src[:1] if u.op is Ops.LOAD else u.src[:2])
            yield from _if_legal("gate", f"{u.op} without its gate", u, sink, bare)


def _if_legal(kind: str, what: str, u: UOp, sink: UOp, wrong: UOp) -> Iterator[Mutant]:
    mutated = sink.substitute({u: wrong})
    try:
        check(mutated, Stage.LOOPS)
    except UopcError:  # what is no kernel is no mutant
        return
    yield Mutant(kind, what, u, mutated)


def _wrong_offsets(offset: UOp) -> Iterator[tuple[str, UOp]]:
    one = UOp.const(1, dtypes.index)
    yield "one element further", offset + one
    for u in toposort(offset):
        if u.op is Ops.MUL and u.src[1].op is Ops.CONST:
            longer = derive(u, (u.src[0], u.src[1] + one))
            yield "with a stride longer by one", offset.substitute({u: longer})
            return


def _weaker(u: UOp) -> Iterator[tuple[str, UOp]]:
    if u.op is Ops.BARRIER:
        scope = BarrierScope.BLOCK if u.arg is None else u.arg.scope
        if scope is BarrierScope.BLOCK:
            yield "__syncwarp instead", derive(u, u.src, BarrierArg(BarrierScope.WARP))
        if scope is BarrierScope.CLUSTER and u.src:
            yield "a barrier of the block instead", derive(u, u.src, None)
        if scope is BarrierScope.NAMED:
            yield "__syncwarp instead", derive(u, u.src[1:], BarrierArg(BarrierScope.WARP))
    elif u.op is Ops.WAITG:
        yield "one group more pending", derive(u, u.src, replace(u.arg, pending=u.arg.pending + 1))
    elif u.op is Ops.WAIT:
        flipped = UOp.const(1, dtypes.index) - u.src[1]
        yield "the other parity", derive(u, (u.src[0], flipped))
    elif u.op is Ops.MBAR_INIT:
        yield "one arrival more", derive(u, (u.src[0], u.src[1] + 1))
    elif u.op is Ops.ARRIVE and len(u.src) == 2:
        yield "16 bytes more", derive(u, (u.src[0], u.src[1] + 16))
    elif u.op in (Ops.SHUFFLE, Ops.VOTE, Ops.WARP_REDUCE) and u.arg.members == ALL_LANES:
        yield "half of the lanes", derive(u, u.src, replace(u.arg, members=HALF_OF_THE_LANES))


def _name(u: UOp) -> str:
    return u.op.name if u.arg is None else f"{u.op.name} {u.arg}"


# ---- deleting an effect
def without(sink: UOp, effect: UOp) -> UOp | None:
    """The kernel without one effect: what came after it comes after what it came after.

    None where the effect is all that the kernel does.
    """
    gone: dict[UOp, tuple[UOp, ...]] = {}  # node -> the nodes that stand for it as "done"
    new: dict[UOp, UOp] = {}
    for u in toposort(sink):
        if u is effect:
            gone[u] = _done_before(u, new, gone)
            continue
        if u.op is Ops.END and u.src[0] in gone:
            scopes = {new[s] for s in u.src[1:]}
            left = [x for x in gone[u.src[0]] if x not in scopes]
            inside = [x for x in left if scopes & free(x)]
            if not inside:  # nothing is done inside any more: the scopes go with it
                outer = tuple(t for s in u.src[1:] for t in _opened_after(s, new, gone))
                gone[u] = _distinct((*left, *outer))
                continue
            end = derive(u, (inside[-1], *(new[s] for s in u.src[1:])))
            if len(inside) > 1:
                raise ValueError(f"{where_from(u)}: an END of several effects")
            new[u] = end
            continue
        src: list[UOp] = []
        for s in u.src:
            if s in gone:
                src += gone[s]
            else:
                src.append(new[s])
        kept = tuple(_distinct(src)) if any(s in gone for s in u.src) else tuple(src)
        if u.op is Ops.AFTER and len(kept) == 1:
            new[u] = kept[0]
        elif u.op is Ops.SINK and not kept:
            return None
        else:
            new[u] = u if kept == u.src else derive(u, kept)
    return new.get(sink)


def _done_before(u: UOp, new: dict[UOp, UOp], gone: dict[UOp, tuple[UOp, ...]]) -> tuple[UOp, ...]:
    """What an effect came after: its effects and scopes, or those of the memory it works on."""
    out: list[UOp] = []
    for s in u.src:
        while s.op is Ops.INDEX or s.op is Ops.TENSORMAP:
            s = s.src[0]
        done = s.src[1:] if s.op is Ops.AFTER else (s,) if _is_done(s, u) else ()
        for d in done:
            out += gone[d] if d in gone else [new[d]]
    return _distinct(out)


def _is_done(s: UOp, user: UOp) -> bool:
    named = user.op is Ops.BARRIER and user.arg and user.arg.scope is BarrierScope.NAMED
    if named and s is user.src[0]:
        return False
    return s.dtype is dtypes.void or s.op is Ops.ATOMIC or (s.op in SCOPES and user.op in _BARE)


_BARE = (Ops.BARRIER, Ops.FENCE, Ops.COMMIT, Ops.WAITG)


def _opened_after(
    scope: UOp, new: dict[UOp, UOp], gone: dict[UOp, tuple[UOp, ...]]
) -> Iterator[UOp]:
    """What an IF or a ROLE came after."""
    for s in scope.src:
        if s.dtype is dtypes.void:
            yield from gone[s] if s in gone else (new[s],)


def _distinct(xs: tuple[UOp, ...] | list[UOp]) -> tuple[UOp, ...]:
    return tuple(dict.fromkeys(xs))

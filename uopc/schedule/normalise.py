"""A graph as the scheduler wants it.  TENSOR -> TENSOR.

First of all: values that are in memory already stand for what computed them, DETACH and CURVE are
gone, what is the same along an axis is computed once, and the leaves are numbered by first use, so
that equal steps of a program are one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc.dtype import DType, dtypes
from uopc.schedule.picks import picked
from uopc.uop.infer import Shape
from uopc.uop.node import UOp, derive, inherit
from uopc.uop.ops import ELEMENTWISE, Ops, ParamArg

Known = Callable[[UOp], UOp | None]


def reachable(roots: Sequence[UOp], known: Known) -> list[UOp]:
    """Every node that has to be looked at, sources first: nothing below what is in memory, or has
    no elements."""
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[tuple[UOp, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        u, done = stack.pop()
        if done:
            out.append(u)
        elif u not in seen:
            seen.add(u)
            stack.append((u, True))
            below: tuple[UOp, ...] = ()
            if not _empty(u):
                memory = known(u)
                below = u.src if memory is None else (memory,)
            stack += [(s, False) for s in reversed(below) if s not in seen]
    return out


def _empty(u: UOp) -> bool:
    """Is it computed, and has no elements?"""
    return 0 in u.shape and u.op is not Ops.BUFFER and u.dtype is not dtypes.void


def structure(
    roots: Sequence[UOp], known: Known, wanted: frozenset[UOp]
) -> tuple[tuple[object, ...], list[UOp]]:
    """(a key that equal graphs share, the leaves by number).

    Buffers are numbered by first use, so the same buffer twice is another key than two of them;
    wanted: old versions that somebody may still read, which decides what is overwritten.
    """
    number: dict[UOp, int] = {}
    leaves: dict[UOp, int] = {}
    key: list[object] = []
    for u in reachable(roots, known):
        memory = None if _empty(u) else known(u)
        if memory is not None:
            number[u] = number[memory]
            continue
        number[u] = len(key)
        if _empty(u):
            key.append((u.dtype, u.shape))
            continue
        if u.op is Ops.BUFFER:
            leaf = leaves.setdefault(u, len(leaves))
            key.append((leaf, u.arg.dtype, u.arg.shape, u in wanted))
        else:
            key.append((u.op, u.arg, *[number[s] for s in u.src], u in wanted))
    key.append(tuple([number[r] for r in roots]))
    return tuple(key), list(leaves)


def canonical(
    roots: Sequence[UOp], known: Known, leaves: Sequence[UOp]
) -> tuple[list[UOp], dict[UOp, UOp]]:
    """The roots over numbered leaves, without DETACH and CURVE, and {node: its canonical form}."""
    slot = {leaf: n for n, leaf in enumerate(leaves)}
    new: dict[UOp, UOp] = {}
    for u in reachable(roots, known):
        if _empty(u):  # nothing to compute, whatever is below
            new[u] = inherit(UOp.const(0, u.dtype, u.shape), u)
            continue
        memory = known(u)
        if memory is not None:
            new[u] = new[memory]
        elif u.op is Ops.BUFFER:
            new[u] = leaf_buffer(slot[u], u.arg.dtype, u.arg.shape)
        elif u.op in (Ops.DETACH, Ops.CURVE):
            new[u] = new[u.src[0]]
        else:
            new[u] = picked(narrowed(u, tuple([new[s] for s in u.src])))
    return [new[r] for r in roots], new


def narrowed(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """u over other sources; where all of them repeat the same axes, it is computed before that."""
    if u.op in ELEMENTWISE:
        shapes = {s.src[0].shape if s.op is Ops.EXPAND else None for s in src if s.shape}
        if len(shapes) == 1 and (before := shapes.pop()) is not None:
            inner = rebuilt(u, tuple([s.src[0] if s.shape else s for s in src]))
            assert inner.shape == before
            return inherit(inner.expand(u.shape), u)
    return rebuilt(u, src)


def rebuilt(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """u over other sources."""
    return u if src == u.src else derive(u, src)


def leaf_buffer(slot: int, dtype: DType, shape: Shape) -> UOp:
    """A numbered leaf."""
    return UOp(Ops.BUFFER, (), ParamArg(slot, dtype, shape))

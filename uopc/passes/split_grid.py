"""A reduction split over the grid is two kernels.  INDEXED -> INDEXED, INDEXED.

Here because: on logical axes, before `split`: each half then gets digits of its own.
Before: STORE(out, f(REDUCE(x, a1)))                 with Opts.blocks = {1: 4}
After:  STORE(part, REDUCE(x[a2*n + a1], a1))        partial results, one row of them per part
        STORE(out, f(REDUCE(LOAD(part, a1), a1)))    folded in index order

The first kernel gets the rest of the axis as its reduced axis and the part as an output axis; the
second is chosen for on its own.  Each stored element has one writer and the order is fixed.
"""

from __future__ import annotations

from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.passes.share import axes_of, reduced_axes, share
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.combine import identity
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, prod, toposort
from uopc.uop.ops import AxisType, Ops, ParamArg, RangeArg


class UnsplittableError(UsageError):
    """Opts split a reduction that cannot be split."""


def split_axis(root: UOp, opts: Opts) -> int | None:
    """The reduced axis that opts spreads over more than one block, or None."""
    reduced = reduced_axes(root)
    axes = [a for a, n in opts.blocks if a in reduced and n > 1]
    if len(axes) > 1:
        raise UnsplittableError(
            f"Opts.blocks splits reduced axes {axes}; one reduction is split at a time"
        )
    return axes[0] if axes else None


def split_grid(root: UOp, opts: Opts, slot: int) -> tuple[UOp, Opts, UOp, tuple[UOp, ...]]:
    """(first kernel, its Opts, second kernel, the partial buffers from `slot` on).

    Raises UnsplittableError where one reduction of the axis depends on another, or closes several.
    """
    axis = split_axis(root, opts)
    assert axis is not None
    r = axes_of(root)[axis]
    parts = dict(opts.blocks)[axis]
    mine = [u for u in toposort(root) if u.op is Ops.REDUCE and r in u.src[1:]]
    for u in mine:
        if any(x in mine for x in toposort(u)[:-1]):
            raise UnsplittableError(
                f"Opts.blocks={{{axis}: {parts}}}: a reduction of axis {axis} depends on another "
                "over it, so it cannot be split over blocks in one step. Leave the axis out."
            )
    if any(len(u.src) > 2 for u in mine):
        raise UnsplittableError(
            f"Opts.blocks={{{axis}: {parts}}}: a reduction closes axis {axis} together with "
            "others, so one step cannot split it. Leave the axis out."
        )
    kept = sorted(frozenset().union(*(free(u) for u in mine)), key=lambda x: x.arg.axis)
    width = dict(opts.vector).get(axis, 1)
    chunk = -(-r.arg.size // (parts * width)) * width  # each part begins where wide loads may
    part = UOp(Ops.RANGE, (), RangeArg(len(kept), parts, AxisType.LOOP))
    inner = ix.ZERO  # a part of one element is no reduction
    if chunk > 1:
        inner = UOp(Ops.RANGE, (), RangeArg(len(kept) + 1, chunk, AxisType.REDUCE))
    outer = {
        x: UOp(Ops.RANGE, (), RangeArg(k, x.arg.size, AxisType.LOOP)) for k, x in enumerate(kept)
    }
    position = ix.add(ix.scale(part, chunk), inner)
    inside = ix.below(position, r.arg.size)
    again = UOp(Ops.RANGE, (), RangeArg(len(axes_of(root)), parts, AxisType.REDUCE))
    buffers: list[UOp] = []
    effects: list[UOp] = []
    table: dict[UOp, UOp] = {}
    for u in mine:
        here = [x for x in kept if x in free(u)]
        rows = prod(x.arg.size for x in here)
        write = ix.flat([(part, parts), *((outer[x], x.arg.size) for x in here)])
        read = ix.flat([(again, parts), *((x, x.arg.size) for x in here)])
        value = guarded(u, ix.substitute(u.src[0], {r: position, **outer}), inside)
        total = value if inner is ix.ZERO else derive(u, (value, inner))
        values = value.src if value.op is Ops.TUPLE else (value,)
        loads = []
        for k, v in enumerate(values):
            memory = UOp(Ops.BUFFER, (), ParamArg(slot + len(buffers), v.dtype, (parts * rows,)))
            buffers.append(memory)
            one = (
                ix.remake(UOp(Ops.ITEM, (total,), k), (total,)) if value.op is Ops.TUPLE else total
            )
            store = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (memory, write)), one)), u)
            effects.append(UOp(Ops.END, (store, *(outer[x] for x in here), part)))
            loads.append(UOp(Ops.LOAD, (UOp(Ops.INDEX, (memory, read)),)))
        folded = derive(value, tuple(loads)) if value.op is Ops.TUPLE else loads[0]
        table[u] = derive(u, (folded, again))
    first = share(UOp(Ops.SINK, tuple(effects)))
    second = share(replace(root, table))
    closes = [u.src[1].arg.axis for u in toposort(first) if u.op is Ops.REDUCE] if chunk > 1 else []
    number = {x.arg.axis: k for k, x in enumerate(kept)}
    if closes:
        number[axis] = closes[-1]
    return first, _first_opts(opts, axis, number), second, tuple(buffers)


def guarded(u: UOp, value: UOp, inside: UOp) -> UOp:
    """Elements past the end of the axis are the identity; their loads touch nothing."""
    if inside is ix.TRUE:
        return value
    parts = value.src if value.op is Ops.TUPLE else (value,)
    neutral = identity(u.arg.combine, tuple(p.dtype for p in parts))
    chosen = tuple(
        UOp(Ops.WHERE, (inside, _gate(p, inside), e)) for p, e in zip(parts, neutral, strict=True)
    )
    return derive(value, chosen) if value.op is Ops.TUPLE else chosen[0]


def _gate(value: UOp, inside: UOp) -> UOp:
    """The value with LOADs under one more gate, those in addresses of others too."""
    mine = free(inside)
    memo: dict[UOp, UOp] = {}
    for u in toposort(value):
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else ix.remake(u, src)
        if new.op is Ops.LOAD and not free(u).isdisjoint(mine):
            other = new.src[2] if len(new.src) == 3 else UOp.const(0, u.dtype)
            new = derive(new, (new.src[0], ix.conj(inside, *new.src[1:2]), other))
        memo[u] = new
    return memo[value]


def _first_opts(opts: Opts, axis: int, number: dict[int, int]) -> Opts:
    """opts for the first kernel, with its numbers of the kept axes and of the rest of the axis."""

    def moved(sizes: tuple[tuple[int, int], ...]) -> dict[int, int]:
        return {number[a]: n for a, n in sizes if a in number}

    def order(axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number[a] for a in axes if a in number)

    return Opts(
        gpu=True,
        local=moved(opts.local),
        upcast=moved(opts.upcast),
        vector=moved(opts.vector),
        tile=moved(opts.tile),
        loop=moved(opts.loop),
        blocks={a: n for a, n in moved(opts.blocks).items() if a != number.get(axis)},
        unroll=opts.unroll,
        lanes=order(opts.lanes),
        grid=order(opts.grid),
        blocks_per_sm=opts.blocks_per_sm,
        keep=opts.keep,
        early=opts.early,
        streaming=opts.streaming,
    )


__all__ = ["UnsplittableError", "split_axis", "split_grid"]

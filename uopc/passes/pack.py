"""Operands of a product, written once as panels.  INDEXED -> several INDEXED.

Here because: on logical axes, before `split`, like `split_grid`: each kernel gets its own digits.
Before: STORE(out[a0, a1], REDUCE(a[a0, a2] * b[a2, a1], a2))          with Opts.pack = {1: 16}
After:  STORE(panels[a0, a1, a2], b[a1, a0*16 + a2])                   a panel holds 16 columns
        STORE(out[a0, a1], REDUCE(a[a0, a2] * panels[a1//16, a2, a1%16], a2))

A register tile of 6 by 16 reads b along 16 columns, row after row.  In memory those are a page
apart and fall into few sets of a cache; in a panel they follow each other.  Whatever the operand
is, views, casts and arithmetic, it is computed once for each of its elements.

The axis becomes a multiple of the panel's width.  In a panel there is a last row or column again
and again, so the loop over k has no guard; what lies outside is guarded where it is stored.
"""

from __future__ import annotations

from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.passes.share import axes_of, share
from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, prod, toposort
from uopc.uop.ops import AxisType, Combine, Ops, ParamArg, RangeArg


def pack(root: UOp, opts: Opts, slot: int) -> tuple[list[UOp], UOp, list[UOp]]:
    """(kernels that write panels, the kernel that reads them, the buffers of panels from `slot`).

    Raises UsageError where no sum of products has an operand that varies along an axis of
    Opts.pack.
    """
    firsts: list[UOp] = []
    buffers: list[UOp] = []
    for axis, width in opts.pack:
        r = axes_of(root)[axis]
        operands = operands_along(root, r)
        if not operands:
            raise UsageError(
                f"Opts.pack={dict(opts.pack)}: no sum of products has an operand along axis {axis} "
                "whose other operand is not along it. Leave it out."
            )
        table: dict[UOp, UOp] = {}
        for operand in operands:
            first, panels, load = _panels(operand, r, width, slot + len(buffers))
            firsts.append(first)
            buffers.append(panels)
            table[operand] = load
        root = _padded(replace(root, table), r, width, frozenset(table.values()))
    return firsts, share(root), buffers


def operands_along(root: UOp, r: UOp) -> list[UOp]:
    """Operands of sums of products that vary along r and along what is summed; the other operand of
    the product does not vary along r."""
    found: dict[UOp, None] = {}
    for u in toposort(root):
        if u.op is Ops.REDUCE and u.arg.combine is Combine.ADD and u.src[0].op is Ops.MUL:
            mine = [x for x in u.src[0].src if r in free(x)]
            if len(mine) == 1 and not free(mine[0]).isdisjoint(u.src[1:]):
                found[mine[0]] = None
    return [*found]


def _panels(operand: UOp, r: UOp, width: int, slot: int) -> tuple[UOp, UOp, UOp]:
    """(the kernel that writes an operand as panels, their memory, the LOAD of an element)."""
    count = -(-r.arg.size // width)
    others = sorted((x for x in free(operand) if x is not r), key=lambda x: x.arg.axis)
    lengths = [count, *(x.arg.size for x in others), width]
    closed = [UOp(Ops.RANGE, (), RangeArg(k, n, AxisType.LOOP)) for k, n in enumerate(lengths)]
    summed = {x for u in toposort(operand) if u.op is Ops.REDUCE for x in u.src[1:]}
    fresh = {
        x: UOp(Ops.RANGE, (), RangeArg(len(closed) + k, x.arg.size, AxisType.REDUCE))
        for k, x in enumerate(sorted(summed, key=lambda x: x.arg.axis))
    }
    place = ix.add(ix.scale(closed[0], width), closed[-1])
    if count * width > r.arg.size:
        place = UOp(Ops.MIN, (place, ix.index(r.arg.size - 1)))
    value = replace(operand, {r: place, **dict(zip(others, closed[1:-1], strict=True)), **fresh})
    panels = UOp(Ops.BUFFER, (), ParamArg(slot, operand.dtype, (prod(lengths),)))

    def element(*at: UOp) -> UOp:
        return UOp(Ops.INDEX, (panels, ix.flat(zip(at, lengths, strict=True))))

    store = inherit(UOp(Ops.STORE, (element(*closed), value)), operand)
    first = share(UOp(Ops.SINK, (UOp(Ops.END, (store, *closed)),)))
    load = UOp(Ops.LOAD, (element(ix.div(r, width), *others, ix.mod(r, width)),))
    return first, panels, inherit(load, operand)


def _padded(root: UOp, r: UOp, width: int, panels: frozenset[UOp]) -> UOp:
    """Axis r a multiple of width; outside, panels are read and nothing else is, or stored."""
    size = r.arg.size
    reduced = any(u.op is Ops.REDUCE and r in u.src[1:] for u in toposort(root))
    if size % width == 0 or reduced:
        return root
    wider = UOp(
        Ops.RANGE, (), RangeArg(r.arg.axis, -(-size // width) * width, r.arg.kind, r.arg.digit)
    )
    inside = ix.below(wider, size)
    memo: dict[UOp, UOp] = {r: wider}
    for u in toposort(root):
        if u in memo:
            continue
        src = tuple([memo[s] for s in u.src])
        if u.op is Ops.LOAD and r in free(u) and u not in panels:
            other = src[2] if len(src) == 3 else UOp.const(0, u.dtype)
            memo[u] = derive(u, (src[0], ix.conj(inside, *src[1:2]), other))
        elif u.op is Ops.STORE and r in free(u):
            memo[u] = derive(u, (*src[:2], ix.conj(inside, *src[2:])))
        else:
            memo[u] = u if src == u.src else ix.remake(u, src)
    return memo[root]

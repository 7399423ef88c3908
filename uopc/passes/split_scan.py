"""A scan that is split over the grid is three kernels.  INDEXED -> three INDEXED.

Here because: on logical axes, before `split`, like `split_grid`: each then gets its own digits.
Before: STORE(out[a1], f(SCAN(x, 0, a1)))                with Opts.blocks = {1: 4}
After:  STORE(part[a0], REDUCE(x[a0*n + a1], a1))        what each part comes to
        STORE(from[a0], SCAN(part[a0], 0, a0; exclusive)) what comes before it
        STORE(out[a0*n + a1], f(SCAN(x[a0*n + a1], from[a0], a1)))

x is read twice, out is written once, and the order of every sum follows from the number of parts.
Backwards the parts are scanned backwards too.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.opts import Opts
from uopc.passes.share import axes_of, share
from uopc.passes.split_grid import UnsplittableError, guarded
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, inherit, prod, toposort
from uopc.uop.ops import AxisType, Ops, ParamArg, RangeArg, ReduceArg, ScanArg


@dataclass(frozen=True)
class SplitScan:
    """The kernels of totals and of what comes before each part, the last one, and the buffers."""

    firsts: tuple[UOp, UOp]
    rest: UOp
    buffers: tuple[UOp, ...]


def split_scan(root: UOp, opts: Opts, axis: int, slot: int) -> SplitScan:
    """Three kernels of one that scans `axis`; slot: the first free one.

    Raises UnsplittableError where a scan of the axis depends on another, or it is reduced too.
    """
    r = axes_of(root)[axis]
    parts = dict(opts.blocks)[axis]
    mine = _scans(root, r, opts)
    width = dict(opts.vector).get(axis, 1)
    chunk = -(-r.arg.size // (parts * width)) * width  # each part begins where wide loads may
    parts = -(-r.arg.size // chunk)
    if chunk == 1 or parts == 1:
        raise _unsplittable(opts, axis, f"makes {parts} parts of {chunk} elements")
    outer = sorted((x for x in axes_of(root) if x is not r), key=lambda x: x.arg.axis)
    kept = [x for x in outer if any(x in free(u) for u in mine)]
    rows = {x: _range(k, x.arg.size) for k, x in enumerate(kept)}
    part, inner = _range(len(kept), parts), _range(len(kept) + 1, chunk, AxisType.REDUCE)
    totals: list[UOp] = []
    befores: list[UOp] = []
    buffers: list[UOp] = []
    starts: dict[UOp, UOp] = {}  # SCAN -> what comes before a part, by the axes of the last kernel
    last_part, last_inner = _range(axis, parts), _range(len(axes_of(root)), chunk)
    for u in mine:
        here = [x for x in kept if x in free(u)]
        sizes = [(x, x.arg.size) for x in here]
        size = parts * prod(n for _, n in sizes)
        (total, before) = (
            UOp(Ops.BUFFER, (), ParamArg(slot + len(buffers) + k, u.dtype, (size,)))
            for k in range(2)
        )
        buffers += [total, before]

        def place(p: UOp, table: dict[UOp, UOp], sizes: list[tuple[UOp, int]] = sizes) -> UOp:
            return ix.flat([*((table.get(x, x), n) for x, n in sizes), (p, parts)])

        position = ix.add(ix.scale(part, chunk), inner)
        value = ix.substitute(u.src[0], {r: position, **rows})
        value = guarded(u, value, ix.below(position, r.arg.size))
        folded = inherit(UOp(Ops.REDUCE, (value, inner), ReduceArg(u.arg.combine)), u)
        closed = (*(rows[x] for x in here), part)
        totals.append(_stored(total, place(part, rows), folded, closed, u))
        load = UOp(Ops.LOAD, (UOp(Ops.INDEX, (total, place(part, rows))),))
        arg = ScanArg(u.arg.combine, u.arg.reverse, True)
        scan = inherit(UOp(Ops.SCAN, (load, u.src[1], part), arg), u)
        befores.append(_stored(before, place(part, rows), scan, closed, u))
        starts[u] = UOp(Ops.LOAD, (UOp(Ops.INDEX, (before, place(last_part, {}))),))
    rest = _rest(root, r, last_part, last_inner, starts)
    return SplitScan(
        (share(UOp(Ops.SINK, tuple(totals))), share(UOp(Ops.SINK, tuple(befores)))),
        share(rest),
        tuple(buffers),
    )


def _scans(root: UOp, r: UOp, opts: Opts) -> list[UOp]:
    """The SCANs of an axis that can be split."""
    order = toposort(root)
    mine = [u for u in order if u.op is Ops.SCAN and r in u.src[2:]]
    fault = ""
    if any(u.op is Ops.REDUCE and r in u.src[1:] for u in order):
        fault = "goes with a reduction of it"
    elif any(x in mine for u in mine for x in toposort(u)[:-1]):
        fault = "depends on another"
    elif len({u.arg.reverse for u in mine}) > 1:
        fault = "goes both ways"
    if fault:
        raise _unsplittable(opts, r.arg.axis, fault)
    return mine


def _unsplittable(opts: Opts, axis: int, fault: str) -> UnsplittableError:
    return UnsplittableError(
        f"Opts.blocks={{{axis}: {dict(opts.blocks)[axis]}}}: a scan of axis {axis} {fault}, so it "
        "cannot be split over blocks. Leave the axis out."
    )


def _range(axis: int, size: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp(Ops.RANGE, (), RangeArg(axis, size, kind))


def _stored(into: UOp, at: UOp, value: UOp, closed: tuple[UOp, ...], like: UOp) -> UOp:
    store = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (into, at)), value)), like)
    return UOp(Ops.END, (store, *closed))


def _rest(root: UOp, r: UOp, part: UOp, inner: UOp, starts: dict[UOp, UOp]) -> UOp:
    """The kernel with axis r as a part and what is inside of it; nothing is done past its end."""
    position = ix.add(ix.scale(part, inner.arg.size), inner)
    inside = ix.below(position, r.arg.size)
    memo: dict[UOp, UOp] = {r: position}
    for u in toposort(root):
        if u in memo:
            continue
        if u in starts:
            value = memo[u.src[0]]  # backwards, what lies past the end would come first
            value = guarded(u, value, inside) if u.arg.reverse else value
            memo[u] = derive(u, (value, starts[u], inner))
            continue
        src = tuple([memo[s] for s in u.src])
        walks = r in free(u)
        if u.op is Ops.LOAD and walks:
            other = src[2] if len(src) == 3 else UOp.const(0, u.dtype)
            gate = ix.conj(inside, *src[1:2])
            memo[u] = u if gate is ix.TRUE and src == u.src else _gated(u, src[0], gate, other)
        elif u.op is Ops.STORE and walks:
            gate = ix.conj(inside, *src[2:])
            memo[u] = derive(u, src[:2] if gate is ix.TRUE else (*src[:2], gate))
        elif u.op is Ops.END:
            ranges = tuple(x for y in u.src[1:] for x in ((part, inner) if y is r else (y,)))
            memo[u] = derive(u, (src[0], *ranges))
        else:
            memo[u] = u if src == u.src else ix.remake(u, src)
    return memo[root]


def _gated(u: UOp, element: UOp, gate: UOp, other: UOp) -> UOp:
    return derive(u, (element,) if gate is ix.TRUE else (element, gate, other))

"""Equal axes become one, and axes get their numbers.  INDEXED -> INDEXED.

Here because: right after `rangeify`, on logical axes, so that Opts name axes and not ranges.
Before: REDUCE(MAX, LOAD(x, a0*N + a2), a2) and REDUCE(ADD, f(LOAD(x, a0*N + a1)), a1)
After:  both close a1, and LOAD(x, a0*N + a1) is one node

A bound axis r of a REDUCE is renamed to an axis c of equal size iff
  (a) c is not free in the REDUCE,
  (b) no REDUCE inside binds c where r is free, so nothing is captured,
  (c) some LOAD below becomes a node that exists elsewhere, so that it pays.
Then reduced axes that every access walks as one are merged (the last n axes of a contiguous array
are one axis), and the reduced axes are numbered by first REDUCE in topological order.

In a kernel whose axes are given, output axes are merged too: a schedule cuts axes as finely as some
other kernel needs.
"""

from __future__ import annotations

import itertools

from uopc.passes.walk import replace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, toposort
from uopc.uop.ops import Ops, RangeArg, ReportArg


def share(root: UOp, given: bool = False) -> UOp:
    """INDEXED with shared, merged and renumbered axes.  given: output axes may be merged."""
    reduces = any(u.op is Ops.REDUCE for u in toposort(root))
    if reduces:
        root = _rename(root)
    if given:
        root = _reports_once(root)
    if reduces or given:
        root = _merge(root, given)
    return _renumber(root)


def is_report(effect: UOp) -> bool:
    """Is this a STORE that reports, or its END?  It is no output."""
    store = effect.src[0] if effect.op is Ops.END else effect
    return isinstance(store.arg, ReportArg)


def axes_of(root: UOp) -> tuple[UOp, ...]:
    """The logical axes of an INDEXED graph, by number."""
    return tuple(sorted((u for u in toposort(root) if u.op is Ops.RANGE), key=lambda r: r.arg.axis))


def reduced_axes(root: UOp) -> frozenset[int]:
    """Axes along which threads have to work together: those that some REDUCE closes (an END may
    too, where a row is reduced and stored) and those that are scanned."""
    closed = (r.arg.axis for u in toposort(root) if u.op is Ops.REDUCE for r in u.src[1:])
    return frozenset(closed) | scanned_axes(root)


def scanned_axes(root: UOp) -> frozenset[int]:
    """Axes that some SCAN goes along."""
    return frozenset(r.arg.axis for u in toposort(root) if u.op is Ops.SCAN for r in u.src[2:])


def output_axes(root: UOp) -> frozenset[int]:
    """Axes that the END of an output closes."""
    return frozenset(r.arg.axis for u in root.src if _is_output(u) for r in u.src[1:])


def _is_output(effect: UOp) -> bool:
    return effect.op is Ops.END and not is_report(effect)


def _reports_once(root: UOp) -> UOp:
    """Reports that differ in their ranges alone are one: the REDUCEs around them may share axes."""
    first: dict[UOp, UOp] = {}
    reports = [e for e in root.src if is_report(e)]
    for e in sorted(
        reports, key=lambda e: [r.arg.axis for r in e.src[1:]] if e.op is Ops.END else []
    ):
        if not any(_renamed(e, other) is other for other in first):
            first[e] = e
    effects = tuple([e for e in root.src if not is_report(e) or e in first])
    return root if effects == root.src else derive(root, effects)


def _renamed(report: UOp, other: UOp) -> UOp:
    """The first report over the ranges of the other, where they are as many and as long."""
    mine, its = [e.src[1:] if e.op is Ops.END else () for e in (report, other)]
    if [r.arg.size for r in mine] != [r.arg.size for r in its]:
        return report
    store = ix.substitute(report.src[0] if mine else report, dict(zip(mine, its, strict=True)))
    return derive(report, (store, *its)) if mine else store


def _rename(root: UOp) -> UOp:
    order = toposort(root)
    loads = {u for u in order if u.op is Ops.LOAD}
    by_size: dict[int, list[UOp]] = {}
    for r in axes_of(root):
        by_size.setdefault(r.arg.size, []).append(r)
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        if u.op is Ops.REDUCE:
            value, closed = src[0], list(src[1:])
            outside = free(u)
            for k, r in enumerate(closed):
                for c in by_size[r.arg.size]:
                    if c.arg.axis >= r.arg.axis:
                        break
                    if c in outside or c in closed or _captures(value, r, c):
                        continue
                    below = [x for x in toposort(value) if x.op is Ops.LOAD and r in free(x)]
                    moved = [ix.substitute(x, {r: c}) for x in below]
                    if any(m in loads for m in moved):
                        value = ix.substitute(value, {r: c})
                        closed[k] = c
                        loads.update(moved)
                        break
            src = (value, *closed)
        memo[u] = u if src == u.src else ix.remake(u, src)
    return memo[root]


def _captures(value: UOp, r: UOp, c: UOp) -> bool:
    return any(
        x.op is Ops.REDUCE
        and (c in x.src[1:] or r in x.src[1:])
        and r in free(x) | frozenset(x.src[1:])
        for x in toposort(value)
    )


def _merge(root: UOp, given: bool) -> UOp:
    """Neighbours closed by the same closers, walked as outer*size + inner by all, are one axis."""
    refused: set[tuple[UOp, UOp]] = set()
    while wide := _mergeable(root, refused, given):
        merged = _merged(root, wide)
        divided = {s for u in toposort(merged) if u.op in (Ops.IDIV, Ops.MOD) for s in u.src}
        if told_apart := {pair for pair, r in wide.items() if r in divided}:
            refused |= told_apart  # once more, without these
        else:
            root = merged
    return root


def _mergeable(root: UOp, refused: set[tuple[UOp, UOp]], given: bool) -> dict[tuple[UOp, UOp], UOp]:
    """(outer, inner) -> the axis that could be both, for pairs that share no axis."""
    order = toposort(root)
    closers = [u for u in order if u.op is Ops.REDUCE or (given and u.op is Ops.END)]
    closed_by: dict[UOp, set[UOp]] = {}
    for u in closers:
        for r in u.src[1:]:
            closed_by.setdefault(r, set()).add(u)
    for u in order:  # a scanned axis is no part of another one
        if u.op is Ops.SCAN:
            closed_by.setdefault(u.src[2], set()).add(u)
    bound: set[UOp] = set()  # no more than once each
    if not given:
        bound = {r for u in order if u.op is Ops.END for r in u.src[1:]}
    out: dict[tuple[UOp, UOp], UOp] = {}
    for u in reversed(closers):
        for a, b in reversed([*itertools.pairwise(u.src[1:])]):
            together = closed_by[a] == closed_by[b]
            if together and a not in bound and b not in bound and (a, b) not in refused:
                size = a.arg.size * b.arg.size
                out[a, b] = UOp(Ops.RANGE, (), RangeArg(b.arg.axis, size, b.arg.kind))
                bound |= {a, b}
    return out


def folded(root: UOp, outer: UOp, inner: UOp) -> UOp:
    """The graph with two neighbouring output axes as one, which those who need them take apart."""
    size = outer.arg.size * inner.arg.size
    wide = UOp(Ops.RANGE, (), RangeArg(inner.arg.axis, size, inner.arg.kind))
    return _renumber(_merged(root, {(outer, inner): wide}))


def _merged(root: UOp, wide: dict[tuple[UOp, UOp], UOp]) -> UOp:
    """The graph with each pair of axes as one."""
    memo: dict[UOp, UOp] = {}
    outer, inner = {a: r for (a, _), r in wide.items()}, {b for _, b in wide}
    for (a, b), r in wide.items():
        memo[a], memo[b] = ix.div(r, b.arg.size), ix.mod(r, b.arg.size)
    for u in toposort(root):
        if u in memo:
            continue
        if u.op in (Ops.REDUCE, Ops.END):
            ranges = tuple(outer.get(r, r) for r in u.src[1:] if r not in inner)
            memo[u] = derive(u, (memo[u.src[0]], *ranges))
            continue
        src = tuple([memo[s] for s in u.src])
        memo[u] = u if src == u.src else ix.remake(u, src)
    return memo[root]


def _renumber(root: UOp) -> UOp:
    """Output axes keep their order; reduced ones follow by first REDUCE in topological order."""
    order: dict[UOp, None] = {}
    closed = {r for u in root.src if _is_output(u) for r in u.src[1:]}
    outputs = sorted(closed, key=lambda r: r.arg.axis)
    for r in outputs:
        order[r] = None
    for u in toposort(root):
        if u.op is Ops.REDUCE:
            for r in u.src[1:]:
                order.setdefault(r)
    for u in toposort(root):
        if u.op is Ops.RANGE:
            order.setdefault(u)
    table = {}
    for n, r in enumerate(order):
        if r.arg.axis != n:
            table[r] = UOp(Ops.RANGE, (), RangeArg(n, r.arg.size, r.arg.kind))
    if not table:
        return root
    new = replace(root, table)
    if sum(u.op is Ops.RANGE for u in toposort(new)) < len(order):  # a choice by a constant folded
        return _renumber(new)
    return new

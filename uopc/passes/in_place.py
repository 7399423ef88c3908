"""May a kernel write what it reads, under these Opts?  On INDEXED graphs, before `split`.

A memory that is read and written is written in place.  The meaning of a kernel is that every LOAD
comes before every STORE.  Threads of a block can be made to meet between them, blocks cannot: where
an axis is cut into blocks, each LOAD must name the element of its own iteration of that axis.

    x[r*8 + c] = x[r*8 + c] - x[r*8]        r may be blocks, c may not

With loops it is the same (`passes/nests.py` sees to them).  Where no Opts will do, `apart` gives
the output a memory of its own, which a second kernel copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from uopc.errors import TargetError
from uopc.opts import Opts
from uopc.passes.share import axes_of, is_report, reduced_axes
from uopc.symbolic import index as ix
from uopc.uop.facts import bounds
from uopc.uop.infer import segment
from uopc.uop.node import UOp, derive, inherit, memory, toposort
from uopc.uop.ops import AxisType, Ops, ParamArg, RangeArg
from uopc.uop.records import memory_name


def check_in_place(root: UOp, opts: Opts) -> None:
    """Raises TargetError where a kernel would overwrite what another iteration still reads."""
    for m, axis in _conflicts(root, opts):
        a = axis.arg.axis
        raise TargetError(
            f"{memory_name(m.arg)} is written in place, and one block would read what another one "
            f"along axis {a} writes. Set Opts.blocks={{{a}: 1}}, no Opts.cluster and no Opts.plan, "
            "or give the output a memory of its own."
        )


def may_write_in_place(root: UOp, opts: Opts) -> bool:
    """Is it right under these Opts?"""
    return next(_conflicts(root, opts), None) is None


def is_in_place(root: UOp) -> bool:
    """Does a kernel write what it reads?"""
    return next(written_in_place(root), None) is not None


def confined(root: UOp, opts: Opts) -> Opts:
    """opts with loops instead of blocks along the axes where blocks would overwrite what others
    read."""
    axes = {axis.arg.axis for _, axis in _conflicts(root, opts)}
    if not axes:
        return opts
    blocks = {a: n for a, n in opts.blocks if a not in axes} | dict.fromkeys(axes, 1)
    loop = {a: n for a, n in opts.loop if a not in axes}
    cluster = {a: n for a, n in opts.cluster if a not in axes}
    changed = {f.name: getattr(opts, f.name) for f in dataclasses.fields(opts)}
    return Opts(**(changed | {"blocks": blocks, "loop": loop, "cluster": cluster}))


def apart(root: UOp, slot: int) -> tuple[UOp, list[UOp], list[UOp]]:
    """(a kernel that writes nothing in place, kernels that copy its outputs, what it writes).

    slot: the first free one.
    """
    table: dict[UOp, UOp] = {}
    copies: list[UOp] = []
    for m, store in written_in_place(root):
        a: ParamArg = m.arg
        partial = UOp(Ops.BUFFER, (), ParamArg(slot + len(copies), a.dtype, a.shape))
        element = store.src[0]
        into = UOp(Ops.INDEX, (partial, element.src[1]))
        table[store] = derive(store, (into, *store.src[1:]))
        copies.append(_copy(m, partial, a.shape[0]))
    effects = []
    for e in root.src:
        store = e.src[0] if e.op is Ops.END else e
        new = table.get(store, store)
        effects.append(derive(e, (new, *e.src[1:])) if e.op is Ops.END else new)
    partials = [u for u in toposort(*table.values()) if u.op is Ops.BUFFER and u.arg.slot >= slot]
    return derive(root, tuple(effects)), copies, sorted(partials, key=lambda p: p.arg.slot)


def _copy(to: UOp, source: UOp, size: int) -> UOp:
    at = UOp(Ops.RANGE, (), RangeArg(0, size, AxisType.LOOP)) if size > 1 else ix.ZERO
    load = UOp(Ops.LOAD, (UOp(Ops.INDEX, (source, at)),))
    store = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (to, at)), load)), to)
    return UOp(Ops.SINK, (UOp(Ops.END, (store, at)) if size > 1 else store,))


def written_in_place(root: UOp) -> Iterator[tuple[UOp, UOp]]:
    """(memory, its STORE) for each memory that is read too."""
    read = {memory(u.src[0]) for u in toposort(root) if u.op is Ops.LOAD}
    for e in root.src:
        store = e.src[0] if e.op is Ops.END else e
        if (m := memory(store.src[0])) in read and not is_report(e):
            yield m, store


def _conflicts(root: UOp, opts: Opts) -> Iterator[tuple[UOp, UOp]]:
    """(memory, axis) where one block writes what another reads."""
    written = [*written_in_place(root)]
    if not written or not opts.gpu:
        return
    loads, reduced = [u for u in toposort(root) if u.op is Ops.LOAD], reduced_axes(root)
    for axis in axes_of(root):
        a: RangeArg = axis.arg
        cut = opts.axis(a.axis, a.size, a.axis in reduced)
        if a.axis in reduced if opts.plan else cut.blocks * cut.cluster == 1:
            continue  # a plan gives blocks parts of all output axes
        for m, store in written:
            mine = [u for u in loads if memory(u.src[0]) is m]
            if any(a.axis not in own_axes(u.src[0], store.src[0]) for u in mine):
                yield m, axis


def own_axes(read: UOp, written: UOp) -> frozenset[int]:
    """The axes along which one INDEX always names the element that the other names there.

    The one that is written is a row-major position: a sum of digits, stride by stride.  Along an
    axis both agree where the read one has the same digits of it, and what is left of it lies
    between that axis and the next outer one.
    """
    sizes: dict[int, dict[UOp, int]] = {}
    for r, c in ix.affine(written.src[1])[0].items():
        sizes.setdefault(r.arg.axis, {})[r] = c
    if read is written:
        return frozenset(sizes) | _segment_axes(read, written)
    terms, constant = ix.affine(read.src[1])
    found: set[int] = set()
    outer = None  # the stride of the next outer axis
    for axis, digits in sorted(sizes.items(), key=lambda x: -min(x[1].values())):
        stride = min(digits.values())
        if all(terms.get(r) == c for r, c in digits.items()):
            rest = {t: c for t, c in terms.items() if t not in digits}
            inner = {t: c for t, c in rest.items() if outer is None or c % outer}
            low, high = bounds(ix.from_affine(inner, constant))
            if low >= 0 and high < stride:
                found.add(axis)
        outer = stride
    return frozenset(found) | _segment_axes(read, written)


def _segment_axes(read: UOp, written: UOp) -> frozenset[int]:
    """Axes that say in which segment of a bundle both are."""
    of = segment(written)
    if of is None or segment(read) is not of:
        return frozenset()
    return frozenset(r.arg.axis for r in ix.affine(of.src[1])[0] if r.op is Ops.RANGE)

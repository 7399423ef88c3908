"""Shapes become ranges: movement ops turn into index arithmetic and guards.  TENSOR -> INDEXED.

First of all passes: everything later speaks of ranges.
Before: RESHAPE(BUFFER p0 (8192,)) * 2.0, shape (64, 128)
After:  SINK(END(STORE(INDEX(p1, a0*128 + a1), LOAD(INDEX(p0, a0*128 + a1)) * 2.0), a0, a1))

`rangeify` takes bodies: one LOOP range per output axis (outputs share an axis where it has the same
place and size), one fresh REDUCE range per reduced axis and per index at which a REDUCE is used
(`share` finds equal ones afterwards).  `rangeify_kernel` takes a kernel that says which axes its
values walk.  Both walk the values alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from uopc.dtype import dtypes
from uopc.errors import CompilerError, UsageError
from uopc.kernel import KernelBody
from uopc.passes import indices
from uopc.passes.walk import recurse
from uopc.symbolic import index as ix
from uopc.uop.combine import identity
from uopc.uop.facts import free
from uopc.uop.node import Shape, UOp, derive, inherit, prod, toposort, where_from
from uopc.uop.ops import AxisType, Combine, Ops, ParamArg, RangeArg, ReduceArg, ReportArg, ScanArg

Indices = tuple[UOp, ...]
Request = tuple[UOp, Indices, UOp]  # a shaped value, its indices, the gate under which it matters
Visit = Generator[Request, UOp, UOp]

#: dtypes whose sums and products accumulate in f32 and round once (the book's appendix A)
NARROW_FLOATS = (dtypes.f16, dtypes.bf16)


def rangeify(bodies: Sequence[UOp], outs: Sequence[UOp], merge: Sequence[int] = ()) -> UOp:
    """One INDEXED SINK that stores bodies[i] into outs[i], flat and row-major.

    merge: sizes of groups of consecutive output axes that become one kernel axis; () merges none.
    Raises UsageError where a body and its output differ in size or dtype, or slots collide.
    """
    check_outputs(bodies, outs)
    walk = _Walk()
    axes: dict[tuple[int, int], UOp] = {}
    plans = []
    for body in bodies:
        sizes = merged(body.shape, merge)
        mine: list[UOp] = []
        for place, n in enumerate(sizes if prod(sizes) else ()):
            if (place, n) not in axes:
                axes[place, n] = walk.fresh(n, AxisType.LOOP)
            mine.append(axes[place, n])
        plans.append((body, sizes, mine))
    effects: list[UOp] = []
    for (body, sizes, mine), out in zip(plans, outs, strict=True):
        if prod(body.shape) == 0:
            effects.append(_never_stored(out))
            continue
        position = ix.flat(zip(mine, sizes, strict=True))
        at = tuple(mine) if not merge else ix.digits(position, body.shape)
        effects.append(_stored(walk.value(body, at), out, position, mine))
    return UOp(Ops.SINK, tuple(effects))


def rangeify_kernel(body: KernelBody) -> UOp:
    """One INDEXED SINK that stores the outputs of a kernel whose axes are given.

    A kernel axis is one RANGE: LOOP where an output has it, else REDUCE.  A REDUCE that `body.axes`
    names closes those ranges, which outputs may close too (a row that is reduced and stored).
    Indices that the kernel checks are reported: STOREs with a ReportArg, after the others.
    Raises UsageError as `rangeify` does, but that a memory may be read and written.
    """
    values, outs = [o.value for o in body.outputs], [o.memory for o in body.outputs]
    check_outputs(values, outs, in_place=True)
    stored = {a for v in values for a in body.axes[v][: len(v.shape)]}

    def range_of(axis: int, size: int) -> UOp:
        kind = AxisType.LOOP if axis in stored else AxisType.REDUCE
        return UOp(Ops.RANGE, (), RangeArg(axis, size, kind)) if size > 1 else ix.ZERO

    ranges = [range_of(*axis) for axis in enumerate(body.sizes)]
    named = {
        u: _named(u, a[-u.arg.axes :], u.src[0].shape[-u.arg.axes :], ranges)
        for u, a in body.axes.items()
        if u.op is Ops.REDUCE and len(a) == len(u.src[0].shape) and prod(u.src[0].shape)
    }
    walk = _Walk(len(ranges), named, body.checked)
    effects: list[UOp] = []
    for v, out in zip(values, outs, strict=True):
        if prod(v.shape) == 0:
            effects.append(_never_stored(out))
            continue
        at = _named(v, body.axes[v][: len(v.shape)], v.shape, ranges)
        position = ix.flat(zip(at, v.shape, strict=True))
        effects.append(_stored(walk.value(v, at), out, position, at))
    if body.errors is not None:
        effects += walk.reports(flat_memory(body.errors))
    return UOp(Ops.SINK, tuple(effects))


def _named(u: UOp, axes: Sequence[int], sizes: Shape, ranges: Sequence[UOp]) -> Indices:
    """The ranges of the kernel axes that a value's dimensions are."""
    for axis, n in zip(axes, sizes, strict=True):
        have = 1 if axis < 0 else 1 if ranges[axis] is ix.ZERO else ranges[axis].arg.size
        if have != n:
            raise CompilerError(
                f"{u.op} ({where_from(u)}) has a dimension of {n} elements on kernel axis {axis}, "
                f"which has {have}"
            )
    return tuple([ix.ZERO if axis < 0 else ranges[axis] for axis in axes])


def _stored(value: UOp, out: UOp, position: UOp, ranges: Sequence[UOp]) -> UOp:
    store = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (flat_memory(out), position)), value)), value)
    closed = tuple(r for r in ranges if r is not ix.ZERO)
    return UOp(Ops.END, (store, *closed)) if closed else store


def _never_stored(out: UOp) -> UOp:
    """Of no elements: an effect that never happens keeps the parameter."""
    nowhere = UOp(Ops.INDEX, (flat_memory(out), ix.ZERO))
    return UOp(Ops.STORE, (nowhere, UOp.const(0, out.dtype), ix.FALSE))


class _Walk:
    """From shaped values to scalars over ranges: one memo, one count of axes.

    named: REDUCEs whose ranges are given; checked: GATHERs and SCATTERs whose indices are reported.
    """

    def __init__(
        self,
        axes: int = 0,
        named: Mapping[UOp, Indices] | None = None,
        checked: frozenset[UOp] = frozenset(),
    ) -> None:
        self.axes, self.named, self.checked = axes, named or {}, checked
        self.memo: dict[Request, UOp] = {}
        self.used: dict[tuple[UOp, int], list[UOp]] = {}  # (index, axis size) -> gates

    def fresh(self, size: int, kind: AxisType) -> UOp:
        """A range of an axis of its own."""
        if size == 1:
            return ix.ZERO
        self.axes += 1
        return UOp(Ops.RANGE, (), RangeArg(self.axes - 1, size, kind))

    def value(self, u: UOp, at: Indices) -> UOp:
        """The scalar that u is at these indices."""
        return recurse(self._visit, (u, at, ix.TRUE), self.memo)

    def _visit(self, request: Request) -> Visit:
        u, at, gate = request
        if (rule := _RULES.get(u.op)) is not None:
            return (yield from rule(self, u, at, gate))
        if u.op in _MOVED:
            return (yield (u.src[0], _MOVED[u.op](u, at), gate))
        values = []
        for s in u.src:
            values.append((yield (s, at if s.shape else (), gate)))
        return derive(u, tuple(values))

    # ---- leaves
    def _buffer(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        if not u.shape:
            return u
        yield from ()
        offset = ix.flat(zip(at, u.shape, strict=True))
        element = UOp(Ops.INDEX, (flat_memory(u), offset))
        zero = UOp.const(0, u.dtype)
        load = UOp(Ops.LOAD, (element,) if gate is ix.TRUE else (element, gate, zero))
        return inherit(load, u)

    def _const(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        yield from ()
        return u

    def _iota(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        yield from ()
        return ix.remake(UOp(Ops.CAST, (at[0],), u.dtype), (at[0],))

    # ---- reductions
    def _reduce(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        arg: ReduceArg = u.arg
        x = u.src[0]
        last = x.shape[len(x.shape) - arg.axes :]
        if prod(last) == 0:
            return identity(arg.combine, (u.dtype,))[0]
        new = self._ranges_of(u, last, (*at, gate))
        value = yield (x, (*at, *new), gate)
        return _total(u, value, arg.combine, new)

    def _ranges_of(self, u: UOp, sizes: Shape, around: Indices) -> Indices:
        """The ranges that a REDUCE closes: those that are named, unless they are free around it."""
        named = self.named.get(u)
        if named is not None and not any(r in free(x) for r in named for x in around):
            return named
        return tuple([self.fresh(n, AxisType.REDUCE) for n in sizes])

    def _scan(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        """A SCAN along the range that walks its axis; where something else does (it is read
        backwards, or from the next element on), a REDUCE over what comes before that element."""
        arg: ScanArg = u.arg
        x, n = u.src[0], u.shape[-1]
        narrow = u.dtype in NARROW_FLOATS and arg.combine in (Combine.ADD, Combine.MUL)
        (nothing,) = identity(arg.combine, (dtypes.f32 if narrow else u.dtype,))
        r = at[-1]
        if n == 1 and arg.exclusive:
            return nothing.cast(u.dtype)
        if n == 1:
            return _total(u, (yield (x, at, gate)), arg.combine, ())
        walked = r.op is Ops.RANGE and r.arg.size == n and r not in free(gate)
        if walked and not any(r in free(i) for i in at[:-1]):
            value = yield (x, at, gate)
            src = (value.cast(dtypes.f32) if narrow else value, nothing, r)
            return inherit(UOp(Ops.SCAN, src, arg), u).cast(u.dtype)
        each = self.fresh(n, AxisType.REDUCE)
        value = yield (x, (*at[:-1], each), gate)
        first, last = (r, each) if arg.reverse else (each, r)
        ok = ix.at_least(ix.sub(last, first), 1 if arg.exclusive else 0)
        kept = inherit(UOp(Ops.WHERE, (ok, value, nothing.cast(u.dtype))), u)
        return _total(u, kept, arg.combine, (each,))

    def _item(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        both = yield (u.src[0], at, gate)
        return both.src[u.arg] if both.op is Ops.TUPLE else derive(u, (both,))

    # ---- movement that asks more than indices
    def _pad(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        inner, inside = [], [gate]
        for i, n, (before, _) in zip(at, u.src[0].shape, u.arg, strict=True):
            j = ix.sub(i, ix.index(before))
            inside += [ix.at_least(j, 0), ix.below(j, n)]
            inner.append(j)
        both = ix.conj(*inside)
        if both is ix.FALSE or prod(u.src[0].shape) == 0:
            return u.src[1]
        value = yield (u.src[0], tuple(inner), both)
        ok = ix.conj(*inside[1:])
        fill = yield (u.src[1], (), gate)
        return value if ok is ix.TRUE else inherit(UOp(Ops.WHERE, (ok, value, fill)), u)

    def _gather(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        x = u.src[0]
        inner = []
        for j, n in zip(u.arg.dims, x.shape, strict=True):
            if j >= 0:
                inner.append(at[j])
                continue
            named = yield (u.src[1 + ~j], at, gate)
            self._use(u, named, n, gate)
            inner.append(indices.element(named, n) if n else ix.ZERO)
        if prod(x.shape) == 0:
            return UOp.const(0, u.dtype)
        return (yield (x, tuple(inner), gate))

    def _scatter(self, u: UOp, at: Indices, gate: UOp) -> Visit:
        values, zero = u.src[0], UOp.const(0, u.dtype)
        if prod(values.shape) == 0:
            return zero
        walked = {j: i for i, j in zip(at, u.arg.dims, strict=True) if j >= 0}
        new = {
            j: self.fresh(n, AxisType.REDUCE) for j, n in enumerate(values.shape) if j not in walked
        }
        inner = tuple([walked[j] if j in walked else new[j] for j in range(len(values.shape))])
        hit = []
        for i, j, n in zip(at, u.arg.dims, u.shape, strict=True):
            if j < 0:
                named = yield (u.src[1 + ~j], inner, gate)
                self._use(u, named, n, gate)
                hit.append(indices.hits(named, i, n))
        value = yield (values, inner, ix.conj(gate, *hit))
        chosen = inherit(UOp(Ops.WHERE, (ix.conj(*hit), value, zero)), u)
        return _total(u, chosen, Combine.ADD, tuple(new.values()))

    # ---- checked indices
    def _use(self, u: UOp, named: UOp, size: int, gate: UOp) -> None:
        if u in self.checked:
            self.used.setdefault((named, size), []).append(gate)

    def reports(self, errors: UOp) -> list[UOp]:
        """An effect for each index that may stray: the word gets a code, for every value that the
        index has where it matters."""
        out = []
        for (named, size), gates in self.used.items():
            stray = ix.conj(_any(_about(named, g) for g in gates), indices.strays(named, size))
            if stray is ix.FALSE:
                continue
            word, code = UOp(Ops.INDEX, (errors, ix.ZERO)), indices.report_code(named, size)
            src = (word, code) if stray is ix.TRUE else (word, code, stray)
            store = inherit(UOp(Ops.STORE, src, ReportArg()), named)
            ranges = sorted(free(store), key=lambda r: r.arg.axis)
            out.append(UOp(Ops.END, (store, *ranges)) if ranges else store)
        return out


def _total(u: UOp, value: UOp, combine: Combine, ranges: Indices) -> UOp:
    """The values of all iterations of the ranges combined."""
    closed = tuple(r for r in ranges if r is not ix.ZERO)
    if not closed:  # one element; a sum starts from +0.0, so that -0.0 alone gives +0.0
        signed = u.dtype.is_float and combine is Combine.ADD
        return inherit(value + 0.0, u) if signed else value
    narrow = u.dtype in NARROW_FLOATS and combine in (Combine.ADD, Combine.MUL)
    if narrow:
        value = value.cast(dtypes.f32)
    total = inherit(UOp(Ops.REDUCE, (value, *closed), ReduceArg(combine)), u)
    return total.cast(u.dtype) if narrow else total


def _about(named: UOp, gate: UOp) -> UOp:
    """What a gate says about the iterations in which an index varies: the rest holds in some."""
    return ix.conj(*(g for g in ix.conjuncts(gate) if free(g) <= free(named)))


def _any(gates: Iterable[UOp]) -> UOp:
    """Does one of the gates hold?"""
    found = dict.fromkeys(gates)
    if ix.TRUE in found:
        return ix.TRUE
    return functools.reduce(lambda a, b: UOp(Ops.OR, (a, b)), found)


def merged(shape: Shape, merge: Sequence[int]) -> Shape:
    """The sizes of the kernel's output axes.  Raises UsageError where the groups miss some axis."""
    if not merge:
        return shape
    if sum(merge) != len(shape):
        raise UsageError(
            f"Opts.merge={tuple(merge)} groups {sum(merge)} axes, "
            f"the output has {len(shape)}: {shape}"
        )
    out, start = [], 0
    for n in merge:
        out.append(prod(shape[start : start + n]))
        start += n
    return tuple(out)


def flat_memory(u: UOp) -> UOp:
    """The same parameter as one row of elements."""
    a: ParamArg = u.arg
    size = prod(a.shape)
    return (
        u
        if a.shape == (size,)
        else inherit(UOp(Ops.BUFFER, (), ParamArg(a.slot, a.dtype, (size,), a.addrspace)), u)
    )


def check_outputs(bodies: Sequence[UOp], outs: Sequence[UOp], in_place: bool = False) -> None:
    """Raises UsageError where bodies and outputs do not fit each other.

    in_place: an output may have the slot of an input.
    """
    if len(bodies) != len(outs) or not bodies:
        raise UsageError(
            f"{len(bodies)} bodies for {len(outs)} outputs; each body needs one output"
        )
    slots: dict[int, UOp] = {}
    for u in toposort(*bodies, *outs):
        if u.op is Ops.BUFFER:
            other = slots.setdefault(u.arg.slot, u)
            if (prod(other.shape), other.dtype) != (prod(u.shape), u.dtype):
                raise UsageError(
                    f"slot {u.arg.slot} is both {other.dtype} of {prod(other.shape)} elements "
                    f"({where_from(other)}) and {u.dtype} of {prod(u.shape)} ({where_from(u)}); "
                    "give one of them another slot"
                )
    read = {u.arg.slot for u in toposort(*bodies) if u.op is Ops.BUFFER and not in_place}
    written: set[int] = set()
    for body, out in zip(bodies, outs, strict=True):
        if out.op is not Ops.BUFFER:
            raise UsageError(f"an output is a BUFFER, got {out.op} ({where_from(out)})")
        if prod(body.shape) != prod(out.shape):
            raise UsageError(
                f"the body has {prod(body.shape)} elements, shape {body.shape} "
                f"({where_from(body)}); output slot {out.arg.slot} has {prod(out.shape)}, "
                f"shape {out.shape}"
            )
        if body.dtype is not out.dtype:
            raise UsageError(
                f"the body is {body.dtype} ({where_from(body)}), output slot {out.arg.slot} is "
                f"{out.dtype}. Cast the body."
            )
        if out.arg.slot in read or out.arg.slot in written:
            how = "read by a body" if out.arg.slot in read else "the output of another body"
            raise UsageError(
                f"output slot {out.arg.slot} is also {how}; every output needs a slot of its own"
            )
        written.add(out.arg.slot)


def _reshape(u: UOp, at: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Groups of axes with equal products are converted alone: most indices pass unchanged."""
    old, new = u.src[0].shape, u.shape
    if prod(old) == 0:
        return (ix.ZERO,) * len(old)
    out: list[UOp] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0, a, b = i, j, 1, 1
        while True:
            if a == b and (i > i0 or j > j0):
                break
            if a <= b and i < len(old):
                a *= old[i]
                i += 1
            else:
                b *= new[j]
                j += 1
        while i < len(old) and old[i] == 1 and j == len(new):
            i += 1
        out += _regroup(at[j0:j], new[j0:j], old[i0:i])
    return tuple(out)


def _regroup(at: tuple[UOp, ...], sizes: Shape, into: Shape) -> tuple[UOp, ...]:
    if sizes == into:
        return at
    return ix.digits(ix.flat(zip(at, sizes, strict=True)), into)


def _permute(u: UOp, at: tuple[UOp, ...]) -> tuple[UOp, ...]:
    out = [ix.ZERO] * len(at)
    for place, axis in enumerate(u.arg):
        out[axis] = at[place]
    return tuple(out)


def _flip(u: UOp, at: tuple[UOp, ...]) -> tuple[UOp, ...]:
    return tuple(
        ix.sub(ix.index(n - 1), i) if a in u.arg else i
        for a, (i, n) in enumerate(zip(at, u.shape, strict=True))
    )


_MOVED: dict[Ops, Callable[[UOp, Indices], Indices]] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: lambda u, at: tuple(
        ix.ZERO if n == 1 else i for i, n in zip(at, u.src[0].shape, strict=True)
    ),
    Ops.PERMUTE: _permute,
    Ops.SHRINK: lambda u, at: tuple(
        ix.add(i, ix.index(b)) for i, (b, _) in zip(at, u.arg, strict=True)
    ),
    Ops.FLIP: _flip,
    Ops.DETACH: lambda u, at: at,
}

Rule = Callable[[_Walk, UOp, Indices, UOp], Visit]
_RULES: dict[Ops, Rule] = {
    Ops.BUFFER: _Walk._buffer,
    Ops.CONST: _Walk._const,
    Ops.IOTA: _Walk._iota,
    Ops.REDUCE: _Walk._reduce,
    Ops.SCAN: _Walk._scan,
    Ops.ITEM: _Walk._item,
    Ops.PAD: _Walk._pad,
    Ops.GATHER: _Walk._gather,
    Ops.SCATTER: _Walk._scatter,
}

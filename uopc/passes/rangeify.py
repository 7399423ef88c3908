"""Shapes become ranges: movement ops turn into index arithmetic and guards.  TENSOR -> INDEXED.

First of all passes: everything later speaks of ranges.
Before: RESHAPE(BUFFER p0 (8192,)) * 2.0, shape (64, 128)
After:  SINK(END(STORE(INDEX(p1, a0*128 + a1), LOAD(INDEX(p0, a0*128 + a1)) * 2.0), a0, a1))
One LOOP range per output axis, one fresh REDUCE range per reduced axis and per index at which a
REDUCE is used (`share` finds equal ones afterwards).  Outputs share an axis where it has the same
place and size.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.passes.walk import recurse
from uopc.symbolic import index as ix
from uopc.uop.combine import identity
from uopc.uop.node import Shape, UOp, derive, inherit, prod, toposort, where_from
from uopc.uop.ops import AxisType, Combine, Ops, ParamArg, RangeArg, ReduceArg

Request = tuple[
    UOp, tuple[UOp, ...], UOp
]  # a shaped value, its indices, the gate under which it matters

#: dtypes whose sums and products accumulate in f32 and round once (the book's appendix A)
NARROW_FLOATS = (dtypes.f16, dtypes.bf16)


def rangeify(bodies: Sequence[UOp], outs: Sequence[UOp], merge: Sequence[int] = ()) -> UOp:
    """One INDEXED SINK that stores bodies[i] into outs[i], flat and row-major.

    merge: sizes of groups of consecutive output axes that become one kernel axis; () merges none.
    Raises UsageError where a body and its output differ in size or dtype, or slots collide.
    """
    check_outputs(bodies, outs)
    made: list[UOp] = []

    def fresh(size: int, kind: AxisType) -> UOp:
        if size == 1:
            return ix.ZERO
        r = UOp(Ops.RANGE, (), RangeArg(len(made), size, kind))
        made.append(r)
        return r

    axes: dict[tuple[int, int], UOp] = {}
    plans = []
    for body in bodies:
        sizes = merged(body.shape, merge)
        mine: list[UOp] = []
        for place, n in enumerate(sizes if prod(sizes) else ()):
            if (place, n) not in axes:
                axes[place, n] = fresh(n, AxisType.LOOP)
            mine.append(axes[place, n])
        plans.append((body, sizes, mine))
    memo: dict[Request, UOp] = {}

    def visit(request: Request) -> Generator[Request, UOp, UOp]:
        u, at, gate = request
        op = u.op
        if op is Ops.BUFFER:
            if not u.shape:
                return u
            offset = ix.flat(zip(at, u.shape, strict=True))
            element = UOp(Ops.INDEX, (flat_memory(u), offset))
            zero = UOp.const(0, u.dtype)
            load = UOp(Ops.LOAD, (element,) if gate is ix.TRUE else (element, gate, zero))
            return inherit(load, u)
        if op is Ops.CONST:
            return u
        if op is Ops.IOTA:
            return ix.remake(UOp(Ops.CAST, (at[0],), u.dtype), (at[0],))
        if op is Ops.REDUCE:
            arg: ReduceArg = u.arg
            x = u.src[0]
            last = x.shape[len(x.shape) - arg.axes :]
            narrow = u.dtype in NARROW_FLOATS and arg.combine in (Combine.ADD, Combine.MUL)
            if prod(last) == 0:
                return identity(arg.combine, (u.dtype,))[0]
            new = tuple(fresh(n, AxisType.REDUCE) for n in last)
            value = yield (x, (*at, *new), gate)
            closed = tuple(r for r in new if r is not ix.ZERO)
            if not closed:  # one element; a sum starts from +0.0, so that -0.0 alone gives +0.0
                signed = u.dtype.is_float and arg.combine is Combine.ADD
                return inherit(value + 0.0, u) if signed else value
            if narrow:
                value = value.cast(dtypes.f32)
            total = inherit(UOp(Ops.REDUCE, (value, *closed), ReduceArg(arg.combine)), u)
            return total.cast(u.dtype) if narrow else total
        if op is Ops.PAD:
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
        if op in _MOVED:
            return (yield (u.src[0], _MOVED[op](u, at), gate))
        values = []
        for s in u.src:
            values.append((yield (s, at if s.shape else (), gate)))
        if op is Ops.ITEM:
            return values[0].src[u.arg] if values[0].op is Ops.TUPLE else derive(u, (values[0],))
        return derive(u, tuple(values))

    effects: list[UOp] = []
    for (body, sizes, mine), out in zip(plans, outs, strict=True):
        if prod(body.shape) == 0:  # an effect that never happens keeps the parameter
            nowhere = UOp(Ops.INDEX, (flat_memory(out), ix.ZERO))
            effects.append(UOp(Ops.STORE, (nowhere, UOp.const(0, body.dtype), ix.FALSE)))
            continue
        position = ix.flat(zip(mine, sizes, strict=True))
        at = tuple(mine) if not merge else ix.digits(position, body.shape)
        value = recurse(visit, (body, at, ix.TRUE), memo)
        store = inherit(UOp(Ops.STORE, (UOp(Ops.INDEX, (flat_memory(out), position)), value)), body)
        closed = tuple(r for r in mine if r is not ix.ZERO)
        effects.append(UOp(Ops.END, (store, *closed)) if closed else store)
    return UOp(Ops.SINK, tuple(effects))


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


def check_outputs(bodies: Sequence[UOp], outs: Sequence[UOp]) -> None:
    """Raises UsageError where bodies and outputs do not fit each other."""
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
    read = {u.arg.slot for u in toposort(*bodies) if u.op is Ops.BUFFER}
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


_MOVED = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: lambda u, at: tuple(
        ix.ZERO if n == 1 else i for i, n in zip(at, u.src[0].shape, strict=True)
    ),
    Ops.PERMUTE: _permute,
    Ops.SHRINK: lambda u, at: tuple(
        ix.add(i, ix.index(b)) for i, (b, _) in zip(at, u.arg, strict=True)
    ),
    Ops.FLIP: _flip,
}

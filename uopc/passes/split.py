"""Axes become digits, and whatever does not divide gets guards.  INDEXED -> MAPPED.

Here because: after `choose`, which reads the logical axes, and before everything that asks which
part of an axis a thread, a register or a loop holds.
Before: a0:1000 LOOP                      with Opts(gpu=True, local={0: 32}, vector={0: 4})
After:  ((g0*32 + l0)*4 + v0), g0:8 GLOBAL, l0:32 LOCAL, v0:4 UPCAST, and `< 1000` on LOAD and STORE

Guards stand in three places: a LOAD or STORE out of range touches nothing, an element out of range
of a REDUCE is the identity.  Everything between may compute garbage.  A STORE whose address misses
a hardware range is done where that range is 0, so that each element has one writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from uopc.dtype import dtypes
from uopc.errors import TargetError
from uopc.kernel import UNASKED, Fired
from uopc.opts import AxisOpts, Opts
from uopc.passes.share import axes_of, is_report, reduced_axes
from uopc.symbolic import index as ix
from uopc.uop.combine import identity
from uopc.uop.facts import free
from uopc.uop.node import UOp, derive, prod, toposort, where_from
from uopc.uop.ops import SERIAL, WHOLE_KERNEL, AxisType, Combine, LaunchArg, Ops, RangeArg, ScanArg

Cut: TypeAlias = tuple[UOp, tuple[UOp, ...]]  # the index of an axis, and its digits

WARP = 32
MAX_BLOCK = (
    1024  # threads of a block on every CUDA target (Programming Guide, compute capabilities)
)


def split(root: UOp, opts: Opts, fired: Fired = UNASKED) -> UOp:
    """MAPPED graph of an INDEXED one under opts.

    Axes that opts names and root has not were simplified away; `lower` has checked the names.
    Raises TargetError beyond 1024 threads.
    """
    axes, reduced = axes_of(root), reduced_axes(root)
    scans = scan_of(root)
    index: dict[UOp, UOp] = {}
    digits: dict[UOp, tuple[UOp, ...]] = {}
    valid: dict[UOp, UOp] = {}
    for axis in axes:
        a = axis.arg.axis
        sizes = opts.axis(a, axis.arg.size, a in reduced)
        scan = scans.get(a)
        if scan is not None:
            first = a == _first_lanes(axes, opts)
            index[axis], digits[axis] = _cut_scanned(a, sizes, scan, first)
        else:
            index[axis], digits[axis] = _cut(axis, sizes, opts, a in reduced)
        valid[axis] = ix.below(index[axis], axis.arg.size)
        fired.add("cut-axis", len(digits[axis]) > 1)
        fired.add("axis-with-rest", valid[axis] is not ix.TRUE)
    hardware = [d for axis in axes for d in digits[axis] if d.arg.kind in WHOLE_KERNEL]
    threads = prod(d.arg.size for d in hardware if d.arg.kind is AxisType.LOCAL)
    if threads > MAX_BLOCK:
        raise TargetError(
            f"Opts.local={dict(opts.local)} makes {threads} threads a block, "
            f"the limit is {MAX_BLOCK}"
        )

    def guard(ranges: frozenset[UOp] | tuple[UOp, ...]) -> UOp:
        return ix.conj(*(valid[r] for r in sorted(ranges, key=lambda r: r.arg.axis)))

    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple([memo[s] for s in u.src])
        op = u.op
        if op is Ops.RANGE:
            new = index[u]
        elif op is Ops.LOAD:
            gate = ix.conj(*src[1:2], guard(free(u)))
            new = u if src == u.src and gate is ix.TRUE else _gated_load(u, src, gate)
            fired.add("guard-load", gate is not ix.TRUE)
        elif op is Ops.STORE:
            where, now = (u, src) if is_report(u) else (u.src[0], src[:1])
            mine = guard(free(where))
            walked = frozenset().union(*(free(s) for s in now))
            alone = [ix.below(d, 1) for d in hardware if d not in walked]
            gate = ix.conj(*src[2:], mine, *alone)
            new = derive(u, src[:2] if gate is ix.TRUE else (*src[:2], gate))
            fired.add("guard-store", gate is not ix.TRUE)
        elif op is Ops.REDUCE:
            told = tuple([r for r in u.src[1:] if not _adds_zero_outside(u, r)])
            value = _identity_outside(u, src[0], guard(told))
            fired.add("guard-reduce", value is not src[0])
            new = derive(u, (value, *(d for r in u.src[1:] for d in digits[r])))
        elif op is Ops.SCAN:
            (r,) = u.src[2:]  # forward, what lies outside of the axis comes last
            value = _identity_outside(u, src[0], valid[r]) if u.arg.reverse else src[0]
            new = derive(u, (value, src[1], *digits[r]))
        elif op is Ops.END:
            ranges = tuple(d for r in u.src[1:] for d in digits[r])
            new = derive(u, (src[0], *ranges)) if ranges else src[0]
        elif op is Ops.SINK:
            launch = (opts.lanes, opts.grid, opts.blocks_per_sm, opts.early, opts.streaming)
            new = derive(u, src, LaunchArg(*launch))
        else:
            new = u if src == u.src else ix.remake(u, src)
        memo[u] = new
    return memo[root]


def scan_of(root: UOp) -> dict[int, ScanArg]:
    """{scanned axis: its SCAN}: a kernel walks one axis step by step, in one direction.

    Raises TargetError where it would have to walk two, or one both ways.
    """
    found: dict[int, ScanArg] = {}
    for u in toposort(root):
        if u.op is not Ops.SCAN:
            continue
        axis = u.src[2].arg.axis
        other = found.setdefault(axis, u.arg)
        if len(found) > 1 or other.reverse != u.arg.reverse:
            how = "along several axes" if len(found) > 1 else "an axis forwards and backwards"
            raise TargetError(
                f"SCAN at {where_from(u)}: this kernel scans {how}. Compute one of the scans in a "
                "kernel of its own (tensors do that by themselves)."
            )
    return found


def _first_lanes(axes: tuple[UOp, ...], opts: Opts) -> int | None:
    """The axis whose LOCAL digit neighbouring threads walk."""
    local = dict(opts.local)
    numbers = [*opts.lanes, *reversed([r.arg.axis for r in axes])]
    return next((a for a in numbers if local.get(a, 1) > 1), None)


def _cut_scanned(a: int, sizes: AxisOpts, scan: ScanArg, first: bool) -> Cut:
    """The digits of an axis that is scanned.

    Its loops have names of their own: they stand inside of all others (`serials` of
    `passes/materialise.py`), and go the way of the scan.  Where neighbouring threads walk it
    (first), whole warps have copies that lie together: index = ...*P + p)*U + u)*32 + l)*V + v, so
    that what each warp comes to is exchanged once and not for each copy.
    """
    if sizes.blocks > 1 or sizes.cluster > 1:
        raise TargetError(
            f"axis {a} is scanned: the blocks of one kernel cannot share it. Leave Opts.cluster "
            "and Opts.blocks of it out, or let `compile` make three kernels."
        )
    warps, lanes = 1, sizes.local
    if first and sizes.upcast > 1 and lanes > WARP and lanes % WARP == 0:
        warps, lanes = lanes // WARP, WARP
    plan = (
        *(("s", sizes.loop, AxisType.REDUCE), ("i", sizes.tile, AxisType.REDUCE)),
        *(("p", warps, AxisType.LOCAL), ("u", sizes.upcast, AxisType.UPCAST)),
        *(("l", lanes, AxisType.LOCAL), ("v", sizes.vector, AxisType.UPCAST)),
    )
    return _digits(a, plan, backwards=scan.reverse)


def _cut(axis: UOp, sizes: AxisOpts, opts: Opts, reduced: bool) -> Cut:
    """The index of one axis as a sum of its digits, and the digits, outermost first."""
    a = axis.arg.axis
    spread = AxisType.THREAD if opts.thread == a else AxisType.GLOBAL
    serial = AxisType.REDUCE if reduced else AxisType.LOOP
    plan = (
        ("g", sizes.blocks, spread),
        ("c", sizes.cluster, AxisType.GLOBAL),
        ("k", sizes.loop, serial),
        ("t", sizes.tile, serial),
        ("u", sizes.upcast, AxisType.UPCAST),
        ("l", sizes.local, AxisType.LOCAL),
        ("v", sizes.vector, AxisType.UPCAST),
    )
    return _digits(a, plan)


def _digits(axis: int, plan: Sequence[tuple[str, int, AxisType]], backwards: bool = False) -> Cut:
    """The sum of digits and the digits; backwards: loops go down."""
    index, mine = ix.ZERO, []
    for digit, n, kind in plan:
        index = ix.scale(index, n)
        if n > 1:
            down = backwards and kind in SERIAL
            start, by = (n - 1, -1) if down else (0, 1)
            mine.append(UOp(Ops.RANGE, (), RangeArg(axis, n, kind, digit, 0, start, by)))
            index = ix.add(index, mine[-1])
    return index, tuple(mine)


def _gated_load(u: UOp, src: tuple[UOp, ...], gate: UOp) -> UOp:
    if gate is ix.TRUE:
        return derive(u, src[:1])
    other = src[2] if len(src) == 3 else UOp.const(0, u.dtype)
    return derive(u, (src[0], gate, other))


def _adds_zero_outside(u: UOp, r: UOp) -> bool:
    """Does a sum need no guard along r, since what lies outside is 0 without one?"""
    return u.arg.combine is Combine.ADD and _zero_outside(u.src[0], r)


def _zero_outside(value: UOp, r: UOp) -> bool:
    """Is a value 0 where its LOADs lie outside of axis r, which then give 0?

    A product of floats is +0.0 where both factors are (0 times infinity is NaN); no partial sum is
    -0.0, so that adding +0.0 changes no bit.
    """
    if value.op is Ops.LOAD:
        other = value.src[2] if len(value.src) == 3 else None
        return r in free(value.src[0]) and (other is None or _is_zero(other))
    if value.op is Ops.CAST and value.src[0].dtype is not dtypes.index:
        return _zero_outside(value.src[0], r)
    if value.op is Ops.MUL:
        zero = [_zero_outside(s, r) for s in value.src]
        return all(zero) if value.dtype.is_float else any(zero)
    return False


def _is_zero(u: UOp) -> bool:
    return u.op is Ops.CONST and u.arg.bits == 0


def _identity_outside(u: UOp, value: UOp, gate: UOp) -> UOp:
    """The value where the gate holds, else what changes nothing."""
    if gate is ix.TRUE:
        return value
    parts = value.src if value.op is Ops.TUPLE else (value,)
    neutral = identity(u.arg.combine, tuple(p.dtype for p in parts))
    chosen = tuple(UOp(Ops.WHERE, (gate, p, e)) for p, e in zip(parts, neutral, strict=True))
    return derive(value, chosen) if value.op is Ops.TUPLE else chosen[0]

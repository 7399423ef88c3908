"""Cached facts of a node: free ranges, integer bounds, structural key.  Nothing recurses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from uopc.dtype import AddrSpace, DType, Kind, dtypes
from uopc.uop.node import UOp, memory
from uopc.uop.ops import COMPARE, Atomic, IotaArg, Ops, RangeArg

Bounds = tuple[int, int]
#: where nothing is known of a mathematical integer
UNBOUNDED: Bounds = (-(1 << 127), (1 << 127) - 1)


def free(u: UOp) -> frozenset[UOp]:
    """The ranges, IFs and ROLEs that must be open where u is evaluated."""
    return u._free


def bottom_up(u: UOp, slot: str, compute: Callable[[UOp], Any]) -> Any:
    """The fact kept in `slot`, computed for sources first, with a stack of our own."""
    found = getattr(u, slot)
    if found is not None:
        return found
    stack = [u]
    while stack:
        x = stack[-1]
        if getattr(x, slot) is not None:
            stack.pop()
            continue
        todo = [s for s in x.src if getattr(s, slot) is None]
        if todo:
            stack.extend(todo)
            continue
        setattr(x, slot, compute(x))
        stack.pop()
    return getattr(u, slot)


def bounds(u: UOp) -> Bounds:
    """(lowest, highest) value that u can have, both inclusive; integers and bool only.

    Exact interval arithmetic on Python ints; data integers whose result could wrap have the whole
    range of their dtype.
    """
    found: Bounds | None = u._bounds
    if found is not None:
        return found
    r: Bounds = bottom_up(u, "_bounds", _bounds)
    return r


def exact_bounds(u: UOp) -> Bounds:
    """Bounds of the mathematical result, before it wraps to its dtype (ADD, SUB, MUL, NEG, SHL)."""
    return _EXACT[u.op]([bounds(s) for s in u.src]) if u.op in _EXACT else bounds(u)


def of_dtype(d: DType) -> Bounds:
    """Every value of an integer dtype; UNBOUNDED for index and for what is no integer."""
    if d.kind in (Kind.INT, Kind.UINT, Kind.BOOL):
        return d.min, d.max
    return UNBOUNDED


def _products(a: Bounds, b: Bounds) -> Bounds:
    p = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(p), max(p)


def _quotients(a: Bounds, b: Bounds) -> Bounds:
    """Floor quotients; by zero gives 0."""
    parts = [d for d in (b[0], b[1], -1, 1) if b[0] <= d <= b[1] and d != 0]
    q = [n // d for n in a for d in parts]
    if b[0] <= 0 <= b[1]:
        q.append(0)
    return min(q), max(q)


def _remainders(a: Bounds, b: Bounds) -> Bounds:
    """Floor remainders have the divisor's sign; by zero gives 0."""
    if b[0] == b[1] and b[0] != 0 and a[0] // b[0] == a[1] // b[0]:
        r = (a[0] % b[0], a[1] % b[0])
        return min(r), max(r)
    lo = min(0, b[0] + 1)
    hi = max(0, b[1] - 1)
    if a[0] >= 0:
        hi = min(hi, a[1])
    return lo, hi


def _power(n: int) -> int:
    """2**n; a negative shift leaves 0, like one by all bits."""
    return 1 << min(n, 128) if n >= 0 else 0


_EXACT: dict[Ops, Callable[[list[Bounds]], Bounds]] = {
    Ops.ADD: lambda b: (b[0][0] + b[1][0], b[0][1] + b[1][1]),
    Ops.SUB: lambda b: (b[0][0] - b[1][1], b[0][1] - b[1][0]),
    Ops.MUL: lambda b: _products(b[0], b[1]),
    Ops.NEG: lambda b: (-b[0][1], -b[0][0]),
    Ops.SHL: lambda b: _products(b[0], (_power(b[1][0]), _power(b[1][1]))),
    Ops.IDIV: lambda b: _quotients(b[0], b[1]),
}


def _bounds(u: UOp) -> Bounds:
    op, src, d = u.op, u.src, u.dtype
    if not (d.is_int or d is dtypes.bool):
        return UNBOUNDED
    whole = of_dtype(d)
    if op is Ops.CONST:
        return u.arg.bits, u.arg.bits
    if op is Ops.RANGE:
        a: RangeArg = u.arg
        last = a.start + a.step * max(a.size - 1, 0)
        return min(a.start, last), max(a.start, last)
    if op is Ops.IOTA:
        i: IotaArg = u.arg
        return 0, max(i.size - 1, 0)
    if op in _EXACT:
        got = _EXACT[op]([bounds(s) for s in src])
        return got if whole[0] <= got[0] and got[1] <= whole[1] else whole
    if op is Ops.MOD:
        return _remainders(bounds(src[0]), bounds(src[1]))
    if op is Ops.MAX or op is Ops.MIN:
        a0, b0 = bounds(src[0]), bounds(src[1])
        pick = max if op is Ops.MAX else min
        return pick(a0[0], b0[0]), pick(a0[1], b0[1])
    if op is Ops.WHERE:
        x, y = bounds(src[1]), bounds(src[2])
        return min(x[0], y[0]), max(x[1], y[1])
    if op is Ops.CAST and (src[0].dtype.is_int or src[0].dtype is dtypes.bool):
        s = bounds(src[0])
        if d is dtypes.bool:
            return (int(s[0] > 0 or s[1] < 0), int(s != (0, 0)))
        return s if whole[0] <= s[0] and s[1] <= whole[1] else whole
    if op is Ops.AND and d is not dtypes.bool:
        highs = [bounds(s)[1] for s in src if bounds(s)[0] >= 0]
        return (0, min(highs)) if highs else whole
    if op is Ops.XOR and d is not dtypes.bool:
        (low, high), (other_low, other_high) = bounds(src[0]), bounds(src[1])
        bits = (high | other_high).bit_length()
        return (0, (1 << bits) - 1) if low >= 0 and other_low >= 0 else whole
    if op is Ops.SHR:
        a1, b1 = bounds(src[0]), bounds(src[1])
        if b1[0] >= 0:
            shifted = [x >> min(n, 128) for x in a1 for n in b1]
            return min(shifted), max(shifted)
        return whole
    if op in COMPARE and src[0].dtype.is_int:
        return _compared(op, bounds(src[0]), bounds(src[1]))
    if d is dtypes.bool and op in (Ops.AND, Ops.OR):
        p, q = bounds(src[0]), bounds(src[1])
        pick = min if op is Ops.AND else max
        return pick(p[0], q[0]), pick(p[1], q[1])
    if op is Ops.NOT and d is dtypes.bool:
        s = bounds(src[0])
        return 1 - s[1], 1 - s[0]
    if (
        op is Ops.AFTER
        or op is Ops.SHUFFLE
        or (op is Ops.STAGE and src[3].op is Ops.CONST and src[3].arg.bits)
    ):
        return bounds(src[0])
    return whole


def _compared(op: Ops, a: Bounds, b: Bounds) -> Bounds:
    if op is Ops.LT:
        return int(a[1] < b[0]), int(a[0] < b[1])
    apart = a[1] < b[0] or b[1] < a[0]
    same = a[0] == a[1] == b[0] == b[1]
    eq = (int(same), int(not apart))
    return eq if op is Ops.EQ else (1 - eq[1], 1 - eq[0])


def key(u: UOp) -> tuple[str, str]:
    """A total order that depends on structure alone: a readable prefix, a digest of the whole."""
    found: tuple[str, str] | None = u._key
    if found is not None:
        return found
    r: tuple[str, str] = bottom_up(u, "_key", _key)
    return r


_ORDER = {op: f"{n:02d}" for n, op in enumerate(Ops)}


def _key(u: UOp) -> tuple[str, str]:
    arg = "" if u.arg is None else repr(u.arg)
    head = _ORDER[u.op] + arg
    if not u.src:
        return head, ""
    whole = head + "".join(f"({k[0]}{k[1]})" for k in (s._key for s in u.src))
    digest = "" if len(whole) <= 96 else hashlib.blake2b(whole.encode(), digest_size=12).hexdigest()
    return whole[:96], digest


def flushes(u: UOp) -> bool:
    """Does an ATOMIC treat denormals as zeros?  f32 ADD in GLOBAL memory does, on every target, and
    nothing else does (PTX ISA, atom)."""
    if u.arg.atomic is not Atomic.ADD or u.dtype is not dtypes.f32:
        return False
    return memory(u.src[0]).arg.addrspace is AddrSpace.GLOBAL

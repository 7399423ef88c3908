"""What an expression is worth, by the table of numbers: the judge of every rewriting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.uop.node import UOp, buffer, range_, toposort
from uopc.uop.numbers import Array, array_of, elementwise
from uopc.uop.ops import ELEMENTWISE, Ops

Env = Mapping[UOp, Array]

#: floats where rules go wrong: zeros, infinities, NaN, denormals, the largest, ties
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, 0.5, -3.0, 0.1, -1e-3, 2.0**-20)


def scalar(slot: int, dtype: DType) -> UOp:
    """A data value that nothing is known of: a parameter of shape ()."""
    return buffer(slot, dtype, ())


def between(axis: int, low: int, high: int) -> UOp:
    """An index that runs from low to high, both inclusive."""
    return range_(high - low + 1, axis, start=low)


def values_of(leaf: UOp) -> Array:
    """Every value that a leaf can have; of wide dtypes those at the edges and around zero."""
    if leaf.op is Ops.RANGE:
        a = leaf.arg
        return np.asarray(a.start + a.step * np.arange(a.size))
    return values_of_dtype(leaf.dtype)


def values_of_dtype(d: DType) -> Array:
    """Every value of a narrow dtype; the edges of a wide one and what is around zero."""
    if d is dtypes.index:
        return np.arange(-8, 9)
    if d is dtypes.bool:
        return np.array([False, True])
    if d.bits == 8:
        return np.arange(256, dtype=np.uint8).view(d.numpy)
    if d.is_float:
        unsigned = f"u{d.bits // 8}"
        largest = np.array([-1, 1]).astype(d.numpy) * np.nextafter(
            np.asarray(np.inf, d.numpy), np.asarray(0, d.numpy)
        )
        denormal = np.array([1, 2, 3], unsigned).view(d.numpy)
        return np.concatenate([np.array(SPECIAL).astype(d.numpy), largest, denormal, -denormal])
    edges = {d.min, d.min + 1, d.max - 1, d.max, d.max // 3, d.max // 2 + 1}
    return np.array(sorted(edges | set(range(max(d.min, -9), 10))), d.numpy)


def leaves_of(*roots: UOp) -> list[UOp]:
    """RANGEs and scalar parameters, in order of appearance."""
    return [
        u
        for u in toposort(*roots)
        if u.op is Ops.RANGE or (u.op is Ops.BUFFER and u.arg.shape == ())
    ]


def grid(leaves: Sequence[UOp], limit: int = 1 << 16) -> dict[UOp, Array]:
    """All combinations of the leaves' values, thinned evenly beyond `limit`."""
    axes = [values_of(u) for u in leaves]
    total = int(np.prod([len(a) for a in axes], dtype=np.int64))
    step = max(1, total // limit) | 1
    flat = np.arange(0, total, step)
    out: dict[UOp, Array] = {}
    for u, a in zip(leaves, axes, strict=True):
        out[u] = a[flat % len(a)]
        flat = flat // len(a)
    return out


def evaluate(root: UOp, env: Env) -> Array:
    """The value of an expression for every assignment of its leaves.

    Memories are read as arrays (LOAD of an offset modulo their size).
    """
    memo: dict[UOp, Array] = {}
    for u in toposort(root):
        if u in env:
            memo[u] = env[u]
        elif u.op is Ops.CONST:
            memo[u] = np.asarray(u.arg.bits) if u.dtype is dtypes.index else array_of(u.arg)
        elif u.op in ELEMENTWISE:
            to = u.arg if u.op in (Ops.CAST, Ops.BITCAST) else None
            memo[u] = elementwise(u.op, u.src[-1].dtype, [memo[s] for s in u.src], to)
        elif u.op is Ops.INDEX:
            memo[u] = memo[u.src[1]]
        elif u.op is Ops.LOAD:
            data = env[u.src[0].src[0]]
            read = data[np.asarray(memo[u.src[0]], np.int64) % len(data)]
            memo[u] = np.where(memo[u.src[1]], read, memo[u.src[2]]) if len(u.src) == 3 else read
        elif u.op is Ops.STORE:
            gate = memo[u.src[2]] if len(u.src) == 3 else np.asarray(True)
            what = bits(memo[u.src[1]], u.src[1].dtype).astype(np.int64)
            memo[u] = np.where(gate, memo[u.src[0]] * 1000 + what, -1)
        else:
            raise NotImplementedError(u.op)
    return memo[root]


def bits(x: Array, dtype: DType) -> Array:
    """The values as integers to compare; every NaN is the same."""
    if not dtype.is_float:
        return np.asarray(x)
    unsigned = x.astype(dtype.numpy).view(f"u{dtype.bits // 8}")
    return np.where(np.isnan(x.astype(np.float64)), np.asarray(-1).astype(unsigned.dtype), unsigned)


def check_same(before: UOp, after: UOp, limit: int = 1 << 16) -> None:
    """Both expressions are worth the same, bit for bit, for `limit` or all values of the leaves."""
    assert before.dtype is after.dtype, f"{before.dtype} became {after.dtype}"
    env = grid(leaves_of(before), limit)
    for u in toposort(before):
        if u.op is Ops.BUFFER and u.arg.shape:
            env[u] = np.resize(values_of_dtype(u.dtype), u.arg.shape)
    a, b = (bits(evaluate(u, env), u.dtype) for u in (before, after))
    wrong = np.flatnonzero(np.atleast_1d(a != b))
    if wrong.size:
        at = {u: np.atleast_1d(v)[wrong[0] % np.size(v)] for u, v in env.items()}
        raise AssertionError(
            f"{wrong.size} values differ, first at {at}: "
            f"{np.atleast_1d(a)[wrong[0] % np.size(a)]} became "
            f"{np.atleast_1d(b)[wrong[0] % np.size(b)]}"
            f"\nbefore: {text(before)}\nafter: {text(after)}"
        )


def text(u: UOp) -> str:
    """A short infix text for messages."""
    made: dict[UOp, str] = {}
    for x in toposort(u):
        if x.op is Ops.CONST:
            made[x] = f"{x.value}"
        elif x.op is Ops.RANGE:
            made[x] = f"r{x.arg.axis}[{x.arg.start}..{x.arg.start + x.arg.size - 1}]"
        elif x.op is Ops.BUFFER:
            made[x] = f"p{x.arg.slot}:{x.dtype}"
        else:
            to = f":{x.dtype}" if x.op in (Ops.CAST, Ops.BITCAST) else ""
            made[x] = f"{x.op.name}{to}({', '.join(made[s] for s in x.src)})"
    return made[u]

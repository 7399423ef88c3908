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
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0, -3.0, 0.1, 1 / 3, -1e-3, 65504.0)


def scalar(slot: int, dtype: DType) -> UOp:
    """A data value that nothing is known of: a parameter of shape ()."""
    return buffer(slot, dtype, ())


def between(axis: int, low: int, high: int) -> UOp:
    """An index that runs from low to high, both inclusive."""
    return range_(high - low + 1, axis, start=low)


def values_of(leaf: UOp) -> Array:
    """Every value that a leaf can have; of wide dtypes those at the edges and around zero."""
    d = leaf.dtype
    if leaf.op is Ops.RANGE:
        a = leaf.arg
        return a.start + a.step * np.arange(a.size, dtype=np.int64)
    if d.is_float:
        bits = np.array([1, 1 << (d.bits - 1) | 1, _largest_bits(d), _smallest_normal_bits(d)], object)
        found = np.array(bits, f"u{d.bits // 8}").view(d.numpy)
        return np.concatenate([np.array(SPECIAL).astype(d.numpy), found, -found])
    if d is dtypes.bool:
        return np.array([False, True])
    if d.bits == 8:
        return np.arange(d.min, d.max + 1).astype(d.numpy)
    near = {d.min, d.min + 1, d.max - 1, d.max, *range(max(d.min, -9), 10), d.max // 3, d.max // 2 + 1}
    return np.array(sorted(near), d.numpy)


def _largest_bits(d: DType) -> int:
    info = np.finfo(d.numpy) if d is not dtypes.bf16 else None
    if info is not None:
        return int(np.asarray(info.max, d.numpy).view(f"u{d.bits // 8}"))
    return 0x7F7F


def _smallest_normal_bits(d: DType) -> int:
    return {dtypes.f16: 0x0400, dtypes.bf16: 0x0080, dtypes.f32: 0x00800000}.get(d, 1 << 52)


def leaves_of(*roots: UOp) -> list[UOp]:
    """RANGEs and scalar parameters, in order of appearance."""
    return [
        u
        for u in toposort(*roots)
        if u.op is Ops.RANGE or (u.op is Ops.BUFFER and u.arg.shape == ())
    ]


def grid(leaves: Sequence[UOp], limit: int = 40_000) -> dict[UOp, Array]:
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
        else:
            raise NotImplementedError(u.op)
    return memo[root]


def bits(x: Array, dtype: DType) -> Array:
    """The values as integers to compare; every NaN is the same."""
    if not dtype.is_float:
        return np.asarray(x)
    unsigned = x.astype(dtype.numpy).view(f"u{dtype.bits // 8}")
    return np.where(np.isnan(x.astype(np.float64)), np.asarray(-1).astype(unsigned.dtype), unsigned)


def check_same(before: UOp, after: UOp, env: Env | None = None) -> None:
    """Both expressions are worth the same, bit for bit, for all values of their leaves."""
    assert before.dtype is after.dtype, f"{before.dtype} became {after.dtype}"
    env = env if env is not None else grid(leaves_of(before))
    a, b = (bits(evaluate(u, env), u.dtype) for u in (before, after))
    wrong = np.flatnonzero(np.atleast_1d(a != b))
    if wrong.size:
        at = {u: np.atleast_1d(v)[wrong[0] % np.size(v)] for u, v in env.items()}
        raise AssertionError(
            f"{wrong.size} values differ, first at {at}: "
            f"{np.atleast_1d(a)[wrong[0] % np.size(a)]} became "
            f"{np.atleast_1d(b)[wrong[0] % np.size(b)]}\nbefore: {text(before)}\nafter: {text(after)}"
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

"""Movements against numpy: every element moved, none changed, whatever its bits."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import assert_same
from tests.tensor.meaning import DEVICES, extremes, meaning, shapes, tensor
from uopc.dtype import DATA, dtypes
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.tensor.movement import broadcast_tensors, cat, concat, stack
from uopc.uop.node import toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops


@st.composite
def anything(draw: st.DrawFn, least: int = 0, most: int = 4) -> Array:
    """Any values of any dtype."""
    dtype = draw(st.sampled_from(DATA))
    return extremes(dtype, draw(shapes(least, most)), draw(st.integers(0, 999)))


def agree(got: Tensor, want: Array) -> None:
    assert got.shape == want.shape
    assert_same(meaning(got), np.ascontiguousarray(want).reshape(want.shape))


@given(st.data())
def test_shapes(data: st.DataObject) -> None:
    x = data.draw(anything())
    t = tensor(x)
    sizes = data.draw(st.permutations(x.shape))
    agree(t.reshape(*sizes), x.reshape(sizes))
    if x.size and sizes:
        agree(t.reshape([-1, *sizes[1:]]), x.reshape((-1, *sizes[1:])))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, max(0, x.ndim - 1))] * 2)))
    middle = int(np.prod(x.shape[start : end + 1], dtype=int))
    agree(t.flatten(start, end), x.reshape((*x.shape[:start], middle, *x.shape[end + 1 :])))
    agree(t.squeeze(), x.squeeze())
    ones = tuple(a for a, n in enumerate(x.shape) if n == 1 and data.draw(st.booleans()))
    agree(t.squeeze(ones), x.squeeze(ones))
    place = data.draw(st.integers(-x.ndim - 1, x.ndim))
    agree(t.unsqueeze(place), np.expand_dims(x, place))
    agree(t.expand_dims((0, -1)), np.expand_dims(x, (0, -1)))


@given(st.data())
def test_orders(data: st.DataObject) -> None:
    x = data.draw(anything(least=1))
    t = tensor(x)
    axes = data.draw(st.permutations(range(x.ndim)))
    agree(t.permute(*axes), x.transpose(axes))
    a, b = data.draw(st.tuples(*[st.integers(-x.ndim, x.ndim - 1)] * 2))
    agree(t.transpose(a, b), x.swapaxes(a, b))
    few = data.draw(st.integers(0, x.ndim))
    to = data.draw(st.permutations(range(x.ndim)))[:few]
    agree(t.movedim(axes[:few], to), np.moveaxis(x, axes[:few], to))
    agree(t.flip(axes[:few]), np.flip(x, tuple(axes[:few])))
    agree(t.flip(), np.flip(x))
    by = data.draw(st.lists(st.integers(-5, 5), min_size=few, max_size=few))
    agree(t.roll(by, axes[:few]), np.roll(x, by, axes[:few]))
    agree(t.roll(3), np.roll(x, 3))
    if x.ndim > 1:
        agree(t.mT, x.swapaxes(-1, -2))
    if x.ndim == 2:
        agree(t.T, x.T)


@given(st.data())
def test_repetitions(data: st.DataObject) -> None:
    x = data.draw(anything())
    t = tensor(x)
    front = data.draw(st.lists(st.integers(0, 3), max_size=2))
    to = tuple(data.draw(st.integers(0, 3)) if n == 1 else n for n in x.shape)
    agree(t.broadcast_to(*front, *to), np.broadcast_to(x, (*front, *to)))
    agree(t.expand(*front, *(-1 for _ in to)), np.broadcast_to(x, (*front, *x.shape)))
    times = data.draw(st.lists(st.integers(0, 3), max_size=4))
    agree(t.tile(*times), np.tile(x, times))
    count = data.draw(st.integers(0, 3))
    agree(t.repeat(count), np.repeat(x, count))
    for axis in range(-x.ndim, x.ndim):
        agree(t.repeat(count, axis), np.repeat(x, count, axis))
    zeros = np.zeros((*front, *to), x.dtype)
    for got, want in zip(
        broadcast_tensors(t, tensor(zeros)), np.broadcast_arrays(x, zeros), strict=True
    ):
        agree(got, want)


@given(st.data())
def test_borders(data: st.DataObject) -> None:
    x = data.draw(anything())
    t = tensor(x)
    pads = [data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in x.shape]
    value = data.draw(st.sampled_from((0, 1)))
    padded = np.full([b + n + a for n, (b, a) in zip(x.shape, pads, strict=True)], value, x.dtype)
    padded[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, pads, strict=True))] = x
    agree(t.pad(pads, value), padded)
    bounds = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in x.shape]
    cut = x[tuple(slice(b, e) for b, e in bounds)]
    agree(t.shrink([(b, e) for b, e in bounds]), cut)
    if x.ndim:
        agree(t.shrink([None, *((b, e) for b, e in bounds[1:])]), x[(slice(None), *_cut(bounds))])


def _cut(bounds: list[list[int]]) -> tuple[slice, ...]:
    return tuple(slice(b, e) for b, e in bounds[1:])


@given(st.data())
def test_joined_and_taken_apart(data: st.DataObject) -> None:
    shape = data.draw(shapes(least=1))
    dtype = data.draw(st.sampled_from(DATA))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    parts = []
    for seed, n in enumerate(sizes):
        mine = [n if a == axis % len(shape) else m for a, m in enumerate(shape)]
        parts.append(extremes(dtype, tuple(mine), seed))
    whole = np.concatenate(parts, axis)
    got = cat([tensor(p) for p in parts], axis)
    agree(got, whole)
    for piece, part in zip(got.split(sizes, axis), parts, strict=True):
        agree(piece, part)
    agree(cat([tensor(p) for p in parts], None), np.concatenate(parts, None))
    place = data.draw(st.integers(-len(shape) - 1, len(shape)))
    same = [extremes(dtype, shape, seed) for seed in range(3)]
    agree(stack([tensor(p) for p in same], place), np.stack(same, place))
    for piece, row in zip(tensor(whole).unbind(axis), np.moveaxis(whole, axis, 0), strict=True):
        agree(piece, row)
    count = data.draw(st.integers(1, 4))
    n = whole.shape[axis]
    ends = [*range(0, n, max(1, -(-n // count))), n] if n else [0, 0]
    for piece, (b, e) in zip(tensor(whole).chunk(count, axis), pairwise(ends), strict=True):
        agree(piece, np.moveaxis(np.moveaxis(whole, axis, 0)[b:e], 0, axis))


def test_joined_dtypes_promote() -> None:
    assert cat([tensor(np.ones(2, np.int8)), tensor(np.ones(1, np.float32))]).dtype is dtypes.f32
    assert stack([tensor(np.ones(2, bool)), tensor(np.ones(2, np.uint8))]).dtype is dtypes.u8
    assert concat is cat


def test_many_parts_are_a_balanced_tree() -> None:
    joined = cat([tensor(np.full(1, i, np.int32)) for i in range(1000)])
    choices = [u for u in toposort(joined._u) if u.op is Ops.WHERE]
    depth: dict[Any, int] = {}
    for u in toposort(joined._u):
        depth[u] = max((depth[s] for s in u.src), default=0) + (u.op is Ops.WHERE)
    assert len(choices) == 999 and depth[joined._u] == 10
    np.testing.assert_array_equal(meaning(joined), np.arange(1000))


@given(st.data())
def test_triangles_and_diagonals(data: st.DataObject) -> None:
    x = data.draw(anything(least=2))
    k = data.draw(st.integers(-4, 4))
    t = tensor(x)
    rows, columns = np.indices(x.shape[-2:])
    zero = np.zeros((), x.dtype)
    agree(t.tril(k), np.where(columns - rows <= k, x, zero))
    agree(t.triu(k), np.where(columns - rows >= k, x, zero))
    agree(t.diagonal(k), np.diagonal(x, k, -2, -1))
    agree(t.diagonal(k, 1, 0), np.diagonal(x, k, 1, 0))


@pytest.mark.parametrize(
    "call",
    (
        lambda t: t.reshape(4),
        lambda t: t.reshape(-1, -1),
        lambda t: t.reshape(-1, 0),
        lambda t: t.reshape(2.0, 3),
        lambda t: t.permute(0),
        lambda t: t.permute(0, 0),
        lambda t: t.transpose(0, 2),
        lambda t: t.movedim((0, 1), 0),
        lambda t: t.expand(2, 4),
        lambda t: t.expand(3),
        lambda t: t.broadcast_to(3),
        lambda t: t.squeeze(0),
        lambda t: t.unsqueeze(3),
        lambda t: t.flip(2),
        lambda t: t.roll((1, 2), (0,)),
        lambda t: t.pad([(0, 1)]),
        lambda t: t.pad([(0, 1), (-1, 0)]),
        lambda t: t.shrink([(0, 1), (0, 4)]),
        lambda t: t.shrink([None]),
        lambda t: t.split(0),
        lambda t: t.split([1, 2], 0),
        lambda t: t.chunk(0),
        lambda t: t.repeat(-1),
        lambda t: t.tile(-1),
        lambda t: t.reshape(6).tril(),
        lambda t: t.diagonal(0, 1, 1),
        lambda t: t.reshape(6).T,
        lambda t: t.reshape(6).mT,
        lambda t: cat([]),
        lambda t: cat([t, t.T]),
        lambda t: cat([t, t.reshape(6)]),
        lambda t: stack([t, t.T]),
        lambda t: stack([t, 1]),
        lambda t: broadcast_tensors(t, t.T),
    ),
)
def test_what_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UsageError, match=r"test_movement\.py:\d+"):
        call(tensor(np.zeros((2, 3), np.float32)))


@pytest.mark.parametrize("device", DEVICES)
def test_on_devices(device: str) -> None:
    x = extremes(dtypes.f32, (4, 6), 3)
    t = tensor(x, device)
    for got in (
        cat([t, t.flip(0), t[:, 1:4].T.reshape(2, 6)]),
        stack([t.roll(1, 1), t.tril(), t.triu(1)], 1),
        t.tile(2, 2).pad([(1, 0), (0, 2)], 3.0),
        t.diagonal(1),
        t.repeat(3, 0),
    ):
        assert_same(got.numpy(), meaning(got))

"""GATHER and SCATTER of random shapes against loops over single elements; ASSIGN and DETACH."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import assert_same, random_array
from uopc.dtype import DATA, DType, dtypes
from uopc.uop.node import UOp, buffer
from uopc.uop.numbers import Array
from uopc.uop.oracle import evaluate

INTEGERS = [d for d in DATA if d.is_data_int]
ADDED = [d for d in DATA if d.is_data_int or (d.is_float and not d.storage)]


class Case:
    """Random dims between an array `x` and positions, with indices in and out of range."""

    def __init__(self, rng: np.random.Generator, at: DType, empty: bool = False) -> None:
        walked = int(rng.integers(0, 3))
        indexed = int(rng.integers(1, 3))
        self.shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(walked, 4))))
        axes = rng.permutation(len(self.shape))[:walked]
        dims = [*(int(j) for j in axes), *(~k for k in range(indexed))]
        self.dims = tuple(int(j) for j in rng.permutation(dims))
        lowest = 0 if empty else 1
        self.sizes = tuple(
            self.shape[j] if j >= 0 else int(rng.integers(lowest, 6)) for j in self.dims
        )
        low, high = max(at.min, -9), min(at.max, 9)
        self.indices = [
            rng.integers(low, high, self.shape, endpoint=True).astype(at.numpy)
            for _ in range(indexed)
        ]
        if at.bits >= 32 and self.indices[0].size:
            self.indices[0].flat[0] = (at.min, at.max)[int(rng.integers(2))]

    def place(self, p: tuple[int, ...]) -> tuple[int, ...]:
        """Where along each axis of x the position p goes; perhaps outside."""
        out = []
        for j, size in zip(self.dims, self.sizes, strict=True):
            i = p[j] if j >= 0 else int(self.indices[~j][p])
            out.append(i + size if i < 0 else i)
        return tuple(out)

    def nodes(self, at: DType) -> list[UOp]:
        return [buffer(1 + k, at, self.shape) for k in range(len(self.indices))]

    def arrays(self, x: Array) -> dict[int, Array]:
        return {0: x, **{1 + k: i for k, i in enumerate(self.indices)}}


def gathered(case: Case, x: Array) -> Array:
    out = np.zeros(case.shape, x.dtype)
    for p in np.ndindex(case.shape):
        if x.size:
            at = zip(case.place(p), x.shape, strict=True)
            out[p] = x[tuple(min(max(i, 0), n - 1) for i, n in at)]
    return out


def scattered(case: Case, values: Array) -> Array:
    exact: dict[tuple[int, ...], list[float]] = {}
    for p in np.ndindex(case.shape):
        at = case.place(p)
        if all(0 <= i < n for i, n in zip(at, case.sizes, strict=True)):
            exact.setdefault(at, []).append(values[p].item())
    out = np.zeros(case.sizes, values.dtype)
    for at, terms in exact.items():
        out[at] = np.array(sum(terms)).astype(values.dtype)
    return out


@pytest.mark.parametrize("at", INTEGERS, ids=str)
def test_gathers_of_random_shapes(at: DType, rng: np.random.Generator) -> None:
    for n in range(40):
        dtype = DATA[n % len(DATA)]
        case = Case(rng, at, empty=n % 4 == 0)
        x = random_array(rng, dtype, case.sizes)
        body = buffer(0, dtype, case.sizes).gather(case.dims, *case.nodes(at))
        assert_same(evaluate(body, case.arrays(x)), gathered(case, x))


@pytest.mark.parametrize("at", INTEGERS, ids=str)
def test_scatters_of_random_shapes(at: DType, rng: np.random.Generator) -> None:
    for n in range(40):
        dtype = ADDED[n % len(ADDED)]
        case = Case(rng, at, empty=n % 4 == 0)
        values = random_array(rng, dtype, case.shape)  # quarters and small: every order is exact
        node = buffer(0, dtype, case.shape)
        body = node.scatter(case.sizes, case.dims, *case.nodes(at))
        assert_same(evaluate(body, case.arrays(values)), scattered(case, values))


def test_the_usual_names(rng: np.random.Generator) -> None:
    x = random_array(rng, dtypes.f32, (6, 4))
    i, j = np.array([5, 0, -1, 5], np.int64), np.array([0, 3, -4, 1], np.int64)
    u, a, b = (
        buffer(0, dtypes.f32, (6, 4)),
        buffer(1, dtypes.i64, (4,)),
        buffer(2, dtypes.i64, (4,)),
    )
    arrays = {0: x, 1: i, 2: j}
    rows = a.reshape((4, 1)).expand((4, 4))
    assert_same(evaluate(u.gather((~0, 1), rows), arrays), x[i])
    assert_same(evaluate(u.gather((~0, ~1), a, b), arrays), x[i, j])
    along = b.reshape((1, 4)).expand((6, 4))
    assert_same(
        evaluate(u.gather((0, ~0), along), arrays),
        np.take_along_axis(x, np.broadcast_to(j, (6, 4)), 1),
    )
    want = np.zeros((6, 4), np.float32)
    np.add.at(want, i, x[:4])
    top = u.shrink(((0, 4), (0, 4)))
    assert_same(evaluate(top.scatter((6, 4), (~0, 1), rows), arrays), want)


def test_a_scatter_is_the_transpose_of_its_gather(rng: np.random.Generator) -> None:
    """<gather(x), y> = <x, scatter(y)> where every index is inside."""
    for _ in range(50):
        case = Case(rng, dtypes.i32)
        for k, index in enumerate(case.indices):
            size = case.sizes[case.dims.index(~k)]
            case.indices[k] = index % np.int32(size) - np.int32(size) * (index % np.int32(2))
        x = random_array(rng, dtypes.f64, case.sizes)
        y = random_array(rng, dtypes.f64, case.shape)
        nodes = case.nodes(dtypes.i32)
        read = buffer(0, dtypes.f64, case.sizes).gather(case.dims, *nodes)
        sums = buffer(0, dtypes.f64, case.shape).scatter(case.sizes, case.dims, *nodes)
        left = np.sum(evaluate(read, case.arrays(x)) * y)
        assert left == np.sum(x * evaluate(sums, case.arrays(y)))


def test_integer_sums_wrap_and_float_sums_keep_their_order() -> None:
    at = np.zeros(3, np.int32)
    node = buffer(1, dtypes.i32, (3,))

    def total(dtype: DType, values: list[float]) -> Array:
        body = buffer(0, dtype, (3,)).scatter((1,), (~0,), node)
        return evaluate(body, {0: np.array(values).astype(dtype.numpy), 1: at})

    assert total(dtypes.u8, [200, 100, 3]).tolist() == [303 % 256]
    assert total(dtypes.f32, [2.0**24, 1, 1]).tolist() == [2.0**24]
    assert total(dtypes.f32, [1, 1, 2.0**24]).tolist() == [2.0**24 + 2]
    assert total(dtypes.f16, [2048, 1, 1]).tolist() == [2050]  # f32 inside, rounded once
    assert total(dtypes.bf16, [256, 1, 1]).tolist() == [258]
    zero = total(dtypes.f32, [-0.0, -0.0, -0.0])
    assert zero == 0 and not np.signbit(zero[0])
    nan = np.array([0xFFC00001], np.uint32).view(np.float32)
    body = buffer(0, dtypes.f32, (1,)).scatter((1,), (~0,), buffer(1, dtypes.i32, (1,)))
    assert evaluate(body, {0: nan, 1: at[:1]}).view(np.uint32) == 0x7FFFFFFF


def test_assigned_and_detached_values() -> None:
    x = np.arange(4, dtype=np.float32)
    u = buffer(0, dtypes.f32, (4,))
    later = u.assign(u + 1.0)
    got = evaluate([later, later.assign(later * 2.0), u, later.detach()], {0: x})
    for value, want in zip(got, [x + 1, x * 2 + 2, x, x + 1], strict=True):
        assert_same(value, want)

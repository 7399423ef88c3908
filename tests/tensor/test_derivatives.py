"""Each derivative against central differences in f64, twice differentiated, and where calculus has
no answer against what the table promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tensor.differences import Body, check_gradients, leaves_of, values
from uopc.dtype import DType, dtypes
from uopc.tensor.derivatives import DERIVATIVES
from uopc.tensor.gradient import gradients
from uopc.uop.node import UOp, buffer
from uopc.uop.numbers import Array
from uopc.uop.ops import Combine, Ops, ReduceArg
from uopc.uop.oracle import evaluate
from uopc.uop.stages import STAGE_OPS, Stage

F32, F64 = dtypes.f32, dtypes.f64


def numbers(seed: int, *shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    """Distinct values, no two closer than a step of the differences."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    spread = (rng.permutation(count) + 0.5 + 0.3 * rng.random(count)) / max(count, 1)
    return (low + (high - low) * spread).reshape(shape)


def gradient_at(body: Body, *arrays: Array, wrt: int = 0) -> Array:
    """d sum(body) / d leaf."""
    leaves = leaves_of(arrays)
    out = body(*leaves)
    ones = UOp.const(1.0, out.dtype, out.shape)
    return values(gradients([out], [ones], [leaves[wrt]]), arrays)[0]


def test_every_op_of_the_stage_has_a_row() -> None:
    assert set(DERIVATIVES) == STAGE_OPS[Stage.TENSOR]


# ---- elementwise
UNARY: dict[str, tuple[Body, float, float]] = {
    "neg": (lambda x: -x, -2, 2),
    "sqrt": (lambda x: x.sqrt(), 0.3, 4),
    "exp": (lambda x: x.exp(), -2, 2),
    "exp2": (lambda x: x.exp2(), -2, 2),
    "log": (lambda x: x.log(), 0.3, 4),
    "log2": (lambda x: x.log2(), 0.3, 4),
    "sin": (lambda x: x.sin(), -4, 4),
    "cos": (lambda x: x.cos(), -4, 4),
    "tan": (lambda x: x.tan(), -1, 1),
    "tanh": (lambda x: x.tanh(), -3, 3),
    "erf": (lambda x: x.erf(), -3, 3),
    "reciprocal": (lambda x: x.recip(), 0.4, 3),
    "square": (lambda x: x * x, -2, 2),
    "relu": (lambda x: x.maximum(0.0), -2, 2),
    "clamp": (lambda x: x.maximum(-0.7).minimum(0.9), -2, 2),
    "abs": (lambda x: x.maximum(-x), -2, 2),
    "sigmoid": (lambda x: (1.0 + (-x).exp()).recip(), -3, 3),
    "gelu": (lambda x: x * 0.5 * (1.0 + (x * 0.5**0.5).erf()), -3, 3),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    body, low, high = UNARY[name]
    check_gradients(body, numbers(1, 2, 3, low=low, high=high), tolerance=1e-5)
    check_gradients(body, numbers(2, low=low, high=high), tolerance=1e-5)


BINARY: dict[str, Body] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (y * y + 0.5),
    "divided twice": lambda x, y: x / (y * y + 1.0) / (x * x + 1.0),
    "max": lambda x, y: x.maximum(y),
    "min": lambda x, y: x.minimum(y) * y,
    "where": lambda x, y: (x < y).where(x * y, y * y),
    "fma": lambda x, y: x.fma(y, x),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), ()), ((), (4,)), ((), ())])
def test_binary(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check_gradients(BINARY[name], numbers(1, *shapes[0]), numbers(5, *shapes[1]) + 0.003)


def test_one_operand_twice() -> None:
    check_gradients(lambda x: x.maximum(x) * x / x.minimum(x), numbers(3, 4, low=0.5, high=2))


# ---- movement
def movements(data: st.DataObject, u: UOp) -> UOp:
    """A random view."""
    kind = data.draw(st.sampled_from("reshape expand permute shrink pad flip scale".split()))
    shape = u.shape
    if kind == "reshape":
        split = data.draw(st.sampled_from([(1, *shape), (*shape, 1), (-1,), shape[::-1]]))
        return u.reshape(split if 0 not in shape or -1 not in split else (0,))
    if kind == "expand":
        return u.expand(tuple(data.draw(st.integers(1, 3)) if n == 1 else n for n in shape))
    if kind == "permute":
        return u.permute(data.draw(st.permutations(range(len(shape)))))
    if kind == "shrink":
        ends = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
        return u.shrink([(b, e) for b, e in ends])
    if kind == "pad":
        few = st.integers(0, 1)
        return u.pad(
            [data.draw(st.tuples(few, few)) for _ in shape], data.draw(st.sampled_from([0.0, 1.5]))
        )
    if kind == "flip":
        return u.flip([a for a in range(len(shape)) if data.draw(st.booleans())])
    return u * u


@given(st.data())
def test_views(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(), (1,), (2, 1), (3, 2), (1, 2, 1), (0, 2)]))
    x = numbers(data.draw(st.integers(0, 9)), *shape)
    steps = data.draw(st.integers(1, 4))

    def body(u: UOp) -> UOp:
        out = u
        for _ in range(steps):
            out = movements(data, out)
        return out * out

    check_gradients(body, x)


def test_the_padding_value() -> None:
    check_gradients(
        lambda x, v: (x * x).pad(((1, 0), (0, 2)), v * v), numbers(1, 2, 3), numbers(2) + 0.7
    )


# ---- reductions
REDUCED: dict[str, Body] = {
    "sum": lambda x: x.reduce(Ops.ADD, 2),
    "prod": lambda x: x.reduce(Ops.MUL, 2),
    "max": lambda x: (x * x).reduce(Ops.MAX, 2),
    "min": lambda x: x.reduce(Ops.MIN, 1),
    "value of argmax": lambda x: taken(x, Combine.ARGMAX),
    "value of argmin": lambda x: taken(x * x, Combine.ARGMIN),
    "logsumexp": lambda x: logsumexp(x),
    "softmax": lambda x: (x - back(logsumexp(x), x)).exp(),
    "variance": lambda x: variance(x),
}


def back(v: UOp, x: UOp) -> UOp:
    return v.reshape((*v.shape, *(1,) * (len(x.shape) - len(v.shape)))).expand(x.shape)


def taken(x: UOp, combine: Combine) -> UOp:
    """The value that an argmax finds."""
    both = UOp(Ops.TUPLE, (x, UOp.arange(x.shape[-1]).expand(x.shape)))
    return UOp(Ops.REDUCE, (both,), ReduceArg(combine, 1)).item(0)


def logsumexp(x: UOp) -> UOp:
    top = x.reduce(Ops.MAX).detach()
    return (x - back(top, x)).exp().reduce(Ops.ADD).log() + top


def variance(x: UOp) -> UOp:
    away = x - back(x.reduce(Ops.ADD) / float(x.shape[-1]), x)
    return (away * away).reduce(Ops.ADD) / float(x.shape[-1])


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name: str) -> None:
    check_gradients(REDUCED[name], numbers(4, 2, 2, 3), tolerance=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 33])
def test_products_of_every_length(count: int) -> None:
    check_gradients(
        lambda x: x.reduce(Ops.MUL), numbers(count, 2, count, low=0.7, high=1.4), orders=1
    )


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_products_with_zeros(zeros: int) -> None:
    x = numbers(6, 5, low=0.5, high=2.0)
    x[:zeros] = 0.0
    check_gradients(lambda x: x.reduce(Ops.MUL), x)
    others = [np.prod(np.delete(x, i)) for i in range(5)]
    np.testing.assert_allclose(gradient_at(lambda u: u.reduce(Ops.MUL), x), others, 1e-15)


def test_a_long_product_with_a_zero_and_without_overflow() -> None:
    x = np.full(700, 1.01)
    x[[3, 500]] = 0.0, 1e-300
    got = gradient_at(lambda u: u.reduce(Ops.MUL), x)
    assert np.count_nonzero(got) == 1 and got[3] == pytest.approx(1e-300 * 1.01**698)
    wide = np.array([1e200, 1e200, 1e-200], np.float64)
    np.testing.assert_allclose(
        gradient_at(lambda u: u.reduce(Ops.MUL), wide), [1.0, 1.0, np.inf], 1e-12
    )


# ---- where calculus has no answer
def test_ties_of_two_values_are_shared() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 0.0])
    for body, want in (
        (lambda a, b: a.maximum(b), ([0.5, 0, 1], [0.5, 1, 0])),
        (lambda a, b: a.minimum(b), ([0.5, 1, 0], [0.5, 0, 1])),
    ):
        assert gradient_at(body, x, y, wrt=0).tolist() == want[0]
        assert gradient_at(body, x, y, wrt=1).tolist() == want[1]


def test_a_tie_with_a_constant_is_the_constants() -> None:
    x = np.array([-1.0, -0.0, 0.0, 2.0, np.nan])
    assert gradient_at(lambda u: u.maximum(0.0), x).tolist() == [0, 0, 0, 1, 1]
    assert gradient_at(lambda u: u.minimum(2.0), x).tolist() == [1, 1, 1, 0, 1]


def test_a_tie_with_an_array_of_constants_is_shared() -> None:
    """As it is when that array is in memory."""
    x = np.array([-1.0, 2.0, 3.0, np.nan])
    assert gradient_at(lambda u: u.minimum(UOp.const(2.0, F64, (4,))), x).tolist() == [1, 0.5, 0, 1]


def test_relu_reads_its_output_only() -> None:
    x = buffer(0, F64, (4,))
    out = x.maximum(0.0)
    (g,) = gradients([out], [buffer(1, F64, (4,))], [x])
    assert x not in g.substitute({out: buffer(2, F64, (4,))}).toposort()


@pytest.mark.parametrize("op", [Ops.MAX, Ops.MIN])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16, F32, F64])
def test_extremes_share_evenly(op: Ops, dtype: DType) -> None:
    sign = 1 if op is Ops.MAX else -1
    x = (sign * np.array([[3.0, 1, 3, 3], [0.0, -0.0, -1, 0]])).astype(dtype.numpy)
    got = gradient_at(lambda u: u.reduce(op), x)
    third = np.asarray(1 / 3, dtype.numpy)
    assert got[0].tolist() == [third, 0, third, third]
    assert got[1].tolist() == [third, third, 0, third]


def test_more_ties_than_f16_counts() -> None:
    got = gradient_at(lambda u: u.reduce(Ops.MAX) * 1024.0, np.zeros(100_000, np.float16))
    assert set(got.tolist()) == {float(np.float16(1024 / 100_000))}


def test_a_nan_takes_nothing_from_an_extreme() -> None:
    assert gradient_at(lambda u: u.reduce(Ops.MAX), np.array([1.0, np.nan])).tolist() == [0, 0]


def test_the_first_of_equals_is_what_argmax_took() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, np.nan]])
    assert gradient_at(lambda u: taken(u, Combine.ARGMAX), x).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_what_has_no_derivative_gives_zeros() -> None:
    x = numbers(8, 3)
    for body in (
        *(lambda u: u.floor(), lambda u: u.ceil(), lambda u: u.trunc(), lambda u: u.rint()),
        *(
            lambda u: u.detach(),
            lambda u: (u < 0.5).cast(F64),
            lambda u: u.cast(dtypes.i32).cast(F64),
        ),
        *(lambda u: u.bitcast(dtypes.i64).bitcast(F64), lambda u: u.argmax().cast(F64)),
    ):
        assert not gradient_at(body, x).any()


def test_a_branch_not_taken() -> None:
    x = np.array([-1.0, 0.0, 2.0])
    plain = gradient_at(lambda u: (u > 0.0).where(u.log(), 0.0), x)
    assert plain[0] == 0 and np.isnan(plain[1]) and plain[2] == 0.5
    safe = gradient_at(lambda u: (u > 0.0).where((u > 0.0).where(u, 1.0).log(), 0.0), x)
    assert safe.tolist() == [0.0, 0.0, 0.5]


def test_saturated_functions_have_no_nan() -> None:
    x = np.array([-1e4, -800.0, 0.0, 800.0, 1e4])
    for body in (lambda u: u.tanh(), lambda u: u.erf(), lambda u: logsumexp(u)):
        assert np.isfinite(gradient_at(body, x)).all()


# ---- dtypes
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16, F32, dtypes.f8e4m3, dtypes.f8e5m2])
def test_casts_bring_the_gradient_back(dtype: DType) -> None:
    x = np.array([1.0, 2.0, -3.0], np.float32)
    got = gradient_at(lambda u: u.cast(dtype).cast(F32) * 1.5, x)
    assert got.dtype == np.float32 and got.tolist() == [1.5] * 3


def test_views_of_storage_dtypes_add_in_f32() -> None:
    x = np.array([[1.0], [2.0]]).astype(dtypes.f8e5m2.numpy)
    got = gradient_at(
        lambda u: u.expand((2, 3)).cast(F32) + u.expand((2, 3)).flip((0,)).cast(F32), x
    )
    assert got.dtype == x.dtype and got.astype(float).tolist() == [[6.0], [6.0]]


# ---- places that data names
@pytest.mark.parametrize(
    ("x_shape", "dims", "index_shape", "scatters"),
    [
        ((4, 3), (~0, 1), (5, 3), True),  # rows of an embedding
        ((4, 3), (0, ~0), (4, 1), False),  # one pick a row
        ((4, 3), (0, ~0), (4, 2), True),
        ((4, 3), (~0, ~1), (5,), True),
        ((4, 3), (~0, ~1), (), False),
        ((2, 3, 4), (1, ~0, 0), (4, 2), False),
        ((2, 3, 4), (~1, 0, ~0), (3,), False),
        ((5,), (~0,), (1,), False),
    ],
)
def test_gathers(
    x_shape: tuple[int, ...], dims: tuple[int, ...], index_shape: tuple[int, ...], scatters: bool
) -> None:
    rng = np.random.default_rng(3)
    sizes = [
        next(n for n, j in zip(x_shape, dims, strict=True) if j == ~k)
        for k in range(sum(j < 0 for j in dims))
    ]
    indices = [np.asarray(rng.integers(-n, n, index_shape), np.int32) for n in sizes]
    check_gradients(lambda x, *at: (x * x).gather(dims, *at), numbers(1, *x_shape), *indices)
    x, *at = leaves_of([numbers(1, *x_shape), *indices])
    out = x.gather(dims, *at)
    (g,) = gradients([out], [UOp.const(1.0, F64, out.shape)], [x])
    assert any(u.op is Ops.SCATTER for u in g.toposort()) is scatters


@pytest.mark.parametrize(
    "dtype", [dtypes.i8, dtypes.u8, dtypes.i16, dtypes.u32, dtypes.i64, dtypes.u64]
)
def test_picks_by_narrow_and_unsigned_indices(dtype: DType) -> None:
    x = numbers(1, 3, 200)
    at = np.array([[0], [100], [-1 if dtype.min else 127]]).astype(dtype.numpy)
    got = gradient_at(lambda u, i: u.gather((0, ~0), i), x, at)
    want = np.zeros((3, 200))
    want[np.arange(3), at[:, 0].astype(np.int64)] = 1
    np.testing.assert_array_equal(got, want)


def test_scatters_with_repeats() -> None:
    at = np.array([[0, 0, 3], [-1, 0, 2]], np.int64)
    check_gradients(lambda v, i: (v * v).scatter((4, 2), (~0, 0), i), numbers(1, 2, 3), at)
    check_gradients(lambda v, i: (v * v).scatter((4,), (~0,), i), numbers(1, 2, 3), at)


def test_places_of_nothing() -> None:
    none = np.zeros((0, 3), np.int32)
    check_gradients(lambda x, i: x.gather((~0, 1), i), numbers(1, 4, 3), none)
    check_gradients(lambda x, i: x.gather((~0, 1), i), numbers(1, 0, 3), none)


def test_versions() -> None:
    old, value = buffer(0, F64, (3,)), buffer(1, F64, (3,))
    new = old.assign(value * 2.0)
    a, b = gradients([new * old], [UOp.const(1.0, F64, (3,))], [old, value])
    got = evaluate([a, b], {0: np.array([1.0, 2, 3]), 1: np.array([4.0, 5, 6])})
    assert [x.tolist() for x in got] == [[8, 10, 12], [2, 4, 6]]

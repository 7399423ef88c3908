"""Gradients of what tensors have methods for: against central differences through the oracle, twice
differentiated, and at the points where a formula written carelessly gives NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from tests.tensor.differences import Body, check_gradients
from tests.tensor.test_derivatives import gradient_at, numbers
from uopc.tensor.base import fresh
from uopc.tensor.core import Tensor
from uopc.tensor.elementwise import where
from uopc.tensor.movement import cat, stack
from uopc.uop.node import UOp
from uopc.uop.numbers import Array

Method: TypeAlias = Callable[..., Tensor]


def graph(f: Method) -> Body:
    """What a function of tensors makes of graphs."""

    def body(*leaves: UOp) -> UOp:
        return f(*(fresh(Tensor, u, "cpu") for u in leaves))._u

    return body


#: the function, and where it is smooth
SMOOTH: dict[str, tuple[Method, float, float]] = {
    "abs": (lambda x: x.abs(), -2, 2),
    "square": (lambda x: x.square(), -2, 2),
    "reciprocal": (lambda x: x.reciprocal(), 0.4, 2),
    "sqrt": (lambda x: x.sqrt(), 0.3, 2),
    "rsqrt": (lambda x: x.rsqrt(), 0.3, 2),
    "exp": (lambda x: x.exp(), -2, 2),
    "exp2": (lambda x: x.exp2(), -2, 2),
    "expm1": (lambda x: x.expm1(), -2, 2),
    "log": (lambda x: x.log(), 0.3, 2),
    "log2": (lambda x: x.log2(), 0.3, 2),
    "log10": (lambda x: x.log10(), 0.3, 2),
    "log1p": (lambda x: x.log1p(), -0.6, 2),
    "sin": (lambda x: x.sin(), -3, 3),
    "cos": (lambda x: x.cos(), -3, 3),
    "tan": (lambda x: x.tan(), -1, 1),
    "asin": (lambda x: x.asin(), -0.8, 0.8),
    "acos": (lambda x: x.acos(), -0.8, 0.8),
    "atan": (lambda x: x.atan(), -3, 3),
    "sinh": (lambda x: x.sinh(), -2, 2),
    "cosh": (lambda x: x.cosh(), -2, 2),
    "tanh": (lambda x: x.tanh(), -2, 2),
    "asinh": (lambda x: x.asinh(), -2, 2),
    "acosh": (lambda x: x.acosh(), 1.3, 3),
    "atanh": (lambda x: x.atanh(), -0.7, 0.7),
    "erf": (lambda x: x.erf(), -2, 2),
    "sigmoid": (lambda x: x.sigmoid(), -4, 4),
    "logsigmoid": (lambda x: x.logsigmoid(), -4, 4),
    "softplus": (lambda x: x.softplus(), -4, 4),
    "silu": (lambda x: x.silu(), -4, 4),
    "gelu": (lambda x: x.gelu(), -3, 3),
    "gelu tanh": (lambda x: x.gelu(approximate="tanh"), -3, 3),
    "relu": (lambda x: x.relu(), -2, 2),
    "relu6": (lambda x: (x * 4.0).relu6(), -2, 2),
    "leaky relu": (lambda x: x.leaky_relu(), -2, 2),
    "elu": (lambda x: x.elu(), -2, 2),
    "selu": (lambda x: x.selu(), -2, 2),
    "hardtanh": (lambda x: x.hardtanh(), -2, 2),
    "hardsigmoid": (lambda x: (x * 3.0).hardsigmoid(), -2, 2),
    "hardswish": (lambda x: (x * 3.0).hardswish(), -2, 2),
    "clamp": (lambda x: x.clamp(-0.7, 1.1), -2, 2),
    "pow 3": (lambda x: x**3, -2, 2),
    "pow -2": (lambda x: x**-2, 0.5, 2),
    "pow 1.7": (lambda x: x**1.7, 0.3, 2),
    "2 ** x": (lambda x: 2.0**x, -2, 2),
    "round": (lambda x: x.round() * x, -1.9, 1.9),
    "sign": (lambda x: x.sign() * x * x, -2, 2),
    "masked": (lambda x: x.masked_fill(x < 0.0, 3.0), -2, 2),
    "remainder": (lambda x: x % 0.7, -2, 2),
}
PAIRS: dict[str, Method] = {
    "pow": lambda x, y: x**y,
    "atan2": lambda x, y: x.atan2(y),
    "hypot": lambda x, y: x.hypot(y),
    "logaddexp": lambda x, y: x.logaddexp(y),
    "copysign": lambda x, y: x.copysign(y),
    "remainder": lambda x, y: x % (y * 3.0),
    "lerp": lambda x, y: x.lerp(y, 0.3),
    "maximum": lambda x, y: x.maximum(y),
    "matmul": lambda x, y: x @ y.T,
    "vector": lambda x, y: x @ y.flatten()[:3],
    "outer": lambda x, y: x.flatten().outer(y.flatten()),
    "linear": lambda x, y: x.linear(y),
    "in place": lambda x, y: written(x * 1.0, y),
}
ARRAYS: dict[str, Method] = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1, keepdim=True) * x,
    "prod": lambda x: x.prod(1),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0, correction=1),
    "norm": lambda x: x.norm(),
    "norm 1": lambda x: x.norm(1, axis=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(0),
    "log softmax": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(1) * x,
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1)[0] * x,
    "cummin": lambda x: x.cummin(0)[0],
    "views": lambda x: x.T.reshape(3, 2).flip(0).roll(1, 0).tile((2, 1))[::2, ::-1],
    "triangles": lambda x: x.tril() + x.triu(1) * 2.0,
    "pieces": lambda x: x.split(1, 1)[1].expand(2, 3) * x.chunk(2)[1],
    "index": lambda x: x[[1, 0, 1], [0, 2, 0]],
    "take": lambda x: x.take_along_axis(at([[0], [2]]), 1),
    "picks": lambda x: x.gather(1, at([[2], [-1]])),
    "gather": lambda x: x.gather(1, at([[2, 2], [0, -1]])),
    "rows": lambda x: x.take(at([1, 1, 0]), axis=0) * x[at([0, 1, -1])],
    "scatter add": lambda x: x.scatter_add(1, at([[2, 2], [0, 1]]), x * x),
    "index add": lambda x: (x * 2.0).index_add(0, at([1, 1, 0]), cat([x, x[:1]]).sin()),
    "diagonal": lambda x: x.diagonal(1) * x.diagonal(),
    "joined": lambda x: cat([x, x * x], 1) * stack([x, x], 1).reshape(2, 6),
    "where": lambda x: where(x > 0.2, x * x, x[:, :1]),
    "batches": lambda x: x.reshape(2, 1, 3) @ x.reshape(1, 3, 2),
    "tensordot": lambda x: x.tensordot(x.T, 1),
    "vecdot": lambda x: x.vecdot(x.flip(0)),
    "softmax of one": lambda x: x[:, :1].softmax(1) + x,
    "spread": lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(),
    "repeat": lambda x: x.repeat(2, 1) * x.unsqueeze(0).pad(((1, 0), (0, 0), (1, 2))).sum(),
}


def at(places: list[int] | list[list[int]]) -> Tensor:
    return Tensor(places, device="cpu")


def written(x: Tensor, y: Tensor) -> Tensor:
    x[:, 1:] = y[:, :2] * 3.0
    x[0] = y[1]
    return x


@pytest.mark.parametrize("name", SMOOTH)
def test_of_one(name: str) -> None:
    f, low, high = SMOOTH[name]
    check_gradients(graph(f), numbers(1, 7, low=low, high=high), tolerance=3e-5)


@pytest.mark.parametrize("name", PAIRS)
def test_of_two(name: str) -> None:
    x, y = numbers(1, 2, 3, low=0.4, high=2.0), numbers(9, 2, 3, low=0.37, high=1.9)
    check_gradients(graph(PAIRS[name]), x, y, tolerance=3e-5)


@pytest.mark.parametrize("name", ARRAYS)
def test_of_arrays(name: str) -> None:
    check_gradients(graph(ARRAYS[name]), numbers(1, 2, 3, low=-1, high=1.3), tolerance=3e-5)


# ---- where a careless formula has NaN
INF = np.inf
EDGES: dict[str, tuple[Method, Array, list[float]]] = {
    "sigmoid": (lambda x: x.sigmoid(), np.array([-INF, -1e4, 0, 1e4, INF]), [0, 0, 0.25, 0, 0]),
    "softplus": (lambda x: x.softplus(), np.array([-1e4, 0, 1e4]), [0, 0.5, 1]),
    "logsigmoid": (lambda x: x.logsigmoid(), np.array([-1e4, 0, 1e4]), [1, 0.5, 0]),
    "silu": (lambda x: x.silu(), np.array([-1e4, 0, 1e4]), [0, 0.5, 1]),
    "gelu": (lambda x: x.gelu(), np.array([-1e4, 0, 1e4]), [0, 0.5, 1]),
    "gelu tanh": (lambda x: x.gelu(approximate="tanh"), np.array([-1e4, 0, 1e4]), [0, 0.5, 1]),
    "tanh": (lambda x: x.tanh(), np.array([-1e4, 0, 1e4]), [0, 1, 0]),
    "elu": (lambda x: x.elu(), np.array([-1e4, 2, 1e4]), [0, 1, 1]),
    "relu": (lambda x: x.relu(), np.array([-INF, 0, INF]), [0, 0, 1]),
    "abs": (lambda x: x.abs(), np.array([-INF, -0.0, 0.0, INF]), [-1, 0, 0, 1]),
    "sinh": (lambda x: x.sinh(), np.array([0.0]), [1]),
    "expm1": (lambda x: x.expm1(), np.array([0.0, 1e-300]), [1, 1]),
    "log1p": (lambda x: x.log1p(), np.array([0.0, 1e-300]), [1, 1]),
    "atan": (lambda x: x.atan(), np.array([-INF, 0.0, INF]), [0, 1, 0]),
    "square": (lambda x: x**2, np.array([-3.0, 0.0]), [-6, 0]),
    "cube": (lambda x: x**3, np.array([0.0, -2.0]), [0, 12]),
    "pow 1": (lambda x: x**1, np.array([0.0, -2.0]), [1, 1]),
    "pow 0": (lambda x: x**0, np.array([0.0, -2.0]), [0, 0]),
    "prod": (lambda x: x.prod(), np.array([0.0, 2.0, 3.0]), [6, 0, 0]),
    "prod of zeros": (lambda x: x.prod(), np.array([0.0, 2.0, 0.0]), [0, 0, 0]),
    "cumprod": (lambda x: x.cumprod(0), np.array([2.0, 0.0, 3.0]), [1, 8, 0]),
    "softmax masked": (
        lambda x: x.masked_fill(x < 0.0, -INF).softmax(0)[1],
        np.array([-1.0, 1, 1]),
        [0, 0.25, -0.25],
    ),
    "softmax large": (lambda x: x.softmax(0)[0], np.array([1e4, 0.0]), [0, 0]),
    "log_softmax large": (lambda x: x.log_softmax(0)[1], np.array([1e4, 0.0]), [-1, 1]),
    "logsumexp": (lambda x: x.logsumexp(0), np.array([-INF, 1e4, 1e4]), [0, 0.5, 0.5]),
    "logaddexp": (lambda x: x.logaddexp(x), np.array([1e4, -1e4]), [1, 1]),
    "max of equals": (lambda x: x.max(), np.array([1.0, 1.0]), [0.5, 0.5]),
    "norm": (lambda x: x.norm(), np.array([0.0, 0.0]), [0, 0]),
    "std of equals": (lambda x: x.std(), np.array([2.0, 2.0]), [0, 0]),
    "norm inf": (lambda x: x.norm(np.inf), np.array([-2.0, 2.0, 1.0]), [-0.5, 0.5, 0]),
    "norm 1": (lambda x: x.norm(1), np.array([0.0, -2.0]), [0, -1]),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    f, x, want = EDGES[name]
    np.testing.assert_allclose(gradient_at(graph(f), np.asarray(x)), want, 1e-12, 1e-300)

"""Small programs of tensors that run on every device: name -> what it makes of a device.

Each gives tensors whose elements the oracle knows (`tests.tensor.meaning`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.tensor import Tensor, cat, grad, nn, stack, where

Program = Callable[[str], Sequence[Tensor]]
PROGRAMS: dict[str, Program] = {}
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
INTS = (dtypes.i8, dtypes.u8, dtypes.i16, dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)
_CURVES = (
    *("exp", "exp2", "expm1", "log1p", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "erf"),
    *("relu", "sigmoid", "silu", "softplus", "gelu", "elu", "floor", "ceil", "round", "trunc"),
    *("sign", "abs", "isnan", "isinf", "isfinite", "square", "neg", "signbit"),
)
_POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal")


def program(function: Program) -> Program:
    PROGRAMS[function.__name__.strip("_")] = function
    return function


def normal(device: str, *shape: int, dtype: DType = dtypes.f32, seed: int = 0) -> Tensor:
    """Normal numbers, the same on every device."""
    x = np.random.default_rng(seed).standard_normal(shape)
    return Tensor(x.astype(dtype.numpy), device=device)


def integers(
    device: str, *shape: int, dtype: DType = dtypes.i64, low: int = 0, high: int = 7, seed: int = 0
) -> Tensor:
    x = np.random.default_rng(seed).integers(low, high, shape)
    return Tensor(x.astype(dtype.numpy), device=device)


def _curves(dtype: DType) -> Program:
    def run(device: str) -> list[Tensor]:
        x = normal(device, 37, dtype=dtype) * 3
        y = x.abs() + 0.25
        return [getattr(x, f)() for f in _CURVES] + [getattr(y, f)() for f in _POSITIVE]

    return run


def _integer(dtype: DType) -> Program:
    def run(device: str) -> list[Tensor]:
        low = 0 if dtype.min == 0 else -100
        a = integers(device, 5, 40, dtype=dtype, low=low, high=100)
        b = integers(device, 5, 40, dtype=dtype, low=low, high=5, seed=1)
        made = [a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, ~a, a < b, a == b]
        return [*made, a.maximum(b), a.sum(), a.sum(1), a.max(0), a.argmin(1), (a @ b.T)]

    return run


def _reduced(dtype: DType) -> Program:
    def run(device: str) -> list[Tensor]:
        x = normal(device, 33, 5, 130, dtype=dtype)
        made: list[Tensor] = []
        for axis in (None, 0, 2, (0, 2)):
            made += [x.sum(axis), x.mean(axis, keepdim=True), x.max(axis), x.var(axis)]
        flat = [x.argmax(2), x.argmin(0), x.norm(axis=2), x.logsumexp(2), (x > 0).any(2)]
        return [*made, *flat, x.softmax(2), x.log_softmax(0), x.cumsum(2), (x > -9).all()]

    return run


def _product(dtype: DType) -> Program:
    def run(device: str) -> list[Tensor]:
        made = []
        for m, k, n in ((1, 1, 1), (4, 4, 4), (5, 3, 9), (8, 16, 7), (33, 20, 65), (64, 1, 64)):
            made.append(normal(device, m, k, dtype=dtype) @ normal(device, k, n, dtype=dtype))
        a, b = normal(device, 3, 1, 17, 40, dtype=dtype), normal(device, 2, 40, 9, dtype=dtype)
        v = normal(device, 40, dtype=dtype)
        made += [a @ b, a @ v, v @ b, (a.transpose() @ a).relu(), v @ v]
        return made

    return run


for _d in FLOATS:
    PROGRAMS[f"curves_{_d}"] = _curves(_d)
    PROGRAMS[f"reduced_{_d}"] = _reduced(_d)
    PROGRAMS[f"product_{_d}"] = _product(_d)
for _d in INTS:
    PROGRAMS[f"integers_{_d}"] = _integer(_d)


@program
def views(device: str) -> list[Tensor]:
    x = normal(device, 6, 10, 4)
    made = [x.permute(2, 0, 1), x.flip(1), x[::-2, 1:9:3], x[..., None, 2], x.reshape(-1, 8)]
    made += [x.pad(((1, 2), (0, 0), (3, 0)), 7.0), x.roll(3, 1), x.tril(), x[:, 3].triu(1)]
    made += [cat([x, x[1:3] * 2], 0), stack([x, -x], 2), *x.split(4, 1), x.repeat(2, 1)]
    return [m + 1.0 for m in made]


@program
def indices(device: str) -> list[Tensor]:
    x = normal(device, 50, 12)
    rows, columns = integers(device, 7, low=-50, high=50), integers(device, 7, high=12, seed=1)
    pick = integers(device, 50, 3, high=12, seed=2)
    made = [x[rows], x[rows, columns], x[:, columns], x[rows, 2:5], x[rows[:, None], columns]]
    made += [x.gather(1, pick), x.take_along_axis(pick, 1), x.take(rows, 0)]
    zeros = Tensor(np.zeros((50, 12), np.float32), device=device)
    made += [zeros.scatter_add(1, pick, x[:, :3]), zeros.index_add(0, rows, x[:7])]
    return [*made, columns.one_hot(12)]


@program
def updates(device: str) -> list[Tensor]:
    x = normal(device, 8, 9)
    before = x[2:5]
    x[3] = 0.0
    x[:, ::2] = x[:, ::2] * 2
    x[Tensor(np.array([1, 5, 1]), device=device)] = normal(device, 3, 9, seed=3)
    x += 1
    y = normal(device, 9, 9)
    y.assign(y.T + y)
    return [x, before, y]


@program
def gradients(device: str) -> list[Tensor]:
    x = normal(device, 12, 20).requires_grad_()
    w = normal(device, 7, 20, seed=1).requires_grad_()
    b = normal(device, 7, seed=2).requires_grad_()
    y = integers(device, 12, high=7, seed=3)
    loss = nn.cross_entropy((x @ w.T + b).tanh(), y)
    return [loss.detach(), *grad(loss, [x, w, b])]


@program
def normalised(device: str) -> list[Tensor]:
    x = normal(device, 65, 48).requires_grad_()
    layer = nn.LayerNorm(48, device=device)
    out = layer(x)
    scale, shift = layer.weight, layer.bias
    assert scale is not None and shift is not None
    made = grad((out * normal(device, 65, 48, seed=1)).sum(), [x, scale, shift])
    return [out.detach(), *made, nn.RMSNorm(48, device=device)(x).detach()]


@program
def choices(device: str) -> list[Tensor]:
    x, y = normal(device, 9, 9), normal(device, 9, seed=1)
    mask = x > 0
    special: Any = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32)
    s = Tensor(special, device=device)
    made = [where(mask, x, y), x.masked_fill(mask, -1.0), x.clamp(-0.5, 0.5), s.maximum(0.0)]
    return [*made, s.minimum(s.flip(0)), s.isnan(), s.argmax(0), s.max(), s.cast(dtypes.i32)]

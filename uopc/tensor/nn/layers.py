"""The layers: each says its formula, its shapes and how its parameters start.

Parameters are made on the device by counter-based random numbers: one seed, the same network on
every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import random, watch
from uopc.tensor.core import Tensor
from uopc.tensor.create import full
from uopc.tensor.nn.module import Module
from uopc.tensor.promote import result_type
from uopc.uop.node import here

#: from 1 to the next number: RMSNorm's eps unless one is given
_EPSILON = {
    dtypes.f16: 2.0**-10,
    dtypes.bf16: 2.0**-7,
    dtypes.f32: 2.0**-23,
    dtypes.f64: 2.0**-52,
}


class Linear(Module):
    """x W^T + b: x (..., inputs) to (..., outputs).

    weight (outputs, inputs) and bias (outputs,), uniform within 1 / sqrt(inputs), as torch's.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        *,
        device: str | None = None,
        dtype: DType = dtypes.f32,
    ) -> None:
        bound = 1.0 / math.sqrt(inputs) if inputs else 0.0
        self.weight = _uniform((outputs, inputs), bound, device, dtype)
        self.bias = _uniform((outputs,), bound, device, dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., inputs) to (..., outputs)."""
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias

    def describe(self) -> str:
        outputs, inputs = self.weight.shape
        return f"{inputs}, {outputs}" + (", bias=False" if self.bias is None else "")


class Embedding(Module):
    """Rows of a table: indices (...) to (..., width).

    weight (count, width), normal with deviation 1, as torch's.  Only the rows asked for are read.
    """

    def __init__(
        self,
        count: int,
        width: int,
        *,
        device: str | None = None,
        dtype: DType = dtypes.f32,
    ) -> None:
        self.weight = random.randn(count, width, device=device, dtype=dtype, requires_grad=True)

    def forward(self, indices: Tensor) -> Tensor:
        """Integer indices (...) to (..., width).  IndexError, when read, for one out of range."""
        return self.weight[indices]

    def describe(self) -> str:
        count, width = self.weight.shape
        return f"{count}, {width}"


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, over the last axes, in f32 at least.

    shape: the sizes of those axes, or one size; var divides by their count.  weight starts at 1,
    bias at 0; affine=False has neither.  Source: Ba, Kiros, Hinton 2016 (arXiv:1607.06450).
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        *,
        device: str | None = None,
        dtype: DType = dtypes.f32,
    ) -> None:
        self.shape, self.eps = _sizes(shape), eps
        self.weight = _filled(self.shape, 1.0, device, dtype) if affine else None
        self.bias = _filled(self.shape, 0.0, device, dtype) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *shape) to the same shape."""
        axes = _last_axes(x, self.shape, "LayerNorm")
        wide = _wide(x)
        centred = wide - wide.mean(axes, keepdim=True)
        y = centred * ((centred * centred).mean(axes, keepdim=True) + self.eps).rsqrt()
        return _affine(x, y, self.weight, self.bias)

    def describe(self) -> str:
        return f"{self.shape}, eps={self.eps}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight, over the last axes, in f32 at least.

    shape: the sizes of those axes, or one size.  weight starts at 1; affine=False has none.  eps
    None: the dtype's distance from 1 to the next number, as torch's.
    Source: Zhang, Sennrich 2019 (arXiv:1910.07467).
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        eps: float | None = None,
        affine: bool = True,
        *,
        device: str | None = None,
        dtype: DType = dtypes.f32,
    ) -> None:
        self.shape, self.eps = _sizes(shape), eps
        self.weight = _filled(self.shape, 1.0, device, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *shape) to the same shape."""
        axes = _last_axes(x, self.shape, "RMSNorm")
        eps = _EPSILON[x.dtype] if self.eps is None else self.eps
        wide = _wide(x)
        y = wide * ((wide * wide).mean(axes, keepdim=True) + eps).rsqrt()
        return _affine(x, y, self.weight, None)

    def describe(self) -> str:
        return f"{self.shape}, eps={self.eps}"


class Dropout(Module):
    """In training, each element is 0 with probability p, else divided by 1 - p.  In eval, x."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"Dropout at {here()}: p is a probability, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x (...) to the same shape; each call draws new random numbers in training."""
        watch.depends(self, "training")
        return random.dropout(x, self.p) if self.training else x

    def describe(self) -> str:
        return f"p={self.p}"


class Sequential(Module):
    """One after the other: modules, or any functions of one tensor."""

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        for n, step in enumerate(steps):
            setattr(self, str(n), step)

    @property
    def steps(self) -> list[Callable[[Any], Any]]:
        """The steps in order."""
        return [step for name, step in vars(self).items() if name.isdigit()]

    def forward(self, x: Any) -> Any:
        """The last step of ... the first step of x."""
        for step in self.steps:
            x = step(x)
        return x

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        return iter(self.steps)

    @overload
    def __getitem__(self, at: int) -> Callable[[Any], Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequential: ...
    def __getitem__(self, at: int | slice) -> Callable[[Any], Any]:
        if isinstance(at, slice):
            return Sequential(*self.steps[at])
        return self.steps[at]


# ---- parameters as they start
def _uniform(shape: tuple[int, ...], bound: float, device: str | None, dtype: DType) -> Tensor:
    """Uniform within -bound to bound."""
    return random.uniform(
        shape, low=-bound, high=bound, device=device, dtype=dtype, requires_grad=True
    )


def _filled(shape: tuple[int, ...], value: float, device: str | None, dtype: DType) -> Tensor:
    return full(shape, value, device=device, dtype=dtype, requires_grad=True)


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _wide(x: Tensor) -> Tensor:
    """What norms compute with: a narrow float as f32."""
    return x.cast(dtypes.f32) if x.dtype.is_float and x.dtype.bits < 32 else x


def _affine(x: Tensor, y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y * weight + bias, in the dtype that x * weight + bias has."""
    given = [t for t in (weight, bias) if t is not None]
    dtype = result_type(x if x.dtype.is_float else y, *given)
    y = y if weight is None else y * _wide(weight)
    return (y if bias is None else y + _wide(bias)).cast(dtype)


def _last_axes(x: Tensor, shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The last axes of x, which have this shape.  Raises UsageError where they do not."""
    first = x.ndim - len(shape)
    if first < 0 or x.shape[first:] != shape:
        raise UsageError(
            f"{what} at {here()}: normalises over last axes of sizes {shape}, got {x.shape}"
        )
    return tuple(range(first, x.ndim))

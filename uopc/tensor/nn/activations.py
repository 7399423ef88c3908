"""Activations as modules, for Sequential and for repr; each is the Tensor's method of its name."""

from __future__ import annotations

from typing import Literal

from uopc.tensor.core import Tensor
from uopc.tensor.nn.module import Module


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


class GELU(Module):
    """x times the normal distribution's share below x; approximate "tanh" has tanh in its place."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return x.gelu(self.approximate)

    def describe(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"


class Tanh(Module):
    """tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()


class Sigmoid(Module):
    """1 / (1 + e^-x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()


class SiLU(Module):
    """x / (1 + e^-x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.silu()


class Softplus(Module):
    """log(1 + e^x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softplus()

"""The optimisers in numpy and f64, written from PyTorch's documentation, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: (parameter, gradient, step from 1, state to be kept) -> new parameter
Step: TypeAlias = Callable[[Array, Array, int, dict[str, Any]], Array]


def sgd(
    lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> Step:
    def step(p: Array, g: Array, t: int, state: dict[str, Any]) -> Array:
        g = g + weight_decay * p
        if momentum:
            state["b"] = g if t == 1 else momentum * state["b"] + g
            g = g + momentum * state["b"] if nesterov else state["b"]
        return p - lr * g

    return step


def adam(
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Step:
    beta1, beta2 = betas

    def step(p: Array, g: Array, t: int, state: dict[str, Any]) -> Array:
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g**2
        m, v = state["m"] / (1 - beta1**t), state["v"] / (1 - beta2**t)
        made: Array = p - lr * m / (np.sqrt(v) + eps)
        return made

    return step


def rmsprop(
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> Step:
    def step(p: Array, g: Array, t: int, state: dict[str, Any]) -> Array:
        g = g + weight_decay * p
        state["v"] = alpha * state.get("v", 0.0) + (1 - alpha) * g**2
        v = state["v"]
        if centered:
            state["g"] = alpha * state.get("g", 0.0) + (1 - alpha) * g
            v = v - state["g"] ** 2
        change = g / (np.sqrt(v) + eps)
        if momentum:
            change = state["b"] = momentum * state.get("b", 0.0) + change
        made: Array = p - lr * change
        return made

    return step

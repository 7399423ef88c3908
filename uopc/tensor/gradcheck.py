"""Gradients held against differences: for tests of functions, in f64.

A central difference (f(x + e) - f(x - e)) / 2e is off by about e² and by the rounding of f over e;
with e = 1e-6 in f64 both are near 1e-10 for numbers of size 1.  In f32 nothing could be told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from uopc.dtype import dtypes
from uopc.errors import GradientError, UsageError
from uopc.tensor.backward import grad
from uopc.tensor.base import Base
from uopc.tensor.core import Tensor
from uopc.tensor.mode import enable_grad
from uopc.uop.node import here
from uopc.uop.numbers import Array

Function: TypeAlias = Callable[..., Tensor | Sequence[Tensor]]
_Outputs: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True)
class _Limits:
    """The step, and how far a derivative may be from its difference: atol + rtol * |difference|."""

    eps: float
    atol: float
    rtol: float


def gradcheck(
    f: Function,
    inputs: Tensor | Sequence[Tensor],
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> bool:
    """Compare the gradients of a function with central differences; True if they agree.

    f: takes the inputs, gives a tensor or several; it must be smooth within eps of the inputs.
    inputs: those that require gradients must be f64, and are the ones that are checked.
    eps: the step; atol, rtol: a derivative may be off by atol + rtol * |difference|.

    The function is called twice for each element of the inputs.
    Raises GradientError, which names the worst entry, and UsageError for inputs of other dtypes.
    """
    given = [inputs] if isinstance(inputs, Base) else list(inputs)
    checked = [n for n, t in enumerate(given) if t.requires_grad]
    if not checked:
        raise UsageError(f"gradcheck at {here()}: no input requires a gradient")
    for n in checked:
        if given[n].dtype is not dtypes.f64:
            raise UsageError(
                f"gradcheck at {here()}: input {n} is {given[n].dtype}; differences need f64"
            )
    _compare(f, given, checked, _Limits(eps, atol, rtol))
    return True


def gradgradcheck(
    f: Function,
    inputs: Tensor | Sequence[Tensor],
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> bool:
    """As `gradcheck`, of the gradients of f: by the inputs and by what is given for the outputs."""
    given = [inputs] if isinstance(inputs, Base) else list(inputs)
    outputs = _outputs(f, given)
    rng = np.random.default_rng(0)  # any numbers that are not special
    weights = [
        Tensor(rng.uniform(0.5, 1.5, t.shape), dtypes.f64, t.device, requires_grad=True)
        for t in outputs
    ]

    def gradients_of_f(*args: Tensor) -> list[Tensor]:
        xs, seeds = args[: len(given)], args[len(given) :]
        ends = _outputs(f, xs)
        kept = [n for n, end in enumerate(ends) if end.requires_grad]
        by = [x for x in xs if x.requires_grad]
        found = grad([ends[n] for n in kept], by, [seeds[n] for n in kept], allow_unused=True)
        return [g for g in found if g is not None]

    return gradcheck(gradients_of_f, [*given, *weights], eps, atol, rtol)


def _outputs(f: Function, args: Sequence[Tensor]) -> _Outputs:
    with enable_grad():
        made = f(*args)
    return (made,) if isinstance(made, Base) else tuple(made)


# ---- the two Jacobians: for each output and input an array of (output elements, input elements)
_Jacobians: TypeAlias = dict[tuple[int, int], Array]


def _compare(f: Function, given: list[Tensor], checked: list[int], limits: _Limits) -> None:
    arrays = [t.numpy() for t in given]
    given = [_leaf(t, a) if t.requires_grad else t for t, a in zip(given, arrays, strict=True)]
    outputs = _outputs(f, given)
    got = _by_gradients(outputs, [given[n] for n in checked], checked)
    want = _by_differences(f, given, arrays, checked, limits.eps)
    excess = {
        k: np.abs(got[k] - want[k]) - limits.atol - limits.rtol * np.abs(want[k]) for k in got
    }
    wrong = sum(int(np.count_nonzero(~(e <= 0))) for e in excess.values())
    if not wrong:
        return
    total = sum(e.size for e in excess.values())
    worst = {k: np.nan_to_num(e, nan=np.inf) for k, e in excess.items() if e.size}
    out, into = max(worst, key=lambda k: worst[k].max())
    row, column = np.unravel_index(worst[out, into].argmax(), worst[out, into].shape)
    element = _place(int(row), outputs[out].shape), _place(int(column), arrays[into].shape)
    found, expected = got[out, into][row, column], want[out, into][row, column]
    raise GradientError(
        f"gradcheck at {here()}: {wrong} of {total} derivatives are off. The worst: output {out} "
        f"at {element[0]} by input {into} at {element[1]}: backward gives {found:.10g}, central "
        f"differences {expected:.10g} (allowed: {limits.atol:g} + {limits.rtol:g} * |difference|)"
    )


def _leaf(like: Tensor, array: Array) -> Tensor:
    """A leaf of its own, so that a tensor that is given twice is two inputs."""
    return Tensor(array, dtypes.f64, like.device, requires_grad=True)


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()


def _by_gradients(outputs: _Outputs, inputs: list[Tensor], numbers: list[int]) -> _Jacobians:
    """A backward pass for each element of the outputs."""
    out = {
        (k, n): np.zeros((end.size, x.size))
        for k, end in enumerate(outputs)
        for n, x in zip(numbers, inputs, strict=True)
    }
    for k, end in enumerate(outputs):
        if not end.requires_grad:
            continue
        for row in range(end.size):
            seed = np.zeros(end.size)
            seed[row] = 1.0
            one = Tensor(seed.reshape(end.shape), end.dtype, end.device)
            for n, g in zip(numbers, grad(end, inputs, one, allow_unused=True), strict=True):
                if g is not None:
                    out[k, n][row] = g.numpy().reshape(-1)
    return out


def _by_differences(
    f: Function, given: list[Tensor], arrays: list[Array], checked: list[int], eps: float
) -> _Jacobians:
    """Two calls for each element of the inputs."""

    def values(n: int, at: int, step: float) -> list[Array]:
        moved = arrays[n].copy()
        moved.reshape(-1)[at] += step
        args = list(given)
        args[n] = _leaf(given[n], moved)
        return [t.numpy().astype(np.float64).reshape(-1) for t in _outputs(f, args)]

    out: _Jacobians = {}
    for n in checked:
        columns = [
            [
                (b - a) / (2 * eps)
                for a, b in zip(values(n, i, -eps), values(n, i, eps), strict=True)
            ]
            for i in range(arrays[n].size)
        ]
        for k, end in enumerate(_outputs(f, given)):
            rows = [c[k] for c in columns]
            out[k, n] = np.stack(rows, 1) if rows else np.zeros((end.size, 0))
    return out

"""Random programs of tensors, run, against what the oracle says of their graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tensor.meaning import arrays, meaning, shapes, tensor
from uopc.dtype import DType, dtypes
from uopc.tensor.core import Tensor
from uopc.tensor.movement import cat, stack
from uopc.uop.numbers import Array

Step: TypeAlias = Callable[[Tensor, int, np.random.Generator], Tensor]
#: beyond this many elements a program is not made longer
LARGEST = 2000


def host(t: Tensor, array: Array) -> Tensor:
    """A tensor beside t."""
    return tensor(array, t.device)


def places(t: Tensor, axis: int, rng: np.random.Generator, *shape: int) -> Tensor:
    """Integers that name elements of an axis, from either end."""
    n = t.shape[axis]
    kind = rng.choice([np.int8, np.int32, np.int64])
    return host(t, rng.integers(-n, n, shape).astype(kind))


def some_slices(t: Tensor, rng: np.random.Generator) -> tuple[slice, ...]:
    key = []
    for n in t.shape:
        ends = [None if rng.random() < 0.4 else int(rng.integers(-n - 1, n + 2)) for _ in range(2)]
        key.append(slice(*ends, rng.choice([1, 1, 2, -1, -2, 3])))
    return tuple(key)


def along(t: Tensor, axis: int, part: Tensor) -> tuple[slice | Tensor, ...]:
    return (*[slice(None)] * axis, part)


def written(t: Tensor, key: tuple[slice | Tensor, ...], value: Tensor | int) -> Tensor:
    t = t.clone()
    t[key] = value
    return t


def set_some(t: Tensor, axis: int, rng: np.random.Generator) -> Tensor:
    key = some_slices(t, rng)
    return written(t, key, t[key].flip(axis))


def set_places(t: Tensor, axis: int, rng: np.random.Generator) -> Tensor:
    key = along(t, axis, places(t, axis, rng, 3))
    return written(t, key, t[key].flip(axis))


def times_matrix(t: Tensor, axis: int, rng: np.random.Generator) -> Tensor:
    shape = (t.shape[-1], int(rng.integers(1, 6)))
    return t @ host(t, rng.integers(0, 3, shape).astype(t.dtype.numpy))


def scattered(t: Tensor, axis: int, rng: np.random.Generator) -> Tensor:
    return t.scatter_add(axis, places(t, axis, rng, *t.shape), t)


#: of a tensor with axes, all of them with elements
STEPS: dict[str, Step] = {
    "max": lambda t, a, r: t.max(a),
    "argmin": lambda t, a, r: t.argmin(a).cast(t.dtype),
    "index": lambda t, a, r: t[along(t, a, places(t, a, r, int(r.integers(0, 4))))],
    "set places": set_places,
}
#: of any tensor with axes
OF_EMPTY: dict[str, Step] = {
    "sum": lambda t, a, r: t.sum(a, keepdim=bool(r.integers(2))).cast(t.dtype),
    "any": lambda t, a, r: t.any(a),
    "slices": lambda t, a, r: t[some_slices(t, r)],
    "cat": lambda t, a, r: cat([t, t.flip(a), t], a),
    "stack": lambda t, a, r: stack([t, t.flip(a)], a),
    "pad": lambda t, a, r: t.pad([(int(r.integers(3)), int(r.integers(3))) for _ in t.shape], 1),
    "roll": lambda t, a, r: t.roll(int(r.integers(-3, 4)), a),
    "turn": lambda t, a, r: t.permute(*r.permutation(t.ndim).tolist()),
    "repeat": lambda t, a, r: t.repeat(2, a),
    "triangle": lambda t, a, r: t.unsqueeze(0).tril(int(r.integers(-1, 2))),
    "set slices": set_some,
    "set mask": lambda t, a, r: written(t, (host(t, r.random(t.shape[:1]) < 0.5),), 1),
    "product": times_matrix,
}
OF_NUMBERS: dict[str, Step] = {
    "running sum": lambda t, a, r: t.cumsum(a).cast(t.dtype),
    "scatter": scattered,
    "add": lambda t, a, r: t + t.flip(a),
}
OF_FLOATS: dict[str, Step] = {
    "mean": lambda t, a, r: t.mean(a, keepdim=True).expand(*t.shape),
    "variance": lambda t, a, r: t.var(a),
    "softmax": lambda t, a, r: t.softmax(a),
}


def steps_for(t: Tensor) -> dict[str, Step]:
    """What can be done with a tensor."""
    if not t.ndim or t.size > LARGEST:
        return {}
    numbers = OF_NUMBERS if t.dtype is not dtypes.bool else {}
    found = OF_EMPTY | (STEPS | numbers if t.size else {})
    return found | (OF_FLOATS if t.dtype.is_float and t.size else {})


def agree(got: Array, want: Array, dtype: DType) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want)
        return
    limit = {"f16": 4e-3, "bf16": 4e-2, "f32": 1e-5, "f64": 1e-12}[dtype.name]
    wide = want.astype(np.float64)
    size = np.max(np.abs(wide), initial=1.0, where=np.isfinite(wide))
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=limit, atol=limit * size)


@pytest.mark.parametrize("device", ("cpu", "emulated"))
@settings(max_examples=15)
@given(st.data())
def test_programs(device: str, data: st.DataObject) -> None:
    t = tensor(data.draw(arrays(shape=shapes(least=1, most=3, size=4), wild=False)), device)
    for _ in range(data.draw(st.integers(1, 5))):
        possible = steps_for(t)
        if not possible:
            break
        name = data.draw(st.sampled_from(sorted(possible)))
        rng = np.random.default_rng(data.draw(st.integers(0, 999)))
        t = possible[name](t, data.draw(st.integers(0, t.ndim - 1)), rng)
    agree(t.numpy(), meaning(t), t.dtype)

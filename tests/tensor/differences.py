"""Gradients of graphs held against central differences, in f64 and through the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from uopc.dtype import dtypes, from_numpy
from uopc.tensor import storage
from uopc.tensor.gradient import gradients
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate

Body: TypeAlias = Callable[..., UOp]
_STEP = 1e-5
_FIRST = 10**9  # slots that no tensor has: bodies may name memories of tensors too


def leaves_of(arrays: Sequence[Array]) -> list[UOp]:
    """A BUFFER for each array; of one element and reshaped where it has no axes."""
    return [
        buffer(_FIRST + n, from_numpy(a.dtype), a.shape or (1,)).reshape(a.shape)
        for n, a in enumerate(arrays)
    ]


def values(bodies: Sequence[UOp], arrays: Sequence[Array]) -> list[Array]:
    """What the oracle says, with these arrays for `leaves_of` them."""
    held = [u for u in toposort(*bodies) if u.op is Ops.BUFFER and u.arg.slot < _FIRST]
    others = {u.arg.slot: storage.memory(u).numpy() for u in held}
    return evaluate(list(bodies), others | {_FIRST + n: a for n, a in enumerate(arrays)})


def check_gradients(body: Body, *given: Array, orders: int = 2, tolerance: float = 1e-6) -> None:
    """Of sum(weights * body(leaves)), by each f64 array, up to `orders` times differentiated.

    Weights are not all equal, so that a permuted gradient is a wrong one.
    """
    arrays = [np.asarray(a) for a in given]
    leaves = leaves_of(arrays)
    floats = [u for u in leaves if u.dtype is dtypes.f64]
    out = body(*leaves)
    for order in range(1, orders + 1):
        total = weighted(out)
        found = gradients([total], [UOp.const(1.0, dtypes.f64)], floats)
        for w, g in zip(floats, found, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
        for slot, got in zip([leaves.index(u) for u in floats], values(found, arrays), strict=True):
            want = central(total, arrays, slot)
            scale = tolerance * (1 + np.max(np.abs(want), initial=0.0))
            np.testing.assert_allclose(got, want, 0, scale, err_msg=f"order {order}, leaf {slot}")
        out = weighted(*found)


def weighted(*outs: UOp) -> UOp:
    """The sum of all elements, each times a number of its own."""
    total = UOp.const(0.0, dtypes.f64)
    for k, u in enumerate(outs):
        flat = u.reshape((-1,) if u.shape.count(0) == 0 else (0,))
        weights = UOp.arange(flat.shape[0], dtypes.i64).cast(dtypes.f64) * 0.37 + (0.5 + k)
        total = total + (flat * weights.sin()).reduce(Ops.ADD)
    return total


def central(total: UOp, arrays: Sequence[Array], slot: int) -> Array:
    """(f(x + h) - f(x - h)) / 2h for each element of one array."""
    out = np.zeros(arrays[slot].shape)
    for at in np.ndindex(*arrays[slot].shape):
        sides = []
        for step in (_STEP, -_STEP):
            moved = [a.copy() for a in arrays]
            moved[slot][at] += step
            sides.append(values([total], moved)[0])
        out[at] = (sides[0] - sides[1]) / (2 * _STEP)
    return out

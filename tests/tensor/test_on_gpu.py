"""Tensors on a GPU: curves of its library, random bits, moves, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import assert_same
from tests.tensor.test_curves import ONE, TWO, WIDE, pairs, ulps, values
from tests.tensor.test_random import draws
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import Tensor, manual_seed

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
def test_curves(dtype: DType) -> None:
    """Its exp, log and sqrt are within 2 ulp (CUDA Programming Guide, mathematical functions)."""
    x = values(dtype, 0)
    worst = {}
    for name, f in ONE.items():
        with np.errstate(all="ignore"):
            off = ulps(getattr(Tensor(x, device="cuda"), name)().numpy(), f(x.astype(WIDE)))
        if name == "silu":
            off[x < (-87 if dtype is dtypes.f32 else -708)] = 0
        worst[name] = float(off.max())
    x, y = pairs(dtype)
    a, b = Tensor(x, device="cuda"), Tensor(y, device="cuda")
    for name in ("atan2", "hypot", "copysign"):
        with np.errstate(all="ignore"):
            off = ulps(getattr(a, name)(b).numpy(), TWO[name](x.astype(WIDE), y.astype(WIDE)))
        worst[name] = float(off.max())
    if dtype is dtypes.f32:
        with np.errstate(all="ignore"):
            off = ulps((a**b).numpy(), np.power(x.astype(WIDE), y.astype(WIDE)))
        worst["pow"] = float(off.max())
    assert max(worst.values()) <= 5, worst


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
def test_division_and_powers_have_the_bits_of_the_cpu(dtype: DType) -> None:
    """They are built from exact arithmetic alone (the power: in f64)."""
    x, y = pairs(dtype)
    found = []
    for device in ("cpu", "cuda"):
        a, b = Tensor(x, device=device), Tensor(y, device=device)
        parts = [a // b, a % b, a.copysign(b)] + ([a**b] if dtype is dtypes.f64 else [])
        found.append([p.numpy() for p in parts])
    for native, launched in zip(*found, strict=True):
        assert_same(launched, native)


def test_random_bits() -> None:
    manual_seed(1)
    want = draws("cpu")
    for a, b in zip(draws("cuda"), want, strict=True):
        assert_same(a, b)


def test_moves_and_gradients_cross() -> None:
    x = Tensor(np.arange(6.0).reshape(2, 3), device="cpu", requires_grad=True)
    y = x.permute(1, 0).cuda()
    assert (y.device, y.shape) == ("cuda", (3, 2)) and y.cuda() is y
    (y * y).sum().backward()
    assert x.grad is not None and x.grad.device == "cpu"
    assert_same(x.grad.numpy(), 2 * np.arange(6.0).reshape(2, 3))
    assert y.cpu().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_the_host_says_that_it_copies() -> None:
    x = Tensor([1.0, 2.0], device="cuda")
    with pytest.raises(UsageError, match=r"Pass \.numpy\(\)"):
        np.asarray(x)
    assert x.numpy().tolist() == x.tolist() == [1, 2] and x.sum().item() == 3
    with pytest.raises(UsageError, match=r"cuda.*cpu"):
        x + Tensor([1.0, 2.0], device="cpu")

"""Optimisers against their formulas in numpy; gradients clipped; what a step leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.tensor import reference_optim as reference
from tests.tensor.reference_optim import Array, Step
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import nn, optim
from uopc.tensor.core import Tensor

pytestmark = pytest.mark.usefixtures("each_device")
SHAPES = ((3, 4), (5,), ())
STEPS = 4
Make = Callable[[Sequence[Tensor]], optim.Optimizer]

CASES: dict[str, tuple[Make, Step]] = {
    "sgd": (lambda p: optim.SGD(p, 0.1), reference.sgd(0.1)),
    "sgd decay": (
        lambda p: optim.SGD(p, 0.1, weight_decay=0.01),
        reference.sgd(0.1, weight_decay=0.01),
    ),
    "sgd momentum": (
        lambda p: optim.SGD(p, 0.1, momentum=0.9),
        reference.sgd(0.1, momentum=0.9),
    ),
    "sgd nesterov": (
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        reference.sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": (optim.Adam, reference.adam()),
    "adam decay": (
        lambda p: optim.Adam(p, 0.01, betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1),
        reference.adam(0.01, (0.5, 0.9), 1e-3, 0.1),
    ),
    "adamw": (optim.AdamW, reference.adam(weight_decay=1e-2, decoupled=True)),
    "adamw decay": (
        lambda p: optim.AdamW(p, 0.05, weight_decay=0.5),
        reference.adam(0.05, weight_decay=0.5, decoupled=True),
    ),
    "rmsprop": (optim.RMSprop, reference.rmsprop()),
    "rmsprop digits": (lambda p: optim.RMSprop(p, 1e-3), reference.rmsprop(1e-3)),
    "rmsprop all": (
        lambda p: optim.RMSprop(p, 0.01, 0.9, 1e-3, 0.1, 0.9, centered=True),
        reference.rmsprop(0.01, 0.9, 1e-3, 0.1, 0.9, centered=True),
    ),
}


def leaves(seed: int = 0, dtype: DType = dtypes.f32) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [Tensor(rng.standard_normal(s), dtype=dtype, requires_grad=True) for s in SHAPES]


def gradients(step: int) -> list[Array]:
    rng = np.random.default_rng(100 + step)
    return [rng.standard_normal(s) * 0.3 for s in SHAPES]


def give(parameters: Sequence[Tensor], arrays: Sequence[Any]) -> None:
    for p, g in zip(parameters, arrays, strict=True):
        p.grad = Tensor(g, dtype=p.dtype, device=p.device)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.bf16], ids=str)
def test_steps_are_the_formulas(name: str, dtype: DType) -> None:
    make, step = CASES[name]
    parameters = leaves(dtype=dtype)
    wanted = [p.numpy().astype(np.float64) for p in parameters]
    states: list[dict[str, Any]] = [{} for _ in wanted]
    optimizer = make(parameters)
    for t in range(1, STEPS + 1):
        give(parameters, gradients(t))
        given = [p.grad.numpy().astype(np.float64) for p in parameters if p.grad is not None]
        if dtype is dtypes.bf16:  # each step starts from what was rounded
            wanted = [p.numpy().astype(np.float64) for p in parameters]
        wanted = [step(p, g, t, s) for p, g, s in zip(wanted, given, states, strict=True)]
        optimizer.step()
        near = {dtypes.f64: 1e-12, dtypes.f32: 5e-6, dtypes.bf16: 2.0**-8}[dtype]
        for p, w in zip(parameters, wanted, strict=True):
            assert p.dtype is dtype
            np.testing.assert_allclose(p.numpy().astype(np.float64), w, rtol=near, atol=near)


def test_a_step_uses_gradients_up_and_leaves_those_without_alone() -> None:
    parameters = leaves()
    before = [p.numpy() for p in parameters]
    optimizer = optim.SGD(parameters, 1.0)
    parameters[1].grad = Tensor(np.ones(5, np.float32))
    optimizer.step()
    assert all(p.grad is None for p in parameters)
    np.testing.assert_array_equal(parameters[0].numpy(), before[0])
    np.testing.assert_array_equal(parameters[1].numpy(), before[1] - 1)
    with pytest.raises(UsageError, match="no parameter has a gradient"):
        optimizer.step()


def test_a_gradient_that_is_kept_keeps_its_value() -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    optimizer = optim.SGD([w], 0.5)
    (w * w * w).sum().backward()
    kept, old = w.grad, w.detach()
    optimizer.step()
    assert kept is not None
    np.testing.assert_allclose(kept.numpy(), [12.0, 27.0])
    np.testing.assert_allclose(old.numpy(), [2.0, 3.0])
    np.testing.assert_allclose(w.numpy(), [-4.0, -10.5])


def test_lr_is_one_tensor_that_takes_numbers() -> None:
    w = Tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], 0.5)
    held = optimizer.lr
    for lr in (0.25, 0.125):
        optimizer.lr = lr
        assert optimizer.lr is held and float(held) == lr
        give([w], [[1.0]])
        before = float(w)
        optimizer.step()
        assert float(w) == before - lr


@pytest.mark.parametrize("beta", [0.5, 0.9, 0.999, 0.99999])
def test_one_minus_a_power_is_near_also_where_the_power_is_near_one(beta: float) -> None:
    t = np.array([1, 2, 3, 10, 1000, 100_000, 10_000_000])
    got = optim._one_minus_power(beta, Tensor(t, dtype=dtypes.f32)).numpy()
    np.testing.assert_allclose(got, -np.expm1(t * np.log(beta)), rtol=1e-6)


def test_the_optimiser_follows_moved_parameters() -> None:
    layer = nn.Linear(3, 2)
    optimizer = optim.Adam(layer.parameters())
    parameters = layer.parameters()
    give(parameters, [np.ones((2, 3)), np.ones(2)])
    layer.to("emulated")
    assert [p.grad.device for p in parameters if p.grad is not None] == ["emulated"] * 2
    before = [p.numpy() for p in parameters]
    optimizer.step()
    assert all(a is b for a, b in zip(layer.parameters(), parameters, strict=True))
    assert optimizer.lr.device == optimizer.steps.device == "emulated"
    for p, b in zip(parameters, before, strict=True):
        assert p.device == "emulated"
        np.testing.assert_allclose(p.numpy(), b - 1e-3, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: optim.SGD([]), "no parameters"),
        (lambda w: optim.SGD([w, w]), "comes twice"),
        (lambda w: optim.SGD([w.detach()]), "requires a gradient"),
        (lambda w: optim.SGD([w], -1.0), "learning rate"),
        (lambda w: optim.SGD([w], nesterov=True), "nesterov"),
        (lambda w: optim.Adam([w], betas=(1.0, 0.9)), "betas"),
    ],
)
def test_wrong_calls(make: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(Tensor([1.0], requires_grad=True))


def test_parameters_on_two_devices(each_device: str) -> None:
    two = [Tensor([1.0], device=d, requires_grad=True) for d in (each_device, "emulated")]
    with pytest.raises(UsageError, match=f"on {each_device} and emulated"):
        optim.SGD(two)


# ---- clipping
def test_clip_by_value() -> None:
    parameters = leaves()
    given = [g * 10 for g in gradients(0)]
    given[0][0, 0] = np.nan
    give(parameters, given)
    optim.clip_grad_value_(parameters, 1)
    for p, g in zip(parameters, given, strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), np.clip(g, -1, 1), rtol=1e-6)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_by_norm(norm_type: float, max_norm: float) -> None:
    parameters, given = leaves(), gradients(0)
    give(parameters, given)
    norm = optim.clip_grad_norm_(parameters, max_norm, norm_type)
    flat = np.concatenate([np.ravel(g) for g in given])
    wanted = np.linalg.norm(flat, norm_type)
    np.testing.assert_allclose(norm.numpy(), wanted, rtol=1e-5)
    factor = min(1.0, max_norm / (wanted + 1e-6))
    for p, g in zip(parameters, given, strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), g * factor, rtol=1e-5)


def test_clipping_nothing() -> None:
    parameters = leaves()
    optim.clip_grad_value_(parameters, 1)
    assert float(optim.clip_grad_norm_(parameters, 1)) == 0
    assert all(p.grad is None for p in parameters)


def test_clip_by_value_then_rmsprop_trains() -> None:
    rng = np.random.default_rng(5)
    x = Tensor(rng.standard_normal((16, 4)), dtype=dtypes.f32)
    y = Tensor(rng.integers(0, 3, 16))
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = optim.RMSprop(net.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        loss = nn.cross_entropy(net(x), y)
        loss.backward()
        optim.clip_grad_value_(net.parameters(), 1)
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.6 * losses[0]

"""Gradients of tensors: leaves, modes, versions, devices, and gradcheck itself."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from uopc.dtype import dtypes
from uopc.errors import GradientError, UsageError
from uopc.tensor import backward
from uopc.tensor.backward import grad
from uopc.tensor.core import Tensor
from uopc.tensor.gradcheck import gradcheck, gradgradcheck
from uopc.tensor.leaves import move
from uopc.tensor.mode import enable_grad, grad_enabled, no_grad
from uopc.uop.numbers import Array

CPU = "cpu"


def leaf(*values: float) -> Tensor:
    return Tensor(list(values), dtypes.f64, CPU, requires_grad=True)


def gradient_of(t: Tensor) -> list[float]:
    assert t.grad is not None
    out: list[float] = t.grad.numpy().tolist()
    return out


# ---- backward
def test_backward_adds_to_the_leaves() -> None:
    x, y = leaf(1, 2, 3), leaf(4, 5, 6)
    h = x * y
    h.sum().backward()
    assert gradient_of(x) == [4, 5, 6] and gradient_of(y) == [1, 2, 3]
    assert h.grad is None and h.requires_grad and not h.is_leaf and x.is_leaf
    (x * 10.0).sum().backward()
    assert gradient_of(x) == [14, 15, 16] and gradient_of(y) == [1, 2, 3]
    x.zero_grad()
    assert x.grad is None
    assert x.grad is None and y.grad is not None and not y.grad.requires_grad


def test_backward_with_a_gradient() -> None:
    x = leaf(1, 2, 3)
    (x * x).backward(Tensor([1.0, 10.0, 100.0], dtypes.f64, CPU))
    assert gradient_of(x) == [2, 40, 600]


def test_backward_of_one_element_of_any_shape() -> None:
    x = leaf(3)
    (x * x).reshape((1, 1)).backward()
    assert gradient_of(x) == [6]


def test_a_leaf_itself() -> None:
    x = Tensor(2.0, dtypes.f64, CPU, requires_grad=True)
    x.backward()
    (x * x).backward()
    assert x.grad is not None and x.grad.shape == () and x.grad.item() == 5


def test_the_graph_stays_when_values_are_read() -> None:
    x = leaf(1, 2)
    h = x.exp()
    h.numpy()
    loss = (h * h).sum()
    loss.item()
    loss.backward()
    np.testing.assert_allclose(gradient_of(x), 2 * np.exp([2.0, 4.0]), 1e-14)


def test_equal_leaves_are_two() -> None:
    a, b = leaf(1, 2), leaf(1, 2)
    (a * b * b).sum().backward()
    assert gradient_of(a) == [1, 4] and gradient_of(b) == [2, 8]


def test_what_backward_refuses() -> None:
    x = leaf(1, 2)
    with pytest.raises(UsageError, match=r"backward at .*shape \(2,\), not of one number"):
        (x * 2.0).backward()
    with pytest.raises(UsageError, match="was not computed from any leaf"):
        Tensor([1.0], dtypes.f64, CPU).backward()
    with pytest.raises(UsageError, match=r"the output is f64 of shape \(2,\)"):
        (x * 2.0).backward(Tensor([1.0], dtypes.f64, CPU))
    with pytest.raises(UsageError, match="on cpu, the gradient given for it on emulated"):
        (x * 2.0).backward(Tensor([1.0, 1.0], dtypes.f64, "emulated"))
    with pytest.raises(UsageError, match="i32 has no gradients"):
        Tensor([1, 2], dtypes.i32, CPU).requires_grad_()


# ---- modes
def test_no_grad() -> None:
    x = leaf(1, 2)
    with no_grad():
        assert not grad_enabled()
        y = x * 2.0
        with enable_grad():
            assert (x * 2.0).requires_grad
        with pytest.raises(ZeroDivisionError), enable_grad():
            raise ZeroDivisionError
        assert not grad_enabled()
    assert grad_enabled() and not y.requires_grad
    (x * y).sum().backward()
    assert gradient_of(x) == [2, 4]


def test_no_grad_on_a_function_and_in_other_threads() -> None:
    @no_grad()
    def double(x: Tensor) -> Tensor:
        return x * 2.0

    x = leaf(1, 2)
    assert not double(x).requires_grad and not double(x).requires_grad and grad_enabled()
    seen: list[bool] = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_detach() -> None:
    x = leaf(1, 2)
    y = x.detach()
    assert not y.requires_grad
    (x * y).sum().backward()
    assert gradient_of(x) == [1, 2]


def test_requires_grad_later() -> None:
    """What was computed before is a constant to it."""
    x = Tensor([1.0, 2.0], dtypes.f64, CPU)
    same, total = x.clone(), x.sum()
    assert x.requires_grad_() is x and x.is_leaf
    (x * same * total).sum().backward()
    assert gradient_of(x) == [3, 6]
    h = (x * 1.0).detach().requires_grad_()
    (h * h).sum().backward()
    assert gradient_of(h) == [2, 4] and gradient_of(x) == [3, 6]


def test_requires_grad_no_more() -> None:
    x = leaf(1, 2)
    loss = (x * x).sum()
    with pytest.raises(UsageError, match="computed tensor"):
        loss.requires_grad_(False)
    x.requires_grad = False
    assert not (x * 2.0).requires_grad and x.numpy().tolist() == [1, 2]
    y = leaf(3, 4)
    ((x * y).sum() + loss).backward()
    assert x.grad is None and gradient_of(y) == [1, 2]
    x.requires_grad = True
    (x * x).sum().backward()
    assert gradient_of(x) == [2, 4]


# ---- versions
def test_a_graph_on_an_older_version() -> None:
    x = leaf(1, 2)
    loss = (x * x).sum()
    with no_grad():
        x.assign(x * 10.0)
    assert x.is_leaf and x.requires_grad
    loss.backward()
    assert gradient_of(x) == [2, 4]
    (x * x).sum().backward()
    assert gradient_of(x) == [22, 44]
    assert x.numpy().tolist() == [10, 20]


def test_grad_by_a_leaf_that_has_a_newer_version() -> None:
    x = leaf(1, 2)
    square = (x * x).sum()
    with no_grad():
        x.assign(x + 1.0)
    both = square + x.sum()
    (g,) = grad(both, x)
    assert g.numpy().tolist() == [3, 5]


def test_training_goes_on_after_a_step() -> None:
    x = leaf(1.0, -2.0)
    for _ in range(50):
        x.zero_grad()
        (x * x).sum().backward()
        with no_grad():
            assert x.grad is not None
            x.assign(x - x.grad * 0.1)
        x.realize()
    np.testing.assert_allclose(x.numpy(), np.array([1.0, -2.0]) * 0.8**50, 1e-12)


def test_tables_forget() -> None:
    gc.collect()
    before = len(backward._leaves), len(backward._copies)
    x = leaf(1, 2)
    loss = (x.to("emulated") * x.to("emulated")).sum()
    loss.backward()
    assert len(backward._leaves) == before[0] + 1 and len(backward._copies) == before[1] + 2
    del x, loss
    gc.collect()
    assert (len(backward._leaves), len(backward._copies)) == before


def test_a_leaf_that_is_gone() -> None:
    x = leaf(1, 2)
    loss = (x * leaf(3, 4)).sum()
    loss.backward()
    assert gradient_of(x) == [3, 4]


# ---- grad
def test_grad_by_leaves_and_by_results() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    h = x * y
    loss = (h * h).sum()
    by_h, by_x = grad(loss, [h, x])
    assert by_h.numpy().tolist() == [6, 16] and by_x.numpy().tolist() == [18, 64]
    assert x.grad is None
    ones = Tensor([1.0, 1.0], dtypes.f64, CPU)
    (g,) = grad([loss, h], [x], [None, ones])
    assert g.numpy().tolist() == [21, 68]


def test_grad_of_what_is_not_used() -> None:
    x, y = leaf(1, 2), leaf(3, 4)
    with pytest.raises(UsageError, match=r"grad at .*no output depends on input 1"):
        grad(x.sum(), [x, y])
    assert grad(x.sum(), [x, y], allow_unused=True)[1] is None
    with pytest.raises(UsageError, match="1 outputs, 2 grad_outputs"):
        grad(x.sum(), x, [None, None])


def test_grad_of_grad() -> None:
    x = leaf(1, 2)
    (g,) = grad((x * x * x).sum(), x)
    assert g.requires_grad and not g.is_leaf
    (h,) = grad(g.sum(), x)
    assert h.numpy().tolist() == [6, 12]
    g.sum().backward()
    assert gradient_of(x) == [6, 12]
    (straight,) = grad((x * 3.0).sum(), x)
    assert not straight.requires_grad
    loss = (x * x * x).sum()
    with no_grad():
        (g,) = grad(loss, x)
    assert not g.requires_grad


def test_a_penalty_on_the_gradient() -> None:
    """As in training with a term that holds the size of the gradient."""
    x = Tensor([0.5, -1.0], dtypes.f64, CPU)
    w = leaf(1, 2)
    x.requires_grad_()
    (g,) = grad((x * w).tanh().sum(), x)
    (g * g).sum().backward()
    a, v = np.array([0.5, -1.0]), np.array([1.0, 2.0])
    s = 1 - np.tanh(a * v) ** 2
    np.testing.assert_allclose(
        gradient_of(w), 2 * v * s * (s - 2 * v * s * a * np.tanh(a * v)), 1e-12
    )


# ---- devices
def test_gradients_cross_devices() -> None:
    x = leaf(1, 2)
    there = (x * x).to("emulated")
    (there * 3.0).sum().backward()
    assert x.grad is not None and x.grad.device == CPU
    assert gradient_of(x) == [6, 12]


def test_there_and_back_and_by_two_ways() -> None:
    x = leaf(1, 2)
    first = (x * x).to("emulated")
    second = ((first * 2.0).to(CPU) * x).to("emulated")
    loss = (second * first).sum()
    (g,) = grad(loss, x)  # 2 x^5
    assert g.device == CPU and g.numpy().tolist() == [10, 160]
    by_first, by_second = grad(loss, [first, second])
    assert by_second.device == "emulated" and by_second.numpy().tolist() == [1, 4]
    assert by_first.numpy().tolist() == [2 + 2 * 1, 16 + 2 * 2 * 4]
    (h,) = grad(g.sum(), x)
    assert h.numpy().tolist() == [40, 320]


def test_a_copy_without_history() -> None:
    x = leaf(1, 2)
    with no_grad():
        y = x.to("emulated")
    assert not y.requires_grad and not x.detach().to("emulated").requires_grad


def test_a_leaf_that_has_moved() -> None:
    """A graph from before the move is where the leaf was."""
    x = leaf(1, 2)
    before = (x * x).sum()
    move(x, "emulated")
    assert x.is_leaf and x.device == "emulated"
    before.backward()
    (x * x * x).sum().backward()
    assert x.grad is not None and x.grad.device == "emulated" and gradient_of(x) == [5, 16]
    (g,) = grad(before, x)
    assert g.device == "emulated" and g.numpy().tolist() == [2, 4]


# ---- gradcheck
def sample(seed: int, *shape: int) -> Tensor:
    values: Array = np.random.default_rng(seed).uniform(0.3, 1.7, shape)
    return Tensor(values, dtypes.f64, CPU, requires_grad=True)


def test_gradcheck_of_what_is_right() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [(x * y).sin(), (x / y).sum()]

    assert gradcheck(f, [sample(0, 2, 2), sample(1, 2)])
    assert gradgradcheck(f, [sample(0, 2, 2), sample(1, 2)])
    x = sample(0, 3)
    assert gradcheck(lambda a, b: a * b, [x, x])
    assert gradgradcheck(lambda a: a * 2.0, x)


def test_gradcheck_names_the_worst_element() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x * y + x.detach() * Tensor([0.001, 5.0, 0.001], dtypes.f64, CPU)

    with pytest.raises(
        GradientError,
        match=r"3 of 18 derivatives are off. The worst: output 0 at \(1,\) by input 0 at \(1,\): "
        r"backward gives 1\.\d+, central differences 6\.\d+",
    ):
        gradcheck(f, [sample(0, 3), sample(1, 3)], atol=1e-6, rtol=1e-6)


def test_gradcheck_wants_f64() -> None:
    x = Tensor([1.0], dtypes.f32, CPU, requires_grad=True)
    with pytest.raises(UsageError, match="input 0 is f32"):
        gradcheck(lambda t: t * t, x)
    with pytest.raises(UsageError, match="no input requires"):
        gradcheck(lambda t: t * t, x.detach())

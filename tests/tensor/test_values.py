"""A tensor's value stays what it is, whatever happens to memories.

The least programs of faults that random ones have found (`test_random_programs.py`).
"""

from __future__ import annotations

import numpy as np
import pytest

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.tensor import Tensor, full, grad, no_grad, realize, storage, zeros
from uopc.tensor.random import dropout

pytestmark = pytest.mark.usefixtures("each_device")


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


# ---- equal graphs are one node
def test_an_equal_graph_after_an_update_in_place() -> None:
    x, w = numbers(1, 2), numbers(1, 1).requires_grad_()
    y = x * 2.0
    z = (y * w).sum()  # keeps the graph
    realize(y, z)
    y += 1.0
    assert y.tolist() == [3, 5] and (x * 2.0).tolist() == [2, 4]
    z.backward()
    assert w.grad is not None and w.grad.tolist() == [2, 4]


def test_what_was_built_on_a_value_before_it_was_computed() -> None:
    x = numbers(1, 2)
    y = x * 2.0
    z = y + 3.0  # names the node that y's memory stands for from now on
    y.realize()
    y += 1.0
    assert y.tolist() == [3, 5] and z.tolist() == [5, 7]


def test_constants_are_of_their_device() -> None:
    held = zeros(3, device="cpu")  # keeps the graph of every zeros(3)
    assert (zeros(3, device="cpu").realize() + held).tolist() == [0, 0, 0]
    other = zeros(3, device="emulated").realize()
    buffer = storage.located(other._u)
    assert buffer is not None and storage.memory(buffer).device == "emulated"


def test_constants_that_are_computed_are_tensors_of_their_own() -> None:
    a, b = full((2,), 1.5).realize(), full((2,), 1.5).realize()
    a += 1.0
    realize(a)
    assert (a.tolist(), b.tolist(), full((2,), 1.5).tolist()) == ([2.5] * 2, [1.5] * 2, [1.5] * 2)


def test_small_schedules_do_not_hold_the_first_tensors() -> None:
    """Leaves of schedules are numbered from 0, memories of tensors from far above."""
    x = Tensor(np.zeros(5, np.float32))
    (x + 1.0).realize()
    assert x._u.arg.slot >= 1_000_000


def test_an_empty_part_of_memory_that_is_overwritten() -> None:
    x = numbers(1, 2, 3)
    x += 1.0
    part = x[::-1][:0]
    x.assign(-1.0)
    assert x.tolist() == [-1] * 3 and part.tolist() == []
    assert part.expand(2, 0).sum().tolist() == 0  # for which what was overwritten is not needed


# ---- a tensor of one's own
def test_what_changes_nothing_gives_another_tensor() -> None:
    x = Tensor([1, 2], dtype=dtypes.u8)
    made = [x.abs(), +x, x.round(), x.floor(), x.clamp(), x.contiguous(), x.cast(dtypes.u8)]
    made += [x.reshape(2), x[...], x.clone(), x.detach(), x.permute(0)]
    for y in made:
        y += 1
    assert x.tolist() == [1, 2] and all(y.tolist() == [2, 3] for y in made)
    z = numbers(1, 2)
    w = dropout(z, 0)
    w += 1.0
    assert z.tolist() == [1, 2]


# ---- gradients
def test_a_detached_leaf_stays_detached_when_it_is_computed() -> None:
    x = numbers(2, 3).requires_grad_().realize()
    y = x.detach()
    assert y.reshape(2, 1).realize().tolist() == [[2], [3]]
    y.realize()
    (g,) = grad((x * y).sum(), x)
    assert g.tolist() == [2, 3] and not y.requires_grad
    y += 1.0
    assert x.tolist() == [2, 3]


def test_a_detached_leaf_that_is_computed_before_the_leaf() -> None:
    """The leaf's memory is then what the detached value stands for."""
    x = Tensor(np.float32(1), requires_grad=True)
    with no_grad():
        x[...] = 2.0
    y = x.detach()
    y.realize()
    x.realize()
    (g,) = grad(x * 3.0 - y, x)
    assert g.item() == 3


@pytest.mark.parametrize("computed", [False, True])
def test_ties_do_not_depend_on_what_is_computed(computed: bool) -> None:
    x = numbers(1, 3).requires_grad_()
    for limit in (full((2,), 3.0), full((), 3.0)):
        if computed:
            limit.realize()
        (g,) = grad(x.maximum(limit).sum(), x)
        assert g.tolist() == [0, 0.5]
    (g,) = grad(x[1].minimum(full((), 3.0)), x)
    assert g.tolist() == [0, 0.5]


def test_rounded_values_require_no_gradient() -> None:
    x = numbers(1.5).requires_grad_()
    made = [x.floor(), x.ceil(), x.trunc(), x.round(), x.sign(), x // 1.0]
    assert not any(y.requires_grad for y in made)
    with no_grad():
        x[...] = x
    assert x.requires_grad and x.is_leaf


def test_a_backward_pass_after_the_update_says_so() -> None:
    x = numbers(1, 2).requires_grad_()
    y = x * x
    with no_grad():
        x += 1.0
    x.realize()
    y.sum().backward()
    assert x.grad is not None
    with pytest.raises(UsageError, match="a backward pass too, must come before the update"):
        x.grad.numpy()

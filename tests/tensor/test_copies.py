"""copy, pickle and format: of values."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tensor.meaning import COMPUTED
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import Tensor, maximum, minimum, nn, no_grad, optim, zeros

pytestmark = pytest.mark.usefixtures("each_device")


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


# ---- copy
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_tensor_of_its_own(copied: object) -> None:
    x = numbers(1, 2).requires_grad_()
    (x * x).sum().backward()
    y = copied(x)  # type: ignore[operator]  # both are functions
    assert y.requires_grad and y.is_leaf and y.grad.tolist() == [2, 4]
    with no_grad():
        x += 1.0
    x.realize()
    (y * 3.0).sum().backward()
    assert y.tolist() == [1, 2] and y.grad.tolist() == [5, 7]
    assert x.grad is not None and x.grad.tolist() == [2, 4]


def test_a_copied_module_learns_alone() -> None:
    net = nn.Linear(2, 2)
    other = copy.deepcopy(net)
    before = net.weight.tolist()
    optimizer = optim.SGD(other.parameters(), lr=0.1)
    other(numbers(1, 2)).sum().backward()
    optimizer.step()
    assert net.weight.tolist() == before != other.weight.tolist() and net.weight.grad is None


def test_a_computed_tensor_is_not_copied_with_its_history() -> None:
    y = numbers(1).requires_grad_() * 2.0
    for function in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(UsageError, match="was computed from leaves"):
            function(y)
    assert copy.copy(y.detach()).tolist() == [2]


# ---- pickle
@pytest.mark.parametrize("dtype", [*COMPUTED, dtypes.f8e4m3, dtypes.f8e5m2], ids=str)
def test_pickled(dtype: DType) -> None:
    x = Tensor(np.arange(6).reshape(2, 3), dtype=dtype).T
    y = pickle.loads(pickle.dumps(x))
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    assert pickle.loads(pickle.dumps(zeros(0, 2))).shape == (0, 2)


def test_pickled_in_another_process(each_device: str, tmp_path: Path) -> None:
    """A memory's number means nothing there."""
    file = tmp_path / "x"
    file.write_bytes(pickle.dumps(numbers(1, 2)))
    code = (
        "import pickle, sys; from uopc.tensor import Tensor\n"
        f"first = Tensor([5.0, 6.0], device={each_device!r})\n"
        "print(pickle.load(open(sys.argv[1], 'rb')).tolist(), first.tolist())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[1.0, 2.0] [5.0, 6.0]"


def test_training_goes_on_from_a_pickle() -> None:
    net = nn.Linear(2, 2)
    optimizer = optim.Adam(net.parameters())
    pairs = [(net, optimizer), pickle.loads(pickle.dumps((net, optimizer)))]
    assert pairs[1][1].parameters[0] is pairs[1][0].weight
    for module, steps in pairs:
        for _ in range(2):
            module(numbers(1, 2)).sum().backward()
            steps.step()
    assert pairs[0][0].weight.tolist() == pairs[1][0].weight.tolist()


# ---- format, and operands that are none
def test_format() -> None:
    x = numbers(2.5)
    assert f"{x:.3f} {x.sum():>5.1f} {Tensor(7):03d}" == "2.500   2.5 007"
    assert f"{numbers(1, 2)}" == repr(numbers(1, 2))
    with pytest.raises(UsageError, match=r"wants one element, shape \(2,\) has 2"):
        f"{numbers(1, 2):.3f}"
    with pytest.raises(UsageError, match=r"shape \(0,\) has 0"):
        zeros(0).item()


def test_lists_of_tensors_are_stacked_not_read() -> None:
    with pytest.raises(UsageError, match="stack"):
        Tensor([numbers(1), numbers(2)])


def test_products_with_arrays_say_what_to_do() -> None:
    x, a = numbers(1, 2), np.ones(2, np.float32)
    for product in (lambda: x @ a, lambda: a @ x, lambda: x.dot(a), lambda: x.outer(a)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"wants a Tensor, got ndarray. Make it one"):
            product()
    with pytest.raises(UsageError, match="wants a Tensor, got list"):
        x.gather(0, [0])  # type: ignore[arg-type]


def test_larger_and_smaller_take_a_number_on_either_side() -> None:
    x = numbers(1, 3)
    assert maximum(2.0, x).tolist() == [2, 3] and minimum(x, 2.0).tolist() == [1, 2]
    with pytest.raises(UsageError, match="at least one operand must be a Tensor"):
        maximum(1.0, 2.0)

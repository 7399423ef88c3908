"""Tensors to Python and numpy and back, versions of their values, and devices."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from tests.helpers import assert_same
from uopc import Tensor as FromRoot
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.runtime.buffer import memory_stats
from uopc.tensor import Tensor, arange, empty, full, no_grad, realize, storage, zeros


def tensor(data: Any, **options: Any) -> Tensor:
    return Tensor(data, device="cpu", **options)


def test_the_package_has_it() -> None:
    assert FromRoot is Tensor


# ---- lazy
def test_nothing_runs_until_it_is_asked_for() -> None:
    x = tensor([1.0, 2.0]) + 1
    assert storage.located(x._u) is None and "not computed yet" in repr(x)
    assert x.realize() is x and storage.located(x._u) is not None
    assert repr(x) == "Tensor([2., 3.], dtype=f32, device=cpu)"


def test_what_is_realised_is_not_computed_again() -> None:
    a = tensor([1.0, 2.0])
    x, y = a * 3, a * 3  # the same node
    realize(x)
    assert y.numpy().tolist() == [3, 6]
    assert storage.located(y._u) is storage.located(x._u)


def test_several_at_once() -> None:
    a = tensor([3.0, 4.0])
    x, y = a.square(), a.sum()
    realize(x, y, a)
    assert (x.tolist(), y.item()) == ([9, 16], 7)


def test_memory_is_given_back() -> None:
    x = tensor(np.zeros(1000))
    buffer = weakref.ref(storage.memory(x._u))
    y = x + 1
    y.realize()
    del x, y
    gc.collect()
    assert buffer() is None
    before = memory_stats("cpu").in_use_bytes
    z = tensor(np.zeros(5000, np.float32))
    assert memory_stats("cpu").in_use_bytes >= before + 20000
    del z
    gc.collect()
    assert memory_stats("cpu").in_use_bytes <= before


# ---- to Python
@pytest.mark.parametrize(
    ("value", "dtype", "kind"),
    [(2.5, dtypes.f32, float), (2.5, dtypes.bf16, float), (7, dtypes.u64, int), (True, None, bool)],
)
def test_item(value: Any, dtype: Any, kind: type) -> None:
    for shape in ((), (1,), (1, 1)):
        got = full(shape, value, dtype, device="cpu").reshape(shape).item()
        assert got == value and type(got) is kind
    assert type(tensor(value).tolist()) is kind


def test_one_element_is_a_number() -> None:
    x = tensor([[2.75]])
    assert (int(x), float(x), bool(x)) == (2, 2.75, True)
    assert list(range(tensor(3))) == [0, 1, 2] and [5, 6][tensor(1)] == 6
    with pytest.raises(UsageError, match=r"of which element\? Use \.any"):
        bool(tensor([1, 2]))
    with pytest.raises(UsageError, match="wants one element"):
        tensor([1, 2]).item()
    with pytest.raises(UsageError, match="wants one element"):
        tensor([]).item()
    with pytest.raises(TypeError, match="only an integer without axes"):
        [1, 2][tensor([1])]


def test_length_and_parts() -> None:
    x = tensor([[1, 2], [3, 4], [5, 6]])
    assert len(x) == 3 and [p.tolist() for p in x] == [[1, 2], [3, 4], [5, 6]]
    a, b = tensor([7.0, 8.0])
    assert (a.shape, a.item(), b.item()) == ((), 7, 8)
    with pytest.raises(TypeError, match="no len"):
        len(tensor(1))
    with pytest.raises(TypeError, match="not iterable"):
        iter(tensor(1)).__next__()


def test_properties() -> None:
    x = zeros(2, 0, 3, dtype=dtypes.i8, device="cpu")
    assert (x.shape, x.ndim, x.size, x.dtype, x.device) == ((2, 0, 3), 3, 0, dtypes.i8, "cpu")
    assert x.tolist() == [[], []] and not x.requires_grad and x.is_leaf


def test_large_ones_print_their_shape() -> None:
    x = zeros(2000, device="cpu").realize()
    assert repr(x) == "Tensor(shape=(2000,), dtype=f32, device=cpu)"
    assert "requires_grad=True" in repr(tensor([1.0], requires_grad=True))
    assert "not computed yet" in repr(empty(2, device="cpu"))


def test_tensors_are_keys_by_identity() -> None:
    a, b = tensor([1]), tensor([1])
    assert {a: 1, b: 2}[a] == 1 and len({a, b}) == 2


# ---- numpy
def test_numpy_gives_a_copy() -> None:
    x = tensor([1.0, 2.0])
    array = x.numpy()
    array[0] = 9
    assert x.tolist() == [1, 2]
    del x
    gc.collect()
    assert array.tolist() == [9, 2]


def test_the_array_protocol() -> None:
    x = tensor([1.5, 2.5])
    assert_same(np.asarray(x), np.array([1.5, 2.5], np.float32))
    assert np.asarray(x, np.int64).tolist() == [1, 2]
    assert np.array(x, copy=True).tolist() == [1.5, 2.5]
    assert float(np.max(np.asarray(x))) == 2.5
    with pytest.raises(ValueError, match="copy=False"):
        np.array(x, copy=False)


def test_views_arrive_in_order() -> None:
    x = arange(6, device="cpu").reshape(2, 3).permute(1, 0)
    assert_same(x.numpy(), np.arange(6, dtype=np.int32).reshape(2, 3).T.copy())


# ---- versions
def test_assign() -> None:
    x = tensor([1.0, 2.0])
    view, later = x.reshape(2, 1), x * 10
    assert x.assign(5) is x and x.tolist() == [5, 5]
    assert view.tolist() == [[1], [2]] and later.tolist() == [10, 20]
    x.assign(tensor([7.0, 8.0], dtype=dtypes.f64))
    assert x.tolist() == [7, 8] and x.dtype is dtypes.f32
    x.assign(x + x)
    x.assign(x + 1)
    assert x.tolist() == [15, 17]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
def test_assign_to_any_shape(shape: tuple[int, ...]) -> None:
    x = zeros(shape, device="cpu")
    for _ in range(3):
        x.assign(x + 1)
    assert_same(x.numpy(), np.full(shape, 3, np.float32))
    x = tensor(np.zeros(shape, np.float32))
    for n in range(3):
        x += n
        x.realize()
    assert_same(x.numpy(), np.full(shape, 3, np.float32))


def test_a_swap() -> None:
    u, v = tensor([1, 2]), tensor([3, 4])
    old = u.clone()
    u.assign(v)
    v.assign(old)
    realize(u, v)
    assert (u.tolist(), v.tolist()) == ([3, 4], [1, 2])


def test_assignments_that_are_none() -> None:
    x = tensor([1, 2])
    with pytest.raises(UsageError, match="f32 does not go into i32"):
        x.assign(tensor([1.5, 2.5]))
    with pytest.raises(UsageError, match=r"1\.5 is not a whole number"):
        x.assign(1.5)
    with pytest.raises(UsageError, match=r"assign at test_core.py.*\(3,\)"):
        x.assign(tensor([1, 2, 3]))
    with pytest.raises(UsageError, match=r"shape \(2, 2\) does not fit into shape \(2,\)"):
        x.assign(tensor([[1, 2], [3, 4]]))
    with pytest.raises(UsageError, match=r"lives on cpu, the value on emulated"):
        x.assign(Tensor([1, 2], device="emulated"))


def test_a_leaf_keeps_its_history() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(UsageError, match="Assign inside `with no_grad"):
        x += 1
    with no_grad():
        x += 1
    assert x.is_leaf and x.requires_grad and x.tolist() == [2, 3]
    x.square().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 6]


def test_what_is_no_leaf_may_be_assigned() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y += x
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 4]
    z = tensor([0.0, 0.0])
    z.assign(x * 2)
    assert z.requires_grad and not z.is_leaf
    z.assign(1)
    assert not z.requires_grad


def test_detach_and_clone() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    assert not x.detach().requires_grad and x.detach().tolist() == [1, 2]
    assert x.clone().requires_grad and not x.clone().is_leaf
    with no_grad():
        assert not (x * 2).requires_grad
    assert not (x > 1).requires_grad and not x.cast(dtypes.i32).requires_grad
    assert x.contiguous().tolist() == [1, 2]


# ---- devices
def test_moves() -> None:
    x = tensor(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert x.to("cpu") is x and x.cpu() is x
    y = x.permute(1, 0).to("emulated")
    assert (y.device, y.shape) == ("emulated", (3, 2))
    assert (y + 1).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (y + 1).cpu().device == "cpu"
    assert zeros(0, 2, device="cpu").to("emulated").tolist() == []
    assert tensor(4.0).to("emulated").item() == 4
    with pytest.raises(UsageError, match="no device is called 'abacus'"):
        x.to("abacus")


def test_gradients_come_back_over_devices() -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    moved = (x * 2).to("emulated")
    assert moved.requires_grad and not moved.is_leaf
    moved.square().sum().backward()
    assert x.grad is not None and x.grad.device == "cpu" and x.grad.tolist() == [8, 16]
    with no_grad():
        assert not x.to("emulated").requires_grad


def test_nodes_carry_the_line_of_the_call() -> None:
    x = tensor([0.5])
    y = x.sigmoid() + 1
    line = test_nodes_carry_the_line_of_the_call.__code__.co_firstlineno + 2
    assert (__file__, line) in y._u.origins
    assert any(u.op.name == "EXP" and (__file__, line) in u.origins for u in y._u.toposort())

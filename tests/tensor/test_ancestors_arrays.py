"""What two older array frameworks with CUDA could do, row by row, found again here.

The first: one device interface with a GPU, a host emulation and a stub; the second: a network on
the digits, optimised step by step.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.device import why_no_gpu
from uopc.dtype import dtypes
from uopc.errors import DeviceError, UsageError
from uopc.runtime.buffer import empty_cache, memory_stats, synchronize
from uopc.tensor import Tensor, arange, manual_seed, nn, optim, rand, randn, zeros
from uopc.tensor.engine import schedule_of

BOTH = ("cpu", "emulated")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- the first framework: devices
def test_operands_live_on_one_device() -> None:
    a, b = Tensor([1.0], device="cpu"), Tensor([1.0], device="emulated")
    with pytest.raises(UsageError, match=r"cpu.*emulated"):
        a + b
    assert a.to("cpu") is a
    assert (a + b.to("cpu")).device == "cpu"


def test_a_view_lives_where_its_source_does_and_is_gathered_there() -> None:
    x = numbers(6, 5)
    view = Tensor(x, device="emulated").T[1:4, ::2]
    assert view.device == "emulated"
    assert np.array_equal(view.to("cpu").numpy(), x.T[1:4, ::2])


@pytest.mark.skipif(not why_no_gpu(), reason="this machine has a GPU")
def test_a_missing_device_says_what_is_missing() -> None:
    with pytest.raises(DeviceError, match=r"driver|cuda"):
        Tensor([1.0], device="cuda")


@pytest.mark.gpu
def test_the_host_sees_device_memory_only_when_asked() -> None:
    x = Tensor([1.0, 2.0], device="cuda")
    with pytest.raises(UsageError, match=r"\.numpy\(\)"):
        np.asarray(x)
    assert x.sum().item() == 3.0 and x.numpy().tolist() == [1.0, 2.0]


def test_a_module_that_moves_keeps_every_handle() -> None:
    layer = nn.Linear(3, 2, device="cpu")
    optimizer = optim.SGD(layer.parameters(), lr=0.5)
    before = [id(p) for p in layer.parameters()]
    layer(Tensor(numbers(4, 3), device="cpu")).sum().backward()
    gradients = [p.grad.numpy() for p in layer.parameters() if p.grad is not None]
    layer.to("emulated")
    assert [id(p) for p in layer.parameters()] == before
    for p, g in zip(layer.parameters(), gradients, strict=True):
        assert p.device == "emulated" and p.grad is not None and p.grad.device == "emulated"
        assert np.array_equal(p.grad.numpy(), g)
    want = [p.numpy() - 0.5 * g for p, g in zip(layer.parameters(), gradients, strict=True)]
    optimizer.step()
    for p, w in zip(layer.parameters(), want, strict=True):
        assert np.allclose(p.numpy(), w)


def test_gradients_cross_back_to_the_device_of_their_leaf() -> None:
    leaf = Tensor(numbers(3), device="cpu", requires_grad=True)
    (leaf.to("emulated") * 3.0).sum().backward()
    assert leaf.grad is not None and leaf.grad.device == "cpu"
    assert leaf.grad.numpy().tolist() == [3.0] * 3


def test_numbers_follow_the_device_and_integers_travel_exactly() -> None:
    big = 2**53 + 1
    for device in BOTH:
        x = Tensor([big, -big], dtype=dtypes.i64, device=device)
        assert (x + 1).device == device
        assert (x + 1).tolist() == [big + 1, 1 - big]
        assert x.clamp(-big + 1, big - 1).tolist() == [big - 1, 1 - big]


def test_one_seed_draws_the_same_on_every_device() -> None:
    drawn = []
    for device in BOTH:
        manual_seed(11)
        drawn.append((rand(100, device=device).numpy(), randn(33, device=device).numpy()))
    assert np.array_equal(drawn[0][0], drawn[1][0])
    assert np.allclose(drawn[0][1], drawn[1][1], atol=1e-6)


@pytest.mark.parametrize("device", BOTH)
def test_sums_have_the_same_bits_every_time(device: str) -> None:
    x = Tensor(numbers(100_003), device=device)
    first = (x * 1.0).sum().numpy().tobytes()
    assert all((x * 1.0).sum().numpy().tobytes() == first for _ in range(3))


SIZES = (
    *((1, 1, 1), (4, 4, 4), (5, 3, 9), (8, 16, 7)),
    *((33, 20, 65), (64, 1, 64), (1, 64, 1)),
)


@pytest.mark.parametrize("device", BOTH)
def test_products_of_clipped_tiles(device: str) -> None:
    for m, k, n in SIZES:
        a, b = numbers(m, k), numbers(k, n, seed=1)
        got = (Tensor(a, device=device) @ Tensor(b, device=device)).numpy()
        assert np.allclose(got, a.astype(np.float64) @ b, atol=1e-4)
    i = np.arange(12).reshape(3, 4) * 10**12
    got = (Tensor(i, device=device) @ Tensor(i.T.copy(), device=device)).numpy()
    assert got.dtype == np.int64 and np.array_equal(got, i @ i.T)


@pytest.mark.parametrize("device", BOTH)
def test_gather_and_scatter(device: str) -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device)
    index = Tensor(np.array([[0, 0, 1], [1, 2, 2]]), device=device)
    assert x.gather(0, index).tolist() == [[0.0, 1.0, 5.0], [3.0, 7.0, 8.0]]
    repeated = Tensor(np.array([1, 1, 1, 0]), device=device)
    sums = zeros(2, 3, device=device).index_add(0, repeated, x)
    assert sums.tolist() == [[9.0, 10.0, 11.0], [9.0, 12.0, 15.0]]
    stray = zeros(2, 3, device=device).index_add(
        0, Tensor(np.array([0, 7, 0, 0]), device=device), x
    )
    with pytest.raises(IndexError, match="7 is out of range"):
        stray.numpy()


def test_twenty_million_elements() -> None:
    x = arange(20_000_000, dtype=dtypes.i64, device="cpu")
    assert x.sum().item() == 20_000_000 * 19_999_999 // 2
    assert (x % 1000 == 7).sum().item() == 20_000


def test_any_rank() -> None:
    x = Tensor(np.arange(512).reshape((2,) * 9), device="cpu")
    order = (8, 0, 7, 1, 6, 2, 5, 3, 4)
    assert np.array_equal((x.permute(*order) + 1).numpy(), x.numpy().transpose(order) + 1)


def test_memory_is_counted_and_given_back() -> None:
    synchronize("cpu")
    before = memory_stats("cpu").in_use_bytes
    x = (Tensor(numbers(1000, 1000), device="cpu") + 1.0).realize()
    assert memory_stats("cpu").in_use_bytes >= before + 4_000_000
    del x
    assert memory_stats("cpu").in_use_bytes <= before + 100_000
    empty_cache("cpu")
    assert memory_stats("cpu").reserved_bytes >= memory_stats("cpu").in_use_bytes


# ---- the second framework: its steps, as kernels that are not there
def names(*tensors: Tensor) -> list[str]:
    return [k.name for k in schedule_of(*tensors).launches]


def test_a_transposed_operand_is_not_copied() -> None:
    a, b = Tensor(numbers(40, 70), device="emulated"), Tensor(numbers(50, 70), device="emulated")
    assert len(names(a @ b.T)) == 1
    assert len(names(a.T @ Tensor(numbers(40, 9), device="emulated"))) == 1


def test_a_batch_of_rows_is_gathered_inside_the_product() -> None:
    x, w = Tensor(numbers(1000, 64), device="emulated"), Tensor(numbers(64, 8), device="emulated")
    rows = Tensor(np.arange(0, 1000, 31), device="emulated")
    assert len(names((x[rows] @ w).relu())) == 1


def test_a_batch_of_products_is_one_launch() -> None:
    a = Tensor(numbers(16, 33, 20), device="emulated")
    assert len(names(a @ a.transpose())) == 1


def test_clipping_and_the_update_are_part_of_the_gradient_s_kernel() -> None:
    layer = nn.Linear(30, 20, bias=False, device="emulated")
    (weight,) = layer.parameters()
    x = Tensor(numbers(64, 30), device="emulated")
    layer(x).square().sum().backward()
    optim.clip_grad_value_([weight], 1.0)
    assert weight.grad is not None
    updated = weight.detach() - weight.grad * 0.1
    made = schedule_of(updated)
    assert len(made.launches) == 2  # the product forward, and its gradient with clip and update


def test_parameters_are_drawn_on_their_device() -> None:
    for device, seed in itertools.product(BOTH, (0, 1)):
        manual_seed(seed)
        assert nn.Linear(5, 5, device=device).weight.device == device

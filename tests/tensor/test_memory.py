"""Memory comes back: of tensors, of what stood between kernels, of failures."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from uopc.dtype import DType
from uopc.errors import OutOfRangeError, UsageError
from uopc.runtime.buffer import Buffer
from uopc.runtime.cuda import OutOfMemoryError
from uopc.tensor import (
    Tensor,
    empty_cache,
    grad,
    jit,
    memory_stats,
    nn,
    optim,
    prepare,
    rand,
    reset_peak,
    synchronize,
)

pytestmark = [pytest.mark.usefixtures("each_device"), pytest.mark.uninstrumented]


def train() -> None:
    net = nn.Sequential(nn.Linear(30, 20), nn.Dropout(0.5), nn.Linear(20, 10))
    optimizer = optim.Adam(net.parameters())
    labels = Tensor(np.arange(8) % 10)
    for _ in range(3):
        nn.cross_entropy(net(rand(8, 30)), labels).backward()
        optimizer.step()


def train_captured() -> None:
    net = nn.Linear(30, 10)
    optimizer = optim.SGD(net.parameters(), momentum=0.5)

    @jit
    def step(x: Tensor) -> Tensor:
        loss: Tensor = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    kept = [step(rand(8, 30)) for _ in range(5)]
    assert len({loss.item() for loss in kept}) == 5


def differentiate_twice() -> None:
    x = Tensor(np.ones(100, np.float32), requires_grad=True)
    (g,) = grad((x * x * x).sum(), x)
    g.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6] * 100


def go_on_after_errors() -> None:
    x = Tensor(np.zeros(1000, np.float32))
    with pytest.raises(OutOfRangeError):
        (x[Tensor(np.array([5000]))] + x).numpy()
    with pytest.raises(UsageError):
        x + Tensor(np.zeros(3, np.float32))
    x += 1.0
    assert x.numpy().sum() == 1000


def hold_views() -> None:
    x = Tensor(np.zeros((100, 10), np.float32))
    part, turned = x[10:20], x.T
    x += 1.0
    del x
    assert part.numpy().sum() == turned.numpy().sum() == 0


#: bytes: a launch over many arrays keeps tables of their addresses, for the sets that came last
TABLES = 4096


@pytest.mark.parametrize(
    "work", [train, train_captured, differentiate_twice, go_on_after_errors, hold_views]
)
def test_nothing_is_left(work: Callable[[], None]) -> None:
    def used() -> int:
        gc.collect()
        empty_cache()
        return memory_stats().in_use_bytes

    work()  # what is kept for good, such as counters of random numbers
    before = used()
    work()
    assert used() - before <= TABLES


def test_statistics() -> None:
    gc.collect()
    reset_peak()
    before = memory_stats()
    x = Tensor(np.zeros(1 << 20, np.float32))
    assert memory_stats().in_use_bytes == before.in_use_bytes + (4 << 20)
    del x
    synchronize()
    after = memory_stats()
    assert after.in_use_bytes == before.in_use_bytes
    assert after.peak_bytes == before.peak_bytes + (4 << 20)


def test_a_larger_arena_replaces_the_smaller_one() -> None:
    gc.collect()
    empty_cache()
    before = memory_stats().in_use_bytes
    for n in range(300, 1300, 200):  # each schedule is kept, with its temporaries in that arena
        x = Tensor(np.zeros((n, 70), np.float32))
        ((x @ x.T).softmax() @ x).numpy()
        del x
    largest = max(arena.memory.size for arena in prepare._arenas.values())
    gc.collect()
    assert memory_stats().in_use_bytes - before <= largest
    empty_cache()
    assert memory_stats().in_use_bytes == before


def test_where_memory_is_short_nothing_has_been_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every result has its memory before the first kernel starts."""
    x, y = Tensor(np.zeros(5, np.float32)), Tensor(np.zeros((5, 3), np.float32))

    def short(device: str, dtype: DType, size: int) -> Buffer:
        if size == 15:
            raise OutOfMemoryError("no room")
        return Buffer(device, dtype, size)

    def update() -> Tensor:
        return (y + x.reshape(5, 1)).exp()

    made = update()
    x += 1.0
    monkeypatch.setattr(prepare, "Buffer", short)
    with pytest.raises(OutOfMemoryError):
        x.numpy()
    monkeypatch.undo()
    assert x.tolist() == [1] * 5 and made.numpy().sum() == 15

"""Several threads: each with tensors of its own, some that all of them read, functions captured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import numpy as np
import pytest

from uopc.tensor import Tensor, jit, rand, watch
from uopc.tensor.random import manual_seed

pytestmark = pytest.mark.usefixtures("each_device")
THREADS = 4


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def test_each_computes_and_updates_its_own() -> None:
    shared = Tensor(np.arange(9, dtype=np.float32))
    lazy = shared * 3.0 + 1.0

    def work(n: int) -> None:
        rng = np.random.default_rng(n)
        for _ in range(12):
            a = rng.integers(-4, 5, (7, 9)).astype(np.float32)
            x = Tensor(a, requires_grad=True)
            y = (x * x + shared).sum(0)
            y.sum().backward()
            state = Tensor(np.zeros(9, np.float32))
            state += y.detach()
            state[3] = 7.0
            want = (a * a + shared.numpy()).sum(0)
            want[3] = 7.0
            assert x.grad is not None
            np.testing.assert_array_equal(x.grad.numpy(), 2 * a)
            np.testing.assert_array_equal(state.numpy(), want)
            np.testing.assert_array_equal(x.detach().cumsum(0).numpy(), np.cumsum(a, 0))
            np.testing.assert_array_equal(lazy.numpy(), np.arange(9) * 3 + 1)

    at_once(work)


def test_a_reader_does_not_undo_an_update() -> None:
    x, done = Tensor(np.zeros(3, np.float32)), Event()

    def read() -> None:
        while not done.is_set():
            seen = x.numpy()
            assert (seen == seen[0]).all()

    reader = Thread(target=read)
    reader.start()
    for _ in range(200):
        x += 1.0
    done.set()
    reader.join()
    assert x.tolist() == [200] * 3


def test_no_two_draws_are_equal() -> None:
    manual_seed(1)
    drawn: list[float] = []
    at_once(lambda n: drawn.extend(rand(1).item() for _ in range(20)))
    manual_seed(1)
    assert sorted(drawn) == sorted(rand(1).item() for _ in range(20 * THREADS))


def test_functions_are_captured_one_after_the_other() -> None:
    def work(n: int) -> None:
        state = Tensor(np.full(4, float(n), np.float32))

        @jit
        def step(x: Tensor) -> Tensor:
            state.assign(state + x)
            return (x * state).sum()

        want = np.full(4, float(n), np.float32)
        for k in range(10):
            x = np.full(4, float(k % 5), np.float32)
            want = want + x
            assert step(Tensor(x)).item() == (x * want).sum()
        assert step.captures == 1

    at_once(work)
    assert watch.current is None

"""The timing protocol: turns in random order, idle pauses, flushed caches, medians."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from uopc.runtime.timing import CPUClock, Timing, time_candidates


class FakeClock:
    """Runs take the seconds they return."""

    def sample_s(self, run: Callable[[], object]) -> float:
        value = run()
        assert isinstance(value, float)
        return value


def test_candidates_take_turns_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def run(name: str) -> Callable[[], float]:
        def once() -> float:
            order.append(name)
            return 1.0

        return once

    candidates = {name: run(name) for name in "abcd"}
    time_candidates(candidates, FakeClock(), samples=10, idle_s=0.25)
    assert order[:4] == list("abcd")  # untimed
    rounds = ["".join(order[i : i + 4]) for i in range(4, len(order), 4)]
    assert len(rounds) == 10 and all(sorted(r) == list("abcd") for r in rounds)
    assert len(set(rounds)) > 3
    assert pauses == [0.25] * 40


def test_medians_and_spread() -> None:
    timing = Timing((1.0, 2.0, 3.0, 4.0, 100.0))
    assert timing.median_s == 3
    assert Timing((1.0,)).spread == 0
    assert Timing((1.0, 1.0, 1.0, 1.0)).spread == 0 < timing.spread
    assert str(Timing((1e-6, 1e-6))) == "1.0 us +- 0%"


def test_the_order_follows_the_seed() -> None:
    def orders(seed: int) -> str:
        seen: list[str] = []

        def run(name: str) -> float:
            seen.append(name)
            return 0.0

        runs = {name: partial(run, name) for name in "abc"}
        time_candidates(runs, FakeClock(), samples=6, idle_s=0, seed=seed)
        return "".join(seen)

    assert orders(1) == orders(1) != orders(2)


def test_the_cpu_clock_measures_and_flushes() -> None:
    clock = CPUClock(flush_bytes=1 << 16)
    assert clock._flush is not None
    before = int(clock._flush[0])
    assert 0.01 <= clock.sample_s(lambda: time.sleep(0.01)) < 1
    assert int(clock._flush[0]) == before + 1 and len(clock._flush) == 1 << 16
    assert np.all(clock._flush == clock._flush[0])
    assert CPUClock(flush_bytes=0)._flush is None

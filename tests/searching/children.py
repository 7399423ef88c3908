"""What tests let child processes do, found there by name."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from uopc.opts import Opts
from uopc.searching.apart import Tell
from uopc.searching.tries import Run

SOON_S = 0.4  # patience of tests with what hangs


def doubled(x: int, tell: Tell) -> int:
    return 2 * x


def raises(x: int, tell: Tell) -> int:
    tell(x)
    raise ValueError(f"not {x}")


def by_number(x: int, tell: Tell) -> int:
    """1 hangs, 2 dies, 3 raises, 4 says something again and again, and then is done."""
    tell(f"at {x}")
    if x == 1:
        time.sleep(1000)
    if x == 2:
        os._exit(9)
    if x == 3:
        raise ValueError("three")
    if x == 4:
        for _ in range(4):
            time.sleep(SOON_S / 2)
            tell("still here")
    return 10 * x


def process(x: int, tell: Tell) -> int:
    return os.getpid()


def milliseconds(opts: Opts) -> float:
    """A time that is shorter the shorter the vectors of axis 1 are, and without threads."""
    return 1.0 + math.log2(dict(opts.vector).get(1, 1)) + (opts.thread is not None)


class FakeClock:
    """Times that follow from the Opts."""

    def sample_s(self, run: Callable[[], object]) -> float:
        run()
        return milliseconds(run.opts) * 1e-3 if isinstance(run, Run) else 0.0


class HangingClock(FakeClock):
    """The same, but what would be best hangs."""

    def sample_s(self, run: Callable[[], object]) -> float:
        if isinstance(run, Run) and milliseconds(run.opts) == 1.0:
            time.sleep(1000)
        return super().sample_s(run)


class DyingClock(FakeClock):
    """The same, but what would be best takes the process with it."""

    def sample_s(self, run: Callable[[], object]) -> float:
        if isinstance(run, Run) and milliseconds(run.opts) == 1.0:
            os._exit(11)
        return super().sample_s(run)


class ShortLivedClock(FakeClock):
    """The same for the candidates that come first; later the process dies, whatever it runs."""

    taken = 0

    def sample_s(self, run: Callable[[], object]) -> float:
        ShortLivedClock.taken += 1
        if ShortLivedClock.taken > SHORT_LIFE:
            os._exit(12)
        return super().sample_s(run)


SHORT_LIFE = 1 + 2 * (2 + 5)  # opening, then two candidates: warm runs and samples


def short_lived_clock(device: str) -> FakeClock:
    return ShortLivedClock()


def fake_clock(device: str) -> FakeClock:
    return FakeClock()


def hanging_clock(device: str) -> FakeClock:
    return HangingClock()


def dying_clock(device: str) -> FakeClock:
    return DyingClock()


def no_clock(device: str) -> FakeClock:
    raise OSError("the device is not there")

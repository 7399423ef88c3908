"""Times of kernels by the cool protocol: what a kernel costs, not what the power cap leaves of it.

Run back to back, kernels heat the chip until its clocks fall, and then the order of two candidates
says more about when they ran than about what they are.  So each sample is one run after an idle
pause, candidates take turns in random order, caches are flushed by writing a buffer, and medians
are compared.  An empty kernel beside them shows what the clock itself cannot resolve.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from uopc.runtime.cuda import CUDA

#: idle before each sample; a few milliseconds suffice for kernels that run for microseconds
IDLE_S = 0.005
#: bytes a CPU writes to flush its caches: beyond the last level of most
_CPU_FLUSH_BYTES = 64 << 20
#: how often the GPU's L2 is flushed before a sample: long enough to queue a few launches meanwhile
_FLUSHES = 12


class Clock(Protocol):
    """Something that times one run."""

    def sample_s(self, run: Callable[[], object]) -> float:
        """Seconds that one run takes, from cold caches."""


@dataclass(frozen=True)
class Timing:
    """Samples of one candidate, in seconds, in the order they were taken."""

    samples_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a share of the median."""
        if len(self.samples_s) < 2 or not self.median_s:
            return 0.0
        low, _, high = statistics.quantiles(self.samples_s, n=4)
        return (high - low) / 2 / self.median_s

    def __str__(self) -> str:
        return f"{self.median_s * 1e6:.1f} us +- {self.spread:.0%}"


def time_candidates(
    candidates: Mapping[str, Callable[[], object]],
    clock: Clock,
    *,
    samples: int = 15,
    idle_s: float = IDLE_S,
    warm: int = 1,
    seed: int = 0,
) -> dict[str, Timing]:
    """Time candidates against each other.

    Parameters
    ----------
    candidates: name -> something that starts one run (and need not wait for it).
    samples: of each candidate; all take one sample before any takes its next.
    idle_s: seconds without work before each sample.
    warm: untimed runs of each before the first sample (compilation, first touch).
    seed: of the order within each round.
    """
    order = random.Random(seed)
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        for _ in range(warm):
            clock.sample_s(run)
    for _ in range(samples):
        names = list(candidates)
        order.shuffle(names)
        for name in names:
            time.sleep(idle_s)
            taken[name].append(clock.sample_s(candidates[name]))
    return {name: Timing(tuple(values)) for name, values in taken.items()}


class CPUClock:
    """Wall time of runs that are done when they return.  flush_bytes 0 leaves the caches warm."""

    def __init__(self, flush_bytes: int = _CPU_FLUSH_BYTES) -> None:
        self._flush = np.zeros(flush_bytes, np.uint8) if flush_bytes else None

    def sample_s(self, run: Callable[[], object]) -> float:
        if self._flush is not None:
            self._flush += 1
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


class CUDAClock:
    """GPU time between two events around what a run puts on the stream.

    The flush that goes before it also keeps the GPU busy while the host queues events and kernels:
    the time between the events is the GPU's own and holds no wait for Python.
    """

    def __init__(self, gpu: CUDA, stream: Any = None, flush_bytes: int = 0) -> None:
        self._gpu, self._stream = gpu, gpu.stream(stream)
        self._buffer = gpu.alloc(flush_bytes or 4 * gpu.l2_bytes, self._stream)

    def sample_s(self, run: Callable[[], object]) -> float:
        gpu, stream = self._gpu, self._stream
        gpu.synchronize()
        for _ in range(_FLUSHES):
            self._buffer.fill(0, stream=stream)
        start = gpu.record(stream)
        run()
        return gpu.elapsed_ms(start, gpu.record(stream)) * 1e-3

"""Clocks of a device: marks in the order of its work, and the time between two of them.

A GPU's marks are events.  One that is recorded while the GPU waits for the host is older than the
kernel after it by what the host needs to launch: some microseconds, more than many a kernel takes.
`hold` lets the GPU spin while the host queues what is timed, so that the time between the marks is
the GPU's own.  The spinning touches no memory: caches stay as the program left them.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any, Protocol

from uopc.kernel import Launch, Source
from uopc.runtime.cuda import CUDA, Function
from uopc.runtime.memory import gpu_of

#: what the host has to queue two events and a launch
HOLD_S = 100e-6
_ONE = Launch((1, 1, 1), (1, 1, 1))
_HOLD = f"""extern "C" __global__ void uopc_hold() {{
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {{
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  }} while (now - begin < {round(HOLD_S * 1e9)}ull);
}}
"""
_EMPTY = 'extern "C" __global__ void uopc_empty() {}\n'


class Clock(Protocol):
    """Marks on one device.

    Attributes: device, by its name; what: how it measures, for people; waits: is a launch done when
    it returns?
    """

    device: str
    what: str
    waits: bool

    def mark(self) -> Any:
        """The moment when all work so far is done."""

    def hold(self) -> None:
        """Let the device wait a moment, for what the host queues next."""

    def wait(self) -> None:
        """Wait until all work is done."""

    def between_s(self, begin: Any, end: Any) -> float:
        """Seconds between two marks; waits for the second."""

    def start_empty(self) -> None:
        """Start a kernel that does nothing."""


class HostClock:
    """The wall's time, for kernels that are done when they return."""

    waits = True

    def __init__(self, device: str) -> None:
        self.device, self.what = device, "wall time"

    def mark(self) -> float:
        return time.perf_counter()

    def hold(self) -> None:
        """The host itself works: there is nothing to wait for."""

    def wait(self) -> None:
        """Work is done already."""

    def between_s(self, begin: float, end: float) -> float:
        return end - begin

    def start_empty(self) -> None:
        """A call of nothing."""


class GPUClock:
    """Events on the stream of a GPU's tensors.  Raises DeviceError where the GPU is not usable."""

    waits = False

    def __init__(self, device: str) -> None:
        self.device, self.what = device, "CUDA events"
        self._gpu: CUDA = gpu_of(device)

    def mark(self) -> Any:
        return self._gpu.record(self._gpu.work)

    def hold(self) -> None:
        self._gpu.launch(self._holding, None, None, stream=self._gpu.work)

    def wait(self) -> None:
        self._gpu.synchronize()

    def between_s(self, begin: Any, end: Any) -> float:
        return self._gpu.elapsed_ms(begin, end) * 1e-3

    def start_empty(self) -> None:
        self._gpu.launch(self._nothing, None, None, stream=self._gpu.work)

    @cached_property
    def _holding(self) -> Function:
        return self._function("uopc_hold", _HOLD)

    @cached_property
    def _nothing(self) -> Function:
        return self._function("uopc_empty", _EMPTY)

    def _function(self, name: str, text: str) -> Function:
        on = self._gpu.target
        return self._gpu.function(
            Source(text, name=name, language="cuda", params=(), launch=_ONE, target=on)
        )


def clock_of(device: str) -> Clock:
    """The clock of a device by its name.  Raises DeviceError where a GPU is not usable."""
    return GPUClock(device) if device.startswith("cuda") else HostClock(device)

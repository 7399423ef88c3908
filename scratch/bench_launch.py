"""What the runtime itself costs: a launch, a replayed launch, an allocation, a copy.

    python scratch/bench_launch.py [DEVICE ...]
Microseconds are medians over rounds in one warm process, for a kernel of 256 elements.  "host" is
until the call returns, "done" until the device has done it; on cpu and emulated that is the same.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from uopc import compile, dtypes
from uopc.runtime import cuda, devices
from uopc.runtime.buffer import Buffer, synchronize
from uopc.runtime.executor import Launcher, raise_errors
from uopc.runtime.graph import Launch, Replay
from uopc.uop import buffer

ELEMENTS = 256
ROUNDS = 31
#: launches of one round: fewer than the driver queues before a launch waits for a place
QUEUED = 200
REPLAYED = 1000
COPY_BYTES = 256 << 20


def per_call_us(device: str, run: Callable[[], object], calls: int) -> tuple[float, float]:
    """Median microseconds of one call: until it returns, and until the device has done it."""
    host, done = [], []
    for _ in range(ROUNDS):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            run()
        host.append(time.perf_counter() - start)
        synchronize(device)
        done.append(time.perf_counter() - start)
    scale = 1e6 / calls
    return statistics.median(host) * scale, statistics.median(done) * scale


def show(what: str, times: tuple[float, float], share: int = 1) -> None:
    """One line; share: how many kernels a call has."""
    host, done = (t / share for t in times)
    print(f"  {what:<44} {host:9.2f} {done:9.2f}")


def copy_gb_s(device: str) -> tuple[float, float]:
    """GB/s of a large copy from numpy, and to it."""
    array = np.ones(COPY_BYTES // 4, np.float32)
    there = Buffer(device, dtypes.f32, array.size)
    to, back = [], []
    for _ in range(5):
        start = time.perf_counter()
        there.write(array)
        synchronize(device)
        to.append(COPY_BYTES / (time.perf_counter() - start) * 1e-9)
        start = time.perf_counter()
        there.numpy()
        back.append(COPY_BYTES / (time.perf_counter() - start) * 1e-9)
    return statistics.median(to), statistics.median(back)


def by_torch() -> Callable[[], object] | None:
    """The same work in torch, where it is installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    a, b = (torch.ones(ELEMENTS, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.add(a, b, out=out)


def bench(device: str) -> None:
    """All rows of one device."""
    kernel = compile(
        buffer(0, dtypes.f32, (ELEMENTS,)) + buffer(1, dtypes.f32, (ELEMENTS,)),
        target=device,
        check=False if device == "emulated" else None,
    )
    launcher = Launcher(kernel.steps[0], device)
    held = [Buffer(device, dtypes.f32, ELEMENTS).zero() for _ in range(3)]
    print(f"{device}\n  {'us':<44} {'host':>9} {'done':>9}")
    launcher(held)
    show("launch", per_call_us(device, lambda: launcher(held), QUEUED))
    for count in (1, 10, REPLAYED):
        replay = Replay([Launch(launcher, held)] * count)
        replay()
        times = per_call_us(device, replay, 1 if count == REPLAYED else 20)
        show(f"replay of {count}", times)
        if count > 1:
            show(f"replay of {count}, a kernel", times, count)
    show("a buffer, made and let go", per_call_us(device, make_one(device), QUEUED))
    show("raise_errors, nothing to read", per_call_us(device, lambda: raise_errors(device), QUEUED))
    arrays = [b.array for b in held]
    show("checked: kernel(*arrays, out=)", per_call_us(device, checked(kernel, arrays), QUEUED))
    if device == "cuda" and (run := by_torch()):
        run()
        show("torch.add(a, b, out=out)", per_call_us(device, run, QUEUED))
    to, back = copy_gb_s(device)
    print(f"  {COPY_BYTES >> 20} MiB: write {to:.1f} GB/s, numpy() {back:.1f} GB/s")


def make_one(device: str) -> Callable[[], object]:
    """Allocates a buffer and lets it go."""
    return lambda: Buffer(device, dtypes.f32, ELEMENTS)


def checked(kernel: Any, arrays: list[Any]) -> Callable[[], object]:
    """The call that checks its arguments each time."""
    return lambda: kernel(*arrays[:2], out=arrays[2])


def main(names: list[str]) -> None:
    """Measure the named devices, or all that are usable."""
    for info in reversed(devices()):
        if names and info.name not in names:
            continue
        if not info.usable:
            print(f"{info.name}: {info.detail}")
            continue
        if info.name == "cuda":
            print(cuda.describe())
        bench(info.name)


if __name__ == "__main__":
    main(sys.argv[1:])

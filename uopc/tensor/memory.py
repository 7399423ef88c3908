"""What the tensors of a device take, and how to give it back.

device: None is the default device, here and everywhere.
"""

from __future__ import annotations

from uopc.runtime import buffer
from uopc.runtime.executor import raise_errors
from uopc.runtime.memory import MemoryStats
from uopc.tensor import prepare, storage


def memory_stats(device: str | None = None) -> MemoryStats:
    """Bytes in use and at their peak, allocations, and bytes that the pool has reserved.

    What stands between kernels is counted too: one block a device, as large as it had to be.
    Raises DeviceError where the device is missing.
    """
    return buffer.memory_stats(storage.device_named(device))


def reset_peak(device: str | None = None) -> None:
    """Let the peak of the statistics be what is in use now."""
    buffer.reset_peak(storage.device_named(device))


def empty_cache(device: str | None = None) -> None:
    """Give back to the system what no tensor and no captured function uses."""
    place = storage.device_named(device)
    with storage.turn:
        prepare.forget_arena(place)
        buffer.empty_cache(place)


def synchronize(device: str | None = None) -> None:
    """Wait for everything that was launched.

    Raises DeviceError where a kernel failed, IndexError where an index was out of range.
    """
    place = storage.device_named(device)
    buffer.synchronize(place)
    raise_errors(place)

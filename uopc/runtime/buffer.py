"""A Buffer: elements of one dtype on one device, where tensors keep their values.

It has no shape: kernels see flat memory.  `view` makes Buffers over parts of one, for the memory
plan's arenas.  Work on a buffer is in the order in which it was asked for, in whatever thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uopc.dtype import DType, from_numpy
from uopc.errors import UsageError
from uopc.runtime.arrays import Bound, DeviceArray, HostArray
from uopc.runtime.device import ordinal_of
from uopc.runtime.memory import (
    ALIGNMENT,
    Block,
    GPUMemory,
    HostMemory,
    Memory,
    MemoryStats,
    memory_of,
)


class Buffer:
    """`size` elements of `dtype` on a device ("cpu", "emulated", "cuda", "cuda:1"), uninitialised.

    Attributes: device, by its one name; dtype; size in elements; address of the first, at a
    multiple of 64.  The memory goes back to the device's pool when nothing refers to it.

    Raises OutOfMemoryError that names sizes, and DeviceError where the device is missing.
    """

    __slots__ = ("__weakref__", "_block", "_memory", "address", "device", "dtype", "size")

    def __init__(self, device: str, dtype: DType, size: int) -> None:
        memory = memory_of(device)
        self._put(memory, memory.allocate(size * dtype.itemsize), 0, dtype, size)

    def _put(self, memory: Memory, block: Block, offset: int, dtype: DType, size: int) -> None:
        self._memory, self._block = memory, block
        self.device, self.dtype, self.size = memory.device, dtype, size
        self.address = block.address + offset

    @classmethod
    def from_numpy(cls, device: str, array: Any) -> Buffer:
        """A new one with the elements of an array in C order.

        Raises UsageError for a dtype that uopc has not.
        """
        array = np.asarray(array)
        made = cls(device, from_numpy(array.dtype), array.size)
        made.write(array)
        return made

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def array(self) -> Bound:
        """The memory itself, not a copy: a numpy array, or a DeviceArray on cuda."""
        if isinstance(self._memory, GPUMemory):
            shape, owner = (self.size,), self._block
            return DeviceArray(
                self.address, shape, self.dtype, ordinal_of(self.device), owner=owner
            )
        start = self.address - self._block.address
        whole: HostArray = np.asarray(self._block)
        return whole[start : start + self.size_bytes].view(self.dtype.numpy)

    def view(self, offset_bytes: int, dtype: DType, size: int) -> Buffer:
        """`size` elements of `dtype` from an offset on, in the same memory.

        Raises UsageError where they do not lie in it, or the offset is no multiple of 64: kernels
        read several elements at once.
        """
        end = offset_bytes + size * dtype.itemsize
        if offset_bytes < 0 or end > self.size_bytes or offset_bytes % ALIGNMENT:
            raise UsageError(
                f"{self!r}: a view of {dtype}[{size}] at byte {offset_bytes} wants a multiple of "
                f"{ALIGNMENT} and {end} bytes, there are {self.size_bytes}."
            )
        made = Buffer.__new__(Buffer)
        start = self.address - self._block.address + offset_bytes
        made._put(self._memory, self._block, start, dtype, size)
        return made

    def write(self, array: Any) -> Buffer:
        """Copy an array of this dtype and size into it; the array may change once this returns.

        Raises UsageError for another dtype or size.
        """
        array = np.asarray(array, order="C")
        if array.dtype != self.dtype.numpy or array.size != self.size:
            raise UsageError(f"{self!r} cannot take {array.dtype} of shape {array.shape}.")
        self._memory.write(self.address, array)
        return self

    def numpy(self) -> HostArray:
        """A flat copy of its elements; waits until they are there."""
        host = memory_of("cpu")
        assert isinstance(host, HostMemory)
        out = host.array(self.dtype, self.size)
        self._memory.read(self.address, out)
        return out

    def zero(self) -> Buffer:
        """Fill it with zeros."""
        self._memory.zero(self.address, self.size_bytes)
        return self

    def copy_to(self, other: Buffer) -> None:
        """Copy its elements into a buffer of the same dtype and size on any device.

        Raises UsageError for another dtype or size.
        """
        if other.dtype is not self.dtype or other.size != self.size:
            raise UsageError(f"{self!r} cannot be copied to {other!r}.")
        mine, there = self._memory, other._memory
        if mine is there:
            mine.copy(other.address, self.address, self.size_bytes)
        elif isinstance(mine, HostMemory):
            there.write(other.address, _host(self))
        elif isinstance(there, HostMemory):
            mine.read(self.address, _host(other))
        else:
            assert isinstance(mine, GPUMemory) and isinstance(there, GPUMemory)
            there.gpu.copy_from(mine.gpu, other.address, self.address, self.size_bytes)

    def __repr__(self) -> str:
        return f"Buffer({self.device}, {self.dtype}[{self.size}] at {self.address:#x})"


def memory_stats(device: str) -> MemoryStats:
    """What the buffers of a device take.  Raises as `Buffer` does where it is missing."""
    return memory_of(device).stats()


def reset_peak(device: str) -> None:
    """Let the peak of a device's statistics be what is in use now."""
    memory_of(device).reset_peak()


def empty_cache(device: str) -> None:
    """Give memory that no buffer uses back to the system."""
    memory_of(device).empty_cache()


def synchronize(device: str) -> None:
    """Wait for everything that was launched.  Raises DeviceError where a kernel failed."""
    memory_of(device).wait()


def _host(buffer: Buffer) -> HostArray:
    array = buffer.array
    assert isinstance(array, np.ndarray)
    return array

"""Where arrays of a device live: memory from a pool, moved, zeroed, counted.

cpu and emulated take theirs from the process and keep what comes back: the first write to 64 MiB of
new pages ran at 7 GB/s where the next ran at 21.  cuda's comes from the stream-ordered pool of
cuda.core, on the one stream on which uopc launches, so that it may be given back, and out again,
while kernels run.
"""

from __future__ import annotations

import ctypes
import gc
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from uopc.dtype import DType
from uopc.errors import UsageError
from uopc.runtime.arrays import HostArray, address
from uopc.runtime.cuda import CUDA, OutOfMemoryError, open_device
from uopc.runtime.device import device_name, ordinal_of

#: bytes that every block's address is a multiple of: a cache line, and any vector
ALIGNMENT = 64
#: of free blocks that the host keeps; beyond it all go back to the system
KEPT_MAX_BYTES = 1 << 30


#: of arrays for numpy's users that are worth a place in the pool; malloc keeps smaller ones warm
POOLED_MIN_BYTES = 1 << 20


@dataclass(frozen=True)
class MemoryStats:
    """What a device's arrays take, in bytes.

    in_use_bytes: of arrays that are alive; peak_bytes: the most that this was; allocations: how
    many there have been; reserved_bytes: what the device's pool has taken from the system, in use
    or free (on cuda with what others in the process have from the same pool).
    """

    in_use_bytes: int
    peak_bytes: int
    allocations: int
    reserved_bytes: int


class Block:
    """Some bytes of a device's memory, given back when nothing refers to it.

    Attributes: address; size_bytes.
    """

    __slots__ = ("_back", "_room", "address", "size_bytes")

    def __init__(
        self, address: int, size_bytes: int, room: Any, back: Callable[[int, Any], object]
    ) -> None:
        """room: what the device gave; back: takes the size and it, in any thread at any time."""
        self.address, self.size_bytes, self._room, self._back = address, size_bytes, room, back

    def __del__(self) -> None:
        self._back(self.size_bytes, self._room)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """So that numpy's arrays over it keep it alive; of blocks on the host only."""
        return {
            "version": 3,
            "shape": (self.size_bytes,),
            "typestr": "|u1",
            "data": (self.address, False),
        }


class Memory(ABC):
    """The memory of one device.

    Blocks come back whenever Python drops them, also in the middle of a method of this class: then
    they are only put in a queue, which takes no lock, and what counts settles the queue first.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._lock = Lock()
        self._returned: deque[tuple[int, Any]] = deque()
        self._in_use_bytes = self._peak_bytes = self._allocations = 0

    def allocate(self, size_bytes: int) -> Block:
        """A block of uninitialised bytes.  Raises OutOfMemoryError that names sizes."""
        start, room = self._take(max(size_bytes, 1))
        with self._lock:
            self._settle()
            self._in_use_bytes += size_bytes
            self._peak_bytes = max(self._peak_bytes, self._in_use_bytes)
            self._allocations += 1
        return Block(start, size_bytes, room, self._give_back)

    def stats(self) -> MemoryStats:
        """What is taken now."""
        with self._lock:
            self._settle()
            counted = self._in_use_bytes, self._peak_bytes, self._allocations
        return MemoryStats(*counted, self._reserved_bytes())

    def reset_peak(self) -> None:
        """Let the peak be what is in use now."""
        with self._lock:
            self._settle()
            self._peak_bytes = self._in_use_bytes

    def _give_back(self, size_bytes: int, room: Any) -> None:
        """Called by blocks that die."""
        self._returned.append((size_bytes, room))

    def _settle(self) -> None:
        """Count what has come back; under the lock."""
        while self._returned:
            size_bytes, room = self._returned.popleft()
            self._in_use_bytes -= size_bytes
            self._keep(room)

    @abstractmethod
    def _take(self, size_bytes: int) -> tuple[int, Any]:
        """An address, and what stands for the memory there until it is given back."""

    @abstractmethod
    def _keep(self, room: Any) -> None:
        """Take what was given back; under the lock."""

    @abstractmethod
    def _reserved_bytes(self) -> int:
        """What the pool has taken from the system."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give back to the system what no array uses."""

    @abstractmethod
    def write(self, to: int, array: HostArray) -> None:
        """Copy a C-contiguous numpy array to an address; it may change once this returns."""

    @abstractmethod
    def read(self, start: int, out: HostArray) -> None:
        """Copy from an address into a C-contiguous numpy array; done when this returns."""

    @abstractmethod
    def copy(self, to: int, start: int, size_bytes: int) -> None:
        """Copy inside this memory, in the order of launches."""

    @abstractmethod
    def zero(self, start: int, size_bytes: int) -> None:
        """Fill with zero bytes, in the order of launches."""

    @abstractmethod
    def wait(self) -> None:
        """Until everything that was launched is done.  Raises DeviceError where a kernel failed."""


class _Room:
    """Memory of the process from `start` on, at a multiple of ALIGNMENT."""

    __slots__ = ("_bytes", "size_bytes", "start")

    def __init__(self, size_bytes: int) -> None:
        self._bytes = np.empty(size_bytes + ALIGNMENT, np.uint8)
        self.start = -(-address(self._bytes) // ALIGNMENT) * ALIGNMENT
        self.size_bytes = size_bytes


class HostMemory(Memory):
    """Memory of the process, for native and emulated kernels, which are done when they return."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._free: dict[int, list[_Room]] = {}
        self._free_bytes = self._taken_bytes = 0

    def _take(self, size_bytes: int) -> tuple[int, _Room]:
        size = _rounded(size_bytes)
        with self._lock:
            self._settle()
            if kept := self._free.get(size):
                self._free_bytes -= size
                room = kept.pop()
                return room.start, room
        room = self._new(size)
        with self._lock:
            self._taken_bytes += size
        return room.start, room

    def _new(self, size_bytes: int) -> _Room:
        for free in (self._collect, None):
            try:
                return _Room(size_bytes)
            except MemoryError:
                if free:
                    free()
        in_use = self.stats().in_use_bytes
        raise OutOfMemoryError(
            f"{self.device} is out of memory: {size_bytes} bytes wanted, {in_use} are in use by "
            f"arrays. Let go of arrays that are no longer needed, or use smaller ones."
        )

    def array(self, dtype: DType, size: int) -> HostArray:
        """A numpy array for the caller to keep, which counts as nobody's; uninitialised.

        A large one is from the pool: its pages have been written before.
        """
        size_bytes = size * dtype.itemsize
        if size_bytes < POOLED_MIN_BYTES:
            return np.empty(size, dtype.numpy)
        start, room = self._take(size_bytes)
        block = Block(start, size_bytes, room, lambda _, room: self._give_back(0, room))
        whole: HostArray = np.asarray(block)
        return whole.view(dtype.numpy)

    def _collect(self) -> None:
        gc.collect()
        self.empty_cache()

    def _keep(self, room: _Room) -> None:
        self._free.setdefault(room.size_bytes, []).append(room)
        self._free_bytes += room.size_bytes
        if self._free_bytes > KEPT_MAX_BYTES:
            self._drop()

    def _drop(self) -> None:
        self._free.clear()
        self._taken_bytes -= self._free_bytes
        self._free_bytes = 0

    def empty_cache(self) -> None:
        with self._lock:
            self._settle()
            self._drop()

    def _reserved_bytes(self) -> int:
        return self._taken_bytes

    def write(self, to: int, array: HostArray) -> None:
        ctypes.memmove(to, address(array), array.nbytes)

    def read(self, start: int, out: HostArray) -> None:
        ctypes.memmove(address(out), start, out.nbytes)

    def copy(self, to: int, start: int, size_bytes: int) -> None:
        ctypes.memmove(to, start, size_bytes)

    def zero(self, start: int, size_bytes: int) -> None:
        ctypes.memset(start, 0, size_bytes)

    def wait(self) -> None:
        pass


class GPUMemory(Memory):
    """Memory of one GPU.  Everything here is in the order of its launches (`CUDA.work`).

    Attribute: gpu.
    """

    def __init__(self, device: str, gpu: CUDA) -> None:
        super().__init__(device)
        self.gpu = gpu
        gpu.work  # noqa: B018  (made here, where no other thread can make a second one)

    def _take(self, size_bytes: int) -> tuple[int, Any]:
        room = self.gpu.alloc(size_bytes, self.gpu.work)
        return int(room.handle), room

    def _give_back(self, size_bytes: int, room: Any) -> None:
        self._returned.append((size_bytes, None))  # cuda.core gives it back to the pool at once

    def _keep(self, room: None) -> None:
        pass

    def _reserved_bytes(self) -> int:
        return self.gpu.pool_bytes()

    def empty_cache(self) -> None:
        with self._lock:
            self._settle()
        self.gpu.free_unused()

    def write(self, to: int, array: HostArray) -> None:
        if array.nbytes:
            self.gpu.write(to, array)

    def read(self, start: int, out: HostArray) -> None:
        if out.nbytes:
            self.gpu.read(start, out)
        else:
            self.wait()

    def copy(self, to: int, start: int, size_bytes: int) -> None:
        if size_bytes:
            self.gpu.copy(to, start, size_bytes)

    def zero(self, start: int, size_bytes: int) -> None:
        if size_bytes:
            self.gpu.zero(start, size_bytes)

    def wait(self) -> None:
        self.gpu.synchronize(self.gpu.work)


_memories: dict[str, Memory] = {}
_opening = Lock()


def memory_of(device: str) -> Memory:
    """The memory of a device, by any of its names.

    Raises UsageError where no device is called so, DeviceError where it cannot be used.
    """
    if found := _memories.get(device):
        return found
    name = device_name(device)
    with _opening:  # one each, also where several threads come first
        if name not in _memories:
            _memories[name] = (
                GPUMemory(name, open_device(ordinal_of(name)))
                if name.startswith("cuda")
                else HostMemory(name)
            )
        return _memories[name]


def gpu_of(device: str) -> CUDA:
    """The GPU of a cuda device.  Raises as `memory_of` does."""
    memory = memory_of(device)
    if not isinstance(memory, GPUMemory):
        raise UsageError(f"device {device} is no GPU.")
    return memory.gpu


def _rounded(size_bytes: int) -> int:
    """Up to one of eight sizes an octave, so that blocks serve sizes close to theirs."""
    step = max(1 << max(size_bytes.bit_length() - 4, 0), ALIGNMENT)
    return -(-size_bytes // step) * step

"""Which chunk of which array is each memory of a bundle: tables for `uopc/passes/segments.py`.

A chunk has up to `length` elements; an array of n elements has ceil(n / length) of them, one after
the other, and chunks of all arrays are numbered in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from uopc.errors import UsageError
from uopc.runtime.arrays import HostArray

T = TypeVar("T")


@dataclass(frozen=True)
class Chunks:
    """Arrays of these sizes (elements) in chunks of up to `length` elements.

    count: of chunks that the kernel was made for; 0 for `count_for` of these arrays.
    Raises UsageError where there are more chunks than that.
    """

    sizes: tuple[int, ...]
    length: int
    count: int = 0

    def __post_init__(self) -> None:
        if not self.count:
            object.__setattr__(self, "count", count_for(self.sizes, self.length))
        if self.used > self.count:
            raise UsageError(
                f"{len(self.sizes)} arrays have {self.used} chunks of {self.length} elements, the "
                f"kernel is for {self.count}. Make it for segments.count_for(sizes, length)."
            )

    @cached_property
    def of(self) -> HostArray:
        """The array that each chunk belongs to, (used,) int64."""
        return np.repeat(np.arange(len(self.sizes)), self._each)

    @cached_property
    def first(self) -> HostArray:
        """The element of its array at which each chunk begins, (used,) int64."""
        before = np.cumsum(self._each) - self._each
        begins: HostArray = (np.arange(self.used) - np.repeat(before, self._each)) * self.length
        return begins

    @cached_property
    def lengths(self) -> HostArray:
        """Elements of each chunk, (count,) int32; 0 for those that are not used."""
        out = np.zeros(self.count, np.int32)
        out[: self.used] = np.minimum(
            np.array(self.sizes, np.int64)[self.of] - self.first, self.length
        )
        return out

    @property
    def used(self) -> int:
        """How many chunks there are."""
        return int(self._each.sum())

    def table(self, addresses: Sequence[int], itemsize: int) -> HostArray:
        """What a launch passes for the bundle of these arrays' chunks: uint64, (2 * count,).

        addresses: of the arrays' first elements; itemsize: bytes of an element.
        """
        out = np.zeros((2, self.count), np.uint64)
        out[0, : self.used] = np.array(addresses, np.uint64)[self.of]
        out[0, : self.used] += (self.first * itemsize).astype(np.uint64)
        out[1] = self.lengths
        return out.reshape(-1)

    def own_table(self, addresses: Sequence[int]) -> HostArray:
        """The same for one element of each array."""
        out = np.zeros((2, self.count), np.uint64)
        out[0, : self.used] = np.array(addresses, np.uint64)[self.of]
        out[1, : self.used] = 1
        return out.reshape(-1)

    def views(self, arrays: Sequence[Any]) -> list[Any]:
        """The chunks of flat arrays, one after the other."""
        ends = self.first + self.lengths[: self.used]
        return [arrays[k][i:j] for k, i, j in zip(self.of, self.first, ends, strict=True)]

    def own_views(self, arrays: Sequence[T]) -> list[T]:
        """For each chunk, what its array has of its own."""
        return [arrays[k] for k in self.of]

    @cached_property
    def _each(self) -> HostArray:
        """Chunks of each array."""
        return -(-np.array(self.sizes, np.int64) // self.length)


def count_for(sizes: Sequence[int], length: int) -> int:
    """Chunks that a kernel is made for: a power of two, so that few kernels do for all arrays."""
    used = sum(-(-n // length) for n in sizes)
    return 1 << max(0, used - 1).bit_length()


__all__ = ["Chunks", "count_for"]

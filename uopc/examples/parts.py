"""What the example kernels are made of: memories, threads, and the record of an example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.uop.node import UOp, range_
from uopc.uop.ops import AxisType, Ops, ParamArg

Array: TypeAlias = np.ndarray[Any, Any]
#: axes of the ranges that threads have; loops have higher ones
BLOCK, GROUP, WARP_AXIS, LANE_AXIS, LOOPS = 0, 1, 2, 3, 4
WARP = 32


@dataclass(frozen=True)
class Example:
    """A kernel with what it needs to run and to be judged.

    build: the kernel, a SINK in stage LOOPS.  target: the first one that has its instructions.
    make: every array, in slot order, outputs too.  reference: of those arrays, what the written
    ones hold afterwards, by slot.  sass: names of machine instructions that must be there.
    order_dependent: sums of floats by atomics, near the reference but not equal to it.
    printed: the lines that it prints, in any order.
    """

    build: Callable[[], UOp]
    target: str
    make: Callable[[np.random.Generator], Sequence[Array]]
    reference: Callable[..., dict[int, Array]]
    sass: tuple[str, ...] = ()
    order_dependent: bool = False
    printed: tuple[str, ...] = ()

    def arrays(self, seed: int = 0) -> list[Array]:
        """Fresh arrays, the same for the same seed."""
        return list(self.make(np.random.default_rng(seed)))

    def expected(self, arrays: Sequence[Array]) -> dict[int, Array]:
        """What the outputs hold after a run on these arrays, which stay as they are."""
        return self.reference(*(a.copy() for a in arrays))


# ---- memories
def shared(dtype: DType, size: int, slot: int = 0, name: str = "tile") -> UOp:
    """A block's memory of `size` elements."""
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), AddrSpace.SHARED, name))


def registers(dtype: DType, size: int, slot: int = 0, name: str = "") -> UOp:
    """An array of each thread."""
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), AddrSpace.REG, name))


def mbarriers(count: int, slot: int, name: str) -> UOp:
    """mbarriers of a block."""
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtypes.u64, (count,), AddrSpace.MBARRIER, name))


# ---- threads
def blocks(size: int, axis: int = BLOCK) -> UOp:
    return range_(size, axis, AxisType.GLOBAL)


def warps(size: int) -> UOp:
    """The warps of a block, or of a warpgroup."""
    return range_(size, WARP_AXIS, AxisType.WARP)


def lanes() -> UOp:
    return range_(WARP, LANE_AXIS, AxisType.LANE)


def loop(size: int, number: int = 0) -> UOp:
    """A loop that stays one; each loop of a kernel has a number of its own."""
    return range_(size, LOOPS + number)


def unrolled(size: int, number: int = 0) -> UOp:
    """A loop whose variable may index registers."""
    return range_(size, LOOPS + number, AxisType.UPCAST)


def index(value: int) -> UOp:
    return UOp.const(value, dtypes.index)


# ---- arrays
def unwritten(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """An output before the kernel: bytes that no result has by chance."""
    array = np.empty(shape, dtype)
    array.view(np.uint8)[...] = 0xFF if array.dtype.kind != "b" else 1
    return array


def whole(
    rng: np.random.Generator, shape: int | tuple[int, ...], dtype: Any, top: int = 4
) -> Array:
    """Whole numbers of -top to top (0 to top where there is no sign): their sums are exact."""
    low = 0 if np.dtype(dtype).kind in "ub" else -top
    return rng.integers(low, top + 1, shape).astype(dtype)

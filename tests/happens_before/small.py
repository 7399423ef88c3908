"""Small kernels by hand and by generator share this: memories, threads, a kernel's PROGRAM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.kernel import ProgramTree
from uopc.passes.linearize import linearize
from uopc.uop.node import UOp, prod, range_, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops, ParamArg
from uopc.uop.spec import Stage, check


def shared(size: int, slot: int = 0, dtype: DType = dtypes.i32) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), AddrSpace.SHARED))


def registers(size: int, slot: int = 0, dtype: DType = dtypes.i32) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, (size,), AddrSpace.REG))


def mbarriers(size: int = 1, slot: int = 0) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtypes.u64, (size,), AddrSpace.MBARRIER))


def threads(size: int) -> UOp:
    """threadIdx.x of a block of that many threads."""
    return range_(size, 90, AxisType.LOCAL)


def blocks(size: int) -> UOp:
    return range_(size, 91, AxisType.GLOBAL)


def number(value: int) -> UOp:
    """A constant index."""
    return UOp.const(value, dtypes.index)


def program(sink: UOp) -> ProgramTree:
    """The PROGRAM of a kernel that keeps the rules of LOOPS."""
    check(sink, Stage.LOOPS)
    return linearize(sink)


def arrays_for(sink: UOp, seed: int = 0) -> list[Array]:
    """Small whole numbers for every parameter, in slot order."""
    rng = np.random.default_rng(seed)
    found: dict[int, Any] = {u.arg.slot: u.arg for u in toposort(sink) if u.op is Ops.BUFFER}
    return [
        rng.integers(0, 9, max(1, prod(a.shape))).astype(a.dtype.numpy).reshape(a.shape)
        for _, a in sorted(found.items())
    ]


def equal_bits(a: Sequence[Array], b: Sequence[Array]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))

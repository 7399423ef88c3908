"""Atomics at the edges of their dtypes: emulated, by the oracle, and launched."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import assert_same
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.pipeline import emulate, launch_dims, render_cuda
from uopc.runtime import cuda
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.infer import ATOMIC_DTYPES
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.numbers import Array
from uopc.uop.ops import Atomic, AxisType, Ops, ParamArg
from uopc.uop.oracle import run
from uopc.uop.spec import Stage

LANES = 32
EDGES = {
    "f": (1e-40, -1e-40, 1.1754944e-38, -1e-45, 0.0, -0.0, 3e-38, np.inf),
    "i": (-1, 0, 1, 2, 7),
    "u": (0, 1, 2, 7),
}
CASES = [(a, d) for a, ds in ATOMIC_DTYPES.items() for d in ds]


def _kernel(atomic: Atomic, dtype: DType, space: AddrSpace) -> UOp:
    """Each lane changes a cell of its own: x to x with y; what it was, and what it is then."""
    x, y, old, new = (buffer(slot, dtype, (LANES,)) for slot in range(4))
    t = range_(LANES, 0, AxisType.LOCAL)
    c = Cursor()
    cells = new
    if space is AddrSpace.SHARED:
        cells = UOp(Ops.ALLOC, (), ParamArg(0, dtype, (LANES,), space, "cells"))
    c.store(cells.index(t), x.index(t).load())
    compare = c.load(x.index(t)) if atomic is Atomic.CAS else None
    was = c.atomic(atomic, cells.index(t), y.index(t).load(), compare)
    c.store(old.index(t), was)
    if cells is not new:
        c.store(new.index(t), c.load(cells.index(t)))
    return c.sink()


def _arrays(dtype: DType) -> list[Array]:
    kind = dtype.numpy.kind
    edges = np.array(EDGES[kind], dtype.numpy)
    if kind != "f":
        edges = np.concatenate((edges, np.array([dtype.min, dtype.max], dtype.numpy)))
    rng = np.random.default_rng(0)
    x, y = (rng.choice(edges, LANES) for _ in range(2))
    return [x, y, np.zeros(LANES, dtype.numpy), np.zeros(LANES, dtype.numpy)]


@pytest.mark.parametrize("space", [AddrSpace.GLOBAL, AddrSpace.SHARED], ids=lambda s: s.name)
@pytest.mark.parametrize(("atomic", "dtype"), CASES, ids=str)
def test_emulated_is_what_the_oracle_says(atomic: Atomic, dtype: DType, space: AddrSpace) -> None:
    sink, arrays = _kernel(atomic, dtype, space), _arrays(dtype)
    want = run(sink, dict(enumerate(a.copy() for a in arrays)), Stage.LOOPS)
    Program(emulate(sink, "change"))(*arrays)
    for slot in (2, 3):
        assert_same(arrays[slot], want[slot])


def test_sums_of_denormals() -> None:
    """f32 in GLOBAL memory: denormals are zeros of their sign; in SHARED memory they are not."""
    tiny, x = np.float32(1e-40), np.zeros(LANES, np.float32)
    for space, becomes in ((AddrSpace.GLOBAL, np.float32(0)), (AddrSpace.SHARED, tiny + tiny)):
        arrays = [x + tiny, x + tiny, x.copy(), x.copy()]
        Program(emulate(_kernel(Atomic.ADD, dtypes.f32, space), "change"))(*arrays)
        assert_same(arrays[2], x + tiny)
        assert_same(arrays[3], x + becomes)


@pytest.mark.gpu
@pytest.mark.parametrize("space", [AddrSpace.GLOBAL, AddrSpace.SHARED], ids=lambda s: s.name)
@pytest.mark.parametrize(("atomic", "dtype"), CASES, ids=str)
def test_launched_is_what_is_emulated(atomic: Atomic, dtype: DType, space: AddrSpace) -> None:
    sink = _kernel(atomic, dtype, space)
    there, here = _arrays(dtype), _arrays(dtype)
    cuda.run_cuda(
        render_cuda(sink, "change", cuda.device_target()), "change", *launch_dims(sink), *there
    )
    Program(emulate(sink, "change"))(*here)
    for slot in (2, 3):
        assert_same(there[slot], here[slot])

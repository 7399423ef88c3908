"""Kernels that many tests speak of, the passes up to a stage, and running a graph by the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.helpers import assert_same, random_array
from uopc.dtype import DType, dtypes
from uopc.kernel import USUAL, Numerics
from uopc.opts import Opts
from uopc.pipeline import LOWERING, index
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage

#: the slot of the first output: inputs have smaller ones
OUT = 10


# ---- bodies
def param(slot: int, *shape: int, dtype: DType = dtypes.f32) -> UOp:
    """An input."""
    return buffer(slot, dtype, shape)


def along(row: UOp, like: UOp) -> UOp:
    """One value a row, repeated along the last axis."""
    return row.reshape((*row.shape, 1)).expand(like.shape)


def axpy(*shape: int) -> UOp:
    return param(0, *shape) * 2.0 + 1.0


def numerator(x: UOp) -> UOp:
    """exp(x - max) of each row."""
    return (x - along(x.reduce(Ops.MAX, 1), x)).exp()


def softmax(x: UOp) -> UOp:
    e = numerator(x)
    return e / along(e.reduce(Ops.ADD, 1), e)


def product(m: int, n: int, k: int, dtype: DType = dtypes.f32) -> UOp:
    """(m, k) by (k, n)."""
    a = param(0, m, k, dtype=dtype).reshape((m, 1, k)).expand((m, n, k))
    b = param(1, k, n, dtype=dtype).permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD, 1)


def columns(x: UOp) -> UOp:
    """The sum of each column."""
    return x.permute((1, 0)).reduce(Ops.ADD, 1)


# ---- stages
def outputs(bodies: Sequence[UOp]) -> list[UOp]:
    """Flat outputs of the bodies, from slot OUT on."""
    return [buffer(OUT + n, b.dtype, (prod(b.shape),)) for n, b in enumerate(bodies)]


def indexed(*bodies: UOp, merge: Sequence[int] = ()) -> UOp:
    """The kernel in stage INDEXED, its axes shared and numbered."""
    return index(bodies, outputs(bodies), merge)


def around(name: str, opts: Opts, *bodies: UOp, numerics: Numerics = USUAL) -> tuple[UOp, UOp]:
    """The graphs before and after one pass of LOWERING."""
    root = indexed(*bodies, merge=opts.merge)
    for p in LOWERING:
        if not p.wanted(numerics):
            continue
        new = p.run(root, opts)
        if p.name == name:
            return root, new
        root = new
    raise AssertionError(f"no pass is called {name}")


# ---- numbers
def arrays_of(*roots: UOp, seed: int = 0) -> dict[int, Array]:
    """An array for each parameter below OUT: small whole numbers, of floats quarters."""
    rng = np.random.default_rng(seed)
    found = {u.arg.slot: u for u in toposort(*roots) if u.op is Ops.BUFFER and u.arg.slot < OUT}
    return {s: random_array(rng, u.dtype, u.arg.shape) for s, u in sorted(found.items())}


def assert_same_numbers(
    before: UOp, after: UOp, arrays: Mapping[int, Array], stages: tuple[Stage, Stage]
) -> dict[int, Array]:
    """Both kernels store the same bits; what they store."""
    want, got = run(before, arrays, stages[0]), run(after, arrays, stages[1])
    assert got.keys() == want.keys()
    for slot, array in got.items():
        assert_same(array, want[slot].reshape(array.shape))
    return got


def assert_stores(
    sink: UOp, bodies: Sequence[UOp], arrays: Mapping[int, Array], stage: Stage
) -> None:
    """The kernel stores the values of the bodies."""
    got = run(sink, arrays, stage)
    for n, want in enumerate(evaluate(list(bodies), arrays)):
        assert_same(got[OUT + n], want.reshape(-1))

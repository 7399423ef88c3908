"""Launched kernels give the bits of emulated ones: one PROGRAM, on an NVIDIA GPU and on the CPU.

Exact ops and reductions, float sums included (both sides fold the same tree), agree bit for bit;
kernels with transcendentals agree within the ulps that the oracle allows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.helpers import assert_same, random_array
from tests.random_kernels import ULPS, Case, random_case
from tests.three_ways import _ulp, _within, random_opts
from uopc.dtype import DATA, FLOATS, DType, dtypes
from uopc.errors import UsageError
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile, emulate, launch_dims, render_cuda
from uopc.runtime import cuda
from uopc.runtime.program import Program
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import TRANSCENDENTAL, Ops

pytestmark = pytest.mark.gpu
RANDOM_KERNELS = 120


def param(slot: int, *shape: int, dtype: DType = dtypes.f32) -> UOp:
    return buffer(slot, dtype, (prod(shape),)).reshape(shape)


def keep(x: UOp, op: Ops) -> UOp:
    """The last axis reduced, and broadcast back."""
    return x.reduce(op, 1).reshape((*x.shape[:-1], 1)).expand(x.shape)


def product(m: int, n: int, k: int) -> UOp:
    a = param(0, m, k).reshape((m, 1, k)).expand((m, n, k))
    b = param(1, k, n).permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD, 1)


def normalised(m: int, n: int) -> UOp:
    """Rows divided by their sum: two walks over a row, exact ops only."""
    x = param(0, m, n)
    d = x - keep(x, Ops.MAX)
    return d / keep(d, Ops.ADD)


SUITE: dict[str, Callable[[], UOp | list[UOp]]] = {
    "axpy": lambda: param(0, 64, 128) * 2.0 + 1.0,
    "(3, 100)": lambda: param(0, 3, 100) * 2.0,
    "(8, 4, 64, 64)": lambda: (
        param(0, 8, 4, 64, 64) + param(1, 4, 64).reshape((1, 4, 1, 64)).expand((8, 4, 64, 64))
    ),
    "one": lambda: param(0, 1) + 1.0,
    "prime 97": lambda: param(0, 97) * param(1, 97),
    "prime 1009x1013": lambda: param(0, 1009, 1013) * param(1, 1009, 1013),
    "transpose": lambda: param(0, 777, 1000).permute((1, 0)) * 2.0,
    "pad flip shrink": lambda: (
        param(0, 33, 70).pad(((2, 3), (1, 4)), 7.0).flip((0,)).shrink(((1, 30), (0, 71)))
    ),
    "rows": lambda: param(0, 65, 1000).reduce(Ops.ADD, 1),
    "long rows": lambda: param(0, 3, 131072).reduce(Ops.ADD, 1),
    "columns": lambda: param(0, 1000, 257).permute((1, 0)).reduce(Ops.ADD, 1),
    "all 100,003": lambda: param(0, 100_003).reduce(Ops.ADD, 1),
    "all 1Mi": lambda: param(0, 1 << 20).reduce(Ops.ADD, 1),
    "row max": lambda: param(0, 70, 8192).reduce(Ops.MAX, 1),
    "argmax": lambda: param(0, 70, 8192).argmax(1),
    "argmin": lambda: param(0, 33, 777).argmin(1),
    "argmax of all": lambda: param(0, 300_000).argmax(1),
    "normalised 33x1000": lambda: normalised(33, 1000),
    "normalised 5x777": lambda: normalised(5, 777),
    "normalised 1000x64": lambda: normalised(1000, 64),
    "normalised 3x40000": lambda: normalised(3, 40000),
    "normalised 3x100003": lambda: normalised(3, 100_003),
    "product 64": lambda: product(64, 64, 64),
    "product 100x140x33": lambda: product(100, 140, 33),
    "product 512": lambda: product(512, 512, 512),
    "two outputs": lambda: [param(0, 40, 500).reduce(Ops.MAX, 1), param(0, 40, 500) * 0.5],
    "two reductions": lambda: [
        param(0, 40, 500).reduce(Ops.MIN, 1),
        param(0, 40, 500).reduce(Ops.ADD, 1),
    ],
}


def inputs_of(bodies: list[UOp], seed: int = 0) -> dict[int, Array]:
    rng = np.random.default_rng(seed)
    params = {u.arg.slot: u for u in toposort(*bodies) if u.op is Ops.BUFFER}
    return {s: random_array(rng, u.dtype, u.arg.shape) for s, u in sorted(params.items())}


def emulated(kernel: Kernel, bodies: list[UOp], arrays: dict[int, Array]) -> list[Array]:
    """The outputs of the kernel's own steps, emulated."""
    memory = dict(arrays)
    for step in kernel.steps:
        for p in step.source.params:
            if p.slot not in memory:
                memory[p.slot] = np.zeros(p.size, p.dtype.numpy)
        Program(emulate(step.sink, step.source.name))(*(memory[p.slot] for p in step.source.params))
    first = 1 + max(arrays, default=-1)
    return [memory[first + n].reshape(b.shape) for n, b in enumerate(bodies)]


def launch_and_compare(bodies: list[UOp], opts: Opts | None, arrays: dict[int, Array]) -> None:
    kernel = compile(bodies, opts, "cuda")
    got = kernel(*(arrays[s] for s in sorted(arrays)))
    got = got if isinstance(got, list) else [got]
    if any(0 in g.shape for g in got):
        return
    rounded = any(u.op in TRANSCENDENTAL for u in toposort(*bodies))
    for g, w in zip(got, emulated(kernel, bodies, arrays), strict=True):
        if rounded:
            _within(g, w, 2 * ULPS * _ulp(w))
        else:
            assert_same(g, w)


@pytest.mark.parametrize("name", SUITE)
def test_suite(name: str) -> None:
    body = SUITE[name]()
    bodies = body if isinstance(body, list) else [body]
    launch_and_compare(bodies, None, inputs_of(bodies))


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_every_dtype(dtype: DType) -> None:
    x = param(0, 1003, dtype=dtype)
    bodies = [x.flip((0,)), x.cast(dtypes.f32), param(1, 1003).cast(dtype)]
    if not dtype.storage:
        bodies += [x.maximum(x.flip((0,))), x.reduce(Ops.MAX, 1).reshape((1,))]
    for body in bodies:
        launch_and_compare([body], None, inputs_of([body]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_of_every_float(dtype: DType) -> None:
    for shape in ((37, 1000), (5, 70_001)):
        body = param(0, *shape, dtype=dtype).reduce(Ops.ADD, 1)
        launch_and_compare([body], None, inputs_of([body]))


@pytest.mark.parametrize("seed", range(RANDOM_KERNELS))
def test_random_kernels_under_random_opts(seed: int) -> None:
    rng = random.Random(seed)
    case: Case = random_case(rng)
    bodies = list(case.bodies)
    opts = random_opts(rng, bodies, gpu=True) if seed % 4 else None
    if opts is not None and opts.blocks:
        try:
            compile(bodies, opts, "emulated")
        except UsageError:  # not every reduction splits over blocks
            opts = Opts.from_json(json.dumps(json.loads(opts.to_json()) | {"blocks": []}))
    read = {u.arg.slot for u in toposort(*bodies) if u.op is Ops.BUFFER}
    launch_and_compare(bodies, opts, {s: a for s, a in case.arrays.items() if s in read})


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "name", ["axpy", "columns", "argmin", "normalised 5x777", "product 64", "two outputs"]
)
def test_small_kernels_for_the_sanitizer(name: str) -> None:
    test_suite(name)


@pytest.mark.sanitizer
@pytest.mark.parametrize(("n", "tile"), [(64, 16), (96, 32)])
def test_hand_written_shared_memory_product(n: int, tile: int) -> None:
    sink = smem_gemm_ir(n, tile)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n * n).astype(np.float32) for _ in range(2))
    launched, there = np.zeros(n * n, np.float32), np.zeros(n * n, np.float32)
    source = render_cuda(sink, "gemm", cuda.device_target())
    cuda.run_cuda(source, "gemm", *launch_dims(sink), a, b, launched)
    Program(emulate(sink, "gemm"))(a, b, there)
    assert_same(launched, there)
    np.testing.assert_allclose(launched.reshape(n, n), a.reshape(n, n) @ b.reshape(n, n), atol=1e-4)

"""Launched kernels give the bits of emulated ones: one PROGRAM, on an NVIDIA GPU and on the CPU.

Exact ops and reductions, float sums included (both sides fold the same tree), agree bit for bit;
kernels with transcendentals agree within the ulps that the oracle allows.
"""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tests.helpers import assert_same
from tests.kernels import arrays_of, param
from tests.random_kernels import ULPS, Case, random_case
from tests.suite import SUITE, bodies_of
from tests.three_ways import _ulp, _within, random_opts
from uopc.dtype import DATA, FLOATS, DType, dtypes
from uopc.errors import UsageError
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile, emulate, launch_dims, render_cuda
from uopc.runtime import cuda
from uopc.runtime.program import Program
from uopc.uop.node import UOp, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import TRANSCENDENTAL, Ops

pytestmark = pytest.mark.gpu
RANDOM_KERNELS = 120


def emulated(kernel: Kernel, bodies: list[UOp], arrays: dict[int, Array]) -> list[Array]:
    """The outputs of the kernel's own steps, emulated."""
    memory = dict(arrays)
    for step in kernel.steps:
        for p in step.source.params:
            if p.slot not in memory:
                memory[p.slot] = np.zeros(p.size, p.dtype.numpy)
        source = emulate(step.sink, step.source.name, target=kernel.target)
        Program(source)(*(memory[p.slot] for p in step.source.params))
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
    bodies = bodies_of(SUITE[name]())
    launch_and_compare(bodies, None, arrays_of(*bodies))


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_every_dtype(dtype: DType) -> None:
    x = param(0, 1003, dtype=dtype)
    bodies = [x.flip((0,)), x.cast(dtypes.f32), param(1, 1003).cast(dtype)]
    if not dtype.storage:
        bodies += [x.maximum(x.flip((0,))), x.reduce(Ops.MAX, 1).reshape((1,))]
    for body in bodies:
        launch_and_compare([body], None, arrays_of(body))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_of_every_float(dtype: DType) -> None:
    for shape in ((37, 1000), (5, 70_001)):
        body = param(0, *shape, dtype=dtype).reduce(Ops.ADD, 1)
        launch_and_compare([body], None, arrays_of(body))


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

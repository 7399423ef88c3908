"""Rendered C computes what the oracle computes, op by op: random trees in one file, bit for bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import assert_same
from tests.kernels import param
from tests.trees import assert_computes, data_kernel, index_kernel, points
from uopc.dtype import DType, dtypes
from uopc.pipeline import compile, launch_dims, render_cuda
from uopc.runtime import cuda
from uopc.runtime.nvrtc import compile_cubin
from uopc.uop.node import UOp
from uopc.uop.ops import AxisType
from uopc.uop.oracle import run
from uopc.uop.spec import Stage

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 2


@pytest.mark.parametrize("seed", range(SEEDS))
def test_data_of_every_dtype(seed: int) -> None:
    assert_computes(data_kernel(seed), points())


@pytest.mark.parametrize("seed", range(4 * SEEDS))
def test_index_arithmetic(seed: int) -> None:
    assert_computes(index_kernel(seed), {})


@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_cuda_takes_the_same_trees(target: str) -> None:
    root = data_kernel(0, AxisType.LOCAL)
    assert compile_cubin(render_cuda(root, "trees", target), "trees", target).code


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc, which checks for undefined behaviour")
def test_c_leaves_nothing_undefined() -> None:
    checks = "-fsanitize=undefined,float-cast-overflow -fno-sanitize-recover"
    run = subprocess.run(
        [sys.executable, "-m", "tests.trees", "1"],
        cwd=ROOT,
        env={**os.environ, "UOPC_CC": f"gcc {checks}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot find" in run.stderr and "ubsan" in run.stderr:
        pytest.skip("gcc has no libubsan")
    assert run.returncode == 0, run.stderr


@pytest.mark.gpu
def test_a_gpu_computes_the_same() -> None:
    root, arrays = data_kernel(0, AxisType.LOCAL), points()
    source = render_cuda(root, "trees", cuda.device_target())
    made = {p.slot: np.zeros(p.size, p.dtype.numpy) for p in source.params if p.written}
    given = (made.get(p.slot, arrays.get(p.slot)) for p in source.params)
    cuda.run_cuda(source, "trees", *launch_dims(root), *given)
    for slot, want in run(root, arrays, Stage.LOOPS).items():
        assert_same(made[slot], want.reshape(-1))


# ---- what gcc does to floats that the IR does not allow
N = 9
UP = np.arange(N, dtype=np.float32)


@pytest.mark.parametrize("target", ["cpu", "emulated"])
@pytest.mark.parametrize(
    "negated",
    [lambda x: -x, lambda x: x * -1.0, lambda x: x / -1.0, lambda x: -0.0 - x],
    ids=["-x", "x * -1", "x / -1", "-0 - x"],
)
def test_a_sum_that_cancels_is_minus_zero_negated(
    negated: Callable[[UOp], UOp], target: str
) -> None:
    """gcc makes one instruction of -fma(a, b, c): -a*b - c, which would be +0."""
    a, b, c = (param(slot, N) for slot in range(3))
    got = compile(negated(a.fma(b, c)), None, target)(UP, np.ones(N, np.float32), -UP)
    assert_same(got, np.full(N, -0.0, np.float32))


@pytest.mark.parametrize("target", ["cpu", "emulated"])
@pytest.mark.parametrize("through", [dtypes.i32, dtypes.i64, dtypes.i8], ids=str)
def test_whole_numbers_have_no_minus_zero(through: DType, target: str) -> None:
    """gcc makes a truncation of (float)(int)x: -0 for -0.5."""
    got = compile(param(0, N).cast(through).cast(dtypes.f32), None, target)(UP / -16)
    assert_same(got, np.zeros(N, np.float32))

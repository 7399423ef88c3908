"""Which rows are spread over clusters of blocks, and how."""

from __future__ import annotations

import pytest

from tests.kernels import outputs, param, softmax
from tests.suite import layernorm
from uopc.choose.facts import KernelFacts
from uopc.choose.gpu import Aim, rank
from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.pipeline import compile, gpu_opt_choice
from uopc.target import target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

F32, BF16 = dtypes.f32, dtypes.bf16


def best(body: UOp, on: str = "sm_90a") -> Opts:
    return rank(KernelFacts.of([body], outputs([body])), Aim(target(on)))[0]


def soft(rows: int, n: int, dtype: DType = F32) -> UOp:
    x = param(0, rows, n, dtype=dtype)
    return softmax(x) if dtype is F32 else softmax(x.cast(F32)).cast(dtype)


@pytest.mark.parametrize(
    ("rows", "n", "dtype", "cluster", "threads"),
    [
        (256, 131072, F32, 8, 512),
        (1024, 56000, F32, 4, 512),
        (1024, 49152, F32, 4, 512),
        (128, 262144, F32, 8, 512),
        (2048, 32768, F32, 2, 512),
        (4096, 16384, F32, 2, 256),
        (4096, 16384, BF16, 1, 256),
        (8192, 8192, F32, 1, 512),
        (256, 131072, BF16, 8, 256),
        (2048, 32768, BF16, 2, 256),
        (16, 32768, F32, 8, 256),
        (64, 8192, F32, 2, 256),
    ],
)
def test_softmax(rows: int, n: int, dtype: DType, cluster: int, threads: int) -> None:
    opts = best(soft(rows, n, dtype))
    assert dict(opts.cluster).get(1, 1) == cluster, opts
    assert dict(opts.local)[1] == threads, opts
    held = cluster * threads * dict(opts.upcast)[1] * dict(opts.vector)[1]
    assert n <= held < 1.15 * n, opts


def test_what_no_cluster_holds_is_read_several_times() -> None:
    assert not best(soft(64, 400_000)).cluster


def test_one_row() -> None:
    """Eight SMs work on it instead of one."""
    assert best(soft(1, 131072)).cluster == ((0, 8),)


def test_weights_beside_a_row_take_registers() -> None:
    opts = best(layernorm(4096, 16384))
    assert opts.cluster == ((1, 2),) and not opts.early


@pytest.mark.parametrize("on", ["sm_80", "sm_89"])
def test_targets_without_clusters(on: str) -> None:
    assert not any(o.cluster for o in _ranked(soft(256, 131072), on))


def _ranked(body: UOp, on: str) -> list[Opts]:
    return rank(KernelFacts.of([body], outputs([body])), Aim(target(on)))


def test_sums_need_none() -> None:
    """What is read once anyway is split over the grid, or looped over."""
    assert not best(param(0, 256, 131072).reduce(Ops.ADD, 1)).cluster
    assert not gpu_opt_choice(soft(256, 131072), target="sm_80").cluster


@pytest.mark.parametrize(
    ("rows", "n", "dtype"),
    [
        *(
            (rows, n, d)
            for rows, n in ((256, 131072), (1024, 56000), (16, 32768))
            for d in (F32, BF16)
        ),
        (100, 40001, F32),
        (128, 262144, F32),
    ],
)
def test_choices_hold_their_rows_in_registers(rows: int, n: int, dtype: DType) -> None:
    """No spill, no stack, and as many blocks an SM as the choice says."""
    (step,) = compile(soft(rows, n, dtype), target="sm_90a").steps
    used, on = step.cubin.resources, target("sm_90a")
    assert step.opts.cluster and not used.spills and not used.stack_bytes
    per_sm = on.registers_per_sm // (used.registers * step.program.launch.threads)
    assert per_sm >= step.opts.blocks_per_sm
    text = str(step.cuda_source)
    assert text.count("p0[") == 1, "one load of the row"
    assert "__cluster_dims__(" in text


@pytest.mark.gpu
@pytest.mark.parametrize("rows, n", [(5, 131072), (7, 56000), (3, 16384), (40, 40001)])
def test_launched_clusters_have_the_emulated_bits(rows: int, n: int) -> None:
    import numpy as np

    from uopc.kernel import Numerics
    from uopc.render.emulate import render_emulated
    from uopc.runtime import cuda
    from uopc.runtime.program import Program

    on = cuda.device_target()
    if not on.has_clusters:
        pytest.skip(f"{on} has no clusters: they take sm_90 or later")
    kernel = compile(soft(rows, n), target="cuda", numerics=Numerics(exact_math=True))
    assert kernel.opts.cluster
    x = np.random.default_rng(0).standard_normal((rows, n)).astype(np.float32)
    got = kernel(x)
    (step,) = kernel.steps
    emulated = np.zeros(x.size, np.float32)
    Program(render_emulated(step.program, step.source.name, target=on))(x.reshape(-1), emulated)
    np.testing.assert_array_equal(got.reshape(-1).view(np.uint32), emulated.view(np.uint32))

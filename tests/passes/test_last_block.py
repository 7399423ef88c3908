"""A reduction over several blocks in one launch: the last block of a group folds its parts."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import uopc
from tests.helpers import assert_same
from tests.kernels import OUT, arrays_of, columns, indexed, param
from uopc.choose.folding import folding_opts
from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.passes.split_grid import split_grid
from uopc.pipeline import Kernel, compile_kernel
from uopc.runtime.program import Program
from uopc.schedule.plan import schedule
from uopc.target import target
from uopc.tensor import Tensor, jit
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Fence, Ops
from uopc.uop.oracle import evaluate
from uopc.uop.spec import Stage, check

CASES: dict[str, tuple[UOp, Opts]] = {
    "sum": (
        param(0, 1000).reduce(Ops.ADD, 1).reshape((1,)),
        Opts(gpu=True, blocks={0: 4}, local={0: 64}),
    ),
    "more parts than threads": (
        param(0, 3000).reduce(Ops.MAX, 1).reshape((1,)),
        Opts(gpu=True, blocks={0: 70}, local={0: 32}),
    ),
    "ragged rows": (
        param(0, 3, 97).reduce(Ops.ADD, 1) * 2.0,
        Opts(gpu=True, blocks={1: 5}, local={0: 2, 1: 8}, lanes=(1, 0)),
    ),
    "argmax": (param(0, 3, 500).argmax(1), Opts(gpu=True, blocks={1: 4}, local={1: 64})),
    "columns": (
        columns(param(0, 400, 24)),
        Opts(gpu=True, blocks={1: 8}, local={0: 4, 1: 8}, vector={0: 4}, lanes=(0, 1)),
    ),
    "halves": (
        param(0, 2, 640, dtype=dtypes.f16).reduce(Ops.ADD, 1),
        Opts(gpu=True, blocks={1: 2}, local={1: 32}, vector={1: 8}),
    ),
}


def kernel_of(name: str, on: str = "emulated") -> Kernel:
    body, opts = CASES[name]
    return uopc.compile(body, opts, on)


@pytest.mark.parametrize("name", CASES)
def test_one_launch_gives_what_the_body_is(name: str) -> None:
    body, _ = CASES[name]
    kernel, arrays = kernel_of(name), arrays_of(body)
    (step,) = kernel.steps
    check(step.sink, Stage.LOOPS)
    got, want = kernel(arrays[0]), evaluate(body, arrays)
    if body.dtype.is_float:
        np.testing.assert_allclose(got, want, rtol=1e-3 if body.dtype.bits == 16 else 2e-6)
    else:
        assert_same(got, want)
    verdict = uopc.check(kernel, arrays[0])  # in several orders of blocks and warps
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_takes_it(name: str, arch: str) -> None:
    resources = kernel_of(name, arch).steps[0].cubin.resources
    assert not resources.spills and resources.registers <= 64


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_launched_with_the_bits_of_the_emulation(name: str) -> None:
    x = arrays_of(CASES[name][0])[0]
    launched, emulated = kernel_of(name, "cuda"), kernel_of(name)
    for _ in range(3):
        assert_same(launched(x), emulated(x))


def test_a_group_has_a_ticket_of_its_own() -> None:
    kernel = kernel_of("columns")
    (counter,) = [p for p in kernel.partials if p.arg.slot in kernel.counters]
    assert counter.dtype is dtypes.u32 and counter.arg.shape == (2,)  # 24 columns, 16 a block
    fences = [u for u in toposort(kernel.steps[0].sink) if u.op is Ops.FENCE]
    assert [u.arg for u in fences] == [Fence.DEVICE] * 2


def test_counters_are_left_as_they_were() -> None:
    kernel = kernel_of("columns")
    x = arrays_of(CASES["columns"][0])[0].reshape(-1)
    held = {p.arg.slot: np.zeros(p.arg.shape, p.dtype.numpy) for p in kernel.partials}
    (slot,) = kernel.output_slots
    (step,) = kernel.steps
    program = Program(step.runs, "kernel")
    for _ in range(3):
        program(x, *({slot: np.empty(24, np.float32)} | held).values())
        assert not any(held[slot].any() for slot in kernel.counters)


@given(st.data())
def test_any_parts_and_threads(data: st.DataObject) -> None:
    rows, n = data.draw(st.integers(2, 4)), data.draw(st.integers(2, 300))
    opts = Opts(
        gpu=True,
        blocks={1: data.draw(st.integers(2, 9))},
        local={0: data.draw(st.integers(1, 2)), 1: data.draw(st.sampled_from([1, 4, 32, 33]))},
        vector={1: data.draw(st.sampled_from([1, 4]))},
        upcast={1: data.draw(st.integers(1, 3))},
        lanes=(1, 0),
    )
    body = param(0, rows, n, dtype=dtypes.i32).reduce(Ops.ADD, 1)
    kernel = uopc.compile(body, opts, "emulated", check=True)
    arrays = arrays_of(body)
    assert_same(kernel(arrays[0]), evaluate(body, arrays))


# ---- where one launch would be wrong, or a choice of its own is better
def folding(body: UOp, opts: Opts) -> Opts | None:
    first, mine, second, _ = split_grid(indexed(body), opts, OUT + 1)
    return folding_opts(first, mine, second)


def test_a_sum_of_other_reductions_has_two_launches() -> None:
    body = param(0, 2, 6, 5).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1)
    assert folding(body, Opts(gpu=True, blocks={2: 3})) is None


def test_what_is_repeated_along_a_row_has_two_launches() -> None:
    x = param(0, 3, 64)
    body = x - x.reduce(Ops.ADD, 1).reshape((3, 1)).expand((3, 64))
    assert folding(body, Opts(gpu=True, blocks={1: 4})) is None


def test_what_other_groups_still_read_is_not_overwritten_by_the_first_one() -> None:
    """x[0] becomes a column's sum while other columns' blocks may still load from x."""
    x = Tensor(np.ones((4096, 64), np.float32))
    x[0] = x.sum(0)
    assert x.tolist() == [[4096.0] * 64] + [[1.0] * 64] * 4095


# ---- tensors
def test_a_sum_of_tensors_again_and_again() -> None:
    """Its counters are memory that lasts: every launch leaves them zero."""
    x = Tensor(np.ones(300_000, np.float32), device="emulated")
    step = jit(lambda t: (t * 2.0).sum())
    for n in range(1, 5):
        assert (x * float(n)).sum().item() == 300_000.0 * n
        assert step(x * float(n)).item() == 600_000.0 * n


def test_the_schedule_of_a_long_sum_is_one_launch() -> None:
    body = schedule([param(0, 1 << 24).reduce(Ops.ADD, 1)], target("sm_90")).launches
    (launch,) = body
    kernel = compile_kernel(launch.body, "sm_90", launch.name)
    assert len(kernel.steps) == 1 and kernel.counters

"""`uopc.report` and `uopc.predict`: a kernel in whatever form it comes."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from tests.access_table import shared_tile
from tests.kernels import param, product, softmax
from uopc import reporting
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.inspect.gpus import GPUS
from uopc.inspect.records import AccessReport, How, ProgramReport
from uopc.opts import Opts
from uopc.runtime import cuda
from uopc.runtime.timing import CUDAClock, time_candidates
from uopc.tensor import empty
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

N = 1 << 20
DOUBLE = param(0, N) * 2.0


def gathered() -> UOp:
    return param(0, 100).gather((~0,), param(1, 64, dtype=dtypes.i32))


def table_load(made: ProgramReport) -> AccessReport:
    (found,) = [a for a in made.launches[0].accesses if (a.op, a.memory) == ("LOAD", "p0")]
    return found


# ---- what can be reported on
def test_a_body() -> None:
    made = uopc.report(DOUBLE, target="sm_90a", name="twice")
    (one,) = made.launches
    assert (made.name, one.name, one.target.name) == ("twice", "twice", "sm_90a")
    assert made.moved_bytes == 2 * 4 * N


def test_several_bodies() -> None:
    made = uopc.report([DOUBLE, param(0, N) + 1.0], target="sm_80")
    assert made.moved_bytes == 3 * 4 * N


def test_opts() -> None:
    opts = Opts(gpu=True, local={0: 64})
    (one,) = uopc.report(DOUBLE, opts=opts, target="sm_80").launches
    assert one.opts == opts and one.block == (64, 1, 1)


def test_a_compiled_kernel() -> None:
    kernel = uopc.compile(DOUBLE, target="sm_80", name="mine")
    made = uopc.report(kernel)
    assert made == kernel.report() and made.launches[0].name == "mine"
    assert uopc.report(kernel, target="sm_80") == made  # that is what it is
    with pytest.raises(UsageError, match="compiled already, for sm_80"):
        uopc.report(kernel, target="sm_90a")


def test_loop_ir() -> None:
    made = uopc.report(shared_tile(32), name="tile", target="sm_90a")
    (one,) = made.launches
    assert one.name == "tile" and [w.kind for w in one.warnings] == ["bank conflicts"]
    with pytest.raises(UsageError, match="loop IR"):
        uopc.report(shared_tile(32), opts=Opts(gpu=True))


def test_tensors() -> None:
    x, weight = empty(64, 256), empty(256, 128)
    hidden = (x @ weight).relu()
    one = uopc.report(hidden, target="sm_90a")
    assert one.boundaries and one.least_bytes <= one.moved_bytes
    several = uopc.report([hidden.softmax(1), hidden.sum(0)], target="sm_90a")
    assert len(several.launches) == 2 and len(several.boundaries) > len(one.boundaries)
    with pytest.raises(UsageError, match="tensors, which have their values: no arrays"):
        uopc.report(hidden, np.zeros(3), target="sm_90a")


@pytest.mark.parametrize("thing", [3, "softmax", None, [], [DOUBLE, 3]])
def test_what_is_no_kernel(thing: object) -> None:
    with pytest.raises(UsageError):
        uopc.report(thing)


def test_a_cpu_is_no_target() -> None:
    for kernel in (DOUBLE, uopc.compile(DOUBLE, target="cpu")):
        with pytest.raises(UsageError, match=r"is for cpu: .* wants a GPU target"):
            uopc.report(kernel, target="cpu")


# ---- the GPU of times
def test_the_target_follows_the_gpu() -> None:
    (one,) = uopc.report(DOUBLE, gpu="T4").launches
    assert (one.target.name, one.roofline.gpu) == ("sm_75", "T4")
    (one,) = uopc.report(DOUBLE, gpu="H200", target="sm_80").launches
    assert (one.target.name, one.roofline.gpu) == ("sm_80", "H200")


def test_a_gpu_that_cannot_run_it() -> None:
    with pytest.raises(UsageError, match="a kernel for sm_90a does not run on T4, which is sm_75"):
        uopc.report(DOUBLE, gpu="T4", target="sm_90a")
    with pytest.raises(UsageError, match="no GPU is called 'H300'"):
        uopc.report(DOUBLE, gpu="H300")


def test_predictions_are_microseconds() -> None:
    """A gigabyte at 4.3 TB/s is a quarter of a millisecond; half of it takes half as long."""
    large, half = (param(0, n << 20) + param(1, n << 20) for n in (96, 48))
    us = uopc.predict(large, "H200")
    assert us == pytest.approx(96 * 12 * 1.048576e6 / 4.31e12 * 1e6 + 4.9, rel=0.02)
    assert uopc.predict(half, "H200") == pytest.approx((us + 4.9) / 2, rel=0.02)
    assert us == uopc.report(large, gpu="H200").predicted_s * 1e6
    assert uopc.predict(large, "A100") > 2 * us
    assert uopc.predict(large, GPUS["H200"], target="sm_90a") == pytest.approx(us, rel=0.01)


# ---- where data decides
def test_arrays_say_where_data_sends_accesses() -> None:
    assert table_load(uopc.report(gathered())).how is How.UNKNOWN
    values = np.arange(100, dtype=np.float32)
    index = (np.arange(64) % 2).astype(np.int32)
    found = table_load(uopc.report(gathered(), values, index))
    assert (found.how, found.requests, found.sectors) == (How.EMULATED, 2, 2)
    spread = (np.arange(64) * 8 % 100).astype(np.int32)
    assert table_load(uopc.report(gathered(), values, spread)).sectors > 20


def test_arrays_of_a_compiled_kernel() -> None:
    kernel = uopc.compile(gathered(), target="sm_80")
    found = uopc.report(kernel, np.zeros(100, np.float32), np.zeros(64, np.int32))
    assert table_load(found).how is How.EMULATED


@pytest.mark.parametrize("body", [gathered(), DOUBLE])
def test_arrays_that_do_not_fit(body: UOp) -> None:
    with pytest.raises(UsageError):
        uopc.report(body, np.zeros(99, np.float32), np.zeros(64, np.int32))


def test_arrays_that_nothing_depends_on() -> None:
    assert uopc.report(DOUBLE, np.zeros(N, np.float32)) == uopc.report(DOUBLE)


def test_long_emulations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MOST_WORK", 10)
    found = uopc.report(gathered(), np.zeros(100, np.float32), np.zeros(64, np.int32))
    assert table_load(found).how is How.UNKNOWN


# ---- what is suggested is tried
def test_a_change_is_tried() -> None:
    opts = Opts(gpu=True, local={0: 8, 1: 32})
    (one,) = uopc.report(param(0, 1024, 1024).permute((1, 0)) * 2.0, opts=opts, gpu="H200").launches
    (said,) = one.warnings
    assert said.opts is not None
    assert said.tried.startswith("262144 sectors instead of 1179648, ")
    assert said.tried.endswith(f" us expected instead of {one.roofline.predicted_s * 1e6:.1f}")


def test_a_change_that_is_refused_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    real = uopc.compile
    asked = []

    def once(*given: object) -> object:
        asked.append(given)
        if len(asked) > 1:
            raise UsageError("it cannot be")
        return real(*given)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(reporting, "compile", once)
    (one,) = uopc.report(DOUBLE, opts=Opts(gpu=True, local={0: 4}), target="sm_80").launches
    (said,) = one.warnings
    assert (said.opts, said.tried) == (None, "refused: it cannot be")


def test_more_blocks_that_would_not_help_are_no_fault() -> None:
    """Two copies a thread less make 128 blocks of 64, of a kernel that is all launch."""
    body, opts = param(0, 1 << 18) * 2.0, Opts(gpu=True, local={0: 1024}, upcast={0: 4})
    kernel = uopc.compile(body, opts, "sm_90a")
    assert [w.kind for w in kernel.report().launches[0].warnings] == ["few blocks"]
    assert uopc.report(body, opts=opts, target="sm_90a").launches[0].warnings == ()


def test_more_blocks_that_help_are_worth_a_word() -> None:
    body = param(0, 8, 1 << 18).reduce(Ops.MAX, 1)
    (one,) = uopc.report(body, opts=Opts(gpu=True, local={1: 256}), target="sm_90a").launches
    (said,) = one.warnings
    assert said.kind == "few blocks" and "us expected instead of" in said.tried


def test_ordinary_kernels_have_nothing_to_try() -> None:
    for body in (DOUBLE, softmax(param(0, 4096, 1000)), product(1024, 1024, 1024)):
        assert uopc.report(body, gpu="H200").launches[0].warnings == ()


# ---- beside a GPU
@pytest.mark.gpu
@pytest.mark.uninstrumented
@pytest.mark.parametrize("name", ["add", "softmax"])
def test_what_is_predicted_is_near_what_is_measured(name: str) -> None:
    """Large ones, of which the model knows most: within a factor of two on a GPU by its name."""
    here = cuda.describe()
    known = [g for g in GPUS if g in here]
    if not known:
        pytest.skip(f"none of {', '.join(GPUS)} is here, but {here}")
    n = 64 << 20
    body = softmax(param(0, 8192, 8192)) if name == "softmax" else param(0, n) + param(1, n)
    kernel, gpu = uopc.compile(body, target="cuda"), cuda.open_device()
    inputs = [gpu.zeros((n,), np.dtype(np.float32)) for _ in kernel.input_slots]
    out = gpu.empty((n,), np.dtype(np.float32))
    runs = {name: lambda: kernel(*inputs, out=out)}
    taken = time_candidates(runs, CUDAClock(gpu), samples=7)[name]
    expected_s = uopc.predict(kernel, known[0]) * 1e-6
    assert expected_s / 2 < taken.median_s < expected_s * 2

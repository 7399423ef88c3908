"""A profile of launches on a GPU made of host memory: what is launched when, and between events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pytest import approx

from tests.runtime.fake_cuda import FakeCUDA
from uopc.dtype import dtypes
from uopc.examples import smem_gemm_ir
from uopc.profiling import profile
from uopc.profiling.measure import WARM
from uopc.runtime import cuda
from uopc.tensor import Tensor, engine, jit, prepare, storage
from uopc.uop.node import buffer

MS = 1e-3  # what every launch of the fake takes
RUNS = 3


@pytest.fixture
def gpu(fake_hopper: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCUDA]:
    """The fake as the device of tensors; what is prepared for it is forgotten with it."""
    monkeypatch.setattr(cuda, "why_unusable", lambda: "")
    for module, name in ((prepare, "_compiled"), (prepare, "_batched"), (prepare, "_arenas")):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(engine, "_plans", type(engine._plans)())
    with storage.making_on("cuda"):
        yield fake_hopper


def launched(gpu: FakeCUDA) -> list[str]:
    return [launch[0] for launch in gpu.launches]


def test_each_kernel_has_the_gpu_held_before_its_events(gpu: FakeCUDA) -> None:
    a = Tensor(np.ones((8, 4), np.float32))
    found = profile(lambda: (a + 1).sum(axis=0), runs=RUNS)
    (kernel,) = found.kernels
    name = kernel.name
    first = [name] * WARM
    each = [name, "uopc_hold", name]  # not observed, then timed
    empties = ["uopc_hold", "uopc_empty"] * (RUNS + 1)
    assert launched(gpu) == [*first, *each * RUNS, name, *empties]
    assert kernel.median_s == approx(1 * MS)  # the hold is before its first event
    assert found.step_s == approx(1 * MS)
    assert found.empty_s == approx(1 * MS)
    assert (found.clock, found.device, found.replay_s) == ("CUDA events", "cuda", None)
    assert (kernel.grid, kernel.block) == gpu.launches[0][1:3]
    assert {launch[-1] for launch in gpu.launches} == {8}  # all on the stream of tensors


def test_a_captured_step_is_timed_kernel_by_kernel_and_as_a_whole(gpu: FakeCUDA) -> None:
    a = Tensor(np.ones((16, 16), np.float32))

    @jit
    def step() -> Tensor:
        return (a + 1).sum(axis=0) / (a * 2).sum(axis=1)

    found = profile(step, runs=RUNS)
    (capture,) = next(iter(step._captures.values()))
    count = len(capture.replay)
    assert sum(k.calls for k in found.kernels) == count
    # the third call replays the graph, so do those that are not observed, whole replays, the last
    assert len(gpu.graph_launches) == WARM - 2 + RUNS + RUNS + 1
    assert found.replay_s == 0  # the fake counts launches: a graph's were made when it was recorded
    assert found.sum_s == approx(count * MS)


def test_a_body_and_loop_ir_run_on_memory_of_their_own(gpu: FakeCUDA) -> None:
    x = buffer(0, dtypes.f32, (64,))
    found = profile(x + 1.0, np.ones(64, np.float32), runs=1, device="cuda")
    assert [k.name for k in found.kernels] == ["kernel"]
    found = profile(smem_gemm_ir(64, 16), runs=1, device="cuda", name="by_hand")
    (kernel,) = found.kernels
    assert (kernel.name, kernel.must_bytes) == ("by_hand", 3 * 64 * 64 * 4)
    assert launched(gpu).count("by_hand") == WARM + 2 + 1

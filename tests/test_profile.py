"""`uopc profile`: times of kernels add up, are sorted, and say what they are of; traces open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest import approx

import uopc
from tests.commands import environment
from tests.profiling_fakes import EMPTY_S, EVENT_S, FakeGPU, FakeKernel, FakeProgram, clocks_of
from uopc.cli import main
from uopc.compiled import Step
from uopc.dtype import dtypes
from uopc.errors import TargetError, UopcError, UsageError
from uopc.examples import smem_gemm_ir
from uopc.inspect.records import Roofline
from uopc.pipeline import compile
from uopc.profiling import Profile, profile
from uopc.profiling import clocks as clocks_module
from uopc.profiling import judge as judge_module
from uopc.profiling.clocks import GPUClock, HostClock
from uopc.profiling.judge import Rooflines, known_gpu
from uopc.profiling.measure import WARM, measure
from uopc.profiling.trace import Slice, Track, trace_events
from uopc.runtime import observe
from uopc.runtime.graph import Launch
from uopc.runtime.nvrtc import compile_cubin
from uopc.target import target
from uopc.tensor import Tensor, jit, nn, optim, storage
from uopc.tensor.engine import schedule_of
from uopc.uop import sink
from uopc.uop.node import UOp, buffer

MATMUL_GPU = 4096  # of tests on a GPU: far above what events cost
US = 1e-6


# ---- times of a GPU whose clock is told what happens
def profiled(
    *kernels: FakeKernel, gap_s: float = 0.0, runs: int = 5, judge: Any = None
) -> tuple[Profile, FakeGPU]:
    gpu = FakeGPU()
    program = FakeProgram(gpu, lambda run: [(k, 0.0) for k in kernels], gap_s)
    return measure(program, runs, judge or Refuses(), clocks_of(gpu), idle_s=0), gpu


def test_kernels_are_sorted_by_their_time_in_a_run() -> None:
    often, long, short = (
        FakeKernel("often", 6 * US),
        FakeKernel("long", 10 * US),
        FakeKernel("short", 1 * US),
    )
    found, _ = profiled(short, often, long, often)
    assert [k.name for k in found.kernels] == ["often", "long", "short"]
    assert [k.calls for k in found.kernels] == [2, 1, 1]
    assert [k.median_s for k in found.kernels] == approx([7 * US, 11 * US, 2 * US])
    assert [k.total_s for k in found.kernels] == approx([14 * US, 11 * US, 2 * US])
    assert [found.share(k) for k in found.kernels] == approx([14 / 27, 11 / 27, 2 / 27])
    assert found.sum_s == approx(27 * US)


def test_the_step_is_timed_while_nobody_observes() -> None:
    found, _ = profiled(FakeKernel("one", 50 * US), FakeKernel("two", 30 * US), gap_s=20 * US)
    assert found.step_s == approx(100 * US + EVENT_S)  # without the events around kernels
    assert found.sum_s == approx(80 * US + 2 * EVENT_S)
    assert found.gaps_s == approx(20 * US - EVENT_S)


def test_gaps_are_never_negative() -> None:
    found, _ = profiled(*[FakeKernel(f"k{n}", 0.0) for n in range(9)])
    assert found.sum_s > found.step_s
    assert found.gaps_s == 0


def test_the_gpu_waits_for_the_host_before_each_kernel_that_is_timed() -> None:
    found, gpu = profiled(FakeKernel("one", US), FakeKernel("two", US), runs=5)
    assert gpu.held == 2 * 5 + (5 + 1)  # and before each empty kernel
    assert found.empty_s == approx(EMPTY_S + EVENT_S)


def test_one_slow_launch_does_not_move_the_median() -> None:
    gpu, kernel = FakeGPU(), FakeKernel("one", 10 * US)
    program = FakeProgram(gpu, lambda run: [(kernel, 500 * US if run == 6 else 0.0)])
    found = measure(program, 5, Refuses(), clocks_of(gpu), idle_s=0)
    assert found.kernels[0].median_s == approx(11 * US)
    assert found.kernels[0].total_s == approx(11 * US)
    assert found.step_s == approx(11 * US)


def test_spread_is_half_of_what_is_between_the_quartiles() -> None:
    gpu, kernel = FakeGPU(), FakeKernel("one", 9 * US)
    program = FakeProgram(gpu, lambda run: [(kernel, late * US) for late in (0, 1, 2, 3, 4)])
    found = measure(program, 1, Refuses(), clocks_of(gpu), idle_s=0)
    assert found.kernels[0].spread == approx(1.5 / 12)  # 10 .. 14 us: quartiles 10.5 and 13.5


def test_kernels_of_one_name_are_told_apart() -> None:
    found, _ = profiled(FakeKernel("same", 5 * US, grid=1), FakeKernel("same", 9 * US, grid=2))
    assert [(k.name, k.grid) for k in found.kernels] == [("same", (2, 1, 1)), ("same", (1, 1, 1))]


def test_runs_that_differ_are_said() -> None:
    gpu = FakeGPU()
    always, rare = FakeKernel("always", US), FakeKernel("rare", US)
    # an unobserved run and an observed one take turns: of the observed, every other one has both
    program = FakeProgram(
        gpu, lambda run: [(always, 0.0), *([(rare, 0.0)] if run % 4 == 0 else [])]
    )
    found = measure(program, 4, Refuses(), clocks_of(gpu), idle_s=0)
    assert not found.steady
    assert {k.name: k.calls for k in found.kernels} == {"always": 1, "rare": 0.5}
    assert "not every run starts the same kernels" in found.table()
    assert profiled(always)[0].steady


def test_a_program_that_starts_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"fake: no run starts a kernel .* Let each run compute"):
        profiled()
    gpu, kernel = FakeGPU(), FakeKernel("one", US)
    once = FakeProgram(gpu, lambda run: [(kernel, 0.0)] if run == 0 else [])
    with pytest.raises(UsageError, match="fake: only the first run starts kernels"):
        measure(once, 2, Refuses(), clocks_of(gpu), idle_s=0)


@pytest.mark.parametrize("runs", [0, -1])
def test_runs_are_positive(runs: int) -> None:
    with pytest.raises(UsageError, match=f"a run or more, got runs={runs}"):
        profiled(FakeKernel("one", US), runs=runs)


# ---- what bounds a kernel
def a_step(size: int = 1024) -> Step:
    x = buffer(0, dtypes.f32, (size,))
    return compile([x + 1.0], target="sm_90a", name="add").steps[0]


class Known:
    """A judge who knows one answer."""

    def __init__(self, said: str = "") -> None:
        self.said = said

    def roofline(self, step: Step, device: str) -> Roofline:
        assert device == "cuda"
        return Roofline(
            gpu="a GPU",
            must_bytes=8192,
            moves_bytes=8192,
            memory_bytes=8192,
            assumption="",
            operations=(("fp32", 1024), ("tensor f16", 4096), ("int", 10**9), ("tensor i8", 77)),
            times_s=(("memory", 4 * US),),
            floor_s=4 * US,
            wall="memory",
            wasted=0.0,
            predicted_s=6 * US,
        )

    def note(self, device: str) -> str:
        return self.said


class Refuses(Known):
    def roofline(self, step: Step, device: str) -> Roofline:
        raise TargetError("no figures for sm_90a")


def test_figures_follow_from_what_a_step_must_do() -> None:
    found, _ = profiled(FakeKernel("add", 7 * US, a_step()), judge=Known())
    (kernel,) = found.kernels
    assert found.gpu == "a GPU"
    assert kernel.median_s == approx(8 * US)
    assert kernel.bytes_per_s == approx(8192 / (8 * US))
    assert kernel.flop == 1024 + 4096  # whole numbers are none
    assert kernel.flop_per_s == approx(5120 / (8 * US))
    assert kernel.of_roofline == approx(0.5)
    shown = found.table()
    assert " 50% " in shown
    assert "roofline" in shown and "TFLOP/s" in shown


def test_without_a_roofline_bytes_are_those_of_the_arrays() -> None:
    found, _ = profiled(FakeKernel("add", 7 * US, a_step()))
    (kernel,) = found.kernels
    assert kernel.must_bytes == 2 * 1024 * 4
    assert (kernel.flop, kernel.floor_s, found.gpu) == (1024, 0.0, "")
    assert "roofline " not in found.table().splitlines()[2]


def test_a_kernel_that_cannot_be_judged_is_a_note() -> None:
    found, _ = profiled(FakeKernel("add", 7 * US, a_step()), judge=Refuses())
    assert found.notes == ("add has no roofline: no figures for sm_90a",)
    assert "add has no roofline" in found.table()


def test_what_is_to_know_of_all_rooflines_is_said_once() -> None:
    kernels = [FakeKernel("add", 7 * US, a_step()), FakeKernel("add", 7 * US, a_step(2048))]
    found, _ = profiled(*kernels, judge=Known("not the GPU's own"))
    assert found.notes == ("not the GPU's own",)


@pytest.mark.parametrize(
    ("described", "name"),
    [
        ("NVIDIA H200 (sm_90, driver for CUDA 13.0)", "H200"),
        ("NVIDIA A100-SXM4-80GB (sm_80, driver for CUDA 12.4)", "A100"),
        ("NVIDIA GeForce RTX 4090 (sm_89, driver for CUDA 12.4)", "RTX 4090"),
        ("NVIDIA GH200 480GB (sm_90, driver for CUDA 13.0)", None),
    ],
)
def test_gpus_are_known_by_their_names(described: str, name: str | None) -> None:
    assert known_gpu(described) == name


def test_a_roofline_is_that_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_module._described.cache_clear()
    monkeypatch.setattr(judge_module, "describe", lambda ordinal: "NVIDIA H100 80GB HBM3")
    found = Rooflines().roofline(a_step(), "cuda")
    judge_module._described.cache_clear()
    assert (found.gpu, found.must_bytes, found.wall) == ("H100", 8192, "memory")
    assert found.floor_s == approx(8192 / 3.35e12)
    assert dict(found.operations)["fp32"] == 1024


def test_json_has_every_figure() -> None:
    step = a_step()
    found, _ = profiled(FakeKernel("add", 7 * US, step), judge=Known())
    data = json.loads(found.to_json())
    assert data["step_s"] == found.step_s
    (kernel,) = data["kernels"]
    assert kernel["grid"] == list(step.launch_dims[0])
    assert kernel["gb_per_s"] == approx(1.024)
    assert kernel["of_roofline"] == approx(0.5)
    assert kernel["share"] == 1
    assert kernel["operations"]["tensor f16"] == 4096


# ---- clocks
class StubCUDA:
    """What a GPUClock asks of a GPU."""

    work = "the stream of tensors"

    def __init__(self) -> None:
        self.target = target("sm_90a")
        self.asked: list[Any] = []

    def record(self, stream: Any) -> int:
        self.asked.append(("event", stream))
        return len(self.asked)

    def function(self, source: Any) -> Any:
        return source

    def launch(self, function: Any, grid: None, block: None, *, stream: Any) -> None:
        self.asked.append((function.name, stream))

    def elapsed_ms(self, begin: int, end: int) -> float:
        return float(end - begin)


def test_a_gpu_is_timed_by_events_on_the_stream_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = StubCUDA()
    monkeypatch.setattr(clocks_module, "gpu_of", lambda device: gpu)
    clock = GPUClock("cuda")
    clock.hold()
    begin = clock.mark()
    clock.start_empty()
    assert clock.between_s(begin, clock.mark()) == approx(2e-3)
    names = ["uopc_hold", "event", "uopc_empty", "event"]
    assert gpu.asked == [(name, gpu.work) for name in names]


def test_the_clocks_own_kernels_compile_and_touch_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clocks_module, "gpu_of", lambda device: StubCUDA())
    clock: Any = GPUClock("cuda")
    for source in (clock._holding, clock._nothing):
        assert compile_cubin(source, source.name, "sm_90a").resources.shared_bytes == 0
        assert "ld.global" not in source and source.params == ()


def test_the_host_is_timed_by_the_wall() -> None:
    clock = HostClock("cpu")
    begin, end = clock.mark(), clock.mark()
    assert 0 <= clock.between_s(begin, end) < 1


# ---- programs on this CPU
@pytest.fixture
def cpu() -> Any:
    with storage.making_on("cpu"):
        yield


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def names(tensors: Any) -> list[str]:
    """Of the kernels of a schedule."""
    return sorted(k.name for k in schedule_of(*tensors).launches)


def test_a_function_is_computed_anew_in_each_run(cpu: None) -> None:
    a, b, calls = numbers(64, 64), numbers(64, 64), []

    def program() -> Tensor:
        calls.append(1)
        return (a @ b).exp().sum(axis=0)

    expected = names([program()])
    calls.clear()
    found = profile(program, runs=3)
    assert len(calls) == WARM + 2 * 3 + 1
    assert found.name == "program"
    launched = {k.name.partition("_part")[0] for k in found.kernels}
    assert launched == set(expected)
    assert all(k.median_s > 0 and k.calls == 1 for k in found.kernels)
    assert 0 < found.sum_s < 20 * found.step_s
    assert (found.clock, found.replay_s, found.empty_s) == ("wall time", None, None)


def test_what_a_program_changes_is_changed_in_each_run(cpu: None) -> None:
    count = Tensor(np.zeros(4, np.float32))

    def program() -> None:
        count.assign(count + 1)
        count.realize()

    profile(program, runs=2)
    assert count.numpy().tolist() == [WARM + 2 * 2 + 1] * 4


def test_lazy_tensors_stay_lazy_and_their_memories_as_they_are(cpu: None) -> None:
    count = Tensor(np.zeros(4, np.float32))
    count.realize()
    count.assign(count + 1)
    twice = count * 2
    found = profile([count, twice], runs=2)
    assert sum(k.calls for k in found.kernels) >= 1
    assert count.numpy().tolist() == [1] * 4
    assert twice.numpy().tolist() == [2] * 4


def test_the_kernels_of_lazy_tensors_are_those_of_their_schedule(cpu: None) -> None:
    x = (numbers(32, 48) @ numbers(48, 16)).relu()
    found = profile(x, runs=2, name="x")
    assert found.name == "x"
    assert {k.name.partition("_part")[0] for k in found.kernels} == set(names([x]))


def test_tensors_that_are_computed_have_nothing_to_profile(cpu: None) -> None:
    x = numbers(4) + 1
    x.realize()
    with pytest.raises(UsageError, match="nothing is left to compute"):
        profile(x)


def kernels_of(step: Any) -> list[str]:
    """Of the launches of a captured function's only capture."""
    (capture,) = next(iter(step._captures.values()))
    return sorted(w.launcher.name for w in capture.replay.work if isinstance(w, Launch))


def test_a_captured_step_lists_its_kernels(cpu: None) -> None:
    net = nn.Linear(16, 4)
    descent = optim.SGD(net.parameters(), lr=0.1)
    images, labels = numbers(32, 16), Tensor(np.arange(32, dtype=np.int32) % 4)

    @jit
    def step() -> Tensor:
        descent.zero_grad()
        loss = nn.cross_entropy(net(images), labels)
        loss.backward()
        descent.step()
        return loss

    before = net.parameters()[0].numpy()
    found = profile(step, runs=3)
    assert step.captures == 1
    launched = kernels_of(step)
    assert sorted(k.name for k in found.kernels for _ in range(int(k.calls))) == launched
    assert found.replay_s is not None and found.replay_s > 0
    assert not np.array_equal(before, net.parameters()[0].numpy())
    assert "all of it at once" in found.table()


def test_a_body_runs_on_the_arrays_that_are_given() -> None:
    x, y = (buffer(n, dtypes.f32, (128,)) for n in range(2))
    a = np.ones(128, np.float32)
    found = profile(x * y + 1.0, a, a, device="cpu", runs=2)
    (kernel,) = found.kernels
    assert kernel.must_bytes == 3 * 128 * 4
    assert kernel.device == "cpu"
    with pytest.raises(UsageError, match=r"takes 2 arrays \(slots \[0, 1\]\), got 1"):
        profile(x * y, a, device="cpu")
    with pytest.raises(UsageError, match="float64"):
        profile(x * y, a, a.astype(np.float64), device="cpu")


def test_a_compiled_kernel_runs_where_it_was_compiled_for() -> None:
    x = buffer(0, dtypes.f32, (64, 64))
    kernel = compile([x.exp()], target="cpu", name="grow")
    found = profile(kernel, runs=2)
    assert [k.name for k in found.kernels] == [s.source.name for s in kernel.steps]
    with pytest.raises(UsageError, match="compiled for cpu, not for cuda"):
        profile(kernel, device="cuda")
    emulated = compile([x.exp()], target="emulated")
    with pytest.raises(UsageError, match=r"says nothing about a GPU.*--device cpu"):
        profile(emulated)


def test_loop_ir_runs_on_this_cpu_where_it_has_no_threads() -> None:
    y = buffer(0, dtypes.f32, (4,))
    found = profile(sink(y.index(0).store(1.0)), runs=1, device="cpu", name="one")
    assert [(k.name, k.must_bytes) for k in found.kernels] == [("one", 16)]
    x = buffer(1, dtypes.f32, (4,))
    copy, a = sink(y.index(0).store(x.index(0).load())), np.zeros(4, np.float32)
    for arrays in ([a], [a, a]):  # what it reads, or what it writes too
        assert profile(copy, *arrays, runs=1, device="cpu").kernels[0].must_bytes == 32
    with pytest.raises(UsageError, match=r"takes 2 arrays \(slots \[0, 1\]\), got 3"):
        profile(copy, a, a, a, device="cpu")
    with pytest.raises(UsageError, match="written for a GPU"):
        profile(smem_gemm_ir(64, 16), device="cpu")


def test_a_function_may_return_a_kernel_and_arrays() -> None:
    x = buffer(0, dtypes.f32, (32,))
    a = np.ones(32, np.float32)

    def pair() -> tuple[UOp, list[Any]]:
        return x + 1.0, [a]

    assert [k.must_bytes for k in profile(pair, device="cpu", runs=1).kernels] == [256]


def test_the_emulator_is_refused() -> None:
    with pytest.raises(UsageError, match="the emulator takes says nothing about a GPU"):
        profile(lambda: None, device="emulated")
    with storage.making_on("emulated"):
        a = numbers(4)
        with pytest.raises(UsageError, match="the program computes there"):
            profile(lambda: a + 1)
        with pytest.raises(UsageError, match="says nothing about a GPU"):
            profile(a + 1)
        with pytest.raises(UsageError, match=r"is on emulated, not on cpu.*UOPC_DEVICE=cpu"):
            profile(a + 1, device="cpu")


@pytest.mark.parametrize("what", [3, "text", np.zeros(3), [], int])
def test_what_is_no_program_is_told(what: Any) -> None:
    with pytest.raises(UsageError, match="A profile is of a function without arguments"):
        profile(what, device="cpu")


def test_a_function_takes_no_arrays(cpu: None) -> None:
    with pytest.raises(UsageError, match="without arguments: it takes no arrays"):
        profile(lambda: None, np.zeros(3))


def test_the_package_has_it() -> None:
    assert uopc.profile is profile
    assert uopc.Profile is Profile


def test_a_failing_program_leaves_nobody_listening(cpu: None) -> None:
    def program() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        profile(program)
    assert observe.current is None
    assert storage.default_device() == "cpu"


# ---- timelines
def check_trace(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The complete events of a trace, after a look at all that the format asks for."""
    events = data["traceEvents"]
    assert data["displayTimeUnit"] in ("ms", "ns")
    timed = [e for e in events if e["ph"] != "M"]
    named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert events == [e for e in events if e["ph"] == "M"] + timed
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed)
    open_until: dict[int, list[float]] = {}
    for e in timed:
        assert e["ph"] in ("X", "s", "f") and isinstance(e["name"], str) and e["pid"] == 1
        assert e["tid"] in named and e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0 and isinstance(e["args"], dict)
            # slices of one track lie beside or inside of each other
            stack = open_until.setdefault(e["tid"], [])
            while stack and stack[-1] <= e["ts"] + 1e-3:
                stack.pop()
            assert not stack or e["ts"] + e["dur"] <= stack[-1] + 2e-3
            stack.append(e["ts"] + e["dur"])
    starts = {e["id"]: e for e in timed if e["ph"] == "s"}
    ends = {e["id"]: e for e in timed if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(ends[n]["ts"] >= starts[n]["ts"] and ends[n]["bp"] == "e" for n in starts)
    return [e for e in timed if e["ph"] == "X"]


def test_events_are_in_order_and_never_negative() -> None:
    inner = Slice("inner", "launch", 2.0, 3.0, starts=1)
    outer = Slice("outer", "step", 2.0, 4.0, {"a": 1})
    late = Slice("kernel", "kernel", 3.5, 3.4999999, started_by=1)
    events = trace_events("p", [Track("host", (inner, outer)), Track("cuda", (late,))])
    complete = check_trace({"traceEvents": events, "displayTimeUnit": "ms"})
    assert [(e["name"], e["ts"], e["dur"]) for e in complete] == [
        ("outer", 0.0, 2e6),
        ("inner", 0.0, 1e6),
        ("kernel", 1.5e6, 0.0),
    ]
    assert trace_events("p", []) == [events[0]]


def test_a_gpus_kernels_follow_their_launches() -> None:
    kernels = [FakeKernel(f"k{n}", 10 * US) for n in range(3)]
    found, _ = profiled(*kernels)
    events = check_trace(json.loads(found.to_trace()))
    on_gpu = [e for e in events if e["cat"] == "kernel"]
    assert [e["name"] for e in on_gpu] == ["k0", "k1", "k2"] * 2
    assert all(e["args"]["grid"] == [7, 1, 1] for e in on_gpu)
    launches = [e for e in events if e["cat"] == "launch"]
    assert [e["name"] for e in launches] == ["launch k0", "launch k1", "launch k2"] * 2
    assert [e["name"] for e in events if e["cat"] == "step"] == ["step, the first", "step"]
    for launch, kernel in zip(launches, on_gpu, strict=True):
        assert kernel["ts"] >= launch["ts"]
        assert kernel["dur"] <= 11 + 1e-2  # the median, with its events, or less


def test_a_timeline_of_a_captured_step(cpu: None, tmp_path: Path) -> None:
    a = numbers(16, 16)

    @jit
    def step() -> Tensor:
        return ((a @ a).exp() @ a).sum()

    found = profile(step, runs=2)
    found.write_trace(tmp_path / "t.json")
    events = check_trace(json.loads((tmp_path / "t.json").read_text()))
    cats = {e["cat"] for e in events}
    assert {"step", "schedule", "compile", "launch", "kernel"} >= cats >= {"step", "kernel"}
    replayed = [e for e in events if e["args"].get("in", "").startswith("replay of ")]
    assert len(replayed) == sum(k.calls for k in found.kernels)
    (launch,) = [e for e in events if e["name"].startswith("launch replay")]
    assert all(e["ts"] >= launch["ts"] for e in replayed)
    with pytest.raises(UopcError, match="cannot write"):
        found.write_trace(tmp_path / "missing" / "t.json")


# ---- the command
MODEL = """
import numpy as np
from uopc import dtypes
from uopc.tensor import Tensor
from uopc.uop.node import buffer

a = Tensor(np.ones((32, 32), np.float32))
lazy = (a @ a).exp()
x = buffer(0, dtypes.f32, (16,))
body = x + 1.0
body_arrays = [np.ones(16, np.float32)]

def forward():
    return a @ a + 1

def unseen():
    return (a @ a + 13).sin()

def wrong():
    return a @ Tensor(np.ones(5, np.float32))

def wants(n):
    return a

number = 3
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.parametrize("name", ["forward", "lazy", "body"])
def test_the_command_prints_a_table(
    name: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", f"{model}:{name}", "--device", "cpu", "--runs", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{name} on cpu: medians of 2 runs, wall time\n")
    for word in ("kernel", "calls", "total", "share", "GB/s", "sum ", "step ", "gaps "):
        assert word in said


def test_the_command_writes_files(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, timeline = tmp_path / "f.json", tmp_path / "t.json"
    files = ["--json", str(figures), "--trace", str(timeline)]
    assert main(["profile", f"{model}:unseen", "--device", "cpu", "--runs", "2", *files]) == 0
    assert f"timeline in {timeline}" in capsys.readouterr().out
    data = json.loads(figures.read_text())
    assert data["runs"] == 2 and data["kernels"]
    events = check_trace(json.loads(timeline.read_text()))
    assert {"schedule", "compile"} <= {e["cat"] for e in events}


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        (":wants", 2, "wants in model.py wants arguments (n)"),
        (":forwards", 2, "has no forwards. Did you mean forward?"),
        ("", 2, "which program of"),
        (":number", 2, "number is int. A profile is of"),
        (":wrong", 1, "return a @ Tensor(np.ones(5, np.float32))"),
    ],
)
def test_the_command_says_what_is_wrong(
    name: str, code: int, said: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", f"{model}{name}", "--device", "cpu"]) == code
    assert said in capsys.readouterr().err


def test_the_command_refuses_the_emulator_before_it_runs_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.py"
    path.write_text("raise SystemExit('it ran')\n")
    assert main(["profile", f"{path}:x", "--device", "emulated"]) == 2
    said = capsys.readouterr().err
    assert "--device cpu" in said and "it ran" not in said
    assert main(["profile", str(tmp_path / "none.py")]) == 2
    assert main(["profile", f"{path}:x", "--device", "tpu"]) == 2


def test_the_settings_choose_the_device(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.set_default_device(None)
    with environment(UOPC_DEVICE="cpu"):
        assert main(["profile", f"{model}:forward", "--runs", "1"]) == 0
    storage.set_default_device(None)
    assert "forward on cpu" in capsys.readouterr().out


# ---- on a GPU
@pytest.fixture
def gpu() -> Any:
    with storage.making_on("cuda"):
        yield


def looks_right(found: Profile, peak_bytes_per_s: float = 10e12) -> None:
    """Of programs whose kernels take far longer than what events cost."""
    assert found.clock == "CUDA events"
    assert all(k.median_s > 0 for k in found.kernels)
    assert all(k.grid[0] > 0 or k.name.startswith("copy ") for k in found.kernels)
    assert all(k.bytes_per_s < peak_bytes_per_s for k in found.kernels)
    assert found.sum_s <= 1.05 * found.step_s
    assert found.empty_s is not None and 0 < found.empty_s < 50 * US


@pytest.mark.gpu
@pytest.mark.uninstrumented
def test_a_program_on_a_gpu(gpu: None) -> None:
    a = numbers(MATMUL_GPU, MATMUL_GPU)

    def program() -> Tensor:
        return (a @ a).exp().sum(axis=0)

    expected = set(names([program()]))
    found = profile(program, runs=10)
    looks_right(found)
    assert {k.name.partition("_part")[0] for k in found.kernels} == expected
    # what the host needs to launch is not in the kernels' times
    assert found.kernels[0].median_s > 2 * MATMUL_GPU**3 / 2e14  # no GPU does more in f32


@pytest.mark.gpu
@pytest.mark.uninstrumented
def test_a_copy_on_a_gpu_is_bound_by_its_memory(gpu: None) -> None:
    x = buffer(0, dtypes.f32, (1 << 28,))  # 2 GiB in and out: no cache holds it
    found = profile(x + 1.0, np.zeros(1 << 28, np.float32), runs=10, device="cuda")
    (kernel,) = found.kernels
    looks_right(found, peak_bytes_per_s=8e12)
    assert kernel.must_bytes == 2 << 30
    assert kernel.spread < 0.2


@pytest.mark.gpu
@pytest.mark.uninstrumented
def test_a_captured_step_on_a_gpu(gpu: None, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 16))
    descent = optim.SGD(net.parameters(), lr=0.1)
    images = numbers(8192, 2048)
    labels = Tensor(np.arange(8192, dtype=np.int32) % 16)

    @jit
    def step() -> Tensor:
        descent.zero_grad()
        loss = nn.cross_entropy(net(images), labels)
        loss.backward()
        descent.step()
        return loss

    found = profile(step, runs=10)
    launched = kernels_of(step)
    kernels = [k for k in found.kernels if not k.name.startswith("copy ")]
    assert sorted(k.name for k in kernels for _ in range(int(k.calls))) == launched
    looks_right(found)
    assert found.replay_s is not None and found.replay_s <= 1.05 * found.step_s
    found.write_trace(tmp_path / "t.json")
    check_trace(json.loads((tmp_path / "t.json").read_text()))


@pytest.mark.gpu
@pytest.mark.uninstrumented
def test_a_small_kernel_on_a_gpu_is_not_timed_with_its_launch(gpu: None) -> None:
    a = numbers(256)
    found = profile(lambda: a + 1, runs=20)
    assert found.empty_s is not None
    assert found.kernels[0].median_s < found.empty_s + 5 * US

"""Launchers: compiled steps on buffers, what they refuse, what they tell, in any thread."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kernels import columns, param, softmax
from tests.runtime.fake_cuda import FakeCUDA
from tests.runtime.sources import axpy_c, c_source, copy_params, cuda_source
from uopc import compile as compile_body
from uopc.config import Config, current
from uopc.dtype import dtypes
from uopc.errors import CompilerError, DeviceError, OutOfRangeError, TargetError, UsageError
from uopc.examples.parts import shared
from uopc.faults import RaceError
from uopc.gpu import emulate
from uopc.kernel import Param, Source, TensorMapUse
from uopc.opts import Opts
from uopc.runtime import cuda, executor
from uopc.runtime.arrays import HostArray
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launchable, Launcher, errors_of, raise_errors, word_of
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, range_
from uopc.uop.ops import AxisType, Ops, TensorMapArg
from uopc.uop.oracle import evaluate

_REAL = ("cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
on_each_device = pytest.mark.parametrize("device", _REAL)

#: reports the last index that is not in 0..9
_CHECK_C = """
int check(void **args) {
  unsigned long long *errors = args[0]; const int *index = args[1];
  for (int n = 0; n < 4; n++) if (index[n] < 0 || index[n] > 9)
    errors[0] = 1ull << 63 | 10ull << 32 | (unsigned)index[n];
  return 0;
}
"""
_CHECK_CUDA = """
extern "C" __global__ void check(unsigned long long* errors, const int* index) {
  int i = index[threadIdx.x];
  if (i < 0 || i > 9) atomicMax(errors, 1ull << 63 | 10ull << 32 | (unsigned)i);
}
"""
_CHECK_PARAMS = (Param(0, dtypes.u64, 1, written=True), Param(1, dtypes.i32, 4, written=False))
#: adds slot 1 to every element of up to four arrays
_ADD_C = """
int add(void **args) {
  unsigned long long *table = args[0]; const float *value = args[1];
  for (int m = 0; m < 4; m++)
    for (unsigned long long n = 0; n < table[4 + m]; n++) ((float *)table[m])[n] += value[0];
  return 0;
}
"""
_ADD_CUDA = """
extern "C" __global__ void add(const unsigned long long* table, const float* value) {
  for (unsigned long long n = threadIdx.x; n < table[4 + blockIdx.x]; n += 32)
    ((float*)table[blockIdx.x])[n] += value[0];
}
"""
_ADD_PARAMS = (
    Param(0, dtypes.f32, 100, written=True, bundle=4),
    Param(1, dtypes.f32, 1, written=False),
)


def step(source: Source) -> Launchable:
    """A step that runs this text."""
    return SimpleNamespace(runs=source)


def checker(device: str) -> Launcher:
    """Reports an index of slot 1 that is not in 0..9."""
    language = {"cpu": "c", "emulated": "emulated"}.get(device)
    source = (
        c_source(_CHECK_C, "check", _CHECK_PARAMS, language)
        if language
        else cuda_source(_CHECK_CUDA, "check", _CHECK_PARAMS, (1, 1, 1), (4, 1, 1))
    )
    return Launcher(step(source), device, reports=True)


def adder(device: str, config: Config | None = None) -> Launcher:
    """Adds slot 1 to the arrays of slot 0, a bundle."""
    language = {"cpu": "c", "emulated": "emulated"}.get(device)
    source = (
        c_source(_ADD_C, "add", _ADD_PARAMS, language)
        if language
        else cuda_source(_ADD_CUDA, "add", _ADD_PARAMS, (4, 1, 1), (32, 1, 1))
    )
    return Launcher(step(source), device, config=config)


def report(device: str, *index: int) -> None:
    """Launch the checker on four indices."""
    given = Buffer.from_numpy(device, np.array(index, np.int32))
    checker(device)([errors_of(device), given])


def run(device: str, body: UOp, opts: Opts | None, *arrays: np.ndarray[Any, Any]) -> Any:
    """All steps of a kernel, launched on buffers by slot."""
    kernel = compile_body(body, opts, target=device)
    (out,) = kernel.output_slots
    held = {s: Buffer.from_numpy(device, a) for s, a in enumerate(arrays)}
    held[out] = Buffer(device, body.dtype, int(np.prod(body.shape)))
    for p in kernel.partials:
        held[p.arg.slot] = Buffer(device, p.dtype, p.arg.shape[0]).zero()
    for each in kernel.steps:
        Launcher(each, device)(held)
    return held[out].numpy().reshape(body.shape)


@on_each_device
@pytest.mark.parametrize(
    "body",
    [
        param(0, 7, 33) * 2.0 + 1.0,
        softmax(param(0, 7, 33)),
        columns(param(0, 7, 33)),
        param(0, 7, 33, dtype=dtypes.i32).reduce(Ops.MAX, 1),
    ],
    ids=["axpy", "softmax", "columns", "max"],
)
def test_steps_on_buffers(device: str, body: UOp, rng: np.random.Generator) -> None:
    x = rng.standard_normal((7, 33)).astype(np.float32)
    if body.dtype is dtypes.i32:
        x = (x * 100).astype(np.int32)
    got = run(device, body, None, x)
    np.testing.assert_allclose(got, evaluate(body, {0: x}), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("device", ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_steps_that_leave_partial_results(device: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, 4096).astype(np.int32)
    body = param(0, 512, 8, dtype=dtypes.i32).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1).reshape((1,))
    opts = Opts(gpu=True, blocks={1: 8}, local={1: 64})
    assert len(compile_body(body, opts, target=device).steps) == 2
    assert run(device, body, opts, x).tolist() == [x.reshape(512, 8).max(1).sum()]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_a_list_by_slot_may_hold_more(device: str) -> None:
    kernel = compile_body(param(3, 8) + 1.0, target=device)
    launcher = Launcher(kernel.steps[0], device)
    assert launcher.slots == (3, 4) and repr(launcher) == f"Launcher(kernel, {device})"
    other = Buffer(device, dtypes.i64, 1)
    x, out = Buffer.from_numpy(device, np.ones(8, np.float32)), Buffer(device, dtypes.f32, 8)
    launcher([other, other, other, x, out, other])
    assert out.numpy().tolist() == [2] * 8


@on_each_device
def test_any_thread_may_launch(device: str) -> None:
    kernel = compile_body(param(0, 1000) * 3.0, target=device)
    launcher = Launcher(kernel.steps[0], device)
    wrong: list[int] = []

    def work(n: int) -> None:
        for m in range(50):
            x = Buffer.from_numpy(device, np.full(1000, n * 100 + m, np.float32))
            out = Buffer(device, dtypes.f32, 1000)
            launcher([x, out])
            if not (out.numpy() == 3 * (n * 100 + m)).all():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@on_each_device
def test_work_of_no_size_is_none(device: str, tmp_path: Path) -> None:
    text = 'extern "C" __global__ void copy(float* a, const float* b) { a[0] = 1; }'
    params = copy_params(dtypes.f32, 0)
    source = (
        cuda_source(text, "copy", params, (1, 1, 1), (1, 1, 1))
        if device == "cuda"
        else c_source("no C at all", "copy", params, {"cpu": "c"}.get(device, device))
    )
    launcher = Launcher(step(source), device, config=Config(cache_dir=tmp_path))
    empty = Buffer(device, dtypes.f32, 0)
    launcher([empty, empty])
    launcher.bound([empty, empty])()


def test_what_a_launcher_refuses() -> None:
    with pytest.raises(UsageError, match=r"kernel axpy is c text, device emulated runs emulated"):
        Launcher(step(axpy_c()), "emulated")
    with pytest.raises(UsageError, match=r"is emulated text, device cuda:1 runs cuda\. Compile it"):
        Launcher(step(axpy_c("emulated")), "cuda:1")
    with pytest.raises(UsageError, match=r"kernel axpy takes slot 2 by value.* shape \(1,\)"):
        Launcher(step(axpy_c()), "cpu")
    with pytest.raises(UsageError, match="no device is called 'gpu'"):
        Launcher(step(axpy_c()), "gpu")
    source = c_source("int f(void **a) { return 0; }", "f", copy_params(dtypes.f32, 4))
    with pytest.raises(UsageError, match="kernel f runs on the host, not on a stream"):
        held = [Buffer("cpu", dtypes.f32, 4)] * 2
        Launcher(step(source), "cpu").record(1, held)


def test_a_kernel_that_fails_says_so() -> None:
    source = c_source("int f(void **a) { return 2; }", "f", copy_params(dtypes.f32, 4))
    launcher, held = Launcher(step(source), "cpu"), [Buffer("cpu", dtypes.f32, 4)] * 2
    calls: list[Callable[[], None]] = [partial(launcher, held), launcher.bound(held)]
    for call in calls:
        with pytest.raises(DeviceError, match="kernel f returned 2: there is no memory for a"):
            call()


def racing() -> Source:
    """Threads of a block read what another has stored, with no barrier between."""
    t, c = range_(64, 0, AxisType.LOCAL), Cursor()
    tile, x, y = shared(dtypes.f32, 64), param(0, 64), param(1, 64)
    c.store(tile.index(t), x.index(t).load())
    c.store(y.index(t), c.load(tile.index(63 - t)))
    return emulate(c.sink(), "racing", check=True)


def test_faults_of_checked_kernels_are_raised() -> None:
    launcher = Launcher(step(racing()), "emulated")
    held = [Buffer("emulated", dtypes.f32, 64).zero() for _ in range(2)]
    calls: list[Callable[[], None]] = [partial(launcher, held), launcher.bound(held)]
    for call in calls:
        with pytest.raises(RaceError, match="racing"):
            call()


# ---- bundles
@on_each_device
@pytest.mark.parametrize("sync", [False, True])
def test_a_list_of_buffers_for_a_bundle(device: str, sync: bool) -> None:
    launcher = adder(device, replace(current(), sync=sync))
    held = [Buffer(device, dtypes.f32, n).zero() for n in (3, 100, 0, 7)]
    one = Buffer.from_numpy(device, np.ones(1, np.float32))
    for _ in range(3):
        launcher([held, one])
    launcher({0: held[:2], 1: one})
    got = [b.numpy().tolist() for b in held]
    assert got == [[4] * 3, [4] * 100, [], [3] * 7]


@on_each_device
def test_a_table_that_was_made_before(device: str) -> None:
    held = [Buffer(device, dtypes.f32, 50).zero() for _ in range(2)]
    one = Buffer.from_numpy(device, np.ones(1, np.float32))
    addresses = [b.address for b in held]
    table = np.array([*addresses, 0, 0, 50, 20, 0, 0], np.uint64)
    adder(device)([Buffer.from_numpy(device, table), one])
    assert [b.numpy().sum() for b in held] == [50, 20]


def test_tables_are_kept_for_memories_that_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_TABLES_MAX", 2)
    launcher, one = adder("cpu"), Buffer("cpu", dtypes.f32, 1).zero()
    lists = [[Buffer("cpu", dtypes.f32, 9).zero()] for _ in range(3)]
    first = launcher.placed([lists[0], one])[0]
    assert launcher.placed([list(lists[0]), one])[0] is first
    for held in lists:
        launcher([held, one])
    assert len(launcher._tables) == 2
    assert launcher.placed([lists[0], one])[0] is not first


# ---- Config.sync
@pytest.mark.parametrize("wrong", [[8, 101], [8] * 5], ids=["too long", "too many"])
def test_a_synchronous_launch_checks_bundles(wrong: list[int]) -> None:
    launcher = adder("cpu", replace(current(), sync=True))
    held = [Buffer("cpu", dtypes.f32, n).zero() for n in wrong]
    said = r"kernel add, slot 0: wants table of 4 f32\[100\] on cpu, got \[Buffer\(cpu, f32\[8\] at"
    with pytest.raises(CompilerError, match=said):
        launcher([held, Buffer("cpu", dtypes.f32, 1)])


def test_a_synchronous_launch_checks_its_buffers() -> None:
    kernel = compile_body(param(0, 8) + 1.0, target="cpu")
    launcher = Launcher(kernel.steps[0], "cpu", config=Config(sync=True))
    x, out = Buffer.from_numpy("cpu", np.ones(8, np.float32)), Buffer("cpu", dtypes.f32, 8)
    launcher([x, out])
    assert out.numpy().tolist() == [2] * 8
    for wrong in (
        Buffer("cpu", dtypes.i32, 8),
        Buffer("cpu", dtypes.f32, 9),
        Buffer("emulated", dtypes.f32, 8),
    ):
        said = rf"kernel kernel, slot 1: wants f32\[8\] on cpu, got Buffer\({wrong.device}, "
        with pytest.raises(CompilerError, match=said):
            launcher([x, wrong])


def test_a_synchronous_launch_describes_its_failure() -> None:
    source = c_source("int f(void **a) { return 1; }", "f", copy_params(dtypes.f32, 4))
    launcher = Launcher(step(source), "cpu", config=Config(sync=True))
    a, b = (Buffer("cpu", dtypes.f32, 4) for _ in range(2))
    with pytest.raises(DeviceError) as error:
        launcher([a, b])
    assert str(error.value).splitlines()[1:] == [
        "kernel f on cpu, grid (1, 1, 1), block (1, 1, 1):",
        f"  slot 0: writes f32[4] at {a.address:#x}",
        f"  slot 1: reads f32[4] at {b.address:#x}",
    ]


# ---- the error word
@on_each_device
def test_a_reported_index_is_raised_once(device: str) -> None:
    report(device, 0, 3, 9, 2)
    raise_errors(device)
    report(device, 0, 12, 3, 3)
    report(device, 0, 1, 2, 3)  # a later launch that finds nothing hides nothing
    with pytest.raises(OutOfRangeError) as error:
        raise_errors(device)
    assert str(error.value).startswith(
        "index 12 is out of range for an axis of size 10 (-10 to 9). A kernel that gathers or"
    )
    assert isinstance(error.value, IndexError) and isinstance(error.value, UsageError)
    raise_errors(device)
    report(device, 0, -1, 1, 1)
    with pytest.raises(IndexError, match="index -1 is out of range"):
        raise_errors(device)


@pytest.mark.parametrize(
    ("index", "size", "said"),
    [
        (10, 10, "index 10 is out of range for an axis of size 10 (-10 to 9)."),
        (-11, 10, "index -11 is out of range for an axis of size 10 (-10 to 9)."),
        (2**31 - 1, 7, "index 2147483647 or more is out of range for an axis of size 7 "),
        (-(2**31), 7, "index -2147483648 or less is out of range for an axis of size 7 "),
        (5, 0, "index 5 is out of range for its axis, of size 0 or more than 2147483647. A"),
        (5, 2**31 - 1, "index 5 is out of range for an axis of size 2147483647 "),
    ],
)
def test_what_the_error_word_says(index: int, size: int, said: str) -> None:
    word = executor.ErrorWord(Buffer("cpu", dtypes.u64, 1), pending=True)
    word.buffer.write(np.array([1 << 63 | size << 32 | index & 0xFFFFFFFF], np.uint64))
    with pytest.raises(IndexError) as error:
        word.raise_if_set()
    assert str(error.value).startswith(said)
    assert not word.pending and word.buffer.numpy().tolist() == [0]


def test_the_word_is_read_only_where_it_can_have_been_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raise_errors("cpu")
    launcher = Launcher(compile_body(param(0, 8) + 1.0, target="cpu").steps[0], "cpu")
    held = [Buffer("cpu", dtypes.f32, 8) for _ in range(2)]
    word, reads = word_of("cpu"), list[Buffer]()

    def read(b: Buffer) -> HostArray:
        reads.append(b)
        return np.zeros(1, np.uint64)

    monkeypatch.setattr(Buffer, "numpy", read)
    launcher(held)
    raise_errors("cpu")
    assert not reads and not word.pending
    report("cpu", 1, 2, 3, 4)
    raise_errors("cpu")
    raise_errors("cpu")
    assert reads == [word.buffer]


def test_one_word_a_device(fake_hopper: FakeCUDA) -> None:
    assert errors_of("cuda") is errors_of("cuda:0") is not errors_of("cpu")
    assert errors_of("cuda").numpy().tolist() == [0]
    raise_errors("cuda:3")  # nothing was ever launched there
    with pytest.raises(UsageError, match="no device is called 'tpu'"):
        raise_errors("tpu")


# ---- the host's side of a GPU
_COPY_CUDA = 'extern "C" __global__ void copy(float* y, const float* x) { y[0] = x[0]; }'


def copier(config: Config, on: str = "sm_80", **more: Any) -> Launcher:
    """A launcher of a kernel that the fake GPU knows by name."""
    source = cuda_source(
        _COPY_CUDA, "copy", copy_params(dtypes.f32, 8), (3, 2, 1), (32, 1, 1), on=on, **more
    )
    return Launcher(step(source), "cuda", config=config)


@pytest.fixture
def fake(fake_hopper: FakeCUDA) -> FakeCUDA:
    fake_hopper.kernels["copy"] = lambda y, x: ctypes.memmove(y, x, 32)
    fake_hopper.counts["copy"] = 2
    return fake_hopper


def gpu_buffers() -> list[Buffer]:
    return [
        Buffer("cuda", dtypes.f32, 8).zero(),
        Buffer.from_numpy("cuda", np.arange(8, dtype=np.float32)),
    ]


def test_a_launch_on_a_gpu(fake: FakeCUDA, tmp_path: Path) -> None:
    launcher, held = copier(Config(cache_dir=tmp_path)), gpu_buffers()
    work = cuda.open_device().work
    assert work.handle == 8  # made as a blocking stream
    before = work.synced
    launcher(held)
    assert fake.launches == [("copy", (3, 2, 1), (32, 1, 1), 0, 8)]
    assert fake.contexts == [55] and work.synced == before
    assert held[0].numpy().tolist() == list(range(8))
    assert work.synced == before + 1


def test_limits_are_checked_when_a_launcher_is_made(fake: FakeCUDA, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="wants 307200 bytes of shared memory"):
        copier(Config(cache_dir=tmp_path), dynamic_shared_bytes=300 << 10)
    copier(Config(cache_dir=tmp_path), dynamic_shared_bytes=100 << 10)(gpu_buffers())
    assert fake.asked_shared == [100 << 10] and fake.launches[0][3] == 100 << 10


def test_failures_on_a_gpu_name_the_kernel(fake: FakeCUDA, tmp_path: Path) -> None:
    launcher, held = copier(Config(cache_dir=tmp_path)), gpu_buffers()
    fake.fault = "CUDA_ERROR_ILLEGAL_ADDRESS: it failed"
    said = r"kernel copy \(grid \(3, 2, 1\), block \(32, 1, 1\), shared 0\) failed on GPU 0: CUDA_"
    with pytest.raises(DeviceError, match=said):
        launcher(held)


def test_a_late_failure_is_described_under_sync(fake: FakeCUDA, tmp_path: Path) -> None:
    launcher, held = copier(Config(cache_dir=tmp_path, sync=True)), gpu_buffers()
    launcher(held)

    def fails() -> None:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: while running")

    cuda.open_device().work.sync = fails
    with pytest.raises(DeviceError) as error:
        launcher(held)
    first, *lines = str(error.value).splitlines()
    assert "CUDA_ERROR_ILLEGAL_ADDRESS: while running" in first
    assert lines == [
        "kernel copy on cuda, grid (3, 2, 1), block (32, 1, 1):",
        f"  slot 0: writes f32[8] at {held[0].address:#x}",
        f"  slot 1: reads f32[8] at {held[1].address:#x}",
    ]


def test_tensor_maps_follow_the_arrays(fake: FakeCUDA, tmp_path: Path) -> None:
    use = TensorMapUse(1, dtypes.f32, TensorMapArg((8,), (), (8,)))
    params = copy_params(dtypes.f32, 8)
    source = cuda_source(_COPY_CUDA, "copy", params, (1, 1, 1), (32, 1, 1), on="sm_90")
    source.tensor_maps = (use,)
    fake.counts["copy"], got = 3, list[int]()
    fake.kernels["copy"] = lambda *values: got.extend(values)
    held = gpu_buffers()
    Launcher(step(source), "cuda", config=Config(cache_dir=tmp_path))(held)
    assert got[:2] == [b.address for b in held]
    assert got[2].to_bytes(8, "little") == b"\xab" * 8  # the map itself, by value
    assert fake.encoded[0][1] == held[1].address


@pytest.mark.gpu
@pytest.mark.uninstrumented
def test_a_bad_access_is_named_under_sync() -> None:
    """In a process of its own: the context is lost."""
    program = """
import numpy as np
from types import SimpleNamespace
from tests.runtime.sources import copy_params, cuda_source
from uopc.config import Config
from uopc.dtype import dtypes
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launcher
text = 'extern "C" __global__ void bad(int* p, const int* q) { *(int*)(q[0] + 8ll) = 1; }'
source = cuda_source(text, "bad", copy_params(dtypes.i32, 4), (1, 1, 1), (1, 1, 1))
held = [Buffer("cuda", dtypes.i32, 4).zero() for _ in range(2)]
try:
    Launcher(SimpleNamespace(runs=source), "cuda", config=Config(sync=True))(held)
except Exception as error:
    print(type(error).__name__, error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    ).stdout
    assert said.startswith("DeviceError ") and "CUDA_ERROR_ILLEGAL_ADDRESS" in said
    assert "kernel bad on cuda, grid (1, 1, 1), block (1, 1, 1):" in said
    assert "slot 0: writes i32[4] at 0x" in said


@pytest.mark.gpu
def test_what_the_legacy_stream_does_is_in_order_with_launches() -> None:
    """Kernels of `run_cuda` and of launchers alternate on one array, with no wait between."""
    n = 1 << 22
    double = compile_body(param(0, n) * 2.0, target="cuda")
    launcher = Launcher(double.steps[0], "cuda")
    a, b = Buffer.from_numpy("cuda", np.ones(n, np.float32)), Buffer("cuda", dtypes.f32, n)
    for _ in range(20):
        launcher([a, b])
        double(b.array, out=a.array)  # on the legacy default stream
    assert (a.numpy() == 2.0**40).all()

"""Replays: the same work again, in its order, on new contents."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from tests.kernels import param
from tests.runtime.fake_cuda import FakeCUDA
from tests.runtime.sources import copy_params, cuda_source
from tests.runtime.test_executor import adder, checker, racing, step
from uopc import compile as compile_body
from uopc.config import Config
from uopc.dtype import dtypes
from uopc.errors import DeviceError, OutOfRangeError, ToolchainError, UsageError
from uopc.faults import RaceError
from uopc.runtime import cuda
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launcher, errors_of, raise_errors
from uopc.runtime.graph import Copy, Launch, Replay, Work

_REAL = ("cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu))
on_each_device = pytest.mark.parametrize("device", _REAL)
N = 1000


def floats(device: str, value: float = 0.0) -> Buffer:
    """N elements of one value."""
    return Buffer.from_numpy(device, np.full(N, value, np.float32))


def axpy_launcher(device: str, config: Config | None = None) -> Launcher:
    """Slot 2 = 2 * slot 0 + slot 1."""
    body = param(0, N) * 2.0 + param(1, N)
    return Launcher(compile_body(body, target=device).steps[0], device, config=config)


@on_each_device
def test_it_reads_and_writes_anew(device: str) -> None:
    """y = 2x + y, as a launch into a temporary and a copy back, three times in one replay."""
    launcher, x, y, t = axpy_launcher(device), floats(device), floats(device), floats(device)
    once: list[Work] = [Launch(launcher, [x, y, t]), Copy(y, t)]
    replay = Replay(once * 3)
    assert len(replay) == 6 and not y.numpy().any()  # recording runs nothing
    total = 0.0
    for value in (1.0, 5.0, -2.0):
        x.write(np.full(N, value, np.float32))
        replay()
        total += 6 * value
        assert (y.numpy() == total).all()
    replay()
    replay()
    assert (y.numpy() == total - 24).all()


@on_each_device
def test_works_can_be_done_once_without_a_replay(device: str) -> None:
    x, y, t = floats(device, 1), floats(device, 3), floats(device)
    Launch(axpy_launcher(device), {0: x, 1: y, 2: t})()
    Copy(x, t)()
    assert (x.numpy() == 5).all()


@on_each_device
def test_it_keeps_what_it_needs(device: str) -> None:
    held = [floats(device, 1), floats(device, 3), floats(device)]
    out, first = held[2], weakref.ref(held[0])
    replay = Replay([Launch(axpy_launcher(device), held)])
    held.clear()
    gc.collect()
    junk = [floats(device, 9) for _ in range(5)]  # would take the memory that was let go
    replay()
    assert (out.numpy() == 5).all() and len(junk) == 5
    del replay
    gc.collect()
    assert first() is None


@on_each_device
def test_reports_come_from_replays_too(device: str) -> None:
    index = Buffer.from_numpy(device, np.array([1, 2, 3, 4], np.int32))
    replay = Replay([Launch(checker(device), [errors_of(device), index])])
    replay()
    raise_errors(device)
    index.write(np.array([1, 2, 30, 4], np.int32))
    replay()
    with pytest.raises(OutOfRangeError, match="index 30 is out of range for an axis of size 10"):
        raise_errors(device)


@on_each_device
def test_any_thread_may_replay(device: str) -> None:
    launcher, x, y, t = axpy_launcher(device), floats(device, 1), floats(device), floats(device)
    replay = Replay([Launch(launcher, [x, y, t])])
    threads = [threading.Thread(target=replay) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (t.numpy() == 2).all()


@on_each_device
def test_bundles_in_a_replay(device: str) -> None:
    held = [Buffer(device, dtypes.f32, n).zero() for n in (10, 20)]
    one = Buffer.from_numpy(device, np.ones(1, np.float32))
    replay = Replay([Launch(adder(device), [held, one])] * 5)
    outs = list(held)
    held.clear()
    replay()
    replay()
    assert [b.numpy().sum() for b in outs] == [100, 200]


def test_nothing_to_do() -> None:
    replay = Replay([])
    replay()
    assert len(replay) == 0


@on_each_device
def test_work_of_no_size(device: str) -> None:
    empty = Buffer(device, dtypes.f32, 0)
    Replay([Copy(empty, Buffer(device, dtypes.f32, 0))])()


def test_what_cannot_be_replayed() -> None:
    a, b = floats("cpu"), floats("emulated")
    with pytest.raises(UsageError, match=r"Buffer\(cpu, .* cannot be copied to Buffer\(emulated"):
        Copy(b, a)
    with pytest.raises(UsageError, match="cannot be copied to"):
        Copy(a, Buffer("cpu", dtypes.f32, N + 1))
    with pytest.raises(UsageError, match="a replay is of one device, this one has cpu, emulated"):
        Replay([Copy(a, floats("cpu")), Copy(b, floats("emulated"))])


def test_faults_of_checked_kernels_are_raised() -> None:
    held = [Buffer("emulated", dtypes.f32, 64).zero() for _ in range(2)]
    replay = Replay([Launch(Launcher(step(racing()), "emulated"), held)])
    for _ in range(2):
        with pytest.raises(RaceError, match="racing"):
            replay()


# ---- the host's side of a GPU
def copy_launch(config: Config) -> Launch:
    """A launch that copies eight floats, by the fake GPU's kernel."""
    text = 'extern "C" __global__ void copy(float* y, const float* x) { y[0] = x[0]; }'
    params = copy_params(dtypes.f32, 8)
    source = cuda_source(text, "copy", params, (1, 1, 1), (32, 1, 1))
    x = Buffer.from_numpy("cuda", np.arange(8, dtype=np.float32))
    y = Buffer("cuda", dtypes.f32, 8).zero()
    return Launch(Launcher(step(source), "cuda", config=config), [y, x])


@pytest.fixture
def fake(fake_hopper: FakeCUDA) -> FakeCUDA:
    fake_hopper.kernels["copy"] = lambda y, x: ctypes.memmove(y, x, 32)
    fake_hopper.counts["copy"] = 2
    return fake_hopper


def test_a_graph_is_recorded_once_and_launched(fake: FakeCUDA, tmp_path: Path) -> None:
    launch = copy_launch(Config(cache_dir=tmp_path))
    y, x = launch.placed[0], launch.placed[1]
    z = Buffer("cuda", dtypes.f32, 8).zero()
    replay = Replay([launch, Copy(z, y)])
    assert fake.launches[-1][-1] == 7  # on a stream of the recording alone
    assert not y.numpy().any() and not fake.graph_launches and not fake.graphs
    for value in (3, 4):
        x.write(np.full(8, value, np.float32))
        replay()
        assert z.numpy().tolist() == [value] * 8
    (ready,) = fake.executables
    assert fake.graph_launches == [(ready, 8)] * 2 and len(fake.launches) == 1
    launch()
    assert fake.launches[-1][-1] == 8  # later launches are on the stream of tensors again
    del replay
    gc.collect()
    assert not fake.executables


def test_a_recording_that_fails_is_ended(fake: FakeCUDA, tmp_path: Path) -> None:
    launch = copy_launch(Config(cache_dir=tmp_path))
    fake.fault = "CUDA_ERROR_ILLEGAL_ADDRESS: no"
    with pytest.raises(DeviceError, match=r"kernel copy .* failed on GPU 0: CUDA_ERROR_ILLEGAL"):
        Replay([launch])
    assert not fake.recording and not fake.graphs
    fake.fault = ""
    made = Replay([launch])
    fake.fault = "CUDA_ERROR_ILLEGAL_ADDRESS: no"
    with pytest.raises(DeviceError, match="a graph of 1 launches and copies failed on GPU 0"):
        made()


def test_a_graph_that_cannot_be_made(fake: FakeCUDA) -> None:
    fake.fault = "CUDA_ERROR_ILLEGAL_ADDRESS: no"
    with pytest.raises(DeviceError, match="recording a graph failed on GPU 0: CUDA_ERROR_INVALID"):
        Replay([Copy(Buffer("cuda", dtypes.f32, 0), Buffer("cuda", dtypes.f32, 0))])
    assert not fake.graphs and not fake.executables


def test_a_driver_too_old_for_graphs(fake: FakeCUDA, tmp_path: Path) -> None:
    del fake._functions[b"cuGraphLaunch"]
    with pytest.raises(ToolchainError, match=r"the NVIDIA driver has no cuGraphLaunch\. Update"):
        copy_launch(Config(cache_dir=tmp_path))


def test_under_sync_each_launch_is_made_by_itself(fake: FakeCUDA, tmp_path: Path) -> None:
    launch = copy_launch(Config(cache_dir=tmp_path, sync=True))
    replay = Replay([launch, launch])
    assert not fake.launches
    replay()
    assert len(fake.launches) == 2 and not fake.graph_launches
    assert launch.placed[0].numpy().tolist() == list(range(8))


# ---- on a GPU
@pytest.mark.gpu
def test_other_threads_launch_while_one_records() -> None:
    """Recording is on a stream of its own: what others launch meanwhile runs, and is not in it."""
    launcher, stop, done = axpy_launcher("cuda"), threading.Event(), []

    def launches() -> None:
        x, y, t = floats("cuda", 1), floats("cuda", 1), floats("cuda")
        while not stop.is_set():
            launcher([x, y, t])
            cuda.open_device().to_device(np.ones(10, np.float32))  # on the legacy stream
        done.append((t.numpy() == 3).all())

    thread = threading.Thread(target=launches)
    thread.start()
    x, y, t = floats("cuda", 1), floats("cuda", 2), floats("cuda")
    for _ in range(20):
        replay = Replay([Launch(launcher, [x, y, t])] * 50)
        t.zero()
        replay()
        assert (t.numpy() == 4).all()
    stop.set()
    thread.join()
    assert done == [True]


@pytest.mark.gpu
def test_graphs_and_their_memory_may_go_while_they_run() -> None:
    launcher = axpy_launcher("cuda")
    outs = []
    for n in range(50):
        x, y, t = floats("cuda", n), floats("cuda", 1), floats("cuda")
        Replay([Launch(launcher, [x, y, t])] * 100)()
        outs.append((n, t))
        del x, y  # given out again to the next round, in the order of the stream
    assert all((t.numpy() == 2 * n + 1).all() for n, t in outs)

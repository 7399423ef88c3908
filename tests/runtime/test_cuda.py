"""The host side of a launch, on a GPU made of host memory: checks, copies, streams, failures."""

from __future__ import annotations

import ctypes
import gc
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.fake_cuda import Buffer, FakeCUDA, Stream
from tests.runtime.sources import AXPY_CUDA, AXPY_PARAMS, axpy_c, axpy_cuda, cuda_source
from uopc.config import Config
from uopc.dtype import dtypes
from uopc.errors import DeviceError, TargetError, UsageError
from uopc.kernel import Param, Source
from uopc.runtime import cuda
from uopc.runtime.arrays import DeviceArray
from uopc.target import target


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCUDA]:
    made = FakeCUDA()
    monkeypatch.setattr(cuda, "current", lambda: Config(cache_dir=tmp_path))
    made.kernels["axpy"] = _axpy
    monkeypatch.setattr(cuda, "_cuda_python", lambda: (made.core, made.driver))
    monkeypatch.setattr(cuda, "_opened", {})
    cuda.device_target.cache_clear()
    yield made
    cuda.device_target.cache_clear()


@pytest.fixture
def gpu(fake: FakeCUDA) -> cuda.CUDA:
    return cuda.CUDA()


def _view(address: int, n: int = 100) -> np.ndarray[Any, Any]:
    return np.ctypeslib.as_array((ctypes.c_float * n).from_address(address))


def _axpy(y: int, x: int, a: np.uint32) -> None:
    _view(y)[:] += a.view(np.float32) * _view(x)


def _arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.ones(100, np.float32), np.arange(100, dtype=np.float32)


def test_run_cuda_copies_in_launches_and_copies_back(fake: FakeCUDA) -> None:
    y, x = _arrays()
    gc.collect()
    before = Buffer.live
    cuda.run_cuda(axpy_cuda(), "axpy", (4, 1, 1), (32, 1, 1), y, x.reshape(10, 10), 2.0)
    assert np.array_equal(y, 1 + 2 * x)
    assert fake.launches == [("axpy", (4, 1, 1), (32, 1, 1), 0, 1)]
    gc.collect()
    assert Buffer.live == before  # nothing stays on the device


def test_the_source_knows_its_launch(fake: FakeCUDA) -> None:
    y, x = _arrays()
    cuda.run_cuda(axpy_cuda(), "axpy", None, None, y, x, 2.0)
    assert fake.launches[0][1:3] == ((4, 1, 1), (32, 1, 1))
    with pytest.raises(UsageError, match=r"was rendered for block \(32, 1, 1\), got 64"):
        cuda.run_cuda(axpy_cuda(), "axpy", 4, 64, y, x, 2.0)
    with pytest.raises(UsageError, match=r"was rendered for grid \(4, 1, 1\), got \(5, 1, 1\)"):
        cuda.run_cuda(axpy_cuda(), "axpy", (5, 1, 1), 32, y, x, 2.0)


@pytest.mark.parametrize("blocks", [4, 16])
def test_a_launch_of_clusters_has_room_for_one(fake: FakeCUDA, blocks: int) -> None:
    """More blocks than every GPU takes are asked for; where none fits, that is said before."""
    y, x = _arrays()
    source = axpy_cuda()
    fields = dict(name="axpy", language="cuda", params=source.params, target=source.target)
    launch = replace(source.launch, grid=(16, 1, 1), cluster=blocks)
    clustered = Source(str(source), **fields, launch=launch)  # type: ignore[arg-type]
    cuda.run_cuda(clustered, "axpy", None, None, y, x, 2.0)
    assert fake.asked_clusters == [1] * (blocks > 8)
    fake.clusters = 0
    with pytest.raises(
        TargetError, match=f"clusters of {blocks} blocks of 32 threads.* room for no"
    ):
        again = Source(f"{source}\n", **fields, launch=launch)  # type: ignore[arg-type]
        cuda.run_cuda(again, "axpy", None, None, y, x, 2.0)


def test_nothing_is_launched_with_what_does_not_fit(fake: FakeCUDA) -> None:
    y, x = _arrays()
    with pytest.raises(UsageError, match="argument 1: expected f32, got float64"):
        cuda.run_cuda(axpy_cuda(), "axpy", None, None, y, x.astype(np.float64), 2.0)
    with pytest.raises(UsageError, match="arguments 0 and 1 overlap"):
        cuda.run_cuda(axpy_cuda(), "axpy", None, None, y, y, 2.0)
    assert not fake.launches


def test_device_arrays_are_used_in_place(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    host_y, host_x = _arrays()
    y, x = gpu.to_device(host_y), gpu.to_device(host_x)
    function = gpu.function(axpy_cuda())
    gpu.launch(function, None, None, y, x, 2.0)
    gpu.launch(function, 4, 32, y, x, np.float32(1), stream=55)
    assert np.array_equal(gpu.to_host(y), 1 + 3 * host_x)
    assert [launch[-1] for launch in fake.launches] == [1, 55]
    assert fake.legacy.synced == 3  # two copies in, one out; no launch waits
    with pytest.raises(UsageError, match=r"argument 0 is in host memory. Copy it with to_device"):
        gpu.launch(function, None, None, host_y, x, 2.0)


def test_empty_arrays_have_no_memory(gpu: cuda.CUDA) -> None:
    made = gpu.to_device(np.zeros((0, 3), ml_dtypes.bfloat16))
    assert (made.pointer, made.dtype, gpu.to_host(made).shape) == (0, dtypes.bf16, (0, 3))


def test_every_launch_sets_the_context_in_its_thread(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    y, x = (gpu.to_device(a) for a in _arrays())
    function = gpu.function(axpy_cuda())
    thread = threading.Thread(target=gpu.launch, args=(function, None, None, y, x, 2.0))
    thread.start()
    thread.join()
    assert len(fake.launches) == 1 and fake.current[-1] == thread.ident


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 1),
        (0, 1),
        (1, 1),
        (0x70, 0x70),
        (Stream(5), 5),
        (SimpleNamespace(cuda_stream=0x80), 0x80),  # PyTorch
        (SimpleNamespace(ptr=0x90), 0x90),  # CuPy
        (SimpleNamespace(__cuda_stream__=lambda: (0, 0xA0)), 0xA0),
    ],
)
def test_streams(gpu: cuda.CUDA, stream: Any, handle: int) -> None:
    assert gpu.stream(stream).handle == handle


def test_what_is_no_stream(gpu: cuda.CUDA) -> None:
    with pytest.raises(UsageError, match="stream: expected None, a handle, or a stream of"):
        gpu.stream("default")


def test_one_text_is_loaded_once(gpu: cuda.CUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    first = gpu.function(axpy_cuda())
    assert gpu.function(axpy_cuda(), "axpy") is first
    fewer = cuda_source(AXPY_CUDA, "axpy", AXPY_PARAMS, (2, 1, 1), (32, 1, 1))
    assert gpu.function(fewer) is not first  # the same text, called otherwise
    monkeypatch.setattr(cuda, "_LOADED_MAX", 2)
    gpu.function(axpy_cuda())
    gpu.function(cuda_source(AXPY_CUDA + "\n", "axpy", AXPY_PARAMS, (4, 1, 1), (32, 1, 1)))
    assert len(gpu._functions) == 2
    assert gpu.function(axpy_cuda()) is first  # it was used more recently than `fewer`


def test_what_nothing_refers_to_is_unloaded(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    """cuda.core keeps what was launched once: the library is ours to unload."""

    def source(n: int) -> Any:
        return cuda_source(AXPY_CUDA + "\n" * n, "axpy", AXPY_PARAMS, (4, 1, 1), (32, 1, 1))

    for n in range(3):
        gpu.function(source(n))
    gpu._functions.clear()
    gc.collect()
    synced = fake.synced
    held = gpu.function(source(3))
    assert fake.loaded == {3} and fake.synced == synced + 1  # not while one of them may run
    gpu._functions.clear()
    gpu.function(source(4))
    assert fake.loaded == {3, 4} and held.name == "axpy"


def test_a_bare_text_says_so_once(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    y, x = _arrays()
    with pytest.warns(UserWarning, match="kernel axpy is a bare text") as said:
        function = gpu.function(AXPY_CUDA, "axpy")
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpu.function(AXPY_CUDA, "axpy")
    there = gpu.to_device(y), gpu.to_device(x)
    gpu.launch(function, 4, 32, *there, np.float32(2), dynamic_shared_bytes=64)
    assert np.array_equal(gpu.to_host(there[0]), 1 + 2 * x)
    assert fake.launches == [("axpy", (4, 1, 1), (32, 1, 1), 64, 1)]
    with pytest.raises(UsageError, match=r"scalars must be numpy scalars such as np.float32\(x\)"):
        gpu.launch(function, 4, 32, *there, 2.0)
    with pytest.raises(UsageError, match="is a bare text: give its grid and block"):
        gpu.launch(function, None, 32, *there, np.float32(2))
    with pytest.raises(UsageError, match="a bare text needs the name of its kernel"):
        gpu.function(AXPY_CUDA)


def test_a_bare_text_writes_every_writable_array_back(fake: FakeCUDA) -> None:
    y, x = _arrays()
    fixed = x.copy()
    fixed.flags.writeable = False
    with pytest.warns(UserWarning):
        cuda.run_cuda(AXPY_CUDA, "axpy", 4, 32, y, fixed, np.float32(2))
    assert np.array_equal(y, 1 + 2 * x)


def test_work_of_no_size_is_no_launch(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    idle = cuda_source(AXPY_CUDA, "axpy", AXPY_PARAMS, (0, 1, 1), (32, 1, 1))
    y, x = (gpu.to_device(a) for a in _arrays())
    gpu.launch(gpu.function(idle), None, None, y, x, 2.0)
    assert not fake.launches


def test_scalars_go_as_their_bits(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    got: list[Any] = []
    fake.kernels["s"] = lambda *values: got.extend(values)
    kinds = (dtypes.u8, dtypes.bool, dtypes.bf16, dtypes.f16, dtypes.f8e4m3, dtypes.f64)
    params = tuple(Param(i, d, 1, written=False, scalar=True) for i, d in enumerate(kinds))
    text = 'extern "C" __global__ void s() {}'
    source = cuda_source(text, "s", params, (1, 1, 1), (1, 1, 1))
    gpu.launch(gpu.function(source), None, None, 200, True, 1.0, 1.0, 1.0, 1.0)
    assert [(int(v), v.dtype.itemsize) for v in got] == [
        (200, 1),
        (1, 1),
        (0x3F80, 2),
        (0x3C00, 2),
        (0x38, 1),
        (0x3FF0000000000000, 8),
    ]


def test_shared_memory_beyond_48_kb_is_asked_for_once(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    def source(size: int) -> Any:
        call = (AXPY_CUDA, "axpy", AXPY_PARAMS, (4, 1, 1), (32, 1, 1))
        return cuda_source(*call, dynamic_shared_bytes=size)

    y, x = (gpu.to_device(a) for a in _arrays())
    for size in (48 << 10, 100 << 10, 100 << 10):
        gpu.launch(gpu.function(source(size)), None, None, y, x, 2.0)
    assert fake.asked_shared == [100 << 10]
    assert [launch[3] for launch in fake.launches] == [48 << 10, 100 << 10, 100 << 10]
    with pytest.raises(TargetError, match="wants 167936 bytes of shared memory, sm_80 allows"):
        gpu.launch(gpu.function(source(164 << 10)), None, None, y, x, 2.0)


def test_limits_are_checked_before_the_launch(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    fake.max_threads = 16
    y, x = (gpu.to_device(a) for a in _arrays())
    with pytest.raises(TargetError, match="a block of 32 threads, as compiled it allows 16 at"):
        gpu.launch(gpu.function(axpy_cuda()), None, None, y, x, 2.0)
    with pytest.warns(UserWarning):
        bare = gpu.function(AXPY_CUDA, "axpy")
    with pytest.raises(TargetError, match="grid y of 70000 blocks"):
        gpu.launch(bare, (1, 70000), 8, y, x, np.float32(2))
    assert not fake.launches


def test_text_for_another_machine(gpu: cuda.CUDA) -> None:
    with pytest.raises(TargetError, match=r"rendered for sm_90, this GPU is sm_80. Render it with"):
        gpu.function(axpy_cuda("sm_90"))
    assert gpu.function(axpy_cuda("sm_75")).cubin.arch == "sm_80"
    with pytest.raises(UsageError, match="kernel axpy is emulated text, a GPU runs CUDA"):
        gpu.function(axpy_c("emulated"))
    with pytest.raises(UsageError, match="defines kernel 'axpy', not 'other'"):
        gpu.function(axpy_cuda(), "other")


@pytest.mark.parametrize(
    ("rendered", "device", "arch"),
    [
        ("sm_80", "sm_80", "sm_80"),
        ("sm_80", "sm_90", "sm_90"),
        ("sm_90a", "sm_90", "sm_90a"),
        ("sm_100f", "sm_103", "sm_103f"),
        ("sm_90a", "sm_100", None),
        ("sm_100f", "sm_120", None),
        ("sm_90", "sm_80", None),
        ("cpu", "sm_80", None),
    ],
)
def test_the_arch_to_compile_for(rendered: str, device: str, arch: str | None) -> None:
    if arch is None:
        with pytest.raises(TargetError, match=f"rendered for {rendered}, this GPU is {device}"):
            cuda.arch_for("k", target(rendered), target(device))
    else:
        assert cuda.arch_for("k", target(rendered), target(device)) == arch


def test_out_of_memory_is_tried_again_once(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    fake.free_bytes, fake.cached_bytes = 100, 1000
    assert gpu.alloc(500).size == 500
    assert fake.trims == [0]
    with pytest.raises(cuda.OutOfMemoryError) as error:
        gpu.alloc(5000)
    assert fake.trims == [0, 0]
    assert str(error.value) == (
        "GPU 0 is out of memory: 5000 bytes wanted, 1100 of 1048576 free. "
        "Let go of arrays that are no longer needed, or use smaller ones."
    )
    assert isinstance(error.value, DeviceError) and isinstance(error.value, MemoryError)
    assert error.value.__context__ is None  # it holds no frames of the failed tries
    assert gpu.alloc(10).size == 10  # the device goes on


def test_debug_mode_waits_and_names_the_kernel(fake: FakeCUDA, tmp_path: Path) -> None:
    gpu = cuda.CUDA(config=Config(cache_dir=tmp_path, sync=True))
    y, x = (gpu.to_device(a) for a in _arrays())
    function, before = gpu.function(axpy_cuda()), fake.legacy.synced
    gpu.launch(function, None, None, y, x, 2.0)
    assert fake.legacy.synced == before + 1
    fake.fault = "CUDA_ERROR_ILLEGAL_ADDRESS: while\nrunning"
    with pytest.raises(DeviceError) as error:
        gpu.launch(function, None, None, y, x, 2.0)
    assert str(error.value) == (
        "kernel axpy (grid (4, 1, 1), block (32, 1, 1), shared 0) failed on GPU 0: "
        "CUDA_ERROR_ILLEGAL_ADDRESS: while. The GPU's context is lost: restart the process."
    )


def test_a_late_failure_tells_how_to_find_the_kernel(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    fake.fault = "CUDA_ERROR_ILLEGAL_ADDRESS: while running"
    with pytest.raises(DeviceError, match=r"a kernel launched before failed .* UOPC_SYNC=1 names"):
        gpu.synchronize()


def test_a_cubin_that_the_driver_refuses(gpu: cuda.CUDA, fake: FakeCUDA) -> None:
    fake.fault = "no"
    with pytest.raises(
        DeviceError, match=r"kernel axpy \(made for sm_80, the GPU is Fake \(sm_80, "
    ):
        gpu.function(axpy_cuda())


def test_another_device(gpu: cuda.CUDA) -> None:
    y, x = (gpu.to_device(a) for a in _arrays())
    far = DeviceArray(x.pointer, x.shape, x.dtype, device=1)
    with pytest.raises(UsageError, match="runs on GPU 0, argument 1 is on GPU 1"):
        gpu.launch(gpu.function(axpy_cuda()), None, None, y, far, 2.0)
    with pytest.raises(DeviceError, match="there is no GPU 3: the driver shows 1"):
        cuda.CUDA(3)


def test_the_target_is_the_machine_s(fake: FakeCUDA) -> None:
    found = cuda.device_target()
    assert (found.name, found.sms, found.shared_optin_bytes) == ("sm_80", 7, 163 << 10)
    assert cuda.describe() == "Fake (sm_80, driver for CUDA 13.0)"


def test_a_gpu_newer_than_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made = FakeCUDA(sm=199)
    monkeypatch.setattr(cuda, "_cuda_python", lambda: (made.core, made.driver))
    cuda.device_target.cache_clear()
    found = cuda.device_target()
    cuda.device_target.cache_clear()
    assert (found.name, found.sm, found.sms, found.parameter_bytes) == ("sm_199a", 199, 7, 32764)


def test_dlpack_from_the_host_is_copied_like_numpy(fake: FakeCUDA) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **given: Any) -> Any:
            return self.array.__dlpack__(**given)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    y, x = _arrays()
    cuda.run_cuda(axpy_cuda(), "axpy", None, None, Foreign(y), Foreign(x), 2.0)
    assert np.array_equal(y, 1 + 2 * x)

"""Launches on a real GPU: results, streams, arrays of others, failures."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from tests.runtime.sources import AXPY_CUDA, axpy_cuda, copy_params, cuda_source
from uopc.dtype import DATA, DType, dtypes
from uopc.errors import TargetError
from uopc.kernel import Param
from uopc.runtime import cuda
from uopc.runtime.arrays import DeviceArray
from uopc.runtime.timing import CUDAClock, time_candidates

pytestmark = pytest.mark.gpu
_UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
#: keeps the GPU busy for the given number of its clocks
_SPIN = """extern "C" __global__ void spin(long long* out, long long clocks) {
  long long start = clock64(); while (clock64() - start < clocks) {} out[0] = clocks; }"""
_SPIN_PARAMS = (
    Param(0, dtypes.i64, 1, written=True),
    Param(1, dtypes.i64, 1, written=False, scalar=True),
)


@pytest.fixture(scope="module")
def gpu() -> cuda.CUDA:
    return cuda.open_device()


def _arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.ones(100, np.float32), np.arange(100, dtype=np.float32)


def _spin(gpu: cuda.CUDA) -> cuda.Function:
    return gpu.function(cuda_source(_SPIN, "spin", _SPIN_PARAMS, (1, 1, 1), (1, 1, 1)))


def test_run_cuda() -> None:
    y, x = _arrays()
    cuda.run_cuda(axpy_cuda(), "axpy", (4, 1, 1), (32, 1, 1), y, x, 2.0)
    assert np.array_equal(y, 1 + 2 * x)


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_every_dtype_in_memory_and_by_value(dtype: DType) -> None:
    kind = _UNSIGNED[dtype.itemsize]
    text = f"""extern "C" __global__ void copy({kind}* out, const {kind}* in, {kind} value) {{
      out[threadIdx.x] = threadIdx.x < 4 ? in[threadIdx.x] : value; }}"""
    out, read = copy_params(dtype, 8)
    scalar = Param(2, dtype, 1, written=False, scalar=True)
    source = cuda_source(text, "copy", (out, read, scalar), (1, 1, 1), (8, 1, 1))
    x = np.array([0, 1, 1, 0, 1, 1, 0, 0]).astype(dtype.numpy)
    value = np.array(1).astype(dtype.numpy)
    y = np.zeros(8, dtype.numpy)
    cuda.run_cuda(source, "copy", None, None, y, x, value)
    assert y.tobytes() == x[:4].tobytes() + value.tobytes() * 4


class _Interface:
    """Device memory that only `__cuda_array_interface__` shows."""

    def __init__(self, array: DeviceArray) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.owner = array


def _by_interface(gpu: cuda.CUDA, host: Any) -> tuple[Any, Any]:
    made = gpu.to_device(host)
    return _Interface(made), lambda: gpu.to_host(made)


def _by_dlpack(gpu: cuda.CUDA, host: Any) -> tuple[Any, Any]:
    from cuda.core.utils import StridedMemoryView

    made = gpu.to_device(host)
    view = StridedMemoryView.from_buffer(made.owner, shape=host.shape, dtype=host.dtype)
    return view, lambda: gpu.to_host(made)


def _by_torch(gpu: cuda.CUDA, host: Any) -> tuple[Any, Any]:
    torch = importlib.import_module("torch")
    made = torch.from_numpy(host.copy()).cuda()
    return made, lambda: made.cpu().numpy()


def _by_cupy(gpu: cuda.CUDA, host: Any) -> tuple[Any, Any]:
    cupy = importlib.import_module("cupy")
    made = cupy.asarray(host)
    return made, lambda: cupy.asnumpy(made)


_WAYS = {"interface": _by_interface, "dlpack": _by_dlpack}
_WAYS |= {"torch": _by_torch} if importlib.util.find_spec("torch") else {}
_WAYS |= {"cupy": _by_cupy} if importlib.util.find_spec("cupy") else {}


@pytest.mark.parametrize("way", _WAYS)
def test_arrays_of_others_are_used_in_place(gpu: cuda.CUDA, way: str) -> None:
    host_y, host_x = _arrays()
    y, read = _WAYS[way](gpu, host_y)
    x, _ = _WAYS[way](gpu, host_x)
    cuda.run_cuda(axpy_cuda(), "axpy", None, None, y, x, 2.0)
    gpu.synchronize()
    assert np.array_equal(read(), 1 + 2 * host_x)
    assert (host_y == 1).all()


@pytest.mark.parametrize("way", [way for way in ("own", "torch") if way in ("own", *_WAYS)])
def test_a_bf16_array(gpu: cuda.CUDA, way: str) -> None:
    text = """extern "C" __global__ void fill(unsigned short* out) { out[threadIdx.x] = 0x3f80; }"""
    params = (Param(0, dtypes.bf16, 32, written=True),)
    source = cuda_source(text, "fill", params, (1, 1, 1), (32, 1, 1))
    if way == "own":
        made = gpu.to_device(np.zeros(32, dtypes.bf16.numpy))
        cuda.run_cuda(source, "fill", None, None, made)
        assert (gpu.to_host(made) == 1).all()
        return
    torch = importlib.import_module("torch")
    out = torch.zeros(32, dtype=torch.bfloat16, device="cuda")
    cuda.run_cuda(source, "fill", None, None, out)
    torch.cuda.synchronize()
    assert bool((out == 1).all())


def test_work_goes_to_the_stream_that_is_named(gpu: cuda.CUDA) -> None:
    """A launch waits for what its own stream holds, and not for what another does."""
    mine, other = gpu.create_stream(), gpu.create_stream()
    spin, out = _spin(gpu), gpu.empty(1, np.int64)
    y, x = (gpu.to_device(a) for a in _arrays())
    axpy = gpu.function(axpy_cuda())
    gpu.synchronize()
    gpu.launch(spin, None, None, out, 300_000_000, stream=mine)
    gpu.launch(axpy, None, None, y, x, 2.0, stream=other)
    done_on_other, done_on_mine = gpu.record(other), gpu.record(mine)
    done_on_other.sync()
    assert not done_on_mine.is_done
    gpu.synchronize(mine)
    assert np.array_equal(gpu.to_host(y), 1 + 2 * _arrays()[1])


def test_a_stream_of_torch(gpu: cuda.CUDA) -> None:
    if not importlib.util.find_spec("torch"):
        return  # nothing to try: `test_streams` covers how its object is read
    torch = importlib.import_module("torch")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y, x = torch.ones(100, device="cuda"), torch.arange(100.0, device="cuda")
        cuda.run_cuda(axpy_cuda(), "axpy", None, None, y, x, 2.0, stream=stream)
        assert bool((y == 1 + 2 * x).all())  # read on the same stream


@pytest.mark.uninstrumented
def test_events_measure(gpu: cuda.CUDA) -> None:
    spin, out = _spin(gpu), gpu.empty(1, np.int64)
    times = []
    for clocks in (1_000_000, 1_000_000, 10_000_000):
        start = gpu.record()
        gpu.launch(spin, None, None, out, clocks)
        times.append(gpu.elapsed_ms(start, gpu.record()))
    assert 0.2 < times[1] < 5
    assert 5 < times[2] / times[1] < 20


@pytest.mark.uninstrumented
def test_the_cool_protocol(gpu: cuda.CUDA) -> None:
    spin, out = _spin(gpu), gpu.empty(1, np.int64)
    runs = {n: (lambda n=n: gpu.launch(spin, None, None, out, n)) for n in (0, 100_000, 1_000_000)}
    named = {str(n): run for n, run in runs.items()}
    taken = time_candidates(named, CUDAClock(gpu), samples=5)
    assert taken["0"].median_s < 20e-6  # an empty kernel: no wait for Python is in it
    assert taken["0"].median_s < taken["100000"].median_s < taken["1000000"].median_s < 5e-3


@pytest.mark.uninstrumented
def test_out_of_memory(gpu: cuda.CUDA) -> None:
    with pytest.raises(cuda.OutOfMemoryError, match=r"GPU 0 is out of memory: \d+ bytes wanted"):
        gpu.alloc(1 << 50)
    y, x = _arrays()
    cuda.run_cuda(axpy_cuda(), "axpy", None, None, y, x, 2.0)
    assert np.array_equal(y, 1 + 2 * x)


def test_dynamic_shared_memory_beyond_48_kb(gpu: cuda.CUDA) -> None:
    size = gpu.target.shared_optin_bytes
    text = f"""extern __shared__ int tile[];
    extern "C" __global__ void reverse(int* p) {{
      tile[{size // 4} - 32 + threadIdx.x] = p[threadIdx.x]; __syncthreads();
      p[threadIdx.x] = tile[{size // 4} - 1 - threadIdx.x]; }}"""
    params = (Param(0, dtypes.i32, 32, written=True),)
    call = (text, "reverse", params, (1, 1, 1), (32, 1, 1))
    p = np.arange(32, dtype=np.int32)
    cuda.run_cuda(cuda_source(*call, dynamic_shared_bytes=size), "reverse", None, None, p)
    assert np.array_equal(p, np.arange(32)[::-1])
    with pytest.raises(TargetError, match=f"wants {size + 4} bytes of shared memory, sm_"):
        cuda.run_cuda(cuda_source(*call, dynamic_shared_bytes=size + 4), "reverse", None, None, p)


def test_launch_bounds_limit_the_block(gpu: cuda.CUDA) -> None:
    """AXPY_CUDA promises 32 threads a block: more is refused before the driver is asked."""
    with pytest.warns(UserWarning):
        bare = gpu.function(AXPY_CUDA, "axpy")
    y, x = (gpu.to_device(a) for a in _arrays())
    with pytest.raises(TargetError, match="a block of 64 threads, as compiled it allows 32"):
        gpu.launch(bare, 2, 64, y, x, np.float32(2))
    gpu.launch(bare, 4, 32, y, x, np.float32(2))
    assert np.array_equal(gpu.to_host(y), 1 + 2 * _arrays()[1])


def test_any_thread_may_launch(gpu: cuda.CUDA) -> None:
    outs = [np.ones(100, np.float32) for _ in range(4)]
    x = _arrays()[1]
    threads = [
        threading.Thread(target=cuda.run_cuda, args=(axpy_cuda(), "axpy", None, None, y, x, 2.0))
        for y in outs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(y, 1 + 2 * x) for y in outs)


def test_work_of_no_size(gpu: cuda.CUDA) -> None:
    empty = cuda_source(AXPY_CUDA, "axpy", copy_params(dtypes.f32, 0), (0, 1, 1), (32, 1, 1))
    nothing = np.zeros(0, np.float32)
    cuda.run_cuda(empty, "axpy", None, None, nothing, nothing)


def test_the_target_is_this_machine_s(gpu: cuda.CUDA) -> None:
    assert gpu.target.is_gpu and gpu.target.sms > 0
    assert gpu.target.name.rstrip("a") in cuda.describe()
    assert gpu.target.shared_optin_bytes >= gpu.target.shared_static_bytes
    assert cuda.why_unusable() == ""


@pytest.mark.uninstrumented
def test_kernels_unload_with_their_last_reference(gpu: cuda.CUDA) -> None:
    """Tuning loads thousands: device memory must not grow with them (8 MiB each here)."""

    def load(n: int) -> None:
        text = f"""__device__ char held[8 << 20];
        extern "C" __global__ void k{n}(char* p) {{ held[p[0]] = {n % 100}; p[1] = held[p[2]]; }}"""
        params = (Param(0, dtypes.i8, 4, written=True),)
        source = cuda_source(text, f"k{n}", params, (1, 1, 1), (1, 1, 1))
        gpu.launch(gpu.function(source), None, None, p)
        gpu.synchronize()
        gpu._functions.popitem()

    p = gpu.to_device(np.zeros(4, np.int8))
    load(0)
    grown = []
    for first in range(1, 33, 8):  # what other processes take counts too: the least of four
        free = int(gpu._driver.cuMemGetInfo()[1])
        for n in range(first, first + 8):
            load(n)
        grown.append(free - int(gpu._driver.cuMemGetInfo()[1]))
    assert min(grown) < 32 << 20


@pytest.mark.uninstrumented
def test_debug_mode_names_the_kernel_that_failed() -> None:
    """In a process of its own: the context is lost afterwards."""
    program = """
import numpy as np
from tests.runtime.sources import cuda_source, copy_params
from uopc.dtype import dtypes
from uopc.runtime import cuda
text = 'extern "C" __global__ void bad(int* p, const int* q) { *(int*)(q[0] + 8ll) = 1; }'
source = cuda_source(text, "bad", copy_params(dtypes.i32, 4), (1, 1, 1), (1, 1, 1))
a, b = np.zeros(4, np.int32), np.zeros(4, np.int32)
try:
    cuda.run_cuda(source, "bad", None, None, a, b)
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = os.environ | {"UOPC_SYNC": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    said = done.stdout
    assert said.startswith("DeviceError kernel bad (grid (1, 1, 1), block (1, 1, 1), shared 0)")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said and "The GPU's context is lost" in said

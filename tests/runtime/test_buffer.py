"""Buffers on every device: contents, views, copies, and what statistics say."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.fake_cuda import FakeCUDA
from uopc.dtype import DATA, DType, dtypes
from uopc.errors import DeviceError, UsageError
from uopc.runtime import cuda, memory
from uopc.runtime.arrays import DeviceArray
from uopc.runtime.buffer import (
    Buffer,
    empty_cache,
    memory_stats,
    reset_peak,
    synchronize,
)

_HOST = ("cpu", "emulated")


@pytest.fixture(params=[*_HOST, "fake", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each device; "fake" is a GPU made of host memory."""
    if request.param == "fake":
        request.getfixturevalue("fake_hopper")
        return "cuda"
    return str(request.param)


def _floats(n: int) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.float32)


@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_there_and_back(device: str, dtype: DType) -> None:
    array = (np.arange(12) % 3).astype(dtype.numpy).reshape(3, 4)
    made = Buffer.from_numpy(device, array.T)
    assert (made.device, made.dtype, made.size) == (device, dtype, 12)
    assert made.numpy().dtype == dtype.numpy
    assert made.numpy().tobytes() == array.T.tobytes()  # C order of what was given


def test_what_is_read_is_a_copy(device: str) -> None:
    source = _floats(100)
    made = Buffer.from_numpy(device, source)
    source[:] = 0
    read = made.numpy()
    read[:] = 1
    assert np.array_equal(made.numpy(), _floats(100))


@pytest.mark.parametrize("size", [0, 1, 7, 16, 1000, 100_003])
def test_addresses_are_aligned(device: str, size: int) -> None:
    held = [Buffer(device, dtypes.f32, size) for _ in range(3)]
    assert all(b.address % memory.ALIGNMENT == 0 for b in held)
    assert len({b.address for b in held}) == 3
    assert held[0].zero().numpy().tolist() == [0] * size


def test_views_are_parts_of_one_memory(device: str) -> None:
    arena = Buffer(device, dtypes.u8, 512).zero()
    low, high = arena.view(0, dtypes.f32, 16), arena.view(256, dtypes.i64, 8)
    low.write(_floats(16))
    high.write(np.arange(8))
    part = high.view(0, dtypes.i64, 2)
    whole = arena.numpy()
    assert np.array_equal(whole[:64].view(np.float32), _floats(16))
    assert np.array_equal(whole[256:320].view(np.int64), np.arange(8))
    assert part.numpy().tolist() == [0, 1] and part.address == high.address
    before = memory_stats(device).in_use_bytes
    del arena, low, high
    assert memory_stats(device).in_use_bytes == before  # the last view keeps all of it
    del part
    assert memory_stats(device).in_use_bytes == before - 512


@pytest.mark.parametrize(("offset", "size"), [(4, 1), (64, 17), (-64, 1), (192, 1)])
def test_a_view_that_does_not_fit(device: str, offset: int, size: int) -> None:
    arena = Buffer(device, dtypes.u8, 128)
    with pytest.raises(
        UsageError, match=rf"a view of f32\[{size}\] at byte {offset} wants a multi"
    ):
        arena.view(offset, dtypes.f32, size)


def test_what_cannot_be_written(device: str) -> None:
    made = Buffer(device, dtypes.f32, 4)
    with pytest.raises(
        UsageError, match=r"f32\[4\] at 0x\w+\) cannot take float64 of shape \(4,\)"
    ):
        made.write(np.zeros(4))
    with pytest.raises(UsageError, match=r"cannot take float32 of shape \(5,\)"):
        made.write(_floats(5))
    with pytest.raises(UsageError, match="numpy dtype complex128 has no counterpart"):
        Buffer.from_numpy(device, np.zeros(2, complex))
    for other in (Buffer(device, dtypes.i32, 4), Buffer(device, dtypes.f32, 5)):
        with pytest.raises(UsageError, match="cannot be copied to"):
            made.copy_to(other)


@pytest.mark.parametrize("other", _HOST)
@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_copies_between_devices(device: str, other: str, size: int) -> None:
    made = Buffer.from_numpy(device, _floats(size))
    there, back = Buffer(other, dtypes.f32, size), Buffer(device, dtypes.f32, size)
    made.copy_to(there)
    made.zero()
    there.copy_to(back)
    there.zero()
    again = Buffer(device, dtypes.f32, size)
    back.copy_to(again)
    assert np.array_equal(again.numpy(), _floats(size)) and not made.numpy().any()


def test_copies_between_gpus(fake_hopper: FakeCUDA) -> None:
    fake_hopper.driver.cuDeviceGetCount = lambda: (0, 2)
    made, there = Buffer.from_numpy("cuda", _floats(9)), Buffer("cuda:1", dtypes.f32, 9)
    assert (made.device, there.device) == ("cuda", "cuda:1")
    made.copy_to(there)
    assert np.array_equal(there.numpy(), _floats(9))
    assert isinstance(there.array, DeviceArray) and there.array.device == 1


@pytest.mark.parametrize("device", _HOST)
def test_the_array_of_a_buffer_is_its_memory(device: str) -> None:
    made = Buffer(device, dtypes.bf16, 10)
    array = made.array
    assert isinstance(array, np.ndarray) and array.dtype == ml_dtypes.bfloat16
    array[:] = 3
    assert (made.numpy() == 3).all()
    before = memory_stats(device).in_use_bytes
    del made
    assert memory_stats(device).in_use_bytes == before and (array == 3).all()
    del array
    assert memory_stats(device).in_use_bytes == before - 20


def test_the_array_of_a_gpu_keeps_its_memory(fake_hopper: FakeCUDA) -> None:
    array = Buffer.from_numpy("cuda", _floats(8)).array
    gc.collect()
    assert isinstance(array, DeviceArray) and memory_stats("cuda").in_use_bytes == 32
    assert np.array_equal(cuda.open_device().to_host(array), _floats(8))


def test_statistics(device: str) -> None:
    gc.collect()
    reset_peak(device)
    start = memory_stats(device)
    assert start.peak_bytes == start.in_use_bytes <= start.reserved_bytes
    one = Buffer(device, dtypes.f32, 1000)
    two = Buffer(device, dtypes.f32, 3000)
    del one
    now = memory_stats(device)
    assert now.in_use_bytes == start.in_use_bytes + 12000
    assert now.peak_bytes == start.in_use_bytes + 16000
    assert now.allocations == start.allocations + 2
    del two
    reset_peak(device)
    assert memory_stats(device).peak_bytes == start.in_use_bytes


@pytest.mark.parametrize("device", _HOST)
def test_memory_comes_back_to_the_pool(device: str) -> None:
    empty_cache(device)
    start = memory_stats(device).reserved_bytes
    first = Buffer(device, dtypes.f32, 100_000)
    where = first.address
    del first
    kept = memory_stats(device).reserved_bytes - start
    assert 400_000 <= kept < 460_000  # sizes are rounded up by an eighth at most
    again = Buffer(device, dtypes.f32, 99_999)
    assert again.address == where and memory_stats(device).reserved_bytes == start + kept
    del again
    empty_cache(device)
    assert memory_stats(device).reserved_bytes == start


def test_large_arrays_for_numpy_are_from_the_pool() -> None:
    made = Buffer("cpu", dtypes.f64, 1 << 18).zero()
    before = memory_stats("cpu")
    read = made.numpy()
    part, where = read[5:], read.ctypes.data
    del read
    other = made.numpy()
    assert other.ctypes.data != where  # what is left of the first keeps it
    del part
    again = made.numpy()
    assert again.ctypes.data == where and again.flags.writeable and again.flags.c_contiguous
    now = memory_stats("cpu")
    assert (now.in_use_bytes, now.allocations) == (before.in_use_bytes, before.allocations)


def test_the_host_keeps_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT_MAX_BYTES", 1 << 16)
    mine = memory.HostMemory("cpu")
    blocks = [mine.allocate(30_000) for _ in range(2)]
    blocks.clear()
    assert 60_000 <= mine.stats().reserved_bytes <= 1 << 16
    big = mine.allocate(1 << 17)
    assert mine.stats().reserved_bytes > 1 << 17
    del big
    assert mine.stats().reserved_bytes == 0


def test_a_gpu_gives_what_it_keeps_back(fake_hopper: FakeCUDA) -> None:
    made = Buffer("cuda", dtypes.f32, 10)
    del made
    empty_cache("cuda")
    assert fake_hopper.trims == [0] and memory_stats("cuda").reserved_bytes == 1 << 16


@pytest.mark.parametrize("device", _HOST)
def test_out_of_memory_names_sizes(device: str) -> None:
    held = Buffer(device, dtypes.f32, 1000)
    with pytest.raises(cuda.OutOfMemoryError) as error:
        Buffer(device, dtypes.u8, 1 << 60)
    said = str(error.value)
    assert said.startswith(f"{device} is out of memory: {1 << 60} bytes wanted, ")
    assert isinstance(error.value, MemoryError) and held.zero().numpy().sum() == 0


def test_a_gpu_out_of_memory_names_sizes(fake_hopper: FakeCUDA) -> None:
    with pytest.raises(cuda.OutOfMemoryError, match="GPU 0 is out of memory: 4194304 bytes wanted"):
        Buffer("cuda", dtypes.f32, 1 << 20)
    assert memory_stats("cuda").allocations == 0


def test_memory_that_was_let_go_is_there_for_the_next(fake_hopper: FakeCUDA) -> None:
    """A freed block is the pool's at once, not when somebody next counts."""
    from tests.runtime.fake_cuda import Buffer as Raw

    made = Buffer("cuda", dtypes.f32, 10)
    before = Raw.live
    del made
    assert Raw.live == before - 1


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_memories", {})
    monkeypatch.setattr(cuda, "_opened", {})
    monkeypatch.setattr(cuda, "why_unusable", lambda: "no NVIDIA driver found. Install one.")
    with pytest.raises(DeviceError, match=r"no NVIDIA driver found\. Install one\."):
        Buffer("cuda", dtypes.f32, 1)
    for name in ("gpu", "cuda:x", "cpu:1", ""):
        with pytest.raises(
            UsageError, match=r"no device is called .* there are cpu, emulated, cuda"
        ):
            Buffer(name, dtypes.f32, 1)


def test_one_device_has_one_name(fake_hopper: FakeCUDA) -> None:
    assert Buffer("cuda:0", dtypes.f32, 1).device == "cuda"
    assert memory.memory_of("cuda:0") is memory.memory_of("cuda")
    with pytest.raises(DeviceError, match="there is no GPU 7: the driver shows 1"):
        Buffer("cuda:7", dtypes.f32, 1)


def test_buffers_can_be_watched_and_shown(device: str) -> None:
    made = Buffer(device, dtypes.i32, 3)
    watched = weakref.ref(made)
    assert repr(made) == f"Buffer({device}, i32[3] at {made.address:#x})"
    synchronize(device)
    del made
    assert watched() is None


def test_pinned_sources_are_waited_for(fake_hopper: FakeCUDA) -> None:
    """The driver reads pinned memory late; any other it has read when the call returns."""
    source, made = _floats(4), Buffer("cuda", dtypes.f32, 4)
    work = cuda.open_device().work
    made.write(source)
    assert work.synced == 0
    fake_hopper.pinned.add(source.ctypes.data)
    made.write(source)
    assert work.synced == 1


def test_many_threads(device: str) -> None:
    wrong: list[object] = []
    start = memory_stats(device).in_use_bytes

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        held: list[tuple[Buffer, np.ndarray[Any, Any]]] = []
        for _ in range(100):
            array = rng.integers(0, 1000, rng.integers(1, 5000))
            held.append((Buffer.from_numpy(device, array), array))
            if len(held) > 5:
                made, was = held.pop(int(rng.integers(5)))
                if not np.array_equal(made.numpy(), was):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and memory_stats(device).in_use_bytes == start


# ---- on a GPU
@pytest.mark.gpu
def test_a_source_may_change_while_the_copy_waits() -> None:
    """The stream is busy with copies of its own, so that what was written comes to it late."""
    n = 1 << 24
    busy, other, made = (Buffer("cuda", dtypes.f32, n).zero() for _ in range(3))
    for size in (16, 5_000, 200_000, n):
        part = made.view(0, dtypes.f32, size)
        source = np.full(size, 1.0, np.float32)
        for _ in range(20):
            busy.copy_to(other)
        part.write(source)
        source[:] = 2.0
        del source
        assert (part.numpy() == 1.0).all()


@pytest.mark.gpu
def test_memory_let_go_in_a_thread_without_a_context_comes_back() -> None:
    pool = cuda.open_device()._device.memory_resource.attributes
    synchronize("cuda")
    before = pool.used_mem_current
    held = [Buffer("cuda", dtypes.f32, 1 << 22)]
    assert pool.used_mem_current >= before + (4 << 22)
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    synchronize("cuda")
    assert pool.used_mem_current == before


@pytest.mark.gpu
@pytest.mark.uninstrumented
def test_a_real_gpu_out_of_memory() -> None:
    with pytest.raises(cuda.OutOfMemoryError, match=f"GPU 0 is out of memory: {1 << 46} bytes"):
        Buffer("cuda", dtypes.u8, 1 << 46)
    held = Buffer("cuda", dtypes.u8, 1 << 28)
    total = memory_stats("cuda").reserved_bytes
    assert total >= 1 << 28
    del held
    empty_cache("cuda")
    assert memory_stats("cuda").reserved_bytes <= total - (1 << 28)

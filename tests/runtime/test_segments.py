"""Tables of chunks, and bundles as arguments: what fits, what does not, and what is passed."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime import fake_cuda
from tests.runtime.fake_cuda import FakeCUDA
from tests.runtime.sources import cuda_source
from uopc.config import Config
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.kernel import Param, Source
from uopc.runtime import cuda
from uopc.runtime.arrays import Bundle, DeviceArray, address, check_arguments
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launcher
from uopc.runtime.segments import Chunks, count_for

PARAMS = (
    Param(0, dtypes.f32, 64, written=True, align=16, bundle=4),
    Param(1, dtypes.f32, 64, written=False, bundle=4),
)


def floats(*sizes: int) -> list[np.ndarray[Any, Any]]:
    return [np.arange(n, dtype=np.float32) for n in sizes]


def bound(*arguments: Any, on_device: bool = False) -> list[Any]:
    return check_arguments("update", PARAMS, arguments, on_device)


def refused(*arguments: Any, on_device: bool = False) -> str:
    with pytest.raises(UsageError) as error:
        bound(*arguments, on_device=on_device)
    return str(error.value)


# ---- chunks
def test_chunks_of_arrays() -> None:
    chunks = Chunks((1, 0, 129, 64), 64)
    assert (chunks.used, chunks.count) == (5, 8)
    assert chunks.of.tolist() == [0, 2, 2, 2, 3]
    assert chunks.first.tolist() == [0, 0, 64, 128, 0]
    assert chunks.lengths.tolist() == [1, 64, 64, 1, 64, 0, 0, 0]
    assert chunks.lengths.dtype == np.int32
    table = chunks.table([1000, 2000, 3000, 4000], 4)
    assert table.dtype == np.uint64
    assert table[:8].tolist() == [1000, 3000, 3256, 3512, 4000, 0, 0, 0]
    assert table[8:].tolist() == chunks.lengths.tolist()
    own = chunks.own_table([8, 16, 24, 32])
    assert own.tolist() == [8, 24, 24, 24, 32, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0]


def test_views_and_tables_name_the_same_places() -> None:
    arrays = floats(1, 0, 129, 64)
    chunks = Chunks(tuple(a.size for a in arrays), 64)
    views = chunks.views(arrays)
    assert [v.size for v in views] == chunks.lengths[:5].tolist()
    made = Bundle(tuple(views), chunks.count).table
    assert np.array_equal(made, chunks.table([address(a) for a in arrays], 4))
    assert chunks.own_views("abcd") == ["a", "c", "c", "c", "d"]


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0, 0)])
def test_nothing_to_do(sizes: tuple[int, ...]) -> None:
    chunks = Chunks(sizes, 64)
    assert (chunks.used, chunks.count) == (0, 1)
    assert chunks.table([7] * len(sizes), 4).tolist() == [0, 0]
    assert chunks.views(floats(*sizes)) == []


def test_counts_are_few() -> None:
    counts = {count_for([64] * n, 64) for n in range(1, 1000)}
    assert counts == {1 << k for k in range(11)}
    with pytest.raises(UsageError, match=r"2 arrays have 3 chunks of 64 .* the kernel is for 2"):
        Chunks((65, 1), 64, 2)


# ---- arguments
def test_a_bundle_is_a_list_of_arrays() -> None:
    written, read = floats(64, 0, 3), floats(1, 64)
    first, second = bound(written, tuple(read))
    assert all(a is b for a, b in zip(first.arrays, written, strict=True))
    table = first.table.tolist()
    assert table == [*(address(a) for a in written), 0, 64, 0, 3, 0]
    assert address(second) == second.table.ctypes.data
    assert PARAMS[0].passed == (dtypes.u64, 8)


def test_a_table_that_is_there_is_taken() -> None:
    table = np.zeros(8, np.uint64)
    assert bound(table, floats(1))[0] is table
    on_gpu = DeviceArray(512, (8,), dtypes.u64)
    assert bound(on_gpu, on_gpu, on_device=True) == [on_gpu, on_gpu]
    assert "got ndarray. Pass a list of its arrays" in refused(np.zeros(7, np.uint64), [])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((np.zeros(64, np.float32), []), "argument 0: expected a list of up to 4 f32 arrays wr"),
        ((floats(1, 1, 1, 1, 1), []), "argument 0: expected a list of up to 4 f32 arrays .* got 5"),
        (([np.zeros(3)], []), r"argument 0\[0\]: expected f32, got float64"),
        (([], floats(3, 65)), r"argument 1\[1\]: expected 64 elements, got 65"),
        (([np.zeros((4, 4), np.float32)[:, 1]], []), r"argument 0\[0\] is not C-contiguous"),
        (([], [3.0]), r"argument 1\[0\]: expected an array of f32, got float"),
    ],
)
def test_what_does_not_fit(arguments: tuple[Any, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        bound(*arguments)


def test_arrays_that_share_bytes() -> None:
    whole = np.zeros(64, np.float32)
    assert "arguments 0[0] and 0[1] overlap in memory and both are written" in refused(
        [whole[:33], whole[32:]], []
    )
    assert "arguments 0[1] and 1[0] overlap in memory and argument 0[1] is written" in refused(
        [floats(3)[0], whole], [whole[8:9]]
    )
    bound([whole[:32], whole[32:]], floats(3))
    bound(floats(3), [whole, whole[3:]])


def test_arrays_on_devices() -> None:
    def there(pointer: int, size: int = 4) -> DeviceArray:
        return DeviceArray(pointer, (size,), dtypes.f32)

    first, _ = bound([there(256), there(512)], [there(1024)], on_device=True)
    assert first.table.tolist() == [256, 512, 0, 0, 4, 4, 0, 0]
    assert "argument 0[1] starts at an address that is no multiple of 16" in refused(
        [there(256), there(520)], [], on_device=True
    )
    assert "argument 0[0] is in GPU memory" in refused([there(256)], [])


# ---- on a GPU made of host memory
_TEXT = """extern "C" __global__ void __launch_bounds__(32)
update(float* const* p0, const float* const* p1) { p0[blockIdx.x][0] += p1[blockIdx.x][0]; }
"""


def _memory(start: int, size: int, c: type[Any]) -> Any:
    return np.ctypeslib.as_array((c * size).from_address(start))


def _update(written: int, read: int) -> None:
    to, source = (_memory(p, 8, ctypes.c_uint64) for p in (written, read))
    for n in range(4):
        size = int(to[4 + n])
        if size:
            _memory(int(to[n]), size, ctypes.c_float)[:] += _memory(
                int(source[n]), size, ctypes.c_float
            )


@pytest.fixture
def update(fake_hopper: FakeCUDA) -> Source:
    fake_hopper.kernels["update"], fake_hopper.counts["update"] = _update, 2
    return cuda_source(_TEXT, "update", PARAMS, (4, 1, 1), (32, 1, 1))


def test_run_cuda_copies_each_array(fake_hopper: FakeCUDA, update: Source) -> None:
    to, source = floats(3, 64, 0), floats(3, 64, 0)
    cuda.run_cuda(update, "update", None, None, to, source)
    for x, y in zip(to, floats(3, 64, 0), strict=True):
        assert np.array_equal(x, 2 * y)
    assert len(fake_hopper.launches) == 1


def test_the_table_of_the_same_arrays_is_kept(fake_hopper: FakeCUDA, update: Source) -> None:
    gpu = cuda.open_device()
    function = gpu.function(update)
    to = [gpu.to_device(x) for x in floats(3, 64)]
    source = [gpu.to_device(x) for x in floats(3, 64)]
    gpu.launch(function, None, None, to, source)
    live = fake_cuda.Buffer.live
    gpu.launch(function, None, None, to, source)
    assert fake_cuda.Buffer.live == live
    assert np.array_equal(gpu.to_host(to[1]), 3 * floats(64)[0])
    with pytest.raises(UsageError, match=r"argument 1\[1\] is in host memory"):
        gpu.launch(function, None, None, to, [source[0], floats(64)[0]])
    for n in range(40):  # only the last few tables stay
        one = gpu.to_device(np.zeros(n + 1, np.float32))
        gpu.launch(function, None, None, to, [one, source[1]])
    assert len(gpu._tables) == 16


def test_a_buffer_of_addresses_is_a_bundle(fake_hopper: FakeCUDA, update: Source) -> None:
    chunks = Chunks((3, 70), 64, 4)
    to, source = ([Buffer.from_numpy("cuda", x) for x in floats(3, 70)] for _ in range(2))
    tables = [
        Buffer.from_numpy("cuda", chunks.table([b.address for b in buffers], 4))
        for buffers in (to, source)
    ]
    launcher = Launcher(SimpleNamespace(runs=update), "cuda", config=Config(sync=True))
    launcher(tables)
    for b, x in zip(to, floats(3, 70), strict=True):
        assert np.array_equal(b.numpy(), 2 * x)

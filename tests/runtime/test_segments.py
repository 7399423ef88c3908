"""Tables of chunks, and bundles as arguments: what fits, what does not, and what is passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime import fake_cuda
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.kernel import Param
from uopc.runtime.arrays import Bundle, DeviceArray, address, check_arguments
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
    with pytest.raises(UsageError, match="2 arrays have 3 chunks of 64 .* the kernel is for 2"):
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

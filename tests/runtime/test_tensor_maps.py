"""Tensor maps on a GPU made of host memory: what is encoded, kept, passed and refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.runtime.fake_cuda import FakeCUDA
from uopc.dtype import dtypes
from uopc.errors import DeviceError, ToolchainError
from uopc.examples import EXAMPLES
from uopc.kernel import TensorMapUse
from uopc.pipeline import render_cuda
from uopc.runtime import cuda, tensor_maps
from uopc.runtime.tensor_maps import MAP_ALIGNMENT, TensorMap, TensorMaps
from uopc.uop.ops import TensorMapArg

USE = TensorMapUse(0, dtypes.bf16, TensorMapArg((40, 24, 64), (24 * 64, 64), (1, 8, 64), 128))


def test_the_driver_gets_the_innermost_axis_first(fake_hopper: FakeCUDA) -> None:
    made = TensorMaps(fake_hopper.driver).of(4096, USE)
    sizes, strides, box, steps = (64, 24, 40), (128, 3072), (64, 8, 1), (1, 1, 1)
    assert fake_hopper.encoded == [(9, 4096, sizes, strides, box, steps, 0, 3, 2, 0)]
    assert ctypes.string_at(made.address, 128) == b"\xab" * 128


def test_a_vector_has_no_strides(fake_hopper: FakeCUDA) -> None:
    TensorMaps(fake_hopper.driver).of(
        256, TensorMapUse(1, dtypes.f32, TensorMapArg((64,), (), (32,)))
    )
    assert fake_hopper.encoded == [(7, 256, (64,), (), (32,), (1,), 0, 0, 2, 0)]


def test_maps_lie_where_the_driver_wants_them() -> None:
    maps = [TensorMap() for _ in range(20)]
    assert all(m.address % MAP_ALIGNMENT == 0 for m in maps)


def test_maps_are_kept_by_place_and_view(
    fake_hopper: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_maps, "KEPT_MAX", 2)
    maps = TensorMaps(fake_hopper.driver)
    first = maps.of(4096, USE)
    assert maps.of(4096, USE) is first and len(fake_hopper.encoded) == 1
    maps.of(8192, USE)
    assert maps.of(4096, USE) is first, "used last, so it stays"
    maps.of(12288, USE)
    maps.of(8192, USE)
    assert [e[1] for e in fake_hopper.encoded] == [4096, 8192, 12288, 8192]


def test_what_the_driver_refuses_is_said(fake_hopper: FakeCUDA) -> None:
    fake_hopper.encode_status = 1
    with pytest.raises(DeviceError, match="refuses a tensor map of parameter 0 at 0x1000: error 1"):
        TensorMaps(fake_hopper.driver).of(4096, USE)


def test_an_old_driver_has_none(fake_hopper: FakeCUDA) -> None:
    fake_hopper.driver.cuGetProcAddress = lambda *_: (0, 0, 1)
    with pytest.raises(ToolchainError, match=r"has no cuTensorMapEncodeTiled\. Update it"):
        TensorMaps(fake_hopper.driver).of(4096, USE)


def test_a_launch_passes_pointers_then_maps(fake_hopper: FakeCUDA) -> None:
    source = render_cuda(EXAMPLES["bulk_transpose"].build(), "turn", "sm_90")
    x, y = EXAMPLES["bulk_transpose"].arrays()
    seen = []

    def kernel(where: int) -> None:
        places = (ctypes.c_uint64 * 3).from_address(where)
        pointers = [ctypes.c_uint64.from_address(p).value for p in places[:2]]
        seen.append((pointers, ctypes.string_at(places[2], 128)))
        view = (ctypes.c_float * y.size).from_address(pointers[1])
        np.ctypeslib.as_array(view)[:] = 7

    fake_hopper.kernels["turn"] = kernel
    cuda.run_cuda(source, "turn", None, None, x, y)
    (pointers, bytes_) = seen[0]
    assert bytes_ == b"\xab" * 128 and fake_hopper.encoded[0][1] == pointers[0]
    assert np.all(y == 7) and fake_hopper.launches == [("turn", (2, 1, 1), (96, 1, 1), 0, 1)]


def test_a_launch_that_fails_names_the_kernel(fake_hopper: FakeCUDA) -> None:
    source = render_cuda(EXAMPLES["bulk_transpose"].build(), "turn", "sm_90")
    gpu = cuda.CUDA()
    arrays = [gpu.to_device(a) for a in EXAMPLES["bulk_transpose"].arrays()]
    function = gpu.function(source)
    fake_hopper.fault = "CUDA_ERROR_ILLEGAL_ADDRESS"
    with pytest.raises(DeviceError, match=r"kernel turn .*CUDA_ERROR_ILLEGAL_ADDRESS"):
        gpu.launch(function, None, None, *arrays)

"""What a failed ASSERT leaves behind, on a GPU made of host memory."""

from __future__ import annotations

import ctypes
import gc

import pytest

from tests.runtime.fake_cuda import FakeCUDA
from uopc.errors import DeviceError
from uopc.examples import EXAMPLES
from uopc.kernel import Source
from uopc.pipeline import render_cuda
from uopc.runtime import cuda
from uopc.runtime.asserts import WORDS


def source() -> Source:
    return render_cuda(EXAMPLES["checked_square"].build(), "square")


def test_the_report_names_message_block_and_thread(fake_hopper: FakeCUDA) -> None:
    def fails(x: int, y: int) -> None:
        report = (ctypes.c_uint32 * WORDS).from_address(fake_hopper.variable.value)
        report[:7] = [1, 2, 0, 0, 37, 1, 0]
        fake_hopper.fault = "CUDA_ERROR_LAUNCH_FAILED"

    fake_hopper.kernels["square"] = fails
    gpu = cuda.CUDA()
    arrays = [gpu.to_device(a) for a in EXAMPLES["checked_square"].arrays()]
    function = gpu.function(source())
    gpu.launch(function, None, None, *arrays)
    says = (
        r"kernel square: assert failed: x must not be negative, in block \(2, 0, 0\), "
        r"thread \(37, 1, 0\)\. The GPU's context is lost"
    )
    with pytest.raises(DeviceError, match=says):
        gpu.synchronize()


def test_other_failures_stay_what_they_are(fake_hopper: FakeCUDA) -> None:
    gpu = cuda.CUDA()
    function = gpu.function(source())
    assert function.report is not None and function.report.failure == ""
    fake_hopper.fault = "CUDA_ERROR_LAUNCH_FAILED"
    with pytest.raises(DeviceError, match="a kernel launched before failed on GPU 0"):
        gpu.synchronize()


def test_the_report_stays_as_long_as_the_code(fake_hopper: FakeCUDA) -> None:
    gpu = cuda.CUDA()
    function = gpu.function(source())
    assert len(gpu._reports) == 1
    gpu._functions.clear()
    del function
    gc.collect()
    assert len(gpu._reports) == 1, "a kernel may still run"
    gpu._unload_retired()
    gc.collect()
    assert len(gpu._reports) == 0


def test_kernels_without_asserts_have_no_report(fake_hopper: FakeCUDA) -> None:
    gpu = cuda.CUDA()
    assert gpu.function(render_cuda(EXAMPLES["votes"].build(), "votes")).report is None

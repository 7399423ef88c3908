"""Which devices can run, and what is said of those that cannot."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from uopc.config import Config
from uopc.errors import DeviceError, UsageError
from uopc.runtime import cuda
from uopc.runtime.device import default_device, devices


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> str:
    reason = "no NVIDIA driver found (libcuda). Install one; until then kernels run emulated."
    monkeypatch.setattr(cuda, "why_unusable", lambda: reason)
    return reason


def test_every_device_is_listed(no_gpu: str) -> None:
    found = {info.name: info for info in devices(Config())}
    assert list(found) == ["cuda", "emulated", "cpu"]
    assert (found["cuda"].usable, found["cuda"].detail) == (False, no_gpu)
    assert found["cpu"].usable and "C kernels by /" in found["cpu"].detail


def test_a_missing_compiler_is_told() -> None:
    found = {info.name: info for info in devices(Config(cc="/no/such/cc"))}
    assert not found["cpu"].usable and not found["emulated"].usable
    assert "set UOPC_CC" in found["cpu"].detail


def test_default(no_gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_device(Config()) == "emulated"
    assert default_device(Config(device="cpu")) == "cpu"
    with pytest.raises(DeviceError, match=r"device cuda is not usable: no NVIDIA driver"):
        default_device(Config(device="cuda"))
    with pytest.raises(UsageError, match="UOPC_DEVICE is 'tpu'; it is one of cuda, emulated, cpu"):
        default_device(Config(device="tpu"))
    with pytest.raises(DeviceError, match=r"no device is usable. cuda: .* cpu: no C compiler"):
        default_device(Config(cc="/no/such/cc"))
    monkeypatch.setattr(cuda, "why_unusable", lambda: "")
    monkeypatch.setattr(cuda, "describe", lambda: "a GPU")
    assert default_device(Config()) == "cuda"


@pytest.fixture
def fresh() -> Any:
    cuda.why_unusable.cache_clear()
    yield
    cuda.why_unusable.cache_clear()


def _one_line(text: str) -> bool:
    return bool(text) and "\n" not in text and len(text) < 200


def test_no_driver_is_one_line(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    def not_found(_: int) -> Any:
        raise RuntimeError("libcuda\nmany\nlines")

    monkeypatch.setattr(driver, "cuInit", not_found)
    said = cuda.why_unusable()
    assert _one_line(said) and said.startswith("no NVIDIA driver found (libcuda).")
    with pytest.raises(DeviceError) as error:
        cuda.CUDA()
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("init", "count", "said"),
    [
        ("CUDA_ERROR_NO_DEVICE", 0, "does not start (CUDA_ERROR_NO_DEVICE). Check it with nvidia-"),
        ("CUDA_SUCCESS", 0, "shows no GPU. Check CUDA_VISIBLE_DEVICES"),
        ("CUDA_SUCCESS", 1, ""),
    ],
)
def test_a_driver_without_a_device(
    fresh: None, monkeypatch: pytest.MonkeyPatch, init: str, count: int, said: str
) -> None:
    from cuda.bindings import driver

    result = driver.CUresult
    monkeypatch.setattr(driver, "cuInit", lambda _: (getattr(result, init),))
    monkeypatch.setattr(driver, "cuDeviceGetCount", lambda: (result.CUDA_SUCCESS, count))
    reason = cuda.why_unusable()
    assert said in reason and (_one_line(reason) if said else not reason)


def test_no_cuda_python_is_one_line(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_cuda(name: str, *rest: Any) -> Any:
        if name.startswith("cuda"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_cuda)
    said = cuda.why_unusable()
    assert _one_line(said) and "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc" in said

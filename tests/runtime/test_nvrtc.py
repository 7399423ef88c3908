"""CUDA text compiles for every arch without a GPU; what is wrong is said in words."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.sources import AXPY_CUDA
from uopc.config import Config
from uopc.errors import TargetError, ToolchainError, UsageError
from uopc.runtime import nvrtc, sass
from uopc.runtime.nvrtc import compile_cubin, compile_ptx, known_archs


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A disk cache that these tests share."""
    return Config(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_a_small_kernel_on_every_arch(config: Config, arch: str) -> None:
    made = compile_cubin(AXPY_CUDA, "axpy", arch, config)
    assert made.code.startswith(b"\x7fELF") and (made.arch, made.name) == (arch, "axpy")
    used = made.resources
    assert 4 <= used.registers <= 32
    assert (used.shared_bytes, used.stack_bytes, used.spills, used.remarks) == (0, 0, False, ())


def test_ptx(config: Config) -> None:
    ptx = compile_ptx(AXPY_CUDA, "axpy", "sm_80", config)
    assert ".target sm_80" in ptx and ".entry axpy(" in ptx and "\x00" not in ptx
    assert "mul.rn.f32" in ptx and "fma" not in ptx  # --fmad=false


def test_a_known_text_needs_no_nvrtc(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_cubin(AXPY_CUDA, "axpy", "sm_80", config)

    def refuse() -> Any:
        raise AssertionError("asked for NVRTC")

    monkeypatch.setattr(nvrtc, "_nvrtc", refuse)
    assert compile_cubin(AXPY_CUDA, "axpy", "sm_80", config) == first
    compile_ptx(AXPY_CUDA, "axpy", "sm_80", config)
    with pytest.raises(AssertionError, match="asked for NVRTC"):
        compile_cubin(AXPY_CUDA + " ", "axpy", "sm_80", config)


def test_the_log_is_whole_the_second_time(tmp_path: Path) -> None:
    for folder in ("a", "b"):  # NVRTC itself has seen the text by then
        made = compile_cubin(AXPY_CUDA, "axpy", "sm_86", Config(cache_dir=tmp_path / folder))
        assert made.resources.registers > 0


def test_shared_memory_and_stack(config: Config) -> None:
    text = """extern "C" __global__ void f(float* p, int n) {
      float a[100]; __shared__ float s[64];
      for (int i = 0; i < 100; i++) a[i] = p[i];
      s[threadIdx.x] = a[n]; __syncthreads(); p[0] = s[n]; }"""
    used = compile_cubin(text, "f", "sm_80", config).resources
    assert used.shared_bytes == 256 and used.stack_bytes >= 400


def test_text_that_nvrtc_refuses(config: Config) -> None:
    with pytest.raises(ToolchainError) as error:
        compile_cubin(AXPY_CUDA.replace("float a)", "float b)"), "axpy", "sm_80", config)
    said = str(error.value)
    assert said.startswith(
        "NVRTC refused kernel axpy for sm_80 (NVRTC_ERROR_COMPILATION):\naxpy.cu(5)"
    )
    assert 'identifier "a" is undefined' in said
    assert re.search(r"^>    5 \|   if \(i < 100\)", said, re.M)
    assert re.search(r"^     3 \| axpy", said, re.M)


def test_text_without_the_kernel(config: Config) -> None:
    with pytest.raises(UsageError, match=r'no kernel other\. Declare it extern "C" __global__'):
        compile_cubin(AXPY_CUDA, "other", "sm_80", config)


def test_targets_that_nvrtc_has_not(config: Config) -> None:
    with pytest.raises(TargetError, match=r"compiles for sm_75, .*, not for sm_42. Choose one"):
        compile_cubin(AXPY_CUDA, "axpy", "sm_42", config)
    with pytest.raises(TargetError, match=r"has no target sm_80a. Leave out the last letter"):
        compile_cubin(AXPY_CUDA, "axpy", "sm_80a", config)


def test_a_kernel_that_is_too_large(config: Config) -> None:
    text = """extern "C" __global__ void f(int* p) { __shared__ int s[20000];
      s[threadIdx.x] = p[0]; __syncthreads(); p[1] = s[p[2]]; }"""
    with pytest.raises(TargetError, match=r"kernel f does not fit sm_80:\n(.|\n)*too much shared"):
        compile_cubin(text, "f", "sm_80", config)


def test_known_archs() -> None:
    assert {"sm_75", "sm_80", "sm_90", "sm_120"} <= set(known_archs())


def test_nvrtc_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_cuda(name: str, *rest: Any) -> Any:
        if name.startswith("cuda"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_cuda)
    with pytest.raises(ToolchainError) as error:
        compile_cubin(AXPY_CUDA, "axpy", "sm_80", Config(cache_dir=tmp_path))
    assert str(error.value) == (
        "NVRTC is missing (No module named 'cuda.bindings'). "
        "Get it with: pip install cuda-bindings nvidia-cuda-nvrtc"
    )


def test_another_nvrtc_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(cache_dir=tmp_path)
    compile_cubin(AXPY_CUDA, "axpy", "sm_80", config)
    before = len(list(tmp_path.iterdir()))
    monkeypatch.setattr(nvrtc, "nvrtc_identity", lambda: "nvidia-cuda-nvrtc 99.9")
    compile_cubin(AXPY_CUDA, "axpy", "sm_80", config)
    assert before == 2 and len(list(tmp_path.iterdir())) == 4  # a cubin and its PTX each


def test_sass(config: Config) -> None:
    made = compile_cubin(AXPY_CUDA, "axpy", "sm_80", config)
    assert "FMUL" in made.sass and "FFMA" not in made.sass and "EXIT" in made.sass


def test_no_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    sass.find_disassembler.cache_clear()
    with pytest.raises(ToolchainError, match="pip install nvidia-cuda-nvdisasm"):
        sass.disassemble(b"")
    sass.find_disassembler.cache_clear()


def test_bytes_that_are_no_cubin() -> None:
    with pytest.raises(ToolchainError, match="nvdisasm failed"):
        sass.disassemble(b"not a cubin")

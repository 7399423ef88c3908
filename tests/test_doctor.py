"""The doctor finds what is there, names the remedy for what is not, and runs a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.commands import environment, own_cache, plain
from uopc import __version__
from uopc import doctor as module
from uopc.doctor import Finding, cache, device_works, doctor, settings, toolchain
from uopc.errors import DeviceError, ToolchainError
from uopc.runtime.device import DeviceInfo, devices


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path) -> Iterator[None]:
    with own_cache(tmp_path / "cache"):
        yield


def found(name: str) -> Finding:
    return next(f for f in toolchain() if f.name == name)


def test_everything_is_named_and_a_device_works() -> None:
    out, text = plain()
    assert doctor(out) == 0
    said = text.getvalue()
    assert f"uopc {__version__}, Python 3" in said
    for name in ("numpy", "ml_dtypes", "cffi"):
        assert re.search(rf"{name} \d+\.\d+", said.replace("\n", " ")), name
    for name in ("C compiler", "driver, GPU", "NVRTC", "disassembler", "cache", "settings"):
        assert re.search(rf"^(ok|missing|failed) +{name} +\S", said, re.M), name
    for name in ("cuda", "emulated", "cpu"):
        assert re.search(rf"^(ok|missing) +device {name} +\S", said, re.M), name
    assert re.search(r"^kernels run on .*emulated and cpu$", said, re.M)


def test_versions_and_paths_are_told() -> None:
    compiler = found("C compiler")
    assert re.search(r"^/\S+ \(.*\d+\.\d+.*\)$", compiler.detail), compiler
    nvrtc = found("NVRTC")
    if nvrtc.state == "ok":
        assert re.search(r"\d+\.\d+.* for sm_\d+ to sm_\d+$", nvrtc.detail), nvrtc
        if at := re.search(r" at (/\S+),", nvrtc.detail):
            assert Path(at[1]).is_file()


def test_no_compiler_has_a_remedy_and_no_device_works(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [DeviceInfo(n, False, f"no {n}. Get one.") for n in ("cuda", "emulated", "cpu")]
    monkeypatch.setattr(module, "devices", lambda: states)
    with environment(UOPC_CC="/no/such/cc"):
        out, text = plain()
        assert doctor(out) == 1
    said = " ".join(text.getvalue().split())
    assert "missing C compiler no C compiler found: UOPC_CC is '/no/such/cc'. Install gcc" in said
    assert "missing device cpu no cpu. Get one." in said
    assert said.endswith("no device runs kernels")


@pytest.mark.parametrize(
    ("tool", "name"), [("known_archs", "NVRTC"), ("find_disassembler", "disassembler")]
)
def test_a_missing_tool_has_its_remedy(
    tool: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise ToolchainError("it is missing. Get it with: pip install it")

    monkeypatch.setattr(module, tool, missing)
    assert found(name) == Finding(name, "missing", "it is missing. Get it with: pip install it")


def test_a_driver_is_described_or_its_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "why_unusable", lambda: "no driver. Install one.")
    assert found("driver, GPU") == Finding("driver, GPU", "missing", "no driver. Install one.")
    monkeypatch.setattr(module, "why_unusable", lambda: "")
    monkeypatch.setattr(module, "describe", lambda: "GPU 5 (sm_90)")
    assert found("driver, GPU") == Finding("driver, GPU", "ok", "GPU 5 (sm_90)")


# ---- cache and settings
def test_the_cache_is_tried(tmp_path: Path) -> None:
    ok = cache()
    assert ok.state == "ok" and ok.detail.startswith(f"{tmp_path / 'cache'}: 0 entries, 0.0 MiB of")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with environment(UOPC_CACHE_DIR=str(tmp_path / "file" / "cache")):
        bad = cache()
    assert bad.state == "failed"
    assert re.search(r"cannot be written: Not a directory\. Set UOPC_CACHE_DIR to", bad.detail)


def test_a_cache_that_is_switched_off() -> None:
    with environment(UOPC_CACHE_MB="0"):
        off = cache()
    assert off.detail == "switched off by UOPC_CACHE_MB=0. Kernels compile each time."


def test_settings_are_those_that_differ(tmp_path: Path) -> None:
    usual = {"UOPC_DEBUG": "0", "UOPC_CHECK": "0", "UOPC_SEARCHED": "1"}
    with environment(UOPC_THREADS="2", **usual):
        assert settings().detail == f"UOPC_CACHE_DIR={tmp_path / 'cache'}, UOPC_THREADS=2"


# ---- the test kernel
def test_a_wrong_result_fails_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "compile", lambda *_, **__: lambda x: np.where(x > 1, x, 2 * x + 1))
    bad = device_works("cpu", True, "")
    assert bad.state == "failed"
    assert re.fullmatch(
        r"\d+ of 1009 elements of x \* 2 \+ 1 differ .* Please report it\.", bad.detail
    )


def test_an_error_fails_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise DeviceError("the GPU is on fire. Put it out.")

    monkeypatch.setattr(module, "compile", fails)
    bad = device_works("cuda", True, "")
    assert bad == Finding("device cuda", "failed", "DeviceError: the GPU is on fire. Put it out.")


@pytest.mark.gpu
def test_a_gpu_works() -> None:
    ok = next(i for i in devices() if i.name == "cuda")
    assert device_works("cuda", ok.usable, ok.detail).state == "ok"

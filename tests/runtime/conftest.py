"""A GPU made of host memory in the place of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.fake_cuda import FakeCUDA
from uopc.config import Config
from uopc.runtime import cuda, executor, memory


@pytest.fixture
def fake_hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCUDA]:
    """An sm_90 that cuda.CUDA(), run_cuda and the device "cuda" find."""
    made = FakeCUDA(sm=90)
    monkeypatch.setattr(memory, "_memories", {})
    monkeypatch.setattr(executor, "_words", {})
    monkeypatch.setattr(cuda, "current", lambda: Config(cache_dir=tmp_path))
    monkeypatch.setattr(cuda, "_cuda_python", lambda: (made.core, made.driver))
    monkeypatch.setattr(cuda, "_opened", {})
    cuda.device_target.cache_clear()
    yield made
    cuda.device_target.cache_clear()

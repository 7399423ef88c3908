"""scratch/train_mnist.py: what it learns, and the same losses on every device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scratch import train_mnist
from uopc.tensor import set_default_device

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def on() -> Iterator[None]:
    """The default device is what it was, afterwards."""
    yield
    set_default_device(None)


def losses(device: str, steps: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    set_default_device(device)
    return train_mnist.train(1, 0, steps, lambda n, total, loss: None).losses


@pytest.mark.usefixtures("on", "unchecked")
def test_losses_of_emulated_and_cpu_agree() -> None:
    np.testing.assert_allclose(losses("emulated", 3), losses("cpu", 3), rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.usefixtures("on")
def test_losses_of_cuda_and_cpu_agree() -> None:
    np.testing.assert_allclose(losses("cuda", 40), losses("cpu", 40), rtol=1e-2)


@pytest.mark.usefixtures("on")
def test_a_pass_over_the_digits_learns_most_of_them() -> None:
    set_default_device("cpu")
    seen: list[tuple[int, int]] = []
    trained = train_mnist.train(1, 1, None, lambda n, total, loss: seen.append((n, total)))
    assert seen[-1] == (140, 140) and len(trained.losses) == 140
    assert trained.losses[-20:].mean() < 0.25 * trained.losses[:5].mean()
    assert trained.accuracy > 0.85


def test_the_script_prints_the_accuracy_last_and_draws(tmp_path: Path) -> None:
    out = tmp_path / "digits.png"
    command = [sys.executable, "scratch/train_mnist.py", "--device", "cpu", "--steps", "30"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("test accuracy: ") and last.endswith("%")
    assert out.read_bytes()[:4] == b"\x89PNG"

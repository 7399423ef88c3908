"""The text of a few kernels in CUDA, C and emulated C, and that it never depends on the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rendered import EXAMPLES, SUFFIX, hand_written, texts

pytestmark = pytest.mark.usefixtures("unchecked")

ROOT = Path(__file__).resolve().parents[2]
RANDOM_KERNELS = 12


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, golden: Callable[[str, str], None]) -> None:
    example = EXAMPLES[name]
    for language, text in texts(example.bodies, example.gpu, example.cpu, name).items():
        golden(f"source/{name}{SUFFIX[language]}", text)


def test_hand_written_loops(golden: Callable[[str, str], None]) -> None:
    for language, text in hand_written().items():
        golden(f"source/gemm{SUFFIX[language]}", text)


def test_texts_depend_on_no_hash_and_no_address() -> None:
    first, second = (digests(hash_seed, clutter) for hash_seed, clutter in ((1, 0), (2, 1000)))
    assert len(first) == 3 * (len(EXAMPLES) + RANDOM_KERNELS) + 2
    assert first == second


def digests(hash_seed: int, clutter: int) -> list[str]:
    """A digest of each text from a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.rendered", str(clutter), str(RANDOM_KERNELS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()

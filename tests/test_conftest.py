"""gpu tests skip with the exact reason, or fail where a GPU is required."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GPU_TEST = """
import pytest

@pytest.mark.gpu
def test_launch() -> None:
    pytest.skip("no such instruction here")

def test_else() -> None:
    pass
"""


def outcome(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "test_fake.py").write_text(GPU_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]
    config = [str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(folder)]
    run = subprocess.run([*command, *config, *options], cwd=ROOT, capture_output=True, text=True)
    return run.stdout


def test_gpu_tests_run_only_when_asked_for_and_skip(tmp_path: Path) -> None:
    assert "1 passed, 1 deselected" in outcome(tmp_path)
    assert "1 skipped, 1 deselected" in outcome(tmp_path, "-m", "gpu")


def test_a_skip_fails_where_a_gpu_is_required(tmp_path: Path) -> None:
    # an error where the setup skips (no GPU), a failure where the test does (a GPU)
    printed = outcome(tmp_path, "-m", "", "--require-gpu")
    assert "test_launch - skipped, but --require-gpu was given: no " in printed
    assert re.search(r"1 passed, 1 error|1 failed, 1 passed", printed)


def test_a_module_that_skips_itself_fails_where_a_gpu_is_required(tmp_path: Path) -> None:
    lacking = "import pytest\npytest.importorskip('no_such_package')\n"
    (tmp_path / "test_lacking.py").write_text(lacking)
    assert "skipped, but --require-gpu" in outcome(tmp_path, "-m", "gpu", "--require-gpu")
    assert "error" not in outcome(tmp_path, "-m", "gpu")

"""README.md and the book: what they show is true today.  `make book` rewrites what is stale."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from book.run import ROOT, chapters


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_chapter(path: Path) -> None:
    command = [sys.executable, "book/run.py", "--check", str(path)]
    plain = {**os.environ, "UOPC_CHECK": "0"}  # chapters show plain text, and say where they check
    done = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contents_links_every_chapter_once() -> None:
    contents = (ROOT / "book" / "README.md").read_text()
    linked = re.findall(r"\]\(([^)/]+\.md)\)", contents)
    assert linked == [path.name for path in chapters() if path.parent.name == "book"]

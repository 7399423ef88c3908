"""The table of chapter 18 is that of what was recorded."""

from __future__ import annotations

import json
import subprocess
import sys

from book.run import ROOT

RECORDED = ROOT / "book" / "outputs" / "access_vs_ncu.nvidia_h200.json"
CHAPTER = ROOT / "book" / "18-seeing-a-kernel.md"


def test_the_chapter_shows_what_was_recorded() -> None:
    command = [sys.executable, "scratch/18_counters.py"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"```measured\n{made}```\n" in CHAPTER.read_text(), "run it with --update"
    for line in json.loads(RECORDED.read_text()):
        assert f"\n{line['kernel']:19} {line['report']['load_requests']:8.0f} " in made

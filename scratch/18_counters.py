"""The table of chapter 18: a report beside the counters of a GPU, as scratch/bench_access.py
recorded them in book/outputs/access_vs_ncu.txt (for its header) and .nvidia_h200.json.

    python scratch/18_counters.py             print it
    python scratch/18_counters.py --update    and put it into the chapter
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "book" / "outputs" / "access_vs_ncu.txt"
CHAPTER = ROOT / "book" / "18-seeing-a-kernel.md"
#: the block in the chapter: that whose command recorded this
BLOCK = re.compile(r"(?<=```measured\n)(?:(?!```).)*bench_access\.py(?:(?!```).)*(?=```)", re.S)
#: figures that are compared, and how they are called here
FIGURES = {
    "load_requests": "load requests",
    "load_sectors": "load sectors",
    "store_requests": "store requests",
    "store_sectors": "store sectors",
    "shared_load_conflicts": "conflicts of loads",
    "shared_store_conflicts": "conflicts of stores",
    "registers": "registers",
    "occupancy": "occupancy",
}
HEAD = """\
                       loads             stores         conflicts               us of   us ex-
kernel              requests sectors requests sectors    of loads  regs warps     ncu   pected"""


def rows(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The report's figures, and below them ncu's where that has another."""
    made = []
    for line in lines:
        said, seen = line["report"], line["ncu"]
        made.append(
            f"{line['kernel']:19}"
            f" {said['load_requests']:8.0f} {said['load_sectors']:7.0f}"
            f" {said['store_requests']:8.0f} {said['store_sectors']:7.0f}"
            f" {said['shared_load_conflicts']:11.0f} {said['registers']:5.0f}"
            f" {said['occupancy']:4.0f}% {seen['time_us']:7.2f} {said['predicted_us']:8.2f}"
            f"{'  emulated' if line['how'] != 'exact' else ''}"
        )
        made += [
            f"    {name}: {said[figure]:g}, ncu {seen[figure]:g}"
            for figure, name in FIGURES.items()
            if said[figure] != seen[figure]
        ]
    return made


def table() -> str:
    """The measured block's text."""
    header = RECORDED.read_text().split("\n\n")[0]
    (data,) = RECORDED.parent.glob(f"{RECORDED.stem}.*.json")
    lines = json.loads(data.read_text())
    off = [x for x in lines if any(x["report"][f] != x["ncu"][f] for f in FIGURES)]
    last = f"{len(lines)} launches, {len(lines) - len(off)} without a difference"
    return "\n".join((header, "", HEAD, *rows(lines), last, ""))


def main() -> int:
    made = table()
    if "--update" in sys.argv[1:]:
        CHAPTER.write_text(BLOCK.sub(lambda _: made, CHAPTER.read_text()))
    print(made, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

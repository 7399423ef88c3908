"""The kernels of the access table: what a report says of them, beside what a profiler counted.

The counters are those that `scratch/bench_access.py` has recorded; nothing is launched here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.access_table import BY_NAME, ROWS, Row, shared_tile
from tests.scripts import loaded
from uopc.inspect.access import listing
from uopc.inspect.records import AccessReport, How
from uopc.render.base import check_name
from uopc.uop.spec import check
from uopc.uop.stages import Stage

ROOT = Path(__file__).parents[1]
BENCH = loaded(ROOT / "scratch" / "bench_access.py")
RECORDED = {
    line["kernel"]: line
    for line in json.loads((ROOT / "book/outputs/access_vs_ncu.nvidia_h200.json").read_text())
}
REQUESTS = ("load_requests", "load_sectors", "store_requests", "store_sectors")
CONFLICTS = ("shared_load", "shared_store")
MOST_OFF = 0.02
#: what it receives from other blocks is written meanwhile, and differs from run to run
BESIDE_OTHERS = "softmax_cluster"
#: a page of ncu's, as it prints it: a line of names, one of units, one for each launch
PAGE = """\
==PROF== Connected to process 7
"ID","Kernel Name",{names}
"","",{units}
"0","first",{values}
"1","second(float *)",{values}
"""


@cache
def accesses(row: Row) -> dict[str, tuple[AccessReport, ...]]:
    """Of each launch by name, those that data decides as the emulator saw them."""
    steps = row.steps()
    found = [listing(s.program, s.source.name, s.source.target).accesses for s in steps]
    if any(a.how is How.UNKNOWN for of_launch in found for a in of_launch):
        found = [
            listing(s.program, s.source.name, s.source.target, counts).accesses
            for s, counts in zip(steps, row.observed(), strict=True)
        ]
    return {s.source.name: of_launch for s, of_launch in zip(steps, found, strict=True)}


# ---- the table
def test_rows_are_what_they_are_called() -> None:
    assert len(BY_NAME) == len(ROWS) >= 40
    assert all(check_name(name) for name in BY_NAME)


def test_each_row_was_measured() -> None:
    launched = {name for row in ROWS for name in accesses(row)}
    assert launched == set(RECORDED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_counts_what_a_gpu_counted(row: Row) -> None:
    """Requests and sectors exactly; conflicts within 2% of the wavefronts."""
    for name, of_launch in accesses(row).items():
        said, seen = BENCH.asked(of_launch), RECORDED[name]["ncu"]
        assert {f: said[f] for f in REQUESTS} == {f: seen[f] for f in REQUESTS}
        for kind in CONFLICTS if name != BESIDE_OTHERS else ():
            off = abs(said[f"{kind}_conflicts"] - seen[f"{kind}_conflicts"])
            assert off <= MOST_OFF * seen[f"{kind}_wavefronts"], name


def test_the_table_has_what_it_is_for() -> None:
    """Good and bad mappings, conflicts, copies, what data decides."""
    every = [a for row in ROWS for found in accesses(row).values() for a in found]
    assert {a.op for a in every} >= {"LOAD", "STORE", "COPY", "BULK", "LDMATRIX", "SEND", "ATOMIC"}
    assert {a.how for a in every} == {How.EXACT, How.EMULATED}
    assert any(a.conflicts for a in every) and any(a.used < 0.2 for a in every)


def test_loop_ir_of_a_tile() -> None:
    for pitch in (32, 33):
        check(shared_tile(pitch), Stage.LOOPS, True)
    (right,), (wrong,) = (accesses(BY_NAME[f"tile_of_{n}"]).values() for n in (33, 32))
    assert sum(a.conflicts for a in right) == 0
    assert sum(a.conflicts for a in wrong) == 31 * 2048


# ---- the benchmark
def test_without_a_gpu_it_says_its_own_side() -> None:
    command = [sys.executable, "scratch/bench_access.py", "--rows", "^(add_u8|tile_of_32)$"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    head, add, tile = ran.stdout.splitlines()
    assert ran.returncode == 0 and head.startswith("kernel ") and ran.stderr == ""
    assert add.split()[:5] == ["add_u8", "4096", "65536", "2048", "32768"]
    assert tile.split()[5:7] == ["65536", "63488"] and tile.endswith(" exact")


def test_what_is_missing_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BENCH.cuda, "why_unusable", lambda: "no GPU here")
    assert BENCH.main(["--out", str(tmp_path), "--rows", "add_u8"]) == BENCH.MISSING
    assert not list(tmp_path.iterdir())


def test_counters_are_read_with_their_units() -> None:
    units = {"time_us": "nsecond", "memory_bytes": "Kbyte"}
    page = PAGE.format(
        names=",".join(f'"{metric}"' for metric in BENCH.COUNTERS.values()),
        units=",".join(f'"{units.get(figure, "")}"' for figure in BENCH.COUNTERS),
        values=",".join('"1,500"' for _ in BENCH.COUNTERS),
    )
    found = BENCH.read_counters(page)
    assert set(found) == {"first", "second"} and found["first"] == found["second"]
    assert found["first"]["load_sectors"] == 1500.0
    assert found["first"]["time_us"] == 1.5 and found["first"]["memory_bytes"] == 1_500_000.0


@pytest.mark.parametrize(
    ("figure", "said", "off", "fails"),
    [
        ("load_sectors", 1000, {}, False),
        ("load_sectors", 1010, {"load_sectors": 0.01}, False),
        ("load_sectors", 1030, {"load_sectors": 0.03}, True),
        ("load_sectors", 900, {"load_sectors": -0.1}, True),
        ("registers", 1001, {"registers": 0.001}, True),  # at all
        ("shared_load_conflicts", 1010, {"shared_load_conflicts": 0.01}, False),
        ("shared_load_wavefronts", 5000, {}, False),  # not compared
    ],
)
def test_what_is_off(figure: str, said: float, off: dict[str, float], fails: bool) -> None:
    seen = dict.fromkeys(BENCH.COUNTERS, 1000.0)
    line = BENCH.Line("kernel", "exact", seen | {figure: said, "predicted_us": 1.0}, seen)
    assert line.off == pytest.approx(off) and line.fails is fails
    shown = BENCH.shown(line).splitlines()
    assert len(shown) == 1 + len(off)
    assert all(f"    {name}: report " in text for name, text in zip(off, shown[1:], strict=True))


def test_what_was_not_counted_is_off_without_bound() -> None:
    seen = dict.fromkeys(BENCH.COUNTERS, 0.0)
    line = BENCH.Line("kernel", "exact", seen | {"load_sectors": 5}, seen)
    assert line.off == {"load_sectors": float("inf")} and line.fails

"""What `make validate-gpu` decides, on steps that need no GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.validate_gpu import Outcome, Result, Step, all_steps, exit_code, run_all, run_step

PASS, FAIL, SKIP = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED


def step(code: str, limit_s: float = 60, skip_code: int | None = 3, missing: str = "") -> Step:
    return Step("fake", (sys.executable, "-c", code), limit_s, skip_code, missing)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([PASS, PASS], 0), ([PASS, SKIP], 3), ([SKIP, FAIL, PASS], 1), ([FAIL, PASS], 1)],
)
def test_exit_code(outcomes: list[Outcome], code: int) -> None:
    assert exit_code([Result("fake", outcome) for outcome in outcomes]) == code


@pytest.mark.parametrize(
    ("given", "outcome", "why"),
    [
        (step("print('fine')"), PASS, ""),
        (step("raise SystemExit(2)"), FAIL, "exit code 2: "),
        (step("print('no GPU here'); raise SystemExit(3)"), SKIP, "no GPU here"),
        # pytest's 3 is an internal error, not a skip
        (step("print('oh'); raise SystemExit(3)", skip_code=None), FAIL, "exit code 3: oh"),
        (step("import time; time.sleep(60)", limit_s=0.5), FAIL, "over 0.5 s"),
        (step("raise SystemExit(2)", missing="no tool"), SKIP, "no tool"),
        (Step("fake", ("no-such-program",)), FAIL, "No such file"),
    ],
)
def test_a_step_and_its_log(given: Step, outcome: Outcome, why: str, tmp_path: Path) -> None:
    result = run_step(given, tmp_path / "log")
    assert result.outcome is outcome
    assert why in result.why
    assert (result.why == "") == (outcome is PASS)
    assert (tmp_path / "log").read_text() != ""


def test_without_a_gpu_nothing_else_runs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    touch = step(f"open({str(marker)!r}, 'w')")
    no_gpu = step("print('no usable GPU'); raise SystemExit(3)")
    results = run_all(no_gpu, [touch], tmp_path / "logs")
    assert [r.outcome for r in results] == [SKIP, SKIP]
    assert "no usable GPU" in results[0].why
    assert not marker.exists()
    results = run_all(step("pass"), [touch], tmp_path / "logs")
    assert [r.outcome for r in results] == [PASS, PASS]
    assert marker.exists()
    assert [log.name for log in sorted((tmp_path / "logs").iterdir())] == [
        "00-fake.log",
        "01-fake.log",
    ]


def test_the_steps(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    for name in ("01_add.py", "bench_add.py"):
        (tmp_path / "scratch" / name).write_text("")
    steps = all_steps(tmp_path)
    names = [s.name for s in steps]
    assert names == ["gpu-tests", "memcheck", "racecheck", "bench_add", "01_add"]
    assert all("--require-gpu" in s.command and s.skip_code is None for s in steps[:3])
    assert all(s.skip_code == 3 for s in steps[3:])

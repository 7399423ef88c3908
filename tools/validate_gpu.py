"""Everything that only a machine with a GPU can show, step by step, with a log a step.

    python tools/validate_gpu.py [folder] [--only PATTERN ...]

Takes the Python that runs it, with the packages of pyproject.toml; uopc need not be installed.
Exit code: 0 every step passed, 1 one failed, 3 none failed and one was skipped (no GPU, say).
A script in scratch/ that lacks something says what on its last line, and exits with 3.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIP_CODE = 3
PACKAGES = (
    *("numpy", "ml_dtypes", "cffi", "pytest", "hypothesis"),
    *("cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc"),
)


class Outcome(Enum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Step:
    """One command with a time limit.

    skip_code: the exit code that means "something is missing here"; None: any but 0 is a failure.
    missing: what is known to be missing before the step runs; "" runs it.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float = 600
    skip_code: int | None = None
    missing: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a step; why: a line about it where it did not pass."""

    name: str
    outcome: Outcome
    time_s: float = 0.0
    why: str = ""


def run_step(step: Step, log: Path) -> Result:
    """Run one step, its output in `log`."""
    if step.missing:
        log.write_text(step.missing + "\n")
        return Result(step.name, Outcome.SKIPPED, 0.0, step.missing)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    with log.open("w") as out:
        print("$", *step.command, file=out, flush=True)
        try:
            code = subprocess.run(
                step.command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=step.limit_s,
            ).returncode
        except subprocess.TimeoutExpired:
            return Result(step.name, Outcome.FAILED, step.limit_s, f"over {step.limit_s:g} s")
        except OSError as error:
            return Result(step.name, Outcome.FAILED, 0.0, str(error))
    time_s = time.monotonic() - began
    if code == 0:
        return Result(step.name, Outcome.PASSED, time_s)
    last = next((line for line in reversed(log.read_text().splitlines()) if line.strip()), "")
    if code == step.skip_code:
        return Result(step.name, Outcome.SKIPPED, time_s, last)
    return Result(step.name, Outcome.FAILED, time_s, f"exit code {code}: {last}")


def run_all(environment: Step, steps: Sequence[Step], folder: Path) -> list[Result]:
    """The environment first: where it does not pass, the other steps are skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    first = run_step(environment, folder / f"00-{environment.name}.log")
    results = [first]
    print(line_of(first), flush=True)
    for number, step in enumerate(steps, 1):
        if first.outcome is not Outcome.PASSED:
            result = Result(step.name, Outcome.SKIPPED, 0.0, f"{first.name} did not pass")
        else:
            result = run_step(step, folder / f"{number:02}-{step.name}.log")
        results.append(result)
        print(line_of(result), flush=True)
    return results


def line_of(result: Result) -> str:
    """One row of the table."""
    row = f"{result.outcome.value:8} {result.time_s:7.1f} s  {result.name:28} {result.why}"
    return row.rstrip()


def exit_code(results: Sequence[Result]) -> int:
    """A failure outweighs a skip, a skip outweighs every pass."""
    outcomes = {result.outcome for result in results}
    if Outcome.FAILED in outcomes:
        return 1
    return SKIP_CODE if Outcome.SKIPPED in outcomes else 0


def all_steps(root: Path = ROOT) -> list[Step]:
    """The gpu suite, the sanitizers, the benchmarks, and every other script of scratch/."""
    python = sys.executable
    pytest = (python, "-m", "pytest", "-p", "no:cacheprovider", "--require-gpu", "-m")
    steps = [Step("gpu-tests", (*pytest, "gpu"), 1800)]
    sanitizer = shutil.which("compute-sanitizer")
    missing = (
        "" if sanitizer else "compute-sanitizer is not on PATH; it comes with the CUDA toolkit"
    )
    for tool in ("memcheck", "racecheck"):
        check = (sanitizer or "compute-sanitizer", "--tool", tool, "--error-exitcode", "86")
        options = ("--target-processes", "all", "--report-api-errors", "no")
        command = (*check, *options, *pytest, "gpu and not uninstrumented")
        steps.append(Step(tool, command, 1800, missing=missing))
    scripts = sorted(
        (root / "scratch").glob("*.py"), key=lambda p: ("bench_" not in p.name, p.name)
    )
    for script in scripts:
        run = (python, str(script.relative_to(root)))
        steps.append(Step(script.stem, run, 900, skip_code=SKIP_CODE))
    return steps


def describe_environment() -> int:
    """Print what this machine has; 3 where no kernel can be launched."""
    sys.path.insert(0, str(ROOT))
    from tests.device import why_no_gpu

    print(f"python {platform.python_version()} on {platform.platform()}")
    for package in PACKAGES:
        try:
            print(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            print(f"{package} is not installed")
    for command in (("git", "rev-parse", "HEAD"), ("nvidia-smi",)):
        if shutil.which(command[0]):
            subprocess.run(command, cwd=ROOT)
    sys.stdout.flush()
    if reason := why_no_gpu():
        print(reason)
    return SKIP_CODE if reason else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps, print a table of them, and leave it beside the logs."""
    parser = argparse.ArgumentParser(description="Validate uopc on a machine with a GPU.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "validate-gpu")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="step names")
    parser.add_argument("--describe", action="store_true", help="print the environment alone")
    given = parser.parse_args(arguments)
    if given.describe:
        return describe_environment()
    describe = (sys.executable, __file__, "--describe")
    chosen = [s for s in all_steps() if any(fnmatch.fnmatch(s.name, p) for p in given.only)]
    if not chosen:
        parser.error(f"no step is called {' or '.join(given.only)}")
    environment = Step("environment", describe, 120, skip_code=SKIP_CODE)
    results = run_all(environment, chosen, given.folder)
    (given.folder / "summary.txt").write_text("".join(line_of(r) + "\n" for r in results))
    counts = [f"{sum(r.outcome is o for r in results)} {o.value}" for o in Outcome]
    print(f"{', '.join(counts)}; logs: {given.folder}")
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())

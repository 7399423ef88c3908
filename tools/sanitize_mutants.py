"""The mutants of tests/mutation under compute-sanitizer, beside what the checked emulator says.

    python tools/sanitize_mutants.py verdicts FILE          needs no GPU: writes what uopc finds
    python tools/sanitize_mutants.py sanitize FILE FOLDER SECONDS   on a GPU: the tools; the table
    python tools/sanitize_mutants.py table FILE FOLDER      the table again, from the tools' logs
    python tools/sanitize_mutants.py launch NAME NUMBER...  what the second runs under a tool

Each mutant is a kernel called mutant_N, so that a tool's report says which it means.  Those that
uopc finds to hang are not launched.  Exit code 1: a tool found something that uopc did not.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.mutation.study import Emulated, Subject, modes, mutants_of
from tests.mutation.subjects import subjects
from uopc.errors import DeviceError, UopcError
from uopc.faults.raw import FaultKind
from uopc.pipeline import launch_dims, render_cuda
from uopc.runtime import cuda

ROOT = Path(__file__).resolve().parents[1]
GO_ON = ("--destroy-on-device-error", "kernel")
TOOLS = {
    "memcheck": GO_ON,
    "racecheck": (),
    "initcheck": (),
    "synccheck": (*GO_ON, "--missing-barrier-init-is-fatal", "no"),
}
COMMON = ("--show-backtrace", "no", "--print-limit", "20000")
WORKERS = 12
LIMIT_S = 100  # of one process, which launches the mutants of one kernel
NAMED = re.compile(r"mutant_(\d+)")


def verdicts() -> dict[str, list[dict[str, Any]]]:
    """Kernel -> for each of its mutants: what it is, and its kinds of faults."""
    out: dict[str, list[dict[str, Any]]] = {}
    for subject in subjects():
        runs = [replace(o, all_faults=True) for o in modes(subject.sink)]
        rows = []
        for mutant in mutants_of(subject.sink):
            kernel = Emulated(subject.word, mutant.sink, subject.target)
            told = [kernel.checked.run(subject.arrays(), o).faults for o in runs]
            kinds = sorted({f.kind.name for faults in told for f in faults})
            rows.append({"mutant": str(mutant), "kind": mutant.kind, "uopc": kinds})
        out[subject.name] = rows
    return out


# ---- launched under a tool
def launch(subject: Subject, numbers: Iterable[int]) -> None:
    """Launch mutants one after another; a line before each says which."""
    device = cuda.device_target()
    target = subject.target if subject.target.endswith("a") else device
    mutants = mutants_of(subject.sink)
    for n in numbers:
        print(f"BEGIN {n}", flush=True)
        sink = mutants[n].sink
        try:
            source = render_cuda(sink, f"mutant_{n}", target)
            cuda.run_cuda(source, source.name, *launch_dims(sink), *subject.arrays())
        except DeviceError as error:
            print(f"LOST {n} {error}".replace("\n", " "), flush=True)
            return
        except UopcError as error:
            print(f"REFUSED {n} {error}".replace("\n", " "), flush=True)
    print("END", flush=True)


Job: TypeAlias = tuple[str, str, list[int]]  # a tool, a kernel, its mutants


def run_tool(job: Job, folder: Path, deadline: float) -> None:
    """Write what a tool says, restarting after a mutant that breaks the context or hangs."""
    tool, name, left = job
    with log_of(folder, tool, name).open("w") as log:
        while left and (time_s := min(LIMIT_S, deadline - time.monotonic())) > 0:
            command = [
                *("compute-sanitizer", "--tool", tool, *TOOLS[tool], *COMMON),
                *(sys.executable, __file__, "launch", name, *map(str, left)),
            ]
            try:
                done = subprocess.run(
                    command, cwd=ROOT, capture_output=True, text=True, timeout=time_s
                )
                text = done.stdout + done.stderr
            except subprocess.TimeoutExpired as late:
                text = _text(late.stdout) + _text(late.stderr)
            begun = [int(n) for n in re.findall(r"^BEGIN (\d+)", text, re.M)]
            ended = re.search(r"^(?:END|LOST)", text, re.M) is not None
            print(
                "$",
                *command,
                text,
                *([] if ended else [f"HUNG {max(begun, default=-1)}"]),
                sep="\n",
                file=log,
                flush=True,
            )
            if re.search(r"^END", text, re.M) or not begun:
                return
            left = [n for n in left if n > max(begun)]


def log_of(folder: Path, tool: str, name: str) -> Path:
    return folder / f"{tool}-{re.sub(r'[^a-z0-9]+', '_', name)}.log"


def read_log(log: Path) -> dict[int, list[str]]:
    """What a tool said of each mutant that it saw."""
    text = log.read_text()
    found: dict[int, list[str]] = {int(n): [] for n in re.findall(r"^BEGIN (\d+)", text, re.M)}
    headline = ""
    for line in text.splitlines():
        if line.startswith("========= "):
            said = line.removeprefix("=========").strip()
            at = NAMED.search(said)
            if at is None:
                headline = said
            elif int(at[1]) in found and headline not in found[int(at[1])]:
                found[int(at[1])].append(headline or said)
    for n, why in re.findall(r"^(?:LOST|REFUSED) (\d+) (.*)", text, re.M):
        found[int(n)].append(f"launch: {why}")
    for n in re.findall(r"^HUNG (\d+)", text, re.M):
        found[int(n)].append("hangs")
    return found


def _text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


# ---- the table
def sanitize(file: Path, folder: Path, limit_s: float) -> int:
    """Run every tool on every mutant that does not hang, for so long; print the table."""
    known = json.loads(file.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[Job] = []
    for name, rows in known.items():
        numbers = [n for n, row in enumerate(rows) if FaultKind.DEADLOCK.name not in row["uopc"]]
        jobs += [(tool, name, numbers) for tool in TOOLS if numbers]
    jobs.sort(key=lambda job: -len(job[2]))
    deadline = time.monotonic() + limit_s
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda job: run_tool(job, folder, deadline), jobs))
    return table(known, folder)


def table(known: dict[str, list[dict[str, Any]]], folder: Path) -> int:
    """Read the logs and print what they say beside the verdicts."""
    for name, rows in known.items():
        for tool in TOOLS:
            log = log_of(folder, tool, name)
            for n, lines in read_log(log).items() if log.exists() else ():
                rows[n].setdefault("tools", {})[tool] = lines
    return report(known)


def report(known: dict[str, list[dict[str, Any]]]) -> int:
    """Print both / only uopc / only a tool / nobody, by kernel, and every line of the third."""
    columns = ("mutants", "hang", "not seen", "both", "only uopc", "only tools", "nobody")
    print(f"{'kernel':28}" + "".join(f"{c:>11}" for c in columns))
    total = dict.fromkeys(columns, 0)
    only_tools = []
    for name, rows in known.items():
        count = dict.fromkeys(columns, 0)
        for row in rows:
            count["mutants"] += 1
            if len(row.get("tools", ())) < len(TOOLS):
                hangs = FaultKind.DEADLOCK.name in row["uopc"]
                count["hang" if hangs else "not seen"] += 1
                continue
            tools = [t for t, lines in row["tools"].items() if lines]
            which = ("nobody", "only tools", "only uopc", "both")[
                2 * bool(row["uopc"]) + bool(tools)
            ]
            count[which] += 1
            if which == "only tools":
                only_tools.append((name, row, tools))
        for c in columns:
            total[c] += count[c]
        print(f"{name:28}" + "".join(f"{count[c]:>11}" for c in columns))
    print(f"{'all':28}" + "".join(f"{total[c]:>11}" for c in columns))
    for name, row, tools in only_tools:
        print(f"only {', '.join(tools)}: {name}: {row['mutant']}")
        for tool in tools:
            print(f"    {row['tools'][tool][0]}")
    return 1 if only_tools else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("verdicts", "sanitize", "table", "launch"))
    parser.add_argument("arguments", nargs="+")
    given = parser.parse_args()
    if given.what == "verdicts":
        Path(given.arguments[0]).write_text(json.dumps(verdicts(), indent=1))
        return 0
    if given.what == "launch":
        name, *numbers = given.arguments
        launch(next(s for s in subjects() if s.name == name), map(int, numbers))
        return 0
    if given.what == "table":
        return table(json.loads(Path(given.arguments[0]).read_text()), Path(given.arguments[1]))
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not on PATH; it comes with the CUDA toolkit")
        return 3
    file, folder, limit = given.arguments
    return sanitize(Path(file), Path(folder), float(limit))


if __name__ == "__main__":
    sys.exit(main())

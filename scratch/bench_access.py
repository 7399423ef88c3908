"""What a report says of memory, without a GPU, beside the counters of Nsight Compute.

    python scratch/bench_access.py --out DIR      on a GPU with ncu: profile, then compare
    python scratch/bench_access.py                the report's side alone; needs no GPU

The kernels: tests/access_table.py.  Requests and sectors of global loads and stores, bank
conflicts of shared memory, registers and theoretical occupancy of each launch.  A line says
where a figure differs; writes access_vs_ncu.txt and access_vs_ncu.<gpu>.json.  Exit code 1 where
one is off by more than 2% (registers and occupancy: at all), 3 where GPU or ncu are missing.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.access_table import ROWS, Row
from tests.beside_torch import Output
from uopc.inspect.records import AccessReport, How, Report
from uopc.inspect.report import report
from uopc.pipeline import render_cuda
from uopc.runtime import cuda
from uopc.uop.node import UOp

MISSING = 3
MOST_OFF = 0.02
#: figure -> ncu's counter
COUNTERS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "registers": "launch__registers_per_thread",
    "occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "time_us": "gpu__time_duration.sum",
    "memory_bytes": "dram__bytes.sum",
    "l2_sectors": "lts__t_sectors_srcunit_tex.sum",
}
#: what must agree.  Wavefronts need not: what only some lanes go on with, ptxas lets them read
COMPARED = (
    *("load_requests", "load_sectors", "store_requests", "store_sectors"),
    *("shared_load_conflicts", "shared_store_conflicts", "registers", "occupancy"),
)
_SCALE = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3}
_BYTES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


@dataclass(frozen=True)
class Line:
    """One launch: what the report says, what ncu counted; how: "exact" unless data decides."""

    kernel: str
    how: str
    report: Mapping[str, float]
    ncu: Mapping[str, float]

    @property
    def off(self) -> dict[str, float]:
        """Figures that differ, and by what part of what was counted; conflicts by what part of the
        wavefronts."""
        found = {}
        for name in COMPARED:
            said, seen = self.report[name], self.ncu[name]
            of = self.ncu[name.replace("conflicts", "wavefronts")]
            if said != seen:
                found[name] = (said - seen) / of if of else float("inf")
        return found

    @property
    def fails(self) -> bool:
        return any(
            abs(part) > MOST_OFF or name in ("registers", "occupancy")
            for name, part in self.off.items()
        )


def said(r: Report) -> dict[str, float]:
    """The report's figures."""
    out: dict[str, float] = {**asked(r.accesses)}
    out["registers"] = r.resources.launched_registers
    out["occupancy"] = round(100 * r.resources.occupancy, 2)
    out["predicted_us"] = round(r.roofline.predicted_s * 1e6, 2)
    out["memory_bytes"] = r.roofline.memory_bytes
    out["l2_sectors"] = r.roofline.moves_bytes // 32
    return out


def asked(accesses: Sequence[AccessReport]) -> dict[str, int]:
    """Those of memory: what all accesses of a launch ask for."""

    def total(space: str, store: bool, field: str) -> int:
        return sum(getattr(a, field) for a in accesses if _counts(a, space, store))

    out = {}
    for store, name in ((False, "load"), (True, "store")):
        for field in ("requests", "sectors"):
            out[f"{name}_{field}"] = total("global", store, field)
        for field in ("wavefronts", "conflicts"):
            out[f"shared_{name}_{field}"] = total("shared", store, field)
    return out


def _counts(a: AccessReport, space: str, store: bool) -> bool:
    """Is an access in the counters of the load and store unit?  Tensor copies and atomics have
    their own; what cp.async writes to shared memory is in none of these."""
    if a.op in ("BULK", "ATOMIC") or (a.op == "COPY" and a.space == "shared"):
        return False
    return a.space == space and a.store is store


def reports(rows: Sequence[Row]) -> Iterator[tuple[Report, str]]:
    """Every launch, and how its accesses were counted."""
    for row in rows:
        steps = row.steps()
        made = [report(step) for step in steps]
        if any(a.how is How.UNKNOWN for r in made for a in r.accesses):
            made = [
                report(step, found=counts)
                for step, counts in zip(steps, row.observed(), strict=True)
            ]
        for r in made:
            hows = {a.how for a in r.accesses} - {How.EXACT}
            yield r, " ".join(sorted(h.value for h in hows)) or How.EXACT.value


# ---- the GPU's side
def run_all(rows: Sequence[Row]) -> int:
    """Launch every kernel once, for the profiler."""
    for row in rows:
        kernel = row.kernel()
        arrays = [np.array(a) for a in row.inputs(kernel)]
        if isinstance(kernel, UOp):
            source = render_cuda(kernel, row.name, cuda.device_target())
            every = {p.slot: np.zeros(p.size, p.dtype.numpy) for p in source.params}
            given = [p.slot for p in source.params if not p.written]
            every |= dict(zip(given, arrays, strict=False))
            cuda.run_cuda(source, row.name, None, None, *[every[s] for s in sorted(every)])
        else:
            kernel(*arrays)
    return 0


def counted(folder: Path) -> dict[str, dict[str, float]]:
    """Profile `--run` and read the counters of each kernel by its name."""
    log = folder / "access_vs_ncu.csv"
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--log-file", str(log)]
    command += ["--metrics", ",".join(COUNTERS.values()), sys.executable, __file__, "--run"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_counters(log.read_text())


def read_counters(text: str) -> dict[str, dict[str, float]]:
    """Counters by kernel from ncu's raw page: a line of names, one of units, one a launch."""
    start = text.index('"ID"')
    names, units, *lines = csv.reader(text[start:].splitlines())
    found = {}
    for line in lines:
        row = dict(zip(names, line, strict=True))
        unit = dict(zip(names, units, strict=True))
        found[row["Kernel Name"].split("(")[0]] = {
            figure: _number(row[metric], unit[metric]) for figure, metric in COUNTERS.items()
        }
    return found


def _number(text: str, unit: str) -> float:
    value = float(text.replace(",", "") or 0)
    return round(value * _SCALE.get(unit, 1.0) * _BYTES.get(unit, 1.0), 4)


# ---- what is printed
HEAD = (
    f"{'kernel':22} {'ld req':>8} {'sectors':>8} {'st req':>7} {'sectors':>8} {'sh ld':>7} "
    f"{'confl.':>6} {'sh st':>7} {'confl.':>6} {'regs':>4} {'occ %':>6} {'us':>7} "
    f"{'pred.':>7}  counted"
)


def shown(line: Line) -> str:
    """The report's figures; where ncu differs, both."""
    r = line.report
    text = (
        f"{line.kernel:22} {r['load_requests']:8.0f} {r['load_sectors']:8.0f} "
        f"{r['store_requests']:7.0f} {r['store_sectors']:8.0f} {r['shared_load_wavefronts']:7.0f} "
        f"{r['shared_load_conflicts']:6.0f} {r['shared_store_wavefronts']:7.0f} "
        f"{r['shared_store_conflicts']:6.0f} {r['registers']:4.0f} {r['occupancy']:6.2f} "
        f"{line.ncu.get('time_us', 0):7.2f} {r['predicted_us']:7.2f}  {line.how}"
    )
    for name, part in line.off.items() if line.ncu else ():
        text += f"\n    {name}: report {r[name]:g}, ncu {line.ncu[name]:g} ({part:+.2%})"
    return text


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="a folder for the tables")
    parser.add_argument("--rows", default="", help="a regular expression; rows that have it")
    parser.add_argument("--run", action="store_true", help="launch the kernels, for the profiler")
    options = parser.parse_args(given)
    rows = [row for row in ROWS if re.search(options.rows, row.name)]
    if options.run:
        return run_all(rows)
    missing = cuda.why_unusable() or ("" if shutil.which("ncu") else "ncu is not installed")
    if options.out is None or missing:
        say = Output(None)
        say(HEAD)
        for r, how in reports(rows):
            say(shown(Line(r.name, how, said(r), {})))
        if missing and options.out is not None:
            print(f"skipped: {missing}")
            return MISSING
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "access_vs_ncu.txt", "w") as file:
        say = Output(file)
        say(f"{cuda.describe()}")
        say(HEAD)
        seen = counted(options.out)
        lines = [Line(r.name, how, said(r), seen[r.name]) for r, how in reports(rows)]
        for line in lines:
            say(shown(line))
        exact = sum(not line.off for line in lines)
        failed = [line.kernel for line in lines if line.fails]
        say(f"{len(lines)} launches, {exact} without a difference, {len(failed)} off by more than")
        say(f"{MOST_OFF:.0%} (registers, occupancy: at all): {', '.join(failed) or 'none'}")
    name = re.sub(r"\W+", "_", cuda.describe().split(" (")[0]).strip("_").lower()
    data = [asdict(line) for line in lines]
    (options.out / f"access_vs_ncu.{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    return min(len(failed), 1)


if __name__ == "__main__":
    sys.exit(main())

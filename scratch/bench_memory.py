"""Memory-bound work with automatic choices beside torch, in one process, by the cool protocol.

    python scratch/bench_memory.py                      the whole table (tests/memory_table.py)
    python scratch/bench_memory.py --rows 'softmax|sum' --quick --alone     for tuning: no peers
    python scratch/bench_memory.py --determinism        every row 20 times: the same bits
    python scratch/bench_memory.py --compile sm_90      kernels and registers; needs no GPU
    ncu ... python scratch/bench_memory.py --ncu 'softmax 8192x8192 f32'    its kernels, no torch

A row is scheduled and compiled once; a sample starts its launches and nothing else.  Inputs are
normal random numbers on the device.  GB/s counts each input and each output once.  Peers, on the
same memory and stream: torch eager, torch.compile, and a copy that reads and writes as many bytes
as the row.  A figure is a median; errors are against float64, as a part of the largest element.
Exit code 1 where a row failed, 3 where GPU or torch are missing.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.beside_torch import Output, seen
from tests.memory_table import LARGE_BYTES, ROWS, Row
from uopc.compiled import Kernel
from uopc.dtype import DType, dtypes
from uopc.pipeline import compile_kernel
from uopc.runtime import cuda
from uopc.runtime.buffer import Buffer, synchronize
from uopc.runtime.graph import Launch
from uopc.runtime.memory import gpu_of
from uopc.runtime.timing import CUDAClock, time_candidates
from uopc.schedule.memory import Leaf, Result
from uopc.target import Target, target
from uopc.tensor import storage
from uopc.tensor.prepare import Prepared, target_of
from uopc.uop.node import Shape

DEVICE = "cuda"
MISSING = 3  # exit code: something that this script needs is not here
SAMPLES, QUICK = 21, 7
RUNS = 20  # of each row, for the same bits
BAR_OF_PEER, BAR_OF_COPY, BAR_OF_COPY_EACH = 1.0, 0.90, 0.97


@dataclass(frozen=True)
class Used:
    """What the kernels of a row use, each one."""

    kernels: int
    registers: list[int]
    spills: int
    opts: list[str]

    @classmethod
    def of(cls, kernels: Sequence[Kernel]) -> Used:
        steps = [s for k in kernels for s in k.steps]
        used = [s.cubin.resources for s in steps]
        return cls(
            len(steps),
            [r.registers for r in used],
            sum(r.stack_bytes + r.spill_store_bytes + r.spill_load_bytes for r in used),
            [str(s.opts) for s in steps],
        )


@dataclass(frozen=True)
class Measured:
    """One line of the table.  Ratios above 1: uopc is faster.  0.0: not measured."""

    row: str
    shape: Shape
    dtype: str
    bytes: int
    us: float
    gb_s: float
    torch_eager_gb_s: float
    torch_compile_gb_s: float
    copy_gb_s: float
    ratio: float
    of_copy: float
    rel_err: float
    kernels: int
    registers: list[int]
    spills: int
    opts: list[str]
    note: str = ""
    each: bool = field(default=False, repr=False)

    @property
    def misses(self) -> str:
        """What it is below, or ""."""
        bar = BAR_OF_COPY_EACH if self.each else BAR_OF_COPY
        below = []
        if self.ratio and self.ratio < BAR_OF_PEER:
            below.append(f"{self.ratio:.3f} of the better peer")
        if self.of_copy and self.bytes >= LARGE_BYTES and self.of_copy < bar:
            below.append(f"{self.of_copy:.3f} of a copy (bar {bar})")
        return ", ".join(below)


class Ready:
    """A row on the device: memories of its inputs and results, and what starts its launches."""

    def __init__(self, row: Row) -> None:
        plan = row.plan(DEVICE, target_of(DEVICE))
        leaves = [storage.memory(u) for u in plan.leaves]
        self.work: list[Launch] = []
        prepared = Prepared(plan.schedule, DEVICE)
        made = prepared.run(leaves, lambda x, given, *_: self.work.append(Launch(x, given)))
        synchronize(DEVICE)
        self.inputs = [
            (leaves[n], shape) for n, (shape, _) in zip(plan.inputs, row.inputs(), strict=True)
        ]
        self.results: list[tuple[Buffer, Shape]] = []
        for place, (shape, _) in zip(plan.schedule.results, plan.results, strict=True):
            assert isinstance(place, (Leaf, Result))
            held = leaves if isinstance(place, Leaf) else made
            self.results.append((held[place.number], shape))
        self._calls = [w.bound() for w in self.work]
        self._alive = (plan, prepared)

    def __call__(self) -> None:
        for call in self._calls:
            call()

    @property
    def bytes(self) -> int:
        """Each input read once, each output written once."""
        return sum(b.size_bytes for b, _ in (*self.inputs, *self.results))


def compiled(row: Row, on: Target) -> list[Kernel]:
    """The kernels of a row for a target; nothing runs.  A row on a device has the same ones."""
    plan = row.plan("emulated", on)
    return [compile_kernel(x.body, on, x.name) for x in plan.schedule.launches]


# ---- torch
def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def largest_error(torch: Any, got: Sequence[Any], want: Sequence[Any]) -> float:
    """Largest difference of any result, as a part of its largest element; NaN for a NaN."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        exact = w.double()
        top = float(exact.abs().max())
        error = float((g.double() - exact).abs().max()) / (top or 1.0)
        worst = error if math.isnan(error) else max(worst, error)
    return worst


def measure(torch: Any, clock: CUDAClock, row: Row, options: argparse.Namespace) -> Measured:
    ready = Ready(row)
    inputs = [seen(torch, b, shape) for b, shape in ready.inputs]
    for x in inputs:
        x.normal_()
    ready()
    results = [seen(torch, b, shape) for b, shape in ready.results]
    eager = row.work.eager(torch, row.shape)
    rel_err = largest_error(torch, results, listed(eager(*[x.double() for x in inputs])))
    torch.cuda.empty_cache()

    note = ""
    half = torch.randn(max(ready.bytes // 8, 1), device=DEVICE)  # 4 bytes, read and written
    other = torch.empty_like(half)
    candidates: dict[str, Callable[[], object]] = {
        "uopc": ready,
        "copy": lambda: other.copy_(half),
    }
    if not options.alone:
        candidates["eager"] = partial(eager, *inputs)
        torch._dynamo.reset()  # functions of one line of code share a small cache
        fused = torch.compile((row.work.formula or row.work.eager)(torch, row.shape), dynamic=False)
        try:
            fused(*inputs)
            torch.cuda.synchronize()
            candidates["compile"] = partial(fused, *inputs)
        except Exception as error:  # whatever a compiler raises: then there is one peer less
            note = f"torch.compile failed: {type(error).__name__}"
    samples = QUICK if options.quick else SAMPLES
    times = time_candidates(candidates, clock, samples=samples, warm=3)

    size, ours = ready.bytes, times["uopc"].median_s
    rate = {name: size / t.median_s * 1e-9 for name, t in times.items()}
    peers = [times[name].median_s for name in ("eager", "compile") if name in times]
    used = Used.of(compiled(row, target_of(DEVICE)))
    return Measured(
        row.name,
        row.shape,
        str(row.dtype),
        size,
        ours * 1e6,
        rate["uopc"],
        rate.get("eager", 0.0),
        rate.get("compile", 0.0),
        rate["copy"],
        min(peers) / ours if peers else 0.0,
        times["copy"].median_s / ours,
        rel_err,
        used.kernels,
        used.registers,
        used.spills,
        used.opts,
        note,
        row.work.each,
    )


# ---- the same bits
def differs(torch: Any, row: Row) -> int:
    """Results of RUNS runs whose bits are not those of the first."""
    ready = Ready(row)
    for b, shape in ready.inputs:
        seen(torch, b, shape).normal_()
    bits = [
        torch.as_tensor(b.view(0, _BITS[b.dtype.itemsize], b.size).array, device=DEVICE)
        for b, _ in ready.results
    ]
    ready()
    first = [x.clone() for x in bits]
    wrong = 0
    for _ in range(RUNS - 1):
        for x in bits:
            x.fill_(-1)  # what is not written again shows
        ready()
        wrong += any(not torch.equal(x, y) for x, y in zip(bits, first, strict=True))
    return wrong


_BITS: dict[int, DType] = {1: dtypes.i8, 2: dtypes.i16, 4: dtypes.i32, 8: dtypes.i64}


# ---- what is printed
HEAD = (
    f"{'row':38} {'us':>8} {'GB/s':>6} {'eager':>6} {'comp.':>6} {'copy':>6} {'of peer':>7} "
    f"{'of copy':>7} {'error':>8} {'regs':>9} {'spill':>5} {'kernels':>7}  opts"
)


def line(m: Measured) -> str:
    registers = ",".join(map(str, m.registers))
    return (
        f"{m.row:38} {m.us:8.1f} {m.gb_s:6.0f} {m.torch_eager_gb_s:6.0f} "
        f"{m.torch_compile_gb_s:6.0f} {m.copy_gb_s:6.0f} {m.ratio:7.3f} {m.of_copy:7.3f} "
        f"{m.rel_err:8.1e} {registers:>9} {m.spills:5} {m.kernels:7}  {' | '.join(m.opts)}"
        f"{f'  ({m.note})' if m.note else ''}"
    )


def summary(rows: Sequence[Measured]) -> str:
    """Geometric means, and the rows below a bar."""
    lines = []
    for what, ratios in (
        ("the better peer", [m.ratio for m in rows if m.ratio]),
        ("a copy", [m.of_copy for m in rows if m.of_copy]),
    ):
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"geometric mean of {len(ratios)} rows: {mean:.3f} of {what}")
    missed = [f"  {m.row}: {m.misses}" for m in rows if m.misses]
    lines.append(f"rows below the bar: {len(missed)}")
    return "\n".join([*lines, *missed])


def empty_kernel_us(clock: CUDAClock) -> float:
    """What the clock says of a kernel that writes one element."""
    ready = Ready(ROWS[0].at((1,)))
    return time_candidates({"empty": ready}, clock, warm=3)["empty"].median_s * 1e6


def with_torch(rows: Sequence[Row], options: argparse.Namespace, say: Output) -> int:
    """Measure or compare bits; how many rows failed."""
    import torch

    gpu, failed = gpu_of(DEVICE), 0
    done: list[Measured] = []
    start = time.perf_counter()
    # everything on the stream of uopc's kernels: none waits for another stream's events
    stream = torch.cuda.ExternalStream(int(gpu.work.handle))
    with torch.cuda.stream(stream), torch.no_grad():
        torch.manual_seed(0)
        clock = CUDAClock(gpu, gpu.work)
        say(f"{cuda.describe()}, torch {torch.__version__}")
        say(f"a kernel of one element: {empty_kernel_us(clock):.1f} us")
        if not options.determinism:
            say(HEAD)
        for row in rows:
            try:
                if options.determinism:
                    wrong = differs(torch, row)
                    failed += wrong > 0
                    say(f"{row.name:38} {RUNS} runs: {f'{wrong} DIFFER' if wrong else 'equal'}")
                else:
                    done.append(measure(torch, clock, row, options))
                    say(line(done[-1]))
            except Exception:
                failed += 1
                say(f"{row.name:38} FAILED\n{traceback.format_exc()}")
            torch.cuda.empty_cache()
    if done:
        say(summary(done))
        if options.out is not None:
            name = re.sub(r"\W+", "_", torch.cuda.get_device_name()).strip("_").lower()
            path = options.out / f"bench_memory.{name}.json"
            path.write_text(json.dumps([asdict(m) for m in done], indent=1) + "\n")
    say(f"{len(rows)} rows, {failed} failed, {time.perf_counter() - start:.0f} s")
    return failed


def for_ncu(rows: Sequence[Row]) -> int:
    """Run the kernels of these rows a few times, without torch."""
    rng = np.random.default_rng(0)
    for row in rows:
        ready = Ready(row)
        for buffer, _ in ready.inputs:
            some = rng.standard_normal(min(buffer.size, 1 << 20)).astype(buffer.dtype.numpy)
            buffer.write(np.resize(some, buffer.size))
        for _ in range(3):
            ready()
        synchronize(DEVICE)
        print(f"{row.name}: {len(ready.work)} kernels, {[w.launcher.name for w in ready.work]}")
    return 0


def without_gpu(rows: Sequence[Row], on: Target, say: Output) -> int:
    """Kernels and registers of the rows for a target; how many failed."""
    failed = 0
    for row in rows:
        try:
            u = Used.of(compiled(row, on))
        except Exception:
            failed += 1
            say(f"{row.name:38} FAILED\n{traceback.format_exc()}")
            continue
        registers = ",".join(map(str, u.registers))
        say(
            f"{row.name:38} registers {registers:>9} spill {u.spills:4} kernels {u.kernels}  "
            f"{' | '.join(u.opts)}"
        )
    return failed


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", default="", help="a regular expression; rows whose names have it somewhere")
    add("--quick", action="store_true", help=f"{QUICK} samples instead of {SAMPLES}")
    add("--alone", action="store_true", help="beside a copy, but not beside torch's own functions")
    add("--small", action="store_true", help="at the sizes of the tests")
    add("--out", type=Path, help="a folder for bench_memory.txt and bench_memory.<gpu>.json")
    add("--determinism", action="store_true", help=f"{RUNS} runs of each row give the same bits")
    add("--ncu", metavar="ROW", help="run the kernels of these rows, for a profiler; no torch")
    add("--compile", metavar="TARGET", help="only compile, for sm_NN; needs no GPU")
    return parser.parse_args(given)


def picked(options: argparse.Namespace) -> list[Row]:
    pattern = re.escape(options.ncu) if options.ncu else options.rows
    rows = [row for row in ROWS if re.search(pattern, row.name)]
    if options.small:
        rows = list(dict.fromkeys(row.at(shape) for row in rows for shape in row.work.small))
    return rows


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    rows = picked(options)
    if not rows:
        print(f"no row has {options.ncu or options.rows!r} in its name")
        return 1
    if options.compile:
        return min(without_gpu(rows, target(options.compile), Output(None)), 1)
    if reason := cuda.why_unusable():
        print(f"skipped: {reason}")
        return MISSING
    if options.ncu:
        return for_ncu(rows)
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: torch is not installed (pip install torch)")
        return MISSING
    if options.out is None:
        return min(with_torch(rows, options, Output(None)), 1)
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "bench_memory.txt", "w") as file:
        return min(with_torch(rows, options, Output(file)), 1)


if __name__ == "__main__":
    sys.exit(main())

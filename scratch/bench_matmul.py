"""Matrix products with automatic choices beside cuBLAS (torch) in one process, timed cool.

    python scratch/bench_matmul.py                       the whole table (tests/matmul_table.py)
    python scratch/bench_matmul.py --rows 'bf16$' --quick --alone       for tuning: no peers
    python scratch/bench_matmul.py --try FILE            lines: a pattern of rows :: Opts or Plan
    python scratch/bench_matmul.py --search 4            beside what a search of 4 s a row finds
    python scratch/bench_matmul.py --compile sm_90a      kernels and registers; needs no GPU

A row is compiled once; a sample starts its launches and nothing else, after 150 ms without work
(--quick: 50) and from a flushed L2.  Inputs are normal random numbers on the device.  Peers work on
the same memory and stream.  A figure is a median; errors are against float64, as a part of the
norm of the exact result.  Exit code 1 where a row failed, 3 where GPU or torch are missing.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uopc
from tests.beside_torch import Output, seen
from tests.matmul_table import ROWS, Row
from uopc.compiled import Kernel
from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.plan import Plan
from uopc.runtime import cuda
from uopc.runtime.buffer import Buffer, synchronize
from uopc.runtime.executor import Launcher
from uopc.runtime.memory import gpu_of
from uopc.runtime.timing import CUDAClock, Timing, time_candidates
from uopc.uop.node import prod

DEVICE = "cuda"
MISSING = 3  # exit code: something that this script needs is not here
SAMPLES, QUICK = 9, 5
IDLE_S, QUICK_IDLE_S = 0.150, 0.050
BAR, BAR_SMALL = 0.95, 0.90
HEURISTIC, SEARCHED = "heuristic", "searched"
SMALL = "64x256x784"


@dataclass(frozen=True)
class Measured:
    """One line of the table.  Ratios above 1: uopc is faster.  0.0: not measured."""

    row: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    layout: str
    us: float
    tflops: float
    cublas_us: float
    ratio: float
    plan: str
    rel_err: float
    chosen_by: str
    kernels: int
    registers: list[int]
    spills: int
    peers: dict[str, float]

    @property
    def misses(self) -> str:
        """What it is below, or ""."""
        bar = BAR_SMALL if self.row.startswith(SMALL) and self.dtype in ("bf16", "f16") else BAR
        return f"{self.ratio:.3f} (bar {bar})" if self.ratio and self.ratio < bar else ""


class Ready:
    """A row on the device: its kernel, memories, and what starts its launches."""

    def __init__(self, row: Row, inputs: Sequence[Buffer], opts: Opts | None = None) -> None:
        self.kernel = uopc.compile(row.body(), opts, DEVICE, numerics=row.numerics)
        (slot,), (shape,) = self.kernel.output_slots, self.kernel.out_shapes
        self.shape = shape
        self.result = Buffer(DEVICE, row.result, prod(shape))
        held = {**dict(enumerate(inputs)), slot: self.result}
        for p in self.kernel.partials:
            made = Buffer(DEVICE, p.dtype, prod(p.arg.shape))
            held[p.arg.slot] = made.zero() if p.arg.slot in self.kernel.counters else made
        self._launchers = [Launcher(s, DEVICE) for s in self.kernel.steps]
        self._calls = [x.bound({s: held[s] for s in x.slots}) for x in self._launchers]
        self._held = held

    def __call__(self) -> None:
        for call in self._calls:
            call()

    @property
    def spills(self) -> int:
        used = [s.cubin.resources for s in self.kernel.steps]
        return sum(r.stack_bytes + r.spill_store_bytes + r.spill_load_bytes for r in used)

    @property
    def registers(self) -> list[int]:
        return [s.cubin.resources.registers for s in self.kernel.steps]


def named(kernel: Kernel) -> str:
    """The Opts of each of its kernels, for the table."""
    return " + ".join(str(s.opts.plan or s.opts) for s in kernel.steps)


# ---- torch
def filled(torch: Any, row: Row) -> tuple[list[Buffer], list[Any]]:
    """Inputs of normal numbers, for both."""
    buffers, tensors = [], []
    for shape, dtype in row.inputs():
        buffers.append(Buffer(DEVICE, dtype, prod(shape)))
        tensors.append(seen(torch, buffers[-1], shape))
        tensors[-1].copy_(torch.randn(shape, device=DEVICE))
    return buffers, tensors


def error(torch: Any, row: Row, got: Any, inputs: Sequence[Any]) -> float:
    """Norm of the difference to float64, as a part of the norm."""
    peer = replace(row, around="") if row.around == "scaled" else row
    factor = math.prod(float(x) for x in inputs[2:]) if row.around == "scaled" else 1.0
    used = inputs[:2] if row.around == "scaled" else inputs
    want = peer.peer(torch)(*[x.double() for x in used]) * factor
    return float((got.double() - want).norm() / want.norm())


def peers_of(torch: Any, row: Row, inputs: Sequence[Any]) -> dict[str, Callable[[], object]]:
    """What the row stands beside; the first is cuBLAS."""
    if row.around == "scaled":
        fast, slow = row.peer(torch, True), row.peer(torch, False)
        return {"fast accum": lambda: fast(*inputs), "full accum": lambda: slow(*inputs)}
    eager = row.peer(torch)
    found: dict[str, Callable[[], object]] = {"torch": lambda: eager(*inputs)}
    if row.around == "bias, gelu":
        torch._dynamo.reset()
        fused = torch.compile(row.peer(torch), dynamic=False)
        fused(*inputs)
        found["compile"] = lambda: fused(*inputs)
    return found


def measure(
    torch: Any, clock: CUDAClock, row: Row, tried: dict[str, Opts], options: argparse.Namespace
) -> dict[str, Measured]:
    """The row with the automatic choice, or each of those that are to be tried, by their names."""
    torch.backends.cuda.matmul.allow_tf32 = row.type == "tf32"
    buffers, inputs = filled(torch, row)
    ready: dict[str, Ready] = {}
    failed: dict[str, str] = {}
    choices: dict[str, Opts | None] = {**tried} or {"uopc": None}
    for name, opts in choices.items():
        try:
            ready[name] = Ready(row, buffers, opts)
            ready[name]()
            synchronize(DEVICE)
        except Exception as problem:
            if not tried:
                raise
            failed[name] = f"{type(problem).__name__}: {problem}"
            ready.pop(name, None)
    errors = {
        name: error(torch, row, seen(torch, r.result, r.shape), inputs) for name, r in ready.items()
    }
    torch.cuda.empty_cache()
    peers = {} if options.alone else peers_of(torch, row, inputs)
    samples, idle = (QUICK, QUICK_IDLE_S) if options.quick else (SAMPLES, IDLE_S)
    times = time_candidates({**ready, **peers}, clock, samples=samples, idle_s=idle, warm=2)
    for name, why in failed.items():
        print(f"{row.name:34} {name} FAILED {why}"[:600], flush=True)
    return {
        name: of(row, r, times, errors[name], name, list(peers), tried) for name, r in ready.items()
    }


def of(
    row: Row,
    ready: Ready,
    times: dict[str, Timing],
    rel_err: float,
    name: str,
    peers: Sequence[str],
    tried: dict[str, Opts],
) -> Measured:
    us = times[name].median_s * 1e6
    beside = {peer: times[peer].median_s * 1e6 for peer in peers}
    best = min(beside.values(), default=0.0)
    return Measured(
        *(row.name, row.m, row.n, row.k, row.batch, row.type, row.layout, us),
        row.flops / us * 1e-6,
        best,
        best / us,
        named(ready.kernel),
        rel_err,
        name if name in (HEURISTIC, SEARCHED) else "given" if tried else HEURISTIC,
        len(ready.kernel.steps),
        ready.registers,
        ready.spills,
        beside,
    )


# ---- what is printed
HEAD = (
    f"{'row':34} {'us':>8} {'TFLOP/s':>8} {'peer us':>8} {'ratio':>6} {'error':>8} {'regs':>8} "
    f"{'spill':>5}  choice"
)


def line(m: Measured) -> str:
    registers = ",".join(map(str, m.registers))
    return (
        f"{m.row:34} {m.us:8.1f} {m.tflops:8.2f} {m.cublas_us:8.1f} {m.ratio:6.3f} "
        f"{m.rel_err:8.1e} {registers:>8} {m.spills:5}  {m.plan}"
    )


def summary(rows: Sequence[Measured]) -> str:
    """The geometric mean, and the rows below a bar."""
    ratios = [m.ratio for m in rows if m.ratio]
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    missed = [f"  {m.row}: {m.misses}" for m in rows if m.misses]
    lines = [f"geometric mean of {len(ratios)} rows: {mean:.3f} of the better peer"]
    us = {(m.row, m.chosen_by): m.us for m in rows}
    both = {m.row for m in rows if (m.row, SEARCHED) in us and (m.row, HEURISTIC) in us}
    if both:
        logs = [math.log(us[row, SEARCHED] / us[row, HEURISTIC]) for row in both]
        part = math.exp(sum(logs) / len(logs))
        lines.append(f"the heuristic alone: {part:.3f} of the searched one, {len(both)} rows")
    return "\n".join([*lines, f"rows below the bar: {len(missed)}", *missed])


def with_torch(rows: Sequence[Row], options: argparse.Namespace, say: Output) -> int:
    """Measure; how many rows failed."""
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
        say(HEAD)
        for row, tried in with_candidates(rows, options):
            try:
                if options.search:
                    (found,) = uopc.search(
                        row.body(), DEVICE, numerics=row.numerics, budget_s=options.search
                    )
                    tried = {HEURISTIC: found.automatic, SEARCHED: found.opts}
                for m in measure(torch, clock, row, tried, options).values():
                    done.append(m)
                    beside = "  ".join(f"{p} {us:.1f}" for p, us in m.peers.items())
                    say(line(m) + (f"  ({beside})" if len(m.peers) > 1 else ""))
            except Exception:
                failed += 1
                say(f"{row.name:34} FAILED\n{traceback.format_exc()}")
            torch.cuda.empty_cache()
    if done and not options.candidates:
        say(summary(done))
        if options.out is not None:
            name = re.sub(r"\W+", "_", torch.cuda.get_device_name()).strip("_").lower()
            path = options.out / f"bench_matmul.{name}.json"
            path.write_text(json.dumps([asdict(m) for m in done], indent=1) + "\n")
    say(f"{len(rows)} rows, {failed} failed, {time.perf_counter() - start:.0f} s")
    return failed


def with_candidates(
    rows: Sequence[Row], options: argparse.Namespace
) -> list[tuple[Row, dict[str, Opts]]]:
    """Each row with what is to be tried on it, by a name; rows with nothing are left out."""
    if options.candidates is None:
        return [(row, {}) for row in rows]
    tried: dict[Row, dict[str, Opts]] = {}
    for text in options.candidates.read_text().splitlines():
        if not text.strip() or text.startswith("#"):
            continue
        pattern, _, expression = text.partition(" :: ")
        made = eval(expression, {"Plan": Plan, "Opts": Opts})  # the user's own file
        opts = Opts(gpu=True, plan=made) if isinstance(made, Plan) else made
        for row in rows:
            if re.search(pattern.strip(), row.name):
                tried.setdefault(row, {})[expression.strip()] = opts
    return [(row, tried[row]) for row in rows if row in tried]


def empty_kernel_us(clock: CUDAClock) -> float:
    """What the clock says of a kernel that writes one element."""
    row = Row(1, 1, 1, "f32")
    inputs = [Buffer(DEVICE, dtypes.f32, 1).zero() for _ in range(2)]
    return time_candidates({"empty": Ready(row, inputs)}, clock, warm=3)["empty"].median_s * 1e6


def without_gpu(rows: Sequence[Row], on: str, say: Output) -> int:
    """Kernels and registers of the rows for a target; how many failed."""
    failed = 0
    for row in rows:
        try:
            start = time.perf_counter()
            kernel: Kernel = uopc.compile(row.body(), None, on, numerics=row.numerics)
            used = [s.cubin.resources for s in kernel.steps]
        except Exception:
            failed += 1
            say(f"{row.name:34} FAILED\n{traceback.format_exc()}")
            continue
        took = time.perf_counter() - start
        say(f"{row.name:34} {took:5.1f} s  {' + '.join(map(str, used))}  {named(kernel)}")
    return failed


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", default="", help="a regular expression; rows whose names have it somewhere")
    add("--quick", action="store_true", help=f"{QUICK} samples instead of {SAMPLES}")
    add("--alone", action="store_true", help="without peers")
    add("--out", type=Path, help="a folder for bench_matmul.txt and bench_matmul.<gpu>.json")
    add("--try", dest="candidates", type=Path, metavar="FILE", help="Opts or Plans to compare")
    add(
        "--search", type=float, metavar="SECONDS", help="also what `uopc.search` finds in that time"
    )
    add("--compile", metavar="TARGET", help="only compile, for sm_NN; needs no GPU")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    rows = [row for row in ROWS if re.search(options.rows, row.name)]
    if not rows:
        print(f"no row has {options.rows!r} in its name")
        return 1
    if options.compile:
        return min(without_gpu(rows, options.compile, Output(None)), 1)
    if reason := cuda.why_unusable():
        print(f"skipped: {reason}")
        return MISSING
    try:
        import torch  # noqa: F401
    except ImportError:
        print("skipped: torch is not installed; it is what this compares with")
        return MISSING
    if options.out is None:
        return min(with_torch(rows, options, Output(None)), 1)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "bench_matmul.txt").open("w") as file:
        return min(with_torch(rows, options, Output(file)), 1)


if __name__ == "__main__":
    sys.exit(main())

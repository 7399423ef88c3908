"""The steps of chapter 15: products under one plan after another, beside cuBLAS, timed cool.

    python scratch/15_steps.py [--quick]           on a Hopper GPU with torch

The plans of a row take turns with each other and with cuBLAS, by the machinery and the protocol of
bench_matmul.py.  A ratio above 1 is faster than cuBLAS; errors are against float64, as a part of
the norm.  Exit code 1 where a plan failed, 3 where GPU or torch are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scratch.bench_matmul import DEVICE, MISSING, arguments, measure
from tests.matmul_table import Row
from uopc.opts import Opts
from uopc.plan import BULK, CP_ASYNC, FMA, REGISTERS, Plan
from uopc.runtime import cuda
from uopc.runtime.memory import gpu_of
from uopc.runtime.timing import CUDAClock

SIDE = 4096
MMA = "mma.m16n8k16.bf16"


def wgmma(n: int) -> str:
    """The atom of bf16 with n columns."""
    return f"wgmma.m64n{n}k16.bf16"


#: by their names in the chapter; each differs from the one before by what its name says
STEPS: dict[str, Plan] = {
    "FMA": Plan(FMA, 128, 128, 16, 2, 4),
    "mma.sync, cp.async": Plan(MMA, 128, 128, 64, 2, 2, depth=3, copy=CP_ASYNC),
    "mma.sync, TMA, roles": Plan(MMA, 128, 128, 64, 2, 2, depth=4, copy=BULK),
    "mma.sync, wider tile": Plan(MMA, 128, 256, 64, 2, 4, depth=3, copy=BULK),
    "wgmma, cp.async": Plan(wgmma(256), 128, 256, 64, 2, 1, depth=3, copy=CP_ASYNC),
    "wgmma, TMA, roles": Plan(wgmma(256), 128, 256, 64, 2, 1, depth=4, copy=BULK),
}
STEPS["stmatrix, TMA store"] = replace(STEPS["wgmma, TMA, roles"], store=BULK)
STEPS["blocks go on"] = replace(STEPS["stmatrix, TMA store"], group=16, blocks=132)
BEST = STEPS["blocks go on"]

F32: dict[str, Plan] = {
    "FMA, 128 x 128": Plan(FMA, 128, 128, 16, 2, 4, depth=3, copy=CP_ASYNC),
    "FMA, 128 x 256": Plan(FMA, 128, 256, 16, 2, 4, lanes_m=8, depth=9, copy=CP_ASYNC, group=16),
    "FMA, 128 x 256, TMA": Plan(FMA, 128, 256, 32, 2, 4, lanes_m=8, depth=4, copy=BULK, group=16),
}
#: B lies along n and goes through registers: it is A of the transpose
TF32 = Plan(
    *("wgmma.m64n256k8.tf32.registers", 128, 256, 32, 2, 1),
    depth=4,
    copy=BULK,
    group=16,
    blocks=132,
    swap=True,
)


def roles(n: int, block_m: int, block_n: int, block_k: int = 64, **rest: Any) -> Plan:
    """wgmma under TMA with a warpgroup for every 64 rows, and TMA stores where D can have them."""
    groups = block_m // 64
    given: dict[str, Any] = {"copy": BULK, "store": BULK, **rest}
    return Plan(wgmma(n), block_m, block_n, block_k, groups, 1, **given)


IMAGE = roles(128, 128, 128, depth=6, group=16, blocks=132)


def square(n: int, layout: str = "NN") -> Row:
    return Row(n, n, n, "bf16", layout)


TABLE: tuple[tuple[Row, Mapping[str, Plan]], ...] = (
    (square(SIDE), STEPS),
    (Row(SIDE, SIDE, SIDE, "f32"), F32),
    (Row(SIDE, SIDE, SIDE, "tf32"), {"A from registers, swapped": TF32}),
    *((square(SIDE, layout), {"blocks go on": BEST}) for layout in ("NT", "TN", "TT")),
    (square(8192), {"stmatrix, TMA store": replace(BEST, blocks=0), "blocks go on": BEST}),
    (square(2048), {"128 x 128, blocks go on": roles(128, 128, 128, depth=5, blocks=132, group=4)}),
    (square(1024), {"128 x 64": roles(64, 128, 64, depth=8)}),
    (
        square(512),
        {
            "64 x 64": roles(64, 64, 64, 128, depth=4),
            "64 x 32": roles(32, 64, 32, 128, depth=4),
            "64 x 64, k in two parts": roles(64, 64, 64, 128, depth=4, splits=2),
        },
    ),
    (
        Row(16, 4096, 4096, "bf16"),
        {
            "64 x 32": roles(32, 64, 32, depth=16),
            "64 x 16, swapped": roles(16, 64, 16, depth=16, swap=True),
        },
    ),
    (
        Row(4096, 4096, 64, "bf16"),
        {"128 x 256, blocks go on": replace(BEST, depth=3, group=4)},
    ),
    (
        Row(4097, 4099, 1023, "bf16"),
        {
            "mma.sync, elements": replace(STEPS["mma.sync, cp.async"], depth=4),
            "written first, wgmma, TMA": replace(BEST, store=REGISTERS, written=("a", "b")),
            "the same, swapped": replace(BEST, store=REGISTERS, written=("a", "b"), swap=True),
        },
    ),
    (
        Row(64 * 56 * 56, 128, 9 * 128, "bf16", around="convolution", image=(64, 56, 56)),
        {
            "wgmma, cp.async": replace(IMAGE, copy=CP_ASYNC, depth=4, blocks=0, store=REGISTERS),
            "im2col written first": replace(IMAGE, written=("a",)),
            "boxes of rows": replace(IMAGE, rows=(2, 8, 8)),
        },
    ),
    (Row(64, 256, 784, "bf16"), {"64 x 16": roles(16, 64, 16, depth=8)}),
)


def title(row: Row, cublas_us: float) -> str:
    return f"{row.name}: cuBLAS {cublas_us:.1f} us"


def line(step: str, us: str, tflops: str, ratio: str, error: str) -> str:
    return f"  {step:28}{us:>9}{tflops:>9}{ratio:>8}{error:>10}"


HEAD = line("", "us", "TFLOP/s", "ratio", "error")


def timed(torch: Any, quick: bool) -> int:
    """Print the table; how many plans failed."""
    gpu, failed = gpu_of(DEVICE), 0
    options = arguments(["--quick"] if quick else [])
    # everything on the stream of uopc's kernels: none waits for another stream's events
    with torch.cuda.stream(torch.cuda.ExternalStream(int(gpu.work.handle))), torch.no_grad():
        torch.manual_seed(0)
        clock = CUDAClock(gpu, gpu.work)
        print(f"{cuda.describe()}, torch {torch.__version__}")
        print(HEAD, flush=True)
        for row, plans in TABLE:
            opts = {name: Opts(gpu=True, plan=plan) for name, plan in plans.items()}
            found = measure(torch, clock, row, opts, options)
            print(title(row, next((m.cublas_us for m in found.values()), 0.0)))
            for name in plans:
                if (m := found.get(name)) is None:
                    failed += 1
                    print(line(name, "FAILED", "", "", ""))
                    continue
                figures = f"{m.us:.1f}", f"{m.tflops:.1f}", f"{m.ratio:.3f}", f"{m.rel_err:.1e}"
                print(line(name, *figures), flush=True)
            torch.cuda.empty_cache()
    return failed


def main() -> int:
    if reason := cuda.why_unusable():
        print(f"skipped: {reason}")
        return MISSING
    try:
        import torch
    except ImportError:
        print("skipped: torch is not installed; it is what this compares with")
        return MISSING
    return min(timed(torch, "--quick" in sys.argv[1:]), 1)


if __name__ == "__main__":
    sys.exit(main())

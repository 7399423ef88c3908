"""Native products beside numpy's OpenBLAS, in one process.

    python scratch/bench_native.py
Random f32 data.  The two take turns, each after a pause and one call that is not counted: threads
of one library that still wait in a loop would take the other's cores.  The first row is measured
twice and shown once: in the first seconds of a process both threads may run on one core.  Medians,
and the error against f64 as a part of the largest element.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import uopc
from uopc import dtypes
from uopc.uop import Ops, UOp, buffer

SAMPLES, PAUSE_S = 21, 0.15

#: (m, n, k), is a transposed, is b transposed
ROWS = (
    ((1024, 1024, 1024), False, False),
    ((1024, 1024, 1024), False, True),
    ((1024, 1024, 1024), True, False),
    ((1023, 1023, 1023), False, False),
    ((1000, 1000, 1000), False, False),
    ((2048, 2048, 2048), False, False),
    ((512, 512, 512), False, False),
    ((4096, 512, 1024), False, False),
    ((8192, 1024, 64), False, False),
    ((16, 4096, 4096), False, False),
    ((64, 256, 784), False, True),
)


def product(m: int, n: int, k: int, a_transposed: bool, b_transposed: bool) -> UOp:
    """a @ b, f32, of parameters that lie in memory as they are or transposed."""
    a = (
        buffer(0, dtypes.f32, (k, m)).permute((1, 0))
        if a_transposed
        else buffer(0, dtypes.f32, (m, k))
    )
    b = (
        buffer(1, dtypes.f32, (n, k))
        if b_transposed
        else buffer(1, dtypes.f32, (k, n)).permute((1, 0))
    )
    wide = a.reshape((m, 1, k)).expand((m, n, k)) * b.reshape((1, n, k)).expand((m, n, k))
    return wide.reduce(Ops.ADD)


def sample_ms(call: Callable[[], object]) -> float:
    """One call, milliseconds, after a pause and a call that wakes the threads."""
    time.sleep(PAUSE_S)
    call()
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def row(sizes: tuple[int, int, int], a_transposed: bool, b_transposed: bool) -> str:
    """One line of the table."""
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a = rng.standard_normal((k, m) if a_transposed else (m, k), np.float32)
    b = rng.standard_normal((n, k) if b_transposed else (k, n), np.float32)
    left, right = a.T if a_transposed else a, b.T if b_transposed else b
    ours, theirs = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    kernel = uopc.compile(product(m, n, k, a_transposed, b_transposed), target="cpu")
    times: dict[str, list[float]] = {"uopc": [], "numpy": []}
    for _ in range(SAMPLES):
        times["uopc"].append(sample_ms(lambda: kernel(a, b, out=ours)))
        times["numpy"].append(sample_ms(lambda: np.matmul(left, right, out=theirs)))
    exact = left.astype(np.float64) @ right.astype(np.float64)
    error = np.abs(ours - exact).max() / np.abs(exact).max()
    mine, peer = (statistics.median(x) for x in times.values())
    layout = ("T" if a_transposed else "N") + ("T" if b_transposed else "N")
    gflops = 2 * m * n * k / mine / 1e6
    return (
        f"{m:5} x {n:5} x {k:5} {layout} {mine:9.3f} {peer:9.3f} {peer / mine:7.2f} "
        f"{gflops:8.1f} {error:9.1e}"
    )


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores")
    print("    m       n       k          uopc ms  numpy ms   ratio   GFLOP/s     error")
    row(*ROWS[0])
    for shape in ROWS:
        print(row(*shape), flush=True)

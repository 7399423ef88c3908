"""Time from a body's construction to CUDA source, and from C text to a callable kernel.

    python scratch/bench_lowering.py
Medians over many repeats in one warm process.  The load from the disk cache is timed in processes
of their own (modules imported, compiled object in the cache).
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from uopc import dtypes
from uopc.gpu import gpu_lower, gpu_opt_choice, render_cuda
from uopc.uop import Ops, UOp, buffer, prod

REPEATS = 51


def param(slot: int, *shape: int) -> UOp:
    """An f32 input of this shape."""
    return buffer(slot, dtypes.f32, (prod(shape),)).reshape(shape)


def elementwise() -> UOp:
    """a*2 + 1."""
    return param(0, 64, 128) * 2.0 + 1.0


def softmax() -> UOp:
    """Softmax of 1000 columns."""
    x = param(0, 33, 1000)
    top = x.reduce(Ops.MAX, 1).reshape((33, 1)).expand(x.shape)
    e = (x - top).exp()
    return e / e.reduce(Ops.ADD, 1).reshape((33, 1)).expand(x.shape)


def product(m: int = 512, n: int = 512, k: int = 512) -> UOp:
    """a @ b."""
    a = param(0, m, k).reshape((m, 1, k)).expand((m, n, k))
    b = param(1, k, n).permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD, 1)


def lowering_ms(make: Callable[[], UOp]) -> float:
    """Median milliseconds from the body's construction to its CUDA text."""
    samples = []
    for _ in range(REPEATS):
        gc.collect()
        start = time.perf_counter()
        body = make()
        out = buffer(9, body.dtype, (prod(body.shape),))
        render_cuda(gpu_lower(body, out, gpu_opt_choice(body)), "kernel")
        samples.append(time.perf_counter() - start)
        del body, out
    return statistics.median(samples) * 1e3


LOAD = """
import time
from uopc.kernel import Dims
from uopc.runtime import Program
import numpy as np
text = "int scale(void** a) { const float* x = a[0]; float* y = a[1]; "
text += "for (int i = 0; i < 1000; ++i) y[i] = 2.0f * x[i]; return 0; }"
import warnings; warnings.simplefilter("ignore")
x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
start = time.perf_counter()
Program(text, "scale").compile()
print((time.perf_counter() - start) * 1e3)
Program(text, "scale")(x, y)
assert (y == 2.0).all()
"""


def load_ms() -> float:
    """Median milliseconds from C text to a loaded kernel, in processes that find it cached."""
    runs = [
        subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
        for _ in range(8)
    ]
    return statistics.median(float(r.stdout) for r in runs[1:])


if __name__ == "__main__":
    for label, body in (
        ("elementwise", elementwise),
        ("row softmax", softmax),
        ("matrix product", product),
    ):
        print(f"{label:16} {lowering_ms(body):6.2f} ms from body to CUDA source")
    print(
        f"{'cached load':16} {load_ms():6.2f} ms from C text to a callable kernel in a new process"
    )

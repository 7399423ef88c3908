"""One body under five choices: the launches differ, the numbers do not."""

from __future__ import annotations

import numpy as np

from uopc.dtype import dtypes
from uopc.gpu import emulate, gpu_lower, gpu_opt_choice, launch_dims
from uopc.opts import Opts
from uopc.runtime import Program
from uopc.uop import buffer

ROWS, COLUMNS = 64, 128
n = ROWS * COLUMNS
body = buffer(0, dtypes.f32, (n,)).reshape((ROWS, COLUMNS)) * 2.0 + 1.0
out = buffer(1, dtypes.f32, (n,))
choices = {
    "automatic": gpu_opt_choice(body),
    "8 x 16 threads": Opts(gpu=True, local={0: 8, 1: 16}),
    "two rows a thread": Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2}),
    "16 bytes at once": Opts(gpu=True, local={1: 32}, vector={1: 4}),
    "one thread a block": Opts(gpu=True),
}
a = np.random.default_rng(0).standard_normal(n, np.float32)
for name, opts in choices.items():
    kernel = gpu_lower(body, out, opts)
    (grid, block), b = launch_dims(kernel), np.zeros(n, np.float32)
    Program(emulate(kernel, "axpy"))(a, b)
    print(f"{name:18}  grid {grid!s:12}  block {block!s:12}  right: {np.array_equal(b, a * 2 + 1)}")

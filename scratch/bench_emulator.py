"""What emulation and checks cost: a product through shared memory, and one by roles and wgmma.

256 x 256 x 256, 256 threads a block with 4 x 4 elements of C each: C written by hand and compiled
with gcc -O2, with a loop over the threads for each region between barriers, beside what `emulate`
makes of the same kernel, fast and checked.  Milliseconds of the processor, the best of several runs
that take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from uopc.examples import EXAMPLES
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.render.emulate import render_emulated
from uopc.runtime import cpu
from uopc.runtime.arrays import address
from uopc.runtime.program import Program

N = 256
RUNS = 9
BY_HAND = """
#pragma GCC optimize ("tree-vectorize")  // as -O2 does it
float fmaf(float, float, float);
enum { N = 256, SIDE = 64, DEEP = 16, EACH = 4, THREADS = 16 };
static void block(const float* restrict a, const float* restrict b, float* restrict c, int bm,
                  int bn) {
  static _Thread_local float a_tile[SIDE * DEEP], b_tile[DEEP * SIDE];
  static _Thread_local float sum[THREADS][THREADS][EACH][EACH];
  for (int ty = 0; ty < THREADS; ++ty)
    for (int tx = 0; tx < THREADS; ++tx)
      for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) sum[ty][tx][i][j] = 0.0f;
  for (int step = 0; step < N / DEEP; ++step) {
    for (int ty = 0; ty < THREADS; ++ty)
      for (int tx = 0; tx < THREADS; ++tx)
        for (int v = 0; v < 4; ++v) {
          const int t = ty * THREADS + tx;
          const int ar = t / 4, ac = t % 4 * 4 + v, br = t / 16, bc = t % 16 * 4 + v;
          a_tile[ar * DEEP + ac] = a[(bm * SIDE + ar) * N + step * DEEP + ac];
          b_tile[br * SIDE + bc] = b[(step * DEEP + br) * N + bn * SIDE + bc];
        }
    for (int ty = 0; ty < THREADS; ++ty)
      for (int tx = 0; tx < THREADS; ++tx)
        for (int k = 0; k < DEEP; ++k) {
          float x[EACH], y[EACH];
          for (int i = 0; i < EACH; ++i) x[i] = a_tile[(ty * EACH + i) * DEEP + k];
          for (int j = 0; j < EACH; ++j) y[j] = b_tile[k * SIDE + tx * EACH + j];
          for (int i = 0; i < EACH; ++i)
            for (int j = 0; j < EACH; ++j) sum[ty][tx][i][j] = fmaf(x[i], y[j], sum[ty][tx][i][j]);
        }
  }
  for (int ty = 0; ty < THREADS; ++ty)
    for (int tx = 0; tx < THREADS; ++tx)
      for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j)
          c[(bm * SIDE + ty * EACH + i) * N + bn * SIDE + tx * EACH + j] = sum[ty][tx][i][j];
}
int by_hand(void** args) {
  for (int bm = 0; bm < N / SIDE; ++bm)
    for (int bn = 0; bn < N / SIDE; ++bn) block(args[0], args[1], args[2], bm, bn);
  return 0;
}
"""


def best(runs: Sequence[Callable[[], object]], times: int = RUNS) -> list[float]:
    """Milliseconds of each."""
    found = [float("inf")] * len(runs)
    for _ in range(times):
        for n, run in enumerate(runs):
            start = time.process_time()
            run()
            found[n] = min(found[n], (time.process_time() - start) * 1e3)
    return found


def product() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (N, N)).astype(np.float32) for _ in range(2))
    c = np.zeros((N, N), np.float32)
    tree = linearize(legalise(EXAMPLES["register_product"].build()))
    by_hand = cpu.load(BY_HAND, "by_hand", "emulated")
    fast, checked = (Program(render_emulated(tree, "product", check=x)) for x in (False, True))
    runs: list[Callable[[], object]] = [
        lambda: by_hand([address(x) for x in (a, b, c)]),
        lambda: fast(a, b, c),
        lambda: checked(a, b, c),
    ]
    for run in runs:
        c[:] = 0
        run()
        assert (c == a @ b).all()
    first, *others = best(runs)
    print(f"{N}^3, 256 threads, 4 x 4 each: by hand {first:.1f} ms")
    for name, ms in zip(("fast", "checked"), others, strict=True):
        print(f"  {name}: {ms:.1f} ms, {ms / first:.2f} x")


def specialised() -> None:
    example = EXAMPLES["specialised_product"]
    tree = linearize(legalise(example.build()))
    print("256 x 128 x 384 by roles, bulk copies and wgmma:")
    for check in (False, True):
        program = Program(render_emulated(tree, "ring", check=check, target="sm_90a"))
        arrays = example.arrays()
        (ms,) = best([partial(program, *arrays)])
        print(f"  {'checked' if check else 'fast'}: {ms:.1f} ms")


if __name__ == "__main__":
    product()
    specialised()

"""What ptxas says of register tiles and launch bounds; NVRTC needs no GPU.

Exact counts change with NVRTC's version, so this prints what holds for all of them.
"""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.gpu import gpu_lower, render_cuda
from uopc.opts import Opts
from uopc.runtime import Resources, compile_cubin
from uopc.uop import Ops, UOp, buffer, prod

N = 1024
a, b = buffer(0, dtypes.f32, (N, N)), buffer(1, dtypes.f32, (N, N))
rows = a.reshape((N, 1, N)).expand((N, N, N))
columns = b.permute((1, 0)).reshape((1, N, N)).expand((N, N, N))
product = (rows * columns).reduce(Ops.ADD)


def resources(body: UOp, opts: Opts) -> Resources:
    kernel = gpu_lower(body, buffer(2, dtypes.f32, (prod(body.shape),)), opts)
    return compile_cubin(render_cuda(kernel, "kern", "sm_80"), "kern", "sm_80").resources


print("a tile of t x t accumulators a thread, 256 threads a block:")
for t in (1, 2, 4, 8, 16):
    used = resources(product, Opts(gpu=True, local={0: 16, 1: 16}, upcast={0: t, 1: t}))
    room = "a register for each" if used.registers >= t * t else "fewer registers"
    print(f"  t {t:2}: {t * t:3} accumulators, {room}, {'spills' if used.spills else 'no spill'}")

print("launch bounds (256, n) for the tile of 8 x 8:")
for n in (1, 2, 4):
    opts = Opts(gpu=True, local={0: 16, 1: 16}, upcast={0: 8, 1: 8}, blocks_per_sm=n)
    used, allowed = resources(product, opts), min(255, 65536 // (256 * n))
    kept, kind = used.registers <= allowed, "spills" if used.spills else "no spill"
    print(f"  n {n}: at most {allowed:3} registers, {'kept' if kept else 'broken'}, {kind}")

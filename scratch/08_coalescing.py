"""Sectors of 32 bytes that a request of each memory touches, for the bytes that it wants."""

from __future__ import annotations

import uopc
from uopc.dtype import dtypes
from uopc.gpu import gpu_opt_choice
from uopc.opts import Opts
from uopc.uop import Ops, UOp, buffer

TARGET = "sm_80"


def sectors(body: UOp, opts: Opts) -> dict[str, str]:
    """For A, B and C: sectors a request, and the bytes that the lanes of one want, each once."""
    (launch,) = uopc.report(body, opts=opts, target=TARGET).launches
    found = {}
    for a in launch.accesses:
        if a.space == "global":
            lanes = [range(at, at + a.width_bytes) for at in a.lanes if at is not None]
            wanted = len(set().union(*lanes))
            found["ABC"[a.slot]] = f"{launch.sectors[a.memory]:3.0f} for {wanted:3} B"
    return found


N = 64
a, b = buffer(0, dtypes.f32, (N, N)), buffer(1, dtypes.f32, (N, N))
rows = a.reshape((N, 1, N)).expand((N, N, N))
columns = b.permute((1, 0)).reshape((1, N, N)).expand((N, N, N))
product, turned = (rows * columns).reduce(Ops.ADD), a.permute((1, 0)) + b
square = {0: 16, 1: 16}
kernels = {
    "C = A B, .x on the last axis": (product, Opts(gpu=True, local=square)),
    "C = A B, .x on the first axis": (product, Opts(gpu=True, local=square, lanes=(0, 1))),
    "C = A B, chosen": (product, gpu_opt_choice(product)),
    "C = A.T + B, .x on the last axis": (turned, Opts(gpu=True, local={1: 32})),
    "C = A.T + B, .x on the first axis": (turned, Opts(gpu=True, local={0: 32}, lanes=(0,))),
    "C = A + B, 4 bytes a lane": (a + b, Opts(gpu=True, local={0: 2, 1: 16})),
    "C = A + B, 16 bytes a lane": (a + b, Opts(gpu=True, local={0: 2, 1: 16}, vector={1: 4})),
}
for name, (body, opts) in kernels.items():
    touched = sectors(body, opts)
    print(f"{name:34} " + "   ".join(f"{x} {touched[x]}" for x in "CAB"))

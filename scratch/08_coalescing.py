"""Distinct 32-byte sectors that each access of warp 0 touches: lane numbers put into its index."""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.gpu import gpu_lower, gpu_opt_choice
from uopc.kernel import Launch
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.symbolic import index as ix
from uopc.uop import Ops, UOp, buffer, memory, prod, toposort
from uopc.uop.facts import free

SECTOR_BYTES = 32  # what the memory system moves at least


def thread_of(launch: Launch, lane: int) -> dict[UOp, UOp]:
    """The thread ranges of a lane of warp 0, as numbers: lane = x + y*X + z*X*Y."""
    numbers = {}
    for axis in launch.block_axes:
        numbers[axis.range] = ix.index(lane % axis.range.arg.size)
        lane //= axis.range.arg.size
    return numbers


def sectors(kernel: UOp) -> dict[str, str]:
    """For each access to global memory, blocks and loops at 0: sectors touched, bytes wanted."""
    launch, found = bind(kernel), {}
    for u in toposort(kernel):
        if u.op not in (Ops.LOAD, Ops.STORE) or memory(u.src[0]).op is not Ops.BUFFER:
            continue
        offset, size = u.src[0].src[1], u.src[0].dtype.itemsize
        width = size * (u.arg.width if u.arg else 1)
        zero = dict.fromkeys(free(offset), ix.ZERO)
        touched: set[int] = set()
        for lane in range(min(32, launch.threads)):
            first = ix.substitute(offset, zero | thread_of(launch, lane)).arg.bits * size
            touched.update(range(first, first + width))
        count = len({byte // SECTOR_BYTES for byte in touched})
        found["ABC"[memory(u.src[0]).arg.slot]] = f"{count:3} for {len(touched):3} B"
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
    touched = sectors(gpu_lower(body, buffer(2, dtypes.f32, (prod(body.shape),)), opts))
    print(f"{name:34} " + "   ".join(f"{x} {touched[x]}" for x in "CAB"))

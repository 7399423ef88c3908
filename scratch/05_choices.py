"""What is chosen for a dozen bodies, on a GPU and on a CPU."""

from __future__ import annotations

from uopc.choose import cpu, gpu
from uopc.choose.facts import KernelFacts
from uopc.dtype import dtypes
from uopc.target import target
from uopc.uop import Ops, UOp, buffer, prod


def f32(*shape: int, slot: int = 0) -> UOp:
    return buffer(slot, dtypes.f32, shape)


def softmax(rows: int, n: int) -> UOp:
    x = f32(rows, n)
    e = (x - x.reduce(Ops.MAX).reshape((rows, 1)).expand((rows, n))).exp()
    return e / e.reduce(Ops.ADD).reshape((rows, 1)).expand((rows, n))


def product(m: int, n: int, k: int) -> UOp:
    a = f32(m, k).reshape((m, 1, k)).expand((m, n, k))
    b = f32(k, n, slot=1).permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD)


bodies = {
    "1024 elements": f32(1024) * 2.0,
    "2**26 elements": f32(1 << 26) * 2.0,
    "2**26 - 5 elements": f32((1 << 26) - 5) * 2.0,
    "(3, 100)": f32(3, 100) * 2.0,
    "transposed (4096, 4096)": f32(4096, 4096).permute((1, 0)) * 2.0,
    "sums of 8192 rows of 64": f32(8192, 64).reduce(Ops.ADD),
    "sums of 8192 rows of 8192": f32(8192, 8192).reduce(Ops.ADD),
    "sums of 8192 columns": f32(8192, 8192).permute((1, 0)).reduce(Ops.ADD),
    "sum of 2**26": f32(1 << 26).reduce(Ops.ADD),
    "softmax (4096, 1024)": softmax(4096, 1024),
    "softmax (4096, 50000)": softmax(4096, 50000),
    "product 1024 cubed": product(1024, 1024, 1024),
}
for name, body in bodies.items():
    facts = KernelFacts.of([body], [buffer(2, dtypes.f32, (prod(body.shape),))])
    candidates = gpu.rank(facts, gpu.Aim(target("sm_90")))
    print(name)
    print(f"  gpu, first of {len(candidates)}: {candidates[0]}")
    print(f"  cpu: {cpu.rank(facts)[0]}")

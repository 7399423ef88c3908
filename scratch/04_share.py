"""How `share` makes the loads of several reductions one: axes and loads before and after it."""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.passes.rangeify import rangeify
from uopc.passes.share import share
from uopc.uop import Ops, UOp, buffer, prod, toposort

R, N = 16, 32
x = buffer(0, dtypes.f32, (R, N))


def repeat(row: UOp) -> UOp:
    """One value a row, repeated along it."""
    return row.reshape((R, 1)).expand((R, N))


e = (x - repeat(x.reduce(Ops.MAX))).exp()
mean = x.reduce(Ops.ADD) * (1 / N)
centred = x - repeat(mean)
bodies = {
    "row sums": [x.reduce(Ops.ADD)],
    "sum and largest": [x.reduce(Ops.ADD), x.reduce(Ops.MAX)],
    "softmax": [e / repeat(e.reduce(Ops.ADD))],
    "variance": [(centred * centred).reduce(Ops.ADD) * (1 / N)],
    "sum of all": [x.reduce(Ops.ADD, 2)],
    "rows against columns": [x.reduce(Ops.ADD), x.permute((1, 0)).reduce(Ops.ADD)],
}


def count(root: UOp) -> str:
    order = toposort(root)
    axes = ", ".join(str(u.arg.size) for u in order if u.op is Ops.RANGE)
    return f"axes {axes}; {sum(u.op is Ops.LOAD for u in order)} loads"


for name, body in bodies.items():
    outs = [buffer(k + 1, b.dtype, (prod(b.shape),)) for k, b in enumerate(body)]
    before = rangeify(body, outs)
    print(f"{name}: {count(before)} -> {count(share(before))}")

"""One pick a row of a computed value becomes a comparison.  TENSOR -> TENSOR.

Here because: while a graph is made canonical; grouping keeps apart what reads a value off its axes.
Before: GATHER[0, ~0](log_p (N, C), y (N,))
After:  REDUCE(MAX) over C of WHERE(iota == GATHER[~0](iota, y), log_p, -inf)

The rows are computed in that kernel anyway, so the pick costs no byte and the loss joins its
softmax.  MAX gives the picked element bit for bit: every other one is its identity.  The inner
GATHER counts negative indices from the end and reports those that name nothing.  A pick from
memory stays a GATHER: it reads only what it picks.
"""

from __future__ import annotations

from uopc.schedule.views import VIEWS
from uopc.uop.combine import identity
from uopc.uop.infer import prod
from uopc.uop.node import UOp, inherit
from uopc.uop.ops import Combine, IotaArg, Ops


def picked(u: UOp) -> UOp:
    """u, or the comparison that it is."""
    if u.op is not Ops.GATHER or len(u.src) != 2 or _is_memory(u.src[0]):
        return u
    x, index = u.src
    dims: tuple[int, ...] = u.arg.dims
    axis = next(i for i, d in enumerate(dims) if d < 0)
    walked = [d for d in dims if d >= 0]
    rest = [n for j, n in enumerate(u.shape) if j not in walked]
    if prod(rest) != 1 or walked != sorted(walked) or x.dtype.storage:
        return u
    n = x.shape[axis]
    if n < 2 or prod(u.shape) * n != prod(x.shape):
        return u
    rows = tuple([u.shape[j] for j in walked])
    order = [i for i in range(len(x.shape)) if i != axis] + [axis]
    iota = UOp(Ops.IOTA, (), IotaArg(n, index.dtype))
    named = iota.gather((~0,), index).reshape((*rows, 1)).expand((*rows, n))
    hit = named.eq(iota.reshape((*(1 for _ in rows), n)).expand((*rows, n)))
    nothing = identity(Combine.MAX, (x.dtype,))[0]
    found = hit.where(x.permute(order), nothing).reduce(Combine.MAX)
    return inherit(found.reshape(u.shape), u)


def _is_memory(x: UOp) -> bool:
    while x.op in VIEWS and x.op is not Ops.GATHER:
        x = x.src[0]
    return x.op in (Ops.BUFFER, Ops.ASSIGN, Ops.CONST, Ops.IOTA, Ops.GATHER)

"""Column sums that join a row kernel.  TENSOR -> TENSOR.

Here because: grouping has found sums over the very rows that another kernel spreads over its grid
(the gradients of a layer norm's scale and shift beside that of its input).  As they are they would
read everything again.
Before: REDUCE(ADD) of x (D, R) over R
After:  REDUCE(ADD) over P of a view (D, P) of REDUCE(ADD) over R / P of x (P, D, R / P)

The inner sum now varies along P, as the rows do once refinement has split them too: both share a
kernel whose blocks take R / P rows each, and a small second one adds P partial sums.  The parts are
rows of D elements: each block writes a row as it has read them, lane beside lane.  P follows from
the size and the target alone, and so does the order of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.dtype import dtypes
from uopc.passes.rangeify import NARROW_FLOATS
from uopc.schedule.limits import Limits
from uopc.schedule.normalise import rebuilt
from uopc.uop.node import UOp, inherit, prod, toposort
from uopc.uop.ops import Combine


def with_partial_sums(
    roots: Sequence[UOp], sums: frozenset[UOp], limits: Limits
) -> tuple[list[UOp], dict[UOp, UOp]]:
    """(the roots with these sums in two steps where their rows divide, {node: its new form})."""
    new: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        new[u] = rebuilt(u, tuple([new[s] for s in u.src]))
        if u in sums:
            new[u] = _in_two_steps(new[u], limits)
    return [new[r] for r in roots], new


def parts_of(rows: int, limits: Limits) -> int | None:
    """Into how many parts a sum over rows is cut: a divisor that fills the machine."""
    for parts in range(limits.blocks, limits.parts + 1):
        if rows % parts == 0 and rows // parts > 1:
            return parts
    return None


def _in_two_steps(v: UOp, limits: Limits) -> UOp:
    x = v.src[0]
    rows = prod(x.shape[len(v.shape) :])
    parts = parts_of(rows, limits)
    if parts is None:
        return v
    wide = x.cast(dtypes.f32) if v.dtype in NARROW_FLOATS else x  # rounded once, after the last sum
    n = len(v.shape)
    by_part = wide.reshape((*v.shape, parts, rows // parts)).permute((n, *range(n), n + 1))
    first = inherit(by_part.reduce(Combine.ADD), v).permute((*range(1, n + 1), 0))
    return inherit(first.reduce(Combine.ADD).cast(v.dtype), v)

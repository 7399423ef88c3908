"""The meaning of every op of every stage, in numpy: straightforward, slow, the judge of all else.

`evaluate` is for bodies (stage TENSOR), `run` for kernels (INDEXED, MAPPED, LOOPS).  Both are exact
for elementwise work, integers, extremes and casts; in LOOPS for sums too, since their order stands
in the graph.  Elsewhere a float REDUCE or SCAN is summed in f64 (f64 itself in numpy's long double)
and rounded once, so a kernel may differ from it within the bound for sums.

Reading order: access (errors, parameters), fold (REDUCE, SCAN), tensor, lattice (INDEXED and
MAPPED), machine (threads and memories of LOOPS), warps, engines, matrix, loops.  Single ops:
`uopc/uop/numbers.py`.
"""

from __future__ import annotations

from typing import Any

from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import EFFECTS, AxisType, Ops, ShuffleArg
from uopc.uop.oracle.access import (
    AssertedError,
    ConflictError,
    Given,
    OutOfBoundsError,
    WarpError,
)
from uopc.uop.oracle.lattice import run_lattice
from uopc.uop.oracle.loops import run_loops
from uopc.uop.oracle.tensor import evaluate
from uopc.uop.spec import Stage

#: what only LOOPS has
_ORDERED = (EFFECTS - {Ops.STORE}) | {
    *(Ops.ALLOC, Ops.AFTER, Ops.IF, Ops.ROLE),
    *(Ops.VOTE, Ops.WARP_REDUCE, Ops.DESCRIPTOR, Ops.TENSORMAP),
}
#: what LOOPS has not
_UNORDERED = frozenset((Ops.REDUCE, Ops.SCAN, Ops.STAGE))
_OF_WARPS = (AxisType.LANE, AxisType.WARP, AxisType.WARPGROUP)


def run(sink: UOp, arrays: Given, stage: Stage | None = None) -> dict[int, Any]:
    """Do a kernel's effects on copies of the arrays: {slot: array} for every slot that it stores.

    Parameters
    ----------
    sink: a SINK of stage INDEXED, MAPPED or LOOPS.
    arrays: slot -> array of the parameter's dtype and number of elements.  A stored slot that is
        missing starts as garbage (NaN, or the dtype's smallest value).  A bundle takes a list of
        arrays, and gives one.
    stage: LOOPS walks the effects in their order; the others take all stores at once, with every
        load before them.  None: LOOPS where the graph has what the others have not (ALLOC,
        AFTER, IF, an effect that is no STORE, ranges of warps, a wide access), or a slot that is
        both read and written.

    Raises OutOfBoundsError, naming buffer and index, where an access whose gate is true misses its
    memory, ConflictError where two iterations or threads write different values to one element,
    WarpError where lanes that work together are not those that should, AssertedError, SpecError
    where threads wait for ever, and UsageError for arrays that do not fit.
    """
    if stage is None:
        stage = Stage.LOOPS if _has_order(sink) else Stage.MAPPED
    return run_loops(sink, arrays) if stage is Stage.LOOPS else run_lattice(sink, arrays)


def _has_order(sink: UOp) -> bool:
    order = toposort(sink)
    if any(u.op in _UNORDERED for u in order):
        return False
    read = {memory(u.src[0]) for u in order if u.op is Ops.LOAD}
    written = {memory(u.src[0]) for u in order if u.op is Ops.STORE}
    wide = any(u.op in (Ops.LOAD, Ops.STORE) and u.arg is not None for u in order)
    return wide or not read.isdisjoint(written) or any(_only_in_loops(u) for u in order)


def _only_in_loops(u: UOp) -> bool:
    if u.op is Ops.SHUFFLE:
        return bool(u.arg != ShuffleArg(u.arg.by))
    return u.op in _ORDERED or (u.op is Ops.RANGE and u.arg.kind in _OF_WARPS)


__all__ = [
    "AssertedError",
    "ConflictError",
    "OutOfBoundsError",
    "WarpError",
    "evaluate",
    "run",
]

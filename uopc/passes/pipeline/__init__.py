"""Staged operands, their ring and its barriers.  MAPPED -> LOOPS, for kernels of a plan.

Here because: in place of `effects`, once `tile_product` has said what is staged where.
Before: STORE(out[x, y], REDUCE(A * B, t, kk))        A, B = STAGE(SHARED, ...; depth 3, cp.async)
After:  fill tiles 0 and 1
        LOOP t: wait for tile t; BARRIER; fill tile t + 2; for kk: registers from A, B; sums += a*b
        out[x, y] = sums

Each stage has writers and readers, and two edges between them.  *Publish*: what was copied is
there before it is read.  *Recycle*: what was read is not overwritten before.  With one tile at a
time both are a BARRIER of their own.  With more, a BARRIER a tile is both: what it publishes was
asked for depth - 1 tiles ago, and what may be overwritten after it was read before it
(`together.py`).  Where boxes come, each edge is an mbarrier: of warps that only copy (`apart.py`),
or of a thread that copies and multiplies (`inline.py`).

What these place: `fill.py`, tiles to shared memory; `multiply.py` by tensor cores, `arithmetic.py`
by threads; `slices.py` and `parts.py`, sums that warps or blocks share; `store.py`, the result.
`writer.py` is the kernel that all of them write to.
"""

from __future__ import annotations

from uopc.passes.pipeline.apart import apart
from uopc.passes.pipeline.inline import inline
from uopc.passes.pipeline.together import together
from uopc.plan import Plan
from uopc.uop.node import UOp


def pipeline(root: UOp, plan: Plan) -> UOp:
    """LOOPS kernel of a product that `tile_product` has mapped."""
    if plan.inline:
        return inline(root, plan)
    return apart(root, plan) if plan.roles else together(root, plan)

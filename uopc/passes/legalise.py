"""Arithmetic that no machine has, in terms of arithmetic that all have.  LOOPS -> LOOPS.

Here because: last before `linearize`; earlier passes see the user's ops.
Before: ADD(f16 a, f16 b)        After: CAST(ADD(CAST(a, f32), CAST(b, f32)), f16)

f16 and bf16 round after every op: + - * / and sqrt computed in f32 and rounded once more are
correctly rounded, since 24 >= 2p + 2 for p = 11 and 8 (Figueroa, "When is double rounding
innocuous?", SIGNUM 1995).  Every cast to or from a type of 16 or 8 bits goes through f32.
"""

from __future__ import annotations

from uopc.dtype import FP8, DType, dtypes, from_bits
from uopc.kernel import UNASKED, Fired
from uopc.uop.node import UOp, derive, inherit, toposort
from uopc.uop.ops import COMPARE, ELEMENTWISE, Ops

NARROW = (dtypes.f16, dtypes.bf16)
SMALL = (*NARROW, *FP8)
_AS_THEY_ARE = (Ops.CAST, Ops.BITCAST, Ops.WHERE)


def legalise(root: UOp, fired: Fired = UNASKED) -> UOp:
    """LOOPS kernel whose narrow floats are only loaded, stored, chosen, shuffled and cast."""
    order = toposort(root)
    if not any(u.dtype in SMALL for u in order):
        return root
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        op = u.op
        if op in ELEMENTWISE and op not in _AS_THEY_ARE and src[0].dtype in NARROW:
            wide = inherit(UOp(op, tuple(_cast(s, dtypes.f32) for s in src), u.arg), u)
            new = wide if op in COMPARE else inherit(_cast(wide, u.dtype), u)
            fired.add("narrow-op-in-f32")
        elif (
            op is Ops.CAST
            and (u.dtype in SMALL or src[0].dtype in SMALL)
            and dtypes.f32 not in (u.dtype, src[0].dtype)
        ):
            new = inherit(_cast(_cast(src[0], dtypes.f32), u.dtype), u)
            fired.add("narrow-cast-by-f32")
        else:
            new = u if src == u.src else derive(u, src)
        memo[u] = new
    return memo[root]


def _cast(u: UOp, dtype: DType) -> UOp:
    if u.dtype is dtype:
        return u
    if u.op is Ops.CONST and dtype is dtypes.f32 and u.dtype.is_float and u.dtype is not dtypes.f64:
        return UOp.const(from_bits(u.arg.bits, u.dtype), dtype)  # exact
    return UOp(Ops.CAST, (u,), dtype)

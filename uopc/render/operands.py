"""Which sources of an op are values, and which only say what it comes after."""

from __future__ import annotations

from uopc.uop.node import UOp
from uopc.uop.ops import BarrierArg, BarrierScope, Ops


def operands(u: UOp) -> tuple[UOp, ...]:
    """Sources whose values an op takes; the others only say what it comes after."""
    if u.op in (Ops.AFTER, Ops.ASSERT, Ops.IF):
        return u.src[:1]
    if u.op in (Ops.COMMIT, Ops.WAITG, Ops.FENCE, Ops.ROLE):
        return ()
    if u.op is Ops.BARRIER:
        scope = (u.arg or BarrierArg()).scope
        return u.src[:1] if scope is BarrierScope.NAMED else ()
    if u.op is Ops.PRINTF:
        return u.src[: u.arg.format.count("{}")]
    return u.src


__all__ = ["operands"]

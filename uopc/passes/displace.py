"""An offset as a base and a displacement that unrolling makes constant.  LOOPS -> LOOPS.

Here because: after `vectorise` (accesses are as wide as they get), before `legalise`.
Before: LOAD(b[t * 8192 + lane * 4 + u * 256 + v * 16 + 256; 4])           u, v: UPCAST
After:  LOAD(b[(t * 8192 + lane * 4) + (u * 256 + v * 16 + 256); 4])       of the base a pointer

Instructions add a constant to an address for nothing.  Of a sum of integers NVRTC proves only at
times that the constant may be added after the others: else each copy of an unrolled access adds up
its own address, and keeps it in a register.  Of a pointer it may always.
"""

from __future__ import annotations

from uopc.dtype import AddrSpace
from uopc.kernel import UNASKED, Fired
from uopc.symbolic import index as ix
from uopc.uop.facts import bounds, free
from uopc.uop.node import UOp, addrspace, derive, toposort
from uopc.uop.ops import AxisType, BasedArg, Ops

_SPACES = (AddrSpace.GLOBAL, AddrSpace.SHARED)


def displace(root: UOp, fired: Fired = UNASKED) -> UOp:
    """LOOPS kernel whose accesses of memory in unrolled loops have a base."""
    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else derive(u, src)
        memo[u] = _based(new) if u.op is Ops.INDEX and addrspace(u) in _SPACES else new
        fired.add("base-and-displacement", memo[u] is not new)
    return memo[root]


def unrolled(u: UOp) -> frozenset[UOp]:
    """The unrolled loops that a value depends on."""
    return frozenset(r for r in free(u) if r.op is Ops.RANGE and r.arg.kind is AxisType.UPCAST)


def _based(access: UOp) -> UOp:
    """An INDEX with its base and displacement; as it is where no unrolled loop moves it."""
    terms, constant = ix.affine(access.src[1])
    fixed, mixed, displacement = ix.ZERO, ix.ZERO, ix.index(constant)
    for term, times in terms.items():
        part = ix.scale(term, times)
        if not unrolled(term):
            fixed = ix.add(fixed, part)
        elif unrolled(term) == free(term):
            displacement = ix.add(displacement, part)
        else:  # the loop's own base: of these there are few
            mixed = ix.add(mixed, part)
    base = (
        fixed if mixed is ix.ZERO else mixed if fixed is ix.ZERO else UOp(Ops.ADD, (fixed, mixed))
    )
    if base is ix.ZERO or not unrolled(displacement):
        return access
    if min(bounds(base)[0], bounds(displacement)[0]) < 0:  # a pointer out of the memory
        return access
    offset = UOp(Ops.ADD, (base, displacement))
    return UOp(Ops.INDEX, (access.src[0], offset), BasedArg())

"""Which values live in registers (or a row in shared memory).  MAPPED -> MAPPED.

Here because: after `cooperate` (SHUFFLE is dear too), before `effects`, which gives STAGEs memory.
Before: LOAD(x) used by REDUCE(MAX) and by exp(x - max)
After:  STAGE(REG) of LOAD(x), read by both

One walk from the stores down: nests[u] is the closers whose loop bodies would evaluate u (ENDs of
the same ranges share one).  A dear
value with free UPCAST digits becomes STAGE(REG)
  iff it is a global LOAD (so that all loads are issued before the first use; GPU only), or
  iff two nests would evaluate it and no serial range is free in it (its array is then indexed by
  UPCAST ranges alone and outlives both nests).
A staged value is itself a closer for what is below it: x dies as exp(x) is born.
"""

from __future__ import annotations

from uopc.dtype import AddrSpace, dtypes
from uopc.passes.bind import hardware_ranges
from uopc.passes.cooperate import upcasts
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, inherit, prod, toposort
from uopc.uop.ops import DEAR, SERIAL, AxisType, Ops, StageArg

CLOSERS = frozenset((Ops.REDUCE, Ops.STAGE, Ops.END))


def materialise(root: UOp, keep: str, batch_loads: bool) -> UOp:
    """keep: Opts.keep; batch_loads: global loads always get a register array of their own."""
    order = toposort(root)
    nests: dict[UOp, dict[UOp, None]] = {u: {} for u in order}
    staged: dict[UOp, AddrSpace] = {}
    lanes = hardware_ranges(root, AxisType.LOCAL)
    same: dict[frozenset[UOp], UOp] = {}  # ENDs of the same ranges are one nest
    for u in reversed(order):
        closer = same.setdefault(frozenset(u.src[1:]), u) if u.op is Ops.END else u
        closes = u.op in CLOSERS
        if not closes and u.op in DEAR and u.dtype is not dtypes.void:
            space = _space(u, len(nests[u]) > 1, keep, batch_loads, lanes)
            if space is not None:
                staged[u] = space
                closes = True
        for s in u.src:
            if closes:
                nests[s][closer] = None
            else:
                nests[s].update(nests[u])
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else ix.remake(u, src)
        if u in staged:
            copies = _contiguous_last(u, upcasts(free(u)))
            if copies:
                at = ix.flat((r, r.arg.size) for r in copies)
                arg = StageArg(AddrSpace.REG, prod(r.arg.size for r in copies))
                new = inherit(UOp(Ops.STAGE, (new, at, at, ix.TRUE, *copies), arg), u)
            if staged[u] is AddrSpace.SHARED:
                new = _row(u, new, copies, lanes)
        memo[u] = new
    return memo[root]


def _space(
    u: UOp, again: bool, keep: str, batch_loads: bool, lanes: tuple[UOp, ...]
) -> AddrSpace | None:
    load = u.op is Ops.LOAD and addrspace(u.src[0]) is AddrSpace.GLOBAL
    serial = any(r.arg.kind in SERIAL for r in free(u))
    if load and again and serial and keep == "shared" and all(r in free(u) for r in lanes):
        return AddrSpace.SHARED  # each thread has elements of its own
    if not upcasts(free(u)):
        return None  # a variable does, as it stands
    if (load and batch_loads) or (keep != "none" and again and not serial):
        return AddrSpace.REG
    return None


def _contiguous_last(u: UOp, copies: list[UOp]) -> list[UOp]:
    """Of several vector digits, the one that memory is contiguous in comes last: it gets wide."""
    if u.op is not Ops.LOAD:
        return copies
    wide = [r for r in copies if r.arg.digit == "v" and ix.coefficient(u.src[0].src[1], r) == 1]
    return [*(r for r in copies if r not in wide), *wide]


def _row(u: UOp, value: UOp, copies: list[UOp], lanes: tuple[UOp, ...]) -> UOp:
    """A row too long for registers: each thread keeps its elements in SHARED, without a barrier."""
    serial = serials(free(u))
    mine = [r for r in reversed(lanes) if r in free(u)]
    ranges = [*serial, *copies[:-1], *mine, *copies[-1:]]
    at = ix.flat((r, r.arg.size) for r in ranges)
    arg = StageArg(AddrSpace.SHARED, prod(r.arg.size for r in ranges))
    return inherit(UOp(Ops.STAGE, (value, at, at, ix.TRUE, *serial, *copies), arg), u)


def serials(ranges: frozenset[UOp] | tuple[UOp, ...]) -> list[UOp]:
    """Loops of one thread's text, outermost first: CPU threads, loops, tiles."""
    kinds = (AxisType.THREAD, *SERIAL)
    mine = (r for r in ranges if r.arg.kind in kinds)
    return sorted(
        mine,
        key=lambda r: (
            r.arg.kind is not AxisType.THREAD,
            r.arg.digit == "t",
            r.arg.axis,
            r.arg.instance,
        ),
    )

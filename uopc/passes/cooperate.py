"""A REDUCE over threads: butterflies, then one exchange through shared memory.  MAPPED -> MAPPED.

Over the blocks of a cluster too it is one exchange: each warp sends its value to every block, the
cluster meets once, and each warp folds what all warps of all blocks have sent to its own block.

Here because: after `split` (lanes are known), before `materialise` (SHUFFLE is dear).
Before: REDUCE(x, k:8 REDUCE, u:4 UPCAST, l:256 LOCAL; ADD)
After:  REDUCE over k and u in the thread; 5 times v + SHUFFLE(v); STAGE(SHARED, 8 values), written
        by lane 0 of each warp; REDUCE over a new range w:8.  Every thread has the same bits.

Before: REDUCE(x, c:4 GLOBAL, u:4 UPCAST, l:256 LOCAL; ADD)
After:  REDUCE over u; 5 times v + SHUFFLE(v); STAGE(CLUSTER, 32 values in each of 4 blocks): lane b
        of each warp writes into block b; lane i reads value i of its own block, c; 5 times again.

In one thread a tile digit is folded first (so that no serial chain is long), then the loop, then
register copies: those are accumulators of their own unless the value already has one per output.
On a CPU a vector digit is one in any case: a register row for the C compiler.
"""

from __future__ import annotations

from collections.abc import Callable

from uopc.dtype import AddrSpace
from uopc.kernel import UNASKED, Fired
from uopc.passes.bind import hardware_ranges
from uopc.symbolic import index as ix
from uopc.uop.combine import step
from uopc.uop.facts import free
from uopc.uop.node import UOp, inherit, is_rank, prod, toposort, tuple_of
from uopc.uop.ops import SERIAL, AxisType, Combine, Ops, RangeArg, ReduceArg, ShuffleArg, StageArg

WARP = 32
UNROLLED = 64  # partial results that are folded by unrolled code; more by a loop
IN_LINE = 8  # values from a cluster's warps that a thread folds alone; more by butterflies


def cooperate(root: UOp, gpu: bool = True, fired: Fired = UNASKED) -> UOp:
    """MAPPED graph in which every REDUCE closes in-thread ranges only."""
    if not any(u.op is Ops.REDUCE for u in toposort(root)):
        return root
    lanes = hardware_ranges(root, AxisType.LOCAL)
    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple([memo[s] for s in u.src])
        if u.op is Ops.REDUCE:
            memo[u] = _reduce(u, src[0], src[1:], lanes, gpu, fired)
        else:
            memo[u] = u if src == u.src else ix.remake(u, src)
    return memo[root]


def _reduce(
    u: UOp,
    value: UOp,
    ranges: tuple[UOp, ...],
    lanes: tuple[UOp, ...],
    gpu: bool,
    fired: Fired,
) -> UOp:
    combine: Combine = u.arg.combine

    def fold(v: UOp, *over: UOp) -> UOp:
        return inherit(UOp(Ops.REDUCE, (v, *over), ReduceArg(combine)), u) if over else v

    tiles = tuple(r for r in ranges if r.arg.kind in SERIAL and r.arg.digit == "t")
    loops = tuple(r for r in ranges if r.arg.kind in SERIAL and r.arg.digit != "t")
    copies = tuple(r for r in ranges if r.arg.kind is AxisType.UPCAST)
    outer = any(r.arg.kind is AxisType.UPCAST and r not in copies for r in free(value))
    if outer and copies:
        rows = () if gpu else tuple(r for r in copies if r.arg.digit == "v")
        chained = tuple(r for r in copies if r not in rows)
        value = (
            fold(fold(value, *tiles, *chained), *loops) if tiles else fold(value, *loops, *chained)
        )
        value = fold(value, *rows)
    else:
        value = fold(fold(fold(value, *tiles), *loops), *copies)
    fired.add("reduce-in-thread", bool(tiles or loops or copies))
    mine = sorted((r for r in ranges if r.arg.kind is AxisType.LOCAL), key=lanes.index)
    rank = next((r for r in ranges if is_rank(r)), None)
    for r in mine[:-1] if rank is not None else mine:
        value = _across(u, value, r, lanes, fold, fired)
    if rank is not None:
        value = _across_cluster(u, value, rank, mine[-1:], lanes, fold)
        fired.add("exchange-in-cluster")
    folded = tiles or loops or copies or value.op is Ops.REDUCE
    if combine is Combine.ADD and u.dtype.is_float and not folded:
        value = inherit(value + 0.0, u)  # sums start from +0.0, those without an accumulator too
    return value


def _across(
    u: UOp,
    value: UOp,
    r: UOp,
    lanes: tuple[UOp, ...],
    fold: Callable[..., UOp],
    fired: Fired,
) -> UOp:
    """One LOCAL digit: xor butterflies over its lane bits, then an exchange of what is left."""
    n, stride, in_warp = r.arg.size, _stride(r, lanes), _in_warp(r, lanes)
    value = _butterflies(u, value, in_warp, stride)
    fired.add("butterfly", in_warp.bit_length() - 1)
    if n == in_warp:
        return value
    fired.add("exchange-in-shared")
    group = ix.div(r, in_warp)
    leader = ix.below(ix.mod(r, in_warp), 1)
    return fold(*_exchange(u, value, r, group, n // in_warp, leader, lanes))


def _stride(r: UOp, lanes: tuple[UOp, ...]) -> int:
    """Threads from one value of a LOCAL range to the next."""
    return prod(x.arg.size for x in lanes[: lanes.index(r)])


def _in_warp(r: UOp, lanes: tuple[UOp, ...]) -> int:
    """How many values of a LOCAL range stand in lanes of one warp that butterflies reach."""
    n, stride = r.arg.size, _stride(r, lanes)
    reached = _power_of_two(n) and _power_of_two(stride) and stride < WARP
    return min(n, WARP // stride) if reached else 1


def _butterflies(u: UOp, value: UOp, n: int, stride: int) -> UOp:
    """A value folded over n lanes that stand `stride` apart: in all of them, the same bits."""
    while n > 1:
        n //= 2
        parts = _parts(value)
        others = tuple(UOp(Ops.SHUFFLE, (p,), ShuffleArg(n * stride)) for p in parts)
        value = _pack(u, step(u.arg.combine, parts, others))
    return value


def _across_cluster(
    u: UOp,
    value: UOp,
    rank: UOp,
    local: list[UOp],
    lanes: tuple[UOp, ...],
    fold: Callable[..., UOp],
) -> UOp:
    """The blocks of a cluster, and with them a LOCAL digit (the last one, if there is any).

    Block `owner` gets what each group of lanes of each block has: the lanes of a group send to one
    block each, where there are as many; else its first lane sends to all.
    """
    blocks, axis = rank.arg.size, rank.arg.axis
    groups, in_warp, stride = 1, 1, WARP
    group, lane = ix.ZERO, ix.ZERO
    for r in local:
        in_warp, stride = _in_warp(r, lanes), _stride(r, lanes)
        value = _butterflies(u, value, in_warp, stride)
        groups, group, lane = r.arg.size // in_warp, ix.div(r, in_warp), ix.mod(r, in_warp)
    to_all = UOp(Ops.RANGE, (), RangeArg(axis, blocks, AxisType.UPCAST, "c"))
    spread = in_warp >= blocks
    owner, sends = (lane, ix.below(lane, blocks)) if spread else (to_all, ix.below(lane, 1))
    rest, absent, copies = _beside(value, local, lanes)
    sent = blocks * groups
    size = sent * prod(n for _, n in rest)
    write = ix.flat([(owner, blocks), (rank, blocks), (group, groups), *rest])
    # who reads: each thread all of it, or lane i the values i, i + width, ...
    width = min(in_warp, sent) if sent > IN_LINE and _power_of_two(sent) else 1
    each = sent // width
    kind = AxisType.UPCAST if each <= UNROLLED else AxisType.REDUCE
    again = UOp(Ops.RANGE, (), RangeArg(axis, each, kind, "w")) if each > 1 else ix.ZERO
    read = ix.flat([(rank, blocks), (again, each), (ix.mod(lane, width), width), *rest])
    gate = ix.conj(sends, *absent)
    ranges = copies if spread else [*copies, to_all]
    arg = StageArg(AddrSpace.CLUSTER, blocks * size, True, blocks)
    stage = inherit(UOp(Ops.STAGE, (value, write, read, gate, *ranges), arg), u)
    return _butterflies(u, fold(stage, again) if each > 1 else stage, width, stride)


def _beside(
    value: UOp, walked: list[UOp], lanes: tuple[UOp, ...]
) -> tuple[list[tuple[UOp, int]], list[UOp], list[UOp]]:
    """Beside the LOCAL digits that an exchange walks: (ranges that a value varies with and their
    sizes, that other lanes are 0, register copies).  Neighbouring lanes have neighbouring vectors:
    that is free of bank conflicts."""
    others = [x for x in reversed(lanes) if x not in walked and x in free(value)]
    absent = [ix.below(x, 1) for x in lanes if x not in walked and x not in free(value)]
    copies = upcasts(free(value))
    vectors = [x for x in copies if x.arg.digit == "v"]
    slower = [x for x in copies if x not in vectors]
    return [(x, x.arg.size) for x in (*slower, *others, *vectors)], absent, copies


def _exchange(
    u: UOp, value: UOp, r: UOp, group: UOp, groups: int, leader: UOp, lanes: tuple[UOp, ...]
) -> tuple[UOp, UOp]:
    """(what every group wrote, the range that reads it): one value a group goes through SHARED."""
    rest, absent, copies = _beside(value, [r], lanes)
    kind = AxisType.UPCAST if groups <= UNROLLED else AxisType.REDUCE
    again = UOp(Ops.RANGE, (), RangeArg(r.arg.axis, groups, kind, "w"))
    write, read = ix.flat([(group, groups), *rest]), ix.flat([(again, groups), *rest])
    size = groups * prod(n for _, n in rest)
    gate = ix.conj(leader, *absent)
    stage = UOp(
        Ops.STAGE, (value, write, read, gate, *copies), StageArg(AddrSpace.SHARED, size, True)
    )
    return inherit(stage, u), again


def upcasts(ranges: frozenset[UOp]) -> list[UOp]:
    """UPCAST ranges in the order of a register array: copies first, vector digits last."""
    mine = (r for r in ranges if r.arg.kind is AxisType.UPCAST)
    return sorted(mine, key=lambda r: (r.arg.digit == "v", r.arg.axis, r.arg.digit, r.arg.instance))


def _parts(value: UOp) -> tuple[UOp, ...]:
    if value.op is Ops.TUPLE:
        return value.src
    if (carried := tuple_of(value)) is None:
        return (value,)
    return tuple(UOp(Ops.ITEM, (value,), k) for k in range(len(carried.src)))


def _pack(u: UOp, parts: tuple[UOp, ...]) -> UOp:
    return parts[0] if len(parts) == 1 else inherit(UOp(Ops.TUPLE, parts), u)


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0

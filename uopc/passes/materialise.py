"""Which values live in registers (or a row in shared memory).  MAPPED -> MAPPED.

Here because: after `cooperate` (SHUFFLE is dear too), before `effects`, which gives STAGEs memory.
Before: LOAD(x) used by REDUCE(MAX) and by exp(x - max)
After:  STAGE(REG) of LOAD(x), read by both

One walk from the stores down: nests[u] is the closers whose unrolled nests would evaluate u (ENDs
of the same ranges share one).  A dear value with free UPCAST digits becomes STAGE(REG)
  iff it is a global LOAD (so that all loads are issued before the first use; GPU only), or
  iff two nests would evaluate it in one loop, or outside of all (`passes/nests.py`): its array is
  indexed by UPCAST ranges alone and outlives both.
A staged value is itself a closer for what is below it: x dies as exp(x) is born.  In a loop where
threads meet, single elements are staged too: `effects` loads them an iteration ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from uopc.dtype import AddrSpace, dtypes
from uopc.kernel import UNASKED, Fired
from uopc.passes.bind import hardware_ranges
from uopc.passes.closers import serials as serials  # also for those who look for it here
from uopc.passes.cooperate import upcasts
from uopc.passes.nests import Loop, nests, places
from uopc.passes.overwrites import InPlace
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, inherit, prod, toposort
from uopc.uop.ops import DEAR, AxisType, Ops, StageArg

CLOSERS = frozenset((Ops.REDUCE, Ops.SCAN, Ops.STAGE, Ops.END))


def materialise(root: UOp, keep: str, batch_loads: bool, fired: Fired = UNASKED) -> UOp:
    """keep: Opts.keep; batch_loads: global loads always get a register array of their own."""
    order = toposort(root)
    users: dict[UOp, dict[UOp, None]] = {u: {} for u in order}
    staged: dict[UOp, AddrSpace] = {}
    lanes = hardware_ranges(root, AxisType.LOCAL)
    same: dict[frozenset[UOp], UOp] = {}  # ENDs of the same ranges are one nest
    where = _Where(root, batch_loads)
    early = root.arg is None or root.arg.early
    for u in reversed(order):
        closer = same.setdefault(frozenset(u.src[1:]), u) if u.op is Ops.END else u
        closes = u.op in CLOSERS
        if not closes and u.op in DEAR and u.dtype is not dtypes.void:
            space = _space(u, where.loops(u, users[u]), keep, batch_loads, lanes)
            if space is None and batch_loads and early and _is_load(u) and where.meets(u, users[u]):
                space = AddrSpace.REG  # one element, which is loaded an iteration ahead
                fired.add("load-ahead")
            elif space is not None:
                fired.add(_rule(u, space, batch_loads))
            if space is not None:
                staged[u] = space
                where.stage(u, users[u])
                closes = True
        for s in u.src:
            if closes:
                users[s][closer] = None
            else:
                users[s].update(users[u])
    memo: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([memo[s] for s in u.src])
        new = u if src == u.src else ix.remake(u, src)
        if u in staged:
            copies = _contiguous_last(u, upcasts(free(u)))
            if copies or staged[u] is AddrSpace.REG:
                at = ix.flat((r, r.arg.size) for r in copies)
                arg = StageArg(AddrSpace.REG, prod(r.arg.size for r in copies))
                new = inherit(UOp(Ops.STAGE, (new, at, at, ix.TRUE, *copies), arg), u)
            if staged[u] is AddrSpace.SHARED:
                new = _row(u, new, copies, lanes)
        memo[u] = new
    return memo[root]


class _Where:
    """The loops in which values are wanted.  Planned when somebody asks: most kernels have none."""

    def __init__(self, root: UOp, gpu: bool) -> None:
        self.root, self.gpu = root, gpu
        self._places: dict[UOp, Collection[Loop]] | None = None
        self._staged: dict[UOp, Collection[Loop]] = {}

    def loops(self, u: UOp, users: Collection[UOp]) -> list[int]:
        """How many of the users want a value, for each loop that remakes it."""
        ranges = frozenset(serials(free(u)))
        if not ranges:
            return [len(users)]
        found: Counter[Loop] = Counter()
        for user in users:
            found.update({loop.home(ranges) for loop in self._of(user)})
        return list(found.values())

    def meets(self, u: UOp, users: Collection[UOp]) -> bool:
        """Do threads meet in a loop that remakes a value?"""
        ranges = frozenset(serials(free(u)))
        if not ranges:
            return False
        return any(loop.home(ranges).meets for user in users for loop in self._of(user))

    def stage(self, u: UOp, users: Collection[UOp]) -> None:
        """A value is a closer from now on."""
        ranges = frozenset(serials(free(u)))
        if ranges:
            self._staged[u] = {loop.home(ranges) for user in users for loop in self._of(user)}

    def _of(self, user: UOp) -> Collection[Loop]:
        """The loops in which a closer evaluates its value."""
        if self._places is None:
            self._places = {}
            top = nests(self.root, self.gpu, InPlace(toposort(self.root)))
            self._places |= places(top)
        if user in self._staged:
            return self._staged[user]
        return self._places[user.src[0] if user.op is Ops.END else user]


def _space(
    u: UOp, wanted: Sequence[int], keep: str, batch_loads: bool, lanes: tuple[UOp, ...]
) -> AddrSpace | None:
    """wanted: by how many nests, in each loop that remakes it."""
    load = _is_load(u)
    several = len(wanted) > 1
    if load and several and keep == "shared" and all(r in free(u) for r in lanes):
        return AddrSpace.SHARED  # each thread has elements of its own
    if not upcasts(free(u)):
        return None  # a variable does, as it stands
    if load and (batch_loads or serials(free(u))):
        return AddrSpace.REG if batch_loads else None  # in a loop, what was just loaded is in L1
    return AddrSpace.REG if keep != "none" and max(wanted, default=0) > 1 else None


def _rule(u: UOp, space: AddrSpace, batch_loads: bool) -> str:
    """What made `_space` say so."""
    if space is AddrSpace.SHARED:
        return "row-in-shared"
    return "load-before-use" if _is_load(u) and batch_loads else "dear-value-for-several"


def _is_load(u: UOp) -> bool:
    return u.op is Ops.LOAD and addrspace(u.src[0]) is AddrSpace.GLOBAL


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

"""Every node gets its one place in a tree of scopes.  LOOPS -> PROGRAM.

The last pass.  Every scope (an in-thread RANGE, an IF, a ROLE) is opened once, so a node belongs in
the innermost one among those it has free.  No priorities and no search: one depth-first order;
statements fall into the bucket of their place, a finished nest falls into the bucket around it.
Hoisting, sharing of common values and nesting all follow.  The only freedom used: with
LaunchArg.early, fills of global loads that wait for no barrier and no shuffle stand first, so that
they fly during the reductions.  Before them a block of a cluster says that it has started.

Inside an IF stands what comes after it (`AFTER`); a value that does not is done before the IF, for
all lanes.  So arithmetic moves out, and a LOAD that only some lanes may do names the IF.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from uopc.dtype import AddrSpace
from uopc.errors import SpecError
from uopc.kernel import Declare, Do, Item, Let, Param, ProgramTree, Scope
from uopc.passes.bind import bind
from uopc.passes.vectorise import widest
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, memory, prod, toposort, where_from
from uopc.uop.ops import EFFECTS, WARP_VALUES, WHOLE_KERNEL, BarrierScope, Engine, Ops
from uopc.uop.order import in_order, overtakes, written
from uopc.uop.spec_kernel import is_of_cluster
from uopc.uop.text import scope_text

Place = UOp | None  # the opener of the innermost scope, None outside all of them
Bucket = list[Let | Do | UOp]  # a UOp is an opener: the scope whose own bucket stands here

_NEVER_NAMED = frozenset(
    (
        *(Ops.CONST, Ops.BUFFER, Ops.ALLOC, Ops.TENSORMAP, Ops.INDEX),
        *(Ops.AFTER, Ops.RANGE, Ops.IF, Ops.ROLE, Ops.SINK, Ops.END),
    )
)
_SPACES = (AddrSpace.MBARRIER, AddrSpace.CLUSTER, AddrSpace.SHARED, AddrSpace.REG)
_DONE = EFFECTS - {Ops.ATOMIC}  # effects that are nothing else
_WAITS = WARP_VALUES | (EFFECTS - {Ops.STORE})  # what loads that are issued first never stand after
TENSOR_MAP_BYTES = 16  # alignment of what a tensor map views (CUDA driver API, tensor map encoding)
DEEPEST_EXPRESSION = 12  # nested ops in one line of text; deeper values get a name


def linearize(root: UOp) -> ProgramTree:
    """The tree of a LOOPS kernel.  Raises SpecError where ranges are not nested loops."""
    loops = _Loops.of(root)
    order = _early_first(root, loops)
    where = {u: loops.place(u) for u in order}
    inline = _inline(order, where)
    inline -= _overtaken(order, inline)
    buckets: dict[Place, Bucket] = {None: [], **{r: [] for r in loops.depth}}
    for u in order:
        if u.op is Ops.END:
            place = where[u]
            for r in u.src[1:]:
                if not _whole_kernel(r):
                    buckets[place].append(r)
                    place = r
        elif u.op in _DONE:
            buckets[where[u]].append(Do(u))
        elif u not in inline:
            buckets[where[u]].append(Let(u))
    declared = _declarations(order, where, loops)
    items = _scope_items(None, buckets, declared)
    return ProgramTree(items, parameters(root), bind(root), root)


def _called(scope: UOp) -> str:
    name = scope_text(scope)
    return f"range {name}" if scope.op is Ops.RANGE else name


def _whole_kernel(scope: UOp) -> bool:
    return scope.op is Ops.RANGE and scope.arg.kind in WHOLE_KERNEL


def written_memories(order: Iterable[UOp]) -> set[UOp]:
    """Memories that some effect writes."""
    return {m for u in order if (m := written(u)) is not None}


def _aligned(u: UOp) -> Iterator[tuple[UOp, int]]:
    """Parameters that a node wants aligned, and to how many bytes."""
    if n := widest(u):
        yield memory(u.src[0]), n
    elif u.op is Ops.TENSORMAP:
        yield memory(u.src[0]), TENSOR_MAP_BYTES
    elif u.op is Ops.COPY and u.arg.engine is Engine.CP_ASYNC:
        yield memory(u.src[1]), u.arg.width * u.src[1].dtype.itemsize


def parameters(root: UOp) -> tuple[Param, ...]:
    """The kernel's parameters, by slot."""
    order = toposort(root)
    changed = written_memories(order)
    align: dict[UOp, int] = {}
    for u in order:
        for m, n in _aligned(u):
            align[m] = max(n, align.get(m, 1))
    params = sorted((u for u in order if u.op is Ops.BUFFER), key=lambda u: u.arg.slot)
    return tuple(
        Param(
            p.arg.slot,
            p.dtype,
            p.arg.shape[1] if p.arg.bundle else prod(p.arg.shape),
            p in changed,
            p.arg.shape == (),
            align.get(p, p.dtype.itemsize),
            p.arg.shape[0] if p.arg.bundle else 0,
        )
        for p in params
    )


@dataclass
class _Loops:
    """Depth and parent of every scope."""

    depth: dict[UOp, int] = field(default_factory=dict)
    parent: dict[UOp, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, root: UOp) -> _Loops:
        loops = cls()
        for u in reversed(toposort(root)):  # outer closers come later in the order: known first
            if u.op is not Ops.END:
                continue
            outer = loops.place(u)
            for r in u.src[1:]:
                if _whole_kernel(r):
                    continue
                if r in loops.depth:
                    raise SpecError(
                        f"{_called(r)} is closed by two ENDs ({where_from(r)}); "
                        "each loop opens its own"
                    )
                loops.parent[r] = outer
                loops.depth[r] = 0 if outer is None else loops.depth[outer] + 1
                outer = r
        return loops

    def place(self, u: UOp) -> Place:
        """The innermost scope among those that u has free."""
        best: Place = None
        for r in free(u):
            if _whole_kernel(r) or r is u:  # an opener stands outside what it opens
                continue
            if r not in self.depth:
                raise SpecError(
                    f"{u.op} ({where_from(u)}) mentions {_called(r)}, which no END closes around it"
                )
            if best is None or self.depth[r] > self.depth[best]:
                best = r
        return best

    def chain(self, place: Place) -> list[Place]:
        """The loops around a place, innermost first, then None."""
        out: list[Place] = []
        while place is not None:
            out.append(place)
            place = self.parent[place]
        return [*out, None]


def _early_first(root: UOp, loops: _Loops) -> list[UOp]:
    order = toposort(root)
    waits: set[UOp] = set()
    early = [u for u in order if is_of_cluster(u) and u.arg.scope is BarrierScope.CLUSTER_ARRIVE]
    early = [u for u in early if loops.place(u) is None]
    for u in order if root.arg is None or root.arg.early else ():
        if u.op in _WAITS or any(s in waits for s in u.src):
            waits.add(u)
        elif u.op is Ops.END and loops.place(u) is None and _fills_registers(u.src[0]):
            early.append(u)
    return in_order(*early, root)


def _fills_registers(store: UOp) -> bool:
    if store.op is not Ops.STORE or store.src[1].op is not Ops.LOAD:
        return False
    return (
        addrspace(store.src[0]) is AddrSpace.REG
        and addrspace(store.src[1].src[0]) is AddrSpace.GLOBAL
    )


def _inline(order: list[UOp], where: dict[UOp, Place]) -> set[UOp]:
    """Values that stand inside the text of their one user."""
    uses: dict[UOp, int] = {}
    user: dict[UOp, UOp] = {}
    shuffled: set[UOp] = set()
    changed = written_memories(order)
    for u in order:
        for s in u.src:
            uses[s] = uses.get(s, 0) + 1
            user[s] = u
        if u.op in WARP_VALUES:
            shuffled.add(_unordered(u.src[0]))
    inline: set[UOp] = set()
    depth: dict[UOp, int] = {}
    for u in order:
        below = max((depth.get(s, 0) for s in u.src), default=0)
        if u.op in _NEVER_NAMED:
            inline.add(u)
            depth[u] = below
            continue
        if u.op in EFFECTS or u.op in WARP_VALUES or u in shuffled:
            continue
        if u.op is Ops.LOAD:
            m = memory(u.src[0])
            other_threads = addrspace(u.src[0]) is not AddrSpace.REG and m in changed
            if u.arg is not None:
                inline.add(u)
                continue
            if other_threads:
                continue
        last = user.get(u)
        while last is not None and last.op in (
            Ops.INDEX,
            Ops.AFTER,
        ):  # an offset belongs to its access
            if uses[last] != 1:
                break
            last = user.get(last)
        if uses.get(u) != 1 or last is None:
            continue
        if where[u] == where[last] and below + 1 <= DEEPEST_EXPRESSION:
            inline.add(u)
            depth[u] = below + 1
    return inline


def _unordered(u: UOp) -> UOp:
    """The value itself, not what it comes after."""
    while u.op is Ops.AFTER:
        u = u.src[0]
    return u


def _overtaken(order: list[UOp], inline: set[UOp]) -> set[UOp]:
    """LOADs that must not move to the text of their users: an effect between changes the memory.

    Raises SpecError for a wide one: it has no name that could stand for it.
    """
    position = {u: n for n, u in enumerate(order)}
    closed = {r: n for u, n in position.items() if u.op is Ops.END for r in u.src[1:]}
    effects = [u for u in order if u.op in EFFECTS]
    overtaking = {m: [e for e in effects if overtakes(e, m)] for m in written_memories(effects)}
    last: dict[UOp, int] = {}  # where the text that a node stands in is executed
    found: set[UOp] = set()
    for u in reversed(order):
        at = closed.get(u, position[u])  # an opener's text stands where its scope does
        if u in inline and u not in closed:
            at = last.get(u, at)
        if u.op is Ops.LOAD and u in inline and (m := memory(u.src[0])) in overtaking:
            after = bisect_right(overtaking[m], position[u], key=position.__getitem__)
            first = overtaking[m][after] if after < len(overtaking[m]) else None
            if first is not None and position[first] < at:
                if u.arg is not None:
                    raise _late_wide_load(u, first)
                found.add(u)
                at = position[u]
        for s in u.src:
            last[s] = max(last.get(s, -1), at)
    return found


def _late_wide_load(load: UOp, effect: UOp) -> SpecError:
    return SpecError(
        f"LOAD ({where_from(load)}) of {load.arg.width} elements is stored only after the "
        f"{effect.op} ({where_from(effect)}) that comes after it. Store it before, into registers "
        "for instance: a wide value has no name that could keep it"
    )


_COVERING = (Ops.FENCE, Ops.WAITG, Ops.COMMIT)  # their sources may be memories as such


def _touched(u: UOp) -> Iterator[UOp]:
    """The allocations that a node accesses, or whose names stand in its text."""
    if u.op is Ops.INDEX:
        return
    for s in u.src:
        if s.op is Ops.INDEX or u.op in _COVERING:
            m = memory(s)
            if m.op is Ops.ALLOC:
                yield m


def _declarations(
    order: list[UOp], where: dict[UOp, Place], loops: _Loops
) -> dict[Place, list[Declare]]:
    """Each ALLOC in the innermost scope around all that touches it and in which it begins anew.

    It begins anew in the loops that its first version names, unless it is read first: then it may
    hold what the iteration before has left.  What is the block's stands outside all scopes.
    """
    home: dict[UOp, Place] = {}
    read_first: set[UOp] = set()
    anew: set[tuple[UOp, Place]] = set()
    for u in order:
        if u.op is Ops.AFTER and u.src[0].op is Ops.ALLOC:
            anew.update((u.src[0], r) for r in u.src[1:])
        for m in _touched(u):
            if m not in home:
                home[m] = where[u]
                if u.op is Ops.LOAD:
                    read_first.add(m)
            else:
                around = loops.chain(home[m])
                home[m] = next(p for p in loops.chain(where[u]) if p in around)
    out: dict[Place, list[Declare]] = {}
    for m in sorted(home, key=lambda m: (_SPACES.index(m.arg.addrspace), m.arg.slot)):
        place = home[m] if m.arg.addrspace is AddrSpace.REG and m not in read_first else None
        while place is not None and (m, place) not in anew:
            place = loops.parent[place]
        out.setdefault(place, []).append(Declare(m))
    return out


def _scope_items(
    place: Place, buckets: dict[Place, Bucket], declared: dict[Place, list[Declare]]
) -> tuple[Item, ...]:
    items: list[Item] = list(declared.get(place, ()))
    for entry in buckets[place]:
        items.append(
            Scope(entry, _scope_items(entry, buckets, declared))
            if isinstance(entry, UOp)
            else entry
        )
    return tuple(items)

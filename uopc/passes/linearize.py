"""Every node gets its one place in a tree of scopes.  LOOPS -> PROGRAM.

The last pass.  Every in-thread RANGE is opened once, so a node belongs in the innermost loop among
its free ranges.  No priorities and no search: one depth-first order; statements fall into the
bucket of their place, a finished nest falls into the bucket around it.  Hoisting, sharing of common
values and nesting all follow.  The only freedom used: with LaunchArg.early, fills of global loads
that wait for no barrier and no shuffle stand first, so that they fly during the reductions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from uopc.dtype import AddrSpace
from uopc.errors import SpecError
from uopc.kernel import Declare, Do, Item, Let, Param, ProgramTree, Scope
from uopc.passes.bind import bind
from uopc.passes.vectorise import widest
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, memory, prod, toposort, where_from
from uopc.uop.ops import WHOLE_KERNEL, Ops

Place = UOp | None  # the RANGE of the innermost loop, None outside all loops
Bucket = list[Let | Do | UOp]  # a UOp is a RANGE: the loop whose own bucket stands here

_NEVER_NAMED = frozenset(
    (Ops.CONST, Ops.RANGE, Ops.BUFFER, Ops.ALLOC, Ops.AFTER, Ops.INDEX, Ops.SINK, Ops.END)
)
DEEPEST_EXPRESSION = 12  # nested ops in one line of text; deeper values get a name


def linearize(root: UOp) -> ProgramTree:
    """The tree of a LOOPS kernel.  Raises SpecError where ranges are not nested loops."""
    loops = _Loops.of(root)
    order = _early_first(root, loops) if root.arg is None or root.arg.early else toposort(root)
    where = {u: loops.place(u) for u in order}
    inline = _inline(order, where)
    buckets: dict[Place, Bucket] = {None: [], **{r: [] for r in loops.depth}}
    for u in order:
        if u.op is Ops.END:
            place = where[u]
            for r in u.src[1:]:
                if r.arg.kind not in WHOLE_KERNEL:
                    buckets[place].append(r)
                    place = r
        elif u.op in (Ops.STORE, Ops.BARRIER):
            buckets[where[u]].append(Do(u))
        elif u not in inline:
            buckets[where[u]].append(Let(u))
    declared = _declarations(order, where, loops)
    items = _scope_items(None, buckets, declared)
    return ProgramTree(items, parameters(root), bind(root), root)


def parameters(root: UOp) -> tuple[Param, ...]:
    """The kernel's parameters, by slot."""
    order = toposort(root)
    written = {memory(u.src[0]) for u in order if u.op is Ops.STORE}
    align: dict[UOp, int] = {}
    for u in order:
        if n := widest(u):
            m = memory(u.src[0])
            align[m] = max(n, align.get(m, 1))
    params = sorted((u for u in order if u.op is Ops.BUFFER), key=lambda u: u.arg.slot)
    return tuple(
        Param(
            p.arg.slot,
            p.dtype,
            prod(p.arg.shape),
            p in written,
            p.arg.shape == (),
            align.get(p, p.dtype.itemsize),
        )
        for p in params
    )


@dataclass
class _Loops:
    """Depth and parent of every in-thread loop."""

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
                if r.arg.kind in WHOLE_KERNEL:
                    continue
                if r in loops.depth:
                    raise SpecError(
                        f"range {r.arg} is closed by two ENDs ({where_from(r)}); "
                        "each loop opens its own"
                    )
                loops.parent[r] = outer
                loops.depth[r] = 0 if outer is None else loops.depth[outer] + 1
                outer = r
        return loops

    def place(self, u: UOp) -> Place:
        """The innermost loop among the free ranges of u."""
        best: Place = None
        for r in free(u):
            if r.arg.kind in WHOLE_KERNEL:
                continue
            if r not in self.depth:
                if u.op is Ops.RANGE:
                    return None
                raise SpecError(
                    f"{u.op} ({where_from(u)}) mentions range {r.arg}, "
                    "which no END closes around it"
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
    early = []
    for u in order:
        if u.op in (Ops.SHUFFLE, Ops.BARRIER) or any(s in waits for s in u.src):
            waits.add(u)
        elif u.op is Ops.END and loops.place(u) is None and _fills_registers(u.src[0]):
            early.append(u)
    return toposort(*early, root) if early else order


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
    written = {memory(u.src[0]) for u in order if u.op is Ops.STORE}
    for u in order:
        for s in u.src:
            uses[s] = uses.get(s, 0) + 1
            user[s] = u
        if u.op is Ops.SHUFFLE:
            shuffled.add(u.src[0])
    inline: set[UOp] = set()
    depth: dict[UOp, int] = {}
    for u in order:
        below = max((depth.get(s, 0) for s in u.src), default=0)
        if u.op in _NEVER_NAMED:
            inline.add(u)
            depth[u] = below
            continue
        if u.op in (Ops.STORE, Ops.BARRIER, Ops.SHUFFLE) or u in shuffled:
            continue
        if u.op is Ops.LOAD:
            m = memory(u.src[0])
            other_threads = addrspace(u.src[0]) is not AddrSpace.REG and m in written
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


def _declarations(
    order: list[UOp], where: dict[UOp, Place], loops: _Loops
) -> dict[Place, list[Declare]]:
    """Each ALLOC in the innermost scope around all that touches it and in which it begins anew.

    It begins anew in the loops that its first version names; SHARED stands outside all loops.
    """
    home: dict[UOp, Place] = {}
    anew: set[tuple[UOp, Place]] = set()
    for u in order:
        if u.op is Ops.AFTER and u.src[0].op is Ops.ALLOC:
            anew.update((u.src[0], r) for r in u.src[1:])
        if u.op not in (Ops.LOAD, Ops.STORE) or (m := memory(u.src[0])).op is not Ops.ALLOC:
            continue
        if m not in home:
            home[m] = where[u]
        else:
            around = loops.chain(home[m])
            home[m] = next(p for p in loops.chain(where[u]) if p in around)
    out: dict[Place, list[Declare]] = {}
    for m in sorted(home, key=lambda m: (m.arg.addrspace is not AddrSpace.SHARED, m.arg.slot)):
        place = None if m.arg.addrspace is AddrSpace.SHARED else home[m]
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

"""Cut a PROGRAM where lanes of a warp or threads of a block meet; say what lives across the cuts.

For renderings that run a warp as loops over its lanes.  A *region* is a run of items with no
meeting inside: one loop over the lanes does it.  A *wide* part is one op that the warp does as a
whole.  A loop that contains one is *split*: every lane is in the same iteration, so its variable
is the warp's.  A condition (or role) that contains one is a *branch*: the warp goes in with those
lanes for which it holds.

The whole liveness rule: a value or register array that two parts mention is *kept* in the warp's
state.  Values that are cheap and depend on ranges alone are written again where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from uopc.dtype import AddrSpace
from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.render.operands import operands
from uopc.render.written import written_first
from uopc.uop.node import UOp, memory
from uopc.uop.ops import DEAR, WARP_VALUES, Engine, Ops

#: effects that a warp does as a whole; of COPY only the bulk ones
_WIDE = frozenset(
    (
        *(Ops.BARRIER, Ops.WAIT, Ops.COMMIT, Ops.WAITG, Ops.FENCE, Ops.MBAR_INIT, Ops.ARRIVE),
        *(Ops.MMA, Ops.LDMATRIX, Ops.STMATRIX),
    )
)
_MATRIX = frozenset((Ops.MMA, Ops.LDMATRIX, Ops.STMATRIX))


@dataclass(frozen=True, eq=False)
class Region:
    """Items that one loop over the lanes does.  inside: the RANGE of the split loop around them."""

    items: tuple[Item, ...]
    inside: UOp | None

    def walk(self) -> Iterator[Item]:
        """Every item, outer before inner, in order."""
        stack = list(reversed(self.items))
        while stack:
            item = stack.pop()
            yield item
            if isinstance(item, Scope):
                stack.extend(reversed(item.items))


@dataclass(frozen=True, eq=False)
class Wide:
    """One op of a whole warp: an effect, or a value that its lanes make together."""

    op: UOp
    inside: UOp | None


@dataclass(frozen=True, eq=False)
class Split:
    """A loop with a meeting in its body."""

    opener: UOp
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """An IF or a ROLE with a meeting inside."""

    opener: UOp
    parts: tuple[Part, ...]


Part: TypeAlias = Region | Wide | Split | Branch
Leaf: TypeAlias = Region | Wide | Branch  # what mentions something itself


@dataclass(frozen=True)
class Regions:
    """A PROGRAM in parts, and what each part needs.

    Attributes: parts in execution order; home, the part of each named value, in order; declared,
    the region of each register array's declaration; kept, the values and arrays of the warp's
    state; again, values that are recomputed; needs, what a part's text mentions (names, ranges,
    memories), a branch's being that of its condition.
    """

    parts: tuple[Part, ...]
    home: dict[UOp, Leaf]
    declared: dict[UOp, Leaf]
    kept: frozenset[UOp]
    again: frozenset[UOp]
    needs: dict[Leaf, set[UOp]]


def is_meeting(item: Item) -> bool:
    """Do lanes of a warp, or threads of a block, meet here, or act as one?"""
    if isinstance(item, Let):
        return item.value.op in WARP_VALUES
    if not isinstance(item, Do):
        return False
    u = item.effect
    return u.op in _WIDE or (u.op is Ops.COPY and u.arg.engine is Engine.BULK)


def cut(program: ProgramTree) -> Regions:
    """The regions of a program."""
    parts = tuple(_parts(program.items, None))
    leaves = list(_leaves(parts))
    home: dict[UOp, Leaf] = {}
    declared: dict[UOp, Leaf] = {}
    for leaf in leaves:
        for item in _items(leaf):
            if isinstance(item, Let):
                home[item.value] = leaf
            elif isinstance(item, Declare):
                declared[item.alloc] = leaf
    mentions = {u: _mentions((u,), home) for u in home}
    again: set[UOp] = set()
    for u in home:  # in order: what a value mentions comes before it
        if _cheap(u) and all(x in again if x in home else _cheap(x) for x in mentions[u]):
            again.add(u)
    needs = {leaf: _needs(leaf, home, mentions, again) for leaf in leaves}
    kept = {
        x for p in leaves for x in needs[p] if x in home and x not in again and home[x] is not p
    }
    kept |= {u for u, leaf in home.items() if isinstance(leaf, Wide)}
    kept |= _arrays_kept(leaves, declared, needs)
    return Regions(parts, home, declared, frozenset(kept), frozenset(again), needs)


def _parts(items: Iterable[Item], inside: UOp | None) -> Iterator[Part]:
    run: list[Item] = []
    for item in items:
        if isinstance(item, Declare) and item.alloc.arg.addrspace is not AddrSpace.REG:
            continue  # the block's, not a lane's
        if not _meets(item):
            run.append(item)
            continue
        if run:
            yield Region(tuple(run), inside)
            run = []
        if isinstance(item, Scope):
            yield _split(item, inside)
        elif isinstance(item, Let):
            yield Wide(item.value, inside)
        elif isinstance(item, Do):
            yield Wide(item.effect, inside)
    if run:
        yield Region(tuple(run), inside)


def _split(scope: Scope, inside: UOp | None) -> Part:
    if scope.opener.op is Ops.RANGE:
        return Split(scope.opener, tuple(_parts(scope.items, scope.opener)))
    return Branch(scope.opener, tuple(_parts(scope.items, inside)))


def _meets(item: Item) -> bool:
    return any(map(_meets, item.items)) if isinstance(item, Scope) else is_meeting(item)


def _leaves(parts: Iterable[Part]) -> Iterator[Leaf]:
    for part in parts:
        if not isinstance(part, Split):
            yield part
        if isinstance(part, (Split, Branch)):
            yield from _leaves(part.parts)


def _items(leaf: Leaf) -> Iterator[Item]:
    if isinstance(leaf, Region):
        yield from leaf.walk()
    elif isinstance(leaf, Wide):
        yield Let(leaf.op) if leaf.op.op in WARP_VALUES else Do(leaf.op)


def _needs(
    leaf: Leaf, home: dict[UOp, Leaf], mentions: dict[UOp, set[UOp]], again: set[UOp]
) -> set[UOp]:
    """What a part's text mentions, through the values that are written again in it."""
    found: set[UOp] = set()
    if isinstance(leaf, Branch):
        found |= _mentions((leaf.opener,), home)
    for item in _items(leaf):
        if isinstance(item, Do):
            found |= _mentions((item.effect,), home)
        elif isinstance(item, Scope):
            found |= _mentions((item.opener,), home)
        elif isinstance(item, Let) and item.value not in again:
            found |= mentions[item.value]
    todo = [x for x in found if x in again]
    while todo:
        new = mentions[todo.pop()] - found
        found |= new
        todo += [x for x in new if x in again]
    return found


def _mentions(roots: Iterable[UOp], named: dict[UOp, Leaf]) -> set[UOp]:
    """Nodes in the text of these roots: down to names, never into what only orders effects."""
    found: set[UOp] = set()
    stack = [s for u in roots for s in operands(u)]
    while stack:
        u = stack.pop()
        if u not in found:
            found.add(u)
            if u not in named:
                stack.extend(operands(u))
    return found


def _cheap(u: UOp) -> bool:
    """Integer work on ranges and constants, and the table of a bundle."""
    if u.op is Ops.SEGMENT or (u.op is Ops.BUFFER and u.arg.bundle):
        return True
    return u.op not in DEAR and u.op not in (Ops.ALLOC, Ops.INDEX) and not u.dtype.is_float


def _arrays_kept(
    leaves: list[Leaf], declared: dict[UOp, Leaf], needs: dict[Leaf, set[UOp]]
) -> set[UOp]:
    """Register arrays that outlive a region: two parts touch them, one of the whole warp does, or a
    split loop comes round to one."""
    kept = {
        memory(s)
        for leaf in leaves
        if isinstance(leaf, Wide) and leaf.op.op in _MATRIX
        for s in leaf.op.src
        if s.op is Ops.INDEX and memory(s).arg.addrspace is AddrSpace.REG
    }
    for m, home in declared.items():
        touching = [p for p in leaves if m in needs[p]]
        if touching and not _is_local(m, home, touching):
            kept.add(m)
    return kept


def _is_local(m: UOp, home: Leaf, touching: list[Leaf]) -> bool:
    """Does an array live in one region alone, and no longer than one pass through it?"""
    region = touching[0]
    if len(touching) > 1 or not isinstance(region, Region) or not isinstance(home, Region):
        return False
    return region.inside is home.inside or written_first(m, region.items)


__all__ = ["Branch", "Part", "Region", "Regions", "Split", "Wide", "cut", "is_meeting"]

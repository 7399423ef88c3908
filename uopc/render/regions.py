"""Cut a PROGRAM where threads of a warp or block meet, and say what must live across the cuts.

For renderings that run a warp as loops over its lanes.  A *region* is a run of items with no
meeting inside, or one SHUFFLE: one loop over the lanes does it.  A loop that contains a meeting is
*split*: every lane of the warp is in the same iteration, so its variable is the warp's.

The whole liveness rule: a value or register array that two regions mention is *kept* in the warp's
state.  Values that are cheap and depend on ranges alone are written again where they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from uopc.dtype import AddrSpace
from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.uop.node import UOp
from uopc.uop.ops import DEAR, Ops


@dataclass(frozen=True, eq=False)
class Region:
    """Items that one loop over the lanes does.  inside: the RANGE of the split loop around them."""

    items: tuple[Item, ...]
    inside: UOp | None

    @property
    def shuffle(self) -> UOp | None:
        """The SHUFFLE that this region is, if it is one."""
        first = self.items[0]
        alone = isinstance(first, Let) and first.value.op is Ops.SHUFFLE
        return first.value if isinstance(first, Let) and alone else None

    def walk(self) -> Iterator[Item]:
        """Every item, outer before inner, in order."""
        stack = list(reversed(self.items))
        while stack:
            item = stack.pop()
            yield item
            if isinstance(item, Scope):
                stack.extend(reversed(item.items))


@dataclass(frozen=True, eq=False)
class Split:
    """A loop with a meeting in its body."""

    opener: UOp
    parts: tuple[Part, ...]


Part: TypeAlias = Region | Split | Do  # a Do is a BARRIER


@dataclass(frozen=True)
class Regions:
    """A PROGRAM in parts, and what each region needs.

    Attributes: parts in execution order; home, the region of each named value, in order; declared,
    the region of each register array's declaration; kept, the values and arrays of the warp's
    state; again, values that are recomputed; needs, what a region's text mentions (names, ranges,
    memories).
    """

    parts: tuple[Part, ...]
    home: dict[UOp, Region]
    declared: dict[UOp, Region]
    kept: frozenset[UOp]
    again: frozenset[UOp]
    needs: dict[Region, set[UOp]]


def is_meeting(item: Item) -> bool:
    """Do lanes of a warp, or threads of a block, meet here?"""
    if isinstance(item, Let):
        return item.value.op is Ops.SHUFFLE
    return isinstance(item, Do) and item.effect.op is Ops.BARRIER


def cut(program: ProgramTree) -> Regions:
    """The regions of a program."""
    parts = tuple(_parts(program.items, None))
    regions = list(_regions(parts))
    home: dict[UOp, Region] = {}
    declared: dict[UOp, Region] = {}
    for region in regions:
        for item in region.walk():
            if isinstance(item, Let):
                home[item.value] = region
            elif isinstance(item, Declare):
                declared[item.alloc] = region
    mentions = {u: _mentions((u,), home) for u in home}
    again: set[UOp] = set()
    for u in home:  # in order: what a value mentions comes before it
        if _cheap(u) and all(x in again if x in home else _cheap(x) for x in mentions[u]):
            again.add(u)
    needs = {region: _needs(region, home, mentions, again) for region in regions}
    kept = {
        x for r in regions for x in needs[r] if x in home and x not in again and home[x] is not r
    }
    kept |= _arrays_kept(regions, declared, needs)
    return Regions(parts, home, declared, frozenset(kept), frozenset(again), needs)


def _parts(items: Iterable[Item], inside: UOp | None) -> Iterator[Part]:
    run: list[Item] = []
    for item in items:
        if isinstance(item, Declare) and item.alloc.arg.addrspace is AddrSpace.SHARED:
            continue  # the block's, not a lane's
        if not _meets(item):
            run.append(item)
            continue
        if run:
            yield Region(tuple(run), inside)
            run = []
        if isinstance(item, Scope):
            yield Split(item.opener, tuple(_parts(item.items, item.opener)))
        elif isinstance(item, Do):
            yield item
        else:
            yield Region((item,), inside)
    if run:
        yield Region(tuple(run), inside)


def _meets(item: Item) -> bool:
    return any(map(_meets, item.items)) if isinstance(item, Scope) else is_meeting(item)


def _regions(parts: Iterable[Part]) -> Iterator[Region]:
    for part in parts:
        if isinstance(part, Region):
            yield part
        elif isinstance(part, Split):
            yield from _regions(part.parts)


def _needs(
    region: Region, home: dict[UOp, Region], mentions: dict[UOp, set[UOp]], again: set[UOp]
) -> set[UOp]:
    """What the region's text mentions, through the values that are written again in it."""
    found: set[UOp] = set()
    for item in region.walk():
        if isinstance(item, Do):
            found |= _mentions((item.effect,), home)
        elif isinstance(item, Let) and item.value not in again:
            found |= mentions[item.value]
    todo = [x for x in found if x in again]
    while todo:
        new = mentions[todo.pop()] - found
        found |= new
        todo += [x for x in new if x in again]
    return found


def _mentions(roots: Iterable[UOp], named: dict[UOp, Region]) -> set[UOp]:
    """Nodes in the text of these roots: down to names, never into what only orders effects."""
    found: set[UOp] = set()
    stack = [s for u in roots for s in _operands(u)]
    while stack:
        u = stack.pop()
        if u not in found:
            found.add(u)
            if u not in named:
                stack.extend(_operands(u))
    return found


def _operands(u: UOp) -> tuple[UOp, ...]:
    return u.src[:1] if u.op is Ops.AFTER else u.src


def _cheap(u: UOp) -> bool:
    """Integer work on ranges and constants."""
    return u.op not in DEAR and u.op not in (Ops.ALLOC, Ops.INDEX) and not u.dtype.is_float


def _arrays_kept(
    regions: list[Region], declared: dict[UOp, Region], needs: dict[Region, set[UOp]]
) -> set[UOp]:
    """Register arrays that outlive a region: two touch them, or a split loop comes round to one."""
    kept = set()
    for m, home in declared.items():
        touching = [r for r in regions if m in needs[r]]
        if len(touching) > 1 or any(r.inside is not home.inside for r in touching):
            kept.add(m)
    return kept


__all__ = ["Part", "Region", "Regions", "Split", "cut", "is_meeting"]

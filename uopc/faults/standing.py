"""Where an access or effect stands in a kernel's tree: scopes around it, and what lies between two.

A report needs it to say where a barrier is missing: the two accesses of a race meet in one
iteration of the loops around both, or across the end of one of those loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from uopc.kernel import Declare, Item, Let, ProgramTree, Scope
from uopc.uop.node import UOp
from uopc.uop.ops import SERIAL, Ops


@dataclass(frozen=True)
class Step:
    """One scope around a node: its opener (None: the kernel), and which of its items it is in."""

    opener: UOp | None
    item: int


@dataclass(frozen=True)
class Standing:
    """The way to a node from outside, and its number in the order of the text."""

    path: tuple[Step, ...]
    number: int

    @property
    def scopes(self) -> tuple[UOp, ...]:
        """RANGEs, IFs and ROLEs around it, outermost first."""
        return tuple(step.opener for step in self.path if step.opener is not None)

    @property
    def loops(self) -> tuple[UOp, ...]:
        """The loops around it that stay loops, outermost first."""
        return tuple(s for s in self.scopes if s.op is Ops.RANGE and s.arg.kind in SERIAL)


def standings(program: ProgramTree | None) -> Mapping[UOp, Standing]:
    """Where every named value, effect and value inside another one's text stands."""
    found: dict[UOp, Standing] = {}
    if program is None:
        return found
    for path, item in _walk(program.items):
        if isinstance(item, (Scope, Declare)):
            continue
        root = item.value if isinstance(item, Let) else item.effect
        for u in _inside(root, found):
            found[u] = Standing(path, len(found))
    return found


def _walk(items: tuple[Item, ...]) -> Iterator[tuple[tuple[Step, ...], Item]]:
    """Every item with the way to it, outer before inner, in order."""
    stack: list[tuple[tuple[Step, ...], Item]] = []
    stack.extend(((Step(None, n),), item) for n, item in reversed(list(enumerate(items))))
    while stack:
        path, item = stack.pop()
        yield path, item
        if isinstance(item, Scope):
            inner = reversed(list(enumerate(item.items)))
            stack.extend(((*path, Step(item.opener, n)), x) for n, x in inner)


def _inside(root: UOp, known: Mapping[UOp, Standing]) -> Iterable[UOp]:
    """root and the values written inside its text, sources first."""
    order: list[UOp] = []
    seen: set[UOp] = set()
    stack = [(root, False)]
    while stack:
        u, done = stack.pop()
        if done:
            order.append(u)
            continue
        if u in known or u in seen or u.op in (Ops.AFTER, Ops.RANGE, Ops.IF, Ops.ROLE):
            continue  # an AFTER's sources are other items' text
        seen.add(u)
        stack.append((u, True))
        stack.extend((s, False) for s in reversed(u.src))
    return order


@dataclass(frozen=True)
class Between:
    """What stands between two nodes, the first above the second in the text.

    around: scopes around both, outermost first; leaves: scopes around the first alone, outermost
    first (a barrier between the two stands after them); enters: those around the second alone.
    same: both stand in the text of one item.
    """

    around: tuple[UOp, ...]
    leaves: tuple[UOp, ...]
    enters: tuple[UOp, ...]
    same: bool


def between(first: Standing, second: Standing) -> Between:
    """The scopes that two nodes share, and those that each has alone."""
    shared = 0
    for a, b in zip(first.path, second.path, strict=False):
        if a.opener is not b.opener:
            break
        shared += 1
        if a.item != b.item:
            break
    around = tuple(s.opener for s in first.path[:shared] if s.opener is not None)
    leaves = tuple(s.opener for s in first.path[shared:] if s.opener is not None)
    enters = tuple(s.opener for s in second.path[shared:] if s.opener is not None)
    return Between(around, leaves, enters, first.path == second.path)

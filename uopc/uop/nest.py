"""How the loops of a LOOPS kernel stand inside each other, and in which one a node stands.

END(effect, r0, r1) opens r0 around r1 inside the innermost loop among its free ranges.  A node
stands in the innermost loop among its own; those must be nested in each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from uopc.errors import SpecError
from uopc.uop.facts import free
from uopc.uop.node import UOp, toposort, where_from
from uopc.uop.ops import AxisType, Ops
from uopc.uop.records import range_name


@dataclass
class Nest:
    """parent: loop -> the loop around it, None outside all loops."""

    lanes: frozenset[AxisType]
    parent: dict[UOp, UOp | None] = field(default_factory=dict)
    depth: dict[UOp, int] = field(default_factory=dict)
    _found: dict[frozenset[UOp], UOp | None] = field(default_factory=dict)

    def loops(self, end: UOp) -> list[UOp]:
        """The ranges of an END that are loops, outermost first."""
        return [r for r in end.src[1:] if r.arg.kind not in self.lanes]

    def innermost(self, u: UOp) -> UOp | None:
        """The loop that u stands in.  Raises SpecError where its free ranges are not nested."""
        ranges = free(u)
        if ranges not in self._found:
            self._found[ranges] = self._innermost(
                u, [r for r in ranges if r.arg.kind not in self.lanes]
            )
        return self._found[ranges]

    def _innermost(self, u: UOp, ranges: list[UOp]) -> UOp | None:
        for r in ranges:
            if r not in self.parent:
                raise SpecError(f"LOOPS: {_at(u)}: no END closes {range_name(r.arg)} around it")
        inner = max(ranges, key=self.depth.__getitem__, default=None)
        around: set[UOp] = set()
        at = inner
        while at is not None:
            around.add(at)
            at = self.parent[at]
        for r in ranges:
            if r not in around:
                names = ", ".join(sorted(range_name(x.arg) for x in ranges))
                raise SpecError(
                    f"LOOPS: {_at(u)}: it varies with {names}, and the loop over "
                    f"{range_name(r.arg)} is not around the innermost of them"
                )
        return inner


def nest(sink: UOp, lanes: frozenset[AxisType]) -> Nest:
    """The loops of a kernel.  Ranges of the kinds in `lanes` are no loops."""
    found = Nest(lanes)
    for u in reversed(toposort(sink)):  # outer ENDs come first
        if u.op is Ops.END:
            outer = found.innermost(u)
            for r in found.loops(u):
                found.parent[r] = outer
                found.depth[r] = 0 if outer is None else found.depth[outer] + 1
                outer = r
    return found


def _at(u: UOp) -> str:
    return f"{u.op} at {where_from(u)}"

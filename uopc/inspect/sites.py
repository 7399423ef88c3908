"""The accesses of a kernel, each where it stands: its scopes, its conditions, its line in the text.

PROGRAM is walked in order.  An access stands in a statement of its own or inside of a value's text;
a value that has a name was made by an earlier statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from uopc import layouts
from uopc.dtype import AddrSpace, dtypes
from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.passes.bind import hardware_ranges
from uopc.render.base import owner
from uopc.render.operands import operands
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, is_rank, memory, prod, toposort
from uopc.uop.ops import Atomic, AxisType, Engine, Ops

#: bytes of one row of an 8x8 tile that ldmatrix and stmatrix move (PTX ISA, ldmatrix)
MATRIX_ROW_BYTES = 16


@dataclass(frozen=True)
class Site:
    """One access.

    op: as in `AccessReport`; node: the LOAD, STORE, ...; statement: the node whose text it stands
    in; element: the INDEX, or the TENSORMAP of a tensor copy; width_bytes: of one thread, of a
    tensor copy all of it; conditions: all of which hold where it is made; counted: what is counted
    in place of them; loops: the ranges around it that are loops of a thread; warps: (first, how
    many) of the roles around it.
    """

    op: str
    node: UOp
    statement: UOp
    element: UOp
    store: bool
    width_bytes: int
    conditions: tuple[UOp, ...]
    counted: tuple[UOp, ...]
    loops: tuple[UOp, ...]
    warps: tuple[tuple[int, int], ...]

    @property
    def space(self) -> AddrSpace:
        """Where the memory lies: of a cluster's, what a block reaches of its own is SHARED."""
        if self.element.op is Ops.TENSORMAP:
            return AddrSpace.GLOBAL
        return AddrSpace.SHARED if self._is_own else addrspace(self.element)

    @property
    def offset(self) -> UOp:
        """Of the element, in elements; where a block reaches its own part, in that."""
        if self.element.op is Ops.TENSORMAP:
            return ix.ZERO
        return owner(self.element)[1] if self._is_own else self.element.src[1]

    @property
    def _is_own(self) -> bool:
        """Is this a block's own part of the cluster's memory?"""
        if self.element.op is Ops.TENSORMAP or self.op == "SEND":
            return False
        return addrspace(self.element) is AddrSpace.CLUSTER and is_rank(owner(self.element)[0])

    @property
    def memory(self) -> UOp:
        """The BUFFER or ALLOC."""
        return memory(self.element.src[0] if self.element.op is Ops.TENSORMAP else self.element)


@dataclass(frozen=True)
class Statement:
    """One item of the program: its node, the nodes that its text holds, and what is around it.

    loops, counted, warps: as of a Site.  guard: the condition of a STORE, under which all of its
    text is evaluated but what the condition itself needs: `before`.
    """

    node: UOp
    inside: tuple[UOp, ...]
    loops: tuple[UOp, ...]
    counted: tuple[UOp, ...]
    warps: tuple[tuple[int, int], ...]
    accesses: tuple[Site, ...] = field(default=())
    guard: UOp | None = None
    before: frozenset[UOp] = frozenset()


def statements(program: ProgramTree) -> list[Statement]:
    """Every item of a program, in order."""
    return list(_Walk(last_blocks(program.sink)).items(program.items, (), (), ()))


def sites(program: ProgramTree) -> list[Site]:
    """Every access of a program to global or shared memory, in order."""
    return [a for s in statements(program) for a in s.accesses]


class _Walk:
    """The walk through one program, and the values that have names so far.

    known: what stands for a condition of which the counts do not depend on who meets it.
    """

    def __init__(self, known: Mapping[UOp, UOp]) -> None:
        self.named: set[UOp] = set()
        self.known = known

    def items(
        self,
        items: Sequence[Item],
        loops: tuple[UOp, ...],
        conditions: tuple[UOp, ...],
        warps: tuple[tuple[int, int], ...],
    ) -> Iterator[Statement]:
        around = (loops, conditions, warps)
        for item in items:
            if isinstance(item, Declare):
                yield Statement(item.alloc, (item.alloc,), *around)
            elif isinstance(item, Let):
                yield self._statement(item.value, *around)
                self.named.add(item.value)
            elif isinstance(item, Do):
                yield self._statement(item.effect, *around)
            else:
                yield from self._scope(item, *around)

    def _scope(
        self,
        scope: Scope,
        loops: tuple[UOp, ...],
        conditions: tuple[UOp, ...],
        warps: tuple[tuple[int, int], ...],
    ) -> Iterator[Statement]:
        opener = scope.opener
        yield self._statement(opener, loops, conditions, warps)
        if opener.op is Ops.RANGE:
            loops = (*loops, opener)
        elif opener.op is Ops.IF:
            conditions = (*conditions, opener.src[0])
        else:
            warps = (*warps, (opener.arg.first, opener.arg.warps))
        yield from self.items(scope.items, loops, conditions, warps)

    def _statement(
        self,
        node: UOp,
        loops: tuple[UOp, ...],
        conditions: tuple[UOp, ...],
        warps: tuple[tuple[int, int], ...],
    ) -> Statement:
        found: list[Site] = []
        inside: dict[UOp, None] = {}
        stack: list[tuple[UOp, tuple[UOp, ...]]] = [(node, ())]
        while stack:
            u, extra = stack.pop()
            if u in inside or (u in self.named and u is not node):
                continue
            inside[u] = None
            for op, element, store, width in _accesses(u):
                holds = (*conditions, *extra, *_gate(u))
                counted = tuple([self.known.get(c, c) for c in holds])
                where = (holds, counted, loops, warps)
                found.append(Site(op, u, node, element, store, width, *where))
            stack += reversed(list(_below(u, extra)))
        found.sort(key=lambda site: site.store)  # what is read comes before what is written
        counted = tuple([self.known.get(c, c) for c in conditions])
        guard = next(iter(_gate(node)), None) if node.op is Ops.STORE else None
        before = frozenset() if guard is None else _below_all(guard)
        around = (loops, counted, warps)
        return Statement(node, tuple(inside), *around, tuple(found), guard, before)


def last_blocks(root: UOp) -> dict[UOp, UOp]:
    """For each condition that a block drew the last ticket (`passes/last_block.py`): that it is the
    last one of its group by its number.  Another one may be, which does the same."""
    drawn = {
        memory(u.src[0]): u.src[1]
        for u in toposort(root)
        if u.op is Ops.STORE and u.src[1].op is Ops.ATOMIC and u.src[1].arg.atomic is Atomic.ADD
    }
    found: dict[UOp, UOp] = {}
    for u in toposort(root) if drawn else ():
        if u.op is not Ops.EQ or u.src[0].op is not Ops.LOAD:
            continue
        ticket = drawn.get(memory(u.src[0].src[0]))
        if ticket is not None:
            groups = free(ticket.src[0].src[1])
            parts = [r for r in hardware_ranges(root, AxisType.GLOBAL) if r not in groups]
            found[u] = ix.conj(*(ix.at_least(r, r.arg.size - 1) for r in parts))
    return found


def _below_all(u: UOp) -> frozenset[UOp]:
    """A value and all that its text holds."""
    found, stack = {u}, [u]
    while stack:
        new = [s for s, _ in _below(stack.pop(), ()) if s not in found]
        found.update(new)
        stack += new
    return frozenset(found)


def _below(u: UOp, extra: tuple[UOp, ...]) -> Iterator[tuple[UOp, tuple[UOp, ...]]]:
    """What stands in the text of u, each with the conditions under which it is evaluated."""
    if u.op is Ops.RANGE:
        return
    if u.op is Ops.WHERE:
        condition, yes, no = u.src
        yield condition, extra
        yield yes, (*extra, condition)
        yield no, (*extra, UOp(Ops.NOT, (condition,)))
        return
    if u.dtype is dtypes.bool and u.op in _EARLY:  # && and || may not come to the second
        first, second = u.src
        goes_on = first if u.op in (Ops.AND, Ops.MIN) else UOp(Ops.NOT, (first,))
        yield first, extra
        yield second, (*extra, goes_on)
        return
    gated = _gate(u) if u.op in (Ops.LOAD, Ops.STORE) else ()
    for n, s in enumerate(operands(u)):
        if s.op is Ops.CONST:
            continue
        if u.op is Ops.LOAD and n == 2:  # what it gives where the gate is false
            yield s, (*extra, UOp(Ops.NOT, gated))
        elif u.op is Ops.STORE and n == 1:
            yield s, (*extra, *gated)
        elif u.op is Ops.INDEX and n == 0:
            yield from ()
        else:
            yield s, extra


def _gate(u: UOp) -> tuple[UOp, ...]:
    """The condition of an access, where it has one."""
    if u.op is Ops.LOAD:
        return u.src[1:2]
    if u.op is Ops.STORE or (u.op is Ops.COPY and u.arg.engine is Engine.CP_ASYNC):
        return u.src[2:3]
    if u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER:
        return u.src[3:4]
    return ()


#: what the renderers spell && and || on bools
_EARLY = (Ops.AND, Ops.OR, Ops.MIN, Ops.MAX)
_SEEN = (AddrSpace.GLOBAL, AddrSpace.SHARED, AddrSpace.CLUSTER)


def _accesses(u: UOp) -> Iterator[tuple[str, UOp, bool, int]]:
    """(op, element, store, bytes of a thread) of each memory access that a node makes."""
    if u.op in (Ops.LOAD, Ops.STORE):
        element = u.src[0]
        by_value = memory(element).op is Ops.BUFFER and memory(element).arg.shape == ()
        if addrspace(element) in _SEEN and not by_value:
            width = u.arg.width if hasattr(u.arg, "width") else 1
            yield u.op.name, element, u.op is Ops.STORE, width * element.dtype.itemsize
    elif u.op is Ops.ATOMIC:
        yield "ATOMIC", u.src[0], True, u.src[0].dtype.itemsize
    elif u.op is Ops.COPY:
        yield from _copies(u)
    elif u.op in (Ops.LDMATRIX, Ops.STMATRIX):
        stores = u.op is Ops.STMATRIX
        yield u.op.name, u.src[0 if stores else 1], stores, MATRIX_ROW_BYTES


def _copies(u: UOp) -> Iterator[tuple[str, UOp, bool, int]]:
    to, source = u.src[:2]
    if u.arg.engine is Engine.CP_ASYNC:
        width = u.arg.width * to.dtype.itemsize
        yield "COPY", source, False, width
        yield "COPY", to, True, width
    elif u.arg.engine is Engine.BULK:
        tensor_map = source if source.op is Ops.TENSORMAP else to
        size = prod(tensor_map.arg.box) * tensor_map.dtype.itemsize
        yield "BULK", tensor_map, tensor_map is to, size
    else:
        yield "SEND", to, True, to.dtype.itemsize


def matrix_lanes(site: Site) -> int:
    """Lanes that name a row for ldmatrix or stmatrix."""
    moves = layouts.STMATRIX if site.store else layouts.LDMATRIX
    return 8 * moves[site.node.arg.tiles, site.node.arg.transposed].tiles


__all__ = ["MATRIX_ROW_BYTES", "Site", "Statement", "matrix_lanes", "sites", "statements"]

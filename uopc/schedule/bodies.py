"""A group becomes a KernelBody: its expressions over numbered memories, and its axes by number.

Here because: last; stores and updates are decided.  Equal kernels of different layers become one
body: slots, axes and nodes are numbered by first use.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from uopc.dtype import dtypes
from uopc.kernel import KernelBody, Output
from uopc.passes.walk import recurse
from uopc.schedule.anchors import Kind
from uopc.schedule.group import NONE, Group
from uopc.schedule.normalise import leaf_buffer, rebuilt
from uopc.schedule.stores import Stores
from uopc.schedule.views import VIEWS, Index, source
from uopc.uop.infer import Shape
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops

_BY_VALUE = (Ops.GATHER, Ops.SCATTER)
_Request: TypeAlias = tuple[UOp, UOp | None, Index]


class _Rebuild:
    """The expressions of a group over local memories.

    held: {leaf or stored value: its local BUFFER}, by first use; by_value: the GATHERs and SCATTERs
    of the graph with their new forms.
    A node is visited for an anchor, at an index of that anchor's domain: whether a value is read
    from memory or computed again was decided for that access (`Anchors.is_inlined`).
    """

    def __init__(self, stores: Stores, g: Group) -> None:
        self.stores, self.known, self.of, self.g = stores, stores.known, stores.grouping.of, g
        self.held: dict[UOp, UOp] = {}
        self.by_value: list[tuple[UOp, UOp]] = []
        self._memo: dict[_Request, UOp] = {}

    def value(self, anchor: UOp) -> UOp:
        """What an anchor is in this kernel."""
        return recurse(self._visit, (anchor, None, ()), self._memo)

    def _visit(self, request: _Request) -> Generator[_Request, UOp, UOp]:
        anchor, u, at = request
        if u is None:
            return (yield from self._body(anchor))
        if u.op is Ops.BUFFER:
            return self._local(u)
        if u.op in (Ops.CONST, Ops.IOTA):
            return u
        if u in self.known.kind and u is not anchor and not self.known.is_inlined(u, at):
            if u in self.stores.stored and self.of[u] is not self.g:
                return self._local(u)
            return (yield (u, None, ()))
        src = []
        if u.op in VIEWS:
            src.append((yield (anchor, u.src[0], source(u, at))))
            for s in u.src[1:]:
                src.append((yield (anchor, s, at if u.op is Ops.GATHER else ())))
        else:
            for s in u.src:
                src.append((yield (anchor, s, at if s.shape else ())))
        return self._made(u, tuple(src))

    def _body(self, anchor: UOp) -> Generator[_Request, UOp, UOp]:
        """The value of an anchor, from the starts of its body."""
        starts = self.known.starts(anchor)
        if starts[0][0] is anchor:
            return (yield (anchor, anchor, starts[0][1]))
        src = []
        for s, at in starts:
            src.append((yield (anchor, s, at)))
        if anchor.op is Ops.ASSIGN:
            return src[0]
        if anchor.op is Ops.ITEM:
            both = anchor.src[0]
            return rebuilt(anchor, (rebuilt(both, (rebuilt(both.src[0], tuple(src)),)),))
        return self._made(anchor, tuple(src))

    def _made(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        new = rebuilt(u, src)
        if u.op in _BY_VALUE:
            self.by_value.append((u, new))
        return new

    def _local(self, u: UOp) -> UOp:
        return self.memory(u).reshape(u.shape)

    def memory(self, u: UOp) -> UOp:
        """The local BUFFER of a leaf or stored value; one element where it has no axes."""
        return self.held.setdefault(u, leaf_buffer(len(self.held), u.dtype, u.shape or (1,)))


class BodyMaker:
    """Bodies of groups, in launch order: an index is checked by the first kernel that uses it."""

    def __init__(self, stores: Stores, in_place: dict[UOp, UOp]) -> None:
        self.stores, self.in_place = stores, in_place
        self.of = stores.grouping.of
        self.checked: set[tuple[UOp, int]] = set()

    def make(self, g: Group) -> tuple[KernelBody, list[UOp | None]]:
        """(body, what each slot holds: a leaf or a stored value; None for the error word)."""
        work = _Rebuild(self.stores, g)
        outputs = [m for m in self.stores.needed[g] if m in self.stores.stored]
        new = {m: work.value(m) for m in outputs}
        held = work.held
        made: list[Output] = []
        for m in outputs:
            old = self.in_place.get(m)
            memory = held[old] if old is not None and old in held else work.memory(m)
            made.append(Output(new[m], memory))
        holds: list[UOp | None] = list(held)
        checks = [made for u, made in work.by_value if self._unchecked(u)]
        errors = None
        if checks:
            errors = leaf_buffer(len(held), dtypes.u64, (1,))
            holds.append(None)
        new |= {m: work.value(m) for m in self.stores.needed[g]}
        axes, sizes = self._axes(g, outputs, new)
        body = KernelBody(tuple(made), sizes, axes, frozenset(checks), errors)
        return body, holds

    def _unchecked(self, u: UOp) -> bool:
        """Has some index of a GATHER or SCATTER not been checked before?"""
        addressed = u.src[0].shape if u.op is Ops.GATHER else u.shape
        uses = {(u.src[1 + ~d], n) for d, n in zip(u.arg.dims, addressed, strict=True) if d < 0}
        if uses <= self.checked:
            return False
        self.checked |= uses
        return True

    def _axes(
        self, g: Group, outputs: Sequence[UOp], new: dict[UOp, UOp]
    ) -> tuple[dict[UOp, tuple[int, ...]], Shape]:
        number: dict[int, int] = {}
        sizes: list[int] = []
        axes: dict[UOp, tuple[int, ...]] = {}

        def named(ids: Sequence[int], shape: Shape) -> tuple[int, ...]:
            for x, n in zip(ids, shape, strict=True):
                if x != NONE and x not in number:
                    number[x] = len(sizes)
                    sizes.append(n)
            return tuple([number[x] if x != NONE else NONE for x in ids])

        for m in outputs:
            mine = named(g.axes[m][: len(m.shape)], m.shape)
            if new[m].op is not Ops.REDUCE:
                axes.setdefault(new[m], mine)
        for m in self.stores.needed[g]:
            value = new[m].src[0] if m.op is Ops.ITEM else new[m]
            if value.op is Ops.REDUCE and self.stores.known.kind[m] is not Kind.VALUE:
                axes[value] = named(g.axes[m], self.stores.known.domain(m))
        for m in outputs:  # an update whose value is a reduction of the same kernel
            if new[m].op is Ops.REDUCE and new[m] not in axes:
                axes[new[m]] = named(g.axes[m][: len(m.shape)], m.shape)
        return axes, tuple(sizes)


def name_of(body: KernelBody, has_product: bool) -> str:
    """What a kernel is called: what it does, and over which sizes."""
    ops = {u.op for u in toposort(*[o.value for o in body.outputs])}
    values = toposort(*[o.value for o in body.outputs])
    reduces = [u for u in values if u.op in (Ops.REDUCE, Ops.SCAN)]
    if has_product:
        verb = "product"
    elif Ops.SCATTER in ops:
        verb = "scatter"
    elif reduces:
        scan = {Ops.SCAN: "cum", Ops.REDUCE: ""}
        verb = "_".join(dict.fromkeys(scan[u.op] + str(u.arg.combine).lower() for u in reduces))
    elif Ops.GATHER in ops:
        verb = "gather"
    else:
        verb = "map"
    sizes = "x".join(str(n) for n in body.sizes[:4]) or "1"
    return f"{verb}_{sizes}"

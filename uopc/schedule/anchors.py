"""Which values may own a loop or memory, and what each of them reads.

Here because: before grouping, which merges anchors and never looks at what lies between them.
Anchors are reductions, assignments, what is asked for, elementwise values with several readers that
are dear, heavy operands of products and very wide expressions.  Everything else is part of its
readers.  A reduction's store point then moves down its epilogue: relu(x @ w + b) is stored, never
x @ w.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import Enum

from uopc.schedule.limits import Limits
from uopc.schedule.order import after_needs
from uopc.schedule.views import VIEWS, ZERO, Entry, Index, axes_in, is_plain, own, source
from uopc.uop.infer import Shape, prod
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import ELEMENTWISE, TRANSCENDENTAL, Combine, Ops

#: operations that an element costs (an FMA is one)
COSTS = {**dict.fromkeys(TRANSCENDENTAL, 8), Ops.DIV: 4, Ops.SQRT: 4, Ops.IDIV: 4, Ops.MOD: 4}
#: operations of an element beyond which nobody counts
MANY = 64
_CONSTANT = (Ops.CONST, Ops.IOTA)

Leaf = tuple[UOp, Index]


class Kind(Enum):
    """What an anchor is to grouping."""

    PRODUCT = "a product"
    REDUCTION = "a reduction"
    VALUE = "an elementwise value"


class Anchors:
    """The anchors of a graph, in an order in which every update comes as late as it can.

    kind: of each anchor; consumers: of each node, through views; asked: the outputs and the old
    versions that somebody still wants; why: recorded reasons.
    """

    def __init__(self, roots: Sequence[UOp], kept: frozenset[UOp], limits: Limits) -> None:
        self.limits = limits
        self.roots = frozenset(roots)
        self.asked = self.roots | kept
        self.order = toposort(*roots)
        self.kind: dict[UOp, Kind] = {}
        self.why: dict[UOp, str] = {}
        self.size = {u: prod(u.shape) for u in self.order}
        self.nbytes = {u: self.size[u] * u.dtype.itemsize for u in self.order}
        self.consumers = self._consumers()
        #: of each node: the leaves of its expression with the bytes read, and what is computed
        #: from them, each node once (None: more than counts)
        self.reads: dict[UOp, dict[UOp, int]] = {}
        self._parts: dict[UOp, frozenset[UOp] | None] = {}
        self._leaves: dict[UOp, list[Leaf]] = {}
        self._find()
        self._epilogues()
        place = {u: k for k, u in enumerate(self.order)}
        self._leaves.clear()  # heavy operands became anchors late
        self.sequence = self._updates_last(sorted(self.kind, key=place.__getitem__))
        self.rank = {u: k for k, u in enumerate(self.sequence)}

    # ---- finding them
    def _consumers(self) -> dict[UOp, set[UOp]]:
        out: dict[UOp, set[UOp]] = defaultdict(set)
        base: dict[UOp, frozenset[UOp]] = {}
        for u in self.order:
            if u.op in VIEWS:
                base[u] = frozenset().union(*(base[s] for s in u.src))
                continue
            base[u] = frozenset((u,))
            for s in _read(u):
                for b in base[s]:
                    out[b].add(u)
        return out

    def _find(self) -> None:
        for u in self.order:
            self._measure(u)
            constant = u.op in _CONSTANT and u not in self.roots
            if not self.size[u] or u.op is Ops.BUFFER or constant or u.dtype.itemsize == 0:
                continue
            kind = self._kind_of(u)
            if kind is not None:
                self._anchor(u, kind)
            if kind is Kind.PRODUCT:
                self._heavy_operands(u)

    def _measure(self, u: UOp) -> None:
        if u.op is Ops.BUFFER:
            self.reads[u], self._parts[u] = {u: self.nbytes[u]}, frozenset()
            return
        if u.op in _CONSTANT:
            self.reads[u], self._parts[u] = {}, frozenset()
            return
        reads: dict[UOp, int] = {}
        view, size = u.op in VIEWS, self.size[u]
        for s in _read(u):
            for leaf, n in self.reads[s].items():
                n = min(n, size * leaf.dtype.itemsize) if view else n
                reads[leaf] = max(reads.get(leaf, 0), n)
        self.reads[u] = reads
        self._parts[u] = self._parts_of(u)

    def _parts_of(self, u: UOp) -> frozenset[UOp] | None:
        """What is computed for u from its leaves, u among it."""
        below = {self._parts[s] for s in u.src}
        if None in below:
            return None
        mine = frozenset() if u.op in VIEWS else frozenset((u,))
        parts = mine.union(*(p for p in below if p))
        return parts if len(parts) <= MANY else None

    def _kind_of(self, u: UOp) -> Kind | None:
        op = u.op
        if op is Ops.REDUCE:
            return Kind.PRODUCT if self.is_product(u) else Kind.REDUCTION
        if op in (Ops.SCAN, Ops.SCATTER) or (op is Ops.ITEM and u.src[0].op is Ops.REDUCE):
            return Kind.REDUCTION
        if op is Ops.ASSIGN or u in self.roots:
            return Kind.VALUE
        if op in ELEMENTWISE and (
            (len(self.consumers[u]) > 1 and not self._is_cheap(u))
            or len(self.reads[u]) > self.limits.live
        ):
            return Kind.VALUE
        return None

    def _anchor(self, u: UOp, kind: Kind) -> None:
        self.kind[u] = kind
        self.reads[u] = {u: self.nbytes[u]}
        self._parts[u] = frozenset()

    def _heavy_operands(self, u: UOp) -> None:
        """A heavy operand is computed once, in its producer's epilogue."""
        for s in _factors(u)[0].src:
            while (s.op in VIEWS and s.op is not Ops.GATHER) or s.op is Ops.CAST:
                s = s.src[0]
            if s.op in ELEMENTWISE and s not in self.kind and not self.is_light(s):
                self._anchor(s, Kind.VALUE)
                self.why[s] = "heavy operand of a product"
                self._leaves.clear()

    def _is_cheap(self, u: UOp) -> bool:
        return (
            sum(self.reads[u].values()) <= 1.05 * self.nbytes[u]
            and self.operations(u) <= self.limits.cheap
        )

    def is_light(self, u: UOp) -> bool:
        """May u ride into a product?"""
        return (
            sum(self.reads[u].values()) <= 1.3 * self.nbytes[u]
            and self.operations(u) <= self.limits.light
        )

    def _epilogues(self) -> None:
        """The store point of a reduction moves down while one elementwise value takes it all."""
        for r in [u for u in self.kind if self.kind[u] is not Kind.VALUE]:
            c = r
            while len(self.consumers[c]) == 1 and c not in self.roots:
                (n,) = self.consumers[c]
                mine = self.kind.get(n, Kind.VALUE) is Kind.VALUE
                if n.op not in ELEMENTWISE or not mine or self.size[n] != self.size[r]:
                    break
                c = n
                if c in self.kind:
                    break
            if c is r or c in self.kind:
                continue
            readers = self.consumers[c]
            if len(readers) > 1 or any(
                self.kind.get(x) is Kind.PRODUCT or x.op is Ops.MUL for x in readers
            ):
                self._anchor(c, Kind.VALUE)
                self.why[c] = "end of an epilogue"

    def _updates_last(self, anchors: list[UOp]) -> list[UOp]:
        """A topological order in which an update waits for all that does not need it: the readers
        of the old contents come first.  So does a sum of partial sums (`uopc/schedule/partial.py`):
        the rows that these may join come first."""
        needs: dict[UOp, set[UOp]] = {}
        for v in anchors:
            needs[v] = {leaf for leaf, _ in self.leaves(v) if leaf in self.kind}
            if v.op is Ops.ASSIGN and v.src[0] in self.kind:
                needs[v].add(v.src[0])
        return after_needs(anchors, needs, _is_late)

    # ---- what they read
    def is_product(self, u: UOp) -> bool:
        """A sum of products of a value that misses one kept axis and one that misses another."""
        x, at = _factors(u)
        if u.arg.combine is not Combine.ADD or x.op is not Ops.MUL:
            return False
        a, b = (
            axes_in([e for _, i in self._collect([(s, at if s.shape else ())]) for e in i])
            for s in x.src
        )
        kept = [j for j, n in enumerate(u.shape) if n > 1]
        return any(j in a and j not in b for j in kept) and any(j in b and j not in a for j in kept)

    def domain(self, v: UOp) -> Shape:
        """The axes that an anchor's body runs over: its own, then the reduced ones."""
        if v.op is Ops.REDUCE:
            return v.src[0].shape
        if v.op is Ops.ITEM and v.src[0].op is Ops.REDUCE:
            return v.src[0].src[0].shape
        if v.op is Ops.SCATTER:
            x = v.src[0].shape
            return v.shape + tuple([x[j] for j in _left_over(v)])
        return v.shape

    def starts(self, v: UOp) -> list[Leaf]:
        """The nodes at which the body of an anchor starts, with their indices."""
        at = own(self.domain(v))
        if v.op in (Ops.REDUCE, Ops.SCAN):
            return [(v.src[0], at)]
        if v.op is Ops.ITEM and v.src[0].op is Ops.REDUCE:
            return [(s, at) for s in v.src[0].src[0].src]
        if v.op is Ops.SCATTER:
            inner: list[Entry] = [ZERO] * len(v.src[0].shape)
            for i, d in enumerate(v.arg.dims):
                if d >= 0:
                    inner[d] = at[i]
            for k, j in enumerate(_left_over(v), len(v.shape)):
                inner[j] = at[k]
            return [(s, tuple(inner)) for s in v.src]
        if v.op is Ops.ASSIGN:
            return [(v.src[1], at)]
        return [(v, at)]

    def leaves(self, v: UOp) -> list[Leaf]:
        """(anchor or buffer, index) pairs that the body of v reads."""
        found = self._leaves.get(v)
        if found is None:
            found = self._leaves[v] = self._collect(self.starts(v), v)
        return found

    def _collect(self, starts: list[Leaf], me: UOp | None = None) -> list[Leaf]:
        out: list[Leaf] = []
        seen: set[Leaf] = set()
        stack = list(starts)
        kind = self.kind
        while stack:
            pair = stack.pop()
            if pair in seen:
                continue
            seen.add(pair)
            u, at = pair
            op = u.op
            if op in _CONSTANT:
                continue
            if op is Ops.BUFFER or (u in kind and u is not me and not self.is_inlined(u, at)):
                out.append(pair)
            elif op in VIEWS:
                stack.append((u.src[0], source(u, at)))
                stack += [(s, at) for s in (u.src[1:] if op is Ops.GATHER else ())]
            else:
                stack += [(s, at if s.shape else ()) for s in u.src]
        return out

    def is_inlined(self, u: UOp, at: Index) -> bool:
        """An elementwise value read off its own axes (a stencil, a pick) is computed again."""
        return (
            self.kind[u] is Kind.VALUE
            and u.op is not Ops.ASSIGN
            and u not in self.asked
            and not is_plain(at, u.shape)
            and self.operations(u) <= self.limits.inline
        )

    def operations(self, u: UOp) -> int:
        """Operations of an element of u from its leaves; MANY where there are more than that."""
        parts = self._parts_of(u)
        return MANY if parts is None else sum(cost(p) for p in parts)

    def bytes_read(self, leaf: UOp, at: Index, domain: Shape) -> int:
        """Bytes of a leaf that a domain reads, each element once."""
        n = prod(domain[j] for j in axes_in(at))
        return min(self.size[leaf], n) * leaf.dtype.itemsize


def cost(u: UOp) -> int:
    """Operations of one element of a node alone."""
    return 0 if u.op in VIEWS else COSTS.get(u.op, 1)


def _is_late(v: UOp) -> bool:
    """May v wait for what does not need it?"""
    if v.op is not Ops.REDUCE:
        return v.op is Ops.ASSIGN
    x = v.src[0]
    return (x.src[0] if x.op is Ops.PERMUTE else x).op is Ops.REDUCE


def _factors(u: UOp) -> Leaf:
    """What a REDUCE sums, below views and casts, and where it is read."""
    x, at = u.src[0], own(u.src[0].shape)
    while x.op is Ops.CAST or (x.op in VIEWS and x.op is not Ops.GATHER):
        at = at if x.op is Ops.CAST else source(x, at)
        x = x.src[0]
    return x, at


def _read(u: UOp) -> tuple[UOp, ...]:
    return u.src[1:] if u.op is Ops.ASSIGN else u.src


def _left_over(scatter: UOp) -> list[int]:
    """Axes of the values of a SCATTER that no axis of the result walks."""
    walked = {d for d in scatter.arg.dims if d >= 0}
    return [j for j in range(len(scatter.src[0].shape)) if j not in walked]

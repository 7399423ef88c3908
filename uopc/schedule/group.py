"""Values that share a kernel.

One rule: two values share a kernel iff their axes agree at every access between them.  Merging
unites the axes that agree and intersects the grids; what falls out of the grid becomes inner:
lanes, registers or loops of one block.  So softmax's maximum, sum and quotient meet on the rows, a
bias joins its product, and a column sum stays alone.

Anchors come in an order in which updates are late.  Each starts as its own group, tries the groups
that it reads, largest traffic first, then earlier readers of its largest inputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from uopc.schedule.anchors import Anchors, Kind
from uopc.schedule.order import Order, Placed
from uopc.schedule.views import Index, is_plain
from uopc.uop.infer import prod
from uopc.uop.node import UOp
from uopc.uop.ops import Combine, Ops

LARGEST = 3  # inputs through which a horizontal merge is tried
SHARE = 4  # ... if they are at least this part of the newcomer's traffic


@dataclass(eq=False)
class Group(Placed):
    """Anchors that share a kernel.

    axes: of each member, the axis of each dim of its domain (NONE where it has one element);
    grid: {axis: size} that every member's result varies along; leaves: bytes of what they read;
    fast: the contiguous axis of the largest leaf.  work, macs: elements and multiply-adds.
    """

    members: list[UOp]
    axes: dict[UOp, list[int]]
    grid: dict[int, int]
    leaves: dict[UOp, int]
    work: int = 0
    macs: int = 0
    has_product: bool = False
    fast: int | None = None
    fast_bytes: int = 0
    pinned: set[int] = field(default_factory=set)  # axes that must stay in the grid
    scanned: dict[int, bool] = field(default_factory=dict)  # axes that are scanned: backwards?

    def unify(self, x: int, y: int) -> bool:
        """Make two inner axes one, called x, where no member has both.  Was that possible?"""
        if NONE in (x, y) or x in self.grid or y in self.grid:
            return False
        if any(x in mine and y in mine for mine in self.axes.values()):
            return False
        for m, mine in self.axes.items():
            if y in mine:
                self.axes[m] = [x if k == y else k for k in mine]
        if y in self.pinned:
            self.pinned = {x if k == y else k for k in self.pinned}
        if self.fast == y:
            self.fast = x
        if y in self.scanned:
            self.scanned[x] = self.scanned.pop(y)
        return True


NONE = -1


@dataclass(frozen=True)
class _Access:
    """Group `by` reads `value` of group `of`, for `reader`."""

    of: Group
    by: Group
    value: UOp
    reader: UOp
    at: Index


class _Pairs:
    """Axes of groups a and b that are one: a bijection that grows while nothing contradicts it.

    Where an axis would have two partners, these become one if their group allows it.
    """

    def __init__(self, a: Group, b: Group) -> None:
        self.a, self.b = a, b
        self.forward: dict[int, int] = {}
        self.back: dict[int, int] = {}

    def agrees(self, new: Iterable[tuple[int, int]]) -> bool:
        """Take the pairs if they fit those taken before."""
        forward, back = dict(self.forward), dict(self.back)
        for x, y in new:
            known = forward.get(x, y)
            if known != y:
                if not self.b.unify(known, y):
                    return False
                y = known
            known = back.get(y, x)
            if known != x:
                if not self.a.unify(known, x):
                    return False
                x = known
            forward[x], back[y] = y, x
        self.forward, self.back = forward, back
        return True


class Grouping:
    """Groups of a graph's anchors, in a topological order.

    of: the group of each anchor; refused: how often each reason kept two groups apart; apart: the
    first such reason that kept a value from a reader; column_sums: sums that could join the rows
    that they are over as partial sums (`uopc/schedule/partial.py`).
    """

    def __init__(self, anchors: Anchors, fuse: bool = True) -> None:
        self.anchors, self.limits, self.fuse = anchors, anchors.limits, fuse
        self.of: dict[UOp, Group] = {}
        self.order = Order()
        self.refused: Counter[str] = Counter()
        self.apart: dict[UOp, str] = {}
        self.column_sums: set[UOp] = set()
        self._axis = count()
        self._old_readers: dict[UOp, list[UOp]] = defaultdict(list)
        self._users: dict[UOp, list[UOp]] = defaultdict(list)
        for v in anchors.sequence:
            self._place(v)
        for g in self.groups:
            self._align(g)

    @property
    def groups(self) -> list[Group]:
        """What is left, in order."""
        return [g for g in self.order.nodes() if isinstance(g, Group)]

    # ---- one anchor
    def _place(self, v: UOp) -> None:
        known = self.anchors
        g = self._alone(v)
        for leaf in g.leaves:
            if leaf in self.of:
                g.needs(self.of[leaf])
        if v.op is Ops.ASSIGN:  # the readers of the old contents stand before the update
            old = v.src[0]
            for r in [*self._old_readers[old], *([old] if old in self.of else [])]:
                if r is not v and self.of[r] is not g:
                    g.needs(self.of[r])
        self.order.append(g)
        self.of[v] = g
        leaves = dict(g.leaves)
        for leaf in leaves:
            self._old_readers[leaf].append(v)
        if self.fuse:
            by_traffic = sorted(leaves, key=lambda u: (-leaves[u], known.rank.get(u, -1)))
            for leaf in by_traffic:
                if leaf in self.of and self.of[leaf] is not self.of[v]:
                    self._merge(self.of[leaf], self.of[v], leaf, None)
            for leaf in by_traffic[:LARGEST]:
                for twin in (leaf, *self._twins(leaf)):
                    for user in self._users[twin][-self.limits.window :]:
                        mine, other = self.of[v], self.of[user]
                        if other is not mine and leaves[leaf] * SHARE >= sum(mine.leaves.values()):
                            self._merge(other, mine, None, (twin, leaf))
        for leaf in leaves:
            self._users[leaf].append(v)

    def _twins(self, leaf: UOp) -> list[UOp]:
        """Other reductions that the same kernel makes, element for element beside this one."""
        g = self.of.get(leaf)
        if g is None or self.anchors.kind[leaf] is not Kind.REDUCTION:
            return []
        n = len(leaf.shape)
        return [
            m
            for m in g.members
            if m is not leaf
            and self.anchors.kind[m] is Kind.REDUCTION
            and m.shape == leaf.shape
            and g.axes[m][:n] == g.axes[leaf][:n]
        ]

    def _alone(self, v: UOp) -> Group:
        known = self.anchors
        domain = known.domain(v)
        axes = [NONE if n == 1 else next(self._axis) for n in domain]
        grid = {axes[j]: n for j, n in enumerate(v.shape) if n > 1}
        scanned: dict[int, bool] = {}
        if v.op is Ops.SCAN and axes[-1] != NONE:
            del grid[axes[-1]]
            scanned[axes[-1]] = v.arg.reverse
        leaves: dict[UOp, int] = {}
        for leaf, at in known.leaves(v):
            leaves[leaf] = max(leaves.get(leaf, 0), known.bytes_read(leaf, at, domain))
        product = known.kind[v] is Kind.PRODUCT
        total = prod(domain)
        g = Group([v], {v: axes}, grid, leaves, has_product=product, scanned=scanned)
        g.work, g.macs = (0, total) if product else (total, 0)
        big = max(
            (p for p in known.leaves(v) if known.size[p[0]] > 1),
            key=lambda p: known.nbytes[p[0]],
            default=None,
        )
        if big is not None:
            leaf, at = big
            last = [e for e, n in zip(at, leaf.shape, strict=True) if n > 1][-1]
            g.fast = axes[last] if isinstance(last, int) and last >= 0 else None
            g.fast_bytes = known.nbytes[leaf]
        return g

    # ---- two groups
    def _scans_apart(self, a: Group, b: Group, pairs: _Pairs, grid: dict[int, int]) -> str:
        """A block goes along one axis step by step, in one direction, and along no other axis:
        loops inside of a step would have to remember one step for each of their turns."""
        if not a.scanned and not b.scanned:
            return ""
        name = pairs.back
        theirs = {name.get(y, y): way for y, way in b.scanned.items()}
        scanned = a.scanned | theirs
        if len(scanned) > 1 or a.scanned.items() | theirs.items() > scanned.items():
            return "scans along two axes or in two directions"
        inner = {x for axes in a.axes.values() for x in axes if x not in grid}
        inner |= {name.get(y, y) for axes in b.axes.values() for y in axes} - grid.keys()
        if a.has_product or b.has_product or inner - scanned.keys() - {NONE}:
            return "a scan shares its kernel with its own axis alone"
        return ""

    def _merge(self, a: Group, b: Group, via: UOp | None, shared: tuple[UOp, UOp] | None) -> None:
        reason = self._try(a, b, shared)
        if reason:
            self.refused[reason] += 1
            if via is not None:
                self.apart.setdefault(via, reason)

    def _accesses(self, a: Group, b: Group) -> Iterator[_Access]:
        for of, by in ((a, b), (b, a)):
            for reader in by.members:
                for value, at in self.anchors.leaves(reader):
                    if self.of.get(value) is of:
                        yield _Access(of, by, value, reader, at)

    def _try(self, a: Group, b: Group, shared: tuple[UOp, UOp] | None) -> str:
        """Merge; or the reason why not.  shared: inputs of a and b that are read side by side."""
        if a.place > b.place:
            a, b = b, a
            shared = shared and (shared[1], shared[0])
        known, limits = self.anchors, self.limits
        accesses = list(self._accesses(a, b))
        pairs = _Pairs(a, b)
        for x in accesses:
            new = self._paired(x, a)
            if new is None:
                return "read off its own axes"
            if not pairs.agrees(new):
                return "read along two different axes"
        if not accesses:
            if shared is None:
                return "no access"
            if a.has_product or b.has_product:
                return "two products side by side"
            if not self._agree_on(*shared, a, b, pairs):
                return "the shared input is read along different axes"
        self._share_more(a, b, pairs)
        grid = {x: y for x, y in pairs.forward.items() if x in a.grid and y in b.grid}
        back = {y: x for x, y in grid.items()}
        if why := self._scans_apart(a, b, pairs, grid):
            return why
        if why := self._too_narrow(a, b, grid, bool(accesses)):
            self._note_column_sum(a, b, pairs)
            return why
        if not limits.tile and (why := self._tile_lost(a, b, accesses, pairs, grid)):
            return why
        if why := self._overwrites(a, b, grid, back):
            return why
        outside = [
            u
            for u in a.leaves.keys() | b.leaves.keys()
            if self.of.get(u) is not a and self.of.get(u) is not b
        ]
        if len(outside) + len(a.members) + len(b.members) > limits.buffers:
            return "too many buffers"
        blocks = prod(a.grid[x] for x in grid)
        if sum(known.size[u] >= blocks for u in outside) > limits.live:
            return "register pressure"
        later = self.order.between(a, b)
        if later is None:
            return "cycle"
        self._unite(a, b, pairs, grid, later)
        return ""

    def _paired(self, x: _Access, a: Group) -> list[tuple[int, int]] | None:
        """(axis of a, axis of b) that an access pairs; None where it is not plain."""
        if not is_plain(x.at, x.value.shape):
            return None
        out = []
        of, by = x.of.axes[x.value], x.by.axes[x.reader]
        for j, (e, n) in enumerate(zip(x.at, x.value.shape, strict=True)):
            if n > 1:
                assert isinstance(e, int)
                mine, other = of[j], by[e]
                out.append((mine, other) if x.of is a else (other, mine))
        return out

    def _agree_on(self, x: UOp, y: UOp, a: Group, b: Group, pairs: _Pairs) -> bool:
        """Pair the axes along which a reads x and b reads y, where that is plain and fits."""
        one, two = self._plain_read(x, a), self._plain_read(y, b)
        if one is None or two is None:
            return False
        return pairs.agrees([p for p in zip(one, two, strict=True) if p[0] != NONE])

    def _plain_read(self, leaf: UOp, g: Group) -> list[int] | None:
        """Axes of g along which a member reads a leaf plainly."""
        return next(self._plain_reads(leaf, g), None)

    def _plain_reads(self, leaf: UOp, g: Group) -> Iterator[list[int]]:
        """The same for each member that does."""
        for m in g.members:
            for u, at in self.anchors.leaves(m):
                if u is leaf and is_plain(at, leaf.shape):
                    axes = g.axes[m]
                    yield [
                        axes[e] if n > 1 and isinstance(e, int) else NONE
                        for e, n in zip(at, leaf.shape, strict=True)
                    ]

    def _share_more(self, a: Group, b: Group, pairs: _Pairs) -> None:
        """Inputs that both read along axes that may be one are then read once."""
        both = [u for u in a.leaves if u in b.leaves]
        for leaf in sorted(both, key=lambda u: -a.leaves[u]):
            self._agree_on(leaf, leaf, a, b, pairs)

    def _too_narrow(self, a: Group, b: Group, grid: dict[int, int], reads: bool) -> str:
        """Would the merged group leave the machine idle?"""
        limits, kind = self.limits, self.anchors.kind
        blocks = prod(a.grid[x] for x in grid)
        lost_a = prod(n for x, n in a.grid.items() if x not in grid)
        lost_b = prod(n for y, n in b.grid.items() if y not in set(grid.values()))
        if (a.scanned or b.scanned) and not any(_reduces(m) for m in (*a.members, *b.members)):
            lost_a = lost_b = 1  # what falls out is scanned, and split over blocks where that pays
        product = a.has_product or b.has_product
        fast = self._fast(a, b, {y: x for x, y in grid.items()})
        if fast in grid and not product:
            blocks = max(1, blocks // limits.neighbours)
        work, macs = a.work + b.work, a.macs + b.macs
        if a.has_product and b.has_product and lost_a * lost_b > 1 and macs > 4 * limits.block_work:
            return "chained products"
        if product:
            lost = max(lost_a if a.has_product else 1, lost_b if b.has_product else 1)
            if lost > limits.product_lanes:
                return "a product's tile cannot hold the row"
            if lost > 1 and macs / max(1, blocks / 16) > limits.product_work:
                return "too few blocks for a product"

        def reduces(g: Group) -> bool:
            return any(kind[m] is Kind.REDUCTION for m in g.members)

        chain = reads and reduces(a) and reduces(b)
        enough = (
            blocks >= limits.blocks
            or (work + macs / 4) / blocks <= limits.block_work
            or (max(lost_a, lost_b) == 1 and not chain)
            or (
                macs > 0
                and macs / max(1, blocks / 16) <= limits.product_work
                and work / blocks <= limits.block_work
            )
        )
        if enough:
            return ""
        if max(lost_a, lost_b) == 1:
            return "chained reductions on few blocks could not be split"
        return "too few blocks"

    def _note_column_sum(self, a: Group, b: Group, pairs: _Pairs) -> None:
        """A sum over the very rows that another group spreads over its grid could join it as
        partial sums."""
        for sums, rows, name in ((b, a, pairs.back), (a, b, pairs.forward)):
            if rows.has_product or sums.has_product or not self.limits.tile:
                continue
            if rows.fast in rows.grid or sums.fast not in sums.grid:
                continue  # rows lie along the contiguous axis, and columns across it
            for v in sums.members:
                if v.op is Ops.REDUCE and v.arg.combine is Combine.ADD and v.dtype.is_float:
                    reduced = [x for x in sums.axes[v][len(v.shape) :] if x != NONE]
                    if reduced and all(name.get(x) in rows.grid for x in reduced):
                        self.column_sums.add(v)

    def _fast(self, a: Group, b: Group, back: dict[int, int]) -> int | None:
        if a.fast_bytes >= b.fast_bytes or b.fast is None:
            return a.fast
        return back.get(b.fast, b.fast)

    def _tile_lost(
        self,
        a: Group,
        b: Group,
        accesses: list[_Access],
        pairs: _Pairs,
        grid: dict[int, int],
    ) -> str:
        """Without threads that hold a tile, a reduced value that is read varies with the grid
        alone: it would be computed again in every loop of its readers."""
        kept_a, kept_b = set(grid), set(grid.values())
        need: set[int] = {x for x in a.pinned if x not in kept_a}
        need |= {y for y in b.pinned if y not in kept_b}
        for x in accesses:
            if self.anchors.kind[x.value] is not Kind.VALUE:
                axes = [k for k in x.of.axes[x.value][: len(x.value.shape)] if k != NONE]
                axes = [k for k in axes if k not in x.of.scanned]  # known step by step
                kept = kept_a if x.of is a else kept_b
                need |= {k for k in axes if k not in kept}
        return "a native kernel holds no tile of a reduced value" if need else ""

    def _overwrites(self, a: Group, b: Group, grid: dict[int, int], back: dict[int, int]) -> str:
        """An update joins readers of the old contents only if no other block reads its elements."""
        for x, y, same, shared in ((a, b, back, set(grid.values())), (b, a, grid, set(grid))):
            for w in y.members:
                if w.op is not Ops.ASSIGN:
                    continue
                axes = y.axes[w]
                for m in x.members:
                    for leaf, at in self.anchors.leaves(m):
                        if leaf is not w.src[0]:
                            continue
                        for j, e in enumerate(at):
                            if axes[j] not in shared:
                                continue
                            if not isinstance(e, int) or e < 0:
                                return "would overwrite what another block reads"
                            if x.axes[m][e] != same.get(axes[j]):
                                return "would overwrite what another block reads"
        return ""

    def _same_inner(self, g: Group, leaves: Iterable[UOp]) -> None:
        """Inner axes along which members read one input alike become one axis: it is then read
        once.  No member may have both."""
        for leaf in leaves:
            first: list[int] | None = None
            for axes in self._plain_reads(leaf, g):
                if first is None:
                    first = axes
                    continue
                for x, y in zip(first, axes, strict=True):
                    if x != y:
                        g.unify(x, y)

    def _align(self, g: Group) -> None:
        """Values of one shape are walked along the same inner axes: in one nest."""
        first: dict[tuple[int, ...], UOp] = {}
        for m in g.members:
            if self.anchors.kind[m] is Kind.VALUE:
                other = first.setdefault(m.shape, m)
                for x, y in zip(g.axes[other], g.axes[m], strict=True):
                    if x != y:
                        g.unify(x, y)

    def _unite(
        self, a: Group, b: Group, pairs: _Pairs, grid: dict[int, int], later: set[Placed]
    ) -> None:
        """b becomes part of a, with a's names of the axes that are one."""
        kind, rank = self.anchors.kind, self.anchors.rank
        name = pairs.back
        a.fast, a.fast_bytes = self._fast(a, b, name), max(a.fast_bytes, b.fast_bytes)
        for m in b.members:
            a.axes[m] = [name.get(x, x) for x in b.axes[m]]
            self.of[m] = a
        a.pinned |= {name.get(x, x) for x in b.pinned}
        a.scanned |= {name.get(x, x): way for x, way in b.scanned.items()}
        a.members = sorted(a.members + b.members, key=rank.__getitem__)
        a.grid = {x: n for x, n in a.grid.items() if x in grid}
        for leaf, n in b.leaves.items():
            a.leaves[leaf] = max(a.leaves.get(leaf, 0), n)
        a.work, a.macs = a.work + b.work, a.macs + b.macs
        a.has_product |= b.has_product
        self._same_inner(a, b.leaves)
        for m in a.members:
            for leaf, _ in self.anchors.leaves(m):
                if self.of.get(leaf) is a and kind[leaf] is not Kind.VALUE:
                    a.pinned |= {x for x in a.axes[leaf][: len(leaf.shape)] if x != NONE}
        a.pinned -= a.scanned.keys()
        self.order.contract(a, b, later)


def _reduces(v: UOp) -> bool:
    """Is an anchor a reduction that closes axes?"""
    return v.op in (Ops.REDUCE, Ops.SCATTER, Ops.ITEM)

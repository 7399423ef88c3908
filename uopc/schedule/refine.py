"""Axes are split where some RESHAPE needs it, over the whole graph.  TENSOR -> TENSOR.

Here because: before grouping, which asks whether two axes are the same one; with (B, T, D) on one
side and (B*T, D) on the other the answer would be a quotient.
Before: RESHAPE(x (4, 6), (24,)) + y (24,)
After:  x (4, 6) + RESHAPE(y, (4, 6)), and the RESHAPE of a buffer is only its shape

Axes that move together are one class (union-find over (node, axis)).  Each RESHAPE gives cuts, as
strides, to the classes on both sides, to a fixpoint; the cuts of a class that divide one another
make its atoms, any other stays a quotient in that RESHAPE.  Axes that a window, a flip or a value
addresses are never split.  Kernels merge neighbouring atoms again (`uopc/passes/share.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from uopc.schedule.normalise import rebuilt
from uopc.schedule.views import runs
from uopc.uop.infer import Shape, prod
from uopc.uop.node import UOp, derive, inherit, toposort
from uopc.uop.ops import GatherArg, IotaArg, Ops, ParamArg, ReduceArg, ScatterArg

Axis: TypeAlias = int  # a dimension of a node, by number: `_Classes.first`
ROUNDS = 8


def refine(roots: Sequence[UOp]) -> dict[UOp, UOp]:
    """{node: the same value with split axes} for every node below the roots."""
    order = toposort(*roots)
    classes = _Classes(order)
    reshapes = []
    for u in order:
        for a, b in _same_axes(u, classes.first):
            classes.unite(a, b)
        if u.op is Ops.RESHAPE and prod(u.shape):
            reshapes.append((u.src[0], u, runs(u.src[0].shape, u.shape)))
    for u in order:
        for axis in _fixed_axes(u, classes.first):
            classes.fix(axis)
    _spread_cuts(classes, reshapes)
    return _Rebuild(order, classes).new


class _Classes:
    """Union-find over axes, with the cuts of each class.

    first: the number of each node's first axis; the others follow it.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        self.first: dict[UOp, Axis] = {}
        self.sizes: list[int] = []
        for u in order:
            self.first[u] = len(self.sizes)
            self.sizes += u.shape
        self.parent = list(range(len(self.sizes)))
        self.cuts: dict[Axis, set[int]] = defaultdict(set)
        self.fixed: set[Axis] = set()

    def find(self, axis: Axis) -> Axis:
        parent = self.parent
        while (up := parent[axis]) != axis:
            parent[axis] = axis = parent[up]
        return axis

    def unite(self, a: Axis, b: Axis) -> bool:
        x, y = self.find(a), self.find(b)
        if x == y:
            return False
        self.parent[x] = y
        if x in self.cuts:
            self.cuts[y] |= self.cuts.pop(x)
        if x in self.fixed:
            self.fixed.add(y)
        return True

    def fix(self, axis: Axis) -> None:
        self.fixed.add(self.find(axis))

    def cuts_of(self, axis: Axis) -> Iterable[int]:
        root = self.find(axis)
        return () if root in self.fixed else self.cuts.get(root, ())

    def atoms(self, axis: Axis) -> Shape:
        """Sizes that the axis is split into, outermost first."""
        n = self.sizes[axis]
        if n <= 1 or not (cuts := self.cuts_of(axis)):
            return (n,)
        kept = [1]
        for c in sorted(cuts):
            if c % kept[-1] == 0 and n % c == 0:
                kept.append(c)
        kept.append(n)
        return tuple([kept[k + 1] // kept[k] for k in range(len(kept) - 1)][::-1])


def _same_axes(u: UOp, first: dict[UOp, Axis]) -> Iterable[tuple[Axis, Axis]]:
    """Pairs of axes of u and its sources that are walked together."""
    op, src, mine = u.op, u.src, first[u]
    if op in (Ops.BUFFER, Ops.CONST, Ops.IOTA, Ops.RESHAPE):
        return
    x = first[src[0]]
    if op is Ops.PERMUTE:
        yield from ((mine + i, x + a) for i, a in enumerate(u.arg))
    elif op in (Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.EXPAND):
        sizes = zip(u.shape, src[0].shape, strict=True)
        yield from ((mine + i, x + i) for i, (n, m) in enumerate(sizes) if n == m)
    elif op is Ops.GATHER:
        yield from ((mine + d, x + i) for i, d in enumerate(u.arg.dims) if d >= 0)
        yield from ((mine + i, first[s] + i) for s in src[1:] for i in range(len(u.shape)))
    elif op is Ops.SCATTER:
        yield from ((mine + i, x + d) for i, d in enumerate(u.arg.dims) if d >= 0)
        yield from ((x + i, first[s] + i) for s in src[1:] for i in range(len(s.shape)))
    else:  # elementwise, REDUCE, TUPLE, ITEM, ASSIGN
        for s in src:
            for i in range(min(len(u.shape), len(s.shape))):
                yield mine + i, first[s] + i


def _fixed_axes(u: UOp, first: dict[UOp, Axis]) -> Iterable[Axis]:
    """Axes whose elements are addressed by a window, backwards or by a value, or are scanned."""
    op, mine = u.op, first[u]
    if op in (Ops.PAD, Ops.SHRINK):
        x = first[u.src[0]]
        for i, (n, m) in enumerate(zip(u.shape, u.src[0].shape, strict=True)):
            if n != m:
                yield from (mine + i, x + i)
    elif op is Ops.FLIP:
        yield from (mine + i for i in u.arg)
    elif op is Ops.SCAN:  # it goes along one axis
        yield mine + len(u.shape) - 1
    elif op is Ops.GATHER:
        x = first[u.src[0]]
        yield from (x + i for i, d in enumerate(u.arg.dims) if d < 0)
    elif op is Ops.SCATTER:
        yield from (mine + i for i, d in enumerate(u.arg.dims) if d < 0)


def _spread_cuts(
    classes: _Classes, reshapes: list[tuple[UOp, UOp, list[tuple[range, range]]]]
) -> None:
    first = classes.first
    for _ in range(ROUNDS):
        changed = False
        for x, y, pairs in reshapes:
            for into, of in pairs:
                a = [i for i in into if x.shape[i] != 1]
                b = [j for j in of if y.shape[j] != 1]
                if len(a) <= 1 and len(b) <= 1:
                    if a:
                        changed |= classes.unite(first[x] + a[0], first[y] + b[0])
                    continue
                flat: set[int] = set()
                sides = [(x, into), (y, of)]
                for u, axes in sides:
                    stride = 1
                    for d in reversed(axes):
                        flat |= {stride, *(stride * c for c in classes.cuts_of(first[u] + d))}
                        stride *= u.shape[d]
                for u, axes in sides:
                    stride = 1
                    for d in reversed(axes):
                        n, root = u.shape[d], classes.find(first[u] + d)
                        if root not in classes.fixed:
                            new = {
                                f // stride
                                for f in flat
                                if stride < f < stride * n
                                and f % stride == 0
                                and n % (f // stride) == 0
                            }
                            if not new <= classes.cuts[root]:
                                classes.cuts[root] |= new
                                changed = True
                        stride *= n
        if not changed:
            return


class _Rebuild:
    """The graph with every axis in its atoms."""

    def __init__(self, order: list[UOp], classes: _Classes) -> None:
        self.new: dict[UOp, UOp] = {}
        self.atoms: dict[UOp, list[Shape]] = {}
        for u in order:
            axes = range(classes.first[u], classes.first[u] + len(u.shape))
            self.atoms[u] = [classes.atoms(axis) for axis in axes]
            src = tuple([self.new[s] for s in u.src])
            if all(len(g) == 1 for s in (u, *u.src) for g in self.atoms[s]):
                self.new[u] = rebuilt(u, src)
            else:
                made = self._split(u, src)
                self.new[u] = made if made.origins else inherit(made, u)

    def _shape(self, u: UOp) -> Shape:
        return tuple([n for group in self.atoms[u] for n in group])

    def _places(self, u: UOp, axis: int) -> range:
        """Where the atoms of an axis stand."""
        start = sum(len(g) for g in self.atoms[u][:axis])
        return range(start, start + len(self.atoms[u][axis]))

    def _split(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        shape, op = self._shape(u), u.op
        x = u.src[0] if u.src else u
        groups = self.atoms[u]
        if op is Ops.BUFFER:
            return UOp(Ops.BUFFER, (), ParamArg(u.arg.slot, u.arg.dtype, shape, u.arg.addrspace))
        if op is Ops.IOTA:
            return self._iota(u, shape)
        if op is Ops.RESHAPE:
            return src[0].reshape(shape)
        if op is Ops.EXPAND:
            same = [n == m for n, m in zip(u.shape, x.shape, strict=True)]
            before = [n if keep else 1 for g, keep in zip(groups, same, strict=True) for n in g]
            return src[0].reshape(before).expand(shape)
        if op is Ops.PERMUTE:
            return src[0].permute([p for a in u.arg for p in self._places(x, a)])
        if op is Ops.PAD:
            pads = [
                p if p != (0, 0) else (0, 0) for p, g in zip(u.arg, groups, strict=True) for _ in g
            ]
            return derive(u, src, tuple(pads))
        if op is Ops.SHRINK:
            bounds = [
                (0, n) if (b, e) == (0, m) else (b, e)
                for (b, e), m, g in zip(u.arg, x.shape, groups, strict=True)
                for n in g
            ]
            return src[0].shrink(bounds)
        if op is Ops.FLIP:
            return src[0].flip([p for a in u.arg for p in self._places(u, a)])
        if op is Ops.REDUCE:
            kept = len(x.shape) - u.arg.axes
            closed = sum(len(g) for g in self.atoms[x][kept:])
            return UOp(Ops.REDUCE, src, ReduceArg(u.arg.combine, closed))
        if op is Ops.GATHER:
            dims = self._dims(u.arg.dims, self.atoms[x], u)
            return UOp(Ops.GATHER, src, GatherArg(dims))
        if op is Ops.SCATTER:
            dims = self._dims(u.arg.dims, groups, x)
            return UOp(Ops.SCATTER, src, ScatterArg(shape, dims))
        return derive(u, src)

    def _dims(self, dims: tuple[int, ...], groups: list[Shape], walked: UOp) -> tuple[int, ...]:
        """The dims of a GATHER or SCATTER: an axis in atoms is walked by the atoms of its axis."""
        out: list[int] = []
        for d, group in zip(dims, groups, strict=True):
            if d < 0:
                assert len(group) == 1
                out.append(d)
            else:
                out += self._places(walked, d)
        return tuple(out)

    def _iota(self, u: UOp, shape: Shape) -> UOp:
        total: UOp | None = None
        stride = u.arg.size
        for k, n in enumerate(shape):
            stride //= n
            one = UOp(Ops.IOTA, (), IotaArg(n, u.dtype))
            one = one.reshape([n if j == k else 1 for j in range(len(shape))]).expand(shape)
            one = one if stride == 1 else one * UOp.const(stride, u.dtype)
            total = one if total is None else total + one
        assert total is not None
        return total

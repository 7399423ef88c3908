"""What a choice is made from: sizes, strides, widths and kinds of the axes of an INDEXED graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uopc.dtype import dtypes
from uopc.passes.in_place import is_in_place
from uopc.passes.rangeify import rangeify
from uopc.passes.share import axes_of, folded, is_report, output_axes, reduced_axes, share
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import Combine, Ops, ReduceArg

WIDEST_BYTES = 16
#: accesses with fewer bytes than this part of all, and than these, do not count
SMALL_PART, SMALL_BYTES = 16, 1 << 18


@dataclass(frozen=True)
class Access:
    """One LOAD or STORE of a parameter: its slot, its offset and bytes per element."""

    slot: int
    offset: UOp
    itemsize: int
    store: bool

    @property
    def size_bytes(self) -> int:
        """Bytes that it touches in the whole kernel, each once."""
        return self.itemsize * math.prod(int(r.arg.size) for r in free(self.offset))


@dataclass(frozen=True)
class KernelFacts:
    """An INDEXED graph and what heuristics ask about it.  merge: of its output axes."""

    root: UOp
    merge: tuple[int, ...]
    axes: tuple[UOp, ...]
    outputs: tuple[int, ...]
    reduced: tuple[int, ...]
    reduces: tuple[UOp, ...]
    accesses: tuple[Access, ...]
    sizes: tuple[int, ...] = field(default=())
    scans: tuple[UOp, ...] = field(default=())

    @classmethod
    def of(cls, bodies: Sequence[UOp], outs: Sequence[UOp]) -> KernelFacts:
        """Facts of a kernel; output axes are merged where that costs nothing or fills lanes."""
        plain = cls.of_indexed(share(rangeify(bodies, outs)))
        if any(body.shape != bodies[0].shape for body in bodies):
            return plain
        shape = bodies[0].shape
        merge = _groups(plain, shape)
        if len(merge) == len(shape):
            return plain
        root = share(rangeify(bodies, outs, merge))
        return cls.of_indexed(root, merge)

    @classmethod
    def of_indexed(cls, root: UOp, merge: tuple[int, ...] = ()) -> KernelFacts:
        order = toposort(root)
        axes, reduced = axes_of(root), reduced_axes(root)
        accesses = tuple(
            Access(m.arg.slot, u.src[0].src[1], m.dtype.itemsize, u.op is Ops.STORE)
            for u in order
            if u.op in (Ops.LOAD, Ops.STORE)
            and not is_report(u)
            and (m := memory(u.src[0])).op is Ops.BUFFER
        )
        outputs = tuple(sorted(output_axes(root)))
        sizes = tuple(a.arg.size for a in axes)
        reduces = tuple(u for u in order if u.op is Ops.REDUCE)
        scans = tuple(u for u in order if u.op is Ops.SCAN)
        walked = tuple(sorted(reduced))
        return cls(root, merge, axes, outputs, walked, reduces, accesses, sizes, scans)

    @property
    def scanned(self) -> int | None:
        """The axis that is scanned, where one is."""
        return self.scans[0].src[2].arg.axis if self.scans else None

    def strides(self, axis: int) -> list[tuple[Access, int | None]]:
        """Every access that axis moves, with its stride in elements (None: not affine)."""
        r = self.axes[axis]
        return [(a, ix.coefficient(a.offset, r)) for a in self.accesses if r in free(a.offset)]

    def contiguous(self, axis: int) -> bool:
        """Is most of what this axis moves walked element by element?"""
        bytes_by = {True: 0, False: 0}
        for a, c in self.strides(axis):
            bytes_by[c == 1] += a.size_bytes
        return bytes_by[True] > 0 and bytes_by[True] >= bytes_by[False]

    def vector(self, axis: int) -> int:
        """Widest V <= 16 bytes that every access contiguous along axis can prove; 1 if none is."""
        r = self.axes[axis]
        width = 0
        for a, c in self.strides(axis):
            if c != 1:
                continue
            base = ix.substitute(a.offset, {r: ix.ZERO})
            mine = WIDEST_BYTES // a.itemsize
            while mine > 1 and not ix.divides(mine, base):
                mine //= 2
            width = mine if width == 0 else min(width, mine)
        return max(width, 1)

    def along(self, axis: int) -> list[Access]:
        """Accesses that are contiguous along an axis."""
        return [a for a, c in self.strides(axis) if c == 1]

    def large(self, accesses: Sequence[Access]) -> list[Access]:
        """Those of them whose bytes count: others stay in a cache."""
        least = sum(a.size_bytes for a in self.accesses) // SMALL_PART
        return [a for a in accesses if a.size_bytes >= min(least, SMALL_BYTES)]

    def widest_item(self) -> int:
        """Bytes of the largest element that is loaded or stored."""
        return max((a.itemsize for a in self.accesses), default=4)

    def widest_load(self) -> int:
        """Bytes of the largest element that is loaded."""
        return max((a.itemsize for a in self.accesses if not a.store), default=4)

    def held(self, axis: int) -> bool:
        """Is axis walked again: by a reduction, a scan or STOREs that need what another walk along
        it has come to?  Walks that need nothing of each other are one (`passes/nests.py`)."""
        r = self.axes[axis]
        walks = [u for u in (*self.reduces, *self.scans) if r in u.src[1:]]
        ends = (u for u in self.root.src if u.op is Ops.END and not is_report(u))
        walks += (u for u in ends if r in u.src[1:])
        below = set(toposort(*(s for u in walks for s in u.src[:1])))
        return any(u in below for u in walks)

    def streams(self, axis: int) -> int:
        """How many different loads depend on axis."""
        r = self.axes[axis]
        loads = {(a.slot, a.offset) for a in self.accesses if not a.store and r in free(a.offset)}
        return len(loads)

    def row_streams(self, axis: int) -> int:
        """How many of the loads along axis differ from row to row: weights do not."""
        kept = {self.axes[a] for a in self.outputs if a != axis and self.sizes[a] > 1}
        r = self.axes[axis]
        loads = {(a.slot, a.offset) for a in self.accesses if not a.store and r in free(a.offset)}
        return sum(not kept or not kept.isdisjoint(free(offset)) for _, offset in loads)

    def reuses(self) -> bool:
        """Has a reduction only loads that serve several of its elements, as a product's do?"""
        for u in self.reduces:
            axes = {r for r in (*free(u), *u.src[1:]) if r.arg.size > 1}
            walked = frozenset(u.src[1:])
            loads = [free(x.src[0]) for x in toposort(u.src[0]) if x.op is Ops.LOAD]
            loads = [x for x in loads if walked & x]
            if loads and not any(axes <= x for x in loads):
                return True
        return False

    def product(self) -> tuple[int, int, int] | None:
        """Axes (m, n, k) where the kernel is one sum of products of a value that misses n and one
        that misses m; else None."""
        if len(self.reduced) != 1:
            return None
        k = self.axes[self.reduced[0]]
        for u in self.reduces:
            if u.arg.combine is Combine.ADD and u.src[0].op is Ops.MUL:
                a, b = u.src[0].src
                mine, other = free(a) - free(b), free(b) - free(a)
                if k in free(a) and k in free(b) and mine and other:
                    break
        else:
            return None
        m, n = (max(x, key=lambda r: (r.arg.size, r.arg.axis)) for x in (mine, other))
        if m.arg.axis > n.arg.axis:
            m, n = n, m
        return m.arg.axis, n.arg.axis, k.arg.axis


def _groups(facts: KernelFacts, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of groups of output axes to merge: neighbours that every access walks as one axis, and,
    in elementwise kernels, a last axis that fills its lanes badly."""
    by_place = _axes_by_place(facts, shape)
    joined = [
        i + 1 < len(shape) and _walked_as_one(facts, by_place[i], by_place[i + 1])
        for i in range(len(shape))
    ]
    groups = [1]
    for i in range(len(shape) - 1):
        if joined[i]:
            groups[-1] += 1
        else:
            groups.append(1)
    if not facts.reduces and not facts.scans and len(groups) > 1:
        last = math.prod(shape[len(shape) - groups[-1] :])
        if (
            last % FULL_LANES
            and last < LONG_ENOUGH
            and not _asks_for_tiles(facts, by_place, groups)
        ):
            tail = groups.pop()
            groups[-1] += tail
    return tuple(groups) if shape else ()


#: an axis that is shorter, and no multiple of this many elements, fills its lanes badly
LONG_ENOUGH, FULL_LANES = 2048, 128


def lanes_filled(root: UOp) -> UOp:
    """A kernel whose axes are given, elementwise, with its contiguous axis made longer by the next
    ones where it would fill its lanes badly."""
    while (pair := _short_and_next(KernelFacts.of_indexed(root))) is not None:
        root = folded(root, *pair)
    return root


def _short_and_next(facts: KernelFacts) -> tuple[UOp, UOp] | None:
    """(the next outer axis, the contiguous one) to be one axis, or None."""
    stores = [a.offset for a in facts.accesses if a.store]
    if facts.reduces or facts.scans or len(facts.outputs) < 2 or is_in_place(facts.root):
        return None
    axes = [facts.axes[a] for a in facts.outputs]

    def stepping(step: int) -> UOp | None:
        return next((r for r in axes if all(ix.coefficient(s, r) == step for s in stores)), None)

    inner = stepping(1)
    if inner is None or inner.arg.size % FULL_LANES == 0 or inner.arg.size >= LONG_ENOUGH:
        return None
    outer = stepping(inner.arg.size)
    if outer is None or outer is inner:
        return None
    if any((inner in e.src[1:]) != (outer in e.src[1:]) for e in facts.root.src):
        return None  # what reports may walk one of them alone
    if any(
        worth_a_tile(r.arg.size, inner.arg.size) and turnable(facts, inner.arg.axis, r.arg.axis)
        for r in axes
        if r is not inner
    ):
        return None
    return outer, inner


def _asks_for_tiles(
    facts: KernelFacts, by_place: Sequence[UOp | None], groups: Sequence[int]
) -> bool:
    """Is an access contiguous along another group of axes than the last, and both large enough?"""
    ends = list(itertools.accumulate(groups))
    axes = [
        [r for r in by_place[end - n : end] if r is not None]
        for n, end in zip(groups, ends, strict=True)
    ]
    sizes = [math.prod(r.arg.size for r in group) for group in axes]
    if not axes[-1]:
        return False
    last = axes[-1][-1].arg.axis
    return any(
        worth_a_tile(sizes[n], sizes[-1]) and turnable(facts, last, group[-1].arg.axis)
        for n, group in enumerate(axes[:-1])
        if group
    )


#: shorter axes, and smaller tiles, are left to the caches
SHORTEST_TURNED, SMALLEST_TILE = 16, 1024


def worth_a_tile(x: int, y: int) -> bool:
    """Are two axes of these sizes worth tiles that turn accesses?"""
    return min(x, y) >= SHORTEST_TURNED and x * y >= SMALLEST_TILE


def turnable(facts: KernelFacts, x: int, y: int) -> list[Access]:
    """The large accesses that are contiguous along axis y, and move along x in larger steps."""
    r = facts.axes[x]
    steps = [(a, ix.coefficient(a.offset, r)) for a in facts.along(y) if r in free(a.offset)]
    return facts.large([a for a, c in steps if c not in (None, 0, 1)])


def _axes_by_place(facts: KernelFacts, shape: tuple[int, ...]) -> list[UOp | None]:
    """The range of each output axis; None for axes of one element."""
    ranges = iter(r for r in facts.axes if r.arg.axis in facts.outputs)
    return [next(ranges, None) if n != 1 else None for n in shape]


def _walked_as_one(facts: KernelFacts, a: UOp | None, b: UOp | None) -> bool:
    if a is None or b is None:
        return True
    if any(a in u.src[1:] or b in u.src[1:] for u in (*facts.reduces, *facts.scans)):
        return False
    for x in facts.accesses:
        ca, cb = ix.coefficient(x.offset, a), ix.coefficient(x.offset, b)
        if ca is None or cb is None or ca != cb * b.arg.size:
            return False
    for u in toposort(facts.root):
        indices = (s for s in u.src if s.dtype is dtypes.index and not free(s).isdisjoint((a, b)))
        if u.op in (Ops.LT, Ops.EQ, Ops.NE, Ops.CAST) and next(indices, None) is not None:
            return False
    return True


def pow2_at_least(n: int) -> int:
    """The smallest power of two >= n."""
    return 1 << max(0, n - 1).bit_length()


def pow2_at_most(n: int) -> int:
    """The largest power of two <= n (n >= 1)."""
    return 1 << (n.bit_length() - 1)


def is_float_sum(u: UOp) -> bool:
    """A REDUCE whose error grows with its longest serial chain."""
    arg: ReduceArg = u.arg
    return arg.combine is Combine.ADD and u.dtype.is_float and u.src[0].op is not Ops.MUL


#: float sums: elements that one accumulator adds one after another
LONGEST_CHAIN = 512


def tiles(
    facts: KernelFacts, inner: Mapping[int, int], copies: Mapping[int, int]
) -> dict[int, int]:
    """Tile digits of reduced axes that keep the chains of float sums short: about the square root.

    inner: elements of an axis that its other digits take; copies: those of them that are register
    copies.  A sum over several axes is one chain, and where an output axis has copies too, those
    share its accumulators (`cooperate`) and are in the chain.
    """
    out: dict[int, int] = {}
    for u in filter(is_float_sum, facts.reduces):
        steps = {r.arg.axis: -(-r.arg.size // inner.get(r.arg.axis, 1)) for r in u.src[1:]}
        tile, loop = dict.fromkeys(steps, 1), dict(steps)
        shared = any(n > 1 for a, n in copies.items() if a not in steps)
        chained = math.prod(copies.get(a, 1) for a in steps) if shared else 1
        if math.prod(steps.values()) * chained <= LONGEST_CHAIN:
            continue
        while math.prod(loop.values()) > math.prod(tile.values()) * chained:
            longest = max(loop, key=lambda a: loop[a])
            tile[longest] *= 2
            loop[longest] = -(-steps[longest] // tile[longest])
        out |= {a: max(n, out.get(a, 1)) for a, n in tile.items() if n > 1}
    return out

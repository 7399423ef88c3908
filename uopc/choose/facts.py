"""What a choice is made from: sizes, strides, widths and kinds of the axes of an INDEXED graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uopc.dtype import dtypes
from uopc.passes.rangeify import rangeify
from uopc.passes.share import axes_of, is_report, output_axes, reduced_axes, share
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import Combine, Ops, ReduceArg

WIDEST_BYTES = 16


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
        return cls(root, merge, axes, outputs, tuple(sorted(reduced)), reduces, accesses, sizes)

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

    def widest_item(self) -> int:
        """Bytes of the largest element that is loaded or stored."""
        return max((a.itemsize for a in self.accesses), default=4)

    def held(self, axis: int) -> bool:
        """Is axis walked more than once (by several reductions, or by one and the output)?"""
        r = self.axes[axis]
        walks = sum(r in u.src[1:] for u in self.reduces)
        stored = any(u.op is Ops.END and r in u.src[1:] and not is_report(u) for u in self.root.src)
        return walks + stored > 1

    def streams(self, axis: int) -> int:
        """How many different loads depend on axis."""
        r = self.axes[axis]
        loads = {(a.slot, a.offset) for a in self.accesses if not a.store and r in free(a.offset)}
        return len(loads)

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
    if not facts.reduces and len(groups) > 1:
        last = math.prod(shape[len(shape) - groups[-1] :])
        if last % 128 and last < 2048:
            tail = groups.pop()
            groups[-1] += tail
    return tuple(groups) if shape else ()


def _axes_by_place(facts: KernelFacts, shape: tuple[int, ...]) -> list[UOp | None]:
    """The range of each output axis; None for axes of one element."""
    ranges = iter(r for r in facts.axes if r.arg.axis in facts.outputs)
    return [next(ranges, None) if n != 1 else None for n in shape]


def _walked_as_one(facts: KernelFacts, a: UOp | None, b: UOp | None) -> bool:
    if a is None or b is None:
        return True
    if any(a in u.src[1:] or b in u.src[1:] for u in facts.reduces):
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

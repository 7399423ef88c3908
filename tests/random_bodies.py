"""Random kernels whose axes are given, as a schedule makes them, with arrays.

Values over subsets of a few kernel axes: several outputs of different shapes, REDUCEs that are
mapped or not, GATHERs and SCATTERs with stray indices, outputs written in place.  Integers and
floats on a coarse grid, so that every order of a sum gives the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.kernel import KernelBody, Output
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Combine, Ops

SIZES = (1, 2, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33)
DTYPES = (dtypes.i32, dtypes.i32, dtypes.f32, dtypes.f32, dtypes.i64, dtypes.u8, dtypes.f16)
MOST_ELEMENTS = 3000  # of all axes together


@dataclass(frozen=True)
class Value:
    """A node whose dimensions are these kernel axes."""

    node: UOp
    axes: tuple[int, ...]


@dataclass(frozen=True)
class BodyCase:
    """A kernel and the arrays that it reads, by slot."""

    body: KernelBody
    arrays: dict[int, Array]

    def filled(self) -> dict[int, Array]:
        """Copies of the arrays, garbage for what is only written, no error yet."""
        out = {slot: x.copy() for slot, x in self.arrays.items()}
        for o in self.body.outputs:
            a = o.memory.arg
            if a.slot not in out:
                out[a.slot] = np.full(a.shape, 77, a.dtype.numpy)
        if self.body.errors is not None:
            out[self.body.errors.arg.slot] = np.zeros(1, np.uint64)
        return out


@dataclass
class BodyBuilder:
    """Draws one value after another."""

    rng: random.Random
    sizes: list[int] = field(default_factory=list)
    leaves: list[Value] = field(default_factory=list)
    arrays: dict[int, Array] = field(default_factory=dict)
    mapped: dict[UOp, tuple[int, ...]] = field(default_factory=dict)
    named: list[UOp] = field(default_factory=list)  # GATHERs and SCATTERs

    def chance(self, percent: int) -> bool:
        return self.rng.randint(0, 99) < percent

    # ---- leaves
    def parameter(self, shape: tuple[int, ...], dtype: DType, low: int = -8, high: int = 8) -> UOp:
        u = buffer(len(self.arrays), dtype, shape or (1,))
        rng = np.random.default_rng(self.rng.randint(0, 2**31))
        whole = rng.integers(max(low, 0 if dtype.min == 0 else low), high + 1, u.arg.shape)
        self.arrays[u.arg.slot] = (whole / 4 if dtype.is_float else whole).astype(dtype.numpy)
        return u.reshape(shape)

    def leaf(self, axes: Sequence[int], dtype: DType) -> Value:
        axes = tuple(axes)
        again = [v for v in self.leaves if v.node.dtype is dtype and set(v.axes) == set(axes)]
        if again and self.chance(50):
            return self.rng.choice(again)
        shape = tuple(self.sizes[a] for a in axes)
        if self.chance(8):
            places = UOp.arange(prod(shape), dtypes.i32).reshape(shape)
            return Value(places.cast(dtype), axes)
        if self.chance(75):
            made = Value(self.parameter(shape, dtype), axes)
            self.leaves.append(made)
            return made
        return Value(self.view(shape, dtype), axes)

    def view(self, shape: tuple[int, ...], dtype: DType) -> UOp:
        """A parameter of another shape, seen in this one."""
        rng = self.rng
        kind = rng.choice(("pad", "shrink", "flip", "permute"))
        if kind == "pad":
            pads = [(rng.randint(0, min(2, n - 1)), 0) for n in shape]
            small = tuple(n - b for n, (b, _) in zip(shape, pads, strict=True))
            return self.parameter(small, dtype).pad(pads, 1)
        if kind == "shrink":
            cut = [rng.randint(0, 2) for _ in shape]
            big = tuple(n + c for n, c in zip(shape, cut, strict=True))
            inside = [(c, c + n) for n, c in zip(shape, cut, strict=True)]
            return self.parameter(big, dtype).shrink(inside)
        if kind == "flip":
            return self.parameter(shape, dtype).flip(
                [a for a in range(len(shape)) if self.chance(50)]
            )
        order = list(range(len(shape)))
        rng.shuffle(order)
        inner = [0] * len(shape)
        for place, a in enumerate(order):
            inner[a] = shape[place]
        return self.parameter(tuple(inner), dtype).permute(order)

    # ---- values
    def seen(self, v: Value, axes: Sequence[int]) -> UOp:
        """v over more axes, in this order."""
        order = [a for a in axes if a in v.axes]
        x = v.node.permute([v.axes.index(a) for a in order])
        x = x.reshape([self.sizes[a] if a in v.axes else 1 for a in axes])
        return x.expand([self.sizes[a] for a in axes])

    def some_axes(self, most: int | None = None) -> list[int]:
        axes = [a for a in range(len(self.sizes)) if self.chance(65)]
        self.rng.shuffle(axes)
        return axes[:most]

    def value(self, axes: Sequence[int], dtype: DType, depth: int) -> Value:
        """A value over these axes, in any order."""
        rng = self.rng
        if depth <= 0 or self.chance(10):
            return self.leaf(axes, dtype)
        kind = rng.choice(("binary", "binary", "less", "reduce", "reduce", "gather", "scatter"))
        if kind == "less":
            inner = self.value([a for a in axes if self.chance(60)], dtype, depth - 1)
            return Value(self.seen(inner, axes), tuple(axes))
        if kind == "reduce":
            return self.reduction(axes, dtype, depth - 1)
        if kind == "gather" and axes:
            return self.gathered(axes, dtype, depth - 1)
        if kind == "scatter" and axes and dtype is not dtypes.u8:
            return self.scattered(axes, dtype, depth - 1)
        x = self.seen(self.value(axes, dtype, depth - 1), axes)
        y = self.seen(self.value(axes, dtype, depth - 1), axes)
        op = rng.choice((Ops.ADD, Ops.SUB, Ops.MAX, Ops.MIN))
        out = UOp(op, (x, y))
        if self.chance(20):
            out = (x < y).where(x, y * 2)
        # the grid stays coarse: f16 and sums of f32 are exact
        limit = 16 if dtype.is_float else 100
        return Value(out.minimum(limit).maximum(0 if dtype.min == 0 else -limit), tuple(axes))

    def reduction(self, axes: Sequence[int], dtype: DType, depth: int) -> Value:
        others = [a for a in range(len(self.sizes)) if a not in axes]
        last = [a for a in others if self.chance(60)] or others[:1]
        if not last:
            return self.leaf(axes, dtype)
        kept = list(axes)
        self.rng.shuffle(kept)
        whole = (*kept, *last)
        x = self.seen(self.value(whole, dtype, depth), whole)
        if dtype is dtypes.f16:
            x = x.maximum(-1).minimum(1)
        combine = self.rng.choice((Combine.ADD, Combine.ADD, Combine.MAX, Combine.MIN))
        out = x.reduce(combine, len(last))
        if self.chance(80):
            self.mapped[out] = tuple(a if self.sizes[a] > 1 else -1 for a in whole)
        return Value(out, tuple(kept))

    def indices(self, axes: Sequence[int], size: int) -> UOp:
        """Integers over some of the axes that name elements, now and then none."""
        dtype = self.rng.choice((dtypes.i32, dtypes.i64, dtypes.u8, dtypes.i8, dtypes.u32))
        stray = 3 if self.chance(25) else 0
        low, high = -size - stray, size - 1 + stray
        mine = [a for a in axes if self.chance(70)]
        shape = tuple(self.sizes[a] for a in mine)
        named = Value(self.parameter(shape, dtype, max(low, int(dtype.min)), high), tuple(mine))
        return self.seen(named, axes)

    def gathered(self, axes: Sequence[int], dtype: DType, depth: int) -> Value:
        rng, shape = self.rng, [self.sizes[a] for a in axes]
        walked = [j for j in range(len(axes)) if self.chance(40)]
        count = rng.randint(1, 2)
        dims = [*walked, *(~k for k in range(count))]
        rng.shuffle(dims)
        lengths = [rng.choice((1, 3, 10)) for _ in range(count)]
        whole = tuple(shape[j] if j >= 0 else lengths[~j] for j in dims)
        x = self.parameter(whole, dtype)
        if self.chance(30):
            x = x.maximum(0)
        index = [self.indices(axes, n) for n in lengths]
        out = x.gather(dims, *index)
        self.named.append(out)
        return Value(out, tuple(axes))

    def scattered(self, axes: Sequence[int], dtype: DType, depth: int) -> Value:
        """Values over other axes are added at places along one or two of these."""
        rng = self.rng
        at = rng.sample(list(axes), min(len(axes), rng.choice((1, 1, 2))))
        walked = [a for a in axes if a not in at]
        others = [a for a in range(len(self.sizes)) if a not in axes and self.chance(60)]
        free = rng.randint(1, 6)
        inner = [*walked, *others]
        rng.shuffle(inner)
        values = self.seen(self.value(inner, dtype, depth), inner)
        if dtype is dtypes.f16:
            values = values.maximum(-1).minimum(1)
        shape = [self.sizes[a] for a in inner]
        values = values.reshape((*shape, 1)).expand((*shape, free))
        index = []
        for a in at:
            named = self.indices(inner, self.sizes[a])
            more = self.parameter((free,), named.dtype, 0, 1).reshape((1,) * len(shape) + (free,))
            index.append(
                named.reshape((*shape, 1)).expand(values.shape) + more.expand(values.shape)
            )
        dims = [inner.index(a) if a in walked else ~at.index(a) for a in axes]
        out = values.scatter([self.sizes[a] for a in axes], dims, *index)
        self.named.append(out)
        return Value(out, tuple(axes))

    # ---- kernels
    def plain(self, v: Value) -> UOp | None:
        """A parameter of v's dtype and shape, preferably one that is read."""
        shape = v.node.shape or (1,)
        old = [memory_of(u.node) for u in self.leaves]
        fits = [m for m in old if (m.shape, m.dtype) == (shape, v.node.dtype)]
        if fits and self.chance(80):
            return self.rng.choice(fits)
        return memory_of(self.parameter(v.node.shape, v.node.dtype))

    def with_sums(self, v: Value) -> Value:
        """v, or its maximum with that of a parameter along other axes, which may be overwritten."""
        rows = [
            u
            for u in self.leaves
            if u.node.dtype is v.node.dtype and set(u.axes) > set(v.axes) and self.chance(70)
        ]
        if not rows or self.chance(40):
            return v
        row = self.rng.choice(rows)
        whole = (*v.axes, *(a for a in row.axes if a not in v.axes))
        top = self.seen(row, whole).reduce(Combine.MAX, len(whole) - len(v.axes))
        self.mapped[top] = tuple(a if self.sizes[a] > 1 else -1 for a in whole)
        return Value(v.node.maximum(top), v.axes)

    def case(self) -> BodyCase:
        rng = self.rng
        for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
            fits = [n for n in SIZES if n * prod(self.sizes) <= MOST_ELEMENTS]
            self.sizes.append(rng.choice(fits))
        values = []
        dtype = rng.choice(DTYPES)
        for _ in range(rng.choice((1, 2, 2, 3))):
            dtype = rng.choice(DTYPES) if self.chance(40) else dtype
            values.append(self.value(self.some_axes(), dtype, rng.randint(1, 4)))
        return self.stored(values)

    def stored(self, values: Sequence[Value]) -> BodyCase:
        """The kernel that stores the values, some of them over what it reads."""
        outputs: list[Output] = []
        axes = dict(self.mapped)
        taken: set[int] = set()
        for v in map(self.with_sums, values):
            node, memory = v.node, None
            mine = self.plain(v) if self.chance(60) else None
            if mine is not None and mine.arg.slot not in taken:
                memory = mine
                if self.chance(60):
                    node = node.maximum(mine.reshape(node.shape))
            if node.op in (Ops.BUFFER, Ops.RESHAPE):
                node = node + 1
            if memory is None:
                memory = buffer(1000 + len(outputs), node.dtype, node.shape or (1,))
            taken.add(memory.arg.slot)
            outputs.append(Output(node, memory))
            if node.op is not Ops.REDUCE or node not in axes:
                axes[node] = tuple(a if self.sizes[a] > 1 else -1 for a in v.axes)
        used = set(toposort(*[o.value for o in outputs]))
        checked = frozenset(u for u in self.named if u in used and self.chance(80))
        errors = buffer(2000, dtypes.u64, (1,)) if checked else None
        axes = {u: a for u, a in axes.items() if u in used}
        body = KernelBody(tuple(outputs), tuple(self.sizes), axes, checked, errors)
        read = {u.arg.slot for u in used if u.op is Ops.BUFFER}
        return BodyCase(body, {s: x for s, x in self.arrays.items() if s in read})


def memory_of(leaf: UOp) -> UOp:
    """The BUFFER of a parameter."""
    return leaf if leaf.op is Ops.BUFFER else leaf.src[0]


def random_body(rng: random.Random) -> BodyCase:
    """One kernel; the same draws give the same one."""
    return BodyBuilder(rng).case()

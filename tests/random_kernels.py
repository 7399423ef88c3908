"""Random bodies with arrays and Opts, and what to hold the results against.

One generator serves hypothesis (`st.randoms(use_true_random=False)` shrinks its draws) and
`scratch/fuzz_kernels.py` (`random.Random`).

Most kernels are *exact*: every device gives the oracle's bits.  Float sums are then taken only over
values on a grid (multiples of `unit`, at most `bound`), whose sums are exact in f32 whatever the
order.  Other kernels end in one float sum, or one transcendental, of arbitrary values and are
compared within the stated bound.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tests.helpers import special
from uopc.dtype import FLOATS, FP8, SIGNED, UNSIGNED, DType, Kind, dtypes
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import TRANSCENDENTAL, Combine, Ops

Shape: TypeAlias = tuple[int, ...]
SIZES = (1, 1, 2, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 48, 64, 97, 128, 200)
INTEGERS = (*SIGNED, *UNSIGNED)
COMPUTED = (dtypes.bool, *INTEGERS, *FLOATS)
EXACT_F32 = 1 << 24  # sums of so many units are exact in f32
#: ulps that C's functions, and their emulation, may be away from the oracle's rounded f64 result
ULPS = 4


@dataclass(frozen=True)
class Grid:
    """Floats that are multiples of unit and at most bound in size."""

    unit: float
    bound: float


@dataclass(frozen=True)
class Case:
    """Bodies over the arrays by slot.  check: "exact", "sum" (the root is a float sum) or "ulp"."""

    bodies: tuple[UOp, ...]
    arrays: dict[int, Array]
    check: str


@dataclass
class Builder:
    """Draws one value after another; `arrays` are the parameters made on the way."""

    rng: random.Random
    most: int = 3000
    arrays: dict[int, Array] = field(default_factory=dict)
    grids: dict[UOp, Grid] = field(default_factory=dict)
    clean: set[UOp] = field(default_factory=set)  # parameters without NaN, whose bits may be read
    leaves: list[UOp] = field(default_factory=list)

    def chance(self, percent: int) -> bool:
        return self.rng.randint(0, 99) < percent

    # ---- shapes
    def shape(self, most: int | None = None) -> Shape:
        most = most or self.most
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6))
        out: list[int] = []
        for _ in range(rank):
            fits = [n for n in SIZES if n * prod(out) <= most and (rank < 5 or n <= 5)]
            out.append(self.rng.choice(fits))
        if self.chance(2) and out:
            out[self.rng.randint(0, rank - 1)] = 0
        return tuple(out)

    def extra(self, shape: Shape) -> Shape:
        """Axes to reduce after those of shape."""
        out: list[int] = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            fits = [n for n in SIZES if n * prod(out) * max(1, prod(shape)) <= 4 * self.most]
            out.append(self.rng.choice(fits or (1,)))
        return tuple(out)

    # ---- leaves
    def leaf(self, shape: Shape, dtype: DType, grid: bool) -> UOp:
        """A parameter, a constant or an iota of this shape."""
        rng = self.rng
        if self.chance(12):
            value = (
                rng.choice((0, 1, 2, 3))
                if not dtype.is_float
                else rng.choice((0.0, 1.0, -2.0, 0.5))
            )
            u = UOp.const(bool(value) if dtype is dtypes.bool else value, dtype)
            self.grids[u] = Grid(0.5, 2.0)
            return u
        if self.chance(6) and dtype is not dtypes.bool and len(shape) and not (dtype.bits < 32):
            n = shape[-1]
            u = UOp.arange(n, dtypes.i32).reshape((1,) * (len(shape) - 1) + (n,)).expand(shape)
            u = u if dtype is dtypes.i32 else u.cast(dtype)
            self.grids[u] = Grid(1.0, float(max(n, 1)))
            return u
        again = [u for u in self.leaves if u.dtype is dtype and prod(u.shape) == prod(shape)]
        again = [u for u in again if (u in self.grids) >= grid]
        if again and self.chance(40):
            u = rng.choice(again)
            found = u.reshape(shape)
            self._inherit(found, u)
            return found
        if self.chance(5) and dtype not in FP8:
            u = buffer(len(self.arrays), dtype, ())
            self.arrays[u.arg.slot] = self._data(dtype, 1, grid).reshape(())
        else:
            u = buffer(len(self.arrays), dtype, shape if shape else (1,)).reshape(shape)
            self.arrays[len(self.arrays)] = self._data(dtype, prod(shape), grid).reshape(shape)
        if grid and dtype.is_float:
            self.grids[u] = Grid(0.25, 4.0)
        if grid:
            self.clean.add(u)
        self.leaves.append(u)
        return u

    def _data(self, dtype: DType, size: int, grid: bool) -> Array:
        seed = self.rng.randint(0, 2**31)
        rng = np.random.default_rng(seed)
        if dtype is dtypes.bool:
            return rng.integers(0, 2, size).astype(bool)
        if dtype.is_float:
            if grid:
                return (rng.integers(-16, 17, size) / 4).astype(dtype.numpy)
            x = rng.standard_normal(size).astype(dtype.numpy)
        else:
            x = rng.integers(max(dtype.min, -100), min(dtype.max, 100) + 1, size).astype(
                dtype.numpy
            )
        hard = special(dtype)
        at = rng.random(size) < (0.15 if self.chance(70) else 0.9)
        return np.where(at, hard[rng.integers(0, len(hard), size)], x).astype(dtype.numpy)

    def _inherit(self, new: UOp, old: UOp) -> None:
        if old in self.grids:
            self.grids[new] = self.grids[old]
        if old in self.clean:
            self.clean.add(new)

    # ---- views
    def view(self, shape: Shape, dtype: DType, depth: int, grid: bool) -> UOp:
        """A value of this shape seen through a movement op."""
        rng, rank = self.rng, len(shape)
        kind = rng.choice(("reshape", "expand", "permute", "shrink", "pad", "flip"))
        if kind == "permute" and rank > 1:
            axes = list(range(rank))
            rng.shuffle(axes)
            inner = [0] * rank
            for place, a in enumerate(axes):
                inner[a] = shape[place]
            return self._moved(
                self.full(tuple(inner), dtype, depth, grid), lambda x: x.permute(axes)
            )
        if kind == "expand" and rank:
            small = tuple(1 if self.chance(50) else n for n in shape)
            return self._moved(self.full(small, dtype, depth, grid), lambda x: x.expand(shape))
        if kind == "flip" and rank:
            some = [a for a in range(rank) if self.chance(60)]
            return self._moved(self.full(shape, dtype, depth, grid), lambda x: x.flip(some))
        if kind == "shrink" and rank and prod(shape) * 2**rank <= 4 * self.most:
            cut = [
                (rng.randint(0, 3), rng.randint(0, 3)) if self.chance(60) else (0, 0) for _ in shape
            ]
            big = tuple(b + n + e for n, (b, e) in zip(shape, cut, strict=True))
            inside = [(b, b + n) for n, (b, _) in zip(shape, cut, strict=True)]
            return self._moved(self.full(big, dtype, depth, grid), lambda x: x.shrink(inside))
        if kind == "pad" and rank:
            pads = []
            for n in shape:
                before = rng.randint(0, min(n, 3)) if self.chance(60) else 0
                pads.append((before, rng.randint(0, min(n - before, 3)) if self.chance(60) else 0))
            small = tuple(n - b - a for n, (b, a) in zip(shape, pads, strict=True))
            fill = rng.choice((0, 0, 1, 2))
            padded = self.full(small, dtype, depth, grid)
            value = bool(fill) if dtype is dtypes.bool else fill
            return self._moved(padded, lambda x: x.pad(pads, value))
        return self._moved(
            self.full(self._factored(shape), dtype, depth, grid), lambda x: x.reshape(shape)
        )

    def _factored(self, shape: Shape) -> Shape:
        """Another shape with as many elements."""
        if prod(shape) == 0:
            return shape
        factors = [p for n in shape for p in _primes(n)]
        if self.chance(30):
            self.rng.shuffle(factors)
        out: list[int] = []
        for p in factors:
            if out and self.chance(60):
                out[-1] *= p
            else:
                out.append(p)
        if self.chance(20):
            out.insert(self.rng.randint(0, len(out)), 1)
        return tuple(out)

    def _moved(self, inner: UOp, move) -> UOp:  # type: ignore[no-untyped-def]  # a local lambda
        out: UOp = move(inner)
        if inner in self.grids:
            g = self.grids[inner]
            self.grids[out] = Grid(g.unit, max(g.bound, 2.0))
        if inner in self.clean:
            self.clean.add(out)
        return out

    # ---- values
    def value(self, shape: Shape, dtype: DType, depth: int, grid: bool = False) -> UOp:
        """A value of this shape and dtype; grid: its floats, and those below, stay on a grid."""
        if depth <= 0 or self.chance(8):
            return self.leaf(shape, dtype, grid)
        if self.chance(40):
            return self.view(shape, dtype, depth - 1, grid)
        if self.chance(28):
            return self.reduction(shape, dtype, depth - 1, grid)
        if dtype.storage:
            return self.value(shape, dtypes.f32, depth - 1, grid).cast(dtype)
        if dtype is dtypes.bool:
            return self.boolean(shape, depth - 1, grid)
        if self.chance(15):
            c = self.value(shape, dtypes.bool, depth - 1, grid)
            x, y = (
                self.value(shape, dtype, depth - 1, grid),
                self.value(shape, dtype, depth - 1, grid),
            )
            return self._joined(c.where(x, y), x, y)
        if self.chance(20):
            return self.converted(shape, dtype, depth - 1, grid)
        return self.arithmetic(shape, dtype, depth - 1, grid)

    def full(self, shape: Shape, dtype: DType, depth: int, grid: bool = False) -> UOp:
        """A value of exactly this shape: scalars are repeated."""
        u = self.value(shape, dtype, depth, grid)
        return u if u.shape == shape else self._moved(u, lambda x: full(x, shape))

    def _joined(self, out: UOp, x: UOp, y: UOp) -> UOp:
        if x in self.grids and y in self.grids:
            a, b = self.grids[x], self.grids[y]
            self.grids[out] = Grid(min(a.unit, b.unit), max(a.bound, b.bound))
        return out

    def boolean(self, shape: Shape, depth: int, grid: bool) -> UOp:
        rng = self.rng
        if self.chance(40):
            a, b = (
                self.value(shape, dtypes.bool, depth, grid),
                self.value(shape, dtypes.bool, depth, grid),
            )
            kind = rng.choice(("and", "or", "xor", "not", "max", "lt"))
            return {
                "and": a & b,
                "or": a | b,
                "xor": a ^ b,
                "not": ~a,
                "max": a.maximum(b),
                "lt": a < b,
            }[kind]
        dtype = rng.choice(COMPUTED[1:])
        a, b = self.value(shape, dtype, depth, grid), self.value(shape, dtype, depth, grid)
        return rng.choice((a < b, a > b, a <= b, a.eq(b), a.ne(b), a.cast(dtypes.bool)))

    def converted(self, shape: Shape, dtype: DType, depth: int, grid: bool) -> UOp:
        """A cast or a bitcast from another dtype."""
        same = [d for d in (*INTEGERS, *FLOATS) if d.bits == dtype.bits and d is not dtype]
        if not grid and self.chance(15) and same:
            source = self.rng.choice(same)
            x = self.leaf(shape, source, True)  # NaN's bits are not the same everywhere
            return x.bitcast(dtype)
        if grid and dtype.is_float:
            x = self.value(
                shape, self.rng.choice((dtypes.bool, dtypes.f16, dtypes.f32)), depth, True
            )
            out = x.cast(dtype)
            g = Grid(1.0, 1.0) if x.dtype is dtypes.bool else self.grids.get(x)
            if g is not None and (dtype.bits > 16 or g.bound / g.unit <= 128):
                self.grids[out] = g
            return out
        sources = [d for d in (*COMPUTED, *FP8) if d is not dtype]
        return self.value(shape, self.rng.choice(sources), depth, grid).cast(dtype)

    def arithmetic(self, shape: Shape, dtype: DType, depth: int, grid: bool) -> UOp:
        rng = self.rng
        x = self.value(shape, dtype, depth, grid)
        y = self.value(shape, dtype, depth, grid)
        if dtype.is_float:
            if grid:
                return self.on_grid(x, y)
            return self._float(x, y)
        out = rng.choice(
            (
                Ops.ADD,
                Ops.SUB,
                Ops.MUL,
                Ops.IDIV,
                Ops.MOD,
                Ops.MAX,
                Ops.MIN,
                Ops.AND,
                Ops.OR,
                Ops.XOR,
                Ops.SHL,
                Ops.SHR,
                Ops.NEG,
                Ops.NOT,
            )
        )
        if out in (Ops.SHL, Ops.SHR):
            amount = y & (dtype.bits - 1)
            return x << amount if out is Ops.SHL else x >> amount
        if out is Ops.NEG:
            return -x
        if out is Ops.NOT:
            return ~x
        if out in (Ops.IDIV, Ops.MOD) and self.chance(40):
            d = rng.choice((1, 2, 3, 7, 8, 100)) * (-1 if dtype.min and self.chance(40) else 1)
            return x // d if out is Ops.IDIV else x % d
        return UOp(out, (x, y))

    def _float(self, x: UOp, y: UOp) -> UOp:
        pick = self.rng.choice
        kind = pick(
            ("ADD", "SUB", "MUL", "DIV", "MAX", "MIN", "NEG", "SQRT", "FMA", "ROUND", "CONST")
        )
        if kind == "NEG":
            return -x
        if kind == "SQRT":
            return x.sqrt()
        if kind == "FMA":
            return x.fma(y, x)
        if kind == "ROUND":
            return pick((x.trunc(), x.floor(), x.ceil(), x.rint()))
        if kind == "CONST":
            return pick(
                (
                    x * 2.0,
                    x + 1.0,
                    x / 3.0,
                    1.0 / x,
                    x - 0.1,
                    x * -0.0,
                    x.maximum(0.0),
                    x + float("inf"),
                )
            )
        return UOp(Ops[kind], (x, y))

    def on_grid(self, x: UOp, y: UOp) -> UOp:
        """An op whose result is on a grid again, if x and y are."""
        a, b = self.grids.get(x), self.grids.get(y)
        kind = self.rng.choice(("ADD", "SUB", "MUL", "MAX", "MIN", "NEG", "ROUND"))
        out: UOp
        if kind == "NEG":
            out, g = -x, a
        elif kind == "ROUND":
            out, g = (
                self.rng.choice((x.trunc(), x.floor(), x.ceil(), x.rint())),
                a and Grid(1.0, a.bound + 1),
            )
        else:
            out, g = UOp(Ops[kind], (x, y)), None
            if a and b:
                if kind == "MUL":
                    g = Grid(a.unit * b.unit, a.bound * b.bound)
                elif kind in ("MAX", "MIN"):
                    g = Grid(min(a.unit, b.unit), max(a.bound, b.bound))
                else:
                    g = Grid(min(a.unit, b.unit), a.bound + b.bound)
        limit = {dtypes.f16: 1 << 10, dtypes.bf16: 1 << 7}.get(x.dtype, EXACT_F32)
        if g and g.bound / g.unit <= limit:
            self.grids[out] = g
        return out

    def reduction(self, shape: Shape, dtype: DType, depth: int, grid: bool) -> UOp:
        """A reduced value of this shape, or one that is broadcast back over a row."""
        rng = self.rng
        back = len(shape) > 0 and prod(shape[-1:]) > 0 and self.chance(45)
        n = rng.randint(1, len(shape)) if back else 0
        last = shape[len(shape) - n :] if back else self.extra(shape)
        kept = shape[: len(shape) - n] if back else shape
        whole = (*kept, *last)
        if prod(last) == 0:
            return self.leaf(shape, dtype, grid)
        if dtype in (dtypes.i32,) and self.chance(40):
            source = rng.choice(COMPUTED)
            x = self.full(whole, source, depth, grid)
            out = rng.choice((x.argmax(len(last)), x.argmin(len(last))))
        else:
            combines = self._combines(dtype)
            if not combines:
                return self.leaf(shape, dtype, grid)
            combine = rng.choice(combines)
            if combine is Combine.MUL and dtype.is_float:
                c = self.full(whole, dtypes.bool, depth, grid)
                powers = prod(last) <= 60
                x = c.where(
                    UOp.const(2.0 if powers else 1.0, dtype),
                    UOp.const(-0.5 if powers else -1.0, dtype),
                )
                out = x.reduce(combine, len(last))
            else:
                sums = combine is Combine.ADD and dtype.is_float
                x = self.full(whole, dtype, depth, grid or sums)
                g = self.grids.get(x)
                if sums and not (g and g.bound / g.unit * prod(last) <= EXACT_F32):
                    combine, sums = Combine.MAX, False
                out = x.reduce(combine, len(last))
                if g and not sums:
                    self.grids[out] = g
                elif g and (dtype.bits > 16):
                    self.grids[out] = Grid(g.unit, g.bound * prod(last))
        if not back:
            return out
        spread = out.reshape((*kept, *(1 for _ in last))).expand(shape)
        if out in self.grids:
            self.grids[spread] = self.grids[out]
        return spread

    # ---- kernels of a known form
    def views(self, dtype: DType, n: int) -> UOp:
        """A chain of n movement ops, and arithmetic between the first and the last of them."""
        shape = self.shape()
        x = self.leaf(shape, dtype, False)
        seen = [full(x, shape)]
        for _ in range(n):
            x = self._one_view(seen[-1])
            seen.append(x)
        same = [u for u in seen[:-1] if u.shape == x.shape]
        if same and not dtype.storage:
            y = self.rng.choice(same)
            return (
                x.maximum(y)
                if self.chance(50)
                else x.eq(y).where(x, self.leaf(x.shape, dtype, False))
            )
        return x

    def _one_view(self, x: UOp) -> UOp:
        rng, shape = self.rng, x.shape
        kind = rng.choice(("reshape", "reshape", "expand", "permute", "shrink", "pad", "flip"))
        if kind == "permute" and len(shape) > 1:
            axes = list(range(len(shape)))
            rng.shuffle(axes)
            return x.permute(axes)
        if kind == "expand" and 1 in shape and prod(shape) <= self.most // 4:
            return x.expand([rng.choice((1, 2, 3)) if n == 1 else n for n in shape])
        if kind == "flip":
            return x.flip([a for a in range(len(shape)) if self.chance(50)])
        if kind == "shrink" and prod(shape):
            inside = []
            for n in shape:
                begin = rng.randint(0, min(2, n - 1))
                inside.append((begin, n - rng.randint(0, min(2, n - 1 - begin))))
            return x.shrink(inside)
        if kind == "pad" and prod(n + 4 for n in shape) <= 2 * self.most:
            fill = rng.choice((0, 1)) if x.dtype is not dtypes.bool else bool(rng.randint(0, 1))
            if x.dtype.storage:
                return x.pad([(rng.randint(0, 2), rng.randint(0, 2)) for _ in shape])
            return x.pad([(rng.randint(0, 2), rng.randint(0, 2)) for _ in shape], fill)
        return x.reshape(self._factored(shape))

    def product(self) -> UOp:
        """(m, k) by (k, n), either operand transposed, on a grid: exact sums."""
        rng, dtype = (
            self.rng,
            self.rng.choice(
                (dtypes.f32, dtypes.f32, dtypes.f16, dtypes.f64, dtypes.i32, dtypes.u8)
            ),
        )
        m, n, k = (rng.choice((1, 3, 8, 16, 17, 32, 33)) for _ in range(3))
        batch = rng.choice((1, 1, 2))
        a = self.leaf((batch, m, k) if self.chance(50) else (batch, k, m), dtype, True)
        b = self.leaf((batch, n, k) if self.chance(50) else (batch, k, n), dtype, True)
        a = full(a, (batch, m, k)) if a.shape in ((), (batch, m, k)) else a.permute((0, 2, 1))
        b = full(b, (batch, n, k)) if b.shape in ((), (batch, n, k)) else b.permute((0, 2, 1))
        whole = (batch, m, n, k)
        x = a.reshape((batch, m, 1, k)).expand(whole) * b.reshape((batch, 1, n, k)).expand(whole)
        out = x.reduce(Ops.ADD, 1)
        return (
            out.maximum(full(self.leaf((n,), dtype, True), (batch, m, n)))
            if self.chance(40)
            else out
        )

    def rows(self) -> UOp:
        """Softmax, log-sum-exp or a normalised row: reductions that follow each other."""
        rng, dtype = self.rng, self.rng.choice(FLOATS)
        m, n = rng.choice((1, 2, 5, 33)), rng.choice((1, 7, 32, 100, 257, 1000, 1024))
        slot = len(self.arrays)
        values = np.random.default_rng(rng.randint(0, 2**31)).uniform(0.5, 2.0, (m, n))
        self.arrays[slot] = values.astype(dtype.numpy)
        x = buffer(slot, dtype, (m, n))
        if self.chance(30):
            x = x.permute((1, 0)).reshape((n, m)).permute((1, 0))

        def back(y: UOp) -> UOp:
            return y.reshape((m, 1)).expand((m, n))

        e = (x - back(x.reduce(Ops.MAX, 1))).exp()
        kind = rng.choice(("softmax", "logsumexp", "norm"))
        if kind == "softmax":
            return e / back(e.reduce(Ops.ADD, 1))
        if kind == "logsumexp":
            return e.reduce(Ops.ADD, 1).log() + x.reduce(Ops.MAX, 1) + 1.0
        return x / back((x * x).reduce(Ops.ADD, 1).sqrt())

    def _combines(self, dtype: DType) -> list[Combine]:
        if dtype.storage:
            return []
        if dtype is dtypes.bool:
            return [Combine.MAX, Combine.MIN, Combine.AND, Combine.OR, Combine.XOR]
        if dtype.is_float:
            return [Combine.ADD, Combine.ADD, Combine.MAX, Combine.MIN, Combine.MUL]
        return [
            Combine.ADD,
            Combine.MUL,
            Combine.MAX,
            Combine.MIN,
            Combine.AND,
            Combine.OR,
            Combine.XOR,
        ]


def _primes(n: int) -> list[int]:
    out, p = [], 2
    while n > 1:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return out


def full(u: UOp, shape: Shape) -> UOp:
    """A body of exactly this shape: scalars are repeated."""
    return u if u.shape == shape else u.expand(shape)


def random_case(rng: random.Random, most: int = 3000) -> Case:
    """One kernel: one to three bodies and the arrays that they read."""
    b = Builder(rng, most)
    bodies, check = _bodies(b)
    read = {u.arg.slot for u in toposort(*bodies) if u.op is Ops.BUFFER}
    return Case(bodies, {s: a for s, a in b.arrays.items() if s in read}, check)


def _bodies(b: Builder) -> tuple[tuple[UOp, ...], str]:
    rng = b.rng
    depth = rng.choice((1, 2, 2, 3, 3, 4))
    kind = rng.choice(("exact",) * 7 + ("sum", "sum", "ulp", "views", "product", "rows"))
    if kind == "sum":
        dtype = rng.choice(FLOATS)
        kept = b.shape(200)
        last = b.extra(kept)
        whole = (*kept, *last)
        x = full(b.value(whole, dtype, depth - 1), whole)
        body = x.reduce(Ops.ADD, len(last)) if prod(last) else x
        return (body,), "sum" if prod(last) else "exact"
    if kind == "views":
        return (b.views(rng.choice((*COMPUTED, *FP8)), rng.randint(2, 9)),), "exact"
    if kind == "product":
        return (b.product(),), "exact"
    if kind == "rows":
        return (b.rows(),), "rows"
    if kind == "ulp":
        dtype = rng.choice(FLOATS)
        shape = b.shape()
        x = full(b.value(shape, dtype, depth - 1), shape)
        return (UOp(rng.choice(sorted(TRANSCENDENTAL, key=lambda o: o.value)), (x,)),), "ulp"
    shape = b.shape()
    bodies = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mine = shape if rng.randint(0, 3) else shape[: rng.randint(0, len(shape))]
        dtype = rng.choice((*COMPUTED, *FP8))
        bodies.append(full(b.value(mine, dtype, depth), mine))
    return tuple(bodies), "exact"


__all__ = ["ULPS", "Builder", "Case", "Kind", "random_case"]

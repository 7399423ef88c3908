"""Random expression trees as kernels, written as they stand: no rewriting comes between.

Precedence, wrapped narrow integers, widths of index arithmetic, literals and casts are all in them.
As a script it compares the C text of such kernels with the oracle: under a C compiler that checks
itself, for one (UOPC_CC).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tests.helpers import assert_same, special
from uopc.dtype import DATA, FLOATS, FP8, SIGNED, UNSIGNED, DType, dtypes, from_bits
from uopc.kernel import Source
from uopc.pipeline import finish
from uopc.render.c import render_c
from uopc.runtime.program import Program
from uopc.uop.facts import bounds
from uopc.uop.node import UOp, alu, buffer, range_, sink, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import TRANSCENDENTAL, UNARY_FLOAT, AxisType, Ops
from uopc.uop.oracle import run
from uopc.uop.spec import Stage

POINTS = 480  # pairs of hard values, at least every pair of two f32 ones
TREES = 12  # of each dtype
WIDE = 40  # values of each of two loops of index arithmetic
INTS = (*SIGNED, *UNSIGNED)
COMPUTED = (dtypes.bool, *INTS, *FLOATS)
OUT = 2 * len(DATA)  # the slot of the first output


@dataclass
class Trees:
    """Draws trees over two loads of every dtype, at one point."""

    rng: random.Random
    at: UOp
    shared: list[UOp] = field(default_factory=list)

    def load(self, d: DType, which: int) -> UOp:
        return buffer(2 * DATA.index(d) + which, d, (POINTS,)).index(self.at).load()

    def const(self, d: DType) -> UOp:
        value = self.rng.choice(special(d))
        bits = int(value.view(f"u{d.itemsize}")) if d.is_float else int(value)
        return UOp.const(from_bits(bits, d), d)

    def leaf(self, d: DType) -> UOp:
        return self.const(d) if self.rng.random() < 0.3 else self.load(d, self.rng.randint(0, 1))

    def tree(self, d: DType, depth: int) -> UOp:
        """A value of dtype d with at most so many ops above one another."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return self.leaf(d)
        again = [u for u in self.shared if u.dtype is d]
        if again and rng.random() < 0.1:
            return rng.choice(again)
        u = self.one(d, depth - 1)
        self.shared.append(u)
        return u

    def one(self, d: DType, depth: int) -> UOp:
        rng = self.rng
        kind = rng.random()
        if kind < 0.15:
            c, x, y = self.tree(dtypes.bool, depth), self.tree(d, depth), self.tree(d, depth)
            return c.where(x, y)
        if kind < 0.35:
            return self.converted(d, depth)
        x, y = self.tree(d, depth), self.tree(d, depth)
        if d is dtypes.bool:
            return self.boolean(x, y, depth)
        if d.is_float:
            ops = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAX, Ops.MIN, Ops.NEG, Ops.FMA, *EXACT)
        else:
            ops = (*INT_OPS, Ops.SHL, Ops.SHR, Ops.NEG, Ops.NOT)
        op = rng.choice(ops)
        if op in (Ops.SHL, Ops.SHR):
            return alu(op, x, y & (d.bits - 1))
        if op is Ops.FMA:
            return x.fma(y, self.tree(d, depth))
        return alu(op, x) if op in (Ops.NEG, Ops.NOT, *EXACT) else alu(op, x, y)

    def boolean(self, x: UOp, y: UOp, depth: int) -> UOp:
        rng = self.rng
        if rng.random() < 0.5:
            d = rng.choice(COMPUTED[1:])
            a, b = self.tree(d, depth), self.tree(d, depth)
            return rng.choice((a < b, a.eq(b), a.ne(b)))
        op = rng.choice(
            (Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.MIN, Ops.LT, Ops.EQ, Ops.NE, Ops.NOT)
        )
        return alu(op, x) if op is Ops.NOT else alu(op, x, y)

    def converted(self, d: DType, depth: int) -> UOp:
        """A cast, or the bits of another dtype: of floats as loaded, since NaN has many."""
        rng = self.rng
        same = [o for o in (*INTS, *FLOATS) if o.bits == d.bits and o is not d]
        if same and d is not dtypes.bool and rng.random() < 0.25:
            other = rng.choice(same)
            return (self.load(other, 0) if other.is_float else self.tree(other, depth)).bitcast(d)
        other = rng.choice([o for o in (*COMPUTED, *FP8) if o is not d])
        if other.storage:
            return self.tree(dtypes.f32, depth).cast(other).cast(d)
        return self.tree(other, depth).cast(d)


EXACT = tuple(sorted(UNARY_FLOAT - TRANSCENDENTAL, key=lambda op: op.value))
BOOL_OPS = (Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.MIN, Ops.LT, Ops.EQ, Ops.NE, Ops.NOT)
INT_OPS = (
    *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN),
    *(Ops.AND, Ops.OR, Ops.XOR),
)


def data_kernel(seed: int, kind: AxisType = AxisType.THREAD) -> UOp:
    """One loop over the points that stores the value of every tree."""
    at = range_(POINTS, 0, kind)
    trees = Trees(random.Random(seed), at)
    roots = [trees.tree(d, 4) for d in COMPUTED for _ in range(TREES)]
    roots += [trees.tree(dtypes.f32, 3).cast(d) for d in FP8 for _ in range(TREES)]
    stores = chain(roots, at, POINTS)
    return sink(stores if kind is AxisType.LOCAL else stores.end(at))


def chain(roots: Sequence[UOp], at: UOp, size: int) -> UOp:
    """A store of each value at one point, one after the other."""
    done: tuple[UOp, ...] = ()
    for n, u in enumerate(roots):
        memory = buffer(OUT + n, u.dtype, (size,)).after(*done)
        done = (memory.index(at).store(u),)
    return done[0]


def points() -> dict[int, Array]:
    """Every pair of hard values of each dtype, as often as they fit."""
    out = {}
    for n, d in enumerate(DATA):
        hard = special(d)
        a, b = np.repeat(hard, len(hard)), np.tile(hard, len(hard))
        out[2 * n], out[2 * n + 1] = np.resize(a, POINTS), np.resize(b, POINTS)
    return out


def index_kernel(seed: int) -> UOp:
    """Index arithmetic over two loops: negative, and wider than 32 bits on the way."""
    rng = random.Random(seed)
    i, j = range_(WIDE, 0, AxisType.THREAD), range_(WIDE, 1, AxisType.LOOP)
    trees = [i, j]
    while len(trees) < 2 + 4 * TREES:
        u = index_tree(rng, (i, j), trees, 4)
        if all(-(2**63) < n < 2**63 for x in toposort(u) for n in bounds(x)):
            trees.append(u)
    at = i * WIDE + j
    return sink(chain([u.cast(dtypes.i64) for u in trees], at, WIDE * WIDE).end(i, j))


def index_tree(rng: random.Random, loops: Sequence[UOp], before: Sequence[UOp], depth: int) -> UOp:
    if depth == 0:
        value = rng.choice((1, 2, 3, 7, 32, -1, -5, 2**16, 2**31 - 1, 2**31, -(2**31), 2**33 + 1))
        return rng.choice((*loops, UOp.const(value, dtypes.index)))
    if rng.random() < 0.2:
        return rng.choice(before)
    x, y = (index_tree(rng, loops, before, depth - 1) for _ in range(2))
    op = rng.choice((Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN, Ops.NEG))
    if rng.random() < 0.1:
        return (x < y).where(x, y - 1)
    return -x if op is Ops.NEG else alu(op, x, y)


def outcome(source: Source, arrays: dict[int, Array]) -> dict[int, Array]:
    """What the C text stores, by slot."""
    made = {p.slot: np.zeros(p.size, p.dtype.numpy) for p in source.params if p.written}
    Program(source)(*(made.get(p.slot, arrays.get(p.slot)) for p in source.params))
    return made


def assert_computes(root: UOp, arrays: dict[int, Array]) -> None:
    """The C text stores the oracle's bits; an error shows the line that does not."""
    source = render_c(finish(root), "trees")
    want, got = run(root, arrays, Stage.LOOPS), outcome(source, arrays)
    assert got.keys() == want.keys()
    for slot, array in got.items():
        line = next(x for x in source.splitlines() if x.lstrip().startswith(f"p{slot}["))
        with where(line):
            assert_same(array, want[slot].reshape(-1))


@contextmanager
def where(line: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{error} in {line.strip()}") from None


def main(seeds: int) -> None:
    for seed in range(seeds):
        assert_computes(data_kernel(seed), points())
        assert_computes(index_kernel(seed), {})


if __name__ == "__main__":
    main(int(sys.argv[1]))

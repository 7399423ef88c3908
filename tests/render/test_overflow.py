"""Indices that data integers make: found where they wrap, with the value that was meant."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.helpers import alloc
from tests.kernels import axpy, columns, param, product, softmax
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.examples import EXAMPLES
from uopc.faults.raw import FaultKind, RawFault
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.pipeline import compile
from uopc.render.emulate import render_emulated
from uopc.render.overflow import wrapping_indices
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Engine, Ops

LANES = 32
BIG = 1 << 30
Build = Callable[[Cursor, UOp, UOp, UOp], object]


def faults_of(build: Build, values: Array, dtype: DType = dtypes.i32) -> list[RawFault]:
    """All faults of a kernel of one warp: build(cursor, x, y, lane); x holds the values."""
    x, y = buffer(0, dtype, (LANES,)), buffer(1, dtypes.f32, (LANES,))
    c = Cursor()
    build(c, x, y, range_(LANES, 0, AxisType.LOCAL))
    source = render_emulated(linearize(legalise(c.sink())), "kern", check=True)
    options = RunOptions(all_faults=True, initialised=frozenset((0, 1)))
    given = {0: values.astype(dtype.numpy), 1: np.zeros(LANES, np.float32)}
    arrays = [given[p.slot] for p in source.params]
    return list(Program(source).run(arrays, options).faults)


def wraps(build: Build, values: Array, dtype: DType = dtypes.i32) -> list[tuple[int, int, int]]:
    """(lane, value, bits) of each fault of an index."""
    found = faults_of(build, values, dtype)
    overflows = [f for f in found if f.kind is FaultKind.INDEX_OVERFLOW]
    assert all(len(f.detail) == 2 for f in overflows)
    return [(f.lane, f.detail[0], f.detail[1]) for f in overflows]


def at(value: UOp) -> UOp:
    return value.cast(dtypes.index)


def ids(first: int, *others: int) -> Array:
    """These values, then zeros."""
    values = np.zeros(LANES, np.int64)
    values[: 1 + len(others)] = first, *others
    return values


# ---- what is found
def test_a_product_that_wraps_to_an_element_inside() -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        c.store(y.index(at(x.index(lane).load() * (1 << 16)) + lane), 1.0)

    (fault,) = faults_of(build, ids(0, 1 << 16))
    assert (fault.kind, fault.lane, fault.offset_bytes) == (FaultKind.INDEX_OVERFLOW, 1, 4)
    assert fault.detail == ((1 << 32) + 1, 32)


def test_only_an_access_that_is_made() -> None:
    def gated(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        row = at(c.load(x.index(lane)) * BIG)
        value = c.load(x.index(row), gate=lane < 1, other=0)
        c.store(y.index(row), value.cast(dtypes.f32), gate=lane < 1)
        with c.when(lane < 1):
            c.store(y.index(row + 1), 1.0)

    assert wraps(gated, ids(0, 4, 8)) == []
    assert [lane for lane, *_ in wraps(gated, ids(4, 8))] == [0, 0, 0]


def test_only_a_value_that_is_chosen() -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        v = x.index(lane).load()
        c.store(y.index(at((v < 4).where(v * BIG, lane.cast(dtypes.i32)))), 1.0)

    assert wraps(build, ids(0, 4, 8)) == []
    assert wraps(build, ids(0, 3)) == [(1, 3 * BIG, 32)]


def test_a_name_carries_what_was_meant_across_a_barrier() -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        row = c.load(x.index(lane)) * BIG
        c.store(y.index(at(row)), 1.0, gate=lane < 1)
        c.barrier()
        c.store(y.index(at(row + lane.cast(dtypes.i32))), 1.0)

    assert wraps(build, ids(0, 4)) == [(1, (1 << 32) + 1, 32)]


def test_sums_that_come_back_are_right() -> None:
    """Numbers wrap both ways: the index is what it means."""

    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        v = c.load(x.index(lane))
        c.store(y.index(at((v + dtypes.i32.max) - v)), 1.0, gate=lane < 0)
        c.store(y.index(at((v + dtypes.i32.max) - dtypes.i32.max)), 1.0)

    assert wraps(build, np.arange(LANES)) == []


@pytest.mark.parametrize(
    ("dtype", "value", "meant"),
    [
        (dtypes.i8, 100, 10_000),
        (dtypes.i16, -300, 90_000),
        (dtypes.i32, 1 << 20, 1 << 40),
        (dtypes.i64, 1 << 32, 1 << 64),
        (dtypes.i64, -(1 << 62), 1 << 124),
    ],
    ids=str,
)
def test_every_signed_type(dtype: DType, value: int, meant: int) -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        v = c.load(x.index(lane))
        c.store(y.index(at(v * v)), 1.0)

    assert wraps(build, ids(value), dtype) == [(0, meant, dtype.bits)]


def test_a_cast_that_cuts_off() -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        c.store(y.index(at(x.index(lane).load().cast(dtypes.i32))), 1.0)

    assert wraps(build, ids(1 << 32), dtypes.i64) == [(0, 1 << 32, 32)]


def test_registers_copies_and_shared_memory() -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        r, tile = alloc(AddrSpace.REG, size=4), alloc(AddrSpace.SHARED, size=64)
        row = at(c.load(x.index(lane)) * BIG)
        c.store(r.index(row), 1.0)
        c.copy_async(tile.index(row + lane), y.index(row + lane))
        c.copy_async(tile.index(row + lane + 32), y.index(lane), gate=lane < 1)
        c.commit(Engine.CP_ASYNC)
        c.wait_group(Engine.CP_ASYNC)
        c.store(y.index(lane), c.load(tile.index(row + lane)) + c.load(r.index(0)))

    found = faults_of(build, ids(0, 0, 4))
    assert {f.kind for f in found} == {FaultKind.INDEX_OVERFLOW}
    assert [(f.lane, f.detail) for f in found] == [
        *((2, (1 << 32, 32)), (2, ((1 << 32) + 2, 32)), (2, ((1 << 32) + 2, 32))),
        (2, ((1 << 32) + 2, 32)),
    ]


# ---- what is none
@pytest.mark.parametrize(
    "hashed",
    [
        lambda v: (v * BIG) % 32,
        lambda v: (v * BIG) & 31,
        lambda v: (v * BIG + 7) >> 27 & 31,
        lambda v: (v * BIG).cast(dtypes.u32).cast(dtypes.i32),
        lambda v: v.cast(dtypes.u32) * BIG,
        lambda v: (v & 3) * 8,
    ],
)
def test_hashes_and_unsigned_numbers_may_wrap(hashed: Callable[[UOp], UOp]) -> None:
    x, c = buffer(0, dtypes.i32, (LANES,)), Cursor()
    lane = range_(LANES, 0, AxisType.LOCAL)
    c.store(x.index(at(hashed(x.index(lane).load()))), 1)
    assert not wrapping_indices(linearize(c.sink()))


def test_what_bounds_prove_costs_nothing() -> None:
    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        c.store(y.index(at(lane.cast(dtypes.i32) * 3 + 1)), 1.0)

    assert [f.kind for f in faults_of(build, ids(0))] == [FaultKind.BOUNDS]
    bodies = [axpy(3, 100), softmax(param(0, 33, 1000)), product(64, 48, 100)]
    bodies += [columns(param(0, 100, 48)), param(0, 5, 777).argmax(1)]
    trees = [step.program for b in bodies for step in compile(b, target="emulated").steps]
    trees += [linearize(legalise(e.build())) for e in EXAMPLES.values()]
    assert not any(wrapping_indices(tree) for tree in trees)


# ---- random arithmetic
def cone(rng: random.Random, leaves: list[UOp]) -> UOp:
    """An index made of data integers of several widths."""
    made = list(leaves)
    for _ in range(rng.randrange(2, 7)):
        a, b = rng.choice(made), rng.choice(made)
        b = b if b.dtype is a.dtype else b.cast(a.dtype)
        far, narrow = rng.randrange(1, 7), rng.choice((dtypes.i16, dtypes.i32, dtypes.i64))
        chosen = (a < b).where(a, b)
        sums = (a + b, a - b, a * b, -a, a << far)
        made.append(rng.choice((*sums, a.maximum(b), a.minimum(b), chosen, a.cast(narrow))))
    return at(made[-1])


def evaluate(offset: UOp, known: Mapping[UOp, int]) -> tuple[int, int]:
    """(what the GPU's integers give, what the arithmetic means)."""
    pairs: dict[UOp, tuple[int, int]] = {}
    for u in toposort(offset):
        if u.op is Ops.CONST:
            pairs[u] = u.arg.bits, u.arg.bits
        elif u in known:
            pairs[u] = known[u], known[u]
        elif u.src and all(s in pairs for s in u.src):
            narrow = [pairs[s][0] for s in u.src]
            exact = [pairs[s][1] for s in u.src]
            if u.op is Ops.WHERE:
                exact[0] = narrow[0]  # a condition is what the GPU finds
            wrapped = _apply(u.op, narrow)
            if u.dtype is not dtypes.index and u.dtype is not dtypes.bool:
                half = 1 << (u.dtype.bits - 1)
                wrapped = (wrapped + half) % (2 * half) - half
            pairs[u] = wrapped, _apply(u.op, exact)
    return pairs[offset]


def _apply(op: Ops, v: list[int]) -> int:
    return {
        Ops.ADD: lambda: v[0] + v[1],
        Ops.SUB: lambda: v[0] - v[1],
        Ops.MUL: lambda: v[0] * v[1],
        Ops.NEG: lambda: -v[0],
        Ops.MAX: lambda: max(v[:2]),
        Ops.MIN: lambda: min(v[:2]),
        Ops.SHL: lambda: v[0] << v[1],
        Ops.LT: lambda: int(v[0] < v[1]),
        Ops.WHERE: lambda: v[1] if v[0] else v[2],
        Ops.CAST: lambda: v[0],
    }[op]()


@pytest.mark.parametrize("seed", range(60))
def test_random_arithmetic_is_told_as_python_has_it(seed: int) -> None:
    rng = random.Random(seed)
    values = np.array([rng.choice((0, 1, -1, 7, 300, 40_000, BIG)) for _ in range(LANES)])
    offsets: list[UOp] = []

    def build(c: Cursor, x: UOp, y: UOp, lane: UOp) -> None:
        loaded = x.index(lane).load() if seed % 2 else c.load(x.index(lane))
        offsets.append(cone(rng, [loaded, lane.cast(dtypes.i32), UOp.const(1000, dtypes.i32)]))
        if seed % 4 > 1:
            c.barrier()
        c.store(y.index(offsets[0]), 1.0)

    found = wraps(build, values)
    (offset,) = offsets
    leaves = [u for u in toposort(offset) if u.op in (Ops.LOAD, Ops.RANGE)]
    pairs = [
        evaluate(offset, {u: int(values[i]) if u.op is Ops.LOAD else i for u in leaves})
        for i in range(LANES)
    ]
    wrong = [(i, exact) for i, (narrow, exact) in enumerate(pairs) if narrow != exact]
    if not wrong:
        assert not found
    else:
        assert len(found) == 1, wrong
        (i, value, _), (first, exact) = found[0], wrong[0]
        assert i == first
        assert value == exact or (abs(exact) >> 64 and abs(value - exact) < abs(exact) >> 60)

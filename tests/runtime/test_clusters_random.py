"""Random kernels of clusters, and a judge that knows no clocks.

Every thread of every block comes to the same barriers, so that what is ordered can be read off the
program: two accesses of one block by a barrier between them, two of different blocks by one of the
cluster.  Accesses are made by one thread of one block each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.pipeline import emulate
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_, rank_
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops, ParamArg

BLOCKS, THREADS, CLUSTERS, CELLS = 2, 64, 2, 2
AGENTS = (0, 1, 40)  # threads that do something; 0 and 1 are of one warp
MEETINGS = ("block", "cluster", "start")
PROGRAMS = 150
ORDERS = ("forward", "backward", "shuffled(1)")


@dataclass(frozen=True)
class Step:
    """A barrier, or an access of one thread of the block of a rank; at: rank and cell, of SHARED
    memory the cell alone."""

    what: str
    rank: int = 0
    thread: int = 0
    shared: bool = False
    at: tuple[int, int] = (0, 0)


def program(rng: random.Random) -> list[Step]:
    """More often than by chance it begins and ends as it should, and hands over what is read."""
    steps = [Step("start")] if rng.random() < 0.7 else []
    for _ in range(rng.randint(2, 5)):
        owner, cell, shared = rng.randrange(BLOCKS), rng.randrange(CELLS), rng.random() < 0.3
        writer = owner if shared else rng.randrange(BLOCKS)
        reader = owner if shared else rng.randrange(BLOCKS)
        steps.append(Step("store", writer, rng.choice(AGENTS), shared, (owner, cell)))
        if rng.random() < 0.8:
            steps.append(Step("cluster" if rng.random() < 0.6 else "block"))
        if rng.random() < 0.8:
            steps.append(Step("load", reader, rng.choice(AGENTS), shared, (owner, cell)))
        if rng.random() < 0.4:
            steps.append(Step(rng.choice(("block", "cluster"))))
    return [*steps, Step("cluster")] if rng.random() < 0.7 else steps


def is_wrong(steps: list[Step]) -> bool:
    """Does it race, read what nobody has written, or touch a block that need not be there?"""
    accesses = [(n, s) for n, s in enumerate(steps) if s.what not in MEETINGS]

    def meets(first: int, second: int, kinds: tuple[str, ...]) -> bool:
        return any(s.what in kinds for s in steps[first:second])

    def ordered(a: tuple[int, Step], b: tuple[int, Step]) -> bool:
        (m, first), (n, second) = a, b
        if first.rank != second.rank:
            return meets(m, n, ("cluster",))
        return first.thread == second.thread or meets(m, n, ("block", "cluster"))

    for n, s in accesses:
        if s.rank != s.at[0]:
            there = meets(0, n, ("start", "cluster")) and meets(n, len(steps), ("cluster",))
            if not there:
                return True
        before = [(m, t) for m, t in accesses if m < n and (t.at, t.shared) == (s.at, s.shared)]
        clashes = [a for a in before if "store" in (s.what, a[1].what)]
        if not all(ordered(a, (n, s)) for a in clashes):
            return True
        if s.what == "load" and not any(t.what == "store" for _, t in before):
            return True
    return False


def kernel(steps: list[Step]) -> UOp:
    rank, thread = rank_(BLOCKS, 1), range_(THREADS, 1, AxisType.LOCAL)
    cluster = range_(CLUSTERS, 0, AxisType.GLOBAL)
    part = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (BLOCKS, CELLS), AddrSpace.CLUSTER, "part"))
    tile, out = alloc(AddrSpace.SHARED, dtypes.f32, CELLS, 1), buffer(0, dtypes.f32, (SIZE,))
    mine = (cluster * BLOCKS + rank) * THREADS + thread
    c = Cursor()
    for n, s in enumerate(steps):
        if s.what == "start":
            c.cluster_arrive()
            c.cluster_wait()
        elif s.what == "cluster":
            c.cluster_barrier()
        elif s.what == "block":
            c.barrier()
        else:
            owner, cell = s.at
            memory, at = (tile, cell) if s.shared else (part, owner * CELLS + cell)
            with c.when(rank.eq(s.rank) & thread.eq(s.thread)):
                place = memory.index(UOp.const(at, dtypes.index))
                if s.what == "store":
                    c.store(place, float(n + 1))
                else:
                    c.store(out.index(mine), c.load(place))
    c.store(out.index(mine), 0.0)
    return c.sink()


SIZE = CLUSTERS * BLOCKS * THREADS


def output() -> list[Array]:
    return [np.zeros(SIZE, np.float32)]


@pytest.mark.parametrize("seed", range(3))
def test_the_emulator_agrees(seed: int) -> None:
    rng = random.Random(seed)
    wrong = 0
    for _ in range(PROGRAMS // 3):
        steps = program(rng)
        expected = is_wrong(steps)
        wrong += expected
        runs = Program(emulate(kernel(steps), "clusters", check=True, target="sm_90"))
        for order in ORDERS:
            outcome = runs.run(output(), RunOptions(order=order))
            assert outcome.ok != expected, (order, steps, outcome.faults)
    assert 0.2 < wrong / (PROGRAMS // 3) < 0.9

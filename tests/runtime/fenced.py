"""Random kernels of stores, loads, atomics, fences and barriers, and which of their accesses race.

The judge knows no clocks: what happens before what is a matrix of all things that were done, closed
until nothing is added.  Which atomics an atomic has observed it reads from the value that this one
returned: step n of a program adds 2**n, and a plain write leaves none of the lower bits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.numbers import Array
from uopc.uop.ops import Atomic, AxisType, Fence

DATA, FLAGS, LOG = range(3)  # slots
CELLS = 2  # of each memory
AGENTS = (0, 1, 32)  # threads that do something alone; 0 and 1 are of one warp
ATOMICS = ("atomic", "reduce")
ACCESSES = ("store", "load", "reset", "peek", *ATOMICS)
OF_FLAGS = ("reset", "peek", *ATOMICS)
MOST_STEPS = 30  # a bit each


@dataclass(frozen=True)
class Step:
    """One statement.  block, thread: who does it, -1 for all; shared: in which memory."""

    what: str
    block: int = -1
    thread: int = -1
    shared: bool = False
    cell: int = 0


@dataclass(frozen=True)
class Done:
    """A step as one thread did it; number: of the step."""

    number: int
    step: Step
    block: int
    thread: int


def steps(rng: random.Random, blocks: int) -> list[Step]:
    """A program: more often than by chance it hands something over as it should be."""
    out: list[Step] = []
    while len(out) < 9:
        block, thread = rng.randrange(blocks), rng.choice(AGENTS)
        shared, cell = rng.random() < 0.3, rng.randrange(CELLS)
        fence = rng.choice(("block", "device", "device"))
        everyone = rng.random() < 0.2
        who = (-1, -1) if everyone else (block, thread)
        choice = rng.random()
        if choice < 0.25:
            what = rng.choice(ACCESSES)
            out.append(Step(what, block, thread, shared, cell))
        elif choice < 0.35:
            out.append(Step(rng.choice(("barrier", "warp"))))
        elif choice < 0.45:
            out.append(Step(fence, *who))
        elif choice < 0.72:
            out.append(Step("store", block, thread, shared, cell))
            out += [Step("barrier")] * (rng.random() < 0.2)
            out.append(Step(fence, *who))
            out += [Step("barrier")] * (rng.random() < 0.2)
            out.append(Step(rng.choice(ATOMICS), block, rng.choice(AGENTS), shared, 0))
        else:
            out.append(Step("atomic", block, thread, shared, 0))
            out += [Step("barrier")] * (rng.random() < 0.2)
            out.append(Step(fence, *who))
            out.append(Step(rng.choice(ACCESSES[:3]), block, rng.choice(AGENTS), shared, cell))
    return out if len(out) <= MOST_STEPS else steps(rng, blocks)


def kernel(program: list[Step], blocks: int, warps: int = 2) -> UOp:
    """Parameters: data (2,) and flags (2,) u64, and a log (steps,) of what was found."""
    c = Cursor()
    block = range_(blocks, 0, AxisType.GLOBAL)
    warp, lane = range_(warps, 1, AxisType.WARP), range_(32, 2, AxisType.LANE)
    t = warp * 32 + lane
    data, flags = (buffer(slot, dtypes.u64, (CELLS,)) for slot in (DATA, FLAGS))
    log = buffer(LOG, dtypes.u64, (len(program),))
    tile, shared_flags = (alloc(AddrSpace.SHARED, dtypes.u64, CELLS, n) for n in range(2))
    for memory in (tile, shared_flags):
        c.store(memory.index(t), 0, t < CELLS)
    c.barrier()
    for number, s in enumerate(program):
        if s.what == "barrier":
            c.barrier()
        elif s.what == "warp":
            c.syncwarp()
        elif s.thread < 0:
            c.fence(_FENCES[s.what])
        else:
            with c.when(t.eq(s.thread) & block.eq(s.block)):
                if s.what in _FENCES:
                    c.fence(_FENCES[s.what])
                    continue
                flag = (shared_flags if s.shared else flags).index(s.cell)
                at = (tile if s.shared else data).index(s.cell)
                if s.what == "reduce":
                    c.atomic(Atomic.ADD, flag, 1 << number)
                elif s.what == "atomic":
                    c.store(log.index(number), c.atomic(Atomic.ADD, flag, 1 << number))
                elif s.what == "reset":
                    c.store(flag, number + 1 << 40)
                elif s.what == "store":
                    c.store(at, number)
                else:
                    c.store(log.index(number), c.load(flag if s.what == "peek" else at))
    return c.sink()


_FENCES = {"block": Fence.BLOCK, "device": Fence.DEVICE}


def arrays(program: list[Step]) -> dict[int, Array]:
    """By slot; a kernel takes those that it touches."""
    sizes = {DATA: CELLS, FLAGS: CELLS, LOG: len(program)}
    return {slot: np.zeros(size, np.uint64) for slot, size in sizes.items()}


# ---- the judge
class Judge:
    """Races of one run, given what its atomics returned."""

    def __init__(self, program: list[Step], blocks: int, log: Array) -> None:
        self.log = log
        self.done = list(_done(program, blocks))
        n = len(self.done)
        self.before = np.eye(n, dtype=bool)
        for i, a in enumerate(self.done):
            for j, b in enumerate(self.done[i + 1 :], i + 1):
                self.before[i, j] = _in_order(a, b)
        self._close()
        self.fences = [i for i, d in enumerate(self.done) if d.step.what in _FENCES]
        self.atomics = [i for i, d in enumerate(self.done) if d.step.what in ATOMICS]
        while self._synchronise():
            self._close()

    def _close(self) -> None:
        while True:
            further = self.before | (self.before.astype(np.int32) @ self.before > 0)
            if (further == self.before).all():
                return
            self.before = further

    def _observed(self, a: int, b: int) -> bool:
        """Has atomic b read what atomic a left, at once or through others?"""
        x, y = self.done[a], self.done[b]
        if y.step.what != "atomic" or not self._same_cell(a, b):
            return False
        return bool(int(self.log[y.number]) >> x.number & 1)

    def _same_cell(self, a: int, b: int) -> bool:
        x, y = self.done[a], self.done[b]
        same = _place(x.step) == _place(y.step)
        return same and (not x.step.shared or x.block == y.block)

    def _synchronise(self) -> bool:
        """Fences that this run has put in order; says whether there were new ones."""
        found = False
        pairs = [(a, b) for a in self.atomics for b in self.atomics if self._observed(a, b)]
        for f in self.fences:
            for g in self.fences:
                if self.before[f, g] or not self._reaches(f, g):
                    continue
                if any(self.before[f, a] and self.before[b, g] for a, b in pairs):
                    self.before[f, g] = found = True
        return found

    def _reaches(self, f: int, g: int) -> bool:
        x, y = self.done[f], self.done[g]
        return x.block == y.block or x.step.what == y.step.what == "device"

    def races(self) -> set[frozenset[int]]:
        """Pairs of steps."""
        found = set()
        for i, a in enumerate(self.done):
            for j, b in enumerate(self.done[:i]):
                if self._conflict(i, j) and not self._ordered(i, j):
                    found.add(frozenset((a.number, b.number)))
        return found

    def _conflict(self, i: int, j: int) -> bool:
        kinds = {self.done[i].step.what, self.done[j].step.what}
        if not kinds <= set(ACCESSES) or not self._same_cell(i, j):
            return False
        return bool(kinds & {"store", "reset"} or (kinds & set(ATOMICS) and "peek" in kinds))

    def _ordered(self, i: int, j: int) -> bool:
        if self.before[i, j] or self.before[j, i]:
            return True
        return self._seen_before(i, j) or self._seen_before(j, i)

    def _seen_before(self, a: int, later: int) -> bool:
        """Is it an atomic that has put a fence in order that comes before `later`?"""
        if a not in self.atomics:
            return False
        after = [g for g in self.fences if self.before[g, later]]
        earlier = [f for f in self.fences if self.before[f, a]]
        seen = [b for b in self.atomics if self._observed(a, b)]
        return any(
            self.before[b, g] and self._reaches(f, g) for b in seen for g in after for f in earlier
        )


def _place(s: Step) -> tuple[bool, bool, int]:
    return s.what in OF_FLAGS, s.shared, s.cell


def _done(program: list[Step], blocks: int) -> Iterator[Done]:
    for number, s in enumerate(program):
        for block in range(blocks):
            for thread in AGENTS:
                if s.block in (-1, block) and s.thread in (-1, thread):
                    yield Done(number, s, block, thread)


def _in_order(a: Done, b: Done) -> bool:
    """In the order of the program, of b's later number: the same thread, or a meeting."""
    if a.block != b.block or a.number > b.number:
        return False
    met = {a.step.what, b.step.what}
    same_warp = a.thread // 32 == b.thread // 32
    return a.thread == b.thread or "barrier" in met or ("warp" in met and same_warp)

"""Random kernels of a seed without a plan: few accesses of few elements, much synchronisation.

Any lanes do anything: subsets of a warp meet, arrive, wait, copy, fence.  Nothing is meant to be
right; with more synchronisation than accesses about half of the kernels are, by chance.  A thread
waits only for what stands above in the text, so that few of them hang.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.happens_before.small import blocks, mbarriers, number, registers, shared, threads
from uopc.dtype import dtypes
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import Atomic, Engine, Fence, ShuffleMode

TILE, TILE_BYTES = (4, 16), 256
MOST_BARS = 8
SIZES = (8, 32, 40, 64, 64, 96)
OUT, IN, TILES, GRID = range(4)


@dataclass(frozen=True)
class Some:
    """Threads that do something: the condition (None: all of them) and who they are."""

    condition: UOp | None
    who: frozenset[int]


@dataclass
class Soup:
    """Writes one kernel."""

    rng: random.Random
    size: int
    grid: int = 1
    c: Cursor = field(default_factory=Cursor)
    bars: int = 0
    waits: list[tuple[int, int]] = field(default_factory=list)  # mbarrier, phase
    counts: dict[int, int] = field(default_factory=dict)
    phases: dict[int, int] = field(default_factory=dict)  # of each mbarrier, so far
    given: set[int] = field(default_factory=set)
    loop: UOp | None = None
    phases_each: dict[int, int] = field(default_factory=dict)  # of each mbarrier, an iteration

    def __post_init__(self) -> None:
        self.t = threads(self.size)
        self.s = shared(64)
        self.bar = mbarriers(MOST_BARS)
        self.sum = registers(1)
        self.x = buffer(IN, dtypes.i32, (self.size + 4,))
        self.b = blocks(self.grid) if self.grid > 1 else number(0)
        self.out = buffer(OUT, dtypes.i32, (self.grid * self.size,))
        self.all = buffer(GRID, dtypes.i32, (16,))
        self.tiles = buffer(TILES, dtypes.i32, TILE)
        self.elements = tuple(self.rng.sample(range(16), 3))

    # ---- who
    def some(self) -> Some:
        """Random threads."""
        t, rng, everybody = self.t, self.rng, range(self.size)
        kind = rng.randrange(7)
        if kind == 0:
            return Some(None, frozenset(everybody))
        if kind == 1:
            k = rng.randrange(1, self.size)
            return Some(t < k, frozenset(range(k)))
        if kind == 2:
            k = rng.randrange(self.size)
            return Some(t.eq(k), frozenset((k,)))
        if kind == 3:
            w = rng.randrange((self.size + 31) // 32)
            return Some((t // 32).eq(w), frozenset(x for x in everybody if x // 32 == w))
        if kind == 4:
            odd = rng.randrange(2)
            return Some((t % 2).eq(odd), frozenset(x for x in everybody if x % 2 == odd))
        if kind == 5:
            return Some((t % 32).eq(0), frozenset(x for x in everybody if x % 32 == 0))
        k = rng.choice((8, 16))
        return Some(t % 32 < k, frozenset(x for x in everybody if x % 32 < k))

    def do(self, some: Some, what: Callable[[], object]) -> None:
        if some.condition is None:
            what()
        else:
            with self.c.when(some.condition):
                what()

    def members(self, some: Some) -> int | None:
        """The lanes, where every warp that takes part has the same; else None."""
        masks: dict[int, int] = {}
        for thread in some.who:
            masks[thread // 32] = masks.get(thread // 32, 0) | 1 << thread % 32
        exist = {w: (1 << min(32, self.size - 32 * w)) - 1 for w in masks}
        wide = max(masks.values(), key=int.bit_count)
        return wide if all(wide & exist[w] == mask for w, mask in masks.items()) else None

    # ---- accesses
    def element(self) -> UOp:
        """Mostly one of three; its neighbours by lane sometimes."""
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.t % 64
        if kind == 1:
            return (self.t + self.rng.choice((1, 5, 16, 32))) % 64
        return number(self.rng.choice(self.elements))

    def value(self) -> UOp:
        return self.t.cast(dtypes.i32) + self.rng.randrange(100, 10000)

    def write(self) -> None:
        some, at = self.some(), self.element()
        if at.op.name == "CONST" and self.rng.random() < 0.9:  # one writer
            k = self.rng.randrange(self.size)
            some = Some(self.t.eq(k), frozenset((k,)))
        self.do(some, lambda: self.c.store(self.s.index(at), self.value()))

    def read(self) -> None:
        at = self.element()
        self.do(self.some(), lambda: self.add(self.c.load(self.s.index(at))))

    def add(self, value: UOp) -> None:
        self.c.store(self.sum.index(0), self.c.load(self.sum.index(0)) * 3 + value)

    def atomic(self) -> None:
        at = self.element()
        self.do(self.some(), lambda: self.c.atomic(Atomic.ADD, self.s.index(at), 1))

    def copy(self) -> None:
        some, at = self.some(), self.element()
        if at.op.name == "CONST":
            k = self.rng.randrange(self.size)
            some = Some(self.t.eq(k), frozenset((k,)))
        self.do(some, lambda: self.c.copy_async(self.s.index(at), self.x.index(self.t)))

    def in_global(self) -> None:
        """An access of what all blocks share."""
        self.given.add(GRID)
        at = self.all.index((self.t + self.b * self.rng.choice((0, 8))) % self.rng.choice((8, 16)))
        kind = self.rng.randrange(3)
        if kind == 0:
            k = self.rng.randrange(self.size)
            one = Some(self.t.eq(k), frozenset((k,)))
            self.do(one, lambda: self.c.store(at, self.value() + self.b.cast(dtypes.i32)))
        elif kind == 1:
            self.do(self.some(), lambda: self.add(self.c.load(at)))
        else:
            self.do(self.some(), lambda: self.c.atomic(Atomic.ADD, at, 1))

    def bulk_load(self) -> None:
        """By one thread, which arrives for it; others may wait."""
        if self.bars == MOST_BARS:
            return self.write()
        bar = self.new(1)

        def ask() -> None:
            self.c.arrive(self.bar.index(bar), TILE_BYTES)
            self.c.bulk_load(
                self.s.index(0),
                tensor_map(self.tiles, TILE),
                self.bar.index(bar),
                number(0),
                number(0),
            )

        k = self.rng.randrange(self.size)
        self.do(Some(self.t.eq(k), frozenset((k,))), ask)
        self.end_phase(bar)

    def end_phase(self, bar: int) -> None:
        """It can be waited for from now on; mostly instead of the phase before."""
        phase = self.phases.get(bar, 0)
        self.waits = [w for w in self.waits if w[0] != bar or self.rng.random() < 0.3]
        self.waits.append((bar, phase))
        self.phases[bar] = phase + 1

    def wait_for(self, bar: int, phase: int) -> None:
        before = number(0) if self.loop is None else self.loop * self.phases_each.get(bar, 1)
        self.c.wait(self.bar.index(bar), (before + phase) % 2)

    # ---- order
    def barrier(self) -> None:
        self.c.barrier()

    def syncwarp(self) -> None:
        some = self.some()
        members = self.members(some)
        if members is None:
            self.c.syncwarp()
        else:
            self.do(some, lambda: self.c.syncwarp(members))

    def named(self) -> None:
        if self.size % 32:
            return self.barrier()
        warps = self.rng.randrange(1, self.size // 32 + 1)
        last = self.rng.random() < 0.5
        first = self.size - 32 * warps
        where = (first - 1 < self.t) if last and first else (self.t < 32 * warps)
        self.do(
            Some(where, frozenset()),
            lambda: self.c.named_barrier(number(self.rng.randrange(1, 4)), 32 * warps),
        )

    def new(self, count: int) -> int:
        bar, self.bars = self.bars, self.bars + 1
        self.counts[bar] = count
        return bar

    def arrive(self) -> None:
        """All arrivals of a phase, by some threads; waits for it may come later."""
        some = self.some()
        again = [b for b, n in self.counts.items() if n == len(some.who)]
        if again and self.rng.random() < 0.5:
            bar = again[0]
        elif self.bars < MOST_BARS:
            bar = self.new(len(some.who))
        else:
            return self.barrier()
        self.do(some, lambda: self.c.arrive(self.bar.index(bar)))
        self.end_phase(bar)

    def wait(self) -> None:
        if not self.waits:
            return self.arrive()
        bar, phase = self.rng.choice(self.waits)
        self.do(self.some(), lambda: self.wait_for(bar, phase))

    def commit(self) -> None:
        self.do(self.some(), lambda: self.c.commit(Engine.CP_ASYNC))

    def wait_group(self) -> None:
        pending = self.rng.choice((0, 0, 1, 2))
        self.do(self.some(), lambda: self.c.wait_group(Engine.CP_ASYNC, pending))

    def fence(self) -> None:
        self.do(self.some(), lambda: self.c.fence(Fence.PROXY_ASYNC))

    def shuffle(self) -> None:
        some = self.some()
        members = self.members(some)
        if members is None:
            return self.syncwarp()
        by = self.rng.choice((1, 2, 16))

        def exchange() -> None:
            value = self.c.load(self.sum.index(0))
            self.add(value.shuffle(by, ShuffleMode.UP, members=members))

        if self.rng.random() < 0.3 or members & (members + 1) == 0:
            self.do(some, exchange)

    # ---- the kernel
    def kernel(self) -> UOp:
        asynchronous = self.rng.random()
        copies, bulk = asynchronous < 0.4, asynchronous > 0.7
        accesses = [self.write, self.read, self.read, self.atomic]
        if self.grid > 1 or self.rng.random() < 0.2:
            accesses += [self.in_global] * 2
        order = [
            *(self.barrier, self.syncwarp, self.syncwarp, self.named, self.shuffle),
            *([self.arrive, self.wait] * 3),
        ]
        if copies:
            accesses += [self.copy] * 2
            order += [self.commit, self.commit, self.wait_group, self.wait_group]
        if bulk:
            accesses += [self.bulk_load] * 2
            order += [self.fence] * 4
        body = [self.rng.choice(accesses) for _ in range(self.rng.randrange(2, 5))]
        body += [self.rng.choice(order) for _ in range(self.rng.randrange(2, 9))]
        self.rng.shuffle(body)
        return self._around(body, copies)

    def _around(self, body: list[Callable[[], None]], copies: bool) -> UOp:
        """Everything begins with a value; the counts of mbarriers are known at the end."""
        seed, who = self.rng.random(), self.rng.randrange(self.size)
        filled, finished, waited = (self.rng.random() < 0.9 for _ in range(3))
        again = range_(self.rng.randrange(2, 4), 1) if self.rng.random() < 0.3 else None
        counts = self._write(body, seed)
        self.phases_each, self.loop = self.phases, again
        self.c, self.counts, self.waits, self.bars, self.phases = Cursor(), {}, [], 0, {}
        with self.c.when(self.t.eq(who)):
            for bar, count in (counts or {0: 1}).items():
                self.c.init(self.bar.index(bar), count)
            self.c.fence(Fence.MBAR_INIT)
        if filled:
            for part in range(-(-64 // self.size)):
                at = part * self.size + self.t
                self.c.store(self.s.index(at), at.cast(dtypes.i32), at < 64)
            self.c.fence(Fence.PROXY_ASYNC)
        self.c.barrier()
        self.c.store(self.sum.index(0), self.t.cast(dtypes.i32))
        if again is None:
            self._write(body, seed, waited)
        else:
            with self.c.loop(again):
                self._write(body, seed, waited)
        if copies:
            self.c.commit(Engine.CP_ASYNC)
        if copies and finished:
            self.c.wait_group(Engine.CP_ASYNC)
        at = self.b * self.size + self.t
        self.c.store(self.out.index(at), self.c.load(self.sum.index(0)))
        return self.c.sink()

    def _write(
        self, body: list[Callable[[], None]], seed: float, waited: bool = False
    ) -> dict[int, int]:
        """The same text each time; gives the counts of its mbarriers.

        waited: all threads wait for all that is left, at the end."""
        self.rng = random.Random(seed)
        for step in body:
            step()
        for bar, phase in self.waits if waited else ():
            self.wait_for(bar, phase)
        return self.counts

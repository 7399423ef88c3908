"""Random small kernels of a seed: threads that exchange values in every way, some slightly wrong.

Half of the kernels have no plan at all (soup.py).  The others are a row of exchanges, each right as
it is written here.  A `slip` leaves out or weakens a synchronisation, shifts an index, drops a
gate; how often is drawn per kernel, so that about half of them are clean.  No branch and no address
depends on what threads exchange: until its first race a kernel does the same in every order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.happens_before.small import blocks, mbarriers, number, registers, shared, threads
from tests.happens_before.soup import SIZES as SOUP_SIZES
from tests.happens_before.soup import Soup
from uopc.dtype import dtypes
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import (
    ALL_LANES,
    AccessArg,
    Atomic,
    AxisType,
    Combine,
    Engine,
    Fence,
    Ops,
    ShuffleMode,
    Vote,
)

SIZES = (4, 32, 33, 64, 64, 64, 96)
HALF = 0xFFFF
TILE = (4, 16)
TILE_SIZE, TILE_BYTES = 64, 256
COUNTERS = 4
#: slots of the parameters: the result, what is read, what is read and written
OUT, IN, SCRATCH, TILES_IN, TILES_OUT = range(5)


@dataclass(frozen=True)
class Generated:
    """A kernel, and the slots of parameters that hold values from the start and are written."""

    seed: int
    sink: UOp
    given: frozenset[int]


def generate(seed: int, sloppy: float | None = None) -> Generated:
    """The kernel of a seed.  sloppy: how often it slips; 0 gives clean kernels only."""
    rng = random.Random(seed)
    if sloppy is None and rng.random() < 0.5:
        soup = Soup(rng, rng.choice(SOUP_SIZES), rng.choice((1, 1, 1, 2)))
        sink = soup.kernel()
        return Generated(seed, sink, frozenset(soup.given))
    drawn = rng.choice((0, 0.12, 0.25))
    sloppy = drawn if sloppy is None else sloppy
    builder = Builder(rng, rng.choice(SIZES), rng.choice((1, 1, 2)), sloppy)
    builder.kernel()
    return Generated(seed, builder.c.sink(), frozenset(builder.given))


@dataclass
class Builder:
    """Writes one kernel."""

    rng: random.Random
    size: int
    grid: int
    sloppy: float
    c: Cursor = field(default_factory=Cursor)
    axes: int = 0
    loops: list[UOp] = field(default_factory=list)
    sites: int = 0  # mbarriers in use
    given: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        n = self.size
        self.warps = (n + 31) // 32
        if n % 32 == 0 and self.rng.random() < 0.4:
            lane, warp = range_(32, 90, AxisType.LANE), range_(self.warps, 91, AxisType.WARP)
            self.t = warp * 32 + lane if self.warps > 1 else lane
        else:
            self.t = threads(n)
        self.b = blocks(self.grid) if self.grid > 1 else number(0)
        self.out = buffer(OUT, dtypes.i32, (self.grid * n,))
        self.x = buffer(IN, dtypes.i32, (self.grid * 4 * n,))
        self.scratch = buffer(SCRATCH, dtypes.i32, (self.grid * n,))
        self.s = shared(4 * n)
        self.wide = shared(4 * n, 1, dtypes.u8), shared(4 * n, 2, dtypes.u8)
        self.counters = shared(COUNTERS, 3)
        self.tile = shared(TILE_SIZE, 4)
        self.bars = mbarriers(6)
        self.sum = registers(1)
        # one kind a kernel: atomics of two kinds give other values in other orders
        self.atomic = self.rng.choice((Atomic.ADD, Atomic.MAX, Atomic.XOR, Atomic.MIN))

    # ---- small things
    def slip(self, times: float = 1.0) -> bool:
        return self.rng.random() < self.sloppy * times

    @property
    def lane(self) -> UOp:
        return self.t % 32

    @property
    def whole_warps(self) -> bool:
        return self.size % 32 == 0

    def add(self, value: UOp) -> None:
        """Into this thread's sum."""
        now = self.c.load(self.sum.index(0))
        self.c.store(self.sum.index(0), now * 3 + value)

    def value(self) -> UOp:
        """Something of this thread's own."""
        kind = self.rng.randrange(3)
        if kind == 0:
            return self.t.cast(dtypes.i32) * self.rng.randrange(1, 9) + self.rng.randrange(9)
        if kind == 1:
            return self.c.load(self.x.index(self.b * self.size + self.t))
        return self.c.load(self.sum.index(0)) + 1

    @contextmanager
    def loop(self, size: int) -> Iterator[UOp]:
        self.axes += 1
        r = range_(size, self.axes)
        self.loops.append(r)
        with self.c.loop(r):
            yield r
        self.loops.pop()

    def ordinal(self) -> UOp:
        """Which iteration this is, of all loops around."""
        n = number(0)
        for r in self.loops:
            n = n * r.arg.size + r
        return n

    # ---- where threads look
    def everywhere(self) -> UOp:
        """An element of 0 ... size - 1 by any map that gives each thread another one."""
        n, t = self.size, self.t
        step = self.rng.randrange(1, n)
        return self.rng.choice((n - 1 - t, (t + step) % n, t))

    def in_warp(self) -> UOp:
        """One that this thread's warp has."""
        by = self.rng.randrange(1, 32)
        if not self.whole_warps:
            return self.t
        return self.rng.choice((self.t ^ by, self.t // 32 * 32 + (self.lane + by) % 32))

    def shifted(self, at: UOp) -> UOp:
        return at + 1 if self.slip(0.5) else at

    # ---- all threads of the block meet
    def meet(self) -> None:
        if self.slip():
            if self.rng.random() < 0.5:
                self.c.syncwarp()
            return
        ways: list[Callable[[], object]] = [self.c.barrier] * 4
        if self.whole_warps:
            ways.append(self.meet_named)
        if self.sites < 4:
            ways += [self.meet_at_mbarrier] * 2
        self.rng.choice(ways)()

    def meet_named(self) -> None:
        self.c.named_barrier(number(self.rng.randrange(1, 4)), self.size)

    def meet_at_mbarrier(self) -> None:
        """Sites 0 and 1 count threads, 2 and 3 count warps; each is met once an iteration."""
        site, self.sites = self.sites, self.sites + 1
        bar = self.bars.index(site)
        if site < 2:
            self.c.arrive(bar)
        else:
            if not self.slip():
                self.c.syncwarp()
            with self.c.when(self.lane < 1):
                self.c.arrive(bar)
        parity = self.ordinal() % 2
        self.c.wait(bar, (parity + 1) % 2 if self.slip(0.5) else parity)

    def meet_in_warp(self) -> None:
        if not self.slip():
            self.c.syncwarp()

    # ---- exchanges
    def exchange(self) -> None:
        """Write, meet, read, meet."""
        meet, where = self.rng.choice(
            (
                (self.meet, self.everywhere),
                (self.meet, self.everywhere),
                (self.meet_in_warp, self.in_warp),
            )
        )
        base = self.rng.choice((0, self.size))
        self.c.store(self.s.index(self.t + base), self.value())
        meet()
        for _ in range(self.rng.randrange(1, 3)):
            self.add(self.c.load(self.s.index(self.shifted(where()) + base)))
        meet()

    def broadcast(self) -> None:
        """One thread writes, all read."""
        who = self.rng.randrange(self.size)
        with self.c.when(self.t.eq(who)):
            self.c.store(self.s.index(who), self.value())
        self.meet()
        self.add(self.c.load(self.s.index(who)))
        self.meet()

    def same_value(self) -> None:
        """All write one value: a warning, no race."""
        if self.rng.random() < 0.3:
            at = 3 * self.size + self.t // 2
            self.c.store(self.s.index(at), 7)
            self.meet()
            self.add(self.c.load(self.s.index(at)))
            self.meet()

    def own(self) -> None:
        """An element that nobody else touches."""
        at = self.s.index(2 * self.size + self.t)
        self.c.store(at, self.value())
        self.add(self.c.load(at))

    def gated(self) -> None:
        """Half of the threads write, the others read after the barrier, through gates."""
        n = self.size // 2
        gate = self.t < n
        base = self.size
        none = self.slip()
        self.c.store(self.s.index(base + self.t), self.value(), None if none else gate)
        self.meet()
        at = self.s.index(base + self.shifted(self.t - n))
        upper = (n - 1 < self.t) & (self.t < 2 * n)
        self.add(self.c.load(at, None if self.slip() else upper, 0))
        self.meet()

    def input(self) -> None:
        """A gated read near the end of a parameter."""
        n = self.grid * 4 * self.size
        at = self.b * 3 * self.size + self.t + 2 * self.size
        gate = at + 1 < n
        self.add(self.c.load(self.x.index(at + 1), None if self.slip() else gate, 0))

    def in_scratch(self) -> None:
        """An exchange through GLOBAL memory; blocks stay apart."""
        self.given.add(SCRATCH)
        block = number(0) if self.slip(0.5) else self.b * self.size
        self.c.store(self.scratch.index(block + self.t), self.value())
        self.meet()
        self.add(self.c.load(self.scratch.index(block + self.everywhere())))
        self.meet()

    def wide_copy(self) -> None:
        """Bytes written one by one, copied four at a time, read one by one."""
        first, second = self.wide
        four = AccessArg(4)
        at = 4 * self.everywhere()
        byte = self.rng.randrange(4)
        for j in range(4):
            if not self.slip(0.3):
                self.c.store(first.index(4 * self.t + j), self.value().cast(dtypes.u8))
        self.meet()
        source = self.c._now(first.index(self.shifted(at)))
        self.c.do(Ops.STORE, second.index(4 * self.t), UOp(Ops.LOAD, (source,), four), arg=four)
        self.meet()
        self.add(self.c.load(second.index(4 * self.everywhere() + byte)).cast(dtypes.i32))
        self.meet()

    # ---- lanes
    def shuffle(self) -> None:
        v = self.c.load(self.sum.index(0))
        members = HALF if self.slip(0.5) else ALL_LANES
        by = self.rng.randrange(1, 32 if self.whole_warps else min(self.size, 32))
        if self.whole_warps:
            mode = self.rng.choice((ShuffleMode.XOR, ShuffleMode.UP, ShuffleMode.DOWN))
            self.add(v.shuffle(by, mode, members=members))
        elif self.rng.random() < 0.5:
            self.add(v.shuffle(by, ShuffleMode.UP, members=members))
        else:
            self.add(v.shuffle(0, ShuffleMode.INDEX, number(0), members=members))

    def vote(self) -> None:
        v = self.c.load(self.sum.index(0))
        members = HALF if self.slip(0.5) else ALL_LANES
        kind = self.rng.randrange(3)
        if kind == 0:
            self.add(v.warp_reduce(self.rng.choice((Combine.ADD, Combine.MAX)), members))
        elif kind == 1:
            self.add((v < 40).vote(Vote.BALLOT, members).cast(dtypes.i32))
        else:
            vote = self.rng.choice((Vote.ANY, Vote.ALL))
            self.add((v < 40).vote(vote, members).cast(dtypes.i32))

    def half_warps(self) -> None:
        """Lanes 0 to 15 of each warp among themselves."""
        if not self.whole_warps:
            return
        members = ALL_LANES if self.slip(0.5) else HALF
        limit = 17 if self.slip(0.5) else 16
        by = self.rng.choice((1, 2, 4, 8, 16) if self.slip() else (1, 2, 4, 8))
        with self.c.when(self.lane < limit):
            self.c.store(self.s.index(2 * self.size + self.t), self.value())
            if not self.slip():
                self.c.syncwarp(members)
            self.add(self.c.load(self.s.index(2 * self.size + (self.t ^ by))))
            if self.rng.random() < 0.5:
                self.c.syncwarp(members)
                self.add(self.c.load(self.sum.index(0)).shuffle(by % 16 or 1, members=members))
        self.meet()

    # ---- atomics
    def atomics(self) -> None:
        """Everybody adds, all meet, everybody reads, all meet."""
        which = self.rng.choice((self.t % COUNTERS, number(self.rng.randrange(COUNTERS))))
        self.c.atomic(self.atomic, self.counters.index(which), self.value())
        if self.rng.random() < 0.7:
            self.meet()
            self.add(self.c.load(self.counters.index(self.rng.randrange(COUNTERS))))
            self.meet()

    def count(self) -> None:
        """One more into a counter, that this thread alone needs not meet others for."""
        at = self.t % COUNTERS if self.slip() else self.t % 2
        self.c.atomic(self.atomic, self.counters.index(at), 1)

    def global_atomics(self) -> None:
        """Blocks may share what only atomics touch."""
        self.given.add(TILES_OUT)
        together = buffer(TILES_OUT, dtypes.i32, (self.grid * TILE[0], TILE[1]))
        self.c.atomic(Atomic.ADD, together.index(self.t % 8), self.value())
        if self.slip(0.5):
            self.add(self.c.load(together.index(self.t % 8)))

    # ---- asynchronous copies
    def copy_async(self) -> None:
        """Groups of copies, waited for, then read by others."""
        groups = self.rng.randrange(1, 3)
        width = self.rng.choice((1, 1, 2, 4) if self.size % 4 == 0 else (1,))
        for g in range(groups):
            at = self.s.index(g * self.size + self.t * width)
            source = self.x.index(
                self.b * self.size + self.t * width + (0 if self.slip(0.3) else 4 * g)
            )
            some = None if width == 1 else self.t < self.size // width
            gate = self.t < self.size // 2 if self.rng.random() < 0.2 else None
            if some is None:
                self.c.copy_async(at, source, width, gate)
            else:
                with self.c.when(some):
                    self.c.copy_async(at, source, width, gate)
            late = self.slip(0.5)  # the last commit after the wait
            if not late:
                self.c.commit(Engine.CP_ASYNC)
        if not self.slip(0.5):
            self.c.wait_group(Engine.CP_ASYNC, 1 if self.slip() else 0)
        self.c.commit(Engine.CP_ASYNC)
        self.meet()
        size = self.size // width * width
        for g in range(groups):
            self.add(self.c.load(self.s.index(g * self.size + self.everywhere() % size)))
        self.meet()

    def pipeline(self) -> None:
        """Two stages: while one is read, the other is being filled."""
        steps, n = self.rng.randrange(2, 4), self.size

        def fill(stage: UOp, step: UOp) -> None:
            self.c.copy_async(self.s.index(stage * n + self.t), self.x.index(step * n + self.t))

        fill(number(0), number(0))
        self.c.commit(Engine.CP_ASYNC)
        pending = 2 if self.slip() else 1
        with self.loop(steps) as k:
            fill((k + 1) % 2, k + 1)
            self.c.commit(Engine.CP_ASYNC)
            self.c.wait_group(Engine.CP_ASYNC, pending)
            if not self.slip():
                self.c.barrier()
            self.add(self.c.load(self.s.index(k % 2 * n + self.everywhere())))
            if not self.slip():
                self.c.barrier()
        if not self.slip(0.5):
            self.c.wait_group(Engine.CP_ASYNC)
        self.c.barrier()

    def bulk_load(self) -> None:
        """A tile by one thread, seen by all through an mbarrier; the tile is free again."""
        if self.loops or self.sites > 4:
            return
        self.sites = 5
        tiles = buffer(TILES_IN, dtypes.i32, (8, TILE[1]))
        swizzle = self.rng.choice((0, 0, 64))
        row = number(self.rng.choice((0, 4, 6)))  # rows beyond the end are zeros
        with self.c.when(self.t < (2 if self.slip(0.3) else 1)):
            self.c.arrive(self.bars.index(4), TILE_BYTES + (16 if self.slip(0.3) else 0))
            self.c.bulk_load(
                self.tile.index(0),
                tensor_map(tiles, TILE, swizzle),
                self.bars.index(4),
                row,
                number(0),
            )
        if not self.slip():
            self.c.wait(self.bars.index(4), 0)
        for _ in range(2):
            self.add(self.c.load(self.tile.index(self.everywhere() % TILE_SIZE)))
        if not self.slip():
            self.c.fence(Fence.PROXY_ASYNC)
        self.meet()

    def bulk_store(self) -> None:
        """A tile that all threads have written, stored by one of them."""
        self.given.add(TILES_OUT)
        tiles = buffer(TILES_OUT, dtypes.i32, (self.grid * TILE[0], TILE[1]))
        for part in range(-(-TILE_SIZE // self.size)):
            at = part * self.size + self.t
            self.c.store(self.tile.index(at), self.value(), at < TILE_SIZE)
        early = self.slip()
        if not self.slip() and not early:
            self.c.fence(Fence.PROXY_ASYNC)
        self.meet()
        if early:
            self.c.fence(Fence.PROXY_ASYNC)
        with self.c.when(self.t < 1):
            self.c.bulk_store(
                tensor_map(tiles, TILE), self.tile.index(0), self.b * TILE[0], number(0)
            )
            late = self.slip(0.5)  # the commit after the wait
            if not late:
                self.c.commit(Engine.BULK)
            if not self.slip(0.5):
                self.c.wait_group(Engine.BULK, 0, read=self.rng.random() < 0.5)
            if late:
                self.c.commit(Engine.BULK)
        self.meet()
        if self.rng.random() < 0.5:  # free again for ordinary writes
            self.c.store(self.tile.index(self.t % TILE_SIZE), self.value(), self.t < TILE_SIZE)
            if not self.slip():
                self.c.fence(Fence.PROXY_ASYNC)
            self.meet()

    # ---- scopes
    def inside(self) -> None:
        """Exchanges in a loop."""
        with self.loop(self.rng.randrange(2, 4)):
            for _ in range(self.rng.randrange(1, 3)):
                self.one(IN_LOOPS)

    def under(self) -> None:
        """Something under a condition; divergent ones hold no meeting of the block."""
        kind = self.rng.randrange(4)
        if kind == 0 and self.loops:
            with self.c.when(self.loops[-1] < 1):
                self.one(IN_LOOPS)
            return
        odd = self.c.load(self.x.index(self.t)) < 4
        conditions = (self.t % 2 < 1, self.t < self.size // 2, odd, self.lane < 5)
        with self.c.when(self.rng.choice(conditions)):
            if self.slip(0.5):
                self.meet()
            for _ in range(self.rng.randrange(1, 3)):
                self.one(ALONE)

    def pair_of_warps(self) -> None:
        """Two of the warps meet at a NAMED barrier."""
        if self.size < 64 or not self.whole_warps:
            return
        with self.c.when(self.t < 64):
            self.c.store(self.s.index(2 * self.size + self.t), self.value())
            if not self.slip():
                self.c.named_barrier(number(5), 96 if self.size > 64 and self.slip(0.3) else 64)
            self.add(self.c.load(self.s.index(2 * self.size + 63 - self.t)))
        self.meet()

    def ring(self) -> None:
        """A warp that fills stages, others that empty them, until the end of the kernel."""
        stages, steps = self.rng.randrange(1, 3), self.rng.randrange(2, 5)
        full, empty = mbarriers(stages, 1), mbarriers(stages, 2)
        readers = self.warps - 1
        with self.c.when(self.t < 1):
            for s in range(stages):
                self.c.init(full.index(s), 32)
                self.c.init(empty.index(s), readers + (1 if self.slip(0.2) else 0))
        self.c.barrier()
        with self.c.role("producer", 0, 1), self.loop(steps) as k:
            if not self.slip():
                parity = (k // stages + (0 if self.slip(0.5) else 1)) % 2
                self.c.wait(empty.index(k % stages), parity)
            self.c.store(
                self.s.index(k % stages * 32 + self.lane), self.value() + k.cast(dtypes.i32)
            )
            self.c.arrive(full.index(k % stages))
        before = self.sum
        with self.c.role("consumer", 1, readers):
            value = self.c.load(before.index(0))
            self.sum = registers(1, 1)  # a role has registers of its own
            self.c.store(self.sum.index(0), value)
            with self.loop(steps) as k:
                if not self.slip():
                    self.c.wait(full.index(k % stages), k // stages % 2)
                self.add(self.c.load(self.s.index(k % stages * 32 + 31 - self.lane)))
                if not self.slip():
                    self.c.syncwarp()
                with self.c.when(self.lane < 1):
                    self.c.arrive(empty.index(k % stages))
            self.result()
        self.sum = before
        with self.c.role("rest", 0, 1):
            self.result()

    # ---- the kernel
    def one(self, among: tuple[Callable[[Builder], None], ...]) -> None:
        before = self.c.done
        self.rng.choice(among)(self)
        if self.c.done == before:  # it does not suit this block
            self.own()

    def result(self) -> None:
        value = self.c.load(self.sum.index(0))
        at = self.b * self.size + self.shifted(self.t)
        if self.slip(0.3):
            self.c.store(self.out.index(at), value, self.t < self.size - 1)
        else:
            self.c.store(self.out.index(at), value)

    def kernel(self) -> None:
        with self.c.when(self.t < 1):
            for site in range(6):
                count = self.size if site < 2 else self.warps if site < 4 else 1
                self.c.init(self.bars.index(site), count + (1 if self.slip(0.05) else 0))
            if not self.slip(0.3):
                self.c.fence(Fence.MBAR_INIT)
        with self.c.when(self.t < COUNTERS):
            self.c.store(self.counters.index(self.t), 0)
        if not self.slip(0.3):
            self.c.barrier()
        if not self.slip(0.1):
            self.c.store(self.sum.index(0), self.t.cast(dtypes.i32))
        for _ in range(self.rng.randrange(1, 5)):
            self.one(ALL)
        if self.whole_warps and self.warps > 1 and self.rng.random() < 0.15:
            self.ring()
        else:
            self.result()


#: what one thread may do without the others
ALONE = (Builder.own, Builder.input, Builder.count)
IN_LOOPS = (
    *(Builder.exchange, Builder.exchange, Builder.broadcast, Builder.gated, Builder.wide_copy),
    *(Builder.shuffle, Builder.vote, Builder.half_warps, Builder.atomics, Builder.copy_async),
    *(Builder.under, Builder.pair_of_warps, Builder.in_scratch, Builder.own),
)
ALL = (
    *IN_LOOPS,
    *(Builder.inside, Builder.inside, Builder.inside, Builder.pipeline, Builder.bulk_load),
    *(Builder.bulk_store, Builder.global_atomics, Builder.same_value, Builder.input),
)

"""Opts for kernels that reduce a contiguous axis: a row a warp, a row a block, parts of a row.

What an SM needs is bytes in flight and enough of its registers left for several blocks: while one
of them exchanges, another one loads.  The figures behind the numbers: notes 0003 and 0012.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from uopc.choose.clusters import LONG, over_a_cluster
from uopc.choose.facts import KernelFacts, pow2_at_least, pow2_at_most
from uopc.choose.sizes import Aim, Sizes, order
from uopc.decision import Guess, Reason
from uopc.uop.ops import Combine

REGISTERS_BESIDES = 24  # addresses, guards and temporaries of a kernel that holds nothing
REGISTERS_EARLY = 16  # the same, while loads that were issued early are awaited
REGISTERS_HELD, REGISTERS_HELD_NARROW = 31, 16  # beside the elements of a row, of f32 and of bf16
MOST_CARRIED = 112  # registers of a thread's part of all rows
SHARED_BESIDES = 1 << 10  # bytes of the warps' partial results, beside a row

IN_FLIGHT = 32  # bytes that a thread has to ask for at once, where many are resident
HELD = (8, 16, 32)  # elements of a row that a thread may hold, in whole vectors
RESIDENT = 44 << 10  # bytes of rows of an SM from which more do not help
PART_BYTES, MOST_PARTS = 1 << 16, 8192  # of a sum that is split: one step of a block, and of blocks
FULL = 1.125  # times a row's length that its threads may hold before fewer of them are better
MOST_BLOCKS = 16  # blocks per SM that launch bounds ask for: every target has room for them

# ---- what decides, in words
WALKED = Reason(
    "choose.rows.rows", "axis {axis} is reduced and contiguous: neighbouring threads walk a row"
)
WIDE = Reason(
    "choose.facts.KernelFacts.vector",
    "every access contiguous along axis {axis} begins at a multiple of {n} elements",
)
SOME_LANES = Reason(
    "choose.rows._Row.of_some_lanes",
    "a row of {n} elements is {lanes} vectors: one each for some lanes of a warp",
)
ROWS_SHARE = Reason(
    "choose.rows._Row.add_rows",
    "a row takes {lanes} threads, no more than a warp: others of a block of {most} threads take "
    "other rows",
)
_SEVERAL = (
    "rows are short: a thread has several, as long as {blocks} blocks are left of {count} rows"
)
LANES_SHARE = Reason("choose.rows._Row.of_some_lanes", _SEVERAL)
WARPS_SHARE = Reason("choose.rows._Row.in_registers", _SEVERAL)
HELD_LANES = Reason(
    "choose.rows._Row.lanes",
    "a row of {n} elements, about {each} of them a thread{held}",
)
HELD_COPIES = Reason(
    "choose.rows._Row.in_registers",
    "{local} threads with vectors of {v} hold a row of {n} in {carried} registers each, of "
    "{most} at most: it is read once",
)
STEP_LANES = Reason(
    "choose.rows._Row.in_steps",
    "a row of {n} elements is walked in steps of a block, of {most} threads at most",
)
STEP_COPIES = Reason(
    "choose.rows._Row.in_steps",
    "{spare} registers are left for each of {threads} threads: so many vectors of each step fly "
    "together",
)
PARTS = Reason(
    "choose.rows._Row.parts",
    "{count} rows are fewer than {blocks} blocks, and {n} elements long: parts of a row have "
    "blocks of their own",
)
PLAIN = Reason(
    "choose.rows._Row.in_steps", "the plain candidate: {threads} threads take elements one by one"
)
BOUNDS = Reason(
    "choose.rows._Row.finish",
    "about {registers} registers for each of {threads} threads: so many blocks fit the {file} "
    "registers of an SM",
)
PLAIN_BOUNDS = Reason("choose.rows._Row.in_steps", "the plain candidate needs few registers")
ROW_IN_SHARED = Reason(
    "choose.rows._Row.in_steps",
    "a row is walked more than once, and {bytes} bytes of it fit shared memory ({room} bytes)",
)
LATE = Reason(
    "choose.rows._Row.finish",
    "{elements} elements of {streams} loads at once, {weights} of them weights: loads that are "
    "issued early would hold their registers for too long",
)
READ_ONCE = Reason(
    "choose.rows._Row.finish", "no row is walked twice: what was read need not stay in a cache"
)


def rows(facts: KernelFacts, aim: Aim, axis: int) -> list[Guess]:
    """One row is reduced along a contiguous axis, by a warp or by the lanes of a block."""
    row = _Row.of(facts, aim, axis)
    if row.n <= 32 * row.v:
        return [row.of_some_lanes()]
    block = row.in_registers()
    across = None if block is not None and row.is_short else over_a_cluster(facts, aim, axis)
    return [x for x in (across, block, *row.in_steps()) if x is not None]


@dataclass(frozen=True)
class _Row:
    """What is asked of rows.

    n: elements; v: of a vector; count: of rows; last: the axis of neighbouring rows; held: is a row
    walked more than once? streams: loads along it; item: bytes of the widest of them.
    """

    facts: KernelFacts
    aim: Aim
    axis: int
    n: int
    v: int
    count: int
    last: int | None
    held: bool
    streams: int
    item: int

    @classmethod
    def of(cls, facts: KernelFacts, aim: Aim, axis: int) -> _Row:
        kept = [a for a in facts.outputs if a != axis]
        return cls(
            facts,
            aim,
            axis,
            facts.sizes[axis],
            facts.vector(axis),
            math.prod(facts.sizes[a] for a in kept),
            kept[-1] if kept else None,
            facts.held(axis),
            max(1, facts.streams(axis)),
            facts.widest_load(),
        )

    @property
    def words(self) -> int:
        """Registers of an element."""
        return max(1, self.item // 4)

    @property
    def indices(self) -> int:
        """1 where a reduction carries an index beside each value, else 0."""
        extremes = (Combine.ARGMAX, Combine.ARGMIN)
        return int(any(u.arg.combine in extremes for u in self.facts.reduces))

    @property
    def each(self) -> int:
        """Elements of a thread, whole vectors."""
        if self.indices:
            wanted = min(64, 128 // self.item)  # each exchange is dear
        elif not self.held:
            wanted = 16 if self.v > 1 else 8
        elif self.v == 1:
            wanted = 32
        else:
            wanted = next((n for n in self.tried if self.resident_bytes(n) >= RESIDENT), HELD[-1])
        return max(1, wanted // self.v) * self.v

    @property
    def tried(self) -> tuple[int, ...]:
        """Elements of a row that a thread may hold.  Weights want their registers as well; where
        there are two of them, few long threads wait less for each other."""
        weights = self.streams - self.own_streams
        if weights > 1 and self.item >= 4:
            return HELD[2:]
        return HELD if weights and self.item >= 4 else HELD[1:]

    @property
    def is_short(self) -> bool:
        """Does an SM hold two blocks that have a row each, and do they do as well as clusters?"""
        short = self.streams > 1 or self.n <= FULL * LONG
        many = 2 * self.count > self.aim.target.sms
        return short and many and self.at_once(self.each)[0] >= 2

    def resident_bytes(self, each: int) -> int:
        """Bytes of rows that the blocks of an SM hold, with so many elements a thread."""
        blocks, threads = self.at_once(each)
        return blocks * threads * each * self.item * self.own_streams

    def at_once(self, each: int) -> tuple[int, int]:
        """(blocks that an SM holds, threads of each)."""
        target, lanes = self.aim.target, self.lanes(each)
        threads = lanes if lanes > 32 else self.aim.max_threads
        registers = -(-self.registers(each) // 8) * 8
        blocks = min(
            target.registers_per_sm // (threads * registers),
            target.max_threads_per_sm // threads,
            target.max_blocks_per_sm,
        )
        return blocks, threads

    def registers(self, each: int) -> int:
        """About what ptxas needs for a thread that holds so many elements of a row.

        Narrow ones are held in pairs.  Of the weights one stream is loaded as it is used.
        """
        if self.item < 4:
            return REGISTERS_HELD_NARROW + each * self.own_streams
        weights = self.streams - self.own_streams
        return REGISTERS_HELD + each * self.words * (self.own_streams + max(0, weights - 1))

    @property
    def own_streams(self) -> int:
        """Loads that differ from row to row; weights do not."""
        return max(1, self.facts.row_streams(self.axis))

    def lanes(self, each: int) -> int:
        """Threads of a row, with about so many elements each."""
        local = max(32, pow2_at_least(math.ceil(self.n / (FULL * each))))
        if local > 512:
            local = 1024 if self.n * self.words <= 32768 else 512
        return min(local, pow2_at_most(self.aim.row_threads))

    # ---- a row in some lanes of a warp
    def of_some_lanes(self) -> Guess:
        """One vector a lane; a warp has several rows, and where they are short a lane too."""
        s = Sizes(self.facts)
        s.vector[self.axis], s.local[self.axis] = self.v, pow2_at_least(-(-self.n // self.v))
        if self.last is not None:
            lanes = s.threads
            self.add_rows(s)
            room = self.count // (self.aim.blocks * s.threads // lanes)
            most = min(4, max(1, 16 // self.v), room, self.facts.sizes[self.last])
            s.upcast[self.last] = pow2_at_most(max(1, most))
            self.several_rows(s, LANES_SHARE)
        s.because("local", SOME_LANES, self.axis, n=self.n, lanes=-(-self.n // self.v))
        return self.finish(s)

    def several_rows(self, s: Sizes, of_a_thread: Reason) -> None:
        """Why a block, and a thread, has several rows."""
        assert self.last is not None
        lanes, most = s.local[self.axis], self.aim.max_threads
        s.because("local", ROWS_SHARE, self.last, lanes=lanes, most=most)
        s.because("upcast", of_a_thread, self.last, blocks=self.aim.blocks, count=self.count)

    def add_rows(self, s: Sizes) -> None:
        """Rows that fit a warp share a block; longer ones do not: the barrier would couple them."""
        assert self.last is not None
        size = pow2_at_least(self.facts.sizes[self.last])
        s.local[self.last] = max(1, min(self.aim.max_threads // s.threads, size))

    # ---- a row in the registers of a block
    def in_registers(self) -> Guess | None:
        """Read once and written once; None where a block has no room, or need not have it."""
        each, target = self.each, self.aim.target
        local = self.lanes(each)
        wasted = _padded(self.n, local * self.v) > FULL * self.n
        if local > 32 and wasted and 3 * each // 2 * local // 2 >= self.n:
            local //= 2  # half as many threads waste less
        copies = -(-self.n // (local * self.v))
        carried = copies * self.v * self.words * self.streams
        if carried > MOST_CARRIED or local * (REGISTERS_EARLY + carried) > target.registers_per_sm:
            return None
        if not self.held and copies * self.v > FULL * each:
            return None
        s = Sizes(self.facts)
        s.local[self.axis], s.upcast[self.axis], s.vector[self.axis] = local, copies, self.v
        if self.last is not None and local <= 32:
            self.add_rows(s)
            rest = self.count // s.local[self.last]
            asked = copies * self.v * self.item * self.streams
            most = min(4, IN_FLIGHT // asked, rest // self.aim.blocks, self.facts.sizes[self.last])
            s.upcast[self.last] = pow2_at_most(max(1, most))
            self.several_rows(s, WARPS_SHARE)
        held = " that keeps them, since the row is walked again" if self.held else ""
        s.because("local", HELD_LANES, self.axis, n=self.n, each=each, held=held)
        figures = dict(n=self.n, local=local, v=self.v, carried=carried, most=MOST_CARRIED)
        s.because("upcast", HELD_COPIES, self.axis, **figures)
        return self.finish(s)

    # ---- a row in steps
    def in_steps(self) -> Iterator[Guess]:
        """A loop along the row: of the whole, of a part that is a block's, or kept in SHARED."""
        target, axis = self.aim.target, self.axis
        parts = self.parts
        most = pow2_at_most(self.aim.row_threads)
        if self.held:
            threads = min(most // self.words, pow2_at_least(-(-self.n // self.each)))
        else:
            room = most if parts > 1 else self.aim.max_threads
            threads = min(room, pow2_at_least(-(-self.n // self.v)))
        s = Sizes(self.facts)
        s.local[axis], s.vector[axis] = threads, self.v
        spare = target.registers_per_sm // threads - REGISTERS_BESIDES
        copies = spare // ((self.streams + self.indices) * self.v * self.words)
        wanted = min(4 if self.v > 1 else 8, pow2_at_most(max(1, copies)))
        s.upcast[axis] = max(1, min(wanted, -(-self.n // (parts * threads * self.v))))
        s.because("local", STEP_LANES, axis, n=self.n, most=most)
        s.because("upcast", STEP_COPIES, axis, spare=spare, threads=threads)
        if parts > 1:
            s.blocks[axis] = parts
            s.because("blocks", PARTS, axis, count=self.count, blocks=self.aim.blocks, n=self.n)
        s.serial({axis: parts})
        shared = _padded(self.n, threads * self.v * s.upcast[axis]) * self.streams
        shared *= self.facts.widest_item()
        room = min(200_000, target.shared_optin_bytes - SHARED_BESIDES)
        s.because("keep", ROW_IN_SHARED, bytes=shared, room=room)
        yield self.finish(s, "shared" if self.held and shared <= room else "reg")
        small = Sizes(self.facts)
        small.local[axis], small.vector[axis] = min(256, threads), 1
        small.serial()
        small.because("local", PLAIN, axis, threads=small.local[axis])
        small.because("blocks_per_sm", PLAIN_BOUNDS)
        yield small.guess((axis, *order(self.facts, axis)[1:]), blocks_per_sm=2)

    @property
    def parts(self) -> int:
        """Over how many blocks a row is split: rows that are few and long."""
        aim = self.aim
        if not aim.split or self.held or self.count >= aim.blocks or self.n <= 65536:
            return 1
        few = min(4 * aim.target.sms // self.count, -(-self.n // 8192))
        return max(1, few, min(MOST_PARTS // self.count, self.n * self.item // PART_BYTES))

    # ---- launch bounds
    def finish(self, s: Sizes, keep: str = "reg") -> Guess:
        """Launch bounds from a register estimate: what is held at once, and addresses."""
        target, streams = self.aim.target, self.streams
        axes = range(len(self.facts.axes))
        elements = math.prod(d.get(a, 1) for d in (s.upcast, s.vector) for a in axes)
        arrays = streams + self.held if streams * elements <= 64 else 2
        registers = REGISTERS_BESIDES + (arrays + self.indices) * elements * self.words
        threads = max(32, s.threads)
        per_sm = target.registers_per_sm // (threads * registers)
        per_sm = max(1, min(per_sm, target.max_threads_per_sm // threads, MOST_BLOCKS))
        if self.held and self.item < 4:
            per_sm = 0  # held in pairs and taken apart as they are used: ptxas knows better
        flying = s.threads * (REGISTERS_EARLY + streams * elements * self.words)
        early = streams * elements <= 64 and flying <= target.registers_per_sm
        s.because("lanes", WALKED, axis=self.axis)
        s.because("vector", WIDE, self.axis, axis=self.axis, n=self.v)
        file = target.registers_per_sm
        s.because("blocks_per_sm", BOUNDS, registers=registers, threads=threads, file=file)
        weights = streams - self.own_streams
        s.because("early", LATE, elements=elements, streams=streams, weights=max(0, weights))
        s.because("streaming", READ_ONCE)
        return s.guess(
            order(self.facts, self.axis),
            blocks_per_sm=per_sm,
            keep=keep,
            early=early and self.streams == self.own_streams,
            streaming=not self.held,
        )


def _padded(n: int, step: int) -> int:
    """n, up to whole steps."""
    return -(-n // step) * step

"""About how many cycles a kernel takes under given digits: a model to rank choices by.

Two bounds and what they share.  Throughput: the busiest SM's instructions over its four
schedulers, its shared and global accesses over one pipe, what it fetches from L2.  Latency: one
thread's chain, loop by loop: each iteration waits for its loads, then for its additions; lanes
exchange.  Blocks that an SM cannot hold at once wait in line.  The numbers: note 0008.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from uopc.choose.work import Axes, Memory, Unit, Work
from uopc.target import Target
from uopc.uop.ops import Ops

WARP = 32
SECTOR, LINE = 32, 128  # bytes of one transfer from L2, and of one line of L1

FAR_LOAD, NEAR_LOAD = 450, 40  # cycles from L2, and of a sector that is in L1
BARRIER = 40  # cycles in which a block meets
SHUFFLE = 26  # cycles of one butterfly
ADDITION = 4  # cycles until a sum may be added to
SHARED = 30  # cycles of a read from shared memory
L2_BYTES = 40  # a cycle and SM
START = 700  # cycles until a block runs, and of its end
FETCH = 0.4  # cycles an instruction that runs for the first time
BESIDES = 26  # registers of addresses, guards and temporaries
MOST_SHARED = 40 << 10  # bytes of exchanged values
MOST_UNROLLED = 4096  # instructions of straight code


@dataclass(frozen=True)
class Digits:
    """How each axis is cut: blocks, serial steps, register copies (vector included), lanes.

    vector: elements of the vector digit.  lanes: axes with more than one lane, fastest first.
    """

    sizes: tuple[int, ...]
    blocks: tuple[int, ...]
    serial: tuple[int, ...]
    copies: tuple[int, ...]
    local: tuple[int, ...]
    vector: tuple[int, ...]
    lanes: tuple[int, ...]

    @property
    def threads(self) -> int:
        return math.prod(self.local)

    def inner(self, axis: int) -> int:
        """Elements of an axis that one block covers."""
        return self.serial[axis] * self.copies[axis] * self.local[axis]


@dataclass
class Estimate:
    """What a choice costs.  cycles is inf where it cannot be built."""

    cycles: float = math.inf
    registers: int = 0
    shared: int = 0
    latency: float = 0.0
    issue: float = 0.0
    pipe: float = 0.0
    fetched: float = 0.0
    code: float = 0.0
    why: str = ""
    share: dict[str, float] = field(default_factory=dict)


def estimate(work: Work, digits: Digits, target: Target) -> Estimate:
    """The cost of one launch."""
    return _Thread(work, digits, target).estimate()


class _Thread:
    """One choice under account."""

    def __init__(self, work: Work, digits: Digits, target: Target) -> None:
        self.work, self.d, self.target = work, digits, target
        self.loops = frozenset(a for a, n in enumerate(digits.serial) if n > 1)
        self.requests: dict[Memory, tuple[float, float]] = {}
        self.first_warp = self._first_warp()
        self.e = Estimate()

    def _first_warp(self) -> tuple[tuple[int, int], ...]:
        """(axis, lanes of it) in one warp, fastest first."""
        room, out = WARP, []
        for a in self.d.lanes:
            n = min(room, self.d.local[a])
            if n > 1:
                out.append((a, n))
            room //= n
            if room <= 1:
                break
        return tuple(out)

    def estimate(self) -> Estimate:
        d, e, on = self.d, self.e, self.target
        for unit, times in self._evaluated().items():
            if unit.op is Ops.LOAD:
                self._load(unit, times)
            elif unit.op is Ops.REDUCE:
                self._reduce(unit, times)
            else:
                self._store(unit)
        e.registers = BESIDES + self._registers()
        threads = d.threads
        warps = -(-threads // WARP)
        per_warp = -(-min(e.registers, 255) // 8) * 8 * WARP
        if e.registers > 255 or per_warp * warps > on.registers_per_sm:
            e.why = "registers"
            return e
        if e.shared > MOST_SHARED:
            e.why = "shared memory"
            return e
        if e.code > MOST_UNROLLED:
            e.why = "straight code"
            return e
        blocks = math.prod(d.blocks)
        held = min(
            on.max_blocks_per_sm,
            on.max_threads_per_sm // (warps * WARP),
            on.registers_per_sm // (per_warp * warps),
            on.shared_per_sm_bytes // (e.shared + on.shared_reserved_bytes),
        )
        mine = -(-blocks // on.sms)
        at_once = min(mine, held)
        busy = min(4, warps * at_once)
        throughput = max(
            mine * warps * e.issue / busy, mine * warps * e.pipe, mine * e.fetched / L2_BYTES
        )
        chain = (START + e.latency + e.issue + FETCH * e.code) * -(-mine // held)
        e.cycles = max(throughput, chain) + 0.4 * min(throughput, chain)
        e.share = dict(throughput=throughput, chain=chain, held=held, mine=mine)
        return e

    # ---- how often
    def _evaluated(self) -> dict[Unit, int]:
        """How many loops each unit is evaluated in: loops of different nests are not shared."""
        count: dict[Unit, int] = {}
        if not self.loops:
            stack = list(self.work.outputs)
            while stack:
                u = stack.pop()
                if u not in count:
                    count[u] = 1
                    stack += u.below
            return count
        seen: set[tuple[Unit, tuple[tuple[int, int], ...]]] = set()
        openers = {u: n for n, u in enumerate(self.work.units, start=1)}
        todo = [(u, tuple((a, 0) for a in sorted(u.closed & self.loops))) for u in self.work.outputs]
        while todo:
            u, env = todo.pop()
            if (u, env) in seen:
                continue
            seen.add((u, env))
            count[u] = count.get(u, 0) + 1
            inner = dict(env)
            if u.op is Ops.REDUCE:
                mine = openers[u] * 1000 + count[u]
                inner |= dict.fromkeys(u.closed & self.loops, mine)
            for below in u.below:
                own = below.free & self.loops
                todo.append((below, tuple((a, inner.get(a, 0)) for a in sorted(own))))
        return count

    def _steps(self, axes: Axes) -> int:
        return math.prod([self.d.serial[a] for a in axes & self.loops])

    def _copies(self, axes: Axes) -> int:
        return math.prod([self.d.copies[a] for a in axes])

    # ---- units
    def _load(self, u: Unit, times: int) -> None:
        (m,) = u.memories
        copies, width = self._wide(m)
        runs = times * self._steps(u.free) * copies / width
        wavefronts, _ = self._request(m, width)
        self.e.issue += 2 * runs
        self.e.pipe += wavefronts * runs
        self.e.code += 2 * times * copies / width
        again = times if self._footprint(m) * 2 > 100 << 10 else 1
        self.e.fetched += self._footprint(m) * again

    def _wide(self, m: Memory) -> tuple[int, int]:
        """(register copies of an access, elements of one instruction)."""
        width = 1
        for a, widest in m.widths:
            if self.d.vector[a] > 1 and widest >= self.d.vector[a]:
                width = self.d.vector[a]
        return self._copies(m.axes), width

    def _footprint(self, m: Memory) -> float:
        """Bytes that one block touches, whole sectors."""
        run = m.itemsize
        rest = 1
        for a, stride in m.strides:
            n = min(self.d.sizes[a], self.d.inner(a))
            if stride == m.itemsize:
                run *= n
            elif stride:
                rest *= n
        return max(run, SECTOR) * rest

    def _request(self, m: Memory, width: int) -> tuple[float, float]:
        """(turns of the pipe, bytes) of one access of a warp."""
        if m not in self.requests:
            strides = dict(m.strides)
            offsets = [0]
            for a, n in self.first_warp:
                step = strides.get(a, 0) * self.d.vector[a]
                if step:
                    offsets = [o + step * k for k in range(n) for o in offsets]
            size = width * m.itemsize
            sectors = {b // SECTOR for o in offsets for b in (o, o + size - 1)}
            lines = {s // (LINE // SECTOR) for s in sectors}
            turns = max(1.0, len(sectors) / 4, len(lines) / 2)
            self.requests[m] = (turns, len(sectors) * SECTOR)
        return self.requests[m]

    def _work(self, u: Unit) -> float:
        """Instructions of one thread between a unit and those below it."""
        return sum(n * self._steps(axes) * self._copies(axes) for axes, n in u.work)

    def _reduce(self, u: Unit, times: int) -> None:
        e, d = self.e, self.d
        steps, copies = self._steps(u.inside), self._copies(u.inside)
        elements = steps * copies
        each = 0.0 if u.fused else u.values
        if any(d.blocks[a] * d.inner(a) != d.sizes[a] for a in u.closed):
            each += 2.0  # a guard: an fma is taken apart
        work = self._work(u) + elements * each
        closed_steps = self._steps(u.closed)
        outer = self._steps(u.free)
        e.issue += times * (work + 4 * (steps - 1))
        e.code += times * (work / steps + 8)
        e.latency += times * outer * closed_steps * self._iteration(u)
        self._across(u, times * outer)

    def _iteration(self, u: Unit) -> float:
        """Cycles of one iteration beside its instructions: loads, then a chain of additions."""
        chain = ADDITION * self._copies(u.closed) / 2
        return self._wait(u) + chain

    def _wait(self, u: Unit) -> float:
        """Cycles that an iteration of a unit waits for its own loads."""
        waits = [0.0]
        for x in u.below:
            if x.op is Ops.LOAD:
                if x.free & self.loops or not self.loops:
                    waits.append(self._load_latency(x))
        return max(waits)

    def _load_latency(self, x: Unit) -> float:
        (m,) = x.memories
        far = 0.0
        for a in x.free & self.loops:
            step = dict(m.strides).get(a, 0) * self.d.copies[a] * self.d.local[a]
            far = max(far, min(1.0, step / SECTOR))
        if not self.loops & x.free:
            far = 1.0
        mine = NEAR_LOAD + (FAR_LOAD - NEAR_LOAD) * far
        before = [self._load_latency(y) for y in x.below if y.op is Ops.LOAD and y.free & self.loops]
        return mine + max(before, default=0.0)

    def _across(self, u: Unit, times: int) -> None:
        """Butterflies and the exchange of a REDUCE over lanes."""
        e, d = self.e, self.d
        copies = self._copies(u.free) * u.values
        for a in d.lanes:
            n = d.local[a]
            if a not in u.closed or n == 1:
                continue
            stride = math.prod([d.local[x] for x in d.lanes[: d.lanes.index(a)]])
            in_warp = 1
            if n & (n - 1) == 0 and stride & (stride - 1) == 0 and stride < WARP:
                in_warp = min(n, WARP // stride)
            butterflies = in_warp.bit_length() - 1
            e.issue += times * butterflies * copies * 2
            e.pipe += times * butterflies * copies
            e.code += butterflies * copies * 2
            e.latency += times * butterflies * SHUFFLE
            groups = n // in_warp
            if groups == 1:
                continue
            others = math.prod([d.local[x] for x in d.lanes if x != a and x in u.free])
            e.shared += groups * copies * others * 4 * u.words
            e.issue += times * copies * (1 + 2 * groups)
            e.pipe += times * copies * (1 + groups)
            e.code += copies * (1 + 2 * groups)
            e.latency += times * (2 * BARRIER + SHARED + ADDITION * groups)

    def _store(self, u: Unit) -> None:
        e = self.e
        steps = self._steps(u.closed)
        work = self._work(u)
        e.issue += work + 4 * (steps - 1)
        e.code += work / steps + 8
        e.latency += steps * self._wait(u)
        for m in u.memories:
            copies, width = self._wide(m)
            runs = self._steps(m.axes) * copies / width
            wavefronts, _ = self._request(m, width)
            e.issue += 2 * runs
            e.pipe += wavefronts * runs
            e.code += 2 * copies / width
            e.fetched += self._footprint(m)

    # ---- registers
    def _registers(self) -> int:
        """Loads and sums that live together in the fullest nest, and what is kept beside it."""
        kept, fullest = 0, 0
        used: dict[Unit, int] = {}
        for u in self.work.units:
            for x in u.below:
                used[x] = used.get(x, 0) + 1
        for u in self.work.units:
            if u.op is Ops.LOAD:
                if used.get(u, 0) > 1 and not u.free & self.loops:
                    kept += self._copies(u.free) * u.words
                continue
            mine = sum(
                self._copies(x.free) * x.words
                for x in u.below
                if x.op is Ops.LOAD and not (used[x] > 1 and not x.free & self.loops)
            )
            if u.op is Ops.REDUCE:
                sums = self._copies(u.free) * u.values * u.words
                if used.get(u, 0) > 1:
                    kept += sums
                else:
                    mine += sums
            fullest = max(fullest, mine)
        return kept + fullest


def digits_of(
    sizes: tuple[int, ...],
    gridded: frozenset[int],
    local: Mapping[int, int],
    upcast: Mapping[int, int],
    vector: Mapping[int, int],
    lanes: tuple[int, ...],
    parts: Mapping[int, int],
) -> Digits:
    """The digits that `Opts` with these sizes make; axes in gridded spread over blocks."""
    axes = range(len(sizes))
    l, v = [[x.get(a, 1) for a in axes] for x in (local, vector)]
    c = [upcast.get(a, 1) * v[a] for a in axes]
    rest = [-(-sizes[a] // (l[a] * c[a] * parts.get(a, 1))) for a in axes]
    blocks = tuple(rest[a] if a in gridded else parts.get(a, 1) for a in axes)
    serial = tuple(1 if a in gridded else rest[a] for a in axes)
    return Digits(sizes, blocks, serial, tuple(c), tuple(l), tuple(v), lanes)

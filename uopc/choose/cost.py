"""About how many cycles a kernel takes under given digits: a model to rank choices by.

Two bounds and what they share.  Throughput: the busiest SM's instructions over its four
schedulers, its shared and global accesses over one pipe, what it fetches from L2.  Latency: one
thread's chain, loop by loop: each iteration waits for its loads, then for its additions; lanes
exchange.  Blocks that an SM cannot hold at once wait in line.  The numbers: note 0008.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.choose.turns import Place, Turns, turns
from uopc.choose.work import Axes, Memory, Unit, Work
from uopc.target import Target
from uopc.uop.ops import Ops

WARP = 32
SECTOR, LINE = 32, 128  # bytes of one transfer from L2, and of one line of L1

FAR_LOAD, NEAR_LOAD = 320, 40  # cycles from L2, and of a sector that is in L1
BARRIER = 40  # cycles in which a block meets
SHUFFLE = 26  # cycles of one butterfly
ADDITION = 4  # cycles until a sum may be added to
SHARED = 30  # cycles of a read from shared memory
L2_BYTES = 40  # a cycle and SM
DRAM_BYTES = 15  # the same, from memory
L2_SIZE = 32 << 20  # bytes that stay in L2 from one kernel to the next
START = 570  # cycles until a block runs, and of its end
FETCH = 0.45  # cycles an instruction that runs for the first time
TURN = 2  # cycles that a turn of the pipe takes a warp that is alone
OVERLAP = 0.7  # of the smaller bound that the larger one does not hide
LOOP = 4  # instructions of a loop's turn
RAGGED = 1.25  # times the cycles, where the last block of an axis is not full
BESIDES = 26  # registers of addresses, guards and temporaries
MOST_SHARED = 40 << 10  # bytes of exchanged values
MOST_UNROLLED = 4096  # instructions of straight code
L1_BYTES = 100 << 10  # of one block that stay in L1 until they are read again


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
        """Threads of a block."""
        return math.prod(self.local)


#: the walls of an Estimate, in words
WALLS = (
    "the instructions that an SM issues",
    "its accesses of memory, one after the other",
    "bytes from L2",
    "bytes from memory",
    "the latency of one thread's chain",
)


@dataclass
class Estimate:
    """What a choice costs: cycles is inf where it cannot be built, for the reason `why`.

    at_once: blocks that an SM holds and has.  Of one thread: latency, instructions it issues, turns
    of the pipe to memory.  Of a block: bytes fetched, and those of them that it has fetched before.
    code: instructions of text.  walls: cycles by what bounds the busiest SM, and the chain of its
    blocks.
    """

    cycles: float = math.inf
    registers: int = 0
    shared: int = 0
    at_once: int = 0
    latency: float = 0.0
    issue: float = 0.0
    pipe: float = 0.0
    fetched: float = 0.0
    again: float = 0.0
    code: float = 0.0
    why: str = ""
    walls: tuple[float, ...] = ()

    @property
    def bound(self) -> str:
        """The highest wall."""
        return max(zip(self.walls, WALLS, strict=True))[1] if self.walls else self.why


class Model:
    """The costs of one kernel on one target."""

    def __init__(self, work: Work, sizes: tuple[int, ...], target: Target) -> None:
        self.work, self.sizes, self.target = work, sizes, target
        self._turns: dict[Axes, Turns] = {}
        memories = [m for u in work.units for m in u.memories]
        bytes_ = sum([m.itemsize * math.prod([sizes[a] for a in m.strides]) for m in memories])
        #: bytes of all memories, where they are more than L2 holds
        self.from_memory = bytes_ if bytes_ > L2_SIZE else 0
        self.inner_first = tuple(reversed(work.units))  # consumers before what they evaluate
        self.users: dict[Unit, int] = {}
        for u in work.units:
            for x in u.below:
                self.users[x] = self.users.get(x, 0) + 1

    def turns(self, loops: Axes) -> Turns:
        """The loops of this kernel where these axes have serial digits."""
        if loops not in self._turns:
            self._turns[loops] = turns(self.work.units, self.work.outputs, self.sizes, loops)
        return self._turns[loops]

    def estimate(self, digits: Digits) -> Estimate:
        """The cost of one launch under these digits."""
        return _Thread(self, digits).estimate()


class _Thread:
    """One choice under account."""

    def __init__(self, model: Model, digits: Digits) -> None:
        self.model, self.d = model, digits
        self.e = Estimate()
        self.loops = 0
        for a, n in enumerate(digits.serial):
            if n > 1:
                self.loops |= 1 << a
        self.turns = model.turns(self.loops)
        self.steps = _products(digits.serial)
        self.copies = _products(digits.copies)
        self.in_warp = self._in_warp()

    def _in_warp(self) -> list[tuple[int, int]]:
        """(axis, lanes of it) in one warp, fastest first."""
        room, out = WARP, []
        for a in self.d.lanes:
            n = min(room, self.d.local[a])
            if n > 1:
                out.append((a, n))
                room //= n
        return out

    def estimate(self) -> Estimate:
        d, e, on = self.d, self.e, self.model.target
        e.registers = BESIDES + self._registers()
        warps = -(-d.threads // WARP)
        per_warp = -(-e.registers // 8) * 8 * WARP
        if e.registers > on.max_registers_per_thread or per_warp * warps > on.registers_per_sm:
            e.why = "registers"
            return e
        times = self.turns.times
        for u in self.model.inner_first:
            if u.op is Ops.LOAD:
                self._load(u, times[u])
            elif u.op is Ops.REDUCE:
                self._reduce(u, times[u])
            else:
                self._store(u)
        for place in self.turns.places:
            outer = place.outer.axes if place.outer and self._loads_ahead(place) else place.axes
            e.latency += self.steps[outer] * self._wait(place)
        if e.shared > MOST_SHARED or e.code > MOST_UNROLLED:
            e.why = "shared memory" if e.shared > MOST_SHARED else "straight code"
            return e
        held = min(
            on.max_blocks_per_sm,
            on.max_threads_per_sm // (warps * WARP),
            on.registers_per_sm // (per_warp * warps),
            on.shared_per_sm_bytes // (e.shared + on.shared_reserved_bytes),
        )
        mine = -(-math.prod(d.blocks) // on.sms)
        e.at_once = min(mine, held)
        walked = (e.fetched - e.again) * e.at_once * on.sms  # until a block comes back to its bytes
        far = mine * e.again if walked > L2_SIZE else 0.0
        walls = (
            mine * warps * e.issue / min(4, warps * e.at_once),
            mine * warps * e.pipe,
            mine * e.fetched / L2_BYTES,
            (self.model.from_memory / on.sms + far) / DRAM_BYTES,
        )
        throughput = max(walls)
        alone = e.latency + e.issue + TURN * e.pipe + FETCH * e.code
        chain = (START + alone) * -(-mine // held)
        e.walls = (*walls, chain)
        e.cycles = max(throughput, chain) + OVERLAP * min(throughput, chain)
        if any(n > 1 and n * self._inner(a) != d.sizes[a] for a, n in enumerate(d.blocks)):
            e.cycles *= RAGGED
        return e

    def _inner(self, a: int) -> int:
        """Elements of an axis that one block covers."""
        return self.d.serial[a] * self.d.copies[a] * self.d.local[a]

    # ---- units
    def _load(self, u: Unit, times: int) -> None:
        (m,) = u.memories
        e, width = self.e, self._width(m)
        text = times * self.copies[u.free] / width
        runs = text * self.steps[u.free]
        looked_up = times * self._work(u)
        e.issue += 2 * runs + looked_up
        e.code += 2 * text + looked_up / self.steps[u.free]
        if u.rare:
            return
        e.pipe += self._turns(m, width) * runs
        footprint = self._footprint(m)
        again = times - 1 if footprint > L1_BYTES // 2 else 0
        e.fetched += footprint * (1 + again)
        e.again += footprint * again

    def _width(self, m: Memory) -> int:
        """Elements of one instruction of an access."""
        return max([v for a, w in m.widths.items() if 1 < (v := self.d.vector[a]) <= w], default=1)

    def _footprint(self, m: Memory) -> int:
        """Bytes that one block touches, whole sectors."""
        d = self.d
        run, rest = m.itemsize, 1
        for a, stride in m.strides.items():
            n = min(d.sizes[a], self._inner(a))
            if stride == m.itemsize:
                run *= n
            elif stride:
                rest *= n
        return max(run, SECTOR) * rest

    def _turns(self, m: Memory, width: int) -> int:
        """Turns of the pipe to memory that one access of a warp takes: one for each line that lanes
        touch at once, which are as many as could move one line between them."""
        at_once = min(WARP, LINE // (width * m.itemsize))
        run, apart, lanes = width * m.itemsize, 1, 1
        for a, n in self.in_warp:
            n = min(n, at_once // lanes)
            if n <= 1:
                break
            lanes *= n
            stride = m.strides.get(a, 0) * self.d.vector[a]
            if stride <= max(run, LINE):
                run += stride * (n - 1)
            else:
                apart *= n
        return self.phases(at_once) * apart * -(-run // LINE)

    def phases(self, at_once: int) -> int:
        """How often so many lanes go into a warp."""
        return -(-min(WARP, self.d.threads) // at_once)

    def _work(self, u: Unit) -> float:
        """Instructions of one thread between a unit and those below it."""
        return sum([n * self.steps[axes] * self.copies[axes] for axes, n in u.work])

    def _reduce(self, u: Unit, times: int) -> None:
        e, d = self.e, self.d
        inside = u.free | u.closed
        steps = self.steps[inside]
        each = 0.0 if u.fused else float(u.values)
        if not u.fused and any(self._inner(a) != d.sizes[a] for a in u.closed_axes):
            each += 1.0  # a guard; gated loads make products of zeros
        work = self._work(u) + steps * self.copies[inside] * each
        e.issue += times * (work + LOOP * (steps - 1))
        e.code += times * (work / steps + 8)
        chain = ADDITION * self.copies[u.closed] / 2
        e.latency += times * steps * chain
        if u.closed & self._laned():
            self._across(u, times * self.steps[u.free])

    def _laned(self) -> int:
        return sum([1 << a for a in self.d.lanes])

    def _wait(self, place: Place) -> float:
        """Cycles that one iteration of a loop waits for its own loads, which fly together."""
        if self.loops and not place.axes:
            return 0.0
        return max([self._load_latency(x) for x in place.loads], default=0.0)

    def _load_latency(self, x: Unit) -> float:
        if x.rare:
            return max([self._load_latency(y) for y in x.below if y.op is Ops.LOAD], default=0.0)
        (m,) = x.memories
        d = self.d
        far = 0.0 if x.free & self.loops else 1.0
        for a, stride in m.strides.items():
            if d.serial[a] > 1:
                far = max(far, min(1.0, stride * d.copies[a] * d.local[a] / SECTOR))
        before = [
            self._load_latency(y) for y in x.below if y.op is Ops.LOAD and y.free & self.loops
        ]
        return NEAR_LOAD + (FAR_LOAD - NEAR_LOAD) * far + max(before, default=0.0)

    def _across(self, u: Unit, times: int) -> None:
        """Butterflies and the exchange of a REDUCE over lanes."""
        e, d = self.e, self.d
        copies = self.copies[u.free] * u.values
        for a, in_warp in self._by_shuffles():
            n = d.local[a]
            if u.closed >> a & 1:
                butterflies = in_warp.bit_length() - 1
                e.issue += times * butterflies * copies * 2
                e.pipe += times * butterflies * copies
                e.code += butterflies * copies * 2
                e.latency += times * butterflies * SHUFFLE
                groups = n // in_warp
                if groups > 1:
                    others = [d.local[x] for x in d.lanes if x != a and u.free >> x & 1]
                    e.shared += groups * copies * math.prod(others) * 4 * u.words
                    e.issue += times * copies * (1 + 2 * groups)
                    e.pipe += times * copies * (1 + groups)
                    e.code += copies * (1 + 2 * groups)
                    e.latency += times * (2 * BARRIER + SHARED + ADDITION * groups)

    def _by_shuffles(self) -> list[tuple[int, int]]:
        """(axis that has lanes, how many of them butterflies reach)."""
        out, stride = [], 1
        for a in self.d.lanes:
            n, in_warp = self.d.local[a], 1
            if not n & (n - 1) and not stride & (stride - 1) and stride < WARP:
                in_warp = min(n, WARP // stride)
            out.append((a, in_warp))
            stride *= n
        return out

    def _loads_ahead(self, place: Place) -> bool:
        """Do warps meet in a loop?  Its loads are waited for in the next iteration then."""
        axes = [a for a, in_warp in self._by_shuffles() if self.d.local[a] > in_warp]
        return bool(place.axes) and any(u.closed >> a & 1 for u in place.remade for a in axes)

    def _store(self, u: Unit) -> None:
        e = self.e
        steps = self.steps[u.closed]
        work = self._work(u)
        e.issue += work + LOOP * (steps - 1)
        e.code += work / steps + 8
        for m in u.memories:
            width = self._width(m)
            text = self.copies[m.axes] / width
            runs = self.steps[m.axes] * text
            e.issue += 2 * runs
            e.pipe += self._turns(m, width) * runs
            e.code += 2 * text
            e.fetched += self._footprint(m)

    def _registers(self) -> int:
        """What lives together in the fullest nest: loads that it alone uses; what several use,
        where that is done and inside; the sums of the loops that are open."""
        users, fullest = self.model.users, 0
        held: dict[Place | None, int] = {None: 0}
        for place in self.turns.places:
            several = [u for u in (*place.loads, *place.remade) if users[u] > 1]
            several += place.loads if self._loads_ahead(place) else []
            sums = [u for u in place.sums if users[u] == 1]
            held[place] = held[place.outer] + sum([self._size(u) for u in (*several, *sums)])
            for u in place.doers:
                mine = [x for x in u.below if x.op is Ops.LOAD and users[x] == 1]
                if u.op is Ops.REDUCE and users[u] == 1 and u not in place.sums:
                    mine.append(u)
                fullest = max(fullest, held[place] + sum([self._size(x) for x in mine]))
        return fullest

    def _size(self, u: Unit) -> int:
        """Registers of a thread's copies of a load or of sums."""
        return self.copies[u.free] * u.values * u.words


def _products(digits: tuple[int, ...]) -> list[int]:
    """The product of the digits of each set of axes; sets are bits."""
    out = [1]
    for n in digits:
        out += [n * x for x in out] if n > 1 else out
    return out

"""Opts for kernels without reductions: one vector a thread along the axis most bytes follow.

Where other bytes follow another axis, accesses along one of both go through tiles in shared memory
(`passes/turn.py`): lanes of either side walk 128 bytes of a row or more, and a thread has 32 bytes
or more in flight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from uopc.choose.facts import (
    SHORTEST_TURNED,
    WIDEST_BYTES,
    Access,
    KernelFacts,
    pow2_at_least,
    pow2_at_most,
    turnable,
    worth_a_tile,
)
from uopc.choose.sizes import Aim, Sizes, contiguous_axis, order
from uopc.decision import Guess, Reason
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import TRANSCENDENTAL, Ops

#: bytes of a row that the lanes of a warp move next to each other: a line of every cache
LINE_BYTES = 128
#: the same for elements of 2 and 4 bytes where the kernel is large: 3% faster on an H200
LONG_LINE_BYTES = 256
#: elements of a large tile
LARGE_TILE = 4096
#: bytes of loads that a thread of a tile has in flight at least
BYTES_IN_FLIGHT = 32
#: bytes of the tiles of one block: of an SM of sm_80 two blocks, of sm_90 three
LARGEST_TILES = 64 << 10
#: threads of a block: with so many an SM is full
ENOUGH_THREADS = 64
#: elements of one access on one side where the other side moves them one by one
WIDE_BESIDE_SCALAR = 4
#: lanes of a warp; bytes of a bank of shared memory
WARP, BANK_BYTES = 32, 4
#: elements that a thread moves one by one
MOST_COPIES = 16
#: threads of a block where each has several rows
SKEWED_THREADS = 128
#: elements of a vector that is made of two aligned ones
WIDEST_SHIFTED = 8

# ---- what decides, in words
FOLLOWS = Reason(
    "choose.sizes.contiguous_axis",
    "more bytes are contiguous along axis {axis} than along any other output axis: neighbouring "
    "threads walk it",
)
WIDE = Reason(
    "choose.elementwise._vector",
    "every large access along axis {axis} begins at a multiple of {n} elements, or a constant away "
    "from one: {n} of them are one access of at most {bytes} bytes",
)
DEAR = Reason(
    "choose.elementwise._thread",
    "a function of each element is dear: {n} elements an access, half of a wide one, and up to "
    "{copies} accesses a thread",
)
FOLDED = Reason(
    "choose.elementwise._thread",
    "axis {axis} is folded and the place of an element dear: {n} elements an access, and up to "
    "{copies} accesses a thread",
)
SINGLE = Reason("choose.elementwise.elementwise", "the plain candidate: elements one by one")
FEWER = Reason(
    "choose.elementwise._with",
    "{total} elements are few: accesses of {asked} elements would leave fewer than {blocks} blocks",
)
ALONG = Reason(
    "choose.elementwise._with",
    "axis {axis} has {size} elements, {lanes} accesses: in blocks of up to {threads} threads so "
    "many lanes waste least",
)
ACROSS = Reason(
    "choose.elementwise._with",
    "{taken} threads along axis {x} leave room in blocks of {threads}: the others walk axis {axis}",
)
COPIES = Reason(
    "choose.elementwise._copies",
    "up to {most} accesses of a thread fly together, as long as 8 times {blocks} blocks are left",
)


def elementwise(facts: KernelFacts, aim: Aim) -> list[Guess]:
    x = contiguous_axis(facts, facts.outputs)
    best = _with(facts, aim, x, _thread(facts, aim, x))
    plain = _with(facts, aim, x, _Thread(1, aim.max_threads, _copies_of_one(facts, x), SINGLE))
    ways = (_turned(facts, aim), _skewed(facts, aim, x), best, plain)
    return list(dict.fromkeys(o for o in ways if o is not None))


@dataclass(frozen=True)
class _Thread:
    """Elements of one access, threads of a block, accesses of a thread; why it is so."""

    vector: int
    threads: int
    copies: int
    why: Reason


def _thread(facts: KernelFacts, aim: Aim, x: int) -> _Thread:
    """What was best on an H200 (note 0013): one vector a thread; copies of half of one where each
    element is dear; four copies of a shorter one where its place is (an axis that is folded)."""
    vector = _vector(facts, x)
    if any(u.op in TRANSCENDENTAL for u in toposort(facts.root)) and vector > 1:
        threads, copies = (128, 2) if vector <= 4 else (256, 4)
        return _Thread(vector // 2, min(aim.max_threads, threads), copies, DEAR)
    if any(c is None for _, c in facts.strides(x)) and vector > 4:
        return _Thread(4, min(aim.max_threads, 64), 4, FOLDED)
    widest = max((a.itemsize for a in facts.along(x)), default=4)
    return _Thread(vector, aim.max_threads, max(1, WIDEST_BYTES // (vector * widest)), WIDE)


def _copies_of_one(facts: KernelFacts, x: int) -> int:
    """Elements of a thread that moves them one by one."""
    return min(MOST_COPIES, max(1, WIDEST_BYTES // facts.widest_item()))


def _with(facts: KernelFacts, aim: Aim, x: int, thread: _Thread) -> Guess:
    s, n, total = Sizes(facts), facts.sizes[x], math.prod(facts.sizes)
    threads, vector = thread.threads, thread.vector
    while threads > 64 and total < aim.blocks * threads * vector:
        threads //= 2  # small work: more, smaller blocks
    while vector > 1 and total < aim.blocks * threads * vector:
        vector //= 2
    lanes = -(-n // vector)
    s.vector[x] = vector
    s.local[x] = min(threads, pow2_at_least(lanes) if lanes <= threads else threads)
    if lanes > s.local[x] // 2 and lanes % s.local[x]:  # a shorter row of lanes that wastes less
        most = s.local[x]
        fits = [most, *(m for m in (most // 2, most // 4) if m >= WARP)]
        least = min(-(-lanes // m) * m for m in fits)
        s.local[x] = next(m for m in fits if -(-lanes // m) * m <= least * 17 // 16)
    others = [a for a in reversed(facts.outputs) if a != x]
    for most_idle in (1 / 8, 1.0):  # first along axes that lanes divide well
        for a in others:
            n = min(threads // s.threads * s.local.get(a, 1), pow2_at_least(facts.sizes[a]))
            while n > 1 and -(-facts.sizes[a] // n) * n > facts.sizes[a] * (1 + most_idle):
                n //= 2
            s.local[a] = max(n, s.local.get(a, 1))
    s.local[x] *= max(1, WARP // s.threads)
    room = total // (aim.blocks * 8 * s.threads * vector)
    _copies(facts, s, (x, *others), min(room, thread.copies))
    _explain(aim, s, x, thread, threads)
    return s.guess(order(facts, x), blocks_per_sm=0)


def _explain(aim: Aim, s: Sizes, x: int, thread: _Thread, threads: int) -> None:
    """Why digits are as `_with` has set them."""
    sizes, n, blocks = s.facts.sizes, s.vector[x], aim.blocks
    s.because("lanes", FOLLOWS, axis=x)
    if n < thread.vector:
        s.because("vector", FEWER, x, total=math.prod(sizes), asked=thread.vector, blocks=blocks)
    else:
        s.because("vector", thread.why, x, axis=x, n=n, bytes=WIDEST_BYTES, copies=thread.copies)
    lanes, taken = -(-sizes[x] // n), s.local[x]
    s.because("local", ALONG, x, axis=x, size=sizes[x], lanes=lanes, threads=threads)
    for a in s.local:
        if a != x:
            s.because("local", ACROSS, a, axis=a, x=x, taken=taken, threads=threads)
    for a in s.upcast:
        s.because("upcast", COPIES, a, most=thread.copies, blocks=blocks)


def _copies(facts: KernelFacts, s: Sizes, axes: tuple[int, ...], wanted: int) -> None:
    """Copies of a thread, along the first axes that have room and waste little in their last
    block."""
    for a in axes:
        places = s.local.get(a, 1) * s.vector.get(a, 1)
        steps = -(-facts.sizes[a] // places)
        n = pow2_at_most(max(1, min(wanted, steps)))
        while n > 1 and -(-steps // n) * n * 16 > steps * 17:
            n //= 2
        s.upcast[a] = n
        wanted //= n


def _vector(facts: KernelFacts, axis: int) -> int:
    """The widest vector that every large access along an axis can have; small ones may be slow.

    A LOAD a constant number of elements away from aligned places is made of two wide ones
    (`passes/vectorise.py`), unless its memory is written too.
    """
    r, width = facts.axes[axis], WIDEST_BYTES
    large = facts.large(facts.along(axis))
    written = {a.slot for a in facts.accesses if a.store}
    for a in large:
        base, mine = ix.substitute(a.offset, {r: ix.ZERO}), WIDEST_BYTES // a.itemsize
        shift = ix.affine(base)[1] % mine
        if shift and not a.store and a.slot not in written:
            base, mine = ix.sub(base, ix.index(shift)), min(mine, WIDEST_SHIFTED)
        while mine > 1 and not ix.divides(mine, base):
            mine //= 2
        width = min(width, mine)
    return width if large else 1


# ---- rows that begin anywhere
STORED_WHOLE = Reason(
    "choose.elementwise._skewed",
    "what is stored along axis {axis} is aligned to {n} elements, some rows that are read are not",
)
SKEWED_LANES = Reason(
    "choose.elementwise._skewed",
    "a row is {lanes} vectors; {most} threads where it and the number of blocks allow so many",
)
ALIKE = Reason(
    "choose.elementwise._skewed",
    "after {copies} rows of axis {axis} the next one begins alike again, modulo {n} elements: a "
    "thread has so many, and reads each its way",
)


def _skewed(facts: KernelFacts, aim: Aim, x: int) -> Guess | None:
    """Whole vectors of what is stored, from rows that begin anywhere; None where no rows are so.

    A thread has as many rows as there are until they are aligned alike again: each is read its way
    (`passes/vectorise.py`).
    """
    r, large = facts.axes[x], facts.large(facts.along(x))
    written = {a.slot for a in facts.accesses if a.store}
    vector = min((WIDEST_BYTES // a.itemsize for a in large), default=1)
    vector = min(vector, WIDEST_SHIFTED)
    rows: dict[UOp, int] = {}
    for a in large:
        terms, _ = ix.affine(ix.substitute(a.offset, {r: ix.ZERO}))
        steps = {t: c for t, c in terms.items() if c % vector}
        if steps and (a.store or a.slot in written):
            return None
        for t, c in steps.items():
            rows[t] = max(rows.get(t, 1), vector // math.gcd(c, vector))
    if len(rows) != 1 or vector == 1:
        return None
    ((y, copies),) = rows.items()
    if y.op is not Ops.RANGE or y.arg.axis not in facts.outputs or y.arg.size < copies:
        return None
    s, lanes = Sizes(facts), -(-facts.sizes[x] // vector)
    threads = SKEWED_THREADS
    while threads > WARP and (
        lanes <= threads // 2 or math.prod(facts.sizes) < aim.blocks * threads * vector * copies
    ):
        threads //= 2
    s.vector[x], s.local[x], s.upcast[y.arg.axis] = vector, threads, copies
    s.because("lanes", FOLLOWS, axis=x)
    s.because("vector", STORED_WHOLE, x, axis=x, n=vector)
    s.because("local", SKEWED_LANES, x, threads=threads, lanes=lanes, most=SKEWED_THREADS)
    s.because("upcast", ALIKE, y.arg.axis, axis=y.arg.axis, copies=copies, n=vector)
    return s.guess(order(facts, x))


# ---- tiles
TURNED = Reason(
    "choose.elementwise._turned",
    "accesses of {bytes} bytes an element are contiguous along axis {y}, others along axis {x}: a "
    "tile of {across} x {down} elements in shared memory turns them",
)
LANES_OF_A_LINE = Reason(
    "choose.elementwise._sides",
    "lanes walk whole lines on both sides of a tile: {across} along axis {x}, {down} along axis "
    "{y}, {threads} threads a block",
)
SIDES = Reason(
    "choose.elementwise._sides",
    "{n} elements of axis {axis} at once on the kernel's side of the tile, the widest for which a "
    "block has room and enough threads",
)
TILE = Reason(
    "choose.elementwise._grow",
    "a tile of {tile} elements along axis {axis}, {bytes} bytes in all: threads have enough loads "
    "in flight",
)
LANES_TURN = Reason(
    "choose.elementwise._pairs",
    "threads follow axis {x} outside of the tile and axis {y} on its other side",
)
BLOCKS_STORE = Reason(
    "choose.elementwise._Sides.guess", "blocks follow each other as what is stored does"
)


@dataclass(frozen=True)
class _Pair:
    """Lanes along x, accesses along y turned; bytes that one element of all tiles has."""

    x: int
    y: int
    tile_bytes: int
    turned: tuple[Access, ...]

    @property
    def stored(self) -> bool:
        """Are STOREs turned?"""
        return any(t.store for t in self.turned)


def _pairs(facts: KernelFacts, x: int, y: int) -> list[_Pair]:
    """Both ways to turn the accesses of two axes, the better one first: lanes that follow the
    stores, unless the other way has less than half of the bytes in tiles."""
    out = []
    for a, b in ((x, y), (y, x)):
        turned = tuple({(t.slot, t.offset): t for t in turnable(facts, a, b)}.values())
        out.append(_Pair(a, b, sum(t.itemsize for t in turned), turned))
    follows, other = sorted(out, key=lambda p: p.stored)
    return [other, follows] if 2 * other.tile_bytes < follows.tile_bytes else [follows, other]


def _turned(facts: KernelFacts, aim: Aim) -> Guess | None:
    """The mapping with tiles; None where no large access asks for one."""
    x = contiguous_axis(facts, facts.outputs)
    worth = {
        y: sum(a.size_bytes for a in turnable(facts, x, y))
        for y in facts.outputs
        if y != x and worth_a_tile(facts.sizes[x], facts.sizes[y])
    }
    if not worth or not (most := max(worth.values())):
        return None
    y = max(a for a, n in worth.items() if n == most)
    pair = next(p for p in _pairs(facts, x, y) if p.turned)
    ways = [
        _sides(facts, aim, pair, {pair.x: 1 << m, pair.y: 1 << n}, line)
        for m in range(_vector(facts, pair.x).bit_length())
        for n in range(_vector(facts, pair.y).bit_length())
        for line in (LONG_LINE_BYTES, LINE_BYTES)
    ]
    return max(ways, key=_Sides.worth).guess(facts)


@dataclass(frozen=True)
class _Shape:
    """A tile whose elements are moved one by one."""

    along_stores: int
    along_loads: int
    threads: int


#: by the bytes of an element: the best of ten shapes on an H200, those of 1 and 8 by analogy
ONE_BY_ONE = {
    1: _Shape(128, 64, 512),
    2: _Shape(64, 64, 512),
    4: _Shape(128, 32, 512),
    8: _Shape(64, 32, 256),
}


@dataclass
class _Sides:
    """Digits of both axes: {axis: elements} that a thread has next to each other by the kernel's
    digits and by the turned ones; lanes of each axis; size of the tile; room: bytes of tiles."""

    pair: _Pair
    kernel: dict[int, int]
    turned: dict[int, int]
    lanes: dict[int, int]
    tile: dict[int, int]
    room: int

    @property
    def threads(self) -> int:
        return math.prod(self.lanes.values())

    @property
    def elements(self) -> int:
        return math.prod(self.tile.values())

    @property
    def bytes(self) -> int:
        return self.elements * self.pair.tile_bytes

    def worth(self) -> tuple[bool, int, int]:
        """What counts, the most important first: room, enough threads, wide accesses."""
        wide = self.kernel[self.pair.x] * self.turned[self.pair.y]
        return self.bytes <= self.room, min(self.threads, ENOUGH_THREADS), wide

    def guess(self, facts: KernelFacts) -> Guess:
        s = Sizes(facts)
        s.vector, s.local = dict(self.kernel), dict(self.lanes)
        s.upcast = {a: n // (self.lanes[a] * self.kernel[a]) for a, n in self.tile.items()}
        one = (self.pair.x, self.pair.y)
        turn = {a: n for a, n in self.turned.items() if n > 1 or a == self.pair.y}
        rest = tuple(a for a in order(facts, self.pair.x) if a not in one)
        along = one[::-1] if self.pair.stored else one  # blocks follow the stores: 5% faster
        self._explain(s)
        chosen = s.guess((*one, *rest), turn=turn)
        return replace(chosen, opts=replace(chosen.opts, grid=(*along, *rest)))

    def _explain(self, s: Sizes) -> None:
        x, y = self.pair.x, self.pair.y
        across, down = self.tile[x], self.tile[y]
        bytes_ = self.pair.tile_bytes
        s.because("turn", TURNED, x=x, y=y, bytes=bytes_, across=across, down=down)
        s.because("lanes", LANES_TURN, x=x, y=y)
        s.because("grid", BLOCKS_STORE)
        lanes = dict(across=self.lanes[x], down=self.lanes[y], threads=self.threads)
        for a in (x, y):
            s.because("local", LANES_OF_A_LINE, a, x=x, y=y, **lanes)
            s.because("vector", SIDES, a, axis=a, n=self.kernel[a])
            s.because("upcast", TILE, a, axis=a, tile=self.tile[a], bytes=self.bytes)


def _sides(facts: KernelFacts, aim: Aim, pair: _Pair, vectors: dict[int, int], line: int) -> _Sides:
    """What covers one tile from both sides, with these vectors and lines."""
    x, y = pair.x, pair.y
    sizes = {a: pow2_at_least(facts.sizes[a]) for a in (x, y)}
    item = max(t.itemsize for t in pair.turned)
    row = y if pair.stored else x
    wide = _wide(vectors, sizes)
    wide[row] = min(wide[row], WIDEST_BYTES // item)  # what is read of a tile at once
    large = math.prod(facts.sizes) >= 8 * aim.blocks * LARGE_TILE
    shape = ONE_BY_ONE[item] if large and max(wide.values()) == 1 else None
    if shape is not None and shape.threads > aim.row_threads:
        shape = None
    if not large or max(wide.values()) == 1 or item not in (2, 4):
        line = LINE_BYTES
    # lanes that walk a whole line on both sides, as far as the axes are as long
    lanes_of_a_line = max(line // (wide[a] * _narrowest(facts, a)) for a in (x, y))
    across = max(1, min(lanes_of_a_line, WARP, *(sizes[a] // wide[a] for a in (x, y))))
    # what a thread writes at once into a row of the tile: a bank; or all that is read at once,
    # where more lanes walk rows than a line has such parts
    full = wide[row] * item > LINE_BYTES // across
    unit = wide[row] if full else max(1, BANK_BYTES // item)
    unit = min(unit, max(1, sizes[row] // SHORTEST_TURNED))
    kernel, turned = {x: wide[x], y: 1}, {y: wide[y], x: 1}
    (kernel if row == y else turned)[row] = unit
    threads = shape.threads if shape else aim.max_threads
    down = max(1, min(threads // across, sizes[x] // turned[x], sizes[y] // kernel[y]))
    tile = {
        x: max(across * kernel[x], down * turned[x]),
        y: max(down * kernel[y], across * turned[y]),
    }
    room = min(LARGEST_TILES, aim.target.shared_optin_bytes // 2)
    sides = _Sides(pair, kernel, turned, {x: across, y: down}, tile, room)
    if shape is None:
        _grow(facts, aim, sides, sizes)
    else:
        along, other = (y, x) if pair.stored else (x, y)
        tile[along] = max(tile[along], min(shape.along_stores, sizes[along]))
        tile[other] = max(tile[other], min(shape.along_loads, sizes[other]))
    return sides


def _wide(vectors: dict[int, int], sizes: dict[int, int]) -> dict[int, int]:
    """Elements of one access along each axis."""
    most = WIDE_BESIDE_SCALAR if min(vectors.values()) == 1 else max(vectors.values())
    return {a: min(n, sizes[a], most) for a, n in vectors.items()}


def _narrowest(facts: KernelFacts, axis: int) -> int:
    """Bytes of the smallest element that is moved along an axis."""
    large = facts.large(facts.along(axis))
    return min((a.itemsize for a in large), default=facts.widest_item())


def _grow(facts: KernelFacts, aim: Aim, sides: _Sides, sizes: dict[int, int]) -> None:
    """Larger tiles until threads have enough loads in flight; there stay enough blocks."""
    loaded = sum(a.itemsize for a in facts.large(facts.accesses) if not a.store)
    total = math.prod(facts.sizes)
    x, y = sides.pair.x, sides.pair.y
    for a in (x, y, x, y):
        each = sides.elements // sides.threads
        fits = 2 * sides.bytes <= sides.room and 2 * sides.tile[a] <= sizes[a]
        if each * loaded < BYTES_IN_FLIGHT and fits and total >= 8 * aim.blocks * sides.elements:
            sides.tile[a] *= 2

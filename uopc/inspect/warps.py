"""What the warps of a whole launch ask of memory, counted from index expressions.

Lanes are evaluated; blocks and loops hardly ever have to be.  A range that moves an address by
whole sectors, or whole lines of shared memory, only repeats what a warp does; one that moves it by
less gives as many cases as there are remainders; and a guard is open, or closed, for all but the
blocks at an edge.  What is left is enumerated.  Nothing runs, and the counts are exact; where too
much is left, a part is taken evenly, and the result says so.  Memories are taken to begin where a
sector does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.inspect.requests import (
    LINE_BYTES,
    SECTOR_BYTES,
    WARP,
    Bools,
    Ints,
    least_sectors,
    sectors,
    wavefronts,
)
from uopc.inspect.sites import Site, matrix_lanes
from uopc.kernel import Launch
from uopc.symbolic import index as ix
from uopc.uop.facts import bounds, free
from uopc.uop.node import UOp
from uopc.uop.ops import AxisType, Ops, RangeArg

#: lanes that are evaluated for one access at most, at once and in all
AT_ONCE, MOST_LANES = 1 << 19, 1 << 22
#: parts into which guards may cut what is counted, and points of one that is not cut further
MOST_PARTS, SMALL_PART = 1024, 64
WIDEST = 16  # bytes of one access
#: its multiples modulo 1 lie evenly and in step with nothing
GOLDEN = (math.sqrt(5) - 1) / 2


class DataDecidesError(Exception):
    """An address or a condition depends on what memory holds."""


@dataclass(frozen=True)
class Counts:
    """What all warps of a launch ask for at one access; fields as in `AccessReport`."""

    requests: int = 0
    threads: int = 0
    sectors: int = 0
    least_sectors: int = 0
    wavefronts: int = 0
    least_wavefronts: int = 0
    exact: bool = True
    lanes: tuple[int | None, ...] = field(default=(), repr=False)

    def plus(self, other: Counts) -> Counts:
        """Both together; the lanes of the fuller one."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        fuller = self if _active(self.lanes) >= _active(other.lanes) else other
        return Counts(**sums, exact=self.exact and other.exact, lanes=fuller.lanes)

    def times(self, n: int) -> Counts:
        """So many of the same."""
        return replace(self, **{name: getattr(self, name) * n for name in _NUMBERS})

    def scaled(self, part: float) -> Counts:
        """The whole of which this is a part; exact where that is all."""
        whole = {name: round(getattr(self, name) / part) for name in _NUMBERS}
        return replace(self, **whole, exact=self.exact and part == 1)


_NUMBERS = tuple([f.name for f in fields(Counts) if f.type == "int"])


def _active(lanes: tuple[int | None, ...]) -> int:
    return sum(x is not None for x in lanes)


# ---- values of an index under numbers for its ranges
def evaluate(u: UOp, numbers: Mapping[UOp, Ints]) -> npt.NDArray[np.generic]:
    """The value of an integer or a condition.  numbers: of each range; arrays that broadcast.

    Raises DataDecidesError where it reads memory or what other lanes have.
    """
    known: dict[UOp, npt.NDArray[np.generic]] = dict(numbers)
    stack = [u]
    while stack:
        x = stack[-1]
        if x in known:
            stack.pop()
            continue
        src = x.src[:1] if x.op is Ops.AFTER else x.src
        todo = [s for s in src if s not in known]
        if todo:
            if x.op not in _VALUES and x.op is not Ops.AFTER:
                raise DataDecidesError(x.op.name)
            stack += todo
            continue
        known[x] = _value(x, [known[s] for s in src])
        stack.pop()
    return known[u]


def _value(u: UOp, src: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
    if u.op is Ops.CONST and (u.dtype.is_int or u.dtype is dtypes.bool):
        bits = u.arg.bits
        return np.asarray(bool(bits) if u.dtype is dtypes.bool else bits)
    if u.op is Ops.AFTER:
        return src[0]
    if u.op not in _VALUES or u.dtype.is_float:
        raise DataDecidesError(u.op.name)
    return _as(u.dtype, _VALUES[u.op](*src))


def _as(d: DType, x: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """In the width of its dtype: an index is a mathematical integer, other integers wrap."""
    if d is dtypes.index:
        return x.astype(np.int64)
    return x.astype(bool) if d is dtypes.bool else x.astype(d.numpy).astype(np.int64)


def _quotient(a: Ints, b: Ints) -> Ints:
    """Floor; by zero gives 0."""
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _remainder(a: Ints, b: Ints) -> Ints:
    return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


def _not(a: Ints) -> Ints:
    return np.logical_not(a) if a.dtype == bool else ~a


_VALUES: dict[Ops, Callable[..., npt.NDArray[np.generic]]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.IDIV: _quotient,
    Ops.MOD: _remainder,
    Ops.MAX: np.maximum,
    Ops.MIN: np.minimum,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.LT: np.less,
    Ops.EQ: np.equal,
    Ops.NE: np.not_equal,
    Ops.WHERE: np.where,
    Ops.NEG: np.negative,
    Ops.NOT: _not,
    Ops.CAST: lambda a: a,
}


# ---- threads
@dataclass(frozen=True)
class Threads:
    """The warps of a block: the numbers of hardware ranges for each lane, and which lanes exist.

    Arrays have shape (warps, 32).
    """

    numbers: Mapping[UOp, Ints]
    present: Bools

    @classmethod
    def of(cls, launch: Launch) -> Threads:
        x, y, _ = launch.block
        warps = -(-launch.threads // WARP)
        t = np.arange(warps * WARP, dtype=np.int64).reshape(warps, WARP)
        place = (t % x, t // x % y, t // (x * y))
        numbers = {a.range: place[a.dim] // a.stride % a.range.arg.size for a in launch.block_axes}
        return cls(numbers, t < launch.threads)

    def within(self, roles: Sequence[tuple[int, int]]) -> Threads:
        """Those in all of these roles."""
        warp = np.arange(self.present.shape[0])[:, None]
        present = self.present
        for first, count in roles:
            present = present & (warp >= first) & (warp < first + count)
        return replace(self, present=present)


# ---- one access over the launch
@dataclass(frozen=True)
class _Part:
    """Some of a launch: for each range outside of the threads, where it starts and how many values
    it takes; open: whether the conditions hold throughout."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    open: bool

    def with_(self, n: int, start: int, size: int) -> _Part:
        """The same with other values of one range."""
        return _Part(
            (*self.start[:n], start, *self.start[n + 1 :]),
            (*self.size[:n], size, *self.size[n + 1 :]),
            self.open,
        )


def count(site: Site, launch: Launch, threads: Threads) -> Counts:
    """What a launch does at one access.

    Raises DataDecidesError where what memory holds decides where it goes.
    """
    mine = threads.within(site.warps)
    found = _over_launch(site.offset, site.counted, site.loops, launch, mine, site)
    if (wide := read_at_once(site)) is None:
        return found
    loops = [wide.instead if r is wide.range else r for r in site.loops]
    loops = [r for r in loops if r.op is Ops.RANGE]
    offset = ix.substitute(site.offset, {wide.range: wide.instead})
    merged = replace(site, width_bytes=site.width_bytes * wide.count)
    passes = _over_launch(offset, site.counted, loops, launch, mine, merged)
    return replace(found, wavefronts=passes.wavefronts, least_wavefronts=passes.least_wavefronts)


@dataclass(frozen=True)
class Wide:
    """Unrolled reads that are one: so many values of a range, and what counts the rest of it."""

    range: UOp
    count: int
    instead: UOp


def read_at_once(site: Site) -> Wide | None:
    """Reads of neighbours in shared memory that ptxas makes one wide one of, which has fewer
    conflicts: those of an unrolled range, 8 or 16 bytes together, aligned to that.  It does so
    for no other memory."""
    if site.op != "LOAD" or site.space is not AddrSpace.SHARED:
        return None
    terms, constant = ix.affine(site.offset)
    width, itemsize = site.width_bytes, site.element.dtype.itemsize
    for r in site.loops:
        a: RangeArg = r.arg
        if a.kind is not AxisType.UPCAST or terms.get(r, 0) * itemsize * a.step != width:
            continue
        others = [step * itemsize for t, step in terms.items() if t is not r]
        aligned = math.gcd(constant * itemsize, a.start * width, *others) or WIDEST
        count = math.gcd(a.size, math.gcd(aligned, WIDEST) // width)
        decided = any(r in free(c) for c in (*site.counted, *terms) if c is not r)
        if count > 1 and width * count >= 8 and not decided:
            rest = UOp(Ops.RANGE, (), replace(a, size=a.size // count, step=a.step * count))
            return Wide(r, count, ix.index(a.start) if a.size == count else rest)
    return None


def executions(
    conditions: Sequence[UOp], loops: Sequence[UOp], launch: Launch, threads: Threads
) -> int:
    """How often threads come to a place, in all: every turn of the loops around it in which all
    conditions hold.

    Raises DataDecidesError where what memory holds decides that.
    """
    return _over_launch(ix.ZERO, conditions, loops, launch, threads, None).threads


def _over_launch(
    offset: UOp,
    conditions: Sequence[UOp],
    loops: Sequence[UOp],
    launch: Launch,
    threads: Threads,
    site: Site | None,
) -> Counts:
    condition = ix.conj(*conditions)
    outside = [a.range for a in launch.grid_axes] + list(loops)
    asked = free(offset) | free(condition)
    repeated = math.prod(r.arg.size for r in outside if r not in asked)
    ranges = [r for r in outside if r in asked]
    evaluate(offset, _first(ranges, threads))  # raises where data decides
    evaluate(condition, _first(ranges, threads))
    total = Counts()
    for part in _parts(condition, ranges):
        total = total.plus(_counted(site, offset, condition, ranges, part, threads))
    return total.times(repeated)


def _first(ranges: Sequence[UOp], threads: Threads) -> dict[UOp, Ints]:
    start = {r: np.asarray(r.arg.start, dtype=np.int64) for r in ranges}
    return {**start, **threads.numbers}


def _parts(condition: UOp, ranges: Sequence[UOp]) -> Iterator[_Part]:
    """The launch, cut where guards change: parts in which they hold, and small mixed ones."""
    stack = list(_cut_at_edges(condition, ranges))[::-1]
    made = 0
    while stack:
        part = stack.pop()
        left, stands_for = _narrowed(condition, ranges, part)
        lo, hi = bounds(left)
        if hi == 0:
            continue
        if lo == 1:
            yield part
            continue
        asked = [n for n, r in enumerate(ranges) if stands_for.get(r, r) in free(left)]
        wide = [n for n in asked if part.size[n] > 1]
        made += 1
        points = math.prod(part.size[n] for n in wide)
        if points <= SMALL_PART or made > MOST_PARTS:
            yield replace(part, open=False)
            continue
        n = max(wide, key=lambda k: part.size[k])
        half = part.size[n] // 2
        stack.append(part.with_(n, part.start[n] + half, part.size[n] - half))
        stack.append(part.with_(n, part.start[n], half))


def _cut_at_edges(condition: UOp, ranges: Sequence[UOp]) -> Iterator[_Part]:
    """The launch cut, for each guard and range, where the guard is decided from the start, or to
    the end, of that range alone."""
    whole = _Part((0,) * len(ranges), tuple([r.arg.size for r in ranges]), True)
    cuts: list[set[int]] = [{0, r.arg.size} for r in ranges]
    for guard in _comparisons(condition):
        for n, r in enumerate(ranges):
            if r in free(guard):
                first, last = _edges(guard, ranges, whole, n)
                cuts[n] |= {first, last}
    edges = [sorted(c) for c in cuts]
    if math.prod(len(e) - 1 for e in edges) > MOST_PARTS:
        yield whole
        return
    for corner in itertools.product(*(range(len(e) - 1) for e in edges)):
        start = tuple([e[k] for e, k in zip(edges, corner, strict=True)])
        size = tuple([e[k + 1] - e[k] for e, k in zip(edges, corner, strict=True)])
        yield _Part(start, size, True)


def _comparisons(condition: UOp) -> Iterator[UOp]:
    """What a condition is made of by and, or and not."""
    stack, seen = [condition], {condition}
    while stack:
        u = stack.pop()
        if u.op not in (Ops.AND, Ops.OR, Ops.NOT):
            yield u
            continue
        new = [s for s in u.src if s not in seen]
        seen.update(new)
        stack += new


def _edges(guard: UOp, ranges: Sequence[UOp], whole: _Part, n: int) -> tuple[int, int]:
    """The values of one range between which a guard is not decided by it."""
    size = whole.size[n]
    ends = []
    for last in (False, True):
        low, high = 0, size  # so many values from this end decide it, at least and at most
        while low < high:
            middle = (low + high + 1) // 2
            start = size - middle if last else 0
            if _decided(guard, ranges, whole.with_(n, start, middle)):
                low = middle
            else:
                high = middle - 1
        ends.append(size - low if last else low)
    return ends[0], ends[1]


def _decided(condition: UOp, ranges: Sequence[UOp], part: _Part) -> bool:
    """Is a condition the same throughout a part?"""
    lo, hi = bounds(_narrowed(condition, ranges, part)[0])
    return lo == hi


def _narrowed(condition: UOp, ranges: Sequence[UOp], part: _Part) -> tuple[UOp, dict[UOp, UOp]]:
    """The condition where ranges take only the values of a part, and what stands for each range."""
    table = {}
    for r, start, size in zip(ranges, part.start, part.size, strict=True):
        if size != r.arg.size:
            a: RangeArg = r.arg
            first = a.start + start * a.step
            shorter = UOp(Ops.RANGE, (), replace(a, start=first, size=size))
            table[r] = ix.index(first) if size == 1 else shorter
    return (ix.substitute(condition, table) if table else condition), table


def _counted(
    site: Site | None,
    offset: UOp,
    condition: UOp,
    ranges: Sequence[UOp],
    part: _Part,
    threads: Threads,
) -> Counts:
    """One part.  Where its condition holds throughout, ranges that only move the address are
    replaced by the remainders they leave."""
    modulus = SECTOR_BYTES if site is None or site.space is AddrSpace.GLOBAL else LINE_BYTES
    itemsize = 1 if site is None else site.element.dtype.itemsize
    terms, _ = ix.affine(offset)
    tangled = {r for t in terms if t.op is not Ops.RANGE for r in free(t)}
    left, stands_for = (ix.TRUE, {}) if part.open else _narrowed(condition, ranges, part)
    tangled |= {r for r in ranges if stands_for.get(r, r) in free(left)}
    zeros: dict[UOp, Ints] = {}
    remainders, weights = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    moved = 0
    walked: list[tuple[UOp, int, int]] = []
    for r, start, size in zip(ranges, part.start, part.size, strict=True):
        a: RangeArg = r.arg
        begin = a.start + start * a.step
        if r in tangled:
            walked.append((r, begin, size))
            continue
        zeros[r] = np.zeros(1, dtype=np.int64)
        step = terms.get(r, 0) * itemsize
        moved += step * begin
        remainders, weights = _folded(remainders, weights, step * a.step, size, modulus)
    points = math.prod(size for *_, size in walked)
    each = remainders.size * threads.present.size  # lanes of one point
    every = max(1, -(-points * each // MOST_LANES))
    chosen = _evenly(points, every)
    at_once = max(1, AT_ONCE // each)
    total = Counts()
    for begin in range(0, chosen.size, at_once):
        numbers = {**zeros, **_numbers(walked, chosen[begin : begin + at_once]), **threads.numbers}
        shape = (min(at_once, chosen.size - begin), *threads.present.shape)
        at = np.broadcast_to(evaluate(offset, numbers), shape).astype(np.int64)
        active = np.broadcast_to(threads.present, shape)
        if not part.open:
            numbers |= {y: numbers[r] for r, y in stands_for.items() if y.op is Ops.RANGE}
            active = active & np.broadcast_to(evaluate(left, numbers), shape)
        addresses = at * itemsize + moved
        for more, often in zip(remainders, weights, strict=True):
            one = of_requests(site, addresses + more, active)
            total = total.plus(one.times(int(often)))
    return total.scaled(chosen.size / points) if every > 1 else total


def _evenly(points: int, every: int) -> Ints:
    """One of each `every` numbers below `points`: not always the same one, which all those that a
    guard takes or leaves could be."""
    n = np.arange(-(-points // every), dtype=np.int64)
    place = n * every + (n * GOLDEN % 1.0 * every).astype(np.int64)
    return np.minimum(place, points - 1)


def _numbers(walked: Sequence[tuple[UOp, int, int]], points: Ints) -> dict[UOp, Ints]:
    """The values of ranges at these points of the box that they span."""
    out = {}
    for r, begin, size in reversed(walked):
        out[r] = (begin + points % size * r.arg.step).reshape(-1, 1, 1)
        points = points // size
    return out


def _folded(
    remainders: Ints, weights: Ints, step: int, size: int, modulus: int
) -> tuple[Ints, Ints]:
    """Remainders and how often each comes, with one more range that moves the address by `step`."""
    period = modulus // math.gcd(step, modulus)
    mine = np.arange(min(period, size), dtype=np.int64)
    often = (size - mine - 1) // period + 1
    sums = (remainders[:, None] + mine * step) % modulus
    both = weights[:, None] * often
    new, inverse = np.unique(sums.reshape(-1), return_inverse=True)
    total = np.zeros(new.size, dtype=np.int64)
    np.add.at(total, inverse.reshape(-1), both.reshape(-1))
    return new, total


def of_requests(site: Site | None, addresses: Ints, active: Bools) -> Counts:
    """What memory does for these warps: byte offsets and active lanes, shape (..., 32).  Without a
    site threads and warps are counted alone."""
    addresses, active = addresses.reshape(-1, WARP), active.reshape(-1, WARP)
    if site is None:
        return Counts(int(active.any(axis=-1).sum()), int(active.sum()))
    if site.op in ("LDMATRIX", "STMATRIX"):
        active = active & (np.arange(WARP) < matrix_lanes(site))
    some = active.any(axis=-1)
    if not some.all():
        addresses, active = addresses[some], active[some]
    if not addresses.size:
        return Counts()
    n = int(active.sum(axis=-1).argmax())
    lanes = tuple([int(x) if on else None for x, on in zip(addresses[n], active[n], strict=True)])
    made = Counts(addresses.shape[0], int(active.sum()), lanes=lanes)
    width = site.width_bytes
    if site.op == "BULK":  # whole lines, asked for by one thread
        pieces = made.threads * -(-width // SECTOR_BYTES)
        return replace(made, sectors=pieces, least_sectors=pieces, lanes=())
    if site.space is AddrSpace.GLOBAL:
        return replace(
            made,
            sectors=int(sectors(addresses, active, width).sum()),
            least_sectors=int(least_sectors(addresses, active, width).sum()),
        )
    if site.space is AddrSpace.SHARED:
        taken, least = wavefronts(addresses, active, width, site.op == "LOAD")
        return replace(made, wavefronts=int(taken.sum()), least_wavefronts=int(least.sum()))
    return made

"""How a kernel with reductions is spread over blocks, lanes and registers: ranked Opts.

From a few plain mappings downhill: one digit of one axis changes at a time, as long as the model
(`choose/cost.py`) sees a gain.  Nothing here knows products from sums; the model knows that a
product inside a loop over another axis is computed again, that lanes must exchange what they sum,
and that few blocks leave SMs idle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from uopc.choose.cost import Digits, Estimate, Model
from uopc.choose.facts import LONGEST_CHAIN, KernelFacts, pow2_at_least, tiles
from uopc.choose.sizes import ON_GPU, SHORT_CHAINS, merged
from uopc.choose.work import work_of
from uopc.decision import Because, Guess, Reason, because, kind
from uopc.opts import Opts
from uopc.passes.in_place import confined
from uopc.target import Target

MOST_COPIES = 16  # register copies of one axis
MOST_TURNS = 12  # round all axes; four are usual
GAIN = 0.005  # of the cycles that a move must save
ROW_THREADS = 256  # of a block that begins with whole rows
LEANER = (0.85, 0.7)  # of the best one's registers, for those that follow it
STARTS = 4  # that are followed down, the best ones; more seldom find better

# ---- what decides, in words
FOUND = Reason(
    "choose.spread.Climb.down",
    "about {cycles:.0f} cycles, bound by {bound} (`choose/cost.py`); found downhill from {start}, "
    "{first:.0f} cycles, among {seen} mappings{beside}",
)
LEAN = Reason(
    "choose.spread.spread",
    "about {cycles:.0f} cycles, bound by {bound}: the best that was seen with at most "
    "{registers:.0f} registers, since the best of all wants {most} and may spill",
)
WITHOUT = Reason(
    "choose.spread.Climb.moves_along",
    "{digit} of axis {axis}, of {size} elements: about {cycles:.0f} cycles with this digit, "
    "{without} without it",
)
LANES = Reason(
    "choose.spread.Climb.moves_across",
    "of the axes that have lanes, in the order that is cheapest: neighbouring threads walk axis "
    "{first}",
)
GRID = Reason("choose.spread.Climb.opts", "output axes in the order of lanes")
AT_ONCE = Reason(
    "choose.spread.Climb.opts",
    "{registers} registers a thread are estimated: an SM has so many blocks at once",
)
IN_PLACE = Reason(
    "passes.in_place.confined",
    "what a block writes along axis {axis} others would read: that axis is a loop",
)


_DIGITS = {"local": "lanes", "upcast": "register copies", "vector": "elements an access"}


@dataclass(frozen=True)
class Shares:
    """Lanes, register copies and vector of each axis; lanes in the order of threadIdx.x, y, z."""

    local: tuple[int, ...]
    upcast: tuple[int, ...]
    vector: tuple[int, ...]
    order: tuple[int, ...]

    def with_(self, name: str, axis: int, n: int) -> Shares:
        """The same with another digit."""
        row = list(getattr(self, name))
        row[axis] = n
        return replace(self, **{name: tuple(row)})

    def __str__(self) -> str:
        said = [
            f"{n} {words} of axis {a}"
            for name, words in _DIGITS.items()
            for a, n in enumerate(getattr(self, name))
            if n > 1
        ]
        return ", ".join(said) or "one thread a block"


@dataclass
class Climb:
    """The state of one search: a kernel, a target, and what has been estimated."""

    facts: KernelFacts
    target: Target
    most_threads: int

    def __post_init__(self) -> None:
        facts = self.facts
        work = work_of(facts)
        self.model = Model(work, facts.sizes, self.target)
        self.axes = range(len(facts.sizes))
        apart = frozenset(a for a, _ in confined(facts.root, Opts(gpu=True)).blocks)
        self.gridded = frozenset(facts.outputs) - frozenset(facts.reduced) - apart
        self.apart = apart
        widths: dict[int, set[int]] = {a: {1} for a in self.axes}
        for u in work.units:
            for m in u.memories:
                for a, w in m.widths.items():
                    widths[a].add(w)
        self.widths = {a: sorted(w) for a, w in widths.items()}
        self.seen: dict[Shares, Estimate] = {}

    def cycles(self, x: Shares) -> float:
        """What the model says of x; inf where it cannot be built."""
        if x not in self.seen:
            self.seen[x] = self.model.estimate(self.digits(x))
        return self.seen[x].cycles

    def digits(self, x: Shares) -> Digits:
        """What the model asks for: the rest of an axis is blocks, or a loop where that must be."""
        sizes = self.facts.sizes
        copies = tuple([u * v for u, v in zip(x.upcast, x.vector, strict=True)])
        rest = [-(-n // (c * k)) for n, c, k in zip(sizes, copies, x.local, strict=True)]
        blocks = tuple([n if a in self.gridded else 1 for a, n in enumerate(rest)])
        serial = tuple([1 if a in self.gridded else n for a, n in enumerate(rest)])
        lanes = tuple([a for a in x.order if x.local[a] > 1])
        return Digits(sizes, blocks, serial, copies, x.local, x.vector, lanes)

    def sensible(self, x: Shares) -> bool:
        """Does x stay in the limits, without digits that hold nothing?"""
        if math.prod(x.local) > self.most_threads:
            return False
        for a in self.axes:
            n, c, k = self.facts.sizes[a], x.upcast[a] * x.vector[a], x.local[a]
            if x.upcast[a] > MOST_COPIES or (x.upcast[a] > 1 and (c // x.upcast[a]) * k >= n):
                return False
            if k > 1 and k // 2 * c >= n:
                return False
            if x.vector[a] > 1 and x.vector[a] > n:
                return False
        return True

    def moves_along(self, x: Shares, a: int) -> Iterator[Shares]:
        """What differs from x in the digits of one axis."""
        n = self.facts.sizes[a]
        local, upcast, vector = x.local[a], x.upcast[a], x.vector[a]
        for k in (local * 2, local // 2):
            if k >= 1:
                yield x.with_("local", a, k)
        cover = -(-n // (local * vector))
        for u in sorted({upcast * 2, upcast // 2, cover, 1} - {upcast, 0}):
            yield x.with_("upcast", a, u)
        for v in self.widths[a]:
            if v == vector:
                continue
            y = x.with_("vector", a, v)
            yield y
            if v > vector and upcast >= v // vector:
                yield y.with_("upcast", a, max(1, upcast * vector // v))
            for copies in (upcast * vector // v, upcast * vector // v // 2) if v < vector else ():
                if copies > 1:
                    yield y.with_("upcast", a, copies)
            if v > vector and local >= v // vector:
                yield y.with_("local", a, max(1, local * vector // v))
        if upcast % 2 == 0:
            yield x.with_("upcast", a, upcast // 2).with_("local", a, local * 2)
        if local % 2 == 0:
            yield x.with_("upcast", a, upcast * 2).with_("local", a, local // 2)

    def moves_across(self, x: Shares) -> Iterator[Shares]:
        """What differs from x in whose lanes they are, or in their order."""
        for a, b in itertools.permutations(self.axes, 2):
            if x.local[a] > 1 and self.facts.sizes[b] > 1:
                yield x.with_("local", a, x.local[a] // 2).with_("local", b, x.local[b] * 2)
        lanes = [a for a in x.order if x.local[a] > 1]
        for first in lanes[1:]:
            yield replace(x, order=(first, *(a for a in x.order if a != first)))
        if len(lanes) == 3:
            a, b, c = lanes
            yield replace(x, order=(a, c, b, *(y for y in x.order if y not in lanes)))

    def down(self, x: Shares) -> Shares:
        """The end of the way down from x: along each axis in turn, then across, the best move."""
        wide = [a for a in self.axes if self.facts.sizes[a] > 1]
        for _ in range(MOST_TURNS):
            before = x
            for a in (*wide, None):
                moves = self.moves_across(x) if a is None else self.moves_along(x, a)
                y = min(filter(self.sensible, moves), key=self.cycles, default=x)
                if self.cycles(y) < self.cycles(x) * (1 - GAIN):
                    x = y
            if x is before:
                break
        return x

    def starts(self) -> Iterator[Shares]:
        """A warp along each axis that memory is contiguous in, and what a block must hold spread
        over its lanes; or all of that axis alone in vectors, in loops over what else it holds."""
        ones = (1,) * len(self.axes)
        sizes = self.facts.sizes
        inner = [a for a in self.axes if a not in self.gridded]
        contiguous = [a for a in self.axes if len(self.widths[a]) > 1] or [self.axes[-1]]
        for x in contiguous:
            order = (x, *(a for a in reversed(self.axes) if a != x))
            start = Shares(ones, ones, ones, order)
            start = start.with_("local", x, min(32, self.most_threads, pow2_at_least(sizes[x])))
            yield start
            held = start
            for a in inner:
                room = self.most_threads // math.prod(held.local)
                if a != x:
                    held = held.with_("local", a, min(room, pow2_at_least(sizes[a])))
            for a in inner:
                left = -(-sizes[a] // held.local[a])
                held = held.with_("upcast", a, left if left <= MOST_COPIES else 1)
            if held != start:
                yield held
            wide = self.widths[x][-1]
            row = start.with_("vector", x, wide)
            row = row.with_("local", x, min(ROW_THREADS, pow2_at_least(-(-sizes[x] // wide))))
            left = -(-sizes[x] // (row.local[x] * wide))
            if x in inner and len(inner) > 1 and left <= MOST_COPIES:
                yield row.with_("upcast", x, left)

    def opts(self, x: Shares) -> Opts:
        """The record of these digits."""

        def clean(row: tuple[int, ...]) -> dict[int, int]:
            return {a: n for a, n in enumerate(row) if n > 1}

        d = self.digits(x)
        inner = {a: d.copies[a] * d.local[a] for a in self.axes}
        tile = tiles(self.facts, inner, dict(enumerate(d.copies)))
        grid = tuple(a for a in x.order if a in self.facts.outputs)
        return Opts(
            gpu=True,
            merge=self.facts.merge,
            local=clean(x.local),
            upcast=clean(x.upcast),
            vector=clean(x.vector),
            tile=tile,
            blocks=dict.fromkeys(sorted(self.apart - frozenset(self.facts.reduced)), 1),
            lanes=d.lanes,
            grid=grid,
            blocks_per_sm=max(1, self.seen[x].at_once),
        )

    def why(self, x: Shares, kind_: Because) -> tuple[Because, ...]:
        """What there is to say of these digits: what each of them saves."""
        d, found, sizes = self.digits(x), self.seen[x], self.facts.sizes
        why = [kind_, because("gpu", ON_GPU), merged(self.facts)]
        for name, digit in _DIGITS.items():
            for a, n in enumerate(getattr(x, name)):
                if n > 1:
                    without = self.cycles(x.with_(name, a, 1))
                    other = "too much" if math.isinf(without) else f"{without:.0f}"
                    figures = dict(axis=a, size=sizes[a], cycles=found.cycles, without=other)
                    why.append(because(name, WITHOUT, a, digit=digit, **figures))
        for a, n in enumerate(d.serial):
            why.append(because("tile", SHORT_CHAINS, a, steps=n, most=LONGEST_CHAIN))
            why.append(because("blocks", IN_PLACE, a, axis=a))
        why.append(because("lanes", LANES, first=d.lanes[0] if d.lanes else 0))
        why.append(because("grid", GRID))
        return (*why, because("blocks_per_sm", AT_ONCE, registers=found.registers))


def spread(facts: KernelFacts, target: Target, most_threads: int) -> list[Guess]:
    """Candidates, the best first: the end of the best way down, the best of all that was seen with
    fewer registers (where it spills, all else about it was right), then the ends of other ways."""
    climb = Climb(facts, target, most_threads)
    starts = sorted(climb.starts(), key=climb.cycles)[:STARTS]
    began: dict[Shares, Shares] = {}
    for x in starts:
        began.setdefault(climb.down(x), x)
    best, *others = ends = sorted(began, key=climb.cycles)
    most, seen = climb.seen[best].registers, len(climb.seen)
    leaner: dict[Shares, float] = {}
    for part in LEANER:
        fit = [x for x, e in climb.seen.items() if e.registers <= most * part]
        if fit:
            leaner.setdefault(min(fit, key=climb.cycles), most * part)
    guesses = []
    for x in (best, *leaner, *others):
        e, least = climb.seen[x], leaner.get(x)
        figures = dict(cycles=e.cycles, bound=e.bound)
        if x in began:
            start = began[x]
            other = next((climb.cycles(y) for y in ends if y != x), None)
            beside = "" if other is None else f"; {other:.0f} at the end of another way"
            figures |= dict(start=start, first=climb.cycles(start), seen=seen, beside=beside)
            said = kind("spread", FOUND, **figures)
        else:
            said = kind("spread", LEAN, **figures, registers=least, most=most)
        guesses.append(Guess(climb.opts(x), climb.why(x, said)))
    return list(dict.fromkeys(guesses))

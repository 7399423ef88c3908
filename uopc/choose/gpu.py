"""Ranked Opts for a GPU kernel, from sizes and strides alone.  INDEXED -> list of Opts.

Four shapes of work: elementwise; rows (the reduced axis is contiguous); columns (it is strided);
and whatever serves several results with one load or has several reduced axes, such as products and
kernels that fuse them, which a model of costs spreads (`choose/spread.py`).  The figures behind the
numbers here: note 0003.  Nothing is compiled; `compile` takes the next candidate where one spills.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from uopc.choose.facts import KernelFacts, pow2_at_least, pow2_at_most, tiles
from uopc.choose.spread import spread
from uopc.opts import Opts
from uopc.target import Target
from uopc.uop.ops import Combine

REGISTERS_BESIDES = 24  # addresses, guards and temporaries of a kernel that holds nothing
REGISTERS_EARLY = 16  # the same, while loads that were issued early are awaited
SHARED_BESIDES = 1 << 10  # bytes of the warps' partial results, beside a row

FULL = 1.125  # times a row's length that its threads may hold before fewer of them are better
MOST_BLOCKS = 16  # blocks per SM that launch bounds ask for: every target has room for them


@dataclass(frozen=True)
class Aim:
    """What a choice aims at.

    max_threads of a block; row_threads of a block that holds one row; min_blocks of a grid, 0 for
    two an SM; split: may sums be split over the grid?
    """

    target: Target
    max_threads: int = 256
    row_threads: int = 1024
    min_blocks: int = 0
    split: bool = True

    @property
    def blocks(self) -> int:
        """Blocks that keep every SM busy."""
        return self.min_blocks or 2 * self.target.sms


class _Sizes:
    """Digit sizes under construction."""

    def __init__(self, facts: KernelFacts) -> None:
        self.facts = facts
        self.local: dict[int, int] = {}
        self.upcast: dict[int, int] = {}
        self.vector: dict[int, int] = {}
        self.blocks: dict[int, int] = {}
        self.loop: dict[int, int] = {}
        self.tile: dict[int, int] = {}

    @property
    def threads(self) -> int:
        return math.prod(self.local.values())

    def opts(self, lanes: tuple[int, ...], **more: object) -> Opts:
        def clean(d: dict[int, int], drop: int = 1) -> dict[int, int]:
            return {a: n for a, n in d.items() if n != drop}

        return Opts(
            gpu=True,
            merge=self.facts.merge,
            local=clean(self.local),
            upcast=clean(self.upcast),
            vector=clean(self.vector),
            tile=clean(self.tile),
            blocks=clean(self.blocks, 0),
            loop=clean(self.loop, 0),
            lanes=lanes,
            grid=lanes,
            **more,  # type: ignore[arg-type]
        )

    def serial(self, parts: Mapping[int, int] | None = None) -> None:
        """Cut the loops of reduced axes in two where a chain of float sums would be too long.

        parts: blocks that an axis is split over.
        """

        def product(*digits: Mapping[int, int]) -> dict[int, int]:
            axes = range(len(self.facts.axes))
            return {a: math.prod(d.get(a, 1) for d in digits) for a in axes}

        copies = product(self.upcast, self.vector)
        self.tile = tiles(self.facts, product(copies, self.local, parts or {}), copies)


def rank(facts: KernelFacts, aim: Aim) -> list[Opts]:
    """Candidates, the best guess first; never empty.

    One that asks for several blocks per SM is followed by itself without that: where it spills, the
    same mapping with all the registers it wants is better than the next one.
    """
    out: list[Opts] = []
    for guess in _guesses(facts, aim):
        out.append(guess)
        if guess.blocks_per_sm > 1:
            out.append(replace(guess, blocks_per_sm=0))
    return list(dict.fromkeys(out))


def _guesses(facts: KernelFacts, aim: Aim) -> list[Opts]:
    if not facts.axes:
        return [Opts(gpu=True)]
    if not facts.reduces:
        return _elementwise(facts, aim)
    walked = sorted({r.arg.axis for u in facts.reduces for r in u.src[1:]})
    if len(walked) == 1 and not facts.reuses():
        axis = walked[0]
        if facts.contiguous(axis) or not facts.strides(axis):
            return _rows(facts, aim, axis)
        return _columns(facts, aim, axis)
    return spread(facts, aim.target, aim.row_threads)


def _contiguous_axis(facts: KernelFacts, among: tuple[int, ...]) -> int:
    """The axis that most bytes are contiguous along; the stores decide a tie; else the last one."""

    def worth(axis: int) -> tuple[int, int, int]:
        moves = [a for a, c in facts.strides(axis) if c == 1]
        return (sum(a.size_bytes for a in moves), sum(a.store for a in moves), axis)

    return max(among, key=worth)


def _order(facts: KernelFacts, first: int) -> tuple[int, ...]:
    """The order of .x, .y, .z: one axis first, then the output axes from the last to the first."""
    return (first, *(a for a in reversed(facts.outputs) if a != first))


def _elementwise(facts: KernelFacts, aim: Aim) -> list[Opts]:
    x = _contiguous_axis(facts, facts.outputs)
    n, total = facts.sizes[x], math.prod(facts.sizes)
    best = _elementwise_with(facts, aim, x, n, total, facts.vector(x), 1)
    plain = _elementwise_with(facts, aim, x, n, total, 1, 1)
    return [best] if best == plain else [best, plain]


def _elementwise_with(
    facts: KernelFacts, aim: Aim, x: int, n: int, total: int, vector: int, copies: int
) -> Opts:
    s = _Sizes(facts)
    threads = aim.max_threads
    while (
        threads > 64 and total < aim.blocks * threads * vector
    ):  # small work: more, smaller blocks
        threads //= 2
    while vector > 1 and total < aim.blocks * threads * vector:
        vector //= 2
    lanes = -(-n // vector)
    s.vector[x] = vector
    s.local[x] = min(threads, max(32, pow2_at_least(lanes) if lanes <= threads else threads))
    if lanes > s.local[x] // 2 and lanes % s.local[x]:  # a shorter row of lanes that wastes less
        fits = [m for m in (s.local[x], s.local[x] // 2, s.local[x] // 4) if m >= 32]
        least = min(-(-lanes // m) * m for m in fits)
        s.local[x] = next(m for m in fits if -(-lanes // m) * m <= least * 17 // 16)
    others = [a for a in reversed(facts.outputs) if a != x]
    for a in others:
        if s.threads >= threads:
            break
        s.local[a] = min(threads // s.threads, pow2_at_least(facts.sizes[a]))
    room = total // (aim.blocks * 8 * s.threads * vector)
    if room >= 2:
        s.upcast[x] = max(1, min(copies, room, lanes // s.local[x]))
    return s.opts(_order(facts, x), blocks_per_sm=0)


def _rows(facts: KernelFacts, aim: Aim, axis: int) -> list[Opts]:
    """One row is reduced along a contiguous axis, by a warp or by the lanes of a block."""
    n, v = facts.sizes[axis], facts.vector(axis)
    kept = [a for a in facts.outputs if a != axis]
    rows = math.prod(facts.sizes[a] for a in kept)
    held, streams = facts.held(axis), max(1, facts.streams(axis))
    last = kept[-1] if kept else None
    out: list[Opts] = []
    # elements of a thread: 16, or 32 where each exchange is dear (argmax), or one vector at least
    wide = max(1, (32 if _indices(facts) else 16) // v) * v
    if n <= 32 * v:
        s = _Sizes(facts)
        s.vector[axis], s.local[axis] = v, pow2_at_least(-(-n // v))
        if last is not None:
            s.local[last] = max(
                1, min(aim.max_threads // s.local[axis], pow2_at_least(facts.sizes[last]))
            )
            room = rows // (aim.blocks * s.threads // s.local[axis])
            s.upcast[last] = pow2_at_most(max(1, min(4, max(1, 16 // v), room, facts.sizes[last])))
        out.append(_finish(facts, aim, s, axis, held, streams))
        return out
    local = max(32, pow2_at_least(-(-n // wide)))
    words = max(1, facts.widest_item() // 4)
    if local > 512:
        local = 1024 if n * words <= 32768 else 512
    local = min(local, pow2_at_most(aim.row_threads))
    if local > 32 and _padded(n, local * v) > FULL * n and 3 * wide // 2 * local // 2 >= n:
        local //= 2  # half as many threads waste less
    copies = -(-n // (local * v))
    carried = copies * v * words * streams  # registers of a row that stays
    fits = carried <= 96 and local * (REGISTERS_EARLY + carried) <= aim.target.registers_per_sm
    if fits and (held or copies * v <= wide):  # the row stays in registers: read once, written once
        s = _Sizes(facts)
        s.local[axis], s.upcast[axis], s.vector[axis] = local, copies, v
        _more_rows(facts, aim, s, axis, last, local)
        out.append(_finish(facts, aim, s, axis, held, streams))
    threads = (
        min(aim.max_threads, pow2_at_least(-(-n // v)))
        if not held
        else min(pow2_at_most(aim.row_threads) // words, pow2_at_least(-(-n // wide)))
    )
    s = _Sizes(facts)
    s.local[axis], s.vector[axis] = threads, v
    spare = aim.target.registers_per_sm // threads - REGISTERS_BESIDES
    most = pow2_at_most(max(1, spare // ((streams + _indices(facts)) * v * words)))
    s.upcast[axis] = max(1, min(4 if v > 1 else 8, most, -(-n // (threads * v))))
    parts = 1
    if aim.split and not held and rows < aim.blocks and n > 65536:
        parts = max(1, min(4 * aim.target.sms // rows, -(-n // 8192)))
        s.blocks[axis] = parts
    s.serial({axis: parts})
    step = threads * v * s.upcast[axis]
    room = min(200_000, aim.target.shared_optin_bytes - SHARED_BESIDES)
    keep = "shared" if held and _padded(n, step) * facts.widest_item() * streams <= room else "reg"
    out.append(_finish(facts, aim, s, axis, held, streams, keep))
    small = _Sizes(facts)
    small.local[axis], small.vector[axis] = min(256, threads), 1
    small.serial()
    out.append(small.opts((axis, *_order(facts, axis)[1:]), blocks_per_sm=2))
    return out


def _padded(n: int, step: int) -> int:
    """n, up to whole steps."""
    return -(-n // step) * step


def _more_rows(
    facts: KernelFacts, aim: Aim, s: _Sizes, axis: int, last: int | None, local: int
) -> None:
    """Rows that fit one warp share a block; longer ones do not: the barrier would couple them."""
    if last is not None and local <= 32:
        s.local[last] = max(1, min(aim.max_threads // local, pow2_at_least(facts.sizes[last])))


def _finish(
    facts: KernelFacts, aim: Aim, s: _Sizes, axis: int, held: bool, streams: int, keep: str = "reg"
) -> Opts:
    """Launch bounds from a register estimate: what is held at once, and addresses."""
    elements = math.prod(d.get(a, 1) for d in (s.upcast, s.vector) for a in range(len(facts.axes)))
    arrays = streams + held if streams * elements <= 64 else 2
    arrays += _indices(facts)
    words = max(1, facts.widest_item() // 4)
    registers = REGISTERS_BESIDES + arrays * elements * words
    per_sm = aim.target.registers_per_sm // (max(32, s.threads) * registers)
    per_sm = max(1, min(per_sm, aim.target.max_threads_per_sm // max(32, s.threads), MOST_BLOCKS))
    lanes = (axis, *(a for a in reversed(facts.outputs) if a != axis))
    flying = s.threads * (REGISTERS_EARLY + streams * elements * words)
    early = streams * elements <= 64 and flying <= aim.target.registers_per_sm
    return s.opts(lanes, blocks_per_sm=per_sm, keep=keep, early=early)


def _indices(facts: KernelFacts) -> int:
    """1 where a reduction carries an index beside each value, else 0."""
    return int(any(u.arg.combine in (Combine.ARGMAX, Combine.ARGMIN) for u in facts.reduces))


def _columns(facts: KernelFacts, aim: Aim, axis: int) -> list[Opts]:
    """Reduced along a strided axis: lanes run along the contiguous output axis, rows across."""
    if not facts.outputs:
        return spread(facts, aim.target, aim.row_threads)
    x = _contiguous_axis(facts, facts.outputs)
    width, n, v = facts.sizes[x], facts.sizes[axis], facts.vector(x)
    rows = math.prod(facts.sizes[a] for a in facts.outputs)
    s = _Sizes(facts)
    s.vector[x] = v
    s.local[x] = min(32, pow2_at_least(-(-width // v)))
    blocks = -(-rows // (s.local[x] * v))
    across = min(max(1, aim.max_threads // s.local[x]), pow2_at_least(n))
    parts = 1
    if aim.split and not facts.held(axis) and blocks < aim.blocks:
        parts = max(1, min(4 * aim.target.sms // blocks, n // (across * 8)))
    s.local[axis] = across
    s.upcast[axis] = max(1, min(8 if v > 1 else 16, n // (across * parts)))
    if parts > 1:
        s.blocks[axis] = parts
    s.serial({axis: parts})
    best = s.opts(_order(facts, x))
    roomy = s.opts(_order(facts, x), blocks_per_sm=1)  # without bounds ptxas may spill by choice
    plain = _Sizes(facts)
    plain.local[x] = min(256, pow2_at_least(width))
    plain.serial()
    return [best, roomy, plain.opts(_order(facts, x))]

"""Opts for kernels that reduce a strided axis: lanes along what is contiguous, rows across them."""

from __future__ import annotations

import math

from uopc.choose.facts import KernelFacts, pow2_at_least
from uopc.choose.sizes import Aim, Sizes, contiguous_axis, order
from uopc.choose.spread import spread
from uopc.decision import Guess, Reason

LINE = 128  # bytes of a row that a block reads at once: narrow elements want more rows instead

# ---- what decides, in words
FOLLOWS = Reason(
    "choose.sizes.contiguous_axis",
    "axis {axis} is reduced and strided; most bytes are contiguous along axis {x}: neighbouring "
    "threads walk it",
)
WIDE = Reason(
    "choose.facts.KernelFacts.vector",
    "every access contiguous along axis {x} begins at a multiple of {v} elements",
)
LANES = Reason(
    "choose.columns.columns",
    "{lanes} lanes with {v} elements of {item} bytes read a row of a block together",
)
ACROSS = Reason(
    "choose.columns.columns",
    "{lanes} lanes along axis {x} leave room in a block of {threads} threads: the others take "
    "other rows",
)
COPIES = Reason("choose.columns.columns", "{copies} rows of a thread are on their way at once")
PARTS = Reason(
    "choose.columns.columns",
    "{blocks} blocks are fewer than the {wanted} that fill the target: each sums a part of the "
    "rows",
)
READ_ONCE = Reason(
    "choose.columns.columns", "nothing is read twice: what was read need not stay in a cache"
)
ROOMY = Reason("choose.columns.columns", "without another bound ptxas may spill by its own choice")
PLAIN = Reason("choose.columns.columns", "the plain candidate: a thread a column")


def columns(facts: KernelFacts, aim: Aim, axis: int) -> list[Guess]:
    """Reduced along a strided axis: lanes run along the contiguous output axis, rows across."""
    if not facts.outputs:
        return spread(facts, aim.target, aim.row_threads)
    x = contiguous_axis(facts, facts.outputs)
    width, n, v = facts.sizes[x], facts.sizes[axis], facts.vector(x)
    rows = math.prod(facts.sizes[a] for a in facts.outputs)
    s = Sizes(facts)
    s.vector[x] = v
    item = facts.widest_load()
    few = facts.held(axis) and rows < aim.blocks * 32 * v  # which cannot be split over the grid
    lanes = max(4, LINE // (v * item)) if few or item < 4 else 32
    s.local[x] = min(lanes, pow2_at_least(-(-width // v)))
    blocks = -(-rows // (s.local[x] * v))
    across = min(max(1, aim.max_threads // s.local[x]), pow2_at_least(n))
    parts = 1
    if aim.split and not facts.held(axis) and blocks < aim.blocks:
        parts = max(1, min(4 * aim.target.sms // blocks, n // (across * 8)))
    s.local[axis] = across
    copies = 8 if v > 1 and item >= 4 else 16
    s.upcast[axis] = max(1, min(copies, n // (across * parts)))
    if parts > 1:
        s.blocks[axis] = parts
    s.serial({axis: parts})
    once = not facts.held(axis)
    figures = dict(axis=axis, x=x, v=v, lanes=s.local[x], item=item, copies=s.upcast[axis])
    figures |= dict(blocks=blocks, wanted=aim.blocks, threads=aim.max_threads)
    s.because("lanes", FOLLOWS, **figures)
    s.because("vector", WIDE, x, **figures)
    s.because("local", LANES, x, **figures)
    for name, reason in (("local", ACROSS), ("upcast", COPIES), ("blocks", PARTS)):
        s.because(name, reason, axis, **figures)
    s.because("streaming", READ_ONCE)
    best = s.guess(order(facts, x), streaming=once)
    # without bounds ptxas may spill by choice
    s.because("blocks_per_sm", ROOMY)
    roomy = s.guess(order(facts, x), blocks_per_sm=1, streaming=once)
    plain = Sizes(facts)
    plain.local[x] = min(256, pow2_at_least(width))
    plain.serial()
    plain.because("lanes", FOLLOWS, **figures)
    plain.because("local", PLAIN, x)
    return [best, roomy, plain.guess(order(facts, x))]

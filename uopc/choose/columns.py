"""Opts for kernels that reduce a strided axis: lanes along what is contiguous, rows across them."""

from __future__ import annotations

import math

from uopc.choose.facts import KernelFacts, pow2_at_least
from uopc.choose.sizes import Aim, Sizes, contiguous_axis, order
from uopc.choose.spread import spread
from uopc.opts import Opts

LINE = 128  # bytes of a row that a block reads at once: narrow elements want more rows instead


def columns(facts: KernelFacts, aim: Aim, axis: int) -> list[Opts]:
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
    best = s.opts(order(facts, x), streaming=once)
    # without bounds ptxas may spill by choice
    roomy = s.opts(order(facts, x), blocks_per_sm=1, streaming=once)
    plain = Sizes(facts)
    plain.local[x] = min(256, pow2_at_least(width))
    plain.serial()
    return [best, roomy, plain.opts(order(facts, x))]

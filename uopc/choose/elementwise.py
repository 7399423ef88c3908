"""Opts for kernels without reductions: one vector a thread along the axis most bytes follow."""

from __future__ import annotations

import math

from uopc.choose.facts import KernelFacts, pow2_at_least
from uopc.choose.sizes import Aim, Sizes, contiguous_axis, order
from uopc.opts import Opts


def elementwise(facts: KernelFacts, aim: Aim) -> list[Opts]:
    x = contiguous_axis(facts, facts.outputs)
    n, total = facts.sizes[x], math.prod(facts.sizes)
    best = _with(facts, aim, x, n, total, facts.vector(x), 1)
    plain = _with(facts, aim, x, n, total, 1, 1)
    return [best] if best == plain else [best, plain]


def _with(
    facts: KernelFacts, aim: Aim, x: int, n: int, total: int, vector: int, copies: int
) -> Opts:
    s = Sizes(facts)
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
    return s.opts(order(facts, x), blocks_per_sm=0)

"""A long row over the blocks of a cluster, where one block does not hold it well.

A block loads, exchanges and stores in turn.  An SM that holds several of them stores for one while
it loads for another: 1024 threads of 64 registers, of which a row takes 32, in blocks of 256 or 512
threads.  Elements of 16 bits are held in pairs until they are computed with, so that 64 of them fit
80 registers, in three blocks of 256 threads.  The figures: note 0012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.choose.facts import KernelFacts, pow2_at_least, pow2_at_most
from uopc.choose.sizes import Aim, Sizes, order
from uopc.decision import Guess, Reason
from uopc.opts import BY_AXIS

MOST_BLOCKS = 8  # of a cluster: what every GPU with clusters takes
LONG = 8192  # elements of a row up to which one block is as good
SMALL_BLOCKS = 16384  # elements of a row up to which blocks of 256 threads are enough
FEWEST_THREADS = 128

# ---- what decides, in words
SPREAD = Reason(
    "choose.clusters.over_a_cluster",
    "a row of {n} elements is walked more than once: {blocks} blocks of a cluster hold it in "
    "registers, {threads} threads with up to {each} elements each",
)
THREADS = Reason(
    "choose.clusters._blocks",
    "blocks of {threads} threads, {per_sm} at once on an SM: one stores while another one loads",
)
HOLDS = Reason(
    "choose.clusters.over_a_cluster",
    "{blocks} blocks of {threads} threads with vectors of {v} hold a row of {n} so",
)
WIDE = Reason(
    "choose.facts.KernelFacts.vector",
    "every access contiguous along axis {axis} begins at a multiple of {v} elements",
)
AT_ONCE = Reason(
    "choose.clusters._blocks", "an SM is to hold so many blocks, which leaves registers enough"
)
LATE = Reason(
    "choose.clusters.over_a_cluster",
    "{streams} loads along the row: issued early, weights would take the registers of the row",
)


@dataclass(frozen=True)
class _Block:
    """What one block does: elements of a thread at most; per_sm: how many of them an SM holds."""

    threads: int
    elements: int
    per_sm: int

    def blocks(self, n: int) -> int:
        """So many hold a row, a power of two."""
        return pow2_at_least(-(-n // (self.threads * self.elements)))


def over_a_cluster(facts: KernelFacts, aim: Aim, axis: int) -> Guess | None:
    """Opts for long rows that are walked more than once; None where other mappings do better."""
    n = facts.sizes[axis]
    if not aim.target.has_clusters or not facts.held(axis) or n < LONG:
        return None
    count = math.prod(facts.sizes[a] for a in facts.outputs if a != axis)
    block = next((b for b in _blocks(facts, aim, axis) if b.blocks(n) <= MOST_BLOCKS), None)
    if block is None:
        return None
    blocks = block.blocks(n)
    if 2 * blocks * count <= aim.target.sms:
        blocks, block = _few_rows(facts, aim, axis, count, blocks)
    if blocks == 1 and n <= LONG:
        return None
    v = facts.vector(axis)
    s = Sizes(facts)
    s.local[axis], s.vector[axis] = block.threads, v
    s.upcast[axis] = -(-n // (blocks * block.threads * v))
    spread = {axis: blocks} if blocks > 1 else {}
    early, lanes = facts.streams(axis) <= 1, order(facts, axis)
    holds = dict(n=n, blocks=blocks, threads=block.threads, v=v, axis=axis, each=block.elements)
    for name, reason in _REASONS.items():
        a = axis if name in BY_AXIS else None
        s.because(name, reason, a, **holds, per_sm=block.per_sm, streams=facts.streams(axis))
    return s.guess(lanes, blocks_per_sm=block.per_sm, early=early, cluster=spread)


_REASONS = {
    **{"local": THREADS, "vector": WIDE, "upcast": HOLDS, "cluster": SPREAD},
    **{"blocks_per_sm": AT_ONCE, "early": LATE},
}


def _blocks(facts: KernelFacts, aim: Aim, axis: int) -> list[_Block]:
    """Kinds of blocks, the best first; each holds longer rows than the one before."""
    room, item = pow2_at_most(aim.row_threads), facts.widest_item()
    threads, words = min(512, room), max(1, item // 4)
    if facts.streams(axis) > 1:  # weights beside the row
        each = 16 // words
        return [_Block(threads, each, 1024 // threads), _Block(room, each, 1)]
    longest = _Block(threads, 64 // words, 1)
    if item < 4:
        return [_Block(min(256, room), 64, 3), longest]
    if facts.sizes[axis] * words <= SMALL_BLOCKS:
        threads = min(256, room)
    return [_Block(threads, 32 // words, 1024 // threads), longest]


def _few_rows(
    facts: KernelFacts, aim: Aim, axis: int, count: int, blocks: int
) -> tuple[int, _Block]:
    """Fewer rows than SMs: as many blocks as there are SMs for, of at least 16 words a thread."""
    while blocks < MOST_BLOCKS and 2 * blocks * count <= aim.target.sms:
        blocks *= 2
    each = max(facts.vector(axis), 16 // max(1, facts.widest_item() // 4))
    wanted = pow2_at_least(-(-facts.sizes[axis] // (blocks * each)))
    return blocks, _Block(min(max(FEWEST_THREADS, wanted), pow2_at_most(aim.row_threads)), each, 1)

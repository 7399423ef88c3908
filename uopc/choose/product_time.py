"""How long a product takes under a plan: what bounds a block, and how many rounds of blocks.

A block is bound by the multiplications of its SM, the bytes that reach it from L2, or those that
tensor cores read from shared memory; the whole by its rounds, or by what memory moves.  Numbers are
of an H200, set by hand against timed plans (note 0015); ALONE, BY_THREADS_PER_CLOCK and the parts
of the peak of small tiles of FMA (`choose/products.py`) are guesses.  What matters is the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from uopc.choose.product_facts import ProductFacts
from uopc.plan import BULK, CP_ASYNC, FMA, NEIGHBOURS, Plan

L2_BYTES_PER_CLOCK = 60  # that reach an SM
SHARED_BYTES_PER_CLOCK = 128
STORED_BYTES_PER_CLOCK = 40  # that leave an SM
#: of all SMs: from memory, and of what L2 holds
MEMORY_BYTES_PER_CLOCK, CACHED_BYTES_PER_CLOCK = 1900, 8000
#: clocks until the first tile of k is there; of a fold of parts by the last block
START_CLOCKS, FOLD_CLOCKS = 1500, 6000
#: of waiting for a tile of k, of that and reading an operand to registers (and as much again for
#: every 128 rows), and of what a tile of D takes apart from its multiplications
STEP_CLOCKS, OWN_READS_CLOCKS, TILE_CLOCKS = 80, 120, 400
#: of a kernel more, and what moves in a clock where operands are written first
LAUNCH_CLOCKS, MOVED_BYTES_PER_CLOCK = 2000, 1400
#: multiplications of an SM in a clock, by (FMA, bytes of an element)
PER_CLOCK = {
    **{(False, 1): 4096, (False, 2): 2048, (False, 4): 1024},
    **{(True, size): 128 for size in (1, 2, 4)},
    (True, 8): 64,
}
#: part of that which an engine reaches; of FMA, tiles have their own
EFFICIENCY = {BULK: 1.0, CP_ASYNC: 0.7, "mma": 0.6}
#: multiplications of an SM in a clock by threads with digits of their own, in round numbers
BY_THREADS_PER_CLOCK = 16
ALONE = 0.6  # of an SM's rate, what one block of several has while it is alone


@dataclass(frozen=True)
class Clocks:
    """What the kernels of a plan take: in all; by what bounds a tile of k; the rounds of its blocks
    and what memory moves, of which the longer one counts; the same for writing operands first."""

    total: float
    walls: tuple[tuple[float, str], ...]
    rounds: float
    memory: float
    writing: float

    @property
    def bound(self) -> str:
        """What the plan waits for most of its time."""
        if self.memory > self.rounds:
            return "what memory and L2 move"
        return max(self.walls)[1]


def clocks(facts: ProductFacts, plan: Plan, efficiency: float = 0.0) -> float:
    """What the kernels of a plan take, without the launch.  efficiency: 0 for the engine's."""
    return account(facts, plan, efficiency).total


def account(facts: ProductFacts, plan: Plan, efficiency: float = 0.0) -> Clocks:
    """The same with what it is made of."""
    rate = PER_CLOCK[plan.atom == FMA, facts.itemsize] * (efficiency or EFFICIENCY[_engine(plan)])
    products = plan.block_m * plan.block_n * plan.block_k
    atoms = plan.block_m // 64 * (64 + plan.block_n) if plan.atom.startswith("wgmma") else 0
    waiting: float = STEP_CLOCKS
    if plan.atom.endswith(".registers"):  # the longer others multiply, the less of it shows
        own = OWN_READS_CLOCKS * (1 + plan.block_m / 128)
        waiting = max(waiting, own - products / rate / 8)
    walls = (
        (products / rate, "multiplications"),
        (facts.step_bytes(plan) / L2_BYTES_PER_CLOCK, "bytes that reach an SM from L2"),
        (
            atoms * plan.block_k * facts.itemsize / SHARED_BYTES_PER_CLOCK,
            "bytes that tensor cores read from shared memory",
        ),
    )
    step = waiting * (plan.atom != FMA) + max(walls)[0]
    steps = -(-facts.steps(plan) // plan.splits)
    out = plan.block_m * plan.block_n * facts.result.itemsize / STORED_BYTES_PER_CLOCK
    each = steps * step + TILE_CLOCKS + out * _scattered(facts, plan)
    if not plan.blocks and plan.blocks_per_sm < 2:
        each += START_CLOCKS
    fold = 0.0
    if plan.splits > 1:
        parts = facts.tiles(plan) * plan.splits * plan.block_m * plan.block_n * 4
        fold = FOLD_CLOCKS + 2 * parts / CACHED_BYTES_PER_CLOCK
    again = facts.tiles(plan) * facts.steps(plan) * facts.step_bytes(plan) - facts.bytes
    memory = facts.bytes / MEMORY_BYTES_PER_CLOCK + max(0, again) / CACHED_BYTES_PER_CLOCK
    blocks = facts.tiles(plan) * plan.splits
    busy = _rounds(blocks, facts.target.sms, plan.blocks_per_sm) * each
    writing = _writing(facts, plan)
    total = max(busy, memory) + START_CLOCKS + fold + writing
    return Clocks(total, walls, busy, memory, writing)


def clocks_by_threads(facts: ProductFacts) -> float:
    """Roughly what it takes without a plan, by threads with digits of their own."""
    computing = math.prod(facts.sizes) / (facts.target.sms * BY_THREADS_PER_CLOCK)
    return computing + facts.bytes / MEMORY_BYTES_PER_CLOCK + START_CLOCKS


def _rounds(blocks: int, sms: int, per_sm: int) -> float:
    """Blocks that an SM works through, one after the other or several side by side."""
    if per_sm < 2:
        return -(-blocks // sms)
    whole, rest = divmod(blocks, sms * per_sm)
    last = -(-rest // sms)
    return whole * per_sm + last / (ALONE + (1 - ALONE) * max(0, last - 1) / (per_sm - 1))


def _scattered(facts: ProductFacts, plan: Plan) -> float:
    """How much longer stores take than whole lines would."""
    if plan.store == BULK:
        return 1
    if plan.atom == FMA:
        return 1 if facts.even >= NEIGHBOURS else NEIGHBOURS
    if plan.swap or facts.even > 1:
        return 4 / facts.result.itemsize
    return 24 / facts.result.itemsize


def _writing(facts: ProductFacts, plan: Plan) -> float:
    """Clocks of writing operands first."""
    batch, m, n, k = facts.sizes
    rows = dict(zip("ab", (n, m) if plan.swap else (m, n), strict=True))
    moved = sum(2 * batch * rows[name] * k * facts.itemsize for name in plan.written)
    return len(plan.written) * LAUNCH_CLOCKS + moved / MOVED_BYTES_PER_CLOCK


def _engine(plan: Plan) -> str:
    """What the part of the peak depends on that a plan reaches."""
    kind = plan.atom.partition(".")[0]
    return plan.copy if kind == "wgmma" else kind

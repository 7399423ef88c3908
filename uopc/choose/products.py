"""Plans for a matrix product on a GPU, ranked by a model of time.  INDEXED -> list of Opts.

The model knows what bounds a block: multiplications of an SM in a clock, bytes that reach it from
L2, bytes that tensor cores read from shared memory, and how many rounds of blocks the SMs take; and
the time that memory needs for everything once.  Figures behind the numbers here: note 0015.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from uopc.choose.facts import KernelFacts
from uopc.choose.sizes import Aim
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.layouts import ATOMS, K_MAJOR
from uopc.opts import Opts
from uopc.passes.find_products import Lies, Product, find_product, lies
from uopc.plan import BULK, CP_ASYNC, FMA, REGISTERS, Plan
from uopc.target import Target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

#: multiplications below which threads with digits of their own are as good
LEAST_BY_TENSOR_CORES, LEAST_BY_FMA = 1 << 22, 1 << 26
MOST = 6  # candidates
#: names in atoms; what is multiplied in an SM in a clock, of a tensor core of sm_90
TYPE_NAMES: dict[DType, str] = {
    **{dtypes.f16: "f16", dtypes.bf16: "bf16", dtypes.i8: "i8", dtypes.u8: "u8"},
    **{dtypes.f8e4m3: "f8e4m3", dtypes.f8e5m2: "f8e5m2"},
}
TF32 = "tf32"
RESERVED_BYTES = 1024  # of shared memory: mbarriers, and what the driver keeps
L2_BYTES_PER_CLOCK = 60  # that reach an SM
SHARED_BYTES_PER_CLOCK = 128
STORED_BYTES_PER_CLOCK = 40  # that leave an SM
#: clocks until the first tile of k is there; of a fold of parts by the last block
START_CLOCKS, FOLD_CLOCKS = 1500, 6000
#: of all SMs: from memory, and of what L2 holds
MEMORY_BYTES_PER_CLOCK, CACHED_BYTES_PER_CLOCK = 1900, 8000
LINE_BYTES = 128


def products(facts: KernelFacts, aim: Aim) -> list[Opts]:
    """Opts with a plan, the best guess first; none where the kernel is no product, or small."""
    try:
        product = find_product(facts.root)
    except UsageError:
        return []
    model = _Model.of(facts, product, aim)
    if model is None or math.prod(product.sizes) < model.least:
        return []
    timed = sorted((model.clocks(p), n, p) for n, p in enumerate(model.plans()))
    return [Opts(gpu=True, merge=facts.merge, plan=p) for _, _, p in timed[:MOST]]


@dataclass(frozen=True)
class _Model:
    """A product on a target: its types, and how its operands lie.

    kind: in names of atoms, or FMA.  bytes: each parameter once.
    """

    target: Target
    sizes: tuple[int, int, int, int]
    kind: str
    itemsize: int
    a: Lies
    b: Lies
    result: DType
    bytes: int

    @classmethod
    def of(cls, facts: KernelFacts, product: Product, aim: Aim) -> _Model | None:
        """None where no atom multiplies the operands' types and FMA does not either."""
        a, b = narrow(product.a), narrow(product.b)
        kind = _kind(product, a.dtype, b.dtype, aim)
        if kind == FMA:
            a, b = product.a, product.b
        result = next(u for u in facts.root.src[0].src if u.op is Ops.STORE).src[1].dtype
        return cls(
            *(aim.target, product.sizes, kind, a.dtype.itemsize),
            *(lies(product, a, product.m), lies(product, b, product.n), result),
            sum(x.size_bytes for x in facts.accesses),
        )

    @property
    def least(self) -> int:
        """Multiplications from which on a plan pays."""
        return LEAST_BY_FMA if self.kind == FMA else LEAST_BY_TENSOR_CORES

    # ---- candidates
    def plans(self) -> Iterator[Plan]:
        """Those that the target and the operands allow."""
        if self.kind == FMA:
            yield from self._by_fma()
        elif self.target.name == "sm_90a" and self._boxes:
            yield from self._by_wgmma()
        else:
            yield from self._by_mma()

    @property
    def _boxes(self) -> bool:
        """Can tensor copies bring both operands, as they lie?"""
        return all(x.strides is not None and x.takes(16, self.itemsize) for x in (self.a, self.b))

    def _by_wgmma(self) -> Iterator[Plan]:
        k = LINE_BYTES // self.itemsize
        for swap in (False, True):
            a, b = (self.b, self.a) if swap else (self.a, self.b)
            if self.itemsize != 2 and b.major != K_MAJOR:
                continue
            by_registers = self.itemsize != 2 and a.major != K_MAJOR
            if by_registers and self.itemsize != 4:
                continue
            suffix = ".registers" if by_registers else ""
            store = BULK if self.result.itemsize == 2 and not swap else REGISTERS
            for rows, columns, groups in GROUP_TILES:
                atom = f"wgmma.m64n{columns}k{k // 4}.{self.kind}{suffix}"
                if atom not in ATOMS:
                    continue
                for deep in (k, 2 * k) if rows * columns <= SMALL_TILE else (k,):
                    yield from self._rings(
                        dict(atom=atom, block_m=rows, block_n=columns, block_k=deep),
                        dict(warps_m=groups, warps_n=1, copy=BULK, store=store, swap=swap),
                    )

    def _by_mma(self) -> Iterator[Plan]:
        alike = [
            a
            for a in ATOMS.values()
            if a.engine == "mma.sync"
            and a.name.split(".")[2:] == [self.kind]
            and a.runs_on(self.target.name)
        ]
        if not alike:
            return
        atom = max(alike, key=lambda a: a.k)
        for rows, columns, down, across in WARP_TILES:
            for row_bytes in (64, LINE_BYTES):
                k = row_bytes // self.itemsize
                yield from self._rings(
                    dict(atom=atom.name, block_m=rows, block_n=columns, block_k=k),
                    dict(warps_m=down, warps_n=across, copy=CP_ASYNC),
                )

    def _by_fma(self) -> Iterator[Plan]:
        for rows, columns, k, down, across, lanes in THREAD_TILES:
            yield from self._rings(
                dict(block_m=rows, block_n=columns, block_k=k, lanes_m=lanes),
                dict(warps_m=down, warps_n=across, copy=CP_ASYNC),
            )

    def _rings(self, tile: dict[str, Any], how: dict[str, Any]) -> Iterator[Plan]:
        """The tile with as many of k in flight as fit, and blocks that suit their number."""
        try:
            one = Plan(**tile, **how)
        except UsageError:  # more sums than a thread has registers, say
            return
        stored = STORED_BYTES * one.groups if one.store == BULK else 0
        room = self.target.shared_optin_bytes - RESERVED_BYTES - stored
        depth = min(room // self._step_bytes(one), MOST_IN_FLIGHT)
        if depth < 2:
            return
        tiles = self._tiles(one)
        group = 16 if one.block_n > 128 else 8
        blocks = self.target.sms if one.roles and tiles > self.target.sms else 0
        if not blocks:
            depth = min(depth, max(2, self._steps(one)))
        yield replace(one, depth=depth, group=group, blocks=blocks)
        for splits in SPLITS:
            if tiles * splits <= self.target.sms and self._steps(one) >= splits * LEAST_STEPS:
                yield replace(one, depth=depth, group=group, splits=splits)

    # ---- the model
    def _padded(self, plan: Plan) -> tuple[int, int]:
        """Tiles of D along both sides."""
        _, m, n, _ = self.sizes
        m, n = (n, m) if plan.swap else (m, n)
        return -(-m // plan.block_m), -(-n // plan.block_n)

    def _tiles(self, plan: Plan) -> int:
        return self.sizes[0] * math.prod(self._padded(plan))

    def _steps(self, plan: Plan) -> int:
        """Tiles of k."""
        return -(-self.sizes[3] // plan.block_k)

    def _step_bytes(self, plan: Plan) -> int:
        return (plan.block_m + plan.block_n) * plan.block_k * self.itemsize

    def clocks(self, plan: Plan) -> float:
        """What the kernel takes, without its launch."""
        rate = PER_CLOCK[plan.atom == FMA, self.itemsize] * EFFICIENCY[_engine(plan)]
        products = plan.block_m * plan.block_n * plan.block_k
        atoms = plan.block_m // 64 * (64 + plan.block_n) if plan.roles else 0
        step = STEP_CLOCKS + max(
            products / rate,
            self._step_bytes(plan) / L2_BYTES_PER_CLOCK,
            atoms * plan.block_k * self.itemsize / SHARED_BYTES_PER_CLOCK,
        )
        steps = -(-self._steps(plan) // plan.splits)
        rounds = -(-self._tiles(plan) * plan.splits // self.target.sms)
        out = plan.block_m * plan.block_n * self.result.itemsize / STORED_BYTES_PER_CLOCK
        if plan.store == REGISTERS:
            out *= SCATTERED
        each = steps * step + TILE_CLOCKS + out + (0 if plan.blocks else START_CLOCKS)
        fold = FOLD_CLOCKS if plan.splits > 1 else 0
        again = self._tiles(plan) * self._steps(plan) * self._step_bytes(plan) - self.bytes
        memory = self.bytes / MEMORY_BYTES_PER_CLOCK + max(0, again) / CACHED_BYTES_PER_CLOCK
        return max(rounds * each, memory) + START_CLOCKS + fold


def narrow(operand: UOp) -> UOp:
    """The operand, or what it is a CAST of, where that loses nothing."""
    while operand.op is Ops.CAST and operand.src[0].dtype in TYPE_NAMES:
        operand = operand.src[0]
    return operand


def _kind(product: Product, a: DType, b: DType, aim: Aim) -> str:
    """Types of the operands as atoms call them, where tensor cores give the sums that are asked
    for; else FMA."""
    total = product.total.dtype
    if a in TYPE_NAMES and b in TYPE_NAMES:
        both = TYPE_NAMES[a] if a is b else f"{TYPE_NAMES[a]}x{TYPE_NAMES[b]}"
        wanted = dtypes.i32 if a.is_int else dtypes.f32
        known = any(x.name.split(".")[2:] == [both] for x in ATOMS.values())
        return both if total is wanted and known else FMA
    return TF32 if aim.tf32 and total is dtypes.f32 and a is b is dtypes.f32 else FMA


def _engine(plan: Plan) -> str:
    return plan.atom.partition(".")[0]


#: (rows, columns, warpgroups) of wgmma; (rows, columns, warps down and across) of mma.sync
GROUP_TILES = (
    *((128, 256, 2), (256, 128, 2), (128, 192, 2), (192, 128, 3), (128, 128, 2), (128, 64, 2)),
    *((64, 256, 1), (64, 128, 1), (64, 64, 1), (64, 32, 1), (64, 16, 1), (64, 8, 1), (128, 16, 2)),
)
WARP_TILES = (
    *((128, 256, 2, 4), (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2)),
    *((32, 64, 1, 2), (32, 32, 2, 1), (16, 64, 1, 4), (16, 32, 1, 2), (16, 16, 1, 2)),
)
#: (rows, columns, k, warps down and across, lanes down) of FMA
THREAD_TILES = ((128, 256, 16, 2, 4, 8), (128, 128, 16, 2, 4, 4), (64, 64, 16, 2, 2, 4))
MOST_IN_FLIGHT = 16
SPLITS = (2, 4, 8)
LEAST_STEPS = 4  # of a part
SMALL_TILE = 64 * 64
#: of waiting for a tile of k, and of what a tile of D takes apart from its multiplications
STEP_CLOCKS, TILE_CLOCKS = 80, 400
STORED_BYTES = 2 * 64 * LINE_BYTES  # chunks of D of a group
#: multiplications of an SM in a clock, by (FMA, bytes of an element)
PER_CLOCK = {
    **{(False, 1): 4096, (False, 2): 2048, (False, 4): 1024},
    **{(True, size): 128 for size in (1, 2, 4)},
    (True, 8): 64,
}
EFFICIENCY = {"wgmma": 1.0, "mma": 0.6, FMA: 0.75}
SCATTERED = 2  # times as long, where threads store their sums by themselves

"""Plans for a matrix product on a GPU, ranked by a model of time.  INDEXED -> list of Opts.

The model knows what bounds a block: multiplications of an SM in a clock, bytes that reach it from
L2, bytes that tensor cores read from shared memory, and how many rounds of blocks the SMs take; and
the time that memory needs for everything once.  Figures behind the numbers here: note 0015.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from uopc.choose.facts import KernelFacts
from uopc.choose.sizes import Aim
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.layouts import ATOMS, K_MAJOR, MN_MAJOR
from uopc.opts import Opts
from uopc.passes.find_products import Product, find_product
from uopc.passes.operands import Lies, folded_map, is_view, lies, neighbours, padded
from uopc.plan import BULK, CP_ASYNC, FMA, NEIGHBOURS, REGISTERS, Plan
from uopc.symbolic import index as ix
from uopc.target import Target
from uopc.uop.node import UOp, toposort
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
LINE_BYTES, WIDEST_BYTES = 128, 16


def products(facts: KernelFacts, aim: Aim) -> list[Opts]:
    """Opts with a plan, the best guess first; none where the kernel is no product, or small."""
    try:
        product = find_product(facts.root)
    except UsageError:
        return []
    model = _Model.of(facts, product, aim)
    if math.prod(product.sizes) < model.least:
        return []
    timed = sorted((model.clocks(p), n, p) for n, p in enumerate(model.plans()))
    return [Opts(gpu=True, merge=facts.merge, plan=p) for _, _, p in timed[:MOST]]


@dataclass(frozen=True)
class _Model:
    """A product on a target: its types, and how its operands lie.

    kind: in names of atoms, or FMA.  even: elements that the places of the result's columns are
    multiples of.  bytes: each parameter once.
    """

    target: Target
    product: Product
    sizes: tuple[int, int, int, int]
    kind: str
    itemsize: int
    a: Lies
    b: Lies
    result: DType
    even: int
    bytes: int

    @classmethod
    def of(cls, facts: KernelFacts, product: Product, aim: Aim) -> _Model:
        a, b = narrowest(product.a), narrowest(product.b)
        kind = _kind(product, a.dtype, b.dtype, aim)
        if kind == FMA:
            a, b = product.a, product.b
        store = next(u for u in facts.root.src[0].src if u.op is Ops.STORE)
        offset, along = store.src[0].src[1], product.n[-1]
        even = next((n for n in (8, 4, 2) if ix.divides(n, neighbours(offset, along, n)[0])), 1)
        return cls(
            *(aim.target, product, product.sizes, kind, a.dtype.itemsize),
            *(lies(product, a, product.m), lies(product, b, product.n)),
            store.src[1].dtype,
            even,
            _touched(facts),
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
            return
        found = [*self._by_wgmma()] if self.target.name == "sm_90a" else []
        yield from found or self._by_mma()

    def _is_box(self, x: Lies) -> bool:
        """Can tensor copies bring an operand as it lies?"""
        return x.strides is not None and x.takes(16, self.itemsize)

    @property
    def _copies(self) -> str:
        """How tiles come without tensor copies (PTX ISA, cp.async: sm_80 and later)."""
        return CP_ASYNC if self.target.sm >= 80 else REGISTERS

    def _by_wgmma(self) -> Iterator[Plan]:
        k = LINE_BYTES // self.itemsize
        atom = f"wgmma.m64n{{}}k{k // 4}.{self.kind}"
        for swap in (False, True):
            a, b = (self.b, self.a) if swap else (self.a, self.b)
            fits = {"a": self._is_box(a), "b": self._is_box(b)}
            suffix = ""
            if self.itemsize != 2:  # tensor cores read them along k; registers take either
                fits["b"] &= b.major == K_MAJOR
                if self.itemsize == 4 and a.major == MN_MAJOR:
                    suffix = ".registers"
                else:
                    fits["a"] &= a.major == K_MAJOR
            rest = tuple([name for name, fit in fits.items() if not fit])
            bulk = self.result.itemsize == 2 and not swap and self.even == 8
            store = BULK if bulk else REGISTERS
            for rows, columns, groups in GROUP_TILES:
                name = atom.format(columns) + suffix
                tile = dict(atom=name, block_m=rows, block_n=columns, warps_m=groups, warps_n=1)
                thin = b.major == MN_MAJOR and columns * self.itemsize < LEAST_LINE_BYTES
                if name not in ATOMS or thin:
                    continue
                for deep in (k, 2 * k) if rows * columns <= SMALL_TILE else (k,):
                    how = dict(block_k=deep, copy=BULK, store=store, swap=swap, written=rest)
                    yield from self._rings(tile, how)
                if "a" in rest and not swap and (boxed := self._boxes_of_rows(rows)):
                    how = dict(block_k=k, copy=BULK, store=store, written=rest[1:], rows=boxed)
                    yield from self._rings(tile, how)
                if rest and self.itemsize == 2 and a.takes(16, 2) and b.takes(16, 2):
                    yield from self._rings(tile, dict(block_k=k, copy=CP_ASYNC, swap=swap))

    def _boxes_of_rows(self, count: int) -> tuple[int, ...]:
        """Rows of a tile along each axis of m such that tensor copies bring a; () where they
        cannot.  Those with the fewest rows outside of the axes, then the longest inside."""
        sizes = [r.arg.size for r in self.product.m]
        if len(sizes) < 2 or self.product.k[-1].arg.size * self.itemsize % LINE_BYTES:
            return ()
        ways: list[tuple[int, ...]] = [()]
        for _ in sizes:
            left = [(w, count // math.prod(w)) for w in ways]
            ways = [(*w, n) for w, most in left for n in _divisors(most)]
        whole = [w for w in ways if math.prod(w) == count]
        best = min(whole, key=lambda w: (_padding(sizes, w), [-n for n in reversed(w)]))
        cut = dict(zip(self.product.m, best, strict=True))
        cut |= dict.fromkeys((*self.product.batch, *self.product.k), 1)
        cut[self.product.k[-1]] = LINE_BYTES // self.itemsize
        a = padded(narrowest(self.product.a))
        return best if is_view(a) and folded_map(a, cut, LINE_BYTES) is not None else ()

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
                    dict(warps_m=down, warps_n=across, copy=self._copies),
                )

    def _by_fma(self) -> Iterator[Plan]:
        for rows, columns, k, down, across, deep, lanes in THREAD_TILES:
            tile = dict(block_m=rows, block_n=columns, block_k=k, lanes_m=lanes)
            warps = dict(warps_m=down, warps_n=across, warps_k=deep)
            boxed = self.target.sm >= 90 and self._is_box(self.b)
            yield from self._rings(tile, dict(copy=self._copies, **warps))
            if boxed and deep > 1:
                yield from self._rings(tile, dict(copy=BULK, **warps))

    def _rings(self, tile: dict[str, Any], how: dict[str, Any]) -> Iterator[Plan]:
        """The tile with as many of k in flight as fit, and blocks that suit their number."""
        try:
            one = Plan(**tile, **how, depth=2)
        except UsageError:  # more sums than a thread has registers, say
            return
        room = self.target.shared_optin_bytes - RESERVED_BYTES - self._kept_bytes(one)
        depth = min(room // self._ring_bytes(one), MOST_IN_FLIGHT if one.roles else MOST_TOGETHER)
        if depth < 2:
            return
        tiles = self._tiles(one)
        group = 16 if one.block_n > 128 else 8
        blocks = self.target.sms if one.roles and tiles > self.target.sms else 0
        if not blocks:
            depth = min(depth, max(2, self._steps(one)))
        yield replace(one, depth=depth, group=group, blocks=blocks)
        for splits in SPLITS:
            if tiles * splits <= 2 * self.target.sms and self._steps(one) >= splits * LEAST_STEPS:
                yield replace(one, depth=depth, group=group, splits=splits)

    # ---- the model
    def _padded(self, plan: Plan) -> tuple[int, int]:
        """Tiles of D along both sides."""
        _, m, n, _ = self.sizes
        m, n = (n, m) if plan.swap else (m, n)
        down = -(-m // plan.block_m)
        if plan.rows:
            each = (r.arg.size for r in self.product.m)
            down = math.prod(-(-size // rows) for size, rows in zip(each, plan.rows, strict=True))
        return down, -(-n // plan.block_n)

    def _tiles(self, plan: Plan) -> int:
        return self.sizes[0] * math.prod(self._padded(plan))

    def _steps(self, plan: Plan) -> int:
        """Tiles of k."""
        return -(-self.sizes[3] // plan.block_k)

    def _step_bytes(self, plan: Plan) -> int:
        return (plan.block_m + plan.block_n) * plan.block_k * self.itemsize

    def _ring_bytes(self, plan: Plan) -> int:
        """Of a tile of k in shared memory, with pads."""
        return self._step_bytes(plan) + 2 * WIDEST_BYTES * plan.block_k * (plan.atom == FMA)

    def _kept_bytes(self, plan: Plan) -> int:
        """Of shared memory beside the ring: chunks of D, and sums of slices of k."""
        slices = (plan.warps_k - 1) * plan.block_m * plan.block_n * max(4, self.itemsize)
        return slices + STORED_BYTES * plan.groups * (plan.store == BULK)

    def clocks(self, plan: Plan) -> float:
        """What the kernel takes, without its launch."""
        rate = PER_CLOCK[plan.atom == FMA, self.itemsize] * EFFICIENCY[_engine(plan)]
        products = plan.block_m * plan.block_n * plan.block_k
        atoms = plan.block_m // 64 * (64 + plan.block_n) if plan.atom.startswith("wgmma") else 0
        waiting: float = STEP_CLOCKS
        if plan.atom.endswith(".registers"):  # the longer others multiply, the less of it shows
            waiting = max(waiting, OWN_READS_CLOCKS - products / rate / 8)
        step = waiting + max(
            products / rate,
            self._step_bytes(plan) / L2_BYTES_PER_CLOCK,
            atoms * plan.block_k * self.itemsize / SHARED_BYTES_PER_CLOCK,
        )
        steps = -(-self._steps(plan) // plan.splits)
        rounds = -(-self._tiles(plan) * plan.splits // self.target.sms)
        out = plan.block_m * plan.block_n * self.result.itemsize / STORED_BYTES_PER_CLOCK
        each = steps * step + TILE_CLOCKS + out * self._scattered(plan)
        if not plan.blocks:
            each += START_CLOCKS
        fold = FOLD_CLOCKS if plan.splits > 1 else 0
        again = self._tiles(plan) * self._steps(plan) * self._step_bytes(plan) - self.bytes
        memory = self.bytes / MEMORY_BYTES_PER_CLOCK + max(0, again) / CACHED_BYTES_PER_CLOCK
        return max(rounds * each, memory) + START_CLOCKS + fold + self._writing(plan)

    def _scattered(self, plan: Plan) -> float:
        """How much longer stores take than whole lines would."""
        if plan.store == BULK:
            return 1
        if plan.atom == FMA:
            return 1 if self.even >= NEIGHBOURS else NEIGHBOURS
        if plan.swap or self.even > 1:
            return 4 / self.result.itemsize
        return 24 / self.result.itemsize

    def _writing(self, plan: Plan) -> float:
        """Clocks of writing operands first."""
        batch, m, n, k = self.sizes
        rows = dict(zip("ab", (n, m) if plan.swap else (m, n), strict=True))
        moved = sum(2 * batch * rows[name] * k * self.itemsize for name in plan.written)
        return len(plan.written) * LAUNCH_CLOCKS + moved / MOVED_BYTES_PER_CLOCK


def _touched(facts: KernelFacts) -> int:
    """Bytes of parameters that the kernel moves if it moves each once."""
    whole = {
        u.arg.slot: math.prod(u.arg.shape) * u.dtype.itemsize
        for u in toposort(facts.root)
        if u.op is Ops.BUFFER
    }
    most: dict[int, int] = {}
    for x in facts.accesses:
        most[x.slot] = min(whole[x.slot], max(x.size_bytes, most.get(x.slot, 0)))
    return sum(most.values())


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _padding(sizes: Sequence[int], rows: Sequence[int]) -> float:
    """How many rows tiles have for each that there is."""
    each = (-(-n // r) * r / n for n, r in zip(sizes, rows, strict=True))
    return math.prod(each)


def narrowest(operand: UOp) -> UOp:
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
    """What the part of the peak depends on that a plan reaches."""
    kind = plan.atom.partition(".")[0]
    return plan.copy if kind == "wgmma" else kind


#: (rows, columns, warpgroups) of wgmma; (rows, columns, warps down and across) of mma.sync
GROUP_TILES = (
    *((128, 256, 2), (256, 128, 2), (128, 192, 2), (192, 128, 3), (128, 128, 2), (128, 64, 2)),
    *((64, 256, 1), (64, 128, 1), (64, 64, 1), (64, 32, 1), (64, 16, 1), (64, 8, 1), (128, 16, 2)),
)
WARP_TILES = (
    *((128, 256, 2, 4), (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2)),
    *((32, 64, 1, 2), (32, 32, 2, 1), (16, 64, 1, 4), (16, 32, 1, 2), (16, 16, 1, 2)),
)
#: (rows, columns, k, warps down, across and along k, lanes down) of FMA
THREAD_TILES = (
    *((128, 256, 16, 2, 4, 1, 8), (128, 128, 16, 2, 4, 1, 4), (64, 64, 16, 2, 2, 1, 4)),
    *((128, 64, 32, 2, 1, 4, 8), (32, 64, 64, 1, 1, 8, 4), (16, 128, 32, 1, 4, 1, 4)),
)
MOST_IN_FLIGHT, MOST_TOGETHER = 16, 5
SPLITS = (2, 4, 8)
LEAST_STEPS = 4  # of a part
SMALL_TILE = 128 * 64
LEAST_LINE_BYTES = 32  # of a swizzled line: thinner tiles cannot lie as they come
#: of waiting for a tile of k, of that and reading an operand to registers, and of what a tile of D
#: takes apart from its multiplications
STEP_CLOCKS, OWN_READS_CLOCKS, TILE_CLOCKS = 80, 240, 400
STORED_BYTES = 2 * 64 * LINE_BYTES  # chunks of D of a group
#: multiplications of an SM in a clock, by (FMA, bytes of an element)
PER_CLOCK = {
    **{(False, 1): 4096, (False, 2): 2048, (False, 4): 1024},
    **{(True, size): 128 for size in (1, 2, 4)},
    (True, 8): 64,
}
EFFICIENCY = {BULK: 1.0, CP_ASYNC: 0.7, "mma": 0.6, FMA: 0.75}
#: of a kernel more, and what moves in a clock where operands are written first
LAUNCH_CLOCKS, MOVED_BYTES_PER_CLOCK = 2000, 1400

"""Plans for a matrix product on a GPU, the best guess first.  INDEXED -> list of Opts.

Candidates are tiles that are known to be good, with rings as deep as they fit; a model of time
ranks them (`choose/product_time.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from uopc.choose.facts import KernelFacts
from uopc.choose.product_facts import TF32, ProductFacts
from uopc.choose.product_time import Clocks, account, clocks_by_threads
from uopc.choose.sizes import ON_GPU, Aim, merged
from uopc.decision import Because, Guess, Reason, because, kind
from uopc.errors import UsageError
from uopc.layouts import ATOMS, K_MAJOR, MN_MAJOR
from uopc.opts import Opts
from uopc.passes.find_products import find_product
from uopc.passes.operands import Lies, as_type, folded_map, is_view
from uopc.plan import BULK, COLUMNS, CP_ASYNC, FMA, REGISTERS, Plan

#: multiplications below which threads with digits of their own are as good
LEAST_BY_TENSOR_CORES, LEAST_BY_TF32, LEAST_BY_FMA = 1 << 22, 1 << 24, 1 << 26
MOST = 6  # candidates
#: by how much plans may be slower than threads, so much is that estimate off at most
MOST_TIMES_THREADS = 4
RESERVED_BYTES = 1024  # of shared memory: mbarriers, and what the driver keeps
LINE_BYTES, WIDEST_BYTES = 128, 16
LEAST_LINE_BYTES = 32  # of a swizzled line: thinner tiles cannot lie as they come
STORED_BYTES = 2 * 64 * LINE_BYTES  # chunks of D of a group
#: tiles of k in flight at most, with roles and without
MOST_IN_FLIGHT, MOST_TOGETHER = 16, 5
SPLITS = (2, 4, 8)
LEAST_STEPS = 4  # of a part
SMALL_TILE = 64 * 64  # up to here two lines of k at a time are worth a try

# ---- what decides, in words
RANKED = Reason(
    "choose.products.products",
    "batches x m x n x k = {sizes}, plan {rank} of {count}: about {clocks:.0f} clocks, bound by "
    "{bound}; {other}; threads with digits of their own would take about {threads:.0f}",
)
TILE = Reason(
    "choose.products.products",
    "{tiles} tiles of {block_m} x {block_n} on {sms} SMs, each in {steps} steps of {block_k}; "
    "{depth} steps of {step_bytes} bytes are in shared memory at once",
)
ENGINE = Reason("choose.products.plans", "{atom} multiplies {kind}, {copy} brings operands")
WRITTEN = Reason(
    "choose.products.plans",
    "operand {names} does not lie as {copy} can bring it: a kernel before writes it so, about "
    "{writing:.0f} clocks",
)
SHARED_SUM = Reason(
    "choose.products._rings",
    "{tiles} tiles leave SMs idle: {splits} blocks share the sum of each, and the last one adds up",
)


@dataclass(frozen=True)
class Candidate:
    """A plan, and which part of its engine's peak it reaches, 0 for the engine's own."""

    plan: Plan
    efficiency: float = 0.0


@dataclass(frozen=True)
class ThreadTile:
    """A tile of FMA; efficiency: what of the peak it reaches; turning: the same where threads turn
    an operand on its way, 0 where it is not to be tried."""

    plan: Plan
    efficiency: float
    turning: float = 0.0


#: (rows, columns, warpgroups) of wgmma; (rows, columns, warps down and across) of mma.sync
GROUP_TILES = (
    *((128, 256, 2), (256, 128, 2), (128, 192, 2), (192, 128, 3), (128, 128, 2), (128, 64, 2)),
    *((64, 256, 1), (64, 128, 1), (64, 64, 1), (64, 32, 1), (64, 16, 1), (64, 8, 1), (128, 16, 2)),
)
WARP_TILES = (
    *((128, 256, 2, 4), (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2)),
    *((32, 64, 1, 2), (32, 32, 2, 1), (16, 64, 1, 4), (16, 32, 1, 2), (16, 16, 1, 2)),
)
THREAD_TILES = (
    ThreadTile(Plan(FMA, 128, 256, 32, 2, 4, 8, 2, BULK, order=COLUMNS), 0.905),
    ThreadTile(Plan(FMA, 128, 256, 32, 2, 4, 8, 2, BULK), 0.87, 0.875),
    ThreadTile(
        Plan(FMA, 128, 128, 32, 2, 2, 8, 2, BULK, blocks_per_sm=2, order=COLUMNS), 0.92, 0.81
    ),
    ThreadTile(Plan(FMA, 128, 96, 32, 2, 2, 8, 2, BULK, blocks_per_sm=3), 0.9, 0.8),
    ThreadTile(Plan(FMA, 128, 64, 64, 2, 1, 8, 2, BULK, warps_k=4), 0.85, 0.71),
    ThreadTile(Plan(FMA, 128, 256, 16, 2, 4, 8, 2, CP_ASYNC), 0.84),
    ThreadTile(Plan(FMA, 128, 128, 16, 2, 4, 4, 2, CP_ASYNC), 0.78),
    ThreadTile(Plan(FMA, 64, 64, 16, 2, 2, 4, 2, CP_ASYNC), 0.7),
    ThreadTile(Plan(FMA, 128, 64, 32, 2, 1, 8, 2, CP_ASYNC, warps_k=4), 0.7),
    ThreadTile(Plan(FMA, 32, 64, 64, 1, 1, 4, 2, CP_ASYNC, warps_k=8), 0.58),
    ThreadTile(Plan(FMA, 16, 128, 32, 1, 4, 4, 2, CP_ASYNC), 0.4),
)


def products(facts: KernelFacts, aim: Aim) -> list[Guess]:
    """Opts with a plan, the best guess first; none where the kernel is no product, or small, or
    where tiles would be all but empty."""
    try:
        product = find_product(facts.root)
    except UsageError:
        return []
    p = ProductFacts.of(facts, product, aim)
    least = {FMA: LEAST_BY_FMA, TF32: LEAST_BY_TF32}.get(p.kind, LEAST_BY_TENSOR_CORES)
    if math.prod(product.sizes) < least:
        return []
    timed = [(account(p, c.plan, c.efficiency), c.plan) for c in plans(p)]
    timed.sort(key=lambda x: x[0].total)
    threads = clocks_by_threads(p)
    if not timed or timed[0][0].total > MOST_TIMES_THREADS * threads:
        return []  # many tiny products, say, each in a tile that it hardly fills
    return [
        Guess(
            Opts(gpu=True, merge=facts.merge, plan=plan),
            (
                _ranked(p, timed, n, threads),
                *(because("gpu", ON_GPU), merged(facts)),
                *_explained(p, plan, taken),
            ),
        )
        for n, (taken, plan) in enumerate(timed[:MOST])
    ]


def _ranked(
    p: ProductFacts, timed: Sequence[tuple[Clocks, Plan]], n: int, threads: float
) -> Because:
    """Why plan n is tried when it is, beside its neighbour in the ranking."""
    taken, other = timed[n][0], "there is no other"
    if n + 1 < len(timed):
        other = f"next {_named(timed[n + 1][1])} with {timed[n + 1][0].total:.0f}"
    elif n:
        other = f"before it {_named(timed[n - 1][1])} with {timed[n - 1][0].total:.0f}"
    figures = dict(clocks=taken.total, bound=taken.bound, other=other, threads=threads)
    sizes = " x ".join(map(str, p.sizes))
    return kind("product", RANKED, sizes=sizes, rank=n + 1, count=len(timed), **figures)


def _named(plan: Plan) -> str:
    """A plan in a few words."""
    splits = f", {plan.splits} blocks a tile" if plan.splits > 1 else ""
    return f"{plan.atom} {plan.block_m} x {plan.block_n} x {plan.block_k}{splits}"


def _explained(p: ProductFacts, plan: Plan, taken: Clocks) -> Iterator[Because]:
    """What there is to say of a plan's fields."""
    tiles, steps = p.tiles(plan), p.steps(plan)
    sides = dict(block_m=plan.block_m, block_n=plan.block_n, block_k=plan.block_k)
    ring = dict(depth=plan.depth, step_bytes=p.step_bytes(plan))
    yield because("plan", TILE, **sides, **ring, tiles=tiles, sms=p.target.sms, steps=steps)
    types = " and ".join(dict.fromkeys(map(str, p.types)))
    yield because("plan", ENGINE, atom=plan.atom, copy=plan.copy, kind=types)
    if plan.written:
        names = " and ".join(plan.written)
        yield because("plan", WRITTEN, names=names, copy=plan.copy, writing=taken.writing)
    if plan.splits > 1:
        yield because("plan", SHARED_SUM, tiles=tiles, splits=plan.splits)


def plans(p: ProductFacts) -> Iterator[Candidate]:
    """Those that the target and the operands allow."""
    if p.kind == FMA:
        yield from _by_fma(p)
        return
    found = [*_by_wgmma(p)] if p.target.name == "sm_90a" else []
    yield from found or _by_mma(p)


def _copies(p: ProductFacts) -> str:
    """How tiles come without tensor copies (PTX ISA, cp.async: sm_80 and later)."""
    return CP_ASYNC if p.target.sm >= 80 else REGISTERS


def _by_wgmma(p: ProductFacts) -> Iterator[Candidate]:
    k = LINE_BYTES // p.itemsize
    for swap in (False, True):
        a, b = (p.b, p.a) if swap else (p.a, p.b)
        kind = "x".join(reversed(p.kind.split("x"))) if swap else p.kind  # of two types: a's, b's
        atom = f"wgmma.m64n{{}}k{k // 4}.{kind}"
        fits = {"a": p.is_box(a), "b": p.is_box(b)}
        suffix = ""
        if p.itemsize != 2:  # tensor cores read them along k; registers take either
            fits["b"] &= b.major == K_MAJOR
            if p.itemsize == 4 and a.major == MN_MAJOR:
                suffix = ".registers"
            else:
                fits["a"] &= a.major == K_MAJOR
        rest = tuple([name for name, fit in fits.items() if not fit])
        bulk = p.result.itemsize == 2 and not swap and p.even == 8
        store = BULK if bulk else REGISTERS
        small = SMALL_TILE * (2 if suffix else 1)
        for rows, columns, groups in GROUP_TILES:
            name = atom.format(columns) + suffix
            tile = dict(atom=name, block_m=rows, block_n=columns, warps_m=groups, warps_n=1)
            thin = b.major == MN_MAJOR and columns * p.itemsize < LEAST_LINE_BYTES
            if name not in ATOMS or thin:
                continue
            for deep in (k, 2 * k) if rows * columns <= small else (k,):
                how = dict(block_k=deep, copy=BULK, store=store, swap=swap, written=rest)
                yield from _rings(p, tile, how)
            if "a" in rest and not swap and (boxed := _boxes_of_rows(p, rows)):
                how = dict(block_k=k, copy=BULK, store=store, written=rest[1:], rows=boxed)
                yield from _rings(p, tile, how)
            if rest and p.itemsize == 2 and a.takes(16, 2) and b.takes(16, 2):
                yield from _rings(p, tile, dict(block_k=k, copy=CP_ASYNC, swap=swap))


def _boxes_of_rows(p: ProductFacts, count: int) -> tuple[int, ...]:
    """Rows of a tile along each axis of m such that tensor copies bring a; () where they
    cannot.  Those with the fewest rows outside of the axes, then the longest inside."""
    sizes = [r.arg.size for r in p.product.m]
    if len(sizes) < 2 or p.product.k[-1].arg.size * p.itemsize % LINE_BYTES:
        return ()
    ways: list[tuple[int, ...]] = [()]
    for _ in sizes:
        left = [(w, count // math.prod(w)) for w in ways]
        ways = [(*w, n) for w, most in left for n in _divisors(most)]
    whole = [w for w in ways if math.prod(w) == count]
    best = min(whole, key=lambda w: (_padding(sizes, w), [-n for n in reversed(w)]))
    cut = dict(zip(p.product.m, best, strict=True))
    cut |= dict.fromkeys((*p.product.batch, *p.product.k), 1)
    cut[p.product.k[-1]] = LINE_BYTES // p.itemsize
    a = as_type(p.product.a, p.types[0])
    return (
        best if a is not None and is_view(a) and folded_map(a, cut, LINE_BYTES) is not None else ()
    )


def _by_mma(p: ProductFacts) -> Iterator[Candidate]:
    alike = [
        a
        for a in ATOMS.values()
        if a.engine == "mma.sync" and a.name.split(".")[2:] == [p.kind] and a.runs_on(p.target.name)
    ]
    if not alike:
        return
    atom = max(alike, key=lambda a: a.k)
    for rows, columns, down, across in WARP_TILES:
        for row_bytes in (64, LINE_BYTES):
            k = row_bytes // p.itemsize
            yield from _rings(
                p,
                dict(atom=atom.name, block_m=rows, block_n=columns, block_k=k),
                dict(warps_m=down, warps_n=across, copy=_copies(p)),
            )


def _by_fma(p: ProductFacts) -> Iterator[Candidate]:
    boxes = p.target.sm >= 90 and p.itemsize == 4
    for tile in THREAD_TILES:
        given = asdict(tile.plan)
        given.pop("depth")
        if tile.plan.copy != BULK:
            yield from _rings(p, given, {"copy": _copies(p)}, tile.efficiency)
        elif boxes:
            apart = [n for n, x in (("a", p.a), ("b", p.b)) if not _lies_as_read(p, x)]
            may_turn = all(_lies_as_read(p, x) or x.major == K_MAJOR for x in (p.a, p.b))
            if apart and may_turn and tile.turning:
                yield from _rings(p, given, {}, tile.turning)
            yield from _rings(p, given, {"written": tuple(apart)}, tile.efficiency)


def _lies_as_read(p: ProductFacts, x: Lies) -> bool:
    """Can tensor copies bring lines of rows, as FMA reads them?"""
    return p.is_box(x) and x.major == MN_MAJOR


def _rings(
    p: ProductFacts, tile: dict[str, Any], how: dict[str, Any], efficiency: float = 0.0
) -> Iterator[Candidate]:
    """The tile with as many of k in flight as fit, and blocks that suit their number."""
    try:
        one = Plan(**{**tile, **how, "depth": 2})
    except UsageError:  # more sums than a thread has registers, say
        return
    tiles = p.tiles(one)
    group = 16 if one.block_n > 128 and one.roles else 8
    blocks = p.target.sms if one.roles and tiles > p.target.sms else 0
    room = (p.target.shared_optin_bytes - RESERVED_BYTES) // max(1, one.blocks_per_sm)
    most = MOST_IN_FLIGHT if one.roles else MOST_TOGETHER
    if not blocks:  # else tiles of k of the next tile of D follow
        most = min(most, max(2, p.steps(one)))
    rings = (n for n in range(most, 1, -1) if _shared_bytes(p, one, n) <= room)
    depth = next(rings, 0)
    if not depth:
        return
    yield Candidate(replace(one, depth=depth, group=group, blocks=blocks), efficiency)
    for splits in SPLITS:
        if tiles * splits <= 2 * p.target.sms and p.steps(one) >= splits * LEAST_STEPS:
            yield Candidate(replace(one, depth=depth, group=group, splits=splits), efficiency)


def _shared_bytes(p: ProductFacts, plan: Plan, depth: int) -> int:
    """Of shared memory with so many tiles of k: the ring, with pads; chunks of D; and sums of
    slices of k, which lie in the ring where one operand has room (`passes/pipeline/slices.py`)."""
    pads = 2 * WIDEST_BYTES * plan.block_k * (plan.copy != BULK)
    ring = depth * (p.step_bytes(plan) + pads)
    longer = depth * max(plan.block) * plan.block_k * p.itemsize
    slices = (plan.warps_k - 1) * plan.block_m * plan.block_n * max(4, p.itemsize)
    stored = STORED_BYTES * plan.groups * (plan.store == BULK)
    return ring + stored + (slices if slices > longer else 0)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _padding(sizes: Sequence[int], rows: Sequence[int]) -> float:
    """How many rows tiles have for each that there is."""
    each = (-(-n // r) * r / n for n, r in zip(sizes, rows, strict=True))
    return math.prod(each)

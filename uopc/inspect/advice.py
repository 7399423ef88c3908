"""Warnings about what is clearly wrong with a launch, and the change of Opts that would mend it.

A change is what these numbers suggest; `uopc inspect` tries it and says what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from uopc.inspect.gpus import GPU
from uopc.inspect.records import AccessReport, Advice, ResourceReport
from uopc.inspect.requests import SECTOR_BYTES, WARP
from uopc.inspect.sites import Site, sites
from uopc.kernel import ProgramTree
from uopc.opts import Opts
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import toposort
from uopc.uop.ops import AxisType, Ops

#: the kind of warning that there are fewer blocks than SMs
FEW_BLOCKS = "few blocks"
#: sectors for each that would do, from where on an access is uncoalesced; the same of wavefronts
UNCOALESCED, CONFLICTED = 1.5, 1.5
#: an access with a smaller part of a launch's traffic is not worth a word
WORTH_A_WORD = 0.05
#: sectors of a request more than would do, from where on it counts
MORE_SECTORS = 3
#: threads of a block at most (CUDA Programming Guide)
MOST_THREADS = 1024
#: blocks for each SM below which they are few
BLOCKS_PER_SM = 0.75
#: threads of a block that a warning suggests, and bytes below which few blocks are as good
GOOD_BLOCK, SMALL_BYTES = 128, 1 << 20
#: copies of a thread that are sure not to spill
MOST_COPIES = 128
#: reads along a stored axis, for each along a reduced one, below which lanes reduce together
HARDLY_ANY = 0.25
#: a tile that is turned: its lanes, and its copies of the axis that they do not walk
TILE_LANES, TILE_COPIES = 8, 4
PAD = "pad the rows of the tile by one bank, such as 33 elements of 4 bytes for 32"
#: what mends a kernel that was written as loop IR, whose choices are made, by kind of warning
_BY_HAND = {
    "uncoalesced": "let neighbouring lanes go to neighbouring elements",
    "bank conflicts": PAD,
    "spills": "smaller REG memories, or shorter UPCAST ranges",
    "sub-warp block": "LOCAL ranges of 32 threads or more",
    FEW_BLOCKS: "more of the work in GLOBAL ranges",
}


def advice(
    opts: Opts,
    program: ProgramTree,
    accesses: Sequence[AccessReport],
    used: ResourceReport,
    gpu: GPU,
    by_hand: bool = False,
) -> tuple[Advice, ...]:
    """What is clearly wrong, the worst first.  by_hand: it is loop IR, which has no Opts."""
    found = [
        *_spills(opts, used),
        *_uncoalesced(opts, program, accesses),
        *_conflicts(opts, accesses),
        *_small_block(opts, program),
        *_few_blocks(opts, program, accesses, gpu),
    ]
    if by_hand:
        return tuple(replace(a, mend=_BY_HAND[a.kind], opts=None) for a in found)
    return tuple(found)


# ---- memory
def _uncoalesced(
    opts: Opts, program: ProgramTree, accesses: Sequence[AccessReport]
) -> Iterator[Advice]:
    moved = sum(a.sectors for a in accesses)
    pairs = zip(accesses, sites(program), strict=True)
    walked = [(a, s) for a, s in pairs if a.sectors and a.op != "BULK"]
    bad = [
        (a, s)
        for a, s in walked
        if a.sectors >= UNCOALESCED * a.least_sectors
        and a.sectors - a.least_sectors >= MORE_SECTORS * a.requests
        and a.sectors >= WORTH_A_WORD * moved
    ]
    bad.sort(key=lambda pair: pair[0].least_sectors - pair[0].sectors)
    for a, site in bad:
        text = (
            f"{a.op} of {a.memory} (line {a.line}) moves {a.sectors_per_request:.1f} sectors a "
            f"request, {a.least_per_request:.1f} would do: {a.pattern}"
        )
        mend, better = _coalescing(opts, program, site, walked)
        yield Advice("uncoalesced", text, mend, a.number, better)


def _coalescing(
    opts: Opts, program: ProgramTree, site: Site, every: Sequence[tuple[AccessReport, Site]]
) -> tuple[str, Opts | None]:
    """What would make one access coalesced: lanes along the axis that most traffic follows; tiles
    where this access follows another one; or no vector where it only spreads lanes."""
    if opts.plan is not None:
        return "choose another way of copying: Plan.copy, Plan.store", None
    x, stored = _lane_axis(program), _stored_axes(program)
    wanted = _contiguous_axis(site)
    vectors = dict(opts.vector)
    if x is not None and wanted in (x, None) and _spread_by_vector(site, x):
        copies = {**dict(opts.upcast), x: dict(opts.upcast).get(x, 1) * vectors.pop(x)}
        better = _with(opts, vector=vectors, upcast=copies)
        return f"neighbouring lanes closer: Opts.vector={vectors}, upcast={copies}", better
    if wanted is None:
        return "no axis walks this memory in order: copy the view first", None
    if wanted == x:
        return "lanes walk its axis already: the view itself leaves gaps; copy it first", None
    if x in stored and wanted not in stored and _reads_follow(wanted, stored, every):
        better = _reducing_together(opts, program, wanted)
        sizes = dict(better.local)
        return f"lanes that reduce together: Opts.lanes={better.lanes}, local={sizes}", better
    votes: dict[int, int] = {}
    for a, s in every:
        if (axis := _contiguous_axis(s)) is not None and axis in stored:
            votes[axis] = votes.get(axis, 0) + a.least_sectors
    best = max(votes, key=lambda axis: (votes[axis], axis == x), default=wanted)
    if best != x and best in stored:
        sizes = _exchanged(dict(opts.local), best, x, reduces=x not in stored)
        better = _with(opts, local=sizes, lanes=_first(opts, best, sizes))
        return f"lanes along axis {best}: Opts.lanes={better.lanes}, local={sizes}", better
    if x is not None and not opts.turn and stored >= {x, wanted} and not _reduces(program):
        better = _turned(opts, wanted, x)
        return f"tiles in shared memory: Opts.turn={dict(better.turn)}", better
    return f"it follows axis {wanted}, lanes follow axis {x}: stage it in shared memory", None


def _reduces(program: ProgramTree) -> bool:
    """Does it sum, or the like, along an axis: in a thread, or by lanes together?"""
    return any(
        u.op is Ops.SHUFFLE or (u.op is Ops.RANGE and u.arg.kind is AxisType.REDUCE)
        for u in toposort(program.sink)
    )


def _reads_follow(
    reduced: int, stored: set[int], every: Sequence[tuple[AccessReport, Site]]
) -> bool:
    """Do nearly all reads follow a reduced axis?"""
    along = others = 0
    for a, s in every:
        axis = None if s.store else _contiguous_axis(s)
        along += a.least_sectors * (axis == reduced)
        others += a.least_sectors * (axis in stored)
    return others < HARDLY_ANY * along


def _reducing_together(opts: Opts, program: ProgramTree, axis: int) -> Opts:
    """A warp along a reduced axis, and as many threads as before, a warp at least."""
    local = {a: n for a, n in opts.local if n > 1 and a != axis}
    rest = max(1, program.launch.threads // WARP)
    for a in local:
        local[a] = min(local[a], rest)
        rest = max(1, rest // local[a])
    sizes = {a: n for a, n in sorted({**local, axis: WARP}.items()) if n > 1}
    return _with(opts, local=sizes, lanes=_first(opts, axis, sizes))


def _turned(opts: Opts, axis: int, x: int) -> Opts:
    """Square tiles of a warp along x and another axis, which change places in shared memory."""
    sizes = {axis: TILE_LANES, x: WARP}
    copies = {**{a: n for a, n in opts.upcast if a not in sizes}, axis: TILE_COPIES}
    vectors = {a: n for a, n in opts.vector if a not in sizes}
    lanes = (x, axis)
    return _with(opts, local=sizes, upcast=copies, vector=vectors, turn={axis: 1}, lanes=lanes)


def _spread_by_vector(site: Site, x: int) -> bool:
    """Does a thread walk several elements of the lanes' axis one by one, where those of its
    neighbour would share sectors with them?"""
    steps = [
        abs(ix.coefficient(site.offset, r) or 0) * site.element.dtype.itemsize
        for r in free(site.offset)
        if r.op is Ops.RANGE and r.arg.axis == x and r.arg.digit == "v"
    ]
    return any(0 < step < SECTOR_BYTES for step in steps)


def _exchanged(local: dict[int, int], axis: int, x: int | None, reduces: bool) -> dict[int, int]:
    """Lanes of two axes, a warp of them along the first.  reduces: those of the other one sum
    together, and stay as many as a block has room for."""
    across = local.get(axis, 1)
    along = local.get(x, 1) if x is not None else 1
    sizes = {**local, axis: WARP if reduces else max(along, min(WARP, max(WARP, across)))}
    if x is not None:
        rest = math.prod(n for a, n in sizes.items() if a not in (axis, x))
        room = MOST_THREADS // (sizes[axis] * rest)
        sizes[x] = max(1, min(max(along, across) if reduces else across, room))
    return {a: n for a, n in sorted(sizes.items()) if n > 1}


def _stored_axes(program: ProgramTree) -> set[int]:
    """Axes that a store to global memory moves along."""
    return {
        int(r.arg.axis)
        for s in sites(program)
        if s.store and s.op == "STORE" and s.memory.op is Ops.BUFFER
        for r in free(s.offset)
        if r.op is Ops.RANGE
    }


def _first(opts: Opts, axis: int, sizes: dict[int, int]) -> tuple[int, ...]:
    """The order of threadIdx with one axis first."""
    known = (*opts.lanes, *(a for a in sorted(sizes, reverse=True) if a not in opts.lanes))
    return (axis, *(a for a in known if a != axis and a in sizes))


def _with(opts: Opts, **changes: object) -> Opts:
    return replace(opts, **changes)  # type: ignore[arg-type]  # names of its own fields


def _contiguous_axis(site: Site) -> int | None:
    """The axis that walks an access in order."""
    offset = site.offset
    width = site.width_bytes // site.element.dtype.itemsize
    for r in sorted(free(offset), key=lambda r: r.arg.size if r.op is Ops.RANGE else 0):
        if r.op is Ops.RANGE and abs(ix.coefficient(offset, r) or 0) == width:
            return int(r.arg.axis)
    return None


def _lane_axis(program: ProgramTree) -> int | None:
    """The axis that neighbouring lanes walk."""
    lanes = [a for a in program.launch.block_axes if a.range.arg.kind is AxisType.LOCAL]
    lanes = [a for a in lanes if a.range.arg.size > 1]
    first = min(lanes, key=lambda a: (a.dim, a.stride), default=None)
    return None if first is None else int(first.range.arg.axis)


def _conflicts(opts: Opts, accesses: Sequence[AccessReport]) -> Iterator[Advice]:
    moved = sum(a.wavefronts for a in accesses)
    bad = [
        a
        for a in accesses
        if a.wavefronts >= CONFLICTED * a.least_wavefronts
        and a.wavefronts >= WORTH_A_WORD * moved
        and a.wavefronts
    ]
    for a in sorted(bad, key=lambda a: -a.conflicts):
        text = (
            f"{a.op} of {a.memory} (line {a.line}) takes {a.conflict_degree:.1f} wavefronts for "
            f"each that would do: {a.pattern}"
        )
        mend = f"another Opts.turn than {dict(opts.turn)}" if opts.turn else PAD
        yield Advice("bank conflicts", text, mend, a.number)


# ---- the launch
def _spills(opts: Opts, used: ResourceReport) -> Iterator[Advice]:
    if not used.spill_bytes:
        return
    text = f"{used.spill_bytes} bytes of spills a thread: registers go to memory and back"
    if opts.blocks_per_sm > 1:
        better = _with(opts, blocks_per_sm=opts.blocks_per_sm // 2)
        yield Advice("spills", text, f"Opts.blocks_per_sm={better.blocks_per_sm}", -1, better)
    elif any(n > 1 for _, n in opts.upcast):
        fewer = _fewer_copies(opts)
        better = _with(opts, upcast=fewer)
        yield Advice("spills", text, f"fewer copies: Opts.upcast={fewer}", -1, better)
    else:
        yield Advice("spills", text, "a smaller tile: lower Opts.vector, or Plan.block_m, block_n")


def _fewer_copies(opts: Opts) -> dict[int, int]:
    """The largest numbers of copies halved: once, and until a thread has few."""
    copies = dict(opts.upcast)
    vectors = math.prod(n for _, n in opts.vector)
    while True:
        most = max(copies, key=lambda axis: copies[axis])
        copies[most] //= 2
        if max(copies.values()) == 1 or math.prod(copies.values()) * vectors <= MOST_COPIES:
            return {axis: n for axis, n in copies.items() if n > 1}


def _small_block(opts: Opts, program: ProgramTree) -> Iterator[Advice]:
    threads, blocks = program.launch.threads, math.prod(program.launch.grid)
    if threads >= WARP or threads * blocks < WARP:
        return
    text = f"blocks of {threads} threads: {WARP - threads} of 32 lanes idle in every warp"
    grid = [a.range for a in program.launch.grid_axes if a.range.arg.digit == "g"]
    best = max(grid, key=lambda r: r.arg.size, default=None)
    if best is None or opts.plan is not None:
        yield Advice("sub-warp block", text, "more threads: Opts.local")
        return
    axis, local = int(best.arg.axis), dict(opts.local)
    others = threads // local.get(axis, 1)
    sizes = dict(sorted({**local, axis: max(1, GOOD_BLOCK // others)}.items()))
    better = _with(opts, local=sizes)
    yield Advice("sub-warp block", text, f"Opts.local={sizes}", -1, better)


def _few_blocks(
    opts: Opts, program: ProgramTree, accesses: Sequence[AccessReport], gpu: GPU
) -> Iterator[Advice]:
    blocks = math.prod(program.launch.grid)
    moved = sum(a.wanted_bytes for a in accesses if a.space == "global")
    if blocks >= BLOCKS_PER_SM * gpu.sms or moved < SMALL_BYTES:
        return
    text = f"{blocks} block{'s' * (blocks != 1)} for {gpu.sms} SMs of {gpu.name}"
    mend, better = _spread(opts, program, blocks, gpu)
    yield Advice(FEW_BLOCKS, text, mend, -1, better)


def _spread(opts: Opts, program: ProgramTree, blocks: int, gpu: GPU) -> tuple[str, Opts | None]:
    """What would give more blocks: shorter loops, fewer copies, fewer threads, or parts of a
    reduction."""
    if opts.plan is not None:
        plan = replace(opts.plan, splits=2 * opts.plan.splits)
        return f"Plan.splits={plan.splits}", _with(opts, plan=plan)
    stored = _stored_axes(program)
    grid = {int(a.range.arg.axis) for a in program.launch.grid_axes if a.range.arg.digit == "g"}
    grid |= {axis for axis, n in opts.loop if n > 1}
    threads = program.launch.threads
    for name in ("loop", "upcast", "local"):
        wide = [(axis, n) for axis, n in getattr(opts, name) if n > 1 and axis in grid & stored]
        if not wide or (name == "local" and threads <= WARP):
            continue
        axis, n = max(wide, key=lambda p: p[1])
        least = WARP * n // threads if name == "local" else 1
        fewer = {**dict(getattr(opts, name)), axis: _halved(n, least, blocks, gpu.sms)}
        fewer = {a: n for a, n in fewer.items() if n > 1}
        return f"Opts.{name}={fewer}", _with(opts, **{name: fewer})
    loops = [r for s in sites(program) for r in s.loops if r.arg.digit == "k"]
    loops = [r for r in loops if int(r.arg.axis) not in stored]
    if loops:
        axis = int(max(loops, key=lambda r: r.arg.size).arg.axis)
        parts = {**dict(opts.blocks), axis: -(-gpu.sms // blocks)}
        return f"split the reduction: Opts.blocks={parts}", _with(opts, blocks=parts)
    return "there is no more to spread: run it beside other kernels", None


def _halved(n: int, least: int, blocks: int, wanted: int) -> int:
    """A number of turns, copies or threads halved until there are enough blocks; `least` at
    least."""
    while blocks < wanted and n // 2 >= max(1, least):
        n, blocks = n // 2, 2 * blocks
    return n

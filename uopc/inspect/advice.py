"""Warnings about what is clearly wrong with a launch, and the change of Opts that would mend it.

A change is what these numbers suggest; `uopc inspect` tries it and says what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from uopc.inspect.gpus import GPU
from uopc.inspect.records import AccessReport, Advice, ResourceReport
from uopc.inspect.sites import Site, sites
from uopc.kernel import ProgramTree
from uopc.opts import Opts
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.ops import AxisType, Ops

#: the kind of warning that there are fewer blocks than SMs
FEW_BLOCKS = "few blocks"
WARP, SECTOR_BYTES = 32, 32
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


def advice(
    opts: Opts,
    program: ProgramTree,
    accesses: Sequence[AccessReport],
    used: ResourceReport,
    gpu: GPU,
) -> tuple[Advice, ...]:
    """What is clearly wrong, the worst first."""
    found = [
        *_spills(opts, used),
        *_uncoalesced(opts, program, accesses),
        *_conflicts(opts, accesses),
        *_small_block(opts, program),
        *_few_blocks(opts, program, accesses, gpu),
    ]
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
    votes: dict[int, int] = {}
    for a, s in every:
        if (axis := _contiguous_axis(s)) is not None and axis in stored:
            votes[axis] = votes.get(axis, 0) + a.least_sectors
    best = max(votes, key=lambda axis: (votes[axis], axis == x), default=wanted)
    if best != x and best in stored:
        sizes = _exchanged(dict(opts.local), best, x)
        better = _with(opts, local=sizes, lanes=_first(opts, best, sizes))
        return f"lanes along axis {best}: Opts.lanes={better.lanes}, local={sizes}", better
    if wanted in stored and x is not None and not opts.turn and stored >= {x, wanted}:
        local = dict(opts.local)
        sizes = {**local, wanted: max(local.get(wanted, 1), 8), x: max(local.get(x, 1), WARP)}
        copies = {**dict(opts.upcast), wanted: max(1, WARP // sizes[wanted])}
        lanes = _first(opts, x, sizes)
        better = _with(opts, local=sizes, upcast=copies, turn={wanted: 1}, lanes=lanes)
        return f"tiles in shared memory: Opts.turn={{{wanted}: 1}}", better
    return f"it follows axis {wanted}, lanes follow axis {x}: stage it in shared memory", None


def _spread_by_vector(site: Site, x: int) -> bool:
    """Does a thread walk several elements of the lanes' axis one by one, where those of its
    neighbour would share sectors with them?"""
    steps = [
        abs(ix.coefficient(site.offset, r) or 0) * site.element.dtype.itemsize
        for r in free(site.offset)
        if r.op is Ops.RANGE and r.arg.axis == x and r.arg.digit == "v"
    ]
    return any(0 < step < SECTOR_BYTES for step in steps)


def _exchanged(local: dict[int, int], axis: int, x: int | None) -> dict[int, int]:
    """Lanes of two axes, a warp of them along the first."""
    across = local.get(axis, 1)
    along = local.get(x, 1) if x is not None else 1
    sizes = {**local, axis: max(along, min(WARP, max(WARP, across)))}
    if x is not None:
        rest = math.prod(n for a, n in sizes.items() if a not in (axis, x))
        sizes[x] = max(1, min(across, MOST_THREADS // (sizes[axis] * rest)))
    return {a: n for a, n in sizes.items() if n > 1}


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
        pad = "pad the rows of the tile by one bank, such as 33 elements of 4 bytes for 32"
        mend = f"another Opts.turn than {dict(opts.turn)}" if opts.turn else pad
        yield Advice("bank conflicts", text, mend, a.number)


# ---- the launch
def _spills(opts: Opts, used: ResourceReport) -> Iterator[Advice]:
    if not used.spill_bytes:
        return
    text = f"{used.spill_bytes} bytes of spills a thread: registers go to memory and back"
    if opts.blocks_per_sm > 1:
        better = _with(opts, blocks_per_sm=opts.blocks_per_sm // 2)
        yield Advice("spills", text, f"Opts.blocks_per_sm={better.blocks_per_sm}", -1, better)
    elif opts.upcast and (most := max(opts.upcast, key=lambda p: p[1]))[1] > 1:
        fewer = {**dict(opts.upcast), most[0]: most[1] // 2}
        better = _with(opts, upcast=fewer)
        yield Advice("spills", text, f"fewer copies: Opts.upcast={fewer}", -1, better)
    else:
        yield Advice("spills", text, "a smaller tile: lower Opts.vector, or Plan.block_m, block_n")


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
    sizes = {**local, axis: local.get(axis, 1) * (GOOD_BLOCK // threads)}
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
    if opts.plan is not None:
        better = _with(opts, plan=replace(opts.plan, splits=2 * opts.plan.splits))
        yield Advice(FEW_BLOCKS, text, f"Plan.splits={better.plan and better.plan.splits}", -1)
        return
    grid = {int(a.range.arg.axis) for a in program.launch.grid_axes if a.range.arg.digit == "g"}
    wide = [(axis, n) for axis, n in opts.upcast if n > 1 and axis in grid]
    if wide:
        axis, n = max(wide, key=lambda p: p[1])
        fewer = {**dict(opts.upcast), axis: max(1, n * blocks // gpu.sms)}
        yield Advice(FEW_BLOCKS, text, f"Opts.upcast={fewer}", -1, _with(opts, upcast=fewer))
        return
    lanes = [(axis, n) for axis, n in opts.local if n > 1 and axis in grid]
    if lanes and program.launch.threads > WARP:
        axis, n = max(lanes, key=lambda p: p[1])
        least = WARP * n // program.launch.threads
        fewer = {**dict(opts.local), axis: max(1, least, n * blocks // gpu.sms)}
        yield Advice(FEW_BLOCKS, text, f"Opts.local={fewer}", -1, _with(opts, local=fewer))
        return
    loops = [r for s in sites(program) for r in s.loops if r.arg.digit == "k"]
    loops = [r for r in loops if int(r.arg.axis) not in _stored_axes(program)]
    if loops:
        axis = int(max(loops, key=lambda r: r.arg.size).arg.axis)
        parts = {**dict(opts.blocks), axis: -(-gpu.sms // blocks)}
        better = _with(opts, blocks=parts)
        yield Advice(FEW_BLOCKS, text, f"split the reduction: Opts.blocks={parts}", -1, better)
        return
    yield Advice(FEW_BLOCKS, text, "there is no more to spread: run it beside other kernels")

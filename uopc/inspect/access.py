"""The access report: for every LOAD, STORE and copy of a kernel, what its warps ask of memory.

Counts come from the index expressions (`uopc/inspect/warps.py`); where data decides where an access
goes, from the addresses of an emulated run (`uopc/observing.py`), if arrays are given.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from uopc.dtype import AddrSpace
from uopc.inspect.footprint import footprint, of_one_block
from uopc.inspect.records import AccessReport, How, SourceLine
from uopc.inspect.requests import SECTOR_BYTES
from uopc.inspect.sites import Site, statements
from uopc.inspect.warps import Counts, DataDecidesError, Threads, count
from uopc.kernel import Launch, ProgramTree
from uopc.render.base import shown_origin
from uopc.render.cuda import CUDARenderer
from uopc.symbolic import index as ix
from uopc.target import Target
from uopc.uop.facts import bounds, free
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import Ops

#: what memory gives at least: two sectors (seen with ncu on an H200)
MEMORY_BYTES = 64
_SPACES = {
    AddrSpace.GLOBAL: "global",
    AddrSpace.SHARED: "shared",
    AddrSpace.CLUSTER: "cluster",
}


@dataclass(frozen=True)
class Listing:
    """The CUDA text of a kernel, line by line, and its accesses."""

    lines: tuple[SourceLine, ...]
    accesses: tuple[AccessReport, ...]


def listing(
    program: ProgramTree, name: str, target: Target, found: Mapping[UOp, Counts] | None = None
) -> Listing:
    """The text and the accesses of a GPU kernel in stage PROGRAM.

    found: counts of accesses from an emulated run, by node.
    """
    renderer = CUDARenderer(program, name, target)
    renderer.origins = True
    text = renderer.render().splitlines()
    line_of = {u: renderer.first_line + at for at, u in reversed(renderer.statements)}
    walked = statements(program)
    every = [site for s in walked for site in s.accesses]
    threads = Threads.of(program.launch)
    reports = tuple(
        [
            _report(n, site, program.launch, threads, renderer, line_of, found or {})
            for n, site in enumerate(every)
        ]
    )
    return Listing(_lines(program, text, line_of, reports), reports)


def _lines(
    program: ProgramTree,
    text: Sequence[str],
    line_of: Mapping[UOp, int],
    accesses: Sequence[AccessReport],
) -> tuple[SourceLine, ...]:
    number = _graph_lines(program.sink)
    nodes: dict[int, set[int]] = {}
    origins: dict[int, dict[str, None]] = {}
    for s in statements(program):
        if (at := line_of.get(s.node)) is None:
            continue
        mine = nodes.setdefault(at, set())
        mine.update(number[u] for u in s.inside if u in number)
        if s.node.origins:
            origins.setdefault(at, {})[shown_origin(s.node)] = None
    for u, at in line_of.items():
        if u in number:
            nodes.setdefault(at, set()).add(number[u])
    of_line: dict[int, list[int]] = {}
    for a in accesses:
        of_line.setdefault(a.line, []).append(a.number)
    return tuple(
        [
            SourceLine(
                line,
                tuple(sorted(nodes.get(n, ()))),
                tuple(origins.get(n, ())),
                tuple(of_line.get(n, ())),
            )
            for n, line in enumerate(text, 1)
        ]
    )


def _graph_lines(root: UOp) -> dict[UOp, int]:
    """The line of each node in the graph's text (`uopc.uop.text.show`), from 0."""
    counter = itertools.count()
    return {u: next(counter) for u in toposort(root) if u.op is not Ops.CONST or u.src or u is root}


# ---- one access
def _report(
    n: int,
    site: Site,
    launch: Launch,
    threads: Threads,
    renderer: CUDARenderer,
    line_of: Mapping[UOp, int],
    found: Mapping[UOp, Counts],
) -> AccessReport:
    plain = _described(n, site, launch, renderer, line_of.get(site.statement, 0))
    try:
        counts = count(site, launch, threads)
    except DataDecidesError:
        if site.node in found:
            return _with(plain, site, found[site.node], How.EMULATED)
        return plain
    return _with(plain, site, counts, How.EXACT if counts.exact else How.SAMPLED)


def _with(plain: AccessReport, site: Site, counts: Counts, how: How) -> AccessReport:
    bulk = site.op == "BULK"  # one thread asks for a box, which no warp's lanes move
    lanes = () if bulk else counts.lanes
    return replace(
        plain,
        how=how,
        requests=counts.requests,
        threads=counts.threads,
        sectors=counts.sectors,
        least_sectors=counts.least_sectors,
        wavefronts=counts.wavefronts,
        least_wavefronts=counts.least_wavefronts,
        wanted_bytes=counts.threads * site.width_bytes,
        **asdict(_reach(site, counts)),
        pattern=pattern(lanes, site.element.dtype.itemsize, site.width_bytes),
        lanes=lanes,
    )


def _described(
    n: int, site: Site, launch: Launch, renderer: CUDARenderer, line: int
) -> AccessReport:
    """What is known without counting."""
    memory, element = site.memory, site.element
    is_map = element.op is Ops.TENSORMAP
    known = [u for u in (site.node, site.statement) if u.origins] or [memory]
    origins = [shown_origin(u) for u in known if u.origins]
    return AccessReport(
        number=n,
        op=site.op,
        space=_SPACES[site.space],
        store=site.store,
        memory=renderer.memory_name(memory),
        slot=memory.arg.slot if memory.op is Ops.BUFFER else -1,
        dtype=element.dtype.name,
        width_bytes=site.width_bytes,
        index=_box(site, renderer) if is_map else renderer.expr(site.offset),
        gate=" && ".join(dict.fromkeys(renderer.expr(c, 31) for c in site.conditions)),
        line=line,
        origins=tuple(dict.fromkeys(origins)),
        how=How.UNKNOWN,
        axis="" if is_map else _axis(site.offset, launch, renderer),
    )


def _box(site: Site, renderer: CUDARenderer) -> str:
    """The box of a tensor copy, and its coordinates."""
    box = "x".join(map(str, site.element.arg.box))
    places = site.node.src[2:] if site.store else site.node.src[3:]
    return f"{box} at ({', '.join(renderer.expr(c) for c in places)})"


def _axis(offset: UOp, launch: Launch, renderer: CUDARenderer) -> str:
    """The range that neighbouring lanes count by, and how far it moves the offset."""
    for a in sorted(launch.block_axes, key=lambda a: (a.dim, a.stride)):
        if a.range.arg.size == 1 or a.range not in free(offset):
            continue
        step = ix.coefficient(offset, a.range)
        name = renderer.names.get(a.range, renderer.range_name(a.range))
        if a.dim == 0 and a.stride == 1:
            return f"{name} * {step}" if step is not None else f"{name}, not evenly"
    return ""


@dataclass(frozen=True)
class _Reach:
    """Where an access goes in its memory; fields as in `AccessReport`."""

    touched_bytes: int
    block_bytes: int
    fetched_bytes: int
    block_fetched_bytes: int
    first_byte: int
    end_byte: int


def _reach(site: Site, counts: Counts) -> _Reach:
    """No more bytes than threads ask for, than there are places, than the memory has."""
    size = prod(site.memory.arg.shape) * site.memory.dtype.itemsize
    asked = counts.threads * site.width_bytes
    if site.op == "BULK":
        whole = min(size, asked)
        boxes = prod(r.arg.size for r in site.loops)
        block = min(whole, boxes * site.width_bytes)
        return _Reach(whole, block, whole, block, 0, size)
    item, width = site.element.dtype.itemsize, site.width_bytes
    everywhere, in_block = site.offset, of_one_block(site.offset)
    sectors = counts.sectors or asked
    lo, hi = bounds(everywhere)
    return _Reach(
        touched_bytes=min(size, asked, footprint(everywhere, item, width)),
        block_bytes=min(size, asked, footprint(in_block, item, width)),
        fetched_bytes=min(
            size, sectors * MEMORY_BYTES, footprint(everywhere, item, width, MEMORY_BYTES)
        ),
        block_fetched_bytes=min(
            size, sectors * SECTOR_BYTES, footprint(in_block, item, width, SECTOR_BYTES)
        ),
        first_byte=min(size, max(0, lo * item)),
        end_byte=min(size, max(0, hi * item + width)),
    )


def pattern(lanes: Sequence[int | None], itemsize: int, width: int) -> str:
    """How the lanes of a warp walk memory, in words.

    lanes: byte offset of each, None where it is not active.
    """
    active = [x for x in lanes if x is not None]
    if len(active) < 2:
        return "one lane" if active else ""
    steps = [b - a for a, b in itertools.pairwise(active)]
    if not any(steps):
        return "broadcast"
    run = next((n for n, s in enumerate(steps) if s != steps[0]), len(steps)) + 1
    first = _step(steps[0], itemsize, width)
    if run == len(active):
        return first
    rows = [active[at : at + run] for at in range(0, len(active), run)]
    alike = all(
        [x - row[0] for x in row] == [x - rows[0][0] for x in rows[0][: len(row)]] for row in rows
    )
    apart = {b[0] - a[0] for a, b in itertools.pairwise(rows)}
    if not alike or len(apart) != 1:
        return "scattered"
    return f"rows of {run} lanes, {first}, {next(iter(apart))} bytes apart"


def _step(step: int, itemsize: int, width: int) -> str:
    if step == 0:
        return "all at one place"
    if step == width:
        return "contiguous"
    if step == -width:
        return "contiguous backwards"
    elements = f"{step // itemsize}" if step % itemsize == 0 else f"{step / itemsize:g}"
    return f"stride {elements} ({step} bytes)"

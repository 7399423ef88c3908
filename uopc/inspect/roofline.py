"""What bounds a kernel on a GPU, the least time it could take, and how long it is expected to take.

A wall is what one part of the GPU alone would need: memory, L2, L1 with shared memory, the issue of
instructions, each arithmetic unit, and one thread's own chain.  The floor is the highest wall among
those that no mapping could avoid; the prediction adds what this mapping does, and the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from uopc.inspect.gpus import GPU
from uopc.inspect.records import AccessReport, How, ResourceReport, Roofline
from uopc.inspect.requests import SECTOR_BYTES, WARP
from uopc.inspect.sites import Site, Statement, statements
from uopc.inspect.work import instructions, operations
from uopc.kernel import ProgramTree
from uopc.symbolic import index as ix
from uopc.uop.node import UOp
from uopc.uop.ops import SERIAL

#: how walls add up: two that are equally high take a quarter more than one (note 0016)
NORM = 3
L1_BYTES = 192 << 10  # of what a block reads again
L2_BYTES_PER_CLOCK = 60  # that reach an SM (note 0015)
L1_BYTES_PER_CLOCK = 128  # shared memory gives as many
ISSUE_PER_CLOCK = 4  # instructions of warps that an SM begins in a clock
#: instructions of a lane: of a special function, of an operation that finds addresses (the rest is
#: folded into others or done once), of one that changes a type
SFU_ISSUED, INDEX_ISSUED, CONVERT_ISSUED = 6.0, 0.3, 0.7
#: part of a unit's peak that long kernels keep up: the clock falls under the power cap
SUSTAINED = 0.8
#: clocks of a wait: for what L1 or shared memory holds; for L2 more; for memory yet more
NEAR_CLOCKS, L2_CLOCKS, FAR_CLOCKS = 40, 230, 430
ASSUMPTION = (
    "each byte comes from memory once, in pieces of 64, and stays in L2; a block reads what it "
    f"needs from L2 once, up to {L1_BYTES >> 10} KB, and all that it asks for beyond that; partly "
    "written sectors are read first"
)
_UNITS = ("fp32", "fp64", "sfu", "int")


def roofline(
    program: ProgramTree,
    accesses: Sequence[AccessReport],
    used: ResourceReport,
    gpu: GPU,
) -> Roofline:
    """The walls of one launch on a GPU, its floor and its expected time."""
    sizes = {p.slot: p.size * p.dtype.itemsize * max(1, p.bundle) for p in program.params}
    done = operations(program)
    must = must_bytes(accesses, sizes)
    memory = _once(accesses, sizes, lambda a: a.touched_bytes if a.store else a.fetched_bytes)
    memory += sum(_partly_written(a) for a in accesses)
    moves = sum(_from_l2(a, program) for a in accesses)
    blocks = math.prod(program.launch.grid)
    busy = min(blocks, gpu.sms)
    uneven = math.ceil(blocks / gpu.sms) * gpu.sms / blocks if blocks > gpu.sms else 1.0
    at_once = busy * gpu.clock_hz / uneven  # clocks of all SMs that work, in a second
    units = {u: done[u] / gpu.rate(u) for u in done if u in _UNITS or u.startswith("tensor")}
    walls = {
        "memory": memory / (gpu.memory_bytes_s * gpu.reached),
        "L2": moves / (L2_BYTES_PER_CLOCK * at_once),
        "L1": _l1_clocks(accesses) / at_once,
        "instructions": _issued(program, accesses) / (ISSUE_PER_CLOCK * at_once),
        "latency": _chain_clocks(program, accesses) * max(1.0, used.waves) / gpu.clock_hz,
        **{u: t * gpu.sms * uneven / (busy * SUSTAINED) for u, t in units.items()},
    }
    floors = {"memory": must / gpu.memory_bytes_s, **units}
    wall = max(floors, key=lambda name: floors[name])
    return Roofline(
        gpu=gpu.name,
        must_bytes=must,
        moves_bytes=moves,
        memory_bytes=memory,
        assumption=ASSUMPTION,
        operations=tuple(done.items()),
        times_s=tuple(sorted(walls.items(), key=lambda item: -item[1])),
        floor_s=floors[wall],
        wall=wall,
        wasted=_wasted(accesses),
        predicted_s=gpu.start_s + together(walls) if blocks else 0.0,  # no work is no launch
    )


def together(walls: Mapping[str, float]) -> float:
    """What walls take that are climbed at the same time: memory, caches, and what threads do."""
    caches = max(walls["L2"], walls["L1"])
    threads = max(t for name, t in walls.items() if name not in ("memory", "L2", "L1"))
    parts = (walls["memory"], caches, threads)
    total: float = sum(t**NORM for t in parts) ** (1 / NORM)
    return total


def must_bytes(accesses: Sequence[AccessReport], sizes: Mapping[int, int]) -> int:
    """Each byte that the accesses touch, read once and written once.  sizes: bytes by slot."""
    return _once(accesses, sizes, lambda a: a.touched_bytes)


def _once(
    accesses: Sequence[AccessReport],
    sizes: Mapping[int, int],
    bytes_of: Callable[[AccessReport], int],
) -> int:
    """What is read and what is written of each parameter, each place once: accesses that reach as
    many bytes between the same ends reach the same ones."""
    places: dict[tuple[int, bool], dict[tuple[int, int, int], int]] = {}
    for a in accesses:
        if a.space != "global":
            continue
        mine = places.setdefault((a.slot, a.store), {})
        if a.how is How.UNKNOWN:
            mine[0, sizes[a.slot], 0] = sizes[a.slot]
        elif a.requests:
            mine[a.first_byte, a.end_byte, a.touched_bytes] = bytes_of(a)
    return sum(
        min(sizes[slot], _covered([key[:2] for key in mine]), sum(mine.values()))
        for (slot, _), mine in places.items()
    )


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Bytes that lie in at least one of some spans."""
    total = at = 0
    for first, end in sorted(spans):
        total += max(0, end - max(first, at))
        at = max(at, end)
    return -(-total // SECTOR_BYTES) * SECTOR_BYTES


def _partly_written(a: AccessReport) -> int:
    """Bytes of sectors that a store does not fill."""
    return (a.sectors - a.least_sectors) * SECTOR_BYTES if a.store and a.space == "global" else 0


def _from_l2(a: AccessReport, program: ProgramTree) -> int:
    """Bytes of an access that pass between L2 and the SMs."""
    if a.space != "global":
        return 0
    asked = a.sectors * SECTOR_BYTES
    if a.store or a.op in ("BULK", "COPY", "ATOMIC") or a.block_fetched_bytes > L1_BYTES:
        return asked
    return min(asked, a.block_fetched_bytes * math.prod(program.launch.grid))


def _l1_clocks(accesses: Sequence[AccessReport]) -> float:
    """Clocks in which L1 and shared memory answer all requests, on one SM."""
    lines = sum(
        max(float(a.requests), a.sectors * SECTOR_BYTES / L1_BYTES_PER_CLOCK)
        for a in accesses
        if a.space == "global" and a.op != "BULK"
    )
    return lines + sum(a.wavefronts for a in accesses)


def _issued(program: ProgramTree, accesses: Sequence[AccessReport]) -> float:
    """Instructions that warps issue, about."""
    weights = {"sfu": SFU_ISSUED, "index": INDEX_ISSUED, "convert": CONVERT_ISSUED}
    lanes = sum(n * weights.get(unit, 1.0) for unit, n in instructions(program).items())
    return lanes / WARP + sum(a.requests for a in accesses)


def _chain_clocks(program: ProgramTree, accesses: Sequence[AccessReport]) -> float:
    """Clocks that one thread waits for its loads, turn by turn of its loops.

    Loads of one turn wait together.  One that goes on to another sector in each turn waits for L2;
    one whose bytes no block has asked for before, for memory.
    """
    blocks = math.prod(program.launch.grid)
    names = iter(accesses)
    waits: dict[tuple[tuple[UOp, ...], tuple[tuple[int, int], ...]], float] = {}
    for s in statements(program):
        for site in s.accesses:
            a = next(names)
            if site.store or site.op in ("COPY", "BULK") or a.how is How.UNKNOWN:
                continue
            loops = _serial(s)
            wait = float(NEAR_CLOCKS)
            if a.space == "global" and a.block_bytes:
                new = min(1.0, _step_bytes(site, loops) / SECTOR_BYTES)
                first = min(1.0, a.touched_bytes / (a.block_bytes * blocks))
                wait += new * (L2_CLOCKS + first * FAR_CLOCKS)
            key = (loops, s.warps)
            waits[key] = max(wait, waits.get(key, 0.0))
    total = 0.0
    for (loops, _), wait in waits.items():
        total += wait * math.prod(int(r.arg.size) for r in loops)
    return total


def _step_bytes(site: Site, loops: Sequence[UOp]) -> float:
    """How far the innermost loop moves an address; a loop that moves it unevenly, by a sector."""
    if not loops:
        return SECTOR_BYTES
    step = ix.coefficient(site.offset, loops[-1])
    if step is None:
        return SECTOR_BYTES
    moved: int = abs(step) * site.element.dtype.itemsize
    return moved


def _serial(s: Statement) -> tuple[UOp, ...]:
    return tuple([r for r in s.loops if r.arg.kind in SERIAL])


def _wasted(accesses: Sequence[AccessReport]) -> float:
    """The share of the sectors of all requests that nobody asked for."""
    moved = sum(a.sectors for a in accesses)
    return 1 - sum(a.least_sectors for a in accesses) / moved if moved else 0.0

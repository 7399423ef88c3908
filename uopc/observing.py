"""Where the accesses of a kernel went in an emulated run: what the access report says where data
decides.

A part of the blocks is traced, whole warps of it; their accesses are counted as the report counts
those of an index expression, and stand for those of all blocks.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from uopc.errors import UsageError
from uopc.inspect.requests import WARP
from uopc.inspect.sites import Site, sites
from uopc.inspect.warps import Counts, of_requests
from uopc.kernel import Launch, ProgramTree, Source
from uopc.launches import Subject, launches_of, random_arrays
from uopc.pipeline import Kernel, finish
from uopc.runtime.arrays import HostArray
from uopc.runtime.emulated import Event, RunOptions
from uopc.runtime.program import Program
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import Ops

_OTHERS = ("COPY", "BULK", "SEND", "LDMATRIX", "STMATRIX")
#: threads whose accesses are told at most
MOST_THREADS = 1 << 14


def observed(
    kernel: Subject, *arrays: Any, name: str = "kernel", most_threads: int = MOST_THREADS
) -> list[dict[UOp, Counts]]:
    """For each launch of a kernel, what its warps asked of memory at each access, by node.

    kernel, arrays, name: as `uopc.check` takes them; nothing of the caller's is written.
    most_threads: that are traced; counts are scaled from their blocks to the grid.  Copies are left
    out, which have two addresses, and matrices, which have one for each row.  A node that stands at
    several places of the text has at each an equal part of what it asked for.

    Raises UsageError where arrays do not fit, and the first fault of a kernel that cannot go on.
    """
    launches = launches_of(kernel, arrays, name=name)
    values = launches.arrays()
    found = []
    for one, source in zip(
        launches.launches, launches.sources(check=False, trace=True), strict=True
    ):
        traced = _traced(one.program.launch, most_threads)
        options = RunOptions(traced=traced, all_faults=True)
        outcome = Program(source).run([values[s] for s in one.slots], options)
        blocks = len({block for block, _ in traced})
        share = blocks / math.prod(one.program.launch.grid)
        found.append(_counts(sites(one.program), source, outcome.events, share))
    return found


def spread_arrays(kernel: UOp | Kernel, seed: int) -> list[HostArray]:
    """Random inputs as `uopc.launches.random_arrays` makes them, but indices go to all of the
    memory that they are for: how they are spread is what is to be seen."""
    arrays = random_arrays(kernel, seed)
    if isinstance(kernel, Kernel):
        programs, slots = [step.program for step in kernel.steps], list(kernel.input_slots)
    else:
        programs = [finish(kernel)]
        slots = [p.slot for p in programs[0].params]
    rng = np.random.default_rng(seed)
    for slot, most in sorted(_index_slots(programs).items()):
        if slot in slots:
            n = slots.index(slot)
            arrays[n] = rng.integers(0, most, arrays[n].shape).astype(arrays[n].dtype)
    return arrays


def _index_slots(programs: Iterable[ProgramTree]) -> dict[int, int]:
    """For each parameter of integers that says where an access goes: how many places there are."""
    found: dict[int, int] = {}
    for site in (s for p in programs for s in sites(p)):
        for term, step in ix.affine(site.offset)[0].items():
            places = max(1, prod(site.memory.arg.shape) // abs(step))
            for u in toposort(term):
                if u.op is not Ops.LOAD or not u.dtype.is_int:
                    continue
                index = memory(u.src[0])
                if index.op is Ops.BUFFER:
                    most = min(places, u.dtype.max + 1)
                    found[index.arg.slot] = max(most, found.get(index.arg.slot, 0))
    return found


def _traced(launch: Launch, most_threads: int) -> tuple[tuple[int, int], ...]:
    """(block, thread) of all threads of some blocks, evenly."""
    if launch.threads > most_threads:
        raise UsageError(
            f"a block has {launch.threads} threads, and most_threads={most_threads} are traced: "
            "at least one whole block is. Raise most_threads."
        )
    blocks = math.prod(launch.grid)
    wanted = min(blocks, most_threads // launch.threads)
    chosen = sorted({n * blocks // wanted for n in range(wanted)})
    return tuple((b, t) for b in chosen for t in range(launch.threads))


def _counts(
    every: Iterable[Site], source: Source, events: Iterable[Event], share: float
) -> dict[UOp, Counts]:
    warps: dict[UOp, dict[tuple[object, ...], dict[int, int]]] = {}
    for e in events:
        if e.what == "access":
            of_place = warps.setdefault(source.places[e.place], {})
            for turn in itertools.count():  # an event tells eight loops: turns of others look alike
                lanes = of_place.setdefault((e.block, e.thread // WARP, e.loops, turn), {})
                if e.thread % WARP not in lanes:
                    break
            lanes[e.thread % WARP] = e.address
    told = [site for site in every if site.op not in _OTHERS]
    places = Counter(site.node for site in told)  # a text may read one element at several
    out = {}
    for site in told:
        at, active = _table(warps.get(site.node, {}))
        out[site.node] = of_requests(site, at, active).scaled(share * places[site.node])
    return out


def _table(
    requests: Mapping[tuple[object, ...], Mapping[int, int]],
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Addresses and active lanes, a row for each request."""
    at = np.zeros((len(requests), WARP), dtype=np.int64)
    active = np.zeros((len(requests), WARP), dtype=bool)
    for row, lanes in enumerate(requests.values()):
        for lane, address in lanes.items():
            at[row, lane], active[row, lane] = address, True
    return at, active

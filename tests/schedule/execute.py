"""Runs a schedule by the oracle, kernel by kernel, and says what it does wrong.

A kernel that overwrites what it reads runs block by block, in random order: each block computes all
its outputs from what is in memory then.  The arrays of one launch come in random order.  Every byte
of the arena knows which value was written there last.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tests.schedule.graphs import CanonicalCase, evaluated, strays
from uopc.kernel import KernelBody, Output
from uopc.runtime.buffer import Buffer
from uopc.schedule.batch import LENGTH
from uopc.schedule.group import NONE
from uopc.schedule.hazards import memory_of
from uopc.schedule.limits import Limits
from uopc.schedule.memory import Leaf, Place, Result, Temporary
from uopc.schedule.normalise import rebuilt
from uopc.schedule.plan import Schedule, schedule
from uopc.target import Target, target
from uopc.tensor.prepare import Prepared
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops

GPU, CPU = target("sm_90a"), target("cpu")
#: so small that every limit decides something on graphs of a few elements
TIGHT = Limits(
    blocks=4,
    block_work=64,
    product_lanes=4,
    product_work=128,
    neighbours=2,
    buffers=6,
    live=3,
    inline=2,
    redo=3,
)
MOST_BLOCKS = 12
#: how a graph is scheduled
WAYS: dict[str, tuple[Target, Limits | None]] = {
    "usual": (GPU, None),
    "tight": (GPU, TIGHT),
    "cpu": (CPU, None),
}


def planned(case: CanonicalCase, way: str) -> Schedule:
    """The schedule of a graph."""
    on, limits = WAYS[way]
    return schedule(case.roots, on, case.kept, limits=limits)


class Memories:
    """What the places of a schedule hold; what was never written may not be read."""

    def __init__(self, plan: Schedule, leaves: Sequence[Array]) -> None:
        self.leaves = [np.array(a).reshape(-1) for a in leaves]
        self.arena = np.full(plan.arena_bytes, 0xCD, np.uint8)
        self.owner = np.full(plan.arena_bytes, -1)
        self.owners: dict[Place, int] = {}
        self.results: dict[int, Array] = {}
        self.reported = False

    def at(self, place: Place) -> Array:
        """The elements of a place, to read or to write."""
        if isinstance(place, Leaf):
            return self.leaves[place.number]
        if isinstance(place, Temporary):
            end = place.offset + place.size * place.dtype.itemsize
            return self.arena[place.offset : end].view(place.dtype.numpy)
        assert isinstance(place, Result)
        return self.results.setdefault(place.number, np.full(place.size, 77, place.dtype.numpy))

    def read(self, place: Place) -> Array:
        if isinstance(place, Temporary):
            mine = self.owner[place.offset : place.offset + place.size * place.dtype.itemsize]
            assert np.all(mine == self.owners.get(place)), "a temporary is gone when it is read"
        elif isinstance(place, Result):
            assert place.number in self.results, "a result is read before it is written"
        return self.at(place)

    def written(self, place: Place) -> None:
        if isinstance(place, Temporary):
            number = self.owners.setdefault(place, len(self.owners))
            self.owner[place.offset : place.offset + place.size * place.dtype.itemsize] = number


def run(plan: Schedule, leaves: Sequence[Array], rng: random.Random) -> Memories:
    """The memories after all launches."""
    memories = Memories(plan, leaves)
    for launch in plan.launches:
        several = len(launch.places) > 1
        for k in rng.sample(range(len(launch.places)), len(launch.places)):
            body = _resized(launch.body, launch.sizes[k]) if several else launch.body
            _run_body(body, launch.places[k], memories, rng)
    return memories


def _run_body(
    body: KernelBody, places: Sequence[Place], memories: Memories, rng: random.Random
) -> None:
    values = [o.value for o in body.outputs]
    assert len({o.memory for o in body.outputs}) == len(values), "two outputs share a memory"
    slots = {u.arg.slot for u in toposort(*values) if u.op is Ops.BUFFER}
    arrays: dict[int, Array] = {s: memories.read(places[s]) for s in slots}
    for o in body.outputs:
        memories.written(places[o.memory.arg.slot])
    held = [arrays.get(s, np.zeros(0)) for s in range(len(places))]
    for u in body.checked:
        memories.reported |= strays(u, evaluated(u.src[1:], held))
    overwrites = any(o.memory.arg.slot in slots for o in body.outputs)
    for chosen in _blocks(body, rng) if overwrites else [{}]:
        found = evaluated(values, held)
        for o, value in zip(body.outputs, found, strict=True):
            memory = memories.at(places[o.memory.arg.slot]).reshape(value.shape)
            axes = body.axes[o.value][: value.ndim]
            at = np.ix_(
                *[chosen.get(a, np.arange(n)) for a, n in zip(axes, value.shape, strict=True)]
            )
            memory[at] = value[at]


def _blocks(body: KernelBody, rng: random.Random) -> list[dict[int, Array]]:
    """{grid axis: the places along it} of each block, in random order.

    The grid is what every output and every shared reduction varies along.
    """
    values = [o.value for o in body.outputs]
    shared = [set(body.axes[v][: len(v.shape)]) for v in values]
    shared += [set(axes[: len(u.shape)]) for u, axes in body.axes.items() if u.op is Ops.REDUCE]
    blocks: list[dict[int, Array]] = [{}]
    for axis in set.intersection(*shared) - {NONE}:
        n = body.sizes[axis]
        cuts = sorted(rng.sample(range(1, n), min(n - 1, rng.randint(0, 2))))
        parts = np.split(rng.sample(range(n), n) if rng.random() < 0.5 else np.arange(n), cuts)
        if len(blocks) * len(parts) <= MOST_BLOCKS:
            blocks = [{**b, axis: part} for b in blocks for part in parts]
    rng.shuffle(blocks)
    return blocks


def _resized(body: KernelBody, size: int) -> KernelBody:
    """A flat body over arrays of this size."""
    new: dict[UOp, UOp] = {}
    for u in toposort(*[x for o in body.outputs for x in (o.value, o.memory)]):
        if u.op is Ops.BUFFER and u.shape == (LENGTH,):
            new[u] = buffer(u.arg.slot, u.dtype, (size,))
        elif u.op is Ops.EXPAND:
            new[u] = new[u.src[0]].expand((size,))
        else:
            new[u] = rebuilt(u, tuple([new[s] for s in u.src]))
    outputs = tuple([Output(new[o.value], new[o.memory]) for o in body.outputs])
    return KernelBody(outputs, (size,), {o.value: (0,) for o in outputs})


# ---- comparisons
def assert_right(case: CanonicalCase, plan: Schedule, rng: random.Random) -> None:
    """The schedule makes what was asked for, and leaves alone what it must."""
    memories = run(plan, case.arrays, rng)
    made = [memories.results[n] for n in sorted(memories.results)]
    _assert_results(case, plan, memories.leaves, made)
    assert memories.reported == case.reports, "indices are reported that are in range, or not those"


def assert_runs(case: CanonicalCase, plan: Schedule, device: str) -> None:
    """The same for compiled kernels on a device."""
    leaves = [Buffer.from_numpy(device, a.reshape(-1)) for a in case.arrays]
    made = Prepared(plan, device).run(leaves)
    _assert_results(case, plan, [b.numpy() for b in leaves], [b.numpy() for b in made])


def _assert_results(
    case: CanonicalCase, plan: Schedule, leaves: Sequence[Array], made: Sequence[Array]
) -> None:
    def at(place: Place) -> Array:
        assert isinstance(place, (Leaf, Result)), "a result in the arena would be overwritten"
        return leaves[place.number] if isinstance(place, Leaf) else made[place.number]

    for root, place, want in zip(case.roots, plan.results, case.wanted, strict=True):
        got = at(place)
        same = _same(got, want.reshape(-1), case.exact)
        assert same, f"{root.op}{list(root.shape)}: got {got}, want {want.reshape(-1)}"
    updated = {memory_of(u).arg.slot for u in toposort(*case.roots) if u.op is Ops.ASSIGN}
    mine = {u.arg.slot for u in case.kept} | (set(range(len(leaves))) - updated)
    for slot in mine:
        same = np.array_equal(leaves[slot], case.arrays[slot].reshape(-1))
        assert same, f"leaf {slot} was overwritten"


def _same(got: Array, want: Array, exact: bool) -> bool:
    if exact:
        return got.dtype == want.dtype and got.tobytes() == want.tobytes()
    return bool(np.allclose(got, want, rtol=1e-9, atol=1e-9))

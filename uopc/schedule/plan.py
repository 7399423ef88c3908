"""A graph to kernels, in order, with their memories: the schedule.  TENSOR -> KernelBody.

normalise (with picks) comes before; then refine -> anchors -> group -> stores -> hazards -> bodies
-> batch -> memory, and where grouping finds column sums that can join rows, partial and once more
from refine.  A schedule depends on the graph and on the Target, never on Opts.  Reasons stand in
tables beside the graph, never in it, so that equal kernels stay equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uopc.kernel import KernelBody
from uopc.schedule.anchors import Anchors
from uopc.schedule.batch import batches
from uopc.schedule.bodies import BodyMaker, name_of
from uopc.schedule.group import Group, Grouping
from uopc.schedule.hazards import Hazards
from uopc.schedule.limits import Limits, limits_of
from uopc.schedule.memory import ErrorWord, Leaf, Place, place
from uopc.schedule.order import after_needs
from uopc.schedule.partial import with_partial_sums
from uopc.schedule.refine import refine
from uopc.schedule.stores import Stores
from uopc.target import Target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


@dataclass(frozen=True)
class Stored:
    """A value that a launch leaves in memory.

    value: its op and shape; why it is there; written: its bytes; read: launches that read it, by
    number, and the bytes that they read of it, each element once.  apart: why an update has not
    overwritten the version before it, "" where it has.
    """

    value: str
    why: str
    written: int
    read: tuple[tuple[int, int], ...] = ()
    apart: str = ""

    @property
    def bytes(self) -> int:
        """That pass through memory for it."""
        return self.written + sum(n for _, n in self.read)


@dataclass(frozen=True)
class Launch:
    """One launch of a schedule: a kernel, or one formula over several sets of arrays.

    body: of the kernel, flat where there are several sets.  places: for each set, of each local
    slot.  sizes: elements of the outputs of each set, where there are several.  reads, writes:
    bytes, each element once.  stored: what it leaves in memory, and why.
    """

    body: KernelBody
    places: tuple[tuple[Place, ...], ...]
    sizes: tuple[int, ...]
    name: str
    reads: int
    writes: int
    stored: tuple[Stored, ...] = ()

    @property
    def why(self) -> tuple[str, ...]:
        """The reason of each store, then of each update that is not in place."""
        reasons = [f"{x.value}: {x.why}" for x in self.stored]
        apart = [f"{x.value} is not in place: {x.apart}" for x in self.stored if x.apart]
        return (*reasons, *apart)


@dataclass(frozen=True)
class Schedule:
    """Kernels in order.

    results: the place of each root.  arena_bytes: of temporaries.  refused: how often each reason
    kept values apart.  least_bytes: every leaf read once, every result written once.  again: what
    its readers compute again instead of reading it from memory, and why.
    """

    launches: tuple[Launch, ...]
    results: tuple[Place, ...]
    arena_bytes: int
    refused: Counter[str] = field(repr=False)
    least_bytes: int = 0
    again: tuple[str, ...] = field(default=(), repr=False)

    @property
    def moved_bytes(self) -> int:
        """Bytes that all kernels read and write."""
        return sum(k.reads + k.writes for k in self.launches)

    def explain(self) -> str:
        """Each kernel with its bytes and the reason of every store; what is not stored though
        several kernels need it; what kept values apart."""
        lines = [
            f"{len(self.launches)} kernel{'s' * (len(self.launches) != 1)}, "
            f"{self.moved_bytes} bytes moved, "
            f"{self.least_bytes} at least, {self.arena_bytes} of temporaries"
        ]
        for n, k in enumerate(self.launches):
            lines.append(f"{n}: {k.name}  reads {k.reads}, writes {k.writes} bytes")
            lines += [f"   {reason}" for reason in k.why]
        if self.again:
            lines += ["computed again:", *[f"   {reason}" for reason in self.again]]
        if self.refused:
            lines.append("kept apart:")
            lines += [f"   {n} x {reason}" for reason, n in self.refused.most_common()]
        return "\n".join(lines)


def schedule(
    roots: Sequence[UOp],
    target: Target,
    kept: frozenset[UOp] = frozenset(),
    fuse: bool = True,
    limits: Limits | None = None,
) -> Schedule:
    """The kernels that compute the roots.

    roots: shaped values with elements over numbered leaves (`normalise.canonical`); kept: leaves
    whose contents somebody may still read afterwards; fuse=False gives each anchor a kernel.
    """
    limits = limits or limits_of(target)
    asked, grouping = _grouped(roots, kept, fuse, limits)
    anchors = grouping.anchors
    stores = Stores(grouping)
    hazards = Hazards(stores)
    order = _in_order(stores, hazards)
    maker = BodyMaker(stores, hazards.in_place)
    made = [maker.make(g) for g in order]
    number = {g: n for n, g in enumerate(order)}
    needs = [frozenset(number[x] for x in hazards.needs[g] if x in number) for g in order]
    several = batches([body for body, _ in made], needs)
    use = [
        (
            [m for k in members for m in stores.needed[order[k]] if m in stores.stored],
            [u for k in members for u in (*stores.loads[order[k]], *_leaves(made[k][1]))],
        )
        for members, _ in several
    ]
    places, arena = place(use, anchors.roots, hazards.in_place)
    launches = []
    launch_of = {order[k]: n for n, (members, _) in enumerate(several) for k in members}
    read: dict[UOp, dict[int, int]] = defaultdict(dict)
    for g, n in launch_of.items():
        for u, size in stores.loads[g].items():
            read[u][n] = read[u].get(n, 0) + size
    for members, flat in several:
        at = tuple(
            [tuple([ErrorWord() if u is None else places[u] for u in made[k][1]]) for k in members]
        )
        groups = [order[k] for k in members]
        body = flat or made[members[0]][0]
        launches.append(_launch(groups, body, at, stores, hazards, read))
    results = tuple([Leaf(u.arg.slot) if u.op is Ops.BUFFER else places[u] for u in asked])
    least = _least(stores, order)
    again = tuple([_reason(u, stores) for u in anchors.sequence if u in stores.again])
    return Schedule(tuple(launches), results, arena, grouping.refused, least, again)


def _grouped(
    roots: Sequence[UOp], kept: frozenset[UOp], fuse: bool, limits: Limits
) -> tuple[list[UOp], Grouping]:
    """(the refined roots, their groups); once more where column sums can join rows in parts."""
    for again in (False, True):
        split = refine(roots)
        asked = [split[r] for r in roots]
        still = frozenset(split[u] for u in kept if u in split)
        still |= frozenset(u for u in asked if u.op is Ops.BUFFER)
        anchors = Anchors([u for u in asked if u.op is not Ops.BUFFER], still, limits)
        grouping = Grouping(anchors, fuse)
        if again or not grouping.column_sums:
            break
        before = {new: u for u, new in split.items()}
        sums = frozenset(before[v] for v in grouping.column_sums if v in before)
        divided, table = with_partial_sums(roots, sums, limits)
        if divided == list(roots):
            break
        roots, kept = divided, frozenset(table.get(u, u) for u in kept)
    return asked, grouping


def _leaves(holds: Sequence[UOp | None]) -> list[UOp]:
    return [u for u in holds if u is not None and u.op is Ops.BUFFER]


def _launch(
    groups: Sequence[Group],
    body: KernelBody,
    places: tuple[tuple[Place, ...], ...],
    stores: Stores,
    hazards: Hazards,
    read: Mapping[UOp, Mapping[int, int]],
) -> Launch:
    """read: bytes of a value by the launches that read it."""
    stored = [m for g in groups for m in stores.needed[g] if m in stores.stored]
    said = [
        Stored(
            _value(m),
            stores.why[m],
            stores.known.nbytes[m],
            tuple(sorted(read.get(m, {}).items())),
            hazards.not_in_place.get(m, ""),
        )
        for m in stored
    ]
    return Launch(
        body,
        places,
        tuple([max(stores.known.size[m] for m in stores.needed[g]) for g in groups]),
        "flat_map" if len(groups) > 1 else name_of(body, groups[0].has_product),
        sum(n for g in groups for n in stores.loads[g].values()),
        sum(stores.known.nbytes[m] for m in stored),
        tuple(said),
    )


def _reason(u: UOp, stores: Stores) -> str:
    return f"{_value(u)}: {stores.why[u]}"


def _value(u: UOp) -> str:
    return f"{u.op}{list(u.shape)}"


def _least(stores: Stores, order: Sequence[Group]) -> int:
    known = stores.known
    read: dict[UOp, int] = defaultdict(int)
    for g in order:
        for u, n in stores.loads[g].items():
            if u.op is Ops.BUFFER:
                read[u] = max(read[u], n)
    written = [u for u in stores.stored if u in known.roots or u.op is Ops.ASSIGN]
    return sum(read.values()) + sum(known.nbytes[u] for u in written)


def _in_order(stores: Stores, hazards: Hazards) -> list[Group]:
    """Groups after what they need; where free, in the order of grouping."""
    out = after_needs(stores.groups, hazards.needs)
    assert len(out) == len(stores.groups), "kernels wait for one another"
    return out

"""The checked emulator held against single threads: verdict, first fault, values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.happens_before.generator import Generated
from tests.happens_before.log import Fault
from tests.happens_before.machine import Outcome, Schedule, run
from tests.happens_before.mbarriers import AMBIGUOUS
from tests.happens_before.small import arrays_for, equal_bits, program
from tests.mutation.mutate import without
from uopc.faults.raw import SEVERAL_LANES, FaultKind, RawFault
from uopc.kernel import ProgramTree, Source
from uopc.pipeline import emulate
from uopc.render.emulate import EmulationRenderer
from uopc.render.intervals import calm_loads
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.target import target
from uopc.uop.node import UOp, toposort, where_from
from uopc.uop.numbers import Array
from uopc.uop.ops import EFFECTS

#: (order of warps, order of lanes, engine)
ORDERS = (
    ("forward", "forward", "early"),
    ("backward", "forward", "late"),
    ("forward", "backward", "late"),
    ("shuffled(1)", "backward", "random(2)"),
    ("shuffled(3)", "forward", "random(4)"),
    ("backward", "backward", "early"),
)
#: faults of control, which name the same stop in different words
STOPS = frozenset(("DIVERGENT_BARRIER", "DEADLOCK", "MEMBERS"))
RACES = frozenset(("RACE", "SAME_VALUE"))
#: what need not be told of a block that stopped, or read what nobody had written
CONSEQUENCES = frozenset(("UNWRITTEN", "UNWAITED", "DEADLOCK"))


@dataclass(frozen=True)
class Disagreement:
    """how: "missed", "false alarm", "other fault", "warning", "values", or "elision": other faults
    where no check is left out; in which order."""

    how: str
    order: tuple[str, str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.how} with {', '.join(self.order)}: {self.text}"


def disagreements(
    kernel: Generated, orders: tuple[tuple[str, str, str], ...] = ORDERS
) -> Iterator[Disagreement]:
    """All that the emulator and the single threads do not agree on."""
    tree = program(kernel.sink)
    start = arrays_for(kernel.sink)
    judged = run(tree, start, Schedule(kernel.seed), kernel.given)
    source = emulate(kernel.sink, f"kernel_{kernel.seed}", check=True)
    checked = Program(source)
    unelided = Program(every_check(tree, "kernel")) if calm_loads(tree) else None
    for order in orders:
        arrays = [a.copy() for a in start]
        warps, lanes, engine = order
        options = RunOptions(warps, lanes, engine, initialised=kernel.given)
        faults = checked.run(arrays, options).faults
        yield from _verdicts(source, judged, faults, order)
        if unelided and unelided.run([a.copy() for a in start], options).faults != faults:
            yield Disagreement("elision", order, "with every check there are other faults")
        if judged.ok and not _stopped(faults) and not equal_bits(_results(judged), arrays):
            yield Disagreement("values", order, "the checked run gives other bits")
    if judged.ok:
        arrays = [a.copy() for a in start]
        Program(emulate(kernel.sink, f"fast_{kernel.seed}", check=False))(*arrays)
        if not equal_bits(_results(judged), arrays):
            yield Disagreement("values", ("fast", "", ""), "the unchecked run gives other bits")


def every_check(tree: ProgramTree, name: str, on: str = "sm_80") -> Source:
    """Checked text of which nothing is left out."""
    return EmulationRenderer(tree, name, "forward", target(on), True, elide=False).render()


def _results(judged: Outcome) -> list[Array]:
    return [judged.arrays[slot] for slot in sorted(judged.arrays)]


def _stopped(faults: tuple[RawFault, ...]) -> list[RawFault]:
    return [f for f in faults if not f.kind.is_warning]


def _verdicts(
    source: Source, judged: Outcome, faults: tuple[RawFault, ...], order: tuple[str, str, str]
) -> Iterator[Disagreement]:
    errors = _stopped(faults)
    if bool(errors) == judged.ok:
        if errors:
            yield Disagreement("false alarm", order, told(errors[0], source))
        else:
            worst = next(f for f in judged.faults if f.kind != "SAME_VALUE")
            yield Disagreement("missed", order, str(worst))
    elif errors and not _among(errors[0], source, judged.faults):
        yield Disagreement("other fault", order, told(errors[0], source))
    elif not errors:
        warned = any(f.kind.is_warning for f in faults)
        if warned != ("SAME_VALUE" in judged.kinds):
            yield Disagreement(
                "warning", order, "one of them sees equal writes, the other does not"
            )


def _among(raw: RawFault, source: Source, faults: tuple[Fault, ...]) -> bool:
    """Is this fault one that the single threads have, too?"""
    if any(f.detail.startswith(AMBIGUOUS) for f in faults):
        return True  # what meets what depends on the schedule, and so does the first fault
    place, other = _node(source, raw.place), _node(source, raw.other_place)
    kind = raw.kind.name
    for f in faults:
        if raw.kind in (FaultKind.RACE, FaultKind.PROXY_FENCE):
            if f.kind == kind and {f.place, f.other} == {place, other}:
                return True
            # of several lanes that have read, a stamp names the last op, not the one that races
            if f.kind == kind and raw.other_lane == SEVERAL_LANES and place in (f.place, f.other):
                return True
        elif kind in STOPS:
            if f.kind in STOPS:
                return True
        elif raw.kind is FaultKind.UNINITIALISED and f.kind == "RACE":
            # the run may have ended, with another fault, before the write that races with the read
            if place in (f.place, f.other) and any(x.kind not in RACES for x in faults):
                return True
        elif f.kind == kind and (f.place is place or place is None or kind in CONSEQUENCES):
            return True
    return False


def _node(source: Source, place: int) -> UOp | None:
    return source.places[place] if place >= 0 else None


def told(raw: RawFault, source: Source) -> str:
    """A fault of the emulator in one line."""
    nodes = [n for n in (_node(source, raw.place), _node(source, raw.other_place)) if n is not None]
    where = " and ".join(f"{n.op} at {where_from(n)}" for n in nodes)
    return (
        f"{raw.kind.name} {where}, byte {raw.offset_bytes} of memory {raw.memory}, "
        f"block {raw.block} warp {raw.warp} lane {raw.lane}, other warp {raw.other_warp} "
        f"lane {raw.other_lane}, detail {raw.detail}"
    )


# ---- smaller kernels that still disagree
def shrink(kernel: Generated, fails: Callable[[Generated], bool]) -> Generated:
    """Drop effects, one after another, while the kernel still fails."""
    found = True
    while found:
        found = False
        for effect in reversed(toposort(kernel.sink)):
            if effect.op not in EFFECTS:
                continue
            smaller = _dropped(kernel, effect)
            if smaller is not None and fails(smaller):
                kernel, found = smaller, True
                break
    return kernel


def _dropped(kernel: Generated, effect: UOp) -> Generated | None:
    try:
        sink = without(kernel.sink, effect)
    except (ValueError, KeyError):  # an effect that others cannot stand in for
        return None
    return None if sink is None else Generated(kernel.seed, sink, kernel.given)

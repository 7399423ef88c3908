"""Fences of memory and atomics order blocks, and threads of one block: no more and no less."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import uopc
from tests.helpers import alloc
from tests.mutation.mutate import synchronisation_mutants
from tests.runtime.fenced import DATA, FLAGS, LOG, Judge, arrays, kernel, steps
from uopc.dtype import AddrSpace, dtypes
from uopc.examples import EXAMPLES
from uopc.kernel import Source
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.render.emulate import render_emulated
from uopc.runtime.emulated import Outcome, RunOptions
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import Atomic, AxisType, Combine, Fence, Ops

ORDERS = tuple(
    RunOptions(order=order, lanes=lanes)
    for order in ("forward", "backward", "shuffled(1)", "shuffled(2)")
    for lanes in ("forward", "backward")
)
BLOCKS, THREADS = 3, 64


def checked(root: UOp) -> Source:
    return render_emulated(linearize(legalise(root)), "kern", check=True, target="sm_80")


def outcomes(root: UOp) -> Iterator[tuple[Outcome, list[np.ndarray]]]:
    """A run in every order, on arrays of zeros, and what they hold then."""
    source = checked(root)
    run = Program(source)
    slots = frozenset(p.slot for p in source.params)
    for order in ORDERS:
        given = [np.zeros(p.size, p.dtype.numpy) for p in source.params]
        options = RunOptions(order.order, order.lanes, initialised=slots)
        yield run.run(given, options), given


def kinds(root: UOp) -> list[set[str]]:
    """Of the faults in every order."""
    return [{f.kind.name for f in found.faults} for found, _ in outcomes(root)]


def always(root: UOp, *wanted: str) -> bool:
    return all(found == set(wanted) for found in kinds(root))


def threads(warps: int) -> tuple[UOp, UOp]:
    return range_(warps, 1, AxisType.WARP), range_(32, 2, AxisType.LANE)


def integers(slot: int, size: int) -> UOp:
    return buffer(slot, dtypes.i32, (size,))


# ---- the block that is done last takes what all have left
def last_block(
    done: Fence | None = Fence.DEVICE,
    found: Fence | None = Fence.DEVICE,
    *,
    each: bool = False,
    met: bool = True,
    ticket: str = "atomic",
    resets: bool = False,
) -> UOp:
    """Plain stores, a ticket, plain loads by all threads of the block with the last ticket.

    done, found: the fences before and after the ticket.  each: all threads fence, not the one that
    draws the ticket; met: the block meets before that.  ticket: "atomic", "late fence" (the fence
    is after it), "plain" (no atomic), "unread" (an atomic, but nobody looks at its value).
    """
    c = Cursor()
    block, (warp, lane) = range_(BLOCKS, 0, AxisType.GLOBAL), threads(THREADS // 32)
    t = warp * 32 + lane
    partial, tickets, total = integers(0, BLOCKS * THREADS), integers(1, 1), integers(2, THREADS)
    turn, result = alloc(AddrSpace.SHARED, dtypes.i32, 1), alloc(AddrSpace.REG, dtypes.i32, 1)

    def fence(scope: Fence | None) -> None:
        if scope is not None:
            c.fence(scope)

    c.store(partial.index(block * THREADS + t), t.cast(dtypes.i32) + 1)
    if each:
        fence(done)
    if met:
        c.barrier()
    with c.when(t < 1):
        if not each and ticket != "late fence":
            fence(done)
        old = _draw(c, tickets.index(0), ticket)
        if not each:
            fence(found)
        c.store(turn.index(0), old)
    c.barrier()
    last = c.load(turn.index(0)).eq(BLOCKS - 1)
    if each:
        fence(found)
    with c.when(last if ticket != "unread" else block < BLOCKS):
        c.store(result.index(0), 0)
        with c.loop(range_(BLOCKS, 3)) as k:
            one = c.load(partial.index(k * THREADS + (THREADS - 1 - t)))
            c.store(result.index(0), c.load(result.index(0)) + one)
        c.store(total.index(t), c.load(result.index(0)))
    if resets:
        c.store(tickets.index(0), 0, last & (t < 1))
    return c.sink()


def _draw(c: Cursor, at: UOp, ticket: str) -> UOp:
    if ticket == "plain":
        old = c.load(at)
        c.store(at, old + 1)
        return old
    old = c.atomic(Atomic.ADD, at, 1)
    return UOp.const(0, dtypes.i32) if ticket == "unread" else old


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("resets", [False, True])
def test_fences_on_both_sides_of_a_ticket_order_blocks(each: bool, resets: bool) -> None:
    """One thread fences for the block that it has met, or all do for themselves; the ticket's
    plain reset is ordered after all tickets, too."""
    for found, (_, tickets, total) in outcomes(last_block(each=each, resets=resets)):
        assert found.faults == ()
        assert (total == BLOCKS * (THREADS - np.arange(THREADS))).all()
        assert tickets[0] == (0 if resets else BLOCKS)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("instead", [None, Fence.BLOCK])
def test_neither_fence_can_go_nor_be_of_the_block(
    each: bool, side: int, instead: Fence | None
) -> None:
    fences: list[Fence | None] = [Fence.DEVICE, Fence.DEVICE]
    fences[side] = instead
    assert always(last_block(fences[0], fences[1], each=each), "RACE")


@pytest.mark.parametrize("ticket", ["late fence", "plain", "unread"])
def test_the_ticket_is_an_atomic_after_the_fence_whose_value_counts(ticket: str) -> None:
    assert always(last_block(ticket=ticket), "RACE")


def test_a_fence_is_for_those_that_were_met_before() -> None:
    assert always(last_block(met=False), "RACE")
    assert always(last_block(met=False, each=True), "RACE")


def test_both_fences_of_the_example_are_needed() -> None:
    """Each one deleted; plain runs of these mutants show no harm."""
    example = EXAMPLES["last_block"]
    mutants = [m for m in synchronisation_mutants(example.build()) if m.original.op is Ops.FENCE]
    assert len(mutants) == 2
    for mutant in mutants:
        run = Program(checked(mutant.sink))
        for order in ORDERS:
            assert {f.kind.name for f in run.run(example.arrays(), order).faults} == {"RACE"}


# ---- what an atomic has found is what was there in this run
def test_a_kernel_that_does_not_look_is_judged_by_its_order() -> None:
    """Block 1 reads whatever its atomic returned: only where block 0 came first is that ordered."""
    c = Cursor()
    block, (_, lane) = range_(2, 0, AxisType.GLOBAL), threads(1)
    data, flag, out = integers(0, 1), integers(1, 1), integers(2, 2)
    with c.when((lane < 1) & block.eq(0)):
        c.store(data.index(0), 7)
        c.fence(Fence.DEVICE)
        c.atomic(Atomic.EXCHANGE, flag.index(0), 1)
    with c.when((lane < 1) & block.eq(1)):
        c.store(out.index(0), c.atomic(Atomic.ADD, flag.index(0), 0))
        c.fence(Fence.DEVICE)
        c.store(out.index(1), c.load(data.index(0)))
    for found, (_, _, (seen, value)) in outcomes(c.sink()):
        assert {f.kind.name for f in found.faults} == (set() if seen else {"RACE"})
        assert not seen or value == 7


# ---- knowledge goes on
def chain(middle: bool, ends: bool = True) -> UOp:
    """Block 0 tells block 1, that one tells block 2, which reads what block 0 has written."""
    c = Cursor()
    block, (_, lane) = range_(3, 0, AxisType.GLOBAL), threads(1)
    data, flags, out = integers(0, 1), integers(1, 2), integers(2, 2)

    def fence(needed: bool) -> None:
        if needed:
            c.fence(Fence.DEVICE)

    with c.when((lane < 1) & block.eq(0)):
        c.store(data.index(0), 7)
        fence(ends)
        c.atomic(Atomic.EXCHANGE, flags.index(0), 1)
    with c.when((lane < 1) & block.eq(1)):
        seen = c.atomic(Atomic.CAS, flags.index(0), 2, 1)
        fence(middle)
        with c.when(seen.eq(1)):
            c.atomic(Atomic.MAX, flags.index(1), 1)
    with c.when((lane < 1) & block.eq(2)):
        seen = c.atomic(Atomic.OR, flags.index(1), 0)
        fence(ends)
        with c.when(seen.eq(1)):
            c.store(out.index(0), c.load(data.index(0)))
            c.store(out.index(1), 1)
    return c.sink()


def test_knowledge_goes_through_a_block_whose_fence_is_on_both_sides() -> None:
    for found, (_, _, (value, crossed)) in outcomes(chain(middle=True)):
        assert found.faults == () and value == 7 * crossed
    assert any(crossed for _, (_, _, (_, crossed)) in outcomes(chain(middle=True)))


@pytest.mark.parametrize(("middle", "ends"), [(False, True), (True, False)])
def test_each_fence_of_a_chain_is_needed_where_data_crosses(middle: bool, ends: bool) -> None:
    for found, (_, _, (_, crossed)) in outcomes(chain(middle, ends)):
        assert {f.kind.name for f in found.faults} == ({"RACE"} if crossed else set())


# ---- inside a block
def message(
    before: bool = True, after: bool = True, meets: bool = True, scope: Fence = Fence.BLOCK
) -> UOp:
    """Warp 0 fills a tile, its lane 0 sets a shared flag; warp 1 looks, and reads if it is set."""
    c = Cursor()
    warp, lane = threads(2)
    tile, flag = (alloc(AddrSpace.SHARED, dtypes.i32, size, n) for n, size in enumerate((32, 1)))
    out = integers(0, 32)
    c.store(flag.index(0), 0, (warp < 1) & (lane < 1))
    c.barrier()
    with c.role("writer", 0, 1):
        c.store(tile.index(lane), lane.cast(dtypes.i32) + 1)
        if meets:
            c.syncwarp()
        with c.when(lane < 1):
            if before:
                c.fence(scope)
            c.atomic(Atomic.EXCHANGE, flag.index(0), 1)
    with c.role("reader", 1, 1):
        found = alloc(AddrSpace.REG, dtypes.i32, 1)
        c.store(found.index(0), 0)
        with c.when(lane < 1):
            c.store(found.index(0), c.atomic(Atomic.ADD, flag.index(0), 0))
            if after:
                c.fence(scope)
        if meets:
            c.syncwarp()
        with c.when(c.load(found.index(0)).warp_reduce(Combine.ADD).eq(1)):
            c.store(out.index(lane), c.load(tile.index(31 - lane)))
    return c.sink()


@pytest.mark.parametrize("scope", [Fence.BLOCK, Fence.DEVICE])
def test_a_message_through_shared_memory(scope: Fence) -> None:
    crossed = 0
    for found, (out,) in outcomes(message(scope=scope)):
        assert found.faults == ()
        crossed += (out == 32 - np.arange(32)).all()
        assert out.any() == (out == 32 - np.arange(32)).all()
    assert crossed


@pytest.mark.parametrize("gone", ["before", "after", "meets"])
def test_nothing_of_a_message_can_go(gone: str) -> None:
    found = [(out.any(), {f.kind.name for f in o.faults}) for o, (out,) in outcomes(_without(gone))]
    assert any(crossed for crossed, _ in found)
    assert all(faults == ({"RACE"} if crossed else set()) for crossed, faults in found)


def _without(gone: str) -> UOp:
    builds: dict[str, Callable[[], UOp]] = {
        "before": lambda: message(before=False),
        "after": lambda: message(after=False),
        "meets": lambda: message(meets=False),
    }
    return builds[gone]()


def lanes_apart(reads: int) -> UOp:
    """Each lane of warp 0 tells its own flag; the same lane of warp 1 reads what the lane `reads`
    further has written."""
    c = Cursor()
    warp, lane = threads(2)
    tile, flags = (alloc(AddrSpace.SHARED, dtypes.i32, 32, n) for n in range(2))
    out = integers(0, 32)
    c.store(flags.index(lane), 0, warp < 1)
    c.barrier()
    with c.role("writer", 0, 1):
        c.store(tile.index(lane), lane.cast(dtypes.i32) + 1)
        c.fence(Fence.BLOCK)
        c.atomic(Atomic.EXCHANGE, flags.index(lane), 1)
    with c.role("reader", 1, 1):
        seen = c.atomic(Atomic.ADD, flags.index(lane), 0)
        c.fence(Fence.BLOCK)
        with c.when(seen.eq(1)):
            c.store(out.index(lane), c.load(tile.index((lane + reads) % 32)))
    return c.sink()


def test_a_lane_releases_and_acquires_for_itself() -> None:
    crossed = 0
    for found, (out,) in outcomes(lanes_apart(0)):
        assert found.faults == ()
        crossed += bool(out.all())
    assert crossed
    for found, (out,) in outcomes(lanes_apart(1)):
        assert {f.kind.name for f in found.faults} == ({"RACE"} if out.any() else set())


# ---- against brute force
@pytest.mark.parametrize("seed", range(80))
def test_random_kernels_race_where_brute_force_says_so(seed: int) -> None:
    rng = random.Random(seed)
    blocks = rng.choice((1, 2, 2, 3))
    program = steps(rng, blocks)
    source = checked(kernel(program, blocks))
    run = Program(source)
    for order in ORDERS[::3]:
        given = arrays(program)
        initialised = frozenset((DATA, FLAGS, LOG))
        options = RunOptions(order.order, order.lanes, all_faults=True, initialised=initialised)
        found = run.run([given[p.slot] for p in source.params], options)
        races = Judge(program, blocks, given[LOG]).races()
        assert {f.kind.name for f in found.faults} == ({"RACE"} if races else set())


# ---- what it costs, and what is said
def test_kernels_without_fences_or_without_atomics_pay_nothing() -> None:
    assert ".fences = 1" in checked(EXAMPLES["last_block"].build())
    for name in ("histogram", "named_barriers", "mbarrier_handover"):
        assert ".fences" not in checked(EXAMPLES[name].build())


@pytest.mark.parametrize(
    ("done", "found", "said"),
    [
        (None, Fence.DEVICE, "or hand it over: fence(DEVICE) after the STORE at "),
        (Fence.DEVICE, None, "or hand it over: fence(DEVICE) after the ATOMIC at "),
        (None, None, ", and fence(DEVICE) after the ATOMIC at "),
    ],
)
def test_a_report_says_which_fence_is_missing(
    done: Fence | None, found: Fence | None, said: str
) -> None:
    sizes = (BLOCKS * THREADS, 1, THREADS)
    verdict = uopc.check(last_block(done, found), *(np.zeros(n, np.int32) for n in sizes))
    assert said in verdict.faults[0].hint

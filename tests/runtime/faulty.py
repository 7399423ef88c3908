"""Small kernels, right and wrong, of one block or two: what each fault looks like.

Each is a function (cursor, warp, lane, block, x, y) that writes effects; x is an input, y an
output, of one f32 a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AccessArg, Atomic, AxisType, Engine, Fence, Ops, ShuffleMode

Build = Callable[[Cursor, UOp, UOp, UOp, UOp, UOp], object]
FULL, EMPTY = 0, 1


@dataclass(frozen=True)
class Case:
    """A kernel and the fault that every order of it shows: a name of FaultKind, several that depend
    on the order with | between, or "ok"."""

    name: str
    wants: str
    build: Build
    warps: int = 1
    blocks: int = 1
    size: int = 0
    initialised: frozenset[int] | None = None

    def kernel(self) -> UOp:
        c = Cursor()
        warp, lane = range_(self.warps, 1, AxisType.WARP), range_(32, 2, AxisType.LANE)
        block = range_(self.blocks, 0, AxisType.GLOBAL)
        size = self.size or 32 * self.warps * self.blocks
        x, y = (buffer(slot, dtypes.f32, (size,)) for slot in (0, 1))
        self.build(c, warp, lane, block, x, y)
        return c.sink()


def number(n: int) -> UOp:
    return UOp.const(n, dtypes.index)


def tile(size: int = 64) -> UOp:
    return alloc(AddrSpace.SHARED, size=size)


def mbarriers(size: int = 1, slot: int = FULL) -> UOp:
    return alloc(AddrSpace.MBARRIER, dtypes.u64, size, slot)


def thread(warp: UOp, lane: UOp) -> UOp:
    return warp * 32 + lane


# ---- shared memory between lanes and warps
def exchange(meet: str, to: Callable[[UOp], UOp] = lambda lane: lane, again: str = "") -> Build:
    """Each lane writes, all `meet`, each reads its neighbour's; again: write once more."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        s, t = tile(), thread(warp, lane)
        c.store(s.index(warp * 32 + to(lane)), x.index(t).load())
        _meet(c, meet)
        c.store(y.index(t), c.load(s.index(warp * 32 + (lane + 1) % 32)))
        if again:
            _meet(c, again)
            c.store(s.index(t), 1.0)

    return build


def _meet(c: Cursor, how: str) -> None:
    if how == "warp":
        c.syncwarp()
    elif how == "block":
        c.barrier()


def other_warp(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    s, t = tile(), thread(warp, lane)
    c.store(s.index(t), 1.0)
    c.syncwarp()
    c.store(y.index(t), c.load(s.index((t + 32) % 64)))


def never_written(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    c.store(y.index(lane), c.load(tile().index(lane)))


def half_a_warp(members: int, reach: int) -> Build:
    """Eight lanes meet apart from the others and read among the first `reach`."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        s = tile()
        c.store(s.index(lane), 1.0)
        with c.when(lane < 8):
            c.syncwarp(members)
            c.store(y.index(lane), c.load(s.index((lane + 1) % reach)))
        with c.when(number(7) < lane):
            c.store(y.index(lane), 0.0)

    return build


def read_apart(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    """Lanes read one element, meet by twos, and one of each pair writes: the reads of the pairs
    are not ordered with each other."""
    s = tile()
    with c.when(lane < 1):
        c.store(s.index(0), 1.0)
    c.syncwarp()
    with c.when(lane < 2):
        c.store(y.index(lane), c.load(s.index(0)))
        c.syncwarp(0b11)
    with c.when(lane < 1):
        c.store(s.index(0), 2.0)
    with c.when(number(1) < lane):
        c.store(y.index(lane), 0.0)


# ---- registers, bounds, alignment
def half_a_register_array(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    r = alloc(AddrSpace.REG, size=2)
    c.store(r.index(0), 1.0)
    c.store(y.index(lane), c.load(r.index(1)))


def outside(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    c.store(y.index(lane + 1), 1.0)


def outside_but_gated(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    at = lane + 1
    c.store(y.index(at), x.index(at).load(gate=at < 32), gate=at < 32)
    c.store(y.index(0), 1.0, gate=lane < 1)


def outside_by_data(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    """x holds 0, 1, 2 ...: the index is right for all lanes but the last."""
    at = x.index(lane).load().cast(dtypes.i32).cast(dtypes.index)
    c.store(y.index((at + 1).maximum(0)), 1.0)


def wrapping_index(gate: int = 32) -> Build:
    """x holds 0, 1, 2 ...: a row has 2**32 elements, of which i32 makes none."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        row = x.index(lane).load().cast(dtypes.i32) * (1 << 16) * (1 << 16)
        c.store(y.index(row.cast(dtypes.index) + lane), 1.0, gate=lane < gate)
        c.store(y.index(lane), 1.0)

    return build


def misaligned(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    r = alloc(AddrSpace.REG, size=2)
    c.store(r.index(0), 1.0)
    c.store(r.index(1), 1.0)
    pair = UOp(Ops.LOAD, (c.now(r).index(0),), AccessArg(2))
    c.do(Ops.STORE, y.index(lane * 2 + lane % 2), pair, arg=AccessArg(2))


# ---- outputs
def two_lanes(value: Callable[[UOp], UOp]) -> Build:
    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        c.store(y.index(lane // 2), value(lane))

    return build


def two_blocks(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    c.store(y.index(lane), block.cast(dtypes.f32))


def one_left_out(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    c.store(y.index(lane), 1.0, gate=lane < 31)


def neighbours_output(meet: str) -> Build:
    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        t, r = thread(warp, lane), alloc(AddrSpace.REG)
        c.store(y.index(t), 1.0)
        _meet(c, meet)
        c.store(r.index(0), c.load(y.index((t + 1) % 64)))
        _meet(c, meet)
        c.store(y.index(t), c.load(r.index(0)))

    return build


def three_readers(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    """All warps read an element that one of them has written, and one of them writes it."""
    t, r = thread(warp, lane), alloc(AddrSpace.REG)
    c.store(y.index(t), 1.0)
    c.barrier()
    c.store(r.index(0), c.load(y.index(0)))
    with c.when(t.eq(70)):
        c.store(y.index(0), c.load(r.index(0)) + 1.0)


# ---- atomics
def atomics(then: str = "") -> Build:
    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        c.atomic(Atomic.ADD, y.index(lane // 4), 1.0)
        if then == "store":
            c.store(y.index(lane), 2.0)
        elif then == "load":
            c.store(y.index(lane + 32), c.load(y.index(lane // 4)))

    return build


# ---- warps
def shuffle_in_a_branch(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    value = c.load(x.index(lane))
    with c.when(lane < 16):
        c.store(y.index(lane), c.now(value).shuffle(1, ShuffleMode.DOWN))


def barrier_for(who: Callable[[UOp, UOp], UOp]) -> Build:
    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        with c.when(who(warp, lane)):
            c.barrier()
        c.store(y.index(thread(warp, lane)), 1.0)

    return build


def two_barriers(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    """Each half of the block comes to a barrier of its own text."""
    with c.when(warp < 1):
        c.barrier()
    with c.when(number(0) < warp):
        c.barrier()
    c.store(y.index(thread(warp, lane)), 1.0)


def named(threads: int) -> Build:
    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        s, t = tile(), thread(warp, lane)
        c.store(s.index(t), 1.0)
        c.named_barrier(number(3), threads)
        c.store(y.index(t), c.load(s.index(63 - t)))

    return build


def asserts(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    c.check(lane < 31, "a lane too far")
    c.store(y.index(lane), 2.0)


# ---- mbarriers
def handover(who: str, meets: bool = True, initialised: bool = True) -> Build:
    """Warp 0 writes and arrives (its lane 0, two lanes, or all), warp 1 waits and reads."""
    arrivals = {"one": 1, "two": 2, "all": 32}[who]

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        s, bar, t = tile(), mbarriers(), thread(warp, lane)
        with c.when(t < 1):
            if initialised:
                c.init(bar.index(0), arrivals)
            else:
                c.store(s.index(63), 0.0)
        c.barrier()
        with c.when(warp < 1):
            c.store(s.index(lane), x.index(lane).load())
            if meets and who == "one":
                c.syncwarp()
            with c.when(lane < arrivals):
                c.arrive(bar.index(0))
            c.store(y.index(lane), 0.0)
        with c.when(number(0) < warp):
            if who == "all":
                with c.when(lane < 1):
                    c.wait(bar.index(0), 0)
                if meets:
                    c.syncwarp()
            else:
                c.wait(bar.index(0), 0)
            two = lane % 2 if meets else lane
            c.store(y.index(t), c.load(s.index(two if who == "two" else lane)))

    return build


def one_too_many(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    bar = mbarriers()
    with c.when(lane < 1):
        c.init(bar.index(0), 1)
        c.arrive(bar.index(0), 16)
        c.arrive(bar.index(0))
    c.store(y.index(lane), 0.0)


def a_barrier_for_each_lane(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    s, bar, t = tile(), mbarriers(32), thread(warp, lane)
    with c.when(warp < 1):
        c.init(bar.index(lane), 1)
    c.barrier()
    with c.when(warp < 1):
        c.store(s.index(lane), x.index(lane).load())
        c.arrive(bar.index(lane))
        c.store(y.index(lane), 0.0)
    with c.when(number(0) < warp):
        c.wait(bar.index(lane), 0)
        c.store(y.index(t), c.load(s.index(lane)))


# ---- cp.async
def copied(*then: str) -> Build:
    """16 bytes a lane; then "wait", "warp"; last, its own element or its neighbour's is read."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        s = tile(128)
        c.copy_async(s.index(lane * 4), x.index(lane * 4), 4)
        c.commit(Engine.CP_ASYNC)
        for what in then:
            if what == "wait":
                c.wait_group(Engine.CP_ASYNC)
            else:
                _meet(c, what)
        shift = 0 if then[-1:] == ("own",) else 4
        for k in range(4):
            c.store(y.index(lane * 4 + k), c.load(s.index((lane * 4 + k + shift) % 128)))

    return build


def copied_over(meet: str) -> Build:
    """A lane's copy lands on what its neighbour has written."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        s = tile(128)
        for k in range(4):
            c.store(s.index(lane * 4 + k), -1.0)
        _meet(c, meet)
        c.copy_async(s.index((lane * 4 + 4) % 128), x.index(lane * 4), 4)
        c.commit(Engine.CP_ASYNC)
        c.wait_group(Engine.CP_ASYNC)
        c.syncwarp()
        for k in range(4):
            c.store(y.index(lane + 32 * k), c.load(s.index(lane)))

    return build


def written_in_flight(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    s = tile(128)
    c.copy_async(s.index(lane * 4), x.index(lane * 4), 4)
    c.store(s.index(lane * 4), 1.0)
    c.commit(Engine.CP_ASYNC)
    c.wait_group(Engine.CP_ASYNC)
    for k in range(4):
        c.store(y.index(lane + 32 * k), 0.0)


def never_waited_for(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
    s = tile(128)
    c.copy_async(s.index(lane * 4), x.index(lane * 4), 4)
    c.commit(Engine.CP_ASYNC)
    for k in range(4):
        c.store(y.index(lane + 32 * k), 0.0)


# ---- bulk copies
ROWS, COLUMNS, STEPS = 16, 32, 8
SIDE = 64


def ring(without: str = "", extra_bytes: int = 0, at: int = 0, lanes: int = 1) -> Build:
    """Warp 0 brings boxes of a 64x64 matrix into a ring of two tiles, warp 1 stores them."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        x, y = (buffer(slot, dtypes.f32, (SIDE, SIDE)) for slot in (0, 1))
        area = ROWS * COLUMNS
        s, full, empty = tile(2 * area + 64), mbarriers(2, FULL), mbarriers(2, EMPTY)
        view = tensor_map(x, (ROWS, COLUMNS))
        with c.when((lane < 1) & (warp < 1)):
            for n in range(2):
                c.init(full.index(n), lanes)
                c.init(empty.index(n), 1)
            if without != "init fence":
                c.fence(Fence.MBAR_INIT)
        c.barrier()
        with c.role("producer", 0, 1), c.when(lane < lanes), c.loop(range_(STEPS, 2)) as k:
            stage = k % 2
            if without != "empty":
                c.wait(empty.index(stage), (k // 2 + 1) % 2)
            c.arrive(full.index(stage), area * 4 + extra_bytes)
            to = s.index(stage * area + at)
            c.bulk_load(to, view, full.index(stage), k // 2 * ROWS, k % 2 * COLUMNS)
        with c.role("consumer", 1, 1), c.loop(range_(STEPS, 3)) as k:
            stage = k % 2
            if without != "full":
                c.wait(full.index(stage), k // 2 % 2)
            with c.loop(range_(ROWS, 4)) as row:
                value = c.load(s.index(stage * area + row * COLUMNS + lane + at))
                c.store(y.index(k // 2 * ROWS + row, k % 2 * COLUMNS + lane), value)
            if without != "proxy fence":
                c.fence(Fence.PROXY_ASYNC)
            if without != "warp":
                c.syncwarp()
            with c.when(lane < 1):
                c.arrive(empty.index(stage))

    return build


def stored(without: str = "") -> Build:
    """A tile is written three times and goes out each time in two boxes."""

    def build(c: Cursor, warp: UOp, lane: UOp, block: UOp, x: UOp, y: UOp) -> None:
        out = buffer(1, dtypes.f32, (40, SIDE))
        s, view = tile(ROWS * COLUMNS), tensor_map(out, (ROWS, COLUMNS))
        with c.loop(range_(3, 2)) as turn:
            with c.loop(range_(ROWS, 3)) as row:
                c.store(s.index(row * COLUMNS + lane), (turn * 100 + row).cast(dtypes.f32))
            if without != "proxy fence":
                c.fence(Fence.PROXY_ASYNC)
            if without != "warp":
                c.syncwarp()
            with c.when(lane < 1):
                for column in (0, COLUMNS):
                    c.bulk_store(view, s.index(0), turn * ROWS, number(column))
                c.commit(Engine.BULK)
                if without != "wait":
                    c.wait_group(Engine.BULK, read=True)
            if without != "last warp":
                c.syncwarp()

    return build


HALF, BOTH = SIDE * 40, SIDE * SIDE
CASES = (
    Case("exchange", "ok", exchange("warp"), 2),
    Case("exchange by a block barrier", "ok", exchange("block"), 2),
    Case("exchange without meeting", "RACE", exchange(""), 2),
    Case("two lanes write one element", "RACE", exchange("warp", lambda lane: lane // 2)),
    Case("write after a neighbour's read", "RACE", exchange("warp", again="none")),
    Case("write after meeting again", "ok", exchange("warp", again="warp")),
    Case("another warp's element", "RACE", other_warp, 2),
    Case("nobody has written it", "UNINITIALISED", never_written),
    Case("eight lanes meet", "ok", half_a_warp(0xFF, 8)),
    Case("eight lanes meet and read more", "RACE", half_a_warp(0xFF, 16)),
    Case("eight lanes meet, all are named", "MEMBERS", half_a_warp(0xFFFFFFFF, 8)),
    Case("two lanes have read, and met", "ok", read_apart),
    Case("half a register array", "UNINITIALISED", half_a_register_array),
    Case("one element outside", "BOUNDS", outside),
    Case("gates keep it inside", "ok", outside_but_gated),
    Case("an index from data", "BOUNDS", outside_by_data),
    Case("an index that wraps", "INDEX_OVERFLOW", wrapping_index()),
    Case("a gate before it wraps", "ok", wrapping_index(gate=1)),
    Case("pairs at odd places", "MISALIGNED", misaligned, size=96),
    Case("equal values", "SAME_VALUE", two_lanes(lambda lane: UOp.const(1.0, dtypes.f32)), size=16),
    Case("unequal values", "RACE", two_lanes(lambda lane: lane.cast(dtypes.f32)), size=16),
    Case("two blocks write it", "RACE", two_blocks, blocks=2, size=32),
    Case("one is left out", "UNWRITTEN", one_left_out),
    Case("one is left as it was", "ok", one_left_out, initialised=frozenset((1,))),
    Case("a neighbour's output", "RACE", neighbours_output(""), 2, initialised=frozenset()),
    Case("a neighbour's output, in order", "ok", neighbours_output("block"), 2),
    Case("read by three warps and written", "RACE", three_readers, 3),
    Case("atomics", "ok", atomics(), 2),
    Case("an atomic and a store", "RACE", atomics("store"), 2),
    Case("an atomic and a load", "RACE", atomics("load"), 2),
    Case("a shuffle in a branch", "MEMBERS", shuffle_in_a_branch, initialised=frozenset((1,))),
    Case(
        "half a warp at a barrier",
        "DIVERGENT_BARRIER",
        barrier_for(lambda warp, lane: lane < 16),
        2,
    ),
    Case("one warp at a barrier", "DIVERGENT_BARRIER", barrier_for(lambda warp, lane: warp < 1), 2),
    Case("two barriers", "DIVERGENT_BARRIER", two_barriers, 2),
    Case("a named barrier", "ok", named(64), 2),
    Case("a named barrier for more", "DEADLOCK", named(96), 2),
    Case("an assertion", "ASSERTION", asserts),
    Case("one lane arrives", "ok", handover("one"), 2),
    Case("one lane arrives for others", "RACE", handover("one", meets=False), 2),
    Case("two lanes arrive", "ok", handover("two"), 2),
    Case("two lanes arrive for others", "RACE", handover("two", meets=False), 2),
    Case("one lane waits", "ok", handover("all"), 2),
    Case("one lane waits for others", "RACE", handover("all", meets=False), 2),
    Case("an arrival while bytes are missing", "MBARRIER", one_too_many),
    Case("no initialisation", "MBARRIER", handover("one", initialised=False), 2),
    Case("a barrier for each lane", "ok", a_barrier_for_each_lane, 2),
    Case("copied, waited, met", "ok", copied("wait", "warp"), size=128),
    Case("copied, waited, not met", "RACE", copied("wait"), size=128),
    Case("copied, met, not waited", "RACE", copied("warp"), size=128),
    Case("copied, waited, its own", "ok", copied("wait", "own"), size=128),
    Case("copied, its own, not waited", "RACE", copied("own"), size=128),
    Case("copied over a neighbour's", "ok", copied_over("warp"), size=128),
    Case("copied over it, not met", "RACE", copied_over(""), size=128),
    Case("written in flight", "RACE", written_in_flight, size=128),
    Case("never waited for", "UNWAITED", never_waited_for, size=128),
    Case("ring", "ok", ring(), 2, size=BOTH),
    Case("ring without empty", "RACE|MBARRIER", ring("empty"), 2, size=BOTH),
    Case("ring without full", "RACE|UNINITIALISED|MBARRIER", ring("full"), 2, size=BOTH),
    Case("ring without proxy fence", "PROXY_FENCE", ring("proxy fence"), 2, size=BOTH),
    Case("ring without meeting", "RACE", ring("warp"), 2, size=BOTH),
    Case("ring without its init fence", "MBARRIER", ring("init fence"), 2, size=BOTH),
    Case("ring that waits for more bytes", "DEADLOCK", ring(extra_bytes=16), 2, size=BOTH),
    Case("ring at an odd place", "COPY", ring(at=4), 2, size=BOTH),
    Case("ring by two lanes", "COPY", ring(lanes=2), 2, size=BOTH),
    Case("bulk store", "ok", stored(), size=HALF),
    Case("bulk store without proxy fence", "PROXY_FENCE", stored("proxy fence"), size=HALF),
    Case("bulk store without meeting", "RACE", stored("warp"), size=HALF),
    Case("bulk store that is not waited for", "RACE", stored("wait"), size=HALF),
    Case("bulk store for which one lane waits", "RACE", stored("last warp"), size=HALF),
)

"""The judge itself against kernels small enough to judge by hand, under many schedules.

Every case names the kinds of fault that CUDA's rules give it; none where it is clean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.happens_before.machine import Outcome, Schedule, run
from tests.happens_before.small import (
    arrays_for,
    blocks,
    equal_bits,
    mbarriers,
    number,
    program,
    registers,
    shared,
    threads,
)
from uopc.dtype import dtypes
from uopc.examples import EXAMPLES, Example
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, memory, prod, range_, toposort
from uopc.uop.ops import AccessArg, Atomic, Combine, Engine, Fence, Ops, ShuffleMode, Vote

SCHEDULES = (
    Schedule(0, "forward", "early"),
    Schedule(1, "backward", "late"),
    *(Schedule(seed, "random", "random", fine=bool(seed & 1)) for seed in range(2, 7)),
)
CASES: dict[str, tuple[Callable[[Case], None], frozenset[str], int]] = {}


@dataclass
class Case:
    """What a small kernel is made of: y is written, x and z are read."""

    size: int

    def __post_init__(self) -> None:
        self.c = Cursor()
        self.t = threads(self.size)
        self.y = buffer(0, dtypes.i32, (self.size,))
        self.x = buffer(1, dtypes.i32, (self.size,))
        self.s = shared(self.size)
        self.bar = mbarriers(2)

    @property
    def lane(self) -> UOp:
        return self.t % 32

    @property
    def mine(self) -> UOp:
        """A value of this thread's own."""
        return self.t.cast(dtypes.i32) * 3 + 1

    def write(self, at: UOp | None = None, value: UOp | None = None) -> None:
        at = self.t if at is None else at
        self.c.store(self.s.index(at), self.mine if value is None else value)

    def out(self, value: UOp) -> None:
        self.c.store(self.y.index(self.t), value)

    def read(self, at: UOp) -> UOp:
        return self.c.load(self.s.index(at))

    def init(self, count: int = 1, fence: bool = False) -> None:
        """Thread 0 initialises both mbarriers, all threads see it."""
        with self.c.when(self.t < 1):
            self.c.init(self.bar.index(0), count)
            self.c.init(self.bar.index(1), count)
            if fence:
                self.c.fence(Fence.MBAR_INIT)
        self.c.barrier()


def case(*kinds: str, size: int = 64) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    def add(build: Callable[[Case], None]) -> Callable[[Case], None]:
        CASES[build.__name__] = (build, frozenset(kinds), size)
        return build

    return add


# ---- barriers of the block
@case()
def barrier_orders(k: Case) -> None:
    k.write()
    k.c.barrier()
    k.out(k.read(63 - k.t))


@case("RACE")
def no_barrier(k: Case) -> None:
    k.write()
    k.out(k.read(63 - k.t))


@case("RACE")
def lanes_are_not_in_lockstep(k: Case) -> None:
    k.write()
    k.out(k.read(k.t ^ 1))


@case()
def own_element_needs_nothing(k: Case) -> None:
    k.write()
    k.out(k.read(k.t))


@case("RACE")
def reuse_without_a_second_barrier(k: Case) -> None:
    k.write()
    k.c.barrier()
    k.c.store(k.y.index(k.t), k.read(63 - k.t))
    k.write(value=k.mine + 1)


@case("RACE")
def loop_without_a_barrier_at_its_end(k: Case) -> None:
    with k.c.loop(range_(3, 1)) as i:
        k.write(value=k.mine + i.cast(dtypes.i32))
        k.c.barrier()
        k.out(k.read(63 - k.t))


@case()
def loop_with_both_barriers(k: Case) -> None:
    with k.c.loop(range_(3, 1)) as i:
        k.write(value=k.mine + i.cast(dtypes.i32))
        k.c.barrier()
        k.out(k.read(63 - k.t))
        k.c.barrier()


@case("DIVERGENT_BARRIER")
def barrier_of_some_lanes(k: Case) -> None:
    with k.c.when(k.t < 20):
        k.c.barrier()
    k.out(k.mine)


@case("DIVERGENT_BARRIER")
def barrier_of_one_warp(k: Case) -> None:
    with k.c.when(k.t < 32):
        k.c.barrier()
    k.out(k.mine)


@case()
def barrier_under_a_condition_of_the_block(k: Case) -> None:
    with k.c.loop(range_(3, 1)) as i:
        k.write(value=k.mine + i.cast(dtypes.i32))
        with k.c.when(i < 9):
            k.c.barrier()
        k.out(k.read(63 - k.t))
        k.c.barrier()


@case("UNINITIALISED")
def read_before_anybody_writes(k: Case) -> None:
    k.out(k.read(63 - k.t))
    k.c.barrier()
    k.write()


@case("RACE")
def read_that_may_come_before_the_write(k: Case) -> None:
    with k.c.when(k.t < 1):
        k.write()
    k.out(k.read(number(0)))


@case("UNINITIALISED")
def half_of_the_array_is_written(k: Case) -> None:
    with k.c.when(k.t < 32):
        k.write()
    k.c.barrier()
    k.out(k.read(63 - k.t))


@case("SAME_VALUE")
def all_write_the_same(k: Case) -> None:
    k.write(k.t * 0, UOp.const(5, dtypes.i32))
    k.c.barrier()
    k.out(k.read(number(0)))


@case("RACE")
def all_write_their_own(k: Case) -> None:
    k.write(k.t * 0)
    k.c.barrier()
    k.out(k.mine)


# ---- __syncwarp
@case()
def syncwarp_orders_its_warp(k: Case) -> None:
    k.write()
    k.c.syncwarp()
    k.out(k.read(k.t ^ 5))


@case("RACE")
def syncwarp_orders_no_other_warp(k: Case) -> None:
    k.write()
    k.c.syncwarp()
    k.out(k.read(63 - k.t))


@case()
def syncwarp_of_half_a_warp(k: Case) -> None:
    with k.c.when(k.lane < 16):
        k.write()
        k.c.syncwarp(0xFFFF)
        k.c.store(k.y.index(k.t), k.read(k.t ^ 1))
    with k.c.when(k.lane > 15):
        k.out(k.mine)


@case("RACE")
def half_a_warp_orders_not_the_other_half(k: Case) -> None:
    k.write()
    with k.c.when(k.lane < 16):
        k.c.syncwarp(0xFFFF)
        k.c.store(k.y.index(k.t), k.read(k.t ^ 16))
    with k.c.when(k.lane > 15):
        k.out(k.mine)


@case("MEMBERS")
def members_that_do_not_come(k: Case) -> None:
    with k.c.when(k.lane < 16):
        k.c.syncwarp()
    k.out(k.mine)


@case("MEMBERS")
def caller_that_is_no_member(k: Case) -> None:
    k.out(k.mine)
    k.c.syncwarp(0xFF)


@case()
def lanes_that_do_not_exist_are_not_waited_for(k: Case) -> None:
    k.write()
    k.c.syncwarp()
    k.c.barrier()
    k.out(k.read(32 - k.t))


CASES["lanes_that_do_not_exist_are_not_waited_for"] = (
    lanes_that_do_not_exist_are_not_waited_for,
    frozenset(),
    33,
)


# ---- shuffles and votes
@case()
def shuffle_moves_values(k: Case) -> None:
    k.out(k.mine.shuffle(3) + k.mine.shuffle(2, ShuffleMode.UP))


@case("RACE")
def shuffles_order_no_memory(k: Case) -> None:
    k.write()
    v = k.read(k.t).shuffle(1)
    k.c.store(k.y.index(k.t), v)
    k.write(k.t ^ 1, v + 1)


@case("RACE")
def votes_order_no_memory(k: Case) -> None:
    k.write()
    n = (k.read(k.t) < 50).vote(Vote.BALLOT)
    k.c.store(k.y.index(k.t), n.cast(dtypes.i32))
    k.write(k.t ^ 1)


@case("MEMBERS")
def shuffle_of_some_lanes_with_all_members(k: Case) -> None:
    k.out(k.mine)
    with k.c.when(k.lane < 16):
        v = k.c.load(k.y.index(k.t)).shuffle(1)
        k.c.store(k.y.index(k.t), v)


@case()
def shuffle_of_some_lanes_among_themselves(k: Case) -> None:
    k.out(k.mine)
    with k.c.when(k.lane < 16):
        v = k.c.load(k.y.index(k.t)).shuffle(1, members=0xFFFF)
        k.c.store(k.y.index(k.t), v)


@case("MEMBERS")
def shuffle_from_a_lane_that_is_no_member(k: Case) -> None:
    k.out(k.mine)
    with k.c.when(k.lane < 16):
        v = k.c.load(k.y.index(k.t)).shuffle(16, members=0xFFFF)
        k.c.store(k.y.index(k.t), v)


@case()
def warp_reduce_reduces(k: Case) -> None:
    k.out(k.mine.warp_reduce(Combine.MAX))


# ---- NAMED barriers
@case()
def named_barrier_of_both_warps(k: Case) -> None:
    k.write()
    k.c.named_barrier(number(1), 64)
    k.out(k.read(63 - k.t))


@case("DEADLOCK", size=96)
def named_barrier_waits_for_one_warp_more(k: Case) -> None:
    with k.c.when(k.t < 64):
        k.c.named_barrier(number(1), 96)
    k.out(k.mine)


@case("DEADLOCK")
def warps_at_barriers_of_other_numbers(k: Case) -> None:
    k.c.named_barrier(1 + k.t // 32, 64)
    k.out(k.mine)


@case("DIVERGENT_BARRIER", "DEADLOCK")
def named_barrier_of_half_a_warp(k: Case) -> None:
    with k.c.when(k.t < 48):
        k.c.named_barrier(number(1), 64)
    k.out(k.mine)


@case("RACE", size=96)
def named_barrier_leaves_the_third_warp_out(k: Case) -> None:
    k.write()
    with k.c.when(k.t < 64):
        k.c.named_barrier(number(1), 64)
        k.c.store(k.y.index(k.t), k.read(95 - k.t))
    with k.c.when(k.t > 63):
        k.out(k.mine)


# ---- atomics
@case()
def atomics_do_not_race(k: Case) -> None:
    with k.c.when(k.t < 1):
        k.write(value=UOp.const(0, dtypes.i32))
    k.c.barrier()
    k.c.atomic(Atomic.ADD, k.s.index(0), k.mine)
    k.c.barrier()
    k.out(k.read(number(0)))


@case("RACE")
def atomics_order_nothing(k: Case) -> None:
    with k.c.when(k.t < 1):
        k.write(value=UOp.const(0, dtypes.i32))
    k.c.barrier()
    k.c.atomic(Atomic.ADD, k.s.index(0), k.mine)
    k.out(k.read(number(0)))


@case("RACE")
def atomic_and_write(k: Case) -> None:
    k.write()
    k.c.atomic(Atomic.MAX, k.s.index(0), k.mine)
    k.out(k.mine)


@case("UNINITIALISED")
def atomic_on_nothing(k: Case) -> None:
    k.c.atomic(Atomic.ADD, k.s.index(0), k.mine)
    k.out(k.mine)


# ---- GLOBAL memory
@case("RACE")
def global_write_and_read(k: Case) -> None:
    k.out(k.mine)
    k.c.store(k.y.index(k.t), k.c.load(k.y.index(63 - k.t)))


@case()
def global_memory_is_ordered_by_a_barrier(k: Case) -> None:
    k.out(k.mine)
    k.c.barrier()
    v = k.c.load(k.y.index(63 - k.t))
    k.c.barrier()
    k.out(v)


@case("UNWRITTEN")
def part_of_the_output(k: Case) -> None:
    with k.c.when(k.t < 60):
        k.out(k.mine)


@case("BOUNDS")
def one_beyond_the_end(k: Case) -> None:
    k.out(k.c.load(k.x.index(k.t + 1)))


@case()
def gated_one_beyond_the_end(k: Case) -> None:
    k.out(k.c.load(k.x.index(k.t + 1), k.t < 63))


@case("MISALIGNED", size=16)
def wide_access_off_its_width(k: Case) -> None:
    two = UOp(Ops.LOAD, (k.x.index(k.t % 15),), AccessArg(2))
    k.c.do(Ops.STORE, k.s.index(k.t % 8 * 2), two, k.t < 8, arg=AccessArg(2))
    k.out(k.mine)


@case("RACE", "SAME_VALUE", size=16)
def wide_writes_overlap(k: Case) -> None:
    two = UOp(Ops.LOAD, (k.x.index(k.t // 2 * 2),), AccessArg(2))
    k.c.do(Ops.STORE, k.s.index(k.t % 4 * 2), two, arg=AccessArg(2))
    k.out(k.mine)


@case("UNINITIALISED", size=4)
def register_without_a_value(k: Case) -> None:
    r = registers(2)
    k.c.store(r.index(0), k.mine)
    k.out(k.c.load(r.index(1)))


@case("ASSERTION")
def assertion(k: Case) -> None:
    k.c.check(k.t < 40, "few")
    k.out(k.mine)


# ---- mbarriers
@case()
def mbarrier_orders(k: Case) -> None:
    k.init(64)
    k.write()
    k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 0)
    k.out(k.read(63 - k.t))


@case("RACE")
def the_other_parity_of_a_fresh_mbarrier_passes(k: Case) -> None:
    k.init(64)
    k.write()
    k.c.wait(k.bar.index(0), 1)
    k.c.arrive(k.bar.index(0))
    k.out(k.read(63 - k.t))


@case("RACE", "MBARRIER", "DEADLOCK")
def fresh_parity_after_the_arrival(k: Case) -> None:
    """Where the phase ends first, the wait is for the next one, which never ends."""
    k.init(64)
    k.write()
    k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 1)
    k.out(k.read(63 - k.t))


@case("DEADLOCK")
def arrivals_are_missing(k: Case) -> None:
    k.init(65)
    k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 0)
    k.out(k.mine)


@case("MBARRIER")
def init_without_a_barrier(k: Case) -> None:
    with k.c.when(k.t < 1):
        k.c.init(k.bar.index(0), 64)
    k.c.arrive(k.bar.index(0))
    k.out(k.mine)


@case()
def one_lane_arrives_for_its_warp(k: Case) -> None:
    k.init(2)
    k.write()
    k.c.syncwarp()
    with k.c.when(k.lane < 1):
        k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 0)
    k.out(k.read(63 - k.t))


@case("RACE")
def one_lane_arrives_without_syncwarp(k: Case) -> None:
    k.init(2)
    k.write()
    with k.c.when(k.lane < 1):
        k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 0)
    k.out(k.read(63 - k.t))


def _ring(k: Case, empty_wait: bool = True, empty_arrive: bool = True) -> None:
    """Warp 0 writes, warp 1 reads, through one stage."""
    k.init(32)
    with k.c.role("producer", 0, 1), k.c.loop(range_(3, 1)) as i:
        if empty_wait:
            k.c.wait(k.bar.index(1), (i + 1) % 2)
        k.write(k.lane, k.mine + i.cast(dtypes.i32))
        k.c.arrive(k.bar.index(0))
    with k.c.role("consumer", 1, 1):
        r = registers(1)
        k.c.store(r.index(0), 0)
        with k.c.loop(range_(3, 2)) as i:
            k.c.wait(k.bar.index(0), i % 2)
            k.c.store(r.index(0), k.c.load(r.index(0)) + k.read(31 - k.lane))
            if empty_arrive:
                k.c.arrive(k.bar.index(1))
        k.c.store(k.y.index(k.lane), k.c.load(r.index(0)))
        k.c.store(k.y.index(k.lane + 32), k.c.load(r.index(0)))


@case()
def ring(k: Case) -> None:
    _ring(k)


@case("RACE", "MBARRIER", "DEADLOCK")
def ring_without_the_empty_wait(k: Case) -> None:
    _ring(k, empty_wait=False)


@case("DEADLOCK")
def ring_without_the_empty_arrival(k: Case) -> None:
    _ring(k, empty_arrive=False)


# ---- cp.async
def _copied(k: Case, pending: int = 0, commit: bool = True, barrier: bool = True) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t))
    if commit:
        k.c.commit(Engine.CP_ASYNC)
    k.c.wait_group(Engine.CP_ASYNC, pending)
    if not commit:
        k.c.commit(Engine.CP_ASYNC)
    if barrier:
        k.c.barrier()
    k.out(k.read(63 - k.t))


@case()
def copy_async(k: Case) -> None:
    _copied(k)


@case("RACE", "UNWAITED")
def copy_async_one_group_pending(k: Case) -> None:
    _copied(k, pending=1)


@case("RACE", "UNWAITED")
def copy_async_with_a_late_commit(k: Case) -> None:
    _copied(k, commit=False)


@case("RACE")
def the_wait_is_for_the_own_thread_only(k: Case) -> None:
    _copied(k, barrier=False)


@case("RACE")
def write_after_an_issued_copy(k: Case) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t))
    k.write()
    k.c.commit(Engine.CP_ASYNC)
    k.c.wait_group(Engine.CP_ASYNC)
    k.out(k.read(k.t))


@case()
def copy_async_gated(k: Case) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t + 4), gate=k.t < 60)
    k.c.commit(Engine.CP_ASYNC)
    k.c.wait_group(Engine.CP_ASYNC)
    k.out(k.read(k.t))


@case("UNWAITED")
def copy_that_nobody_waits_for(k: Case) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t))
    k.out(k.mine)


# ---- bulk copies
def _bulk(
    k: Case, bytes_: int = 256, wait: bool = True, fence: bool = True, lanes: int = 1
) -> None:
    k.init(lanes, fence)
    k.s = shared(64)
    with k.c.when(k.t < lanes):
        k.c.arrive(k.bar.index(0), bytes_)
        k.c.bulk_load(
            k.s.index(0), tensor_map(_matrix(k.x), (4, 16)), k.bar.index(0), number(0), number(0)
        )
    if wait:
        k.c.wait(k.bar.index(0), 0)
    k.out(k.read(63 - k.t))


def _matrix(m: UOp) -> UOp:
    return buffer(memory(m).arg.slot, dtypes.i32, (4, 16))


@case()
def bulk_load(k: Case) -> None:
    _bulk(k)


@case("DEADLOCK")
def bulk_load_of_fewer_bytes(k: Case) -> None:
    _bulk(k, bytes_=272)


@case("RACE", "UNWAITED")
def bulk_load_without_a_wait(k: Case) -> None:
    _bulk(k, wait=False)


@case("MBARRIER")
def init_that_is_not_fenced(k: Case) -> None:
    _bulk(k, fence=False)


def _bulk_store(
    k: Case, fence: str = "before", commit: bool = True, wait: bool = True, read: bool = True
) -> None:
    y = _matrix(k.y)
    k.write()
    if fence == "before":
        k.c.fence(Fence.PROXY_ASYNC)
    k.c.barrier()
    with k.c.when(k.t < 1):
        if fence == "after":
            k.c.fence(Fence.PROXY_ASYNC)
        k.c.bulk_store(tensor_map(y, (4, 16)), k.s.index(0), number(0), number(0))
        if commit:
            k.c.commit(Engine.BULK)
        if wait:
            k.c.wait_group(Engine.BULK, 0, read=read)
        if not commit:
            k.c.commit(Engine.BULK)
    k.c.barrier()
    k.write(value=k.mine + 1)


@case()
def bulk_store(k: Case) -> None:
    _bulk_store(k)


@case("PROXY_FENCE")
def bulk_store_without_a_fence(k: Case) -> None:
    _bulk_store(k, fence="none")


@case("PROXY_FENCE")
def bulk_store_with_a_fence_after_the_release(k: Case) -> None:
    _bulk_store(k, fence="after")


@case("RACE", "UNWAITED")
def bulk_store_with_a_late_commit(k: Case) -> None:
    _bulk_store(k, commit=False)


@case("RACE", "UNWAITED")
def bulk_store_without_wait(k: Case) -> None:
    _bulk_store(k, wait=False)


@case("PROXY_FENCE")
def ordinary_read_before_a_bulk_load(k: Case) -> None:
    k.init(1, True)
    k.write()
    k.c.fence(Fence.PROXY_ASYNC)
    k.c.barrier()
    k.c.store(k.y.index(k.t), k.read(63 - k.t))
    k.c.barrier()
    with k.c.when(k.t < 1):
        k.c.arrive(k.bar.index(0), 256)
        k.c.bulk_load(
            k.s.index(0), tensor_map(_matrix(k.x), (4, 16)), k.bar.index(0), number(0), number(0)
        )
    k.c.wait(k.bar.index(0), 0)
    k.out(k.read(k.t))


# ---- what shows in some orders only
@case("MEMBERS", size=40)
def shuffle_from_a_lane_that_does_not_exist(k: Case) -> None:
    k.out(k.mine.shuffle(8))


@case("MBARRIER", "DEADLOCK")
def wait_that_the_next_phase_may_overtake(k: Case) -> None:
    """Lane 0 may arrive twice before lane 1 comes to its wait, which then waits for ever."""
    k.init(1)
    k.out(k.mine)
    with k.c.when(k.t < 1):
        k.c.arrive(k.bar.index(0))
    with k.c.when(k.t < 8):
        k.c.wait(k.bar.index(0), 0)
    with k.c.when(k.t < 1):
        k.c.arrive(k.bar.index(0))


@case("MBARRIER", "DEADLOCK")
def arrival_that_may_count_for_the_phase_before(k: Case) -> None:
    k.init(1)
    k.out(k.mine)
    with k.c.when(k.t.eq(0)):
        k.c.arrive(k.bar.index(0))
    with k.c.when(k.t.eq(32)):
        k.c.arrive(k.bar.index(0))
    with k.c.when(k.t.eq(33)):
        k.c.wait(k.bar.index(0), 0)


@case()
def phase_that_is_known_by_its_arrivals(k: Case) -> None:
    k.init(64)
    k.c.arrive(k.bar.index(0))
    k.c.barrier()
    k.write()
    k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 1)
    k.out(k.read(63 - k.t))


@case("MBARRIER")
def mbarrier_initialised_twice(k: Case) -> None:
    k.init(64)
    k.init(64)
    k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(0), 0)
    k.out(k.mine)


@case("MBARRIER")
def init_fenced_by_another_thread(k: Case) -> None:
    k.init(1)
    with k.c.when(k.t.eq(1)):
        k.c.fence(Fence.MBAR_INIT)
    k.c.barrier()
    _asked(k)
    k.out(k.read(k.t))


def _asked(k: Case, phase: int = 0) -> None:
    """A bulk load of all of s, waited for by all threads."""
    with k.c.when(k.t < 1):
        k.c.arrive(k.bar.index(0), 256)
        k.c.bulk_load(
            k.s.index(0), tensor_map(_matrix(k.x), (4, 16)), k.bar.index(0), number(0), number(0)
        )
    k.c.wait(k.bar.index(0), phase)


@case("PROXY_FENCE")
def tile_read_and_loaded_again_without_a_fence(k: Case) -> None:
    k.init(1, True)
    _asked(k)
    k.c.store(k.y.index(k.t), k.read(63 - k.t))
    k.c.barrier()
    _asked(k, 1)
    k.out(k.read(k.t))


@case()
def tile_read_and_loaded_again_with_a_fence(k: Case) -> None:
    k.init(1, True)
    _asked(k)
    k.c.store(k.y.index(k.t), k.read(63 - k.t))
    k.c.fence(Fence.PROXY_ASYNC)
    k.c.barrier()
    _asked(k, 1)
    k.out(k.read(k.t))


@case("PROXY_FENCE")
def fence_of_one_lane_for_the_others(k: Case) -> None:
    k.write()
    k.c.barrier()
    with k.c.when(k.lane < 1):
        k.c.fence(Fence.PROXY_ASYNC)
    k.c.barrier()
    with k.c.when(k.t < 1):
        k.c.bulk_store(tensor_map(_matrix(k.y), (4, 16)), k.s.index(0), number(0), number(0))
        k.c.commit(Engine.BULK)
        k.c.wait_group(Engine.BULK)


def _copied_and_stored(k: Case, fence_first: bool) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t))
    k.c.commit(Engine.CP_ASYNC)
    if fence_first:
        k.c.fence(Fence.PROXY_ASYNC)
    k.c.wait_group(Engine.CP_ASYNC)
    if not fence_first:
        k.c.fence(Fence.PROXY_ASYNC)
    k.c.barrier()
    with k.c.when(k.t < 1):
        k.c.bulk_store(tensor_map(_matrix(k.y), (4, 16)), k.s.index(0), number(0), number(0))
        k.c.commit(Engine.BULK)
        k.c.wait_group(Engine.BULK)


@case()
def fence_after_the_wait_covers_copies(k: Case) -> None:
    _copied_and_stored(k, fence_first=False)


@case("PROXY_FENCE")
def fence_before_the_wait_covers_no_copies(k: Case) -> None:
    _copied_and_stored(k, fence_first=True)


@case("SAME_VALUE", "RACE")
def equal_write_does_not_hide_the_one_before(k: Case) -> None:
    """Warp 0 and warp 1 write 5; warp 1 alone is ordered before its own reads."""
    with k.c.when(k.lane < 1):
        k.write(k.lane, UOp.const(5, dtypes.i32))
    k.c.syncwarp()
    k.out(k.read(number(0)))


def _five_writes_of_two_warps(k: Case, older: Callable[[], object]) -> None:
    """Lane 0 uses element 0, lane 1 writes 5 to it after that; warp 1 writes 5 at any time."""
    five = UOp.const(5, dtypes.i32)
    k.write()
    k.c.barrier()
    with k.c.when(k.t < 1):
        older()
    k.c.syncwarp()
    with k.c.when(k.t.eq(1)):
        k.write(number(0), five)
    with k.c.when(k.t.eq(32)):
        k.write(number(0), five)
    k.out(k.mine)


def _write_to_first(k: Case, value: int) -> None:
    k.write(number(0), UOp.const(value, dtypes.i32))


def _read_first(k: Case) -> None:
    k.out(k.read(number(0)))


def _atomics_elsewhere(k: Case) -> None:
    """A memory that has some keeps its accesses one by one."""
    k.c.atomic(Atomic.ADD, k.s.index(1 + k.t % 2), k.mine)


@case("SAME_VALUE", "RACE")
def equal_write_does_not_hide_one_that_was_overwritten(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _write_to_first(k, 4))


@case("SAME_VALUE")
def equal_write_of_what_was_written_before(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _write_to_first(k, 5))


@case("SAME_VALUE", "RACE")
def equal_write_does_not_hide_an_older_read(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _read_first(k))


@case("SAME_VALUE", "RACE")
def equal_write_does_not_hide_an_older_atomic(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: k.c.atomic(Atomic.ADD, k.s.index(0), k.mine))


@case("SAME_VALUE", "RACE")
def equal_write_does_not_hide_an_older_read_beside_atomics(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _read_first(k))
    _atomics_elsewhere(k)


@case("SAME_VALUE", "RACE")
def equal_write_does_not_hide_one_that_was_overwritten_beside_atomics(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _write_to_first(k, 4))
    _atomics_elsewhere(k)


@case("SAME_VALUE", "RACE")
def write_after_one_of_two_equal_ones(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _write_to_first(k, 5))
    k.c.syncwarp()
    with k.c.when(k.t.eq(3)):
        _write_to_first(k, 6)


@case("SAME_VALUE")
def write_after_both_of_two_equal_ones(k: Case) -> None:
    _five_writes_of_two_warps(k, lambda: _write_to_first(k, 5))
    k.c.barrier()
    with k.c.when(k.t.eq(3)):
        _write_to_first(k, 6)
    k.c.syncwarp()
    with k.c.when(k.t < 4):
        _read_first(k)


@case()
def phases_whose_arrivals_may_swap(k: Case) -> None:
    """Each wait knows the 32 arrivals of warp 0, and so one ended phase, whichever they ended."""
    k.init(32)
    with k.c.when(k.t < 32):
        k.c.arrive(k.bar.index(0))
        k.c.arrive(k.bar.index(1))
    with k.c.when((k.t % 2).eq(1)):
        k.c.arrive(k.bar.index(0))
    k.c.wait(k.bar.index(1), 0)
    k.c.wait(k.bar.index(0), 1)
    k.out(k.mine)


@case("DEADLOCK", size=64)
def named_barrier_that_others_may_still_be_at(k: Case) -> None:
    k.out(k.mine)
    with k.c.when(k.t > 31):
        k.c.named_barrier(number(1), 32)
    k.c.named_barrier(number(1), 64)


@case("RACE", "UNWAITED")
def each_lane_waits_for_its_own_groups(k: Case) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t))
    k.c.commit(Engine.CP_ASYNC)
    with k.c.when(k.lane < 31):
        k.c.wait_group(Engine.CP_ASYNC)
    k.c.barrier()
    k.out(k.read(63 - k.t))


@case()
def groups_of_lanes_are_counted_apart(k: Case) -> None:
    k.c.copy_async(k.s.index(k.t), k.x.index(k.t))
    k.c.commit(Engine.CP_ASYNC)
    with k.c.when(k.lane < 8):
        k.c.commit(Engine.CP_ASYNC)
        k.c.wait_group(Engine.CP_ASYNC, 1)
    with k.c.when(k.lane > 7):
        k.c.wait_group(Engine.CP_ASYNC)
    k.c.barrier()
    k.out(k.read(63 - k.t))


@case("RACE")
def what_one_lane_knows_the_others_do_not(k: Case) -> None:
    """Lane 0 waits for warp 1's arrival; lane 1 reads what warp 1 wrote."""
    k.init(32)
    with k.c.when(k.t > 31):
        k.write()
        k.c.arrive(k.bar.index(0))
    with k.c.when(k.t < 1):
        k.c.wait(k.bar.index(0), 0)
    with k.c.when(k.t < 32):
        k.c.store(k.y.index(k.t + 32), k.read(k.t + 32))
        k.out(k.mine)


@case()
def syncwarp_passes_on_what_one_lane_knows(k: Case) -> None:
    k.init(32)
    with k.c.when(k.t > 31):
        k.write()
        k.c.arrive(k.bar.index(0))
    with k.c.when(k.t < 1):
        k.c.wait(k.bar.index(0), 0)
    with k.c.when(k.t < 32):
        k.c.syncwarp()
        k.c.store(k.y.index(k.t + 32), k.read(k.t + 32))
        k.out(k.mine)


@pytest.mark.parametrize("name", CASES)
def test_verdict_is_the_one_made_by_hand(name: str) -> None:
    build, kinds, size = CASES[name]
    outcomes = _under_all_schedules(build, size)
    for schedule, outcome in zip(SCHEDULES, outcomes, strict=True):
        told = "\n".join(map(str, outcome.faults[:5]))
        if not kinds:
            assert outcome.kinds == kinds, f"{schedule}\n{told}"
        else:
            assert outcome.kinds and outcome.kinds <= kinds, f"{schedule}\n{told}"
    assert frozenset().union(*(o.kinds for o in outcomes)) == kinds


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not c[1]])
def test_clean_kernels_give_one_result(name: str) -> None:
    build, _, size = CASES[name]
    first, *others = _under_all_schedules(build, size)
    for other in others:
        assert equal_bits(list(first.arrays.values()), list(other.arrays.values()))


def _under_all_schedules(build: Callable[[Case], None], size: int) -> list[Outcome]:
    k = Case(size)
    build(k)
    sink = k.c.sink()
    tree = program(sink)
    return [run(tree, arrays_for(sink), schedule) for schedule in SCHEDULES]


def test_blocks_are_never_ordered() -> None:
    c, t, b = Cursor(), threads(4), blocks(2)
    y = buffer(0, dtypes.i32, (4,))
    c.store(y.index(t), (t + 4 * b).cast(dtypes.i32))
    c.barrier()
    c.store(y.index(3 - t), (t + 4 * b).cast(dtypes.i32))
    outcome = run(program(c.sink()), arrays_for(c.sink()))
    assert outcome.kinds == {"RACE"}
    assert {f.place is f.other for f in outcome.faults} == {True, False}


def test_atomics_of_blocks_do_not_race() -> None:
    c, t, b = Cursor(), threads(4), blocks(2)
    y = buffer(0, dtypes.i32, (4,))
    c.atomic(Atomic.ADD, y.index(t), (t + 4 * b).cast(dtypes.i32))
    start = arrays_for(c.sink())
    outcome = run(program(c.sink()), start, given=(0,))
    assert outcome.ok
    assert list(outcome.arrays[0]) == [int(x) + 2 * n + 4 for n, x in enumerate(start[0])]


#: ops of tensor cores, which this machine has not
_TENSOR_CORES = frozenset((Ops.MMA, Ops.LDMATRIX, Ops.STMATRIX, Ops.DESCRIPTOR))


def _is_small(example: Example) -> bool:
    nodes = toposort(example.build())
    size = max((prod(u.shape) for u in nodes if u.op is Ops.BUFFER), default=0)
    return size < 1000 and not any(u.op in _TENSOR_CORES for u in nodes)


@pytest.mark.parametrize("name", [n for n, e in EXAMPLES.items() if _is_small(e)])
def test_examples_are_clean_and_right(name: str) -> None:
    example = EXAMPLES[name]
    tree, arrays = program(example.build()), example.arrays()
    written = [p.slot for p in tree.params if p.written]
    outcome = run(tree, arrays, Schedule(1), given=written)
    assert outcome.ok, "\n".join(map(str, outcome.faults[:5]))
    if not example.order_dependent:
        for slot, expected in example.expected(arrays).items():
            assert equal_bits([np.asarray(expected)], [outcome.arrays[slot]])

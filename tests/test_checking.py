"""`uopc.check` end to end: a wrong kernel of each kind, right ones, orders, forms of kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import uopc
from tests.mutation.mutate import without
from uopc import faults
from uopc.checking import ENGINE_ORDERS, ORDERS, Verdict, check, order_text
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError, UsageError
from uopc.examples import smem_gemm_ir
from uopc.faults import Fault
from uopc.opts import Opts
from uopc.runtime.arrays import HostArray
from uopc.runtime.emulated import RunOptions
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_, sink, toposort
from uopc.uop.ops import (
    AccessArg,
    Atomic,
    AxisType,
    DescriptorArg,
    Engine,
    Fence,
    Ops,
    ParamArg,
    ShuffleMode,
)

N = 64
x, y = buffer(0, dtypes.f32, (N,)), buffer(1, dtypes.f32, (N,))
zero = UOp.const(0, dtypes.index)


def memory(
    name: str,
    shape: tuple[int, ...],
    space: AddrSpace = AddrSpace.SHARED,
    dtype: DType = dtypes.f32,
) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(0, dtype, shape, space, name))


def threads(n: int = N) -> UOp:
    return range_(n, 0, AxisType.LOCAL)


tile = memory("tile", (N,))
full = memory("full", (1,), AddrSpace.MBARRIER, dtypes.u64)
t = threads()


# ---- wrong kernels
def no_barrier() -> UOp:
    c = Cursor()
    c.store(tile.index(t), x.index(t).load())
    c.store(y.index(t), c.load(tile.index(63 - t)))
    return c.sink()


def no_syncwarp() -> UOp:
    t, c = threads(32), Cursor()
    c.store(tile.index(t), x.index(t).load())
    c.store(y.index(t), c.load(tile.index(31 - t)))
    return c.sink()


def no_barrier_at_the_end() -> UOp:
    c = Cursor()
    with c.loop(range_(4, 2)):
        c.store(tile.index(t), x.index(t).load())
        c.barrier()
        c.store(y.index(t), c.load(tile.index(63 - t)))
    return c.sink()


def blocks_share() -> UOp:
    b, c = range_(2, 1, AxisType.GLOBAL), Cursor()
    c.store(y.index(t), x.index(t).load() + b.cast(dtypes.f32))
    return c.sink()


def outside() -> UOp:
    t, c = threads(96), Cursor()
    c.store(y.index(t), 1.0)
    return c.sink()


def misaligned() -> UOp:
    t, c = threads(8), Cursor()
    wide = UOp(Ops.LOAD, (x.index(4 * t + 1),), AccessArg(4))
    c.do(Ops.STORE, y.index(4 * t), wide, arg=AccessArg(4))
    return c.sink()


def never_filled() -> UOp:
    c = Cursor()
    c.store(y.index(t), c.load(tile.index(t)))
    return c.sink()


def no_start_value() -> UOp:
    total, c = memory("total", (1,), AddrSpace.REG), Cursor()
    with c.loop(range_(4, 2)):
        c.store(total.index(0), c.load(total.index(0)) + x.index(t).load())
    c.store(y.index(t), c.load(total.index(0)))
    return c.sink()


def half() -> UOp:
    t, c = threads(32), Cursor()
    c.store(y.index(t), 1.0)
    return c.sink()


def barrier_in_if() -> UOp:
    c = Cursor()
    with c.when(t < 40):
        c.barrier()
        c.store(y.index(t), 1.0)
    return c.sink()


def barrier_of_one_warp() -> UOp:
    c = Cursor()
    with c.when(t < 32):
        c.barrier()
        c.store(y.index(t), 1.0)
    return c.sink()


def lanes_away() -> UOp:
    t, c = threads(32), Cursor()
    with c.when(t < 16):
        c.store(y.index(t), c.load(x.index(t)).shuffle(1, ShuffleMode.XOR))
    return c.sink()


def nobody_arrives() -> UOp:
    c = Cursor()
    with c.when(t < 1):
        c.init(full.index(0), 1)
    c.barrier()
    c.wait(full.index(0), 0)
    c.store(y.index(t), 1.0)
    return c.sink()


def not_initialised() -> UOp:
    c = Cursor()
    with c.when(t < 1):
        c.init(full.index(0), 64)
    c.arrive(full.index(0))
    c.store(y.index(t), 1.0)
    return c.sink()


def too_many_arrive() -> UOp:
    c = Cursor()
    with c.when(t < 1):
        c.init(full.index(0), 1)
    c.barrier()
    with c.when(t < 2):
        c.arrive(full.index(0), 128)
    c.store(y.index(t), 1.0)
    return c.sink()


def not_waited_for() -> UOp:
    c = Cursor()
    c.copy_async(tile.index(t), x.index(t))
    c.commit(Engine.CP_ASYNC)
    c.store(y.index(t), 1.0)
    return c.sink()


def bulk(*, fence: bool = True, lanes: int = 1, wait: bool = True, at: int = 0) -> UOp:
    """y = 2x, through shared memory by the copy engine."""
    t, c = threads(32), Cursor()
    rows, back = tensor_map(x, (32,)), tensor_map(y, (32,))
    tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (64,), AddrSpace.SHARED, "tile"))
    with c.when(t < 1):
        c.init(full.index(0), 1)
        c.fence(Fence.MBAR_INIT)
    c.barrier()
    with c.loop(range_(2, 2)) as i:
        with c.when(t < lanes):
            c.arrive(full.index(0), 128)
            c.bulk_load(tile.index(at), rows, full.index(0), i * 32)
        if wait:
            c.wait(full.index(0), i)
        c.store(tile.index(t + at), c.load(tile.index(t + at)) * 2.0)
        if fence:
            c.fence(Fence.PROXY_ASYNC)
        c.barrier()
        with c.when(t < 1):
            c.bulk_store(back, tile.index(at), i * 32)
            c.commit(Engine.BULK)
            c.wait_group(Engine.BULK)
        c.barrier()
    return c.sink()


def wrong_claim() -> UOp:
    c = Cursor()
    c.check(x.index(t).load() < 3.0, "x is small")
    c.store(y.index(t), 1.0)
    return c.sink()


def all_write_one() -> UOp:
    c = Cursor()
    c.store(y.index(t // N), 1.0)
    return c.sink()


def float_sum() -> UOp:
    c = Cursor()
    c.atomic(Atomic.ADD, y.index(0), x.index(t).load())
    return c.sink()


def ticket() -> UOp:
    """Each thread takes a number: who has which depends on who came first."""
    count, c = buffer(0, dtypes.i32, (1,)), Cursor()
    got = c.atomic(Atomic.ADD, count.index(0), 1)
    c.store(buffer(1, dtypes.i32, (N,)).index(t), got)
    return c.sink()


WRONG: dict[Callable[[], UOp], type[Fault]] = {
    no_barrier: faults.RaceError,
    no_syncwarp: faults.RaceError,
    no_barrier_at_the_end: faults.RaceError,
    blocks_share: faults.RaceError,
    outside: faults.BoundsError,
    misaligned: faults.MisalignedError,
    never_filled: faults.UninitialisedError,
    no_start_value: faults.UninitialisedError,
    half: faults.UnwrittenError,
    barrier_in_if: faults.BarrierError,
    barrier_of_one_warp: faults.BarrierError,
    lanes_away: faults.MembersError,
    nobody_arrives: faults.DeadlockError,
    not_initialised: faults.MbarrierError,
    too_many_arrive: faults.MbarrierError,
    not_waited_for: faults.UnwaitedError,
    wrong_claim: faults.AssertionFault,
}


def numbers() -> HostArray:
    return np.arange(N, dtype=np.float32)


def first(kernel: UOp, *arrays: HostArray) -> Fault:
    verdict = check(kernel, *(arrays or (numbers(),)), all_faults=False)
    assert not verdict.ok and len(verdict.faults) == 1, str(verdict)
    return verdict.faults[0]


@pytest.mark.parametrize("kernel", WRONG, ids=lambda k: k.__name__)
def test_wrong_kernels(kernel: Callable[[], UOp]) -> None:
    arrays = [] if not any(u is x for u in toposort(kernel())) else [numbers()]
    verdict = check(kernel(), *arrays, name=kernel.__name__)
    fault = verdict.faults[0]
    assert type(fault) is WRONG[kernel], str(verdict)
    assert f"in kernel {kernel.__name__}" in str(fault)
    where = [a.place for a in fault.accesses]
    assert all(place.startswith("test_checking.py:") for place in where), where
    assert fault.hint


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (bulk(fence=False), faults.ProxyFenceError),
        (bulk(lanes=2), faults.CopyError),
        (bulk(wait=False), faults.RaceError),
        (bulk(at=2), faults.CopyError),
    ],
    ids=["fence", "lanes", "wait", "at"],
)
def test_wrong_bulk_copies(kernel: UOp, kind: type[Fault]) -> None:
    verdict = check(kernel, numbers())
    assert kind in map(type, verdict.faults), str(verdict)


def product(*, fence: bool = True, wait: bool = True) -> UOp:
    """One wgmma of ones."""
    lane, warp = range_(32, 0, AxisType.LANE), range_(4, 1, AxisType.WARP)
    ones = memory("ones", (1024,), dtype=dtypes.f16)
    sums = memory("sums", (4,), AddrSpace.REG)
    c = Cursor()
    with c.loop(range_(8, 2)) as i:
        c.store(ones.index(128 * i + 32 * warp + lane), 1.0)
    c.store(sums.index(0), 0.0)
    c.fence(Fence.PROXY_ASYNC)
    c.barrier()
    both = c.descriptor(ones.index(0), DescriptorArg(128, 256))
    if fence:
        c.fence(Fence.WGMMA, sums)
    c.mma("wgmma.m64n8k16.f16", sums.index(0), both, both, keep=UOp.const(False))
    c.commit(Engine.WGMMA)
    if wait:
        c.wait_group(Engine.WGMMA, 0, sums)
    c.store(buffer(0, dtypes.f32, (128,)).index(32 * warp + lane), c.load(sums.index(0)))
    return c.sink()


def test_accumulators() -> None:
    right = check(product())
    assert right.ok and right.outputs[0].tolist() == [16.0] * 128, str(right)
    unfenced, in_flight = check(product(fence=False)), check(product(wait=False))
    for verdict, said in (unfenced, "since the last fence"), (in_flight, "may still write it"):
        fault = verdict.faults[0]
        assert isinstance(fault, faults.AccumulatorError) and said in str(fault), str(verdict)
        assert "accumulator sums0" in str(fault)


# ---- what a race says
def test_a_race_names_both_threads_and_the_cure() -> None:
    fault = first(no_barrier())
    write, read = fault.accesses
    assert (write.kind, read.kind) == ("write", "read")
    assert write.linear is not None and read.linear is not None
    assert write.linear + read.linear == N - 1
    assert fault.flat == write.linear and fault.element == (write.linear,)
    assert {write.warp, read.warp} == {0, 1} and "hint: a barrier after the STORE" in str(fault)


def test_lanes_need_a_syncwarp() -> None:
    assert first(no_syncwarp()).hint.startswith("a __syncwarp after the STORE")


def test_a_race_across_the_end_of_a_loop_has_its_rounds() -> None:
    fault = first(no_barrier_at_the_end())
    read, write = fault.accesses
    assert (read.kind, write.kind) == ("read", "write")
    (name,) = read.loops
    assert write.loops[name] == read.loops[name] + 1
    assert fault.hint.startswith(f"a barrier at the end of loop {name}")


def test_blocks_are_never_ordered() -> None:
    assert first(blocks_share()).hint.startswith("blocks of one launch")


def test_one_of_several_readers_is_named() -> None:
    c = Cursor()
    c.store(tile.index(t), x.index(t).load())
    c.barrier()
    c.store(y.index(t), c.load(tile.index(63)))
    c.store(tile.index(t), 1.0)
    faults = check(c.sink(), numbers()).faults
    assert {f.hint.split()[1] for f in faults} == {"barrier", "__syncwarp"}
    for fault in faults:
        read, write = fault.accesses
        assert (read.kind, write.kind, write.linear) == ("read", "write", 63)
        assert read.linear is not None and read.linear != 63


def test_registers_are_found_by_lane() -> None:
    fault = first(no_start_value())
    assert fault.memory is not None and fault.memory.space is AddrSpace.REG
    assert fault.accesses[0].loops == {"i2": 0}


# ---- verdicts
def test_a_verdict_is_what_is_ok() -> None:
    bad = check(no_barrier(), numbers())
    assert not bad and not bad.ok and bad.orders == ()
    assert str(bad).startswith("kernel kernel: 1 fault\n\nRaceError: ")
    with pytest.raises(faults.RaceError):
        bad.raise_first()
    good = check(smem_gemm_ir(16, 8), *gemm_inputs(16))
    assert good and good.ok
    good.raise_first()
    assert str(good) == "kernel kernel: no fault; the same bits in 6 orders"


def test_equal_values_are_a_warning() -> None:
    verdict = check(all_write_one(), np.zeros(N, np.float32), initialised=[1])
    assert verdict.ok and verdict.faults == ()
    (warning,) = verdict.warnings
    assert isinstance(warning, faults.SameValueWarning)
    assert "kernel kernel: no fault, 1 warning" in str(verdict)


def test_all_faults_or_the_first() -> None:
    c = Cursor()
    c.store(tile.index(t), x.index(t).load())
    c.store(y.index(t), c.load(tile.index(63 - t)))
    c.store(y.index(t + 1), 1.0)
    assert len(check(c.sink(), numbers(), all_faults=False).faults) == 1
    assert {type(f) for f in check(c.sink(), numbers()).faults} >= {
        faults.RaceError,
        faults.BoundsError,
    }


def test_lines_are_printed() -> None:
    t, c = threads(2), Cursor()
    c.printf("x[{}] is {}", t, x.index(t).load())
    c.store(y.index(t), 1.0)
    verdict = check(c.sink(), numbers(), np.zeros(N, np.float32), initialised=[1])
    assert verdict.printed == ("x[0] is 0", "x[1] is 1")


# ---- orders
def test_sums_of_floats_depend_on_the_order() -> None:
    verdict = check(float_sum(), random(), np.zeros(N, np.float32))
    (fault,) = verdict.faults
    assert isinstance(fault, faults.OrderError) and fault.element == (0,)
    assert "1 element of 64 differ" in str(fault)
    assert any(note.startswith("warps forward, lanes forward") for note in fault.notes)
    assert "a sum of floats depends on its order" in fault.hint


def test_whole_numbers_do_not() -> None:
    verdict = check(float_sum(), numbers(), np.zeros(N, np.float32))
    assert verdict.ok, str(verdict)
    assert verdict.outputs[0][0] == numbers().sum()


def test_old_values_of_atomics_tell_who_came_first() -> None:
    verdict = check(ticket(), np.zeros(1, np.int32), np.zeros(N, np.int32))
    (fault,) = verdict.faults
    assert isinstance(fault, faults.OrderError) and "who came first" in fault.hint


def test_blocks_have_an_order_too() -> None:
    b, c = range_(64, 1, AxisType.GLOBAL), Cursor()
    c.atomic(Atomic.ADD, y.index(0), x.index(b).load())
    verdict = check(c.sink(), random(), np.zeros(N, np.float32))
    assert isinstance(verdict.faults[0], faults.OrderError)


def test_orders_can_be_chosen() -> None:
    chosen = [RunOptions(), RunOptions(order="shuffled(7)")]
    verdict = check(smem_gemm_ir(16, 8), *gemm_inputs(16), orders=chosen)
    assert verdict.orders == tuple(map(order_text, chosen))
    assert check(float_sum(), random(), np.zeros(N, np.float32), orders=()).ok


def test_engines_have_orders_of_their_own() -> None:
    verdict = check(bulk(), numbers())
    assert verdict.ok, str(verdict)
    assert len(verdict.orders) == len(ORDERS) + len(ENGINE_ORDERS)
    assert np.array_equal(verdict.outputs[0], 2 * numbers())


# ---- forms of kernels, and arrays
def gemm_inputs(n: int) -> list[HostArray]:
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(2)]


def random() -> HostArray:
    return np.random.default_rng(0).standard_normal(N, np.float32)


@pytest.mark.parametrize("which", [0, 1])
def test_a_product_without_a_barrier(which: int) -> None:
    kernel = smem_gemm_ir(32, 8)
    barriers = [u for u in toposort(kernel) if u.op is Ops.BARRIER]
    wrong = without(kernel, barriers[which])
    assert wrong is not None
    inputs = gemm_inputs(32)
    assert check(kernel, *inputs).ok
    verdict = check(wrong, *inputs)
    assert {type(f) for f in verdict.faults} <= {faults.RaceError, faults.UninitialisedError}
    race = next(f for f in verdict.faults if isinstance(f, faults.RaceError))
    assert race.memory is not None and race.memory.name in ("a_tile0", "b_tile1")
    across = "at the end of loop r2" in race.hint
    assert across == (which == 1), race.text


def test_a_shaped_body() -> None:
    body = buffer(0, dtypes.f32, (8, 100)).reduce(Ops.ADD)
    values = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)
    verdict = check(body, values, name="sums")
    assert verdict.ok, str(verdict)
    assert verdict.kernel == "sums" and np.allclose(verdict.outputs[0], values.sum(1), atol=1e-4)


def test_several_bodies() -> None:
    verdict = check([x * 2.0, x + 1.0], numbers())
    assert verdict.ok and len(verdict.outputs) == 2


def test_every_step_of_a_compiled_kernel() -> None:
    total = buffer(0, dtypes.f32, (1 << 12, 2)).reduce(Ops.MAX).reduce(Ops.ADD)
    split = Opts(gpu=True, blocks={1: 4}, local={1: 64})
    kernel = uopc.compile(total, split, target="emulated", name="total")
    assert len(kernel.steps) == 2
    values = np.ones((1 << 12, 2), np.float32)
    verdict = check(kernel, values)
    assert verdict.ok, str(verdict)
    assert verdict.kernel == "total" and float(verdict.outputs[0]) == 1 << 12


def test_nothing_of_the_callers_is_written_but_out() -> None:
    given, result, out = numbers(), np.zeros(N, np.float32), np.zeros(N, np.float32)
    kernel = sink(y.index(t).store(x.index(t).load() + 1.0))
    assert check(kernel, given, result).ok
    assert np.array_equal(given, numbers()) and not result.any()
    assert check(kernel, given, out=out).ok
    assert np.array_equal(out, numbers() + 1)
    given.flags.writeable = result.flags.writeable = False
    assert check(kernel, given, result).ok


def test_values_that_stay() -> None:
    given = numbers()
    assert type(check(half(), given).faults[0]) is faults.UnwrittenError
    assert check(half(), given, initialised=[1]).ok
    (zeros,) = check(half(), initialised=[1]).outputs
    assert zeros[32:].tolist() == [0.0] * 32
    with pytest.raises(UsageError, match=r"has no slots \[7\]"):
        check(half(), initialised=[7])


@pytest.mark.parametrize(
    ("kernel", "arrays", "said"),
    [
        (smem_gemm_ir(16, 8), 1, "pass 3 arrays, or 2 without those that it writes; got 1"),
        (x * 2.0, 2, "takes 1 inputs"),
        (uopc.compile(x * 2.0, target="cpu"), 1, "is compiled for cpu, which has no threads"),
        (3, 1, "a kernel is a SINK, a compiled Kernel, a shaped body or a list of bodies, got int"),
    ],
)
def test_usage(kernel: UOp, arrays: int, said: str) -> None:
    with pytest.raises(UsageError) as error:
        check(kernel, *[numbers()] * arrays)
    assert said in str(error.value)


def test_loop_ir_that_is_none() -> None:
    with pytest.raises(SpecError):
        check(sink(y.index(t).store(x.index(t).load().reduce(Ops.ADD, 0))), numbers())


def test_public_names() -> None:
    assert uopc.check is check and uopc.Verdict is Verdict

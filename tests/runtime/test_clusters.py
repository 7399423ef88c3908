"""Blocks of a cluster, emulated: what they exchange, and every way in which that can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from uopc import faults
from uopc.checking import check
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import TargetError
from uopc.faults import Fault
from uopc.pipeline import emulate, render_cuda
from uopc.runtime.emulated import RunOptions
from uopc.runtime.nvrtc import compile_cubin
from uopc.runtime.program import Program
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_, rank_
from uopc.uop.numbers import Array
from uopc.uop.ops import Atomic, AxisType, Fence, Ops, ParamArg
from uopc.uop.oracle import run
from uopc.uop.spec import Stage
from uopc.uop.spec import check as check_spec

BLOCKS, THREADS, CLUSTERS = 4, 64, 3
EACH = BLOCKS * THREADS  # elements of a cluster
X, Y = buffer(0, dtypes.f32, (CLUSTERS * EACH,)), buffer(1, dtypes.f32, (CLUSTERS * EACH,))
RANK, CLUSTER = rank_(BLOCKS, 1), range_(CLUSTERS, 0, AxisType.GLOBAL)
THREAD = range_(THREADS, 1, AxisType.LOCAL)
MINE = (CLUSTER * BLOCKS + RANK) * THREADS + THREAD
ZERO = UOp.const(0, dtypes.index)


def memory(space: AddrSpace, *shape: int, dtype: DType = dtypes.f32, slot: int = 0) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, shape, space, "part"))


PART = memory(AddrSpace.CLUSTER, BLOCKS, THREADS)
MET = memory(AddrSpace.MBARRIER, 1, dtype=dtypes.u64, slot=1)


def to(rank: UOp) -> UOp:
    """The element of this thread in what the block of a rank holds."""
    return PART.index(rank * THREADS + THREAD)


def next_rank(by: int = 1) -> UOp:
    return (RANK + by) % BLOCKS


Left = frozenset[str]


def pushed(without: Left = frozenset()) -> UOp:
    """Each block stores its elements into the next one."""
    c = Cursor()
    if "arrive" not in without:
        c.cluster_arrive()
    if "wait" not in without:
        c.cluster_wait()
    c.store(to(next_rank()), c.load(X.index(MINE)))
    if "meeting" not in without:
        c.cluster_barrier()
    c.store(Y.index(MINE), c.load(to(RANK)))
    return c.sink()


def pulled(without: Left = frozenset()) -> UOp:
    """Each block reads the elements of the next one, which is still there."""
    c = Cursor()
    c.store(to(RANK), c.load(X.index(MINE)))
    if "meeting" not in without:
        c.cluster_barrier()
    value = c.load(to(next_rank()))
    c.store(Y.index(MINE), value)
    if "end" not in without:
        c.cluster_barrier()
    return c.sink()


def sent(without: Left = frozenset()) -> UOp:
    """Each block sends its elements to the next one, which waits for their bytes."""
    c = Cursor()
    with c.when(THREAD.eq(ZERO)):
        c.init(MET.index(ZERO), 1)
        if "fence" not in without:
            c.fence(Fence.MBAR_INIT)
        if "bytes" not in without:
            c.arrive(MET.index(ZERO), UOp.const(4 * THREADS, dtypes.index))
    if "arrive" not in without:
        c.cluster_arrive()
    if "wait" not in without:
        c.cluster_wait()
    c.send(to(next_rank()), c.load(X.index(MINE)), MET.index(ZERO))
    if "bytes come" not in without:
        c.wait(MET.index(ZERO), ZERO)
    c.store(Y.index(MINE), c.load(to(RANK)))
    return c.sink()


def arrays() -> list[Array]:
    x = np.arange(CLUSTERS * EACH, dtype=np.float32)
    return [x, np.full_like(x, np.nan)]


def turned(x: Array, by: int) -> Array:
    return np.roll(x.reshape(CLUSTERS, BLOCKS, THREADS), by, axis=1).reshape(-1)


KERNELS: dict[str, tuple[Callable[[Left], UOp], int]] = {
    "pushed": (pushed, 1),
    "pulled": (pulled, -1),
    "sent": (sent, 1),
}


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled(1)"])
@pytest.mark.parametrize("name", KERNELS)
def test_right_kernels(name: str, order: str) -> None:
    build, by = KERNELS[name]
    kernel = build(frozenset())
    check_spec(kernel, Stage.LOOPS, gpu=True)
    x, y = arrays()
    np.testing.assert_array_equal(run(kernel, {0: x, 1: y})[1], turned(x, by))
    for checked in (False, True):
        x, y = arrays()
        Program(emulate(kernel, name, check=checked, order=order, target="sm_90"))(x, y)
        np.testing.assert_array_equal(y, turned(x, by))


WRONG = {
    ("pushed", "arrive"): faults.ClusterError,
    ("pushed", "wait"): faults.ClusterError,
    ("pushed", "meeting"): faults.RaceError,
    ("pulled", "meeting"): faults.ClusterError,
    ("pulled", "end"): faults.ClusterError,
    ("sent", "arrive"): faults.ClusterError,
    ("sent", "wait"): Fault,
    ("sent", "fence"): faults.MbarrierError,
    ("sent", "bytes come"): faults.RaceError,
}


@pytest.mark.parametrize(("name", "left_out"), WRONG)
def test_wrong_kernels(name: str, left_out: str) -> None:
    """In every order of warps."""
    kernel = KERNELS[name][0](frozenset((left_out,)))
    source = emulate(kernel, name, check=True, target="sm_90")
    for order in ("forward", "backward", "shuffled(1)", "shuffled(2)"):
        for lanes in ("forward", "backward"):
            outcome = Program(source).run(arrays(), RunOptions(order=order, lanes=lanes))
            assert not outcome.ok, (order, lanes)
    verdict = check(kernel, *arrays())
    assert isinstance(verdict.faults[0], WRONG[name, left_out]), verdict.faults


def test_who_did_what() -> None:
    """Reports name blocks by their place in the grid, and warps in their block."""
    verdict = check(pulled(frozenset(("end",))), *arrays())
    (fault,) = verdict.faults
    text = str(fault)
    assert "part0" in text and "may have ended" in text and "BARRIER CLUSTER" in text
    assert "block (" in text


def test_a_block_waits_without_having_arrived() -> None:
    c = Cursor()
    c.cluster_wait()
    c.store(Y.index(MINE), c.load(X.index(MINE)))
    verdict = check(c.sink(), *arrays())
    assert isinstance(verdict.faults[0], faults.ClusterError)


def test_a_block_arrives_twice() -> None:
    c = Cursor()
    c.cluster_arrive()
    c.cluster_barrier()
    c.cluster_wait()
    c.store(Y.index(MINE), c.load(X.index(MINE)))
    verdict = check(c.sink(), *arrays())
    assert isinstance(verdict.faults[0], faults.ClusterError)


def test_a_block_that_leaves_early() -> None:
    c = Cursor()
    with c.when(RANK < 3):
        c.cluster_barrier()
    c.store(Y.index(MINE), c.load(X.index(MINE)))
    verdict = check(c.sink(), *arrays())
    assert isinstance(verdict.faults[0], faults.BarrierError)


def through_global(meeting: bool) -> UOp:
    """Blocks of a cluster hand over elements in GLOBAL memory."""
    c = Cursor()
    there = (CLUSTER * BLOCKS + next_rank()) * THREADS + THREAD
    c.store(Y.index(MINE), c.load(X.index(MINE)))
    if meeting:
        c.cluster_barrier()
    value = c.load(Y.index(there))
    c.cluster_barrier()
    c.store(Y.index(MINE), value)
    return c.sink()


@pytest.mark.parametrize("meeting", [True, False])
def test_blocks_of_a_cluster_may_share_global_memory(meeting: bool) -> None:
    verdict = check(through_global(meeting), *arrays())
    assert verdict.ok == meeting
    assert meeting or isinstance(verdict.faults[0], faults.RaceError)


def test_atomics_of_all_blocks() -> None:
    """They need no order, in GLOBAL memory as in the block's own."""
    count = buffer(2, dtypes.i32, (CLUSTERS,))
    own = memory(AddrSpace.SHARED, 1, dtype=dtypes.i32, slot=2)
    c = Cursor()
    with c.when(THREAD.eq(ZERO)):
        c.store(own.index(ZERO), 0)
    c.barrier()
    c.atomic(Atomic.ADD, own.index(ZERO), 1)
    c.atomic(Atomic.ADD, count.index(CLUSTER), 1)
    c.barrier()
    c.store(Y.index(MINE), c.load(own.index(ZERO)).cast(dtypes.f32))
    kernel = c.sink()
    y, counts = np.zeros(CLUSTERS * EACH, np.float32), np.zeros(CLUSTERS, np.int32)
    Program(emulate(kernel, "counts", check=True, target="sm_90"))(y, counts)
    np.testing.assert_array_equal(y, THREADS)
    np.testing.assert_array_equal(counts, EACH)


def with_blocks_of_their_own(barrier: bool) -> UOp:
    """SHARED memory and barriers of a block are each block's own, in a cluster too."""
    tile = memory(AddrSpace.SHARED, THREADS, slot=2)
    c = Cursor()
    c.cluster_arrive()
    c.cluster_wait()
    c.store(tile.index(THREAD), c.load(X.index(MINE)))
    if barrier:
        c.barrier()
    value = c.load(tile.index(THREADS - 1 - THREAD))
    c.store(to(next_rank()), value)
    c.cluster_barrier()
    c.store(Y.index(MINE), c.load(to(RANK)))
    return c.sink()


@pytest.mark.parametrize("barrier", [True, False])
def test_shared_memory_is_the_blocks_own(barrier: bool) -> None:
    kernel = with_blocks_of_their_own(barrier)
    verdict = check(kernel, *arrays())
    assert verdict.ok == barrier
    if not barrier:
        assert isinstance(verdict.faults[0], faults.RaceError)
        return
    x, y = arrays()
    Program(emulate(kernel, "own", target="sm_90"))(x, y)
    there = turned(x, 1).reshape(CLUSTERS, BLOCKS, THREADS)[..., ::-1].reshape(-1)
    np.testing.assert_array_equal(y, there)
    np.testing.assert_array_equal(run(kernel, {0: x, 1: y})[1], there)


@pytest.mark.parametrize("name", KERNELS)
def test_targets(name: str) -> None:
    kernel = KERNELS[name][0](frozenset())
    with pytest.raises(TargetError, match="clusters of 4 blocks, which sm_80 lacks"):
        render_cuda(kernel, name, "sm_80")
    with pytest.raises(TargetError, match="target='sm_90'"):
        emulate(kernel, name, target="sm_89")
    for target in ("sm_90", "sm_90a", "sm_100"):
        source = render_cuda(kernel, name, target)
        assert "__cluster_dims__(4, 1, 1)" in source
        used = compile_cubin(source, name, target).resources
        assert not used.spills and not used.stack_bytes


@pytest.mark.parametrize(
    "dtype", [dtypes.f64, dtypes.i64, dtypes.i32, dtypes.f16, dtypes.u8, dtypes.bool, dtypes.bf16]
)
def test_elements_of_every_size(dtype: DType) -> None:
    """Stored into another block and read from it, as bits."""
    part = memory(AddrSpace.CLUSTER, BLOCKS, THREADS, dtype=dtype)
    x, y = (buffer(s, dtype, (CLUSTERS * EACH,)) for s in (0, 1))
    there = part.index(next_rank() * THREADS + THREAD)
    c = Cursor()
    c.cluster_arrive()
    c.cluster_wait()
    c.store(there, c.load(x.index(MINE)))
    c.cluster_barrier()
    value = c.load(there)
    c.store(y.index(MINE), value)
    c.cluster_barrier()
    kernel = c.sink()
    given = np.arange(CLUSTERS * EACH).astype(dtype.numpy)
    out = np.zeros_like(given)
    Program(emulate(kernel, "sizes", check=True, target="sm_90"))(given, out)
    np.testing.assert_array_equal(out, given)
    used = compile_cubin(render_cuda(kernel, "sizes", "sm_90"), "sizes", "sm_90").resources
    assert not used.spills

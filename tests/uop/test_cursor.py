"""A Cursor writes what could be written node by node, and refuses what has no meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import (
    Atomic,
    AtomicArg,
    AxisType,
    BarrierArg,
    BarrierScope,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    LaunchArg,
    MatrixArg,
    Ops,
    PrintArg,
    RoleArg,
    ShuffleMode,
    TensorMapArg,
    WaitArg,
)
from uopc.uop.spec import check
from uopc.uop.stages import Stage

F32, U32 = dtypes.f32, dtypes.u32
X, Y = buffer(0, F32, (64,)), buffer(1, F32, (64,))
LANE = range_(32, 0, AxisType.LANE)
TILE, ACC = alloc(AddrSpace.SHARED, size=64), alloc(AddrSpace.REG)
FULL = alloc(AddrSpace.MBARRIER, dtypes.u64)
ZERO, ONE = UOp.const(0, dtypes.index), UOp.const(1, dtypes.index)


def test_stores_loads_and_barriers() -> None:
    c = Cursor()
    c.store(TILE.index(LANE), X.index(LANE).load())
    c.barrier()
    value = c.load(TILE.index(31 - LANE))
    c.store(Y.index(LANE), value, LANE < 8)
    kernel = c.sink(LaunchArg(early=False))
    fill = TILE.index(LANE).store(X.index(LANE).load())
    meet = UOp(Ops.BARRIER, (fill,))
    back = TILE.after(meet).index(31 - LANE).load()
    last = Y.after(meet).index(LANE).store(back, LANE < 8)
    assert kernel is sink(last, launch=LaunchArg(early=False))
    check(kernel, Stage.LOOPS, gpu=True)


def test_loops_and_conditions() -> None:
    i, k = range_(4, 1), range_(2, 2)
    c = Cursor()
    c.store(ACC.index(0), 0.0)
    with c.loop(i, k) as inner:
        assert inner is k
        with c.when(i > LANE) as opened:
            c.store(ACC.index(0), c.load(ACC.index(0)) + 1.0)
    c.store(Y.index(LANE), c.load(ACC.index(0)))
    start = ACC.index(0).store(0.0)
    condition = UOp(Ops.IF, (i > LANE, start, i, k))
    assert opened is condition
    inside = ACC.after(condition)
    step = inside.index(0).store(inside.index(0).load() + 1.0).end(condition).end(i, k)
    assert c.sink() is sink(Y.after(step).index(LANE).store(ACC.after(step).index(0).load()))
    check(c.sink(), Stage.LOOPS)


def test_roles_are_chains_of_their_own() -> None:
    c = Cursor()
    c.store(X.index(LANE), 0.0)
    with c.role("one", 0, 1):
        c.store(X.index(LANE), 1.0)
    with c.role("two", 1, 1, 24, grow=True):
        c.store(Y.index(LANE), 2.0)
    start = X.index(LANE).store(0.0)
    one, two = (
        UOp(Ops.ROLE, (start,), a) for a in (RoleArg("one", 0, 1), RoleArg("two", 1, 1, 24, True))
    )
    ends = (
        X.after(one).index(LANE).store(1.0).end(one),
        Y.after(two).index(LANE).store(2.0).end(two),
    )
    assert c.sink() is sink(*ends)
    last = c.barrier()  # after none of the roles, but part of the kernel
    assert last is start.barrier()
    assert c.sink() is sink(*ends, last)


def test_every_other_method() -> None:
    """(what the cursor does, the node it makes after `start`)."""
    start = TILE.index(LANE).store(0.0)

    def now(m: UOp) -> UOp:
        return m.after(start)

    reg = alloc(AddrSpace.REG, U32, 4, 1)
    half = alloc(AddrSpace.SHARED, dtypes.bf16, 256, 1)
    view = tensor_map(buffer(2, F32, (8, 32)), (4, 32))
    seen = UOp(Ops.TENSORMAP, (now(view.src[0]),), view.arg)
    describe = DescriptorArg(16, 16)
    made: dict[Callable[[Cursor], UOp], UOp] = {
        lambda c: c.atomic(Atomic.ADD, X.index(0), 1.0): UOp(
            Ops.ATOMIC, (now(X).index(0), UOp.const(1.0)), AtomicArg(Atomic.ADD)
        ),
        lambda c: c.syncwarp(3): UOp(
            Ops.BARRIER, (start,), BarrierArg(BarrierScope.WARP, members=3)
        ),
        lambda c: c.named_barrier(ONE, 32): UOp(
            Ops.BARRIER, (ONE, start), BarrierArg(BarrierScope.NAMED, 32)
        ),
        lambda c: c.copy_async(TILE.index(0), X.index(0), 4, LANE < 3): UOp(
            Ops.COPY, (now(TILE).index(0), now(X).index(0), LANE < 3), CopyArg(Engine.CP_ASYNC, 4)
        ),
        lambda c: c.bulk_load(TILE.index(0), view, FULL.index(0), ZERO, ONE): UOp(
            Ops.COPY,
            (now(TILE).index(0), seen, now(FULL).index(0), ZERO, ONE),
            CopyArg(Engine.BULK),
        ),
        lambda c: c.bulk_store(view, TILE.index(0), ZERO, ONE): UOp(
            Ops.COPY, (seen, now(TILE).index(0), ZERO, ONE), CopyArg(Engine.BULK)
        ),
        lambda c: c.commit(Engine.BULK): UOp(Ops.COMMIT, (start,), Engine.BULK),
        lambda c: c.wait_group(Engine.WGMMA, 1, ACC): UOp(
            Ops.WAITG, (now(ACC), start), WaitArg(Engine.WGMMA, 1)
        ),
        lambda c: c.fence(Fence.WGMMA, ACC): UOp(Ops.FENCE, (now(ACC), start), Fence.WGMMA),
        lambda c: c.init(FULL.index(0), 1): UOp(Ops.MBAR_INIT, (now(FULL).index(0), ONE)),
        lambda c: c.arrive(FULL.index(0)): UOp(Ops.ARRIVE, (now(FULL).index(0),)),
        lambda c: c.arrive(FULL.index(0), 1): UOp(Ops.ARRIVE, (now(FULL).index(0), ONE)),
        lambda c: c.wait(FULL.index(0), 0): UOp(Ops.WAIT, (now(FULL).index(0), ZERO)),
        lambda c: c.ldmatrix(reg.index(0), half.index(0), 2, True): UOp(
            Ops.LDMATRIX, (now(reg).index(0), now(half).index(0)), MatrixArg(2, True)
        ),
        lambda c: c.stmatrix(half.index(0), reg.index(0)): UOp(
            Ops.STMATRIX, (now(half).index(0), now(reg).index(0)), MatrixArg()
        ),
        lambda c: c.mma("atom", ACC.index(0), reg.index(0), reg.index(1), LANE < 1): UOp(
            Ops.MMA,
            (now(ACC).index(0), now(reg).index(0), now(reg).index(1), LANE < 1),
            "atom",
        ),
        lambda c: c.printf("{}", LANE): UOp(Ops.PRINTF, (LANE, start), PrintArg("{}")),
        lambda c: c.check(LANE < 1, "no"): UOp(Ops.ASSERT, (LANE < 1, start), "no"),
    }
    for do, want in made.items():
        c = Cursor(start)
        assert do(c) is want
        assert c.done == (want,)
    c = Cursor(start)
    assert c.descriptor(half.index(0), describe) is UOp(
        Ops.DESCRIPTOR, (now(half).index(0),), describe
    )
    assert c.now(LANE.cast(F32)).shuffle(1) is LANE.cast(F32).after(start).shuffle(1)
    assert c.done == (start,)


def test_tensor_maps_see_the_parameter_unless_told_otherwise() -> None:
    b = buffer(3, F32, (2, 3, 4))
    assert tensor_map(b, (1, 1, 4)).arg == TensorMapArg((2, 3, 4), (12, 4), (1, 1, 4))
    whole = tensor_map(b, (8,), 32, (24,))
    assert whole.arg == TensorMapArg((24,), (), (8,), 32)
    assert tensor_map(b, (1, 8), 0, (2, 8), (16,)).arg.strides == (16,)


# ---- misuse
def test_nothing_inside_a_scope() -> None:
    c = Cursor()
    c.store(X.index(0), 1.0)
    with pytest.raises(UsageError, match="nothing is done inside r1"), c.loop(range_(4, 1)):
        pass
    why = r"nothing is done inside the IF at test_cursor\.py:\d+"
    with pytest.raises(UsageError, match=why), Cursor().when(LANE < 1):
        pass
    why = "nothing is done inside the role idle"
    with pytest.raises(UsageError, match=why), Cursor().role("idle", 0, 1):
        pass


def test_roles_are_opened_outside_of_scopes() -> None:
    c = Cursor()
    why = r"role inner at test_cursor\.py:\d+: it is opened inside another scope"
    with pytest.raises(UsageError, match=why), c.role("outer", 0, 1), c.role("inner", 0, 1):
        pass
    c = Cursor()
    why = r"role one .*inside another scope"
    with pytest.raises(UsageError, match=why), c.loop(range_(4, 1)), c.role("one", 0, 1):
        pass


def test_other_misuse_names_the_line() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    with pytest.raises(UsageError, match=rf"sink at test_cursor\.py:{frame.f_lineno + 1}: .*any"):
        Cursor().sink()
    c = Cursor()
    with pytest.raises(UsageError, match="a scope is still open"), c.when(LANE < 1):
        c.store(X.index(0), 1.0)
        c.sink()
    with pytest.raises(UsageError, match="one range or more"), Cursor().loop():
        pass
    with pytest.raises(UsageError, match=r"'\{\}' shows 1 values, got 2"):
        Cursor().printf("{}", LANE, LANE)
    with pytest.raises(UsageError, match=r"ATOMIC .*the memory is f32"):
        Cursor().atomic(Atomic.ADD, X.index(0), LANE)
    with pytest.raises(UsageError, match=r"SHUFFLE .*INDEX wants a value and an integer lane"):
        X.index(0).load().shuffle(0, ShuffleMode.INDEX)

"""Rules of clusters: one kernel that keeps them, and one that breaks each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_, rank_
from uopc.uop.ops import (
    AccessArg,
    Atomic,
    AxisType,
    Combine,
    CopyArg,
    Engine,
    Fence,
    Ops,
    ParamArg,
    RangeArg,
    ReduceArg,
    StageArg,
)
from uopc.uop.spec import check
from uopc.uop.stages import Stage
from uopc.uop.text import parse, show

F32 = dtypes.f32
X, Y = buffer(0, F32, (128,)), buffer(1, F32, (128,))
RANK, T = rank_(2, 1), range_(64, 1, AxisType.LOCAL)


def part(
    *shape: int, space: AddrSpace = AddrSpace.CLUSTER, dtype: DType = F32, slot: int = 0
) -> UOp:
    return UOp(Ops.ALLOC, (), ParamArg(slot, dtype, shape, space, "part"))


PART = part(2, 64)
MET = part(1, space=AddrSpace.MBARRIER, dtype=dtypes.u64, slot=1)
ZERO = UOp.const(0, dtypes.index)


def kernel(does: Callable[[Cursor], object], rank: UOp = RANK) -> UOp:
    """A kernel of clusters that does something."""
    c = Cursor()
    c.cluster_arrive()
    c.cluster_wait()
    does(c)
    c.store(Y.index(rank * 64 + T), c.load(X.index(rank * 64 + T)))
    return c.sink()


def test_a_right_one() -> None:
    sink = kernel(lambda c: c.store(PART.index((1 - RANK) * 64 + T), X.index(T).load()))
    check(sink, Stage.LOOPS, gpu=True)
    again = parse(show(sink))
    assert again is sink
    with pytest.raises(SpecError, match="native C"):
        check(sink, Stage.LOOPS, gpu=False)


WRONG: dict[str, Callable[[Cursor], object]] = {
    "shape .blocks, elements of each.": lambda c: c.store(part(128).index(T), 0.0),
    "has parts in 4 blocks, the cluster has 2": lambda c: c.store(part(4, 64).index(T), 0.0),
    "element by element": lambda c: c.do(
        Ops.STORE,
        PART.index(4 * T),
        UOp(Ops.LOAD, (X.index(4 * T),), AccessArg(4)),
        arg=AccessArg(4),
    ),
    "atomics are for GLOBAL and SHARED": lambda c: c.atomic(Atomic.ADD, PART.index(T), 1.0),
    "other engines and fences": lambda c: c.fence(Fence.DEVICE),
    "cp.async copies from GLOBAL to SHARED": lambda c: c.copy_async(PART.index(T), X.index(T)),
    "sends a value into CLUSTER memory": lambda c: c.do(
        Ops.COPY, X.index(T), X.index(T).load(), MET.index(ZERO), arg=CopyArg(Engine.CLUSTER)
    ),
    "counts? at an mbarrier": lambda c: c.do(
        Ops.COPY, PART.index(T), X.index(T).load(), arg=CopyArg(Engine.CLUSTER)
    ),
    "one value of 4 or 8 bytes": lambda c: c.send(
        part(2, 64, dtype=dtypes.f16).index(T), X.index(T).load().cast(dtypes.f16), MET.index(ZERO)
    ),
    "at most a gate": lambda c: c.send(
        PART.index(T), X.index(T).load(), MET.index(ZERO), X.index(T).load()
    ),
    "no MBAR_INIT gives": lambda c: c.send(PART.index(T), X.index(T).load(), MET.index(ZERO)),
    "no roles": lambda c: c.named_barrier(UOp.const(1, dtypes.index), 32),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_wrong_one(why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check(kernel(WRONG[why]), Stage.LOOPS, gpu=True)


def test_ranks() -> None:
    def nothing(c: Cursor) -> None:
        pass

    with pytest.raises(SpecError, match="2, 4, 8, 16 blocks, not 3"):
        check(kernel(nothing, rank_(3, 1)), Stage.LOOPS, gpu=True)
    with pytest.raises(SpecError, match="along one axis, this is a second one"):
        check(
            kernel(lambda c: c.store(Y.index(rank_(2, 2)), 0.0)),
            Stage.LOOPS,
            gpu=True,
        )
    blocks = range_(2, 1, AxisType.GLOBAL)
    with pytest.raises(SpecError, match="no GLOBAL range with digit 'c'"):
        check(kernel(nothing, blocks), Stage.LOOPS, gpu=True)


def test_stages_between_blocks() -> None:
    """In MAPPED: a STAGE has equal parts, and a REDUCE closes the rank."""
    lane = UOp(Ops.RANGE, (), RangeArg(1, 64, AxisType.LOCAL, "l"))
    value = X.index(RANK * 64 + lane).load()
    read = UOp(Ops.RANGE, (), RangeArg(1, 4, AxisType.UPCAST, "w"))

    def staged(arg: StageArg) -> UOp:
        stage = UOp(Ops.STAGE, (value, RANK, RANK * 2 + read, lane < 1), arg)
        total = UOp(Ops.REDUCE, (stage, read), ReduceArg(Combine.ADD))
        return UOp(Ops.SINK, (Y.index(lane).store(total),))

    for arg in (
        StageArg(AddrSpace.CLUSTER, 9, True, 2),
        StageArg(AddrSpace.CLUSTER, 8, True),
        StageArg(AddrSpace.SHARED, 8, True, 2),
    ):
        with pytest.raises(SpecError, match="equal parts in several blocks"):
            check(staged(arg), Stage.MAPPED, gpu=True)

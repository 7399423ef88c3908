"""Mutants are kernels: they pass the spec, and differ from the original in what they say."""

from __future__ import annotations

import pytest

from tests.mutation.mutate import access_mutants, synchronisation_mutants, without
from uopc.dtype import AddrSpace, dtypes
from uopc.examples import smem_gemm_ir
from uopc.passes.linearize import linearize
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_, toposort
from uopc.uop.ops import AxisType, BarrierScope, Ops, ParamArg
from uopc.uop.spec import Stage, check


def _turn() -> UOp:
    """64 numbers backwards; one lane writes a zero first, for the IF."""
    x, y = buffer(0, dtypes.f32, (64,)), buffer(1, dtypes.f32, (64,))
    tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (64,), AddrSpace.SHARED, "tile"))
    t = range_(64, 0, AxisType.LOCAL)
    c = Cursor()
    with c.when(t < 1):
        c.barrier()
    c.store(tile.index(t), x.index(t).load(t < 60, 0.0))
    c.barrier()
    c.store(y.index(t), c.load(tile.index(63 - t)))
    return c.sink()


def _count(sink: UOp, op: Ops) -> int:
    return sum(u.op is op for u in toposort(sink))


@pytest.mark.parametrize("sink", [smem_gemm_ir(32, 8), _turn()], ids=["gemm", "turn"])
def test_deleting_a_barrier(sink: UOp) -> None:
    deleted = [m for m in synchronisation_mutants(sink) if m.kind == "delete"]
    assert len(deleted) == _count(sink, Ops.BARRIER) == 2
    for m in deleted:
        check(m.sink, Stage.LOOPS)
        linearize(m.sink)
        assert _count(m.sink, Ops.BARRIER) == 1
        assert _count(m.sink, Ops.STORE) == _count(sink, Ops.STORE)


def test_an_if_around_nothing_goes_with_what_it_held() -> None:
    sink = _turn()
    inside = next(u for u in toposort(sink) if u.op is Ops.BARRIER)
    alone = without(sink, inside)
    assert alone is not None and _count(alone, Ops.IF) == _count(alone, Ops.END) == 0


def test_a_barrier_weakened() -> None:
    weak = [m for m in synchronisation_mutants(smem_gemm_ir(32, 8)) if m.kind == "weaken"]
    assert len(weak) == 2
    for m in weak:
        check(m.sink, Stage.LOOPS)
        scopes = [u.arg.scope for u in toposort(m.sink) if u.op is Ops.BARRIER and u.arg]
        assert scopes == [BarrierScope.WARP]


def test_wrong_accesses() -> None:
    kinds = [(m.kind, m.what) for m in access_mutants(_turn())]
    assert ("gate", "LOAD without its gate") in kinds
    assert ("index", "LOAD one element further") in kinds
    for m in access_mutants(_turn()):
        check(m.sink, Stage.LOOPS)


def test_the_only_effect_is_not_deleted() -> None:
    c = Cursor()
    y = buffer(0, dtypes.f32, (1,))
    c.store(y.index(0), 1.0)
    sink = c.sink()
    assert without(sink, sink.src[0]) is None

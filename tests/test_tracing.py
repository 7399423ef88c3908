"""`uopc.trace`: who is told, what, and in which dtype."""

from __future__ import annotations

import numpy as np
import pytest

import uopc
from uopc.dtype import AddrSpace, DType, dtypes, to_bits
from uopc.errors import UsageError
from uopc.examples import smem_gemm_ir
from uopc.tracing import op_named, trace, value_of
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, Ops, ParamArg

x, y = buffer(0, dtypes.f32, (64,)), buffer(1, dtypes.f32, (64,))
tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (4, 16), AddrSpace.SHARED, "tile"))
t = range_(64, 0, AxisType.LOCAL)
NUMBERS = np.arange(64, dtype=np.float32)


def turn() -> UOp:
    c = Cursor()
    c.store(tile.index(t), x.index(t).load())
    c.barrier()
    with c.loop(range_(2, 1)) as i:
        c.store(y.index(t), c.load(tile.index(63 - t)) + i.cast(dtypes.f32))
    return c.sink()


def test_values_of_one_thread() -> None:
    steps = trace(turn(), NUMBERS, threads=[(3, 0, 0)])
    assert {s.thread for s in steps} == {(3, 0, 0)} and {s.block for s in steps} == {(0, 0, 0)}
    stores = [s for s in steps if s.node.op is Ops.STORE]
    assert [(s.element, s.value, dict(s.loops)) for s in stores] == [
        ("tile0[0][3]", 3.0, {}),
        ("p1[3]", 60.0, {"i1": 0}),
        ("p1[3]", 61.0, {"i1": 1}),
    ]
    assert all(s.place.startswith("test_tracing.py:") for s in stores)
    assert stores[0].text == "STORE tile0[lidx0]"


def test_only_some_nodes() -> None:
    kernel = turn()
    steps = trace(kernel, NUMBERS, nodes=["load", Ops.BARRIER])
    assert {s.node.op for s in steps} == {Ops.LOAD, Ops.BARRIER}
    (one,) = {s.node for s in steps if s.node.op is Ops.BARRIER}
    assert {s.node for s in trace(kernel, NUMBERS, nodes=[one])} == {one}


def test_several_threads_by_number() -> None:
    steps = trace(turn(), NUMBERS, threads=[0, 40], nodes=["STORE"])
    assert {s.thread[0] for s in steps} == {0, 40}


def test_blocks_and_two_dimensions() -> None:
    a = np.ones((16, 16), np.float32)
    steps = trace(smem_gemm_ir(16, 8), a, a, threads=[(5, 2, 0)], block=(1, 0, 0), nodes=["STORE"])
    assert {s.thread for s in steps} == {(5, 2, 0)} and {s.block for s in steps} == {(1, 0, 0)}
    assert steps[-1].element == "p2[2][13]" and steps[-1].value == 16.0


def test_every_step_of_a_kernel() -> None:
    steps = trace(buffer(0, dtypes.f32, (8, 33)).reduce(Ops.ADD), np.ones((8, 33), np.float32))
    assert {s.kernel for s in steps} == {"kernel"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(threads=[64]), "there is no thread 64: the kernel has 64, 0 to 63"),
        (dict(threads=[(0, 1, 0)]), "there is no thread (0, 1, 0): the kernel has (64, 1, 1)"),
        (dict(block=1), "there is no block 1"),
        (dict(nodes=["LAOD"]), "no op is called 'LAOD'; did you mean LOAD?"),
    ],
)
def test_usage(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as error:
        trace(turn(), NUMBERS, **given)  # type: ignore[arg-type]  # wrong on purpose
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (dtypes.bool, True),
        (dtypes.i8, -5),
        (dtypes.i32, -1),
        (dtypes.u32, 0xFFFFFFFF),
        (dtypes.i64, -(1 << 63)),
        (dtypes.u64, (1 << 64) - 1),
        (dtypes.index, -7),
        (dtypes.f16, -1.5),
        (dtypes.bf16, 3.0),
        (dtypes.f32, 0.1),
        (dtypes.f64, 0.1),
    ],
)
def test_values(dtype: DType, value: int | float) -> None:
    bits = to_bits(value, dtype) if dtype.is_float else int(value) & ((1 << 64) - 1)
    got = value_of(bits, dtype)
    assert type(got) is type(value)
    assert got == (float(np.float32(value)) if dtype is dtypes.f32 else value)


def test_ops_by_name() -> None:
    assert op_named("wait") is Ops.WAIT


def test_public_name() -> None:
    assert uopc.trace is trace

"""Closers get memories, and every effect its place in one order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernels import (
    around,
    arrays_of,
    assert_same_numbers,
    axpy,
    columns,
    param,
    product,
    softmax,
)
from tests.passes.test_materialise import HELD, LONG, ROW, centred
from uopc.dtype import AddrSpace, dtypes
from uopc.opts import Opts
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import AxisType, Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

WIDE = param(0, 3, 1000)
CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "elementwise": ((axpy(64),), Opts(gpu=True, local={0: 8}, vector={0: 4})),
    "sum": ((WIDE.reduce(Ops.ADD, 1),), Opts()),
    "sum-in-a-block": ((WIDE.reduce(Ops.ADD, 1),), Opts(gpu=True, local={1: 64}, upcast={1: 2})),
    "argmax": ((WIDE.argmax(1),), Opts(gpu=True, local={1: 64})),
    "row-in-registers": ((centred(ROW),), HELD),
    "row-in-shared": (
        (centred(LONG),),
        Opts(gpu=True, local={1: 32}, vector={1: 2}, keep="shared"),
    ),
    "product": (
        (product(8, 8, 6),),
        Opts(gpu=True, local={0: 4, 1: 4}, upcast={0: 2, 1: 2}, unroll=2),
    ),
    "rows-in-turn": ((centred(ROW),), Opts(gpu=True, loop={0: 3}, local={1: 64})),
    "columns": (
        (columns(param(0, 50, 40)),),
        Opts(gpu=True, local={0: 32, 1: 8}, vector={0: 2}, lanes=(0, 1)),
    ),
    "two-outputs": ((axpy(3, 8), param(0, 3, 8).reduce(Ops.MAX, 1)), Opts(gpu=True, local={1: 8})),
    "reduction-in-a-reduction": (
        (param(0, 4, 5, 6).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1),),
        Opts(tile={0: 2}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = CASES[name]
    before, after = around("effects", opts, *bodies)
    check(after, Stage.LOOPS, opts.gpu)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.MAPPED, Stage.LOOPS))
    golden(f"effects/{name}.txt", f"# {opts}\n{show(after)}")


@pytest.mark.parametrize("name", CASES)
def test_every_loop_is_opened_once(name: str) -> None:
    bodies, opts = CASES[name]
    _, after = around("effects", opts, *bodies)
    closed = [r for u in toposort(after) if u.op is Ops.END for r in u.src[1:]]
    hardware = (AxisType.GLOBAL, AxisType.LOCAL)
    assert len(closed) == len(set(closed))
    assert set(closed) == {
        u for u in toposort(after) if u.op is Ops.RANGE and u.arg.kind not in hardware
    }


def counts(after: UOp, op: Ops) -> int:
    return sum(u.op is op for u in toposort(after))


def test_products_are_added_with_one_rounding() -> None:
    _, after = around("effects", Opts(), product(4, 4, 8))
    assert counts(after, Ops.FMA) == 1 and counts(after, Ops.MUL) > 0
    _, whole = around("effects", Opts(), product(4, 4, 8, dtype=dtypes.i32))
    assert counts(whole, Ops.FMA) == 0


def test_a_softmax_stores_through_two_sums() -> None:
    _, after = around("effects", HELD, softmax(ROW))
    check(after, Stage.LOOPS, True)
    names = {u.arg.name for u in toposort(after) if u.op is Ops.ALLOC}
    assert {"max", "acc"} <= names


def test_an_exchange_has_a_barrier_after_it() -> None:
    _, after = around("effects", CASES["sum-in-a-block"][1], *CASES["sum-in-a-block"][0])
    assert counts(after, Ops.BARRIER) == 1


def test_an_exchange_in_a_loop_writes_two_memories_in_turn() -> None:
    _, after = around(
        "effects", Opts(gpu=True, loop={0: 3}, local={1: 64}), WIDE.reduce(Ops.ADD, 1)
    )
    shared = [u.arg for u in toposort(after) if u.op is Ops.ALLOC and u.arg.name == "part"]
    assert counts(after, Ops.BARRIER) == 1 and [a.shape for a in shared] == [(4,)]


def test_a_large_exchange_in_a_loop_has_a_barrier_before_it_too() -> None:
    opts = Opts(gpu=True, loop={0: 2}, local={0: 128, 1: 8}, vector={0: 4}, lanes=(0, 1))
    _, after = around("effects", opts, columns(param(0, 50, 1024)))
    shared = [u.arg for u in toposort(after) if u.op is Ops.ALLOC and u.arg.name == "part"]
    assert counts(after, Ops.BARRIER) == 2 and [a.shape for a in shared] == [(4096,)]


def test_an_accumulator_begins_anew_in_every_row() -> None:
    _, after = around("effects", Opts(gpu=True, loop={0: 3}), WIDE.reduce(Ops.ADD, 1))
    (memory,) = (u for u in toposort(after) if u.op is Ops.ALLOC)
    first = next(u for u in toposort(after) if u.op is Ops.AFTER and u.src[0] is memory)
    assert [r.arg.axis for r in first.src[1:]] == [0]


def test_a_row_in_shared_memory_is_one_threads_own() -> None:
    _, after = around("effects", *_of("row-in-shared"))
    shared = [
        u for u in toposort(after) if u.op is Ops.ALLOC and u.arg.addrspace is AddrSpace.SHARED
    ]
    assert [u.arg.shape for u in shared] == [(256,)] and counts(after, Ops.BARRIER) == 0


def _of(name: str) -> tuple[Opts, UOp]:
    (body,), opts = CASES[name]
    return opts, body

"""What stays in registers: dear values that two loops use, and loads that fly together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernels import (
    along,
    around,
    arrays_of,
    assert_same_numbers,
    axpy,
    numerator,
    param,
    product,
    softmax,
)
from uopc.dtype import AddrSpace
from uopc.opts import Opts
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

ROW = param(0, 3, 128)
HELD = Opts(gpu=True, local={1: 32}, upcast={1: 4})
LOOPED = Opts(gpu=True, local={1: 32}, vector={1: 2})
LONG = param(0, 3, 256)


def centred(x: UOp) -> UOp:
    """A row less its largest element, and then less its smallest."""
    return x - along(x.reduce(Ops.MAX, 1), x) - along(x.reduce(Ops.MIN, 1), x)


CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "row-in-registers": ((centred(ROW),), HELD),
    "row-computed-again": (
        (centred(ROW),),
        Opts(gpu=True, local={1: 32}, upcast={1: 4}, keep="none"),
    ),
    "row-in-shared": (
        (centred(LONG),),
        Opts(gpu=True, local={1: 32}, vector={1: 2}, keep="shared"),
    ),
    "long-row-computed-again": ((centred(LONG),), LOOPED),
    "elementwise": ((axpy(64),), Opts(gpu=True, local={0: 8}, vector={0: 4})),
    "native": ((centred(ROW),), Opts(vector={1: 8})),
    "product": (
        (product(8, 8, 6),),
        Opts(gpu=True, local={0: 4, 1: 4}, upcast={0: 2, 1: 2}, unroll=2),
    ),
}
SOFTMAX = {"softmax": ((softmax(ROW),), HELD), "numerator": ((numerator(ROW),), HELD)}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = CASES[name]
    before, after = around("materialise", opts, *bodies)
    check(after, Stage.MAPPED, opts.gpu)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.MAPPED, Stage.MAPPED))
    golden(f"materialise/{name}.txt", f"# {opts}\n{show(after)}")


@pytest.mark.parametrize("name", SOFTMAX)
def test_transcendentals_stay_too(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = SOFTMAX[name]
    before, after = around("materialise", opts, *bodies)
    check(after, Stage.MAPPED, opts.gpu)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.MAPPED, Stage.MAPPED))
    golden(f"materialise/{name}.txt", f"# {opts}\n{show(after)}")


def kept(opts: Opts, body: UOp) -> list[tuple[Ops, AddrSpace, int]]:
    """(what is staged, where, elements) of the staged values that no exchange made."""
    _, after = around("materialise", opts, body)
    stages = [u for u in toposort(after) if u.op is Ops.STAGE and not u.arg.exchange]
    return [(u.src[0].op, u.arg.space, u.arg.size) for u in stages]


def test_a_row_that_three_loops_use_is_read_once() -> None:
    assert kept(HELD, centred(ROW)) == [(Ops.LOAD, AddrSpace.REG, 4)]


def test_a_dear_value_is_kept_beside_its_row() -> None:
    assert kept(HELD, softmax(ROW)) == [(Ops.LOAD, AddrSpace.REG, 4), (Ops.EXP, AddrSpace.REG, 4)]


def test_a_value_of_one_loop_is_not_kept() -> None:
    assert kept(HELD, numerator(ROW)) == [(Ops.LOAD, AddrSpace.REG, 4)]


def test_keep_none_reads_in_each_loop() -> None:
    opts = Opts(gpu=True, local={1: 32}, upcast={1: 4}, keep="none")
    assert all(op is Ops.LOAD for op, _, _ in kept(opts, softmax(ROW)))


def test_what_a_serial_loop_walks_is_not_kept() -> None:
    assert kept(LOOPED, centred(LONG)) == [(Ops.LOAD, AddrSpace.REG, 2)]  # the vector alone


def test_keep_shared_holds_a_long_row() -> None:
    opts = Opts(gpu=True, local={1: 32}, vector={1: 2}, keep="shared")
    assert (Ops.STAGE, AddrSpace.SHARED, 256) in kept(opts, centred(LONG))


def test_native_code_does_not_batch_its_loads() -> None:
    assert kept(Opts(vector={1: 8}), param(0, 3, 128) * 2.0) == []


def test_a_row_that_lanes_have_in_common_is_not_kept_in_shared_memory() -> None:
    """Each thread keeps elements of its own there, without a barrier."""
    x, y = param(0, 4, 60), param(1, 4, 60, 8)
    row = x.reshape((4, 60, 1)).expand(y.shape)
    kernel = (row.maximum(y)).permute((0, 2, 1)).reduce(Ops.MAX, 1)
    spread = kernel.reshape((4, 1, 8)).expand(y.shape)
    opts = Opts(gpu=True, local={2: 8}, keep="shared")
    _, after = around("materialise", opts, row - spread)
    shared = [u for u in toposort(after) if u.op is Ops.STAGE and u.arg.space is AddrSpace.SHARED]
    assert all(memory(u.src[0].src[0]).arg.slot == 1 for u in shared)

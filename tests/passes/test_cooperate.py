"""Reductions over threads: butterflies in a warp, then one exchange; the same bits for all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels import OUT, around, arrays_of, assert_same_numbers, columns, param
from uopc.dtype import AddrSpace, dtypes
from uopc.opts import Opts
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import AxisType, Ops
from uopc.uop.oracle import run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

WIDE = param(0, 3, 1000)
CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "in-the-thread": ((WIDE.reduce(Ops.ADD, 1),), Opts(gpu=True, upcast={1: 4}, tile={1: 8})),
    "part-of-a-warp": (
        (param(0, 3, 64).reduce(Ops.MAX, 1),),
        Opts(gpu=True, local={1: 8, 0: 4}, lanes=(1, 0)),
    ),
    "a-warp": ((WIDE.reduce(Ops.ADD, 1),), Opts(gpu=True, local={1: 32})),
    "a-block": ((WIDE.reduce(Ops.ADD, 1),), Opts(gpu=True, local={1: 256}, upcast={1: 4})),
    "no-power-of-two": ((WIDE.reduce(Ops.MAX, 1),), Opts(gpu=True, local={1: 24})),
    "behind-other-lanes": (
        (columns(param(0, 50, 20)),),
        Opts(gpu=True, local={0: 16, 1: 8}, lanes=(0, 1)),
    ),
    "behind-a-whole-warp": (
        (columns(param(0, 50, 40)),),
        Opts(gpu=True, local={0: 32, 1: 8}, lanes=(0, 1)),
    ),
    "copies-of-rows": (
        (WIDE.reduce(Ops.ADD, 1),),
        Opts(gpu=True, local={1: 64}, upcast={0: 2, 1: 2}),
    ),
    "argmax": ((WIDE.argmax(1),), Opts(gpu=True, local={1: 64}, vector={1: 4})),
    "bool": (
        (param(0, 3, 100, dtype=dtypes.bool).reduce(Ops.OR, 1),),
        Opts(gpu=True, local={1: 64}),
    ),
    "two-axes": (
        (param(0, 6, 1, 10, 12).permute((0, 2, 1, 3)).reduce(Ops.MAX, 3),),
        Opts(gpu=True, local={1: 40}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = CASES[name]
    before, after = around("cooperate", opts, *bodies)
    check(after, Stage.MAPPED, True)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.MAPPED, Stage.MAPPED))
    golden(f"cooperate/{name}.txt", f"# {opts}\n{show(after)}")


@pytest.mark.parametrize("name", CASES)
def test_no_reduction_closes_lanes(name: str) -> None:
    bodies, opts = CASES[name]
    _, after = around("cooperate", opts, *bodies)
    kinds = {r.arg.kind for u in toposort(after) if u.op is Ops.REDUCE for r in u.src[1:]}
    assert AxisType.LOCAL not in kinds


def masks(after: UOp) -> list[int]:
    return [u.arg.by for u in toposort(after) if u.op is Ops.SHUFFLE]


def stages(after: UOp) -> list[UOp]:
    return [u for u in toposort(after) if u.op is Ops.STAGE]


@pytest.mark.parametrize(
    ("local", "shuffles", "size"),
    [
        (2, [1], 0),
        (8, [4, 2, 1], 0),
        (32, [16, 8, 4, 2, 1], 0),
        (256, [16, 8, 4, 2, 1], 8),
        (1024, [16, 8, 4, 2, 1], 32),
    ],
)
def test_butterflies_then_one_value_a_warp(local: int, shuffles: list[int], size: int) -> None:
    _, after = around(
        "cooperate", Opts(gpu=True, local={1: local}), param(0, 3, 4096).reduce(Ops.ADD, 1)
    )
    assert masks(after) == shuffles
    assert [s.arg.size for s in stages(after)] == ([size] if size else [])
    assert all(s.arg.space is AddrSpace.SHARED and s.arg.exchange for s in stages(after))


def test_lanes_behind_others_are_farther_apart() -> None:
    _, after = around("cooperate", *_with(CASES["behind-other-lanes"]))
    assert masks(after) == [
        16
    ]  # lanes of x: 16; of the reduced axis in this warp: 2, the rest shared
    assert stages(after)[0].arg.size == 4 * 16


def _with(case: tuple[tuple[UOp, ...], Opts]) -> tuple[Opts, UOp]:
    return case[1], case[0][0]


def test_what_is_no_power_of_two_goes_through_shared_memory() -> None:
    _, after = around("cooperate", *_with(CASES["no-power-of-two"]))
    assert masks(after) == [] and stages(after)[0].arg.size == 24


def test_a_register_tile_of_rows_reduces_each() -> None:
    _, after = around("cooperate", *_with(CASES["copies-of-rows"]))
    assert stages(after)[0].arg.size == 2 * 2  # two warps, two rows


def test_tile_digits_are_folded_first() -> None:
    _, after = around("cooperate", *_with(CASES["in-the-thread"]))
    digits = [tuple(r.arg.digit for r in u.src[1:]) for u in toposort(after) if u.op is Ops.REDUCE]
    assert digits == [("t",), ("k",), ("u",)]


@pytest.mark.parametrize(
    "opts",
    [
        Opts(gpu=True),
        Opts(gpu=True, local={1: 32}),
        Opts(gpu=True, local={1: 16}, upcast={1: 2}),
        Opts(gpu=True, local={1: 2, 0: 2}, lanes=(0, 1)),
        Opts(gpu=True, upcast={1: 32}),
    ],
)
@pytest.mark.parametrize("n", [1, 2, 32])
def test_a_sum_of_negative_zeros_is_positive(n: int, opts: Opts) -> None:
    """Whatever the mapping: sums start from +0.0."""
    body = param(0, 4, n).reduce(Ops.ADD, 1)
    if n == 1:
        opts = Opts(gpu=True)
    _, after = around("cooperate", opts, body)
    got = run(after, {0: np.full((4, n), -0.0, np.float32)}, Stage.MAPPED)[OUT]
    assert not np.signbit(got).any()

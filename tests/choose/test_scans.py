"""Opts for kernels that scan an axis: what is held, walked or cut into parts."""

from __future__ import annotations

import pytest

from tests.kernels import outputs, param
from uopc.choose import cpu
from uopc.choose.facts import KernelFacts
from uopc.choose.gpu import Aim, rank
from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.target import target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


def rows(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    return param(0, m, n, dtype=dtype).scan(Ops.ADD)


def columns(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    return param(0, m, n, dtype=dtype).permute((1, 0)).scan(Ops.ADD).permute((1, 0))


def facts(body: UOp) -> KernelFacts:
    return KernelFacts.of([body], outputs([body]))


def chosen(body: UOp, split: bool = True) -> Opts:
    return rank(facts(body), Aim(target("sm_90"), split=split))[0]


def digits(o: Opts, axis: int) -> tuple[int, int, int]:
    """Lanes, copies and vector of an axis."""
    return tuple(dict(x).get(axis, 1) for x in (o.local, o.upcast, o.vector))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("body", "want"),
    (
        (rows(8192, 8192), (256, 8, 4)),
        (rows(8192, 8192, dtypes.bf16), (256, 4, 8)),
        (rows(8192, 16384), (512, 8, 4)),
        (rows(8192, 2048), (64, 8, 4)),
        (rows(8192, 1024), (32, 8, 4)),
        (rows(8192, 100), (32, 1, 4)),
        (rows(8192, 8192, dtypes.f64), (512, 8, 2)),
        (rows(8192, 1 << 20), (256, 4, 4)),  # it is walked in steps
    ),
)
def test_rows(body: UOp, want: tuple[int, int, int]) -> None:
    o = chosen(body)
    assert digits(o, 1) == want and dict(o.blocks).get(1, 1) == 1 and o.lanes[0] == 1


def test_rows_of_a_warp_share_a_block() -> None:
    o = chosen(rows(8192, 512))
    assert digits(o, 1)[0] == 32 and digits(o, 0)[0] == 8


def test_columns_are_walked_by_neighbours() -> None:
    o = chosen(columns(8192, 8192))
    assert o.lanes[0] == 1 and digits(o, 1)[0] == 32 and digits(o, 0) == (16, 1, 8)
    assert not o.blocks  # 128 of them


def test_few_rows_are_cut_into_parts() -> None:
    for body, axis in ((rows(2, 1 << 20), 1), (columns(1 << 14, 64), 0)):
        parts = dict(chosen(body).blocks)[axis]
        assert 64 <= parts <= 600
        assert axis not in dict(chosen(body, split=False).blocks)
    assert not chosen(rows(1, 1 << 14)).blocks  # three kernels would take longer


def test_a_cpu_adds_in_two_levels() -> None:
    (o,) = cpu.rank(facts(rows(3, 10_000)))
    assert dict(o.tile) == {1: 128}
    (o,) = cpu.rank(facts(param(0, 3, 10_000).scan(Ops.MAX)))
    assert not o.tile
    (o,) = cpu.rank(facts(columns(300, 1000)))
    assert dict(o.vector) == {1: 512} and o.thread != 0

"""Constructors of index arithmetic: what they make is worth what was asked for."""

from __future__ import annotations

import pytest

from tests.symbolic.evaluate import between, check_same
from uopc import layouts
from uopc.symbolic import index as ix
from uopc.uop.node import UOp, range_
from uopc.uop.ops import AxisType, Ops

i, j, k = between(0, 0, 6), between(1, 0, 12), between(2, -3, 3)
OPERANDS = [
    *(i, j, i * 4, j * 8 + i, j * 8 + i * 2 + 1, i * 12 + 3, j // 4, j % 8, j % 8 * 4, j // 2 * 16),
    *(k, k * 4 + j, ix.index(0), ix.index(5), ix.index(24)),
]


@pytest.mark.parametrize("b", range(len(OPERANDS)))
@pytest.mark.parametrize("a", range(len(OPERANDS)))
def test_xor(a: int, b: int) -> None:
    x, y = OPERANDS[a], OPERANDS[b]
    check_same(UOp(Ops.XOR, (x, y)), ix.xor(x, y))


def test_a_vector_of_a_swizzled_tile_is_contiguous() -> None:
    tile = layouts.SharedTile(16, 64, 4, swizzle=128)
    row, group, v = between(0, 0, 15), between(1, 0, 15), range_(4, 2, AxisType.UPCAST)
    place = tile.index(row, ix.add(ix.scale(group, 4), v))
    canonical = ix.canonical(place)
    check_same(place, canonical)
    assert ix.coefficient(place, v) is None and ix.coefficient(canonical, v) == 1
    assert ix.divides(4, ix.substitute(canonical, {v: ix.ZERO}))

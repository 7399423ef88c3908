"""Bytes and pieces that an offset reaches, beside sets of all its values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uopc.inspect.footprint import footprint, of_one_block
from uopc.symbolic import index as ix
from uopc.uop.facts import free
from uopc.uop.node import UOp, range_
from uopc.uop.ops import AxisType, Ops, RangeArg


def ranges(*sizes: int, kind: AxisType = AxisType.LOOP) -> list[UOp]:
    return [range_(n, axis, kind) for axis, n in enumerate(sizes)]


def reached(offset: UOp, itemsize: int, width: int, piece: int = 1) -> int:
    """Bytes of all pieces that any value of the offset reaches: by trying them all."""
    loops = [r for r in free(offset) if r.op is Ops.RANGE]
    found: set[int] = set()
    for values in itertools.product(*(range(r.arg.size) for r in loops)):
        numbers = {
            r: ix.index(r.arg.start + v * r.arg.step) for r, v in zip(loops, values, strict=True)
        }
        at = ix.substitute(offset, numbers).arg.bits * itemsize
        found.update(range(at // piece, (at + width - 1) // piece + 1))
    return len(found) * piece


def total(terms: Iterable[tuple[int, int]]) -> UOp:
    """A sum of step * range."""
    terms = list(terms)
    found = ix.index(0)
    for r, (step, _) in zip(ranges(*(n for _, n in terms)), terms, strict=True):
        found = found + r * step
    return found


@pytest.mark.parametrize(
    ("terms", "piece"),
    [
        ([(1, 32)], 1),
        ([(1, 32)], 32),
        ([(8, 32)], 1),
        ([(8, 32)], 32),  # each in a sector of its own
        ([(2, 32)], 32),  # gaps smaller than a sector
        ([(33, 16)], 64),
        ([(1, 8), (512, 32)], 1),  # a tile of rows
        ([(1, 8), (512, 32)], 32),
        ([(2, 8), (512, 4)], 32),  # every second of a tile
        ([(1, 8), (8, 4)], 1),  # rows that follow each other
        ([(1, 8), (1, 3)], 1),  # a window that moves by one
        ([(16, 8), (16, 3)], 1),  # the same, of rows with gaps
        ([(16, 8), (32, 3)], 1),
        ([(-1, 32)], 1),
        ([], 32),
    ],
)
def test_exact_where_runs_nest(terms: list[tuple[int, int]], piece: int) -> None:
    offset = total(terms)
    assert footprint(offset, 4, 4, piece) == reached(offset, 4, 4, piece)


@given(
    st.lists(st.tuples(st.integers(-40, 40), st.integers(1, 6)), max_size=4),
    st.sampled_from((1, 4, 16)),
    st.sampled_from((1, 32, 64)),
)
def test_never_too_few_bytes(terms: list[tuple[int, int]], width: int, piece: int) -> None:
    """Pieces may be one more a run where it does not begin with one; bytes never are."""
    offset = total(terms)
    found = footprint(offset, 4, width, piece)
    true = reached(offset, 4, width, piece)
    runs = 1 if piece == 1 else reached(offset, 4, width)
    assert found >= true - (piece > 1) * runs * piece
    assert piece > 1 or found >= true


def test_views_that_are_taken_apart() -> None:
    """A flat range as rows of 40 in a memory whose rows have 64."""
    (r,) = ranges(1600)
    offset = r // 40 * 64 + r % 40
    assert footprint(offset, 4, 4) == reached(offset, 4, 4) == 6400
    assert footprint(offset, 4, 4, 32) == reached(offset, 4, 4, 32) == 6400


def test_a_range_with_steps() -> None:
    r = UOp(Ops.RANGE, (), RangeArg(0, 8, AxisType.LOOP, start=4, step=3))
    assert footprint(r * 2, 4, 4) == reached(r * 2, 4, 4) == 32
    assert footprint(r, 4, 4, 32) == 32 * -(-(7 * 12 + 4) // 32)


def test_one_block_of_many() -> None:
    block, lane = range_(100, 0, AxisType.GLOBAL), range_(32, 1, AxisType.LOCAL)
    offset = block * 32 + lane
    assert footprint(offset, 4, 4) == 12800
    assert footprint(of_one_block(offset), 4, 4) == 128
    assert of_one_block(lane * 4) is lane * 4


def test_a_broadcast_reaches_one_place() -> None:
    assert footprint(ix.index(7), 4, 16) == 16
    assert footprint(ix.index(7), 4, 4, 64) == 64

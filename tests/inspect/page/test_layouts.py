"""Sectors and banks of a warp, against cases by hand and the counts of the report."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from uopc.inspect import requests
from uopc.inspect.page.banks import wavefronts
from uopc.inspect.page.sectors import sectors

Lanes = tuple[int | None, ...]


@st.composite
def warps(draw: st.DrawFn) -> tuple[Lanes, int]:
    """32 aligned offsets, some of them not active, and the bytes of a lane."""
    width = draw(st.sampled_from([1, 2, 4, 8, 16]))
    most = draw(st.sampled_from([3, 40, 5000]))
    one = st.one_of(st.none(), st.integers(0, most))
    places = draw(st.lists(one, min_size=32, max_size=32))
    if draw(st.booleans()):  # lanes that share their neighbour's address
        places = [places[n & ~1] for n in range(32)]
    return tuple(None if p is None else p * width for p in places), width


def arrays(lanes: Lanes) -> tuple[requests.Ints, requests.Bools]:
    active = np.array([[x is not None for x in lanes]])
    return np.array([[0 if x is None else x for x in lanes]], dtype=np.int64), active


# ---- sectors
def test_a_contiguous_warp_has_four_full_sectors() -> None:
    made = sectors(tuple(range(0, 128, 4)), 4)
    assert [s.start for s in made] == [0, 32, 64, 96]
    assert all(s.used == ((0, 32),) and s.gap_bytes == 0 and s.line == 0 for s in made)
    assert made[1].lanes == tuple(range(8, 16))


def test_a_stride_leaves_gaps_and_most_of_each_sector() -> None:
    made = sectors(tuple(range(0, 32 * 256, 256)), 4)
    assert len(made) == 32
    assert {(s.used, s.used_bytes) for s in made} == {(((0, 4),), 4)}
    assert [s.gap_bytes for s in made] == [0] + [224] * 31


def test_an_access_may_straddle_two_sectors() -> None:
    (first, second) = sectors((28, None), 8)
    assert (first.used, second.used) == (((28, 32),), ((0, 4),))
    assert first.lanes == second.lanes == (0,)


def test_nobody_active_touches_nothing() -> None:
    assert sectors((None,) * 32, 4) == ()
    assert wavefronts((None,) * 32, 4) == ()


@given(warps())
def test_sectors_are_those_of_each_byte(warp: tuple[Lanes, int]) -> None:
    lanes, width = warp
    made = sectors(lanes, width)
    asked = {b for x in lanes if x is not None for b in range(x, x + width)}
    shown = [s.start + b for s in made for start, end in s.used for b in range(start, end)]
    assert sorted(asked) == shown
    assert len(made) == requests.sectors(*arrays(lanes), width)[0]
    assert made == () or made[-1].start == made[0].start + sum(s.gap_bytes + 32 for s in made[1:])


# ---- banks
def test_neighbours_take_one_wavefront() -> None:
    (front,) = wavefronts(tuple(range(0, 128, 4)), 4)
    assert front.served == tuple((n,) for n in range(32)) and not front.again


def test_a_column_of_a_square_tile_is_a_32_way_conflict() -> None:
    made = wavefronts(tuple(range(0, 32 * 128, 128)), 4)
    assert [front.served[0] for front in made] == [(n,) for n in range(32)]
    assert all(front.served[1:] == ((),) * 31 for front in made)
    assert [front.again for front in made] == [False] + [True] * 31


def test_one_word_is_shared() -> None:
    (front,) = wavefronts((64,) * 32, 4)
    assert front.served[16] == tuple(range(32))


def test_wide_accesses_go_in_groups() -> None:
    made = wavefronts(tuple(range(0, 512, 16)), 16)
    assert [front.group for front in made] == [0, 1, 2, 3]
    assert not any(front.again for front in made)
    assert made[0].served[:5] == ((0,), (0,), (0,), (0,), (1,))


@given(warps(), st.booleans())
def test_wavefronts_are_as_many_as_the_report_counts(warp: tuple[Lanes, int], load: bool) -> None:
    lanes, width = warp
    made = wavefronts(lanes, width, load)
    taken, least = requests.wavefronts(*arrays(lanes), width, load)
    assert len(made) == taken[0]
    assert sum(not front.again for front in made) == least[0]
    words = {
        (lane, word % 32)
        for lane, x in enumerate(lanes)
        if x is not None
        for word in range(x // 4, x // 4 + max(1, width // 4))
    }
    assert words == {(n, b) for f in made for b, served in enumerate(f.served) for n in served}

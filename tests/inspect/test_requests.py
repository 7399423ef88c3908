"""Sectors and wavefronts of one warp: by hand, and beside what a GPU's counters said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uopc.inspect.requests import WARP, Bools, Ints, distinct, least_sectors, sectors, wavefronts

#: what the hardware counted for one warp, pattern by pattern; the file says where and how
PROBES = json.loads((Path(__file__).parent / "bank_probes.json").read_text())["probes"]
SHARED = [p for p in PROBES if p["op"] != "global load"]
GLOBAL = [p for p in PROBES if p["op"] == "global load"]
LANES = np.arange(WARP)


def one_warp(offsets: Sequence[int | None]) -> tuple[Ints, Bools]:
    """A request of 32 lanes: byte offsets, None for a lane that is not active."""
    at = np.array([[-1 if x is None else x for x in offsets]], dtype=np.int64)
    return at, at >= 0


def spelled(probe: dict[str, Any]) -> str:
    return f"{probe['op']} {probe['width']} {probe['name']}"


# ---- beside the hardware
@pytest.mark.parametrize("probe", SHARED, ids=spelled)
def test_shared_memory_as_a_gpu_counted_it(probe: dict[str, Any]) -> None:
    at, active = one_warp(probe["offsets"])
    taken, least = wavefronts(at, active, probe["width"], plain_load=probe["op"] == "load")
    assert (taken[0], taken[0] - least[0]) == (probe["wavefronts"], probe["conflicts"])


@pytest.mark.parametrize("probe", GLOBAL, ids=spelled)
def test_sectors_as_a_gpu_counted_them(probe: dict[str, Any]) -> None:
    assert sectors(*one_warp(probe["offsets"]), probe["width"])[0] == probe["sectors"]


def test_the_probes_hold_what_models_differ_in() -> None:
    """Enough of every kind, with and without conflicts: a rule that is wrong meets its pattern."""
    for op, count in (
        ("load", 90),
        ("store", 80),
        ("ldmatrix", 10),
        ("stmatrix", 10),
        ("atomic", 5),
    ):
        mine = [p for p in SHARED if p["op"] == op]
        assert len(mine) >= count
        assert {p["conflicts"] > 0 for p in mine} == {True, False}
    assert {p["width"] for p in SHARED} == {1, 2, 4, 8, 16}


# ---- by hand
@pytest.mark.parametrize(
    ("step", "width", "count"),
    [
        (4, 4, 4),  # 128 bytes in a row
        (16, 16, 16),  # 512 bytes in a row
        (1, 1, 1),
        (2, 2, 2),
        (8, 4, 8),
        (32, 4, 32),
        (128, 4, 32),
        (128, 16, 32),
        (0, 4, 1),
        (-4, 4, 5),  # backwards from the first of a sector
    ],
)
def test_sectors_of_lanes_in_steps(step: int, width: int, count: int) -> None:
    at = (LANES * step + 4096)[None]
    assert sectors(at, np.ones((1, WARP), dtype=bool), width)[0] == count


@pytest.mark.parametrize(
    ("first", "width", "count"),
    [(0, 4, 4), (4, 4, 5), (28, 4, 5), (32, 4, 4), (16, 16, 17), (0, 16, 16)],
)
def test_a_misaligned_row_touches_one_sector_more(first: int, width: int, count: int) -> None:
    at = (first + LANES * width)[None]
    assert sectors(at, np.ones((1, WARP), dtype=bool), width)[0] == count
    assert least_sectors(at, np.ones((1, WARP), dtype=bool), width)[0] == width


def test_a_lane_that_spans_two_sectors() -> None:
    """Eight bytes from byte 28: half in each of two; both count for every lane that asks."""
    assert sectors(*one_warp([28] * 2 + [None] * 30), 8)[0] == 2
    assert sectors(*one_warp([28, 32] + [None] * 30), 8)[0] == 2


def test_only_active_lanes_count() -> None:
    at, active = one_warp([0, None, 64, None] * 8)
    assert distinct(at, active)[0] == 2 == sectors(at, active, 4)[0]
    assert least_sectors(at, active, 4)[0] == 1
    nobody = one_warp([None] * WARP)
    assert sectors(*nobody, 4)[0] == least_sectors(*nobody, 4)[0] == 0
    assert [n[0] for n in wavefronts(*nobody, 16)] == [0, 0]


def test_requests_do_not_mix() -> None:
    """Rows of one call are counted as rows of several calls are."""
    rng = np.random.default_rng(0)
    for width in (1, 4, 8, 16):
        at = rng.integers(0, 64, (40, WARP)) * width
        at[::4] = np.repeat(at[::4, ::2], 2, axis=1)  # some with neighbours alike
        active = rng.integers(0, 3, at.shape) > 0
        for count in (sectors, least_sectors):
            each = [count(a[None], on[None], width)[0] for a, on in zip(at, active, strict=True)]
            assert count(at, active, width).tolist() == each
        for plain in (True, False):
            both = wavefronts(at, active, width, plain)
            rows = [
                wavefronts(a[None], on[None], width, plain)
                for a, on in zip(at, active, strict=True)
            ]
            assert [x.tolist() for x in both] == [[r[n][0] for r in rows] for n in (0, 1)]


def test_bounds_of_both_counts() -> None:
    """least_sectors <= sectors, least wavefronts <= wavefronts, and neither depends on the order of
    lanes that go together."""
    rng = np.random.default_rng(1)
    for width in (1, 2, 4, 8, 16):
        at = rng.integers(0, 512, (200, WARP)) * width
        active = rng.integers(0, 4, at.shape) > 0
        moved, fewest = sectors(at, active, width), least_sectors(at, active, width)
        assert (fewest <= moved).all() and (moved <= active.sum(axis=-1)).all()
        taken, least = wavefronts(at, active, width, plain_load=False)
        assert (least <= taken).all()
        group = WARP // max(1, width // 4)
        shuffled = np.concatenate(
            [rng.permutation(np.arange(x, x + group)) for x in range(0, WARP, group)]
        )
        again = wavefronts(at[:, shuffled], active[:, shuffled], width, plain_load=False)
        assert (again[0] == taken).all() and (again[1] == least).all()

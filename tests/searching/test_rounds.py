"""Searches with a clock of our own: what is found, kept and used, and what is skipped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc
from tests.commands import environment
from tests.memory_table import ROWS
from tests.searching.children import (
    dying_clock,
    fake_clock,
    hanging_clock,
    milliseconds,
    no_clock,
    short_lived_clock,
)
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.pipeline import compile_kernel
from uopc.searching import Found
from uopc.target import target
from uopc.uop.node import buffer
from uopc.uop.ops import Ops

BODY = buffer(0, dtypes.f32, (32, 96)).exp().reduce(Ops.ADD, 1)
BUDGET_S = 2.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of its own, in which winners are looked up."""
    with environment(UOPC_CACHE_DIR=str(tmp_path), UOPC_SEARCHED="1"):
        yield tmp_path


def searched(**how: Any) -> Found:
    how = {"budget_s": BUDGET_S, "workers": 2, "clock": fake_clock, **how}
    (found,) = uopc.search(BODY, "cpu", progress=False, **how)
    return found


def test_the_winner_is_kept_and_compiled_from_now_on(folder: Path) -> None:
    automatic = uopc.compile(BODY, target="cpu").opts
    found = searched()
    assert found.automatic == automatic and found.kept and found.speedup > 1.5
    assert found.time_s == milliseconds(found.opts) * 1e-3
    kernel = uopc.compile(BODY, target="cpu")
    assert kernel.opts == found.opts != automatic
    x = np.random.default_rng(0).standard_normal((32, 96)).astype(np.float32)
    np.testing.assert_allclose(kernel(x), np.exp(x).sum(1), rtol=1e-5)
    with environment(UOPC_CACHE_DIR=str(folder), UOPC_SEARCHED="0"):
        assert uopc.compile(BODY, target="cpu").opts == automatic
    assert uopc.compile(BODY, target="cpu", opts=automatic).opts == automatic
    again = searched(budget_s=0.0)  # begins with the winner
    assert again.opts == found.opts and again.time_s == found.time_s and again.kept


def test_a_budget_of_nothing_times_the_automatic_candidates(folder: Path) -> None:
    found = searched(budget_s=0.0)
    assert 1 <= found.tried <= 2 and found.opts == found.automatic and not found.kept
    assert not list(folder.glob("searched/*"))


def test_a_budget_is_kept(folder: Path) -> None:
    start = time.monotonic()
    searched(budget_s=1.0)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(("clock", "why"), ((hanging_clock, "it hangs"), (dying_clock, "its proc")))
def test_what_hangs_or_dies_is_skipped(folder: Path, clock: Any, why: str) -> None:
    found = searched(clock=clock, run_patience_s=0.5)
    assert sum(n for reason, n in found.skipped.items() if reason.startswith(why)) >= 1
    assert 1.0e-3 < found.time_s < float("inf") and milliseconds(found.opts) > 1.0


def test_what_dies_after_it_was_timed_is_no_winner(folder: Path) -> None:
    """Also the automatic choice: another one is better than that."""
    found = searched(clock=short_lived_clock, budget_s=1.5)
    assert found.skipped["its process died"] >= 1 and found.time_s > 0
    if found.time_s == float("inf"):
        assert not found.kept and found.opts == found.automatic


def test_where_nothing_can_be_timed_the_automatic_choice_stays(folder: Path) -> None:
    found = searched(clock=no_clock)
    assert found.time_s == float("inf") and found.speedup == 1.0 and not found.kept
    assert found.opts == found.automatic and "OSError" in found.skipped


def test_a_kernel_of_a_schedule(folder: Path) -> None:
    row = next(r for r in ROWS if r.name.startswith("sum cols")).at((40, 24))
    (launch,) = row.plan("cpu", target("cpu")).schedule.launches
    (found,) = uopc.search(
        launch.body, "cpu", budget_s=2, workers=2, clock=fake_clock, progress=False
    )
    if found.kept:
        assert compile_kernel(launch.body, "cpu").opts == found.opts
    assert found.tried >= 1


@pytest.mark.gpu
def test_on_a_gpu(folder: Path) -> None:
    body = buffer(0, dtypes.f32, (512, 8192)).exp().reduce(Ops.ADD, 1)
    (found,) = uopc.search(body, "cuda", budget_s=8, progress=False)
    assert found.tried > 8 and 1e-6 < found.time_s <= found.automatic_s < 1e-2
    x = np.random.default_rng(0).standard_normal((512, 8192), np.float32)
    kernel = uopc.compile(body, target="cuda")
    assert kernel.opts == found.opts
    np.testing.assert_allclose(kernel(x), np.exp(x).sum(1), rtol=1e-4)


def test_a_target_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="timed where they run"):
        uopc.search(BODY, "emulated")
    with pytest.raises(UsageError, match="sm_121"):
        uopc.search(BODY, "sm_121")

"""Calls in processes of their own, and what becomes of those that do not come back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.searching.children import SOON_S, by_number, doubled, process, raises
from uopc.searching.apart import Child, Failed, call, results

LONG_S = 60.0


@pytest.fixture(scope="module")
def children() -> Iterator[list[Child]]:
    """Two processes, which tests may end."""
    made = [Child(), Child()]
    yield made
    for child in made:
        child.end()


def test_results_come_with_the_number_of_their_job(children: list[Child]) -> None:
    jobs = [(x,) for x in range(5)]
    got = dict(results(children, doubled, jobs, LONG_S, None))
    assert got == {n: 2 * n for n in range(5)}


def test_a_child_is_another_process_and_makes_many_calls(children: list[Child]) -> None:
    first, again = (call(children[0], process, (0,), LONG_S) for _ in "12")
    assert first == again != os.getpid()


def test_what_raises_is_told_and_its_process_goes_on(children: list[Child]) -> None:
    before = call(children[0], process, (0,), LONG_S)
    assert call(children[0], raises, (7,), LONG_S) == Failed("ValueError: not 7", 7)
    assert call(children[0], process, (0,), LONG_S) == before


def test_what_hangs_or_dies_takes_nothing_with_it(children: list[Child]) -> None:
    list(results(children, doubled, [(0,), (0,)], LONG_S, None))  # both are started
    got = dict(results(children, by_number, [(x,) for x in range(6)], 2.0, None))
    assert {n: got[n] for n in (0, 5)} == {0: 0, 5: 50}
    assert got[1] == Failed("it hangs: nothing for 2 s", "at 1", hung=True)
    assert got[2] == Failed("its process died", "at 2")
    assert got[3] == Failed("ValueError: three", "at 3")
    assert got[4] == 40


def test_patience_begins_anew_with_every_word(children: list[Child]) -> None:
    call(children[0], doubled, (0,), LONG_S)
    assert call(children[0], by_number, (4,), SOON_S) == 40


def test_a_call_that_is_given_up_is_ended(children: list[Child]) -> None:
    list(results(children, doubled, [(0,), (0,)], LONG_S, None))
    start = time.monotonic()
    got = dict(results(children, by_number, [(1,), (5,), (1,)], LONG_S, start + SOON_S))
    assert got == {1: 50} and time.monotonic() - start < LONG_S / 2
    assert call(children[0], doubled, (4,), LONG_S) == 8


def test_nothing_is_begun_once_the_time_is_over(children: list[Child]) -> None:
    assert not list(results(children, doubled, [(1,)], LONG_S, time.monotonic() - 1))

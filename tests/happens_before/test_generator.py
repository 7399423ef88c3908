"""Random kernels and the judge alone: one verdict and, where clean, one result in any order."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.happens_before.generator import generate
from tests.happens_before.machine import Schedule, run
from tests.happens_before.small import arrays_for, equal_bits, program
from uopc.uop.text import parse, show

SCHEDULES = (
    Schedule(0, "forward", "early"),
    Schedule(1, "backward", "late"),
    Schedule(2, "random", "random", fine=True),
    Schedule(3, "random", "random"),
)


@pytest.mark.parametrize("seed", range(40))
def test_the_verdict_is_the_same_in_every_schedule(seed: int) -> None:
    kernel = generate(seed)
    tree, arrays = program(kernel.sink), arrays_for(kernel.sink)
    first, *others = (run(tree, arrays, s, kernel.given) for s in SCHEDULES)
    for other in others:
        assert other.ok == first.ok
        if first.ok:
            assert equal_bits(list(first.arrays.values()), list(other.arrays.values()))


def test_about_half_of_the_kernels_are_clean() -> None:
    clean: Counter[bool] = Counter()
    for seed in range(100):
        kernel = generate(seed)
        clean[run(program(kernel.sink), arrays_for(kernel.sink), given=kernel.given).ok] += 1
    assert 30 < clean[True] < 75


def test_a_seed_is_a_kernel_and_has_a_text() -> None:
    for seed in range(20):
        sink = generate(seed).sink
        assert generate(seed).sink is sink
        assert parse(show(sink)) is sink

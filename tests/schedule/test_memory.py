"""Where stored values live: no two that live at once overlap."""

from __future__ import annotations

import random

import pytest

from uopc.dtype import dtypes
from uopc.schedule.memory import ALIGN, Leaf, Place, Result, Temporary, place
from uopc.uop.node import UOp, buffer


def value(k: int, size: int = 64) -> UOp:
    return buffer(1000 + k, dtypes.f32, (size,)) * 2.0


def range_of(p: Place) -> range:
    assert isinstance(p, Temporary)
    return range(p.offset, p.offset + p.size * p.dtype.itemsize)


def test_leaves_and_results_have_memories_of_their_own() -> None:
    x, a, b = buffer(3, dtypes.f32, (64,)), value(0), value(1)
    places, arena = place([([a], [x]), ([b], [a])], frozenset((b,)), {})
    assert places[x] == Leaf(3)
    assert places[b] == Result(0, dtypes.f32, 64)
    assert places[a] == Temporary(0, dtypes.f32, 64)
    assert arena == 256


def test_memory_is_used_again_once_nobody_reads_it() -> None:
    a, b, c = (value(k) for k in range(3))
    places, arena = place([([a], []), ([b], [a]), ([c], [b]), ([], [c])], frozenset(), {})
    assert places[a] == places[c] != places[b]
    assert arena == 2 * ALIGN


def test_a_value_lives_until_its_last_reader() -> None:
    a, b, c = (value(k) for k in range(3))
    places, _ = place([([a], []), ([b], [a]), ([c], [b]), ([], [a, c])], frozenset(), {})
    assert len({places[a], places[b], places[c]}) == 3


def test_an_update_takes_the_memory_of_the_old_version() -> None:
    x = buffer(0, dtypes.f32, (64,))
    one = x.assign(x * 2.0)
    two = one.assign(one + 1.0)
    places, arena = place([([one], [x]), ([two], [one])], frozenset((two,)), {one: x, two: one})
    assert places[one] == places[two] == Leaf(0)
    assert arena == 0


def test_a_chain_of_versions_lives_as_one() -> None:
    """The first version is no longer in place: it and what overwrites it share other memory."""
    x, other = buffer(0, dtypes.f32, (64,)), value(0)
    one = x.assign(x * 2.0)
    two = one.assign(one + 1.0)
    order: list[tuple[list[UOp], list[UOp]]] = [
        ([one], [x]),
        ([two], [one]),
        ([other], []),
        ([], [two, other]),
    ]
    places, _ = place(order, frozenset(), {two: one})
    assert places[one] == places[two]
    assert not set(range_of(places[other])) & set(range_of(places[two]))


def test_a_chain_that_ends_in_a_result_is_that_result() -> None:
    x = buffer(0, dtypes.f32, (64,))
    one = x.assign(x * 2.0)
    two = one.assign(one + 1.0)
    places, arena = place([([one], [x]), ([two], [one])], frozenset((two,)), {two: one})
    assert places[one] == places[two] == Result(0, dtypes.f32, 64)
    assert arena == 0


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_lives_at_once_overlaps(seed: int) -> None:
    rng = random.Random(seed)
    made: list[UOp] = []
    order: list[tuple[list[UOp], list[UOp]]] = []
    for k in range(30):
        new = [value(2 * k + j, rng.randint(1, 500)) for j in range(rng.randint(1, 2))]
        order.append((new, rng.sample(made, min(len(made), rng.randrange(3)))))
        made += new
    places, arena = place(order, frozenset(), {})
    born = {u: k for k, (stores, _) in enumerate(order) for u in stores}
    last = born | {u: k for k, (_, reads) in enumerate(order) for u in reads}
    for a in made:
        assert range_of(places[a]).start % ALIGN == 0
        assert range_of(places[a]).stop <= arena
        for b in made:
            if a is not b and born[a] <= last[b] and born[b] <= last[a]:
                one, two = range_of(places[a]), range_of(places[b])
                assert one.stop <= two.start or two.stop <= one.start

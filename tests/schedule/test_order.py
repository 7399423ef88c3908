"""The order that survives contraction, against reachability found from scratch."""

from __future__ import annotations

import random

import pytest

from uopc.schedule.order import Order, Placed, after_needs


def reachable(start: Placed, end: Placed, without: tuple[Placed, Placed]) -> bool:
    """Is there a path but the direct edge between the two?"""
    stack, seen = [start], {start}
    while stack:
        node = stack.pop()
        for after in node.after:
            if (node, after) == without:
                continue
            if after is end:
                return True
            if after not in seen:
                seen.add(after)
                stack.append(after)
    return False


def assert_topological(order: Order) -> None:
    nodes = order.nodes()
    assert [n.place for n in nodes] == sorted(n.place for n in nodes)
    assert all(order.slots[n.place] is n for n in nodes)
    for n in nodes:
        assert all(before.place < n.place and n in before.after for before in n.before)
        assert all(after.place > n.place and n in after.before for after in n.after)


@pytest.mark.parametrize("seed", range(20))
def test_contractions_keep_the_order_and_refuse_cycles(seed: int) -> None:
    rng = random.Random(seed)
    order, nodes = Order(), [Placed() for _ in range(30)]
    for k, node in enumerate(nodes):
        for other in rng.sample(nodes[:k], min(k, rng.randrange(3))):
            node.needs(other)
        order.append(node)
    assert_topological(order)
    refused = 0
    for _ in range(60):
        left = order.nodes()
        if len(left) < 2:
            break
        a, b = sorted(rng.sample(left, 2), key=lambda n: n.place)
        later = order.between(a, b)
        assert (later is None) == reachable(a, b, (a, b))
        if later is None:
            refused += 1
            continue
        order.contract(a, b, later)
        assert a in order.nodes() and b not in order.nodes()
        assert_topological(order)
    assert refused or len(order.nodes()) < 3


def test_what_is_later_moves_behind() -> None:
    """a -> x and y -> b: with a and b one, y comes before it and x behind."""
    a, x, y, b = (Placed() for _ in range(4))
    x.needs(a)
    b.needs(y)
    order = Order()
    for node in (a, x, y, b):
        order.append(node)
    later = order.between(a, b)
    assert later == {x}
    order.contract(a, b, {x})
    assert order.nodes() == [y, a, x]
    assert a.before == {y} and a.after == {x}


def test_nodes_come_after_what_they_need() -> None:
    needs: dict[str, set[str]] = {"a": set(), "b": {"d"}, "c": set(), "d": {"a"}}
    assert after_needs("abcd", needs) == ["a", "c", "d", "b"]
    assert after_needs("abcd", needs, lambda v: v == "c") == ["a", "d", "b", "c"]
    assert after_needs("abcd", needs | {"a": {"b"}}) == ["c"], "the others wait for one another"

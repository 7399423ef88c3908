"""The scheduler's work grows with the graph: counted, since times of a busy machine say little.

`scratch/bench_schedule.py` measures the time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.schedule.models import transformer_training
from uopc.schedule import anchors, bodies, views
from uopc.schedule.group import Grouping
from uopc.schedule.normalise import canonical, structure
from uopc.schedule.order import Order
from uopc.schedule.plan import schedule
from uopc.target import target
from uopc.tensor.engine import base_of
from uopc.uop.node import UOp, toposort

PER_NODE = {"substitutions": 5, "merges": 2, "searched": 1, "contracted": 20}


def nothing(u: UOp) -> UOp | None:
    return None


def counted(layers: int, patch: pytest.MonkeyPatch) -> tuple[int, Counter[str]]:
    """(nodes, how often the scheduler does what its time goes to)."""
    roots = [base_of(t._u) for t in transformer_training(layers, time=64, width=96, heads=4)]
    _, leaves = structure(roots, nothing, frozenset())
    plain, _ = canonical(roots, nothing, leaves)
    work: Counter[str] = Counter()
    between, contract = Order.between, Order.contract
    merge = Grouping._try

    def substituted(*given: Any) -> Any:
        work["substitutions"] += 1
        return views.source(*given)

    def merged(*given: Any) -> Any:
        work["merges"] += 1
        return merge(*given)

    def searched(*given: Any) -> Any:
        found = between(*given)
        work["searched"] += len(found or ())
        return found

    def contracted(self: Order, a: Any, b: Any, later: Any) -> None:
        work["contracted"] += b.place - a.place
        contract(self, a, b, later)

    for module in (anchors, bodies):
        patch.setattr(module, "source", substituted)
    patch.setattr(Grouping, "_try", merged)
    patch.setattr(Order, "between", searched)
    patch.setattr(Order, "contract", contracted)
    schedule(plain, target("sm_90a"))
    return len(toposort(*plain)), work


def test_work_is_in_proportion_to_nodes() -> None:
    each = []
    for layers in (1, 2, 4):
        with pytest.MonkeyPatch.context() as patch:
            each.append(counted(layers, patch))
    (n1, one), (n2, two), (n4, four) = each
    for what in ("substitutions", "merges"):
        assert four[what] - two[what] <= 2.1 * (two[what] - one[what]), what
    assert n4 - n2 <= 2.1 * (n2 - n1)
    for what, most in PER_NODE.items():
        assert four[what] <= most * n4, f"{what}: {four[what]} for {n4} nodes"

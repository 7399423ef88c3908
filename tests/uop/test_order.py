"""LOADs stand where their version says: before what may change the memory, after what it names."""

from __future__ import annotations

import pytest

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, memory, range_, sink, toposort
from uopc.uop.ops import EFFECTS, AccessArg, Atomic, AxisType, Engine, Fence, Ops
from uopc.uop.order import in_order, overtakes, written

F32 = dtypes.f32
X, Y = buffer(0, F32, (64,)), buffer(1, F32, (64,))
LANE = range_(32, 0, AxisType.LANE)
ACC, TILE = alloc(AddrSpace.REG), alloc(AddrSpace.SHARED, size=64)


def before(order: list[UOp], a: UOp, b: UOp) -> bool:
    return order.index(a) < order.index(b)


def assert_order(order: list[UOp]) -> None:
    """Every node once, sources first."""
    assert len(set(order)) == len(order)
    place = {u: n for n, u in enumerate(order)}
    assert all(place[s] < place[u] for u in order for s in u.src)


def test_registers_are_read_before_they_are_written_again() -> None:
    c = Cursor()
    c.store(ACC.index(0), 1.0)
    old = c.load(ACC.index(0))
    again = c.store(ACC.index(0), 2.0)
    c.store(Y.index(LANE), old)
    root = c.sink()
    assert not before(toposort(root), old, again)  # what toposort alone would do
    order = in_order(root)
    assert before(order, old, again)
    assert_order(order)
    assert set(order) == set(toposort(root))


@pytest.mark.parametrize("kind", ["barrier", "atomic", "fence", "commit", "other store"])
def test_shared_memory_is_read_before_others_may_write_it(kind: str) -> None:
    c = Cursor()
    c.store(TILE.index(LANE), 1.0)
    c.barrier()
    old = c.load(TILE.index(LANE + 1))
    effect = {
        "barrier": lambda: c.barrier(),
        "atomic": lambda: c.atomic(Atomic.ADD, X.index(0), 1.0),
        "fence": lambda: c.fence(Fence.BLOCK),
        "commit": lambda: c.commit(Engine.CP_ASYNC),
        "other store": lambda: c.store(X.index(LANE), 0.0),
    }[kind]()
    c.store(Y.index(LANE), old)
    order = in_order(c.sink())
    assert before(order, old, effect) == (kind != "other store")
    assert_order(order)


def test_a_load_that_uses_a_later_value_stays_behind_it() -> None:
    """Its version is old, its place is not known before."""
    c = Cursor()
    c.store(TILE.index(LANE), 1.0)
    seen = c.now(TILE)
    where = c.atomic(Atomic.ADD, X.index(0), 1.0).cast(dtypes.index)
    c.store(TILE.index(LANE), 2.0)
    load = seen.index(where).load()
    c.store(Y.index(LANE), load)
    order = in_order(c.sink())
    assert_order(order)
    assert before(order, where, load)


def test_memories_that_nothing_writes_change_no_order() -> None:
    i = range_(64, 1)
    root = sink(Y.index(i).store(X.index(i).load() * 2.0).end(i))
    assert in_order(root) == toposort(root)


def test_several_roots() -> None:
    first = X.index(LANE).store(1.0)
    second = Y.index(LANE).store(X.index(LANE).load())
    order = in_order(first, second)
    assert_order(order)
    assert order[-1] is second and before(order, second.src[1], first)


def test_what_effects_write() -> None:
    c = Cursor()
    assert written(c.store(ACC.index(0), 1.0)) is ACC
    assert written(c.atomic(Atomic.ADD, X.index(0), 1.0)) is X
    assert written(c.copy_async(TILE.index(0), X.index(0))) is TILE
    assert written(c.barrier()) is None
    store = c.store(TILE.index(0), 1.0)
    assert overtakes(store, TILE) and not overtakes(store, X)
    assert overtakes(c.barrier(), X) and not overtakes(c.barrier(), ACC)


def test_many_effects_are_put_in_order_quickly() -> None:
    c = Cursor()
    c.store(TILE.index(LANE), 0.0)
    total = UOp.const(0.0)
    for _ in range(2000):
        total = total + c.load(TILE.index(LANE))
        c.barrier()
    c.store(Y.index(LANE), total)
    order = in_order(c.sink())
    assert_order(order)
    effects = [u for u in order if u.op in EFFECTS or u.op is Ops.LOAD]
    assert [u.op for u in effects[1:9]] == [Ops.LOAD, Ops.BARRIER] * 4


def wide_copy(c: Cursor) -> tuple[UOp, UOp]:
    """A wide LOAD of what is written later, and the STORE that keeps it in registers."""
    kept = alloc(AddrSpace.REG, size=2, slot=1)
    load = UOp(Ops.LOAD, (X.index(LANE * 2),), AccessArg(2))
    return load, UOp(Ops.STORE, (kept.index(0), load), AccessArg(2))


def test_a_wide_load_takes_its_copy_along() -> None:
    """Else a barrier would stand between the two, and a wide value has no name."""
    c = Cursor()
    load, copy = wide_copy(c)
    barrier = c.barrier()
    x = memory(copy.src[0]).after(copy).index(1).load()
    c.store(X.index(LANE), x)
    order = in_order(c.sink())
    assert before(order, load, copy) and before(order, copy, barrier)
    assert_order(order)


def test_a_copy_that_comes_after_the_effect_stays_there() -> None:
    c = Cursor()
    load, _ = wide_copy(c)
    barrier = c.barrier()
    late = UOp(Ops.STORE, (c.now(Y).index(LANE * 2), load), AccessArg(2))
    c.done = (late,)
    c.store(X.index(LANE), 1.0)
    order = in_order(c.sink())
    assert before(order, load, barrier) and before(order, barrier, late)
    assert_order(order)

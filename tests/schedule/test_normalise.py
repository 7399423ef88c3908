"""What the scheduler is given: equal graphs are one, and what is in memory is not computed."""

from __future__ import annotations

import numpy as np

from tests.kernels import along
from tests.schedule.graphs import evaluated, random_case
from uopc.dtype import dtypes
from uopc.schedule.normalise import canonical, reachable, structure
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.ops import Ops

NONE: frozenset[UOp] = frozenset()


def leaf(slot: int, *shape: int) -> UOp:
    return buffer(slot, dtypes.f32, shape)


def nothing(u: UOp) -> UOp | None:
    return None


def key(*roots: UOp, wanted: frozenset[UOp] = NONE) -> object:
    return structure(roots, nothing, wanted)[0]


def test_equal_graphs_over_other_leaves_share_a_key() -> None:
    assert key(leaf(3, 4) + leaf(7, 4)) == key(leaf(900, 4) + leaf(2, 4))


def test_what_must_not_share_one() -> None:
    x, y = leaf(0, 4), leaf(1, 4)
    keys = [
        key(x + y),
        key(x + x),
        key(x * y),
        key(x + y, x),
        key(x, x + y),
        key(leaf(0, 5) + leaf(1, 5)),
        key(x + 1.0),
        key(x + 2.0),
        key(x + y, wanted=frozenset((x,))),
        key(x.assign(y)),
        key(y.assign(x)),
    ]
    assert keys[-1] == keys[-2], "the same graph over exchanged leaves"
    assert len(set(keys)) == len(keys) - 1


def test_leaves_are_numbered_by_first_use() -> None:
    x, y = leaf(900, 4), leaf(2, 4)
    _, leaves = structure([x + y], nothing, NONE)
    assert leaves == [x, y]
    (root,), new = canonical([x + y], nothing, leaves)
    assert [u.arg.slot for u in root.src] == [0, 1]
    assert new[y].arg.slot == 1


def test_what_is_in_memory_is_a_leaf() -> None:
    x, held = leaf(0, 4), leaf(1, 4)
    inner = (x + 1.0).exp()
    known = {inner: held}.get
    assert reachable([inner * 2.0], known)[0] is held
    _, leaves = structure([inner * 2.0], known, NONE)
    assert leaves == [held]
    (root,), _ = canonical([inner * 2.0], known, leaves)
    assert [u.op for u in toposort(root)] == [Ops.BUFFER, Ops.CONST, Ops.MUL]


def test_marks_for_gradients_are_gone() -> None:
    x = leaf(0, 4)
    (root,), _ = canonical([(x.detach() * 2.0).curve("sigmoid", x)], nothing, [x])
    assert not {Ops.DETACH, Ops.CURVE} & {u.op for u in toposort(root)}


def test_what_repeats_along_an_axis_is_computed_before_that() -> None:
    row = leaf(0, 8)
    wide = along(row, leaf(1, 8, 64))
    (root,), _ = canonical([(wide * 2.0).exp() + 1.0], nothing, [row])
    assert root.op is Ops.EXPAND
    assert all(u.shape in ((), (8, 1), (8,)) for u in toposort(root.src[0]))


def test_two_that_repeat_other_axes_stay() -> None:
    row, column = leaf(0, 8), leaf(1, 64)
    both = row.reshape((8, 1)).expand((8, 64)) + column.reshape((1, 64)).expand((8, 64))
    (root,), _ = canonical([both], nothing, [row, column])
    assert root.op is Ops.ADD


def test_nothing_is_computed_of_no_elements() -> None:
    x = leaf(0, 4, 6)
    none = x.shrink([(0, 4), (3, 3)]) * 2.0
    (root,), _ = canonical([none.reduce(Ops.ADD, 1) + 1.0], nothing, [x])
    (got,) = evaluated([root], [np.ones((4, 6), np.float32)])
    assert np.array_equal(got, np.ones(4))
    assert not any(u.op is Ops.BUFFER for u in toposort(root))


def test_the_numbers_stay() -> None:
    for seed in range(60):
        case = random_case(seed)
        if not case.roots or case.in_memory:
            continue
        want = evaluated(case.roots, case.arrays)
        for a, b in zip(want, case.canonical().wanted, strict=True):
            assert a.tobytes() == b.tobytes()

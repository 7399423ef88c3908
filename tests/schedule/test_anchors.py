"""Which values may own memory, and what they read."""

from __future__ import annotations

from tests.kernels import along, param, softmax
from tests.schedule.execute import TIGHT
from uopc.dtype import dtypes
from uopc.schedule.anchors import Anchors, Kind
from uopc.schedule.limits import Limits
from uopc.schedule.views import ZERO, own
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.ops import Ops


def anchors_of(
    *roots: UOp, limits: Limits | None = None, kept: frozenset[UOp] = frozenset()
) -> Anchors:
    return Anchors(roots, kept, limits or Limits())


def product(a: UOp, b: UOp) -> UOp:
    (m, k), (_, n) = a.shape, b.shape
    whole = (m, n, k)
    left = a.reshape((m, 1, k)).expand(whole)
    right = b.permute((1, 0)).reshape((1, n, k)).expand(whole)
    return (left * right).reduce(Ops.ADD, 1)


def test_reductions_and_what_is_asked_for_are_anchors() -> None:
    known = anchors_of(softmax(param(0, 8, 32)))
    kinds = [(u.op, known.kind[u]) for u in known.sequence]
    assert kinds == [
        (Ops.REDUCE, Kind.REDUCTION),
        (Ops.EXP, Kind.VALUE),
        (Ops.REDUCE, Kind.REDUCTION),
        (Ops.DIV, Kind.VALUE),
    ]


def test_cheap_values_are_part_of_their_readers() -> None:
    x = param(0, 8, 32)
    cheap, dear = x * 2.0, x.exp()
    known = anchors_of(cheap.reduce(Ops.ADD, 1), along(cheap.reduce(Ops.MAX, 1), x) + cheap)
    assert cheap not in known.kind
    known = anchors_of(dear.reduce(Ops.ADD, 1), along(dear.reduce(Ops.MAX, 1), x) + dear)
    assert known.kind[dear] is Kind.VALUE


def test_a_value_of_two_inputs_with_two_readers_is_an_anchor() -> None:
    both = param(0, 8, 32) + param(1, 8, 32)
    assert both in anchors_of(both.reduce(Ops.ADD, 1), both.reduce(Ops.MAX, 1)).kind
    assert both not in anchors_of(both.reduce(Ops.ADD, 1)).kind


def test_very_wide_expressions_are_cut() -> None:
    total = param(0, 8)
    for k in range(1, 40):
        total = total + param(k, 8)
    known = anchors_of(total)
    assert len(known.sequence) > 1
    for v in known.sequence:
        assert len({leaf for leaf, _ in known.leaves(v)}) <= Limits().live + 1


def test_a_product_needs_two_sides() -> None:
    a, b = param(0, 8, 4), param(1, 4, 6)
    known = anchors_of(product(a, b))
    assert list(known.kind.values()) == [Kind.PRODUCT]
    square = anchors_of((a * a).reduce(Ops.ADD, 1))
    assert list(square.kind.values()) == [Kind.REDUCTION]
    columns = anchors_of((a * along(param(2, 8), a)).permute((1, 0)).reduce(Ops.ADD, 1))
    assert list(columns.kind.values()) == [Kind.REDUCTION], "one side has every kept axis"


def test_light_operands_ride_and_heavy_ones_are_stored() -> None:
    a, b, c = param(0, 8, 4), param(1, 4, 6), param(2, 8, 4)
    light, heavy = a * 2.0, (a * c + c).maximum(0.0)
    assert light not in anchors_of(product(light, b)).kind
    known = anchors_of(product(heavy, b))
    assert known.kind[heavy] is Kind.VALUE
    assert known.why[heavy] == "heavy operand of a product"


def test_the_end_of_an_epilogue_is_what_several_readers_take() -> None:
    a, b, bias = param(0, 8, 4), param(1, 4, 6), param(2, 6)
    inner = product(a, b) + bias.reshape((1, 6)).expand((8, 6))
    end = inner.maximum(0.0)
    known = anchors_of(end.exp(), end.reduce(Ops.ADD, 1))
    assert known.kind[end] is Kind.VALUE
    assert inner not in known.kind


def test_updates_come_after_readers_of_the_old_contents() -> None:
    x = buffer(0, dtypes.f32, (8, 6))
    new, reader = x.assign(x + 1.0), x.reduce(Ops.ADD, 1)
    known = anchors_of(new, reader)
    assert known.sequence == [reader, new]
    assert known.rank[new] == 1


def test_leaves_say_what_is_read_and_where() -> None:
    x, bias = param(0, 8, 6), param(1, 6)
    root = x.permute((1, 0)).reduce(Ops.ADD, 1) + bias
    known = anchors_of(root)
    total = next(u for u in toposort(root) if u.op is Ops.REDUCE)
    assert known.leaves(total) == [(x, (1, 0))]
    assert set(known.leaves(root)) == {(total, (0,)), (bias, (0,))}
    assert known.domain(total) == (6, 8)
    assert known.bytes_read(x, (1, 0), (6, 8)) == 8 * 6 * 4
    assert known.bytes_read(x, (ZERO, 0), (6, 8)) == 6 * 4


def test_a_value_is_computed_again_off_its_own_axes_unless_asked_for() -> None:
    both = param(0, 8, 6) + param(1, 8, 6)
    back = both.flip((0,))
    off = (frozenset({0}), 1)
    known = anchors_of(back * 2.0, both.reduce(Ops.ADD, 1), both.reduce(Ops.MAX, 1))
    assert known.is_inlined(both, off) and not known.is_inlined(both, own(both.shape))
    assert not anchors_of(back * 2.0, both).is_inlined(both, off)
    dear = both.exp() + both
    known = anchors_of(dear.flip((0,)) * 2.0, dear.reduce(Ops.ADD, 1), limits=TIGHT)
    assert dear in known.kind and not known.is_inlined(dear, off), "too many operations"


def test_operations_count_each_node_once() -> None:
    x = param(0, 8)
    y = x + 1.0
    known = anchors_of(y * y)
    assert known.operations(y) == 1
    assert known.operations(y * y) == 2

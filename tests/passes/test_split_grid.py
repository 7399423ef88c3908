"""A reduction over more blocks than one is two kernels that together store the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers import assert_same
from tests.kernels import OUT, arrays_of, columns, indexed, outputs, param, softmax
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.passes.rangeify import rangeify
from uopc.passes.share import share
from uopc.passes.split_grid import split_axis, split_grid
from uopc.pipeline import lower
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

CASES: dict[str, tuple[UOp, dict[int, int]]] = {
    "sum": (param(0, 1000).reduce(Ops.ADD, 1), {0: 4}),
    "ragged": (param(0, 3, 97).reduce(Ops.ADD, 1) * 2.0, {1: 5}),
    "argmax": (param(0, 3, 50).argmax(1), {1: 4}),
    "columns": (columns(param(0, 40, 6)), {1: 8}),
    "halves": (param(0, 2, 64, dtype=dtypes.f16).reduce(Ops.ADD, 1), {1: 2}),
    "a-part-is-one-element": (param(0, 2, 6).reduce(Ops.MAX, 1), {1: 6}),
    "argmax-of-single-elements": (param(0, 2, 6).argmin(1), {1: 6}),
    "over-a-reduction": (param(0, 2, 6, 5).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1), {2: 3}),
}
PARTS = 20  # slot of the first partial result


@pytest.mark.parametrize("name", CASES)
def test_two_steps_store_the_same(name: str, golden: Callable[[str, str], None]) -> None:
    body, blocks = CASES[name]
    opts = Opts(gpu=True, blocks=blocks)
    first, mine, second, partials = split_grid(indexed(body), opts, PARTS)
    check(first, Stage.INDEXED)
    check(second, Stage.INDEXED)
    assert [p.arg.slot for p in partials] == list(range(PARTS, PARTS + len(partials)))
    arrays = arrays_of(body)
    arrays |= run(first, arrays, Stage.INDEXED)
    got = run(second, arrays, Stage.INDEXED)
    assert_same(got[OUT], evaluate(body, arrays).reshape(-1))
    golden(f"split_grid/{name}.txt", f"# {mine}\n{show(first)}\n\n# then\n{show(second)}")
    lower(first, mine)  # its Opts fit it


def test_the_digits_go_to_the_axis_that_is_left() -> None:
    body = param(0, 4, 1000).reduce(Ops.ADD, 1)
    _, opts, _, _ = split_grid(
        indexed(body),
        Opts(gpu=True, blocks={1: 4}, local={0: 2, 1: 64}, upcast={1: 2}, lanes=(1, 0)),
        PARTS,
    )
    assert dict(opts.local) == {0: 2, 2: 64} and dict(opts.upcast) == {2: 2}
    assert opts.lanes == (2, 0) and opts.blocks == ()


def test_the_digits_go_to_it_also_beside_another_reduction() -> None:
    body, _ = CASES["over-a-reduction"]
    first, opts, _, _ = split_grid(
        indexed(body), Opts(gpu=True, blocks={2: 3}, upcast={2: 2}), PARTS
    )
    ((axis, n),) = opts.upcast
    (outer,) = (u for u in first.toposort() if u.op is Ops.REDUCE and u.arg.combine.name == "ADD")
    assert (outer.src[1].arg.axis, n) == (axis, 2)


def test_nothing_to_split() -> None:
    root = indexed(param(0, 8, 4).reduce(Ops.ADD, 1))
    assert split_axis(root, Opts(gpu=True, blocks={0: 4})) is None
    assert split_axis(root, Opts(gpu=True, blocks={1: 1})) is None
    assert split_axis(root, Opts(gpu=True, blocks={1: 2})) == 1


def test_a_reduction_over_another_of_the_same_axis_cannot_be_split() -> None:
    with pytest.raises(UsageError) as caught:
        split_grid(indexed(softmax(param(0, 4, 100))), Opts(gpu=True, blocks={1: 4}), PARTS)
    assert str(caught.value).startswith(
        "Opts.blocks={1: 4}: a reduction of axis 1 depends on another over it, so it cannot"
    )


def test_two_axes_at_a_time_cannot_be_split() -> None:
    body = param(0, 8, 9).reduce(Ops.ADD, 1) + param(1, 8, 7).reduce(Ops.ADD, 1)
    with pytest.raises(
        UsageError, match=r"Opts.blocks splits reduced axes \[1, 2\]; one reduction"
    ):
        split_axis(indexed(body), Opts(gpu=True, blocks={1: 3, 2: 3}))


def test_what_is_read_at_a_place_that_data_names_stays_inside() -> None:
    """The index is a LOAD too: past the end of the axis neither is touched."""
    x, index = param(0, 20), param(1, 3, 50, dtype=dtypes.i32)
    body = x.gather((~0,), index).reduce(Ops.ADD, 1)
    root = share(rangeify([body], outputs([body])))
    first, _, _, _ = split_grid(root, Opts(gpu=True, blocks={1: 4}), 20)
    for load in (u for u in toposort(first) if u.op is Ops.LOAD):
        assert len(load.src) == 3

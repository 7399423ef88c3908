"""Axes to digits: each element is done once whatever the sizes, with guards where they must be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernels import (
    along,
    around,
    arrays_of,
    assert_same_numbers,
    assert_stores,
    axpy,
    columns,
    indexed,
    param,
    product,
)
from uopc.dtype import DType, dtypes
from uopc.errors import TargetError, UsageError
from uopc.opts import Opts
from uopc.passes.split import split
from uopc.pipeline import lower
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import AxisType, Combine, Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

TWO = (axpy(5, 7), param(0, 5, 7).reduce(Ops.MAX, 1))
CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "divides": ((axpy(64, 128),), Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2})),
    "ragged": ((axpy(100),), Opts(gpu=True, local={0: 32}, vector={0: 4})),
    "every-digit": (
        (axpy(97),),
        Opts(gpu=True, blocks={0: 2}, tile={0: 3}, upcast={0: 2}, local={0: 4}, vector={0: 2}),
    ),
    "rest-is-blocks": ((axpy(97),), Opts(gpu=True, loop={0: 3}, local={0: 4})),
    "reduced": ((param(0, 3, 50).reduce(Ops.MAX, 1),), Opts(gpu=True, local={1: 8}, upcast={1: 2})),
    "argmax": ((param(0, 3, 50).argmax(1),), Opts(gpu=True, local={1: 8}, vector={1: 4})),
    "store-misses-lanes": (TWO, Opts(gpu=True, local={0: 2, 1: 4})),
    "columns": ((columns(param(0, 9, 10)),), Opts(gpu=True, local={0: 4, 1: 4})),
    "product": (
        (product(8, 12, 5),),
        Opts(gpu=True, local={0: 4, 1: 4}, upcast={0: 2, 1: 2}, unroll=2),
    ),
    "threads": ((axpy(10, 6),), Opts(thread=0, loop={0: 2}, upcast={1: 4})),
    "native": ((param(0, 10, 33).reduce(Ops.ADD, 1),), Opts(tile={1: 4}, vector={1: 8})),
    "plain": ((axpy(10, 6),), Opts()),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = CASES[name]
    before, after = around("split", opts, *bodies)
    check(after, Stage.MAPPED, opts.gpu)
    arrays = arrays_of(*bodies)
    assert_same_numbers(before, after, arrays, (Stage.INDEXED, Stage.MAPPED))
    assert_stores(after, bodies, arrays, Stage.MAPPED)
    golden(f"split/{name}.txt", f"# {opts}\n{show(after)}")


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 65, 97])
@pytest.mark.parametrize(
    "opts",
    [
        Opts(gpu=True, local={0: 32}),
        Opts(gpu=True, local={0: 8}, vector={0: 4}, upcast={0: 3}),
        Opts(gpu=True, blocks={0: 2}, upcast={0: 4}, local={0: 3}),
        Opts(tile={0: 8}, vector={0: 4}),
    ],
)
def test_any_size(n: int, opts: Opts) -> None:
    body = axpy(n)
    if n == 1:
        opts = Opts(gpu=opts.gpu)  # one element has no axis to cut
    assert_stores(split(indexed(body), opts), [body], arrays_of(body), Stage.MAPPED)


def test_sizes_that_divide_have_no_guard() -> None:
    _, after = around("split", Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2}), axpy(64, 128))
    assert not any(u.op is Ops.LT for u in toposort(after))


def test_a_guard_loses_what_cannot_matter() -> None:
    """12 = 3 vectors of 4: the guard knows nothing of the vector digit."""
    _, after = around("split", Opts(gpu=True, local={0: 2}, vector={0: 4}), axpy(12))
    guards = [u for u in toposort(after) if u.op is Ops.LT]
    assert guards
    for g in guards:
        assert all(r.arg.digit != "v" for r in toposort(g) if r.op is Ops.RANGE)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (lambda x, y: x, False),
        (lambda x, y: x * y, False),
        (lambda x, y: x * 3.0, True),  # 0.0 * 3.0; were it -3.0, or infinity, it would not be +0.0
        (lambda x, y: x + y, True),
        (lambda x, y: x.exp(), True),
        (lambda x, y: x * along(x.reduce(Ops.MAX, 1), x), True),
    ],
)
def test_a_sum_of_what_is_zero_outside_has_no_guard(
    value: Callable[[UOp, UOp], UOp], told: bool
) -> None:
    """0.0 from a LOAD that touches nothing, and products of such."""
    body = value(param(0, 3, 50), param(1, 3, 50)).reduce(Ops.ADD, 1)
    opts = Opts(gpu=True, local={1: 32})
    before, after = around("split", opts, body)
    if not any(u.op is Ops.EXP for u in toposort(body)):
        assert_same_numbers(before, after, arrays_of(body), (Stage.INDEXED, Stage.MAPPED))
    sums = [u for u in toposort(after) if u.op is Ops.REDUCE and u.arg.combine is Combine.ADD]
    assert [u.src[0].op is Ops.WHERE for u in sums] == [told]


@pytest.mark.parametrize("dtype", [dtypes.i32, dtypes.f16, dtypes.f32])
def test_whole_numbers_need_one_factor_of_zero(dtype: DType) -> None:
    x = param(0, 3, 50, dtype=dtype)
    _, after = around("split", Opts(gpu=True, local={1: 32}), (x * 3).reduce(Ops.ADD, 1))
    (total,) = (u for u in toposort(after) if u.op is Ops.REDUCE)
    assert (total.src[0].op is Ops.WHERE) is dtype.is_float


def test_the_largest_of_nothing_is_no_zero() -> None:
    _, after = around("split", Opts(gpu=True, local={1: 32}), param(0, 3, 50).reduce(Ops.MAX, 1))
    (top,) = (u for u in toposort(after) if u.op is Ops.REDUCE)
    assert top.src[0].op is Ops.WHERE


def test_neighbouring_lanes_are_neighbours_in_every_copy() -> None:
    _, after = around("split", Opts(gpu=True, local={0: 4}, upcast={0: 2}, vector={0: 2}), axpy(64))
    (store,) = (u for u in toposort(after) if u.op is Ops.STORE)
    text = show(store.src[0])
    strides = {"g0": "16", "u0": "8", "l0": "2"}
    for digit, stride in strides.items():
        assert f"MUL({digit}, {stride})" in text


def test_a_store_that_misses_lanes_has_one_writer() -> None:
    _, after = around("split", CASES["store-misses-lanes"][1], *TWO)
    gated = [u for u in toposort(after) if u.op is Ops.STORE and u.src[0].src[0].arg.slot == 11]
    assert len(gated) == 1 and len(gated[0].src) == 3
    lanes = [r for r in toposort(gated[0].src[2]) if r.op is Ops.RANGE]
    assert any(r.arg.axis == 1 and r.arg.kind is AxisType.LOCAL for r in lanes)


# ---- whose fault
def test_more_threads_than_a_block_has() -> None:
    with pytest.raises(TargetError) as caught:
        lower(indexed(axpy(64, 128)), Opts(gpu=True, local={0: 32, 1: 64}))
    assert str(caught.value).startswith(
        "Opts.local={0: 32, 1: 64} makes 2048 threads a block, the limit is 1024"
    )


@pytest.mark.parametrize(
    ("opts", "text"),
    [
        (Opts(gpu=True, local={2: 8}), "Opts.local={2: 8}: the kernel has axes 0 to 1, no axis 2"),
        (
            Opts(gpu=True, upcast={5: 2}),
            "Opts.upcast={5: 2}: the kernel has axes 0 to 1, no axis 5",
        ),
        (
            Opts(gpu=True, vector={3: 4}),
            "Opts.vector={3: 4}: the kernel has axes 0 to 1, no axis 3",
        ),
        (Opts(tile={2: 4}), "Opts.tile={2: 4}: the kernel has axes 0 to 1, no axis 2"),
        (Opts(gpu=True, lanes=(2,)), "Opts.lanes: the kernel has axes 0 to 1, no axis 2"),
        (Opts(gpu=True, grid=(-1,)), "Opts.grid: the kernel has axes 0 to 1, no axis -1"),
        (Opts(thread=2), "Opts.thread: the kernel has axes 0 to 1, no axis 2"),
        (Opts(thread=1), "Opts.thread=1: axis 1 is reduced; only output axes run on threads"),
        (Opts(gpu=True, loop={1: 2}), "Opts.loop={1: 2}: axis 1 is reduced, its rest is the loop"),
        (
            Opts(loop={0: 2}),
            "Opts.loop={0: 2}: on a CPU the rest of axis 0 is the loop, unless thread=0",
        ),
    ],
)
def test_opts_that_do_not_fit(opts: Opts, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        lower(indexed(param(0, 4, 8).reduce(Ops.ADD, 1)), opts)
    assert str(caught.value).startswith(text)


def test_an_axis_that_simplification_removes_may_be_named() -> None:
    body = (param(0, 4, 8) * 0.5).reduce(Ops.MAX, 1).ne(0.0) & UOp.const(False)
    lower(indexed(body), Opts(gpu=True, local={1: 4}))

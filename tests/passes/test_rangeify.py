"""Shapes to ranges: the oracle's numbers for every movement op, and the words for what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.kernels import arrays_of, assert_stores, axpy, outputs, param, softmax
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.passes.rangeify import rangeify
from uopc.uop.node import UOp, buffer, prod
from uopc.uop.ops import Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import show


def views() -> UOp:
    x = (
        param(0, 6, 20)
        .reshape((6, 4, 5))
        .permute((1, 0, 2))
        .flip((0, 2))
        .shrink(((1, 4), (0, 6), (1, 4)))
    )
    return x.pad(((1, 0), (0, 2), (0, 1)), 3.0)


CASES: dict[str, tuple[UOp, ...]] = {
    "axpy": (axpy(64, 128),),
    "views": (views(),),
    "reshape-merges-and-splits": (
        param(0, 4, 6, 5).reshape((2, 60)) + param(1, 3, 40).reshape((2, 60)),
    ),
    "pad-of-pad": (param(0, 3).pad(((1, 1),), 7.0).pad(((2, 0),), 9.0),),
    "softmax": (softmax(param(0, 4, 8)),),
    "argmax": (param(0, 3, 4, 5, dtype=dtypes.f16).argmax(2),),
    "sum-of-halves": (param(0, 3, 4, dtype=dtypes.f16).reduce(Ops.ADD, 1),),
    "sum-of-one": (param(0, 3, 1).reduce(Ops.ADD, 1),),
    "sum-of-nothing": (param(0, 3, 0).reduce(Ops.ADD, 1),),
    "outputs-of-two-shapes": (axpy(4, 6), param(0, 4, 6).reduce(Ops.MAX, 1)),
    "scalar": (param(0, 5) * param(1),),
    "iota": (UOp.arange(6).reshape((2, 3)).permute((1, 0)),),
    "no-axes": (param(0).exp(),),
    "no-elements": (axpy(4, 0), axpy(4, 0).reduce(Ops.ADD, 1)),
    "many-axes": (param(0, 2, 3, 2, 3, 2).permute((4, 2, 0, 3, 1)),),
}


@pytest.mark.parametrize("name", CASES)
def test_stores_what_the_body_is(name: str, golden: Callable[[str, str], None]) -> None:
    bodies = CASES[name]
    got = rangeify(bodies, outputs(bodies))
    check(got, Stage.INDEXED)
    assert_stores(got, bodies, arrays_of(*bodies), Stage.INDEXED)
    golden(f"rangeify/{name}.txt", show(got))


@pytest.mark.parametrize("merge", [(2, 1), (1, 2), (3,), (1, 1, 1)])
def test_merged_axes_store_the_same(merge: tuple[int, ...]) -> None:
    body = param(0, 3, 4, 5).permute((0, 2, 1)) + param(1, 3, 5, 4).flip((1,))
    got = rangeify([body], outputs([body]), merge)
    assert_stores(got, [body], arrays_of(body), Stage.INDEXED)
    axes = [u.arg.size for u in got.toposort() if u.op is Ops.RANGE]
    assert sorted(axes) == sorted(_merged(body.shape, merge))


def _merged(shape: tuple[int, ...], merge: tuple[int, ...]) -> list[int]:
    out, start = [], 0
    for n in merge:
        out.append(prod(shape[start : start + n]))
        start += n
    return out


def test_padding_guards_the_load() -> None:
    got = rangeify([param(0, 4).pad(((2, 3),))], [buffer(1, dtypes.f32, (9,))])
    (load,) = (u for u in got.toposort() if u.op is Ops.LOAD)
    assert len(load.src) == 3 and load.src[1].op is not Ops.CONST


def test_a_pad_that_is_cut_away_leaves_no_guard() -> None:
    body = param(0, 4).pad(((2, 3),)).shrink(((2, 6),))
    got = rangeify([body], [buffer(1, dtypes.f32, (4,))])
    assert all(len(u.src) == 1 for u in got.toposort() if u.op is Ops.LOAD)


# ---- whose fault
def error(bodies: list[UOp], outs: list[UOp], merge: tuple[int, ...] = ()) -> str:
    """The message, places as FILE: equal nodes are one, and keep where they were built first."""
    with pytest.raises(UsageError) as caught:
        rangeify(bodies, outs, merge)
    return re.sub(r"\w+\.py:\d+", "FILE", str(caught.value))


def test_an_output_of_another_size() -> None:
    text = error([axpy(4, 8)], [buffer(1, dtypes.f32, (31,))])
    assert "the body has 32 elements, shape (4, 8) (FILE)" in text
    assert "output slot 1 has 31, shape (31,)" in text


def test_an_output_of_another_dtype() -> None:
    text = error([axpy(4, 8)], [buffer(1, dtypes.f16, (32,))])
    assert "the body is f32 (FILE)" in text and "output slot 1 is f16. Cast the body." in text


def test_an_output_that_is_read() -> None:
    text = error([axpy(4)], [buffer(0, dtypes.f32, (4,))])
    assert text == "output slot 0 is also read by a body; every output needs a slot of its own"


def test_an_output_slot_used_twice() -> None:
    outs = [buffer(1, dtypes.f32, (4,)), buffer(1, dtypes.f32, (4,))]
    text = error([axpy(4), param(0, 4)], outs)
    assert "output slot 1 is also the output of another body" in text


def test_a_slot_of_two_kinds() -> None:
    text = error(
        [param(0, 4) + param(0, 4, dtype=dtypes.i32).cast(dtypes.f32)],
        [buffer(1, dtypes.f32, (4,))],
    )
    assert "slot 0 is both f32 of 4 elements (FILE)" in text
    assert "and i32 of 4 (FILE)" in text and "another slot" in text


def test_an_output_that_is_no_buffer() -> None:
    assert "an output is a BUFFER, got ADD (FILE)" in error([param(0, 4)], [axpy(4)])


def test_more_bodies_than_outputs() -> None:
    assert error([axpy(4)], []) == "1 bodies for 0 outputs; each body needs one output"


def test_groups_that_do_not_cover_the_axes() -> None:
    text = error([axpy(4, 8)], [buffer(1, dtypes.f32, (32,))], (3,))
    assert text == "Opts.merge=(3,) groups 3 axes, the output has 2: (4, 8)"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda x: x + param(1, 5), "ADD at test_rangeify.py:{}: shapes differ: (4, 8) and (5,)"),
        (
            lambda x: x + param(1, 4, 8, dtype=dtypes.f16),
            "ADD at test_rangeify.py:{}: dtypes differ: f32 and f16. Cast one",
        ),
        (
            lambda x: x.reshape((5, 7)),
            "RESHAPE at test_rangeify.py:{}: (5, 7) has 35 elements, shape (4, 8) has 32",
        ),
        (
            lambda x: x.expand((4, 9)),
            "EXPAND at test_rangeify.py:{}: shape (4, 8) cannot become (4, 9)",
        ),
        (
            lambda x: x.permute((0, 0)),
            "PERMUTE at test_rangeify.py:{}: (0, 0) is no order of the 2 axes",
        ),
        (
            lambda x: x.shrink(((0, 5), (0, 8))),
            "SHRINK at test_rangeify.py:{}: ((0, 5), (0, 8)) does not lie inside",
        ),
        (lambda x: x.flip((2,)), "FLIP at test_rangeify.py:{}: (2,) are not different axes"),
        (
            lambda x: x.reduce(Ops.ADD, 3),
            "REDUCE at test_rangeify.py:{}: cannot reduce the last 3 axes",
        ),
        (lambda x: x.reduce(Ops.SUB, 1), "reduce at test_rangeify.py:{}: SUB does not reduce"),
        (lambda x: x // 2.0, "IDIV at test_rangeify.py:{}: not defined for f32 (/ divides floats)"),
        (
            lambda x: x.shrink(((0, 4), (0, 0))).reduce(Ops.MAX, 1),
            "REDUCE at test_rangeify.py:{}: MAX of no elements",
        ),
    ],
)
def test_a_wrong_graph_fails_on_the_users_line(build: Callable[[UOp], UOp], text: str) -> None:
    x = param(0, 4, 8)
    with pytest.raises(UsageError) as caught:
        build(x)
    line = build.__code__.co_firstlineno
    assert str(caught.value).startswith(text.format(line))

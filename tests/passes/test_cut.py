"""A reduction inside another one's loops becomes a kernel of its own."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.bodies import Body, arrays_for, close, last_layer, outputs_in, run_kernel, wanted
from tests.helpers import assert_same
from tests.kernels import along, param
from tests.passes.test_kernel_bodies import check_case
from tests.random_bodies import random_body
from uopc import pipeline
from uopc.dtype import dtypes
from uopc.kernel import KernelBody
from uopc.opts import Opts
from uopc.passes.cut import cut, nested, work
from uopc.passes.linearize import linearize
from uopc.passes.rangeify import rangeify, rangeify_kernel
from uopc.passes.share import share
from uopc.uop.node import UOp, buffer
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show


def of_columns(value: UOp) -> UOp:
    return value.permute((1, 0)).reduce(Ops.MAX, 1)


X = param(0, 6, 9)
CASES: dict[str, tuple[UOp, int]] = {
    "row-inside-column": (of_columns(X - along(X.reduce(Ops.MAX, 1), X)), 1),
    "position-inside-column": (
        of_columns(X - along(X.argmax(1).cast(dtypes.f32), X)),
        1,
    ),
    "all-inside-rows": (
        (X - along(of_columns(X), X.permute((1, 0))).permute((1, 0))).reduce(Ops.ADD, 1),
        1,
    ),
    "row-inside-row": ((X - along(X.reduce(Ops.MAX, 1), X)).reduce(Ops.ADD, 1), 0),
    "side-by-side": (X.reduce(Ops.MAX, 1) + X.reduce(Ops.MIN, 1), 0),
}


def indexed_of(body: UOp) -> UOp:
    return share(rangeify([body], [buffer(10, body.dtype, body.shape)]))


@pytest.mark.parametrize("name", CASES)
def test_what_is_nested(name: str) -> None:
    body, count = CASES[name]
    assert len(nested(indexed_of(body))) == count


@pytest.mark.parametrize("name", [n for n, (_, count) in CASES.items() if count])
def test_two_kernels_store_the_same(name: str, golden: Callable[[str, str], None]) -> None:
    body, _ = CASES[name]
    root = indexed_of(body)
    (reduction,) = nested(root)
    first, second, written = cut(root, reduction, 20)
    rng = np.random.default_rng(0)
    have: dict[int, Array] = {0: (rng.integers(-16, 17, (6, 9)) / 4).astype(np.float32)}
    for kernel in (first, second):
        check(kernel, Stage.INDEXED)
        have |= run(kernel, have, Stage.INDEXED)
    assert_same(have[10], evaluate(body, have))
    assert [w.arg.slot for w in written] == list(range(20, 20 + len(written)))
    assert not nested(first) and not nested(second)
    golden(f"cut/{name}.txt", f"{show(first)}\n\n{show(second)}")


def test_statements_are_counted_with_their_loops() -> None:
    def statements(rows: int, columns: int) -> int:
        root = indexed_of(param(0, rows, columns).reduce(Ops.ADD, 1))
        return work(linearize(pipeline.lower(root, Opts())))

    assert statements(10, 7) - 1 == 2 * (statements(5, 7) - 1)  # one is the loop itself
    assert statements(10, 17) - statements(10, 7) == 100


# ---- when
def softmax_columns(rows: int, columns: int) -> KernelBody:
    """The sum of each column of a softmax over rows."""
    b = Body(rows, columns)
    x = b.param(rows, columns)
    top = b.walks(x.reduce(Ops.MAX, 1), 0, 1)
    e = (x - along(top, x)).exp()
    total = b.walks(e.reduce(Ops.ADD, 1), 0, 1)
    b.store(b.walks((e / along(total, x)).permute((1, 0)).reduce(Ops.ADD, 1), 1, 0))
    return b.record


def test_work_that_grows_is_cut_off() -> None:
    body = softmax_columns(16, 2048)
    kernel, have = run_kernel(body, "cpu")
    close(outputs_in(body, have), wanted(body, arrays_for(body)))
    assert len(kernel.steps) == 3 and len(kernel.partials) == 2
    whole = linearize(pipeline.lower(share(rangeify_kernel(body), given=True), Opts()))
    assert sum(work(s.program) for s in kernel.steps) * 20 < work(whole)


def test_a_small_kernel_stays_whole() -> None:
    kernel, _ = run_kernel(softmax_columns(8, 16), "cpu")
    assert len(kernel.steps) == 1


def test_a_gpu_is_left_alone() -> None:
    kernel, have = run_kernel(body := softmax_columns(40, 50), "emulated")
    close(outputs_in(body, have), wanted(body, arrays_for(body)))
    assert not any("_part" in s.source.name for s in kernel.steps)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reduction that is nested is cut off."""
    monkeypatch.setattr(pipeline, "WORTH_A_CUT", 0)
    monkeypatch.setattr(pipeline, "LEFT_BY_A_CUT", float("inf"))


@pytest.mark.usefixtures("always")
def test_a_product_is_cut_off_and_the_update_is_in_place() -> None:
    body = last_layer()
    kernel, have = run_kernel(body, "cpu")
    close(outputs_in(body, have), wanted(body, arrays_for(body)))
    assert len(kernel.steps) > 1 and not any("_copy" in s.source.name for s in kernel.steps)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(100, 110))
def test_random_kernels_in_pieces(seed: int) -> None:
    check_case(random_body(random.Random(seed)), random.Random(seed), "cpu")

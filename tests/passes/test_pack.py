"""Operands of products in panels: the numbers of the body, whatever its sizes and views."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import uopc
from tests.helpers import assert_same
from tests.kernels import arrays_of, indexed, param
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.passes.pack import pack
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate
from uopc.uop.spec import Stage, check


def sum_of_products(a: UOp, b: UOp) -> UOp:
    """Of a (m, k) and b (n, k), along k."""
    (m, k), n = a.shape, b.shape[0]
    wide = a.reshape((m, 1, k)).expand((m, n, k)) * b.reshape((1, n, k)).expand((m, n, k))
    return wide.reduce(Ops.ADD, 1)


def operand(slot: int, rows: int, k: int, view: str, dtype: DType) -> UOp:
    """(rows, k) of a parameter of whole numbers, seen one way or another."""
    if view == "transposed":
        return param(slot, k, rows, dtype=dtype).permute((1, 0))
    if view == "window":
        return param(slot, rows + 2, k + 1, dtype=dtype).shrink(((2, rows + 2), (1, k + 1)))
    if view == "padded":
        if rows < 2:
            return param(slot, rows, k, dtype=dtype)
        return param(slot, rows - 1, k, dtype=dtype).pad(((1, 0), (0, 0)))
    if view == "scaled":
        return param(slot, rows, k, dtype=dtype) * 2
    return param(slot, rows, k, dtype=dtype)


VIEWS = ("plain", "transposed", "window", "padded", "scaled")


@given(st.data())
def test_any_sizes_views_and_panels(data: st.DataObject) -> None:
    size = st.integers(2, 40)
    m, n, k = (data.draw(size) for _ in range(3))
    dtype = data.draw(st.sampled_from([dtypes.i32, dtypes.f32, dtypes.i64]))
    a = operand(0, m, k, data.draw(st.sampled_from(VIEWS)), dtype)
    b = operand(1, n, k, data.draw(st.sampled_from(VIEWS)), dtype)
    body = sum_of_products(a, b)
    if data.draw(st.booleans()):
        body = body + param(2, n, dtype=dtype).reshape((1, n)).expand((m, n))
    widths = {0: data.draw(st.integers(1, 9)), 1: data.draw(st.integers(1, 17))}
    pack_ = {x: widths[x] for x in data.draw(st.sampled_from([(0,), (1,), (0, 1)]))}
    thread = data.draw(st.sampled_from([None, 0, 1]))
    opts = Opts(upcast={0: widths[0]}, vector={1: widths[1]}, pack=pack_, thread=thread)
    assert Opts.from_json(opts.to_json()) == opts
    kernel = uopc.compile(body, opts, "cpu")
    assert len(kernel.steps) == 1 + len(pack_)
    arrays = {s: np.round(x * 3).astype(x.dtype) for s, x in arrays_of(body).items()}
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


@pytest.mark.parametrize("view", VIEWS)
def test_the_choice_for_a_large_product(view: str) -> None:
    """Whole numbers, so that any order of the sums is exact; sizes that do not divide."""
    m, n, k = 131, 250, 270
    a, b = operand(0, m, k, view, dtypes.f32), operand(1, n, k, view, dtypes.f32)
    body = sum_of_products(a, b)
    kernel = uopc.compile(body, target="cpu")
    assert dict(kernel.steps[-1].opts.pack) == {0: 6, 1: 16} and len(kernel.steps) == 3
    arrays = {s: np.round(x * 3).astype(x.dtype) for s, x in arrays_of(body).items()}
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


def test_the_loop_over_k_has_no_guard() -> None:
    body = sum_of_products(param(0, 101, 300), param(1, 403, 300))
    opts = Opts(upcast={0: 6}, vector={1: 16}, pack={0: 6, 1: 16})
    text = str(uopc.compile(body, opts, "cpu").steps[-1].source)
    loop = text[text.index("k2 < 300") : text.index("fmaf(val")]
    assert "?" not in loop and "if" not in loop
    assert "u0 < 101" in text and "v1 < 403" in text  # what lies outside is not stored


def test_an_operand_is_computed_once() -> None:
    """Its exponentials are in the kernel of its panels alone."""
    body = sum_of_products(param(0, 64, 50).exp(), param(1, 96, 50))
    opts = Opts(upcast={0: 4}, vector={1: 16}, pack={0: 4})
    first, last = uopc.compile(body, opts, "cpu").steps
    assert "expf" in first.source and "expf" not in last.source


def test_a_batch_has_panels_of_its_own() -> None:
    shape = (3, 20, 30, 40)
    a = param(0, 3, 20, 40).reshape((3, 20, 1, 40)).expand(shape)
    b = param(1, 3, 30, 40).reshape((3, 1, 30, 40)).expand(shape)
    body = (a * b).reduce(Ops.ADD, 1)
    opts = Opts(upcast={1: 6}, vector={2: 16}, pack={1: 6, 2: 16})
    kernel = uopc.compile(body, opts, "cpu")
    assert [p.arg.shape for p in kernel.partials] == [(4 * 3 * 40 * 6,), (2 * 3 * 40 * 16,)]
    arrays = {s: np.round(x * 3) for s, x in arrays_of(body).items()}
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


def test_a_product_of_a_product() -> None:
    """The operand that holds a sum is summed where its panels are written."""
    inner = sum_of_products(param(0, 24, 20), param(1, 30, 20))
    body = sum_of_products(inner, param(2, 40, 30))
    opts = Opts(upcast={0: 6}, vector={1: 16}, pack={0: 6})
    kernel = uopc.compile(body, opts, "cpu")
    arrays = {s: np.round(x * 3) for s, x in arrays_of(body).items()}
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


def test_the_stages_are_as_specified() -> None:
    root = indexed(sum_of_products(param(0, 13, 8), param(1, 19, 8)))
    firsts, rest, panels = pack(root, Opts(pack={0: 6, 1: 16}), 90)
    for kernel in (*firsts, rest):
        check(kernel, Stage.INDEXED)
    read = {memory(u.src[0]) for u in toposort(rest) if u.op is Ops.LOAD}
    assert read == set(panels) and [p.arg.slot for p in panels] == [90, 91]


def test_what_cannot_be_packed_is_an_error() -> None:
    body = sum_of_products(param(0, 13, 8), param(1, 19, 8))
    with pytest.raises(UsageError, match=r"pack=\{0: 4\}.*no sum of products"):
        uopc.compile(param(0, 64) * 2.0, Opts(pack={0: 4}), "cpu")
    with pytest.raises(UsageError, match="axis 2 is reduced"):
        uopc.compile(body, Opts(pack={2: 4}), "cpu")
    with pytest.raises(UsageError, match="for CPU kernels"):
        Opts(gpu=True, pack={0: 4})
    with pytest.raises(UsageError, match="axes 0 to 2"):
        uopc.compile(body, Opts(pack={3: 4}), "cpu")

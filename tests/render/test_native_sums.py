"""Sums and products in native and emulated C, compiled as they are for users: optimised.

gcc 12 (-O2 and -O3) takes wrong lanes of several signed accumulators whose sums are written so that
they wrap; the text keeps them unsigned.  These are kernels that were wrong.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import assert_same
from tests.kernels import arrays_of, outputs, param, product
from uopc.config import Config
from uopc.dtype import FLOATS, SIGNED, DType, dtypes
from uopc.opts import Opts
from uopc.pipeline import Ctx, compile, lower_body
from uopc.render_c import render_c
from uopc.runtime.program import Program
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate


def check(body: UOp, opts: Opts) -> str:
    """Native C gives the oracle's bits on arrays of any numbers; the text."""
    rng = np.random.default_rng(0)
    params = sorted({u for u in toposort(body) if u.op is Ops.BUFFER}, key=lambda u: u.arg.slot)
    arrays = {}
    for p in params:
        low, high = p.dtype.min, p.dtype.max
        arrays[p.arg.slot] = rng.integers(low, high, p.shape, p.dtype.numpy, endpoint=True)
    source = render_c(lower_body(body, outputs([body])[0], Ctx(opts)), "sums")
    out = np.empty(prod(body.shape), body.dtype.numpy)
    Program(source, config=Config(cache_mb=0))(*arrays.values(), out)
    assert_same(out, evaluate(body, arrays).reshape(-1))
    return source


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("upcast", [2, 3, 4])
def test_a_few_accumulators(dtype: DType, upcast: int) -> None:
    row = param(0, 1, 96, dtype=dtype).reduce(Ops.ADD, 1)
    check(row.reshape((1, 1)).expand((1, 96)), Opts(upcast={1: upcast}))


@pytest.mark.parametrize("dtype", SIGNED)
def test_six_in_two_groups(dtype: DType) -> None:
    check(param(0, 1, 96, dtype=dtype).reduce(Ops.ADD, 1), Opts(vector={0: 3}, unroll=2))


@pytest.mark.parametrize("dtype", SIGNED)
def test_two_reduced_axes(dtype: DType) -> None:
    body = param(0, 3, 96, 12, dtype=dtype).reduce(Ops.ADD, 2)
    check(body, Opts(vector={1: 8}))
    check(body, Opts(tile={0: 2}, upcast={1: 2}, vector={1: 3}))


@pytest.mark.parametrize("dtype", SIGNED)
def test_products_of_rows(dtype: DType) -> None:
    check(param(0, 3, 48, dtype=dtype).reduce(Ops.MUL, 1), Opts(upcast={1: 3}))


@pytest.mark.parametrize("dtype", [*SIGNED, dtypes.u8, dtypes.u32])
def test_a_matrix_product_and_what_follows_it(dtype: DType) -> None:
    body = product(6, 16, 24, dtype=dtype) * 3 + 1
    check(body, Opts(upcast={0: 3, 1: 2}, vector={1: 8}))


def test_signed_numbers_are_read_as_signed() -> None:
    """The memory is unsigned there: a compare, a division and a cast still see the sign."""
    x = param(0, 4, 16, dtype=dtypes.i32)
    total = x.reduce(Ops.ADD, 1)
    for body in (total // 7, (total < 0).where(total, 5), total.cast(dtypes.i64), total >> 3):
        text = check(body, Opts(upcast={1: 2}))
        assert "unsigned acc" in text


def test_other_kernels_keep_their_types() -> None:
    text = check(param(0, 64, dtype=dtypes.i32) + 1, Opts())
    assert "const int* restrict const p0" in text
    assert "unsigned*" not in text


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("inner", [2, 4, 5, 8, 12, 16])
def test_floats_added_backwards_or_permuted(dtype: DType, inner: int) -> None:
    """gcc 12 -O3 adds some elements twice: whole numbers, so that the sums are exact."""
    x = param(0, 3, 7, inner, dtype=dtype)
    backwards = x.flip((2,)).reduce(Ops.ADD, 2)
    permuted = x.permute((0, 2, 1)).reduce(Ops.ADD, 2)
    arrays = arrays_of(x)
    for body in (backwards, permuted):
        for opts in (Opts(), Opts(upcast={0: 2}, unroll=2), Opts(vector={2: 2})):
            source = render_c(lower_body(body, outputs([body])[0], Ctx(opts)), "sums")
            out = np.empty(3, dtype.numpy)
            Program(source, config=Config(cache_mb=0))(arrays[0], out)
            assert_same(out, evaluate(body, arrays))


@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 8, 12), (4, 12, 2), (4, 12, 12)])
def test_emulated_sums_over_a_flipped_axis(shape: tuple[int, ...]) -> None:
    """gcc 12 vectorises at -O2 too; emulation is compiled without its vectoriser."""
    body = param(0, *shape, dtype=dtypes.i64).flip((1,)).reduce(Ops.ADD, 2)
    x = np.random.default_rng(0).integers(-3, 4, shape)
    assert_same(compile(body, Opts(gpu=True, upcast={2: 2}), "emulated")(x), evaluate(body, {0: x}))

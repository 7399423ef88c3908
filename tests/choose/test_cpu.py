"""What is chosen for a CPU: threads where they pay, accumulators for sums, tiles for products."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.choose.test_gpu import BODIES, chains, facts
from tests.kernels import param, product
from tests.random_kernels import random_case
from uopc.choose.cpu import THREAD_WORK, rank
from uopc.choose.facts import LONGEST_CHAIN
from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.pipeline import compile, lower
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


@pytest.mark.parametrize("name", BODIES)
def test_every_candidate_lowers(name: str) -> None:
    f = facts(BODIES[name])
    ranked = rank(f)
    assert ranked
    for opts in ranked:
        assert not opts.gpu and Opts.from_json(opts.to_json()) == opts
        lower(f.root, opts)


@pytest.mark.parametrize("name", BODIES)
def test_float_sums_have_short_chains(name: str) -> None:
    f = facts(BODIES[name])
    for opts in rank(f):
        assert max(chains(f, opts)) <= LONGEST_CHAIN, opts


@pytest.mark.parametrize("seed", range(100))
def test_random_kernels_have_candidates_that_lower(seed: int) -> None:
    f = facts(*random_case(random.Random(seed), most=500).bodies)
    for opts in rank(f):
        lower(f.root, opts)


def test_threads_only_where_there_is_work() -> None:
    assert rank(facts(param(0, 1000) * 2.0))[0].thread is None
    assert rank(facts(param(0, THREAD_WORK) * 2.0))[0].thread == 0
    assert rank(facts(param(0, 1 << 24).reduce(Ops.ADD, 1)))[0].thread is None  # one output


def test_a_thread_has_enough_to_do() -> None:
    opts = rank(facts(param(0, 1 << 24) * 2.0))[0]
    assert dict(opts.loop)[0] >= THREAD_WORK // 8


@pytest.mark.parametrize(("dtype", "lanes"), [(dtypes.f32, 16), (dtypes.f64, 8), (dtypes.f16, 32)])
def test_sums_have_accumulators_of_a_register_row(dtype: object, lanes: int) -> None:
    opts = rank(facts(param(0, 33, 1000, dtype=dtype).reduce(Ops.ADD, 1)))[0]  # type: ignore[arg-type]
    assert dict(opts.vector) == {1: lanes}


def test_a_product_has_a_register_tile() -> None:
    opts = rank(facts(BODIES["big-product"]))[0]
    assert dict(opts.upcast) and dict(opts.vector)


@pytest.mark.parametrize(
    ("sizes", "thread"),
    [
        ((1024, 1024, 1024), 0),
        ((1024, 1000, 1024), 1),  # a rest along 0 is in no loop inside
        ((64, 4096, 512), 1),  # too few rows for threads
        ((64, 160, 1024), None),
    ],
)
def test_a_large_product_has_panels(sizes: tuple[int, int, int], thread: int | None) -> None:
    opts = rank(facts(product(*sizes)))[0]
    assert opts == Opts(pack={0: 6, 1: 16}, upcast={0: 6}, vector={1: 16}, thread=thread)


@pytest.mark.parametrize("sizes", [(8, 4096, 4096), (4096, 8, 8), (64, 64, 64), (4096, 4096, 4)])
def test_small_and_narrow_products_have_none(sizes: tuple[int, int, int]) -> None:
    assert not rank(facts(product(*sizes)))[0].pack


def by_transposed(m: int, n: int, k: int) -> UOp:
    """(m, k) by (n, k) transposed: both are contiguous along k."""
    a = param(0, m, k).reshape((m, 1, k)).expand((m, n, k))
    b = param(1, n, k).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD, 1)


def test_a_product_along_k_has_a_row_of_sums_for_each_output() -> None:
    body = by_transposed(32, 128, 128)
    (opts,) = rank(facts(body))[:1]
    assert dict(opts.vector) == {2: 8} and dict(opts.upcast) == {0: 4, 1: 2}
    kernel = compile(body, target="cpu")
    assert "acc1[64]" in kernel.source and "#pragma GCC unroll 1\n" in kernel.source
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (n, 128)).astype(np.float32) for n in (32, 128))
    np.testing.assert_array_equal(kernel(a, b), a @ b.T)


def test_products_are_spread_over_threads_where_that_pays() -> None:
    assert rank(facts(by_transposed(64, 128, 256)))[0].thread is None
    assert rank(facts(by_transposed(512, 512, 512)))[0].thread == 0


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (5, 3, 7), (64, 10, 128), (33, 1000, 9), (7, 2, 1000)]
)
def test_products_of_any_shape_lower(sizes: tuple[int, int, int]) -> None:
    for body in (by_transposed(*sizes), product(*sizes)):
        f = facts(body)
        for opts in rank(f):
            lower(f.root, opts)


def test_elementwise_work_is_a_plain_loop() -> None:
    assert rank(facts(param(0, 33, 100) * 2.0)) == [Opts(merge=(2,))]

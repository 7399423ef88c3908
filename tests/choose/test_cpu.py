"""What is chosen for a CPU: threads where they pay, accumulators for sums, tiles for products."""

from __future__ import annotations

import random

import pytest

from tests.choose.test_gpu import BODIES, chains, facts
from tests.kernels import param
from tests.random_kernels import random_case
from uopc.choose.cpu import THREAD_WORK, rank
from uopc.choose.facts import LONGEST_CHAIN
from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.pipeline import lower
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


def test_elementwise_work_is_a_plain_loop() -> None:
    assert rank(facts(param(0, 33, 100) * 2.0)) == [Opts(merge=(2,))]

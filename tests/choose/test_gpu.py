"""What is chosen for a GPU, by example, and what holds for every candidate of every kernel."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from tests.kernels import columns, numerator, outputs, param, product, softmax
from tests.random_kernels import random_case
from uopc.choose.facts import LONGEST_CHAIN, KernelFacts, is_float_sum
from uopc.choose.gpu import Aim, rank
from uopc.dtype import dtypes
from uopc.kernel import Launch
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.passes.split_grid import split_axis
from uopc.pipeline import gpu_opt_choice, lower
from uopc.target import target
from uopc.uop.node import UOp, prod
from uopc.uop.ops import Ops

A100 = Aim(target("sm_80"))
MIB = 1 << 20

BODIES: dict[str, UOp] = {
    "axpy": param(0, 64, 128) * 2.0 + 1.0,
    "(3, 100)": param(0, 3, 100) * 2.0,
    "(8, 4, 64, 64)": param(0, 8, 4, 64, 64) * 2.0,
    "64 Mi": param(0, 64 * MIB) * 2.0,
    "halves": param(0, 64 * MIB, dtype=dtypes.f16) * 2.0,
    "prime": param(0, 1009, 1013) * 2.0,
    "one": param(0, 1) * 2.0,
    "31": param(0, 31) * 2.0,
    "97": param(0, 97) * 2.0,
    "transpose": param(0, 1000, 777).permute((1, 0)) * 2.0,
    "many-axes": param(0, 3, 5, 7, 2, 3, 2).permute((5, 3, 1, 0, 2, 4)) * 2.0,
    "softmax": softmax(param(0, 33, 1000)),
    "long-softmax": softmax(param(0, 64, 30000)),
    "short-rows": softmax(param(0, 200000, 64)),
    "numerator": numerator(param(0, 16, 32)),
    "argmax": param(0, 70, 8192).argmax(1),
    "row-sums": param(0, 8192, 8192).reduce(Ops.ADD, 1),
    "column-sums": columns(param(0, 8192, 8192)),
    "sum": param(0, 100_003).reduce(Ops.ADD, 1),
    "huge-sum": param(0, 1 << 27).reduce(Ops.ADD, 1),
    "two-axes": param(0, 300, 300, 5).permute((2, 1, 0)).reduce(Ops.ADD, 2),
    "three-axes": param(0, 50, 50, 50, 2).permute((3, 2, 1, 0)).reduce(Ops.ADD, 3),
    "many-outputs-two-axes": param(0, 100, 100, 5000).permute((2, 1, 0)).reduce(Ops.ADD, 2),
    "product": product(64, 64, 64),
    "big-product": product(512, 512, 512),
    "odd-product": product(33, 17, 5),
}


def facts(*bodies: UOp) -> KernelFacts:
    return KernelFacts.of(bodies, outputs(bodies))


def first(*bodies: UOp, aim: Aim = A100) -> Opts:
    return rank(facts(*bodies), aim)[0]


def launch(opts: Opts, *bodies: UOp) -> Launch:
    f = facts(*bodies)
    assert f.merge == opts.merge
    return bind(lower(f.root, opts))


def working_threads(shape: Sequence[int], got: Launch) -> float:
    """Elements per thread of the grid: 1 is a full machine of elementwise work."""
    return prod(shape) / (prod(got.grid) * got.threads)


# ---- by example
def test_rows_that_fill_warps_badly_are_merged() -> None:
    """(3, 100): 300 elements in 5 blocks of 64 full lanes, not 3 rows of 100 in 128."""
    opts = first(BODIES["(3, 100)"])
    assert opts.merge == (2,)
    got = launch(opts, BODIES["(3, 100)"])
    assert got.threads % 32 == 0 and working_threads((300,), got) > 0.9


def test_contiguous_axes_are_one() -> None:
    opts = first(BODIES["(8, 4, 64, 64)"])
    assert opts.merge == (4,)
    got = launch(opts, BODIES["(8, 4, 64, 64)"])
    assert got.grid[1:] == (1, 1) and got.block[1:] == (1, 1)


def test_axes_that_a_broadcast_tells_apart_stay() -> None:
    row = param(1, 4, 64).reshape((1, 4, 1, 64)).expand((8, 4, 64, 64))
    assert first(param(0, 8, 4, 64, 64) + row).merge != (4,)


@pytest.mark.parametrize(("name", "vector"), [("64 Mi", 4), ("halves", 8)])
def test_large_work_moves_sixteen_bytes_a_thread(name: str, vector: int) -> None:
    opts = first(BODIES[name])
    assert dict(opts.vector) == {0: vector} and dict(opts.local) == {0: 256}


def test_rows_of_odd_length_are_merged_until_vectors_fit() -> None:
    assert facts(param(0, 1009, 1013) * 2.0).merge == (2,)
    assert dict(first(BODIES["prime"]).vector).get(0, 1) <= 4


def test_small_work_is_spread_over_the_machine() -> None:
    got = launch(first(BODIES["axpy"]), BODIES["axpy"])
    assert prod(got.grid) >= 108 and got.threads >= 32


@pytest.mark.parametrize("blocks", [1, 50, 400])
def test_min_blocks_asks_for_more_of_them(blocks: int) -> None:
    body = param(0, 1 << 17) * 2.0
    got = launch(gpu_opt_choice(body, min_blocks=blocks), body)
    assert prod(got.grid) >= blocks
    assert prod(launch(gpu_opt_choice(body, min_blocks=1000), body).grid) >= prod(got.grid)


@pytest.mark.parametrize("most", [32, 64, 128, 256, 512])
@pytest.mark.parametrize("name", BODIES)
def test_max_threads_is_respected(name: str, most: int) -> None:
    opts = gpu_opt_choice(BODIES[name], max_threads=most)
    assert prod(n for _, n in opts.local) <= most


def test_a_transpose_has_its_lanes_along_the_stores() -> None:
    f = facts(BODIES["transpose"])
    (x,) = first(BODIES["transpose"]).lanes[:1]
    assert any(a.store and c == 1 for a, c in f.strides(x))


def test_a_row_is_read_by_neighbouring_lanes() -> None:
    for name in ("softmax", "row-sums", "argmax"):
        opts = first(BODIES[name])
        assert opts.lanes[0] == 1 and dict(opts.local)[1] >= 32


def test_columns_have_their_lanes_along_the_rows_of_memory() -> None:
    opts = first(BODIES["column-sums"])
    assert opts.lanes[0] == 0 and dict(opts.local)[0] == 32 and dict(opts.local)[1] > 1


def test_a_long_sum_is_split_over_blocks_unless_told_otherwise() -> None:
    assert dict(first(BODIES["huge-sum"]).blocks)[0] > 100
    assert split_axis(facts(BODIES["huge-sum"]).root, gpu_opt_choice(BODIES["huge-sum"])) is None


def test_a_row_that_is_walked_again_stays_in_registers() -> None:
    opts = first(BODIES["softmax"])
    local, upcast, vector = (dict(x).get(1, 1) for x in (opts.local, opts.upcast, opts.vector))
    assert local * upcast * vector >= 1000


def test_a_product_has_a_register_tile() -> None:
    opts = next(o for o in rank(facts(BODIES["big-product"]), A100) if o.plan is None)
    assert all(dict(opts.upcast).get(a, 1) * dict(opts.vector).get(a, 1) > 1 for a in (0, 1))


# ---- what holds for all
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "aim",
    [A100, Aim(target("sm_75")), Aim(target("sm_90a"), split=False)],
    ids=["sm_80", "sm_75", "one-step"],
)
def test_every_candidate_lowers(name: str, aim: Aim) -> None:
    f = facts(BODIES[name])
    ranked = rank(f, aim)
    assert ranked and len(set(ranked)) == len(ranked)
    for opts in ranked:
        assert opts.gpu and Opts.from_json(opts.to_json()) == opts
        assert prod(n for _, n in opts.local) <= 1024
        if split_axis(f.root, opts) is None:
            bind(lower(f.root, opts))


def chains(f: KernelFacts, opts: Opts) -> list[int]:
    """Lengths of the serial chains of float sums: tiles, then the loop, then register copies."""
    out = [0]
    for u in filter(is_float_sum, f.reduces):
        digits = [opts.axis(r.arg.axis, r.arg.size, True) for r in u.src[1:]]
        out.append(math.prod(d.tile for d in digits))
        out.append(math.prod(d.loop for d in digits))
        out.append(math.prod(d.upcast * d.vector for d in digits))
    return out


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("on", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_float_sums_have_short_chains(name: str, on: str) -> None:
    """Of the first guess always; of the last resorts, which hold nothing, up to 2^26 elements."""
    f = facts(BODIES[name])
    ranked = rank(f, Aim(target(on)))
    for opts in ranked[:1] if max(f.sizes, default=0) > 1 << 26 else ranked:
        assert max(chains(f, opts)) <= LONGEST_CHAIN, opts


@pytest.mark.parametrize("seed", range(100))
def test_random_kernels_have_candidates_that_lower(seed: int) -> None:
    bodies = random_case(random.Random(seed), most=500).bodies
    f = facts(*bodies)
    for opts in rank(f, A100):
        if split_axis(f.root, opts) is None:
            lower(f.root, opts)


def test_choices_are_pure() -> None:
    assert rank(facts(BODIES["softmax"]), A100) == rank(facts(BODIES["softmax"]), A100)


def test_no_axes_no_choices() -> None:
    assert rank(facts(param(0) * 2.0), A100) == [Opts(gpu=True)]

"""The hand-written products are right, valid in their stage, and refuse what they cannot do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import assert_same, random_array
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.examples import smem_gemm_ir
from uopc.examples.products import register_product
from uopc.passes.linearize import linearize
from uopc.uop import oracle
from uopc.uop.ops import Ops
from uopc.uop.spec import Stage, check


@pytest.mark.parametrize(("n", "t"), [(4, 4), (8, 4), (12, 4), (6, 1)])
def test_the_product_is_right(rng: np.random.Generator, n: int, t: int) -> None:
    a, b = (random_array(rng, dtypes.f32, (n, n)) for _ in range(2))
    root = smem_gemm_ir(n, t)
    check(root, Stage.LOOPS, gpu=True)
    got = oracle.run(root, {0: a, 1: b})[2]
    assert_same(got.reshape(n, n), a @ b)


def test_it_launches_a_tile_a_block_with_two_barriers_a_step() -> None:
    tree = linearize(smem_gemm_ir(128, 16))
    assert tree.launch.grid == (8, 8, 1) and tree.launch.block == (16, 16, 1)
    assert [a.range.arg.axis for a in tree.launch.block_axes] == [1, 0], "the last axis is .x"
    assert sum(u.op is Ops.BARRIER for u in tree.sink.toposort()) == 2
    assert [(p.slot, p.size, p.written) for p in tree.params] == [
        (0, 128 * 128, False),
        (1, 128 * 128, False),
        (2, 128 * 128, True),
    ]


@pytest.mark.parametrize(
    ("n", "t", "says"),
    [
        (100, 16, "not a multiple"),
        (0, 4, "not a multiple"),
        (64, 0, "not a multiple"),
        (66, 33, "1089 threads"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(n: int, t: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        smem_gemm_ir(n, t)


@pytest.mark.parametrize(
    "sizes", [{"m": 100}, {"n": 96}, {"k": 100}, {"k": 64, "block_k": 32}], ids=str
)
def test_a_register_product_is_whole_tiles(sizes: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="m and n are multiples of 64"):
        register_product(**sizes)


def test_a_register_product_of_other_sizes(rng: np.random.Generator) -> None:
    root = register_product(64, 128, 32)
    check(root, Stage.LOOPS, gpu=True)
    a, b = random_array(rng, dtypes.f32, (64, 32)), random_array(rng, dtypes.f32, (32, 128))
    got = oracle.run(root, {0: a, 1: b})[2]
    assert_same(got.reshape(64, 128), a @ b)

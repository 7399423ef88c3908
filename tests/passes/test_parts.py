"""Products whose blocks share a tile: the numbers of the body, whoever comes last."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import uopc
from tests.helpers import assert_same
from tests.kernels import indexed, param
from tests.passes.test_products import (
    AROUND,
    BF16,
    PLANS,
    around,
    gives_its_numbers,
    of,
    product,
    target_of,
    times,
    whole_numbers,
)
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.kernel import KernelBody, Output
from uopc.opts import Opts
from uopc.passes.tile_product import tile_product
from uopc.pipeline import compile_kernel
from uopc.plan import BULK, CP_ASYNC, FMA, Plan
from uopc.runtime import cuda
from uopc.uop.node import UOp, buffer, is_part, toposort
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate
from uopc.uop.spec import Stage, check

#: plans with one block for each tile, which splits multiply
ONE_EACH = [name for name, plan in PLANS.items() if not plan.blocks]


def shared(name: str, splits: int) -> Plan:
    """A plan of the table, with several blocks for each tile."""
    return replace(PLANS[name], splits=splits)


@pytest.mark.parametrize(("splits", "turned"), [(2, ""), (3, "ab"), (50, "")])
@pytest.mark.parametrize("name", ONE_EACH)
def test_numbers(name: str, splits: int, turned: str) -> None:
    """Of whole tiles of k and of parts that end within one, up to a tile for each block."""
    plan = shared(name, splits)
    for k in (4 * plan.block_k, 4 * plan.block_k + 5):
        kernel = gives_its_numbers(product(70, 90, k, of(plan), turned), plan)
        (tickets,) = (p for p in kernel.partials if p.arg.slot in kernel.counters)
        assert tickets.arg.dtype is dtypes.u32


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize("plan", ["fma, a ring", "mma, a ring", "wgmma, roles"])
def test_what_stands_around_it(plan: str, name: str) -> None:
    used = shared(plan, 2)
    if used.roles:
        used = replace(used, block_k=16, atom="wgmma.m64n64k16.bf16")
    kernel = gives_its_numbers(around(name, of(used)), used)
    assert kernel.counters


@pytest.mark.parametrize("plan", ["fma, a ring", "mma, a ring", "wgmma, roles"])
def test_batches(plan: str) -> None:
    z, m, n, k = 3, 40, 70, 200
    dtype, wide = of(PLANS[plan]), dtypes.f32
    a = param(0, z, m, k, dtype=dtype).reshape((z, m, 1, k)).expand((z, m, n, k)).cast(wide)
    b = param(1, z, n, k, dtype=dtype).reshape((z, 1, n, k)).expand((z, m, n, k)).cast(wide)
    gives_its_numbers((a * b).reduce(Ops.ADD, 1), shared(plan, 3))


@pytest.mark.parametrize("dtype", [dtypes.i32, dtypes.f64, dtypes.u8, dtypes.i64])
def test_sums_of_other_types(dtype: DType) -> None:
    plan = Plan(FMA, 32, 64, 8, 1, 2, depth=2, copy=CP_ASYNC, splits=3)
    gives_its_numbers(product(50, 70, 43, dtype), plan)


def test_a_sum_of_one_tile_of_k_is_not_shared() -> None:
    kernel = gives_its_numbers(product(40, 40, 16, dtypes.f32), shared("fma", 8))
    assert not kernel.partials


def updated(m: int, n: int, k: int) -> tuple[KernelBody, UOp]:
    """The sum, and what it adds to a memory in place."""
    total = product(m, n, k, dtypes.f32)
    new = buffer(2, dtypes.f32, (m * n,)).reshape((m, n)) + total
    results = (
        Output(new, buffer(2, dtypes.f32, (m * n,))),
        Output(total, buffer(3, dtypes.f32, (m * n,))),
    )
    return KernelBody(results, (m, n, k), {total: (0, 1, 2), new: (0, 1)}), new


@pytest.mark.parametrize("name", ["fma", "fma, a ring"])
def test_several_outputs_and_an_update(name: str) -> None:
    m, n, k = 70, 65, 60
    body, new = updated(m, n, k)
    opts = Opts(gpu=True, plan=shared(name, 3))
    kernel = compile_kernel(body, "emulated", opts=opts, check=True)
    arrays = whole_numbers(new)
    want = evaluate(new, {s: a.copy() for s, a in arrays.items()})
    have = {**arrays, 3: np.zeros(m * n, np.float32)}
    kernel.run(have)
    assert_same(have[2].reshape(m, n), want)
    assert_same(have[3].reshape(m, n), want - whole_numbers(new)[2].reshape(m, n))


def test_the_bits_do_not_depend_on_who_comes_last() -> None:
    """Of sums that are not exact; `check` runs the blocks in several orders."""
    plan = shared("mma, a ring", 4)
    body = product(64, 64, 256, dtypes.bf16)
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), target_of(plan))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 256)).astype(dtypes.bf16.numpy) for _ in range(2))
    verdict = uopc.check(kernel, a, b)
    assert verdict.ok, verdict
    first = kernel(a, b)
    assert all(np.array_equal(first, kernel(a, b)) for _ in range(3))


def test_a_mapped_sum_closes_its_parts() -> None:
    root = tile_product(indexed(product(70, 70, 100, dtypes.bf16)), shared("mma, a ring", 3))
    check(root, Stage.MAPPED, True)
    (total,) = (u for u in toposort(root) if u.op is Ops.REDUCE)
    part, *_ = total.src[1:]
    assert is_part(part) and part.arg.size == 2  # of four tiles of k each has two


def test_a_result_of_16_bits_leaves_by_tensor_copies() -> None:
    plan = replace(PLANS["wgmma, roles"], splits=2, store=BULK)
    body = product(130, 96, 300, dtypes.bf16).cast(dtypes.bf16)
    assert "global.shared" in gives_its_numbers(body, plan).ptx


def test_parts_of_k_and_blocks_that_go_on_are_an_error() -> None:
    with pytest.raises(UsageError, match="0 where splits is above 1"):
        replace(PLANS["wgmma, roles"], splits=2, blocks=8)


# ---- the transpose of a product
FEW_ROWS: dict[str, Plan] = {
    "fma": Plan(FMA, 32, 64, 8, 1, 2, splits=2, swap=True),
    "mma": Plan(BF16, 64, 16, 64, 2, 1, depth=3, copy=CP_ASYNC, splits=2, swap=True),
    "wgmma": Plan("wgmma.m64n16k16.bf16", 64, 16, 64, 1, 1, depth=3, copy=CP_ASYNC, swap=True),
    "wgmma, roles": Plan(
        "wgmma.m64n16k16.bf16", 64, 16, 64, 1, 1, depth=3, copy=BULK, splits=3, swap=True
    ),
}


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("name", FEW_ROWS)
def test_few_rows(name: str, turned: str) -> None:
    """Atoms lie with their many rows along the columns of the result."""
    plan = FEW_ROWS[name]
    kernel = gives_its_numbers(product(16, 136, 392, of(plan), turned), plan)
    tiles = -(-136 // plan.block_m) * -(-16 // plan.block_n)
    assert kernel.launch_dims[0][0] == tiles


@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_a_transpose(name: str) -> None:
    plan = FEW_ROWS["wgmma, roles"]
    gives_its_numbers(around(name, of(plan)), plan)


def test_operands_of_two_types_are_exchanged_with_their_sides() -> None:
    atom = "mma.m16n8k32.u8xi8"
    body = times(param(0, 40, 96, dtype=dtypes.i8), param(1, 48, 96, dtype=dtypes.u8), dtypes.i32)
    gives_its_numbers(body, Plan(atom, 32, 32, 64, 1, 2, depth=2, copy=CP_ASYNC, swap=True))


def test_copies_of_rows_that_end_within_a_tile_stay_wide() -> None:
    """784 elements are twelve tiles of 64 and 16, each copy of 8 of them inside or outside."""
    plan = Plan(BF16, 16, 64, 64, 1, 4, depth=4, copy=CP_ASYNC, splits=4)
    kernel = uopc.compile(product(64, 256, 784, of(plan), "b"), Opts(gpu=True, plan=plan), "sm_80")
    assert ".CONSTANT" not in kernel.sass and "LDGSTS.E.BYPASS.128" in kernel.sass


def test_no_blocks_at_all_are_an_error() -> None:
    with pytest.raises(UsageError, match="splits is 0; it is at least 1"):
        Plan(splits=0)


COMPILED: dict[str, tuple[Plan, int]] = {
    "fma": (Plan(FMA, 64, 64, 16, 2, 2, depth=3, copy=CP_ASYNC, splits=4), 128),
    "mma": (Plan(BF16, 64, 64, 64, 2, 2, depth=4, copy=CP_ASYNC, splits=4), 96),
    "wgmma, roles": (
        Plan("wgmma.m64n64k16.bf16", 64, 64, 64, 1, 1, depth=4, copy=BULK, splits=2),
        240,
    ),
    "few rows by wgmma, roles": (
        Plan("wgmma.m64n16k16.bf16", 64, 16, 64, 1, 1, depth=8, copy=BULK, splits=4, swap=True),
        240,
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    """Parts are stored and read 16 bytes at a time; one thread draws the ticket."""
    plan, most = COMPILED[name]
    body = product(512, 512, 512, of(plan), "b")
    cubin = uopc.compile(body, Opts(gpu=True, plan=plan), target_of(plan)).steps[0].cubin
    used = cubin.resources
    assert not used.spills and not used.stack_bytes and not used.remarks, used
    assert used.registers <= most, used
    words = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\d+ )?([A-Z0-9.]+)", cubin.sass)
    count = Counter(words)
    vectors = plan.held.registers // 4
    assert count["LDG.E.128"] == plan.splits * vectors, count
    assert count["STG.E.128"] >= vectors and not count["LDG.E"], count
    assert count["ATOMG.E.ADD.STRONG.GPU"] == 1, count


LAUNCHED = {name: shared(name, 3) for name in ONE_EACH} | FEW_ROWS


@pytest.mark.gpu
@pytest.mark.parametrize("name", LAUNCHED)
def test_launched(name: str) -> None:
    plan = LAUNCHED[name]
    if target_of(plan) == "sm_90a" and cuda.device_target().sm != 90:
        pytest.skip(f"{name} needs sm_90a")
    body = product(200, 130, 5 * plan.block_k + 3, of(plan))
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), "cuda")
    arrays = whole_numbers(body)
    want = evaluate(body, arrays)
    for _ in range(20):
        assert_same(kernel(*arrays.values()), want)

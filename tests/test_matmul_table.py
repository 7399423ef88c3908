"""The rows of the table of products: the plans that are chosen for them, on a laptop.

Each plan is emulated at a small size that has ragged edges, with its body, checked; and compiled at
full size for the GPU that it was chosen for.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import uopc
from tests.helpers import assert_same
from tests.matmul_table import ROWS, Row
from tests.passes.test_products import whole_numbers
from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.pipeline import choices
from uopc.plan import BULK, FMA, Plan
from uopc.target import target
from uopc.uop.oracle import evaluate

H200 = target("sm_90a")


def plan_of(row: Row) -> Plan | None:
    """What is chosen at full size."""
    (choice,) = choices(row.body(), H200, numerics=row.numerics)
    return next(choice.ranked()).plan


def with_plans() -> dict[str, tuple[Row, Plan]]:
    """The first row of each plan, by name."""
    found: dict[tuple[Plan, str, str], Row] = {}
    for row in ROWS:
        plan = plan_of(row)
        if plan is not None:
            found.setdefault(
                (replace(plan, blocks=0, depth=2, group=1), row.layout, row.around), row
            )
    return {row.name: (row, plan) for row in found.values() if (plan := plan_of(row)) is not None}


PLANNED = with_plans()


def test_what_has_a_plan() -> None:
    """All but matrix-vector products and the smallest in f32."""
    without = {row.name for row in ROWS if plan_of(row) is None}
    vectors = {f"1x8192x8192 {type}" for type in ("f32", "tf32", "bf16", "f16")}
    assert without == vectors | {"64x256x784 f32", "64x256x784 tf32"}


def small(row: Row, plan: Plan) -> Row:
    """Somewhat more than one tile, and several of k."""
    if row.around == "convolution":
        image = (plan.rows[0] + 1, plan.rows[1] + 3, plan.rows[2] + 2)
        return replace(row, image=image, m=int(np.prod(image)), n=72, k=9 * 64)
    block = plan.block[::-1] if plan.swap else plan.block
    odd = int(row.n % 2)  # pitches that no copy takes stay so
    n = min(row.n, block[1] + 8) + odd
    k = min(row.k, 2 * plan.block_k * plan.splits + 16) + odd
    return row.at(min(row.m, block[0] + 4), n, k)


@pytest.mark.parametrize("name", PLANNED)
def test_emulated_and_checked(name: str) -> None:
    row, plan = PLANNED[name]
    few = small(row, plan)
    body = few.body()
    opts = Opts(gpu=True, plan=replace(plan, blocks=min(plan.blocks, 2)))
    kernel = uopc.compile(body, opts, H200, numerics=row.numerics)
    arrays = whole_numbers(body)
    verdict = uopc.check(kernel, *arrays.values())
    assert verdict.ok, verdict
    got, want = kernel(*arrays.values()), evaluate(body, arrays)
    if row.around == "bias, gelu":  # erf: ulps, then rounded to bf16
        assert np.allclose(got.astype(np.float32), want.astype(np.float32), rtol=2**-7, atol=1e-2)
    else:
        assert_same(got, want)


@pytest.mark.parametrize("name", PLANNED)
def test_compiled(name: str) -> None:
    row, plan = PLANNED[name]
    kernel = uopc.compile(row.body(), Opts(gpu=True, plan=plan), H200, numerics=row.numerics)
    step = kernel.steps[-1]
    for s in kernel.steps:
        used = s.cubin.resources
        assert not used.spills and not used.stack_bytes and not used.remarks, used
    words = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\d+ )?([A-Z0-9]+)", step.cubin.sass)
    count = Counter(words)
    if plan.atom == FMA:
        assert count["FFMA"] >= 128 and count["LDS"]
        return
    eight = row.dtype.itemsize == 1
    assert count["QGMMA" if eight else "HGMMA"] and not count["HMMA"]
    assert plan.copy != BULK or count["UTMALDG"] >= 2
    assert (count["UTMASTG"] > 0) == (plan.store == BULK)
    assert row.result is not dtypes.f32 or not count["UTMASTG"]

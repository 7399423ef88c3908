"""Operations of a launch by the unit that does them."""

from __future__ import annotations

import pytest

from tests.access_table import BY_NAME
from tests.kernels import param, product
from uopc.dtype import DType, dtypes
from uopc.inspect.work import operations
from uopc.opts import Opts
from uopc.pipeline import compile, finish
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, Ops

N = 4096
F64, I32, BF16, BOOL = dtypes.f64, dtypes.i32, dtypes.bf16, dtypes.bool


def done(body: UOp, opts: Opts | None = None, target: str = "sm_90a") -> dict[str, int]:
    """Of the only launch; without what finds addresses, which mappings decide."""
    (step,) = compile(body, opts, target).steps
    return {unit: n for unit, n in operations(step.program).items() if unit != "index"}


def x(dtype: DType = dtypes.f32, slot: int = 0) -> UOp:
    return param(slot, N, dtype=dtype)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (x() + x(slot=1), {"fp32": N}),
        (x().fma(x(slot=1), x()), {"fp32": 2 * N}),  # an FMA is two
        (-x() * 2.0, {"fp32": N}),  # signs are free
        (x().maximum(0.0) + 1.0, {"fp32": 2 * N}),
        (x().exp2(), {"sfu": N}),
        (x().sqrt() / x(slot=1), {"sfu": 2 * N}),
        (x(F64) * 2.0, {"fp64": N}),
        (x(F64).sqrt(), {"fp64": N}),
        (x(I32) * 3 + 1, {"int": 2 * N}),
        (x(I32) ^ x(I32, 1), {"int": N}),
        (x(BF16).cast(dtypes.f32) * 2.0, {"fp32": N, "convert": N}),
        (x(I32).bitcast(dtypes.f32) + 1.0, {"fp32": N}),
        (x(BOOL) & ~x(BOOL, 1), {"logic": 2 * N}),
        ((x() < x(slot=1)).where(x(), 0.0), {"fp32": 2 * N}),  # compare, choose
        (x(I32).eq(x(I32, 1)), {"int": N}),
    ],
)
def test_units(body: UOp, want: dict[str, int]) -> None:
    assert done(body) == want


def test_each_operation_counts_where_it_stands() -> None:
    """Once a thread outside of a loop, once a turn inside."""
    t, k = range_(64, 0, AxisType.LOCAL), range_(10, 1)
    a, b, y = (buffer(n, dtypes.f32, (640,)) for n in range(3))
    scale = a.index(t).load() * 3.0
    c = Cursor()
    with c.loop(k):
        c.store(y.index(t * 10 + k), b.index(t * 10 + k).load() * scale)
    assert operations(finish(c.sink()))["fp32"] == 64 + 64 * 10


def test_warps_of_a_role_alone() -> None:
    t = range_(128, 0, AxisType.LOCAL)
    a, y = buffer(0, dtypes.f32, (128,)), buffer(1, dtypes.f32, (128,))
    c = Cursor()
    with c.role("one", 1, 1):
        c.store(y.index(t), c.load(a.index(t)) + 1.0)
    assert operations(finish(c.sink()))["fp32"] == 32


@pytest.mark.parametrize("opts", [None, Opts(gpu=True, local={0: 16, 1: 16})])
def test_a_product_is_2mnk(opts: Opts | None) -> None:
    """Multiply and add of each term; sums of several threads add few more."""
    m, n, k = 64, 32, 48
    found = done(product(m, n, k), opts)["fp32"]
    assert 2 * m * n * k <= found <= 1.1 * 2 * m * n * k


@pytest.mark.parametrize(
    ("name", "unit", "mnk"),
    [
        ("product_mma", "tensor bf16", 256**3),
        ("product_wgmma", "tensor bf16", 512**3),
        ("product_fma", "fp32", 256**3),
    ],
)
def test_products_by_plans(name: str, unit: str, mnk: int) -> None:
    (step,) = BY_NAME[name].steps()
    found = operations(step.program)
    assert found[unit] == 2 * mnk
    assert max(found, key=lambda u: found[u] if u != "index" else 0) == unit


def test_a_sum_is_an_addition_an_element() -> None:
    found = done(param(0, 64, 65536).reduce(Ops.ADD, 1))["fp32"]
    assert 64 * 65536 <= found <= 1.2 * 64 * 65536  # each thread sums a warp's results again


def test_threads_that_only_fill_up_do_not_count() -> None:
    """What is stored under a guard is computed under it."""
    whole = done(param(0, 1000) * 2.0, Opts(gpu=True, local={0: 128}))
    assert whole == {"fp32": 1000}


def test_the_most_frequent_comes_first() -> None:
    (step,) = BY_NAME["gelu_odd"].steps()
    counts = list(operations(step.program).values())
    assert counts == sorted(counts, reverse=True) and all(counts)


def test_a_guarded_store_computes_where_it_stores() -> None:
    """Two outputs of different shapes: each adds under its own guard."""
    bodies = [param(0, 64) + 1.0, param(1, 100, 3) * 2.0]
    (step,) = compile(bodies, target="sm_90a").steps
    assert operations(step.program)["fp32"] == 64 + 300

"""Walls, floors and expected times: small cases by hand, and beside what a GPU was seen to take."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import matmul_table as products
from tests.access_table import BY_NAME
from tests.kernels import along, param, product, softmax
from tests.memory_table import ROWS
from uopc.dtype import dtypes
from uopc.inspect.access import listing
from uopc.inspect.gpus import GPUS
from uopc.inspect.records import AccessReport, ResourceReport, Roofline
from uopc.inspect.report import report
from uopc.inspect.roofline import NORM, must_bytes, roofline, together
from uopc.opts import Opts
from uopc.pipeline import Step, compile, compile_kernel
from uopc.target import target
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops

H200 = GPUS["H200"]
OUTPUTS = Path(__file__).parents[2] / "book" / "outputs"
RECORDED = OUTPUTS / "bench_memory.nvidia_h200.json"
OF_PRODUCTS = OUTPUTS / "bench_matmul.nvidia_h200.json"


def of_step(step: Step, used: ResourceReport | None = None) -> Roofline:
    accesses = listing(step.program, step.source.name, step.source.target).accesses
    return roofline(step.program, accesses, used or ResourceReport(), H200)


def of(body: UOp | list[UOp], opts: Opts | None = None) -> Roofline:
    """Of the only launch of a body."""
    (step,) = compile(body, opts, "sm_90a").steps
    return of_step(step)


def walls(r: Roofline) -> dict[str, float]:
    return dict(r.times_s)


# ---- bytes that must move
N = 1 << 20
X, Y = param(0, N), param(1, N)
IMAGE = param(0, 256, 512)


def _rows(x: UOp) -> UOp:
    """Each row of x minus its maximum."""
    return x - along(x.reduce(Ops.MAX, 1), x)


@pytest.mark.parametrize(
    ("body", "opts", "must"),
    [
        (X + Y, None, 3 * 4 * N),
        (X + X * 2.0, None, 2 * 4 * N),
        (param(0, 1003) * 2.0, None, 2 * 4 * 1003),  # wide ones, and a scalar tail
        (param(0, 1003, dtype=dtypes.bf16) * 2.0, None, 2 * 2 * 1003),
        (softmax(IMAGE), None, 2 * 4 * 256 * 512),
        (
            softmax(IMAGE),
            Opts(gpu=True, keep="none", local={1: 64}),
            2 * 4 * 256 * 512,
        ),  # read again
        (IMAGE + param(1, 1, 512).expand((256, 512)), None, 4 * (2 * 256 * 512 + 512)),
        (IMAGE.reduce(Ops.ADD, 1), None, 4 * (256 * 512 + 256)),
        (IMAGE.permute((1, 0)) * 2.0, None, 2 * 4 * 256 * 512),
        (IMAGE.shrink(((0, 128), (0, 512))) * 2.0, None, 2 * 4 * 128 * 512),
        (product(64, 64, 64), Opts(gpu=True, local={0: 16, 1: 16}), 3 * 4 * 64 * 64),
        ([X + Y, X * Y], None, 4 * 4 * N),
        (X + buffer(1, dtypes.f32, ()).reshape((1,)).expand((N,)), None, 2 * 4 * N),  # by value
    ],
)
def test_each_byte_once(body: UOp | list[UOp], opts: Opts | None, must: int) -> None:
    found = of(body, opts)
    assert found.must_bytes == must == found.memory_bytes
    assert found.floor_s >= must / H200.memory_bytes_s


def test_a_part_that_is_read_again() -> None:
    """Half of a parameter, read in two loops whose indices have different names."""
    half = param(0, 512, 512).shrink(((0, 256), (0, 512)))
    found = of(_rows(half), Opts(gpu=True, keep="none", local={1: 64}))
    assert found.must_bytes == 2 * 4 * 256 * 512


def test_every_eighth_element_moves_whole_pieces() -> None:
    """32 bytes from L2, 64 from memory, for each 4 that are wanted: as ncu counts them."""
    n = 1 << 16
    spread = param(0, n, 33).shrink(((0, n), (0, 1))).reshape((n,)) + 1.0
    found = of(spread, Opts(gpu=True, local={0: 128}))
    assert found.must_bytes == 2 * 4 * n
    assert found.memory_bytes == (64 + 4) * n
    assert found.moves_bytes == (32 + 4) * n
    assert found.wasted == pytest.approx(1 - 8 / 36)
    dense = of(param(0, n) + 1.0, Opts(gpu=True, local={0: 128}))
    assert dense.wasted == 0.0 and dense.predicted_s < found.predicted_s


def test_stores_that_fill_sectors_partly_read_them_first() -> None:
    turned = IMAGE.permute((1, 0)) * 2.0
    along_reads = of(turned, Opts(gpu=True, local={0: 32, 1: 8}, lanes=(0, 1)))
    along_stores = of(turned, Opts(gpu=True, local={0: 8, 1: 32}))
    assert along_stores.memory_bytes == along_stores.must_bytes
    assert along_reads.memory_bytes > along_reads.must_bytes
    assert along_reads.predicted_s > along_stores.predicted_s


def access(slot: int, store: bool, first: int, end: int, touched: int) -> AccessReport:
    (step,) = compile(param(0, 64) * 2.0, target="sm_80").steps
    made = listing(step.program, "kernel", step.source.target).accesses[0]
    return replace(
        made, slot=slot, store=store, first_byte=first, end_byte=end, touched_bytes=touched
    )


@pytest.mark.parametrize(
    ("spans", "must"),
    [
        ([(0, 400, 400)], 400),
        ([(0, 400, 400), (0, 400, 400)], 400),  # again
        ([(0, 200, 200), (200, 400, 200)], 400),  # halves
        ([(0, 400, 200), (4, 404, 200)], 400),  # each second one
        ([(0, 320, 320), (160, 480, 320)], 480),  # they overlap
        ([(0, 4000, 1000)], 1000),  # gaps
        ([(0, 5000, 5000)], 4096),  # no more than there is
    ],
)
def test_places_that_several_accesses_reach(
    spans: Sequence[tuple[int, int, int]], must: int
) -> None:
    reads = [access(0, False, *span) for span in spans]
    assert must_bytes(reads, {0: 4096}) == must
    writes = [replace(a, store=True) for a in reads]
    assert must_bytes([*reads, *writes], {0: 4096}) == 2 * must


# ---- operations and walls
def test_operations_are_those_of_the_body() -> None:
    found = dict(of(X.fma(Y, X), Opts(gpu=True, local={0: 256})).operations)
    assert found["fp32"] == 2 * N


def test_a_product_on_tensor_cores_is_2mnk() -> None:
    (step,) = BY_NAME["product_wgmma"].steps()
    found = of_step(step)
    assert dict(found.operations)["tensor bf16"] == 2 * 512**3
    peak_s = 2 * 512**3 / 989e12
    assert walls(found)["tensor bf16"] > peak_s  # it does not fill the GPU, nor keep its peak up


def test_the_floor_is_the_highest_wall_that_must_be() -> None:
    copy = of(X + 0.0)
    assert copy.wall == "memory"
    assert copy.floor_s == pytest.approx(2 * 4 * N / 4.8e12)
    busy = X
    for n in range(400):
        busy = busy * 1.5 + float(n)
    compute = of(busy)
    assert compute.wall == "fp32"
    assert compute.floor_s == pytest.approx(800 * N / (2 * 128 * 132 * 1.98e9))


def test_the_longest_wall_comes_first_and_bounds_what_is_expected() -> None:
    for name in ("add_f32", "product_wrong", "softmax_f32", "sum_all", "tile_of_32"):
        for step in BY_NAME[name].steps():
            found = of_step(step)
            times = [t for _, t in found.times_s]
            assert times == sorted(times, reverse=True)
            assert found.predicted_s > times[0] + H200.start_s * 0.99
            assert found.predicted_s > found.floor_s


def test_walls_together() -> None:
    none = {"memory": 0.0, "L2": 0.0, "L1": 0.0, "instructions": 0.0}
    assert together(none | {"memory": 1.0}) == 1.0
    assert together(none | {"memory": 1.0, "L2": 1.0}) == pytest.approx(2 ** (1 / NORM))
    assert together(none | {"L1": 1.0, "L2": 1.0}) == 1.0  # of the caches the higher one
    assert together(none | {"fp32": 1.0, "latency": 0.5}) == 1.0  # of threads' walls the highest


def test_conflicts_and_waste_take_time() -> None:
    (good,), (bad,) = (BY_NAME[name].steps() for name in ("tile_of_33", "tile_of_32"))
    assert walls(of_step(bad))["L1"] > 2 * walls(of_step(good))["L1"]
    (right,), (wrong,) = (BY_NAME[f"product_{name}"].steps() for name in ("right", "wrong"))
    assert walls(of_step(wrong))["L1"] > 2 * walls(of_step(right))["L1"]
    assert of_step(wrong).wasted > 0.7 and of_step(wrong).moves_bytes > of_step(right).moves_bytes


def grows(one: UOp, more: UOp, opts: Callable[[], Opts | None] = lambda: None) -> bool:
    return of(more, opts()).predicted_s > of(one, opts()).predicted_s


def test_more_of_the_same_takes_longer() -> None:
    assert grows(param(0, N) * 2.0, param(0, 4 * N) * 2.0)
    assert grows(softmax(param(0, 1024, 1024)), softmax(param(0, 4096, 1024)))
    assert grows(product(256, 256, 256), product(512, 512, 512))
    assert grows(X + 1.0, X + Y)


def test_a_faster_gpu_takes_less() -> None:
    (step,) = compile(X + Y, target="sm_80").steps
    times = [report(step, on=name).roofline.predicted_s for name in ("H200", "H100", "A100")]
    assert times == sorted(times)


def test_few_blocks_leave_sms_idle() -> None:
    """One block is no faster on 132 SMs than on one; a grid of 133 takes two rounds."""
    x = param(0, 1 << 16)
    one = of(x.exp2(), Opts(gpu=True, local={0: 1024}, loop={0: 64}))
    all_of_them = of(x.exp2(), Opts(gpu=True, local={0: 512}))
    assert walls(one)["sfu"] > 60 * walls(all_of_them)["sfu"]
    full, over = (
        of(param(0, n * 1024).exp2(), Opts(gpu=True, local={0: 1024})) for n in (132, 133)
    )
    assert walls(over)["sfu"] == pytest.approx(2 * walls(full)["sfu"])


def test_a_serial_chain_waits() -> None:
    """A thread that walks a row, whose loads wait for each other, beside a block that does."""
    rows = param(0, 256, 4096).reduce(Ops.ADD, 1)
    serial = of(rows, Opts(gpu=True, local={0: 32}))
    together_ = of(rows, Opts(gpu=True, local={1: 256}, upcast={1: 16}))
    assert walls(serial)["latency"] > 10 * walls(together_)["latency"]


def test_what_other_blocks_have_read_is_near() -> None:
    """One row that every block walks comes from memory for one of them only."""
    opts = Opts(gpu=True, local={0: 32})
    own = of(param(0, 1024, 4096).reduce(Ops.ADD, 1), opts)
    same = of(param(0, 1, 4096).expand((1024, 4096)).reduce(Ops.ADD, 1), opts)
    assert walls(same)["latency"] < 0.8 * walls(own)["latency"]


def test_what_data_decides_counts_as_all_of_the_memory() -> None:
    table, index = param(0, 5000), param(1, 64, dtype=dtypes.i32)
    found = of(table.gather((~0,), index))
    assert found.must_bytes == 4 * (5000 + 64 + 64)


# ---- beside the recorded table
def test_the_table_of_memory_bound_work_is_predicted() -> None:
    """Within 15% of what an H200 was seen to take, nine of ten rows: fused kernels at full size."""
    seen = {row["row"]: row["us"] for row in json.loads(RECORDED.read_text())}
    on = target("sm_90a")
    off = {}
    for row in ROWS:
        launches = row.plan("emulated", on).schedule.launches
        steps = [s for x in launches for s in compile_kernel(x.body, on, x.name).steps]
        expected_us = 1e6 * sum(report(step).roofline.predicted_s for step in steps)
        off[row.name] = expected_us / seen[row.name] - 1
    close = [name for name, part in off.items() if abs(part) < 0.15]
    assert len(off) == len(ROWS) >= 25
    assert len(close) >= 0.9 * len(ROWS), {n: f"{p:+.0%}" for n, p in off.items() if n not in close}


#: of tests/matmul_table.py: an atom or a shape each
PRODUCTS = (
    *("1024x1024x1024 f32", "4096x4096x4096 f32", "4096x4096x4096 tf32", "4096x4096x4096 bf16"),
    *("4096x4096x64 f16", "1x8192x8192 f32", "8192x8192x8192 f8e4m3 NT scaled"),
    "200704x128x1152 bf16 convolution",
)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_predicted(name: str) -> None:
    """Within 15% of what an H200 was seen to take; no constant was fitted to these."""
    seen = {row["row"]: row["us"] for row in json.loads(OF_PRODUCTS.read_text())}
    (row,) = [r for r in products.ROWS if r.name == name]
    kernel = compile(row.body(), None, "sm_90a", numerics=row.numerics)
    expected_us = 1e6 * sum(report(step).roofline.predicted_s for step in kernel.steps)
    assert expected_us / seen[name] == pytest.approx(1, abs=0.15)

"""What the model of cycles counts: loads, turns of the pipe, recomputation, registers."""

from __future__ import annotations

import math

import pytest

from tests.bodies import Body
from tests.kernels import numerator, outputs, param, product
from uopc.choose.cost import LINE, WARP, Digits, Estimate, Model
from uopc.choose.facts import KernelFacts
from uopc.choose.work import FAR, Work, work_of
from uopc.dtype import dtypes
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.share import share
from uopc.pipeline import index
from uopc.target import target
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

H100 = target("sm_90a")


def facts(*bodies: UOp) -> KernelFacts:
    """Of kernels whose output axes are not merged."""
    return KernelFacts.of_indexed(index(bodies, outputs(bodies)))


def work(*bodies: UOp) -> Work:
    return work_of(facts(*bodies))


def estimate(
    body: UOp,
    blocks: tuple[int, ...] = (),
    copies: tuple[int, ...] = (),
    local: tuple[int, ...] = (),
    vector: tuple[int, ...] = (),
    lanes: tuple[int, ...] = (),
) -> Estimate:
    """The cost of a body; digits that are not given are 1, the rest is serial."""
    f = facts(body)
    ones = (1,) * len(f.sizes)
    b, c, k, v = blocks or ones, copies or ones, local or ones, vector or ones
    serial = tuple(-(-n // (b[a] * c[a] * k[a])) if b[a] == 1 else 1 for a, n in enumerate(f.sizes))
    order = lanes or tuple(a for a in reversed(range(len(f.sizes))) if k[a] > 1)
    return Model(work_of(f), f.sizes, H100).estimate(Digits(f.sizes, b, serial, c, k, v, order))


# ---- the condensed graph
def test_a_product_is_two_loads_a_sum_and_a_store() -> None:
    units = work(product(64, 32, 128)).units
    assert [u.op for u in units] == [Ops.LOAD, Ops.LOAD, Ops.REDUCE, Ops.STORE]
    a, b, total, store = units
    assert (a.free, b.free) == (0b101, 0b110)
    assert (total.free, total.closed) == (0b011, 0b100)
    assert total.fused and set(total.below) == {a, b} and store.below == (total,)
    assert dict(a.memories[0].strides) == {0: 512, 2: 4}
    assert dict(b.memories[0].widths) == {1: 4}


def test_what_is_looked_up_is_far() -> None:
    rows = param(1, 40, dtype=dtypes.i64).reshape((40, 1)).expand((40, 96))
    (row, x, _) = work(param(0, 100, 96).gather((~0, 1), rows) * 2.0).units
    assert dict(x.memories[0].strides) == {0: FAR, 1: 4} and x.below == (row,)
    assert x.work and not x.rare


def test_a_scattered_value_is_loaded_rarely() -> None:
    rows = param(1, 40, dtype=dtypes.i64).reshape((40, 1)).expand((40, 96))
    units = work(param(0, 40, 96).scatter((100, 96), (~0, 1), rows)).units
    assert [u.rare for u in units if u.op is Ops.LOAD] == [False, True]


# ---- turns of the pipe
@pytest.mark.parametrize(
    ("lanes", "vector", "turns"),
    [
        ((1, 32), 1, 1),  # one line
        ((1, 32), 4, 4),  # four lines of a whole warp, a quarter of it at once
        ((32, 1), 1, 32),  # 32 rows
        ((32, 1), 4, 32),  # eight rows at once, four times
        ((4, 8), 4, 4),  # each quarter reads a line
        ((8, 4), 4, 8),  # each quarter reads two
    ],
)
def test_each_line_that_lanes_touch_at_once_is_a_turn(
    lanes: tuple[int, int], vector: int, turns: int
) -> None:
    body = param(0, 1024, 1024) * 2.0
    copies = (1, vector)
    blocks = tuple(-(-1024 // (n * c)) for n, c in zip(lanes, copies, strict=True))
    e = estimate(body, blocks, copies, lanes, copies, (1, 0))
    assert e.pipe == 2 * turns  # a load and a store


def test_lanes_that_read_the_same_are_one_turn() -> None:
    body = product(1024, 1024, 64)
    along_n = estimate(body, (1024, 32, 1), local=(1, 32, 1))
    along_m = estimate(body, (32, 1024, 1), local=(32, 1, 1))
    assert along_n.pipe == 64 * (1 + 1) + 1
    assert along_m.pipe == 64 * (32 + 1) + 32
    assert LINE == WARP * 4


# ---- work
def test_a_product_in_a_loop_of_another_axis_is_computed_for_each_nest() -> None:
    """Maximum and sum of exponentials of a row of products: each loops over the row again."""
    scores = numerator(product(32, 64, 128))
    looped = estimate(scores, (32, 1, 1), local=(1, 1, 32))
    kept = estimate(scores, (32, 1, 1), copies=(1, 64, 1), local=(1, 1, 32))
    assert looped.issue > 1.8 * kept.issue and looped.latency > 10 * kept.latency


def test_lanes_along_a_sum_shorten_its_chain() -> None:
    body = product(64, 64, 1024)
    serial = estimate(body, (64, 2, 1), local=(1, 32, 1))
    sliced = estimate(body, (64, 64, 1), local=(1, 1, 32))
    assert sliced.latency < serial.latency / 10


def test_few_blocks_leave_the_machine_idle() -> None:
    body = product(256, 1024, 64)
    few = estimate(body, (2, 32, 1), copies=(8, 1, 1), local=(16, 32, 1))
    many = estimate(body, (16, 32, 1), copies=(8, 1, 1), local=(2, 32, 1))
    assert many.cycles < few.cycles


def rows_and_columns(rows: int = 8192, width: int = 4096) -> KernelFacts:
    """Rows less their mean, and sums of their columns by parts of 64 rows."""
    b = Body(rows // 64, 64, width)
    x = b.param(rows // 64, 64, width)
    mean = b.walks(x.reduce(Ops.ADD, 1), 0, 1, 2) * (1 / width)
    b.store(x - mean.reshape((*mean.shape, 1)).expand(x.shape), 0, 1, 2)
    b.store(b.walks(x.permute((0, 2, 1)).reduce(Ops.ADD, 1), 0, 2, 1))
    return KernelFacts.of_indexed(share(rangeify_kernel(b.record), given=True))


def along(f: KernelFacts, row: int, column: int, copies: int) -> Estimate:
    """Lanes along rows and columns, copies of columns; the rest in loops."""
    d = Digits(
        f.sizes,
        (f.sizes[0], 1, 1),
        (1, f.sizes[1] // row, f.sizes[2] // (column * copies)),
        (1, 1, copies),
        (1, row, column),
        (1, 1, min(4, copies)),
        (2, 1) if row > 1 else (2,),
    )
    return Model(work_of(f), f.sizes, H100).estimate(d)


def test_a_loop_that_two_share_loads_once() -> None:
    """Rows in registers, one after the other: their mean, their store and the columns' sums."""
    e = along(rows_and_columns(), 1, 512, 8)
    once = 64 * 4096 * 4
    assert e.again == 0 and once * 2 < e.fetched < once * 2.1


def test_what_is_read_again_comes_from_memory_where_blocks_fill_the_l2() -> None:
    many, few = (along(rows_and_columns(rows), 16, 32, 4) for rows in (8192, 256))
    assert many.again == few.again == 2 * 64 * 4096 * 4, "for the store, and for the columns"
    assert many.latency == few.latency and many.cycles > 1.4 * few.cycles
    assert many.cycles > 1.4 * along(rows_and_columns(), 1, 512, 8).cycles


# ---- registers
def test_register_copies_of_loads_and_sums_count() -> None:
    body = product(1024, 1024, 64)
    small = estimate(body, (512, 16, 1), copies=(2, 2, 1), local=(1, 32, 1))
    large = estimate(body, (128, 4, 1), copies=(8, 8, 1), local=(1, 32, 1))
    assert large.registers - small.registers == (64 + 8 + 8) - (4 + 2 + 2)


def test_what_does_not_fit_costs_everything() -> None:
    e = estimate(product(1024, 1024, 64), (64, 2, 1), copies=(16, 16, 1), local=(1, 32, 1))
    assert e.cycles == math.inf and e.why == "registers"


def test_blocks_that_are_held_at_once_have_the_registers_that_are_counted() -> None:
    e = estimate(product(4096, 4096, 64), (512, 32, 1), copies=(8, 4, 1), local=(1, 32, 1))
    assert e.at_once * (e.registers + 8) * WARP <= H100.registers_per_sm + 8 * WARP * e.at_once
    assert e.at_once > 4

"""Kernels whose axes are given: from their record to numbers, on every device.

Oracle of the INDEXED graph, emulated and checked under several Opts, native C; NVRTC for registers.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bodies import (
    I32,
    KERNELS,
    Body,
    across,
    arrays_for,
    close,
    error_of,
    filled,
    last_layer,
    outputs_in,
    row_statistics,
    run_kernel,
    softmax_in_place,
    wanted,
    weight_update,
)
from tests.helpers import assert_same
from tests.kernels import along
from tests.random_bodies import BodyCase, random_body
from tests.three_ways import REFUSED, opts_for
from uopc import config
from uopc.dtype import DType, dtypes
from uopc.errors import CompilerError, TargetError, UsageError
from uopc.kernel import KernelBody
from uopc.opts import Opts
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.share import axes_of, reduced_axes, share
from uopc.pipeline import Kernel, compile_kernel, index_kernel, lower
from uopc.render.emulate import render_emulated
from uopc.runtime.program import Program
from uopc.target import target as named_target
from uopc.uop.node import UOp, buffer, memory, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops, ReportArg
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import parse, show

ONE_BLOCK = Opts(gpu=True, local={0: 64, 1: 10}, lanes=(1, 0))
OPTS: dict[str, list[Opts]] = {
    "row statistics": [
        Opts(gpu=True, local={1: 32}, vector={1: 4}),
        Opts(gpu=True, local={1: 8}, upcast={1: 5}, loop={0: 3}),
    ],
    "softmax in place": [
        Opts(gpu=True, local={1: 32}, vector={1: 4}),
        Opts(gpu=True, local={1: 8}, upcast={1: 5}, loop={0: 3}),
        Opts(gpu=True, local={0: 4, 1: 8}, keep="shared"),
    ],
    "last layer": [
        ONE_BLOCK,
        Opts(gpu=True, local={0: 16, 1: 16}, upcast={0: 4}, lanes=(1, 0)),
        Opts(gpu=True, local={0: 64, 1: 16}, vector={2: 4}, lanes=(1, 0)),
    ],
    "gathered product": [
        Opts(gpu=True, local={0: 8, 1: 8}, upcast={0: 2, 1: 3}, unroll=4),
        Opts(gpu=True, local={0: 4, 1: 6}, vector={1: 4}, upcast={0: 4}, unroll=8),
    ],
    "weight update": [
        Opts(gpu=True, local={0: 4, 1: 4}, vector={1: 2}, upcast={0: 2}, unroll=4),
        Opts(gpu=True, local={0: 5, 1: 3}, vector={1: 4}, upcast={0: 4}),
        Opts(gpu=True, blocks={2: 4}, local={0: 5, 1: 3}),
    ],
    "embedding update": [
        Opts(gpu=True, local={0: 4, 1: 8}),
        Opts(gpu=True, local={0: 4, 1: 2}, vector={1: 4}),
    ],
    "rows and elements": [
        Opts(gpu=True, local={0: 3, 1: 8}),
        Opts(gpu=True, local={1: 4}, vector={1: 4}, upcast={0: 3}),
    ],
}


@pytest.fixture(autouse=True)
def _every_stage_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UOPC_CHECK_SPEC", "1")
    config.current.cache_clear()


def indexed(body: KernelBody) -> UOp:
    return share(rangeify_kernel(body), given=True)


def each_mapping() -> list[tuple[str, Opts]]:
    return [(name, opts) for name, many in OPTS.items() for opts in many]


# ---- three ways
@pytest.mark.parametrize("name", KERNELS)
def test_the_oracle_stores_what_the_values_are(
    name: str, golden: Callable[[str, str], None]
) -> None:
    body = KERNELS[name]()
    root = indexed(body)
    check(root, Stage.INDEXED)
    arrays = arrays_for(body)
    have = filled(body, arrays)
    close(outputs_in(body, have | run(root, have, Stage.INDEXED)), wanted(body, arrays))
    golden(f"kernel_bodies/{name.replace(' ', '-')}.txt", show(root))


@pytest.mark.parametrize(("name", "opts"), each_mapping())
def test_emulated_and_checked(name: str, opts: Opts) -> None:
    body = KERNELS[name]()
    kernel, have = run_kernel(body, "emulated", opts)
    close(outputs_in(body, have), wanted(body, arrays_for(body)))
    assert error_of(body, have) == 0
    assert len(kernel.steps) == 1 and len(kernel.counters) == bool(opts.blocks)


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled(1)"])
@pytest.mark.parametrize(("name", "opts"), each_mapping())
def test_plain_text_in_any_order_of_warps(name: str, opts: Opts, order: str) -> None:
    """No barrier is missing that the order of warps would show."""
    body = KERNELS[name]()
    kernel, checked = run_kernel(body, "emulated", opts)
    have = filled(body, arrays_for(body))
    have |= {p.arg.slot: np.zeros(p.arg.shape, p.dtype.numpy) for p in kernel.partials}
    for step in kernel.steps:
        source = render_emulated(step.program, step.source.name, check=False, order=order)
        Program(source)(*(have[p.slot] for p in source.params))
    for got, want in zip(outputs_in(body, have), outputs_in(body, checked), strict=True):
        assert_same(got, want)


@pytest.mark.parametrize("target", ["emulated", "cpu"])
@pytest.mark.parametrize("name", KERNELS)
def test_automatic_opts(name: str, target: str) -> None:
    body = KERNELS[name]()
    _, have = run_kernel(body, target)
    close(outputs_in(body, have), wanted(body, arrays_for(body)))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("name", "opts"), each_mapping())
def test_registers_suffice(name: str, opts: Opts, target: str) -> None:
    for step in compile_kernel(KERNELS[name](), target, opts=opts).steps:
        used = step.cubin.resources
        assert not used.spills and not used.stack_bytes and not used.remarks, (step.opts, used)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_registers_suffice_for_what_is_chosen(name: str, target: str) -> None:
    for step in compile_kernel(KERNELS[name](), target).steps:
        used = step.cubin.resources
        assert not used.spills and not used.stack_bytes and not used.remarks, (step.opts, used)


# ---- what is computed once
def count(root: UOp, op: Ops, kind: AxisType | None = None) -> int:
    found = [u for u in toposort(root) if u.op is op]
    return len([u for u in found if kind is None or u.arg.kind is kind])


def test_statistics_and_elements_of_a_row_share_their_loops() -> None:
    """On a CPU: one loop over rows, and max, sum and outputs in it, the row read three times."""
    root = indexed(row_statistics())
    sink = lower(root, Opts())
    assert len(sink.src) == 1
    loops = [u.arg.axis for u in toposort(sink) if u.op is Ops.RANGE]
    assert sorted(loops) == [0, 1, 1, 1]


def test_outputs_of_one_nest_are_computed_once() -> None:
    b = Body(8, 8)
    x, y = b.param(8, 8), b.param(8, 8)
    root = (x * y).sqrt()
    b.store(root + 1.0, 0, 1)
    b.store(root * 2.0, 0, 1)
    for opts in (Opts(), Opts(upcast={0: 4})):
        assert count(lower(indexed(b.record), opts), Ops.SQRT) == 1


def test_a_block_reduces_each_sum_once() -> None:
    sink = lower(indexed(last_layer()), ONE_BLOCK)
    loops = [u for u in toposort(sink) if u.op is Ops.RANGE and u.arg.kind is AxisType.REDUCE]
    assert len(loops) == 1  # k, once
    # three exchanges, and the threads meet before the bias is overwritten
    assert count(sink, Ops.BARRIER) == 4


# ---- axes
def test_axes_that_all_walk_as_one_are_one() -> None:
    b = Body(4, 5, 6)
    x, y = b.param(4, 5, 6), b.param(120)
    b.store(x + y.reshape((4, 5, 6)), 0, 1, 2)
    b.store(x * 2.0, 0, 1, 2)
    root = indexed(b.record)
    assert [r.arg.size for r in axes_of(root)] == [120]
    assert count(root, Ops.IDIV) == count(root, Ops.MOD) == 0


def test_axes_that_one_output_walks_otherwise_stay() -> None:
    b = Body(4, 5)
    x = b.param(4, 5)
    b.store(x + 1.0, 0, 1)
    b.store((x * 2.0).permute((1, 0)), 1, 0)
    assert [r.arg.size for r in axes_of(indexed(b.record))] == [4, 5]


def test_rows_keep_their_axes_and_reduced_ones_are_one() -> None:
    b = Body(3, 4, 5, 6)
    x = b.param(3, 4, 5, 6)
    total = b.walks(x.reduce(Ops.ADD, 2), 0, 1, 2, 3)
    b.store(total)
    root = indexed(b.record)
    assert [r.arg.size for r in axes_of(root)] == [12, 30]
    assert reduced_axes(root) == {1}


def test_a_reduction_that_is_not_named_gets_axes_of_its_own() -> None:
    b = Body(4, 7)
    x, y = b.param(4, 7), b.param(4, 5)
    b.store(x + along(y.reduce(Ops.MAX, 1), x), 0, 1)
    _, have = run_kernel(b.record, "cpu")
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))


def test_a_reduction_inside_loops_over_its_own_axis_gets_fresh_ones() -> None:
    """The max of each column, seen along the rows of a square: its range is taken there."""
    b = Body(6, 6)
    x = b.param(6, 6)
    top = b.walks(x.reduce(Ops.MAX, 1), 0, 1)
    b.store(x + across(top, x), 0, 1)
    root = indexed(b.record)
    check(root, Stage.INDEXED)
    for target in ("cpu", "emulated"):
        _, have = run_kernel(b.record, target)
        close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))


def test_a_map_that_does_not_fit_is_an_error() -> None:
    b = Body(4, 7)
    b.store(b.param(4, 7) + 1.0, 1, 0)
    with pytest.raises(CompilerError, match="4 elements on kernel axis 1, which has 7"):
        rangeify_kernel(b.record)


def test_two_outputs_of_one_memory() -> None:
    b = Body(4)
    x = b.param(4)
    b.store(x + 1.0, 0, into=x)
    b.store(x + 2.0, 0, into=x)
    with pytest.raises(UsageError, match="output slot 0 is also the output of another body"):
        rangeify_kernel(b.record)


# ---- in place
def copied(kernel: Kernel) -> bool:
    return any("_copy" in step.source.name for step in kernel.steps)


def same_everywhere(body: KernelBody, copies: dict[str, bool] | None = None) -> None:
    """All devices give the values; whether they had to write apart and copy."""
    arrays = arrays_for(body)
    for target in ("cpu", "emulated"):
        kernel, have = run_kernel(body, target)
        close(outputs_in(body, have), wanted(body, arrays))
        if copies is not None:
            assert copied(kernel) is copies[target], target


def test_two_memories_are_exchanged() -> None:
    b = Body(5, 8)
    x, y = b.param(5, 8), b.param(5, 8)
    b.store(y + 0.0, 0, 1, into=x)
    b.store(x + 0.0, 0, 1, into=y)
    same_everywhere(b.record, {"cpu": False, "emulated": False})


def test_what_nests_exchange_is_read_first() -> None:
    """y is read by the sum that goes into v, v by what goes into y."""
    b = Body(6, 9)
    y, v = b.param(6, 9), b.param(6)
    total = b.walks(y.reduce(Ops.ADD, 1), 0, 1)
    b.store(y - along(v, y), 0, 1, into=y)
    b.store(v + total, 0, into=v)
    same_everywhere(b.record, {"cpu": False, "emulated": False})


def test_a_row_minus_its_first_element_reads_that_before_the_loop() -> None:
    b = Body(6, 40)
    x = b.param(6, 40)
    first = x.shrink(((0, 6), (0, 1))).expand((6, 40))
    b.store(x - first, 0, 1, into=x)
    same_everywhere(b.record, {"cpu": False, "emulated": False})
    with pytest.raises(TargetError, match=r"along axis 1 writes\. Set Opts\.blocks=\{1: 1\}"):
        run_kernel(b.record, "emulated", Opts(gpu=True, local={1: 8}))


def test_a_row_minus_itself_reversed_is_no_loop() -> None:
    b = Body(6, 40)
    x = b.param(6, 40)
    b.store(x - x.flip((1,)), 0, 1, into=x)
    same_everywhere(b.record, {"cpu": True, "emulated": False})
    kernel, have = run_kernel(b.record, "emulated", Opts(gpu=True, local={1: 40}))
    assert len(kernel.steps) == 1
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))
    with pytest.raises(TargetError, match="p0 is written in place, and a loop along axis 1"):
        run_kernel(b.record, "emulated", Opts(gpu=True, local={1: 8}, blocks={1: 1}))


@pytest.mark.parametrize(("n", "copied_on_gpu"), [(8, False), (16, True)])
def test_a_transpose_in_place_is_copied_or_kept_by_one_block(n: int, copied_on_gpu: bool) -> None:
    b = Body(n, n)
    x = b.param(n, n)
    b.store(x.permute((1, 0)), 0, 1, into=x)
    same_everywhere(b.record, {"cpu": True, "emulated": copied_on_gpu})
    kernel, have = run_kernel(b.record, "emulated", Opts(gpu=True, local={0: n, 1: n}))
    assert len(kernel.steps) == 1 and count(kernel.steps[0].sink, Ops.BARRIER) == 1
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))


def test_columns_in_place_are_not_read_again_by_a_later_row() -> None:
    b = Body(7, 5)
    x = b.param(7, 5)
    total = b.walks(x.permute((1, 0)).reduce(Ops.ADD, 1), 1, 0)
    b.store(x - across(total, x), 0, 1, into=x)
    same_everywhere(b.record)
    with pytest.raises(TargetError, match="a loop along axis 0 would read what it has written"):
        lower(indexed(b.record), Opts())
    one_block = Opts(gpu=True, local={0: 7, 1: 5})
    _, have = run_kernel(b.record, "emulated", one_block)
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))


def test_blocks_stay_where_every_output_has_the_axis() -> None:
    """v (R,) is written in place and read by all of (R, C): C may not be blocks."""
    b = Body(6, 200)
    x, v = b.param(6, 200), b.param(6)
    b.store(x + along(v, x), 0, 1)
    b.store(v * 0.5, 0, into=v)
    same_everywhere(b.record, {"cpu": False, "emulated": False})
    with pytest.raises(TargetError, match="one block would read what another one along axis 1"):
        run_kernel(b.record, "emulated", Opts(gpu=True, local={1: 32}))


def test_loops_that_read_come_before_the_loop_that_writes() -> None:
    """v (C,) is the first output, and what all rows read."""
    b = Body(6, 9)
    x, v = b.param(6, 9), b.param(9)
    b.store(v * 0.5, 1, into=v)
    b.store(x + across(v, x), 0, 1)
    same_everywhere(b.record, {"cpu": False, "emulated": False})
    _, have = run_kernel(b.record, "emulated", Opts(gpu=True, local={1: 3}, blocks={0: 1, 1: 1}))
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))


def test_loops_that_read_what_each_other_writes_have_no_order() -> None:
    """Rows of y by columns of z, and the other way round: neither can be first."""
    b = Body(5, 6, 7)
    y, z, p, q = b.param(5, 6), b.param(5, 7), b.param(6), b.param(7)
    mine = z.reshape((5, 1, 7)).expand((5, 6, 7)) * p.reshape((1, 6, 1)).expand((5, 6, 7))
    its = y.reshape((5, 1, 6)).expand((5, 7, 6)) * q.reshape((1, 7, 1)).expand((5, 7, 6))
    b.store(b.walks(mine.reduce(Ops.ADD, 1), 0, 1, 2), into=y)
    b.store(b.walks(its.reduce(Ops.ADD, 1), 0, 2, 1), into=z)
    with pytest.raises(TargetError, match="in loops that each read what another one writes"):
        lower(indexed(b.record), Opts())
    same_everywhere(b.record)


def test_values_that_are_read_before_they_are_overwritten_are_kept_once() -> None:
    """Two updates that read each other's old values: registers, then stores; no barrier."""
    sink = lower(indexed(weight_update()), Opts(gpu=True, local={0: 4, 1: 4}))
    assert count(sink, Ops.BARRIER) == 0
    kept = [u for u in toposort(sink) if u.op is Ops.ALLOC and u.arg.name == "new"]
    assert len(kept) == 2


def test_the_parameter_in_place_is_one_pointer() -> None:
    for target in ("cpu", "sm_80"):
        kernel = compile_kernel(softmax_in_place(), target)
        (step,) = kernel.steps
        assert [p.written for p in step.source.params] == [True, True]
        assert "const float* __restrict__ p0" not in step.source


# ---- places that data names
INDICES = [dtypes.i8, dtypes.u8, dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64]


def gather_body(dtype: DType, size: int, count_: int, dims: tuple[int, ...] = (~0,)) -> Body:
    b = Body(count_)
    x, index = b.param(size), b.param(count_, dtype=dtype)
    b.store(b.checks(x.gather(dims, index)), 0)
    return b


@pytest.mark.parametrize(
    "dtype", [dtypes.i8, dtypes.u8, dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64]
)
@pytest.mark.parametrize("size", [1, 3, 300])
def test_indices_of_every_integer_dtype(dtype: DType, size: int) -> None:
    """From -size to size - 1, as far as the dtype goes, and the dtype's own ends."""
    named = {*range(max(-size, int(dtype.min)), min(size, int(dtype.max) + 1))}
    named |= {int(dtype.min), int(dtype.max), size, -size - 1, 1 << 31, -(1 << 31) - 1}
    fits = sorted(n for n in named if dtype.min <= n <= dtype.max)
    body = gather_body(dtype, size, len(fits)).record
    arrays = {0: np.arange(size, dtype=np.float32), 1: np.array(fits, dtype.numpy)}
    strays = [n for n in fits if not -size <= n < size]
    for target in ("cpu", "emulated"):
        _, have = run_kernel(body, target, arrays=arrays)
        assert_same(outputs_in(body, have)[0], wanted(body, arrays)[0])
        assert bool(error_of(body, have)) == bool(strays)
    codes = {1 << 63 | size << 32 | (clip(n) & 0xFFFFFFFF) for n in strays}
    if strays:
        assert error_of(body, have) == max(codes)


@pytest.mark.parametrize("dtype", INDICES)
@pytest.mark.parametrize("size", [1, 3, 300])
def test_places_of_every_integer_dtype(dtype: DType, size: int) -> None:
    """The same, written to: what strays is added nowhere."""
    named = {-size - 1, -size, -1, 0, 1, size - 1, size, 255, 1 << 31, (1 << 63) - size}
    named |= {int(dtype.min), int(dtype.max)}
    fits = sorted(n for n in named if dtype.min <= n <= dtype.max)
    b = Body(size)
    values, index = b.param(len(fits), dtype=I32), b.param(len(fits), dtype=dtype)
    b.store(b.checks(values.scatter((size,), (~0,), index)), 0)
    arrays: dict[int, Array] = {
        0: np.arange(1, len(fits) + 1, dtype=np.int32),
        1: np.array(fits, dtype.numpy),
    }
    for target in ("cpu", "emulated"):
        _, have = run_kernel(b.record, target, arrays=arrays)
        assert_same(outputs_in(b.record, have)[0], wanted(b.record, arrays)[0])
        assert bool(error_of(b.record, have)) == any(not -size <= n < size for n in fits)


def clip(n: int) -> int:
    return max(-(1 << 31), min(n, (1 << 31) - 1))


@pytest.mark.parametrize("target", ["cpu", "emulated"])
def test_the_code_names_index_and_size(target: str) -> None:
    body = gather_body(I32, 10, 4).record
    arrays = {0: np.arange(10, dtype=np.float32), 1: np.array([1, -3, -12, 9], np.int32)}
    _, have = run_kernel(body, target, arrays=arrays)
    assert list(outputs_in(body, have)[0]) == [1, 7, 0, 9]
    assert error_of(body, have) == 1 << 63 | 10 << 32 | (-12 & 0xFFFFFFFF)


def test_an_error_that_is_there_stays() -> None:
    body = gather_body(I32, 10, 4).record
    have = filled(body, {0: np.arange(10, dtype=np.float32), 1: np.arange(4, dtype=np.int32)})
    have[3][0] = 5
    compile_kernel(body, "emulated").run(have)
    assert have[3][0] == 5


def test_an_empty_array_reads_zeros_and_reports() -> None:
    body = gather_body(I32, 0, 3).record
    arrays: dict[int, Array] = {0: np.zeros(0, np.float32), 1: np.zeros(3, np.int32)}
    for target in ("cpu", "emulated"):
        _, have = run_kernel(body, target, arrays=arrays)
        assert list(outputs_in(body, have)[0]) == [0, 0, 0]
        assert error_of(body, have) == 1 << 63


def test_an_index_that_counts_needs_no_load_and_no_check() -> None:
    """Element i of row i."""
    b = Body(5)
    x, place = b.param(5, 5), UOp.arange(5, I32)
    b.store(b.checks(x.gather((0, ~0), place)), 0)
    root = indexed(b.record)
    assert not any(isinstance(u.arg, ReportArg) for u in toposort(root))
    (load,) = (u for u in toposort(root) if u.op is Ops.LOAD)
    assert load.src[0].src[1].op is Ops.MUL  # 6 * i


def test_an_index_is_checked_once_however_often_it_is_used() -> None:
    b = Body(4, 6)
    x, index = b.param(9, 6), b.param(4, dtype=I32)
    rows = b.checks(x.gather((~0, 1), index.reshape((4, 1)).expand((4, 6))))
    top = b.walks(rows.reduce(Ops.MAX, 1), 0, 1)
    b.store(rows - along(top, rows), 0, 1)
    reports = [e for e in indexed(b.record).src if e.op is Ops.END and e.src[0].arg]
    assert [[r.arg.axis for r in e.src[1:]] for e in reports] == [[0]]


def test_several_indices_are_reported_one_after_the_other() -> None:
    """In one block of several threads, each over a loop of its own."""
    b = Body(3)
    index, places = b.param(40, dtype=I32), b.param(40, dtype=I32)
    values = b.param(50).gather((~0,), index)
    b.store(b.checks(b.checks(values).scatter((3,), (~0,), places)), 0)
    arrays = arrays_for(b.record)
    arrays[1] = np.arange(40, dtype=np.int32) % 3
    arrays[0] = np.arange(40, dtype=np.int32)
    for slot, stray, size in ((0, 50, 50), (1, -4, 3)):
        bad = {k: x.copy() for k, x in arrays.items()}
        bad[slot][7] = stray
        _, have = run_kernel(b.record, "emulated", Opts(gpu=True, local={0: 3}), bad)
        close(outputs_in(b.record, have), wanted(b.record, bad))
        assert error_of(b.record, have) == 1 << 63 | size << 32 | stray & 0xFFFFFFFF


def test_padding_around_a_gather_is_no_index() -> None:
    b = Body(8)
    x, index = b.param(5), b.param(4, dtype=I32)
    b.store(b.checks(x.gather((~0,), index)).pad(((2, 2),), 1.0), 0)
    arrays = {0: np.arange(5, dtype=np.float32), 1: np.array([4, 3, -1, 2], np.int32)}
    for target in ("cpu", "emulated"):
        _, have = run_kernel(b.record, target, arrays=arrays)
        assert list(outputs_in(b.record, have)[0]) == [1, 1, 4, 3, 4, 2, 1, 1]
        assert error_of(b.record, have) == 0


def test_a_scatter_reads_only_what_comes_to_it() -> None:
    """LOADs of the values stand under the comparison."""
    b = Body(6, 4)
    values, index = b.param(9, 4), b.param(9, dtype=I32)
    spread = index.reshape((9, 1)).expand((9, 4))
    b.store(b.checks(values.scatter((6, 4), (~0, 1), spread)), 0, 1)
    root = indexed(b.record)
    loads = {memory(u.src[0]).arg.slot: u for u in toposort(root) if u.op is Ops.LOAD}
    assert len(loads[0].src) == 3 and len(loads[1].src) == 1
    arrays = arrays_for(b.record) | {1: np.array([0, 5, -1, 5, 2, 6, -6, -7, 2], np.int32)}
    for target in ("cpu", "emulated"):
        _, have = run_kernel(b.record, target, arrays=arrays)
        close(outputs_in(b.record, have), wanted(b.record, arrays))
        assert error_of(b.record, have) in [1 << 63 | 6 << 32 | n & 0xFFFFFFFF for n in (6, -7)]


def test_a_scatter_whose_axes_the_result_walks_is_a_choice() -> None:
    """One element of each row: no sum."""
    b = Body(5, 7)
    values, index = b.param(5), b.param(5, dtype=I32)
    b.store(values.scatter((5, 7), (0, ~0), index), 0, 1)
    root = indexed(b.record)
    assert count(root, Ops.REDUCE) == 0 and count(root, Ops.WHERE) == 1
    same_everywhere(b.record)


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16])
def test_narrow_floats_are_scattered_in_f32(dtype: DType) -> None:
    """1024 times 1 and once 2048: an f16 sum would stay at 2048."""
    b = Body(2)
    values, index = b.param(2049, dtype=dtype), b.param(2049, dtype=I32)
    b.store(values.scatter((2,), (~0,), index), 0)
    ones = np.ones(2049, dtype.numpy)
    arrays = {0: ones, 1: (np.arange(2049) % 2).astype(np.int32)}
    for target in ("cpu", "emulated"):
        _, have = run_kernel(b.record, target, arrays=arrays)
        got = outputs_in(b.record, have)[0]
        assert_same(got, wanted(b.record, arrays)[0])


# ---- halves and copies
def test_a_sum_over_blocks_with_two_outputs_and_an_update() -> None:
    b = Body(3, 5000)
    x, v = b.param(3, 5000), b.param(3)
    total = b.walks(x.reduce(Ops.ADD, 1), 0, 1)
    top = b.walks(x.reduce(Ops.MAX, 1), 0, 1)
    b.store(total)
    b.store(v - top, 0, into=v)
    kernel, have = run_kernel(b.record, "emulated", Opts(gpu=True, blocks={1: 4}, local={1: 64}))
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))
    (step,) = kernel.steps  # the last block of each row folds its parts
    assert len(kernel.partials) == 3 and len(kernel.counters) == 1
    assert [p.size for p in step.source.params if p.slot in kernel.counters] == [3]


def test_a_group_of_blocks_does_not_fold_parts_that_another_one_stores() -> None:
    """Sums of the 3 rows of a plane beside one of the plane: its parts are stored by one group."""
    b = Body(2, 3, 64)
    x, y = b.param(2, 3, 64), b.param(2, 64)
    b.store(b.walks(x.reduce(Ops.ADD, 1), 0, 1, 2))
    b.store(b.walks(y.reduce(Ops.ADD, 1), 0, 2))
    kernel, have = run_kernel(b.record, "emulated", Opts(gpu=True, blocks={2: 4}, local={2: 8}))
    close(outputs_in(b.record, have), wanted(b.record, arrays_for(b.record)))
    assert len(kernel.steps) == 2


def test_opts_that_cannot_split_are_passed_over() -> None:
    """Few long rows, normalised and summed in a chain: no candidate may split them."""
    b = Body(1, 70_000)
    x = b.param(1, 70_000)
    top = b.walks(x.reduce(Ops.MAX, 1), -1, 1)
    total = b.walks((x - along(top, x)).reduce(Ops.ADD, 1), -1, 1)
    b.store(total)
    b.store(top)
    kernel = compile_kernel(b.record, "sm_90a")
    assert len(kernel.steps) == 1


def test_arrays_for_every_slot_are_wanted() -> None:
    kernel = compile_kernel(weight_update(), "cpu")
    with pytest.raises(UsageError, match=r"wants arrays for the slots .* there is none for \[3\]"):
        kernel.run({slot: x for slot, x in arrays_for(weight_update()).items() if slot != 3})


def test_the_error_word_is_an_atomic_on_a_gpu_and_a_store_on_a_cpu() -> None:
    root = indexed(gather_body(I32, 10, 4).record)
    gpu, cpu = (lower(root, Opts(gpu=on)) for on in (True, False))
    assert (count(gpu, Ops.ATOMIC), count(gpu, Ops.IF)) == (1, 1)
    assert (count(cpu, Ops.ATOMIC), count(cpu, Ops.STORE)) == (0, 2)


def test_the_spec_wants_a_word_of_u64() -> None:
    word = buffer(0, dtypes.u32, (1,)).index(0)
    store = UOp(Ops.STORE, (word, UOp.const(1, dtypes.u32)), ReportArg())
    with pytest.raises(Exception, match="reports into a word of u64, not of u32"):
        check(UOp(Ops.SINK, (store,)), Stage.INDEXED)


def test_a_report_prints_and_parses() -> None:
    root = rangeify_kernel(gather_body(I32, 10, 4).record)
    assert "STORE[report]" in show(root) and parse(show(root)) is root


# ---- random kernels
FEW = settings(max_examples=20, suppress_health_check=[*HealthCheck])
DRAWN = st.randoms(use_true_random=False)


def compare(case: BodyCase, have: dict[int, Array], code: int, exact: bool) -> None:
    want = evaluate([o.value for o in case.body.outputs], case.arrays)
    for o, w in zip(case.body.outputs, want, strict=True):
        assert_same(have[o.memory.arg.slot].reshape(w.shape), w)
    found = error_of(case.body, have)
    assert found == code if exact else bool(found) == bool(code), (hex(found), hex(code))


def code_of(case: BodyCase, root: UOp) -> int:
    """What the oracle reports; it stores what it should."""
    check(root, Stage.INDEXED)
    have = case.filled()
    have |= run(root, have, Stage.INDEXED)
    code = error_of(case.body, have)
    compare(case, have, code, exact=True)
    return code


def check_case(case: BodyCase, rng: random.Random, target: str) -> None:
    """Automatic Opts, and such as are drawn, against the oracle."""
    code = code_of(case, rangeify_kernel(case.body))
    root = index_kernel(case.body, named_target("sm_80" if target == "emulated" else target))
    assert code_of(case, root) == code
    for opts in (None, opts_for(rng, root, target != "cpu")):
        try:
            kernel = compile_kernel(case.body, target, opts=opts)
        except (TargetError, UsageError) as error:
            refused = isinstance(error, TargetError) or any(r in str(error) for r in REFUSED)
            if opts is None or not refused:
                raise
            continue
        have = case.filled()
        kernel.run(have)
        compare(case, have, code, exact=target != "cpu")


@FEW
@given(DRAWN)
def test_random_kernels_on_an_emulated_gpu(rng: random.Random) -> None:
    check_case(random_body(rng), rng, "emulated")


@FEW
@given(DRAWN)
def test_random_kernels_on_a_cpu(rng: random.Random) -> None:
    check_case(random_body(rng), rng, "cpu")


@pytest.mark.parametrize("seed", range(8))
def test_nvrtc_takes_random_kernels_and_registers_suffice(seed: int) -> None:
    for step in compile_kernel(random_body(random.Random(seed)).body, "sm_90a").steps:
        used = step.cubin.resources
        assert not used.spills and not used.stack_bytes and not used.remarks, (step.opts, used)


@pytest.mark.parametrize("target", ["emulated", "cpu"])
@pytest.mark.parametrize("seed", range(20))
def test_kernels_of_fixed_seeds(seed: int, target: str) -> None:
    """The same in every run, so that a change of a pass shows here first."""
    check_case(random_body(random.Random(seed)), random.Random(seed), target)

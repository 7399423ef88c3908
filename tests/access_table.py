"""Kernels whose accesses a report counts and a profiler measures: `scratch/bench_access.py`.

Elementwise, strided, transposed, padded, reductions, scans, products, odd sizes; by automatic Opts
and by Opts that are wrong on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.kernels import columns, param, product, softmax
from tests.suite import bias, gelu, layernorm
from uopc.compiled import Kernel, Step
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.examples.products import smem_gemm_ir
from uopc.inspect.warps import Counts
from uopc.launches import random_arrays
from uopc.observing import observed
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.plan import BULK, CP_ASYNC, FMA, Plan
from uopc.show import steps_of
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, Ops, ParamArg

TARGET = "sm_90a"


@dataclass(frozen=True)
class Row:
    """One kernel.

    name: also of its launches, in C; build: a body, several, or loop IR; opts: None for automatic
    ones; arrays: inputs, None for random ones.
    """

    name: str
    build: Callable[[], UOp | list[UOp]]
    opts: Opts | None = None
    arrays: Callable[[], Sequence[Any]] | None = None

    def kernel(self) -> Kernel | UOp:
        """Compiled, or as it is written."""
        body = self.build()
        if isinstance(body, UOp) and body.op is Ops.SINK:
            return body
        return compile(body, self.opts, TARGET, self.name)

    def steps(self) -> tuple[Step, ...]:
        """Its launches."""
        kernel = self.kernel()
        return steps_of(self.name, kernel, None if isinstance(kernel, Kernel) else TARGET)

    def inputs(self, kernel: Kernel | UOp) -> Sequence[Any]:
        """Arrays to call it with."""
        return random_arrays(kernel, 0) if self.arrays is None else self.arrays()

    def observed(self) -> list[dict[UOp, Counts]]:
        """Counts of an emulated run, for kernels whose data decides where they go."""
        kernel = self.kernel()
        return observed(kernel, *self.inputs(kernel), name=self.name)


def _square(n: int, dtype: DType = dtypes.f32) -> UOp:
    return param(0, n, n, dtype=dtype)


def _wide_product(m: int, n: int, k: int, dtype: DType) -> UOp:
    """Of narrow operands, added up in f32."""
    a = param(0, m, k, dtype=dtype).cast(dtypes.f32).reshape((m, 1, k)).expand((m, n, k))
    b = param(1, k, n, dtype=dtype).cast(dtypes.f32).permute((1, 0)).reshape((1, n, k))
    return (a * b.expand((m, n, k))).reduce(Ops.ADD, 1)


def _strided(step: int) -> UOp:
    """Every step-th element."""
    n = 1 << 18
    return param(0, n, step).shrink(((0, n), (0, 1))).reshape((n,)) + 1.0


def _table() -> UOp:
    """Rows of a table at indices."""
    table, index = param(0, 1000, 128), param(1, 4096, dtype=dtypes.i32)
    return table.gather((~0, 1), index.reshape((4096, 1)).expand((4096, 128)))


def _scattered_elements() -> UOp:
    table, index = param(0, 1 << 16), param(1, 1 << 14, dtype=dtypes.i32)
    return table.gather((~0,), index)


def _indices(most: int, count: int, items: int) -> Callable[[], Sequence[Any]]:
    def made() -> Sequence[Any]:
        rng = np.random.default_rng(0)
        table = rng.standard_normal(items, dtype=np.float32)
        return table, rng.integers(0, most, count, dtype=np.int32)

    return made


def shared_tile(pitch: int) -> UOp:
    """Each block turns a 32x32 tile by way of shared memory whose rows are `pitch` elements: loop
    IR of which 32 conflicts and 33 does not."""
    n = 256
    x, y = buffer(0, dtypes.f32, (n, n)), buffer(1, dtypes.f32, (n, n))
    across, down = (range_(n // 32, a, AxisType.GLOBAL) for a in range(2))
    row, lane = (range_(size, 2 + a, AxisType.LOCAL) for a, size in enumerate((8, 32)))
    shape = (32 * pitch,)
    tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, shape, AddrSpace.SHARED, "tile"))
    c = Cursor()
    with c.loop(range_(4, 4, AxisType.UPCAST)) as k:
        here = (k * 8 + row) * pitch + lane
        c.store(tile.index(here), x.index(down * 32 + k * 8 + row, across * 32 + lane).load())
    c.barrier()
    with c.loop(range_(4, 5, AxisType.UPCAST)) as k:
        there = lane * pitch + k * 8 + row
        c.store(y.index(across * 32 + k * 8 + row, down * 32 + lane), c.load(tile.index(there)))
    return c.sink()


_SQUARE = {0: 16, 1: 16}
_BF16 = dtypes.bf16


def _gpu(**digits: Any) -> Opts:
    return Opts(gpu=True, **digits)


def _below_diagonal() -> UOp:
    place = UOp.arange(1 << 18).reshape((512, 512))
    return (place % 512 < place // 512 + 1).where(_square(512), 0.0)


def _planned(name: str, body: Callable[[], UOp], plan: Plan) -> Row:
    return Row(name, body, _gpu(plan=plan))


_ELEMENTWISE = (
    Row("add_f32", lambda: param(0, 1 << 20) + param(1, 1 << 20)),
    Row("add_bf16", lambda: param(0, 1 << 20, dtype=_BF16) + param(1, 1 << 20, dtype=_BF16)),
    Row("add_u8", lambda: param(0, 1 << 20, dtype=dtypes.u8) + param(1, 1 << 20, dtype=dtypes.u8)),
    Row("mul_f64", lambda: param(0, 300_007, dtype=dtypes.f64) * 2.0),
    Row("mul_primes", lambda: param(0, 1009, 1013) * param(1, 1009, 1013)),
    Row("gelu_odd", lambda: gelu(127, 1001)),
    Row("row_added", lambda: bias(8, 4, 64, 65)),
)
_VIEWS = (
    Row("shifted", lambda: param(0, 1 << 18).shrink(((1, (1 << 18) - 3),)) * 2.0),
    Row("every_2nd", lambda: _strided(2)),
    Row("every_8th", lambda: _strided(8)),
    Row("every_33rd", lambda: _strided(33)),
    Row("backwards", lambda: param(0, 1 << 18).flip((0,)) + 1.0),
    Row("transposed", lambda: _square(1024).permute((1, 0)) + 0.0),
    Row("transposed_bf16", lambda: _square(1024, _BF16).permute((1, 0)) + 0.0),
    Row("transposed_odd", lambda: param(0, 777, 1001).permute((1, 0)) * 2.0),
    Row(
        "transposed_reads",
        lambda: _square(512).permute((1, 0)) + 1.0,
        _gpu(local={0: 8, 1: 32}),
    ),
    Row(
        "transposed_stores",
        lambda: _square(512).permute((1, 0)) + 1.0,
        _gpu(local={0: 32, 1: 8}, lanes=(0, 1)),
    ),
    Row("padded", lambda: param(0, 255, 1000).pad(((1, 1), (3, 1)), 7.0) * 2.0),
    Row("below_diagonal", _below_diagonal),
)
_REDUCTIONS = (
    Row("sum_rows", lambda: param(0, 1024, 1024).reduce(Ops.ADD, 1)),
    Row("sum_rows_odd", lambda: param(0, 65, 1003).reduce(Ops.ADD, 1)),
    Row("sum_columns", lambda: columns(param(0, 1000, 257))),
    Row("sum_all", lambda: param(0, 1 << 20).reduce(Ops.ADD, 1)),
    Row("sum_all_odd", lambda: param(0, 100_003).reduce(Ops.ADD, 1)),
    Row("argmax_rows", lambda: param(0, 70, 8192).argmax(1)),
    Row("softmax_f32", lambda: softmax(param(0, 333, 1000))),
    Row("softmax_bf16", lambda: softmax(param(0, 64, 2048, dtype=_BF16))),
    Row("softmax_cluster", lambda: softmax(param(0, 24, 131072))),
    Row("layernorm", lambda: layernorm(640, 1024)),
    Row("cumsum", lambda: param(0, 64, 4096).scan(Ops.ADD)),
    Row("cumsum_odd", lambda: param(0, 33, 1003).scan(Ops.ADD)),
)
_PRODUCTS = (
    Row("product_right", lambda: product(64, 64, 64), _gpu(local=_SQUARE)),
    Row("product_wrong", lambda: product(64, 64, 64), _gpu(local=_SQUARE, lanes=(0, 1))),
    Row("product_2x2", lambda: product(128, 128, 64), _gpu(local=_SQUARE, upcast={0: 2, 1: 2})),
    Row("product_odd", lambda: product(100, 140, 33)),
    Row("product_shared", lambda: smem_gemm_ir(128, 16)),
    _planned(
        "product_fma",
        lambda: product(256, 256, 256),
        Plan(FMA, 64, 64, 16, 2, 2, depth=3, copy=CP_ASYNC),
    ),
    _planned(
        "product_mma",
        lambda: _wide_product(256, 256, 256, _BF16),
        Plan("mma.m16n8k16.bf16", 64, 64, 32, 2, 2, depth=3, copy=CP_ASYNC),
    ),
    _planned(
        "product_wgmma",
        lambda: _wide_product(512, 512, 512, _BF16),
        Plan("wgmma.m64n64k16.bf16", 128, 64, 64, 2, 1, depth=4, copy=BULK),
    ),
)
_OTHERS = (
    Row("tile_of_32", lambda: shared_tile(32)),
    Row("tile_of_33", lambda: shared_tile(33)),
    Row("rows_gathered", _table, None, _indices(1000, 4096, 128_000)),
    Row("elements_gathered", _scattered_elements, None, _indices(1 << 16, 1 << 14, 1 << 16)),
)
ROWS: tuple[Row, ...] = (*_ELEMENTWISE, *_VIEWS, *_REDUCTIONS, *_PRODUCTS, *_OTHERS)
BY_NAME = {row.name: row for row in ROWS}

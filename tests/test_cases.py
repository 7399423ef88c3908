"""Faults that users of other kernel compilers met: the smallest kernel of each, its right value.

Every row runs on the oracle, natively, emulated and, where there is one, on a GPU.  Faults of the
simplifier alone stand in `tests/symbolic/test_known_faults.py`, those of offsets beyond 32 bits in
`tests/render/test_wide_offsets.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.commands import environment
from tests.helpers import assert_same, random_array
from tests.kernels import along, numerator, outputs, param, softmax
from uopc.config import Config
from uopc.dtype import DATA, AddrSpace, DType, dtypes
from uopc.errors import TargetError, UsageError
from uopc.opts import Opts
from uopc.pipeline import emulate, gpu_lower, gpu_opt_choice, render_cuda
from uopc.runtime import cpu, cuda
from uopc.runtime.arrays import address
from uopc.runtime.program import Program
from uopc.target import target
from uopc.uop.node import UOp, buffer, prod, range_, sink, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops, ParamArg
from uopc.uop.oracle import evaluate

WAYS = ["oracle", "cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)]
i8, i16, i32, i64 = dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64
u8, u64, f16, f32 = dtypes.u8, dtypes.u64, dtypes.f16, dtypes.f32
INF, NAN = np.inf, np.nan
TOP, BOTTOM = 2**31 - 1, -(2**31)


def run(way: str, bodies: Sequence[UOp], *inputs: Array, opts: Opts | None = None) -> list[Array]:
    """The values of the bodies, by one way of computing them."""
    if way == "oracle":
        with np.errstate(all="ignore"):
            return evaluate(list(bodies), dict(enumerate(inputs)))
    got = uopc.compile(list(bodies), opts, way)(*inputs)
    return got if isinstance(got, list) else [got]


# ---- elementwise: every row is one output of one kernel
@dataclass(frozen=True)
class Row:
    """body(parameters of these inputs) gives want."""

    body: Callable[..., UOp]
    inputs: tuple[Array, ...]
    want: Array


def row(body: Callable[..., UOp], dtype: DType, *inputs: list[Any], want: Array) -> Row:
    return Row(body, tuple(np.array(x, dtype.numpy) for x in inputs), want)


def ints(*values: int, dtype: DType = i32) -> Array:
    return np.array(values, dtype.numpy)


def floats(*values: float, dtype: DType = f32) -> Array:
    return np.array(values, dtype.numpy)


def bools(*values: bool) -> Array:
    return np.array(values)


ROWS: dict[str, Row] = {
    # integers
    "// floors": row(lambda x, y: x // y, i32, [-7, 7, -1], [2, -2, 2], want=ints(-4, -4, -1)),
    "% has the divisor's sign": row(
        lambda x, y: x % y, i32, [-6, 6, -7], [5, -5, 3], want=ints(4, -4, 2)
    ),
    "// by zero": row(lambda x, y: x // y, i32, [5, -5, 0], [0, 0, 0], want=ints(0, 0, 0)),
    "% by zero": row(lambda x, y: x % y, i32, [5, -5, 0], [0, 0, 0], want=ints(0, 0, 0)),
    "// by zero, unsigned": row(lambda x, y: x // y, u8, [5], [0], want=ints(0, dtype=u8)),
    "% by zero, 64 bits": row(lambda x, y: x % y, i64, [5], [0], want=ints(0, dtype=i64)),
    "the lowest // -1": row(lambda x, y: x // y, i32, [BOTTOM], [-1], want=ints(BOTTOM)),
    "the lowest % -1": row(lambda x, y: x % y, i32, [BOTTOM], [-1], want=ints(0)),
    "an i8 // -1": row(lambda x, y: x // y, i8, [-128], [-1], want=ints(-128, dtype=i8)),
    "// by a negative constant": row(lambda x: x // -2, i32, [7, -7, 1], want=ints(-4, 3, -1)),
    "a narrow sum wraps before it widens": row(
        lambda x, y: (x + y).cast(i16), u8, [128, 200], [128, 100], want=ints(0, 44, dtype=i16)
    ),
    "a negated u8 is large": row(lambda x: -x < 4, u8, [6, 253], want=bools(False, True)),
    "a sum that overflows": row(
        lambda x, y: (x + y) * 3 - x, i32, [TOP, 5], [TOP, TOP], want=ints(2147483643, -2147483641)
    ),
    "the same sum in other words": row(
        lambda x, y: x * 2 + y * 3, i32, [TOP, 5], [TOP, TOP], want=ints(2147483643, -2147483641)
    ),
    "a product of i64": row(lambda x: x * 65536, i64, [65536], want=ints(2**32, dtype=i64)),
    "a product of i32": row(lambda x: x * 65536, i32, [65536], want=ints(0)),
    "a product of u16 in an int": row(
        lambda x: x * x, dtypes.u16, [65535], want=ints(1, dtype=dtypes.u16)
    ),
    # casts
    "floats to u8": row(
        lambda x: x.cast(u8),
        f32,
        [-1.5, 300.0, NAN, 254.9, INF, -INF],
        want=ints(0, 255, 0, 254, 255, 0, dtype=u8),
    ),
    "floats to i8": row(
        lambda x: x.cast(i8),
        f32,
        [-1.5, 300.0, NAN, 126.9, INF, -INF],
        want=ints(-1, 127, 0, 126, 127, -128, dtype=i8),
    ),
    "floats to i32 and u64": row(
        lambda x: x.cast(i32).cast(i64) + x.cast(u64).cast(i64),
        f32,
        [3e9, -1.0, 2.0],
        want=ints(TOP + 3_000_000_000, -1, 4, dtype=i64),
    ),
    "through f16 and back": row(
        lambda x: x.cast(f16).cast(f32),
        f32,
        [65536.0, 65519.0, 1.0009766, -1e9],
        want=floats(INF, 65504.0, 1.0009766, -INF),
    ),
    # constants
    "the largest u64": row(
        lambda x: x ^ (2**64 - 1), u64, [0, 1], want=ints(2**64 - 1, 2**64 - 2, dtype=u64)
    ),
    "the lowest i64": row(
        lambda x: x + -(2**63), i64, [0, 2**62], want=ints(-(2**63), -(2**62), dtype=i64)
    ),
    "the lowest i32": row(lambda x: x.minimum(BOTTOM), i32, [0], want=ints(BOTTOM)),
    "times -0.0": row(lambda x: x * -0.0, f32, [1.0, -1.0, 0.0], want=floats(-0.0, 0.0, -0.0)),
    "-0.0 alone": Row(lambda: UOp.const(-0.0, f32, (2,)), (), floats(-0.0, -0.0)),
    "0.0 beside it": Row(lambda: UOp.const(0.0, f32, (2,)), (), floats(0.0, 0.0)),
    "one, as an i32": Row(lambda: UOp.const(1, i32, (2,)), (), ints(1, 1)),
    "one, as an f32": Row(lambda: UOp.const(1.0, f32, (2,)), (), floats(1, 1)),
    "one, as a bool": Row(lambda: UOp.const(True, dtypes.bool, (2,)), (), bools(True, True)),
    "infinity and nan": Row(
        lambda: UOp.const(INF, f16, (2,)) - UOp.const(INF, f16, (2,)),
        (),
        floats(NAN, NAN, dtype=f16),
    ),
    # NaN, infinity, signed zero
    "maximum": row(
        lambda x, y: x.maximum(y),
        f32,
        [1.0, NAN, 0.0, -0.0, -INF],
        [NAN, 1.0, -0.0, 0.0, -INF],
        want=floats(NAN, NAN, 0.0, 0.0, -INF),
    ),
    "minimum": row(
        lambda x, y: x.minimum(y),
        f32,
        [1.0, NAN, 0.0, -0.0, INF],
        [NAN, 1.0, -0.0, 0.0, INF],
        want=floats(NAN, NAN, -0.0, -0.0, INF),
    ),
    "times 0.0": row(lambda x: x * 0.0, f32, [INF, NAN, -3.0], want=floats(NAN, NAN, -0.0)),
    "x - x": row(lambda x: x - x, f32, [INF, NAN, -3.0], want=floats(NAN, NAN, 0.0)),
    "x / x": row(lambda x: x / x, f32, [INF, 0.0, -3.0], want=floats(NAN, NAN, 1.0)),
    "0.0 / 0.0": row(lambda x: x + UOp.const(0.0) / 0.0, f32, [0.0, 1.0], want=floats(NAN, NAN)),
    "division, then trunc": row(
        lambda x, y: (x / y).trunc(), f32, [14.999999, 148.0], [3.0, 37.0], want=floats(4, 4)
    ),
    "softmax's exp of -inf less -inf": row(lambda x: (x - x).exp(), f32, [-INF], want=floats(NAN)),
}


def _together() -> tuple[list[UOp], list[Array]]:
    """All rows as the bodies of one kernel."""
    bodies: list[UOp] = []
    inputs: list[Array] = []
    for r in ROWS.values():
        first = len(inputs)
        inputs += r.inputs
        made = (buffer(first + n, _dtype(x), x.shape) for n, x in enumerate(r.inputs))
        bodies.append(r.body(*made))
    return bodies, inputs


def _dtype(x: Array) -> DType:
    return next(d for d in DATA if d.numpy == x.dtype)


@cache
def results(way: str) -> dict[str, Array]:
    bodies, inputs = _together()
    return dict(zip(ROWS, run(way, bodies, *inputs), strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
def test_elementwise(way: str, name: str) -> None:
    assert_same(results(way)[name], ROWS[name].want)


# ---- reductions
def logsumexp(x: UOp) -> UOp:
    most = x.reduce(Ops.MAX, 1)
    return (x - along(most, x)).exp().reduce(Ops.ADD, 1).log() + most


def mean(x: UOp) -> UOp:
    return x.reduce(Ops.ADD, 1) / float(x.shape[-1])


def variance(x: UOp) -> UOp:
    """Two passes: the mean first."""
    d = x - along(mean(x), x)
    return (d * d).reduce(Ops.ADD, 1) / float(x.shape[-1])


def one_row(*values: float) -> Array:
    return np.array([values], np.float32)


REDUCTIONS: dict[str, Row] = {
    "max of a NaN": Row(lambda x: x.reduce(Ops.MAX, 1), (one_row(1, NAN),), floats(NAN)),
    "min of a NaN": Row(lambda x: x.reduce(Ops.MIN, 1), (one_row(NAN, 1, 2),), floats(NAN)),
    "argmax of a NaN": Row(lambda x: x.argmax(1), (one_row(NAN, 6, 8),), ints(0)),
    "argmax of a later NaN": Row(lambda x: x.argmax(1), (one_row(9, 6, NAN, NAN),), ints(2)),
    "argmin of a NaN": Row(lambda x: x.argmin(1), (one_row(1, NAN, 0),), ints(1)),
    "max of NaN alone": Row(lambda x: x.reduce(Ops.MAX, 1), (one_row(NAN, NAN),), floats(NAN)),
    "argmax of NaN alone": Row(lambda x: x.argmax(1), (one_row(NAN, NAN),), ints(0)),
    "min of infinities": Row(lambda x: x.reduce(Ops.MIN, 1), (one_row(INF, INF),), floats(INF)),
    "argmin of infinities": Row(lambda x: x.argmin(1), (one_row(INF, INF),), ints(0)),
    "argmax of -infinities": Row(lambda x: x.argmax(1), (one_row(*[-INF] * 70),), ints(0)),
    "argmax takes the first": Row(lambda x: x.argmax(1), (one_row(-0.0, 0.0, 0.0),), ints(0)),
    "max of zeros": Row(lambda x: x.reduce(Ops.MAX, 1), (one_row(-0.0, 0.0),), floats(0.0)),
    "sum of -0.0": Row(lambda x: x.reduce(Ops.ADD, 1), (one_row(*[-0.0] * 64),), floats(0.0)),
    "the lowest i32 is the least": Row(
        lambda x: x.argmin(1), (ints(3, BOTTOM, BOTTOM + 1).reshape(1, 3),), ints(1)
    ),
    "max of the lowest i64": Row(
        lambda x: x.reduce(Ops.MAX, 1), (np.full((1, 40), -(2**63)),), ints(-(2**63), dtype=i64)
    ),
    "a sum of u8 stays u8": Row(
        lambda x: x.reduce(Ops.ADD, 1) * 200 + 100,
        (np.full((1, 3), 100, np.uint8),),
        ints(196, dtype=u8),
    ),
    "20,000 ones of f16": Row(
        lambda x: x.reduce(Ops.ADD, 1),
        (np.ones((1, 20_000), np.float16),),
        floats(20_000, dtype=f16),
    ),
    "70,000 ones of bf16": Row(
        lambda x: x.reduce(Ops.ADD, 1),
        (np.ones((1, 70_000), ml_dtypes.bfloat16),),
        floats(70_144, dtype=dtypes.bf16),
    ),
    "rows of f16": Row(
        lambda x: x.reduce(Ops.ADD, 1),
        (np.ones((2, 6000), np.float16),),
        floats(6000, 6000, dtype=f16),
    ),
    "columns of f16": Row(
        lambda x: x.permute((1, 0)).reduce(Ops.ADD, 1),
        (np.ones((6000, 2), np.float16),),
        floats(6000, 6000, dtype=f16),
    ),
    "log of a sum beyond f16": Row(
        lambda x: logsumexp(x.cast(f32)).cast(f16),
        (np.zeros((1, 65_536), np.float16),),
        floats(11.09, dtype=f16),
    ),
    "softmax of infinity": Row(softmax, (one_row(1, INF),), one_row(NAN, NAN)),
    "softmax of a row of -infinity": Row(softmax, (one_row(-INF, -INF),), one_row(NAN, NAN)),
    "sum of an infinity": Row(
        lambda x: x.reduce(Ops.ADD, 1), (one_row(INF, 1, -INF),), floats(NAN)
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(way: str, name: str) -> None:
    r = REDUCTIONS[name]
    made = (buffer(n, _dtype(x), x.shape) for n, x in enumerate(r.inputs))
    (got,) = run(way, [r.body(*made)], *r.inputs)
    assert_same(got, r.want)


@pytest.mark.parametrize("way", WAYS[1:])
def test_a_sum_goes_on_where_one_accumulator_would_stall(way: str) -> None:
    """1 added to 2^24 in f32 is lost: chains are short."""
    ones = param(0, 1).expand((1 << 25,))
    (got,) = run(way, [ones.reduce(Ops.ADD, 1)], np.ones(1, np.float32))
    assert got == 1 << 25


@pytest.mark.parametrize(
    "opts",
    [
        Opts(gpu=True),
        Opts(gpu=True, unroll=8),
        Opts(gpu=True, local={1: 16}, vector={1: 4}),
        Opts(gpu=True, local={1: 24}),
        Opts(gpu=True, tile={1: 5}, upcast={1: 3}),
    ],
    ids=str,
)
def test_a_sum_of_negative_zeros_is_the_same_in_every_tree(opts: Opts) -> None:
    x = np.full((2, 64), -0.0, np.float32)
    (got,) = run("emulated", [param(0, 2, 64).reduce(Ops.ADD, 1)], x, opts=opts)
    assert_same(got, floats(0.0, 0.0))


@pytest.mark.parametrize("way", WAYS)
def test_the_variance_of_numbers_far_from_zero(way: str) -> None:
    """E[x^2] - E[x]^2 would be lost in rounding: the squares have an ulp of 4, the variance is 1/4.

    The sums are exact in any order, so the two passes give it exactly.
    """
    x = 8192 + np.arange(2048, dtype=np.float32).reshape(2, 1024) % 2
    (got,) = run(way, [variance(param(0, 2, 1024))], x)
    assert_same(got, floats(0.25, 0.25))


# ---- shapes
def test_extremes_of_nothing() -> None:
    x = param(0, 2, 0)
    with pytest.raises(
        UsageError, match=r"REDUCE at test_cases\.py:\d+: MAX of no elements has no v"
    ):
        x.reduce(Ops.MAX, 1)
    with pytest.raises(UsageError, match=r"ARGMIN of no elements has no value"):
        x.argmin(1)
    for way in ("oracle", "cpu", "emulated"):  # (2, 0) over axis 0
        (got,) = run(way, [x.permute((1, 0)).reduce(Ops.MAX, 1)], np.zeros((2, 0), np.float32))
        assert_same(got, np.zeros(0, np.float32))


@pytest.mark.parametrize("way", WAYS)
def test_padding_and_moments_of_nothing(way: str) -> None:
    nothing = np.zeros((0, 3), np.float32)
    (got,) = run(way, [param(0, 0, 3).pad(((1, 1), (0, 2)), 2.5)], nothing)
    assert_same(got, np.full((2, 5), 2.5, np.float32))
    x = param(0, 3, 0)
    sums = x.reduce(Ops.ADD, 1)
    (got,) = run(way, [sums / UOp.const(0.0)], np.zeros((3, 0), np.float32))
    assert_same(got, np.full(3, NAN, np.float32))


@pytest.mark.parametrize("way", WAYS)
def test_each_output_keeps_its_own_shape(way: str, rng: np.random.Generator) -> None:
    x, y = random_array(rng, f32, (2, 2, 2)), random_array(rng, f32, (2, 2))
    wide = param(1, 2, 2).reshape((1, 2, 2)).expand((2, 2, 2))
    first, second = run(way, [param(0, 2, 2, 2) + wide, param(1, 2, 2) * 2.0], x, y)
    assert_same(first, x + y)
    assert_same(second, y * np.float32(2))


# ---- views
def turned(x: UOp) -> UOp:
    return x.permute((1, 0))


VIEWS: dict[str, tuple[Callable[[UOp], UOp], Callable[[Array], Array]]] = {
    "reshape across a padded end": (
        lambda x: x.pad(((0, 0), (0, 2))).reshape((18,)),
        lambda a: np.pad(a, ((0, 0), (0, 2))).reshape(18),
    ),
    "reshape across padding on both sides": (
        lambda x: x.pad(((0, 0), (1, 1)), 5.0).reshape((2, 9)),
        lambda a: np.pad(a, ((0, 0), (1, 1)), constant_values=5).reshape(2, 9),
    ),
    "reshape across padded rows": (
        lambda x: x.pad(((1, 0), (0, 0)), 5.0).reshape((8, 2)),
        lambda a: np.pad(a, ((1, 0), (0, 0)), constant_values=5).reshape(8, 2),
    ),
    "a padded axis of one element": (
        lambda x: x.reshape((3, 1, 4)).pad(((0, 0), (1, 1), (0, 0)), 5.0).reshape((9, 4)),
        lambda a: np.pad(a.reshape(3, 1, 4), ((0, 0), (1, 1), (0, 0)), constant_values=5).reshape(
            9, 4
        ),
    ),
    "pad, flip, shrink": (
        lambda x: x.pad(((1, 1), (2, 0)), -1.0).flip((0, 1)).shrink(((1, 4), (0, 5))),
        lambda a: np.pad(a, ((1, 1), (2, 0)), constant_values=-1)[::-1, ::-1][1:4, 0:5].copy(),
    ),
    "transposed, repeated": (
        lambda x: turned(x).reshape((4, 1, 3)).expand((4, 2, 3)).reshape((8, 3)),
        lambda a: np.repeat(a.T, 2, axis=0),
    ),
    "a merge that is none": (
        lambda x: turned(x).reshape((12,)).shrink(((2, 11),)),
        lambda a: a.T.reshape(12)[2:11].copy(),
    ),
}


@cache
def views(way: str) -> dict[str, Array]:
    a = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    return dict(
        zip(VIEWS, run(way, [v[0](param(0, 3, 4)) for v in VIEWS.values()], a), strict=True)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VIEWS)
def test_view(way: str, name: str) -> None:
    a = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    assert_same(views(way)[name], np.ascontiguousarray(VIEWS[name][1](a)))


def test_conditional_loads_of_neighbours(tmp_path: Path) -> None:
    """gcc before 13.3 made permuted masked loads of these, and loaded the wrong elements."""
    text = """int pairs(void** args) {
      const float* restrict const p0 = args[0];
      float* restrict const p1 = args[1];
      for (int k0 = 0; k0 < 8; ++k0) {
        for (int k1 = 0; k1 < 2; ++k1) {
          const int at0 = k0 * 2 + k1;
          p1[at0] = k0 >= 2 ? p0[at0 - 4] : 5.0f;
        }
      }
      return 0;
    }"""
    x, out = np.arange(1, 13, dtype=np.float32), np.zeros(16, np.float32)
    for language in ("c", "emulated"):
        kernel = cpu.load(text, "pairs", language, Config(cache_dir=tmp_path))
        kernel([address(x), address(out)])
        assert_same(out, np.concatenate((np.full(4, 5, np.float32), x)))


def test_equal_views_are_one_kernel() -> None:
    x = param(0, 4, 3)
    ways = [
        x.reshape((12,)),
        x.reshape((4, 1, 3)).permute((1, 0, 2)).reshape((12,)),
        x.reshape((1, 12)).reshape((2, 6)).reshape((12,)),
        turned(turned(x)).reshape((12,)),
        x.flip((1,)).flip((1,)).reshape((12,)),
        x.pad(((0, 0), (1, 2))).shrink(((0, 4), (1, 4))).reshape((12,)),
    ]
    texts = {str(uopc.compile(v * 2.0, target="sm_80").steps[0].source) for v in ways}
    assert len(texts) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unroll", [1, 4])
def test_a_small_sum_over_transposed_operands(
    way: str, unroll: int, rng: np.random.Generator
) -> None:
    a, b = random_array(rng, f32, (4, 3)), random_array(rng, f32, (4, 5))
    x = turned(param(0, 4, 3)).reshape((3, 1, 4)).expand((3, 5, 4))
    y = turned(param(1, 4, 5)).reshape((1, 5, 4)).expand((3, 5, 4))
    opts = None if way == "oracle" else Opts(gpu=way != "cpu", unroll=unroll)
    (got,) = run(way, [(x * y).reduce(Ops.ADD, 1)], a, b, opts=opts)
    assert_same(got, a.T @ b)


@pytest.mark.parametrize("way", WAYS)
def test_moments_and_argmax_of_strided_rows(way: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((33, 7)).astype(np.float32)
    x = turned(param(0, 33, 7))
    t = a.T.astype(np.float64)
    bodies = [mean(x), variance(x), logsumexp(x), x.argmax(1)]
    means, variances, logs, places = run(way, bodies, a)
    assert np.allclose(means, t.mean(1), rtol=0, atol=1e-6)
    assert np.allclose(variances, t.var(1), rtol=1e-5)
    assert np.allclose(logs, np.log(np.exp(t).sum(1)), rtol=1e-6)
    assert_same(places, t.argmax(1).astype(np.int32))


# ---- memory around arrays
EDGE = 64
EDGES: dict[str, tuple[UOp, Opts | None]] = {
    "elementwise": (param(0, 97) * 2.0 + 1.0, None),
    "vectors": (param(0, 97) * 2.0, Opts(gpu=True, local={0: 8}, vector={0: 4}, upcast={0: 3})),
    "rows": (param(0, 5, 101).reduce(Ops.ADD, 1), None),
    "columns": (turned(param(0, 37, 11)).reduce(Ops.MAX, 1), Opts(gpu=True, local={0: 4, 1: 16})),
    "softmax": (
        numerator(param(0, 3, 77)),
        Opts(gpu=True, local={0: 2, 1: 32}, vector={1: 2}, keep="shared"),
    ),
    "padded": (param(0, 9, 9).pad(((1, 2), (3, 0))), Opts(gpu=True, local={0: 8, 1: 8})),
    "argmin": (param(0, 300).argmin(1), Opts(gpu=True, local={0: 64}, vector={0: 4})),
}


@pytest.mark.parametrize("way", ["cpu", "emulated"])
@pytest.mark.parametrize("name", EDGES)
def test_sizes_that_do_not_divide_touch_nothing_else(
    way: str, name: str, rng: np.random.Generator
) -> None:
    """NaN beside the input would show in the result; nothing beside the output changes."""
    body, opts = EDGES[name]
    (memory,) = (u for u in toposort(body) if u.op is Ops.BUFFER)
    n, m = prod(memory.shape), prod(body.shape)
    around = np.full(n + 2 * EDGE, NAN, np.float32)
    around[EDGE:-EDGE] = random_array(rng, f32, (n,))
    out = np.full(m + 2 * EDGE, 77).astype(body.dtype.numpy)
    kernel = uopc.compile(body, opts if way == "emulated" else None, way)
    kernel(around[EDGE:-EDGE], out=out[EDGE:-EDGE])
    want = evaluate(body, {0: around[EDGE:-EDGE].reshape(memory.shape)})
    assert np.allclose(out[EDGE:-EDGE].reshape(want.shape), want, rtol=1e-6, atol=0)
    assert (out[:EDGE] == 77).all() and (out[-EDGE:] == 77).all()


# ---- barriers
BARRIERS: dict[str, tuple[UOp, Opts]] = {
    "threads that are no warps": (softmax(param(0, 3, 40)), Opts(gpu=True, local={1: 48})),
    "rows beside each other": (softmax(param(0, 5, 70)), Opts(gpu=True, local={0: 3, 1: 24})),
    "threads that are mostly idle": (softmax(param(0, 1, 384)), Opts(gpu=True, local={0: 1024})),
    "a loop around them": (
        softmax(param(0, 7, 100)),
        Opts(gpu=True, loop={0: 4}, local={1: 64}),
    ),
    "an argmax": (param(0, 3, 700).argmax(1), Opts(gpu=True, local={1: 96})),
}


@pytest.mark.parametrize("name", BARRIERS)
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled(3)"])
def test_every_thread_reaches_every_barrier(
    name: str, order: str, rng: np.random.Generator
) -> None:
    """Only stores are guarded: no `if` and no early return around a barrier or a shuffle."""
    body, opts = BARRIERS[name]
    root = gpu_lower([body], outputs([body]), opts)
    text = render_cuda(root, "kern")
    assert text.count("__syncthreads();") >= 1 and "return" not in text.split("kern(")[1]
    assert not re.search(r"\bif \([^\n]*\{", text), "guards stand before single stores"
    assert not re.search(r"if \(.*(__syncthreads|__shfl)", text)
    x = rng.standard_normal(next(u for u in toposort(body) if u.op is Ops.BUFFER).shape)
    a, out = x.astype(np.float32), np.zeros(body.shape, body.dtype.numpy)
    Program(emulate(root, "kern", order=order))(a, out)
    assert np.allclose(out, evaluate(body, {0: a}), rtol=1e-5, atol=0)


# ---- limits
def test_a_row_of_more_than_48_kb_asks_for_shared_memory() -> None:
    """Static up to 48 KB, then asked for by the launch; a target that has less says so."""
    opts = Opts(gpu=True, local={1: 256}, vector={1: 4}, keep="shared")
    found = {}
    for kib in (32, 64, 96):
        body = softmax(param(0, 2, kib << 8))
        found[kib] = uopc.compile(body, opts, "sm_80").source
        row_bytes = kib << 10
        assert row_bytes < found[kib].shared_bytes <= row_bytes + 256
    assert [found[k].dynamic_shared_bytes > 0 for k in found] == [False, True, True]
    assert "extern __shared__" in found[64] and "extern __shared__" not in found[32]
    with pytest.raises(TargetError, match=r"wants 98\d+ bytes of shared memory a block, sm_75 has"):
        uopc.compile(softmax(param(0, 2, 96 << 8)), opts, "sm_75")
    fits = uopc.compile(softmax(param(0, 2, 96 << 8)), target="sm_75")
    assert fits.source.shared_bytes <= target("sm_75").shared_optin_bytes


def _row_sizes() -> Iterator[int]:
    """Around every limit that a choice has, and between them."""
    for n in (32, 128, 1024, 4096, 8192, 12_288, 16_384, 32_768, 40_960, 49_152, 65_536, 98_304):
        yield from (n - 1, n, n + 1, n + 4)
    yield from range(33_000, 42_000, 1000)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_rows_of_every_size_have_a_kernel(arch: str) -> None:
    on = target(arch)
    for n in _row_sizes():
        body = softmax(param(0, 3, n))
        root = gpu_lower(body, outputs([body])[0], gpu_opt_choice(body, target=arch))
        text = render_cuda(root, "rows", arch)
        assert text.shared_bytes <= on.shared_optin_bytes, n
        assert text.launch.threads <= 1024 and text.launch.threads % 32 == 0, n


@pytest.mark.parametrize("n", [31, 33, 1025, 4099, 33_024, 40_448, 50_001])
def test_rows_around_the_limits_are_right(n: int, rng: np.random.Generator) -> None:
    a = rng.standard_normal((2, n)).astype(np.float32)
    body = softmax(param(0, 2, n))
    opts = gpu_opt_choice(body, target="sm_90a")
    root = gpu_lower(body, outputs([body])[0], opts)
    out = np.zeros((2, n), np.float32)
    Program(emulate(root, "rows", target="sm_90a"))(a, out)
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    assert np.allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5, atol=0)


def test_a_graph_thousands_of_nodes_deep() -> None:
    x = param(0, 4)
    for n in range(3000):
        x = (x + 1.0) * 0.5 if n % 2 else x.maximum(-1.0)
    native = uopc.compile(x, target="cpu").steps[0].source
    text = render_cuda(gpu_lower(x, buffer(1, f32, (4,)), Opts(gpu=True)), "deep")
    assert native.count("+ 1.0f") == text.count("+ 1.0f") == 1500


def test_a_graph_hundreds_of_nodes_deep_runs() -> None:
    x = param(0, 4)
    for _ in range(400):
        x = (x + 1.0) * 0.5
    for way in ("cpu", "emulated"):
        (got,) = run(way, [x], np.array([0, 1, -5, 8], np.float32))
        assert_same(got, np.ones(4, np.float32))


# ---- text
@pytest.mark.parametrize(
    "word",
    [
        "p",
        "gidx",
        "lidx",
        "at",
        "acc",
        "max_f3",
        "float",
        "kern",
        "threadIdx",
        "two words",
        "2nd",
        "ü",
    ],
)
def test_a_memory_may_have_any_name(word: str) -> None:
    """Words that the text uses for something else, C's own, and what is no word."""
    tile = UOp(Ops.ALLOC, (), ParamArg(2, f32, (32,), AddrSpace.SHARED, word))
    block, lane = range_(2, 0, AxisType.GLOBAL), range_(32, 1, AxisType.LOCAL)
    at = block * 32 + lane
    filled = tile.index(lane).store(param(0, 64).index(at).load().maximum(2.0)).barrier()
    other = tile.after(filled).index(lane * -1 + 31).load()
    root = sink(param(1, 64).index(at).store(other.maximum(tile.after(filled).index(lane).load())))
    out = np.zeros(64, np.float32)
    Program(emulate(root, "kern"), "kern")(np.arange(64, dtype=np.float32), out)
    assert_same(out[:32], np.maximum(np.arange(31, -1, -1), np.arange(32)).astype(np.float32))
    lines = [line for line in render_cuda(root, "kern").splitlines() if "__shared__" in line]
    (name,) = re.findall(r"float (\w+)\[32\];", lines[0])
    assert name.isascii() and name not in ("p2", "gidx2", "at2", "max_f32")


def test_two_memories_of_one_name() -> None:
    """A SHARED and a REG memory, and two of one kind: each has a name of its own."""
    lane = range_(32, 0, AxisType.LOCAL)
    shared = UOp(Ops.ALLOC, (), ParamArg(0, f32, (32,), AddrSpace.SHARED, "x"))
    kept = UOp(Ops.ALLOC, (), ParamArg(0, i32, (1,), AddrSpace.REG, "x"))
    held = kept.index(0).store(lane.cast(i32))
    filled = shared.index(lane).store(1.0).barrier(held)
    value = shared.after(filled).index(lane).load() + kept.after(held).index(0).load().cast(f32)
    root = sink(param(0, 32).index(lane).store(value))
    out = np.zeros(32, np.float32)
    Program(emulate(root, "kern"))(out)
    assert_same(out, np.arange(1, 33, dtype=np.float32))


@pytest.mark.parametrize(
    "name", ["max", "round", "norm", "exp2f", "unix", "float", "_Bool", "2", ""]
)
def test_names_that_no_compiler_would_take(name: str) -> None:
    with pytest.raises(UsageError, match=rf"a kernel cannot be called {name!r}: "):
        uopc.compile(param(0, 4) * 2.0, target="cpu", name=name)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_cuda_text_needs_no_header(arch: str) -> None:
    """Every dtype, and NVRTC takes the text with nothing beside it."""
    bodies = []
    for slot, d in enumerate(DATA):
        x = param(slot, 8, dtype=d)
        bodies += [x.cast(f32).cast(d), x.flip((0,)) if d.storage else x.maximum(x.flip((0,)))]
    kernel = uopc.compile(bodies, Opts(gpu=True, local={0: 8}), arch)
    assert "#include" not in kernel.source and kernel.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("where", ["cpu", "sm_80"])
def test_one_kernel_has_one_text(where: str) -> None:
    """Built twice, its nodes made in another order: the cache would miss otherwise."""

    def text(first: int) -> str:
        made = {s: param(s, 33, 70) for s in (first, 1 - first)}
        x, y = made[0], made[1]
        total = (x * y).reduce(Ops.ADD, 1) if first else (y * x).reduce(Ops.ADD, 1)
        return str(uopc.compile([total, softmax(x + y)], target=where).steps[0].source)

    assert text(0) == text(1)


def test_no_library_noise_where_cuda_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda, "why_unusable", lambda: "no NVIDIA driver found.")
    with environment():
        kernel = uopc.compile(param(0, 4) * 2.0)
        assert kernel.device == "emulated"
        kernel(np.ones(4, np.float32))
    assert capfd.readouterr().err == ""

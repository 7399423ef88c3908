"""Scans: each stage, three ways, any Opts, parts over the grid, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import assert_same
from tests.kernels import OUT, indexed, param
from tests.random_kernels import Case
from tests.three_ways import agree, check_device, random_opts, run_kernel
from uopc.dtype import DType, dtypes
from uopc.errors import SpecError, TargetError, UsageError
from uopc.opts import Opts
from uopc.pipeline import Trace, compile, lower
from uopc.uop.node import UOp, inherit, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Combine, Ops, ScanArg
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import parse, show

SHAPES = ((3, 1), (2, 31), (5, 32), (2, 33), (3, 1000), (2, 4097), (1, 8191))
GPU = (
    Opts(gpu=True, local={1: 32}, vector={1: 4}, upcast={1: 8}, lanes=(1, 0)),
    Opts(gpu=True, local={1: 64}, vector={1: 4}, upcast={1: 2}, lanes=(1, 0)),
    Opts(gpu=True, local={1: 128}, lanes=(1, 0)),
    Opts(gpu=True, local={1: 16, 0: 4}, vector={1: 2}, upcast={1: 3, 0: 2}, lanes=(1, 0)),
    Opts(gpu=True, local={1: 96, 0: 2}, vector={1: 2}, upcast={1: 3}, lanes=(1, 0)),
    Opts(gpu=True, local={1: 16, 0: 4}, tile={1: 3}, vector={1: 2}, upcast={1: 3}, lanes=(0, 1)),
    Opts(gpu=True, local={0: 4}, tile={1: 3}, vector={1: 2}, upcast={1: 3, 0: 2}),
    Opts(gpu=True),
)
CPU = (
    Opts(),
    Opts(tile={1: 32}),
    Opts(upcast={1: 3}, vector={1: 4}),
    Opts(vector={0: 4}, tile={1: 7}),
    Opts(thread=0),
)


def quarters(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    """Numbers whose sums are exact, with a few that are none."""
    if not dtype.is_float:
        return rng.integers(0 if dtype.min == 0 else -9, 9, n).astype(dtype.numpy)
    x = rng.integers(-8, 9, n) / 4
    x[rng.integers(0, n, n // 7)] = -0.0
    return x.astype(dtype.numpy)


def scan(x: UOp, op: Ops = Ops.ADD, axis: int = -1, **how: bool) -> UOp:
    order = [a for a in range(len(x.shape)) if a != axis % len(x.shape)] + [axis % len(x.shape)]
    back = tuple(order.index(a) for a in range(len(order)))
    return x.permute(order).scan(op, **how).permute(back)


def run_all(body: UOp, arrays: dict[int, Array], opts: Opts) -> None:
    """Each stage stores what the body is, bit for bit."""
    want = evaluate(body, arrays).reshape(-1)
    trace: Trace = []
    root = indexed(body)
    lower(root, opts, trace)
    loops = False
    for name, graph in [("index", root), *((p.name, p.graph) for p in trace)]:
        loops = loops or name == "effects"
        got = run(graph, arrays, Stage.LOOPS if loops else Stage.MAPPED)[OUT]
        assert_same(got, want)


# ---- each stage
@pytest.mark.parametrize("how", ({}, {"reverse": True}, {"exclusive": True}))
@pytest.mark.parametrize("opts", (*CPU, *GPU), ids=str)
def test_every_stage(opts: Opts, how: dict[str, bool], rng: np.random.Generator) -> None:
    x = param(0, 5, 500)
    arrays = {0: quarters(rng, dtypes.f32, 2500)}
    for op in (Ops.ADD, Ops.MAX):
        run_all(x.scan(op, **how), arrays, opts)


def test_what_lanes_exchange() -> None:
    """One exchange for all chunks of a step, five SHUFFLEs a chunk, each thread its own ranges."""
    opts = Opts(gpu=True, local={1: 256}, vector={1: 4}, upcast={1: 8}, lanes=(1, 0))
    trace: Trace = []
    lower(indexed(param(0, 4, 8192).scan(Ops.ADD)), opts, trace)
    graphs = {p.name: p.graph for p in trace}
    left = [u for u in toposort(graphs["scans"]) if u.op is Ops.SCAN]
    assert left and all(r.arg.kind is AxisType.UPCAST for u in left for r in u.src[2:])
    loops = toposort(graphs["effects"])
    assert sum(u.op is Ops.BARRIER for u in loops) == 1
    assert sum(u.op is Ops.SHUFFLE for u in loops) == 7  # in a loop over chunks
    assert sum(u.op is Ops.LOAD and u.src[0].src[0].op is Ops.BUFFER for u in loops) == 1


def test_a_loop_carries_one_accumulator() -> None:
    trace: Trace = []
    lower(indexed(param(0, 4, 1000).scan(Ops.ADD)), Opts(), trace)
    allocs = [u for u in toposort(trace[-1].graph) if u.op is Ops.ALLOC]
    assert [u.arg.shape for u in allocs] == [(1,)]


# ---- three ways
@pytest.mark.parametrize("target", ("cpu", "emulated"))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chosen(shape: tuple[int, ...], target: str, rng: np.random.Generator) -> None:
    x = param(0, *shape)
    a = rng.standard_normal(shape[0] * shape[1]).astype(np.float32)
    for axis in (0, 1):
        body = scan(x, axis=axis)
        kernel = compile(body, None, target, check=True if target == "emulated" else None)
        case = Case((body,), {0: a}, "sum")
        got = run_kernel(kernel, case)
        want = evaluate(body, case.arrays).astype(np.float64)
        n = shape[axis]
        size = np.cumsum(np.abs(a.astype(np.float64).reshape(shape)), axis)
        assert (np.abs(got[0] - want) <= 2 * (n + np.log2(n)) * 2.0**-24 * size + 1e-45).all()
        exact = Case((scan(x, Ops.MIN, axis, reverse=True),), {0: a}, "exact")
        check_device(exact, None, target)


@pytest.mark.parametrize("target", ("cpu", "emulated"))
@pytest.mark.parametrize(
    "dtype",
    (dtypes.i8, dtypes.i32, dtypes.u64, dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64),
    ids=str,
)
def test_dtypes(dtype: DType, target: str, rng: np.random.Generator) -> None:
    a = quarters(rng, dtype, 3 * 300)
    x = param(0, 3, 300, dtype=dtype)
    for op in (Ops.ADD, Ops.MAX, Ops.MIN):
        for axis in (0, 1):
            check_device(Case((scan(x, op, axis),), {0: a}, "exact"), None, target)
    signs = np.where(rng.integers(0, 2, 900) == 1, 1, dtype.min < 0 and -1).astype(dtype.numpy)
    check_device(Case((x.scan(Ops.MUL),), {0: signs}, "exact"), None, target)


@pytest.mark.parametrize("opts", (*CPU, *GPU), ids=str)
def test_what_is_no_number_stays_behind(opts: Opts) -> None:
    """NaN and infinities come to what follows them and to nothing before; sums start from +0.0."""
    a = np.ones((4, 300), np.float32)
    a[0, 100], a[1, 70], a[1, 200] = np.nan, np.inf, -np.inf
    a[2] = -0.0
    a[3, :250], a[3, 250] = -0.0, np.nan
    x = param(0, 4, 300)
    target = "emulated" if opts.gpu else "cpu"
    for op in (Ops.ADD, Ops.MAX):
        for reverse in (False, True):
            body = x.scan(op, reverse=reverse)
            check_device(Case((body,), {0: a.reshape(-1)}, "exact"), opts, target)
    got = compile(x.scan(Ops.ADD), opts, target)(a)
    assert not np.signbit(got[2]).any() and (got[0, :100] == np.arange(1, 101)).all()


def test_around_and_beside(rng: np.random.Generator) -> None:
    """Elementwise work before and after, and reductions of the same row, in one kernel."""
    x, y = param(0, 6, 700), param(1, 6, 700)
    arrays = {0: quarters(rng, dtypes.f32, 4200), 1: quarters(rng, dtypes.f32, 4200)}
    along = x * y + 1.0
    total = along.reduce(Ops.ADD, 1).reshape((6, 1)).expand((6, 700))
    sums = along.scan(Ops.ADD)
    bodies = (sums * 2.0 + y, sums - total, sums.scan(Ops.MAX), sums.reduce(Ops.MAX, 1))
    for body in bodies:
        for opts in (Opts(), None, *GPU[:3]):
            target = "emulated" if opts is None or opts.gpu else "cpu"
            check_device(Case((body,), arrays, "exact"), opts, target)
    check_device(Case(bodies, arrays, "exact"), None, "emulated")


BODIES: dict[str, Callable[[UOp], UOp]] = {
    "rows": lambda x: x.scan(Ops.ADD),
    "rows backwards": lambda x: x.scan(Ops.ADD, reverse=True),
    "columns": lambda x: scan(x, axis=0),
    "columns backwards": lambda x: scan(x, Ops.MAX, 0, reverse=True, exclusive=True),
    "an epilogue": lambda x: x.scan(Ops.ADD) * 2.0 + x,
    "twice": lambda x: x.scan(Ops.ADD).scan(Ops.MAX),
    "with its sum": lambda x: (
        x.scan(Ops.ADD) - x.reduce(Ops.ADD, 1).reshape((x.shape[0], 1)).expand(x.shape)
    ),
    "the largest sum": lambda x: x.scan(Ops.ADD).reduce(Ops.MAX, 1),
    "shifted": lambda x: x.scan(Ops.ADD).shrink(((0, x.shape[0]), (0, x.shape[1] - 1))),
    "read backwards": lambda x: x.scan(Ops.ADD).flip((1,)),
}


@pytest.mark.parametrize("name", BODIES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 30), m=st.integers(1, 9), n=st.integers(2, 150))
def test_any_opts(name: str, seed: int, m: int, n: int) -> None:
    body = BODIES[name](param(0, m, n))
    case = Case((body,), {0: quarters(np.random.default_rng(seed), dtypes.f32, m * n)}, "exact")
    rng = random.Random(seed)
    for target in ("cpu", "emulated"):
        agree(case, random_opts(rng, case.bodies, target == "emulated"), target)
        agree(case, None, target)


# ---- parts
@pytest.mark.parametrize("parts", (2, 3, 7))
@pytest.mark.parametrize("how", ({}, {"reverse": True}, {"exclusive": True}))
@pytest.mark.parametrize("axis", (0, 1))
def test_parts_over_the_grid(
    axis: int, how: dict[str, bool], parts: int, rng: np.random.Generator
) -> None:
    x = param(0, 40, 45)
    body = scan(x + 1.0, Ops.ADD, axis, **how) * 2.0
    opts = Opts(gpu=True, local={1: 16}, vector={1: 4}, blocks={axis: parts}, lanes=(1, 0))
    case = Case((body,), {0: quarters(rng, dtypes.f32, 1800)}, "exact")
    kernel = check_device(case, opts, "emulated")
    assert len(kernel.steps) == 3


def test_long_rows_are_chosen_in_parts(rng: np.random.Generator) -> None:
    x = param(0, 2, 70001)
    a = rng.standard_normal(140002).astype(np.float32)
    kernel = compile(x.scan(Ops.ADD), None, "emulated", check=True)
    assert len(kernel.steps) == 3
    got = kernel(a.reshape(2, 70001))
    np.testing.assert_allclose(got, np.cumsum(a.reshape(2, 70001), 1, np.float64), atol=2e-3)
    assert_same(kernel(a.reshape(2, 70001)), got)
    assert len(compile(scan(x), None, "cpu").steps) == 1


# ---- on GPUs
@pytest.mark.parametrize("target", ("sm_80", "sm_90"))
@pytest.mark.parametrize("shape", ((512, 8192), (999, 8191), (9, 1 << 20), (4096, 96)), ids=str)
def test_cuda_text_spills_nothing(shape: tuple[int, int], target: str) -> None:
    for dtype in (dtypes.f32, dtypes.bf16):
        for axis in (0, 1):
            kernel = compile(scan(param(0, *shape, dtype=dtype), axis=axis), None, target)
            for step in kernel.steps:
                assert not step.cubin.resources.spills, (shape, dtype, axis, step.opts)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", (*SHAPES, (3, 70001)), ids=str)
@pytest.mark.parametrize("dtype", (dtypes.f32, dtypes.bf16, dtypes.f64, dtypes.i32), ids=str)
def test_launched_and_emulated_give_the_same_bits(
    dtype: DType, shape: tuple[int, int], rng: np.random.Generator
) -> None:
    a = (rng.standard_normal(shape) * 8).astype(dtype.numpy)
    for axis in (0, 1):
        for how in ({}, {"reverse": True}):
            body = scan(param(0, *shape, dtype=dtype), Ops.ADD, axis, **how)
            launched = compile(body, None, "cuda")
            opts = launched.steps[0].opts if len(launched.steps) == 1 else None
            if opts is not None:
                assert_same(launched(a), compile(body, opts, "emulated")(a))
            assert_same(launched(a), launched(a))


# ---- what is refused
def test_what_no_kernel_does() -> None:
    x = param(0, 6, 8)
    both = scan(scan(x, axis=0), axis=1)
    ways = x.scan(Ops.ADD) + x.scan(Ops.ADD, reverse=True)
    for body, message in ((both, "along several axes"), (ways, "forwards and backwards")):
        with pytest.raises(TargetError, match=message):
            lower(indexed(body), Opts())
    inside = scan(x, axis=0).reduce(Ops.ADD, 1)
    with pytest.raises(TargetError, match="loops over another axis inside of each step"):
        lower(indexed(inside), Opts())
    with pytest.raises(TargetError, match="axis 1 is scanned: the blocks of one kernel cannot"):
        lower(indexed(x.scan(Ops.ADD)), Opts(gpu=True, cluster={1: 2}))
    with pytest.raises(UsageError, match="cannot be split over"):
        twice = x.scan(Ops.ADD).scan(Ops.ADD)
        compile(twice, Opts(gpu=True, blocks={1: 2}), "emulated")


def test_what_is_no_scan() -> None:
    x = param(0, 4)
    with pytest.raises(UsageError, match="is not scanned"):
        x.scan(Combine.XOR)
    with pytest.raises(UsageError, match="which has none"):
        x.reduce(Ops.ADD).scan(Ops.ADD)
    with pytest.raises(UsageError, match="cast to an integer first"):
        (x < 1.0).scan(Ops.ADD)
    root = indexed(x.scan(Ops.ADD))
    (found,) = (u for u in toposort(root) if u.op is Ops.SCAN)
    value, start, r = found.src
    with pytest.raises(SpecError, match="its start depends on"):
        bad = UOp(Ops.SCAN, (value, value, r), found.arg)
        check(root.substitute({found: inherit(bad, found)}), Stage.INDEXED)
    with pytest.raises(SpecError, match="names where it starts"):
        bad = UOp(Ops.SCAN, (value, start), found.arg)
        check(root.substitute({found: inherit(bad, found)}), Stage.INDEXED)


def test_text() -> None:
    x = param(0, 2, 4)
    for u in (x.scan(Ops.ADD), x.scan(Ops.MAX, reverse=True), x.scan(Ops.MUL, exclusive=True)):
        assert parse(show(u)) is u
    assert "SCAN[MAX reverse=yes](p0)" in show(x.scan(Ops.MAX, reverse=True))
    assert ScanArg(Combine.ADD) == x.scan(Ops.ADD).arg

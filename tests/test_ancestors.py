"""The course's kernels through the course's names, with the answers that it printed.

Names come from the modules that a reader of the GPU chapter imports, never from where they are
defined; what the chapter left as exercises is held to its better answer.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uopc.cuda
import uopc.gpu
from tests.helpers import assert_same, random_array
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import DeviceError, UsageError
from uopc.gpu import (
    emulate,
    gpu_lower,
    gpu_opt_choice,
    launch_dims,
    match_gemm,
    occupancy,
    render_cuda,
    smem_gemm_ir,
)
from uopc.rangeify import Ctx, Opts, lower
from uopc.render_c import CRenderer, render_c
from uopc.runtime import Program
from uopc.symbolic import simplify
from uopc.target import target
from uopc.uop import AxisType, Ops, ParamArg, RangeArg, UOp, prod, range_, sink
from uopc.uop.numbers import Array

SCRATCH = Path(__file__).parents[1] / "scratch"


def buf(slot: int, *shape: int, dtype: Any = dtypes.f32) -> UOp:
    """A parameter as the chapter writes it: flat, then reshaped."""
    return UOp(Ops.BUFFER, (), ParamArg(slot, dtype, (prod(shape),))).reshape(shape)


def flat(slot: int, n: int, dtype: Any = dtypes.f32) -> UOp:
    return UOp(Ops.BUFFER, (), ParamArg(slot, dtype, (n,)))


def product(m: int, n: int, k: int) -> UOp:
    a = buf(0, m, k).reshape((m, 1, k)).expand((m, n, k))
    b = buf(1, k, n).permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD, 1)


def emulated(ast: UOp, *inputs: Array, size: int) -> Array:
    """What the kernel stores into its last parameter."""
    out = np.full(size, 77, np.float32)
    Program(emulate(ast, "kern"), "kern")(*inputs, out)
    return out


def run(body: UOp, opts: Opts, *inputs: Array) -> Array:
    out = flat(len(inputs), prod(body.shape))
    return emulated(gpu_lower(body, out, opts), *inputs, size=out.shape[0]).reshape(body.shape)


def floats(*shape: int) -> Array:
    return np.random.default_rng(prod(shape)).standard_normal(shape).astype(np.float32)


# ---- the example that the chapter opens with
@cache
def axpy() -> UOp:
    a = UOp(Ops.BUFFER, (), ParamArg(0, dtypes.f32, (64 * 128,))).reshape((64, 128))
    out = UOp(Ops.BUFFER, (), ParamArg(1, dtypes.f32, (64 * 128,)))
    return gpu_lower(a * 2.0 + 1.0, out, gpu_opt_choice(a * 2.0 + 1.0))


def test_the_opening_example() -> None:
    ast = axpy()
    text = render_cuda(ast, "axpy")
    assert text.startswith('extern "C" __global__ void __launch_bounds__(')
    assert "axpy(const float* __restrict__ p0, float* __restrict__ p1) {" in text
    (gx, gy, gz), (bx, by, bz) = launch_dims(ast)
    assert gx * gy * gz * bx * by * bz == 64 * 128
    a, b = floats(64 * 128), np.zeros(64 * 128, np.float32)
    Program(emulate(ast, "axpy"), "axpy")(a, b)
    assert_same(b, a * np.float32(2) + np.float32(1))


def test_the_opening_example_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from uopc.runtime import cuda

    monkeypatch.setattr(cuda, "why_unusable", lambda: "no NVIDIA driver found.")
    monkeypatch.setattr(cuda, "_opened", {})
    ast, a, b = axpy(), floats(64 * 128), np.zeros(64 * 128, np.float32)
    with pytest.raises(DeviceError, match=r"^no NVIDIA driver found\.$"):
        uopc.cuda.run_cuda(render_cuda(ast, "axpy"), "axpy", *launch_dims(ast), a, b)


@pytest.mark.gpu
def test_the_opening_example_on_a_gpu() -> None:
    ast, a, b = axpy(), floats(64 * 128), np.zeros(64 * 128, np.float32)
    uopc.cuda.run_cuda(render_cuda(ast, "axpy"), "axpy", *launch_dims(ast), a, b)
    assert_same(b, a * np.float32(2) + np.float32(1))
    gpu = uopc.cuda.CUDA()
    there = gpu.to_device(a)
    assert_same(gpu.to_host(there), a)


# ---- experiments
def test_elementwise_in_blocks_of_16_by_16() -> None:
    body = buf(0, 64, 128) * 2.0 + 1.0
    opts = Opts(gpu=True, local={0: 16, 1: 16})
    assert launch_dims(gpu_lower(body, flat(1, 64 * 128), opts)) == ((8, 4, 1), (16, 16, 1))
    a = floats(64, 128)
    error = np.abs(run(body, opts, a) - (a * np.float32(2) + np.float32(1))).max()
    assert error == 0


def test_elementwise_with_two_rows_a_thread() -> None:
    body, opts = buf(0, 64, 128) * 2.0 + 1.0, Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2})
    ast = gpu_lower(body, flat(1, 64 * 128), opts)
    assert launch_dims(ast) == ((8, 4, 1), (16, 8, 1))
    assert "#pragma unroll\n  for (int u0 = 0; u0 < 2; ++u0)" in render_cuda(ast, "axpy")
    a = floats(64, 128)
    assert_same(run(body, opts, a), a * np.float32(2) + np.float32(1))


PRODUCTS: dict[str, tuple[Callable[[], Opts], tuple[Any, Any] | None]] = {
    "a thread a block": (lambda: Opts(gpu=True), ((64, 64, 1), (1, 1, 1))),
    "16 x 8 threads": (lambda: Opts(gpu=True, local={0: 8, 1: 16}), ((4, 8, 1), (16, 8, 1))),
    "2 x 2 elements a thread": (
        lambda: Opts(gpu=True, local={0: 16, 1: 16}, upcast={0: 2, 1: 2}),
        ((2, 2, 1), (16, 16, 1)),
    ),
    "automatic": (lambda: gpu_opt_choice(product(64, 64, 64)), None),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_product_of_64_in_each_mapping(name: str) -> None:
    make, dims = PRODUCTS[name]
    body, opts = product(64, 64, 64), make()
    grid, block = launch_dims(gpu_lower(body, flat(2, 64 * 64), opts))
    if dims is not None:
        assert (grid, block) == dims
    else:
        assert np.prod(grid) * np.prod(block) >= 4096, "so few tiles that lanes share each sum"
    a, b = floats(64, 64), floats(64, 64).T.copy()
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(run(body, opts, a, b) - want).max() / np.abs(want).max()
    assert error < 1e-5


def test_three_rows_of_a_hundred_fill_their_warps() -> None:
    body = buf(0, 3, 100) * 2.0 + 1.0
    ast = gpu_lower(body, flat(1, 300), gpu_opt_choice(body))
    (gx, gy, gz), (bx, by, bz) = launch_dims(ast)
    assert (bx * by * bz) % 32 == 0 and gx * gy * gz * bx * by * bz < 300 + 64
    a = floats(3, 100)
    assert_same(run(body, gpu_opt_choice(body), a), a * np.float32(2) + np.float32(1))


@pytest.mark.parametrize(
    "opts", [None, Opts(gpu=True, local={2: 4, 3: 16}), Opts(gpu=True, local={0: 4, 1: 2, 2: 2})]
)
def test_four_axes_fold(opts: Opts | None) -> None:
    shape = (8, 4, 64, 64)
    body = buf(0, *shape).permute((1, 0, 3, 2)) * 2.0
    choice = opts or gpu_opt_choice(body)
    ast = gpu_lower(body, flat(1, prod(shape)), choice)
    (gx, gy, gz), (bx, by, bz) = launch_dims(ast)
    assert gx * gy * gz * bx * by * bz * prod(n for _, n in choice.vector) == prod(shape)
    a = random_array(np.random.default_rng(0), dtypes.f32, shape)
    assert_same(run(body, choice, a), (a * np.float32(2)).transpose(1, 0, 3, 2).copy())


def test_a_softmax_numerator_takes_each_maximum_once() -> None:
    """Cooperative: lanes exchange their maxima, and every thread of a row gets the row's."""
    x = buf(0, 16, 32)
    body = (x - x.reduce(Ops.MAX, 1).reshape((16, 1)).expand((16, 32))).exp()
    opts = Opts(gpu=True, local={0: 4, 1: 32})
    ast = gpu_lower(body, flat(1, 512), opts)
    assert launch_dims(ast) == ((4, 1, 1), (32, 4, 1))
    text = render_cuda(ast, "numerator")
    loads = re.findall(r"p0\[", text)
    assert text.count("__shfl_xor_sync") == 5 and len(loads) == 1 and "for (" not in text
    a = floats(16, 32)
    want = np.exp((a - a.max(1, keepdims=True)).astype(np.float64))
    for mapping in (opts, gpu_opt_choice(body), Opts(gpu=True, local={1: 8})):
        assert np.allclose(run(body, mapping, a), want, rtol=1e-6, atol=0)
    most = x.maximum(x.reduce(Ops.MAX, 1).reshape((16, 1)).expand((16, 32)))
    assert_same(run(most, opts, a), np.broadcast_to(a.max(1, keepdims=True), (16, 32)).copy())


@pytest.mark.parametrize("shape", [(1,), (31,), (97,), (1009, 1013)], ids=str)
def test_sizes_that_do_not_divide(shape: tuple[int, ...]) -> None:
    body = buf(0, *shape) * 2.0 + 1.0
    opts = gpu_opt_choice(body)
    (gx, _, _), (bx, _, _) = launch_dims(gpu_lower(body, flat(1, prod(shape)), opts))
    waste = gx * bx * prod(n for _, n in opts.vector) / prod(shape)
    assert waste < 1.5
    a = floats(*shape)
    assert_same(run(body, opts, a), a * np.float32(2) + np.float32(1))


@pytest.mark.parametrize(
    "opts",
    [None, Opts(gpu=True, local={0: 256}), Opts(gpu=True, local={0: 96}, upcast={0: 2})],
    ids=["automatic", "256", "96"],
)
def test_the_sum_of_100_003_elements(opts: Opts | None) -> None:
    body, a = buf(0, 100_003).reduce(Ops.ADD, 1), floats(100_003)
    got = run(body, opts or gpu_opt_choice(body), a)
    chain = 100_003 / 96  # of one accumulator, in the longest of the three
    bound = (chain + 32) * 2.0**-24 * np.abs(a).sum(dtype=np.float64)
    assert abs(float(got) - a.sum(dtype=np.float64)) <= bound
    assert run(body, opts or gpu_opt_choice(body), np.ones_like(a)) == 100_003


def test_a_product_through_shared_memory() -> None:
    ast = smem_gemm_ir(64, 16)
    assert launch_dims(ast) == ((4, 4, 1), (16, 16, 1))
    text = render_cuda(ast, "gemm")
    assert text.count("__syncthreads();") == 2 and text.count("__shared__") == 2
    a, b = floats(64, 64), floats(64, 64).T.copy()
    got = emulated(ast, a.reshape(-1), b.reshape(-1), size=64 * 64).reshape(64, 64)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(got - want).max() <= 64 * 2.0**-23 * (np.abs(a) @ np.abs(b)).max()


# ---- products that are found
def test_products_of_any_view_and_size() -> None:
    assert match_gemm(product(64, 64, 64)) == (64, 64, 64)
    assert match_gemm(product(7, 13, 5)) == (7, 13, 5)
    assert match_gemm(product(48, 16, 32) * 0.5 + 1.0) == (48, 16, 32)
    a = buf(0, 5, 7).permute((1, 0)).reshape((7, 1, 5)).expand((7, 3, 5))
    b = buf(1, 3, 5).reshape((1, 3, 5)).expand((7, 3, 5))
    assert match_gemm((a * b).reduce(Ops.ADD, 1)) == match_gemm((b * a).reduce(Ops.ADD, 1))
    assert match_gemm((a * b).reduce(Ops.ADD, 1)) == (7, 3, 5)
    x = buf(0, 4, 8, 6).reshape((4, 8, 1, 6)).expand((4, 8, 5, 6))
    y = buf(1, 4, 5, 6).reshape((4, 1, 5, 6)).expand((4, 8, 5, 6))
    assert match_gemm((x * y).reduce(Ops.ADD, 1)) == (8, 5, 6)
    square = buf(0, 6, 9)
    both = square.reshape((6, 1, 9)).expand((6, 6, 9)), square.reshape((1, 6, 9)).expand((6, 6, 9))
    assert match_gemm((both[0] * both[1]).reduce(Ops.ADD, 1)) == (6, 6, 9), "A times its transpose"
    half = [buf(i, 16, 16, dtype=dtypes.f16) for i in range(2)]
    p = half[0].reshape((16, 1, 16)).expand((16, 16, 16)).cast(dtypes.f32)
    q = half[1].reshape((1, 16, 16)).expand((16, 16, 16)).cast(dtypes.f32)
    assert match_gemm((p * q).reduce(Ops.ADD, 1)) == (16, 16, 16)


def test_what_is_no_product() -> None:
    x, y = buf(0, 64, 32), buf(1, 64, 32)
    row = buf(1, 32).reshape((1, 32)).expand((64, 32))
    a = product(16, 16, 16).src[0]
    for body in (
        (x * x).reduce(Ops.ADD, 1),
        (x * y).reduce(Ops.ADD, 1),
        (x * row).reduce(Ops.ADD, 1),
        x.reduce(Ops.ADD, 1),
        x + y,
        a.reduce(Ops.MAX, 1),
    ):
        assert match_gemm(body) is None


# ---- mapping rules
def test_an_axis_of_one_block_has_no_block_index() -> None:
    x = buf(0, 4, 64) * 2.0
    one = render_cuda(gpu_lower(x, flat(1, 256), Opts(gpu=True, local={0: 4, 1: 64})), "one")
    assert "blockIdx" not in one and "threadIdx.x" in one and "threadIdx.y" in one
    rows = render_cuda(gpu_lower(x, flat(1, 256), Opts(gpu=True, local={1: 64})), "rows")
    assert "gidx0 = blockIdx.x" in rows and "gidx1" not in rows and "blockIdx.y" not in rows
    none = render_cuda(gpu_lower(buf(0, 1) + 1.0, flat(1, 1), Opts(gpu=True)), "none")
    assert "blockIdx" not in none and "threadIdx" not in none


def test_the_digits_of_an_axis() -> None:
    """index = ((((g*K + k)*U + u)*L + l)*V + v): lanes stay neighbours in every copy."""
    digits = dict(loop={0: 2}, upcast={0: 3}, local={0: 4}, vector={0: 2})
    opts = Opts(gpu=True, **digits)  # type: ignore[arg-type]  # four fields of one kind
    ast = gpu_lower(buf(0, 96) * 2.0, flat(1, 96), opts)
    assert launch_dims(ast) == ((2, 1, 1), (4, 1, 1))
    is_out = (u for u in ast.toposort() if u.op is Ops.STORE and u.src[0].src[0] is flat(1, 96))
    (store,) = is_out
    assert store.arg.width == 2  # v
    offset = store.src[0].src[1]
    ranges = [u for u in offset.toposort() if u.op is Ops.RANGE]
    zero, one = (UOp.const(n, dtypes.index) for n in (0, 1))
    steps = {
        r.arg.digit: simplify(offset.substitute(dict.fromkeys(ranges, zero) | {r: one})).value
        for r in ranges
    }
    assert steps == {"g": 48, "k": 24, "u": 8, "l": 2}


def test_more_blocks_may_be_asked_for() -> None:
    body = buf(0, 1 << 16) * 2.0
    grids = []
    for blocks in (8, 64, 512):
        opts = gpu_opt_choice(body, min_blocks=blocks)
        grids.append(launch_dims(gpu_lower(body, flat(1, 1 << 16), opts))[0][0])
        assert grids[-1] >= blocks
    assert grids == sorted(grids) and grids[0] < grids[-1]
    small = gpu_opt_choice(body, max_threads=64, min_blocks=1)
    assert launch_dims(gpu_lower(body, flat(1, 1 << 16), small))[1] == (64, 1, 1)


def stored_at(text: str, **registers: int) -> int:
    """The index of the store into p1 that CUDA text computes for one thread."""
    names: dict[str, int] = {}

    def value(expression: str) -> int:
        expression = re.sub(r"threadIdx\.([xyz])", r"\1", expression)
        return int(eval(expression, {}, registers | names))

    for line in text.splitlines():
        if found := re.search(r"const int (\w+) = (.*);", line):
            names[found[1]] = value(found[2])
        if found := re.search(r"\bp1\[(.*?)\] = ", line):
            return value(found[1])
    raise AssertionError("no store")


@pytest.mark.parametrize("first", [0, 1])
def test_ranges_are_bound_by_axis_whatever_the_order_they_were_made_in(first: int) -> None:
    """A renderer that hands out .x, .y in order of creation would put lanes 0 and 1 a row apart."""
    ranges = {axis: range_(32, axis, AxisType.LOCAL) for axis in (first, 1 - first)}
    row, column = ranges[0], ranges[1]
    at = row * 32 + column if first else column + row * 32
    text = render_cuda(sink(flat(1, 1024).index(at).store(flat(0, 1024).index(at).load())), "copy")
    assert [stored_at(text, x=lane, y=0) for lane in range(3)] == [0, 1, 2]
    assert stored_at(text, x=5, y=7) == 7 * 32 + 5


# ---- memory
def test_sectors_of_a_warp() -> None:
    """Distinct 32-byte sectors that warp 0 touches, on the last axis and on the first."""
    sectors = runpy.run_path(str(SCRATCH / "08_coalescing.py"))["sectors"]

    def asked(body: UOp, opts: Opts) -> dict[str, tuple[int, int]]:
        found = sectors(body, opts)
        words = {name: text.split() for name, text in found.items()}
        return {name: (int(w[0]), int(w[2])) for name, w in words.items()}

    def count(body: UOp, opts: Opts) -> dict[str, int]:
        return {name: n for name, (n, _) in asked(body, opts).items()}

    square = {0: 16, 1: 16}
    body = product(64, 64, 64)
    assert count(body, Opts(gpu=True, local=square)) == {"C": 4, "A": 2, "B": 2}
    other = Opts(gpu=True, local=square, lanes=(0, 1))
    assert count(body, other) == {"C": 16, "A": 16, "B": 1}
    chosen, wanted_bytes = asked(body, gpu_opt_choice(body))["C"]
    assert chosen * 32 == wanted_bytes


def test_how_many_blocks_an_a100_holds() -> None:
    """65,536 registers in granules of 256 a warp, 2,048 threads, 32 blocks, 164 KB shared an SM."""
    a100 = target("sm_80")
    full = occupancy(a100, 256, 32)
    assert (full.blocks_per_sm, full.warps_per_sm, full.fraction) == (8, 64, 1.0)
    granule = occupancy(a100, 256, 33)  # 33 registers take 40: 1,280 a warp
    assert (granule.blocks_per_sm, granule.limited_by, granule.fraction) == (6, "registers", 0.75)
    assert occupancy(a100, 256, 40) == granule
    assert occupancy(a100, 1024, 64).blocks_per_sm == 1
    assert occupancy(a100, 256, 255).blocks_per_sm == 1
    small = occupancy(a100, 32, 16)
    assert (small.blocks_per_sm, small.limited_by, small.fraction) == (32, "blocks", 0.5)
    shared = occupancy(a100, 128, 32, 48 << 10)
    assert (shared.blocks_per_sm, shared.limited_by) == (3, "shared memory")
    assert occupancy(a100, 1024, 16).limited_by == "threads"
    with pytest.raises(
        UsageError, match=r"one block of 1024 threads with 128 registers .* does no"
    ):
        occupancy(a100, 1024, 128)


# ---- the names
def test_names_of_the_chapters() -> None:
    assert Opts() == Opts(upcast={}, thread=None, unroll=1, tile={}, gpu=False, local={})
    hash(Opts(gpu=True, local={0: 8}))
    with pytest.raises(AttributeError):
        Opts().gpu = True  # type: ignore[misc]
    x = buf(0, 4, 8)
    assert (x.shape, x.dtype, x.reduce(Ops.ADD, 2).shape) == ((4, 8), dtypes.f32, ())
    assert UOp.const(3) is UOp.const(3) and simplify(UOp.const(3) + 4).value == 7
    assert range_(4, 1, AxisType.LOCAL).arg == RangeArg(1, 4, AxisType.LOCAL)
    assert CRenderer.language == "c" and callable(CRenderer.render)
    assert all(hasattr(uopc.gpu, name) for name in uopc.gpu.__all__)


def test_a_cpu_kernel_with_the_chapter_s_opts() -> None:
    body = product(20, 24, 28)
    a, b = floats(20, 28), floats(28, 24)
    want = a.astype(np.float64) @ b
    for opts in (
        Opts(),
        Opts(upcast={0: 4, 1: 2}, unroll=4),
        Opts(tile={0: 5, 2: 7}, thread=0),
        Opts(upcast={1: 3}, unroll=3),
    ):
        ast = lower(body, flat(2, 20 * 24), Ctx(opts=opts))
        out = np.zeros((20, 24), np.float32)
        Program(render_c(ast, "gemm"), "gemm")(a, b, out)
        assert np.abs(out - want).max() <= 28 * 2.0**-23 * (np.abs(a) @ np.abs(b)).max()
    assert "#pragma omp parallel for" in render_c(
        lower(body, flat(2, 480), Ctx(Opts(thread=0))), "g"
    )


def test_a_kernel_by_hand_with_registers_and_shared_memory() -> None:
    """Each block reverses its 32 elements through SHARED memory, twice what REG memory holds."""
    block, lane = range_(4, 0, AxisType.GLOBAL), range_(32, 1, AxisType.LOCAL)
    tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (32,), AddrSpace.SHARED))
    twice = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (1,), AddrSpace.REG))
    held = twice.index(0).store(flat(0, 128).index(block * 32 + lane).load() * 2.0)
    filled = tile.index(lane).store(twice.after(held).index(0).load()).barrier()
    value = tile.after(filled).index(lane * -1 + 31).load()
    ast = sink(flat(1, 128).index(block * 32 + lane).store(value))
    assert launch_dims(ast) == ((4, 1, 1), (32, 1, 1))
    a = floats(128)
    want = (a.reshape(4, 32)[:, ::-1] * np.float32(2)).reshape(-1)
    assert_same(emulated(ast, a, size=128), want)
    assert "__syncthreads();" in render_cuda(ast, "turn")

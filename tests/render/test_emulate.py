"""The emulation of a GPU kernel gives what numpy and the oracle give, in every order of warps."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import alloc, assert_same, random_array, special
from uopc.config import Config
from uopc.dtype import DATA, FP8, AddrSpace, DType, dtypes
from uopc.errors import DeviceError, TargetError, UsageError
from uopc.examples import smem_gemm_ir
from uopc.kernel import ProgramTree
from uopc.opts import Opts
from uopc.passes.legalise import legalise
from uopc.passes.linearize import linearize
from uopc.pipeline import Ctx, gpu_lower, lower_body
from uopc.render.cuda import render_cuda
from uopc.render.emulate import render_emulated
from uopc.runtime import cpu
from uopc.runtime.program import Program
from uopc.uop import oracle
from uopc.uop.node import UOp, buffer, prod, range_, sink
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Combine, Ops, ShuffleArg

pytestmark = pytest.mark.usefixtures("unchecked")

ORDERS = ("forward", "backward", "shuffled(7)")
NO_CACHE = Config(cache_mb=0)


# ---- builders
def par(slot: int, *shape: int, dtype: DType = dtypes.f32) -> UOp:
    return buffer(slot, dtype, shape)


def rows(x: UOp, like: UOp) -> UOp:
    """One value a row, repeated along the last axis."""
    return x.reshape((*x.shape, 1)).expand(like.shape)


def softmax(x: UOp) -> UOp:
    e = (x - rows(x.reduce(Ops.MAX, 1), x)).exp()
    return e / rows(e.reduce(Ops.ADD, 1), e)


def kernel(bodies: Sequence[UOp], opts: Opts) -> UOp:
    """A LOOPS kernel that stores body i into slot 10 + i."""
    outs = [buffer(10 + i, b.dtype, (prod(b.shape),)) for i, b in enumerate(bodies)]
    return gpu_lower(bodies, outs, opts)


def program(root: UOp) -> ProgramTree:
    return linearize(legalise(root))


def emulate(root: UOp, arrays: Mapping[int, Array], order: str = "forward") -> dict[int, Array]:
    """What the kernel writes, by slot; its outputs hold other values before."""
    source = render_emulated(program(root), "kern", order=order)
    made = {p.slot: np.full(p.size, 77).astype(p.dtype.numpy) for p in source.params if p.written}
    Program(source, config=NO_CACHE)(*(made.get(p.slot, arrays.get(p.slot)) for p in source.params))
    return made


def check(root: UOp, arrays: Mapping[int, Array], orders: Sequence[str] = ("forward",)) -> None:
    """Bit for bit what the oracle makes of the same LOOPS kernel."""
    want = oracle.run(root, arrays)
    for order in orders:
        got = emulate(root, arrays, order)
        assert got.keys() == want.keys()
        for slot, array in got.items():
            assert_same(array, want[slot].reshape(-1))


def noise(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


# ---- threads that never meet
@pytest.mark.parametrize(
    ("shape", "opts"),
    [
        ((64, 128), Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2})),
        ((33, 101), Opts(gpu=True, local={0: 3, 1: 16}, upcast={0: 2, 1: 2}, loop={0: 3})),
        ((50, 40), Opts(gpu=True, merge=(2,), local={0: 64}, vector={0: 4})),
    ],
    ids=["divides", "guards", "wide"],
)
def test_elementwise(rng: np.random.Generator, shape: tuple[int, ...], opts: Opts) -> None:
    x = noise(rng, *shape)
    root = kernel([par(0, *shape) * 2.0 + 1.0], opts)
    assert_same(emulate(root, {0: x})[10], (x * np.float32(2) + np.float32(1)).reshape(-1))


def test_grid_and_block_axes_beyond_three_fold(rng: np.random.Generator) -> None:
    shape = (4, 6, 5, 10, 2)
    x = noise(rng, *shape)
    body = par(0, *shape).permute((4, 1, 0, 3, 2)) - 1.0
    opts = Opts(gpu=True, local={0: 2, 1: 3, 2: 2, 3: 5})
    tree = program(kernel([body], opts))
    assert tree.launch.grid == (2 * 2 * 2 * 5, 1, 1) and tree.launch.block == (60, 1, 1)
    want = x.transpose((4, 1, 0, 3, 2)).reshape(-1) - np.float32(1)
    for order in ("forward", "backward"):  # loops over threads, resumed warps
        assert_same(emulate(kernel([body], opts), {0: x}, order)[10], want)


def test_plain_kernels_are_loops_around_the_cuda_text() -> None:
    tree = program(kernel([par(0, 12) + 1.0], Opts(gpu=True, local={0: 4})))
    assert render_emulated(tree, "inc") == (
        '#pragma GCC optimize ("tree-vectorize")\n'
        "int inc(void** args) {\n"
        "  const float* restrict const p0 = args[0];\n"
        "  float* restrict const p10 = args[1];\n"
        "  for (int gidx0 = 0; gidx0 < 3; ++gidx0) {\n"
        "    for (int lidx0 = 0; lidx0 < 4; ++lidx0) {\n"
        "      const int at0 = gidx0 * 4 + lidx0;\n"
        "      p10[at0] = p0[at0] + 1.0f;\n"
        "    }\n"
        "  }\n"
        "  return 0;\n"
        "}\n"
    )


# ---- threads that meet
def test_softmax_has_the_same_bits_in_every_order(rng: np.random.Generator) -> None:
    x = noise(rng, 33, 1000)
    opts = Opts(gpu=True, local={0: 4, 1: 64}, upcast={1: 4}, vector={1: 4}, lanes=(1,))
    root = kernel([softmax(par(0, 33, 1000))], opts)
    first, *others = (emulate(root, {0: x}, order)[10] for order in ORDERS)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    assert np.allclose(first.reshape(33, 1000), e / e.sum(1, keepdims=True), rtol=2e-6, atol=0)
    for other in others:
        assert_same(other, first)


@pytest.mark.parametrize("local", [2, 24, 48, 64])
def test_sums_of_rows_columns_and_all(rng: np.random.Generator, local: int) -> None:
    """24 and 48 are no powers of two: no butterflies, everything goes through shared memory."""
    x = noise(rng, 7, 100)
    body = par(0, 7, 100)
    check(
        kernel([body.reduce(Ops.ADD, 1)], Opts(gpu=True, local={1: local, 0: 3})),
        {0: x},
        ORDERS[1:],
    )
    columns = body.permute((1, 0)).reduce(Ops.ADD, 1)
    check(kernel([columns], Opts(gpu=True, local={0: 5, 1: local}, lanes=(0,))), {0: x})
    check(kernel([body.reduce(Ops.ADD, 2)], Opts(gpu=True, local={0: 8 * local})), {0: x})


def test_a_partial_last_warp_shuffles_inside_itself(rng: np.random.Generator) -> None:
    x = noise(rng, 5, 50)
    opts = Opts(gpu=True, local={0: 3, 1: 16})
    root = kernel([par(0, 5, 50).reduce(Ops.ADD, 1)], opts)
    assert program(root).launch.threads == 48
    check(root, {0: x}, ORDERS)


def test_a_block_of_less_than_a_warp(rng: np.random.Generator) -> None:
    x = noise(rng, 4, 50)
    check(kernel([par(0, 4, 50).reduce(Ops.MAX, 1)], Opts(gpu=True, local={1: 8})), {0: x}, ORDERS)


def test_argmax_takes_the_first_and_nan_wins(rng: np.random.Generator) -> None:
    x = rng.integers(0, 5, (6, 300)).astype(np.float16)
    x[2, [70, 200]] = np.nan
    opts = Opts(gpu=True, local={1: 64, 0: 2}, vector={1: 2}, lanes=(1,))
    body = par(0, 6, 300, dtype=dtypes.f16)
    got = emulate(kernel([body.argmax(1), body.argmin(1)], opts), {0: x})
    assert_same(got[10], np.argmax(x, 1).astype(np.int32))
    assert got[10][2] == 70
    assert_same(got[11], np.argmin(x, 1).astype(np.int32))


def test_barriers_in_loops_and_arrays_that_cross_them(rng: np.random.Generator) -> None:
    """Each block walks over rows; shared memory is used again in each iteration."""
    x = noise(rng, 40, 130)
    body = par(0, 40, 130)
    mean = rows(body.reduce(Ops.ADD, 1), body) * (1 / 130)
    variance = ((body - mean) * (body - mean)).reduce(Ops.ADD, 1)
    opts = Opts(gpu=True, loop={0: 5}, local={0: 2, 1: 48}, upcast={0: 2}, lanes=(1,))
    root = kernel([body - mean, variance], opts)
    assert "for (S->k0 = 0; S->k0 < 5; ++S->k0) {" in render_emulated(program(root), "kern")
    check(root, {0: x}, ORDERS)


def test_rows_kept_in_shared_memory(rng: np.random.Generator) -> None:
    x = noise(rng, 5, 1500)
    body = par(0, 5, 1500)
    opts = Opts(gpu=True, local={1: 64}, vector={1: 4}, keep="shared")
    root = kernel([body - rows(body.reduce(Ops.MAX, 1), body)], opts)
    source = render_emulated(program(root), "kern")
    assert source.shared_bytes >= 1500 * 4 and "row" in source
    check(root, {0: x}, ORDERS)


@pytest.mark.parametrize("order", ORDERS)
def test_a_product_through_shared_memory(rng: np.random.Generator, order: str) -> None:
    n = 48
    a, b = random_array(rng, dtypes.f32, (n, n)), random_array(rng, dtypes.f32, (n, n))
    got = emulate(smem_gemm_ir(n, 16), {0: a, 1: b}, order)
    assert_same(got[2], (a @ b).reshape(-1))  # exact: sums of sixteenths below 2**24 units


def test_the_text_of_a_warp_is_the_cuda_text() -> None:
    """Every statement of the kernel, name for name, stands in the emulation too."""
    tree = program(smem_gemm_ir(64, 16))
    emulated = {line.strip() for line in render_emulated(tree, "gemm").splitlines()}
    for line in map(str.strip, render_cuda(tree, "gemm").splitlines()):
        ours = ("__", "#pragma", "blockIdx", "threadIdx", "float acc0[1];", "for (int r2")
        if line and not any(word in line for word in ours):
            assert line in emulated, line


# ---- dtypes
@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_every_dtype_is_loaded_computed_shuffled_and_stored(dtype: DType) -> None:
    """Specials of each dtype through a wide copy, a reduction over two warps and shared memory."""
    values = special(dtype)
    x = np.resize(values, (3, 128))
    body = par(0, 3, 128, dtype=dtype)
    computed = body.cast(dtypes.f32) if dtype in FP8 else body
    bodies = [computed.cast(dtype), computed.reduce(Ops.MAX, 1), computed.argmin(1)]
    if not dtype.is_float:
        bodies.append(computed.reduce(Ops.XOR, 1))
    if dtype is not dtypes.bool:
        bodies.append(computed * computed + computed)
    opts = Opts(gpu=True, local={1: 64}, vector={1: 2})
    with np.errstate(all="ignore"):
        check(kernel(bodies, opts), {0: x})


def test_narrow_sums_accumulate_in_f32(rng: np.random.Generator) -> None:
    arrays: dict[int, Array] = {0: noise(rng, 4, 200).astype(np.float16)}
    arrays[1] = noise(rng, 4, 200).astype(dtypes.bf16.numpy)
    bodies = [par(s, 4, 200, dtype=d) for s, d in enumerate((dtypes.f16, dtypes.bf16))]
    sums = [b.reduce(Ops.ADD, 1) for b in bodies]
    check(kernel(sums, Opts(gpu=True, local={1: 32, 0: 2}, upcast={1: 2}, lanes=(1,))), arrays)


# ---- hand-written kernels
def lanes(n: int) -> UOp:
    return range_(n, 0, AxisType.LOCAL)


def test_shuffle_beyond_the_last_lane_gives_the_own_value() -> None:
    n = 40
    i = lanes(n)
    x, outs = par(0, n, dtype=dtypes.i32), [par(s, n, dtype=dtypes.i32) for s in (1, 2)]
    moved = UOp(Ops.SHUFFLE, (x.index(i).load(),), ShuffleArg(16))
    number = UOp(Ops.SHUFFLE, (i,), ShuffleArg(5)).cast(dtypes.i32)  # of a value without a name
    root = sink(outs[0].index(i).store(moved), outs[1].index(i).store(number))
    values = np.arange(n, dtype=np.int32) * 3
    at = np.arange(n)

    def other(mask: int) -> Array:
        return np.where((at ^ mask) < n, at ^ mask, at)

    for order in ORDERS:
        got = emulate(root, {0: values}, order)
        assert_same(got[1], values[other(16)])
        assert_same(got[2], other(5).astype(np.int32))


def test_what_the_first_iteration_leaves_in_a_register_the_others_read() -> None:
    i, step = lanes(64), range_(3, 1, AxisType.LOOP)
    acc, tile = alloc(AddrSpace.REG), alloc(AddrSpace.SHARED, size=64)
    once = acc.index(0).store(5.0, gate=step < 1)
    met = tile.after(step).index(i).store(acc.after(once).index(0).load()).barrier()
    out = par(0, 3, 64).after(step).index(step, i).store(tile.after(met).index(i).load())
    for order in ORDERS:
        assert (emulate(sink(out.end(step)), {}, order)[0] == 5).all()


def last_writer(order: str) -> int:
    """The thread of 128 that wins a race for one element."""
    i = lanes(128)
    root = sink(par(0, 1, dtype=dtypes.i32).index(0).store(i.cast(dtypes.i32)))
    return int(emulate(root, {}, order)[0][0])


def test_orders_are_orders_of_warps() -> None:
    assert last_writer("forward") == 127
    assert last_writer("backward") == 31
    shuffled = [last_writer(f"shuffled({seed})") for seed in range(4)]
    assert len(set(shuffled)) > 1 and set(shuffled) <= {31, 63, 95, 127}
    assert shuffled[0] == last_writer("shuffled(0)")


@pytest.mark.parametrize("order", ORDERS)
def test_memory_of_a_block_begins_as_nan(order: str) -> None:
    """In every block: what one leaves behind, the next one does not see."""
    block, i = range_(3, 1, AxisType.GLOBAL), lanes(64)
    tile = alloc(AddrSpace.SHARED, size=64)
    before = par(0, 3, 64).index(block, i).store(tile.index(i).load())
    after = tile.after(before).index(i).store(1.0)
    root = sink(after)
    assert np.isnan(emulate(root, {}, order)[0]).all()


def test_registers_that_cross_a_barrier_begin_as_nan() -> None:
    i = lanes(64)
    acc = alloc(AddrSpace.REG)
    first = par(0, 64).index(i).store(acc.index(0).load())
    again = par(1, 64).index(i).store(acc.after(first.barrier()).index(0).load())
    got = emulate(sink(again), {})
    assert np.isnan(got[0]).all() and np.isnan(got[1]).all()


# ---- the C function
SUM = Opts(gpu=True, local={1: 64})


def test_a_deadlock_is_an_error(rng: np.random.Generator) -> None:
    """One warp is made to leave before the barrier, in a text without a Source."""
    text = render_emulated(program(kernel([par(0, 2, 100).reduce(Ops.ADD, 1)], SUM)), "kern")
    assert text.count("emu_block_barrier(") == 1
    leaves = str(text).replace("emu_block_barrier(", "if (warp == 1) return 0; emu_block_barrier(")
    with pytest.warns(UserWarning, match="bare text"):
        run = Program(leaves, "kern", config=NO_CACHE)
    with pytest.raises(DeviceError, match="returned 1"):
        run(noise(rng, 2, 100), np.zeros(2, np.float32))


def test_threads_may_run_a_kernel_at_once(rng: np.random.Generator) -> None:
    root = kernel([softmax(par(0, 64, 500))], Opts(gpu=True, local={1: 64}, upcast={1: 8}))
    run = Program(render_emulated(program(root), "kern"), config=NO_CACHE)
    inputs = [noise(rng, 64, 500) for _ in range(4)]
    alone = [np.zeros((64, 500), np.float32) for _ in inputs]
    together = [np.zeros((64, 500), np.float32) for _ in inputs]
    for x, out in zip(inputs, alone, strict=True):
        run(x, out)

    def repeat(x: Array, out: Array) -> None:
        for _ in range(5):
            run(x, out)

    pairs = zip(inputs, together, strict=True)
    threads = [threading.Thread(target=repeat, args=pair) for pair in pairs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(together, alone, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("compiler", ["tcc", "gcc -O0 -fPIC -ffp-contract=off -march=native"])
def test_quick_compilers_give_the_same_bits(
    rng: np.random.Generator, tmp_path: Path, compiler: str
) -> None:
    words = compiler.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs the compiler {words[0]}")
    x = noise(rng, 6, 300)
    body = par(0, 6, 300)
    top = body.reduce(Combine.MAX, 1)
    opts = Opts(gpu=True, loop={0: 2}, local={0: 2, 1: 48}, vector={1: 2}, lanes=(1,))
    root = kernel([body - rows(top, body), body.argmax(1), body.reduce(Ops.ADD, 1)], opts)
    source = render_emulated(program(root), "kern")
    file, library = tmp_path / "kern.c", tmp_path / "kern.so"
    file.write_text(source)
    headers = str(Path(cpu.__file__).parent)
    subprocess.run([*words, "-shared", "-I", headers, "-o", library, file, "-lm"], check=True)
    cpu.load_runtime(NO_CACHE)
    outs = [np.zeros(p.size, p.dtype.numpy) for p in source.params if p.written]
    arguments = (ctypes.c_void_p * (2 + len(outs)))(*(a.ctypes.data for a in (x, *outs)), None)
    assert ctypes.CDLL(str(library)).kern(arguments) == 0
    for got, want in zip(outs, emulate(root, {0: x}).values(), strict=True):
        assert_same(got, want)


def test_the_source_knows_its_kernel() -> None:
    tree = program(smem_gemm_ir(64, 16))
    source = render_emulated(tree, "gemm", target="sm_90")
    assert (source.name, source.language, source.target.name) == ("gemm", "emulated", "sm_90")
    assert source.params == tree.params and source.launch == tree.launch
    assert source.shared_bytes == render_cuda(tree, "gemm").shared_bytes == 2 * 16 * 16 * 4
    assert source == render_emulated(program(smem_gemm_ir(64, 16)), "gemm", target="sm_90")


# ---- what is refused
@pytest.mark.parametrize("order", ["", "random", "shuffled", "shuffled()", "shuffled(-1)"])
def test_unknown_orders_are_refused(order: str) -> None:
    with pytest.raises(UsageError, match=r"'forward', 'backward' or 'shuffled\(seed\)'"):
        render_emulated(program(smem_gemm_ir(16, 16)), "gemm", order=order)


@pytest.mark.parametrize(
    "name", ["malloc", "free", "for", "2mm", "expf", "emu_launch", "EmuWarp", "tc_wgmma"]
)
def test_names_that_the_text_uses_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        render_emulated(program(smem_gemm_ir(16, 16)), name)


@pytest.mark.parametrize("name", ["S", "l", "w", "args", "seed"])
def test_names_of_locals_may_be_kernels(rng: np.random.Generator, name: str) -> None:
    a, b = noise(rng, 4, 4), noise(rng, 4, 4)
    c = np.zeros((4, 4), np.float32)
    source = render_emulated(program(smem_gemm_ir(4, 4)), name, order="shuffled(1)")
    Program(source, config=NO_CACHE)(a, b, c)
    assert np.allclose(c, a @ b, atol=1e-6)


def test_cpu_threads_are_refused() -> None:
    body = par(0, 64) + 1.0
    tree = program(lower_body(body, buffer(1, dtypes.f32, (64,)), Ctx(Opts(thread=0))))
    with pytest.raises(UsageError, match="CPU threads"):
        render_emulated(tree, "kern")


def test_more_shared_memory_than_the_target_has() -> None:
    tile = alloc(AddrSpace.SHARED, size=50_000)
    root = sink(par(0, 32).index(lanes(32)).store(tile.index(lanes(32)).load()))
    with pytest.raises(TargetError, match=r"wants 200000 bytes .*sm_80 has 166912"):
        render_emulated(program(root), "kern")
    assert render_emulated(program(root), "kern", target="sm_90").shared_bytes == 200_000

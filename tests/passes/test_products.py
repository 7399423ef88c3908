"""Products by a plan: the numbers of the body, whatever the atom, the ring, the sizes and views."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import uopc
from tests.helpers import assert_same
from tests.kernels import indexed, param
from tests.matmul_table import Row
from uopc import layouts
from uopc.dtype import DType, dtypes
from uopc.errors import TargetError, UsageError
from uopc.kernel import KernelBody, Output
from uopc.opts import Opts
from uopc.passes.find_products import find_product
from uopc.passes.tile_product import tile_product
from uopc.pipeline import compile_kernel, launch_dims
from uopc.plan import BULK, CP_ASYNC, FMA, REGISTERS, Plan
from uopc.runtime import cuda
from uopc.uop.node import UOp, buffer, memory, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Engine, Ops
from uopc.uop.oracle import evaluate
from uopc.uop.spec import Stage, check

BF16 = "mma.m16n8k16.bf16"
WGMMA = "wgmma.m64n64k16.bf16"
SMALL = Plan(block_m=64, block_n=64, block_k=16, warps_m=2, warps_n=1)
#: a plan of each kind, with tiles that are small enough to emulate many
PLANS: dict[str, Plan] = {
    "fma": SMALL,
    "fma, a ring": replace(SMALL, depth=3, copy=CP_ASYNC),
    "fma, two tiles by registers": replace(SMALL, depth=2),
    "fma, bodies of three steps": replace(SMALL, block_k=12, unroll_k=3, depth=2, copy=CP_ASYNC),
    "fma, even columns first": replace(SMALL, depth=2, order="parities"),
    "fma, column by column": replace(SMALL, depth=2, order="columns"),
    "fma, boxes": Plan(FMA, 64, 64, 16, 2, 1, 8, depth=4, copy=BULK, unroll_k=8),
    "fma, boxes, two places": Plan(FMA, 32, 128, 8, 1, 2, 8, depth=2, copy=BULK, unroll_k=1),
    "fma, boxes, three places": Plan(FMA, 32, 64, 24, 1, 1, 4, depth=3, copy=BULK, unroll_k=3),
    "fma, slices": Plan(FMA, 32, 64, 16, 1, 1, depth=2, warps_k=2),
    "fma, slices, boxes": Plan(FMA, 64, 32, 32, 2, 1, 8, depth=3, copy=BULK, warps_k=4),
    "mma": Plan(BF16, 64, 64, 32, 2, 2),
    "mma, a ring": Plan(BF16, 64, 64, 32, 2, 2, depth=3, copy=CP_ASYNC),
    "mma, long tiles of k": Plan(BF16, 32, 64, 128, 1, 2, depth=2, copy=CP_ASYNC),
    "mma, roles": Plan(BF16, 64, 64, 64, 2, 2, depth=3, copy=BULK),
    "mma, roles, one tile": Plan(BF16, 64, 64, 64, 2, 2, depth=1, copy=BULK),
    "wgmma": Plan(WGMMA, 64, 64, 64, 1, 1),
    "wgmma, a ring": Plan(WGMMA, 128, 64, 64, 2, 1, depth=3, copy=CP_ASYNC),
    "wgmma, roles": Plan(WGMMA, 128, 64, 64, 2, 1, depth=3, copy=BULK),
    "wgmma, roles, several atoms": Plan(WGMMA, 128, 128, 64, 1, 1, depth=2, copy=BULK),
    "wgmma, roles, side by side": Plan(WGMMA, 64, 128, 128, 1, 2, depth=2, copy=BULK),
    "mma, roles, few blocks": Plan(BF16, 64, 64, 64, 2, 2, depth=3, copy=BULK, blocks=2),
    "wgmma, roles, few blocks": Plan(WGMMA, 64, 64, 64, 1, 1, depth=3, copy=BULK, blocks=3),
}
#: of which D leaves by tensor copies, where it has 16 bits
STORED: dict[str, Plan] = {
    "one chunk": Plan(WGMMA, 64, 64, 64, 1, 1, depth=2, copy=BULK, store=BULK),
    "one chunk a turn": Plan(WGMMA, 128, 64, 64, 2, 1, depth=3, copy=BULK, blocks=3, store=BULK),
    "two chunks": Plan(
        "wgmma.m64n128k16.bf16", 128, 128, 64, 2, 1, depth=3, copy=BULK, blocks=3, store=BULK
    ),
    "several atoms": Plan(WGMMA, 128, 128, 64, 1, 1, depth=3, copy=BULK, blocks=2, store=BULK),
    "narrow chunks": Plan(
        "wgmma.m64n96k16.bf16", 128, 96, 64, 2, 1, depth=3, copy=BULK, blocks=2, store=BULK
    ),
    "an atom of eight columns": Plan(
        "wgmma.m64n8k16.bf16", 64, 8, 64, 1, 1, depth=3, copy=BULK, blocks=2, store=BULK
    ),
}


def of(plan: Plan) -> DType:
    """What its operands are."""
    return dtypes.f32 if plan.atom == FMA else dtypes.bf16


def operand(slot: int, rows: int, k: int, dtype: DType, turned: bool) -> UOp:
    """(rows, k), in memory as it is or transposed."""
    if turned:
        return param(slot, k, rows, dtype=dtype).permute((1, 0))
    return param(slot, rows, k, dtype=dtype)


def target_of(plan: Plan) -> str:
    """The oldest target that has what a plan uses."""
    if plan.copy == BULK or plan.atom.startswith("wgmma"):
        return "sm_90a"
    return "sm_89" if "f8" in plan.atom else "sm_80"


def times(a: UOp, b: UOp, into: DType | None = None) -> UOp:
    """a (m, k) by b (n, k), summed along k in `into`."""
    (m, k), n = a.shape, b.shape[0]
    wide = a.dtype if into is None else into
    x = a.reshape((m, 1, k)).expand((m, n, k)).cast(wide)
    return (x * b.reshape((1, n, k)).expand((m, n, k)).cast(wide)).reduce(Ops.ADD, 1)


def product(m: int, n: int, k: int, dtype: DType, turned: str = "") -> UOp:
    """Of f32 sums; turned: operands that lie transposed."""
    a, b = operand(0, m, k, dtype, "a" in turned), operand(1, n, k, dtype, "b" in turned)
    return times(a, b, dtypes.f32 if dtype.is_float and dtype.itemsize < 4 else dtype)


def whole_numbers(body: UOp, seed: int = 0) -> dict[int, Array]:
    """Small whole numbers for each parameter, so that sums are exact in any order."""
    rng, found = np.random.default_rng(seed), {}
    for u in toposort(body):
        if u.op is Ops.BUFFER:
            low = 0 if u.dtype is dtypes.u8 else -4
            found[u.arg.slot] = rng.integers(low, 5, u.arg.shape).astype(u.dtype.numpy)
    return dict(sorted(found.items()))


def gives_its_numbers(body: UOp, plan: Plan) -> uopc.Kernel:
    """Emulated and checked."""
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), target_of(plan))
    arrays = whole_numbers(body)
    verdict = uopc.check(kernel, *arrays.values())
    assert verdict.ok, verdict
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))
    return kernel


@pytest.mark.parametrize(
    ("sizes", "turned"),
    [
        *(((128, 128, 64), ""), ((64, 64, 16), "ab")),
        *(((70, 90, 37), turned) for turned in ("", "a", "b", "ab")),
        *(((65, 200, 104), turned) for turned in ("a", "b")),
    ],
)
@pytest.mark.parametrize("name", PLANS)
def test_numbers(name: str, sizes: tuple[int, int, int], turned: str) -> None:
    gives_its_numbers(product(*sizes, of(PLANS[name]), turned), PLANS[name])


@pytest.mark.parametrize("sizes", [(200, 136, 200), (64, 64, 64), (300, 260, 72), (130, 201, 90)])
@pytest.mark.parametrize("name", STORED)
def test_a_result_that_leaves_by_tensor_copies(name: str, sizes: tuple[int, int, int]) -> None:
    """Sizes that do not divide are clipped; a pitch that no copy takes goes by registers."""
    kernel = gives_its_numbers(product(*sizes, dtypes.bf16).cast(dtypes.bf16), STORED[name])
    staged = any(u.op is Ops.STMATRIX for u in toposort(kernel.steps[0].sink))
    assert staged == (sizes[1] % 8 == 0 and name != "an atom of eight columns")


def test_batches_and_what_stands_around_a_result_that_leaves_by_tensor_copies() -> None:
    z, m, n, k = 3, 72, 136, 40
    a = param(0, z, m, k, dtype=dtypes.bf16).reshape((z, m, 1, k)).expand((z, m, n, k))
    b = param(1, z, n, k, dtype=dtypes.bf16).reshape((z, 1, n, k)).expand((z, m, n, k))
    total = (a.cast(dtypes.f32) * b.cast(dtypes.f32)).reduce(Ops.ADD, 1)
    bias = param(2, n, dtype=dtypes.f32).reshape((1, 1, n)).expand((z, m, n))
    rows = param(3, z, m, dtype=dtypes.bf16).reshape((z, m, 1)).expand((z, m, n)).cast(dtypes.f32)
    for name in ("two chunks", "several atoms"):
        gives_its_numbers((total * rows + bias).maximum(0.0).cast(dtypes.bf16), STORED[name])


def convolution(image: tuple[int, int, int], channels: int, out: int) -> UOp:
    """3x3, padded by 1."""
    m = math.prod(image)
    row = Row(m, out, 9 * channels, "bf16", around="convolution", image=image)
    return row.body()


FOLDED: dict[str, tuple[tuple[int, int, int], tuple[int, ...], str]] = {
    "one image a tile": ((2, 8, 8), (1, 8, 8), REGISTERS),
    "rows of images": ((2, 16, 8), (1, 8, 8), BULK),
    "two images a tile": ((2, 14, 10), (2, 8, 8), BULK),
    "what does not divide": ((3, 9, 11), (1, 8, 8), BULK),
    "tall boxes": ((3, 9, 11), (1, 16, 8), BULK),
    "long boxes": ((2, 5, 70), (1, 1, 64), BULK),
}


@pytest.mark.parametrize("name", FOLDED)
def test_boxes_of_an_image(name: str) -> None:
    """Tensor copies bring a window's rows, with zeros around the image."""
    image, rows, store = FOLDED[name]
    count = math.prod(rows)
    plan = Plan(
        *(WGMMA, count, 64, 64, count // 64, 1),
        depth=3,
        copy=BULK,
        rows=rows,
        store=store,
        blocks=3,
    )
    kernel = gives_its_numbers(convolution(image, 64, 72), plan)
    maps = {u for u in toposort(kernel.steps[0].sink) if u.op is Ops.TENSORMAP}
    assert len({memory(u.src[0]) for u in maps}) == 2 + (store == BULK)


def test_rows_of_another_number_of_axes_are_an_error() -> None:
    plan = replace(PLANS["wgmma, roles"], rows=(2, 8, 8))
    with pytest.raises(UsageError, match=r"rows has 3 sizes.*m has 1 axes, of 200"):
        uopc.compile(product(200, 64, 64, dtypes.bf16), Opts(gpu=True, plan=plan), "sm_90a")


@pytest.mark.gpu
@pytest.mark.parametrize("name", FOLDED)
def test_boxes_of_an_image_launched(name: str) -> None:
    image, rows, store = FOLDED[name]
    count = math.prod(rows)
    plan = Plan(*(WGMMA, count, 64, 64, count // 64, 1), depth=3, copy=BULK, rows=rows, store=store)
    body = convolution(image, 64, 72)
    arrays = whole_numbers(body)
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), "cuda")
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


@pytest.mark.parametrize("k", [2, 16])
@pytest.mark.parametrize("copy", [REGISTERS, CP_ASYNC, BULK])
def test_one_atom_has_all_of_k(copy: str, k: int) -> None:
    atom = "wgmma.m64n8k16.bf16" if copy == BULK else BF16
    rows = 64 if copy == BULK else 16
    plan = Plan(atom, rows, 8, 16, 1, 1, depth=1 + (copy == BULK), copy=copy)
    gives_its_numbers(product(20, 9, k, dtypes.bf16), plan)


ATOMS = [
    a.name for a in layouts.ATOMS.values() if a.engine == "mma.sync" and a.accumulator.packing == 1
]


@pytest.mark.parametrize("atom", ATOMS)
def test_every_atom(atom: str) -> None:
    a = layouts.atom_named(atom)
    k = max(64 // a.a.element_bytes, a.k)
    plan = Plan(atom, 32, 32, k, 1, 2, depth=2, copy=CP_ASYNC)
    body = times(
        param(0, 40, 3 * k, dtype=a.a.dtype),
        param(1, 48, 3 * k, dtype=a.b.dtype),
        a.accumulator.dtype,
    )
    gives_its_numbers(body, plan)


WGMMAS = [
    *("f16", "bf16", "tf32", "f8e4m3", "f8e5m2", "f8e4m3xf8e5m2", "i8", "u8", "u8xi8"),
]


@pytest.mark.parametrize("blocks", [0, 2])
def test_sums_of_a_tile_that_are_added_to_the_others(blocks: int) -> None:
    atom = "wgmma.m64n64k32.f8e4m3"
    plan = Plan(atom, 128, 64, 128, 2, 1, depth=2, copy=BULK, promote=True, blocks=blocks)
    x, y = (param(n, 200, 600, dtype=dtypes.f8e4m3) for n in (0, 1))
    kernel = gives_its_numbers(times(x, y, dtypes.f32), plan)
    used = kernel.steps[0].cubin.resources
    assert not used.spills and not used.stack_bytes and not used.remarks
    count = Counter(re.findall(r"FADD", kernel.steps[0].cubin.sass))
    assert count["FADD"] == plan.held.registers


@pytest.mark.gpu
def test_sums_of_a_tile_that_are_added_to_the_others_launched() -> None:
    """Closer to the exact ones than those that tensor cores keep."""
    m, n, k = 128, 128, 4096
    a, b = (param(slot, rows, k, dtype=dtypes.f8e4m3) for slot, rows in enumerate((m, n)))
    body = times(a, b, dtypes.f32)
    atom = "wgmma.m64n64k32.f8e4m3"
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((r, k)).astype(dtypes.f8e4m3.numpy) for r in (m, n))
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    error: list[float] = []
    for promote in (False, True):
        plan = Plan(atom, 128, 64, 128, 2, 1, depth=3, copy=BULK, promote=promote)
        got = uopc.compile(body, Opts(gpu=True, plan=plan), "cuda")(x, y)
        error.append(float(np.abs(got - exact).max()))
    assert error[1] < error[0] and error[1] < 1e-3 * np.abs(exact).max()


@pytest.mark.parametrize("copy", [CP_ASYNC, BULK])
@pytest.mark.parametrize("types", WGMMAS)
def test_every_type_of_wgmma(types: str, copy: str) -> None:
    a = next(x for x in layouts.ATOMS.values() if x.name.endswith(f"n32k{_k(types)}.{types}"))
    plan = Plan(a.name, 64, 64, 128 // a.a.element_bytes, 1, 1, depth=2, copy=copy)
    x, y = (param(n, 72, 160, dtype=o.dtype) for n, o in enumerate((a.a, a.b)))
    gives_its_numbers(times(x, y, a.accumulator.dtype), plan)


def _k(types: str) -> int:
    return {"tf32": 8, "f16": 16, "bf16": 16}.get(types, 32)


@given(st.data())
def test_any_sizes_and_plans(data: st.DataObject) -> None:
    size = st.integers(2, 150)
    m, n, k = (data.draw(size) for _ in range(3))
    down, across = (data.draw(st.sampled_from([1, 2])) for _ in range(2))
    lanes = data.draw(st.sampled_from([1, 2, 4, 8]))
    atom = data.draw(st.sampled_from([FMA, BF16]))
    if atom == FMA:
        unit_m, unit_n, unit_k = lanes * 4, 32 // lanes * 4, data.draw(st.sampled_from([1, 8, 12]))
    else:
        unit_m, unit_n, unit_k = 16, 8, data.draw(st.sampled_from([16, 32, 64]))
    plan = Plan(
        atom,
        block_m=unit_m * down * data.draw(st.integers(1, 2)),
        block_n=unit_n * across,
        block_k=unit_k,
        warps_m=down,
        warps_n=across,
        lanes_m=lanes,
        depth=data.draw(st.integers(1, 4)),
        copy=data.draw(st.sampled_from([REGISTERS, CP_ASYNC])),
        group=data.draw(st.integers(1, 9)),
    )
    if atom == FMA:
        slices = data.draw(st.sampled_from([n for n in (1, 2, 4) if unit_k % n == 0]))
        steps = unit_k // slices
        unroll = data.draw(st.sampled_from([0, *(n for n in (1, 2, 3) if steps % n == 0)]))
        plan = replace(plan, warps_k=slices, unroll_k=unroll)
        if data.draw(st.booleans()):
            plan = replace(plan, copy=BULK, depth=max(2, plan.depth))
    opts = Opts(gpu=True, plan=plan)
    assert Opts.from_json(opts.to_json()) == opts
    gives_its_numbers(product(m, n, k, of(plan), data.draw(st.sampled_from(["", "a", "b"]))), plan)


# ---- what stands around a product
def around(name: str, dtype: DType) -> UOp:
    m, n, k = 70, 72, 40
    a, b = param(0, m, k, dtype=dtype), param(1, n, k, dtype=dtype)
    wide = dtypes.f32

    def column(slot: int, dtype: DType = wide) -> UOp:
        return param(slot, n, dtype=dtype).reshape((1, n)).expand((m, n))

    if name == "bias, relu":
        return (times(a, b, wide) + column(2)).maximum(0.0)
    if name == "residual, rounded":
        return (times(a, b, wide) + param(2, m, n, dtype=dtype).cast(wide)).cast(dtype)
    if name == "rows scaled before":
        rows = param(2, m, dtype=dtype).reshape((m, 1)).expand((m, k))
        return times(a * rows, b, wide)
    if name == "rows gathered":
        rows = UOp.const(3, dtypes.i32)
        at = (param(2, m, dtype=dtypes.i32) + rows).maximum(0).reshape((m, 1)).expand((m, k))
        return times(param(0, 90, k, dtype=dtype).gather((~0, 1), at), b, wide)
    if name == "masked":
        held = param(2, m, k, dtype=dtype) > 0.0
        return times(held.where(a, 0.0), b, wide)
    if name == "dequantised":
        small = param(1, n, k, dtype=dtypes.i8).cast(dtype)
        return times(a, small * 2.0, wide)
    if name == "a reshape of k":
        a4 = param(0, m, 5, 8, dtype=dtype).permute((0, 2, 1)).reshape((m, k))
        return times(a4, b, wide)
    assert name == "a constant"
    return times(a, b, wide) * 2.0 + 1.0


AROUND = (
    *("bias, relu", "residual, rounded", "rows scaled before", "rows gathered", "masked"),
    *("dequantised", "a reshape of k", "a constant"),
)


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize(
    "plan", ["fma, a ring", "fma, boxes", "mma, a ring", "mma", "mma, roles", "wgmma, roles"]
)
def test_what_stands_around_it(plan: str, name: str) -> None:
    gives_its_numbers(around(name, of(PLANS[plan])), PLANS[plan])


@pytest.mark.parametrize(
    "plan", ["fma, a ring", "fma, slices, boxes", "mma, a ring", "wgmma, roles"]
)
def test_batches_and_several_axes(plan: str) -> None:
    dtype = of(PLANS[plan])
    z, m, n, k, j = 3, 20, 33, 8, 5
    a = param(0, z, m, k, j, dtype=dtype).reshape((z, m, 1, k, j)).expand((z, m, n, k, j))
    b = param(1, n, j, k, dtype=dtype).permute((0, 2, 1)).reshape((1, 1, n, k, j))
    wide = a.cast(dtypes.f32) * b.expand((z, m, n, k, j)).cast(dtypes.f32)
    gives_its_numbers(wide.reduce(Ops.ADD, 2), PLANS[plan])


def test_a_batch_of_both_operands() -> None:
    z, m, n, k = 2, 40, 50, 30
    shape = (z, m, n, k)
    a = param(0, z, m, k).reshape((z, m, 1, k)).expand(shape)
    b = param(1, z, n, k).reshape((z, 1, n, k)).expand(shape)
    kernel = gives_its_numbers((a * b).reduce(Ops.ADD, 1), PLANS["fma"])
    assert launch_dims(kernel.steps[0].sink) == ((2, 1, 1), (64, 1, 1))  # one tile


@pytest.mark.parametrize("turned", ["", "a", "b"])
@pytest.mark.parametrize("dtype", [dtypes.i32, dtypes.f64, dtypes.u8, dtypes.i64])
def test_arithmetic_of_other_types(dtype: DType, turned: str) -> None:
    plan = Plan(FMA, 32, 64, 8, 1, 2, depth=2, copy=CP_ASYNC)
    gives_its_numbers(product(50, 70, 19, dtype, turned), plan)
    gives_its_numbers(product(48, 80, 32, dtype, turned), replace(plan, depth=3, copy=BULK))


def test_several_outputs_and_an_update() -> None:
    """The sum, and what it adds to a memory in place."""
    m, n, k = 70, 65, 20
    total = product(m, n, k, dtypes.f32)
    old = buffer(2, dtypes.f32, (m * n,)).reshape((m, n))
    new = old + total
    results = (
        Output(new, buffer(2, dtypes.f32, (m * n,))),
        Output(total, buffer(3, dtypes.f32, (m * n,))),
    )
    axes = {total: (0, 1, 2), new: (0, 1)}
    body = KernelBody(results, (m, n, k), axes)
    kernel = compile_kernel(body, "emulated", opts=Opts(gpu=True, plan=PLANS["fma"]), check=True)
    arrays = whole_numbers(new)
    want = evaluate(new, {s: a.copy() for s, a in arrays.items()})
    have = {**arrays, 3: np.zeros(m * n, np.float32)}
    kernel.run(have)
    assert_same(have[2].reshape(m, n), want)


def test_an_operand_that_is_overwritten_is_an_error() -> None:
    a = buffer(0, dtypes.f32, (64 * 64,)).reshape((64, 64))
    total = times(a, param(1, 64, 64))
    body = KernelBody(
        (Output(total, buffer(0, dtypes.f32, (64 * 64,))),), (64, 64, 64), {total: (0, 1, 2)}
    )
    with pytest.raises(TargetError, match="written in place"):
        compile_kernel(body, "emulated", opts=Opts(gpu=True, plan=PLANS["fma"]))


# ---- the graph, and what is refused
def test_a_mapped_product_is_as_specified() -> None:
    root = tile_product(indexed(product(130, 70, 37, dtypes.bf16)), PLANS["mma, a ring"])
    check(root, Stage.MAPPED, True)
    stages = {u.arg.name: u.arg for u in toposort(root) if u.op is Ops.STAGE}
    assert set(stages) == {"a", "b"} and all(s.depth == 3 for s in stages.values())
    assert {s.engine for s in stages.values()} == {Engine.CP_ASYNC}
    assert sum(u.op is Ops.DOT for u in toposort(root)) == 1


def test_an_expression_is_stored_by_threads_beside_copies_of_the_other_operand() -> None:
    root = tile_product(indexed(around("rows scaled before", dtypes.bf16)), PLANS["mma, a ring"])
    engines = {u.arg.name: u.arg.engine for u in toposort(root) if u.op is Ops.STAGE}
    assert engines == {"a": None, "b": Engine.CP_ASYNC}


def test_the_axes_of_a_product() -> None:
    found = find_product(indexed(product(30, 40, 50, dtypes.f32, "b")))
    assert found.sizes == (1, 30, 40, 50)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (param(0, 64, 64) * 2.0, "0 reductions"),
        (param(0, 64, 64).reduce(Ops.ADD, 1), "sums up LOAD"),
        (param(0, 64, 64).reduce(Ops.MAX, 1), "its reduction is REDUCE MAX"),
        ((param(0, 64, 64) * param(1, 64, 64)).reduce(Ops.ADD, 1), "lack an axis"),
    ],
)
def test_what_is_no_product_is_an_error(body: UOp, why: str) -> None:
    with pytest.raises(UsageError, match=f"no product.*{why}"):
        uopc.compile(body, Opts(gpu=True, plan=Plan()), "emulated")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (dict(block_m=100), "block_m is 100; it is a multiple of 32"),
        (dict(block_m=0), "block_m is 0; it is at least 1"),
        (dict(copy="tma"), "there are 'registers', 'cp.async', 'bulk'"),
        (dict(copy=BULK), "depth is 1; with copy='bulk' 'fma' multiplies one tile while others"),
        (dict(warps_k=3), "block_k is 16; it is a multiple of 3"),
        (dict(warps_k=2, unroll_k=3), "unroll_k is 3; it divides the 8 steps of a tile"),
        (dict(unroll_k=-1), "unroll_k is -1; it is at least 0"),
        (dict(order="snake"), "order is 'snake'; there are 'rows', 'parities', 'columns'"),
        (dict(atom=BF16, order="columns"), "order 'columns'; they are for 'fma'"),
        (
            dict(atom=BF16, warps_k=2),
            "warps_k is 2, unroll_k 0 and order 'rows'; they are for 'fma'",
        ),
        (dict(block_n=256, blocks_per_sm=2), "holds 128 sums, the limit is 96. Lower block_m"),
        (dict(atom=BF16, block_k=64, copy=BULK, blocks_per_sm=2), "blocks_per_sm is 2; with warps"),
        (dict(atom=BF16, block_n=64, warps_n=1, copy=BULK), "whole warpgroups of 128"),
        (dict(atom="mma.m16n8k16.f16.f16"), "sums in 16 bits"),
        (dict(lanes_m=3), "it divides 32"),
        (dict(promote=True), "promote is for wgmma"),
        (dict(atom="wgmma.m64n512k16.bf16", copy=BULK), "no atom is called"),
        (dict(warps_m=8, warps_n=8, block_m=256, block_n=512), "2048 threads"),
        (dict(block_m=256, block_n=256, warps_m=1, warps_n=2), "holds 1024 sums"),
        (dict(atom=BF16, block_k=24), "block_k is 24; it is a multiple of 16"),
    ],
)
def test_a_plan_that_cannot_be_is_an_error(fields: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        Plan(**fields)  # type: ignore[arg-type]


def test_a_plan_and_digits_are_an_error() -> None:
    with pytest.raises(UsageError, match="leave the digits of axes out"):
        Opts(gpu=True, plan=Plan(), local={0: 8})
    with pytest.raises(UsageError, match="needs gpu=True"):
        Opts(plan=Plan())


def test_tiles_that_no_shared_memory_holds_are_an_error() -> None:
    body = product(256, 256, 256, dtypes.f32, "ab")
    plan = Plan(FMA, 128, 256, 32, 2, 4, 8, depth=5, copy=BULK)
    with pytest.raises(
        UsageError, match=re.escape("take 245760 bytes of shared memory, the limit")
    ):
        uopc.compile(body, Opts(gpu=True, plan=plan), "sm_90a")
    slices = Plan(FMA, 64, 64, 64, 1, 1, 8, depth=6, copy=BULK, warps_k=8)
    with pytest.raises(UsageError, match=r"196608 bytes.* and 114688 for sums of slices"):
        uopc.compile(body, Opts(gpu=True, plan=slices), "sm_90a")


def test_operands_of_another_type_than_the_atoms_are_an_error() -> None:
    with pytest.raises(UsageError, match="multiplies bf16, an operand is f32"):
        uopc.compile(product(64, 64, 64, dtypes.f32), Opts(gpu=True, plan=PLANS["mma"]), "emulated")


@pytest.mark.parametrize("k", [20, 32])
@pytest.mark.parametrize("name", ["fma, a ring", "fma, boxes", "mma, a ring"])
def test_indices_that_are_neighbours_are_not_copied_for_rows(name: str, k: int) -> None:
    """Tables are contiguous along m, of which what they name is not."""
    dtype = of(PLANS[name])
    at = (param(2, 64, dtype=dtypes.i32) + param(3, 64, dtype=dtypes.i32)).maximum(0)
    rows = param(0, 90, k, dtype=dtype)
    a = rows.gather((~0, 1), at.reshape((64, 1)).expand((64, k)))
    gives_its_numbers(times(a, param(1, 64, k, dtype=dtype), dtypes.f32), PLANS[name])


@pytest.mark.parametrize("name", ["fma, a ring", "mma, a ring", "wgmma, a ring", "wgmma, roles"])
def test_tiles_of_k_that_are_all_padding(name: str) -> None:
    """The last ones, known as such when they are asked for."""
    plan = replace(PLANS[name], depth=3)
    k, dtype = 3 * plan.block_k, of(plan)
    a = param(0, 70, k - plan.block_k, dtype=dtype).pad(((0, 0), (0, plan.block_k)))
    gives_its_numbers(times(a, param(1, 40, k, dtype=dtype), dtypes.f32), plan)


def test_sums_of_another_type_than_the_atoms_are_an_error() -> None:
    body = times(
        param(0, 64, 64, dtype=dtypes.bf16), param(1, 64, 64, dtype=dtypes.bf16), dtypes.f64
    )
    with pytest.raises(UsageError, match="the atom sums in f32, the kernel in f64"):
        uopc.compile(body.cast(dtypes.f32), Opts(gpu=True, plan=PLANS["mma"]), "emulated")


def test_a_cast_that_loses_something_is_no_operand_of_a_narrower_atom() -> None:
    a, b = (param(n, 64, 64, dtype=dtypes.u8).cast(dtypes.i8) for n in (0, 1))
    plan = Plan("mma.m16n8k32.u8", 64, 64, 64, 2, 2)
    with pytest.raises(UsageError, match="multiplies u8, an operand is i32"):
        uopc.compile(times(a, b, dtypes.i32), Opts(gpu=True, plan=plan), "emulated")


# ---- for real archs
COMPILED: dict[str, tuple[Plan, str, dict[str, int]]] = {
    "fma": (
        Plan(FMA, 128, 128, 16, 2, 4, depth=3, copy=CP_ASYNC),
        "b",
        {"FFMA": 1024, "LDS": 64, "STG": 16},
    ),
    "mma": (
        Plan(BF16, 128, 128, 32, 2, 2, depth=4, copy=CP_ASYNC),
        "b",
        {"HMMA": 64, "LDSM": 16, "LDGSTS": 32},
    ),
    "mma, as it lies": (
        Plan(BF16, 128, 128, 32, 2, 2, depth=4, copy=CP_ASYNC),
        "",
        {"HMMA": 64, "LDSM": 16, "LDGSTS": 32},
    ),
    "mma, roles": (
        Plan(BF16, 128, 128, 64, 2, 2, depth=4, copy=BULK),
        "b",
        {"HMMA": 128, "LDSM": 32, "UTMALDG": 2},
    ),
    "wgmma, roles": (
        Plan("wgmma.m64n256k16.bf16", 128, 256, 64, 2, 1, depth=4, copy=BULK),
        "",
        {"HGMMA": 4, "UTMALDG": 2},
    ),
    "wgmma, all of it": (
        Plan(
            "wgmma.m64n256k16.bf16",
            *(128, 256, 64, 2, 1),
            depth=4,
            copy=BULK,
            group=16,
            blocks=132,
            store=BULK,
        ),
        "",
        {"HGMMA": 4, "UTMALDG": 2, "STSM": 16, "UTMASTG": 4, "F2FP": 64},
    ),
    "wgmma, roles, as it lies": (
        Plan("wgmma.m64n256k16.bf16", 128, 256, 64, 2, 1, depth=4, copy=BULK),
        "b",
        {"HGMMA": 4, "UTMALDG": 5},
    ),
    "wgmma, three groups": (
        Plan("wgmma.m64n128k16.bf16", 192, 128, 64, 3, 1, depth=5, copy=BULK),
        "a",
        {"HGMMA": 4, "UTMALDG": 3},
    ),
}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (name, target)
        for name, (plan, _, _) in COMPILED.items()
        for target in dict.fromkeys((target_of(plan), "sm_90a"))
    ],
)
def test_registers_and_instructions(name: str, target: str) -> None:
    plan, turned, least = COMPILED[name]
    body = product(4096, 4096, 4096, of(plan), turned)
    if plan.store == BULK:
        body = body.cast(of(plan))
    cubin = uopc.compile(body, Opts(gpu=True, plan=plan), target).steps[0].cubin
    used = cubin.resources
    assert not used.spills and not used.stack_bytes and not used.remarks, used
    found = re.findall(r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\d+ )?([A-Z0-9]+)", cubin.sass)
    count = Counter(found)
    assert all(count[word] >= n for word, n in least.items()), count
    assert "F2FP" not in least or count["F2FP"] == least["F2FP"]  # two numbers at a time
    assert plan.atom != FMA or "STG.E.128" in cubin.sass


#: what a product of f32 is made of: plan, layout, FFMA and LDS of the loop, registers at most
LARGE = Plan(FMA, 128, 256, 32, 2, 4, 8, depth=4, copy=BULK)
ARITHMETIC: dict[str, tuple[Plan, str, int, int, int]] = {
    "both by boxes": (LARGE, "ab", 2048, 96, 216),
    "a turned by copies": (LARGE, "b", 2048, 96, 232),
    "b turned by copies": (LARGE, "a", 2048, 96, 248),
    "both turned by copies": (LARGE, "", 2048, 96, 252),
    "two blocks": (
        *(Plan(FMA, 128, 128, 32, 2, 2, 8, depth=3, copy=BULK, blocks_per_sm=2), "ab"),
        *(2048, 96, 216),
    ),
    "slices of 16": (
        *(Plan(FMA, 128, 64, 64, 2, 1, 8, depth=4, copy=BULK, warps_k=4), "ab"),
        *(2048, 96, 224),
    ),
    "slices of 8": (
        *(Plan(FMA, 64, 32, 64, 1, 1, 8, depth=8, copy=BULK, warps_k=8), "ab"),
        *(512, 32, 128),
    ),
    "a ring of copies": (
        *(Plan(FMA, 128, 128, 16, 2, 4, depth=3, copy=CP_ASYNC), "b"),
        *(1024, 80, 168),
    ),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_the_loop_of_a_product_by_arithmetic(name: str) -> None:
    """A body of FFMA, its operands in loads of 16 bytes and no others, all in registers."""
    plan, turned, multiplied, loaded, registers = ARITHMETIC[name]
    body = product(4096, 4096, 4096, dtypes.f32, turned)
    cubin = uopc.compile(body, Opts(gpu=True, plan=plan), "sm_90a").steps[0].cubin
    used = cubin.resources
    assert not used.spills and not used.stack_bytes and used.registers <= registers, used
    at = [
        m.group(1)
        for m in re.finditer(r"/\*[0-9a-f]{4,}\*/ +((?:@!?U?P\w+ )? *[\w.]+)", cubin.sass)
    ]
    loop = at[at.index("FFMA") : len(at) - at[::-1].index("FFMA")]
    assert loop.count("FFMA") == multiplied
    # the ptxas of today puts loads that never run ("@!PT LDS") before its LDGSTS
    count = Counter(word for word in at if "LDS" in word and "@!PT" not in word)
    added = (plan.warps_k > 1) * plan.held.registers // 4
    first = loaded // plan.unrolled
    assert {w: n for w, n in count.items() if "LDG" not in w} == {"LDS.128": loaded + first + added}


@pytest.mark.gpu
@pytest.mark.parametrize("name", STORED)
def test_a_result_that_leaves_by_tensor_copies_launched(name: str) -> None:
    body = product(300, 264, 200, dtypes.bf16).cast(dtypes.bf16)
    arrays = whole_numbers(body)
    kernel = uopc.compile(body, Opts(gpu=True, plan=STORED[name]), "cuda")
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


@pytest.mark.gpu
@pytest.mark.parametrize("turned", ["", "a", "b"])
@pytest.mark.parametrize("name", PLANS)
def test_launched(name: str, turned: str) -> None:
    body = product(200, 130, 100, of(PLANS[name]), turned)
    if target_of(PLANS[name]) == "sm_90a" and cuda.device_target().sm != 90:
        pytest.skip(f"{name} needs sm_90a")
    opts = Opts(gpu=True, plan=PLANS[name])
    arrays = whole_numbers(body)
    assert_same(uopc.compile(body, opts, "cuda")(*arrays.values()), evaluate(body, arrays))

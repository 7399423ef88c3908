"""Operands that kernels of their own write: the same numbers, in rows that wide copies can read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

import uopc
from tests.convolutions import convolution
from tests.helpers import assert_same
from tests.kernels import OUT, indexed, param
from tests.passes.test_products import (
    AROUND,
    BF16,
    PLANS,
    SMALL,
    around,
    gives_its_numbers,
    of,
    product,
    times,
    whole_numbers,
)
from uopc import layouts
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.layouts import K_MAJOR, MN_MAJOR
from uopc.opts import Opts
from uopc.passes.write_operands import write_operands
from uopc.pipeline import gpu_lower
from uopc.plan import BULK, CP_ASYNC, FMA, Plan
from uopc.runtime import cuda
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Engine, Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

BOTH = ("a", "b")
RINGS = ("fma, a ring", "mma, a ring", "mma, roles", "wgmma, a ring", "wgmma, roles")


def engines(kernel: uopc.Kernel) -> dict[str, Engine | None]:
    """How the tiles of the product, the last step, are brought."""
    mapped = kernel.steps[-1].after("tile_product")
    return {u.arg.name: u.arg.engine for u in toposort(mapped) if u.op is Ops.STAGE}


def copies(kernel: uopc.Kernel) -> set[int]:
    """Bytes of the cp.async of the last step."""
    text = kernel.steps[-1].cuda_source
    return {int(n) for n in re.findall(r"  ptx_cp_async_(\d+)(?:_if)?\(", text)}


@pytest.mark.parametrize("written", [("a",), ("b",), BOTH])
@pytest.mark.parametrize("turned", ["", "a", "ab"])
@pytest.mark.parametrize("name", RINGS)
def test_numbers(name: str, turned: str, written: tuple[str, ...]) -> None:
    """Of sizes that no vector divides; what is written comes by the plan's own way of copying."""
    plan = replace(PLANS[name], written=written)
    kernel = gives_its_numbers(product(70, 90, 37, of(plan), turned), plan)
    assert len(kernel.steps) == 1 + len(written)
    way = Engine.BULK if plan.copy == BULK else Engine.CP_ASYNC
    assert {engines(kernel)[n] for n in written} == {way}
    if plan.copy == CP_ASYNC:
        assert 16 in copies(kernel)
    if plan.copy == CP_ASYNC and written == BOTH:
        assert copies(kernel) == {16}


@given(st.data())
def test_any_sizes_majors_and_plans(data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(2, 150)) for _ in range(3))
    written = data.draw(st.sampled_from([("a",), ("b",), BOTH]))
    major = {x: data.draw(st.sampled_from([K_MAJOR, MN_MAJOR])) for x in written}
    major = major if data.draw(st.booleans()) else {}
    plan = replace(PLANS[data.draw(st.sampled_from(RINGS))], written=written, major=major)
    opts = Opts(gpu=True, plan=plan)
    assert Opts.from_json(opts.to_json()) == opts
    turned = data.draw(st.sampled_from(["", "a", "b", "ab"]))
    gives_its_numbers(product(m, n, k, of(plan), turned), plan)


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize("plan", ["fma, a ring", "mma, a ring", "wgmma, roles"])
def test_expressions(plan: str, name: str) -> None:
    """Each is evaluated once for an element, and then copied."""
    kernel = gives_its_numbers(around(name, of(PLANS[plan])), replace(PLANS[plan], written=BOTH))
    assert None not in engines(kernel).values()


@pytest.mark.parametrize("major", [{}, {"a": K_MAJOR}, {"a": MN_MAJOR, "b": MN_MAJOR}])
@pytest.mark.parametrize("plan", ["fma, a ring", "mma, a ring", "wgmma, roles"])
def test_batches_and_several_axes(plan: str, major: dict[str, str]) -> None:
    dtype = of(PLANS[plan])
    z, m, n, k, j = 3, 20, 33, 7, 5
    a = param(0, z, m, j, k, dtype=dtype).permute((0, 1, 3, 2)).reshape((z, m, 1, k, j))
    b = param(1, n, z, j, k, dtype=dtype).permute((1, 0, 3, 2)).reshape((z, 1, n, k, j))
    shape = (z, m, n, k, j)
    wide = a.expand(shape).cast(dtypes.f32) * b.expand(shape).cast(dtypes.f32)
    kernel = gives_its_numbers(
        wide.reduce(Ops.ADD, 2), replace(PLANS[plan], written=BOTH, major=major)
    )
    assert None not in engines(kernel).values()


@pytest.mark.parametrize("major", [K_MAJOR, MN_MAJOR])
def test_blocks_that_go_on_and_results_by_tensor_copies(major: str) -> None:
    """Tensor copies clip what an axis has been made longer by."""
    z, m, n, k = 2, 140, 136, 75
    shape = (z, m, n, k)
    a = param(0, z, m, k, dtype=dtypes.bf16).reshape((z, m, 1, k)).expand(shape)
    b = param(1, z, n, k, dtype=dtypes.bf16).reshape((z, 1, n, k)).expand(shape)
    body = (a.cast(dtypes.f32) * b.cast(dtypes.f32)).reduce(Ops.ADD, 1).cast(dtypes.bf16)
    plan = replace(
        PLANS["wgmma, roles"],
        blocks=3,
        store=BULK,
        written=BOTH,
        major={"a": major, "b": major},
    )
    kernel = gives_its_numbers(body, plan)
    assert set(engines(kernel).values()) == {Engine.BULK} and len(engines(kernel)) == 3


@pytest.mark.parametrize("fields", [dict(swap=True), dict(splits=2), dict(swap=True, splits=3)])
@pytest.mark.parametrize("written", [("a",), BOTH])
@pytest.mark.parametrize("name", RINGS)
def test_transposed_and_split_products(
    name: str, written: tuple[str, ...], fields: dict[str, int]
) -> None:
    """The names are those of the product as it is made: "a" goes along block_m."""
    plan = replace(PLANS[name], written=written, **fields)  # type: ignore[arg-type]
    kernel = gives_its_numbers(product(50, 90, 215, of(plan), "a"), plan)
    assert engines(kernel)["a"] is (Engine.BULK if plan.copy == BULK else Engine.CP_ASYNC)
    reads = {p.slot for p in kernel.steps[0].source.params if p.slot < 2}
    assert reads == {1 if plan.swap else 0}


@pytest.mark.parametrize("types", ["tf32", "f8e4m3", "i8"])
def test_instructions_that_want_k_contiguous_take_operands_that_lie_otherwise(types: str) -> None:
    a = next(
        x
        for x in layouts.ATOMS.values()
        if x.engine == "wgmma" and ".registers" not in x.name and x.name.endswith(f".{types}")
        if x.n == 32
    )
    plan = Plan(a.name, 64, 64, 128 // a.a.element_bytes, 1, 1, depth=2, copy=BULK, written=BOTH)
    x, y = (param(s, 161, 72, dtype=o.dtype).permute((1, 0)) for s, o in enumerate((a.a, a.b)))
    kernel = gives_its_numbers(times(x, y, a.accumulator.dtype), plan)
    assert set(engines(kernel).values()) == {Engine.BULK}


@pytest.mark.parametrize("written", [(), ("a",), BOTH])
@pytest.mark.parametrize("channels", [64, 24, 3])
@pytest.mark.parametrize("name", ["fma, a ring", "mma, a ring", "wgmma, a ring", "wgmma, roles"])
def test_convolutions(name: str, channels: int, written: tuple[str, ...]) -> None:
    """Windows of images as they are staged, or written first: zeros at the borders either way."""
    plan = replace(PLANS[name], written=written)
    body = convolution(2, 7, 6, channels, 40, dtype=of(plan))
    kernel = gives_its_numbers(body, plan)
    if plan.atom != FMA and plan.copy == CP_ASYNC and channels % 8 == 0:
        assert copies(kernel) == {16}


# ---- the graph, and what is refused
def test_the_graphs(golden: Callable[[str, str], None]) -> None:
    body = product(130, 70, 37, dtypes.bf16, "b")
    root, arrays = indexed(body), whole_numbers(body)
    plan = replace(PLANS["mma, a ring"], written=BOTH)
    firsts, rest, buffers = write_operands(root, plan, OUT + 1)
    assert [b.arg.shape for b in buffers] == [(130 * 40,), (37 * 72,)]
    have: dict[int, Array] = {**arrays}
    for graph in (*firsts, rest):
        check(graph, Stage.INDEXED)
        have |= run(graph, have, Stage.INDEXED)
    assert_same(have[OUT].reshape(body.shape), evaluate(body, arrays))
    golden("write_operands/both.txt", "\n\n".join(map(show, (root, *firsts, rest))))


@pytest.mark.parametrize(
    ("k", "pitch"), [(1023, 1024), (4099, 4160), (100, 104), (1024, 1024), (1000, 1024)]
)
def test_rows_begin_on_16_bytes_and_on_a_line_where_that_is_cheap(k: int, pitch: int) -> None:
    plan = replace(PLANS["wgmma, roles"], written=("a",))
    _, _, (memory,) = write_operands(indexed(product(70, 90, k, dtypes.bf16)), plan, 11)
    assert memory.arg.shape == (70 * pitch,)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (dict(written=("c",)), "it names 'a' and 'b'"),
        (dict(written=("a", "a")), "each once at most"),
        (dict(major={"a": "K"}), "major names 'a', which is not written"),
        (dict(written=("a",), major={"a": "N"}), "there are 'K', 'MN'"),
    ],
)
def test_what_cannot_be_written_is_an_error(fields: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        Plan(**fields)  # type: ignore[arg-type]


def test_one_kernel_alone_is_an_error() -> None:
    opts = Opts(gpu=True, plan=replace(SMALL, written=("a",)))
    with pytest.raises(UsageError, match=r"Use uopc\.compile"):
        gpu_lower(product(64, 64, 64, dtypes.f32), buffer(9, dtypes.f32, (64 * 64,)), opts)


# ---- for real archs
WGMMA = Plan("wgmma.m64n128k16.bf16", 128, 128, 64, 2, 1, depth=4, copy=BULK)
MMA = Plan(BF16, 128, 128, 32, 2, 2, depth=4, copy=CP_ASYNC)
COMPILED: dict[str, tuple[UOp, Plan, dict[str, int]]] = {
    "odd rows, wgmma": (
        product(4097, 1023, 1023, dtypes.bf16),
        replace(WGMMA, written=BOTH),
        {"HGMMA": 4, "UTMALDG": 2},
    ),
    "odd rows, mma": (
        product(4097, 1023, 1023, dtypes.bf16),
        replace(MMA, written=BOTH),
        {"HMMA": 64, "LDGSTS": 8},
    ),
    "a convolution, mma": (convolution(64, 56, 56, 128, 128), MMA, {"HMMA": 64, "LDGSTS": 8}),
    "a convolution, wgmma": (
        convolution(64, 56, 56, 128, 128),
        replace(WGMMA, copy=CP_ASYNC),
        {"HGMMA": 4, "LDGSTS": 8},
    ),
    "a written convolution, wgmma": (
        convolution(64, 56, 56, 128, 128),
        replace(WGMMA, written=("a",)),
        {"HGMMA": 4, "UTMALDG": 2},
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_registers_and_instructions(name: str) -> None:
    body, plan, least = COMPILED[name]
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), "sm_90a")
    for step in kernel.steps:
        used = step.cubin.resources
        assert not used.spills and not used.stack_bytes and not used.remarks, used
    found = re.findall(
        r"/\*[0-9a-f]{4,}\*/ +(?:@!?U?P\d+ )?([A-Z0-9]+)", kernel.steps[-1].cubin.sass
    )
    count = Counter(found)
    assert all(count[word] >= n for word, n in least.items()), count


@pytest.mark.gpu
@pytest.mark.parametrize("written", [("a",), BOTH])
@pytest.mark.parametrize("turned", ["", "a", "b"])
@pytest.mark.parametrize("name", RINGS)
def test_launched(name: str, turned: str, written: tuple[str, ...]) -> None:
    plan = replace(PLANS[name], written=written)
    if "wgmma" in name and cuda.device_target().sm != 90:
        pytest.skip(f"{name} needs sm_90a")
    body = product(300, 130, 101, of(plan), turned)
    arrays = whole_numbers(body)
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), "cuda")
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))


@pytest.mark.gpu
@pytest.mark.parametrize("written", [(), ("a",)])
@pytest.mark.parametrize("name", ["mma, a ring", "wgmma, a ring", "wgmma, roles"])
def test_launched_convolutions(name: str, written: tuple[str, ...]) -> None:
    plan = replace(PLANS[name], written=written)
    if "wgmma" in name and cuda.device_target().sm != 90:
        pytest.skip(f"{name} needs sm_90a")
    body = convolution(3, 14, 13, 24, 72)
    arrays = whole_numbers(body)
    kernel = uopc.compile(body, Opts(gpu=True, plan=plan), "cuda")
    assert_same(kernel(*arrays.values()), evaluate(body, arrays))

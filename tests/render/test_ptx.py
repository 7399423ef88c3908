"""The GPU's own ops as CUDA text: scopes, atomics, warps, copies, tensor cores, and who lacks them.

That NVRTC takes them: tests/examples/test_examples.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import alloc
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError, TargetError, UsageError
from uopc.examples import EXAMPLES
from uopc.examples.parts import index, lanes, loop, mbarriers, registers, shared, warps
from uopc.kernel import TensorMapUse
from uopc.passes.linearize import linearize
from uopc.pipeline import render_cuda
from uopc.render import ptx
from uopc.render.base import c_literal, shared_layout
from uopc.runtime.nvrtc import compile_cubin
from uopc.target import target
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.infer import ATOMIC_DTYPES
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import (
    Atomic,
    AxisType,
    Combine,
    DescriptorArg,
    Engine,
    Fence,
    ShuffleMode,
    TensorMapArg,
    Vote,
)

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ("compact", "histogram", "divergent", "mma_product", "bulk_transpose")


def body(root: UOp, on: str = "sm_90a") -> str:
    """The kernel's own text, without the functions before it."""
    text = str(render_cuda(root, "k", on))
    return text[text.index('extern "C" __global__') :]


@pytest.mark.parametrize("name", [*GOLDENS, "specialised_product"])
def test_examples(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"source/{name}.cu", render_cuda(EXAMPLES[name].build(), name, "sm_90a"))


DIGESTS = """
from hashlib import sha256
from uopc.examples import EXAMPLES
from uopc.pipeline import render_cuda
for name, e in EXAMPLES.items():
    print(name, sha256(render_cuda(e.build(), name, "sm_90a").encode()).hexdigest())
"""


def test_texts_depend_on_no_hash() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] and len(runs[0].splitlines()) == len(EXAMPLES)


# ---- scopes and threads
def roles(*parts: tuple[int, int, int], count: int = 12, between: bool = False) -> UOp:
    """A kernel of `count` warps whose roles are (first, warps, registers)."""
    x, lane = buffer(0, dtypes.f32, (64,)), lanes()
    grid = range_(2, 0, AxisType.GLOBAL)
    c = Cursor()
    c.store(x.index(lane + warps(count) * 0), 0.0)
    for n, (first, number, size) in enumerate(parts):
        with c.role(f"part{n}", first, number, size):
            at = grid * 32 + (lane + n) if between else lane + n
            c.store(x.index(at), c.load(x.index(at)) + 1.0)
    return c.sink()


def heads(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if " else" in line or " if" in line]


def test_roles_of_all_warps_end_in_an_else() -> None:
    text = body(roles((0, 8, 232), (8, 4, 40)))
    assert heads(text) == ["if (warp < 8) {", "else {"]
    assert "const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0);" in text
    first = text.index("setmaxnreg.dec.sync.aligned.u32 232;")
    assert text.index("role part0") < first < text.index("else {")


def test_roles_of_some_warps_name_them() -> None:
    text = body(roles((0, 1, 0), (2, 3, 0)))
    assert heads(text) == ["if (warp == 0) {", "else if (warp >= 2 && warp < 5) {"]


def test_roles_that_share_warps_follow_each_other() -> None:
    assert heads(body(roles((0, 4, 0), (2, 2, 0)))) == [
        "if (warp < 4) {",
        "if (warp >= 2 && warp < 4) {",
    ]


def test_values_between_roles_stand_before_them() -> None:
    text = body(roles((0, 4, 0), (4, 8, 0), between=True))
    assert heads(text) == ["if (warp < 4) {", "else {"]
    assert text.index("* 32") < text.index("if (warp")


def test_warps_that_are_not_whole_have_no_broadcast() -> None:
    x, thread = buffer(0, dtypes.f32, (48,)), range_(48, 1, AxisType.LOCAL)
    c = Cursor()
    c.store(x.index(thread), 0.0)
    with c.role("first", 0, 1):
        c.store(x.index(thread), 1.0)
    assert "const int warp = (int)threadIdx.x / 32;" in body(c.sink())


def test_the_warp_of_a_block_with_rows() -> None:
    x, row, column = (
        buffer(0, dtypes.f32, (4, 32)),
        *(range_(n, a, AxisType.LOCAL) for n, a in ((4, 0), (32, 1))),
    )
    c = Cursor()
    c.store(x.index(row, column), 0.0)
    with c.role("first", 0, 1):
        c.store(x.index(row, column), 1.0)
    assert "(int)(threadIdx.x + 32u * (threadIdx.y + 4u * threadIdx.z)) / 32" in body(c.sink())


# ---- atomics
@pytest.mark.parametrize(
    ("atomic", "dtype"), [(a, d) for a, ds in ATOMIC_DTYPES.items() for d in ds], ids=str
)
@pytest.mark.parametrize("space", [AddrSpace.GLOBAL, AddrSpace.SHARED], ids=lambda s: s.name)
def test_every_atomic_compiles(atomic: Atomic, dtype: DType, space: AddrSpace) -> None:
    x, out = buffer(0, dtype, (32,)), buffer(1, dtype, (64,))
    cells = out if space is AddrSpace.GLOBAL else alloc(space, dtype, 32)
    at = lanes()
    c = Cursor()
    if space is AddrSpace.SHARED:
        c.store(cells.index(at), 0)
        c.syncwarp()
    compare = c.load(x.index(0)) if atomic is Atomic.CAS else None
    value = c.load(x.index(at))
    c.atomic(atomic, cells.index(at), value, compare)
    c.store(out.index(at + 32), c.atomic(atomic, cells.index(at), value, compare))
    text = render_cuda(c.sink(), "k", "sm_75")
    lines = [line.strip() for line in text.splitlines() if "atomic" in line]
    assert [line.startswith("const ") for line in lines] == [False, True], "the second is used"
    assert not compile_cubin(text, "k", "sm_75").resources.spills


def test_compare_and_swap_compares_first() -> None:
    x = buffer(0, dtypes.f32, (1,))
    c = Cursor()
    c.atomic(Atomic.CAS, x.index(0), 2.0, 1.0)
    line = "atomicCAS((unsigned*)&p0[0], __float_as_uint(1.0f), __float_as_uint(2.0f))"
    assert f"  __uint_as_float({line});" in body(c.sink())


# ---- lanes together
def test_lanes_that_are_not_there_are_no_members() -> None:
    x, lane = buffer(0, dtypes.i32, (8,)), range_(8, 1, AxisType.LOCAL)
    c = Cursor()
    value = c.load(x.index(lane))
    c.syncwarp()
    c.store(x.index(lane), value.shuffle(1, ShuffleMode.UP), (value > 0).vote(Vote.ANY))
    text = body(c.sink())
    assert "__shfl_up_sync(0xffu, val0, 1)" in text
    assert "__any_sync(0xffu, ok0) != 0" in text and "__syncwarp(0xffu);" in text


@pytest.mark.parametrize("combine", [Combine.ADD, Combine.MAX], ids=str)
def test_a_warp_reduction_without_redux_goes_through_its_members(combine: Combine) -> None:
    new, old = (ptx.warp_reduce(combine, True, target(on)).text for on in ("sm_80", "sm_75"))
    assert "redux.sync" in new and "shfl" not in new
    assert "redux.sync" not in old and "left &= left - 1" in old
    assert ("unsigned r" in old) is (combine is Combine.ADD), "signed sums wrap as unsigned ones"


# ---- shared memory
def test_shared_memory_begins_where_its_users_want_it() -> None:
    x = buffer(0, dtypes.bf16, (64, 64))
    small, swizzled, plain = (shared(dtypes.bf16, n, s) for s, n in enumerate((8, 64 * 64, 8)))
    operand, full = shared(dtypes.bf16, 8 * 16, 3), mbarriers(1, 0, "full")
    c = Cursor()
    c.store(small.index(0), 0.0)
    c.bulk_load(swizzled.index(0), tensor_map(x, (64, 64), 128), full.index(0), index(0), index(0))
    c.store(plain.index(0), 0.0)
    sums = registers(dtypes.f32, 4)
    described = c.descriptor(operand.index(0), DescriptorArg(16, 256, 32))
    c.mma("wgmma.m64n8k16.bf16", sums.index(0), described, described)
    c.store(plain.index(1), c.load(sums.index(0)).cast(dtypes.bf16))
    offsets, size = shared_layout(linearize(c.sink()))
    assert [offsets[m] for m in (small, swizzled, plain, operand)] == [0, 1024, 9216, 9472]
    assert size == 9472 + 256


def test_mbarriers_follow_large_tiles() -> None:
    source = render_cuda(EXAMPLES["specialised_product"].build(), "k", "sm_90a")
    assert "extern __shared__ __align__(1024) unsigned char shared[];" in source
    assert "full0 = (unsigned long long*)(shared + 163840);" in source
    assert source.dynamic_shared_bytes == source.shared_bytes == 163840 + 2 * 32


# ---- tensor maps
def test_equal_tensor_maps_are_one_parameter() -> None:
    source = render_cuda(EXAMPLES["specialised_product"].build(), "k", "sm_90a")
    assert [use.slot for use in source.tensor_maps] == [2, 0, 1]
    box = TensorMapArg((256, 384), (384,), (128, 64), 128)
    assert source.tensor_maps[1] == TensorMapUse(0, dtypes.bf16, box)
    last = "const __grid_constant__ TensorMap map2) {"
    assert source[source.index('extern "C"') :].splitlines()[0].endswith(last)


def test_a_tensor_map_lies_inside_its_parameter() -> None:
    x, tile, full = buffer(0, dtypes.f32, (8, 32)), shared(dtypes.f32, 256), mbarriers(1, 0, "f")
    c = Cursor()
    wrong = tensor_map(x, (8, 32), shape=(9, 32), strides=(32,))
    c.bulk_load(tile.index(0), wrong, full.index(0), index(0), index(0))
    with pytest.raises(SpecError, match=r"views 288 elements of parameter 0, which has 256"):
        body(c.sink())


# ---- wgmma
def test_fences_pin_the_registers_that_they_cover() -> None:
    text = body(EXAMPLES["wgmma_registers"].build())
    fence = 'ptx_pin(sum0); ptx_pin(a1); asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
    assert fence in text
    wait = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); '
    assert f"{wait}ptx_pin(sum0); ptx_pin(a1);" in text


def test_a_wait_that_leaves_some_in_flight_pins_nothing() -> None:
    sums, tile = registers(dtypes.f32, 4), shared(dtypes.bf16, 128)
    x, thread = buffer(0, dtypes.f32, (128,)), range_(128, 0, AxisType.LOCAL)
    c = Cursor()
    operand = c.descriptor(tile.index(0), DescriptorArg(16, 256, 32))
    with c.loop(loop(2)):
        c.fence(Fence.WGMMA)
        c.mma("wgmma.m64n8k16.bf16", sums.index(0), operand, operand)
        c.commit(Engine.WGMMA)
        c.wait_group(Engine.WGMMA, 1)
    c.wait_group(Engine.WGMMA)
    c.store(x.index(thread), c.load(sums.index(0)))
    lines = [line.strip() for line in body(c.sink()).splitlines() if "wgmma." in line]
    assert [line.count("ptx_pin(reg0)") for line in lines] == [1, 0, 0, 1]
    assert lines[0].startswith("ptx_pin"), "before the fence, after the wait"


def test_mn_major_operands_are_immediates() -> None:
    k, mn = (render_cuda(EXAMPLES[n].build(), "k", "sm_90a") for n in ("wgmma_k", "wgmma_mn"))
    assert "ptx_wgmma_m64n64k16_bf16(" in k and "p, 1, 1, 0, 0;" in k
    assert "ptx_wgmma_m64n64k16_bf16_a_mn_b_mn(" in mn and "p, 1, 1, 1, 1;" in mn


def test_only_wgmma_keeps_or_not() -> None:
    sums, a = registers(dtypes.f32, 4), registers(dtypes.u32, 4, 1)
    c = Cursor()
    c.mma("mma.m16n8k16.bf16", sums.index(0), a.index(0), a.index(0), keep=UOp.const(False))
    with pytest.raises(SpecError, match="always adds; only wgmma takes a predicate"):
        body(c.sink())


# ---- who lacks what
@pytest.mark.parametrize(
    ("name", "on", "says"),
    [
        ("copy_ring_2", "sm_75", "COPY at .* needs cp.async, which sm_75 lacks.*'sm_80' or later"),
        ("mbarrier_handover", "sm_75", "MBAR_INIT .* needs mbarrier.*meet at a BARRIER"),
        ("mma_bf16", "sm_75", r"needs mma.sync.aligned.m16n8k16.*use another atom of uopc.layouts"),
        ("mma_f8", "sm_80", "m16n8k32.*which sm_80 lacks. Render for target='sm_89' or later"),
        (
            "bulk_tile_0",
            "sm_89",
            "TENSORMAP .* needs a bulk copy|FENCE .* needs fence.mbarrier_init",
        ),
        ("bulk_store", "sm_89", "needs stmatrix, which sm_89 lacks"),
        ("wgmma_k", "sm_90", "which sm_90 lacks. Render for target='sm_90a', or"),
        ("wgmma_k", "sm_100a", "which sm_100a lacks. Render for target='sm_90a', or"),
    ],
)
def test_what_a_target_lacks_is_said(name: str, on: str, says: str) -> None:
    with pytest.raises(TargetError, match=says) as caught:
        render_cuda(EXAMPLES[name].build(), name, on)
    assert str(caught.value).startswith(f"kernel {name}: ")


def test_registers_move_only_where_there_is_setmaxnreg() -> None:
    with pytest.raises(TargetError, match=r"setmaxnreg.*leave RoleArg"):
        render_cuda(roles((0, 4, 40), (4, 8, 0)), "k", "sm_90")
    assert "setmaxnreg.dec" in render_cuda(roles((0, 4, 40), (4, 8, 0)), "k", "sm_100a")


def test_waits_sleep_where_they_can() -> None:
    assert "mbarrier.try_wait.parity" in ptx.mbarrier_wait(target("sm_90")).text
    assert "mbarrier.test_wait.parity" in ptx.mbarrier_wait(target("sm_80")).text


# ---- people
@pytest.mark.parametrize("name", ["ptx_shared", "TensorMap", "uopc_report"])
def test_names_of_the_text_around_are_taken(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        render_cuda(EXAMPLES["votes"].build(), name)


def test_literals_of_any_text() -> None:
    assert c_literal('a "b" \\ c?\n') == r'"a \042b\042 \134 c\077\n"'
    assert c_literal("é") == r'"\303\251"'


def test_formats_show_what_stands_there() -> None:
    c = Cursor()
    c.printf("100% {} of {}", index(2), UOp.const(3, dtypes.u64))
    assert r'printf("100%% %lld of %llu\n", (long long)2, (unsigned long long)3ull);' in body(
        c.sink()
    )


def test_asserts_have_numbers() -> None:
    x = buffer(0, dtypes.i32, (32,))
    c = Cursor()
    value = c.load(x.index(lanes()))
    c.check(value > 0, "one")
    c.check(value < 9, 'two "quoted"')
    c.check(value < 8, "one")
    source = render_cuda(c.sink(), "k")
    assert source.asserts == ("one", 'two "quoted"')
    assert 'uopc_assert_failed(1, "two \\042quoted\\042");' in source
    assert source.count('uopc_assert_failed(0, "one");') == 2
    assert not compile_cubin(source, "k", "sm_80").resources.spills


@pytest.mark.parametrize("fence", [Fence.BLOCK, Fence.DEVICE], ids=str)
def test_fences_of_memory_have_functions(fence: Fence) -> None:
    x = buffer(0, dtypes.i32, (32,))
    c = Cursor()
    c.store(x.index(lanes()), 1)
    c.fence(fence)
    text = body(c.sink(), "sm_75")
    assert ("__threadfence_block();" in text) is (fence is Fence.BLOCK)
    assert ("__threadfence();" in text) is (fence is Fence.DEVICE)

"""Kernels without reductions: vectors, copies, and tiles where bytes follow different axes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import outputs, param
from uopc.choose.facts import KernelFacts
from uopc.choose.gpu import Aim, rank
from uopc.dtype import DType, dtypes
from uopc.kernel import KernelBody, Output
from uopc.opts import Opts
from uopc.passes.linearize import linearize
from uopc.passes.rangeify import rangeify_kernel
from uopc.pipeline import lower
from uopc.render.cuda import render_cuda
from uopc.target import target
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import Ops

H200 = Aim(target("sm_90"))
N = 1 << 26


def first(body: UOp) -> Opts:
    return rank(KernelFacts.of([body], outputs([body])), H200)[0]


def transpose(m: int, n: int, dtype: DType = dtypes.f32, slot: int = 0) -> UOp:
    return param(slot, m, n, dtype=dtype).permute((1, 0))


def tile(opts: Opts) -> tuple[int, ...]:
    """Elements of a tile along the kernel's first two axes."""
    digits = [dict(d) for d in (opts.upcast, opts.local, opts.vector)]
    return tuple(
        d0 * d1 * d2 for d0, d1, d2 in (tuple(d.get(a, 1) for d in digits) for a in (0, 1))
    )


# ---- tiles
@pytest.mark.parametrize(
    ("dtype", "lanes", "shape", "turned"),
    [
        (dtypes.u8, {0: 32, 1: 8}, (128, 128), {0: 16, 1: 4}),
        (dtypes.bf16, {0: 16, 1: 16}, (128, 128), {0: 8, 1: 8}),
        (dtypes.f32, {0: 16, 1: 16}, (64, 64), {0: 4, 1: 4}),
        (dtypes.f64, {0: 32, 1: 8}, (32, 32), {0: 2}),
    ],
)
def test_a_transpose_is_sixteen_bytes_wide_on_both_sides(
    dtype: DType, lanes: dict[int, int], shape: tuple[int, int], turned: dict[int, int]
) -> None:
    opts = first(transpose(8192, 8192, dtype))
    assert dict(opts.local) == lanes and tile(opts) == shape and dict(opts.turn) == turned
    assert dict(opts.vector) == {1: 16 // dtype.itemsize} and opts.grid == (1, 0)


@pytest.mark.parametrize(
    ("dtype", "shape", "threads"), [(dtypes.bf16, (64, 64), 512), (dtypes.f32, (32, 128), 512)]
)
def test_odd_rows_are_moved_one_by_one(dtype: DType, shape: tuple[int, int], threads: int) -> None:
    opts = first(transpose(8191, 8193, dtype))
    assert not opts.vector and tile(opts) == shape
    assert dict(opts.local) == {1: 32, 0: threads // 32}


def test_small_transposes_have_small_tiles() -> None:
    assert tile(first(transpose(256, 256))) == (32, 32)
    assert not first(transpose(24, 30)).turn


def test_lanes_follow_the_stores_unless_their_tiles_are_much_larger() -> None:
    two = transpose(8192, 8192) + transpose(8192, 8192, slot=1)
    assert first(two).lanes[0] == 1
    three = first(two + transpose(8192, 8192, slot=2))
    assert three.lanes[0] == 0 and dict(three.turn) == {1: 4} and three.grid == (1, 0)


def test_what_stays_in_a_cache_is_not_turned() -> None:
    small = param(1, 64, 64).permute((1, 0)).reshape((1, 64, 64)).expand((8192, 64, 64))
    assert not first(param(0, 8192, 64, 64) + small).turn
    row = param(1, 8192).reshape((8192, 1)).expand((8192, 8192))
    assert not first(param(0, 8192, 8192) + row).turn


def test_channels_last_and_first() -> None:
    for body in (
        param(0, 32, 64, 112, 112).permute((0, 2, 3, 1)),
        param(0, 32, 112, 112, 64).permute((0, 3, 1, 2)),
    ):
        opts = first(body)
        assert sum(opts.merge) == 4 and len(opts.merge) == 3
        assert dict(opts.turn) == {1: 4, 2: 4} and opts.lanes[0] == 2


# ---- vectors and copies
def shifted(dtype: DType, by: int = 1) -> UOp:
    return param(0, N + by, dtype=dtype).shrink(((by, N + by),)) + param(1, N, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "vector", "copies"), [(dtypes.u8, 8, 2), (dtypes.bf16, 8, 1), (dtypes.f32, 4, 1)]
)
def test_shifted_views_are_read_in_vectors(dtype: DType, vector: int, copies: int) -> None:
    opts = first(shifted(dtype))
    assert dict(opts.vector) == {0: vector} and dict(opts.upcast).get(0, 1) == copies


@pytest.mark.parametrize(
    ("dtype", "pitch", "vector", "copies"),
    [
        (dtypes.bf16, 4097, 8, 8),
        (dtypes.bf16, 4100, 8, 2),
        (dtypes.f32, 4098, 4, 2),
        (dtypes.u8, 4097, 8, 8),
    ],
)
def test_rows_of_an_odd_pitch_have_copies_that_are_aligned_alike_again(
    dtype: DType, pitch: int, vector: int, copies: int
) -> None:
    x = param(0, 8192, pitch, dtype=dtype).shrink(((0, 8192), (0, 4096)))
    opts = first(x + param(1, 8192, 4096, dtype=dtype))
    assert dict(opts.vector) == {1: vector} and dict(opts.upcast) == {0: copies}
    assert dict(opts.local) == {1: 128}


def test_stores_that_begin_anywhere_have_copies_of_one_element() -> None:
    opts = first(param(0, 8192, 4096, dtype=dtypes.bf16).pad(((0, 0), (0, 1))))
    assert not opts.vector and dict(opts.local) == {1: 256}


def test_lanes_go_along_axes_that_they_divide() -> None:
    opts = first(param(0, 3584, 3, 128, dtype=dtypes.bf16).permute((1, 0, 2)))
    assert dict(opts.vector) == {2: 8} and dict(opts.local) == {2: 16, 1: 16}
    few = first(param(0, 7, 3, 16).permute((1, 0, 2)))
    assert prod(n for _, n in few.local) >= 32


def test_a_small_row_that_is_not_aligned_does_not_matter() -> None:
    row = param(1, 2051).shrink(((3, 2051),)).reshape((1, 2048)).expand((32768, 2048))
    assert dict(first(param(0, 32768, 2048) + row).vector) == {1: 4}


def test_what_is_written_in_place_is_not_read_beside_its_elements() -> None:
    x = param(0, 4096)
    value = x.shrink(((1, 4096),)).pad(((0, 1),)) * 2.0
    root = rangeify_kernel(KernelBody((Output(value, x),), (4096,), {value: (0,)}))
    assert not rank(KernelFacts.of_indexed(root), H200)[0].vector


def test_dear_elements_have_half_vectors_and_two_copies() -> None:
    opts = first(param(0, N).exp())
    assert (opts.local, opts.vector, opts.upcast) == (((0, 128),), ((0, 2),), ((0, 2),))


def test_a_folded_axis_has_short_vectors_and_copies() -> None:
    shape = (8, 64, 512, 257)
    row = param(1, 64, 257, dtype=dtypes.bf16).reshape((1, 64, 1, 257)).expand(shape)
    opts = first(param(0, *shape, dtype=dtypes.bf16) * row)
    assert (opts.local, opts.vector, opts.upcast) == (((2, 64),), ((2, 4),), ((2, 4),))


# ---- whatever the kernel
@st.composite
def permuted(draw: st.DrawFn) -> UOp:
    """One to three operands of any type in any order of their axes, cast to one type."""
    count = draw(st.integers(2, 4))
    sizes = st.sampled_from((2, 3, 8, 15, 16, 24, 32, 63, 64, 96, 100, 256, 1000))
    shape = [draw(sizes) for _ in range(count)]
    types = st.sampled_from((dtypes.u8, dtypes.bf16, dtypes.f32, dtypes.f64))
    to, body = draw(types), None
    for slot in range(draw(st.integers(1, 3))):
        order = list(draw(st.permutations(range(count))))
        x = param(slot, *(shape[a] for a in order), dtype=draw(types))
        x = x.permute([order.index(a) for a in range(count)]).cast(to)
        body = x if body is None else UOp(Ops.MAX, (body, x))
    assert body is not None
    return body


@settings(max_examples=60, deadline=None)
@given(permuted())
def test_every_choice_is_a_kernel(body: UOp) -> None:
    facts = KernelFacts.of([body], outputs([body]))
    for opts in rank(facts, H200):
        sink = lower(facts.root, opts)
        render_cuda(linearize(sink), "kern", "sm_90")
        if opts.turn:
            assert any(u.op is Ops.BARRIER for u in toposort(sink))

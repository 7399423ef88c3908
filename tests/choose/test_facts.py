"""What choices are made from: strides, widths of accesses, streams, products, merged axes."""

from __future__ import annotations

import pytest

from tests.kernels import columns, indexed, numerator, outputs, param, product, softmax
from uopc.choose.facts import KernelFacts, pow2_at_least, pow2_at_most
from uopc.dtype import DType, dtypes
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


def facts(*bodies: UOp) -> KernelFacts:
    return KernelFacts.of(bodies, outputs(bodies))


def test_axes_of_outputs_come_before_reduced_ones() -> None:
    f = facts(softmax(param(0, 33, 1000)))
    assert (f.sizes, f.outputs, f.reduced) == ((33, 1000), (0, 1), (1,))
    f = facts(columns(param(0, 100, 7)))
    assert (f.sizes, f.outputs, f.reduced) == ((7, 100), (0,), (1,))
    assert len(f.accesses) == 2 and [a.store for a in f.accesses] == [False, True]


def plain(*bodies: UOp) -> KernelFacts:
    """Facts of a kernel whose axes are not merged."""
    return KernelFacts.of_indexed(indexed(*bodies))


# ---- strides
def test_strides_in_elements() -> None:
    f = plain(param(0, 30, 40).permute((1, 0)).flip((0,)) + 1.0)
    assert {(a.store, c) for a, c in f.strides(0)} == {(False, -1), (True, 30)}
    assert {(a.store, c) for a, c in f.strides(1)} == {(False, 40), (True, 1)}


def test_the_axis_that_moves_most_bytes_element_by_element_is_contiguous() -> None:
    """A transposed load against the stores: the larger elements win."""
    for loaded, stored, rows in ((dtypes.f64, dtypes.f16, True), (dtypes.f16, dtypes.f64, False)):
        f = plain(param(0, 30, 40, dtype=loaded).permute((1, 0)).cast(stored))
        assert f.contiguous(0) is rows and f.contiguous(1) is not rows


def test_a_small_row_does_not_make_an_axis_contiguous() -> None:
    """Bytes of the whole kernel count: a bias of 40 elements against 1,200."""
    x = param(0, 30, 40).permute((1, 0)).reduce(Ops.MAX, 1)
    assert facts(x).contiguous(0) and not facts(x).contiguous(1)
    rows = param(1, 40).reshape((40, 1)).expand((40, 30))
    f = facts((param(0, 40, 30) + rows).reduce(Ops.MAX, 1))
    assert f.contiguous(1) and not f.contiguous(0)


# ---- widths
@pytest.mark.parametrize(
    ("dtype", "width"),
    [(dtypes.f32, 4), (dtypes.f16, 8), (dtypes.f64, 2), (dtypes.i8, 16), (dtypes.bool, 16)],
    ids=str,
)
def test_sixteen_bytes_where_every_row_begins_at_a_multiple(dtype: DType, width: int) -> None:
    assert plain(param(0, 10, 160, dtype=dtype).flip((0,))).vector(1) == width


@pytest.mark.parametrize(("row", "width"), [(100, 4), (102, 2), (101, 1)])
def test_rows_that_begin_elsewhere_have_narrower_ones(row: int, width: int) -> None:
    assert plain(param(0, 10, row).flip((0,))).vector(1) == width


def test_the_narrowest_access_decides() -> None:
    wide, odd = param(0, 10, 128), param(1, 10, 130).shrink(((0, 10), (1, 129)))
    assert plain(wide + 1.0).vector(1) == 4
    assert plain(wide + odd).vector(1) == 1
    assert plain(wide.cast(dtypes.f64)).vector(1) == 2


def test_what_is_not_contiguous_has_no_width() -> None:
    assert plain(param(0, 64, 64).permute((1, 0)) + 1.0).vector(0) == 4  # its loads
    assert plain(param(0, 64, 64).flip((1,)).reduce(Ops.MAX, 1)).vector(1) == 1


# ---- walks
def test_an_axis_is_held_where_it_is_walked_again() -> None:
    x = param(0, 33, 1000)
    assert facts(softmax(x)).held(1) and not facts(softmax(x)).held(0)
    assert not facts(x.reduce(Ops.ADD, 1)).held(1)
    assert not facts(x.reduce(Ops.ADD, 1), x * 2.0).held(1)
    assert not facts(x.reduce(Ops.MAX, 1), x.reduce(Ops.MIN, 1)).held(1), "one walk finds both"
    assert facts(x.reduce(Ops.MAX, 1), numerator(x).reduce(Ops.ADD, 1)).held(1)


def test_streams_are_loads_of_different_memories_or_offsets() -> None:
    x, y = param(0, 33, 1000), param(1, 33, 1000)
    assert facts(x.reduce(Ops.ADD, 1)).streams(1) == 1
    assert facts((x + x * x).reduce(Ops.ADD, 1)).streams(1) == 1
    assert facts((x + y).reduce(Ops.ADD, 1)).streams(1) == 2
    assert facts((x + x.flip((1,))).reduce(Ops.ADD, 1)).streams(1) == 2


# ---- products
def test_products() -> None:
    assert facts(product(64, 48, 32)).product() == (0, 1, 2)
    a, b = param(0, 5, 7, 9), param(1, 5, 9, 8)  # batches: every operand has the first axis
    x = a.reshape((5, 7, 1, 9)).expand((5, 7, 8, 9))
    y = b.permute((0, 2, 1)).reshape((5, 1, 8, 9)).expand((5, 7, 8, 9))
    assert facts((x * y).reduce(Ops.ADD, 1)).product() == (1, 2, 3)


def test_what_is_no_product() -> None:
    x, y = param(0, 64, 32), param(1, 64, 32)
    assert facts((x * x).reduce(Ops.ADD, 1)).product() is None
    assert facts((x * y).reduce(Ops.ADD, 1)).product() is None
    assert facts(softmax(x)).product() is None
    assert facts(x * y).product() is None


# ---- merged axes
@pytest.mark.parametrize(
    ("body", "merge"),
    [
        (param(0, 8, 4, 64, 64) * 2.0, (4,)),
        (param(0, 24, 40).permute((1, 0)) * 2.0, (2,)),  # 24 columns would fill no block
        (param(0, 64, 64).permute((1, 0)) * 2.0, ()),  # but they fill a tile
        (param(0, 4096, 4096).permute((1, 0)) * 2.0, ()),
        (param(0, 3, 100).permute((1, 0)) * 2.0, (2,)),
        (param(0, 6, 1, 5).reduce(Ops.MAX, 1), (2,)),
        (softmax(param(0, 33, 1000)), ()),
        (param(0, 2, 3, 128).pad(((0, 0), (1, 0), (0, 0)), 1.0), ()),
    ],
    ids=["contiguous", "transposed", "tile", "large", "short-rows", "of-one", "reduced", "padded"],
)
def test_axes_that_are_merged(body: UOp, merge: tuple[int, ...]) -> None:
    assert facts(body).merge == merge


def test_outputs_of_different_shapes_keep_their_axes() -> None:
    x = param(0, 8, 16)
    assert facts(x * 2.0, x.reduce(Ops.MAX, 1)).merge == ()


def test_powers_of_two() -> None:
    assert [pow2_at_least(n) for n in (0, 1, 2, 3, 33)] == [1, 1, 2, 4, 64]
    assert [pow2_at_most(n) for n in (1, 2, 3, 63, 64)] == [1, 2, 2, 32, 64]

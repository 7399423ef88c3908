"""Faults that other kernel compilers had: the smallest input of each, and the right answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.symbolic.evaluate import between, check_same, evaluate, scalar
from uopc.dtype import DType, dtypes
from uopc.symbolic import simplify
from uopc.uop.facts import bounds
from uopc.uop.node import UOp, range_, toposort
from uopc.uop.ops import Ops

i32, i64, u8, f32, f16 = dtypes.i32, dtypes.i64, dtypes.u8, dtypes.f32, dtypes.f16
x, y = scalar(0, i32), scalar(1, i32)
a, b = scalar(2, f32), scalar(3, f32)
i, j, k = between(0, -8, 8), between(1, 0, 7), between(2, 0, 3)


def const(v: float, d: DType = i32) -> UOp:
    return UOp.const(v, d)


def stays(u: UOp) -> None:
    """Nothing may be known of u."""
    assert simplify(u) is u


# ---- integer division
@pytest.mark.parametrize("d", [i32, dtypes.index, dtypes.i8], ids=str)
@pytest.mark.parametrize(
    "p, q, quotient, remainder",
    [(-7, 2, -4, 1), (7, -2, -4, -1), (-1, 2, -1, 1), (-6, 5, -2, 4), (6, -5, -2, -4)],
)
def test_division_floors(d: DType, p: int, q: int, quotient: int, remainder: int) -> None:
    assert simplify(const(p, d) // q).value == quotient
    assert simplify(const(p, d) % q).value == remainder


@pytest.mark.parametrize("n", [-4, -3, -2, -1, 1, 2, 3, 4])
@pytest.mark.parametrize("factor", [-6, -4, -3, -2, -1])
def test_a_negative_factor_in_the_numerator(factor: int, n: int) -> None:
    for u in (i * factor, i * factor + j, j * factor + k * 2 - 3):
        check_same(u // n, simplify(u // n))
        check_same(u % n, simplify(u % n))


def test_a_negative_divisor() -> None:
    check_same(j // -2, simplify(j // -2))
    assert evaluate(simplify(j // -2), {j: np.array([7])}) == -4


def test_a_constant_comes_out_of_a_quotient_by_floor() -> None:
    assert simplify((i * 10 + 5) // 10) is i
    assert simplify((i * 48 + 241) // 16) is simplify(i * 3 + 15)


def test_a_remainder_is_not_decided_by_its_ends() -> None:
    """Lanes 0 and 8 of 3*lane have remainder 0 by 8; those between do not."""
    lane = between(0, 0, 8)
    check_same(lane * 3 % 8, simplify(lane * 3 % 8))
    assert simplify(lane * 3 % 8).op is Ops.MOD


@pytest.mark.parametrize("op", [Ops.IDIV, Ops.MOD])
@pytest.mark.parametrize("d", [i32, u8, dtypes.index], ids=str)
def test_division_by_zero_is_left_alone(op: Ops, d: DType) -> None:
    p = i if d is dtypes.index else scalar(5, d)
    q = j if d is dtypes.index else scalar(6, d)
    for by in (const(0, d), q - q):
        for u in (UOp(op, (const(5, d), by)), UOp(op, (p, by)), UOp(op, (p * 4 + 3, by))):
            new = simplify(u)
            assert new.op is op and new.src[1] is const(0, d)
            check_same(u, new)


# ---- overflow and width
def test_bounds_of_a_product_that_may_wrap_decide_nothing() -> None:
    big = between(0, 0, 100_000).cast(i32)
    product = scalar(1, i32) * big
    stays(product < 0)
    square = scalar(4, dtypes.i16).cast(i32) * 3
    assert simplify(square < 100_000).value is True
    assert simplify((square * 40_000) < 0).op is Ops.LT


def test_integers_of_the_compiler_have_any_size() -> None:
    r = range_(2**40, 0)
    u = r * 2**40 + r * 2**30
    assert bounds(simplify(u)) == (0, (2**40 - 1) * (2**40 + 2**30))
    assert simplify((u * 2**30) // 2**30) is simplify(u)


def test_an_offset_beyond_32_bits_keeps_its_value() -> None:
    block, lane = range_(3_270_000_000 // 1024 + 1, 0), range_(1024, 1)
    offset = block * 1024 + lane
    assert bounds(simplify(offset))[1] > 2**31
    stays(offset < 3_270_000_000)
    assert simplify(offset // 1024) is block


def test_a_mask_beyond_32_bits_is_not_cut_off() -> None:
    chunk, r = range_(5, 0), range_(1_250_000_000, 1)
    position = chunk * 1_250_000_000 + r
    assert simplify(position < 5_000_000_000).src[1].value == 5_000_000_000
    assert simplify(position < 6_250_000_000).value is True


def test_products_of_constants() -> None:
    assert simplify(const(65536, i64) * 65536).value == 4294967296
    assert simplify(const(65536) * 65536).value == 0
    assert simplify(const(65536, dtypes.index) * 65536).value == 4294967296


@pytest.mark.parametrize("d", [u8, dtypes.i8, i32, i64, dtypes.u64], ids=str)
def test_the_lowest_value_is_no_maximum(d: DType) -> None:
    v = scalar(7, d)
    assert simplify(v.maximum(d.min)) is v
    assert simplify(v.minimum(d.max)) is v
    assert simplify(v.maximum(d.max)).value == d.max


# ---- narrow integers
def test_a_narrow_sum_wraps_before_it_is_widened() -> None:
    p = scalar(5, u8)
    assert simplify((const(128, u8) + 128).cast(dtypes.i16)).value == 0
    stays((p + 128).cast(dtypes.i16) + 1)


def test_a_wrapped_number_is_compared_as_what_it_is() -> None:
    assert simplify(-const(6, u8) < 4).value is False
    p = scalar(5, u8)
    check_same(p - 6 < 4, simplify(p - 6 < 4))


def test_equal_sums_that_overflow_differently_are_equal() -> None:
    top = 2**31 - 1
    u, v = (x + top) + (y + 1), (y - top) + (x - 1) + 1 + (top + 1 - 2**31)
    for w in (u, v, (x + top) * 2 + y, (x + top) // 2, (x + 1) % 2, -(x + top) - top):
        check_same(w, simplify(w))
    assert simplify((x + top) + 1) is simplify((x - top) - 1)


# ---- floats
def test_through_f16_and_back_is_not_the_same() -> None:
    stays(a.cast(f16).cast(f32))
    assert simplify(const(65536.0, f32).cast(f16).cast(f32)).value == math.inf
    half = scalar(5, f16)
    assert simplify(half.cast(f32).cast(f16)) is half


def test_the_sign_of_zero_is_kept() -> None:
    assert const(0.0, f32) is not const(-0.0, f32)
    assert simplify(a + -0.0) is a
    stays(a + 0.0)
    assert math.copysign(1, simplify(const(-0.0, f32) * 1.0).value) == -1
    assert simplify(const(-0.0, f32) + const(0.0, f32)) is const(0.0, f32)


def test_equal_constants_are_one_node_by_their_bits() -> None:
    nan = simplify(const(math.inf, f32) - const(math.inf, f32))
    assert nan is simplify(const(0.0, f32) / 0.0)
    assert const(math.nan, f32) is const(float("nan"), f32)
    assert len({const(1), const(1.0, f32), const(True, dtypes.bool), const(1, dtypes.index)}) == 4
    assert simplify((a + nan) * (a + nan)).src[0] is simplify(a + nan)


@pytest.mark.parametrize(
    "u",
    [
        *(a * 0.0, a - a, a / a, a + 0.0, a.ne(a), a.eq(a), (a + 1.0) + 2.0, (a * 3.0) / 3.0),
        *((a + b) - b, a.maximum(a), (a < b).where(a, b), ~(a < b), (a < b) | a.eq(b), a / 3.0),
        *(-(a - b), a.maximum(-math.inf), (a < 1.0) | (a > 1.0)),
    ],
    ids=str,
)
def test_what_holds_for_real_numbers_only_is_left_alone(u: UOp) -> None:
    new = simplify(u)
    check_same(u, new)
    assert len(toposort(new)) == len(toposort(u))


def test_zero_over_zero_is_nan() -> None:
    assert math.isnan(simplify(const(0.0, f32) / 0.0).value)
    assert simplify(const(1.0, f32) / 0.0).value == math.inf
    assert math.isnan(simplify(const(math.inf, f32) * 0.0).value)


def test_the_fold_of_a_maximum_keeps_nan() -> None:
    assert math.isnan(simplify(const(1.0, f32).maximum(math.nan)).value)
    assert math.copysign(1, simplify(const(-0.0, f32).minimum(0.0)).value) == -1


def test_division_is_correctly_rounded_before_it_is_cut() -> None:
    assert simplify((const(14.999999, f32) / 3.0).trunc()).value == 4.0
    assert simplify((const(148.0, f32) / 37.0).trunc()).value == 4.0


def test_a_shift_by_a_negative_number_leaves_zero() -> None:
    """As one by all bits does; so the bounds of a shift by an unknown number hold 0."""
    v = scalar(5, dtypes.i8)
    shifted = const(-6, dtypes.i8) << v
    check_same(shifted.ne(0), simplify(shifted.ne(0)))
    assert bounds(const(-6, dtypes.i8) << v.maximum(-2).minimum(1)) == (-12, 0)

"""simplify on whole expressions: the same values, one form, any size."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.symbolic.evaluate import between, check_same, scalar, values_of_dtype
from uopc.dtype import DType, dtypes
from uopc.symbolic import index, simplify
from uopc.uop.match import Step
from uopc.uop.node import UOp, buffer, range_, sink, toposort
from uopc.uop.ops import AxisType, Ops

INDEX, F, B = dtypes.index, dtypes.f32, dtypes.bool
i, j, k = between(0, 0, 7), between(1, -3, 4), between(2, 0, 11)
INTEGER = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN)
BITWISE = (Ops.AND, Ops.OR, Ops.XOR)
FLOATING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAX, Ops.MIN)
#: what may be cast to what: an index stays small enough for the int64 that judges it
CASTS: dict[DType, tuple[DType, ...]] = {
    INDEX: (dtypes.i8, dtypes.u8, B),
    dtypes.i8: (INDEX, dtypes.u8, B, F, dtypes.i32),
    dtypes.u8: (INDEX, dtypes.i8, B, dtypes.i32),
    dtypes.i32: (INDEX, dtypes.i8, dtypes.u8, F),
    F: (dtypes.f16, dtypes.i8, B),
    dtypes.f16: (F, B),
    B: (dtypes.i8, dtypes.u8, INDEX, F),
}


@st.composite
def expressions(draw: st.DrawFn, d: DType, depth: int) -> UOp:
    """An expression of dtype d over a few leaves."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        return draw(leaves(d))
    choice = draw(st.integers(0, 9))
    if choice == 0:
        c, x, y = (draw(expressions(t, depth - 1)) for t in (B, d, d))
        return c.where(x, y)
    if choice == 1:
        return draw(expressions(draw(st.sampled_from(CASTS[d])), depth - 1)).cast(d)
    if d is B:
        if choice == 2:
            return ~draw(expressions(B, depth - 1))
        if choice < 6:
            op, t = draw(st.sampled_from((*BITWISE, Ops.EQ, Ops.NE, Ops.LT))), B
        else:
            op = draw(st.sampled_from((Ops.LT, Ops.EQ, Ops.NE)))
            t = draw(st.sampled_from((INDEX, dtypes.i8, dtypes.u8, F)))
    else:
        if choice == 2:
            return -draw(expressions(d, depth - 1))
        extra = () if d is INDEX or d.is_float else (*BITWISE, Ops.SHL, Ops.SHR)
        op, t = draw(st.sampled_from((*(FLOATING if d.is_float else INTEGER), *extra))), d
    return UOp(op, (draw(expressions(t, depth - 1)), draw(expressions(t, depth - 1))))


def leaves(d: DType) -> st.SearchStrategy[UOp]:
    values = [v.item() if not d.is_float else float(v) for v in values_of_dtype(d)]
    if d.is_data_int:
        values = [v for v in values if abs(v) < 10 or v in (d.min, d.max)]
    known = [i, j, k] if d is INDEX else [scalar(n, d) for n in (0, 1)]
    return st.one_of(st.sampled_from(known), st.sampled_from(values).map(lambda v: UOp.const(v, d)))


KINDS = (INDEX, dtypes.i8, dtypes.u8, F, dtypes.f16, B)


@pytest.mark.parametrize("d", KINDS, ids=str)
@given(data=st.data())
@settings(max_examples=30)
def test_the_value_stays_and_a_second_time_changes_nothing(d: DType, data: st.DataObject) -> None:
    u = data.draw(expressions(d, 4))
    once = simplify(u)
    check_same(u, once, limit=1 << 10)
    trace: list[Step] = []
    assert simplify(once, trace) is once and not trace


# ---- one form
a, b, c = (scalar(n, F) for n in range(3))
m, n = scalar(3, dtypes.i32), scalar(4, dtypes.i32)


@pytest.mark.parametrize("u, v", [(a, b), (m, n), (i, j)], ids=["f32", "i32", "index"])
def test_operands_have_one_order(u: UOp, v: UOp) -> None:
    for w in (u * v + u, u + u * v, v * u + u, u + v * u):
        assert simplify(w) is simplify(u * v + u)
    assert simplify(u.maximum(v)) is simplify(v.maximum(u))
    assert simplify(u.eq(v)) is simplify(v.eq(u))


def test_factors_of_fma_have_one_order() -> None:
    assert simplify(a.fma(b, c)) is simplify(b.fma(a, c))
    assert simplify(a.fma(b, c)) is not simplify(a.fma(c, b))


def test_a_sum_of_floats_keeps_its_tree() -> None:
    assert simplify((a + b) + c) is not simplify(a + (b + c))
    assert simplify((a + 1.0) + 2.0) is (a + 1.0) + 2.0


def test_a_sum_of_indices_is_one_node_whatever_its_tree() -> None:
    terms = [i * 3, j, k * -2, UOp.const(7, INDEX), i]
    first = simplify(sum(terms[1:], terms[0]))
    for p, q, r, s, t in permutations(terms):
        assert simplify((p + q) + ((r + s) + t)) is first
        assert simplify(p + (q + r) - (-(s + t))) is first


def test_terms_stand_in_the_order_of_their_loops() -> None:
    kinds = (AxisType.UPCAST, AxisType.REDUCE, AxisType.LOCAL, AxisType.GLOBAL)
    v, r, lane, g = (range_(4, n, kind) for n, kind in enumerate(kinds))
    assert simplify(v + (r * 16 + 1) + lane * 4 + g) is ((g + lane * 4) + r * 16 + v) + 1


def test_terms_with_one_atom_meet_wherever_they_stand() -> None:
    x = between(0, 0, 99)
    assert simplify(x * 8 + x % 4 * 4 + x * 2) is simplify(x * 10 + x % 4 * 4)
    assert simplify(x * 4 + x * 2) is x * 6


@given(data=st.data())
@settings(max_examples=50)
def test_a_sum_is_what_the_constructors_build(data: st.DataObject) -> None:
    """`simplify` and `uopc/symbolic/index.py` agree on the one form of index arithmetic."""
    parts = [data.draw(expressions(INDEX, 2)) for _ in range(4)]
    u = simplify(sum(parts[1:], parts[0] * 4))
    assert index.from_affine(*index.affine(u)) is u


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 12])
def test_digits_put_together_are_the_number(n: int) -> None:
    x = between(5, -40, 199)
    assert simplify(x // n * n + x % n) is x
    digits = (x // (n * 6) * (n * 6)) + (x // n % 6) * n + x % n
    assert simplify(digits * 5) is x * 5


def test_digits_of_two_numbers_are_told_apart() -> None:
    x, y = between(5, 0, 59), between(5, 0, 59) * 7 % 60
    u = (y // 4 % 3) * 4 + (x // 4 % 3) * 4 + x % 4 + y % 4
    assert simplify(u) is simplify(x % 12 + y % 12)


def test_a_split_index_falls_into_its_digits() -> None:
    g, u, lane, v = (range_(s, n) for n, s in enumerate((6, 4, 32, 2)))
    flat = ((g * 4 + u) * 32 + lane) * 2 + v
    assert simplify(flat // 256) is g
    assert simplify(flat // 64 % 4) is u
    assert simplify(flat // 2 % 32) is lane
    assert simplify(flat % 2) is v
    assert simplify((flat // 64).eq(g * 4 + u)).value is True
    assert simplify(flat < 6 * 256).value is True


def test_steps_are_recorded_and_end_at_the_result() -> None:
    trace: list[Step] = []
    u = (i * 12 + k) // 12
    assert simplify(u, trace) is i
    assert [s.rule for s in trace] == ["index-quotient"]
    assert trace[0].before is u and trace[0].after is i


def test_origins_are_kept() -> None:
    assert simplify((m + 1) + n).origins[0][0] == __file__


# ---- any size
SIZE = 50_000


def test_fifty_thousand_floats_in_a_row() -> None:
    u = a
    for n in range(SIZE // 2):
        u = (b + u) * 1.0 if n % 2 else u - 0.0
    new = simplify(u)
    assert len(toposort(new)) == SIZE // 4 + 2


def test_fifty_thousand_indices_in_a_row() -> None:
    u = i
    for n in range(SIZE // 4):
        u = u * 2 % 1024 + j if n % 2 else (u + k) // 2
    new = simplify(u)
    assert simplify(new) is new


def test_a_sum_of_thousands_of_terms_is_left_in_its_order() -> None:
    terms = [range_(4, n) for n in range(2_000)]
    u = terms[-1]
    for t in reversed(terms[:-1]):
        u = u + t
    new = simplify(u)
    assert simplify(new) is new
    assert len(toposort(new)) == len(toposort(u))


def test_conditions_in_a_row() -> None:
    u = a < b
    for n in range(SIZE // 5):
        u = u & (scalar(n % 100, dtypes.i32) < 5) | (m < n % 7)
    new = simplify(u)
    assert simplify(new) is new


def test_fifty_thousand_stores_side_by_side() -> None:
    at = buffer(9, F, (4,)).index(i * 1 + 0)
    new = simplify(sink(*(at.store(a + float(n)) for n in range(SIZE // 3))))
    assert new.src[1].src[0].src[1] is i
    assert len(new.src) == SIZE // 3

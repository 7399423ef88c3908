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

I, F, B = dtypes.index, dtypes.f32, dtypes.bool
i, j, k = between(0, 0, 7), between(1, -3, 4), between(2, 0, 11)
INTEGER = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN)
BITWISE = (Ops.AND, Ops.OR, Ops.XOR)
FLOATING = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAX, Ops.MIN)
#: what may be cast to what: an index stays small enough for the int64 that judges it
CASTS: dict[DType, tuple[DType, ...]] = {
    I: (dtypes.i8, dtypes.u8, B),
    dtypes.i8: (I, dtypes.u8, B, F, dtypes.i32),
    dtypes.u8: (I, dtypes.i8, B, dtypes.i32),
    dtypes.i32: (I, dtypes.i8, dtypes.u8, F),
    F: (dtypes.f16, dtypes.i8, B),
    dtypes.f16: (F, B),
    B: (dtypes.i8, dtypes.u8, I, F),
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
            t = draw(st.sampled_from((I, dtypes.i8, dtypes.u8, F)))
    else:
        if choice == 2:
            return -draw(expressions(d, depth - 1))
        extra = () if d is I or d.is_float else (*BITWISE, Ops.SHL, Ops.SHR)
        op, t = draw(st.sampled_from((*(FLOATING if d.is_float else INTEGER), *extra))), d
    return UOp(op, (draw(expressions(t, depth - 1)), draw(expressions(t, depth - 1))))


def leaves(d: DType) -> st.SearchStrategy[UOp]:
    values = [v.item() if not d.is_float else float(v) for v in values_of_dtype(d)]
    if d.is_data_int:
        values = [v for v in values if abs(v) < 10 or v in (d.min, d.max)]
    known = [i, j, k] if d is I else [scalar(n, d) for n in (0, 1)]
    return st.one_of(st.sampled_from(known), st.sampled_from(values).map(lambda v: UOp.const(v, d)))


KINDS = (I, dtypes.i8, dtypes.u8, F, dtypes.f16, B)


@pytest.mark.parametrize("d", KINDS, ids=str)
@given(data=st.data())
@settings(max_examples=60)
def test_the_value_stays_and_a_second_time_changes_nothing(d: DType, data: st.DataObject) -> None:
    u = data.draw(expressions(d, 4))
    once = simplify(u)
    check_same(u, once, limit=1 << 10)
    trace: list[Step] = []
    assert simplify(once, trace) is once and not trace

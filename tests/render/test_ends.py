"""Native loops run to the end of their guard where all that they do has it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import alloc, assert_same
from uopc.dtype import AddrSpace, dtypes
from uopc.pipeline import render_native
from uopc.runtime.program import Program
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.oracle import run
from uopc.uop.spec import Stage

F32 = dtypes.f32
SIZE = 200
X, Y, COUNT = buffer(0, F32, (SIZE,)), buffer(1, F32, (SIZE,)), buffer(2, dtypes.i32, (1,))
AT = range_(SIZE, 0)
N = COUNT.index(0).load()
INSIDE = AT.cast(dtypes.i32) < N
FLAG = X.index(AT).load() < 0.0


def copied(gate: UOp, value: UOp | None = None) -> UOp:
    return Y.index(AT).store(X.index(AT).load(gate) * 2.0 if value is None else value, gate)


def both(first: UOp, second: UOp) -> UOp:
    """Two stores of one loop."""
    one = copied(first)
    return Y.after(one).index(AT).store(3.0, second)


def kept() -> UOp:
    """A value that lives in registers for one turn of the loop."""
    box = alloc(AddrSpace.REG).after(AT)
    put = box.index(0).store(X.index(AT).load(INSIDE))
    return Y.index(AT).store(box.after(put).index(0).load() + 1.0, INSIDE)


def summed() -> UOp:
    """A sum that other turns go on with."""
    total = alloc(AddrSpace.REG)
    start = total.after(total.index(0).store(0.0))
    now = start.after(AT).index(0)
    add = now.store(now.load() + X.index(AT).load())
    return Y.index(AT).store(start.after(add).index(0).load(), INSIDE)


ENDS = {
    "plain": copied(INSIDE),
    "of an index": copied(N.cast(dtypes.index) > AT),
    "with another": copied(INSIDE & FLAG),
    "of both": both(INSIDE, INSIDE & FLAG),
    "kept": kept(),
}
STAYS = {
    "of one alone": both(INSIDE, FLAG),
    "of no end": copied(FLAG),
    "turned round": copied(AT.cast(dtypes.i32) > N),
    "too narrow": copied(AT.cast(dtypes.i8) < N.cast(dtypes.i8)),
    "of a sum": summed(),
}


@pytest.mark.parametrize("name", [*ENDS, *STAYS])
@pytest.mark.parametrize("count", [-3, 0, 1, 37, SIZE, SIZE + 5])
def test_the_numbers(name: str, count: int, rng: np.random.Generator) -> None:
    kernel = sink((ENDS | STAYS)[name].end(AT))
    arrays = {
        0: rng.standard_normal(SIZE).astype(np.float32),
        1: rng.standard_normal(SIZE).astype(np.float32),
        2: np.array([count], np.int32),
    }
    want = run(kernel, arrays, Stage.LOOPS)[1]
    source = render_native(kernel, "to_the_end")
    assert ("< end0;" in source) == (name in ENDS)
    out = {slot: a.copy() for slot, a in arrays.items()}
    Program(source)(*(out[p.slot] for p in source.params))
    assert_same(out[1], want)


def test_the_text() -> None:
    assert render_native(sink(ENDS["plain"].end(AT)), "twice").splitlines()[4:-2] == [
        "  const int val0 = p2[0];",
        "  const int end0 = val0 < 200 ? val0 : 200;",
        "  for (int i0 = 0; i0 < end0; ++i0) {",
        "    p1[i0] = p0[i0] * 2.0f;",
        "  }",
    ]

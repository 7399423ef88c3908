"""Wide accesses where they are proved, the scalar rest where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from tests.helpers import assert_same
from tests.kernels import OUT, around, arrays_of, assert_same_numbers, axpy, param, product
from uopc.dtype import DType, dtypes
from uopc.kernel import KernelBody, Output
from uopc.opts import Opts
from uopc.passes.linearize import parameters
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.vectorise import WIDEST_BYTES, widest
from uopc.pipeline import lower
from uopc.uop.node import UOp, memory, toposort
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

FOURS = Opts(gpu=True, local={0: 8}, vector={0: 4})
CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "copies": ((axpy(128),), FOURS),
    "ragged": ((axpy(99),), FOURS),
    "guard-of-whole-vectors": ((axpy(100),), FOURS),
    "shifted": ((axpy(128).shrink(((1, 127),)),), FOURS),
    "reversed": ((axpy(128).flip((0,)),), FOURS),
    "rows": ((axpy(6, 20),), Opts(gpu=True, local={1: 2}, vector={1: 4})),
    "rows-of-odd-length": ((axpy(6, 21),), Opts(gpu=True, local={1: 2}, vector={1: 4})),
    "padded": ((param(0, 96).pad(((16, 16),)),), FOURS),
    "padded-by-ones": ((param(0, 96).pad(((16, 16),), 1.0),), FOURS),
    "rows-that-begin-anywhere": (
        (param(0, 9, 21).shrink(((0, 9), (0, 16))),),
        Opts(gpu=True, local={1: 4}, vector={1: 4}, upcast={0: 4}),
    ),
    "rows-with-zeros-at-their-ends": (
        (param(0, 9, 15, dtype=dtypes.bf16).pad(((0, 0), (0, 1))),),
        Opts(gpu=True, local={1: 2}, vector={1: 8}, upcast={0: 8}),
    ),
    "halves": (
        (param(0, 256, dtype=dtypes.f16) + 1.0,),
        Opts(gpu=True, local={0: 8}, vector={0: 8}),
    ),
    "sum": ((param(0, 3, 100).reduce(Ops.ADD, 1),), Opts(gpu=True, local={1: 8}, vector={1: 4})),
    "product": ((product(8, 16, 8),), Opts(gpu=True, local={0: 4, 1: 4}, vector={1: 4}, unroll=4)),
    "to-bytes": ((param(0, 128).cast(dtypes.i8),), FOURS),
    "several-outputs": ((axpy(99), param(0, 99).sqrt()), FOURS),
    "one-of-them-wide": ((axpy(96), param(1, 96, dtype=dtypes.f64) + 1.0), FOURS),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = CASES[name]
    before, after = around("vectorise", opts, *bodies)
    check(after, Stage.LOOPS, True)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.LOOPS, Stage.LOOPS))
    golden(f"vectorise/{name}.txt", f"# {opts}\n{show(after)}")


def widths(name: str) -> tuple[list[int], list[int]]:
    """(widths of the loads of parameters, widths of the stores to them); 1 for single elements."""
    bodies, opts = CASES[name]
    _, after = around("vectorise", opts, *bodies)
    out: tuple[list[int], list[int]] = ([], [])
    for u in toposort(after):
        if widest(u):
            out[u.op is Ops.STORE].append(1 if u.arg is None else u.arg.width)
    return out


@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [
        ("copies", [4], [4]),
        ("guard-of-whole-vectors", [4], [4]),
        ("shifted", [4, 4, 1], [4, 1]),
        ("reversed", [1], [4]),
        ("rows", [4], [4]),
        ("rows-of-odd-length", [1], [1]),
        ("rows-that-begin-anywhere", [4] * 7 + [1] * 3, [4]),
        ("halves", [8], [8]),
        ("to-bytes", [4], [4]),
        ("padded-by-ones", [4], [4]),
        ("one-of-them-wide", [4, 1], [4, 1]),
    ],
)
def test_what_is_wide(name: str, loads: list[int], stores: list[int]) -> None:
    assert widths(name) == (loads, stores)


def test_a_ragged_end_is_wide_but_for_its_last_vector() -> None:
    loads, stores = widths("ragged")
    assert sorted(loads) == sorted(stores) == [1, 4]


@pytest.mark.parametrize("n", [*range(1, 18), 63, 64, 65])
def test_nothing_past_the_end_is_touched(n: int) -> None:
    """The oracle raises where a wide access misses its memory."""
    if n == 1:
        return
    body = axpy(n)
    _, after = around("vectorise", FOURS, body)
    arrays = arrays_of(body)
    assert_same(run(after, arrays, Stage.LOOPS)[OUT], evaluate(body, arrays))


@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.f8e4m3, dtypes.bf16, dtypes.f32, dtypes.f64])
@pytest.mark.parametrize("vector", [2, 4, 8, 16, 3])
def test_at_most_sixteen_bytes(dtype: DType, vector: int) -> None:
    opts = Opts(gpu=True, local={0: 4}, vector={0: vector})
    _, after = around("vectorise", opts, param(0, 48 * 16, dtype=dtype).flip((0,)).flip((0,)))
    bytes_moved = {widest(u) for u in toposort(after) if widest(u)}
    fits = vector != 3 and vector * dtype.itemsize <= WIDEST_BYTES
    assert bytes_moved == {vector * dtype.itemsize if fits else dtype.itemsize}


def test_parameters_say_how_they_must_be_aligned() -> None:
    _, after = around("vectorise", *_of("copies"))
    assert [p.align for p in parameters(after)] == [16, 16]
    _, before = around("effects", *_of("copies"))
    assert [p.align for p in parameters(before)] == [4, 4]


def _of(name: str) -> tuple[Opts, UOp]:
    (body,), opts = CASES[name]
    return opts, body


def test_nothing_happens_without_a_vector_digit() -> None:
    before, after = around("vectorise", Opts(gpu=True, local={0: 8}, upcast={0: 4}), axpy(128))
    assert before is after


def test_several_outputs_are_packed_before_the_first_is_stored() -> None:
    """In place, that is: all LOADs come before."""
    _, after = around("vectorise", CASES["several-outputs"][1], *CASES["several-outputs"][0])
    nests = [u for u in toposort(after) if u.op is Ops.END and u.src[0].op is Ops.STORE]
    packed = [u for u in nests if memory(u.src[0].src[0]).arg.name == "out"]
    assert len(packed) == 1
    wide = [u for u in toposort(after) if u.op is Ops.STORE and u.arg is not None and widest(u)]
    assert len(wide) == 2 and all(packed[0] in toposort(u) for u in wide)


def test_the_wide_load_of_a_padded_row_gives_zeros() -> None:
    body, opts = CASES["padded"][0][0], FOURS
    _, after = around("vectorise", opts, body)
    got = run(after, {0: np.ones(96, np.float32)}, Stage.LOOPS)[OUT]
    assert got.sum() == 96 and (got[:16] == 0).all() and (got[-16:] == 0).all()


# ---- loads beside aligned places
def loaded(after: UOp) -> set[int]:
    """Widths of the loads of parameters."""
    loads = [u for u in toposort(after) if widest(u) and u.op is Ops.LOAD]
    return {1 if u.arg is None else u.arg.width for u in loads}


@pytest.mark.parametrize("shift", range(1, 9))
@pytest.mark.parametrize("n", [8, 30, 64])
def test_shifted_views_are_read_from_both_sides_and_never_outside(shift: int, n: int) -> None:
    body = param(0, n + shift).shrink(((shift, n + shift),)) * 2.0
    before, after = around("vectorise", FOURS, body)
    assert_same_numbers(before, after, arrays_of(body), (Stage.LOOPS, Stage.LOOPS))
    assert 4 in loaded(after)


@pytest.mark.parametrize("before_, after_", [(1, 0), (0, 1), (3, 2), (5, 5)])
def test_padded_rows_are_read_inside_only(before_: int, after_: int) -> None:
    """Gates at both ends: a vector is read at once where all of it is wanted."""
    body = param(0, 24).pad(((before_, after_),)) + param(1, 24 + before_ + after_)
    before, after = around("vectorise", FOURS, body)
    assert_same_numbers(before, after, arrays_of(body), (Stage.LOOPS, Stage.LOOPS))


def test_neighbours_are_wide_too() -> None:
    x = param(0, 66)
    body = sum_of(x.shrink(((i, 64 + i),)) for i in range(3))
    before, after = around("vectorise", FOURS, body)
    assert_same_numbers(before, after, arrays_of(body), (Stage.LOOPS, Stage.LOOPS))
    assert 4 in loaded(after)


def sum_of(values: Iterable[UOp]) -> UOp:
    first, *rest = values
    for x in rest:
        first = first + x
    return first


def test_what_is_written_too_is_read_where_it_stands() -> None:
    """Other threads may be writing what lies beside it."""
    x = param(0, 64)
    shifted = x.shrink(((1, 64),)).pad(((0, 1),)) * 2.0
    body = KernelBody((Output(shifted, x),), (64,), {shifted: (0,)})
    sink = lower(rangeify_kernel(body), Opts(gpu=True, local={0: 16}, vector={0: 4}))
    assert loaded(sink) == {1}

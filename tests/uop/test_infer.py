"""What GATHER, SCATTER, ASSIGN and SEGMENT refuse, on the user's own line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.uop.node import UOp, buffer, bundle
from uopc.uop.ops import GatherArg, Ops, ParamArg

F32 = dtypes.f32
X = buffer(0, F32, (4, 8))
ROWS = buffer(1, dtypes.i32, (5, 8))
LIKE_X = buffer(2, dtypes.i64, (4, 8))
FLAGS = buffer(3, dtypes.bool, (4, 8))
BUNDLE = bundle(5, F32, 3, 64)
EIGHTS = buffer(4, dtypes.f8e4m3, (4, 8))


def test_shapes_and_dtypes() -> None:
    got = X.gather((~0, 1), ROWS)
    assert (got.dtype, got.shape) == (F32, (5, 8))
    assert FLAGS.gather((0, ~0), LIKE_X).dtype is dtypes.bool
    assert X.gather((~0, ~1), ROWS, UOp.const(3)).shape == (5, 8)  # a scalar index repeats
    assert X.gather((~0, ~1), UOp.const(1), UOp.const(3)).shape == ()
    sums = X.scatter((3, 100, 8), (~0, ~1, 1), LIKE_X, LIKE_X)
    assert (sums.dtype, sums.shape) == (F32, (3, 100, 8))
    assert UOp.const(1.0).scatter((9,), (~0,), ROWS).shape == (9,)
    assert X.assign(2).assign(X).shape == X.detach().shape == X.shape


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: X.gather((0, 1)), "GATHER at .*at least one index"),
        (lambda: X.gather((~0, 1), X), "index 0 is f32, must be an integer"),
        (lambda: X.gather((~0, 1), FLAGS), "index 0 is bool, must be an integer"),
        (
            lambda: X.gather((~0, 1), LIKE_X.cast(dtypes.index)),
            "index 0 is index, must be an integer such as i32 or i64",
        ),
        (
            lambda: X.gather((~0, ~1), ROWS, LIKE_X),
            r"index 1 has shape \(4, 8\), must have \(5, 8\). Reshape and expand it",
        ),
        (
            lambda: X.gather((~0,), ROWS),
            r"dims \(-1,\) has 1 numbers, x has shape \(4, 8\)",
        ),
        (
            lambda: X.gather((~0, 0), ROWS),
            "axis 1 of x has size 8 and is walked by axis 0 of the result, of size 5",
        ),
        (lambda: X.gather((~0, 2), ROWS), r"axis 2 of the result, not there in shape \(5, 8\)"),
        (lambda: X.gather((~0, ~0), ROWS), "name each of the 1 indices once"),
        (lambda: X.gather((~1, 1), ROWS), "name each of the 1 indices once"),
        (lambda: X.gather((~0, 1), ROWS, ROWS), "name each of the 2 indices once"),
        (
            lambda: buffer(0, F32, (8, 8, 4)).gather((1, 1, ~0), ROWS),
            "walks two axes of x by one of the result",
        ),
        (lambda: X.scatter((3, 8), (~0, 1), ROWS), r"SCATTER at .*shape \(5, 8\), must have"),
        (lambda: X.scatter((3, 9), (~0, 1), LIKE_X), "axis 1 of the result has size 9"),
        (lambda: X.scatter((-3, 8), (~0, 1), LIKE_X), r"negative in shape \(-3, 8\)"),
        (lambda: FLAGS.scatter((3, 8), (~0, 1), LIKE_X), "it adds, which bool has not: cast"),
        (lambda: EIGHTS.scatter((3, 8), (~0, 1), LIKE_X), "it adds, which f8e4m3 has not"),
        (lambda: X.scatter((4, 8), (0, 1)), "SCATTER at .*at least one index"),
        (lambda: (X + 1.0).assign(X), "ASSIGN at .*gets a new version, got ADD"),
        (lambda: X.assign(LIKE_X), "the value is i64 of shape .*the memory f32"),
        (lambda: BUNDLE.index(0), r"INDEX at .*bundle: index one of its segments, .segment"),
        (lambda: X.segment(0), "SEGMENT at .*only a bundle has segments, this is BUFFER"),
        (lambda: BUNDLE.segment(0).segment(0), "only a bundle has segments, this is SEGMENT"),
        (lambda: BUNDLE.segment(UOp.const(0)), "which of dtype index.*, got i32"),
        (
            lambda: UOp(Ops.BUFFER, (), ParamArg(0, F32, (4,), bundle=True)),
            r"a bundle has \(memories, elements of each\), this is \(4,\)",
        ),
        (
            lambda: X.assign(buffer(5, F32, (4,))),
            r"value is f32 of shape \(4,\), .* Cast, reshape or expand",
        ),
    ],
)
def test_what_is_refused(build, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=why):
        build()


def test_the_error_is_on_the_users_line() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    with pytest.raises(UsageError, match=rf"at {Path(__file__).name}:{frame.f_lineno + 1}: "):
        X.gather((~0, 0), ROWS)


def test_equal_records_are_one_node() -> None:
    assert UOp(Ops.GATHER, (X, ROWS), GatherArg((~0, 1))) is X.gather((~0, 1), ROWS)

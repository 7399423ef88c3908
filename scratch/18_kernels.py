"""Kernels that chapter 18 looks at: bodies, for `uopc inspect`, `view` and `export`."""

from __future__ import annotations

from uopc.dtype import dtypes
from uopc.uop import Ops, UOp, buffer

ROWS, COLUMNS = 4096, 1024
N = 64


def softmax() -> UOp:
    """Of each row."""
    x = buffer(0, dtypes.f32, (ROWS, COLUMNS))
    e = (x - along(x.reduce(Ops.MAX))).exp()
    return e / along(e.reduce(Ops.ADD))


def along(row: UOp) -> UOp:
    """A value of each row, beside all of its elements."""
    return row.reshape((ROWS, 1)).expand((ROWS, COLUMNS))


def product() -> UOp:
    """C = A B."""
    a = buffer(0, dtypes.f32, (N, N))
    b = buffer(1, dtypes.f32, (N, N)).permute((1, 0))
    rows, columns = a.reshape((N, 1, N)), b.reshape((1, N, N))
    return (rows.expand((N, N, N)) * columns.expand((N, N, N))).reduce(Ops.ADD)


def turned() -> UOp:
    """A transposed read."""
    return buffer(0, dtypes.f32, (512, 512)).permute((1, 0)) + 1.0

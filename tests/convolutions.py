"""A convolution as one product: windows of an image by index arithmetic alone."""

from __future__ import annotations

from tests.kernels import param
from uopc.dtype import DType, dtypes
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


def windows(x: UOp, axis: int, size: int) -> UOp:
    """Every window along an axis, which becomes (size, places): element (j, i) is that of j + i."""
    before, length, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    places = length - size + 1
    x = x.reshape((*before, 1, length, *after)).expand((*before, size + 1, length, *after))
    x = x.reshape((*before, (size + 1) * length, *after))

    def cut(x: UOp, *sizes: int) -> UOp:
        return x.shrink([(0, n) for n in (*before, *sizes, *after)])

    return cut(
        cut(x, size * (length + 1)).reshape((*before, size, length + 1, *after)), size, places
    )


def convolution(
    images: int,
    height: int,
    width: int,
    channels: int,
    filters: int,
    size: int = 3,
    dtype: DType = dtypes.bf16,
) -> UOp:
    """Images (n, h, w, c) by filters (f, size, size, c), zeros at the borders: (n, h, w, f)."""
    edge = (size // 2, size // 2)
    x = param(0, images, height, width, channels, dtype=dtype).pad(((0, 0), edge, edge, (0, 0)))
    x = windows(windows(x, 2, size), 1, size).permute((0, 2, 4, 1, 3, 5))
    f = param(1, filters, size, size, channels, dtype=dtype)
    shape = (images, height, width, filters, size, size, channels)
    a = x.reshape((*shape[:3], 1, *shape[4:])).expand(shape)
    b = f.reshape((1, 1, 1, *f.shape)).expand(shape)
    return (a.cast(dtypes.f32) * b.cast(dtypes.f32)).reduce(Ops.ADD, 3)

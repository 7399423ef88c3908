"""The table of matrix products: what each row computes, in uopc and in torch, and how large.

`scratch/bench_matmul.py` times its rows on a GPU, `tests/test_matmul_table.py` runs them at small
sizes.  Rows are written as bodies, and nothing here names a choice of a kernel.  Torch is never
imported: peers are given it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.kernels import param
from uopc.dtype import DType, dtypes
from uopc.kernel import USUAL, Numerics
from uopc.uop.node import Shape, UOp, alu
from uopc.uop.ops import Ops

#: name in the table -> dtype of the operands
TYPES: dict[str, DType] = {
    "f32": dtypes.f32,
    "tf32": dtypes.f32,
    "bf16": dtypes.bf16,
    "f16": dtypes.f16,
    "f8e4m3": dtypes.f8e4m3,
}
#: a peer: inputs as torch tensors -> the result
Peer = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """A product, D = f(A B), of f32 sums rounded to the type of the operands (bf16 for 8 bits).

    layout: of A and B; N as the formula has it, A (M, K) and B (K, N), T transposed in memory.
    around: "", "bias, gelu", "scaled" (by one number for each operand) or "convolution", whose rows
    are (image, y, x) and whose k is (ky, kx, channel).
    """

    m: int
    n: int
    k: int
    type: str
    layout: str = "NN"
    batch: int = 1
    around: str = ""
    image: tuple[int, int, int] = (0, 0, 0)

    @property
    def name(self) -> str:
        size = "x".join(map(str, [self.batch] * (self.batch > 1) + [self.m, self.n, self.k]))
        parts = [size, self.type, *([self.layout] if self.layout != "NN" else [])]
        return " ".join([*parts, *([self.around] if self.around else [])])

    @property
    def dtype(self) -> DType:
        return TYPES[self.type]

    @property
    def result(self) -> DType:
        return dtypes.bf16 if self.dtype.itemsize == 1 else self.dtype

    @property
    def numerics(self) -> Numerics:
        return replace(USUAL, tf32=self.type == "tf32")

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Each operand and the result once."""
        item = self.dtype.itemsize
        both = (self.m + self.n) * self.k * item
        return self.batch * (both + self.m * self.n * self.result.itemsize)

    def at(self, m: int, n: int, k: int) -> Row:
        """The same at another size."""
        return replace(self, m=m, n=n, k=k, batch=min(self.batch, 3))

    # ---- in uopc
    def inputs(self) -> list[tuple[Shape, DType]]:
        """Shape and dtype of each, by slot."""
        m, n, k = self.m, self.n, self.k
        if self.around == "convolution":
            images, height, width = self.image
            return [((images, height, width, k // 9), self.dtype), ((n, 3, 3, k // 9), self.dtype)]
        z = (self.batch,) * (self.batch > 1)
        a = (k, m) if self.layout[0] == "T" else (m, k)
        b = (n, k) if self.layout[1] == "T" else (k, n)
        rest: list[tuple[Shape, DType]] = []
        if self.around == "bias, gelu":
            rest = [((n,), self.dtype)]
        elif self.around == "scaled":
            rest = [((1,), dtypes.f32), ((1,), dtypes.f32)]
        return [((*z, *a), self.dtype), ((*z, *b), self.dtype), *rest]

    def body(self) -> UOp:
        """The shaped value."""
        x = [param(n, *shape, dtype=dtype) for n, (shape, dtype) in enumerate(self.inputs())]
        if self.around == "convolution":
            return self._convolution(*x)
        z, m, n, k = self.batch, self.m, self.n, self.k
        a = x[0] if self.layout[0] == "N" else _turned(x[0])
        b = x[1] if self.layout[1] == "T" else _turned(x[1])
        full, lead = ((z, m, n, k), (z,)) if z > 1 else ((m, n, k), ())
        left = a.reshape((*lead, m, 1, k)).expand(full).cast(dtypes.f32)
        right = b.reshape((*lead, 1, n, k)).expand(full).cast(dtypes.f32)
        total = (left * right).reduce(Ops.ADD, 1)
        if self.around == "bias, gelu":
            bias = x[2].cast(dtypes.f32).reshape((1, n)).expand((m, n))
            total = _gelu(total + bias)
        elif self.around == "scaled":
            total = (
                total * x[2].reshape((1, 1)).expand((m, n)) * x[3].reshape((1, 1)).expand((m, n))
            )
        return total.cast(self.result)

    def _convolution(self, image: UOp, weight: UOp) -> UOp:
        """3x3, padded by 1; image (images, y, x, channel), weight (n, ky, kx, channel)."""
        count, height, width = self.image
        n, c = self.n, self.k // 9
        seen = windows(windows(image.pad(((0, 0), (1, 1), (1, 1), (0, 0))), 1, 3), 3, 3)
        full = (count, height, width, n, 3, 3, c)
        left = seen.permute((0, 1, 3, 2, 4, 5)).reshape((count, height, width, 1, 3, 3, c))
        right = weight.reshape((1, 1, 1, n, 3, 3, c)).expand(full).cast(dtypes.f32)
        total = (left.expand(full).cast(dtypes.f32) * right).reduce(Ops.ADD, 3)
        return total.cast(self.result)

    # ---- in torch
    def peer(self, torch: Any, fast: bool = True) -> Peer:
        """cuBLAS (cuDNN) through torch.  fast: of 8 bits, whether sums are kept in fewer bits."""
        if self.around == "convolution":
            return lambda x, w: torch.nn.functional.conv2d(
                x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1
            ).permute(0, 2, 3, 1)

        def turned(a: Any, b: Any) -> tuple[Any, Any]:
            return a.mT if self.layout[0] == "T" else a, b.mT if self.layout[1] == "T" else b

        if self.around == "scaled":
            return lambda a, b, x, y: torch._scaled_mm(
                *turned(a, b), x, y, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
        if self.around == "bias, gelu":
            return lambda a, b, bias: torch.nn.functional.gelu(torch.matmul(*turned(a, b)) + bias)
        return lambda a, b: torch.matmul(*turned(a, b))


def _gelu(x: UOp) -> UOp:
    return x * 0.5 * (alu(Ops.ERF, x * 0.5**0.5) + 1.0)


def _turned(x: UOp) -> UOp:
    lead = range(len(x.shape) - 2)
    return x.permute((*lead, len(x.shape) - 1, len(x.shape) - 2))


def windows(x: UOp, axis: int, size: int) -> UOp:
    """Every run of `size` elements along an axis: an axis of places, then one inside of each."""
    *before, length = x.shape[: axis + 1]
    after = x.shape[axis + 1 :]
    assert size <= length
    many = x.reshape((*before, 1, length, *after)).expand((*before, size + 1, length, *after))
    whole = [(0, s) for s in before]
    rest = [(0, s) for s in after]
    flat = many.reshape((*before, (size + 1) * length, *after))
    shifted = flat.shrink((*whole, (0, size * (length + 1)), *rest))
    rows = shifted.reshape((*before, size, length + 1, *after))
    places = rows.shrink((*whole, (0, size), (0, length + 1 - size), *rest))
    n = len(before)
    return places.permute((*range(n), n + 1, n, *range(n + 2, n + 2 + len(after))))


_TYPES = ("f32", "tf32", "bf16", "f16")
#: (m, n, k) of the product table
SIZES = (
    *((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)),
    *((8192, 8192, 8192), (16, 4096, 4096), (4096, 4096, 64), (4097, 4099, 1023)),
    *((64, 256, 784), (1, 8192, 8192)),
)
ROWS: tuple[Row, ...] = (
    *(Row(*size, type) for type in _TYPES for size in SIZES),
    Row(512, 512, 512, "f32", batch=64),
    Row(8192, 8192, 8192, "f8e4m3", "NT", around="scaled"),
    *(Row(4096, 4096, 4096, "bf16", layout) for layout in ("NT", "TN", "TT")),
    Row(8192, 8192, 1024, "bf16", around="bias, gelu"),
    Row(64 * 56 * 56, 128, 9 * 128, "bf16", around="convolution", image=(64, 56, 56)),
)

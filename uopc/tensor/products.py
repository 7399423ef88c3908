"""Products of vectors and matrices.

Every product is one form: both operands spread over (batch..., rows, columns, inner), multiplied
and summed over the last axis.  Nothing of that size is ever stored: it is index arithmetic in the
kernel of the sum, which the choice of Opts finds to be a product of matrices.

f16 and bf16 become f32 first, where the product of two of them is exact; the sum is rounded once,
at the end.  Integers wrap in their dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.tensor.base import Base, axes_of, axis_of, wrap
from uopc.tensor.movement import move_axes
from uopc.tensor.promote import broadcast_shapes, promote, tensor_of
from uopc.uop.node import UOp, here, prod
from uopc.uop.ops import Ops


# ---- graphs
def inner(a: UOp, b: UOp, axes: int = 1) -> UOp:
    """Products of two values of one shape and dtype, summed over the last axes."""
    dtype = a.dtype
    if dtype is dtypes.bool:
        return (a & b).reduce(Ops.OR, axes)
    if dtype.is_float and dtype.bits < 32:
        a, b = a.cast(dtypes.f32), b.cast(dtypes.f32)
    return (a * b).reduce(Ops.ADD, axes).cast(dtype)


def matmul_of(a: UOp, b: UOp) -> UOp:
    """(..., M, K) with (..., K, N); a vector is a row on the left, a column on the right."""
    rows, columns = a.shape[-2:-1], b.shape[-1:] if len(b.shape) > 1 else ()
    k = a.shape[-1]
    if len(b.shape) > 1:
        b = b.permute((*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2))
    batch = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    full = (*batch, *rows, *columns, k)
    left = a.reshape((*a.shape[:-2], *rows, *(1 for _ in columns), k))
    right = b.reshape((*b.shape[:-2], *(1 for _ in rows), *columns, k))
    return inner(left.expand(full), right.expand(full))


def _one_dtype(a: Base, b: Base, what: str) -> tuple[UOp, UOp]:
    dtype = promote(a.dtype, b.dtype, what)
    if dtype.storage:
        raise UsageError(f"{what} at {here()}: {dtype} is storage; cast it first, as in .cast(f32)")
    return a._u.cast(dtype), b._u.cast(dtype)


# ---- methods
class Products(Base):
    """Methods of Tensor that multiply and add up.  Operands promote to one dtype, which the result
    has; a product of bools is whether any pair is true.  An inner size of 0 gives zeros."""

    __slots__ = ()

    def matmul(self, other: Base) -> Self:
        """The product of matrices, (..., M, K) @ (..., K, N): (..., M, N).

        (K,) is a row on the left or a column on the right and leaves no axis; leading axes
        broadcast.  Raises UsageError for operands without axes, inner sizes that differ, and
        leading axes that do not broadcast.
        """
        tensor_of(other, "matmul")
        if not self.ndim or not other.ndim:
            raise UsageError(
                f"matmul at {here()}: shapes {self.shape} and {other.shape}: an operand has no "
                "axes. Use * for a factor."
            )
        k = other.shape[-2] if other.ndim > 1 else other.shape[0]
        if self.shape[-1] != k:
            fits = other.ndim > 1 and other.shape[-1] == self.shape[-1]
            hint = ". Transpose b?" if fits else ""
            raise UsageError(
                f"matmul at {here()}: inner sizes differ: a is {self.shape}, b is {other.shape}"
                f"{hint}"
            )
        return wrap(matmul_of(*_one_dtype(self, other, "matmul")), self, other)

    def __matmul__(self, other: Base) -> Self:
        """`matmul`."""
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        return cast("Self", tensor_of(other, "matmul")).matmul(self)

    def dot(self, other: Base) -> Self:
        """The inner product of two vectors (K,), without axes.  Raises UsageError for others."""
        tensor_of(other, "dot")
        if self.ndim != 1 or self.shape != other.shape:
            raise UsageError(
                f"dot at {here()}: wants two vectors of one size, got shapes {self.shape} and "
                f"{other.shape}. Use matmul for matrices, vecdot for many vectors."
            )
        return wrap(inner(*_one_dtype(self, other, "dot")), self, other)

    def vecdot(self, other: Base, axis: int = -1) -> Self:
        """Inner products along one axis, of equal size in both; the other axes broadcast.

        axis: -1 to -min(a.ndim, b.ndim).  Raises UsageError for other axes or shapes.
        """
        tensor_of(other, "vecdot")
        if not self.ndim or not other.ndim or axis >= 0:
            raise UsageError(
                f"vecdot at {here()}: axis {axis} must be negative (it counts in both operands) "
                f"and be there in shapes {self.shape} and {other.shape}"
            )
        a, b = _one_dtype(self, other, "vecdot")
        pair = []
        for u in (a, b):
            at = axis_of(axis, len(u.shape), "vecdot")
            pair.append(move_axes(u, (at,), (len(u.shape) - 1,)))
        if pair[0].shape[-1] != pair[1].shape[-1]:
            raise UsageError(
                f"vecdot at {here()}: sizes {pair[0].shape[-1]} and {pair[1].shape[-1]} of axis "
                f"{axis} differ"
            )
        full = broadcast_shapes("vecdot", *(u.shape for u in pair))
        left, right = (u.expand(full) for u in pair)
        return wrap(inner(left, right), self, other)

    def outer(self, other: Base) -> Self:
        """Every product of elements of two vectors: (M,) and (N,) give (M, N)."""
        tensor_of(other, "outer")
        if self.ndim != 1 or other.ndim != 1:
            raise UsageError(
                f"outer at {here()}: wants two vectors, got shapes {self.shape} and {other.shape}"
            )
        a, b = _one_dtype(self, other, "outer")
        full = (self.shape[0], other.shape[0])
        left, right = a.reshape((-1, 1)).expand(full), b.expand(full)
        return wrap(left & right if a.dtype is dtypes.bool else left * right, self, other)

    def tensordot(self, other: Base, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Self:
        """Products summed over pairs of axes; the result has a's other axes, then b's.

        axes: that many last axes of a with as many first axes of b, or the axes of a and of b.
        Raises UsageError where the axes do not pair, or their sizes differ.
        """
        first, second = self._paired(tensor_of(other, "tensordot"), axes)
        a, b = _one_dtype(self, other, "tensordot")
        left = _flat(a, [i for i in range(self.ndim) if i not in first], first)
        right = _flat(b, second, [i for i in range(other.ndim) if i not in second])
        shape = (
            *(n for i, n in enumerate(self.shape) if i not in first),
            *(n for i, n in enumerate(other.shape) if i not in second),
        )
        return wrap(matmul_of(left, right).reshape(shape), self, other)

    def _paired(
        self, other: Base, axes: int | tuple[Sequence[int], Sequence[int]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The axes of a and b that are summed, in pairs."""
        if isinstance(axes, int):
            if not 0 <= axes <= min(self.ndim, other.ndim):
                raise UsageError(
                    f"tensordot at {here()}: {axes} axes of shapes {self.shape} and {other.shape}"
                )
            first, second = tuple(range(self.ndim - axes, self.ndim)), tuple(range(axes))
        else:
            first = axes_of(axes[0], self.ndim, "tensordot")
            second = axes_of(axes[1], other.ndim, "tensordot")
        sizes = [self.shape[a] for a in first], [other.shape[a] for a in second]
        if sizes[0] != sizes[1]:
            raise UsageError(
                f"tensordot at {here()}: axes {first} of {self.shape} have sizes {sizes[0]}, "
                f"axes {second} of {other.shape} have {sizes[1]}"
            )
        return first, second

    def linear(self, weight: Base, bias: Base | None = None) -> Self:
        """x @ weight.T + bias: (..., K) with weight (N, K) and bias (N,): (..., N).

        Raises UsageError where the shapes do not fit.
        """
        if weight.ndim != 2 or not self.ndim or self.shape[-1] != weight.shape[1]:
            raise UsageError(
                f"linear at {here()}: x is (..., K) and weight (N, K); got {self.shape} and "
                f"{weight.shape}"
            )
        if bias is not None and bias.shape != weight.shape[:1]:
            raise UsageError(
                f"linear at {here()}: bias is {bias.shape}, must be {weight.shape[:1]}"
            )
        x, w = _one_dtype(self, weight, "linear")
        y = wrap(matmul_of(x, w.permute((1, 0))), self, weight)
        if bias is None:
            return y
        a, b = _one_dtype(y, bias, "linear")
        return wrap(a + b.expand(a.shape), y, bias)


def _flat(u: UOp, rows: Sequence[int], columns: Sequence[int]) -> UOp:
    """u as a matrix of these axes by those."""
    sizes = [prod(u.shape[a] for a in axes) for axes in (rows, columns)]
    return u.permute((*rows, *columns)).reshape(sizes)

"""Kernels whose axes are given, as a schedule makes them, and running them on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.kernels import along
from uopc.dtype import DType, dtypes
from uopc.kernel import KernelBody, Output
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile_kernel
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate

F32, I32 = dtypes.f32, dtypes.i32


class Body:
    """Parameters by slot, and the record once its outputs are known."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.slots = 0
        self.axes: dict[UOp, tuple[int, ...]] = {}
        self.outputs: list[Output] = []
        self.checked: list[UOp] = []

    def param(self, *shape: int, dtype: DType = F32) -> UOp:
        self.slots += 1
        return buffer(self.slots - 1, dtype, shape)

    def walks(self, value: UOp, *axes: int) -> UOp:
        """The same value, whose domain has these axes."""
        self.axes[value] = axes
        return value

    def store(self, value: UOp, *axes: int, into: UOp | None = None) -> UOp:
        """An output; into a parameter that is read, it is in place.  No axes: as `walks` said."""
        if axes or value not in self.axes:
            self.axes[value] = axes
        memory = self.param(*(value.shape or (1,)), dtype=value.dtype) if into is None else into
        self.outputs.append(Output(value, memory))
        return value

    def checks(self, value: UOp) -> UOp:
        self.checked.append(value)
        return value

    @property
    def record(self) -> KernelBody:
        errors = buffer(self.slots, dtypes.u64, (1,)) if self.checked else None
        checked = frozenset(self.checked)
        return KernelBody(tuple(self.outputs), self.sizes, self.axes, checked, errors)


def product_of(a: UOp, b: UOp) -> UOp:
    """(m, k) by (k, n)."""
    (m, k), (_, n) = a.shape, b.shape
    columns = b.permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a.reshape((m, 1, k)).expand((m, n, k)) * columns).reduce(Ops.ADD, 1)


def across(row: UOp, like: UOp) -> UOp:
    """One value a column, repeated along the first axis."""
    return row.reshape((1, *row.shape)).expand(like.shape)


# ---- kernels
def row_statistics(rows: int = 12, columns: int = 40) -> KernelBody:
    """Max of each row, sum of exponentials, softmax: three outputs, one walk."""
    b = Body(rows, columns)
    x = b.param(rows, columns)
    top = b.walks(x.reduce(Ops.MAX, 1), 0, 1)
    e = (x - along(top, x)).exp()
    total = b.walks(e.reduce(Ops.ADD, 1), 0, 1)
    b.store(top)
    b.store(total)
    b.store(e / along(total, x), 0, 1)
    return b.record


def softmax_in_place(rows: int = 12, columns: int = 40) -> KernelBody:
    """A row is read three times and then overwritten; its max is an output."""
    b = Body(rows, columns)
    x = b.param(rows, columns)
    top = b.walks(x.reduce(Ops.MAX, 1), 0, 1)
    e = (x - along(top, x)).exp()
    total = b.walks(e.reduce(Ops.ADD, 1), 0, 1)
    b.store(e / along(total, x), 0, 1, into=x)
    b.store(top)
    return b.record


def last_layer(m: int = 64, n: int = 10, k: int = 128) -> KernelBody:
    """logits = h @ w + b, softmax, its gradient, the gradient of b and b's update in place."""
    b = Body(m, n, k)
    h, w, bias, target = b.param(m, k), b.param(k, n), b.param(n), b.param(m, dtype=I32)
    dot = b.walks(product_of(h, w), 0, 1, 2)
    logits = dot + across(bias, dot)
    top = b.walks(logits.reduce(Ops.MAX, 1), 0, 1)
    e = (logits - along(top, logits)).exp()
    total = b.walks(e.reduce(Ops.ADD, 1), 0, 1)
    place = UOp.arange(n, I32)
    hot = across(place, logits).eq(along(target, logits))
    gradient = (e / along(total, logits) - hot.where(1.0, 0.0)) * (1.0 / m)
    of_bias = b.walks(gradient.permute((1, 0)).reduce(Ops.ADD, 1), 1, 0)
    b.store(gradient, 0, 1)
    b.store(bias - of_bias * 0.1, 1, into=bias)
    return b.record


def gathered_product(m: int = 16, n: int = 24, k: int = 40, many: int = 100) -> KernelBody:
    """relu(x[index] @ w + b)."""
    b = Body(m, n, k)
    x, index, w, bias = b.param(many, k), b.param(m, dtype=dtypes.i64), b.param(k, n), b.param(n)
    rows = b.checks(x.gather((~0, 1), index.reshape((m, 1)).expand((m, k))))
    dot = b.walks(product_of(rows, w), 0, 1, 2)
    b.store((dot + across(bias, dot)).maximum(0.0), 0, 1)
    return b.record


def weight_update(batch: int = 32, i: int = 20, o: int = 12) -> KernelBody:
    """The gradient x^T @ d of a weight, and the update of the weight and its mean square."""
    b = Body(i, o, batch)
    x, d, w, v = b.param(batch, i), b.param(batch, o), b.param(i, o), b.param(i, o)
    g = b.walks(product_of(x.permute((1, 0)), d), 0, 1, 2)
    square = v * 0.9 + g * g * 0.1
    b.store(w - g * 0.01 / (square.sqrt() + 1e-6), 0, 1, into=w)
    b.store(square, 0, 1, into=v)
    return b.record


def embedding_update(count: int = 30, many: int = 12, width: int = 8) -> KernelBody:
    """A table minus what is scattered onto its rows, in place."""
    b = Body(many, width)
    values, index = b.param(count, width), b.param(count, dtype=I32)
    table = b.param(many, width)
    spread = index.reshape((count, 1)).expand((count, width))
    sums = b.checks(values.scatter((many, width), (~0, 1), spread))
    b.store(table - sums * 0.5, 0, 1, into=table)
    return b.record


def rows_and_elements(rows: int = 9, columns: int = 21) -> KernelBody:
    """(R, 1) and (R, C) together, neither a reduction."""
    b = Body(rows, columns)
    x, y = b.param(rows, columns), b.param(rows)
    b.store((y * 2.0).reshape((rows, 1)), 0, -1)
    b.store(x + along(y, x), 0, 1)
    return b.record


KERNELS: dict[str, Callable[[], KernelBody]] = {
    "row statistics": row_statistics,
    "softmax in place": softmax_in_place,
    "last layer": last_layer,
    "gathered product": gathered_product,
    "weight update": weight_update,
    "embedding update": embedding_update,
    "rows and elements": rows_and_elements,
}


# ---- running
def values_of(body: KernelBody) -> list[UOp]:
    return [o.value for o in body.outputs]


def arrays_for(body: KernelBody, seed: int = 0) -> dict[int, Array]:
    """What the kernel reads: eighths, or indices of the smallest axis that there is."""
    rng = np.random.default_rng(seed)
    out: dict[int, Array] = {}
    for u in toposort(*values_of(body)):
        if u.op is Ops.BUFFER:
            whole = rng.integers(-8, 9, u.arg.shape)
            out[u.arg.slot] = (whole / 8 if u.dtype.is_float else whole).astype(u.dtype.numpy)
    for o in body.outputs:  # a mean square is never negative
        if o.memory.arg.slot in out and o.value.dtype.is_float:
            out[o.memory.arg.slot] = np.abs(out[o.memory.arg.slot])
    return out


def filled(body: KernelBody, arrays: Mapping[int, Array]) -> dict[int, Array]:
    """Copies of the arrays, garbage for what is only written, no error yet."""
    out = {slot: x.copy() for slot, x in arrays.items()}
    for o in body.outputs:
        a = o.memory.arg
        out.setdefault(a.slot, np.full(prod(a.shape), 77, a.dtype.numpy).reshape(a.shape))
    if body.errors is not None:
        out[body.errors.arg.slot] = np.zeros(1, np.uint64)
    return out


def error_of(body: KernelBody, arrays: Mapping[int, Array]) -> int:
    return 0 if body.errors is None else int(arrays[body.errors.arg.slot][0])


def wanted(body: KernelBody, arrays: Mapping[int, Array]) -> list[Array]:
    return evaluate(values_of(body), arrays)


def outputs_in(body: KernelBody, arrays: Mapping[int, Array]) -> list[Array]:
    return [arrays[o.memory.arg.slot].reshape(o.value.shape) for o in body.outputs]


def close(got: Sequence[Array], want: Sequence[Array], tolerance: float = 1e-5) -> None:
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def run_kernel(
    body: KernelBody,
    target: str,
    opts: Opts | None = None,
    arrays: Mapping[int, Array] | None = None,
) -> tuple[Kernel, dict[int, Array]]:
    """Compile and run; (the kernel, all its arrays afterwards)."""
    kernel = compile_kernel(body, target, opts=opts)
    have = filled(body, arrays_for(body) if arrays is None else arrays)
    kernel.run(have)
    return kernel, have

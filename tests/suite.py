"""A fixed list of kernels, small and large, that tests render, compile, launch and compare.

`SUITE` holds exact ones: every device gives the same bits.  `ROUNDED` has transcendentals.  `OPS`
holds every elementwise op on every dtype that has it, a few outputs a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from uopc.dtype import DATA, FLOATS, SIGNED, UNSIGNED, DType, dtypes
from uopc.opts import Opts
from uopc.uop.node import UOp, alu, buffer, prod
from uopc.uop.ops import TRANSCENDENTAL, UNARY_FLOAT, Ops

Bodies: TypeAlias = Callable[[], UOp | list[UOp]]


def param(slot: int, *shape: int, dtype: DType = dtypes.f32) -> UOp:
    return buffer(slot, dtype, (prod(shape),)).reshape(shape)


def keep(x: UOp, op: Ops) -> UOp:
    """The last axis reduced, and broadcast back."""
    return x.reduce(op, 1).reshape((*x.shape[:-1], 1)).expand(x.shape)


def product(m: int, n: int, k: int, dtype: DType = dtypes.f32) -> UOp:
    """A (m, k) @ B (k, n)."""
    a = param(0, m, k, dtype=dtype).reshape((m, 1, k)).expand((m, n, k))
    b = param(1, k, n, dtype=dtype).permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (a * b).reduce(Ops.ADD, 1)


def normalised(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    """Rows divided by their sum: two walks over a row, exact ops only."""
    x = param(0, m, n, dtype=dtype)
    d = x - keep(x, Ops.MAX)
    return d / keep(d, Ops.ADD)


def numerator(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    """exp(x - max of its row)."""
    x = param(0, m, n, dtype=dtype)
    return (x - keep(x, Ops.MAX)).exp()


def softmax(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    e = numerator(m, n, dtype)
    return e / keep(e, Ops.ADD)


def layernorm(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    """(x - mean) / sqrt(variance + eps) * scale + shift, over rows."""
    x = param(0, m, n, dtype=dtype)
    centred = x - keep(x, Ops.ADD) * (1 / n)
    variance = keep(centred * centred, Ops.ADD) * (1 / n)
    scale, shift = (param(s, 1, n, dtype=dtype).expand((m, n)) for s in (1, 2))
    return centred / (variance + 1e-5).sqrt() * scale + shift


def bias(*shape: int) -> UOp:
    """(a, b, c, d) + (b, d)."""
    a, b, c, d = shape
    return param(0, *shape) + param(1, b, d).reshape((1, b, 1, d)).expand((a, b, c, d))


SUITE: dict[str, Bodies] = {
    "axpy": lambda: param(0, 64, 128) * 2.0 + 1.0,
    "(3, 100)": lambda: param(0, 3, 100) * 2.0,
    "(8, 4, 64, 64)": lambda: bias(8, 4, 64, 64),
    "one": lambda: param(0, 1) + 1.0,
    "prime 31": lambda: param(0, 31) * param(1, 31),
    "prime 97": lambda: param(0, 97) * param(1, 97),
    "prime 1009x1013": lambda: param(0, 1009, 1013) * param(1, 1009, 1013),
    "transpose": lambda: param(0, 777, 1000).permute((1, 0)) * 2.0,
    "pad flip shrink": lambda: (
        param(0, 33, 70).pad(((2, 3), (1, 4)), 7.0).flip((0,)).shrink(((1, 30), (0, 71)))
    ),
    "rows": lambda: param(0, 65, 1000).reduce(Ops.ADD, 1),
    "long rows": lambda: param(0, 3, 131072).reduce(Ops.ADD, 1),
    "columns": lambda: param(0, 1000, 257).permute((1, 0)).reduce(Ops.ADD, 1),
    "all 100,003": lambda: param(0, 100_003).reduce(Ops.ADD, 1),
    "all 1Mi": lambda: param(0, 1 << 20).reduce(Ops.ADD, 1),
    "row max": lambda: param(0, 70, 8192).reduce(Ops.MAX, 1),
    "argmax": lambda: param(0, 70, 8192).argmax(1),
    "argmin": lambda: param(0, 33, 777).argmin(1),
    "argmax of all": lambda: param(0, 300_000).argmax(1),
    "normalised 33x1000": lambda: normalised(33, 1000),
    "normalised 5x777": lambda: normalised(5, 777),
    "normalised 1000x64": lambda: normalised(1000, 64),
    "normalised 3x40000": lambda: normalised(3, 40000),
    "normalised 3x100003": lambda: normalised(3, 100_003),
    "product 64": lambda: product(64, 64, 64),
    "product 100x140x33": lambda: product(100, 140, 33),
    "product 512": lambda: product(512, 512, 512),
    "two outputs": lambda: [param(0, 40, 500).reduce(Ops.MAX, 1), param(0, 40, 500) * 0.5],
    "two reductions": lambda: [
        param(0, 40, 500).reduce(Ops.MIN, 1),
        param(0, 40, 500).reduce(Ops.ADD, 1),
    ],
}

ROUNDED: dict[str, Bodies] = {
    "softmax numerator 16x32": lambda: numerator(16, 32),
    "softmax 33x1000": lambda: softmax(33, 1000),
    "softmax 2x131072": lambda: softmax(2, 131072),
    "softmax of f16": lambda: softmax(64, 2048, dtypes.f16),
    "softmax of bf16": lambda: softmax(64, 2048, dtypes.bf16),
    "layernorm 64x1024": lambda: layernorm(64, 1024),
    "layernorm 3x12288": lambda: layernorm(3, 12288),
    "gelu": lambda: (x := param(0, 128, 512)) * 0.5 * ((x * 0.7071067811865476).erf() + 1.0),
}

#: the 64 x 64 x 64 product, mapped by hand
MAPPINGS: dict[str, Opts] = {
    "a thread an element": Opts(gpu=True),
    "blocks of 8x16": Opts(gpu=True, local={0: 8, 1: 16}),
}

#: sines reduce large arguments with an array that is indexed at run time: it lies on the stack
SINES = frozenset((Ops.SIN, Ops.COS, Ops.TAN))
_N = 1003


def _bools() -> list[UOp]:
    a, b = param(0, _N, dtype=dtypes.bool), param(1, _N, dtype=dtypes.bool)
    return [a & b, a | b, a ^ b, ~a, a.maximum(b), a.minimum(b), a < b, a.eq(b), a.where(b, ~b)]


def _ints(d: DType) -> list[UOp]:
    a, b = param(0, _N, dtype=d), param(1, _N, dtype=d)
    n = b & (d.bits - 1)
    two = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN)
    out = [alu(op, a, b) for op in (*two, Ops.AND, Ops.OR, Ops.XOR)]
    return [*out, a << n, a >> n, -a, ~a, (a < b).where(a, b), a.eq(b), a.ne(b), a // 7, a % 8]


def _floats(d: DType) -> list[UOp]:
    a, b = param(0, _N, dtype=d), param(1, _N, dtype=d)
    two = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAX, Ops.MIN)
    one = sorted(UNARY_FLOAT - TRANSCENDENTAL, key=lambda op: op.value)
    out = [alu(op, a, b) for op in two] + [alu(op, a) for op in one]
    return [*out, a.fma(b, a), -a, (a < b).where(a, b), a.eq(b), a.ne(b)]


def _library(d: DType) -> list[UOp]:
    x = param(0, _N, dtype=d)
    return [alu(op, x) for op in sorted(TRANSCENDENTAL - SINES, key=lambda op: op.value)]


def _sine(op: Ops, d: DType) -> UOp:
    return alu(op, param(0, _N, dtype=d))


def _casts(d: DType) -> list[UOp]:
    x = param(0, _N, dtype=d)
    return [x.cast(to) for to in DATA if to is not d] + [x.flip((0,))]


OPS: dict[str, Bodies] = {
    "bool": _bools,
    **{f"ints {d}": (lambda d=d: _ints(d)) for d in (*SIGNED, *UNSIGNED)},  # type: ignore[misc]
    **{f"floats {d}": (lambda d=d: _floats(d)) for d in FLOATS},  # type: ignore[misc]
    **{f"functions {d}": (lambda d=d: _library(d)) for d in FLOATS},  # type: ignore[misc]
    **{f"{op.name.lower()} {d}": (lambda op=op, d=d: _sine(op, d)) for op in sorted(SINES, key=lambda o: o.value) for d in FLOATS},  # type: ignore[misc]
    **{f"casts of {d}": (lambda d=d: _casts(d)) for d in DATA},  # type: ignore[misc]
}


def bodies_of(built: UOp | list[UOp]) -> list[UOp]:
    return built if isinstance(built, list) else [built]

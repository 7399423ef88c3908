"""A fixed list of kernels, small and large, that tests render, compile, launch and compare.

`SUITE` holds exact ones: every device gives the same bits.  `ROUNDED` has transcendentals.  `OPS`
holds every elementwise op on every dtype that has it, many outputs a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tests.kernels import along, axpy, columns, numerator, outputs, param, product, softmax
from uopc.choose import cpu as choose_cpu
from uopc.choose import gpu as choose_gpu
from uopc.choose.facts import KernelFacts
from uopc.dtype import DATA, FLOATS, SIGNED, UNSIGNED, DType, dtypes
from uopc.opts import Opts
from uopc.target import target as named_target
from uopc.uop.node import UOp, alu
from uopc.uop.ops import TRANSCENDENTAL, UNARY_FLOAT, Ops

Built: TypeAlias = Callable[[], UOp | list[UOp]]


def normalised(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    """Rows divided by their sum: two walks over a row, exact ops only."""
    x = param(0, m, n, dtype=dtype)
    d = x - along(x.reduce(Ops.MAX, 1), x)
    return d / along(d.reduce(Ops.ADD, 1), d)


def layernorm(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    """(x - mean) / sqrt(variance + eps) * scale + shift of each row."""
    x = param(0, m, n, dtype=dtype)
    centred = x - along(x.reduce(Ops.ADD, 1) * (1 / n), x)
    variance = (centred * centred).reduce(Ops.ADD, 1) * (1 / n)
    scale, shift = (param(s, 1, n, dtype=dtype).expand((m, n)) for s in (1, 2))
    return centred / along((variance + 1e-5).sqrt(), x) * scale + shift


def bias(a: int, b: int, c: int, d: int) -> UOp:
    """(a, b, c, d) + (b, d)."""
    row = param(1, b, d).reshape((1, b, 1, d)).expand((a, b, c, d))
    return param(0, a, b, c, d) + row


def gelu(*shape: int) -> UOp:
    x = param(0, *shape)
    return x * 0.5 * ((x * 0.7071067811865476).erf() + 1.0)


def x2d(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    return param(0, m, n, dtype=dtype)


SUITE: dict[str, Built] = {
    "axpy": lambda: axpy(64, 128),
    "(3, 100)": lambda: axpy(3, 100),
    "(8, 4, 64, 64)": lambda: bias(8, 4, 64, 64),
    "one": lambda: axpy(1),
    "prime 31": lambda: param(0, 31) * param(1, 31),
    "prime 97": lambda: param(0, 97) * param(1, 97),
    "prime 1009x1013": lambda: x2d(1009, 1013) * param(1, 1009, 1013),
    "transpose": lambda: x2d(777, 1000).permute((1, 0)) * 2.0,
    "pad flip shrink": lambda: (
        x2d(33, 70).pad(((2, 3), (1, 4)), 7.0).flip((0,)).shrink(((1, 30), (0, 71)))
    ),
    "rows": lambda: x2d(65, 1000).reduce(Ops.ADD, 1),
    "long rows": lambda: x2d(3, 131072).reduce(Ops.ADD, 1),
    "columns": lambda: columns(x2d(1000, 257)),
    "all 100,003": lambda: param(0, 100_003).reduce(Ops.ADD, 1),
    "all 1Mi": lambda: param(0, 1 << 20).reduce(Ops.ADD, 1),
    "row max": lambda: x2d(70, 8192).reduce(Ops.MAX, 1),
    "argmax": lambda: x2d(70, 8192).argmax(1),
    "argmin": lambda: x2d(33, 777).argmin(1),
    "argmax of all": lambda: param(0, 300_000).argmax(1),
    "normalised 33x1000": lambda: normalised(33, 1000),
    "normalised 5x777": lambda: normalised(5, 777),
    "normalised 1000x64": lambda: normalised(1000, 64),
    "normalised 3x40000": lambda: normalised(3, 40000),
    "normalised 3x100003": lambda: normalised(3, 100_003),
    "product 64": lambda: product(64, 64, 64),
    "product 100x140x33": lambda: product(100, 140, 33),
    "product 512": lambda: product(512, 512, 512),
    "two outputs": lambda: [x2d(40, 500).reduce(Ops.MAX, 1), x2d(40, 500) * 0.5],
    "two reductions": lambda: [
        x2d(40, 500).reduce(Ops.MIN, 1),
        x2d(40, 500).reduce(Ops.ADD, 1),
    ],
}

ROUNDED: dict[str, Built] = {
    "softmax numerator 16x32": lambda: numerator(x2d(16, 32)),
    "softmax 33x1000": lambda: softmax(x2d(33, 1000)),
    "softmax 2x131072": lambda: softmax(x2d(2, 131072)),
    "softmax of f16": lambda: softmax(x2d(64, 2048, dtypes.f16)),
    "softmax of bf16": lambda: softmax(x2d(64, 2048, dtypes.bf16)),
    "layernorm 64x1024": lambda: layernorm(64, 1024),
    "layernorm 3x12288": lambda: layernorm(3, 12288),
    "layernorm 3x100003": lambda: layernorm(3, 100_003),
    "gelu": lambda: gelu(128, 512),
}

#: the product of two 64 x 64 matrices under Opts written by hand
MAPPINGS: dict[str, Opts] = {
    "a thread an element": Opts(gpu=True),
    "blocks of 8x16": Opts(gpu=True, local={0: 8, 1: 16}),
}

SINES = (Ops.SIN, Ops.COS, Ops.TAN)
SIZE = 1003  # elements of the kernels in OPS
_FUNCTIONS = sorted(TRANSCENDENTAL - set(SINES), key=lambda op: op.value)
_ROUNDINGS = sorted(UNARY_FLOAT - TRANSCENDENTAL, key=lambda op: op.value)


def _pair(d: DType) -> tuple[UOp, UOp]:
    return param(0, SIZE, dtype=d), param(1, SIZE, dtype=d)


def bools() -> list[UOp]:
    """Every op of bool."""
    a, b = _pair(dtypes.bool)
    return [a & b, a | b, a ^ b, ~a, a.maximum(b), a.minimum(b), a < b, a.eq(b), a.where(b, ~b)]


def ints(d: DType) -> list[UOp]:
    """Every op of an integer dtype, on values and with constants."""
    a, b = _pair(d)
    n = b & (d.bits - 1)
    both = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.MIN)
    out = [alu(op, a, b) for op in (*both, Ops.AND, Ops.OR, Ops.XOR)]
    return [*out, a << n, a >> n, -a, ~a, (a < b).where(a, b), a.eq(b), a.ne(b), a // 7, a % 8]


def floats(d: DType) -> list[UOp]:
    """Every exact op of a float dtype."""
    a, b = _pair(d)
    both = (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.MAX, Ops.MIN)
    out = [alu(op, a, b) for op in both] + [alu(op, a) for op in _ROUNDINGS]
    return [*out, a.fma(b, a), -a, (a < b).where(a, b), a.eq(b), a.ne(b)]


def functions(d: DType) -> list[UOp]:
    """Every transcendental of a float dtype but the sines."""
    return [alu(op, param(0, SIZE, dtype=d)) for op in _FUNCTIONS]


def sines(d: DType) -> list[UOp]:
    """Those that reduce large arguments."""
    return [alu(op, param(0, SIZE, dtype=d)) for op in SINES]


def casts(d: DType) -> list[UOp]:
    """A dtype in every other one, and moved as it is."""
    x = param(0, SIZE, dtype=d)
    return [*(x.cast(to) for to in DATA if to is not d), x.flip((0,))]


OPS: dict[str, Built] = {
    "bools": bools,
    **{f"ints {d}": partial(ints, d) for d in (*SIGNED, *UNSIGNED)},
    **{f"floats {d}": partial(floats, d) for d in FLOATS},
    **{f"functions {d}": partial(functions, d) for d in FLOATS},
    **{f"sines {d}": partial(sines, d) for d in FLOATS},
    **{f"casts {d}": partial(casts, d) for d in DATA},
}


def bodies_of(built: UOp | list[UOp]) -> list[UOp]:
    """What a builder gave, as a list."""
    return built if isinstance(built, list) else [built]


def candidates(bodies: list[UOp], target: str) -> list[Opts]:
    """The Opts that automatic choice ranks for a target, the best guess first."""
    facts, on = KernelFacts.of(bodies, outputs(bodies)), named_target(target)
    return choose_gpu.rank(facts, choose_gpu.Aim(on)) if on.is_gpu else choose_cpu.rank(facts)


def first_guess(bodies: list[UOp], target: str) -> Opts:
    return candidates(bodies, target)[0]

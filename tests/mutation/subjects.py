"""Kernels whose mutants are studied: those of the suite and of the examples that synchronise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.convolutions import convolution
from tests.kernels import arrays_of, columns, param, softmax
from tests.mutation.study import Subject
from tests.suite import layernorm, normalised
from uopc.dtype import DType, dtypes
from uopc.examples import EXAMPLES, Example
from uopc.examples.products import register_product
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile, gpu_opt_choice
from uopc.plan import BULK, CP_ASYNC, FMA, Plan
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import WARP_VALUES, Ops

SYNCHRONISES = WARP_VALUES | {Ops.BARRIER, Ops.WAIT, Ops.WAITG, Ops.FENCE}

BODIES: dict[str, Callable[[], UOp]] = {
    "row sums": lambda: param(0, 65, 1000).reduce(Ops.ADD, 1),
    "long row sums": lambda: param(0, 2, 20_000).reduce(Ops.ADD, 1),
    "column sums": lambda: columns(param(0, 1000, 97)),
    "row max": lambda: param(0, 7, 8192).reduce(Ops.MAX, 1),
    "argmax": lambda: param(0, 5, 3000).argmax(1),
    "normalised 33x1000": lambda: normalised(33, 1000),
    "normalised 5x777": lambda: normalised(5, 777),
    "softmax 9x1000": lambda: softmax(param(0, 9, 1000)),
    "layernorm 3x1024": lambda: layernorm(3, 1024),
}
#: mappings by hand that reduce over threads in other ways
MAPPED: dict[str, tuple[Callable[[], UOp], Opts]] = {
    "rows over 64 threads": (
        lambda: param(0, 3, 640).reduce(Ops.ADD, 1),
        Opts(gpu=True, local={1: 64}),
    ),
    "rows over 3x96 threads": (
        lambda: param(0, 6, 960).reduce(Ops.ADD, 1),
        Opts(gpu=True, local={0: 3, 1: 96}),
    ),
    "sum folded by the last block": (
        lambda: param(0, 2000).reduce(Ops.ADD, 1).reshape((1,)),
        Opts(gpu=True, blocks={0: 5}, local={0: 64}),
    ),
    "columns folded by the last block": (
        lambda: columns(param(0, 200, 48)),
        Opts(gpu=True, blocks={1: 4}, local={0: 16, 1: 8}, vector={0: 2}, lanes=(0, 1)),
    ),
    "row kept in shared memory": (
        lambda: normalised(2, 512),
        Opts(gpu=True, local={1: 64}, keep="shared"),
    ),
}
#: rows over the blocks of clusters: values that are sent, stored, and stored in a loop
CLUSTERED: dict[str, tuple[Callable[[], UOp], Opts]] = {
    "softmax over 2 blocks": (
        lambda: softmax(param(0, 3, 500)),
        Opts(gpu=True, cluster={1: 2}, local={1: 64}, vector={1: 4}),
    ),
    "argmax over 4 blocks": (
        lambda: param(0, 3, 700).argmax(1),
        Opts(gpu=True, cluster={1: 4}, local={1: 32}, upcast={1: 6}),
    ),
    "max of bf16 over 2 blocks": (
        lambda: param(0, 3, 700, dtype=dtypes.bf16).reduce(Ops.MAX, 1),
        Opts(gpu=True, cluster={1: 2}, local={1: 64}, upcast={1: 6}),
    ),
    "rows in turn over 2 blocks": (
        lambda: softmax(param(0, 4, 500)),
        Opts(gpu=True, cluster={1: 2}, local={1: 64}, vector={1: 4}, loop={0: 2}),
    ),
}
#: products by plans: name -> sizes, dtype, plan
PLANNED: dict[str, tuple[tuple[int, int, int], DType, Plan]] = {
    "product, one tile at a time": ((70, 70, 20), dtypes.f32, Plan(FMA, 64, 64, 8, 2, 1)),
    "product, two tiles by registers": (
        *((70, 70, 20), dtypes.f32),
        Plan(FMA, 64, 64, 8, 2, 1, depth=2),
    ),
    "product, a ring of copies": (
        *((64, 64, 40), dtypes.f32),
        Plan(FMA, 64, 64, 8, 2, 1, depth=3, copy=CP_ASYNC),
    ),
    "product, boxes": (
        *((64, 64, 72), dtypes.f32),
        Plan(FMA, 64, 64, 8, 2, 1, depth=4, copy=BULK),
    ),
    "product, one operand in boxes": (
        *((64, 64, 72), dtypes.f32),
        Plan(FMA, 64, 64, 8, 2, 1, depth=3, copy=BULK),
    ),
    "product, the other operand in boxes": (
        *((64, 64, 72), dtypes.f32),
        Plan(FMA, 64, 64, 8, 2, 1, depth=4, copy=BULK),
    ),
    "product, slices": (
        *((64, 32, 80), dtypes.f32),
        Plan(FMA, 64, 32, 16, 1, 1, 8, depth=2, copy=BULK, warps_k=2),
    ),
    "product, slices and parts": (
        *((64, 32, 160), dtypes.f32),
        Plan(FMA, 64, 32, 16, 1, 1, 8, depth=2, copy=BULK, warps_k=2, splits=2),
    ),
    "product by mma.sync, a ring": (
        *((64, 72, 100), dtypes.bf16),
        Plan("mma.m16n8k16.bf16", 64, 64, 16, 2, 2, depth=3, copy=CP_ASYNC),
    ),
    "product by mma.sync, roles": (
        *((64, 64, 200), dtypes.bf16),
        Plan("mma.m16n8k16.bf16", 64, 64, 64, 2, 2, depth=2, copy=BULK),
    ),
    "product by wgmma, a ring": (
        *((64, 64, 200), dtypes.bf16),
        Plan("wgmma.m64n64k16.bf16", 64, 64, 64, 1, 1, depth=3, copy=CP_ASYNC),
    ),
    "product by wgmma, roles": (
        *((128, 64, 200), dtypes.bf16),
        Plan("wgmma.m64n64k16.bf16", 128, 64, 64, 2, 1, depth=2, copy=BULK),
    ),
    "product by wgmma, roles, an operand by registers": (
        *((64, 64, 201), dtypes.bf16),
        Plan("wgmma.m64n64k16.bf16", 64, 64, 64, 1, 1, depth=2, copy=BULK),
    ),
    "product in parts": ((40, 40, 40), dtypes.f32, Plan(FMA, 64, 64, 8, 2, 1, splits=3)),
    "product in parts, roles": (
        *((64, 64, 512), dtypes.bf16),
        Plan("wgmma.m64n64k16.bf16", 64, 64, 64, 1, 1, depth=2, copy=BULK, splits=2),
    ),
}

#: products whose results leave by tensor copies: name -> sizes, plan
STORED: dict[str, tuple[tuple[int, int, int], Plan]] = {
    "product by wgmma, few blocks, one chunk a turn": (
        (200, 136, 100),
        Plan(
            *("wgmma.m64n64k16.bf16", 128, 64, 64, 2, 1),
            depth=2,
            copy=BULK,
            blocks=2,
            store=BULK,
        ),
    ),
    "product by wgmma, several chunks": (
        (64, 256, 200),
        Plan("wgmma.m64n256k16.bf16", 64, 256, 64, 1, 1, depth=2, copy=BULK, store=BULK),
    ),
}
#: their operands that lie transposed, so that boxes bring them
TURNED = {
    "product, boxes": "ab",
    "product, one operand in boxes": "b",
    "product, the other operand in boxes": "a",
    "product, slices": "ab",
    "product, slices and parts": "ab",
}


def subjects() -> list[Subject]:
    """Every kernel of the study; examples first."""
    out = [_example(name, e) for name, e in EXAMPLES.items() if name != "register_product"]
    out.append(Subject("register_product", register_product(64, 64, 64), partial(_square, 64)))
    out += [_body(name, build(), None) for name, build in BODIES.items()]
    out += [_body(name, build(), opts) for name, (build, opts) in MAPPED.items()]
    out += [_body(name, build(), opts, "sm_90") for name, (build, opts) in CLUSTERED.items()]
    out += [
        _body(
            name, _product(sizes, dtype, TURNED.get(name, "")), Opts(gpu=True, plan=plan), "sm_90a"
        )
        for name, (sizes, dtype, plan) in PLANNED.items()
    ]
    out += [
        _body(
            name,
            _product(sizes, dtypes.bf16).cast(dtypes.bf16),
            Opts(gpu=True, plan=plan),
            "sm_90a",
        )
        for name, (sizes, plan) in STORED.items()
    ]
    staged = Plan("mma.m16n8k16.bf16", 64, 64, 32, 2, 2, depth=3, copy=CP_ASYNC)
    body = convolution(1, 8, 9, 16, 40)
    out.append(_body("a convolution, a ring", body, Opts(gpu=True, plan=staged), "sm_90a"))
    return [s for s in out if any(u.op in SYNCHRONISES for u in toposort(s.sink))]


def _product(sizes: tuple[int, int, int], dtype: DType, turned: str = "") -> UOp:
    """a (m, k) by b (n, k), with sums in f32; turned: those that lie as (k, m) and (k, n)."""
    m, n, k = sizes
    a, b = (
        param(slot, k, rows, dtype=dtype).permute((1, 0))
        if name in turned
        else param(slot, rows, k, dtype=dtype)
        for slot, name, rows in ((0, "a", m), (1, "b", n))
    )
    wide = (
        a.reshape((m, 1, k)).expand(sizes).cast(dtypes.f32),
        b.reshape((1, n, k)).expand(sizes).cast(dtypes.f32),
    )
    return (wide[0] * wide[1]).reduce(Ops.ADD, 1)


def _square(n: int) -> list[Array]:
    """Two matrices of small whole numbers, and an output of 0xff bytes."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, n * n).astype(np.float32) for _ in range(2))
    return [a, b, np.full(n * n * 4, 0xFF, np.uint8).view(np.float32)]


def _example(name: str, example: Example) -> Subject:
    return Subject(name, example.build(), example.arrays, example.target, example.order_dependent)


def _body(name: str, body: UOp, opts: Opts | None, target: str = "sm_80") -> Subject:
    kernel = compile(body, opts or gpu_opt_choice(body), target)
    assert len(kernel.steps) == 1, name
    return Subject(name, kernel.steps[0].sink, partial(_arrays, body, kernel), target)


def _arrays(body: UOp, kernel: Kernel) -> list[Array]:
    """The inputs, an output of 0xff bytes, parts of them too, and counters of zeros."""
    made = [np.empty(prod(body.shape), body.dtype.numpy)]
    made += [np.empty(p.arg.shape, p.dtype.numpy) for p in kernel.partials]
    for slot, a in enumerate(made, kernel.output_slots[0]):
        a.view(np.uint8)[...] = 0 if slot in kernel.counters else 0xFF
    return [a.reshape(-1) for a in arrays_of(body).values()] + made

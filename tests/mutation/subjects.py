"""Kernels whose mutants are studied: those of the suite and of the examples that synchronise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.kernels import arrays_of, columns, param, softmax
from tests.mutation.study import Subject
from tests.suite import layernorm, normalised
from uopc.examples import EXAMPLES, Example
from uopc.examples.products import register_product
from uopc.opts import Opts
from uopc.pipeline import compile, gpu_opt_choice
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
    "row kept in shared memory": (
        lambda: normalised(2, 512),
        Opts(gpu=True, local={1: 64}, keep="shared"),
    ),
}


def subjects() -> list[Subject]:
    """Every kernel of the study; examples first."""
    out = [_example(name, e) for name, e in EXAMPLES.items() if name != "register_product"]
    out.append(Subject("register_product", register_product(64, 64, 64), partial(_square, 64)))
    out += [_body(name, build(), None) for name, build in BODIES.items()]
    out += [_body(name, build(), opts) for name, (build, opts) in MAPPED.items()]
    return [s for s in out if any(u.op in SYNCHRONISES for u in toposort(s.sink))]


def _square(n: int) -> list[Array]:
    """Two matrices of small whole numbers, and an output of 0xff bytes."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, n * n).astype(np.float32) for _ in range(2))
    return [a, b, np.full(n * n * 4, 0xFF, np.uint8).view(np.float32)]


def _example(name: str, example: Example) -> Subject:
    return Subject(name, example.build(), example.arrays, example.target, example.order_dependent)


def _body(name: str, body: UOp, opts: Opts | None) -> Subject:
    kernel = compile(body, opts or gpu_opt_choice(body), "emulated")
    assert len(kernel.steps) == 1, name
    return Subject(name, kernel.steps[0].sink, partial(_arrays, body))


def _arrays(body: UOp) -> list[Array]:
    """The inputs, and an output of 0xff bytes."""
    out = np.empty(prod(body.shape), body.dtype.numpy)
    out.view(np.uint8)[...] = 0xFF
    return [a.reshape(-1) for a in arrays_of(body).values()] + [out]

"""Float sums of automatic choices are short chains of additions, in the loops that are rendered.

Measured on LOOPS, whatever the Opts promised: the additions that one accumulator takes one after
another are the product of the loops that its running value comes round.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernels import columns, numerator, param, softmax
from tests.suite import layernorm
from uopc.choose.facts import LONGEST_CHAIN
from uopc.dtype import DType, dtypes
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.uop.facts import free
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import Ops


def chains(sink: UOp) -> Iterator[int]:
    """The length of the chain of each float accumulator that adds."""
    for u in toposort(sink):
        if u.op is not Ops.STORE or u.src[1].op is not Ops.ADD or not u.src[1].dtype.is_float:
            continue
        running, offset = u.src[0].src
        if any(x.op is Ops.LOAD and x.src[0] is u.src[0] for x in u.src[1].src):
            assert memory(running).op is Ops.ALLOC and running.op is Ops.AFTER
            loops = [r for r in running.src[1:] if r.op is Ops.RANGE and r not in free(offset)]
            yield prod(r.arg.size for r in loops)


def longest(bodies: UOp | list[UOp], opts: Opts | None, target: str) -> int:
    """The longest chain of all steps."""
    steps = compile(bodies, opts, target).steps
    return max(n for step in steps for n in chains(step.sink))


def cube(n: int) -> UOp:
    return param(0, 7, n, n, n)


SUMS: dict[str, UOp | list[UOp]] = {
    **{f"row of {n}": param(0, 3, n).reduce(Ops.ADD, 1) for n in (1 << 10, 1 << 17, 100_003)},
    **{f"column of {n}": columns(param(0, n, 7)) for n in (600, 4096, 1_000_003)},
    "wide columns": columns(param(0, 20_011, 1000)),
    **{
        f"columns of a full machine, {d}": columns(param(0, 20_000, 100_000, dtype=d))
        for d in (dtypes.f16, dtypes.f32, dtypes.f64)
    },
    "all": param(0, 1 << 24).reduce(Ops.ADD, 1),
    "all of three axes": param(0, 200, 300, 400).reduce(Ops.ADD, 3),
    "two axes": cube(101).permute((0, 2, 1, 3)).reduce(Ops.ADD, 2),
    "strided axes": cube(50).permute((3, 0, 2, 1)).reduce(Ops.ADD, 2),
    "many rows": param(0, 100_000, 2000).reduce(Ops.ADD, 1),
    "halves": param(0, 5, 100_000, dtype=dtypes.f16).reduce(Ops.ADD, 1),
    "doubles": param(0, 5, 100_000, dtype=dtypes.f64).reduce(Ops.ADD, 1),
    "softmax": softmax(param(0, 3, 131_072)),
    "odd softmax": softmax(param(0, 3, 100_003)),
    "layernorm": layernorm(3, 50_000),
    "of a numerator": numerator(param(0, 4, 70_000)).reduce(Ops.ADD, 1),
    "beside a maximum": [param(0, 9, 30_000).reduce(op, 1) for op in (Ops.MAX, Ops.ADD)],
}


@pytest.mark.parametrize("target", ["cpu", "emulated"])
@pytest.mark.parametrize("name", SUMS)
def test_automatic_choices(name: str, target: str) -> None:
    assert 1 < longest(SUMS[name], None, target) <= LONGEST_CHAIN


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.bf16], ids=str)
def test_without_a_choice_they_are_long(dtype: DType, target: str) -> None:
    body = param(0, 3, 5000, dtype=dtype).reduce(Ops.ADD, 1)
    gpu = target != "cpu"
    assert longest(body, Opts(gpu=gpu), target) == 5000
    assert longest(body, Opts(gpu=gpu, tile={1: 50}), target) == 100
    assert longest(body, Opts(gpu=gpu, vector={1: 8}), target) == 625

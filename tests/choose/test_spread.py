"""How fused kernels are spread over a GPU: the kernels of real schedules, and bodies by example."""

from __future__ import annotations

import math
from functools import lru_cache

import pytest

from tests.kernels import columns, numerator, outputs, param, product
from tests.schedule.models import given, mlp_training, settled, transformer_training
from uopc.choose.facts import KernelFacts
from uopc.choose.gpu import Aim, rank
from uopc.choose.spread import MOST_COPIES, Climb
from uopc.choose.turns import turns
from uopc.choose.work import work_of
from uopc.dtype import dtypes
from uopc.kernel import KernelBody
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.share import share
from uopc.pipeline import compile, compile_kernel, index, lower
from uopc.target import target
from uopc.tensor import nn
from uopc.tensor.engine import schedule_of
from uopc.uop.node import UOp, prod
from uopc.uop.ops import Ops

A100 = target("sm_80")


@lru_cache(maxsize=1)
def mlp() -> tuple[KernelBody, ...]:
    """The kernels of a training step of an MLP."""
    loss, changed = mlp_training()
    return tuple(k.body for k in schedule_of(loss, *changed).launches)


@lru_cache(maxsize=1)
def transformer() -> tuple[KernelBody, ...]:
    """The kernels of a training step of one layer."""
    launches = schedule_of(*transformer_training(1)).launches
    return tuple(k.body for k in launches if len(k.places) == 1)


@lru_cache(maxsize=1)
def normalised() -> tuple[KernelBody, ...]:
    """Layer norm of 8192 rows, backwards: partial column sums beside rows."""
    layer = settled(nn.LayerNorm(1024, device="emulated"))
    x = given(8192, 1024, device="emulated", requires_grad=True)
    layer(x).backward(given(8192, 1024, device="emulated"))
    parameters = [p for _, p in layer.named_parameters()]
    gradients = [t.grad for t in (x, *parameters) if t.grad is not None]
    return tuple(k.body for k in schedule_of(*gradients).launches)


KERNELS = [("mlp", n) for n in range(8)] + [("transformer", n) for n in range(18)]
KERNELS += [("normalised", n) for n in range(2)]
SCHEDULES = {"mlp": mlp, "transformer": transformer, "normalised": normalised}


def body_of(name: str, n: int) -> KernelBody:
    return [b for b in SCHEDULES[name]() if facts_of(b).reduces][n]


def facts_of(body: KernelBody) -> KernelFacts:
    return KernelFacts.of_indexed(share(rangeify_kernel(body), given=True))


def facts(*bodies: UOp) -> KernelFacts:
    return KernelFacts.of_indexed(index(bodies, outputs(bodies)))


def first(*bodies: UOp) -> Opts:
    return next(o for o in rank(facts(*bodies), Aim(A100)) if o.plan is None)


# ---- the kernels of schedules
@pytest.mark.parametrize(("name", "n"), KERNELS)
def test_blocks_are_whole_warps_and_candidates_lower(name: str, n: int) -> None:
    f = facts_of(body_of(name, n))
    for opts in rank(f, Aim(A100)):
        assert opts.gpu and Opts.from_json(opts.to_json()) == opts
        assert prod(k for _, k in opts.local) <= 1024
    got = bind(lower(f.root, rank(f, Aim(A100))[0])) if name == "mlp" else None
    if got is not None:
        assert got.threads % 32 == 0


@pytest.mark.parametrize(("name", "n"), KERNELS)
def test_a_dear_value_is_computed_in_one_loop(name: str, n: int) -> None:
    """A sum of products that several nests use has no serial digit on its axes, unless the nests
    share their loops."""
    f = facts_of(body_of(name, n))
    opts = rank(f, Aim(A100))[0]
    digits = [opts.axis(a, size, a in f.reduced) for a, size in enumerate(f.sizes)]
    loops = sum(1 << a for a, d in enumerate(digits) if d.loop * d.tile > 1)
    work = work_of(f)
    times = turns(work.units, work.outputs, f.sizes, loops).times
    assert all(times[u] == 1 for u in work.units if u.op is Ops.REDUCE and u.fused), opts


@pytest.mark.parametrize("n", range(8))
def test_small_products_have_short_chains(n: int) -> None:
    """k is sliced over lanes where there are few tiles: no loop has more than eight turns."""
    f = facts_of(body_of("mlp", n))
    opts = rank(f, Aim(A100))[0]
    for a in f.reduced:
        assert opts.axis(a, f.sizes[a], True).loop <= 8, opts


@pytest.mark.parametrize("on", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("n", [0, 1, 3, 6])
def test_the_first_choice_needs_no_stack(n: int, on: str) -> None:
    """And about as many registers as were counted: NVRTC tells, without a GPU."""
    body = body_of("mlp", n)
    f, way = facts_of(body), target(on)
    opts = rank(f, Aim(way))[0]
    (step,) = compile_kernel(body, way, opts=opts).steps
    got = step.cubin.resources
    assert not got.spills and not got.stack_bytes
    climb = Climb(f, way, 1024)
    for start in climb.starts():
        climb.down(start)
    counted = max(e.registers for x, e in climb.seen.items() if climb.opts(x) == opts)
    assert 0.5 * got.registers <= counted <= 2 * got.registers


# ---- by example
def test_few_tiles_slice_the_sum_over_lanes() -> None:
    """64 x 128 outputs of 256 multiply-adds each: not 8,192 threads with chains of 256."""
    opts = first(product(64, 128, 256))
    threads = prod(opts.axis(a, n, a == 2).blocks for a, n in enumerate((64, 128, 256)))
    threads *= prod(k for _, k in opts.local)
    assert dict(opts.local)[2] >= 4 and threads >= 108 * 64


def test_many_tiles_do_not() -> None:
    opts = first(product(4096, 4096, 64))
    copies = [dict(opts.upcast).get(a, 1) * dict(opts.vector).get(a, 1) for a in (0, 1)]
    assert min(copies) >= 4 and math.prod(copies) >= 32


def test_operands_that_are_contiguous_along_k_are_read_along_k() -> None:
    a = param(0, 64, 784).reshape((64, 1, 784)).expand((64, 256, 784))
    b = param(1, 256, 784).reshape((1, 256, 784)).expand((64, 256, 784))
    opts = first((a * b).reduce(Ops.ADD, 1))
    assert dict(opts.vector)[2] == 4 and opts.lanes[0] == 2


def test_two_vector_digits_are_wide_where_each_is_contiguous() -> None:
    """The model counts on it: of each operand the contiguous one comes last."""
    opts = Opts(gpu=True, local={0: 8, 1: 8}, vector={1: 4, 2: 4})
    text = str(compile(product(64, 64, 64), opts, target="sm_80").source)
    assert "(const float4*)&p0[" in text and "(const float4*)&p1[" in text


def test_scores_of_one_block_stay_in_registers() -> None:
    """Maximum, sum and quotient over a row of products."""
    opts = first(numerator(product(64, 10, 128)))
    digits = opts.axis(1, 10, True)
    assert digits.loop * digits.tile == 1 and digits.local * digits.upcast * digits.vector >= 10


def test_a_kernel_in_place_keeps_its_blocks_apart() -> None:
    """No block reads what another one writes, so that nothing has to be copied afterwards."""
    for body in mlp():
        steps = compile_kernel(body, A100).steps
        assert len(steps) == 1


@pytest.mark.parametrize(
    "body",
    [
        product(1, 1, 1),
        product(3, 1, 7),
        product(1000, 1, 3),
        product(2, 2, 100_000),
        product(8192, 3, 5),
        columns(product(300, 70, 50)),
        numerator(product(5, 300, 300)),
        param(0, 4, 12, 7, 5).permute((3, 1, 0, 2)).reduce(Ops.MAX, 3),
        product(64, 64, 64, dtype=dtypes.f16),
        product(64, 64, 64, dtype=dtypes.f64),
    ],
    ids=str,
)
def test_any_shape_has_a_choice_in_the_limits(body: UOp) -> None:
    f = facts(body)
    for on in ("sm_75", "sm_80", "sm_90a", "sm_120"):
        ranked = rank(f, Aim(target(on)))
        assert ranked
        for opts in ranked:
            assert prod(k for _, k in opts.local) <= 1024
            assert all(n <= MOST_COPIES for _, n in opts.upcast)
            lower(f.root, opts)


def test_a_limit_on_threads_is_kept() -> None:
    f = facts(product(64, 128, 256))
    for most in (32, 64, 128):
        for opts in rank(f, Aim(A100, max_threads=most, row_threads=most)):
            assert prod(k for _, k in opts.local) <= most


def test_choices_are_pure() -> None:
    body = product(64, 128, 256)
    assert rank(facts(body), Aim(A100)) == rank(facts(body), Aim(A100))

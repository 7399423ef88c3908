"""The loops that the model counts are those that the passes make."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels import columns, indexed, param
from tests.passes.test_nests import Siblings, normalised_backwards, total, variance
from uopc.choose.facts import KernelFacts
from uopc.choose.turns import Turns, turns
from uopc.choose.work import work_of
from uopc.kernel import KernelBody
from uopc.opts import Opts
from uopc.passes.nests import nests
from uopc.passes.overwrites import InPlace
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.share import share
from uopc.pipeline import LOWERING
from uopc.symbolic import simplify
from uopc.uop.facts import free
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import Ops

X, Y = param(0, 6, 512), param(1, 6, 512)


def counted(facts: KernelFacts, loops: int) -> Turns:
    work = work_of(facts)
    return turns(work.units, work.outputs, facts.sizes, loops)


def facts_of(*bodies: UOp) -> KernelFacts:
    return KernelFacts.of_indexed(indexed(*bodies))


def of_kernel(body: KernelBody) -> KernelFacts:
    return KernelFacts.of_indexed(share(rangeify_kernel(body), given=True))


def loads(found: Turns) -> list[int]:
    """How often each LOAD is done."""
    return sorted(n for u, n in found.times.items() if u.op is Ops.LOAD)


@pytest.mark.parametrize(
    ("bodies", "want"),
    [
        ((total(X), total(X * Y)), [1, 1]),
        ((total(X), variance(X)), [2]),
        ((variance(X), total(X * Y)), [1, 2]),
        ((columns(X), columns(X * X)), [1]),
    ],
)
def test_a_load_is_done_once_a_loop(bodies: tuple[UOp, ...], want: list[int]) -> None:
    facts = facts_of(*bodies)
    assert loads(counted(facts, 1 << facts.reduced[0])) == want
    assert set(loads(counted(facts, 0))) == {1}


def test_rows_in_a_loop_are_loaded_once() -> None:
    facts = of_kernel(normalised_backwards())
    found = counted(facts, 0b010)
    assert loads(found) == [1, 1, 1] and len(found.places) == 2
    kernel, rows = found.places
    assert len(rows.sums) == 2 and len(rows.remade) == 4, "of columns; of the row"
    assert len(kernel.loads) == 1 and len(rows.loads) == 2


def test_a_loop_along_the_rows_themselves_reads_them_again() -> None:
    assert max(loads(counted(of_kernel(normalised_backwards()), 0b100))) > 2


@settings(max_examples=60, suppress_health_check=[*HealthCheck], deadline=None)
@given(st.randoms(use_true_random=False))
def test_they_are_those_that_the_passes_make(rng: random.Random) -> None:
    """As many elements are loaded into registers, whatever axes are cut into loops."""
    root = simplify(share(rangeify_kernel(Siblings(rng).body.record), given=True))
    facts = KernelFacts.of_indexed(root)
    looped = {a for a, n in enumerate(facts.sizes) if n >= 2 and rng.randint(0, 1)}
    copied = {a: n for a, n in enumerate(facts.sizes) if a not in looped and n >= 2}
    loop = {a: facts.sizes[a] for a in looped - set(facts.reduced)}
    found = counted(facts, sum(1 << a for a in looped))
    times = [n for u, n in found.times.items() if u.op is Ops.LOAD]
    loads = [u for u in toposort(root) if u.op is Ops.LOAD]
    kept = [
        (u, n) for u, n in zip(loads, times, strict=True) if set(axes_of_load(u)) & copied.keys()
    ]
    assert made(root, Opts(gpu=True, upcast=copied, loop=loop)) == sum(
        n * prod(facts.sizes[a] for a in axes_of_load(u)) for u, n in kept
    )


def made(root: UOp, opts: Opts) -> int:
    """Elements that all loops load, of what `materialise` keeps."""
    for p in LOWERING:
        root = p.run(root, opts)
        if p.name == "materialise":
            break
    total = 0
    for loop in nests(root, True, InPlace(toposort(root))).inside():
        for u in loop.fills:
            if u.op is Ops.STAGE and u.src[0].op is Ops.LOAD:
                total += prod(r.arg.size for r in free(u.src[0].src[0]))
    return total


def axes_of_load(u: UOp) -> list[int]:
    """The axes that a LOAD varies with."""
    return [r.arg.axis for r in free(u.src[0]) if r.arg.size > 1]

"""Offsets as a base and a displacement: the same numbers, and addresses that cost nothing."""

from __future__ import annotations

import re

import pytest

import uopc
from tests.kernels import around, arrays_of, assert_same_numbers, axpy, product
from tests.passes.test_products import product as plan_product
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import SpecError
from uopc.opts import Opts
from uopc.passes.displace import displace, unrolled
from uopc.plan import BULK, CP_ASYNC, FMA, Plan
from uopc.uop.facts import free
from uopc.uop.node import UOp, addrspace, derive, toposort
from uopc.uop.ops import BasedArg, Ops
from uopc.uop.spec import Stage, check
from uopc.uop.text import parse, show

CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "elements": ((axpy(128),), Opts(gpu=True, local={0: 8}, upcast={0: 4})),
    "rows": (
        (product(8, 16, 8),),
        Opts(gpu=True, local={0: 4, 1: 4}, upcast={0: 2}, vector={1: 4}, unroll=4),
    ),
}


def based(root: UOp) -> list[UOp]:
    return [u for u in toposort(root) if u.op is Ops.INDEX and u.arg == BasedArg()]


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str) -> None:
    bodies, opts = CASES[name]
    _, before = around("vectorise", opts, *bodies)
    after = displace(before)
    check(after, Stage.LOOPS, True)
    assert based(after)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.LOOPS, Stage.LOOPS))
    assert show(displace(after)) == show(after)


@pytest.mark.parametrize("name", CASES)
def test_displacements_are_of_unrolled_loops_alone(name: str) -> None:
    bodies, opts = CASES[name]
    for access in based(displace(around("vectorise", opts, *bodies)[1])):
        base, displacement = access.src[1].src
        assert unrolled(displacement) == free(displacement)
        assert not unrolled(base)
        assert addrspace(access) in (AddrSpace.GLOBAL, AddrSpace.SHARED)


def test_it_has_a_text() -> None:
    bodies, opts = CASES["rows"]
    after = displace(around("vectorise", opts, *bodies)[1])
    assert show(parse(show(after))) == show(after)


def test_a_base_is_made_of_a_sum() -> None:
    bodies, opts = CASES["elements"]
    after = displace(around("vectorise", opts, *bodies)[1])
    access = based(after)[0]
    base, displacement = access.src[1].src
    for offset, fault in (
        (base * displacement, "ADD"),
        (UOp(Ops.ADD, (displacement, base)), "UPCAST ranges and constants only"),
    ):
        bad = UOp(Ops.INDEX, (access.src[0], offset), BasedArg())
        with pytest.raises(SpecError, match=fault):
            check(_with(after, access, bad), Stage.LOOPS, True)


def _with(root: UOp, old: UOp, new: UOp) -> UOp:
    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        memo[u] = new if u is old else derive(u, tuple([memo[s] for s in u.src]))
    return memo[root]


@pytest.mark.parametrize(
    ("plan", "turned"),
    [
        (Plan(FMA, 128, 256, 32, 2, 4, 8, depth=4, copy=BULK), "b"),
        (Plan(FMA, 128, 256, 32, 2, 4, 8, depth=4, copy=BULK), "ab"),
        (Plan(FMA, 128, 256, 16, 2, 4, 8, depth=4, copy=CP_ASYNC), "b"),
    ],
    ids=["one by boxes", "boxes", "cp.async"],
)
def test_few_instructions_are_for_addresses(plan: Plan, turned: str) -> None:
    """Those of a body of 16 steps: copies of an access add constants to one register."""
    body = plan_product(4096, 4096, 4096, dtypes.f32, turned)
    cubin = uopc.compile(body, Opts(gpu=True, plan=plan), "sm_90a").steps[0].cubin
    assert not cubin.resources.spills
    assert cubin.resources.registers < 240
    loads = re.findall(r"LDS\.128 R\d+, \[(R\d+)", cubin.sass)
    assert len(loads) > 6 * 16
    assert len(set(loads)) < 24

"""What a search tries: steps away from good Opts, and Opts at random."""

from __future__ import annotations

import math
import random
from dataclasses import fields

import pytest

from uopc.choose.facts import KernelFacts
from uopc.dtype import dtypes
from uopc.errors import UopcError
from uopc.opts import Opts
from uopc.pipeline import choices
from uopc.plan import BULK, Plan
from uopc.searching.candidates import at_random, neighbours
from uopc.target import target
from uopc.uop.node import buffer
from uopc.uop.ops import Ops

ROWS = buffer(0, dtypes.f32, (64, 256)).exp().reduce(Ops.ADD, 1)


def facts_on(name: str) -> KernelFacts:
    return KernelFacts.of_indexed(choices(ROWS, name)[0].root)


@pytest.mark.parametrize("name", ("cpu", "sm_90"))
def test_neighbours_differ_in_a_step(name: str) -> None:
    (choice,) = choices(ROWS, name)
    best = next(choice.ranked())
    near = neighbours(best, facts_on(name), target(name))
    assert len(near) > 8 and len(set(near)) == len(near) and best not in near
    for o in near:
        changed = [f.name for f in fields(Opts) if getattr(o, f.name) != getattr(best, f.name)]
        assert 1 <= len(changed) <= 2, (changed, str(o))


@pytest.mark.parametrize("name", ("cpu", "sm_90"))
def test_neighbours_of_neighbours_come_back(name: str) -> None:
    """What was left by a step can be reached again, unless a digit of 1 cannot be halved."""
    facts, on = facts_on(name), target(name)
    best = next(choices(ROWS, name)[0].ranked())
    near = neighbours(best, facts, on)
    assert sum(best in neighbours(o, facts, on) for o in near) > 0.8 * len(near)


@pytest.mark.parametrize("name", ("cpu", "sm_90"))
def test_most_of_what_is_tried_can_be_lowered(name: str) -> None:
    (choice,) = choices(ROWS, name)
    facts, on, rng = facts_on(name), target(name), random.Random(0)
    tried = [at_random(facts, on, rng) for _ in range(12)]
    tried += rng.sample(neighbours(next(choice.ranked()), facts, on), 12)
    lowered = 0
    for opts in tried:
        assert opts.gpu is on.is_gpu
        assert math.prod(n for _, n in opts.local) <= 1024
        try:
            lowered += bool(choice.steps(opts)[0])
        except UopcError:
            continue
    assert lowered > len(tried) / 2


def test_random_ones_follow_from_the_seed() -> None:
    facts, on = facts_on("sm_90"), target("sm_90")
    one, two = ([at_random(facts, on, random.Random(s)) for s in range(9)] for _ in "12")
    assert one == two and len(set(one)) > 5


def test_neighbours_of_a_plan_are_plans_of_other_tiles_and_rings() -> None:
    atom = "wgmma.m64n128k16.bf16"
    plan = Plan(atom, 128, 128, 64, 2, 1, depth=4, copy=BULK, blocks=132, store=BULK)
    opts = Opts(gpu=True, plan=plan)
    found = [o.plan for o in neighbours(opts, facts_on("sm_90"), target("sm_90a"))]
    assert plan not in found and len(set(found)) == len(found)
    plans = [p for p in found if p is not None]
    assert len(plans) == len(found)
    assert {p.depth for p in plans} >= {2, 3, 4, 5, 8}
    assert {p.block for p in plans} >= {(128, 256), (128, 64), (256, 128), (64, 128)}
    assert any(p.atom == "wgmma.m64n256k16.bf16" for p in plans)
    assert any(p.swap for p in plans) and any(p.splits > 1 for p in plans)

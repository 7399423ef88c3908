"""What candidates become: built, sent to another process, run in turn."""

from __future__ import annotations

import pickle
import random

import pytest

from tests.searching.children import fake_clock
from uopc.choose.facts import KernelFacts
from uopc.dtype import dtypes
from uopc.errors import TargetError, UsageError
from uopc.opts import Opts
from uopc.pipeline import choices
from uopc.searching.candidates import neighbours
from uopc.searching.tries import built, clock_of, timed
from uopc.uop.node import buffer
from uopc.uop.ops import Ops

ROWS = buffer(0, dtypes.f32, (64, 4096)).exp().reduce(Ops.ADD, 1)
ALL = buffer(0, dtypes.f32, (1 << 20,)).reduce(Ops.ADD, 1)
HEARD: list[object] = []


@pytest.mark.parametrize("body", (ROWS, ALL), ids=("rows", "all"))
def test_a_kernel_for_a_gpu_goes_to_another_process(body: object) -> None:
    """Everything that a launch needs: text, parameters, grid, shared memory."""
    (choice,) = choices(ROWS if body is ROWS else ALL, "sm_90")
    opts = next(choice.ranked())
    sent = pickle.loads(pickle.dumps(built(choice, opts, HEARD.append)))
    steps, partials = choice.steps(opts)
    assert sent.opts == opts and len(sent.partials) == len(partials)
    for got, step in zip(sent.sources, steps, strict=True):
        want = step.source
        assert got == want and (got.name, got.language) == (want.name, "cuda")
        assert (got.params, got.launch, got.target) == (want.params, want.launch, want.target)
        assert got.dynamic_shared_bytes == want.dynamic_shared_bytes


def test_a_choice_goes_to_another_process() -> None:
    for name in ("cpu", "sm_90"):
        (choice,) = choices(ROWS, name)
        assert pickle.loads(pickle.dumps(choice)) == choice


def test_what_spills_is_refused() -> None:
    (choice,) = choices(ROWS, "sm_90")
    opts = Opts(gpu=True, local={1: 1024}, upcast={0: 64}, lanes=(1, 0), blocks_per_sm=2)
    with pytest.raises(TargetError, match="spills"):
        built(choice, opts, HEARD.append)


def test_a_number_by_value_is_refused() -> None:
    body = buffer(0, dtypes.f32, (64,)) * buffer(1, dtypes.f32, ()).expand((64,))
    (choice,) = choices(body, "cpu")
    with pytest.raises(UsageError, match=r"shape \(1,\)"):
        built(choice, next(choice.ranked()), HEARD.append)


def test_each_is_announced_before_it_runs() -> None:
    (choice,) = choices(ALL, "cpu")
    facts = KernelFacts.of_indexed(choice.root, choice.merge)
    best = next(choice.ranked())
    more = random.Random(1).sample(neighbours(best, facts, choice.target), 2)
    made = [built(choice, o, HEARD.append) for o in (best, *more)]
    said: list[object] = []
    times = timed(made, "cpu", fake_clock, 3, 0, said.append)
    assert len(times) == 3 and said[1:4] == [0, 1, 2]
    assert sorted(said[4:], key=str) == [n for n in range(3) for _ in range(2 + 3)]
    real = timed(made, "cpu", clock_of, 2, 0, said.append)
    assert all(0 < t < 10 for t in real)

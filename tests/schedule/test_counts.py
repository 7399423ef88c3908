"""How many kernels array programs become, and how many bytes they move beyond the least.

On a GPU these are the figures that the scheduler is for; on a CPU, whose threads hold no tile
together, they may be a little worse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.schedule.models import (
    adam,
    given,
    mlp_training,
    settled,
    transformer_training,
)
from uopc.dtype import dtypes
from uopc.schedule.memory import Leaf, Place, Result, Temporary
from uopc.schedule.plan import Schedule
from uopc.tensor import Tensor, nn
from uopc.tensor.engine import schedule_of


class Bar(NamedTuple):
    """The most kernels, and bytes moved over the least."""

    kernels: int
    bytes_over_least: float


def normalised(device: str, rows: int = 8192) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(x with its gradient, y, the layer norm's parameters with theirs)."""
    layer = settled(nn.LayerNorm(1024, device=device))
    x = given(rows, 1024, device=device, requires_grad=True)
    y = layer(x)
    y.backward(given(rows, 1024, device=device))
    return x, y, layer.parameters()


def gradient(t: Tensor) -> Tensor:
    assert t.grad is not None
    return t.grad


def softmax_both_ways(device: str) -> list[Tensor]:
    x = given(512, 1024, device=device, requires_grad=True)
    y = x.softmax(-1)
    y.backward(given(512, 1024, device=device))
    return [y, gradient(x)]


def layer_norm_backward(device: str) -> list[Tensor]:
    x, _, parameters = normalised(device)
    return [gradient(t) for t in (x, *parameters)]


def classified(device: str, rows: int, classes: int, reduction: nn.losses.Reduction) -> Tensor:
    labels = given(rows, dtype=dtypes.i64, device=device)
    return nn.cross_entropy(given(rows, classes, device=device), labels, reduction=reduction)


def mean_and_variance(device: str) -> list[Tensor]:
    x = given(512, 1024, device=device)
    return [x.mean(-1), x.var(-1)]


def two_of_one(device: str) -> list[Tensor]:
    x = given(512, 1024, device=device)
    return [x.sum(1), x * 2.0]


#: name -> (what is computed on a device, the bar on a GPU, the bar on a CPU)
TABLE: dict[str, tuple[Callable[[str], list[Tensor]], Bar, Bar]] = {
    "softmax": (lambda d: [given(512, 1024, device=d).softmax(-1)], Bar(1, 1.0), Bar(1, 1.0)),
    "log-softmax": (
        lambda d: [given(512, 1024, device=d).log_softmax(-1)],
        Bar(1, 1.0),
        Bar(1, 1.0),
    ),
    "layer norm": (
        lambda d: [settled(nn.LayerNorm(1024, device=d))(given(8192, 1024, device=d))],
        Bar(1, 1.0),
        Bar(1, 1.0),
    ),
    "RMS norm": (
        lambda d: [settled(nn.RMSNorm(1024, device=d))(given(8192, 1024, device=d))],
        Bar(1, 1.0),
        Bar(1, 1.0),
    ),
    "losses of rows": (lambda d: [classified(d, 512, 1000, "none")], Bar(1, 1.0), Bar(1, 1.0)),
    "mean loss": (lambda d: [classified(d, 64, 10, "mean")], Bar(1, 1.0), Bar(2, 1.2)),
    "argmax": (lambda d: [given(512, 1024, device=d).argmax(-1)], Bar(1, 1.0), Bar(1, 1.0)),
    "mean and variance": (mean_and_variance, Bar(1, 1.0), Bar(1, 1.0)),
    "row sums beside a map": (two_of_one, Bar(1, 1.0), Bar(1, 1.0)),
    "softmax, forward and backward": (softmax_both_ways, Bar(1, 1.0), Bar(1, 1.0)),
    "layer norm, dx": (lambda d: [gradient(normalised(d)[0])], Bar(1, 1.0), Bar(1, 1.0)),
    "layer norm, all gradients": (layer_norm_backward, Bar(2, 1.1), Bar(2, 1.7)),
    "product, bias, activation": (
        lambda d: [settled(nn.Linear(256, 384, device=d))(given(512, 256, device=d)).relu()],
        Bar(1, 1.0),
        Bar(1, 1.0),
    ),
    "whole training step": (lambda d: _joined(mlp_training(d)), Bar(9, 1.5), Bar(12, 1.6)),
}


def _joined(both: tuple[Tensor, list[Tensor]]) -> list[Tensor]:
    return [both[0], *both[1]]


@pytest.mark.parametrize("device", ["emulated", "cpu"])
@pytest.mark.parametrize("name", TABLE)
def test_kernels_and_bytes(name: str, device: str) -> None:
    build, gpu, cpu = TABLE[name]
    plan = schedule_of(*build(device))
    bar = cpu if device == "cpu" else gpu
    assert len(plan.launches) <= bar.kernels, plan.explain()
    assert plan.moved_bytes <= bar.bytes_over_least * plan.least_bytes, plan.explain()
    if bar.bytes_over_least == 1.0:
        assert plan.arena_bytes == 0


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_an_embedding_reads_only_its_rows(device: str) -> None:
    table = settled(nn.Embedding(50_000, 768, device=device))
    plan = schedule_of(table(given(512, dtype=dtypes.i64, device=device)))
    (launch,) = plan.launches
    assert launch.reads == 512 * 768 * 4 + 512 * 8
    assert launch.writes == 512 * 768 * 4


def written(plan: Schedule) -> list[Place]:
    """The place of each output of each launch."""
    return [
        places[o.memory.arg.slot]
        for launch in plan.launches
        for places in launch.places
        for o in launch.body.outputs
    ]


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_a_training_step_updates_in_place_and_stores_no_gradient_of_a_weight(device: str) -> None:
    loss, changed = mlp_training(device)
    plan = schedule_of(loss, *changed)
    of_loss, *of_updates = plan.results
    assert isinstance(of_loss, Result)
    assert len(of_updates) == 12
    assert all(isinstance(place, Leaf) for place in of_updates), plan.explain()
    weights = {784 * 256, 256 * 128, 128 * 10}
    others = [p for p in written(plan) if isinstance(p, (Result, Temporary))]
    assert not weights & {p.size for p in others}, plan.explain()


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_a_layer_of_a_transformer_in_training(device: str) -> None:
    plan = schedule_of(*transformer_training(1, device=device))
    assert len(plan.launches) <= 40
    updates = plan.results[2:]
    assert len(updates) == 12 * 3 + 1
    assert all(isinstance(place, Leaf) for place in updates), plan.explain()


def test_layers_of_a_transformer_add_up() -> None:
    one, two = (len(schedule_of(*transformer_training(n)).launches) for n in (1, 2))
    assert two - one <= 40


@pytest.mark.parametrize("device", ["emulated", "cpu"])
@pytest.mark.parametrize("count", [1, 2, 20])
def test_one_launch_updates_any_number_of_parameters(device: str, count: int) -> None:
    """... beside the step count, which every update reads.  On a CPU some updates stand in its
    kernel, up to as many buffers as a kernel may have."""
    sizes = [(300 + k, 150) if k % 2 else (40_000 + k,) for k in range(count)]
    plan = schedule_of(*adam(sizes, device))
    assert len(plan.launches) <= 2, plan.explain()
    if device != "cpu":
        updates = max(plan.launches, key=lambda k: k.writes)
        assert len(updates.places) == count
        assert plan.moved_bytes - updates.reads - updates.writes < 100
    assert plan.moved_bytes <= 1.001 * plan.least_bytes
    assert all(isinstance(place, Leaf) for place in plan.results), plan.explain()

"""Random programs, plain and captured: states, results and whatever was held must be the same.

A program is a function of arguments over some states, drawn from a seed; between its calls states
are updated, values held, shown again, computed lazily or dropped.  Both runs make the same draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from uopc.tensor import Tensor, jit, no_grad, rand
from uopc.tensor.capture import JitWarning
from uopc.tensor.random import manual_seed

pytestmark = pytest.mark.usefixtures("each_device")
SHAPES = ((4,), (2, 3), (), (1,), (3, 2))
CALLS = 9


class World:
    """States, and the values that were held on the way."""

    def __init__(self, seed: int, how: Callable[[Any], Any]) -> None:
        manual_seed(seed)
        self.pick = Random(seed)
        numbers = np.random.default_rng(seed)
        self.states = [
            Tensor(numbers.integers(-4, 5, s).astype(np.float32), requires_grad=n == 4)
            for n, s in enumerate(SHAPES)
        ]
        self.program = [self.pick.randrange(2**30) for _ in range(self.pick.randint(1, 5))]
        self.step = how(self.body)
        self.second = how(self.other)
        self.anchor: Tensor | None = None
        self.held: list[Tensor] = []
        self.log: list[Any] = []

    # ---- the program
    def body(self, *arguments: Tensor) -> list[Tensor]:
        made: list[Tensor] = []
        for line in self.program:
            made += self.line(Random(line), [*arguments, *made])
        return made

    def line(self, pick: Random, values: list[Tensor]) -> list[Tensor]:
        """One statement: it may update states, and may make values."""
        kind = pick.randrange(9)
        state = pick.choice(self.states[:4])
        if kind == 0:
            state.assign(self.like(state, pick, values) + 1.0)
        elif kind == 1:
            state += self.like(state, pick, values)
        elif kind == 2 and state.ndim:
            state[0] = 7.0
        elif kind == 3:
            a, b = self.states[1], self.states[1].T
            return [a @ b, b]
        elif kind == 4:
            return [(rand(3) * 64.0).floor().sum() * state]  # exact in whatever kernel it is summed
        elif kind == 5:
            old = self.states[0].detach()
            self.states[0].assign(self.states[0].flip())
            return [old]
        elif kind == 6:
            leaf = self.states[4]
            (leaf * leaf * self.like(leaf, pick, values)).sum().backward()
            with no_grad():
                leaf.assign(leaf * 0.5 + (0.0 if leaf.grad is None else leaf.grad * 0.125))
            if pick.random() < 0.5:
                leaf.grad = None
        elif kind == 7 and values:
            value = pick.choice(values)
            value += 1.0
            return [value]
        else:
            return [self.like(state, pick, values) * 2.0, state.reshape(-1)]
        return []

    def like(self, x: Tensor, pick: Random, values: list[Tensor]) -> Tensor:
        """Some value in the shape of x."""
        other = pick.choice([*self.states[:4], *values])
        if other.shape != x.shape:
            other = other.detach().sum() if pick.random() < 0.5 else other.detach().max()
        return (other * 0.5).floor().clamp(-50.0, 50.0).expand(x.shape)

    def other(self, x: Tensor) -> Tensor:
        """Another function over the same states, and over a result of the first."""
        assert self.anchor is not None
        self.states[0] += self.anchor.detach().max()
        if self.anchor.dtype is self.states[1].dtype:
            self.anchor += 0.5
        return self.anchor * x.sum()

    # ---- what happens between calls
    def run(self) -> list[Any]:
        for n in range(CALLS):
            given = [Tensor(np.full(4, float(n), np.float32)), self.pick.choice(self.states[:4])]
            if self.held and self.pick.random() < 0.3:
                given[0] = self.held[-1].reshape(-1)[:1].expand(4) + 0.0
            results = self.step(*given[: self.pick.choice((1, 1, 1, 2))])
            for _ in range(self.pick.randrange(3)):
                self.event(results)
            if self.pick.random() < 0.5:
                self.note(results)
        self.note([])
        return self.log

    def event(self, results: list[Tensor]) -> None:
        kind = self.pick.randrange(10)
        state = self.pick.choice(self.states)
        if kind == 0:
            self.held.append(state.detach())
        elif kind == 1:
            self.held.append(state.detach().reshape(-1) * 2.0)
        elif kind == 2 and results:
            self.held.append(self.pick.choice(results))
        elif kind == 3:
            with no_grad():
                state.assign(state + 1.0)
        elif kind == 4:
            self.held.append((state * 0.5).realize().detach())
        elif kind == 5 and self.held:
            self.held.pop(self.pick.randrange(len(self.held)))
        elif kind == 6 and results:
            result = self.pick.choice(results)
            if not any(result is s for s in self.states):
                result += 3.0
        elif kind == 7 and self.held:
            self.log.append(self.held[-1].tolist())
        elif kind == 9 and (self.anchor is not None or results):
            if self.anchor is None:
                self.anchor = self.pick.choice(results)
            self.held.append(self.second(self.states[2].detach() * 1.0))
        elif kind == 8 and self.held:
            held = self.pick.choice(self.held)
            if not any(held is s for s in self.states):
                held += 5.0

    def note(self, results: list[Tensor]) -> None:
        gradients = [s.grad for s in self.states if s.grad is not None]
        self.log.append([t.tolist() for t in (*results, *self.states, *self.held, *gradients)])


def check(seed: int) -> None:
    plain = World(seed, lambda f: f).run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        captured = World(seed, jit).run()
    assert str(plain) == str(captured), seed  # NaN is NaN


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    check(seed)

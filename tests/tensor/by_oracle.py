"""Tensors without compiled kernels: every launch is evaluated by the oracle, on the cpu's memories.

Everything above kernels stays as it is (versions, views, schedules, memories, captures), at a small
part of the time: random programs by the thousand.  A kernel that overwrites what it reads runs
block by block, in random order, and so do the arrays of one launch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tests.schedule.execute import _blocks, _resized
from tests.schedule.graphs import evaluated, strays
from uopc.kernel import KernelBody
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launcher, word_of
from uopc.schedule.plan import Launch
from uopc.tensor import prepare
from uopc.tensor.prepare import Listener
from uopc.uop.node import toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops

_rng = random.Random(0)
#: what the error word says of an index 99 of an axis of size 7
_REPORT = 1 << 63 | 7 << 32 | 99


@dataclass(frozen=True)
class _Parameter:
    slot: int
    written: bool


class _Launcher:
    """A body in the place of a compiled step."""

    sync = False

    def __init__(self, body: KernelBody, device: str, name: str) -> None:
        self.body, self.device, self.name = body, device, name
        self.written = {o.memory.arg.slot for o in body.outputs}
        roots = [u for o in body.outputs for u in (o.value, o.memory)]
        slots = {u.arg.slot for u in toposort(*roots) if u.op is Ops.BUFFER}
        if body.errors is not None:
            slots.add(body.errors.arg.slot)
        self.slots = tuple(sorted(slots))
        self.source = SimpleNamespace(params=[_Parameter(s, s in self.written) for s in self.slots])
        self.reports = bool(body.checked)

    def __call__(self, buffers: Sequence[Buffer] | Mapping[int, Buffer]) -> None:
        evaluate_body(self.body, {s: buffers[s].array for s in self.slots})
        if self.reports:
            word_of(self.device).pending = True

    def placed(self, buffers: Any) -> dict[int, Buffer]:
        return {slot: buffers[slot] for slot in self.slots}

    def bound(self, placed: Mapping[int, Buffer]) -> Callable[[], None]:
        return lambda: self(placed)


def evaluate_body(body: KernelBody, arrays: Mapping[int, Any]) -> None:
    """Write the outputs of a kernel, block by block where it overwrites what it reads."""
    values = [o.value for o in body.outputs]
    slots = {u.arg.slot for u in toposort(*values) if u.op is Ops.BUFFER}
    held: list[Array] = [arrays.get(s, np.zeros(0)) for s in range(max(arrays) + 1)]
    for u in body.checked:
        if body.errors is not None and strays(u, evaluated(u.src[1:], held)):
            arrays[body.errors.arg.slot][0] = _REPORT
    overwrites = any(o.memory.arg.slot in slots for o in body.outputs)
    for chosen in _blocks(body, _rng) if overwrites else [{}]:
        for o, value in zip(body.outputs, evaluated(values, held), strict=True):
            memory = arrays[o.memory.arg.slot].reshape(value.shape)
            axes = body.axes[o.value][: value.ndim]
            at = [chosen.get(a, np.arange(n)) for a, n in zip(axes, value.shape, strict=True)]
            memory[np.ix_(*at)] = value[np.ix_(*at)]


def _loaded(body: KernelBody, name: str, device: str) -> tuple[Any, tuple[Any, ...]]:
    return SimpleNamespace(partials=(), counters=()), (_Launcher(body, device, name),)


class _Several:
    """A launch over several sets of arrays, in random order."""

    def __init__(self, launch: Launch, device: str) -> None:
        self.places, self.device = launch.places, device
        self.launchers = [
            _Launcher(_resized(launch.body, size), device, launch.name) for size in launch.sizes
        ]

    def prepare(self, buffers: Sequence[list[Buffer]]) -> None:
        """There is nothing to add."""

    def run(self, buffers: Sequence[list[Buffer]], listener: Listener | None) -> None:
        for k in _rng.sample(range(len(buffers)), len(buffers)):
            mine, launcher = buffers[k], self.launchers[k]
            launcher(mine)
            if listener is not None:
                written = [mine[slot] for slot in launcher.written]
                listener(cast("Launcher", launcher), mine, mine, written)


@contextmanager
def by_oracle(seed: int = 0) -> Iterator[None]:
    """Inside, kernels of the device "cpu" are evaluated."""
    _rng.seed(seed)
    before = prepare._loaded, prepare._Several
    changed: Any = prepare
    changed._loaded, changed._Several = _loaded, _Several
    try:
        yield
    finally:
        changed._loaded, changed._Several = before

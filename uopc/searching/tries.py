"""What is done with candidates in processes apart: `built` makes one, `timed` runs several in turn.

Both are called there by name; what goes between is text and numbers.  Inputs are normal random
numbers, integers 0: an index into any array.  Outputs start as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import DType
from uopc.errors import TargetError, UsageError
from uopc.kernel import Param, Source
from uopc.opts import Opts
from uopc.pipeline import Choice
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Launcher
from uopc.runtime.graph import Launch
from uopc.runtime.memory import gpu_of
from uopc.runtime.program import Program
from uopc.runtime.timing import Clock, CPUClock, CUDAClock, time_candidates
from uopc.searching.apart import Tell

#: device -> what times runs there
ClockOf: TypeAlias = Callable[[str], Clock]


@dataclass(frozen=True)
class Built:
    """A candidate that compiles: its Opts, what makes the Source of each step, and the BUFFERs
    between them (slot, dtype, elements)."""

    opts: Opts
    steps: tuple[dict[str, Any], ...]
    partials: tuple[tuple[int, DType, int], ...]

    @property
    def sources(self) -> list[Source]:
        return [Source(**step) for step in self.steps]


def built(choice: Choice, opts: Opts, tell: Tell) -> Built:
    """The kernel under these Opts, compiled and in the disk cache.

    Raises TargetError where it spills or has a stack, and whatever compiling it raises.
    """
    steps, partials = choice.steps(opts)
    for step in steps:
        if any(p.scalar for p in step.source.params):
            raise UsageError(
                f"kernel {choice.name} takes a number by value: give it arrays of shape (1,)"
            )
        if choice.target.is_gpu:
            used = step.cubin.resources
            if used.spills or used.stack_bytes or used.remarks:
                raise TargetError(f"kernel {choice.name} spills: {used}")
        else:
            Program(step.runs, step.runs.name).compile()
    memories = [(p.arg.slot, p.dtype, int(np.prod(p.arg.shape))) for p in partials]
    return Built(opts, tuple([_plain(s.source) for s in steps]), tuple(memories))


#: what a Source has for reports and checks of an emulation: nodes, which stay where they are
_NODES = ("places", "memories", "program", "mutants")


def _plain(source: Source) -> dict[str, Any]:
    """What makes the Source again, as far as a launch needs it."""
    fields = [
        name
        for name, p in signature(Source.__new__).parameters.items()
        if p.kind is p.KEYWORD_ONLY and name not in _NODES
    ]
    return {"text": str(source), **{name: getattr(source, name) for name in fields}}


@dataclass(frozen=True)
class _Step:
    """What a Launcher loads."""

    runs: Source


class Run:
    """Starts the launches of a candidate."""

    def __init__(self, made: Built, device: str, arrays: Mapping[int, Buffer]) -> None:
        self.opts = made.opts
        own = dict(arrays)
        for slot, dtype, size in made.partials:
            own[slot] = Buffer(device, dtype, size).zero()
        launchers = [Launcher(_Step(source), device) for source in made.sources]
        work = [Launch(x, {s: own[s] for s in x.slots}) for x in launchers]
        self._work, self._calls = work, [w.bound() for w in work]

    def __call__(self) -> None:
        for call in self._calls:
            call()


def timed(
    candidates: Sequence[Built],
    device: str,
    clock_of: ClockOf,
    samples: int,
    seed: int,
    tell: Tell,
) -> list[float]:
    """Median seconds of each, by the cool protocol; `tell` hears the number of each before it runs.

    Raises what loading or running one raises.
    """
    arrays = _arrays(candidates, device, seed)
    tell("the arrays are there")
    runs = []
    for n, made in enumerate(candidates):
        tell(n)
        runs.append(Run(made, device, arrays))
    clock = _Announcing(clock_of(device), {id(r): n for n, r in enumerate(runs)}, tell)
    numbered = {str(n): r for n, r in enumerate(runs)}
    times = time_candidates(numbered, clock, samples=samples, warm=2, seed=seed)
    return [times[str(n)].median_s for n in range(len(runs))]


class _Announcing:
    """A clock that says what it times next."""

    def __init__(self, clock: Clock, number: Mapping[int, int], tell: Tell) -> None:
        self._clock, self._number, self._tell = clock, number, tell

    def sample_s(self, run: Callable[[], object]) -> float:
        self._tell(self._number[id(run)])
        return self._clock.sample_s(run)


def opened(device: str, clock_of: ClockOf, tell: Tell) -> None:
    """Open a device, so that the first candidate need not wait for that."""
    clock_of(device).sample_s(lambda: None)


def clock_of(device: str) -> Clock:
    """The clock of a device, on the stream of its kernels."""
    if device.startswith("cuda"):
        gpu = gpu_of(device)
        return CUDAClock(gpu, gpu.work)
    return CPUClock()


def _arrays(candidates: Sequence[Built], device: str, seed: int) -> dict[int, Buffer]:
    """A memory for every parameter that is not a candidate's own."""
    wanted: dict[int, _Memory] = {}
    for made in candidates:
        own = {slot for slot, _, _ in made.partials}
        for step in made.steps:
            params: Sequence[Param] = step["params"]
            for p in params:
                if p.slot not in own:
                    before = wanted.get(p.slot)
                    written = p.written or (before is not None and before[3])
                    wanted[p.slot] = (p.slot, p.dtype, p.size, written)
    return _filled(device, tuple(sorted(wanted.values(), key=lambda m: m[0])), seed)


#: slot, dtype, elements, whether some candidate writes it
_Memory: TypeAlias = tuple[int, DType, int, bool]


@lru_cache(maxsize=1)  # the rounds of a search are on one kernel: large arrays are made once
def _filled(device: str, memories: tuple[_Memory, ...], seed: int) -> dict[int, Buffer]:
    rng = np.random.default_rng(seed)
    out = {}
    for slot, dtype, size, written in memories:
        buffer = out[slot] = Buffer(device, dtype, size)
        if written or not dtype.is_float:
            buffer.zero()
            continue
        some = rng.standard_normal(min(size, _DIFFERENT), np.float32).astype(dtype.numpy)
        buffer.write(np.resize(some, size))
    return out


_DIFFERENT = 1 << 20  # random numbers before they repeat

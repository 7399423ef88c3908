"""Search: the fastest Opts of a kernel, by timing, for those who can wait.

The automatic choice is a guess from sizes and strides.  A search times its candidates against each
other, then neighbours of the best and some at random, until a budget is spent or nothing better is
near.  A winner is kept on disk (`runtime/winners.py`); from then on whatever compiles this kernel
for this target with this toolchain uses it.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from uopc.choose.facts import KernelFacts
from uopc.errors import UsageError
from uopc.kernel import USUAL, KernelBody, Numerics
from uopc.opts import Opts
from uopc.pipeline import Choice, choices
from uopc.runtime import cuda, winners
from uopc.runtime.winners import Winner
from uopc.searching.apart import Child, Failed, call, results
from uopc.searching.candidates import at_random, neighbours
from uopc.searching.tries import Built, ClockOf, built, clock_of, opened, timed
from uopc.target import Target
from uopc.uop.node import UOp

#: candidates of a round; automatic ones at most; neighbours and random ones are in this proportion
ROUND, AUTOMATIC, RANDOM_OF_ROUND = 16, 12, 4
#: the best so many are varied
BEST = 3
#: rounds without a gain after which a search ends
IDLE_ROUNDS = 3
#: a winner is kept where it takes at most this part of the automatic choice's time
WORTH = 0.98
SAMPLES, LAST_SAMPLES = 5, 15
#: seconds without a word after which a compiler, or a kernel, counts as hanging
BUILD_PATIENCE_S, RUN_PATIENCE_S = 20.0, 10.0
#: the same of a process that opens a GPU
_OPEN_PATIENCE_S = 60.0
#: how what is said of a candidate begins that was refused before it ran
_HARMLESS = ("UsageError", "TargetError")


@dataclass(frozen=True)
class Found:
    """What a search knows of one kernel.

    opts, time_s: of the fastest; automatic, automatic_s: of the choice without a search; tried: how
    many were timed; skipped: how many were not, by reason; kept: the winner is on disk.  Times are
    infinite where nothing could be timed.
    """

    name: str
    opts: Opts
    time_s: float
    automatic: Opts
    automatic_s: float
    tried: int
    skipped: Counter[str] = field(repr=False)
    kept: bool

    @property
    def speedup(self) -> float:
        """Time of the automatic choice over that of the fastest."""
        return self.automatic_s / self.time_s if self.time_s < float("inf") else 1.0

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.time_s * 1e6:.1f} us, automatic {self.automatic_s * 1e6:.1f} us "
            f"({self.speedup:.2f}x), {self.tried} tried, {self.skipped.total()} skipped"
            f"{', kept' if self.kept else ''}\n  {self.opts}"
        )


def search(
    body: UOp | Sequence[UOp] | KernelBody,
    target: str | Target | None = None,
    *,
    name: str = "kernel",
    numerics: Numerics = USUAL,
    budget_s: float = 10.0,
    seed: int = 0,
    workers: int = 0,
    progress: bool = True,
    clock: ClockOf = clock_of,
    build_patience_s: float = BUILD_PATIENCE_S,
    run_patience_s: float = RUN_PATIENCE_S,
) -> list[Found]:
    """Time candidates of a kernel, and keep the fastest for whoever compiles it from now on.

    Parameters
    ----------
    body: as `compile` takes it, or a KernelBody of a schedule (`Schedule.launches`).
    target: "cuda" or "cpu"; None: cuda where it is usable, else cpu.
    name, numerics: as `compile` takes them.
    budget_s: seconds after the first round, which times the automatic candidates; what is not built
        when they are over is given up.
    seed: of random candidates and numbers.
    workers: processes that compile; 0: one for each core but one.
    progress: show a bar where standard error is a terminal.
    clock: makes the clock of a device in the process that times.
    build_patience_s, run_patience_s: seconds after which a compiler or a kernel counts as hanging.

    One for each kernel: a CPU makes several of some bodies.  A candidate that does not build,
    spills, crashes or hangs is skipped and counted, never raised; its process is ended.

    Raises UsageError for a target that does not run here, and what `compile` raises for the body.
    """
    device = _device_of(target)
    found = []
    kernels = choices(body, device, name, numerics)
    how = _How(device, budget_s / len(kernels), seed, clock, build_patience_s, run_patience_s)
    with _Processes(workers) as processes, _bar(progress) as bar:
        for choice in kernels:
            found.append(_Search(choice, how, processes).run(bar))
    return found


@dataclass(frozen=True)
class _How:
    """What `search` was asked, for each kernel."""

    device: str
    budget_s: float
    seed: int
    clock: ClockOf
    build_patience_s: float
    run_patience_s: float


def _device_of(target: str | Target | None) -> str:
    """The device whose kernels are timed.  Raises UsageError where it is none of this machine."""
    reason = cuda.why_unusable()
    wanted = str(target) if target is not None else ("cpu" if reason else "cuda")
    if wanted == "cpu":
        return "cpu"
    if reason:
        raise UsageError(f"search for {wanted}: kernels are timed where they run. {reason}")
    if wanted not in ("cuda", cuda.device_target().name):
        raise UsageError(
            f"search for {wanted}: this GPU is {cuda.device_target()}. Search on a machine with "
            "that GPU, or leave target out."
        )
    return "cuda"


class _Processes:
    """Children that build, and one that times; all end with it."""

    def __init__(self, workers: int) -> None:
        count = workers or max(1, len(os.sched_getaffinity(0)) - 1)
        self.builders = [Child() for _ in range(count)]
        self.timer = Child()

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for child in (*self.builders, self.timer):
            child.end()


@contextmanager
def _bar(wanted: bool) -> Iterator[Progress]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    shown = wanted and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        yield bar


class _Search:
    """The search for one kernel."""

    def __init__(self, choice: Choice, how: _How, processes: _Processes) -> None:
        self._choice, self._how, self._processes = choice, how, processes
        self._rng = random.Random(how.seed)
        self._facts = KernelFacts.of_indexed(choice.root, choice.merge)
        self._seen: set[Opts] = set()
        self._skipped: Counter[str] = Counter()
        self._times: dict[Opts, float] = {}
        self._made: dict[Opts, Built] = {}

    def run(self, bar: Progress) -> Found:
        choice = self._choice
        task = bar.add_task(choice.name, total=max(self._how.budget_s, 0.001))
        ranked = list(itertools.islice(choice.ranked(), AUTOMATIC))
        before = winners.stored(choice.root, choice.target, choice.numerics)
        self._try(ranked if before is None else [*ranked, before.opts], until=None)
        automatic = next((o for o in ranked if o in self._made), ranked[0])
        idle, start = 0, time.monotonic()
        until = start + self._how.budget_s
        while self._times and idle < IDLE_ROUNDS and time.monotonic() < until:
            best = min(self._times.values())
            said = f"{choice.name}  {best * 1e6:.1f} us of {self._of(automatic) * 1e6:.1f}"
            bar.update(task, completed=time.monotonic() - start, description=said)
            if not (wanted := self._next()):
                break
            self._try(wanted, until)
            idle = 0 if min(self._times.values(), default=best) < best else idle + 1
        bar.remove_task(task)
        return self._decided(automatic)

    def _of(self, opts: Opts) -> float:
        return self._times.get(opts, float("inf"))

    def _next(self) -> list[Opts]:
        """A round that has not been tried: steps away from the best, and some at random."""
        best = sorted(self._times, key=lambda o: self._times[o])[:BEST]
        near = [o for b in best for o in neighbours(b, self._facts, self._choice.target)]
        near = [o for o in dict.fromkeys(near) if o not in self._seen]
        # those of the very best come first only by chance: its list alone is longer than a round
        picked = self._rng.sample(near, min(len(near), ROUND - RANDOM_OF_ROUND))
        far = [
            at_random(self._facts, self._choice.target, self._rng) for _ in range(RANDOM_OF_ROUND)
        ]
        return [o for o in dict.fromkeys((*picked, *far)) if o not in self._seen]

    def _try(self, wanted: Sequence[Opts], until: float | None) -> None:
        """Build and time them beside the best so far; note what does not work."""
        wanted = list(dict.fromkeys(wanted))
        self._seen.update(wanted)
        ready: list[Opts] = []
        jobs = [(self._choice, o) for o in wanted]
        for n, made in results(
            self._processes.builders, built, jobs, self._how.build_patience_s, until
        ):
            if isinstance(made, Failed):
                self._skip(made)
            else:
                self._made[wanted[n]] = made
                ready.append(wanted[n])
        ready.sort(key=wanted.index)  # as they were asked for, whichever was ready first
        if not ready:
            return
        if self._times:
            ready.append(min(self._times, key=lambda o: self._times[o]))
        self._times |= self._timed(ready, SAMPLES)

    def _timed(self, ready: Sequence[Opts], samples: int) -> dict[Opts, float]:
        """Times of those that run; the others are skipped, and the rest starts again."""
        left, timer = list(ready), self._processes.timer
        while left:
            if not timer.runs:
                call(timer, opened, (self._how.device, self._how.clock), _OPEN_PATIENCE_S)
            made = [self._made[o] for o in left]
            answer = call(
                timer,
                timed,
                (made, self._how.device, self._how.clock, samples, 0),
                self._how.run_patience_s,
            )
            if not isinstance(answer, Failed):
                return dict(zip(left, answer, strict=True))
            if not answer.why.startswith(_HARMLESS):
                timer.end()  # after a fault nothing runs in that process's context
            self._skip(answer)
            if not isinstance(answer.told, int):  # none of them: the device, or the clock
                return {}
            self._times.pop(left[answer.told], None)
            del self._made[left.pop(answer.told)]
        return {}

    def _skip(self, failed: Failed) -> None:
        self._skipped[failed.why.split(":")[0]] += 1

    def _decided(self, automatic: Opts) -> Found:
        """The winner, timed once more beside the automatic choice, and kept if it is worth it."""
        choice = self._choice
        best = min(self._times, key=lambda o: self._times[o], default=automatic)
        if best != automatic and automatic in self._made:
            self._times |= self._timed([automatic, best], LAST_SAMPLES)
        best_s, automatic_s = self._of(best), self._of(automatic)
        kept = best_s < WORTH * automatic_s
        if not kept:
            best, best_s = automatic, automatic_s
        about = (choice.root, choice.target, choice.numerics)
        if kept:
            kept = winners.keep(*about, Winner(best, best_s, automatic_s)) is not None
        elif self._times:
            winners.forget(*about)
        return Found(
            choice.name, best, best_s, automatic, automatic_s, len(self._times), self._skipped, kept
        )

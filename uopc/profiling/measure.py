"""Run a program, time its kernels where they run, and put a profile together.

Rounds of three measurements take turns, each after an idle pause: a run that nobody observes gives
the step's time, one in which each kernel has a mark before and after it gives the kernels' times,
and one gives the time of whole replays.  Medians over rounds count (`uopc/runtime/timing.py` says
why).  Then one more run is drawn as a timeline, beside the first one.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from uopc.config import current as configured
from uopc.errors import UopcError, UsageError
from uopc.inspect.records import Roofline
from uopc.inspect.work import operations
from uopc.profiling.clocks import Clock
from uopc.profiling.judge import Judge
from uopc.profiling.programs import Program
from uopc.profiling.records import KernelTime, Profile
from uopc.profiling.timeline import tracks_of
from uopc.profiling.watchers import Clocks, ReplayWatch, Stopwatch, Timeline, Work
from uopc.runtime import observe
from uopc.runtime.timing import IDLE_S, Timing

#: runs before any is timed: a captured function replays from its third call on
WARM = 3
SYNC = "UOPC_SYNC=1 waits for every launch, so that times hold the host's: leave it away"
Samples: TypeAlias = Sequence[tuple[Work, float]]


def measure(
    program: Program,
    runs: int,
    judge: Judge,
    clocks: Clocks | None = None,
    idle_s: float = IDLE_S,
) -> Profile:
    """The profile of a program.

    Parameters
    ----------
    runs: of each measurement; the program runs WARM + 1 times beside them.
    judge: what bounds each kernel of a GPU.
    idle_s: seconds without work before each run.

    Raises UsageError where a run starts no kernel, or starts some on the emulator.
    """
    if runs < 1:
        raise UsageError(f"a profile needs a run or more, got runs={runs}.")
    clocks = Clocks() if clocks is None else clocks
    first = Timeline(clocks)
    with observe.observing(first), observe.span("step, the first"):
        program = program.first()
    for _ in range(WARM - 1):
        program.run()
    _check_heard(program.name, bool(clocks), "no run starts a kernel by way of Tensors")
    steps: list[_Step] = []
    kernels: list[Samples] = []
    replays: list[float] = []
    for _ in range(runs):
        steps.append(_step(program, clocks, idle_s))
        watch = Stopwatch(clocks)
        _observed(program, watch, clocks, idle_s)
        kernels.append(watch.times_s())
        _check_heard(program.name, bool(watch.taken), "only the first run starts kernels")
        if watch.replays:
            whole = ReplayWatch(clocks)
            _observed(program, whole, clocks, idle_s)
            replays.append(whole.total_s())
    last = Timeline(clocks)
    _observed(program, last, clocks, idle_s)
    main = _main(clocks)
    times, notes = _kernel_times(kernels, judge)
    if configured().sync and not main.waits:
        notes += (SYNC,)
    gpus = {x.roofline.gpu for x in times if x.roofline is not None}
    ordered = sorted(times, key=lambda x: (-x.time.total_s, x.time.name))
    return Profile(
        name=program.name,
        device=", ".join(clocks),
        clock=main.what,
        runs=runs,
        kernels=tuple(x.time for x in ordered),
        step_s=statistics.median(s.time_s for s in steps),
        host_s=statistics.median(s.host_s for s in steps),
        replay_s=statistics.median(replays) if replays else None,
        empty_s=None if main.waits else _empty_s(main, runs),
        steady=len({tuple(w for w, _ in run) for run in kernels}) == 1,
        gpu=", ".join(sorted(gpus)),
        notes=notes,
        tracks=tracks_of(first, last, {x.work: x.time for x in times}),
    )


@dataclass(frozen=True)
class _Step:
    """One run that nobody observed: until all is done, and until Python had started all."""

    time_s: float
    host_s: float


@dataclass(frozen=True)
class _Timed:
    """A piece of work with its times."""

    work: Work
    time: KernelTime
    roofline: Roofline | None


def _check_heard(name: str, heard: bool, what: str) -> None:
    if not heard:
        raise UsageError(
            f"{name}: {what}. A profile sees what Tensors compute, and kernels that it is given "
            "itself. Let each run compute its values anew, and return them."
        )


def _main(clocks: Clocks) -> Clock:
    """The clock that the program waits for: a GPU's where there is one."""
    return min(clocks.values(), key=lambda c: c.waits)


def _step(program: Program, clocks: Clocks, idle_s: float) -> _Step:
    _rest(clocks, idle_s)
    begins = {device: clock.mark() for device, clock in clocks.items()}
    start = time.perf_counter()
    with observe.span("step"):
        program.run()
    host_s = time.perf_counter() - start
    ends = {device: clock.mark() for device, clock in clocks.items()}
    times = [clocks[d].between_s(begin, ends[d]) for d, begin in begins.items()]
    return _Step(max(times), host_s)


def _observed(program: Program, observer: observe.Observer, clocks: Clocks, idle_s: float) -> None:
    _rest(clocks, idle_s)
    with observe.observing(observer), observe.span("step"):
        program.run()
    clocks.wait()


def _rest(clocks: Clocks, idle_s: float) -> None:
    clocks.wait()
    time.sleep(idle_s)


def _empty_s(clock: Clock, runs: int) -> float:
    """What the clock says of a kernel that does nothing."""
    taken = []
    for n in range(runs + 1):
        clock.hold()
        begin = clock.mark()
        clock.start_empty()
        time_s = clock.between_s(begin, clock.mark())
        if n:  # the first one loads it
            taken.append(time_s)
    return statistics.median(taken)


def _kernel_times(kernels: Sequence[Samples], judge: Judge) -> tuple[list[_Timed], tuple[str, ...]]:
    """The times of each kernel over all runs, and notes on what could not be judged."""
    samples: dict[Work, list[float]] = defaultdict(list)
    totals: dict[Work, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    whose: dict[Work, Work] = {}
    for number, run in enumerate(kernels):
        for work, time_s in run:
            whose.setdefault(work, work)
            samples[work].append(time_s)
            totals[work][number] += time_s
    notes: dict[str, None] = {}
    out = []
    for work in whose:
        roofline = _judged(work, judge, notes)
        timing = Timing(tuple(samples[work]))
        made = KernelTime(
            name=work.name,
            device=work.device,
            grid=work.grid,
            block=work.block,
            calls=len(samples[work]) / len(kernels),
            total_s=_total_s([totals[work].get(n, 0.0) for n in range(len(kernels))]),
            median_s=timing.median_s,
            spread=timing.spread,
            must_bytes=work.argument_bytes() if roofline is None else roofline.must_bytes,
            operations=_operations(work, roofline),
            floor_s=0.0 if roofline is None else roofline.floor_s,
            wall="" if roofline is None else roofline.wall,
        )
        out.append(_Timed(work, made, roofline))
    return out, tuple(notes)


def _operations(work: Work, roofline: Roofline | None) -> tuple[tuple[str, int], ...] | None:
    """What a launch computes; None of what is no kernel of ours."""
    if roofline is not None:
        return roofline.operations
    return None if work.step is None else tuple(operations(work.step.program).items())


def _judged(work: Work, judge: Judge, notes: dict[str, None]) -> Roofline | None:
    """What bounds it, where that can be said."""
    if work.step is None or not work.step.source.target.is_gpu:
        return None
    try:
        found = judge.roofline(work.step, work.device)
        if note := judge.note(work.device):
            notes[note] = None
        return found
    except UopcError as error:
        notes[f"{work.name} has no roofline: {error}"] = None
        return None


def _total_s(runs: Sequence[float]) -> float:
    """Of a kernel in one run: the median, or the mean where some runs do without it."""
    return statistics.median(runs) if all(runs) else statistics.fmean(runs)

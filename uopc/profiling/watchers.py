"""Observers of a running program: of each kernel's time, of whole replays, of a timeline."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from uopc.compiled import Step
from uopc.kernel import Dims, Param
from uopc.profiling.clocks import Clock, clock_of
from uopc.profiling.programs import emulator_refused
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Argument, Arguments, Launcher
from uopc.runtime.graph import Copy, Replay

Start: TypeAlias = Callable[[], None]
#: launches of a graph that the host starts well within one hold
_HELD_NODES = 50
NO_DIMS: Dims = (0, 0, 0)


@dataclass(frozen=True)
class Work:
    """A kernel, or a copy, that a program starts any number of times.

    text: what tells kernels of one name apart; step: of a kernel that uopc compiled; grid, block:
    (0, 0, 0) where there is none.  plain_bytes: of the memories that it is passed; tables: what it
    is passed for bundles of them.
    """

    name: str
    device: str
    text: str = field(repr=False)
    grid: Dims
    block: Dims
    cluster: int = 1
    step: Step | None = field(default=None, compare=False, repr=False)
    plain_bytes: int = 0
    tables: tuple[tuple[Param, Argument], ...] = field(default=(), compare=False, repr=False)

    def argument_bytes(self) -> int:
        """Bytes of all memories that one launch is passed, each once; of a copy, what it moves."""
        return self.plain_bytes + sum(_bundled_bytes(p, given) for p, given in self.tables)


class Clocks(Mapping[str, Clock]):
    """The clocks of the devices that a program uses, made when they are first asked for.

    make: of a device by its name.
    """

    def __init__(self, make: Callable[[str], Clock] = clock_of) -> None:
        self._make, self._made = make, dict[str, Clock]()

    def __getitem__(self, device: str) -> Clock:
        """Raises UsageError for the emulator, DeviceError for a GPU that cannot be used."""
        if device == "emulated":
            raise emulator_refused("the program computes there")
        if device not in self._made:
            self._made[device] = self._make(device)
        return self._made[device]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def wait(self) -> None:
        """Wait for all of them."""
        for clock in self._made.values():
            clock.wait()


class _Quiet:
    """An observer that lets everything happen as it would."""

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks

    def launch(self, launcher: Launcher, buffers: Arguments, start: Start) -> None:
        start()

    def copy(self, copy: Copy, start: Start) -> None:
        start()

    def replay(self, replay: Replay, start: Start) -> None:
        start()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Taken:
    """One piece of work between two marks of its device's clock."""

    work: Work
    begin: Any
    end: Any


class Stopwatch(_Quiet):
    """Times each kernel; a replay is done piece by piece for that.

    Attributes: taken, in order; replays, how often one was started.
    """

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(clocks)
        self.taken: list[Taken] = []
        self.replays = 0

    def launch(self, launcher: Launcher, buffers: Arguments, start: Start) -> None:
        self._time(work_of(launcher, buffers), start)

    def copy(self, copy: Copy, start: Start) -> None:
        self._time(copied(copy), start)

    def replay(self, replay: Replay, start: Start) -> None:
        self.replays += 1
        for work in replay.work:
            work()

    def _time(self, work: Work, start: Start) -> None:
        clock = self.clocks[work.device]
        clock.hold()
        begin = clock.mark()
        start()
        self.taken.append(Taken(work, begin, clock.mark()))

    def times_s(self) -> list[tuple[Work, float]]:
        """Each piece of work and its seconds; waits for all of it."""
        return [(t.work, self.clocks[t.work.device].between_s(t.begin, t.end)) for t in self.taken]


class ReplayWatch(_Quiet):
    """Times replays as they are: of all of one run together."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(clocks)
        self.taken: list[tuple[str, Any, Any]] = []

    def replay(self, replay: Replay, start: Start) -> None:
        if not replay.device:
            return start()
        clock = self.clocks[replay.device]
        for _ in range(1 + len(replay) // _HELD_NODES):
            clock.hold()
        begin = clock.mark()
        start()
        self.taken.append((replay.device, begin, clock.mark()))
        return None

    def total_s(self) -> float:
        """Seconds of all replays; waits for them."""
        return sum(self.clocks[d].between_s(begin, end) for d, begin, end in self.taken)


@dataclass(frozen=True)
class HostSlice:
    """What the host did, in seconds of its own clock."""

    name: str
    begin_s: float
    end_s: float
    kind: str


@dataclass(frozen=True)
class DeviceSlice:
    """Work that one call started: a kernel, or all of a replay.

    launched_s: when, on the host's clock; end: the mark after it.
    """

    name: str
    device: str
    works: tuple[Work, ...]
    launched_s: float
    end: Any


class Timeline(_Quiet):
    """When the host did what, and when the device was done with it; replays run as they are.

    The only marks are those after each launch: the GPU is never kept from its work.

    Attributes: host; device; origins, for each device a mark and the host's time when it was made.
    """

    def __init__(self, clocks: Clocks) -> None:
        super().__init__(clocks)
        self.host: list[HostSlice] = []
        self.device: list[DeviceSlice] = []
        self.origins: dict[str, tuple[Any, float]] = {}
        for device in clocks:
            self._origin(device)

    def launch(self, launcher: Launcher, buffers: Arguments, start: Start) -> None:
        work = work_of(launcher, buffers)
        self._start(work.name, work.device, (work,), start)

    def copy(self, copy: Copy, start: Start) -> None:
        work = copied(copy)
        self._start(work.name, work.device, (work,), start)

    def replay(self, replay: Replay, start: Start) -> None:
        if not replay.device:
            return start()
        parts = tuple(
            copied(w) if isinstance(w, Copy) else work_of(w.launcher, w.buffers)
            for w in replay.work
        )
        return self._start(replay.name, replay.device, parts, start)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.host.append(
                HostSlice(name, begin, time.perf_counter(), re.split(r"\W", name, maxsplit=1)[0])
            )

    def _start(self, name: str, device: str, works: tuple[Work, ...], start: Start) -> None:
        self._origin(device)
        begin = time.perf_counter()
        start()
        end = time.perf_counter()
        self.host.append(HostSlice(f"launch {name}", begin, end, "launch"))
        mark = self.clocks[device].mark()
        self.device.append(DeviceSlice(name, device, works, begin, mark))

    def _origin(self, device: str) -> None:
        """Tie the two clocks together, while the device has nothing to do."""
        if device not in self.origins:
            clock = self.clocks[device]
            clock.wait()
            self.origins[device] = clock.mark(), time.perf_counter()

    def ends_s(self) -> list[float]:
        """When each of `device` was done, on the host's clock; waits for all of it."""
        out = []
        for one in self.device:
            origin, host_s = self.origins[one.device]
            out.append(host_s + self.clocks[one.device].between_s(origin, one.end))
        return out


def work_of(launcher: Launcher, buffers: Arguments) -> Work:
    """What a launcher starts."""
    source = launcher.source
    step = launcher.step if isinstance(launcher.step, Step) else None
    launch = source.launch
    gpu = source.language == "cuda"
    return Work(
        launcher.name,
        launcher.device,
        source,
        launch.grid if gpu else NO_DIMS,
        launch.block if gpu else NO_DIMS,
        launch.cluster,
        step,
        sum([p.size * p.dtype.itemsize for p in source.params if not p.bundle]),
        tuple([(p, buffers[p.slot]) for p in source.params if p.bundle]),
    )


def copied(copy: Copy) -> Work:
    """A copy within a replay."""
    name = f"copy {copy.to.dtype}[{copy.to.size}]"
    return Work(name, copy.device, "", NO_DIMS, NO_DIMS, plain_bytes=2 * copy.to.size_bytes)


def _bundled_bytes(p: Param, given: Argument) -> int:
    """Bytes of the memories of a bundle."""
    if isinstance(given, Buffer):  # a table: addresses, then how many elements each has
        return int(given.numpy()[p.bundle :].sum()) * p.dtype.itemsize
    return sum(b.size_bytes for b in given)

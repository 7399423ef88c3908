"""Replay a list of launches and copies, with no Python for each where the device can do that.

On cuda the list becomes a graph of the driver, recorded from the launches themselves, which starts
with one call whatever it holds.  Elsewhere it is a loop of calls whose arguments are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from uopc.errors import UsageError
from uopc.runtime import observe
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import Argument, Arguments, Launcher, word_of
from uopc.runtime.memory import gpu_of


@dataclass(frozen=True, eq=False)
class Launch:
    """A launcher and its buffers by local slot; calling it launches now.

    placed: what is passed, with a table in the place of each list.
    """

    launcher: Launcher
    buffers: Arguments
    placed: Mapping[int, Buffer] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = self.buffers
        own = {slot: _own(given[slot]) for slot in self.launcher.slots}
        object.__setattr__(self, "buffers", own)  # whatever becomes of the caller's list
        object.__setattr__(self, "placed", self.launcher.placed(own))

    @property
    def device(self) -> str:
        return self.launcher.device

    @property
    def reports(self) -> bool:
        return self.launcher.reports

    def __call__(self) -> None:
        self.launcher(self.placed)

    def bound(self) -> Callable[[], None]:
        """The same with its arguments packed."""
        return self.launcher.bound(self.placed)

    def record(self, stream: int) -> None:
        """Put it on a GPU's stream that records."""
        self.launcher.record(stream, self.placed)


@dataclass(frozen=True, eq=False)
class Copy:
    """The elements of one buffer into another of the same device; calling it copies now.

    Raises UsageError for buffers of unequal device, dtype or size.
    """

    to: Buffer
    source: Buffer
    reports = False

    def __post_init__(self) -> None:
        a, b = self.to, self.source
        if (a.device, a.dtype, a.size) != (b.device, b.dtype, b.size):
            raise UsageError(f"{b} cannot be copied to {a} in a replay.")

    @property
    def device(self) -> str:
        return self.to.device

    def __call__(self) -> None:
        observer = observe.current
        if observer is None:
            self.source.copy_to(self.to)
        else:
            observer.copy(self, partial(self.source.copy_to, self.to))

    def bound(self) -> Callable[[], None]:
        """Itself."""
        return self

    def record(self, stream: int) -> None:
        """Put it on a GPU's stream that records."""
        a, b = self.to, self.source
        if b.size:
            gpu_of(self.device).copy(a.address, b.address, b.size_bytes, stream)


Work: TypeAlias = Launch | Copy


class Replay:
    """Do the same work again: `replay()`.  It keeps the buffers; their contents are read and
    written anew each time.  Any thread may call it.

    On cuda it returns before the work is done.  Under Config.sync launches are made one by one, so
    that a failure names its kernel.

    Parameters
    ----------
    work: launches and copies of one device, in order.

    Attributes: work; device, "" where there is no work; name, for whoever observes.

    Raises UsageError where devices differ, DeviceError where the driver cannot record the work.
    """

    def __init__(self, work: Sequence[Work]) -> None:
        self.work = tuple(work)
        devices = sorted({w.device for w in self.work})
        if len(devices) > 1:
            raise UsageError(f"a replay is of one device, this one has {', '.join(devices)}.")
        self.device = devices[0] if devices else ""
        self._word = word_of(self.device) if any(w.reports for w in self.work) else None
        self.name = f"replay of {len(self.work)}"
        self._run = self._prepared()

    def __call__(self) -> None:
        observer = observe.current
        if observer is None:
            self._run()
        else:
            observer.replay(self, self._run)
        if self._word is not None:
            self._word.pending = True

    def __len__(self) -> int:
        return len(self.work)

    def _prepared(self) -> Callable[[], None]:
        if any(isinstance(w, Launch) and w.launcher.sync for w in self.work):
            return _loop(self.work)
        if not self.device.startswith("cuda"):
            return _loop([w.bound() for w in self.work])
        gpu, what = gpu_of(self.device), f"a graph of {len(self.work)} launches and copies"

        def record(stream: int) -> None:
            for w in self.work:
                w.record(stream)

        graph = gpu.capture(record)

        def run() -> None:
            if status := graph():
                gpu.check(what, status)

        return run


def _own(argument: Argument) -> Argument:
    return argument if isinstance(argument, Buffer) else tuple(argument)


def _loop(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run

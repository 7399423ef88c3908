"""Who hears of the work that this process does: kernels, replays, and what the host is busy with.

A profile listens, and so do NVTX ranges.  `current` is None while nobody does: a launch then looks
at it, and that is all.  An observer hears the work of every thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from uopc.config import Config
from uopc.config import current as configured
from uopc.runtime.ranges import Ranges

if TYPE_CHECKING:
    from uopc.runtime.executor import Arguments, Launcher
    from uopc.runtime.graph import Copy, Replay

Start = Callable[[], None]


class Observer(Protocol):
    """What is called around the work of this process."""

    def launch(self, launcher: Launcher, buffers: Arguments, start: Start) -> None:
        """A kernel is to start on these buffers: call `start`, once."""

    def copy(self, copy: Copy, start: Start) -> None:
        """A replay copies a buffer outside of a graph: call `start`, once."""

    def replay(self, replay: Replay, start: Start) -> None:
        """A replay is to start: call `start` once, or each of its `work` in order."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """The host is busy with this while the context is open."""


current: Observer | None = None
_NOTHING = nullcontext()


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Let `observer` hear; who heard before goes on hearing, nearer to the work."""
    global current
    hear_as_configured(configured())
    before = current
    current = observer if before is None else Nested(observer, before)
    try:
        yield
    finally:
        current = before


def span(name: str) -> AbstractContextManager[None]:
    """What the host does while the context is open; a schedule or a compilation, never a launch."""
    hear_as_configured(configured())
    observer = current
    return _NOTHING if observer is None else observer.span(name)


def hear_as_configured(config: Config) -> None:
    """Under Config.nvtx, let NVTX ranges hear from now on.

    Raises ToolchainError where the package nvtx is not installed.
    """
    global current
    if config.nvtx and current is None:
        current = RangesOf(Ranges())


@dataclass(frozen=True)
class Nested:
    """Two observers, the first of which hears the second one's own time as part of the work."""

    outer: Observer
    inner: Observer

    def launch(self, launcher: Launcher, buffers: Arguments, start: Start) -> None:
        self.outer.launch(launcher, buffers, lambda: self.inner.launch(launcher, buffers, start))

    def copy(self, copy: Copy, start: Start) -> None:
        self.outer.copy(copy, lambda: self.inner.copy(copy, start))

    def replay(self, replay: Replay, start: Start) -> None:
        self.outer.replay(replay, lambda: self.inner.replay(replay, start))

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        with self.outer.span(name), self.inner.span(name):
            yield


@dataclass(frozen=True)
class RangesOf:
    """An NVTX range around each piece of work, named after it."""

    ranges: Ranges

    def launch(self, launcher: Launcher, buffers: Arguments, start: Start) -> None:
        with self.ranges.range(launcher.name):
            start()

    def copy(self, copy: Copy, start: Start) -> None:
        with self.ranges.range("copy"):
            start()

    def replay(self, replay: Replay, start: Start) -> None:
        with self.ranges.range(replay.name):
            start()

    def span(self, name: str) -> AbstractContextManager[None]:
        return self.ranges.range(name)

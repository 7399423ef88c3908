"""Calls in processes of their own: what hangs, dies or takes too long there takes nothing with it.

A candidate that nobody has run may loop in its compiler, or wait on the GPU for a block that never
comes; neither can be ended from within its process.  So candidates are built and timed in children,
which are started by name (`python -c`, over one end of a pipe): a user's script is not imported
again, and needs no guard against that.  A function that is called there must be found by its
module's name; it gets `tell`, by which it says what it is at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, TypeAlias

#: says where a function that runs apart is: any object that can be pickled
Tell: TypeAlias = Callable[[object], None]
_TOLD, _DONE, _RAISED = "told", "done", "raised"
#: arguments: the end of a pipe, then where modules are found
_START = """
import sys
sys.path[:] = sys.argv[2:]
from uopc.searching.apart import serve
serve(int(sys.argv[1]))
"""


@dataclass(frozen=True)
class Failed:
    """A call without a result: why, in a line; told: the last thing that it said, None for nothing;
    hung: it was ended from outside."""

    why: str
    told: object = None
    hung: bool = False


class Child:
    """One process that makes calls, one at a time; it is started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.connection: Connection | None = None

    @property
    def runs(self) -> bool:
        """Has it been started, and not ended?"""
        return self._process is not None and self._process.poll() is None

    def send(self, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Let it call function(*arguments, tell)."""
        if not self.runs:
            self.end()
            self._start()
        assert self.connection is not None
        self.connection.send((function, tuple(arguments)))

    def _start(self) -> None:
        self.connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs.fileno()), *sys.path],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt is for whoever waits, who then ends it
        )
        theirs.close()

    def end(self) -> None:
        """End it, whatever it is at."""
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()
            self._process.wait()
        if self.connection is not None:
            self.connection.close()
        self._process = self.connection = None


def call(
    child: Child, function: Callable[..., Any], arguments: Sequence[Any], patience_s: float
) -> Any:
    """What one call gives, or Failed; patience_s: between two things that it says."""
    return next(
        result for _, result in results([child], function, [tuple(arguments)], patience_s, None)
    )


def results(
    children: Sequence[Child],
    function: Callable[..., Any],
    jobs: Sequence[Sequence[Any]],
    patience_s: float,
    until: float | None,
) -> Iterator[tuple[int, Any]]:
    """(number of the job, what function(*job, tell) gives or Failed), as they come.

    patience_s: between two things that a call says, before it counts as hanging.  until: a time of
    `time.monotonic` from which on no job is begun, and those under way are given up.
    """
    left = list(range(len(jobs)))[::-1]
    idle = list(children)
    busy: dict[Child, _Under] = {}
    try:
        while left or busy:
            now = time.monotonic()
            if until is not None and now >= until:
                return
            while left and idle:
                child, n = idle.pop(), left.pop()
                busy[child] = _Under(n, now + patience_s)
                try:
                    child.send(function, jobs[n])
                except (OSError, ValueError) as error:  # it died at once
                    busy[child].failed = Failed(f"its process does not start: {error}")
            for child, under in _heard(busy, until):
                result = _next(child, under, patience_s)
                if result is _NOTHING:
                    continue
                del busy[child]
                idle.append(child)
                yield under.job, result
    finally:
        for child in busy:
            child.end()


@dataclass
class _Under:
    """A job under way: its number, when patience with it ends, what it said last."""

    job: int
    ends: float
    told: object = None
    failed: Failed | None = None


_NOTHING = object()


def _heard(busy: dict[Child, _Under], until: float | None) -> list[tuple[Child, _Under]]:
    """Those that have said something, or whose time is over."""
    ends = min([u.ends for u in busy.values()] + ([] if until is None else [until]))
    connections = {c.connection: c for c in busy if c.connection is not None}
    timeout = max(0.0, ends - time.monotonic())
    if any(u.failed for u in busy.values()):
        timeout = 0.0
    ready = wait(list(connections), timeout)
    now = time.monotonic()
    return [
        (child, under)
        for child, under in list(busy.items())
        if child.connection in ready or under.failed or now >= under.ends
    ]


def _next(child: Child, under: _Under, patience_s: float) -> Any:
    """The result of its call, Failed, or _NOTHING where it goes on."""
    if under.failed is not None:
        child.end()
        return under.failed
    assert child.connection is not None
    try:
        if not child.connection.poll(0):
            child.end()
            return Failed(f"it hangs: nothing for {patience_s:g} s", under.told, hung=True)
        kind, value = child.connection.recv()
    except (EOFError, OSError):
        child.end()
        return Failed("its process died", under.told)
    if kind == _TOLD:
        under.told, under.ends = value, time.monotonic() + patience_s
        return _NOTHING
    return value if kind == _DONE else Failed(value, under.told)


def serve(handle: int) -> None:
    """In the child: make calls until the other end is closed."""
    connection = Connection(handle)

    def tell(what: object) -> None:
        connection.send((_TOLD, what))

    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        except Exception as error:  # what was sent is not found here
            connection.send((_RAISED, f"{type(error).__name__}: {error}"))
            continue
        try:
            answer = (_DONE, function(*arguments, tell))
        except Exception as error:
            answer = (_RAISED, f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return

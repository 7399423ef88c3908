"""What tests of the command line share: running it, a console that is read back, settings, an own
cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from uopc import config
from uopc.cli import main


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """UOPC_* variables as a new process would read them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        config.current.cache_clear()
        yield
    config.current.cache_clear()


@contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """A cache that no other test, and no user, has anything in."""
    with environment(UOPC_CACHE_DIR=str(folder)):
        yield


def plain() -> tuple[Console, StringIO]:
    """A console as where the output is no terminal, and what it printed."""
    text = StringIO()
    return Console(file=text, width=100, markup=False, highlight=False), text


class Run:
    """One command of `uopc` with these arguments: what it printed, where it should.

    code: the exit code that it must have; what fails prints on standard error alone.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], command: str) -> None:
        self.capsys, self.command = capsys, command

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main([self.command, *arguments]) == code
        out, err = self.capsys.readouterr()
        assert (err if code == 0 else out) == ""
        return err if code else out

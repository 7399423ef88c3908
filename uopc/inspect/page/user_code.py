"""The lines of the user's files that a kernel comes from, each with a few around it."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from uopc.inspect.page.code import python_lines

AROUND = 2  # lines before and after one that is named
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class UserLine:
    """number: in its file, from 1; named: the kernel has something of it; origin: "file:line"."""

    number: int
    text: Markup
    named: bool
    origin: str


@dataclass(frozen=True)
class UserFile:
    """Parts of a file in order; where it cannot be read there are none, and missing says why.

    origins: all that are named of it.
    """

    name: str
    parts: tuple[tuple[UserLine, ...], ...]
    origins: tuple[str, ...]
    missing: str = ""


def user_files(origins: Iterable[str], folders: Sequence[Path] = (Path(),)) -> tuple[UserFile, ...]:
    """origins: "file:line", in any order and repeated; folders: where files are looked for."""
    named: dict[str, set[int]] = {}
    for origin in origins:
        name, _, line = origin.rpartition(":")
        if name and line.isdecimal():
            named.setdefault(name, set()).add(int(line))
    return tuple(_file(name, sorted(lines), folders) for name, lines in sorted(named.items()))


def _file(name: str, numbers: list[int], folders: Sequence[Path]) -> UserFile:
    origins = tuple(f"{name}:{n}" for n in numbers)
    try:
        places = [folder / name for folder in folders]
        path = next((p for p in places if p.exists()), Path(name))
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            return UserFile(name, (), origins, "is no file")
        if about.st_size > MOST_BYTES:
            return UserFile(name, (), origins, f"has more than {MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):  # not there, not ours to read, not UTF-8, no name of a file
        return UserFile(name, (), origins, "cannot be read here")
    lines = python_lines(text)
    if numbers[-1] > len(lines):
        return UserFile(name, (), origins, "has changed: it is shorter now")
    parts: list[list[UserLine]] = []
    shown = 0
    for n in _around(numbers, len(lines)):
        if not parts or n != shown + 1:
            parts.append([])
        parts[-1].append(UserLine(n, lines[n - 1], n in numbers, f"{name}:{n}"))
        shown = n
    return UserFile(name, tuple(map(tuple, parts)), origins)


def _around(numbers: list[int], last: int) -> list[int]:
    """The lines named, and those near them."""
    near = {m for n in numbers for m in range(n - AROUND, n + AROUND + 1)}
    return sorted(n for n in near if 1 <= n <= last)

"""What the commands print with: colour and the terminal's width there, plain text elsewhere.

A kernel looks the same in `uopc show` and in the demo: source, launch, resources, Opts.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from uopc.errors import ToolchainError, UsageError
from uopc.pipeline import Step
from uopc.runtime.nvrtc import known_archs
from uopc.target import occupancy

PLAIN_WIDTH = 100  # columns where the output is no terminal
_LEXERS = {"emulated": "c", "sass": "text"}


def console(stderr: bool = False) -> Console:
    """Standard output, or standard error, as it is now."""
    how: dict[str, Any] = dict(stderr=stderr, highlight=False, markup=False, emoji=False)
    out = Console(**how)
    return out if out.is_terminal else Console(**how, width=PLAIN_WIDTH)


def heading(out: Console, text: str) -> None:
    """A line that opens a part."""
    out.print(Text(text, style="bold"))


def paragraph(out: Console, text: str) -> None:
    """Prose, broken at the width."""
    out.print(Text(textwrap.fill(text, out.width)), soft_wrap=True)


def facts(out: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Names and what there is to say about each, under each other."""
    width = max((len(name) for name, _ in rows), default=0)
    indent = " " * (width + 2)
    for name, text in rows:
        lines = textwrap.wrap(
            text, max(20, out.width - len(indent)), break_on_hyphens=False, break_long_words=False
        )
        said = f"\n{indent}".join(lines)
        line = Text.assemble((name.ljust(width), "bold"), "  ", said)
        out.print(line, soft_wrap=True)


def table(
    out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str]
) -> None:
    """A table; columns named in `right` hold numbers."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        number = name in right  # whose digits are never left out
        made.add_column(
            name, justify="right" if number else "left", overflow="fold" if number else "ellipsis"
        )
    for row in rows:
        made.add_row(*map(Text, row))
    out.print(made)


def code(out: Console, text: str, language: str) -> None:
    """A program's text: highlighted on a terminal, as it is elsewhere."""
    text = text.rstrip("\n")
    if out.is_terminal:
        lexer = _LEXERS.get(language, language)
        out.print(
            Syntax(text, lexer, theme="ansi_dark", background_color="default", word_wrap=True)
        )
    else:
        out.out(text, highlight=False)


def step_facts(step: Step) -> list[tuple[str, str]]:
    """What there is to know of one launch beside its text.

    Raises ToolchainError or TargetError where NVRTC is installed and refuses the kernel.
    """
    if not step.source.target.is_gpu:
        return []
    grid, block = step.launch_dims
    threads = step.program.launch.threads
    return [
        ("launch", f"grid {grid}, block {block}: {threads} threads a block"),
        ("resources", f"{_resources(step)}"),
    ]


def _resources(step: Step) -> str:
    """What ptxas says, and how many blocks an SM holds; where NVRTC is missing, that."""
    try:
        known_archs()
    except ToolchainError as error:
        return f"unknown: {error}"
    used = step.cubin.resources
    text = str(used) if used.spills else f"{used}, no spills"
    shared = max(used.shared_bytes, step.cuda_source.shared_bytes)
    on, threads = step.source.target, step.program.launch.threads
    try:
        held = occupancy(on, threads, used.registers, shared)
    except UsageError as error:
        return f"{text}. Cannot be launched: {error}"
    blocks = f"{held.blocks_per_sm} block{'s' * (held.blocks_per_sm != 1)}"
    return f"{text}; an SM of {on} holds {blocks}, {held.fraction:.0%} of its threads"


def duration(time_s: float) -> str:
    """A time for people: a unit, and up to three digits."""
    unit, value = next(
        (unit, time_s / scale) for unit, scale in _UNITS if time_s >= scale or unit == "us"
    )
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def mib(size_bytes: int) -> str:
    """A number of bytes, in MiB."""
    return f"{size_bytes / (1 << 20):.1f} MiB"

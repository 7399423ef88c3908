"""Plain text where nobody looks at it on a terminal, colour where somebody does."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from tests.commands import plain
from uopc.printing import code, console, duration, facts, mib, paragraph, table

LONG = "static " * 30 + "int x;  // [bold]no markup[/bold]"


def test_source_is_printed_as_it_is() -> None:
    out, text = plain()
    code(out, LONG + "\n", "cuda")
    assert text.getvalue() == LONG + "\n"


def test_a_terminal_gets_colour_and_the_same_words() -> None:
    text = StringIO()
    terminal = Console(file=text, force_terminal=True, width=300, color_system="truecolor")
    code(terminal, LONG, "cuda")
    assert "\x1b[" in text.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", text.getvalue()).rstrip() == LONG


def test_output_that_is_no_terminal_has_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    table(out, ("a", "b"), [("[x]", "1")], right=frozenset("b"))
    facts(out, [("name", "word " * 40)])
    said = capsys.readouterr().out
    assert "\x1b" not in said and "[x]" in said
    assert max(map(len, said.splitlines())) <= 100


def test_facts_stand_under_each_other_and_paths_stay_whole() -> None:
    out, text = plain()
    path = "/" + "x" * 120
    facts(out, [("a", "1"), ("long name", f"see {path} for it")])
    lines = text.getvalue().splitlines()
    assert lines[0] == "a          1" and lines[1] == "long name  see"
    assert lines[2] == " " * 11 + path


def test_paragraphs_have_no_trailing_blanks() -> None:
    out, text = plain()
    paragraph(out, "word " * 60)
    assert all(line == line.rstrip() for line in text.getvalue().splitlines())


@pytest.mark.parametrize(
    ("time_s", "said"),
    [(0.0, "0.00 us"), (2e-6, "2.00 us"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (61.2, "61.2 s")],
)
def test_durations(time_s: float, said: str) -> None:
    assert duration(time_s) == said


def test_sizes() -> None:
    assert mib(3 << 19) == "1.5 MiB"

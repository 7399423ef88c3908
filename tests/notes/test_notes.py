"""Notes have their form, and whoever cites one cites one that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTES = sorted((ROOT / "notes").glob("[0-9]*.md"))
SECTIONS = ["Question", "Tried", "Result", "Decision"]
HEAD = re.compile(
    r"# (?P<number>\d{4}) (?P<title>\S.*)\n\n"
    r"- date: (?P<date>\d{4}-\d\d-\d\d)\n"
    r"- status: (?P<status>open|decided|rejected|superseded by (?P<by>\d{4}))\n\n"
)
CITATION = re.compile(r"\bnotes?[ /](\d{4})\b")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")


def problems(name: str, text: str, known: set[str]) -> Iterator[str]:
    """What is wrong with the form of a note; known: the numbers of all notes."""
    head = HEAD.match(text)
    if head is None:
        yield "the head is not '# NNNN Title', '- date: YYYY-MM-DD', '- status: ...'"
        return
    if not re.fullmatch(rf"{head['number']}-[a-z0-9-]+\.md", name):
        yield f"number {head['number']} is not that of the file"
    try:
        date.fromisoformat(head["date"])
    except ValueError as error:
        yield str(error)
    if head["by"] and not (head["by"] in known and head["by"] > head["number"]):
        yield f"superseded by {head['by']}, which is no later note"
    sections = re.findall(r"^## (.*)$", text, re.M)
    if sections not in (SECTIONS, [*SECTIONS, "Follow-up"]):
        yield f"sections are {sections}"
    for section, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.M):
        if not body.strip():
            yield f"section {section} is empty"


def known() -> set[str]:
    return {path.name[:4] for path in NOTES}


def test_numbers_are_consecutive() -> None:
    assert [path.name[:4] for path in NOTES] == [f"{n:04}" for n in range(1, len(NOTES) + 1)]


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_form(path: Path) -> None:
    assert list(problems(path.name, path.read_text(), known())) == []


PROSE = [ROOT / "README.md", *sorted(ROOT.glob("notes/*.md")), *sorted(ROOT.glob("book/*.md"))]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    targets = LINK.findall(re.sub(r"`[^`\n]*`", "", text))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_cited_notes_exist() -> None:
    code = [p for top in ("uopc", "scratch", "tools") for p in (ROOT / top).rglob("*.py")]
    code += [*(ROOT / "uopc").rglob("*.c"), *PROSE]
    cited = {(p, n) for p in code for n in CITATION.findall(p.read_text())}
    assert [(str(p.relative_to(ROOT)), n) for p, n in sorted(cited) if n not in known()] == []


GOOD = """\
# 0002 A title

- date: 2026-11-30
- status: decided

## Question
a
## Tried
b
## Result
c
## Decision
d
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", ""),
        ("# 0002 A title", "# A title", "the head"),
        ("# 0002", "# 0003", "not that of the file"),
        ("2026-11-30", "2026-11-31", "day"),
        ("decided", "done", "the head"),
        ("decided", "superseded by 0001", "no later note"),
        ("## Result\nc\n", "", "sections are"),
        ("\nc\n", "\n", "section Result is empty"),
    ],
)
def test_a_wrong_form_is_found(old: str, new: str, problem: str) -> None:
    found = list(problems("0002-a.md", GOOD.replace(old, new, 1), {"0001", "0002"}))
    assert bool(found) == bool(problem)
    assert all(problem in text for text in found)

"""The runner on tiny chapters: what is true passes, what is stale fails and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from book.run import apply, examine, parse, source_of

MODULE = '''\
"""A module."""

#: how many
COUNT: int = 3


def double(x: int) -> int:
    return 2 * x


class Pair:
    """Two."""

    @property
    def first(self) -> int:
        return 1
'''
HEADER = """\
machine: one H200, driver 580.159
date: 2026-11-30
commit: 0123abcd
command: python scratch/x.py
note: 0001

4000 GB/s"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a module, a script and a note."""
    for folder in ("book", "scratch", "notes"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pack.py").write_text(MODULE)
    (tmp_path / "scratch" / "x.py").write_text("print(6 * 7)\n")
    (tmp_path / "notes" / "0001-first.md").write_text("# 0001 First\n")
    return tmp_path


def block(info: str, text: str) -> str:
    return f"```{info}\n{text}\n```\n"


def chapter(root: Path, *blocks: str) -> Path:
    path = root / "book" / "01-x.md"
    path.write_text("# One\n\n" + "\nWords.\n\n".join(blocks))
    return path


def wrong(root: Path, *blocks: str) -> list[str]:
    return [f"{s.line}: {s.message}" for s in examine(chapter(root, *blocks), root)]


def mend(root: Path, *blocks: str) -> str:
    path = chapter(root, *blocks)
    apply([s.edit for s in examine(path, root) if s.edit is not None])
    assert examine(path, root) == []
    return path.read_text()


def test_blocks_share_one_namespace(root: Path) -> None:
    again = block("python", "from dataclasses import dataclass\n@dataclass\nclass A:\n    y: int\n")
    shown = block("python", "print(A(x))") + block("output", "A(y=1)")
    assert wrong(root, block("python", "x = 1"), again, shown) == []


def test_stale_output_fails_with_a_diff_and_is_mended(root: Path) -> None:
    stale = block("python", "print(1)\nprint(3)") + block("output", "1\n2")
    (message,) = wrong(root, stale)
    assert message.startswith("7: the block at line 3 prints something else")
    assert "-2\n+3" in message
    assert mend(root, stale).endswith(block("output", "1\n3"))


def test_output_that_is_not_shown_fails_and_is_added(root: Path) -> None:
    (message,) = wrong(root, block("python", "print('```')"))
    assert "no output block" in message
    assert "\n````output\n```\n````\n" in mend(root, block("python", "print('```')"))


def test_output_below_prose_alone_fails(root: Path) -> None:
    assert wrong(root, block("output", "1")) == ["3: output stands below no python or script block"]


def test_an_error_names_the_line_and_hides_no_other_block(root: Path) -> None:
    first, second = wrong(root, block("python", "x = 1\nx / 0"), block("source pack.py::No", ""))
    assert first.startswith("5: ") and "ZeroDivisionError" in first
    assert second == "10: pack.py::No: 'No' is defined 0 times there"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("COUNT", "#: how many\nCOUNT: int = 3"),
        ("double", "def double(x: int) -> int:\n    return 2 * x"),
        ("Pair.first", "@property\ndef first(self) -> int:\n    return 1"),
    ],
)
def test_source_is_the_object_today(root: Path, name: str, text: str) -> None:
    assert source_of(f"pack.py::{name}", root) == text
    assert wrong(root, block(f"source pack.py::{name}", text)) == []
    assert len(wrong(root, block(f"source pack.py::{name}", text + " + 1"))) == 1
    assert block(f"source pack.py::{name}", text) in mend(
        root, block(f"source pack.py::{name}", "")
    )


def test_source_of_c_is_the_function_not_its_prototype(root: Path) -> None:
    (root / "x.c").write_text("int f(int);\n\nint f(int x)\n{\n  return x;\n}\nint g(void) { }\n")
    assert source_of("x.c::f", root) == "int f(int x)\n{\n  return x;\n}"


def test_script_runs_and_keeps_its_output(root: Path) -> None:
    show = block("script scratch/x.py", "print(6 * 7)") + block("output", "42")
    assert wrong(root, show) == ["3: book/outputs/x.txt is not what scratch/x.py prints"]
    mend(root, show)
    assert (root / "book" / "outputs" / "x.txt").read_text() == "42\n"
    assert len(wrong(root, show.replace("42", "41"))) == 1
    (root / "scratch" / "x.py").write_text("raise SystemExit('no luck')\n")
    assert any("exited with 1:\nno luck" in message for message in wrong(root, show))


def test_script_needs_its_output(root: Path) -> None:
    (message,) = wrong(root, block("script scratch/x.py", "print(6 * 7)"))
    assert "below a script block stands its output" in message


def test_measured_is_not_run_but_needs_its_header(root: Path) -> None:
    show = block("script scratch/x.py", "print(6 * 7)") + block("measured", HEADER)
    assert wrong(root, show) == []
    for line in HEADER.split("\n")[:5]:
        (message,) = wrong(root, block("measured", HEADER.replace(line + "\n", "")))
        assert f"measured needs a line `{line.split(':')[0]}: ...`" in message
    assert wrong(root, block("measured", HEADER.replace("0001", "0002"))) == [
        "3: there is no note 0002"
    ]


@pytest.mark.parametrize("text", ["  ```python\n  x\n  ```", "~~~python\nx\n~~~", "```python\nx"])
def test_fences_that_would_be_passed_over_fail(text: str) -> None:
    assert parse(text)[1] != []


def test_unknown_kinds_fail_and_plain_ones_do_not_run(root: Path) -> None:
    assert wrong(root, block("text", "1 / 0"), block("sh", "exit 1")) == []
    (message,) = wrong(root, block("pyhton", "1 / 0"))
    assert message.startswith("3: no block is called 'pyhton'")

"""Run the book: execute the blocks of a chapter, and compare what it shows with what is true today.

    python book/run.py [--check | --update] [chapter.md ...]

A chapter is plain Markdown.  These fenced blocks mean something (`FENCED`, at the line's start):

    python                       runs; the python blocks of a chapter share one namespace
    output                       equals what the python or script block above printed
    source uopc/opts.py::Opts    equals that object's text; ::Opts.axis a method; no :: the file
    script scratch/x.py          equals that file; an output block below it equals what it prints,
                                 which book/outputs/x.txt keeps too; where a measured block stands
                                 below, it is not run
    measured                     lines `machine:`, `date:`, `commit:`, `command:` and `note:`, an
                                 empty line, figures; not compared, never rewritten
    text, sh                     neither run nor compared

--update rewrites stale output, source and script blocks and book/outputs, and adds missing output
blocks; what it cannot mend it reports as --check does.  Each chapter runs in its own process.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import os
import re
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("python", "output", "source", "script", "measured", "text", "sh")
MEASURED_HEADER = {
    "machine": r"\S.*",
    "date": r"\d{4}-\d\d-\d\d",
    "commit": r"[0-9a-f]{7,40}",
    "command": r"\S.*",
    "note": r"\d{4}",
}
SCRIPT_LIMIT_S = 300


@dataclass(frozen=True)
class Block:
    """A fenced block.  line, end: of its fences, from 1; text: the lines between them."""

    kind: str
    arg: str
    text: str
    line: int
    end: int


@dataclass(frozen=True)
class Edit:
    """Lines first to last (from 1, both included) become `lines`.

    last = first - 1 inserts before first; first 0 writes the whole file.
    """

    path: Path
    first: int
    last: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Stale:
    """What a chapter shows and is not so; edit mends it, None: only its author can."""

    line: int
    message: str
    edit: Edit | None = None


class NotFoundError(Exception):
    """A file or an object in it that a block names and that is not there."""


# ---- reading a chapter


def parse(text: str) -> tuple[list[Block], list[Stale]]:
    """The blocks of a chapter, and the fences that the runner cannot read."""
    blocks: list[Block] = []
    wrong: list[Stale] = []
    fence, info, start = "", "", 0
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if fence:
            if re.fullmatch(rf"`{{{len(fence)},}}\s*", line):
                kind, _, arg = info.partition(" ")
                body = "\n".join(lines[start : number - 1])
                blocks.append(Block(kind, arg.strip(), body, start, number))
                if kind not in KINDS:
                    wrong.append(
                        Stale(start, f"no block is called {kind!r}; there are {', '.join(KINDS)}")
                    )
                fence = ""
        elif match := re.match(r"(\s*)(`{3,}|~{3,})(.*)", line):
            fence, info, start = match[2], match[3].strip(), number
            if match[1] or fence[0] == "~":
                wrong.append(Stale(number, "a fence is made of backticks and not indented"))
                fence = ""
    if fence:
        wrong.append(Stale(start, "this block is never closed"))
    return blocks, wrong


def source_of(where: str, root: Path = ROOT) -> str:
    """The text of `file`, `file::object` or `file::Class.method` today.  Raises NotFoundError."""
    file, _, name = where.partition("::")
    path = root / file
    if not path.is_file():
        raise NotFoundError(f"there is no file {file}")
    text = path.read_text()
    if not name:
        return text.rstrip("\n")
    lines = text.split("\n")
    if path.suffix in (".c", ".h"):
        return _c_function(lines, where, name)
    first, last = _python_object(ast.parse(text), where, name)
    while first > 1 and lines[first - 2].lstrip().startswith("#:"):
        first -= 1
    return textwrap.dedent("\n".join(lines[first - 1 : last]))


def _python_object(tree: ast.Module, where: str, name: str) -> tuple[int, int]:
    """First and last line, decorators included."""
    body: Sequence[ast.stmt] = tree.body
    for part in name.split("."):
        found = [node for node in body if part in _names(node)]
        if len(found) != 1:
            raise NotFoundError(f"{where}: {part!r} is defined {len(found)} times there")
        body = getattr(found[0], "body", ())
    node = found[0]
    lines = [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]
    return min(lines), node.end_lineno or node.lineno


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _c_function(lines: list[str], where: str, name: str) -> str:
    """From the line that opens the function to the first `}` at a line's start."""
    opens = re.compile(rf"\w[^;]*\b{re.escape(name)}\(")
    for first, line in enumerate(lines):
        if opens.match(line) and not line.rstrip().endswith(";"):
            last = next((n for n in range(first, len(lines)) if lines[n].startswith("}")), first)
            return "\n".join(lines[first : last + 1])
    raise NotFoundError(f"{where}: no function {name!r} is defined there")


# ---- running it


def examine(path: Path, root: Path = ROOT) -> list[Stale]:
    """Run the chapter at `path`; everything in it that is not so, by line."""
    blocks, stale = parse(path.read_text())
    live = [block for block in blocks if block.kind in KINDS and block.kind not in ("text", "sh")]
    name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    chapter = ModuleType("chapter")
    sys.modules["chapter"] = chapter  # dataclasses and pickle look it up
    broken = False
    for i, block in enumerate(live):
        below = live[i + 1] if i + 1 < len(live) else None
        shown = below if below is not None and below.kind == "output" else None
        if block.kind == "python" and not broken:
            printed = _run_python(block, name, chapter)
            if isinstance(printed, Stale):
                stale.append(printed)
                broken = True  # what follows needs names that are missing now
            else:
                stale += _compare_output(path, block, shown, printed)
        elif block.kind == "script":
            stale += _examine_script(path, block, below, root)
        elif block.kind == "source":
            stale += _compare_source(path, block, root)
        elif block.kind == "measured":
            stale += _examine_measured(block, root)
        elif block.kind == "output" and (i == 0 or live[i - 1].kind not in ("python", "script")):
            stale.append(Stale(block.line, "output stands below no python or script block"))
    return sorted(stale, key=lambda s: s.line)


def _run_python(block: Block, name: str, chapter: ModuleType) -> str | Stale:
    out = io.StringIO()
    try:
        code = compile("\n" * block.line + block.text, name, "exec", dont_inherit=True)
        with redirect_stdout(out):
            exec(code, chapter.__dict__)
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == name and frame.lineno]
        return Stale(lines[-1] if lines else block.line, traceback.format_exc().rstrip())
    return out.getvalue()


def _examine_script(path: Path, block: Block, below: Block | None, root: Path) -> Iterator[Stale]:
    yield from _compare_source(path, block, root)
    if below is None or below.kind not in ("output", "measured"):
        yield Stale(block.line, "below a script block stands its output, or what was measured")
        return
    script = root / block.arg
    if below.kind == "measured" or not script.is_file():
        return
    command = [sys.executable, block.arg]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SCRIPT_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        yield Stale(block.line, f"{block.arg} ran for more than {SCRIPT_LIMIT_S} s")
        return
    if done.returncode:
        yield Stale(
            block.line, f"{block.arg} exited with {done.returncode}:\n{done.stderr.rstrip()}"
        )
        return
    yield from _compare_output(path, block, below, done.stdout)
    kept = root / "book" / "outputs" / f"{script.stem}.txt"
    truth = _tidy(done.stdout)
    if not kept.is_file() or _tidy(kept.read_text()) != truth:
        message = f"book/outputs/{kept.name} is not what {block.arg} prints"
        yield Stale(block.line, message, Edit(kept, 0, 0, (*truth, "")))


def _examine_measured(block: Block, root: Path) -> Iterator[Stale]:
    head = block.text.split("\n\n")[0]
    given = dict(re.findall(r"^(\w+): *(.*)$", head, re.M))
    for key, form in MEASURED_HEADER.items():
        if not re.fullmatch(form, given.get(key, "")):
            message = f"measured needs a line `{key}: ...` before its first empty line"
            yield Stale(block.line, f"{message}, like {form}; got {given.get(key)!r}")
    note = given.get("note", "")
    if re.fullmatch(r"\d{4}", note) and not list((root / "notes").glob(f"{note}-*.md")):
        yield Stale(block.line, f"there is no note {note}")


# ---- comparing


def _tidy(text: str) -> list[str]:
    """Lines without trailing blanks, which editors take away."""
    return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip() else []


def _differences(shown: list[str], truth: list[str]) -> str:
    return "\n".join(
        difflib.unified_diff(shown, truth, "in the chapter", "true today", lineterm="")
    )


def _compare_source(path: Path, block: Block, root: Path) -> Iterator[Stale]:
    try:
        truth = _tidy(source_of(block.arg, root))
    except (NotFoundError, SyntaxError) as error:
        yield Stale(block.line, str(error))
        return
    yield from _compare(path, block, truth, f"{block.arg} has another text")


def _compare_output(path: Path, ran: Block, shown: Block | None, printed: str) -> Iterator[Stale]:
    truth = _tidy(printed)
    if shown is not None:
        yield from _compare(
            path, shown, truth, f"the block at line {ran.line} prints something else"
        )
    elif truth:
        message = "this block prints, and no output block stands below it:\n" + "\n".join(truth)
        fence = _fence(truth)
        lines = ("", f"{fence}output", *truth, fence)
        yield Stale(ran.line, message, Edit(path, ran.end + 1, ran.end, lines))


def _compare(path: Path, block: Block, truth: list[str], message: str) -> Iterator[Stale]:
    shown = _tidy(block.text)
    if shown != truth:
        fence = _fence(truth)
        lines = (f"{fence}{block.kind} {block.arg}".rstrip(), *truth, fence)
        edit = Edit(path, block.line, block.end, lines)
        yield Stale(block.line, f"{message}:\n{_differences(shown, truth)}", edit)


def _fence(lines: list[str]) -> str:
    """Backticks that no line begins with."""
    fence = "```"
    while any(line.startswith(fence) for line in lines):
        fence += "`"
    return fence


def apply(edits: Sequence[Edit]) -> None:
    """Write the edits, from the last line of a file to its first, so that numbers stay right."""
    for edit in sorted(edits, key=lambda e: e.first, reverse=True):
        if edit.first == 0:
            edit.path.parent.mkdir(parents=True, exist_ok=True)
            edit.path.write_text("\n".join(edit.lines))
        else:
            lines = edit.path.read_text().split("\n")
            lines[edit.first - 1 : edit.last] = edit.lines
            edit.path.write_text("\n".join(lines))


# ---- the command


def chapters(root: Path = ROOT) -> list[Path]:
    """README.md and the chapters: 00- to 99-, then the appendices A- to Z-."""
    book = sorted((root / "book").glob("[0-9][0-9]-*.md")) + sorted(
        (root / "book").glob("[A-Z]-*.md")
    )
    return [root / "README.md", *book]


def report(path: Path, update: bool, root: Path = ROOT) -> int:
    """Check or update one chapter in this process, print what is wrong, and count it."""
    stale = examine(path, root)
    left = [s for s in stale if s.edit is None] if update else stale
    if update:
        apply([s.edit for s in stale if s.edit is not None])
    name = path.relative_to(root) if path.is_relative_to(root) else path
    for s in left:
        print(f"{name}:{s.line}: {s.message}\n")
    mended = f", {len(stale) - len(left)} rewritten" if update else ""
    print(f"{name}: {len(left)} wrong{mended}")
    return len(left)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where every chapter shows what is true."""
    parser = argparse.ArgumentParser(description="Check or update the book's chapters.")
    parser.add_argument("chapters", nargs="*", type=Path, help="all of them where none is named")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="report what is stale (the default)")
    mode.add_argument("--update", action="store_true", help="rewrite what is stale")
    given = parser.parse_args(arguments)
    paths = [path.resolve() for path in given.chapters] or chapters()
    if len(paths) == 1:
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        return int(report(paths[0], given.update) > 0)
    flag = "--update" if given.update else "--check"
    runs = [subprocess.run([sys.executable, __file__, flag, str(path)]) for path in paths]
    return int(any(run.returncode for run in runs))


if __name__ == "__main__":
    sys.exit(main())

"""Rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from uopc.config import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "uopc").rglob("*.py"))
GENERATED = {"build", "dist", "site", "__pycache__"}
TEXT = {".py", ".c", ".h", ".md", ".toml", ".yml", ".txt", ".svg", ".json", ""}
LOCAL_PATH = re.compile(r"(?<![\w.~$}/-])/(?:work|root|tmp|home/\w+|Users/\w+)\b(?!\()")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_files() -> list[Path]:
    """The project's own text files: no generated folders, no hidden ones but .ci."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        hidden = [name for name in folders if name.startswith(".") and name != ".ci"]
        folders[:] = sorted(set(folders) - GENERATED - set(hidden))
        found += [Path(folder, name) for name in sorted(names) if Path(name).suffix in TEXT]
    return found


def environment_reads(tree: ast.Module) -> list[int]:
    """Lines that name os.environ, os.getenv or their kin, however they were imported."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and names & {alias.name for alias in node.names})
    ]


def package_names(tree: ast.Module) -> list[str]:
    """Names taken from the package's root, which brings in every layer, except its modules."""
    modules = {path.stem for path in (ROOT / "uopc").iterdir()}
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "uopc":
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "uopc":
            names.append(node.attr)
    return [name for name in names if name not in modules and not name.startswith("__")]


def test_readme_has_the_one_table_of_variables() -> None:
    rows = re.findall(
        r"^\| `(UOPC_\w+)` \| `?([^`|]*?)`? ?\| (.*) \|$", (ROOT / "README.md").read_text(), re.M
    )
    assert {name: (default, meaning) for name, default, meaning in rows} == VARIABLES
    row = re.compile(r"^\| `UOPC_\w+` \|", re.M)
    tables = [p for p in text_files() if p.suffix == ".md" and row.search(p.read_text())]
    assert tables == [ROOT / "README.md"]


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_only_config_reads_the_environment(path: Path) -> None:
    lines = environment_reads(ast.parse(path.read_text()))
    assert (lines != []) == (path == ROOT / "uopc" / "config.py"), lines


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_modules_import_from_where_things_are(path: Path) -> None:
    assert package_names(ast.parse(path.read_text())) == []


def test_the_rules_find_what_they_forbid() -> None:
    assert environment_reads(ast.parse("import os\nos.environ['A']")) == [2]
    assert environment_reads(ast.parse("from os import getenv")) == [1]
    assert package_names(ast.parse("from uopc import config, compile")) == ["compile"]
    assert package_names(ast.parse("import uopc\nuopc.check(uopc.__file__)")) == ["check"]


def test_ci_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_no_local_paths_and_nothing_unfinished() -> None:
    for path in text_files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            assert not LOCAL_PATH.search(line), where
            assert not UNFINISHED.search(line), where


@pytest.mark.parametrize("parts", [("see ", "work", "x.md"), ("", "root"), ("cd ", "home", "me")])
def test_local_paths_are_found(parts: tuple[str, ...]) -> None:
    assert LOCAL_PATH.search("/".join(parts))
    assert not LOCAL_PATH.search("a book/root and ./work/x, tests/tmp")

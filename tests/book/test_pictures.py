"""The pictures of the book show what the scripts in scratch/ draw today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from book.run import ROOT

SCRIPTS = sorted((ROOT / "scratch").glob("*_picture.py"))
PICTURES = ROOT / "book" / "pictures"


def drawn(script: Path) -> tuple[Path, str]:
    """Where a script writes its picture, and the picture."""
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TARGET, module.draw()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_picture_is_what_its_script_draws(script: Path) -> None:
    target, picture = drawn(script)
    assert target.read_text() == picture, f"python {script.relative_to(ROOT)} draws it again"


def test_each_picture_has_a_script_and_a_place_in_a_chapter() -> None:
    shown = "".join(path.read_text() for path in (ROOT / "book").glob("*.md"))
    pictures = sorted(PICTURES.iterdir())
    assert pictures == sorted(drawn(script)[0] for script in SCRIPTS)
    assert [p.name for p in pictures if f"](pictures/{p.name})" not in shown] == []


@pytest.mark.parametrize("picture", sorted(PICTURES.iterdir()), ids=lambda path: path.stem)
def test_pictures_are_svg_with_a_title(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None

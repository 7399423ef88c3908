"""The pictures of the book show what the scripts in scratch/ draw today; those of a page in a
browser are there, and of a size that a reader can load and read."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from book.run import ROOT
from tests.scripts import loaded

SCRIPTS = sorted((ROOT / "scratch").glob("*_picture.py"))
PICTURES = ROOT / "book" / "pictures"
MOST_BYTES = 300_000  # of a picture of a page


def drawn(script: Path) -> tuple[Path, str]:
    """Where a script writes its picture, and the picture."""
    module = loaded(script)
    return module.TARGET, module.draw()


#: pictures of pages, which are not drawn again here: no two browsers draw the same
TAKEN = {picture.name: picture for picture in loaded(ROOT / "scratch" / "18_screenshots.py").BOOK}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_picture_is_what_its_script_draws(script: Path) -> None:
    target, picture = drawn(script)
    assert target.read_text() == picture, f"python {script.relative_to(ROOT)} draws it again"


def test_each_picture_has_a_script_and_a_place_in_a_chapter() -> None:
    shown = "".join(path.read_text() for path in (ROOT / "book").glob("*.md"))
    pictures = sorted(PICTURES.iterdir())
    made = [drawn(script)[0] for script in SCRIPTS] + [PICTURES / name for name in TAKEN]
    assert pictures == sorted(made)
    assert [p.name for p in pictures if f"](pictures/{p.name})" not in shown] == []


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_are_svg_with_a_title(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None


@pytest.mark.parametrize("name", TAKEN)
def test_pictures_of_pages_are_png_that_can_be_read_and_are_described(name: str) -> None:
    data, look = (PICTURES / name).read_bytes(), TAKEN[name].look
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82")
    size = struct.unpack(">II", data[16:24])
    assert size == (round(look.width * look.scale), round(look.height * look.scale))
    assert 500 <= size[0] <= 1500 and 20_000 < len(data) < MOST_BYTES
    chapter = (ROOT / "book" / "18-seeing-a-kernel.md").read_text()
    described = re.search(rf"!\[([^]]+)\]\(pictures/{re.escape(name)}\)", chapter)
    assert described is not None and len(described[1].split()) >= 8

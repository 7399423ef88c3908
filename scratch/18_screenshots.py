"""Pictures of a kernel's page, as a reader sees it: light on a desktop, dark on a phone.

    python scratch/18_screenshots.py                           the pictures of the book's chapter 18
    python scratch/18_screenshots.py FOLDER FILE:NAME          all parts of one kernel's page
                                     [--target sm_90a] [--opts JSON]

The second writes FOLDER/NAME_PART_THEME.png.  Needs chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from selenium import webdriver

from tests.inspect.browser import browser, prefer, resize, why_no_browser

MISSING = 3  # the exit code of a script that lacks something
ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "book" / "pictures"
KERNELS = "scratch/18_kernels.py"


@dataclass(frozen=True)
class Look:
    """How a page is looked at: its theme, and the window in CSS pixels."""

    theme: str
    width: int
    height: int
    scale: float


@dataclass(frozen=True)
class Picture:
    """A picture of the book: a kernel, the part of its page, how it is looked at.

    part: of PARTS; stir: what is done on the page before.
    """

    name: str
    kernel: str
    part: str
    look: Look
    opts: str = ""
    stir: str = ""


#: what a picture shows, and the part of the page that is at its top
PARTS = {
    "top": "header",
    "passes": "[id$=-passes]",
    "source": "[id$=-source]",
    "memory": "[id$=-memory]",
    "occupancy": "[id$=-occupancy]",
    "roofline": "[id$=-roofline]",
}
LOOKS = (Look("light", 1280, 1000, 1.0), Look("dark", 390, 844, 1.5))
#: the pass and the line that change most, so that there is something to see
STIR = """
const most = (all, n) => all.reduce((a, b) => (n(b) > n(a) ? b : a), all[0]);
const links = [...document.querySelectorAll("[data-picker=pass] a")];
const marked = (a) => document.querySelectorAll(a.hash + " mark, " + a.hash + " del").length;
most(links, marked)?.click();
const line = document.querySelector(".badges")?.parentElement;
if (line) { line.querySelector("button").click(); }
"""
#: nothing has the focus, and the page stands still
STILL = "document.activeElement?.blur(); scrollTo(0, 0);"
WRONG = '{"local": {"0": 16, "1": 16}, "lanes": [0, 1]}'
BOOK = (
    Picture("18_softmax.png", "softmax", "source", Look("light", 1100, 720, 1.3), stir=STIR),
    Picture("18_product.png", "product", "memory", Look("light", 1240, 800, 1.15), WRONG),
    Picture("18_phone.png", "softmax", "roofline", Look("dark", 390, 844, 1.5)),
)


def shoot(driver: webdriver.Chrome, file: Path, part: str, look: Look, stir: str) -> bytes:
    """A PNG of a part of a page."""
    resize(driver, look.width, look.height, look.scale)
    prefer(driver, look.theme)
    driver.get(file.as_uri())
    driver.execute_script(stir + STILL)
    driver.execute_script(
        "const e = document.querySelector(arguments[0]);"
        "scrollTo(0, e.getBoundingClientRect().top + scrollY - 24)",
        PARTS[part],
    )
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(taken["data"])


def write(target: Path, png: bytes) -> None:
    target.write_bytes(png)
    print(f"{target.name:36} {len(png) // 1024:4} KiB")


def view(what: str, folder: Path, target: str, opts: str) -> Path:
    """The page of a kernel."""
    made = folder / f"{what.rpartition(':')[2]}.html"
    command = [sys.executable, "-m", "uopc", "view", what, "-o", str(made), "--target", target]
    command += ["--opts", opts] if opts else []
    subprocess.run(command, check=True, cwd=ROOT)
    return made


def book(driver: webdriver.Chrome, folder: Path) -> None:
    """The pictures of the book."""
    for p in BOOK:
        file = view(f"{KERNELS}:{p.kernel}", folder, "sm_90a", p.opts)
        write(PICTURES / p.name, shoot(driver, file, p.part, p.look, p.stir))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("what", nargs="?", metavar="FILE:NAME")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--opts", default="")
    options = parser.parse_args(given)
    if options.folder is not None and options.what is None:
        parser.error("which kernel? Give FOLDER and FILE:NAME")
    if reason := why_no_browser():
        print(reason)
        return MISSING
    with tempfile.TemporaryDirectory() as made, browser() as driver:
        if options.folder is None:
            book(driver, Path(made))
            return 0
        options.folder.mkdir(parents=True, exist_ok=True)
        file = view(str(options.what), Path(made), options.target, options.opts)
        for look in LOOKS:
            for part in PARTS:
                png = shoot(driver, file, part, look, STIR)
                write(options.folder / f"{file.stem}_{part}_{look.theme}.png", png)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Pictures of a kernel's page, as a reader sees it: light on a desktop, dark on a phone.

    python scratch/18_screenshots.py FOLDER [FILE:NAME] [--target sm_90a]

writes FOLDER/NAME_PART_THEME.png for some parts of the page; without FILE:NAME the pages of the
kernels that tests/inspect/sample.py has.  Needs chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from selenium import webdriver

from tests.inspect import sample
from tests.inspect.browser import browser, prefer, resize, why_no_browser
from uopc.inspect.page import page

MISSING = 3  # the exit code of a script that lacks something


@dataclass(frozen=True)
class Look:
    """How a page is looked at: its theme, and the window in CSS pixels."""

    theme: str
    width: int
    height: int
    scale: float


LOOKS = (Look("light", 1280, 1000, 1.0), Look("dark", 390, 844, 1.5))
#: what a picture shows, and the part of the page that is at its top
PARTS = {
    "top": "header",
    "passes": "[id$=-passes]",
    "source": "[id$=-source]",
    "memory": "[id$=-memory]",
    "occupancy": "[id$=-occupancy]",
    "roofline": "[id$=-roofline]",
}
#: the pass and the line that change most, so that there is something to see
STIR = """
const most = (all, n) => all.reduce((a, b) => (n(b) > n(a) ? b : a), all[0]);
const links = [...document.querySelectorAll("[data-picker=pass] a")];
const marked = (a) => document.querySelectorAll(a.hash + " mark, " + a.hash + " del").length;
most(links, marked)?.click();
const line = document.querySelector(".badges")?.parentElement;
if (line) { line.querySelector("button").click(); }
document.activeElement?.blur();
scrollTo(0, 0);
"""


def shoot(driver: webdriver.Chrome, file: Path, folder: Path, look: Look) -> None:
    """One picture a part."""
    resize(driver, look.width, look.height, look.scale)
    prefer(driver, look.theme)
    driver.get(file.as_uri())
    driver.execute_script(STIR)
    for part, selector in PARTS.items():
        driver.execute_script(
            "const e = document.querySelector(arguments[0]);"
            "scrollTo(0, e.getBoundingClientRect().top + scrollY - 24)",
            selector,
        )
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        target = folder / f"{file.stem}_{part}_{look.theme}.png"
        target.write_bytes(base64.b64decode(taken["data"]))
        print(f"{target.name:36} {target.stat().st_size // 1024:4} KiB")


def pages(what: str | None, target: str, folder: Path) -> list[Path]:
    """The files to look at, in `folder`."""
    if what is not None:
        made = folder / f"{what.rpartition(':')[2]}.html"
        command = [sys.executable, "-m", "uopc", "view", what, "-o", str(made), "--target", target]
        subprocess.run(command, check=True)
        return [made]
    files = []
    for name, program in (("softmax", sample.rows()), ("matmul", sample.matmul())):
        files.append(folder / f"{name}.html")
        files[-1].write_text(page(program), encoding="utf-8")
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description="Pictures of a kernel's page.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="?", metavar="FILE:NAME")
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args()
    if reason := why_no_browser():
        print(reason)
        return MISSING
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, browser() as driver:
        for file in pages(options.what, options.target, Path(made)):
            for look in LOOKS:
                shoot(driver, file, options.folder, look)
    return 0


if __name__ == "__main__":
    sys.exit(main())

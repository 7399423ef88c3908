"""A headless Chromium for tests of the page and for pictures of it."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium import webdriver

BROWSER, DRIVER = "chromium", "chromedriver"
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage"),
    "--force-color-profile=srgb",
)


def why_no_browser() -> str:
    """The exact thing that is missing, or "" where pages can be opened."""
    for name, package in ((BROWSER, "chromium"), (DRIVER, "chromium-driver")):
        if shutil.which(name) is None:
            return f"no {name} on PATH (Debian: apt-get install {package})"
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed (pip install selenium)"
    return ""


@contextmanager
def browser(script: bool = True) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own.  script: whether pages may run theirs."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which(BROWSER) or BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if not script:
        forbidden = {"profile.managed_default_content_settings.javascript": 2}
        options.add_experimental_option("prefs", forbidden)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options, Service(shutil.which(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


def log(driver: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    """What is new in the log of the "browser" (its console) or of its "performance"."""
    entries = driver.get_log(kind)  # type: ignore[no-untyped-call]  # selenium's own lack
    return list(entries)


def resize(driver: webdriver.Chrome, width: int, height: int, scale: float = 1.0) -> None:
    """The size of the page's window, in CSS pixels; scale: device pixels each."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
    )


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """What the page is told that its reader prefers: "light" or "dark"; nothing moves."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

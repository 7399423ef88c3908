"""The page in a browser: choosing, linking, keys, themes, widths, no errors, no requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inspect import sample
from tests.inspect.browser import browser, log, prefer, resize, why_no_browser
from uopc.inspect.page import page

if reason := why_no_browser():
    pytest.skip(reason, allow_module_level=True)

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

MADE = {f.__name__: f for f in (sample.rows, sample.matmul, sample.strided, sample.several)}
Open = Callable[..., "Seen"]


class Seen:
    """A page that is open."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def js(self, code: str, *arguments: object) -> Any:
        return self.driver.execute_script(f"return {code}", *arguments)

    def click(self, selector: str) -> None:
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.driver.find_element("css selector", selector).click()
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn: events come late on a busy machine."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def keys(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()
            self.settle()

    def shown(self, selector: str) -> list[str]:
        """Ids of the elements that can be seen."""
        code = "[...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility())"
        return list(self.js(f"{code}.map(e => e.id)", selector))

    def chosen(self, kind: str) -> str:
        """The text of the link that a picker is at."""
        here = f'[data-picker="{kind}"] [aria-current]'
        found = self.js("[...document.querySelectorAll(arguments[0])].map(e => e.innerText)", here)
        (text,) = found
        return str(text)

    def lit(self) -> set[str]:
        return set(self.js("[...document.querySelectorAll('.lit')].map(e => e.id)"))

    def focused(self) -> str:
        return str(self.js("document.activeElement.closest('[id]').id"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, made in MADE.items():
        (folder / f"{name}.html").write_text(page(made()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    with browser() as driver:
        yield driver


@pytest.fixture
def see(driver: webdriver.Chrome, folder: Path) -> Iterator[Open]:
    """see(name) opens a page; at the end nothing has failed in it, and nothing was asked for."""

    def opened(name: str, width: int = 1280, scheme: str = "light", part: str = "") -> Seen:
        resize(driver, width, 900)
        prefer(driver, scheme)
        driver.get("about:blank")
        driver.get(f"{(folder / name).with_suffix('.html').as_uri()}{part}")
        return Seen(driver)

    log(driver, "performance")
    yield opened
    assert log(driver, "browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in log(driver, "performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"].endswith("WillBeSent")]
    assert urls and all(url.startswith(("file://", "about:")) for url in urls)


# ---- choosing
def test_passes(see: Open) -> None:
    page = see("rows")
    assert page.shown("[data-picker=pass] ~ .panels > .panel") == ["k0-p0"]
    page.click("[data-picker=pass] li:nth-child(8) a")
    assert page.shown("[data-picker=pass] ~ .panels > .panel") == ["k0-p7"]
    assert page.chosen("pass").startswith("effects")
    assert page.js("document.querySelectorAll('#k0-p7 ins').length") > 50
    page.keys("j")
    assert page.shown("[data-picker=pass] ~ .panels > .panel") == ["k0-p8"]
    page.keys("k", Keys.ARROW_UP, Keys.ARROW_UP)
    assert page.chosen("pass").startswith("cooperate")
    page.keys(Keys.HOME)
    assert page.chosen("pass").startswith("index")
    page.keys("k")
    assert page.chosen("pass").startswith("index")
    page.keys(Keys.END)
    assert page.chosen("pass").startswith("legalise")


def test_unchanged_lines_unfold(see: Open) -> None:
    page = see("rows", part="#k0-p8")
    fold = "#k0-p8 .fold"
    assert page.js("document.querySelector(arguments[0]).open", fold) is False
    page.click(f"{fold} > summary")
    assert page.js("document.querySelector(arguments[0] + ' pre').checkVisibility()", fold) is True


def test_accesses(see: Open) -> None:
    page = see("strided")
    assert page.chosen("access") == "0 LOAD"
    page.click("[data-picker=access] tbody tr:nth-child(2) a[data-pick]")
    assert page.shown(".access") == ["k0-a1"]
    page.keys("k")
    assert page.shown(".access") == ["k0-a0"]
    assert page.js("document.querySelectorAll('#k0-a0 svg .frame').length") == 32


def test_launches(see: Open) -> None:
    page = see("several")
    assert page.shown(".launch") == ["k0"]
    page.click("[data-picker=launch] tbody tr:nth-child(2) a")
    assert page.shown(".launch") == ["k1"]
    assert page.shown("h2[id$=about]") == ["k1-about"]


def test_a_link_opens_what_it_leads_to(see: Open) -> None:
    page = see("several", part="#k1-a3")
    assert page.shown(".launch") == ["k1"] and page.shown(".access") == ["k1-a3"]
    page.click("#k1-a3 a[href^='#k1-s']")
    line = page.js("document.querySelector('#k1 .lines li.held').id")
    assert page.lit() >= {line} and page.focused() == line
    page.click(f"#{line} .badges a")
    assert page.shown(".access") == ["k1-a3"]


# ---- what belongs together
def test_a_line_shows_its_nodes_and_the_users_lines(see: Open) -> None:
    page = see("rows")
    report = sample.rows().launches[0]
    number, line = next((n, x) for n, x in enumerate(report.source, 1) if x.accesses and x.origins)
    page.click(f"#k0-s{number} button")
    lit = page.lit()
    assert {f"k0-g{n}" for n in line.nodes} <= lit and f"k0-s{number}" in lit
    users = [i for i in lit if i.startswith("k0-u")]
    assert len(users) == len(line.origins)
    said = page.js("document.getElementById('k0-linked').textContent")
    assert said.startswith(f"Line {number}: {len(line.nodes)} nodes") and "access" in said
    assert page.js("document.getElementById('said').textContent") == said
    seen = page.js(
        "(() => { const e = document.getElementById(arguments[0]), p = e.closest('.pane');"
        "const a = e.getBoundingClientRect(), b = p.getBoundingClientRect();"
        "return a.top >= b.top && a.bottom <= b.bottom })()",
        f"k0-g{line.nodes[0]}",
    )
    assert seen is True


def test_and_back_from_the_users_line_and_from_a_node(see: Open) -> None:
    page = see("rows")
    report = sample.rows().launches[0]
    page.click("[data-lines=u] li[id] button")
    user = page.js("document.querySelector('[data-lines=u] li.held button').ariaLabel")
    lines = {f"k0-s{n}" for n, x in enumerate(report.source, 1) if user in x.origins}
    assert lines and {i for i in page.lit() if i.startswith("k0-s")} == lines
    node = report.source[42].nodes[0]
    page.click(f"#k0-g{node} button")
    lines = {f"k0-s{n}" for n, x in enumerate(report.source, 1) if node in x.nodes}
    assert lines and {i for i in page.lit() if i.startswith("k0-s")} == lines
    assert {i for i in page.lit() if i.startswith("k0-g")} == {f"k0-g{node}"}


def test_pointing_shows_and_leaving_puts_back(see: Open) -> None:
    page = see("rows")
    page.click("#k0-s43 button")
    held = page.lit()
    over = page.driver.find_element("css selector", "#k0-s47")
    ActionChains(page.driver).move_to_element(over).perform()
    assert "k0-s47" in page.lit() and page.lit() != held
    heading = page.driver.find_element("css selector", "#k0-memory")
    ActionChains(page.driver).move_to_element(heading).perform()
    assert page.lit() == held


def test_lines_are_one_stop_and_arrows_move_in_them(see: Open) -> None:
    page = see("rows")
    page.click("#k0-s5 button")
    page.keys("j", Keys.ARROW_DOWN, "k")
    assert page.focused() == "k0-s6" and "k0-s6" in page.lit()
    page.keys(Keys.HOME, Keys.ARROW_UP)
    assert page.focused() == "k0-s1"
    stops = page.js("document.querySelectorAll('.beside > .lines button[tabindex=\"0\"]').length")
    assert stops == 1


# ---- by keyboard alone
def test_the_skip_link_comes_first(see: Open) -> None:
    page = see("rows")
    page.keys(Keys.TAB)
    assert page.js("document.activeElement.className") == "skip"
    assert page.js("document.activeElement.getBoundingClientRect().top") >= 0
    page.keys(Keys.ENTER)
    assert page.focused() == "main"


def test_what_has_the_focus_is_outlined(see: Open) -> None:
    page = see("strided")
    missing = []
    for _ in range(30):
        page.keys(Keys.TAB)
        style = "getComputedStyle(document.activeElement)"
        radio = page.js("document.activeElement.type") == "radio"
        if radio:
            style = "getComputedStyle(document.activeElement.nextElementSibling)"
        if page.js(f"{style}.outlineStyle") == "none":
            missing.append(page.js("document.activeElement.outerHTML"))
    assert missing == []


def test_keys_with_no_focus_move_in_what_is_in_view(see: Open) -> None:
    page = see("strided")
    page.js("document.getElementById('k0-memory').scrollIntoView()")
    page.keys("j")
    assert page.chosen("access") == "1 STORE" and page.chosen("pass").startswith("index")


# ---- looks
def luminance(page: Seen, what: str) -> float:
    """Of a colour of the body, 0 to 1."""
    red, green, blue = page.js(
        f"getComputedStyle(document.body).{what}.match(/[\\d.]+/g).slice(0, 3).map(Number)"
    )
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes(see: Open, scheme: str) -> None:
    page = see("strided", scheme=scheme)
    assert (luminance(page, "backgroundColor") > 0.5) == (scheme == "light")
    for chosen in ("dark", "light"):
        page.driver.find_element("css selector", f"label:has(#theme-{chosen})").click()
        assert (luminance(page, "backgroundColor") > 0.5) == (chosen == "light")
        assert (luminance(page, "color") < 0.5) == (chosen == "light")
    page.keys(Keys.ARROW_LEFT)
    assert (luminance(page, "backgroundColor") > 0.5) == (scheme == "light")


CONTRAST = """(() => {
  const part = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const e of document.querySelectorAll("main *, header *, footer *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility() || e.closest("svg")) continue;
    const a = light(rgb(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([e.outerHTML.slice(0, 80), ratio.toFixed(2)]);
  }
  return poor.slice(0, 5);
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(see: Open, scheme: str) -> None:
    page = see("rows", scheme=scheme, part="#k0-p7")
    page.click("#k0-s43 button")
    assert page.js(CONTRAST) == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", sorted(MADE))
def test_nothing_is_wider_than_the_window(see: Open, name: str, width: int) -> None:
    page = see(name, width)
    for n in range(page.js("document.querySelectorAll('[data-picker=pass] a').length")):
        page.js("document.querySelectorAll('[data-picker=pass] a')[arguments[0]].click()", n)
        assert page.js("document.documentElement.scrollWidth") <= width
    small = page.js(
        "[...document.querySelectorAll('p, td, th, dd, li > a')].filter(e => e.checkVisibility()"
        " && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.outerHTML)"
    )
    assert small == []


def test_copying(see: Open) -> None:
    page = see("matmul")
    page.click("[data-copy=k0-opts]")
    page.js("new Promise(done => setTimeout(done, 100))")
    assert page.js("document.querySelector('[data-copy=k0-opts]').textContent") in (
        "copied",
        "selected",
    )


def test_without_scripts_all_can_be_read(folder: Path) -> None:
    with browser(script=False) as driver:
        prefer(driver, "light")
        driver.get((folder / "rows.html").as_uri())
        assert "js" not in (driver.find_element("tag name", "html").get_attribute("class") or "")
        panel = driver.find_element("id", "k0-p7")
        assert panel.get_attribute("open") is None
        panel.find_element("css selector", ":scope > summary").click()
        assert "ALLOC REG" in panel.text
        buttons = driver.find_elements("css selector", "[data-copy]")
        assert buttons and not any(b.is_displayed() for b in buttons)
        driver.find_element("css selector", "label:has(#theme-dark)").click()
        dark = driver.find_element("tag name", "body").value_of_css_property("background-color")
        assert "22, 21, 19" in dark

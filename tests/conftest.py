"""Fixtures, hypothesis profiles, and what happens to tests that need a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.device import why_no_gpu
from uopc.config import current

#: every kernel that a test emulates is checked, unless the test says otherwise
os.environ.setdefault("UOPC_CHECK", "1")
#: and choices do not depend on what was searched for on this machine
os.environ.setdefault("UOPC_SEARCHED", "0")

settings.register_profile("uopc", deadline=None, max_examples=25)
settings.register_profile("ci", settings.get_profile("uopc"), derandomize=True, print_blob=True)
settings.load_profile("uopc")  # --hypothesis-profile=ci chooses the other


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """For tests of the plain emulated text, and of memories larger than their shadows may be."""
    monkeypatch.setenv("UOPC_CHECK", "0")
    current.cache_clear()
    yield
    current.cache_clear()


GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text) compares with tests/goldens/name, or writes it (--update-goldens)."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"no golden text {name}: run pytest --update-goldens and read it"
        assert text == path.read_text(), f"{name} differs: pytest --update-goldens if it is meant"

    return check


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="write tests/goldens anew: read the diff"
    )
    parser.addoption(
        "--require-gpu", action="store_true", help="a gpu test that would be skipped fails instead"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := why_no_gpu()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected = hasattr(report, "wasxfail")
    required = item.config.getoption("--require-gpu") and item.get_closest_marker("gpu")
    if report.skipped and required and not expected:
        report.outcome = "failed"
        report.longrepr = (
            f"skipped, but --require-gpu was given: {call.excinfo and call.excinfo.value}"
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself would hide its gpu tests."""
    report = yield
    required = collector.config.getoption("--require-gpu")
    if report.skipped and required and "mark.gpu" in collector.path.read_text():
        report.outcome = "failed"
        report.longrepr = f"skipped, but --require-gpu was given: {report.longrepr}"
    return report

"""Who listens hears every launch; nobody pays while nobody does; NVTX ranges open and close."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.commands import environment
from uopc.cli import main
from uopc.config import Config
from uopc.errors import ToolchainError
from uopc.runtime import observe
from uopc.runtime.ranges import DOMAIN, Ranges
from uopc.tensor import Tensor, jit, storage

ROOT = Path(__file__).resolve().parents[2]


class Heard:
    """Notes what it hears, before and after."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self.log, self.name = log, name

    def _around(self, what: str, start: Callable[[], None]) -> None:
        self.log.append(f"{self.name}{what} begins")
        start()
        self.log.append(f"{self.name}{what} ends")

    def launch(self, launcher: Any, buffers: Any, start: Callable[[], None]) -> None:
        self._around(f"launch {launcher.name}", start)

    def copy(self, copy: Any, start: Callable[[], None]) -> None:
        self._around("copy", start)

    def replay(self, replay: Any, start: Callable[[], None]) -> None:
        self._around(replay.name, start)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        self.log.append(f"{self.name}{name} begins")
        yield
        self.log.append(f"{self.name}{name} ends")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """On cpu, and nobody listens when a test begins or ends."""
    before, observe.current = observe.current, None
    with storage.making_on("cpu"):
        yield
    observe.current = before


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of a package nvtx that only takes notes."""
    log: list[str] = []

    class Domain:
        def get_event_attributes(self, message: str) -> str:
            log.append(f"name {message}")
            return message

        def push_range(self, attributes: str) -> None:
            log.append(f"push {attributes}")

        def pop_range(self) -> None:
            log.append("pop")

    module = ModuleType("nvtx")
    made = {DOMAIN: Domain()}
    module.get_domain = made.__getitem__  # type: ignore[attr-defined]  # a module of the test's own
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return log


def numbers(size: int) -> Tensor:
    return Tensor(np.arange(size, dtype=np.float32))


# ---- who hears
def test_launches_schedules_and_compilations_are_heard() -> None:
    log: list[str] = []
    a = numbers(4099)  # a size of this test: nothing is known of it yet
    with observe.observing(Heard(log)):
        (a + 1).realize()
        (a + 1).realize()
    (a + 1).realize()
    first = log[: log.index("launch map_4099 ends") + 1]
    assert first == [
        "schedule begins",
        "schedule ends",
        "compile map_4099 begins",
        "compile map_4099 ends",
        "launch map_4099 begins",
        "launch map_4099 ends",
    ]
    assert log[len(first) :] == first[4:]


def test_a_replay_is_heard_as_a_whole() -> None:
    a = numbers(37)

    @jit
    def step() -> Tensor:
        return a * 3

    for _ in range(2):
        step()
    log: list[str] = []
    with observe.observing(Heard(log)):
        got = step()
    assert log == ["replay of 1 begins", "replay of 1 ends"]
    assert np.array_equal(got.numpy(), a.numpy() * 3)


def test_the_work_of_a_replay_can_be_done_piece_by_piece() -> None:
    a = numbers(41)

    @jit
    def step() -> Tensor:
        return a * 5

    class Pieces(Heard):
        def replay(self, replay: Any, start: Callable[[], None]) -> None:
            for work in replay.work:
                work()

    for _ in range(2):
        step()
    log: list[str] = []
    with observe.observing(Pieces(log)):
        got = step()
    assert log == ["launch map_41 begins", "launch map_41 ends"]
    assert np.array_equal(got.numpy(), a.numpy() * 5)


def test_the_later_observer_is_outside() -> None:
    log: list[str] = []
    outer, inner = Heard(log, "outer "), Heard(log, "inner ")
    with observe.observing(inner):
        with observe.observing(outer), observe.span("schedule"):
            pass
        with observe.span("alone"):
            pass
    assert log == [
        *["outer schedule begins", "inner schedule begins"],
        *["inner schedule ends", "outer schedule ends"],
        *["inner alone begins", "inner alone ends"],
    ]
    assert observe.current is None


def test_a_failure_ends_the_listening() -> None:
    with pytest.raises(ValueError, match="x"), observe.observing(Heard([])):
        raise ValueError("x")
    assert observe.current is None


# ---- NVTX
def test_ranges_close_also_where_work_fails(nvtx: list[str]) -> None:
    ranges = Ranges()
    with pytest.raises(ValueError), ranges.range("a"):
        raise ValueError
    with ranges.range("a"), ranges.range("b"):
        pass
    assert nvtx == ["name a", "push a", "pop", "push a", "name b", "push b", "pop", "pop"]


def test_a_range_surrounds_each_launch(nvtx: list[str]) -> None:
    a = numbers(43)
    (a + 2).realize()
    with observe.observing(observe.RangesOf(Ranges())):
        (a + 2).realize()
    assert nvtx == ["name map_43", "push map_43", "pop"]


def test_the_setting_turns_ranges_on(nvtx: list[str]) -> None:
    a = numbers(47)
    with environment(UOPC_NVTX="1"):
        (a + 2).realize()
    pushed = [line for line in nvtx if line.startswith("push")]
    assert pushed == ["push schedule", "push compile map_47", "push map_47"]


def test_without_the_setting_nvtx_is_not_even_imported() -> None:
    program = (
        "import sys, numpy as np\n"
        "from uopc.tensor import Tensor\n"
        "(Tensor(np.ones(4, np.float32), device='cpu') + 1).realize()\n"
        "from uopc.runtime import observe\n"
        "print('nvtx' in sys.modules, observe.current)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout == "False None\n"


def test_a_missing_package_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ToolchainError, match="pip install nvtx"):
        Ranges()
    with pytest.raises(ToolchainError, match="UOPC_NVTX=1"):
        observe.hear_as_configured(Config(nvtx=True))
    path = tmp_path / "f.py"
    path.write_text("x = 1\n")
    assert main(["profile", f"{path}:x", "--device", "cpu", "--nvtx"]) == 1
    assert "pip install nvtx" in capsys.readouterr().err


def test_the_command_opens_ranges_for_steps_and_kernels(
    nvtx: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import numpy as np\nfrom uopc.tensor import Tensor\n"
        "a = Tensor(np.ones(53, np.float32))\n"
        "def step():\n    return a + 1\n"
    )
    assert main(["profile", f"{path}:step", "--device", "cpu", "--runs", "2", "--nvtx"]) == 0
    assert nvtx.count("push step") == 2 * 2 + 1
    assert nvtx.count("push map_53") == 3 + 2 * 2 + 1
    assert sum(line.startswith("push") for line in nvtx) == nvtx.count("pop")
    assert observe.current is None


def test_the_real_package_takes_ranges() -> None:
    pytest.importorskip("nvtx", reason="the package nvtx is not installed")
    with Ranges().range("a"):
        pass

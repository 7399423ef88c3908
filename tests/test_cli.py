"""Commands are found, errors become a message and an exit code, the cache is shown and cleared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.commands import environment, own_cache
from uopc import __version__, cli, demo
from uopc.cli import main
from uopc.dtype import dtypes
from uopc.errors import CompilerError, DeviceError, UopcError, UsageError
from uopc.pipeline import compile
from uopc.runtime.device import DeviceInfo
from uopc.uop.node import buffer

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    with own_cache(tmp_path / "cache"):
        yield tmp_path / "cache"


def fill() -> None:
    """One compiled kernel in the cache."""
    x = np.zeros(4, np.float32)
    compile(buffer(0, dtypes.f32, (4,)) + 1.0, target="cpu")(x)


# ---- what there is
def test_no_argument_gives_short_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) < 20
    for command in ("demo", "doctor", "show", "check", "trace", "profile", "cache"):
        assert f"  {command} " in said


def test_python_m_is_the_same() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "uopc", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, f"uopc {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dmeo"], "invalid choice: 'dmeo'"),
        (["show"], "required: FILE:NAME"),
        (["show", "a.py:b", "--ptx", "--sass"], "not allowed with argument"),
        (["demo", "--images", "many"], "invalid int value: 'many'"),
        (["check"], "required: FILE:NAME"),
        (["check", "a.py:b", "--seed", "x"], "invalid int value: 'x'"),
        (["profile"], "required: FILE:NAME"),
        (["profile", "a.py:b", "--runs", "x"], "invalid int value: 'x'"),
        (["trace", "a.py:b", "--thread"], "--thread: expected one argument"),
    ],
)
def test_a_wrong_command_line_is_usage(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


# ---- errors
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no [such] axis 9"), 2),
        (DeviceError("no GPU. " * 30), 1),
        (CompilerError("x"), 1),
    ],
    ids=["usage", "device", "compiler"],
)
def test_errors_are_one_message(
    error: UopcError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(cli, "doctor", fails)
    assert main(["doctor"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"uopc: {error}\n")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise KeyError("r0")

    monkeypatch.setattr(cli, "doctor", fails)
    with pytest.raises(KeyError):
        main(["doctor"])


def test_a_setting_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    with environment(UOPC_CACHE_MB="plenty"):
        assert main(["cache"]) == 2
    assert "UOPC_CACHE_MB must be a whole number, got 'plenty'" in capsys.readouterr().err


def test_an_interrupt_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "doctor", stopped)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    """A closed pipe: `uopc show ... | head -1`."""
    file = tmp_path / "long.py"
    file.write_text("from uopc.examples import smem_gemm_ir\nk = smem_gemm_ir(64, 16)\n")
    command = f"{sys.executable} -m uopc show {file}:k --steps | head -1"
    run = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert len(run.stdout.splitlines()) == 1
    assert run.stderr == ""


# ---- the cache
def test_the_cache_is_shown_and_cleared(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill()
    assert main(["cache"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{cache}\n1 entries, 0.0 MiB of 512.0 MiB\n")
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 1 entries from {cache}\n"
    assert list(cache.iterdir()) == []
    assert main(["cache"]) == 0
    assert "0 entries" in capsys.readouterr().out


def test_a_cache_that_is_switched_off_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with environment(UOPC_CACHE_MB="0"):
        assert main(["cache"]) == 0
    assert "not used: switched off by UOPC_CACHE_MB=0" in capsys.readouterr().out


def test_a_cache_that_cannot_be_cleared_fails(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill()
    monkeypatch.setattr("os.unlink", lambda path: (_ for _ in ()).throw(PermissionError(path)))
    assert main(["cache", "--clear"]) == 1
    assert "1 entries could not be removed" in capsys.readouterr().out


# ---- the demo
def test_demo_takes_fewer_images(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "devices", lambda: [DeviceInfo("cpu", True, "")])
    assert main(["demo", "--images", "250"]) == 0
    assert "means of the first 225, tested on the last 25" in capsys.readouterr().out


def test_demo_refuses_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--images", "3"]) == 2
    assert "the demo takes 200 to 10000 images, not 3" in capsys.readouterr().err

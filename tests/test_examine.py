"""`uopc check` and `uopc trace`: kernels of a file, its arrays, exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import own_cache
from uopc.cli import main
from uopc.errors import UsageError
from uopc.examine import parse_triple
from uopc.userfile import load_with_arrays

MODEL = """\
import numpy as np
from uopc.dtype import AddrSpace, dtypes
from uopc.pipeline import compile
from uopc.uop import AxisType, Ops, ParamArg, UOp, buffer, range_
from uopc.uop.cursor import Cursor

x, y = buffer(0, dtypes.f32, (64,)), buffer(1, dtypes.f32, (64,))
tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (64,), AddrSpace.SHARED, "tile"))
t = range_(64, 0, AxisType.LOCAL)
ints = np.arange(64, dtype=np.float32)

def through_tile(barrier):
    c = Cursor()
    c.store(tile.index(t), x.index(t).load())
    if barrier:
        c.barrier()
    c.store(y.index(t), c.load(tile.index(63 - t)))
    return c.sink()

good, bad = through_tile(True), through_tile(False)
good_arrays = [ints]
softer = x * 0.5
compiled = compile(softer, target="cpu")

def with_arrays():
    return good, [ints]

def softer_arrays():
    return [ints]

wrong, wrong_arrays = good, 3

def lazy():
    from uopc.tensor import empty
    return empty(64) * 2.0

def claims():
    c = Cursor()
    c.check(x.index(t).load() < 1.0, "x is below 1")
    c.printf("thread {}", t)
    c.store(y.index(t), 1.0)
    return c.sink(), [ints]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("user")
    (folder / "model.py").write_text(MODEL)
    with own_cache(folder / "cache"):
        yield folder


class Run:
    """`uopc` with these arguments: what it printed where it should."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        out, err = self.capsys.readouterr()
        return out + err


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)
    return Run(capsys)


# ---- check
def test_a_right_kernel(run: Run) -> None:
    said = run("check", "model.py:good")
    assert said.startswith("kernel good: no fault; the same bits in 6 orders\n")
    assert "\ninputs    1 of the file\n" in said
    assert "\ncompared  warps forward, lanes forward\n" in said


def test_a_wrong_kernel(run: Run) -> None:
    said = run("check", "model.py:bad", "--all", code=1)
    line = MODEL.splitlines().index("    c.store(tile.index(t), x.index(t).load())") + 1
    assert said.startswith("kernel bad: 1 fault\n\nRaceError: write-read on shared tile0[")
    assert f"hint: a barrier after the STORE at model.py:{line}" in said
    assert "inputs  random, --seed 0" in said


def test_the_seed_is_told(run: Run) -> None:
    assert "random, --seed 7" in run("check", "model.py:bad", "--seed", "7", code=1)


@pytest.mark.parametrize("name", ["with_arrays", "softer"])
def test_arrays_of_the_file(run: Run, name: str) -> None:
    assert "1 of the file" in run("check", f"model.py:{name}")


def test_assertions_fail(run: Run) -> None:
    said = run("check", "model.py:claims", code=1)
    assert "AssertionFault: assertion in kernel claims: x is below 1\n" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", "wrong_arrays is int; arrays for a kernel are a list in slot order"),
        ("compiled", "is compiled for cpu, which has no threads to check"),
        ("godo", "model.py has no godo. Did you mean good?"),
        ("lazy", "lazy is tensors, of which a schedule makes kernels: one kernel is wanted here"),
    ],
)
def test_usage_errors(run: Run, name: str, said: str) -> None:
    assert said in run("check", f"model.py:{name}", code=2)


# ---- trace
def test_a_trace(run: Run) -> None:
    said = run("trace", "model.py:good", "--thread", "3", "--only", "STORE")
    rows = [line.split() for line in said.splitlines() if "STORE" in line]
    line = MODEL.splitlines().index("    c.store(tile.index(t), x.index(t).load())") + 1
    assert rows[0] == [f"model.py:{line}", "STORE", "tile0[lidx0]", "3.0", "tile0[3]"]
    assert rows[1][-2:] == ["60.0", "p1[3]"]
    assert "threads  (3,0,0)\n" in said


def test_two_threads(run: Run) -> None:
    said = run("trace", "model.py:good", "--thread", "0", "--thread", "33,0,0")
    assert "(33,0,0)" in said and "BARRIER" in said


def test_wrong_threads(run: Run) -> None:
    assert "'a' is no thread or block" in run("trace", "model.py:good", "--thread", "a", code=2)
    assert "there is no thread (64, 0, 0)" in run(
        "trace", "model.py:good", "--thread", "64", code=2
    )
    assert "no op is called 'STOER'" in run("trace", "model.py:good", "--only", "STOER", code=2)


def test_triples() -> None:
    assert parse_triple("3") == (3, 0, 0) and parse_triple("3,1") == (3, 1, 0)
    assert parse_triple("3, 1, 2") == (3, 1, 2)
    for text in ("", "1,2,3,4", "-1", "x"):
        with pytest.raises(UsageError):
            parse_triple(text)


def test_what_a_file_offers(folder: Path) -> None:
    file = folder / "model.py"
    name, subject, arrays = load_with_arrays(f"{file}:with_arrays")
    assert name == "with_arrays" and arrays is not None and len(arrays) == 1
    assert load_with_arrays(f"{file}:bad")[2] is None
    assert load_with_arrays(f"{file}:good")[1] is not None and subject is not None

"""`uopc view` writes one file for every kind of kernel, and says what is wrong with any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Run, own_cache
from uopc import show

MODEL = """\
from uopc.dtype import dtypes
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.uop import Ops, buffer

a = buffer(0, dtypes.f32, (64, 100))
softer = a * 0.5
pieces = buffer(0, dtypes.f32, (600, 5)).reduce(Ops.MAX).reduce(Ops.ADD)
halves = compile(pieces, Opts(gpu=True, blocks={1: 3}, local={1: 32}), "sm_90a", "halves")
compiled = compile(softer, target="cpu", name="softer")
gemm = smem_gemm_ir(64, 16)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("user")
    (folder / "model.py").write_text(MODEL)
    with own_cache(folder / "cache"):
        yield folder


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(show, "why_unusable", lambda: "no GPU")  # sm_80 on every machine
    return Run(capsys, "view")


def test_a_page_is_written_beside_and_said(run: Run, folder: Path) -> None:
    said = run("model.py:softer")
    text = (folder / "softer.html").read_text()
    size = -(-len(text.encode()) // 1024)
    assert said == f"wrote softer.html, {size} KiB: open it in a browser\n"
    assert text.startswith("<!doctype html>") and "for sm_80" in text
    assert '<p class="file">model.py</p>' in text and "softer" in text
    run("model.py:softer")
    assert (folder / "softer.html").read_text() == text


def test_output_target_opts_and_gpu(run: Run, folder: Path) -> None:
    opts = '{"local": {"1": 50}}'
    arguments = ("--target", "sm_90a", "--opts", opts, "--gpu", "H100")
    run("model.py:softer", "-o", "page.html", *arguments)
    text = (folder / "page.html").read_text()
    assert "for sm_90a" in text and "50 threads" in text
    assert "On H100" in text


def test_launches_of_one_kernel_are_in_one_file(run: Run, folder: Path) -> None:
    run("model.py:halves")
    assert (folder / "halves.html").read_text().count('class="panel launch"') == 2


def test_loop_ir(run: Run, folder: Path) -> None:
    run("model.py:gemm")
    text = (folder / "gemm.html").read_text()
    assert "__syncthreads" in text and "as written" in text


def test_lines_of_a_file_elsewhere_are_found(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("elsewhere = 1\n" * 20)
    run(f"{folder / 'model.py'}:softer")
    text = (tmp_path / "softer.html").read_text()
    assert "elsewhere" not in text and '<p class="file">model.py</p>' in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.py:x",), "there is no file none.py. Give FILE:NAME"),
        (("model.py:softr",), "model.py has no softr. Did you mean softer?"),
        (("model.py:compiled",), "compiled is for cpu: a report speaks of warps"),
        (("model.py:softer", "--target", "cpu"), "softer is for cpu: a report speaks of warps"),
        (("model.py:softer", "-o", "none/x.html"), "none/x.html cannot be written: No such file"),
        (("model.py:softer", "--gpu", "H900"), "H900"),
    ],
)
def test_usage_errors(run: Run, arguments: tuple[str, ...], said: str) -> None:
    assert said in run(*arguments, code=2)


def test_a_file_below_the_working_folder_is_read(run: Run, folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "model.py").write_text(MODEL.replace("0.5", "0.25"))
    run("below/model.py:softer")
    text = (folder / "softer.html").read_text()
    assert '<p class="file">below/model.py</p>' in text
    assert ">0.25</" in text and "cannot be read" not in text

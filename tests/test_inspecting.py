"""`uopc inspect` says what a kernel of a file does to memory, and what would mend it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, own_cache
from uopc import inspecting, show
from uopc.cli import main
from uopc.errors import ToolchainError, UsageError
from uopc.inspect import resources

MODEL = """\
import numpy as np
from uopc.dtype import dtypes
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.uop import Ops, buffer

x = buffer(0, dtypes.f32, (1024, 1024))
softer = x * 0.5
turned = x.permute((1, 0)) * 2.0
table, index = buffer(0, dtypes.f32, (1000,)), buffer(1, dtypes.i32, (256,))
looked_up = table.gather((~0,), index)
known = looked_up
known_arrays = [np.zeros(1000, np.float32), np.zeros(256, np.int32)]
halves = compile(
    buffer(0, dtypes.f32, (600, 5)).reduce(Ops.MAX).reduce(Ops.ADD),
    Opts(gpu=True, blocks={1: 3}, local={1: 32}),
    "sm_90a",
    "halves",
)
gemm = smem_gemm_ir(64, 16)
on_cpu = compile(softer, target="cpu")
"""
TENSORS = """\
from uopc.tensor import empty

def layer():
    hidden = (empty(64, 256) @ empty(256, 128)).relu()
    return hidden.softmax(1), hidden.sum(0)
"""
LANES = '{"local": {"0": 8, "1": 32}}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "model.py").write_text(MODEL)
    (folder / "tensors.py").write_text(TENSORS)
    with own_cache(folder / "cache"):
        yield folder


@pytest.fixture
def run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Inspect:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(show, "why_unusable", lambda: "no GPU")  # sm_80 on every machine
    return Inspect(capsys, "inspect")


class Inspect(Run):
    """`uopc inspect`, and what it says as data."""

    def data(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json", "-"))


def in_one_line(text: str) -> str:
    return " ".join(text.split())


def rows(text: str) -> list[list[str]]:
    """Cells of the table of accesses."""
    found = [line for line in text.splitlines() if re.match(r" (LOAD|STORE|COPY|ATOMIC) ", line)]
    return [re.split(r"  +", line.strip()) for line in found]


# ---- what is printed
def test_accesses(run: Inspect) -> None:
    load, store = rows(run("model.py:softer"))
    assert load[0] == "LOAD p0" and load[2:] == [
        *("model.py:8", "16", "8192", "16.00", "16.00", "contiguous, lidx0 * 4"),
    ]
    assert store[0] == "STORE p1" and store[2:6] == ["model.py:9", "16", "8192", "16.00"]
    assert int(load[1]) < int(store[1])


def test_what_bounds_it(run: Inspect) -> None:
    said = in_one_line(run("model.py:softer", "--gpu", "H200"))
    assert re.search(r"launch grid \(\d+, 1, 1\), block \(\d+, 1, 1\): \d+ threads a block", said)
    assert "an SM of sm_90a holds" in said and "100% of its warps, limited by threads" in said
    assert re.search(r"waves \d\.\d\d, the last one \d+% full", said)
    assert "bytes 8388608 must move, 8388608 will; 8388608 from L2" in said
    assert "assuming each byte comes from memory once" in said
    assert "1048576 fp32" in said
    assert "floor 1.75 us on H200, by memory; 0% wasted" in said
    assert re.search(r"walls memory 1\.95 us, .*L2 \d", said)
    assert re.search(r"expected \d\.\d+ us", said)


def test_a_warning_with_what_came_of_its_change(run: Inspect) -> None:
    said = run("model.py:turned", "--opts", LANES, "--gpu", "H200")
    (line,) = [x for x in said.splitlines() if x.startswith("uncoalesced: ")]
    assert "LOAD of p0 (line " in line and "32.0 sectors a request, 4.0 would do" in line
    assert "Try: tiles in shared memory: Opts.turn={0: 1} (262144 sectors instead of 117" in line


def test_several_launches(run: Inspect) -> None:
    said = run("model.py:halves")
    assert "launch 1 of 2: " in said and "launch 2 of 2: " in said
    assert re.search(r"all launches +[\d.]+ us expected", said)
    assert len(rows(said)) >= 4


def test_tensors_and_what_stands_between_their_kernels(run: Inspect) -> None:
    said = in_one_line(run("tensors.py:layer"))
    assert "launch 1 of 2: product_64x128x256" in said
    assert "295424 bytes moved, 229888 at least" in said
    assert "kept apart" in said


def test_loop_ir(run: Inspect) -> None:
    said = run("model.py:gemm")
    assert {"a_tile0", "b_tile1"} <= {cells[0].split()[1] for cells in rows(said)}
    shared = [cells for cells in rows(said) if cells[0] == "LOAD a_tile0"]
    assert shared[0][5:7] == ["1.00", "1.00"]


# ---- where data decides
def test_random_arrays(run: Inspect) -> None:
    said = run("model.py:looked_up")
    (load,) = [cells for cells in rows(said) if cells[0] == "LOAD p0"]
    assert load[4] == "~8" and float(load[5]) > 20 and "scattered" in load[7]
    assert re.search(r"arrays +random, --seed 0", said)
    again = run("model.py:looked_up", "--seed", "1")
    assert again != said and re.search(r"arrays +random, --seed 1", again)
    assert run("model.py:looked_up") == said


def test_arrays_of_the_file(run: Inspect) -> None:
    said = run("model.py:known")
    (load,) = [cells for cells in rows(said) if cells[0] == "LOAD p0"]
    assert load[5] == "1.00" and load[7].startswith("broadcast")
    assert re.search(r"arrays +2 of the file", said)


def test_no_arrays_where_none_are_asked_for(run: Inspect) -> None:
    assert "\narrays" not in run("model.py:softer")


# ---- as data
def test_json_instead_of_tables(run: Inspect) -> None:
    made = run.data("model.py:softer")
    (one,) = made["launches"]
    assert made["name"] == "softer" and one["target"] == "sm_80"
    assert [a["memory"] for a in one["accesses"]] == ["p0", "p1"]
    assert one["accesses"][0]["origins"] == ["model.py:8"]
    assert run.data("model.py:softer") == made


def test_json_in_a_file(run: Inspect, folder: Path) -> None:
    said = run("model.py:softer", "--json", "softer.json")
    assert said.endswith("all of it in softer.json\n") and rows(said)
    assert json.loads((folder / "softer.json").read_text()) == run.data("model.py:softer")


def test_a_file_that_cannot_be_written(run: Inspect) -> None:
    said = capture_usage(run, "model.py:softer", "--json", "no/such/folder.json")
    assert "no/such/folder.json cannot be written: No such file or directory. Name another" in said


def capture_usage(run: Inspect, *arguments: str) -> str:
    """The tables are printed before the file is written, so both streams have text."""
    assert main(["inspect", *arguments]) == 2
    out, err = run.capsys.readouterr()
    assert rows(out)
    return str(err)


# ---- targets and GPUs
def test_the_target_follows_the_gpu(run: Inspect) -> None:
    assert run.data("model.py:softer", "--gpu", "h100")["launches"][0]["target"] == "sm_90a"
    (one,) = run.data("model.py:softer", "--gpu", "H100", "--target", "sm_80")["launches"]
    assert (one["target"], one["roofline"]["gpu"]) == ("sm_80", "H100")


def test_emulated_is_a_gpu(run: Inspect) -> None:
    assert run.data("model.py:softer", "--target", "emulated")["launches"][0]["target"] == "sm_80"


def test_opts(run: Inspect) -> None:
    (one,) = run.data("model.py:softer", "--opts", LANES)["launches"]
    assert one["block"] == [32, 8, 1] and one["opts"]["local"] == [[0, 8], [1, 32]]


def test_other_archs(run: Inspect) -> None:
    said = run("model.py:softer", "--archs", "sm_75,sm_90a")
    lines = [line.split()[0] for line in said.splitlines() if line.startswith(" sm_")]
    assert lines == ["sm_75", "sm_90a"]


# ---- what is missing, what is wrong
def test_without_nvrtc_the_rest_is_said(run: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise ToolchainError("NVRTC is missing. Get it with: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(resources, "known_archs", missing)
    said = run("model.py:softer")
    assert "unknown: NVRTC is missing. Get it with" in in_one_line(said)
    assert len(rows(said)) == 2 and "expected" in said and "waves" not in said


def test_a_block_that_no_sm_holds(run: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("one block does not fit")

    monkeypatch.setattr(resources, "occupancy", refuse)
    said = in_one_line(run("model.py:softer"))
    assert "Cannot be launched: one block does not fit" in said and "holds 0 blocks" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model.py:softer", "--gpu", "H300"), "no GPU is called 'H300'; there are H200, H100, "),
        (
            ("model.py:softer", "--gpu", "T4", "--target", "sm_90a"),
            "a kernel for sm_90a does not run on T4, which is sm_75. Compile it with",
        ),
        (("model.py:softer", "--target", "cpu"), "is for cpu: a report speaks of warps"),
        (("model.py:on_cpu",), "is for cpu: a report speaks of warps"),
        (("model.py:softer", "--target", "sm_12"), "no target is called 'sm_12'; there are cpu"),
        (("model.py:softer", "--opts", '{"locl": {}}'), "Opts has no field 'locl'"),
        (("model.py:gemm", "--opts", "{}"), "gemm is loop IR: its choices are made"),
        (("model.py:halves", "--target", "sm_80"), "halves is compiled already, for sm_90a"),
        (("model.py:nothing",), "model.py has no nothing. "),
        (("none.py:x",), "there is no file none.py. Give FILE:NAME"),
        (("tensors.py:layer", "--opts", "{}"), "layer is tensors, of which a schedule makes"),
    ],
)
def test_usage_errors(run: Inspect, arguments: tuple[str, ...], said: str) -> None:
    assert said in run(*arguments, code=2)


def test_archs_are_looked_at_before_any_work(run: Inspect) -> None:
    said = run("model.py:softer", "--archs", "sm_80,foo", code=2)
    assert "no target is called 'foo'" in said
    said = run("model.py:softer", "--archs", "sm_80", "--json", "-", code=2)
    assert "--archs is a table" in said


def test_random_arrays_that_are_too_large_are_not_made(
    run: Inspect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "MOST_ARRAY_BYTES", 16)
    said = run("model.py:looked_up")
    assert "data decides" in said and "none: random ones would have" in said

"""`uopc show` takes every kind of kernel, and says what is wrong with any other thing."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Run, own_cache
from uopc import printing, show
from uopc.errors import ToolchainError, UsageError
from uopc.opts import Opts
from uopc.runtime.sass import find_disassembler
from uopc.show import parse_opts
from uopc.userfile import load

MODEL = """\
from beside import HALF
from uopc.dtype import dtypes
from uopc.examples import smem_gemm_ir
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.uop import Ops, buffer, range_, sink

a = buffer(0, dtypes.f32, (64, 100))
softer = a * HALF
both = [softer, a + 1.0]
total = buffer(0, dtypes.f32, (1 << 20,)).reduce(Ops.ADD)
pieces = buffer(0, dtypes.f32, (600, 5)).reduce(Ops.MAX).reduce(Ops.ADD)
halves = compile(pieces, Opts(gpu=True, blocks={1: 3}, local={1: 32}), "sm_90a", "halves")
compiled = compile(softer, target="cpu", name="softer")
gemm = smem_gemm_ir(64, 16)
plain_loop = sink(buffer(1, dtypes.f32, (4,)).index(0).store(1.0))
part = gemm.src[0]
number, nothing = 3, []

def made(scale=2.0):
    return a * scale

def wants(n):
    return a * n

def breaks():
    return a + buffer(1, dtypes.f32, (3,))

def leaves():
    raise SystemExit(3)
"""


TENSORS = """\
from uopc.tensor import empty

x, weight = empty(64, 256), empty(256, 128)
lazy = (x @ weight).relu()

def layer():
    hidden = (x @ weight).relu()
    return hidden.softmax(1), hidden.sum(0)

def updates():
    return [empty(n) * 2.0 + 1.0 for n in (100, 1000, 5000)]

def beside_arrays():
    return lazy, [1.0]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder: a model, and a module beside it."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "model.py").write_text(MODEL)
    (folder / "beside.py").write_text("HALF = 0.5\n")
    (folder / "tensors.py").write_text(TENSORS)
    with own_cache(folder / "cache"):
        yield folder


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(show, "why_unusable", lambda: "no GPU")  # sm_80 on every machine
    return Run(capsys, "show")


# ---- kinds of kernels
@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("softer", "softer(const float* __restrict__ p0, float* __restrict__ p1)"),
        (
            "both",
            "both(const float* __restrict__ p0, float* __restrict__ p1, float* __restrict__ p2)",
        ),
        ("made", "made(const float* __restrict__ p0, float* __restrict__ p1)"),
        (
            "gemm",
            "gemm(const float* __restrict__ p0, const float* __restrict__ p1, float* __restri",
        ),
        ("plain_loop", "plain_loop(float* __restrict__ p1)"),
        ("a", "a(const float* __restrict__ p0, float* __restrict__ p1)"),
    ],
)
def test_every_kind_is_shown(run: Run, name: str, signature: str) -> None:
    said = run(f"model.py:{name}")
    assert signature in said
    assert "\nlaunch     grid (" in said
    assert ("\nchoice     Opts(gpu=True" in said) == (name not in ("gemm", "plain_loop"))


def test_resources_come_from_ptxas(run: Run) -> None:
    assert re.search(r"\d\d registers, 2048 bytes shared, no spills", run("model.py:gemm"))


def test_without_nvrtc_the_rest_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise ToolchainError("NVRTC is missing. Get it with: pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(printing, "known_archs", missing)
    said = run("model.py:gemm")
    assert "resources  unknown: NVRTC is missing. Get it" in said and "__syncthreads();" in said


def test_a_compiled_kernel_is_shown_as_it_is(run: Run) -> None:
    said = run("model.py:compiled")
    assert "int softer(void** args)" in said and "launch" not in said


def test_each_launch_of_a_split_reduction_is_shown(run: Run) -> None:
    said = run("model.py:halves")
    assert "launch 1 of 2\n" in said and "launch 2 of 2\n" in said
    assert said.count("\nresources ") == 2


def test_the_users_lines_stand_beside_the_source(run: Run) -> None:
    assert "// model.py:9" in run("model.py:softer")


# ---- options
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("cpu", "int softer(void** args)"),
        ("emulated", "int softer(void** args)"),
        ("sm_90a", "of sm_90a holds"),
        ("sm_75", "of sm_75 holds"),
    ],
)
def test_targets(run: Run, target: str, words: str) -> None:
    assert words in run("model.py:softer", "--target", target).replace("void **", "void** ")


def test_opts_are_taken_and_given_back(run: Run) -> None:
    said = run("model.py:softer", "--opts", '{"local": {"0": 8, "1": 16}, "upcast": {"0": 2}}')
    assert "block (16, 8, 1): 128 threads a block" in said
    again = said.strip().splitlines()[-1]
    assert again.startswith("--opts '") and again.endswith("'")
    chosen = Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2})
    assert Opts.from_json(again[8:-1]) == chosen


def test_ptx_and_sass_come_alone(run: Run) -> None:
    ptx = run("model.py:gemm", "--ptx")
    assert ".visible .entry gemm(" in ptx and "launch" not in ptx
    try:
        find_disassembler()
    except ToolchainError as error:
        pytest.skip(str(error))
    sass = run("model.py:gemm", "--sass")
    assert "BAR.SYNC" in sass and "launch" not in sass


def test_steps_show_the_graph_after_every_pass(run: Run) -> None:
    said = run("model.py:softer", "--steps")
    stages = ["index: ", "simplify: ", "split: ", "materialise: ", "effects: ", "legalise: "]
    places = [
        said.index(f"\n{stage}") if n else said.index(stage) for n, stage in enumerate(stages)
    ]
    assert places == sorted(places)
    assert "= RANGE 6400 LOOP\n" in said and 'extern "C"' in said
    assert "\nfired  cut-axis x1\n" in said and "(as before)" in said


def test_steps_show_each_choice_with_its_rule(run: Run) -> None:
    said = " ".join(run("model.py:softer", "--steps").split())
    assert said.startswith("choices, each with its reason and the rule that made it opts ")
    assert "[choose.gpu._guesses]" in said
    assert "local {0: 64}: axis 0 has 6400 elements, " in said


# ---- lazy tensors
def test_tensors_are_kernels_and_what_stands_between_them(run: Run) -> None:
    said = run("tensors.py:layer")
    assert "launch 1 of 2\n" in said and "launch 2 of 2\n" in said
    assert " product_64x128x256(" in said and " add_128x64(" in said
    assert "--opts" not in said  # they take none
    *_, told = said.rpartition("295424 bytes moved, 229888 at least\n")
    told = " ".join(told.split())
    assert told.startswith("launch 1 MAX[64, 128]: stored: 65536 bytes, ")
    assert "32768 bytes are written, read 32768 by launch 2 launch 1 MUL[64, 128]: asked " in told
    assert "launch 2 REDUCE[128]: asked for. 512 bytes are written" in told
    assert "overall kept apart, 3 x: too few blocks for a product" in told


def test_one_tensor(run: Run) -> None:
    said = run("tensors.py:lazy", "--target", "cpu")
    assert "launch 1 of" not in said and "MAX[64, 128]: asked for. 32768 bytes are" in said


def test_one_formula_over_several_tensors_is_one_launch(run: Run) -> None:
    said = run("tensors.py:updates")
    assert "flat_map(" in said and "launch 1 of" not in said
    assert [f"ADD[{n}]: asked for" in said for n in (100, 1000, 5000)] == [True] * 3


def test_tensors_as_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other commands ask for: launches, numbered, and boundaries that name them."""
    monkeypatch.chdir(folder)
    shown = show.subject_steps(*load("tensors.py:layer"), target="sm_90a")
    assert shown.name == "layer" and len(shown.steps) == 2
    stored = [b for b in shown.boundaries if b.kernel >= 0]
    assert [(b.kernel, b.bytes) for b in stored] == [(0, 65536), (0, 32768), (1, 512)]
    assert [s.source.target.name for s in shown.steps] == ["sm_90a"] * 2
    assert (shown.moved_bytes, shown.least_bytes) == (295424, 229888)
    names = [s.source.name for s in shown.steps]
    assert len(set(names)) == 2
    plain = show.subject_steps(*load("model.py:both"), target="sm_90a")
    assert len(plain.steps) == 1 and plain.boundaries == ()


def test_tensors_in_memory_are_no_candidates(run: Run) -> None:
    said = run("tensors.py:nowhere", code=2)
    assert said.endswith("Its kernels: lazy, layer, updates, beside_arrays.\n")


# ---- what is wrong
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.py:x",), "there is no file none.py. Give FILE:NAME"),
        ((".:x",), ". is a folder. Give a Python file in it"),
        (
            ("model.py",),
            "which kernel of model.py? Give model.py:NAME. Its kernels: a, softer, both",
        ),
        (("model.py:softr",), "model.py has no softr. Did you mean softer? Its kernels: a, softer"),
        (("model.py:number",), "number in model.py is no kernel but int. show takes a shaped body"),
        (("model.py:nothing",), "nothing in model.py is no kernel but list of nothing."),
        (
            ("tensors.py:x",),
            "x in tensors.py: its elements are in memory already",
        ),
        (
            ("tensors.py:lazy", "--opts", "{}"),
            "lazy is tensors, of which a schedule makes",
        ),
        (("tensors.py:beside_arrays",), "returned is tensors, which have their memory; there are "),
        (("model.py:part",), "part in model.py is STORE, a part of a kernel."),
        (("model.py:wants",), "wants in model.py wants arguments (n). Give them defaults"),
        (
            ("model.py:compiled", "--target", "cpu"),
            "compiled is compiled already, for cpu: --target",
        ),
        (("model.py:compiled", "--opts", "{}"), "compiled already, for cpu: --opts comes too late"),
        (("model.py:compiled", "--ptx"), "--ptx is for GPU kernels, this one is for cpu"),
        (("model.py:gemm", "--opts", "{}"), "gemm is loop IR: its choices are made"),
        (
            ("model.py:gemm", "--target", "cpu"),
            "gemm is written for a GPU: it has blocks and threads",
        ),
        (("model.py:a", "--target", "sm_12"), "no target is called 'sm_12'; there are cpu, sm_75"),
        (("model.py:a", "--opts", '{"local": {"9": 8}}'), "the kernel has axes 0 to"),
    ],
)
def test_usage_errors(run: Run, arguments: tuple[str, ...], said: str) -> None:
    assert said in run(*arguments, code=2)


def test_candidates_are_kernels_only(run: Run) -> None:
    said = run("model.py:nowhere", code=2)
    kernels = (
        "a, softer, both, total, pieces, halves, compiled, gemm, plain_loop, made, breaks, leaves."
    )
    assert said.endswith(f"Its kernels: {kernels}\n")


def test_errors_of_the_users_code_have_its_line(run: Run) -> None:
    said = run("model.py:breaks", code=1)
    line = MODEL.splitlines().index("    return a + buffer(1, dtypes.f32, (3,))") + 1
    assert f"breaks() in model.py failed at model.py:{line}: UsageError: ADD at" in said
    assert said.endswith("\n    return a + buffer(1, dtypes.f32, (3,))\n")
    assert "failed at model.py:30: SystemExit: 3" in run("model.py:leaves", code=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "x = 1\ny = x / 0\n",
            "other.py failed at other.py:2: ZeroDivisionError: division by zero",
        ),
        ("def f(:\n", "other.py failed at other.py:1: SyntaxError: invalid syntax\n    def f(:"),
        (
            "import no_such_module\n",
            "other.py:1: ModuleNotFoundError: No module named 'no_such_modu",
        ),
        ("x = 1\n", None),
    ],
)
def test_files_that_do_not_run(run: Run, folder: Path, text: str, said: str | None) -> None:
    (folder / "other.py").write_text(text)
    if said is None:
        assert "other.py has no k. Nothing in it is a kernel" in run("other.py:k", code=2)
    else:
        assert said in run("other.py:k", code=1)


def test_nothing_is_left_behind(run: Run, folder: Path) -> None:
    before = list(sys.path)
    run("model.py:softer")
    assert sys.path == before and "model" not in sys.modules
    assert not list(folder.glob("__pycache__/model*"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "--opts '{': Expecting property name"),
        ("[]", "an object is wanted, got list"),
        ('{"local": 5}', "--opts '{\"local\": 5}': "),
        ('{"locl": {}}', "Opts has no field 'locl'"),
        ('{"local": {"0": 0}}', "axis 0 with size 0"),
    ],
)
def test_opts_that_are_none(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_opts(text, gpu=True)
    assert said in str(error.value)


def test_gpu_follows_the_target() -> None:
    assert parse_opts('{"upcast": {"0": 4}}', gpu=False) == Opts(upcast={0: 4})
    assert parse_opts('{"upcast": {"0": 4}}', gpu=True) == Opts(gpu=True, upcast={0: 4})

"""`uopc.compile`: what it takes, what a kernel gives, and what each wrong use is told, and when."""

from __future__ import annotations

import errno
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import uopc
from tests.commands import environment, own_cache
from tests.helpers import assert_same, random_array, special
from tests.kernels import along, numerator, param, product, softmax
from uopc import config, pipeline
from uopc.dtype import DATA, AddrSpace, DType, dtypes
from uopc.errors import DeviceError, SpecError, TargetError, ToolchainError, UsageError
from uopc.kernel import UNASKED, USUAL
from uopc.opts import Opts
from uopc.passes.split import split
from uopc.pipeline import LOWERING, Kernel, Pass, emulate, gpu_lower, launch_dims, render_cuda
from uopc.render_c import render_c
from uopc.runtime import cuda, nvrtc
from uopc.runtime.arrays import DeviceArray
from uopc.runtime.cache import status
from uopc.runtime.program import Program
from uopc.target import CPU, Target
from uopc.target import target as named_target
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.numbers import Array
from uopc.uop.ops import AxisType, Ops, ParamArg
from uopc.uop.oracle import evaluate
from uopc.uop.spec import Stage

DEVICES = ("cpu", "emulated", "sm_90a")
HERE = [*DEVICES, pytest.param("cuda", marks=pytest.mark.gpu)]
NO_DRIVER = "no NVIDIA driver found (libcuda). Install one; until then kernels run emulated."
SHAPE = (4, 6)
A = np.arange(24, dtype=np.float32).reshape(SHAPE)
X = param(0, *SHAPE)


@cache
def axpy(target: str) -> Kernel:
    return uopc.compile(X * 2.0 + 1.0, target=target, name="axpy")


@cache
def three(target: str) -> Kernel:
    """Outputs of three shapes, one of them 0-d."""
    return uopc.compile([X + 1.0, X.reduce(Ops.MAX, 1), X.reduce(Ops.ADD, 2)], target=target)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_unusable", lambda: NO_DRIVER)


def never(*_: object, **__: object) -> Any:
    raise AssertionError("ran a compiler")


# ---- calls
@pytest.mark.parametrize("target", HERE)
def test_a_call_returns_the_output(target: str) -> None:
    first = axpy(target)(A)
    assert_same(first, A * np.float32(2) + np.float32(1))
    axpy(target)(A + 5)
    assert_same(first, A * np.float32(2) + np.float32(1))  # another call has an array of its own


@pytest.mark.parametrize("target", HERE)
def test_out_is_written_and_returned(target: str) -> None:
    out = np.full((6, 4), 7, np.float32)  # a kernel knows flat memory: shapes may differ
    assert axpy(target)(A, out=out) is out
    assert_same(out.reshape(SHAPE), A * np.float32(2) + np.float32(1))
    assert axpy(target)(A, out=[out]) is out


@pytest.mark.parametrize("target", HERE)
def test_several_bodies_are_several_outputs(target: str) -> None:
    plus, most, total = three(target)(A)
    assert_same(plus, A + np.float32(1))
    assert_same(most, A.max(1))
    assert total.shape == () and total.dtype == np.float32 and total == 276
    outs = [np.zeros(SHAPE, np.float32), np.zeros(4, np.float32), np.zeros((), np.float32)]
    got = three(target)(A, out=tuple(outs))
    assert all(g is o for g, o in zip(got, outs, strict=True)) and outs[2] == 276


def test_inputs_are_in_slot_order_whatever_the_slots() -> None:
    body = param(7, *SHAPE) - param(2, *SHAPE)
    for target in ("cpu", "emulated"):
        kernel = uopc.compile(body, target=target)
        assert_same(kernel(A, A + 3), np.full(SHAPE, 3, np.float32))
        assert [p.slot for p in kernel.source.params] == [2, 7, 8]


def test_a_parameter_that_is_simplified_away_is_still_taken() -> None:
    x = param(0, 5, dtype=dtypes.i32)
    kernel = uopc.compile(x * 0 + 3, target="cpu")
    assert [p.slot for p in kernel.source.params] == [1]
    assert_same(kernel(np.arange(5, dtype=np.int32)), np.full(5, 3, np.int32))


WIDE = np.zeros((6, 4), np.float32)
READ_ONLY = np.zeros(SHAPE, np.float32)
READ_ONLY.flags.writeable = False
WRONG_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "no input": ((), {}, r"kernel axpy takes 1 inputs \(slots \[0\]\), got 0$"),
    "two inputs": ((A, A), {}, r"kernel axpy takes 1 inputs \(slots \[0\]\), got 2$"),
    "dtype": (
        (A.astype(np.float64),),
        {},
        r"kernel axpy, argument 0: expected f32, got float64\. Convert it with "
        r"\.astype\(np\.float32\)\.$",
    ),
    "size": (
        (A[:3],),
        {},
        r"argument 0: expected 24 elements, got 18 \(shape \(3, 6\)\)\. Sizes are part of a "
        r"kernel: pass that many, or compile the kernel for this size\.$",
    ),
    "contiguity": (
        (WIDE.T,),
        {},
        r"argument 0 is not C-contiguous: shape \(4, 6\), strides \(4, 16\)\. Pass "
        r"np\.ascontiguousarray of it\.$",
    ),
    "a list": (([1.0, 2.0],), {}, r"argument 0: expected an array of f32, got list\. Pass np\."),
    "count of out": ((A,), {"out": [A, A]}, r"the kernel has 1 outputs, out= holds 2 arrays$"),
    "dtype of out": (
        (A,),
        {"out": np.zeros(SHAPE)},
        r"argument 1: expected f32, got float64\. Convert it",
    ),
    "size of out": (
        (A,),
        {"out": np.zeros((4, 5), np.float32)},
        r"argument 1: expected 24 elements, got 20 \(shape \(4, 5\)\)",
    ),
    "contiguity of out": (
        (A,),
        {"out": WIDE.T},
        r"argument 1 is not C-contiguous: .* Pass np\.ascontiguousarray of it and copy the result",
    ),
    "out that is read-only": (
        (A,),
        {"out": READ_ONLY},
        r"argument 1 is written, but the array is read-only\. Pass a copy\.$",
    ),
    "out that is the input": (
        (A,),
        {"out": A},
        r"kernel axpy: arguments 0 and 1 overlap in memory and argument 1 is written\. Pass a copy",
    ),
}


@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls_are_told_and_write_nothing(target: str, name: str) -> None:
    inputs, keywords, says = WRONG_CALLS[name]
    before = A.copy()
    with pytest.raises(UsageError, match=says):
        axpy(target)(*inputs, **keywords)
    assert_same(A, before)
    assert not WIDE.any() and not READ_ONLY.any()


def test_two_outputs_that_overlap_are_named() -> None:
    kernel = uopc.compile([X + 1.0, X * 2.0], target="cpu")
    both = np.zeros(40, np.float32)
    with pytest.raises(UsageError, match=r"arguments 1 and 2 overlap in memory and both are writ"):
        kernel(A, out=[both[:24], both[16:]])
    assert not both.any()


# ---- what a kernel tells of itself
@pytest.mark.parametrize("target", ["emulated", "sm_90a"])
def test_what_a_gpu_kernel_tells(target: str, no_gpu: None) -> None:
    kernel = uopc.compile(X * 2.0 + 1.0, target=target, name="axpy")
    arch = "sm_80" if target == "emulated" else target
    assert (kernel.device, str(kernel.target)) == ("emulated", arch)
    assert kernel.opts.gpu and kernel.out_shapes == (SHAPE,)
    assert kernel.source.language == ("emulated" if target == "emulated" else "cuda")
    assert kernel.source.name == "axpy"
    shown = [(p.slot, p.dtype, p.size, p.written) for p in kernel.source.params]
    assert shown == [(0, dtypes.f32, 24, False), (1, dtypes.f32, 24, True)]
    assert kernel.launch_dims == kernel.steps[0].launch_dims == ((1, 1, 1), (32, 1, 1))
    used = kernel.resources
    assert 4 <= used.registers <= 32 and used.shared_bytes == 0 and not used.spills
    assert kernel.cubin.startswith(b"\x7fELF") and b"axpy" in kernel.cubin
    assert f".target {arch}" in kernel.ptx and ".entry axpy(" in kernel.ptx
    assert re.search(r"\bFMUL|\bFADD|\bFFMA", kernel.sass)
    (step,) = kernel.steps
    assert "__global__" in step.cuda_source and step.cubin.resources == used
    assert repr(kernel) == f"Kernel(axpy, emulated, {arch}, {kernel.opts})"


def test_what_a_cpu_kernel_tells() -> None:
    kernel = axpy("cpu")
    assert (kernel.device, kernel.target) == ("cpu", CPU)
    assert not kernel.opts.gpu and kernel.source.language == "c"
    assert kernel.source.startswith("int axpy(void** args) {") and len(kernel.steps) == 1


@pytest.mark.parametrize("name", ["launch_dims", "cubin", "ptx", "sass", "resources"])
def test_gpu_only_attributes_of_a_cpu_kernel(name: str) -> None:
    said = rf"Kernel\.{name} is for GPU targets, this kernel is for cpu\. Compile it with target='"
    with pytest.raises(UsageError, match=said):
        getattr(axpy("cpu"), name)
    if name == "cubin":
        with pytest.raises(UsageError, match=r"kernel axpy is for cpu; CUDA text and a cubin need"):
            _ = axpy("cpu").steps[0].cubin


@pytest.mark.parametrize("target", ["cpu", "emulated", "sm_90a"])
def test_the_source_that_is_read_has_the_user_s_lines(target: str) -> None:
    assert re.search(r"// \S*test_pipeline\.py:\d+$", axpy(target).source, re.M)
    assert "test_pipeline.py" not in axpy(target).steps[0].source  # what is compiled and cached


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_explain_lists_every_pass_in_order(target: str) -> None:
    text = three(target).explain()
    found = re.findall(r"^-- (\w+)$", text, re.M)
    assert found == ["index", *(p.name for p in LOWERING if p.wanted(USUAL))]
    assert text.startswith(f"step 0: kernel for {target}\n{three(target).opts}\n")
    graphs = re.split(r"^-- \w+\n", text, flags=re.M)[1:]
    assert all("SINK" in graph for graph in graphs)
    assert "RANGE 4 LOOP" in graphs[0] and "AFTER" not in graphs[0] and "AFTER" in graphs[-1]


# ---- sums split over the grid
@cache
def total() -> Kernel:
    return uopc.compile(param(0, 100_003).reduce(Ops.ADD, 1), target="sm_90a", name="total")


def test_a_long_sum_is_folded_by_its_last_block(rng: np.random.Generator) -> None:
    (step,) = total().steps
    (blocks, _, _), (threads, _, _) = step.launch_dims
    assert blocks > 1 and threads >= 128
    assert [p.size for p in step.source.params] == [100_003, 1, blocks, 1]
    assert [p.slot for p in step.source.params if p.slot in total().counters] == [3]
    assert step.cubin.code.startswith(b"\x7fELF") and not step.cubin.resources.spills
    x = rng.standard_normal(100_003).astype(np.float32)
    got = total()(x)
    bound = 64 * 2.0**-24 * np.abs(x).sum(dtype=np.float64)
    assert abs(float(got) - x.sum(dtype=np.float64)) <= bound
    assert_same(total()(x), got)  # the same tree every time
    whole = np.ones(100_003, np.float32)
    assert total()(whole) == 100_003


# ---- sums of more than one reduction, split over the grid: a launch for each half
@cache
def halves() -> Kernel:
    body = param(0, 600, 5).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1)
    return uopc.compile(body, Opts(gpu=True, blocks={1: 3}, local={1: 32}), "sm_90a", "total")


def test_a_sum_of_maxima_is_two_steps(rng: np.random.Generator) -> None:
    first, second = halves().steps
    assert first.launch_dims[0] == (3, 1, 1) and second.launch_dims[0] == (1, 1, 1)
    assert (first.source.name, second.source.name) == ("total_part0", "total")
    assert [p.size for p in first.source.params if p.written] == [3]
    assert [p.size for p in second.source.params] == [1, 3]
    x = rng.standard_normal((600, 5)).astype(np.float32)
    np.testing.assert_allclose(halves()(x), x.max(1).sum(dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", ["source", "launch_dims", "cubin", "ptx", "sass", "resources"])
def test_attributes_of_one_step_ask_for_the_step(name: str) -> None:
    said = rf"the kernel has 2 steps; ask each one: \[s\.{name} for s in kernel\.steps\]"
    with pytest.raises(UsageError, match=said):
        getattr(halves(), name)


def test_a_step_is_explained_after_the_other() -> None:
    text = halves().explain()
    assert text.index("step 0: total_part0 for sm_90a") < text.index("step 1: total for sm_90a")
    assert text.count("-- legalise") == 2


def test_opts_split_a_reduction_where_they_name_its_blocks(rng: np.random.Generator) -> None:
    x = random_array(rng, dtypes.f32, (3, 200))
    kernel = uopc.compile(
        param(0, 3, 200).reduce(Ops.ADD, 1), Opts(gpu=True, blocks={1: 5}, local={1: 8}), "sm_80"
    )
    assert kernel.launch_dims[0] == (5, 3, 1) and len(kernel.partials) == 2
    assert_same(kernel(x), x.sum(1))


@pytest.mark.parametrize("n", [10_000_019, 5_000_000_000])
def test_what_would_spill_keeps_its_blocks(n: int) -> None:
    """The candidate after one that spills is the same mapping, not one block for everything."""
    kernel = uopc.compile(param(0, n).reduce(Ops.ADD, 1), target="sm_90a")
    assert kernel.launch_dims[0][0] >= 132 and not kernel.resources.spills


def test_explicit_opts_may_spill_and_it_is_reported() -> None:
    opts = Opts(gpu=True, local={1: 1024}, upcast={1: 96})
    kernel = uopc.compile(softmax(param(0, 2, 98304)), opts, "sm_80")
    assert kernel.opts == opts and kernel.resources.spills
    assert "spills" in str(kernel.resources) and kernel.resources.spill_store_bytes > 0


# ---- targets
@pytest.mark.parametrize(
    ("target", "device", "language", "arch"),
    [
        ("cpu", "cpu", "c", "cpu"),
        ("emulated", "emulated", "emulated", "sm_80"),
        ("sm_75", "emulated", "cuda", "sm_75"),
        ("sm_90a", "emulated", "cuda", "sm_90a"),
        (Target("cpu"), "cpu", "c", "cpu"),
        (named_target("sm_120"), "emulated", "cuda", "sm_120"),
        (Target("sm_80", sm=80, sms=2), "emulated", "cuda", "sm_80"),
    ],
    ids=str,
)
def test_words_for_targets(
    no_gpu: None, target: str | Target, device: str, language: str, arch: str
) -> None:
    kernel = uopc.compile(X * 2.0 + 1.0, target=target)
    found = (kernel.device, kernel.source.language, str(kernel.target))
    assert found == (device, language, arch)
    if isinstance(target, Target):
        assert kernel.target is target and kernel.source.target == target


def test_the_default_is_emulated_without_a_gpu(no_gpu: None) -> None:
    kernel = uopc.compile(X + 1.0)
    assert (kernel.device, str(kernel.target)) == ("emulated", "sm_80")
    with environment(UOPC_DEVICE="cpu"):
        assert uopc.compile(X + 1.0).device == "cpu"


def test_cuda_without_a_gpu_is_one_line(no_gpu: None) -> None:
    with pytest.raises(DeviceError) as error:
        uopc.compile(X + 1.0, target="cuda")
    assert str(error.value) == NO_DRIVER and "\n" not in NO_DRIVER


@pytest.mark.parametrize("target", ["gpu", "sm_42", "sm_90b", "", 80])
def test_unknown_targets(target: Any) -> None:
    with pytest.raises(UsageError, match=rf"no target is called {target!r}; there are cpu, sm_75,"):
        uopc.compile(X + 1.0, target=target)


def test_a_target_decides_what_is_chosen() -> None:
    """Two SMs are filled by fewer, larger blocks than 132."""
    body = param(0, 1 << 16) * 2.0
    few = uopc.compile(body, target=Target("sm_80", sm=80, sms=2))
    many = uopc.compile(body, target="sm_90")
    assert few.launch_dims[0][0] < many.launch_dims[0][0]


def test_threads_of_a_cpu_take_shares_that_need_no_guard() -> None:
    text = uopc.compile(param(0, 1000, 1000) * 2.0, target="cpu").steps[0].source
    assert "#pragma omp parallel for" in text and "if (" not in text and "?" not in text
    prime = uopc.compile(param(0, 1_000_003) * 2.0, target="cpu").steps[0].source
    assert "< 1000003" in prime


# ---- checked calls
@pytest.mark.parametrize("target", ["emulated", "sm_90a"])
@pytest.mark.parametrize("check", [True, False])
def test_check_is_what_is_asked_for(no_gpu: None, target: str, check: bool) -> None:
    """Else what the environment says."""
    body = X.reduce(Ops.ADD, 1)
    with environment(UOPC_CHECK=str(int(not check))):
        kernel = uopc.compile(body, target=target, check=check)
        usual = uopc.compile(body, target=target)
    assert kernel.steps[0].runs.checked is check and usual.steps[0].runs.checked is not check
    assert ("emu_output(" in kernel.source) is (check and target == "emulated")
    assert np.array_equal(kernel(A), A.sum(1))


def test_every_step_is_checked(no_gpu: None) -> None:
    opts = Opts(gpu=True, blocks={1: 3}, local={1: 32})
    body = param(0, 2, 960, 2).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1)
    kernel = uopc.compile(body, opts, "emulated", check=True)
    assert [step.runs.checked for step in kernel.steps] == [True, True]


def test_what_is_not_emulated_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as error:
        uopc.compile(X + 1.0, target="cpu", name="axpy", check=True)
    assert str(error.value) == (
        "kernel axpy is to be checked (check=True), but would be native code without GPU threads: "
        "only emulated kernels are checked. Compile it with target='emulated', or pass its body to "
        "uopc.check."
    )
    assert uopc.compile(X + 1.0, target="cpu", check=False).device == "cpu"
    monkeypatch.setattr(cuda, "why_unusable", lambda: "")
    monkeypatch.setattr(cuda, "device_target", lambda: named_target("sm_90a"))
    for target in ("cuda", "sm_90a"):
        with pytest.raises(UsageError, match="would be launched on this machine's sm_90a: only"):
            uopc.compile(X + 1.0, target=target, check=True)


# ---- bodies and Opts that do not fit
def test_what_is_no_body() -> None:
    with pytest.raises(UsageError, match=r"there is no body: pass a UOp, or a list of them"):
        uopc.compile([])
    with pytest.raises(UsageError, match=r"a body is a UOp, got str"):
        uopc.compile([X, "x"])  # type: ignore[list-item]
    loaded = buffer(0, dtypes.f32, (4,)).index(0).load()
    with pytest.raises(
        SpecError, match=r"TENSOR: INDEX at test_pipeline\.py:\d+: this stage has n"
    ):
        uopc.compile(loaded)
    with pytest.raises(UsageError, match=r"a kernel cannot be called 'float'"):
        uopc.compile(X, target="cpu", name="float")


def test_one_slot_of_two_sizes() -> None:
    with pytest.raises(
        UsageError, match=r"slot 0 is both f32 of 24 elements .* and f32 of 5 \(test_pip"
    ):
        uopc.compile([X + 1.0, buffer(0, dtypes.f32, (5,)) * 2.0], target="cpu")


def test_opts_for_the_other_kind_of_target() -> None:
    with pytest.raises(
        UsageError, match=r"Opts\(\) is for a CPU, the target is sm_80\. Set Opts\.g"
    ):
        uopc.compile(X + 1.0, Opts(), "sm_80")
    with pytest.raises(UsageError, match=r"for a GPU, the target is cpu\. Set Opts\.gpu=False"):
        uopc.compile(X + 1.0, Opts(gpu=True), "cpu")


def test_a_cpu_has_no_shared_memory() -> None:
    with pytest.raises(UsageError, match=r"Opts\.keep='shared' needs gpu=True: only a GPU has sha"):
        Opts(keep="shared")


ROWS = X.reduce(Ops.ADD, 1)  # axes 0, and 1 that is reduced
LONG_ROWS = softmax(param(0, 2, 60_000))
UNFIT: dict[str, tuple[UOp, Opts, type[Exception], str]] = {
    "unknown axis": (
        X + 1.0,
        Opts(gpu=True, local={5: 2}),
        UsageError,
        r"Opts\.local=\{5: 2\}: the kernel has axes 0 to 1, no axis 5",
    ),
    "upcast of a missing axis": (
        ROWS,
        Opts(gpu=True, upcast={2: 2}),
        UsageError,
        r"Opts\.upcast=\{2: 2\}: the kernel has axes 0 to 1, no axis 2",
    ),
    "unknown lane": (
        X + 1.0,
        Opts(gpu=True, lanes=(4,)),
        UsageError,
        r"Opts\.lanes: the kernel has axes 0 to 1, no axis 4",
    ),
    "merge": (
        X + 1.0,
        Opts(gpu=True, merge=(3,)),
        UsageError,
        r"Opts\.merge=\(3,\) groups 3 axes, the output has 2: \(4, 6\)",
    ),
    "loop of a reduced axis": (
        ROWS,
        Opts(gpu=True, loop={1: 2}),
        UsageError,
        r"Opts\.loop=\{1: 2\}: axis 1 is reduced, its rest is the loop\. Use tile, or blocks",
    ),
    "loop on a cpu": (X + 1.0, Opts(loop={0: 2}), UsageError, r"Opts\.loop=\{0: 2\}: on a CPU"),
    "thread of a reduced axis": (
        ROWS,
        Opts(thread=1),
        UsageError,
        r"Opts\.thread=1: axis 1 is reduced; only output axes run on threads",
    ),
    "thread of no axis": (ROWS, Opts(thread=2), UsageError, r"Opts\.thread: the kernel has axes"),
    "local beyond 1024": (
        X + 1.0,
        Opts(gpu=True, local={0: 64, 1: 32}),
        TargetError,
        r"Opts\.local=\{0: 64, 1: 32\} makes 2048 threads a block, the limit is 1024",
    ),
    "shared memory beyond the target": (
        LONG_ROWS,
        Opts(gpu=True, local={1: 256}, keep="shared"),
        TargetError,
        r"kernel kernel wants 240704 bytes of shared memory a block, sm_80 has 166912\. Lower "
        r"Opts\.local, upcast or vector, or keep rows elsewhere \(Opts\.keep\); of an Opts\.plan "
        r"lower depth or the block's sizes\.",
    ),
    "blocks of a missing axis": (
        X.reduce(Ops.ADD, 2),  # one axis: neighbours that every access walks as one are merged
        Opts(gpu=True, blocks={0: 2, 1: 2}),
        UsageError,
        r"Opts\.blocks=\{1: 2\}: the kernel has axes 0 to 0, no axis 1",
    ),
    "two axes split": (
        X.permute((1, 0)).reduce(Ops.ADD, 2),
        Opts(gpu=True, blocks={0: 2, 1: 2}),
        UsageError,
        r"Opts\.blocks splits reduced axes \[0, 1\]; one reduction is split at a time",
    ),
    "a split of reductions that follow each other": (
        softmax(X),
        Opts(gpu=True, blocks={1: 2}),
        UsageError,
        r"Opts\.blocks=\{1: 2\}: a reduction of axis 1 depends on another over it",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_opts_that_do_not_fit_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compile` says so, before any compiler runs."""
    body, opts, kind, says = UNFIT[name]
    monkeypatch.setattr(subprocess, "run", never)
    monkeypatch.setattr(nvrtc, "compile_cubin", never)
    with pytest.raises(kind, match=says):
        uopc.compile(body, opts, "sm_80" if opts.gpu else "cpu")


def test_the_shared_memory_that_one_target_has() -> None:
    body, opts = softmax(param(0, 2, 50_000)), Opts(gpu=True, local={1: 256}, keep="shared")
    kernel = uopc.compile(body, opts, "sm_90a")
    assert kernel.source.dynamic_shared_bytes == kernel.source.shared_bytes == 196 * 1024 + 64
    with pytest.raises(TargetError, match=r"wants 200768 bytes .* sm_80 has 166912\."):
        uopc.compile(body, opts, "sm_80")


def test_a_parameter_space_that_is_too_small() -> None:
    body = param(0, 2)
    for slot in range(1, 700):
        body = body + param(slot, 2)
    assert len(uopc.compile(body, target="sm_75").source.params) == 701
    small = Target("sm_75", sm=75, parameter_bytes=4096)
    says = r"kernel kernel has 5608 bytes of parameters, sm_75 takes 4096\. Split it into kernels"
    with pytest.raises(TargetError, match=says):
        uopc.compile(body, target=small)


def test_gpu_lower_makes_one_kernel() -> None:
    out = buffer(1, dtypes.f32, (4,))
    says = r"Opts\.blocks=\{1: 3\} splits the reduced axis 1 over blocks, which takes two kernels\."
    with pytest.raises(UsageError, match=says + r" Use uopc\.compile, or leave it out\."):
        gpu_lower(ROWS, out, Opts(gpu=True, blocks={1: 3}))
    with pytest.raises(UsageError, match=r"gpu_lower wants Opts\(gpu=True, \.\.\.\), got Opts\(\)"):
        gpu_lower(ROWS, out, Opts())


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (buffer(1, dtypes.f32, (5,)), r"body has 4 elements, shape \(4,\) .*; output slot 1 has 5"),
        (buffer(1, dtypes.f16, (4,)), r"the body is f32 .*, output slot 1 is f16\. Cast the body"),
        (X, r"the body has 4 elements, shape \(4,\) .*; output slot 0 has 24"),
        (X + 1.0, r"an output is a BUFFER, got ADD \(test_pipeline\.py:\d+\)"),
    ],
    ids=["size", "dtype", "slot", "op"],
)
def test_outputs_that_do_not_fit(out: UOp, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        gpu_lower(ROWS, out, Opts(gpu=True))


# ---- sizes that are nothing, or one
@pytest.mark.parametrize("target", ["cpu", "emulated", "sm_90a"])
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0, 2)], ids=str)
def test_zero_size_work_never_runs(target: str, shape: tuple[int, ...]) -> None:
    x, nothing = param(0, *shape), np.zeros(shape, np.float32)
    with environment(UOPC_CC="/no/such/cc"):  # no compiler is missed
        out = uopc.compile(x + 1.0, target=target)(nothing)
        assert out.shape == shape and out.dtype == np.float32
        if len(shape) == 3:
            assert uopc.compile(x.reduce(Ops.ADD, 1), target=target)(nothing).shape == (3, 0)


@pytest.mark.parametrize("target", ["cpu", "emulated"])
def test_sums_and_products_of_nothing(target: str) -> None:
    x = param(0, 3, 0)
    bodies = [x.reduce(Ops.ADD, 1), x.reduce(Ops.MUL, 1), x.reduce(Ops.ADD, 2)]
    sums, products, one = uopc.compile(bodies, target=target)(np.zeros((3, 0), np.float32))
    assert_same(sums, np.zeros(3, np.float32))
    assert_same(products, np.ones(3, np.float32))
    assert one.shape == () and one == 0


@pytest.mark.parametrize("target", HERE)
def test_a_product_over_nothing_is_zeros(target: str) -> None:
    kernel = uopc.compile(product(3, 4, 0), target=target)
    got = kernel(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32))
    assert_same(got, np.zeros((3, 4), np.float32))


@cache
def scaled(target: str) -> Kernel:
    return uopc.compile(X * buffer(1, dtypes.f32, ()) + 1.0, target=target, name="scaled")


@pytest.mark.parametrize("target", HERE)
def test_a_0d_parameter_is_a_scalar_by_value(target: str) -> None:
    assert [p.scalar for p in scaled(target).source.params] == [False, True, False]
    for scale in (2.0, 3, np.float32(4), np.asarray(5, np.float32)):
        assert_same(scaled(target)(A, scale), A * np.float32(scale) + np.float32(1))


@pytest.mark.parametrize("target", ["cpu", "emulated"])
def test_another_scalar_needs_no_compile(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scaled(target)(A, 1.0)
    monkeypatch.setattr(subprocess, "run", never)
    for scale in (-2.5, 1e30):
        assert_same(scaled(target)(A, scale), A * np.float32(scale) + np.float32(1))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("two", r"argument 1: expected a f32 scalar, got str 'two'\."),
        (
            np.float64(2),
            r"argument 1: expected a f32 scalar, got float64\. Convert it with np\.flo",
        ),
        (
            np.zeros(1, np.float32),
            r"argument 1: expected a f32 scalar, got shape \(1,\)\. Pass one",
        ),
    ],
    ids=["str", "float64", "array"],
)
def test_scalars_that_do_not_fit(value: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scaled("cpu")(A, value)


@pytest.mark.parametrize("target", ["cpu", "emulated"])
def test_bodies_without_an_array(target: str) -> None:
    bodies = [UOp.const(2.5), UOp.const(3, dtypes.i8, (4,)), UOp.arange(5) * 2]
    one, threes, even = uopc.compile(bodies, target=target)()
    assert one.shape == () and one == 2.5 and one.dtype == np.float32
    assert_same(threes, np.full(4, 3, np.int8))
    assert_same(even, np.arange(0, 10, 2, dtype=np.int32))


# ---- dtypes
@pytest.mark.parametrize("target", HERE)
@pytest.mark.parametrize("dtype", DATA, ids=str)
def test_every_dtype(target: str, dtype: DType) -> None:
    x = special(dtype)
    n = len(x)
    a, b = param(0, n, dtype=dtype), param(1, n, dtype=dtype)
    bodies = [a.flip((0,)), a.cast(dtypes.f32)]
    if not dtype.storage:
        bodies += [a.maximum(b), a.eq(b), a.reduce(Ops.MAX, 1)]
        bodies += [a & b] if dtype is dtypes.bool else [a + b, a * b, -a]
    got = uopc.compile(bodies, target=target)(x, *([] if dtype.storage else [x[::-1].copy()]))
    with np.errstate(all="ignore"):
        want = evaluate(bodies, {0: x, 1: x[::-1].copy()})
    for g, w in zip(got, want, strict=True):
        assert_same(g, w)


def test_narrow_floats_are_those_of_ml_dtypes() -> None:
    x = param(0, 3, dtype=dtypes.bf16) * 3.0
    got = uopc.compile(x, target="emulated")(np.array([1.0, 1.0078125, -2.0], ml_dtypes.bfloat16))
    assert_same(got, np.array([3.0, 3.03125, -6.0], ml_dtypes.bfloat16))
    y = param(0, 3).cast(dtypes.f8e4m3)
    assert uopc.compile(y, target="cpu")(np.array([1e9, 0.3, np.nan], np.float32)).tolist()[:2] == [
        448.0,
        0.3125,
    ]


# ---- hand-written loop IR
def reversed_ir(outer: AxisType, inner: AxisType) -> UOp:
    """p1[i] = p0[11 - i], i = 4 * i0 + i1."""
    p0, p1 = buffer(0, dtypes.i32, (12,)), buffer(1, dtypes.i32, (12,))
    i0, i1 = range_(3, 0, outer), range_(4, 1, inner)
    at = i0 * 4 + i1
    store = p1.index(at).store(p0.index(at * -1 + 11).load())
    return sink(store.end(*(r for r, k in ((i0, outer), (i1, inner)) if k is AxisType.LOOP)))


@pytest.mark.parametrize(
    ("outer", "inner", "dims"),
    [
        (AxisType.GLOBAL, AxisType.LOCAL, ((3, 1, 1), (4, 1, 1))),
        (AxisType.GLOBAL, AxisType.LOOP, ((3, 1, 1), (1, 1, 1))),
        (AxisType.LOCAL, AxisType.GLOBAL, ((4, 1, 1), (3, 1, 1))),
    ],
)
def test_hand_written_loops_for_a_gpu(outer: AxisType, inner: AxisType, dims: Any) -> None:
    root = reversed_ir(outer, inner)
    assert launch_dims(root) == dims
    text = render_cuda(root, "turn", "sm_75")
    assert text.startswith('extern "C" __global__ void __launch_bounds__(')
    x, out = np.arange(12, dtype=np.int32), np.zeros(12, np.int32)
    Program(emulate(root, "turn"), "turn")(x, out)
    assert_same(out, x[::-1])
    with pytest.raises(UsageError, match=r"kernel turn is cuda text, a Program runs C\. Launch it"):
        Program(text)


def test_hand_written_loops_for_a_cpu() -> None:
    root = reversed_ir(AxisType.LOOP, AxisType.LOOP)
    x, out = np.arange(12, dtype=np.int32), np.zeros(12, np.int32)
    Program(render_c(root, "turn"))(x, out)
    assert_same(out, x[::-1])


def test_hand_written_loops_that_break_the_tables() -> None:
    p, i = buffer(0, dtypes.i32, (12,)), range_(12, 0)
    store = p.index(i).store(1)
    with pytest.raises(SpecError, match=r"mentions range .*, which no END closes around it"):
        emulate(sink(store), "open")
    with environment(UOPC_CHECK_SPEC="1"), pytest.raises(SpecError, match="LOOPS: "):
        emulate(sink(p.reduce(Ops.ADD, 1)), "shaped")


# ---- threads, cache, missing tools
def together(jobs: Sequence[Callable[[], None]]) -> None:
    """Run the jobs at once; raise what the first of them raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        start.wait()
        try:
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_compile_and_call_at_once(tmp_path: Path) -> None:
    """Eight threads build, compile and call: two of each kernel, and one kernel by all of them."""
    shared = uopc.compile(X - 1.0, target="emulated")
    results: dict[int, tuple[Array, Array]] = {}

    def job(n: int) -> Callable[[], None]:
        def run() -> None:
            body = along(param(0, *SHAPE).reduce(Ops.ADD, 1), X) * float(n % 4)
            kernel = uopc.compile(body, target="cpu" if n % 2 else "emulated")
            results[n] = kernel(A + n), shared(A + n)

        return run

    with own_cache(tmp_path):
        together([job(n) for n in range(8)])
    assert sorted(results) == list(range(8))
    for n, (sums, less) in results.items():
        assert_same(less, A + np.float32(n - 1))
        want = (A + np.float32(n)).sum(1, keepdims=True) * np.float32(n % 4)
        assert_same(sums, np.broadcast_to(want, SHAPE).copy())


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Path]:
    """A cache that holds nothing yet."""
    with own_cache(tmp_path / "cold"):
        yield tmp_path / "cold"


@pytest.mark.parametrize("target", ["cpu", "emulated"])
def test_the_second_compile_of_a_body_is_a_hit(
    cold: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Kernel:
        return uopc.compile(param(0, *SHAPE) * 2.0 + 1.0, target=target)

    first = build()(A)
    assert (status().entries, status().hits) == (1, 0)
    monkeypatch.setattr(subprocess, "run", never)
    assert_same(build()(A), first)
    assert (status().entries, status().hits) == (1, 1)


def test_a_cubin_is_cached_too(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = uopc.compile(X * 2.0, target="sm_80").cubin
    assert ".cubin" in {p.suffix for p in cold.iterdir()}
    monkeypatch.setattr(nvrtc, "_nvrtc", never)
    assert uopc.compile(X * 2.0, target="sm_80").cubin == first


def test_every_compile_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with environment(UOPC_DEBUG="1", UOPC_CACHE_DIR=str(tmp_path)):
        kernel = uopc.compile(X * 3.0, target="sm_80", name="tripled")
        said = capfd.readouterr().err
        assert re.fullmatch(r"uopc: compiled tripled .*sm_80.* in \d+\.\d ms\n", said)
        kernel(A)
        said = capfd.readouterr().err
        assert re.fullmatch(r"uopc: compiled tripled with \S+ in \d+\.\d ms\n", said)
        kernel(A + 1)  # nothing is new
        uopc.compile(X * 3.0, target="sm_80", name="tripled")(A)
        assert capfd.readouterr().err == ""
        uopc.compile(param(0, 4, 7) * 3.0, target="cpu", name="tripled")(np.zeros(28, np.float32))
        assert "uopc: compiled tripled with " in capfd.readouterr().err  # another shape


def _full(folder: Path, patch: pytest.MonkeyPatch) -> str:
    def no_space(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    patch.setattr(tempfile, "mkstemp", no_space)
    return str(folder)


BROKEN: dict[str, Callable[[Path, pytest.MonkeyPatch], str]] = {
    "full": _full,
    "read-only": lambda folder, patch: "/proc/uopc",  # where even root creates nothing
    "a file in its place": lambda folder, patch: str(Path(__file__)),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_cache_that_fails_never_fails_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder = BROKEN[how](tmp_path, monkeypatch)
    with environment(UOPC_CACHE_DIR=folder):
        for target in ("cpu", "sm_80"):
            kernel = uopc.compile(X * 5.0, target=target)
            assert_same(kernel(A), A * np.float32(5))
            assert target == "cpu" or kernel.cubin.startswith(b"\x7fELF")
        said = status().problem
        assert said.startswith(f"cannot write {folder}") or said.startswith(f"cannot read {folder}")


def test_without_a_c_compiler_all_but_the_call_works(cold: Path, no_gpu: None) -> None:
    with environment(UOPC_CC="/no/such/cc", UOPC_CACHE_DIR=str(cold)):
        for target in ("cpu", "emulated", "sm_90a"):
            kernel = uopc.compile(X * 7.0, target=target)
            assert "kernel(" in kernel.source and kernel.explain()
            if target != "cpu":
                assert kernel.cubin.startswith(b"\x7fELF") and kernel.resources.registers > 0
            with pytest.raises(ToolchainError) as error:
                kernel(A)
            assert str(error.value) == (
                "no C compiler found: UOPC_CC is '/no/such/cc'. Install gcc or clang, or set "
                "UOPC_CC to a compiler's path."
            )
        with pytest.raises(
            DeviceError, match=r"no device is usable\. cuda: no NVIDIA .* cpu: no C"
        ):
            uopc.compile(X * 7.0)


# ---- the spec, between all passes
def test_every_stage_is_checked_where_it_is_asked_for() -> None:
    x, y = param(0, 33, 100), param(1, 33, 100)
    bodies: list[UOp | list[UOp]] = [
        x * 2.0 + 1.0,
        x.permute((1, 0)).reduce(Ops.ADD, 1),
        softmax(x),
        numerator(x.cast(dtypes.f16)),
        x.argmax(1),
        product(20, 30, 40),
        (x.pad(((1, 1), (0, 3))).flip((0,)).reshape((35 * 103,)) + 1.0).reduce(Ops.MAX, 1),
        [x + y, (x * y).reduce(Ops.ADD, 1), x.ne(y)],
        param(0, 70_001).reduce(Ops.ADD, 1),
        UOp.const(1.0),
        param(0, 0, 4) + 1.0,
        buffer(0, dtypes.f32, ()) * 2.0,
    ]
    with environment(UOPC_CHECK_SPEC="1"):
        assert config.current().check_spec
        for body in bodies:
            for target in ("cpu", "sm_75", "sm_90a"):
                assert uopc.compile(body, target=target).steps[-1].source
        for opts in (
            Opts(gpu=True, local={0: 3, 1: 16}, vector={1: 2}, upcast={0: 2}, keep="shared"),
            Opts(gpu=True, local={1: 64}, unroll=2, keep="none", early=False),
            Opts(gpu=True, tile={1: 5}, loop={0: 3}, local={0: 8}),
        ):
            assert uopc.compile(softmax(x), opts, "sm_80").source


def test_a_pass_that_breaks_its_stage_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the spec is checked: `split` that leaves the graph as it is, for a GPU."""
    assert LOWERING[1].run is split
    lazy = Pass("split", lambda root, opts, fired=UNASKED: root, Stage.LOOPS, "to be found")
    monkeypatch.setattr(pipeline, "LOWERING", (LOWERING[0], lazy, *LOWERING[2:]))
    with environment(UOPC_CHECK_SPEC="1"), pytest.raises(SpecError, match="LOOPS: REDUCE at "):
        uopc.compile(ROWS, Opts(gpu=True), "sm_80")


def test_shared_memory_of_a_hand_written_kernel() -> None:
    """A limit that no Opts set is found when the text is made."""
    tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (50_000,), AddrSpace.SHARED, "tile"))
    lane = range_(32, 0, AxisType.LOCAL)
    filled = tile.index(lane).store(1.0).barrier()
    out = buffer(0, dtypes.f32, (32,)).index(lane)
    root = sink(out.store(tile.after(filled).index(lane).load()))
    assert render_cuda(root, "big", "sm_90").dynamic_shared_bytes == 200_000
    for render in (render_cuda, emulate):
        with pytest.raises(
            TargetError, match=r"kernel big wants 200000 bytes of shared memory a b"
        ):
            render(root, "big", target="sm_80")


@pytest.mark.gpu
def test_outputs_stay_where_the_inputs_are() -> None:
    gpu = cuda.open_device()
    there = gpu.to_device(A)
    made = axpy("cuda")(there)
    assert isinstance(made, DeviceArray) and made.shape == SHAPE
    assert np.array_equal(gpu.to_host(made), 2 * A + 1)
    assert isinstance(axpy("cuda")(A), np.ndarray)

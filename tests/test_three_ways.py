"""One kernel, three ways: oracle, emulated GPU and native CPU agree on random kernels and Opts.

`scratch/fuzz_kernels.py` runs thousands of the same kernels.
"""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels import param
from tests.random_kernels import Case, random_case
from tests.three_ways import REFUSED, agree, compare, random_opts, run_kernel, sum_bound
from uopc import config
from uopc.dtype import dtypes
from uopc.errors import TargetError, UsageError
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops
from uopc.uop.oracle import evaluate

DRAWN = st.randoms(use_true_random=False)
FEW = settings(max_examples=50, suppress_health_check=[*HealthCheck])


def checked(case: Case, opts: Opts | None, target: str) -> None:
    """`agree` with every stage checked.

    tcc, where it is installed, compiles what is emulated: that runs once.  Native C is compiled as
    it is for users, for what an optimiser makes of it.
    """
    tcc = "tcc" if target != "cpu" and shutil.which("tcc") else ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UOPC_CC", tcc)
        patch.setenv("UOPC_CHECK_SPEC", "1")
        patch.setenv("UOPC_CACHE_MB", "0")
        config.current.cache_clear()
        try:
            agree(case, opts, target)
        finally:
            config.current.cache_clear()


@FEW
@given(DRAWN)
def test_random_opts_on_an_emulated_gpu(rng: random.Random) -> None:
    case = random_case(rng, most=1000)
    checked(case, random_opts(rng, case.bodies, gpu=True), "emulated")


@FEW
@given(DRAWN)
def test_random_opts_on_a_cpu(rng: random.Random) -> None:
    case = random_case(rng, most=1000)
    checked(case, random_opts(rng, case.bodies, gpu=False), "cpu")


@FEW
@given(DRAWN)
def test_automatic_opts(rng: random.Random) -> None:
    case = random_case(rng, most=1000)
    for target in ("emulated", "cpu"):
        checked(case, None, target)


@pytest.mark.parametrize("target", ["emulated", "cpu"])
@pytest.mark.parametrize("seed", range(40))
def test_kernels_of_fixed_seeds(seed: int, target: str) -> None:
    """The same in every run, so that a change of a pass shows here first."""
    case = random_case(random.Random(seed), most=2000)
    checked(case, random_opts(random.Random(seed), case.bodies, gpu=target != "cpu"), target)


@settings(FEW, max_examples=12)
@given(DRAWN)
def test_nvrtc_takes_random_kernels_and_registers_suffice(rng: random.Random) -> None:
    case = random_case(rng, most=1000)
    kernel = compile(list(case.bodies), None, "sm_90a")
    reduced = any(u.op in (Ops.SIN, Ops.COS, Ops.TAN) for u in toposort(*case.bodies))
    for step in kernel.steps:
        used = step.cubin.resources
        assert not used.spills and not used.remarks, (step.opts, used)
        assert reduced or not used.stack_bytes, (step.opts, used)  # CUDA's argument reduction


@settings(FEW, max_examples=12)
@given(DRAWN)
def test_nvrtc_takes_random_kernels_under_random_opts(rng: random.Random) -> None:
    """Explicit Opts may spill: the log says so, and the text is right all the same."""
    case = random_case(rng, most=1000)
    opts = random_opts(rng, case.bodies, gpu=True)
    try:
        kernel = compile(list(case.bodies), opts, "sm_80")
    except (TargetError, UsageError) as error:
        assert isinstance(error, TargetError) or any(r in str(error) for r in REFUSED)
        return
    assert all(0 < s.cubin.resources.registers <= 255 for s in kernel.steps)


def test_a_vector_of_two_bytes_is_a_scalar_for_cuda() -> None:
    """Zeros of a wide copy: `uint4{}`, but 0 where the vector fits a plain type."""
    x = param(0, 33, dtype=dtypes.f8e5m2)
    kernel = compile(x.flip((0,)).flip((0,)).pad(((1, 0),)), Opts(gpu=True, vector={0: 2}), "sm_80")
    even = compile(x.pad(((2, 0),)), Opts(gpu=True, vector={0: 2}), "sm_80")
    assert all(k.resources.registers for k in (kernel, even))
    assert "(unsigned short*)" in even.steps[0].source


# ---- what fuzzing found
def check(bodies: UOp | list[UOp], arrays: list[object], opts: Opts | None, target: str) -> None:
    made = [bodies] if isinstance(bodies, UOp) else bodies
    agree(
        Case(tuple(made), {i: np.asarray(a) for i, a in enumerate(arrays)}, "exact"), opts, target
    )


@pytest.mark.parametrize("target", ["emulated", "cpu"])
def test_one_element_is_a_sum_too(target: str) -> None:
    """A sum of -0.0 is +0.0, over one element and over one element a thread."""
    for n in (1, 32):
        x = np.full((4, n), -0.0, np.float32)
        check(param(0, 4, n).reduce(Ops.ADD, 1), [x], None, target)


@pytest.mark.parametrize("target", ["emulated", "cpu"])
def test_a_choice_that_folds_takes_its_axes_along(target: str) -> None:
    """The padded part is all of it: one branch, and the axis that it reduced, vanish."""
    none = UOp.const(True, shape=(4, 0, 3)).pad(((0, 0), (3, 0), (0, 0)), False)
    body = none.where(param(0, 4, 3, 3, 5).reduce(Ops.MAX, 1), param(1, 4, 3, 3)).reduce(Ops.MAX, 1)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 3, 3, 5)), rng.standard_normal((4, 3, 3))]
    check(body, [a.astype(np.float32) for a in arrays], None, target)


def test_parts_of_one_element() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for body in (param(0, 4, 6).reduce(Ops.ADD, 1), param(0, 4, 6).argmax(1)):
        check(body, [x], Opts(gpu=True, blocks={1: 6}, upcast={1: 2}), "emulated")


@pytest.mark.parametrize("target", ["emulated", "cpu"])
def test_outputs_without_elements_beside_others(target: str) -> None:
    x = param(0, 3, 4)
    check([x * 2.0, x.shrink(((0, 0), (0, 4)))], [np.ones((3, 4), np.float32)], None, target)


# ---- the comparison itself can fail
def test_a_wrong_bit_is_found() -> None:
    case = Case((param(0, 8) * 2.0,), {0: np.arange(8, dtype=np.float32)}, "exact")
    (got,) = run_kernel(compile(case.bodies[0], target="cpu"), case)
    want = evaluate(list(case.bodies), case.arrays)
    compare(case, [got], want)
    got[3] = np.nextafter(got[3], np.float32(9))
    with pytest.raises(AssertionError, match=r"first difference at \(3,\)"):
        compare(case, [got], want)


def test_a_sum_beyond_its_bound_is_found() -> None:
    x = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    case = Case((param(0, 3, 1000).reduce(Ops.ADD, 1),), {0: x}, "sum")
    want = evaluate(list(case.bodies), case.arrays)
    compare(case, [want[0]], want)
    off = (want[0] + 2 * sum_bound(case.bodies[0], case.arrays)).astype(np.float32)
    with pytest.raises(AssertionError, match="bound"):
        compare(case, [off], want)

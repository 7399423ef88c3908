"""NVRTC takes what is rendered, for every kind of arch, and registers suffice: no spill, no frame.

No GPU is needed: ptxas reports what a kernel uses.
"""

from __future__ import annotations

import pytest

from tests.kernels import product
from tests.suite import MAPPINGS, OPS, ROUNDED, SUITE, bodies_of, first_guess
from uopc.pipeline import Kernel, compile

TARGETS = ("sm_75", "sm_80", "sm_90a", "sm_120")
KERNELS = SUITE | ROUNDED | OPS
#: bytes of a stack frame that CUDA's library needs: reducing a large f64 argument indexes an array
#: at run time
FRAMES = {"sines f64": 40}
#: where the first guess spills a register or two and the next one is taken: 80 elements a thread,
#: or as many blocks per SM as fit exactly
SECOND_GUESS = {
    ("normalised 3x40000", "sm_80"),
}


def assert_fits(kernel: Kernel, frame: int = 0) -> None:
    for step in kernel.steps:
        used = step.cubin.resources
        what = f"{step.source.name} for {kernel.target}, {step.opts}: {used}"
        assert not used.spills, what
        assert used.stack_bytes == frame, what
        assert not used.remarks, what
        assert used.registers * step.source.launch.threads <= kernel.target.registers_per_sm, what


def each_kernel() -> list[tuple[str, str]]:
    """(kernel, target); single ops where max of floats is software and where it is not."""
    return [
        (name, target)
        for name in KERNELS
        for target in (("sm_75", "sm_90a") if name in OPS else TARGETS)
    ]


@pytest.mark.parametrize(("name", "target"), each_kernel())
def test_first_guesses_need_no_stack(name: str, target: str) -> None:
    bodies = bodies_of(KERNELS[name]())
    kernel = compile(bodies, first_guess(bodies, target), target)
    if (name, target) in SECOND_GUESS:
        with pytest.raises(AssertionError, match="spills"):
            assert_fits(kernel)
        kernel = compile(bodies, None, target)
    assert_fits(kernel, FRAMES.get(name, 0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_products_mapped_by_hand(mapping: str, target: str) -> None:
    assert_fits(compile(product(64, 64, 64), MAPPINGS[mapping], target))

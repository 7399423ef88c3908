"""Every example on the GPU: equal to its reference, and bit for bit to its emulation."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples.launch import assert_right, emulated, launched, runs_here
from tests.helpers import assert_same
from uopc.examples import EXAMPLES

pytestmark = pytest.mark.gpu
SEEDS = 3


def skip_where_it_cannot_run(name: str) -> None:
    if not runs_here(EXAMPLES[name]):
        pytest.skip(f"this GPU is no {EXAMPLES[name].target}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_right(name: str) -> None:
    skip_where_it_cannot_run(name)
    for seed in range(SEEDS):
        assert_right(name, launched, seed)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_emulated_run_gives_the_same_bits(name: str) -> None:
    skip_where_it_cannot_run(name)
    there, here = assert_right(name, launched), assert_right(name, emulated)
    for slot in there:
        if not EXAMPLES[name].order_dependent:
            assert_same(there[slot], here[slot])


@pytest.mark.parametrize("name", [n for n in EXAMPLES if EXAMPLES[n].printed])
def test_it_prints_its_lines(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert_right(name, launched)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(EXAMPLES[name].printed)


FAILS = """
from tests.examples.launch import EXAMPLES, launched
from uopc.errors import DeviceError
arrays = EXAMPLES["checked_square"].arrays()
arrays[0][37] = -5
try:
    launched("checked_square", arrays)
except DeviceError as error:
    print(error)
"""


@pytest.mark.uninstrumented
def test_a_failed_assert_says_what_and_where() -> None:
    """In a process of its own: the trap takes the context with it."""
    run = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, check=False)
    says = "assert failed: x must not be negative, in block (0, 0, 0), thread (37, 0, 0)"
    assert f"kernel checked_square: {says}. The GPU's context is lost" in run.stdout, run.stderr
    assert f"\n{says}\n" in f"\n{run.stdout}", "the kernel's own line"


def test_maps_follow_the_array() -> None:
    """The same kernel on arrays at other places, and again on the first ones."""
    skip_where_it_cannot_run("bulk_transpose")
    for seed in (0, 1, 0):
        assert_right("bulk_transpose", launched, seed)

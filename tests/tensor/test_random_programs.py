"""Random programs of tensors against numpy: as a whole, in pieces, and captured.

scratch/fuzz_tensors.py runs them by the thousand.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from tests.tensor.by_oracle import by_oracle
from tests.tensor.random_programs import Calls, program, run, shorter
from tests.tensor.reference import Refused
from uopc.errors import UsageError
from uopc.tensor import jit, set_default_device
from uopc.tensor.capture import JitWarning


@pytest.fixture
def evaluated() -> Iterator[None]:
    """Kernels are evaluated by the oracle."""
    set_default_device("cpu")
    with by_oracle():
        yield
    set_default_device(None)


def is_declared(error: UsageError, seed: int) -> bool:
    """A gradient at a value that an update has been written over, in a program with gradients."""
    return seed % 2 == 0 and "has been written over" in str(error)


@pytest.mark.parametrize("seed", range(40))
def test_as_a_whole_and_in_pieces(seed: int, evaluated: None) -> None:
    lines = program(seed, 20, grads=seed % 2 == 0)
    for order in (None, seed):
        try:
            run(lines, order)
        except UsageError as error:
            assert is_declared(error, seed), lines


@pytest.mark.parametrize("seed", range(100, 130))
def test_captured(seed: int, evaluated: None) -> None:
    lines = program(seed, 15, grads=seed % 2 == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        try:
            Calls(lines, len(lines) // 3, seed).run(jit)
        except Refused:
            pass
        except UsageError as error:
            assert is_declared(error, seed), lines


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_compiled(seed: int, each_device: str) -> None:
    run(program(seed, 8, grads=False), None)


def test_a_failure_is_shortened_to_what_it_needs() -> None:
    lines = [str(n) for n in range(20)]
    assert shorter(lines, lambda less: {"3", "11"} <= set(less)) == ["3", "11"]

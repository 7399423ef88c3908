"""Random arrays for kernels in whatever form they come."""

from __future__ import annotations

import pytest

from tests.kernels import param
from uopc import launches
from uopc.checking import check
from uopc.errors import UsageError
from uopc.launches import random_arrays
from uopc.pipeline import compile
from uopc.uop.node import UOp
from uopc.uop.ops import Ops


@pytest.mark.parametrize("body", [param(0, 0) + 1.0, param(0, 4, 0).reduce(Ops.ADD, 1)])
def test_an_input_that_nothing_reads(body: UOp) -> None:
    kernel = compile(body, target="emulated")
    (array,) = random_arrays(kernel, 0)
    assert array.size == 0 and check(kernel, array).ok


def test_arrays_that_memory_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    kernel = compile(param(0, 8) + 1.0, target="sm_80")
    monkeypatch.setattr(launches, "_random", full)
    with pytest.raises(UsageError, match=r"no memory for random arrays .* Give smaller shapes"):
        random_arrays(kernel, 0)

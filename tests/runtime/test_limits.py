"""Every limit of a launch is named with its value and the option to change; no GPU is needed."""

from __future__ import annotations

from typing import Any

import pytest

from uopc.dtype import dtypes
from uopc.errors import TargetError, UsageError
from uopc.kernel import Param
from uopc.runtime.limits import check_launch, dims, parameter_bytes
from uopc.target import target

AT_THE_LIMIT: list[dict[str, Any]] = [
    dict(block=(1024, 1, 1)),
    dict(block=(16, 1, 64)),
    dict(grid=(2**31 - 1, 65535, 65535)),
    dict(static_shared_bytes=48 << 10),
    dict(dynamic_shared_bytes=163 << 10),
    dict(parameter_bytes=32764),
    dict(block=(256, 1, 1), max_threads=256),
]
BEYOND: list[tuple[dict[str, Any], str]] = [
    (
        dict(block=(32, 33, 1)),
        "kernel k wants a block of 1056 threads (32, 33, 1), sm_80 allows 1024. Lower Opts.local.",
    ),
    (
        dict(block=(1, 1, 65)),
        "kernel k wants block z of 65 threads, sm_80 allows 64. "
        "Lower Opts.local, or put that axis on x with Opts.lanes.",
    ),
    (
        dict(grid=(1, 65536, 1)),
        "kernel k wants grid y of 65536 blocks, sm_80 allows 65535. Put that axis on x with "
        "Opts.grid, or give it fewer blocks (Opts.blocks, or more Opts.local, upcast or loop).",
    ),
    (dict(grid=(1, 1, 93288)), "kernel k wants grid z of 93288 blocks, sm_80 allows 65535."),
    (dict(grid=(2**31, 1, 1)), "kernel k wants grid x of 2147483648 blocks, sm_80 allows 21474836"),
    (
        dict(static_shared_bytes=(48 << 10) + 1),
        "kernel k wants 49153 bytes of static shared memory, sm_80 allows 49152.",
    ),
    (
        dict(static_shared_bytes=1024, dynamic_shared_bytes=163 << 10),
        "kernel k wants 167936 bytes of shared memory, sm_80 allows 166912. Lower Opts.local or "
        "Opts.tile, or use Opts.keep='reg'.",
    ),
    (
        dict(parameter_bytes=32768),
        "kernel k wants 32768 bytes of parameters, sm_80 allows 32764. "
        "Pass fewer arrays to one kernel.",
    ),
    (
        dict(block=(512, 1, 1), max_threads=256, registers=200),
        "kernel k wants a block of 512 threads, as compiled it allows 256 at 200 registers a "
        "thread. Lower Opts.local, or Opts.upcast and Opts.unroll (they take the registers).",
    ),
]


@pytest.mark.parametrize("launch", AT_THE_LIMIT)
def test_at_the_limit(launch: dict[str, Any]) -> None:
    check_launch(target("sm_80"), "k", **(dict(grid=(1, 1, 1), block=(1, 1, 1)) | launch))


@pytest.mark.parametrize(("launch", "said"), BEYOND)
def test_beyond_it(launch: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError) as error:
        check_launch(target("sm_80"), "k", **(dict(grid=(1, 1, 1), block=(1, 1, 1)) | launch))
    assert str(error.value).startswith(said)


def test_limits_are_the_target_s() -> None:
    shared = dict(grid=(1, 1, 1), block=(1, 1, 1), dynamic_shared_bytes=160 << 10)
    check_launch(target("sm_90"), "k", **shared)  # type: ignore[arg-type]  # a dict of mixed values
    with pytest.raises(TargetError, match="sm_120 allows 101376"):
        check_launch(target("sm_120"), "k", **shared)  # type: ignore[arg-type]  # as above


def test_dims() -> None:
    assert dims(5, "grid") == (5, 1, 1)
    assert dims((2, 3), "grid") == (2, 3, 1)
    assert dims([2, 3, 4], "grid") == (2, 3, 4)
    for wrong in ((), (1, 2, 3, 4), (1, -1)):
        with pytest.raises(UsageError, match="grid is one to three numbers"):
            dims(wrong, "grid")


def test_parameters_are_aligned() -> None:
    def scalar(slot: int, dtype: Any) -> Param:
        return Param(slot, dtype, 1, written=False, scalar=True)

    pointer = Param(0, dtypes.f32, 4, written=True)
    assert parameter_bytes(()) == 0
    assert parameter_bytes((pointer, pointer)) == 16
    assert parameter_bytes((scalar(0, dtypes.u8), scalar(1, dtypes.f64))) == 16
    assert parameter_bytes((pointer, scalar(1, dtypes.u8), scalar(2, dtypes.f16))) == 12

"""Targets by name, and how many blocks an SM holds.

The occupancies are those of NVIDIA's calculator (cudaOccupancy.h) for an A100: 65,536 registers,
2,048 threads, 32 blocks and 164 KB of shared memory per SM.
"""

from __future__ import annotations

import pytest

from uopc.errors import UsageError
from uopc.target import CPU, Target, occupancy, target

A100 = target("sm_80")


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "blocks", "warps", "why"),
    [
        (256, 32, 0, 8, 64, "threads"),
        (1024, 32, 0, 2, 64, "threads"),
        (32, 16, 0, 32, 32, "blocks"),
        (64, 32, 0, 32, 64, "blocks"),
        (256, 40, 0, 6, 48, "registers"),  # 1,280 registers a warp: 51 of them, in fours 48
        (256, 41, 0, 5, 40, "registers"),  # rounded up to 48 a thread
        (256, 48, 0, 5, 40, "registers"),
        (1024, 64, 0, 1, 32, "registers"),
        (128, 255, 0, 2, 8, "registers"),
        (256, 128, 0, 2, 16, "registers"),
        (128, 16, 48 << 10, 3, 12, "shared memory"),  # 49 KB with the system's: 3 of 164
        (128, 16, 163 << 10, 1, 4, "shared memory"),
        (128, 16, 1, 16, 64, "threads"),
        (33, 16, 0, 32, 64, "blocks"),  # a warp of one thread is a warp
    ],
)
def test_blocks_of_an_sm(
    threads: int, registers: int, shared_bytes: int, blocks: int, warps: int, why: str
) -> None:
    got = occupancy(A100, threads, registers, shared_bytes)
    assert (got.blocks_per_sm, got.warps_per_sm) == (blocks, warps)
    assert got.limited_by == why or why in ("threads", "blocks")  # two may be equally tight
    assert got.fraction == pytest.approx(warps / 64)


def test_other_machines_hold_less() -> None:
    assert occupancy(target("sm_75"), 256, 32).blocks_per_sm == 4
    assert occupancy(target("sm_86"), 512, 32).blocks_per_sm == 3
    assert occupancy(target("sm_90a"), 128, 16, 200 << 10).blocks_per_sm == 1


def test_a_block_that_does_not_fit() -> None:
    with pytest.raises(UsageError) as caught:
        occupancy(A100, 1024, 128)
    assert str(caught.value).startswith(
        "one block of 1024 threads with 128 registers and 0 bytes of shared memory does not fit on "
        "an SM of sm_80: registers would be exceeded."
    )
    with pytest.raises(UsageError, match="shared memory would be exceeded"):
        occupancy(A100, 128, 32, 164 << 10)


@pytest.mark.parametrize(
    "name", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120"]
)
def test_names(name: str) -> None:
    got = target(name)
    assert got.name == str(got) == name and got.is_gpu and target(got) is got
    assert got.sm == int(name.strip("sm_af"))


def test_what_machines_have() -> None:
    assert (A100.shared_optin_bytes, A100.shared_static_bytes) == (163 << 10, 48 << 10)
    assert (
        target("sm_90a").shared_optin_bytes == 227 << 10
        and target("sm_75").shared_optin_bytes == 64 << 10
    )
    assert [target(n).has_max_nan for n in ("sm_75", "sm_80", "sm_90a")] == [False, True, True]
    assert not CPU.is_gpu and target("cpu") is CPU
    assert target("sm_80").parameter_bytes == 32764 and Target("old", sm=60).parameter_bytes == 4096


@pytest.mark.parametrize("name", ["sm_10", "sm_80b", "gpu", "", "SM_80"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UsageError, match=f"no target is called '{name}'; there are cpu, sm_75"):
        target(name)

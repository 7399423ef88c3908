"""GPUs by name, and the rates of their units."""

from __future__ import annotations

import re

import pytest

from uopc.errors import UsageError
from uopc.inspect.gpus import GPU, GPUS, gpu, named_gpu
from uopc.target import target

MINE = GPU("mine", "sm_100", 100, 1e9, 1e12, 1 << 20, {}, {"fp32": 2})


@pytest.mark.parametrize("name", ["H200", "h200", "RTX 4090", "rtx4090", "t4"])
def test_names_in_any_case(name: str) -> None:
    assert named_gpu(name).name.replace(" ", "").lower() == name.replace(" ", "").lower()


@pytest.mark.parametrize(
    ("on", "name"),
    [("sm_90a", "H200"), ("sm_90", "H200"), ("sm_80", "A100"), ("sm_89", "RTX 4090")],
)
def test_a_usual_one_of_a_target(on: str, name: str) -> None:
    assert gpu(None, target(on)).name == name


def test_every_usual_one_runs_its_target() -> None:
    for arch in (75, 80, 86, 89, 90):
        assert gpu(None, target(f"sm_{arch}")).runs(target(f"sm_{arch}"))


def test_a_record_of_ones_own() -> None:
    assert named_gpu(MINE) is MINE and gpu(MINE, target("sm_100")) is MINE
    assert MINE.rate("fp32") == 2 * 100 * 1e9


@pytest.mark.parametrize(
    ("name", "on", "said"),
    [
        ("H300", "sm_90", r"no GPU is called 'H300'; there are H200, H100, .*In Python gpu=GPU"),
        (
            None,
            "sm_110",
            r"no GPU with sm_110 is known; there are H200, .*In Python gpu=GPU\(...\) takes",
        ),
        ("T4", "sm_80", r"for sm_80 does not run on T4, which is sm_75. .*target='sm_75', or"),
        ("RTX 4090", "sm_90a", r"for sm_90a does not run on RTX 4090, which is sm_89"),
        (MINE, "sm_90a", r"for sm_90a does not run on mine, which is sm_100"),
    ],
)
def test_what_cannot_be(name: str | GPU | None, on: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        gpu(name, target(on))


def test_older_kernels_run() -> None:
    assert gpu("H200", target("sm_80")).name == "H200"
    assert gpu(MINE, target("sm_80")) is MINE


@pytest.mark.parametrize(
    ("name", "unit", "rate"),
    [
        ("H200", "fp32", 67e12),
        ("H200", "fp64", 33.5e12),
        ("A100", "fp32", 19.5e12),
        ("A100", "fp64", 9.7e12),
        ("RTX 4090", "fp32", 82.6e12),
        ("RTX 3090", "fp32", 35.6e12),
        ("L40S", "fp32", 91.6e12),
        ("T4", "fp32", 8.1e12),
    ],
)
def test_rates_are_those_of_data_sheets(name: str, unit: str, rate: float) -> None:
    """Units a clock, times SMs, times the boost clock, is what a data sheet says of the part."""
    assert GPUS[name].rate(unit) == pytest.approx(rate, rel=0.02)


def test_a_unit_that_there_is_not() -> None:
    with pytest.raises(
        UsageError, match=r"T4 has no rate for 'tensor f8'; it has fp32, .*tensor f"
    ):
        GPUS["T4"].rate("tensor f8")


def test_records_hold_together() -> None:
    for g in GPUS.values():
        assert re.fullmatch(r"sm_\d+a?", g.arch) and target(g.arch).is_gpu
        assert set(g.per_clock) == {"fp32", "fp64", "int", "sfu"}
        assert g.rates["tensor f16"] == g.rates.get("tensor bf16", 0)
        assert 0 < g.reached <= 1 and 0 < g.start_s < 1e-4
        assert g.rate("tensor f16") > g.rate("fp32") > g.rate("sfu")


def test_the_name_that_a_driver_gives() -> None:
    assert named_gpu("NVIDIA H200") is GPUS["H200"] and named_gpu("rtx4090") is GPUS["RTX 4090"]


def test_no_name_at_all() -> None:
    with pytest.raises(UsageError, match="no GPU is called 3; there are H200"):
        named_gpu(3)  # type: ignore[arg-type]

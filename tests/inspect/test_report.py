"""A whole report: of a launch, of several, as data."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from tests.access_table import BY_NAME
from tests.kernels import param, softmax
from uopc.errors import UsageError
from uopc.inspect.gpus import GPUS
from uopc.inspect.records import (
    AccessReport,
    Advice,
    Boundary,
    Decision,
    How,
    PassReport,
    ProgramReport,
    Report,
    ResourceReport,
    Roofline,
    SourceLine,
)
from uopc.inspect.report import program_report, report
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile
from uopc.target import target
from uopc.uop.ops import Ops

DERIVED = {"sectors_per_request", "least_per_request", "used", "conflict_degree"}


def softmax_kernel() -> Kernel:
    return compile(softmax(param(0, 512, 1000)), target="sm_90a", name="softmax")


def names(record: type) -> set[str]:
    return {f.name for f in fields(record)}


# ---- one launch
def test_a_report_has_what_its_step_is() -> None:
    (step,) = softmax_kernel().steps
    made = report(step)
    assert (made.name, made.target, made.opts) == ("softmax", target("sm_90a"), step.opts)
    assert (made.grid, made.block) == step.launch_dims and made.cluster == 1
    assert made.decisions == step.decisions and made.program is step.program
    assert made.text.splitlines() == [line.text for line in made.source]
    assert [p.name for p in made.passes] == [p.name for p in step.trace]
    assert made.resources.registers == step.cubin.resources.registers
    assert made.roofline.gpu == "H200" and made.warnings == ()


def test_clusters() -> None:
    (step,) = BY_NAME["softmax_cluster"].steps()
    assert report(step).cluster == step.program.launch.cluster > 1


def test_sectors_of_each_memory() -> None:
    """Loads and stores of one memory together, weighed by their requests."""
    (step,) = softmax_kernel().steps
    made = report(step)
    for name, each in made.sectors.items():
        mine = [a for a in made.accesses if a.memory == name and a.space == "global"]
        assert each == sum(a.sectors for a in mine) / sum(a.requests for a in mine)
    assert set(made.sectors) == {"p0", "p1"}


@pytest.mark.parametrize(
    ("name", "sectors"),
    [
        ("product_right", {"p2": 4, "p0": 2, "p1": 2}),
        ("product_wrong", {"p2": 16, "p0": 16, "p1": 1}),
    ],
)
def test_the_two_mappings_of_a_product(name: str, sectors: dict[str, float]) -> None:
    (step,) = BY_NAME[name].steps()
    assert report(step).sectors == sectors


def test_memories_that_nobody_asks_for_have_no_sectors() -> None:
    (step,) = BY_NAME["elements_gathered"].steps()
    assert set(report(step).sectors) == {"p1", "p2"}  # the table's are not known


def test_a_gpu_by_name_or_record() -> None:
    (step,) = softmax_kernel().steps
    mine = replace(GPUS["H200"], name="half", memory_bytes_s=2.4e12)
    assert report(step, "h100").roofline.gpu == "H100"
    slow = report(step, mine).roofline
    assert slow.gpu == "half" and slow.floor_s == 2 * report(step).roofline.floor_s
    with pytest.raises(UsageError, match="no GPU is called 'H300'"):
        report(step, "H300")


def test_a_kernel_of_a_cpu() -> None:
    kernel = compile(param(0, 64) * 2.0, target="cpu")
    with pytest.raises(UsageError, match="cpu"):
        kernel.report()


# ---- several
def test_launches_add_up() -> None:
    kernel = compile(
        param(0, 600, 5).reduce(Ops.MAX, 1).reduce(Ops.ADD, 1),
        Opts(gpu=True, blocks={1: 3}, local={1: 32}),
        "sm_90a",
        "halves",
    )
    made = kernel.report()
    assert len(made.launches) == len(kernel.steps) == 2
    assert made.predicted_s == sum(r.roofline.predicted_s for r in made.launches)
    assert made.moved_bytes == sum(r.roofline.must_bytes for r in made.launches)
    assert made.boundaries == () and made.least_bytes == made.moved_bytes
    assert made.name == kernel.steps[-1].source.name


def test_boundaries_are_passed_on() -> None:
    steps = softmax_kernel().steps
    made = program_report(
        "two", [*steps, *steps], boundaries=[Boundary(0, "why", 8)], least_bytes=5
    )
    assert (made.boundaries, made.least_bytes, len(made.launches)) == (
        *((Boundary(0, "why", 8),), 5),
        2,
    )


# ---- as data
def test_json_has_every_field() -> None:
    """And what is derived of accesses; programs are no data."""
    made = compile(param(0, 1 << 12, 8).permute((1, 0)) * 2.0, Opts(gpu=True), "sm_90a").report()
    said = json.loads(made.to_json())
    assert set(said) == names(ProgramReport)
    (one,) = said["launches"]
    assert set(one) == names(Report) - {"program"}
    for key, record in (
        *(("accesses", AccessReport), ("source", SourceLine), ("decisions", Decision)),
        *(("passes", PassReport), ("warnings", Advice)),
    ):
        assert key == "decisions" or one[key], key
        for raw in one[key]:
            assert set(raw) == names(record) | (DERIVED if key == "accesses" else set())
    assert set(one["resources"]) == names(ResourceReport)
    assert set(one["roofline"]) == names(Roofline)


def test_json_says_what_the_records_say() -> None:
    made = softmax_kernel().report()
    (said,), (one,) = json.loads(made.to_json())["launches"], made.launches
    assert said["target"] == "sm_90a" and Opts.from_json(json.dumps(said["opts"])) == one.opts
    assert [line["text"] for line in said["source"]] == one.text.split("\n")
    for raw, a in zip(said["accesses"], one.accesses, strict=True):
        assert How(raw["how"]) is a.how and raw["sectors"] == a.sectors
        assert raw["sectors_per_request"] == a.sectors_per_request and raw["used"] == a.used
        assert raw["lanes"] == list(a.lanes)
    assert said["roofline"]["predicted_s"] == one.roofline.predicted_s
    assert dict(said["roofline"]["times_s"]) == dict(one.roofline.times_s)
    assert [d["why"] for d in said["decisions"]] == [d.why for d in one.decisions]


def test_warnings_as_data_have_opts_that_can_be_read() -> None:
    made = compile(param(0, 1 << 20) * 2.0, Opts(gpu=True), "sm_90a").report()
    (said,) = json.loads(made.to_json())["launches"]
    (warning,) = said["warnings"]
    assert Opts.from_json(json.dumps(warning["opts"])) == made.launches[0].warnings[0].opts
    conflicts = program_report("tile", BY_NAME["tile_of_32"].steps())
    (said,) = json.loads(conflicts.to_json())["launches"]
    assert said["warnings"][0]["opts"] is None


def test_the_same_in_every_run() -> None:
    """Also of a kernel that is compiled anew: nothing is of one process or one moment."""
    first = softmax_kernel().report().to_json()
    assert softmax_kernel().report().to_json() == first
    assert json.loads(first) == json.loads(softmax_kernel().report().to_json(indent=2))

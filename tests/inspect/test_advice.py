"""Warnings: each kind on a kernel that is wrong on purpose, none on ordinary ones, and what they
suggest mends it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.access_table import BY_NAME
from tests.kernels import columns, numerator, param, product, softmax
from tests.suite import bias, gelu, layernorm
from uopc.dtype import dtypes
from uopc.inspect.records import Advice, Report
from uopc.inspect.report import report
from uopc.opts import Opts
from uopc.pipeline import compile
from uopc.plan import CP_ASYNC, FMA, Plan
from uopc.uop.node import UOp
from uopc.uop.ops import Ops

SQUARE = param(0, 1024, 1024)
TURNED = SQUARE.permute((1, 0)) * 2.0
FLAT = param(0, 1 << 20)
ROWS = SQUARE.reduce(Ops.ADD, 1)


def gpu(**digits: object) -> Opts:
    return Opts(gpu=True, **digits)  # type: ignore[arg-type]  # names of its fields


def reports(body: UOp | list[UOp], opts: Opts | None = None) -> list[Report]:
    """Of each launch, on an H200."""
    return [report(step) for step in compile(body, opts, "sm_90a").steps]


def kinds(body: UOp | list[UOp], opts: Opts | None = None) -> list[str]:
    return [w.kind for r in reports(body, opts) for w in r.warnings]


def sectors(several: list[Report]) -> int:
    return sum(a.sectors for r in several for a in r.accesses)


def blocks(several: list[Report]) -> int:
    return math.prod(several[0].grid)


def threads(several: list[Report]) -> int:
    return math.prod(several[0].block)


def spills(several: list[Report]) -> int:
    return sum(r.resources.spill_bytes for r in several)


# ---- a kernel that is wrong, and its warning
@dataclass(frozen=True)
class Wrong:
    """better: what the suggestion must do, given the reports before and after; mend: a part of the
    text; left: kinds of warnings that may be there afterwards."""

    body: UOp
    opts: Opts
    kind: str
    mend: str
    better: Callable[[list[Report], list[Report]], bool]
    left: frozenset[str] = frozenset()


def fewer_sectors(before: list[Report], after: list[Report]) -> bool:
    return 2 * sectors(after) <= sectors(before)


def whole_warps(before: list[Report], after: list[Report]) -> bool:
    return threads(before) < 32 <= threads(after) and threads(after) % 32 == 0


def more_blocks(before: list[Report], after: list[Report]) -> bool:
    return 2 * blocks(before) <= blocks(after)


def no_spills(before: list[Report], after: list[Report]) -> bool:
    return spills(before) > 0 == spills(after)


FEW, ALSO = frozenset({"few blocks"}), frozenset({"uncoalesced", "few blocks"})
WRONG = {
    "reads of a transpose": Wrong(
        *(TURNED, gpu(local={0: 8, 1: 32}), "uncoalesced", "Opts.turn={0: 1}", fewer_sectors)
    ),
    "stores of a transpose": Wrong(
        *(TURNED, gpu(local={0: 32, 1: 8}, lanes=(0, 1)), "uncoalesced"),
        *("Opts.turn={1: 1}", fewer_sectors),
    ),
    "a transpose by long rows": Wrong(
        *(TURNED, gpu(local={1: 128}), "uncoalesced", "Opts.turn={0: 1}", fewer_sectors)
    ),
    "a transpose by vectors": Wrong(
        *(TURNED, gpu(local={1: 32}, vector={1: 4}), "uncoalesced", "turn={0: 1}", fewer_sectors)
    ),
    "a transpose of three axes": Wrong(
        param(0, 64, 64, 64).permute((0, 2, 1)) + param(1, 64, 64, 64),
        *(gpu(local={2: 32}), "uncoalesced", "turn={1: 1}", fewer_sectors),
    ),
    "lanes along rows": Wrong(
        *(SQUARE * 2.0, gpu(local={0: 32}), "uncoalesced", "lanes=(1,)", fewer_sectors)
    ),
    "lanes along rows first": Wrong(
        *(SQUARE * 2.0, gpu(local={0: 32, 1: 8}, lanes=(0, 1)), "uncoalesced"),
        *("lanes=(1, 0)", fewer_sectors),
    ),
    "a row a lane": Wrong(
        *(ROWS, gpu(local={0: 64}), "uncoalesced", "reduce together", fewer_sectors)
    ),
    "columns by lanes of a column": Wrong(
        *(columns(SQUARE), gpu(local={1: 64}), "uncoalesced", "lanes=(0, 1)", fewer_sectors, FEW)
    ),
    "the wrong mapping of a product": Wrong(
        product(256, 256, 256),
        gpu(local={0: 16, 1: 16}, lanes=(0, 1)),
        *("uncoalesced", "lanes=(1, 0)", fewer_sectors, FEW),
    ),
    "backwards by vectors": Wrong(
        FLAT.flip((0,)) + 1.0,
        gpu(local={0: 128}, vector={0: 4}),
        *("uncoalesced", "vector={}", fewer_sectors),
    ),
    "one thread": Wrong(FLAT * 2.0, gpu(), "sub-warp block", "local={0: 128}", whole_warps),
    "four threads": Wrong(
        *(FLAT * 2.0, gpu(local={0: 4}), "sub-warp block", "local={0: 128}", whole_warps)
    ),
    "threads that are no part of a warp": Wrong(
        *(FLAT * 2.0, gpu(local={0: 24}), "sub-warp block", "local={0: 128}", whole_warps)
    ),
    "a square of threads": Wrong(
        *(SQUARE * 2.0, gpu(local={0: 4, 1: 4}), "sub-warp block", "local={0: 4, 1: 32}"),
        whole_warps,
    ),
    "eight threads a row": Wrong(
        param(0, 4096, 64).reduce(Ops.ADD, 1),
        *(gpu(local={1: 8}), "sub-warp block", "local={0: 16, 1: 8}", whole_warps),
    ),
    "too many blocks an SM": Wrong(
        softmax(param(0, 256, 8192)),
        gpu(local={1: 128}, vector={1: 4}, upcast={1: 16}, blocks_per_sm=12),
        *("spills", "blocks_per_sm=6", no_spills),
    ),
    "too many copies": Wrong(
        product(512, 512, 64),
        gpu(local={0: 8, 1: 8}, upcast={0: 32, 1: 16}),
        *("spills", "upcast={0: 8, 1: 16}", no_spills, ALSO),
    ),
    "long loops": Wrong(
        FLAT * 2.0,
        gpu(local={0: 256}, loop={0: 64}),
        *("few blocks", "loop={0: 16}", more_blocks),
    ),
    "many copies": Wrong(
        FLAT * 2.0,
        gpu(local={0: 256}, upcast={0: 64}),
        *("few blocks", "upcast={0: 16}", more_blocks),
    ),
    "large blocks": Wrong(
        param(0, 1 << 16) + param(1, 1 << 16) + param(2, 1 << 16) + param(3, 1 << 16),
        gpu(local={0: 1024}),
        *("few blocks", "local={0: 256}", more_blocks),
    ),
    "a reduction by one block": Wrong(
        param(0, 1 << 22).reduce(Ops.ADD, 1),
        gpu(local={0: 1024}),
        *("few blocks", "blocks={0: 132}", more_blocks),
    ),
    "reductions by few blocks": Wrong(
        param(0, 8, 1 << 18).reduce(Ops.MAX, 1),
        gpu(local={1: 256}),
        *("few blocks", "blocks={1: 17}", more_blocks),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_and_mended(name: str) -> None:
    wrong = WRONG[name]
    before = reports(wrong.body, wrong.opts)
    said = [w for r in before for w in r.warnings if w.kind == wrong.kind]
    assert said, [w.kind for r in before for w in r.warnings]
    assert wrong.mend in said[0].mend and said[0].opts is not None
    after = reports(wrong.body, said[0].opts)
    assert wrong.better(before, after), (str(said[0].opts), sectors(before), sectors(after))
    assert {w.kind for r in after for w in r.warnings} <= wrong.left


@pytest.mark.parametrize("name", WRONG)
def test_a_warning_names_what_it_is_about(name: str) -> None:
    wrong = WRONG[name]
    (one,) = reports(wrong.body, wrong.opts)[:1]
    for w in one.warnings:
        assert w.text and w.mend and w.tried == ""
        if w.kind in ("uncoalesced", "bank conflicts"):
            access = one.accesses[w.access]
            assert f"{access.op} of {access.memory} (line {access.line})" in w.text
            assert access.pattern in w.text
        else:
            assert w.access == -1


# ---- ordinary kernels
ORDINARY: dict[str, UOp | list[UOp]] = {
    "add": FLAT + param(1, 1 << 20),
    "bf16": param(0, 1 << 20, dtype=dtypes.bf16) * 2.0,
    "gelu": gelu(1024, 1000),
    "bias": bias(32, 16, 64, 64),
    "odd": param(0, 1009, 1013) * param(1, 1009, 1013),
    "shifted": param(0, 1 << 20).shrink(((1, (1 << 20) - 3),)) * 2.0,
    "padded": param(0, 1023, 1000).pad(((1, 1), (3, 1)), 7.0) * 2.0,
    "transposed": TURNED,
    "transposed odd": param(0, 777, 1001).permute((1, 0)) * 2.0,
    "row sums": param(0, 4096, 1024).reduce(Ops.ADD, 1),
    "short row sums": param(0, 1 << 16, 64).reduce(Ops.ADD, 1),
    "column sums": columns(param(0, 4096, 1000)),
    "one sum": param(0, 1 << 24).reduce(Ops.ADD, 1),
    "argmax": param(0, 4096, 1000).argmax(1),
    "softmax": softmax(param(0, 4096, 1000)),
    "numerator": numerator(param(0, 4096, 512)),
    "layernorm": layernorm(4096, 1024),
    "cumsum": param(0, 1024, 4096).scan(Ops.ADD),
    "product": product(1024, 1024, 1024),
    "tiny": param(0, 7) * 2.0,
    "two outputs": [FLAT * 2.0, FLAT + 1.0],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_automatic_choices_are_not_warned_about(name: str) -> None:
    assert kinds(ORDINARY[name]) == []


def test_small_launches_need_not_fill_a_gpu() -> None:
    """Few blocks are as good where there is little to do, and three of four SMs nearly all."""
    assert kinds(param(0, 1 << 12) * 2.0, gpu(local={0: 256})) == []
    assert kinds(FLAT * 2.0, gpu(local={0: 256}, loop={0: 40})) == []


def test_a_block_of_few_threads_that_is_all_there_is() -> None:
    assert kinds(param(0, 5) * 2.0, gpu(local={0: 5})) == []


# ---- where no change of Opts does it
def uncoalesced(body: UOp, opts: Opts | None = None) -> Advice:
    (one,) = reports(body, opts)
    (said,) = [w for w in one.warnings if w.kind == "uncoalesced"]
    return said


def test_a_view_with_gaps() -> None:
    n = 1 << 18
    spread = param(0, n, 8).shrink(((0, n), (0, 1))).reshape((n,)) + 1.0
    said = uncoalesced(spread)
    assert said.mend == "no axis walks this memory in order: copy the view first"
    assert said.opts is None
    assert "moves 32.0 sectors a request, 4.0 would do: stride 32 (128 bytes)" in said.text


def test_a_turn_beside_a_reduction_is_not_suggested() -> None:
    said = uncoalesced(softmax(SQUARE.permute((1, 0))))
    assert said.opts is None and said.mend.endswith(
        "lanes follow axis 1: stage it in shared memory"
    )


def test_a_plan_says_how_it_copies() -> None:
    plan = Plan(FMA, 64, 64, 16, 2, 2, depth=3, copy=CP_ASYNC)
    (one,) = reports(product(256, 256, 256), gpu(plan=plan))
    (few,) = one.warnings
    assert (few.kind, few.mend) == ("few blocks", "Plan.splits=2")
    assert few.opts is not None
    assert blocks(reports(product(256, 256, 256), few.opts)) == 2 * blocks([one])


def test_nothing_more_to_spread() -> None:
    (one,) = reports(softmax(param(0, 4, 1 << 16)), gpu(local={1: 1024}))
    (few,) = one.warnings
    assert (few.kind, few.opts) == ("few blocks", None) and "run it beside others" not in few.mend
    assert few.text == "4 blocks for 132 SMs of H200"


# ---- loop IR, whose choices are made
def test_conflicts_of_a_tile() -> None:
    (step,) = BY_NAME["tile_of_32"].steps()
    (said,) = report(step).warnings
    assert said.kind == "bank conflicts" and said.opts is None
    assert "takes 32.0 wavefronts for each that would do: stride 32 (128 bytes)" in said.text
    assert "such as 33 elements" in said.mend
    (padded,) = BY_NAME["tile_of_33"].steps()
    assert report(padded).warnings == ()


def test_loop_ir_has_no_opts_to_change() -> None:
    (step,) = BY_NAME["product_shared"].steps()
    (said,) = report(step).warnings
    assert (said.kind, said.opts, said.mend) == (
        *("few blocks", None),
        "more of the work in GLOBAL ranges",
    )


def test_conflicts_of_a_turn() -> None:
    """Lanes of four elements that exchange one digit too few, and the same with it."""
    few = gpu(local={0: 8, 1: 32}, vector={1: 4}, upcast={0: 4}, turn={0: 1})
    found = [w for r in reports(TURNED, few) for w in r.warnings]
    assert [w.kind for w in found] == ["bank conflicts"]
    assert found[0].mend == "another Opts.turn than {0: 1}"
    square = gpu(local={0: 8, 1: 8}, vector={1: 4}, upcast={0: 4}, turn={0: 4, 1: 1})
    assert kinds(TURNED, square) == []

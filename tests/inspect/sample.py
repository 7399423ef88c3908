"""Reports of real kernels for tests of the page: text, graphs and accesses are the kernel's own.

What a test does not depend on is made up here and says so: rules, resources, roofline, decisions.
"""

from __future__ import annotations

from functools import cache

from tests.kernels import param, product, softmax
from uopc.dtype import dtypes
from uopc.inspect.access import listing
from uopc.inspect.records import (
    Advice,
    Boundary,
    Decision,
    PassReport,
    ProgramReport,
    Report,
    ResourceReport,
    Roofline,
)
from uopc.opts import Opts
from uopc.pipeline import BY_PLAN, LOWERING, Step, compile
from uopc.plan import Plan
from uopc.target import occupancy
from uopc.uop.node import UOp
from uopc.uop.ops import Ops
from uopc.uop.text import show

WHY = {p.name: p.why for p in (*LOWERING, *BY_PLAN)}
MADE_UP = "made up for a test"
#: a product through shared memory in three stages
PLAN = Plan(
    atom="fma",
    block_m=128,
    block_n=128,
    block_k=32,
    warps_m=2,
    warps_n=2,
    lanes_m=8,
    depth=3,
    copy="bulk",
    order="columns",
    blocks_per_sm=2,
)


def report(step: Step, name: str, registers: int = 40, shared_bytes: int = 8192) -> Report:
    """A report of one launch; resources, times and decisions are made up."""
    listed = listing(step.program, name, step.source.target)
    grid, block = step.launch_dims
    threads = block[0] * block[1] * block[2]
    held = occupancy(step.source.target, threads, registers, shared_bytes)
    blocks = grid[0] * grid[1] * grid[2]
    waves = blocks / (held.blocks_per_sm * step.source.target.sms)
    texts = [(passed.name, show(passed.graph)) for passed in step.trace]
    return Report(
        name=name,
        program=step.program,
        target=step.source.target,
        grid=grid,
        block=block,
        cluster=1,
        opts=step.opts,
        source=listed.lines,
        accesses=listed.accesses,
        resources=ResourceReport(
            registers=registers,
            shared_bytes=shared_bytes,
            blocks_per_sm=held.blocks_per_sm,
            warps_per_sm=held.warps_per_sm,
            occupancy=held.fraction,
            limited_by=held.limited_by,
            waves=waves,
            tail=waves % 1 or 1.0,
            mix=(("FFMA", 96), ("LDG", 24), ("MUFU", 20), ("STG", 8), ("BAR", 2)),
        ),
        roofline=Roofline(
            gpu="H100",
            must_bytes=32_768_000,
            moves_bytes=33_554_432,
            memory_bytes=32_768_000,
            assumption="each byte comes once",
            operations=(("fp32", 20_480_000), ("sfu", 4_096_000)),
            times_s=(("memory", 9.8e-6), ("L2", 6.0e-6), ("sfu", 1.0e-6), ("fp32", 3.1e-7)),
            floor_s=9.8e-6,
            wall="memory",
            wasted=0.024,
            predicted_s=1.3e-5,
        ),
        decisions=(
            Decision("upcast", "{1: 4}", "choose.rows.upcast", MADE_UP),
            Decision("local", "{1: 64}", "choose.rows.local", MADE_UP),
        ),
        passes=tuple(
            PassReport(
                stage,
                WHY.get(stage, "the body over ranges"),
                text,
                rules=(("add-zero", 3), ("mul-one", 1)) if n == 1 else (),
                stage="LOOPS" if stage == "legalise" else "MAPPED",
                changed=not n or text != texts[n - 1][1],
            )
            for n, (stage, text) in enumerate(texts)
        ),
        warnings=(
            Advice("few blocks", "The grid has fewer blocks than the GPU has SMs.", MADE_UP),
            Advice("uncoalesced", MADE_UP, "more lanes along axis 1", 0, Opts(gpu=True)),
        ),
    )


def program(name: str, body: UOp, opts: Opts | None = None) -> ProgramReport:
    """A report of what `compile` makes of a body for sm_90a."""
    steps = compile(body, opts, target="sm_90a", name=name).steps
    return ProgramReport(name, tuple(report(step, name) for step in steps))


@cache
def rows() -> ProgramReport:
    """A softmax of rows: one launch."""
    return program("softmax", softmax(param(0, 4096, 1000)))


@cache
def matmul() -> ProgramReport:
    """A product of f32 by a plan, with shared memory."""
    return program("matmul", product(512, 512, 512), Opts(gpu=True, plan=PLAN))


@cache
def strided() -> ProgramReport:
    """Row sums with a row a lane: nothing is coalesced."""
    body = param(0, 4096, 64, dtype=dtypes.f32).reduce(Ops.ADD, 1)
    return program("row_sums", body, Opts(gpu=True, local={0: 64}))


@cache
def several() -> ProgramReport:
    """Two launches and what is between them, which is made up."""
    steps = compile(product(512, 512, 64), target="sm_90a", name="product").steps
    first, second = report(steps[0], "first"), rows().launches[0]
    return ProgramReport(
        "two steps",
        (first, second),
        (
            Boundary(0, "the second one reads it by columns", 1 << 20),
            Boundary(-1, "a reduction is computed once", 0),
        ),
        moved_bytes=3 << 20,
        least_bytes=1 << 20,
    )

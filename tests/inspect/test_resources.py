"""Registers, blocks of an SM, waves and instructions, from a compiled text."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.kernels import param, product, softmax
from uopc.errors import ToolchainError, UsageError
from uopc.inspect import resources as of
from uopc.inspect.records import ResourceReport
from uopc.inspect.resources import instruction_mix, resources
from uopc.opts import Opts
from uopc.pipeline import Step, compile
from uopc.plan import CP_ASYNC, FMA, Plan
from uopc.runtime.nvrtc import Cubin
from uopc.target import occupancy, target
from uopc.uop.node import UOp

SMS = 132
#: a listing with predicates, a label, an operand in brackets, and what only fills up
SASS = """\
        /*0000*/                   LDC R1, c[0x0][0x28] ;  /* 0x00000a00ff017b82 */
        /*0010*/               @P0 EXIT ;                  /* 0x000000000000094d */
.L_x_0:
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0030*/              @!P1 LDG.E R8, desc[UR4][R2.64+0x10] ;
        /*0040*/             @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0050*/                   FFMA R4, R4, R5, R6 ;
        /*0060*/                   FFMA.FTZ R4, R4, R5, R6 ;
        /*0070*/              @!PT BRA `(.L_x_0) ;
        /*0080*/                   NOP ;
        /*0090*/                   NOP ;
"""


def step_of(body: UOp, opts: Opts | None = None, arch: str = "sm_90a") -> Step:
    (step,) = compile(body, opts, arch).steps
    return step


def reported(step: Step, sms: int = SMS) -> ResourceReport:
    return resources(step.cuda_source, step.program.launch, sms)


# ---- instructions
def test_the_mix_of_a_listing() -> None:
    """By name without its suffixes, whatever its predicate; the most frequent first, then by
    name."""
    assert instruction_mix(SASS) == (
        *(("FFMA", 2), ("LDG", 2)),
        *(("BRA", 1), ("EXIT", 1), ("LDC", 1), ("UIADD3", 1)),
    )
    assert instruction_mix("") == ()


def test_the_mix_of_a_kernel() -> None:
    step = step_of(param(0, 1 << 16).exp2(), Opts(gpu=True, local={0: 128}, vector={0: 4}))
    try:
        lines = [x for x in step.cubin.sass.splitlines() if x.lstrip().startswith("/*0")]
    except ToolchainError as error:
        pytest.skip(str(error))
    mix = dict(reported(step).mix)
    assert mix["LDG"] == mix["STG"] == 1 and mix["MUFU"] == 4 and mix["EXIT"] == 1
    instructions = [x for x in lines if ";" in x and "NOP" not in x]
    assert sum(mix.values()) == len(instructions)


def test_without_a_disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    def sass(_: Cubin) -> str:
        raise ToolchainError("no disassembler. Get one with: pip install x")

    monkeypatch.setattr(Cubin, "sass", property(sass))
    found = reported(step_of(param(0, 1000) * 2.0))
    assert found.mix == () and found.mix_missing.startswith("no disassembler. Get one")
    assert found.registers > 0 and found.missing == ""


# ---- an SM
def test_what_ptxas_says_and_what_an_sm_holds() -> None:
    step = step_of(softmax(param(0, 4096, 1000)))
    found, used = reported(step), step.cubin.resources
    assert found.registers == used.registers and found.stack_bytes == used.stack_bytes == 0
    assert found.shared_bytes == max(used.shared_bytes, step.cuda_source.shared_bytes) > 0
    threads = step.program.launch.threads
    held = occupancy(target("sm_90a"), threads, found.registers, found.shared_bytes)
    assert (found.blocks_per_sm, found.warps_per_sm) == (held.blocks_per_sm, held.warps_per_sm)
    assert found.occupancy == held.fraction == found.warps_per_sm * 32 / 2048
    assert found.limited_by == held.limited_by


def test_few_registers_are_sixteen_in_a_launch() -> None:
    found = reported(step_of(param(0, 1000) * 2.0, Opts(gpu=True, local={0: 128})))
    assert found.registers < 16 == found.launched_registers
    assert ResourceReport(registers=40).launched_registers == 40


@pytest.mark.parametrize(
    ("blocks", "waves", "tail"),
    [
        (16, 1 / 132, 1 / 132),
        (132 * 16, 1.0, 1.0),
        (132 * 16 + 66, 1.03125, 0.03125),
        (132 * 40, 2.5, 0.5),
    ],
)
def test_waves_and_the_last_of_them(blocks: int, waves: float, tail: float) -> None:
    """Blocks of 128 threads with few registers: 16 on an SM of 2,048 threads."""
    step = step_of(param(0, blocks * 128) * 2.0, Opts(gpu=True, local={0: 128}))
    found = reported(step)
    assert found.blocks_per_sm == 16 and found.limited_by == "threads"
    assert found.waves == pytest.approx(waves) and found.tail == pytest.approx(tail)
    assert math.ceil(found.waves) - 1 + found.tail == pytest.approx(found.waves)


def test_fewer_sms_take_more_waves() -> None:
    step = step_of(param(0, 132 * 16 * 128) * 2.0, Opts(gpu=True, local={0: 128}))
    assert reported(step, 66).waves == 2 * reported(step, 132).waves


def test_shared_memory_limits() -> None:
    """Nothing but memory that a launch asks for is left out of what ptxas counts."""
    plan = Plan(FMA, 128, 128, 16, 2, 2, depth=4, copy=CP_ASYNC)
    step = step_of(product(512, 512, 512), Opts(gpu=True, plan=plan))
    found = reported(step)
    assert found.shared_bytes == step.cuda_source.shared_bytes == 4 * 2 * 128 * 16 * 4
    assert found.blocks_per_sm <= 228 * 1024 // (found.shared_bytes + 1024)


def test_spills() -> None:
    """Too many copies for the registers that so many blocks an SM leave."""
    body = softmax(param(0, 64, 8192))
    plain = Opts(gpu=True, local={1: 128}, vector={1: 4}, upcast={1: 16})
    assert reported(step_of(body, plain)).spill_bytes == 0
    step = step_of(body, replace(plain, blocks_per_sm=12))
    found, used = reported(step), step.cubin.resources
    assert found.spill_bytes == used.spill_store_bytes + used.spill_load_bytes > 0
    assert found.registers <= 65536 // (12 * 128)


# ---- what is missing
def test_without_nvrtc_the_report_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise ToolchainError("NVRTC is missing. Get it with: pip install nvidia-cuda-nvrtc")

    step = step_of(param(0, 1000) * 2.0)
    monkeypatch.setattr(of, "known_archs", missing)
    found = reported(step)
    assert found == ResourceReport(
        missing="NVRTC is missing. Get it with: pip install nvidia-cuda-nvrtc"
    )


def test_a_block_that_no_sm_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ptxas says is there all the same."""

    def refuse(*_: object) -> None:
        raise UsageError("one block does not fit")

    monkeypatch.setattr(of, "occupancy", refuse)
    found = reported(step_of(param(0, 1000) * 2.0))
    assert found.missing == "one block does not fit"
    assert found.registers > 0 and (found.blocks_per_sm, found.waves) == (0, 0.0)

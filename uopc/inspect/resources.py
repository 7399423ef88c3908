"""What a kernel uses of an SM: what ptxas says, how many blocks fit, in how many waves they run."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from uopc.errors import TargetError, ToolchainError, UsageError
from uopc.inspect.records import ResourceReport
from uopc.kernel import Launch, ProgramTree, Source
from uopc.render.cuda import render_cuda
from uopc.runtime.nvrtc import Cubin, compile_cubin, known_archs
from uopc.target import Target, occupancy
from uopc.target import target as named_target

#: an instruction of a listing: its name follows its place, and maybe a predicate
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*)")


def resources(source: Source, launch: Launch, sms: int) -> ResourceReport:
    """Of a CUDA text, on a GPU with so many SMs.

    Where NVRTC is missing the report says so; a kernel that it refuses raises TargetError or
    ToolchainError.
    """
    try:
        known_archs()
    except ToolchainError as error:
        return ResourceReport(missing=str(error))
    cubin = compile_cubin(source, source.name, source.target)
    used = cubin.resources
    shared = max(used.shared_bytes, source.shared_bytes)
    report = ResourceReport(
        registers=used.registers,
        shared_bytes=shared,
        stack_bytes=used.stack_bytes,
        spill_bytes=used.spill_store_bytes + used.spill_load_bytes,
        constant_bytes=used.constant_bytes,
        remarks=used.remarks,
    )
    report = _with_mix(report, cubin)
    try:
        held = occupancy(source.target, launch.threads, used.registers, shared)
    except UsageError as error:
        return replace(report, missing=str(error))
    waves = math.prod(launch.grid) / (held.blocks_per_sm * sms)
    return replace(
        report,
        blocks_per_sm=held.blocks_per_sm,
        warps_per_sm=held.warps_per_sm,
        occupancy=held.fraction,
        limited_by=held.limited_by,
        waves=waves,
        tail=waves - math.ceil(waves) + 1 if waves else 0.0,
    )


def by_arch(
    program: ProgramTree, name: str, archs: Sequence[str | Target]
) -> dict[str, ResourceReport]:
    """What the same kernel uses on each arch, on a usual part of it; `missing` says where an arch
    lacks an instruction or cannot hold a block.  Raises UsageError for an arch that is not known.
    """
    found = {}
    for arch in map(named_target, archs):
        try:
            source = render_cuda(program, name, arch)
            found[arch.name] = resources(source, program.launch, arch.sms)
        except (TargetError, ToolchainError) as error:
            found[arch.name] = ResourceReport(missing=str(error))
    return found


def _with_mix(report: ResourceReport, cubin: Cubin) -> ResourceReport:
    try:
        return replace(report, mix=instruction_mix(cubin.sass))
    except ToolchainError as error:
        return replace(report, mix_missing=str(error))


def instruction_mix(sass: str) -> tuple[tuple[str, int], ...]:
    """Instructions of a listing by name, the most frequent first, without what only fills up."""
    names = Counter(m[1] for m in _INSTRUCTION.finditer(sass))
    names.pop("NOP", None)
    return tuple(sorted(names.items(), key=lambda item: (-item[1], item[0])))

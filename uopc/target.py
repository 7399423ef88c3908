"""What a machine can hold: the limits that decisions, checks and messages speak of.

Source of the limits: CUDA C++ Programming Guide, "Compute Capabilities" (technical specifications
per compute capability), and the driver API's launch limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uopc.errors import UsageError


@dataclass(frozen=True)
class Target:
    """One architecture.  Sizes in bytes where named so.

    name "cpu" is native C; "sm_NN" a CUDA architecture ("sm_90a" with its own instructions).
    `sms` is the number of multiprocessors of the part that automatic choices aim at.
    """

    name: str
    sm: int = 0
    sms: int = 108
    warp: int = 32
    max_threads_per_block: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    register_granule_per_warp: int = 256
    max_registers_per_thread: int = 255
    shared_static_bytes: int = 48 << 10
    shared_optin_bytes: int = 163 << 10
    shared_per_sm_bytes: int = 164 << 10
    shared_reserved_bytes: int = 1 << 10
    shared_granule_bytes: int = 128
    parameter_bytes: int = 4096

    @property
    def is_gpu(self) -> bool:
        return self.sm > 0

    @property
    def has_max_nan(self) -> bool:
        """max.NaN.f32, max.f16x2 and bf16 conversions: sm_80 and later (PTX ISA, max)."""
        return self.sm >= 80

    @property
    def has_clusters(self) -> bool:
        """Thread block clusters and distributed shared memory (PTX ISA, barrier.cluster)."""
        return self.sm >= 90

    def __str__(self) -> str:
        return self.name


#: compute capability -> (SMs of the usual part, threads/SM, blocks/SM, opt-in KB, KB per SM)
_SM: dict[int, tuple[int, int, int, int, int]] = {
    75: (40, 1024, 16, 64, 64),
    80: (108, 2048, 32, 163, 164),
    86: (84, 1536, 16, 99, 100),
    87: (16, 1536, 16, 163, 164),
    88: (16, 1536, 16, 99, 100),
    89: (128, 1536, 24, 99, 100),
    90: (132, 2048, 32, 227, 228),
    100: (148, 2048, 32, 227, 228),
    103: (148, 2048, 32, 227, 228),
    110: (20, 1536, 24, 227, 228),
    120: (170, 1536, 24, 99, 100),
    121: (48, 1536, 24, 99, 100),
}
CPU = Target("cpu")


def target(name: str | Target) -> Target:
    """The Target called "cpu", "sm_NN", "sm_NNa" or "sm_NNf".  Raises UsageError for any other.

    Parameter space is 32,764 bytes from sm_70 on with CUDA 12.1 and later, 4,096 before.
    """
    if isinstance(name, Target):
        return name
    if name == "cpu":
        return CPU
    m = re.fullmatch(r"sm_(\d+)([af]?)", name) if isinstance(name, str) else None
    if not m or int(m[1]) not in _SM:
        known = ", ".join(f"sm_{n}" for n in _SM)
        raise UsageError(
            f"no target is called {name!r}; there are cpu, {known} "
            "(sm_90a, sm_100a and the like too)"
        )
    sms, threads, blocks, optin, per_sm = _SM[int(m[1])]
    return Target(
        name,
        sm=int(m[1]),
        sms=sms,
        max_threads_per_sm=threads,
        max_blocks_per_sm=blocks,
        shared_optin_bytes=optin << 10,
        shared_per_sm_bytes=per_sm << 10,
        parameter_bytes=32764,
    )


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel an SM holds, and what stops more."""

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limited_by: str


def occupancy(on: Target, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Blocks per SM from threads per block, registers per thread and shared bytes per block.

    Registers are given out to a warp in granules of 256, warps in fours (one per scheduler);
    shared memory in granules of 128 bytes plus 1 KB that the system keeps a block (sm_80 on).
    Raises UsageError where one block does not fit.  Source: CUDA Occupancy Calculator.
    """
    warps = -(-threads // on.warp)
    granule = on.register_granule_per_warp
    per_warp = -(-max(registers, 1) * on.warp // granule) * granule
    warps_by_registers = on.registers_per_sm // per_warp // 4 * 4
    reserved = on.shared_reserved_bytes if on.sm >= 80 else 0
    shared = -(-(shared_bytes + reserved) // on.shared_granule_bytes) * on.shared_granule_bytes
    limits = {
        "blocks": on.max_blocks_per_sm,
        "threads": on.max_threads_per_sm // (warps * on.warp),
        "registers": warps_by_registers // warps,
        "shared memory": on.shared_per_sm_bytes // shared if shared else on.max_blocks_per_sm,
    }
    why = min(limits, key=lambda k: limits[k])
    blocks = limits[why]
    if blocks == 0:
        raise UsageError(
            f"one block of {threads} threads with {registers} registers and {shared_bytes} bytes "
            f"of shared memory does not fit on an SM of {on}: {why} would be exceeded. "
            "Use fewer threads or less of it."
        )
    return Occupancy(blocks, blocks * warps, blocks * warps * on.warp / on.max_threads_per_sm, why)

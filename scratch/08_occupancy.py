"""How many warps stay alive on one multiprocessor, and what stops more."""

from __future__ import annotations

from uopc.errors import UsageError
from uopc.target import occupancy, target

for arch, threads, registers, shared_bytes in (
    ("sm_80", 256, 32, 0),
    ("sm_80", 256, 33, 0),
    ("sm_80", 256, 64, 0),
    ("sm_80", 256, 128, 0),
    ("sm_80", 256, 255, 0),
    ("sm_80", 64, 32, 0),
    ("sm_80", 32, 32, 0),
    ("sm_80", 96, 40, 0),
    ("sm_80", 256, 32, 40 << 10),
    ("sm_80", 1024, 65, 0),
    ("sm_89", 256, 40, 0),
    ("sm_89", 1024, 32, 0),
    ("sm_90", 128, 168, 112 << 10),
):
    case = f"{arch} {threads:5} threads {registers:4} registers {shared_bytes >> 10:4} KB"
    try:
        o = occupancy(target(arch), threads, registers, shared_bytes)
        print(f"{case}: {o.warps_per_sm:2} warps, {o.fraction:4.0%}, limited by {o.limited_by}")
    except UsageError as error:
        print(f"{case}: {str(error).partition(': ')[2]}")

"""Which 32-byte sectors a warp touches in global memory, in address order, gaps left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uopc.inspect.requests import LINE_BYTES, SECTOR_BYTES


@dataclass(frozen=True)
class Sector:
    """start: its first byte; used: bytes from its start that lanes ask for, as [from, to) in order;
    lanes: who asks; gap_bytes: untouched between the sector before and this one."""

    start: int
    used: tuple[tuple[int, int], ...]
    lanes: tuple[int, ...]
    gap_bytes: int

    @property
    def line(self) -> int:
        return self.start // LINE_BYTES * LINE_BYTES

    @property
    def used_bytes(self) -> int:
        return sum(end - start for start, end in self.used)


def sectors(lanes: Sequence[int | None], width_bytes: int) -> tuple[Sector, ...]:
    """lanes: byte offset of each, None where a lane is not active; width_bytes: of each."""
    asked: dict[int, set[int]] = {}
    wanted: dict[int, set[int]] = {}
    for lane, offset in enumerate(lanes):
        if offset is None:
            continue
        for byte in range(offset, offset + width_bytes):
            start = byte // SECTOR_BYTES * SECTOR_BYTES
            asked.setdefault(start, set()).add(lane)
            wanted.setdefault(start, set()).add(byte - start)
    made: list[Sector] = []
    for start in sorted(asked):
        gap = start - made[-1].start - SECTOR_BYTES if made else 0
        made.append(Sector(start, _runs(wanted[start]), tuple(sorted(asked[start])), gap))
    return tuple(made)


def _runs(numbers: set[int]) -> tuple[tuple[int, int], ...]:
    """Neighbours as [first, last + 1)."""
    runs: list[tuple[int, int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n:
            runs[-1] = (runs[-1][0], n + 1)
        else:
            runs.append((n, n + 1))
    return tuple(runs)

"""Which of the 32 banks of shared memory each lane of a warp reaches, wavefront by wavefront.

A bank holds every 32nd word of 4 bytes and gives one word a wavefront; lanes that want the same
word share it.  A warp that asks for more than 128 bytes is served in parts: halves for 8 bytes a
lane, quarters for 16 (CUDA C++ Programming Guide, "Shared Memory").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BANKS, WORD = 32, 4


@dataclass(frozen=True)
class Wavefront:
    """One pass: the lanes that each bank serves; part: of the warp, from 0; again: this part has
    had a wavefront already, a conflict."""

    part: int
    again: bool
    served: tuple[tuple[int, ...], ...]


def wavefronts(lanes: Sequence[int | None], width_bytes: int) -> tuple[Wavefront, ...]:
    """lanes: byte offset of each, None where a lane is not active; width_bytes: of each."""
    words = -(-width_bytes // WORD)
    at_once = max(1, len(lanes) // words)
    made: list[Wavefront] = []
    for part, first in enumerate(range(0, len(lanes), at_once)):
        wanted: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
        for lane in range(first, min(first + at_once, len(lanes))):
            offset = lanes[lane]
            if offset is None:
                continue
            for word in range(offset // WORD, -(-(offset + width_bytes) // WORD)):
                wanted[word % BANKS].setdefault(word, []).append(lane)
        by_bank = [list(of_bank.values()) for of_bank in wanted]
        for turn in range(max(map(len, by_bank))):
            served = tuple(tuple(w[turn]) if turn < len(w) else () for w in by_bank)
            made.append(Wavefront(part, turn > 0, served))
    return tuple(made)

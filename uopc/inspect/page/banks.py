"""Which of the 32 banks of shared memory each lane of a warp reaches, wavefront by wavefront.

A bank holds every 32nd word of 4 bytes and gives one word a wavefront; lanes that want the same
word share it.  The groups of lanes are those that `uopc/inspect/requests.py` counts by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uopc.inspect.requests import BANK_BYTES, BANKS


@dataclass(frozen=True)
class Wavefront:
    """One pass: the lanes that each bank serves; group: of lanes, from 0; again: this group has had
    a wavefront already, a conflict."""

    group: int
    again: bool
    served: tuple[tuple[int, ...], ...]


def wavefronts(
    lanes: Sequence[int | None], width_bytes: int, plain_load: bool = True
) -> tuple[Wavefront, ...]:
    """lanes: byte offset of each, None where a lane is not active; width_bytes: of each."""
    made: list[Wavefront] = []
    for number, group in enumerate(_groups(lanes, width_bytes, plain_load)):
        wanted: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
        for lane in group:
            offset = lanes[lane]
            if offset is None:
                continue
            first = offset // BANK_BYTES
            for word in range(first, first + max(1, width_bytes // BANK_BYTES)):
                wanted[word % BANKS].setdefault(word, []).append(lane)
        by_bank = [list(of_bank.values()) for of_bank in wanted]
        for turn in range(max(map(len, by_bank))):
            served = tuple(tuple(w[turn]) if turn < len(w) else () for w in by_bank)
            made.append(Wavefront(number, turn > 0, served))
    return tuple(made)


def _groups(lanes: Sequence[int | None], width_bytes: int, plain_load: bool) -> Iterator[range]:
    """Lanes that are served together: as many as ask for 128 bytes, two such groups at once where
    all lanes go in pairs of one address."""
    size = max(1, len(lanes) // max(1, width_bytes // BANK_BYTES))
    if plain_load and any(_alike(lanes, apart) for apart in (1, 2)):
        size = min(len(lanes), 2 * size)
    for start in range(0, len(lanes), size):
        yield range(start, min(start + size, len(lanes)))


def _alike(lanes: Sequence[int | None], apart: int) -> bool:
    """Has each lane the address of lane ^ apart, where both are active?"""
    pairs = [(x, lanes[n ^ apart]) for n, x in enumerate(lanes) if n ^ apart < len(lanes)]
    return all(a is None or b is None or a == b for a, b in pairs)

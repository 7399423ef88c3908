"""What memory does with the addresses of one warp: sectors, and wavefronts of shared memory.

Arrays have a row for each request and a column for each of 32 lanes: byte offsets, and which lanes
are active.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WARP = 32
SECTOR_BYTES = 32  # what the memory system moves at least (CUDA Best Practices Guide)
BANKS, BANK_BYTES = 32, 4  # CUDA Programming Guide, shared memory
LINE_BYTES = BANKS * BANK_BYTES

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_NONE = np.iinfo(np.int64).max


def _sorted(values: Ints, active: Bools) -> tuple[Ints, Bools]:
    """Each row's values in order, and where in it each of them stands for the first time."""
    row = np.sort(np.where(active, values, _NONE), axis=-1)
    new = row != _NONE
    new[:, 1:] &= row[:, 1:] != row[:, :-1]
    return row, new


def distinct(values: Ints, active: Bools) -> Ints:
    """How many different values the active lanes of each row have."""
    counted: Ints = _sorted(values, active)[1].sum(axis=-1)
    return counted


def sectors(addresses: Ints, active: Bools, width: int) -> Ints:
    """32-byte pieces that each request touches; width: bytes of a lane."""
    first = addresses // SECTOR_BYTES
    last = (addresses + width - 1) // SECTOR_BYTES
    if np.array_equal(first, last):
        return distinct(first, active)
    both = np.concatenate((first, last), axis=-1)
    return distinct(both, np.concatenate((active, active), axis=-1))


def least_sectors(addresses: Ints, active: Bools, width: int) -> Ints:
    """The fewest sectors that could hold the different bytes of each request."""
    return -(-distinct(addresses, active) * width // SECTOR_BYTES)


def wavefronts(
    addresses: Ints, active: Bools, width: int, plain_load: bool = True
) -> tuple[Ints, Ints]:
    """(passes of shared memory that each request takes, those without bank conflicts).

    Lanes go in groups that ask for 128 bytes at most: 32 of 4 bytes, 16 of 8, 8 of 16.  Two groups
    of a plain load go as one where every lane of the warp has the address of its neighbour, or
    every lane that of the lane two further.  Seen with ncu on an H200 (note 0016).
    """
    taken = np.zeros(len(addresses), dtype=np.int64)
    least = np.zeros_like(taken)
    size = WARP // max(1, width // BANK_BYTES)
    together = np.zeros(len(addresses), dtype=bool)
    if plain_load and size < WARP:
        together = _alike(addresses, active, 1) | _alike(addresses, active, 2)
    for rows, lanes in ((together, min(WARP, 2 * size)), (~together, size)):
        for group in _groups(WARP, lanes):
            taken[rows] += _passes(addresses[rows, group], active[rows, group], width)
            least[rows] += active[rows, group].any(axis=-1)
    return taken, least


def _groups(lanes: int, size: int) -> list[slice]:
    return [slice(at, at + size) for at in range(0, lanes, size)]


def _alike(addresses: Ints, active: Bools, apart: int) -> Bools:
    """Rows in which each lane has the address of lane ^ apart, where both are active."""
    other = np.arange(addresses.shape[1]) ^ apart
    both = active & active[:, other]
    alike: Bools = ((addresses == addresses[:, other]) | ~both).all(axis=-1)
    return alike


def _passes(addresses: Ints, active: Bools, width: int) -> Ints:
    """The most different words that lanes of a group want from one bank."""
    words = [addresses // BANK_BYTES + n for n in range(max(1, width // BANK_BYTES))]
    if not addresses.size:
        return np.zeros(len(addresses), dtype=np.int64)
    row, new = _sorted(
        np.concatenate(words, axis=-1), np.concatenate([active] * len(words), axis=-1)
    )
    n = np.broadcast_to(np.arange(len(row))[:, None], row.shape)
    counts = np.zeros((len(row), BANKS), dtype=np.int64)
    np.add.at(counts, (n[new], row[new] % BANKS), 1)
    most: Ints = counts.max(axis=-1)
    return most

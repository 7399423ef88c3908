"""Moves: ldmatrix and stmatrix, and how they carry a fragment from and to shared memory.

Source: PTX ISA 9.0, ldmatrix and stmatrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uopc.errors import UsageError
from uopc.layouts.fragment import REGISTER, THREAD, WARP, Digit, Fragment, digits


@dataclass(frozen=True)
class MatrixMove:
    """One ldmatrix (shared memory to registers) or stmatrix (back) of 8x8 tiles of 16 bits.

    tiles: 1, 2 or 4, and so many 32-bit registers a thread.  Memory holds each tile as 8 rows of
    16 bytes anywhere; lane l names the place of row l % 8 of tile l // 8 (lanes beyond tiles * 8
    are not read, `address` gives them valid rows again).  fragment: (lane, 2 * register + half) ->
    (8 * tile + row, column), the tiles as they lie in memory.
    """

    instruction: str
    tiles: int
    transposed: bool
    target: str
    fragment: Fragment
    address: Fragment


def _move(store: bool, tiles: int, transposed: bool) -> MatrixMove:
    """PTX ISA, "ldmatrix" and "stmatrix": lane l has elements 2 (l % 4) and the next of row l // 4;
    transposed, of column l // 4."""
    across = digits((THREAD, 4, 8, 1))
    along = digits((REGISTER, 1, 2, 1), (THREAD, 1, 4, 2))
    row, column = (along, across) if transposed else (across, along)
    shape = f"x{tiles}{'.trans' if transposed else ''}.shared.b16"
    return MatrixMove(
        f"{'stmatrix' if store else 'ldmatrix'}.sync.aligned.m8n8.{shape}",
        tiles,
        transposed,
        "sm_90" if store else "sm_75",
        Fragment(2 * tiles, WARP, row + digits((REGISTER, 2, tiles, 8)), column),
        Fragment(1, WARP, digits((THREAD, 1, 8 * tiles, 1)), ()),
    )


#: moves by (tiles, transposed)
LDMATRIX: Mapping[tuple[int, bool], MatrixMove] = {
    (n, t): _move(False, n, t) for n in (1, 2, 4) for t in (False, True)
}
STMATRIX: Mapping[tuple[int, bool], MatrixMove] = {
    (n, t): _move(True, n, t) for n in (1, 2, 4) for t in (False, True)
}


@dataclass(frozen=True)
class MatrixAccess:
    """How moves carry a fragment from or to a tile in shared memory.

    `groups` times the move; group g carries the 32-bit registers g * tiles ... + tiles - 1.
    rows(thread, group) -> (row, column), in the fragment's coordinates, of the first element of the
    16-byte row whose address the thread gives.
    """

    move: MatrixMove
    groups: int
    rows: Fragment


def matrix_access(
    fragment: Fragment, element_bytes: int, contiguous: str, store: bool = False
) -> MatrixAccess | None:
    """The moves for a fragment of a tile that memory holds contiguous along "row" or "column".

    `contiguous` names the coordinate that changes along a memory row: an A fragment (m, k) of a
    row-major A has "column"; a B fragment (k, n) has "row" where B is stored (n, k), and "column",
    which transposes, where it is stored (k, n).  None where no move does it: transposing moves are
    for 16-bit elements, and lanes must lie as in an 8x8 tile.
    """
    if contiguous not in ("row", "column"):
        raise UsageError(f"matrix_access: contiguous is {contiguous!r}; say 'row' or 'column'")
    if element_bytes not in (1, 2, 4):
        return None
    packing = 4 // element_bytes
    along, across = (
        (fragment.column, fragment.row)
        if contiguous == "column"
        else (fragment.row, fragment.column)
    )
    pair = set(digits((REGISTER, 1, packing, 1), (THREAD, 1, 4, packing)))
    lanes = set(digits((THREAD, 4, 8, 1)))
    if pair <= set(along) and lanes <= set(across):
        transposed = False
    elif element_bytes == 2 and pair <= set(across) and lanes <= set(along):
        transposed = True
    else:
        return None
    outside = [[d for d in digits if d not in pair | lanes] for digits in (across, along)]
    registers = fragment.registers // packing
    tiles = next(n for n in (4, 2, 1) if _splits(outside[0] + outside[1], packing, n, registers))
    outer_across, outer_along = (_addressed(digits, packing, tiles) for digits in outside)
    outer_across = digits((THREAD, 1, 8, 1)) + outer_across
    row, column = (
        (outer_across, outer_along) if contiguous == "column" else (outer_along, outer_across)
    )
    groups = registers // tiles
    return MatrixAccess(
        (STMATRIX if store else LDMATRIX)[tiles, transposed],
        groups,
        Fragment(groups, fragment.threads, row, column),
    )


def _splits(outside: Sequence[Digit], packing: int, tiles: int, registers: int) -> bool:
    """Whether every digit of the 32-bit register falls apart into those of tile and of group."""

    def falls_apart(first: int, size: int) -> bool:
        if first % tiles == 0:  # all of it counts groups
            return True
        return tiles % first == 0 and 0 in (tiles % (first * size), first * size % tiles)

    firsts = [(d.divide // packing, d.size) for d in outside if d.of == REGISTER]
    return registers % tiles == 0 and all(falls_apart(*digit) for digit in firsts)


def _addressed(outside: Sequence[Digit], packing: int, tiles: int) -> tuple[Digit, ...]:
    """The digits outside a tile, in terms of the thread that addresses and the group.

    An element lies in 32-bit register element // packing; register r is tile r % tiles of group
    r // tiles; the lanes from 8 * tile on address that tile.
    """
    found = []
    for d in outside:
        if d.of == THREAD:  # which warp
            found.append((THREAD, d.divide, d.size, d.scale))
            continue
        first = d.divide // packing
        in_move = min(d.size, max(1, tiles // first))
        found.append((THREAD, 8 * first, in_move, d.scale))
        found.append((REGISTER, max(1, first // tiles), d.size // in_move, d.scale * in_move))
    return digits(*found)

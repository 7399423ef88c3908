"""Fragments: how the threads of a warp or warpgroup share a tile, as sums of digits.

They are written with // % * and + alone, so that one record gives a kernel's index arithmetic
(UOps), a table (numpy) and single places (ints).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

#: an int, a numpy array of integers, or a UOp of dtype index
Value: TypeAlias = Any

THREAD = "T"
REGISTER = "R"
WARP = 32
WARPGROUP = 128


@dataclass(frozen=True, slots=True)
class Digit:
    """((x // divide) % size) * scale, where x is the thread or the number of an element in it."""

    of: str
    divide: int
    size: int
    scale: int

    def __call__(self, thread: Value, register: Value) -> Value:
        x = thread if self.of == THREAD else register
        x = (x if self.divide == 1 else x // self.divide) % self.size
        return x if self.scale == 1 else x * self.scale


def _sum(digits: Sequence[Digit], thread: Value, register: Value) -> Value:
    total: Value = 0
    for number, digit in enumerate(digits):
        term = digit(thread, register)
        total = total + term if number else term
    return total


@dataclass(frozen=True)
class Fragment:
    """How the threads of a group hold a tile.

    registers: elements that a thread holds (several may share one 32-bit register); threads of the
    group, 32 or 128; row and column of an element: sums of digits of its thread (0 ... threads - 1)
    and its number in the thread (0 ... registers - 1).
    """

    registers: int
    threads: int
    row: tuple[Digit, ...]
    column: tuple[Digit, ...]

    def __call__(self, thread: Value, register: Value) -> tuple[Value, Value]:
        """(row, column) of an element."""
        return _sum(self.row, thread, register), _sum(self.column, thread, register)

    def locate(self, row: Value, column: Value) -> tuple[Value, Value]:
        """(thread, register) that holds an element: the inverse, where the map is a bijection."""
        found: dict[str, Value] = {}
        for digits, where in ((self.row, row), (self.column, column)):
            for d in digits:
                part = Digit(d.of, d.scale, d.size, d.divide)(where, where)
                found[d.of] = found[d.of] + part if d.of in found else part
        return found.get(THREAD, 0), found.get(REGISTER, 0)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the tile."""
        rows, columns = (
            1 + sum((d.size - 1) * d.scale for d in digits) for digits in (self.row, self.column)
        )
        return rows, columns

    def table(self) -> np.ndarray[Any, Any]:
        """(row, column) of every element: int64, shape (threads, registers, 2)."""
        where = self(np.arange(self.threads)[:, None], np.arange(self.registers)[None, :])
        full = [np.broadcast_to(part, (self.threads, self.registers)) for part in where]
        return np.stack(full, axis=-1).astype(np.int64)

    def is_bijection(self, rows: int, columns: int) -> bool:
        """Whether each element of a tile of rows x columns is held exactly once."""
        row, column = self.table().reshape(-1, 2).T
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        count = np.bincount(row[inside] * columns + column[inside], minlength=rows * columns)
        return bool(inside.all() and (count == 1).all())

    def vector(self, axis: str) -> int:
        """How many elements 0, 1, 2 ... of a thread are neighbours along "row" or "column"."""
        run = 1
        while step := [
            d
            for d in (self.row if axis == "row" else self.column)
            if d.of == REGISTER and d.divide == run and d.scale == run
        ]:
            run *= step[0].size
        return run

    def repeat(self, rows: int = 1, columns: int = 1) -> Fragment:
        """rows x columns of these tiles, all held by the same threads: a warp's tile.

        Element r of tile (i, j) has the number (i * columns + j) * registers + r.
        """
        height, width = self.shape
        down = Digit(REGISTER, self.registers * columns, rows, height)
        across = Digit(REGISTER, self.registers, columns, width)
        return Fragment(
            self.registers * rows * columns,
            self.threads,
            (*self.row, down) if rows > 1 else self.row,
            (*self.column, across) if columns > 1 else self.column,
        )

    def take(self, tile: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What each thread holds of a tile (rows, columns): shape (threads, registers)."""
        where = self.table()
        held: np.ndarray[Any, Any] = tile[where[..., 0], where[..., 1]]
        return held

    def put(self, held: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The tile (rows, columns) that threads hold as (threads, registers): inverse of `take`."""
        where = self.table()
        tile = np.empty(self.shape, held.dtype)
        tile[where[..., 0], where[..., 1]] = held
        return tile


def digits(*digits: tuple[str, int, int, int]) -> tuple[Digit, ...]:
    """Digits, those of size 1 left out: they are always 0."""
    return tuple(Digit(*d) for d in digits if d[2] > 1)

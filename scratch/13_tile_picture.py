"""Draws book/pictures/tile.svg: where eight lanes write a column of a tile, and read a row."""

from __future__ import annotations

from pathlib import Path

from uopc.passes.turn import Tile
from uopc.symbolic import index as ix

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "tile.svg"
TILE = Tile(rows=8, columns=32, item_bytes=4, lanes=8, block=1, unit=4, read=4)
CHUNK, WRITTEN, READ = (
    4,
    2,
    5,
)  # floats of 16 bytes; the column that is written, the row that is read
WIDTH, CELL, LEFT, GAP, TOP = 552, 30, 20, 32, 50
INK, PAPER, EMPTY = "#1c2733", "#ffffff", "#e7ebef"
WRITES, READS = "#2f7fc4", "#3f9d52"


def place(row: int, chunk: int, rotated: bool) -> int:
    """Which of the eight places of its line a chunk of a row has."""
    if not rotated:
        return chunk
    at: int = TILE.index(ix.index(row), ix.index(chunk * CHUNK)).arg.bits
    return at % TILE.columns // CHUNK


def draw() -> str:
    parts = []
    for n, rotated in enumerate((False, True)):
        left = LEFT + n * (8 * CELL + GAP)
        columns = {place(row, WRITTEN, rotated) for row in range(TILE.rows)}
        name = "rotated" if rotated else "in order"
        parts.append(words(left, 20, f"{name}: 8 lanes write to"))
        turns = "1 turn" if rotated else "8 turns"
        parts.append(words(left, 36, f"{4 * len(columns)} of 32 banks, {turns}"))
        for row in range(TILE.rows):
            for chunk in range(8):
                x, y = left + CELL * place(row, chunk, rotated), TOP + CELL * row
                colour = WRITES if chunk == WRITTEN else READS if row == READ else EMPTY
                parts.append(rect(x, y, CELL - 2, CELL - 2, colour))
                ink = INK if colour == EMPTY else PAPER
                parts.append(words(x + 9, y + 19, str(chunk), ink))
    height = TOP + CELL * TILE.rows + 34
    line = "A row has 8 chunks. Blue: written at once. Green: read at once."
    parts.append(words(LEFT, height - 12, line))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>A tile in shared memory: chunks in order, and rotated by their row</title>"
    return "\n".join([head, title, rect(0, 0, WIDTH, height, PAPER), *parts, "</svg>", ""])


def rect(x: int, y: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>'


def words(x: int, y: int, line: str, ink: str = INK) -> str:
    return f'<text x="{x}" y="{y}" fill="{ink}">{line}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

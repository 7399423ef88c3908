"""Draws book/pictures/sectors.svg: what one access of a warp touches, in 32-byte sectors."""

from __future__ import annotations

from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "sectors.svg"
WIDTH, CELL, LEFT, FLOATS, SECTOR, LANES = 552, 4, 20, 128, 8, 32
INK, PAPER, EMPTY = "#1c2733", "#ffffff", "#e7ebef"
COLOURS = ("#2f7fc4", "#3f9d52")  # even and odd lanes
PATTERNS = {
    "4 bytes a lane, neighbours: x[lane]": [[lane] for lane in range(LANES)],
    "4 bytes a lane, 4 apart: x[4*lane]": [[4 * lane] for lane in range(LANES)],
    "16 bytes a lane: x[4*lane] and 3 more": [
        [4 * lane + k for k in range(4)] for lane in range(LANES)
    ],
}


def draw() -> str:
    parts, y = [], 24
    for name, elements in PATTERNS.items():
        touched = {e // SECTOR for mine in elements for e in mine}
        used = 4 * sum(len(mine) for mine in elements)
        count = f"{len(touched)} sectors, {used} of {32 * len(touched)} bytes used"
        parts.append(words(LEFT, y, f"{name}: {count}"))
        for e in range(FLOATS):
            parts.append(rect(LEFT + CELL * e, y + 8, CELL - 1, 22, EMPTY))
        for lane, mine in enumerate(elements):
            for e in mine:
                parts.append(rect(LEFT + CELL * e, y + 8, CELL - 1, 22, COLOURS[lane % 2]))
        for s in sorted(touched):
            x = LEFT + CELL * SECTOR * s
            box = f'<rect x="{x}" y="{y + 6}" width="{CELL * SECTOR - 1}" height="26" fill="none"'
            parts.append(f'{box} stroke="{INK}"/>')
        y += 66
    height = y - 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>128 floats in memory, and the sectors that one access of a warp moves</title>"
    paper = rect(0, 0, WIDTH, height, PAPER)
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def rect(x: int, y: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>'


def words(x: int, y: int, line: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{INK}">{line}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

"""Draws book/pictures/fragment.svg: which lane of a warp holds each element of A, B and D."""

from __future__ import annotations

from pathlib import Path

from uopc import layouts
from uopc.layouts import Fragment

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "fragment.svg"
ATOM = layouts.atom_named("mma.m16n8k16.bf16")
SHOWN = 5  # the lane whose elements are coloured
CELL, LEFT, TOP, GAP = 20, 20, 26, 26
INK, PAPER, EMPTY, HELD = "#1c2733", "#ffffff", "#e7ebef", "#2f7fc4"


def grid(name: str, fragment: Fragment, left: int, top: int) -> list[str]:
    """A matrix with the lane of each element."""
    rows, columns = fragment.shape
    parts = [words(left, top - 8, f"{name}: {rows} x {columns}, {fragment.registers} a lane", 0)]
    for row in range(rows):
        for column in range(columns):
            lane, _ = fragment.locate(row, column)
            x, y = left + CELL * column, top + CELL * row
            mine = lane == SHOWN
            parts.append(rect(x, y, CELL - 1, CELL - 1, HELD if mine else EMPTY))
            parts.append(words(x + CELL // 2, y + 14, str(lane), 1, PAPER if mine else INK))
    return parts


def draw() -> str:
    a, b, d = (x.fragment for x in (ATOM.a, ATOM.b, ATOM.accumulator))
    assert a is not None and b is not None and d is not None
    right, bottom = LEFT + a.shape[1] * CELL + GAP, TOP + b.shape[0] * CELL + GAP
    width, height = right + d.shape[1] * CELL + LEFT, bottom + d.shape[0] * CELL + 12
    parts = [
        *grid("B", b, right, TOP),
        *grid("A", a, LEFT, bottom),
        *grid("D", d, right, bottom),
    ]
    for n, line in enumerate(
        (ATOM.name, "", "Numbers: the lane that", "holds the element.", f"Blue: lane {SHOWN}.")
    ):
        parts.append(words(LEFT, TOP + 60 + 20 * n, line, 0))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">'
    )
    title = f"<title>{ATOM.name}: the lane that holds each element of A, B and D</title>"
    return "\n".join([head, title, rect(0, 0, width, height, PAPER), *parts, "</svg>", ""])


def rect(x: int, y: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>'


def words(x: int, y: int, line: str, middle: int, ink: str = INK) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}" fill="{ink}"{anchor}>{line}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

"""Draws book/pictures/digits.svg: elements of an axis, the lanes that own them, their registers."""

from __future__ import annotations

from html import escape
from pathlib import Path

from uopc.dtype import dtypes
from uopc.opts import Opts
from uopc.passes.split import split
from uopc.pipeline import index
from uopc.symbolic import index as ix
from uopc.uop import Ops, UOp, buffer, toposort
from uopc.uop.facts import free

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "digits.svg"
OPTS = Opts(gpu=True, local={0: 4}, upcast={0: 2}, vector={0: 2})
LANES, COPIES, PLACES = 4, 2, 2
WIDTH, CELL, LEFT = 520, 30, 20
INK, PAPER = "#1c2733", "#ffffff"
COLOURS = ("#bcd9f5", "#c9e7c4", "#f6dcb0", "#e6c9e8")  # one a lane


def offset() -> UOp:
    """The element that a thread touches, as `split` writes it for an axis of 48."""
    root = split(index([buffer(0, dtypes.i8, (48,)) * 2], [buffer(1, dtypes.i8, (48,))]), OPTS)
    (store,) = (u for u in toposort(root) if u.op is Ops.STORE)
    return store.src[0].src[1]


def owners(block: int) -> dict[int, tuple[int, int, int]]:
    """{element: (lane, copy, place)} of one block."""
    at = offset()
    digits = {r.arg.digit: r for r in free(at)}
    found = {}
    for lane in range(LANES):
        for copy in range(COPIES):
            for place in range(PLACES):
                values = {"g": block, "l": lane, "u": copy, "v": place}
                numbers = {digits[d]: ix.index(n) for d, n in values.items()}
                found[ix.substitute(at, numbers).arg.bits] = (lane, copy, place)
    return found


def draw() -> str:
    found, parts = owners(0), []
    per_access = LANES * PLACES
    parts.append(words(LEFT, 24, "memory, elements of block 0", "start"))
    for element, (lane, _, _) in sorted(found.items()):
        parts.append(cell(LEFT + CELL * element, 34, lane, str(element)))
    for copy in range(COPIES):
        x, width = LEFT + CELL * per_access * copy, CELL * per_access
        line = f"M{x + 3} 70 v6 h{width - 6} v-6"
        parts.append(f'<path d="{line}" fill="none" stroke="{INK}"/>')
        parts.append(words(x + width // 2, 92, f"one access of the warp, u0 = {copy}", "middle"))
    parts.append(words(LEFT, 128, "registers", "start"))
    for lane in range(LANES):
        x = LEFT + lane * 4 * CELL
        parts.append(words(x + CELL * 2 - 4, 150, f"lane {lane}", "middle"))
    for element, (lane, copy, place) in found.items():
        x = LEFT + lane * 4 * CELL + (CELL - 2) * (copy * PLACES + place)
        parts.append(cell(x, 158, lane, str(element), CELL - 2))
        parts.append(words(x + (CELL - 2) // 2, 204, f"[{copy * PLACES + place}]", "middle"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 216" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>Sixteen elements of one block, and the lane and register of each</title>"
    paper = f'<rect width="{WIDTH}" height="216" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def cell(x: int, y: int, lane: int, line: str, size: int = CELL) -> str:
    box = f'<rect x="{x}" y="{y}" width="{size}" height="{CELL}" fill="{COLOURS[lane]}"'
    return f'{box} stroke="white"/>' + words(x + size // 2, y + CELL // 2 + 4, line, "middle")


def words(x: int, y: int, line: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{INK}" text-anchor="{anchor}">{escape(line)}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

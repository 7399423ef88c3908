"""Draws book/pictures/warps.svg: two warps as functions that return at a barrier and go on."""

from __future__ import annotations

from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "warps.svg"
WIDTH, HEIGHT, LEFT, ROW, STEP = 560, 250, 78, 74, 119
INK, PAPER, LINE = "#1c2733", "#ffffff", "#8796a5"
FILL, READ = "#bcd9f5", "#c9e7c4"
#: (warp, call, where it begins, text, how it ends, colour), in order of time
PARTS = (
    (0, "call 1", "case 0", "tile[t] = x[t]", "return 1", FILL),
    (1, "call 2", "case 0", "tile[t] = x[t]", "goes on", FILL),
    (1, "", "case 1", "y[t] = tile[63-t]", "return 0", READ),
    (0, "call 3", "case 1", "y[t] = tile[63-t]", "return 0", READ),
)


def draw() -> str:
    parts = [words(LEFT + STEP * k + 4, 24, call) for k, (_, call, *_) in enumerate(PARTS) if call]
    for warp in range(2):
        y = 40 + ROW * warp
        parts.append(words(8, y + 32, f"warp {warp}"))
        parts.append(f'<path d="M{LEFT} {y + 28} h{STEP * 4}" stroke="{LINE}" opacity="0.5"/>')
    for k, (warp, _, case, text, result, colour) in enumerate(PARTS):
        x, y = LEFT + STEP * k, 40 + ROW * warp
        box = f'<rect x="{x}" y="{y}" width="{STEP - 4}" height="58" rx="6" fill="{colour}"/>'
        parts += [box, words(x + 6, y + 16, case), words(x + 6, y + 33, text, 10)]
        parts += [words(x + 6, y + 50, result)]
    x = LEFT + 2 * STEP - 2
    parts.append(f'<path d="M{x} 32 v152" stroke="{INK}" stroke-dasharray="4 3"/>')
    parts.append(words(x - 118, 200, "warp 1 has arrived: the barrier opens"))
    lines = (
        "Each box is a loop over 32 lanes.  Warp 1 comes last, so it goes on at once;",
        "warp 0 goes on when it is called again.",
    )
    parts += [words(8, 222 + 16 * k, line, 11) for k, line in enumerate(lines)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>Three calls run a block of two warps through one barrier</title>"
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def words(x: int, y: int, line: str, size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" fill="{INK}" font-size="{size}">{escape(line)}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

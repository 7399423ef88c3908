"""Draws book/pictures/butterfly.svg: eight lanes exchange three times, and all hold the total."""

from __future__ import annotations

from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "butterfly.svg"
LANES, WIDTH, HEIGHT = 8, 520, 306
LEFT, TOP, ACROSS, DOWN = 40, 46, 62, 78
INK, PAPER, LINE, NODE, LAST = "#1c2733", "#ffffff", "#8796a5", "#bcd9f5", "#c9e7c4"
MASKS = (4, 2, 1)


def draw() -> str:
    parts, held = [], [{lane} for lane in range(LANES)]
    for lane in range(LANES):
        parts.append(words(LEFT + ACROSS * lane, 20, f"lane {lane}"))
    circles = [node(lane, 0, held[lane]) for lane in range(LANES)]
    for step, mask in enumerate(MASKS, 1):
        held = [held[lane] | held[lane ^ mask] for lane in range(LANES)]
        for lane in range(LANES):
            for source in (lane, lane ^ mask):
                x0, x1 = LEFT + ACROSS * source, LEFT + ACROSS * lane
                y0, y1 = TOP + DOWN * (step - 1), TOP + DOWN * step
                parts.append(f'<path d="M{x0} {y0} L{x1} {y1}" stroke="{LINE}"/>')
            circles.append(node(lane, step, held[lane]))
        parts.append(words(WIDTH - 24, TOP + DOWN * step - 34, f"^ {mask}"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>A butterfly over eight lanes: numbers say whose values a lane has added</title>"
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, *circles, "</svg>", ""])


def node(lane: int, step: int, held: set[int]) -> str:
    x, y = LEFT + ACROSS * lane, TOP + DOWN * step
    text = "all" if len(held) == LANES else "".join(map(str, sorted(held)))
    colour = LAST if len(held) == LANES else NODE
    return f'<rect x="{x - 22}" y="{y - 13}" width="44" height="26" rx="6" fill="{colour}"/>' + (
        words(x, y + 4, text)
    )


def words(x: int, y: int, line: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{INK}" text-anchor="middle">{line}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

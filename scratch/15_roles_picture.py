"""Draws book/pictures/roles.svg: tiles through a ring of three places, played in small steps."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "roles.svg"
TILES, DEPTH = 8, 3
ARRIVES, MULTIPLIES = 5, 3  # steps of time: a copy from request to arrival; a tile's products
UNIT, ROW, LEFT, TOP = 14, 30, 100, 44
INK, PAPER = "#1c2733", "#ffffff"
COLOURS = ("#2f7fc4", "#3f9d52", "#c4762f")  # of the places


class Times(NamedTuple):
    """Of a tile: asked for, there (full), used from, given back (empty)."""

    asked: int
    full: int
    start: int
    empty: int


def played() -> list[Times]:
    """The producer asks as soon as the place is empty, the consumer takes tiles in their order."""
    times: list[Times] = []
    for n in range(TILES):
        asked = max(n, times[n - DEPTH].empty if n >= DEPTH else 0)
        full = asked + ARRIVES
        start = max(full, times[-1].empty if times else 0)
        times.append(Times(asked, full, start, start + MULTIPLIES))
    return times


def draw() -> str:
    times = played()
    width = LEFT + UNIT * times[-1].empty + 24
    height = TOP + ROW * (DEPTH + 1) + 60
    parts = [words(LEFT, 20, "light: on its way (from empty to full); dark: multiplied")]
    for place in range(DEPTH):
        parts.append(words(16, TOP + ROW * place + 19, f"place {place}"))
    parts.append(words(16, TOP + ROW * DEPTH + 29, "multiply"))
    for n, t in enumerate(times):
        place = n % DEPTH
        y, colour = TOP + ROW * place, COLOURS[place]
        parts.append(bar(t.asked, t.full, y, colour, 0.35))
        parts.append(bar(t.full, t.start, y, colour, 0.6))
        parts.append(bar(t.start, t.empty, y, colour, 1.0))
        parts.append(words(LEFT + UNIT * t.asked + 4, y + 19, str(n)))
        below = TOP + ROW * DEPTH + 10
        parts.append(bar(t.start, t.empty, below, colour, 1.0))
        parts.append(words(LEFT + UNIT * t.start + 4, below + 19, str(n), PAPER))
    line = "A copy takes longer than a tile's products. The ring hides it."
    parts.append(words(16, height - 14, line))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>A ring of three places between one who copies and one who multiplies</title>"
    paper = f'<rect x="0" y="0" width="{width}" height="{height}" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def bar(first: int, last: int, y: int, colour: str, opacity: float) -> str:
    x, width = LEFT + UNIT * first, max(0, UNIT * (last - first) - 1)
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{ROW - 4}" fill="{colour}" '
        f'fill-opacity="{opacity}"/>'
    )


def words(x: int, y: int, line: str, ink: str = INK) -> str:
    return f'<text x="{x}" y="{y}" fill="{ink}">{line}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

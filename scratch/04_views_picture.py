"""Draws book/pictures/views.svg: which element of a (3, 4) array each element of a view reads."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from uopc.dtype import dtypes
from uopc.pipeline import index
from uopc.symbolic import simplify
from uopc.uop import Ops, UOp, buffer, prod, toposort
from uopc.uop.oracle import evaluate
from uopc.uop.text import index_text

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "views.svg"
WIDTH, CELL, MARGIN, LEFT = 520, 30, 14, 300
INK, PAPER, NOTHING = "#1c2733", "#ffffff", "#d9dee3"
ROWS = ("#bcd9f5", "#c9e7c4", "#f6dcb0")  # one colour a row of x


def views() -> dict[str, UOp]:
    x = buffer(0, dtypes.i32, (3, 4))
    return {
        "x": x,
        "x.permute((1, 0))": x.permute((1, 0)),
        "x.flip((1,))": x.flip((1,)),
        "x.shrink(((1, 3), (1, 3)))": x.shrink(((1, 3), (1, 3))),
        "x.reshape((2, 6))": x.reshape((2, 6)),
        "x.pad(((0, 1), (1, 1)), -1)": x.pad(((0, 1), (1, 1)), -1),
    }


def formula(view: UOp) -> list[str]:
    """The element that is read and the guard under which it is."""
    root = simplify(index([view], [buffer(1, dtypes.i32, (prod(view.shape),))]))
    (load,) = (u for u in toposort(root) if u.op is Ops.LOAD)
    lines = [f"reads {index_text(load)}"]
    if len(load.src) == 3:
        lines += ["where " + index_text(load.src[1]), "elsewhere -1"]
    return lines


def draw() -> str:
    parts: list[str] = []
    y = MARGIN
    source = np.arange(12, dtype=np.int32)
    for name, view in views().items():
        for k, line in enumerate([name, *formula(view)]):
            parts.append(words(MARGIN, y + 18 + 18 * k, line, "start", bold=k == 0))
        numbers = evaluate(view, {0: source})
        for (row, column), n in np.ndenumerate(numbers):
            parts.append(cell(LEFT + CELL * column, y + CELL * row, int(n)))
        y += max(CELL * len(numbers), 18 * 4) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>Views of a 3 by 4 array: the element that each place reads</title>"
    paper = f'<rect width="{WIDTH}" height="{y}" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def cell(x: int, y: int, n: int) -> str:
    colour = NOTHING if n < 0 else ROWS[n // 4]
    square = (
        f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}" stroke="white"/>'
    )
    return square + words(x + CELL // 2, y + CELL // 2 + 4, str(n), "middle")


def words(x: int, y: int, line: str, anchor: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" fill="{INK}" text-anchor="{anchor}"{weight}>{escape(line)}</text>'
    )


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

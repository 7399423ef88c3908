"""Draws book/pictures/step.svg: the kernels of a training step, and what crosses between them."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scratch.mlp_graph import StepGraph, step_graph
from uopc.schedule.memory import ErrorWord, Leaf, Place, Temporary
from uopc.schedule.plan import Launch, schedule
from uopc.target import target
from uopc.uop.node import toposort
from uopc.uop.ops import Ops

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "step.svg"
WIDTH, LEFT, TOP, ROW, BOX, LANE = 590, 12, 34, 62, 360, 30
INK, PAPER, LINE, FILL = "#1c2733", "#ffffff", "#8796a5", "#bcd9f5"
LANES = ("#2f6fb0", "#3b8a4a", "#b06a1c", "#8a3b78", "#a33333", "#4a4aa0")


def named(place: Place, graph: StepGraph) -> str:
    """A leaf by its name; "" for what only this step knows, and for the error word."""
    if isinstance(place, Leaf):
        return graph.leaves[place.number]
    return "" if isinstance(place, (Temporary, ErrorWord)) else "loss"


def touched(launch: Launch) -> tuple[list[Place], list[Place]]:
    """(memories read, memories written) of a launch."""
    (places,) = launch.places
    values = [o.value for o in launch.body.outputs]
    read = sorted({u.arg.slot for u in toposort(*values) if u.op is Ops.BUFFER})
    written = [o.memory.arg.slot for o in launch.body.outputs]
    return [places[s] for s in read], [places[s] for s in written]


def draw() -> str:
    graph = step_graph()
    launches = schedule(graph.roots, target("sm_80")).launches
    born: dict[Place, tuple[int, int]] = {}  # of a temporary: its kernel, its lane
    arrows: list[tuple[int, int, int, str]] = []
    parts: list[str] = []
    count = 0
    for n, launch in enumerate(launches):
        reads, writes = touched(launch)
        for p in reads:
            if isinstance(p, Temporary):
                start, lane = born[p]
                arrows.append((start, n, lane, f"{p.size}"))
        for p in writes:
            if isinstance(p, Temporary):
                born[p] = n, count
                count += 1
        y = TOP + ROW * n
        old = [named(p, graph) for p in reads if p not in writes]
        new = [named(p, graph) for p in writes if isinstance(p, Leaf)]
        others = [named(p, graph) for p in writes if not isinstance(p, (Leaf, Temporary))]
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{BOX}" height="{ROW - 10}" rx="6" fill="{FILL}"/>'
        )
        parts.append(words(LEFT + 8, y + 16, f"{n}: {launch.name}", bold=True))
        parts.append(words(LEFT + 8, y + 31, "reads " + ", ".join(filter(None, old)), 10))
        done = [f"updates {', '.join(new)}"] if new else []
        done += [f"gives {', '.join(others)}"] if others else []
        parts.append(words(LEFT + 8, y + 45, "; ".join(done), 10))
    for start, end, lane, size in arrows:
        parts.append(arrow(start, end, lane, size))
    height = TOP + ROW * len(launches) + 26
    parts.append(words(LEFT, 20, "kernels, in order", 11))
    parts.append(words(LEFT + BOX + 14, 20, "temporaries, in elements", 11))
    note = "sW: the running square of a gradient.  No gradient of a weight has memory."
    parts.append(words(LEFT, height - 10, note, 11))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">'
    )
    title = "<title>The kernels of a training step, and what crosses between them</title>"
    paper = f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def arrow(start: int, end: int, lane: int, size: str) -> str:
    """From the right side of one box to that of a later one, on the way of its lane."""
    right, x = LEFT + BOX, LEFT + BOX + 24 + LANE * lane
    y0, y1 = TOP + ROW * start + 20 + 5 * lane, TOP + ROW * end + 20 + 5 * lane
    colour = LANES[lane % len(LANES)]
    path = f'<path d="M{right} {y0} H{x} V{y1} H{right + 5}" fill="none" stroke="{colour}"/>'
    point = f'<path d="M{right} {y1} l7 -3.5 v7 z" fill="{colour}"/>'
    return path + point + words(x + 3, y0 + 12, size, 9)


def words(x: int, y: int, line: str, size: int = 12, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{INK}" font-size="{size}"{weight}>{escape(line)}</text>'


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

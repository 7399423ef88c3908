"""Draws book/pictures/stages.svg: one kernel in every stage, in the words of its own graphs."""

from __future__ import annotations

from html import escape
from pathlib import Path

from uopc.dtype import dtypes
from uopc.kernel import ProgramTree, Scope
from uopc.opts import Opts
from uopc.passes.split import split
from uopc.pipeline import finish, gpu_lower, index, render_cuda
from uopc.uop import Ops, UOp, buffer, toposort
from uopc.uop.text import index_text

TARGET = Path(__file__).resolve().parents[1] / "book" / "pictures" / "stages.svg"
WIDTH, MARGIN, LINE, GAP = 540, 14, 18, 34
INK, PAPER, BOX, ARROW = "#1c2733", "#ffffff", "#eef3f8", "#6b7c8d"


def stages() -> list[tuple[str, list[str], str]]:
    """(stage, its lines, the passes that lead to the next) for x*2 + 1 over 1000 elements."""
    x, out = buffer(0, dtypes.f32, (1000,)), buffer(1, dtypes.f32, (1000,))
    body, opts = x * 2.0 + 1.0, Opts(gpu=True, local={0: 128}, upcast={0: 2})
    indexed = index([body], [out])
    mapped = split(indexed, opts)
    loops = gpu_lower(body, out, opts)
    program = finish(loops)
    source = render_cuda(loops, "axpy")
    statements = [line.removeprefix("  ") for line in source.splitlines()[1:-1]]
    return [
        ("TENSOR: shaped values", [f"{index_text(body)}    {shape(body)}"], "rangeify, share"),
        ("INDEXED: scalars over axes", sentence(indexed), "choose Opts, simplify, split"),
        (
            "MAPPED: axes are digits",
            sentence(mapped),
            "cooperate, materialise, effects, vectorise, legalise",
        ),
        ("LOOPS: memory, loops, order", effects(loops), "linearize"),
        ("PROGRAM: a tree, in the order of execution", tree(program), "render"),
        ("CUDA C (and C, and emulation)", statements, ""),
    ]


def effects(root: UOp) -> list[str]:
    """The effects in their order; each END with what it closes."""
    lines = []
    for u in toposort(root):
        if u.op is Ops.STORE:
            lines.append(f"{index_text(u.src[0])} = {index_text(plain(u.src[1]))}")
        elif u.op is Ops.END:
            lines[-1] += f"    END({', '.join(index_text(r) for r in u.src[1:])})"
    return lines


def tree(program: ProgramTree) -> list[str]:
    """Runs of equal items, and what stands inside each scope."""
    words = [
        f"Scope {index_text(item.opener)} ({', '.join(type(i).__name__ for i in item.items)})"
        if isinstance(item, Scope)
        else type(item).__name__
        for item in program.items
    ]
    return [*words, f"grid {program.launch.grid}, block {program.launch.block}"]


def shape(u: UOp) -> str:
    return f"{u.dtype}[{', '.join(map(str, u.shape))}]"


def sentence(root: UOp) -> list[str]:
    """What a kernel stores, its guard and its ranges."""
    order = toposort(root)
    (store,) = (u for u in order if u.op is Ops.STORE)
    value = index_text(plain(store.src[1]))
    lines = [f"{index_text(store.src[0])} = {value}"]
    if len(store.src) == 3:
        lines.append(f"    where {index_text(store.src[2])}")
    ranges = [u for u in order if u.op is Ops.RANGE]
    lines.append(", ".join(f"{index_text(r)}: {r.arg.size} {r.arg.kind}" for r in ranges))
    return lines


def plain(u: UOp) -> UOp:
    """The value with its loads drawn without their gates."""
    gated = [x for x in toposort(u) if x.op is Ops.LOAD and len(x.src) == 3]
    return u.substitute({x: UOp(Ops.LOAD, x.src[:1]) for x in gated})


def draw() -> str:
    parts: list[str] = []
    y = MARGIN
    for title, lines, passes in stages():
        height = LINE * (len(lines) + 1) + 14
        parts.append(box(y, height))
        parts.append(text(y + LINE + 2, title, bold=True))
        parts += [text(y + LINE * (k + 2) + 4, line) for k, line in enumerate(lines)]
        y += height
        if passes:
            parts.append(arrow(y, passes))
            y += GAP
    y += MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">'
    )
    title = "<title>One kernel in every stage, from a shaped value to CUDA C</title>"
    paper = f'<rect width="{WIDTH}" height="{y}" fill="{PAPER}"/>'
    return "\n".join([head, title, paper, *parts, "</svg>", ""])


def box(y: int, height: int) -> str:
    return (
        f'<rect x="{MARGIN}" y="{y}" width="{WIDTH - 2 * MARGIN}" height="{height}" rx="6" '
        f'fill="{BOX}" stroke="{ARROW}"/>'
    )


def text(y: int, words: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{MARGIN + 12}" y="{y}" fill="{INK}" xml:space="preserve"{weight}>'
        f"{escape(words)}</text>"
    )


def arrow(y: int, passes: str) -> str:
    x, end = MARGIN + 24, y + GAP
    return (
        f'<path d="M{x} {y} V{end - 3} m-5 -8 l5 8 l5 -8" fill="none" stroke="{ARROW}" '
        f'stroke-width="2"/><text x="{x + 14}" y="{y + 22}" fill="{ARROW}">{escape(passes)}</text>'
    )


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name} written")

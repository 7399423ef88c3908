"""A report as the templates want it: in the order of the page, with keys to link by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from uopc.inspect.page import plots, warp_pictures, words
from uopc.inspect.page.code import cuda_lines
from uopc.inspect.page.graphs import Hunk, Line, Mark, compare
from uopc.inspect.page.user_code import UserFile, user_files
from uopc.inspect.records import (
    AccessReport,
    Advice,
    Boundary,
    How,
    PassReport,
    ProgramReport,
    Report,
    SourceLine,
)
from uopc.inspect.requests import LINE_BYTES, SECTOR_BYTES
from uopc.opts import Opts

FOLD, CONTEXT = 10, 3  # unchanged lines that fold away, and those left on either side


# ---- passes
@dataclass(frozen=True)
class Piece:
    """A hunk, or a part of one; folded: its lines are shown when asked for."""

    same: bool
    folded: bool
    before: tuple[Line, ...]
    after: tuple[Line, ...]


@dataclass(frozen=True)
class PassPage:
    """A pass and what it did; pieces are empty where it changed nothing, and of the first text,
    which has nothing before it."""

    key: str
    report: PassReport
    before: str
    pieces: tuple[Piece, ...]
    summary: str
    brief: str


def _passes(key: str, passes: Sequence[PassReport]) -> tuple[PassPage, ...]:
    made = []
    for n, report in enumerate(passes):
        before = passes[n - 1] if n else None
        lines = words.several(len(report.text.splitlines()), "line")
        hunks: tuple[Hunk, ...] = ()
        if before is None:
            summary, brief = f"The graph as it comes in: {lines}.", lines
        elif before.text == report.text:
            summary, brief = f"Nothing to do here: the graph is the same ({lines}).", "no change"
        else:
            hunks = compare(before.text, report.text)
            summary, brief = _counted(hunks, lines)
        name = before.name if before else ""
        made.append(PassPage(f"{key}-p{n}", report, name, tuple(_folded(hunks)), summary, brief))
    return tuple(made)


def _counted(hunks: Iterable[Hunk], lines: str) -> tuple[str, str]:
    """What happened to the lines, in a sentence and in short."""
    left = [line.mark for h in hunks for line in h.before]
    right = [line.mark for h in hunks for line in h.after]
    gone, new, changed = left.count(Mark.GONE), right.count(Mark.NEW), right.count(Mark.CHANGED)
    if not gone and not new and not changed:
        return f"The same nodes, in another order ({lines}).", "order only"
    said = f"{gone} gone, {new} new and {changed} changed, {right.count(Mark.SAME)} as before"
    parts = [f"{sign}{n}" for sign, n in (("−", gone), ("+", new), ("~", changed)) if n]
    return f"Of the nodes, {said}: {lines} now.", " ".join(parts)


def _folded(hunks: Iterable[Hunk]) -> Iterable[Piece]:
    for hunk in hunks:
        long = hunk.same and len(hunk.after) > FOLD
        if not long:
            yield Piece(hunk.same, False, hunk.before, hunk.after)
            continue
        inner = slice(CONTEXT, len(hunk.after) - CONTEXT)
        for part, folded in ((slice(0, CONTEXT), False), (inner, True)):
            yield Piece(True, folded, hunk.before[part], hunk.after[part])
        yield Piece(True, False, hunk.before[-CONTEXT:], hunk.after[-CONTEXT:])


# ---- accesses
@dataclass(frozen=True)
class AccessPage:
    """An access, what it costs, and where its first warp goes.

    unit: what its space moves; each, least: of these a request; used: as text; bad: it costs more
    than it must; unseen: why there is no picture.
    """

    key: str
    access: AccessReport
    unit: str
    each: str
    least: str
    used: str
    bad: bool
    picture: Markup | None
    caption: str
    unseen: str


def _accesses(key: str, accesses: Sequence[AccessReport]) -> tuple[AccessPage, ...]:
    """The worst first: by the bytes that move in vain, then by those that move."""
    ranked = sorted(accesses, key=lambda a: (-_wasted_bytes(a), -_moved_bytes(a), a.number))
    return tuple(_access(key, a) for a in ranked)


def _wasted_bytes(a: AccessReport) -> int:
    if a.space == "global":
        return SECTOR_BYTES * (a.sectors - a.least_sectors)
    return LINE_BYTES * a.conflicts


def _moved_bytes(a: AccessReport) -> int:
    return SECTOR_BYTES * a.sectors if a.space == "global" else LINE_BYTES * a.wavefronts


def _access(key: str, a: AccessReport) -> AccessPage:
    in_global = a.space == "global"
    done, least = (a.sectors, a.least_sectors) if in_global else (a.wavefronts, a.least_wavefronts)
    known = a.requests > 0 and done > 0
    return AccessPage(
        access_key(key, a.number),
        a,
        "sector" if in_global else "wavefront",
        words.trimmed(done / a.requests) if known else "?",
        words.trimmed(least / a.requests) if known else "?",
        words.share(least / done) if known else "?",
        known and done > least,
        warp_pictures.picture(a),
        warp_pictures.caption(a),
        _unseen(a),
    )


def _unseen(a: AccessReport) -> str:
    """Why there is no picture."""
    if a.op == "BULK":
        return "One thread asks for the whole box: there are no lanes to draw."
    if a.how is How.UNKNOWN:
        return "Where its lanes go is not known: data decides, and no arrays were given."
    return (
        "No lane is ever active." if not a.requests else "The addresses of its lanes are not known."
    )


def access_key(key: str, number: int) -> str:
    return f"{key}-a{number}"


# ---- text
@dataclass(frozen=True)
class TextLine:
    """A line of the kernel: number from 1."""

    key: str
    number: int
    text: Markup
    accesses: tuple[int, ...]


def _text(key: str, source: Sequence[SourceLine]) -> tuple[TextLine, ...]:
    made = cuda_lines("\n".join(line.text for line in source)) if source else ()
    return tuple(
        TextLine(f"{key}-s{n}", n, text, line.accesses)
        for n, (text, line) in enumerate(zip(made, source, strict=True), 1)
    )


def links(report: Report, files: Sequence[UserFile]) -> str:
    """What belongs together, for the script: of each line of text the lines of the graph, and the
    user's lines by their place in `origins`.  JSON that may stand in HTML."""
    numbers = {origin: n for n, origin in enumerate(origins(files))}
    lines = [
        [list(line.nodes), [numbers[o] for o in line.origins if o in numbers]]
        for line in report.source
    ]
    return safe_json(lines)


def origins(files: Sequence[UserFile]) -> list[str]:
    return [origin for file in files for origin in file.origins]


def safe_json(data: object) -> str:
    """JSON in ASCII that no HTML parser takes for a tag, an end of script or a comment."""
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# ---- a launch
@dataclass(frozen=True)
class Warning:
    """Advice, and the changed Opts as JSON ("" where no one change mends it)."""

    advice: Advice
    opts: str


@dataclass(frozen=True)
class LaunchPage:
    """All that is shown of one launch.

    boundaries: what is said of its stores; links: JSON; graph: lines of the last pass.
    """

    key: str
    number: int
    report: Report
    opts: str
    warnings: tuple[Warning, ...]
    facts: tuple[tuple[str, str], ...]
    boundaries: tuple[Boundary, ...]
    passes: tuple[PassPage, ...]
    text: tuple[TextLine, ...]
    files: tuple[UserFile, ...]
    origins: dict[str, int]
    graph: tuple[str, ...]
    links: str
    accesses: tuple[AccessPage, ...]
    curves: tuple[Markup, ...]
    waves: Markup | None
    roofline: Markup | None
    times: Markup | None
    mix: Markup | None
    bytes_moved: int


def launches(program: ProgramReport, folders: Sequence[Path]) -> tuple[LaunchPage, ...]:
    """The launches in order."""
    return tuple(
        _launch(n, report, tuple(b for b in program.boundaries if b.kernel == n), folders)
        for n, report in enumerate(program.launches)
    )


def _launch(
    number: int, report: Report, boundaries: tuple[Boundary, ...], folders: Sequence[Path]
) -> LaunchPage:
    key = f"k{number}"
    used, roof = report.resources, report.roofline
    files = user_files((o for line in report.source for o in line.origins), folders)
    placed = report.target.is_gpu and not used.missing and used.blocks_per_sm > 0
    return LaunchPage(
        key=key,
        number=number,
        report=report,
        opts=opts_json(report.opts),
        warnings=tuple(
            Warning(w, "" if w.opts is None else opts_json(w.opts)) for w in report.warnings
        ),
        facts=tuple(_facts(report)),
        boundaries=boundaries,
        passes=_passes(key, report.passes),
        text=_text(key, report.source),
        files=files,
        origins={origin: n for n, origin in enumerate(origins(files))},
        graph=tuple(report.passes[-1].text.splitlines()) if report.passes else (),
        links=links(report, files),
        accesses=_accesses(key, report.accesses),
        curves=plots.occupancy_plots(report) if placed else (),
        waves=plots.waves(used) if placed and used.waves > 0 else None,
        roofline=plots.roofline_plot(roof),
        times=plots.times(roof) if roof.times_s else None,
        mix=plots.mix(used) if used.mix else None,
        bytes_moved=roof.must_bytes,
    )


def opts_json(opts: Opts) -> str:
    """The fields of Opts that differ from the default, as `--opts` takes them."""
    usual = json.loads(Opts(gpu=opts.gpu).to_json())
    given = json.loads(opts.to_json())
    return json.dumps({k: v for k, v in given.items() if usual.get(k) != v})


def _facts(report: Report) -> Iterable[tuple[str, str]]:
    """Names and what there is to say about each."""
    used, roof = report.resources, report.roofline
    x, y, z = report.block
    yield "grid", " × ".join(map(str, report.grid)) + " blocks"
    yield "block", f"{x} × {y} × {z}: {words.several(x * y * z, 'thread')}"
    if report.cluster > 1:
        yield "cluster", words.several(report.cluster, "block")
    if used.missing:
        yield "resources", used.missing
    else:
        yield "registers", f"{used.registers} a thread"
        yield "shared memory", f"{words.size(used.shared_bytes)} a block"
        if used.spill_bytes or used.stack_bytes:
            spilled, stack = words.size(used.spill_bytes), words.size(used.stack_bytes)
            yield "spills", f"{spilled}, stack {stack} a thread"
        if used.blocks_per_sm:
            share = f"{words.share(used.occupancy)} of its threads"
            blocks = words.several(used.blocks_per_sm, "block")
            yield "occupancy", f"{share}: {blocks}, limited by {used.limited_by}"
    if roof.gpu:
        yield "floor", f"{words.time(roof.floor_s)} on {roof.gpu}, by {roof.wall}"
        yield "predicted", words.time(roof.predicted_s)
        yield "bytes that must move", words.size(roof.must_bytes)

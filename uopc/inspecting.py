"""`uopc inspect FILE:NAME`: in the terminal, what a kernel does to memory and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from uopc.errors import UsageError
from uopc.inspect.records import AccessReport, Advice, How, ProgramReport, Report
from uopc.inspect.resources import by_arch
from uopc.observing import spread_arrays
from uopc.pipeline import compile
from uopc.printing import duration, facts, heading, table
from uopc.reporting import reported
from uopc.show import parse_opts, print_boundaries
from uopc.target import target as named_target
from uopc.userfile import Lazy, Subject, load_with_arrays

#: kinds of instructions that are listed
MOST_KINDS = 8
NUMBERS = frozenset(("line", "bytes", "requests", "each", "least"))
#: of arrays that are made to see where data sends accesses
MOST_ARRAY_BYTES = 256 << 20
#: a mark at counts that a part stands for
_ABOUT = {How.SAMPLED: "~", How.EMULATED: "~"}


def inspect(
    out: Console,
    what: str,
    target: str | None,
    opts: str | None,
    gpu: str | None,
    json: str | None = None,
    seed: int = 0,
    archs: Sequence[str] = (),
) -> int:
    """Print the report on the kernel that FILE:NAME is.  Returns 0.

    target, opts: as in `uopc.show.show`; gpu: the name of the GPU that times are for.  json: a file
    for all of it, "-" for standard output instead of the tables.  seed: of random arrays, where
    data decides where accesses go and FILE has none.  archs: that the resources are listed for too.

    Raises UsageError for what the caller can change, another UopcError for what failed.
    """
    for arch in archs:
        named_target(arch)  # raises before any work
    if archs and json == "-":
        raise UsageError("--archs is a table, which --json - leaves out. Leave one of them away.")
    _, made, said = reported_file(what, target, opts, gpu, seed)
    if json == "-":
        out.out(made.to_json(indent=1), highlight=False)
        return 0
    for n, one in enumerate(made.launches):
        if len(made.launches) > 1:
            heading(out, f"launch {n + 1} of {len(made.launches)}: {one.name}")
        print_report(out, one)
        if archs:
            _print_archs(out, one, archs)
        out.print()
    if len(made.launches) > 1:
        facts(out, [("all launches", f"{duration(made.predicted_s)} expected")])
    if made.boundaries:
        print_boundaries(out, made.boundaries, made.moved_bytes, made.least_bytes)
    if said:
        facts(out, [("arrays", said)])
    if json is not None:
        _write(Path(json), made.to_json(indent=1) + "\n")
        out.print(f"all of it in {json}", soft_wrap=True)
    return 0


def reported_file(
    what: str, target: str | None, opts: str | None, gpu: str | None, seed: int = 0
) -> tuple[str, ProgramReport, str]:
    """(NAME, the report on it, which arrays said where data sends accesses, "" for none)."""
    name, subject, arrays = load_with_arrays(what)
    choice = None if opts is None else parse_opts(opts, gpu=target != "cpu")
    made = reported(subject, name, arrays or (), target, choice, gpu)
    unknown = any(a.how is How.UNKNOWN for r in made.launches for a in r.accesses)
    if not unknown:
        emulated = any(a.how is How.EMULATED for r in made.launches for a in r.accesses)
        return name, made, f"{len(arrays or ())} of the file" if emulated else ""
    if arrays is None and not isinstance(subject, Lazy):
        if (size := _array_bytes(made)) > MOST_ARRAY_BYTES:
            return name, made, f"none: random ones would have {size >> 20} MiB"
        given = _random(subject, seed)
        made = reported(subject, name, given, target, choice, gpu)
        return name, made, f"random, --seed {seed}"
    return name, made, ""


def _array_bytes(made: ProgramReport) -> int:
    """Of all parameters of a program's launches."""
    params = {p.slot: p for r in made.launches for p in r.program.params}
    return sum(p.size * p.dtype.itemsize for p in params.values())


def _random(subject: Subject, seed: int) -> Sequence[Any]:
    assert not isinstance(subject, Lazy)
    return spread_arrays(
        compile(subject, target="emulated") if isinstance(subject, tuple) else subject, seed
    )


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}. Name another file."
        ) from None


# ---- one launch
def print_report(out: Console, r: Report) -> None:
    """The accesses, what bounds the launch, and what is wrong with it."""
    columns = ["access", "line", "yours", "bytes", "requests", "each", "least", "lanes"]
    table(out, columns, [_row(a) for a in r.accesses], right=NUMBERS)
    facts(out, [*_launch_facts(r), *_time_facts(r)])
    for w in r.warnings:
        out.print(_warning(w), soft_wrap=True)


def _print_archs(out: Console, r: Report, archs: Sequence[str]) -> None:
    """Registers and occupancy of the same kernel on other archs."""
    columns = ["arch", "registers", "shared", "spills", "blocks an SM", "warps", "limited by"]
    rows, refused = [], []
    for arch, used in by_arch(r.program, r.name, archs).items():
        if used.missing:
            refused.append((arch, used.missing))
            continue
        numbers = (used.registers, used.shared_bytes, used.spill_bytes, used.blocks_per_sm)
        share = f"{used.occupancy:.0%}"
        rows.append([arch, *map(str, numbers), share, used.limited_by])
    table(out, columns, rows, right=frozenset(columns[1:-1]))
    facts(out, refused)


def _row(a: AccessReport) -> list[str]:
    """each, least: sectors of a request, or wavefronts of shared memory, and the fewest that could
    do."""
    each, least = "", ""
    if a.how is How.UNKNOWN:
        each = "data decides"
    elif a.space == "global":
        each, least = f"{a.sectors_per_request:.2f}", f"{a.least_per_request:.2f}"
    elif a.requests and a.wavefronts:
        each = f"{a.wavefronts / a.requests:.2f}"
        least = f"{a.least_wavefronts / a.requests:.2f}"
    count = "" if a.how is How.UNKNOWN else f"{_ABOUT.get(a.how, '')}{a.requests}"
    lanes = ", ".join(x for x in (a.pattern, a.axis) if x)
    yours = next(iter(a.origins), "").rpartition("/")[2]
    place = str(a.line or "")
    return [f"{a.op} {a.memory}", place, yours, str(a.width_bytes), count, each, least, lanes]


def _launch_facts(r: Report) -> list[tuple[str, str]]:
    threads = r.block[0] * r.block[1] * r.block[2]
    cluster = f", clusters of {r.cluster}" if r.cluster > 1 else ""
    rows = [("launch", f"grid {r.grid}, block {r.block}: {threads} threads a block{cluster}")]
    used = r.resources
    if used.missing and not used.registers:
        return [*rows, ("resources", f"unknown: {used.missing}")]
    if used.missing:
        said = f"{used.registers} registers, {used.shared_bytes} bytes shared"
        return [*rows, ("resources", f"{said}. Cannot be launched: {used.missing}")]
    spills = f"{used.spill_bytes} bytes of spills" if used.spill_bytes else "no spills"
    rows.append(
        (
            "resources",
            f"{used.registers} registers, {used.shared_bytes} bytes shared, {spills}; an SM of "
            f"{r.target} holds {used.blocks_per_sm} blocks, {used.occupancy:.0%} of its warps, "
            f"limited by {used.limited_by}",
        )
    )
    rows.append(("waves", f"{used.waves:.2f}, the last one {used.tail:.0%} full"))
    if used.mix:
        kinds = ", ".join(f"{n} {name}" for name, n in used.mix[:MOST_KINDS])
        rows.append(("instructions", f"{sum(n for _, n in used.mix)} of text: {kinds}"))
    return rows


def _time_facts(r: Report) -> list[tuple[str, str]]:
    w = r.roofline
    done = ", ".join(f"{n} {unit}" for unit, n in w.operations) or "none"
    walls = ", ".join(f"{name} {duration(t)}" for name, t in w.times_s if t > 0)
    return [
        ("bytes", f"{w.must_bytes} must move, {w.memory_bytes} will; {w.moves_bytes} from L2"),
        ("assuming", w.assumption),
        ("operations", done),
        ("floor", f"{duration(w.floor_s)} on {w.gpu}, by {w.wall}; {w.wasted:.0%} wasted"),
        ("walls", walls),
        ("expected", f"{duration(w.predicted_s)}"),
    ]


def _warning(w: Advice) -> Text:
    tried = f" ({w.tried})" if w.tried else ""
    return Text.assemble((f"{w.kind}: ", "bold yellow"), f"{w.text}. Try: {w.mend}{tried}")

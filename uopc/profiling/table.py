"""A profile as a table: what `uopc profile` prints and `Profile.table` gives."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from uopc.faults.words import triple
from uopc.printing import duration, facts, heading, table

if TYPE_CHECKING:
    from uopc.profiling.records import KernelTime, Profile

_NUMBERS = ("calls", "total", "share", "median", "GB/s", "TFLOP/s", "roofline")


def render(profile: Profile, width: int) -> str:
    """The table as plain text."""
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    print_profile(out, profile)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
    return text.rstrip("\n")


def print_profile(out: Console, profile: Profile) -> None:
    """Print the kernels, the dearest first, then what is around them."""
    where = f"{profile.device}, {profile.gpu}" if profile.gpu else profile.device
    heading(out, f"{profile.name} on {where}: medians of {profile.runs} runs, {profile.clock}")
    columns = ["kernel", *_NUMBERS[: 7 if profile.gpu else 5]]
    rates = any(k.operations is not None for k in profile.kernels)
    if rates and not profile.gpu:
        columns.append("TFLOP/s")
    launched = any(any(k.grid) for k in profile.kernels)
    if launched:
        columns += ["grid", "block"]
    rows = [[_cell(profile, k, c) for c in columns] for k in profile.kernels]
    table(out, columns, rows, right=frozenset(_NUMBERS))
    facts(out, _around(profile))


def _cell(profile: Profile, k: KernelTime, column: str) -> str:
    if column == "kernel":
        return k.name
    if column == "calls":
        return f"{k.calls:g}" if profile.steady else f"{k.calls:.1f}"
    if column == "total":
        return duration(k.total_s)
    if column == "share":
        return f"{profile.share(k):.0%}"
    if column == "median":
        return duration(k.median_s)
    if column == "GB/s":
        return _digits(k.bytes_per_s / 1e9)
    if column == "TFLOP/s":
        return "" if k.operations is None else _digits(k.flop_per_s / 1e12)
    if column == "roofline":
        return f"{k.of_roofline:.0%} {k.wall}".rstrip() if k.floor_s else ""
    dims = k.grid if column == "grid" else k.block
    return triple(dims) if any(dims) else ""


def _digits(value: float) -> str:
    """Three digits or more."""
    if not value:
        return "0"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4}f}"


def _around(profile: Profile) -> list[tuple[str, str]]:
    """What there is to say beside the kernels."""
    launches = sum(k.calls for k in profile.kernels)
    said = f"{launches:g} launch{'es' * (launches != 1)} of {len(profile.kernels)} "
    said += f"kernel{'s' * (len(profile.kernels) != 1)} take {duration(profile.sum_s)}"
    rows = [("sum", said)]
    step = f"{duration(profile.step_s)} from start to end"
    if profile.empty_s is not None:  # else the host waits for each kernel
        step += f"; Python starts it all in {duration(profile.host_s)}"
    rows.append(("step", step))
    share = profile.gaps_s / profile.step_s if profile.step_s else 0.0
    rows.append(("gaps", f"{duration(profile.gaps_s)} ({share:.0%} of the step) without a kernel"))
    if profile.replay_s is not None:
        rows.append(("replay", f"{duration(profile.replay_s)}, all of it at once"))
    if profile.empty_s is not None:
        rows.append(("empty", f"{duration(profile.empty_s)} for a kernel that does nothing"))
    if not profile.steady:
        rows.append(("runs", "not every run starts the same kernels: calls are averages"))
    return rows + [("note", note) for note in profile.notes]

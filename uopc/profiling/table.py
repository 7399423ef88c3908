"""A profile as a table: what `uopc profile` prints and `Profile.table` gives."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from uopc.kernel import Dims
from uopc.printing import duration, facts, heading, table

if TYPE_CHECKING:
    from uopc.profiling.records import KernelTime, Profile

WIDTH = 140  # columns where nothing else limits them: names of kernels are long
_NUMBERS = ("calls", "total", "share", "each", "GB/s", "TFLOP/s", "roofline")


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
    columns = ["kernel", "calls", "total", "share"]
    if any(k.calls != 1 for k in profile.kernels):
        columns.append("each")  # else that is the total
    columns.append("GB/s")
    if any(k.operations is not None for k in profile.kernels):
        columns.append("TFLOP/s")
    if any(k.floor_s for k in profile.kernels):
        columns.append("roofline")
    if any(any(k.grid) for k in profile.kernels):
        columns.append("launch")
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
    if column == "each":
        return duration(k.median_s)
    if column == "GB/s":
        return _digits(k.bytes_per_s / 1e9)
    if column == "TFLOP/s":
        return "" if k.operations is None else _digits(k.flop_per_s / 1e12)
    if column == "roofline":
        return f"{k.of_roofline:.0%}" if k.floor_s else ""
    return f"{_short(k.grid)} of {_short(k.block)}" if any(k.grid) else ""


def _short(dims: Dims) -> str:
    """512x4: sizes of 1 at the end say nothing."""
    x, y, z = dims
    return f"{x}x{y}x{z}" if z != 1 else f"{x}x{y}" if y != 1 else f"{x}"


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
    if not profile.gpu:
        rows.append(("GB/s", "of all arrays that a launch is passed, each once"))
    return rows + [("note", note) for note in profile.notes]

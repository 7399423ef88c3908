"""What a profile says, as data: each kernel's times beside what it must move and compute.

Times are of kernels within the running program, so that caches, clocks and what is updated in place
are the program's: a kernel whose inputs its neighbour has just left in the L2 may beat the floor of
memory.  On a GPU the events around a kernel add about what `empty_s` says; nothing is subtracted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uopc.errors import UopcError
from uopc.kernel import Dims
from uopc.profiling.table import WIDTH, render
from uopc.profiling.trace import Track, trace_events

_FLOATS = re.compile(r"fp\d+|tensor (?!i\d)")  # units


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a program; times in seconds, bytes and operations of one launch.

    Attributes
    ----------
    name; device; grid, block: (x, y, z), (0, 0, 0) for what is no GPU kernel.
    calls: launches per run, on average.
    total_s: of one run, the median over runs; median_s: of one launch.
    spread: half the distance between the quartiles of its launches, as a share of the median.
    must_bytes: each byte that a launch must read or write, once.
    operations: by unit, None where they are not known; an FMA counts as two.
    floor_s: what a launch takes at least on this GPU, 0 where that is not known; wall: why.
    """

    name: str
    device: str
    grid: Dims
    block: Dims
    calls: float
    total_s: float
    median_s: float
    spread: float
    must_bytes: int
    operations: tuple[tuple[str, int], ...] | None = None
    floor_s: float = 0.0
    wall: str = ""

    @property
    def bytes_per_s(self) -> float:
        """Of what it must move."""
        return self.must_bytes / self.median_s if self.median_s else 0.0

    @property
    def flop(self) -> int:
        """Floating-point operations of one launch, those of tensor cores too."""
        return sum(n for unit, n in self.operations or () if _FLOATS.match(unit))

    @property
    def flop_per_s(self) -> float:
        return self.flop / self.median_s if self.median_s else 0.0

    @property
    def of_roofline(self) -> float:
        """Its floor as a share of its time: 1 is as fast as the GPU allows; 0 is not known."""
        return self.floor_s / self.median_s if self.median_s else 0.0

    def to_dict(self) -> dict[str, object]:
        """Plain data; figures that follow from others are in it."""
        return {
            "name": self.name,
            "device": self.device,
            "grid": list(self.grid),
            "block": list(self.block),
            "calls": self.calls,
            "total_s": self.total_s,
            "median_s": self.median_s,
            "spread": self.spread,
            "must_bytes": self.must_bytes,
            "operations": None if self.operations is None else dict(self.operations),
            "floor_s": self.floor_s or None,
            "wall": self.wall,
            "gb_per_s": self.bytes_per_s / 1e9,
            "tflop_per_s": None if self.operations is None else self.flop_per_s / 1e12,
            "of_roofline": self.of_roofline or None,
        }


@dataclass(frozen=True)
class Profile:
    """The kernels of a program, the dearest first, and what is around them; times in seconds.

    Attributes
    ----------
    name; device: where it computes, several with commas; clock: how kernels were timed.
    runs: how often each kind of measurement was made.
    kernels: what one run starts.
    step_s: one run from its start until all its work is done, nothing being observed; host_s: until
        Python had started all of it.
    replay_s: the replays of one run as they are, None where there are none.
    empty_s: an empty kernel timed like the others, None where kernels are timed by the host.
    steady: does every run start the same?
    gpu: whose roofline it is, "" where there is none; notes: why something is missing.
    tracks: of the first run and of a later one, for `write_trace`.
    """

    name: str
    device: str
    clock: str
    runs: int
    kernels: tuple[KernelTime, ...]
    step_s: float
    host_s: float
    replay_s: float | None = None
    empty_s: float | None = None
    steady: bool = True
    gpu: str = ""
    notes: tuple[str, ...] = ()
    tracks: tuple[Track, ...] = field(default=(), repr=False)

    @property
    def sum_s(self) -> float:
        """All kernels of one run."""
        return sum(k.total_s for k in self.kernels)

    @property
    def gaps_s(self) -> float:
        """Time of a run in which no kernel ran; never less than 0."""
        return max(0.0, self.step_s - self.sum_s)

    def share(self, kernel: KernelTime) -> float:
        """Of the time of all kernels."""
        return kernel.total_s / self.sum_s if self.sum_s else 0.0

    def table(self, width: int = WIDTH) -> str:
        """What `uopc profile` prints, as plain text of so many columns."""
        return render(self, width)

    def to_json(self, indent: int | None = None) -> str:
        """The profile as JSON text; times in seconds."""
        return json.dumps(
            {
                "name": self.name,
                "device": self.device,
                "gpu": self.gpu,
                "clock": self.clock,
                "runs": self.runs,
                "step_s": self.step_s,
                "host_s": self.host_s,
                "replay_s": self.replay_s,
                "sum_s": self.sum_s,
                "gaps_s": self.gaps_s,
                "empty_s": self.empty_s,
                "steady": self.steady,
                "notes": list(self.notes),
                "kernels": [{**k.to_dict(), "share": self.share(k)} for k in self.kernels],
            },
            indent=indent,
        )

    def to_trace(self) -> str:
        """The timeline in the Trace Event Format, as JSON text."""
        return json.dumps({"traceEvents": self._events(), "displayTimeUnit": "ms"})

    def write_trace(self, path: str | Path) -> None:
        """Write the timeline to a file that Perfetto and chrome://tracing open.

        Raises UopcError where the file cannot be written.
        """
        write(path, self.to_trace())

    def _events(self) -> Sequence[dict[str, object]]:
        return trace_events(self.name, self.tracks)


def write(path: str | Path, text: str) -> None:
    """Raises UopcError where the file cannot be written."""
    try:
        Path(path).write_text(text + "\n")
    except OSError as error:
        raise UopcError(f"cannot write {path}: {error.strerror or error}") from None

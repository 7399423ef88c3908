"""Timelines of two runs as tracks: the host, and each device.

A GPU kernel ends where the mark after it says, and takes what it takes at the median: a mark before
it would say when the host came, not when the GPU began.  Within a replay, which has no marks
inside, kernels stand in order and as far apart as their times leave room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uopc.profiling.records import KernelTime
from uopc.profiling.trace import Args, Slice, Track
from uopc.profiling.watchers import DeviceSlice, Timeline, Work

#: between the end of the first run and the beginning of the other one
_APART_S = 1e-4


def tracks_of(
    first: Timeline, last: Timeline, times: Mapping[Work, KernelTime]
) -> tuple[Track, ...]:
    """The tracks of both runs, the other one close after the first."""
    cold = _Run(first, 0.0, 0)
    begins = [h.begin_s for h in last.host]
    shift_s = cold.end_s + _APART_S - min(begins) if begins else 0.0
    runs = cold, _Run(last, shift_s, len(first.device))
    host = [s for run in runs for s in run.host()]
    tracks = [Track("host", tuple(host))]
    for device in sorted({d.device for run in runs for d in run.timeline.device}):
        found = [s for run in runs for s in run.kernels(device, times)]
        tracks.append(Track(device, tuple(found)))
    return tuple(tracks)


@dataclass(frozen=True)
class _Run:
    """A timeline that begins later by a shift; flows: numbers of launches before it."""

    timeline: Timeline
    shift_s: float
    flows: int

    @property
    def end_s(self) -> float:
        """When host and devices were done."""
        ends = [*[h.end_s for h in self.timeline.host], *self.timeline.ends_s()]
        return max(ends, default=0.0) + self.shift_s

    def host(self) -> list[Slice]:
        out = []
        flow = self.flows
        for h in self.timeline.host:
            flow += h.kind == "launch"
            begin_s, end_s = h.begin_s + self.shift_s, h.end_s + self.shift_s
            starts = flow if h.kind == "launch" else 0
            out.append(Slice(h.name, h.kind, begin_s, end_s, starts=starts))
        return out

    def kernels(self, device: str, times: Mapping[Work, KernelTime]) -> list[Slice]:
        """The kernels of one device, in order, none before its launch or its neighbour's end."""
        timeline = self.timeline
        waits = timeline.clocks[device].waits
        out: list[Slice] = []
        free_s = float("-inf")
        for number, (one, end_s) in enumerate(
            zip(timeline.device, timeline.ends_s(), strict=True), self.flows + 1
        ):
            if one.device != device:
                continue
            earliest_s = max(free_s, one.launched_s)
            end_s = max(end_s, earliest_s)
            took = [times[w].median_s if w in times else 0.0 for w in one.works]
            known = all(w in times for w in one.works)
            begin_s = earliest_s if waits or not known else max(earliest_s, end_s - sum(took))
            out += self._placed(one, begin_s, end_s, took, times, number)
            free_s = end_s
        return out

    def _placed(
        self,
        one: DeviceSlice,
        begin_s: float,
        end_s: float,
        took: list[float],
        times: Mapping[Work, KernelTime],
        flow: int,
    ) -> list[Slice]:
        """Slices of what one call started."""
        if len(one.works) == 1:
            took = [end_s - begin_s]
        room_s, whole_s = end_s - begin_s, sum(took)
        scale = min(1.0, room_s / whole_s) if whole_s else 0.0
        gap_s = (room_s - whole_s * scale) / max(1, len(one.works))
        out = []
        at_s = begin_s + self.shift_s
        for work, time_s in zip(one.works, took, strict=True):
            at_s += gap_s
            args = {**_args(work, times.get(work)), **({"in": one.name} if len(took) > 1 else {})}
            until_s = at_s + time_s * scale
            out.append(Slice(work.name, "kernel", at_s, until_s, args, started_by=flow))
            flow, at_s = 0, until_s  # one arrow for each call
        return out


def _args(work: Work, time: KernelTime | None) -> Args:
    """What is shown of a kernel that is selected."""
    out: dict[str, object] = {}
    if any(work.grid):
        out |= {"grid": list(work.grid), "block": list(work.block)}
    if time is not None:
        out |= {"bytes": time.must_bytes, "median us": round(time.median_s * 1e6, 3)}
        out["GB/s"] = round(time.bytes_per_s / 1e9, 3)
        if time.floor_s:
            out |= {"floor us": round(time.floor_s * 1e6, 3), "wall": time.wall}
    return out

"""A timeline in the Trace Event Format, which Perfetto and chrome://tracing open.

A track holds slices, one beside or inside of another.  Times are microseconds from the start of the
program's first run.  Source: "Trace Event Format", the Chromium project: complete events (ph X),
flow events (ph s and f) and metadata (ph M).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Event: TypeAlias = dict[str, object]
Args: TypeAlias = Mapping[str, object]
_PROCESS = 1


@dataclass(frozen=True)
class Slice:
    """Something that took a while; times in seconds.

    kind: its category; args: shown where it is selected.  starts, started_by: number of the flow
    from a launch to its kernel, 0 where there is none.
    """

    name: str
    kind: str
    begin_s: float
    end_s: float
    args: Args = field(default_factory=dict)
    starts: int = 0
    started_by: int = 0


@dataclass(frozen=True)
class Track:
    """Slices of one thread or stream."""

    name: str
    slices: tuple[Slice, ...]


def trace_events(program: str, tracks: Sequence[Track]) -> list[Event]:
    """Metadata first, then all events by time, an outer one before those inside of it."""
    events = [_metadata("process_name", 0, {"name": f"uopc profile {program}"})]
    for number, track in enumerate(tracks):
        events.append(_metadata("thread_name", number, {"name": track.name}))
        events.append(_metadata("thread_sort_index", number, {"sort_index": number}))
    begin_s = min((s.begin_s for t in tracks for s in t.slices), default=0.0)
    timed: list[tuple[tuple[float, float], Event]] = []
    for number, track in enumerate(tracks):
        for one in track.slices:
            timed += _events(one, number, begin_s)
    timed.sort(key=lambda e: e[0])
    return [*events, *[event for _, event in timed]]


def _events(one: Slice, thread: int, zero_s: float) -> list[tuple[tuple[float, float], Event]]:
    """The events of a slice, each with its place in the order."""
    begin_us = _us(one.begin_s - zero_s)
    duration_us = max(0.0, _us(one.end_s - zero_s) - begin_us)
    where: Event = {"pid": _PROCESS, "tid": thread, "ts": begin_us}
    about: Event = {"name": one.name, "cat": one.kind, "args": dict(one.args)}
    whole: Event = {**about, "ph": "X", **where, "dur": round(duration_us, 3)}
    out = [((begin_us, -duration_us), whole)]
    for ph, number in (("s", one.starts), ("f", one.started_by)):
        if number:
            flow: Event = {"name": "launch", "cat": "launch", "ph": ph, "id": number, **where}
            out.append(((begin_us, 1.0), {**flow, "bp": "e"} if ph == "f" else flow))
    return out


def _metadata(name: str, thread: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": _PROCESS, "tid": thread, "args": args}


def _us(time_s: float) -> float:
    return round(time_s * 1e6, 3)

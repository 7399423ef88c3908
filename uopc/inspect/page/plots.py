"""Curves and bars: occupancy, waves, the roofline, times and instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from uopc.errors import UsageError
from uopc.inspect.gpus import GPUS
from uopc.inspect.page import words
from uopc.inspect.page.svg import Picture
from uopc.inspect.records import Report, ResourceReport, Roofline
from uopc.target import Target, occupancy

BAR_WIDTH, BAR_LEFT, BAR_RIGHT, BAR = 460.0, 96.0, 76.0, 22.0
MOST_WAVES = 12  # drawn one by one
BUSY = 0.02  # of the busiest unit's time: a roof that is worth a line


# ---- bars
@dataclass(frozen=True)
class Bar:
    """A named value and how it is written; strong: the one that matters most."""

    name: str
    value: float
    text: str
    strong: bool = False


@dataclass(frozen=True)
class Rule:
    """A value that all bars are compared with: a vertical line."""

    name: str
    value: float
    dashed: bool = False


def bars(rows: Sequence[Bar], label: str, rules: Sequence[Rule] = ()) -> Markup:
    """Bars from zero under each other, names left and values right; rules from the least on, so
    that no line crosses the name of another."""
    most = max([r.value for r in rows] + [r.value for r in rules], default=0.0) or 1.0
    width = BAR_WIDTH - BAR_LEFT - BAR_RIGHT
    head = 16.0 * len(rules)
    p = Picture(BAR_WIDTH, head + BAR * len(rows) + 6, label, "bars")
    for n, row in enumerate(rows):
        y = head + n * BAR
        kind = "bar strong" if row.strong else "bar"
        length = row.value / most * width
        p.text(BAR_LEFT - 8, y + 15, row.name, "name", "end")
        p.rect(BAR_LEFT, y + 4, max(length, 1), BAR - 8, kind, f"{row.name}: {row.text}")
    for n, rule in enumerate(rules):
        x, y = BAR_LEFT + rule.value / most * width, head - 16.0 * n - 5
        p.line(x, y + 3, x, head + BAR * len(rows) + 2, "rule dashed" if rule.dashed else "rule")
        right = x < BAR_WIDTH / 2
        p.text(x + (4 if right else -4), y, rule.name, "value", "start" if right else "end")
    for n, row in enumerate(rows):  # over the lines, so that they stay readable
        length = row.value / most * width
        p.text(BAR_LEFT + length + 6, head + n * BAR + 15, row.text, "value")
    return p.made()


def times(roof: Roofline) -> Markup:
    """What each wall alone would take, beside the floor and the prediction; walls of no height
    are left out."""
    walls = [(name, t) for name, t in roof.times_s if t > 0]
    rows = [Bar(name, t, words.time(t), name == roof.wall) for name, t in walls]
    rules = [
        Rule(f"floor {words.time(roof.floor_s)}", roof.floor_s),
        Rule(f"predicted {words.time(roof.predicted_s)}", roof.predicted_s, dashed=True),
    ]
    return bars(rows, "time that each wall alone would take", rules)


def mix(used: ResourceReport) -> Markup:
    """Instructions by kind, the frequent ones by name."""
    shown, rest = used.mix[:16], used.mix[16:]
    rows = [Bar(name, n, words.count(n)) for name, n in shown]
    if rest:
        left = sum(n for _, n in rest)
        rows.append(Bar(f"{len(rest)} other kinds", left, words.count(left)))
    return bars(rows, "instructions of the kernel by kind")


def waves(used: ResourceReport) -> Markup:
    """The grid as rounds of the whole machine; the last one as full as it is."""
    whole = max(1, math.ceil(used.waves - 1e-9))
    shown = min(whole, MOST_WAVES)
    label = f"{whole} waves, the last {words.share(used.tail)} full"
    p = Picture(BAR_WIDTH, 62, label, "waves")
    width = (BAR_WIDTH - 4) / shown
    for n in range(shown):
        x, last = 2 + n * width, n == shown - 1
        left_out = whole > shown and n == shown - 2
        p.rect(x + 1, 6, width - 2, 24, "wave")
        full = used.tail if last else 1.0
        p.rect(x + 1, 6, (width - 2) * full, 24, "wave busy tail" if full < 1 else "wave busy")
        name = "…" if left_out else str(whole if last else n + 1)
        p.text(x + width / 2, 46, name, "number", "middle")
    p.text(2, 60, "wave", "note")
    p.text(BAR_WIDTH - 3, 60, f"last one {words.share(used.tail)} full", "note", "end")
    return p.made()


# ---- axes
@dataclass(frozen=True)
class Axes:
    """A frame in which values have a place; log: both axes by decades."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool = False

    def x(self, value: float) -> float:
        return self.left + self.width * self._part(value, self.x_range)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - self._part(value, self.y_range))

    def _part(self, value: float, over: tuple[float, float]) -> float:
        low, high = over
        if self.log:
            return (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return (value - low) / (high - low)


# ---- occupancy
OCCUPANCY_WIDTH, OCCUPANCY_HEIGHT = 250.0, 190.0


def occupancy_plots(report: Report) -> tuple[Markup, ...]:
    """Warps an SM holds against each of the three that limit them, the kernel's own marked."""
    on, used = report.target, report.resources
    x, y, z = report.block
    threads = x * y * z

    def by_registers(n: int) -> int:
        return _warps(on, threads, n, used.shared_bytes)

    def by_shared(n: int) -> int:
        return _warps(on, threads, used.registers, n)

    def by_threads(n: int) -> int:
        return _warps(on, n, used.registers, used.shared_bytes)

    shared = sorted({*range(0, on.shared_optin_bytes + 1, 1024), used.shared_bytes})
    registers = range(1, on.max_registers_per_thread + 1)
    sizes = sorted({*range(on.warp, on.max_threads_per_block + 1, on.warp), threads})
    return (
        _curve(on, "registers a thread", registers, by_registers, used.registers, str),
        _curve(on, "shared bytes a block", shared, by_shared, used.shared_bytes, words.size),
        _curve(on, "threads a block", sizes, by_threads, threads, str),
    )


def _warps(on: Target, threads: int, registers: int, shared_bytes: int) -> int:
    try:
        return occupancy(on, threads, registers, shared_bytes).warps_per_sm
    except UsageError:  # not one block fits
        return 0


def _curve(
    on: Target,
    name: str,
    values: Iterable[int],
    warps: Callable[[int], int],
    own: int,
    written: Callable[[int], str],
) -> Markup:
    points = [(value, warps(value)) for value in values]
    most = on.max_threads_per_sm // on.warp
    here = warps(own)
    label = f"warps per SM against {name}: {here} at {written(own)}, of at most {most}"
    p = Picture(OCCUPANCY_WIDTH, OCCUPANCY_HEIGHT, label, "curve")
    last = points[-1][0]
    axes = Axes(34, 22, OCCUPANCY_WIDTH - 46, OCCUPANCY_HEIGHT - 62, (0, last), (0, most))
    for tick in (0, most // 4, most // 2, most * 3 // 4, most):
        p.line(axes.left, axes.y(tick), axes.left + axes.width, axes.y(tick), "grid")
        p.text(axes.left - 6, axes.y(tick) + 4, str(tick), "number", "end")
    steps: list[tuple[float, float]] = []
    for (value, held), (next_value, next_held) in pairwise(points):
        if not steps:
            steps.append((axes.x(value), axes.y(held)))
        if next_held != held:
            at = axes.x(next_value)
            steps += [(at, axes.y(held)), (at, axes.y(next_held))]
    steps.append((axes.x(last), axes.y(points[-1][1])))
    p.polyline(steps, "curve-line")
    x, y = axes.x(own), axes.y(here)
    p.line(x, y, x, axes.y(0), "drop")
    p.circle(x, y, 5, "here", f"this kernel: {written(own)}, {here} warps")
    anchor = "start" if own < last * 0.25 else "end" if own > last * 0.75 else "middle"
    p.text(x, axes.y(0) + 16, written(own), "value", anchor)
    for at, side in ((0, "start"), (last, "end")):
        if abs(axes.x(at) - x) > 75:
            p.text(axes.x(at), axes.y(0) + 16, written(at), "number", side)
    p.text(axes.left + axes.width / 2, OCCUPANCY_HEIGHT - 6, name, "name", "middle")
    p.text(2, 12, "warps per SM", "note")
    return p.made()


# ---- roofline
@dataclass(frozen=True)
class Roof:
    """A rate that a unit cannot exceed, in operations a second."""

    unit: str
    per_s: float


def bandwidth(roof: Roofline) -> float:
    """Bytes a second of memory at its peak; of a GPU that is not known, as the report takes it;
    0 where nothing passes."""
    if roof.gpu in GPUS:
        return GPUS[roof.gpu].memory_bytes_s
    memory_s = dict(roof.times_s).get("memory", 0.0)
    return roof.memory_bytes / memory_s if memory_s > 0 else 0.0


def roofs(roof: Roofline) -> tuple[Roof, ...]:
    """Peak rates of the units that the kernel keeps busy, the busiest first, without those with
    next to nothing to do; of a GPU that is not known, as the report takes them."""
    times = dict(roof.times_s)
    made: list[tuple[float, Roof]] = []
    for unit, done in roof.operations:
        known = GPUS.get(roof.gpu)
        if known is not None and (unit in known.rates or unit in known.per_clock):
            rate = known.rate(unit)
        else:
            rate = done / times[unit] if times.get(unit, 0.0) > 0 else 0.0
        if done > 0 and rate > 0:
            made.append((done / rate, Roof(unit, rate)))
    most = max((time_s for time_s, _ in made), default=0.0)
    made = [(time_s, r) for time_s, r in made if time_s >= most * BUSY]
    return tuple(r for _, r in sorted(made, key=lambda pair: -pair[0]))


ROOF_WIDTH, ROOF_HEIGHT = 500.0, 330.0


def roofline_plot(roof: Roofline) -> Markup | None:
    """Rate against operations per byte, by decades; None where the kernel computes nothing or
    moves nothing: then there is no point to draw."""
    flat, slope = roofs(roof), bandwidth(roof)
    if not flat or slope <= 0 or roof.memory_bytes <= 0 or roof.predicted_s <= 0:
        return None
    unit = flat[0]
    done = dict(roof.operations)[unit.unit]
    own_x, own_y = done / roof.memory_bytes, done / roof.predicted_s
    ridges = [r.per_s / slope for r in flat]
    x_range = _decades([own_x, *ridges], 0.4)
    highest = max(r.per_s for r in flat)
    y_range = _decades([own_y, highest, min(slope * x_range[0] * 10, highest)], 0.1)
    axes = Axes(66, 16, ROOF_WIDTH - 92, ROOF_HEIGHT - 66, x_range, y_range, log=True)
    label = (
        f"roofline of {roof.gpu}: {words.trimmed(own_x)} operations per byte, "
        f"{words.rate(own_y, 'op/s')} of at most {words.rate(unit.per_s, 'op/s')}"
    )
    p = Picture(ROOF_WIDTH, ROOF_HEIGHT, label, "roofline")
    _log_grid(p, axes)
    _memory_roof(p, axes, slope, highest)
    taken: list[float] = []
    for n, r in enumerate(flat):
        _flat_roof(p, axes, r, slope, first=n == 0, taken=taken)
    x, y = axes.x(own_x), axes.y(own_y)
    ceiling = min(unit.per_s, slope * own_x)
    if ceiling > own_y:
        p.line(x, y, x, axes.y(ceiling), "drop")
    p.circle(x, y, 6, "here", label)
    side, step = ("end", -11) if x > axes.left + axes.width * 0.78 else ("start", 11)
    said = (words.rate(own_y, "op/s"), f"{words.share(own_y / ceiling)} of the roof")
    p.text(x + step, y + 4, "this kernel", "value", side)
    for n, text in enumerate(said, 1):
        p.text(x + step, y + 4 + 15 * n, text, "note", side)
    middle = axes.left + axes.width / 2
    p.text(middle, ROOF_HEIGHT - 8, "operations per byte of memory", "name", "middle")
    return p.made()


def _decades(values: Sequence[float], room: float) -> tuple[float, float]:
    """Whole powers of ten around all values, with some room (in decades)."""
    low = math.floor(math.log10(min(values)) - room)
    high = math.ceil(math.log10(max(values)) + room)
    return 10.0**low, 10.0 ** max(high, low + 2)


def _log_grid(p: Picture, axes: Axes) -> None:
    bottom, right = axes.top + axes.height, axes.left + axes.width
    for n in _powers(axes.x_range):
        x = axes.x(10.0**n)
        p.line(x, axes.top, x, bottom, "grid")
        p.text(x, bottom + 18, words.trimmed(10.0**n), "number", "middle")
    for n in _powers(axes.y_range):
        y = axes.y(10.0**n)
        p.line(axes.left, y, right, y, "grid")
        p.text(axes.left - 8, y + 4, words.rate(10.0**n, "op/s"), "number", "end")


def _powers(over: tuple[float, float]) -> range:
    return range(round(math.log10(over[0])), round(math.log10(over[1])) + 1)


def _memory_roof(p: Picture, axes: Axes, slope: float, highest: float) -> None:
    low = max(axes.x_range[0], axes.y_range[0] / slope)
    high = min(axes.x_range[1], highest / slope)
    p.line(axes.x(low), axes.y(slope * low), axes.x(high), axes.y(slope * high), "roof memory")
    at = 10 ** (0.3 * math.log10(low) + 0.7 * math.log10(high))
    text = f"memory {words.rate(slope, 'B/s')}"
    x, y = axes.x(at), axes.y(slope * at)
    if x - axes.left > 7.5 * len(text):
        p.text(x - 8, y - 8, text, "value", "end")
    else:
        p.text(x + 12, y + 12, text, "value")


def _flat_roof(
    p: Picture, axes: Axes, roof: Roof, slope: float, first: bool, taken: list[float]
) -> None:
    y = axes.y(roof.per_s)
    start = max(axes.x_range[0], roof.per_s / slope)
    right = axes.left + axes.width
    p.line(axes.x(start), y, right, y, "roof compute" if first else "roof other")
    at = y - 6
    while any(abs(at - other) < 13 for other in taken):
        at += 13
    taken.append(at)
    text = f"{roof.unit} {words.rate(roof.per_s, 'op/s')}"
    p.text(right - 4, at, text, "value" if first else "note", "end")

"""Where the lanes of one warp go: over the sectors of global memory, or the banks of shared."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from uopc.inspect.page import words
from uopc.inspect.page.banks import Wavefront, wavefronts
from uopc.inspect.page.sectors import Sector, sectors
from uopc.inspect.page.svg import Picture
from uopc.inspect.records import AccessReport
from uopc.inspect.requests import BANK_BYTES, BANKS, LINE_BYTES
from uopc.inspect.requests import SECTOR_BYTES as SECTOR

WIDTH, LEFT = 760.0, 20.0
LANE_TOP, LANE_HEIGHT = 24.0, 20.0
SECTOR_TOP, SECTOR_HEIGHT = 150.0, 24.0
BREAK = 0.4  # of a sector's width, where addresses are left out
ROW, HEAD, MARGIN = 18.0, 36.0, 78.0  # of the map of banks
CHARACTER = 7.0  # about the width of a digit in it


def picture(access: AccessReport) -> Markup | None:
    """The first warp of an access, or None where its addresses are not known."""
    if all(offset is None for offset in access.lanes):
        return None
    draw = _sectors if access.space == "global" else _banks
    return draw(access)


def caption(access: AccessReport) -> str:
    """How to read it, and what it shows."""
    active = [offset for offset in access.lanes if offset is not None]
    if not active:
        return ""
    asleep = len(access.lanes) - len(active)
    idle = f" {words.several(asleep, 'lane')} (dashed) not active." if asleep else ""
    if access.space != "global":
        fronts = _fronts(access)
        again = sum(front.again for front in fronts)
        said = (
            f"{again} of them only because lanes want different words of one bank: a conflict"
            if again
            else "no two lanes want different words of one bank"
        )
        return (
            "Each column is a bank of 4 bytes, each row a wavefront, and each box names the lanes "
            "served there (or the first, and + for more); lanes that want the same words share a "
            "box. "
            f"{words.several(len(fronts), 'wavefront')}, {said}.{idle}"
        )
    made = sectors(access.lanes, access.width_bytes)
    wanted = sum(s.used_bytes for s in made)
    return (
        "Each lane above is joined to the bytes that it asks for below, in address order; a box is "
        "a sector of 32 bytes, filled as far as it is used, and a bracket the 128 bytes of one "
        "cache line. A tight band is coalesced; a fan that spreads over many boxes is not. "
        f"{words.several(len(made), 'sector')} move {words.count(len(made) * SECTOR)} bytes, "
        f"{words.count(wanted)} of them asked for.{idle}"
    )


# ---- global memory
def _sectors(access: AccessReport) -> Markup:
    made = sectors(access.lanes, access.width_bytes)
    label = f"{len(access.lanes)} lanes and the {len(made)} sectors of {access.memory} they touch"
    p = Picture(WIDTH, SECTOR_TOP + SECTOR_HEIGHT + 40, label, "warp")
    lane_width = (WIDTH - 2 * LEFT) / max(1, len(access.lanes))
    scale = _Scale(made)
    p.text(LEFT, 14, "lane", "note")
    for lane, offset in enumerate(access.lanes):
        if offset is not None:
            _band(p, lane, offset, access.width_bytes, lane_width, scale)
    for lane, offset in enumerate(access.lanes):
        x, asleep = LEFT + lane * lane_width, offset is None
        said = f"lane {lane}: " + ("not active" if offset is None else f"byte {offset:,}")
        kind = "lane asleep" if asleep else "lane"
        p.rect(x + 1, LANE_TOP, lane_width - 2, LANE_HEIGHT, kind, said)
        name = "idle" if asleep else ""
        p.text(x + lane_width / 2, LANE_TOP + 14, str(lane), f"number {name}".strip(), "middle")
    for n, sector in enumerate(made):
        _sector(p, scale.left[n], scale.width, sector)
    _lines(p, made, scale)
    first = made[0].start
    where = "its first byte" if first == 0 else f"byte {words.count(first)}"
    note = f"addresses in {access.memory} from {where}; + is the distance from there"
    p.text(LEFT, SECTOR_TOP + SECTOR_HEIGHT + 36, note, "note")
    return p.made()


class _Scale:
    """Where a byte is drawn: sectors are equally wide, what is left out is a narrow break."""

    def __init__(self, made: Sequence[Sector]) -> None:
        breaks = sum(s.gap_bytes > 0 for s in made)
        self.width = min(80.0, (WIDTH - 2 * LEFT) / (len(made) + BREAK * breaks))
        used = self.width * (len(made) + BREAK * breaks)
        x = (WIDTH - used) / 2
        self.left: list[float] = []
        self.of: dict[int, float] = {}
        for sector in made:
            x += self.width * BREAK * (sector.gap_bytes > 0)
            self.left.append(x)
            self.of[sector.start] = x
            x += self.width

    def __call__(self, byte: int) -> float:
        start = byte // SECTOR * SECTOR
        return self.of[start] + (byte - start) / SECTOR * self.width


def _band(
    p: Picture, lane: int, offset: int, width_bytes: int, lane_width: float, scale: _Scale
) -> None:
    """From a lane to its bytes, at least a stroke wide."""
    top, bottom = LANE_TOP + LANE_HEIGHT, SECTOR_TOP
    x = LEFT + lane * lane_width
    left, right = scale(offset), scale(offset + width_bytes - 1) + scale.width / SECTOR
    if right - left < 1.2:
        middle = (left + right) / 2
        left, right = middle - 0.6, middle + 0.6
    corners = ((x + 2, top), (x + lane_width - 2, top), (right, bottom), (left, bottom))
    p.polygon(corners, f"band {_shade(offset)}", f"lane {lane}: byte {offset:,}")


def _shade(byte: int) -> str:
    """Neighbouring cache lines are told apart."""
    return "odd" if byte // LINE_BYTES % 2 else "even"


def _sector(p: Picture, x: float, width: float, sector: Sector) -> None:
    said = (
        f"sector at byte {sector.start:,}: {sector.used_bytes} of {SECTOR} bytes used, "
        f"by {words.several(len(sector.lanes), 'lane')}"
    )
    p.rect(x + 0.5, SECTOR_TOP, width - 1, SECTOR_HEIGHT, "sector", said)
    for start, end in sector.used:
        left = x + 0.5 + start / SECTOR * (width - 1)
        part = (end - start) / SECTOR * (width - 1)
        p.rect(left, SECTOR_TOP, part, SECTOR_HEIGHT, f"used {_shade(sector.start)}", said)
    p.rect(x + 0.5, SECTOR_TOP, width - 1, SECTOR_HEIGHT, "frame")
    if sector.gap_bytes:
        middle, y = x - width * BREAK / 2, SECTOR_TOP + SECTOR_HEIGHT / 2
        for shift in (-1.5, 1.5):
            p.line(middle + shift - 1, y + 6, middle + shift + 1, y - 6, "break")


def _lines(p: Picture, made: Sequence[Sector], scale: _Scale) -> None:
    """Brackets under the sectors of one cache line, labelled where there is room."""
    by_line: dict[int, list[int]] = {}
    for n, sector in enumerate(made):
        by_line.setdefault(sector.line, []).append(n)
    y, free = SECTOR_TOP + SECTOR_HEIGHT, 0.0
    for numbers in by_line.values():
        left, right = scale.left[numbers[0]], scale.left[numbers[-1]] + scale.width
        bracket = (
            (left + 1.5, y + 3),
            (left + 1.5, y + 7),
            (right - 1.5, y + 7),
            (right - 1.5, y + 3),
        )
        p.polyline(bracket, "bracket")
        text = f"+{words.count(made[numbers[0]].start - made[0].start)}"
        if left >= free:
            p.text(left + 1, y + 19, text, "number")
            free = left + 6.4 * len(text) + 8


# ---- shared memory
def _fronts(access: AccessReport) -> tuple[Wavefront, ...]:
    return wavefronts(access.lanes, access.width_bytes, access.op == "LOAD")


def _banks(access: AccessReport) -> Markup:
    made = _fronts(access)
    label = f"lanes of a warp over the {BANKS} banks of {access.memory}, in {len(made)} wavefronts"
    asleep = [n for n, offset in enumerate(access.lanes) if offset is None]
    height = HEAD + ROW * len(made) + (28 if asleep else 8)
    p = Picture(WIDTH, height, label, "banks")
    cell = (WIDTH - MARGIN - 4) / BANKS
    p.text(MARGIN, 12, f"bank, {BANK_BYTES} bytes each", "note")
    p.text(0, HEAD - 6, "wavefront", "note")
    for bank in range(BANKS):
        p.text(MARGIN + (bank + 0.5) * cell, HEAD - 6, str(bank), "number idle", "middle")
    for n, front in enumerate(made):
        _wavefront(p, n, front, cell)
    if asleep:
        text = f"not active: {'lane' if len(asleep) == 1 else 'lanes'} {_numbers(asleep)}"
        p.text(MARGIN, height - 8, text, "note")
    return p.made()


def _wavefront(p: Picture, n: int, front: Wavefront, cell: float) -> None:
    y = HEAD + n * ROW
    name = f"{n + 1}, conflict" if front.again else str(n + 1)
    p.text(0, y + 13, name, "number warn" if front.again else "number")
    for first, last, lanes in _runs(front.served):
        x, width = MARGIN + first * cell, (last - first + 1) * cell
        kind = "empty" if not lanes else "again" if front.again else "served"
        where = f"bank {first}" if first == last else f"banks {first}–{last}"
        p.rect(
            x + 0.75,
            y + 0.75,
            width - 1.5,
            ROW - 1.5,
            f"cell {kind}",
            f"{where}: {_lanes(lanes) if lanes else 'idle'}",
        )
        if lanes:
            text = _few(lanes, room=int(width / CHARACTER))
            p.text(x + width / 2, y + 12.5, text, "number on", "middle")


def _runs(served: Sequence[tuple[int, ...]]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Neighbouring banks that serve the same lanes as one: (first bank, last bank, lanes)."""
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    for bank, lanes in enumerate(served):
        if lanes and runs and runs[-1][2] == lanes:
            runs[-1] = (runs[-1][0], bank, lanes)
        else:
            runs.append((bank, bank, lanes))
    return runs


def _lanes(lanes: Sequence[int]) -> str:
    return f"{'lane' if len(lanes) == 1 else 'lanes'} {_numbers(lanes)}"


def _few(lanes: Sequence[int], room: int) -> str:
    """What fits into so many characters: all of a few lanes, or the first and a sign for more."""
    ways = (",".join(map(str, lanes)), f"{lanes[0]}+{len(lanes) - 1}", f"{lanes[0]}+")
    return next((text for text in ways if len(text) <= room), ways[-1])


def _numbers(numbers: Sequence[int]) -> str:
    """0-3, 7, 9-31."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)

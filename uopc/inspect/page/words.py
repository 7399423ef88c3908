"""Numbers as a reader wants them: a unit, and no more digits than are read."""

from __future__ import annotations

_BYTES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_RATES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def figures(value: float) -> str:
    """About three digits: 0.0421, 3.14, 31.4, 314, 3,140."""
    if value == 0:
        return "0"
    size = abs(value)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.0995 else 4
    text = f"{value:,.{places}f}"
    return f"{value:.2e}" if float(text.replace(",", "")) == 0 else text


def trimmed(value: float) -> str:
    """As `figures`, without zeros behind the point: 4, 1.5, 0.25."""
    text = figures(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def count(value: int) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,}"


def size(size_bytes: int) -> str:
    """A number of bytes: 512 bytes, 48 KiB, 31.3 MiB."""
    for unit, scale in _BYTES:
        if size_bytes >= scale:
            return f"{trimmed(size_bytes / scale)} {unit}"
    return f"{size_bytes} byte{'s' * (size_bytes != 1)}"


def time(time_s: float) -> str:
    """A time: 1.23 ms, 45.6 µs, 0 s."""
    for unit, scale in _TIMES:
        if time_s >= scale * 0.9995:
            return f"{figures(time_s / scale)} {unit}"
    return f"{figures(time_s / 1e-9)} ns" if time_s > 0 else "0 s"


def share(part: float) -> str:
    """A part of one, in percent: a full 100% is said of nothing that is less."""
    percent = 100 * part
    if 99.5 <= percent < 100:
        return f"{min(percent, 99.9):.1f}%"
    return f"{percent:.1f}%" if 0 < percent < 1 else f"{percent:.0f}%"


def rate(per_second: float, unit: str) -> str:
    """A rate with its prefix: 3.35 TB/s, 67 Top/s."""
    for prefix, scale in _RATES:
        if per_second >= scale * 0.9995:
            return f"{trimmed(per_second / scale)} {prefix}{unit}"
    return f"{trimmed(per_second)} {unit}"


def several(n: int, one: str, more: str = "") -> str:
    """As in "1 line", "3 lines"; more: of a word that does not take an s."""
    return f"{count(n)} {one if n == 1 else more or one + 's'}"

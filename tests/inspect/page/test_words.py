"""Numbers are written with a unit and no more digits than are read."""

from __future__ import annotations

import pytest

from uopc.inspect.page import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0421, "0.0421"), (3.14159, "3.14"), (31.4159, "31.4"), (99.96, "100")]
    + [(3141.6, "3,142"), (1.5e-7, "1.50e-07")],
)
def test_figures(value: float, text: str) -> None:
    assert words.figures(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(4.0, "4"), (1.5, "1.5"), (100.0, "100"), (0.25, "0.25"), (10.0, "10")]
)
def test_trimmed(value: float, text: str) -> None:
    assert words.trimmed(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1 byte"), (1000, "1000 bytes"), (48 << 10, "48 KiB"), (1_572_864, "1.5 MiB")],
)
def test_size(value: int, text: str) -> None:
    assert words.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2.00 s"), (1.23e-3, "1.23 ms"), (9.8e-6, "9.80 µs"), (5e-9, "5.00 ns"), (0.0, "0 s")]
    + [(0.9999e-3, "1.00 ms")],
)
def test_time(value: float, text: str) -> None:
    assert words.time(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100%"), (0.999, "99.9%"), (0.99999, "99.9%"), (0.125, "12%"), (0.004, "0.4%")]
    + [(0.0, "0%")],
)
def test_share(value: float, text: str) -> None:
    assert words.share(value) == text


def test_rates_and_counts() -> None:
    assert words.rate(3.35e12, "B/s") == "3.35 TB/s"
    assert words.rate(12.0, "op/s") == "12 op/s"
    assert words.several(1, "launch", "launches") == "1 launch"
    assert words.several(1200, "launch", "launches") == "1,200 launches"

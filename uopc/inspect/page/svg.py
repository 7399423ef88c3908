"""A picture: shapes with classes, so that the style sheet colours them in light and dark."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


class Picture:
    """An SVG that grows shape by shape.  Lengths are in its own units; text stays text.

    label: what it shows, for those who do not see it.
    """

    def __init__(self, width: float, height: float, label: str, kind: str = "") -> None:
        self.width, self.height, self.label, self.kind = width, height, label, kind
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, title: str = ""
    ) -> None:
        size = f'width="{_n(width)}" height="{_n(height)}"'
        self._add(f'<rect x="{_n(x)}" y="{_n(y)}" {size} class="{escape(kind)}"', "rect", title)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
        self._add(f'<line {ends} class="{escape(kind)}"', "line", "")

    def circle(self, x: float, y: float, radius: float, kind: str, title: str = "") -> None:
        at = f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"'
        self._add(f'<circle {at} class="{escape(kind)}"', "circle", title)

    def polygon(self, points: Iterable[tuple[float, float]], kind: str, title: str = "") -> None:
        self._add(f'<polygon points="{_points(points)}" class="{escape(kind)}"', "polygon", title)

    def polyline(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        self._add(f'<polyline points="{_points(points)}" class="{escape(kind)}"', "polyline", "")

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """anchor: which end of the text is at x: "start", "middle" or "end"."""
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        named = f' class="{escape(kind)}"' if kind else ""
        self._parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{where}{named}>{escape(text)}</text>')

    def made(self) -> Markup:
        """The picture as markup, trusted: all text in it is escaped."""
        head = f'<svg class="{escape(self.kind)}" role="img" aria-label="{escape(self.label)}"'
        head += f' viewBox="0 0 {_n(self.width)} {_n(self.height)}"'
        return Markup(f"{head}>{''.join(self._parts)}</svg>")

    def _add(self, opened: str, name: str, title: str) -> None:
        end = f"><title>{escape(title)}</title></{name}>" if title else "/>"
        self._parts.append(opened + end)


def _n(value: float) -> str:
    """Two digits behind the point are less than a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)

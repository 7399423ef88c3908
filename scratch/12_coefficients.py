"""Where the numbers of `exact_math` and `tensor/curves.py` come from: best polynomials (Remez).

Everything is computed here with decimals of 70 digits from exp, ln and series.  Coefficients are
rounded to f32 or f64 one after another, the lowest first, and what is left is fitted again, so that
each rounding error but the last is made good by the coefficients above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, getcontext
from typing import TypeAlias

import numpy as np

Function: TypeAlias = Callable[[Decimal], Decimal]
Kind: TypeAlias = type[np.float32] | type[np.float64]
getcontext().prec = 70
TINY = Decimal(10) ** -68
LN2 = Decimal(2).ln()


# ---- functions
def series(term: Decimal, factor: Callable[[int], Decimal]) -> Decimal:
    """term * (1 + factor(1) * (1 + factor(2) * ...))"""
    total, n = Decimal(0), 0
    while abs(term) > TINY:
        total, n = total + term, n + 1
        term *= factor(n)
    return total


def arctan_of_inverse(n: int) -> int:
    """arctan(1/n) * 2^PI_BITS."""
    power, total, k = (1 << PI_BITS) // n, 0, 0
    while power:
        total += (-1) ** k * (power // (2 * k + 1))
        power, k = power // (n * n), k + 1
    return total


PI_BITS = 1400
PI_INTEGER = 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)  # Machin, 1706
PI = Decimal(PI_INTEGER) / Decimal(2**PI_BITS)


def sin(x: Decimal) -> Decimal:
    return series(x, lambda n: -x * x / (2 * n * (2 * n + 1)))


def cos(x: Decimal) -> Decimal:
    return series(Decimal(1), lambda n: -x * x / (2 * n * (2 * n - 1)))


def arctan(x: Decimal) -> Decimal:
    """By arctan(x) = 2 arctan(x / (1 + sqrt(1 + x²))) until the series is short."""
    halvings = 0
    while abs(x) > Decimal("0.05"):
        x, halvings = x / (1 + (1 + x * x).sqrt()), halvings + 1
    terms, power, n = Decimal(0), x, 0
    while abs(power) > TINY:
        terms, power, n = terms + (-1) ** n * power / (2 * n + 1), power * x * x, n + 1
    return Decimal(2**halvings) * terms


def erf(x: Decimal) -> Decimal:
    """2/sqrt(pi) * exp(-x²) * (x + 2x³/3 + 4x⁵/15 + ...): every term is positive."""
    return 2 * (-x * x).exp() / PI.sqrt() * series(x, lambda n: 2 * x * x / (2 * n + 1))


def twice_artanh(s: Decimal) -> Decimal:
    return ((1 + s) / (1 - s)).ln()


# ---- best polynomials
def solve(rows: list[list[Decimal]], right: list[Decimal]) -> list[Decimal]:
    """The solution of a square linear system, by elimination with pivots."""
    table = [[*row, r] for row, r in zip(rows, right, strict=True)]
    n = len(table)
    for i in range(n):
        pivot = max(range(i, n), key=lambda j: abs(table[j][i]))
        table[i], table[pivot] = table[pivot], table[i]
        for j in range(i + 1, n):
            f = table[j][i] / table[i][i]
            table[j] = [a - f * b for a, b in zip(table[j], table[i], strict=True)]
    out = [Decimal(0)] * n
    for i in reversed(range(n)):
        known = sum((table[i][j] * out[j] for j in range(i + 1, n)), Decimal(0))
        out[i] = (table[i][n] - known) / table[i][i]
    return out


def value(coefficients: Sequence[Decimal], x: Decimal) -> Decimal:
    total = Decimal(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def extremes(errors: Sequence[Decimal], count: int) -> list[int]:
    """Places of the largest errors of alternating sign, `count` of them."""
    places: list[int] = []
    for i, e in enumerate(errors):
        if places and (e > 0) == (errors[places[-1]] > 0):
            if abs(e) > abs(errors[places[-1]]):
                places[-1] = i
        else:
            places.append(i)
    while len(places) > count:
        places.pop(0 if abs(errors[places[0]]) < abs(errors[places[-1]]) else -1)
    return places


def remez(
    xs: Sequence[Decimal], ys: Sequence[Decimal], weights: Sequence[Decimal], count: int
) -> tuple[list[Decimal], Decimal]:
    """`count` coefficients with the smallest largest |weight * (y - polynomial)|, and that."""
    at = [round(i * (len(xs) - 1) / count) for i in range(count + 1)]
    best: tuple[list[Decimal], Decimal] | None = None
    for _ in range(40):
        rows = [
            [xs[i] ** k for k in range(count)] + [(-1) ** n / weights[i]] for n, i in enumerate(at)
        ]
        found = solve(rows, [ys[i] for i in at])[:count]
        errors = [w * (y - value(found, x)) for x, y, w in zip(xs, ys, weights, strict=True)]
        largest = max(map(abs, errors))
        if best is None or largest < best[1]:
            best = found, largest
        new = extremes(errors, count + 1)
        if new == at or len(new) <= count:
            break
        at = new
    assert best is not None
    return best


@dataclass(frozen=True)
class Fit:
    """A function of x on low..high by `count` coefficients; weight: how much an error counts."""

    function: Function
    weight: Function
    low: Decimal
    high: Decimal
    counts: tuple[int, int]  # for f32 and f64


def fit(wanted: Fit, count: int, kind: Kind) -> tuple[list[np.float32 | np.float64], Decimal]:
    """The rounded coefficients, lowest first, and the largest weighted error they leave."""
    points = 24 * (count + 2)
    middle, half = (wanted.high + wanted.low) / 2, (wanted.high - wanted.low) / 2
    xs = [middle - half * cos(PI * (2 * i + 1) / (2 * points)) for i in range(points)]
    ys, weights = [wanted.function(x) for x in xs], [wanted.weight(x) for x in xs]
    rest, scale, out = list(ys), list(weights), []
    for left in range(count, 0, -1):
        found, _ = remez(xs, rest, scale, left)
        out.append(kind(str(found[0])))  # numpy reads decimals to the nearest
        c = Decimal(float(out[-1]))
        rest = [(y - c) / x for x, y in zip(xs, rest, strict=True)]
        scale = [w * abs(x) for x, w in zip(xs, scale, strict=True)]
    exact = [Decimal(float(c)) for c in out]
    errors = [w * (y - value(exact, x)) for x, y, w in zip(xs, ys, weights, strict=True)]
    return out, max(map(abs, errors))


def fits() -> dict[str, Fit]:
    """By name.  An error is weighted to be one of the whole result, relative to it."""
    narrow, quarter = LN2 / 2 + Decimal("1e-6"), PI / 4 + Decimal("1e-6")
    eighth = Decimal(2).sqrt() - 1 + Decimal("1e-6")  # tan(pi / 8)
    s_max = (Decimal(2).sqrt() - 1) / (Decimal(2).sqrt() + 1) + Decimal("1e-6")

    def of_root(f: Function) -> Function:
        return lambda z: f(z.sqrt())

    return {
        "EXP (e^r - 1 - r) / r²": Fit(
            function=lambda r: (r.exp() - 1 - r) / (r * r),
            weight=abs,
            low=-narrow,
            high=narrow,
            counts=(6, 11),
        ),
        "LOG (2 artanh(s) - 2s) / s³, z = s²": Fit(
            function=of_root(lambda s: (twice_artanh(s) - 2 * s) / s**3),
            weight=lambda z: z / 2,
            low=Decimal(0),
            high=s_max**2,
            counts=(3, 7),
        ),
        "SIN (sin r - r) / r³, z = r²": Fit(
            function=of_root(lambda r: (sin(r) - r) / r**3),
            weight=of_root(lambda r: r**3 / sin(r)),
            low=Decimal(0),
            high=quarter**2,
            counts=(3, 6),
        ),
        "COS (cos r - 1 + r²/2) / r⁴, z = r²": Fit(
            function=of_root(lambda r: (cos(r) - 1 + r * r / 2) / r**4),
            weight=of_root(lambda r: r**4 / cos(r)),
            low=Decimal(0),
            high=quarter**2,
            counts=(3, 6),
        ),
        "ATAN (arctan(t) / t - 1) / t², z = t²": Fit(
            function=of_root(lambda t: (arctan(t) / t - 1) / (t * t)),
            weight=of_root(lambda t: t**3 / arctan(t)),
            low=Decimal(0),
            high=eighth**2,
            counts=(5, 11),
        ),
        "ERF erf(x) / x - 1, z = x²": Fit(
            function=of_root(lambda x: erf(x) / x - 1),
            weight=of_root(lambda x: x / erf(x)),
            low=Decimal(0),
            high=Decimal(1),
            counts=(7, 13),
        ),
    }


def tail(top: int, counts: tuple[int, int]) -> Fit:
    """ln(erfc(1 + t)) up to 1 + t = top; what counts is the error of 1 - exp of it."""
    return Fit(
        function=lambda t: (1 - erf(1 + t)).ln(),
        weight=lambda t: (1 - erf(1 + t)) / erf(1 + t),
        low=Decimal(0),
        high=Decimal(top - 1),
        counts=counts,
    )


def narrow_gelu() -> Fit:
    """-log2(erfc(t / sqrt 2)) / t, twice the share of a normal distribution beyond t > 0; what
    counts is the error of that share, relative to it.  Beyond 14 it is no f32 any more."""
    return Fit(
        function=lambda t: -(1 - erf(t / Decimal(2).sqrt())).ln() / LN2 / t,
        weight=lambda t: t * LN2,
        low=Decimal(0),
        high=Decimal(14),
        counts=(9, 9),
    )


# ---- constants in two parts
def parts(exact: Decimal, kind: Kind, bits: int = 0) -> str:
    """A number as the sum of two floats; bits: the first one has no more behind the point."""
    first = Decimal(int(exact * 2**bits)) / 2**bits if bits else Decimal(float(kind(str(exact))))
    return f"{float(first) if bits else shown(kind(str(exact)))}, {shown(kind(str(exact - first)))}"


def shown(x: np.float32 | np.float64) -> str:
    """The fewest digits that give the same bits back."""
    return str(x)


def report() -> str:
    """Every number, one table a format."""
    kinds: dict[str, Kind] = {"f32": np.float32, "f64": np.float64}
    wanted = {name: (f, f) for name, f in fits().items()}
    wanted["ERFC ln(erfc(1 + t))"] = (tail(4, (9, 9)), tail(6, (21, 21)))
    lines = []
    for name, both in wanted.items():
        for n, (dtype, kind) in enumerate(kinds.items()):
            coefficients, error = fit(both[n], both[n].counts[n], kind)
            lines.append(f"{name}, {dtype}: error 2^{float(error.ln() / LN2):.1f}")
            lines.append("  " + ", ".join(map(shown, coefficients)))
    coefficients, error = fit(narrow_gelu(), 9, np.float32)
    lines.append(f"GELU -log2(erfc(t / sqrt 2)) / t, f32: error 2^{float(error.ln() / LN2):.1f}")
    lines.append("  " + ", ".join(map(shown, coefficients)))
    for (dtype, kind), bits in zip(kinds.items(), (16, 42), strict=True):
        lines.append(f"ln 2, {dtype}: {parts(LN2, kind, bits)}")
        lines.append(f"1 / ln 2, {dtype}: {parts(1 / LN2, kind)}")
        lines.append(f"pi / 2, {dtype}: {parts(PI / 2, kind)}")
    lines.append(f"2 / pi * 2^1168 = {(1 << PI_BITS + 1 + 1168) // PI_INTEGER:#x}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())

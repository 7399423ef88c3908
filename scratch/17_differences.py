"""How far a difference is from a derivative: too large a step bends, too small a step rounds."""

from __future__ import annotations

import math

import numpy as np

F = math.sin
SLOPE, X = math.cos(1.0), 1.0


def error(step: float, dtype: type[np.floating]) -> float:
    """Of (f(x + e) - f(x - e)) / 2e beside f'(x), computed in one dtype."""
    e = dtype(step)
    up, down = (dtype(F(dtype(X) + s)) for s in (e, -e))
    return abs(float((up - down) / (2 * e)) - SLOPE)


print(f"{'step':>8} {'f32':>9} {'f64':>9} {'e²/6 f':>9}")
for k in range(1, 11):
    e = 10.0**-k
    row = (error(e, np.float32), error(e, np.float64), e * e / 6 * SLOPE)
    print(f"{e:8.0e} " + " ".join(f"{x:9.0e}" for x in row))

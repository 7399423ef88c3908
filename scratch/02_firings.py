"""Which rules fire on which kernel: bodies through `rangeify`, then `simplify` with a trace."""

from __future__ import annotations

from collections import Counter

from uopc.dtype import dtypes
from uopc.pipeline import index
from uopc.symbolic import simplify
from uopc.uop import UOp, buffer, prod, toposort
from uopc.uop.match import Step

x = buffer(0, dtypes.f32, (12, 10))
i = UOp.arange(120).reshape((12, 10))
bodies = {
    "x*2 + 1": x * 2.0 + 1.0,
    "x*1 / 8 + -0.0": x * 1.0 / 8.0 + -0.0,
    "a frame of zeros": x.pad(((1, 1), (1, 1))),
    "rows forth and back": (i // 10) * 10 + i % 10,
    "lower triangle": (i % 10 < i // 10 + 1).where(x, 0.0),
    "two masks of one": (i < 100).where((i < 50).where(x, 0.0), 0.0),
}
for name, body in bodies.items():
    root = index([body], [buffer(1, body.dtype, (prod(body.shape),))])
    steps: list[Step] = []
    after = simplify(root, steps)
    fired = Counter(s.rule for s in steps)
    print(f"{name}: {len(toposort(root))} nodes, then {len(toposort(after))}")
    print("   ", ", ".join(f"{n} {rule}" for rule, n in fired.items()) or "nothing to do")

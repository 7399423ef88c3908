"""Is a rule true?  Both of its sides are computed for all 65,536 pairs of 8-bit integers."""

from __future__ import annotations

import numpy as np

from uopc.dtype import dtypes
from uopc.uop import UOp, buffer
from uopc.uop.match import WRAP, Rule, Rules, const, rewrite, var
from uopc.uop.oracle import evaluate

N = 1 << 16
every = np.arange(N)
A, B = (every % 256 - 128).astype(np.int8), (every // 256 - 128).astype(np.int8)
a, b = buffer(0, dtypes.i8, (N,)), buffer(1, dtypes.i8, (N,))
x, y, c = var("x"), var("y"), const("c")


def judge(rule: Rule, before: UOp) -> str:
    """What the rule makes of an expression over a and b, held against the expression."""
    after = rewrite(before, Rules([rule]))
    if after is before:
        return "does not apply"
    left, right = (evaluate(e, {0: A, 1: B}) for e in (before, after))
    wrong = np.flatnonzero(left != right)
    if not len(wrong):
        return f"true for all {N} pairs"
    at = wrong[0]
    return f"FALSE for {len(wrong)} pairs: a={A[at]}, b={B[at]} gave {left[at]}, gives {right[at]}"


claims = [
    (Rule("add-of-and-or", (x & y) + (x | y), lambda x, y: x + y, WRAP), (a & b) + (a | b)),
    (Rule("halve-double", (x * 2) // 2, lambda x: x, WRAP), a * 2 // 2),
    (Rule("move-constant", (x + c) < y, lambda x, c, y: x < y - c, WRAP), (a + 3) < b),
    (Rule("not-as-minus", ~x, lambda x: -x - 1, WRAP), ~a),
    (Rule("shift-as-floor", x >> 1, lambda x: x // 2, WRAP), a >> 1),
    (Rule("sign-through", -(x // 2), lambda x: -x // 2, WRAP), -(a // 2)),
    (Rule("join-halves", (x // 2) * 2 + x % 2, lambda x: x, WRAP), (a // 2) * 2 + a % 2),
    (Rule("double-minus", (x + x) - x, lambda x: x, WRAP), (a + a) - a),
]
for rule, before in claims:
    print(f"{rule.name:14} {judge(rule, before)}")

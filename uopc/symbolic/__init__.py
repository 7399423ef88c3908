"""Algebra on the IR: one file per family of rules, and `simplify`, which applies them all.

Every rule has a proof in tests/symbolic/test_proofs.py.
"""

from __future__ import annotations

from uopc.symbolic import cast, compare, divmod, fold, identity, logic, order, where
from uopc.uop.match import Rules, Step, rewrite
from uopc.uop.node import UOp

RULES = Rules(
    [
        *fold.RULES,
        *identity.RULES,
        *logic.RULES,
        *where.RULES,
        *cast.RULES,
        *divmod.RULES,
        *compare.RULES,
        *order.RULES,
    ]
)


def simplify(root: UOp, trace: list[Step] | None = None) -> UOp:
    """The same values, written in the simplest way the rules know; equal sums become one node.

    Keeps every bit of every float result (all NaNs count as one value) and every wrapped integer.
    `trace` collects the steps: rule, node before, node after.
    """
    return rewrite(root, RULES, trace)

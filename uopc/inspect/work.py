"""What a launch computes: operations by unit, counted over its statements.

A statement is done by each thread that its roles have, in each turn of the loops around it;
conditions are taken to hold.  An operation is one of the numbers' own; what only finds addresses is
counted as "index", what only changes a type as "convert".
"""

from __future__ import annotations

import math
from collections import Counter

from uopc import layouts
from uopc.dtype import dtypes
from uopc.inspect.sites import Statement, statements
from uopc.kernel import ProgramTree
from uopc.uop.node import UOp
from uopc.uop.ops import ELEMENTWISE, TRANSCENDENTAL, Ops

WARP = 32
_FREE = frozenset((Ops.NEG, Ops.BITCAST))


def operations(program: ProgramTree) -> dict[str, int]:
    """Operations of a launch by unit: "fp32", "fp64", "int", "sfu", "tensor TYPE", "convert" and
    "index"."""
    total: Counter[str] = Counter()
    for s in statements(program):
        times = _threads(s, program) * math.prod(r.arg.size for r in s.loops)
        for u in s.inside:
            if u.op is Ops.MMA:
                atom = layouts.ATOMS[u.arg]
                of_warps = 4 if atom.engine == "wgmma" else 1
                each = 2 * atom.m * atom.n * atom.k // (of_warps * WARP)
                total[f"tensor {_type(atom.a.type)}"] += times * each
            elif u.op in ELEMENTWISE and u.op not in _FREE:
                total[_unit(u)] += times * (2 if u.op is Ops.FMA else 1)
    return {unit: n for unit, n in total.most_common() if n}


def _type(name: str) -> str:
    return "f8" if name.startswith("f8") else name


def _threads(s: Statement, program: ProgramTree) -> int:
    """Threads of the launch that do a statement."""
    threads = program.launch.threads
    for _, warps in s.warps:
        threads = min(threads, warps * WARP)
    return threads * math.prod(program.launch.grid)


def _unit(u: UOp) -> str:
    """What computes an elementwise op.  Comparisons are of their operands' type."""
    d = u.src[0].dtype if u.dtype is dtypes.bool else u.dtype
    if d is dtypes.index:
        return "index"
    if u.op is Ops.CAST:
        return "convert"
    if u.op in TRANSCENDENTAL or u.op in (Ops.SQRT, Ops.DIV):
        return "fp64" if d is dtypes.f64 else "sfu"
    if d.is_float:
        return "fp64" if d is dtypes.f64 else "fp32"
    return "int"

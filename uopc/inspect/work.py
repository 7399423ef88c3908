"""What a launch computes: operations by unit, counted over its statements.

A statement is done by each thread that its roles have, in each turn of the loops around it in which
its conditions hold; those that data decides are taken to.  An operation is one of the numbers' own;
what only finds addresses is counted as "index", what only changes a type as "convert".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from uopc import layouts
from uopc.dtype import dtypes
from uopc.inspect.requests import WARP
from uopc.inspect.sites import Statement, statements
from uopc.inspect.warps import DataDecidesError, Threads, executions
from uopc.kernel import Launch, ProgramTree
from uopc.uop.node import UOp
from uopc.uop.ops import ELEMENTWISE, TRANSCENDENTAL, AxisType, Ops

_FREE = frozenset((Ops.NEG, Ops.BITCAST))


def operations(program: ProgramTree) -> dict[str, int]:
    """Operations of a launch by unit: "fp32", "fp64", "int", "sfu", "tensor TYPE", "convert",
    "logic" and "index"; an FMA counts as two."""
    total: Counter[str] = Counter()
    for unit, times, each in _done(program):
        total[unit] += times * each
    return {unit: n for unit, n in total.most_common() if n}


def instructions(program: ProgramTree) -> dict[str, int]:
    """What threads do by the same units, those of tensor cores left out: an FMA is one."""
    total: Counter[str] = Counter()
    for unit, times, _ in _done(program):
        if not unit.startswith("tensor"):
            total[unit] += times
    return {unit: n for unit, n in total.most_common() if n}


def _done(program: ProgramTree) -> Iterator[tuple[str, int, int]]:
    """(unit, how often threads do it, operations of each) of everything that computes."""
    threads = Threads.of(program.launch)
    known: dict[tuple[object, ...], int] = {}
    for s in statements(program):
        for u in s.inside:
            guard = () if s.guard is None or u in s.before else (s.guard,)
            conditions = (*s.counted, *guard)
            place = (conditions, s.loops, s.warps)
            if place not in known:
                known[place] = _times(s, conditions, program.launch, threads)
            times = known[place]
            if u.op is Ops.MMA:
                atom = layouts.ATOMS[u.arg]
                of_warps = 4 if atom.engine == "wgmma" else 1
                each = 2 * atom.m * atom.n * atom.k // (of_warps * WARP)
                yield f"tensor {_type(atom.a.type)}", times, each
            elif u.op in ELEMENTWISE and u.op not in _FREE:
                unit = _unit(u)
                turns = _unrolled(s) if unit == "index" else 1
                yield unit, times // turns, 2 if u.op is Ops.FMA else 1


def _unrolled(s: Statement) -> int:
    """Turns of unrolled loops: in each what finds an address is the same but for a constant, which
    is part of the access."""
    return math.prod(r.arg.size for r in s.loops if r.arg.kind is AxisType.UPCAST)


def _type(name: str) -> str:
    return "f8" if name.startswith("f8") else name


def _times(s: Statement, conditions: Sequence[UOp], launch: Launch, threads: Threads) -> int:
    """How often threads of the launch do a part of a statement, in all."""
    mine = threads.within(s.warps)
    try:
        return executions(conditions, s.loops, launch, mine)
    except DataDecidesError:
        return executions((), s.loops, launch, mine)


def _unit(u: UOp) -> str:
    """What computes an elementwise op.  Comparisons are of their operands' type."""
    d = u.src[0].dtype if u.dtype is dtypes.bool else u.dtype
    if d is dtypes.index:
        return "index"
    if u.op is Ops.CAST:
        return "convert"
    if u.op in TRANSCENDENTAL or u.op in (Ops.SQRT, Ops.DIV):
        return "fp64" if d is dtypes.f64 else "sfu"
    if d is dtypes.bool:
        return "logic"
    if d.is_float:
        return "fp64" if d is dtypes.f64 else "fp32"
    return "int"

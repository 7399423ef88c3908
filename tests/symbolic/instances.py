"""Expressions that a rule's pattern describes: of every dtype, with constants of both signs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tests.symbolic.evaluate import between, scalar, values_of_dtype
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.uop.match import BOOL, EFFECT, FLOAT, INDEX, WRAP, Holds, Pattern, Rule
from uopc.uop.node import UOp
from uopc.uop.ops import COMPARE, Ops

#: the dtypes that stand for each kind of value
SAMPLES: dict[Holds, tuple[DType, ...]] = {
    INDEX: (dtypes.index,),
    WRAP: (dtypes.i8, dtypes.u8),
    FLOAT: (dtypes.f32, dtypes.f16, dtypes.bf16, dtypes.f64),
    BOOL: (dtypes.bool,),
    EFFECT: (dtypes.void,),
}
#: dtypes under a comparison or a cast
INNER = (dtypes.index, dtypes.i8, dtypes.u8, dtypes.bool, dtypes.f32, dtypes.f16, dtypes.f8e4m3)
#: instances per rule and dtype; which ones, a fixed seed decides
MOST = 200


class MismatchError(Exception):
    """The pattern has no instance of the dtypes asked for."""


def kind_of(d: DType) -> Holds:
    """The kind of values that a dtype has."""
    if d is dtypes.index or d is dtypes.bool or d is dtypes.void:
        return {dtypes.index: INDEX, dtypes.bool: BOOL, dtypes.void: EFFECT}[d]
    return FLOAT if d.is_float else WRAP


def constants(d: DType) -> list[UOp]:
    """CONSTs of both signs, small ones and those at the edges."""
    if d is dtypes.i8:
        return [UOp.const(n, d) for n in (-128, -127, *range(-5, 6), 8, 126, 127)]
    if d is dtypes.u8:
        return [UOp.const(n, d) for n in (*range(7), 8, 126, 127, 128, 129, 254, 255)]
    return [UOp.const(v.item() if not d.is_float else float(v), d) for v in values_of_dtype(d)]


def leaves(slot: int, d: DType, bounded: bool) -> list[UOp]:
    """A value of which nothing is known and, where bounds matter, some with bounds."""
    near = ((0, 3), (2, 2), (5, 7), *(((-6, -5),) if d is not dtypes.u8 else ()))
    if d is dtypes.index:
        return [between(slot, -8, 8), *(between(slot, *b) for b in near if bounded)]
    known = [between(slot + 10, *b).cast(d) for b in near if bounded and d.is_data_int]
    return [scalar(slot, d), *known]


def _below(p: Pattern, d: DType, inner: DType, root: bool) -> list[tuple[Pattern, DType]]:
    """The operands of a pattern node of dtype d, with their dtypes."""
    if p.op in COMPARE:
        d = d if root else inner
    elif p.op in (Ops.CAST, Ops.BITCAST):
        d = inner
    return [(s, dtypes.bool if p.op is Ops.WHERE and k == 0 else d) for k, s in enumerate(p.src)]


def names(p: Pattern, d: DType, inner: DType, root: bool = True) -> dict[str, tuple[bool, DType]]:
    """What the pattern binds: name: (is it a constant, dtype).

    d is the dtype of the root (of its operands, where the root compares); inner that of what other
    comparisons and casts take.  Raises MismatchError where a name cannot have its dtype.
    """
    found: dict[str, tuple[bool, DType]] = {}
    if not p.src:
        if kind_of(d) not in p.kinds:
            raise MismatchError
        return {p.name: (p.op is Ops.CONST, d)} if p.literal is None else {}
    for s, below in _below(p, d, inner, root):
        for name, what in names(s, below, inner, False).items():
            if found.setdefault(name, what) != what:
                raise MismatchError
    return found


def make(p: Pattern, d: DType, inner: DType, bound: dict[str, UOp], root: bool = True) -> UOp:
    """The pattern as a node, its names replaced.  Raises UsageError where an op lacks a dtype."""
    if p.literal is not None:
        return UOp.const(d.wrap(p.literal) if isinstance(p.literal, int) else p.literal, d)
    if not p.src:
        return bound[p.name]
    src = tuple([make(s, b, inner, bound, False) for s, b in _below(p, d, inner, root)])
    assert p.op is not None
    return UOp(p.op, src, d if p.op in (Ops.CAST, Ops.BITCAST) else None)


def of_pattern(
    rule: Rule,
    bounded: bool = False,
    backwards: bool = False,
    samples: Mapping[Holds, Sequence[DType]] = SAMPLES,
) -> Iterator[UOp]:
    """Instances of a rule's pattern, at most MOST per dtype.

    bounded: variables also stand for values with bounds (as rules that look at bounds need).
    backwards: the later variable is the smaller parameter.
    samples: the dtypes that stand for a kind.
    """
    choose = random.Random(rule.name)
    nested = any(s.op in COMPARE or s.op in (Ops.CAST, Ops.BITCAST) for s in walk(rule.pattern))
    for d in (d for kind in rule.holds for d in samples[kind]):
        found: list[UOp] = []
        for inner in dict.fromkeys((*INNER, d)) if nested else (d,):
            try:
                what = names(rule.pattern, d, inner)
                options = [
                    constants(t)
                    if is_const
                    else leaves(9 - slot if backwards else slot, t, bounded)
                    for slot, (is_const, t) in enumerate(what.values())
                ]
                every = list(product(*options))
                for chosen in every if len(every) <= MOST else choose.sample(every, MOST):
                    bound = dict(zip(what, chosen, strict=True))
                    found.append(make(rule.pattern, d, inner, bound))
            except (MismatchError, UsageError):
                continue
        yield from found if len(found) <= MOST else choose.sample(found, MOST)


def walk(p: Pattern) -> Iterator[Pattern]:
    """Every node of a pattern."""
    yield p
    for s in p.src:
        yield from walk(s)

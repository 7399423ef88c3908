"""A ProgramTree as a list of lines with jumps: what one thread walks through with a line number.

A line evaluates `steps`, the nodes that its item needs and that no Let has named, sources first,
and then does what its kind says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.uop.node import UOp
from uopc.uop.ops import EFFECTS, WARP_VALUES, BarrierScope, Ops

_NO_VALUES = frozenset((Ops.COMMIT, Ops.WAITG, Ops.FENCE, Ops.ROLE))
_LEAVES = frozenset((Ops.CONST, Ops.BUFFER, Ops.ALLOC, Ops.RANGE, Ops.TENSORMAP))


class Kind(Enum):
    """What a line does after its steps."""

    VALUE = auto()  # nothing more: a Let
    WARP = auto()  # a value that lanes make together
    EFFECT = auto()
    DECLARE = auto()  # registers begin anew
    BEGIN = auto()  # of a RANGE: its first value
    NEXT = auto()  # of a RANGE: its next value and back to line `to`, or on
    BRANCH = auto()  # of an IF or a ROLE: to line `to` where this thread does not take part


@dataclass
class Line:
    kind: Kind
    node: UOp
    steps: tuple[UOp, ...] = ()
    to: int = 0


def flatten(program: ProgramTree) -> list[Line]:
    """The lines of a kernel."""
    named = {item.value for item in program.walk() if isinstance(item, Let)}
    lines: list[Line] = []
    work: list[tuple[Item | None, UOp | None, int]] = [
        (item, None, 0) for item in reversed(program.items)
    ]
    while work:
        item, opened, start = work.pop()
        if item is None:
            assert opened is not None
            _close(lines, opened, start)
        elif isinstance(item, Scope):
            opener = item.opener
            kind = Kind.BEGIN if opener.op is Ops.RANGE else Kind.BRANCH
            lines.append(Line(kind, opener, _steps(opener, named)))
            work.append((None, opener, len(lines) - 1))
            work += [(inner, None, 0) for inner in reversed(item.items)]
        else:
            lines.append(_line(item, named))
    return lines


def _close(lines: list[Line], opener: UOp, start: int) -> None:
    if opener.op is Ops.RANGE:
        lines.append(Line(Kind.NEXT, opener, to=start + 1))
    else:
        lines[start].to = len(lines)


def _line(item: Declare | Let | Do, named: set[UOp]) -> Line:
    if isinstance(item, Declare):
        return Line(Kind.DECLARE, item.alloc)
    if isinstance(item, Do):
        return Line(Kind.EFFECT, item.effect, _steps(item.effect, named))
    u = item.value
    if u.op in WARP_VALUES:
        return Line(Kind.WARP, u, _steps(u, named))
    if u.op is Ops.ATOMIC:
        return Line(Kind.EFFECT, u, _steps(u, named))
    return Line(Kind.VALUE, u, (*_steps(u, named), u))


def operands(u: UOp) -> Iterator[UOp]:
    """The sources that are values, or indices of memory: not what is only done before."""
    if u.op in _NO_VALUES or (u.op is Ops.BARRIER and not is_named(u)):
        return
    count = len(u.src)
    if u.op in (Ops.IF, Ops.ASSERT, Ops.BARRIER, Ops.AFTER):
        count = 1
    elif u.op is Ops.PRINTF:
        count = u.arg.format.count("{}")
    yield from u.src[1:] if u.op is Ops.INDEX else u.src[:count]


def is_named(barrier: UOp) -> bool:
    return barrier.arg is not None and barrier.arg.scope is BarrierScope.NAMED


def _steps(u: UOp, named: set[UOp]) -> tuple[UOp, ...]:
    """What must be evaluated before u, sources first, without u and without named values."""
    out: list[UOp] = []
    seen: set[UOp] = {u}
    stack: list[tuple[UOp, bool]] = [(s, False) for s in reversed(list(operands(u)))]
    while stack:
        x, ready = stack.pop()
        if ready:
            out.append(x)
        elif x not in seen and x not in named and x.op not in _LEAVES:
            seen.add(x)
            if x.op in EFFECTS:
                raise ValueError(f"{x.op} is an effect, not a value of {u.op}")
            stack.append((x, True))
            stack += [(s, False) for s in reversed(list(operands(x)))]
    return tuple(out)

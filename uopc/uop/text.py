"""A graph as text, and text as a graph: one line a node, sources first, the root last.

    p0 = BUFFER f32[33, 1000]
    r0 = RANGE 33 LOOP
    %0 = MUL(r0, 1000)
    %1 = INDEX(p0, %0) : f32
    %2 = LOAD(%1) : f32
    %3 = REDUCE[MAX](%2, r1) : f32

Memories and ranges are called by what they are (p slot, digit axis _instance), constants stand
where they are used, other nodes are numbered in topological order.  The type after the colon is
that of a value which is no index; `#` starts a comment.  Nothing recurses, and nothing is
evaluated: a text holds ops, records and names only.  It has neither ids nor origins, so equal
graphs have equal texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.uop.node import UOp, toposort, where_from
from uopc.uop.ops import Ops, RangeArg
from uopc.uop.records import (
    arg_text,
    leaf_name,
    memory_name,
    parse_arg,
    parse_const,
    parse_type,
    range_name,
    short_const,
    type_text,
)

_LEAVES = (Ops.BUFFER, Ops.ALLOC, Ops.RANGE)
_LINE = re.compile(r"(%\d+|[A-Za-z][\w.]*) = ([A-Z]\w*)(.*?)(?: : (\w+(?:\[[\d, ]*\])?))?")
_BODY = re.compile(r"(?:\[(.*)\]| ([^(]+))?(?:\(([^()]*)\))?")


def show(root: UOp) -> str:
    """The text of a graph; `parse` gives the same node back."""
    names: dict[UOp, str] = {}
    taken: set[str] = set()
    lines: list[str] = []
    numbered = 0
    for u in toposort(root):
        if u.op is Ops.CONST and not u.src and u is not root:
            names[u] = _operand(u)
            continue
        if u.op in _LEAVES and u.arg is not None:
            name = _free_name(leaf_name(u.op, u.arg) or u.op.name.lower(), taken)
        else:
            name = f"%{numbered}"
            numbered += 1
        names[u] = name
        lines.append(f"{name} = {_body(u, name, [names[s] for s in u.src])}")
    return "\n".join(lines)


def _operand(u: UOp) -> str:
    text = arg_text(u.op, u.arg, "")
    assert text is not None
    return text


def _free_name(wanted: str, taken: set[str]) -> str:
    name, n = wanted, 2
    while name in taken:
        name, n = f"{wanted}.{n}", n + 1
    taken.add(name)
    return name


def _body(u: UOp, name: str, operands: list[str]) -> str:
    arg = arg_text(u.op, u.arg, name)
    text = u.op.name
    if u.op in (*_LEAVES, Ops.CONST, Ops.IOTA) and not operands:
        return text if arg is None else f"{text} {arg}"
    text += ("" if arg is None else f"[{arg}]") + f"({', '.join(operands)})"
    if u.dtype is dtypes.void or (u.dtype is dtypes.index and not u.shape):
        return text
    return f"{text} : {type_text(u.dtype, u.shape)}"


def parse(text: str) -> UOp:
    """The node that the last line names.

    Raises UsageError, with the line's number and text, for what is no line of a graph, a name that
    is not defined above, a type that differs from what the op gives, or sources that do not fit.
    """
    nodes: dict[str, UOp] = {}
    last: UOp | None = None
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0].strip()
        if not code:
            continue
        try:
            name, last = _parse_line(code, nodes)
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            why = f"{e} is not known" if isinstance(e, KeyError) else str(e)
            raise UsageError(
                f"line {number} of a graph's text: {why}. The line: {line.strip()}"
            ) from None
        if name in nodes:
            raise UsageError(
                f"line {number} of a graph's text: {name} is defined twice. "
                f"The line: {line.strip()}"
            )
        nodes[name] = last
    if last is None:
        raise UsageError(
            "a graph's text has at least one line like `%0 = ADD(r0, 1)`; this one has none"
        )
    return last


def _parse_line(code: str, nodes: dict[str, UOp]) -> tuple[str, UOp]:
    m = _LINE.fullmatch(code)
    if m is None:
        raise ValueError("a line reads like `%0 = ADD(r0, 1)`")
    name, op_name, rest, kind = m.groups()
    body = _BODY.fullmatch(rest)
    if op_name not in Ops.__members__ or body is None:
        raise ValueError(f"{op_name + rest!r} is no op with its arg and sources")
    op = Ops[op_name]
    arg_of = body[1] if body[1] is not None else body[2]
    src = tuple([_source(t, nodes) for t in body[3].split(", ")]) if body[3] else ()
    u = UOp(op, src, None if arg_of is None else parse_arg(op, arg_of, name))
    if kind is not None and parse_type(kind) != (u.dtype, u.shape):
        raise ValueError(f"the type is {type_text(u.dtype, u.shape)}, the line says {kind}")
    return name, u


def _source(text: str, nodes: dict[str, UOp]) -> UOp:
    if (found := nodes.get(text)) is not None:
        return found
    try:
        return UOp(Ops.CONST, (), parse_const(text))
    except ValueError:
        raise ValueError(f"{text} is neither defined above nor a constant") from None


# ---- messages
_INFIX = {
    **{Ops.MUL: ("*", 8), Ops.IDIV: ("//", 8), Ops.DIV: ("/", 8), Ops.MOD: ("%", 8)},
    **{Ops.ADD: ("+", 7), Ops.SUB: ("-", 7), Ops.SHL: ("<<", 6), Ops.SHR: (">>", 6)},
    **{Ops.AND: ("&", 5), Ops.XOR: ("^", 4), Ops.OR: ("|", 3)},
    **{Ops.LT: ("<", 2), Ops.EQ: ("==", 2), Ops.NE: ("!=", 2)},
}
_ASSOCIATIVE = (Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR)
_ATOM, _SIGN = 10, 9


def index_text(u: UOp, limit: int = 160, name: Callable[[RangeArg], str] = range_name) -> str:
    """An expression as in Python, for messages: 1000*g0 + 4*l1 < 33, p1[r0].

    A part of more than `limit` characters becomes an ellipsis: deep and shared graphs stay short.
    name: what ranges are called.
    """
    done: dict[UOp, tuple[str, int]] = {}
    for x in toposort(u):
        text, binding = _infix(x, [done[s] for s in x.src], name)
        done[x] = (text, binding) if len(text) <= limit else ("...", _ATOM)
    return done[u][0]


def scope_text(scope: UOp) -> str:
    """r0, the IF at kernel.py:12, the role producer: an opened scope, for messages."""
    if scope.op is Ops.ROLE:
        return f"the role {scope.arg.name}"
    return f"the IF at {where_from(scope)}" if scope.op is Ops.IF else range_name(scope.arg)


def _infix(
    u: UOp, parts: list[tuple[str, int]], name: Callable[[RangeArg], str]
) -> tuple[str, int]:
    op = u.op
    if op is Ops.CONST:
        text = short_const(u.arg)
        return text, _SIGN if text.startswith("-") else _ATOM
    if op is Ops.RANGE:
        return name(u.arg), _ATOM
    if op in (Ops.BUFFER, Ops.ALLOC):
        return memory_name(u.arg), _ATOM
    if op is Ops.AFTER:
        return parts[0]
    if op in (Ops.INDEX, Ops.SEGMENT):
        return f"{parts[0][0]}[{parts[1][0]}]", _ATOM
    if op is Ops.LOAD:
        return parts[0]
    if op in _INFIX:
        sign, binding = _INFIX[op]
        left = _wrap(parts[0], binding)
        right = _wrap(parts[1], binding + (op not in _ASSOCIATIVE or u.src[1].op is not op))
        return (
            f"{left}{sign}{right}" if binding == 8 and sign == "*" else f"{left} {sign} {right}",
            binding,
        )
    if op in (Ops.NEG, Ops.NOT):
        return ("-" if op is Ops.NEG else "~") + _wrap(parts[0], _ATOM), _SIGN
    head = str(u.arg) if op in (Ops.CAST, Ops.BITCAST) else op.name.lower()
    return f"{head}({', '.join(p[0] for p in parts)})", _ATOM


def _wrap(part: tuple[str, int], binding: int) -> str:
    return part[0] if part[1] >= binding else f"({part[0]})"

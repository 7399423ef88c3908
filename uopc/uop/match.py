"""Patterns, named rules, and the driver that rewrites a graph with them to a fixed point.

A pattern is written with the IR's own operators on pattern variables:

    x, c, d = var("x"), const("c"), const("d")
    Rule("mod-of-mod", (x % c) % d, lambda x, c, d: x % d if divides(d, c) else None, INTS)

Operands of commutative ops match in either order, so nobody writes the mirror image.  A rule says
what it holds for: INDEX (mathematical integers), WRAP (data integers), FLOAT, BOOL, EFFECT (no
value).  Patterns are compiled once to flat lists of steps; a node finds them in a table by its op,
its dtype and the ops of its sources.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Flag, auto
from itertools import product
from typing import TypeAlias

from uopc.dtype import DType, Kind, dtypes, to_bits
from uopc.errors import CompilerError
from uopc.uop.node import UOp, inherit, toposort
from uopc.uop.ops import COMMUTATIVE, COMPARE, Ops


class Holds(Flag):
    """The kinds of values that a rule, or a pattern variable, is good for."""

    INDEX = auto()
    WRAP = auto()
    FLOAT = auto()
    BOOL = auto()
    EFFECT = auto()


INDEX, WRAP, FLOAT, BOOL = Holds.INDEX, Holds.WRAP, Holds.FLOAT, Holds.BOOL
EFFECT = Holds.EFFECT
INTS = INDEX | WRAP
ANY = INTS | FLOAT | BOOL

_HOLDS = {
    Kind.INDEX: INDEX,
    Kind.INT: WRAP,
    Kind.UINT: WRAP,
    Kind.FLOAT: FLOAT,
    Kind.BOOL: BOOL,
    Kind.VOID: EFFECT,
}
_OF_DTYPE = {d: _HOLDS[d.kind] for d in vars(dtypes).values() if isinstance(d, DType)}

Literal: TypeAlias = "bool | int | float"
Operand: TypeAlias = "Pattern | bool | int | float"


# ---- patterns
class Pattern:
    """A node to match: a variable (op None), a constant, or an op over patterns.

    Attributes: op; src; name under which the node is bound, "" for none; kinds that the node's
    dtype must be of; literal, the number that a CONST must be.
    """

    __slots__ = ("kinds", "literal", "name", "op", "src")

    def __init__(
        self,
        op: Ops | None,
        src: tuple[Pattern, ...] = (),
        name: str = "",
        kinds: Holds = ANY,
        literal: Literal | None = None,
    ) -> None:
        self.op, self.src, self.name, self.kinds, self.literal = op, src, name, kinds, literal

    def named(self, name: str) -> Pattern:
        """The same pattern, whose node is bound to `name`."""
        return Pattern(self.op, self.src, name, self.kinds, self.literal)

    def __add__(self, other: Operand) -> Pattern:
        return node(Ops.ADD, self, other)

    def __sub__(self, other: Operand) -> Pattern:
        return node(Ops.SUB, self, other)

    def __rsub__(self, other: Operand) -> Pattern:
        return node(Ops.SUB, other, self)

    def __mul__(self, other: Operand) -> Pattern:
        return node(Ops.MUL, self, other)

    def __truediv__(self, other: Operand) -> Pattern:
        return node(Ops.DIV, self, other)

    def __floordiv__(self, other: Operand) -> Pattern:
        return node(Ops.IDIV, self, other)

    def __rfloordiv__(self, other: Operand) -> Pattern:
        return node(Ops.IDIV, other, self)

    def __mod__(self, other: Operand) -> Pattern:
        return node(Ops.MOD, self, other)

    def __rmod__(self, other: Operand) -> Pattern:
        return node(Ops.MOD, other, self)

    def __and__(self, other: Operand) -> Pattern:
        return node(Ops.AND, self, other)

    def __or__(self, other: Operand) -> Pattern:
        return node(Ops.OR, self, other)

    def __xor__(self, other: Operand) -> Pattern:
        return node(Ops.XOR, self, other)

    def __lshift__(self, other: Operand) -> Pattern:
        return node(Ops.SHL, self, other)

    def __rlshift__(self, other: Operand) -> Pattern:
        return node(Ops.SHL, other, self)

    def __rshift__(self, other: Operand) -> Pattern:
        return node(Ops.SHR, self, other)

    def __rrshift__(self, other: Operand) -> Pattern:
        return node(Ops.SHR, other, self)

    def __lt__(self, other: Operand) -> Pattern:
        return node(Ops.LT, self, other)

    def __gt__(self, other: Operand) -> Pattern:
        return node(Ops.LT, other, self)

    def __neg__(self) -> Pattern:
        return node(Ops.NEG, self)

    def __invert__(self) -> Pattern:
        return node(Ops.NOT, self)

    def eq(self, other: Operand) -> Pattern:
        return node(Ops.EQ, self, other)

    def ne(self, other: Operand) -> Pattern:
        return node(Ops.NE, self, other)

    def maximum(self, other: Operand) -> Pattern:
        return node(Ops.MAX, self, other)

    def minimum(self, other: Operand) -> Pattern:
        return node(Ops.MIN, self, other)

    def where(self, x: Operand, y: Operand) -> Pattern:
        return node(Ops.WHERE, self, x, y)

    def cast(self) -> Pattern:
        """A CAST to any dtype; name it to read which."""
        return node(Ops.CAST, self)

    def bitcast(self) -> Pattern:
        return node(Ops.BITCAST, self)


def var(name: str, kinds: Holds = ANY) -> Pattern:
    """Any node whose dtype is of these kinds; the same name twice means the same node twice."""
    return Pattern(None, (), name, kinds)


def const(name: str, kinds: Holds = ANY) -> Pattern:
    """Any CONST of these kinds, bound as a node."""
    return Pattern(Ops.CONST, (), name, kinds)


def node(op: Ops, *src: Operand) -> Pattern:
    """An op over patterns; a Python number stands for the CONST of that number.

    An int stands for integer constants, a float for floats (0.0 is not -0.0), a bool for bools.
    """
    return Pattern(op, tuple([s if isinstance(s, Pattern) else _literal(s) for s in src]))


def _literal(value: Literal) -> Pattern:
    is_float, is_bool = isinstance(value, float), isinstance(value, bool)
    return Pattern(Ops.CONST, (), "", FLOAT if is_float else BOOL if is_bool else INTS, value)


# ---- rules
@dataclass(frozen=True, eq=False)
class Rule:
    """`pattern` becomes `build(...)`, which takes the bound names; None means it does not apply.

    Attributes: name, unique in a set; holds: kinds of the matched value (of its operands for
    comparisons); needs: a condition on the matched nodes that have sources, root first.
    """

    name: str
    pattern: Pattern
    build: Callable[..., UOp | None]
    holds: Holds = INTS
    needs: Callable[..., bool] | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One rewriting: the rule's name, the node before, the node after."""

    rule: str
    before: UOp
    after: UOp


Attempt: TypeAlias = Callable[[UOp], UOp | None]


def _orientations(p: Pattern) -> Iterator[Pattern]:
    """The pattern with the operands of commutative ops in every order that makes a difference.

    Two plain variables are not exchanged: whoever writes `x + y` sees the operands as they stand.
    """
    for src in product(*[tuple(_orientations(s)) for s in p.src]):
        yield Pattern(p.op, src, p.name, p.kinds, p.literal)
        if p.op in COMMUTATIVE and not all(s.op is None for s in src):
            yield Pattern(p.op, src[::-1], p.name, p.kinds, p.literal)


def _test(p: Pattern) -> Callable[[UOp], bool] | None:
    """What a node must satisfy beyond its op."""
    value, kinds = p.literal, p.kinds
    if value is not None:
        bits = {d: to_bits(value, d) for d, k in _OF_DTYPE.items() if k & kinds}
        return lambda u: bits.get(u.dtype) == u.arg.bits
    if kinds != ANY:
        allowed = frozenset(d for d, k in _OF_DTYPE.items() if k & kinds)
        return lambda u: u.dtype in allowed
    return None


_Move: TypeAlias = "tuple[int, int, Ops | None, int, Callable[[UOp], bool] | None]"


def _compile(p: Pattern, rule: Rule) -> Attempt:
    """A function that matches one orientation: a walk over flat steps, no recursion.

    A step is (slot of the parent, which source, op, slot of the node it must be or -1, test).
    """
    steps: list[_Move] = []
    patterns, slot_of = [p], {p.name: 0} if p.name else {}
    at = 0
    while at < len(patterns):
        for i, s in enumerate(patterns[at].src):
            same = slot_of.get(s.name, -1) if s.name else -1
            if s.name and same < 0:
                slot_of[s.name] = len(patterns)
            steps.append((at, i, s.op, same, _test(s)))
            patterns.append(s)
        at += 1
    code = rule.build.__code__
    names = code.co_varnames[: code.co_argcount]
    if unbound := [n for n in names if n not in slot_of]:
        raise CompilerError(f"rule {rule.name}: its pattern does not bind {', '.join(unbound)}")
    args = [slot_of[n] for n in names]
    inner = [k for k, q in enumerate(patterns) if q.src]
    moves, build, needs = tuple(steps), rule.build, rule.needs

    def attempt(u: UOp) -> UOp | None:
        nodes = [u]
        for parent, i, op, same, test in moves:
            n = nodes[parent].src[i]
            if (
                (op is not None and n.op is not op)
                or (same >= 0 and n is not nodes[same])
                or (test is not None and not test(n))
            ):
                return None
            nodes.append(n)
        if needs is not None and not needs(*[nodes[k] for k in inner]):
            return None
        return build(*[nodes[k] for k in args])

    return attempt


class Rules:
    """A set of rules, in the order in which they are tried.

    Raises CompilerError where two rules share a name, or a rule uses a name it does not bind.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        names = [r.name for r in self.rules]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise CompilerError(f"rules share the names {', '.join(twice)}")
        self._by_op: dict[Ops, list[tuple[Pattern, Rule, Attempt]]] = {}
        for rule in self.rules:
            for p in _orientations(rule.pattern):
                if p.op is None or not p.src:
                    raise CompilerError(f"rule {rule.name}: a pattern is an op over operands")
                self._by_op.setdefault(p.op, []).append((p, rule, _compile(p, rule)))
        #: candidates by what a node looks like, found when such a node is first met
        self._found: dict[tuple[object, ...], tuple[tuple[str, Attempt], ...]] = {}

    def candidates(self, u: UOp) -> tuple[tuple[str, Attempt], ...]:
        """Names and matchers of the rules that u's op, dtype and sources' ops leave possible."""
        src = u.src
        n = len(src)
        shape: tuple[object, ...]
        if n == 2:
            a, b = src
            shape = (u.op, a.dtype, a.op, b.op, a is b)
        elif n == 1:
            shape = (u.op, u.dtype, src[0].op, src[0].dtype)
        elif n == 3:
            a, b, c = src
            shape = (u.op, u.dtype, a.op, b.op, c.op, b is c)
        else:
            return ()
        found = self._found.get(shape)
        if found is None:
            found = self._found[shape] = self._select(u)
        return found

    def _select(self, u: UOp) -> tuple[tuple[str, Attempt], ...]:
        kind = _OF_DTYPE[u.src[0].dtype if u.op in COMPARE else u.dtype]
        return tuple(
            (rule.name, attempt)
            for p, rule, attempt in self._by_op.get(u.op, ())
            if kind & rule.holds and len(p.src) == len(u.src) and _may_match(p, u)
        )

    def first(self, u: UOp) -> tuple[str, UOp] | None:
        """The first rule that changes u, and what u becomes."""
        for name, attempt in self.candidates(u):
            new = attempt(u)
            if new is not None and new is not u:
                return name, _checked(name, u, new)
        return None


def _may_match(p: Pattern, u: UOp) -> bool:
    """Only what `Rules.candidates` has in its key may be read here."""
    if any(q.op is not None and q.op is not s.op for q, s in zip(p.src, u.src, strict=True)):
        return False
    if len(p.src) == 2 and p.src[0].name and p.src[0].name == p.src[1].name:
        return u.src[0] is u.src[1]
    if len(p.src) == 3 and p.src[1].name and p.src[1].name == p.src[2].name:
        return u.src[1] is u.src[2]
    return True


def _checked(name: str, old: UOp, new: UOp) -> UOp:
    """`new` with the shape of `old` (a scalar that replaces a shaped value is repeated)."""
    if new.dtype is not old.dtype:
        raise CompilerError(f"rule {name} turned {old.dtype} into {new.dtype}")
    if new.shape != old.shape:
        new = new.expand(old.shape)
    return inherit(new, old)


# ---- the driver
#: rewritings allowed for any graph, and for each of its nodes: far above what rules that end need
_FREE_STEPS, _STEPS_PER_NODE = 10_000, 200


def rewrite(root: UOp, rules: Rules, trace: list[Step] | None = None) -> UOp:
    """Apply the rules everywhere, sources first, until none applies.

    Each node is rewritten once; the result is a fixed point.  `trace` collects a Step for every
    rewriting.  Raises CompilerError, naming the rules, where they do not come to an end.
    """
    done: dict[UOp, UOp] = {}  # node: its final form
    became: dict[UOp, UOp] = {}  # node: what its new sources, or a rule, turned it into
    recent: deque[str] = deque(maxlen=32)
    count, limit = 0, _FREE_STEPS
    stack = toposort(root)
    stack.reverse()
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        if u in became:
            if became[u] not in done:  # it was finished above u, unless it needs u itself
                raise _endless(recent)
            done[u] = done[became[u]]
            stack.pop()
            continue
        src = u.src
        if not src:
            done[u] = u
            stack.pop()
            continue
        todo = [s for s in src if s not in done]
        if todo:
            for s in todo:
                if s.src:
                    inherit(s, u)
            stack.extend(todo)
            continue
        new_src = tuple([done[s] for s in src])
        if new_src != src:
            new = inherit(UOp(u.op, new_src, u.arg), u)
        else:
            found = rules.first(u)
            if found is None:
                done[u] = u
                stack.pop()
                continue
            name, new = found
            recent.append(name)
            if trace is not None:
                trace.append(Step(name, u, new))
            count += 1
            if count > limit:
                limit = _FREE_STEPS + _STEPS_PER_NODE * len(toposort(root))
                if count > limit:
                    raise _endless(recent)
        became[u] = new
        if new not in done:
            stack.append(new)
    return done[root]


def _endless(recent: Iterable[str]) -> CompilerError:
    names = ", ".join(dict.fromkeys(recent))
    return CompilerError(f"rewriting does not end; the last rules that applied: {names}")

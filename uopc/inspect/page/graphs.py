"""What a pass did to a graph: its text before and after, compared by structure.

The text of a graph numbers its nodes, so a node more at the top renumbers all that follow; a
comparison of lines would call everything changed.  Here nodes of both graphs are paired, and a line
is

    same     its partner has the same op, arg and type, and their sources are partners too
    changed  it has a partner, and one of these differs
    gone     no partner after the pass
    new      no partner before it

A node whose source merely changed is the same: its source has a partner.  A node that has another
source now is changed.  So a changed arg marks one line, a node put between two others marks itself
and its user.  Instance numbers of ranges and slots of ALLOCs are numbering as well.

How they are paired: equal trees first, the largest first; then down from the roots, along sources
in the same place with the same op; then up again, nodes of the same op on partners.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

#: the number of an earlier line, or a constant as it is written
Operand: TypeAlias = int | str

_LINE = re.compile(r"(?P<name>\S+) = (?P<head>.*?)(?:\((?P<src>[^()]*)\))?(?P<type> : [^()]*)?")
_OP = re.compile(r"\w*")
_NUMBERED = re.compile(r"%\d+")
_INSTANCE = re.compile(r"_\d+$|\.\d+$")
_DIGITS = re.compile(r"\d+(\.\d+)?$")


class Mark(Enum):
    """What a pass did to a line."""

    SAME = "same"
    CHANGED = "changed"
    GONE = "gone"
    NEW = "new"


@dataclass(frozen=True)
class Node:
    """A line: its text, op, label (all but numbering and sources) and operands."""

    text: str
    op: str
    label: str
    operands: tuple[Operand, ...]

    @property
    def sources(self) -> Iterator[int]:
        return (s for s in self.operands if isinstance(s, int))


@dataclass(frozen=True)
class Line:
    """A line of one side: its number in the text, from 0."""

    number: int
    text: str
    mark: Mark


@dataclass(frozen=True)
class Hunk:
    """Lines that stand beside each other: the same ones, or what became of what.

    Of the same ones each line stands beside its partner; else both sides are as long as they are,
    and may hold lines that are the same but stand elsewhere now.
    """

    same: bool
    before: tuple[Line, ...]
    after: tuple[Line, ...]


def parse(text: str) -> tuple[Node, ...]:
    """The nodes of a text, one a line; a line that is none is a node without operands."""
    numbers: dict[str, int] = {}
    nodes = []
    for number, line in enumerate(text.splitlines()):
        m = _LINE.fullmatch(line)
        if m is None:
            nodes.append(Node(line, "", line, ()))
            continue
        name, head, kind = m["name"], m["head"], m["type"] or ""
        op = _op(head)
        operands = m["src"].split(", ") if m["src"] else ()
        made = tuple([numbers.get(operand, operand) for operand in operands])
        nodes.append(Node(line, op, f"{_stem(name, op)} = {head}{kind}", made))
        numbers[name] = number
    return tuple(nodes)


def _op(head: str) -> str:
    m = _OP.match(head)
    return m[0] if m else ""


def _stem(name: str, op: str) -> str:
    """What of a name is no numbering."""
    if _NUMBERED.fullmatch(name):
        return ""
    if op == "RANGE":
        return _INSTANCE.sub("", name)
    return _DIGITS.sub("", name) if op == "ALLOC" else name


def partners(before: Sequence[Node], after: Sequence[Node]) -> dict[int, int]:
    """The line before the pass for each line after it that has one."""
    pairs = _Pairs(before, after)
    pairs.equal_trees()
    pairs.from_roots()
    pairs.on_partners()
    return pairs.of


class _Pairs:
    """A pairing that grows: no line has two partners."""

    def __init__(self, before: Sequence[Node], after: Sequence[Node]) -> None:
        self.before, self.after = before, after
        self.of: dict[int, int] = {}
        self.taken: set[int] = set()

    def equal_trees(self) -> None:
        """Pair what is equal down to its leaves: the last line first, with all below it."""
        numbers: dict[tuple[str, tuple[Operand, ...]], int] = {}
        mine, theirs = _trees(self.after, numbers), _trees(self.before, numbers)
        having: dict[int, list[int]] = {}
        for line, tree in enumerate(theirs):
            having.setdefault(tree, []).append(line)
        for line in range(len(self.after) - 1, -1, -1):
            if line in self.of:
                continue
            candidates = having.get(mine[line], [])
            while candidates and candidates[-1] in self.taken:
                candidates.pop()
            if candidates:
                self._down(line, candidates.pop())

    def from_roots(self) -> None:
        if self.after and self.before:
            self._down(len(self.after) - 1, len(self.before) - 1)

    def on_partners(self) -> None:
        """Pair nodes with equal labels whose sources are partners."""
        free = {
            (node.label, node.operands): line
            for line, node in enumerate(self.before)
            if line not in self.taken and node.operands
        }
        for line, node in enumerate(self.after):
            if line in self.of or not node.operands:
                continue
            found = free.get((node.label, self.as_before(node)))
            if found is not None and found not in self.taken:
                self._pair(line, found)

    def as_before(self, node: Node) -> tuple[Operand, ...]:
        """Operands of a node after the pass as lines before it; -1 for what is new."""
        return tuple([self.of.get(s, -1) if isinstance(s, int) else s for s in node.operands])

    def _pair(self, line: int, other: int) -> None:
        self.of[line] = other
        self.taken.add(other)

    def _down(self, line: int, other: int) -> None:
        """Pair two lines and, along their sources, what has the same op."""
        waiting = [(line, other)]
        while waiting:
            a, b = waiting.pop()
            if a in self.of or b in self.taken or self.after[a].op != self.before[b].op:
                continue
            self._pair(a, b)
            both = zip(self.after[a].operands, self.before[b].operands, strict=False)
            waiting += [(x, y) for x, y in both if isinstance(x, int) and isinstance(y, int)]


def _trees(
    nodes: Sequence[Node], numbers: dict[tuple[str, tuple[Operand, ...]], int]
) -> list[int]:
    """A number for each line; two lines have the same one iff their trees are equal."""
    found: list[int] = []
    for node in nodes:
        operands = tuple([found[s] if isinstance(s, int) else s for s in node.operands])
        found.append(numbers.setdefault((node.label, operands), len(numbers)))
    return found


def compare(before: str, after: str) -> tuple[Hunk, ...]:
    """Both texts in full, as hunks in order."""
    old, new = parse(before), parse(after)
    pairs = _Pairs(old, new)
    pairs.of = partners(old, new)
    same = {
        line: other
        for line, other in pairs.of.items()
        if new[line].label == old[other].label
        and pairs.as_before(new[line]) == old[other].operands
    }
    kept = frozenset(same.values())
    known = frozenset(pairs.of.values())
    left = [
        Line(n, node.text, Mark.SAME if n in kept else Mark.CHANGED if n in known else Mark.GONE)
        for n, node in enumerate(old)
    ]
    right = [
        Line(n, node.text, Mark.SAME if n in same else Mark.CHANGED if n in pairs.of else Mark.NEW)
        for n, node in enumerate(new)
    ]
    return tuple(_hunks(left, right, _in_order(same)))


def _in_order(same: dict[int, int]) -> list[tuple[int, int]]:
    """The most (before, after) pairs that stand in the same order on both sides."""
    ends: list[int] = []  # the smallest last line of an ascending run of each length
    runs: list[tuple[int, int]] = []
    for line in sorted(same):
        other = same[line]
        length = bisect_left(ends, other)
        ends[length : length + 1] = [other]
        runs.append((length, line))
    wanted = len(ends) - 1
    found: list[tuple[int, int]] = []
    for length, line in reversed(runs):
        if length == wanted and (not found or same[line] < found[-1][0]):
            found.append((same[line], line))
            wanted -= 1
    return found[::-1]


def _hunks(
    left: Sequence[Line], right: Sequence[Line], beside: Sequence[tuple[int, int]]
) -> Iterator[Hunk]:
    i = j = 0
    run: list[tuple[int, int]] = []
    for a, b in [*beside, (len(left), len(right))]:
        if run and (a, b) != (i, j):
            yield _run(left, right, run)
            run = []
        if (a, b) != (i, j):
            yield Hunk(False, tuple(left[i:a]), tuple(right[j:b]))
        run.append((a, b))
        i, j = a + 1, b + 1
    if run[:-1]:
        yield _run(left, right, run[:-1])


def _run(left: Sequence[Line], right: Sequence[Line], run: list[tuple[int, int]]) -> Hunk:
    return Hunk(True, tuple(left[a] for a, _ in run), tuple(right[b] for _, b in run))

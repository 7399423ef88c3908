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

How they are paired: equal trees first, the largest first; then equal nodes on partners, from the
leaves up; then down from the roots, sources in the same place with the same op; then up again, the
most alike of the same op that share a partner.
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
    pairs.on_partners()
    pairs.from_roots()
    pairs.on_a_partner()
    return pairs.of


class _Pairs:
    """A pairing that grows: no line has two partners."""

    def __init__(self, before: Sequence[Node], after: Sequence[Node]) -> None:
        self.before, self.after = before, after
        self.of: dict[int, int] = {}
        self.taken: set[int] = set()

    def equal_trees(self) -> None:
        """Pair what is equal down to its leaves, the deepest first, with all below it.

        Of several copies of one tree the first is its partner, and no copy takes a part of it.
        """
        numbers: dict[tuple[str, tuple[Operand, ...]], int] = {}
        mine, theirs = _trees(self.after, numbers), _trees(self.before, numbers)
        having: dict[int, list[int]] = {}
        for line, tree in enumerate(theirs):
            having.setdefault(tree, []).append(line)
        depths = _depths(self.after)
        for line in sorted(range(len(self.after)), key=lambda line: (-depths[line], line)):
            if line in self.of:
                continue
            for other in having.get(mine[line], ()):
                if other not in self.taken and self._fits(line, other):
                    self._down(line, other)
                    break

    def _fits(self, line: int, other: int) -> bool:
        """Do two equal trees contradict no pair there is?"""
        waiting, seen = [(line, other)], {line}
        while waiting:
            a, b = waiting.pop()
            if self.of.get(a, b) != b or (a not in self.of and b in self.taken):
                return False
            if a in self.of:
                continue
            for x, y in zip(self.after[a].sources, self.before[b].sources, strict=True):
                if x not in seen:
                    seen.add(x)
                    waiting.append((x, y))
        return True

    def from_roots(self) -> None:
        """Pair the roots and, below them, sources in the same place."""
        if self.after and self.before:
            self._down(len(self.after) - 1, len(self.before) - 1)

    def on_partners(self) -> None:
        """Pair nodes of equal labels whose sources are partners, from the leaves up."""
        free = {
            (node.label, node.operands): line
            for line, node in enumerate(self.before)
            if line not in self.taken and node.operands
        }
        for line, node in enumerate(self.after):
            if line not in self.of and node.operands:
                found = free.get((node.label, self.as_before(node)))
                if found is not None:
                    self._down(line, found)

    def on_a_partner(self) -> None:
        """Pair what is left with the most alike of its op that has a partner in one place."""
        users: dict[int, list[int]] = {}
        for line, node in enumerate(self.before):
            for source in dict.fromkeys(node.sources):
                users.setdefault(source, []).append(line)
        for line, node in enumerate(self.after):
            if line in self.of:
                continue
            mine = self.as_before(node)
            shared = [users.get(s, []) for s in mine if isinstance(s, int) and s >= 0]
            best, most = -1, 0
            for other in min(shared, key=len, default=[]):
                theirs = self.before[other]
                if other in self.taken or theirs.op != node.op:
                    continue
                alike = sum(a == b for a, b in zip(mine, theirs.operands, strict=False))
                score = 2 * alike + (theirs.label == node.label)
                if alike and score > most:
                    best, most = other, score
            if best >= 0:
                self._down(line, best)

    def as_before(self, node: Node) -> tuple[Operand, ...]:
        """Operands of a node after the pass as lines before it; -1 for what is new."""
        return tuple([self.of.get(s, -1) if isinstance(s, int) else s for s in node.operands])

    def _down(self, line: int, other: int) -> None:
        """Pair two lines and, along their sources, what has the same op."""
        waiting = [(line, other)]
        while waiting:
            a, b = waiting.pop()
            if a in self.of or b in self.taken or self.after[a].op != self.before[b].op:
                continue
            self.of[a] = b
            self.taken.add(b)
            both = zip(self.after[a].operands, self.before[b].operands, strict=False)
            waiting += [(x, y) for x, y in both if isinstance(x, int) and isinstance(y, int)]


def _trees(nodes: Sequence[Node], numbers: dict[tuple[str, tuple[Operand, ...]], int]) -> list[int]:
    """A number for each line; two lines have the same one iff their trees are equal."""
    found: list[int] = []
    for node in nodes:
        operands = tuple([found[s] if isinstance(s, int) else s for s in node.operands])
        found.append(numbers.setdefault((node.label, operands), len(numbers)))
    return found


def _depths(nodes: Sequence[Node]) -> list[int]:
    """How far each line is from its farthest leaf."""
    found: list[int] = []
    for node in nodes:
        found.append(max((found[s] + 1 for s in node.sources), default=0))
    return found


def compare(before: str, after: str) -> tuple[Hunk, ...]:
    """Both texts in full, as hunks in order."""
    old, new = parse(before), parse(after)
    pairs = _Pairs(old, new)
    pairs.of = partners(old, new)
    same = {
        line: other
        for line, other in pairs.of.items()
        if new[line].label == old[other].label and pairs.as_before(new[line]) == old[other].operands
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

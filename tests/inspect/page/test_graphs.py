"""Two graphs are compared by structure: numbering is no change, and a change marks its own line."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inspect.sample import matmul, rows, strided
from uopc.inspect.page.graphs import Hunk, Line, Mark, compare, parse, partners

BEFORE = """\
p0 = BUFFER f32[64]
r0 = RANGE 8 LOOP
%0 = MUL(r0, 8)
r1 = RANGE 8 REDUCE
%1 = ADD(%0, r1)
%2 = INDEX(p0, %1) : f32
%3 = LOAD(%2) : f32
%4 = REDUCE[ADD](%3, r1) : f32
%5 = SINK(%4)"""


def marks(hunks: tuple[Hunk, ...]) -> tuple[list[str], list[str]]:
    """The lines before and after that are not the same, with the first letter of their mark."""
    left = [line for h in hunks for line in h.before if line.mark is not Mark.SAME]
    right = [line for h in hunks for line in h.after if line.mark is not Mark.SAME]
    old, new = ([f"{line.mark.value} {line.text}" for line in side] for side in (left, right))
    return old, new


def renumbered(text: str, by: int) -> str:
    """The same graph behind `by` other nodes."""
    words = text.replace("(", "( ").replace(",", " ,").replace(")", " )").split(" ")
    moved = []
    for word in words:
        head, _, tail = word.rpartition("\n")
        if tail.startswith("%"):
            tail = f"%{int(tail[1:]) + by}"
        moved.append(f"{head}\n{tail}" if "\n" in word else tail)
    return " ".join(moved).replace("( ", "(").replace(" ,", ",").replace(" )", ")")


# ---- what a line is
def test_parse_takes_lines_apart() -> None:
    nodes = parse(BEFORE)
    assert nodes[0].label == "p0 = BUFFER f32[64]" and nodes[0].operands == ()
    assert (nodes[2].op, nodes[2].label, nodes[2].operands) == ("MUL", " = MUL", (1, "8"))
    assert (nodes[5].label, nodes[5].operands) == (" = INDEX : f32", (0, 4))
    assert (nodes[7].label, nodes[7].operands) == (" = REDUCE[ADD] : f32", (6, 3))


def test_lines_that_are_no_nodes_are_compared_as_they_are() -> None:
    hunks = compare("a plain line\nanother", "a plain line\na third")
    assert marks(hunks) == (["changed another"], ["changed a third"])
    assert [line.text for line in hunks[0].before] == ["a plain line"]


# ---- what changed
def test_the_same_text_is_one_hunk() -> None:
    (hunk,) = compare(BEFORE, BEFORE)
    assert hunk.same and len(hunk.before) == len(hunk.after) == 9


def test_renumbered_nodes_are_not_marked() -> None:
    inserted = "p9 = BUFFER f32[4]\n%0 = INDEX(p9, 3) : f32\n%1 = LOAD(%0) : f32\n"
    after = inserted + renumbered(BEFORE, 2).replace("SINK(%6)", "SINK(%6, %1)")
    left, right = marks(compare(BEFORE, after))
    assert left == ["changed %5 = SINK(%4)"]
    assert right == [
        "new p9 = BUFFER f32[4]",
        "new %0 = INDEX(p9, 3) : f32",
        "new %1 = LOAD(%0) : f32",
        "changed %7 = SINK(%6, %1)",
    ]


def test_renumbered_ranges_and_slots_are_not_marked() -> None:
    before = "u1_1 = RANGE 4 UPCAST\nacc5 = ALLOC REG f32[4]\n%0 = INDEX(acc5, u1_1) : f32"
    after = "u1_7 = RANGE 4 UPCAST\nacc2 = ALLOC REG f32[4]\n%0 = INDEX(acc2, u1_7) : f32"
    assert marks(compare(before, after)) == ([], [])


def test_a_buffers_slot_is_its_meaning() -> None:
    left, right = marks(compare(BEFORE, BEFORE.replace("p0", "p1")))
    assert left == ["changed p0 = BUFFER f32[64]"] and right == ["changed p1 = BUFFER f32[64]"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%0 = MUL(r0, 8)", "%0 = MUL(r0, 16)"),
        ("r1 = RANGE 8 REDUCE", "r1 = RANGE 4 REDUCE"),
        ("%4 = REDUCE[ADD](%3, r1) : f32", "%4 = REDUCE[MAX](%3, r1) : f32"),
        ("%3 = LOAD(%2) : f32", "%3 = LOAD(%2, true) : f32"),
        ("%2 = INDEX(p0, %1) : f32", "%2 = INDEX(p0, %0) : f32"),
    ],
)
def test_a_change_marks_its_line_and_not_what_uses_it(old: str, new: str) -> None:
    left, right = marks(compare(BEFORE, BEFORE.replace(old, new)))
    assert (left[:1], right) == ([f"changed {old}"], [f"changed {new}"])
    assert left[1:] in ([], ["gone %1 = ADD(%0, r1)"])


def test_a_node_between_two_marks_itself_and_its_user() -> None:
    after = BEFORE.replace("%4 = R", "%9 = NEG(%3) : f32\n%4 = R").replace("D](%3", "D](%9")
    left, right = marks(compare(BEFORE, after))
    assert left == ["changed %4 = REDUCE[ADD](%3, r1) : f32"]
    assert right == ["new %9 = NEG(%3) : f32", "changed %4 = REDUCE[ADD](%9, r1) : f32"]


def test_of_two_copies_the_first_is_the_partner() -> None:
    before = "r0 = RANGE 4 LOOP\n%0 = MUL(r0, 2)\n%1 = NEG(%0)\n%2 = SINK(%1)"
    copy = "r0_1 = RANGE 4 LOOP\n%5 = MUL(r0_1, 2)\n%6 = NEG(%5)\n%7 = SINK(%1, %6)"
    left, right = marks(compare(before, before.rpartition("\n")[0] + "\n" + copy))
    assert left == ["changed %2 = SINK(%1)"]
    assert [line.split()[0] for line in right] == ["new", "new", "new", "changed"]


# ---- whatever the graphs are
@st.composite
def graphs(draw: st.DrawFn) -> str:
    """A graph of additions over a few leaves."""
    leaves = [f"r{n} = RANGE 4 LOOP" for n in range(draw(st.integers(1, 3)))]
    names = [line.split()[0] for line in leaves] + ["7"]
    lines = list(leaves)
    for n in range(draw(st.integers(0, 12))):
        op = draw(st.sampled_from(["ADD", "MUL", "NEG"]))
        count = 1 if op == "NEG" else 2
        operands = [draw(st.sampled_from(names)) for _ in range(count)]
        lines.append(f"%{n} = {op}({', '.join(operands)})")
        names.append(f"%{n}")
    return "\n".join(lines)


@given(graphs(), graphs())
def test_hunks_are_both_texts_and_pairs_are_pairs(before: str, after: str) -> None:
    hunks = compare(before, after)
    assert [line.text for h in hunks for line in h.before] == before.splitlines()
    assert [line.text for h in hunks for line in h.after] == after.splitlines()
    pairs = partners(parse(before), parse(after))
    assert len(set(pairs.values())) == len(pairs)
    left, right = ([line for h in hunks for line in side(h)] for side in (_before, _after))
    for mark in (Mark.SAME, Mark.CHANGED):
        assert sum(x.mark is mark for x in left) == sum(x.mark is mark for x in right)
    for hunk in hunks:
        assert not hunk.same or len(hunk.before) == len(hunk.after)
        assert not hunk.same or {x.mark for x in (*hunk.before, *hunk.after)} == {Mark.SAME}
    assert all(a.same != b.same or not a.same for a, b in pairwise(hunks))


@given(graphs())
def test_a_graph_equals_itself(text: str) -> None:
    assert all(h.same for h in compare(text, text))


def _before(hunk: Hunk) -> tuple[Line, ...]:
    return hunk.before


def _after(hunk: Hunk) -> tuple[Line, ...]:
    return hunk.after


# ---- real ones
def test_wide_accesses_leave_most_of_a_kernel_alone() -> None:
    passes = {p.name: p.text for p in rows().launches[0].passes}
    left, right = marks(compare(passes["effects"], passes["vectorise"]))
    lines = len(passes["vectorise"].splitlines())
    assert len(left) < lines / 8 and len(right) < lines / 8
    assert any("STORE[4]" in line for line in right)


@pytest.mark.parametrize("sample", [rows, matmul, strided])
def test_every_pass_of_a_kernel(sample: object) -> None:
    assert callable(sample)
    for old, new in pairwise(sample().launches[0].passes):
        hunks = compare(old.text, new.text)
        assert "\n".join(line.text for h in hunks for line in h.after) == new.text
        assert (marks(hunks) == ([], [])) or old.text != new.text


def test_two_thousand_lines_are_quick() -> None:
    lines = ["r0 = RANGE 4 LOOP"] + [f"%{n} = ADD(%{n - 1}, r0)" for n in range(1, 2000)]
    lines[1] = "%1 = ADD(r0, r0)"
    changed = [*lines]
    changed[1000] = changed[1000].replace("r0", "5")
    start = time.perf_counter()
    left, right = marks(compare("\n".join(lines), "\n".join(changed)))
    assert time.perf_counter() - start < 2
    assert (len(left), len(right)) == (1, 1)

"""The tree does what was written, in the order in which it was written.

Random programs of one thread: Python's run, the oracle's, and a run of the tree, where a name is
computed where it stands and everything else where the text that mentions it stands.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tests.cursor_programs import program
from uopc.kernel import Do, Item, Let, Scope
from uopc.passes.linearize import linearize
from uopc.uop.node import UOp, memory
from uopc.uop.numbers import fold_op
from uopc.uop.ops import ELEMENTWISE, Ops
from uopc.uop.oracle import run
from uopc.uop.spec import Stage, check


class Reader:
    """Runs a tree of one thread."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        self.cells: dict[tuple[UOp, int], int] = {}
        self.names: dict[UOp, int] = {}
        self.run(items)

    def run(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Scope):
                self.scope(item)
            elif isinstance(item, Let):
                self.names[item.value] = self.compute(item.value)
            elif isinstance(item, Do) and item.effect.op is Ops.STORE:
                to, value = item.effect.src
                self.cells[self.place(to)] = self.value(value)

    def scope(self, scope: Scope) -> None:
        if scope.opener.op is Ops.IF:
            if self.value(scope.opener.src[0]):
                self.run(scope.items)
            return
        for i in range(scope.opener.arg.size):
            self.names[scope.opener] = i
            self.run(scope.items)

    def place(self, index: UOp) -> tuple[UOp, int]:
        return memory(index), self.value(index.src[1])

    def value(self, u: UOp) -> int:
        return self.names[u] if u in self.names else self.compute(u)

    def compute(self, u: UOp) -> int:
        if u.op is Ops.CONST:
            return int(u.value)
        if u.op is Ops.LOAD:
            return self.cells[self.place(u.src[0])]
        if u.op is Ops.ATOMIC:
            place = self.place(u.src[0])
            old = self.cells[place]
            self.cells[place] = u.dtype.wrap(old + self.value(u.src[1]))
            return old
        assert u.op in ELEMENTWISE
        return int(fold_op(u.op, u.src[-1].dtype, [self.value(s) for s in u.src], u.arg))


@given(st.integers(0, 1 << 32))
def test_every_run_of_a_program_is_the_same(seed: int) -> None:
    kernel, want = program(seed)
    check(kernel, Stage.LOOPS)
    assert run(kernel, {}, Stage.LOOPS)[0].tolist() == want
    cells = Reader(linearize(kernel).items).cells
    assert [
        cells[m, n]
        for (m, n) in sorted(cells, key=lambda at: at[1])
        if m.arg.slot == 0 and m.op is Ops.BUFFER
    ] == want

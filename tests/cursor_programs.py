"""Random programs of one thread: what Python does line by line, and the same through a Cursor.

Loads, stores, atomics and barriers on registers, shared and global memory, inside loops and
conditions.  A value may be used long after its memory was written again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.helpers import alloc
from uopc.dtype import AddrSpace, dtypes
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import Atomic

I32 = dtypes.i32
SIZE = 3
Y = buffer(0, I32, (3 * SIZE,))
MEMORIES = (
    alloc(AddrSpace.REG, I32, SIZE),
    alloc(AddrSpace.SHARED, I32, SIZE),
    buffer(1, I32, (SIZE,)),
)


@dataclass
class State:
    """What Python's run knows: elements by memory, values by the number of their line."""

    cells: list[list[int]]
    values: dict[int, int] = field(default_factory=dict)


Line = Callable[[State], None]


@dataclass
class Value:
    """A value: its node, and how Python gets it."""

    node: UOp
    of: Callable[[State], int]


@dataclass
class Writer:
    """Writes one program twice."""

    rng: random.Random
    c: Cursor = field(default_factory=Cursor)
    lines: list[Line] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)
    number: int = 0
    loops: int = 0

    def name(self) -> int:
        self.number += 1
        return self.number

    def value(self) -> Value:
        """A constant, something read before, or a sum of two such."""
        pick = self.rng.random()
        if pick < 0.25 or not self.pool:
            n = self.rng.randint(-9, 9)
            return Value(UOp.const(n, I32), lambda s: n)
        if pick < 0.7:
            return self.rng.choice(self.pool)
        a, b = self.rng.choice(self.pool), self.rng.choice(self.pool)
        return Value(a.node + b.node, lambda s: I32.wrap(a.of(s) + b.of(s)))

    def place(self) -> tuple[int, int]:
        return self.rng.randrange(3), self.rng.randrange(SIZE)

    # ---- lines
    def load(self) -> None:
        (m, at), n = self.place(), self.name()
        node = self.c.load(MEMORIES[m].index(at))

        def line(s: State) -> None:
            s.values[n] = s.cells[m][at]

        self.lines.append(line)
        self.pool.append(Value(node, lambda s: s.values[n]))

    def store(self) -> None:
        (m, at), v = self.place(), self.value()
        self.c.store(MEMORIES[m].index(at), v.node)

        def line(s: State) -> None:
            s.cells[m][at] = v.of(s)

        self.lines.append(line)

    def atomic(self) -> None:
        (m, at), v, n = self.place(), self.value(), self.name()
        m = max(m, 1)
        node = self.c.atomic(Atomic.ADD, MEMORIES[m].index(at), v.node)

        def line(s: State) -> None:
            s.values[n], s.cells[m][at] = s.cells[m][at], I32.wrap(s.cells[m][at] + v.of(s))

        self.lines.append(line)
        self.pool.append(Value(node, lambda s: s.values[n]))

    def barrier(self) -> None:
        self.c.barrier()

    def when(self, depth: int) -> None:
        v = self.value()
        with self.c.when(v.node < 2):
            inside = self.block(depth)

        def line(s: State) -> None:
            if v.of(s) < 2:
                run(inside, s)

        self.lines.append(line)

    def loop(self, depth: int) -> None:
        self.loops += 1
        n, size = self.name(), self.rng.randint(1, 3)
        with self.c.loop(range_(size, self.loops)) as k:
            counter = Value(k.cast(I32), lambda s: s.values[n])
            inside = self.block(depth, counter)

        def line(s: State) -> None:
            for i in range(size):
                s.values[n] = i
                run(inside, s)

        self.lines.append(line)

    def block(self, depth: int, *known: Value) -> list[Line]:
        """Some lines in a scope; the values of its inside stay there."""
        outer, self.lines = self.lines, []
        before = len(self.pool)
        self.pool += known
        for _ in range(self.rng.randint(1, 5)):
            self.line(depth - 1)
        self.store()
        del self.pool[before:]
        inside, self.lines = self.lines, outer
        return inside

    def line(self, depth: int) -> None:
        kind = self.rng.choice(("load",) * 4 + ("store",) * 3 + ("atomic", "barrier", "scope"))
        if kind == "scope":
            if depth > 0:
                self.rng.choice((self.when, self.loop))(depth)
        else:
            {
                "load": self.load,
                "store": self.store,
                "atomic": self.atomic,
                "barrier": self.barrier,
            }[kind]()


def run(lines: list[Line], state: State) -> None:
    for line in lines:
        line(state)


def program(seed: int, length: int = 14) -> tuple[UOp, list[int]]:
    """A kernel that ends by writing all its memories to slot 0, and what it writes."""
    w = Writer(random.Random(seed))
    for m, memory in enumerate(MEMORIES):
        for at in range(SIZE):
            w.c.store(memory.index(at), 10 * m + at)
    for _ in range(length):
        w.line(2)
    last = w.value()
    for m, memory in enumerate(MEMORIES):
        for at in range(SIZE):
            w.c.store(Y.index(m * SIZE + at), w.c.load(memory.index(at)) + last.node)
    state = State([[10 * m + at for at in range(SIZE)] for m in range(3)])
    run(w.lines, state)
    added = last.of(state)
    return w.c.sink(), [I32.wrap(x + added) for cells in state.cells for x in cells]

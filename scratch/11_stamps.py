"""A race detector in Python: each warp has a clock, each cell remembers who touched it and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

WARPS = 2
Stamp = tuple[int, int]  # (warp, its time)


class Warp:
    """A warp's number, and `knows`: up to which time it knows what each warp has done."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.knows = [0] * WARPS
        self.knows[number] = 1

    def now(self) -> Stamp:
        return self.number, self.knows[self.number]

    def is_after(self, stamp: Stamp) -> bool:
        warp, time = stamp
        return self.knows[warp] >= time


@dataclass
class Cell:
    """A number in shared memory with the stamps of its last write and of reads since."""

    name: str
    value: float = float("nan")
    writer: Stamp | None = None
    readers: dict[int, Stamp] = field(default_factory=dict)
    races: list[str] = field(default_factory=list)

    def read(self, warp: Warp) -> float:
        if self.writer is not None and not warp.is_after(self.writer):
            self.races.append(f"warp {warp.number} reads {self.name}, warp {self.writer[0]} wrote")
        self.readers[warp.number] = warp.now()
        return self.value

    def write(self, warp: Warp, value: float) -> None:
        for other in [self.writer, *self.readers.values()]:
            if other is not None and not warp.is_after(other):
                self.races.append(
                    f"warp {warp.number} writes {self.name}, warp {other[0]} was there"
                )
        self.value, self.writer = value, warp.now()


Kernel = Callable[[Warp, Cell, list[float]], Iterator[str]]


def right(warp: Warp, first: Cell, out: list[float]) -> Iterator[str]:
    """Warp 0 writes what both read, after a barrier."""
    if warp.number == 0:
        first.write(warp, 7.0)
    yield "barrier"
    out[warp.number] = first.read(warp)


def hasty(warp: Warp, first: Cell, out: list[float]) -> Iterator[str]:
    """The same without the barrier."""
    if warp.number == 0:
        first.write(warp, 7.0)
    out[warp.number] = first.read(warp)
    yield "end"


def meet(warps: Sequence[Warp]) -> None:
    """All know now what any of them knew; then each one's own time goes on."""
    together = [max(warp.knows[n] for warp in warps) for n in range(WARPS)]
    for warp in warps:
        warp.knows = list(together)
        warp.knows[warp.number] += 1


def run(kernel: Kernel, order: Sequence[int]) -> str:
    warps, first, out = [Warp(n) for n in range(WARPS)], Cell("first"), [0.0] * WARPS
    bodies = [kernel(warp, first, out) for warp in warps]
    for _ in range(2):  # up to the meeting, and from there to the end
        for n in order:
            next(bodies[n], None)
        meet(warps)
    return f"{out}  {first.races or 'no race'}"


for kernel in (right, hasty):
    for order in ((0, 1), (1, 0)):
        print(f"{kernel.__name__:5}", order, run(kernel, order))

"""A ring of two places between a producer and a consumer: generators that ask an mbarrier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

STEPS, DEPTH = 5, 2
Warp = Iterator[str]


@dataclass
class Mbarrier:
    """Counts arrivals; each time all of them have come, a phase ends."""

    count: int
    pending: int = field(init=False)
    phase: int = 0

    def __post_init__(self) -> None:
        self.pending = self.count

    def arrive(self) -> None:
        self.pending -= 1
        if not self.pending:
            self.phase, self.pending = self.phase + 1, self.count

    def has_ended(self, parity: int) -> bool:
        """Is the newest phase that has ended one of this parity?  Before the first: of parity 1."""
        return (self.phase - 1) % 2 == parity


def producer(full: list[Mbarrier], empty: list[Mbarrier], ring: list[int]) -> Warp:
    for k in range(STEPS):
        stage, parity = k % DEPTH, k // DEPTH % 2
        while not empty[stage].has_ended(1 - parity):
            yield f"producer waits for place {stage} to be empty"
        ring[stage] = 10 * k
        full[stage].arrive()


def consumer(full: list[Mbarrier], empty: list[Mbarrier], ring: list[int], y: list[int]) -> Warp:
    for k in range(STEPS):
        stage, parity = k % DEPTH, k // DEPTH % 2
        while not full[stage].has_ended(parity):
            yield f"consumer waits for place {stage} to be full"
        y.append(ring[stage])
        empty[stage].arrive()


def run(first: int) -> list[str]:
    """Resume the two in turns, beginning with one of them, until both are done."""
    full, empty = ([Mbarrier(1) for _ in range(DEPTH)] for _ in range(2))
    ring, y = [0] * DEPTH, list[int]()
    warps = [producer(full, empty, ring), consumer(full, empty, ring, y)]
    left, said, n = {0, 1}, [], first
    while left:
        if n in left:
            if (place := next(warps[n], None)) is None:
                left.remove(n)
            else:
                said.append(place)
        n = 1 - n
    return [*said, str(y)]


for first, name in enumerate(("producer", "consumer")):
    print(f"{name} first:", *run(first), sep="\n  ")

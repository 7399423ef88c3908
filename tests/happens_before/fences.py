"""What fences of memory and atomics order, said of single threads.

A fence F is before a fence G if an atomic comes after F, another atomic has observed that one, and
comes before G; FENCE(BLOCK) only inside its block.  An atomic whose value somebody takes observes
all that were made of its element since a plain write of it.  That one is before what comes after G,
too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.happens_before.history import History, Knowledge
from tests.happens_before.log import Access
from uopc.uop.node import UOp

Cell = tuple[UOp, int, int]  # memory, block, element


@dataclass(frozen=True)
class Made:
    """A fence: the first event after it, and what its thread knew then."""

    event: int
    block: int
    device: bool
    knowledge: Knowledge


class Fences:
    """Fences and atomics of a launch."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.made: list[Made] = []
        self.chains: dict[Cell, list[Access]] = defaultdict(list)
        self.looks: list[tuple[int, tuple[Access, ...]]] = []  # an atomic's event, what it observed

    def atomic(self, cell: Cell, access: Access, wanted: bool) -> None:
        chain = self.chains[cell]
        if wanted and chain:
            self.looks.append((access.event, tuple(chain)))
        chain.append(access)

    def written(self, cell: Cell) -> None:
        """By a plain write, which leaves nothing of the atomics before it to observe."""
        self.chains.pop(cell, None)

    def acquired(self, knowledge: Knowledge, block: int, device: bool) -> Knowledge:
        """What a thread knows after a fence that knew this before."""
        found, before = knowledge, None
        while found != before:
            before = found
            for _, fence in self._handed(found, block, device):
                found |= fence.knowledge
        return found

    def add(self, made: Made) -> None:
        """A fence that is over."""
        for access, _ in self._handed(made.knowledge, made.block, made.device):
            access.handed.append(made.event)
        self.made.append(made)

    def _handed(
        self, knowledge: Knowledge, block: int, device: bool
    ) -> Iterator[tuple[Access, Made]]:
        """Observed atomics with the fences before them."""
        for event, seen in self.looks:
            if not knowledge.known >> event & 1:
                continue
            for access in seen:
                for fence in self.made:
                    reaches = fence.block == block or (fence.device and device)
                    if reaches and self.history.before(fence.event, access.event):
                        yield access, fence

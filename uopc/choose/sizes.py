"""What the choices for a GPU are made of: what they aim at, and digit sizes under construction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from uopc.choose.facts import LONGEST_CHAIN, KernelFacts, tiles
from uopc.decision import Because, Guess, Reason, because
from uopc.opts import Opts
from uopc.target import Target


@dataclass(frozen=True)
class Aim:
    """What a choice aims at.

    max_threads of a block; row_threads of a block that holds one row; min_blocks of a grid, 0 for
    two an SM; split: may sums be split over the grid?  tf32: as in Numerics.
    """

    target: Target
    max_threads: int = 256
    row_threads: int = 1024
    min_blocks: int = 0
    split: bool = True
    tf32: bool = False

    @property
    def blocks(self) -> int:
        """Blocks that keep every SM busy."""
        return self.min_blocks or 2 * self.target.sms


ON_GPU = Reason("choose.gpu.each", "the target has blocks of threads")
MERGED = Reason(
    "choose.facts._groups",
    "output axes become axes of {sizes} elements: every access walks them as one, or a last axis "
    "alone would fill its lanes badly",
)
ORDERED = Reason(
    "choose.sizes.order",
    "axis {first} comes first, neighbouring threads walk it; then output axes, the last ones first",
)
BLOCKS_LIKE_LANES = Reason(
    "choose.sizes.order", "blocks follow each other as threads do, along axis {first} first"
)
SHORT_CHAINS = Reason(
    "choose.facts.tiles",
    "one accumulator would add up {steps} floats in a row, more than {most}: a loop inside of the "
    "loop, with sums of its own",
)


def merged(facts: KernelFacts) -> Because:
    """Why output axes were merged."""
    sizes = ", ".join(str(facts.sizes[a]) for a in facts.outputs)
    return because("merge", MERGED, sizes=sizes)


class Sizes:
    """Digit sizes under construction, and why they are so."""

    def __init__(self, facts: KernelFacts) -> None:
        self.facts = facts
        self.local: dict[int, int] = {}
        self.upcast: dict[int, int] = {}
        self.vector: dict[int, int] = {}
        self.blocks: dict[int, int] = {}
        self.loop: dict[int, int] = {}
        self.tile: dict[int, int] = {}
        self.why: list[Because] = [because("gpu", ON_GPU), merged(facts)]

    def because(
        self, field: str, reason: Reason, axis: int | None = None, /, **figs: object
    ) -> None:
        """Say why a field is, or will be, so."""
        self.why.append(Because(field, reason, figs, axis))

    @property
    def threads(self) -> int:
        return math.prod(self.local.values())

    def guess(self, lanes: tuple[int, ...], **more: object) -> Guess:
        """What is chosen; of the order of threads and blocks it is said why, where nobody has."""
        said = {b.field for b in self.why}
        for name, reason in (("lanes", ORDERED), ("grid", BLOCKS_LIKE_LANES)):
            if name not in said:
                self.because(name, reason, first=lanes[0] if lanes else 0)
        return Guess(self.opts(lanes, **more), tuple(self.why))

    def opts(self, lanes: tuple[int, ...], **more: object) -> Opts:
        def clean(d: dict[int, int], drop: int = 1) -> dict[int, int]:
            return {a: n for a, n in d.items() if n != drop}

        return Opts(
            gpu=True,
            merge=self.facts.merge,
            local=clean(self.local),
            upcast=clean(self.upcast),
            vector=clean(self.vector),
            tile=clean(self.tile),
            blocks=clean(self.blocks, 0),
            loop=clean(self.loop, 0),
            lanes=lanes,
            grid=lanes,
            **more,  # type: ignore[arg-type]
        )

    def serial(self, parts: Mapping[int, int] | None = None) -> None:
        """Cut the loops of reduced axes in two where a chain of float sums would be too long.

        parts: blocks that an axis is split over.
        """

        def product(*digits: Mapping[int, int]) -> dict[int, int]:
            axes = range(len(self.facts.axes))
            return {a: math.prod(d.get(a, 1) for d in digits) for a in axes}

        copies = product(self.upcast, self.vector)
        inner = product(copies, self.local, parts or {})
        self.tile = tiles(self.facts, inner, copies)
        for a in self.tile:
            steps = -(-self.facts.sizes[a] // inner[a])
            self.because("tile", SHORT_CHAINS, a, steps=steps, most=LONGEST_CHAIN)


def contiguous_axis(facts: KernelFacts, among: tuple[int, ...]) -> int:
    """The axis that most bytes are contiguous along; the stores decide a tie; else the last one."""

    def worth(axis: int) -> tuple[int, int, int]:
        moves = [a for a, c in facts.strides(axis) if c == 1]
        return (sum(a.size_bytes for a in moves), sum(a.store for a in moves), axis)

    return max(among, key=worth)


def order(facts: KernelFacts, first: int) -> tuple[int, ...]:
    """The order of .x, .y, .z: one axis first, then the output axes from the last to the first."""
    return (first, *(a for a in reversed(facts.outputs) if a != first))

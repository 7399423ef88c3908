"""What decides which values share a kernel: numbers of a target, in one record.

Figures marked (c) are guesses about machines, on which little hangs (note 0009); none was timed.
"""

from __future__ import annotations

from dataclasses import dataclass

from uopc.target import Target


@dataclass(frozen=True)
class Limits:
    """Limits of one target.

    blocks: grid points that keep the machine busy.  block_work: elements that one block may do
    alone (c).  product_lanes: outputs of a product that a block may hold beside its grid (c).
    product_work: multiply-adds of one block (c).  tile: may a block hold a reduced value's tile?
    neighbours: elements of the contiguous axis that one block takes (c).  buffers, live: of one
    kernel, and those that vary with every grid point (a stand-in for registers).  cheap, light,
    inline, redo: operations of an element that is never worth its own memory, that may ride into a
    product, that is computed again off its own axes, that is computed again instead of stored.
    redo_leaves: large inputs that may be read again for it.  window: earlier readers of a value
    that a new one is tried with.  parts: rows of partial sums of a column sum that joins rows.
    """

    blocks: int = 128
    block_work: int = 32 << 10
    product_lanes: int = 256
    product_work: int = 512 << 10
    tile: bool = True
    neighbours: int = 32
    buffers: int = 64
    live: int = 24
    cheap: int = 4
    light: int = 2
    inline: int = 12
    redo: int = 32
    redo_leaves: int = 3
    window: int = 64
    parts: int = 256


def limits_of(target: Target) -> Limits:
    """The limits of a target.

    A native kernel has no threads that hold a tile together, and its loops need no filling.
    """
    if target.is_gpu:
        return Limits(blocks=min(128, target.sms))
    return Limits(blocks=1, neighbours=1, tile=False)

"""What the C runtime of the checked emulator writes down of a fault: numbers, no names.

The numbers are those of `uopc/runtime/emulated.h`.  `explain` turns a RawFault into a `Fault` with
the user's file and line, coordinates and a hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class FaultKind(IntEnum):
    """What is wrong.  SAME_VALUE is a warning: it stops nothing."""

    BOUNDS = 1  # outside a memory
    MISALIGNED = 2  # a wide access that is no multiple of its size
    UNINITIALISED = 3  # a read of what nobody has written
    RACE = 4  # two unordered accesses, one of them a write
    SAME_VALUE = 5  # two unordered writes of equal bits
    DIVERGENT_BARRIER = 6  # lanes of a warp, or warps of a block, that do not come to it
    MEMBERS = 7  # detail: members, lanes that came
    DEADLOCK = 8  # detail: a WaitKind and what it waits for
    MBARRIER = 9  # detail[0]: an MbarrierFault
    ACCUMULATOR = 10  # detail[0]: an AccumulatorFault
    PROXY_FENCE = 11  # ordinary and asynchronous accesses without FENCE(PROXY_ASYNC) between
    UNWAITED = 12  # detail[0]: an Agent whose work a warp has not waited for at its end
    UNWRITTEN = 13  # an element of an output that nobody has written
    INDEX_OVERFLOW = 14  # of data integers that make an index; detail: what it should be, bits
    ASSERTION = 15  # an ASSERT whose condition is false
    COPY = 16  # detail[0]: a CopyFault
    CLUSTER = 17  # detail[0]: a ClusterFault

    @property
    def is_warning(self) -> bool:
        return self is FaultKind.SAME_VALUE


class MbarrierFault(IntEnum):
    """detail[0] of MBARRIER; detail[1] is the barrier's number in its memory."""

    NOT_INITIALISED = 1  # used before an MBAR_INIT that is ordered before the use
    TOO_MANY_ARRIVALS = 2  # more than its count in one phase
    PARITY_ALIAS = 3  # the same parity may have passed two phases earlier
    NOT_FENCED = 4  # a bulk copy uses it without FENCE(MBAR_INIT) since its MBAR_INIT
    INITIALISED_TWICE = 5  # by a second MBAR_INIT
    LATE_WAIT = 6  # the next phase may end before this wait has come through
    EARLY_ARRIVAL = 7  # it may count for the phase before, in place of another lane's


class AccumulatorFault(IntEnum):
    """detail[0] of ACCUMULATOR."""

    NOT_FENCED = 1  # an MMA whose registers were used since FENCE(WGMMA)
    IN_FLIGHT = 2  # registers used while an MMA may still write them


class CopyFault(IntEnum):
    """detail[0] of COPY."""

    SEVERAL_LANES = 1  # one lane issues a bulk copy; detail[1]: the lanes that did
    DESTINATION = 2  # its place in shared memory is not aligned; detail[1]: to how many bytes
    COORDINATE = 3  # the innermost coordinate; detail[1]: its value in bytes, no multiple of 16


class ClusterFault(IntEnum):
    """detail[0] of CLUSTER; detail[1] is the rank of the block that holds the memory."""

    NOT_STARTED = 1  # memory of a block that may not have started
    ENDED = 2  # memory of a block that may have ended
    NOT_ARRIVED = 3  # CLUSTER_WAIT without CLUSTER_ARRIVE
    ARRIVED_TWICE = 4  # a barrier of the cluster between CLUSTER_ARRIVE and CLUSTER_WAIT


class WaitKind(IntEnum):
    """detail[0] of DEADLOCK: what the warp waits for."""

    BLOCK_BARRIER = 1
    NAMED_BARRIER = 2  # detail[1]: number; detail[2], [3]: warps that came, warps it waits for
    MBARRIER = 3  # detail[1]: barrier; detail[2]: parity; detail[3], [4]: pending, bytes missing
    GROUP = 4  # detail[1]: an Agent
    CLUSTER_BARRIER = 5


class Agent(IntEnum):
    """Who accesses memory."""

    THREAD = 0
    CP_ASYNC = 1
    BULK = 2
    WGMMA = 3
    MBARRIER = 4  # a bulk copy that counts at an mbarrier
    ATOMIC = 5
    SENDER = 6  # a value on its way to another block of the cluster

    @property
    def text(self) -> str:
        return _AGENT_TEXTS[self]


_AGENT_TEXTS = ("thread", "cp.async", "bulk", "wgmma", "mbarrier", "atomic", "st.async")
#: `lane` of an access that several lanes of a warp made
SEVERAL_LANES = 32


@dataclass(frozen=True)
class RawFault:
    """One fault by numbers.

    place: number of the access or effect in Source.places, -1 at a warp's end or a kernel's;
    memory: number in Source.memories, -1 for none; offset_bytes in that memory.  lane: 32 where
    several lanes did it.  other_*: the access that it is unordered with, or the write that is not
    fenced; other_place is -1 where there is none.
    """

    kind: FaultKind
    place: int
    memory: int
    offset_bytes: int
    block: int
    warp: int
    lane: int
    other_place: int
    other_block: int
    other_warp: int
    other_lane: int
    other_engine: str
    detail: tuple[int, ...] = ()
    moment: int = -1

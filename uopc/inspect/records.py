"""What a report of a kernel says, as data: `inspect` prints it, `view` draws it.

All numbers are of one launch.  A warp-wide access is a request; sectors are the 32-byte pieces that
the memory system moves; shared memory answers a request in wavefronts of at most 128 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from uopc.decision import Decision as Decision  # also for those who look for it here
from uopc.kernel import Dims, ProgramTree
from uopc.opts import Opts
from uopc.target import Target

#: of a thread, whatever it uses: seen with ncu on an H200 (note 0016)
LEAST_REGISTERS = 16


class How(Enum):
    """How an access was counted."""

    EXACT = "exact"  # every request, from the index expression
    SAMPLED = "sampled"  # a part of the requests, evenly
    EMULATED = "emulated"  # addresses of some blocks in the emulator: data decides where they go
    UNKNOWN = "unknown"  # data decides, and no arrays were given


@dataclass(frozen=True)
class AccessReport:
    """One access in the text of a kernel.

    Attributes
    ----------
    number: position in the program, from 0.
    op: "LOAD", "STORE", "ATOMIC", "COPY" (cp.async), "BULK" (a tensor copy), "LDMATRIX",
        "STMATRIX", "SEND" (to another block of the cluster).
    space: "global", "shared", or "cluster" for another block's shared memory.
    store: whether it writes.
    memory: name in the source ("p0", "tile3"); slot: of a parameter, else -1; dtype: of its
        elements.
    width_bytes: of one thread.
    index: the offset in elements, as in the source; gate: the condition of the access, or "".
    line: of the rendered text (Report.source), from 1; 0 where it is not known.
    origins: "file:line" of the user, the nearest first.
    how: how the counts below were found.
    requests: warp-wide accesses with at least one active lane.
    threads: of these requests, active lanes.
    sectors: 32-byte pieces (global); least_sectors: the fewest that hold as many bytes.
    wavefronts: passes of shared memory; least_wavefronts: without bank conflicts.
    wanted_bytes: that threads ask for, each lane its own.
    touched_bytes: distinct bytes of the memory, as far as they are known; 0 else.  block_bytes: the
        same of one block.  Both at most: guards and overlaps may leave fewer.
    fetched_bytes: of the 64-byte pieces that hold touched_bytes, which is what memory gives;
        block_fetched_bytes: of the sectors that hold block_bytes.
    first_byte, end_byte: between which all touched bytes lie.
    pattern: how neighbouring lanes walk: "contiguous", "broadcast", "stride 8 (32 bytes)", ...
    axis: the range that threadIdx.x moves this access by, and its step in elements ("l1 * 4"), ""
        where it does not move.
    lanes: byte offset of each lane of a request, of those with the most active lanes; None for
        lanes that are not active.  Up to whole sectors, or lines of shared memory.
    """

    number: int
    op: str
    space: str
    store: bool
    memory: str
    slot: int
    dtype: str
    width_bytes: int
    index: str
    gate: str
    line: int
    origins: tuple[str, ...]
    how: How
    requests: int = 0
    threads: int = 0
    sectors: int = 0
    least_sectors: int = 0
    wavefronts: int = 0
    least_wavefronts: int = 0
    wanted_bytes: int = 0
    touched_bytes: int = 0
    block_bytes: int = 0
    fetched_bytes: int = 0
    block_fetched_bytes: int = 0
    first_byte: int = 0
    end_byte: int = 0
    pattern: str = ""
    axis: str = ""
    lanes: tuple[int | None, ...] = field(default=(), repr=False)

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def least_per_request(self) -> float:
        return self.least_sectors / self.requests if self.requests else 0.0

    @property
    def used(self) -> float:
        """Bytes that threads ask for, each once a request, per byte that moves: at most 1."""
        return self.least_sectors / self.sectors if self.sectors else 1.0

    @property
    def conflicts(self) -> int:
        """Wavefronts that bank conflicts add."""
        return self.wavefronts - self.least_wavefronts

    @property
    def conflict_degree(self) -> float:
        """Wavefronts for each that would do; 1 without conflicts."""
        return self.wavefronts / self.least_wavefronts if self.least_wavefronts else 1.0


@dataclass(frozen=True)
class ResourceReport:
    """What ptxas says and what an SM holds.  missing: why there is nothing to say, "" usually.

    launched_registers: what a launch gives a thread, which is 16 at least.
    waves: rounds in which all SMs work through the grid; tail: part of the last one that is busy
    (1.0: it is full).  limited_by: "threads", "registers", "shared memory" or "blocks".
    mix: SASS instructions of the text by kind ("LDG", "FFMA", ...), the most frequent first; empty
    where no disassembler is installed, then mix_missing says so.
    """

    registers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    constant_bytes: int = 0
    remarks: tuple[str, ...] = ()
    blocks_per_sm: int = 0
    warps_per_sm: int = 0
    occupancy: float = 0.0
    limited_by: str = ""
    waves: float = 0.0
    tail: float = 0.0
    mix: tuple[tuple[str, int], ...] = ()
    mix_missing: str = ""
    missing: str = ""

    @property
    def launched_registers(self) -> int:
        return max(self.registers, LEAST_REGISTERS)


@dataclass(frozen=True)
class Roofline:
    """What bounds a kernel on a named GPU.

    must_bytes: each byte of the parameters that the kernel reads or writes, once.
    moves_bytes: what is expected to pass between the SMs and L2, in whole sectors; memory_bytes:
    between L2 and memory; both under `assumption`.
    operations: by unit ("fp32", "fp64", "int", "sfu", "tensor f16", "convert", "logic",
    "index"); an FMA counts as two.
    times_s: what each wall alone would take ("memory", "L2", "L1", "instructions", "fp32", ...),
    the longest first.
    floor_s: the longest of what must be: must_bytes over bandwidth, operations over their rates.
    wall: whose floor that is.  wasted: the share of the bytes that move which the access pattern
    throws away.  predicted_s: what the kernel is expected to take, launch included.
    """

    gpu: str
    must_bytes: int
    moves_bytes: int
    memory_bytes: int
    assumption: str
    operations: tuple[tuple[str, int], ...]
    times_s: tuple[tuple[str, float], ...]
    floor_s: float
    wall: str
    wasted: float
    predicted_s: float


@dataclass(frozen=True)
class PassReport:
    """The graph after one pass: its text, and the rules that fired with how often, in order.

    stage: what the text is in; changed: whether the text differs from the one before.
    """

    name: str
    why: str
    text: str = field(repr=False)
    rules: tuple[tuple[str, int], ...] = ()
    stage: str = ""
    changed: bool = True


@dataclass(frozen=True)
class SourceLine:
    """A line of the kernel's text: the lines of the last pass's graph text that it comes from (by
    number, from 0), the user's "file:line", and the accesses in it."""

    text: str
    nodes: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    accesses: tuple[int, ...] = ()


@dataclass(frozen=True)
class Advice:
    """Something that is clearly wrong, and what would mend it.

    kind: "uncoalesced", "bank conflicts", "sub-warp block", "spills", "few blocks".
    access: its number, or -1; mend: the change of Opts, as text; opts: the changed Opts, where one
    change does it; tried: what came of that change, where it was tried.
    """

    kind: str
    text: str
    mend: str
    access: int = -1
    opts: Opts | None = None
    tried: str = ""


@dataclass(frozen=True)
class Report:
    """All there is to say about one launch, without a GPU.

    source: CUDA text with the user's lines as comments; grid, block: (x, y, z); warnings: the worst
    first; program: the tree, which is no data.
    """

    name: str
    target: Target
    grid: Dims
    block: Dims
    cluster: int
    opts: Opts
    source: tuple[SourceLine, ...] = field(repr=False)
    accesses: tuple[AccessReport, ...]
    resources: ResourceReport
    roofline: Roofline
    decisions: tuple[Decision, ...]
    passes: tuple[PassReport, ...] = field(repr=False)
    warnings: tuple[Advice, ...]
    program: ProgramTree = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The source as one string."""
        return "\n".join(line.text for line in self.source)

    @property
    def sectors(self) -> dict[str, float]:
        """Sectors per request of each memory, by its name in the source: 32-byte pieces that a warp
        moves at once."""
        found: dict[str, tuple[int, int]] = {}
        for a in self.accesses:
            if a.space == "global" and a.requests:
                pieces, requests = found.get(a.memory, (0, 0))
                found[a.memory] = (pieces + a.sectors, requests + a.requests)
        return {name: pieces / requests for name, (pieces, requests) in found.items()}

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; derived figures of accesses are in it."""
        data = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "program"}
        data["target"] = self.target.name
        data["opts"] = json.loads(self.opts.to_json())
        for raw, access in zip(data["accesses"], self.accesses, strict=True):
            raw["how"] = access.how.value
            raw["sectors_per_request"] = access.sectors_per_request
            raw["least_per_request"] = access.least_per_request
            raw["used"] = access.used
            raw["conflict_degree"] = access.conflict_degree
        for raw, advice in zip(data["warnings"], self.warnings, strict=True):
            raw["opts"] = None if advice.opts is None else json.loads(advice.opts.to_json())
        return data


def _plain(value: Any) -> Any:
    """A record, or several, as data."""
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True)
class Boundary:
    """Why a value is stored between kernels, or why values are kept apart.

    kernel: the number of the launch that stores it, -1 for what is said of the whole program.
    """

    kernel: int
    text: str
    bytes: int = 0


@dataclass(frozen=True)
class ProgramReport:
    """Launches in order, and what stands between them.

    boundaries: of tensors, of which a schedule makes kernels; empty for a kernel whose body was
    given.  moved_bytes: that all launches must read and write; least_bytes: the fewest that could
    do, where that is known.
    """

    name: str
    launches: tuple[Report, ...]
    boundaries: tuple[Boundary, ...] = ()
    moved_bytes: int = 0
    least_bytes: int = 0

    @property
    def predicted_s(self) -> float:
        """What all launches are expected to take, one after the other."""
        return sum(r.roofline.predicted_s for r in self.launches)

    def to_json(self, indent: int | None = None) -> str:
        """The program as JSON text."""
        data: Mapping[str, object] = {
            "name": self.name,
            "launches": [r.to_dict() for r in self.launches],
            "boundaries": [asdict(b) for b in self.boundaries],
            "moved_bytes": self.moved_bytes,
            "least_bytes": self.least_bytes,
        }
        return json.dumps(data, indent=indent)

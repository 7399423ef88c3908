"""Run a PROGRAM with every thread as an agent of its own, log everything, judge it afterwards.

The judge of the checked emulator.  It is slow and takes no short cut: no warps that share anything,
no clocks, no shadow memory.  Threads run in any order (seeded), each until it must wait or, with
`fine`, until the schedule prefers another one; asynchronous operations happen early, late or at
random.  What was logged is then compared pair by pair (judge.py), so that the verdict does not
depend on the order in which things were done here.

Rules, where a kernel's text alone does not say what holds (CUDA C++ Programming Guide; PTX ISA):
- lanes of a warp are ordered by __syncwarp and by barriers only; shuffles, votes, warp reductions
  order nothing, but lanes that take part wait for each other;
- fences of memory order by atomics (fences.py); atomics alone order nothing;
- a barrier of the block is met by all its threads at one place, in one iteration; a NAMED one by
  whole warps; members of a warp operation meet at one place;
- cp.async is ordered before its own thread once a wait for its group has returned; bulk copies into
  SHARED memory are ordered by the phase of their mbarrier, bulk stores by a wait for their group;
- bulk copies follow ordinary accesses only of threads that fenced them, between the access and the
  release that the copy's thread has seen.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tests.happens_before.fences import Fences, Made
from tests.happens_before.flat import Kind, Line, flatten
from tests.happens_before.history import History, Knowledge
from tests.happens_before.judge import judge
from tests.happens_before.log import WHOLE_GRID, Access, Does, Fault, Log
from tests.happens_before.mbarriers import AMBIGUOUS, MBarrier, Use
from tests.happens_before.scalars import Function, Value, constant, function, to_python
from uopc.dtype import AddrSpace
from uopc.kernel import Axis, Dims, ProgramTree
from uopc.render.operands import operands
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.numbers import canonical_nan
from uopc.uop.ops import (
    ELEMENTWISE,
    Atomic,
    BarrierArg,
    BarrierScope,
    Combine,
    Engine,
    Fence,
    Ops,
    ShuffleMode,
    Vote,
)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Ready: TypeAlias = Callable[[], bool]
Turn: TypeAlias = Generator["Ready | None", None, None]

WARP = 32
#: turns after which a launch counts as one that never ends
TOO_MANY_TURNS = 2_000_000


@dataclass(frozen=True)
class Schedule:
    """order: "forward", "backward" or "random" among the threads; engine: "early" (asynchronous
    work happens when it is asked for), "late" (when nobody can go on), "random"; fine: threads also
    take turns where they need not wait."""

    seed: int = 0
    order: str = "random"
    engine: str = "random"
    fine: bool = False


@dataclass(frozen=True)
class Outcome:
    """arrays: what every parameter holds at the end, by slot; faults: each once."""

    arrays: dict[int, Array]
    faults: tuple[Fault, ...]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(f.kind for f in self.faults)

    @property
    def ok(self) -> bool:
        """No fault but warnings."""
        return self.kinds <= {"SAME_VALUE"}


def run(
    program: ProgramTree,
    arrays: Sequence[Array],
    schedule: Schedule = Schedule(),
    given: Iterable[int] = (),
) -> Outcome:
    """Run a kernel on copies of its parameters, in slot order.

    given: slots of written parameters whose contents count from the start.
    """
    with np.errstate(all="ignore"):
        return _Machine(program, arrays, schedule, frozenset(given)).run()


# ---- what threads meet at
@dataclass
class _Meeting:
    """A barrier, or lanes that exchange values: over when all that are expected have come."""

    what: str  # the fault if they never do
    expected: frozenset[int]
    arrived: dict[int, Value | None] = field(default_factory=dict)
    knowledge: Knowledge = field(default_factory=Knowledge)
    over: bool = False
    events: int = 0  # of those who came
    named: _Named | None = None  # of a warp that has come to a NAMED barrier

    def come(self, who: int, value: Value | None = None) -> None:
        self.arrived[who] = value
        self.over = self.expected <= self.arrived.keys()


@dataclass
class _Named:
    """One meeting at a NAMED barrier: warps gather until they are enough."""

    threads: int
    warps: list[_Meeting] = field(default_factory=list)
    knowledge: Knowledge = field(default_factory=Knowledge)
    over: bool = False


# ---- asynchronous work
@dataclass
class _Operation:
    """What an engine was asked to do: `work` moves the data; events of its reads and writes."""

    engine: Engine
    place: UOp
    event: int
    written: int
    work: Callable[[], None]
    done: bool = False
    waited: bool = False


@dataclass
class _Groups:
    """Operations of one thread and engine: those not yet committed, and the committed groups."""

    open: list[_Operation] = field(default_factory=list)
    groups: list[list[_Operation]] = field(default_factory=list)

    def all(self) -> Iterator[_Operation]:
        yield from itertools.chain(self.open, *self.groups)


class _Machine:
    """One launch."""

    def __init__(
        self,
        program: ProgramTree,
        arrays: Sequence[Array],
        schedule: Schedule,
        given: frozenset[int],
    ) -> None:
        self.program, self.schedule = program, schedule
        self.rng = random.Random(schedule.seed)
        self.history, self.log = History(), Log()
        self.lines = flatten(program)
        self.nodes = toposort(program.sink)
        self.fences = Fences(self.history)
        values = [u for u in self.nodes if u.op not in (Ops.END, Ops.SINK)]
        self.wanted = {s for u in values for s in operands(u)}
        self.cells: dict[tuple[UOp, int], list[Value]] = {}
        self.meetings: dict[tuple[Any, ...], _Meeting] = {}
        self.named: dict[tuple[int, int], _Named] = {}
        self.met: dict[tuple[int, int], int] = {}  # who has met at each NAMED barrier
        self.mbarriers: dict[tuple[UOp, int, int], MBarrier] = {}
        self.bulk_askers: dict[tuple[Any, ...], set[int]] = {}
        self.pending: list[_Operation] = []
        self.constants: dict[UOp, Any] = {}
        self.functions: dict[UOp, Function] = {}
        self.parameters = {u.arg.slot: u for u in self.nodes if u.op is Ops.BUFFER}
        self._take(arrays)
        self.threads_per_block = program.launch.threads
        self.given = frozenset(
            self.parameters[p.slot]
            for p in program.params
            if not p.scalar and (not p.written or p.slot in given)
        )
        self.outputs = {
            self.parameters[p.slot]: p.size
            for p in program.params
            if p.written and p.slot not in given
        }
        blocks = range(prod(program.launch.grid))
        self.threads = [_Thread(self, b, t) for b in blocks for t in range(self.threads_per_block)]

    def _take(self, arrays: Sequence[Array]) -> None:
        for u in self.nodes:
            if u.op is Ops.CONST:
                self.constants[u] = constant(u)
            elif u.op in ELEMENTWISE:
                self.functions[u] = function(u.op, u.src[-1].dtype, u.arg)
        for (_, u), array in zip(sorted(self.parameters.items()), arrays, strict=True):
            flat = np.asarray(array).reshape(-1)
            values = [to_python(x.reshape(()), u.dtype) for x in flat.reshape(-1, 1)]
            if u.shape == ():
                self.constants[u] = values[0]
            else:
                self.cells[u, WHOLE_GRID] = values

    # ---- the schedule
    def run(self) -> Outcome:
        left = list(self.threads)
        if self.schedule.order == "backward":
            left.reverse()
        for turn in itertools.count():
            if not left or turn > TOO_MANY_TURNS:
                break
            if self.schedule.order == "random":
                self.rng.shuffle(left)
            moved = False
            for thread in left:
                moved |= thread.go()
                if self.schedule.engine == "random" and self.pending:
                    moved |= self.rng.random() < 0.3 and self._work()
            left = [t for t in left if not t.finished]
            if not moved and not self._work():
                break
        while self._work():
            pass
        for thread in left:
            thread.report_stuck()
        for thread in self.threads:
            thread.report_unwaited()
        for mbarrier in self.mbarriers.values():
            self.log.faults += mbarrier.faults(self.history)
        faults = judge(self.log, self.history, self.given, {} if left else self.outputs)
        return Outcome(self._arrays(), tuple(faults))

    def _work(self) -> bool:
        """Let one pending operation happen: the oldest, or any in a random order."""
        if not self.pending:
            return False
        at = self.rng.randrange(len(self.pending)) if self.schedule.engine == "random" else 0
        self.finish(self.pending.pop(at))
        return True

    def ask(self, operation: _Operation) -> None:
        if self.schedule.engine == "early":
            self.finish(operation)
        else:
            self.pending.append(operation)

    def finish(self, operation: _Operation) -> None:
        operation.work()
        operation.done = True

    def _arrays(self) -> dict[int, Array]:
        found = {}
        for slot, u in self.parameters.items():
            if u.shape != ():
                exact = np.float64 if u.dtype.is_float else u.dtype.numpy
                found[slot] = np.array(self.cells[u, WHOLE_GRID], exact).astype(u.dtype.numpy)
        return found

    # ---- memory
    def cells_of(self, m: UOp, block: int) -> list[Value]:
        if (m, block) not in self.cells:
            garbage: Value = (
                float(canonical_nan(m.dtype)) if m.dtype.is_float else m.dtype.min or m.dtype.max
            )
            self.cells[m, block] = [garbage] * prod(m.arg.shape)
        return self.cells[m, block]

    def mbarrier(self, m: UOp, block: int, element: int) -> MBarrier:
        return self.mbarriers.setdefault((m, block, element), MBarrier(m, element))


class _Thread:
    """One thread: where it is, its values, what it knows."""

    def __init__(self, machine: _Machine, block: int, number: int) -> None:
        self.machine, self.block, self.number = machine, block, number
        self.warp, self.lane = divmod(number, WARP)
        self.history = machine.history
        self.knowledge = Knowledge()
        self.event = self.history.add(0)
        self.own = 0  # its closed events, and its copies that it waited for
        self.inits = 0  # its events that initialised mbarriers
        launch = machine.program.launch
        self.values: dict[UOp, Any] = dict(machine.constants)
        self.values |= _hardware(launch.grid_axes, launch.grid, block)
        self.values |= _hardware(launch.block_axes, launch.block, number)
        self.open: list[UOp] = []  # ranges around the current line
        self.registers: dict[UOp, list[Value | None]] = {}
        self.groups = {Engine.CP_ASYNC: _Groups(), Engine.BULK: _Groups()}
        self.loads: list[_Operation] = []  # bulk copies into SHARED memory
        self.line = 0
        self.finished = False
        self.waiting: Ready | None = None
        self.waits_for = ""
        self.waits_at: MBarrier | None = None
        self.turns = self._walk()

    # ---- order
    def close(self) -> Knowledge:
        """End the current event; gives what whoever acquires now learns."""
        self.own |= 1 << self.event
        k = self.knowledge
        self.knowledge = Knowledge(k.known | 1 << self.event, k.fenced, k.announced)
        self.event = self.history.add(self.knowledge.known)
        return self.knowledge

    def learn(self, what: Knowledge) -> None:
        self.close()
        self.knowledge |= what
        self.history.past[self.event] = self.knowledge.known

    # ---- one turn
    def go(self) -> bool:
        """Walk on until it must wait; false where it cannot."""
        if self.finished or (self.waiting is not None and not self.waiting()):
            return False
        try:
            self.waiting = next(self.turns)
        except StopIteration:
            self.finished = True
        return True

    def _walk(self) -> Turn:
        lines, rng = self.machine.lines, self.machine.rng
        while self.line < len(lines):
            line = lines[self.line]
            self.line += 1
            for step in line.steps:
                self.values[step] = self._value(step)
            if line.kind is Kind.WARP:
                yield from self._together(line.node)
            elif line.kind is Kind.EFFECT:
                turn = _EFFECTS[line.node.op](self, line.node)
                if turn is not None:
                    yield from turn
            elif line.kind is not Kind.VALUE:
                self._jump(line)
            if self.machine.schedule.fine and rng.random() < 0.25:
                yield None

    def _jump(self, line: Line) -> None:
        u = line.node
        if line.kind is Kind.DECLARE:
            if u.arg.addrspace is AddrSpace.REG:
                self.registers[u] = [None] * prod(u.arg.shape)
        elif line.kind is Kind.BEGIN:
            self.values[u] = u.arg.start
            self.open.append(u)
        elif line.kind is Kind.NEXT:
            self.values[u] += u.arg.step
            if self.values[u] != u.arg.start + u.arg.step * u.arg.size:
                self.line = line.to
            else:
                self.open.pop()
        elif u.op is Ops.IF:
            if not self.values[u.src[0]]:
                self.line = line.to
        elif not u.arg.first <= self.warp < u.arg.first + u.arg.warps:
            self.line = line.to

    def iteration(self) -> tuple[int, ...]:
        return tuple(self.values[r] for r in self.open)

    def fault(
        self, kind: str, place: UOp, m: UOp | None = None, element: int = -1, detail: str = ""
    ) -> None:
        self.machine.log.faults.append(
            Fault(kind, place, m, element, None, self.block, self.number, detail)
        )

    # ---- values
    def _value(self, u: UOp) -> Any:
        if u.op in ELEMENTWISE:
            return self.machine.functions[u](*[self.values[s] for s in u.src])
        if u.op is Ops.LOAD:
            return self._load(u)
        if u.op is Ops.INDEX:
            return self.values[u.src[1]]
        if u.op is Ops.AFTER:
            return self.values[u.src[0]]
        raise ValueError(f"this machine has no {u.op}")

    def _load(self, u: UOp) -> Any:
        width = 1 if u.arg is None else u.arg.width
        if len(u.src) == 3 and not self.values[u.src[1]]:
            other = self.values[u.src[2]]
            return other if u.arg is None else (other,) * width
        found = self._read(u, u.src[0], width)
        return found[0] if u.arg is None else tuple(found)

    def _read(self, place: UOp, index: UOp, width: int) -> list[Value]:
        m, first = memory(index), self.values[index]
        zero: Value = 0.0 if m.dtype.is_float else 0
        if not self._inside(place, m, first, width):
            return [zero] * width
        if m.arg.addrspace is AddrSpace.REG:
            found = self.registers[m][first : first + width]
            if None in found:
                self.fault("UNINITIALISED", place, m, first)
            return [zero if x is None else x for x in found]
        block = self.home(m)
        self.touch(m, range(first, first + width), self.access(Does.READ, place))
        return self.machine.cells_of(m, block)[first : first + width]

    def _write(self, place: UOp, index: UOp, values: Sequence[Value]) -> None:
        m, first = memory(index), self.values[index]
        if not self._inside(place, m, first, len(values)):
            return
        if m.arg.addrspace is AddrSpace.REG:
            self.registers[m][first : first + len(values)] = values
            return
        self.touch(m, range(first, first + len(values)), self.access(Does.WRITE, place), values)
        self.machine.cells_of(m, self.home(m))[first : first + len(values)] = values

    def _inside(self, place: UOp, m: UOp, first: int, width: int) -> bool:
        if not 0 <= first <= prod(m.arg.shape) - width:
            self.fault("BOUNDS", place, m, first)
            return False
        if first % width:
            self.fault("MISALIGNED", place, m, first)
            return False
        return True

    def home(self, m: UOp) -> int:
        return WHOLE_GRID if m.arg.addrspace is AddrSpace.GLOBAL else self.block

    def access(self, does: Does, place: UOp) -> Access:
        return Access(does, self.event, place, self.block, self.number)

    def touch(
        self, m: UOp, elements: Iterable[int], access: Access, values: Sequence[Value] | None = None
    ) -> None:
        block = self.home(m)
        for n, element in enumerate(elements):
            self.machine.log.add(m, block, element, access, None if values is None else values[n])
            if access.does is Does.WRITE:
                self.machine.fences.written((m, block, element))

    # ---- effects on memory
    def store(self, u: UOp) -> None:
        if len(u.src) < 3 or self.values[u.src[2]]:
            value = self.values[u.src[1]]
            self._write(u, u.src[0], (value,) if u.arg is None else value)

    def atomic(self, u: UOp) -> None:
        m, element = memory(u.src[0]), self.values[u.src[0]]
        self.values[u] = 0
        if self._inside(u, m, element, 1):
            access, cell = self.access(Does.ATOMIC, u), (m, self.home(m), element)
            self.touch(m, (element,), access)
            self.machine.fences.atomic(cell, access, u in self.machine.wanted)
            cells = self.machine.cells_of(m, self.home(m))
            self.values[u] = cells[element]
            cells[element] = _combined(u, cells[element], [self.values[s] for s in u.src[1:]])

    # ---- lanes together
    def _lanes(self, members: int) -> frozenset[int]:
        lanes = min(WARP, self.machine.threads_per_block - WARP * self.warp)
        return frozenset(lane for lane in range(lanes) if members >> lane & 1)

    def _meet(self, meeting: _Meeting, who: int, value: Value | None = None) -> Turn:
        meeting.come(who, value)
        self.waits_for = meeting.what
        if not meeting.over:
            yield lambda: meeting.over

    def _meeting(self, what: str, expected: frozenset[int], place: UOp, *of: int) -> _Meeting:
        """The one of these agents, at this place, in this iteration."""
        key = (self.block, place, self.iteration(), of)
        return self.machine.meetings.setdefault(key, _Meeting(what, expected))

    def _together(self, u: UOp) -> Turn:
        lanes = self._lanes(u.arg.members)
        own = self.values[u.src[0]]
        if self.lane not in lanes:
            self.fault("MEMBERS", u, detail="a lane that is no member")
            self.values[u] = int(own) if u.dtype.is_int else own
            return
        meeting = self._meeting("MEMBERS", lanes, u, self.warp)
        yield from self._meet(meeting, self.lane, own)
        if u.op is Ops.SHUFFLE:
            self.values[u] = self._shuffled(u, meeting)
        else:
            values = [meeting.arrived[lane] for lane in sorted(lanes)]
            self.values[u] = _voted(u, sorted(lanes), values)

    def _shuffled(self, u: UOp, meeting: _Meeting) -> Any:
        by, mode = u.arg.by, u.arg.mode
        if mode is ShuffleMode.XOR:
            lane = self.lane ^ by
        elif mode is ShuffleMode.INDEX:
            lane = self.values[u.src[1]] % WARP
        else:
            lane = self.lane + (by if mode is ShuffleMode.DOWN else -by)
            lane = lane if 0 <= lane < WARP else self.lane
        if lane not in meeting.arrived:
            self.fault("MEMBERS", u, detail=f"reads lane {lane}, which is no member")
            return self.values[u.src[0]]
        return meeting.arrived[lane]

    def barrier(self, u: UOp) -> Turn:
        arg: BarrierArg = u.arg or BarrierArg()
        if arg.scope is BarrierScope.NAMED:
            yield from self._named(u, arg)
            return
        if arg.scope is BarrierScope.WARP:
            lanes = self._lanes(arg.members)
            if self.lane not in lanes:
                self.fault("MEMBERS", u, detail="a lane that is no member")
                return
            meeting, who = self._meeting("MEMBERS", lanes, u, self.warp), self.lane
        else:
            everybody = frozenset(range(self.machine.threads_per_block))
            meeting, who = self._meeting("DIVERGENT_BARRIER", everybody, u), self.number
        meeting.knowledge |= self.close()
        yield from self._meet(meeting, who)
        self.learn(meeting.knowledge)

    def _named(self, u: UOp, arg: BarrierArg) -> Turn:
        number = self.values[u.src[0]]
        warp = self._meeting("DIVERGENT_BARRIER", self._lanes(-1), u, self.warp, number)
        warp.events |= 1 << self.event
        warp.knowledge |= self.close()
        warp.come(self.lane)
        if warp.over:
            self._gather(u, warp, number, arg.threads)
        self.waits_for = warp.what
        if not warp.over:
            yield lambda: warp.over
        named = warp.named
        assert named is not None
        self.waits_for = "DEADLOCK"
        if not named.over:
            yield lambda: named.over
        self.learn(named.knowledge)

    def _gather(self, u: UOp, warp: _Meeting, number: int, threads: int) -> None:
        """A whole warp has come to a NAMED barrier.

        It must know that the meetings before are over, else it could have met those warps."""
        before = self.machine.met.get((self.block, number), 0)
        named = self.machine.named.setdefault((self.block, number), _Named(threads))
        if before & ~warp.knowledge.known or named.threads != threads:
            self.fault("DEADLOCK", u, detail=f"{AMBIGUOUS[3]}: others may meet at this number")
        warp.named = named
        named.warps.append(warp)
        named.knowledge |= warp.knowledge
        if WARP * len(named.warps) >= named.threads:
            named.over = True
            del self.machine.named[self.block, number]
            for met in named.warps:
                before |= met.events
            self.machine.met[self.block, number] = before

    # ---- mbarriers
    def _mbarrier(self, u: UOp, index: UOp) -> MBarrier | None:
        """The object, None where there is none (a fault)."""
        m, element = memory(index), self.values[index]
        if not self._inside(u, m, element, 1):
            return None
        found = self.machine.mbarrier(m, self.block, element)
        if u.op is not Ops.MBAR_INIT:
            found.users.append(Use(found.phase, self.event, True, u, self.block, self.number))
            if not found.inits:
                return None
        return found

    def init(self, u: UOp) -> None:
        mbarrier = self._mbarrier(u, u.src[0])
        if mbarrier is not None:
            mbarrier.init(self.values[u.src[1]], self.event, u, self.block, self.number)
            self.inits |= 1 << self.event
            self.close()

    def arrive(self, u: UOp) -> None:
        mbarrier = self._mbarrier(u, u.src[0])
        if mbarrier is None:
            return
        event, phase = self.event, mbarrier.phase
        knows = mbarrier.knows_ends(self.knowledge.known | 1 << event, phase)
        expected = self.values[u.src[1]] if len(u.src) > 1 else 0
        if not mbarrier.arrive(self.close(), event, expected):
            self.fault("MBARRIER", u, mbarrier.memory, mbarrier.element, "too many arrivals")
        mbarrier.arrivals.append(Use(phase, event, knows, u, self.block, self.number))
        mbarrier.end_phase(self.history)

    def wait(self, u: UOp) -> Turn:
        mbarrier = self._mbarrier(u, u.src[0])
        if mbarrier is None:
            return
        parity = self.values[u.src[1]]
        self.waits_for = "DEADLOCK"
        if not mbarrier.passes(parity):
            self.waits_at = mbarrier
            yield lambda: mbarrier.passes(parity)
            self.waits_at = None
        phase = mbarrier.phase
        knows = mbarrier.knows_ends(self.knowledge.known | 1 << self.event, phase - 1)
        self.learn(mbarrier.snapshots[phase - 1] if phase else Knowledge())
        mbarrier.waits.append(Use(phase, self.event, knows, u, self.block, self.number))

    # ---- asynchronous work
    def fence(self, u: UOp) -> None:
        self.close()
        k = self.knowledge
        if u.arg in (Fence.BLOCK, Fence.DEVICE):
            device, fences = u.arg is Fence.DEVICE, self.machine.fences
            self.learn(fences.acquired(k, self.block, device))
            fences.add(Made(self.event, self.block, device, self.knowledge))
        elif u.arg is Fence.PROXY_ASYNC:
            self.knowledge = k | Knowledge(fenced=self.own, announced=self.inits)
        elif u.arg is Fence.MBAR_INIT:
            self.knowledge = k | Knowledge(announced=self.inits)

    def copy(self, u: UOp) -> None:
        if u.arg.engine is Engine.CP_ASYNC:
            self._copy_async(u)
        elif u.src[1].op is Ops.TENSORMAP:
            self._bulk_load(u)
        else:
            self._bulk_store(u)

    def _copy_async(self, u: UOp) -> None:
        """Zeros, without a look at the source, where the gate is false."""
        to, source = (memory(s) for s in u.src[:2])
        first, start, width = self.values[u.src[0]], self.values[u.src[1]], u.arg.width
        does = len(u.src) < 3 or self.values[u.src[2]]
        if not self._inside(u, to, first, width):
            return
        if does and not self._inside(u, source, start, width):
            return
        event = self.history.add(self.close().known)

        def work() -> None:
            values: list[Value] = [0.0 if to.dtype.is_float else 0] * width
            if does:
                values = self.machine.cells_of(source, WHOLE_GRID)[start : start + width]
                read = Access(Does.READ, event, u, self.block, self.number, "cp.async")
                self.touch(source, range(start, start + width), read)
            written = Access(Does.WRITE, event, u, self.block, self.number, "cp.async")
            self.touch(to, range(first, first + width), written, values)
            self.machine.cells_of(to, self.block)[first : first + width] = values

        operation = _Operation(Engine.CP_ASYNC, u, event, event, work)
        self.groups[Engine.CP_ASYNC].open.append(operation)
        self.machine.ask(operation)

    def _box(self, u: UOp, tile: UOp, tensor_map: UOp, at: Sequence[int]) -> list[tuple[int, int]]:
        """(element of the tile, element of the parameter or -1) of all that a bulk copy moves."""
        a, size = tensor_map.arg, tile.dtype.itemsize
        key = (self.block, self.warp, u, self.iteration())
        lanes = self.machine.bulk_askers.setdefault(key, set())
        lanes.add(self.lane)
        first = self.values[tile]
        if len(lanes) > 1:
            self.fault("COPY", u, detail="several lanes ask")
        if at[-1] * size % 16:
            self.fault("COPY", u, detail="the innermost coordinate is off 16 bytes")
        aligned = 8 * a.swizzle if a.swizzle else 128
        if first * size % aligned:
            self.fault("COPY", u, memory(tile), first, f"off {aligned} bytes")
        if not 0 <= first <= prod(memory(tile).arg.shape) - prod(a.box):
            self.fault("BOUNDS", u, memory(tile), first)
            return []
        pairs = []
        for n, inside in enumerate(itertools.product(*map(range, a.box))):
            where = [c + i for c, i in zip(at, inside, strict=True)]
            exists = all(0 <= w < s for w, s in zip(where, a.shape, strict=True))
            flat = sum(w * s for w, s in zip(where, (*a.strides, 1), strict=True))
            byte = (first + n) * size
            byte ^= (byte >> 7 & (a.swizzle // 16 - 1)) << 4 if a.swizzle else 0
            pairs.append((byte // size, flat if exists else -1))
        return pairs

    def _bulk_load(self, u: UOp) -> None:
        tile, tensor_map, index, *coordinates = u.src
        pairs = self._box(u, tile, tensor_map, [self.values[c] for c in coordinates])
        mbarrier = self._mbarrier(u, index)
        if not pairs or mbarrier is None:
            return
        if not any(self.knowledge.announced >> e & 1 for e in mbarrier.init_events()):
            self.fault("MBARRIER", u, mbarrier.memory, mbarrier.element, "its init is not fenced")
        knowledge = self.close()
        event, fenced = self.history.add(knowledge.known), knowledge.fenced
        to, source = memory(tile), memory(tensor_map.src[0])
        zero: Value = 0.0 if to.dtype.is_float else 0

        def work() -> None:
            read = Access(Does.READ, event, u, self.block, self.number, "bulk", fenced)
            written = Access(Does.WRITE, event, u, self.block, self.number, "bulk", fenced)
            cells = self.machine.cells_of(to, self.block)
            for element, at in pairs:
                value = zero
                if at >= 0:
                    self.touch(source, (at,), read)
                    value = self.machine.cells_of(source, WHOLE_GRID)[at]
                self.touch(to, (element,), written, (value,))
                cells[element] = value
            after = knowledge | Knowledge(known=1 << event)
            mbarrier.complete_bytes(after, event, len(pairs) * to.dtype.itemsize)
            mbarrier.end_phase(self.history)

        operation = _Operation(Engine.BULK, u, event, event, work)
        self.loads.append(operation)
        self.machine.ask(operation)

    def _bulk_store(self, u: UOp) -> None:
        tensor_map, tile, *coordinates = u.src
        pairs = self._box(u, tile, tensor_map, [self.values[c] for c in coordinates])
        if not pairs:
            return
        knowledge = self.close()
        reads, fenced = self.history.add(knowledge.known), knowledge.fenced
        writes = self.history.add(knowledge.known | 1 << reads)
        source, to = memory(tile), memory(tensor_map.src[0])

        def work() -> None:
            read = Access(Does.READ, reads, u, self.block, self.number, "bulk", fenced)
            written = Access(Does.WRITE, writes, u, self.block, self.number, "bulk", fenced)
            for element, at in pairs:
                self.touch(source, (element,), read)
                if at >= 0:
                    value = self.machine.cells_of(source, self.block)[element]
                    self.touch(to, (at,), written, (value,))
                    self.machine.cells_of(to, WHOLE_GRID)[at] = value

        operation = _Operation(Engine.BULK, u, reads, writes, work)
        self.groups[Engine.BULK].open.append(operation)
        self.machine.ask(operation)

    def commit(self, u: UOp) -> None:
        groups = self.groups[u.arg]
        groups.groups.append(groups.open)
        groups.open = []

    def wait_group(self, u: UOp) -> Turn:
        groups = self.groups[u.arg.engine].groups
        finished = groups[: max(0, len(groups) - u.arg.pending)]
        operations = [operation for group in finished for operation in group]
        if not all(o.done for o in operations):
            yield lambda: all(o.done for o in operations)
        known = 0
        for o in operations:
            o.waited = True
            known |= 1 << o.event
            if u.arg.engine is Engine.CP_ASYNC:
                self.own |= 1 << o.event  # an ordinary write of this thread from now on
            elif not u.arg.read:
                known |= 1 << o.written
        self.learn(Knowledge(known=known))

    # ---- for people
    def check(self, u: UOp) -> None:
        if not self.values[u.src[0]]:
            self.fault("ASSERTION", u)

    def show(self, u: UOp) -> None:
        """What is printed is not judged."""

    # ---- the end
    def report_stuck(self) -> None:
        place, at = self.machine.lines[self.line - 1].node, self.waits_at
        self.fault(self.waits_for, place)
        if at is not None and not at.knows_ends(self.knowledge.known, at.phase):
            self.fault("MBARRIER", place, at.memory, at.element, f"{AMBIGUOUS[1]}: it missed one")

    def report_unwaited(self) -> None:
        """Work that nobody waited for; a bulk load is waited for by any thread of the block."""
        if not self.finished:
            return
        for groups in self.groups.values():
            for operation in groups.all():
                if not operation.waited:
                    self.fault("UNWAITED", operation.place)
        block = [t for t in self.machine.threads if t.block == self.block]
        for operation in self.loads:
            if not any(t.knowledge.known >> operation.event & 1 for t in block):
                self.fault("UNWAITED", operation.place)


_EFFECTS: dict[Ops, Callable[[_Thread, UOp], Turn | None]] = {
    Ops.STORE: _Thread.store,
    Ops.ATOMIC: _Thread.atomic,
    Ops.BARRIER: _Thread.barrier,
    Ops.COPY: _Thread.copy,
    Ops.COMMIT: _Thread.commit,
    Ops.WAITG: _Thread.wait_group,
    Ops.FENCE: _Thread.fence,
    Ops.MBAR_INIT: _Thread.init,
    Ops.ARRIVE: _Thread.arrive,
    Ops.WAIT: _Thread.wait,
    Ops.PRINTF: _Thread.show,
    Ops.ASSERT: _Thread.check,
}


def _hardware(axes: Iterable[Axis], sizes: Dims, linear: int) -> dict[UOp, int]:
    """The values of hardware ranges for a linear block or thread number, x fastest."""
    x, y, _ = sizes
    position = (linear % x, linear // x % y, linear // (x * y))
    return {a.range: position[a.dim] // a.stride % a.range.arg.size for a in axes}


def _combined(u: UOp, old: Value, operands: Sequence[Value]) -> Value:
    atomic: Atomic = u.arg.atomic
    if atomic is Atomic.EXCHANGE:
        return operands[0]
    if atomic is Atomic.CAS:
        return operands[0] if old == operands[1] else old
    return function(Ops[atomic.name], u.dtype, None)(old, operands[0])


def _voted(u: UOp, lanes: Sequence[int], values: Sequence[Any]) -> Value:
    if u.op is Ops.WARP_REDUCE:
        combine: Combine = u.arg.combine
        total: Value = values[0]
        for value in values[1:]:
            total = function(Ops[combine.name], u.dtype, None)(total, value)
        return total
    if u.arg.vote is Vote.BALLOT:
        return sum(1 << lane for lane, value in zip(lanes, values, strict=True) if value)
    return any(values) if u.arg.vote is Vote.ANY else all(values)

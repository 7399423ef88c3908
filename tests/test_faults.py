"""Every kind of fault from the runtime's numbers: the report is compared word for word.

A case is a kernel as a user would write it, in a file called turn.py, and what the runtime says of
it.  Its golden text is the kernel and the report, to be read together.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from uopc import faults
from uopc.dtype import AddrSpace
from uopc.errors import CompilerError, UopcError
from uopc.faults import FaultKind, RawFault, explain
from uopc.faults.explain import Witness
from uopc.faults.raw import (
    AccumulatorFault,
    Agent,
    ClusterFault,
    CopyFault,
    MbarrierFault,
    WaitKind,
)
from uopc.faults.words import coordinates, lanes_text
from uopc.kernel import Do, Let, Source
from uopc.passes.linearize import linearize
from uopc.target import target
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops

HEAD = """\
from uopc.dtype import AddrSpace, dtypes
from uopc.uop.cursor import Cursor, tensor_map
from uopc.uop.node import UOp, buffer, range_, rank_
from uopc.uop.ops import *

x, y = buffer(0, dtypes.f32, (64,)), buffer(1, dtypes.f32, (64,))
tile = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (4, 16), AddrSpace.SHARED, "tile"))
acc = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.f32, (4,), AddrSpace.REG, "acc"))
full = UOp(Ops.ALLOC, (), ParamArg(0, dtypes.u64, (2,), AddrSpace.MBARRIER, "full"))
t, b = range_(64, 0, AxisType.LOCAL), range_(2, 1, AxisType.GLOBAL)
zero = UOp.const(0, dtypes.index)
c = Cursor()
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel, its names, and the Source that a checked rendering of it would be."""

    text: str
    names: dict[str, Any]
    source: Source

    @classmethod
    def of(cls, text: str) -> Kernel:
        names: dict[str, Any] = {}
        exec(compile(HEAD + text, "turn.py", "exec"), names)
        sink = names["c"].sink()
        program = linearize(sink)
        places: list[UOp] = []
        for item in program.walk():
            if isinstance(item, Let):
                places += _inside(item.value, places)
            elif isinstance(item, Do):
                places += _inside(item.effect, places)
        memories = [u for u in toposort(sink) if u.op in (Ops.BUFFER, Ops.ALLOC)]
        memories.sort(key=lambda u: (u.op is Ops.ALLOC, u.arg.slot))
        source = Source(
            "",
            name="turn",
            language="emulated",
            params=program.params,
            launch=program.launch,
            target=target("sm_90a"),
            places=tuple(places),
            memories=tuple(memories),
            program=program,
        )
        return cls(text, names, source)

    def raw(
        self,
        kind: FaultKind,
        place: str = "",
        on: str = "",
        element: int = 0,
        other: str = "",
        **given: Any,
    ) -> RawFault:
        """A fault at the node and on the memory of these names, of thread 3 unless told."""
        m = self.names[on] if on else None
        size = 0 if m is None else m.dtype.itemsize
        usual = dict(block=0, warp=0, lane=3, other_block=0, other_warp=0, other_lane=3)
        return RawFault(
            kind=kind,
            place=self._place(place),
            memory=-1 if m is None else self.source.memories.index(m),
            offset_bytes=element * size,
            other_place=self._place(other),
            other_engine="thread",
            **(usual | given),
        )

    def _place(self, name: str) -> int:
        return self.source.places.index(self.names[name]) if name else -1


def _inside(root: UOp, known: list[UOp]) -> list[UOp]:
    """Loads in a statement's text, and the statement."""
    loads = [u for u in toposort(root) if u.op is Ops.LOAD and u is not root and u not in known]
    return [*loads, root]


Says = Callable[[Kernel], faults.Report]


def said(kind: FaultKind, place: str = "", on: str = "", **given: Any) -> Says:
    """The report of one fault."""
    seen = {n: given.pop(n) for n in ("seen", "seen_before") if n in given}
    return lambda k: explain(k.raw(kind, place, on, **given), k.source, "turn", **seen)


TURN = """\
first = c.store(tile.index(t), x.index(t).load())
second = c.load(tile.index(63 - t))
c.store(y.index(t), second)
"""
LOOP = """\
c.store(tile.index(t), 0.0)
c.barrier()
with c.loop(range_(4, 2)):
    first = c.load(tile.index(63 - t))
    c.barrier()
    second = c.store(tile.index(t), first)
c.store(y.index(t), 0.0)
"""
IN_IF = """\
with c.when(t < 40):
    first = c.store(tile.index(t), x.index(t).load())
    c.syncwarp()
    second = c.load(tile.index(39 - t))
    c.store(y.index(t), second)
"""
NESTED = """\
with c.loop(range_(4, 2)) as i:
    first = c.store(tile.index(i * 16 + t), 0.0)
with c.loop(range_(4, 3)) as j:
    second = c.load(tile.index(j * 16 + 15 - t))
    c.store(y.index(t), second)
"""
DATA_INDEX = """\
row = x.index(t).load().cast(dtypes.i32) * 65536 * 65536
first = c.store(y.index(row.cast(dtypes.index) + t), 1.0)
"""
BLOCKS = "first = c.store(y.index(t), x.index(t).load() + b.cast(dtypes.f32))\n"
ALL_TO_ONE = "first = c.store(y.index(t // 64), x.index(t).load())\n"
ROLES = """\
with c.role("producer", 0, 1):
    first = c.store(tile.index(t), 1.0)
with c.role("consumer", 1, 1):
    second = c.load(tile.index(t))
    c.store(y.index(t), second)
"""
IN_PLACE = "second = c.store(y.index(t), first := c.load(y.index(63 - t)))\n"
ASYNC = """\
first = c.copy_async(tile.index(t), x.index(t))
c.commit(Engine.CP_ASYNC)
second = c.load(tile.index(63 - t))
c.store(y.index(t), second)
"""
BULK = """\
rows = tensor_map(x, (64,))
start = c.init(full.index(0), 1)
with c.when(t < 1):
    asked = c.arrive(full.index(0), 256)
    first = c.bulk_load(tile.index(0), rows, full.index(0), zero)
waited = c.wait(full.index(0), 0)
second = c.load(tile.index(t))
c.store(y.index(t), second)
"""
BULK_STORE = """\
rows = tensor_map(y, (64,))
with c.loop(range_(4, 2)):
    first = c.store(tile.index(t), x.index(t).load())
    c.barrier()
    with c.when(t < 1):
        second = c.bulk_store(rows, tile.index(0), zero)
        c.commit(Engine.BULK)
"""
CLUSTER = """\
rank = rank_(2, 1)
part = UOp(Ops.ALLOC, (), ParamArg(7, dtypes.f32, (2, 64), AddrSpace.CLUSTER, "part"))
c.cluster_arrive()
waited = c.cluster_wait()
first = c.store(part.index((1 - rank) * 64 + t), x.index(t).load())
c.cluster_barrier()
c.store(y.index(t), c.load(part.index(rank * 64 + t)))
"""
ATOMICS = """\
first = c.atomic(Atomic.ADD, y.index(0), 1.0)
second = c.load(y.index(0))
c.store(x.index(t), second)
"""
PRODUCT = """\
lane, warp = range_(32, 0, AxisType.LANE), range_(4, 1, AxisType.WARP)
half = UOp(Ops.ALLOC, (), ParamArg(1, dtypes.f16, (64, 16), AddrSpace.SHARED, "half"))
sums = UOp(Ops.ALLOC, (), ParamArg(1, dtypes.f32, (4,), AddrSpace.REG, "sums"))
arg = DescriptorArg(16, 256)
first = c.store(sums.index(0), 0.0)
a = c.descriptor(half.index(0), arg)
second = c.mma("wgmma.m64n8k16.f32.f16.f16", sums.index(0), a, a)
c.commit(Engine.WGMMA)
used = c.store(y.index(lane), c.load(sums.index(0)))
filled = c.store(half.index(warp * 32 + lane), 0.0)
"""
REGISTERS = """\
with c.loop(range_(4, 2)) as i:
    second = c.load(acc.index(zero))
    first = c.store(acc.index(zero), second + 1.0)
c.store(y.index(t), c.load(acc.index(zero)))
"""
WIDE = "first = c.do(Ops.STORE, y.index(t), x.index(t).load(), arg=AccessArg(4))\n"
PARTIAL = """\
with c.when(t < 40):
    first = c.barrier()
    c.store(y.index(t), 0.0)
second = c.barrier()
"""
TRIPS = """\
with c.loop(range_(4, 2)):
    first = c.barrier()
    c.store(y.index(t), 0.0)
"""
SHUFFLES = """\
v = x.index(t).load()
with c.when(t < 16):
    first = v.shuffle(1, ShuffleMode.DOWN)
    c.store(y.index(t), first)
"""
SAYS = """\
i = x.index(t).load()
first = c.check(i < 1.0, "x is below 1")
c.store(y.index(t), i)
"""

CASES: dict[str, tuple[str, Says]] = {
    # ---- races
    "race-barrier": (
        TURN,
        said(
            FaultKind.RACE,
            "second",
            "tile",
            element=35,
            warp=1,
            lane=28,
            other="first",
            other_warp=1,
            other_lane=3,
        ),
    ),
    "race-two-warps": (
        TURN,
        said(FaultKind.RACE, "second", "tile", element=3, warp=1, lane=28, other="first"),
    ),
    "race-met-backwards": (
        TURN,
        said(
            FaultKind.RACE, "first", "tile", element=3, other="second", other_warp=1, other_lane=28
        ),
    ),
    "race-several-lanes": (
        TURN,
        said(FaultKind.RACE, "second", "tile", element=3, warp=1, lane=32, other="first"),
    ),
    "race-end-of-loop": (
        LOOP,
        said(
            FaultKind.RACE,
            "first",
            "tile",
            element=3,
            warp=1,
            lane=28,
            other="second",
            seen=Witness(28, {"i2": 1}),
            seen_before=Witness(3, {"i2": 0}),
        ),
    ),
    "race-end-of-loop-guessed": (
        LOOP,
        said(FaultKind.RACE, "first", "tile", element=3, warp=1, lane=28, other="second"),
    ),
    "race-loop-met-backwards": (
        LOOP,
        said(
            FaultKind.RACE,
            "second",
            "tile",
            element=3,
            other="first",
            other_warp=1,
            other_lane=28,
            seen=Witness(3, {"i2": 0}),
            seen_before=Witness(28, {"i2": 1}),
        ),
    ),
    "race-in-if": (
        IN_IF,
        said(FaultKind.RACE, "second", "tile", element=2, warp=1, lane=5, other="first"),
    ),
    "race-after-loop": (
        NESTED,
        said(
            FaultKind.RACE,
            "second",
            "tile",
            element=19,
            warp=0,
            lane=12,
            other="first",
            other_warp=1,
            seen=Witness(12, {"i3": 1}),
            seen_before=Witness(3, {"i2": 1}),
        ),
    ),
    "race-blocks": (
        BLOCKS,
        said(FaultKind.RACE, "first", "y", element=3, block=1, other="first"),
    ),
    "race-roles": (
        ROLES,
        said(FaultKind.RACE, "second", "tile", element=3, warp=1, other="first"),
    ),
    "race-in-place": (
        IN_PLACE,
        said(FaultKind.RACE, "second", "y", element=3, other="first", other_warp=1),
    ),
    "race-cp-async-own": (
        ASYNC,
        said(FaultKind.RACE, "second", "tile", element=3, other="first"),
    ),
    "race-cp-async": (
        ASYNC,
        said(FaultKind.RACE, "second", "tile", element=3, warp=1, lane=28, other="first"),
    ),
    "race-cp-async-waited": (
        ASYNC.replace("second =", "c.wait_group(Engine.CP_ASYNC)\nsecond ="),
        said(FaultKind.RACE, "second", "tile", element=3, warp=1, lane=28, other="first"),
    ),
    "race-cp-async-not-covered": (
        ASYNC.replace("second =", "c.wait_group(Engine.CP_ASYNC, 1)\nc.barrier()\nsecond ="),
        said(FaultKind.RACE, "second", "tile", element=3, warp=1, lane=28, other="first"),
    ),
    "race-bulk-load": (
        BULK,
        said(FaultKind.RACE, "second", "tile", element=3, other="first", other_lane=0),
    ),
    "race-bulk-store": (
        BULK_STORE,
        said(
            FaultKind.RACE,
            "first",
            "tile",
            element=35,
            warp=1,
            other="second",
            other_lane=0,
            seen=Witness(3, {"i2": 1}),
            seen_before=Witness(0, {"i2": 0}),
        ),
    ),
    "race-before-bulk-store": (
        BULK_STORE,
        said(FaultKind.RACE, "second", "tile", element=35, lane=0, other="first", other_warp=1),
    ),
    "race-atomic": (
        ATOMICS,
        said(FaultKind.RACE, "second", "y", warp=1, other="first"),
    ),
    "race-wgmma": (
        PRODUCT,
        said(FaultKind.RACE, "filled", "half", element=3, warp=1, other="second", other_lane=32),
    ),
    "same-value": (
        BLOCKS,
        said(FaultKind.SAME_VALUE, "first", "y", element=3, block=1, other="first"),
    ),
    "race-one-statement": (
        ALL_TO_ONE,
        said(FaultKind.RACE, "first", "y", lane=4, other="first"),
    ),
    # ---- memory
    "bounds-store": (TURN, said(FaultKind.BOUNDS, "first", "tile", element=70)),
    "bounds-load": (TURN, said(FaultKind.BOUNDS, "second", "tile", element=-1)),
    "bounds-wide": (WIDE, said(FaultKind.BOUNDS, "first", "y", element=62)),
    "bounds-atomic": (ATOMICS, said(FaultKind.BOUNDS, "first", "y", element=64)),
    "misaligned": (WIDE, said(FaultKind.MISALIGNED, "first", "y", element=6)),
    "uninitialised-shared": (TURN, said(FaultKind.UNINITIALISED, "second", "tile", element=60)),
    "uninitialised-register": (
        REGISTERS,
        said(FaultKind.UNINITIALISED, "second", "acc", seen=Witness(3, {"i2": 0})),
    ),
    "uninitialised-output": (ATOMICS, said(FaultKind.UNINITIALISED, "first", "y")),
    "uninitialised-never-written": (
        "second = c.load(tile.index(t))\nc.store(y.index(t), second)\n",
        said(FaultKind.UNINITIALISED, "second", "tile", element=3),
    ),
    "unwritten-one": (TURN, said(FaultKind.UNWRITTEN, on="y", element=63)),
    "unwritten-several": (TURN, said(FaultKind.UNWRITTEN, on="y", element=62, detail=(2,))),
    "index-overflow": (
        DATA_INDEX,
        said(FaultKind.INDEX_OVERFLOW, "first", "y", element=3, detail=((3 << 32) + 3, 32)),
    ),
    "index-overflow-far": (
        DATA_INDEX,
        said(FaultKind.INDEX_OVERFLOW, "first", "y", element=3, detail=(3 << 70, 64)),
    ),
    # ---- meetings
    "barrier-part-of-a-warp": (
        PARTIAL,
        said(
            FaultKind.DIVERGENT_BARRIER, "first", warp=1, lane=32, detail=(0x000000FF, 0xFFFFFFFF)
        ),
    ),
    "barrier-other-one": (
        PARTIAL,
        said(FaultKind.DIVERGENT_BARRIER, "second", warp=1, lane=32, other="first", other_lane=32),
    ),
    "barrier-ended": (
        TRIPS,
        said(FaultKind.DIVERGENT_BARRIER, "first", warp=0, lane=32, other_warp=1),
    ),
    "members-missing": (
        SHUFFLES,
        said(FaultKind.MEMBERS, "first", lane=32, detail=(0xFFFFFFFF, 0xFFFF)),
    ),
    "members-strangers": (
        SHUFFLES,
        said(FaultKind.MEMBERS, "first", lane=32, detail=(0xFF, 0xFFFF)),
    ),
    "members-absent": (
        SHUFFLES,
        said(FaultKind.MEMBERS, "first", lane=15, detail=(0xFFFF, 0xFFFF, 16)),
    ),
    "barrier-number": (PARTIAL, said(FaultKind.BOUNDS, "first", lane=32)),
    # ---- asynchronous work
    "mbarrier-not-initialised": (
        BULK,
        said(
            FaultKind.MBARRIER,
            "waited",
            "full",
            warp=1,
            lane=32,
            detail=(MbarrierFault.NOT_INITIALISED, 0),
        ),
    ),
    "mbarrier-arrivals": (
        BULK,
        said(
            FaultKind.MBARRIER,
            "asked",
            "full",
            lane=0,
            detail=(MbarrierFault.TOO_MANY_ARRIVALS, 1),
        ),
    ),
    "mbarrier-alias": (
        BULK,
        said(FaultKind.MBARRIER, "waited", "full", lane=32, detail=(MbarrierFault.PARITY_ALIAS, 0)),
    ),
    "mbarrier-not-fenced": (
        BULK,
        said(
            FaultKind.MBARRIER,
            "first",
            "full",
            lane=0,
            other="start",
            detail=(MbarrierFault.NOT_FENCED, 0),
        ),
    ),
    "accumulator-not-fenced": (
        PRODUCT,
        said(
            FaultKind.ACCUMULATOR,
            "second",
            "sums",
            lane=32,
            detail=(AccumulatorFault.NOT_FENCED,),
        ),
    ),
    "accumulator-in-flight": (
        PRODUCT,
        said(
            FaultKind.ACCUMULATOR,
            "used",
            "sums",
            other="second",
            other_lane=32,
            detail=(AccumulatorFault.IN_FLIGHT,),
        ),
    ),
    "proxy-fence": (
        BULK_STORE,
        said(
            FaultKind.PROXY_FENCE,
            "second",
            "tile",
            element=35,
            lane=0,
            other="first",
            other_warp=1,
        ),
    ),
    "proxy-fence-reader": (
        BULK,
        said(FaultKind.PROXY_FENCE, "first", "tile", lane=0, other="second", other_warp=1),
    ),
    "unwaited": (BULK_STORE, said(FaultKind.UNWAITED, "second", detail=(Agent.BULK,), lane=0)),
    "unwaited-somewhere": (ASYNC, said(FaultKind.UNWAITED, detail=(Agent.CP_ASYNC,), warp=1)),
    "copy-lanes": (
        BULK,
        said(
            FaultKind.COPY,
            "first",
            "tile",
            lane=32,
            detail=(CopyFault.SEVERAL_LANES, 0xFFFFFFFF),
        ),
    ),
    "copy-destination": (
        BULK,
        said(
            FaultKind.COPY,
            "first",
            "tile",
            element=5,
            lane=0,
            detail=(CopyFault.DESTINATION, 128),
        ),
    ),
    "copy-coordinate": (
        BULK,
        said(FaultKind.COPY, "first", "tile", lane=0, detail=(CopyFault.COORDINATE, 20)),
    ),
    "cluster-not-started": (
        CLUSTER,
        said(
            FaultKind.CLUSTER,
            "first",
            "part",
            element=67,
            block=2,
            detail=(ClusterFault.NOT_STARTED, 1),
        ),
    ),
    "cluster-ended": (
        CLUSTER,
        said(FaultKind.CLUSTER, "first", "part", element=67, detail=(ClusterFault.ENDED, 1)),
    ),
    "cluster-not-arrived": (
        CLUSTER,
        said(FaultKind.CLUSTER, "waited", lane=32, detail=(ClusterFault.NOT_ARRIVED, 0)),
    ),
    "assertion": (SAYS, said(FaultKind.ASSERTION, "first")),
}


@pytest.mark.parametrize("name", CASES)
def test_reports(name: str, golden: Callable[[str, str], None]) -> None:
    text, says = CASES[name]
    golden(f"faults/{name}.txt", f"{text}\n{says(Kernel.of(text)).text}")


def test_a_deadlock_names_every_warp(golden: Callable[[str, str], None]) -> None:
    k = Kernel.of(BULK)
    waits = (WaitKind.MBARRIER, 0, 0, 1, 256)
    stuck = [
        k.raw(FaultKind.DEADLOCK, "waited", "full", warp=w, lane=32, detail=waits) for w in (0, 1)
    ]
    report = explain(stuck[0], k.source, "turn", together=stuck)
    golden("faults/deadlock-mbarrier.txt", f"{BULK}\n{report.text}")


def test_a_deadlock_at_named_barriers(golden: Callable[[str, str], None]) -> None:
    k = Kernel.of(PARTIAL)
    detail = (WaitKind.NAMED_BARRIER, 3, 1, 2)
    raw = k.raw(FaultKind.DEADLOCK, "first", lane=32, block=1, detail=detail)
    report = explain(raw, k.source, "turn", together=[raw])
    golden("faults/deadlock-named.txt", f"{PARTIAL}\n{report.text}")


def test_every_kind_has_a_class() -> None:
    told = {says(Kernel.of(text)).__class__ for text, says in CASES.values()}
    kinds = {c for c in vars(faults).values() if isinstance(c, type) and _is_report(c)}
    assert kinds - told == {faults.DeadlockError, faults.OrderError}
    assert len(told) + 1 == len(FaultKind)


def _is_report(c: type) -> bool:
    return issubclass(c, faults.Report) and c not in (faults.Report, faults.Fault)


# ---- what a report carries
def test_attributes() -> None:
    k = Kernel.of(TURN)
    raw = k.raw(FaultKind.RACE, "second", "tile", element=35, warp=1, lane=28, other="first")
    report = explain(raw, k.source, "turn")
    assert isinstance(report, faults.RaceError) and isinstance(report, UopcError)
    assert (report.kernel, report.flat, report.element) == ("turn", 35, (2, 3))
    assert report.memory is not None
    m = report.memory
    assert (m.name, m.space, m.shape) == ("tile0", AddrSpace.SHARED, (4, 16))
    first, second = report.accesses
    assert (first.kind, second.kind) == ("write", "read")
    assert (first.node, second.node) == (k.names["first"], k.names["second"])
    assert (second.block, second.thread, second.linear) == ((0, 0, 0), (60, 0, 0), 60)
    assert (second.warp, second.lane, second.place, second.engine) == (
        1,
        28,
        "turn.py:14",
        "thread",
    )
    assert report.hint.startswith("a barrier after the STORE at turn.py:13")
    assert str(report) == str(report.facts) and report.text == f"RaceError: {report}"


def test_an_element_outside_has_no_coordinates() -> None:
    report = said(FaultKind.BOUNDS, "first", "tile", element=70)(Kernel.of(TURN))
    assert (report.flat, report.element) == (70, None)


def test_a_warning_is_no_fault() -> None:
    report = said(FaultKind.SAME_VALUE, "first", "y", other="first")(Kernel.of(BLOCKS))
    assert isinstance(report, UserWarning) and not isinstance(report, UopcError)


def test_reports_travel_between_processes() -> None:
    report = said(FaultKind.BOUNDS, "first", "tile", element=70)(Kernel.of(TURN))
    again = pickle.loads(pickle.dumps(report))
    assert type(again) is type(report) and again.accesses[0].node is report.accesses[0].node


def test_without_a_tree_there_is_still_a_report() -> None:
    k = Kernel.of(LOOP)
    raw = k.raw(FaultKind.RACE, "first", "tile", element=3, warp=1, other="second")
    k.source.program = None
    assert "hint: a barrier after the STORE at turn.py:18" in explain(raw, k.source, "turn").text


@pytest.mark.parametrize(
    "kind", [FaultKind.RACE, FaultKind.PROXY_FENCE, FaultKind.UNWRITTEN, FaultKind.UNINITIALISED]
)
def test_numbers_that_are_missing_are_our_fault(kind: FaultKind) -> None:
    k = Kernel.of(TURN)
    with pytest.raises(CompilerError, match="of kernel turn has"):
        explain(k.raw(kind, "first"), k.source, "turn")


# ---- words
def test_lanes() -> None:
    assert lanes_text(0) == "no lane"
    assert lanes_text(1 << 31) == "lane 31"
    assert lanes_text(0x8000FF0F) == "lanes 0-3, 8-15, 31"


def test_coordinates() -> None:
    assert coordinates((4, 16), 35) == (2, 3)
    assert coordinates((), 0) == ()
    assert coordinates((4,), 4) is None and coordinates((4,), -1) is None
    assert coordinates((4, 0), 0) is None

"""A schedule made ready to run: its kernels compiled and loaded, its temporaries placed.

Compiled kernels are shared by all schedules that hold an equal body.  Temporaries of everything
that runs on a device lie in one arena, which grows: work on a device is in order, so a schedule may
overwrite what the one before it left.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from uopc.compiled import Kernel, Step
from uopc.dtype import DType, dtypes
from uopc.kernel import KernelBody
from uopc.passes.segments import USUAL_LENGTH, Segmented
from uopc.pipeline import compile_kernel, compile_segments
from uopc.runtime import observe
from uopc.runtime.buffer import Buffer
from uopc.runtime.cuda import device_target
from uopc.runtime.executor import Arguments, Launcher, errors_of
from uopc.runtime.segments import Chunks
from uopc.schedule.memory import ErrorWord, Leaf, Place, Temporary
from uopc.schedule.plan import Launch, Schedule
from uopc.target import Target, target
from uopc.uop.node import UOp, prod, toposort
from uopc.uop.ops import Ops

_TABLES_MAX = 16  # sets of memories whose tables a launch keeps
_compiled: dict[tuple[Any, ...], tuple[Kernel, tuple[Launcher, ...]]] = {}
_batched: dict[tuple[Any, ...], tuple[Step, Segmented]] = {}
_lock = threading.Lock()
_arenas: dict[str, _Arena] = {}

#: hears (launcher, buffers, the memories that it reads or writes, those that it writes) of every
#: launch that a run has made; buffers may be tables of addresses, the memories are what they mean
Listener = Callable[[Launcher, Arguments, list[Buffer], list[Buffer]], None]


def target_of(device: str) -> Target:
    """What kernels for a device are made for."""
    kind, _, ordinal = device.partition(":")
    if kind == "cuda":
        return device_target(int(ordinal or 0))
    return target("sm_80" if kind == "emulated" else "cpu")


class Prepared:
    """A schedule on a device: run it with the memories of its leaves.  The first run compiles."""

    def __init__(self, plan: Schedule, device: str) -> None:
        self.plan, self.device = plan, device

    def run(self, leaves: Sequence[Buffer], listener: Listener | None = None) -> list[Buffer]:
        """Start every kernel, in order; the memories of the results, by number.

        listener: what hears each launch with its buffers, for a replay.
        """
        results: dict[int, Buffer] = {}
        views = self._temporaries()

        def memory(place: Place) -> Buffer:
            if isinstance(place, Leaf):
                return leaves[place.number]
            if isinstance(place, Temporary):
                return views[place]
            if isinstance(place, ErrorWord):
                return errors_of(self.device)
            found = results.get(place.number)
            if found is None:
                found = results[place.number] = Buffer(self.device, place.dtype, place.size)
            return found

        # all memory first: where there is not enough, nothing has been overwritten yet
        work = [
            (launch, [[memory(p) for p in places] for places in launch.places])
            for launch in self._launches
        ]
        for launch, buffers in work:
            launch.prepare(buffers)
        for launch, buffers in work:
            launch.run(buffers, listener)
        return [results[n] for n in sorted(results)]

    @cached_property
    def _launches(self) -> list[_One | _Several]:
        return [
            _One(k, self.device) if len(k.places) == 1 else _Several(k, self.device)
            for k in self.plan.launches
        ]

    def _temporaries(self) -> dict[Temporary, Buffer]:
        if not self.plan.arena_bytes:
            return {}
        arena = _arena(self.device, self.plan.arena_bytes)
        found = arena.views.get(self)
        if found is None:
            places = {
                p
                for k in self.plan.launches
                for mine in k.places
                for p in mine
                if isinstance(p, Temporary)
            }
            found = {p: arena.memory.view(p.offset, p.dtype, p.size) for p in places}
            arena.views[self] = found
        return found


class _One:
    """A launch of one kernel: its steps."""

    def __init__(self, launch: Launch, device: str) -> None:
        self.places = launch.places
        kernel, self.launchers = _loaded(launch.body, launch.name, device)
        self.device = device
        self.partials = [(p.arg.slot, p.dtype, prod(p.arg.shape)) for p in kernel.partials]
        self.counters = kernel.counters
        self._zero: dict[int, Buffer] = {}  # counters, which every launch leaves as it found them

    def prepare(self, buffers: Sequence[list[Buffer]]) -> None:
        """Add the memory of values between the steps."""
        (mine,) = buffers
        if self.partials:
            last = max(slot for slot, _, _ in self.partials)
            mine += [mine[0]] * (last + 1 - len(mine))
            for slot, dtype, size in self.partials:
                mine[slot] = self._partial(slot, dtype, size)

    def _partial(self, slot: int, dtype: DType, size: int) -> Buffer:
        if slot not in self.counters:
            return Buffer(self.device, dtype, size)
        if slot not in self._zero:
            self._zero[slot] = Buffer(self.device, dtype, size).zero()
        return self._zero[slot]

    def run(self, buffers: Sequence[list[Buffer]], listener: Listener | None) -> None:
        (mine,) = buffers
        for launcher in self.launchers:
            try:
                launcher(mine)
            except BaseException:
                self._zero.clear()  # what it counted, nobody knows
                raise
            if listener is not None:
                written = [mine[p.slot] for p in launcher.source.params if p.written]
                listener(launcher, mine, mine, written)


class _Several:
    """A launch of one formula over several sets of arrays, through tables of their chunks."""

    def __init__(self, launch: Launch, device: str) -> None:
        self.places, self.device = launch.places, device
        body = launch.body
        self.written = [o.memory.arg.slot for o in body.outputs]
        memories = {u.arg.slot: u for u in _buffers(body)}
        self.chunks = Chunks(launch.sizes, USUAL_LENGTH)
        own = _own(launch)
        step, self.kernel = _segmented(body, self.chunks.count, own, launch.name, device)
        self.launcher = Launcher(step, device)
        self.itemsize = {slot: m.dtype.itemsize for slot, m in memories.items()}
        self.lengths = Buffer.from_numpy(device, self.chunks.lengths)
        self._tables: OrderedDict[tuple[int, ...], dict[int, Buffer]] = OrderedDict()

    def prepare(self, buffers: Sequence[list[Buffer]]) -> None:
        """There is nothing to add."""

    def run(self, buffers: Sequence[list[Buffer]], listener: Listener | None) -> None:
        key = tuple([b.address for mine in buffers for b in mine])
        tables = self._tables.get(key)
        if tables is None:
            tables = self._tables[key] = self._made(buffers)
            while len(self._tables) > _TABLES_MAX:
                self._tables.popitem(last=False)
        passed = {
            **dict(enumerate(buffers[0])),
            **tables,
            self.kernel.lengths: self.lengths,
        }
        self.launcher(passed)
        if listener is not None:
            written = [mine[slot] for mine in buffers for slot in self.written]
            listener(self.launcher, passed, [b for mine in buffers for b in mine], written)

    def _made(self, buffers: Sequence[list[Buffer]]) -> dict[int, Buffer]:
        """What stands at the slots of bundles, for these memories."""
        out: dict[int, Buffer] = {}
        for slot in (*self.kernel.chunks, *self.kernel.own):
            addresses = [mine[slot].address for mine in buffers]
            table = (
                self.chunks.table(addresses, self.itemsize[slot])
                if slot in self.kernel.chunks
                else self.chunks.own_table(addresses)
            )
            out[slot] = Buffer.from_numpy(self.device, table)
        return out


def steps_for(launch: Launch, on: str | Target, name: str) -> tuple[Step, ...]:
    """The steps of a launch, compiled for any target and not loaded.  Raises as `compile` does."""
    if len(launch.places) == 1:
        return compile_kernel(launch.body, on, name).steps
    chunks = Chunks(launch.sizes, USUAL_LENGTH)
    return (compile_segments(launch.body, chunks.count, _own(launch), on, name)[0],)


def _own(launch: Launch) -> list[int]:
    """Slots of one element that each set of arrays has its own of."""
    return [
        u.arg.slot
        for u in _buffers(launch.body)
        if u.shape == (1,) and len({places[u.arg.slot] for places in launch.places}) > 1
    ]


def _loaded(body: KernelBody, name: str, device: str) -> tuple[Kernel, tuple[Launcher, ...]]:
    key = (*_key(body), device)
    found = _compiled.get(key)
    if found is None:
        with observe.span(f"compile {name}"):
            kernel = compile_kernel(body, target_of(device), name)
            reports = bool(body.checked)
            launchers = tuple(Launcher(s, device, reports=reports) for s in kernel.steps)
        with _lock:
            found = _compiled.setdefault(key, (kernel, launchers))
    return found


def _segmented(
    body: KernelBody, count: int, own: Sequence[int], name: str, device: str
) -> tuple[Step, Segmented]:
    key = (*_key(body), count, tuple(own), device)
    found = _batched.get(key)
    if found is None:
        with observe.span(f"compile {name}"):
            made = compile_segments(body, count, own, target_of(device), name)
        with _lock:
            found = _batched.setdefault(key, made)
    return found


def _buffers(body: KernelBody) -> list[UOp]:
    roots = [u for o in body.outputs for u in (o.value, o.memory)]
    return [u for u in toposort(*roots) if u.op is Ops.BUFFER]


def _key(body: KernelBody) -> tuple[Any, ...]:
    """What equal bodies share: nodes are compared by identity."""
    outputs = tuple([(o.value, o.memory) for o in body.outputs])
    return outputs, body.sizes, frozenset(body.axes.items()), body.checked, body.errors


class _Arena:
    """Memory for temporaries.  views: those of each schedule; they go with the arena, so that one
    that was too small is not kept by schedules that ran in it."""

    def __init__(self, device: str, size_bytes: int) -> None:
        self.memory = Buffer(device, dtypes.u8, size_bytes)
        self.views: WeakKeyDictionary[Prepared, dict[Temporary, Buffer]] = WeakKeyDictionary()


def forget_arena(device: str) -> None:
    """Let the next schedule take a new one."""
    _arenas.pop(device, None)


def _arena(device: str, size_bytes: int) -> _Arena:
    """The memory for temporaries on a device; to be asked for, and used, in one turn."""
    found = _arenas.get(device)
    if found is None or found.memory.size < size_bytes:
        _arenas.pop(device, None)  # the new one may need its memory
        del found
        found = _arenas[device] = _Arena(device, size_bytes)
    return found

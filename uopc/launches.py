"""A kernel in whatever form it comes, as launches that can be emulated again and again.

`uopc.check` and `uopc.trace` take hand-written loop IR, a compiled Kernel, or shaped bodies; each
is a list of launches over arrays by slot.  The caller's arrays are read, never written: every run
has its own copies, and what the kernel has to write begins as bytes of 0xff, a NaN in every float
format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from uopc.dtype import Kind
from uopc.errors import UsageError
from uopc.kernel import Param, ProgramTree, Source
from uopc.pipeline import Kernel, compile, finish
from uopc.render.base import check_name
from uopc.render.emulate import render_emulated
from uopc.runtime.arrays import HostArray, check_arguments
from uopc.target import Target
from uopc.target import target as named_target
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import EFFECTS, Ops
from uopc.uop.spec import check as check_spec
from uopc.uop.stages import Stage

#: what is checked and traced: a SINK in stage LOOPS, a compiled Kernel, a shaped body or several
Subject: TypeAlias = UOp | Kernel | Sequence[UOp]
Arrays: TypeAlias = dict[int, HostArray]
#: hand-written kernels may use what any target has
WIDEST_TARGET = "sm_90a"
POISON = 0xFF
SMALL = 8  # random whole numbers are below it


@dataclass(frozen=True)
class Launch:
    """One launch: its kernel's name and tree."""

    name: str
    program: ProgramTree

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(p.slot for p in self.program.params)


@dataclass(frozen=True)
class Launches:
    """The launches of a kernel, and the arrays that a run begins with.

    params: of all launches, by slot; shapes: of the arrays that a run makes; given: the caller's
    arrays; outputs: slots of the results, in order; results: where the caller wants them.
    """

    name: str
    target: Target
    launches: tuple[Launch, ...]
    params: Mapping[int, Param]
    shapes: Mapping[int, tuple[int, ...]]
    given: Mapping[int, HostArray]
    outputs: tuple[int, ...]
    results: Mapping[int, HostArray]

    def arrays(self) -> Arrays:
        """Fresh arrays by slot: copies of what was given, poison elsewhere."""
        return {
            slot: self.given[slot].copy() if slot in self.given else self._poison(slot)
            for slot in self.params
        }

    def _poison(self, slot: int) -> HostArray:
        p = self.params[slot]
        size_bytes = p.size * p.dtype.itemsize
        made = np.full(size_bytes, POISON, np.uint8).view(p.dtype.numpy)
        return made.reshape(self.shapes[slot])

    def with_zeros(self, slots: Iterable[int]) -> Launches:
        """The same with zeros in these slots, where nothing was given.  Raises UsageError."""
        if unknown := sorted(frozenset(slots) - self.params.keys()):
            raise UsageError(
                f"kernel {self.name} has no slots {unknown}: initialised names some of "
                f"{list(self.params)}"
            )
        zeros = {s: np.zeros_like(self._poison(s)) for s in slots}
        return replace(self, given={**zeros, **self.given})

    def sources(self, **how: Any) -> tuple[Source, ...]:
        """The texts of all launches; how: as `render_emulated` takes it."""
        return tuple(
            render_emulated(x.program, x.name, target=self.target, **how) for x in self.launches
        )

    def deliver(self, arrays: Arrays) -> None:
        """Copy results to where the caller wants them."""
        for slot, to in self.results.items():
            to[...] = arrays[slot].reshape(to.shape)


def launches_of(
    kernel: Subject, arrays: Sequence[Any], out: Any = None, name: str = "kernel"
) -> Launches:
    """What to run.

    Parameters
    ----------
    kernel: loop IR (a SINK), a compiled Kernel for a GPU target, or shaped bodies.
    arrays: in slot order.  For loop IR: all of them, or all but those that it writes.
    out: an array or a list of them, for the results in slot order.
    name: what reports call the kernel; a Kernel has its own.

    Raises UsageError for arrays that do not fit, or a kernel that no GPU runs.
    """
    if isinstance(kernel, UOp) and kernel.op is Ops.SINK:
        return _by_hand(kernel, arrays, out, name)
    if not isinstance(kernel, Kernel):
        kernel = _compiled(kernel, name)
    return _of_kernel(kernel, arrays, out)


def _compiled(body: Any, name: str) -> Kernel:
    bodies = [body] if isinstance(body, UOp) else body
    if not isinstance(bodies, Sequence) or not all(isinstance(b, UOp) for b in bodies):
        raise UsageError(
            f"a kernel is a SINK, a compiled Kernel, a shaped body or a list of bodies, got "
            f"{type(body).__name__}"
        )
    return compile(bodies, target="emulated", name=name)


def _by_hand(sink: UOp, arrays: Sequence[Any], out: Any, name: str) -> Launches:
    check_spec(sink, Stage.LOOPS)
    check_name(name)
    program = finish(sink)
    params = {p.slot: p for p in program.params}
    if bundles := [slot for slot, p in params.items() if p.bundle]:
        raise UsageError(
            f"kernel {name}: slots {bundles} are bundles, which uopc.check and uopc.trace do not "
            "take. Run Program(emulate(kernel, check=True)) on lists of arrays."
        )
    shapes = {u.arg.slot: u.arg.shape for u in toposort(sink) if u.op is Ops.BUFFER}
    written = tuple(s for s, p in params.items() if p.written)
    inputs = tuple(s for s, p in params.items() if not p.written)
    if len(arrays) == len(params):
        slots = tuple(params)
    elif len(arrays) == len(inputs):
        slots = inputs
    else:
        raise UsageError(
            f"kernel {name} has {len(params)} parameters (slots {list(params)}), and writes "
            f"{list(written)}: pass {len(params)} arrays, or {len(inputs)} without those that it "
            f"writes; got {len(arrays)}"
        )
    given = _fitting(name, [replace(params[s], written=False) for s in slots], arrays)
    results = _results(name, [params[s] for s in written], out)
    on, launch = named_target(WIDEST_TARGET), Launch(name, program)
    return Launches(name, on, (launch,), params, shapes, given, written, results)


def _of_kernel(kernel: Kernel, arrays: Sequence[Any], out: Any) -> Launches:
    name = kernel.steps[-1].source.name
    if not kernel.target.is_gpu:
        raise UsageError(
            f"kernel {name} is compiled for {kernel.target}, which has no threads to check. "
            "Compile it with target='emulated', or pass its body."
        )
    params = {p.slot: p for step in kernel.steps for p in step.program.params}
    params = {slot: params[slot] for slot in sorted(params)}
    inputs = [s for s in kernel.input_slots if s in params]
    if len(arrays) != len(kernel.input_slots):
        raise UsageError(
            f"kernel {name} takes {len(kernel.input_slots)} inputs (slots "
            f"{list(kernel.input_slots)}), got {len(arrays)}"
        )
    taken = dict(zip(kernel.input_slots, arrays, strict=True))
    given = _fitting(name, [params[s] for s in inputs], [taken[s] for s in inputs])
    shapes = {p.arg.slot: p.arg.shape for p in kernel.partials}
    given |= {s: np.zeros(shapes[s], params[s].dtype.numpy) for s in kernel.counters}
    shapes |= dict(zip(kernel.output_slots, kernel.out_shapes, strict=True))
    launches = tuple(Launch(step.source.name, step.program) for step in kernel.steps)
    results = _results(name, [params[s] for s in kernel.output_slots], out)
    return Launches(
        name, kernel.target, launches, params, shapes, given, kernel.output_slots, results
    )


def _fitting(name: str, params: Sequence[Param], arrays: Sequence[Any]) -> dict[int, HostArray]:
    """The arrays by slot, once `check_arguments` has looked at them."""
    bound = check_arguments(name, params, arrays)
    return {p.slot: np.asarray(a) for p, a in zip(params, bound, strict=True)}


def _results(name: str, params: Sequence[Param], out: Any) -> dict[int, HostArray]:
    if out is None:
        return {}
    given = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(given) != len(params):
        raise UsageError(f"kernel {name} writes {len(params)} arrays, out= holds {len(given)}")
    return _fitting(name, params, given)


def random_arrays(kernel: UOp | Kernel, seed: int) -> list[HostArray]:
    """Small random inputs: normal floats, whole numbers that may be indices, bools.

    For loop IR an array for each parameter, zeros where it is written.  Raises UsageError where
    memory has no room for them.
    """
    try:
        return _random_arrays(kernel, seed)
    except MemoryError:
        raise UsageError(
            "there is no memory for random arrays of this kernel. Give smaller shapes, or arrays "
            "of your own."
        ) from None


def _random_arrays(kernel: UOp | Kernel, seed: int) -> list[HostArray]:
    random = np.random.default_rng(seed)
    if isinstance(kernel, Kernel):
        found = {p.slot: p for step in kernel.steps for p in step.program.params}
        unread = {s for s in kernel.input_slots if s not in found}  # any array will do
        return [
            np.zeros(0) if slot in unread else _random(random, found[slot])
            for slot in kernel.input_slots
        ]
    return [_random(random, p) for p in finish(kernel).params]


def _random(random: np.random.Generator, p: Param) -> HostArray:
    shape = () if p.scalar else (p.size,)
    if p.written:
        return np.zeros(shape, p.dtype.numpy)
    if p.dtype.is_float:
        return np.asarray(random.standard_normal(shape)).astype(p.dtype.numpy)
    highest = 2 if p.dtype.kind is Kind.BOOL else SMALL
    return np.asarray(random.integers(0, highest, shape)).astype(p.dtype.numpy)


def has_engines(x: Launches) -> bool:
    """Does anything in it work on its own: copies, tensor cores of a warpgroup?"""
    return any(u.op in (Ops.COPY, Ops.COMMIT) for u in _nodes(x))


def _nodes(x: Launches) -> list[UOp]:
    return [u for one in x.launches for u in toposort(one.program.sink) if u.op in EFFECTS]

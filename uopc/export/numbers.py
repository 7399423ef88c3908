"""Inputs that a C program makes again bit for bit, and what must come out of them.

Inputs come from a counter: element i of stream s is a mix of (SEED, s, i), so that any language
with 64-bit integers makes the same ones, in any order.  Floats are multiples of a power of two that
their dtype holds exactly.  For tensor cores they are coarse ones, whose products and sums are exact
in f32 whatever order an instruction takes.

What must come out is computed when the kernel is exported, by the emulation of its own launches;
where that takes too long, by the native CPU kernel of the same bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from uopc.compiled import Kernel
from uopc.dtype import DType, Kind
from uopc.errors import UopcError, UsageError
from uopc.export.described import Array, Exported
from uopc.export.exactness import (
    COARSE_UNITS,
    NARROW_UNITS,
    SMALL,
    bits_are_known,
    has_float_product,
    relative_tolerance,
)
from uopc.launches import Launches, launches_of
from uopc.pipeline import compile
from uopc.runtime.arrays import HostArray
from uopc.runtime.program import Program
from uopc.uop.node import UOp

SEED = 1
#: 2**64 over the golden ratio: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
#: Generators, OOPSLA 2014), whose finaliser `mixed` is
STEP = 0x9E3779B97F4A7C15
MULTIPLY = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
#: streams of sampled positions come after those of arrays, which are their slots
POSITIONS = 1 << 20
#: what all NaNs count as in a checksum
NAN_WORD = 0x7FF8_0000_0000_0000

#: outputs of at most so many elements are kept whole, of larger ones a sample: both ends, and
#: as many elements between them as in both
KEPT_WHOLE, EDGE = 1 << 14, 1 << 10
SAMPLES = 4 * EDGE
#: bytes of a user's own arrays that are kept
FILE_MAX_BYTES = 64 << 20
#: statements that an emulation may take: some ten seconds
EMULATED_MAX_WORK = 2_000_000_000
_CHUNK = 1 << 22


class Start(Enum):
    """What is in an array before a launch."""

    GENERATED = "GENERATED"  # from the counter
    KEPT = "KEPT"  # from the file beside the program
    ZEROS = "ZEROS"
    POISON = "POISON"  # bytes of 0xff, a NaN in every float format: what is not written shows


@dataclass(frozen=True, eq=False)
class Wanted:
    """What an output must hold.

    samples: the values at `positions`.  exact: the same bits (all NaNs are one value), and then
    checksum is of all elements; else |got - want| <= relative * |want| + absolute.
    nans: of the samples, how many are NaN.
    """

    samples: HostArray
    exact: bool
    checksum: int
    relative: float
    absolute: float
    nans: int


@dataclass(frozen=True, eq=False)
class Numbers:
    """How each array begins, and what it must hold after a launch.

    values: what generated elements are chosen from, by slot; where a slot has none they are
    multiples of 2**-23 in [-1, 1).  kept: arrays of the user's file, by slot.
    by: what the results were computed with, "" where there are none; why_not: then, the reason.
    """

    start: dict[int, Start]
    values: dict[int, HostArray]
    kept: dict[int, HostArray]
    wanted: dict[int, Wanted]
    by: str
    why_not: str


# ---- the generator
def mixed(z: HostArray) -> HostArray:
    """The finaliser of SplitMix64 of each element, u64."""
    z = z ^ (z >> np.uint64(30))
    z = z * np.uint64(MULTIPLY[0])
    z = z ^ (z >> np.uint64(27))
    z = z * np.uint64(MULTIPLY[1])
    return np.asarray(z ^ (z >> np.uint64(31)))


def random_bits(stream: int, first: int, count: int) -> HostArray:
    """Elements first, first + 1, ... of a stream, u64."""
    start = np.array([(SEED * STEP + stream + 1) % (1 << 64)], np.uint64)
    counter = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    return mixed(mixed(start) + counter * np.uint64(STEP))


def values_for(dtype: DType, coarse: bool) -> HostArray | None:
    """What generated elements are chosen from; None where they are fine floats."""
    if dtype.kind is Kind.BOOL:
        return np.arange(2).astype(dtype.numpy)
    if not dtype.is_float:
        return np.arange(SMALL).astype(dtype.numpy)
    if dtype.itemsize == 1:
        steps = NARROW_UNITS if coarse else 8
    elif coarse:
        steps = COARSE_UNITS
    elif dtype.itemsize == 2:
        steps = 128
    else:
        return None
    return (np.arange(-steps, steps + 1) / steps).astype(dtype.numpy)


def generated(stream: int, dtype: DType, size: int, values: HostArray | None) -> HostArray:
    """An array (size,) of generated elements."""
    out = np.empty(size, dtype.numpy)
    for first in range(0, size, _CHUNK):
        to = out[first : first + _CHUNK]
        bits = random_bits(stream, first, to.size)
        if values is None:
            whole = (bits >> np.uint64(40)).astype(np.int64) - (1 << 23)
            to[...] = whole * 2.0**-23
        else:
            to[...] = values[(bits >> np.uint64(32)) % np.uint64(values.size)]
    return out


# ---- outputs
def positions(slot: int, size: int) -> HostArray:
    """Which elements of an output are kept, (n,) i64."""
    if size <= KEPT_WHOLE:
        return np.arange(size)
    inner = random_bits(POSITIONS + slot, 0, SAMPLES - 2 * EDGE) % np.uint64(size)
    ends = np.arange(EDGE)
    return np.concatenate([ends, size - EDGE + ends, inner.astype(np.int64)])


def checksum(array: HostArray) -> int:
    """One number of all elements and their places; all NaNs are one value."""
    flat = array.reshape(-1)
    total = 0
    for first in range(0, flat.size, _CHUNK):
        part = flat[first : first + _CHUNK]
        words = part.view(f"u{part.itemsize}").astype(np.uint64)
        words[_is_nan(part)] = NAN_WORD
        places = mixed(np.arange(first, first + part.size, dtype=np.uint64))
        total += int(mixed(words ^ places).sum(dtype=np.uint64))
    return total % (1 << 64)


def _typical(values: HostArray) -> float:
    """The root of the mean square of what is finite."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0.0))
    return largest * float(np.sqrt(np.mean((finite / largest) ** 2))) if largest else 0.0


def _is_nan(array: HostArray) -> HostArray:
    return np.asarray(array != array)


def _wanted(exported: Exported, x: Array, value: HostArray, exact: bool) -> Wanted:
    flat = value.reshape(-1)
    samples = flat[positions(x.slot, x.size)]
    relative = absolute = 0.0
    if x.dtype.is_float and not exact:
        typical = _typical(flat.astype(np.float64))
        relative = relative_tolerance(exported, x.dtype)
        absolute = relative * typical
    exact = exact or not x.dtype.is_float
    sum_of_all = checksum(value) if exact else 0
    nans = int(_is_nan(samples).sum())
    return Wanted(samples, exact, sum_of_all, relative, absolute, nans)


# ---- what a kernel makes of them
def numbers_for(
    exported: Exported,
    bodies: Sequence[UOp],
    arrays: Sequence[Any] | None,
    check: bool,
) -> Numbers:
    """How the exported program fills its arrays, and what it compares them with.

    bodies: what the kernel computes, where that is known.  arrays: of the user's file, in slot
    order.  check: False wants no results.

    Raises UsageError for arrays that do not fit or are too large to be kept, UopcError where the
    emulation of the kernel shows a fault.
    """
    own = _own(exported, arrays)
    plain = [x for x in exported.arrays if x.slot not in own and x.slot in _inputs(exported)]
    work, why_not, by = 0, "", ""
    if check:
        launches = _launches(exported, _empty(exported, own))
        work = sum(source.work for source in launches.sources(check=False))
        by = "emulated" if work <= EMULATED_MAX_WORK else "native" if bodies else ""
        if not by:
            why_not = f"its emulation takes {work:.1e} statements, more than an export waits for"
    else:
        why_not = "it was exported with --no-check"
    coarse = by == "native" or has_float_product(exported)
    values = {x.slot: v for x in plain if (v := values_for(x.dtype, coarse)) is not None}
    start = {x.slot: _start(exported, x, own) for x in exported.arrays}
    given = {s: a for s, a in own.items() if start[s] is Start.KEPT}
    if not by:
        return Numbers(start, values, given, {}, "", why_not)
    inputs = dict(own)
    for x in plain:
        made = generated(x.slot, x.dtype, x.size, values.get(x.slot))
        inputs[x.slot] = made.reshape(()) if x.scalar else made
    emulated = by == "emulated"
    results = _emulated(exported, inputs) if emulated else _native(exported, bodies, inputs)
    exact = bits_are_known(exported, bodies, emulated, coarse and not own)
    outputs = [x for x in exported.arrays if x.written]
    wanted = {x.slot: _wanted(exported, x, results[x.slot], exact) for x in outputs}
    return Numbers(start, values, given, wanted, by, "")


def _inputs(exported: Exported) -> tuple[int, ...]:
    """Slots of what the caller gives.  A hand-written kernel may read what it writes."""
    if isinstance(exported.subject, Kernel):
        return exported.subject.input_slots
    return tuple(x.slot for x in exported.arrays if not x.written)


def _start(exported: Exported, x: Array, own: dict[int, HostArray]) -> Start:
    if x.slot in own:
        return Start.KEPT if own[x.slot].any() or not x.written else Start.ZEROS
    if x.slot in _inputs(exported):
        return Start.GENERATED
    # a compiled kernel writes all of an output; a hand-written one may count in it
    return Start.POISON if isinstance(exported.subject, Kernel) else Start.ZEROS


def _own(exported: Exported, arrays: Sequence[Any] | None) -> dict[int, HostArray]:
    """The user's arrays by slot.  Raises UsageError where they do not fit, or are too large."""
    if arrays is None:
        return {}
    launches = launches_of(exported.subject, arrays, name=exported.name)
    exported_slots = {x.slot for x in exported.arrays}
    own = {s: a for s, a in launches.given.items() if s in exported_slots}
    if (total := sum(a.nbytes for a in own.values())) > FILE_MAX_BYTES:
        raise UsageError(
            f"{exported.name}: the arrays of its file have {total >> 20} MiB; at most "
            f"{FILE_MAX_BYTES >> 20} MiB are kept beside an exported kernel. Give smaller ones, or "
            "none: then they are generated."
        )
    return own


def _empty(exported: Exported, own: dict[int, HostArray]) -> dict[int, HostArray]:
    """Arrays of the right sizes.  Raises UsageError where memory has no room for them."""
    shapes = {x.slot: () if x.scalar else (x.size,) for x in exported.arrays}
    try:
        return {x.slot: np.zeros(shapes[x.slot], x.dtype.numpy) for x in exported.arrays} | own
    except MemoryError:
        size = sum(x.size * x.dtype.itemsize for x in exported.arrays)
        raise UsageError(
            f"{exported.name} has arrays of {size >> 20} MiB, for which there is no memory here: "
            "nothing can be computed to compare with. Export it with --no-check."
        ) from None


def _launches(exported: Exported, inputs: dict[int, HostArray]) -> Launches:
    """The launches of a kernel on these arrays by slot; zeros where a hand-written one writes."""
    subject = exported.subject
    if isinstance(subject, Kernel):  # an input that its text does not mention may be anything
        arrays = [inputs.get(slot, np.zeros(0)) for slot in subject.input_slots]
        return launches_of(subject, arrays, name=exported.name)
    found = {x.slot: np.zeros(x.size, x.dtype.numpy) for x in exported.arrays if x.written}
    found |= inputs
    return launches_of(subject, [found[x.slot] for x in exported.arrays], name=exported.name)


def _emulated(exported: Exported, inputs: dict[int, HostArray]) -> dict[int, HostArray]:
    launches = _launches(exported, inputs)
    arrays = launches.arrays()
    for one, source in zip(launches.launches, launches.sources(check=False), strict=True):
        outcome = Program(source).run([arrays[s] for s in one.slots])
        if not outcome.ok:
            kinds = ", ".join(sorted({f.kind.name for f in outcome.faults}))
            raise UopcError(
                f"{exported.name} shows a fault where it is emulated ({kinds}): there is nothing "
                "that its results could be compared with. uopc check FILE:NAME says more; give it "
                f"other inputs as {exported.name}_arrays, or export it with --no-check."
            )
    return arrays


def _native(
    exported: Exported, bodies: Sequence[UOp], inputs: dict[int, HostArray]
) -> dict[int, HostArray]:
    """The outputs by the native CPU kernel of the same bodies."""
    kernel = compile(list(bodies), None, "cpu", exported.name)
    flat = [inputs[slot].reshape(-1) for slot in kernel.input_slots]
    scalars = {x.slot for x in exported.arrays if x.scalar}
    arrays = [
        a.reshape(()) if slot in scalars else a
        for slot, a in zip(kernel.input_slots, flat, strict=True)
    ]
    out = kernel(*arrays)
    results = out if isinstance(out, list) else [out]
    return dict(zip(kernel.output_slots, results, strict=True))

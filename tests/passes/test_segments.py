"""One launch for many arrays: the same numbers as one array at a time, whatever their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.helpers import assert_same, random_array, reduce_over
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.faults import BoundsError, RaceError, UninitialisedError, UnwrittenError
from uopc.opts import Opts
from uopc.passes.segments import Segmented, segment_opts, segments
from uopc.pipeline import emulate, lower, render_cuda, render_native
from uopc.runtime import cuda, nvrtc
from uopc.runtime.emulated import RunOptions
from uopc.runtime.program import Program
from uopc.runtime.segments import Chunks, count_for
from uopc.uop.node import UOp, buffer, derive, range_, sink, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops
from uopc.uop.oracle import OutOfBoundsError, run
from uopc.uop.spec import Stage, check
from uopc.uop.text import parse, show

pytestmark = pytest.mark.usefixtures("unchecked")

N, LENGTH = 7, 64
F32, AXIS = dtypes.f32, range_(N, 0)
ONE, ALSO_ONE = buffer(8, F32, (1,)), buffer(9, F32, (1,))
SIZES = ((1, 31, 65, 0, 64, 200), (4097,), (0, 0), (63, 1, 1, 129), (16,) * 5)


def at(slot: int, dtype: DType = F32) -> UOp:
    return buffer(slot, dtype, (N,)).index(AXIS)


def scaled() -> UOp:
    return sink(at(1).store(at(0).load() * 2.0 + ONE.index(0).load()).end(AXIS))


def adam() -> UOp:
    p, g, m, v = (at(slot) for slot in range(4))
    first = m.load() * 0.75 + g.load() * 0.25
    second = v.load() * 0.5 + g.load() * g.load()
    new = p.load() - ONE.index(0).load() * first / (second.sqrt() + 0.5)
    return sink(p.store(new).end(AXIS), m.store(first).end(AXIS), v.store(second).end(AXIS))


def clipped() -> UOp:
    return sink(at(0).store(at(0).load() * ALSO_ONE.index(0).load()).end(AXIS))


def halves() -> UOp:
    master = at(1).load() - at(2, dtypes.bf16).load().cast(F32)
    return sink(
        at(1).store(master).end(AXIS),
        at(0, dtypes.bf16).store(master.cast(dtypes.bf16)).end(AXIS),
    )


def where_asked() -> UOp:
    return sink(at(1).store(at(0).load(at(2, dtypes.bool).load(), -1.0)).end(AXIS))


@dataclass(frozen=True)
class Case:
    """A kernel, what it has for each array of its own, and what it does to one array at a time."""

    build: Callable[[], UOp]
    does: Callable[..., dict[int, Array]]
    own: tuple[int, ...] = ()


def _adam(x: dict[int, Array]) -> dict[int, Array]:
    p, g, m, v = (x[k] for k in range(4))
    m = m * np.float32(0.75) + g * np.float32(0.25)
    v = v * np.float32(0.5) + g * g
    return {0: p - x[8] * m / (np.sqrt(v) + np.float32(0.5)), 2: m, 3: v}


def _halves(x: dict[int, Array]) -> dict[int, Array]:
    master = x[1] - x[2].astype(np.float32)
    return {0: master.astype(x[2].dtype), 1: master}


CASES = {
    "scaled": Case(scaled, lambda x: {1: x[0] * np.float32(2) + x[8]}),
    "adam": Case(adam, _adam),
    "clipped": Case(clipped, lambda x: {0: x[0] * x[9]}, own=(9,)),
    "halves": Case(halves, _halves),
    "where asked": Case(where_asked, lambda x: {1: np.where(x[2], x[0], np.float32(-1))}),
}
MAPPINGS = {
    "usual": None,
    "scalar": Opts(gpu=True, local={1: 32}),
    "grid of both": Opts(gpu=True, local={1: 4}, vector={1: 4}, lanes=(1, 0), grid=(1, 0)),
    "chunks in a block": Opts(gpu=True, local={0: 4, 1: 8}, vector={1: 2}),
    "chunks in a thread": Opts(gpu=True, local={1: 32}, upcast={0: 2, 1: 2}),
    "one thread": Opts(gpu=True, blocks={0: 1, 1: 1}),
}


class Arrays:
    """What a segmented kernel works on: flat arrays a slot, scalars, and the tables of sizes."""

    def __init__(self, kernel: Segmented, sizes: Sequence[int], rng: np.random.Generator) -> None:
        self.kernel, self.chunks = kernel, Chunks(tuple(sizes), kernel.length, kernel.count)
        self.dtypes = {u.arg.slot: u.dtype for u in toposort(kernel.root) if u.op is Ops.BUFFER}
        self.flat = {
            slot: [random_array(rng, self.dtypes[slot], (n,)) for n in sizes]
            for slot in kernel.chunks
        }
        self.of_each = {
            slot: [random_array(rng, self.dtypes[slot], (1,)) for _ in sizes] for slot in kernel.own
        }
        self.shared = {8: np.array([0.25], np.float32)} if 8 in self.dtypes else {}
        for k in self.flat.get(3, []):
            np.abs(k, out=k)

    def arguments(self, flat: dict[int, list[Array]] | None = None) -> dict[int, Any]:
        """By slot; bundles as lists of chunks."""
        lists = {s: self.chunks.views(x) for s, x in (flat or self.flat).items()}
        own = {s: self.chunks.own_views(x) for s, x in self.of_each.items()}
        return {**lists, **own, **self.shared, self.kernel.lengths: self.chunks.lengths}

    def copies(self) -> dict[int, list[Array]]:
        return {slot: [x.copy() for x in arrays] for slot, arrays in self.flat.items()}

    def expected(self, case: Case) -> dict[int, list[Array]]:
        """One array after the other."""
        out: dict[int, list[Array]] = {}
        for n in range(len(self.chunks.sizes)):
            mine = {s: x[n] for s, x in (self.flat | self.of_each).items()}
            for slot, x in case.does({**mine, **self.shared}).items():
                out.setdefault(slot, []).append(x)
        return out

    def assert_written(self, got: dict[int, list[Array]], case: Case) -> None:
        """Arrays that were written are as expected, others as they were."""
        want = self.flat | self.expected(case)
        for slot, arrays in got.items():
            for x, y in zip(arrays, want[slot], strict=True):
                assert_same(x, y)

    def assert_chunks(self, got: dict[int, list[Array]], case: Case) -> None:
        for slot, arrays in self.expected(case).items():
            for x, y in zip(got[slot], self.chunks.views(arrays), strict=True):
                assert_same(x, y)


def made(name: str, count: int, length: int = LENGTH) -> Segmented:
    return segments(CASES[name].build(), count, CASES[name].own, length)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_way_gives_the_same(
    name: str, sizes: tuple[int, ...], rng: np.random.Generator
) -> None:
    case, kernel = CASES[name], made(name, count_for(sizes, LENGTH))
    check(kernel.root, Stage.INDEXED)
    assert parse(show(kernel.root)) is kernel.root
    x = Arrays(kernel, sizes, rng)
    given = x.arguments()
    x.assert_chunks(run(kernel.root, given, Stage.INDEXED), case)
    loops = lower(kernel.root, segment_opts(kernel, True))
    check(loops, Stage.LOOPS, True)
    x.assert_chunks(run(loops, given, Stage.LOOPS), case)
    native = lower(kernel.root, segment_opts(kernel, False))
    check(native, Stage.LOOPS, False)
    sources = [
        emulate(loops, "update"),
        emulate(loops, "update", order="backward"),
        *(emulate(loops, "update", check=True, order=o) for o in ("forward", "shuffled(3)")),
        render_native(native, "update"),
    ]
    for source in sources:
        flat = x.copies()
        slots = [p.slot for p in source.params]
        arguments = x.arguments(flat)
        Program(source)(*(arguments[s] for s in slots))
        x.assert_written(flat, case)


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", ["scaled", "adam", "clipped"])
def test_every_mapping_gives_the_same(name: str, mapping: str, rng: np.random.Generator) -> None:
    case, sizes = CASES[name], SIZES[0]
    kernel = made(name, count_for(sizes, LENGTH))
    x = Arrays(kernel, sizes, rng)
    loops = lower(kernel.root, MAPPINGS[mapping] or segment_opts(kernel, True))
    x.assert_chunks(run(loops, x.arguments(), Stage.LOOPS), case)
    for checked in (False, True):
        source, flat = emulate(loops, "update", check=checked), x.copies()
        arguments = x.arguments(flat)
        Program(source)(*(arguments[p.slot] for p in source.params))
        x.assert_written(flat, case)


# ---- the text
def text_of(name: str, count: int, length: int = 4096) -> str:
    kernel = made(name, count, length)
    return str(render_cuda(lower(kernel.root, segment_opts(kernel, True)), "update", "sm_90"))


def test_the_text_does_not_depend_on_the_number_of_arrays() -> None:
    assert text_of("adam", 1) != text_of("adam", 2)  # one chunk has no number
    assert text_of("adam", 2) == text_of("adam", 1 << 20)


def test_accesses_are_wide() -> None:
    text = text_of("adam", 8)
    assert text.count("= ok0 ? *(const float4*)&seg") == 4
    assert text.count("if (ok0) *(float4*)&seg") == 3
    assert "ushort" not in text_of("halves", 8)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_nvrtc_takes_it(name: str, target: str) -> None:
    kernel = made(name, 8, 4096)
    source = render_cuda(lower(kernel.root, segment_opts(kernel, True)), "update", target)
    used = nvrtc.compile_cubin(source, "update", source.target).resources
    assert not used.spills and used.stack_bytes == 0


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_the_same(name: str, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
    case, kernel = CASES[name], made(name, count_for(sizes, LENGTH))
    x = Arrays(kernel, sizes, rng)
    loops = lower(kernel.root, segment_opts(kernel, True))
    source, flat = render_cuda(loops, "update", cuda.device_target()), x.copies()
    arguments = x.arguments(flat)
    cuda.run_cuda(source, "update", None, None, *(arguments[p.slot] for p in source.params))
    x.assert_written(flat, case)


# ---- what the checked emulator finds
def checked(root: UOp, x: Arrays, opts: Opts | None = None) -> None:
    loops = lower(root, opts or segment_opts(x.kernel, True))
    source = emulate(loops, "update", check=True)
    arguments = x.arguments(x.copies())
    Program(source)(*(arguments[p.slot] for p in source.params))


def rebuilt(root: UOp, change: Callable[[UOp, tuple[UOp, ...]], tuple[UOp, ...]]) -> UOp:
    memo: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = change(u, tuple([memo[s] for s in u.src]))
        memo[u] = u if src == u.src else derive(u, src)
    return memo[root]


def without_guards(op: Ops) -> Callable[[UOp, tuple[UOp, ...]], tuple[UOp, ...]]:
    kept = 1 if op is Ops.LOAD else 2
    return lambda u, src: src[:kept] if u.op is op and len(src) > kept else src


@pytest.mark.parametrize(("op", "vector"), [(Ops.LOAD, 4), (Ops.STORE, 4), (Ops.STORE, 1)])
def test_a_missing_guard_is_found(op: Ops, vector: int, rng: np.random.Generator) -> None:
    kernel = made("scaled", 8)
    x = Arrays(kernel, (64, 31, 200), rng)
    broken = rebuilt(kernel.root, without_guards(op))
    opts = Opts(gpu=True, local={1: 16}, vector={1: vector}, loop={1: 4 // vector})
    slot, what = (0, "read") if op is Ops.LOAD else (1, "write")
    first = 28 if vector == 4 else 32  # a lane has its turn of all iterations before the next
    with pytest.raises(BoundsError, match=rf"{what} of element {first} of global p{slot}\[1\]"):
        checked(broken, x, opts)
    with pytest.raises(OutOfBoundsError, match=rf"p{slot}\[.*memory of 31 elements"):
        run(broken, x.arguments(), Stage.INDEXED)
    checked(kernel.root, x, opts)


def test_a_wrong_segment_is_found(rng: np.random.Generator) -> None:
    kernel = made("scaled", 4)
    x = Arrays(kernel, (64,) * 4, rng)

    def next_one(u: UOp, src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        return (src[0], src[1] + 1) if u.op is Ops.SEGMENT and u.dtype is F32 else src

    with pytest.raises(BoundsError, match=r"of element 0 of global p\d\[4\].*is 4"):
        checked(rebuilt(kernel.root, next_one), x)
    with pytest.raises(OutOfBoundsError, match="memory of 0 elements"):
        run(rebuilt(kernel.root, next_one), x.arguments(), Stage.INDEXED)


def test_races_and_holes_in_segments_are_found(rng: np.random.Generator) -> None:
    kernel = made("clipped", 4)
    x = Arrays(kernel, (64,) * 4, rng)

    def first_one(u: UOp, src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        first = UOp.const(0, dtypes.index)
        return (src[0], first) if u.op is Ops.SEGMENT and u.shape == (LENGTH,) else src

    loops = lower(kernel.root, segment_opts(kernel, True))
    source = emulate(rebuilt(loops, first_one), "update", check=True)
    arguments = x.arguments(x.copies())
    with pytest.raises(RaceError, match=r"on global p0\[0\]\[0\]"):
        Program(source)(*(arguments[p.slot] for p in source.params))

    kernel = made("scaled", 4)
    x = Arrays(kernel, (64, 31, 1), rng)
    source = emulate(lower(kernel.root, segment_opts(kernel, True)), "update", check=True)
    arguments = x.arguments(x.copies())
    arguments[kernel.lengths] = np.array([64, 30, 1, 0], np.int32)
    with pytest.raises(UnwrittenError, match=r"p1\[1\]\[30\]"):
        Program(source)(*(arguments[p.slot] for p in source.params))


def test_what_nobody_has_written_is_found(rng: np.random.Generator) -> None:
    kernel = made("clipped", 2)
    x = Arrays(kernel, (64, 3), rng)
    source = emulate(lower(kernel.root, segment_opts(kernel, True)), "update", check=True)
    arguments = x.arguments(x.copies())
    with pytest.raises(UninitialisedError, match=r"read of global p0\[0\]\[0\]"):
        Program(source)(
            *(arguments[p.slot] for p in source.params),
            options=RunOptions(initialised=frozenset()),
        )


# ---- what is refused
def summed() -> UOp:
    k = range_(4, 1)
    x = buffer(0, F32, (N, 4)).index(AXIS, k).load()
    return sink(at(1).store(reduce_over(x, k)).end(AXIS))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (summed, "over one axis of two elements or more, this one has 2 axes"),
        (
            lambda: sink(at(1).store(at(0).load() * AXIS.cast(F32)).end(AXIS)),
            r"position of an element is part of its value \(CAST at .*test_segments.py",
        ),
        (
            lambda: sink(at(1).store(buffer(0, F32, (N + 1,)).index(AXIS + 1).load()).end(AXIS)),
            r"position of an element is part of its value \(ADD",
        ),
        (
            lambda: sink(at(1).store(buffer(0, F32, (N,)).index(3).load()).end(AXIS)),
            r"slot 0 has shape \(7,\) and is accessed at CONST",
        ),
        (
            lambda: sink(at(1).store(at(0).load()).end(AXIS), ONE.index(0).store(1.0)),
            "slot 8 has one element and is written",
        ),
    ],
)
def test_kernels_that_are_refused(build: Callable[[], UOp], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        segments(build(), 4)


def test_numbers_that_are_refused() -> None:
    with pytest.raises(UsageError, match=r"own names slots \[3\]"):
        segments(scaled(), 4, own=(3,))
    with pytest.raises(UsageError, match="0 chunks of 4096"):
        segments(scaled(), 0)
    with pytest.raises(UsageError, match="4 chunks of 24"):
        segments(scaled(), 4, length=24)

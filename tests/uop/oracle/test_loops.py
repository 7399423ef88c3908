"""LOOPS kernels: order of effects, memories, threads, wide accesses, and forbidden accesses."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import alloc, assert_same
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import SpecError
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.numbers import Array
from uopc.uop.ops import AccessArg, AxisType, LaunchArg, Ops, ShuffleArg
from uopc.uop.oracle import ConflictError, OutOfBoundsError
from uopc.uop.oracle import run as run_any
from uopc.uop.oracle.access import Given
from uopc.uop.spec import Stage, check

F32, I32 = dtypes.f32, dtypes.i32
REG, SHARED = AddrSpace.REG, AddrSpace.SHARED
REDUCE, UPCAST, GLOBAL, LOCAL = AxisType.REDUCE, AxisType.UPCAST, AxisType.GLOBAL, AxisType.LOCAL


def run(kernel: UOp, arrays: Given) -> dict[int, Array]:
    """In order, whatever the graph holds."""
    return run_any(kernel, arrays, Stage.LOOPS)


def accumulate(x: UOp, at: UOp, loop: UOp, *outer: UOp) -> UOp:
    """The sum of x[at] over a serial loop, in a register that begins anew in the outer loops."""
    base = alloc(REG).after(*outer)
    running = base.after(base.index(0).store(0.0), loop)
    step = running.index(0).store(running.index(0).load() + x.index(at).load())
    return base.after(step.end(loop)).index(0).load()


def test_float_sums_are_made_in_program_order(rng: np.random.Generator) -> None:
    i, k = range_(5, 0), range_(100, 1, REDUCE)
    x, out = buffer(1, F32, (5, 100)), buffer(0, F32, (5,))
    kernel = sink(out.index(i).store(accumulate(x, i * 100 + k, k, i)).end(i))
    check(kernel, Stage.LOOPS, gpu=False)
    data = (rng.standard_normal((5, 100)) * 10.0 ** rng.integers(-3, 4, (5, 100))).astype(
        np.float32
    )
    want = np.zeros(5, np.float32)
    for n in range(100):
        want += data[:, n]
    assert_same(run(kernel, {1: data})[0], want)
    assert (want != data.astype(np.float64).sum(1).astype(np.float32)).any()


def test_the_same_kernel_with_blocks_or_threads(rng: np.random.Generator) -> None:
    data = rng.standard_normal((6, 9)).astype(np.float32)
    x, out, k = buffer(1, F32, (6, 9)), buffer(0, F32, (6,)), range_(9, 1, REDUCE)
    results = []
    for kind in (AxisType.LOOP, GLOBAL, LOCAL, AxisType.THREAD):
        i = range_(6, 0, kind)
        store = out.index(i).store(
            accumulate(x, i * 9 + k, k, *([i] if kind is AxisType.LOOP else []))
        )
        kernel = sink(store.end(i) if kind in (AxisType.LOOP, AxisType.THREAD) else store)
        check(kernel, Stage.LOOPS)
        results.append(run(kernel, {1: data})[0])
    for other in results[1:]:
        assert_same(other, results[0])


def test_an_accumulator_that_is_not_pinned_runs_on() -> None:
    """Without AFTER(acc, i) the start belongs to the kernel, not to each row."""
    i, k = range_(2, 0), range_(3, 1, REDUCE)
    x, out = buffer(1, F32, (6,)), buffer(0, F32, (2,))
    base = alloc(REG)
    running = base.after(base.index(0).store(0.0), i, k)
    step = running.index(0).store(running.index(0).load() + x.index(i * 3 + k).load())
    total = base.after(step.end(k)).index(0).load()
    kernel = sink(out.index(i).store(total).end(i))
    assert run(kernel, {1: np.ones(6, np.float32)})[0].tolist() == [3, 6]


def test_effects_follow_each_other() -> None:
    out, i = buffer(0, I32, (4,)), range_(4, 0)
    first = out.index(i).store(1).end(i)
    j = range_(2, 1)
    second = out.after(first).index(j).store(2).end(j)
    assert run(sink(second), {})[0].tolist() == [2, 2, 1, 1]
    k = range_(3, 2)
    carried = out.after(second, k)  # each iteration sees what the one before wrote
    scan = carried.index(k + 1).store(carried.index(k).load() * 3).end(k)
    assert run(sink(scan), {})[0].tolist() == [2, 6, 18, 54]


def test_loops_run_outermost_first_and_from_start_by_step() -> None:
    out = buffer(0, I32, (1,))
    i, j = range_(2, 0, start=3, step=-1), range_(3, 1)
    version = out.after(out.index(0).store(0), i, j)
    digits = version.index(0).load() * 10 + (i * 3 + j).cast(I32) - 5
    kernel = sink(version.index(0).store(digits).end(i, j))
    want = 0
    for a in (3, 2):
        for b in range(3):
            want = want * 10 + a * 3 + b - 5
    assert run(kernel, {})[0].tolist() == [want]


def test_register_arrays_belong_to_a_thread() -> None:
    thread, u, w = range_(4, 0, LOCAL), range_(3, 1, UPCAST), range_(3, 2, UPCAST)
    reg = alloc(REG, I32, 3)
    fill = reg.index(u).store((thread * 10 + u).cast(I32)).end(u)
    kernel = sink(
        buffer(0, I32, (4, 3)).index(thread, w).store(reg.after(fill).index(2 - w).load()).end(w)
    )
    check(kernel, Stage.LOOPS, gpu=True)
    assert run(kernel, {})[0].tolist() == [[t * 10 + 2, t * 10 + 1, t * 10] for t in range(4)]


def test_shared_memory_belongs_to_a_block() -> None:
    block, thread = range_(2, 0, GLOBAL), range_(4, 1, LOCAL)
    shared = alloc(SHARED, I32, 4)
    fill = shared.index(thread).store((block * 4 + thread).cast(I32)).barrier()
    back = shared.after(fill).index(3 - thread).load()
    kernel = sink(buffer(0, I32, (2, 4)).index(block, thread).store(back))
    check(kernel, Stage.LOOPS, gpu=True)
    assert run(kernel, {})[0].tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]


@pytest.mark.parametrize("lanes", [(), (0,)])
def test_shuffle(lanes: tuple[int, ...]) -> None:
    block, a, b = range_(2, 2, GLOBAL), range_(4, 0, LOCAL), range_(8, 1, LOCAL)
    x, out = buffer(1, I32, (2, 4, 8)), buffer(0, I32, (2, 4, 8))
    value = UOp(Ops.SHUFFLE, (x.index(block, a, b).load(),), ShuffleArg(3))
    kernel = sink(out.index(block, a, b).store(value), launch=LaunchArg(lanes))
    data = np.arange(64, dtype=np.int32).reshape(2, 4, 8)
    flat = (data.transpose(0, 2, 1) if lanes else data).reshape(2, 32)[:, np.arange(32) ^ 3]
    want = flat.reshape(2, 8, 4).transpose(0, 2, 1) if lanes else flat.reshape(2, 4, 8)
    assert run(kernel, {1: data})[0].tolist() == want.tolist()


def test_unwritten_memory_is_garbage() -> None:
    out = buffer(0, F32, (1,))
    for space in (REG, SHARED):
        assert np.isnan(run(sink(out.index(0).store(alloc(space).index(0).load())), {})[0][0])


# ---- wide accesses
def wide_copy(into: UOp, source: UOp, width: int, *gate: UOp) -> UOp:
    zero = (UOp.const(0.0),) if gate else ()
    load = UOp(Ops.LOAD, (source, *gate, *zero), AccessArg(width))
    return UOp(Ops.STORE, (into, load), AccessArg(width))


def test_wide_accesses_copy_consecutive_elements() -> None:
    thread, u, w = range_(3, 0, LOCAL), range_(4, 1, UPCAST), range_(4, 2, UPCAST)
    x, out, reg = buffer(1, F32, (12,)), buffer(0, F32, (12,)), alloc(REG, size=4)
    fill = wide_copy(reg.index(0), x.index(thread * 4), 4)
    doubled = alloc(REG, size=4, slot=1)
    twice = doubled.index(u).store(reg.after(fill).index(u).load() * 2.0).end(u)
    kernel = sink(wide_copy(out.index(thread * 4), doubled.after(twice).index(0), 4))
    check(kernel, Stage.LOOPS, gpu=True)
    data = np.arange(12, dtype=np.float32)
    assert_same(run(kernel, {1: data})[0], data * 2)
    gated = wide_copy(reg.index(0), x.index(thread * 4), 4, thread < 2)
    kernel = sink(out.index(thread * 4 + w).store(reg.after(gated).index(w).load()).end(w))
    assert run(kernel, {1: data})[0].tolist() == [*data[:8].tolist(), 0, 0, 0, 0]


def test_wide_accesses_are_checked_at_both_ends() -> None:
    thread = range_(3, 0, LOCAL)
    x, out = buffer(1, F32, (11,)), buffer(0, F32, (12,))
    kernel = sink(wide_copy(out.index(thread * 4), x.index(thread * 4), 4))
    with pytest.raises(OutOfBoundsError, match=r"LOAD .*index 11 is outside p1.*r0 = 2"):
        run(kernel, {1: np.zeros(11, np.float32)})


# ---- what accesses must not do
def test_gates_touch_nothing() -> None:
    thread = range_(8, 0, LOCAL)
    x, out = buffer(1, F32, (5,)), buffer(0, F32, (5,))
    inside = thread < 5
    kernel = sink(out.index(thread).store(x.index(thread).load(inside, 7.0), inside))
    data = np.arange(5, dtype=np.float32)
    assert_same(run(kernel, {1: data})[0], data)
    open_ = sink(out.index(thread).store(x.index(thread).load(inside), thread < 6))
    with pytest.raises(OutOfBoundsError, match=r"STORE at test_loops.py:\d+: index 5 .*r0 = 5"):
        run(open_, {1: data})


def test_out_of_bounds_names_the_iteration() -> None:
    i, k, block = range_(3, 0), range_(4, 1), range_(2, 2, GLOBAL)
    reg = alloc(REG, I32, 2)
    kernel = sink(reg.index(i * k - block).store(1).end(i, k))
    with pytest.raises(OutOfBoundsError, match=r"index -1 .*a0\[r0\*r1 - r2\].* of 2 elements"):
        run(kernel, {})
    kernel = sink(reg.index(i * k).store(1).end(i, k))
    with pytest.raises(OutOfBoundsError, match=r"index 2 .*\(at r0 = 1, r1 = 2\)"):
        run(kernel, {})


def test_threads_that_write_different_values() -> None:
    thread = range_(4, 0, LOCAL)
    shared = alloc(SHARED, I32, 2)
    race = shared.index(thread // 2).store(thread.cast(I32)).barrier()
    out = buffer(0, I32, (1,))
    kernel = sink(out.index(0).store(shared.after(race).index(0).load(), thread.eq(0)))
    with pytest.raises(ConflictError, match=r"two writers .* element 0 of s0\[r0 // 2\]"):
        run(kernel, {})


def test_a_range_used_outside_its_loop() -> None:
    out, i = buffer(0, I32, (4,)), range_(4, 0)
    closed = out.index(i).store(1).end(i)
    wrong = sink(out.after(closed).index(i).store(2))
    with pytest.raises(SpecError, match="r0 is used outside its END"):
        run(wrong, {})


# ---- values
def test_values_are_computed_once_per_iteration_of_their_ranges() -> None:
    """A read before the loop keeps what it read; a read in it sees each store."""
    out, k = buffer(0, I32, (3,)), range_(4, 0)
    start = out.index(0).store(5)
    early = out.after(start).index(0).load()
    running = out.after(start, k)
    step = running.index(0).store(running.index(0).load() + early).end(k)
    late = out.after(step).index(0).load()
    kernel = sink(out.after(step).index(1).store(early), out.after(step).index(2).store(late))
    assert run(kernel, {})[0].tolist() == [25, 5, 25]


def test_a_version_of_a_value_and_a_scalar() -> None:
    out, factor = buffer(0, F32, (1,)), buffer(1, F32, ())
    store = out.index(0).store(1.0)
    kernel = sink(out.after(store).index(0).store((factor * 2.0).after(store)))
    assert run(kernel, {1: np.float32(3)})[0].tolist() == [6]


def test_halves_round_after_every_op() -> None:
    out = buffer(0, dtypes.f16, (1,))
    x = buffer(1, dtypes.f16, ())
    kernel = sink(out.index(0).store((x + 1.0) - x))
    assert run(kernel, {1: np.float16(2048)})[0].tolist() == [0.0]


def test_the_stage_is_told_by_what_the_graph_holds() -> None:
    x, i = buffer(0, I32, (4,)), range_(3, 0)
    shift = sink(x.index(i + 1).store(x.index(i).load()).end(i))
    given = {0: np.array([7, 1, 2, 3], np.int32)}
    assert run_any(shift, given)[0].tolist() == [7, 7, 7, 7]  # read and written: in order
    assert run_any(shift, given, Stage.INDEXED)[0].tolist() == [7, 7, 1, 2]


def test_deep_kernels() -> None:
    out, i = buffer(0, F32, (3,)), range_(3, 0)
    value = buffer(1, F32, (3,)).index(i).load()
    for _ in range(5_000):
        value = value * -1.0
    kernel = sink(out.index(i).store(value).end(i))
    data = np.arange(3, dtype=np.float32)
    assert_same(run(kernel, {1: data})[0], data)
    chain = out
    for n in range(400):
        chain = out.after(chain.index(n % 3).store(float(n)))
    assert run(sink(chain.index(0).store(0.5)), {})[0].tolist() == [0.5, 397.0, 398.0]

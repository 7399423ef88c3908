"""Counts of whole launches: beside a slow count of every thread, folded, sampled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import alloc
from tests.inspect.slow_counts import counts as slow_counts
from tests.kernels import columns, param
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import ToolchainError
from uopc.inspect import warps
from uopc.inspect.sites import Site, sites
from uopc.inspect.warps import Counts, DataDecidesError, Threads, count, read_at_once
from uopc.kernel import Launch, ProgramTree
from uopc.opts import Opts
from uopc.pipeline import compile, finish
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import AxisType, Ops, RangeArg

#: elements of a memory that is never read: only where accesses go is counted
MANY = 1 << 30


def block(n: int, size: int) -> UOp:
    return range_(size, n, AxisType.GLOBAL)


def lanes(n: int, size: int) -> UOp:
    return range_(size, n, AxisType.LOCAL)


def stores(
    offset: UOp,
    *loops: UOp,
    gate: UOp | None = None,
    space: AddrSpace = AddrSpace.GLOBAL,
    dtype: DType = dtypes.f32,
    also: tuple[UOp, ...] = (),
) -> ProgramTree:
    """A kernel that stores zeros at an offset, for all values of loops.  also: ranges of the launch
    that the offset may be without."""
    shared = space is AddrSpace.SHARED
    to = alloc(space, dtype, 4096) if shared else buffer(0, dtype, (MANY,))
    c = Cursor()
    if also:
        c.store(buffer(1, dtypes.i32, (MANY,)).index(sum_of(also)), 0)
    if loops:
        with c.loop(*loops):
            c.store(to.index(offset), 0, gate)
    else:
        c.store(to.index(offset), 0, gate)
    return finish(c.sink())


def sum_of(ranges: tuple[UOp, ...]) -> UOp:
    total, step = ranges[0], ranges[0].arg.size
    for r in ranges[1:]:
        total, step = total + r * step, step * r.arg.size
    return total


def the_access(program: ProgramTree) -> Site:
    """The last one."""
    return sites(program)[-1]


def fast(program: ProgramTree) -> Counts:
    return count(the_access(program), program.launch, Threads.of(program.launch))


def numbers(c: Counts) -> Counts:
    return replace(c, lanes=())


def assert_exact(program: ProgramTree) -> Counts:
    """Equal to the slow count; what it is."""
    found = fast(program)
    assert found.exact
    assert numbers(found) == slow_counts(the_access(program), program.launch)
    return found


# ---- beside the slow count
B, B2 = block(0, 5), block(1, 3)
L, L2 = lanes(2, 32), lanes(3, 3)
K, J = range_(6, 4), range_(3, 5)


@pytest.mark.parametrize(
    ("offset", "loops"),
    [
        (B * 32 + L, ()),
        (B * 32 + L + 1, ()),  # misaligned
        (B * 33 + L, ()),  # by another remainder in each block
        (B * 7 + B2 * 11 + L * 3, ()),
        (B * 96 + L2 * 32 + L, ()),  # three warps
        (B * 96 + L * 3 + L2, ()),
        (B * 32 + L * 0 + 5, ()),  # a broadcast
        (B * 32 - L + 64, ()),  # backwards
        (B * 192 + K * 32 + L, (K,)),
        (B * 200 + K * 33 + L * 2 + J, (K, J)),
        ((B * 32 + L) // 5 * 8 + (B * 32 + L) % 5, ()),  # rows of 5 in rows of 8
        ((L + K) % 7 * 16 + B // 2, (K,)),
        ((L ^ K) + B * 64, (K,)),  # swizzled
    ],
)
@pytest.mark.parametrize("space", [AddrSpace.GLOBAL, AddrSpace.SHARED])
@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.f32, dtypes.f64])
def test_every_thread_is_counted(
    offset: UOp, loops: tuple[UOp, ...], space: AddrSpace, dtype: DType
) -> None:
    assert_exact(stores(offset, *loops, space=space, dtype=dtype))


N = B * 32 + L
GATES: dict[str, Callable[[], UOp]] = {
    "ragged": lambda: N < 141,
    "one lane": lambda: L.eq(0),
    "one thread": lambda: N.eq(77),
    "nobody": lambda: N < 0,
    "everybody": lambda: N < 1000,
    "not": lambda: ~(N < 141),
    "padding": lambda: (N * 3 - 20 < 300) & ~(N * 3 - 20 < 0),
    "or": lambda: (N < 10) | ~(N < 150),
    "of the loop": lambda: K * 40 + L < 150,
    "two axes": lambda: (B * 6 + K < 27) & (L < 30),
    "odd": lambda: (N % 2).eq(1),
    "triangle": lambda: K * 6 < N // 6,
    "not all of several": lambda: ~((B < 4) & (K < 5)),
}


@pytest.mark.parametrize("name", GATES)
def test_guards_are_counted(name: str) -> None:
    found = assert_exact(stores(B * 192 + K * 32 + L, K, gate=GATES[name]()))
    assert (found.requests == 0) == (name == "nobody")


@pytest.mark.parametrize("threads", [1, 5, 31, 33, 100])
def test_partial_warps(threads: int) -> None:
    t = lanes(2, threads)
    found = assert_exact(stores(B * threads + t))
    assert found.threads == 5 * threads and found.requests >= 5 * -(-threads // 32)


def test_a_loop_with_steps() -> None:
    k = UOp(Ops.RANGE, (), RangeArg(4, 5, AxisType.LOOP, start=3, step=7))
    assert_exact(stores(B * 64 + k * 3 + L, k, gate=k < 20))
    assert_exact(stores(B * 64 + k // 2 + L, k))


def test_a_range_that_moves_nothing_repeats() -> None:
    once = fast(stores(L, also=(L,)))
    often = fast(stores(L, K, J, also=(L, B)))
    assert often.requests == 5 * 6 * 3 * once.requests and often.sectors == 90 * once.sectors


def test_roles_have_their_warps() -> None:
    t, y = lanes(0, 160), buffer(0, dtypes.f32, (MANY,))
    c = Cursor()
    with c.role("first", 0, 1):
        c.store(y.index(t), 0.0)
    with c.role("rest", 1, 3):
        c.store(y.index(t * 2), 0.0)
    program = finish(c.sink())
    of_roles = Threads.of(program.launch)
    found = [count(s, program.launch, of_roles) for s in sites(program)]
    assert [numbers(c) for c in found] == [slow_counts(s, program.launch) for s in sites(program)]
    assert [c.requests for c in found] == [1, 3]


@st.composite
def programs(draw: st.DrawFn) -> ProgramTree:
    """Small launches of one access: sums of ranges, taken apart or not, under a guard or not."""
    whole = st.integers(1, 4)
    ranges = [
        *(block(n, draw(whole)) for n in range(draw(st.integers(1, 2)))),
        lanes(2, draw(st.sampled_from((4, 16, 32, 40)))),
        *([lanes(3, draw(whole))] if draw(st.booleans()) else ()),
    ]
    loops = [range_(draw(whole), 4 + n) for n in range(draw(st.integers(0, 2)))]

    def total(limit: int) -> UOp:
        terms = [r * draw(st.integers(-limit, limit)) for r in (*ranges, *loops)]
        out = UOp.const(draw(st.integers(-limit, limit)), dtypes.index)
        for t in terms:
            out = out + t
        return out

    offset = total(40) + 4096
    if draw(st.booleans()):
        a, b = draw(st.integers(2, 9)), draw(st.integers(2, 9))
        flat = total(9)
        offset = offset + flat // a * draw(st.integers(-9, 9)) + flat % b
    gate = None
    for _ in range(draw(st.integers(0, 3))):
        one = total(9) < draw(st.integers(-40, 200))
        one = ~one if draw(st.booleans()) else one
        gate = one if gate is None else gate & one if draw(st.booleans()) else gate | one
    return stores(
        offset,
        *loops,
        gate=gate,
        space=draw(st.sampled_from((AddrSpace.GLOBAL, AddrSpace.SHARED))),
        dtype=draw(st.sampled_from((dtypes.u8, dtypes.f16, dtypes.f32, dtypes.f64))),
        also=tuple(ranges),
    )


@settings(max_examples=150, deadline=None)
@given(programs())
def test_any_small_launch(program: ProgramTree) -> None:
    assert_exact(program)


# ---- large launches
def launched(blocks: int, gate: int | None = None) -> ProgramTree:
    g, t = block(0, blocks), lanes(1, 256)
    return stores(g * 257 + t, gate=None if gate is None else g * 257 + t < gate)


def test_blocks_and_loops_are_folded() -> None:
    """More than 2**40 accesses take no longer than few: of 8 blocks in a row, each begins at
    another place of a sector, and then it comes again."""
    blocks, turns = (1 << 31) - 8, 16
    k = range_(turns, 4)
    g, t = block(0, blocks), lanes(1, 256)
    began = time.perf_counter()
    large = fast(stores(g * 257 + k * 11 + t, k))
    assert time.perf_counter() - began < 1.0
    g = block(0, 8)
    small = assert_exact(stores(g * 257 + k * 11 + t, k))
    assert large.exact and numbers(large) == scaled_up(small, blocks // 8)
    assert large.threads == blocks * turns * 256 > 1 << 40


def scaled_up(c: Counts, n: int) -> Counts:
    return Counts(c.requests * n, c.threads * n, c.sectors * n, c.least_sectors * n)


def test_a_guard_at_the_edge_of_a_large_launch() -> None:
    """All blocks are whole but the last one, and that is counted by its lanes."""
    blocks, rest = 1 << 25, 100
    found = fast(launched(blocks, gate=(blocks - 1) * 257 + rest))
    whole, last = fast(launched(blocks - 1)), (blocks - 1) * 257 * 4
    assert found.exact and found.threads == whole.threads + rest
    by_warp = [
        {(last + 4 * t) // 32 for t in range(w, min(w + 32, rest))} for w in range(0, rest, 32)
    ]
    assert found.sectors - whole.sectors == sum(map(len, by_warp))


# ---- where too much is left
@pytest.mark.parametrize(
    ("offset", "gate"),
    [
        (lambda g, t: (g * 256 + t) // 7 * 8 + (g * 256 + t) % 7, None),
        (lambda g, t: (g // 3) * 640 + g % 3 * 5 + t, lambda g, t: (g % 4).eq(1)),
        (lambda g, t: g // 2 * 256 + t, lambda g, t: (g % 8 < 3) & (t < 100)),
    ],
)
def test_a_sample_says_so_and_is_close(
    offset: Callable[[UOp, UOp], UOp],
    gate: Callable[[UOp, UOp], UOp] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample must not walk in step with what it samples: every fourth block is as good a reason
    for a guard as any."""
    g, t = block(0, 4096), lanes(1, 256)
    program = stores(offset(g, t), gate=None if gate is None else gate(g, t), also=(g, t))
    exact = fast(program)
    assert exact.exact
    monkeypatch.setattr(warps, "MOST_LANES", 1 << 16)
    monkeypatch.setattr(warps, "SMALL_PART", 1 << 20)
    sample = fast(program)
    assert not sample.exact
    for said, true in ((sample.requests, exact.requests), (sample.sectors, exact.sectors)):
        assert said == pytest.approx(true, rel=0.1)


# ---- what ptxas reads at once
def reads(offset: UOp, *loops: UOp, gate: UOp | None = None) -> ProgramTree:
    """A kernel that copies from shared memory at an offset."""
    tile, y = alloc(AddrSpace.SHARED, dtypes.f32, 4096), buffer(0, dtypes.f32, (MANY,))
    c = Cursor()
    c.store(tile.index(L), 0.0)
    c.barrier()
    with c.loop(*loops):
        c.store(y.index(offset), c.load(tile.index(offset), gate, None if gate is None else 0.0))
    return finish(c.sink())


def the_read(program: ProgramTree) -> Site:
    (found,) = [s for s in sites(program) if s.op == "LOAD"]
    return found


V, V2, W8 = (range_(n, 6, AxisType.UPCAST) for n in (4, 2, 8))


@pytest.mark.parametrize(
    ("offset", "loops", "count"),
    [
        (L * 4 + V, (V,), 4),
        (L * 8 + K * 256 + V, (K, V), 4),
        (L * 4 + V2, (V2,), 2),
        (L * 2 + V2, (V2,), 2),
        (L * 2 + V, (V,), 2),  # aligned to two
        (L * 8 + W8, (W8,), 4),  # twice
        (L * 4 + V + 1, (V,), 1),  # not aligned
        (L * 3 + V, (V,), 1),
        (L + V * 32, (V,), 1),  # no neighbours
        (L * 4 - V + 3, (V,), 1),  # backwards
        (L * 6 + K, (K,), 1),  # a loop that stays one
        (L * 4 + V // 2 + V, (V,), 1),
    ],
)
def test_unrolled_neighbours(offset: UOp, loops: tuple[UOp, ...], count: int) -> None:
    program = reads(offset, *loops)
    site = the_read(program)
    wide = read_at_once(site)
    assert (wide.count if wide else 1) == count
    found = warps.count(site, program.launch, Threads.of(program.launch))
    each = slow_counts(site, program.launch)
    assert (found.requests, found.threads) == (each.requests, each.threads)
    if count == 1:
        assert numbers(found) == each
        return
    assert found.wavefronts <= each.wavefronts
    if offset is L * 4 + V:
        assert each.wavefronts == 4 * 4 and found.wavefronts == found.least_wavefronts == 4


def test_neighbours_under_a_guard_of_their_own() -> None:
    program = reads(L * 4 + V, V, gate=V < 3)
    assert read_at_once(the_read(program)) is None
    assert read_at_once(the_read(reads(L * 4 + V, V, gate=L < 3))) is not None


def test_ptxas_reads_them_at_once() -> None:
    """The columns' sum of an automatic choice: four neighbours a thread, eight rows of them."""
    (step,) = compile(columns(param(0, 4096, 1000)), target="sm_90a").steps
    wide = [s for s in sites(step.program) if read_at_once(s)]
    assert wide and all(s.width_bytes == 4 for s in wide)
    try:
        sass = step.cubin.sass
    except ToolchainError as error:
        pytest.skip(str(error))
    assert "LDS.128" in sass


# ---- where data decides
def test_data_in_an_offset_or_a_guard() -> None:
    index, y = param(0, 64, dtype=dtypes.i32), buffer(2, dtypes.f32, (64,))
    t = lanes(0, 64)
    read = index.index(t).load()
    for at, gate in ((read.cast(dtypes.index), None), (t, read < 3)):
        c = Cursor()
        c.store(y.index(at), 1.0, gate)
        program = finish(c.sink())
        threads = Threads.of(program.launch)
        load, store = sites(program)
        assert count(load, program.launch, threads).requests == 2
        with pytest.raises(DataDecidesError):
            count(store, program.launch, threads)


# ---- small parts
def test_counts_add_up_and_keep_the_fuller_lanes() -> None:
    a, b = Counts(1, 2, 3, lanes=(0, None)), Counts(4, 5, 6, exact=False, lanes=(0, 4))
    assert a.plus(b) == Counts(5, 7, 9, exact=False, lanes=(0, 4)) == b.plus(a)


def test_scaled_counts_are_no_longer_exact() -> None:
    assert Counts(2, 4).scaled(1.0) == Counts(2, 4)
    assert Counts(2, 4).scaled(0.4) == Counts(5, 10, exact=False)


def test_lanes_of_the_fullest_request() -> None:
    t = lanes(2, 64)
    for offset, gate in ((B * 32 + L, ~(N < 5)), (B * 64 + t, ~(t < 5))):
        found = fast(stores(offset, gate=gate))
        assert None not in found.lanes and len(found.lanes) == 32


def test_what_is_folded_onto_one_component() -> None:
    """Four axes of blocks stand on .x, and are taken apart."""
    blocks = [block(n, 3) for n in range(4)]
    program = stores(sum_of((*blocks, lanes(5, 32))) * 3)
    launch: Launch = program.launch
    assert launch.grid == (81, 1, 1)
    assert_exact(program)


def test_compiled_kernels_too() -> None:
    kernel = compile(
        param(0, 7, 33).permute((1, 0)) * 2.0, Opts(gpu=True, local={0: 8, 1: 4}), "sm_80"
    )
    (step,) = kernel.steps
    threads = Threads.of(step.program.launch)
    for site in sites(step.program):
        found = count(site, step.program.launch, threads)
        assert numbers(found) == slow_counts(site, step.program.launch)


def test_lanes_count_x_first() -> None:
    x, y = lanes(1, 8), lanes(0, 6)
    program = stores(y * 100 + x)
    threads = Threads.of(program.launch)
    assert program.launch.block == (8, 6, 1)
    assert threads.numbers[x][0, :10].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert threads.numbers[y][1, :9].tolist() == [4] * 8 + [5]
    assert threads.present.sum() == 48 and threads.present.shape == (2, 32)

"""Tiles that turn accesses: the same numbers, no race, no bank asked twice, wide on both sides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import OUT, around, arrays_of, assert_same_numbers, indexed, outputs, param
from tests.random_kernels import Case
from tests.three_ways import agree, check_device
from uopc.choose.facts import KernelFacts
from uopc.choose.gpu import Aim, rank
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import UsageError
from uopc.kernel import KernelBody, Launch, Output
from uopc.opts import Opts
from uopc.passes.bind import bind
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.split import split
from uopc.passes.turn import BANK_BYTES, LINE_BYTES, Tile, turn
from uopc.passes.vectorise import widest
from uopc.pipeline import compile, index, lower
from uopc.target import target
from uopc.uop.facts import free
from uopc.uop.node import UOp, buffer, memory, prod, toposort
from uopc.uop.numbers import Array, array_of, compute
from uopc.uop.ops import ELEMENTWISE, AxisType, Ops, RangeArg
from uopc.uop.spec import Stage, check
from uopc.uop.text import show


def transpose(m: int, n: int, dtype: DType = dtypes.f32) -> UOp:
    """(m, n) to (n, m), copied: kernel axis 1 is contiguous in the output, 0 in the input."""
    return param(0, m, n, dtype=dtype).permute((1, 0))


def wide(item: int, copies: int = 1, rows: int = 32) -> Opts:
    """8 lanes of 16 bytes along x, `rows` lanes along y; 16 bytes of y turned, 4 bytes of x."""
    n, unit = 16 // item, max(1, 4 // item)
    up = {0: max(1, 8 * n // rows), 1: max(1, rows * unit // (8 * n)) * copies}
    return Opts(
        gpu=True,
        local={1: 8, 0: rows},
        vector={1: n},
        upcast={a: u for a, u in up.items() if u > 1},
        turn={0: n, 1: unit},
        lanes=(1, 0),
        grid=(1, 0),
    )


def scalar(rows: int = 8, copies: int = 4) -> Opts:
    """32 lanes along x, one element each."""
    return Opts(
        gpu=True, local={1: 32, 0: rows}, upcast={0: copies}, turn={0: 1}, lanes=(1, 0), grid=(1, 0)
    )


# ---- banks
@dataclass(frozen=True)
class Shared:
    """One access of shared memory: what kind, bytes of a lane, and its worst request."""

    store: bool
    bytes: int
    degree: int


def values_at(u: UOp, known: dict[UOp, Array]) -> Array:
    """An index where its ranges have these values."""
    values = dict(known)
    for x in toposort(u):
        if x.op is Ops.CONST:
            values[x] = array_of(x.arg)
        elif x not in values:
            assert x.op in ELEMENTWISE, x
            of = [values[s] for s in x.src]
            values[x] = compute(x.op, x.src[0].dtype, of, x.arg if x.op is Ops.CAST else None)
    return np.asarray(values[u])


def threads(launch: Launch) -> dict[UOp, Array]:
    """The value of each LOCAL range, by the number of the thread."""
    t = np.arange(launch.threads)
    strides = [prod(launch.block[: a.dim]) if a.whole else a.stride for a in launch.block_axes]
    pairs = zip(launch.block_axes, strides, strict=True)
    return {a.range: t // stride % a.range.arg.size for a, stride in pairs}


def degree(addresses: Array, size: int) -> int:
    """How often the most wanted bank is asked by a warp, for its bytes at once at best.

    128 bytes are served at a time: 32 lanes of up to 4 bytes, 16 of 8, 8 of 16.  Within them lanes
    that want the same 4 bytes are one request to their bank.
    """
    at_once = min(32, LINE_BYTES // max(size, BANK_BYTES))
    worst = 0
    for part in np.split(addresses, max(1, len(addresses) // at_once)):
        starts = np.repeat(part // BANK_BYTES, max(1, size // BANK_BYTES))
        words = starts + np.tile(np.arange(max(1, size // BANK_BYTES)), len(part))
        _, counts = np.unique(np.unique(words) % (LINE_BYTES // BANK_BYTES), return_counts=True)
        worst = max(worst, int(counts.max()))
    return worst


def shared_accesses(sink: UOp) -> list[Shared]:
    """Every access of shared memory in a kernel in LOOPS, with the worst of all its requests."""
    lanes, found = threads(bind(sink)), []
    for u in toposort(sink):
        is_access = u.op in (Ops.LOAD, Ops.STORE)
        if not is_access or memory(u.src[0]).arg.addrspace is not AddrSpace.SHARED:
            continue
        width = 1 if u.arg is None else u.arg.width
        offset, item = u.src[0].src[1], u.src[0].dtype.itemsize
        copies = [r for r in free(offset) if r not in lanes and r.op is Ops.RANGE]
        worst = 0
        for at in itertools.product(*(range(r.arg.size) for r in copies)):
            here = {r: np.asarray(n) for r, n in zip(copies, at, strict=True)}
            bytes_ = np.broadcast_to(values_at(offset, lanes | here) * item, lanes_count(lanes))
            for warp in np.split(bytes_, max(1, len(bytes_) // 32)):
                worst = max(worst, degree(warp, width * item))
        found.append(Shared(u.op is Ops.STORE, width * item, worst))
    return found


def lanes_count(lanes: dict[UOp, Array]) -> int:
    return len(next(iter(lanes.values())))


def lowered(opts: Opts, *bodies: UOp) -> UOp:
    return lower(index(bodies, outputs(bodies), opts.merge), opts)


# ---- the numbers
BOTH = transpose(40, 24) + param(1, 24, 40)
TWO_OUTPUTS = (param(0, 24, 40) * 2.0, param(0, 24, 40).permute((1, 0)))
CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "copy": ((transpose(64, 96),), wide(4)),
    "ragged": ((transpose(45, 70),), wide(4)),
    "one-by-one": ((transpose(45, 71),), scalar()),
    "with-another": ((BOTH,), wide(4, rows=8)),
    "narrow": ((transpose(64, 64, dtypes.u8) + 1,), wide(1, rows=32)),
    "stored": (
        (transpose(48, 80) + param(1, 48, 80).permute((1, 0)),),
        Opts(gpu=True, local={0: 8, 1: 32}, vector={0: 4}, turn={1: 4}, lanes=(0, 1), grid=(0, 1)),
    ),
    "other-lanes": (
        (param(0, 3, 20, 30).permute((0, 2, 1)),),
        Opts(
            gpu=True,
            local={0: 2, 1: 8, 2: 8},
            vector={2: 4},
            upcast={0: 2, 1: 4},
            turn={1: 4},
            lanes=(2, 1, 0),
        ),
    ),
    "in-a-loop": (
        (transpose(70, 50),),
        Opts(
            gpu=True, local={0: 8, 1: 8}, vector={1: 2}, upcast={0: 2}, turn={0: 2}, blocks={1: 2}
        ),
    ),
    "for-all-rows": (
        (param(0, 20, 30).permute((1, 0)).reshape((1, 30, 20)).expand((4, 30, 20)) * 2.0,),
        Opts(gpu=True, local={0: 2, 1: 8, 2: 8}, upcast={0: 2}, turn={1: 1}, lanes=(2, 1, 0)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_stay(name: str, golden: Callable[[str, str], None]) -> None:
    bodies, opts = CASES[name]
    before, after = around("turn", opts, *bodies)
    check(after, Stage.MAPPED, True)
    assert_same_numbers(before, after, arrays_of(*bodies), (Stage.MAPPED, Stage.MAPPED))
    golden(f"turn/{name}.txt", f"# {opts}\n{show(after)}")


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_three_ways_without_races(name: str) -> None:
    bodies, opts = CASES[name]
    case = Case(bodies, arrays_of(*bodies), "exact")
    kernel = check_device(case, opts, "emulated")
    assert any(u.op is Ops.BARRIER for u in toposort(kernel.steps[0].sink))
    arrays = [x.reshape(-1) for x in case.arrays.values()]
    compile(list(bodies), opts, "emulated", check=True)(*arrays)
    check_device(case, None, "cpu")


def test_outputs_of_both_kinds_stay_as_they_are_and_turn() -> None:
    """One output follows the lanes, the other one goes through a tile."""
    x = param(0, 24, 40)
    y = x * 2.0
    body = KernelBody(
        (Output(y, buffer(OUT, dtypes.f32, (24, 40))), Output(x.permute((1, 0)), _out(1, 40, 24))),
        (24, 40),
        {y: (0, 1), x.permute((1, 0)): (1, 0)},
    )
    root = rangeify_kernel(body)
    opts = Opts(gpu=True, local={0: 8, 1: 8}, vector={1: 4}, upcast={0: 4}, turn={0: 4}, lanes=(1,))
    before, after = split(root, opts), turn(split(root, opts), opts)
    arrays = arrays_of(y)
    assert_same_numbers(before, after, arrays, (Stage.MAPPED, Stage.MAPPED))
    assert len(stages(after)) == 1
    sink = lower(root, opts)
    assert_same_numbers(before, sink, arrays, (Stage.MAPPED, Stage.LOOPS))
    assert {widest(u) for u in toposort(sink) if widest(u)} == {16}


def _out(n: int, *shape: int) -> UOp:
    return buffer(OUT + n, dtypes.f32, shape)


def stages(root: UOp) -> list[UOp]:
    """Tiles in shared memory."""
    return [u for u in toposort(root) if u.op is Ops.STAGE and u.arg.space is AddrSpace.SHARED]


def test_what_is_written_in_place_is_not_turned() -> None:
    x = param(0, 32, 32)
    turned = x.permute((1, 0)) * 2.0
    root = rangeify_kernel(KernelBody((Output(turned, x),), (32, 32), {turned: (0, 1)}))
    opts = Opts(gpu=True, local={0: 32, 1: 32}, turn={0: 1})
    assert turn(split(root, opts), opts) is split(root, opts)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (param(0, 64, 96) * 2.0, "it follows the lanes"),
        (param(0, 64).reshape((64, 1)).expand((64, 96)) + param(1, 64, 96), "lanes do not move it"),
        (
            param(0, 64, 200)
            .shrink(((0, 64), (0, 192)))
            .reshape((64, 96, 2))
            .permute((0, 2, 1))
            .reshape((64, 192))
            .shrink(((0, 64), (0, 96))),
            "it is in no order",
        ),
    ],
)
def test_other_accesses_stay(body: UOp, why: str) -> None:
    opts = Opts(gpu=True, local={1: 32, 0: 8}, upcast={0: 4}, turn={0: 1})
    before, after = around("turn", opts, body)
    assert after is before, why


@pytest.mark.parametrize(
    ("opts", "text"),
    [
        (
            Opts(gpu=True, local={1: 32, 0: 8}, turn={0: 1}),
            "Opts.turn: a tile has 8 elements of axis 0, and the 32 lanes of axis 1 with 1 each "
            "walk 32 of them.",
        ),
        (
            Opts(gpu=True, local={1: 8, 0: 8}, turn={0: 1, 1: 4}),
            "Opts.turn: a tile has 8 elements of axis 1, and the 8 lanes of axis 0 with 4 each",
        ),
    ],
)
def test_both_ways_walk_the_same_tile(opts: Opts, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        lowered(opts, transpose(64, 64))
    assert str(caught.value).startswith(text)


def test_an_axis_of_one_element_turns_nothing() -> None:
    opts = Opts(gpu=True, local={1: 32, 0: 32}, turn={0: 1}, lanes=(1, 0))
    root = indexed(param(0, 1, 64).permute((1, 0)) + param(1, 64, 1))
    assert turn(split(root, opts), opts) is split(root, opts)


# ---- banks and widths
ITEMS = [dtypes.u8, dtypes.bf16, dtypes.f32, dtypes.f64]


@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize("rows", [16, 32, 64])
def test_no_bank_is_asked_twice_and_all_is_wide(dtype: DType, rows: int) -> None:
    sink = lowered(wide(dtype.itemsize, rows=rows), transpose(256, 256, dtype))
    found = shared_accesses(sink)
    assert [x.degree for x in found] == [1, 1]
    assert {x.bytes for x in found if not x.store} == {16}
    assert {x.bytes for x in found if x.store} == {max(4, dtype.itemsize)}
    assert {widest(u) for u in toposort(sink) if widest(u)} == {16}


@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize(("rows", "copies"), [(8, 4), (4, 8), (16, 2)])
def test_no_bank_is_asked_twice_one_by_one(dtype: DType, rows: int, copies: int) -> None:
    sink = lowered(scalar(rows, copies), transpose(250, 251, dtype))
    assert [x.degree for x in shared_accesses(sink)] == [1, 1]


@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize(("m", "n"), [(512, 512), (511, 513), (512, 511), (511, 512), (64, 4096)])
def test_what_is_chosen_asks_no_bank_twice(dtype: DType, m: int, n: int) -> None:
    body = transpose(m, n, dtype)
    opts = rank(KernelFacts.of([body], outputs([body])), Aim(target("sm_90")))[0]
    assert opts.turn
    assert {x.degree for x in shared_accesses(lowered(opts, body))} == {1}


def tiles() -> st.SearchStrategy[Tile]:
    powers = st.sampled_from((1, 2, 4, 8, 16))
    return st.builds(
        Tile,
        rows=st.integers(1, 70),
        columns=st.integers(1, 70),
        item_bytes=st.sampled_from((1, 2, 4, 8)),
        lanes=st.sampled_from((1, 2, 3, 4, 8, 16, 32, 64)),
        block=powers | st.integers(1, 5),
        unit=powers | st.integers(1, 5),
        read=powers | st.integers(1, 5),
    )


@settings(max_examples=200, deadline=None)
@given(tiles())
def test_each_element_has_a_place_of_its_own(tile: Tile) -> None:
    ranges = [
        UOp(Ops.RANGE, (), RangeArg(a, n, AxisType.LOOP))
        for a, n in enumerate((tile.rows, tile.columns))
    ]
    row, column = np.indices((tile.rows, tile.columns))
    at = values_at(tile.index(*ranges), dict(zip(ranges, (row, column), strict=True)))
    at = np.broadcast_to(at, row.shape)
    assert at.min() >= 0 and at.max() < tile.size
    assert len(np.unique(at)) == tile.rows * tile.columns


# ---- anything
DTYPES = [dtypes.u8, dtypes.i16, dtypes.bf16, dtypes.f32, dtypes.f64, dtypes.bool]


@st.composite
def turned_kernels(draw: st.DrawFn) -> tuple[UOp, Opts]:
    """Permuted operands, one to three of them, and digits that cover a tile from both sides."""
    count = draw(st.integers(2, 4))
    shape = tuple(draw(st.integers(2, 40)) for _ in range(count))
    dtype = draw(st.sampled_from(DTYPES))
    body: UOp | None = None
    for slot in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(count)))
        x = param(slot, *(shape[a] for a in order), dtype=dtype).permute(
            [list(order).index(a) for a in range(count)]
        )
        body = x if body is None else UOp(Ops.MAX, (body, x))
    assert body is not None
    x_axis, y_axis = draw(st.permutations(range(count)))[:2]
    powers = st.sampled_from((1, 2, 4, 8))
    across, down = draw(powers), draw(powers)
    vector = {x_axis: draw(powers), y_axis: draw(st.sampled_from((1, 1, 2)))}
    turn_ = {y_axis: draw(powers), x_axis: draw(st.sampled_from((1, 2, 4)))}
    tile = {
        x_axis: math.lcm(across * vector[x_axis], down * turn_[x_axis]),
        y_axis: math.lcm(down * vector[y_axis], across * turn_[y_axis]),
    }
    lanes = {x_axis: across, y_axis: down}
    local = {a: n for a, n in lanes.items() if n > 1}
    if not local or across == 1:
        local[x_axis], lanes[x_axis] = 2, 2
        tile[x_axis] *= 2
        tile[y_axis] *= 2
    others = [a for a in range(count) if a not in lanes]
    upcast = {a: tile[a] // (lanes[a] * vector[a]) for a in tile}
    for a in others:
        local |= {a: 2} if draw(st.booleans()) else {}
        upcast |= {a: 2} if draw(st.booleans()) else {}
    blocks = {y_axis: 1} if draw(st.booleans()) else {}
    order_ = (x_axis, *draw(st.permutations([a for a in range(count) if a != x_axis])))
    return body, Opts(
        gpu=True,
        local=local,
        vector=vector,
        upcast=upcast,
        turn=turn_,
        lanes=order_,
        blocks=blocks,
    )


@settings(max_examples=60, deadline=None)
@given(turned_kernels())
def test_any_permutation_any_digits(kernel: tuple[UOp, Opts]) -> None:
    body, opts = kernel
    arrays = arrays_of(body)
    if agree(Case((body,), arrays, "exact"), opts, "emulated"):  # unless tiles are too large
        compile(body, opts, "emulated", check=True)(*(x.reshape(-1) for x in arrays.values()))


@settings(max_examples=40, deadline=None)
@given(turned_kernels())
def test_any_permutation_as_it_is_chosen(kernel: tuple[UOp, Opts]) -> None:
    body, _ = kernel
    case = Case((body,), arrays_of(body), "exact")
    for target_ in ("emulated", "cpu"):
        check_device(case, None, target_)

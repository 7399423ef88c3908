"""Which closers share loops and barriers: structure, bits, and random kernels full of siblings."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bodies import Body, across, arrays_for, filled, outputs_in, run_kernel, wanted
from tests.helpers import assert_same
from tests.kernels import along, columns, indexed, param
from tests.three_ways import REFUSED, opts_for
from uopc import compile as compile_bodies
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import TargetError, UsageError
from uopc.kernel import KernelBody
from uopc.opts import Opts
from uopc.passes.rangeify import rangeify_kernel
from uopc.passes.share import share
from uopc.pipeline import compile_kernel, index_kernel, lower
from uopc.symbolic import index as ix
from uopc.target import target as named
from uopc.uop.facts import bounds, free
from uopc.uop.node import UOp, addrspace, memory, toposort
from uopc.uop.ops import SERIAL, Ops

X, Y = param(0, 6, 512), param(1, 6, 512)
ROWS = Opts(gpu=True, local={1: 32}, vector={1: 4})
COLUMNS = Opts(gpu=True, local={0: 32}, vector={0: 4})


def loops(sink: UOp) -> int:
    """Loops that are not unrolled."""
    return sum(u.op is Ops.RANGE and u.arg.kind in SERIAL for u in toposort(sink))


def loads(sink: UOp) -> list[int]:
    """The slot of each LOAD of a parameter."""
    return sorted(memory(u.src[0]).arg.slot for u in of_parameters(sink))


def of_parameters(sink: UOp) -> list[UOp]:
    """Their LOADs."""
    found = [u for u in toposort(sink) if u.op is Ops.LOAD]
    return [u for u in found if addrspace(u.src[0]) is AddrSpace.GLOBAL]


def barriers(sink: UOp) -> int:
    return sum(u.op is Ops.BARRIER for u in toposort(sink))


def lowered(opts: Opts, *bodies: UOp) -> UOp:
    return lower(indexed(*bodies), opts)


def of_kernel(body: KernelBody, opts: Opts) -> UOp:
    return lower(share(rangeify_kernel(body), given=True), opts)


def total(x: UOp) -> UOp:
    """The sum of each row."""
    return x.reduce(Ops.ADD, 1)


def variance(x: UOp) -> UOp:
    centred = x - along(total(x) * (1 / x.shape[1]), x)
    return total(centred * centred)


# ---- one loop
SHARED: dict[str, tuple[tuple[UOp, ...], Opts, int, list[int]]] = {
    "a sum and a product's": ((total(X), total(X * Y)), ROWS, 1, [0, 1]),
    "max and argmax": ((X.reduce(Ops.MAX, 1), X.argmax(1)), ROWS, 1, [0]),
    "sums of columns": ((columns(X), columns(X * X)), COLUMNS, 1, [0]),
    "of a native kernel": ((total(X), total(X * Y)), Opts(), 2, [0, 1]),  # and that of the rows
    "tiles": ((total(X), total(X * Y)), Opts(gpu=True, local={1: 32}, tile={1: 4}), 2, [0, 1]),
    "what needs the other": ((total(X), variance(X)), ROWS, 2, [0, 0]),
    "what needs a third": ((variance(X), total(X * Y)), ROWS, 2, [0, 0, 1]),
}


@pytest.mark.parametrize("name", SHARED)
def test_siblings_share_a_loop(name: str) -> None:
    bodies, opts, wanted_loops, slots = SHARED[name]
    sink = lowered(opts, *bodies)
    assert loops(sink) == wanted_loops and loads(sink) == slots


@pytest.mark.parametrize("name", SHARED)
def test_no_bit_changes(name: str, rng: np.random.Generator) -> None:
    """Each result is that of a kernel that computes it alone."""
    bodies, opts, _, _ = SHARED[name]
    target = "emulated" if opts.gpu else "cpu"
    arrays = [rng.standard_normal((6, 512)).astype(np.float32) for _ in range(2)]

    def run(*some: UOp) -> Any:
        slots = {u.arg.slot for u in toposort(*some) if u.op is Ops.BUFFER}
        return compile_bodies(list(some), opts, target)(*(arrays[s] for s in sorted(slots)))

    for body, got in zip(bodies, run(*bodies), strict=True):
        assert_same(got, run(body))


def test_a_dear_value_of_two_sums_is_computed_once() -> None:
    e = X.exp()
    sink = lowered(ROWS, total(e), total(e * Y))
    assert sum(u.op is Ops.EXP for u in toposort(sink)) == 1 and loops(sink) == 1


def test_where_it_is_computed_once_in_each_of_two_loops() -> None:
    e = X.exp()
    centred = e - along(total(e), X)
    sink = lowered(ROWS, total(e), total(centred * centred))
    assert sum(u.op is Ops.EXP for u in toposort(sink)) == 2 and loops(sink) == 2


# ---- rows in a loop
def normalised_backwards(rows: int = 12, width: int = 64) -> KernelBody:
    """A layer norm's gradient of its input beside column sums of parts of the rows."""
    b = Body(3, rows // 3, width)
    g, x, weight = b.param(3, rows // 3, width), b.param(3, rows // 3, width), b.param(width)

    def spread(row: UOp) -> UOp:
        return row.reshape((3, rows // 3, 1)).expand(x.shape)

    def mean(v: UOp) -> UOp:
        return b.walks(v.reduce(Ops.ADD, 1), 0, 1, 2) * (1 / width)

    centred = x - spread(mean(x))
    normal = centred / spread((mean(centred * centred) + 1e-5).sqrt())
    weighted = g * weight.reshape((1, 1, width)).expand(x.shape)
    by_mean, by_scale = mean(weighted), mean(weighted * normal)
    b.store(weighted - spread(by_mean) - normal * spread(by_scale), 0, 1, 2)
    for v in (g * normal, g):
        b.store(b.walks(v.permute((0, 2, 1)).reduce(Ops.ADD, 1), 0, 2, 1))
    return b.record


BACKWARDS = {
    "a row a block": Opts(gpu=True, local={2: 16}, vector={2: 4}),
    "several warps": Opts(gpu=True, local={2: 64}),
    "copies": Opts(gpu=True, local={2: 8}, upcast={2: 2}, vector={2: 4}),
    "two rows a turn": Opts(gpu=True, local={2: 64}, upcast={1: 2}),
    "rows across lanes": Opts(gpu=True, local={1: 2, 2: 32}, vector={2: 2}),
    "blocks in a loop": Opts(gpu=True, local={2: 64}, loop={0: 3}),
    "loads as they come": Opts(gpu=True, local={2: 64}, early=False),
    "native": Opts(vector={2: 8}),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_layer_norm_backwards_is_right(name: str) -> None:
    body, opts = normalised_backwards(), BACKWARDS[name]
    arrays = arrays_for(body)
    _, have = run_kernel(body, "emulated" if opts.gpu else "cpu", opts, arrays)
    for got, want in zip(outputs_in(body, have), wanted(body, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_a_block_walks_its_rows_once() -> None:
    sink = of_kernel(normalised_backwards(), BACKWARDS["several warps"])
    assert loops(sink) == 1 and barriers(sink) == 3
    inside = [u for u in of_parameters(sink) if any(r.arg.kind in SERIAL for r in free(u))]
    assert sorted(memory(u.src[0]).arg.slot for u in inside) == [0, 1]
    assert loads(sink) == [0, 0, 1, 1, 2], "the first row and the weight before the loop"


def test_rows_are_loaded_an_iteration_ahead() -> None:
    """Where threads meet in the loop, and Opts say so; not beyond the last row."""
    body, opts = normalised_backwards(), BACKWARDS["several warps"]
    sink = of_kernel(body, opts)
    names = [u.arg.name for u in toposort(sink) if u.op is Ops.ALLOC]
    assert names.count("next") == 2
    (k,) = (u for u in toposort(sink) if u.op is Ops.RANGE and u.arg.kind in SERIAL)
    ahead = [u for u in of_parameters(sink) if k in free(u)]
    assert [bounds(ix.substitute(u.src[1], {k: ix.index(3)})) for u in ahead] == [(0, 0)] * 2
    late = of_kernel(body, Opts(gpu=True, local={2: 64}, early=False))
    assert loads(late) == [0, 1, 2]
    one_warp = of_kernel(body, BACKWARDS["a row a block"])
    assert loads(one_warp) == [0, 1, 2], "shuffles wait for nobody"


def test_parts_are_stored_after_the_loop() -> None:
    sink = of_kernel(normalised_backwards(), BACKWARDS["a row a block"])
    (k,) = (u for u in toposort(sink) if u.op is Ops.RANGE and u.arg.kind in SERIAL)
    inside = {
        memory(u.src[0]).arg.slot: k in free(u)
        for u in toposort(sink)
        if u.op is Ops.STORE and addrspace(u.src[0]) is AddrSpace.GLOBAL
    }
    assert inside == {3: True, 4: False, 5: False}


# ---- barriers
WARPS = Opts(gpu=True, local={1: 128})


def test_independent_exchanges_share_a_barrier() -> None:
    assert barriers(lowered(WARPS, total(X), total(X * Y))) == 1
    assert barriers(lowered(WARPS, total(X), variance(X))) == 2
    # the sum of the product goes with one of the two that need each other
    assert barriers(lowered(WARPS, variance(X), total(X * Y))) == 2


def test_exchanges_in_a_loop_keep_each_other_apart() -> None:
    """No barrier before the first exchange: the second one's stands between two iterations."""
    opts = Opts(gpu=True, local={1: 128}, loop={0: 6})
    sink = lowered(opts, X - along(total(X), X) - along(variance(X), X))
    shared = [u.arg.shape for u in toposort(sink) if u.op is Ops.ALLOC and u.arg.name == "part"]
    assert barriers(sink) == 2 and shared == [(4,), (4,)]


@pytest.mark.parametrize("rows", [2, 3, 6])
def test_an_exchange_alone_writes_two_memories_in_turn(rows: int, rng: np.random.Generator) -> None:
    """Loops of odd and even length inside of another one: the emulator looks for races."""
    x = param(0, 2, rows, 64)
    body = x.reduce(Ops.ADD, 1)
    opts = Opts(gpu=True, local={2: 64}, loop={0: 2, 1: rows})
    array = (rng.integers(-8, 9, (2, rows, 64)) / 4).astype(np.float32)
    kernel = compile_bodies(body, opts, "emulated", check=True)
    assert_same(kernel(array), array.sum(2, dtype=np.float32))
    assert barriers(kernel.steps[0].sink) == 1


# ---- what stays apart
def test_what_loads_nothing_in_common_keeps_its_loop() -> None:
    assert loops(lowered(ROWS, total(X), total(Y))) == 2


def in_place(rows: int = 6, width: int = 512) -> KernelBody:
    """x += y, in place, and the sums of the old rows of x and of x * y."""
    b = Body(rows, width)
    x, y = b.param(rows, width), b.param(rows, width)
    b.store(x + y, 0, 1, into=x)
    for v in (x, x * y):
        b.store(b.walks(total(v), 0, 1))
    return b.record


def test_nothing_joins_a_loop_that_writes_in_place() -> None:
    body = in_place()
    sink = of_kernel(body, ROWS)
    assert loops(sink) == 2, "both sums in one, then the STORE"
    arrays = arrays_for(body)
    _, have = run_kernel(body, "emulated", ROWS, arrays)
    for got, want in zip(outputs_in(body, have), wanted(body, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


# ---- random siblings
class Siblings:
    """A kernel over rows and columns: sums of rows and columns, some of others, and maps."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shape = (rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 3, 8, 16, 33, 64, 128)))
        self.body = Body(*self.shape)
        dtype = rng.choice((dtypes.i32, dtypes.i32, dtypes.f32))
        self.tables = [self.body.param(*self.shape, dtype=dtype) for _ in range(2)]
        self.tables.append(across(self.body.param(self.shape[1], dtype=dtype), self.tables[0]))
        self.sums: list[UOp] = []  # spread over the table
        for _ in range(rng.randint(2, 5)):
            rng.choice((self.row, self.row, self.column, self.table))()
        if not self.body.outputs:
            self.body.store(self.value(), 0, 1)

    def value(self) -> UOp:
        """Something for each row and column."""
        mine = self.rng.choices([*self.tables, *self.sums], k=2)
        v = mine[0]
        if v.dtype.is_int and self.rng.randint(0, 1):
            return v * mine[1]
        return self.rng.choice((v + mine[1], v - mine[1], v.maximum(mine[1])))

    def _reduced(self, x: UOp) -> UOp:
        return x.reduce(self.rng.choice((Ops.ADD, Ops.ADD, Ops.MAX)), 1)

    def row(self) -> None:
        x = self.value()
        r = self.body.walks(self._reduced(x), 0, 1)
        self.sums.append(along(r, x))
        if self.rng.randint(0, 1):
            self.body.store(r)

    def column(self) -> None:
        x = self.value()
        c = self.body.walks(self._reduced(x.permute((1, 0))), 1, 0)
        if self.rng.randint(0, 2):
            self.body.store(c)
        else:
            self.sums.append(across(c, x))

    def table(self) -> None:
        self.body.store(self.value(), 0, 1)


@settings(max_examples=60, suppress_health_check=[*HealthCheck], deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_random_siblings(rng: random.Random) -> None:
    """The numbers of the oracle under any Opts: emulated and checked, and native."""
    body = Siblings(rng).body.record
    arrays = arrays_for(body)
    want = wanted(body, arrays)
    for target in ("sm_80", "cpu"):
        opts = opts_for(rng, index_kernel(body, named(target)), target != "cpu")
        try:
            kernel = compile_kernel(body, target, opts=opts, check=target != "cpu")
        except (TargetError, UsageError) as error:
            assert isinstance(error, TargetError) or any(r in str(error) for r in REFUSED)
            continue
        have = filled(body, arrays)
        kernel.run(have)
        for got, exact in zip(outputs_in(body, have), want, strict=True):
            if exact.dtype.kind == "f":
                np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-3)
            else:
                assert_same(got, exact)

"""Every access of a program, each with its scopes, conditions and memory."""

from __future__ import annotations

import math
from collections import Counter

from tests.access_table import BY_NAME
from tests.helpers import alloc
from tests.kernels import param, softmax
from uopc.dtype import AddrSpace, dtypes
from uopc.inspect.sites import Site, last_blocks, matrix_lanes, sites, statements
from uopc.kernel import ProgramTree
from uopc.pipeline import compile, finish
from uopc.uop.cursor import Cursor
from uopc.uop.facts import bounds, free
from uopc.uop.node import UOp, buffer, range_
from uopc.uop.ops import Atomic, AxisType, Ops

T = range_(64, 0, AxisType.LOCAL)
X, Y = buffer(0, dtypes.f32, (256,)), buffer(1, dtypes.f32, (256,))


def of_row(name: str) -> list[Site]:
    """Accesses of the only launch of a kernel of the access table."""
    (step,) = BY_NAME[name].steps()
    return sites(step.program)


def kinds(found: list[Site]) -> Counter[tuple[str, str]]:
    return Counter((s.op, s.space.name) for s in found)


# ---- what is an access
def test_reads_come_before_what_they_are_for() -> None:
    c = Cursor()
    c.store(Y.index(T), X.index(T).load() + X.index(T + 64).load())
    first, second, last = sites(finish(c.sink()))
    assert [s.op for s in (first, second, last)] == ["LOAD", "LOAD", "STORE"]
    assert [s.store for s in (first, second, last)] == [False, False, True]
    assert (first.memory, last.memory) == (X, Y)
    assert {bounds(s.offset) for s in (first, second)} == {(0, 63), (64, 127)}
    assert first.statement is last.statement is last.node


def test_registers_and_scalars_by_value_are_none() -> None:
    scale, kept = buffer(1, dtypes.f32, ()), alloc(AddrSpace.REG, size=4)
    c, k = Cursor(), range_(4, 1, AxisType.UPCAST)
    with c.loop(k):
        c.store(kept.index(k), X.index(T * 4 + k).load() * scale.index(0).load())
    c.store(buffer(2, dtypes.f32, (64,)).index(T), c.load(kept.index(2)))
    assert [(s.op, s.memory.arg.slot) for s in sites(finish(c.sink()))] == [
        ("LOAD", 0),
        ("STORE", 2),
    ]


def test_a_named_value_is_read_once() -> None:
    x = X.index(T).load()
    c = Cursor()
    c.store(Y.index(T), x * x)
    c.store(Y.index(T + 64), x)
    assert [s.op for s in sites(finish(c.sink()))] == ["LOAD", "STORE", "STORE"]


def test_widths() -> None:
    (step,) = compile(param(0, 1 << 16) * 2.0, target="sm_80").steps
    assert [(s.op, s.width_bytes) for s in sites(step.program)] == [("LOAD", 16), ("STORE", 16)]


def test_copies_read_and_write() -> None:
    """cp.async has both sides, a tensor copy is one of a whole box, and matrices have 8 rows of 16
    bytes."""
    fma, mma, wgmma = (of_row(f"product_{name}") for name in ("fma", "mma", "wgmma"))
    of_fma = kinds(fma)
    assert of_fma["COPY", "GLOBAL"] == of_fma["COPY", "SHARED"] == 6
    assert all(s.store == (s.space is AddrSpace.SHARED) for s in fma if s.op == "COPY")
    assert {s.width_bytes for s in fma if s.op == "COPY"} == {4, 16}
    matrices = [s for s in mma if s.op == "LDMATRIX"]
    assert len(matrices) == 2 and {s.width_bytes for s in matrices} == {16}
    assert {matrix_lanes(s) for s in matrices} == {32} and not any(s.store for s in matrices)
    boxes = [s for s in wgmma if s.op == "BULK"]
    assert [(s.memory.arg.slot, s.width_bytes, s.store) for s in boxes] == [
        (0, 128 * 64 * 2, False),
        (1, 64 * 64 * 2, False),
    ]
    assert {s.space for s in boxes} == {AddrSpace.GLOBAL}


def test_a_clusters_memory() -> None:
    """What a block sends goes to others; what it reads of its own part is its shared memory."""
    found = of_row("softmax_cluster")
    assert kinds(found)["SEND", "CLUSTER"] == kinds(found)["LOAD", "SHARED"] == 2
    own = next(s for s in found if (s.op, s.space) == ("LOAD", AddrSpace.SHARED))
    blocks = own.memory.arg.shape[0]
    assert bounds(own.offset)[1] < math.prod(own.memory.arg.shape) <= blocks * 8 * 32


def test_atomics_write() -> None:
    c = Cursor()
    with c.when(T.eq(0)):
        c.atomic(Atomic.ADD, buffer(0, dtypes.u32, (4,)).index(2), 1)
    (found,) = sites(finish(c.sink()))
    assert (found.op, found.store, found.width_bytes) == ("ATOMIC", True, 4)
    assert [c.op for c in found.conditions] == [Ops.EQ]


# ---- where it stands
def program() -> ProgramTree:
    """A load under a loop, an IF and a gate."""
    k = range_(4, 1)
    c = Cursor()
    with c.loop(k), c.when(T < 50):
        c.store(Y.index(T * 4 + k), c.load(X.index(T * 4 + k), k < 3, 7.0), gate=T > 1)
    return finish(c.sink())


def test_loops_and_conditions() -> None:
    load, store = sites(program())
    assert [r.arg.axis for r in load.loops] == [1] and load.loops == store.loops
    assert {tuple(sorted(r.arg.axis for r in free(c))) for c in store.conditions} == {(0,)}
    assert len(store.conditions) == 2  # the IF, its own gate
    ranges = [{r.arg.axis for r in free(c)} for c in load.conditions]
    assert ranges == [{0}, {0}, {1}]  # the load stands in the store's guarded text
    assert load.counted == load.conditions  # nothing stands for them


def test_what_a_choice_does_not_take_is_not_read() -> None:
    some = T < 10
    c = Cursor()
    c.store(Y.index(T), some.where(X.index(T).load(), X.index(T + 100).load()))
    yes, no, _ = sites(finish(c.sink()))
    if bounds(yes.offset)[0] == 100:
        yes, no = no, yes
    assert yes.conditions == (some,)
    assert [c.op for c in no.conditions] == [Ops.NOT] and no.conditions[0].src == (some,)


def test_what_stands_for_a_load_outside_of_its_gate() -> None:
    inner = X.index(T + 64).load()
    c = Cursor()
    c.store(Y.index(T), X.index(T).load(T < 10, inner))
    found = {bounds(s.offset)[0]: s for s in sites(finish(c.sink())) if not s.store}
    assert [c.op for c in found[0].conditions] == [Ops.LT]
    assert [c.op for c in found[64].conditions] == [Ops.NOT]


def test_bools_stop_early() -> None:
    """`a || b` comes to b where a is false, in C as in CUDA; so max and min of bools."""
    a, b = (buffer(n, dtypes.bool, (64,)).index(T).load() for n in range(2))
    for both, skips in ((a | b, False), (a & b, True), (a.maximum(b), False), (a.minimum(b), True)):
        c = Cursor()
        c.store(buffer(2, dtypes.bool, (64,)).index(T), both)
        first, second, _ = sites(finish(c.sink()))
        assert first.conditions == ()
        (met,) = second.conditions
        assert met is (first.node if skips else UOp(Ops.NOT, (first.node,)))


def test_warps_of_a_role() -> None:
    c = Cursor()
    with c.role("reads", 1, 1):
        c.store(Y.index(T), c.load(X.index(T)))
    assert [s.warps for s in sites(finish(c.sink()))] == [((1, 1),)] * 2


# ---- the block that comes last
def test_the_last_block_is_the_last_by_its_number() -> None:
    """Which block draws the last ticket is not known; that one does is."""
    (step,) = compile(param(0, 1 << 20).reduce(Ops.ADD, 1), target="sm_80").steps
    (known,) = last_blocks(step.program.sink).values()
    blocks = math.prod(step.program.launch.grid)
    (block,) = free(known)
    assert blocks > 1 and block.arg.size == blocks
    folds = [s for s in sites(step.program) if s.counted != s.conditions]
    assert {(s.op, s.store) for s in folds} >= {("LOAD", False), ("STORE", True)}
    assert all(known in s.counted and known not in s.conditions for s in folds)


def test_of_several_groups_each_has_a_last_block() -> None:
    steps = BY_NAME["sum_columns"].steps()
    (known,) = last_blocks(steps[0].program.sink).values()
    (part,) = free(known)
    groups = [a.range for a in steps[0].program.launch.grid_axes if a.range is not part]
    assert len(groups) == 1 and groups[0].arg.size * part.arg.size == 135


def test_other_kernels_have_none() -> None:
    (step,) = compile(softmax(param(0, 33, 1000)), target="sm_80").steps
    assert last_blocks(step.program.sink) == {}
    assert all(s.counted == s.conditions for s in sites(step.program))


# ---- statements
def test_statements_hold_every_node_once() -> None:
    """What has a name is inside of the statement that names it, and of no other."""
    for name in ("softmax_f32", "product_mma", "sum_all"):
        (step,) = BY_NAME[name].steps()
        found = statements(step.program)
        held = Counter(u for s in found for u in s.inside if u.op in (Ops.LOAD, Ops.MMA, Ops.EXP2))
        assert set(held.values()) <= {1}
        assert sum(len(s.accesses) for s in found) == len(sites(step.program))

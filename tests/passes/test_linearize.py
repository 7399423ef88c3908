"""Every node in its one place: what a loop does not change stands outside it, and once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.helpers import alloc
from tests.kernels import along, axpy, columns, indexed, param, product, softmax
from tests.passes.test_materialise import HELD, ROW
from uopc.dtype import AddrSpace, dtypes
from uopc.errors import SpecError
from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.opts import Opts
from uopc.passes.linearize import DEEPEST_EXPRESSION, linearize
from uopc.pipeline import lower
from uopc.uop.cursor import Cursor
from uopc.uop.node import UOp, buffer, memory, range_, sink, toposort
from uopc.uop.ops import AccessArg, Atomic, AxisType, Engine, LaunchArg, MatrixArg, Ops
from uopc.uop.text import show

CASES: dict[str, tuple[tuple[UOp, ...], Opts]] = {
    "elementwise": ((axpy(64, 128),), Opts(gpu=True, local={0: 8, 1: 16}, upcast={0: 2})),
    "softmax": ((softmax(ROW),), HELD),
    "product": (
        (product(8, 8, 6),),
        Opts(gpu=True, local={0: 4, 1: 4}, upcast={0: 2, 1: 2}, unroll=2),
    ),
    "columns": ((columns(param(0, 50, 40)),), Opts(gpu=True, local={0: 32, 1: 8}, lanes=(0, 1))),
    "native": ((param(0, 10, 33).reduce(Ops.ADD, 1),), Opts(thread=0, tile={1: 4}, vector={1: 8})),
}


def tree(name: str) -> ProgramTree:
    bodies, opts = CASES[name]
    return linearize(lower(indexed(*bodies, merge=opts.merge), opts))


def opened(u: UOp) -> str:
    if u.op is Ops.RANGE:
        return f"for {u.arg.digit or 'i'}{u.arg.axis} in {u.arg.size} ({u.arg.kind})"
    return f"role {u.arg.name}" if u.op is Ops.ROLE else "if"


def outline(items: Iterable[Item], depth: int = 0) -> list[str]:
    """The tree as lines: what stands where."""
    lines = []
    for i in items:
        pad = "  " * depth
        if isinstance(i, Scope):
            lines.append(pad + opened(i.opener))
            lines += outline(i.items, depth + 1)
        elif isinstance(i, Declare):
            m = i.alloc.arg
            lines.append(f"{pad}{m.addrspace.value} {m.name}{m.slot}[{m.shape[0]}]")
        elif isinstance(i, Let):
            lines.append(f"{pad}let {i.value.op} {i.value.dtype}")
        else:
            lines.append(f"{pad}{i.effect.op}")
    return lines


@pytest.mark.parametrize("name", CASES)
def test_the_tree(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"linearize/{name}.txt", "\n".join(outline(tree(name).items)))


@pytest.mark.parametrize("name", CASES)
def test_every_effect_stands_once(name: str) -> None:
    t = tree(name)
    effects = [i.effect for i in t.walk() if isinstance(i, Do)]
    wanted = [u for u in toposort(t.sink) if u.op in (Ops.STORE, Ops.BARRIER)]
    assert len(effects) == len(set(effects)) and set(effects) == set(wanted)


@pytest.mark.parametrize("name", CASES)
def test_names_come_before_their_uses_and_loops_around_them(name: str) -> None:
    """Walk the tree: whatever a node mentions is open, named or declared by then."""
    t = tree(name)
    lets = {i.value for i in t.walk() if isinstance(i, Let)}
    done: set[UOp] = set()
    loops: list[UOp] = []

    def walk(items: Iterable[Item]) -> None:
        for i in items:
            if isinstance(i, Scope):
                loops.append(i.opener)
                walk(i.items)
                loops.pop()
            elif isinstance(i, Declare):
                done.add(i.alloc)
            else:
                u = i.value if isinstance(i, Let) else i.effect
                for x in mentioned(u, lets - {u}):
                    in_thread = x.op is Ops.RANGE and x.arg.kind not in (
                        AxisType.GLOBAL,
                        AxisType.LOCAL,
                    )
                    assert not in_thread or x in loops, show(u)
                    assert x.op is not Ops.ALLOC or x in done, show(u)
                    assert x not in lets or x is u or x in done, show(u)
                done.add(u)

    walk(t.items)


def mentioned(u: UOp, named: set[UOp]) -> set[UOp]:
    """Nodes in the text of u: down to names, never into what only orders effects."""
    found: set[UOp] = set()
    stack = [u]
    while stack:
        x = stack.pop()
        if x in found:
            continue
        found.add(x)
        if x not in named:
            stack.extend(x.src[:1] if x.op in (Ops.AFTER, Ops.BARRIER) and x is not u else x.src)
        if u.op is Ops.BARRIER:
            break
    return found


def test_what_a_loop_does_not_change_stands_outside() -> None:
    body = param(0, 4, 8) * along(param(1, 4).exp(), param(0, 4, 8))
    t = linearize(lower(indexed(body), Opts()))
    (outer,) = (i for i in t.items if isinstance(i, Scope))
    lets = [i.value for i in outer.items if isinstance(i, Let)]
    assert any(Ops.EXP in {x.op for x in toposort(u)} for u in lets)
    (inner,) = (i for i in outer.items if isinstance(i, Scope))
    assert not any(isinstance(i, Let) and i.value.op is Ops.EXP for i in inner.items)


def test_deep_expressions_get_names() -> None:
    x = param(0, 4)
    for _ in range(5 * DEEPEST_EXPRESSION):
        x = x.sqrt() + 1.0
    t = linearize(lower(indexed(x), Opts()))
    lets = [i for i in t.walk() if isinstance(i, Let)]
    assert 5 <= len(lets) <= 5 * DEEPEST_EXPRESSION


def fills(t: ProgramTree) -> list[str]:
    """The outermost items: values by op, loops as "load" where they only copy a parameter."""
    out = []
    for i in t.items:
        if isinstance(i, Scope):
            (store, *_) = (x.effect for x in _walk(i) if isinstance(x, Do))
            value = store.src[1]
            loads = value.op is Ops.LOAD and memory(value.src[0]).op is Ops.BUFFER
            out.append("load" if loads else "loop")
        elif isinstance(i, Let):
            out.append(str(i.value.op))
    return out


def _walk(scope: Scope) -> Iterator[Item]:
    for i in scope.items:
        yield i
        if isinstance(i, Scope):
            yield from _walk(i)


def test_early_loads_stand_before_the_first_shuffle() -> None:
    body = softmax(ROW) - param(1, 3, 128)
    late = lower(indexed(body), Opts(gpu=True, local={1: 32}, upcast={1: 4}, early=False))
    early = lower(indexed(body), HELD)
    for root, first in ((early, True), (late, False)):
        order = fills(linearize(root))
        loads = [n for n, kind in enumerate(order) if kind == "load"]
        assert len(loads) == 2
        assert (loads[1] < order.index("SHUFFLE")) == first


# ---- hand-written loops that are none
OUT_ = buffer(1, dtypes.f32, (8,))


def test_a_range_that_two_ends_close() -> None:
    r = range_(8, 0)
    first = OUT_.index(r).store(1.0).end(r)
    second = OUT_.after(first).index(r).store(2.0).end(r)
    with pytest.raises(SpecError, match="is closed by two ENDs"):
        linearize(sink(second))


def test_a_range_that_nothing_closes() -> None:
    r = range_(8, 0)
    with pytest.raises(SpecError, match=r"\(\w+.py:\d+\) mentions range r0, which no END closes"):
        linearize(sink(OUT_.index(r).store(1.0)))


def test_registers_are_declared_where_they_begin_anew() -> None:
    r, k = range_(8, 0), range_(4, 1, AxisType.REDUCE)
    acc = alloc(AddrSpace.REG)
    zero = acc.after(r).index(0).store(0.0)
    running = acc.after(r).after(zero, k)
    step = (
        running.index(0)
        .store(running.index(0).load() + buffer(0, dtypes.f32, (4,)).index(k).load())
        .end(k)
    )
    done = OUT_.index(r).store(acc.after(r).after(step).index(0).load()).end(r)
    (outer,) = linearize(sink(done, launch=LaunchArg())).items
    assert isinstance(outer, Scope)
    assert [type(i).__name__ for i in outer.items] == ["Declare", "Do", "Scope", "Do"]


# ---- conditions and roles
LANE = range_(32, 0, AxisType.LANE)
X, Y = buffer(0, dtypes.f32, (64,)), buffer(1, dtypes.f32, (64,))
COUNT = buffer(2, dtypes.i32, (64,))
TILE, ACC = alloc(AddrSpace.SHARED, size=64), alloc(AddrSpace.REG)


def lines(c: Cursor, launch: LaunchArg | None = None) -> list[str]:
    return [line for line in outline(linearize(c.sink(launch)).items) if "[" not in line]


def test_scopes_nest_as_they_were_opened() -> None:
    c = Cursor()
    with c.loop(range_(4, 1)) as i, c.when(i < LANE):
        c.store(X.index(LANE), 1.0)
        with c.loop(range_(3, 2)) as k, c.when(k < 2):
            c.store(Y.index(LANE), 2.0)
    assert lines(c) == [
        "for i1 in 4 (LOOP)",
        *("  if", "    STORE"),
        *("    for i2 in 3 (LOOP)", "      if", "        STORE"),
    ]


def test_one_end_closes_a_loop_and_a_condition() -> None:
    i, inside = range_(4, 1), UOp(Ops.IF, (LANE < 3,))
    store = Y.after(inside, i).index(i).store(1.0)
    for scopes, want in (
        ((i, inside), ["for i1 in 4 (LOOP)", "  if", "    STORE"]),
        ((inside, i), ["if", "  for i1 in 4 (LOOP)", "    STORE"]),
    ):
        assert outline(linearize(sink(store.end(*scopes))).items) == want


def test_arithmetic_moves_out_of_a_condition_and_ordered_loads_stay() -> None:
    c = Cursor()
    far = LANE * 2 + 1
    with c.when(LANE < 16):
        c.store(Y.index(far), c.load(X.index(far)).sqrt())
        c.store(Y.index(far + 1), c.load(X.index(far)))
    *before, scope = linearize(c.sink()).items
    assert far in [i.value for i in before if isinstance(i, Let)]
    assert not any(u.op is Ops.LOAD for i in before for u in _value(i).toposort())
    assert isinstance(scope, Scope)
    inside = [i.value.op for i in scope.items if isinstance(i, Let)]
    assert inside == []  # each LOAD stands in its STORE's text
    free = Cursor()
    with free.when(LANE < 16):
        free.store(Y.index(LANE), X.index(LANE).load().sqrt())
    first, _ = linearize(free.sink()).items
    assert Ops.LOAD in {u.op for u in _value(first).toposort()}  # not ordered: for all lanes


def _value(item: Item) -> UOp:
    assert isinstance(item, Let)
    return item.value


def test_a_condition_that_is_loaded_is_read_before_the_scope() -> None:
    c = Cursor()
    c.store(TILE.index(LANE), 1.0)
    c.barrier()
    with c.when(c.load(TILE.index(0)) < c.load(TILE.index(1))):
        c.store(TILE.index(LANE), 2.0)
    assert lines(c)[2:] == ["let LOAD f32", "let LOAD f32", "if", "  STORE"]


def test_a_condition_on_registers_that_its_scope_writes() -> None:
    c = Cursor()
    c.store(ACC.index(0), 1.0)
    with c.when(c.load(ACC.index(0)) < 5.0):
        c.store(ACC.index(0), 7.0)
    c.store(Y.index(LANE), c.load(ACC.index(0)))
    assert lines(c) == ["STORE", "let LOAD f32", "if", "  STORE", "STORE"]


def test_a_condition_inside_a_reduction() -> None:
    c = Cursor()
    c.store(ACC.index(0), 0.0)
    with c.loop(range_(8, 1, AxisType.REDUCE)) as k:
        x = c.load(X.index(k))
        with c.when(x < 3.0):
            c.store(ACC.index(0), c.load(ACC.index(0)) + x)
    c.store(Y.index(LANE), c.load(ACC.index(0)))
    assert lines(c) == [
        *("STORE", "for i1 in 8 (REDUCE)", "  let LOAD f32", "  if", "    STORE", "STORE"),
    ]


def test_roles_stand_in_the_order_in_which_they_were_written() -> None:
    c = Cursor()
    c.store(X.index(LANE), 0.0)
    for name in ("b", "a"):
        with c.role(name, 0, 1), c.loop(range_(2, 1 if name == "a" else 2)):
            c.store(Y.index(LANE), 1.0)
            c.barrier()
    c.barrier()
    assert lines(c) == [
        "STORE",
        *("role b", "  for i2 in 2 (LOOP)", "    STORE", "    BARRIER"),
        *("role a", "  for i1 in 2 (LOOP)", "    STORE", "    BARRIER"),
        "BARRIER",
    ]


def test_atomics_are_done_once_used_or_not() -> None:
    c = Cursor()
    c.atomic(Atomic.ADD, COUNT.index(0), 1)
    old = c.atomic(Atomic.ADD, COUNT.index(0), 1)
    c.store(COUNT.index(old.cast(dtypes.index)), old + old)
    assert lines(c) == ["let ATOMIC i32", "let ATOMIC i32", "STORE"]


@pytest.mark.parametrize("how", ["atomic", "cp.async", "bulk"])
def test_loads_of_what_others_write_keep_their_place(how: str) -> None:
    c = Cursor()
    shared = alloc(AddrSpace.SHARED, dtypes.i32, 64)
    if how == "atomic":
        c.atomic(Atomic.ADD, shared.index(0), 1)
    else:
        c.copy_async(shared.index(LANE), COUNT.index(LANE))
        c.commit(Engine.CP_ASYNC)
        c.wait_group(Engine.CP_ASYNC)
    c.barrier()
    x = c.load(shared.index(LANE))
    c.barrier()
    c.store(COUNT.index(LANE), x)
    assert lines(c)[-4:] == ["BARRIER", "let LOAD i32", "BARRIER", "STORE"]


@pytest.mark.parametrize("how", [Ops.STORE, Ops.LDMATRIX, Ops.MMA])
def test_registers_are_read_before_they_are_written_again(how: Ops) -> None:
    """x = r; r = ...; use(x)."""
    c = Cursor()
    dtype = dtypes.f32 if how is Ops.MMA else dtypes.u32
    r, other = (alloc(AddrSpace.REG, dtypes.u32, 4, slot) for slot in (1, 2))
    r = r if how is not Ops.MMA else alloc(AddrSpace.REG, dtype, 4)
    out = buffer(5, dtype, (64,))
    half = alloc(AddrSpace.SHARED, dtypes.f16, 256)
    c.store(r.index(0), 1)
    x = c.load(r.index(0))
    if how is Ops.STORE:
        c.store(r.index(0), 2)
    elif how is Ops.LDMATRIX:
        c.do(how, r.index(0), half.index(LANE * 8), arg=MatrixArg())
    else:
        c.mma("mma.m16n8k16.f16", r.index(0), other.index(0), other.index(0))
    c.store(out.index(LANE), x)
    assert lines(c) == ["STORE", f"let LOAD {dtype}", str(how), "STORE"]


def test_registers_that_keep_their_value_stay_in_the_text() -> None:
    c = Cursor()
    c.store(ACC.index(0), 1.0)
    x = c.load(ACC.index(0))
    c.store(X.index(LANE), 2.0)
    c.barrier()
    c.store(Y.index(LANE), x)
    assert lines(c) == ["STORE", "STORE", "BARRIER", "STORE"]


def test_an_offset_in_registers_is_read_once() -> None:
    """One INDEX, two uses, and a write between them."""
    c = Cursor()
    where = alloc(AddrSpace.REG, dtypes.i32)
    c.store(where.index(0), 3)
    at = c.load(where.index(0)).cast(dtypes.index)
    place = c.now(Y).index(at)
    c.done = (place.store(1.0),)
    c.store(where.index(0), 4)
    c.done = (c.now(X).index(at).store(2.0),)
    assert lines(c) == ["STORE", "let CAST index", "STORE", "STORE", "STORE"]


def test_a_wide_value_cannot_be_kept() -> None:
    c = Cursor()
    c.store(TILE.index(LANE), 1.0)
    c.barrier()
    wide = UOp(Ops.LOAD, (c.now(TILE).index(LANE * 2 % 64),), AccessArg(2))
    c.barrier()
    c.done = (UOp(Ops.STORE, (c.now(Y).index(LANE * 2), wide), AccessArg(2)),)
    with pytest.raises(SpecError, match=r"2 elements is stored only after the BARRIER .*before"):
        linearize(c.sink())


def test_shuffled_values_stay_in_their_scope() -> None:
    c = Cursor()
    with c.when(LANE < 16):
        half = c.now(LANE.cast(dtypes.f32) * 2.0).shuffle(1, members=0xFFFF)
        c.store(Y.index(LANE), half)
    assert lines(c) == ["let MUL f32", "if", "  let SHUFFLE f32", "  STORE"]


def test_early_loads_do_not_cross_waits() -> None:
    full = alloc(AddrSpace.MBARRIER, dtypes.u64)
    mine = alloc(AddrSpace.REG, size=4)

    def kernel(wait: bool) -> list[str]:
        c = Cursor()
        c.init(full.index(0), 1)
        c.barrier()
        if wait:
            c.wait(full.index(0), 0)
        u, w = range_(4, 1, AxisType.UPCAST), range_(4, 2, AxisType.UPCAST)
        source, into = (X, mine) if not wait else (c.now(X), c.now(mine))
        fill = into.index(u).store(source.index(u).load()).end(u)
        c.done = (fill, *c.done)
        with c.loop(w):
            c.store(Y.index(w), c.load(mine.index(w)))
        return lines(c)

    loop = ["for i1 in 4 (UPCAST)", "  STORE"]
    assert kernel(wait=False)[:4] == [*loop, "MBAR_INIT", "BARRIER"]
    assert kernel(wait=True)[:5] == ["MBAR_INIT", "BARRIER", "WAIT", *loop]


def test_registers_that_a_loop_reads_first_live_outside_of_it() -> None:
    """What one iteration leaves, the next one finds."""
    c = Cursor()
    with c.loop(range_(4, 1)) as k:
        old = c.load(ACC.index(0))
        c.store(ACC.index(0), k.eq(0).where(0.0, old + 1.0))
        c.store(Y.index(k), c.load(ACC.index(0)))
    assert isinstance(linearize(c.sink()).items[0], Declare)
    anew = Cursor()
    with anew.loop(range_(4, 1)) as k:
        anew.store(ACC.index(0), 1.0)
        anew.store(Y.index(k), anew.load(ACC.index(0)))
    (scope,) = linearize(anew.sink()).items
    assert isinstance(scope, Scope) and isinstance(scope.items[0], Declare)


def test_accumulators_that_only_a_fence_names_outside_are_declared_there() -> None:
    c = Cursor()
    acc = alloc(AddrSpace.REG, size=32)
    with c.loop(range_(2, 1)):
        c.store(acc.index(0), 0.0)
    c.wait_group(Engine.WGMMA, 0, acc)
    assert [type(i).__name__ for i in linearize(c.sink()).items] == ["Declare", "Scope", "Do"]


def test_scopes_that_are_none() -> None:
    inside = UOp(Ops.IF, (LANE < 3,))
    with pytest.raises(SpecError, match=r"mentions the IF at \w+\.py:\d+, which no END closes"):
        linearize(sink(Y.after(inside).index(0).store(1.0)))

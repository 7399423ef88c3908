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
from uopc.uop.node import UOp, buffer, memory, range_, sink, toposort
from uopc.uop.ops import AxisType, LaunchArg, Ops
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


def outline(items: Iterable[Item], depth: int = 0) -> list[str]:
    """The tree as lines: what stands where."""
    lines = []
    for i in items:
        pad = "  " * depth
        if isinstance(i, Scope):
            a = i.opener.arg
            lines.append(f"{pad}for {a.digit or 'i'}{a.axis} in {a.size} ({a.kind})")
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
    with pytest.raises(SpecError, match=r"\(\w+.py:\d+\) mentions range .*no END closes"):
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

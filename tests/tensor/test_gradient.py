"""The walk: where gradients are added up, how many nodes a backward pass has, and whole models
against central differences."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tensor.differences import check_gradients
from tests.tensor.test_derivatives import back, logsumexp, numbers, variance
from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.tensor.gradient import arrivals, depends, gradients
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Combine, Ops
from uopc.uop.oracle import evaluate

F32, F64 = dtypes.f32, dtypes.f64
ONE = UOp.const(1.0, F64)


def product(a: UOp, b: UOp) -> UOp:
    """(..., m, k) by (k, n), as sums of an elementwise product."""
    *rest, m, k = a.shape
    n = b.shape[1]
    left = a.reshape((*rest, m, 1, k)).expand((*rest, m, n, k))
    right = b.permute((1, 0)).reshape((*(1 for _ in rest), 1, n, k)).expand((*rest, m, n, k))
    return (left * right).reduce(Ops.ADD)


def ops_of(*roots: UOp) -> Counter[Ops]:
    return Counter(u.op for u in toposort(*roots))


# ---- what comes to several places
def test_what_nothing_depends_on_gets_zeros() -> None:
    x, y, n = buffer(0, F64, (3,)), buffer(1, F32, (2, 2)), buffer(2, dtypes.i32, (3,))
    out = (x * n.cast(F64)).reduce(Ops.ADD)
    assert gradients([out], [ONE], [y, n]) == [
        UOp.const(0.0, F32, (2, 2)),
        UOp.const(0, dtypes.i32, (3,)),
    ]
    assert arrivals([out], [ONE], [y, n]) == {}
    assert depends(out, [x]) and not depends(out, [y]) and not depends(out, [n])


def test_nothing_is_built_for_what_nobody_asked() -> None:
    x, w = buffer(0, F64, (3, 4)), buffer(1, F64, (4, 5))
    (g,) = gradients([product(x, w).reduce(Ops.ADD, 2)], [ONE], [w])
    assert w not in g.toposort()


def test_outputs_that_depend_on_each_other_and_occur_twice() -> None:
    x = buffer(0, F64, (3,))
    y = x * x
    z = y.sin()
    seeds = [UOp.const(v, F64, (3,)) for v in (1.0, 2.0, 4.0)]
    found = gradients([z, y, z], seeds, [x, y, z])
    at = np.array([0.3, 0.5, 0.7])
    by_x, by_y, by_z = evaluate(found, {0: at})
    np.testing.assert_allclose(by_z, [5.0] * 3)
    np.testing.assert_allclose(by_y, 5 * np.cos(at * at) + 2)
    np.testing.assert_allclose(by_x, by_y * 2 * at)


def test_views_that_repeat_are_summed_one_by_one() -> None:
    """x goes into three products by way of one EXPAND; its gradient is three products."""
    x = buffer(0, F64, (6, 4))
    weights = [buffer(n, F64, (4, 5)) for n in (1, 2, 3)]
    outs = [product(x, w) for w in weights]
    seeds = [buffer(n, F64, (6, 5)) for n in (4, 5, 6)]
    (g,) = gradients(outs, seeds, [x])
    sums = [u for u in g.toposort() if u.op is Ops.REDUCE]
    assert len(sums) == 3
    assert all(source_of_views(u).op is Ops.MUL for u in sums)


def source_of_views(u: UOp) -> UOp:
    u = u.src[0]
    while u.op in (Ops.PERMUTE, Ops.RESHAPE):
        u = u.src[0]
    return u


def test_views_that_repeat_nothing_are_summed_before() -> None:
    x = buffer(0, F64, (6, 4))
    t = x.permute((1, 0)).reshape((24,))
    outs = [t.sin(), t.cos(), t.exp()]
    (g,) = gradients(outs, [buffer(n, F64, (24,)) for n in (1, 2, 3)], [x])
    assert ops_of(g)[Ops.PERMUTE] == 2  # the forward's, and one back


def test_a_scalar_that_is_used_everywhere() -> None:
    s = numbers(1)
    check_gradients(lambda x, s: (x * s + s) / (x * x + s * s) - s, numbers(2, 2, 3), s)
    x, a = buffer(0, F64, (2, 3)), buffer(1, F64, ())
    (g,) = gradients([x * a], [buffer(2, F64, (2, 3))], [a])
    assert g.op is Ops.REDUCE and g.arg.axes == 2


def test_ones_are_not_multiplied_by() -> None:
    x, w = buffer(0, F64, (3, 4)), buffer(1, F64, (3, 4))
    loss = (x * w).permute((1, 0)).reshape((2, 6)).flip((0,)).reduce(Ops.ADD, 2)
    assert gradients([loss], [ONE], [x, w]) == [w, x]


def test_relabelled_leaves() -> None:
    """A tensor without axes is one element of a memory, reshaped."""
    x = buffer(0, F64, (1,)).reshape(())
    check_gradients(lambda u: u * u, numbers(1))
    assert gradients([x * 3.0], [ONE], [x]) == [UOp.const(3.0, F64)]


def test_a_seed_that_does_not_fit() -> None:
    x = buffer(0, F32, (3,))
    with pytest.raises(UsageError, match=r"gradient at .*the output is f32 of shape \(3,\)"):
        gradients([x * x], [UOp.const(1.0, F32)], [x])
    with pytest.raises(UsageError, match="given for it f64"):
        gradients([x * x], [UOp.const(1.0, F64, (3,))], [x])


def test_nodes_know_the_line_of_the_forward_pass() -> None:
    x = buffer(0, F64, (3,))
    y = x.exp()
    loss = (y * 2.0).reduce(Ops.ADD)
    (g,) = gradients([loss], [ONE], [x])
    assert {line for u in g.toposort() for _, line in u.origins} >= {y.origins[0][1]}
    assert not [u for u in g.toposort() if not u.origins and u.src]


# ---- size
@pytest.mark.parametrize("step", [lambda u: u.sin(), lambda u: u * u + 0.5, lambda u: u.flip((0,))])
def test_long_chains(step: Callable[[UOp], UOp]) -> None:
    counts = []
    for length in (1000, 20_000):
        u = x = buffer(0, F64, (3,))
        for _ in range(length):
            u = step(u)
        begun = time.perf_counter()
        (g,) = gradients([u], [UOp.const(1.0, F64, (3,))], [x])
        counts.append(len(g.toposort()))
        assert time.perf_counter() - begun < 10
    assert counts[1] <= 20.5 * counts[0]


def test_many_uses_of_one_value() -> None:
    """A value with 5,000 users, half of them by way of one view."""
    x = buffer(0, F64, (4, 1))
    wide = x.expand((4, 3))
    total = ONE * 0.0
    for n in range(2500):
        total = total + (wide * float(n)).reduce(Ops.ADD, 2) + (x * float(n)).reduce(Ops.ADD, 2)
    (g,) = gradients([total], [ONE], [x])
    assert len(toposort(total, g)) < 2.5 * len(total.toposort())
    got = evaluate(g, {0: np.zeros((4, 1))})
    assert got.tolist() == [[4.0 * sum(range(2500))]] * 4


def test_differentiated_many_times() -> None:
    x = buffer(0, F64, (2,))
    u = (x * x).exp()
    ones = UOp.const(1.0, F64, (2,))
    for _ in range(4):
        (u,) = gradients([u], [ones], [x])
    at = np.array([0.3, -0.7])
    want = np.exp(at * at) * (16 * at**4 + 48 * at * at + 12)
    np.testing.assert_allclose(evaluate(u, {0: at}), want, 1e-12)


# ---- models
def layer_norm(x: UOp, gain: UOp, bias: UOp) -> UOp:
    mean = x.reduce(Ops.ADD) / float(x.shape[-1])
    away = x - back(mean, x)
    normal = away / back((variance(x) + 1e-5).sqrt(), x)
    return normal * gain.expand(x.shape) + bias.expand(x.shape)


def softmax(x: UOp) -> UOp:
    return (x - back(logsumexp(x), x)).exp()


def test_a_transformer_layer() -> None:
    rng = np.random.default_rng(0)
    seq, width, wide, words = 3, 4, 6, 5

    def layer(*p: UOp) -> UOp:
        at, table, gain, bias, qkv, w_up, b_up, w_down, target = p
        x = table.gather((~0, 1), at.reshape((seq, 1)).expand((seq, width)))
        h = product(layer_norm(x, gain, bias), qkv)
        q, k, v = (h.shrink(((0, seq), (i * width, (i + 1) * width))) for i in range(3))
        row, column = UOp.arange(seq).reshape((seq, 1)), UOp.arange(seq).reshape((1, seq))
        past = column.expand((seq, seq)) <= row.expand((seq, seq))
        scores = past.where(product(q, k.permute((1, 0))) * 0.5, -np.inf)
        x = x + product(softmax(scores), v)
        up = product(layer_norm(x, gain, bias), w_up) + b_up.expand((seq, wide))
        gelu = up * 0.5 * ((up * (up * up * 0.044715 + 1.0) * 0.7978845608).tanh() + 1.0)
        x = x + product(gelu, w_down)
        logits = product(x, table.permute((1, 0)))
        picked = logits.gather((0, ~0), target)
        return (back(logsumexp(logits), picked) - picked).reduce(Ops.ADD, 2) / float(seq)

    shapes = [(words, width), (width,), (width,), (width, 3 * width)]
    shapes += [(width, wide), (wide,), (wide, width)]
    arrays: list[Array] = [rng.standard_normal(s) * 0.7 for s in shapes]
    at, target = np.array([1, 4, 1]), np.array([[2], [0], [-1]], np.int32)
    check_gradients(layer, at, *arrays, target, orders=1, tolerance=1e-7)


@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(2, 3), (3, 1), (4,), (1,), ()]))
    seed = data.draw(st.integers(0, 50))
    arrays = [numbers(seed + n, *shape, low=0.4, high=1.6) for n in (0, 51)]
    at = np.asarray(data.draw(st.integers(-1, 0)), np.int32)

    def body(x: UOp, y: UOp, at: UOp) -> UOp:
        made = [x, y]
        for _ in range(data.draw(st.integers(2, 7))):
            made.append(grown(data, made, at))
        return made[-1] + alike(made[-2], made[-1])

    check_gradients(body, *arrays, at, orders=1, tolerance=1e-4)


def alike(b: UOp, a: UOp) -> UOp:
    """b in a's shape, or summed up where it has another size."""
    return b.reshape(a.shape) if prod(a.shape) == prod(b.shape) else b.reduce(Ops.ADD, len(b.shape))


TAME: dict[str, Callable[[UOp, UOp], UOp]] = {
    "add": lambda a, b: (a + b) * 0.5,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: (a * b).sin(),
    "div": lambda a, b: a / (b * b + 1.0),
    "max": lambda a, b: a.maximum(b),
    "min": lambda a, b: a.minimum(b * 0.9),
    "where": lambda a, b: (a < b).where(a * 0.5, b.tanh()),
    "exp": lambda a, b: a.sin().exp(),
    "sqrt": lambda a, b: (a * a + 0.5).sqrt(),
    "log": lambda a, b: (a * a + 0.5).log(),
    "flip": lambda a, b: a.flip(range(len(a.shape))),
    "permute": lambda a, b: a.permute(range(len(a.shape))[::-1]),
    "pad": lambda a, b: a.pad([(1, 0)] * len(a.shape), 0.25),
    "shrink": lambda a, b: a.shrink([(0, max(1, n - 1)) for n in a.shape]),
    "expand": lambda a, b: a.expand((2, *a.shape)),
}


def grown(data: st.DataObject, made: list[UOp], at: UOp) -> UOp:
    """One more value from those before it."""
    a, b = data.draw(st.sampled_from(made)), data.draw(st.sampled_from(made))
    kinds = [*TAME, "sum", "prod", "largest", "gather", "scatter"]
    kind = data.draw(st.sampled_from(kinds if a.shape else list(TAME)))
    if kind in TAME:
        return TAME[kind](a, alike(b, a))
    rows = (~0, *range(len(a.shape) - 1))
    if kind == "gather":
        return a.gather(rows, at.expand(a.shape[1:]))
    if kind == "scatter":
        return a.scatter(
            (2, *a.shape), tuple(n - 1 if n else ~0 for n in range(len(a.shape) + 1)), at
        )
    combine = {"sum": Combine.ADD, "prod": Combine.MUL, "largest": Combine.MAX}[kind]
    return (a * 0.9 if combine is Combine.MUL else a).reduce(combine)

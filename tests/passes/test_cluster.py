"""Rows over the blocks of a cluster: the exchange in the IR, three ways to run it, random Opts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uopc
from tests.bodies import Body, softmax_in_place
from tests.helpers import assert_same
from tests.kernels import along, around, arrays_of, param, softmax
from tests.suite import layernorm
from uopc.checking import check
from uopc.dtype import DType, dtypes
from uopc.errors import TargetError, UsageError
from uopc.kernel import Numerics
from uopc.opts import Opts
from uopc.pipeline import Kernel, compile, compile_kernel
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import BarrierScope, Engine, Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage
from uopc.uop.text import show

EXACT = Numerics(exact_math=True)


def after(name: str, opts: Opts, body: UOp) -> UOp:
    """A kernel after one of its passes."""
    return around(name, opts, body)[1]


def cluster(blocks: int, **more: object) -> Opts:
    return Opts(gpu=True, cluster={1: blocks}, lanes=(1,), **more)  # type: ignore[arg-type]


CASES: dict[str, tuple[UOp, Opts]] = {
    "lanes send": (softmax(param(0, 3, 500)), cluster(2, local={1: 64}, vector={1: 4})),
    "one lane sends": (param(0, 3, 100).reduce(Ops.ADD, 1), cluster(4, local={1: 2, 0: 3})),
    "no lanes": (param(0, 3, 10).reduce(Ops.MAX, 1), cluster(2)),
    "lanes of no warp": (softmax(param(0, 3, 300)), cluster(2, local={1: 24})),
    "many warps": (softmax(param(0, 2, 4000)), cluster(8, local={1: 128}, vector={1: 4})),
    "value and index": (param(0, 3, 700).argmax(1), cluster(4, local={1: 32}, upcast={1: 6})),
    "rows in registers": (
        softmax(param(0, 5, 300)),
        cluster(2, local={1: 32}, upcast={0: 2, 1: 2}, vector={1: 4}),
    ),
    "rows across lanes": (softmax(param(0, 5, 300)), cluster(4, local={1: 32, 0: 4})),
    "rows in a loop": (softmax(param(0, 4, 300)), cluster(2, local={1: 64}, loop={0: 2})),
    "steps in a loop": (param(0, 3, 3000).reduce(Ops.ADD, 1), cluster(2, local={1: 64})),
    "values too small to send": (
        param(0, 3, 700, dtype=dtypes.bf16).reduce(Ops.MAX, 1),
        cluster(2, local={1: 64}),
    ),
    "two walks": (layernorm(3, 1000), cluster(2, local={1: 64}, upcast={1: 2}, vector={1: 4})),
    "sixteen blocks": (softmax(param(0, 2, 3000)), cluster(16, local={1: 64}, vector={1: 4})),
}


@pytest.mark.parametrize("name", CASES)
def test_three_ways(name: str) -> None:
    """The oracle of every stage, the emulator, and the checked emulator in every order agree."""
    body, opts = CASES[name]
    given_ = arrays_of(body)
    kernel = compile(body, opts, "sm_90", numerics=EXACT)
    got = kernel(*(given_[s] for s in sorted(given_)))
    (step,) = kernel.steps
    (out,) = (p.slot for p in step.source.params if p.written)
    assert_same(np.asarray(run(step.sink, given_)[out]).reshape(got.shape), got)
    verdict = check(kernel, *(given_[s] for s in sorted(given_)))
    assert verdict.ok, verdict
    want = evaluate(body, given_)
    if body.dtype.is_float:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), 1e-4, 1e-5)
    else:
        assert_same(got, want)


@pytest.mark.parametrize("name", CASES)
def test_every_stage_has_the_same_numbers(name: str) -> None:
    body, opts = CASES[name]
    given_ = arrays_of(body)
    before = after("split", opts, body)
    for stage, later in (("cooperate", Stage.MAPPED), ("materialise", Stage.MAPPED)):
        graph = after(stage, opts, body)
        uopc.uop.spec.check(graph, later, True)
        assert_close(run(before, given_), run(graph, given_))
    uopc.uop.spec.check(after("effects", opts, body), Stage.LOOPS, True)


def assert_close(a: dict[int, np.ndarray], b: dict[int, np.ndarray]) -> None:
    for slot, x in a.items():
        np.testing.assert_allclose(x.astype(np.float64), b[slot].astype(np.float64), 1e-4, 1e-5)


@pytest.mark.parametrize("name", ["lanes send", "one lane sends", "values too small to send"])
def test_graphs(name: str, golden: Callable[[str, str], None]) -> None:
    body, opts = CASES[name]
    for stage in ("cooperate", "effects"):
        graph = show(after(stage, opts, body))
        golden(f"cluster/{name.replace(' ', '-')}.{stage}.txt", f"# {opts}\n{graph}")


def scopes(kernel: Kernel) -> list[BarrierScope]:
    order = toposort(kernel.steps[0].sink)
    return [u.arg.scope for u in order if u.op is Ops.BARRIER and u.arg is not None]


def test_values_are_sent_where_they_can_be() -> None:
    """One start of all blocks, no barrier of the cluster; in loops, and for small values, those."""
    for name, (body, opts) in CASES.items():
        kernel = compile(body, opts, "sm_90")
        sent = sum(
            u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER
            for u in toposort(kernel.steps[0].sink)
        )
        stored = name in ("rows in a loop", "values too small to send")
        assert bool(sent) != stored, name
        assert (BarrierScope.CLUSTER in scopes(kernel)) == stored, name
        assert scopes(kernel).count(BarrierScope.CLUSTER_ARRIVE) == (name != "rows in a loop"), name


def test_a_row_in_place() -> None:
    """Each block has elements of its own, so that a row may be overwritten by its softmax; not by
    what reads the row's first element, which another block overwrites."""
    opts = cluster(2, local={1: 64}, vector={1: 4})
    kernel = compile_kernel(softmax_in_place(3, 300), "sm_90", opts=opts)
    assert kernel.opts.cluster == ((1, 2),)
    x = np.random.default_rng(0).standard_normal((3, 300)).astype(np.float32)
    want, got = evaluate(softmax(param(0, 3, 300)), {0: x}), x.copy()
    kernel.run({0: got, 1: np.empty(3, np.float32)})
    np.testing.assert_allclose(got, want, 1e-5, 1e-7)
    b = Body(3, 300)
    y = b.param(3, 300)
    top = b.walks(y.reduce(Ops.MAX, 1), 0, 1)
    first = y.shrink(((0, 3), (0, 1))).reshape((3,))
    b.store(y - along(top, y) + along(first, y), 0, 1, into=y)
    with pytest.raises(TargetError, match=r"no Opts\.cluster"):
        compile_kernel(b.record, "sm_90", opts=opts)


def test_gathered_rows_with_checked_indices() -> None:
    """One thread of all blocks reports a stray index; the others go on."""
    b = Body(3, 300)
    table, index = b.param(10, 300), b.param(3, dtype=dtypes.i32)
    rows = b.checks(table.gather((~0, 1), index.reshape((3, 1)).expand((3, 300))))
    e = (rows - along(b.walks(rows.reduce(Ops.MAX, 1), 0, 1), rows)).exp()
    b.store(e / along(b.walks(e.reduce(Ops.ADD, 1), 0, 1), e), 0, 1)
    opts = cluster(2, local={1: 64}, vector={1: 4})
    kernel = compile_kernel(b.record, "sm_90", opts=opts, check=True)
    assert kernel.errors is not None
    x = np.random.default_rng(0).standard_normal((10, 300)).astype(np.float32)
    for which, stray in (([7, 0, 9], False), ([7, 12, 9], True)):
        out, code = np.empty((3, 300), np.float32), np.zeros(1, np.uint64)
        at = np.array(which, np.int32)
        kernel.run({0: x, 1: at, 2: out, kernel.errors.arg.slot: code})
        want = evaluate(softmax(param(0, 3, 300)), {0: x[np.minimum(at, 9)]})
        np.testing.assert_allclose(out, want, 1e-5, 1e-7)
        assert bool(code[0]) == stray


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_rows(data: st.DataObject) -> None:
    """Any length, any digits, checked: right numbers and no fault, whatever the Opts."""
    draw = data.draw
    n, rows = draw(st.integers(2, 3000)), draw(st.integers(1, 5))
    dtype: DType = draw(st.sampled_from([dtypes.f32, dtypes.bf16, dtypes.f64]))
    x = param(0, rows, n, dtype=dtype)
    build = draw(st.sampled_from([softmax, lambda x: x.reduce(Ops.MAX, 1), lambda x: x.argmax(1)]))
    body = build(x if dtype is not dtypes.bf16 else x.cast(dtypes.f32))
    axis = 1 if rows > 1 else 0
    digits = {
        "local": {axis: draw(st.sampled_from([1, 2, 24, 32, 64, 96, 128]))},
        "upcast": {axis: draw(st.sampled_from([1, 2, 3]))},
        "vector": {axis: draw(st.sampled_from([1, 2, 4]))},
        "cluster": {axis: draw(st.sampled_from([2, 4, 8, 16]))},
    }
    if rows > 1 and draw(st.booleans()):
        digits["local"][0] = draw(st.sampled_from([2, 4]))
    keep = draw(st.sampled_from(["reg", "shared", "none"]))
    opts = Opts(gpu=True, lanes=(axis,), keep=keep, **digits)  # type: ignore[arg-type]
    given_ = arrays_of(body)
    try:
        kernel = compile(body, opts, "sm_90")
    except UsageError as error:
        assert "no axis" in str(error) or "is not reduced" in str(error)
        return
    verdict = check(kernel, given_[0])
    assert verdict.ok, (opts, verdict)
    got, want = kernel(given_[0]), evaluate(body, given_)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), 1e-3, 1e-5)


def test_targets_without_clusters() -> None:
    body, opts = CASES["lanes send"]
    for target in ("sm_80", "sm_89", "emulated"):
        with pytest.raises(TargetError, match="has clusters of 2 blocks, which sm_8"):
            compile(body, opts, target)
    with pytest.raises(UsageError, match="gpu=True"):
        Opts(cluster={1: 2})
    with pytest.raises(UsageError, match="2, 4, 8, 16 blocks, not 3"):
        Opts(gpu=True, cluster={1: 3})
    with pytest.raises(UsageError, match="along one axis"):
        Opts(gpu=True, cluster={0: 2, 1: 2})
    with pytest.raises(UsageError, match="axis 0 is not reduced"):
        compile(body, Opts(gpu=True, cluster={0: 2}), "sm_90")
    with pytest.raises(UsageError, match="over a cluster or over the grid"):
        compile(body, Opts(gpu=True, cluster={1: 2}, blocks={1: 2}), "sm_90")
    assert Opts.from_json(opts.to_json()) == opts
    assert "cluster={1: 2}" in repr(opts)

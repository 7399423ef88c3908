"""Run one kernel by the oracle, emulated and natively, under Opts drawn at random, and compare."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tests.helpers import assert_same
from tests.random_kernels import ULPS, Case
from uopc.dtype import dtypes
from uopc.errors import TargetError, UsageError
from uopc.opts import Opts
from uopc.passes.share import axes_of, reduced_axes
from uopc.pipeline import Kernel, compile, index
from uopc.render.emulate import render_emulated
from uopc.runtime.program import Program
from uopc.uop.facts import free
from uopc.uop.node import UOp, buffer, prod, toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import TRANSCENDENTAL, WHOLE_KERNEL, Ops
from uopc.uop.oracle import evaluate, run
from uopc.uop.spec import Stage

Sizes: TypeAlias = dict[int, int]
#: refusals that are answers: Opts that cannot be, whatever a kernel does
REFUSED = (
    "cannot be split over",
    "one step cannot split it",
    "one reduction is split at a time",
)
#: elements, padding included, that one random mapping may walk: emulated threads are slow
MOST_WALKED = 1 << 16
MOST_STEPS = 1 << 16
#: rows of up to 1,024 positive numbers: sums within n * 2^-24; f16 and bf16 round those once
ROW_ULPS, NARROW_ULPS = 1100, 8


# ---- Opts
def random_opts(rng: random.Random, bodies: Sequence[UOp], gpu: bool) -> Opts:
    """Opts that fit the kernel: any digit on any axis, on a GPU any thread count."""
    merge = _merge(rng, bodies)
    outs = [buffer(1000 + n, b.dtype, (prod(b.shape),)) for n, b in enumerate(bodies)]
    return opts_for(rng, index(bodies, outs, merge), gpu, merge)


def opts_for(rng: random.Random, root: UOp, gpu: bool, merge: tuple[int, ...] = ()) -> Opts:
    """The same for a kernel in stage INDEXED."""
    axes, reduced = axes_of(root), reduced_axes(root)
    budget = MOST_WALKED // max(1, prod(r.arg.size for r in axes))
    digits: dict[str, Sizes] = {
        n: {} for n in ("local", "upcast", "vector", "tile", "loop", "blocks")
    }
    threads = 1
    for r in axes:
        a, size = r.arg.axis, r.arg.size
        inner = 1
        for name, choices in _CHOICES.items():
            if rng.randint(0, 99) >= 40 or (name == "local" and not gpu):
                continue
            n = rng.choice(SEVERAL_WARPS if name == "local" and a in reduced else choices)
            waste = -(-inner * n // size)
            if waste > 4 or waste > budget or (name == "local" and threads * n > 1024):
                continue
            digits[name][a] = n
            inner *= n
            if name == "local":
                threads *= n
        budget //= max(1, -(-inner // size))
        if rng.randint(0, 3) == 0:
            parts = rng.choice((1, 2, 3, 4))
            if a in reduced:
                if (
                    gpu
                    and rng.randint(0, 2) == 0
                    and parts <= size
                    and not digits["blocks"].keys() & reduced
                ):
                    digits["blocks"][a] = parts
            else:
                digits["loop" if not gpu or rng.randint(0, 1) else "blocks"][a] = parts
    outputs = [r.arg.axis for r in axes if r.arg.axis not in reduced]
    thread = rng.choice(outputs) if outputs and not gpu and rng.randint(0, 2) == 0 else None
    if not gpu:  # only the axis of the threads has another rest than its loop
        digits["loop"] = {a: n for a, n in digits["loop"].items() if a == thread}
    order = [r.arg.axis for r in axes]
    rng.shuffle(order)
    lanes = tuple(order[: rng.randint(0, len(order))]) if gpu else ()
    rng.shuffle(order)
    return Opts(
        gpu=gpu,
        **digits,  # type: ignore[arg-type]  # six fields of one kind
        unroll=rng.choice((1, 1, 1, 2, 4)),
        thread=thread,
        lanes=lanes,
        grid=tuple(order[: rng.randint(0, len(order))]) if gpu else (),
        merge=merge,
        keep=rng.choice(("reg", "reg", "none", "shared") if gpu else ("reg", "none")),
        early=bool(rng.randint(0, 1)),
    )


#: threads that reduce together: often more than one warp
SEVERAL_WARPS = (4, 8, 32, 64, 64, 96, 128, 256)
_CHOICES = {
    "vector": (2, 4, 8, 16, 3),
    "local": (2, 4, 8, 16, 32, 64, 3, 5, 24, 96, 128),
    "upcast": (2, 4, 3),
    "tile": (2, 4, 7),
}


def _merge(rng: random.Random, bodies: Sequence[UOp]) -> tuple[int, ...]:
    rank = len(bodies[0].shape)
    if not rank or any(len(b.shape) != rank for b in bodies) or rng.randint(0, 3):
        return ()
    groups = [1]
    for _ in range(rank - 1):
        if rng.randint(0, 1):
            groups[-1] += 1
        else:
            groups.append(1)
    return tuple(groups)


# ---- running and comparing
def run_kernel(kernel: Kernel, case: Case) -> list[Array]:
    """The outputs of a compiled kernel on the case's arrays."""
    slots = sorted({u.arg.slot for u in toposort(*case.bodies) if u.op is Ops.BUFFER})
    out = kernel(*(case.arrays[s] for s in slots))
    return out if isinstance(out, list) else [out]


def check_device(case: Case, opts: Opts | None, target: str) -> Kernel:
    """Compile for a device, run, and compare with the oracle.  Raises AssertionError."""
    kernel = compile(list(case.bodies), opts, target)
    got = run_kernel(kernel, case)
    compare(case, got, evaluate(list(case.bodies), case.arrays))
    if kernel.target.is_gpu and not any(u.op in TRANSCENDENTAL for u in toposort(*case.bodies)):
        check_loops(kernel, case, got)
    if any(u.op is Ops.BARRIER for step in kernel.steps for u in toposort(step.sink)):
        check_orders(kernel, case, got)
    return kernel


def check_orders(kernel: Kernel, case: Case, got: list[Array]) -> None:
    """Warps in other orders between the barriers give the same bits: none is missing."""
    outs = [s for s in _written(kernel) if s not in case.arrays]
    for order in ("backward", "shuffled(1)"):
        arrays = dict(case.arrays)
        for step in kernel.steps:
            source = render_emulated(step.program, step.source.name, order=order)
            for p in source.params:
                if p.written:
                    make = np.zeros if p.slot in kernel.counters else np.empty
                    arrays[p.slot] = make(p.size, p.dtype.numpy)
            Program(source)(*(arrays[p.slot] for p in source.params))
        for slot, g in zip(outs[: len(got)], got, strict=True):
            assert_same(arrays[slot].reshape(g.shape), g)


def _written(kernel: Kernel) -> list[int]:
    """Slots that the steps write: outputs come before partial results."""
    return sorted({p.slot for s in kernel.steps for p in s.source.params if p.written})


def agree(case: Case, opts: Opts | None, target: str) -> bool:
    """`check_device`; False where a device refuses Opts that were not chosen for it."""
    try:
        check_device(case, opts, target)
        return True
    except TargetError:
        if opts is None:
            raise
    except UsageError as error:
        if opts is None or not any(r in str(error) for r in REFUSED):
            raise
    return False


def check_loops(kernel: Kernel, case: Case, got: list[Array]) -> None:
    """The oracle of LOOPS follows the graph step by step: it gives the kernel's own bits."""
    if (
        any(0 in g.shape for g in got)
        or sum(_steps(step.sink) for step in kernel.steps) > MOST_STEPS
    ):
        return
    arrays = dict(case.arrays)
    for p in kernel.partials:
        if p.arg.slot in kernel.counters:
            arrays[p.arg.slot] = np.zeros(prod(p.arg.shape), p.dtype.numpy)
    with np.errstate(all="ignore"):
        for step in kernel.steps:
            arrays |= run(step.sink, arrays, Stage.LOOPS)
    first = 1 + max((u.arg.slot for u in toposort(*case.bodies) if u.op is Ops.BUFFER), default=-1)
    for n, g in enumerate(got):
        assert_same(g, arrays[first + n].reshape(g.shape))


def _steps(sink: UOp) -> int:
    """How many numpy operations, or elements, the oracle needs for a kernel in LOOPS."""
    order = toposort(sink)
    lanes = prod(u.arg.size for u in order if u.op is Ops.RANGE and u.arg.kind in WHOLE_KERNEL)
    each = 1 + lanes // 1024
    return sum(each * prod(r.arg.size for r in free(u) if _is_loop(r)) for u in order)


def _is_loop(scope: UOp) -> bool:
    return scope.op is Ops.RANGE and scope.arg.kind not in WHOLE_KERNEL


def compare(case: Case, got: list[Array], want: list[Array]) -> None:
    """Bit for bit, or within the bounds of sums and transcendentals."""
    for body, g, w in zip(case.bodies, got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, (g.shape, w.shape, g.dtype, w.dtype)
        if case.check == "sum":
            _within(g, w, sum_bound(body, case.arrays))
        elif case.check == "rows":
            _within(g, w, (ROW_ULPS if w.itemsize > 2 else NARROW_ULPS) * _ulp(w))
        elif case.check == "ulp":
            _within(g, w, ULPS * _ulp(w))
        else:
            assert_same(g, w)


def sum_bound(body: UOp, arrays: dict[int, Array]) -> Array:
    """(c + log2 n) * 2^-24 * sum|x| of a float sum (2^-53 for f64), with c = n, the longest chain.

    One rounding to the dtype more for f16 and bf16."""
    assert body.op is Ops.REDUCE
    n = prod(body.src[0].shape[len(body.shape) :])
    x = np.abs(evaluate(body.src[0], arrays).astype(np.float64))
    unit = 2.0**-53 if body.dtype is dtypes.f64 else 2.0**-24
    with np.errstate(all="ignore"):
        size = x.reshape((*body.shape, n)).sum(axis=-1)
        slack = 2 * (n + math.log2(n)) * unit * size
        return np.asarray(slack + (_ulp(evaluate(body, arrays)) if body.dtype.bits == 16 else 0))


def _ulp(x: Array) -> Array:
    """Distance to the next float of this dtype, as f64; inf stays where x is not finite."""
    bits = {
        "float16": (10, -24),
        "bfloat16": (7, -133),
        "float32": (23, -149),
        "float64": (52, -1074),
    }
    mantissa, lowest = bits[x.dtype.name]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.abs(x.astype(np.float64)))
        return np.exp2(np.maximum(exponent.astype(np.float64) - 1 - mantissa, lowest))


def _within(got: Array, want: Array, bound: Array) -> None:
    """|got - want| <= bound; what is not finite is equal, or beyond what the sum could hold."""
    with np.errstate(all="ignore"):
        g, w = got.astype(np.longdouble), want.astype(np.longdouble)
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        close = np.isfinite(g) & np.isfinite(w) & (np.abs(g - w) <= bound)
        overflow = ~np.isfinite(g) & ~(
            bound < np.inf
        )  # a partial sum may overflow in another order
        top = float(np.finfo(np.float32 if got.dtype.name != "float64" else np.float64).max)
        near = np.abs(bound) > top * 2.0**-20
        ok = same | close | overflow | near
    if not np.all(ok):
        at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(ok))[0])
        g, w, b = (
            np.atleast_1d(got),
            np.atleast_1d(want),
            np.atleast_1d(np.broadcast_to(bound, want.shape)),
        )
        raise AssertionError(
            f"first difference at {at}: got {g[at]!r}, want {w[at]!r}, bound {b[at]!r}"
        )

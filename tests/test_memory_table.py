"""Every row of the table of memory-bound work: compiled at full size, run at small and odd ones.

At full size the kernels are those that a GPU of sm_90 runs, compiled and not launched: what keeps
them from the speed of memory (spills, a stack, too many registers, another pass over the data)
shows without a GPU.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from tests.memory_table import ROWS, WORK, Plan, Row
from uopc.dtype import DType, dtypes
from uopc.pipeline import compile_kernel
from uopc.schedule.memory import Leaf, Place, Result, Temporary
from uopc.target import Target, target
from uopc.uop.node import Shape, prod
from uopc.uop.numbers import Array
from uopc.uop.oracle import evaluate

GPU, CPU = target("sm_90"), target("cpu")
#: units in the last place of the result's largest element: f32 has sums in another order, of up to
#: 8,192 elements; bf16 rounds f32 numbers once, or once an op
ULPS = {dtypes.f32: 48, dtypes.bf16: 4}
MANTISSA = {dtypes.f32: 23, dtypes.bf16: 7}
SMALL = [
    Row(work, shape, dtype)
    for work in WORK
    for dtype in (dtypes.f32, dtypes.bf16)
    for shape in work.small
]


# ---- at full size
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_kernels_keep_to_registers(row: Row) -> None:
    plan = row.plan("emulated", GPU).schedule
    steps = [
        step
        for x in plan.launches
        for step in compile_kernel(x.body, GPU, x.name, check=False).steps
    ]
    for step in steps:
        used = step.cubin.resources
        assert not used.spills and not used.stack_bytes, (str(used), str(step.opts))
        threads = math.prod(step.launch_dims[1])
        assert used.registers <= row.work.registers, (str(used), threads, str(step.opts))
    assert len(steps) <= row.work.kernels, [str(s.opts) for s in steps]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_its_data_passes_once(row: Row) -> None:
    """All kernels together read and write little more than the row's inputs and results."""
    plan = row.plan("emulated", GPU).schedule
    assert plan.moved_bytes <= 1.05 * row.bytes, plan.explain()


def test_the_benchmark_names_kernels_without_a_gpu() -> None:
    command = [sys.executable, "scratch/bench_memory.py", "--compile", "sm_90", "--small"]
    ran = subprocess.run([*command, "--rows", "^add .* f32"], capture_output=True, text=True)
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0 and len(lines) == 3, ran.stderr
    assert {x.split()[1] for x in lines} == {"4096", "1003", "5"}
    assert all(x.startswith("add ") and "kernels 1" in x for x in lines)


# ---- at small and odd sizes
@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_emulated_and_native_kernels_agree_with_the_oracle(
    row: Row, rng: np.random.Generator
) -> None:
    given = [some(rng, shape, "sum" in row.work.name) for shape, _ in row.inputs()]
    given = [a.astype(dtype.numpy) for a, (_, dtype) in zip(given, row.inputs(), strict=True)]
    want = meaning(row, given)
    for on in (GPU, CPU):
        for got, exact in zip(computed(row, given, on), want, strict=True):
            near(got, exact, row.dtype)


def some(rng: np.random.Generator, shape: Shape, summed: bool) -> Array:
    """Normal numbers; for what only sums, quarters, whose sums are exact in every order."""
    return rng.integers(-8, 9, shape) / 4 if summed else rng.standard_normal(shape)


def meaning(row: Row, given: Sequence[Array]) -> list[Array]:
    """The results by the oracle, from the graph of the row."""
    plan = row.plan("cpu", CPU)
    values = evaluate(plan.roots, dict(enumerate(leaves(plan, given))))
    return [v.reshape(shape) for v, (shape, _) in zip(values, plan.results, strict=True)]


def computed(row: Row, given: Sequence[Array], on: Target) -> list[Array]:
    """The results of its kernels for a target, which run here: emulated and checked, or native."""
    plan = row.plan("cpu", on)
    held: dict[Place, Array] = {Leaf(n): a for n, a in enumerate(leaves(plan, given))}

    def memory(place: Place) -> Array:
        if place not in held:
            assert isinstance(place, (Result, Temporary))
            held[place] = np.full(place.size, 77, place.dtype.numpy)
        return held[place]

    for x in plan.schedule.launches:
        kernel = compile_kernel(x.body, on, x.name)
        for places in x.places:
            kernel.run({slot: memory(p) for slot, p in enumerate(places)})
    found = zip(plan.schedule.results, plan.results, strict=True)
    return [memory(place).reshape(shape) for place, (shape, _) in found]


def leaves(plan: Plan, given: Sequence[Array]) -> list[Array]:
    """Flat arrays of all leaves; those that are no inputs are written by the row."""
    inputs = dict(zip(plan.inputs, given, strict=True))
    return [
        inputs[n].reshape(-1).copy() if n in inputs else np.full(prod(u.shape), 77, u.dtype.numpy)
        for n, u in enumerate(plan.leaves)
    ]


def near(got: Array, want: Array, dtype: DType) -> None:
    """Within some units in the last place of the largest element; integers are equal."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind == "i":
        np.testing.assert_array_equal(got, want)
        return
    g, w = got.astype(np.float64), want.astype(np.float64)
    limit = ULPS[dtype] * 2.0 ** -MANTISSA[dtype] * float(np.abs(w).max())
    np.testing.assert_allclose(g, w, rtol=0, atol=limit)

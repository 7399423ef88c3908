"""Kernels of one formula become one launch."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tests.kernels import param
from tests.schedule.execute import GPU, assert_right
from tests.schedule.graphs import Case
from uopc.dtype import dtypes
from uopc.kernel import KernelBody, Output
from uopc.schedule.batch import LENGTH, batches, flat
from uopc.schedule.plan import schedule
from uopc.uop.node import UOp, buffer
from uopc.uop.ops import Ops


def update(*shape: int, rate: float = 0.5) -> KernelBody:
    """v[:] = v * rate + g, in place."""
    v, g = buffer(0, dtypes.f32, shape), buffer(1, dtypes.f32, shape)
    value = v * rate + g
    return KernelBody((Output(value, v),), shape, {value: tuple(range(len(shape)))})


def members(bodies: Sequence[KernelBody], needs: Sequence[set[int]]) -> list[list[int]]:
    return [m for m, _ in batches(bodies, [frozenset(n) for n in needs])]


def test_rank_and_sizes_leave_a_flat_body() -> None:
    one, two = flat(update(24)), flat(update(4, 6))
    assert one is not None and two is not None
    assert one.outputs == two.outputs and one.sizes == (LENGTH,)


def test_a_value_that_repeats_one_element_is_flat() -> None:
    x, scale = buffer(0, dtypes.f32, (4, 6)), buffer(1, dtypes.f32, (1,))
    value = x * scale.reshape((1, 1)).expand((4, 6))
    body = KernelBody((Output(value, buffer(2, dtypes.f32, (4, 6))),), (4, 6), {value: (0, 1)})
    made = flat(body)
    assert made is not None
    assert made.outputs[0].value.shape == (LENGTH,)


def test_what_is_read_out_of_order_is_not_flat() -> None:
    x = buffer(0, dtypes.f32, (6, 6))
    for value in (
        x.permute((1, 0)),
        x.flip((0,)),
        x.reduce(Ops.ADD, 1),
        param(1, 6).reshape((1, 6)).expand((6, 6)) + x,
    ):
        axes = {value: tuple(range(len(value.shape)))}
        out = buffer(2, dtypes.f32, value.shape)
        assert (
            flat(KernelBody((Output(value + 1.0, out),), (6, 6), axes | {value + 1.0: axes[value]}))
            is None
        )


def test_one_element_is_no_array() -> None:
    assert flat(update(1)) is None


def test_kernels_of_one_formula_are_one_launch() -> None:
    bodies = [update(24), update(4, 6), update(7), update(24, rate=0.25)]
    assert members(bodies, [set(), set(), set(), set()]) == [[0, 1, 2], [3]]


def test_a_path_between_two_keeps_them_apart() -> None:
    bodies = [update(24), update(7, rate=0.25), update(24), update(7, rate=0.25)]
    assert members(bodies, [set(), {0}, {1}, set()]) == [[0], [1, 3], [2]]


def test_the_order_stays_topological() -> None:
    bodies = [update(24), update(7, rate=0.25), update(24)]
    assert members(bodies, [set(), {0}, set()]) == [[0, 2], [1]]
    assert members(bodies, [set(), set(), {1}]) == [[1], [0, 2]]


def test_the_numbers_of_a_batch() -> None:
    shapes = ((24,), (4, 6), (5, 3), (2, 3, 4))
    roots, arrays = [], []
    rng = np.random.default_rng(0)
    rate = buffer(0, dtypes.f64, (1,))
    arrays.append(np.array([3.0]))
    for shape in shapes:
        v, g = (buffer(len(arrays) + k, dtypes.f64, shape) for k in range(2))
        ones = (1,) * len(shape)
        roots.append(v.assign(v * 2.0 + g * rate.reshape(ones).expand(shape)))
        arrays += [rng.integers(-3, 4, shape).astype(np.float64) for _ in range(2)]
    case = Case(tuple(roots), frozenset(), tuple(arrays), {}, True).canonical()
    plan = schedule(case.roots, GPU)
    (launch,) = plan.launches
    assert len(launch.places) == len(shapes) and launch.sizes == (24, 24, 15, 24)
    assert_right(case, plan, random.Random(0))


def test_bytes_of_a_batch_are_those_of_its_kernels() -> None:
    x, y = (buffer(k, dtypes.f32, (n, 3)) for k, n in enumerate((100, 200)))
    (launch,) = schedule([x * 2.0, y * 2.0], GPU).launches
    assert (launch.reads, launch.writes) == (300 * 3 * 4, 300 * 3 * 4)


def test_no_kernel_that_checks_indices_joins() -> None:
    x, i = buffer(0, dtypes.f32, (9,)), buffer(1, dtypes.i64, (6,))
    roots: list[UOp] = [x.gather((~0,), i) + 1.0, x.gather((~0,), i * 2) + 1.0]
    assert all(len(k.places) == 1 for k in schedule(roots, GPU).launches)

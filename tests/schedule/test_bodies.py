"""Groups as kernels: slots, axes and checks."""

from __future__ import annotations

from tests.kernels import along, param, softmax
from tests.schedule.execute import GPU, TIGHT
from tests.schedule.test_anchors import product
from uopc.dtype import dtypes
from uopc.kernel import KernelBody
from uopc.schedule.memory import ErrorWord, Leaf
from uopc.schedule.plan import Schedule, schedule
from uopc.uop.node import UOp, buffer, toposort
from uopc.uop.ops import Ops


def bodies(plan: Schedule) -> list[KernelBody]:
    return [k.body for k in plan.launches]


def reductions(body: KernelBody) -> dict[UOp, tuple[int, ...]]:
    return {u: axes for u, axes in body.axes.items() if u.op is Ops.REDUCE}


def test_a_row_kernel_names_the_axes_of_all_it_makes() -> None:
    (body,) = bodies(schedule([softmax(param(0, 512, 1024))], GPU))
    (output,) = body.outputs
    assert body.sizes == (512, 1024)
    assert body.axes[output.value] == (0, 1)
    assert set(reductions(body).values()) == {(0, 1)}
    assert len(reductions(body)) == 2


def test_axes_of_one_element_have_no_number() -> None:
    x = param(0, 1, 64) * 2.0
    (body,) = bodies(schedule([x + 1.0], GPU))
    assert body.axes[body.outputs[0].value] == (-1, 0)
    assert body.sizes == (64,)


def test_slots_are_numbered_by_first_use() -> None:
    x, y = (buffer(k, dtypes.f32, (8, 4)) for k in (5, 3))
    (launch,) = schedule([y * 2.0 + x], GPU).launches
    read = [u for u in toposort(launch.body.outputs[0].value) if u.op is Ops.BUFFER]
    assert [u.arg.slot for u in read] == [0, 1]
    assert launch.places[0][:2] == (Leaf(3), Leaf(5))
    assert launch.body.outputs[0].memory.arg.slot == 2


def test_equal_kernels_of_different_layers_are_one_body() -> None:
    """So that they are compiled once."""
    x = param(0, 64, 64)
    for k in (1, 2, 3):
        x = softmax(product(x, param(k, 64, 64)))
    made = bodies(schedule([x], GPU, limits=TIGHT))
    assert len(made) > len({b.outputs for b in made})


def test_an_update_in_place_writes_the_memory_that_it_reads() -> None:
    x = buffer(0, dtypes.f32, (8, 4))
    (body,) = bodies(schedule([x.assign(x + 1.0)], GPU))
    (output,) = body.outputs
    assert output.memory in toposort(output.value)


def test_an_update_with_a_reduction_of_its_kernel() -> None:
    """Its value is the reduction itself."""
    x, y = buffer(0, dtypes.f32, (512,)), param(1, 512, 64)
    total = y.reduce(Ops.ADD, 1)
    (body,) = bodies(schedule([x.assign(total), y - along(total, y)], GPU))
    assert {body.axes[o.value][0] for o in body.outputs} == {0}


def test_the_first_kernel_that_uses_an_index_checks_it() -> None:
    table, rows = param(0, 100, 64), buffer(1, dtypes.i64, (16,))
    picked = table.gather((~0, 1), rows.reshape((16, 1)).expand((16, 64)))
    plan = schedule([picked + 1.0, picked.flip((0,)).reduce(Ops.ADD, 2)], GPU, fuse=False)
    checking = [k for k in plan.launches if k.body.checked]
    assert len(plan.launches) > 1 and checking == [plan.launches[0]]
    assert checking[0].places[0][-1] == ErrorWord()
    assert checking[0].body.errors is not None


def test_one_index_for_two_axes_is_checked_for_both() -> None:
    rows = buffer(1, dtypes.i64, (16,))
    plan = schedule(
        [param(0, 100).gather((~0,), rows), param(2, 50).gather((~0,), rows) + 1.0], GPU, fuse=False
    )
    assert all(k.body.checked for k in plan.launches)


def test_kernels_are_called_by_what_they_do() -> None:
    x = param(0, 512, 64)
    names = {
        "map_512x64": x + 1.0,
        "max_add_512x64": softmax(x),
        "add_512x64": x.reduce(Ops.ADD, 1),
        "product_512x8x64": product(x, param(1, 64, 8)),
        "argmax_512x64": x.argmax(1),
        "gather_7": param(2, 9).gather((~0,), buffer(3, dtypes.i64, (7,))),
        "scatter_9": param(2, 7).scatter((9,), (~0,), buffer(3, dtypes.i64, (7,))),
    }
    for name, u in names.items():
        (launch,) = schedule([u], GPU).launches
        assert launch.name.startswith(name), launch.name

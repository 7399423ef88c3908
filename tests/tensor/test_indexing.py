"""Reading and writing by position against numpy, which is the rule, over random keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import assert_same
from tests.tensor.meaning import DEVICES, arrays, extremes, meaning, shapes, tensor
from uopc.dtype import DATA, dtypes
from uopc.errors import OutOfRangeError, UsageError
from uopc.tensor.core import Tensor
from uopc.uop.node import toposort
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops

INTS = tuple(d.numpy for d in DATA if d.is_data_int)


@st.composite
def index_arrays(draw: st.DrawFn, n: int, common: tuple[int, ...]) -> Array:
    """Integers in range of an axis of n, of a shape that broadcasts to `common`, in any dtype."""
    shape = common[draw(st.integers(0, len(common))) :]
    shape = tuple(1 if draw(st.booleans()) else m for m in shape)
    kind = draw(st.sampled_from(INTS))
    low = 0 if kind.kind == "u" else -n
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    return np.asarray(rng.integers(low, n, shape), kind)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...], advanced: bool) -> tuple[Any, ...]:
    """A key of an array: integers, slices, None, at most one ..., and index arrays."""
    parts: list[Any] = []
    common = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    skipped = draw(st.integers(0, len(shape)))
    resume = draw(st.integers(skipped, len(shape)))
    for axis, n in enumerate(shape):
        if draw(st.integers(0, 5)) == 0:
            parts.append(None)
        if axis == skipped and resume > skipped:
            parts.append(...)
        if skipped <= axis < resume:
            continue
        choices = ["slice", "slice"] + (["int"] if n else []) + ["array"] * (2 * advanced)
        choice = draw(st.sampled_from(choices))
        if choice == "int":
            parts.append(draw(st.integers(-n, n - 1)))
        elif choice == "slice":
            ends = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            step = draw(st.sampled_from((None, 1, 2, 3, -1, -2, -3, 7)))
            parts.append(slice(draw(ends), draw(ends), step))
        else:
            mine = common if n else (*common, 0)
            parts.append(draw(index_arrays(max(n, 1), mine)) if n else np.zeros((0,), np.int64))
    if draw(st.booleans()) and ... not in [p for p in parts if p is ...]:
        while parts and isinstance(parts[-1], slice) and parts[-1] == slice(None):
            parts.pop()
    return tuple(parts)


def as_tensors(data: st.DataObject, key: tuple[Any, ...]) -> Any:
    """The same key with its arrays as tensors, lists or arrays."""
    how: dict[str, Callable[[Array], Any]]
    how = {"tensor": tensor, "list": np.ndarray.tolist, "array": np.asarray}
    made = []
    for part in key:
        if isinstance(part, np.ndarray):
            ways = ["tensor", "array"] + (["list"] if part.size else [])
            part = how[data.draw(st.sampled_from(ways))](part)
        made.append(part)
    return made[0] if len(made) == 1 else tuple(made)


def read(x: Array, key: tuple[Any, ...]) -> Array | None:
    """What numpy reads; None where it refuses."""
    try:
        return np.asarray(x[key])
    except IndexError:
        return None


@given(st.data())
def test_slices_and_integers(data: st.DataObject) -> None:
    x = extremes(data.draw(st.sampled_from(DATA)), data.draw(shapes(size=5)), 0)
    key = data.draw(keys(x.shape, advanced=False))
    got = tensor(x)[key]
    assert_same(meaning(got), np.array(x[key]))
    assert not any(u.op in (Ops.GATHER, Ops.WHERE) for u in toposort(got._u))


@given(st.data())
def test_index_arrays(data: st.DataObject) -> None:
    x = data.draw(arrays(shape=shapes(least=1)))
    key = data.draw(keys(x.shape, advanced=True))
    want = read(x, key)
    mine = as_tensors(data, key)
    if want is None:
        with pytest.raises((UsageError, IndexError)):
            tensor(x)[mine]
    else:
        assert_same(meaning(tensor(x)[mine]), want)


@given(st.data())
def test_writing(data: st.DataObject) -> None:
    """Repeated places: the last value stays.  Earlier views keep what they were."""
    x = data.draw(arrays(shape=shapes(least=1)))
    key = data.draw(keys(x.shape, advanced=data.draw(st.booleans())))
    target = read(x, key)
    if target is None:
        return
    shape = target.shape[data.draw(st.integers(0, target.ndim)) :]
    shape = tuple(1 if data.draw(st.integers(0, 3)) == 0 else n for n in shape)
    value = data.draw(arrays((tensor(x).dtype,), st.just(shape)))
    t = tensor(x)
    view = t[:1]
    mine = as_tensors(data, key)
    t[mine] = data.draw(st.sampled_from((tensor(value), value)))
    want = x.copy()
    want[key] = value
    assert_same(meaning(t), want)
    assert_same(meaning(view), x[:1].copy())


def test_writing_numbers_and_lists() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    t = tensor(x)
    t[1, ::2] = 7
    t[-1] = [1.0, 2.0, 3.0, 4.0]
    t[0, [1, 1]] = np.array([5, 6])
    t[..., 3:] += 0.5
    want = x.copy()
    want[1, ::2], want[-1], want[0, 1] = 7, [1, 2, 3, 4], 6
    want[..., 3:] += 0.5
    assert_same(meaning(t), want)
    whole = tensor(x)
    whole[...] = -1
    assert_same(meaning(whole), np.full_like(x, -1))
    bytes_ = tensor(np.zeros(2, np.uint8))
    bytes_[:] = [255, 3]
    assert meaning(bytes_).tolist() == [255, 3]
    with pytest.raises(UsageError, match="300 does not fit u8"):
        bytes_[0] = [300]
    scalar = tensor(np.float32(3))
    scalar[()] = 4
    assert meaning(scalar) == 4


def test_adding_to_a_repeated_place_adds_once() -> None:
    """As in numpy: the sum is made first, and the last one stays; scatter_add adds all."""
    x = np.arange(3, dtype=np.float32) + 1
    for index in ([0, 0], np.array([0, 0]), tensor(np.array([0, 0]))):
        t = tensor(x)
        t[index] += t[index]
        assert meaning(t).tolist() == [2, 2, 3]
    index = tensor(np.array([0, 0, 2]))
    assert meaning(tensor(x).scatter_add(0, index, tensor(x))).tolist() == [4, 2, 6]


@given(st.data())
def test_masks(data: st.DataObject) -> None:
    x = data.draw(arrays(shape=shapes(least=1)))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    first = data.draw(st.integers(0, x.ndim - 1))
    last = data.draw(st.integers(first + 1, x.ndim))
    mask = rng.random(x.shape[first:last]) < 0.5
    key = (*[slice(None, None, -1)] * first, mask)
    t = tensor(x)
    assert_same(meaning(t[key]), x[key])
    with pytest.raises(UsageError, match="how many elements a mask has"):
        t[(*key[:-1], tensor(mask))]
    rest = x.shape[last:]
    value = data.draw(arrays((t.dtype,), st.sampled_from(((), (1, *rest), rest, (1, 1, *rest)))))
    if value.ndim > x.ndim - mask.ndim + 1 or (first and value.ndim > 1 + len(rest)):
        value = value.reshape(rest)
    for made in (mask, tensor(mask), mask.tolist()):
        again = tensor(x)
        if isinstance(made, list) and not mask.size:
            continue
        again[(*key[:-1], made)] = tensor(value)
        want = x.copy()
        want[key] = value
        assert_same(meaning(again), want)


def test_a_mask_takes_one_value() -> None:
    t = tensor(np.zeros((2, 3)))
    mask = tensor(np.array([True, False]))
    with pytest.raises(UsageError, match=r"\(2, 3\) does not broadcast .* \('\?', 3\)\. How many"):
        t[mask] = tensor(np.ones((2, 3)))
    with pytest.raises(UsageError, match="goes with integers and slices"):
        t[mask, tensor(np.array([0]))] = 1.0
    t[mask, 1:] = 2.0
    assert meaning(t).tolist() == [[0, 2, 2], [0, 0, 0]]


@given(st.data())
def test_take_and_gather(data: st.DataObject) -> None:
    x = data.draw(arrays(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)))
    t, axis = tensor(x), data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = x.shape[axis]
    index = data.draw(index_arrays(n, (2, 3)))
    assert_same(meaning(t.take(tensor(index), axis)), np.take(x, index.astype(int), axis))
    assert_same(meaning(t.index_select(axis, [0, -1])), np.take(x, [0, -1], axis))
    first = np.zeros((2, 1), np.int8)
    assert_same(meaning(t.take(first)), np.take(x, first))
    place = axis % x.ndim
    shape = tuple(data.draw(st.integers(0, 4)) if a == place else m for a, m in enumerate(x.shape))
    rng = np.random.default_rng(0)
    along = rng.integers(-n, n, shape)
    assert_same(meaning(t.take_along_axis(tensor(along), axis)), np.take_along_axis(x, along, axis))
    assert_same(meaning(t.gather(axis, tensor(along))), np.take_along_axis(x, along, axis))
    if place:
        short = along[:1]
        want = np.take_along_axis(x[:1], short, axis)
        assert_same(meaning(t.gather(axis, tensor(short))), want)


@given(st.data())
def test_scatter_add(data: st.DataObject) -> None:
    kinds = [d for d in DATA if not d.storage and d is not dtypes.bool]
    x = data.draw(arrays(kinds, st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    place, n = axis % x.ndim, x.shape[axis]
    src_shape = [data.draw(st.integers(0, 5)) if a == place else m for a, m in enumerate(x.shape)]
    src = data.draw(arrays([tensor(x).dtype], st.just(tuple(src_shape)), wild=False))
    shape = [data.draw(st.integers(0, m)) for m in src_shape]
    index = np.random.default_rng(1).integers(-n, n, shape)
    want = x.astype(np.float64 if tensor(x).dtype.is_float else x.dtype)
    at = list(np.indices(shape))
    at[place] = index
    part = src[tuple(slice(0, m) for m in shape)].astype(want.dtype)
    with np.errstate(all="ignore"):
        np.add.at(want, tuple(at), part)
    got = tensor(x).scatter_add(axis, tensor(index), tensor(src))
    np.testing.assert_array_equal(
        meaning(got).astype(np.float64), want.astype(x.dtype).astype(np.float64)
    )
    rows = np.random.default_rng(2).integers(-n, n, src_shape[place])
    added = x.astype(want.dtype)
    with np.errstate(all="ignore"):
        np.add.at(np.moveaxis(added, place, 0), rows, np.moveaxis(src.astype(want.dtype), place, 0))
    got = tensor(x).index_add(axis, tensor(rows), tensor(src))
    np.testing.assert_array_equal(
        meaning(got).astype(np.float64), added.astype(x.dtype).astype(np.float64)
    )


def test_scatter_add_leaves_what_it_does_not_reach() -> None:
    x = np.array([-0.0, -0.0, np.nan], np.float32)
    got = tensor(x).scatter_add(0, tensor(np.array([1])), tensor(np.ones(1, np.float32)))
    assert_same(meaning(got), np.array([-0.0, 1, np.nan], np.float32))


def test_one_hot() -> None:
    x = tensor(np.array([[0, 2], [3, -1]], np.int8))
    want = [[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]]
    got = x.one_hot(3)
    assert got.dtype is dtypes.i64 and meaning(got).tolist() == want
    assert x.one_hot(3, dtypes.f32).dtype is dtypes.f32
    huge = tensor(np.array([2**64 - 1, 1], np.uint64))
    assert meaning(huge.one_hot(2)).tolist() == [[0, 0], [0, 1]]


def test_integers_of_numpy_and_tensors() -> None:
    x = np.arange(12).reshape(3, 4)
    t = tensor(x)
    assert meaning(t[np.int8(-1), np.uint64(2)]) == x[-1, 2]
    assert_same(meaning(t[np.array(1)]), x[1])
    assert_same(meaning(t[tensor(np.array(1)), :]), x[1, :])
    assert_same(meaning(t[:, tensor(np.array(-1))]), x[:, -1].copy())
    assert_same(meaning(t[range(2)]), x[range(2)])
    assert_same(meaning(t[[]]), x[[]])


def test_rows_are_one_gather() -> None:
    table = tensor(np.zeros((50, 8), np.float32))
    rows = table[tensor(np.arange(6).reshape(2, 3))]
    (gather,) = [u for u in toposort(rows._u) if u.op is Ops.GATHER]
    assert gather.src[0] is table._u and gather.arg.dims == (~0, 2) and rows.shape == (2, 3, 8)


@pytest.mark.parametrize("key", (3, -4, (0, 4), ([0, 3],), (slice(None), [-5]), np.array([9])))
def test_out_of_range_at_the_call(key: Any) -> None:
    t = tensor(np.zeros((3, 4)))
    for call in (lambda: t[key], lambda: t.__setitem__(key, 0.0)):
        with pytest.raises(OutOfRangeError, match=r"test_indexing\.py:\d+.* axis \d of size \d"):
            call()
    with pytest.raises(IndexError):
        t[key]


@pytest.mark.parametrize(
    "call",
    (
        lambda t: t[0, 0, 0],
        lambda t: t[..., ...],
        lambda t: t[1.0],
        lambda t: t[True],
        lambda t: t["a"],
        lambda t: t[[0.5]],
        lambda t: t[::0],
        lambda t: t[tensor(np.zeros(2))],
        lambda t: t[np.zeros((3, 3), bool)],
        lambda t: t[[0, 1], [0, 1, 2]],
        lambda t: t.__setitem__(0, t),
        lambda t: t.cast(dtypes.i32).__setitem__(0, t[0]),
        lambda t: t.cast(dtypes.i32).__setitem__(0, 0.5),
        lambda t: t.take([True, False], 0),
        lambda t: t.take(slice(1), 0),
        lambda t: t.gather(0, tensor(np.zeros((1, 5), int))),
        lambda t: t.gather(0, tensor(np.zeros(3, int))),
        lambda t: t.gather(0, t),
        lambda t: t.take_along_axis(tensor(np.zeros((2, 1), int)), 1),
        lambda t: t.scatter_add(0, tensor(np.zeros((3, 4), int)), t[:2]),
        lambda t: t.scatter_add(0, tensor(np.zeros((3, 4), int)), t.cast(dtypes.f32)),
        lambda t: t.index_add(0, tensor(np.zeros(2, int)), t),
        lambda t: t.one_hot(2),
    ),
)
def test_what_is_refused(call: Callable[[Tensor], Any]) -> None:
    with pytest.raises(UsageError, match=r"test_indexing\.py:\d+"):
        call(tensor(np.zeros((3, 4))))


@pytest.mark.parametrize("device", DEVICES)
def test_on_devices(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 7, 5), np.float32)
    t = tensor(x, device)
    key = (slice(5, None, -2), slice(1, None, 3), slice(None, None, 2))
    assert_same(t[key].numpy(), np.ascontiguousarray(x[key]))
    t[key] = 1.0
    want = x.copy()
    want[key] = 1
    assert_same(t.numpy(), want)


@pytest.mark.parametrize("device", DEVICES)
def test_index_tensors_on_devices(device: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((6, 7), np.float32)
    rows, columns = np.array([[0, -1, 2]]), np.array([[3], [-7]])
    t, at = tensor(x, device), (tensor(rows, device), tensor(columns, device))
    assert_same(t[at].numpy(), x[rows, columns])
    t[at] = np.arange(6, dtype=np.float32).reshape(2, 3)
    want = x.copy()
    want[rows, columns] = np.arange(6).reshape(2, 3)
    assert_same(t.numpy(), want)
    twice, ones = tensor(np.array([1, 1]), device), tensor(np.ones((2, 7), np.float32), device)
    again = tensor(x, device).index_add(0, twice, ones)
    assert_same(again.numpy(), x + np.array([0, 2, 0, 0, 0, 0], np.float32)[:, None])

"""Random numbers: the published bits, the same on every device, and distributed as they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.helpers import assert_same
from tests.tensor.meaning import FLOATS, meaning
from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor import Tensor, manual_seed, rand, randint, randn, random, realize
from uopc.tensor.random import bernoulli, dropout, normal, threefry, uniform
from uopc.uop.node import UOp
from uopc.uop.oracle import evaluate


@pytest.fixture(autouse=True)
def seeded() -> None:
    manual_seed(1)


def u64(low: int, high: int) -> UOp:
    return UOp.const(low | high << 32, dtypes.u64)


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [  # Random123 1.14, tests/kat_vectors: threefry2x32 20
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_published_bits(
    counter: tuple[int, int], key: tuple[int, int], want: tuple[int, int]
) -> None:
    a, b = threefry(u64(*key), u64(*counter))
    assert (int(evaluate(a, {})), int(evaluate(b, {}))) == want


def draws(device: str) -> list[np.ndarray[Any, Any]]:
    """One of each kind, all in one schedule."""
    made = [
        rand(3, 4, device=device),
        randn(7, device=device),
        randn(5, dtype=dtypes.f64, device=device),
        randint(-5, 9, (4, 2), device=device),
        bernoulli(0.3, (9,), device=device),
        uniform(6, low=-2.0, high=3.0, dtype=dtypes.f16, device=device),
    ]
    realize(*made)
    return [t.numpy() for t in made]


def test_one_seed_gives_the_same_bits_on_every_device() -> None:
    native, emulated = draws("cpu"), draws("emulated")
    again = draws("cpu")
    for a, b, c in zip(native, emulated, again, strict=True):
        assert_same(a, b)
        assert not np.array_equal(a, c)
    manual_seed(1)
    for a, b in zip(native, draws("cpu"), strict=True):
        assert_same(a, b)
    manual_seed(2)
    assert not np.array_equal(native[0], draws("cpu")[0])


def test_numbers_follow_one_another_however_they_are_asked_for() -> None:
    """The n-th number is one, whatever was computed when."""
    whole = rand(6, device="cpu").numpy()
    manual_seed(1)
    first, second = rand(2, device="cpu"), rand(4, device="cpu")
    assert_same(second.numpy(), whole[2:])
    assert_same(first.numpy(), whole[:2])
    assert random.state("cpu").tolist() == [6]
    manual_seed(1)
    parts = [rand(1, device="cpu").numpy() for _ in range(6)]
    assert_same(np.concatenate(parts), whole)
    many = [rand(1, device="cpu") for _ in range(40)]
    assert len({t.item() for t in many}) == 40


def test_what_was_drawn_stays() -> None:
    lazy = rand(3, device="cpu")
    manual_seed(5)
    later = rand(3, device="cpu").numpy()
    assert not np.array_equal(lazy.numpy(), later)
    assert_same(lazy.numpy(), lazy.numpy())
    manual_seed(1)
    assert_same(rand(3, device="cpu").numpy(), lazy.numpy())


def test_the_state_can_be_kept() -> None:
    rand(3, device="cpu").realize()
    state = random.state("cpu").item()
    a = rand(3, device="cpu").numpy()
    random.state("cpu").assign(state)
    assert_same(rand(3, device="cpu").numpy(), a)
    assert random.key("cpu").tolist() == [1]


def test_a_draw_may_require_a_gradient() -> None:
    w = randn(3, device="cpu", requires_grad=True)
    (w * w).sum().backward()
    assert w.is_leaf and w.grad is not None
    assert_same(w.grad.numpy(), 2 * w.numpy())


# ---- distributions, by the oracle
N = 40_000


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform(dtype: DType) -> None:
    x = meaning(rand(N, dtype=dtype, device="cpu")).astype(np.float64)
    assert x.min() >= 0 and x.max() < 1
    assert abs(x.mean() - 0.5) < 0.01 and abs(x.var() - 1 / 12) < 0.003
    counts = np.histogram(x, 16, (0, 1))[0]
    assert np.sum((counts - N / 16) ** 2 / (N / 16)) < 40  # chi square with 15 degrees
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal(dtype: DType) -> None:
    x = meaning(randn(N // 4, dtype=dtype, device="cpu")).astype(np.float64)
    for power, want, within in ((1, 0, 0.04), (2, 1, 0.06), (3, 0, 0.2), (4, 3, 0.5)):
        assert abs(np.mean(x**power) - want) < within
    assert 0.670 < np.mean(np.abs(x) < 1) < 0.695 and np.isfinite(x).all()


def test_the_curve_of_the_normal_numbers() -> None:
    """Box-Muller with the true functions, from the same bits."""
    u = random._normal((2000,), dtypes.f64, "cpu")
    manual_seed(1)
    key, counter = random._counters((2000,), "cpu")
    value = Tensor([0], device="cpu")  # only to evaluate with
    value._u = u
    words = []
    for counted in (counter, counter ^ (1 << 63)):
        for word in threefry(key, counted):
            value_of = Tensor([0], device="cpu")
            value_of._u = word
            words.append(meaning(value_of).astype(np.uint64))
    a, b, c, d = words
    radius = np.sqrt(-2 * np.log(((a << np.uint64(32) | b) + 0.5) * 2.0**-64))
    angle = 2 * np.pi * (c << np.uint64(32) | d).astype(np.longdouble) * 2.0**-64
    np.testing.assert_allclose(meaning(value), radius * np.cos(angle), 1e-12, 1e-14)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 7, dtypes.i32),
        (-3, 2, dtypes.i8),
        (0, 256, dtypes.u8),
        (0, 2**40, dtypes.i64),
        (-(2**63), 2**63, dtypes.i64),
        (0, 2**64, dtypes.u64),
    ],
)
def test_integers(low: int, high: int, dtype: DType) -> None:
    x = meaning(randint(low, high, N, dtype, device="cpu")).tolist()
    assert low <= min(x) and max(x) < high
    span = high - low
    if span <= 256:
        counts = np.bincount(np.array(x) - low, minlength=span)
        assert np.sum((counts - N / span) ** 2 / (N / span)) < span + 6 * np.sqrt(2 * span) + 8
    parts = np.histogram([(v - low) / span for v in x], 8, (0, 1))[0]
    assert span < 256 or np.abs(parts - N / 8).max() < 6 * np.sqrt(N / 8)


def test_dtypes_of_integers() -> None:
    assert randint(0, 5, (), device="cpu").shape == ()
    assert randint(0, 2**31, 1, device="cpu").dtype is dtypes.i32
    assert randint(0, 2**31 + 1, 1, device="cpu").dtype is dtypes.i64
    assert randint(0, 2**64, 1, device="cpu").dtype is dtypes.u64


def test_chances() -> None:
    x = meaning(bernoulli(0.25, N, device="cpu"))
    assert x.dtype == bool and abs(x.mean() - 0.25) < 0.01
    chance = Tensor([0.0, 0.5, 1.0], device="cpu")
    y = meaning(bernoulli(chance, (N // 4, 3))).mean(0)
    assert y[0] == 0 and abs(y[1] - 0.5) < 0.03 and y[2] == 1
    assert bernoulli(chance).shape == (3,)
    z = meaning(normal(N // 4, mean=3.0, std=0.5, device="cpu"))
    assert abs(z.mean() - 3) < 0.03 and abs(z.std() - 0.5) < 0.02


def test_dropout() -> None:
    x = Tensor(np.ones(N, np.float32), device="cpu", requires_grad=True)
    y = dropout(x, 0.25)
    got = meaning(y)
    assert set(np.unique(got)) == {0, np.float32(1 / 0.75)} and abs(got.mean() - 1) < 0.02
    y.sum().backward()
    assert x.grad is not None
    assert_same(meaning(x.grad), got)
    assert_same(meaning(dropout(x, 0)), meaning(x))
    assert not meaning(dropout(x, 1)).any()
    with pytest.raises(UsageError, match="p is a probability"):
        dropout(x, 1.5)


def test_empty_draws_draw_nothing() -> None:
    assert rand(0, 3, device="cpu").numpy().shape == (0, 3)
    assert random.state("cpu").item() == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: manual_seed(-1), "0 to 2"),
        (lambda: manual_seed(True), "0 to 2"),
        (lambda: rand(2, dtype=dtypes.i32), "f16, bf16, f32 or f64, got i32"),
        (lambda: randint(3, 3, 2), "no integers from 3"),
        (lambda: randint(0, 300, 2, dtypes.u8, device="cpu"), "299 does not fit u8"),
        (lambda: randint(0, 3, 2, dtypes.f32), "the dtype is an integer's"),
        (lambda: bernoulli(0.5), "of which shape"),
        (lambda: rand(2, device="abacus"), "no device is called"),
    ],
)
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()

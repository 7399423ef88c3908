"""Captured functions do what they do without `jit`, call after call, whatever happens between."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.errors import JitError
from uopc.tensor import Tensor, cat, nn, no_grad, optim, realize
from uopc.tensor.capture import Jit, JitWarning, jit
from uopc.tensor.random import manual_seed, rand

pytestmark = pytest.mark.usefixtures("each_device")
CALLS = 5


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


def runs(function: Callable[..., Any]) -> tuple[Jit[..., Any], list[int]]:
    """The captured function, and a list that grows when Python runs it."""
    ran: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        ran.append(1)
        return function(*args, **kwargs)

    return jit(counted), ran


# ---- results
def test_python_runs_twice_and_then_no_more() -> None:
    step, ran = runs(lambda x: x * 2.0 + 1.0)
    for n in range(CALLS):
        np.testing.assert_array_equal(step(numbers(n, -n)).numpy(), [2 * n + 1, 1 - 2 * n])
    assert len(ran) == 2 and step.captures == 1


def test_results_of_earlier_calls_keep_their_values() -> None:
    step = jit(lambda x: (x + 1.0, x.reshape(1, 2)))
    kept = [step(numbers(n, n)) for n in range(CALLS)]
    for n, (a, b) in enumerate(kept):
        np.testing.assert_array_equal(a.numpy(), [n + 1, n + 1])
        np.testing.assert_array_equal(b.numpy(), [[n, n]])


def test_nested_arguments_and_results() -> None:
    def swapped(pair: tuple[Tensor, Tensor], *, more: dict[str, Tensor], by: int) -> Any:
        a, b = pair
        return {"pair": [b * by, a], "more": (more["x"].sum(), None)}

    step = jit(swapped)
    for n in range(CALLS):
        got = step((numbers(1, n), numbers(n)), more={"x": numbers(n, n)}, by=3)
        assert got["pair"][0].tolist() == [3 * n] and got["pair"][1].tolist() == [1, n]
        assert float(got["more"][0]) == 2 * n and got["more"][1] is None


def test_methods_are_captured_for_each_holder() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = numbers(by)

        @jit
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.by

    two, three = Scale(2), Scale(3)
    for n in range(CALLS):
        assert two(numbers(n)).tolist() == [2 * n] and three(numbers(n)).tolist() == [3 * n]


def test_a_view_or_a_lazy_tensor_may_be_an_argument() -> None:
    step = jit(lambda x: x.T + 0.0)
    whole = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    for n in range(4):
        for x in (whole[n : n + 1], whole[n : n + 1] * 2.0, whole.T[:, n : n + 1].T):
            np.testing.assert_array_equal(step(x).numpy(), x.numpy().T)


def test_a_result_may_be_the_next_argument() -> None:
    step = jit(lambda x: x * 2.0)
    x, seen = numbers(1, 3), []
    for _ in range(CALLS):
        x = step(x)
        seen.append(x)
    for n, t in enumerate(seen):
        assert t.tolist() == [2 ** (n + 1), 3 * 2 ** (n + 1)]


def test_an_argument_comes_back() -> None:
    step = jit(lambda x, y: (y, x, x))
    for n in range(CALLS):
        x, y = numbers(n), numbers(-n)
        assert [t.tolist() for t in step(x, y)] == [[-n], [n], [n]]


def test_the_same_tensor_twice_is_another_kind_of_call() -> None:
    def add(a: Tensor, b: Tensor) -> Tensor:
        a += b
        return a + b

    step = jit(add)
    for _ in range(CALLS):
        a, b = numbers(1), numbers(10)
        assert step(a, b).tolist() == [21] and a.tolist() == [11] and b.tolist() == [10]
        assert step(a, a).tolist() == [44] and a.tolist() == [22]


def test_an_update_of_a_result_stays_outside() -> None:
    step = jit(lambda x: x + 1.0)
    for n in range(CALLS):
        got = step(numbers(n))
        got += 100.0
        assert got.tolist() == [n + 101]
        assert step(numbers(n)).tolist() == [n + 1]
        assert got.tolist() == [n + 101]


# ---- tensors that it closes over
def test_what_it_closes_over_is_updated() -> None:
    total = numbers(0, 0)

    def add(x: Tensor) -> Tensor:
        nonlocal total
        total += x
        return total * 1.0

    step = jit(add)
    wanted = np.zeros(2)
    for n in range(CALLS):
        wanted += (n, 2 * n)
        assert step(numbers(n, 2 * n)).tolist() == list(wanted) == total.tolist()


def test_whoever_holds_an_old_value_keeps_it() -> None:
    total = numbers(0)

    @jit
    def add(x: Tensor) -> None:
        total.assign(total + x)

    held = []
    for n in range(2 * CALLS):
        held.append((n * 1.0, total.detach(), total.reshape(1, 1).expand(2, 1), total + 0.5))
        add(numbers(1))
        assert total.tolist() == [n + 1]
    for value, same, view, lazy in held:
        assert same.tolist() == [value] and view.tolist() == [[value], [value]]
        assert lazy.tolist() == [value + 0.5]


def test_updates_between_calls_are_seen() -> None:
    weight = numbers(1, 1)
    step = jit(lambda x: x * weight)
    for n in range(2 * CALLS):
        with no_grad():
            if n % 3 == 0:
                weight[0] = float(n)
            elif n % 3 == 1:
                weight += 1.0
        assert step(numbers(2, 2)).tolist() == [2 * v for v in weight.tolist()]


def test_updates_inside_and_between() -> None:
    a, b = numbers(1, 2), numbers(5, 5)

    def swap_and_grow() -> Tensor:
        old = a.detach()
        a.assign(b * 1.0)
        b.assign(old + 1.0)
        return old

    step, x, y = jit(swap_and_grow), np.array([1.0, 2.0]), np.array([5.0, 5.0])
    for n in range(2 * CALLS):
        old = step()
        assert old.tolist() == list(x)
        x, y = y, x + 1
        assert a.tolist() == list(x) and b.tolist() == list(y)
        if n % 3 == 2:
            a += 10.0
            x = x + 10


def test_a_plain_swap() -> None:
    a, b = numbers(1), numbers(2)

    @jit
    def swap() -> None:
        old = a.detach()
        a.assign(b)
        b.assign(old)

    for n in range(CALLS):
        swap()
        assert [a.tolist(), b.tolist()] == ([[2], [1]] if n % 2 == 0 else [[1], [2]])


def test_an_argument_is_updated() -> None:
    def grow(x: Tensor, by: Tensor) -> None:
        x += by

    step = jit(grow)
    several = [numbers(n) for n in range(3)]
    for n in range(2 * CALLS):
        step(several[n % 3], numbers(1))
        wanted = [k + sum(1 for m in range(n + 1) if m % 3 == k) for k in range(3)]
        assert [t.tolist() for t in several] == [[w] for w in wanted]


def test_two_functions_share_what_they_close_over() -> None:
    w = numbers(1)

    @jit
    def grow(x: Tensor) -> None:
        w.assign(w + x)

    look = jit(lambda: w * 2.0)
    wanted = 1.0
    for n in range(2 * CALLS):
        grow(numbers(n))
        wanted += n
        assert look().tolist() == [2 * wanted] and w.tolist() == [wanted]


def test_a_result_that_another_function_closes_over() -> None:
    first = jit(lambda x: x + 1.0)
    held = [first(numbers(n)) for n in range(4)][-1]
    second = jit(lambda x: x * held)
    for n in range(CALLS):
        assert first(numbers(100 + n)).tolist() == [101 + n]
        assert second(numbers(2)).tolist() == [8] and held.tolist() == [4]


def test_what_was_computed_before_of_the_same_tensors() -> None:
    """Equal graphs are one node: the capture must not take the value from before for a constant."""
    net = nn.Linear(3, 2)
    rng = np.random.default_rng(0)
    xs = [Tensor(rng.standard_normal((2, 3)).astype(np.float32)) for _ in range(CALLS)]
    before = [net(x).realize() for x in xs]
    predict = jit(net)
    for _ in range(3):
        for x, y in zip(xs, before, strict=True):
            np.testing.assert_allclose(predict(x).numpy(), y.numpy(), rtol=1e-6)
        with no_grad():
            net.weight.assign(net.weight * 2.0)
        before = [net(x).realize() for x in xs]


def test_a_lazy_tensor_from_before() -> None:
    w = numbers(3)
    lazy = w * 2.0

    @jit
    def step(x: Tensor) -> Tensor:
        out = lazy + x
        w.assign(w + 1.0)
        return out

    for n in range(CALLS):
        assert step(numbers(n)).tolist() == [6 + n] and w.tolist() == [4 + n]


def test_what_a_call_leaves_behind_does_not_change() -> None:
    left: list[Tensor] = []

    @jit
    def step(x: Tensor) -> Tensor:
        y = x + 1.0
        left.append(y)
        return y * 2.0

    for n in range(CALLS):
        assert step(numbers(n)).tolist() == [2 * n + 2]
    assert [t.tolist() for t in left] == [[1], [2]]


def test_a_module_that_moves_is_captured_again(each_device: str) -> None:
    net = nn.Linear(3, 2)
    predict = jit(net)
    x = np.ones((1, 3), np.float32)
    for device in (each_device, "emulated", each_device):
        net.to(device)
        wanted = x @ net.weight.numpy().T + net.bias.numpy()  # type: ignore[union-attr]
        for _ in range(3):
            got = predict(Tensor(x, device=device))
            assert got.device == device
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5)


# ---- random numbers, modes
def test_random_numbers_go_on() -> None:
    def draws(function: Callable[[], Tensor]) -> list[Any]:
        manual_seed(7)
        return [function().tolist() for _ in range(2 * CALLS)]

    plain = draws(lambda: rand(3) + rand(3))
    captured = draws(jit(lambda: rand(3) + rand(3)))
    assert plain == captured and len({tuple(x) for x in plain}) == len(plain)


def test_a_seed_between_calls() -> None:
    draw = jit(lambda: rand(2))
    seen = []
    for _ in range(3):
        manual_seed(5)
        seen.append([draw().tolist() for _ in range(4)])
    assert seen[0] == seen[1] == seen[2]


def test_train_and_eval_are_two_captures() -> None:
    net = nn.Sequential(nn.Dropout(0.5))
    step, x = jit(lambda x: net(x)), numbers(*[1.0] * 64)
    for _ in range(4):
        for _ in range(3):
            assert 0 in step(x).tolist()
        net.eval()
        for _ in range(3):
            assert 0 not in step(x).tolist()
        net.train()
    assert step.captures == 2


# ---- training
OPTIMISERS: dict[str, Callable[[list[Tensor]], optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p, 0.01),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01),
}


def train(how: Callable[[Callable[..., Any]], Callable[..., Any]], kind: str) -> list[float]:
    manual_seed(3)
    rng = np.random.default_rng(4)
    x = Tensor(rng.standard_normal((40, 6)).astype(np.float32))
    y = Tensor(rng.integers(0, 3, 40))
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))
    optimizer = OPTIMISERS[kind](net.parameters())

    @how
    def step(at: Tensor) -> Tensor:
        loss = nn.cross_entropy(net(x[at]), y[at])
        loss.backward()
        optim.clip_grad_value_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    for n in range(12):
        losses.append(step(Tensor(rng.integers(0, 40, 8))))
        if n == 6:
            optimizer.lr = 0.002
    return [*map(float, losses), *[float(p.abs().sum()) for p in net.parameters()]]


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_training_is_that_without_jit(kind: str) -> None:
    np.testing.assert_allclose(train(jit, kind), train(lambda f: f, kind), rtol=1e-4)


def test_gradients_that_are_left() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def step(x: Tensor) -> None:
        w.grad = None
        (w * w * x).sum().backward()

    for n in range(CALLS):
        step(numbers(n, n))
        assert w.grad is not None and w.grad.tolist() == [2 * n, 4 * n]
        with no_grad():
            w.assign(w * 1.0)


def test_gradients_that_add_up_over_calls() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.SGD([w], 1.0)
    step = jit(lambda x: (w * x).sum().backward())
    value = np.array([1.0, 2.0])
    for n in range(CALLS):
        for k in range(4):
            step(numbers(k, n))
        assert w.grad is not None and w.grad.tolist() == [6, 4 * n]
        optimizer.step()
        value -= (6, 4 * n)
        assert w.tolist() == list(value)


# ---- what a replay cannot do
@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.item(),
        lambda t: t.numpy(),
        lambda t: bool(t > 0),
        lambda t: float(t),
        lambda t: t.tolist(),
        lambda t: t.to("emulated"),
    ],
)
def test_reading_a_value_inside(read: Callable[[Tensor], Any]) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        read(x.sum())
        return x

    for _ in range(3):
        with pytest.raises(JitError, match=r"step reads a value.*test_jit.py:\d+"):
            step(numbers(1))


def test_returning_a_number() -> None:
    step = jit(lambda x: {"loss": [x, 3]})
    with pytest.raises(JitError, match=r"returned int \(in loss.1\)"):
        step(numbers(1))


def test_data_that_differs_from_call_to_call() -> None:
    rng = np.random.default_rng(0)
    step = jit(lambda x: x + Tensor(rng.standard_normal(1).astype(np.float32)))
    step(numbers(1))
    with pytest.raises(JitError, match="data that differs from call to call"):
        step(numbers(1))


def test_an_array_is_no_argument() -> None:
    with pytest.raises(JitError, match="make arrays Tensors first"):
        jit(lambda x: x)(np.zeros(2))


def test_a_computed_argument_with_a_history() -> None:
    w = Tensor([1.0], requires_grad=True)
    with pytest.raises(JitError, match="computed from leaves"):
        jit(lambda x: x * 2.0)(w * 2.0)


def test_two_devices() -> None:
    other = Tensor([1.0], device="emulated")

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1.0, other + 1.0

    step(numbers(1))
    with pytest.raises(JitError, match=r"computes on \w+ and \w+"):
        step(numbers(1))


def test_an_index_out_of_range_is_reported_after_a_replay() -> None:
    table = numbers(1, 2, 3)
    step = jit(lambda at: table[at])
    for n in range(CALLS):
        assert step(Tensor([n % 3])).tolist() == [n % 3 + 1]
    with pytest.raises(IndexError, match="index 7"):
        step(Tensor([7])).numpy()
    assert step(Tensor([0])).tolist() == [1]


def test_an_error_inside_leaves_everything_usable() -> None:
    total, fail = numbers(0), [False, True, False, False, False, False]

    def add(x: Tensor) -> Tensor:
        if fail.pop(0):
            raise ZeroDivisionError
        total.assign(total + x)
        return total * 1.0

    step = jit(add)
    assert step(numbers(1)).tolist() == [1]
    with pytest.raises(ZeroDivisionError):
        step(numbers(1))
    for n in range(CALLS):
        assert step(numbers(1)).tolist() == [n + 2] == total.tolist()


# ---- captures
def test_other_shapes_are_captured_again_and_kept() -> None:
    step, ran = runs(lambda x: x.sum())
    for n in (2, 3) * CALLS:
        assert float(step(Tensor(np.ones(n, np.float32)))) == n
    assert len(ran) == 4 and step.captures == 2


def test_a_third_kind_of_call_says_what_changed() -> None:
    @jit
    def step(x: Tensor, lr: float) -> Tensor:
        return x * lr

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lr in (0.5, 0.25):
            for _ in range(3):
                step(numbers(1), lr)
    with pytest.warns(JitWarning, match="step is captured anew, for kind 3.*lr from 0.25 to 0.125"):
        step(numbers(1), 0.125)
    with pytest.warns(JitWarning, match=r"x from f32 \(1,\) on \w+ to f32 \(2,\)"):
        step(numbers(1, 2), 0.125)


def test_captures_are_not_kept_for_ever() -> None:
    step = jit(lambda x, by: x * by)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        for by in range(70):
            for _ in range(3 if by < 20 else 1):
                assert step(numbers(2), by).tolist() == [2 * by]
    assert sum(map(len, step._captures.values())) == 16 and len(step._rehearsed) == 64


def test_zeros_with_signs_are_different_arguments() -> None:
    step = jit(lambda x, by: x * by)
    for _ in range(3):
        for by in (0.0, -0.0):
            assert np.signbit(step(numbers(1), by).numpy()) == np.signbit(by)


def test_inside_another_capture_it_is_part_of_that() -> None:
    inner, ran = runs(lambda x: x + 1.0)
    outer = jit(lambda x: inner(x) * 2.0)
    for n in range(CALLS):
        assert outer(numbers(n)).tolist() == [2 * n + 2]
    assert len(ran) == 2 and inner.captures == 0


def test_empty_tensors() -> None:
    step = jit(lambda x, y: (x + 1.0, cat([x, y])))
    for n in range(CALLS):
        empty, both = step(Tensor(np.zeros(0, np.float32)), numbers(n))
        assert empty.tolist() == [] and both.tolist() == [n]


def test_forget() -> None:
    step, ran = runs(lambda x: x + 1.0)
    for n in range(CALLS):
        step(numbers(n))
    step.forget()
    assert step(numbers(1)).tolist() == [2] and len(ran) == 3


# ---- values that are not what they seem
def test_tensors_made_inside_of_data_are_new_in_each_call() -> None:
    """Also where the function updates them."""

    def body(x: Tensor) -> Tensor:
        made = numbers(1, 2)
        made += x
        made[0] = 9.0
        return made * 1.0

    step = jit(body)
    for n in range(CALLS):
        assert step(numbers(n, n)).tolist() == body(numbers(n, n)).tolist() == [9, 2 + n]
    assert step.captures == 1


def test_a_view_that_gets_a_value_later() -> None:
    """At the capture its elements stand in another order, or only once."""
    turned = numbers(1, 2, 3, 4).reshape(2, 2).T.realize()
    wide = numbers(5).expand(2, 2).realize()
    step = jit(lambda x: turned * x + wide)
    for n in range(CALLS + 3):
        if n == CALLS:
            turned.assign(numbers(10, 20, 30, 40).reshape(2, 2))
            wide.assign(numbers(1, 2, 3, 4).reshape(2, 2))
        got = step(numbers(1, 1)).tolist()
        assert got == ([[6, 8], [7, 9]] if n < CALLS else [[11, 22], [33, 44]])
    assert step.captures


def test_a_gradient_that_equals_what_was_accumulated() -> None:
    """The first one is in memory when the next, an equal graph, is computed: it is one node."""
    w = numbers(2, 3).requires_grad_()
    equal = (w + w).realize()  # the gradient of w * w

    @jit
    def step(x: Tensor) -> Tensor:
        (w * w).sum().backward()
        return x * 1.0

    for n in range(CALLS + 3):
        step(numbers(n))
        assert w.grad is not None and w.grad.tolist() == [4 * (n + 1), 6 * (n + 1)]
    assert equal.tolist() == [4, 6]


def test_a_name_that_stands_for_another_tensor() -> None:
    w = numbers(1, 2)
    step = jit(lambda x: x * w)
    kept = w  # the old one lives on
    for n in range(2 * CALLS):
        if n == CALLS:
            w = numbers(10, 20)
        assert step(numbers(1, 1)).tolist() == ([1, 2] if n < CALLS else [10, 20])
    assert step.captures == 2 and kept.tolist() == [1, 2]


def test_an_argument_that_is_closed_over_too() -> None:
    w = numbers(1, 2)
    step = jit(lambda x: x + w)
    for _ in range(CALLS):
        assert step(w).tolist() == [2, 4]
        assert step(numbers(5, 5)).tolist() == [6, 7]


def test_computed_tensors_that_are_updated_lose_their_history() -> None:
    w = numbers(1, 2).requires_grad_()
    y = (w * 2.0).realize()

    @jit
    def step(x: Tensor) -> None:
        y.assign(y.detach() + x)

    for _ in range(CALLS):
        step(numbers(1, 1))
    assert y.tolist() == [2 + CALLS, 4 + CALLS] and not y.requires_grad


def test_a_captured_function_has_the_bits_of_its_results_computed_together() -> None:
    """A float sum follows its kernel, and a kernel what is computed together."""
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((64, 40), np.float32))

    def body(x: Tensor) -> list[Tensor]:
        shares = x.softmax(1)
        return [(shares * x).sum(), x.var(1), (x * x).sum(0), shares.sum(0), x.cumsum(1)]

    together = body(x)
    realize(*together)
    step = jit(body)
    for _ in range(3):
        for got, want in zip(step(x), together, strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_closed_over_tensor_becomes_a_view_of_another() -> None:
    """What is copied to where the next call reads it are its elements in order."""
    w, y = numbers(1, 2, 3, 4).reshape(2, 2).requires_grad_(), numbers(0, 0, 0, 0).reshape(2, 2)

    @jit
    def step(x: Tensor) -> Tensor:
        before = y * x
        y.assign(w.T)
        return before

    for n in range(CALLS):
        assert step(numbers(1, 1)).tolist() == ([[0, 0], [0, 0]] if n == 0 else [[1, 3], [2, 4]])
    assert y.tolist() == [[1, 3], [2, 4]]


def test_empty_tensors_are_updated() -> None:
    y = Tensor(np.zeros((0,), np.float16))
    step = jit(lambda x: y.assign(x.expand(0)) + 1.0)
    for _ in range(CALLS):
        assert step(Tensor(np.ones(1, np.float16))).tolist() == []

"""Layers and losses against numpy; what a module holds, moves, saves and prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uopc.dtype import dtypes
from uopc.errors import UsageError
from uopc.tensor import nn, optim
from uopc.tensor.core import Tensor
from uopc.tensor.mode import no_grad
from uopc.tensor.random import manual_seed

pytestmark = pytest.mark.usefixtures("each_device")
Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(0)
REDUCED: dict[str, Callable[[Any], Any]] = {"mean": np.mean, "sum": np.sum, "none": np.asarray}


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def log_softmax(x: Array, axis: int) -> Array:
    x = x.astype(np.float64) - x.max(axis, keepdims=True)
    out: Array = x - np.log(np.exp(x).sum(axis, keepdims=True))
    return out


# ---- layers
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (7,), (2, 3)])
def test_linear(bias: bool, lead: tuple[int, ...]) -> None:
    layer, x = nn.Linear(5, 3, bias=bias), normal(*lead, 5)
    wanted = x @ layer.weight.numpy().T
    if layer.bias is not None:
        wanted = wanted + layer.bias.numpy()
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_linear_starts_uniform_within_its_bound() -> None:
    manual_seed(3)
    layer = nn.Linear(400, 300)
    for p in layer.parameters():
        values = p.numpy() * 20  # 1 / sqrt(400)
        assert abs(values).max() <= 1
        assert abs(values.mean()) < 0.1 and abs(values.std() - 3**-0.5) < 0.03


def test_one_seed_one_network_on_every_device(each_device: str) -> None:
    made = []
    for device in (each_device, "emulated"):
        manual_seed(11)
        net = nn.Sequential(nn.Linear(6, 5, device=device), nn.Embedding(4, 3, device=device))
        made.append([p.numpy() for p in net.parameters()])
    for a, b in zip(*made, strict=True):
        np.testing.assert_array_equal(a, b)


def test_embedding_and_its_gradient() -> None:
    table, at = nn.Embedding(10, 4), np.array([[1, 9, 1], [0, -1, 3]])
    weights = table.weight.numpy()
    got = table(Tensor(at))
    np.testing.assert_array_equal(got.numpy(), weights[at])
    (got * got).sum().backward()
    wanted = np.zeros_like(weights)
    np.add.at(wanted, at, 2 * weights[at])
    assert table.weight.grad is not None
    np.testing.assert_allclose(table.weight.grad.numpy(), wanted, rtol=1e-6)


def test_embedding_out_of_range() -> None:
    with pytest.raises(IndexError, match="10"):
        nn.Embedding(10, 4)(Tensor([3, 10])).numpy()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [6, (4, 6)])
def test_layer_norm(shape: Any, affine: bool) -> None:
    layer, x = nn.LayerNorm(shape, affine=affine), normal(3, 4, 6) * 2 + 1
    axes = (2,) if shape == 6 else (1, 2)
    wanted = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    if affine:
        scale, shift = (normal(*p.shape) for p in layer.parameters())
        layer.load_state_dict({"weight": scale, "bias": shift})
        wanted = wanted * scale + shift
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm(eps: float | None) -> None:
    layer, x, scale = nn.RMSNorm(6, eps), normal(3, 6), normal(6)
    layer.load_state_dict({"weight": scale})
    added = np.finfo(np.float32).eps if eps is None else eps
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + added) * scale
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_norms_want_their_axes() -> None:
    for layer in (nn.LayerNorm((4, 6)), nn.RMSNorm((4, 6))):
        with pytest.raises(UsageError, match=r"\(4, 6\).*\(6,\)"):
            layer(Tensor(normal(6)))


def test_dropout_trains_and_evaluates() -> None:
    manual_seed(1)
    layer, x = nn.Dropout(0.25), Tensor(np.full((200, 50), 3.0, np.float32), requires_grad=True)
    first, second = layer(x), layer(x)
    a, b = first.numpy(), second.numpy()
    assert set(np.unique(a)) == {0.0, 4.0} and abs((a == 0).mean() - 0.25) < 0.02
    assert (a != b).any()
    first.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), a / 3.0, rtol=1e-6)
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), x.numpy())
    np.testing.assert_array_equal(nn.Dropout(1.0)(x).numpy(), 0)
    with pytest.raises(UsageError, match="probability"):
        nn.Dropout(1.5)


def gelu(x: Array) -> Array:
    from math import erf

    return np.array([v * (1 + erf(v / 2**0.5)) / 2 for v in x], np.float32)


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        (nn.ReLU(), lambda x: np.maximum(x, 0)),
        (nn.GELU(), gelu),
        (
            nn.GELU("tanh"),
            lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
        ),
        (nn.Tanh(), np.tanh),
        (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
        (nn.SiLU(), lambda x: x / (1 + np.exp(-x))),
        (nn.Softplus(), lambda x: np.log1p(np.exp(x))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_activations(layer: nn.Module, wanted: Callable[[Array], Array]) -> None:
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), wanted(x), rtol=2e-5, atol=1e-6)


def test_sequential_takes_functions_and_slices() -> None:
    double = nn.Sequential(lambda x: x + 1.0, nn.ReLU(), lambda x: x * 2.0)
    x = Tensor([-3.0, 2.0])
    np.testing.assert_array_equal(double(x).numpy(), [0, 6])
    np.testing.assert_array_equal(double[1:](x).numpy(), [0, 4])
    assert len(double) == 3 and double[1] in list(double)


# ---- losses
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(reduction: Any, shape: tuple[int, ...], smoothing: float) -> None:
    axis = min(1, len(shape) - 1)
    x, y = normal(*shape) * 3, RNG.integers(0, 5, shape[:axis] + shape[axis + 1 :])
    log_p = log_softmax(x, axis)
    picked = -np.take_along_axis(log_p, np.expand_dims(y, axis), axis).squeeze(axis)
    losses = (1 - smoothing) * picked - smoothing * log_p.mean(axis)
    wanted = REDUCED[reduction](losses)
    got = nn.cross_entropy(Tensor(x), Tensor(y), reduction, label_smoothing=smoothing)
    assert got.shape == np.shape(wanted) and got.dtype is dtypes.f32
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_targets_cost_nothing_and_do_not_count(reduction: Any) -> None:
    x, y = normal(6, 5), np.array([0, -100, 4, 2, -100, 1])
    log_p = log_softmax(x, 1)
    losses = np.where(y >= 0, -log_p[np.arange(6), np.maximum(y, 0)], 0)
    wanted = {"mean": losses.sum() / 4, "sum": losses.sum(), "none": losses}[reduction]
    logits = Tensor(x, requires_grad=True)
    got = nn.cross_entropy(logits, Tensor(y), reduction, ignore_index=-100)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-6)
    got.sum().backward()
    assert logits.grad is not None
    assert not logits.grad.numpy()[y < 0].any()


def test_the_gradient_of_cross_entropy() -> None:
    x, y = normal(6, 5), RNG.integers(0, 5, 6)
    logits = Tensor(x, requires_grad=True)
    nn.cross_entropy(logits, Tensor(y)).backward()
    wanted = (np.exp(log_softmax(x, 1)) - np.eye(5)[y]) / 6
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), wanted, rtol=1e-4, atol=1e-7)


def test_nll_is_cross_entropy_after_log_softmax() -> None:
    x, y = Tensor(normal(6, 5)), Tensor(RNG.integers(0, 5, 6))
    a, b = nn.nll_loss(x.log_softmax(1), y), nn.cross_entropy(x, y)
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_a_class_that_does_not_exist() -> None:
    with pytest.raises(IndexError, match="5"):
        nn.cross_entropy(Tensor(normal(2, 5)), Tensor([1, 5])).numpy()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse(reduction: Any) -> None:
    x, y = normal(3, 4), normal(3, 4)
    wanted = REDUCED[reduction]((x - y) ** 2)
    np.testing.assert_allclose(
        nn.mse_loss(Tensor(x), Tensor(y), reduction).numpy(), wanted, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.cross_entropy(Tensor(normal(2, 5)), Tensor([1.0, 2.0])), "integers"),
        (lambda: nn.cross_entropy(Tensor(normal(2, 5)), Tensor([1])), r"\(2, 5\) and \(1,\)"),
        (lambda: nn.cross_entropy(Tensor([[1, 2]]), Tensor([1])), "floats"),
        (
            lambda: nn.cross_entropy(Tensor(normal(1, 5)), Tensor([1]), label_smoothing=2.0),
            "label_smoothing",
        ),
        (lambda: nn.nll_loss(Tensor(normal(1, 5)), Tensor([1]), "average"), "average"),  # type: ignore[arg-type]
        (lambda: nn.mse_loss(Tensor(normal(5, 1)), Tensor(normal(5))), r"\(5, 1\) and \(5,\)"),
        (lambda: nn.Module()(1), "no forward"),
    ],
)
def test_wrong_calls(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


# ---- modules
class Twins(nn.Module):
    """Two names for one layer, tensors in a list and a dict, and one that is not trained."""

    def __init__(self) -> None:
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.listed = [Tensor([1.0], requires_grad=True), nn.Dropout()]
        self.named = {"scale": Tensor([2.0], requires_grad=True)}
        self.count = Tensor([7])

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.first(x) * self.named["scale"]
        return made


def test_what_a_module_holds() -> None:
    net = Twins()
    names = ["first.weight", "first.bias", "listed.0", "named.scale"]
    assert [name for name, _ in net.named_parameters()] == names
    assert len(net.parameters()) == 4
    assert list(net.state_dict()) == [*names, "count"]
    assert len(list(net.modules())) == 3


def test_moving_keeps_identities_and_takes_gradients_along() -> None:
    net = Twins()
    parameters = net.parameters()
    values = [p.numpy() for p in parameters]
    net(Tensor(normal(3, 2))).sum().backward()
    gradients = {n: p.grad.numpy() for n, p in net.named_parameters() if p.grad is not None}
    assert net.to("emulated") is net
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    for p, v in zip(parameters, values, strict=True):
        assert p.device == "emulated" and p.requires_grad
        np.testing.assert_array_equal(p.numpy(), v)
    for name, p in net.named_parameters():
        if name in gradients:
            assert p.grad is not None and p.grad.device == "emulated"
            np.testing.assert_array_equal(p.grad.numpy(), gradients[name])
    assert net.count.device == "emulated"
    net.zero_grad()
    assert all(p.grad is None for p in parameters)
    with pytest.raises(UsageError, match="nowhere"):
        net.to("nowhere")


def test_state_is_what_it_was_and_loads_into_another() -> None:
    net, other = Twins(), Twins()
    state = net.state_dict()
    values = {name: t.numpy() for name, t in state.items()}
    held = other.parameters()
    other.load_state_dict(state)
    assert all(a is b for a, b in zip(other.parameters(), held, strict=True))
    with no_grad():
        for p in net.parameters():
            p.assign(p * 0.0)
    for name, t in other.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), values[name])
        np.testing.assert_array_equal(state[name].numpy(), values[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": None}, r"missing \['weight'\]"),
        ({"more": Tensor([1.0])}, r"not known here \['more'\]"),
        ({"weight": Tensor([1.0])}, r"weight is \(3, 2\) f32 here and \(1,\) f32"),
        ({"bias": Tensor([1, 2, 3])}, r"bias is \(3,\) f32 here and \(3,\) i32"),
    ],
)
def test_states_that_do_not_fit_change_nothing(change: dict[str, Any], message: str) -> None:
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy()
    state = {k: v for k, v in {**layer.state_dict(), **change}.items() if v is not None}
    with pytest.raises(UsageError, match=message):
        layer.load_state_dict(state)
    np.testing.assert_array_equal(layer.weight.numpy(), before)


def test_repr() -> None:
    net = nn.Sequential(nn.Linear(4, 3), abs, nn.Sequential(nn.ReLU(), nn.Dropout(0.1)))
    assert repr(net) == (
        "Sequential(\n  (0): Linear(4, 3)\n  (2): Sequential(\n    (0): ReLU()\n"
        "    (1): Dropout(p=0.1)\n  )\n)"
    )
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    assert repr(Twins()) == ("Twins(\n  (first): Linear(2, 2)\n  (listed.1): Dropout(p=0.5)\n)")


def test_train_reaches_every_module() -> None:
    net = Twins()
    dropout = net.listed[1]
    assert isinstance(dropout, nn.Dropout) and dropout.training
    assert net.eval() is net
    assert [m.training for m in net.modules()] == [False] * 3
    assert net.train() is net
    assert [m.training for m in net.modules()] == [True] * 3


def test_a_small_network_learns() -> None:
    manual_seed(0)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((64, 4)).astype(np.float32)
    y = (x[:, :1] * x[:, 1:2] > 0).astype(np.float32)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = optim.AdamW(net.parameters(), 0.05)
    losses = []
    for _ in range(40):
        loss = nn.mse_loss(net(Tensor(x)), Tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.3 * losses[0]

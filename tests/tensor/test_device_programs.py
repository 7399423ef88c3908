"""Programs of tensors on the GPU's kernels: emulated here, launched where there is a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tensor.meaning import meaning
from tests.tensor.programs import PROGRAMS, normal
from uopc.dtype import FLOATS, from_numpy
from uopc.tensor import Tensor, jit, manual_seed, nn, optim, realize
from uopc.uop.numbers import Array

#: steps of a dtype's precision that a chain of a few functions and sums may be off
ULPS = 64
#: programs that the tests of every operator do not already run emulated
_EMULATED = ("views", "indices", "updates", "gradients", "normalised", "choices")


def check(name: str, device: str) -> None:
    made = list(PROGRAMS[name](device))
    wanted = [meaning(t) for t in made]
    realize(*made)
    for n, (t, want) in enumerate(zip(made, wanted, strict=True)):
        near(f"{name}[{n}]", t.numpy(), want)


def near(what: str, got: Array, want: Array) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, what
    dtype = from_numpy(want.dtype)
    if dtype not in FLOATS:
        assert np.array_equal(got, want), what
        return
    digits = {16: 7 if dtype.name == "bf16" else 10, 32: 23, 64: 52}[dtype.bits]
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = np.max(np.abs(b), where=np.isfinite(b), initial=1.0)
    np.testing.assert_allclose(a, b, rtol=0, atol=ULPS * scale * 2.0**-digits, err_msg=what)


@pytest.mark.parametrize("name", _EMULATED)
def test_emulated(name: str) -> None:
    check(name, "emulated")


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_a_gpu(name: str) -> None:
    check(name, "cuda")


def losses(device: str, captured: bool, steps: int = 6) -> list[float]:
    """A small network's losses, step by step."""
    manual_seed(3)
    net = nn.Sequential(
        *(nn.Linear(20, 33, device=device), nn.ReLU(), nn.Dropout(0.25)),
        nn.Linear(33, 4, device=device),
    )
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = jit(step) if captured else step
    out = []
    for k in range(steps):
        x = normal(device, 16, 20, seed=k)
        y = Tensor(np.random.default_rng(k).integers(0, 4, 16), device=device)
        out.append(float(run(x, y)))
    return out


def test_devices_train_alike() -> None:
    want = losses("cpu", False)
    assert np.allclose(losses("cpu", True), want, rtol=1e-5)
    assert np.allclose(losses("emulated", False), want, rtol=1e-5)


@pytest.mark.gpu
def test_a_gpu_trains_alike() -> None:
    want = losses("cpu", False)
    assert np.allclose(losses("cuda", False), want, rtol=1e-5)
    assert np.allclose(losses("cuda", True), want, rtol=1e-5)


@pytest.mark.gpu
def test_a_stray_index_on_a_gpu() -> None:
    x = normal("cuda", 5, 3)
    with pytest.raises(IndexError, match="9 is out of range"):
        x[Tensor(np.array([0, 9]), device="cuda")].numpy()
    assert np.isfinite(x.numpy()).all()

"""Networks whose parameters are in memory already, by name: only schedules are made of them.

No memory is ever allocated: that of a leaf comes with its first use.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.dtype import DType, dtypes
from uopc.tensor import Tensor, arange, nn, optim, storage, where
from uopc.tensor.backward import remember
from uopc.tensor.base import Base, fresh

DEVICE = "emulated"


def given(
    *shape: int, dtype: DType = dtypes.f32, device: str = DEVICE, requires_grad: bool = False
) -> Tensor:
    """A tensor that stands for a memory."""
    made = fresh(Tensor, storage.place(device, dtype, shape), device, requires_grad)
    if requires_grad:
        remember(made)
    return made


def settle(tensors: Iterable[Base]) -> None:
    """These tensors are in memory from now on, whatever was to compute them."""
    for t in tensors:
        t._u = storage.place(t.device, t.dtype, t.shape)
        if t.requires_grad:
            remember(t)


def settled(module: nn.Module) -> nn.Module:
    """A module whose parameters are in memory."""
    settle(t for _, t in module.named_tensors())
    return module


class Attention(nn.Module):
    """Causal attention over (batch, time, width), written with products and a softmax."""

    def __init__(self, width: int, heads: int, device: str) -> None:
        self.heads = heads
        self.joint = nn.Linear(width, 3 * width, device=device)
        self.out = nn.Linear(width, width, device=device)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        size = width // self.heads
        shape = (batch, time, self.heads, size)
        joint = self.joint(x)
        q, k, v = (
            joint[:, :, i * width : (i + 1) * width].reshape(shape).permute(0, 2, 1, 3)
            for i in range(3)
        )
        scores = q @ k.transpose(-1, -2) * size**-0.5
        at = arange(time, device=x.device)
        past = at.reshape(time, 1) >= at.reshape(1, time)
        weights = where(past, scores, -1e9).softmax(-1)
        mixed: Tensor = self.out((weights @ v).permute(0, 2, 1, 3).reshape(x.shape))
        return mixed


class Layer(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int, device: str) -> None:
        self.before = nn.LayerNorm(width, device=device)
        self.attention = Attention(width, heads, device)
        self.between = nn.LayerNorm(width, device=device)
        self.wide = nn.Linear(width, 4 * width, device=device)
        self.narrow = nn.Linear(4 * width, width, device=device)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        wide: Tensor = self.wide(self.between(x))
        narrow: Tensor = self.narrow(wide.gelu("tanh"))
        return x + narrow


def transformer_training(
    layers: int,
    batch: int = 4,
    time: int = 1024,
    width: int = 768,
    heads: int = 12,
    device: str = DEVICE,
) -> list[Tensor]:
    """What a step of Adam changes, and the output: forward, backward and updates, not computed."""
    net = settled(nn.Sequential(*[Layer(width, heads, device) for _ in range(layers)]))
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    settle(optimizer._tensors())
    x = given(batch, time, width, device=device, requires_grad=True)
    y = net(x)
    y.backward(given(batch, time, width, device=device))
    assert x.grad is not None
    changed = optimizer.updates()
    return [y, x.grad, *changed]


def mlp_training(device: str = DEVICE) -> tuple[Tensor, list[Tensor]]:
    """(the loss, what a step of RMSprop changes) of an MLP on a batch of 64 of 54,000 images."""
    net = settled(
        nn.Sequential(
            *(nn.Linear(784, 256, device=device), nn.ReLU()),
            *(nn.Linear(256, 128, device=device), nn.ReLU()),
            nn.Linear(128, 10, device=device),
        )
    )
    optimizer = optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.99)
    settle(optimizer._tensors())
    images = given(54_000, 784, device=device)
    labels = given(54_000, dtype=dtypes.i64, device=device)
    batch = given(64, dtype=dtypes.i64, device=device)
    loss = nn.cross_entropy(net(images[batch]), labels[batch])
    loss.backward()
    optim.clip_grad_value_(net.parameters(), 1.0)
    return loss, optimizer.updates()


def adam(sizes: Iterable[tuple[int, ...]], device: str = DEVICE) -> list[Tensor]:
    """What a step of Adam changes, with given gradients."""
    parameters = [given(*s, device=device, requires_grad=True) for s in sizes]
    optimizer = optim.Adam(parameters, lr=1e-3)
    settle(optimizer._tensors())
    for p in parameters:
        p.grad = given(*p.shape, device=device)
    return optimizer.updates()

"""Networks: modules, layers and losses.

net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
loss = nn.cross_entropy(net(images), labels)
loss.backward()
"""

from uopc.tensor.nn.activations import GELU, ReLU, Sigmoid, SiLU, Softplus, Tanh
from uopc.tensor.nn.layers import Dropout, Embedding, LayerNorm, Linear, RMSNorm, Sequential
from uopc.tensor.nn.losses import cross_entropy, mse_loss, nll_loss
from uopc.tensor.nn.module import Module

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Tanh",
    "cross_entropy",
    "mse_loss",
    "nll_loss",
]

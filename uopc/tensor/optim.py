"""Optimisers: each step is one schedule of elementwise updates.

Every parameter's update is the same expression over its own buffers, so any number of them become
one batched launch, or ride in the kernels that compute the gradients.  What changes from step to
step (the learning rate, the step count) is a tensor of one element that all updates share: the
kernels stay the same, and a captured step need not be captured again.

A step uses the gradients up: it takes each `grad` and leaves None.  A gradient that stayed would
hold on to the old parameters, and nothing could be updated in place.

The formulas and their defaults are PyTorch's.  Updates are computed in f32, or in f64 if one of the
parameters is f64, and so are the states; a narrower parameter is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.tensor.engine import realize
from uopc.tensor.leaves import move, zeros
from uopc.tensor.mode import no_grad
from uopc.uop.node import here

State: TypeAlias = dict[str, Tensor]


class Optimizer:
    """Base of all: the parameters, their states and the learning rate.

    parameters: tensors that require a gradient, on one device, each once.
    lr: the learning rate.  A number assigned to `lr` later goes into the same tensor.

    Derived classes name their states in `states` and write `update`.
    """

    #: names of the tensors that go with each parameter; they start as zeros
    states: tuple[str, ...] = ()

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self.parameters = _checked(parameters, type(self).__name__)
        self._wide = _widest(self.parameters)
        self._lr = Tensor(np.asarray(_rate(lr), self._wide.numpy), device=self.device)
        self.state: list[State] = [self._zeros(p) for p in self.parameters]

    @property
    def device(self) -> str:
        """Where the parameters live.  Raises UsageError where they are on two devices."""
        first = self.parameters[0].device
        for p in self.parameters:
            if p.device != first:
                raise UsageError(
                    f"{type(self).__name__} at {here()}: parameters on {first} and {p.device}. "
                    "Move them to one device."
                )
        return first

    @property
    def lr(self) -> Tensor:
        """The learning rate, a tensor of shape (); `float(optimizer.lr)` is the number."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        number = np.asarray(_rate(value), self._wide.numpy)
        self._lr._u = Tensor(number, device=self._lr.device)._u

    def zero_grad(self) -> None:
        """Forget the gradients: each parameter's `grad` is None."""
        for p in self.parameters:
            p.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient, and take that gradient.

        Parameters and states get their new values in one schedule, in place where nothing else
        holds on to the old ones.  Raises UsageError where a gradient is on another device than its
        parameter, and where no parameter has a gradient.
        """
        realize(*self.updates())

    def updates(self) -> list[Tensor]:
        """The same step, not computed yet: everything that gets a new value, to `explain` it or to
        realise it together with other tensors.  Raises as `step` does."""
        self._follow()
        changed: list[Tensor] = []
        with no_grad():
            given = self._take_gradients()
            changed.extend(self.advance())
            for p, gradient, state in given:
                changed.extend(self._apply(p, gradient, state))
        return changed

    def advance(self) -> Sequence[Tensor]:
        """What all parameters share moves on by one step.  Returns the tensors that changed."""
        return ()

    def update(self, p: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        """New value of a parameter and of its states, by name; all in one dtype.

        Raises UsageError where the class does not say.
        """
        raise UsageError(f"{type(self).__name__} has no update.")

    def _apply(self, p: Tensor, gradient: Tensor, state: State) -> Iterator[Tensor]:
        wide = self._wide
        value, new = self.update(p.detach().cast(wide), gradient.cast(wide), state)
        yield p.assign(value.cast(p.dtype))
        for name, tensor in state.items():
            yield tensor.assign(new[name])

    def _take_gradients(self) -> list[tuple[Tensor, Tensor, State]]:
        given = []
        for p, state in zip(self.parameters, self.state, strict=True):
            if p.grad is not None:
                given.append((p, p.grad, state))
        if not given:
            raise UsageError(
                f"{type(self).__name__}.step at {here()}: no parameter has a gradient. Call "
                "backward() first; a step uses the gradients up."
            )
        for p, _, _ in given:
            p.grad = None
        return given

    def _follow(self) -> None:
        """Go where the parameters went."""
        device = self.device
        for tensor in self._tensors():
            if tensor.device != device:
                move(tensor, device)

    def _tensors(self) -> Iterator[Tensor]:
        """What the optimiser itself holds."""
        yield self._lr
        for state in self.state:
            yield from state.values()

    def _zeros(self, p: Tensor) -> State:
        return {name: zeros(p.shape, self._wide, p.device) for name in self.states}


class SGD(Optimizer):
    """p - lr * g, with momentum and weight decay.

    g = grad + weight_decay * p.  With momentum: b = momentum * b + g, and g becomes b, or
    g + momentum * b with nesterov.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if nesterov and not momentum:
            raise UsageError(f"SGD at {here()}: nesterov wants a momentum, got {momentum}")
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay
        self.states = ("momentum",) if momentum else ()
        super().__init__(parameters, lr)

    def update(self, p: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        g = _decayed(p, gradient, self.weight_decay)
        if not self.momentum:
            return p - g * self._lr, {}
        b = state["momentum"] * self.momentum + g
        g = g + b * self.momentum if self.nesterov else b
        return p - g * self._lr, {"momentum": b}


class Adam(Optimizer):
    """Adam, with bias correction from a step count that is a tensor.

    m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2;
    p - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps), with g = grad + weight_decay * p.
    Source: Kingma, Ba 2015 (arXiv:1412.6980), algorithm 1.
    """

    states = ("m", "v")

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise UsageError(f"{type(self).__name__} at {here()}: betas are in [0, 1), got {betas}")
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        super().__init__(parameters, lr)
        self.steps = zeros((), dtypes.i32, self.device)

    def advance(self) -> Sequence[Tensor]:
        self.steps.assign(self.steps + 1)
        t = self.steps.cast(self._wide)
        self._corrections = tuple(_one_minus_power(beta, t) for beta in self.betas)
        return (self.steps,)

    def update(self, p: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        p, g = self._decay(p, gradient)
        (beta1, beta2), (correct1, correct2) = self.betas, self._corrections
        m = state["m"] * beta1 + g * (1.0 - beta1)
        v = state["v"] * beta2 + g * g * (1.0 - beta2)
        scale = (v / correct2).sqrt() + self.eps
        return p - m / scale * (self._lr / correct1), {"m": m, "v": v}

    def _decay(self, p: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The parameter and the gradient that weight decay makes of them."""
        return p, _decayed(p, gradient, self.weight_decay)

    def _tensors(self) -> Iterator[Tensor]:
        yield from super()._tensors()
        yield self.steps


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself: p (1 - lr * weight_decay) first.

    Source: Loshchilov, Hutter 2019 (arXiv:1711.05101), algorithm 2.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _decay(self, p: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        if not self.weight_decay:
            return p, gradient
        return p - p * (self._lr * self.weight_decay), gradient


class RMSprop(Optimizer):
    """The gradient over the root of its running mean square.

    s = alpha * s + (1 - alpha) * g^2; p - lr * g / (sqrt(s) + eps), with g = grad +
    weight_decay * p.  centered: s less the square of the running mean of g.  With momentum:
    b = momentum * b + g / (sqrt(s) + eps), and p - lr * b.
    Source: Tieleman, Hinton 2012, Coursera, Neural Networks for Machine Learning, lecture 6e.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        self.alpha, self.eps, self.weight_decay = alpha, eps, weight_decay
        self.momentum, self.centered = momentum, centered
        self.states = (
            "square",
            *(("mean",) if centered else ()),
            *(("momentum",) if momentum else ()),
        )
        super().__init__(parameters, lr)

    def update(self, p: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        g = _decayed(p, gradient, self.weight_decay)
        square = state["square"] * self.alpha + g * g * (1.0 - self.alpha)
        new = {"square": square}
        if self.centered:
            new["mean"] = state["mean"] * self.alpha + g * (1.0 - self.alpha)
            square = square - new["mean"] * new["mean"]
        change = g / (square.sqrt() + self.eps)
        if self.momentum:
            change = new["momentum"] = state["momentum"] * self.momentum + change
        return p - change * self._lr, new


# ---- clipping
def clip_grad_value_(parameters: Iterable[Tensor], clip_value: float) -> None:
    """Replace each gradient by itself within -clip_value to clip_value; NaN stays NaN."""
    bound = float(clip_value)
    _replace(parameters, lambda g: g.clamp(-bound, bound))


def clip_grad_norm_(
    parameters: Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scale all gradients by one factor, so that the norm of all together is at most max_norm.

    norm_type: 2, any p > 0, or infinity.  The factor is min(1, max_norm / (norm + 1e-6)).  Returns
    the norm before, shape (), not computed yet; 0 where there is no gradient.
    """
    parameters = list(parameters)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not norm_type > 0:
        raise UsageError(f"clip_grad_norm_ at {here()}: norm_type is positive, got {norm_type}")
    if not gradients:
        device = parameters[0].device if parameters else None
        return Tensor(0.0, device=device)
    with no_grad():
        norm = _norm([g.detach() for g in gradients], float(norm_type))
        factor = (max_norm / (norm + 1e-6)).clamp(None, 1.0)
    _replace(parameters, lambda g: (g * factor).cast(g.dtype))
    return norm


def _norm(gradients: Sequence[Tensor], p: float) -> Tensor:
    """The p-norm of all elements of all tensors, in the widest of their dtypes, at least f32."""
    wide = _widest(gradients)
    parts = [g.cast(wide).abs() for g in gradients]
    if math.isinf(p):
        return _folded([part.max() for part in parts], Tensor.maximum)
    if p == 2.0:
        return _folded([(part * part).sum() for part in parts], Tensor.__add__).sqrt()
    return _folded([(part**p).sum() for part in parts], Tensor.__add__) ** (1.0 / p)


def _folded(parts: Sequence[Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = join(total, part)
    return total


def _replace(parameters: Iterable[Tensor], change: Callable[[Tensor], Tensor]) -> None:
    with no_grad():
        for p in parameters:
            if p.grad is not None:
                p.grad = change(p.grad.detach())


# ---- parts
def _one_minus_power(beta: float, t: Tensor) -> Tensor:
    """1 - beta^t for t >= 1, as 2 h / (1 + h) with h = tanh(-t ln(beta) / 2).

    No difference of near numbers: the relative error is that of tanh plus at most 4 roundings,
    below 1e-6 in f32 also where beta^t is close to 1.
    """
    if beta == 0.0:
        return t * 0.0 + 1.0
    half = (t * (-0.5 * math.log(beta))).tanh()
    return half * 2.0 / (half + 1.0)


def _decayed(p: Tensor, gradient: Tensor, weight_decay: float) -> Tensor:
    return gradient + p * weight_decay if weight_decay else gradient


def _widest(tensors: Sequence[Tensor]) -> DType:
    """What they are computed in: f64 where one of them is, else f32."""
    return dtypes.f64 if any(t.dtype is dtypes.f64 for t in tensors) else dtypes.f32


def _rate(lr: float) -> float:
    if not float(lr) >= 0.0:
        raise UsageError(f"a learning rate at {here()} is a number from 0, got {lr}")
    return float(lr)


def _checked(parameters: Iterable[Tensor], what: str) -> list[Tensor]:
    """The parameters as a list.  Raises UsageError where one cannot be trained or comes twice."""
    found = list(parameters)
    if not found:
        raise UsageError(f"{what} at {here()}: no parameters to train")
    for n, p in enumerate(found):
        if not isinstance(p, Tensor) or not p.requires_grad:
            raise UsageError(
                f"{what} at {here()}: parameter {n} is no tensor that requires a gradient"
            )
    if len({id(p) for p in found}) != len(found):
        raise UsageError(f"{what} at {here()}: a parameter comes twice")
    return found

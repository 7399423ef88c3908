"""Losses: one number of a batch of predictions and what was right.

The wrong class costs minus the logarithm of what the right one was given.  That value is picked by
a gather, whose gradient is a comparison with an iota, so forward and backward stay one row kernel.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from uopc.errors import UsageError
from uopc.tensor.core import Tensor
from uopc.tensor.elementwise import where
from uopc.uop.node import here

Reduction: TypeAlias = Literal["mean", "sum", "none"]


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the log-softmax of the right class.

    Parameters
    ----------
    logits: float (N, C), or (C,) for one, or (N, C, d1, ...).
    targets: integer (N,), (), or (N, d1, ...): the right class, 0 to C - 1.
    reduction: "mean" over the targets that count, "sum", or "none": one loss for each target.
    ignore_index: targets of this value cost nothing and do not count; None: all count.
    label_smoothing: this share of each target is spread evenly over all classes.

    Returns a tensor of the logits' dtype, () or of the targets' shape.
    Raises UsageError where shapes or dtypes do not fit; IndexError, when a result is read, for a
    class that does not exist.
    Source: the formula of label smoothing is that of Szegedy et al. 2016 (arXiv:1512.00567), 7.
    """
    axis = _class_axis(logits, targets, "cross_entropy")
    if not 0.0 <= label_smoothing <= 1.0:
        raise UsageError(
            f"cross_entropy at {here()}: label_smoothing is a share from 0 to 1, "
            f"got {label_smoothing}"
        )
    log_p = logits.log_softmax(axis)
    losses, counts = _picked(log_p, targets, axis, ignore_index)
    if label_smoothing:
        even = -log_p.mean(axis)
        if counts is not None:
            even = where(counts, even, 0.0)
        losses = losses * (1.0 - label_smoothing) + even * label_smoothing
    return _reduced(losses, counts, reduction, "cross_entropy")


def nll_loss(
    log_p: Tensor,
    targets: Tensor,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
) -> Tensor:
    """Minus the log-probability of the right class: `cross_entropy` after its log-softmax.

    Shapes, results and errors are those of `cross_entropy`; log_p stands for the logits.
    """
    axis = _class_axis(log_p, targets, "nll_loss")
    losses, counts = _picked(log_p, targets, axis, ignore_index)
    return _reduced(losses, counts, reduction, "nll_loss")


def mse_loss(predicted: Tensor, wanted: Tensor, reduction: Reduction = "mean") -> Tensor:
    """The squared difference.

    Both of one shape (none is repeated: a forgotten axis would give a plausible number).  Returns
    () or, for reduction "none", their shape.  Raises UsageError where shapes differ.
    """
    if predicted.shape != wanted.shape:
        raise UsageError(
            f"mse_loss at {here()}: shapes differ: {predicted.shape} and {wanted.shape}"
        )
    difference = predicted - wanted
    return _reduced(difference * difference, None, reduction, "mse_loss")


def _class_axis(scores: Tensor, targets: Tensor, what: str) -> int:
    """The axis of the classes.  Raises UsageError where the two do not fit."""
    if not scores.dtype.is_float:
        raise UsageError(f"{what} at {here()}: scores are floats, got {scores.dtype}")
    if not targets.dtype.is_int:
        raise UsageError(
            f"{what} at {here()}: targets are indices of classes, integers, got {targets.dtype}"
        )
    axis = 1 if scores.ndim > 1 else 0
    if scores.ndim == 0 or targets.shape != (*scores.shape[:axis], *scores.shape[axis + 1 :]):
        raise UsageError(
            f"{what} at {here()}: scores (N, C, ...) go with targets (N, ...), "
            f"got {scores.shape} and {targets.shape}"
        )
    return axis


def _picked(
    log_p: Tensor, targets: Tensor, axis: int, ignore_index: int | None
) -> tuple[Tensor, Tensor | None]:
    """Minus the picked log-probability, and which targets count (None: all)."""
    counts = None if ignore_index is None else targets != ignore_index
    classes = targets if counts is None else where(counts, targets, 0)
    picked = -log_p.gather(axis, classes.unsqueeze(axis)).squeeze(axis)
    return (picked if counts is None else where(counts, picked, 0.0)), counts


def _reduced(losses: Tensor, counts: Tensor | None, reduction: str, what: str) -> Tensor:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction != "mean":
        raise UsageError(
            f"{what} at {here()}: reduction is 'mean', 'sum' or 'none', got {reduction!r}"
        )
    if counts is None:
        return losses.mean()
    return losses.sum() / counts.cast(losses.dtype).sum()

"""Random numbers: the n-th one is a function of the seed and n, so one seed gives the same bits on
every device, however the work is cut.

Threefry-2x32 with 20 rounds turns a key and a counter, 64 bits each, into 64 bits.  A draw of n
elements takes the counters c, ..., c + n - 1.  c is data, not a constant: it stands in a memory of
one element on each device, of which a draw makes the next version.  So a kernel serves every draw
of its shape, and a step that is captured draws new numbers each time it is replayed.

Logarithm, sine and cosine of `randn` are those of exact_math, for the same reason.  A shuffle needs
a sort, which tensors do not have: there is no randperm.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Threefry); Box and
Muller, "A note on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from uopc.dtype import DType, dtypes
from uopc.errors import UsageError
from uopc.passes.exact_math import F32, F64, FUNCTIONS, Format
from uopc.runtime.buffer import Buffer
from uopc.tensor import storage
from uopc.tensor.base import Base, fresh, memory_of, naming, shape_of, wrap
from uopc.tensor.core import Tensor
from uopc.tensor.promote import DEFAULT_FLOAT, Number, number_of, scalar
from uopc.uop.node import Shape, UOp, here, prod
from uopc.uop.ops import Ops

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_seed = 0
_states: dict[str, Tensor] = {}
_keys: dict[str, Tensor] = {}
_drawing = threading.Lock()


# ---- seed and counters
def manual_seed(seed: int) -> None:
    """Start again from this seed, 0 to 2^64 - 1, on every device.  Without it the seed is 0.

    What was drawn before keeps its values, also where it is not computed yet.
    Raises UsageError for another seed.
    """
    global _seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise UsageError(f"manual_seed at {here()}: an integer from 0 to 2^64 - 1, got {seed!r}")
    _seed = seed
    for device, counter in _states.items():
        counter._u = _word(device, 0)
        _keys[device]._u = _word(device, seed)


def state(device: str | None = None) -> Tensor:
    """The counter of a device: u64, shape (1,).  Each draw gives it a new version.

    To save and restore it, read it, and `assign` what was read.
    """
    place = storage.device_named(device)
    with _drawing:
        if place not in _states:
            _keys[place] = fresh(Tensor, _word(place, _seed), place)
            _states[place] = fresh(Tensor, _word(place, 0), place)
            storage.companions.setdefault(place, []).append(_states[place])
        return _states[place]


def key(device: str | None = None) -> Tensor:
    """The seed as it stands on a device: u64, shape (1,)."""
    place = storage.device_named(device)
    state(place)
    return _keys[place]


def _word(device: str, value: int) -> UOp:
    """A memory of one u64."""
    u = storage.new_buffer(device, dtypes.u64, (1,))
    storage.put(u, Buffer.from_numpy(device, np.array([value], np.uint64)))
    return u


# ---- bits
def threefry(key: UOp, counter: UOp) -> tuple[UOp, UOp]:
    """Two u32 of random bits from two u64 of one shape (or ())."""
    keys = [key.cast(dtypes.u32), (key >> 32).cast(dtypes.u32)]
    keys.append(keys[0] ^ keys[1] ^ _PARITY)
    a = counter.cast(dtypes.u32) + keys[0]
    b = (counter >> 32).cast(dtypes.u32) + keys[1]
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            a = a + b
            b = ((b << by) | (b >> (32 - by))) ^ a
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + (group + 1)
    return a, b


def _counters(shape: Shape, device: str) -> tuple[UOp, UOp]:
    """(key, one counter an element of shape); the device's counter goes on behind them."""
    counter = state(device)
    count = prod(shape)
    with naming:  # no two draws of the same numbers
        old = counter._u
        held = memory_of(old)
        assert held is not None
        counter._u = held.assign(old + UOp.const(count, dtypes.u64))
    first = old.reshape(())
    i = UOp.arange(count, dtypes.i32 if count < 2**31 else dtypes.i64).cast(dtypes.u64)
    return key(device)._u.reshape(()), first + i.reshape(shape)


def _words(shape: Shape, device: str) -> tuple[UOp, UOp]:
    return threefry(*_counters(shape, device))


def _joined(high: UOp, low: UOp) -> UOp:
    return (high.cast(dtypes.u64) << 32) | low.cast(dtypes.u64)


#: bits behind the point of uniform numbers: as many as every number below 1 of the dtype has
_BITS = {dtypes.f16: 11, dtypes.bf16: 8, dtypes.f32: 24, dtypes.f64: 53}


def _float(dtype: DType | None, what: str) -> DType:
    dtype = dtype or DEFAULT_FLOAT
    if dtype not in _BITS:
        raise UsageError(f"{what} at {here()}: f16, bf16, f32 or f64, got {dtype}")
    return dtype


def _made(u: UOp, device: str, requires_grad: bool) -> Tensor:
    t = fresh(Tensor, u, device)
    return t.requires_grad_() if requires_grad else t


P = ParamSpec("P")


def _whole(draw: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A draw that nothing is computed during: until its tensor is there, nobody could tell that the
    counter's version which it names is still wanted."""

    @functools.wraps(draw)
    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        with storage.turn:
            return draw(*args, **kwargs)

    return run


# ---- uniform
@_whole
def rand(
    *shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform in 0 <= x < 1: multiples of 2^-24 (f32), 2^-53 (f64), 2^-11 (f16), 2^-8 (bf16).

    rand(2, 3) or rand((2, 3)); f32 unless dtype says otherwise.
    """
    wanted, place = _float(dtype, "rand"), storage.device_named(device)
    return _made(_uniform(shape_of(shape, "rand"), wanted, place), place, requires_grad)


def _uniform(shape: Shape, dtype: DType, device: str) -> UOp:
    a, b = _words(shape, device)
    bits = _BITS[dtype]
    word = _joined(a, b) if bits > 32 else a
    return (word >> (word.dtype.bits - bits)).cast(dtype) * 2.0**-bits


@_whole
def uniform(
    *shape: Any,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """low + (high - low) * rand: rounding may give high itself."""
    wanted, place = _float(dtype, "uniform"), storage.device_named(device)
    u = _uniform(shape_of(shape, "uniform"), wanted, place)
    start = scalar(number_of(low, "uniform"), wanted, "uniform")
    span = scalar(number_of(high, "uniform") - number_of(low, "uniform"), wanted, "uniform")
    return _made(u * span + start, place, requires_grad)


@_whole
def randint(
    low: int,
    high: int,
    shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Integers low <= n < high, each as likely as the others within 2^-32; i32 unless one of them
    or dtype says otherwise.

    Raises UsageError where there is none, or dtype cannot hold them.
    """
    if not low < high or high - low > 2**64:
        raise UsageError(f"randint at {here()}: no integers from {low} up to, not with, {high}")
    fits = next(
        (d for d in (dtypes.i32, dtypes.i64, dtypes.u64) if d.min <= low and high - 1 <= d.max),
        dtypes.u64,
    )
    wanted, place = dtype or fits, storage.device_named(device)
    if not wanted.is_data_int:
        raise UsageError(f"randint at {here()}: the dtype is an integer's, got {wanted}")
    for end in (low, high - 1):
        scalar(end, wanted, "randint")
    span = high - low
    a, b = _words(shape_of((shape,), "randint"), place)
    if span <= 2**32:  # the high word of 64 random bits times span
        n = a.cast(dtypes.u64) * span + ((b.cast(dtypes.u64) * span) >> 32) >> 32
    else:
        n = _joined(a, b) if span == 2**64 else _joined(a, b) % span
    u = (n + UOp.const(dtypes.u64.wrap(low), dtypes.u64)).cast(wanted)
    return _made(u, place, False)


@_whole
def bernoulli(p: Base | Number, shape: Any = None, device: str | None = None) -> Tensor:
    """Bools, each true with probability p.

    p: a number, or a float Tensor with one for each element (or that broadcasts to shape); its
    device is that of the result.  shape: may be left out where p is a Tensor.
    """
    if isinstance(p, Base):
        sizes = p.shape if shape is None else shape_of((shape,), "bernoulli")
        chance = p._u.cast(dtypes.f32)
        drawn = _uniform(sizes, dtypes.f32, p.device)
        return fresh(Tensor, drawn < chance.expand(sizes), p.device)
    if shape is None:
        raise UsageError(f"bernoulli at {here()}: of which shape? Pass shape=")
    place = storage.device_named(device)
    drawn = _uniform(shape_of((shape,), "bernoulli"), dtypes.f32, place)
    return fresh(Tensor, drawn < scalar(number_of(p, "bernoulli"), dtypes.f32, "bernoulli"), place)


# ---- normal
@_whole
def randn(
    *shape: Any,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normally distributed, mean 0 and variance 1; at most 6.7 in size (f32; 8.6 in f64).

    randn(2, 3) or randn((2, 3)); f32 unless dtype says otherwise.
    """
    wanted, place = _float(dtype, "randn"), storage.device_named(device)
    return _made(_normal(shape_of(shape, "randn"), wanted, place), place, requires_grad)


@_whole
def normal(
    *shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """mean + std * randn."""
    wanted, place = _float(dtype, "normal"), storage.device_named(device)
    u = _normal(shape_of(shape, "normal"), wanted, place)
    factor = scalar(number_of(std, "normal"), wanted, "normal")
    return _made(
        u * factor + scalar(number_of(mean, "normal"), wanted, "normal"), place, requires_grad
    )


def _normal(shape: Shape, dtype: DType, device: str) -> UOp:
    """sqrt(-2 ln u) cos(2 pi v) with u and v uniform (Box-Muller)."""
    key_word, counter = _counters(shape, device)
    a, b = threefry(key_word, counter)
    of = F32
    if dtype is dtypes.f64:
        of = F64
        more = threefry(key_word, counter ^ (1 << 63))
        a, b = _joined(a, b), _joined(*more)
    u = (a.cast(of.dtype) + 0.5) * 2.0**-of.word.bits
    radius = (FUNCTIONS[Ops.LOG](u, of) * -2.0).sqrt()
    return (radius * _cosine_of_turns(b, of)).cast(dtype)


def _cosine_of_turns(word: UOp, of: Format) -> UOp:
    """cos of a full turn times word / 2^bits: from the nearest quarter, by an eighth at most."""
    bits = of.word.bits
    quarter = (word + (1 << bits - 3)) >> (bits - 2)
    rest = (word - (quarter << (bits - 2))).bitcast(of.signed).cast(of.dtype)
    x = rest * (2 * math.pi * 2.0**-bits)
    z = x * x
    cosine = (z * z).fma(_polynomial(z, of.cos), 1.0 - z * 0.5)
    sine = (z * x).fma(_polynomial(z, of.sin), x)
    value = (quarter & 1).ne(0).where(sine, cosine)
    return (((quarter + 1) & 2).ne(0)).where(-value, value)


def _polynomial(z: UOp, coefficients: tuple[float, ...]) -> UOp:
    total = UOp.const(coefficients[-1], z.dtype)
    for c in reversed(coefficients[:-1]):
        total = total.fma(z, c)
    return total


@_whole
def dropout(x: Tensor, p: float = 0.5) -> Tensor:
    """x / (1 - p) with probability 1 - p, else 0: the mean stays.

    Raises UsageError for p outside 0 <= p <= 1.
    """
    if not 0 <= p <= 1:
        raise UsageError(f"dropout at {here()}: p is a probability, got {p!r}")
    if p in (0, 1):
        return wrap(x._u if p == 0 else UOp.const(0, x.dtype, x.shape), x)
    kept = _uniform(x.shape, dtypes.f32, x.device) >= p
    return wrap(kept.where(x._u * (1 / (1 - p)), UOp.const(0, x.dtype)), x)

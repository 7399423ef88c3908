"""Arrays of more than 2^31 elements: offsets, guards and loop bounds are as wide as they must be.

Nothing large is allocated.  The rendered text runs for its last few iterations alone, on pointers
that are moved so that only those lie in memory: a 32-bit offset would miss it by gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from tests.kernels import outputs, param
from uopc.config import Config
from uopc.dtype import dtypes
from uopc.kernel import Source
from uopc.opts import Opts
from uopc.pipeline import Ctx, emulate, gpu_lower, lower_body, render_cuda
from uopc.render_c import render_c
from uopc.runtime import cpu
from uopc.uop.node import UOp, prod
from uopc.uop.numbers import Array
from uopc.uop.ops import Ops

pytestmark = pytest.mark.usefixtures("unchecked")

GUARD = 64  # elements of the small arrays that nothing may touch, on both sides
LOOP = re.compile(r"for \((int|long long) (\w+) = 0; \2 < (\d+); ")


def last(text: str, counts: Mapping[str, int]) -> str:
    """The text whose loops of these names do their last iterations alone."""

    def begin(m: re.Match[str]) -> str:
        if m[2] not in counts:
            return m[0]
        return f"for ({m[1]} {m[2]} = {int(m[3]) - counts[m[2]]}; {m[2]} < {m[3]}; "

    return LOOP.sub(begin, text)


def run_end(source: Source, counts: Mapping[str, int], ends: Mapping[int, Array]) -> None:
    """Run the last iterations; ends[slot] holds the last elements of that array between guards."""
    addresses = []
    for p in source.params:
        end = ends[p.slot]
        held = end.size - 2 * GUARD
        first = end.ctypes.data + GUARD * end.itemsize
        addresses.append(first - (p.size - held) * end.itemsize)
    kernel = cpu.load(last(source, counts), source.name, source.language, Config(cache_mb=0))
    kernel(addresses)


def end_of(values: Array) -> Array:
    """A small array with guards around it."""
    return np.pad(values, GUARD)


def inside(end: Array) -> Array:
    return end[GUARD:-GUARD]


def gpu(body: UOp, opts: Opts) -> tuple[Source, str]:
    """(the emulation, the CUDA text)."""
    root = gpu_lower(body, outputs([body])[0], opts)
    return emulate(root, "k"), render_cuda(root, "k")


def native(body: UOp, opts: Opts) -> Source:
    return render_c(lower_body(body, outputs([body])[0], Ctx(opts)), "k")


HALVES = 3_270_000_000
FILL = UOp.const(1.0, dtypes.f16).expand((HALVES,))


def test_a_fill_of_many_halves() -> None:
    for source, counts in (
        (gpu(FILL, Opts(gpu=True, local={0: 256}))[0], {"gidx0": 1}),
        (gpu(FILL, Opts(gpu=True, loop={0: 3}, local={0: 32}, vector={0: 8}))[0], {"gidx0": 1}),
        (native(FILL, Opts()), {"k0": 50}),
        (native(FILL, Opts(vector={0: 16})), {"k0": 3}),
    ):
        out = end_of(np.zeros(1000, np.float16))
        run_end(source, counts, {10: out})
        written = np.flatnonzero(out)
        assert written.size and written[-1] == GUARD + 999
        assert (np.diff(written) == 1).all()


def test_the_cuda_text_has_the_same_offsets() -> None:
    text = gpu(FILL, Opts(gpu=True, local={0: 256}))[1]
    assert "const long long at0 = (long long)gidx0 * 256 + lidx0;" in text
    assert "if (at0 < 3270000000ll) p10[at0]" in text


BYTES = 5_000_000_000


@pytest.mark.parametrize(
    "opts",
    [Opts(gpu=True, upcast={0: 7}), Opts(gpu=True, tile={0: 3}, vector={0: 16}), Opts(gpu=True)],
)
def test_a_sum_over_five_billion_bytes(opts: Opts) -> None:
    """The mask of the ragged end is as wide as the offsets."""
    body = param(0, BYTES, dtype=dtypes.u8).cast(dtypes.u64).reduce(Ops.ADD, 1)
    source, text = gpu(body, opts)
    step = prod(dict(x).get(0, 1) for x in (opts.upcast, opts.tile, opts.vector))
    rest = BYTES % step or step
    x, out = end_of(np.full(rest, 3, np.uint8)), end_of(np.zeros(1, np.uint64))
    x[:GUARD] = x[-GUARD:] = 100
    run_end(source, {"k0": 1}, {0: x, 10: out})
    assert inside(out) == [3 * rest]
    assert "long long" in text
    if step > 1:
        assert "5000000000ll" in text


def test_axes_whose_product_is_just_beyond() -> None:
    """[B, T, H, K] read in another order: 2,160,000,000 elements."""
    shape = (2, 40000, 9, 3000)
    body = param(0, *shape).permute((0, 2, 1, 3)) * 2.0
    for source in (
        gpu(body, Opts(gpu=True, local={3: 256}))[0],
        gpu(body, Opts(gpu=True, local={3: 32}, vector={3: 4}, lanes=(3,)))[0],
        native(body, Opts()),
    ):
        assert source.params[0].size == prod(shape) > 2**31
        x, out = end_of(np.arange(3000, dtype=np.float32)), end_of(np.zeros(3000, np.float32))
        ends = {f"{digit}{axis}": 1 for digit in ("gidx", "k") for axis in range(3)}
        run_end(source, ends, {0: x, 10: out})
        assert (inside(out) == 2 * inside(x)).all()
        assert not out[:GUARD].any() and not out[-GUARD:].any()


def test_a_constant_beyond_32_bits() -> None:
    start = 65536 * 65536
    body = param(0, start + 10).shrink(((start, start + 10),))
    source, text = gpu(body, Opts(gpu=True, local={0: 16}))
    assert "4294967296ll" in text
    x, out = end_of(np.arange(10, dtype=np.float32) + 1), end_of(np.zeros(10, np.float32))
    run_end(source, {}, {0: x, 10: out})
    assert (inside(out) == inside(x)).all()


def test_positions_beyond_32_bits_are_i64() -> None:
    """The index that argmax gives, and its guard."""
    body = param(0, 3_000_000_000, dtype=dtypes.i8).argmax(1)
    assert body.dtype is dtypes.i64
    source, _ = gpu(body, Opts(gpu=True, upcast={0: 8}))
    x, out = end_of(np.array([1, 1, 5, 1, 5, 1, 1, 1], np.int8)), end_of(np.zeros(1, np.int64))
    run_end(source, {"k0": 1}, {0: x, 10: out})
    assert inside(out) == [3_000_000_000 - 6]


def test_small_arrays_stay_at_32_bits() -> None:
    _, text = gpu(param(0, 2**31 - 1).cast(dtypes.f16), Opts(gpu=True, local={0: 1}))
    assert "long long" not in text


def test_one_beyond_them_does_not() -> None:
    _, text = gpu(param(0, 2**31 + 1) * 2.0, Opts(gpu=True, local={0: 256}))
    assert "long long" in text


def test_a_guard_that_overshoots_is_as_wide_as_its_offset() -> None:
    """2^31 - 1 elements, but lanes that go beyond: the compare itself needs 64 bits."""
    _, text = gpu(param(0, 2**31 - 1) * 2.0, Opts(gpu=True, local={0: 768}))
    assert "const long long at0 = (long long)(gidx0 * 768) + lidx0;" in text

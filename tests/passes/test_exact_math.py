"""exp, log, sin and their kin by arithmetic: how right they are, and that all bits are the same."""

from __future__ import annotations

import math
import re
import runpy
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import uopc
from tests.helpers import assert_same, special
from tests.kernels import OUT, around, outputs, param, softmax
from tests.suite import gelu
from uopc.dtype import FLOATS, DType, dtypes
from uopc.kernel import Numerics
from uopc.opts import Opts
from uopc.passes import exact_math as module
from uopc.passes.exact_math import F32, F64, FUNCTIONS, Format, exact_math
from uopc.pipeline import Ctx, Kernel, emulate, gpu_lower, lower_body
from uopc.runtime.program import Program
from uopc.tensor.curves import ATAN, GELU
from uopc.uop.node import UOp, alu, toposort
from uopc.uop.numbers import Array, elementwise
from uopc.uop.ops import ELEMENTWISE, TRANSCENDENTAL, Ops
from uopc.uop.oracle import run
from uopc.uop.spec import Stage, check
from uopc.uop.text import show

EXACT = Numerics(exact_math=True)
GPU = Opts(gpu=True, local={0: 8})
FLAT = Opts(gpu=True, local={0: 256})
OPS = tuple(FUNCTIONS)
ANGLES = (Ops.SIN, Ops.COS, Ops.TAN)
ODD = (Ops.SIN, Ops.TAN, Ops.TANH, Ops.ERF)
INF, NAN = math.inf, math.nan

#: the largest errors in ulps: of f32 over all 2^32 numbers, of f64 over 20 million random ones
F32_ULPS = {
    **{Ops.EXP2: 0.99, Ops.EXP: 0.99, Ops.LOG2: 0.83, Ops.LOG: 0.73, Ops.SIN: 0.81},
    **{Ops.COS: 0.81, Ops.TAN: 1.05, Ops.TANH: 0.78, Ops.ERF: 1.0},
}
F64_ULPS = {
    **{Ops.EXP2: 0.99, Ops.EXP: 0.99, Ops.LOG2: 0.81, Ops.LOG: 0.73, Ops.SIN: 0.81},
    **{Ops.COS: 0.81, Ops.TAN: 1.0, Ops.TANH: 1.1, Ops.ERF: 1.05},
}


# ---- the graph
CASES: dict[str, UOp] = {
    "exp2": param(0, 8).exp2(),
    "exp": param(0, 8).exp(),
    "log2": param(0, 8).log2(),
    "sin": param(0, 8).sin(),
    "tanh": param(0, 8).tanh(),
    "erf": param(0, 8).erf(),
    "exp-of-f16": param(0, 8, dtype=dtypes.f16).exp(),
    "log-of-f64": param(0, 8, dtype=dtypes.f64).log(),
}


@pytest.mark.parametrize("name", CASES)
def test_the_graph(name: str, golden: Callable[[str, str], None]) -> None:
    before, after = around("exact_math", GPU, CASES[name], numerics=EXACT)
    check(before, Stage.LOOPS, True)
    check(after, Stage.LOOPS, True)
    golden(f"exact_math/{name}.txt", show(after))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", OPS, ids=str)
def test_what_is_left_is_exact_on_every_device(op: Ops, dtype: DType) -> None:
    before, after = around("exact_math", GPU, alu(op, param(0, 8, dtype=dtype)), numerics=EXACT)
    used = {u.op for u in toposort(after)} & ELEMENTWISE
    assert not used & TRANSCENDENTAL
    assert used <= ELEMENTWISE - TRANSCENDENTAL - {Ops.IDIV, Ops.MOD}
    new = {u for u in toposort(after) if u.op is not Ops.CONST} - set(toposort(before))
    assert len(new) <= (180 if dtype is dtypes.f64 else 110)
    assert module.__doc__ is not None and "SQRT" in module.__doc__


def test_square_roots_and_quotients_stay_as_they_are() -> None:
    x = param(0, 8)
    before, after = around("exact_math", GPU, x.sqrt() / (x + 2.0) + x.recip(), numerics=EXACT)
    assert after is before and exact_math(after) is after


def test_equal_functions_are_one_and_angles_are_reduced_once() -> None:
    def size(*bodies: UOp) -> int:
        return len(toposort(around("exact_math", GPU, *bodies, numerics=EXACT)[1]))

    x = param(0, 8)
    assert size(x.sin() * x.sin()) < size(x.sin()) + 4
    assert size(x.sin(), x.cos(), x.tan()) < 1.5 * size(x.tan())


def test_the_value_keeps_the_user_s_line() -> None:
    body = param(0, 8).exp()
    _, after = around("exact_math", GPU, body, numerics=EXACT)
    (store,) = [u for u in toposort(after) if u.op is Ops.STORE]
    assert store.src[1].origins == body.origins != ()


# ---- the numbers in the pass
@cache
def script() -> SimpleNamespace:
    """What scratch/12_coefficients.py defines."""
    path = Path(__file__).parents[2] / "scratch" / "12_coefficients.py"
    return SimpleNamespace(**runpy.run_path(str(path)))


def test_the_numbers_are_those_that_the_script_computes() -> None:
    lines = script().report().splitlines()
    tables = {}
    for head, row in pairwise(lines):
        if found := re.match(r"(\w+) .*, (f32|f64): error", head):
            tables[found[1], found[2]] = tuple(float(c) for c in row.split(","))
        elif found := re.match(r"(.+), (f32|f64): (.+)", head):
            tables[found[1], found[2]] = tuple(float(c) for c in found[3].split(","))
    for of in (F32, F64):
        have = {
            **{"EXP": of.exp, "LOG": of.log, "SIN": of.sin, "COS": of.cos},
            **{"ERF": of.erf, "ERFC": of.log_erfc, "ln 2": of.ln2, "1 / ln 2": of.per_ln2},
            **{"pi / 2": of.half_pi, "ATAN": ATAN[of.dtype]},
        }
        assert have == {name: tables[name, of.dtype.name] for name in have}
    assert tables["GELU", "f32"] == GELU
    assert lines[-1] == f"2 / pi * 2^{module.TWO_OVER_PI_BITS} = {module.TWO_OVER_PI:#x}"


@pytest.mark.parametrize("of", [F32, F64], ids=["f32", "f64"])
def test_ln2_times_an_exponent_is_exact(of: Format) -> None:
    for k in (1, 3, of.bias, of.bias + of.mantissa, 2 * of.bias + 1):
        product = Decimal(of.ln2[0]) * k
        assert of.dtype.numpy.type(float(product)) == product


# ---- how right they are
def as_lanes(op: Ops, values: Array) -> Array:
    """The graph of a function run by the oracle, every value a thread."""
    dtype = uopc.dtype.from_numpy(values.dtype)
    _, after = around("legalise", FLAT, alu(op, param(0, values.size, dtype=dtype)), numerics=EXACT)
    with np.errstate(all="ignore"):
        got: Array = run(after, {0: values}, Stage.LOOPS)[OUT]
    return got


def ulps(got: Array, true: Array, mantissa: int, lowest: int) -> Array:
    """|got - true| in units of the last place of true, whose dtype is wider."""
    _, exponent = np.frexp(np.abs(true))
    unit = np.ldexp(1.0, np.maximum(exponent - 1 - mantissa, lowest))
    return np.asarray(np.abs(got.astype(true.dtype) - true) / unit)


def widened(x: Array) -> Array:
    """In f64; numpy warns of signalling NaN."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def assert_ends(got: Array, want: Array) -> Array:
    """Where got or want is infinite or NaN both are; where not."""
    ends = ~(np.isfinite(got) & np.isfinite(want))
    assert_same(got[ends], want[ends])
    zero = (got == 0) & (want == 0)
    assert_same(got[zero], want[zero])
    return np.asarray(~ends)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_f32_of_every_exponent(op: Ops) -> None:
    x = np.arange(0, 1 << 32, 32749, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate((x, np.linspace(-20, 20, 300_001, dtype=np.float32)))
    true = elementwise(op, dtypes.f64, [widened(x)])
    got = as_lanes(op, x)
    with np.errstate(over="ignore"):
        inside = assert_ends(got, true.astype(np.float32))
    assert np.max(ulps(got[inside], true[inside], 23, -149)) <= F32_ULPS[op]


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16], ids=str)
@pytest.mark.parametrize("op", OPS, ids=str)
def test_every_number_of_16_bits(op: Ops, dtype: DType) -> None:
    """Rounded to nearest but for values that f32 puts on the other side of a tie."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    true = elementwise(op, dtypes.f64, [widened(x)])
    got = as_lanes(op, x)
    with np.errstate(over="ignore"):
        inside = assert_ends(got, true.astype(dtype.numpy))
    mantissa, lowest = (10, -24) if dtype is dtypes.f16 else (7, -133)
    assert np.max(ulps(got[inside].astype(np.float64), true[inside], mantissa, lowest)) <= 0.5001


def arguments(op: Ops, rng: np.random.Generator, count: int) -> Array:
    """f64 arguments of the exponents that matter, and over the range where a function bends."""
    spans = {Ops.EXP2: (-1076, 1024), Ops.EXP: (-746, 710), Ops.TANH: (-20, 20), Ops.ERF: (-6, 6)}
    low, high = spans.get(op, (-30, 30))
    most = 1000 if op in (*ANGLES, Ops.LOG, Ops.LOG2) else 9
    by_exponent = np.ldexp(rng.uniform(0.5, 1, count), rng.integers(-50, most, count))
    by_exponent *= rng.choice((-1, 1), count)
    near_one = 1 + np.ldexp(rng.uniform(-1, 1, count), -rng.integers(1, 52, count))
    x = np.concatenate((by_exponent, rng.uniform(low, high, count), near_one))
    return np.abs(x) if op in (Ops.LOG, Ops.LOG2) else x


def true_value(op: Ops, x: float) -> Decimal:
    """The value of a function to 60 digits, by the series of scratch/12_coefficients.py."""
    s, d = script(), Decimal(x)
    if op in ANGLES:
        n, r = quarter_turns(x)
        n, (sine, cosine) = (n + (op is Ops.COS)) % 4, (s.sin(r), s.cos(r))
        if op is Ops.TAN:
            return -cosine / sine if n % 2 else Decimal(sine / cosine)
        return Decimal((sine, cosine, -sine, -cosine)[n])
    if op is Ops.TANH:
        e = (2 * d).exp()
        return (e - 1) / (e + 1)
    if op in (Ops.LOG, Ops.LOG2):
        return d.ln() / s.LN2 if op is Ops.LOG2 else d.ln()
    return Decimal(s.erf(d)) if op is Ops.ERF else (d * s.LN2 if op is Ops.EXP2 else d).exp()


def quarter_turns(x: float) -> tuple[int, Decimal]:
    """(n modulo 4, r) with x = n pi/2 + r and |r| <= pi/4, by integers of 1,400 bits and more."""
    s = script()
    top, bottom = x.as_integer_ratio()
    scaled = (top << s.PI_BITS) // bottom
    n = (2 * scaled + s.PI_INTEGER // 2) // s.PI_INTEGER
    return n % 4, Decimal(2 * scaled - n * s.PI_INTEGER) / Decimal(2 ** (s.PI_BITS + 1))


def decimal_ulps(got: float, true: Decimal) -> float:
    unit = math.ldexp(1.0, max(math.frexp(float(true))[1] - 53, -1074))
    return float(abs(Decimal(got) - true) / Decimal(unit))


@pytest.mark.parametrize("op", OPS, ids=str)
def test_f64_against_decimals(op: Ops, rng: np.random.Generator) -> None:
    x = arguments(op, rng, 300)
    got = as_lanes(op, x)
    errors = [decimal_ulps(float(y), true_value(op, float(v))) for v, y in zip(x, got, strict=True)]
    assert max(errors) <= F64_ULPS[op], x[np.argmax(errors)]


# ---- angles near multiples of pi/2: where a reduction has the fewest bits left
def hardest(exponent: int, bits: int) -> int:
    """The m of `bits` bits for which m * 2^exponent is nearest to a multiple of pi/2.

    It is the denominator of a convergent of 2^exponent / (pi/2), or a multiple of one.
    """
    s = script()
    a, b = 2 << (s.PI_BITS + exponent), s.PI_INTEGER
    before, last, found = 1, 0, 1
    while b and last < 1 << bits:
        q = a // b
        a, b, before, last = b, a - q * b, last, q * last + before
        found = last if 0 < last < 1 << bits else found
    return found << (bits - found.bit_length())


@pytest.mark.parametrize("of", [F32, F64], ids=["f32", "f64"])
def test_the_hardest_angles_of_every_exponent(of: Format) -> None:
    bits = of.mantissa + 1
    m = [(hardest(e, bits), e) for e in range(of.bias + 1 - bits)]
    x = np.array([math.ldexp(f, e) for f, e in m], of.dtype.numpy)
    assert len(x) == (104 if of is F32 else 971)
    turns = [quarter_turns(float(v)) for v in x]
    smallest = min(abs(r) for _, r in turns)
    assert smallest < Decimal(2) ** (-28 if of is F32 else -60)
    limit = F32_ULPS if of is F32 else F64_ULPS
    for op in ANGLES:
        for v, y in zip(x, as_lanes(op, x), strict=True):
            true = true_value(op, float(v))
            unit = math.ldexp(1.0, math.frexp(float(true))[1] - bits)
            assert abs(Decimal(float(y)) - true) / Decimal(unit) <= limit[op], float(v).hex()


# ---- special values
Pairs = list[tuple[float, float]]


def powers(of: Format) -> list[int]:
    """Every n for which 2^n is a number of the format."""
    return list(range(1 - of.bias - of.mantissa, of.bias + 1))


def specials(op: Ops, of: Format) -> Pairs:
    """(argument, value) where a function is exact, at its ends and at its zeros."""
    least, largest = 2.0 ** (1 - of.bias - of.mantissa), float(np.finfo(of.dtype.numpy).max)
    both_zeros = [(0.0, 0.0), (-0.0, -0.0), (least, least), (-least, -least), (NAN, NAN)]
    if op in (Ops.EXP2, Ops.EXP):
        ends = [(INF, INF), (-INF, 0.0), (largest, INF), (-largest, 0.0), (NAN, NAN)]
        exact = [(float(n), 2.0**n) for n in powers(of)] if op is Ops.EXP2 else []
        return [*ends, *exact, (0.0, 1.0), (-0.0, 1.0), (least, 1.0), (-least, 1.0)]
    if op in (Ops.LOG2, Ops.LOG):
        ends = [(0.0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-least, NAN), (NAN, NAN)]
        exact = [(2.0**n, float(n)) for n in powers(of)] if op is Ops.LOG2 else []
        return [*ends, *exact, (1.0, 0.0), (-1.0, NAN)]
    if op is Ops.COS:
        return [(0.0, 1.0), (-0.0, 1.0), (least, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]
    if op in ANGLES:
        return [*both_zeros, (INF, NAN), (-INF, NAN)]
    return [*both_zeros, (INF, 1.0), (-INF, -1.0), (largest, 1.0), (-largest, -1.0)]


@pytest.mark.parametrize("of", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_special_values(op: Ops, of: Format) -> None:
    x, want = np.array(specials(op, of), of.dtype.numpy).T
    assert_same(as_lanes(op, np.ascontiguousarray(x)), np.ascontiguousarray(want))


@pytest.mark.parametrize("of", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("op", [Ops.EXP, Ops.EXP2], ids=str)
def test_where_powers_begin_and_end(op: Ops, of: Format) -> None:
    """The floats around the last argument that gives 0, and around the first that gives inf."""
    kind = of.dtype.numpy.type
    least = 2.0 ** (1 - of.bias - of.mantissa)
    half_way = Decimal(2) ** of.bias * (2 - Decimal(2) ** (-of.mantissa - 1))
    for end, below, above in ((Decimal(least) / 2, 0.0, least), (half_way, None, INF)):
        place = end.ln() if op is Ops.EXP else end.ln() / script().LN2
        near = kind(str(place))
        x = np.array([np.nextafter(near, kind(-INF)), near, np.nextafter(near, kind(INF))])
        for v, y in zip(x, as_lanes(op, x), strict=True):
            beyond = Decimal(float(v)) > place
            if below is None and not beyond:
                assert np.isfinite(y) and y > 0.99 * np.finfo(kind).max
            else:
                assert y == (above if beyond else below), float(v).hex()


@pytest.mark.parametrize("of", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("op", [*ODD, Ops.COS], ids=str)
def test_odd_and_even(op: Ops, of: Format, rng: np.random.Generator) -> None:
    x = random_bits(rng, of.dtype, 500)
    left, right = as_lanes(op, -x), as_lanes(op, x)
    assert_same(left, right if op is Ops.COS else -right)


# ---- the same bits
def random_bits(rng: np.random.Generator, dtype: DType, count: int) -> Array:
    """Numbers of all exponents, denormals and NaN among them."""
    return rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype.numpy)


def values(dtype: DType, count: int) -> Array:
    """Every number of 16 bits; of the larger formats what is special, and numbers of all kinds."""
    if dtype.bits == 16:
        return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    rng, of = np.random.default_rng(0), F64 if dtype is dtypes.f64 else F32
    exact = [x for op in OPS for x, _ in specials(op, of)[:: 1 if of is F32 else 8]]
    small = rng.uniform(-20, 20, count)
    parts = (special(dtype), exact, small, np.ldexp(small, rng.integers(-40, 10, count)))
    with np.errstate(over="ignore"):
        chosen = np.concatenate([np.asarray(p, dtype.numpy) for p in parts])
    return np.concatenate((chosen, random_bits(rng, dtype, count)))


def functions(dtype: DType, count: int) -> list[UOp]:
    return [alu(op, param(0, count, dtype=dtype)) for op in OPS]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_oracle_native_c_and_emulation_agree_in_every_bit(dtype: DType) -> None:
    x = values(dtype, 300 if dtype is dtypes.f64 else 30_000)
    bodies = functions(dtype, x.size)
    native = uopc.compile(bodies, target="cpu", numerics=EXACT)(x)
    emulated = uopc.compile(bodies, target="emulated", numerics=EXACT)(x)
    for op, n, e in zip(OPS, native, emulated, strict=True):
        assert_same(n, e)
        assert_same(n, as_lanes(op, x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_native_c_and_emulation_agree_on_many(dtype: DType) -> None:
    """Other Opts, other loops, vectorised or not."""
    x = random_bits(np.random.default_rng(1), dtype, 200_000)
    bodies = functions(dtype, x.size)
    first = uopc.compile(bodies, target="emulated", numerics=EXACT)(x)
    for opts in (None, Opts(), Opts(vector={0: 8}, thread=0), Opts(upcast={0: 3})):
        for f, n in zip(first, uopc.compile(bodies, opts, "cpu", numerics=EXACT)(x), strict=True):
            assert_same(n, f)


def test_inside_reductions_and_rows() -> None:
    """Functions that stand between barriers, in loops and registers, not alone in a kernel."""
    opts = Opts(gpu=True, local={1: 64}, vector={1: 2})
    body = softmax(param(0, 5, 300))
    x = np.random.default_rng(2).standard_normal((5, 300)).astype(np.float32)
    kernel = uopc.compile(body, opts, "emulated", numerics=EXACT)
    (step,) = kernel.steps
    with np.errstate(all="ignore"):
        want = run(step.sink, {0: x}, Stage.LOOPS)[1]
    assert_same(kernel(x).reshape(-1), want)
    e = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True), rtol=1e-6)


# ---- the option
def test_only_who_asks_gets_it() -> None:
    body = param(0, 8).exp()
    usual = uopc.compile(body, target="cpu")
    exact = uopc.compile(body, target="cpu", numerics=uopc.Numerics(exact_math=True))
    assert "expf(" in usual.source and "expf(" not in exact.source
    assert usual.numerics == Numerics() and exact.numerics == EXACT
    assert "exact_math" not in usual.explain()
    assert exact.explain().startswith(f"{EXACT}\n\nstep 0: ")
    assert [passed.name for passed in exact.steps[0].trace][-2:] == ["exact_math", "legalise"]
    again = uopc.compile(body, target="cpu", numerics=Numerics())
    assert again.steps[0].source == usual.steps[0].source


@pytest.mark.parametrize("target", ["cpu", "emulated", "sm_90a"])
def test_no_library_is_called(target: str) -> None:
    called = re.compile(r"\b(?:exp2|exp|log2|log|sin|cos|tan|tanh|erf)f?\(")
    for dtype in FLOATS:
        kernel = uopc.compile(functions(dtype, 64), target=target, numerics=EXACT)
        assert not called.search(kernel.source)


def test_the_stages_take_it_one_by_one() -> None:
    x = np.linspace(0.1, 9, 64, dtype=np.float32)
    body, (out,) = param(0, 64).log(), outputs([param(0, 64)])
    by_hand = gpu_lower(body, out, GPU, EXACT)
    assert by_hand is exact_math(gpu_lower(body, out, GPU))
    y, z = np.zeros_like(x), np.zeros_like(x)
    Program(emulate(by_hand, "log_by_hand"), "log_by_hand")(x, y)
    native = lower_body(body, out, Ctx(numerics=EXACT))
    assert native is lower_body(body, out, Ctx(Opts(), EXACT))
    Program(uopc.pipeline.render_native(native, "log_natively"), "log_natively")(x, z)
    assert_same(y, z)
    assert_same(y, as_lanes(Ops.LOG, x))


def test_both_halves_of_a_split_reduction_get_it() -> None:
    x = param(0, 4, 100_000)
    body = x.exp().reduce(Ops.ADD, 1).log()
    kernel = uopc.compile(body, target="sm_90a", numerics=EXACT)
    assert kernel.counters
    for step in kernel.steps:
        assert not {u.op for u in toposort(step.sink)} & TRANSCENDENTAL


# ---- on a GPU
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_120"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cuda_compiles_without_a_stack(dtype: DType, target: str) -> None:
    kernel = uopc.compile(functions(dtype, 1003), target=target, numerics=EXACT)
    used = kernel.resources
    assert not used.stack_bytes and not used.spills and not used.remarks, used


def emulated(kernel: Kernel, x: Array) -> list[Array]:
    """The outputs of a launched kernel's own step, emulated."""
    (step,) = kernel.steps
    arrays = [x, *(np.zeros(p.size, p.dtype.numpy) for p in step.source.params[1:])]
    Program(emulate(step.sink, step.source.name), step.source.name)(*arrays)
    return arrays[1:]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("opts", [None, Opts(gpu=True, local={0: 96})], ids=["chosen", "plain"])
def test_launched_and_emulated_agree_in_every_bit(dtype: DType, opts: Opts | None) -> None:
    x = values(dtype, 500_000)
    kernel = uopc.compile(functions(dtype, x.size), opts, "cuda", numerics=EXACT)
    for got, want in zip(kernel(x), emulated(kernel, x), strict=True):
        assert_same(got, want)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["softmax", "softmax of f16", "gelu"])
def test_launched_kernels_of_functions_agree_in_every_bit(name: str) -> None:
    dtype = dtypes.f16 if "f16" in name else dtypes.f32
    body = gelu(64, 500) if name == "gelu" else softmax(param(0, 64, 500, dtype=dtype))
    x = np.random.default_rng(3).standard_normal((64, 500)).astype(dtype.numpy) * 3
    kernel = uopc.compile(body, None, "cuda", numerics=EXACT)
    assert_same(kernel(x).reshape(-1), emulated(kernel, x)[0])

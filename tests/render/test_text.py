"""The form of rendered text: names, literals, signatures, loops and comments."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import assert_same, special
from tests.kernels import param, softmax
from tests.suite import ROUNDED, SUITE, bodies_of
from uopc.dtype import DATA, DType, dtypes, from_bits
from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.pipeline import compile, finish, render_cuda
from uopc.render.c import render_c
from uopc.runtime import cpu
from uopc.runtime.nvrtc import compile_cubin
from uopc.runtime.program import Program
from uopc.uop.node import UOp, buffer, range_, sink
from uopc.uop.ops import AxisType

#: keywords of C11 (6.4.1) and C++17 ([lex.key]), and alternative tokens ([lex.digraph])
KEYWORDS = """auto break case char const continue default do double else enum extern float for goto
if inline int long register restrict return short signed sizeof static struct switch typedef union
unsigned void volatile while _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn
_Static_assert _Thread_local alignas alignof asm bool catch char16_t char32_t class constexpr
const_cast decltype delete dynamic_cast explicit export false friend mutable namespace new noexcept
nullptr operator private protected public reinterpret_cast static_assert static_cast template this
thread_local throw true try typeid typename using virtual wchar_t and and_eq bitand bitor compl not
not_eq or or_eq xor xor_eq""".split()
#: names that mean something somewhere, but may be a kernel's
FINE = """args shared S l to warp lanes thread p0 val0 at0 ok0 k0 lidx0 gidx0 out1 x state block add
_x kernel2 half int8_t uint64_t float3 concept isnan calloc exit omp_set_num_threads""".split()


# ---- names
@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_no_keyword_names_a_kernel(target: str) -> None:
    for word in (*KEYWORDS, "float4", "uint2", "cudaError_t", "std", "_", "main"):
        with pytest.raises(UsageError, match="a kernel cannot be called"):
            compile(param(0, 4) * 2.0, None, target, word)


@pytest.mark.parametrize("name", FINE)
def test_other_names_do(name: str, tmp_path: Path) -> None:
    """Compilers take them, beside all that a text mentions: loops, vectors, tiles, helpers."""
    bodies = [softmax(param(0, 3, 64)), param(1, 3, 64).cast(dtypes.f16)]
    opts = Opts(gpu=True, local={1: 16}, vector={1: 4}, lanes=(1, 0))
    compile_cubin(compile(bodies, opts, "sm_75", name).source, name, "sm_75")
    gcc = shutil.which("gcc")
    for target, mapping in (("cpu", Opts()), ("emulated", opts)):
        file = tmp_path / f"{target}.c"
        file.write_text(compile(bodies, mapping, target, name).source)
        if gcc:
            headers = Path(cpu.__file__).parent
            subprocess.run([gcc, "-fsyntax-only", "-w", "-I", headers, file], check=True)


# ---- literals
INF, NAN = math.inf, math.nan
LITERALS = [
    (dtypes.f32, 1.0, "1.0f", "1.0f"),
    (dtypes.f32, -0.0, "-0.0f", "-0.0f"),
    (dtypes.f32, 0.1, "0.1f", "0.1f"),
    (dtypes.f32, 16777216.0, "16777216.0f", "16777216.0f"),
    (dtypes.f32, 1e-45, "1e-45f", "1e-45f"),
    (dtypes.f32, 3.4028234663852886e38, "3.4028235e+38f", "3.4028235e+38f"),
    (dtypes.f32, INF, "bits_u32_f32(0x7f800000u)", "__int_as_float(0x7f800000)"),
    (dtypes.f32, -INF, "bits_u32_f32(0xff800000u)", "__int_as_float(0xff800000)"),
    (dtypes.f32, NAN, "bits_u32_f32(0x7fc00000u)", "__int_as_float(0x7fc00000)"),
    (dtypes.f64, 0.1, "0.1", "0.1"),
    (dtypes.f64, -1e300, "-1e+300", "-1e+300"),
    (dtypes.f64, 5e-324, "5e-324", "5e-324"),
    (
        dtypes.f64,
        -INF,
        "bits_u64_f64(0xfff0000000000000ull)",
        "__longlong_as_double(0xfff0000000000000ll)",
    ),
    (dtypes.f16, 1.5, "0x3e00", "0x3e00"),
    (dtypes.f16, -INF, "0xfc00", "0xfc00"),
    (dtypes.bf16, -0.0, "0x8000", "0x8000"),
    (dtypes.f8e4m3, 448.0, "0x7e", "0x7e"),
    (dtypes.i64, -(2**63), "(-9223372036854775807ll - 1)", "(-9223372036854775807ll - 1)"),
    (dtypes.i64, 65536, "65536ll", "65536ll"),
    (dtypes.i32, -(2**31), "(-2147483647 - 1)", "(-2147483647 - 1)"),
    (dtypes.u64, 2**64 - 1, "18446744073709551615ull", "18446744073709551615ull"),
    (dtypes.u32, 2**32 - 1, "4294967295u", "4294967295u"),
    (dtypes.i8, -128, "-128", "-128"),
    (dtypes.bool, True, "1", "true"),
]


def stores(*values: UOp) -> UOp:
    """A kernel that stores each value in a slot of its own."""
    return sink(*(buffer(n, v.dtype, (1,)).index(0).store(v) for n, v in enumerate(values)))


def test_literals() -> None:
    root = stores(*(UOp.const(value, d) for d, value, _, _ in LITERALS))
    c, gpu = render_c(finish(root), "literals"), render_cuda(root, "literals")
    for n, (d, value, in_c, in_cuda) in enumerate(LITERALS):
        for text, want in ((c, in_c), (gpu, in_cuda)):
            (got,) = re.findall(rf"p{n}\[0\] = (.*);", text)
            assert got == want, (d, value)


def test_literals_have_the_bits_of_their_constants() -> None:
    hard = [(d, x) for d in DATA for x in special(d)]
    bits = [int(x.view(f"u{d.itemsize}")) if d.is_float else int(x) for d, x in hard]
    root = stores(*(UOp.const(from_bits(b, d), d) for b, (d, _) in zip(bits, hard, strict=True)))
    outs = [np.zeros(1, d.numpy) for d, _ in hard]
    Program(render_c(finish(root), "literals"))(*outs)
    for out, (d, x) in zip(outs, hard, strict=True):
        assert_same(out, np.asarray([x], d.numpy))


def expression(u: UOp) -> str:
    """The text of one value."""
    (found,) = re.findall(r"p9\[0\] = (.*);", render_cuda(sink(out(u.dtype).store(u)), "one"))
    return str(found)


def out(d: DType) -> UOp:
    return buffer(9, d, (1,)).index(0)


def test_signs_and_parentheses() -> None:
    x, y = (buffer(s, dtypes.f32, (1,)).index(0).load() for s in range(2))
    n, m = (buffer(s, dtypes.u32, (1,)).index(0).load() for s in range(2))
    assert expression(x - -3.0) == "p0[0] - -3.0f"
    negative = -x
    assert expression(-negative) == "-(-p0[0])"
    assert expression(x * -(x - y)).endswith("* -(val0 - p1[0])")
    assert expression(x - (y - 1.0)) == "p0[0] - (p1[0] - 1.0f)"
    assert expression((x - y) - 1.0) == "p0[0] - p1[0] - 1.0f"
    assert expression(x / (y * 2.0)) == "p0[0] / (p1[0] * 2.0f)"
    assert expression((n & m) << 3) == "(p0[0] & p1[0]) << 3u"
    assert expression(n & (m + 1)) == "p0[0] & p1[0] + 1u"
    assert expression((n | m) ^ (n & m)).count("(") == 1
    assert expression((x < y).eq(UOp.const(True))) == "p0[0] < p1[0] == true"
    assert expression((x < y).where(x, (x.eq(y)).where(y, 1.0))).count("?") == 2


def test_narrow_integers_wrap_after_every_op() -> None:
    x = buffer(0, dtypes.u8, (1,)).index(0).load()
    for op in (x + x, x - x, x * x, -x, ~x, x << 1):
        assert re.match(r"\(unsigned char\)\(", expression(op)), expression(op)
    got = np.zeros(1, np.int16)
    root = sink(buffer(9, dtypes.i16, (1,)).index(0).store((x + x).cast(dtypes.i16)))
    Program(render_c(finish(root), "twice"))(np.array([128], np.uint8), got)
    assert got[0] == 0


# ---- signatures
def test_signatures() -> None:
    body = param(1, 64) * buffer(3, dtypes.f32, ()) + param(0, 64, dtype=dtypes.i8).cast(dtypes.f32)
    kernel = compile(body, Opts(gpu=True, local={0: 32}, blocks_per_sm=4), "sm_80", "mix")
    first = kernel.source.splitlines()[0]
    assert first == (
        'extern "C" __global__ void __launch_bounds__(32, 4) mix('
        "const signed char* __restrict__ p0, const float* __restrict__ p1, const float p3, "
        "float* __restrict__ p4) {"
    )
    assert compile(body, Opts(), "cpu", "mix").source.splitlines()[:5] == [
        "int mix(void** args) {",
        "  const signed char* restrict const p0 = args[0];",
        "  const float* restrict const p1 = args[1];",
        "  const float p3 = *(const float*)args[2];",
        "  float* restrict const p4 = args[3];",
    ]


def test_launch_bounds_without_a_number_of_blocks() -> None:
    opts = Opts(gpu=True, local={0: 3, 1: 32})
    text = compile(param(0, 6, 64) * 2.0, opts, "sm_80").source
    assert "__launch_bounds__(96) kernel(" in text


# ---- loops
LOOPED = ("normalised 3x40000", "columns", "product 512", "argmax", "softmax 2x131072", "transpose")


@pytest.mark.parametrize("name", LOOPED)
def test_each_loop_says_whether_it_is_unrolled(name: str) -> None:
    kernel = compile(bodies_of((SUITE | ROUNDED)[name]()), None, "sm_80")
    loops = 0
    for step in kernel.steps:
        lines = [line.strip() for line in step.source.splitlines()]
        for before, line in pairwise(lines):
            if found := re.match(r"for \((?:int|long long) ([a-z])\d+_* = ", line):
                loops += 1
                unrolled = found[1] in "uvw"
                assert before == ("#pragma unroll" if unrolled else "#pragma unroll 1"), line
        assert "#pragma" not in step.source.replace("#pragma unroll", "")
    assert loops > 0


def test_loops_of_a_hand_written_kernel() -> None:
    i, j = range_(8, 0, AxisType.LOOP), range_(4, 1, AxisType.UPCAST)
    at = i * 4 + j
    root = sink(buffer(0, dtypes.i32, (32,)).index(at).store(at.cast(dtypes.i32)).end(i, j))
    lines = [line.strip() for line in render_cuda(root, "fill").splitlines()]
    assert [line for line in lines if line.startswith(("#", "for"))] == [
        "#pragma unroll 1",
        "for (int i0 = 0; i0 < 8; ++i0) {",
        "#pragma unroll",
        "for (int u1 = 0; u1 < 4; ++u1) {",
    ]


# ---- where the user wrote it
@pytest.mark.parametrize("target", ["cpu", "emulated", "sm_80"])
def test_lines_of_the_user_are_shown_and_never_compiled(target: str) -> None:
    x = param(0, 64)
    body = x.sqrt() + 1.0
    kernel = compile(body, None, target)
    (place,) = body.origins
    assert place[0] == __file__ and f"test_text.py:{place[1]}\n" in kernel.source
    (step,) = kernel.steps
    assert "test_text" not in step.source and "test_text" not in step.runs
    assert re.sub(r"  // \S*test_text.py:\d+$", "", kernel.source, flags=re.M) == step.source

"""Small functions that rendered kernels call, by name: one meaning on every device.

`FN` at the start of a text is replaced by the language's words for an inline function.  What has a
better spelling in one language (an instruction, a built-in) is overridden there.
Meaning: the book's appendix A; the oracle is `uopc/uop/numbers.py`.
"""

from __future__ import annotations

_INTS = {
    "i8": ("signed char", "-128", "127"),
    "i16": ("short", "-32768", "32767"),
    "i32": ("int", "(-2147483647 - 1)", "2147483647"),
    "i64": ("long long", "(-9223372036854775807ll - 1)", "9223372036854775807ll"),
    "u8": ("unsigned char", "0", "255"),
    "u16": ("unsigned short", "0", "65535"),
    "u32": ("unsigned", "0", "4294967295u"),
    "u64": ("unsigned long long", "0", "18446744073709551615ull"),
}
#: where a float is too large for the integer: a power of two, exact in f32 and f64
_TOO_LARGE = {
    "i8": "128.0",
    "i16": "32768.0",
    "i32": "2147483648.0",
    "i64": "9223372036854775808.0",
}
_TOO_LARGE |= {
    "u8": "256.0",
    "u16": "65536.0",
    "u32": "4294967296.0",
    "u64": "18446744073709551616.0",
}
_FLOATS = {
    "f32": ("float", "f", "u32"),
    "f64": ("double", "", "u64"),
}

TEXTS: dict[str, str] = {}
NEEDS: dict[str, tuple[str, ...]] = {}


def _integers() -> None:
    for name, (c, _, _) in _INTS.items():
        signed = name[0] == "i"
        TEXTS[f"max_{name}"] = f"FN {c} max_{name}({c} a, {c} b) {{ return a > b ? a : b; }}"
        TEXTS[f"min_{name}"] = f"FN {c} min_{name}({c} a, {c} b) {{ return a < b ? a : b; }}"
        if signed:
            unsigned = "unsigned long long" if name == "i64" else "unsigned"
            TEXTS[f"floordiv_{name}"] = (
                f"FN {c} floordiv_{name}({c} a, {c} b) {{\n"
                f"  if (b == 0) return 0;\n"
                f"  if (b == -1) return ({c})(0 - ({unsigned})a);\n"
                f"  {c} q = ({c})(a / b);\n"
                f"  return a % b != 0 && (a < 0) != (b < 0) ? ({c})(q - 1) : q;\n}}"
            )
            TEXTS[f"floormod_{name}"] = (
                f"FN {c} floormod_{name}({c} a, {c} b) {{\n"
                f"  if (b == 0 || b == -1) return 0;\n"
                f"  {c} r = ({c})(a % b);\n"
                f"  return r != 0 && (r < 0) != (b < 0) ? ({c})(r + b) : r;\n}}"
            )
        else:
            TEXTS[f"floordiv_{name}"] = (
                f"FN {c} floordiv_{name}({c} a, {c} b) {{ return b == 0 ? 0 : ({c})(a / b); }}"
            )
            TEXTS[f"floormod_{name}"] = (
                f"FN {c} floormod_{name}({c} a, {c} b) {{ return b == 0 ? 0 : ({c})(a % b); }}"
            )


def _floats() -> None:
    for name, (c, f, bits) in _FLOATS.items():
        quiet = "0x7fffffffu" if name == "f32" else "0x7fffffffffffffffull"
        for op, sign, tie in (("max", ">", "&"), ("min", "<", "|")):
            TEXTS[f"{op}_{name}"] = (
                f"FN {c} {op}_{name}({c} a, {c} b) {{  // NaN wins, -0 < +0\n"
                f"  if (a != a || b != b) return bits_{bits}_{name}({quiet});\n"
                f"  if (a == b) return bits_{bits}_{name}"
                f"(bits_{name}_{bits}(a) {tie} bits_{name}_{bits}(b));\n"
                f"  return a {sign} b ? a : b;\n}}"
            )
            NEEDS[f"{op}_{name}"] = (f"bits_{bits}_{name}", f"bits_{name}_{bits}")
        sign_bit = "0x80000000u" if name == "f32" else "0x8000000000000000ull"
        TEXTS[f"neg_{name}"] = (
            f"FN {c} neg_{name}({c} a) "
            f"{{ return bits_{bits}_{name}(bits_{name}_{bits}(a) ^ {sign_bit}); }}"
        )
        TEXTS[f"whole_{name}"] = (
            f"FN {c} whole_{name}({c} a) {{ return a == 0 ? 0 : a; }}  // of an integer: never -0"
        )
        NEEDS[f"neg_{name}"] = (f"bits_{bits}_{name}", f"bits_{name}_{bits}")
        for to, (i, low, high) in _INTS.items():
            large = _TOO_LARGE[to] + f
            small = f"a <= -{large} ? {low}" if to[0] == "i" else f"a <= 0.0{f} ? 0"
            TEXTS[f"{name}_to_{to}"] = (
                f"FN {i} {name}_to_{to}({c} a) {{  // toward zero, saturating, NaN to 0\n"
                f"  return a != a ? 0 : {small} : a >= {large} ? {high} : ({i})a;\n}}"
            )
        for kind in ("i", "u"):
            other = f"{kind}{32 if name == 'f32' else 64}"
            oc = _INTS[other][0]
            copy = f"memcpy(&r, &a, {4 if name == 'f32' else 8})"
            TEXTS[f"bits_{name}_{other}"] = (
                f"FN {oc} bits_{name}_{other}({c} a) {{ {oc} r; {copy}; return r; }}"
            )
            TEXTS[f"bits_{other}_{name}"] = (
                f"FN {c} bits_{other}_{name}({oc} a) {{ {c} r; {copy}; return r; }}"
            )


def _small_floats() -> None:
    """Conversions between f32 and the formats of 16 and 8 bits, to nearest even, in integers.

    Source of the formats: IEEE 754-2019 (f16), bfloat16 (the upper half of f32), OCP 8-bit Floating
    Point Specification (e4m3 without infinities, e5m2).  The canonical NaN is that of cvt:
    f16 and bf16 0x7fff, fp8 0x7f, f32 0x7fffffff (PTX ISA, cvt).
    """
    TEXTS["bf16_to_f32"] = (
        "FN float bf16_to_f32(unsigned short a) {\n"
        "  return bits_u32_f32((a & 0x7fff) > 0x7f80 ? 0x7fffffffu : (unsigned)a << 16);\n}"
    )
    TEXTS["f32_to_bf16"] = (
        "FN unsigned short f32_to_bf16(float a) {\n"
        "  unsigned u = bits_f32_u32(a);\n"
        "  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;\n"
        "  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);\n}"
    )
    # a format of e exponent and m mantissa bits: `bias`, largest finite, what overflows becomes
    for name, c, m, bias, nan, overflow, largest in (
        (
            "f16",
            "unsigned short",
            10,
            15,
            "0x7fff",
            "0x7c00",
            "0x477ff000u",
        ),  # 65520: rounds to inf from here
        ("f8e4m3", "unsigned char", 3, 7, "0x7f", "0x7e", "0x43e80000u"),  # 464: the largest is 448
        (
            "f8e5m2",
            "unsigned char",
            2,
            15,
            "0x7f",
            "0x7b",
            "0x47700000u",
        ),  # 61440: the largest is 57344
    ):
        width = 16 if c == "unsigned short" else 8
        shift, sign_shift = 23 - m, 32 - width
        smallest = (127 + 1 - bias) << 23  # bits of the smallest normal number
        rebias, half = (127 - bias) << 23, (1 << (shift - 1)) - 1
        half_ulp = (
            127 + 1 - bias - m + 23
        ) << 23  # adding this number rounds to the subnormal grid
        TEXTS[f"f32_to_{name}"] = (
            f"FN {c} f32_to_{name}(float a) {{\n"
            f"  unsigned u = bits_f32_u32(a), x = u & 0x7fffffffu, r;\n"
            f"  unsigned sign = u >> {sign_shift} & {1 << (width - 1):#x}u;\n"
            f"  if (x > 0x7f800000u) return {nan};\n"
            f"  if (x >= {largest}) r = {overflow};\n"
            f"  else if (x < {smallest:#x}u)  // onto the grid of subnormals\n"
            f"    r = bits_f32_u32(bits_u32_f32(x) + bits_u32_f32({half_ulp:#x}u))"
            f" - {half_ulp:#x}u;\n"
            f"  else r = (x - {rebias:#x}u + {half:#x}u + (x >> {shift} & 1)) >> {shift};\n"
            f"  return ({c})(r | sign);\n}}"
        )
        top = (1 << (width - 1)) - 1  # all bits but the sign
        inf = (
            ""
            if name == "f8e4m3"
            else f"  if (x == {overflow if name == 'f16' else '0x7c'}) r = 0x7f800000u;\n  else "
        )
        is_nan = (
            f"x == {top:#x}" if name == "f8e4m3" else f"x > {'0x7c00' if name == 'f16' else '0x7c'}"
        )
        TEXTS[f"{name}_to_f32"] = (
            f"FN float {name}_to_f32({c} a) {{\n"
            f"  unsigned x = a & {top:#x}u, r;\n"
            f"  if ({is_nan}) return bits_u32_f32(0x7fffffffu);\n"
            f"{inf or '  '}if (x < {1 << m:#x}u) "
            f"r = bits_f32_u32((float)x * bits_u32_f32({(127 + 1 - bias - m) << 23:#x}u));\n"
            f"  else r = (x << {shift}) + {rebias:#x}u;\n"
            f"  return bits_u32_f32(r | (unsigned)(a >> {width - 1}) << 31);\n}}"
        )
    for name in ("bf16", "f16", "f8e4m3", "f8e5m2"):
        NEEDS[f"{name}_to_f32"] = ("bits_u32_f32", "bits_f32_u32")
        NEEDS[f"f32_to_{name}"] = ("bits_f32_u32", "bits_u32_f32")


TEXTS["flush_f32"] = (
    "FN float flush_f32(float a) {  // denormals to a zero of their sign\n"
    "  const unsigned u = bits_f32_u32(a);\n"
    "  return u & 0x7f800000u ? a : bits_u32_f32(u & 0x80000000u);\n}"
)
NEEDS["flush_f32"] = ("bits_f32_u32", "bits_u32_f32")
_integers()
_floats()
_small_floats()

#: functions of the C library with the same meaning: helper -> name
C_LIBRARY: dict[str, str] = {}
for _op in (
    "sqrt",
    "trunc",
    "floor",
    "ceil",
    "rint",
    "exp2",
    "log2",
    "exp",
    "log",
    "sin",
    "cos",
    "tan",
    "tanh",
    "erf",
    "fma",
):
    C_LIBRARY[f"{_op}_f32"] = f"{_op}f"
    C_LIBRARY[f"{_op}_f64"] = _op


def c_prototype(helper: str) -> str:
    """The declaration of a C library function: no header is needed."""
    c = "float" if helper.endswith("_f32") else "double"
    count = 3 if helper.startswith("fma") else 1
    return f"{c} {C_LIBRARY[helper]}({', '.join([c] * count)});"

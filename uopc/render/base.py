"""What all C-like languages share: names, expressions, statements, loops.  PROGRAM -> text.

A subclass says how it spells types, constants, helper functions, memories and hardware ranges.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from uopc import layouts
from uopc.dtype import FP8, AddrSpace, DType, Kind, dtypes, from_bits
from uopc.errors import CompilerError, TargetError, UsageError
from uopc.kernel import Declare, Do, Item, Let, ProgramTree, Scope
from uopc.render import helpers
from uopc.symbolic import index as ix
from uopc.target import Target
from uopc.uop.facts import bounds, exact_bounds
from uopc.uop.infer import segment
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import COMPARE, UNARY_FLOAT, WHOLE_KERNEL, AxisType, Engine, Ops, RangeArg

Text = tuple[str, int]  # an expression and how tightly its outermost operator binds

PRIMARY, UNARY, NEGATIVE = (
    100,
    90,
    85,
)  # a minus sign binds like a unary, but two of them must not touch
_PRECEDENCE = {
    "*": 80,
    "/": 80,
    "%": 80,
    "+": 70,
    "-": 70,
    "<<": 60,
    ">>": 60,
    "<": 50,
    "==": 40,
    "!=": 40,
}
_PRECEDENCE |= {"&": 35, "^": 34, "|": 33, "&&": 30, "||": 29, "?": 10}
_INFIX = {
    Ops.ADD: "+",
    Ops.SUB: "-",
    Ops.MUL: "*",
    Ops.DIV: "/",
    Ops.IDIV: "/",
    Ops.MOD: "%",
    Ops.AND: "&",
    Ops.OR: "|",
    Ops.XOR: "^",
    Ops.SHL: "<<",
    Ops.SHR: ">>",
    Ops.LT: "<",
    Ops.EQ: "==",
    Ops.NE: "!=",
}
_ON_BOOLS = {Ops.AND: "&&", Ops.OR: "||", Ops.XOR: "!="}
_ONE = UOp.const(1, dtypes.index)
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)

#: words that a kernel may not be called: C11, C++17 and CUDA
RESERVED = frozenset(
    """alignas alignof and asm auto bool break case catch char class compl const constexpr continue
    default delete do double else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not nullptr operator or private protected public
    register restrict return short signed sizeof static struct switch template this throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor main
    blockIdx threadIdx blockDim gridDim warpSize memcpy memset printf assert clock clock64 dim3
    size_t ptrdiff_t NULL unix linux typeof std and_eq bitand bitor not_eq or_eq xor_eq char16_t
    char32_t const_cast decltype dynamic_cast reinterpret_cast static_assert static_cast
    thread_local""".split()
)
#: other words that mean something there: reserved, types of CUDA's headers, vectors, no PTX name
_MEANT = re.compile(r"_[_A-Z].*|_|cuda[A-Z].*|(u?int|float|double)[24]|TensorMap|(ptx|uopc)_.*")
#: functions that CUDA overloads (with an f too): a kernel in C linkage would be one more of each
#: (CUDA Math API)
OVERLOADED = frozenset(
    """abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0
    cyl_bessel_i1 erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma
    fmax fmin fmod frexp hypot ilogb j0 j1 jn labs ldexp lgamma llabs llmax llmin llrint llround
    log log10 log1p log2 logb lrint lround max min modf nan nearbyint nextafter norm norm3d norm4d
    normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt
    scalbln scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc ullmax ullmin umax
    umin y0 y1 yn""".split()
)


#: names that the text around a kernel's statements uses
OURS = frozenset(("args", "shared", "S", "W", "l", "me", "own", "warp", "thread", "traced"))
#: names of parameters, values, loops and hardware ranges
_OURS_TOO = (
    r"(p|val|at|ok|seg|end|[gcktuvwris]|gidx|rank|lidx|pidx|lane|warp|group|map)\d+|"
    r"(u?int|float|double)[24]|(ptx|uopc)_.*"
)
_TAKEN = RESERVED | helpers.TEXTS.keys() | set(helpers.C_LIBRARY.values())


def check_name(name: str) -> str:
    """The name of a kernel.  Raises UsageError where C, CUDA or our helpers use it."""
    if (
        not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
        or name in RESERVED
        or _MEANT.fullmatch(name)
    ):
        raise UsageError(
            f"a kernel cannot be called {name!r}: use a C identifier that is no reserved word"
        )
    if name in helpers.TEXTS or name in OVERLOADED or name.removesuffix("f") in OVERLOADED:
        raise UsageError(
            f"a kernel cannot be called {name!r}: CUDA or the generated source uses that name. "
            "Choose another."
        )
    return name


class Renderer:
    """One rendering of one PROGRAM.  `lines` is the body, `used` the helper functions it calls."""

    ctype: ClassVar[dict[DType, str]] = {
        dtypes.i8: "signed char",
        dtypes.i16: "short",
        dtypes.i32: "int",
        dtypes.i64: "long long",
        dtypes.u8: "unsigned char",
        dtypes.u16: "unsigned short",
        dtypes.u32: "unsigned",
        dtypes.u64: "unsigned long long",
        dtypes.f16: "unsigned short",
        dtypes.bf16: "unsigned short",
        dtypes.f32: "float",
        dtypes.f64: "double",
        **dict.fromkeys(FP8, "unsigned char"),
    }
    boolean: ClassVar[str] = "bool"
    #: of a pointer whose memory no other one reaches
    restrict: ClassVar[str] = "restrict"

    #: where the user wrote a statement's node, as a comment; never in text that is hashed
    origins = False

    def __init__(self, program: ProgramTree, name: str) -> None:
        self.program, self.name = program, check_name(name)
        self.lines: list[str] = []
        #: (position in lines, the node that the line states), in order
        self.statements: list[tuple[int, UOp]] = []
        self.depth = 1
        self.names: dict[UOp, str] = {}
        self.counts: dict[str, int] = {}
        #: what loops run to, where it is not their size
        self.ends: dict[UOp, str] = {}
        self.used: dict[str, None] = {}
        self.memories: dict[UOp, str] = {}
        for item in program.walk():
            if isinstance(item, Declare):
                self.memories[item.alloc] = self._called(item.alloc)
        #: names that a loop or a value may not have: those of memories, of open loops, of values
        self.taken = {*self.memories.values(), *(f"p{p.slot}" for p in program.params), *OURS}

    # ---- names
    def put(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def put_from(self, u: UOp, line: str) -> None:
        """A statement, with the user's file and line where they are shown."""
        self.statements.append((len(self.lines), u))
        self.put(f"{line}  // {shown_origin(u)}" if self.origins and u.origins else line)

    def fresh(self, prefix: str) -> str:
        """prefix0, prefix1, ...: each once in a kernel, and no name of anything else."""
        while True:
            n = self.counts.get(prefix, 0)
            self.counts[prefix] = n + 1
            if (name := f"{prefix}{n}") not in self.taken:
                self.taken.add(name)
                return name

    def type_of(self, u: UOp) -> str:
        """The C type of a value; an index is as wide as its bounds ask, a segment is a pointer."""
        if u.op is Ops.SEGMENT:
            writes = next(p.written for p in self.program.params if p.slot == memory(u).arg.slot)
            return f"{'' if writes else 'const '}{self.element_type(u.dtype)}*"
        if u.dtype is dtypes.index:
            return "long long" if self.wide(u) else "int"
        return self.type_name(u.dtype)

    def constant_type(self, u: UOp) -> str:
        """The C type of a value that never changes."""
        c = self.type_of(u)
        return f"{c} {self.restrict} const" if c.endswith("*") else f"const {c}"

    def type_name(self, d: DType) -> str:
        return self.boolean if d is dtypes.bool else self.ctype[d]

    def wide(self, u: UOp) -> bool:
        """Does an index need 64 bits, itself or in what it is computed from?"""
        lo, hi = bounds(u)
        if lo < _INT64[0] or hi > _INT64[1]:
            raise UsageError(f"an index between {lo} and {hi} does not fit 64 bits")
        return (
            lo < _INT32[0]
            or hi > _INT32[1]
            or (u.op is not Ops.RANGE and u not in self.names and self._wide_below(u))
        )

    def _wide_below(self, u: UOp) -> bool:
        return any(
            s.dtype is dtypes.index and u.dtype is dtypes.index and self.wide(s) for s in u.src
        )

    def memory_name(self, u: UOp) -> str:
        m = memory(u)
        return f"p{m.arg.slot}" if m.op is Ops.BUFFER else self.memories[m]

    def _called(self, m: UOp) -> str:
        """What an allocation holds and its slot; a word that means something else gets a mark."""
        default = "reg" if m.arg.addrspace is AddrSpace.REG else "tile"
        word = re.sub(r"\W|^(?=\d)", "_", m.arg.name, flags=re.ASCII)  # a name is any text
        name = f"{word or default}{m.arg.slot}"
        while name in self.memories.values() or re.fullmatch(_OURS_TOO, name) or name in _TAKEN:
            name += "_"
        return name

    def range_name(self, r: UOp) -> str:
        """gidx0, rank1, lidx0, pidx0, lane0 for hardware; k0, u0, ... by digit for loops."""
        a: RangeArg = r.arg
        kinds = {
            AxisType.GLOBAL: "gidx",
            AxisType.LOCAL: "lidx",
            AxisType.LANE: "lane",
            AxisType.WARP: "warp",
            AxisType.WARPGROUP: "group",
            AxisType.REDUCE: "r",
            AxisType.UPCAST: "u",
        }
        if a.kind in WHOLE_KERNEL:
            several = {"c": "rank", "p": "pidx"}  # what an axis has beside its blocks and lanes
            return f"{several.get(a.digit, kinds[a.kind])}{a.axis}"
        return f"{a.digit or kinds.get(a.kind, 'i')}{a.axis}"

    # ---- expressions
    def expr(self, u: UOp, at_least: int = 0) -> str:
        """The text of u, in parentheses where its operator binds less than at_least."""
        text, binds = self.text(u)
        return text if binds >= at_least else f"({text})"

    def text(self, u: UOp) -> Text:
        """The name of u, or its expression."""
        if u in self.names:
            return self.names[u], PRIMARY
        op, src, d = u.op, u.src, u.dtype
        if op is Ops.CONST:
            literal = self.constant(u)
            return literal, NEGATIVE if literal.startswith("-") else PRIMARY
        if op is Ops.AFTER:
            return self.text(src[0])
        if op is Ops.BUFFER:
            return self.memory_name(u), PRIMARY
        if op is Ops.SEGMENT:
            return f"{self.memory_name(u)}[{self.expr(u.src[1])}]", PRIMARY
        if op is Ops.LOAD:
            return self.load(u)
        if op is Ops.WHERE:
            c, x, y = src
            return f"{self.expr(c, 11)} ? {self.expr(x, 11)} : {self.expr(y, 10)}", 10
        if op is Ops.NOT and d is dtypes.bool:
            return f"!{self.expr(src[0], UNARY)}", UNARY
        if op is Ops.CAST:
            return self.cast(src[0], d)
        if op is Ops.BITCAST:
            return self.bitcast(src[0], d)
        if op in (Ops.MAX, Ops.MIN) and d is not dtypes.index:
            if d is dtypes.bool:
                sign = "||" if op is Ops.MAX else "&&"
                return self._infix(sign, src[0], src[1])
            return self.call(f"{op.name.lower()}_{d.name}", *src)
        if op in UNARY_FLOAT or op is Ops.FMA:
            return self.call(f"{op.name.lower()}_{d.name}", *src)
        if op is Ops.NEG and d.is_float:
            return f"-{self.expr(src[0], UNARY)}", NEGATIVE
        if d is dtypes.bool and op in _ON_BOOLS:
            return self._infix(_ON_BOOLS[op], src[0], src[1])
        if (
            op is Ops.LT
            and src[0].dtype is dtypes.index
            and src[1] is _ONE
            and bounds(src[0])[0] == 0
        ):
            return f"{self.expr(src[0], 41)} == 0", 40
        if op in COMPARE or d.is_float:
            return self._infix(_INFIX[op], src[0], src[1])
        if d is dtypes.index:
            return self._index(u)
        return self._integer(u)

    def _infix(self, sign: str, a: UOp, b: UOp, first: str = "") -> Text:
        binds = _PRECEDENCE[sign]
        left = self.expr(a, binds if not first else UNARY)
        right = self.expr(b, binds + (0 if sign in ("&&", "||") else 1))
        return f"{first}{left} {sign} {right}", binds

    def _index(self, u: UOp) -> Text:
        """Mathematical integers: no wrap, floor division, 64 bits where the bounds ask."""
        op, src = u.op, u.src
        if op is Ops.NEG:
            widen = "(long long)" if self.wide(u) and not self.wide(src[0]) else ""
            return f"-{widen}{self.expr(src[0], UNARY)}", NEGATIVE
        if op in (Ops.IDIV, Ops.MOD):
            if bounds(src[0])[0] >= 0 and bounds(src[1])[0] > 0:
                return self._infix(_INFIX[op], src[0], src[1])
            helper = "floordiv" if op is Ops.IDIV else "floormod"
            return self.call(f"{helper}_{'i64' if self.wide(u) else 'i32'}", *src)
        if op in (Ops.MAX, Ops.MIN):
            return self.call(f"{op.name.lower()}_{'i64' if self.wide(u) else 'i32'}", *src)
        widen = (
            "(long long)"
            if self.wide(u) and not any(self.wide(s) for s in src if s.op is not Ops.CONST)
            else ""
        )
        if op is Ops.ADD and src[1].op is Ops.CONST and src[1].arg.bits < 0:
            left = self.expr(src[0], UNARY if widen else 70)
            return f"{widen}{left} - {-src[1].arg.bits}", 70
        return self._infix(_INFIX[op], src[0], src[1], widen)

    def _integer(self, u: UOp) -> Text:
        """Data integers wrap: in C only unsigned ones do, and narrow types compute as int."""
        op, src, d = u.op, u.src, u.dtype
        if op in (Ops.IDIV, Ops.MOD):
            wraps = bounds(src[0])[0] == d.min and bounds(src[1])[0] < 0
            if bounds(src[0])[0] >= 0 and bounds(src[1])[0] > 0 and not wraps:
                return self._narrow(d, self._infix(_INFIX[op], src[0], src[1]))
            return self.call(f"{'floordiv' if op is Ops.IDIV else 'floormod'}_{d.name}", *src)
        if op is Ops.NOT:
            return self._narrow(d, (f"~{self.expr(src[0], UNARY)}", UNARY))
        if op in (Ops.AND, Ops.OR, Ops.XOR, Ops.SHR):
            return (
                self._narrow(d, self._infix(_INFIX[op], src[0], src[1]))
                if d.kind is Kind.UINT and d.bits < 32
                else self._infix(_INFIX[op], src[0], src[1])
            )
        lo, hi = exact_bounds(u)
        fits = d.min <= lo and hi <= d.max
        if op is Ops.SHL and bounds(src[0])[0] < 0:
            fits = False  # a negative number is not shifted left in C
        if d.bits >= 32 and (d.kind is Kind.UINT or fits):
            if op is Ops.NEG:
                zero = "0u" if d is dtypes.u32 else "0ull"
                return (
                    (f"{zero} - {self.expr(src[0], 71)}", 70)
                    if d.kind is Kind.UINT
                    else (f"-{self.expr(src[0], UNARY)}", NEGATIVE)
                )
            return self._infix(_INFIX[op], src[0], src[1])
        unsigned = "unsigned long long" if d.bits == 64 else "unsigned"
        if op is Ops.NEG:
            inside = (
                f"0u - ({unsigned}){self.expr(src[0], UNARY)}"
                if d.bits < 64
                else f"0ull - ({unsigned}){self.expr(src[0], UNARY)}"
            )
        else:
            right = (
                self.expr(src[1], _PRECEDENCE[_INFIX[op]] + 1)
                if op is Ops.SHL
                else f"({unsigned}){self.expr(src[1], UNARY)}"
            )
            inside = f"({unsigned}){self.expr(src[0], UNARY)} {_INFIX[op]} {right}"
        return f"({self.type_name(d)})({inside})", UNARY

    def _narrow(self, d: DType, text: Text) -> Text:
        """Results of types narrower than int come back to their type."""
        if d.bits >= 32:
            return text
        return f"({self.type_name(d)})({text[0]})", UNARY

    def cast(self, x: UOp, to: DType) -> Text:
        """x in another dtype, defined for every value."""
        d = x.dtype
        if to is dtypes.bool:
            zero = self.constant(UOp.const(0, d)) if d is not dtypes.index else "0"
            return f"{self.expr(x, 41)} != {zero}", 40
        if to.is_float and to.bits <= 16 and to is not d:
            return self.call(f"f32_to_{to.name}", x)
        if d.is_float and d.bits <= 16:
            return self.call(f"{d.name}_to_f32", x)
        if d.is_float and to.is_int:
            return self.call(f"{d.name}_to_{'i64' if to is dtypes.index else to.name}", x)
        name = "long long" if to is dtypes.index else self.type_name(to)
        return f"({name}){self.expr(x, UNARY)}", UNARY

    def bitcast(self, x: UOp, to: DType) -> Text:
        a, b = self.type_name(x.dtype), self.type_name(to)
        if a == b:
            return self.text(x)
        if (x.dtype.is_int and to.is_int) or {x.dtype, to} <= _CARRIED_AS_INTEGERS:
            return f"({b}){self.expr(x, UNARY)}", UNARY
        carried = {dtypes.f16: dtypes.u16, dtypes.bf16: dtypes.u16, **dict.fromkeys(FP8, dtypes.u8)}
        return self.call(f"bits_{carried.get(x.dtype, x.dtype).name}_{carried.get(to, to).name}", x)

    def call(self, helper: str, *args: UOp) -> Text:
        self.use(helper)
        return f"{self.function(helper)}({', '.join(self.expr(a) for a in args)})", PRIMARY

    def use(self, helper: str) -> None:
        """Note a helper function, and those it calls."""
        for other in helpers.NEEDS.get(helper, ()):
            self.use(other)
        self.used[helper] = None

    def function(self, helper: str) -> str:
        """How this language calls a helper."""
        return helper

    # ---- constants
    def constant(self, u: UOp) -> str:
        d, bits = u.arg.dtype, u.arg.bits
        if d is dtypes.bool:
            return "true" if bits else "false"
        if d.is_float and d.bits <= 16:
            return f"{bits:#06x}" if d.bits == 16 else f"{bits:#04x}"
        if d.is_float:
            value = from_bits(bits, d)
            if not math.isfinite(value):
                return self.special(bits, d)
            return f"{_decimal(value, d)}f" if d is dtypes.f32 else _decimal(value, d)
        if d in (dtypes.i64, dtypes.u64) or (
            d is dtypes.index and not _INT32[0] <= bits <= _INT32[1]
        ):
            if bits == _INT64[0]:
                return "(-9223372036854775807ll - 1)"
            return f"{bits}ull" if d is dtypes.u64 else f"{bits}ll"
        if d is dtypes.u32:
            return f"{bits}u"
        return "(-2147483647 - 1)" if bits == _INT32[0] else str(bits)

    def special(self, bits: int, d: DType) -> str:
        """inf or NaN by its bits."""
        raise NotImplementedError

    # ---- memory
    def element(self, u: UOp) -> str:
        """The lvalue of an INDEX."""
        of = segment(u)
        start = self.memory_name(u) if of is None else self.expr(of, PRIMARY)
        return f"{start}[{self.expr(u.src[1])}]"

    def load(self, u: UOp) -> Text:
        element = self.element(u.src[0])
        if len(u.src) == 1:
            return element, PRIMARY
        return f"{self.expr(u.src[1], 11)} ? {element} : {self.expr(u.src[2], 10)}", 10

    def store(self, u: UOp) -> None:
        gate = f"if ({self.expr(u.src[2])}) " if len(u.src) == 3 else ""
        if u.arg is None:
            self.put_from(u, f"{gate}{self.element(u.src[0])} = {self.expr(u.src[1])};")
            return
        value = u.src[1]
        inside = self.expr(value.src[1], 11) if len(value.src) == 3 else None
        self.put_from(
            u,
            gate + self.wide_copy(u.src[0].dtype, u.arg.width, u.src[0], value.src[0], inside),
        )

    def wide_copy(self, d: DType, width: int, to: UOp, source: UOp, inside: str | None) -> str:
        """A statement that copies `width` elements; zeros where `inside` is false."""
        raise NotImplementedError

    # ---- statements
    def block(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Scope):
                self.scope(item)
            elif isinstance(item, Declare):
                self.declare(item.alloc)
            elif isinstance(item, Let):
                self.let(item.value)
            else:
                self.do(item)

    def let(self, u: UOp) -> None:
        text = self.expr(u)
        name = self.fresh(
            "seg"
            if u.op is Ops.SEGMENT
            else "ok"
            if u.dtype is dtypes.bool
            else "at"
            if u.dtype is dtypes.index
            else "val"
        )
        self.put_from(u, f"{self.constant_type(u)} {name} = {text};")
        self.names[u] = name

    def do(self, item: Do) -> None:
        if item.effect.op is Ops.STORE:
            self.store(item.effect)
        else:
            self.barrier(item.effect)

    def barrier(self, u: UOp) -> None:
        raise CompilerError(f"{type(self).__name__} has no barriers")

    def open_loop(self, r: UOp) -> str:
        """The name of a loop's variable; it is taken until the loop ends."""
        name = self.range_name(r)
        while name in self.taken:
            name += "_"
        self.names[r] = name
        self.taken.add(name)
        return name

    def scope(self, scope: Scope) -> None:
        r = scope.opener
        name = self.open_loop(r)
        for line in self.pragma(r):
            self.put(line)
        a: RangeArg = r.arg
        kind = "long long" if self.wide(r) else "int"
        last = a.start + a.step * a.size
        step = f"++{name}" if a.step == 1 else f"{name} += {a.step}"
        stay = f"{name} {'<' if a.step > 0 else '>'} {self.ends.get(r, last)}"
        self.statements.append((len(self.lines), r))
        self.put(f"for ({kind} {name} = {a.start}; {stay}; {step}) {{")
        self.depth += 1
        self.block(scope.items)
        self.depth -= 1
        self.put("}")
        self.taken.discard(name)

    def printed(self, u: UOp) -> tuple[str, list[str]]:
        """The format of a PRINTF for C's printf, as a literal, and what it shows: integers by
        their width, floats as %g, whatever the language."""
        shown = u.src[: u.arg.format.count("{}")]
        form, values = "", []
        for text, value in zip_longest(u.arg.format.split("{}"), shown):
            form += text.replace("%", "%%")
            if value is not None:
                conversion, c = self._shown(value)
                form += conversion
                values.append(c)
        return c_literal(form + "\n"), values

    def _shown(self, u: UOp) -> tuple[str, str]:
        """(conversion of printf, the argument for it)."""
        d = u.dtype
        if d.is_float:
            small = d.bits < 32
            return "%g", self.call(f"{d.name}_to_f32", u)[0] if small else self.expr(u)
        if d is dtypes.index or d.bits == 64:
            signed = d.kind is not Kind.UINT
            c = "long long" if signed else "unsigned long long"
            return ("%lld" if signed else "%llu"), f"({c}){self.expr(u, UNARY)}"
        return ("%u" if d.kind is Kind.UINT else "%d"), self.expr(u)

    def pragma(self, r: UOp) -> list[str]:
        """Lines that stand before a loop."""
        return []

    def declare(self, m: UOp) -> None:
        size = block_elements(m)
        self.statements.append((len(self.lines), m))
        self.put(f"{self.qualifier(m)}{self.memory_type(m)} {self.memory_name(m)}[{size}];")

    def memory_type(self, m: UOp) -> str:
        """What an allocation is declared as."""
        return self.element_type(m.dtype)

    def element_type(self, d: DType) -> str:
        """The C type of an element of a memory."""
        return self.type_name(d)

    def qualifier(self, m: UOp) -> str:
        return ""


_CARRIED_AS_INTEGERS = {
    *(dtypes.i8, dtypes.u8, dtypes.i16, dtypes.u16, dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64),
    *(dtypes.f16, dtypes.bf16, *FP8),
}


#: bytes that every SHARED memory begins at a multiple of: the widest access of a thread
SHARED_ALIGNMENT = 16


def shared_alignments(sink: UOp) -> dict[UOp, int]:
    """Bytes that SHARED memories begin at a multiple of, where what uses them asks for more.

    A bulk copy's tile begins at a multiple of 128, one with a swizzle, and a swizzled wgmma
    operand, where the pattern begins: 1024 bytes for a swizzle of 128.  `uopc.layouts.SharedTile`.
    """
    asked: dict[UOp, int] = {}
    for u in toposort(sink):
        if u.op is Ops.COPY and u.arg.engine is Engine.BULK:
            tensor_map, tile = sorted(u.src[:2], key=lambda s: s.op is not Ops.TENSORMAP)
            swizzle, least = tensor_map.arg.swizzle, layouts.TMA_SHARED_ALIGNMENT
        elif u.op is Ops.DESCRIPTOR:
            tile, swizzle, least = u.src[0], u.arg.swizzle, SHARED_ALIGNMENT
        else:
            continue
        m = memory(tile)
        asked[m] = max(asked.get(m, SHARED_ALIGNMENT), 8 * swizzle, least)
    return asked


def shared_layout(program: ProgramTree) -> tuple[dict[UOp, int], int]:
    """Where each SHARED memory, and a block's part of each CLUSTER memory, stands in a block's
    bytes, aligned as its uses ask, and their number."""
    asked = shared_alignments(program.sink)
    offsets: dict[UOp, int] = {}
    at = 0
    for item in program.walk():
        if isinstance(item, Declare) and item.alloc.arg.addrspace in _OF_BLOCKS:
            at = round_up(at, asked.get(item.alloc, SHARED_ALIGNMENT))
            offsets[item.alloc] = at
            size = block_elements(item.alloc) * item.alloc.dtype.itemsize
            at += round_up(size, SHARED_ALIGNMENT)
    return offsets, at


_OF_BLOCKS = (AddrSpace.SHARED, AddrSpace.CLUSTER)


def block_elements(m: UOp) -> int:
    """How many elements of an allocation one block (of REG memory, one thread) holds."""
    return prod(m.arg.shape[m.arg.addrspace is AddrSpace.CLUSTER :])


def owner(index: UOp) -> tuple[UOp, UOp]:
    """(the rank of the block that holds an element of CLUSTER memory, its place there)."""
    size = block_elements(memory(index))
    offset = index.src[1]
    return ix.div(offset, size), ix.mod(offset, size)


def check_clusters(name: str, blocks: int, target: Target) -> None:
    """Raises TargetError where blocks of a target cannot form a kernel's clusters."""
    if blocks > 1 and not target.has_clusters:
        raise TargetError(
            f"kernel {name} has clusters of {blocks} blocks, which {target} lacks (it takes sm_90 "
            "or later). Leave out Opts.cluster, or render for target='sm_90'."
        )


def round_up(size: int, granule: int) -> int:
    """The first multiple of granule from size on."""
    return -(-size // granule) * granule


def check_shared(name: str, size: int, target: Target) -> None:
    """Raises TargetError where a block's shared memory is more than the target has."""
    if size > target.shared_optin_bytes:
        raise TargetError(
            f"kernel {name} wants {size} bytes of shared memory a block, {target} has "
            f"{target.shared_optin_bytes}. Lower Opts.local, upcast or vector, or keep rows "
            "elsewhere (Opts.keep); of an Opts.plan lower depth or the block's sizes."
        )


def c_literal(text: str) -> str:
    """A text as a literal of C: what is not plain ASCII as octal escapes of its UTF-8 bytes."""
    plain = (
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return '"' + "".join(plain).replace("\\012", "\\n") + '"'


def shown_origin(u: UOp) -> str:
    """file:line where the user wrote u; the path is relative inside the working directory."""
    file, line = u.origins[0]
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here) if file.startswith(here) else os.path.basename(file)}:{line}"


def _decimal(value: float, d: DType) -> str:
    """The shortest decimal that gives the same bits back."""
    text = f"{value:.9g}" if d is dtypes.f32 else repr(value)
    if d is dtypes.f32:
        for digits in range(1, 10):
            short = f"{value:.{digits}g}"
            if UOp.const(float(short), d).arg.bits == UOp.const(value, d).arg.bits:
                text = short
                break
    return text if any(c in text for c in ".en") else f"{text}.0"

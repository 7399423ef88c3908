"""Native C: one kernel as one C function, its THREAD range as an OpenMP loop.

`int NAME(void **args)`: args[i] is the address of parameter i's data, in slot order.
"""

from __future__ import annotations

from uopc.dtype import SIGNED, UNSIGNED, AddrSpace, DType, dtypes
from uopc.kernel import Dims, Launch, ProgramTree, Scope, Source
from uopc.render import helpers
from uopc.render.base import PRIMARY, UNARY, Renderer, Text
from uopc.render.ends import guard_of
from uopc.render.gcc import out_of_order, register_rows
from uopc.target import CPU, Target
from uopc.uop.node import UOp, addrspace, derive, memory, prod, toposort
from uopc.uop.ops import AxisType, Ops

#: the text of a guard that holds wherever it is asked
_HOLDS = "1"


class CRenderer(Renderer):
    """PROGRAM -> C11 without any include."""

    boolean = "_Bool"
    language = "c"
    vectorised = True

    def __init__(self, program: ProgramTree, name: str) -> None:
        super().__init__(program, name)
        order = toposort(program.sink)
        self.fuses = any(u.op is Ops.FMA for u in order)
        self.truncates = any(
            u.op is Ops.CAST and u.dtype.is_int and u.src[0].dtype.is_float for u in order
        )
        self.wraps = self.vectorised and any(_accumulates(u, Ops.ADD, Ops.MUL) for u in order)
        self.extremes = {memory(u.src[0]) for u in order if _accumulates(u, Ops.MAX, Ops.MIN)}
        self.kept_loops = out_of_order(order) | register_rows(order) if self.vectorised else set()

    def text(self, u: UOp) -> Text:
        """A sign is flipped as a bit where there is an FMA: of -fma(a, b, c) gcc makes the fused
        -a*b - c, which is +0 and not -0 where they cancel."""
        if self.fuses and u not in self.names and (x := _negated(u)) is not None:
            return self.call(f"neg_{u.dtype.name}", x)
        return super().text(u)

    def store(self, u: UOp) -> None:
        if len(u.src) == 3 and self.names.get(u.src[2]) == _HOLDS:
            u = derive(u, u.src[:2])
        super().store(u)

    def cast(self, x: UOp, to: DType) -> Text:
        """Of (float)(int)x gcc makes a truncation, which keeps the sign of zero
        (-fno-trapping-math); what comes from an integer has none."""
        text = super().cast(x, to)
        if not (self.truncates and x.dtype.is_int and to in (dtypes.f32, dtypes.f64)):
            return text
        self.use(f"whole_{to.name}")
        return f"whole_{to.name}({text[0]})", PRIMARY

    def load(self, u: UOp) -> Text:
        """Where signed integers are added up, their memories are unsigned and what is read is cast:
        gcc 12 -O2 takes wrong lanes of several accumulators where (int)((unsigned)a + b) stands in
        a loop and (unsigned)a after it."""
        if len(u.src) == 3 and self.names.get(u.src[1]) == _HOLDS:
            u = derive(u, u.src[:1])
        text, binds = super().load(u)
        if not self.wraps or u.dtype not in SIGNED:
            return text, binds
        inside = text if binds >= UNARY else f"({text})"
        return f"({self.type_name(u.dtype)}){inside}", UNARY

    def let(self, u: UOp) -> None:
        if self.names.get(u) != _HOLDS:
            super().let(u)

    def scope(self, scope: Scope) -> None:
        """A loop ends where the guard of all that it does ends."""
        gate = guard_of(scope) if self.vectorised else None
        if gate is None:
            super().scope(scope)
            return
        r, text = scope.opener, self.expr(gate.src[1], 41)
        name, size = self.fresh("end"), r.arg.size
        kind = "long long" if self.wide(r) or gate.src[1].dtype.bits == 64 else "int"
        self.put(f"const {kind} {name} = {text} < {size} ? {self.expr(gate.src[1], 11)} : {size};")
        self.ends[r], self.names[gate] = name, _HOLDS
        super().scope(scope)
        del self.names[gate]

    def element_type(self, d: DType) -> str:
        return self.ctype[_UNSIGNED[d]] if self.wraps and d in SIGNED else super().element_type(d)

    def memory_type(self, m: UOp) -> str:
        """Of several maxima in unsigned memories gcc 12 takes wrong lanes (note 0004)."""
        return super().element_type(m.dtype) if m in self.extremes else super().memory_type(m)

    def constant(self, u: UOp) -> str:
        if u.arg.dtype is dtypes.bool:
            return "1" if u.arg.bits else "0"
        return super().constant(u)

    def special(self, bits: int, d: DType) -> str:
        unsigned = "u32" if d is dtypes.f32 else "u64"
        self.use(f"bits_{unsigned}_{d.name}")
        return f"bits_{unsigned}_{d.name}({bits:#x}{'u' if d is dtypes.f32 else 'ull'})"

    def function(self, helper: str) -> str:
        return helpers.C_LIBRARY.get(helper, helper)

    def wide_copy(self, d: DType, width: int, to: UOp, source: UOp, inside: str | None) -> str:
        size, there = width * d.itemsize, self.element(to)
        copy = f"memcpy(&{there}, &{self.element(source)}, {size});"
        return copy if inside is None else f"if ({inside}) {copy} else memset(&{there}, 0, {size});"

    def qualifier(self, m: UOp) -> str:
        return "_Alignas(64) " if prod(m.arg.shape) > 1 else ""

    def pragma(self, r: UOp) -> list[str]:
        if r.arg.kind is AxisType.THREAD:
            return ["#pragma omp parallel for"]
        if r in self.kept_loops:
            return ["#pragma GCC unroll 1"]
        if r.arg.kind is AxisType.UPCAST and r.arg.digit != "v" and r.arg.size <= 16:
            return [
                f"#pragma GCC unroll {r.arg.size}"
            ]  # the vector digit is left to the vectoriser
        return []

    def parameters(self) -> list[str]:
        """One local name per parameter."""
        out = []
        for i, p in enumerate(self.program.params):
            c = self.element_type(p.dtype) if not p.scalar else self.type_name(p.dtype)
            if p.scalar:
                out.append(f"const {c} p{p.slot} = *(const {c}*)args[{i}];")
            else:
                const, table = "" if p.written else "const ", " const*" if p.bundle else ""
                out.append(f"{const}{c}*{table} restrict const p{p.slot} = args[{i}];")
        return out

    def head(self) -> list[str]:
        """Declarations and helper functions that the body uses."""
        body = "\n".join(self.lines)
        helper_text = [
            helpers.TEXTS[h].replace("FN", "static inline")
            for h in self.used
            if h not in helpers.C_LIBRARY
        ]
        both = body + "\n".join(helper_text)
        out = []
        if "memcpy(" in both:
            out.append("void* memcpy(void*, const void*, unsigned long);")
        if "memset(" in both:
            out.append("void* memset(void*, int, unsigned long);")
        out += [helpers.c_prototype(h) for h in self.used if h in helpers.C_LIBRARY]
        return out + helper_text

    def render(self, target: Target = CPU) -> Source:
        """The whole file."""
        for line in self.parameters():
            self.put(line)
        self.block(self.program.items)
        self.put("return 0;")
        text = "\n".join([*self.head(), f"int {self.name}(void** args) {{", *self.lines, "}", ""])
        one: Dims = (1, 1, 1)
        return Source(
            text,
            name=self.name,
            language=self.language,
            params=self.program.params,
            launch=Launch(one, one),
            target=target,
        )


_UNSIGNED = dict(zip(SIGNED, UNSIGNED, strict=True))


def _accumulates(u: UOp, *ops: Ops) -> bool:
    """Is it a STORE of such a combination of signed integers into registers?"""
    registers = u.op is Ops.STORE and addrspace(u.src[0]) is AddrSpace.REG
    return registers and u.src[1].dtype in SIGNED and u.src[1].op in ops


def _negated(u: UOp) -> UOp | None:
    """x where u is -x, however it is written; None elsewhere."""
    if u.dtype not in (dtypes.f32, dtypes.f64):
        return None
    if u.op is Ops.NEG:
        return u.src[0]
    if u.op not in (Ops.MUL, Ops.DIV, Ops.SUB):
        return None
    minus = UOp.const(-0.0 if u.op is Ops.SUB else -1.0, u.dtype)
    a, b = u.src
    if b is minus and u.op is not Ops.SUB:
        return a
    return b if a is minus and u.op is not Ops.DIV else None


def render_c(program: ProgramTree, name: str, origins: bool = False) -> Source:
    """C text of a native CPU kernel.  origins: the user's file and line as comments."""
    renderer = CRenderer(program, name)
    renderer.origins = origins
    return renderer.render()

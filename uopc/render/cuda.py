"""CUDA C without any include: built-ins, and one-line asm where an instruction has no spelling.

Stable from run to run: names follow axes and order, nothing depends on addresses or hashes.
"""

from __future__ import annotations

from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import TargetError
from uopc.kernel import Axis, ProgramTree, Source
from uopc.render import helpers
from uopc.render.base import Renderer, check_shared, shared_layout
from uopc.target import Target
from uopc.target import target as named_target
from uopc.uop.node import UOp, memory, prod
from uopc.uop.ops import AxisType

_BUILT_IN = {
    "fma_f32": "__fmaf_rn",
    "fma_f64": "__fma_rn",
    "sqrt_f32": "__fsqrt_rn",
    "sqrt_f64": "__dsqrt_rn",
    "bits_f32_u32": "__float_as_uint",
    "bits_u32_f32": "__uint_as_float",
    "bits_f32_i32": "__float_as_int",
    "bits_i32_f32": "__int_as_float",
    "bits_f64_i64": "__double_as_longlong",
    "bits_i64_f64": "__longlong_as_double",
}
BUILT_IN = {**helpers.C_LIBRARY, **_BUILT_IN}


def _asm(name: str, to: str, ins: str, instruction: str, constraint: str, first: str) -> str:
    """A helper that is one instruction."""
    arguments = ", ".join(f"{ins} {a}" for a in "ab"[: instruction.count("%") - 1])
    operands = ", ".join(f'"{first}"({a})' for a in "ab"[: instruction.count("%") - 1])
    line = f'asm("{instruction};" : "={constraint}"(r) : {operands});'
    return f"FN {to} {name}({arguments}) {{ {to} r; {line} return r; }}"


#: sm_80 and later: max.NaN gives the canonical NaN and orders -0 < +0 (PTX ISA, max)
_SM80 = {
    "max_f32": _asm("max_f32", "float", "float", "max.NaN.f32 %0, %1, %2", "f", "f"),
    "min_f32": _asm("min_f32", "float", "float", "min.NaN.f32 %0, %1, %2", "f", "f"),
}
_ANY = {
    "f16_to_f32": _asm("f16_to_f32", "float", "unsigned short", "cvt.f32.f16 %0, %1", "f", "h"),
    "f32_to_f16": _asm("f32_to_f16", "unsigned short", "float", "cvt.rn.f16.f32 %0, %1", "h", "f"),
    "bits_f64_u64": "FN unsigned long long bits_f64_u64(double a) "
    "{ return (unsigned long long)__double_as_longlong(a); }",
    "bits_u64_f64": "FN double bits_u64_f64(unsigned long long a) "
    "{ return __longlong_as_double((long long)a); }",
}
_WORDS = {4: "unsigned", 8: "uint2", 16: "uint4", 2: "unsigned short"}
_VECTORS = {"f32": "float", "f64": "double", "i32": "int", "u32": "uint"}


class CUDARenderer(Renderer):
    """PROGRAM -> CUDA C for one Target."""

    def __init__(self, program: ProgramTree, name: str, target: Target) -> None:
        super().__init__(program, name)
        self.target = target
        self.texts = {**helpers.TEXTS, **_ANY, **(_SM80 if target.has_max_nan else {})}
        self.offsets, self.shared_bytes = shared_layout(program)
        check_shared(name, self.shared_bytes, target)
        self.dynamic = self.shared_bytes > target.shared_static_bytes

    def special(self, bits: int, d: DType) -> str:
        return (
            f"__int_as_float({bits:#x})"
            if d is dtypes.f32
            else f"__longlong_as_double({bits:#x}ll)"
        )

    def function(self, helper: str) -> str:
        return BUILT_IN.get(helper, helper)

    def wide_copy(self, d: DType, width: int, to: str, source: str, inside: str | None) -> str:
        size = width * d.itemsize
        c = f"{_VECTORS[d.name]}{width}" if d.name in _VECTORS and width in (2, 4) else _WORDS[size]
        read = f"*(const {c}*)&{source}"
        if inside is None:
            return f"*({c}*)&{to} = {read};"
        zeros = f"{c}{{}}" if c[-1] in "248" else "0"  # uint4{}, but a plain 0 where c is a scalar
        return f"*({c}*)&{to} = {inside} ? {read} : {zeros};"

    def qualifier(self, m: UOp) -> str:
        if _is_shared(m):
            return "__shared__ __align__(16) "
        return "__align__(16) " if prod(m.arg.shape) > 1 else ""

    def declare(self, m: UOp) -> None:
        if _is_shared(m) and self.dynamic:
            c = self.type_name(m.dtype)
            self.put(f"{c}* const {self.memory_name(m)} = ({c}*)(shared + {self.offsets[m]});")
        else:
            super().declare(m)

    def barrier(self, u: UOp) -> None:
        self.put("__syncthreads();")

    def pragma(self, r: UOp) -> list[str]:
        return ["#pragma unroll" if r.arg.kind is AxisType.UPCAST else "#pragma unroll 1"]

    def shuffle(self, u: UOp) -> str:
        """The text of a SHUFFLE whose operand has a name; types that shfl lacks travel as bits."""
        threads = self.program.launch.threads
        mask = (1 << min(32, threads)) - 1
        value, d = self.expr(u.src[0]), u.dtype
        call = f"__shfl_xor_sync({mask:#x}u, {{}}, {u.arg.by})"
        if d.bits >= 32:
            return call.format(value)
        if d is dtypes.bool:
            return call.format(f"(int){value}") + " != 0"
        return f"({self.type_name(d)})" + call.format(f"(unsigned){value}")

    def let(self, u: UOp) -> None:
        if u.op.name != "SHUFFLE":
            super().let(u)
            return
        text, name = self.shuffle(u), self.fresh("ok" if u.dtype is dtypes.bool else "val")
        self.put_from(u, f"const {self.type_of(u)} {name} = {text};")
        self.names[u] = name

    def hardware(self, axes: tuple[Axis, ...], register: str) -> None:
        """One name for each range that hardware gives."""
        for n, a in enumerate(axes):
            name = self.range_name(a.range)
            self.names[a.range] = name
            self.taken.add(name)
            if a.whole:
                text = f"{register}.{'xyz'[a.dim]}"
            else:
                here = f"(int){register}.x"
                text = here if a.stride == 1 else f"{here} / {a.stride}"
                if n < len(axes) - 1:
                    text = f"{text} % {a.range.arg.size}"
            self.put(f"const int {name} = {text};")

    def signature(self) -> str:
        """Parameters in slot order."""
        out = []
        for p in self.program.params:
            c = self.type_name(p.dtype)
            out.append(
                f"const {c} p{p.slot}"
                if p.scalar
                else f"{'' if p.written else 'const '}{c}* __restrict__ p{p.slot}"
            )
        return ", ".join(out)

    def _helper(self, name: str) -> str:
        """The text of a helper, its calls to others spelled as this language spells them."""
        text = self.texts[name].replace("FN", "__device__ __forceinline__")
        for other in helpers.NEEDS.get(name, ()):
            text = text.replace(f"{other}(", f"{self.function(other)}(")
        return text

    def render(self) -> Source:
        """The whole file."""
        launch = self.program.launch
        size = sum(8 if not p.scalar else p.dtype.itemsize for p in self.program.params)
        if size > self.target.parameter_bytes:
            raise TargetError(
                f"kernel {self.name} has {size} bytes of parameters, {self.target} takes "
                f"{self.target.parameter_bytes}. Split it into kernels with fewer arrays."
            )
        if self.dynamic:
            self.put("extern __shared__ __align__(16) unsigned char shared[];")
        self.hardware(launch.grid_axes, "blockIdx")
        self.hardware(launch.block_axes, "threadIdx")
        self.block(self.program.items)
        texts = [self._helper(h) for h in self.used if h not in BUILT_IN]
        bounds = (
            f"{launch.threads}, {launch.blocks_per_sm}"
            if launch.blocks_per_sm
            else f"{launch.threads}"
        )
        first = f'extern "C" __global__ void __launch_bounds__({bounds}) '
        first += f"{self.name}({self.signature()}) {{"
        return Source(
            "\n".join([*texts, first, *self.lines, "}", ""]),
            name=self.name,
            language="cuda",
            params=self.program.params,
            launch=launch,
            shared_bytes=self.shared_bytes,
            dynamic_shared_bytes=self.shared_bytes if self.dynamic else 0,
            target=self.target,
        )


def _is_shared(m: UOp) -> bool:
    space = memory(m).arg.addrspace
    return bool(space is AddrSpace.SHARED)


def render_cuda(
    program: ProgramTree, name: str, target: str | Target = "sm_80", origins: bool = False
) -> Source:
    """CUDA text of a GPU kernel for one Target.  origins: the user's file and line as comments.

    Raises TargetError beyond the target's limits.
    """
    renderer = CUDARenderer(program, name, named_target(target))
    renderer.origins = origins
    return renderer.render()

"""CUDA C without any include: built-ins, and one-line asm where an instruction has no spelling.

Stable from run to run: names follow axes and order, nothing depends on addresses or hashes.
The instructions of tensor cores, asynchronous copies and mbarriers are data: `uopc/render/ptx.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uopc import layouts
from uopc.dtype import AddrSpace, DType, dtypes
from uopc.errors import SpecError, TargetError
from uopc.kernel import Axis, Declare, Do, Item, Let, ProgramTree, Scope, Source, TensorMapUse
from uopc.passes.bind import hardware_ranges
from uopc.render import helpers, ptx
from uopc.render.base import (
    PRIMARY,
    SHARED_ALIGNMENT,
    Renderer,
    Text,
    c_literal,
    check_clusters,
    check_shared,
    owner,
    round_up,
    shared_alignments,
    shared_layout,
)
from uopc.target import Target
from uopc.target import target as named_target
from uopc.uop.facts import free
from uopc.uop.infer import described, segment
from uopc.uop.node import UOp, is_rank, memory, prod, toposort, where_from
from uopc.uop.ops import (
    COMPARE,
    Atomic,
    AxisType,
    BarrierArg,
    BarrierScope,
    BasedArg,
    Engine,
    Fence,
    Ops,
    RoleArg,
    ShuffleMode,
    TensorMapArg,
    Vote,
)

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
    # of the packed form (F2FP) one half is used: the plain one is F2F, sixteen times as slow, where
    # what is rounded is used on and not stored beside a neighbour (note 0013)
    **{
        f"f32_to_{name}": f"FN unsigned short f32_to_{name}(float a) "
        f'{{ unsigned r; asm("cvt.rn.{name}x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.0f), "f"(a)); '
        "return (unsigned short)r; }"
        for name in ("f16", "bf16")
    },
    **{
        f"pack_{name}": f"FN unsigned pack_{name}(float a, float b) "
        f'{{ unsigned r; asm("cvt.rn.{name}x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); '
        "return r; }"
        for name in ("f16", "bf16")
    },
    # the upper half of an f32; the maximum with -inf is the number itself, or the canonical NaN
    "bf16_to_f32": "FN float bf16_to_f32(unsigned short a) "
    '{ float r; asm("max.NaN.f32 %0, %1, 0fFF800000;" : "=f"(r) : '
    '"f"(__uint_as_float((unsigned)a << 16))); return r; }',
}
_ANY = {
    "upper_half": "FN float upper_half(unsigned short a) "
    "{ return __uint_as_float((unsigned)a << 16); }",
    "f16_to_f32": _asm("f16_to_f32", "float", "unsigned short", "cvt.f32.f16 %0, %1", "f", "h"),
    "f32_to_f16": _asm("f32_to_f16", "unsigned short", "float", "cvt.rn.f16.f32 %0, %1", "h", "f"),
    "bits_f64_u64": "FN unsigned long long bits_f64_u64(double a) "
    "{ return (unsigned long long)__double_as_longlong(a); }",
    "bits_u64_f64": "FN double bits_u64_f64(unsigned long long a) "
    "{ return __longlong_as_double((long long)a); }",
}
_WORDS = {4: "unsigned", 8: "uint2", 16: "uint4", 2: "unsigned short"}
_VECTORS = {"f32": "float", "f64": "double", "i32": "int", "u32": "uint"}
WARP = 32
MBARRIER_BYTES = 8  # PTX ISA, "Size and alignment of mbarrier object"
TENSOR_MAP_BYTES = 128  # cuda.h, CUtensorMap
_OF_WARPS = (AxisType.WARP, AxisType.WARPGROUP)

_ATOMIC = {
    Atomic.ADD: "atomicAdd",
    Atomic.MIN: "atomicMin",
    Atomic.MAX: "atomicMax",
    Atomic.AND: "atomicAnd",
    Atomic.OR: "atomicOr",
    Atomic.XOR: "atomicXor",
    Atomic.EXCHANGE: "atomicExch",
    Atomic.CAS: "atomicCAS",
}
#: dtypes that CUDA's functions take as they are (Programming Guide, atomic functions); the others
#: travel as unsigned integers of their size
_TAKEN_AS_IT_IS: dict[Atomic, tuple[DType, ...]] = {
    Atomic.ADD: (dtypes.i32, dtypes.u32, dtypes.u64, dtypes.f32, dtypes.f64),
    **dict.fromkeys((Atomic.MIN, Atomic.MAX), (dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)),
    **dict.fromkeys((Atomic.AND, Atomic.OR, Atomic.XOR), (dtypes.i32, dtypes.u32, dtypes.u64)),
    Atomic.EXCHANGE: (dtypes.i32, dtypes.u32, dtypes.u64, dtypes.f32),
    Atomic.CAS: (dtypes.i32, dtypes.u32, dtypes.u64),
}
_SHUFFLE = {
    ShuffleMode.XOR: "__shfl_xor_sync",
    ShuffleMode.UP: "__shfl_up_sync",
    ShuffleMode.DOWN: "__shfl_down_sync",
    ShuffleMode.INDEX: "__shfl_sync",
}

#: where a failed ASSERT leaves what failed; the runtime sets it to 32 bytes of the host's memory
#: that survive the kernel (`uopc/runtime/cuda.py`)
ASSERT_REPORT = "uopc_report"
#: the first thread that fails prints, reports and stops everything; others wait for that
_ASSERT_FAILED = ptx.Spelling(
    "uopc_assert_failed",
    f"""extern "C" __device__ unsigned* {ASSERT_REPORT} = 0;
__device__ unsigned uopc_failed = 0;
__device__ __noinline__ void uopc_assert_failed(unsigned number, const char* message) {{
  if (atomicExch(&uopc_failed, 1u)) for (;;) __nanosleep(1000u);
  printf("assert failed: %s, in block (%u, %u, %u), thread (%u, %u, %u)\\n", message,
    blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  if (volatile unsigned* const r = {ASSERT_REPORT}) {{
    r[1] = blockIdx.x; r[2] = blockIdx.y; r[3] = blockIdx.z;
    r[4] = threadIdx.x; r[5] = threadIdx.y; r[6] = threadIdx.z;
    r[0] = number + 1u;
    __threadfence_system();
  }}
  __trap();
}}""",
)


#: what makes one NaN of all NaNs, or asks only whether there is one
_ARITHMETIC = frozenset(
    (Ops.ADD, Ops.SUB, Ops.MUL, Ops.DIV, Ops.FMA, Ops.SQRT, Ops.MAX, Ops.MIN, *COMPARE)
)


def _exposed(order: Sequence[UOp]) -> set[UOp]:
    """Values of 16 bits whose NaNs show once they are f32: a CAST gives the canonical one."""
    return {
        s.src[0]
        for u in order
        if u.op not in _ARITHMETIC
        for s in u.src
        if s.op is Ops.CAST and s.dtype is dtypes.f32
    }


class CUDARenderer(Renderer):
    """PROGRAM -> CUDA C for one Target."""

    restrict = "__restrict__"
    #: the number of the line after the kernel's head, from 1; known once it is rendered
    first_line = 0

    def __init__(self, program: ProgramTree, name: str, target: Target) -> None:
        super().__init__(program, name)
        self.target = target
        self.texts = {**helpers.TEXTS, **_ANY, **(_SM80 if target.has_max_nan else {})}
        self.order = toposort(program.sink)
        self.exposed = _exposed(self.order)
        self.streaming = bool(program.sink.arg and program.sink.arg.streaming)
        self.updated = _updated(self.order)
        self.grid = frozenset(hardware_ranges(program.sink, AxisType.GLOBAL))
        check_clusters(name, program.launch.cluster, target)
        self._check_target()
        self.offsets, self.shared_bytes = shared_layout(program)
        self.alignments = shared_alignments(program.sink)
        self._place_mbarriers()
        check_shared(name, self.shared_bytes, target)
        self.dynamic = self.shared_bytes > target.shared_static_bytes
        self.spellings: dict[str, ptx.Spelling] = {}
        self.maps = self._tensor_maps()
        self.asserts: dict[str, int] = {}  # message -> number
        self.used_values = {s for u in self.order for s in _values(u) if s.op is Ops.ATOMIC}
        self.wgmma_registers = self._wgmma_registers()
        self.visible: list[UOp] = []  # those of them that are declared where we are
        launch = program.launch
        self.warps = -(-launch.threads // WARP)
        whole = launch.threads % WARP == 0
        self.uniform = [
            a
            for a in launch.block_axes
            if whole and a.range.arg.kind in _OF_WARPS and a.stride % WARP == 0
        ]

    # ---- what the whole kernel needs
    def _check_target(self) -> None:
        """Raises TargetError for an op that the target has no instruction for."""
        for u in self.order:
            need = ptx.required(u)
            if need is not None and not need.holds(self.target):
                also = "" if need.target.endswith("a") else " or later"
                raise TargetError(
                    f"kernel {self.name}: {u.op} at {where_from(u)} needs {need.instruction}, "
                    f"which {self.target} lacks. Render for target={need.target!r}{also}, or "
                    f"{need.instead}."
                )

    def _place_mbarriers(self) -> None:
        """mbarriers stand behind the tiles; a static one has its own declaration."""
        for item in self.program.walk():
            if isinstance(item, Declare) and _space(item.alloc) is AddrSpace.MBARRIER:
                self.offsets[item.alloc] = self.shared_bytes
                size = MBARRIER_BYTES * prod(item.alloc.arg.shape)
                self.shared_bytes += round_up(size, SHARED_ALIGNMENT)

    def _tensor_maps(self) -> dict[TensorMapUse, str]:
        """The kernel's tensor maps, in the order of their first copies, and their names."""
        maps: dict[TensorMapUse, str] = {}
        for u in self.order:
            if u.op is Ops.TENSORMAP:
                _check_inside(self.name, u)
                maps.setdefault(_map_use(u), f"map{len(maps)}")
        return maps

    def _wgmma_registers(self) -> set[UOp]:
        """Memories in registers that wgmma works on."""
        found: set[UOp] = set()
        for u in self.order:
            if u.op is Ops.MMA and layouts.ATOMS[u.arg].engine == "wgmma":
                found.update(memory(s) for s in u.src[:2] if s.op is Ops.INDEX)
        return found

    def spell(self, spelling: ptx.Spelling) -> str:
        """The name of an instruction's function, which is put before the kernel."""
        for name in spelling.needs:
            self.spell(_COMMON[name])
        self.spellings.setdefault(spelling.name, spelling)
        return spelling.name

    def special(self, bits: int, d: DType) -> str:
        return (
            f"__int_as_float({bits:#x})"
            if d is dtypes.f32
            else f"__longlong_as_double({bits:#x}ll)"
        )

    def function(self, helper: str) -> str:
        return BUILT_IN.get(helper, helper)

    def wide_copy(self, d: DType, width: int, to: UOp, source: UOp, inside: str | None) -> str:
        size = width * d.itemsize
        c = f"{_VECTORS[d.name]}{width}" if d.name in _VECTORS and width in (2, 4) else _WORDS[size]
        read = f"(const {c}*)&{self.element(source)}"
        read = f"__ldcs({read})" if self._is_streamed(source) else f"*{read}"
        if inside is not None:
            zeros = f"{c}{{}}" if c[-1] in "248" else "0"  # uint4{}, but 0 where c is a scalar
            read = f"{inside} ? {read} : {zeros}"
        return f"*({c}*)&{self.element(to)} = {read};"

    def _is_streamed(self, index: UOp) -> bool:
        """Is an element loaded with a hint to the caches that no one will want it again?

        Only one that no other block reads, and not of what is both read and written: the compiler
        may move a hinted load past a store.
        """
        return (
            self.streaming
            and self.grid <= free(index)
            and index.dtype is not dtypes.bool  # which the functions lack
            and _space(index) is AddrSpace.GLOBAL
            and segment(index) is None
            and memory(index) not in self.updated
        )

    def qualifier(self, m: UOp) -> str:
        if _space(m) in (AddrSpace.SHARED, AddrSpace.CLUSTER):
            return f"__shared__ __align__({self.alignments.get(m, SHARED_ALIGNMENT)}) "
        if _space(m) is AddrSpace.MBARRIER:
            return f"__shared__ __align__({MBARRIER_BYTES}) "
        return "__align__(16) " if prod(m.arg.shape) > 1 else ""

    def declare(self, m: UOp) -> None:
        if m in self.wgmma_registers:
            self.visible.append(m)
        if m in self.offsets and self.dynamic:
            c = self.type_name(m.dtype)
            self.statements.append((len(self.lines), m))
            self.put(f"{c}* const {self.memory_name(m)} = ({c}*)(shared + {self.offsets[m]});")
        else:
            super().declare(m)

    # ---- scopes
    def block(self, items: Sequence[Item]) -> None:
        at = 0
        while at < len(items):
            if not _is_role(items[at]):
                super().block(items[at : at + 1])
                at += 1
                continue
            before, roles, at = _chain_of_roles(items, at)
            super().block(before)
            self._roles(roles)

    def scope(self, scope: Scope) -> None:
        visible = len(self.visible)
        if scope.opener.op is Ops.RANGE:
            super().scope(scope)
        else:
            self._inside(f"if ({self.expr(scope.opener.src[0])})", scope)
        del self.visible[visible:]

    def _inside(self, head: str, scope: Scope, *first: str) -> None:
        self.put_from(scope.opener, head + " {")
        self.depth += 1
        for line in first:
            self.put(line)
        self.block(scope.items)
        self.depth -= 1
        self.put("}")

    def _roles(self, roles: Sequence[Scope]) -> None:
        """An if / else chain by the number of the warp, which is the same in all of its lanes."""
        all_warps = sum(s.opener.arg.warps for s in roles) == self.warps
        for n, scope in enumerate(roles):
            a: RoleArg = scope.opener.arg
            last = n > 0 and all_warps and n == len(roles) - 1
            head = "else" if last else f"{'else ' if n else ''}if ({_warps(a)})"
            visible = len(self.visible)
            registers = (ptx.statement(ptx.set_registers(a)),) if a.registers else ()
            self._inside(head, scope, f"// role {a.name}", *registers)
            del self.visible[visible:]

    def cast(self, x: UOp, to: DType) -> Text:
        if x.dtype is dtypes.bf16 and to is dtypes.f32 and x not in self.exposed:
            return self.call("upper_half", x)
        return super().cast(x, to)

    # ---- memory of a cluster
    def element(self, u: UOp) -> str:
        """The lvalue of an INDEX; in CLUSTER memory of what this block holds."""
        if isinstance(u.arg, BasedArg):
            base, displacement = u.src[1].src
            start = super().element(UOp(Ops.INDEX, (u.src[0], base)))
            return f"(&{start})[{self.expr(displacement)}]"
        if _space(u) is not AddrSpace.CLUSTER:
            return super().element(u)
        return f"{self.memory_name(u)}[{self.expr(owner(u)[1])}]"

    def _rank_elsewhere(self, u: UOp) -> UOp | None:
        """The rank of the block that holds an element of CLUSTER memory, if it may be another one
        than this block."""
        if _space(u) is not AddrSpace.CLUSTER:
            return None
        rank = owner(u)[0]
        return None if is_rank(rank) else rank

    def load(self, u: UOp) -> Text:
        rank = self._rank_elsewhere(u.src[0])
        if rank is None and not self._is_streamed(u.src[0]):
            return super().load(u)
        if rank is None:
            there = f"__ldcs(&{self.element(u.src[0])})"
        else:
            call = self.spell(ptx.load_at_rank(u.dtype))
            there = f"{call}({self.pointer(u.src[0])}, {self.expr(rank)})"
        if u.dtype is dtypes.bool:
            there = f"({there} != 0)"
        if len(u.src) == 1:
            return there, PRIMARY
        return f"{self.expr(u.src[1], 11)} ? {there} : {self.expr(u.src[2], 10)}", 10

    def store(self, u: UOp) -> None:
        rank = self._rank_elsewhere(u.src[0])
        if rank is None:
            super().store(u)
            return
        gate = f"if ({self.expr(u.src[2])}) " if len(u.src) == 3 else ""
        to = (self.pointer(u.src[0]), self.expr(rank), self.expr(u.src[1]))
        self.put_from(u, gate + self.call_to(ptx.store_at_rank(u.src[1].dtype), *to))

    # ---- effects
    def do(self, item: Do) -> None:
        u = item.effect
        if u.op is Ops.STORE:
            self.store(u)
        else:
            self.put_from(u, _EFFECTS[u.op](self, u))

    def pointer(self, u: UOp) -> str:
        """The address of an INDEX."""
        return f"&{self.element(u)}"

    def map_pointer(self, u: UOp) -> str:
        """The address of a tensor map, which is a parameter."""
        return f"&{self.maps[_map_use(u)]}"

    def call_to(self, spelling: ptx.Spelling, *arguments: str) -> str:
        """A call of an instruction's function, as a statement."""
        return f"{self.spell(spelling)}({', '.join(arguments)});"

    def _barrier(self, u: UOp) -> str:
        a: BarrierArg = u.arg or BarrierArg()
        if a.scope in ptx.CLUSTER_BARRIER:
            return " ".join(map(ptx.statement, ptx.CLUSTER_BARRIER[a.scope]))
        if a.scope is BarrierScope.NAMED:
            return ptx.named_barrier(self.expr(u.src[0]), a.threads)
        if a.scope is BarrierScope.WARP:
            return f"__syncwarp({self._members(a.members)});"
        return "__syncthreads();"

    def _copy(self, u: UOp) -> str:
        to, source, *rest = u.src
        if u.arg.engine is Engine.CLUSTER:
            return self._send(to, source, *rest)
        if u.arg.engine is Engine.CP_ASYNC:
            spelling = ptx.copy_async(u.arg.width * to.dtype.itemsize, bool(rest))
            gate = [self.expr(g) for g in rest]
            return self.call_to(spelling, self.pointer(to), self.pointer(source), *gate)
        if source.op is Ops.TENSORMAP:
            mbarrier, *where = rest
            places = [self.pointer(to), self.map_pointer(source), self.pointer(mbarrier)]
            return self.call_to(ptx.bulk_load(len(where)), *places, *map(self.expr, where))
        places = [self.map_pointer(to), self.pointer(source)]
        return self.call_to(ptx.bulk_store(len(rest)), *places, *map(self.expr, rest))

    def _send(self, to: UOp, value: UOp, mbarrier: UOp, *gate: UOp) -> str:
        """A value to the block of the cluster that holds an element."""
        places = [self.pointer(to), self.expr(owner(to)[0]), self.expr(value)]
        sent = self.call_to(ptx.send(to.dtype), *places, self.pointer(mbarrier))
        return f"if ({self.expr(gate[0])}) {sent}" if gate else sent

    def _commit(self, u: UOp) -> str:
        return ptx.statement(ptx.COMMIT[u.arg])

    def _wait_group(self, u: UOp) -> str:
        wait = ptx.statement(ptx.wait_group(u.arg))
        done = u.arg.engine is Engine.WGMMA and u.arg.pending == 0
        return " ".join([wait, *(self._pins(u) if done else ())])

    def _fence(self, u: UOp) -> str:
        if u.arg in ptx.FENCE_FUNCTION:
            return ptx.FENCE_FUNCTION[u.arg]
        pins = self._pins(u) if u.arg is Fence.WGMMA else ()
        return " ".join([*pins, ptx.statement(ptx.FENCE[u.arg])])

    def _pins(self, u: UOp) -> list[str]:
        """Ordinary code on the registers that an effect covers stays on its side of it."""
        named = [memory(s) for s in u.src if s.op in (Ops.AFTER, Ops.ALLOC) and _is_memory(s)]
        covers = [m for m in self.visible if not named or m in named]
        return [self.call_to(ptx.PIN, self.memory_name(m)) for m in covers]

    def _init(self, u: UOp) -> str:
        count = self.expr(u.src[1])
        return self.call_to(ptx.MBARRIER_INIT, self.pointer(u.src[0]), count)

    def _arrive(self, u: UOp) -> str:
        mbarrier = self.pointer(u.src[0])
        if len(u.src) == 1:
            return self.call_to(ptx.MBARRIER_ARRIVE, mbarrier)
        return self.call_to(ptx.MBARRIER_EXPECT, mbarrier, self.expr(u.src[1]))

    def _wait(self, u: UOp) -> str:
        wait = ptx.mbarrier_wait(self.target, self.program.launch.cluster > 1)
        return self.call_to(wait, self.pointer(u.src[0]), self.expr(u.src[1]))

    def _matrix(self, u: UOp) -> str:
        store = u.op is Ops.STMATRIX
        moves = layouts.STMATRIX if store else layouts.LDMATRIX
        spelling = ptx.matrix(moves[u.arg.tiles, u.arg.transposed], store)
        return self.call_to(spelling, *map(self.pointer, u.src))

    def _mma(self, u: UOp) -> str:
        atom = layouts.ATOMS[u.arg]
        accumulator, a, b, *keep = u.src
        operands = [self.pointer(s) if s.op is Ops.INDEX else self.expr(s) for s in (a, b)]
        if atom.engine == "wgmma":
            operands.append(self.expr(keep[0]) if keep else "true")
        elif keep:
            raise SpecError(
                f"kernel {self.name}: MMA at {where_from(u)}: {u.arg} always adds; only wgmma "
                "takes a predicate. Set the accumulator to 0."
            )
        spelling = ptx.mma(atom, (_is_transposed(a), _is_transposed(b)))
        return self.call_to(spelling, self.pointer(accumulator), *operands)

    def _printf(self, u: UOp) -> str:
        form, values = self.printed(u)
        return f"printf({', '.join([form, *values])});"

    def _assert(self, u: UOp) -> str:
        number = self.asserts.setdefault(u.arg, len(self.asserts))
        failed = self.call_to(_ASSERT_FAILED, str(number), c_literal(u.arg))
        return f"if (!({self.expr(u.src[0])})) {failed}"

    def pragma(self, r: UOp) -> list[str]:
        return ["#pragma unroll" if r.arg.kind is AxisType.UPCAST else "#pragma unroll 1"]

    # ---- values that lanes make together
    def _members(self, members: int) -> str:
        """A mask of lanes; a block of fewer than 32 threads has no others."""
        return f"{members & ((1 << min(WARP, self.program.launch.threads)) - 1):#x}u"

    def shuffle(self, u: UOp) -> str:
        """The text of a SHUFFLE whose operand has a name; types that shfl lacks travel as bits."""
        by = f"(int){self.expr(u.src[1], 90)}" if len(u.src) == 2 else str(u.arg.by)
        value, d = self.expr(u.src[0]), u.dtype
        call = f"{_SHUFFLE[u.arg.mode]}({self._members(u.arg.members)}, {{}}, {by})"
        if d.bits >= 32:
            return call.format(value)
        if d is dtypes.bool:
            return call.format(f"(int){value}") + " != 0"
        return f"({self.type_name(d)})" + call.format(f"(unsigned){value}")

    def vote(self, u: UOp) -> str:
        members, condition = self._members(u.arg.members), self.expr(u.src[0])
        if u.arg.vote is Vote.BALLOT:
            return f"__ballot_sync({members}, {condition})"
        return f"__{u.arg.vote.name.lower()}_sync({members}, {condition}) != 0"

    def warp_reduce(self, u: UOp) -> str:
        spelling = ptx.warp_reduce(u.arg.combine, u.dtype is dtypes.i32, self.target)
        return f"{self.spell(spelling)}({self.expr(u.src[0])}, {self._members(u.arg.members)})"

    def atomic(self, u: UOp) -> str:
        """A call of CUDA's function; dtypes that it lacks travel as unsigned integers."""
        d, how = u.dtype, u.arg.atomic
        operands = [self.expr(s) for s in u.src[1:]]
        if how is Atomic.CAS:
            operands.reverse()  # CUDA wants what it compares with first
        place = self.pointer(u.src[0])
        if d in _TAKEN_AS_IT_IS[how]:
            return f"{_ATOMIC[how]}({', '.join([place, *operands])})"
        carrier = "unsigned" if d.bits == 32 else "unsigned long long"
        there, back = _AS_BITS[d]
        bits = [there.format(x) for x in operands]
        return back.format(f"{_ATOMIC[how]}({', '.join([f'({carrier}*){place}', *bits])})")

    def let(self, u: UOp) -> None:
        if u.op is Ops.ATOMIC and u not in self.used_values:
            self.put_from(u, f"{self.atomic(u)};")
            return
        made = _TOGETHER.get(u.op)
        if made is None:
            super().let(u)
            return
        text, name = made(self, u), self.fresh("ok" if u.dtype is dtypes.bool else "val")
        self.put_from(u, f"const {self.type_of(u)} {name} = {text};")
        self.names[u] = name

    def text(self, u: UOp) -> Text:
        if u.op is Ops.DESCRIPTOR and u not in self.names:
            layout = f"{ptx.descriptor_bits(u.arg):#x}ull"
            name = self.spell(ptx.DESCRIPTOR)
            return f"{name}({self.pointer(u.src[0])}, {layout})", PRIMARY
        pair = _rounded_pair(u) if self.target.has_max_nan and u not in self.names else None
        if pair is not None:
            return self.call(f"pack_{pair[0].name}", *pair[1:])
        return super().text(u)

    # ---- the kernel's head
    def hardware(self, axes: tuple[Axis, ...], register: str) -> None:
        """One name for each range that hardware gives."""
        for n, a in enumerate(axes):
            name = self.range_name(a.range)
            self.names[a.range] = name
            self.taken.add(name)
            self.statements.append((len(self.lines), a.range))
            if a in self.uniform:
                text = "warp" if a.stride == WARP else f"warp / {a.stride // WARP}"
                if n < len(axes) - 1:
                    text = f"{text} % {a.range.arg.size}"
            elif a.whole:
                text = f"{register}.{'xyz'[a.dim]}"
            else:
                here = f"(int){register}.x"
                text = here if a.stride == 1 else f"{here} / {a.stride}"
                if n < len(axes) - 1:
                    text = f"{text} % {a.range.arg.size}"
            self.put(f"const int {name} = {text};")

    def warp_number(self) -> None:
        """The number of the warp, broadcast so that the compiler knows it is uniform."""
        x, y, _ = self.program.launch.block
        thread = "(int)threadIdx.x"
        if self.program.launch.threads > x:
            thread = f"(int)(threadIdx.x + {x}u * (threadIdx.y + {y}u * threadIdx.z))"
        number = f"{thread} / {WARP}"
        whole = self.program.launch.threads % WARP == 0
        text = f"__shfl_sync(~0u, {number}, 0)" if whole else number
        self.put(f"const int warp = {text};")

    def signature(self) -> str:
        """Parameters in slot order, then tensor maps."""
        out = []
        for p in self.program.params:
            c = self.type_name(p.dtype)
            out.append(
                f"const {c} p{p.slot}"
                if p.scalar
                else f"{'' if p.written else 'const '}{c}*{' const*' * bool(p.bundle)} "
                f"__restrict__ p{p.slot}"
            )
        out += [f"const __grid_constant__ TensorMap {name}" for name in self.maps.values()]
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
        size += TENSOR_MAP_BYTES * len(self.maps)
        if size > self.target.parameter_bytes:
            raise TargetError(
                f"kernel {self.name} has {size} bytes of parameters, {self.target} takes "
                f"{self.target.parameter_bytes}. Split it into kernels with fewer arrays."
            )
        if self.dynamic:
            alignment = max([SHARED_ALIGNMENT, *self.alignments.values()])
            self.put(f"extern __shared__ __align__({alignment}) unsigned char shared[];")
        self.hardware(launch.grid_axes, "blockIdx")
        if self.uniform or any(u.op is Ops.ROLE for u in self.order):
            self.warp_number()
        if self.maps:
            self.spell(ptx.TENSOR_MAP)
        self.hardware(launch.block_axes, "threadIdx")
        self.block(self.program.items)
        texts = [self._helper(h) for h in self.used if h not in BUILT_IN]
        texts += [
            s.text.replace("FN", "__device__ __forceinline__") for s in self.spellings.values()
        ]
        bounds = (
            f"{launch.threads}, {launch.blocks_per_sm}"
            if launch.blocks_per_sm
            else f"{launch.threads}"
        )
        clusters = f"__cluster_dims__({launch.cluster}, 1, 1) " if launch.cluster > 1 else ""
        first = f'extern "C" __global__ void {clusters}__launch_bounds__({bounds}) '
        first += f"{self.name}({self.signature()}) {{"
        head = "\n".join([*texts, first])
        self.first_line = 2 + head.count("\n")
        return Source(
            "\n".join([head, *self.lines, "}", ""]),
            name=self.name,
            language="cuda",
            params=self.program.params,
            launch=launch,
            shared_bytes=self.shared_bytes,
            dynamic_shared_bytes=self.shared_bytes if self.dynamic else 0,
            target=self.target,
            tensor_maps=tuple(self.maps),
            asserts=tuple(self.asserts),
        )


_COMMON = {s.name: s for s in (ptx.SHARED, ptx.TENSOR_MAP, ptx.MAP_TO_RANK)}
#: how a value travels as bits, and comes back
_AS_BITS = {
    dtypes.i64: ("(unsigned long long)({})", "(long long){}"),
    dtypes.f32: ("__float_as_uint({})", "__uint_as_float({})"),
    dtypes.f64: (
        "(unsigned long long)__double_as_longlong({})",
        "__longlong_as_double((long long){})",
    ),
}
_TOGETHER: dict[Ops, Callable[[CUDARenderer, UOp], str]] = {
    Ops.SHUFFLE: CUDARenderer.shuffle,
    Ops.VOTE: CUDARenderer.vote,
    Ops.WARP_REDUCE: CUDARenderer.warp_reduce,
    Ops.ATOMIC: CUDARenderer.atomic,
}
#: the statement of each effect but STORE and ATOMIC
_EFFECTS: dict[Ops, Callable[[CUDARenderer, UOp], str]] = {
    Ops.BARRIER: CUDARenderer._barrier,
    Ops.COPY: CUDARenderer._copy,
    Ops.COMMIT: CUDARenderer._commit,
    Ops.WAITG: CUDARenderer._wait_group,
    Ops.FENCE: CUDARenderer._fence,
    Ops.MBAR_INIT: CUDARenderer._init,
    Ops.ARRIVE: CUDARenderer._arrive,
    Ops.WAIT: CUDARenderer._wait,
    Ops.LDMATRIX: CUDARenderer._matrix,
    Ops.STMATRIX: CUDARenderer._matrix,
    Ops.MMA: CUDARenderer._mma,
    Ops.PRINTF: CUDARenderer._printf,
    Ops.ASSERT: CUDARenderer._assert,
}


def _rounded_pair(u: UOp) -> tuple[DType, UOp, UOp] | None:
    """(dtype of 16 bits, low, high) where a word is made of two f32 that are rounded to it."""
    if u.op is not Ops.OR:
        return None
    low, high = u.src if u.src[1].op is Ops.SHL else u.src[::-1]
    if high.op is not Ops.SHL or high.src[1] is not UOp.const(16, high.src[1].dtype):
        return None
    a, b = _rounded(low), _rounded(high.src[0])
    if a is None or b is None or a.dtype is not b.dtype:
        return None
    return a.dtype, a.src[0], b.src[0]


def _rounded(x: UOp) -> UOp | None:
    """The CAST to 16 bits of an f32 whose bits an u32 is."""
    for op, dtype in ((Ops.CAST, dtypes.u32), (Ops.BITCAST, dtypes.u16)):
        if x.op is not op or x.dtype is not dtype:
            return None
        x = x.src[0]
    narrow = x.op is Ops.CAST and x.dtype in (dtypes.f16, dtypes.bf16)
    return x if narrow and x.src[0].dtype is dtypes.f32 else None


def _space(m: UOp) -> AddrSpace:
    space: AddrSpace = memory(m).arg.addrspace
    return space


def _updated(order: Sequence[UOp]) -> set[UOp]:
    """Memories that are both read and written."""
    loaded = {memory(u.src[0]) for u in order if u.op in (Ops.LOAD, Ops.ATOMIC)}
    return loaded & {memory(u.src[0]) for u in order if u.op in (Ops.STORE, Ops.ATOMIC)}


def _is_memory(u: UOp) -> bool:
    """Is this a memory, or a version of one?"""
    return memory(u).op is Ops.ALLOC


def _map_use(u: UOp) -> TensorMapUse:
    """What a TENSORMAP is to the launch: equal ones are one parameter."""
    return TensorMapUse(memory(u.src[0]).arg.slot, u.dtype, u.arg)


def _check_inside(kernel: str, u: UOp) -> None:
    """Raises SpecError where a tensor map views more than its parameter has."""
    a: TensorMapArg = u.arg
    steps = zip(a.shape, (*a.strides, 1), strict=True)
    views, has = 1 + sum((n - 1) * step for n, step in steps), prod(memory(u.src[0]).arg.shape)
    if views > has:
        raise SpecError(
            f"kernel {kernel}: TENSORMAP at {where_from(u)} views {views} elements of parameter "
            f"{memory(u.src[0]).arg.slot}, which has {has}."
        )


def _values(u: UOp) -> Sequence[UOp]:
    """The sources whose values u takes; the others only come before it."""
    if u.op in (Ops.END, Ops.SINK, Ops.ROLE, Ops.COMMIT, Ops.WAITG, Ops.FENCE):
        return ()
    if u.op in (Ops.AFTER, Ops.IF, Ops.ASSERT):
        return u.src[:1]
    if u.op is Ops.BARRIER:
        named = u.arg is not None and u.arg.scope is BarrierScope.NAMED
        return u.src[:1] if named else ()
    if u.op is Ops.PRINTF:
        return u.src[: u.arg.format.count("{}")]
    return u.src


def _is_transposed(operand: UOp) -> bool:
    """Does a wgmma operand's descriptor say that m or n is contiguous?"""
    found = described(operand)
    return found is not None and bool(found.arg.transposed)


def _warps(a: RoleArg) -> str:
    """The condition that a warp has a role."""
    if a.warps == 1:
        return f"warp == {a.first}"
    end = f"warp < {a.first + a.warps}"
    return f"warp >= {a.first} && {end}" if a.first else end


def _is_role(item: Item) -> bool:
    return isinstance(item, Scope) and item.opener.op is Ops.ROLE


def _chain_of_roles(items: Sequence[Item], at: int) -> tuple[list[Item], list[Scope], int]:
    """Roles of different warps from position `at` on, the values between them that may stand
    before all of them, and the position after."""
    before: list[Item] = []
    roles: list[Scope] = []
    end = at
    waiting: list[Item] = []  # values seen since the last role
    warps: set[int] = set()
    for n in range(at, len(items)):
        item = items[n]
        if isinstance(item, Scope) and item.opener.op is Ops.ROLE:
            a: RoleArg = item.opener.arg
            mine = set(range(a.first, a.first + a.warps))
            if mine & warps:
                break
            warps |= mine
            roles.append(item)
            before, waiting, end = before + waiting, [], n + 1
        elif isinstance(item, Let) and not _comes_after(item.value, roles):
            waiting.append(item)
        else:
            break
    return before, roles, end


def _comes_after(u: UOp, roles: Sequence[Scope]) -> bool:
    """Is a value seen after what some role did?"""
    openers = {s.opener for s in roles}
    return any(s.op is Ops.END and not openers.isdisjoint(s.src) for s in toposort(u))


def render_cuda(
    program: ProgramTree, name: str, target: str | Target = "sm_80", origins: bool = False
) -> Source:
    """CUDA text of a GPU kernel for one Target.  origins: the user's file and line as comments.

    Raises TargetError beyond the target's limits.
    """
    renderer = CUDARenderer(program, name, named_target(target))
    renderer.origins = origins
    return renderer.render()

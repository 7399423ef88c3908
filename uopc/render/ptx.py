"""How CUDA C spells the instructions that it has no function for: data, one record each.

A record is a small device function around one line of asm, named ptx_...; `uopc/render/cuda.py`
puts those that a kernel calls before it.  `required` says which target an op needs.  Atoms, moves
and descriptors are those of `uopc.layouts`.

Source of every form: PTX ISA 9.0, the section of the instruction that the text names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from uopc import layouts
from uopc.dtype import DType, dtypes
from uopc.layouts import Atom, MatrixMove, Operand
from uopc.target import Target
from uopc.uop.node import UOp
from uopc.uop.ops import (
    BarrierScope,
    Combine,
    CopyArg,
    DescriptorArg,
    Engine,
    Fence,
    Ops,
    RoleArg,
    WaitArg,
)


@dataclass(frozen=True)
class Spelling:
    """A device function: its name, its text (FN is how such functions begin), those it calls."""

    name: str
    text: str
    needs: tuple[str, ...] = ()


SHARED = Spelling(
    "ptx_shared",
    "FN unsigned ptx_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }",
)
#: what a launch passes for a TENSORMAP (cuda.h, CUtensorMap)
TENSOR_MAP = Spelling(
    "TensorMap", "struct __align__(64) TensorMap { unsigned long long words[16]; };"
)


def _asm(instruction: str, operands: Sequence[str]) -> str:
    return f'asm volatile("{instruction};" :: {", ".join(operands)} : "memory");'


def _effect(
    name: str,
    parameters: str,
    instruction: str,
    *operands: str,
    needs: tuple[str, ...] = (SHARED.name,),
) -> Spelling:
    """A function without a value that is one instruction."""
    body = _asm(instruction, operands)
    return Spelling(name, f"FN void {name}({parameters}) {{\n  {body}\n}}", needs)


def _address(name: str) -> str:
    """A shared memory operand: 32 bits of address."""
    return f'"r"(ptx_shared({name}))'


# ---- instructions without operands: statements
def statement(instruction: str) -> str:
    """One instruction where it stands."""
    return f'asm volatile("{instruction};" ::: "memory");'


COMMIT: dict[Engine, str] = {
    Engine.CP_ASYNC: "cp.async.commit_group",
    Engine.BULK: "cp.async.bulk.commit_group",
    Engine.WGMMA: "wgmma.commit_group.sync.aligned",
}
FENCE: dict[Fence, str] = {
    Fence.PROXY_ASYNC: "fence.proxy.async.shared::cta",
    Fence.MBAR_INIT: "fence.mbarrier_init.release.cluster",
    Fence.WGMMA: "wgmma.fence.sync.aligned",
}
#: fences that CUDA C has functions for
FENCE_FUNCTION = {Fence.BLOCK: "__threadfence_block();", Fence.DEVICE: "__threadfence();"}


def wait_group(a: WaitArg) -> str:
    """The instruction of a WAITG."""
    name = {
        Engine.CP_ASYNC: "cp.async.wait_group",
        Engine.BULK: "cp.async.bulk.wait_group" + (".read" if a.read else ""),
        Engine.WGMMA: "wgmma.wait_group.sync.aligned",
    }[a.engine]
    return f"{name} {a.pending}"


def set_registers(a: RoleArg) -> str:
    """The setmaxnreg that a role begins with."""
    return f"setmaxnreg.{'inc' if a.grow else 'dec'}.sync.aligned.u32 {a.registers}"


def named_barrier(number: str, threads: int) -> str:
    """The statement that waits at a barrier by its number."""
    return _asm(f"bar.sync %0, {threads}", [f'"r"({number})'])


# ---- clusters: blocks that meet, and touch each other's shared memory
CLUSTER_BARRIER: dict[BarrierScope, tuple[str, ...]] = {
    BarrierScope.CLUSTER: (
        "barrier.cluster.arrive.release.aligned",
        "barrier.cluster.wait.acquire.aligned",
    ),
    BarrierScope.CLUSTER_ARRIVE: ("barrier.cluster.arrive.relaxed.aligned",),
    BarrierScope.CLUSTER_WAIT: ("barrier.cluster.wait.acquire.aligned",),
}
#: how an element of so many bytes travels: its type in PTX, in C, and the kind of register
_TRAVELS = {
    1: ("b8", "unsigned", "r"),
    2: ("b16", "unsigned short", "h"),
    4: ("b32", "unsigned", "r"),
    8: ("b64", "unsigned long long", "l"),
}
MAP_TO_RANK = Spelling(
    "ptx_at_rank",
    "FN unsigned ptx_at_rank(const void* p, int rank) {\n  unsigned at;\n"
    '  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(ptx_shared(p)), "r"(rank));\n'
    "  return at;\n}",
    (SHARED.name,),
)


def _element(d: DType) -> tuple[str, str, str]:
    """(type in PTX, in C, register) of an element on its way to or from another block."""
    if d in (dtypes.f32, dtypes.f64):
        return d.name, {32: "float", 64: "double"}[d.bits], {32: "f", 64: "d"}[d.bits]
    return _TRAVELS[d.itemsize]


def store_at_rank(d: DType) -> Spelling:
    """A write into the shared memory of the block of that rank, at the place of the own one."""
    kind, c, register = _element(d)
    name = f"ptx_store_at_rank_{kind}"
    operands = ['"r"(ptx_at_rank(to, rank))', f'"{register}"(x)']
    body = _asm(f"st.shared::cluster.{kind} [%0], %1", operands)
    return Spelling(name, f"FN void {name}(void* to, int rank, {c} x) {{\n  {body}\n}}", _AT_RANK)


def load_at_rank(d: DType) -> Spelling:
    """A read from the shared memory of the block of that rank."""
    kind, c, register = _element(d)
    name = f"ptx_load_at_rank_{kind}"
    asm = f'asm volatile("ld.shared::cluster.{kind} %0, [%1];" : "={register}"(x)'
    body = f'{c} x;\n  {asm} : "r"(ptx_at_rank(from, rank)) : "memory");\n  return x;'
    return Spelling(name, f"FN {c} {name}(const void* from, int rank) {{\n  {body}\n}}", _AT_RANK)


def send(d: DType) -> Spelling:
    """st.async into the shared memory of the block of that rank; its mbarrier counts the bytes."""
    kind, c, register = _element(d)
    name = f"ptx_send_{kind}"
    operands = ['"r"(ptx_at_rank(to, rank))', f'"{register}"(x)']
    operands.append('"r"(ptx_at_rank(mbarrier, rank))')
    form = f"st.async.shared::cluster.mbarrier::complete_tx::bytes.{kind} [%0], %1, [%2]"
    parameters = f"void* to, int rank, {c} x, void* mbarrier"
    body = _asm(form, operands)
    return Spelling(name, f"FN void {name}({parameters}) {{\n  {body}\n}}", _AT_RANK)


_AT_RANK = (SHARED.name, MAP_TO_RANK.name)


# ---- cp.async and bulk copies
def copy_async(size_bytes: int, gated: bool) -> Spelling:
    """cp.async of 4, 8 or 16 bytes; gated: zeros where its last argument is false.

    16 bytes go past L1, which is all that .cg takes.
    """
    name = f"ptx_cp_async_{size_bytes}{'_if' if gated else ''}"
    cache = "cg" if size_bytes == 16 else "ca"
    form = f"cp.async.{cache}.shared.global [%0], [%1], {size_bytes}"
    operands = [_address("to"), '"l"(__cvta_generic_to_global(from))']
    parameters = "void* to, const void* from"
    if gated:
        form, parameters = f"{form}, %2", f"{parameters}, bool inside"
        operands.append(f'"r"(inside ? {size_bytes} : 0)')
    return _effect(name, parameters, form, *operands)


def _coordinates(rank: int, first: int) -> tuple[str, str, list[str]]:
    """Parameters, places in the instruction (innermost first there) and operands."""
    names = [f"c{n}" for n in range(rank)]
    places = ",".join(f"%{first + n}" for n in reversed(range(rank)))
    return ", ".join(f"int {c}" for c in names), places, [f'"r"({c})' for c in names]


def bulk_load(rank: int) -> Spelling:
    """A box of a tensor map into shared memory; coordinates are given outermost first."""
    parameters, places, operands = _coordinates(rank, 3)
    return _effect(
        f"ptx_bulk_load_{rank}d",
        f"void* to, const TensorMap* map, const void* mbarrier, {parameters}",
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[%0], [%1, {{{places}}}], [%2]",
        *(_address("to"), '"l"(map)', _address("mbarrier"), *operands),
        needs=(SHARED.name, TENSOR_MAP.name),
    )


def bulk_store(rank: int) -> Spelling:
    """A tile of shared memory into a box of a tensor map; coordinates outermost first."""
    parameters, places, operands = _coordinates(rank, 2)
    return _effect(
        f"ptx_bulk_store_{rank}d",
        f"const TensorMap* map, const void* from, {parameters}",
        f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {{{places}}}], [%1]",
        *('"l"(map)', _address("from"), *operands),
        needs=(SHARED.name, TENSOR_MAP.name),
    )


# ---- mbarriers
MBARRIER_INIT = _effect(
    "ptx_mbarrier_init",
    "void* mbarrier, unsigned count",
    "mbarrier.init.shared::cta.b64 [%0], %1",
    *(_address("mbarrier"), '"r"(count)'),
)
MBARRIER_ARRIVE = _effect(
    "ptx_mbarrier_arrive",
    "void* mbarrier",
    "mbarrier.arrive.shared::cta.b64 _, [%0]",
    _address("mbarrier"),
)
MBARRIER_EXPECT = _effect(
    "ptx_mbarrier_expect",
    "void* mbarrier, unsigned bytes",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1",
    *(_address("mbarrier"), '"r"(bytes)'),
)


def mbarrier_wait(target: Target, cluster: bool = False) -> Spelling:
    """Waits for the phase of a parity: try_wait sleeps for a while, test_wait (sm_80) only asks.

    cluster: what threads of other blocks have sent is seen too.
    """
    ask = "try_wait" if target.sm >= 90 else "test_wait"
    scope = ".acquire.cluster" if cluster else ""
    asm = (
        f"{{ .reg .pred p; mbarrier.{ask}.parity{scope}.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
    )
    operands = f'"=r"(done) : {_address("mbarrier")}, "r"(parity) : "memory"'
    text = (
        "FN void ptx_mbarrier_wait(void* mbarrier, unsigned parity) {\n"
        "  unsigned done;\n"
        f'  do asm volatile("{asm}"\n    : {operands});\n'
        "  while (!done);\n}"
    )
    return Spelling("ptx_mbarrier_wait", text, (SHARED.name,))


# ---- tensor cores
def _each(count: int, first: int = 0) -> str:
    return "{" + ",".join(f"%{first + n}" for n in range(count)) + "}"


def matrix(move: MatrixMove, store: bool) -> Spelling:
    """ldmatrix or stmatrix of registers r[0], r[1], ..."""
    name = f"ptx_{'stmatrix' if store else 'ldmatrix'}_x{move.tiles}"
    name += "_trans" if move.transposed else ""
    n = move.tiles
    if store:
        registers = [f'"r"(r[{i}])' for i in range(n)]
        form = f"{move.instruction} [%0], {_each(n, 1)}"
        parameters = "void* row, const unsigned* r"
        return _effect(name, parameters, form, _address("row"), *registers)
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(n))
    asm = f'asm volatile("{move.instruction} {_each(n)}, [%{n}];"\n'
    asm += f'    : {outputs} : {_address("row")} : "memory");'
    text = f"FN void {name}(unsigned* r, const void* row) {{\n  {asm}\n}}"
    return Spelling(name, text, (SHARED.name,))


DESCRIPTOR = Spelling(
    "ptx_descriptor",
    "FN unsigned long long ptx_descriptor(const void* p, unsigned long long layout) {\n"
    "  return (ptx_shared(p) >> 4 & 0x3fff) | layout;\n}",
    (SHARED.name,),
)


def descriptor_bits(a: DescriptorArg) -> int:
    """All of a descriptor's 64 bits but its address."""
    return layouts.Descriptor(0, a.leading, a.stride, a.swizzle).encode()


def _held(operand: Operand) -> tuple[str, str]:
    """C type and asm constraint of the registers that hold an operand."""
    if operand.type == "f64":
        return "double", "d"
    if operand.packing > 1 or operand.type == "tf32":
        return "unsigned", "r"
    return {"f32": ("float", "f"), "i32": ("int", "r")}[operand.type]


def mma(atom: Atom, transposed: tuple[bool, bool] = (False, False)) -> Spelling:
    """An atom as a function of its registers; transposed: which wgmma operands are MN-major."""
    return _wgmma(atom, transposed) if atom.engine == "wgmma" else _mma_sync(atom)


def _accumulators(atom: Atom) -> tuple[int, str, str]:
    """How many registers, their C type, and their operands."""
    c, constraint = _held(atom.accumulator)
    count = atom.accumulator.registers
    return count, c, ", ".join(f'"+{constraint}"(d[{n}])' for n in range(count))


def _name(atom: Atom) -> str:
    return f"ptx_{re.sub(r'[^a-z0-9]', '_', atom.name)}"


def _mma_sync(atom: Atom) -> Spelling:
    count, c, accumulators = _accumulators(atom)
    inputs, places, at = [], [], count
    for name, operand in (("a", atom.a), ("b", atom.b)):
        constraint = _held(operand)[1]
        inputs += [f'"{constraint}"({name}[{n}])' for n in range(operand.registers)]
        places.append(_each(operand.registers, at))
        at += operand.registers
    (type_a, _), (type_b, _) = _held(atom.a), _held(atom.b)
    form = f"{atom.instruction} {_each(count)}, {', '.join(places)}, {_each(count)}"
    text = (
        f"FN void {_name(atom)}({c}* d, const {type_a}* a, const {type_b}* b) {{\n"
        f'  asm volatile("{form};"\n    : {accumulators} : {", ".join(inputs)});\n}}'
    )
    return Spelling(_name(atom), text)


def _wgmma(atom: Atom, transposed: tuple[bool, bool]) -> Spelling:
    count, c, accumulators = _accumulators(atom)
    held = atom.a.registers
    first = _each(held, count) if held else f"%{count}"
    at = count + (held or 1)
    inputs = [f'"r"(a[{n}])' for n in range(held)] or ['"l"(a)']
    inputs += ['"l"(b)', '"r"((int)keep)']
    values = {"scale_a": 1, "scale_b": 1}
    values |= {"transpose_a": int(transposed[0]), "transpose_b": int(transposed[1])}
    immediates = "".join(f", {values[name]}" for name in atom.immediates)
    form = (
        f"{{ .reg .pred p; setp.ne.b32 p, %{at + 1}, 0; "
        f"{atom.instruction} {_each(count)}, {first}, %{at}, p{immediates}; }}"
    )
    name = _name(atom) + "".join(
        f"_{which}_mn" for which, mn in zip("ab", transposed, strict=True) if mn
    )
    type_a = "const unsigned*" if held else "unsigned long long"
    text = (
        f"FN void {name}({c}* d, {type_a} a, unsigned long long b, bool keep) {{\n"
        f'  asm volatile("{form}"\n    : {accumulators}\n    : {", ".join(inputs)});\n}}'
    )
    return Spelling(name, text)


#: Registers that WGMMA works on must not move: they are written here, as far as the compiler knows.
PIN = Spelling(
    "ptx_pin",
    "\n".join(
        f"template<int N> FN void ptx_pin({c} (&r)[N]) {{\n"
        f'  #pragma unroll\n  for (int i = 0; i < N; ++i) asm volatile("" : "+{k}"(r[i]));\n}}'
        for c, k in (("float", "f"), ("int", "r"), ("unsigned", "r"))
    ),
)


# ---- warps
_REDUX = {
    Combine.ADD: "add",
    Combine.MIN: "min",
    Combine.MAX: "max",
    Combine.AND: "and",
    Combine.OR: "or",
    Combine.XOR: "xor",
}
_COMBINED = {
    Combine.ADD: "{0} + {1}",
    Combine.MIN: "{1} < {0} ? {1} : {0}",
    Combine.MAX: "{1} > {0} ? {1} : {0}",
    Combine.AND: "{0} & {1}",
    Combine.OR: "{0} | {1}",
    Combine.XOR: "{0} ^ {1}",
}


def warp_reduce(combine: Combine, signed: bool, target: Target) -> Spelling:
    """An integer of the member lanes combined: redux.sync from sm_80 on, else one lane after the
    other, so that it holds for any members."""
    word, c = _REDUX[combine], "int" if signed else "unsigned"
    kind = ("s32" if signed else "u32") if word in ("add", "min", "max") else "b32"
    name = f"ptx_redux_{word}_{kind}"
    if target.sm >= 80:
        body = (
            f'  {c} r;\n  asm volatile("redux.sync.{word}.{kind} %0, %1, %2;" '
            ': "=r"(r) : "r"(x), "r"(members));\n  return r;\n'
        )
        return Spelling(name, f"FN {c} {name}({c} x, unsigned members) {{\n{body}}}")
    sum_type = "unsigned" if combine is Combine.ADD else c  # signed sums would not wrap
    body = (
        f"  {sum_type} r = __shfl_sync(members, x, __ffs(members) - 1);\n"
        "  for (unsigned left = members & members - 1; left; left &= left - 1) {\n"
        f"    const {sum_type} other = __shfl_sync(members, x, __ffs(left) - 1);\n"
        f"    r = {_COMBINED[combine].format('r', 'other')};\n  }}\n  return ({c})r;\n"
    )
    return Spelling(name, f"FN {c} {name}({c} x, unsigned members) {{\n{body}}}")


# ---- which target an op needs
@dataclass(frozen=True)
class Need:
    """What an op takes for granted: the instruction, the first target with it, what to do else."""

    instruction: str
    target: str
    instead: str

    def holds(self, target: Target) -> bool:
        """Whether the target has it.  What needs an "a" is promised for that target alone; only
        setmaxnreg came to all later ones with an "a" or an "f"."""
        if not self.target.endswith("a"):
            return target.sm >= int(self.target.removeprefix("sm_"))
        if self.instruction == "setmaxnreg":
            return target.sm >= 90 and target.name[-1] in "af"
        return target.name == self.target


_CP_ASYNC = Need("cp.async", "sm_80", "copy with LOAD and STORE")
_BULK = Need("a bulk copy", "sm_90", "copy with Engine.CP_ASYNC")
_WGMMA = Need("wgmma", "sm_90a", "use an mma.sync atom")
_SEND = Need("st.async", "sm_90", "leave out Opts.cluster")
_OF_ENGINE = {Engine.CP_ASYNC: _CP_ASYNC, Engine.BULK: _BULK, Engine.WGMMA: _WGMMA}
_OF_ENGINE[Engine.CLUSTER] = _SEND
_MBARRIER = Need("mbarrier", "sm_80", "meet at a BARRIER")
_EXPECT = Need("mbarrier.arrive.expect_tx", "sm_90", "ARRIVE without bytes")
_STMATRIX = Need("stmatrix", "sm_90", "STORE the registers")
_REGISTERS = Need("setmaxnreg", "sm_90a", "leave RoleArg.registers at 0")
_FENCES = {
    Fence.PROXY_ASYNC: Need("fence.proxy.async", "sm_90", "leave it out: there is no bulk copy"),
    Fence.MBAR_INIT: Need("fence.mbarrier_init", "sm_90", "leave it out: there is no bulk copy"),
    Fence.WGMMA: _WGMMA,
}


def required(u: UOp) -> Need | None:
    """What an op needs of its target; None where every target has it."""
    if u.op is Ops.COPY:
        copy: CopyArg = u.arg
        return _OF_ENGINE[copy.engine]
    if u.op is Ops.COMMIT:
        return _OF_ENGINE[u.arg]
    if u.op is Ops.WAITG:
        return _OF_ENGINE[u.arg.engine]
    if u.op is Ops.MMA:
        atom = layouts.ATOMS[u.arg]
        other = "an mma.sync atom" if atom.engine == "wgmma" else "another atom"
        return Need(atom.instruction, atom.target, f"use {other} of uopc.layouts.ATOMS")
    if u.op is Ops.FENCE:
        return _FENCES.get(u.arg)
    if u.op is Ops.ARRIVE and len(u.src) == 2:
        return _EXPECT
    if u.op is Ops.ROLE:
        return _REGISTERS if u.arg.registers else None
    return {
        Ops.MBAR_INIT: _MBARRIER,
        Ops.ARRIVE: _MBARRIER,
        Ops.WAIT: _MBARRIER,
        Ops.STMATRIX: _STMATRIX,
        Ops.TENSORMAP: _BULK,
        Ops.DESCRIPTOR: _WGMMA,
    }.get(u.op)

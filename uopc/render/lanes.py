"""What one lane of an emulated kernel does: its statements, and in checked text its accesses.

Fast text is the CUDA text, name for name.  In checked text every access to memory goes through the
runtime, which knows who else touched that memory, and has a number, its place:

    const float val0 = *(const float*)emu_read(tile0, 4, 4ll * (63 - lidx0), 1, 2);

that is 4 bytes at this offset of tile0, inside it whatever lidx0 is (1), at place 2.
"""

from __future__ import annotations

from collections.abc import Iterable

from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.kernel import Do, Item, Let, ProgramTree, Scope
from uopc.render.base import PRIMARY, UNARY, Text, shared_layout
from uopc.render.intervals import calm_loads
from uopc.render.operands import operands
from uopc.render.overflow import IndexRenderer
from uopc.render.shadow import Shadow, shadows
from uopc.render.written import unproven_registers
from uopc.uop.facts import bounds, flushes
from uopc.uop.infer import segment
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import Atomic, AxisType, Engine, Ops

_OF_BLOCKS = (AddrSpace.SHARED, AddrSpace.CLUSTER)
MOST_PLACES = 1 << 16  # a place has 16 bits in a stamp
MOST_LOOPS = 8  # that an event tells
MOST_UNROLLED = 16
_ATOMIC_OPS = {
    Atomic.ADD: Ops.ADD,
    Atomic.MIN: Ops.MIN,
    Atomic.MAX: Ops.MAX,
    Atomic.AND: Ops.AND,
    Atomic.OR: Ops.OR,
    Atomic.XOR: Ops.XOR,
}


class LaneRenderer(IndexRenderer):
    """Statements of a lane, fast or checked.  What surrounds them is the subclass's."""

    language = "emulated"
    vectorised = False

    def __init__(
        self, program: ProgramTree, name: str, checked: bool, traced: bool, elide: bool
    ) -> None:
        super().__init__(program, name, checked or traced)
        self.checked, self.traced = checked or traced, traced
        self.calm = calm_loads(program) if self.checked and elide else frozenset()
        self.shadows = shadows(program, self.calm)
        self.numbers = {m: n for n, m in enumerate(self.shadows)}
        self.offsets, self.shared_bytes = shared_layout(program)
        self.dynamic = self._dynamic_registers() if self.checked else set()
        self.places: dict[UOp, int] = {}
        self.wanted = _wanted(program.sink)
        self.loops: list[str] = []  # variables of the loops around, outermost first
        self.unrolls = False  # is the loop that opens one that is unrolled?
        self.stamped = False  # does the text want the lane's stamp?

    def _dynamic_registers(self) -> set[UOp]:
        """REG memories whose accesses are checked when they are made."""
        found = unproven_registers(self.program)
        for u in toposort(self.program.sink):
            if u.op is Ops.INDEX and _space(u) is AddrSpace.REG and not _is_inside(u, 1):
                found.add(memory(u))
        return found

    def place(self, u: UOp) -> int:
        """The number of an access or effect."""
        if u not in self.places and len(self.places) == MOST_PLACES:
            raise UsageError(
                f"kernel {self.name} has more than {MOST_PLACES} accesses; checks take no more"
            )
        return self.places.setdefault(u, len(self.places))

    def shadow(self, u: UOp) -> Shadow:
        return self.shadows[memory(u)]

    # ---- accesses
    def _offset(self, index: UOp, u: UOp, gate: str = "1") -> str:
        """Bytes from the memory's start to where u accesses it."""
        return f"{index.dtype.itemsize}ll * {self._index_of(index, u, gate)}"

    def _index_of(self, index: UOp, u: UOp, gate: str = "1") -> str:
        where = f"{self.numbers[memory(index)]}, EMU_AT({self.place(u)})" if self.checked else ""
        self.stamped |= index.src[1] in self.wrapping
        return self.checked_index(index.src[1], where, gate)

    def _element_of(self, index: UOp, width: int, u: UOp) -> str:
        """The number of an element in its memory, or of a bundle in all of its memories."""
        of = segment(index)
        if of is None:
            return self._index_of(index, u)
        memory_ = f"{self.memory_name(index)}_memory"
        return (
            f"emu_segment(W, {memory_}, {self.expr(of)}, {self._index_of(index, u)}, {width}, "
            f"EMU_AT({self.place(u)}))"
        )

    # ---- a segment: a pointer, or in checked text, where all of a bundle is one memory, its number
    def type_of(self, u: UOp) -> str:
        return super().type_of(u.src[1] if self.checked and u.op is Ops.SEGMENT else u)

    def text(self, u: UOp) -> Text:
        if self.checked and u.op is Ops.SEGMENT and u not in self.names:
            return self.text(u.src[1])
        return super().text(u)

    def _pointer(self, index: UOp, width: int, u: UOp, value: str = "") -> str:
        """Where an access is made, once it is checked; a write says the address of its value."""
        m, name = self.shadow(index), self.memory_name(index)
        proven = int(_is_inside(index, width))
        size = width * index.dtype.itemsize
        offset = f"{index.dtype.itemsize}ll * {self._element_of(index, width, u)}"
        arguments = f"{name}, {size}, {offset}, {proven}, {self.place(u)}"
        self.stamped = True
        if u.op is Ops.ATOMIC:
            how = "emu_atomic" if u in self.wanted else "emu_reduction"
        elif value:
            shared = "emu_write_one" if m.one_by_one else "emu_write"
            how = "emu_output" if _is_output(m) else shared
            arguments += f", {value}"
        else:
            shared = "emu_read_one" if m.one_by_one else "emu_read"
            how = "emu_input" if not m.written and _space(index) is AddrSpace.GLOBAL else shared
            how = "emu_calm_read" if u in self.calm else how
        if _space(index) is AddrSpace.CLUSTER:
            how = "emu_cluster_write" if value else "emu_cluster_read"
        return f"{how}({arguments})"

    def _register(self, index: UOp, width: int, u: UOp, write: bool) -> str:
        """An element of registers."""
        name, m = self.memory_name(index), memory(index)
        if m not in self.dynamic:
            return self.element(index)
        self.stamped = True
        where = (
            f"W, {self.numbers[m]}, {name}_set, {self._index_of(index, u)}, {prod(m.arg.shape)}, "
            f"{width}, {int(write)}, EMU_AT({self.place(u)})"
        )
        return f"{name}[emu_register({where})]"

    def _watched(self, pointer: str, index: UOp, u: UOp, bits: str = "0") -> str:
        """In traced text, an access that is told; `bits` of what is written, 0: those in memory."""
        if not self.traced:
            return pointer
        size = index.dtype.itemsize
        return (
            f"emu_watch(W, l, {self.place(u)}, {self.memory_name(index)}, {pointer}, {size}, "
            f"{bits}, {self._loop_values()})"
        )

    def _loop_values(self) -> str:
        shown = self.loops[:MOST_LOOPS]
        values = f"(const long long[]){{{', '.join(shown)}}}" if shown else "0"
        return f"{len(shown)}, {values}"

    def load(self, u: UOp) -> Text:
        if not self.checked:
            return super().load(u)
        if known := self.known(u):
            return known
        index = u.src[0]
        c = self.element_type(index.dtype)
        if _space(index) is AddrSpace.REG:
            element, binds = self._register(index, 1, u, write=False), PRIMARY
        else:
            pointer = self._watched(self._pointer(index, 1, u), index, u)
            element, binds = f"*(const {c}*){pointer}", UNARY
        if len(u.src) > 1:
            element = f"{self.expr(u.src[1], 11)} ? {element} : {self.expr(u.src[2], 10)}"
            binds = 10
        return self.once(u, (element, binds))

    def store(self, u: UOp) -> None:
        if not self.checked:
            super().store(u)
            return
        gate = f"if ({self.expr(u.src[2])}) " if len(u.src) == 3 else ""
        statement = self._store_one(u) if u.arg is None else self._store_wide(u)
        several = statement.count(";") > 1
        self.put_from(u, gate + (f"{{ {statement} }}" if several else statement))

    def _store_one(self, u: UOp) -> str:
        index, value = u.src[:2]
        c = self.element_type(index.dtype)
        made = f"const {c} value = {self.expr(value)};"
        if _space(index) is AddrSpace.REG:
            element = self._register(index, 1, u, write=True)
            if memory(index) not in self.dynamic and not self.traced:
                return f"{element} = {self.expr(value)};"
            if not self.traced:
                return f"{made} {element} = value;"
            watched = self._watched(f"&{element}", index, u, "&value")
            return f"{made} *({c}*){watched} = value;"
        pointer = self._watched(self._pointer(index, 1, u, "&value"), index, u, "&value")
        return f"{made} *({c}*){pointer} = value;"

    def _store_wide(self, u: UOp) -> str:
        index, value, width = u.src[0], u.src[1], u.arg.width
        size = width * index.dtype.itemsize
        if _space(value.src[0]) is AddrSpace.REG:
            source = f"&{self._register(value.src[0], width, value, write=False)}"
        else:
            pointer = self._pointer(value.src[0], width, value)
            source = self._watched(pointer, value.src[0], value)
        if len(value.src) == 3:
            source = f"{self.expr(value.src[1], 11)} ? {source} : (void*)(const char[{size}]){{0}}"
        if _space(index) is AddrSpace.REG:
            to = f"&{self._register(index, width, u, write=True)}"
        else:
            to = self._pointer(index, width, u, "from")
        to = self._watched(to, index, u, "from")
        return f"const void* const from = {source}; memcpy({to}, from, {size});"

    def atomic(self, u: UOp) -> str:
        """Read, change, write: the name of the old value."""
        index, value = u.src[:2]
        c = self.element_type(index.dtype)
        where, old = self.fresh("cell"), self.fresh("val")
        cell = f"&{self.element(index)}"
        if self.checked:
            cell = f"({c}*)" + self._watched(self._pointer(index, 1, u), index, u)
        self.put(f"{c}* const {where} = {cell};")
        self.put(f"const {c} {old} = *{where};")
        self.names[u] = old
        if u.arg.atomic is Atomic.EXCHANGE:
            new = self.expr(value)
        elif u.arg.atomic is Atomic.CAS:
            same = UOp(Ops.EQ, (_as_bits(u), _as_bits(u.src[2])))
            new = f"{self.expr(same, 11)} ? {self.expr(value, 11)} : {old}"
        elif flushes(u):
            added = f"{self.call('flush_f32', u)[0]} + {self.call('flush_f32', value)[0]}"
            new = f"flush_f32({added})"
        else:
            new = self.expr(UOp(_ATOMIC_OPS[u.arg.atomic], (u, value)))
        self.put_from(u, f"*{where} = {new};")
        return old

    # ---- statements
    def let(self, u: UOp) -> None:
        if u.op is Ops.ATOMIC:
            self.atomic(u)
        else:
            super().let(u)
        self.tell(u)

    def tell(self, u: UOp) -> None:
        """In traced text, a named value."""
        if self.traced and u.op is not Ops.SEGMENT:
            self.put(
                f"if (traced) emu_trace(W, l, 0, {self.place(u)}, {self.bits(u)}, -1, "
                f"{self._loop_values()});"
            )

    def bits(self, u: UOp) -> str:
        """The bits of a value as 64-bit integer."""
        d = u.dtype
        if d.is_float and d.bits >= 32:
            u = u.bitcast(dtypes.u32 if d.bits == 32 else dtypes.u64)
        return f"(unsigned long long){self.expr(u, UNARY)}"

    def do(self, item: Do) -> None:
        u = item.effect
        if u.op is Ops.COPY and u.arg.engine is Engine.CP_ASYNC:
            self.copy(u)
        elif u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER:
            self.send(u)
        elif u.op is Ops.PRINTF:
            self.printf(u)
        elif u.op is Ops.ASSERT:
            self.put_from(u, f"if (!({self.expr(u.src[0])})) emu_assert(W, l, {self.place(u)});")
        else:
            super().do(item)

    def copy(self, u: UOp) -> None:
        """cp.async: the runtime does it, at once or later."""
        to, source, *gate = u.src
        size = u.arg.width * to.dtype.itemsize
        holds = self.expr(gate[0]) if gate else "1"
        if gate and any(index.src[1] in self.wrapping for index in (to, source)):
            name = self.fresh("ok")
            self.put(f"const int {name} = {holds};")
            holds = name
        if self.traced:
            told = f"{self.place(u)}, 0, -1, {self._loop_values()}"
            self.put(f"if (traced) emu_trace(W, l, 2, {told});")
        places = [self._offset(index, u, holds) for index in (to, source)]
        self.put_from(
            u,
            f"emu_copy(W, l, {self.place(u)}, {self.numbers[memory(to)]}, {places[0]}, "
            f"{self.numbers[memory(source)]}, {places[1]}, {size}, {holds});",
        )
        if self.checked:
            self.stamped = True
            self.put("me = emu_me(W, l);")

    def send(self, u: UOp) -> None:
        """st.async: a value into what another block of the cluster holds."""
        to, value, mbarrier, *gate = u.src
        if self.traced:
            told = f"{self.place(u)}, 0, -1, {self._loop_values()}"
            self.put(f"if (traced) emu_trace(W, l, 2, {told});")
        holds = f"if ({self.expr(gate[0])}) " if gate else ""
        made = f"const {self.element_type(to.dtype)} value = {self.expr(value)};"
        where = f"{self.numbers[memory(to)]}, {self._offset(to, u)}, {to.dtype.itemsize}"
        counts = f"{self.numbers[memory(mbarrier)]}, {self.expr(mbarrier.src[1])}"
        sent = f"emu_send(W, l, {self.place(u)}, {where}, {counts}, &value);"
        self.put_from(u, f"{holds}{{ {made} {sent} }}")

    def printf(self, u: UOp) -> None:
        """A line is an event without a value and one for each value."""
        place = self.place(u)
        shown = u.src[: u.arg.format.count("{}")]
        calls = [f"emu_print(W, l, {place}, -1, 0);"]
        calls += [f"emu_print(W, l, {place}, {n}, {self.bits(x)});" for n, x in enumerate(shown)]
        self.put_from(u, " ".join(calls))

    def scope(self, scope: Scope) -> None:
        opener = scope.opener
        if opener.op is Ops.RANGE:
            self.loops.append("")  # its name is known once it is open
            self.unrolls = opener.arg.size <= MOST_UNROLLED and self._is_short(scope)
            super().scope(scope)
            self.loops.pop()
            return
        self.put_from(opener, f"if ({self.condition(opener)}) {{")
        self.depth += 1
        self.block(scope.items)
        self.depth -= 1
        self.put("}")

    def open_loop(self, r: UOp) -> str:
        name = super().open_loop(r)
        if self.loops and not self.loops[-1]:
            self.loops[-1] = name
        return name

    def condition(self, opener: UOp) -> str:
        """When an IF or a ROLE is entered."""
        if opener.op is Ops.IF:
            return self.expr(opener.src[0])
        a = opener.arg
        last = a.first + a.warps
        return f"warp >= {a.first} && warp < {last}" if a.first else f"warp < {last}"

    def qualifier(self, m: UOp) -> str:
        return ""  # copies go through memcpy

    def pragma(self, r: UOp) -> list[str]:
        if r.arg.kind is AxisType.THREAD:
            raise UsageError(
                f"kernel {self.name} has CPU threads (Opts.thread); emulation is for GPU kernels. "
                "Lower it with Opts(gpu=True), or render it with render_c."
            )
        if r.arg.kind is AxisType.UPCAST and self.unrolls:
            return [f"#pragma GCC unroll {r.arg.size}"]
        return []

    def _is_short(self, scope: Scope) -> bool:
        """Is the text of a loop's body short?  Checked accesses are not."""
        if not self.checked:
            return True
        stack: list[Item] = list(scope.items)
        while stack:
            item = stack.pop()
            if isinstance(item, Scope):
                stack += item.items
            elif isinstance(item, Do):
                if not _only_registers(item.effect):
                    return False
            elif isinstance(item, Let) and not _only_registers(item.value):
                return False
        return True

    # ---- how the text knows a memory
    def memory_lines(self, warps: int, exact: bool, restrict: bool) -> Iterable[str]:
        """Pointers to the kernel's memories, and in checked text what is kept of them."""
        for m, shadow in self.shadows.items():
            space = m.arg.addrspace
            if space in (AddrSpace.REG, AddrSpace.MBARRIER) or m.arg.shape == ():
                continue
            if space in _OF_BLOCKS:
                yield self._shared_pointer(m, restrict)
            if self.checked:
                yield from self._kept(m, shadow, warps, exact)

    def _shared_pointer(self, m: UOp, restrict: bool) -> str:
        c, name = self.type_name(m.dtype), self.memory_name(m)
        word = "restrict " if restrict else ""
        if m.arg.addrspace is AddrSpace.CLUSTER:  # the parts of all blocks, by rank
            offset = self.offsets[m] * self.program.launch.cluster
            return f"{c}* {word}const {name} = ({c}*)(W->block->cluster + {offset});"
        return f"{c}* {word}const {name} = ({c}*)(shared + {self.offsets[m]});"

    def _kept(self, m: UOp, shadow: Shadow, warps: int, exact: bool) -> Iterable[str]:
        name, shared = self.memory_name(m), m.arg.addrspace in _OF_BLOCKS
        yield f"EmuMemory* const {name}_memory = W->block->memories + {self.numbers[m]};"
        if m.arg.bundle:
            c = self.element_type(m.dtype)
            yield f"{c}* const {name} = ({c}*){name}_memory->data;"
        yield f"const long long {name}_bytes = {shadow.size_bytes};"
        if not shared and not shadow.written:
            return
        yield f"enum {{ {name}_shift = {shadow.shift} }};"
        if shadow.one_by_one:
            return
        yield f"EmuStamp* const {name}_writes = {name}_memory->writes;"
        if shared:
            readers = shadow.readers(warps)[0]
            yield f"EmuStamp* const {name}_reads = {name}_memory->reads;"
            yield f"enum {{ {name}_readers = {readers}, {name}_exact = {int(exact)} }};"


def _space(u: UOp) -> AddrSpace:
    space: AddrSpace = memory(u).arg.addrspace
    return space


def _wanted(sink: UOp) -> set[UOp]:
    """Nodes whose values others take."""
    ends = (Ops.END, Ops.SINK)
    return {x for u in toposort(sink) if u.op not in ends for x in operands(u)}


def _only_registers(u: UOp) -> bool:
    """Does the text of a node touch no memory but registers?"""
    return all(_space(x) is AddrSpace.REG for x in toposort(*operands(u), u) if x.op is Ops.INDEX)


def _is_output(m: Shadow) -> bool:
    return m.memory.arg.addrspace is AddrSpace.GLOBAL and not m.one_by_one


def _is_inside(index: UOp, width: int) -> bool:
    """Are bounds and alignment of an access proven?"""
    if segment(index) is not None:
        return False
    low, high = bounds(index.src[1])
    return width == 1 and low >= 0 and high < prod(memory(index).arg.shape)


def _as_bits(u: UOp) -> UOp:
    """A value as an integer: CAS compares bits."""
    unsigned = {16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}
    return u.bitcast(unsigned[u.dtype.bits]) if u.dtype.is_float else u


__all__ = ["LaneRenderer"]

"""What a warp of an emulated kernel does as a whole: calls of the runtime, and exchanges of lanes.

A call says who is here (a mask of lanes) and at which place; where a warp may have to wait, a case
of its switch follows.  In mutated text each synchronisation can be left out or twisted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from uopc import layouts
from uopc.dtype import dtypes
from uopc.render.regions import Wide
from uopc.render.warps import WARP, WarpRenderer
from uopc.uop.combine import step
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import (
    ALL_LANES,
    WARP_VALUES,
    BarrierArg,
    BarrierScope,
    Engine,
    Fence,
    Ops,
    ShuffleMode,
    Vote,
)

_ENGINES = {Engine.CP_ASYNC: "EMU_CP_ASYNC", Engine.BULK: "EMU_BULK", Engine.WGMMA: "EMU_WGMMA"}
_FENCES = {
    Fence.PROXY_ASYNC: "EMU_FENCE_PROXY",
    Fence.MBAR_INIT: "EMU_FENCE_MBARRIER",
    Fence.WGMMA: "EMU_FENCE_WGMMA",
    Fence.BLOCK: "EMU_FENCE_BLOCK",
    Fence.DEVICE: "EMU_FENCE_DEVICE",
}
#: types of tensor cores, as tensor_cores.h calls them
_TENSOR_TYPES = {
    **{"f16": "TC_F16", "bf16": "TC_BF16", "tf32": "TC_TF32", "f64": "TC_F64", "f32": "TC_F32"},
    **{"f8e4m3": "TC_E4M3", "f8e5m2": "TC_E5M2", "i8": "TC_S8", "u8": "TC_U8", "i32": "TC_S32"},
}


class MeetingRenderer(WarpRenderer):
    """Ops of a whole warp."""

    # ---- one op
    def meeting(self, part: Wide) -> None:
        u = part.op
        if u.op in WARP_VALUES:
            _VALUES[u.op](self, part, u)
            return
        with self._mutable(u):
            _EFFECTS[u.op](self, part, u)

    @contextmanager
    def _mutable(self, u: UOp) -> Iterator[None]:
        """In mutated text, an effect that can be left out."""
        if not self.mutated or u.op not in _SYNCHRONISES:
            yield
            return
        self._open(f"if (W->mutation != {self._mutant(u, 'deleted')})")
        yield
        self._close(to=self.depth - 1)

    def _mutant(self, u: UOp, how: str) -> int:
        number = len(self.mutants) + 1
        self.mutants.append((number, u, how))
        return number

    def _twist(self, u: UOp, how: str) -> str:
        """1 in the mutant where something of an effect is twisted; "" in other text."""
        return f"(W->mutation == {self._mutant(u, how)})" if self.mutated else ""

    def _wait(self) -> None:
        self.cases += 1
        self.put(f"W->pc = {self.cases}; case {self.cases}: if (!emu_passed(W)) return 1;")

    def _effect(self, u: UOp, call: str, *arguments: object) -> None:
        """A call of the runtime: who is here, at which place, and the rest."""
        if self.traced and u.op not in WARP_VALUES:  # those are told with their value
            self.put(f"emu_tell(W, {self.mask}, {self.place(u)}, {self._loop_values()});")
        rest = "".join(f", {a}" for a in arguments)
        self.put_from(u, f"{call}(W, {self.mask}, {self.place(u)}{rest});")

    def _members(self, u: UOp, members: int) -> str:
        text = f"{members:#x}u"
        if self.mutated and members == ALL_LANES:
            return f"({self._twist(u, 'half of its members')} ? 0xffffu : {text})"
        return text

    def _barrier(self, part: Wide, u: UOp) -> None:
        a = u.arg or BarrierArg()
        if a.scope is BarrierScope.WARP:
            self._effect(u, "emu_warp_barrier", self._members(u, a.members))
            return
        if a.scope is BarrierScope.CLUSTER_ARRIVE:
            self._effect(u, "emu_cluster_arrive")
            return
        if a.scope is BarrierScope.CLUSTER_WAIT:
            self._effect(u, "emu_cluster_wait")
        elif a.scope is BarrierScope.CLUSTER:
            self._cluster_barrier(u)
        elif a.scope is BarrierScope.NAMED:
            with self._one_lane(part):
                self._effect(u, "emu_named_barrier", self.expr(u.src[0]), a.threads)
        elif twist := self._twist(u, "__syncwarp instead"):
            self.put(f"if {twist} emu_warp_barrier(W, {self.mask}, {self.place(u)}, W->full);")
            self.put(f"else emu_block_barrier(W, {self.mask}, {self.place(u)});")
        else:
            self._effect(u, "emu_block_barrier")
        self._wait()

    def _cluster_barrier(self, u: UOp) -> None:
        if twist := self._twist(u, "a barrier of the block instead"):
            self.put(f"if {twist} emu_block_barrier(W, {self.mask}, {self.place(u)});")
            self.put(f"else emu_cluster_barrier(W, {self.mask}, {self.place(u)});")
        else:
            self._effect(u, "emu_cluster_barrier")

    def _each_lane(self, part: Wide, values: Sequence[UOp], make: Callable[[], None]) -> None:
        """An effect of each lane: together where all say the same, else one after another."""
        if not self.varies(*values):
            with self._one_lane(part):
                make()
            return
        mask = self.mask
        with self._lanes(part):
            self.mask = "1u << l"
            make()
            self.mask = mask

    def _barrier_of(self, u: UOp) -> tuple[int, str]:
        """(number of the memory, index) of an mbarrier."""
        index = u.src[0]
        return self.numbers[memory(index)], self.expr(index.src[1])

    def _init(self, part: Wide, u: UOp) -> None:
        twist = self._twist(u, "count + 1")

        def make() -> None:
            count = self.expr(u.src[1]) + (f" + {twist}" if twist else "")
            self._effect(u, "emu_mbarrier_init", *self._barrier_of(u), count)

        self._each_lane(part, u.src, make)

    def _arrive(self, part: Wide, u: UOp) -> None:
        twist = self._twist(u, "bytes + 16") if len(u.src) > 1 else ""

        def make() -> None:
            bytes_ = self.expr(u.src[1]) if len(u.src) > 1 else "0"
            bytes_ += f" + 16 * {twist}" if twist else ""
            self._effect(u, "emu_arrive", *self._barrier_of(u), bytes_)

        self._each_lane(part, u.src, make)

    def _wait_mbarrier(self, part: Wide, u: UOp) -> None:
        twist = self._twist(u, "parity flipped")

        def make() -> None:
            parity = f"({self.expr(u.src[1])}) ^ {twist}" if twist else self.expr(u.src[1])
            self._effect(u, "emu_mbarrier_wait", *self._barrier_of(u), parity)

        if not self.varies(*u.src):
            with self._one_lane(part):
                make()
            self._wait()
            return
        lane, mask = self.field("int", "waiter"), self.mask
        self._open(f"for ({lane} = 0; {lane} < W->lanes; ++{lane})")
        self._open(f"if ({mask} >> {lane} & 1)")
        self.mask = f"1u << {lane}"
        with self._one_lane(part, lane):
            make()
        self.mask = mask
        self._wait()
        self._close(to=self.depth - 2)

    def _commit(self, part: Wide, u: UOp) -> None:
        self._effect(u, "emu_commit", _ENGINES[u.arg])

    def _wait_group(self, part: Wide, u: UOp) -> None:
        a, twist = u.arg, self._twist(u, "one group more may be pending")
        pending = f"{a.pending} + {twist}" if twist else str(a.pending)
        self._effect(u, "emu_wait_group", _ENGINES[a.engine], pending, int(a.read))
        self._wait()

    def _fence(self, part: Wide, u: UOp) -> None:
        self._effect(u, "emu_fence", _FENCES[u.arg])

    # ---- bulk copies
    def _bulk(self, part: Wide, u: UOp) -> None:
        loads = u.src[1].op is Ops.TENSORMAP
        tensor_map, tile = (u.src[1], u.src[0]) if loads else (u.src[0], u.src[1])
        coordinates = u.src[3:] if loads else u.src[2:]
        record = self._record(self._map_text(tensor_map), "map")
        with self._one_lane(part):
            index = (self.numbers[memory(tile)], self._offset(tile, u))
            at = f"(const long long[]){{{', '.join(self.expr(c) for c in coordinates)}}}"
            if loads:
                barrier = u.src[2]
                where = (self.numbers[memory(barrier)], self.expr(barrier.src[1]))
                self._effect(u, "emu_bulk_load", f"&{record}", *index, *where, at)
            else:
                self._effect(u, "emu_bulk_store", f"&{record}", *index, at)

    def _record(self, text: str, prefix: str) -> str:
        """The name of a constant record; equal ones are one."""
        if text not in self.constants:
            self.constants[text] = f"{self.name}_{prefix}{len(self.constants)}"
        return self.constants[text]

    def _map_text(self, u: UOp) -> str:
        a, size = u.arg, u.dtype.itemsize
        strides = ", ".join(str(s * size) for s in (*a.strides, 1))
        shape, box = (", ".join(map(str, x)) for x in (a.shape, a.box))
        number = self.numbers[memory(u.src[0])]
        return (
            f"EmuTensorMap @ = {{{number}, {len(a.shape)}, {{{shape}}}, {{{strides}}}, {{{box}}}, "
            f"{a.swizzle}}}"
        )

    # ---- tensor cores
    def _registers(self, index: UOp) -> tuple[str, str]:
        """(address of lane 0's first register, bytes from one lane to the next)."""
        name = self.memory_name(index)
        return f"&S->{name}[0][{self.expr(index.src[1])}]", f"sizeof S->{name}[0]"

    def _touch_registers(self, u: UOp, index: UOp, count: int, write: bool) -> None:
        """In checked text, registers of all lanes that an op reads or writes."""
        m = memory(index)
        if m in self.dynamic:
            name, size = self.memory_name(m), prod(m.arg.shape)
            self._effect(
                u,
                "emu_registers",
                *(self.numbers[m], f"S->{name}_set[0]", size, self.expr(index.src[1]), size),
                *(count, int(write)),
            )

    def _matrix(self, part: Wide, u: UOp) -> None:
        loads = u.op is Ops.LDMATRIX
        registers, tile = u.src if loads else u.src[::-1]
        rows, count = self.field("long long", "rows", f"[{WARP}]"), u.arg.tiles
        with self._lanes(part):
            self.put(f"{rows}[l] = {self._offset(tile, u)};")
        with self._one_lane(part):
            if not loads:
                self._touch_registers(u, registers, count, write=False)
            name = "emu_ldmatrix" if loads else "emu_stmatrix"
            where = (*self._registers(registers), self.numbers[memory(tile)], rows)
            self._effect(u, name, *where, count, int(u.arg.transposed))
            if loads:
                self._touch_registers(u, registers, count, write=True)

    def _mma(self, part: Wide, u: UOp) -> None:
        atom = layouts.ATOMS[u.arg]
        accumulator, a, b, *keep = u.src
        held = atom.a.fragment is not None and atom.engine == "wgmma"
        types = ", ".join(_TENSOR_TYPES[x.type] for x in (atom.a, atom.b, atom.accumulator))
        sizes = f"{atom.m}, {atom.n}, {atom.k}"
        record = self._record(f"TcAtom @ = {{{sizes}, {types}, {int(held)}}}", "atom")
        with self._one_lane(part):
            for source, operand in ((a, atom.a), (b, atom.b)):
                if source.op is Ops.INDEX:
                    self._touch_registers(u, source, operand.registers, write=False)
            if not keep:
                self._touch_registers(u, accumulator, atom.accumulator.registers, write=False)
            if atom.engine == "wgmma":
                self._wgmma(u, record)
            else:
                where = (s for x in (accumulator, a, b) for s in self._registers(x))
                self._effect(u, "emu_mma", f"&{record}", *where)
            self._touch_registers(u, accumulator, atom.accumulator.registers, write=True)

    def _wgmma(self, u: UOp, record: str) -> None:
        accumulator, a, b, *keep = u.src
        if a.op is Ops.INDEX:
            first = (*self._registers(a), "0", "0")
        else:
            first = ("0", "0", self.expr(a), str(int(_is_transposed(a))))
        second = (self.expr(b), int(_is_transposed(b)))
        kept = self.expr(keep[0]) if keep else "1"
        bits = self._bits(memory(s) for s in (accumulator, a) if s.op is Ops.INDEX)
        sums = self._registers(accumulator)
        self._effect(u, "emu_wgmma", f"&{record}", *sums, *first, *second, kept, bits)

    # ---- values that lanes make together
    def _given(self, part: Wide, x: UOp) -> str:
        """The array of a warp's state that holds an operand of all lanes."""
        while x.op is Ops.AFTER:
            x = x.src[0]
        if x in self.cuts.kept and x in self.names:
            return f"S->{self.names[x]}"
        field = self.field(self.type_of(x), "given", f"[{WARP}]")
        with self._lanes(part):
            self.put(f"{field}[l] = {self.expr(x)};")
        return field

    def _made(self, u: UOp) -> str:
        """A new array of the state for the value that lanes make together."""
        name = self.fresh("ok" if u.dtype is dtypes.bool else "val")
        self._keep(u, name, self.type_of(u))
        return f"S->{name}"

    def _every_lane(self, line: str) -> None:
        here = "" if self.mask == "W->full" else f"if ({self.mask} >> l & 1) "
        count = "W->lanes" if self.ragged and self.warps > 1 else str(min(WARP, self.threads))
        self.put(f"for (int l = 0; l < {count}; ++l) {here}{line}")

    def _arrived(self, u: UOp) -> None:
        if self.checked:
            self._effect(u, "emu_members", self._members(u, u.arg.members))

    def _shuffle(self, part: Wide, u: UOp) -> None:
        """Each lane gets what its giver has, its own where there is no such lane."""
        a, by = u.arg, u.arg.by
        given = self._given(part, u.src[0])
        lane = f"{self._given(part, u.src[1])}[l] & 31" if len(u.src) > 1 else ""
        giver = {
            ShuffleMode.XOR: f"l ^ {by}",
            ShuffleMode.UP: f"l - {by}",
            ShuffleMode.DOWN: f"l + {by}",
            ShuffleMode.INDEX: lane,
        }[a.mode]
        self._arrived(u)
        made = self._made(u)
        if self.checked:
            self._every_lane(f"emu_gives(W, {self.mask}, {self.place(u)}, {giver}, l);")
        if a.mode in (ShuffleMode.UP, ShuffleMode.DOWN) or self.ragged:
            giver = f"emu_giver({giver}, l, W->lanes)"
        self._every_lane(f"{made}[l] = {given}[{giver}];")
        self._tell_all(part, u)

    def _vote(self, part: Wide, u: UOp) -> None:
        votes = self.field("unsigned", "votes")
        self.put(f"{votes} = 0;")
        with self._lanes(part):
            self.put(f"{votes} |= (unsigned)({self.expr(u.src[0])}) << l;")
        self._arrived(u)
        result = {
            Vote.ANY: f"{votes} != 0",
            Vote.ALL: f"{votes} == ({self.mask})",
            Vote.BALLOT: votes,
        }[u.arg.vote]
        made = self._made(u)
        self._every_lane(f"{made}[l] = {result};")
        self._tell_all(part, u)

    def _warp_reduce(self, part: Wide, u: UOp) -> None:
        given, c = self._given(part, u.src[0]), self.type_of(u)
        self._arrived(u)
        made = self._made(u)
        outer, first = self.depth, f"emu_first({self.mask})"
        self._open("")
        self.lines[-1] = "  " * outer + "{"
        self.put(f"{c} all = {given}[{first}];")
        name = self.names.pop(u)
        one = UOp.const(0, u.dtype).after(u)  # stands for a lane's value
        self.names[u], self.names[one] = "all", f"{given}[l]"
        together = self.expr(step(u.arg.combine, (u,), (one,))[0])
        self.names[u] = name
        here = f" && {self.mask} >> l & 1" if self.mask != "W->full" else ""
        loop = "for (int l = 0; l < W->lanes; ++l)"
        self.put(f"{loop} if (l != {first}{here}) all = {together};")
        self._every_lane(f"{made}[l] = all;")
        self._close(to=outer)
        self._tell_all(part, u)

    def _tell_all(self, part: Wide, u: UOp) -> None:
        if self.traced:
            name = self.names[u]
            with self._lanes(part):
                self.put(f"const {self.types[u]} {name} = S->{name}[l];")
                self.tell(u)


_Wide = Callable[[MeetingRenderer, Wide, UOp], None]
_VALUES: dict[Ops, _Wide] = {
    Ops.SHUFFLE: MeetingRenderer._shuffle,
    Ops.VOTE: MeetingRenderer._vote,
    Ops.WARP_REDUCE: MeetingRenderer._warp_reduce,
}
_EFFECTS: dict[Ops, _Wide] = {
    Ops.BARRIER: MeetingRenderer._barrier,
    Ops.MBAR_INIT: MeetingRenderer._init,
    Ops.ARRIVE: MeetingRenderer._arrive,
    Ops.WAIT: MeetingRenderer._wait_mbarrier,
    Ops.COMMIT: MeetingRenderer._commit,
    Ops.WAITG: MeetingRenderer._wait_group,
    Ops.FENCE: MeetingRenderer._fence,
    Ops.COPY: MeetingRenderer._bulk,
    Ops.LDMATRIX: MeetingRenderer._matrix,
    Ops.STMATRIX: MeetingRenderer._matrix,
    Ops.MMA: MeetingRenderer._mma,
}
#: effects that mutation leaves out
_SYNCHRONISES = frozenset(
    (Ops.BARRIER, Ops.MBAR_INIT, Ops.ARRIVE, Ops.WAIT, Ops.COMMIT, Ops.WAITG, Ops.FENCE)
)


def _is_transposed(operand: UOp) -> bool:
    found = next(u for u in reversed(toposort(operand)) if u.op is Ops.DESCRIPTOR)
    return bool(found.arg.transposed)


__all__ = ["MeetingRenderer"]

"""One warp of an emulated kernel as a function that can stop: its state, and its lanes as loops.

A region is one loop over the lanes; it begins with what it takes from the warp's state.  Loops and
conditions with a meeting inside are the warp's (`regions.py`).  What a warp does as a whole is
`meetings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_

from uopc import layouts
from uopc.dtype import AddrSpace
from uopc.kernel import Axis, Do, Item, Let, ProgramTree, Scope
from uopc.render.base import UNARY, Text
from uopc.render.lanes import LaneRenderer
from uopc.render.regions import Branch, Leaf, Part, Region, Split, Wide, cut
from uopc.render.shadow import lanes_inside
from uopc.uop.node import UOp, memory, prod, toposort
from uopc.uop.ops import (
    ALL_LANES,
    BarrierArg,
    BarrierScope,
    Engine,
    Fence,
    Ops,
)

WARP = 32
_BITS = 64  # of a set of memories
_ASYNCHRONOUS = frozenset((Ops.COPY, Ops.COMMIT, Ops.WAITG, Ops.FENCE))
_MEETS_APART = frozenset((Ops.ARRIVE, Ops.WAIT, Ops.FENCE))
_OF_MEMORY = frozenset((Fence.BLOCK, Fence.DEVICE))
_OF_LANES = _OF_MEMORY | {Fence.MBAR_INIT}  # of what lanes have done themselves


class WarpRenderer(LaneRenderer):
    """The parts of a warp's function."""

    def __init__(
        self,
        program: ProgramTree,
        name: str,
        checked: bool = False,
        traced: bool = False,
        mutated: bool = False,
        elide: bool = True,
    ) -> None:
        super().__init__(program, name, checked, traced, elide and not mutated)
        self.mutated = mutated
        self.threads = program.launch.threads
        self.warps = -(-self.threads // WARP)
        self.cluster = program.launch.cluster  # blocks that run together, their warps numbered on
        self.ragged = self.threads % WARP != 0
        self.nodes = toposort(program.sink)
        self.asynchronous = any(_is_asynchronous(u) for u in self.nodes)
        self.cuts = cut(program)
        self.part: Leaf | None = None
        self.mask = "W->full"  # lanes that are here
        self.around: list[UOp] = []  # split loops that are open
        self.state: dict[str, str] = {}  # fields of a warp's state: name -> declaration
        self.types: dict[UOp, str] = {}  # of named values
        self.texts: dict[UOp, str] = {}  # declarations of values that are written again
        self.cases = 0
        self.constants: dict[str, str] = {}  # text of a record -> its name
        self.mutants: list[tuple[int, UOp, str]] = []
        self.barriers = self._number_mbarriers()
        self.accumulators = self._wgmma_registers()
        self.fences = self._fences_order()
        self.apart, self.exact = self._meetings_apart()

    # ---- what the whole kernel needs
    def _number_mbarriers(self) -> dict[UOp, int]:
        """The number of each memory's first mbarrier."""
        numbers, n = {}, 0
        for m in self.shadows:
            if m.arg.addrspace is AddrSpace.MBARRIER:
                numbers[m] = n
                n += prod(m.arg.shape)
        self.mbarriers = n
        return numbers

    def _wgmma_registers(self) -> dict[UOp, int]:
        """Registers that wgmma works on after it was started, and the bit of each."""
        found: dict[UOp, None] = {}
        for u in self.nodes:
            if u.op is Ops.MMA and layouts.ATOMS[u.arg].engine == "wgmma":
                found.update((memory(s), None) for s in u.src[:2] if s.op is Ops.INDEX)
        return {m: 1 << n % _BITS for n, m in enumerate(found)}

    def _bits(self, memories: Iterable[UOp]) -> str:
        """Such registers as a set; of very many, some share a bit, as if they were one memory."""
        return f"{reduce(or_, (self.accumulators[m] for m in memories), 0):#x}ull"

    def _meetings_apart(self) -> tuple[bool, bool]:
        """Do lanes meet or arrive without the others of their warp?  And more than one of them?"""
        alone: list[set[int]] = [set() for _ in range(self.warps)]
        found = several = False
        todo: list[tuple[Part, UOp | None]] = [(p, None) for p in self.cuts.parts]
        while todo:
            part, condition = todo.pop()
            if isinstance(part, Branch) and part.opener.op is Ops.IF:
                given = part.opener.src[0]
                if condition is None and self.varies(given):
                    todo += [(p, given) for p in part.parts]
                else:
                    todo += [(p, condition) for p in part.parts]
            elif isinstance(part, (Branch, Split)):
                todo += [(p, condition) for p in part.parts]
            elif isinstance(part, Wide) and self._meets_apart(part.op, condition):
                found = True
                lanes = None
                if condition is not None:
                    axes = self.program.launch.block_axes
                    lanes = lanes_inside(condition, axes, self.threads)
                several |= lanes is None
                for all_of, some in zip(alone, lanes or (), strict=False):
                    all_of |= some
        several |= any(len(lanes) > 1 for lanes in alone)
        always = self.mutated or self.fences
        return found or always, several or always

    def _fences_order(self) -> bool:
        """Are there fences of memory, and atomics for them to order by?"""
        fences = any(u.op is Ops.FENCE and u.arg in _OF_MEMORY for u in self.nodes)
        return fences and any(u.op is Ops.ATOMIC for u in self.nodes)

    def _meets_apart(self, u: UOp, condition: UOp | None) -> bool:
        if u.op in (Ops.ARRIVE, Ops.WAIT) and self.varies(*u.src):
            return True
        if u.op in _MEETS_APART:
            return condition is not None
        if u.op is not Ops.BARRIER:
            return False
        a = u.arg or BarrierArg()
        partial = a.members & self._all_lanes() != self._all_lanes()
        return a.scope is BarrierScope.WARP and (condition is not None or partial)

    def _all_lanes(self) -> int:
        return ALL_LANES if self.threads >= WARP else (1 << self.threads) - 1

    def varies(self, *values: UOp) -> bool:
        """May lanes of one warp have different values?"""
        uniform = self._uniform_axes()
        stack, seen = list(values), set()
        while stack:
            u = stack.pop()
            if u in seen:
                continue
            seen.add(u)
            if u.op in (Ops.LOAD, Ops.ATOMIC, Ops.SHUFFLE):
                return True
            if u.op is Ops.RANGE and u in self.names_of_threads and u not in uniform:
                return True
            stack.extend(u.src[:1] if u.op is Ops.AFTER else u.src)
        return False

    @property
    def names_of_threads(self) -> set[UOp]:
        return {a.range for a in self.program.launch.block_axes}

    def _uniform_axes(self) -> set[UOp]:
        stride, found = 1, set()
        for a in self.program.launch.block_axes:
            if stride % WARP == 0:
                found.add(a.range)
            stride *= a.range.arg.size
        return found

    # ---- the parts of a warp
    def _parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, Region):
                self._region(part)
            elif isinstance(part, Split):
                self._split(part)
            elif isinstance(part, Branch):
                self._branch(part)
            else:
                self.meeting(part)

    def _split(self, part: Split) -> None:
        """A loop that the lanes of a warp go through together: its variable is the warp's."""
        r, outer = part.opener, self.depth
        name = self.open_loop(r)
        self.around.append(r)
        self.loops.append(f"S->{name}")
        if not self.state.get(name, "").startswith("long long"):  # loops one after another share it
            self.state[name] = f"{self.type_of(r)} {name}"
        a = r.arg
        move = f"++S->{name}" if a.step == 1 else f"S->{name} += {a.step}"
        stay = f"S->{name} {'<' if a.step > 0 else '>'} {a.start + a.step * a.size}"
        self._open(f"for (S->{name} = {a.start}; {stay}; {move})")
        self._parts(part.parts)
        self._close(to=outer)
        self.loops.pop()
        self.around.pop()
        self.taken.discard(name)

    def _branch(self, part: Branch) -> None:
        """An IF: the lanes for which it holds go in.  A ROLE: whole warps do."""
        outer, mask = self.depth, self.mask
        if part.opener.op is Ops.ROLE:
            self._open(f"if ({self.condition(part.opener)})")
        else:
            field = self.field("unsigned", "mask")
            self.put(f"{field} = 0;")
            with self._lanes(part):
                self.put(f"{field} |= (unsigned)({self.condition(part.opener)}) << l;")
            self.mask = field
            self._open(f"if ({field})")
        self._parts(part.parts)
        self._close(to=outer)
        self.mask = mask

    def field(self, c: str, prefix: str, after: str = "") -> str:
        """A new field of the warp's state."""
        name = self.fresh(prefix)
        self.state[name] = f"{c} {name}{after}"
        return f"S->{name}"

    def _region(self, region: Region) -> None:
        touched = self.cuts.needs[region] & self.accumulators.keys()
        if touched and self.checked:
            first = next(u for u in _effects(region.items) if memory_of(u) in touched)
            self.put(f"emu_accumulators(W, {self.place(first)}, {self._bits(touched)});")
        with self._lanes(region):
            self.block(region.items)

    @contextmanager
    def _lanes(self, part: Leaf) -> Iterator[None]:
        """A loop over the lanes that are here: what it takes from outside, then its own text."""
        with self._gathered(part) as lines:
            yield
        if not lines:
            return
        self._open("for (int l = W->first; l != W->stop; l += W->step)")
        if self.mask != "W->full":
            self.put(f"if (!({self.mask} >> l & 1)) continue;")
        self.lines += lines
        self._close(to=self.depth - 1)

    @contextmanager
    def _one_lane(self, part: Leaf, lane: str = "") -> Iterator[None]:
        """Lines that are done once, with the values of one lane: the first that is here."""
        with self._gathered(part) as lines:
            yield
        if not any(re.search(r"\bl\b| = ", line) for line in lines):
            self.lines += [line[2:] for line in lines]
            return
        self._open("")
        self.put(f"const int l = {lane or f'emu_first({self.mask})'};")
        self.lines += lines
        self._close(to=self.depth - 1)

    @contextmanager
    def _gathered(self, part: Leaf) -> Iterator[list[str]]:
        """The lines of a lane that are put inside, after those that take what they need."""
        gathered: list[str] = []
        before, self.lines, self.part, self.stamped = self.lines, [], part, False
        self.depth += 1
        yield gathered
        text, self.lines = self.lines, []
        if text:
            self._from_outside(part)
            self._stamp(text)
            gathered += [*self.lines, *text]
        self.lines, self.part = before, None
        self.depth -= 1

    def _stamp(self, text: Sequence[str]) -> None:
        """What checked accesses want to know of their lane."""
        if self.stamped:
            self.put("EmuStamp me = emu_me(W, l);")
        if any("emu_read(" in line or "emu_cluster_read(" in line for line in text):
            number = "W->warp" if self.cluster > 1 else "warp"
            self.put(f"const unsigned own = W->known[{number}];")
        if any("(traced)" in line for line in text):
            self.put("const int traced = emu_traced(W, l);")

    def _from_outside(self, part: Leaf) -> None:
        """Thread numbers, the warp's loop variables, arrays, values of earlier parts."""
        cuts, needs = self.cuts, self.cuts.needs[part]
        self._thread_numbers(needs)
        for r in self.around:
            if r in needs:
                self.put(f"const {self.type_of(r)} {self.names[r]} = S->{self.names[r]};")
        for m, home in cuts.declared.items():
            if m not in needs:
                continue
            if m in cuts.kept:
                name, c = self.memory_name(m), self.type_name(m.dtype)
                self.put(f"{c}* const {name} = S->{name}[l];")
                if m in self.dynamic:
                    self.put(f"unsigned char* const {name}_set = S->{name}_set[l];")
            elif home is not part:
                self._declare_here(m)
        for u, home in cuts.home.items():
            if u in needs and home is not part:
                name = self.names[u]
                c = self.types[u]
                constant = f"{c} const" if c.endswith("*") else f"const {c}"
                kept = f"{constant} {name} = S->{name}[l];"
                self.put(self.texts[u] if u in cuts.again else kept)

    def _thread_numbers(self, needs: set[UOp]) -> None:
        axes, stride = self.program.launch.block_axes, 1
        if any(a.range in needs for a in axes):
            self.put(f"const int thread = {f'{WARP} * warp + l' if self.warps > 1 else 'l'};")
        for a in axes:
            size = a.range.arg.size
            text = "thread" if stride == 1 else f"thread / {stride}"
            stride *= size
            if a.range in needs:
                text += f" % {size}" if stride < self.threads else ""
                self.put(f"const int {self.names[a.range]} = {text};")

    # ---- indices that may wrap
    def is_written_again(self, u: UOp) -> bool:
        return u in self.cuts.again

    def exact_place(self, name: str) -> str:
        self.state[f"{name}_exact"] = f"long double {name}_exact[{WARP}]"
        return f"S->{name}_exact[l]"

    # ---- statements inside a region
    def let(self, u: UOp) -> None:
        c = self.type_of(u)
        super().let(u)
        if self.part is None:
            return
        name, cuts = self.names[u], self.cuts
        self.types[u] = c
        if u in cuts.again:
            at = max(n for n, line in enumerate(self.lines) if f" {name} = " in line)
            self.texts[u] = self.lines[at].strip()
            if u not in cuts.needs[self.part]:
                del self.lines[at:]
        elif u in cuts.kept:
            self.put(f"S->{name}[l] = {name};")
            self._keep(u, name, c)

    def _keep(self, u: UOp, name: str, c: str) -> None:
        self.names[u], self.types[u] = name, c
        self.state[name] = f"{c} {name}[{WARP}]"

    def declare(self, m: UOp) -> None:
        if m.arg.addrspace is not AddrSpace.REG:
            return
        name, size = self.memory_name(m), prod(m.arg.shape)
        if self.part is not None and m in self.cuts.kept:
            self.state[name] = f"{self.type_name(m.dtype)} {name}[{WARP}][{size}]"
            if m in self.dynamic:
                self.state[f"{name}_set"] = f"unsigned char {name}_set[{WARP}][{size}]"
                self.put(f"memset(S->{name}_set[l], 0, {size});")
        elif self.part is None or m in self.cuts.needs[self.part]:
            self._declare_here(m)

    def _declare_here(self, m: UOp) -> None:
        super().declare(m)
        if m in self.dynamic:
            self.put(f"unsigned char {self.memory_name(m)}_set[{prod(m.arg.shape)}] = {{0}};")

    def text(self, u: UOp) -> Text:
        if u.op is Ops.DESCRIPTOR and u not in self.names:
            return self._descriptor(u)
        return super().text(u)

    def _descriptor(self, u: UOp) -> Text:
        """The bits of a matrix descriptor; only where it starts is computed."""
        index, a = u.src[0], u.arg
        rest = layouts.Descriptor(0, a.leading, a.stride, a.swizzle).encode()
        offset = f"{index.dtype.itemsize}ll * {self.expr(index.src[1], 81)}"
        at = f"{self.offsets[memory(index)]} + {offset}"
        return f"({rest:#x}ull | (unsigned long long)(({at}) >> 4 & 0x3fff))", UNARY

    # ---- ops of a whole warp
    def meeting(self, part: Wide) -> None:
        """The calls of the runtime for one op of a warp."""
        raise NotImplementedError

    # ---- text
    def _loops(self, axes: Sequence[Axis]) -> None:
        """A loop for each axis, .x innermost; `_close` ends them."""
        for a in reversed(axes):
            n = self.names[a.range]
            self._open(f"for (int {n} = 0; {n} < {a.range.arg.size}; ++{n})")

    def _open(self, line: str) -> None:
        self.put(f"{line} {{" if line else "{")
        self.depth += 1

    def _close(self, to: int = 0, end: str = "") -> None:
        while self.depth > to:
            self.depth -= 1
            self.put(f"}}{end}")

    def _put_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.put(line)


def _is_asynchronous(u: UOp) -> bool:
    if u.op is Ops.MMA:
        return layouts.ATOMS[u.arg].engine == "wgmma"
    if u.op is Ops.COPY and u.arg.engine is Engine.CLUSTER:
        return False
    return u.op in _ASYNCHRONOUS and not (u.op is Ops.FENCE and u.arg in _OF_LANES)


def _effects(items: Iterable[Item]) -> Iterator[UOp]:
    """Nodes of a region's items that name memories, in order."""
    for item in items:
        if isinstance(item, Scope):
            yield from _effects(item.items)
        elif isinstance(item, (Do, Let)):
            u = item.effect if isinstance(item, Do) else item.value
            yield from reversed([x for x in toposort(u) if x.op in (Ops.LOAD, Ops.STORE)])


def memory_of(u: UOp) -> UOp:
    return memory(u.src[0])


__all__ = ["WARP", "WarpRenderer", "memory_of"]

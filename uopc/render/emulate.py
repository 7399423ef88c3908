"""The PROGRAM that a GPU gets, as C for a CPU: block after block, warp after warp.

`int NAME(void **args)`: args[i] is the address of parameter i's data, in slot order.  It returns 0,
or DEADLOCK or NO_MEMORY; it keeps nothing between calls, so any threads may run it at once.

A kernel whose threads never meet is plain loops over blocks and threads.  Otherwise a warp is a
function that can be resumed: `switch (S->pc)` with a case at each barrier, inside whatever loops it
stands; its lanes are loops between the meetings (`regions.py`).  Such a loop begins with what it
takes from the warp's state S; after that its text is the CUDA text, name for name:

    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx0 = thread;
      float* const acc0 = S->acc0[l];
      part1[lidx0] = acc0[0];
    }
    S->pc = 1; return 1; case 1:;  // __syncthreads()

A block's shared memory and its warps' states begin as 0xff bytes: a NaN in every float format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from uopc.dtype import AddrSpace, dtypes
from uopc.errors import UsageError
from uopc.kernel import Axis, ProgramTree, Source
from uopc.render.base import check_shared, shared_layout
from uopc.render.c import CRenderer
from uopc.render.regions import Part, Region, Split, cut, is_meeting
from uopc.target import Target
from uopc.target import target as named_target
from uopc.uop.node import UOp, prod
from uopc.uop.ops import AxisType

WARP = 32
#: what an emulated kernel returns where warps wait at a barrier that others will never reach
DEADLOCK = 1
#: what an emulated kernel returns where a block finds no memory
NO_MEMORY = 2


class EmulationRenderer(CRenderer):
    """PROGRAM -> C11 without any include, that does what the GPU's threads do."""

    language = "emulated"
    vectorised = False

    def __init__(self, program: ProgramTree, name: str, order: str, target: Target) -> None:
        super().__init__(program, name)
        if name in ("malloc", "free"):
            raise UsageError(
                f"a kernel cannot be called {name!r}: emulation calls it; choose another"
            )
        self.order, self.seed, self.target = order, _seed(order), target
        self.threads = program.launch.threads
        self.warps = -(-self.threads // WARP)
        self.ragged = self.threads % WARP != 0
        self.offsets, self.shared_bytes = shared_layout(program)
        check_shared(name, self.shared_bytes, target)
        self.cuts = cut(program)
        self.region: Region | None = None
        self.around: list[UOp] = []  # split loops that are open
        self.state: dict[str, str] = {}  # fields of a warp's state: name -> declaration
        self.types: dict[UOp, str] = {}  # of named values
        self.texts: dict[UOp, str] = {}  # declarations of values that are written again
        self.places = 0

    def render(self, target: Target | None = None) -> Source:
        """The whole file."""
        launch = self.program.launch
        for a in (*launch.grid_axes, *launch.block_axes):
            self.names[a.range] = self.range_name(a.range)
            self.taken.add(self.names[a.range])
        self.depth = 0
        if self.order == "forward" and not any(map(is_meeting, self.program.walk())):
            self._plain()
        else:
            self._resumable()
        return Source(
            "\n".join([*self.head(), *self.lines, ""]),
            name=self.name,
            language=self.language,
            params=self.program.params,
            launch=launch,
            shared_bytes=self.shared_bytes,
            target=target or self.target,
        )

    def head(self) -> list[str]:
        calls = any("malloc(" in line for line in self.lines)
        mine = ["void* malloc(unsigned long);", "void free(void*);"] if calls else []
        return mine + super().head()

    # ---- threads that never meet
    def _plain(self) -> None:
        """Loops over blocks and threads around the kernel's text."""
        self._open(f"int {self.name}(void** args)")
        self._put_all(self.parameters())
        self._allocate()
        self._put_all(self._tiles())
        self._loops(self.program.launch.grid_axes)
        if self.shared_bytes:
            self.put(f"memset(shared, 0xff, {self.shared_bytes});")
        self._loops(self.program.launch.block_axes)
        self.block(self.program.items)
        self._close(to=1)
        self._put_all(self._free())
        self.put("return 0;")
        self._close()

    # ---- threads that meet: a state and a function of a warp, a block that runs its warps, a grid
    def _resumable(self) -> None:
        self._warp()
        warp, self.lines = self.lines, []
        self._open("typedef struct")
        self.put("int pc;  // where the warp goes on; -1: it is done")
        self._put_all(f"{declaration};" for declaration in self.state.values())
        self._close(end=f" {self.name}_state;")
        self.lines += warp
        self._block()
        self._grid()

    def _warp(self) -> None:
        self.put("// Runs a warp up to its next barrier (1), or to its end (0).")
        state = f"{self.name}_state* restrict const S"
        self._open(
            f"static int {self.name}_warp({state}, const int warp, {self._passed('declare')})"
        )
        self._put_all([*self.parameters(), *self._tiles()])
        if self.ragged and self.warps > 1:
            rest = self.threads % WARP
            self.put(f"const int lanes = warp < {self.warps - 1} ? {WARP} : {rest};")
        self._open("switch (S->pc)")
        self.put("case 0:;")
        self._parts(self.cuts.parts)
        self._close(to=1)
        self.put("return 0;")
        self._close()

    def _block(self) -> None:
        name, count, shuffled = self.name, self.warps, self.seed is not None
        if shuffled:
            self._shuffle_order()
        self.put("// Resumes warps, each up to the next barrier, until all are done.")
        seed = ", unsigned* seed" if shuffled else ""
        self._open(f"static int {name}_block({name}_state* warps, {self._passed('declare')}{seed})")
        if self.shared_bytes:
            self.put(f"memset(shared, 0xff, {self.shared_bytes});")
        self.put(f"memset(warps, 0xff, {count} * sizeof *warps);")
        self.put(f"for (int w = 0; w < {count}; ++w) warps[w].pc = 0;")
        self.put(f"int done = 0{f', order[{count}]' if shuffled else ''};")
        self._open(f"while (done < {count})")
        if shuffled:
            self.put(f"{name}_shuffle(order, seed);")
        self.put("int arrived = 0;")
        self._open(f"for (int i = 0; i < {count}; ++i)")
        which = {"forward": "i", "backward": f"{count - 1} - i"}.get(self.order, "order[i]")
        self.put(f"const int w = {which};")
        self.put("if (warps[w].pc < 0) continue;")
        self.put(f"if ({name}_warp(warps + w, w, {self._passed()})) ++arrived;")
        self.put("else warps[w].pc = -1, ++done;")
        self._close(to=2)
        self.put(f"if (arrived && done) return {DEADLOCK};  // some wait for warps that are gone")
        self._close(to=1)
        self.put("return 0;")
        self._close()

    def _shuffle_order(self) -> None:
        """Fisher-Yates; the quick generator of Numerical Recipes in C (2nd ed., section 7.1)."""
        self._open(f"static void {self.name}_shuffle(int* order, unsigned* seed)")
        self._open(f"for (int i = 0; i < {self.warps}; ++i)")
        self.put("*seed = *seed * 1664525u + 1013904223u;")
        self.put("const int other = (int)((*seed >> 8) % (unsigned)(i + 1));")
        self.put("order[i] = order[other];")
        self.put("order[other] = i;")
        self._close()

    def _grid(self) -> None:
        name, shuffled = self.name, self.seed is not None
        self._open(f"int {name}(void** args)")
        self._allocate()
        self.put(f"{name}_state* const warps = malloc({self.warps} * sizeof *warps);")
        self.put(f"int code = warps ? 0 : {NO_MEMORY};")
        if shuffled:
            self.put(f"unsigned seed = {self.seed}u;")
        self._loops(self.program.launch.grid_axes, going_on=" && !code")
        call = f"{name}_block(warps, {self._passed()}{', &seed' if shuffled else ''})"
        self.put(f"if (!code) code = {call};")
        self._close(to=1)
        self.put("free(warps);")
        self._put_all(self._free())
        self.put("return code;")
        self._close()

    def _passed(self, what: str = "") -> str:
        """What functions of a block hand on: arguments, its memory, its place in the grid."""
        kinds = {"args": "void** args"}
        if self.shared_bytes:
            kinds["shared"] = "unsigned char* const shared"
        for a in self.program.launch.grid_axes:
            kinds[self.names[a.range]] = f"const int {self.names[a.range]}"
        return ", ".join(kinds.values() if what == "declare" else kinds)

    # ---- the parts of a warp
    def _parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, Region):
                self._lanes(part)
            elif isinstance(part, Split):
                self._split(part)
            else:
                self.do(part)

    def barrier(self, u: UOp) -> None:
        self.places += 1
        n = self.places
        self.put(f"S->pc = {n}; return 1; case {n}:;  // __syncthreads()")

    def _split(self, part: Split) -> None:
        """A loop that the lanes of a warp go through together: its variable is the warp's."""
        r, outer = part.opener, self.depth
        name = self.open_loop(r)
        self.around.append(r)
        if not self.state.get(name, "").startswith("long long"):  # loops one after another share it
            self.state[name] = f"{self.type_of(r)} {name}"
        a = r.arg
        move = f"++S->{name}" if a.step == 1 else f"S->{name} += {a.step}"
        stay = f"S->{name} {'<' if a.step > 0 else '>'} {a.start + a.step * a.size}"
        self._open(f"for (S->{name} = {a.start}; {stay}; {move})")
        self._parts(part.parts)
        self._close(to=outer)
        self.around.pop()
        self.taken.discard(name)

    def _lanes(self, region: Region) -> None:
        """One loop over the lanes: what it takes from outside, then its own text."""
        self.region = region
        before, self.lines = self.lines, []
        self.depth += 1
        shuffle = region.shuffle
        if shuffle is None:
            self.block(region.items)
        else:
            self._shuffle(shuffle)
        text, self.lines = self.lines, []
        self._from_outside(region)
        outside, self.lines = self.lines, before
        self.depth -= 1
        if not text:
            return
        count = "lanes" if self.ragged and self.warps > 1 else str(min(WARP, self.threads))
        lane = "l" if shuffle is None else "to"
        self._open(f"for (int {lane} = 0; {lane} < {count}; ++{lane})")
        if shuffle is not None:
            other = f"to ^ {shuffle.arg.by}"
            if self.ragged:
                other = f"({other}) < {count} ? {other} : to"
            self.put(f"const int l = {other};")
        self.lines += [*outside, *text]
        self._close(to=self.depth - 1)

    def _shuffle(self, u: UOp) -> None:
        """Lane `to` gets what lane l = to ^ mask has, its own where the block ends before l."""
        value, c = self.expr(u.src[0]), self.type_of(u)
        name = self.fresh("ok" if u.dtype is dtypes.bool else "val")
        self.put_from(u, f"S->{name}[to] = {value};")
        self._keep(u, name, c)

    def _keep(self, u: UOp, name: str, c: str) -> None:
        self.names[u], self.types[u] = name, c
        self.state[name] = f"{c} {name}[{WARP}]"

    def _from_outside(self, region: Region) -> None:
        """Thread numbers, the warp's loop variables, arrays, values of earlier regions."""
        cuts, needs = self.cuts, self.cuts.needs[region]
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
            elif home is not region:
                super().declare(m)
        for u, home in cuts.home.items():
            if u in needs and home is not region:
                name = self.names[u]
                kept = f"const {self.types[u]} {name} = S->{name}[l];"
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

    # ---- statements inside a region
    def let(self, u: UOp) -> None:
        c = self.type_of(u)
        super().let(u)
        if self.region is None:
            return
        name, cuts = self.names[u], self.cuts
        self.types[u] = c
        if u in cuts.again:
            self.texts[u] = self.lines[-1].strip()
            if u not in cuts.needs[self.region]:
                self.lines.pop()
        elif u in cuts.kept:
            self.put(f"S->{name}[l] = {name};")
            self._keep(u, name, c)

    def declare(self, m: UOp) -> None:
        if m.arg.addrspace is AddrSpace.SHARED:
            return
        name = self.memory_name(m)
        if self.region is not None and m in self.cuts.kept:
            self.state[name] = f"{self.type_name(m.dtype)} {name}[{WARP}][{prod(m.arg.shape)}]"
        elif self.region is None or m in self.cuts.needs[self.region]:
            super().declare(m)

    def qualifier(self, m: UOp) -> str:
        return ""  # copies go through memcpy

    def pragma(self, r: UOp) -> list[str]:
        if r.arg.kind is AxisType.THREAD:
            raise UsageError(
                f"kernel {self.name} has CPU threads (Opts.thread); emulation is for GPU kernels. "
                "Lower it with Opts(gpu=True), or render it with render_c."
            )
        return []

    # ---- text
    def _allocate(self) -> None:
        if self.shared_bytes:
            self.put(f"unsigned char* const shared = malloc({self.shared_bytes});")
            self.put(f"if (!shared) return {NO_MEMORY};")

    def _free(self) -> list[str]:
        return ["free(shared);"] if self.shared_bytes else []

    def _tiles(self) -> Iterable[str]:
        """A pointer for each shared memory."""
        for m, at in self.offsets.items():
            c = self.type_name(m.dtype)
            yield f"{c}* restrict const {self.memory_name(m)} = ({c}*)(shared + {at});"

    def _loops(self, axes: Sequence[Axis], going_on: str = "") -> None:
        """A loop for each axis, .x innermost; `_close` ends them."""
        for a in reversed(axes):
            n = self.names[a.range]
            self._open(f"for (int {n} = 0; {n} < {a.range.arg.size}{going_on}; ++{n})")

    def _open(self, line: str) -> None:
        self.put(f"{line} {{")
        self.depth += 1

    def _close(self, to: int = 0, end: str = "") -> None:
        while self.depth > to:
            self.depth -= 1
            self.put(f"}}{end}")

    def _put_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.put(line)


def _seed(order: str) -> int | None:
    """The seed of "shuffled(seed)"; None for the other orders.  Raises UsageError for no order."""
    if order in ("forward", "backward"):
        return None
    m = re.fullmatch(r"shuffled\((\d{1,9})\)", order)
    if m is None:
        raise UsageError(
            f"order is {order!r}; it is 'forward', 'backward' or 'shuffled(seed)', "
            "the seed a whole number of up to 9 digits"
        )
    return int(m[1])


def render_emulated(
    program: ProgramTree,
    name: str,
    *,
    order: str = "forward",
    check: bool | None = None,
    target: str | Target = "sm_80",
    origins: bool = False,
) -> Source:
    """C text that emulates a GPU kernel on a CPU, the same PROGRAM that the GPU gets.

    Parameters
    ----------
    program: the kernel, as `render_cuda` takes it.
    name: of the C function `int NAME(void **args)`.
    order: in which the warps of a block run between barriers: "forward", "backward" or
        "shuffled(seed)".  Right kernels give the same bits in each.
    check: reserved; True is an error until there is a checked emulation.
    target: whose limit of shared memory counts.
    origins: the user's file and line as comments.

    Raises
    ------
    UsageError: a name that C cannot have, an unknown order, check=True, a kernel of CPU threads.
    TargetError: more shared memory than the target has.
    """
    if check:
        raise UsageError(
            f"check=True for kernel {name}: there is no checked emulation yet. Leave check out to "
            "emulate without looking for races and stray accesses."
        )
    renderer = EmulationRenderer(program, name, order, named_target(target))
    renderer.origins = origins
    return renderer.render()


__all__ = ["DEADLOCK", "NO_MEMORY", "EmulationRenderer", "render_emulated"]

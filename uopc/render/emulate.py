"""The PROGRAM that a GPU gets, as C for a CPU: block after block, warp after warp.

`int NAME(void **args)`: args[i] is the address of parameter i's data, in slot order, then stands
what the caller asks and is told (`uopc/runtime/emulated.py`), or 0.  It returns 0, or DEADLOCK,
NO_MEMORY or FAULT; it keeps nothing between calls, so any threads may run it at once.

A kernel whose threads never meet is plain loops over blocks and threads.  Otherwise a warp is a
function that can be resumed: `switch (W->pc)` with a case at each place where it may have to wait,
inside whatever loops it stands; its lanes are loops between the meetings (`regions.py`).  Such a
loop begins with what it takes from the warp's state S; after that its text is the CUDA text, name
for name:

    for (int l = 0; l < 32; ++l) {
      const int thread = 32 * warp + l;
      const int lidx0 = thread;
      float* const acc0 = S->acc0[l];
      part1[lidx0] = acc0[0];
    }
    emu_block_barrier(W, W->full, 3);  // __syncthreads()
    W->pc = 1; case 1: if (!emu_passed(W)) return 1;

The blocks of a cluster run together, as one larger block: their warps are numbered on, SHARED
memory and barriers of a block are each block's own, and CLUSTER memory is one array of all parts.

A warp's function is made by `warps.py` and `meetings.py`; what warps do as a whole, and who moves
when, stands in the runtime (`uopc/runtime/emulated.h`).
A block's shared memory and its warps' states begin as 0xff bytes: a NaN in every float format.

Checked text has the same shape; its accesses are checked (`lanes.py`).
"""

from __future__ import annotations

import re

from uopc.config import current
from uopc.dtype import AddrSpace
from uopc.errors import UsageError
from uopc.kernel import Do, Item, ProgramTree, Scope, Source
from uopc.render.base import check_clusters, check_shared
from uopc.render.gcc import may_vectorise
from uopc.render.meetings import MeetingRenderer
from uopc.render.orders import order_number
from uopc.render.regions import is_meeting
from uopc.target import Target
from uopc.target import target as named_target
from uopc.uop.node import UOp, prod
from uopc.uop.ops import Ops

#: what an emulated kernel returns where warps wait for what will never come
DEADLOCK = 1
#: what an emulated kernel returns where a block finds no memory
NO_MEMORY = 2
#: what an emulated kernel returns where an ASSERT failed or a check found a fault
FAULT = 3

_SPACES = {
    AddrSpace.GLOBAL: "EMU_GLOBAL",
    AddrSpace.SHARED: "EMU_SHARED",
    AddrSpace.REG: "EMU_REGISTERS",
    AddrSpace.MBARRIER: "EMU_MBARRIERS",
    AddrSpace.CLUSTER: "EMU_CLUSTER",
}
_OF_RUNTIME = frozenset((Ops.ROLE, Ops.COPY, Ops.PRINTF, Ops.ASSERT))
#: emulation is compiled without the vectoriser (`uopc/runtime/cpu.py`) but where it is safe
_VECTORISED = '#pragma GCC optimize ("tree-vectorize")'
_OURS = re.compile(r"(emu|Emu|EMU|tc|Tc|TC)_?.*|malloc|free")


class EmulationRenderer(MeetingRenderer):
    """PROGRAM -> C11 that does what the GPU's threads do."""

    def __init__(
        self,
        program: ProgramTree,
        name: str,
        order: str,
        target: Target,
        checked: bool = False,
        traced: bool = False,
        mutated: bool = False,
        elide: bool = True,
    ) -> None:
        """elide: leave out checks that the program's intervals prove; the verdict is the same."""
        super().__init__(program, name, checked, traced, mutated, elide)
        if _OURS.fullmatch(name):
            raise UsageError(
                f"a kernel cannot be called {name!r}: emulation uses that name; choose another"
            )
        self.order, self.target = order_number(order), target
        check_shared(name, self.shared_bytes, target)
        check_clusters(name, self.cluster, target)

    def render(self, target: Target | None = None) -> Source:
        """The whole file."""
        launch = self.program.launch
        for a in (*launch.grid_axes, *launch.block_axes):
            self.names[a.range] = self.range_name(a.range)
            self.taken.add(self.names[a.range])
        self.depth = 0
        if self._is_plain():
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
            places=tuple(self.places),
            memories=tuple(self.shadows),
            program=self.program,
            mutants=tuple(self.mutants),
            checked=self.checked,
            order=self.order,
            work=_work(self.program),
        )

    def _is_plain(self) -> bool:
        if self.checked or self.mutated or self.order[0] or self.cluster > 1:
            return False
        return not any(is_meeting(item) or _needs_runtime(item) for item in self.program.walk())

    # ---- threads that never meet
    def _plain(self) -> None:
        """Loops over blocks and threads around the kernel's text."""
        self._open(f"int {self.name}(void** args)")
        self._put_all(self.parameters())
        if self.shared_bytes:
            self.put(f"unsigned char* const shared = malloc({self.shared_bytes});")
            self.put(f"if (!shared) return {NO_MEMORY};")
        self._put_all(self.memory_lines(self.warps, False, True))
        self._loops(self.program.launch.grid_axes)
        if self.shared_bytes:
            self.put(f"memset(shared, 0xff, {self.shared_bytes});")
        self._loops(self.program.launch.block_axes)
        self.block(self.program.items)
        self._close(to=1)
        if self.shared_bytes:
            self.put("free(shared);")
        self.put("return 0;")
        self._close()

    def head(self) -> list[str]:
        vectorised = may_vectorise(self.program) and not self.checked
        return [*([_VECTORISED] * vectorised), *self._includes()]

    def _includes(self) -> list[str]:
        if not self._is_plain():
            uses_atoms = any(text.startswith("TcAtom") for text in self.constants)
            tensor = ['#include "tensor_cores.h"'] if uses_atoms else []
            return ['#include "emulated.h"', *tensor, *super().head()]
        calls = any("malloc(" in line for line in self.lines)
        mine = ["void* malloc(unsigned long);", "void free(void*);"] if calls else []
        return mine + super().head()

    # ---- threads that meet: a state and a function of a warp; the runtime does the rest
    def _resumable(self) -> None:
        self._warp()
        warp, self.lines = self.lines, []
        self._open("typedef struct")
        self.put("EmuWarp head;")
        self._put_all(f"{declaration};" for declaration in self.state.values())
        self._close(end=f" {self.name}_state;")
        self._put_all(f"static const {text.replace('@', n)};" for text, n in self.constants.items())
        self.lines += warp
        self._entry()

    def _warp(self) -> None:
        self.put("// Runs a warp up to where it has to wait (1), or to its end (0).")
        self._open(f"static int {self.name}_warp(void* state)")
        self.put(f"{self.name}_state* {self._restrict()}const S = state;")
        self.put("EmuWarp* const W = &S->head;")
        of_block = f" % {self.warps}" if self.cluster > 1 else ""
        self.put(f"const int warp = W->warp{of_block};")
        parameters = list(self.parameters())
        if parameters:
            self.put("void** const args = W->block->args;")
        self._put_all(parameters)
        if self.shared_bytes:
            self.put("unsigned char* const shared = W->block->shared;")
        warps = self.warps * self.cluster
        self._put_all(self.memory_lines(warps, self.exact, not self.asynchronous))
        for n, a in enumerate(self.program.launch.grid_axes):
            self.put(f"const int {self.names[a.range]} = W->block->place[{n}];")
        self._open("switch (W->pc)")
        self.put("case 0:;")
        self._parts(self.cuts.parts)
        self._close(to=1)
        self.put("return 0;")
        self._close()

    def _restrict(self) -> str:
        return "" if self.asynchronous else "restrict "

    def parameters(self) -> list[str]:
        lines = super().parameters()
        if self.checked:  # a bundle is what the runtime has gathered
            params = zip(lines, self.program.params, strict=True)
            lines = [line for line, p in params if not p.bundle]
        if self._is_plain() or not self.asynchronous:
            return lines
        return [line.replace("restrict ", "") for line in lines]

    def _entry(self) -> None:
        """What the runtime is told of the kernel, and the function that is called."""
        self.put(f"static const EmuMemoryInfo {self.name}_memories[] = {{")
        for m in self.shadows:
            self.put(f"  {self._memory_info(m)},  // {self.memory_name(m)}")
        self.put("};")
        self._open(f"int {self.name}(void** args)")
        kind, seed = self.order
        fields = {
            "run": f"{self.name}_warp",
            "state_bytes": f"sizeof({self.name}_state)",
            "threads": self.threads,
            "grid_axes": len(self.program.launch.grid_axes),
            "grid": self._grid(),
            "shared_bytes": self.shared_bytes,
            "parameters": len(self.program.params),
            "mbarriers": self.mbarriers,
            "checked": int(self.checked),
            "engines": int(self.asynchronous),
            "alone": int(self.apart),
            "fences": int(self.fences),
            "cluster": self.cluster if self.cluster > 1 else 0,
            "order": kind,
            "seed": seed,
            "memory_count": len(self.shadows),
            "memories": f"{self.name}_memories",
        }
        self._open("static const EmuKernel kernel =")
        told = {field: value for field, value in fields.items() if value not in (0, "")}
        self._put_all(f".{field} = {value}," for field, value in told.items())
        self._close(to=1, end=";")
        self.put("return emu_launch(&kernel, args);")
        self._close()

    def _grid(self) -> str:
        sizes = [str(a.range.arg.size) for a in self.program.launch.grid_axes]
        return f"{{{', '.join(sizes)}}}" if sizes else ""

    def _memory_info(self, m: UOp) -> str:
        shadow, space = self.shadows[m], m.arg.addrspace
        at = {
            AddrSpace.GLOBAL: self.numbers[m],
            AddrSpace.SHARED: self.offsets.get(m, 0),
            AddrSpace.CLUSTER: self.offsets.get(m, 0),
            AddrSpace.MBARRIER: self.barriers.get(m, 0),
        }.get(space, 0)
        readers = shadow.readers(self.warps * self.cluster)
        numbers = (
            *(at, shadow.size_bytes, shadow.item_bytes, shadow.shift, *readers),
            *(int(shadow.written), int(shadow.read or not shadow.written), int(self.exact)),
            *((m.arg.shape[1],) if m.arg.bundle else ()),
        )
        return f"{{{_SPACES[space]}, {', '.join(map(str, numbers))}}}"


def _needs_runtime(item: Item) -> bool:
    if isinstance(item, Scope):
        return item.opener.op in _OF_RUNTIME
    return isinstance(item, Do) and item.effect.op in _OF_RUNTIME


def _work(program: ProgramTree) -> int:
    """About how many statements all threads do: items times the iterations around them."""
    launch, total = program.launch, 0
    stack = [(item, 1) for item in program.items]
    while stack:
        item, times = stack.pop()
        if isinstance(item, Scope):
            opener = item.opener
            inner = times * opener.arg.size if opener.op is Ops.RANGE else times
            stack += [(i, inner) for i in item.items]
        else:
            total += times
    return total * prod(launch.grid) * launch.threads


def render_emulated(
    program: ProgramTree,
    name: str,
    *,
    order: str = "forward",
    check: bool | None = None,
    trace: bool = False,
    mutate: bool = False,
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
    check: find races, accesses out of bounds and the like; None: as UOPC_CHECK says.
    trace: checked text that also tells the values of chosen threads.
    mutate: text whose synchronisation can be left out or twisted, one at a time.
    target: whose limit of shared memory counts.
    origins: the user's file and line as comments.

    Raises
    ------
    UsageError: a name that C cannot have, an unknown order, a kernel of CPU threads.
    TargetError: more shared memory than the target has.
    """
    checked = current().check if check is None else check
    on = target if isinstance(target, Target) else named_target(target)
    renderer = EmulationRenderer(program, name, order, on, checked, trace, mutate)
    renderer.origins = origins
    return renderer.render()


__all__ = ["DEADLOCK", "FAULT", "NO_MEMORY", "EmulationRenderer", "render_emulated"]

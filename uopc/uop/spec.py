"""Check a graph against the tables of its stage (`uopc/uop/stages.py`).

One small rule an op, then the rules for a whole graph.  Linear in the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np

from uopc.dtype import AddrSpace, dtypes
from uopc.errors import SpecError
from uopc.uop.facts import bounds, free
from uopc.uop.infer import segment
from uopc.uop.node import UOp, is_part, is_rank, memory, prod, toposort, where_from
from uopc.uop.numbers import Array, array_of, compute
from uopc.uop.ops import (
    ELEMENTWISE,
    IN_THREAD,
    SCOPES,
    WARP_VALUES,
    WHOLE_KERNEL,
    AccessArg,
    AxisType,
    Ops,
    ParamArg,
    RangeArg,
    ReduceArg,
    ReportArg,
    StageArg,
)
from uopc.uop.spec_gpu import GPU_RULES, not_memory
from uopc.uop.spec_kernel import kernel_faults
from uopc.uop.stages import (
    ARGS,
    DIGIT_KINDS,
    GPU_OPS,
    GPU_RANGES,
    OPERANDS,
    PARTS,
    REDUCE_RANGES,
    STAGE_OPS,
    STAGE_RANGES,
    WIDEST_BYTES,
    WIDTHS,
    Operands,
    Part,
    Stage,
)
from uopc.uop.text import index_text, scope_text


def check(root: UOp, stage: Stage, gpu: bool | None = None) -> None:
    """Raise SpecError unless the graph below `root` is one of `stage`.

    gpu: False for native C, True for a GPU (emulated or not), None where both are possible.
    The message names the stage, the op, the user's file and line, and the rule.
    """
    graph = _Graph(root, stage, gpu)
    for u in toposort(root):
        why = _wrong(u, graph)
        if why is not None:
            raise _error(stage, u, why)
        graph.add(u)
    _check_root(root, stage)
    if stage is Stage.LOOPS:
        _check_loops(root, graph)


def _error(stage: Stage, u: UOp, why: str) -> SpecError:
    """The error for one node, placed by the nearest source that has an origin if it has none."""
    near = next((x for x in reversed(toposort(u)) if x.origins), u)
    place = where_from(u) if near is u else f"{where_from(u)} (from {where_from(near)})"
    return SpecError(f"{stage.name}: {u.op} at {place}: {why}. The node: {index_text(u, 100)}")


@dataclass
class _Graph:
    """What is known of the nodes checked so far."""

    root: UOp
    stage: Stage
    gpu: bool | None
    part: dict[UOp, Part] = field(default_factory=dict)
    memory: dict[UOp, UOp] = field(default_factory=dict)
    #: for a value, a leaf that no register index may have; absent where every leaf is fixed
    unfixed: dict[UOp, UOp] = field(default_factory=dict)
    declared: dict[tuple[Any, ...], UOp] = field(default_factory=dict)
    closer: dict[UOp, UOp] = field(default_factory=dict)

    def add(self, u: UOp) -> None:
        self.part[u] = self._part(u)
        if u.op in (Ops.BUFFER, Ops.ALLOC):
            self.memory[u] = u
        elif u.op in (Ops.INDEX, Ops.AFTER, Ops.SEGMENT) and u.src[0] in self.memory:
            self.memory[u] = self.memory[u.src[0]]
        if (
            u.op in (Ops.LOAD, Ops.ATOMIC, Ops.BUFFER)
            or u.op in WARP_VALUES
            or (u.op is Ops.RANGE and u.arg.kind is not AxisType.UPCAST)
        ):
            self.unfixed[u] = u
        elif (
            leaf := next((self.unfixed[s] for s in u.src if s in self.unfixed), None)
        ) is not None:
            self.unfixed[u] = leaf

    def _part(self, u: UOp) -> Part:
        if u.op is Ops.BUFFER:
            by_value = self.stage is Stage.TENSOR or u.shape == ()
            return Part.VALUE if by_value else Part.MEMORY
        if u.op in (Ops.AFTER, Ops.REDUCE, Ops.STAGE, Ops.SHUFFLE):
            part = self.part[u.src[0]]
            return part if part in (Part.MEMORY, Part.TUPLED) else Part.VALUE
        return PARTS.get(u.op, Part.VALUE)


_OF_BLOCKS = (AddrSpace.SHARED, AddrSpace.CLUSTER)
_BASED = (AddrSpace.GLOBAL, AddrSpace.SHARED)
_SHAPED = (Ops.BUFFER, Ops.ALLOC, Ops.AFTER, Ops.SEGMENT, Ops.TENSORMAP)
#: what is done to an element of a bundle's segment
_IN_SEGMENTS = (Ops.LOAD, Ops.STORE, Ops.ATOMIC)


# ---- one node
def _wrong(u: UOp, graph: _Graph) -> str | None:
    """Why a node does not belong into its stage; None where it does."""
    stage = graph.stage
    if u.op not in STAGE_OPS[stage]:
        return f"this stage has no {u.op}"
    if graph.gpu is False and u.op in GPU_OPS:
        return "native C has threads, but no blocks and warps"
    if (why := _wrong_arg(u) or _wrong_operands(u, graph)) is not None:
        return why
    if stage is not Stage.TENSOR and u.shape and u.op not in _SHAPED:
        return f"values are scalars here, this one has shape {u.shape}"
    if u.op not in _IN_SEGMENTS and any(map(_in_segment, u.src)):
        return "segments of bundles are loaded, stored and changed by ATOMICs, nothing else"
    rule = RULES.get(u.op)
    return None if rule is None else rule(u, graph)


def _in_segment(u: UOp) -> bool:
    return u.op is Ops.INDEX and segment(u) is not None


def _wrong_arg(u: UOp) -> str | None:
    if isinstance(u.arg, wanted := ARGS.get(u.op, object)):
        return None
    assert isinstance(wanted, tuple)
    names = " or ".join("None" if c is NoneType else c.__name__ for c in wanted)
    return f"its arg is {names}, got {u.arg!r}"


def _wrong_operands(u: UOp, graph: _Graph) -> str | None:
    want = OPERANDS[u.op]
    sets = (*want.must, *want.may)
    if len(u.src) < len(want.must) or (want.rest is None and len(u.src) > len(sets)):
        return f"it has {len(u.src)} sources, wants {_count(want)}"
    for i, s in enumerate(u.src):
        allowed = sets[i] if i < len(sets) else want.rest
        assert allowed is not None
        if graph.part[s] not in allowed:
            names = " or ".join(sorted(p.value for p in allowed if p is not Part.BOTH))
            return f"source {i} must be {names}, is {graph.part[s].value} ({s.op})"
    return None


def _count(want: Operands) -> str:
    if want.rest is not None:
        return f"{len(want.must)} or more"
    return f"{len(want.must)}" + (f" to {len(want.must) + len(want.may)}" if want.may else "")


def _memory_rule(u: UOp, graph: _Graph) -> str | None:
    a: ParamArg = u.arg
    if a.addrspace in _OF_BLOCKS and graph.gpu is False:
        return f"native C has no {a.addrspace.name} memory"
    if a.addrspace is AddrSpace.CLUSTER and len(a.shape) != 2:
        return f"CLUSTER memory has shape (blocks, elements of each), this has {a.shape}"
    if (u.op is Ops.BUFFER) != (a.addrspace is AddrSpace.GLOBAL):
        where = "a BUFFER is GLOBAL, an ALLOC is SHARED, CLUSTER, REG or MBARRIER"
        return f"{u.op} in {a.addrspace.name}: {where}"
    if a.addrspace is AddrSpace.MBARRIER and (graph.gpu is False or a.dtype is not dtypes.u64):
        return f"mbarriers are u64 objects of a GPU's block, this is {a.dtype}"
    if a.bundle and (why := _wrong_bundle(u, graph)) is not None:
        return why
    if a.slot < 0:
        return f"slots count from 0, this is {a.slot}"
    if u.op is Ops.ALLOC and prod(a.shape) < 1:
        return f"an allocation holds at least one element, this has shape {a.shape}"
    other = graph.declared.setdefault((u.op, a.slot, a.addrspace), u)
    if other is not u:
        also = f"{other.arg.dtype} of shape {other.arg.shape}"
        return f"slot {a.slot} in {a.addrspace.name} is also {also}: one record a slot"
    return None


def _wrong_bundle(u: UOp, graph: _Graph) -> str | None:
    if graph.stage is Stage.TENSOR:
        return "shaped values are no bundles; `segments` makes them of loops"
    if u.op is Ops.ALLOC or prod(u.arg.shape) < 1:
        return f"a bundle is a parameter of one element at least, this has shape {u.arg.shape}"
    return None


def _range_rule(u: UOp, graph: _Graph) -> str | None:
    a: RangeArg = u.arg
    if a.size < 1:
        return f"a range runs at least once, this has size {a.size}"
    if a.kind not in STAGE_RANGES[graph.stage]:
        return f"this stage has no {a.kind} ranges"
    if a.kind in WHOLE_KERNEL and (a.start, a.step) != (0, 1):
        return f"hardware counts from 0 by 1, not from {a.start} by {a.step}; put it into the index"
    if graph.gpu is False and a.kind in GPU_RANGES:
        return f"native C has no {a.kind} ranges"
    if graph.gpu is True and a.kind is AxisType.THREAD:
        return "a GPU kernel has no THREAD ranges; GLOBAL and LOCAL are its threads"
    if graph.stage is Stage.INDEXED and a.digit:
        return f"ranges are whole axes before `split`, this is digit {a.digit!r}"
    if is_rank(u) and graph.gpu is False:
        return "native C has no clusters of blocks"
    if graph.stage is Stage.MAPPED and a.kind not in DIGIT_KINDS.get(a.digit, ()):
        return f"digit {a.digit!r} is no {a.kind} range; digits are {', '.join(DIGIT_KINDS)}"
    return None


def _index_rule(u: UOp, graph: _Graph) -> str | None:
    a: ParamArg = graph.memory[u.src[0]].arg
    if u.arg is not None and (fault := _fault_of_base(u, graph)):
        return fault
    if a.addrspace is not AddrSpace.REG:
        return None
    if (leaf := graph.unfixed.get(u.src[1])) is not None:
        return _not_registers(leaf)
    return _inside(u, 1)


def _fault_of_base(index: UOp, graph: _Graph) -> str | None:
    """Rules for BasedArg."""
    if graph.stage is not Stage.LOOPS or graph.memory[index.src[0]].arg.addrspace not in _BASED:
        return "bases are made in LOOPS, of GLOBAL and SHARED memory"
    if index.src[1].op is not Ops.ADD:
        return "its offset is ADD(base, displacement)"
    if (leaf := graph.unfixed.get(index.src[1].src[1])) is not None:
        return f"displacements are of UPCAST ranges and constants only, not of {_leaf(leaf)}"
    return None


def _inside(index: UOp, width: int) -> str | None:
    """Accesses of registers are known before the kernel runs."""
    size = prod(memory(index).arg.shape)
    lowest, highest = _extremes(index.src[1])
    if lowest >= 0 and highest + width <= size:
        return None
    return f"there are {size} registers, the access goes from {lowest} to {highest + width - 1}"


#: values of an index of registers that are computed one by one where its bounds are too wide
_MOST_VALUES = 1 << 16


def _extremes(index: UOp) -> tuple[int, int]:
    """The lowest and highest value of an index of constants and UPCAST ranges."""
    order = toposort(index)
    ranges = [r for r in order if r.op is Ops.RANGE]
    if not ranges or prod(r.arg.size for r in ranges) > _MOST_VALUES:
        return bounds(index)
    values: dict[UOp, Array] = {}
    for n, r in enumerate(ranges):
        shape = [1] * len(ranges)
        shape[n] = r.arg.size
        values[r] = (r.arg.start + r.arg.step * np.arange(r.arg.size)).reshape(shape)
    for u in order:
        if u.op is Ops.CONST:
            values[u] = array_of(u.arg)
        elif u not in values:
            if u.op not in ELEMENTWISE:
                return bounds(index)
            of = [values[s] for s in u.src]
            values[u] = compute(u.op, u.src[0].dtype, of, u.arg if u.op is Ops.CAST else None)
    return int(values[index].min()), int(values[index].max())


def _not_registers(leaf: UOp) -> str:
    by = _leaf(leaf)
    return (
        f"registers are indexed by UPCAST ranges and constants only, not by {by}: "
        "they would silently go to local memory"
    )


def _leaf(u: UOp) -> str:
    return f"the {u.arg.kind} range {index_text(u)}" if u.op is Ops.RANGE else index_text(u, 60)


def _wide(u: UOp, graph: _Graph) -> str | None:
    """Rules for AccessArg; None where the access is one element."""
    if u.arg is None:
        return None
    if graph.stage is not Stage.LOOPS or not isinstance(u.arg, AccessArg):
        return f"wide accesses are made in LOOPS, with an AccessArg; this has {u.arg}"
    size = u.arg.width * u.src[0].dtype.itemsize
    if graph.memory[u.src[0]].arg.addrspace is AddrSpace.CLUSTER:
        return "CLUSTER memory is read and written element by element"
    if u.arg.width not in WIDTHS or size > WIDEST_BYTES:
        what = f"width {u.arg.width} of {u.src[0].dtype} is {size} bytes"
        return f"{what}; widths are {', '.join(map(str, WIDTHS))}, up to {WIDEST_BYTES} bytes"
    if (of := segment(u.src[0])) is not None and of.shape[0] % u.arg.width:
        longest = f"the segments have up to {of.shape[0]} elements"
        return f"{longest}, which is to be a multiple of the width {u.arg.width}"
    in_registers = graph.memory[u.src[0]].arg.addrspace is AddrSpace.REG
    return _inside(u.src[0], u.arg.width) if in_registers else None


def _load_rule(u: UOp, graph: _Graph) -> str | None:
    if (why := _wide(u, graph) or not_memory(u)) is not None:
        return why
    if (
        u.arg is not None
        and len(u.src) == 3
        and not (u.src[2].op is Ops.CONST and u.src[2].arg.bits == 0)
    ):
        return "a wide LOAD gives zeros where its gate is false: the other value must be 0"
    return None


def _store_rule(u: UOp, graph: _Graph) -> str | None:
    if isinstance(u.arg, ReportArg) and graph.stage is not Stage.LOOPS:
        word = u.src[0].dtype
        return None if word is dtypes.u64 else f"it reports into a word of u64, not of {word}"
    if (why := _wide(u, graph) or not_memory(u)) is not None:
        return why
    value = u.src[1]
    if u.arg is not None and not (value.op is Ops.LOAD and value.arg == u.arg):
        width = f" of width {value.arg.width}" if _is_wide(value) else ""
        return f"a STORE of width {u.arg.width} copies a LOAD of that width, got {value.op}{width}"
    if u.arg is None and _is_wide(value):
        return f"a STORE of one element takes one element, the LOAD has {value.arg.width}"
    return None


def _is_wide(u: UOp) -> bool:
    return u.op is Ops.LOAD and u.arg is not None


def _distinct(ranges: Iterable[UOp]) -> str | None:
    ranges = tuple(ranges)
    return None if len(set(ranges)) == len(ranges) else "it closes the same range twice"


def _is_opened(r: UOp) -> bool:
    """Is this a scope that one END closes, not a range that lives for the whole kernel?"""
    return r.op in SCOPES and (r.op is not Ops.RANGE or r.arg.kind in IN_THREAD)


def _end_rule(u: UOp, graph: _Graph) -> str | None:
    if graph.stage is not Stage.LOOPS:
        one = u.src[0].op is Ops.STORE
        return (
            _distinct(u.src[1:])
            if one
            else f"it closes ranges of a STORE here, not of {u.src[0].op}"
        )
    for r in u.src[1:]:
        other = graph.closer.setdefault(r, u)
        if other is not u and _is_opened(r):
            also = f"also by the END at {where_from(other)}"
            return f"{scope_text(r)} is closed twice, {also}. Give each loop a range of its own"
    return _distinct(u.src[1:]) or _wrong_nest(u)


def _wrong_nest(end: UOp) -> str | None:
    """IFs and ROLEs hold the effect, and nothing that is opened inside of them."""
    effect, *scopes = end.src
    for n, r in enumerate(scopes):
        if r.op is Ops.RANGE:
            continue
        if r not in free(effect):
            return (
                f"nothing that it does is inside {scope_text(r)}: what is done there "
                "comes after it, memory.after(it)"
            )
        late = next((x for x in scopes[n + 1 :] if x in free(r)), None)
        if late is not None:
            return (
                f"it closes {scope_text(late)} inside {scope_text(r)}, which mentions it. "
                "Scopes are named outermost first"
            )
    return None


def _reduce_rule(u: UOp, graph: _Graph) -> str | None:
    a: ReduceArg = u.arg
    if graph.stage is Stage.TENSOR:
        return (
            None
            if a.axes and len(u.src) == 1
            else "it reduces a number of last axes here and names no ranges"
        )
    if a.axes or len(u.src) < 2:
        return "it names the ranges it closes here, not a number of axes"
    for r in u.src[1:]:
        if r.arg.kind not in REDUCE_RANGES and not (is_rank(r) or is_part(r)):
            return f"it cannot close the {r.arg.kind} range {index_text(r)}: those never meet"
    return _distinct(u.src[1:])


def _scan_rule(u: UOp, graph: _Graph) -> str | None:
    if graph.stage is Stage.TENSOR:
        return None if len(u.src) == 1 else "it goes along the last axis here and names no ranges"
    if len(u.src) < 3:
        return "it names where it starts and the ranges it goes along here"
    for r in u.src[2:]:
        if r.arg.kind not in REDUCE_RANGES:
            return f"it cannot go along the {r.arg.kind} range {index_text(r)}: those never meet"
        if r in free(u.src[1]):
            return f"it starts before the first {index_text(r)}, which its start depends on"
    return _distinct(u.src[2:])


def _stage_rule(u: UOp, graph: _Graph) -> str | None:
    a: StageArg = u.arg
    _, write, read, gate, *ranges = u.src
    if (
        write.dtype is not dtypes.index
        or read.dtype is not dtypes.index
        or gate.dtype is not dtypes.bool
    ):
        got = f"{write.dtype}, {read.dtype} and {gate.dtype}"
        return f"addresses are index and the gate is bool; these are {got}"
    if a.space in (AddrSpace.GLOBAL, AddrSpace.MBARRIER) or a.size < 1:
        what = f"{a.space.name} of {a.size}"
        return f"it is SHARED, CLUSTER or REG of at least one element, not {what}"
    if a.space in _OF_BLOCKS and graph.gpu is False:
        return f"native C has no {a.space.name} memory"
    if a.blocks < 1 or a.size % a.blocks or (a.blocks > 1) != (a.space is AddrSpace.CLUSTER):
        return (
            "CLUSTER memory has equal parts in several blocks, any other is of one: "
            f"{a.space.name} of {a.size} in {a.blocks}"
        )
    if a.exchange and a.space is AddrSpace.REG:
        return "threads exchange values through SHARED memory, never through registers"
    if a.space is AddrSpace.REG:
        for address in (write, read):
            if (leaf := graph.unfixed.get(address)) is not None:
                return _not_registers(leaf)
    for r in ranges:
        if r.arg.kind not in (
            IN_THREAD if a.space is AddrSpace.REG else IN_THREAD | {AxisType.LOCAL}
        ):
            return f"a fill cannot close the {r.arg.kind} range {index_text(r)}"
    return _distinct(ranges)


def _sink_rule(u: UOp, graph: _Graph) -> str | None:
    return None if u is graph.root else "a SINK is the root and stands nowhere else"


def _tensor_item_rule(u: UOp, graph: _Graph) -> str | None:
    return None if isinstance(u.arg, int) else f"it takes a position, got {u.arg!r}"


RULES: dict[Ops, Callable[[UOp, _Graph], str | None]] = {
    Ops.BUFFER: _memory_rule,
    Ops.ALLOC: _memory_rule,
    Ops.RANGE: _range_rule,
    Ops.INDEX: _index_rule,
    Ops.LOAD: _load_rule,
    Ops.STORE: _store_rule,
    Ops.END: _end_rule,
    Ops.REDUCE: _reduce_rule,
    Ops.SCAN: _scan_rule,
    Ops.STAGE: _stage_rule,
    Ops.SINK: _sink_rule,
    Ops.ITEM: _tensor_item_rule,
    **GPU_RULES,
}


# ---- the whole graph
def _check_root(root: UOp, stage: Stage) -> None:
    if stage is Stage.TENSOR:
        if root.dtype is dtypes.void:
            raise _error(stage, root, "a body is a value; take one of several with .item(k)")
        return
    if root.op is not Ops.SINK:
        raise _error(stage, root, "the root is a SINK")
    for s in root.src:
        if stage is not Stage.LOOPS and s.op not in (Ops.END, Ops.STORE):
            raise _error(stage, s, "a SINK holds STOREs and their ENDs here")
    may_be_open = frozenset() if stage is Stage.INDEXED else WHOLE_KERNEL
    if stage is not Stage.LOOPS:  # there the message can say more
        for r in toposort(root):
            if r in free(root) and r.arg.kind not in may_be_open:
                raise _error(stage, root, f"the range {index_text(r)} is never closed")


def _check_loops(root: UOp, graph: _Graph) -> None:
    """Every loop is closed once, and nothing that mentions it lives after its END."""
    order = toposort(root)
    for u in order:
        if any(_is_wide(s) for s in u.src) and not (u.op is Ops.STORE and u.arg is not None):
            raise _error(
                graph.stage, u, "a wide LOAD is only copied by a wide STORE of the same width"
            )
        if not _is_opened(u):
            continue
        if u not in graph.closer:
            what = "range" if u.op is Ops.RANGE else u.op
            raise _error(graph.stage, u, f"no END closes this {what}")
        if u in free(root):
            late = _first_after(order, graph.closer[u], u)
            raise _error(
                graph.stage, late, f"it mentions {scope_text(u)} after the END that closes it"
            )
    for u, why in kernel_faults(root):
        raise _error(graph.stage, u, why)


def _first_after(order: list[UOp], end: UOp, r: UOp) -> UOp:
    """The first node that depends on `end` and still has r free."""
    later = {end}
    for u in order:
        if any(s in later for s in u.src):
            later.add(u)
            if r in free(u):
                return u
    return end


__all__ = ["Stage", "check"]

"""From lazy tensors to memory: `realize` computes what tensors ask for, `read` also waits for it.

Everything that one call asks for on a device is one schedule, so that its kernels share what they
can: a loss, its gradients and the optimiser's updates are a handful of kernels.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from uopc.errors import UsageError
from uopc.runtime import observe
from uopc.runtime.buffer import Buffer
from uopc.runtime.executor import raise_errors
from uopc.schedule.memory import Leaf, Result
from uopc.schedule.normalise import canonical, reachable, structure
from uopc.schedule.plan import Schedule, schedule
from uopc.target import Target
from uopc.tensor import storage, watch
from uopc.tensor.backward import collects, remember
from uopc.tensor.base import Base, everyone, memory_of, naming
from uopc.tensor.prepare import Prepared, target_of
from uopc.uop.node import UOp, prod
from uopc.uop.ops import Ops

_VIEWED = (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.DETACH, Ops.CURVE)
_PLANS_MAX = 512  # schedules that are kept for graphs that come again
_plans: OrderedDict[tuple[Any, ...], Prepared] = OrderedDict()
_lock = threading.Lock()


def realize(*tensors: Base) -> None:
    """Compute the elements of these tensors, on their devices: one schedule for each device.

    A tensor then stands for its memory, or for a view of one; one that is computed and requires a
    gradient keeps its graph, and the memory stands in for it wherever it is used.  Any thread may
    compute; one does at a time.
    """
    with storage.turn:
        for device in dict.fromkeys(t.device for t in tensors):
            _realized([t for t in tensors if t.device == device], device)


def _realized(tensors: Sequence[Base], device: str) -> list[UOp]:
    """The graphs of tensors of one device, which are computed now; in one's turn."""
    mine = [*tensors, *storage.companions.get(device, ())]
    for t in tensors:
        _own_if_constant(t)
    graphs = [t._u for t in mine]
    _compute([base_of(u) for u in graphs], device)
    for t, u in zip(mine, graphs, strict=True):
        _settle(t, u)
    return graphs


def _own_if_constant(t: Base) -> None:
    """A tensor of constants alone gets a memory of its own: its graph is that of equal tensors on
    every device, so that no memory can stand for it."""
    u = t._u
    if _is_constant(u):
        place = storage.place(t.device, u.dtype, u.shape)
        held = memory_of(place)
        assert held is not None
        version = held.assign(u.reshape(held.shape)).reshape(u.shape)
        with naming:
            if t._u is u:
                t._u = version


def _is_constant(u: UOp) -> bool:
    """Is it computed from no memory?"""
    stack, seen = [u], {u}
    while stack:
        node = stack.pop()
        if node.op is Ops.BUFFER:
            return False
        new = [s for s in node.src if s not in seen]
        seen.update(new)
        stack += new
    return True


def read(tensor: Base) -> Buffer:
    """The memory with a tensor's elements, in order, once they are there; to be called, and its
    memory used, in one turn.

    Raises IndexError where an index was out of range on the way, JitError in a captured function.
    """
    if watch.current is not None:
        watch.current.reading("elements")
    with storage.turn:
        u = _realized([tensor], tensor.device)[0]
        if storage.located(u) is None:
            _compute([u], tensor.device)
        raise_errors(tensor.device)
        held = storage.located(u)
        assert held is not None
        return storage.memory(held)


def to_host(tensor: Base) -> np.ndarray[Any, np.dtype[Any]]:
    """A copy of a tensor's elements as a numpy array; views are taken on the host.

    Raises IndexError where an index was out of range on the way, JitError in a captured function.
    """
    if watch.current is not None:
        watch.current.reading("elements for the host")
    views = []
    with storage.turn:
        u = _realized([tensor], tensor.device)[0]
        raise_errors(tensor.device)
        while (held := storage.located(u)) is None:
            views.append(u)
            u = u.src[0]
        array = storage.memory(held).numpy().reshape(u.shape)
    for view in reversed(views):
        if view.op is Ops.PERMUTE:
            array = array.transpose(view.arg)
        elif view.op is Ops.EXPAND:
            array = np.broadcast_to(array, view.shape)
        else:
            array = array.reshape(view.shape)
    return np.array(array, order="C") if views else array


def base_of(u: UOp) -> UOp:
    """What has memory for a value: a view of it is handed out as a view, not copied."""
    while u.op in _VIEWED and u not in storage.becomes and u.src[0].op not in _CONSTANT:
        u = u.src[0]
    return u


_CONSTANT = (Ops.CONST, Ops.IOTA)


def is_lazy(tensor: Base) -> bool:
    """Is there something to compute for a tensor?"""
    return bool(_wanted([base_of(tensor._u)]))


def schedule_of(*tensors: Base, on: Target | None = None) -> Schedule:
    """The kernels that `realize` would run for these tensors, without compiling or running them.

    on: what they are for; None: the device that the tensors live on.

    Raises UsageError where there is nothing to compute, or tensors live on two devices.
    """
    if on is None:
        return ready(*tensors)[0].plan
    roots, kept, _ = _asked(tensors)
    _, leaves = structure(roots, storage.becomes.get, kept)
    return _planned(roots, kept, leaves, on)


def ready(*tensors: Base) -> tuple[Prepared, list[UOp]]:
    """What `realize` would run for these tensors, and the BUFFERs of the memories that it runs on.

    Nothing is compiled or run.  Raises as `schedule_of` does.
    """
    return _prepared(*_asked(tensors))


def _asked(tensors: Sequence[Base]) -> tuple[list[UOp], frozenset[UOp], str]:
    """What has to be computed for tensors, what must keep its contents, and their device.  Raises
    as `schedule_of` does."""
    devices = sorted({t.device for t in tensors})
    if len(devices) != 1:
        raise UsageError(f"a schedule is for tensors of one device, got {', '.join(devices)}.")
    roots = _wanted([base_of(t._u) for t in tensors])
    if not roots:
        raise UsageError("nothing is left to compute: these tensors are in memory already.")
    roots, kept = _with_dependents(roots, devices[0])
    return roots, kept, devices[0]


def explain(*tensors: Base) -> str:
    """The kernels that these tensors would be computed by: for each, its bytes and why its results
    are stored; then what was kept apart, and why.  Raises as `schedule_of` does."""
    return schedule_of(*tensors).explain()


# ---- one schedule
def _compute(bases: Sequence[UOp], device: str) -> None:
    roots = _wanted(bases)
    for b in bases:
        if not prod(b.shape) and storage.located(b) is None:
            storage.stand_in(storage.place(device, b.dtype, b.shape), b)
    if not roots:
        return
    roots, kept = _with_dependents(roots, device)
    if watch.current is not None:
        watch.current.scheduling(roots)
    prepared, leaves = _prepared(roots, kept, device)
    listener = None if watch.current is None else watch.current.launched
    memories = [storage.memory(u) for u in leaves]
    results = prepared.run(memories, listener)
    _bind(roots, leaves, prepared.plan, results, device)


def _wanted(bases: Iterable[UOp]) -> list[UOp]:
    """Values that are not in memory, each once."""
    return [b for b in dict.fromkeys(bases) if storage.located(b) is None and prod(b.shape)]


def _prepared(
    roots: Sequence[UOp], kept: frozenset[UOp], device: str
) -> tuple[Prepared, list[UOp]]:
    """A prepared schedule, and the leaves that it runs on."""
    known = storage.becomes.get
    key, leaves = structure(roots, known, kept)
    whole = (key, device)
    with _lock:
        if (found := _plans.get(whole)) is not None:
            _plans.move_to_end(whole)
            return found, leaves
    with observe.span("schedule"):
        made = Prepared(_planned(roots, kept, leaves, target_of(device)), device)
    with _lock:
        found = _plans.setdefault(whole, made)
        while len(_plans) > _PLANS_MAX:
            _plans.popitem(last=False)
    return found, leaves


def _planned(
    roots: Sequence[UOp], kept: frozenset[UOp], leaves: Sequence[UOp], on: Target
) -> Schedule:
    """The schedule of the roots over their leaves."""
    new_roots, new = canonical(roots, storage.becomes.get, leaves)
    return schedule(new_roots, on, frozenset(new[u] for u in kept if u in new))


def _with_dependents(roots: list[UOp], device: str) -> tuple[list[UOp], frozenset[UOp]]:
    """(roots, and what must keep its contents) where updates are below the roots.

    The last version of each memory is computed with what reads it.  So is a tensor that is still
    lazy and depends on contents that are overwritten; one that is such contents keeps them.  What
    joins may bring updates of its own, so this goes on until nothing more joins.
    """
    known = storage.becomes.get
    held: set[UOp] | None = None
    while True:
        order = reachable(roots, known)
        versions = [u for u in order if u.op is Ops.ASSIGN and known(u) is None]
        if not versions:
            return roots, frozenset()
        if held is None:
            held, lazy = _values(device)
        old = {u.src[0] for u in versions}
        old |= {at for u in old if (at := storage.located(u)) is not None}
        more = _joining(versions, lazy, old)
        if not more.difference(roots):
            return roots, frozenset(_kept(old & held, old, device))
        roots = list(dict.fromkeys([*roots, *[u for u in (*versions, *lazy) if u in more]]))


def _values(device: str) -> tuple[set[UOp], list[UOp]]:
    """(the BUFFERs that tensors of a device show, the values of tensors that are not computed)."""
    held: set[UOp] = set()
    others: dict[UOp, None] = {}
    for t in everyone():
        if t.device == device:
            u = t._u
            if u.op is Ops.BUFFER:
                held.add(u)
            else:
                others[u] = None
    lazy: dict[UOp, None] = {}
    for u in others:
        base = base_of(u)
        if (at := storage.located(base)) is None:
            lazy[base] = None
        else:
            held.add(at)
    return held, list(lazy)


def _joining(versions: Sequence[UOp], lazy: Sequence[UOp], old: set[UOp]) -> set[UOp]:
    """What has to be computed before `old` is overwritten: lazy values on it, and last versions."""
    known = storage.becomes.get
    depends = set(old)
    for u in reachable(lazy, known):
        memory = known(u)
        if any(s in depends for s in (u.src if memory is None else (memory,))):
            depends.add(u)
    superseded = old.difference(lazy)
    more = [u for u in (*versions, *lazy) if u in depends and prod(u.shape)]
    return {u for u in more if u not in superseded}


def _kept(shown: set[UOp], old: set[UOp], device: str) -> set[UOp]:
    """Which of the old contents somebody goes on reading; shown: those that tensors show."""
    kept = set(shown)
    kept.update(u for u in old if storage.has_memory(u) and storage.memory(u) in storage.pinned)
    if watch.current is None:  # a realised result draws again where it is differentiated later
        kept.update(_newest_held(t._u) for t in storage.companions.get(device, ()))
    return kept


def _newest_held(u: UOp) -> UOp:
    """The BUFFER with the newest version of a memory that is computed."""
    while (held := storage.located(u)) is None:
        u = u.src[0]
    return held


def _bind(
    roots: Sequence[UOp],
    leaves: Sequence[UOp],
    plan: Schedule,
    results: Sequence[Buffer],
    device: str,
) -> None:
    """Computed values become memories.  An update in place leaves its old version without one."""
    memories = [storage.memory(u) for u in leaves]
    made: dict[Leaf | Result, UOp] = {}
    for root, place in zip(roots, plan.results, strict=True):
        assert isinstance(place, (Leaf, Result))
        value = made.get(place)
        if value is None or value.shape != root.shape:
            value = storage.place(device, root.dtype, root.shape)
            held = storage.located(value)
            assert held is not None
            if isinstance(place, Leaf):
                storage.put(held, memories[place.number])
                storage.forget(leaves[place.number])
            else:
                storage.put(held, results[place.number])
            made[place] = value
        storage.stand_in(value, root)


def _settle(t: Base, u: UOp) -> None:
    """The tensor of a realised graph u stands for its memory, or for a view of it; unless another
    thread has given it a newer version since."""
    leaf = t.requires_grad and t.is_leaf  # type: ignore[attr-defined]  # of Backward, which Tensor has
    if t.requires_grad and not leaf:
        return
    views = []
    graph = u
    while u.op in _VIEWED and u not in storage.becomes:
        views.append(u)
        u = u.src[0]
    value = storage.becomes.get(u, u)
    passes = collects(u) or collects(value)
    for view in reversed(views):
        if view.op is Ops.RESHAPE:
            value = value.reshape(view.shape)
        elif view.op is not Ops.DETACH:
            value = UOp(view.op, (value,), view.arg)
        elif passes:  # the memory of a leaf: without the DETACH gradients would come to it
            value = value.detach()
        passes = passes or collects(view) or collects(value)
    with naming:
        if value is not graph and t._u is graph:
            t._u = value
            if leaf:
                remember(t)

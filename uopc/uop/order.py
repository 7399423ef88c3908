"""The order in which the nodes of a LOOPS kernel are done.

Sources come first, as in `toposort`; and a LOAD stands before every effect that its memory's
version does not name.  Without the second rule a LOAD would stand next to its first user, which may
come after the same registers were written again, or after a barrier that lets others write:

    x = c.load(acc.index(0)); c.store(acc.index(0), 0.0); c.store(y.index(t), x)

A wide LOAD takes the STORE along that copies it, where that may be: it has no name to keep it by.
"""

from __future__ import annotations

from collections.abc import Sequence

from uopc.dtype import AddrSpace
from uopc.uop.node import UOp, addrspace, memory, toposort
from uopc.uop.ops import EFFECTS, Ops

_STOPS = EFFECTS | {Ops.END, Ops.IF, Ops.ROLE}
_WRITES = frozenset((Ops.STORE, Ops.ATOMIC, Ops.COPY, Ops.LDMATRIX, Ops.STMATRIX, Ops.MMA))


def written(effect: UOp) -> UOp | None:
    """The BUFFER or ALLOC that an effect writes; None where it writes none."""
    if effect.op not in _WRITES:
        return None
    to = effect.src[0]
    return memory(to.src[0] if to.op is Ops.TENSORMAP else to)


def overtakes(effect: UOp, m: UOp) -> bool:
    """May what memory m holds have changed, for this thread, once the effect is done?

    Registers change by writes alone.  After any effect but a STORE elsewhere (a barrier, an
    arrival, a fence) other threads may go on and write.
    """
    if written(effect) is m:
        return True
    return effect.op is not Ops.STORE and addrspace(m) is not AddrSpace.REG


def in_order(*roots: UOp) -> list[UOp]:
    """Every node once: sources before users, LOADs before the effects that may overtake them."""
    order = toposort(*roots)
    changed = {m for u in order if (m := written(u)) is not None}
    loads = [u for u in order if u.op is Ops.LOAD and memory(u.src[0]) in changed]
    return _Emission(order, loads).run(roots) if loads else order


class _Emission:
    """One depth-first walk that puts LOADs in as soon as the next effect would overtake them.

    A LOAD is ready when every effect and opened scope above it in the graph has been put out.
    """

    def __init__(self, order: list[UOp], loads: list[UOp]) -> None:
        self.out: list[UOp] = []
        self.seen: set[UOp] = set()
        self.put: set[UOp] = set()
        self.missing: dict[UOp, int] = {}
        self.waiting: dict[UOp, list[UOp]] = {}
        self.ready: dict[UOp, list[UOp]] = {}
        self.copied = {
            u.src[1]: u
            for u in order
            if u.op is Ops.STORE and u.arg is not None and _is_wide(u.src[1])
        }
        self.stops = _nearest_stops(order)
        for load in loads:
            stops = self.stops[load]
            self.missing[load] = len(stops)
            for s in stops:
                self.waiting.setdefault(s, []).append(load)
            if not stops:
                self._is_ready(load)

    def _is_ready(self, load: UOp) -> None:
        self.ready.setdefault(memory(load.src[0]), []).append(load)

    def _with_copy(self, load: UOp) -> UOp:
        """The STORE that copies a wide LOAD, if nothing is missing above it; else the LOAD."""
        copy = self.copied.get(load)
        return load if copy is None or not self.stops[copy] <= self.put else copy

    def run(self, roots: Sequence[UOp]) -> list[UOp]:
        self._walk(roots)
        return self.out

    def _walk(self, roots: Sequence[UOp]) -> None:
        """`toposort`, with a stop before each effect."""
        stack: list[UOp | None] = list(reversed(roots))
        while stack:
            u = stack.pop()
            if u is None:
                done = stack.pop()
                assert done is not None
                self._put(done)
            elif u not in self.seen:
                self.seen.add(u)
                stack += (u, None)
                stack += u.src[::-1]

    def _put(self, u: UOp) -> None:
        if u.op in EFFECTS:
            for m in [m for m in self.ready if overtakes(u, m)]:
                ready = [self._with_copy(load) for load in self.ready.pop(m)]
                self._walk(ready)  # no effect is above them: not deep
        self.out.append(u)
        self.put.add(u)
        for load in self.waiting.pop(u, ()):
            self.missing[load] -= 1
            if not self.missing[load]:
                self._is_ready(load)


def _is_wide(u: UOp) -> bool:
    return u.op is Ops.LOAD and u.arg is not None


def _nearest_stops(order: list[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each node, the effects and openers above it that no other of them hides."""
    below: dict[UOp, frozenset[UOp]] = {}  # what a user of the node sees
    found: dict[UOp, frozenset[UOp]] = {}
    for u in order:
        sets = {below[s] for s in u.src}
        found[u] = sets.pop() if len(sets) == 1 else frozenset().union(*sets)
        below[u] = frozenset((u,)) if u.op in _STOPS else found[u]
    return found

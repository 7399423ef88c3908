"""Decisions as data: how each kernel axis is cut and mapped.

index of axis a = ((((((g*C + c)*K + k)*T + t)*U + u)*L + l)*V + v)
with g blocks (or threads of a CPU), c blocks of one cluster, k serial loop, t inner loop (a CPU
tile), u register copies, l threads of a block, v elements of one vector access.  One of g and k is
"the rest".  Of an axis that is scanned, u may stand between warps and lanes (`passes/split.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from uopc.errors import UsageError
from uopc.plan import Plan

AxisSizes = tuple[tuple[int, int], ...]  # (axis, size) pairs, by axis
#: fields that have a digit for each axis that they name
BY_AXIS = ("blocks", "loop", "tile", "upcast", "local", "vector", "turn", "cluster", "pack")
CLUSTER_SIZES = (2, 4, 8, 16)


def _check_cluster(cluster: AxisSizes, gpu: bool) -> None:
    """Raises UsageError where blocks cannot form such clusters."""
    if not cluster:
        return
    given = f"Opts.cluster={dict(cluster)}"
    if not gpu:
        raise UsageError(f"{given} needs gpu=True: only a GPU has blocks")
    if len(cluster) > 1:
        raise UsageError(f"{given}: blocks form clusters along one axis")
    if (n := cluster[0][1]) not in CLUSTER_SIZES:
        sizes = ", ".join(map(str, CLUSTER_SIZES))
        raise UsageError(f"{given}: a cluster has {sizes} blocks, not {n}")


@dataclass(frozen=True)
class AxisOpts:
    """The sizes of one axis' digits, outermost first; one of blocks and loop was the rest."""

    blocks: int = 1
    loop: int = 1
    tile: int = 1
    upcast: int = 1
    local: int = 1
    vector: int = 1
    cluster: int = 1


@dataclass(frozen=True, init=False)
class Opts:
    """Every choice for one kernel; hashable, printable, `Opts.from_json(o.to_json()) == o`.

    Axes are numbered by the kernel: the outputs' axes first, then the reduced ones in topological
    order of their first REDUCE.  Axes that are not named keep one element per digit.

    Parameters
    ----------
    gpu: the rest of each axis that no reduction walks is blocks (GLOBAL); else a serial loop.
    blocks, loop, tile, upcast, local, vector: {axis: size} of that digit.  Naming `blocks` makes
        the loop the rest of that axis, naming `loop` makes the blocks the rest.  On a reduced axis
        (also one that is stored) the rest is the loop.
    cluster: {axis: n}: a reduced axis is spread over the n blocks of a thread block cluster, which
        exchange what they have reduced: n is 2, 4, 8, or 16 where a GPU allows it (sm_90 on).
    unroll: the upcast digit of every reduced axis that `upcast` does not name.
    thread: the axis whose rest is spread over CPU threads (OpenMP), or None.
    lanes: axes whose local digits are threadIdx.x, .y, .z; () puts the last axis on .x.
    grid: axes whose blocks are blockIdx.x, .y, .z; () puts the last axis on .x.
    merge: sizes of groups of consecutive output axes that become one axis before they are numbered;
        () merges none.
    blocks_per_sm: second number of the launch bounds (it sets ptxas's register target); 0: none.
    keep: "reg" keeps a dear value that several loops use in registers, "shared" rows too long for
        registers in shared memory, "none" computes again.
    early: loads that wait for nothing are issued before the first reduction, and in loops where
        threads of a block meet those of the next iteration before they do.
    turn: {axis: elements of one thread}: accesses contiguous along that axis, while neighbouring
        lanes walk another one, go through shared memory (`passes/turn.py`); the axis that lanes
        walk may be named too.
    streaming: loads of what no other block reads tell the caches that no one will want it again.
    pack: {axis: width}: on a CPU, operands of products that vary along that output axis are first
        written to memory, `width` elements of it side by side (`passes/pack.py`).
    plan: how blocks of a GPU work on a matrix product (`uopc/plan.py`); then no axis has digits.
    """

    gpu: bool
    blocks: AxisSizes
    loop: AxisSizes
    tile: AxisSizes
    upcast: AxisSizes
    local: AxisSizes
    vector: AxisSizes
    unroll: int
    thread: int | None
    lanes: tuple[int, ...]
    grid: tuple[int, ...]
    merge: tuple[int, ...]
    blocks_per_sm: int
    keep: str
    early: bool
    turn: AxisSizes
    streaming: bool
    cluster: AxisSizes
    pack: AxisSizes
    plan: Plan | None

    def __init__(
        self,
        gpu: bool = False,
        local: Mapping[int, int] | AxisSizes = (),
        upcast: Mapping[int, int] | AxisSizes = (),
        vector: Mapping[int, int] | AxisSizes = (),
        blocks: Mapping[int, int] | AxisSizes = (),
        loop: Mapping[int, int] | AxisSizes = (),
        tile: Mapping[int, int] | AxisSizes = (),
        unroll: int = 1,
        thread: int | None = None,
        lanes: tuple[int, ...] = (),
        grid: tuple[int, ...] = (),
        merge: tuple[int, ...] = (),
        blocks_per_sm: int = 0,
        keep: str = "reg",
        early: bool = True,
        turn: Mapping[int, int] | AxisSizes = (),
        streaming: bool = False,
        cluster: Mapping[int, int] | AxisSizes = (),
        pack: Mapping[int, int] | AxisSizes = (),
        plan: Plan | None = None,
    ) -> None:
        given = dict(blocks=blocks, loop=loop, tile=tile, upcast=upcast, local=local, vector=vector)
        given |= dict(turn=turn, cluster=cluster, pack=pack)
        for name, sizes in given.items():
            pairs = sizes.items() if isinstance(sizes, Mapping) else sizes
            clean = tuple(sorted((int(a), int(n)) for a, n in pairs))
            for axis, n in clean:
                if axis < 0 or n < 1:
                    raise UsageError(
                        f"Opts.{name}: axis {axis} with size {n}; both count from 0 and 1"
                    )
            object.__setattr__(self, name, clean)
        both = sorted(set(dict(self.blocks)) & set(dict(self.loop)))
        if both:
            raise UsageError(
                f"Opts: axis {both[0]} has both blocks and loop; one of them must be the rest"
            )
        _check_cluster(self.cluster, bool(gpu))
        if self.pack and gpu:
            raise UsageError(
                f"Opts.pack={dict(self.pack)} is for CPU kernels; a GPU's blocks share tiles"
            )
        if keep not in ("reg", "shared", "none"):
            raise UsageError(f"Opts.keep is {keep!r}; it is 'reg', 'shared' or 'none'")
        if unroll < 1:
            raise UsageError(f"Opts.unroll is {unroll}; it is at least 1")
        if not gpu and self.local:
            raise UsageError(
                f"Opts.local={dict(self.local)} needs gpu=True: only a GPU has threads of a block"
            )
        if not gpu and keep == "shared":
            raise UsageError(
                "Opts.keep='shared' needs gpu=True: only a GPU has shared memory. Use 'reg'"
            )
        if gpu and thread is not None:
            raise UsageError(
                f"Opts.thread={thread} is for CPU kernels; with gpu=True use local and blocks"
            )
        if not gpu and self.blocks:
            raise UsageError(f"Opts.blocks={dict(self.blocks)} needs gpu=True; on a CPU use thread")
        rest: dict[str, Any] = dict(
            gpu=bool(gpu), unroll=unroll, thread=thread, keep=keep, early=bool(early)
        )
        rest["streaming"] = bool(streaming)
        rest["plan"] = plan
        if plan is not None and (not gpu or any(given.values())):
            raise UsageError(
                "Opts.plan needs gpu=True, and says itself what blocks, threads and loops do: "
                "leave the digits of axes out"
            )
        rest |= dict(
            lanes=tuple(lanes),
            grid=tuple(grid),
            merge=tuple(merge),
            blocks_per_sm=int(blocks_per_sm),
        )
        for name, value in rest.items():
            object.__setattr__(self, name, value)
        if self.turn:
            self.turned_axes()

    def axis(self, a: int, size: int, reduced: bool) -> AxisOpts:
        """The digit sizes of axis a of `size` elements."""
        blocks, loop = dict(self.blocks).get(a), dict(self.loop).get(a)
        tile, local, vector = (dict(x).get(a, 1) for x in (self.tile, self.local, self.vector))
        upcast = dict(self.upcast).get(a, self.unroll if reduced else 1)
        cluster = dict(self.cluster).get(a, 1)
        inner = cluster * tile * upcast * local * vector
        spread = self.gpu or self.thread == a
        if blocks is None and (loop is None and (reduced or not spread)):
            blocks = 1
        if blocks is not None:
            rest = max(1, -(-size // (inner * blocks)))
            return AxisOpts(blocks, rest, tile, upcast, local, vector, cluster)
        loop = loop or 1
        rest = max(1, -(-size // (inner * loop)))
        return AxisOpts(rest, loop, tile, upcast, local, vector, cluster)

    def turned_axes(self) -> tuple[int, int]:
        """(axis that neighbouring lanes walk, the one that is turned), where one is.

        Raises UsageError where `turn` does not say which.
        """
        local = [a for a, n in self.local if n > 1]
        if not local:
            raise UsageError(
                f"Opts.turn={dict(self.turn)} needs lanes that change places: set Opts.local"
            )
        x = next((a for a in self.lanes if a in local), local[-1])
        others = [a for a, _ in self.turn if a != x]
        if len(others) != 1:
            raise UsageError(
                f"Opts.turn={dict(self.turn)}: neighbouring lanes walk axis {x}; turn names one "
                "other axis, and that one too where a thread has several elements of it"
            )
        return x, others[0]

    def check(self, axes: int, reduced: frozenset[int]) -> None:
        """Raises UsageError where an axis that the kernel does not have is named."""
        for name in BY_AXIS:
            for axis, n in getattr(self, name):
                if axis >= axes:
                    raise UsageError(
                        f"Opts.{name}={{{axis}: {n}}}: the kernel has axes 0 to {axes - 1}, "
                        f"no axis {axis}"
                    )
        named = {
            "lanes": self.lanes,
            "grid": self.grid,
            "thread": () if self.thread is None else (self.thread,),
        }
        for name, order in named.items():
            for axis in order:
                if not 0 <= axis < axes:
                    raise UsageError(
                        f"Opts.{name}: the kernel has axes 0 to {axes - 1}, no axis {axis}"
                    )
        for axis, n in self.cluster:
            if axis not in reduced:
                raise UsageError(
                    f"Opts.cluster={{{axis}: {n}}}: axis {axis} is not reduced, its blocks have "
                    "nothing to exchange. Use blocks"
                )
            if any(a in reduced and b > 1 for a, b in self.blocks):
                raise UsageError(
                    f"Opts.cluster={{{axis}: {n}}} and Opts.blocks={dict(self.blocks)}: a "
                    "reduction is spread over a cluster or over the grid, not both"
                )
        for axis, n in self.pack:
            if axis in reduced:
                raise UsageError(
                    f"Opts.pack={{{axis}: {n}}}: axis {axis} is reduced; operands are packed along "
                    "an output axis"
                )
        for axis, n in self.turn:
            if axis in reduced:
                raise UsageError(
                    f"Opts.turn={{{axis}: {n}}}: axis {axis} is reduced; only output axes are "
                    "turned"
                )
        for axis, n in self.loop:
            if axis in reduced:
                raise UsageError(
                    f"Opts.loop={{{axis}: {n}}}: axis {axis} is reduced, its rest is the loop. "
                    "Use tile, or blocks to split it"
                )
            if not self.gpu and axis != self.thread:
                raise UsageError(
                    f"Opts.loop={{{axis}: {n}}}: on a CPU the rest of axis {axis} is the loop, "
                    f"unless thread={axis}. Use tile"
                )
        if self.thread is not None and self.thread in reduced:
            raise UsageError(
                f"Opts.thread={self.thread}: axis {self.thread} is reduced; "
                "only output axes run on threads"
            )

    def to_json(self) -> str:
        """One line of JSON with the fields that differ from the default."""
        default = Opts()
        out = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != getattr(default, f.name)
        }
        if self.plan is not None:
            out["plan"] = asdict(self.plan)
        return json.dumps(out)

    @classmethod
    def from_json(cls, text: str) -> Opts:
        """The Opts that `to_json` wrote.  Raises UsageError for unknown fields."""
        data: dict[str, Any] = json.loads(text)
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise UsageError(f"Opts has no field {unknown[0]!r}; it has {', '.join(sorted(known))}")
        given: dict[str, Any] = {}
        for name, value in data.items():
            if name == "plan":
                given[name] = Plan(**value)
                continue
            rows = (
                [tuple(x) if isinstance(x, list) else x for x in value]
                if isinstance(value, list)
                else value
            )
            given[name] = tuple(rows) if isinstance(rows, list) else rows
        return cls(**given)

    def __repr__(self) -> str:
        default = Opts()
        parts = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value != getattr(default, f.name):
                by_axis = f.name in BY_AXIS
                parts.append(f"{f.name}={dict(value) if by_axis else value!r}")
        return f"Opts({', '.join(parts)})"

"""Opts to try for a kernel: neighbours of good ones, and some at random.

Neither is checked here: what a kernel cannot do shows when it is built.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from uopc.choose.facts import KernelFacts
from uopc.errors import UsageError
from uopc.opts import Opts
from uopc.plan import COPIES, REGISTERS, STORES, Plan
from uopc.target import Target

#: threads of a block and elements of a thread beyond which nothing is tried
_MOST_THREADS, _MOST_COPIES = 1024, 128
_BLOCKS_PER_SM = (0, 1, 2, 3, 4, 6, 8)
_N = re.compile(r"n\d+k")  # in the name of an atom
_ON_GPU = ("local", "upcast", "vector", "blocks", "loop", "cluster")
_ON_CPU = ("tile", "upcast", "vector", "loop")


def neighbours(opts: Opts, facts: KernelFacts, on: Target) -> list[Opts]:
    """Everything that is one step away: a digit of an axis doubled or halved, a factor 2 moved from
    one digit to another, or one of the other choices made differently; of a plan, one of its fields
    or a side of its tile."""
    if opts.plan is not None:
        plans = dict.fromkeys(_plans(opts.plan, on))
        return [replace(opts, plan=p) for p in plans if p != opts.plan]
    changes: list[dict[str, Any]] = []
    digits = _ON_GPU if on.is_gpu else _ON_CPU
    for a in range(len(facts.sizes)):
        changes += [_scaled(opts, a, **{name: up}) for name in digits for up in (2, 1)]
        changes += [
            _scaled(opts, a, **{less: 1, more: 2})
            for less in digits
            for more in digits
            if more != less
        ]
    changes += _others(opts, facts, on)
    out = [o for change in changes if change and (o := _changed(opts, change)) is not None]
    return [o for o in dict.fromkeys(out) if o != opts and _is_sensible(o, facts)]


def _changed(opts: Opts, change: Mapping[str, Any]) -> Opts | None:
    """Opts with other fields; None where those do not go together."""
    try:
        return replace(opts, **change)
    except UsageError:
        return None


def _plans(plan: Plan, on: Target) -> Iterator[Plan]:
    """Plans one step away, those that can be."""
    halves_and_doubles = [
        (name, n)
        for name in ("block_k", "group", "depth")
        for n in (getattr(plan, name) * 2, getattr(plan, name) // 2)
    ]
    changes: list[dict[str, Any]] = [
        *({name: n} for name, n in halves_and_doubles),
        *({"depth": plan.depth + n} for n in (1, -1)),
        *({"blocks": n, "splits": 1} for n in (0, on.sms)),
        *({"blocks": 0, "splits": n} for n in (plan.splits * 2, plan.splits // 2)),
        *({"copy": copy, "blocks": 0, "store": REGISTERS} for copy in COPIES),
        *({"store": store} for store in STORES),
        *({"blocks_per_sm": n} for n in (0, 1, 2)),
        {"swap": not plan.swap, "store": REGISTERS},
    ]
    for name, warps in (("block_m", "warps_m"), ("block_n", "warps_n")):
        for n in (getattr(plan, name) * 2, getattr(plan, name) // 2):
            side: dict[str, Any] = {name: n, "rows": ()}
            changes.append(side)
            for count in (getattr(plan, warps) * 2, getattr(plan, warps) // 2):
                changes.append({**side, warps: count})
            if name == "block_n" and plan.atom.startswith("wgmma"):  # one atom as wide as the tile
                changes.append({**side, "atom": _N.sub(f"n{n}k", plan.atom)})
    for change in changes:
        try:
            yield replace(plan, **change)
        except UsageError:
            continue


def _scaled(opts: Opts, axis: int, **steps: int) -> dict[str, Any]:
    """Digits of an axis doubled (2) or halved (1), as changed fields; none where one cannot be."""
    changed: dict[str, Any] = {}
    for name, up in steps.items():
        sizes: dict[int, int] = dict(getattr(opts, name))
        have = sizes.get(axis, 1)
        if up == 1 and have % 2:
            return {}
        sizes[axis] = have * 2 if up == 2 else have // 2
        changed[name] = {a: n for a, n in sizes.items() if n > 1}
    return changed


def _others(opts: Opts, facts: KernelFacts, on: Target) -> Iterator[dict[str, Any]]:
    """Changes of what is no size of a digit."""
    if not on.is_gpu:
        free = [a for a in facts.outputs if a not in facts.reduced]
        for thread in (None, *free):
            yield {"thread": thread, "loop": {a: n for a, n in opts.loop if a == thread}}
        for unroll in (1, 2, 4):
            yield {"unroll": unroll}
        return
    for blocks in _BLOCKS_PER_SM:
        yield {"blocks_per_sm": blocks}
    for keep in ("reg", "shared", "none"):
        yield {"keep": keep}
    yield {"early": not opts.early}
    yield {"streaming": not opts.streaming}
    for axis, n in opts.turn:
        yield {"turn": dict(opts.turn) | {axis: 2 * n}}
        yield {"turn": dict(opts.turn) | {axis: max(n // 2, 1)}}
    for name in ("lanes", "grid"):
        order: tuple[int, ...] = getattr(opts, name)
        for n, axis in enumerate(order[1:], 1):
            yield {name: (axis, *order[:n], *order[n + 1 :])}


def _is_sensible(opts: Opts, facts: KernelFacts) -> bool:
    """Threads and copies are no more than a block and a thread can have, and no digit is larger
    than twice its axis."""
    for name in (*_ON_GPU, "tile"):
        if any(a < len(facts.sizes) and n >= 2 * facts.sizes[a] for a, n in getattr(opts, name)):
            return False
    threads = math.prod(n for _, n in opts.local)
    copies = math.prod(n for digit in (opts.upcast, opts.vector) for _, n in digit)
    return threads <= _MOST_THREADS and copies <= _MOST_COPIES


def at_random(facts: KernelFacts, on: Target, rng: random.Random) -> Opts:
    """Any mapping: a few powers of two over axes in any order."""
    if not on.is_gpu:
        return _on_cpu(facts, rng)
    room = rng.choice((64, 128, 256, 512, 1024))
    axes = list(range(len(facts.sizes)))
    rng.shuffle(axes)
    local: dict[int, int] = {}
    for a in axes:
        most = min(_pow2(facts.sizes[a]), room // math.prod(local.values()))
        n = min(1 << rng.randint(0, 10), most)
        if n > 1:
            local[a] = n
    upcast = {a: min(rng.choice((2, 4)), facts.sizes[a]) for a in axes if rng.random() < 0.35}
    vector = {
        a: n
        for a in axes
        if facts.contiguous(a) and (n := facts.vector(a)) > 1 and rng.random() < 0.6
    }
    lanes = tuple(rng.sample(axes, len(axes)))
    grid = tuple(a for a in lanes if a in facts.outputs)
    return Opts(
        gpu=True,
        local=local,
        upcast=upcast,
        vector=vector,
        lanes=lanes,
        grid=grid,
        merge=facts.merge,
    )


def _on_cpu(facts: KernelFacts, rng: random.Random) -> Opts:
    axes = range(len(facts.sizes))
    upcast = {a: rng.choice((2, 4, 8)) for a in axes if rng.random() < 0.3}
    vector = {a: rng.choice((4, 8, 16)) for a in axes if rng.random() < 0.3}
    free = [a for a in facts.outputs if a not in facts.reduced]
    thread = rng.choice([None, *free])
    return Opts(
        upcast={a: n for a, n in upcast.items() if n <= facts.sizes[a]},
        vector={a: n for a, n in vector.items() if n <= facts.sizes[a]},
        thread=thread,
        merge=facts.merge,
    )


def _pow2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()

"""Indices that a kernel computes in data integers: checked text compares them with what they mean.

An index of dtypes.index is as wide as its bounds ask.  Data integers wrap, and who computes an
address in them does not want that.  So where an access's offset comes from signed integers by sums,
products and shifts that bounds do not prove to fit, its text computes the offset twice: as the GPU
does, and in long double, which has 64 bits of a number and never wraps.

    long long at0;
    ... (at0 = (int)((unsigned)val0 * (unsigned)70000), emu_index(W, 0, EMU_AT(1), at0,
         ((long double)val0 * (long double)70000), 32)) ...

Unsigned integers wrap on purpose, and what goes through %, &, >>, // or ^ is no address but a hash:
none of these is followed.  What a kernel's own passes make is proven, and gets no such text.

A value with a name keeps its exact value beside it in the warp's state.  A LOAD in the arithmetic
is done once: the first text writes down what it gave, the second one takes that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from uopc.dtype import DType, Kind, dtypes
from uopc.kernel import ProgramTree
from uopc.render.base import PRIMARY, UNARY, Text
from uopc.render.c import CRenderer
from uopc.uop.facts import Bounds, bounds, exact_bounds
from uopc.uop.node import UOp, toposort
from uopc.uop.ops import Ops

_TWO = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.MIN))
_WRAPPING = frozenset((Ops.ADD, Ops.SUB, Ops.MUL, Ops.NEG, Ops.SHL))
_SIGNS = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*"}


def wrapping_indices(program: ProgramTree) -> frozenset[UOp]:
    """Values in offsets of accesses that a wrap may have changed, the offsets themselves too."""
    order = toposort(program.sink)
    may: set[UOp] = set()
    for u in order:
        if may_wrap(u) or any(s in may for s in _followed(u)):
            may.add(u)
    stack = [u.src[1] for u in order if u.op is Ops.INDEX]
    found: set[UOp] = set()
    while stack:
        u = stack.pop()
        if u in may and u not in found:
            found.add(u)
            stack.extend(_followed(u))
    return frozenset(found)


def may_wrap(u: UOp) -> bool:
    """Is a value's own dtype too narrow for what its bounds allow?  Signed data integers only."""
    if u.dtype.kind is not Kind.INT:
        return False
    if u.op is Ops.CAST and _is_followed(u.src[0].dtype):
        return not _fits(bounds(u.src[0]), u.dtype)
    return u.op in _WRAPPING and not _fits(exact_bounds(u), u.dtype)


def _fits(range_: Bounds, d: DType) -> bool:
    return d.min <= range_[0] and range_[1] <= d.max


def _is_followed(d: DType) -> bool:
    return d is dtypes.index or d.kind is Kind.INT


def _followed(u: UOp) -> tuple[UOp, ...]:
    """The sources whose exact values make that of u."""
    if not _is_followed(u.dtype):
        return ()
    if u.op in _TWO:
        return u.src[:2]
    if u.op is Ops.WHERE:
        return u.src[1:]
    if u.op in (Ops.NEG, Ops.SHL, Ops.AFTER):
        return u.src[:1]
    return u.src if u.op is Ops.CAST and _is_followed(u.src[0].dtype) else ()


class IndexRenderer(CRenderer):
    """Offsets of checked accesses.  `wrapping`: values that may not be what they mean."""

    def __init__(self, program: ProgramTree, name: str, checked: bool) -> None:
        super().__init__(program, name)
        self.wrapping = wrapping_indices(program) if checked else frozenset()
        self._loaded: dict[UOp, str] | None = None  # in text that is computed twice
        self._again = False  # is this the second text?

    def is_written_again(self, u: UOp) -> bool:
        """Is a named value computed anew in each part of the text that needs it?"""
        return False

    def exact_place(self, name: str) -> str:
        """Where the exact value of a named one is kept."""
        raise NotImplementedError

    def checked_index(self, offset: UOp, where: str, gate: str = "1") -> str:
        """The text of an offset.  where: number of the memory and stamp of the access; gate: under
        which condition it is made, where the text is computed all the same."""
        if offset not in self.wrapping:
            return self.expr(offset, 81)
        name = self.fresh("at")
        self.put(f"long long {name};")
        with self._twice():
            first = self.expr(offset)
            self._again = True
            exact = self._exact(offset)
        bits = min(u.dtype.bits for u in self._below(offset) if may_wrap(u))
        test = f"emu_index(W, {where}, {name}, {exact}, {bits})"
        return f"({name} = {first}, {test if gate == '1' else f'{gate} ? {test} : {name}'})"

    def let(self, u: UOp) -> None:
        if u not in self.wrapping or self.is_written_again(u):
            super().let(u)
            return
        with self._twice():
            super().let(u)
            self._again = True
            self.put(f"{self.exact_place(self.names[u])} = {self._computed(u)};")

    def once(self, u: UOp, text: Text) -> Text:
        """The text of a LOAD, which is done in the first of two."""
        if self._loaded is None:
            return text
        if u not in self._loaded:
            self._loaded[u] = self.fresh("got")
            self.put(f"{self.type_of(u)} {self._loaded[u]};")
        return f"({self._loaded[u]} = {text[0]})", PRIMARY

    def known(self, u: UOp) -> Text | None:
        """What the first text has loaded, in the second one."""
        if self._loaded is None or not self._again:
            return None
        return self._loaded[u], PRIMARY

    @contextmanager
    def _twice(self) -> Iterator[None]:
        before, self._loaded = self._loaded, {}
        was, self._again = self._again, False
        yield
        self._loaded, self._again = before, was

    def _exact(self, u: UOp) -> str:
        """The text of an exact value."""
        if u not in self.wrapping:
            return f"(long double){self.expr(u, UNARY)}"
        if u in self.names and not self.is_written_again(u):
            return self.exact_place(self.names[u])
        return self._computed(u)

    def _computed(self, u: UOp) -> str:
        """The same from the exact values of its sources, whether it has a name or not."""
        parts = [self._exact(s) for s in _followed(u)]
        if u.op in _SIGNS:
            return f"({parts[0]} {_SIGNS[u.op]} {parts[1]})"
        if u.op in (Ops.MAX, Ops.MIN):
            return f"emu_{'larger' if u.op is Ops.MAX else 'smaller'}({', '.join(parts)})"
        if u.op is Ops.WHERE:
            return f"({self.expr(u.src[0], 11)} ? {parts[0]} : {parts[1]})"
        if u.op is Ops.NEG:
            return f"(-{parts[0]})"
        if u.op is Ops.SHL:
            return f"emu_shifted({parts[0]}, {self.expr(u.src[1])})"
        return parts[0]

    def _below(self, offset: UOp) -> set[UOp]:
        found, stack = set(), [offset]
        while stack:
            u = stack.pop()
            if u in self.wrapping and u not in found:
                found.add(u)
                stack.extend(_followed(u))
        return found


__all__ = ["IndexRenderer", "may_wrap", "wrapping_indices"]

"""Ranked Opts for a GPU kernel, from sizes and strides alone.  INDEXED -> list of Opts.

Four shapes of work: elementwise; rows (the reduced axis is contiguous); columns (it is strided);
and whatever serves several results with one load or has several reduced axes, such as products and
kernels that fuse them, which a model of costs spreads (`choose/spread.py`).  The figures behind the
numbers here: note 0003.  Nothing is compiled; `compile` takes the next candidate where one spills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from uopc.choose.columns import columns
from uopc.choose.elementwise import elementwise
from uopc.choose.facts import KernelFacts
from uopc.choose.products import products
from uopc.choose.rows import rows
from uopc.choose.scans import scans
from uopc.choose.sizes import Aim as Aim
from uopc.choose.spread import spread
from uopc.decision import Guess, Reason, given, kind, opts_of
from uopc.opts import Opts

UNBOUND = Reason(
    "choose.gpu.each",
    "the candidate before, without its {blocks} blocks per SM: it may take all the registers that "
    "it wants",
)
NO_AXES = Reason("choose.gpu._guesses", "one element: there is nothing to cut")
SCANNED = Reason("choose.gpu._guesses", "axis {axis} is scanned")
ELEMENTWISE = Reason("choose.gpu._guesses", "nothing is reduced or scanned")
ROWS = Reason("choose.gpu._guesses", "axis {axis} alone is reduced, {n} elements, contiguous")
COLUMNS = Reason("choose.gpu._guesses", "axis {axis} alone is reduced, {n} elements, strided")
SPREAD = Reason(
    "choose.gpu._guesses", "axes {walked} are reduced{reuses}: a model of costs spreads the work"
)


def rank(facts: KernelFacts, aim: Aim) -> list[Opts]:
    """Candidates, the best guess first; never empty."""
    return opts_of(each(facts, aim))


def each(facts: KernelFacts, aim: Aim) -> Iterator[Guess]:
    """The same one by one, with reasons: who takes a plan does not wait for the digits after it.

    One that asks for several blocks per SM is followed by itself without that: where it spills, the
    same mapping with all the registers it wants is better than the next one.
    """
    if aim.split:
        yield from products(facts, aim)
    for guess in _guesses(facts, aim):
        yield guess
        if (blocks := guess.opts.blocks_per_sm) > 1:
            unbound = kind("without bounds", UNBOUND, blocks=blocks)
            yield Guess(replace(guess.opts, blocks_per_sm=0), (*guess.why, unbound))


def _guesses(facts: KernelFacts, aim: Aim) -> list[Guess]:
    """Those of the shape of work that this is."""
    if not facts.axes:
        return [given(Opts(gpu=True), NO_AXES)]
    if facts.scanned is not None:
        said = kind("scans", SCANNED, axis=facts.scanned)
        return [g.adding(said) for g in scans(facts, aim, facts.scanned)]
    if not facts.reduces:
        said = kind("elementwise", ELEMENTWISE)
        return [g.adding(said) for g in elementwise(facts, aim)]
    walked = sorted({r.arg.axis for u in facts.reduces for r in u.src[1:]})
    if len(walked) == 1 and not facts.reuses():
        axis = walked[0]
        in_rows = facts.contiguous(axis) or not facts.strides(axis)
        figures = dict(axis=axis, n=facts.sizes[axis])
        said = kind("rows", ROWS, **figures) if in_rows else kind("columns", COLUMNS, **figures)
        choose = rows if in_rows else columns
        return [g.adding(said) for g in choose(facts, aim, axis)]
    reuses = ", and a load serves several elements" if facts.reuses() else ""
    said = kind("spread", SPREAD, walked=", ".join(map(str, walked)), reuses=reuses)
    return [g.adding(said) for g in spread(facts, aim.target, aim.row_threads)]

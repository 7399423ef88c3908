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
from uopc.opts import Opts


def rank(facts: KernelFacts, aim: Aim) -> list[Opts]:
    """Candidates, the best guess first; never empty."""
    return list(dict.fromkeys(each(facts, aim)))


def each(facts: KernelFacts, aim: Aim) -> Iterator[Opts]:
    """The same one by one: who takes a plan does not wait for the digits after it.

    One that asks for several blocks per SM is followed by itself without that: where it spills, the
    same mapping with all the registers it wants is better than the next one.
    """
    if aim.split:
        yield from products(facts, aim)
    for guess in _guesses(facts, aim):
        yield guess
        if guess.blocks_per_sm > 1:
            yield replace(guess, blocks_per_sm=0)


def _guesses(facts: KernelFacts, aim: Aim) -> list[Opts]:
    if not facts.axes:
        return [Opts(gpu=True)]
    if facts.scanned is not None:
        return scans(facts, aim, facts.scanned)
    if not facts.reduces:
        return elementwise(facts, aim)
    walked = sorted({r.arg.axis for u in facts.reduces for r in u.src[1:]})
    if len(walked) == 1 and not facts.reuses():
        axis = walked[0]
        if facts.contiguous(axis) or not facts.strides(axis):
            return rows(facts, aim, axis)
        return columns(facts, aim, axis)
    return spread(facts, aim.target, aim.row_threads)
